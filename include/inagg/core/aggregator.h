/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Aggregators: slots of a switch that belong to nobody (ATP §3.5, §3.7, Figures 7 and 17).
 *
 * All jobs share one table.  A packet names an aggregator by a hash; the first packet of a block takes it if it is
 * free, and the block keeps it until its result passes on the way back.  What finds another block there goes on to the
 * server, which sums whatever reaches it: core/slot.h, with a window's results kept for who lost them.  So an aggregator
 * only saves traffic.  It may be forgotten or taken at any moment, and what then never reaches the server is sent again by
 * the ranks that wait.  No packet is added twice: every sum names its ranks, and the server adds what does not overlap.
 *
 * Unlike in the paper, bitmaps name ranks at every level.  So a switch of any level can tell what it has, and the rule
 * for what is sent again is one: it is merged if it does not overlap, and goes on with all that was here.  The aggregator
 * remembers who has gone on and waits for the others, whose sum goes on when they are in: one rank that is impatient costs
 * one packet, not the aggregation of all.  (In the paper it frees the aggregator, and what comes later then waits there
 * for nobody, until it is sent again, too.)
 *
 * Nor does the paper keep a job from taking all: whoever names another aggregator in each packet has one for each.  Here the
 * table may be divided into shares, and a job finds its aggregators in one of them, whatever its packets name.
 *
 * In the paper a block may have one aggregator, and if it is taken, collides.  Here it may have any of a set, so few collide
 * before most are in use.  And what comes of a block after a collision does not wait where others of it have not: it goes on, too.
 * (In the paper it waits until the ranks repeat.)
 *
 * A block to which some ranks bring no elements (INAGG_F_WHOLE: broadcasts and barriers) goes to the server directly: a
 * packet without elements has no room for what it would complete.
 *
 * The plane serialises calls on one aggregator.
 */
#ifndef INAGG_CORE_AGGREGATOR_H
#define INAGG_CORE_AGGREGATOR_H

#include <inagg/core/job.h>
#include <inagg/core/tree.h>

/* Its clock has ticks of 2^20 ns.  What was not touched for so many is abandoned: ranks never wait so long for a try. */
#define INAGG_AGGREGATOR_TICK_SHIFT	20
#define INAGG_AGGREGATOR_STALE		2048
/* Aggregators of a set, of which a block may have any; a power of two. */
#define INAGG_AGGREGATOR_WAYS		8

struct inagg_aggregator {
	struct inagg_slot slot;
	__u32	touched;	/* tick in which something was last folded in */
	__u8	job;		/* row */
	__u8	stream;
	__u16	marks;		/* INAGG_AGGREGATED_FLAGS of what was folded in */
	__u64	gone;		/* ranks whose elements have gone on; slot.seen are those of the sum that is here, or was last */
	/* The last block that found no room here.  What comes of it later goes to the server, too: here it would wait in vain. */
	__u32	refused_block;
	__u16	refused_generation;
	__u8	refused_job;	/* row, from 1; 0: there was none */
	__u8	refused_stream;
};

/* What a sum has if one of its packets had it. */
#define INAGG_AGGREGATED_FLAGS	(INAGG_F_RESEND | INAGG_F_COLLISION | INAGG_F_CONGESTION)

INAGG_ASSERT(sizeof(struct inagg_aggregator) == 48);

/* Beside those of slot.h and tree.h. */
enum inagg_aggregator_verdict {
	INAGG_COLLIDES = INAGG_PASS_UP + 1,	/* as PASS_UP, with INAGG_F_COLLISION: another block is there */
};

/** The index that packets of slot @position of job number @job name, after @moves collisions that the server acted on. */
INAGG_INLINE __u16 inagg_aggregator_index(__u32 job, __u32 position, __u32 moves)
{
	__u32 h = job << 16 ^ position ^ moves * 0x9e3779b9U;

	/* MurmurHash3's finalizer: every bit of the result depends on every one of these */
	h ^= h >> 16;
	h *= 0x85ebca6bU;
	h ^= h >> 13;
	h *= 0xc2b2ae35U;
	h ^= h >> 16;
	return (__u16)h;
}

/**
 * Where what packets of the job in @row name by @index is, in a table of @count that jobs share: among @share entries, which
 * no job has whose row is less than @count / @share away.  Both are powers of two.
 */
