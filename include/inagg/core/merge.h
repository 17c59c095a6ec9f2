/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The order in which a switch adds floats (PANAMA §5, "adder trees").
 *
 * Floating-point addition is not associative, so the elements of a switch's children, ranks or switches, are added in a
 * tree that depends on nothing but their number.  They are its leaves, 0 .. children-1; a node of level l has 2^l leaves
 * below it, from a multiple of 2^l, of which those beyond the last child are empty.
 *
 * A child's elements climb from their leaf.  Where the sibling is empty, or waits, they go on as the sum of both; where it
 * is yet to come, they wait for it.  What has nobody left to wait for is the sum of all.
 *
 * Who climbs carries its sum along, in the packet it came in, and has taken what it adds from those that wait.  So only
 * these decisions are serialised by the plane, and the additions, which take long, need no lock.
 *
 * What waits lies in a buffer.  That of a node is its first leaf / 2: two nodes that wait have different ones, since of two
 * siblings one always goes on.  Of n children at most n / 2 wait, rounded up.
 */
#ifndef INAGG_CORE_MERGE_H
#define INAGG_CORE_MERGE_H

#include <inagg/core/types.h>

#define INAGG_MERGE_LEVELS	6	/* above 64 leaves */

/* One block's; all zero: nobody waits. */
struct inagg_merge {
	__u64	waiting;	/* leaves whose elements, alone or in a node's sum, lie in a buffer */
};

/* A node whose sum climbs; begins as {leaf, 0}. */
struct inagg_climber {
	__u32	first;		/* leaf */
	__u32	level;
};

enum inagg_climb {
	INAGG_CLIMB_ADD,	/* the elements of the buffer, which is free then */
	INAGG_CLIMB_WAIT,	/* the sum is to be left in the buffer */
	INAGG_CLIMB_DONE,	/* it is the sum of all children */
};

/** Buffers that a block of @children children may need at once. */
INAGG_INLINE __u32 inagg_merge_buffers(__u32 children)
{
	return (children + 1) / 2;
}

/**
 * May a job of which @blocks are being added begin another?  @cap is its window cap here, 0: none.  Twice that leaves the
 * other jobs their parts of the buffers (PROTOCOL §14.4), and is more than a job that heeds it needs.
 */
INAGG_INLINE int inagg_merge_allows(__u16 cap, __u32 blocks)
{
	return !cap || blocks < 2U * cap;
}

/* Whoever waits for a block says so more often, whatever its back-off: INAGG_RTO_CEILING_NS. */
#define INAGG_MERGE_IDLE_NS	2000000000ULL

/* The leaves of a node, of 1 << @level from @first, that are not empty. */
INAGG_INLINE __u64 inagg_merge_leaves(__u32 first, __u32 level, __u32 children)
{
	__u64 node = ~0ULL >> ((64 - (1U << level)) & 63);

	return node << (first & 63) & inagg_all_ranks(children);
}

/**
 * What the climber does next, an enum inagg_climb, and with which buffer.  @children is 1 .. 64, c->first below it.
 */
INAGG_INLINE int inagg_merge_climb(struct inagg_merge *m, struct inagg_climber *c, __u32 children, __u32 *buffer)
{
	for (; c->level < INAGG_MERGE_LEVELS; c->level++) {
		__u32 width = 1U << c->level, sibling = c->first ^ width;
		__u64 leaves;

		if (sibling >= children)
			continue;
		leaves = inagg_merge_leaves(sibling, c->level, children);
		if ((m->waiting & leaves) != leaves) {
			m->waiting |= inagg_merge_leaves(c->first, c->level, children);
			*buffer = c->first / 2;
			return INAGG_CLIMB_WAIT;
		}
		m->waiting &= ~leaves;
		*buffer = sibling / 2;
		c->first &= ~width;
		c->level++;
		return INAGG_CLIMB_ADD;
	}
	return INAGG_CLIMB_DONE;
}

/** Would the elements of leaf @first, if they came now, have to wait outside the slot itself, in a buffer? */
INAGG_INLINE int inagg_merge_waits(const struct inagg_merge *m, __u32 first, __u32 children)
{
	struct inagg_merge after = *m;
	struct inagg_climber c = { first, 0 };
	__u32 buffer = 0;

	return inagg_merge_climb(&after, &c, children, &buffer) == INAGG_CLIMB_WAIT && buffer;
}

#endif /* INAGG_CORE_MERGE_H */
