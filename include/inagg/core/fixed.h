/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Fixed point: how a scale becomes a binary point, and 16-bit floats in integer instructions.
 *
 * SwitchML Appendix C, Theorem 2: with |x| < B a factor f <= (2^31 - n) / (n*B) cannot overflow.  The
 * ranks agree on E, the biased binary32 exponent of the largest |x| (B = 2^(E-126)), so f = 2^k with
 *
 *	k = 157 - L - E,   L = ceil(log2(fan-in)),   |round(x * 2^k)| < 2^(31-L) = bias
 *
 * Offset binary adds the bias: 0 < u < 2^(32-L), and the sum of all ranks stays below 2^32.
 */
#ifndef INAGG_CORE_FIXED_H
#define INAGG_CORE_FIXED_H

#include <inagg/core/types.h>
#include <inagg/wire.h>

#define INAGG_SCALE_NONFINITE 255	/* some rank has an infinity or a NaN */

/** ceil(log2(fan_in)); @fan_in is 1 .. 65535. */
INAGG_INLINE __u32 inagg_fan_in_log2(__u32 fan_in)
{
	__u32 log2 = 0;

	if (fan_in > 256)
		log2 = 8;
	for (int i = 0; i < 8; i++)
		if ((1U << log2) < fan_in)
			log2++;
	return log2;
}

/** Offset of one rank's element; a sum of @count ranks carries count times this. */
INAGG_INLINE __u32 inagg_fixed_bias(__u32 fan_in_log2)
{
	return 1U << (31 - fan_in_log2);
}

/** Binary point k for the agreed exponent: fixed = round(x * 2^k). */
INAGG_INLINE __s32 inagg_fixed_point(__u32 fan_in_log2, __u8 scale)
{
	return 157 - (__s32)fan_in_log2 - (__s32)scale;
}

/** 32-bit elements per packet of a job, as many as its packets hold of @dtype. */
INAGG_INLINE __u32 inagg_block_elements(__u32 elements, __u8 dtype)
{
	if (inagg_element_bytes(dtype) == 2)
		return elements * 2 < INAGG_MAX_ELEMENTS ? elements * 2 : INAGG_MAX_ELEMENTS;
	return elements;
}

/* Shift right, round half to even; 0 for shifts that leave nothing. */
INAGG_INLINE __u32 inagg_round_shift(__u32 value, __u32 shift)
{
	__u32 rest, half, kept;

	if (shift == 0)
		return value;
	if (shift > 31)
		return 0;
	kept = value >> shift;
	rest = value & ((1U << shift) - 1);
	half = 1U << (shift - 1);
	return kept + (rest > half || (rest == half && (kept & 1)));
}

/**
 * A 16-bit float to fixed point, two's complement.  @mantissa_bits is 10 (binary16) or 7 (bfloat16).
 * The caller knows that |x| < 2^(scale-126); larger values, infinities and NaN are not for this.
 */
INAGG_INLINE __s32 inagg_half_to_fixed(__u16 bits, __u32 mantissa_bits, __u32 fan_in_log2, __u8 scale)
{
	__u32 exponent_bits = 15 - mantissa_bits;
	__u32 exponent = (bits >> mantissa_bits) & ((1U << exponent_bits) - 1);
	__u32 mantissa = bits & ((1U << mantissa_bits) - 1);
	__s32 bias = (1 << (exponent_bits - 1)) - 1, shift;
	__u32 magnitude;

	if (exponent)
		mantissa |= 1U << mantissa_bits;
	else
		exponent = 1;
	/* value = mantissa * 2^(exponent - bias - mantissa_bits) */
	shift = (__s32)exponent - bias - (__s32)mantissa_bits + inagg_fixed_point(fan_in_log2, scale);
	magnitude = shift >= 0 ? mantissa << (shift & 31) : inagg_round_shift(mantissa, (__u32)-shift);
	return (__s32)(bits & 0x8000 ? -magnitude : magnitude);
}

/** Fixed point back to a 16-bit float: round to nearest even, subnormals, overflow to infinity. */
INAGG_INLINE __u16 inagg_fixed_to_half(__s32 fixed, __u32 mantissa_bits, __u32 fan_in_log2, __u8 scale)
{
	__u32 exponent_bits = 15 - mantissa_bits;
	__s32 bias = (1 << (exponent_bits - 1)) - 1;
	__s32 max_exponent = (1 << exponent_bits) - 1;
	__u16 sign = fixed < 0 ? 0x8000 : 0;
	__u32 magnitude = fixed < 0 ? -(__u32)fixed : (__u32)fixed;
	__u32 top = 0, probe = magnitude;
	__s32 exponent, drop;

	if (!magnitude)
		return 0;
	for (__u32 step = 16; step; step >>= 1)
		if (probe >> step) {
			probe >>= step;
			top += step;
		}
	/* magnitude = 1.f * 2^top, value = magnitude * 2^-k */
	exponent = (__s32)top - inagg_fixed_point(fan_in_log2, scale) + bias;
	drop = (__s32)top - (__s32)mantissa_bits;
	if (exponent < 1) {		/* subnormal: fewer mantissa bits */
		drop += 1 - exponent;
		exponent = 0;
	}
	magnitude = drop >= 0 ? inagg_round_shift(magnitude, (__u32)drop) : magnitude << (-drop & 31);
	/* a normal number's hidden bit adds 1 to the exponent field, and so does a carry from rounding */
	magnitude += exponent > 0 ? (__u32)(exponent - 1) << mantissa_bits : 0;
	if (exponent >= max_exponent || (__s32)(magnitude >> mantissa_bits) >= max_exponent)
		magnitude = (__u32)max_exponent << mantissa_bits;
	return sign | (__u16)magnitude;
}

#endif /* INAGG_CORE_FIXED_H */
