/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Congestion control of a rank: a window of blocks in flight, and how it reacts to marks, which say that a queue on the way of
 * somebody's elements was long.  All ranks see the same marks, so their windows are about the same.
 *
 * AIMD (ATP §3.7): the window grows by a block for each result, above a threshold by one for each window of them.  A mark halves
 * it.
 *
 * DCTCP (PANAMA §4.2.2, Figure 5): with each window of results it doubles, above a threshold grows by one, or, if some were
 * marked, shrinks by half of alpha, the moving average of the fraction that is.  It keeps to the cap that results bring.
 *
 * The rest is common to both:
 *
 * - Blocks go in order, each when its position in the pool is free and the window has room.
 * - A result that is missing while later ones are here halves the window, once for all that was in flight.  PANAMA's network loses
 *   nothing; with DCTCP this is what RFC 8257 §3.5 asks for, so that a queue which drops instead of marking is shared with TCP.
 * - Time-outs do not count: a rank that computes for longer than others looks like one, and no link is to blame.  They double
 *   the time that all blocks wait (core/worker.h), so nobody floods a network from which nothing comes.
 * - A window that nobody fills has not been tried, so it does not grow (cf. RFC 7661).  Nor does it shrink: calls are short,
 *   and what it says about the network holds for the next one.
 */
#ifndef INAGG_CORE_CONGESTION_H
#define INAGG_CORE_CONGESTION_H

#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_AIMD_FIRST_WINDOW		42	/* blocks: the 60 KB that ATP starts with (§3.7) */
#define INAGG_DCTCP_FIRST_WINDOW	2
#define INAGG_DCTCP_FIRST_THRESHOLD	64
#define INAGG_DCTCP_ONE			1024U	/* alpha of 1, and g = 1/16: as in Linux */
#define INAGG_DCTCP_G_SHIFT		4
#define INAGG_LEAST_WINDOW		2	/* but for a cap of 1 */

enum inagg_reaction {
	INAGG_UNCONTROLLED	= 0,	/* the window is the pool */
	INAGG_AIMD		= 1,
	INAGG_DCTCP		= 2,
};

/** The reaction of the data stream of a job with @algorithm. */
INAGG_INLINE __u8 inagg_reaction_of(__u32 algorithm)
{
	if (algorithm == INAGG_ATP)
		return INAGG_AIMD;
	return algorithm == INAGG_PANAMA ? INAGG_DCTCP : INAGG_UNCONTROLLED;
}

struct inagg_congestion {
	__u32	window;		/* blocks that may be in flight */
	__u32	most;		/* of the pool */
	__u32	threshold;	/* a smaller window grows fast */
	__u32	results;	/* AIMD: since the window last grew by one.  DCTCP: of this window */
	__u32	marked;		/* DCTCP: of them, with a mark */
	__u32	alpha;		/* DCTCP: 0 .. INAGG_DCTCP_ONE */
	__u32	flying;		/* blocks in flight */
	__u32	next;		/* the first block that was never sent */
	__u32	recovered;	/* a loss before this block tells nothing new: it was sent after the last cut */
	__u32	cuts;
	__u8	reaction;	/* enum inagg_reaction */
	__u8	filled;		/* DCTCP: while these results came, the window had no room */
};

INAGG_INLINE __u32 inagg_smaller(__u32 a, __u32 b)
{
	return a < b ? a : b;
}

INAGG_INLINE void inagg_congestion_init(struct inagg_congestion *c, __u8 reaction, __u32 most)
{
	int dctcp = reaction == INAGG_DCTCP;

	c->window = inagg_smaller(dctcp ? INAGG_DCTCP_FIRST_WINDOW : INAGG_AIMD_FIRST_WINDOW, most);
	c->most = most;
	c->threshold = dctcp ? INAGG_DCTCP_FIRST_THRESHOLD : most;
	c->results = 0;
	c->marked = 0;
	c->alpha = INAGG_DCTCP_ONE;
	c->flying = 0;
	c->next = 0;
	c->recovered = 0;
	c->cuts = 0;
	c->reaction = reaction;
	c->filled = 0;
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
	/* Block numbers wrap: without cuts for half of their range, what is behind would seem to be before. */
	if (inagg_before(c->recovered, c->next - 2 * c->most))
		c->recovered = c->next - 2 * c->most;
}

/* What was counted belongs to another window. */
INAGG_INLINE void inagg_congestion_recount(struct inagg_congestion *c)
{
	c->results = 0;
	c->marked = 0;
	c->filled = 0;
}

/* Takes @blocks from the window, as far as the least one goes. */
INAGG_INLINE void inagg_congestion_shrink(struct inagg_congestion *c, __u32 blocks)
{
	__u32 least = inagg_smaller(c->window, INAGG_LEAST_WINDOW);

	c->window = c->window - blocks > least ? c->window - blocks : least;
	c->threshold = c->window;
	c->cuts++;
	inagg_congestion_recount(c);
}

/** @block tells of congestion: its result was overtaken, or, with AIMD, is marked.  Once for all that was in flight. */
INAGG_INLINE void inagg_congestion_cut(struct inagg_congestion *c, __u32 block)
{
	if (inagg_before(block, c->recovered))
		return;
	inagg_congestion_shrink(c, c->window - c->window / 2);
	c->recovered = c->next;
}

INAGG_INLINE void inagg_aimd_result(struct inagg_congestion *c, __u32 block, int marked, int filled)
{
	if (marked) {
		inagg_congestion_cut(c, block);
		return;
	}
	if (!filled || c->window >= c->most)
		return;
	if (c->window >= c->threshold && ++c->results < c->window)
		return;
	c->results = 0;
	c->window++;
}

/**
 * @alpha after a window of which @marked of @all, not 0, were marked.  As Linux: what is too small for a sixteenth to be taken from
 * it goes to 0.
 */
INAGG_INLINE __u32 inagg_dctcp_average(__u32 alpha, __u32 marked, __u32 all)
{
	__u32 decay = alpha >> INAGG_DCTCP_G_SHIFT;

	alpha -= decay ? decay : alpha;
	alpha += (marked * (INAGG_DCTCP_ONE >> INAGG_DCTCP_G_SHIFT)) / all;
	return inagg_smaller(alpha, INAGG_DCTCP_ONE);
}

INAGG_INLINE void inagg_dctcp_result(struct inagg_congestion *c, int marked, int filled)
{
	__u32 larger = c->window < c->threshold ? 2 * c->window : c->window + 1;

	c->marked += marked != 0;
	c->filled |= filled;
	if (++c->results < c->window)
		return;
	c->alpha = inagg_dctcp_average(c->alpha, c->marked, c->results);
	if (c->marked) {
		inagg_congestion_shrink(c, c->window * c->alpha / (2 * INAGG_DCTCP_ONE));
		return;
	}
	if (c->filled)
		c->window = inagg_smaller(larger, c->most);
	inagg_congestion_recount(c);
}

/**
 * The result of @block, which was in flight, is here; @marked: with INAGG_F_CONGESTION; @cap: the switches have no memory for
 * more blocks in flight; 0: they have enough.
 */
INAGG_INLINE void inagg_congestion_result(struct inagg_congestion *c, __u32 block, int marked, __u32 cap)
{
	int filled = !inagg_congestion_has_room(c);

	c->flying--;
	if (c->reaction == INAGG_DCTCP)
		inagg_dctcp_result(c, marked, filled);
	else
		inagg_aimd_result(c, block, marked, filled);
	if (cap)
		c->window = inagg_smaller(c->window, cap);
}

#endif /* INAGG_CORE_CONGESTION_H */
