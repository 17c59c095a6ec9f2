/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Canary: core/descriptor.h decides under the descriptor's lock, which also covers its elements.
 *
 * What ranks send goes to the leader of its block, along switches that sum what meets in them: down where the leader is
 * below, else up by the port that uplink.h chooses.  What comes from above only goes down, so nothing goes in circles.
 * What the leader says goes back by whom descriptors remember, and to whom the packet names.
 */
#ifndef INAGG_CANARY_H
#define INAGG_CANARY_H

#include "uplink.h"

#define CANARY_RETRY_NS	2000000	/* until a sum that was to be sent on is looked at again */
#define CANARY_BUSY_NS	50000
#define CANARY_RUN	256	/* sums that a timer looks at in one go */
#define CANARY_LATE	0x40	/* set on INAGG_PASS_UP: a straggler */

/* Descriptors of this switch, a power of two: as bucket_count; and how many of them a job has. */
const volatile __u32 descriptor_count = INAGG_DEFAULT_DESCRIPTORS;
const volatile __u32 descriptor_share = INAGG_DEFAULT_DESCRIPTORS;

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_DEFAULT_DESCRIPTORS);
	__type(key, __u32);
	__type(value, struct inagg_descriptor_memory);
} descriptors SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_occupancy);
} occupancy SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_patience);
} patience SEC(".maps");

/* What a packet of a job meets. */
struct passage {
	struct inagg_job *job;
	struct inagg_stats *count;
	struct inagg_member *leader;	/* its row; ifindex 0: it is behind a switch above */
	__u32	leader_rank;
};

/* All ranks that can come here on their way to the leader. */
static __always_inline __u64 expected_here(const struct passage *c)
{
	__u64 everyone = inagg_all_ranks(c->job->size);

	if (!c->leader->ifindex)
		return c->job->all;
	return everyone & ~(subtree_of(c->job, c->leader_rank) | inagg_rank_bit(c->leader_rank));
}

/* By the packet's job and slot. */
static __always_inline int find_passage(struct passage *c, const struct packet *p)
{
	__u32 number = p->job;

	c->job = bpf_map_lookup_elem(&jobs, &number);
	if (!c->job || !c->job->size)
		return -1;
	c->leader_rank = inagg_leader_of(c->job->size, p->slot_key);
	c->leader = member_of(c->job, c->leader_rank);
	c->count = get_stats(c->job->index);
	return c->leader && c->count ? 0 : -1;
}

/* Does rank @speaker's packet come from where that rank is?  Finds out by which up port.  0 or a negative reason. */
static __always_inline int find_sender(const struct xdp_md *ctx, struct packet *p, const struct passage *c, void *data,
				       __u32 speaker)
{
	const struct inagg_member *m = member_of(c->job, speaker);
	__u32 family = family_of(data);

	if (!m)
		return -INAGG_R_RANK;
	if (!m->ifindex) {
		p->up = find_up(ctx->ingress_ifindex, source_of(data, family).address, family);
		return p->up ? 0 : -INAGG_R_RANK;
	}
	return comes_from(ctx, data, m);
}

/* Of a frame with so much payload; of IPv6 they are 20 more. */
static __always_inline __u32 frame_bytes(__u32 payload)
{
	return INAGG_HDR4 + sizeof(struct inagg_hdr) + payload;
}

static __always_inline int is_bare(__u8 type)
{
	return type == INAGG_REQUEST || type == INAGG_WAIT || type == INAGG_BLOCK_FAILED;
}

/* From the leader? */
static __always_inline int is_word(__u8 type)
{
	return type == INAGG_RESULT || type == INAGG_WAIT || type == INAGG_BLOCK_FAILED;
}

/* Does the packet tell other switches by which ways they had better not send to the rank that speaks? */
static __always_inline int tells_ways(__u8 type)
{
	return type == INAGG_REQUEST || is_word(type);
}

static __always_inline __u32 speaker_of(const struct packet *p, const struct passage *c)
{
	return is_word(p->type) ? c->leader_rank : p->block.rank;
}

/* The switch that the speaker is attached to says so; others pass it on. */
static __always_inline void say_avoided(struct inagg_hdr *h, const struct packet *p, const struct passage *c)
{
	if (!p->up && !subtree_of(c->job, speaker_of(p, c)))
		h->tree = full_ups();
}

static __always_inline void learn_ways(const struct packet *p, const struct passage *c, __u8 avoided)
{
	struct inagg_ways *w = ways_of(c->job->index, p->job);

	if (w)
		inagg_ways_learn(w, speaker_of(p, c), avoided);
}

