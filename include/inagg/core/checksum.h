/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Two checksums.  The header's is the Internet checksum (RFC 1071).  The payload's is the same sum
 * over 32-bit words: it sees every single-bit and single-word error and needs no table, so that a
 * switch can verify it at the speed of a read.
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

/** Add one 64-bit word of payload, as loaded from memory, to a running sum that starts at 0. */
INAGG_INLINE __u64 inagg_payload_sum(__u64 sum, __u64 word)
{
	return sum + (word & 0xffffffff) + (word >> 32);
}

/** The checksum of a running sum over at most 2^31 words; goes into `payload_checksum` as it is. */
INAGG_INLINE __u32 inagg_payload_fold(__u64 sum)
{
	sum = (sum & 0xffffffff) + (sum >> 32);
	sum = (sum & 0xffffffff) + (sum >> 32);
	return ~(__u32)sum;
}

/** Checksum of a struct inagg_join or inagg_config: five words, no loop. */
INAGG_INLINE __u32 inagg_body_checksum(const void *body)
{
	__u64 word, sum = 0;

#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 5; i++) {
		__builtin_memcpy(&word, (const char *)body + 8 * i, 8);
		sum = inagg_payload_sum(sum, word);
	}
	return inagg_payload_fold(sum);
}

INAGG_ASSERT(sizeof(struct inagg_config) == 40);

#ifndef __bpf__
/** Checksum of @bytes (a multiple of 8) at @payload, any alignment. */
INAGG_INLINE __u32 inagg_payload_checksum(const void *payload, __u32 bytes)
{
	const unsigned char *at = (const unsigned char *)payload;
	__u64 sum = 0, word;

	for (__u32 i = 0; i < bytes; i += 8) {
		__builtin_memcpy(&word, at + i, 8);
		sum = inagg_payload_sum(sum, word);
	}
	return inagg_payload_fold(sum);
}
#endif

#endif /* INAGG_CORE_CHECKSUM_H */
