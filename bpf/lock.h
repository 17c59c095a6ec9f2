/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A lock in a map's word.  bpf_spin_lock() would do, but costs 48 ns here (it saves the interrupt state)
 * beside 12 ns of two atomics, and before Linux 6.9 allows no calls.  Nobody waits for long: the holder
 * runs in softirq on another CPU and leaves within a microsecond, or some where its CPU is interrupted.
 * Should it not (a test run or a process preempted by a softirq on its own CPU), the packet is dropped and
 * its sender will repeat it, a round trip later: so waiting for some microseconds pays.
 */
#ifndef INAGG_LOCK_H
#define INAGG_LOCK_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define INAGG_LOCK_TRIES	32
#define INAGG_LOCK_LOOKS	4096	/* some 20 us */

/* For whoever has another lock, or comes again by itself. */
static __always_inline int try_lock_word(__u32 *busy)
{
	for (int i = 0; i < INAGG_LOCK_TRIES; i++)
		if (!__sync_val_compare_and_swap(busy, 0, 1))
			return 1;
	return 0;
}

struct waiting {
	__u32	*busy;
	__u32	locked;
};

static long look_at_word(__u32 i __attribute__((unused)), void *context)
{
	struct waiting *w = context;

	w->locked = !*(volatile __u32 *)w->busy && !__sync_val_compare_and_swap(w->busy, 0, 1);
	return w->locked;
}

/* Not inlined: verified once. */
__attribute__((noinline)) int wait_for_word(__u32 *busy)
{
	struct waiting w = { .busy = busy };

	if (!busy)
		return 0;
	bpf_loop(INAGG_LOCK_LOOKS, look_at_word, &w, 0);
	return w.locked;
}

static __always_inline int lock_word(__u32 *busy)
{
	return try_lock_word(busy) || wait_for_word(busy);
}

static __always_inline void unlock_word(__u32 *busy)
{
	__sync_lock_test_and_set(busy, 0);
}

#endif /* INAGG_LOCK_H */