/*
 * As admit(), for packets whose sender may be above; completes what was handed over.  0 or a negative reason.  A function
 * of its own, like canary_forward(): verifiers look at it once, and not behind each way through the elements.
 */
__attribute__((noinline)) int canary_admit(struct xdp_md *ctx)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct packet *p = handed_over();
	struct passage c;
	struct datagram *d;
	int verdict;

	if (!p || data + INAGG_HDR4 > end)
		return -INAGG_R_LENGTH;
	d = datagram_of(data, end, family_of(data));
	if (!d)
		return -INAGG_R_LENGTH;
	p->slot_key = bpf_ntohl(d->hdr.slot);
	p->up = 0;
	if (find_passage(&c, p))
		return -INAGG_R_JOB;
	p->block = inagg_block_of(&d->hdr);
	if (is_bare(p->type))
		p->block.elements = 0;
	verdict = inagg_job_admits(c.job, &p->block, p->slot_key, p->payload);
	if (verdict)
		return verdict;
	p->block.stream = inagg_stream_of(c.job, p->slot_key);
	if (inagg_position_of(c.job, p->block.stream, p->block.block) != p->slot_key)
		return -INAGG_R_SLOT;
	verdict = find_sender(ctx, p, &c, data, speaker_of(p, &c));
	if (verdict)
		return verdict;
	if (p->up && !is_word(p->type) && !c.leader->ifindex)
		return -INAGG_R_PARENT;	/* what comes from above goes down */
	if ((c.job->flags & INAGG_JOIN_CHECKED) &&
	    !inagg_packet_intact(&d->hdr, payload_checksum(ctx, p->payload / 64)))
		return -INAGG_R_PAYLOAD_CHECKSUM;
	c.count->packets++;
	if (p->up && tells_ways(p->type))
		learn_ways(p, &c, d->hdr.tree);
	return 0;
}

/* Give the packet, with @flags more, this switch's boot id: ranks know one switch. */
static __always_inline int restamp(const struct xdp_md *ctx, const struct packet *p, const struct passage *c, __u16 flags)
{
	struct inagg_hdr *h;
	__u32 payload;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return -1;
	payload = inagg_hdr_payload_part(h);
	h->level_flags |= bpf_htons(flags);
	h->boot = bpf_htons(p->boot);
	if (tells_ways(p->type))
		say_avoided(h, p, c);
	inagg_hdr_reseal(h, payload);
	return 0;
}

/* The finished frame goes to whom this row names: a rank, or the switch that it is behind. */
static __always_inline int send_below(struct xdp_md *ctx, const struct packet *p, const struct passage *c,
				      const struct inagg_member *m, int is_switch)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct endpoint to = { (void *)m->mac, m->address };
	__u32 family;

	if (data + INAGG_HDR4 > end)
		return XDP_ABORTED;
	family = family_of(data);
	if (m->family != family)
		return drop(c->count, -INAGG_R_ADDRESS);
	/* a switch does not get back what it has sent */
	if (is_switch && same_address(m->address, source_of(data, family).address, family))
		return drop(c->count, -INAGG_R_PORT);
	if (write_headers(data, end, family, p->payload, destination_of(data, family), to, m->receive_port))
		return XDP_ABORTED;
	is_queue_long(m->ifindex, end - data);
	return leave_by(m->ifindex);
}

static __always_inline __u32 turn_of(const struct packet *p)
{
	return inagg_ways_turn(p->slot_key, p->block.epoch, p->block.cap);
}

static __always_inline int send_above(struct xdp_md *ctx, const struct packet *p, const struct passage *c, __u32 rank)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	__u32 key = choose_up(c->job->index, p->job, turn_of(p), inagg_rank_bit(rank));
	struct inagg_uplink *up = bpf_map_lookup_elem(&up_ports, &key);
	int verdict;

	if (p->up || !up || !up->ifindex)
		return drop(c->count, -INAGG_R_PARENT);
	verdict = spend_uplink_quota(c->job, end - data);
	if (verdict < 0)
		return drop(c->count, verdict);
	if (write_headers(data, end, up->family, p->payload, own_end(up), far_end(up), bpf_htons(INAGG_PORT)))
		return XDP_ABORTED;
	is_queue_long(up->ifindex, end - data);
	return leave_by(up->ifindex);
}

