/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SwitchML in a tree of switches: core/tree.h decides under the slot's lock.  What comes from below has passed the
 * root program's admission, what comes from the parent that of parent.h.
 */
#ifndef INAGG_BPF_TREE_H
#define INAGG_BPF_TREE_H

#include <inagg/core/tree.h>

/* What a router on the way said of its queue counts like the flag of a switch. */
static __always_inline void note_mark(const struct xdp_md *ctx, struct packet *p)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);

	if (data + INAGG_HDR4 <= end && is_marked(data, family_of(data)))
		p->block.marks |= INAGG_F_CONGESTION;
}

/* What a packet of a job meets. */
struct branch {
	struct inagg_job *job;
	struct inagg_uplink *uplink;
	struct inagg_slot_memory *memory;
	struct inagg_stats *count;
	struct inagg_tree tree;
};

static __always_inline int tree_lookup(struct branch *b, const struct packet *p)
{
	__u32 number = p->job, row;

	b->job = bpf_map_lookup_elem(&jobs, &number);
	if (!b->job || !b->job->size)
		return -1;
	row = b->job->index;
	b->tree.here = b->job->all;
	b->tree.everyone = inagg_all_ranks(b->job->size);
	b->uplink = bpf_map_lookup_elem(&uplinks, &row);
	b->count = get_stats(row);
	return b->uplink && b->count ? 0 : -1;
}

__attribute__((noinline)) int end_merge(struct inagg_slot_memory *m);	/* panama.h */

/*
 * Floats of the slot's block may have been lost where they were added (panama.h): then it begins anew.  To be asked before
 * anybody is told who is in: who is not told that its elements are gone does not send them again.  The lock is held.
 */
static __always_inline void forget_lost(struct inagg_slot_memory *m)
{
	/* exchanged, as a climber marks without the lock: what comes after is the next one's to find */
	if (m->lost && __sync_lock_test_and_set(&m->lost, 0) && inagg_tree_lose(&m->state))
		end_merge(m);
}

/* Somebody waits for the packet's block, perhaps the one whose floats are added in the slot.  The lock is held. */
static __always_inline void touch_merge(struct inagg_slot_memory *m, const struct packet *p)
{
	if (m->holder && inagg_slot_holds(&m->state, &p->block))
		m->touched_ns = bpf_ktime_get_coarse_ns();
}

static __always_inline int find_slot(struct branch *b, const struct packet *p)
{
	b->memory = bpf_map_lookup_elem(&slots, &p->slot_key);
	return b->memory ? 0 : -1;
}

/* The finished frame goes to the parent. */
static __always_inline int send_up(struct xdp_md *ctx, const struct packet *p, const struct branch *b)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	int verdict;

	if (!b->uplink->ifindex)
		return drop(b->count, -INAGG_R_PARENT);
	verdict = spend_uplink_quota(b->job, end - data);
	if (verdict < 0)
		return drop(b->count, verdict);
	if (is_queue_long(b->uplink->ifindex, end - data) || verdict) {
		if (add_flag(ctx, INAGG_F_CONGESTION))
			return XDP_ABORTED;
		data = frame_data(ctx);
		end = frame_end(ctx);
	}
	if (write_headers(data, end, b->uplink->family, p->payload, own_end(b->uplink), far_end(b->uplink), bpf_htons(INAGG_PORT)))
		return XDP_ABORTED;
	return leave_by(b->uplink->ifindex);
}

/* The packet itself goes to the parent. */
static __always_inline int pass_up(struct xdp_md *ctx, const struct packet *p, const struct branch *b)
{
	int action = send_up(ctx, p, b);

	b->count->relayed += action == XDP_REDIRECT;
	return action;
}

/* The sum of all ranks here, in a frame of as many elements. */
static __always_inline int send_partial(struct xdp_md *ctx, struct packet *p, const struct branch *b,
					const struct place *at, const struct report *r)
{
	__u32 bytes = r->state.elements * 4;
	int there;

	if (bytes > INAGG_MAX_PAYLOAD || resize(ctx, p, bytes))
		return drop(b->count, -INAGG_R_RESIZE);
	if (!lock_word(at->busy))
		return drop(b->count, -INAGG_R_BUSY);
	there = still_there(at, p, b->job) && (at->state->flags & INAGG_SLOT_SENT);
	if (there)
		lanes_load(ctx, (struct lanes *)at->lanes, bytes / 64);
	unlock_word(at->busy);
	if (!there)
		return drop(b->count, -INAGG_R_STALE);
	p->block.dtype_op = r->state.dtype_op;	/* a duplicate may claim another */
	p->block.scale = r->state.scale;
	answer(ctx, p, b->job, INAGG_PARTIAL, r);
	return send_up(ctx, p, b);
}

