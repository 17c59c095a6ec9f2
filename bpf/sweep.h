/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Blocks that wait for stragglers (Trio-ML §5).  N timers, 1/N of the period apart, each look at 1/N of the
 * buckets and age their records.  A timer cannot send: it puts blocks that have expired into a queue, and wakes
 * the agent, who runs inagg_tick on as many frames; each frame becomes the result of one block.  With the agent
 * away the next contribution to the block decides it.
 *
 * A block is queued anew by every sweep until it is decided, since ticks may be lost.
 */
#ifndef INAGG_SWEEP_H
#define INAGG_SWEEP_H

#include <linux/time.h>

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_sweep_settings);
} sweep_settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_SWEEPERS);
	__type(key, __u32);
	__type(value, struct inagg_sweeper);
} sweepers SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_sweeper);
} hand_sweeper SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_sweep_process);
} sweep_process SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, INAGG_EXPIRED_QUEUE);
	__uint(key_size, 0);
	__uint(value_size, sizeof(struct inagg_expired));
} expired SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4096);
} due SEC(".maps");

/* One visit to a run of buckets. */
struct visit {
	__u32	first;
	__u32	ages;		/* 0: only looks for what is full, since ranks were excluded */
	__u32	records;
	__u32	expired;
	__u32	busy;
};

static __always_inline struct inagg_sweep_settings *get_sweep_settings(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&sweep_settings, &zero);
}

static __always_inline void sweep_record(struct inagg_record *r, struct visit *v)
{
	struct inagg_job_policy *policy;
	struct inagg_expired e = {};
	__u32 row = r->job, number, *open;
	struct inagg_job *job;

	if (!(r->slot.flags & INAGG_SLOT_LIVE))
		return;
	v->records++;
	if (r->slot.flags & INAGG_SLOT_COMPLETE) {	/* whoever's: most are, and the oldest makes room for another */
		if (v->ages)
			inagg_record_grow_older(r);
		return;
	}
	policy = bpf_map_lookup_elem(&policies, &row);
	if (!policy || policy->generation != r->slot.generation) {
		r->slot.flags = 0;
		return;
	}
	number = policy->job;
	job = bpf_map_lookup_elem(&jobs, &number);
	if (!job)
		return;
	switch (v->ages ? inagg_record_sweep(r, job, &policy->policy, inagg_epoch_of(bpf_ktime_get_coarse_ns())) :
			  inagg_record_excuse(r, job)) {
	case INAGG_SWEEP_EXPIRED:
		e.block = r->slot.block;
		e.generation = r->slot.generation;
		e.job = policy->job;
		e.stream = r->stream;
		bpf_map_push_elem(&expired, &e, 0);
		v->expired++;
		break;
	case INAGG_SWEEP_FREED:
		open = bpf_map_lookup_elem(&open_records, &row);
		if (open)
			__sync_fetch_and_sub(open, 1);
		break;
	}
}

static long sweep_bucket(__u32 i, void *context)
{
	struct visit *v = context;
	__u32 key = v->first + i;
	struct inagg_bucket_memory *m = bpf_map_lookup_elem(&buckets, &key);

	if (!m)
		return 1;
	if (!try_lock_word(&m->busy)) {
		v->busy++;
		return 0;
	}
	for (int way = 0; way < INAGG_WAYS; way++)
		sweep_record(&m->records[way], v);
	unlock_word(&m->busy);
	return 0;
}

/* Wake the agent: so many blocks are in the queue now. */
static __always_inline void ring(__u32 count)
{
	struct inagg_due *due_now = bpf_ringbuf_reserve(&due, sizeof(*due_now), 0);

	if (!due_now)
		return;
	due_now->expired = count;
	bpf_ringbuf_submit(due_now, 0);
}

/* Sweeper @s visits the @part-th of @parts of the buckets; @ages as in struct visit. */
static __always_inline void sweep(struct inagg_sweeper *s, __u32 part, __u32 parts, __u32 ages)
{
	__u64 start = bpf_ktime_get_ns(), spent;
	__u32 end = bucket_count * (part + 1) / parts;
	struct visit v = { .first = bucket_count * part / parts, .ages = ages };

	bpf_loop(end - v.first, sweep_bucket, &v, 0);
	if (v.expired)
		ring(v.expired);
	spent = bpf_ktime_get_ns() - start;
	s->runs++;
	s->records += v.records;
	s->expired += v.expired;
	s->busy += v.busy;
	s->ns += spent;
	if (spent > s->longest_ns)
		s->longest_ns = spent;
}

