// SPDX-License-Identifier: GPL-2.0-only
/*
 * The root XDP program of a worker's network device.  It steers what a switch sends to a registered
 * UDP port into that process's stream program or AF_XDP socket; everything else is XDP_PASS.
 *
 * One program per device, shared: the process that comes first attaches it with a BPF link, the others
 * hold the same link open.  Nothing is pinned, so it goes with the last process, however that ends.
 * Ports are exclusive to a process.  The entries of one that was killed stay until the port's next owner replaces them or the
 * program goes: a stream program passes on what is of another job or generation.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include "worker_maps.h"

char LICENSE[] SEC("license") = "GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, INAGG_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} streams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, INAGG_PORTS);
	__type(key, __u32);
	__type(value, __u32);
} sockets SEC(".maps");

/* Least recently used goes first: entries of killed processes need no cleaning. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __be16);
	__type(value, struct inagg_template);
} templates SEC(".maps");

struct vlan_hdr {
	__be16	tci;
	__be16	ethertype;
};

struct packet {
	struct ethhdr *eth;
	struct vlan_hdr *vlan;
	struct iphdr *ip4;
	struct ipv6hdr *ip6;
	struct udphdr *udp;
};

/* Finds the UDP header; 0 if there is none that could be ours. */
static __always_inline int parse(struct xdp_md *ctx, struct packet *p)
{
	void *end = (void *)(long)ctx->data_end, *at = (void *)(long)ctx->data;
	__be16 ethertype;

	p->eth = at;
	p->vlan = NULL;
	p->ip4 = NULL;
	p->ip6 = NULL;
	at = p->eth + 1;
	if (at > end)
		return 0;
	ethertype = p->eth->h_proto;
	if (ethertype == bpf_htons(ETH_P_8021Q)) {
		p->vlan = at;
		at = p->vlan + 1;
		if (at > end)
			return 0;
		ethertype = p->vlan->ethertype;
	}
	if (ethertype == bpf_htons(ETH_P_IP)) {
		p->ip4 = at;
		at = p->ip4 + 1;
		if (at > end || p->ip4->ihl != 5 || p->ip4->protocol != IPPROTO_UDP ||
		    p->ip4->frag_off & bpf_htons(0x3fff))
			return 0;
	} else if (ethertype == bpf_htons(ETH_P_IPV6)) {
		p->ip6 = at;
		at = p->ip6 + 1;
		if (at > end || p->ip6->nexthdr != IPPROTO_UDP)
			return 0;
	} else {
		return 0;
	}
	p->udp = at;
	return (void *)(p->udp + 1) <= end;
}

static __always_inline int same_address6(const void *a, const void *b)
{
	const __u32 *x = a, *y = b;

	return x[0] == y[0] && x[1] == y[1] && x[2] == y[2] && x[3] == y[3];
}

/* Learn the way to the switch from the packet that accepts the join. */
static __always_inline void learn(struct xdp_md *ctx, const struct packet *p)
{
	void *end = (void *)(long)ctx->data_end;
	const struct inagg_hdr *h = (void *)(p->udp + 1);
	__be16 port = p->udp->dest;
	struct inagg_template *t;

	if ((void *)(h + 1) > end || h->version_type != (INAGG_WIRE_VERSION << 4 | INAGG_CONFIG))
		return;
	t = bpf_map_lookup_elem(&templates, &port);
	if (!t)
		return;
	if (p->ip4) {
		if (t->family != 4 || *(__u32 *)t->remote != p->ip4->saddr)
			return;
		__builtin_memcpy(t->local, &p->ip4->daddr, 4);
	} else {
		if (!p->ip6 || t->family != 6 || !same_address6(t->remote, &p->ip6->saddr))
			return;
		__builtin_memcpy(t->local, &p->ip6->daddr, 16);
	}
	__builtin_memcpy(t->remote_mac, p->eth->h_source, 6);
	__builtin_memcpy(t->local_mac, p->eth->h_dest, 6);
	t->vlan = p->vlan != NULL;
	t->vlan_tci = p->vlan ? p->vlan->tci : 0;
	t->ready = 1;
}

SEC("xdp.frags")
int inagg_worker(struct xdp_md *ctx)
{
	struct packet p;
	__u32 port;

	if (!parse(ctx, &p) || p.udp->source != bpf_htons(INAGG_PORT))
		return XDP_PASS;
	port = bpf_ntohs(p.udp->dest);
	learn(ctx, &p);
	bpf_tail_call(ctx, &streams, port);
	if (ctx->rx_queue_index != INAGG_SOCKET_QUEUE)
		return XDP_PASS;	/* a redirection there would be a loss */
	return bpf_redirect_map(&sockets, port, XDP_PASS);
}
