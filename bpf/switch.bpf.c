// SPDX-License-Identifier: GPL-2.0-only
/*
 * The XDP switch.
 *
 *   inagg_switch    on every port: what is not for this switch goes on to the kernel; joins; admission
 *                   (length, checksums, job, rank, port, address); then a tail call by algorithm
 *   inagg_switchml  SwitchML's slots (switchml.h)
 *   inagg_egress    on the devmap entries: gives each copy of a result its rank's addresses
 *   inagg_clear     run by the agent: forgets slots, safely beside traffic
 *
 * Loads with bpftool alone; inaggd does the same through libbpf.  Maps: switch_maps.h.
 */
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
	__uint(max_entries, INAGG_DEFAULT_SLOTS * 2);
	__type(key, __u32);
	__type(value, struct inagg_slot_memory);
} slots SEC(".maps");

struct ports_of_job {
	__uint(type, BPF_MAP_TYPE_DEVMAP);
	__uint(max_entries, INAGG_MAX_RANKS);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(struct bpf_devmap_val));
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__array(values, struct ports_of_job);
} ports SEC(".maps");

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
	__uint(max_entries, 64 * 1024);
} events SEC(".maps");

/* What the root program found out, for the algorithm that it calls. */
struct scratch {
	struct inagg_job job;
	struct inagg_block block;
	__u32	slot_key;	/* in `slots` */
	__u32	payload;	/* bytes behind the inagg header */
	__u16	family;		/* 4 or 6 */
	__u16	type;		/* enum inagg_type */
	__u16	flags;		/* enum inagg_flag */
	__u16	boot;
	struct endpoint us;	/* this switch, as the worker addressed it */
	struct endpoint worker;	/* where replies to this rank go */
	struct widened wide;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct scratch);
} scratch SEC(".maps");

/* Whose turn it is behind a port with several ranks: index job.index * ranks + first rank there. */
struct turn {
	__u64	result;		/* which frame is being copied */
	__u32	next;
	__u32	reserved;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS *INAGG_MAX_RANKS);
	__type(key, __u32);
	__type(value, struct turn);
} turns SEC(".maps");

int inagg_switchml(struct xdp_md *ctx);

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, INAGG_ALGORITHMS);
	__uint(key_size, sizeof(__u32));
	__array(values, int(void *));
} algorithms SEC(".maps") = {
	.values = {
		[INAGG_SWITCHML] = (void *)&inagg_switchml,
	},
};

static __always_inline struct scratch *get_scratch(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&scratch, &zero);
}

static __always_inline struct inagg_stats *get_stats(__u32 row)
{
	return bpf_map_lookup_elem(&stats, &row);
}

/* Count and drop. */
static __always_inline int refuse(__u32 row, __u32 reason)
{
	struct inagg_stats *count = get_stats(row);

	if (count)
		count->drops[reason & (INAGG_R_CAPACITY - 1)]++;
	return XDP_DROP;
}

static __always_inline struct inagg_job *get_job(const struct inagg_hdr *h)
{
	__u32 number = bpf_ntohs(h->job);
	struct inagg_job *job = bpf_map_lookup_elem(&jobs, &number);

	return job && job->size ? job : NULL;
}

