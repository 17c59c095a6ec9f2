/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * PANAMA: floats are added in the order of core/merge.h.  Each packet carries its sum up as far as it gets; the slot's
 * lock covers the decisions and what is left in buffers, not the additions.  All else is as in a tree: core/tree.h.
 */
#ifndef INAGG_PANAMA_H
#define INAGG_PANAMA_H

#include <inagg/core/float32.h>
#include <inagg/core/merge.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_DEFAULT_BUFFERS);
	__type(key, __u32);
	__type(value, struct inagg_float_buffer);
} float_buffers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_DEFAULT_BUFFERS);
	__type(key, __u32);
	__type(value, __u32);
} free_buffers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_buffer_pool);
} buffer_pool SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_share);
} shares SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_adding);
} adding SEC(".maps");

/* Buffers of this switch: as bucket_count. */
const volatile __u32 buffer_count = INAGG_DEFAULT_BUFFERS;

/*
 * Those that are free are a stack without a lock (Treiber's), whose head is tagged against what happens between a CPU's look at it
 * and its exchange.  Not a queue map: before Linux 6.3 no sleepable program, as inagg_clear is, may have one.
 */
#define POOL_TRIES	16
/* Whoever fails to return one was overtaken by another CPU.  It must not fail for good: the buffer would be lost. */
#define RETURN_TRIES	(1 << 16)

static __always_inline __u64 tagged(__u64 head, __u32 number)
{
	return ((head >> 32) + 1) << 32 | number;
}

/* A number in `float_buffers`, from 1; 0: none is free. */
__attribute__((noinline)) __u32 take_buffer(void)
{
	__u32 zero = 0, number, key, *next;
	struct inagg_buffer_pool *pool = bpf_map_lookup_elem(&buffer_pool, &zero);

	if (!pool)
		return 0;
	for (int i = 0; i < POOL_TRIES; i++) {
		__u64 head = *(volatile __u64 *)&pool->free;

		number = (__u32)head;
		key = number - 1;
		next = number ? bpf_map_lookup_elem(&free_buffers, &key) : NULL;
		if (!next)
			break;
		if (__sync_val_compare_and_swap(&pool->free, head, tagged(head, *next)) == head)
			return number;
	}
	if (*(volatile __u32 *)&pool->used >= buffer_count)
		return 0;
	number = __sync_fetch_and_add(&pool->used, 1);
	return number < buffer_count ? number + 1 : 0;
}

struct returned {
	struct inagg_buffer_pool *pool;
	__u32 *next;
	__u32 number;
};

static long push_buffer(__u32 i __attribute__((unused)), void *context)
{
	struct returned *r = context;
	__u64 head = *(volatile __u64 *)&r->pool->free;

	*r->next = (__u32)head;
	return __sync_val_compare_and_swap(&r->pool->free, head, tagged(head, r->number)) == head;
}

__attribute__((noinline)) int give_back_buffer(__u32 number)
{
	__u32 zero = 0, key = number - 1;
	struct returned r = { .pool = bpf_map_lookup_elem(&buffer_pool, &zero), .number = number };

	r.next = number ? bpf_map_lookup_elem(&free_buffers, &key) : NULL;
	if (!r.pool || !r.next)
		return 0;
	bpf_loop(RETURN_TRIES, push_buffer, &r, 0);
	return 1;
}

/* As many as a block may need: it has them until end_merge().  0: there are not so many. */
static __always_inline int promise_buffers(struct inagg_slot_memory *m, __u32 count)
{
	__u32 zero = 0;
	struct inagg_buffer_pool *pool = bpf_map_lookup_elem(&buffer_pool, &zero);

	if (!pool)
		return 0;
	if (__sync_fetch_and_add(&pool->promised, count) + count > buffer_count) {
		__sync_fetch_and_sub(&pool->promised, count);
		return 0;
	}
	m->promised = count;
	return 1;
}

static __always_inline void take_back_promise(struct inagg_slot_memory *m)
{
	__u32 zero = 0;
	struct inagg_buffer_pool *pool = bpf_map_lookup_elem(&buffer_pool, &zero);

	if (pool && m->promised)
		__sync_fetch_and_sub(&pool->promised, m->promised);
	m->promised = 0;
}

/* Nothing is added to the block of the slot, whose lock is held, any more; what waits there waits in vain. */
__attribute__((noinline)) int end_merge(struct inagg_slot_memory *m)
{
	struct inagg_adding *job;
	__u32 row;

	if (!m)
		return -1;
	row = m->holder - 1;
	job = m->holder ? bpf_map_lookup_elem(&adding, &row) : NULL;
	if (job)
		__sync_fetch_and_sub(&job->blocks, 1);
	m->holder = 0;
	if (m->merge.waiting)
		for (int i = 0; i < INAGG_MAX_RANKS / 2; i++) {
			give_back_buffer(m->buffers[i]);
			m->buffers[i] = 0;
		}
	take_back_promise(m);
	m->merge.waiting = 0;
	m->lost = 0;
	m->turn++;
	return 0;
}

