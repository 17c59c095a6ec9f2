// SPDX-License-Identifier: GPL-2.0-only
/*
 * The block streams of one communicator, wholly in XDP: stores a result in its cell, turns the same
 * frame into the slot's next contribution and sends it back.  No skb, no system call per packet.
 *
 * inagg_stream runs for received packets (tail call from worker.bpf.c), and for live frames, by which user space
 * starts idle slots and serves timers; where there are few of them, through a packet socket.  Both decide under the
 * slot's lock, by core/worker.h; payload is copied outside it.  That is safe because a cell changes hands only
 * when its slot moves on: a copy that might have raced with that is recognised afterwards and not sent.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define INAGG_NEVER_REFUSED	/* switchml only */

#include "lock.h"
#include "worker_maps.h"
#include <inagg/core/checksum.h>

char LICENSE[] SEC("license") = "GPL";

#define barrier() asm volatile("" ::: "memory")
#define ORDER_TRIES 8		/* two threads, or a few more, take them */
#define SLOTS_LOOKED_AT 2	/* for losses, with each result: all of them in half a window */

const volatile struct inagg_stream_settings settings = {};
struct inagg_stream_shared shared = {};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_worker_slot);
} slots SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_cell);
} cells SEC(".maps");

/* Slots whose next block waits for a frame: a lost packet took theirs along.  See find_errand(). */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__uint(value_size, sizeof(__u32));
} owed SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_order);
} orders SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} doorbell SEC(".maps");

#define COUNT(counter) __sync_fetch_and_add(&shared.counters.counter, 1)

/* A slot with everything that belongs to it. */
struct place {
	struct inagg_stream_state *stream;
	struct inagg_worker_slot *owner;
	struct inagg_wslot *slot;
	__u32 is_control;
	__u32 index;
};

static __always_inline int find_slot(__u32 index, struct place *at)
{
	if (index < settings.slots) {
		at->is_control = 0;
		at->stream = &shared.streams[0];
	} else {
		at->is_control = 1;
		at->stream = &shared.streams[1];
	}
	at->index = index;
	at->owner = bpf_map_lookup_elem(&slots, &index);
	if (!at->owner)
		return 0;
	at->slot = &at->owner->state;
	return 1;
}

/* One at a time decides about a slot; should it be a process that has lost its CPU, we give up. */
static __always_inline int lock(const struct place *at)
{
	return lock_word(&at->owner->busy);
}

static __always_inline void unlock(const struct place *at)
{
	unlock_word(&at->owner->busy);
}

static __always_inline struct inagg_cell *find_cell(const struct place *at, __u32 block)
{
	__u32 index;

	if (at->is_control)
		index = settings.cells + (block & (settings.control_cells - 1));
	else
		index = block & (settings.cells - 1);
	return bpf_map_lookup_elem(&cells, &index);
}

static __always_inline void ring(void)
{
	__u64 anything = 0;

	bpf_ringbuf_output(&doorbell, &anything, sizeof(anything), BPF_RB_FORCE_WAKEUP);
}

/* The frame's linear part becomes @bytes long. */
static __always_inline int resize(struct xdp_md *ctx, __u32 bytes)
{
	__u32 have = (__u32)(ctx->data_end - ctx->data);

	return bytes == have ? 0 : (int)bpf_xdp_adjust_tail(ctx, (int)bytes - (int)have);
}

/* Write the lengths and the IPv4 checksum of a frame with @bytes behind UDP's header. */
static __always_inline int set_lengths(struct xdp_md *ctx, __u32 bytes)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	__u32 header = settings.header_bytes;
	struct udphdr *udp;

	if (header < sizeof(*udp) || header > INAGG_FRAME_ROOM || data + INAGG_FRAME_ROOM > end)
		return -1;
	udp = data + header - sizeof(*udp);
	udp->len = bpf_htons(bytes + sizeof(*udp));
	if (settings.family == 6) {
		struct ipv6hdr *ip = (void *)udp - sizeof(*ip);

		ip->payload_len = udp->len;
	} else {
		struct iphdr *ip = (void *)udp - sizeof(*ip);

		ip->tot_len = bpf_htons(bytes + sizeof(*udp) + sizeof(*ip));
		ip->check = 0;
		ip->check = inagg_ipv4_checksum(ip);
	}
	return 0;
}

