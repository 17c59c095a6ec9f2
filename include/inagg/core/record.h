/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Block records of a switch that does not wait for stragglers (Trio-ML §4, §5, Appendix A.1).
 *
 * A record is a slot with a key: job, stream and block.  Records stand in buckets of INAGG_WAYS that all
 * jobs share; a block opens one in the bucket it hashes to, in the place of a record that is free or
 * complete, or of one of the job that has too many open there.  A block is decided when all ranks are in, when
 * a quorum is, or when a sweep finds that nobody has come for the job's expiry; late ranks are answered with
 * that same result.
 *
 * No block may be decided twice with different ranks in it.  While its record is there, it is not.  Once the
 * record is gone, another one may be decided without all ranks only if nobody can hold a result of that
 * block: it must be the first time that anybody sends it.  That is what a *floor* knows: for each slot of
 * the job's window, the block opened last.  A rank sends block b only when it has the result of b - window,
 * so the next one to be opened there is b + window, and every other one has been opened before, or comes
 * before the floor was lost.
 *
 * Such a block is *recovering*.  Its record gets an epoch, the tick of a clock that never goes back, whatever
 * happens to the switch; all ranks are told.  Who holds a result of the block gives it back.  Who does not
 * contributes again, with the epoch, and from then on believes no result of an earlier one.  So when all ranks
 * have contributed with one epoch, nobody holds a result nor ever will: it is as if the block were new.  Packets
 * that were sent before, and arrive now, have an earlier epoch and count for nothing.
 *
 * Two records of one block in one tick share an epoch, so contributions to the first may count for the second.
 * The block takes no harm: who holds a result that was decided without some ranks has never contributed with
 * any epoch, so all ranks cannot be in.  But they may have gone on since.  So they make the floor known only if
 * the epoch is later than the tick in which its loss was noticed.
 *
 * A rank may have nothing to add to a block: its elements do not fit a scale that was agreed without it.
 * It is *absent*, and says so in the place of a contribution: nobody needs to wait for it, and in a
 * recovering block it is as good as one, because it says, too, that this rank holds no result.
 *
 * A rank may be *excluded*: its packets count for nothing any more, and nothing waits for it.  The others' results
 * remain the same among them, because what is said above of all ranks then holds for those that remain.  But two things
 * change.  Recoveries with an epoch before and after may be decided by different ranks, so with each exclusion, or
 * *era*, epochs become later, and what has been said in a recovery that is under way counts no more.  And
 * the excluded one may have gone beyond a block that they have yet to decide, alone, and a later result of it
 * may lie with one of them.  So a floor that is lost stays lost from then on, and all later blocks of its position
 * are recovering ones, which wait for all that remain.
 *
 * Floors and records are soft state: one that is zeroed costs time, never a second result.
 *
 * The plane serialises calls on one bucket, and calls with one floor.
 */
#ifndef INAGG_CORE_RECORD_H
#define INAGG_CORE_RECORD_H

#include <inagg/core/job.h>
#include <inagg/core/slot.h>
#include <inagg/core/types.h>

#define INAGG_WAYS		4	/* records in a bucket, a power of two */
#define INAGG_MOST_SWEEPS	65535	/* that a record's age counts */
/* A recovering record that no rank comes to goes after so many sweeps, */
#define INAGG_RECOVERY_SWEEPS	200
/* but not before so many ticks of the epoch clock if a rank is in: they try again each INAGG_RTO_CEILING_NS. */
#define INAGG_RECOVERY_TICKS	1024

enum inagg_record_flag {
	INAGG_RECORD_RECOVERING	= 1 << 0,	/* somebody may hold a result of this block */
	INAGG_RECORD_WHOLE	= 1 << 1,	/* not without all ranks */
	INAGG_RECORD_EXPIRED	= 1 << 2,	/* a sweep gave the others up, or found them excluded: the next frame decides it */
	INAGG_RECORD_DEGRADED	= 1 << 3,	/* decided without some ranks */
};

