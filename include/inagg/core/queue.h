/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Virtual queues: how long a link's queue is, or would be, told from what is sent over it.  XDP frames pass the queues of the
 * kernel, and those of a network card cannot be asked (cf. AVQ, Kunniyur and Srikant, SIGCOMM 2001; HULL, NSDI 2012).
 *
 * A queue is the time at which its link will have sent all that was given to it.  Calls that race lose some bytes: it is an
 * estimate.
 */
#ifndef INAGG_CORE_QUEUE_H
#define INAGG_CORE_QUEUE_H

#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_QUEUE_SHIFT	10	/* a link's rate is given in ns for 2^10 bytes: 100 Gbit/s are 82, 8 kbit/s fit */
#define INAGG_FULL		7	/* of INAGG_FULL_OF parts of its rate: a link that is nearly full */
#define INAGG_FULL_OF		8
#define INAGG_QUEUE_BOUND	8	/* marks' worth that a link is taken to queue if nobody knows better */

struct inagg_queue {
	__u64	empty_ns;	/* when the link will be idle */
	__u64	marked;		/* frames for which the queue was long */
	__u32	unit_ns;	/* for 2^INAGG_QUEUE_SHIFT bytes; 0: no link is as fast */
	__u32	mark_ns;	/* a longer queue is a long one */
	__u64	longest_ns;	/* what would have to wait longer, the link drops; 0: INAGG_QUEUE_BOUND marks */
};

INAGG_ASSERT(sizeof(struct inagg_queue) == 32);

/** unit_ns of a link of @bits_per_second, at least 8000; 0: faster than can be told. */
INAGG_INLINE __u32 inagg_queue_unit(__u64 bits_per_second)
{
	return (__u32)((8000000000ULL << INAGG_QUEUE_SHIFT) / bits_per_second);
}

/** How long a frame that is given to the link at @now (ns) would wait. */
INAGG_INLINE __u64 inagg_queue_wait(const struct inagg_queue *q, __u64 now)
{
	__u64 empty = q->empty_ns;

	return (__s64)(empty - now) < 0 ? 0 : empty - now;
}

/** A frame of @bytes is given to the link at @now (ns).  Is it to be marked, because it has to wait for long? */
INAGG_INLINE int inagg_queue_add(struct inagg_queue *q, __u32 bytes, __u64 now)
{
	const __u64 longest_ns = q->longest_ns ? q->longest_ns : (__u64)q->mark_ns * INAGG_QUEUE_BOUND;
	__u64 wait = inagg_queue_wait(q, now);

	if (wait < longest_ns)
		q->empty_ns = now + wait + ((__u64)bytes * q->unit_ns >> INAGG_QUEUE_SHIFT);
	if (wait <= q->mark_ns)
		return 0;
	q->marked++;
	return 1;
}

/**
 * A queue of what comes from a link whose other end queues as @q: longer than mark_ns if the link has been nearly full for a
 * while.  It is one of a slower link, cf. phantom queues (HULL): a queue of the link itself is at its other end, unseen.
 */
INAGG_INLINE struct inagg_queue inagg_queue_of_arrivals(const struct inagg_queue *q)
{
	struct inagg_queue arrivals = *q;

	arrivals.empty_ns = 0;
	arrivals.marked = 0;
	arrivals.longest_ns = 0;
	arrivals.unit_ns = (__u32)((__u64)q->unit_ns * INAGG_FULL_OF / INAGG_FULL);
	return arrivals;
}

/** A quota is a link's rate that one sender may use.  May it send a frame of @bytes at @now (ns)?  What it may not costs it nothing. */
INAGG_INLINE int inagg_quota_admits(struct inagg_queue *q, __u32 bytes, __u64 now)
{
	__u64 wait = inagg_queue_wait(q, now);

	if (wait > q->mark_ns) {
		q->marked++;
		return 0;
	}
	q->empty_ns = now + wait + ((__u64)bytes * q->unit_ns >> INAGG_QUEUE_SHIFT);
	return 1;
}

/** Is so much of a quota used at @now (ns) that its sender had better slow down, before frames are refused? */
INAGG_INLINE int inagg_quota_is_short(const struct inagg_queue *q, __u64 now)
{
	return inagg_queue_wait(q, now) > q->mark_ns / 2;
}

#endif /* INAGG_CORE_QUEUE_H */
