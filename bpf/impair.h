/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Map of impair.bpf.c: one direction of an impaired link, filled by inagg-netns.
 */
#ifndef INAGG_IMPAIR_H
#define INAGG_IMPAIR_H

#include <inagg/core/queue.h>
#include <linux/types.h>

#define IMPAIR_MAX_LINKS	256
#define IMPAIR_MAX_BITS		64	/* flipped in one frame */
#define IMPAIR_ALWAYS		(1ULL << 32)	/* probability 1 */

/* `links`: key __u32, the interface that a frame comes in by. */
struct impair_link {
	__u32	target;			/* interface that it leaves by */
	__u32	corrupt_offset;		/* first byte that may be damaged */
	__u32	corrupt_bits;		/* 1 .. IMPAIR_MAX_BITS: at most so many flips */
	__u32	reserved;
	__u64	drop;			/* probabilities, of IMPAIR_ALWAYS */
	__u64	duplicate;
	__u64	corrupt;
	__u64	random;			/* state of the generator: the seed at first */
	struct inagg_queue queue;	/* of a link that marks frames when its queue is long; unit_ns 0: it does not */
	/* counters */
	__u64	frames;
	__u64	dropped;
	__u64	duplicated;
	__u64	corrupted;
};

#endif /* INAGG_IMPAIR_H */
