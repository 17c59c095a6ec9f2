/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Block records of a switch below the root of a tree (Trio-ML §4, "hierarchical aggregation").
 *
 * Only the root decides, by record.h.  A switch below it does to packets what any network may do, hold them up, lose them
 * and repeat them, and one thing more: it adds the contributions of a block that is new here, and sends the root one PARTIAL
 * in their place, when all ranks behind it are in, or as many as the root needs from here, or when no further one has come
 * for a while that is shorter than the root's.  Then the record is SENT, and keeps the sum until the result takes its
 * place:
 *
 *     LIVE --all here, enough, expired--> LIVE, SENT --RESULT of the parent--> LIVE, COMPLETE
 *
 * Everything else goes up as it came, for the root to add: contributions that come later; those to blocks that are being
 * recovered, and so all that have an epoch; those of ranks that are absent.  So records are soft state that costs packets, never
 * a result: one may be zeroed, or given up, at any moment.
 *
 * It is given up when the root turns out to have some ranks of the sum, but not all: it will never add that.  What the
 * ranks send again then goes up one by one, because the block is not new any more.  That is what floors are for here; they
 * are only a hint, and a lost one is found again with any result.  Where the hint is wrong, a record may wait for a rank that has the
 * result and never comes, or whose packet went up by itself: when one that waits, here or elsewhere, has asked often enough to
 * ask everyone, the sum goes up as it is.
 *
 * The plane serialises calls on one bucket, and calls with one floor.
 */
#ifndef INAGG_CORE_COMBINER_H
#define INAGG_CORE_COMBINER_H

#include <inagg/core/record.h>
#include <inagg/core/tree.h>

/* Nothing to keep: the packet is for all ranks here. */
#define INAGG_PASS_DOWN	(INAGG_PASS_UP + 1)

/** What a switch tells one below it: half of its time, so that what is there comes before it has passed, */
INAGG_INLINE __u32 inagg_expiry_below(__u32 expiry_us)
{
	return (expiry_us + 1) / 2;
}

/** and of @below ranks, how many it needs at least to have @quorum of @here.  0: all. */
INAGG_INLINE __u16 inagg_quorum_below(__u16 quorum, __u32 here, __u32 below)
{
	__u32 spare = quorum && quorum < here ? here - quorum : 0;

	if (!spare)
		return 0;
	return (__u16)(below > spare ? below - spare : 1);
}

/** Is this switch of @job below another? */
INAGG_INLINE int inagg_job_has_parent(const struct inagg_job *job)
{
	return (job->flags & INAGG_JOIN_TREE) && job->all != inagg_all_ranks(job->size);
}

/* Is @b a block that nobody here has sent yet, as far as is known? */
INAGG_INLINE int inagg_combiner_is_new(const struct inagg_floor *f, const struct inagg_job *job, const struct inagg_block *b)
{
	return inagg_floor_is_known(f, job) && inagg_before(f->block, b->block) && !b->epoch && !b->absent;
}

/* There is a result of @block. */
INAGG_INLINE void inagg_combiner_raise(struct inagg_floor *f, const struct inagg_job *job, __u32 block)
{
	if (inagg_floor_is_known(f, job) && !inagg_before(f->block, block))
		return;
	f->block = block;
	f->generation = job->generation;
	f->known = 1;
}

/* Ought the sum to go up? */
INAGG_INLINE int inagg_combiner_is_due(const struct inagg_record *r, const struct inagg_job *job,
				       const struct inagg_policy *policy)
{
	if (inagg_record_is_full(r, job))
		return 1;
	if (!r->slot.seen)
		return 0;
	if (r->flags & INAGG_RECORD_EXPIRED)
		return 1;
	return !(r->flags & INAGG_RECORD_WHOLE) && policy->quorum && inagg_count_ranks(r->slot.seen) >= policy->quorum;
}

/*
 * Fold @b into its record @r, which has not been sent.  Who is absent tells the root so, unless that makes the sum due:
 * then it goes up in this packet's place, which will come again.
 */
