/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The worker of a stream of blocks (SwitchML §3.4, §3.5, Algorithm 4): window, per-slot timers,
 * loss detection.
 *
 * A stream is a sequence of blocks 0, 1, 2, ... (mod 2^32): the job's tensors one behind the other in
 * call order, the same on all ranks.  Block b belongs to slot b % slots, in pool version
 * (b / slots) & 1.  A slot has at most one block in flight; its next is b + slots.  Slots are
 * independent: threads, cores or BPF programs may own disjoint ones.
 *
 * The functions decide, the plane sends and stores.  Times are nanoseconds of any monotonic clock.
 *
 * Timers: RFC 6298 with a floor; Karn's rule; exponential back-off, of a slot's own block and, as in
 * §5.5, of all that is sent until the next sample.  A WAIT that names this rank means
 * that the block is not lost but late: from then on the rank asks (REQUEST, header only) instead of
 * sending its elements again, so a sleeping straggler costs the others next to nothing.  Loss is also
 * seen before the timer, as in RACK (RFC 8985): a block sent well before one whose result is here.
 * Where a leader adds (canary) the rank only asks, and each leader has a back-off of its own, too.
 */
#ifndef INAGG_CORE_WORKER_H
#define INAGG_CORE_WORKER_H

#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_RTO_FLOOR_NS	1000000ULL	/* 1 ms: above a scheduler's wake-up */
#define INAGG_RTO_START_NS	100000000ULL	/* before the first sample: a window over 100 Mbit/s takes 31 ms */
#define INAGG_RTO_CEILING_NS	500000000ULL
#define INAGG_MOST_DOUBLINGS	9		/* takes any RTO to the ceiling */
#define INAGG_ASK_ALL_AFTER	2		/* fruitless requests before everyone is asked */
#define INAGG_ASKS_AGAIN	128		/* canary: the number of the question after 255, which is forgotten by then */
#define INAGG_LINEAR_ASKS	3		/* canary: fruitless questions before the next come ever later */
#define INAGG_ASKS_A_ROUND	32		/* a round trip to a result takes as long as so many to a WAIT, at most */
#define INAGG_ROUNDS_AN_RTO	3		/* SRTT and 4 RTTVAR are three round trips after one sample */
#define INAGG_FEW_BLOCKS	4		/* are rather sent twice than recovered late; a window rather late */
#define INAGG_RESEND_EVERY	4		/* time-outs: a switch may lack room to answer a bare header, and not say so */

#ifdef INAGG_NEVER_REFUSED	/* a plane without trio, whose verifier these tests would wear out */
#define INAGG_HAS_CAPS		0
#else
#define INAGG_HAS_CAPS		1
#endif

enum inagg_wslot_state {
	INAGG_WSLOT_IDLE	= 0,	/* `block` is next, not sent yet */
	INAGG_WSLOT_SENT	= 1,	/* `block` is in flight */
};

struct inagg_wslot {
	__u64	sent_ns;	/* last transmission of `block`'s elements */
	__u64	due_ns;		/* when to act next, if SENT; 0: at once, though no time-out */
	__u32	block;
	__u8	state;		/* enum inagg_wslot_state */
	__u8	tries;		/* time-outs of this block */
	__u8	lag;		/* canary: doublings of the RTO that the slot's leader, of all its blocks, needs */
	__u8	acked : 1;	/* the switch has our elements */
	__u8	resent : 1;	/* elements were sent more than once: no RTT sample */
	__u8	overtaken : 1;	/* due_ns is loss detection's, no time-out */
	__u8	forgotten : 1;	/* the switch had our elements and has lost them */
	__u8	refused : 1;	/* trio: the switch has no room; only time helps */
	__u8	raw : 1;	/* atp: the server has asked for the elements as floats */
	__u8	bypass : 1;	/* canary: its elements are not to be summed on the way */
	__u8	hurried : 1;	/* asked for before its time-out, as others waited */
	__u16	epoch;		/* the block is being recovered: results of earlier epochs do not count; 0: no.  canary: attempt */
	__u8	waits;		/* canary: answers that our elements are in and others' are not */
	__u8	asks;		/* canary: questions to its leader */
	__u32	asked;		/* when elements or a question went out last, in units of 2^10 ns */
};

INAGG_ASSERT(sizeof(struct inagg_wslot) == 32);

