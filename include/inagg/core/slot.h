/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A switch slot and what it does when a packet comes (SwitchML §3.5, Algorithm 3).
 *
 * Only metadata: the functions decide, the plane moves the elements.  A slot index has two copies,
 * chosen by the packet's pool version; while one aggregates block b, the other (the shadow copy)
 * keeps the result of block b - slots for ranks that lost it.  Algorithm 3 clears the shadow's bitmap
 * when the first rank moves on; here the slot remembers its block number, and a newer block takes the
 * copy over.  Both are safe for the same reason (§3.5): a rank sends block b only after it received
 * the result of b - slots, which needed every rank's contribution, which each sent only after it had
 * the result of b - 2*slots, the one that is overwritten.
 *
 * Soft state: a slot may be zeroed at any moment.  The ranks that wait for it contribute again; a rank
 * that already holds the result answers a multicast WAIT with a RESTORE.  The block cannot complete
 * both ways, because a holder never contributes to it again.
 *
 * The plane serialises calls on one slot (a lock, or one thread).
 */
#ifndef INAGG_CORE_SLOT_H
#define INAGG_CORE_SLOT_H

#include <inagg/core/types.h>
#include <inagg/reason.h>
#include <inagg/wire.h>

enum inagg_slot_flag {
	INAGG_SLOT_LIVE		= 1 << 0,	/* holds `block` */
	INAGG_SLOT_COMPLETE	= 1 << 1,	/* elements are the result */
	INAGG_SLOT_SATURATED	= 1 << 2,
	INAGG_SLOT_SENT		= 1 << 3,	/* elements are the sum of all ranks here; the parent has it: tree.h */
	INAGG_SLOT_RAW		= 1 << 4,	/* the ranks have been asked for floats: raw.h */
};

struct inagg_slot {
	__u64	seen;		/* ranks folded in */
	__u32	block;
	__u16	generation;
	__u16	elements;	/* 0: nobody has sent elements yet */
	__u8	dtype_op;	/* of the block, as in the header */
	__u8	scale;
	__u8	next_scale;	/* maximum of what the ranks asked for */
	__u8	flags;		/* enum inagg_slot_flag */
	__u16	marks;		/* INAGG_KEPT_FLAGS of what was folded in */
	__u16	cap;		/* the smallest window cap of what was folded in; 0: none had one */
};

/* Flags that a sum has if one of its packets had them. */
#define INAGG_KEPT_FLAGS	INAGG_F_CONGESTION

INAGG_ASSERT(sizeof(struct inagg_slot) == 24);

/* The part of a packet that a slot looks at; host byte order. */
struct inagg_block {
	__u32	block;
	__u16	generation;
	__u16	rank;		/* < ranks of the job */
	__u16	elements;
	__u8	dtype_op;
	__u8	scale;
	__u8	next_scale;
	__u8	saturated;	/* 0 or 1 */
	__u16	marks;		/* INAGG_KEPT_FLAGS of the header; a router's mark may be added */
	__u16	cap;		/* window cap */
	/* what only trio looks at */
	__u8	stream;		/* 0: data, 1: control */
	__u8	whole;		/* 0 or 1: no result without all ranks */
	__u8	absent;		/* 0 or 1: this rank adds nothing and holds nothing */
	__u16	epoch;		/* the recovery that this answers; 0: none */
	__u64	contributors;	/* RESTORE, PARTIAL, RESULT: the ranks in the sum */
};

enum inagg_verdict {
	/* negative: drop, the number is -enum inagg_reason */
	INAGG_STORE = 1,	/* copy the packet's elements into the slot */
	INAGG_ADD,		/* fold them in */
	INAGG_COUNT,		/* nothing to move: a contribution without elements */
	INAGG_REPLY,		/* send the slot's result to this rank */
	INAGG_TELL,		/* send `seen` to this rank: WAIT */
	INAGG_TELL_ALL,		/* ... to all ranks */
};
/* Set on STORE, ADD and COUNT: the block is complete, multicast the slot as the result. */
#define INAGG_COMPLETES		0x10
/* Set on any: memory that all jobs share has been taken for the block (record.h, descriptor.h). */
#define INAGG_OPENS		0x20
#define INAGG_VERDICT(v)	((v) & 0xf)

