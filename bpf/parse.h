/* SPDX-License-Identifier: GPL-2.0-only */
/* Ethernet / IPv4 or IPv6 / UDP towards or from an inagg switch. */
#ifndef INAGG_PARSE_H
#define INAGG_PARSE_H

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <stddef.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <inagg/core/checksum.h>
#include <inagg/wire.h>

#define VLAN_HLEN	4	/* as in the kernel's if_vlan.h, which programs do not get */
#define INAGG_UDP4	(sizeof(struct ethhdr) + sizeof(struct iphdr))
#define INAGG_UDP6	(sizeof(struct ethhdr) + sizeof(struct ipv6hdr))
#define INAGG_HDR4	(INAGG_UDP4 + sizeof(struct udphdr))
#define INAGG_HDR6	(INAGG_UDP6 + sizeof(struct udphdr))

/*
 * Volatile: take the pointers anew each time.  Helpers that resize the frame invalidate them, and after
 * a loop over the payload the verifier knows a different range for each exit; a fresh pointer makes
 * those states equal again, which keeps its work bounded.
 */
static __always_inline void *frame_data(const struct xdp_md *ctx)
{
	return (void *)(long)*(const volatile __u32 *)&ctx->data;
}

static __always_inline void *frame_end(const struct xdp_md *ctx)
{
	return (void *)(long)*(const volatile __u32 *)&ctx->data_end;
}