struct inagg_record {
	struct inagg_slot slot;
	__u8	job;		/* row: inagg_job.index */
	__u8	era;		/* inagg_job_era() when its recovery began */
	__u16	epoch;		/* of a recovering block; 0 at first */
	__u8	stream;
	__u8	flags;		/* enum inagg_record_flag */
	__u16	age;		/* sweeps since a rank came in; 0: referenced (Trio's REF flag) */
	__u64	absent;		/* ranks that have nothing to add */
};

INAGG_ASSERT(sizeof(struct inagg_record) == 40);

/* One for each slot of a job's pool. */
struct inagg_floor {
	__u32	block;		/* opened last */
	__u16	generation;
	__u16	epoch;		/* if it was lost: when that was noticed; 0: never */
	__u8	known;		/* 0: lost */
	__u8	reserved[3];
};

INAGG_ASSERT(sizeof(struct inagg_floor) == 12);

/* When a job's blocks are decided without all ranks, and how many it may have open. */
struct inagg_policy {
	__u32	expiry_us;	/* the job's wish; 0: never without all ranks */
	__u32	most_open;	/* block_cnt_max of Figure 17 */
	__u16	expiry_sweeps;	/* the same in sweeps without a new rank */
	__u16	quorum;		/* ranks that suffice; 0: all */
	__u32	exclude_ms;	/* the job's patience with a silent rank (core/presence.h); 0: without end */
};

/** Epochs by a clock that all incarnations of a switch share: 4 ms each, compared as in RFC 1982. */
INAGG_INLINE __u16 inagg_epoch_of(__u64 ns)
{
	return (__u16)(ns >> 22);
}

/** The bucket of a block, of @buckets (a power of two): neighbours in a stream are neighbours here. */
INAGG_INLINE __u32 inagg_bucket_of(__u32 job, __u32 stream, __u32 block, __u32 buckets)
{
	return (block + job * 0x9e3779b1U + stream * 0x85ebca6bU) & (buckets - 1);
}

/** A job with @open blocks open is refused another one: what each rank may have in flight, at least 1. */
INAGG_INLINE __u16 inagg_window_cap(__u32 open)
{
	__u32 half = open / 2;

	return half > 0xffff ? 0xffff : half ? (__u16)half : 1;
}

/** A floor at the start of a generation: the first block of this position is the next. */
INAGG_INLINE struct inagg_floor inagg_floor_at_start(const struct inagg_job *job, __u32 position)
{
	int control = position >= job->slots;
	struct inagg_floor f = {
		.block = control ? position - job->slots - job->control_slots : position - job->slots,
		.generation = job->generation,
		.epoch = 0,
		.known = 1,
		.reserved = {},
	};
	return f;
}

/** The record of @b in @bucket, or -1. */
INAGG_INLINE int inagg_record_find(const struct inagg_record *bucket, __u32 job, const struct inagg_block *b)
{
	int found = -1;

	for (int way = 0; way < INAGG_WAYS; way++) {
		const struct inagg_record *r = &bucket[way];

		if (inagg_slot_holds(&r->slot, b) && r->job == job && r->stream == b->stream)
			found = way;
	}
	return found;
}

INAGG_INLINE int inagg_record_is_open(const struct inagg_record *r)
{
	return (r->slot.flags & (INAGG_SLOT_LIVE | INAGG_SLOT_COMPLETE)) == INAGG_SLOT_LIVE;
}

/** Whom a WAIT names: who is in, and who has said to have nothing to add. */
INAGG_INLINE __u64 inagg_record_heard(const struct inagg_record *r)
{
	return r->slot.seen | r->absent;
}

/* A place for another block: free, or else the result that has been complete for longest.  -1: none. */
INAGG_INLINE int inagg_record_room(const struct inagg_record *bucket)
{
	int best = -1, best_age = -1;

	for (int way = 0; way < INAGG_WAYS; way++) {
		const struct inagg_record *r = &bucket[way];
		int age = r->slot.flags & INAGG_SLOT_LIVE ? r->age : INAGG_MOST_SWEEPS + 1;

		if (!inagg_record_is_open(r) && age > best_age) {
			best = way;
			best_age = age;
		}
	}
	return best;
}