/* Turn the image in the frame into a contribution sent again, or a result into a RESTORE. */
static __always_inline int rewrite(struct xdp_md *ctx, int action, __u32 bytes)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct inagg_hdr *h = data + settings.header_bytes;
	__u32 payload;
	__u16 flags;

	if ((void *)(h + 1) > end)
		return -1;
	flags = bpf_ntohs(h->level_flags);
	payload = inagg_hdr_payload_part(h);
	if (action == INAGG_W_RESTORE) {
		h->version_type = INAGG_WIRE_VERSION << 4 | INAGG_RESTORE;
		h->source = bpf_htons(settings.rank);
		flags &= INAGG_F_VERSION | INAGG_F_SATURATED | INAGG_F_CHECKED;
	}
	h->level_flags = bpf_htons(flags | INAGG_F_RESEND);
	h->boot = shared.boots.latest;
	inagg_hdr_reseal(h, payload);
	return set_lengths(ctx, sizeof(*h) + bytes);
}

static __always_inline int write_cell(struct xdp_md *ctx, struct inagg_cell *cell, __u32 bytes)
{
	if (bytes > INAGG_MAX_PAYLOAD || settings.header_bytes > INAGG_FRAME_ROOM ||
	    resize(ctx, settings.header_bytes + sizeof(struct inagg_hdr) + bytes))
		return -1;
	/* Linux 6.1 forgets the bound of a value that was spilled before it was checked. */
	barrier_var(bytes);
	if (bytes > INAGG_MAX_PAYLOAD)
		return -1;
	return (int)bpf_xdp_store_bytes(ctx, 0, cell->frame + INAGG_FRAME_ROOM - settings.header_bytes,
					settings.header_bytes + sizeof(struct inagg_hdr) + bytes);
}

/*
 * Out where it came in.  veth does not wake the other end after XDP_TX unless that runs XDP itself, but
 * does after a redirection; XDP_TX is cheaper and known to more drivers.  Not ctx->ingress_ifindex: a veth with GRO
 * runs the program a little longer than it keeps what that is read from.
 */
static __always_inline int transmit(void)
{
	return shared.redirect ? (int)bpf_redirect(settings.device, 0) : XDP_TX;
}

static __always_inline void count(int action)
{
	if (action == INAGG_W_SEND)
		COUNT(contributions);
	else if (action == INAGG_W_RESEND)
		COUNT(retransmissions);
	else
		COUNT(restores);
}

/* A frame that came as an skb may not grow: user space sends this one. */
static __always_inline int hand_over(const struct place *at, int action)
{
	if (action == INAGG_W_RESTORE)
		shared.restore = at->index + 1;
	else
		at->slot->due_ns = 0;
	ring();
	return XDP_DROP;
}

/* The lock is a full barrier, too: what was read of the slot's cell was read before this. */
static __always_inline int still_has(const struct place *at, __u32 block)
{
	int same;

	if (!lock(at))
		return 0;
	same = at->slot->block == block;
	unlock(at);
	return same;
}

/* Two packets, one of them to all ranks, from one frame: user space sends them.  @at is locked; ring() then. */
static __always_inline void leave_to_user(const struct place *at)
{
	at->slot->forgotten = 1;
	at->slot->due_ns = 0;
}

/* The frame becomes the packet that @action asks for; @block is the slot's own or, if it is @late, was when that was decided. */
static __always_inline int send(struct xdp_md *ctx, const struct place *at, int action, __u32 block, int late)
{
	struct inagg_cell *cell;
	__u32 bytes;

	cell = find_cell(at, action == INAGG_W_RESTORE ? block - at->stream->worker.slots : block);
	if (!cell)
		return XDP_DROP;
	if (action == INAGG_W_RESTORE) {
		if (!cell->done)
			return XDP_DROP; /* still being stored; the switch will ask again */
		bytes = bpf_ntohs(cell->hdr.elements) * inagg_element_bytes(inagg_hdr_dtype(&cell->hdr));
	} else {
		bytes = cell->bytes;
	}
	if (write_cell(ctx, cell, bytes))
		return late ? XDP_DROP : hand_over(at, action);
	/* If the slot moved on, another CPU may have written to the cell while we read it. */
	if ((late || action != INAGG_W_SEND) && !still_has(at, block))
		return XDP_DROP;
	if (action != INAGG_W_SEND && rewrite(ctx, action, bytes))
		return XDP_DROP;
	count(action);
	return transmit();
}

