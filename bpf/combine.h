/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Trio-ML in a tree of switches.  At the root core/record.h decides, as on a switch that stands alone; below it
 * core/combiner.h adds up.  Both under the lock of the block's bucket.
 */
#ifndef INAGG_COMBINE_H
#define INAGG_COMBINE_H

/* What a WAIT says of a record whose lock is held. */
static __always_inline struct report waiting_report(const struct trio *t)
{
	struct report r = { .state.seen = inagg_combiner_seen(t->record, t->job) };

	return r;
}

/* inagg_combiner_contribute() for a packet, or inagg_combiner_result(); otherwise as trio_fold(). */
__attribute__((noinline)) int combine_fold(struct inagg_bucket_memory *m, struct inagg_floor_memory *f,
					   const struct inagg_job *job, const struct inagg_job_policy *policy,
					   struct packet *p)
{
	__u32 row, *open;
	int verdict;

	if (!m || !f || !job || !policy || !p)
		return -INAGG_R_JOB;
	row = job->index;
	open = bpf_map_lookup_elem(&open_records, &row);
	if (!open)
		return -INAGG_R_JOB;
	if (policy->generation != p->block.generation)
		return -INAGG_R_GENERATION;
	if (!lock_word(&f->busy))
		return -INAGG_R_BUSY;
	if (p->type == INAGG_RESULT)
		verdict = inagg_combiner_result(m->records, &f->floor, job, &p->block, &p->way);
	else
		verdict = inagg_combiner_contribute(m->records, &f->floor, job, &policy->policy, *open, ranks_in(p),
						    &p->block, &p->way, &p->loser);
	unlock_word(&f->busy);
	if (p->loser.lost)
		count_gone(p->loser.job, p->loser.generation);
	if (verdict > 0)	/* a record whose sum is sent remains open */
		count_open(open, p->type == INAGG_RESULT ? verdict : verdict & INAGG_OPENS);
	return verdict;
}

static __always_inline int combine_contribute(struct xdp_md *ctx, struct packet *p, struct trio *t, const struct branch *b)
{
	struct inagg_floor_memory *floor = floor_of(p);
	int verdict, action, fused = 0;
	struct report r;
	struct place at;

	if (!floor)
		return drop(t->count, -INAGG_R_SLOT);
	if (!lock_word(&t->bucket->busy))
		return drop(t->count, -INAGG_R_BUSY);
	verdict = combine_fold(t->bucket, floor, t->job, t->policy, p);
	if (trio_place(t, p, &at)) {
		unlock_word(&t->bucket->busy);
		return XDP_ABORTED;
	}
	action = INAGG_VERDICT(verdict);
	if (verdict > 0 && action <= INAGG_COUNT)
		fused = trio_move(ctx, t->memory, at.state, p, verdict);
	r = trio_report(t->record);
	if (action == INAGG_TELL)
		r = waiting_report(t);
	unlock_word(&t->bucket->busy);

	if (verdict < 0)
		return drop(t->count, verdict);
	if (action == INAGG_PASS_UP)
		return pass_up(ctx, p, b);
	if (action == INAGG_REPLY)
		return trio_reply(ctx, p, t, &at, &r);
	if (action == INAGG_TELL) {
		t->count->duplicates++;
		return trio_tell(ctx, p, t, &r, 0);
	}
	if (action == INAGG_SEND_UP) {
		t->count->duplicates++;
		t->count->relayed++;
		return send_partial(ctx, p, b, &at, &r);
	}
	if (action == INAGG_COUNT && p->block.elements) {	/* was in already, or is absent, and found the sum due */
		t->count->expired++;
	} else {
		t->count->additions++;
		t->count->elements += p->block.elements;
	}
	if (!(verdict & INAGG_COMPLETES))
		return XDP_DROP;
	t->count->completions++;
	if (!fused)
		return send_partial(ctx, p, b, &at, &r);
	answer(ctx, p, t->job, INAGG_PARTIAL, &r);
	return send_up(ctx, p, b);
}

static __always_inline int combine_request(struct xdp_md *ctx, struct packet *p, struct trio *t, const struct branch *b)
{
	int verdict, way;
	struct report r;
	struct place at;

	if (!lock_word(&t->bucket->busy))
		return drop(t->count, -INAGG_R_BUSY);
	verdict = inagg_combiner_request(t->bucket->records, t->job, &p->block, p->flags & INAGG_F_MULTICAST, &way);
	p->way = way;
	if (trio_place(t, p, &at)) {
		unlock_word(&t->bucket->busy);
		return XDP_ABORTED;
	}
	r = trio_report(t->record);
	if (verdict == INAGG_TELL)
		r = waiting_report(t);
	unlock_word(&t->bucket->busy);
	if (verdict == INAGG_PASS_UP)
		return pass_up(ctx, p, b);
	if (verdict == INAGG_TELL)
		return trio_tell(ctx, p, t, &r, 0);
	return deliver(ctx, p, t->job, &at, &r, t->count, 0);
}