INAGG_INLINE int inagg_record_is_fresh(const struct inagg_record *r)
{
	return inagg_record_is_open(r) && !(r->flags & INAGG_RECORD_RECOVERING);
}

/* The latest record of a later block of @b's stream that is new, or that recovers, or -1. */
INAGG_INLINE int inagg_record_later(const struct inagg_record *bucket, __u32 job, const struct inagg_block *b, int fresh)
{
	__u32 latest = b->block;
	int found = -1;

	INAGG_OPAQUE(bucket);	/* what others have read of it is read again, not kept: BPF's stack is small */
	for (int way = 0; way < INAGG_WAYS; way++) {
		const struct inagg_record *r = &bucket[way];

		if (inagg_record_is_open(r) && inagg_record_is_fresh(r) == fresh && r->job == job &&
		    r->stream == b->stream && r->slot.generation == b->generation && inagg_before(latest, r->slot.block)) {
			found = way;
			latest = r->slot.block;
		}
	}
	return found;
}

/* Does a block of @job recover in @bucket? */
INAGG_INLINE int inagg_record_recovers(const struct inagg_record *bucket, __u32 job)
{
	int recovers = 0;

	INAGG_OPAQUE(bucket);
	for (int way = 0; way < INAGG_WAYS; way++)
		recovers |= inagg_record_is_open(&bucket[way]) & !inagg_record_is_fresh(&bucket[way]) & (bucket[way].job == job);
	return recovers;
}

/*
 * The record that gives way to an earlier block of its job, or -1: nobody sends a later block for good before an
 * earlier one has its result, and all that is lost is time.  A new one does if none is about to recover.
 */
INAGG_INLINE int inagg_record_yields(const struct inagg_record *bucket, __u32 job, const struct inagg_block *b, int fresh)
{
	int way = inagg_record_later(bucket, job, b, 0);

	if (way >= 0 || fresh || inagg_record_recovers(bucket, job))
		return way;
	return inagg_record_later(bucket, job, b, 1);
}

/*
 * New blocks leave a way to those that must be recovered: a rank may need one of these before it can contribute
 * to what fills the bucket.
 */
INAGG_INLINE int inagg_record_leaves_a_way(const struct inagg_record *bucket)
{
	int fresh = 0;

	for (int way = 0; way < INAGG_WAYS; way++)
		fresh += inagg_record_is_fresh(&bucket[way]);
	return fresh < INAGG_WAYS - 1;
}

/* How many records of @job are open in @bucket: a sum without branches, each of which BPF's verifier would follow. */
INAGG_INLINE __u32 inagg_record_share(const struct inagg_record *bucket, __u32 job)
{
	__u32 share = 0;

	INAGG_OPAQUE(bucket);
	for (int way = 0; way < INAGG_WAYS; way++) {
		__u32 state = bucket[way].slot.flags & (INAGG_SLOT_LIVE | INAGG_SLOT_COMPLETE);
		__u32 differs = (bucket[way].job ^ job) << 2 | (state ^ INAGG_SLOT_LIVE);

		INAGG_OPAQUE(differs);
		share += (differs - 1) >> 31;
	}
	return share;
}

/*
 * An open record of the job that has the most in @bucket, at least two more than @job, or -1.  It gives way, or a
 * job that never completes its blocks would keep all others from a bucket.  @only_fresh: one that is not recovering.
 */
INAGG_INLINE int inagg_record_rival(const struct inagg_record *bucket, __u32 job, int only_fresh)
{
	__u32 most = inagg_record_share(bucket, job) + 1;
	int found = -1;

	for (int way = 0; way < INAGG_WAYS; way++) {
		const struct inagg_record *r = &bucket[way];
		__u32 share = inagg_record_share(bucket, r->job);

		if (inagg_record_is_open(r) && (!only_fresh || inagg_record_is_fresh(r)) && share > most) {
			found = way;
			most = share;
		}
	}
	return found;
}

