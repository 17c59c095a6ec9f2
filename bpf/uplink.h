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

/* How long a frame would wait in the queue in @map, `queues` or `arrivals`, of that up port, and whether that is long. */
static __always_inline __u64 queue_wait_in(void *map, __u32 key, __u64 now, int *is_long)
{
	struct inagg_uplink *up = bpf_map_lookup_elem(&up_ports, &key);
	struct inagg_queue *queue;
	__u32 ifindex;
	__u64 wait;

	*is_long = 0;
	if (!has_queues || !up)
		return 0;
	ifindex = up->ifindex;
	queue = bpf_map_lookup_elem(map, &ifindex);
	if (!queue)
		return 0;
	wait = inagg_queue_wait(queue, now);
	*is_long = wait > queue->mark_ns;
	return wait;
}

static __always_inline __u64 up_wait(__u32 key, __u64 now, int *is_long)
{
	return queue_wait_in(&queues, key, now, is_long);
}

/* Of those in @live the one with the shortest queue, the first behind @preferred if several have none. */
static __always_inline __u32 least_loaded(__u32 live, __u32 preferred, __u64 now)
{
	__u32 best = INAGG_MAX_UPS;
	__u64 shortest = ~0ULL;
	int ignored;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		__u32 up = (preferred + i) & (INAGG_MAX_UPS - 1);
		__u64 wait;

		if (!(live >> up & 1))
			continue;
		wait = up_wait(up, now, &ignored);
		if (wait < shortest) {
			shortest = wait;
			best = up;
		}
	}
	return best;
}

static __always_inline __u32 mixed(__u32 job, __u32 position)
{
	return inagg_aggregator_index(job, position, 0);
}

/* The port that a block's packets go up by where there is nothing to avoid. */
static __always_inline __u32 preferred_up(const struct inagg_route *route, __u32 job, __u32 position)
{
	return (route->policy == INAGG_UP_ECMP ? mixed(job, position) : position) % route->ups & (INAGG_MAX_UPS - 1);
}

/* Those in @live that lead well to all of @ranks, or all if none does. */
static __always_inline __u32 good_ups(__u32 row, __u32 live, __u64 ranks)
{
	struct inagg_ways *w = bpf_map_lookup_elem(&ways, &row);
	__u32 good = w ? inagg_ways_good(w, live, ranks) : live;

	return good ? good : live;
}

/* Bitmap of the up ports by which nearly as much comes as their links carry. */
static __always_inline __u32 full_ups(void)
{
	__u64 now = bpf_ktime_get_ns();
	__u32 full = 0;

	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		int is_long;

		queue_wait_in(&arrivals, i, now, &is_long);
		full |= (__u32)is_long << i;
	}
	return full;
}

/*
 * The port that a packet of a block goes up by (Canary §5.2), to @ranks, or 0: to nobody in particular; INAGG_MAX_UPS: there is
 * none.  Switches that have nothing to avoid choose alike, so that the block's packets meet.
 */
__attribute__((noinline)) __u32 choose_up(__u32 row, __u32 job, __u32 position, __u64 ranks)
{
	struct inagg_route *route = bpf_map_lookup_elem(&routes, &row);
	__u32 live, preferred, up, key = mixed(job, position) % INAGG_FLOWLETS;
	struct inagg_flowlet *flow;
	__u64 now = bpf_ktime_get_ns(), paused;
	int is_long;

	if (!route || !route->up || !route->ups)
		return INAGG_MAX_UPS;
	live = route->up;
	preferred = preferred_up(route, job, position);
	if (route->policy != INAGG_UP_ECMP)
		live = good_ups(row, live, ranks);
	switch (route->policy) {
	case INAGG_UP_DEFAULT:
		up_wait(preferred, now, &is_long);
		if ((live >> preferred & 1) && !is_long)
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
		if (paused < INAGG_FLOWLET_GAP_NS && (live >> up & 1))
			return up;
		up = least_loaded(live, preferred, now);
		flow->up = up;
		return up;
	}
	return least_loaded(live, preferred, now);
}

/* Is some of the up ports in @ups one that a packet of the job in @row to @ranks had better avoid? */
__attribute__((noinline)) int is_blocked(__u32 row, __u32 ups, __u64 ranks)
{
	struct inagg_route *route = bpf_map_lookup_elem(&routes, &row);
	struct inagg_ways *w = bpf_map_lookup_elem(&ways, &row);
	__u64 now = bpf_ktime_get_ns();

	if (!route || !w)
		return 0;
	if (inagg_ways_good(w, ups, ranks) != ups)
		return 1;
	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		int is_long;

		if (!(ups >> i & 1))
			continue;
		up_wait(i, now, &is_long);
		if (is_long || !(route->up >> i & 1))
			return 1;
	}
	return 0;
}

/* Share @ranks out among the up ports that a result of a block had better go by, in `copies`.  Bitmap of these; 0: there is none. */
__attribute__((noinline)) __u32 share_ups(__u32 row, __u32 job, __u32 position, __u64 ranks)
{
	struct inagg_route *route = bpf_map_lookup_elem(&routes, &row);
	struct inagg_ways *w = bpf_map_lookup_elem(&ways, &row);
	__u64 now = bpf_ktime_get_ns();
	__u32 zero = 0, idle = 0, ups = 0;
	struct inagg_copies *c = bpf_map_lookup_elem(&copies, &zero);

	if (!route || !w || !c || !route->up || !route->ups)
		return 0;
	for (__u32 i = 0; i < INAGG_MAX_UPS; i++) {
		int is_long;

		up_wait(i, now, &is_long);
		idle |= (!is_long && (route->up >> i & 1)) << i;
	}
	inagg_ways_share(w, idle ? idle : route->up, preferred_up(route, job, position), ranks, c);
	for (__u32 i = 0; i < INAGG_MAX_UPS; i++)
		ups |= (c->ranks[i] != 0) << i;
	return ups;
}

#endif /* INAGG_UPLINK_H */