static int sweep_due(void *map __attribute__((unused)), __u32 *index, struct inagg_sweeper *s)
{
	struct inagg_sweep_settings *set = get_sweep_settings();
	__u32 part = *index, parts = set ? set->sweepers : 0;
	__u64 now;

	if (part >= parts)
		return 0;	/* stopped */
	sweep(s, part, parts, 1);
	now = bpf_ktime_get_ns();
	/* Visits that it is too late for are left out, and the phase stays. */
	s->due_ns += ((now > s->due_ns ? now - s->due_ns : 0) / set->period_ns + 1) * set->period_ns;
	bpf_timer_start(&s->timer, s->due_ns - now, 0);
	return 0;
}

struct schedule {
	__u64	now;
	__u64	period_ns;
	__u32	sweepers;
	__u32	failed;
};

static long schedule_sweeper(__u32 i, void *context)
{
	struct schedule *plan = context;
	struct inagg_sweeper *s = bpf_map_lookup_elem(&sweepers, &i);
	__u64 phase;

	if (!s)
		return 1;
	bpf_timer_init(&s->timer, &sweepers, CLOCK_MONOTONIC);	/* if there is none yet */
	bpf_timer_cancel(&s->timer);
	if (i >= plan->sweepers)
		return 0;
	phase = plan->period_ns * (i + 1) / plan->sweepers;
	s->due_ns = plan->now + phase;
	s->runs = s->ns = s->longest_ns = 0;
	/* the kernel may have had no memory at hand to make the timer */
	if (bpf_timer_set_callback(&s->timer, sweep_due) || bpf_timer_start(&s->timer, phase, 0))
		plan->failed++;
	return 0;
}

/*
 * Run by the agent on a frame that holds struct inagg_sweep_settings: start so many sweepers, or with 0 stop all.
 * XDP_ABORTED: not all could be started, try again.
 * Not a syscall program, because those are sleepable, and sleepable programs may not use queues before Linux 6.7.
 */
SEC("xdp")
int inagg_sweep(struct xdp_md *ctx)
{
	struct inagg_sweep_settings *set = get_sweep_settings(), *want = frame_data(ctx);
	struct schedule plan = { .now = bpf_ktime_get_ns() };

	if (!set || (void *)(want + 1) > frame_end(ctx) || want->sweepers > INAGG_MAX_SWEEPERS ||
	    (want->sweepers && !want->period_ns))
		return XDP_ABORTED;
	*set = *want;
	plan.period_ns = set->period_ns;
	plan.sweepers = set->sweepers;
	bpf_loop(INAGG_MAX_SWEEPERS, schedule_sweeper, &plan, 0);
	return plan.failed ? XDP_ABORTED : XDP_DROP;
}

/* One sweep over all buckets, whatever the timers do; on a frame whose first byte is struct visit's `ages`. */
SEC("xdp")
int inagg_sweep_once(struct xdp_md *ctx)
{
	__u8 *ages = frame_data(ctx);
	__u32 zero = 0;
	struct inagg_sweeper *s = bpf_map_lookup_elem(&hand_sweeper, &zero);

	if (!s || (void *)(ages + 1) > frame_end(ctx))
		return XDP_ABORTED;
	sweep(s, 0, 1, *ages);
	return XDP_DROP;
}

/* Decide an expired record, whose lock is held, with the ranks that are in; below another switch, send it. */
static __always_inline int finish_record(const struct trio *t)
{
	int below = inagg_job_has_parent(t->job);
	int verdict = below ? inagg_combiner_finish(t->record) : inagg_record_finish(t->record, t->job);

	if (verdict < 0)
		return verdict;
	t->memory->ready = !is_half(t->record->slot.dtype_op);
	count_open(t->open, below ? 0 : verdict);
	return verdict;
}

/* Find the expired block of @e and decide it, if it is still waiting.  0, or a negative reason. */
static __always_inline int decide_expired(struct packet *p, struct trio *t, struct place *at, struct report *r)
{
	int found, verdict = -INAGG_R_STALE;

	if (!lock_word(&t->bucket->busy))
		return -INAGG_R_BUSY;
	found = inagg_record_find(t->bucket->records, t->job->index, &p->block);
	p->way = found;
	if (found >= 0 && !trio_place(t, p, at)) {
		verdict = finish_record(t);
		*r = trio_report(t->record);
	}
	unlock_word(&t->bucket->busy);
	return verdict;
}