/* The packet that was handed over goes on to where @rank is, with @flags more. */
__attribute__((noinline)) int canary_forward(struct xdp_md *ctx, __u32 rank, __u32 flags)
{
	struct packet *p = handed_over();
	struct inagg_member *m;
	struct passage c;

	if (!p || find_passage(&c, p) || restamp(ctx, p, &c, flags))
		return XDP_ABORTED;
	m = member_of(c.job, rank);
	if (!m)
		return XDP_ABORTED;
	return m->ifindex ? send_below(ctx, p, &c, m, subtree_of(c.job, rank) != 0) : send_above(ctx, p, &c, rank);
}

/* Likewise, what is neither summed here nor answered.  Counted if it does go on. */
static __always_inline int canary_relay(struct xdp_md *ctx, const struct passage *c, __u32 rank, __u32 flags)
{
	int action = canary_forward(ctx, rank, flags);

	if (action == XDP_REDIRECT || action == XDP_TX)
		c->count->relayed++;
	return action;
}

/* On the way to the leader. */

static __always_inline __u32 descriptor_key(const struct packet *p, const struct inagg_job *job, __u16 attempt)
{
	return inagg_descriptor_index(job, p->job, p->slot_key, &p->block, attempt, descriptor_share, descriptor_count);
}

static __always_inline struct inagg_descriptor_memory *find_descriptor(const struct packet *p, const struct inagg_job *job,
								       __u16 attempt)
{
	__u32 key = descriptor_key(p, job, attempt);

	return bpf_map_lookup_elem(&descriptors, &key);
}

static __always_inline struct place descriptor_place(struct inagg_descriptor_memory *m)
{
	struct place at = { &m->busy, &m->ready, m->lanes, &m->state.slot, NULL };
	return at;
}

/* A descriptor that was free holds a block. */
static __always_inline void count_descriptor(void)
{
	__u32 zero = 0, held;
	struct inagg_occupancy *o = bpf_map_lookup_elem(&occupancy, &zero);

	if (!o)
		return;
	held = __sync_fetch_and_add(&o->held, 1) + 1;
	if (held > *(volatile __u32 *)&o->most)	/* calls that race may miss one another */
		*(volatile __u32 *)&o->most = held;
}

/* The descriptor, whose lock is held, holds nothing any more.  All ways to free one come by here, so that the count is right. */
static __always_inline void free_descriptor(struct inagg_descriptor_memory *m)
{
	__u32 zero = 0;
	struct inagg_occupancy *o = bpf_map_lookup_elem(&occupancy, &zero);

	if ((m->state.slot.flags & INAGG_SLOT_LIVE) && o)
		__sync_fetch_and_sub(&o->held, 1);
	m->state.slot.flags = 0;
}

/* Nobody has waited so long for its block, or its job or this generation of it has ended. */
static __always_inline int is_stale(const struct inagg_descriptor_memory *m)
{
	__u32 number = m->job;
	struct inagg_job *job = bpf_map_lookup_elem(&jobs, &number);

	return !job || !job->size || job->generation != m->state.slot.generation ||
	       bpf_ktime_get_ns() - m->state.opened_ns >= INAGG_DESCRIPTOR_STALE_NS;
}

/*
 * Sums that wait have one timer a job, not one each: the kernel often has no memory for a timer in an interrupt (since Linux 6.18 it
 * takes no lock for it), and a sum without one would keep its block until ranks ask.  A job's sums wait equally long, but for what
 * it learns meanwhile, so the first that began to is the first that is due.
 *
 * A timer cannot send: it queues the block for inagg_expire and wakes the agent (sweep.h).  Ticks may be lost, so that is
 * looked at again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 2 * INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_alarm);
} alarms SEC(".maps");

static __always_inline struct inagg_waiting *waiting_at(struct inagg_alarm *a, __u32 place)
{
	return &a->sums[place & (INAGG_ALARM_SUMS - 1)];
}

static __always_inline int still_waits(const struct inagg_descriptor *d, const struct inagg_waiting *w)
{
	return (d->slot.flags & (INAGG_SLOT_LIVE | INAGG_SLOT_SENT)) == INAGG_SLOT_LIVE && d->opened_ns == w->opened_ns;
}

/* Sums at the head that have gone on make room; without their locks, since who misses it keeps its place. */
static __always_inline void forget_done(struct inagg_alarm *a)
{
	for (int i = 0; i < 4 && a->first != a->end; i++) {
		struct inagg_waiting *w = waiting_at(a, a->first);
		struct inagg_descriptor_memory *m = bpf_map_lookup_elem(&descriptors, &w->descriptor);

		if (m && still_waits(&m->state, w))
			return;
		a->first++;
	}
}