INAGG_INLINE int inagg_combiner_fold(struct inagg_record *r, const struct inagg_job *job,
				     const struct inagg_policy *policy, __u64 ranks, const struct inagg_block *b)
{
	int verdict = inagg_record_add(r, ranks, b);

	if (verdict < 0)
		return verdict;
	if (verdict != INAGG_TELL) {
		r->age = 0;
		r->flags |= b->whole ? INAGG_RECORD_WHOLE : 0;
	}
	if (inagg_combiner_is_due(r, job, policy)) {
		r->slot.flags |= INAGG_SLOT_SENT;
		return (verdict == INAGG_TELL ? INAGG_COUNT : verdict) | INAGG_COMPLETES;
	}
	return b->absent ? INAGG_PASS_UP : verdict;
}

/* May the result in @r answer @b?  Not if its rank has said since that it believes none of that epoch. */
INAGG_INLINE int inagg_combiner_answers(const struct inagg_record *r, const struct inagg_block *b)
{
	if (inagg_epoch_before(r->epoch, b->epoch))
		return INAGG_PASS_UP;
	return INAGG_REPLY;
}

/**
 * The sum of @ranks arrives, a rank's or a switch's: as inagg_record_contribute_ranks().  With INAGG_COMPLETES the record's
 * sum is to be sent up as a PARTIAL; the record stays open.  Also SEND_UP, for a duplicate of what has been sent, and
 * PASS_UP, for what the root has to add itself.
 */
INAGG_INLINE int inagg_combiner_contribute(struct inagg_record *bucket, struct inagg_floor *f, const struct inagg_job *job,
					   const struct inagg_policy *policy, __u32 open, __u64 ranks,
					   const struct inagg_block *b, __u32 *way, struct inagg_loser *loser)
{
	int found = inagg_record_find(bucket, job->index, b), opens = 0;
	struct inagg_record *r;

	if (!b->elements && !inagg_may_be_empty(b->dtype_op))
		return -INAGG_R_ELEMENTS;
	if (found < 0) {
		if (!inagg_combiner_is_new(f, job, b))
			return INAGG_PASS_UP;
		found = inagg_record_place((const struct inagg_bucket *)bucket, job->index, b, 1,
					   inagg_policy_allows(policy, open, 1));
		if (found < 0)
			return INAGG_PASS_UP;
		opens = inagg_record_give_way(&bucket[found & (INAGG_WAYS - 1)], job, loser);
		inagg_record_open(&bucket[found & (INAGG_WAYS - 1)], f, job, b, 1, 0);
	}
	*way = found & (INAGG_WAYS - 1);
	r = &bucket[*way];
	if (!inagg_record_is_open(r))
		return inagg_combiner_answers(r, b);
	if (b->epoch)
		return INAGG_PASS_UP;
	if (r->slot.flags & INAGG_SLOT_SENT)
		return b->absent || (ranks & ~r->slot.seen) ? INAGG_PASS_UP : INAGG_SEND_UP;
	return inagg_combiner_fold(r, job, policy, ranks, b) | opens;
}

/**
 * A rank asks how its block is doing: REPLY; TELL while contributions wait here for others, which they do no longer if it
 * asks @everyone; or PASS_UP.  @way is -1 if the block is not here.
 */
INAGG_INLINE int inagg_combiner_request(struct inagg_record *bucket, const struct inagg_job *job,
					const struct inagg_block *b, int everyone, int *way)
{
	struct inagg_record *r;

	*way = inagg_record_find(bucket, job->index, b);
	if (*way < 0)
		return INAGG_PASS_UP;
	r = &bucket[*way & (INAGG_WAYS - 1)];
	if (!inagg_record_is_open(r))
		return inagg_combiner_answers(r, b);
	if (b->epoch || (r->slot.flags & INAGG_SLOT_SENT))
		return INAGG_PASS_UP;
	if (everyone)
		r->flags |= INAGG_RECORD_EXPIRED;
	return INAGG_TELL;
}