/*
 * Make the frame look as if this rank had asked this switch about the block, whatever was in it: the
 * pages of live frames are used again.
 */
static __always_inline int dress(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job, __u32 rank)
{
	const struct inagg_sweep_settings *sweep = get_sweep_settings();
	const struct inagg_switch_settings *set;
	struct endpoint here, asker;
	__u32 zero = 0, family, position;
	struct inagg_member *m;
	struct ipv6hdr *ip6;
	struct datagram *d;
	void *data, *end;

	set = bpf_map_lookup_elem(&settings, &zero);
	m = member_of(job, rank);
	if (!sweep || !set || !m || !m->ifindex)
		return -1;
	data = frame_data(ctx);
	end = frame_end(ctx);
	ip6 = data + ETH_HLEN;
	if (data + INAGG_HDR6 > end)
		return -1;
	*(__be16 *)(data + offsetof(struct ethhdr, h_proto)) = m->family == 6 ? bpf_htons(ETH_P_IPV6) :
										bpf_htons(ETH_P_IP);
	*(__be32 *)ip6 = m->family == 6 ? bpf_htonl(0x60000000) : bpf_htonl(0x45000000);
	if (m->family == 6)
		ip6->nexthdr = IPPROTO_UDP;
	family = family_of(data);
	here.mac = (const void *)sweep->mac;
	here.address = family == 4 ? (const void *)&set->address4 : (const void *)set->address6;
	asker.mac = (const void *)m->mac;
	asker.address = m->address;
	d = datagram_of(data, end, family);
	if (!d || write_headers(data, end, family, p->payload, asker, here, 0))
		return -1;
	p->payload = end - (void *)(d + 1);
	p->boot = set->boot;
	position = inagg_position_of(job, p->block.stream, p->block.block);
	p->flags = INAGG_F_RESEND;	/* nor does the expiry say anything about the path */
	if (p->block.block & (p->block.stream ? job->control_slots : job->slots))
		p->flags |= INAGG_F_VERSION;
	__builtin_memset(&d->hdr, 0, sizeof(d->hdr));
	d->hdr.job = bpf_htons(p->job);
	d->hdr.generation = bpf_htons(p->block.generation);
	d->hdr.block = bpf_htonl(p->block.block);
	d->hdr.slot = bpf_htonl(position);
	d->hdr.source = bpf_htons(rank);
	return 0;
}

/* On a frame with room for a result: the result of one expired block, to all ranks, or what is here of it, to the parent or,
 * with canary, to the leader. */
SEC("xdp.frags")
int inagg_tick(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct inagg_expired e;
	struct inagg_job *job;
	struct branch b;
	struct report r;
	struct place at;
	struct trio t;
	__u32 number;
	int verdict;

	if (!p || bpf_map_pop_elem(&expired, &e))
		return XDP_DROP;
	p->job = e.job;
	p->block.block = e.block;
	p->block.generation = e.generation;
	p->block.stream = e.stream;
	p->block.epoch = e.attempt;
	p->payload = 0;
	number = e.job;
	job = bpf_map_lookup_elem(&jobs, &number);
	if (job && job->algorithm == INAGG_CANARY) {
		bpf_tail_call(ctx, &algorithms, INAGG_CALL_EXPIRE);
		return refuse(job->index, INAGG_R_ALGORITHM);
	}
	if (trio_lookup(&t, p))
		return XDP_DROP;
	verdict = decide_expired(p, &t, &at, &r);
	if (verdict < 0)
		return verdict == -INAGG_R_STALE ? XDP_DROP : drop(t.count, verdict);
	t.count->expired++;
	if (dress(ctx, p, t.job, inagg_lowest_rank(r.state.seen)))
		return drop(t.count, -INAGG_R_MULTICAST);
	if (inagg_job_has_parent(t.job)) {
		t.count->completions++;
		return tree_lookup(&b, p) ? XDP_ABORTED : send_partial(ctx, p, &b, &at, &r);
	}
	count_decision(&t, &r);
	return deliver(ctx, p, t.job, &at, &r, t.count, 1);
}

#endif /* INAGG_SWEEP_H */
