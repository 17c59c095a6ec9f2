/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A slot of a switch in a tree of switches (Trio-ML §4 "hierarchical aggregation"; SwitchML §6 for racks).
 *
 * Every switch sums the ranks behind it, sends one PARTIAL to its parent, and passes the parent's RESULT down.
 * The root has all ranks behind it, and its slots are those of slot.h.  Below it a slot lives one state longer:
 *
 *     LIVE --all ranks here--> LIVE, SENT --RESULT of the parent--> LIVE, COMPLETE
 *
 * No switch has a timer: what is lost on the way up or down is asked for by the ranks that wait, as with one
 * switch.  A SENT slot answers a contribution that it has already by sending its PARTIAL again, and leaves
 * requests and restores to its parent, whose WAITs it passes down.  So any slot of any switch may be
 * forgotten at any moment, for the reasons that slot.h gives.
 *
 * The plane serialises calls on one slot.
 */
#ifndef INAGG_CORE_TREE_H
#define INAGG_CORE_TREE_H

#include <inagg/core/slot.h>

/* Beside slot.h's verdicts. */
enum inagg_tree_verdict {
	INAGG_SEND_UP	= INAGG_TELL_ALL + 1,	/* the slot's sum, again, to the parent: PARTIAL */
	INAGG_PASS_UP,				/* the packet, as it is, to the parent */
};

/* Where a switch stands in its tree. */
struct inagg_tree {
	__u64	here;		/* ranks behind this switch */
	__u64	everyone;	/* ranks of the job */
};

INAGG_INLINE int inagg_tree_is_root(const struct inagg_tree *t)
{
	return t->here == t->everyone;
}

/**
 * The sum of @ranks arrives, a rank's or a switch's: as inagg_slot_contribute_ranks().  With INAGG_COMPLETES the
 * slot's sum is to be multicast as the RESULT by the root, and sent up as a PARTIAL by any other switch.  Also
 * SEND_UP, for a duplicate of what has been sent.
 */
INAGG_INLINE int inagg_tree_contribute(struct inagg_slot *s, const struct inagg_tree *t, __u64 ranks,
				       const struct inagg_block *b)
{
	int verdict = inagg_slot_contribute_ranks(s, t->here, ranks, b);

	if (verdict == INAGG_TELL && (s->flags & INAGG_SLOT_SENT))
		return INAGG_SEND_UP;
	if (verdict > 0 && (verdict & INAGG_COMPLETES) && !inagg_tree_is_root(t)) {
		s->flags &= ~INAGG_SLOT_COMPLETE;
		s->flags |= INAGG_SLOT_SENT;
	}
	return verdict;
}

/**
 * The same for elements that are added later, by core/merge.h: never with INAGG_COMPLETES.
 */
INAGG_INLINE int inagg_tree_admit(struct inagg_slot *s, __u64 ranks, const struct inagg_block *b)
{
	int verdict = inagg_slot_admit_ranks(s, ranks, b);

	return verdict == INAGG_TELL && (s->flags & INAGG_SLOT_SENT) ? INAGG_SEND_UP : verdict;
}

/** ... and they have all been: the slot's elements are the sum of all ranks here. */
INAGG_INLINE void inagg_tree_added(struct inagg_slot *s, const struct inagg_tree *t)
{
	s->flags |= inagg_tree_is_root(t) ? INAGG_SLOT_COMPLETE : INAGG_SLOT_SENT;
}

/** Is the slot's sum, of @b, still being made? */
INAGG_INLINE int inagg_tree_is_adding(const struct inagg_slot *s, const struct inagg_block *b)
{
	return inagg_slot_holds(s, b) && !(s->flags & (INAGG_SLOT_COMPLETE | INAGG_SLOT_SENT));
}

/** Some of what was to be added is lost: the slot forgets its block, unless the sum was finished before.  1 if it does. */
INAGG_INLINE int inagg_tree_lose(struct inagg_slot *s)
{
	if (s->flags & (INAGG_SLOT_COMPLETE | INAGG_SLOT_SENT))
		return 0;
	s->flags = 0;
	return 1;
}