/**
 * Who is in, of a record that waits: this switch cannot speak for ranks elsewhere, and must not have them blamed.  If it
 * waits no longer, nobody, and who asked sends its elements again: the sum goes up in their packet.
 */
INAGG_INLINE __u64 inagg_combiner_seen(const struct inagg_record *r, const struct inagg_job *job)
{
	if (r->flags & INAGG_RECORD_EXPIRED)
		return 0;
	return inagg_record_heard(r) | (inagg_all_ranks(job->size) & ~job->all);
}

/**
 * The parent's RESULT, of b->contributors, whatever is here.  STORE or COUNT, with INAGG_COMPLETES, and with INAGG_OPENS if
 * the record was not open, or PASS_DOWN: to be passed down.  Or a negative reason, -INAGG_R_DUPLICATE if all ranks here
 * have been sent it.
 */
INAGG_INLINE int inagg_combiner_result(struct inagg_record *bucket, struct inagg_floor *f, const struct inagg_job *job,
				       const struct inagg_block *b, __u32 *way)
{
	int found = inagg_record_find(bucket, job->index, b), opens = 0;
	struct inagg_record *r;

	if (!b->contributors || (b->contributors & ~inagg_all_ranks(job->size)))
		return -INAGG_R_RANK;
	inagg_combiner_raise(f, job, b->block);
	if (found < 0)
		found = inagg_record_room(bucket);
	if (found < 0)
		return INAGG_PASS_DOWN;
	*way = found & (INAGG_WAYS - 1);
	r = &bucket[*way];
	if (!inagg_record_is_open(r)) {
		if (inagg_slot_holds(&r->slot, b) && r->job == job->index && r->stream == b->stream &&
		    !inagg_epoch_before(r->epoch, b->epoch))
			return -INAGG_R_DUPLICATE;
		opens = INAGG_OPENS;
	}
	inagg_record_take(r, job, b);
	r->epoch = b->epoch;
	if (b->contributors != inagg_all_ranks(job->size))
		r->flags |= INAGG_RECORD_DEGRADED;
	return inagg_slot_give_back(&r->slot, b->contributors, b) | opens;
}

/**
 * Who is in, for the ranks here, when the parent's WAIT for @b names b->contributors.  @everyone: somebody has asked often,
 * so what is here waits no longer, and its ranks send again.  @closes is 1 if the record has been given up: the block is being
 * recovered, or what is here will never be added.
 */
INAGG_INLINE __u64 inagg_combiner_wait(struct inagg_record *bucket, const struct inagg_job *job,
				       const struct inagg_block *b, int everyone, int *closes)
{
	int found = inagg_record_find(bucket, job->index, b), sent;
	struct inagg_record *r;
	__u64 both;

	*closes = 0;
	if (found < 0)
		return b->contributors;
	r = &bucket[found & (INAGG_WAYS - 1)];
	if (!inagg_record_is_open(r))
		return b->contributors;
	sent = r->slot.flags & INAGG_SLOT_SENT;
	both = r->slot.seen & b->contributors;
	if (b->epoch || (both && !(sent && both == r->slot.seen))) {
		r->slot.flags = 0;
		*closes = 1;
	} else if (everyone) {
		r->flags |= INAGG_RECORD_EXPIRED;
	} else if (!sent) {
		return b->contributors | inagg_record_heard(r);
	}
	return b->contributors;
}

/** An expired record is sent with the ranks that are in.  INAGG_COUNT | INAGG_COMPLETES, or -INAGG_R_STALE. */
INAGG_INLINE int inagg_combiner_finish(struct inagg_record *r)
{
	if (!inagg_record_is_open(r) || !(r->flags & INAGG_RECORD_EXPIRED) || (r->slot.flags & INAGG_SLOT_SENT))
		return -INAGG_R_STALE;
	r->slot.flags |= INAGG_SLOT_SENT;
	return INAGG_COUNT | INAGG_COMPLETES;
}

#endif /* INAGG_CORE_COMBINER_H */
