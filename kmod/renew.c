// SPDX-License-Identifier: GPL-2.0-only
/*
 * The next generation of a job that excludes silent ranks: those that have joined again are in it.  A barrier agrees on it,
 * in which each rank says whether it has heard of one that wants to come back; nothing is under way then, and block numbers
 * begin anew.
 */
#include <linux/memcontrol.h>
#include <linux/random.h>

#include "tensor.h"

/* The barrier @t is over. */
static void end_renewal(struct inagg_sock *isk, struct inagg_tensor *t, bool renewed)
{
	t->renewing = false;
	t->renewed = renewed;
	WRITE_ONCE(isk->renewal, NULL);
	isk->sk.sk_write_space(&isk->sk);
}

/**
 * inagg_renewal_agreed() - all ranks have come to a barrier
 * @isk: the socket, locked
 * @t: the barrier
 * @renews: they go on to the next generation; it is not over before that has begun
 * @burst: tells the time
 */
void inagg_renewal_agreed(struct inagg_sock *isk, struct inagg_tensor *t, bool renews, struct inagg_burst *burst)
{
	if (!renews) {
		end_renewal(isk, t, false);
		return;
	}
	t->renewing = true;
	inagg_membership_renew(&isk->member, get_random_u64() ?: 1);
	inagg_timer_arm(isk, burst->now);
}

/** inagg_renewal_begin() - the switch has begun the next generation as @job; @isk is locked */
void inagg_renewal_begin(struct inagg_sock *isk, const struct inagg_job_config *job)
{
	isk->next.job = *job;
	isk->next.agreed = true;
	sock_hold(&isk->sk);
	if (!queue_work(inagg_workqueue, &isk->next.work))
		__sock_put(&isk->sk);
}

static u64 bytes_in(const struct inagg_sock *isk, const struct inagg_job_config *job)
{
	return inagg_wire_bytes(job) + inagg_streams_bytes(isk, job);
}

/* Streams for the next generation; those of this one are still there. */
static int alloc_next(struct inagg_sock *isk, struct inagg_stream *streams)
{
	int error = inagg_charge(isk, bytes_in(isk, &isk->next.job));

	if (error)
		return error;
	error = inagg_streams_alloc(isk, &isk->next.job, streams);
	if (error)
		inagg_uncharge(isk, bytes_in(isk, &isk->next.job));
	return error;
}

/* Go on with @streams, which become those of the generation before. */
static void begin_generation(struct inagg_sock *isk, struct inagg_stream *streams)
{
	struct inagg_tensor *t = isk->renewal;
	int stream;

	inagg_uncharge(isk, bytes_in(isk, &isk->job));
	for (stream = 0; stream < INAGG_STREAMS; stream++)
		swap(isk->streams[stream], streams[stream]);
	isk->job = isk->next.job;
	isk->next.agreed = false;
	isk->wire_limit = inagg_wire_bytes(&isk->job);
	isk->next_block = isk->next_control = isk->next_turn = isk->ahead = 0;
	inagg_guesses_init(&isk->guesses);
	inagg_verifier_forget(isk);
	isk->progress = ktime_get_ns();
	t->block = 0;
	end_renewal(isk, t, true);
	inagg_advance_active(isk);
	inagg_wake_reader(isk);
}

/** inagg_renewal_work() - go on to the next generation */
void inagg_renewal_work(struct work_struct *work)
{
	struct inagg_sock *isk = container_of(work, struct inagg_sock, next.work);
	struct mem_cgroup *before = set_active_memcg(isk->memcg);
	struct inagg_stream streams[INAGG_STREAMS] = {};
	int error = alloc_next(isk, streams);

	spin_lock_bh(&isk->lock);
	if (error)
		inagg_fail(isk, -error, 0);
	else if (isk->sk.sk_state == TCP_ESTABLISHED)
		begin_generation(isk, streams);
	else	/* the deadline has passed meanwhile */
		inagg_uncharge(isk, bytes_in(isk, &isk->next.job));
	spin_unlock_bh(&isk->lock);
	inagg_streams_free(streams);
	set_active_memcg(before);
	sock_put(&isk->sk);
}

/** inagg_renewal_cancel() - there will be no next generation for this socket; may sleep, nobody begins one meanwhile */
void inagg_renewal_cancel(struct inagg_sock *isk)
{
	if (cancel_work_sync(&isk->next.work))
		__sock_put(&isk->sk);
}
