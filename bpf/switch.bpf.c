// SPDX-License-Identifier: GPL-2.0-only
/*
 * The XDP switch.
 *
 *   inagg_switch    on every port: what is not for this switch goes on to the kernel; joins; admission
 *                   (length, checksums, job, rank, port, address); then the job's algorithm: SwitchML
 *                   (switchml.h) in place, any other by a tail call
 *   inagg_trio      that of Trio-ML (trio.h)
 *   inagg_tree, inagg_parent  SwitchML in a tree of switches (tree.h): what comes from below, and from above
 *   inagg_combine, inagg_combined  likewise of Trio-ML (combine.h)
 *   inagg_atp       that of ATP (atp.h), with a server behind
 *   inagg_canary, inagg_canary_down, inagg_expire  that of Canary (canary.h): towards a block's leader, what it says, timers
 *   inagg_panama    the float additions of PANAMA (panama.h), whose jobs are trees otherwise, also of one switch
 *   inagg_sweep, inagg_sweep_once, inagg_tick  run by the agent: its blocks that do not wait (sweep.h)
 *   inagg_several, inagg_spread  contributions to several blocks in a frame of several buffers, and their results (several.h)
 *   inagg_meter     on ports whose rate is known, in the kernel's own path: ordinary traffic waits, too (meter.h)
 *   inagg_egress    on the devmap entries: gives each copy of a result its rank's addresses
 *   inagg_clear     run by the agent: forgets slots, records and floors, safely beside traffic
 *   inagg_forget_job  likewise: before a job with records begins
 *
 * Loads with bpftool alone; inaggd does the same through libbpf.  Maps: switch_maps.h.
 */
#include <inagg/core/queue.h>

#include "lock.h"
#include "parse.h"
#include "switch_maps.h"
#include "lanes.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_switch_settings);
} settings SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_JOB_NUMBERS);
	__type(key, __u32);
	__type(value, struct inagg_job);
} jobs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS *INAGG_MAX_RANKS);
	__type(key, __u32);
	__type(value, struct inagg_member);
} members SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_mac_key);
} keys SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_DEFAULT_SLOTS * 2);
	__type(key, __u32);
	__type(value, struct inagg_slot_memory);
} slots SEC(".maps");

struct ports_of_job {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, INAGG_PORT_ENTRIES);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__array(values, struct ports_of_job);
} ports SEC(".maps");

/*
 * By ifindex: where frames for one receiver leave, with the egress program that copies for several have.  The kernel gives all that
 * one run of a driver's poll has for a port to the program of the first of it (struct xdp_dev_bulk_queue).  So copies behind a frame
 * without a program would leave without a receiver's address, and frames behind copies would be taken for such.
 */
struct {
	__uint(type, BPF_MAP_TYPE_DEVMAP_HASH);
	__uint(max_entries, 1024);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
} exits SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INAGG_MAX_JOBS *INAGG_MAX_RANKS);
	__type(key, struct inagg_port_key);
	__type(value, struct inagg_port_ranks);
} port_ranks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS + 1);
	__type(key, __u32);
	__type(value, struct inagg_stats);
} stats SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, INAGG_EVENTS_BYTES);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, INAGG_MAX_ASKERS);
	__type(key, __u32);
	__type(value, struct inagg_asking);
} asks SEC(".maps");

/* Between a port's events on average; 0: there is no limit to that. */
const volatile __u32 ask_ns = 1000000000 / INAGG_ASKS_PER_SECOND;

/* What the root program found out about a packet. */
struct packet {
	struct inagg_block block;
	__u32	slot_key;	/* in `slots`; for canary the slot's index */
	__u32	payload;	/* bytes behind the inagg header */
	__u16	flags;		/* enum inagg_flag */
	__u16	boot;
	__be16	reply_port;	/* the rank's */
	__u16	job;		/* number */
	__u8	type;		/* enum inagg_type */
	__u8	leaf;		/* the rank's, for panama */
	__u32	way;		/* of its record, for trio */
	struct inagg_loser loser;	/* of a record to its job, likewise */
	__u32	up;		/* bit of the up port that it came by, for canary; 0: from below */
};

/* Whose turn it is behind a port with several ranks: index job.index * INAGG_PORT_ENTRIES + the first that is there. */
struct turn {
	__u64	result;		/* which frame is being copied */
	__u32	next;
	__u32	reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS *INAGG_PORT_ENTRIES);
	__type(key, __u32);
	__type(value, struct turn);
} turns SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, INAGG_CALLS);
	__type(key, __u32);
	__type(value, __u32);
} algorithms SEC(".maps");

static __always_inline struct inagg_stats *get_stats(__u32 row)
{
	return bpf_map_lookup_elem(&stats, &row);
}

/* Count and drop; @verdict is a negative reason.  The barrier keeps the bound that verifiers before 6.18
 * need to see. */
