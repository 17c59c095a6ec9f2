/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Trio-ML in XDP: core/record.h decides under the lock of the block's bucket, which also covers the elements
 * of its records.
 */
#ifndef INAGG_TRIO_H
#define INAGG_TRIO_H

/* Buckets of this switch, a power of two: a constant for the verifier.  Whoever loads the program with another
 * number sizes the maps by it. */
const volatile __u32 bucket_count = INAGG_DEFAULT_BUCKETS;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_DEFAULT_BUCKETS);
	__type(key, __u32);
	__type(value, struct inagg_bucket_memory);
} buckets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_DEFAULT_BUCKETS *INAGG_WAYS);
	__type(key, __u32);
	__type(value, struct inagg_record_memory);
} record_lanes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_DEFAULT_FLOORS);
	__type(key, __u32);
	__type(value, struct inagg_floor_memory);
} floors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_job_policy);
} policies SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, __u32);
} open_records SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_attendance);
} attendance SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_stragglers);
} stragglers SEC(".maps");

/* A packet between the root program and its algorithm. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct packet);
} handover SEC(".maps");

static __always_inline struct packet *handed_over(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&handover, &zero);
}

/* What a packet of a job meets. */
struct trio {
	struct inagg_job *job;
	struct inagg_job_policy *policy;
	struct inagg_bucket_memory *bucket;
	struct inagg_stats *count;
	__u32 bucket_key;
	/* its record, from trio_place() on */
	struct inagg_record *record;
	struct inagg_record_memory *memory;
	__u32	*open;		/* records */
};

static __always_inline int trio_lookup(struct trio *t, const struct packet *p)
{
	__u32 number = p->job, row;

	t->job = bpf_map_lookup_elem(&jobs, &number);
	if (!t->job || !t->job->size)
		return -1;
	row = t->job->index;
	t->policy = bpf_map_lookup_elem(&policies, &row);
	t->count = get_stats(row);
	t->open = bpf_map_lookup_elem(&open_records, &row);
	t->bucket_key = inagg_bucket_of(row, p->block.stream, p->block.block, bucket_count);
	t->bucket = bpf_map_lookup_elem(&buckets, &t->bucket_key);
	return t->policy && t->count && t->open && t->bucket ? 0 : -1;
}

/* A rank has been heard. */
static __always_inline void attend(__u32 row, __u32 rank)
{
	struct inagg_attendance *a = bpf_map_lookup_elem(&attendance, &row);

	if (a)
		a->heard[rank & (INAGG_MAX_RANKS - 1)]++;
}

/* A block was decided without @ranks.  A global function, as trio_fold(). */
__attribute__((noinline)) int count_missed(__u32 row, __u64 ranks)
{
	struct inagg_attendance *a = bpf_map_lookup_elem(&attendance, &row);

	if (!a)
		return 0;
	for (__u32 rank = 0; rank < INAGG_MAX_RANKS; rank++)
		a->missed[rank] += ranks >> rank & 1;
	return 0;
}

/* The record in way p->way and its place. */
static __always_inline int trio_place(struct trio *t, const struct packet *p, struct place *at)
{
	__u32 way = p->way & (INAGG_WAYS - 1), key = t->bucket_key * INAGG_WAYS + way;

	t->record = &t->bucket->records[way];
	t->memory = bpf_map_lookup_elem(&record_lanes, &key);
	if (!t->memory)
		return -1;
	at->busy = &t->bucket->busy;
	at->ready = &t->memory->ready;
	at->lanes = t->memory->lanes;
	at->state = &t->record->slot;
	at->record = t->record;
	return 0;
}

static __always_inline struct report trio_report(const struct inagg_record *record)
{
	struct report r = { .state = record->slot, .absent = record->absent, .epoch = record->epoch };

	r.count = inagg_count_ranks(r.state.seen);
	if (record->flags & INAGG_RECORD_DEGRADED)
		r.flags = INAGG_F_DEGRADED;
	if (inagg_record_is_open(record) && (record->flags & INAGG_RECORD_WHOLE))
		r.flags = INAGG_F_WHOLE;	/* says a partial sum */
	return r;
}

/* The ranks whose sum a contribution is; that its sender may speak for them has been checked. */
static __always_inline __u64 ranks_in(const struct packet *p)
{
	return p->type == INAGG_PARTIAL ? p->block.contributors : inagg_rank_bit(p->block.rank);
}

/* How the number of the job's open records changes. */
static __always_inline void count_open(__u32 *open, int verdict)
{
	if (verdict & INAGG_OPENS)
		__sync_fetch_and_add(open, 1);
	if (verdict & INAGG_COMPLETES)
		__sync_fetch_and_sub(open, 1);
}

