/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Congestion control of a rank: a window of blocks in flight, and how it reacts to marks, which say that a queue on the way of
 * somebody's elements was long.  All ranks see the same marks, and count in results rather than in what they have sent, so their
 * windows are about the same: the smallest of them is the job's.
 *
 * The window grows by a block for each result, above a threshold by one for each window of them.  A mark makes it smaller, once for
 * all that was in flight:
 *
 * AIMD (ATP §3.7) by half.  So does TCP's Cubic, about.
 *
 * DCTCP (PANAMA §4.2.2) by half of alpha, the moving average of the fraction of results that is marked.  PANAMA's Figure 5 does so
 * at the end of each window of results; this is RFC 8257's way, which docs/ARCHITECTURE.md says why.  The window keeps to the
 * cap that results bring.
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
	__u32	deaf;		/* so many results more were in flight at the last cut: their marks tell nothing new */
	__u32	unmarked;	/* results since it last changed */
	__u32	observed;	/* results that alpha is to learn from next: a window of them */
	__u32	results;	/* of them, those that are here */
	__u32	marked;		/* and those with a mark */
	__u32	alpha;		/* 0 .. INAGG_DCTCP_ONE */
	__u32	flying;		/* blocks in flight */
	__u32	next;		/* the first block that was never sent */
	__u32	recovered;	/* a loss before this block tells nothing new either */
	__u32	cuts;
	__u8	reaction;	/* enum inagg_reaction */
	__u8	filled;		/* while these results came, the window had no room */
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
	c->deaf = 0;
	c->unmarked = 0;
	c->observed = c->window;
	c->results = 0;
	c->marked = 0;
	c->filled = 0;
	c->alpha = INAGG_DCTCP_ONE;
	c->flying = 0;
	c->next = 0;
	c->recovered = 0;
	c->cuts = 0;
	c->reaction = reaction;
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

/* Takes @blocks from the window, as far as the least one goes.  What is in flight tells nothing new. */
INAGG_INLINE void inagg_congestion_shrink(struct inagg_congestion *c, __u32 blocks)
{
	__u32 least = inagg_smaller(c->window, INAGG_LEAST_WINDOW);

	c->deaf = c->window - 1;
	c->recovered = c->next;
	c->window = c->window - blocks > least ? c->window - blocks : least;
	c->threshold = c->window;
	c->unmarked = 0;
	c->cuts++;
}

INAGG_INLINE void inagg_congestion_halve(struct inagg_congestion *c)
{
	inagg_congestion_shrink(c, c->window - c->window / 2);
}

/** The result of @block was overtaken: it is lost. */
INAGG_INLINE void inagg_congestion_lost(struct inagg_congestion *c, __u32 block)
{
	if (!inagg_before(block, c->recovered))
		inagg_congestion_halve(c);
}

INAGG_INLINE void inagg_congestion_marked(struct inagg_congestion *c)
{
	if (c->reaction == INAGG_DCTCP)
		inagg_congestion_shrink(c, c->window * c->alpha / (2 * INAGG_DCTCP_ONE));
	else
		inagg_congestion_halve(c);
}

/* Below the threshold by one for each result, so it doubles with each window of them; above it by one for each window. */
INAGG_INLINE void inagg_congestion_grow(struct inagg_congestion *c)
{
	if (c->window >= c->most || (c->window >= c->threshold && ++c->unmarked < c->window))
		return;
	c->unmarked = 0;
	c->window++;
}

/* Alpha, with each window of results.  As Linux: what is too small for a sixteenth to be taken from it goes to 0. */
INAGG_INLINE void inagg_congestion_observe(struct inagg_congestion *c, int marked)
{
	__u32 decay = c->alpha >> INAGG_DCTCP_G_SHIFT;

	c->marked += marked != 0;
	if (++c->results < c->observed)
		return;
	c->alpha -= decay ? decay : c->alpha;
	c->alpha += (c->marked * (INAGG_DCTCP_ONE >> INAGG_DCTCP_G_SHIFT)) / c->results;
	c->alpha = inagg_smaller(c->alpha, INAGG_DCTCP_ONE);
	c->observed = c->window;
	c->results = 0;
	c->marked = 0;
	c->filled = 0;
}

/**
 * The result of a block that was in flight is here; @marked: with INAGG_F_CONGESTION; @cap: the switches have no memory for
 * more blocks in flight; 0: they have enough.
 */
INAGG_INLINE void inagg_congestion_result(struct inagg_congestion *c, int marked, __u32 cap)
{
	c->filled |= !inagg_congestion_has_room(c);
	c->flying--;
	if (c->deaf)
		c->deaf--;
	else if (marked)
		inagg_congestion_marked(c);
	else if (c->filled)
		inagg_congestion_grow(c);
	inagg_congestion_observe(c, marked);
	if (cap)
		c->window = inagg_smaller(c->window, cap);
}

#endif /* INAGG_CORE_CONGESTION_H */