static __always_inline int drop(struct inagg_stats *count, int verdict)
{
	__u32 reason = -verdict;

	barrier_var(reason);
	count->drops[reason & (INAGG_R_CAPACITY - 1)]++;
	return XDP_DROP;
}

static __always_inline int refuse(__u32 row, __u32 reason)
{
	struct inagg_stats *count = get_stats(row);

	return count ? drop(count, -(int)reason) : XDP_DROP;
}

static __always_inline struct inagg_job *get_job(const struct inagg_hdr *h)
{
	__u32 number = bpf_ntohs(h->job);
	struct inagg_job *job = bpf_map_lookup_elem(&jobs, &number);

	return job && job->size ? job : NULL;
}

/* Is the frame, of that family, addressed to this switch? */
static __always_inline int for_us(void *data, void *end, __u32 family, const struct inagg_switch_settings *set)
{
	struct udphdr *udp;

	if (family == 4) {
		struct iphdr *ip = data + ETH_HLEN;

		udp = data + INAGG_UDP4;
		return (void *)(udp + 1) <= end && set->address4 && ip->daddr == set->address4 &&
		       udp->dest == bpf_htons(INAGG_PORT);
	} else {
		struct ipv6hdr *ip = data + ETH_HLEN;

		udp = data + INAGG_UDP6;
		return (void *)(udp + 1) <= end && same_address(&ip->daddr, set->address6, 6) &&
		       udp->dest == bpf_htons(INAGG_PORT);
	}
}

/* Is there a VLAN tag behind the first @at bytes, of which the last two say so? */
static __always_inline int is_tagged(void *data, void *end, __u32 at)
{
	const __be16 *protocol = data + at - sizeof(*protocol);

	if ((void *)(protocol + 1) > end)
		return 0;
	return *protocol == bpf_htons(ETH_P_8021Q) || *protocol == bpf_htons(ETH_P_8021AD);
}

/*
 * The frame is the kernel's, unless it claims to come from this switch: workers believe what has its
 * address, so nobody behind a port may send in its name, in whatever way the datagram is cut or wrapped.
 */
static __always_inline int pass(void *data, void *end, const struct inagg_switch_settings *set)
{
	const struct address6 *own = (const void *)set->address6;
	const __be16 *protocol;
	struct ipv6hdr *ip6;
	struct iphdr *ip;
	__u32 at = ETH_HLEN;

	/* receivers take tags of VLAN 0 off, however many there are: what is behind them counts */
	if (is_tagged(data, end, at))
		at += VLAN_HLEN;
	if (is_tagged(data, end, at))
		at += VLAN_HLEN;
	if (is_tagged(data, end, at))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_PARSE);
	protocol = data + at - sizeof(*protocol);
	ip = data + at;
	ip6 = data + at;
	if ((void *)(ip + 1) > end)
		return XDP_PASS;
	if (*protocol == bpf_htons(ETH_P_IP) && set->address4 && ip->saddr == set->address4)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_ADDRESS);
	if (*protocol == bpf_htons(ETH_P_IPV6) && (void *)(ip6 + 1) <= end && (own->word[0] | own->word[1]) &&
	    same_address(&ip6->saddr, own, 6))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_ADDRESS);
	return XDP_PASS;
}

/* The frame, whose receiver is in it, leaves by this port. */
static __always_inline int leave_by(__u32 ifindex)
{
	int action = bpf_redirect_map(&exits, ifindex, XDP_DROP);

	return action == XDP_REDIRECT ? action : bpf_redirect(ifindex, 0);	/* no agent: nor have copies a program */
}

/*
 * Out through the port it came in.  Not XDP_TX: a veth delivers those only to a peer with an XDP program
 * of its own, redirected frames also to one with GRO, which is all that an unprivileged worker has.
 */
static __always_inline int send_back(const struct xdp_md *ctx)
{
	return leave_by(ctx->ingress_ifindex);
}

/* The frame came from a rank and goes to it: this switch is where it went. */
static __always_inline int reply(struct xdp_md *ctx, __u32 payload, __be16 port)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	__u32 family;

	if (data + INAGG_HDR4 > end)
		return XDP_ABORTED;
	family = family_of(data);
	if (write_headers(data, end, family, payload, destination_of(data, family), source_of(data, family),
			  port))
		return XDP_ABORTED;
	return send_back(ctx);
}

/* To the group's addresses; an egress program, where there is one, replaces them by each rank's. */
static __always_inline int multicast(struct xdp_md *ctx, __u32 payload, const struct inagg_job *job,
				     struct inagg_stats *count)
{
	void *data = frame_data(ctx), *end = frame_end(ctx), *map;
	struct endpoint group = { (void *)job->group_mac, job->group };
	__u32 family, index = job->index;

