/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The leader of a block: the rank that completes its sum, keeps the result and repairs what is lost (Canary §3.1.4,
 * §3.2.1, §3.3).
 *
 * Switches on the way add what meets in them and promise nothing.  The leader adds what comes, in whatever parts, to its own
 * elements.  It keeps both copies of each of its positions in the pool as a switch would (slot.h), in memory that nobody
 * takes away, so nothing has to be restored.
 *
 * Ranks ask when a result is late.  Who is in waits.  If who asks is not, what it sent is lost, and perhaps that of
 * others with it: the attempt fails, and all that are not in send again, under the number of the next attempt, which
 * keeps their sums apart from what may still be waiting in switches.  After some attempts they send past the sums.
 *
 * The paper's switches count, so that its leader cannot tell what it lacks, and each attempt begins at nothing.  Here packets
 * name their ranks.  So what is in stays in, and a packet of any attempt counts if nobody in it is in yet; one
 * that overlaps cannot be told apart and is dropped.
 *
 * The result goes back the way that the elements came, by what switches have recorded of the last attempt.  It reaches others
 * because the leader names them (`restore`): who came past the sums, since no switch recorded them, who is in from an
 * earlier attempt, and who has asked for so long that switches may have given up what they recorded.  That is the paper's tree
 * restoration.
 *
 * The plane serialises calls on one lead.
 */
#ifndef INAGG_CORE_LEADER_H
#define INAGG_CORE_LEADER_H

#include <inagg/core/slot.h>
#include <inagg/core/types.h>
#include <inagg/reason.h>
#include <inagg/wire.h>

#define INAGG_ASKS_OF_THE_PATIENT	8	/* the next comes after 200 ms at the soonest, and ever later ones after seconds */

/* One copy of a position that this rank leads. */
struct inagg_lead {
	struct inagg_slot slot;
	__u64	restore;	/* ranks that are in and that switches have not recorded for this attempt, or no longer */
	__u16	attempt;
	__u16	reserved[3];
};

INAGG_ASSERT(sizeof(struct inagg_lead) == 40);

/* What else may follow from a REQUEST. */
enum inagg_lead_verdict {
	INAGG_FAIL = INAGG_TELL_ALL + 1,	/* BLOCK_FAILED to this rank */
	INAGG_FAIL_ALL,				/* ... to all that are not in */
};

/** The rank that leads the blocks of pool position @slot, data or control, in a job of @size ranks. */
INAGG_INLINE __u32 inagg_leader_of(__u32 size, __u32 slot)
{
	return slot % size;
}

/** Ranks that are to send @l's block again send it past the sums on the way (§3.3: host-based reduction). */
INAGG_INLINE int inagg_lead_bypasses(const struct inagg_lead *l)
{
	return l->attempt >= INAGG_CANARY_ATTEMPTS;
}

/* @l is of @b's block from now on, if it was not.  0, or -INAGG_R_STALE. */
INAGG_INLINE int inagg_lead_take(struct inagg_lead *l, const struct inagg_block *b)
{
	if (inagg_slot_holds(&l->slot, b))
		return 0;
	if (inagg_slot_is_past(&l->slot, b))
		return -INAGG_R_STALE;
	inagg_slot_take(&l->slot, b);
	l->restore = 0;
	l->attempt = 0;
	return 0;
}

/**
 * The sum of @ranks arrives, of which b->epoch is the attempt; @bypass: past the sums on the way.  STORE, ADD or COUNT, with
 * INAGG_COMPLETES if these were the last of @all; or a negative reason.
 */
INAGG_INLINE int inagg_lead_contribute(struct inagg_lead *l, __u64 all, __u64 ranks, const struct inagg_block *b, int bypass)
{
	int verdict = inagg_lead_take(l, b);

	if (verdict)
		return verdict;
	if (l->slot.seen & ranks)
		return -INAGG_R_DUPLICATE;
	if (!l->slot.seen) {	/* a REQUEST, which may have come before, does not tell what the block is */
		l->slot.dtype_op = b->dtype_op;
		l->slot.scale = b->scale;
	}
	verdict = inagg_slot_contribute_ranks(&l->slot, all, ranks, b);
	if (verdict > 0 && (bypass || b->epoch != l->attempt))
		l->restore |= ranks;
	return verdict;
}

/**
 * A rank that is in attempt b->epoch asks how its block is doing.  REPLY with the result, TELL it that it is in, or FAIL or
 * FAIL_ALL, which carry the new attempt; or a negative reason.  A rank that asks with another attempt than ours has not heard yet.
 */
INAGG_INLINE int inagg_lead_request(struct inagg_lead *l, const struct inagg_block *b)
{
	int verdict = inagg_lead_take(l, b);

	if (verdict)
		return verdict;
	if (l->slot.flags & INAGG_SLOT_COMPLETE)
		return INAGG_REPLY;
	if (l->slot.seen & inagg_rank_bit(b->rank)) {
		if (b->cap > INAGG_ASKS_OF_THE_PATIENT)
			l->restore |= inagg_rank_bit(b->rank);
		return INAGG_TELL;
	}
	if (b->epoch != l->attempt || inagg_lead_bypasses(l))
		return INAGG_FAIL;
	l->attempt++;
	l->restore |= l->slot.seen;
	return inagg_lead_bypasses(l) ? INAGG_FAIL : INAGG_FAIL_ALL;
}

/** Who is in for @b: what WAIT and BLOCK_FAILED carry. */
INAGG_INLINE __u64 inagg_lead_seen(const struct inagg_lead *l, const struct inagg_block *b)
{
	return inagg_slot_seen(&l->slot, b);
}

#endif /* INAGG_CORE_LEADER_H */
