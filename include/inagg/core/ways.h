/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which ways up lead on by links that are congested (PROTOCOL §15.4).  A switch sees the queues at its own up ports, but not those
 * of the switches above at their ports down.  Who is at the end of such a link sees what comes by it, and says in the results of the
 * ranks behind it that are leaders by which links nearly as much comes as they carry; those who choose a way to these ranks then
 * avoid it.  So, too, does CONGA between the leaves of a fabric (Alizadeh et al., SIGCOMM 2014).
 *
 * Callers that race lose what one of them has noted: the next result says it again.
 */
#ifndef INAGG_CORE_WAYS_H
#define INAGG_CORE_WAYS_H

#include <inagg/core/types.h>

#define INAGG_MAX_UPS	8	/* switches above one */
#define INAGG_MAX_COPIES	3	/* of a result, by as many of them */

/* Whom to reach how, of a job. */
struct inagg_ways {
	__u64	bad[INAGG_MAX_UPS];	/* bitmap of the ranks to whom that way is congested further on */
	__u64	generation;		/* of the job; what is known of another one ends with the first result */
};

/* Ranks whose copy of a result goes each way. */
struct inagg_copies {
	__u64	ranks[INAGG_MAX_UPS];
};

/** Rank @rank's switch says that those in @bad are, in the job's @generation. */
INAGG_INLINE void inagg_ways_learn(struct inagg_ways *w, __u16 generation, __u32 rank, __u8 bad)
{
	const __u64 bit = inagg_rank_bit(rank), known = w->generation == generation ? ~0ULL : 0;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		const __u64 was = w->bad[i], kept = was & known, is = bad >> i & 1 ? kept | bit : kept & ~bit;

		if (is != was)
			w->bad[i] = is;
	}
	if (!known)
		w->generation = generation;
}

/** Those of the ways in @ways that lead well to all of @ranks. */
INAGG_INLINE __u32 inagg_ways_good(const struct inagg_ways *w, __u32 ways, __u64 ranks)
{
	__u32 good = 0;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++)
		good |= (__u32)!(w->bad[i] & ranks) << i;
	return good & ways;
}

/* Counted from @preferred on, the first of @ways; there is one. */
INAGG_INLINE __u32 inagg_ways_first(__u32 ways, __u32 preferred)
{
	for (__u32 i = 0; i < INAGG_MAX_UPS; i++)
		if (ways >> ((preferred + i) & (INAGG_MAX_UPS - 1)) & 1)
			return (preferred + i) & (INAGG_MAX_UPS - 1);
	return 0;
}

/**
 * By which of @ways, of which there is one at least, a result goes to @ranks: by one, if it is good for all, else by as few as may
 * be, so that each rank has a good one.  Whoever has none gets the first copy.
 */
INAGG_INLINE void inagg_ways_share(const struct inagg_ways *w, __u32 ways, __u32 preferred, __u64 ranks, struct inagg_copies *c)
{
	const __u32 for_all = inagg_ways_good(w, ways, ranks);
	__u32 first = inagg_ways_first(for_all ? for_all : ways, preferred), copies = 0;
	__u64 left = ranks;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++)
		c->ranks[i] = 0;
	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		const __u32 way = (first + i) & (INAGG_MAX_UPS - 1);
		const __u64 well = left & ~w->bad[way];

		if (!(ways >> way & 1) || !well || copies == INAGG_MAX_COPIES)
			continue;
		if (!copies++)
			first = way;
		c->ranks[way] = well;
		left &= ~well;
	}
	c->ranks[first & (INAGG_MAX_UPS - 1)] |= left;
}

#endif /* INAGG_CORE_WAYS_H */