	if (data + INAGG_HDR4 > end)
		return XDP_ABORTED;
	family = family_of(data);
	if (write_headers(data, end, family, payload, destination_of(data, family), group, job->group_port))
		return XDP_ABORTED;
	map = bpf_map_lookup_elem(&ports, &index);
	if (!map) {
		count->drops[INAGG_R_MULTICAST]++;
		return XDP_DROP;
	}
	return bpf_redirect_map(map, 0, BPF_F_BROADCAST);
}

/* Make the frame carry @bytes behind the inagg header. */
static __always_inline int resize(struct xdp_md *ctx, struct packet *p, __u32 bytes)
{
	int delta = (int)bytes - (int)p->payload;

	if (delta && bpf_xdp_adjust_tail(ctx, delta))
		return -1;
	p->payload = bytes;
	return 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_uplink);
} uplinks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INAGG_MAX_QUEUES);
	__type(key, __u32);
	__type(value, struct inagg_queue);
} queues SEC(".maps");

/* By ifindex of up ports, for canary: how full the links from the switches above are. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, INAGG_MAX_UPS);
	__type(key, __u32);
	__type(value, struct inagg_queue);
} arrivals SEC(".maps");

/* `queues` has entries: the agent knows the rate of some port. */
const volatile __u32 has_queues;

/* A frame leaves by that port; does it have to wait there for long? */
static __always_inline int is_queue_long(__u32 ifindex, __u32 bytes)
{
	struct inagg_queue *queue;

	if (!has_queues)
		return 0;
	queue = bpf_map_lookup_elem(&queues, &ifindex);
	return queue && inagg_queue_add(queue, bytes, bpf_ktime_get_ns());
}

/* Whatever a frame is, it has come by that link. */
static __always_inline void count_arrival(struct xdp_md *ctx, const struct inagg_switch_settings *set)
{
	__u32 ifindex = ctx->ingress_ifindex;
	struct inagg_queue *queue;

	if (!has_queues || !(set->flags & INAGG_SWITCH_HAS_PARENT))
		return;
	queue = bpf_map_lookup_elem(&arrivals, &ifindex);
	if (queue)
		inagg_queue_add(queue, bpf_xdp_get_buff_len(ctx), bpf_ktime_get_ns());
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_queue);
} quotas SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_queue);
} uplink_quotas SEC(".maps");

/* They are filled: no job may send more. */
const volatile __u32 has_quotas, has_uplink_quotas;

/* The job sends a frame, which its quota in @quotas is to allow: -INAGG_R_QUOTA, 0, or 1 where little is left. */
static __always_inline int spend_quota(void *quotas, const struct inagg_job *job, __u32 bytes)
{
	__u32 row = job->index;
	struct inagg_queue *quota = bpf_map_lookup_elem(quotas, &row);
	__u64 now = bpf_ktime_get_ns();

	if (!quota)
		return 0;
	return inagg_quota_admits(quota, bytes, now) ? inagg_quota_is_short(quota, now) : -INAGG_R_QUOTA;
}

/* Has the job sent too much?  For what has passed admission, so that nobody uses up another's quota. */
static __always_inline int is_over_quota(const struct inagg_job *job, __u32 bytes)
{
	return has_quotas && spend_quota(&quotas, job, bytes) < 0;
}

/* A frame of the job is to go up, as spend_quota() says: with a mark where little is left. */
static __always_inline int spend_uplink_quota(const struct inagg_job *job, __u32 bytes)
{
	return has_uplink_quotas ? spend_quota(&uplink_quotas, job, bytes) : 0;
}

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS *INAGG_MAX_RANKS);
	__type(key, __u32);
	__type(value, __u64);
} subtrees SEC(".maps");

static __always_inline struct inagg_member *member_of(const struct inagg_job *job, __u32 rank)
{
	__u32 row = job->index * INAGG_MAX_RANKS + rank;

	return bpf_map_lookup_elem(&members, &row);
}

/* The ranks behind the switch that @rank is behind; 0: it is behind none, or somebody there has not joined. */
static __always_inline __u64 subtree_of(const struct inagg_job *job, __u32 rank)
{
	__u32 row = job->index * INAGG_MAX_RANKS + rank;
	__u64 *behind = bpf_map_lookup_elem(&subtrees, &row);

	return behind ? *behind : 0;
}

/* Does the packet come from where the rank of row @m is?  0 or a negative reason. */
static __always_inline int comes_from(const struct xdp_md *ctx, void *data, const struct inagg_member *m)
{
	__u32 family = family_of(data);

	if (m->ifindex != ctx->ingress_ifindex)
		return -INAGG_R_PORT;
	if (m->family != family || !same_address(m->address, source_of(data, family).address, family))
		return -INAGG_R_ADDRESS;
	return 0;
}

/* The two ends of the way to a switch above. */
static __always_inline struct endpoint own_end(const struct inagg_uplink *up)
{
	struct endpoint e = { (void *)up->own_mac, up->own_address };
	return e;
}