/* Not inlined: verified once instead of for each element, and as fast. */
__attribute__((noinline)) __u32 add_float32(__u32 a, __u32 b)
{
	return inagg_float32_add(a, b);
}

static __always_inline __u64 add_floats(__u64 a, __u64 b)
{
	return add_float32(a, b) | (__u64)add_float32(a >> 32, b >> 32) << 32;
}

/* The packet's elements become the sum of them and the buffer's. */
__attribute__((noinline)) int add_to_packet(struct xdp_md *ctx, struct inagg_float_buffer *from, __u32 chunks)
{
	struct inagg_hdr *h;
	void *end;

	h = header_of(ctx, &end);
	if (!h || !from)
		return -1;
	FOR_EACH_WORD(h + 1, end, from->lanes, chunks, *p = add_floats(*p, *a))
	return 0;
}

/* The packet's elements, into the buffer. */
__attribute__((noinline)) int copy_packet(struct xdp_md *ctx, struct inagg_float_buffer *to, __u32 chunks)
{
	struct inagg_hdr *h;
	void *end;

	h = header_of(ctx, &end);
	if (!h || !to)
		return -1;
	lanes_store(h + 1, end, to->lanes, chunks);
	return 0;
}

/* The buffer of that number; 0: the slot's lanes. */
static __always_inline struct inagg_float_buffer *find_buffer(struct inagg_slot_memory *m, __u32 number)
{
	__u32 key = number - 1;

	if (!number)
		return (struct inagg_float_buffer *)m->lanes;
	return bpf_map_lookup_elem(&float_buffers, &key);
}

/* Change what the slot, whose lock is held, has as buffer @index.  Returns what that was. */
static __always_inline __u32 exchange_buffer(struct inagg_slot_memory *m, __u32 index, __u32 number)
{
	__u32 *entry = &m->buffers[index & (INAGG_MAX_RANKS / 2 - 1)], before = *entry;

	if (!index)
		return 0;
	*entry = number;
	return before;
}

/* What a packet of floats carries up. */
struct climb {
	struct inagg_climber at;
	__u32	turn;
	__u32	children;
	__u32	spare;		/* a buffer that is the packet's; it has one where it has to wait outside the lanes */
	__u32	taken;		/* the buffer that it adds next; 0: the slot's lanes */
};

/*
 * The ranks whose sum the packet is, which must be all of its leaf's, and so come once; 0: it is not.
 */
static __always_inline __u64 ranks_of_leaf(const struct packet *p, const struct inagg_job *job)
{
	__u32 row = job->index * INAGG_MAX_RANKS + p->block.rank;
	__u64 *behind = bpf_map_lookup_elem(&subtrees, &row);

	if (!behind)
		return 0;
	if (!*behind)
		return p->type == INAGG_CONTRIBUTION ? inagg_rank_bit(p->block.rank) : 0;
	return p->type == INAGG_PARTIAL && p->block.contributors == *behind ? *behind : 0;
}

/*
 * The job may begin no other block, or has no buffers for it.  Does the one that it began last give way to the packet's?  A lock is held:
 * not that one's.
 */
static __always_inline int gives_way(const struct inagg_adding *job, const struct packet *p, __u32 row)
{
	__u32 key = job->newest;
	struct inagg_slot_memory *m = bpf_map_lookup_elem(&slots, &key);
	int gives;

	if (!m || *(volatile __u32 *)&m->holder != row + 1 || !try_lock_word(&m->busy))
		return 0;
	gives = m->holder == row + 1 &&
		inagg_tree_gives_way(&m->state, &p->block,
				     bpf_ktime_get_coarse_ns() - m->touched_ns > INAGG_MERGE_IDLE_NS);
	if (gives)
		end_merge(m);
	unlock_slot(m);
	return gives;
}

/* Ends what waits in vain in the other copy of the packet's slot.  Was there anything?  A lock is held: not that one's. */
static __always_inline int reclaim_other(const struct packet *p)
{
	__u32 key = p->slot_key ^ 1;
	struct inagg_slot_memory *m = bpf_map_lookup_elem(&slots, &key);
	int vain;

	if (!m || !*(volatile __u32 *)&m->promised || !try_lock_word(&m->busy))
		return 0;
	vain = inagg_tree_overtaken(&m->state, &p->block);
	if (vain)
		end_merge(m);
	unlock_slot(m);
	return vain;
}