/*
 * May a job with @open open records have another?  1; 0: in the place of one of them; -1.  Recovery goes on when new blocks
 * may not, likewise.
 */
INAGG_INLINE int inagg_policy_allows(const struct inagg_policy *policy, __u32 open, int fresh)
{
	__u32 most = fresh ? policy->most_open : 2 * policy->most_open;

	return open < most ? 1 : open > most ? -1 : 0;
}

/* A job whose open record gave way to another's. */
struct inagg_loser {
	__u16	generation;
	__u8	job;		/* row */
	__u8	lost;		/* 1: there is one */
};

struct inagg_bucket {
	struct inagg_record records[INAGG_WAYS];
};

/* The way of a new record for @b of the job in @row, or -1; @another: inagg_policy_allows(). */
INAGG_OUTLINE int inagg_record_place(const struct inagg_bucket *in, __u32 row, const struct inagg_block *b, int fresh,
				     int another)
{
	const struct inagg_record *bucket = in ? in->records : 0;
	int crowded, way = -1;

	if (!bucket || !b)
		return -1;
	crowded = fresh && !inagg_record_leaves_a_way(bucket);
	if (another > 0) {
		way = crowded ? -1 : inagg_record_room(bucket);
		if (way < 0)
			way = inagg_record_rival(bucket, row, crowded);
	}
	if (way >= 0 || crowded || another < 0)
		return way;
	return inagg_record_yields(bucket, row, b, fresh);
}

/* What is at @r gives way to a record of @job: INAGG_OPENS if that has one more open record then. */
INAGG_INLINE int inagg_record_give_way(const struct inagg_record *r, const struct inagg_job *job, struct inagg_loser *loser)
{
	if (!inagg_record_is_open(r))
		return INAGG_OPENS;
	if (r->job == job->index)
		return 0;
	if (loser)
		*loser = (struct inagg_loser){ .generation = r->slot.generation, .job = r->job, .lost = 1 };
	return INAGG_OPENS;
}

INAGG_INLINE int inagg_floor_is_known(const struct inagg_floor *f, const struct inagg_job *job)
{
	return f->known && f->generation == job->generation;
}

/* Is @b the block that comes next at its position, never sent before? */
INAGG_INLINE int inagg_floor_precedes(const struct inagg_floor *f, const struct inagg_job *job,
				      const struct inagg_block *b)
{
	__u32 window = b->stream ? job->control_slots : job->slots;

	return inagg_floor_is_known(f, job) && f->block + window == b->block;
}

/*
 * The epoch of a block that is to be recovered: in each era later than all that were given before it.  A lost floor
 * notes when that was noticed.
 */
INAGG_INLINE __u16 inagg_floor_epoch(struct inagg_floor *f, const struct inagg_job *job, __u16 clock)
{
	__u16 tick = (__u16)(clock + 2 * inagg_job_era(job)), epoch = tick ? tick : 1;

	if (!inagg_floor_is_known(f, job) && (!f->epoch || inagg_epoch_before(epoch, f->epoch)))
		f->epoch = epoch;
	return epoch;
}

/*
 * All ranks have contributed to a recovering block: none of them has sent a later one of this position.  Not if
 * one is excluded, which may have.  Nor if its epoch may be one that the switch gave before it lost the floor: then they may be late packets.
 */
INAGG_INLINE void inagg_floor_found(struct inagg_floor *f, const struct inagg_job *job, __u32 block, __u16 epoch)
{
	if ((inagg_floor_is_known(f, job) && !inagg_before(f->block, block)) || !inagg_epoch_before(f->epoch, epoch) ||
	    inagg_job_excluded(job))
		return;
	f->block = block;
	f->generation = job->generation;
	f->known = 1;
}