/* The sum waits so long, in this alarm.  0: it cannot, as there is no room, or no timer. */
static __always_inline int wait_in(__u32 key, const struct inagg_waiting *w, __u64 wait_ns)
{
	struct inagg_alarm *a = bpf_map_lookup_elem(&alarms, &key);
	int fits;

	if (!a || !lock_word(&a->busy))
		return 0;
	if (a->end - a->first == INAGG_ALARM_SUMS)
		forget_done(a);
	fits = a->end - a->first < INAGG_ALARM_SUMS && (a->end != a->first || !bpf_timer_start(&a->timer, wait_ns, 0));
	if (fits)
		*waiting_at(a, a->end++) = *w;
	unlock_word(&a->busy);
	return fits;
}

#define CANARY_BUSY	2

/* For the agent, who makes as many frames.  1; 0: it does not wait any more; or CANARY_BUSY. */
static __always_inline int queue_sum(const struct inagg_waiting *w)
{
	struct inagg_descriptor_memory *m = bpf_map_lookup_elem(&descriptors, &w->descriptor);
	struct inagg_expired e = {};
	int waits;

	if (!m)
		return 0;
	if (!lock_word(&m->busy))
		return CANARY_BUSY;
	waits = still_waits(&m->state, w);
	e.block = m->state.slot.block;
	e.generation = m->state.slot.generation;
	e.job = m->job;
	e.stream = m->state.stream;
	e.attempt = m->state.attempt;
	unlock_word(&m->busy);
	if (waits)
		bpf_map_push_elem(&expired, &e, 0);
	return waits;
}

struct alarm_run {
	struct inagg_alarm *alarm;
	__u32	again;		/* the alarm of those that are looked at again */
	__u32	queued;
	__u32	ended;
};

static long alarm_step(__u32 i __attribute__((unused)), void *context)
{
	struct alarm_run *run = context;
	struct inagg_alarm *a = run->alarm;
	struct inagg_waiting w = {};
	__u64 now = bpf_ktime_get_ns();
	int queued;

	if (!lock_word(&a->busy))
		return 1;
	if (a->first == a->end) {
		run->ended = 1;
	} else {
		w = *waiting_at(a, a->first);
		if (w.due_ns > now)
			run->ended = !bpf_timer_start(&a->timer, w.due_ns - now, 0);
		else
			a->first++;
	}
	unlock_word(&a->busy);
	if (run->ended || w.due_ns > now)
		return 1;
	w.due_ns = now + CANARY_RETRY_NS;
	queued = queue_sum(&w);
	run->queued += queued == 1;
	if (queued)
		wait_in(run->again, &w, CANARY_RETRY_NS);
	return 0;
}

static int alarm_due(void *map __attribute__((unused)), __u32 *key, struct inagg_alarm *a)
{
	struct alarm_run run = { .alarm = a, .again = (*key & (INAGG_MAX_JOBS - 1)) + INAGG_MAX_JOBS };

	bpf_loop(CANARY_RUN, alarm_step, &run, 0);
	if (!run.ended)
		bpf_timer_start(&a->timer, CANARY_BUSY_NS, 0);
	if (run.queued)
		ring(run.queued);
	return 0;
}

static __always_inline __u64 timeout_of(const struct passage *c)
{
	__u32 row = c->job->index;
	struct inagg_route *route = bpf_map_lookup_elem(&routes, &row);
	struct inagg_patience *learnt = bpf_map_lookup_elem(&patience, &row);

	return route && learnt ? inagg_route_wait_ns(route, learnt) : INAGG_PATIENCE_START_NS;
}

static __always_inline void prepare_alarm(__u32 key)
{
	struct inagg_alarm *a = bpf_map_lookup_elem(&alarms, &key);

	if (!a)
		return;
	bpf_timer_init(&a->timer, &alarms, CLOCK_MONOTONIC);	/* if there is none yet */
	bpf_timer_set_callback(&a->timer, alarm_due);
}

/* The sum that has been opened waits for more.  What cannot goes on as soon as the agent can. */
static __always_inline void wait_for_more(const struct packet *p, const struct passage *c)
{
	__u64 wait_ns = timeout_of(c);
	struct inagg_descriptor_memory *m;
	struct inagg_waiting w = {};

	w.descriptor = descriptor_key(p, c->job, p->block.epoch);
	m = bpf_map_lookup_elem(&descriptors, &w.descriptor);
	if (!m)
		return;
	w.opened_ns = m->state.opened_ns;
	w.due_ns = bpf_ktime_get_ns() + wait_ns;
	if (wait_in(c->job->index, &w, wait_ns))
		return;
	prepare_alarm(c->job->index);	/* the job's first sum, most often */
	prepare_alarm(c->job->index + INAGG_MAX_JOBS);
	if (!wait_in(c->job->index, &w, wait_ns) && queue_sum(&w) == 1)
		ring(1);
}

