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
#define INAGG_RESEND_EVERY	4		/* time-outs: a switch may lack room to answer a bare header */

enum inagg_wslot_state {
	INAGG_WSLOT_IDLE	= 0,	/* `block` is next, not sent yet */
	INAGG_WSLOT_SENT	= 1,	/* `block` is in flight */
};

struct inagg_wslot {
	__u64	sent_ns;	/* last transmission of `block`'s elements */
	__u64	due_ns;		/* when to act next, if SENT; 0: at once, though no time-out */
	__u32	block;
	__u8	state;		/* enum inagg_wslot_state */
	__u8	acked;		/* the switch has our elements */
	__u8	tries;		/* time-outs of this block */
	__u8	resent : 1;	/* elements were sent more than once: no RTT sample */
	__u8	overtaken : 1;	/* due_ns is RACK's, no time-out */
};

INAGG_ASSERT(sizeof(struct inagg_wslot) == 24);

struct inagg_worker {
	__u32	slots;		/* window: slots of the stream, a power of two */
	__u32	limit;		/* blocks before this one may be sent */
	__u64	srtt_ns;	/* 0: no sample yet */
	__u64	rttvar_ns;
	__u64	rto_ns;		/* before back-off */
	__u64	floor_ns;
	__u64	backed_off_ns;	/* when `doublings` last grew */
	__u64	doublings;	/* of the RTO since the last sample */
};

enum inagg_worker_action {
	INAGG_W_NOTHING = 0,
	INAGG_W_SEND,		/* CONTRIBUTION of slot->block */
	INAGG_W_RESEND,		/* the same with INAGG_F_RESEND */
	INAGG_W_REQUEST,	/* REQUEST for slot->block */
	INAGG_W_REQUEST_ALL,	/* REQUEST with INAGG_F_MULTICAST */
	INAGG_W_ACCEPT,		/* the payload is the result of that block: store it */
	INAGG_W_RESTORE,	/* RESTORE of slot->block - slots, whose result this rank holds */
};

INAGG_INLINE void inagg_worker_init(struct inagg_worker *w, __u32 slots, __u64 floor_ns)
{
	w->slots = slots;
	w->limit = 0;
	w->srtt_ns = 0;
	w->rttvar_ns = 0;
	w->floor_ns = floor_ns ? floor_ns : INAGG_RTO_FLOOR_NS;
	w->rto_ns = INAGG_RTO_START_NS;
	w->backed_off_ns = 0;
	w->doublings = 0;
}