/* The record is @b's, and nobody is in. */
INAGG_INLINE void inagg_record_take(struct inagg_record *r, const struct inagg_job *job, const struct inagg_block *b)
{
	inagg_slot_take(&r->slot, b);
	r->job = (__u8)job->index;
	r->era = (__u8)inagg_job_era(job);
	r->epoch = 0;
	r->stream = b->stream;
	r->flags = 0;
	r->age = 0;
	r->absent = 0;
}

INAGG_INLINE void inagg_record_open(struct inagg_record *r, struct inagg_floor *f, const struct inagg_job *job,
				    const struct inagg_block *b, int fresh, __u16 clock)
{
	inagg_record_take(r, job, b);
	if (fresh) {
		f->block = b->block;
	} else {
		r->flags = INAGG_RECORD_RECOVERING;
		r->epoch = inagg_floor_epoch(f, job, clock);
	}
}

/* Is there nobody to wait for?  A sum of nobody is none. */
INAGG_INLINE int inagg_record_is_full(const struct inagg_record *r, const struct inagg_job *job)
{
	__u64 heard = r->flags & INAGG_RECORD_WHOLE ? r->slot.seen : r->slot.seen | r->absent;

	return r->slot.seen && (heard & job->all) == job->all;
}

/* Has the record what its job asks for? */
INAGG_INLINE int inagg_record_decidable(const struct inagg_record *r, const struct inagg_job *job,
					const struct inagg_policy *policy)
{
	if (inagg_record_is_full(r, job))
		return 1;
	if (!r->slot.seen)
		return 0;
	if (r->flags & (INAGG_RECORD_RECOVERING | INAGG_RECORD_WHOLE))
		return 0;
	if (r->flags & INAGG_RECORD_EXPIRED)
		return 1;
	return policy->quorum && inagg_count_ranks(r->slot.seen) >= policy->quorum;
}

INAGG_INLINE void inagg_record_decide(struct inagg_record *r, const struct inagg_job *job)
{
	r->slot.flags |= INAGG_SLOT_COMPLETE;
	r->age = 0;
	if (r->slot.seen != inagg_all_ranks(job->size))
		r->flags |= INAGG_RECORD_DEGRADED;
}

/* Did its recovery begin when the job had more ranks?  Then what its ranks said in it counts no more. */
INAGG_INLINE int inagg_record_is_outdated(const struct inagg_record *r, const struct inagg_job *job)
{
	return inagg_record_is_open(r) && (r->flags & INAGG_RECORD_RECOVERING) && r->era != inagg_job_era(job);
}

/* As inagg_slot_fold(), of an open record. */
INAGG_INLINE int inagg_record_add(struct inagg_record *r, __u64 ranks, const struct inagg_block *b)
{
	if (!b->absent)
		return inagg_slot_fold(&r->slot, ranks, b);
	r->absent |= ranks;
	return INAGG_TELL;
}

/* Fold @b, the sum of @ranks, into its record @r and see what comes of it. */
INAGG_INLINE int inagg_record_fold(struct inagg_record *r, struct inagg_floor *f, const struct inagg_job *job,
				   const struct inagg_policy *policy, __u64 ranks, const struct inagg_block *b)
{
	int verdict = inagg_record_add(r, ranks, b);

	if (verdict < 0 || verdict == INAGG_REPLY)
		return verdict;
	if (verdict != INAGG_TELL) {
		r->age = 0;
		r->flags |= b->whole ? INAGG_RECORD_WHOLE : 0;
	}
	if (!inagg_record_decidable(r, job, policy))
		return verdict;
	if (verdict == INAGG_TELL)	/* it is absent, or the block has expired since, or the job has fewer ranks now */
		verdict = INAGG_COUNT;
	if (r->flags & INAGG_RECORD_RECOVERING)
		inagg_floor_found(f, job, b->block, r->epoch);
	inagg_record_decide(r, job);
	return verdict | INAGG_COMPLETES;
}

