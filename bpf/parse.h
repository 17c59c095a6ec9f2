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
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#include <inagg/core/checksum.h>
#include <inagg/wire.h>

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

/* 4, 6, or 0: not a UDP datagram in one piece without options. */
static __always_inline int parse_family(void *data, void *end)
{
	struct ethhdr *eth = data;

	if ((void *)(eth + 1) > end)
		return 0;
	if (eth->h_proto == bpf_htons(ETH_P_IP)) {
		struct iphdr *ip = (void *)(eth + 1);

		if (data + INAGG_HDR4 > end || ip->version != 4 || ip->ihl != 5 ||
		    ip->protocol != IPPROTO_UDP || (ip->frag_off & bpf_htons(0x3fff)))
			return 0;
		return 4;
	}
	if (eth->h_proto == bpf_htons(ETH_P_IPV6)) {
		struct ipv6hdr *ip = (void *)(eth + 1);

		if (data + INAGG_HDR6 > end || ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
			return 0;
		return 6;
	}
	return 0;
}

/* Offset of the inagg header in a frame of that family. */
static __always_inline __u32 header_offset(int family)
{
	return family == 6 ? INAGG_HDR6 : INAGG_HDR4;
}

/* Bytes behind the inagg header; negative if the frame's lengths contradict each other. */
static __always_inline int payload_length(void *data, void *end, int family)
{
	struct udphdr *udp;
	__u32 l3, bytes;

	if (family == 4) {
		struct iphdr *ip = data + sizeof(struct ethhdr);

		if (data + INAGG_HDR4 > end)
			return -1;
		udp = data + INAGG_UDP4;
		l3 = bpf_ntohs(ip->tot_len) - sizeof(struct iphdr);
	} else {
		struct ipv6hdr *ip = data + sizeof(struct ethhdr);

		if (data + INAGG_HDR6 > end)
			return -1;
		udp = data + INAGG_UDP6;
		l3 = bpf_ntohs(ip->payload_len);
	}
	bytes = bpf_ntohs(udp->len);
	if (l3 != bytes || bytes < sizeof(struct udphdr) + sizeof(struct inagg_hdr) ||
	    header_offset(family) - sizeof(struct udphdr) + bytes != (__u32)(end - data))
		return -1;
	return bytes - sizeof(struct udphdr) - sizeof(struct inagg_hdr);
}

static __always_inline void ipv4_seal(struct iphdr *ip)
{
	__u16 *word = (__u16 *)ip;
	__u64 sum = 0;

	ip->check = 0;
#pragma unroll
	for (int i = 0; i < 10; i++)
		sum += word[i];
	ip->check = ~inagg_fold16(sum);
}

/* One end of a datagram. */
struct endpoint {
	__u8	mac[6];
	__be16	port;
	__u8	address[16];	/* IPv4 in the first 4 bytes */
};

/*
 * Write all headers below inagg's: a datagram of @payload bytes behind the inagg header.  The UDP
 * checksum stays zero (RFC 6935): the inagg header has its own, and so has the payload where asked.
 */
static __always_inline int write_headers(void *data, void *end, int family, __u32 payload,
					 const struct endpoint *from, const struct endpoint *to)
{
	struct ethhdr *eth = data;
	struct udphdr *udp;
	__u16 bytes = sizeof(struct udphdr) + sizeof(struct inagg_hdr) + payload;

	if (family == 4) {
		struct iphdr *ip = data + sizeof(*eth);

		if (data + INAGG_HDR4 > end)
			return -1;
		ip->tos = INAGG_TOS;
		ip->tot_len = bpf_htons(sizeof(*ip) + bytes);
		ip->id = 0;
		ip->frag_off = bpf_htons(0x4000);	/* never fragmented */
		ip->ttl = 64;
		__builtin_memcpy(&ip->saddr, from->address, 4);
		__builtin_memcpy(&ip->daddr, to->address, 4);
		ipv4_seal(ip);
		udp = data + INAGG_UDP4;
	} else {
		struct ipv6hdr *ip = data + sizeof(*eth);

		if (data + INAGG_HDR6 > end)
			return -1;
		ip->priority = INAGG_TOS >> 4;
		ip->flow_lbl[0] = (INAGG_TOS & 0xf) << 4;
		ip->payload_len = bpf_htons(bytes);
		ip->hop_limit = 64;
		__builtin_memcpy(&ip->saddr, from->address, 16);
		__builtin_memcpy(&ip->daddr, to->address, 16);
		udp = data + INAGG_UDP6;
	}
	__builtin_memcpy(eth->h_source, from->mac, 6);
	__builtin_memcpy(eth->h_dest, to->mac, 6);
	udp->source = from->port;
	udp->dest = to->port;
	udp->len = bpf_htons(bytes);
	udp->check = 0;
	return 0;
}

#endif /* INAGG_PARSE_H */