static __always_inline struct endpoint far_end(const struct inagg_uplink *up)
{
	struct endpoint e = { (void *)up->mac, up->address };
	return e;
}

#include <inagg/core/combiner.h>
#include <inagg/core/leader.h>

#include "answer.h"
#include "switchml.h"
#include "trio.h"

/* A rank that may join gets the job's configuration at once; the agent decides about the others. */
static __always_inline int joined(const struct xdp_md *ctx, void *data, __u64 nonce, const struct inagg_member *m)
{
	__u32 family = family_of(data);

	if (!m->ifindex || m->ifindex != ctx->ingress_ifindex || m->family != family ||
	    !same_address(m->address, source_of(data, family).address, family))
		return 0;
	return (m->flags & INAGG_MEMBER_STATIC) || m->nonce == nonce;
}

/* What a CONFIG says of ranks: to a rank, those that the job goes on with; to a switch, those behind it, and 0
 * until all of them have joined. */
static __always_inline __u64 ranks_for(const struct inagg_job *job, const struct inagg_member *m, __u32 row)
{
	__u64 *behind;

	if (!(m->flags & INAGG_MEMBER_SWITCH))
		return job->flags & INAGG_JOIN_TREE ? inagg_all_ranks(job->size) : job->all;
	behind = bpf_map_lookup_elem(&subtrees, &row);
	return behind ? *behind : 0;
}

/* By the job's key, if it has one: without, its ranks believe nothing.  All but the checksums is written. */
static __always_inline void prove(struct inagg_hdr *h, __u32 row)
{
	struct inagg_mac_key *key = bpf_map_lookup_elem(&keys, &row);

	if (key && inagg_mac_key_is_set(key))
		inagg_hdr_prove(h, h + 1, key);
}

/* The body goes back as it came. */
static __always_inline void write_refusal(struct inagg_hdr *h, const struct inagg_job *job, __u32 reason, __u16 boot)
{
	h->version_type = INAGG_WIRE_VERSION << 4 | INAGG_REFUSED;
	h->slot = bpf_htonl(reason);
	h->boot = bpf_htons(boot);
	h->level_flags = 0;
	prove(h, job->index);
	inagg_hdr_seal_checked(h, inagg_body_checksum(h + 1));
}

static __always_inline void write_stragglers(struct inagg_config *c, __u32 row)
{
	struct inagg_stragglers *s = bpf_map_lookup_elem(&stragglers, &row);

	if (!s)
		return;
	c->stragglers.temporary = bpf_cpu_to_be64(s->temporary);
	c->stragglers.permanent = bpf_cpu_to_be64(s->permanent);
}

static __always_inline void write_config(struct inagg_hdr *h, const struct inagg_job *job, __u64 ranks, __u16 boot)
{
	struct inagg_config *c = (void *)(h + 1);

	h->version_type = INAGG_WIRE_VERSION << 4 | INAGG_CONFIG;
	h->generation = bpf_htons(job->generation);
	h->boot = bpf_htons(boot);
	h->fan_in = bpf_htons(job->size);
	h->contributors = bpf_cpu_to_be64(ranks);
	c->size = bpf_htons(job->size);
	c->elements = bpf_htons(job->elements);
	c->slots = bpf_htonl(job->slots);
	c->control_slots = bpf_htonl(job->control_slots);
	c->algorithm = job->algorithm;
	c->flags = job->flags;
	c->group_port = job->group_port;
	__builtin_memcpy(c->group, job->group, 16);
	if (!job->group_port && job->flags & INAGG_JOIN_WATCHED)
		write_stragglers(c, job->index);
	h->level_flags = 0;
	prove(h, job->index);
	inagg_hdr_seal_checked(h, inagg_body_checksum(c));
}

/* When a switch below is to send what it has of a block of trio. */
static __always_inline void write_policy(struct inagg_hdr *h, const struct inagg_job *job, __u64 ranks)
{
	__u32 row = job->index;
	struct inagg_job_policy *p = bpf_map_lookup_elem(&policies, &row);

	if (!p || job->algorithm != INAGG_TRIO)
		return;
	h->block = bpf_htonl(inagg_expiry_below(p->policy.expiry_us));
	h->count = bpf_htons(inagg_quorum_below(p->policy.quorum, inagg_count_ranks(job->all), inagg_count_ranks(ranks)));
}

static __always_inline struct inagg_asking *asking_of(__u32 port, int joins)
{
	struct inagg_asking none = { .rate = { .unit_ns = ask_ns, .mark_ns = ask_ns * INAGG_ASKS_AT_ONCE } }, *known;
	__u32 key = port << 1 | joins;

	known = bpf_map_lookup_elem(&asks, &key);
	if (known)
		return known;
	bpf_map_update_elem(&asks, &key, &none, BPF_NOEXIST);
	return bpf_map_lookup_elem(&asks, &key);
}

