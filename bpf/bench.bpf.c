// SPDX-License-Identifier: GPL-2.0-only
/*
 * What tools/bench/bench-switch runs with BPF_PROG_TEST_RUN.
 *
 * A test run repeats one frame, and a contribution that comes twice is not added.  So a driver stands in
 * front: every repetition it writes the next contribution's headers (rank and block in rotation, as a
 * window of blocks comes from one rank after the other) and tail-calls the program to be measured:
 *
 *   the switch itself, as it is attached to ports
 *   inagg_bench_copy, which only copies header and elements to a map value chosen by the same slot
 *   inagg_bench_nothing, whose time is the driver's own
 */
#include "parse.h"
#include "lanes.h"

#include "bench.h"

char LICENSE[] SEC("license") = "GPL";

struct bench_plan plan;
struct bench_frame frames[INAGG_MAX_RANKS];	/* each rank's headers */
__u64 payload[INAGG_MAX_PAYLOAD / 8];		/* of every contribution */

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, BENCH_TARGETS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} targets SEC(".maps");

/* As large as the switch's slots, without their lock. */
struct copy {
	struct inagg_hdr hdr;
	__u64	lanes[INAGG_MAX_ELEMENTS / 2];
	__u32	buffers[INAGG_MAX_RANKS / 2];
};
_Static_assert(sizeof(struct copy) == sizeof(struct inagg_slot_memory), "the spread is the same");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_DEFAULT_SLOTS * 2);
	__type(key, __u32);
	__type(value, struct copy);
} copies SEC(".maps");

static __always_inline void write_headers_of(__u32 rank, void *data)
{
	const inagg_dword *from = (void *)&frames[rank];
	inagg_dword *to = data;

#pragma unroll
	for (unsigned int i = 0; i < sizeof(struct bench_frame) / 8; i++)
		to[i] = from[i];
	((__u16 *)data)[sizeof(struct bench_frame) / 2 - 1] = ((__u16 *)from)[sizeof(struct bench_frame) / 2 - 1];
}

SEC("xdp.frags")
int inagg_bench_driver(struct xdp_md *ctx)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct inagg_hdr *h = data + INAGG_HDR4;
	__u32 target = plan.target, in_window, rank, block;
	__u64 n;

	if ((void *)(h + 1) > end || target >= BENCH_TARGETS || !plan.ranks)
		return XDP_ABORTED;
	n = plan.next[target];
	in_window = (__u32)n & (plan.slots - 1);
	n /= plan.slots;
	rank = n % plan.ranks & (INAGG_MAX_RANKS - 1);
	block = (__u32)(n / plan.ranks) * plan.slots + in_window;

	write_headers_of(rank, data);
	h->block = bpf_htonl(block);
	h->slot = bpf_htonl(in_window);
	if (block & plan.slots)
		h->level_flags |= bpf_htons(INAGG_F_VERSION);
	if (h->level_flags & bpf_htons(INAGG_F_CHECKED))
		inagg_hdr_seal_checked(h, h->payload_checksum);	/* the template holds the payload's part */
	else
		inagg_hdr_seal(h);
	/* The contribution may have become a sum: give the frame its elements again. */
	if (plan.restore)
		result_to_packet(payload, h + 1, end, plan.lines);
	plan.restore = plan.all_change || rank == plan.ranks - 1;
	/*
	 * A device writes a frame long before a program reads it.  The atomic addition, which waits for
	 * all earlier stores, keeps the program from waiting for them.
	 */
	__sync_fetch_and_add(&plan.next[target], 1);
	bpf_tail_call(ctx, &targets, target);
	return XDP_ABORTED;
}

SEC("xdp.frags")
int inagg_bench_copy(struct xdp_md *ctx)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct inagg_hdr *h = data + INAGG_HDR4;
	__u32 key, bytes;
	struct copy *to;

	if ((void *)(h + 1) > end)
		return XDP_ABORTED;
	key = bpf_ntohl(h->slot) * 2 + (bpf_ntohs(h->level_flags) & INAGG_F_VERSION);
	to = bpf_map_lookup_elem(&copies, &key);
	if (!to)
		return XDP_ABORTED;
	to->hdr = *h;
	bytes = bpf_ntohs(h->elements) * inagg_element_bytes(inagg_hdr_dtype(h));
	if (bytes % 128)
		packet_to_result(h + 1, end, to->lanes, bytes / 64);
	else
		lanes_store(h + 1, end, to->lanes, bytes / 128);
	return XDP_DROP;
}

SEC("xdp.frags")
int inagg_bench_nothing(struct xdp_md *ctx __attribute__((unused)))
{
	return XDP_DROP;
}
