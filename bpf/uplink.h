/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Switches above this one, of which any will do (canary): who of them sends, and by which the next packet goes on.
 */
#ifndef INAGG_UPLINK_H
#define INAGG_UPLINK_H

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_UPS);
	__type(key, __u32);
	__type(value, struct inagg_uplink);
} up_ports SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_route);
} routes SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_FLOWLETS);
	__type(key, __u32);
	__type(value, struct inagg_flowlet);
} flowlets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, INAGG_MAX_JOBS);
	__type(key, __u32);
	__type(value, struct inagg_ways);
} ways SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct inagg_copies);
} copies SEC(".maps");

/* The bit of the switch above that has this address at that port; 0: none has. */
static __always_inline __u32 find_up(__u32 ifindex, const void *address, __u32 family)
{
	__u32 found = 0;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		__u32 key = i;
		struct inagg_uplink *up = bpf_map_lookup_elem(&up_ports, &key);

		if (up && up->ifindex && up->ifindex == ifindex && up->family == family &&
		    same_address(up->address, address, family))
			found = 1U << i;
	}
	return found;
}

/* The queue in @map, `queues` or `arrivals`, of that up port; NULL: nobody knows how fast its link is. */
static __always_inline struct inagg_queue *queue_in(void *map, __u32 key)
{
	struct inagg_uplink *up = bpf_map_lookup_elem(&up_ports, &key);
	__u32 ifindex;

	if (!has_queues || !up)
		return NULL;
	ifindex = up->ifindex;
	return bpf_map_lookup_elem(map, &ifindex);
}

/* Is that up port's queue in @map worth at most so many marks? */
static __always_inline int is_short(void *map, __u32 key, __u32 marks, __u64 now)
{
	struct inagg_queue *queue = queue_in(map, key);

	return !queue || inagg_queue_wait(queue, now) <= (__u64)queue->mark_ns * marks;
}

/* Bitmap of those in @ups of which that is so. */
static __always_inline __u32 short_queues(void *map, __u32 ups, __u32 marks)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 found = 0;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++)
		found |= (__u32)is_short(map, i, marks, now) << i;
	return found & ups;
}

/* What is not inlined from here on is so for verifiers, which would follow each combination of ports. */

/* Those in @live at which a frame waits for at most so many marks. */
__attribute__((noinline)) __u32 short_ups(__u32 live, __u32 marks)
{
	return short_queues(&queues, live, marks);
}

/* How long a frame would wait at that up port and, unless the way is @good, at a full link further on. */
__attribute__((noinline)) __u64 way_wait(__u32 key, __u32 good, __u64 now)
{
	struct inagg_queue *queue = queue_in(&queues, key);

	if (!queue)
		return !good;
	return inagg_queue_wait(queue, now) + (good ? 0 : (__u64)queue->mark_ns * INAGG_FULL_MARKS);
}

/* Of those in @live, of which those in @good lead well, where a frame waits least; of several the first from @preferred on. */
static __always_inline __u32 least_loaded(__u32 live, __u32 good, __u32 preferred, __u64 now)
{
	__u32 best = INAGG_MAX_UPS;
	__u64 shortest = ~0ULL;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		__u32 up = (preferred + i) & (INAGG_MAX_UPS - 1);
		__u64 wait;

		if (!(live >> up & 1))
			continue;
		wait = way_wait(up, good >> up & 1, now);
		if (wait < shortest) {
			shortest = wait;
			best = up;
		}
	}
	return best;
}

static __always_inline __u32 mixed(__u32 job, __u32 turn)
{
	return inagg_aggregator_index(job, turn, 0);
}

/* The port that packets go up by whose turn (inagg_ways_turn()) that is, where there is nothing to avoid. */
static __always_inline __u32 preferred_up(const struct inagg_route *route, __u32 job, __u32 turn)
{
	return (route->policy == INAGG_UP_ECMP ? mixed(job, turn) : turn) % route->ups & (INAGG_MAX_UPS - 1);
}

/* What is known of the job's ways; NULL: there is no such job. */
static __always_inline struct inagg_ways *ways_of(__u32 row, __u32 number)
{
	struct inagg_ways *w = bpf_map_lookup_elem(&ways, &row);
	struct inagg_job *job = bpf_map_lookup_elem(&jobs, &number);

	if (!w || !job)
		return NULL;
	inagg_ways_refresh(w, job->generation, bpf_ktime_get_ns());
	return w;
}