static __always_inline int is_forsaken(const struct inagg_slot_memory *m)
{
	return *(volatile __u32 *)&m->promised &&
	       bpf_ktime_get_coarse_ns() - *(volatile __u64 *)&m->touched_ns > INAGG_MERGE_IDLE_NS;
}

/*
 * Ends blocks, of whatever job, that nobody has sent or asked for since long ago: of ranks that died, perhaps.  A few slots are looked
 * at, and by the next call others.  A lock is held: not one of theirs, or it is left out.
 */
#define FORSAKEN_LOOKS	16

__attribute__((noinline)) int reclaim_forsaken(void)
{
	__u32 zero = 0, key;
	struct inagg_buffer_pool *pool = bpf_map_lookup_elem(&buffer_pool, &zero);
	struct inagg_slot_memory *m;
	int ended = 0;

	if (!pool)
		return 0;
	for (int i = 0; i < FORSAKEN_LOOKS; i++) {
		key = __sync_fetch_and_add(&pool->hand, 1);
		m = bpf_map_lookup_elem(&slots, &key);
		if (!m) {
			*(volatile __u32 *)&pool->hand = 0;
			break;
		}
		if (!is_forsaken(m) || !try_lock_word(&m->busy))
			continue;
		if (is_forsaken(m) && inagg_tree_lose(&m->state)) {
			end_merge(m);
			ended++;
		}
		unlock_slot(m);
	}
	return ended;
}

/* The packet's block begins in the slot, whose lock is held.  0, or -INAGG_R_FULL. */
static __always_inline int begin_merge(struct inagg_slot_memory *m, const struct packet *p, __u32 row)
{
	struct inagg_share *share = bpf_map_lookup_elem(&shares, &row);
	struct inagg_adding *job = bpf_map_lookup_elem(&adding, &row);
	__u32 count;

	if (!share || !job)
		return -INAGG_R_JOB;
	count = inagg_merge_buffers(share->children) - 1;	/* the first is the slot's */
	if (!m->holder && !inagg_merge_allows(share->cap, *(volatile __u32 *)&job->blocks) && !gives_way(job, p, row))
		return -INAGG_R_FULL;
	end_merge(m);
	if (!promise_buffers(m, count) && !(reclaim_other(p) && promise_buffers(m, count)) &&
	    !(gives_way(job, p, row) && promise_buffers(m, count)) && !(reclaim_forsaken() && promise_buffers(m, count)))
		return -INAGG_R_FULL;
	__sync_fetch_and_add(&job->blocks, 1);
	job->newest = p->slot_key;
	m->holder = row + 1;
	return 0;
}

/*
 * inagg_tree_admit() for the packet, in the slot whose lock is held.  A block whose sum was lost begins anew.  Whoever has nowhere to
 * wait is not in: what others that add at this moment give back will do for the next try.
 */
static __always_inline int panama_admit(struct inagg_slot_memory *m, const struct packet *p, __u64 ranks, __u32 row,
					struct climb *c)
{
	struct inagg_slot state;
	int verdict, begins;

	forget_lost(m);
	begins = p->block.elements && inagg_slot_is_new(&m->state, &p->block);
	if (begins) {
		verdict = begin_merge(m, p, row);
		if (verdict)
			return verdict;
	}
	state = m->state;
	verdict = inagg_tree_admit(&state, ranks, &p->block);
	if (verdict >= 0 && verdict <= INAGG_COUNT && inagg_merge_waits(&m->merge, c->at.first, c->children)) {
		c->spare = take_buffer();
		if (!c->spare) {
			if (begins)
				end_merge(m);
			return -INAGG_R_FULL;
		}
	}
	m->state = state;
	if (begins)
		m->ready = 0;
	touch_merge(m, p);
	c->turn = m->turn;
	return verdict;
}

/* Does the slot still wait for what climbs, and is nothing lost that it may be added to?  Its lock is held. */
static __always_inline int is_awaited(const struct inagg_slot_memory *m, const struct packet *p, const struct climb *c)
{
	return m->turn == c->turn && !m->lost && inagg_tree_is_adding(&m->state, &p->block);
}

/* The packet's sum waits in buffer @index of the slot, whose lock is held. */
static __always_inline int leave_sum(struct xdp_md *ctx, struct inagg_slot_memory *m, const struct packet *p, struct climb *c,
				     __u32 index)
{
	if ((index && !c->spare) || copy_packet(ctx, find_buffer(m, index ? c->spare : 0), p->block.elements / INAGG_CHUNK))
		return -1;
	if (index) {
		exchange_buffer(m, index, c->spare);
		c->spare = 0;
	}
	return 0;
}