/* An open record goes before it is complete. */
static __always_inline void count_gone(__u32 row, __u16 generation)
{
	struct inagg_job_policy *policy = bpf_map_lookup_elem(&policies, &row);
	__u32 *open = bpf_map_lookup_elem(&open_records, &row);

	if (open && policy && policy->generation == generation)
		__sync_fetch_and_sub(open, 1);
}

/*
 * inagg_record_contribute() for a packet; the bucket's lock is held.  The floor has a lock of its own, since blocks
 * of one position are in several buckets; it is needed where a record opens or is recovering.  A global function:
 * the verifier looks at it once, and finds one state behind it.
 */
__attribute__((noinline)) int trio_fold(struct inagg_bucket_memory *m, struct inagg_floor_memory *f,
					const struct inagg_job *job, const struct inagg_job_policy *policy, struct packet *p)
{
	int found, floor, verdict;
	__u32 row, *open;
	__u16 clock = 0;

	if (!m || !f || !job || !policy || !p)
		return -INAGG_R_JOB;
	row = job->index;
	open = bpf_map_lookup_elem(&open_records, &row);
	if (!open)
		return -INAGG_R_JOB;
	if (policy->generation != p->block.generation)
		return -INAGG_R_GENERATION;
	found = inagg_record_find(m->records, job->index, &p->block);
	floor = found < 0 || (m->records[found & (INAGG_WAYS - 1)].flags & INAGG_RECORD_RECOVERING);
	if (floor) {
		if (!lock_word(&f->busy))
			return -INAGG_R_BUSY;
		clock = inagg_epoch_of(bpf_ktime_get_coarse_ns());
	}
	verdict = inagg_record_contribute_ranks(m->records, &f->floor, job, &policy->policy, *open, ranks_in(p), &p->block,
						clock, &p->way, &p->loser);
	if (floor)
		unlock_word(&f->busy);
	if (p->loser.lost)
		count_gone(p->loser.job, p->loser.generation);
	if (verdict > 0)
		count_open(open, verdict);
	return verdict;
}

/* fold() into a record, likewise. */
__attribute__((noinline)) int trio_move(struct xdp_md *ctx, struct inagg_record_memory *to, struct inagg_slot *state,
					const struct packet *p, int verdict)
{
	struct place at = {};
	struct inagg_hdr *h;
	void *end;

	if (!to || !state || !p)
		return 0;
	h = header_of(ctx, &end);
	if (!h)
		return 0;
	at.ready = &to->ready;
	at.lanes = to->lanes;
	at.state = state;
	return fold(ctx, &at, p, h + 1, end, verdict);
}

/* Who is in, to one rank, or to all; then switches below pass it on likewise. */
static __always_inline int trio_tell(struct xdp_md *ctx, struct packet *p, const struct trio *t, struct report *r,
				     int everyone)
{
	r->flags = everyone && (t->job->flags & INAGG_JOIN_TREE) ? INAGG_F_MULTICAST : 0;
	t->count->waits++;
	return tell(ctx, p, t->job, t->count, r, everyone);
}

/* The block has its result, with the rank that contributes to it or without. */
static __always_inline int trio_reply(struct xdp_md *ctx, struct packet *p, const struct trio *t, const struct place *at,
				      const struct report *r)
{
	if (r->state.seen & inagg_rank_bit(p->block.rank))
		t->count->duplicates++;
	else
		t->count->late++;
	return deliver(ctx, p, t->job, at, r, t->count, 0);
}

static __always_inline struct inagg_floor_memory *floor_of(const struct packet *p)
{
	__u32 key = p->slot_key / 2;

	return bpf_map_lookup_elem(&floors, &key);
}

/* The job or the bucket is full: the rank is told to slow down. */
static __always_inline int trio_full(struct xdp_md *ctx, struct packet *p, const struct trio *t)
{
	struct report r = { .cap = inagg_window_cap(*t->open) };

	t->count->drops[INAGG_R_FULL]++;
	return tell(ctx, p, t->job, t->count, &r, 0);
}

static __always_inline void count_decision(const struct trio *t, const struct report *r)
{
	__u64 missing = t->job->all & ~r->state.seen;

	t->count->completions++;
	if (r->flags & INAGG_F_DEGRADED)
		t->count->degraded++;
	if (missing)
		count_missed(t->job->index, missing);
}