struct inagg_worker {
	__u32	slots;		/* window: slots of the stream, a power of two */
	__u32	limit;		/* blocks before this one may be sent */
	__u64	srtt_ns;	/* 0: no sample yet */
	__u64	rttvar_ns;
	__u64	rto_ns;		/* before back-off */
	__u64	slowest_ns;	/* the largest SRTT since the window last started from rest */
	__u64	floor_ns;
	__u64	backed_off_ns;	/* when `doublings` last grew */
	/* Evidence for RACK: the latest transmission that was answered, of blocks sent once and again. */
	__u64	delivered_ns;
	__u64	answered_ns;
	__u64	progress_ns;	/* when a result came last */
	__u32	delivered_block;	/* the highest block whose result came */
	__u32	doublings;	/* of the RTO since the last sample */
	__u32	accepted;	/* the highest block whose result is here, whoever sent it */
	__u16	cap;		/* trio: the switch has no room for more blocks beyond it; 0: for a window */
	__u16	uncapping;	/* results since `cap` was set or raised */
	__u32	awaited;	/* the last block that others were said to wait for and this rank had not come to */
	__u32	awaited_at;	/* when that was said, in units of 2^10 ns; 0: never */
};

enum inagg_worker_action {
	INAGG_W_NOTHING = 0,
	INAGG_W_SEND,		/* CONTRIBUTION of slot->block */
	INAGG_W_RESEND,		/* the same with INAGG_F_RESEND */
	INAGG_W_RESEND_ASK_ALL,	/* both RESEND and REQUEST_ALL: the block may be complete elsewhere */
	INAGG_W_REQUEST,	/* REQUEST for slot->block */
	INAGG_W_REQUEST_ALL,	/* REQUEST with INAGG_F_MULTICAST */
	INAGG_W_ACCEPT,		/* the payload is the result of that block: store it */
	INAGG_W_RESTORE,	/* RESTORE of a block, slot->block - slots or with trio any, whose result this rank holds */
	INAGG_W_KEEP,		/* trio: the payload is the result of a block that this rank has not come to: keep it */
};

INAGG_INLINE void inagg_worker_init(struct inagg_worker *w, __u32 slots, __u64 floor_ns)
{
	w->slots = slots;
	w->limit = 0;
	w->srtt_ns = 0;
	w->rttvar_ns = 0;
	w->floor_ns = floor_ns ? floor_ns : INAGG_RTO_FLOOR_NS;
	w->rto_ns = INAGG_RTO_START_NS;
	w->slowest_ns = 0;
	w->backed_off_ns = 0;
	w->delivered_ns = 0;
	w->answered_ns = 0;
	w->progress_ns = 0;
	w->delivered_block = 0;
	w->doublings = 0;
	w->accepted = ~0U;
	w->cap = 0;
	w->uncapping = 0;
	w->awaited = 0;
	w->awaited_at = 0;
}

/* Forgets what concerns one block only: not its number, nor the lag of who leads all blocks of the slot. */
INAGG_INLINE void inagg_wslot_clear(struct inagg_wslot *s)
{
	s->sent_ns = 0;
	s->due_ns = 0;
	s->state = INAGG_WSLOT_IDLE;
	s->acked = 0;
	s->tries = 0;
	s->resent = 0;
	s->overtaken = 0;
	s->forgotten = 0;
	s->refused = 0;
	s->raw = 0;
	s->bypass = 0;
	s->hurried = 0;
	s->epoch = 0;
	s->waits = 0;
	s->asks = 0;
	s->asked = 0;
}

INAGG_INLINE void inagg_wslot_init(struct inagg_wslot *s, __u32 index)
{
	s->block = index;
	s->lag = 0;
	inagg_wslot_clear(s);
}

/* A time in 32 bits, which last for an hour. */
INAGG_INLINE __u32 inagg_coarse(__u64 ns)
{
	return (__u32)(ns >> 10);
}

/* How long ago @s sent elements or a question, rounded up. */
INAGG_INLINE __u64 inagg_wslot_since(const struct inagg_wslot *s, __u64 now)
{
	return (__u64)(inagg_coarse(now) - s->asked + 1) << 10;
}

/** Pool version of @block: which copy of its slot aggregates it. */
INAGG_INLINE __u32 inagg_pool_version(const struct inagg_worker *w, __u32 block)
{
	return (block & w->slots) != 0;	/* slots is a power of two */
}

INAGG_INLINE __u32 inagg_slot_index(const struct inagg_worker *w, __u32 block)
{
	return block & (w->slots - 1);
}

/** This rank has received @block's result in slot @s and may be asked for it. */
INAGG_INLINE int inagg_wslot_holds(const struct inagg_worker *w, const struct inagg_wslot *s, __u32 block)
{
	return block == s->block - w->slots;
}

INAGG_INLINE __u64 inagg_worker_doubled(const struct inagg_worker *w, __u32 doublings)
{
	__u64 wait = w->rto_ns << (doublings < INAGG_MOST_DOUBLINGS ? doublings : INAGG_MOST_DOUBLINGS);

	return wait < INAGG_RTO_CEILING_NS ? wait : INAGG_RTO_CEILING_NS;
}

/** The RTO of @s, whose block has timed out @tries times. */
INAGG_INLINE __u64 inagg_wslot_backoff(const struct inagg_worker *w, const struct inagg_wslot *s, __u32 tries)
{
	return inagg_worker_doubled(w, s->lag + (tries > w->doublings ? tries : w->doublings));
}