/* Ranks whose sum the packet is; 0: its sender may not speak for them. */
static __always_inline __u64 arrived_ranks(const struct packet *p, const struct passage *c)
{
	__u64 ranks = p->up && p->type == INAGG_PARTIAL ? p->block.contributors : ranks_of(p, c->job);
	/* neither from above what is below, nor from anywhere what the leader has */
	__u64 others = ~inagg_all_ranks(c->job->size) | (p->up ? c->job->all : 0) | inagg_rank_bit(c->leader_rank);

	return ranks & others ? 0 : ranks;
}

/* The sum that a packet has been folded into. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_slot);
} canary_sum SEC(".maps");

/* Fold the packet, of these ranks, into its descriptor; what it is now is left in `canary_sum`.  The verdict. */
__attribute__((noinline)) int canary_fold(struct xdp_md *ctx, __u64 ranks, __u64 expected)
{
	struct packet *p = handed_over();
	struct inagg_arrival a = { .ranks = ranks, .expected = expected, .now_ns = bpf_ktime_get_ns() };
	struct inagg_descriptor_memory *m;
	__u32 number, zero = 0;
	struct inagg_slot *sum = bpf_map_lookup_elem(&canary_sum, &zero);
	struct inagg_job *job;
	struct inagg_hdr *h;
	struct place at;
	int verdict, was_free;
	void *end;

	if (!p || !sum)
		return -INAGG_R_JOB;
	number = p->job;
	job = bpf_map_lookup_elem(&jobs, &number);
	if (!job || !job->size)
		return -INAGG_R_JOB;
	m = find_descriptor(p, job, p->block.epoch);
	if (!m)
		return -INAGG_R_JOB;
	a.up = p->up;
	at = descriptor_place(m);
	h = header_of(ctx, &end);
	if (!h)
		return -INAGG_R_LENGTH;
	if (!lock_word(&m->busy))
		return -INAGG_R_BUSY;
	was_free = !(m->state.slot.flags & INAGG_SLOT_LIVE);
	verdict = inagg_descriptor_contribute(&m->state, job, &a, &p->block);
	if (verdict > 0 && INAGG_VERDICT(verdict) <= INAGG_COUNT)
		atp_move(ctx, &at, p, h + 1, end, verdict & ~INAGG_OPENS);
	if (verdict > 0 && (verdict & INAGG_OPENS))
		m->job = p->job;
	if (was_free && (m->state.slot.flags & INAGG_SLOT_LIVE))
		count_descriptor();
	*sum = m->state.slot;
	if (verdict == INAGG_PASS_UP && m->state.late)
		verdict |= CANARY_LATE;
	unlock_word(&m->busy);
	return verdict;
}

/* The packet itself goes on. */
static __always_inline int canary_pass(struct xdp_md *ctx, const struct passage *c, int verdict)
{
	int action = INAGG_VERDICT(verdict);
	__u32 flags = 0;

	if (verdict & CANARY_LATE)
		c->count->late++;
	if (action == INAGG_EVADES)
		flags = INAGG_F_BYPASS;
	if (action == INAGG_COLLIDES) {
		c->count->collisions++;
		flags = INAGG_F_BYPASS | INAGG_F_COLLISION;
	}
	return canary_relay(ctx, c, c->leader_rank, flags);
}

static __always_inline int canary_contribute(struct xdp_md *ctx, struct packet *p, const struct passage *c)
{
	__u64 ranks = arrived_ranks(p, c);
	struct inagg_slot *sum;
	struct report r = {};
	__u32 zero = 0;
	int verdict;

	if (!ranks)
		return drop(c->count, -INAGG_R_RANK);
	if (p->flags & INAGG_F_BYPASS)
		return canary_relay(ctx, c, c->leader_rank, 0);
	verdict = canary_fold(ctx, ranks, expected_here(c));
	if (verdict == -INAGG_R_DUPLICATE)
		c->count->duplicates++;
	if (verdict < 0)
		return drop(c->count, verdict);
	if (INAGG_VERDICT(verdict) > INAGG_COUNT)
		return canary_pass(ctx, c, verdict);
	c->count->additions++;
	c->count->elements += p->block.elements;
	if (verdict & INAGG_OPENS)
		wait_for_more(p, c);
	sum = bpf_map_lookup_elem(&canary_sum, &zero);
	if (!(verdict & INAGG_COMPLETES) || !sum)
		return XDP_DROP;
	c->count->completions++;
	r.state = *sum;
	r.count = inagg_count_ranks(r.state.seen);
	r.epoch = p->block.epoch;
	answer(ctx, p, c->job, INAGG_PARTIAL, &r);
	return canary_forward(ctx, c->leader_rank, 0);
}