static __always_inline int trio_contribute(struct xdp_md *ctx, struct packet *p, struct trio *t)
{
	struct inagg_floor_memory *floor = floor_of(p);
	int verdict, action, fused = 0;
	struct report r;
	struct place at;

	if (!floor)
		return drop(t->count, -INAGG_R_SLOT);
	if (widen_elements(ctx, p, t->job))
		return XDP_ABORTED;
	if (!lock_word(&t->bucket->busy))
		return drop(t->count, -INAGG_R_BUSY);
	verdict = trio_fold(t->bucket, floor, t->job, t->policy, p);
	if (trio_place(t, p, &at)) {
		unlock_word(&t->bucket->busy);
		return XDP_ABORTED;
	}
	action = INAGG_VERDICT(verdict);
	if (verdict > 0 && action <= INAGG_COUNT)
		fused = trio_move(ctx, t->memory, at.state, p, verdict);
	r = trio_report(t->record);
	unlock_word(&t->bucket->busy);

	if (verdict == -INAGG_R_FULL)
		return trio_full(ctx, p, t);
	if (verdict < 0)
		return drop(t->count, verdict);
	if ((verdict & INAGG_OPENS) && r.epoch)
		t->count->recoveries++;
	if (action == INAGG_REPLY)
		return trio_reply(ctx, p, t, &at, &r);
	if (action >= INAGG_TELL) {
		if (r.state.seen & inagg_rank_bit(p->block.rank))
			t->count->duplicates++;
		return trio_tell(ctx, p, t, &r, action == INAGG_TELL_ALL);
	}
	if (action == INAGG_COUNT && p->block.elements) {	/* was in already, and found the block expired */
		t->count->expired++;
	} else {
		t->count->additions++;
		t->count->elements += p->block.elements;
	}
	if (!(verdict & INAGG_COMPLETES))
		return XDP_DROP;

	count_decision(t, &r);
	if (fused) {
		answer(ctx, p, t->job, INAGG_RESULT, &r);
		return send(ctx, p, t->job, t->count, 1);
	}
	return deliver(ctx, p, t->job, &at, &r, t->count, 1);
}

/*
 * Decides nothing, not even about an expired block: a frame as short as a REQUEST may not have the room to tell the
 * others.
 */
static __always_inline int trio_request(struct xdp_md *ctx, struct packet *p, struct trio *t)
{
	struct report r = {};
	struct place at;
	int verdict, way;

	if (!lock_word(&t->bucket->busy))
		return drop(t->count, -INAGG_R_BUSY);
	verdict = inagg_record_request(t->bucket->records, t->job, &p->block, p->flags & INAGG_F_MULTICAST, &way);
	p->way = way;
	if (trio_place(t, p, &at)) {
		unlock_word(&t->bucket->busy);
		return XDP_ABORTED;
	}
	if (way >= 0)
		r = trio_report(t->record);
	unlock_word(&t->bucket->busy);
	if (verdict < 0)
		return drop(t->count, verdict);
	if (verdict == INAGG_REPLY)
		return deliver(ctx, p, t->job, &at, &r, t->count, 0);
	return trio_tell(ctx, p, t, &r, verdict == INAGG_TELL_ALL);
}

static __always_inline int trio_restore(struct xdp_md *ctx, struct packet *p, struct trio *t)
{
	struct inagg_hdr *h;
	struct report r;
	struct place at;
	int verdict;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	if (!lock_word(&t->bucket->busy))
		return drop(t->count, -INAGG_R_BUSY);
	verdict = inagg_record_restore(t->bucket->records, t->job, &p->block, &p->way);
	if (trio_place(t, p, &at)) {
		unlock_word(&t->bucket->busy);
		return XDP_ABORTED;
	}
	if (verdict > 0) {
		count_open(t->open, verdict);
		packet_to_result(h + 1, end, at.lanes, p->payload / 64);
		*at.ready = 1;
	}
	r = trio_report(t->record);
	unlock_word(&t->bucket->busy);
	if (verdict < 0)
		return drop(t->count, verdict);
	t->count->restores++;
	answer(ctx, p, t->job, INAGG_RESULT, &r);
	return send(ctx, p, t->job, t->count, 1);
}

/* A block has one position only. */
static __always_inline int fits_slot(const struct inagg_job *job, const struct packet *p)
{
	__u32 slot = p->slot_key / 2 - job->first_slot;

	return inagg_position_of(job, p->block.stream, p->block.block) == slot;
}

/* Admission was the root program's. */
SEC("xdp.frags")
int inagg_trio(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct trio t;

	if (!p)
		return XDP_ABORTED;
	if (trio_lookup(&t, p))
		return XDP_ABORTED;
	if (!fits_slot(t.job, p))
		return drop(t.count, -INAGG_R_SLOT);
	attend(t.job->index, p->block.rank);
	switch (p->type) {
	case INAGG_CONTRIBUTION:
		return trio_contribute(ctx, p, &t);
	case INAGG_RESTORE:
		return trio_restore(ctx, p, &t);
	case INAGG_REQUEST:
		return trio_request(ctx, p, &t);
	default:
		return drop(t.count, -INAGG_R_TYPE);
	}
}

#endif /* INAGG_TRIO_H */
