/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The linear check of a sum: ranks that share a key see whether a result is the sum of what they contributed, whoever
 * has added it.  Rank r ends its block with
 *
 *	c_r = sum of w_i * x_i + mask_r   mod 2^64
 *
 * over its elements x_i, as four 16-bit limbs in 32-bit elements.  Whoever adds blocks adds these, too: a switch needs
 * to know nothing of it.  Limbs of INAGG_MAX_RANKS ranks do not overflow.  The sum of the masks is known to the ranks
 * only, so they can subtract it and compare.  Weights are secret, of 31 bits: an element changed by d != 0, |d| < 2^32,
 * passes for one value of its weight at most.
 *
 * The masks are differences of a keyed pseudo-random function P, around the ring of ranks, plus one total:
 *
 *	mask_r = P(r) - P(r + 1) + (r ? 0 : P(total))
 *
 * so those of all ranks add up to P(total), however many there are.  Any of them alone, and any set of them, is as
 * good as random: together they are a regular linear map of independent values.
 *
 * Each try of who guesses weights costs a result that does not hold: who verifies bounds them.
 *
 * A rank must never seal two different contents of one block: their difference would say something of the weights.
 *
 * x_i are int32 or, in fixed point, uint32, and their sum must not overflow.  Before the limbs goes one element more,
 * which is checked with the others: how many ranks the block's scale was made for, and how many it is too small for.
 * So nobody can choose a scale for them.
 */
#ifndef INAGG_CORE_LINEAR_CHECK_H
#define INAGG_CORE_LINEAR_CHECK_H

#include <inagg/core/mac.h>
#include <inagg/core/packet.h>
#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_CHECK_LIMBS	4
#define INAGG_CHECK_ELEMENTS	(1 + INAGG_CHECK_LIMBS)	/* at the end of a block */
#define INAGG_CHECK_NONCE_WORDS	4	/* of each rank, before the first block is sealed: so a key never makes the same masks twice */

/* What a rank says about the scale, in the element before the limbs. */
#define INAGG_CHECK_FITS	0x1U		/* it is that of its largest element */
#define INAGG_CHECK_TOO_SMALL	0x10000U	/* one of its elements is larger */

#define INAGG_CHECK_TOTAL	0xffffffffU	/* the part of P that is no rank's */

/** A block of the job that has or may have a check. */
struct inagg_check_block {
	__u64	call;		/* number since the key was agreed on: never the same again */
	__u64	context;	/* what else the ranks have agreed on for it */
	__u32	index;		/* of the block in its part of the call */
	__u8	phase;		/* 0: control; else which run of the call's data blocks */
};

/* What the ranks are to say about a block's scale. */
enum inagg_check_scale {
	INAGG_CHECK_UNSCALED,	/* there is none that they agreed on */
	INAGG_CHECK_AGREED,	/* it is that of some rank's largest element, and too small for none */
	INAGG_CHECK_GUESSED,	/* or it is not, and the result says so */
};

/** What a value of P is for; network byte order. */
struct inagg_check_tag {
	__be64	call;
	__be64	context;
	__be32	index;
	__be32	part;		/* rank, or INAGG_CHECK_TOTAL */
	__u8	phase;
	__u8	dtype_op;
	__u8	scale;
	__u8	chunks;		/* of elements */
	__u8	reserved[4];	/* zero */
};

/** A rank's, for one run of the job. */
struct inagg_check {
	struct inagg_mac_key masks;	/* P's */
	const __u32 *weights;		/* a packet's elements of them; the caller's */
	__u64	(*dot)(const void *elements, const __u32 *weights, __u32 count, int is_signed);	/* as inagg_check_dot() */
	__u32	elements;
	__u16	rank, size;
};

/** Sum of w_i * x_i over @count elements at @elements, any alignment; @is_signed: int32, else uint32.  SIMD code agrees. */
INAGG_INLINE __u64 inagg_check_dot(const void *elements, const __u32 *weights, __u32 count, int is_signed)
{
	__u64 sum = 0;

	for (__u32 i = 0; i < count; i++) {
		__u32 x;

		__builtin_memcpy(&x, (const char *)elements + 4 * (__u64)i, 4);
		sum += is_signed ? (__u64)(__s64)(__s32)x * weights[i] : (__u64)x * weights[i];
	}
	return sum;
}

INAGG_INLINE void inagg_check_set_limbs(void *limbs, __u64 check)
{
	for (__u32 i = 0; i < INAGG_CHECK_LIMBS; i++) {
		__u32 limb = (__u32)(check >> 16 * i) & 0xffff;

		__builtin_memcpy((char *)limbs + 4 * i, &limb, 4);
	}
}

