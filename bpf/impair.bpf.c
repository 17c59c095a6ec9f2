// SPDX-License-Identifier: GPL-2.0-only
/*
 * A bad link: tc (clsact ingress) program for both ends of a link that runs through a namespace of its
 * own.  Drops, doubles and damages frames at random, then sends them out of the other end.
 *
 * It works on skbs, not in XDP: whatever XDP program or socket sent the frame, it is an skb here, so that
 * the queueing discipline of the other end can limit its rate.
 */
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <bpf/bpf_helpers.h>

#include "impair.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, IMPAIR_MAX_LINKS);
	__type(key, __u32);
	__type(value, struct impair_link);
} links SEC(".maps");

/* splitmix64: a run with the same seed makes the same choices, frame by frame. */
static __always_inline __u64 next_random(struct impair_link *link)
{
	__u64 z = __sync_fetch_and_add(&link->random, 0x9e3779b97f4a7c15ULL) + 0x9e3779b97f4a7c15ULL;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
	return z ^ (z >> 31);
}

static __always_inline int happens(struct impair_link *link, __u64 probability)
{
	return probability && (next_random(link) >> 32) < probability;
}

static __always_inline void count(__u64 *counter)
{
	__sync_fetch_and_add(counter, 1);
}

/* Flips random bits, headers included: nothing in between checks or repairs the frame. */
static __always_inline void damage(struct __sk_buff *skb, struct impair_link *link)
{
	__u32 offset = link->corrupt_offset, flips, i;

	if (skb->len <= offset || !link->corrupt_bits)
		return;
	flips = 1 + (__u32)(next_random(link) >> 32) % link->corrupt_bits;
	for (i = 0; i < IMPAIR_MAX_BITS && i < flips; i++) {
		__u64 random = next_random(link);
		__u32 at = offset + (__u32)(random >> 32) % (skb->len - offset);
		__u8 byte;

		if (bpf_skb_load_bytes(skb, at, &byte, 1))
			return;
		byte ^= 1 << (random & 7);
		if (bpf_skb_store_bytes(skb, at, &byte, 1, 0))
			return;
	}
	count(&link->corrupted);
}

SEC("tc")
int inagg_impair(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct impair_link *link = bpf_map_lookup_elem(&links, &ifindex);

	if (!link)
		return TC_ACT_SHOT;
	count(&link->frames);
	if (happens(link, link->drop)) {
		count(&link->dropped);
		return TC_ACT_SHOT;
	}
	if (link->queue.unit_ns && inagg_queue_add(&link->queue, skb->len, bpf_ktime_get_ns()))
		bpf_skb_ecn_set_ce(skb);
	if (happens(link, link->duplicate) && !bpf_clone_redirect(skb, link->target, 0))
		count(&link->duplicated);
	if (happens(link, link->corrupt))
		damage(skb, link);
	return bpf_redirect(link->target, 0);
}