/*
 * All ports share the way to the agent: none may fill it, however long the agent is away.  JOINs, which are repeated, take nothing
 * from what is said once.  CPUs that race may let a few more through.
 */
static __always_inline int asks_too_much(__u32 port, int joins)
{
	struct inagg_asking *a = asking_of(port, joins);

	if (!a)
		return 0;
	if (bpf_ringbuf_query(&events, BPF_RB_CONS_POS) > a->since) {	/* the agent has begun with what was counted */
		a->since = bpf_ringbuf_query(&events, BPF_RB_PROD_POS);
		a->count = 0;
	}
	if (a->count >= INAGG_ASKS_AT_ONCE || !inagg_quota_admits(&a->rate, 1 << INAGG_QUEUE_SHIFT, bpf_ktime_get_ns()))
		return 1;
	__sync_fetch_and_add(&a->count, 1);
	return 0;
}

static __always_inline int ask_agent(const struct xdp_md *ctx, void *data, const struct datagram *d,
				     const struct inagg_join *join)
{
	struct inagg_event *event;
	__u32 family;

	if (asks_too_much(ctx->ingress_ifindex, inagg_hdr_type(&d->hdr) == INAGG_JOIN))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_RATE);
	event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	if (!event)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_FULL);
	family = family_of(data);
	event->ifindex = ctx->ingress_ifindex;
	event->source_port = d->udp.source;
	event->family = family;
	event->type = inagg_hdr_type(&d->hdr);
	event->job = bpf_ntohs(d->hdr.job);
	event->rank = bpf_ntohs(d->hdr.source);
	event->generation = bpf_ntohs(d->hdr.generation);
	__builtin_memcpy(event->mac, source_of(data, family).mac, 6);
	__builtin_memset(event->address, 0, 16);
	if (family == 4)
		__builtin_memcpy(event->address, &((struct iphdr *)(data + ETH_HLEN))->saddr, 4);
	else
		__builtin_memcpy(event->address, &((struct ipv6hdr *)(data + ETH_HLEN))->saddr, 16);
	event->join = *join;
	event->hdr = d->hdr;
	event->reason = bpf_ntohl(d->hdr.slot);
	event->ranks = bpf_be64_to_cpu(d->hdr.contributors);
	event->expiry_us = bpf_ntohl(d->hdr.block);
	event->quorum = bpf_ntohs(d->hdr.count);
	__builtin_memcpy(event->own_mac, destination_of(data, family).mac, 6);
	bpf_ringbuf_submit(event, 0);
	return XDP_DROP;
}

/* Else the agent learns where they are to go: CONFIG proves the path of all that follows.  A configured member's JOIN tells. */
static __always_inline int answers_reach(void *data, const struct inagg_member *m)
{
	const __be16 *known = (const void *)m->mac, *here = data + ETH_ALEN;

	return (m->flags & INAGG_MEMBER_STATIC) || !((known[0] ^ here[0]) | (known[1] ^ here[1]) | (known[2] ^ here[2]));
}

/* Why the member that sent @join cannot be in this job: a reason, or 0. */
static __always_inline __u32 why_not(const struct inagg_job *job, const struct inagg_join *join, __u32 rank)
{
	if (bpf_ntohs(join->size) != job->size)
		return INAGG_R_SIZE;
	if (bpf_ntohs(join->elements) < job->elements)
		return INAGG_R_MTU;
	return inagg_job_excludes(job, rank) ? INAGG_R_EXCLUDED : 0;
}

static __always_inline int membership(struct xdp_md *ctx, struct packet *p, void *data, void *end,
				      struct datagram *d, const struct inagg_job *job)
{
	struct inagg_join *join = (void *)(d + 1);
	__u32 rank = bpf_ntohs(d->hdr.source), row, reason;
	struct inagg_member *m;
	struct inagg_stats *count;
	__u64 ranks;

	if ((void *)(join + 1) > end || p->payload != sizeof(*join))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_LENGTH);
	if ((p->flags & INAGG_F_CHECKED) && !inagg_packet_intact(&d->hdr, inagg_body_checksum(join)))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_PAYLOAD_CHECKSUM);
	if (p->type == INAGG_JOIN && job && rank < job->size) {
		row = job->index * INAGG_MAX_RANKS + rank;
		m = bpf_map_lookup_elem(&members, &row);
		count = get_stats(job->index);
		if (m && count && joined(ctx, data, join->nonce, m) && answers_reach(data, m)) {
			reason = why_not(job, join, rank);
			if ((m->flags & INAGG_MEMBER_STATIC) && !reason) {
				m->nonce = join->nonce;
				m->receive_port = join->receive_port;
				__builtin_memcpy(m->mac, data + ETH_ALEN, 6);
			}
			/* Only the agent knows the job's position, and may know that the job cannot be here. */
			if ((m->flags & INAGG_MEMBER_SWITCH) && (join->flags & INAGG_JOIN_MOVED))
				ask_agent(ctx, data, d, join);
			ranks = ranks_for(job, m, row);
			if (!ranks)
				return XDP_DROP;	/* it asks again */
			p->reply_port = join->receive_port;
			attend(job->index, rank);
			d->hdr.count = bpf_htons(job->blocks);
			if (m->flags & INAGG_MEMBER_SWITCH)
				write_policy(&d->hdr, job, ranks);
			if (reason)
				write_refusal(&d->hdr, job, reason, p->boot);
			else
				write_config(&d->hdr, job, ranks, p->boot);
			count->joins++;
			return reply(ctx, p->payload, p->reply_port);
		}
	}
	return ask_agent(ctx, data, d, join);
}