/* The same before back-off. */
INAGG_INLINE __u64 inagg_wslot_rto(const struct inagg_worker *w, const struct inagg_wslot *s)
{
	return inagg_worker_doubled(w, s->lag);
}

/** The block behind the last one that the switch has room for. */
INAGG_INLINE __u32 inagg_worker_room(const struct inagg_worker *w)
{
	return w->accepted + (w->cap ? w->cap : w->slots) + 1;
}

/** Has no result come for long?  @now may be a little before the last one, of a plane with several CPUs. */
INAGG_INLINE int inagg_worker_stuck(const struct inagg_worker *w, __u64 now)
{
	return now >= w->progress_ns + INAGG_RTO_CEILING_NS;
}

/*
 * Does the switch have room for @block?  Without results for long it is tried, whatever the cap: what fills the
 * switch may be waiting for this very block.
 */
INAGG_INLINE int inagg_worker_has_room(const struct inagg_worker *w, __u32 block, __u64 now)
{
	return !INAGG_HAS_CAPS || !w->cap || inagg_before(block, inagg_worker_room(w)) || inagg_worker_stuck(w, now);
}

/** May the slot's next block go?  SEND starts its timer. */
INAGG_INLINE int inagg_worker_open(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	if (s->state != INAGG_WSLOT_IDLE || !inagg_before(s->block, w->limit) ||
	    !inagg_worker_has_room(w, s->block, now))
		return INAGG_W_NOTHING;
	inagg_wslot_clear(s);
	s->state = INAGG_WSLOT_SENT;
	s->sent_ns = now;
	s->asked = inagg_coarse(now);
	s->due_ns = now + inagg_wslot_backoff(w, s, 0);
	return INAGG_W_SEND;
}

/**
 * The switch refused @block: at most @cap blocks are to go beyond those that have results.  The block stays in
 * flight and its timer repeats it.
 */
INAGG_INLINE void inagg_worker_refused(struct inagg_worker *w, struct inagg_wslot *s, __u32 block, __u16 cap)
{
	if (s->state != INAGG_WSLOT_SENT || s->block != block)
		return;
	s->acked = 0;
	s->refused = 1;
	if (cap >= w->slots || (w->cap && cap >= w->cap))
		return;
	w->cap = cap;
	w->uncapping = 0;
}

/* @block has its result.  A cap rises by one for each window that it lets through. */
INAGG_INLINE void inagg_worker_advance(struct inagg_worker *w, __u32 block)
{
	if (!INAGG_HAS_CAPS)
		return;
	if (inagg_before(w->accepted, block))
		w->accepted = block;
	if (!w->cap || ++w->uncapping < w->cap)
		return;
	w->uncapping = 0;
	if (++w->cap >= w->slots)
		w->cap = 0;
}

/** The result of the slot's next block is here before it was sent (a late rank's): goes on to the one after. */
INAGG_INLINE void inagg_worker_skip(struct inagg_worker *w, struct inagg_wslot *s)
{
	inagg_worker_advance(w, s->block);
	s->block += w->slots;
}

/* More of RTTVAR than SRTT does not count: a rank that is late once would teach all of them to be as late after a loss. */
INAGG_INLINE void inagg_worker_set_rto(struct inagg_worker *w)
{
	__u64 srtt = w->srtt_ns, var = w->rttvar_ns, rto = srtt + 4 * (var < srtt ? var : srtt);

	if (rto < w->floor_ns)
		rto = w->floor_ns;
	if (rto > INAGG_RTO_CEILING_NS)
		rto = INAGG_RTO_CEILING_NS;
	w->rto_ns = rto;
}

/*
 * RFC 6298 §2 in integers.  There is a sample for each packet, so the variance rises with each but falls
 * over two windows (cf. RFC 7323, appendix G): it must outlive what comes once a window.
 */
INAGG_INLINE void inagg_worker_sample(struct inagg_worker *w, __u64 rtt)
{
	__u64 srtt = w->srtt_ns, var = w->rttvar_ns, off = srtt > rtt ? srtt - rtt : rtt - srtt;

	if (!srtt) {
		srtt = rtt;
		var = rtt / 2;
	} else {
		if (off > var)
			var += (off - var) / 4;
		else
			var -= (var - off) / (2 * (__u64)w->slots);
		srtt = srtt - srtt / 8 + rtt / 8;
	}
	w->srtt_ns = srtt;
	w->rttvar_ns = var;
	if (w->slowest_ns < srtt)
		w->slowest_ns = srtt;
	inagg_worker_set_rto(w);
	w->doublings = 0;
}

/*
 * There is no sample, but a round trip takes no longer than @rtt, and a time-out need not be longer.  Where losses spare hardly
 * a block, samples are rare, and what they said of a window that filled queues would be believed for long.
 */