/**
 * @b has come for the slot's other copy, so a rank here has the result of an earlier block in this one, and never brings its
 * elements again.  1: nothing of that block is to be added any more, and a sum that was not finished is forgotten.
 */
INAGG_INLINE int inagg_tree_overtaken(struct inagg_slot *s, const struct inagg_block *b)
{
	if (s->generation != b->generation || !inagg_before(s->block, b->block))
		return 0;
	inagg_tree_lose(s);
	return 1;
}

/**
 * @b may not begin, because its job is adding as many blocks as it may (inagg_merge_allows()), and @s is the slot of the one that
 * it began last.  1: that gives way, and is forgotten.  It does to an earlier block: the ranks may have no room for others before they
 * have that one's result, and would wait for ever.  And to any if it is @idle, for nobody has sent or asked for it for
 * INAGG_MERGE_IDLE_NS: a late packet has begun what all have.
 */
INAGG_INLINE int inagg_tree_gives_way(struct inagg_slot *s, const struct inagg_block *b, int idle)
{
	if (!idle && s->generation == b->generation && !inagg_before(b->block, s->block))
		return 0;
	return inagg_tree_lose(s);
}

/** A rank asks how its block is doing: as inagg_slot_request(), or PASS_UP if only the parent knows. */
INAGG_INLINE int inagg_tree_request(const struct inagg_slot *s, const struct inagg_block *b, int everyone)
{
	int verdict = inagg_slot_request(s, b, everyone);

	if (verdict > 0 && verdict != INAGG_REPLY && inagg_slot_holds(s, b) && (s->flags & INAGG_SLOT_SENT))
		return INAGG_PASS_UP;
	return verdict;
}

/**
 * Who is in for @b, as far as this switch knows: it cannot speak for ranks behind others, and must not have them
 * blamed.  0 when nobody here is.
 */
INAGG_INLINE __u64 inagg_tree_seen(const struct inagg_slot *s, const struct inagg_tree *t, const struct inagg_block *b)
{
	__u64 seen = inagg_slot_seen(s, b);

	return seen ? seen | (t->everyone & ~t->here) : 0;
}

/**
 * Who is in, for the ranks here, when the parent's WAIT names @contributors: it cannot know of ranks whose sum this
 * switch has not sent yet, and each of them that it seems to miss would send its elements again.
 */
INAGG_INLINE __u64 inagg_tree_wait(const struct inagg_slot *s, const struct inagg_block *b, __u64 contributors)
{
	if (s->flags & (INAGG_SLOT_SENT | INAGG_SLOT_COMPLETE))
		return contributors;
	return contributors | inagg_slot_seen(s, b);
}

/**
 * A holder gives a result back: as inagg_slot_restore() while somebody here waits for others here.  Otherwise
 * PASS_UP, since whoever waits is behind another switch, or it is the parent's slot that lacks this.
 */
INAGG_INLINE int inagg_tree_restore(struct inagg_slot *s, const struct inagg_tree *t, const struct inagg_block *b)
{
	int waits_here = inagg_slot_holds(s, b) && s->seen && !(s->flags & (INAGG_SLOT_COMPLETE | INAGG_SLOT_SENT));

	if (!waits_here && !inagg_tree_is_root(t))
		return INAGG_PASS_UP;
	return inagg_slot_restore(s, t->everyone, b);
}

/**
 * The parent's RESULT, of b->contributors.  STORE or COUNT, with INAGG_COMPLETES: to be passed down.  Or a negative
 * reason.  Taken also by a slot that has forgotten the block: it is what its ranks wait for.
 */
INAGG_INLINE int inagg_tree_result(struct inagg_slot *s, const struct inagg_tree *t, const struct inagg_block *b)
{
	if (b->contributors != t->everyone)
		return -INAGG_R_RANK;
	if (inagg_slot_is_past(s, b))
		return -INAGG_R_STALE;
	if (!inagg_slot_holds(s, b))
		inagg_slot_take(s, b);
	else if (s->flags & INAGG_SLOT_COMPLETE)
		return -INAGG_R_DUPLICATE;
	return inagg_slot_give_back(s, b->contributors, b);
}

#endif /* INAGG_CORE_TREE_H */