#include "tree.h"
#include "panama.h"
#include "atp.h"
#include "combine.h"
#include "parent.h"
#include "sweep.h"
#include "canary.h"
#include "meter.h"

/* May this frame touch the job's slots?  Nothing has changed yet, and nothing does if it may not. */
static __always_inline int admit(struct xdp_md *ctx, struct packet *p, void *data,
				 const struct inagg_hdr *h, const struct inagg_job *job)
{
	__u32 slot = bpf_ntohl(h->slot);
	struct inagg_member *m;
	int verdict;

	p->block = inagg_block_of(h);
	if (p->type == INAGG_REQUEST)
		p->block.elements = 0;
	verdict = inagg_job_admits(job, &p->block, slot, p->payload);
	if (verdict)
		return verdict;
	m = member_of(job, p->block.rank);
	if (!m || !m->ifindex)
		return -INAGG_R_RANK;
	verdict = comes_from(ctx, data, m);
	if (verdict)
		return verdict;
	if ((job->flags & INAGG_JOIN_CHECKED) &&
	    !inagg_packet_intact(h, payload_checksum(ctx, p->payload / 64)))
		return -INAGG_R_PAYLOAD_CHECKSUM;
	p->reply_port = m->receive_port;
	p->leaf = m->leaf;
	p->slot_key = (job->first_slot + slot) * 2 + ((p->flags & INAGG_F_VERSION) != 0);
	return 0;
}

/* Leave the packet where the program that is called next finds it. */
static __always_inline void hand_over(const struct packet *p)
{
	struct packet *to = handed_over();

	if (to)
		*to = *p;
}

#include "several.h"

SEC("xdp.frags")
int inagg_switch(struct xdp_md *ctx)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct inagg_switch_settings *set;
	struct inagg_slot_memory *m;
	struct inagg_stats *count;
	struct datagram *d;
	struct inagg_hdr *h;
	struct inagg_job *job;
	struct packet p = {};
	int payload, verdict;
	__u32 zero = 0, family = parse_family(data, end);

	set = bpf_map_lookup_elem(&settings, &zero);
	if (!set)
		return XDP_PASS;
	count_arrival(ctx, set);
	if (!family || !for_us(data, end, family, set)) {
		if (ctx->ingress_ifindex == INAGG_LOOPBACK) {
			bpf_tail_call(ctx, &algorithms, INAGG_CALL_TICK);
			data = frame_data(ctx);	/* verifiers since 6.12 want so */
			end = frame_end(ctx);
		}
		return pass(data, end, set);
	}

	family = family_of(data);
	d = datagram_of(data, end, family);
	payload = d ? payload_length(data, end - (void *)d, family, d) : -1;
	/* longer than a block can be: in several buffers, so that the end of the first does not agree, or in one that is large */
	if (!d || payload < 0 || payload > INAGG_MAX_PAYLOAD) {
		bpf_tail_call(ctx, &algorithms, INAGG_CALL_SEVERAL);
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_LENGTH);
	}
	h = &d->hdr;
	if (inagg_hdr_version(h) != INAGG_WIRE_VERSION)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_VERSION);
	if (!inagg_hdr_intact(h))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_HEADER_CHECKSUM);

	p.payload = payload;
	p.type = inagg_hdr_type(h);
	p.flags = bpf_ntohs(h->level_flags) & INAGG_FLAGS_MASK;
	p.boot = set->boot;
	p.job = bpf_ntohs(h->job);
	job = get_job(h);

	switch (p.type) {
	case INAGG_JOIN:
	case INAGG_LEAVE:
		return membership(ctx, &p, data, end, d, job);
	case INAGG_CONTRIBUTION:
	case INAGG_REQUEST:
	case INAGG_RESTORE:
	case INAGG_PARTIAL:
		break;
	default:
		if (job && job->algorithm == INAGG_CANARY && is_word(p.type)) {
			hand_over(&p);
			bpf_tail_call(ctx, &algorithms, INAGG_CALL_CANARY_DOWN);
			return refuse(job->index, INAGG_R_ALGORITHM);
		}
		if (set->flags & INAGG_SWITCH_HAS_PARENT) {
			hand_over(&p);
			bpf_tail_call(ctx, &algorithms, INAGG_CALL_PARENT);
		}
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_TYPE);
	}
	if (!job)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_JOB);
	if (job->algorithm == INAGG_CANARY) {
		hand_over(&p);
		bpf_tail_call(ctx, &algorithms, INAGG_CALL_CANARY);
		return refuse(job->index, INAGG_R_ALGORITHM);
	}
	count = get_stats(job->index);
	if (!count)
		return XDP_ABORTED;
	verdict = admit(ctx, &p, data, h, job);
	if (verdict)
		return drop(count, verdict);
	count->packets++;
	/* What has no elements counts as the result that it may fetch here. */
	if (is_over_quota(job, end - data + (p.payload ? 0 : job->elements * 4)))
		return drop(count, -INAGG_R_QUOTA);

	if (inagg_call_of(job) != INAGG_SWITCHML) {
		p.block.stream = inagg_stream_of(job, bpf_ntohl(h->slot));
		hand_over(&p);
		bpf_tail_call(ctx, &algorithms, inagg_call_of(job));
		return drop(count, -INAGG_R_ALGORITHM);
	}
	m = bpf_map_lookup_elem(&slots, &p.slot_key);
	if (!m)
		return drop(count, -INAGG_R_SLOT);
	switch (p.type) {
	case INAGG_CONTRIBUTION:
		return switchml_contribute(ctx, &p, job, m, count);
	case INAGG_RESTORE:
		return switchml_restore(ctx, &p, job, m, count);
	case INAGG_REQUEST:
		return switchml_request(ctx, &p, job, m, count);
	default:
		return drop(count, -INAGG_R_TYPE);
	}
}