INAGG_INLINE void inagg_worker_bound(struct inagg_worker *w, __u64 rtt)
{
	__u32 doublings = 0;

	while (doublings < INAGG_MOST_DOUBLINGS && w->rto_ns << doublings < rtt)
		doublings++;
	if (doublings < w->doublings)
		w->doublings = doublings;
	if (w->srtt_ns ? rtt >= w->srtt_ns : 4 * rtt >= w->rto_ns)
		return;
	w->srtt_ns = rtt;
	w->rttvar_ns = rtt / 2;
	inagg_worker_set_rto(w);
}

/**
 * Nothing is in flight, and a window of blocks is about to be.  They will wait for one another, so their round trip is that
 * of the last window that started so, and not that of its last blocks, which had the way to themselves.
 */
INAGG_INLINE void inagg_worker_restart(struct inagg_worker *w)
{
	if (w->srtt_ns < w->slowest_ns) {
		w->srtt_ns = w->slowest_ns;
		inagg_worker_set_rto(w);
	}
	w->slowest_ns = 0;
}

/* Slot @s has an answer: what RACK may conclude from it about others. */
INAGG_INLINE void inagg_worker_heard(struct inagg_worker *w, const struct inagg_wslot *s)
{
	if (s->resent) {
		if (s->sent_ns > w->answered_ns)
			w->answered_ns = s->sent_ns;
		return;
	}
	if (!w->delivered_ns || inagg_before(w->delivered_block, s->block))
		w->delivered_block = s->block;
	if (s->sent_ns > w->delivered_ns)
		w->delivered_ns = s->sent_ns;
}

/*
 * A question has no answer.  Once is a loss, but if the one before had none either, nor results came, it is its leader: all may be
 * asking it, and have results sent again that wait for one another.  Asked as soon as ever, by the RTO that others' answers allow, it
 * would not catch up.
 */
INAGG_INLINE void inagg_wslot_unanswered(const struct inagg_worker *w, struct inagg_wslot *s)
{
	if (s->tries > 1 && inagg_wslot_rto(w, s) < INAGG_RTO_CEILING_NS)
		s->lag++;
}

/* Would half of the RTO of @s have been enough for @wait?  Then it is that from now on. */
INAGG_INLINE int inagg_wslot_kept_up(const struct inagg_worker *w, struct inagg_wslot *s, __u64 wait)
{
	if (!s->lag || wait >= inagg_worker_doubled(w, s->lag - 1))
		return 0;
	s->lag--;
	return 1;
}

/*
 * What the result of @s says of the path.  If it is @repaired its time says how long a loss lasted, at any rank.  (Taken as samples,
 * losses stretch the RTO, and that the next losses.)  But if that is short, a round trip is no longer.
 */
INAGG_INLINE void inagg_worker_learn(struct inagg_worker *w, const struct inagg_wslot *s, int repaired, __u64 now)
{
	__u64 rtt = now - s->sent_ns;
	/* a block that is recovered is sent anew by all, at about one time */
	int clean = !s->tries && !s->waits && (!repaired || (INAGG_HAS_CAPS && s->epoch));

	if (s->resent || now < s->sent_ns)
		return;
	if (clean || rtt < w->srtt_ns)
		inagg_worker_sample(w, rtt);
	else
		inagg_worker_bound(w, rtt);
}

/**
 * This rank has completed @block itself, as its leader: that tells nothing of what others send it.  ACCEPT as inagg_worker_result().
 */
INAGG_INLINE int inagg_worker_completed(struct inagg_worker *w, struct inagg_wslot *s, __u32 block)
{
	if (s->state != INAGG_WSLOT_SENT || s->block != block)
		return INAGG_W_NOTHING;
	inagg_worker_advance(w, block);
	s->block = block + w->slots;
	s->state = INAGG_WSLOT_IDLE;
	return INAGG_W_ACCEPT;
}

/**
 * A result for @block arrives in slot @s; @repaired: with INAGG_F_RESEND.  ACCEPT once per block: the plane stores the payload,
 * keeps it until the slot's next result, and calls inagg_worker_open().
 */
INAGG_INLINE int inagg_worker_result(struct inagg_worker *w, struct inagg_wslot *s, __u32 block, int repaired, __u64 now)
{
	if (s->state == INAGG_WSLOT_SENT && s->block == block) {
		inagg_worker_heard(w, s);
		inagg_worker_learn(w, s, repaired, now);
		if (!s->asks)
			inagg_wslot_kept_up(w, s, now - s->sent_ns);
		w->progress_ns = now;
	}
	return inagg_worker_completed(w, s, block);
}

/** May a result of @epoch be believed?  Not if this rank has since told the switch that it holds none. */
INAGG_INLINE int inagg_wslot_believes(const struct inagg_wslot *s, __u32 block, __u16 epoch)
{
	return s->state != INAGG_WSLOT_SENT || s->block != block || !inagg_epoch_before(epoch, s->epoch);
}