/* Is this from the switch, with the layout that our own frames have? */
static __always_inline int from_switch(const void *data, const void *end)
{
	const struct udphdr *udp = data + settings.header_bytes - sizeof(*udp);

	if (settings.header_bytes > INAGG_FRAME_ROOM || data + INAGG_FRAME_ROOM > end)
		return 0;
	if (settings.family == 6) {
		const struct ipv6hdr *ip = (void *)udp - sizeof(*ip);
		const __u32 *from = (const __u32 *)&ip->saddr;
		const volatile __u32 *remote = (const volatile __u32 *)settings.remote;

		return ip->version == 6 && from[0] == remote[0] && from[1] == remote[1] &&
		       from[2] == remote[2] && from[3] == remote[3];
	} else {
		const struct iphdr *ip = (void *)udp - sizeof(*ip);

		return ip->version == 4 && ip->saddr == *(const volatile __u32 *)settings.remote;
	}
}

/* Is the payload checksum right?  The payload starts at @at and is a multiple of 64 bytes. */
static __always_inline int payload_intact(const struct inagg_hdr *h, const void *end, __u32 bytes)
{
	const __u64 *word = (const void *)(h + 1);
	struct inagg_digest sum = {};

	for (__u32 i = 0; i < INAGG_MAX_PAYLOAD / 64; i++) {
		if (i * 64 >= bytes)
			break;
		if ((const void *)(word + 8) > end)
			return 0;
#pragma unroll
		for (int j = 0; j < 8; j++)
			inagg_digest_add(&sum, word[j]);
		word += 8;
	}
	return inagg_packet_intact(h, inagg_digest_fold(&sum));
}

/* Payload bytes that the header promises, or -1. */
static __always_inline int promised(const struct inagg_hdr *h)
{
	__u32 elements = bpf_ntohs(h->elements);

	if (inagg_hdr_type(h) == INAGG_WAIT)
		return 0;
	if (elements % INAGG_CHUNK || elements > INAGG_MAX_ELEMENTS)
		return -1;
	return (int)(elements * inagg_element_bytes(inagg_hdr_dtype(h)));
}

static __always_inline int reject(void)
{
	COUNT(rejected);
	return XDP_DROP;
}

static __always_inline void heard_boot(__u16 boot)
{
	if (boot == shared.boots.latest || !inagg_boot_heard(&shared.boots, boot, bpf_ktime_get_ns()))
		return;
	COUNT(reboots);
	ring(); /* user space sends everything again */
}

/*
 * What a frame is to become for data slot @index, if it needs one: its block sent again if loss detection
 * says so (@lost), or its next one started.  Returns 0 or action and block in one number.  A global function: the
 * verifier looks at it once.
 */
#define ERRAND(action, block)	((__u64)(action) << 32 | (block))
#define ERRAND_ACTION(errand)	((int)((errand) >> 32))
#define ERRAND_BLOCK(errand)	((__u32)(errand))

__attribute__((noinline)) __u64 claim(__u32 index, int lost, __u64 now)
{
	struct inagg_worker *worker = &shared.streams[0].worker;
	int action = INAGG_W_NOTHING;
	struct place at;
	__u32 block;

	if (!find_slot(index, &at))
		return 0;
	/* a glance, before the lock */
	if (at.slot->state != (lost ? INAGG_WSLOT_SENT : INAGG_WSLOT_IDLE) || !lock(&at))
		return 0;
	block = at.slot->block;
	if (!lost)
		action = inagg_worker_open(worker, at.slot, now);
	else if (inagg_worker_overtaken(worker, at.slot, now))
		action = inagg_worker_timeout(worker, at.slot, now);
	if (action == INAGG_W_RESEND_ASK_ALL)
		leave_to_user(&at);
	unlock(&at);
	if (action == INAGG_W_RESEND_ASK_ALL) {
		ring();
		return 0;
	}
	return action == INAGG_W_NOTHING ? 0 : ERRAND(action, block);
}

/*
 * Each packet of ours that is lost costs a frame, and XDP cannot make one: only what arrives can be sent.
 * So the frame of a result first goes to a block that got lost, or to a slot that did without one for
 * such a block; its own slot then waits for the next frame, a moment.  User space replaces the missing
 * frames when it wakes up, and nothing waits for that.
 */