/* Admits what was handed over.  What the program is to return, or -1: go on with it. */
static __always_inline int refused(struct xdp_md *ctx, const struct packet *p, struct passage *c)
{
	int verdict = canary_admit(ctx);

	if (find_passage(c, p))
		return XDP_ABORTED;
	if (!verdict && is_over_quota(c->job, frame_bytes(p->payload)))
		verdict = -INAGG_R_QUOTA;
	return verdict ? drop(c->count, verdict) : -1;
}

/* Contributions, sums and questions, from a rank or from another switch. */
SEC("xdp.frags")
int inagg_canary(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct passage c;
	int action;

	if (!p)
		return XDP_ABORTED;
	action = refused(ctx, p, &c);
	if (action >= 0)
		return action;
	switch (p->type) {
	case INAGG_CONTRIBUTION:
	case INAGG_PARTIAL:
		return canary_contribute(ctx, p, &c);
	case INAGG_REQUEST:
		return canary_relay(ctx, &c, c.leader_rank, 0);
	default:
		return drop(c.count, -INAGG_R_TYPE);	/* a leader forgets nothing that could be restored */
	}
}

/* What the leader says. */

struct children {
	__u64	ranks;
	__u8	ups;
};

/* Who has come for the packet's block in that attempt; nobody needs to know it from now on. */
static __always_inline void collect_children(const struct packet *p, const struct passage *c, __u16 attempt,
					     struct children *all)
{
	struct inagg_descriptor_memory *m = find_descriptor(p, c->job, attempt);
	struct inagg_block block = p->block;
	__u32 row = c->job->index;
	struct inagg_patience *learnt = bpf_map_lookup_elem(&patience, &row);

	block.epoch = attempt;
	if (!m || !lock_word(&m->busy))
		return;
	if (inagg_descriptor_holds(&m->state, c->job, &block)) {
		free_descriptor(m);
		all->ranks |= m->state.children;
		all->ups |= m->state.ups;
		if (learnt)
			inagg_patience_learn(learnt, &m->state);
	}
	unlock_word(&m->busy);
}

/* Inside this switch the header says whom the copies by the second and the third up port are for; the first has all others. */
static __always_inline __u64 *copies_in(struct inagg_hdr *h)
{
	return (__u64 *)h->check;
}

static __always_inline void write_copies(struct inagg_hdr *h, const struct inagg_copies *c)
{
	__u64 *ranks = copies_in(h);
	int copy = 0;

	ranks[0] = 0;
	ranks[1] = 0;
	if (!c)
		return;
	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		if (!c->ranks[i])
			continue;
		if (copy == 1)
			ranks[0] = c->ranks[i];
		if (copy == 2)
			ranks[1] = c->ranks[i];
		copy++;
	}
	h->level_flags |= bpf_htons(INAGG_F_BYPASS);
}

/* The frame goes to those below and above whom it names: the egress program gives each copy its own (canary_egress()). */
static __always_inline int send_to_children(struct xdp_md *ctx, struct packet *p, const struct passage *c, __u64 contributors,
					    __u8 ups, const struct inagg_copies *shared)
{
	struct inagg_hdr *h;
	__u32 payload;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	payload = inagg_hdr_payload_part(h);
	h->contributors = bpf_cpu_to_be64(contributors);
	h->port = ups;
	h->boot = bpf_htons(p->boot);
	say_avoided(h, p, c);
	write_copies(h, shared);
	inagg_hdr_reseal(h, payload);
	return multicast(ctx, p->payload, c->job, c->count);
}

/* For @ranks, behind switches above, when no descriptor knows by which port: by any. */
static __always_inline __u32 any_up(const struct packet *p, const struct passage *c, __u64 ranks)
{
	__u32 up = choose_up(c->job->index, p->job, turn_of(p), ranks);

	return up < INAGG_MAX_UPS ? 1 << up : 0;
}

/*
 * By which up ports a result goes on to those elsewhere.  Congestion has a direction, so the ways by which the children came may be
 * bad ones back: then by others, which the switches above need not remember, because all of them are named.
 */
