// SPDX-License-Identifier: GPL-2.0-only
/*
 * Float sums with infinities or NaN on some rank.  They are split off by a work: it takes memory and the whole
 * tensor, neither of which softirq has.
 */
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "tensor.h"

void inagg_queue_split(struct inagg_sock *isk, struct inagg_tensor *t)
{
	t->split = true;
	sock_hold(&isk->sk);
	if (!queue_work(inagg_workqueue, &isk->split))
		__sock_put(&isk->sk);
}

/* Count what is not finite and put 0 in its place; returns the exponent of the rest, unless the socket has failed. */
static u8 split_elements(struct inagg_sock *isk, struct inagg_tensor *t, u8 *counts)
{
	u32 bytes = memory_bytes(t), dtype = t->coding.dtype, magnitude = 0, index, i, count, class;
	u8 *cell;

	for (index = 0; index < t->blocks && READ_ONCE(isk->sk.sk_state) == TCP_ESTABLISHED; index++) {
		cell = cell_of(isk, t, index);
		count = bytes_of(t, index) / bytes;
		for (i = 0; i < count; i++) {
			class = inagg_class_of(inagg_element(cell, i, bytes), dtype);
			inagg_set_element(counts, index * t->per_block + i, 4, class);
			if (class)
				inagg_set_element(cell, i, bytes, 0);
		}
		magnitude = inagg_largest_magnitude(cell, count, dtype, magnitude);
		cond_resched();
	}
	return inagg_exponent_of(magnitude, dtype);
}

/* One of the three that @sum travels as. */
static void make_part(struct inagg_tensor *t, struct inagg_tensor *sum, u8 phase)
{
	t->sum = sum;
	t->call = sum->call;
	t->context = sum->context;
	t->sealed = sum->sealed;
	t->phase = phase;
}

/* Put the exponent block before and the counts behind the sum. */
static void insert_companions(struct inagg_sock *isk, struct inagg_tensor *t, struct inagg_tensor *exponent,
			      struct inagg_tensor *classes)
{
	struct inagg_burst burst;

	spin_lock_bh(&isk->lock);
	inagg_burst_start(&burst);
	make_part(exponent, t, 1);
	make_part(classes, t, 3);
	t->phase = 2;
	t->exponent = exponent->exponent;
	list_add_tail(&exponent->list, &t->list);
	list_add(&classes->list, &t->list);
	t->classes = classes;
	t->whole = true;	/* the three mean something only together */
	if (isk->active == t)
		isk->active = exponent;
	if (isk->unassigned == t)
		isk->unassigned = exponent;
	if (isk->sk.sk_state == TCP_ESTABLISHED)
		inagg_assign_blocks(isk, &burst);
	inagg_timer_follow(isk);
	spin_unlock_bh(&isk->lock);
	inagg_transmit(isk, &burst);
	inagg_open_rest(isk);
}

static bool is_too_large(const struct inagg_sock *isk, const struct inagg_tensor *t)
{
	return t->blocks > isk->ring.cells;
}

static int split(struct inagg_sock *isk, struct inagg_tensor *t)
{
	u64 bytes = div_u64(t->bytes, memory_bytes(t)) * 4;
	struct inagg_tensor *exponent, *classes;
	int error = -ENOMEM;

	if (is_too_large(isk, t))
		return -EDOM;	/* its first part is needed twice */
	exponent = inagg_companion(isk, 0, inagg_nothing(isk));
	classes = inagg_companion(isk, bytes, INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM);
	if (exponent && classes)
		error = inagg_alloc_own(isk, classes);
	if (error) {
		kfree(exponent);
		kfree(classes);
		return error;
	}
	exponent->exponent = split_elements(isk, t, classes->own);
	insert_companions(isk, t, exponent, classes);
	return 0;
}

/*
 * The first sum that waits for it, whose sender has copied all of it, which takes a while behind results that nobody
 * reads, and whose control blocks, which carry it as it was, are back.  It stays on the list: without a scale it cannot
 * become complete.
 */
static struct inagg_tensor *next_split(struct inagg_sock *isk)
{
	struct inagg_tensor *t, *found = NULL;

	spin_lock_bh(&isk->lock);
	list_for_each_entry(t, &isk->tensors, list)
		if (t->split && ((t->copied == t->bytes && !t->controls_left) || is_too_large(isk, t))) {
			t->split = false;
			found = t;
			break;
		}
	spin_unlock_bh(&isk->lock);
	return found;
}

void inagg_split_work(struct work_struct *work)
{
	struct inagg_sock *isk = container_of(work, struct inagg_sock, split);
	struct mem_cgroup *before = set_active_memcg(isk->memcg);
	struct inagg_tensor *t;
	int error;

	while ((t = next_split(isk))) {
		error = split(isk, t);
		if (!error)
			continue;
		spin_lock_bh(&isk->lock);
		inagg_fail(isk, -error, 0);
		spin_unlock_bh(&isk->lock);
	}
	set_active_memcg(before);
	sock_put(&isk->sk);
}
