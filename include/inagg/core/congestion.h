/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Congestion control of a rank (ATP §3.7): a window of blocks in flight, that grows by a block for each result, above a
 * threshold by one for each window of them, and is halved when a result says that a queue on the way of somebody's elements was
 * long, or when one is missing of which later ones are here.  All ranks see the same marks, so their windows are about the same.
 *
 * Time-outs do not count: a rank that computes for longer than others looks like one, and no link is to blame.  They double
 * the time that all blocks wait (core/worker.h), so nobody floods a network from which nothing comes.
 *
 * Blocks go in order, each when its position in the pool is free and the window has room.
 */
#ifndef INAGG_CORE_CONGESTION_H
#define INAGG_CORE_CONGESTION_H

#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_FIRST_WINDOW	42	/* blocks: the 60 KB that ATP starts with (§3.7) */
#define INAGG_LEAST_WINDOW	2

struct inagg_congestion {
	__u32	window;		/* blocks that may be in flight */
	__u32	most;		/* of the pool */
	__u32	threshold;	/* a smaller window grows with each result */
	__u32	grown;		/* results since the window last grew by one */
	__u32	flying;		/* blocks in flight */
	__u32	next;		/* the first block that was never sent */
	__u32	recovered;	/* results before this block tell nothing new: it was sent after the last cut */
	__u32	cuts;
};

INAGG_INLINE void inagg_congestion_init(struct inagg_congestion *c, __u32 most)
{
	c->window = most < INAGG_FIRST_WINDOW ? most : INAGG_FIRST_WINDOW;
	c->most = most;
	c->threshold = most;
	c->grown = 0;
	c->flying = 0;
	c->next = 0;
	c->recovered = 0;
	c->cuts = 0;
}

/** May c->next be sent, as far as the network is concerned? */
INAGG_INLINE int inagg_congestion_has_room(const struct inagg_congestion *c)
{
	return c->flying < c->window;
}

/** c->next has been sent. */
INAGG_INLINE void inagg_congestion_sent(struct inagg_congestion *c)
{
	c->flying++;
	c->next++;
}

/** @block tells of congestion: its result is marked, or was overtaken.  Once for all that was in flight. */
INAGG_INLINE void inagg_congestion_cut(struct inagg_congestion *c, __u32 block)
{
	if (inagg_before(block, c->recovered))
		return;
	c->window = c->window / 2 > INAGG_LEAST_WINDOW ? c->window / 2 : INAGG_LEAST_WINDOW;
	c->threshold = c->window;
	c->grown = 0;
	c->recovered = c->next;
	c->cuts++;
}

/** The result of @block, which was in flight, is here; @marked: with INAGG_F_CONGESTION. */
INAGG_INLINE void inagg_congestion_result(struct inagg_congestion *c, __u32 block, int marked)
{
	int used = c->flying >= c->window;	/* a window that nobody fills has not been tried */

	c->flying--;
	if (marked) {
		inagg_congestion_cut(c, block);
		return;
	}
	if (!used || c->window >= c->most)
		return;
	if (c->window >= c->threshold && ++c->grown < c->window)
		return;
	c->grown = 0;
	c->window++;
}

#endif /* INAGG_CORE_CONGESTION_H */