/* A block that the switch has forgotten, or that was sent again in vain, may be complete elsewhere. */
INAGG_INLINE int inagg_wslot_resend(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	int ask_all = s->forgotten || (!s->overtaken && !(INAGG_HAS_CAPS && s->refused) && s->tries > INAGG_ASK_ALL_AFTER);

	s->resent = 1;
	s->overtaken = 0;
	s->forgotten = 0;
	s->refused = 0;
	s->acked = 0;
	s->sent_ns = now;
	s->asked = inagg_coarse(now);
	s->due_ns = now + inagg_wslot_backoff(w, s, s->tries);
	return ask_all ? INAGG_W_RESEND_ASK_ALL : INAGG_W_RESEND;
}

/* Goes round where it would end, so that each INAGG_RESEND_EVERY-th stays one, and what many tries mean stays meant. */
INAGG_INLINE __u32 inagg_wslot_count_try(struct inagg_wslot *s)
{
	s->hurried = 0;
	s->tries = s->tries < 255 ? s->tries + 1 : 256 - INAGG_RESEND_EVERY;
	return s->tries;
}

/*
 * What @s sent last, its first repeat or a question about it, has its answer.  Within an RTO: the path is as short as before.
 * That is no sample: results take longer, over more links or with sums that wait for more.  But not so much longer.
 */
INAGG_INLINE void inagg_worker_answered(struct inagg_worker *w, const struct inagg_wslot *s, __u64 now)
{
	__u64 rtt = inagg_wslot_since(s, now), round = INAGG_ASKS_A_ROUND * rtt;

	if (rtt <= w->rto_ns)
		w->doublings = 0;
	inagg_worker_bound(w, round > w->floor_ns ? round : w->floor_ns);
}

/*
 * A WAIT puts our next request off, longer for higher ranks: then the lowest rank that waits asks for
 * all of them, and n ranks never cause n * n WAITs.  What another rank asked when our own turn was near
 * counts as our try, so that all of them back off together.
 */
INAGG_INLINE void inagg_wslot_put_off(const struct inagg_worker *w, struct inagg_wslot *s, __u32 rank, __u64 now)
{
	__u64 wait = inagg_wslot_backoff(w, s, s->tries);

	/* RACK made us send again, others do so too: the result is due, not late */
	if (!s->acked && !s->tries && w->srtt_ns && 2 * w->srtt_ns < wait)
		wait = 2 * w->srtt_ns > w->floor_ns ? 2 * w->srtt_ns : w->floor_ns;
	if (s->acked && s->due_ns < now + wait / 2)
		wait = inagg_wslot_backoff(w, s, inagg_wslot_count_try(s));
	s->acked = 1;
	s->overtaken = 0;
	s->due_ns = now + wait + wait / (2 * INAGG_MAX_RANKS) * (rank % INAGG_MAX_RANKS);
}

/* What we sent so lately may have crossed what we hear. */
INAGG_INLINE __u64 inagg_worker_crossing(const struct inagg_worker *w)
{
	return w->srtt_ns > w->floor_ns / 4 ? w->srtt_ns : w->floor_ns / 4;
}

/*
 * The switch has the elements of @s since the first repeat at the latest.  Ranks are late for each other, by more than a round trip,
 * and a window should wait for the last of them rather than be sent twice; a few blocks should rather recover soon.
 */
INAGG_INLINE void inagg_worker_repeat_answered(struct inagg_worker *w, const struct inagg_wslot *s, __u64 now)
{
	if (w->limit - s->block <= INAGG_FEW_BLOCKS)
		inagg_worker_answered(w, s, now);
	else if (now - s->sent_ns <= w->rto_ns)
		w->doublings = 0;
}

/* Others wait for @block, which this rank has not come to: perhaps for want of a result that they have (inagg_wslot_awaited()). */
INAGG_INLINE void inagg_worker_awaited(struct inagg_worker *w, const struct inagg_wslot *s, __u32 block, __u64 now)
{
	if (s->state != INAGG_WSLOT_IDLE || s->block != block)
		return;
	w->awaited = block;
	w->awaited_at = inagg_coarse(now);
}

/**
 * A WAIT for @block: @contributors are in.  RESEND when ours is not, and ASK_ALL if it was; RESTORE when
 * the block is behind us and others wait for it.
 */