/** The number whose limbs, or sums of limbs, are at @limbs. */
INAGG_INLINE __u64 inagg_check_of_limbs(const void *limbs)
{
	__u64 check = 0;

	for (__u32 i = 0; i < INAGG_CHECK_LIMBS; i++) {
		__u32 limb;

		__builtin_memcpy(&limb, (const char *)limbs + 4 * i, 4);
		check += (__u64)limb << 16 * i;
	}
	return check;
}

/* Keys of a run. */

/* What is made of the job's key. */
enum inagg_check_label {
	INAGG_CHECK_MASKS,
	INAGG_CHECK_WEIGHTS,
};

/** The most that can be made of @label and the nonces by who knows @key: 128 bits.  @nonces: those of @ranks ranks. */
INAGG_INLINE struct inagg_mac_key inagg_check_derive(const struct inagg_mac_key *key, __u16 label, __u16 job,
						     const __u32 *nonces, __u32 ranks)
{
	__u32 words = ranks * INAGG_CHECK_NONCE_WORDS / 2;
	struct inagg_mac_key derived;

	for (__u32 half = 0; half < 2; half++) {
		struct inagg_siphash s = inagg_siphash_start(key);

		for (__u32 i = 0; i < words; i++)
			inagg_siphash_word(&s, nonces[2 * i] | (__u64)nonces[2 * i + 1] << 32);
		inagg_siphash_word(&s, ((__u32)label << 16 | job) | (__u64)half << 32);
		derived.word[half] = inagg_siphash_end(&s, 0, (words + 1) * 8);
	}
	return derived;
}

/** Weight of the element @index, of 31 bits, not 0. */
INAGG_INLINE __u32 inagg_check_weight(const struct inagg_mac_key *weights, __u32 index)
{
	__u32 weight = (__u32)inagg_siphash_of(weights, &index, sizeof(index)) & 0x7fffffff;

	return weight ? weight : 1;
}

/* Masks: P, of SipHash-2-4. */

INAGG_INLINE __u64 inagg_check_part(const struct inagg_mac_key *key, const struct inagg_check_tag *tag, __u32 part)
{
	struct inagg_check_tag own = *tag;

	own.part = inagg_swap32(part);
	return inagg_siphash_of(key, &own, sizeof(own));
}

/** The mask of @rank of @size in the block that @tag names. */
INAGG_INLINE __u64 inagg_check_mask(const struct inagg_mac_key *key, const struct inagg_check_tag *tag, __u32 rank, __u32 size)
{
	__u32 next = rank + 1 == size ? 0 : rank + 1;
	__u64 mask = inagg_check_part(key, tag, rank) - inagg_check_part(key, tag, next);

	return rank ? mask : mask + inagg_check_part(key, tag, INAGG_CHECK_TOTAL);
}

/** The sum of the masks of @contributors, a bitmap of ranks. */
INAGG_INLINE __u64 inagg_check_masks(const struct inagg_mac_key *key, const struct inagg_check_tag *tag, __u64 contributors,
				     __u32 size)
{
	__u64 sum = 0;

	if (contributors == inagg_all_ranks(size))
		return inagg_check_part(key, tag, INAGG_CHECK_TOTAL);
	for (; contributors; contributors &= contributors - 1)
		sum += inagg_check_mask(key, tag, inagg_lowest_rank(contributors), size);
	return sum;
}

/* Blocks. */

INAGG_INLINE struct inagg_check_tag inagg_check_tag_of(const struct inagg_check_block *b, const struct inagg_block_meta *m)
{
	struct inagg_check_tag tag = {
		.call = inagg_swap64(b->call),
		.context = inagg_swap64(b->context),
		.index = inagg_swap32(b->index),
		.part = 0,
		.phase = b->phase,
		.dtype_op = m->dtype_op,
		.scale = m->scale,
		.chunks = (__u8)(m->elements / INAGG_CHUNK),
		.reserved = { 0 },
	};

	return tag;
}

/* Elements whose weighted sum the check is: int32, or fixed point. */
INAGG_INLINE int inagg_check_is_signed(const struct inagg_block_meta *m)
{
	return m->dtype_op == (INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM);
}

INAGG_INLINE int inagg_check_is_possible(const struct inagg_check *c, const struct inagg_block_meta *m)
{
	return (inagg_check_is_signed(m) || m->dtype_op == (INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_SUM)) &&
	       m->elements >= INAGG_CHUNK && m->elements <= c->elements;
}