INAGG_INLINE __u32 inagg_shared_entry(__u32 row, __u32 index, __u32 share, __u32 count)
{
	return (row * share + (index & (share - 1))) & (count - 1);
}

INAGG_INLINE int inagg_aggregator_is_jobs(const struct inagg_aggregator *a, const struct inagg_job *job,
					  const struct inagg_block *b)
{
	return (a->slot.flags & INAGG_SLOT_LIVE) && a->job == job->index && a->stream == b->stream;
}

INAGG_INLINE int inagg_aggregator_holds(const struct inagg_aggregator *a, const struct inagg_job *job,
					const struct inagg_block *b)
{
	return inagg_aggregator_is_jobs(a, job, b) && inagg_slot_holds(&a->slot, b);
}

/*
 * Nobody needs what is there: it was abandoned; or it belongs to an earlier block of the same position, whose result all
 * that send this one have, or to another generation.
 */
INAGG_INLINE int inagg_aggregator_is_free(const struct inagg_aggregator *a, const struct inagg_job *job,
					  const struct inagg_block *b, __u32 now)
{
	__u32 window = b->stream ? job->control_slots : job->slots;

	if (!(a->slot.flags & INAGG_SLOT_LIVE) || now - a->touched >= INAGG_AGGREGATOR_STALE)
		return 1;
	return inagg_aggregator_is_jobs(a, job, b) &&
	       (a->slot.generation != b->generation ||
		(inagg_before(a->slot.block, b->block) && !((a->slot.block ^ b->block) & (window - 1))));
}

/* What an aggregator is to a block.  Of a set it has the first with the greatest. */
enum inagg_aggregator_fit {
	INAGG_TAKEN	= 0,	/* by another */
	INAGG_FREE	= 1,
	INAGG_ITS	= 2,	/* or has refused it */
};

INAGG_INLINE void inagg_aggregator_refuse(struct inagg_aggregator *a, const struct inagg_job *job, const struct inagg_block *b)
{
	a->refused_block = b->block;
	a->refused_generation = b->generation;
	a->refused_job = (__u8)(job->index + 1);
	a->refused_stream = b->stream;
}

INAGG_INLINE int inagg_aggregator_has_refused(const struct inagg_aggregator *a, const struct inagg_job *job,
					      const struct inagg_block *b)
{
	return a->refused_block == b->block && a->refused_generation == b->generation && a->refused_job == job->index + 1 &&
	       a->refused_stream == b->stream;
}

/** What @a is to @b.  A guess without the aggregator's lock: inagg_aggregator_contribute() looks again. */
INAGG_INLINE int inagg_aggregator_fit(const struct inagg_aggregator *a, const struct inagg_job *job,
				      const struct inagg_block *b, __u32 now)
{
	if (inagg_aggregator_has_refused(a, job, b) || inagg_aggregator_holds(a, job, b))
		return INAGG_ITS;
	return inagg_aggregator_is_free(a, job, b, now) ? INAGG_FREE : INAGG_TAKEN;
}

INAGG_INLINE void inagg_aggregator_take(struct inagg_aggregator *a, const struct inagg_job *job,
					const struct inagg_block *b)
{
	inagg_slot_take(&a->slot, b);
	a->job = (__u8)job->index;
	a->stream = b->stream;
	a->marks = 0;
	a->gone = 0;
}

/* As inagg_slot_fold().  What has gone on makes room for a sum of those who come after it. */
INAGG_INLINE int inagg_aggregator_fold(struct inagg_aggregator *a, __u64 ranks, const struct inagg_block *b, __u16 marks)
{
	if (a->slot.seen & a->gone) {
		inagg_slot_take(&a->slot, b);
		a->marks = 0;
	}
	a->marks |= marks;
	return inagg_slot_fold(&a->slot, ranks, b);
}

/* The sum goes on when all ranks of @all are in, or have gone on. */
INAGG_INLINE int inagg_aggregator_add(struct inagg_aggregator *a, __u64 all, __u64 ranks, const struct inagg_block *b,
				      __u16 marks)
{
	int verdict = inagg_aggregator_fold(a, ranks, b, marks);

	if ((a->slot.seen | a->gone) != all)
		return verdict;
	a->gone |= a->slot.seen;
	return verdict | INAGG_COMPLETES;
}

