/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which ranks of a job are stragglers, and which of them for good (Trio §5, "Advanced straggler mitigation").
 * Sweeps give up on blocks; what looks at these counts, less often, gives up on ranks.
 *
 * A rank is a *temporary* straggler if blocks were decided without it since the last look, and a *permanent* one if
 * nothing of it was heard for as long as the job has patience, while others were.  Ranks that are only slow
 * are heard: they say so now and then (PROTOCOL §11.2).  When all are silent nobody is judged.  What follows is the job's
 * wish: that the others go on without it, or only that they know.
 */
#ifndef INAGG_CORE_PRESENCE_H
#define INAGG_CORE_PRESENCE_H

#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_PATIENCE_MS	5000	/* with a rank, in a job that excludes nobody */

/* What a switch counts of each rank of a job. */
struct inagg_attendance {
	__u64	heard[INAGG_MAX_RANKS];		/* packets */
	__u64	missed[INAGG_MAX_RANKS];	/* blocks that were decided without it */
};

struct inagg_presence {
	struct inagg_attendance last;		/* at the last look */
	__u64	ranks;				/* that it was about */
	__u64	look_ns;			/* when that was */
	__u64	silent_ns[INAGG_MAX_RANKS];	/* nothing was heard of the rank for so long, while others were heard */
	__u64	temporary;			/* bitmaps of ranks */
	__u64	permanent;
};

/* Those of @ranks whose counts have changed. */
INAGG_INLINE __u64 inagg_presence_changed(const __u64 *before, const __u64 *after, __u64 ranks)
{
	__u64 changed = 0;

	for (__u32 rank = 0; rank < INAGG_MAX_RANKS; rank++)
		if (before[rank] != after[rank])
			changed |= ranks & inagg_rank_bit(rank);
	return changed;
}

/**
 * Look at the counts of @ranks, those that have joined and are not excluded, at time @now_ns of any monotonic clock.
 * Permanent is who was silent for @patience_ns in which others were heard; 0: nobody ever is.  One look counts for
 * half of that at most: whoever looks may have been late itself.
 */
INAGG_INLINE void inagg_presence_look(struct inagg_presence *p, __u64 ranks, const struct inagg_attendance *counts,
				      __u64 now_ns, __u64 patience_ns)
{
	__u64 missed = inagg_presence_changed(p->last.missed, counts->missed, ranks);
	__u64 heard = inagg_presence_changed(p->last.heard, counts->heard, ranks);
	__u64 since = now_ns - p->look_ns < patience_ns / 2 ? now_ns - p->look_ns : patience_ns / 2;

	p->permanent = 0;
	for (__u32 rank = 0; rank < INAGG_MAX_RANKS; rank++) {
		__u64 bit = inagg_rank_bit(rank);

		if (!(ranks & bit) || (heard & bit) || !(p->ranks & bit))
			p->silent_ns[rank] = 0;
		else if (heard)
			p->silent_ns[rank] += since;
		if (patience_ns && p->silent_ns[rank] >= patience_ns)
			p->permanent |= bit;
	}
	p->temporary = missed & p->ranks & ~p->permanent;
	p->last = *counts;
	p->ranks = ranks;
	p->look_ns = now_ns;
}

#endif /* INAGG_CORE_PRESENCE_H */