static __always_inline int same_address(const __u8 *a, const __u8 *b, int family)
{
	const __u32 *x = (const __u32 *)a, *y = (const __u32 *)b;

	if (family == 4)
		return x[0] == y[0];
	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

/* Is the frame addressed to this switch?  Notes both ends if so. */
static __always_inline int for_us(void *data, void *end, int family,
				  const struct inagg_switch_settings *set, struct scratch *sc)
{
	struct ethhdr *eth = data;
	struct udphdr *udp;

	if (family == 4) {
		struct iphdr *ip = data + sizeof(*eth);

		if (data + INAGG_HDR4 > end || !set->address4 || ip->daddr != set->address4)
			return 0;
		udp = data + INAGG_UDP4;
		if (udp->dest != bpf_htons(INAGG_PORT))
			return 0;
		__builtin_memcpy(sc->us.address, &ip->daddr, 4);
		__builtin_memcpy(sc->worker.address, &ip->saddr, 4);
	} else {
		struct ipv6hdr *ip = data + sizeof(*eth);

		if (data + INAGG_HDR6 > end || !same_address((void *)&ip->daddr, set->address6, 6))
			return 0;
		udp = data + INAGG_UDP6;
		if (udp->dest != bpf_htons(INAGG_PORT))
			return 0;
		__builtin_memcpy(sc->us.address, &ip->daddr, 16);
		__builtin_memcpy(sc->worker.address, &ip->saddr, 16);
	}
	__builtin_memcpy(sc->us.mac, eth->h_dest, 6);
	__builtin_memcpy(sc->worker.mac, eth->h_source, 6);
	sc->us.port = bpf_htons(INAGG_PORT);
	sc->worker.port = udp->source;
	return 1;
}

/*
 * Out through the port it came in.  Not XDP_TX: a veth delivers those only to a peer with an XDP program
 * of its own, redirected frames also to one with GRO, which is all that an unprivileged worker has.
 */
static __always_inline int send_back(const struct xdp_md *ctx)
{
	return bpf_redirect(ctx->ingress_ifindex, 0);
}

/* The frame goes to one rank, or to all of them; its headers follow. */
static __always_inline int send(struct xdp_md *ctx, struct scratch *sc, struct inagg_stats *count, int everyone)
{
	void *data = frame_data(ctx), *end = frame_end(ctx), *map;
	const struct inagg_job *job = &sc->job;
	struct endpoint group;

	if (!everyone) {
		if (write_headers(data, end, sc->family, sc->payload, &sc->us, &sc->worker))
			return XDP_ABORTED;
		return send_back(ctx);
	}
	/* The group's addresses; an egress program, where there is one, replaces them by the rank's. */
	__builtin_memcpy(group.mac, job->group_mac, 6);
	__builtin_memcpy(group.address, job->group, 16);
	group.port = job->group_port;
	if (write_headers(data, end, sc->family, sc->payload, &sc->us, &group))
		return XDP_ABORTED;
	map = bpf_map_lookup_elem(&ports, &job->index);
	if (!map) {
		count->drops[INAGG_R_MULTICAST]++;
		return XDP_DROP;
	}
	return bpf_redirect_map(map, 0, BPF_F_BROADCAST);
}

/* Make the frame carry @bytes behind the inagg header. */
static __always_inline int resize(struct xdp_md *ctx, struct scratch *sc, __u32 bytes)
{
	int delta = (int)bytes - (int)sc->payload;

	if (delta && bpf_xdp_adjust_tail(ctx, delta))
		return -1;
	sc->payload = bytes;
	return 0;
}

#include "switchml.h"

/* A rank that may join gets the job's configuration at once; the agent decides about the others. */
static __always_inline int joined(const struct xdp_md *ctx, const struct scratch *sc, __u64 nonce,
				  const struct inagg_member *m)
{
	if (!m->ifindex || m->ifindex != ctx->ingress_ifindex || m->family != sc->family ||
	    !same_address(m->address, sc->worker.address, sc->family))
		return 0;
	return (m->flags & INAGG_MEMBER_STATIC) || m->nonce == nonce;
}

static __always_inline void write_config(struct inagg_hdr *h, const struct inagg_job *job, __u16 boot)
{
	struct inagg_config *c = (void *)(h + 1);

	h->version_type = INAGG_WIRE_VERSION << 4 | INAGG_CONFIG;
	h->generation = bpf_htons(job->generation);
	h->boot = bpf_htons(boot);
	h->fan_in = bpf_htons(job->size);
	c->size = bpf_htons(job->size);
	c->elements = bpf_htons(job->elements);
	c->slots = bpf_htonl(job->slots);
	c->control_slots = bpf_htonl(job->control_slots);
	c->algorithm = job->algorithm;
	c->flags = job->flags;
	c->group_port = job->group_port;
	__builtin_memcpy(c->group, job->group, 16);
	h->level_flags = 0;
	inagg_hdr_seal_checked(h, inagg_body_checksum(c));
}

static __always_inline int ask_agent(const struct xdp_md *ctx, const struct scratch *sc,
				     const struct inagg_hdr *h, const struct inagg_join *join)
{
	struct inagg_event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);

	if (!event)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_FULL);
	event->ifindex = ctx->ingress_ifindex;
	event->source_port = sc->worker.port;
	event->family = sc->family;
	event->type = sc->type;
	event->job = bpf_ntohs(h->job);
	event->rank = bpf_ntohs(h->source);
	event->generation = bpf_ntohs(h->generation);
	__builtin_memcpy(event->mac, sc->worker.mac, 6);
	__builtin_memcpy(event->address, sc->worker.address, 16);
	if (sc->family == 4)
		__builtin_memset(event->address + 4, 0, 12);
	event->join = *join;
	bpf_ringbuf_submit(event, 0);
	return XDP_DROP;
}

