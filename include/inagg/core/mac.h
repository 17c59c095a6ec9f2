/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Who knows the job's key.  JOIN, LEAVE, CONFIG and REFUSED of a job with a key carry a proof of it, a MAC over the header
 * and body: SipHash-2-4 (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012).  Checksums are no part of it:
 * they are written behind it.
 */
#ifndef INAGG_CORE_MAC_H
#define INAGG_CORE_MAC_H

#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_KEY_BYTES	16

/** A key as SipHash reads it: two little-endian words.  All zero: none. */
struct inagg_mac_key {
	__u64	word[2];
};

INAGG_INLINE __u64 inagg_little64(__u64 word)
{
	return inagg_swap64(__builtin_bswap64(word));
}

INAGG_INLINE struct inagg_mac_key inagg_mac_key_of(const void *bytes)
{
	struct inagg_mac_key key;

	__builtin_memcpy(&key, bytes, sizeof(key));
	key.word[0] = inagg_little64(key.word[0]);
	key.word[1] = inagg_little64(key.word[1]);
	return key;
}

INAGG_INLINE int inagg_mac_key_is_set(const struct inagg_mac_key *key)
{
	return (key->word[0] | key->word[1]) != 0;
}

struct inagg_siphash {
	__u64	v0, v1, v2, v3;
};

INAGG_INLINE __u64 inagg_rotate64(__u64 x, int bits)
{
	return x << bits | x >> (64 - bits);
}

INAGG_INLINE void inagg_sip_round(struct inagg_siphash *s)
{
	s->v0 += s->v1;
	s->v2 += s->v3;
	s->v1 = inagg_rotate64(s->v1, 13) ^ s->v0;
	s->v3 = inagg_rotate64(s->v3, 16) ^ s->v2;
	s->v0 = inagg_rotate64(s->v0, 32);
	s->v2 += s->v1;
	s->v0 += s->v3;
	s->v1 = inagg_rotate64(s->v1, 17) ^ s->v2;
	s->v3 = inagg_rotate64(s->v3, 21) ^ s->v0;
	s->v2 = inagg_rotate64(s->v2, 32);
}

INAGG_INLINE struct inagg_siphash inagg_siphash_start(const struct inagg_mac_key *key)
{
	struct inagg_siphash s = {
		.v0 = key->word[0] ^ 0x736f6d6570736575ULL,
		.v1 = key->word[1] ^ 0x646f72616e646f6dULL,
		.v2 = key->word[0] ^ 0x6c7967656e657261ULL,
		.v3 = key->word[1] ^ 0x7465646279746573ULL,
	};
	return s;
}

/** Take in 8 bytes, read as a little-endian word. */
INAGG_INLINE void inagg_siphash_word(struct inagg_siphash *s, __u64 word)
{
	s->v3 ^= word;
	inagg_sip_round(s);
	inagg_sip_round(s);
	s->v0 ^= word;
}

/** The tag of @bytes bytes: whole words, which have been taken in, and up to 7 more in the lower bytes of @rest. */
INAGG_INLINE __u64 inagg_siphash_end(struct inagg_siphash *s, __u64 rest, __u32 bytes)
{
	inagg_siphash_word(s, rest | (__u64)bytes << 56);
	s->v2 ^= 0xff;
	for (int i = 0; i < 4; i++)
		inagg_sip_round(s);
	return s->v0 ^ s->v1 ^ s->v2 ^ s->v3;
}

/** The tag of @bytes bytes at @data, any alignment. */
INAGG_INLINE __u64 inagg_siphash_of(const struct inagg_mac_key *key, const void *data, __u32 bytes)
{
	struct inagg_siphash s = inagg_siphash_start(key);
	__u64 word, rest = 0;
	__u32 at = 0;

	for (; at + sizeof(word) <= bytes; at += sizeof(word)) {
		__builtin_memcpy(&word, (const char *)data + at, sizeof(word));
		inagg_siphash_word(&s, inagg_little64(word));
	}
	__builtin_memcpy(&rest, (const char *)data + at, bytes - at);
	return inagg_siphash_end(&s, inagg_little64(rest), bytes);
}

/* What `check` is in these four types. */
INAGG_INLINE __u64 inagg_hdr_challenge(const struct inagg_hdr *h)
{
	__u64 challenge;

	__builtin_memcpy(&challenge, &h->check[0], sizeof(challenge));
	return challenge;
}

INAGG_INLINE void inagg_hdr_set_challenge(struct inagg_hdr *h, __u64 challenge)
{
	__builtin_memcpy(&h->check[0], &challenge, sizeof(challenge));
}

/** 0: none. */
INAGG_INLINE __u64 inagg_hdr_proof(const struct inagg_hdr *h)
{
	__u64 proof;

	__builtin_memcpy(&proof, &h->check[2], sizeof(proof));
	return proof;
}

/** The proof that @h and @body of 40 bytes should have: of all but the checksums and itself. */
INAGG_INLINE __u64 inagg_proof(const struct inagg_mac_key *key, const struct inagg_hdr *h, const void *body)
{
	const inagg_dword *header = (const inagg_dword *)h;
	struct inagg_siphash s = inagg_siphash_start(key);
	__u64 word;

#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 7; i++)	/* of word 5, `elements` only */
		inagg_siphash_word(&s, inagg_little64(i == 5 ? header[i] & inagg_swap64(0xffffULL << 48) : header[i]));
#ifdef __clang__
#pragma unroll
#endif
	for (int i = 0; i < 5; i++) {
		__builtin_memcpy(&word, (const char *)body + 8 * i, 8);
		inagg_siphash_word(&s, inagg_little64(word));
	}
	return inagg_little64(inagg_siphash_end(&s, 0, 12 * 8));
}

INAGG_ASSERT(sizeof(struct inagg_join) == 5 * 8);

/** Write the proof; all else is final but the checksums, which inagg_hdr_seal_checked() writes. */
INAGG_INLINE void inagg_hdr_prove(struct inagg_hdr *h, const void *body, const struct inagg_mac_key *key)
{
	__u64 proof;

	h->level_flags |= inagg_swap16(INAGG_F_CHECKED);
	proof = inagg_proof(key, h, body);
	__builtin_memcpy(&h->check[2], &proof, sizeof(proof));
}

/** Has somebody written this who knows the key? */
INAGG_INLINE int inagg_hdr_is_proven(const struct inagg_hdr *h, const void *body, const struct inagg_mac_key *key)
{
	return inagg_hdr_proof(h) == inagg_proof(key, h, body);
}

#ifndef __bpf__
/** SipHash-2-4 of @bytes bytes. */
INAGG_INLINE __u64 inagg_siphash(const struct inagg_mac_key *key, const void *data, __u32 bytes)
{
	const unsigned char *at = (const unsigned char *)data;
	struct inagg_siphash s = inagg_siphash_start(key);
	__u32 whole = bytes & ~7U;
	__u64 word = 0;

	for (__u32 i = 0; i < whole; i += 8) {
		__builtin_memcpy(&word, at + i, 8);
		inagg_siphash_word(&s, inagg_little64(word));
	}
	word = 0;
	for (__u32 i = whole; i < bytes; i++)
		word |= (__u64)at[i] << 8 * (i & 7);
	return inagg_siphash_end(&s, word, bytes);
}
#endif

#endif /* INAGG_CORE_MAC_H */
