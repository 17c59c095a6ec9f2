// SPDX-License-Identifier: GPL-2.0-only
/*
 * One high-resolution timer a socket, in softirq: JOINs that nobody answered or that say that this rank is there,
 * blocks that are due or wait for the next burst, and the deadline.
 */
#include "af_inagg.h"

#define JOIN_PAUSE	(5 * NSEC_PER_MSEC)
#define JOIN_PAUSE_MAX	(200 * NSEC_PER_MSEC)

static u64 deadline_of(const struct inagg_sock *isk)
{
	return isk->progress + (u64)isk->set.deadline_ms * NSEC_PER_MSEC;
}

/* Repeat the JOIN; returns when to look again. */
static u64 run_join(struct inagg_sock *isk, struct inagg_burst *burst)
{
	if (burst->now >= deadline_of(isk)) {
		inagg_fail(isk, ETIMEDOUT, isk->not_yet);
		return U64_MAX;
	}
	if (burst->now >= isk->join_due) {
		inagg_send_membership(isk, INAGG_JOIN, burst);
		isk->join_pause = clamp_t(u64, isk->join_pause * 2, JOIN_PAUSE, JOIN_PAUSE_MAX);
		isk->join_due = burst->now + isk->join_pause;
	}
	return min(isk->join_due, deadline_of(isk));
}

static u64 run_blocks(struct inagg_sock *isk, struct inagg_burst *burst)
{
	u64 due;

	if (!inagg_in_flight(isk) && !isk->renewal)
		return U64_MAX;
	if (burst->now >= deadline_of(isk)) {
		inagg_fail(isk, ETIMEDOUT, 0);
		return U64_MAX;
	}
	if (burst->now >= isk->progress + INAGG_RTO_CEILING_NS)
		inagg_membership_doubt(&isk->member, burst->now);
	if (inagg_waits(isk) && burst->now >= isk->paused_until)
		inagg_open_waiting(isk, burst);
	due = min(inagg_run_timers(isk, burst), deadline_of(isk));
	return inagg_waits(isk) ? burst->now : due;
}

/* Who is silent may be taken for gone, also between tensors; returns when to look again. */
static u64 run_membership(struct inagg_sock *isk, struct inagg_burst *burst)
{
	int what;

	if (isk->sk.sk_state != TCP_ESTABLISHED)
		return U64_MAX;	/* just failed */
	if (burst->now < inagg_membership_due(&isk->member))
		return inagg_membership_due(&isk->member);
	what = inagg_membership_say(&isk->member, burst->now);
	if (what & INAGG_SAY_PRESENT)
		inagg_send_membership(isk, INAGG_JOIN, burst);
	if (what & INAGG_SAY_NEXT)
		inagg_send_renewal(isk, burst);
	return inagg_membership_due(&isk->member);
}

static u64 run_member(struct inagg_sock *isk, struct inagg_burst *burst)
{
	u64 due = run_blocks(isk, burst);

	return min(due, run_membership(isk, burst));
}

/**
 * inagg_transmit_and_pause() - let a burst go, in softirq, and be there again at @due, but let others have their turn first
 *
 * To build its packets and to hand them on takes longer than the pause, so that is counted from when they have gone.
 */
void inagg_transmit_and_pause(struct inagg_sock *isk, struct inagg_burst *burst, u64 due)
{
	bool full = inagg_burst_full(burst);
	u64 pause;

	inagg_transmit(isk, burst);
	pause = ktime_get_ns() + INAGG_BURST_PAUSE;
	spin_lock(&isk->lock);
	if (full)
		isk->paused_until = pause;
	if (isk->sk.sk_state == TCP_SYN_SENT || isk->sk.sk_state == TCP_ESTABLISHED)	/* see inagg_timer_stop() */
		inagg_timer_arm(isk, max(due, pause));
	spin_unlock(&isk->lock);
}

static enum hrtimer_restart expired(struct hrtimer *timer)
{
	struct inagg_sock *isk = container_of(timer, struct inagg_sock, timer);
	struct inagg_burst burst;
	u64 due = U64_MAX;

	spin_lock(&isk->lock);
	inagg_burst_start(&burst);
	isk->timer_due = U64_MAX;
	if (isk->sk.sk_state == TCP_SYN_SENT)
		due = run_join(isk, &burst);
	else if (isk->sk.sk_state == TCP_ESTABLISHED)
		due = run_member(isk, &burst);
	spin_unlock(&isk->lock);
	if (due != U64_MAX)
		inagg_transmit_and_pause(isk, &burst, due);
	else
		inagg_transmit(isk, &burst);
	return HRTIMER_NORESTART;
}

void inagg_timer_init(struct inagg_sock *isk)
{
	isk->timer_due = U64_MAX;
	inagg_hrtimer_setup(&isk->timer, expired, CLOCK_MONOTONIC, HRTIMER_MODE_ABS_SOFT);
}

/** inagg_timer_arm() - let the timer fire at @due (ns of CLOCK_MONOTONIC) or earlier; @isk is locked */
void inagg_timer_arm(struct inagg_sock *isk, u64 due)
{
	if (due >= isk->timer_due)
		return;
	isk->timer_due = due;
	hrtimer_start(&isk->timer, ns_to_ktime(due), HRTIMER_MODE_ABS_SOFT);
}

/** inagg_timer_follow() - blocks were sent or answered: fire when the next of them is due; @isk is locked */
void inagg_timer_follow(struct inagg_sock *isk)
{
	u64 due = deadline_of(isk);
	int stream;

	if (isk->sk.sk_state != TCP_ESTABLISHED || !inagg_in_flight(isk))
		return;
	for (stream = 0; stream < INAGG_STREAMS; stream++)
		due = min(due, isk->streams[stream].earliest_due);
	inagg_timer_arm(isk, due);
}

/** inagg_timer_stop() - the timer neither runs nor will until it is armed; @isk is in no state that arms it; may sleep */
void inagg_timer_stop(struct inagg_sock *isk)
{
	hrtimer_cancel(&isk->timer);
	isk->timer_due = U64_MAX;
}
