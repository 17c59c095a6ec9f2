/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SwitchML in XDP (Algorithm 3): core/slot.h decides under the slot's lock, which also covers the
 * elements: two ports' cores may meet in one slot, and a result must not leave before its last
 * addition.
 */
#ifndef INAGG_SWITCHML_H
#define INAGG_SWITCHML_H

static __always_inline int lock_slot(struct inagg_slot_memory *m)
{
	return lock_word(&m->busy);
}

static __always_inline void unlock_slot(struct inagg_slot_memory *m)
{
	unlock_word(&m->busy);
}

static __always_inline struct place switchml_place(struct inagg_slot_memory *m)
{
	struct place at = { &m->busy, &m->ready, m->lanes, &m->state, NULL };
	return at;
}

/* A result has all ranks in it. */
static __always_inline struct report switchml_report(const struct inagg_slot *state, const struct inagg_job *job)
{
	struct report r = { .state = *state, .count = job->size };
	return r;
}

static __always_inline int switchml_contribute(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
					       struct inagg_slot_memory *m, struct inagg_stats *count)
{
	struct place at = switchml_place(m);
	int verdict, action, fused = 0;
	struct inagg_hdr *h;
	struct report r;
	void *end;

	if (widen_elements(ctx, p, job))
		return XDP_ABORTED;
	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;

	if (!lock_slot(m))
		return drop(count, -INAGG_R_BUSY);
	verdict = inagg_slot_contribute(&m->state, job->all, &p->block);
	action = verdict & ~INAGG_COMPLETES;
	if (verdict > 0 && action <= INAGG_COUNT)
		fused = fold(ctx, &at, p, h + 1, end, verdict);
	r = switchml_report(&m->state, job);
	unlock_slot(m);

	if (verdict < 0)
		return drop(count, verdict);
	if (action == INAGG_REPLY) {
		count->duplicates++;
		return deliver(ctx, p, job, &at, &r, count, 0);
	}
	if (action == INAGG_TELL) {
		count->duplicates++;
		count->waits++;
		return tell(ctx, p, job, count, &r, 0);
	}
	count->additions++;
	count->elements += p->block.elements;
	if (!(verdict & INAGG_COMPLETES))
		return XDP_DROP;	/* folded in; nothing to say yet */

	count->completions++;
	if (fused) {
		answer(ctx, p, job, INAGG_RESULT, &r);
		return send(ctx, p, job, count, 1);
	}
	return deliver(ctx, p, job, &at, &r, count, 1);
}

static __always_inline int switchml_request(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
					    struct inagg_slot_memory *m, struct inagg_stats *count)
{
	struct place at = switchml_place(m);
	struct report r;
	int verdict;

	if (!lock_slot(m))
		return drop(count, -INAGG_R_BUSY);
	verdict = inagg_slot_request(&m->state, &p->block, p->flags & INAGG_F_MULTICAST);
	r = switchml_report(&m->state, job);
	r.state.seen = inagg_slot_seen(&m->state, &p->block);
	unlock_slot(m);
	if (verdict < 0)
		return drop(count, verdict);
	if (verdict == INAGG_REPLY)
		return deliver(ctx, p, job, &at, &r, count, 0);
	count->waits++;
	return tell(ctx, p, job, count, &r, verdict == INAGG_TELL_ALL);
}

static __always_inline int switchml_restore(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
					    struct inagg_slot_memory *m, struct inagg_stats *count)
{
	struct inagg_hdr *h;
	struct report r;
	int verdict;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	if (!lock_slot(m))
		return drop(count, -INAGG_R_BUSY);
	verdict = inagg_slot_restore(&m->state, job->all, &p->block);
	if (verdict > 0) {
		packet_to_result(h + 1, end, m->lanes, p->payload / 64);
		m->ready = 1;
	}
	r = switchml_report(&m->state, job);
	unlock_slot(m);
	if (verdict < 0)
		return drop(count, verdict);
	count->restores++;
	answer(ctx, p, job, INAGG_RESULT, &r);
	return send(ctx, p, job, count, 1);
}

#endif /* INAGG_SWITCHML_H */