/* Those in @live that lead well to all of @ranks. */
__attribute__((noinline)) __u32 good_ups(__u32 row, __u32 job, __u32 live, __u64 ranks)
{
	struct inagg_ways *w = ways_of(row, job);

	return w ? inagg_ways_good(w, live, ranks) : live;
}

/* Bitmap of the up ports by which nearly as much comes as their links carry. */
__attribute__((noinline)) __u32 full_ups(void)
{
	const __u32 all = (1 << INAGG_MAX_UPS) - 1;

	return has_queues ? all & ~short_queues(&arrivals, all, 1) : 0;
}

/*
 * The port that a packet goes up by (Canary §5.2) when it is @turn, to @ranks, or 0: to nobody in particular; INAGG_MAX_UPS: there is
 * none.  Switches that have nothing to avoid choose alike, so that packets of a block meet.
 */
__attribute__((noinline)) __u32 choose_up(__u32 row, __u32 job, __u32 turn, __u64 ranks)
{
	struct inagg_route *route = bpf_map_lookup_elem(&routes, &row);
	__u32 live, good, preferred, up, key = mixed(job, turn) % INAGG_FLOWLETS;
	struct inagg_flowlet *flow;
	__u64 now = bpf_ktime_get_ns(), paused;

	if (!route || !route->up || !route->ups)
		return INAGG_MAX_UPS;
	live = route->up;
	preferred = preferred_up(route, job, turn);
	good = route->policy == INAGG_UP_ECMP ? live : good_ups(row, job, live, ranks);
	if (!good)
		good = live;
	switch (route->policy) {
	case INAGG_UP_DEFAULT:
		if ((good >> preferred & 1) && is_short(&queues, preferred, 1, now))
			return preferred;
		break;
	case INAGG_UP_ECMP:
		if (live >> preferred & 1)
			return preferred;
		break;
	case INAGG_UP_FLOWLET:
		flow = bpf_map_lookup_elem(&flowlets, &key);
		if (!flow)
			break;
		up = flow->up & (INAGG_MAX_UPS - 1);
		paused = now - flow->sent_ns;
		flow->sent_ns = now;
		if (paused < INAGG_FLOWLET_GAP_NS && (good >> up & 1))
			return up;
		up = least_loaded(live, good, preferred, now);
		flow->up = up;
		return up;
	}
	return least_loaded(live, good, preferred, now);
}

/* Is some of the up ports in @ups one that a packet of the job in @row to @ranks had better avoid? */
__attribute__((noinline)) int is_blocked(__u32 row, __u32 job, __u32 ups, __u64 ranks)
{
	struct inagg_route *route = bpf_map_lookup_elem(&routes, &row);
	__u32 idle;

	if (!route)
		return 0;
	if (route->policy == INAGG_UP_ECMP)
		return (ups & route->up) != ups;
	idle = short_ups(ups & route->up, 1);
	return good_ups(row, job, idle, ranks) != ups;
}

/* Share @ranks out among the up ports that a result of a block had better go by, in `copies`.  Bitmap of these; 0: there is none. */
__attribute__((noinline)) __u32 share_ups(__u32 row, __u32 job, __u32 turn, __u64 ranks)
{
	struct inagg_route *route = bpf_map_lookup_elem(&routes, &row);
	struct inagg_ways *w = ways_of(row, job);
	__u32 zero = 0, ups = 0, idle, usable;
	struct inagg_copies *c = bpf_map_lookup_elem(&copies, &zero);

	if (!route || !w || !c || !route->up || !route->ups)
		return 0;
	idle = short_ups(route->up, 1);
	usable = short_ups(route->up, INAGG_FULL_MARKS);	/* rather wait here than further on, but not for longer */
	if (inagg_ways_reached(w, idle, ranks) == inagg_ways_reached(w, usable, ranks))
		usable = idle;
	usable = usable ? usable : route->up;
	inagg_ways_share(w, usable, inagg_ways_first(idle ? idle : usable, preferred_up(route, job, turn)), ranks, c);
	for (__u32 i = 0; i < INAGG_MAX_UPS; i++)
		ups |= (c->ranks[i] != 0) << i;
	return ups;
}

#endif /* INAGG_UPLINK_H */