static __always_inline int membership(struct xdp_md *ctx, struct scratch *sc, struct inagg_hdr *h,
				      const struct inagg_job *job)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct inagg_join *join = (void *)(h + 1);
	__u32 rank = bpf_ntohs(h->source), row;
	struct inagg_member *m;
	struct inagg_stats *count;

	if ((void *)(join + 1) > end || sc->payload != sizeof(*join))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_LENGTH);
	if ((sc->flags & INAGG_F_CHECKED) && !inagg_packet_intact(h, inagg_body_checksum(join)))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_PAYLOAD_CHECKSUM);
	if (sc->type == INAGG_JOIN && job && rank < job->size) {
		row = job->index * INAGG_MAX_RANKS + rank;
		m = bpf_map_lookup_elem(&members, &row);
		count = get_stats(job->index);
		if (m && count && joined(ctx, sc, join->nonce, m)) {
			if (bpf_ntohs(join->size) != job->size)
				return refuse(job->index, INAGG_R_SIZE);
			if (bpf_ntohs(join->elements) < job->elements)
				return refuse(job->index, INAGG_R_MTU);
			if (m->flags & INAGG_MEMBER_STATIC) {
				m->nonce = join->nonce;
				m->receive_port = join->receive_port;
				__builtin_memcpy(m->mac, sc->worker.mac, 6);
			}
			sc->worker.port = join->receive_port;
			write_config(h, job, sc->boot);
			count->joins++;
			if (write_headers(data, end, sc->family, sc->payload, &sc->us, &sc->worker))
				return XDP_ABORTED;
			return send_back(ctx);
		}
	}
	return ask_agent(ctx, sc, h, join);
}

/* May this frame touch the job's slots?  Nothing has changed yet, and nothing does if it may not. */
static __always_inline int admit(struct xdp_md *ctx, struct scratch *sc, const struct inagg_hdr *h,
				 const struct inagg_job *job)
{
	void *end = frame_end(ctx);
	__u32 slot = bpf_ntohl(h->slot), row;
	struct inagg_member *m;
	int verdict;

	sc->block = inagg_block_of(h);
	if (sc->type == INAGG_REQUEST)
		sc->block.elements = 0;
	verdict = inagg_job_admits(job, &sc->block, slot, sc->payload);
	if (verdict)
		return verdict;
	row = job->index * INAGG_MAX_RANKS + sc->block.rank;
	m = bpf_map_lookup_elem(&members, &row);
	if (!m || !m->ifindex)
		return -INAGG_R_RANK;
	if (m->ifindex != ctx->ingress_ifindex)
		return -INAGG_R_PORT;
	if (m->family != sc->family || !same_address(m->address, sc->worker.address, sc->family))
		return -INAGG_R_ADDRESS;
	if ((job->flags & INAGG_JOIN_CHECKED) &&
	    !inagg_packet_intact(h, payload_checksum((void *)(h + 1), end, sc->payload / 64)))
		return -INAGG_R_PAYLOAD_CHECKSUM;
	sc->worker.port = m->receive_port;
	sc->job = *job;
	sc->slot_key = (job->first_slot + slot) * 2 + ((sc->flags & INAGG_F_VERSION) != 0);
	return 0;
}

SEC("xdp.frags")
int inagg_switch(struct xdp_md *ctx)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	int family = parse_family(data, end), payload, verdict;
	struct inagg_switch_settings *set;
	struct inagg_stats *count;
	struct scratch *sc;
	struct inagg_hdr *h;
	struct inagg_job *job;
	__u32 zero = 0;

	if (!family)
		return XDP_PASS;
	set = bpf_map_lookup_elem(&settings, &zero);
	sc = get_scratch();
	if (!set || !sc || !for_us(data, end, family, set, sc))
		return XDP_PASS;

	h = data + header_offset(family);
	payload = payload_length(data, end, family);
	if (payload < 0 || (void *)(h + 1) > end)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_LENGTH);
	if (inagg_hdr_version(h) != INAGG_WIRE_VERSION)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_VERSION);
	if (!inagg_hdr_intact(h))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_HEADER_CHECKSUM);

	sc->family = family;
	sc->payload = payload;
	sc->type = inagg_hdr_type(h);
	sc->flags = bpf_ntohs(h->level_flags) & INAGG_FLAGS_MASK;
	sc->boot = set->boot;
	job = get_job(h);

	switch (sc->type) {
	case INAGG_JOIN:
	case INAGG_LEAVE:
		return membership(ctx, sc, h, job);
	case INAGG_CONTRIBUTION:
	case INAGG_REQUEST:
	case INAGG_RESTORE:
		break;
	default:
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_TYPE);
	}
	if (!job)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_JOB);
	count = get_stats(job->index);
	if (!count)
		return XDP_ABORTED;
	count->packets++;
	verdict = admit(ctx, sc, h, job);
	if (verdict)
		return refuse(job->index, -verdict);

	bpf_tail_call(ctx, &algorithms, job->algorithm);
	return refuse(job->index, INAGG_R_ALGORITHM);
}