/*
 * What was sent again finds its block: all that is here goes on, with it if it is not in.  So does once more a sum that has gone
 * already and may be lost; after that its ranks' packets pass by themselves, as the server may have some of them.
 */
INAGG_INLINE int inagg_aggregator_flush(struct inagg_aggregator *a, __u64 ranks, const struct inagg_block *b, __u16 marks)
{
	int verdict;

	if (!(ranks & ~a->slot.seen)) {
		if (a->slot.flags & INAGG_SLOT_SENT)
			return INAGG_PASS_UP;
		a->slot.flags |= INAGG_SLOT_SENT;
		a->gone |= a->slot.seen;
		a->marks |= marks;
		return INAGG_SEND_UP;
	}
	if (ranks & (a->slot.seen | a->gone))
		return INAGG_PASS_UP;
	verdict = inagg_aggregator_fold(a, ranks, b, marks);
	a->gone |= a->slot.seen;
	return verdict | INAGG_COMPLETES;
}

/* @b is what ranks here may sum: their packets are all of one length, that of the sum.  Floats are the server's. */
INAGG_INLINE int inagg_aggregator_takes(const struct inagg_block *b)
{
	__u8 dtype = b->dtype_op >> 4;

	return !b->whole && dtype != INAGG_WIRE_FLOAT32 && (b->elements || dtype == INAGG_WIRE_NONE);
}

/**
 * The sum of @ranks arrives, a rank's or a switch's, for this aggregator, with these header @flags, at tick @now.
 *
 * STORE, ADD or COUNT: folded in; with INAGG_COMPLETES what is there goes on to the server, as a PARTIAL of slot.seen.
 * SEND_UP: likewise, and nothing is folded in.  PASS_UP, COLLIDES: the packet itself goes on.  Or a negative reason.
 */
INAGG_INLINE int inagg_aggregator_contribute(struct inagg_aggregator *a, const struct inagg_job *job, __u64 ranks,
					     const struct inagg_block *b, __u16 flags, __u32 now)
{
	int resend = flags & INAGG_F_RESEND, verdict;
	__u16 marks = flags & INAGG_AGGREGATED_FLAGS;

	if (!inagg_aggregator_takes(b))
		return INAGG_PASS_UP;
	if (!inagg_aggregator_holds(a, job, b)) {
		if (resend || ranks == job->all)
			return INAGG_PASS_UP;	/* nobody else is to come here */
		if (inagg_aggregator_has_refused(a, job, b))
			return INAGG_COLLIDES;
		if (!inagg_aggregator_is_free(a, job, b, now)) {
			inagg_aggregator_refuse(a, job, b);
			return INAGG_COLLIDES;
		}
		inagg_aggregator_take(a, job, b);
	}
	if (!inagg_slot_agrees(&a->slot, b))
		return INAGG_PASS_UP;	/* the server's to refuse */
	if (resend)
		verdict = inagg_aggregator_flush(a, ranks, b, marks);
	else if (ranks & (a->slot.seen | a->gone))
		verdict = -INAGG_R_DUPLICATE;
	else
		verdict = inagg_aggregator_add(a, job->all, ranks, b, marks);
	if (verdict > 0 && (verdict & ~INAGG_COMPLETES) <= INAGG_COUNT)
		a->touched = now;
	return verdict;
}

/** The server's RESULT of @b passes.  Is @a in use, for @b or since long ago?  A guess without the lock, likewise. */
INAGG_INLINE int inagg_aggregator_ends(const struct inagg_aggregator *a, const struct inagg_job *job, const struct inagg_block *b,
				       __u32 now)
{
	return (a->slot.flags & INAGG_SLOT_LIVE) &&
	       (inagg_aggregator_holds(a, job, b) || now - a->touched >= INAGG_AGGREGATOR_STALE);
}

/** Likewise: an aggregator that is in use for @b, or was abandoned, is free.  Returns 1 if it was in use. */
INAGG_INLINE int inagg_aggregator_result(struct inagg_aggregator *a, const struct inagg_job *job,
					 const struct inagg_block *b, __u32 now)
{
	if (!inagg_aggregator_ends(a, job, b, now))
		return 0;
	a->slot.flags &= ~INAGG_SLOT_LIVE;
	return 1;
}

#endif /* INAGG_CORE_AGGREGATOR_H */
