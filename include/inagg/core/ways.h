/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Which ways up lead on by links that are congested (PROTOCOL §15.4).  A switch sees the queues at its own up ports, but not those
 * of the switches above at their ports down.  Who is at the end of such a link sees what comes by it, and says in the questions of the
 * ranks behind it, and in what those of them say that are leaders, by which links nearly as much comes as they carry; those who choose
 * a way to these ranks then avoid it.  So, too, does CONGA between the leaves of a fabric (Alizadeh et al., SIGCOMM 2014).
 *
 * Callers that race lose what one of them has noted: the next packet says it again, or it ages.
 */
#ifndef INAGG_CORE_WAYS_H
#define INAGG_CORE_WAYS_H

#include <inagg/core/types.h>

#define INAGG_MAX_UPS	8	/* switches above one */
#define INAGG_MAX_COPIES	3	/* of a result, by as many of them */
#define INAGG_WAYS_AGE_NS	500000000ULL	/* who waits asks as often at least (INAGG_RTO_CEILING_NS), and says it again */
#define INAGG_FULL_MARKS	4	/* of wait that a full link further on counts for: half of what a link is taken to queue at most */

/* Whom to reach how, of a job. */
struct inagg_ways {
	__u64	bad[INAGG_MAX_UPS];	/* bitmap of the ranks to whom that way is congested further on */
	__u64	heard;			/* ranks whose switches have said so since then */
	__u64	since_ns;
	__u64	generation;		/* of the job: what is known of another one does not count */
};

/* Ranks whose copy of a result goes each way. */
struct inagg_copies {
	__u64	ranks[INAGG_MAX_UPS];
};

/**
 * Whose turn it is among ways of which nothing is known: blocks take turns by their @position.  Nor goes by the same way again what
 * may have been lost on it: packets of another @attempt, which are to meet (Canary §3.3: another id), and another @question or its
 * answer.
 */
INAGG_INLINE __u32 inagg_ways_turn(__u32 position, __u16 attempt, __u16 question)
{
	return position + attempt + question;
}

/** Forgets what nobody has said again for one to two ages, or was said in another generation.  To be called before any use. */
INAGG_INLINE void inagg_ways_refresh(struct inagg_ways *w, __u16 generation, __u64 now)
{
	const __u64 passed = now - w->since_ns;
	__u64 kept = 0;

	if (w->generation == generation) {
		if (passed < INAGG_WAYS_AGE_NS)
			return;
		if (passed < 2 * INAGG_WAYS_AGE_NS)
			kept = w->heard;
	}
	for (__u32 i = 0; i < INAGG_MAX_UPS; i++)
		w->bad[i] &= kept;
	w->heard = 0;
	w->since_ns = now;
	w->generation = generation;
}

/** Rank @rank's switch says that those in @bad are. */
INAGG_INLINE void inagg_ways_learn(struct inagg_ways *w, __u32 rank, __u8 bad)
{
	const __u64 bit = inagg_rank_bit(rank);

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		const __u64 was = w->bad[i], is = bad >> i & 1 ? was | bit : was & ~bit;

		if (is != was)
			w->bad[i] = is;
	}
	if (!(w->heard & bit))
		w->heard |= bit;
}

/** Those of the ways in @ways that lead well to all of @ranks. */
INAGG_INLINE __u32 inagg_ways_good(const struct inagg_ways *w, __u32 ways, __u64 ranks)
{
	__u32 good = 0;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++)
		good |= (__u32)!(w->bad[i] & ranks) << i;
	return good & ways;
}

/** Those of @ranks to whom one of the ways in @ways leads well. */
INAGG_INLINE __u64 inagg_ways_reached(const struct inagg_ways *w, __u32 ways, __u64 ranks)
{
	__u64 bad = ~0ULL;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++)
		bad &= ways >> i & 1 ? w->bad[i] : ~0ULL;
	return ranks & ~bad;
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
