/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * canary: the descriptor of a block in a switch (Canary §3.1, §3.2).
 *
 * Packets of a block head for its leader, one of the ranks, by whatever path has room.  A switch cannot know how many will
 * come by: it sums those that come within a time window, and sends the sum on.  What comes later, a straggler, goes on as
 * it is.  The descriptor remembers who has come, in time or not, so that the leader's result finds its way back:
 *
 *     free --a packet--> LIVE --timer, or all that can come--> LIVE, SENT --RESULT--> free
 *
 * The table of descriptors is shared by all jobs, and a block has one place in it.  A packet whose place another block has
 * goes to the leader past all switches (BYPASS); the leader sees that and names its ranks in the result.
 *
 * Results come back by several switches.  Who has one by the shorter way sends the next block of its slot, perhaps through a
 * switch that the result has yet to reach, and that has to remember for whom.  So the two blocks of a slot that may be under
 * way at once have two places, and neither gives way to the other.  The block after these does take the first one's place: all
 * ranks have contributed to the one between, so all have the result of the first.
 *
 * In the paper packets count their ranks, so only the leader can say that none is missing, and a switch waits for its timer.
 * Here packets name their ranks, and a switch that has those of all ranks that can come to it need not wait.
 *
 * Soft state: what is lost here is lost like a packet.  The plane serialises calls on one descriptor.
 */
#ifndef INAGG_CORE_DESCRIPTOR_H
#define INAGG_CORE_DESCRIPTOR_H

#include <inagg/core/aggregator.h>
#include <inagg/core/job.h>

#define INAGG_DESCRIPTOR_STALE_NS	2000000000ULL	/* then it is abandoned; who still waits for the result is soon named in it */

struct inagg_descriptor {
	struct inagg_slot slot;	/* `seen`: ranks of the sum that is here, or has gone on */
	__u64	children;	/* ranks whose packets have come, in the sum or after it */
	__u64	opened_ns;
	__u32	spread_ns;	/* from then until the last of them */
	__u16	attempt;
	__u8	job;		/* row */
	__u8	stream;
	__u8	ups;		/* up ports through which packets have come */
	__u8	late;		/* 0 or 1: a straggler has come (no bit field: the kernel finds no timer beside one) */
	__u8	expired;	/* 0 or 1: the sum went on because its time was up */
	__u8	reserved[5];
};

INAGG_ASSERT(sizeof(struct inagg_descriptor) == 56);

/* What comes to a switch. */
struct inagg_arrival {
	__u64	ranks;		/* whose sum it is */
	__u64	expected;	/* all that can come to this switch on their way to the leader */
	__u64	now_ns;
	__u8	up;		/* bit of the up port that it came through; 0: from below */
};

/* Beside those of slot.h and tree.h. */
enum inagg_descriptor_verdict {
	INAGG_EVADES = INAGG_COLLIDES + 1,	/* the packet goes to the leader past all switches */
};

/**
 * Which of @count descriptors, of which a job has a @share of two or more, is that of @b, in slot @position of job number @number,
 * in @attempt.  At first that of its place in the pool: blocks under way meet only if all pools together are larger than @count.
 * What failed there is tried elsewhere.
 */
INAGG_INLINE __u32 inagg_descriptor_index(const struct inagg_job *job, __u32 number, __u32 position,
					  const struct inagg_block *b, __u16 attempt, __u32 share, __u32 count)
{
	__u32 copy = 2 * (job->first_slot + position) + inagg_version_of(job, b->stream, b->block);
	__u32 moved = attempt ? inagg_aggregator_index(number, position, attempt) : 0;

	return inagg_shared_entry(job->index, copy ^ moved, share, count);
}

INAGG_INLINE int inagg_descriptor_is_jobs(const struct inagg_descriptor *d, const struct inagg_job *job,
					  const struct inagg_block *b)
{
	return (d->slot.flags & INAGG_SLOT_LIVE) && d->job == job->index && d->stream == b->stream;
}

INAGG_INLINE int inagg_descriptor_holds(const struct inagg_descriptor *d, const struct inagg_job *job,
					const struct inagg_block *b)
{
	return inagg_descriptor_is_jobs(d, job, b) && d->attempt == b->epoch && inagg_slot_holds(&d->slot, b);
}