/**
 * The sum of @ranks arrives, while @open blocks of @job are; @clock is inagg_epoch_of() now, @way receives the
 * index of its record.  Returns STORE, ADD or COUNT, with INAGG_OPENS if one more is open now and
 * INAGG_COMPLETES for the one that decides its block; REPLY, also to a rank that came too late; TELL; TELL_ALL,
 * likewise with INAGG_OPENS, if the block must be recovered; or a negative reason, -INAGG_R_FULL when the rank
 * must slow down.  @loser, which is zero before, receives the job that lost an open record to this one; NULL where
 * there is one job only.
 */
INAGG_INLINE int inagg_record_contribute_ranks(struct inagg_record *bucket, struct inagg_floor *f,
					       const struct inagg_job *job, const struct inagg_policy *policy, __u32 open,
					       __u64 ranks, const struct inagg_block *b, __u16 clock, __u32 *way,
					       struct inagg_loser *loser)
{
	int found = inagg_record_find(bucket, job->index, b), is_new = found < 0, opens = 0;
	struct inagg_record *r;

	if (inagg_job_excludes(job, b->rank))
		return -INAGG_R_EXCLUDED;
	if (!b->elements && !inagg_may_be_empty(b->dtype_op))
		return -INAGG_R_ELEMENTS;
	if (is_new) {
		int fresh = inagg_floor_precedes(f, job, b);

		found = inagg_record_place((const struct inagg_bucket *)bucket, job->index, b, fresh,
					   inagg_policy_allows(policy, open, fresh));
		if (found < 0)
			return -INAGG_R_FULL;
		opens = inagg_record_give_way(&bucket[found & (INAGG_WAYS - 1)], job, loser);
		inagg_record_open(&bucket[found & (INAGG_WAYS - 1)], f, job, b, fresh, clock);
	}
	*way = found & (INAGG_WAYS - 1);
	r = &bucket[*way];
	if (!inagg_record_is_open(r))
		return INAGG_REPLY;
	if (inagg_record_is_outdated(r, job)) {
		inagg_record_open(r, f, job, b, 0, clock);
		is_new = 1;
	}
	if (b->epoch != r->epoch)
		return (is_new ? INAGG_TELL_ALL : INAGG_TELL) | opens;
	return inagg_record_fold(r, f, job, policy, ranks, b) | opens;
}

/** The same of one rank's contribution. */
INAGG_INLINE int inagg_record_contribute(struct inagg_record *bucket, struct inagg_floor *f, const struct inagg_job *job,
					 const struct inagg_policy *policy, __u32 open, const struct inagg_block *b,
					 __u16 clock, __u32 *way, struct inagg_loser *loser)
{
	return inagg_record_contribute_ranks(bucket, f, job, policy, open, inagg_rank_bit(b->rank), b, clock, way, loser);
}

/**
 * A rank asks how its block is doing.  Only reads; as inagg_slot_request(), @way is -1 if it is not here, or
 * -INAGG_R_EXCLUDED.
 */
INAGG_INLINE int inagg_record_request(const struct inagg_record *bucket, const struct inagg_job *job,
				      const struct inagg_block *b, int everyone, int *way)
{
	*way = -1;
	if (inagg_job_excludes(job, b->rank))
		return -INAGG_R_EXCLUDED;
	*way = inagg_record_find(bucket, job->index, b);
	if (*way >= 0 && !inagg_record_is_open(&bucket[*way & (INAGG_WAYS - 1)]))
		return INAGG_REPLY;
	return everyone ? INAGG_TELL_ALL : INAGG_TELL;
}

/**
 * A holder gives a result back.  Taken only for a block that is recovering: of any other, nobody can hold
 * one.  Returns STORE (or COUNT) with INAGG_COMPLETES, or a negative reason.
 */