INAGG_INLINE int inagg_slot_holds(const struct inagg_slot *s, const struct inagg_block *b)
{
	return (s->flags & INAGG_SLOT_LIVE) && s->block == b->block && s->generation == b->generation;
}

/* The slot holds a later block of the same run: whoever sent this has been overtaken. */
INAGG_INLINE int inagg_slot_is_past(const struct inagg_slot *s, const struct inagg_block *b)
{
	return (s->flags & INAGG_SLOT_LIVE) && s->generation == b->generation &&
	       inagg_before(b->block, s->block);
}

/* The slot holds neither @b nor what comes after it: @b begins here. */
INAGG_INLINE int inagg_slot_is_new(const struct inagg_slot *s, const struct inagg_block *b)
{
	return !inagg_slot_holds(s, b) && !inagg_slot_is_past(s, b);
}

INAGG_INLINE void inagg_slot_take(struct inagg_slot *s, const struct inagg_block *b)
{
	s->seen = 0;
	s->block = b->block;
	s->generation = b->generation;
	s->elements = 0;
	s->dtype_op = b->dtype_op;
	s->scale = b->scale;
	s->next_scale = 0;
	s->flags = INAGG_SLOT_LIVE;
	s->marks = 0;
	s->cap = 0;
}

/** The smaller of two window caps; 0 is none. */
INAGG_INLINE __u16 inagg_smaller_cap(__u16 a, __u16 b)
{
	return b && (!a || b < a) ? b : a;
}

/*
 * A rank without elements (broadcast: everyone but the root) agrees with any length; type and scale
 * must always be the block's own.
 */
INAGG_INLINE int inagg_slot_agrees(const struct inagg_slot *s, const struct inagg_block *b)
{
	return s->dtype_op == b->dtype_op && s->scale == b->scale &&
	       (!b->elements || !s->elements || s->elements == b->elements);
}

/*
 * Fixed point and 16-bit floats are summed with an offset for each rank of the job, so every rank must
 * bring elements; only plain integers and control blocks may leave them out.
 */
INAGG_INLINE int inagg_may_be_empty(__u8 dtype_op)
{
	return dtype_op >> 4 == INAGG_WIRE_NONE || dtype_op >> 4 == INAGG_WIRE_INT32;
}

/*
 * Fold @b, the sum of @ranks, into the slot that holds its block.  STORE, ADD or COUNT; REPLY or TELL; or a
 * negative reason.
 */
INAGG_INLINE int inagg_slot_fold(struct inagg_slot *s, __u64 ranks, const struct inagg_block *b)
{
	int verdict;

	if (s->flags & INAGG_SLOT_COMPLETE)
		return INAGG_REPLY;
	if (s->seen & ranks)
		return INAGG_TELL;
	if (!inagg_slot_agrees(s, b))
		return -INAGG_R_MISMATCH;

	if (!b->elements)
		verdict = INAGG_COUNT;
	else if (!s->elements)
		verdict = INAGG_STORE;
	else
		verdict = INAGG_ADD;

	s->seen |= ranks;
	if (b->elements)
		s->elements = b->elements;
	if (b->next_scale > s->next_scale)
		s->next_scale = b->next_scale;
	if (b->saturated)
		s->flags |= INAGG_SLOT_SATURATED;
	s->marks |= b->marks;
	s->cap = inagg_smaller_cap(s->cap, b->cap);
	return verdict;
}

/**
 * The sum of @ranks arrives, for a slot that will be completed when it has been added: as inagg_slot_contribute_ranks(),
 * without INAGG_COMPLETES.
 */