/* Both blocks have the same copy of the same slot. */
INAGG_INLINE int inagg_same_copy(const struct inagg_job *job, const struct inagg_block *b, __u32 other)
{
	return !((other ^ b->block) & (2 * (b->stream ? job->control_slots : job->slots) - 1));
}

/* It has a later block of this copy: whoever sent @b has been overtaken. */
INAGG_INLINE int inagg_descriptor_is_past(const struct inagg_descriptor *d, const struct inagg_job *job,
					  const struct inagg_block *b)
{
	return inagg_descriptor_is_jobs(d, job, b) && inagg_slot_is_past(&d->slot, b) &&
	       inagg_same_copy(job, b, d->slot.block);
}

/* Nobody needs what is there: it was abandoned, or is of a generation or a block of this copy that has been. */
INAGG_INLINE int inagg_descriptor_is_free(const struct inagg_descriptor *d, const struct inagg_job *job,
					  const struct inagg_block *b, __u64 now_ns)
{
	if (!(d->slot.flags & INAGG_SLOT_LIVE) || now_ns - d->opened_ns >= INAGG_DESCRIPTOR_STALE_NS)
		return 1;
	return inagg_descriptor_is_jobs(d, job, b) &&
	       (d->slot.generation != b->generation ||
		(inagg_before(d->slot.block, b->block) && inagg_same_copy(job, b, d->slot.block)));
}

INAGG_INLINE void inagg_descriptor_take(struct inagg_descriptor *d, const struct inagg_job *job,
					const struct inagg_block *b, __u64 now_ns)
{
	inagg_slot_take(&d->slot, b);
	d->children = 0;
	d->opened_ns = now_ns;
	d->spread_ns = 0;
	d->attempt = b->epoch;
	d->job = (__u8)job->index;
	d->stream = b->stream;
	d->late = 0;
	d->expired = 0;
	d->ups = 0;
}

/* Its block is the packet's, and the packet is not in. */
INAGG_INLINE int inagg_descriptor_add(struct inagg_descriptor *d, const struct inagg_arrival *a, const struct inagg_block *b)
{
	__u64 spread = a->now_ns - d->opened_ns;
	int verdict;

	d->children |= a->ranks;
	d->ups |= a->up;
	d->spread_ns = spread < 0xffffffffU ? (__u32)spread : 0xffffffffU;
	if (d->slot.flags & INAGG_SLOT_SENT) {
		d->late = 1;
		return INAGG_PASS_UP;
	}
	if (a->ranks == a->expected) {	/* nobody else is to come */
		d->slot.flags |= INAGG_SLOT_SENT;
		return INAGG_PASS_UP;
	}
	verdict = inagg_slot_fold(&d->slot, a->ranks, b);
	if (d->slot.seen != a->expected)
		return verdict;
	d->slot.flags |= INAGG_SLOT_SENT;
	return verdict | INAGG_COMPLETES;
}

/**
 * @a arrives for @b on its way to the leader.
 *
 * STORE, ADD or COUNT: folded in; with INAGG_OPENS as the first, with INAGG_COMPLETES the sum goes on now.
 * PASS_UP, COLLIDES, EVADES: the packet itself goes on, the latter two past all switches.  Or a negative reason.
 */
INAGG_INLINE int inagg_descriptor_contribute(struct inagg_descriptor *d, const struct inagg_job *job,
					     const struct inagg_arrival *a, const struct inagg_block *b)
{
	int opens = 0;

	/* later attempts have no place, lest a rank have as many as there are numbers */
	if (b->epoch >= INAGG_CANARY_ATTEMPTS || !inagg_aggregator_takes(b))
		return INAGG_EVADES;
	if (!inagg_descriptor_holds(d, job, b)) {
		if (inagg_descriptor_is_past(d, job, b))
			return -INAGG_R_STALE;
		if (!inagg_descriptor_is_free(d, job, b, a->now_ns))
			return INAGG_COLLIDES;
		inagg_descriptor_take(d, job, b, a->now_ns);
		opens = INAGG_OPENS;
	}
	if (a->ranks & d->children)
		return -INAGG_R_DUPLICATE;
	if (!inagg_slot_agrees(&d->slot, b))
		return INAGG_EVADES;	/* the leader's to refuse */
	return inagg_descriptor_add(d, a, b) | opens;
}