INAGG_INLINE int inagg_record_restore(struct inagg_record *bucket, const struct inagg_job *job,
				      const struct inagg_block *b, __u32 *way)
{
	int found = inagg_record_find(bucket, job->index, b), verdict;
	struct inagg_record *r;

	if (inagg_job_excludes(job, b->rank))
		return -INAGG_R_EXCLUDED;
	if (found < 0)
		return -INAGG_R_UNSOLICITED;
	*way = found & (INAGG_WAYS - 1);
	r = &bucket[*way];
	if (!(r->flags & INAGG_RECORD_RECOVERING) || !inagg_record_is_open(r))
		return -INAGG_R_UNSOLICITED;
	if (!b->contributors || (b->contributors & ~inagg_all_ranks(job->size)))
		return -INAGG_R_RANK;
	verdict = inagg_slot_give_back(&r->slot, b->contributors, b);
	if (verdict > 0)
		inagg_record_decide(r, job);
	return verdict;
}

enum inagg_sweep {
	INAGG_SWEEP_NOTHING = 0,
	INAGG_SWEEP_EXPIRED,	/* tell somebody to decide it */
	INAGG_SWEEP_FREED,	/* an open record is gone */
};

/* One more sweep since a rank came in. */
INAGG_INLINE void inagg_record_grow_older(struct inagg_record *r)
{
	if (r->age < INAGG_MOST_SWEEPS)
		r->age++;
}

/** Ranks were excluded: a record that lacked only these is full now.  Else SWEEP_NOTHING. */
INAGG_INLINE int inagg_record_excuse(struct inagg_record *r, const struct inagg_job *job)
{
	if (!inagg_record_is_open(r) || r->slot.flags & INAGG_SLOT_SENT || inagg_record_is_outdated(r, job) ||
	    !inagg_record_is_full(r, job))
		return INAGG_SWEEP_NOTHING;
	r->flags |= INAGG_RECORD_EXPIRED;
	return INAGG_SWEEP_EXPIRED;
}

/** A sweep visits a record of @job with @policy (§5: check and clear the REF flag); @clock as above. */
INAGG_INLINE int inagg_record_sweep(struct inagg_record *r, const struct inagg_job *job,
				    const struct inagg_policy *policy, __u16 clock)
{
	__u32 age;

	if (!(r->slot.flags & INAGG_SLOT_LIVE))
		return INAGG_SWEEP_NOTHING;
	age = r->age;
	inagg_record_grow_older(r);
	if (r->slot.flags & (INAGG_SLOT_COMPLETE | INAGG_SLOT_SENT))
		return INAGG_SWEEP_NOTHING;
	if (inagg_record_is_outdated(r, job)) {
		r->slot.flags = 0;
		return INAGG_SWEEP_FREED;
	}
	if (inagg_record_excuse(r, job) == INAGG_SWEEP_EXPIRED)
		return INAGG_SWEEP_EXPIRED;
	if (r->flags & INAGG_RECORD_RECOVERING) {
		if (age < INAGG_RECOVERY_SWEEPS ||
		    (r->slot.seen && (__s16)(__u16)(clock - r->epoch) < INAGG_RECOVERY_TICKS))
			return INAGG_SWEEP_NOTHING;
		r->slot.flags = 0;
		return INAGG_SWEEP_FREED;
	}
	if ((r->flags & INAGG_RECORD_WHOLE) || !r->slot.seen || !policy->expiry_sweeps || age < policy->expiry_sweeps)
		return INAGG_SWEEP_NOTHING;
	r->flags |= INAGG_RECORD_EXPIRED;
	return INAGG_SWEEP_EXPIRED;
}

/** An expired record is decided with the ranks that are in.  INAGG_COUNT | INAGG_COMPLETES, or -INAGG_R_STALE. */
INAGG_INLINE int inagg_record_finish(struct inagg_record *r, const struct inagg_job *job)
{
	if (!inagg_record_is_open(r) || !(r->flags & INAGG_RECORD_EXPIRED))
		return -INAGG_R_STALE;
	inagg_record_decide(r, job);
	return INAGG_COUNT | INAGG_COMPLETES;
}

#endif /* INAGG_CORE_RECORD_H */