INAGG_INLINE int inagg_slot_admit_ranks(struct inagg_slot *s, __u64 ranks, const struct inagg_block *b)
{
	if (!b->elements && !inagg_may_be_empty(b->dtype_op))
		return -INAGG_R_ELEMENTS;
	if (!inagg_slot_holds(s, b)) {
		if (inagg_slot_is_past(s, b))
			return -INAGG_R_STALE;
		inagg_slot_take(s, b);
	}
	return inagg_slot_fold(s, ranks, b);
}

/**
 * The sum of @ranks arrives.  @all is the bitmap of the ranks whose sum the slot is to become.  Returns STORE,
 * ADD or COUNT, with INAGG_COMPLETES for the last one; REPLY or TELL for a duplicate; or a negative reason.
 */
INAGG_INLINE int inagg_slot_contribute_ranks(struct inagg_slot *s, __u64 all, __u64 ranks, const struct inagg_block *b)
{
	int verdict = inagg_slot_admit_ranks(s, ranks, b);

	if (verdict > 0 && verdict <= INAGG_COUNT && s->seen == all) {
		s->flags |= INAGG_SLOT_COMPLETE;
		verdict |= INAGG_COMPLETES;
	}
	return verdict;
}

/** The same of one rank's contribution. */
INAGG_INLINE int inagg_slot_contribute(struct inagg_slot *s, __u64 all, const struct inagg_block *b)
{
	return inagg_slot_contribute_ranks(s, all, inagg_rank_bit(b->rank), b);
}

/**
 * A rank asks how its block is doing.  Only reads.  A slot that does not hold the block answers TELL
 * with nobody in: the rank learns that its contribution is gone.  @everyone asks for TELL_ALL.
 */
INAGG_INLINE int inagg_slot_request(const struct inagg_slot *s, const struct inagg_block *b, int everyone)
{
	if (inagg_slot_is_past(s, b))
		return -INAGG_R_STALE;
	if (inagg_slot_holds(s, b) && (s->flags & INAGG_SLOT_COMPLETE))
		return INAGG_REPLY;
	return everyone ? INAGG_TELL_ALL : INAGG_TELL;
}

/** Who is in for @b: the bitmap a WAIT carries. */
INAGG_INLINE __u64 inagg_slot_seen(const struct inagg_slot *s, const struct inagg_block *b)
{
	return inagg_slot_holds(s, b) ? s->seen : 0;
}

/* The slot's block is the sum of @contributors, in @b.  STORE or COUNT with INAGG_COMPLETES, or a negative reason. */
INAGG_INLINE int inagg_slot_give_back(struct inagg_slot *s, __u64 contributors, const struct inagg_block *b)
{
	if (!inagg_slot_agrees(s, b) || (s->elements && !b->elements))
		return -INAGG_R_MISMATCH;
	s->seen = contributors;
	s->elements = b->elements;
	s->next_scale = b->next_scale;
	s->marks = b->marks;
	s->cap = b->cap;
	/* exactly as it was, whatever the contributions that it replaces */
	s->flags = INAGG_SLOT_LIVE | INAGG_SLOT_COMPLETE | (b->saturated ? INAGG_SLOT_SATURATED : 0);
	return (b->elements ? INAGG_STORE : INAGG_COUNT) | INAGG_COMPLETES;
}

/**
 * A holder gives a result back.  Taken only while somebody waits for that very block.  Returns STORE
 * (or COUNT) with INAGG_COMPLETES, or a negative reason.
 */
INAGG_INLINE int inagg_slot_restore(struct inagg_slot *s, __u64 all, const struct inagg_block *b)
{
	if (!inagg_slot_holds(s, b) || !s->seen || (s->flags & INAGG_SLOT_COMPLETE))
		return -INAGG_R_UNSOLICITED;
	return inagg_slot_give_back(s, all, b);
}

#endif /* INAGG_CORE_SLOT_H */