/* The n-th copy of one result through a port belongs to the n-th rank behind it. */
static __always_inline __u32 next_rank(const struct inagg_port_ranks *behind, __u32 job_index, __u64 result)
{
	__u32 row = job_index * INAGG_PORT_ENTRIES + behind->rank[0], n;
	struct turn *turn;

	if (behind->count < 2)
		return behind->rank[0];
	turn = bpf_map_lookup_elem(&turns, &row);
	if (!turn)
		return behind->rank[0];
	if (turn->result != result || turn->next >= behind->count) {
		turn->result = result;
		turn->next = 0;
	}
	n = turn->next++;
	return behind->rank[n & (INAGG_MAX_RANKS - 1)];
}

SEC("xdp.frags/devmap")
int inagg_egress(struct xdp_md *ctx)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	__u32 family = parse_family(data, end), entry;
	struct inagg_port_key key = {};
	struct inagg_port_ranks *behind;
	struct endpoint rank;
	struct inagg_member *m;
	struct datagram *d;
	struct inagg_hdr *h;
	struct inagg_job *job;
	int payload;

	if (!family)
		return XDP_PASS;
	family = family_of(data);
	d = datagram_of(data, end, family);
	payload = d ? payload_length(data, end - (void *)d, family, d) : -1;
	if (!d || payload < 0)
		return XDP_PASS;
	h = &d->hdr;
	job = get_job(h);
	if (!job)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_JOB);
	/* it has its receiver's, by leave_by(), or is for a group: whoever has filled that job's devmap wants none to be named */
	if (data + INAGG_HDR6 > end || job->group_port || !same_address(destination_of(data, family).address, job->group, family))
		return XDP_PASS;
	key.job = job->index;
	key.ifindex = ctx->egress_ifindex;
	behind = bpf_map_lookup_elem(&port_ranks, &key);
	if (!behind)
		return refuse(job->index, INAGG_R_PORT);
	entry = next_rank(behind, job->index, (__u64)bpf_ntohl(h->block) << 32 | bpf_ntohl(h->slot) << 4 |
						      inagg_hdr_type(h));
	if (job->algorithm == INAGG_CANARY)
		return canary_egress(ctx, h, job, payload, entry);
	m = member_of(job, entry);
	if (!m || !m->ifindex || m->family != family)
		return refuse(job->index, INAGG_R_RANK);
	rank.mac = (void *)m->mac;
	rank.address = m->address;
	if (write_headers(data, end, family, payload, source_of(data, family), rank, m->receive_port))
		return XDP_ABORTED;
	if (is_queue_long(ctx->egress_ifindex, end - data) && inagg_hdr_type(h) == INAGG_RESULT)
		flag_header(h, INAGG_F_CONGESTION);
	return XDP_PASS;
}

static int clear_slot(__u32 key)
{
	struct inagg_slot_memory *m = bpf_map_lookup_elem(&slots, &key);

	if (!m || !lock_slot(m))
		return 0;
	__builtin_memset(&m->state, 0, sizeof(m->state));
	m->ready = 0;
	end_merge(m);
	unlock_slot(m);
	return 1;
}

