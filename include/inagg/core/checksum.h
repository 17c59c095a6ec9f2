/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Two checksums.  The header's is the Internet checksum (RFC 1071), in every packet: hardware computes it
 * too.  The payload's covers the header as well and is asked for by job.
 */
#ifndef INAGG_CORE_CHECKSUM_H
#define INAGG_CORE_CHECKSUM_H

#include <inagg/core/types.h>
#include <inagg/wire.h>

INAGG_INLINE __u16 inagg_fold16(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (__u16)sum;
}

/** Checksum of the IPv4 header at @header (RFC 791): 20 bytes, no options, its own field zero. */
INAGG_INLINE __u16 inagg_ipv4_checksum(const void *header)
{
	const inagg_half *half = (const inagg_half *)header;
	__u64 sum = 0;

#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 10; i++)
		sum += half[i];
	return (__u16)~inagg_fold16(sum);
}

/** Ones' complement sum of the header as it lies in memory, `checksum` included. */
INAGG_INLINE __u16 inagg_hdr_sum(const struct inagg_hdr *h)
{
	const inagg_word *word = (const inagg_word *)h;
	__u64 sum = 0;

#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 16; i++)
		sum += word[i];
	return inagg_fold16(sum);
}

/** Fill in the header checksum; every other field is final. */
INAGG_INLINE void inagg_hdr_seal(struct inagg_hdr *h)
{
	h->checksum = 0;
	h->checksum = (__be16)(__u16)~inagg_hdr_sum(h);
}

INAGG_INLINE int inagg_hdr_intact(const struct inagg_hdr *h)
{
	return inagg_hdr_sum(h) == 0xffff;
}

/*
 * The payload checksum, for jobs whose links damage frames: a position-dependent sum (Fletcher 1982)
 * over 32-bit words.  Two flips that cancel in a plain sum do not cancel in the sum of its prefixes, and
 * neither sum can overflow, so nothing falls out of them.
 * It has a part for the payload and one for the header, added up, so that whoever changes a header need
 * not read the payload again.
 */
struct inagg_digest {
	__u64	sum;
	__u64	order;
};

/** Add two words of payload, as loaded from memory, to a digest that starts at zero. */
INAGG_INLINE void inagg_digest_add(struct inagg_digest *d, __u64 word)
{
	d->sum += word & 0xffffffff;
	d->order += d->sum;
	d->sum += word >> 32;
	d->order += d->sum;
}

/** 32 bits of it: each step but the last is a bijection, and mixes high bits into low ones. */
INAGG_INLINE __u32 inagg_digest_fold(const struct inagg_digest *d)
{
	__u64 x = d->order;

	x ^= x >> 32;
	x *= 0x9e3779b97f4a7c15ULL;
	x ^= x >> 32;
	x += d->sum;
	x ^= x >> 32;
	x *= 0xc2b2ae3d27d4eb4fULL;
	return (__u32)(x ^ x >> 32);
}

/** The header's part: everything but the two checksums. */
INAGG_INLINE __u32 inagg_hdr_digest(const struct inagg_hdr *h)
{
	const inagg_dword *word = (const inagg_dword *)h;
	struct inagg_digest d = { 0, 0 };

#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 8; i++)
		inagg_digest_add(&d, i == 5 ? word[i] & inagg_swap64(0xffffULL << 48) : word[i]);
	return inagg_digest_fold(&d);
}

/** Finish a header of a CHECKED job; @payload is the payload's part, 0 without one. */
INAGG_INLINE void inagg_hdr_seal_checked(struct inagg_hdr *h, __u32 payload)
{
	h->level_flags |= inagg_swap16(INAGG_F_CHECKED);
	h->payload_checksum = payload + inagg_hdr_digest(h);
	inagg_hdr_seal(h);
}

/** The payload's part of a sealed header's checksums, for inagg_hdr_reseal(); 0: the job has none. */
INAGG_INLINE __u32 inagg_hdr_payload_part(const struct inagg_hdr *h)
{
	return h->level_flags & inagg_swap16(INAGG_F_CHECKED) ? h->payload_checksum - inagg_hdr_digest(h) : 0;
}

/** Finish a header anew that was changed since: other flags than CHECKED, say. */
INAGG_INLINE void inagg_hdr_reseal(struct inagg_hdr *h, __u32 payload)
{
	if (h->level_flags & inagg_swap16(INAGG_F_CHECKED))
		inagg_hdr_seal_checked(h, payload);
	else
		inagg_hdr_seal(h);
}

/** Does the payload checksum hold?  Not for a packet without one. */
INAGG_INLINE int inagg_packet_intact(const struct inagg_hdr *h, __u32 payload)
{
	return (inagg_swap16(h->level_flags) & INAGG_F_CHECKED) &&
	       h->payload_checksum == payload + inagg_hdr_digest(h);
}

/** Payload part of a struct inagg_join or inagg_config: five words, no loop. */
INAGG_INLINE __u32 inagg_body_checksum(const void *body)
{
	struct inagg_digest d = { 0, 0 };
	__u64 word;

#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 5; i++) {
		__builtin_memcpy(&word, (const char *)body + 8 * i, 8);
		inagg_digest_add(&d, word);
	}
	return inagg_digest_fold(&d);
}

INAGG_ASSERT(sizeof(struct inagg_config) == 40);

#ifndef __bpf__
/** Payload part of @bytes (a multiple of 8) at @payload, any alignment. */
INAGG_INLINE __u32 inagg_payload_checksum(const void *payload, __u32 bytes)
{
	const unsigned char *at = (const unsigned char *)payload;
	struct inagg_digest d = { 0, 0 };
	__u64 word;

	for (__u32 i = 0; i < bytes; i += 8) {
		__builtin_memcpy(&word, at + i, 8);
		inagg_digest_add(&d, word);
	}
	return inagg_digest_fold(&d);
}
#endif

#endif /* INAGG_CORE_CHECKSUM_H */
