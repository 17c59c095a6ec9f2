/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * A lock in a map's word.  bpf_spin_lock() would do, but costs 48 ns here (it saves the interrupt state)
 * beside 12 ns of two atomics, and before Linux 6.9 allows no calls.  Nobody waits for long: the holder
 * runs in softirq on another CPU and leaves within a microsecond.  Should it not (a test run or a process
 * preempted by a softirq on its own CPU), the packet is dropped and its sender will repeat it.
 */
#ifndef INAGG_LOCK_H
#define INAGG_LOCK_H

#include <linux/types.h>
#include <bpf/bpf_helpers.h>

#define INAGG_LOCK_TRIES	32

static __always_inline int lock_word_within(__u32 *busy, int tries)
{
	for (int i = 0; i < tries; i++)
		if (!__sync_val_compare_and_swap(busy, 0, 1))
			return 1;
	return 0;
}

static __always_inline int lock_word(__u32 *busy)
{
	return lock_word_within(busy, INAGG_LOCK_TRIES);
}

static __always_inline void unlock_word(__u32 *busy)
{
	__sync_lock_test_and_set(busy, 0);
}

#endif /* INAGG_LOCK_H */