/* The ranks whose sum the packet is; 0: its sender may not speak for them. */
static __always_inline __u64 ranks_of(const struct packet *p, const struct inagg_job *job)
{
	if (p->type != INAGG_PARTIAL)
		return inagg_rank_bit(p->block.rank);
	return p->block.contributors & ~subtree_of(job, p->block.rank) ? 0 : p->block.contributors;
}

/* The packet's ranks are in already. */
static __always_inline int tree_repeat(struct xdp_md *ctx, struct packet *p, const struct branch *b, const struct place *at,
				       struct report *r, int action)
{
	b->count->duplicates++;
	if (action == INAGG_REPLY)
		return deliver(ctx, p, b->job, at, r, b->count, 0);
	if (action == INAGG_SEND_UP) {
		b->count->relayed++;
		return send_partial(ctx, p, b, at, r);
	}
	b->count->waits++;
	r->state.seen |= b->tree.everyone & ~b->tree.here;
	return tell(ctx, p, b->job, b->count, r, 0);
}

/* What there is to say about the packet's block in the slot, whose lock is held. */
static __always_inline struct report tree_report(const struct branch *b, const struct packet *p)
{
	struct report r = switchml_report(&b->memory->state, b->job);

	r.state.seen = inagg_slot_seen(&b->memory->state, &p->block);
	r.count = inagg_count_ranks(r.state.seen);
	return r;
}

/* The packet's elements are the sum of all ranks here: it goes up, or to all of them. */
static __always_inline int tree_finish(struct xdp_md *ctx, struct packet *p, const struct branch *b, const struct report *r)
{
	if (r->state.flags & INAGG_SLOT_SENT) {
		answer(ctx, p, b->job, INAGG_PARTIAL, r);
		return send_up(ctx, p, b);
	}
	answer(ctx, p, b->job, INAGG_RESULT, r);
	return send(ctx, p, b->job, b->count, 1);
}

static __always_inline int tree_contribute(struct xdp_md *ctx, struct packet *p, const struct branch *b)
{
	struct place at = switchml_place(b->memory);
	__u64 ranks = ranks_of(p, b->job);
	int verdict, action, fused = 0;
	struct inagg_hdr *h;
	struct report r;
	void *end;

	if (!ranks)
		return drop(b->count, -INAGG_R_RANK);
	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	if (!lock_slot(b->memory))
		return drop(b->count, -INAGG_R_BUSY);
	if (b->memory->holder && inagg_slot_is_new(&b->memory->state, &p->block))
		end_merge(b->memory);
	verdict = inagg_tree_contribute(&b->memory->state, &b->tree, ranks, &p->block);
	action = verdict & ~INAGG_COMPLETES;
	if (verdict > 0 && action <= INAGG_COUNT)
		fused = fold(ctx, &at, p, h + 1, end, verdict);
	r = tree_report(b, p);
	unlock_slot(b->memory);

	if (verdict < 0)
		return drop(b->count, verdict);
	if (action > INAGG_COUNT)
		return tree_repeat(ctx, p, b, &at, &r, action);
	b->count->additions++;
	b->count->elements += p->block.elements;
	if (!(verdict & INAGG_COMPLETES))
		return XDP_DROP;

	b->count->completions++;
	if (fused)
		return tree_finish(ctx, p, b, &r);
	if (r.state.flags & INAGG_SLOT_SENT)
		return send_partial(ctx, p, b, &at, &r);
	return deliver(ctx, p, b->job, &at, &r, b->count, 1);
}