/* 4, 6, or 0: not a UDP datagram in one piece without options.  All headers are inside the frame. */
static __always_inline int parse_family(void *data, void *end)
{
	const __be16 *protocol = data + offsetof(struct ethhdr, h_proto);

	if (data + INAGG_HDR4 > end)
		return 0;
	if (*protocol == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = data + ETH_HLEN;

		if (ip->version != 4 || ip->ihl != 5 || ip->protocol != IPPROTO_UDP ||
		    (ip->frag_off & bpf_htons(0x3fff)))
			return 0;
		return 4;
	}
	if (*protocol == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = data + ETH_HLEN;

		if (data + INAGG_HDR6 > end || ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
			return 0;
		return 6;
	}
	return 0;
}

/*
 * The family of a frame that parse_family() accepted, 4 or 6, read once more.  A verifier that follows
 * both values of a constant looks at everything behind it twice; of this one it knows a range only.
 */
static __always_inline __u32 family_of(void *data)
{
	return *(volatile __u8 *)(data + ETH_HLEN) >> 4;
}

/* What lies behind the IP header. */
struct datagram {
	struct udphdr udp;
	struct inagg_hdr hdr;
};

/*
 * The datagram in a frame of that family, NULL if the frame ends before its inagg header.  The barrier
 * keeps one base for all accesses: verifiers follow no negative offset from a variable one.
 */
static __always_inline struct datagram *datagram_of(void *data, void *end, __u32 family)
{
	__u32 offset = INAGG_UDP4 + (family & 2) * ((INAGG_UDP6 - INAGG_UDP4) / 2);
	struct datagram *d;

	barrier_var(offset);
	d = data + offset;
	return (void *)(d + 1) > end ? NULL : d;
}

/* Bytes behind the inagg header, in a frame with @rest from its UDP header on; negative if its lengths contradict each other. */
static __always_inline int payload_length(void *data, __u32 rest, __u32 family, const struct datagram *d)
{
	__u32 bytes = bpf_ntohs(d->udp.len), ip_bytes;

	if (family == 4)
		ip_bytes = bpf_ntohs(((struct iphdr *)(data + ETH_HLEN))->tot_len) - sizeof(struct iphdr);
	else
		ip_bytes = bpf_ntohs(((struct ipv6hdr *)(data + ETH_HLEN))->payload_len);
	if (ip_bytes != bytes || bytes < sizeof(*d) || bytes != rest)
		return -1;
	return bytes - sizeof(*d);
}

/* The frame's inagg header; NULL where the verifier cannot know better. */
static __always_inline struct inagg_hdr *header_of(const struct xdp_md *ctx, void **end)
{
	void *data = frame_data(ctx);
	struct datagram *d;

	*end = frame_end(ctx);
	if (data + INAGG_HDR4 > *end)
		return NULL;
	d = datagram_of(data, *end, family_of(data));
	return d ? &d->hdr : NULL;
}

struct mac {
	__u16	word[3];
};

struct address6 {
	__u64	word[2];
};

/* One end of a datagram: where its addresses lie, in a frame or in a map. */
struct endpoint {
	const struct mac *mac;
	const void *address;
};

static __always_inline struct endpoint source_of(void *data, __u32 family)
{
	struct endpoint e = { data + ETH_ALEN, data + ETH_HLEN };

	e.address += family == 4 ? offsetof(struct iphdr, saddr) : offsetof(struct ipv6hdr, saddr);
	return e;
}

static __always_inline struct endpoint destination_of(void *data, __u32 family)
{
	struct endpoint e = { data, data + ETH_HLEN };

	e.address += family == 4 ? offsetof(struct iphdr, daddr) : offsetof(struct ipv6hdr, daddr);
	return e;
}

static __always_inline int same_address(const void *a, const void *b, __u32 family)
{
	const struct address6 *x = a, *y = b;

	if (family == 4)
		return *(__u32 *)a == *(__u32 *)b;
	return x->word[0] == y->word[0] && x->word[1] == y->word[1];
}

/* Has a router on the way marked the frame because of its queue (RFC 3168)? */
static __always_inline int is_marked(void *data, __u32 family)
{
	const __u8 *ip = data + ETH_HLEN;
	__u8 ecn = family == 4 ? ip[1] : ip[1] >> 4;

	return (ecn & 3) == 3;
}

/* What an IPv4 header of ours always says; the checksum is computed from what varies. */
static __always_inline void write_ipv4(struct iphdr *ip, __u16 bytes, __be32 from, __be32 to)
{
	const __be16 version_tos = bpf_htons(0x4500 | INAGG_TOS);
	const __be16 never_fragmented = bpf_htons(0x4000), ttl_protocol = bpf_htons(64 << 8 | IPPROTO_UDP);
	__be16 *word = (__be16 *)ip, length = bpf_htons(sizeof(*ip) + bytes);

	word[0] = version_tos;
	word[1] = length;
	word[2] = 0;
	word[3] = never_fragmented;
	word[4] = ttl_protocol;
	word[5] = ~inagg_fold16((__u64)version_tos + never_fragmented + ttl_protocol + length + from + to);
	ip->saddr = from;
	ip->daddr = to;
}

static __always_inline void write_ipv6(struct ipv6hdr *ip, __u16 bytes, struct address6 from, struct address6 to)
{
	ip->priority = INAGG_TOS >> 4;
	ip->flow_lbl[0] = (INAGG_TOS & 0xf) << 4;
	ip->payload_len = bpf_htons(bytes);
	ip->hop_limit = 64;
	*(struct address6 *)&ip->saddr = from;
	*(struct address6 *)&ip->daddr = to;
}

/*
 * Write all headers below inagg's: a datagram of @payload bytes behind the inagg header.  The ends may
 * lie in this very frame.  The UDP checksum stays zero (RFC 6935): the inagg header has its own, and so
 * has the payload where asked.
 */
static __always_inline int write_headers(void *data, void *end, __u32 family, __u32 payload,
					 struct endpoint from, struct endpoint to, __be16 port)
{
	__u16 bytes = sizeof(struct udphdr) + sizeof(struct inagg_hdr) + payload;
	struct mac *mac = data, from_mac, to_mac;
	struct udphdr *udp;

	/* each checks by itself: verifiers do not see that what chooses how much to ask for chooses what is written */
	if (family == 4) {
		if (data + INAGG_HDR4 > end)
			return -1;
		write_ipv4(data + ETH_HLEN, bytes, *(__be32 *)from.address, *(__be32 *)to.address);
		udp = data + INAGG_UDP4;
	} else {
		if (data + INAGG_HDR6 > end)
			return -1;
		write_ipv6(data + ETH_HLEN, bytes, *(struct address6 *)from.address,
			   *(struct address6 *)to.address);
		udp = data + INAGG_UDP6;
	}
	from_mac = *from.mac;
	to_mac = *to.mac;
	mac[0] = to_mac;
	mac[1] = from_mac;
	udp->source = bpf_htons(INAGG_PORT);
	udp->dest = port;
	udp->len = bpf_htons(bytes);
	udp->check = 0;
	return 0;
}

#endif /* INAGG_PARSE_H */