static __always_inline struct inagg_copies *choose_ways_back(const struct packet *p, const struct passage *c, __u64 elsewhere,
							     __u64 *named, __u8 *ups)
{
	__u32 zero = 0;

	if (is_blocked(c->job->index, p->job, *ups, elsewhere)) {
		*named |= elsewhere;
		*ups = share_ups(c->job->index, p->job, turn_of(p), elsewhere);
		return *ups ? bpf_map_lookup_elem(&copies, &zero) : NULL;
	}
	if ((*named & elsewhere) && !*ups)
		*ups = any_up(p, c, *named & elsewhere);
	return NULL;
}

/* A result for all: to those who have come, and to those whom the packet names because nobody has noticed them. */
static __always_inline int spread_result(struct xdp_md *ctx, struct packet *p, const struct passage *c)
{
	__u64 named = p->block.contributors & inagg_all_ranks(c->job->size), here = c->job->all;
	struct inagg_copies *shared = NULL;
	struct children all = {};

	for (__u16 attempt = 0; attempt < INAGG_CANARY_ATTEMPTS; attempt++)
		if (attempt <= p->block.epoch)
			collect_children(p, c, attempt, &all);
	if (p->flags & INAGG_F_BYPASS)	/* another copy is for the others who have come */
		all.ranks = 0;
	if (p->up) {
		named &= here;
		all.ups = 0;
	} else {
		shared = choose_ways_back(p, c, (all.ranks | named) & ~here, &named, &all.ups);
	}
	all.ranks = (all.ranks & here) | named;
	if (!all.ranks && !all.ups)
		return drop(c->count, -INAGG_R_STALE);
	c->count->replies++;
	return send_to_children(ctx, p, c, all.ranks, all.ups, shared);
}

/* To all ranks that are not in. */
static __always_inline int spread_failure(struct xdp_md *ctx, struct packet *p, const struct passage *c)
{
	__u64 elsewhere = inagg_all_ranks(c->job->size) & ~c->job->all & ~p->block.contributors;

	c->count->waits++;
	return send_to_children(ctx, p, c, p->block.contributors, elsewhere && !p->up ? any_up(p, c, elsewhere) : 0, NULL);
}

SEC("xdp.frags")
int inagg_canary_down(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct inagg_member *m;
	struct passage c;
	int action;

	if (!p)
		return XDP_ABORTED;
	action = refused(ctx, p, &c);
	if (action >= 0)
		return action;
	if (p->flags & INAGG_F_MULTICAST) {
		if (p->type == INAGG_RESULT)
			return spread_result(ctx, p, &c);
		if (p->type == INAGG_BLOCK_FAILED)
			return spread_failure(ctx, p, &c);
		return drop(c.count, -INAGG_R_TYPE);
	}
	m = member_of(c.job, p->block.rank);
	if (!m || (p->up && !m->ifindex))
		return drop(c.count, -INAGG_R_RANK);
	return canary_relay(ctx, &c, p->block.rank, 0);
}

/* The sum of a descriptor whose time is up, in a frame that looks as if rank @rank had sent it here. */
static __always_inline int send_sum(struct xdp_md *ctx, struct packet *p, const struct passage *c,
				    struct inagg_descriptor_memory *m, struct report *r)
{
	__u32 bytes = r->state.elements * 4;
	struct place at = descriptor_place(m);
	struct inagg_hdr *h;
	int there;
	void *end;

	if (bytes > INAGG_MAX_PAYLOAD || resize(ctx, p, bytes))
		return drop(c->count, -INAGG_R_RESIZE);
	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	if (!lock_word(at.busy))
		return drop(c->count, -INAGG_R_BUSY);
	there = inagg_descriptor_holds(&m->state, c->job, &p->block) &&
		(m->state.slot.flags & INAGG_SLOT_SENT) && m->state.slot.seen == r->state.seen;	/* else it has begun anew */
	if (there)
		result_to_packet(at.lanes, h + 1, end, bytes / 64);
	unlock_word(at.busy);
	if (!there)
		return drop(c->count, -INAGG_R_STALE);
	h->source = bpf_htons(inagg_lowest_rank(r->state.seen));
	p->block.dtype_op = r->state.dtype_op;
	p->block.scale = r->state.scale;
	r->count = inagg_count_ranks(r->state.seen);
	r->epoch = p->block.epoch;
	answer(ctx, p, c->job, INAGG_PARTIAL, r);
	return canary_forward(ctx, c->leader_rank, 0);
}