INAGG_INLINE void inagg_wslot_init(struct inagg_wslot *s, __u32 index)
{
	s->sent_ns = 0;
	s->due_ns = 0;
	s->block = index;
	s->state = INAGG_WSLOT_IDLE;
	s->acked = 0;
	s->tries = 0;
	s->resent = 0;
	s->overtaken = 0;
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

/** The RTO of a block that has timed out @tries times. */
INAGG_INLINE __u64 inagg_worker_backoff(const struct inagg_worker *w, __u32 tries)
{
	__u64 doublings = tries > w->doublings ? tries : w->doublings, wait;

	if (doublings > INAGG_MOST_DOUBLINGS)
		doublings = INAGG_MOST_DOUBLINGS;
	wait = w->rto_ns << doublings;
	return wait < INAGG_RTO_CEILING_NS ? wait : INAGG_RTO_CEILING_NS;
}

/** May the slot's next block go?  SEND starts its timer. */
INAGG_INLINE int inagg_worker_open(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	if (s->state != INAGG_WSLOT_IDLE || !inagg_before(s->block, w->limit))
		return INAGG_W_NOTHING;
	s->state = INAGG_WSLOT_SENT;
	s->sent_ns = now;
	s->due_ns = now + inagg_worker_backoff(w, 0);
	s->acked = 0;
	s->tries = 0;
	s->resent = 0;
	s->overtaken = 0;
	return INAGG_W_SEND;
}

/*
 * RFC 6298 §2 in integers.  There is a sample for each packet, so the variance rises with each but falls
 * over two windows (cf. RFC 7323, appendix G): it must outlive what comes once a window.  More of it than
 * SRTT does not count: a rank that is late once would teach all of them to be as late after a loss.
 */
INAGG_INLINE void inagg_worker_sample(struct inagg_worker *w, __u64 rtt)
{
	__u64 srtt = w->srtt_ns, var = w->rttvar_ns, off = srtt > rtt ? srtt - rtt : rtt - srtt, rto;

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
	rto = srtt + 4 * (var < srtt ? var : srtt);
	if (rto < w->floor_ns)
		rto = w->floor_ns;
	if (rto > INAGG_RTO_CEILING_NS)
		rto = INAGG_RTO_CEILING_NS;
	w->rto_ns = rto;
	w->doublings = 0;
}

/**
 * A result for @block arrives in slot @s.  ACCEPT once per block: the plane stores the payload, keeps
 * it until the slot's next result, and calls inagg_worker_open().
 */
INAGG_INLINE int inagg_worker_result(struct inagg_worker *w, struct inagg_wslot *s, __u32 block, __u64 now)
{
	if (s->state != INAGG_WSLOT_SENT || s->block != block)
		return INAGG_W_NOTHING;
	if (!s->resent && !s->tries)
		inagg_worker_sample(w, now - s->sent_ns);
	s->block = block + w->slots;
	s->state = INAGG_WSLOT_IDLE;
	return INAGG_W_ACCEPT;
}

INAGG_INLINE void inagg_wslot_resend(const struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	s->resent = 1;
	s->overtaken = 0;
	s->acked = 0;
	s->sent_ns = now;
	s->due_ns = now + inagg_worker_backoff(w, s->tries);
}

/*
 * A WAIT puts our next request off, longer for higher ranks: then the lowest rank that waits asks for
 * all of them, and n ranks never cause n * n WAITs.  What another rank asked when our own turn was near
 * counts as our try, so that all of them back off together.
 */
INAGG_INLINE void inagg_wslot_put_off(const struct inagg_worker *w, struct inagg_wslot *s, __u32 rank, __u64 now)
{
	__u64 wait = inagg_worker_backoff(w, s->tries);

	/* RACK made us send again, others do so too: the result is due, not late */
	if (!s->acked && !s->tries && w->srtt_ns && 2 * w->srtt_ns < wait)
		wait = 2 * w->srtt_ns > w->floor_ns ? 2 * w->srtt_ns : w->floor_ns;
	if (s->acked && s->due_ns < now + wait / 2 && s->tries < 255)
		wait = inagg_worker_backoff(w, ++s->tries);
	s->acked = 1;
	s->overtaken = 0;
	s->due_ns = now + wait + wait / (2 * INAGG_MAX_RANKS) * (rank % INAGG_MAX_RANKS);
}

/**
 * A WAIT for @block: @contributors are in.  RESEND when ours is not, RESTORE when the block is behind
 * us and others wait for it.
 */
INAGG_INLINE int inagg_worker_wait(const struct inagg_worker *w, struct inagg_wslot *s, __u32 block,
				   __u64 contributors, __u32 rank, __u64 now)
{
	int in = (contributors & inagg_rank_bit(rank)) != 0;
	__u64 crossing = w->srtt_ns > w->floor_ns / 4 ? w->srtt_ns : w->floor_ns / 4;

	if (s->state == INAGG_WSLOT_SENT && s->block == block) {
		if (in) {
			inagg_wslot_put_off(w, s, rank, now);
			return INAGG_W_NOTHING;
		}
		if (now - s->sent_ns < crossing)
			return INAGG_W_NOTHING;	/* our elements crossed this WAIT */
		inagg_wslot_resend(w, s, now);
		return INAGG_W_RESEND;
	}
	/* also if an old copy of our contribution is in: the rank that is not may be dead */
	if (contributors && inagg_wslot_holds(w, s, block))
		return INAGG_W_RESTORE;
	return INAGG_W_NOTHING;
}

/*
 * A time-out.  Unless we know that our elements arrived, the RTO may be too short for the path: it
 * doubles for all slots, which Karn's rule keeps from learning otherwise (RFC 6298 §5.5).  What was sent
 * before the last doubling tells nothing new: a window that times out together doubles once.
 */
INAGG_INLINE void inagg_wslot_expired(struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	if (s->tries < 255)
		s->tries++;
	if (s->acked || s->sent_ns < w->backed_off_ns)
		return;
	w->backed_off_ns = now;
	if (w->doublings < INAGG_MOST_DOUBLINGS)
		w->doublings++;
}

/** The slot's timer: call at or after due_ns. */
INAGG_INLINE int inagg_worker_timeout(struct inagg_worker *w, struct inagg_wslot *s, __u64 now)
{
	if (s->state != INAGG_WSLOT_SENT || now < s->due_ns)
		return INAGG_W_NOTHING;
	if (s->due_ns && !s->overtaken)
		inagg_wslot_expired(w, s, now);
	if (!s->acked || s->tries % INAGG_RESEND_EVERY == 0) {
		inagg_wslot_resend(w, s, now);
		return INAGG_W_RESEND;
	}
	s->due_ns = now + inagg_worker_backoff(w, s->tries);
	return s->tries > INAGG_ASK_ALL_AFTER ? INAGG_W_REQUEST_ALL : INAGG_W_REQUEST;
}

/**
 * When the packet went that the result of @s answers, for sure; 0 if its elements were sent twice.  Ask
 * before inagg_worker_result(); argument of inagg_worker_overtaken().
 */
INAGG_INLINE __u64 inagg_wslot_answered_ns(const struct inagg_wslot *s)
{
	return s->resent ? 0 : s->sent_ns;
}

/**
 * RACK: a result came for what was sent at @delivered_sent_ns, so that of what was sent before in slot
 * @other should be here in a round trip more, unless its elements are known to have arrived: brings
 * due_ns forward to then.  Returns 1 if that is now; the plane then runs inagg_worker_timeout().
 */
INAGG_INLINE int inagg_worker_overtaken(const struct inagg_worker *w, struct inagg_wslot *other,
					__u64 delivered_sent_ns, __u64 now)
{
	__u64 due;

	if (other->state != INAGG_WSLOT_SENT || other->acked || !w->srtt_ns ||
	    other->sent_ns >= delivered_sent_ns)
		return 0;
	due = now - (delivered_sent_ns - other->sent_ns) + w->srtt_ns;
	if (due < other->due_ns) {
		other->due_ns = due;
		other->overtaken = 1;
	}
	return other->overtaken && due < now;
}

/**
 * The switch restarted: what it had of this block is gone.  Sends it again soon, without waiting for
 * a back-off that a straggler caused.
 */
INAGG_INLINE void inagg_worker_rebooted(struct inagg_wslot *s)
{
	if (s->state != INAGG_WSLOT_SENT)
		return;
	s->acked = 0;
	s->tries = 0;
	s->due_ns = 0;
}

#endif /* INAGG_CORE_WORKER_H */