SEC("xdp.frags")
int inagg_switchml(struct xdp_md *ctx)
{
	struct scratch *sc = get_scratch();
	struct inagg_slot_memory *m;
	struct inagg_stats *count;

	if (!sc)
		return XDP_ABORTED;
	m = bpf_map_lookup_elem(&slots, &sc->slot_key);
	count = get_stats(sc->job.index);
	if (!m || !count)
		return refuse(sc->job.index, INAGG_R_SLOT);
	switch (sc->type) {
	case INAGG_CONTRIBUTION:
		return switchml_contribute(ctx, sc, m, count);
	case INAGG_RESTORE:
		return switchml_restore(ctx, sc, m, count);
	default:
		return switchml_request(ctx, sc, m, count);
	}
}

/* The n-th copy of one result through a port belongs to the n-th rank behind it. */
static __always_inline __u32 next_rank(const struct inagg_port_ranks *behind, __u32 job_index, __u64 result)
{
	__u32 row = job_index * INAGG_MAX_RANKS + behind->rank[0], n;
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
	int family = parse_family(data, end), payload;
	struct inagg_port_key key = {};
	struct inagg_port_ranks *behind;
	struct endpoint us, rank;
	struct inagg_member *m;
	struct ethhdr *eth = data;
	struct inagg_hdr *h;
	struct inagg_job *job;
	__u32 row;

	if (!family)
		return XDP_PASS;
	payload = payload_length(data, end, family);
	h = data + header_offset(family);
	if (payload < 0 || (void *)(h + 1) > end)
		return XDP_PASS;
	job = get_job(h);
	if (!job)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_JOB);
	key.job = job->index;
	key.ifindex = ctx->egress_ifindex;
	behind = bpf_map_lookup_elem(&port_ranks, &key);
	if (!behind)
		return refuse(job->index, INAGG_R_PORT);
	row = job->index * INAGG_MAX_RANKS +
	      next_rank(behind, job->index, (__u64)bpf_ntohl(h->block) << 32 | bpf_ntohl(h->slot) << 4 |
						    inagg_hdr_type(h));
	m = bpf_map_lookup_elem(&members, &row);
	if (!m || !m->ifindex || m->family != family)
		return refuse(job->index, INAGG_R_RANK);

	if ((void *)(eth + 1) > end)
		return XDP_ABORTED;
	__builtin_memcpy(us.mac, eth->h_source, 6);
	if (family == 4)
		__builtin_memcpy(us.address, &((struct iphdr *)(eth + 1))->saddr, 4);
	else if (data + INAGG_HDR6 <= end)
		__builtin_memcpy(us.address, &((struct ipv6hdr *)(eth + 1))->saddr, 16);
	us.port = bpf_htons(INAGG_PORT);
	__builtin_memcpy(rank.mac, m->mac, 6);
	__builtin_memcpy(rank.address, m->address, 16);
	rank.port = m->receive_port;
	if (write_headers(data, end, family, payload, &us, &rank))
		return XDP_ABORTED;
	return XDP_PASS;
}

static long clear_one(__u32 i, void *context)
{
	struct inagg_clear_args *args = context;
	__u32 key = args->first + i;
	struct inagg_slot_memory *m = bpf_map_lookup_elem(&slots, &key);

	if (!m)
		return 1;
	if (!lock_slot(m))
		return 0;
	__builtin_memset(&m->state, 0, sizeof(m->state));
	m->ready = 0;
	unlock_slot(m);
	args->cleared++;
	return 0;
}

/* Writing zeros into `slots` from user space could tear a sum; this takes each slot's lock. */
SEC("syscall")
int inagg_clear(struct inagg_clear_args *args)
{
	struct inagg_clear_args work = { .first = args->first };

	bpf_loop(args->count, clear_one, &work, 0);
	args->cleared = work.cleared;
	return 0;
}