static __always_inline __u64 find_errand(struct inagg_stream_state *stream, __u32 *index, __u64 now)
{
	__u64 errand;

	for (int i = 0; i < SLOTS_LOOKED_AT; i++) {
		*index = stream->cursor++ & (settings.slots - 1);
		errand = claim(*index, 1, now);
		if (errand)
			return errand;
	}
	if (!shared.owed || bpf_map_pop_elem(&owed, index))
		return 0;
	__sync_fetch_and_sub(&shared.owed, 1);
	return claim(*index, 0, now);
}

/* The slot's next block could go, but its frame runs an errand. */
static __always_inline void defer(const struct place *at)
{
	__u32 index = at->index;

	if (inagg_before(at->slot->block, *(volatile __u32 *)&at->stream->worker.limit) &&
	    !bpf_map_push_elem(&owed, &index, 0))
		__sync_fetch_and_add(&shared.owed, 1);
}

/* Store the result that the frame carries. */
static __always_inline int store(struct xdp_md *ctx, const struct place *at, __u32 block, __u32 bytes)
{
	struct inagg_stream_state *stream = at->stream;
	struct inagg_cell *cell = find_cell(at, block);

	if (!cell || bytes > INAGG_MAX_PAYLOAD)
		return 0;
	bpf_xdp_load_bytes(ctx, settings.header_bytes, &cell->hdr, sizeof(struct inagg_hdr) + bytes);
	__sync_lock_test_and_set(&cell->done, 1);	/* a full barrier: user space sees the result first */
	if (__sync_fetch_and_add(&stream->done, 1) + 1 == *(volatile __u64 *)&stream->wake_at)
		ring();
	return 1;
}

static __always_inline int on_result(struct xdp_md *ctx, struct place *at, __u32 block, __u32 bytes, int repaired)
{
	struct inagg_stream_state *stream = at->stream;
	__u64 now = bpf_ktime_get_ns(), errand = 0;
	int accepted = INAGG_W_NOTHING, action = INAGG_W_NOTHING, locked;
	__u32 index = 0, next_block = 0;

	if (!at->is_control)
		errand = find_errand(stream, &index, now);
	locked = lock(at);
	if (locked) {
		accepted = inagg_worker_result(&stream->worker, at->slot, block, repaired, now);
		if (accepted == INAGG_W_ACCEPT) {
			/* A full barrier: user space extends the limit, then looks for idle slots; so one of us two
			 * sees the other. */
			__sync_fetch_and_add(&stream->accepted, 1);
			if (!errand)
				action = inagg_worker_open(&stream->worker, at->slot, now);
		}
		next_block = at->slot->block;
		unlock(at);
	}

	/* The result is lost without the lock, but an errand has begun. */
	if (locked && accepted != INAGG_W_ACCEPT)
		COUNT(duplicates);
	if (accepted == INAGG_W_ACCEPT && !store(ctx, at, block, bytes))
		return XDP_DROP;
	if (errand) {
		if (accepted == INAGG_W_ACCEPT)
			defer(at);
		action = ERRAND_ACTION(errand);
		next_block = ERRAND_BLOCK(errand);
		if (!find_slot(index, at))
			return XDP_DROP;
	}
	return action == INAGG_W_NOTHING ? XDP_DROP : send(ctx, at, action, next_block, 0);
}

/* The first cell holds the REQUEST of the probe. */
static __always_inline int send_probe(struct xdp_md *ctx)
{
	__u32 first = 0;
	struct inagg_cell *cell = bpf_map_lookup_elem(&cells, &first);

	if (!cell || write_cell(ctx, cell, 0))
		return XDP_DROP;
	shared.probe = INAGG_PROBE_ANSWERED;
	return transmit();
}

static __always_inline int on_probe(struct xdp_md *ctx)
{
	if (shared.probe == INAGG_PROBE_ASKED)
		return send_probe(ctx);
	shared.probe = INAGG_PROBE_PROVEN;
	return XDP_DROP;
}

static __always_inline struct inagg_order *next_order(void)
{
	__u32 turn;

	for (int i = 0; i < ORDER_TRIES; i++) {
		turn = *(volatile __u32 *)&shared.taken;
		if (turn == *(volatile __u32 *)&shared.ordered)
			return NULL;
		if (__sync_val_compare_and_swap(&shared.taken, turn, turn + 1) == turn) {
			turn &= settings.orders - 1;
			return bpf_map_lookup_elem(&orders, &turn);
		}
	}
	return NULL;	/* its thread sees that it is left */
}