static __always_inline int tree_request(struct xdp_md *ctx, struct packet *p, const struct branch *b)
{
	struct place at = switchml_place(b->memory);
	struct report r;
	int verdict;

	if (!lock_slot(b->memory))
		return drop(b->count, -INAGG_R_BUSY);
	forget_lost(b->memory);
	touch_merge(b->memory, p);
	verdict = inagg_tree_request(&b->memory->state, &p->block, p->flags & INAGG_F_MULTICAST);
	r = switchml_report(&b->memory->state, b->job);
	r.state.seen = inagg_tree_seen(&b->memory->state, &b->tree, &p->block);
	unlock_slot(b->memory);
	if (verdict < 0)
		return drop(b->count, verdict);
	if (verdict == INAGG_PASS_UP)
		return pass_up(ctx, p, b);
	if (verdict == INAGG_REPLY)
		return deliver(ctx, p, b->job, &at, &r, b->count, 0);
	b->count->waits++;
	if (verdict == INAGG_TELL_ALL)
		r.flags = INAGG_F_MULTICAST;	/* switches below pass it on likewise */
	return tell(ctx, p, b->job, b->count, &r, verdict == INAGG_TELL_ALL);
}

/* A result, given back by a rank or passed down by the parent, for all ranks here. */
static __always_inline int tree_take(struct xdp_md *ctx, struct packet *p, const struct branch *b)
{
	struct inagg_slot *state = &b->memory->state;
	struct inagg_hdr *h;
	struct report r;
	int verdict;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	if (!lock_slot(b->memory))
		return drop(b->count, -INAGG_R_BUSY);
	verdict = p->type == INAGG_RESULT ? inagg_tree_result(state, &b->tree, &p->block) :
					    inagg_tree_restore(state, &b->tree, &p->block);
	if (verdict > 0 && (verdict & INAGG_COMPLETES)) {
		packet_to_result(h + 1, end, b->memory->lanes, p->payload / 64);
		b->memory->ready = 1;
		end_merge(b->memory);
	}
	r = switchml_report(state, b->job);
	unlock_slot(b->memory);
	if (verdict < 0)
		return drop(b->count, verdict);
	if (verdict == INAGG_PASS_UP)
		return pass_up(ctx, p, b);
	if (p->type == INAGG_RESTORE)
		b->count->restores++;
	else
		b->count->relayed++;
	answer(ctx, p, b->job, INAGG_RESULT, &r);
	return send(ctx, p, b->job, b->count, 1);
}

/* From a rank, or from a switch below. */
SEC("xdp.frags")
int inagg_tree(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct branch b;

	if (!p || tree_lookup(&b, p) || find_slot(&b, p))
		return XDP_ABORTED;
	note_mark(ctx, p);
	switch (p->type) {
	case INAGG_CONTRIBUTION:
	case INAGG_PARTIAL:
		if (!is_float(p->block.dtype_op))
			return tree_contribute(ctx, p, &b);
		bpf_tail_call(ctx, &algorithms, INAGG_CALL_PANAMA);
		return drop(b.count, -INAGG_R_ALGORITHM);
	case INAGG_RESTORE:
		return tree_take(ctx, p, &b);
	default:
		return tree_request(ctx, p, &b);
	}
}

/* The finished frame of the parent, to the rank in it or to all. */
static __always_inline int send_down(struct xdp_md *ctx, const struct packet *p, const struct branch *b)
{
	void *data, *end;
	struct inagg_member *m;
	struct endpoint to;
	__u32 family;

	if (p->flags & INAGG_F_MULTICAST)
		return multicast(ctx, p->payload, b->job, b->count);
	m = member_of(b->job, p->block.rank);
	data = frame_data(ctx);
	end = frame_end(ctx);
	if (data + INAGG_HDR4 > end || !m || !m->ifindex)
		return drop(b->count, -INAGG_R_RANK);
	family = family_of(data);
	to.mac = (void *)m->mac;
	to.address = m->address;
	if (m->family != family ||
	    write_headers(data, end, family, p->payload, destination_of(data, family), to, m->receive_port))
		return drop(b->count, -INAGG_R_ADDRESS);
	return leave_by(m->ifindex);
}

/*
 * The parent's WAIT, as if from here, since ranks know one switch, and would take another's boot id for a restart of
 * theirs.
 */
static __always_inline int send_wait_down(struct xdp_md *ctx, const struct packet *p, const struct branch *b,
					  const struct report *r)
{
	answer(ctx, p, b->job, INAGG_WAIT, r);
	b->count->waits++;
	return send_down(ctx, p, b);
}

#endif /* INAGG_BPF_TREE_H */