/* From a rank, or from a switch below. */
SEC("xdp.frags")
int inagg_combine(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct branch b;
	struct trio t;
	int below;

	if (!p || tree_lookup(&b, p) || trio_lookup(&t, p))
		return XDP_ABORTED;
	if (!fits_slot(t.job, p))
		return drop(t.count, -INAGG_R_SLOT);
	if (!ranks_of(p, t.job))
		return drop(t.count, -INAGG_R_RANK);
	below = inagg_job_has_parent(t.job);
	attend(t.job->index, p->block.rank);
	switch (p->type) {
	case INAGG_CONTRIBUTION:
	case INAGG_PARTIAL:
		return below ? combine_contribute(ctx, p, &t, &b) : trio_contribute(ctx, p, &t);
	case INAGG_RESTORE:
		return below ? pass_up(ctx, p, &b) : trio_restore(ctx, p, &t);
	default:
		return below ? combine_request(ctx, p, &t, &b) : trio_request(ctx, p, &t);
	}
}

/* What the parent has decided, for all ranks here, whether or not there is room to keep it. */
static __always_inline int combine_result(struct xdp_md *ctx, struct packet *p, struct trio *t)
{
	struct inagg_floor_memory *floor = floor_of(p);
	struct inagg_hdr *h;
	struct report r = {};
	struct place at;
	int verdict;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	if (!floor)
		return drop(t->count, -INAGG_R_SLOT);
	if (!lock_word(&t->bucket->busy))
		return drop(t->count, -INAGG_R_BUSY);
	verdict = combine_fold(t->bucket, floor, t->job, t->policy, p);
	if (trio_place(t, p, &at)) {
		unlock_word(&t->bucket->busy);
		return XDP_ABORTED;
	}
	if (verdict > 0 && verdict != INAGG_PASS_DOWN) {
		packet_to_result(h + 1, end, at.lanes, p->payload / 64);
		*at.ready = 1;
	}
	unlock_word(&t->bucket->busy);
	if (verdict < 0)
		return drop(t->count, verdict);
	t->count->relayed++;
	r.state.seen = p->block.contributors;
	r.state.next_scale = p->block.next_scale;
	r.state.elements = p->block.elements;
	r.state.marks = p->block.marks;
	r.state.cap = p->block.cap;
	r.state.flags = p->block.saturated ? INAGG_SLOT_SATURATED : 0;
	r.count = inagg_count_ranks(p->block.contributors);
	r.flags = p->block.contributors != inagg_all_ranks(t->job->size) ? INAGG_F_DEGRADED : 0;
	r.epoch = p->block.epoch;
	answer(ctx, p, t->job, INAGG_RESULT, &r);
	return send(ctx, p, t->job, t->count, 1);
}

static __always_inline int combine_wait(struct xdp_md *ctx, struct packet *p, struct trio *t, const struct branch *b)
{
	struct report r = { .flags = p->flags, .epoch = p->block.epoch };
	struct inagg_hdr *h;
	int closes;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	r.cap = bpf_ntohs(h->window_cap);
	if (!lock_word(&t->bucket->busy))
		return drop(t->count, -INAGG_R_BUSY);
	r.state.seen = inagg_combiner_wait(t->bucket->records, t->job, &p->block, p->flags & INAGG_F_MULTICAST, &closes);
	unlock_word(&t->bucket->busy);
	if (closes)
		__sync_fetch_and_sub(t->open, 1);
	return send_wait_down(ctx, p, b, &r);
}

/* RESULT or WAIT of the parent. */
SEC("xdp.frags")
int inagg_combined(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct branch b;
	struct trio t;

	if (!p || tree_lookup(&b, p) || trio_lookup(&t, p))
		return XDP_ABORTED;
	if (!fits_slot(t.job, p))
		return drop(t.count, -INAGG_R_SLOT);
	if (p->type == INAGG_WAIT)
		return combine_wait(ctx, p, &t, &b);
	return combine_result(ctx, p, &t);
}

#endif /* INAGG_COMBINE_H */
