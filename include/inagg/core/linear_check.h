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
 * x_i are int32 or, in fixed point, uint32, and their sum must not overflow.  Before the limbs goes one element more,
 * which is checked with the others: how many ranks the block's scale was made for, and how many it is too small for.
 * So nobody can choose a scale for them.
 */
#ifndef INAGG_CORE_LINEAR_CHECK_H
#define INAGG_CORE_LINEAR_CHECK_H

#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_CHECK_LIMBS	4
#define INAGG_CHECK_ELEMENTS	(1 + INAGG_CHECK_LIMBS)	/* at the end of a block */

/* What a rank says about the scale, in the element before the limbs. */
#define INAGG_CHECK_FITS	0x1U		/* it is that of its largest element */
#define INAGG_CHECK_TOO_SMALL	0x10000U	/* one of its elements is larger */

#define INAGG_CHECK_TOTAL	0xffffffffU	/* the part of P that is no rank's */

/** What a value of P is for; network byte order. */
struct inagg_check_tag {
	__be64	call;		/* number since the key was agreed on: never the same again */
	__be64	context;	/* what else the ranks have agreed on for it */
	__be32	index;		/* of the block in its part of the call */
	__be32	part;		/* rank, or INAGG_CHECK_TOTAL */
	__u8	phase;		/* 0: control; else which run of the call's data blocks */
	__u8	dtype_op;
	__u8	scale;
	__u8	chunks;		/* of elements */
	__u8	reserved[4];	/* zero */
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

/** P of @tag: SipHash-2-4 in user space and in the kernel. */
typedef __u64 (*inagg_check_prf)(const void *key, const struct inagg_check_tag *tag);

INAGG_INLINE __u64 inagg_check_part(inagg_check_prf prf, const void *key, const struct inagg_check_tag *tag, __u32 part)
{
	struct inagg_check_tag own = *tag;

	own.part = inagg_swap32(part);
	return prf(key, &own);
}

/** The mask of @rank of @size in the block that @tag names. */
INAGG_INLINE __u64 inagg_check_mask(inagg_check_prf prf, const void *key, const struct inagg_check_tag *tag, __u32 rank,
				    __u32 size)
{
	__u32 next = rank + 1 == size ? 0 : rank + 1;
	__u64 mask = inagg_check_part(prf, key, tag, rank) - inagg_check_part(prf, key, tag, next);

	return rank ? mask : mask + inagg_check_part(prf, key, tag, INAGG_CHECK_TOTAL);
}

/** The sum of the masks of @contributors, a bitmap of ranks. */
INAGG_INLINE __u64 inagg_check_masks(inagg_check_prf prf, const void *key, const struct inagg_check_tag *tag,
				     __u64 contributors, __u32 size)
{
	__u64 sum = 0;

	if (contributors == inagg_all_ranks(size))
		return inagg_check_part(prf, key, tag, INAGG_CHECK_TOTAL);
	for (; contributors; contributors &= contributors - 1)
		sum += inagg_check_mask(prf, key, tag, inagg_lowest_rank(contributors), size);
	return sum;
}

#endif /* INAGG_CORE_LINEAR_CHECK_H */