/* Of all elements but the limbs. */
INAGG_INLINE __u64 inagg_check_weigh(const struct inagg_check *c, const struct inagg_block_meta *m, const void *payload)
{
	return c->dot(payload, c->weights, m->elements - INAGG_CHECK_LIMBS, inagg_check_is_signed(m));
}

/** What a rank says of the scale of its block @m, if that of its largest element is @exponent. */
INAGG_INLINE __u32 inagg_check_fits(enum inagg_check_scale scale, __u8 exponent, const struct inagg_block_meta *m)
{
	if (m->saturated || (scale != INAGG_CHECK_UNSCALED && exponent > m->scale))
		return INAGG_CHECK_TOO_SMALL;
	return scale != INAGG_CHECK_UNSCALED && exponent == m->scale ? INAGG_CHECK_FITS : 0;
}

/** Fill the end of @payload, which is INAGG_CHECK_ELEMENTS of its elements. */
INAGG_INLINE void inagg_check_seal(const struct inagg_check *c, const struct inagg_check_block *b,
				   const struct inagg_block_meta *m, void *payload, __u32 fits)
{
	char *limbs = (char *)payload + 4 * ((__u64)m->elements - INAGG_CHECK_LIMBS);
	struct inagg_check_tag tag = inagg_check_tag_of(b, m);

	__builtin_memcpy(limbs - 4, &fits, sizeof(fits));
	inagg_check_set_limbs(limbs, inagg_check_weigh(c, m, payload) + inagg_check_mask(&c->masks, &tag, c->rank, c->size));
}

/* Do the ranks say of the scale what they must? */
INAGG_INLINE int inagg_check_scale_holds(enum inagg_check_scale scale, const struct inagg_block_meta *m, __u32 fits, __u32 size)
{
	int right = fits && fits < INAGG_CHECK_TOO_SMALL;

	if (scale == INAGG_CHECK_AGREED)	/* of a rank that may not be in the sum */
		return right || (!fits && m->contributors != inagg_all_ranks(size));
	return scale == INAGG_CHECK_UNSCALED || right == (m->next_scale == m->scale);
}

/** Is @payload, m->elements of them, the sum of what m->contributors have sealed?  Then m->saturated is true, too. */
INAGG_INLINE int inagg_check_holds(const struct inagg_check *c, const struct inagg_check_block *b, struct inagg_block_meta *m,
				   const void *payload, enum inagg_check_scale scale)
{
	const char *limbs = (const char *)payload + 4 * ((__u64)m->elements - INAGG_CHECK_LIMBS);
	struct inagg_check_tag tag = inagg_check_tag_of(b, m);
	__u32 fits;

	/* others have smaller elements, or none: their payload would end before the limbs */
	if (!inagg_check_is_possible(c, m))
		return 0;
	if (inagg_check_of_limbs(limbs) !=
	    inagg_check_weigh(c, m, payload) + inagg_check_masks(&c->masks, &tag, m->contributors, c->size))
		return 0;
	__builtin_memcpy(&fits, limbs - 4, sizeof(fits));
	m->saturated = fits >= INAGG_CHECK_TOO_SMALL;	/* whatever the header says */
	return inagg_check_scale_holds(scale, m, fits, c->size);
}

/* Answers that do not hold.  Whoever changed a packet on its way may miss it the next time; what was added up wrong stays so. */

#define INAGG_DOUBT_MOST	8	/* of one block: each is one guess at a weight */
#define INAGG_DOUBT_MOST_IN_ALL	64

/** What is remembered of a slot's block.  All zero: nothing. */
struct inagg_doubt {
	__u32	block;
	__u32	sum;	/* of the first answer's payload */
	__u16	wrong;	/* answers */
	__u16	differ;	/* not all of them were alike */
};

/** One more of @block, which makes @in_all of the job; @sum: inagg_payload_checksum().  Nonzero: no more are taken. */
INAGG_INLINE int inagg_doubt_another(struct inagg_doubt *d, __u32 block, __u32 sum, __u64 in_all)
{
	if (!d->wrong || d->block != block) {
		d->block = block;
		d->sum = sum;
		d->wrong = d->differ = 0;
	}
	d->differ |= d->sum != sum;
	return ++d->wrong >= INAGG_DOUBT_MOST || in_all >= INAGG_DOUBT_MOST_IN_ALL;
}

#endif /* INAGG_CORE_LINEAR_CHECK_H */