INAGG_INLINE int inagg_worker_wait(struct inagg_worker *w, struct inagg_wslot *s, __u32 block,
				   __u64 contributors, __u32 rank, __u64 now)
{
	int in = (contributors & inagg_rank_bit(rank)) != 0;

	if (s->state == INAGG_WSLOT_SENT && s->block == block) {
		if (s->resent)
			inagg_worker_heard(w, s);
		if (in) {
			if (s->tries == 1)
				inagg_worker_repeat_answered(w, s, now);
			inagg_wslot_put_off(w, s, rank, now);
			return INAGG_W_NOTHING;
		}
		if (now - s->sent_ns < inagg_worker_crossing(w))
			return INAGG_W_NOTHING;	/* our elements crossed this WAIT */
		if (INAGG_HAS_CAPS && s->refused && !contributors)
			return INAGG_W_NOTHING;	/* as we know */
		if (s->acked) {
			s->forgotten = 1;
			s->tries = 0;	/* of which none was for want of an answer */
		}
		return inagg_wslot_resend(w, s, now);
	}
	if (contributors)
		inagg_worker_awaited(w, s, block, now);
	/* also if an old copy of our contribution is in: the rank that is not may be dead */
	if (contributors && inagg_wslot_holds(w, s, block))
		return INAGG_W_RESTORE;
	return INAGG_W_NOTHING;
}

/*
 * The switch wants the block again from all ranks, and no answer to this can be taken for one to what was sent before:
 * it is as if the block were sent for the first time.
 */
INAGG_INLINE int inagg_wslot_send_anew(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	int action;

	s->overtaken = 1;	/* nobody needs to be asked: all have heard */
	action = inagg_wslot_resend(w, s, now);
	s->resent = 0;
	s->tries = 0;
	return action;
}

/**
 * A WAIT of a server that, if @raw, asks for the elements as floats (raw.h): as inagg_worker_wait(), and RESEND of what
 * slot->raw says if this is news.
 */
INAGG_INLINE int inagg_worker_wait_raw(struct inagg_worker *w, struct inagg_wslot *s, __u32 block, __u64 contributors,
				       __u32 rank, int raw, __u64 now)
{
	if (s->state != INAGG_WSLOT_SENT || s->block != block || s->raw == raw)
		return inagg_worker_wait(w, s, block, contributors, rank, now);
	if (!raw)
		return INAGG_W_NOTHING;	/* from before it asked */
	s->raw = 1;
	return inagg_wslot_send_anew(w, s, now);
}

/**
 * A WAIT for @block says that it is recovered in @epoch.  RESEND, which carries slot->epoch, if this rank
 * had not heard so and waits for the block; who holds its result answers RESTORE instead.
 */
INAGG_INLINE int inagg_worker_recovers(struct inagg_worker *w, struct inagg_wslot *s, __u32 block, __u16 epoch, __u64 now)
{
	if (s->state != INAGG_WSLOT_SENT || s->block != block || !inagg_epoch_before(s->epoch, epoch))
		return INAGG_W_NOTHING;
	s->epoch = epoch;
	return inagg_wslot_send_anew(w, s, now);
}

/* When to ask a leader again who has been asked @n times in vain: a loss costs a few questions, a straggler many. */
INAGG_INLINE __u64 inagg_wslot_patience(const struct inagg_worker *w, const struct inagg_wslot *s, __u32 n)
{
	return inagg_wslot_backoff(w, s, n > INAGG_LINEAR_ASKS ? n - INAGG_LINEAR_ASKS : 0);
}

/** The number of the latest question about the block of @s, which an answer to it carries; 0: there was none. */
INAGG_INLINE __u16 inagg_wslot_question(const struct inagg_wslot *s)
{
	return s->asks;
}

/** The leader of @block answers that @question of this rank (0: none).  If nothing was sent since it tells a round trip. */
INAGG_INLINE void inagg_worker_told(struct inagg_worker *w, struct inagg_wslot *s, __u32 block, __u16 question, __u64 now)
{
	if (s->state != INAGG_WSLOT_SENT || s->block != block || !question || question != inagg_wslot_question(s) ||
	    s->asked == inagg_coarse(s->sent_ns))
		return;
	inagg_worker_answered(w, s, now);
	while (inagg_wslot_kept_up(w, s, INAGG_ROUNDS_AN_RTO * inagg_wslot_since(s, now)))
		;
}

/* The leader has our elements and not yet those of all others.  It tells nobody who has not asked. */
INAGG_INLINE void inagg_wslot_is_in(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	if (s->waits < 255)
		s->waits++;
	s->acked = 1;
	s->tries = 0;
	s->overtaken = 0;
	s->due_ns = now + inagg_wslot_patience(w, s, s->waits);
}

/**
 * The leader of @block says that @contributors are in and what others sent in attempts before @attempt is lost
 * (Canary §3.3).  RESEND, in this attempt and, if @bypass, past the sums on the way, when we are not.  Who has not sent
 * the block yet need not know: its first packet is as good.
 */