static __always_inline void free_record(struct inagg_record *r)
{
	if (inagg_record_is_open(r))
		count_gone(r->job, r->slot.generation);
	r->slot.flags = 0;
}

/* Of one job, or with INAGG_MAX_JOBS of all. */
static int clear_bucket(__u32 key, __u32 job)
{
	struct inagg_bucket_memory *m = bpf_map_lookup_elem(&buckets, &key);

	if (!m || !lock_word(&m->busy))
		return 0;
	for (int way = 0; way < INAGG_WAYS; way++)
		if (job == INAGG_MAX_JOBS || m->records[way].job == job)
			free_record(&m->records[way]);
	unlock_word(&m->busy);
	return 1;
}

static int set_floor(__u32 key, const struct inagg_floor *floor)
{
	struct inagg_floor_memory *m = bpf_map_lookup_elem(&floors, &key);

	if (!m || !lock_word(&m->busy))
		return 0;
	m->floor = *floor;
	unlock_word(&m->busy);
	return 1;
}

/* As clear_bucket(). */
static int clear_aggregator(__u32 key, __u32 job)
{
	struct inagg_aggregator_memory *m = bpf_map_lookup_elem(&aggregators, &key);

	if (!m)
		return 0;
	if (job != INAGG_MAX_JOBS && *(volatile __u8 *)&m->state.job != job)
		return 1;
	if (!lock_word(&m->busy))
		return 0;
	if (job == INAGG_MAX_JOBS || m->state.job == job)
		__builtin_memset(&m->state, 0, sizeof(m->state));
	unlock_word(&m->busy);
	return 1;
}

/* As clear_bucket(), or if it is stale. */
static int clear_descriptor(__u32 key, const struct inagg_clear_args *args)
{
	struct inagg_descriptor_memory *m = bpf_map_lookup_elem(&descriptors, &key);
	int wanted;

	if (!m)
		return 0;
	if (!(*(volatile __u8 *)&m->state.slot.flags & INAGG_SLOT_LIVE))
		return 1;
	if (!lock_word(&m->busy))
		return args->what == INAGG_CLEAR_STALE;	/* what is in use is not */
	if (args->what == INAGG_CLEAR_STALE)
		wanted = is_stale(m);
	else
		wanted = args->job == INAGG_MAX_JOBS || m->state.job == args->job;
	if (wanted)
		free_descriptor(m);
	unlock_word(&m->busy);
	return 1;
}

static long clear_one(__u32 i, void *context)
{
	const struct inagg_floor lost = {};
	struct inagg_clear_args *args = context;
	__u32 key = args->first + i;

	switch (args->what) {
	case INAGG_CLEAR_SLOTS:
		args->cleared += clear_slot(key);
		break;
	case INAGG_CLEAR_BUCKETS:
		args->cleared += clear_bucket(key, args->job);
		break;
	case INAGG_CLEAR_FLOORS:
		args->cleared += set_floor(key, &lost);
		break;
	case INAGG_CLEAR_AGGREGATORS:
		args->cleared += clear_aggregator(key, args->job);
		break;
	case INAGG_CLEAR_DESCRIPTORS:
	case INAGG_CLEAR_STALE:
		args->cleared += clear_descriptor(key, args);
		break;
	}
	return 0;
}

/* Writing zeros into maps from user space could tear a sum; this takes each entry's lock. */
SEC("syscall")
int inagg_clear(struct inagg_clear_args *args)
{
	struct inagg_clear_args work = *args;

	work.cleared = 0;
	bpf_loop(args->count, clear_one, &work, 0);
	args->cleared = work.cleared;
	return 0;
}

static long forget_records(__u32 i, void *context)
{
	struct inagg_forget_args *args = context;

	args->busy += !clear_bucket(i, args->job.index);
	return 0;
}

static long start_floor(__u32 i, void *context)
{
	struct inagg_forget_args *args = context;
	struct inagg_floor floor = inagg_floor_at_start(&args->job, i);

	args->busy += !set_floor(args->job.first_slot + i, &floor);
	return 0;
}

SEC("syscall")
int inagg_forget_job(struct inagg_forget_args *args)
{
	struct inagg_forget_args work = *args;
	__u32 row = work.job.index;
	struct inagg_job_policy *policy = bpf_map_lookup_elem(&policies, &row);
	__u32 *open = bpf_map_lookup_elem(&open_records, &row);

	work.busy = 0;
	if (!policy || !open)
		return -INAGG_R_JOB;
	policy->policy.most_open = 0;
	bpf_loop(bucket_count, forget_records, &work, 0);
	bpf_loop(work.job.slots + work.job.control_slots, start_floor, &work, 0);
	*open = 0;
	args->busy = work.busy;
	return 0;
}