/* The sum that was taken joins the packet's.  No lock is held. */
static __always_inline int add_taken(struct xdp_md *ctx, struct inagg_slot_memory *m, const struct packet *p, struct climb *c)
{
	int error = add_to_packet(ctx, find_buffer(m, c->taken), p->block.elements / INAGG_CHUNK);

	if (c->taken) {
		give_back_buffer(c->spare);
		c->spare = c->taken;
	}
	return error;
}

/* One step up.  INAGG_CLIMB_ADD: there may be another; else the packet's fate is in *@action. */
static __always_inline int climb_once(struct xdp_md *ctx, struct packet *p, const struct branch *b, struct climb *c, int *action)
{
	struct inagg_slot_memory *m = b->memory;
	struct report r;
	__u32 index = 0;
	int step;

	*action = XDP_DROP;
	if (!lock_slot(m)) {
		*(volatile __u32 *)&m->lost = 1;
		*action = drop(b->count, -INAGG_R_BUSY);
		return INAGG_CLIMB_WAIT;
	}
	if (!is_awaited(m, p, c)) {
		unlock_slot(m);
		*action = drop(b->count, -INAGG_R_STALE);
		return INAGG_CLIMB_WAIT;
	}
	step = inagg_merge_climb(&m->merge, &c->at, c->children, &index);
	if (step == INAGG_CLIMB_DONE) {
		if (copy_packet(ctx, find_buffer(m, 0), p->block.elements / INAGG_CHUNK)) {
			m->lost = 1;
			unlock_slot(m);
			return step;
		}
		inagg_tree_added(&m->state, &b->tree);
		m->ready = 1;
		end_merge(m);
		r = tree_report(b, p);
		unlock_slot(m);
		b->count->completions++;
		*action = tree_finish(ctx, p, b, &r);
		return step;
	}
	if (step == INAGG_CLIMB_ADD)
		c->taken = exchange_buffer(m, index, 0);
	else if (leave_sum(ctx, m, p, c, index))
		m->lost = 1;
	unlock_slot(m);
	if (step == INAGG_CLIMB_ADD && add_taken(ctx, m, p, c))
		m->lost = 1;
	return step;
}

/* The job adds as many blocks as it may: the rank, or the ranks behind the switch below, are told to slow down. */
static __always_inline int panama_full(struct xdp_md *ctx, struct packet *p, const struct branch *b)
{
	struct report r = { .cap = p->block.cap };

	b->count->drops[INAGG_R_FULL]++;
	return tell(ctx, p, b->job, b->count, &r, 0);
}

static __always_inline int panama_contribute(struct xdp_md *ctx, struct packet *p, const struct branch *b, struct climb *c)
{
	struct place at = switchml_place(b->memory);
	__u64 ranks = ranks_of_leaf(p, b->job);
	struct report r;
	int verdict, action = XDP_DROP;

	if (!ranks)
		return drop(b->count, -INAGG_R_RANK);
	if (!lock_slot(b->memory))
		return drop(b->count, -INAGG_R_BUSY);
	verdict = panama_admit(b->memory, p, ranks, b->job->index, c);
	r = tree_report(b, p);
	unlock_slot(b->memory);

	if (verdict == -INAGG_R_FULL)
		return panama_full(ctx, p, b);
	if (verdict < 0)
		return drop(b->count, verdict);
	if (verdict > INAGG_COUNT)
		return tree_repeat(ctx, p, b, &at, &r, verdict);
	b->count->additions++;
	b->count->elements += p->block.elements;
	for (int step = 0; step <= INAGG_MERGE_LEVELS; step++)
		if (climb_once(ctx, p, b, c, &action) != INAGG_CLIMB_ADD)
			break;
	return action;
}

/* Floats from a rank, or from a switch below. */
SEC("xdp.frags")
int inagg_panama(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct inagg_share *share;
	struct climb c = {};
	struct branch b;
	__u32 row;
	int action;

	if (!p || tree_lookup(&b, p) || find_slot(&b, p))
		return XDP_ABORTED;
	row = b.job->index;
	share = bpf_map_lookup_elem(&shares, &row);
	if (!share || p->leaf >= share->children || share->children > INAGG_MAX_RANKS)
		return drop(b.count, -INAGG_R_RANK);
	c.children = share->children;
	c.at.first = p->leaf;
	p->block.cap = inagg_smaller_cap(p->block.cap, share->cap);
	action = panama_contribute(ctx, p, &b, &c);
	give_back_buffer(c.spare);
	return action;
}

#endif /* INAGG_PANAMA_H */