/*
 * A live frame seems to come from lo, where XDP_TX would send it.  That it can grow to the longest frame of the job is found out
 * by the probe.
 */
static __always_inline int carry_out(struct xdp_md *ctx)
{
	struct inagg_order *order;
	struct place at;
	int verdict;

	if (bpf_xdp_adjust_head(ctx, -INAGG_LIVE_HEADROOM))
		return XDP_DROP;
	if (shared.probe == INAGG_PROBE_ANSWERED) {
		verdict = resize(ctx, settings.longest) ? XDP_DROP : send_probe(ctx);
	} else {
		order = next_order();
		if (!order || !find_slot(order->slot, &at))
			return XDP_DROP;
		verdict = send(ctx, &at, (int)order->action, order->block, 1);
	}
	return verdict == XDP_TX ? (int)bpf_redirect(settings.device, 0) : verdict;
}

static __always_inline int on_wait(struct xdp_md *ctx, const struct place *at, __u32 block, __u64 contributors)
{
	__u64 now = bpf_ktime_get_ns();
	struct inagg_cell *cell;
	__u32 own_block;
	int action, idle;

	if (!lock(at))
		return XDP_DROP;
	action = inagg_worker_wait(&at->stream->worker, at->slot, block, contributors, settings.rank, now);
	own_block = at->slot->block;
	idle = at->slot->state == INAGG_WSLOT_IDLE;
	if (action == INAGG_W_RESEND_ASK_ALL)
		leave_to_user(at);
	unlock(at);

	if (own_block == block) {
		cell = find_cell(at, block);
		if (cell) {
			cell->contributors = contributors;
			cell->heard = 1;
		}
	}
	if (action == INAGG_W_RESEND_ASK_ALL || (own_block == block && idle)) {
		ring();	/* others may wait for this rank: the socket asks for what it waits for */
		return XDP_DROP;
	}
	return action == INAGG_W_NOTHING ? XDP_DROP : send(ctx, at, action, own_block, 0);
}

SEC("xdp.frags")
int inagg_stream(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct inagg_hdr *h = data + settings.header_bytes;
	const struct udphdr *udp = (void *)h - sizeof(*udp);
	__u32 block, index, local, window;
	struct place at;
	__u64 contributors;
	int type, bytes;

	if ((void *)(h + 1) > end || !from_switch(data, end))
		return XDP_PASS;
	if (!h->version_type && h->contributors == settings.token)
		return carry_out(ctx);
	type = inagg_hdr_type(h);
	if (type != INAGG_RESULT && type != INAGG_WAIT)
		return XDP_PASS;
	if (inagg_hdr_version(h) != INAGG_WIRE_VERSION || !inagg_hdr_intact(h))
		return reject();
	if (h->job != settings.job || h->generation != settings.generation) {
		COUNT(rejected);
		return XDP_PASS;	/* if we were killed, the port may be another's by now */
	}
	bytes = promised(h);
	if (bytes < 0 || bytes > INAGG_MAX_PAYLOAD ||
	    bpf_ntohs(udp->len) != sizeof(*udp) + sizeof(*h) + (__u32)bytes ||
	    (__u64)(end - (void *)(h + 1)) < (__u32)bytes)
		return reject();
	if (settings.checked && !payload_intact(h, end, (__u32)bytes))
		return reject();

	block = bpf_ntohl(h->block);
	index = bpf_ntohl(h->slot);
	contributors = inagg_swap64(h->contributors);
	if (index >= settings.slots + settings.control_slots || !find_slot(index, &at))
		return reject();
	local = at.is_control ? index - settings.slots : index;
	window = at.is_control ? settings.control_slots : settings.slots;
	if ((block & (window - 1)) != local ||
	    ((block & window) != 0) != ((bpf_ntohs(h->level_flags) & INAGG_F_VERSION) != 0) ||
	    (type == INAGG_RESULT && contributors != settings.all))
		return reject();

	heard_boot(h->boot);
	if (shared.probe == INAGG_PROBE_ASKED || shared.probe == INAGG_PROBE_ANSWERED)
		return type == INAGG_WAIT ? on_probe(ctx) : XDP_DROP;
	if (type == INAGG_RESULT)
		return on_result(ctx, &at, block, (__u32)bytes, h->level_flags & bpf_htons(INAGG_F_RESEND));
	return on_wait(ctx, &at, block, contributors);
}