INAGG_INLINE int inagg_worker_failed(struct inagg_worker *w, struct inagg_wslot *s, __u32 block, __u64 contributors,
				     __u32 rank, __u16 attempt, int bypass, __u64 now)
{
	if (s->state != INAGG_WSLOT_SENT || s->block != block) {
		inagg_worker_awaited(w, s, block, now);
		return INAGG_W_NOTHING;
	}
	if (contributors & inagg_rank_bit(rank)) {
		inagg_wslot_is_in(w, s, now);
		return INAGG_W_NOTHING;
	}
	if (s->epoch != attempt && !inagg_epoch_before(s->epoch, attempt))
		return INAGG_W_NOTHING;	/* from before what we have heard */
	if (s->epoch == attempt && now - s->sent_ns < inagg_worker_crossing(w))
		return INAGG_W_NOTHING;
	s->epoch = attempt;
	s->bypass = bypass != 0;
	s->tries = 0;	/* the leader answers, so what was lost says nothing about the next */
	inagg_wslot_resend(w, s, now);
	/* but if nothing was lost, only late, each attempt adds to what it is late for: the next one waits for longer */
	s->due_ns = now + inagg_wslot_backoff(w, s, attempt);
	return INAGG_W_RESEND;
}

/*
 * A time-out.  Unless we know that our elements arrived, the RTO may be too short for the path: it
 * doubles for all slots, which Karn's rule keeps from learning otherwise (RFC 6298 §5.5).  What was sent
 * before the last doubling tells nothing new: a window that times out together doubles once.
 */
INAGG_INLINE void inagg_wslot_expired(struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	inagg_wslot_count_try(s);
	if (s->acked || s->sent_ns < w->backed_off_ns)
		return;
	w->backed_off_ns = now;
	if (w->doublings < INAGG_MOST_DOUBLINGS)
		w->doublings++;
}

/*
 * As long as results come, they show what is lost; time-outs are for when none does (RFC 6298, 5.3).  Or the first window,
 * whose last result takes so much longer than its first, would be sent twice.  But what was refused is not lost, and must
 * come again; and what is acknowledged only asks, for a result that no other shows to be lost.
 */
INAGG_INLINE int inagg_wslot_postpone(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	__u64 due = w->progress_ns + inagg_wslot_rto(w, s);

	if (!s->due_ns || s->overtaken || s->acked || (INAGG_HAS_CAPS && s->refused) || due <= now)
		return 0;
	s->due_ns = due;
	return 1;
}

/**
 * The slot's timer: call at or after due_ns, which may have been put off.  What RACK found goes out whole, also when the
 * elements are known to be in: a switch may have room for the result only where elements were.
 */
INAGG_INLINE int inagg_worker_timeout(struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	int hurries = !s->due_ns;

	if (s->state != INAGG_WSLOT_SENT || now < s->due_ns || inagg_wslot_postpone(w, s, now))
		return INAGG_W_NOTHING;
	if (s->due_ns && !s->overtaken)
		inagg_wslot_expired(w, s, now);
	if (!s->acked || s->overtaken || (!hurries && s->tries % INAGG_RESEND_EVERY == 0))
		return inagg_wslot_resend(w, s, now);
	s->asked = inagg_coarse(now);
	s->due_ns = now + inagg_wslot_backoff(w, s, s->tries);
	return !hurries && s->tries > INAGG_ASK_ALL_AFTER ? INAGG_W_REQUEST_ALL : INAGG_W_REQUEST;
}

/**
 * The same where a leader adds: our elements may be in sums of others, so they are sent again only when the leader says
 * that they are lost (inagg_worker_failed()).  A question too early has all send again whose elements are on their way, and that
 * makes others late; so the first waits until no results come.
 */
INAGG_INLINE int inagg_worker_ask(struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	if (s->state != INAGG_WSLOT_SENT || now < s->due_ns || (!s->asks && inagg_wslot_postpone(w, s, now)))
		return INAGG_W_NOTHING;
	if (s->due_ns)
		inagg_wslot_unanswered(w, s);
	/* results come: nobody sleeps, and ours may be what was lost */
	if (s->asks && now - w->progress_ns < (__u64)(inagg_coarse(now) - s->asked) << 10)
		s->tries = s->waits = 0;
	if (s->overtaken)
		inagg_wslot_count_try(s);
	else if (s->due_ns)
		inagg_wslot_expired(w, s, now);
	s->overtaken = 0;
	s->asked = inagg_coarse(now);
	s->asks = s->asks < 255 ? s->asks + 1 : INAGG_ASKS_AGAIN;
	s->due_ns = now + inagg_wslot_patience(w, s, s->tries);
	return INAGG_W_REQUEST;
}

/*
 * When the answer to what @s sent is overdue by @slack, judged by answers to what was sent later;
 * 0 if there are none.  The switch answers what is sent again at once, but the rest only when its block is
 * complete, so the former proves nothing about the latter.  And a rank that falls behind delays all blocks
 * from some number on: only a later block that was also sent later proves something.
 */
INAGG_INLINE __u64 inagg_wslot_lost_ns(const struct inagg_worker *w, const struct inagg_wslot *s, __u64 now, __u64 slack)
{
	__u64 latest = w->delivered_ns;

	if (s->resent && w->answered_ns > latest)
		latest = w->answered_ns;
	if (s->sent_ns >= latest || (!s->resent && !inagg_before(s->block, w->delivered_block)))
		return 0;
	return now - (latest - s->sent_ns) + slack;
}

