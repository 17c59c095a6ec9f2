/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * ATP: core/aggregator.h decides under the aggregator's lock, which also covers its elements.  The parent is a server, or
 * another switch on the way to it.
 */
#ifndef INAGG_ATP_H
#define INAGG_ATP_H

#include <inagg/core/aggregator.h>

/* Aggregators of this switch, a power of two: as bucket_count; and how many of them a job has. */
const volatile __u32 aggregator_count = INAGG_DEFAULT_AGGREGATORS;
const volatile __u32 aggregator_share = INAGG_DEFAULT_AGGREGATORS;
/* Those of a set: fewer than INAGG_AGGREGATOR_WAYS if a job has fewer, or in tests. */
const volatile __u32 aggregator_ways = INAGG_AGGREGATOR_WAYS;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_DEFAULT_AGGREGATORS);
	__type(key, __u32);
	__type(value, struct inagg_aggregator_memory);
} aggregators SEC(".maps");

/* The clock of inagg_aggregator.touched. */
static __always_inline __u32 atp_tick(void)
{
	return bpf_ktime_get_coarse_ns() >> INAGG_AGGREGATOR_TICK_SHIFT;
}

/* Of the set in which the packet's block may have an aggregator, that of number @way. */
static __always_inline struct inagg_aggregator_memory *aggregator_of(const struct packet *p, const struct inagg_job *job, __u32 way)
{
	__u32 key = inagg_shared_entry(job->index, p->block.epoch, aggregator_share, aggregator_count) ^ way;

	return bpf_map_lookup_elem(&aggregators, &key);
}

/* The block's, or one that it may have, or the packet's own, which is taken. */
static __always_inline struct inagg_aggregator_memory *find_aggregator(const struct packet *p, const struct inagg_job *job, __u32 now)
{
	struct inagg_aggregator_memory *best = NULL, *m;
	int fit, best_fit = -1;

	for (__u32 way = 0; way < INAGG_AGGREGATOR_WAYS && way < aggregator_ways; way++) {
		m = aggregator_of(p, job, way);
		if (!m)
			return NULL;
		fit = inagg_aggregator_fit(&m->state, job, &p->block, now);
		if (fit == INAGG_ITS)
			return m;
		if (fit > best_fit) {
			best = m;
			best_fit = fit;
		}
	}
	return best;
}

/* The block's result passes.  0: somebody keeps one of the set.  It may have two, if CPUs took one each at the same moment. */
static __always_inline int free_aggregators(const struct packet *p, const struct inagg_job *job, __u32 now)
{
	for (__u32 way = 0; way < INAGG_AGGREGATOR_WAYS && way < aggregator_ways; way++) {
		struct inagg_aggregator_memory *m = aggregator_of(p, job, way);

		if (!m || !inagg_aggregator_ends(&m->state, job, &p->block, now))
			continue;
		if (!lock_word(&m->busy))
			return 0;
		inagg_aggregator_result(&m->state, job, &p->block, now);
		unlock_word(&m->busy);
	}
	return 1;
}

/* The packet itself goes on to the server, which will move its position to another aggregator. */
static __always_inline int collide(struct xdp_md *ctx, const struct packet *p, const struct branch *b)
{
	b->count->collisions++;
	if (add_flag(ctx, INAGG_F_COLLISION))
		return XDP_ABORTED;
	return pass_up(ctx, p, b);
}

static __always_inline struct place atp_place(struct inagg_aggregator_memory *m)
{
	struct place at = { &m->busy, &m->ready, m->lanes, &m->state.slot, NULL };
	return at;
}

/* The elements of the verdict; the lock is held, and the packet is as long as the sum. */
static __always_inline void atp_move(struct xdp_md *ctx, const struct place *at, const struct packet *p, void *payload, void *end, int verdict)
{
	int fused = 0;

	if (INAGG_VERDICT(verdict) <= INAGG_COUNT)
		fused = fold(ctx, at, p, payload, end, verdict);
	if (!fused && (verdict == INAGG_SEND_UP || (verdict & INAGG_COMPLETES)))
		lanes_load(ctx, (struct lanes *)at->lanes, p->payload / 64);
}

