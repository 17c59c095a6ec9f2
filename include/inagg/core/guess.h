/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How a small float sum saves the round in which the ranks agree on its scale: its control blocks carry its
 * elements, at a scale that is a guess.  Their results name the scale that it should have been.  If that is the
 * guess, they are the sum.  Else the elements travel once more, in data blocks: the bits are the same either way.
 *
 * The guess is the scale of an earlier sum.  All ranks must make the same one, however many sums each of them has
 * queued, so its age is fixed, and a sum waits until that one's scale is known.  Four: as many may be on their way
 * at once, and a step that sums one, two or four small tensors in turn is guessed right.
 */
#ifndef INAGG_CORE_GUESS_H
#define INAGG_CORE_GUESS_H

#include <inagg/core/fixed.h>
#include <inagg/core/packet.h>
#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_GUESS_AGE	4	/* sums, a power of two */

/* The latest scales.  The sums that ask for theirs take turns: numbers in call order (mod 2^32). */
struct inagg_guesses {
	__u32	next[INAGG_GUESS_AGE];	/* the turn that each is a guess for */
	__u8	scales[INAGG_GUESS_AGE];
};

INAGG_INLINE void inagg_guesses_init(struct inagg_guesses *g)
{
	for (__u32 i = 0; i < INAGG_GUESS_AGE; i++) {
		g->next[i] = i;
		g->scales[i] = 0;
	}
}

/**
 * Do the control blocks of a sum of @blocks blocks carry its elements?  Half the control slots hold all of it: two
 * such sums may be on their way.  Not with trio, where a rank that is late has no part in what is agreed.
 */
INAGG_INLINE int inagg_guesses_scale(const struct inagg_job_config *job, __u32 blocks)
{
	return job->algorithm != INAGG_TRIO && blocks <= job->control_slots / 2;
}

/** Is the guess for the sum of @turn known? */
INAGG_INLINE int inagg_guess_known(const struct inagg_guesses *g, __u32 turn)
{
	return g->next[turn % INAGG_GUESS_AGE] == turn;
}

/** The guess for the sum of @turn, once it is known. */
INAGG_INLINE __u8 inagg_guess(const struct inagg_guesses *g, __u32 turn)
{
	return g->scales[turn % INAGG_GUESS_AGE];
}

/**
 * The ranks agreed on the scale of the sum of @turn.  In any order, since a sum that does not guess need not wait.
 * Infinities and NaN say nothing about the sums to come.
 */
INAGG_INLINE void inagg_guess_learn(struct inagg_guesses *g, __u32 turn, __u8 scale)
{
	__u32 at = turn % INAGG_GUESS_AGE, next = turn + INAGG_GUESS_AGE;

	if (!inagg_before(g->next[at], next))
		return;
	g->next[at] = next;
	g->scales[at] = scale == INAGG_SCALE_NONFINITE ? 0 : scale;
}

#endif /* INAGG_CORE_GUESS_H */