/*
 * When to ask for the result of a block that our elements are in: soon, as long as later blocks complete.
 * Then nobody is asleep, and the result may be what was lost; a back-off that a straggler caused before would
 * keep this rank waiting, with all that then wait for it.
 */
INAGG_INLINE __u64 inagg_wslot_late_ns(const struct inagg_worker *w, const struct inagg_wslot *s, __u64 now)
{
	__u64 due = w->progress_ns + 2 * w->srtt_ns;

	return inagg_before(s->block, w->delivered_block) && due >= now ? due : 0;
}

/**
 * Have others been heard to wait for a later block since this one was asked for?  Then they may have its result, and this rank keeps
 * all of them waiting, for as long as they have kept it: from a back-off of one follows that of the next.
 */
INAGG_INLINE int inagg_wslot_awaited(const struct inagg_worker *w, const struct inagg_wslot *s, __u64 now)
{
	__u32 asked = inagg_coarse(now) - s->asked, awaited = inagg_coarse(now) - w->awaited_at;

	return s->state == INAGG_WSLOT_SENT && !s->hurried && w->awaited_at && (s->acked || s->tries) &&
	       inagg_before(s->block, w->awaited) && awaited < asked &&
	       asked - awaited > inagg_coarse(inagg_worker_crossing(w));
}

/** Makes it due at once, if so; returns 1 then.  If others have not its result either: a question in vain, one for each time-out. */
INAGG_INLINE int inagg_wslot_hurry(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	if (!inagg_wslot_awaited(w, s, now))
		return 0;
	s->hurried = 1;
	s->overtaken = 0;
	s->due_ns = 0;
	return 1;
}

/* Is the answer of @s overdue by @slack? */
INAGG_INLINE int inagg_wslot_overtaken(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now, __u64 slack)
{
	__u64 due;

	if (s->state != INAGG_WSLOT_SENT || (INAGG_HAS_CAPS && s->refused) || !w->srtt_ns)
		return 0;
	due = s->acked ? inagg_wslot_late_ns(w, s, now) : inagg_wslot_lost_ns(w, s, now, slack);
	if (due && due < s->due_ns) {
		s->due_ns = due;
		s->overtaken = 1;
	}
	return s->overtaken && s->due_ns <= now;
}

/**
 * Loss detection as in RACK: what came for other slots may show that the packet or the result of @s is
 * lost.  Brings due_ns forward to when that is certain enough; returns 1 if it is now, and the plane runs
 * inagg_worker_timeout().  Call it for each slot, now and then, while answers come.
 */
INAGG_INLINE int inagg_worker_overtaken(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	return inagg_wslot_hurry(w, s, now) || inagg_wslot_overtaken(w, s, now, w->srtt_ns);
}

/**
 * The same where a leader adds, for the plane's inagg_worker_ask().  Ways and leaders differ, so a later block's result proves little:
 * enough for one question, and as late as a time-out would ask if it did not wait for results to end.
 */
INAGG_INLINE int inagg_worker_overtaken_at_leader(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	return inagg_wslot_hurry(w, s, now) || (!s->acked && !s->tries && inagg_wslot_overtaken(w, s, now, inagg_wslot_rto(w, s)));
}

/* The switch's incarnations, in any byte order; 0: none. */
struct inagg_boots {
	__u16	latest;
	__u16	previous;
	__u32	reserved;
	__u64	heard_ns;	/* when the latest was; 0: in CONFIG */
};

#define INAGG_BOOT_PAUSE_NS	10000000ULL

/**
 * Does @boot, in a packet, say that the switch has restarted?  A late packet of the previous one does not.  It makes the rank
 * send a whole window, so it is not believed again so soon: who can forge a packet must not gain that by each.
 */
INAGG_INLINE int inagg_boot_heard(struct inagg_boots *b, __u16 boot, __u64 now)
{
	if (boot == b->latest || boot == b->previous)
		return 0;
	if (b->heard_ns && now - b->heard_ns < INAGG_BOOT_PAUSE_NS)
		return 0;
	b->previous = b->latest;
	b->latest = boot;
	b->heard_ns = now;
	return 1;
}

/**
 * The switch restarted: what it had of this block is gone.  Makes the slot due at once, without a back-off
 * that a straggler caused.
 */
INAGG_INLINE void inagg_worker_rebooted(struct inagg_wslot *s)
{
	if (s->state != INAGG_WSLOT_SENT)
		return;
	s->acked = 0;
	s->tries = 0;
	s->waits = 0;
	s->overtaken = 0;
	s->forgotten = 1;
	s->due_ns = 0;
}

#endif /* INAGG_CORE_WORKER_H */
