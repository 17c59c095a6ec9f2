/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A server's slot when elements do not fit their scale (ATP §3.8).
 *
 * What does not fit is clamped, and SATURATED comes with every sum that it is in.  A block that has it when all ranks
 * are in would have a wrong result, so the server begins it anew: it asks all ranks for the elements as floats, and adds
 * these.
 *
 *     LIVE --all in, SATURATED--> LIVE, RAW, nobody in --all in--> LIVE, RAW, COMPLETE
 *
 * Switches do not add floats, so each rank's come as they are.  What is still on its way as fixed point, from ranks or
 * from switches, is told by its type and counts no more.
 *
 * The plane keeps the floats of each rank until all are in: then their sum need not depend on the order in which they
 * came.
 */
#ifndef INAGG_CORE_RAW_H
#define INAGG_CORE_RAW_H

#include <inagg/core/slot.h>

#define INAGG_RAW_DTYPE_OP	(INAGG_WIRE_FLOAT32 << 4 | INAGG_WIRE_SUM)

/** Are floats what the slot asks, or has asked, for @b's block? */
INAGG_INLINE int inagg_raw_holds(const struct inagg_slot *s, const struct inagg_block *b)
{
	return inagg_slot_holds(s, b) && (s->flags & INAGG_SLOT_RAW);
}

/* Control blocks saturate where their scale was guessed wrong, and then nobody looks at their elements: guess.h. */
INAGG_INLINE int inagg_raw_is_needed(const struct inagg_slot *s, const struct inagg_block *b)
{
	return (s->flags & INAGG_SLOT_SATURATED) && !b->stream &&
	       s->dtype_op == (INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_SUM);
}

/**
 * The sum of @ranks arrives, or a rank's floats: as inagg_slot_contribute_ranks().  Also TELL_ALL: all are in, in vain,
 * and are to send floats.  ADD of floats: keep them by rank; with INAGG_COMPLETES add them up.
 */
INAGG_INLINE int inagg_raw_contribute(struct inagg_slot *s, __u64 all, __u64 ranks, const struct inagg_block *b)
{
	int floats = b->dtype_op == INAGG_RAW_DTYPE_OP, raw = inagg_raw_holds(s, b), verdict;

	if (floats && !raw)
		return inagg_slot_is_past(s, b) ? -INAGG_R_STALE : -INAGG_R_UNSOLICITED;
	if (raw && !floats)
		return s->flags & INAGG_SLOT_COMPLETE ? INAGG_REPLY : INAGG_TELL;
	verdict = inagg_slot_contribute_ranks(s, all, ranks, b);
	if (verdict < 0 || !(verdict & INAGG_COMPLETES) || !inagg_raw_is_needed(s, b))
		return verdict;
	s->seen = 0;
	s->dtype_op = INAGG_RAW_DTYPE_OP;
	s->flags = INAGG_SLOT_LIVE | INAGG_SLOT_RAW;
	return INAGG_TELL_ALL;
}

#endif /* INAGG_CORE_RAW_H */