static __always_inline int atp_contribute(struct xdp_md *ctx, struct packet *p, const struct branch *b)
{
	__u32 now = atp_tick();
	struct inagg_aggregator_memory *m = find_aggregator(p, b->job, now);
	__u64 ranks = ranks_of(p, b->job);
	struct report r = {};
	struct inagg_hdr *h;
	struct place at;
	int verdict;
	void *end;

	if (!m)
		return XDP_ABORTED;
	if (!ranks)
		return drop(b->count, -INAGG_R_RANK);
	at = atp_place(m);
	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	if (!lock_word(&m->busy))
		return drop(b->count, -INAGG_R_BUSY);
	verdict = inagg_aggregator_contribute(&m->state, b->job, ranks, &p->block, p->flags, now);
	if (verdict > 0 && INAGG_VERDICT(verdict) != INAGG_PASS_UP && INAGG_VERDICT(verdict) != INAGG_COLLIDES)
		atp_move(ctx, &at, p, h + 1, end, verdict);
	r.state = m->state.slot;
	r.flags = m->state.marks;
	unlock_word(&m->busy);

	if (verdict == -INAGG_R_DUPLICATE)
		b->count->duplicates++;
	if (verdict < 0)
		return drop(b->count, verdict);
	switch (INAGG_VERDICT(verdict)) {
	case INAGG_COLLIDES:
		return collide(ctx, p, b);
	case INAGG_PASS_UP:
		return pass_up(ctx, p, b);
	case INAGG_SEND_UP:
		b->count->duplicates++;
		b->count->relayed++;
		break;
	default:
		b->count->additions++;
		b->count->elements += p->block.elements;
		if (!(verdict & INAGG_COMPLETES))
			return XDP_DROP;
	}
	if (r.state.seen == b->job->all)
		b->count->completions++;
	else
		b->count->partials++;
	r.count = inagg_count_ranks(r.state.seen);
	r.epoch = p->block.epoch;
	answer(ctx, p, b->job, INAGG_PARTIAL, &r);
	return send_up(ctx, p, b);
}

/* What a router on the way said about its queue goes on in the header: to an aggregator's sum, or with the packet. */
static __always_inline int note_congestion(const struct xdp_md *ctx, struct packet *p)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);

	if (data + INAGG_HDR4 > end)
		return -1;
	if (!is_marked(data, family_of(data)))
		return 0;
	p->flags |= INAGG_F_CONGESTION;
	return add_flag(ctx, INAGG_F_CONGESTION);
}

/* From a rank, or from a switch below. */
SEC("xdp.frags")
int inagg_atp(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct branch b;

	if (!p || tree_lookup(&b, p) || note_congestion(ctx, p))
		return XDP_ABORTED;
	switch (p->type) {
	case INAGG_CONTRIBUTION:
	case INAGG_PARTIAL:
		return atp_contribute(ctx, p, &b);
	case INAGG_REQUEST:
		return pass_up(ctx, p, &b);
	default:
		return drop(b.count, -INAGG_R_TYPE);	/* a server forgets nothing that could be restored */
	}
}

/*
 * What the server says goes to ranks as if from here: its RESULT, which frees its aggregator, and its WAIT, to all of
 * them or to the one that asked.
 */
static __always_inline int atp_from_parent(struct xdp_md *ctx, struct packet *p, const struct branch *b)
{
	struct report r = { .flags = p->flags, .epoch = p->block.epoch, .state.seen = p->block.contributors };
	struct inagg_hdr *h;
	__u32 payload;
	void *end;

	if (note_congestion(ctx, p))
		return XDP_ABORTED;
	if (p->type == INAGG_WAIT)
		return send_wait_down(ctx, p, b, &r);
	if (p->block.contributors != b->tree.everyone)
		return drop(b->count, -INAGG_R_RANK);
	if (!free_aggregators(p, b->job, atp_tick()))
		return drop(b->count, -INAGG_R_BUSY);
	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	payload = inagg_hdr_payload_part(h);
	h->boot = bpf_htons(p->boot);	/* ranks know one switch, and would take another's for a restart of theirs */
	inagg_hdr_reseal(h, payload);
	b->count->replies++;
	return send_down(ctx, p, b);
}

#endif /* INAGG_ATP_H */