/** The timer of @b's descriptor: 1 if the sum goes on now. */
INAGG_INLINE int inagg_descriptor_expire(struct inagg_descriptor *d, const struct inagg_job *job, const struct inagg_block *b)
{
	if (!inagg_descriptor_holds(d, job, b) || (d->slot.flags & INAGG_SLOT_SENT))
		return 0;
	d->slot.flags |= INAGG_SLOT_SENT;
	d->expired = 1;
	return 1;
}

/** The RESULT of @b passes, and nothing more is to be remembered: 1 if the descriptor was this block's. */
INAGG_INLINE int inagg_descriptor_free(struct inagg_descriptor *d, const struct inagg_job *job, const struct inagg_block *b)
{
	if (!inagg_descriptor_holds(d, job, b))
		return 0;
	d->slot.flags &= ~INAGG_SLOT_LIVE;
	return 1;
}

/*
 * How long a sum waits for more (the paper's §5.2.5 leaves to choose it as future work): as long as the last packet of a block
 * usually takes after the first, with room for how that varies.  A sum that is complete leaves at once, so to wait too long
 * costs time only where something is lost or takes another way; to wait too short costs a packet for each straggler.  So there
 * is room for nearly all of them while they do come, for few once sums are seen to wait for what never comes by, and half of the
 * time where that is so often.  What the first result says is one block's: until a dozen have come there is room for few.
 *
 * The first value and the floor are for fabrics of 100 Gbit/s.  Slower ones learn theirs by the first results, and until then send
 * packets that might have been sums.
 */
#define INAGG_PATIENCE_START_NS	20000U
#define INAGG_PATIENCE_FLOOR_NS	2000U
#define INAGG_PATIENCE_MOST_NS	20000000U
#define INAGG_VAIN_ONE		(1U << 16)
#define INAGG_VAIN_FIRST	(INAGG_VAIN_ONE / 8)
#define INAGG_VAIN_SOMETIMES	(INAGG_VAIN_ONE / 16)
#define INAGG_VAIN_OFTEN	(INAGG_VAIN_ONE / 4)

struct inagg_patience {
	__u32	mean_ns;
	__u32	deviation_ns;
	__u32	vain;		/* the share of sums that waited in vain, of INAGG_VAIN_ONE */
};

/** How long to wait. */
INAGG_INLINE __u32 inagg_patience_ns(const struct inagg_patience *p)
{
	__u32 wait = p->mean_ns + (p->vain > INAGG_VAIN_SOMETIMES ? 1 : 4) * p->deviation_ns;

	if (!p->mean_ns)	/* nothing, or nobody has ever come second */
		return p->vain > INAGG_VAIN_SOMETIMES ? INAGG_PATIENCE_FLOOR_NS : INAGG_PATIENCE_START_NS;
	if (p->vain > INAGG_VAIN_OFTEN)
		wait = p->mean_ns / 2;
	if (wait < INAGG_PATIENCE_FLOOR_NS)
		return INAGG_PATIENCE_FLOOR_NS;
	return wait < INAGG_PATIENCE_MOST_NS ? wait : INAGG_PATIENCE_MOST_NS;
}

/**
 * The result of @d's block is here: as RFC 6298 §2, with more weight on what was before.  One packet alone has no spread.
 * Control blocks wait for ranks that compute, which says nothing of the network.
 */
INAGG_INLINE void inagg_patience_learn(struct inagg_patience *p, const struct inagg_descriptor *d)
{
	__u32 spread = d->spread_ns < INAGG_PATIENCE_MOST_NS ? d->spread_ns : INAGG_PATIENCE_MOST_NS, mean = p->mean_ns, off;
	__u32 vain = p->vain;	/* others may write */

	if (d->stream)
		return;
	p->vain = vain - vain / 16 + (d->expired && !d->late ? INAGG_VAIN_ONE / 16 : 0);
	if (!spread)
		return;
	if (!mean) {
		p->mean_ns = spread;	/* 0: nothing learnt */
		p->deviation_ns = spread / 8;
		p->vain = INAGG_VAIN_FIRST;
		return;
	}
	off = spread > mean ? spread - mean : mean - spread;
	p->deviation_ns = p->deviation_ns - p->deviation_ns / 16 + off / 16;
	p->mean_ns = mean - mean / 16 + spread / 16 + 1;
}

#endif /* INAGG_CORE_DESCRIPTOR_H */