/* On the frame of a tick, whose block inagg_tick has taken from the queue: what is here of it goes on. */
SEC("xdp.frags")
int inagg_expire(struct xdp_md *ctx)
{
	struct packet *p = handed_over();
	struct inagg_descriptor_memory *m;
	struct passage c = {};
	struct report r = {};
	__u32 number, rank;
	int expires;

	if (!p)
		return XDP_ABORTED;
	number = p->job;
	c.job = bpf_map_lookup_elem(&jobs, &number);
	if (!c.job || !c.job->size)
		return XDP_DROP;
	p->slot_key = inagg_position_of(c.job, p->block.stream, p->block.block);
	p->up = 0;
	if (find_passage(&c, p))
		return XDP_DROP;
	m = find_descriptor(p, c.job, p->block.epoch);
	if (!m || !lock_word(&m->busy))
		return XDP_DROP;	/* the timer looks again */
	expires = inagg_descriptor_expire(&m->state, c.job, &p->block);
	r.state = m->state.slot;
	unlock_word(&m->busy);
	if (!expires)
		return XDP_DROP;
	c.count->expired++;
	c.count->partials++;
	rank = r.state.seen & c.job->all ? inagg_lowest_rank(r.state.seen & c.job->all) : c.leader_rank;
	if (dress(ctx, p, c.job, rank))
		return drop(c.count, -INAGG_R_MULTICAST);
	return send_sum(ctx, p, &c, m, &r);
}

/* Is a copy of the leader's word for some of @below?  A RESULT then names these, or, to a rank, @told. */
static __always_inline int name_those(struct inagg_hdr *h, __u64 below, __u64 told)
{
	__u64 named = bpf_be64_to_cpu(h->contributors);

	if (inagg_hdr_type(h) == INAGG_BLOCK_FAILED)
		return (below & ~named) != 0;
	h->contributors = bpf_cpu_to_be64(told ? told : named & below);
	return (named & below) != 0;
}

/* The copy that leaves by up port @key: of those that it goes to, the first is to find whom no descriptor knows, or no other has. */
static __always_inline int copy_above(struct inagg_hdr *h, const struct inagg_job *job, __u32 key)
{
	__u8 bit = 1 << (key & (INAGG_MAX_UPS - 1)), before = h->port & (bit - 1);
	__u64 *others = copies_in(h);

	if (!(h->port & bit))
		return 0;
	if (!before)
		name_those(h, inagg_all_ranks(job->size) & ~(job->all | others[0] | others[1]), 0);
	else
		name_those(h, before & (before - 1) ? others[1] : others[0], 0);
	return 1;
}

/* The copy for rank @rank, or for the switch that stands for it; a rank sees all ranks. */
static __always_inline int copy_below(struct inagg_hdr *h, const struct inagg_job *job, __u32 rank)
{
	__u64 subtree = subtree_of(job, rank), below = subtree ? subtree : inagg_rank_bit(rank);

	if (below & inagg_rank_bit(inagg_leader_of(job->size, bpf_ntohl(h->slot))))
		return 0;
	return name_those(h, below, subtree ? 0 : inagg_all_ranks(job->size));
}

/* inagg_egress for a job of this algorithm; @bytes: of payload, @entry: of its devmap. */
static __always_inline int canary_egress(struct xdp_md *ctx, struct inagg_hdr *h, const struct inagg_job *job, __u32 bytes,
					 __u32 entry)
{
	__u32 payload = inagg_hdr_payload_part(h), key = entry - INAGG_MAX_RANKS, family;
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct inagg_uplink *up;
	struct inagg_member *m;
	struct endpoint to;
	int failed;

	if (data + INAGG_HDR4 > end)
		return XDP_ABORTED;
	family = family_of(data);
	if (entry >= INAGG_MAX_RANKS) {
		up = bpf_map_lookup_elem(&up_ports, &key);
		if (!up || !copy_above(h, job, key))
			return XDP_DROP;
		if (spend_uplink_quota(job, frame_bytes(bytes)) < 0)
			return refuse(job->index, INAGG_R_QUOTA);
		failed = up->family != family ||
			 write_headers(data, end, family, bytes, own_end(up), far_end(up), bpf_htons(INAGG_PORT));
	} else {
		m = member_of(job, entry);
		if (!m || !m->ifindex)
			return refuse(job->index, INAGG_R_RANK);
		if (!copy_below(h, job, entry))
			return XDP_DROP;
		to.mac = (void *)m->mac;
		to.address = m->address;
		failed = m->family != family || write_headers(data, end, family, bytes, source_of(data, family), to, m->receive_port);
	}
	if (failed)
		return refuse(job->index, INAGG_R_ADDRESS);
	h->port = 0;
	write_copies(h, NULL);
	inagg_hdr_reseal(h, payload);
	is_queue_long(ctx->egress_ifindex, end - data);	/* counts it */
	return XDP_PASS;
}

#endif /* INAGG_CANARY_H */
