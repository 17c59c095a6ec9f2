/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Fixed point: how a scale becomes a binary point, and floats to and from it in integer instructions.
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

/*
 * The conversions of 16-bit floats run once an element, so they have no branches: a verifier sees one
 * path through a loop over elements, and a CPU predicts nothing.
 */

/* Keeps a compiler from seeing a comparison, and making it a branch, in the arithmetic on @x. */
#define INAGG_OPAQUE(x) __asm__ volatile("" : "+r"(x))

/* The smaller of @x and 0. */
INAGG_INLINE __s32 inagg_not_above_zero(__s32 x)
{
	__s32 sign = x;

	INAGG_OPAQUE(sign);
	return x & sign >> 31;
}

/* Shift right, round half to even.  @value is below 2^62; what @shift leaves nothing of becomes 0. */
INAGG_INLINE __u64 inagg_round_shift(__u64 value, __s32 shift)
{
	__u32 right = (__u32)(63 + inagg_not_above_zero(shift - 63)) & 63;
	__u64 below = (1ULL << right) - 1;

	return (value + (below >> 1) + (value >> right & below & 1)) >> right;
}

/**
 * A 16-bit float to fixed point, two's complement.  @mantissa_bits is 10 (binary16) or 7 (bfloat16).
 * The caller knows that |x| < 2^(scale-126); larger values, infinities and NaN are not for this.
 */
INAGG_INLINE __s32 inagg_half_to_fixed(__u16 bits, __u32 mantissa_bits, __u32 fan_in_log2, __u8 scale)
{
	const __u32 exponent_bits = 15 - mantissa_bits;
	const __u32 max_exponent = (1U << exponent_bits) - 1, up = 48;
	const __s32 bias = (__s32)(max_exponent >> 1);
	__u32 exponent = bits >> mantissa_bits & max_exponent;
	__u32 normal = (exponent + max_exponent) >> exponent_bits;	/* 0: subnormal, of exponent 1 */
	__u64 mantissa = (bits & ((1U << mantissa_bits) - 1)) | normal << mantissa_bits;
	__u32 magnitude, negative = -((__u32)bits >> 15);
	/* value = mantissa * 2^(exponent - bias - mantissa_bits) */
	__s32 shift = (__s32)(exponent + 1 - normal) +
		      (inagg_fixed_point(fan_in_log2, scale) - bias - (__s32)mantissa_bits);

	/* the result is below 2^31: from `up` it is a shift to the right */
	magnitude = (__u32)inagg_round_shift(mantissa << up, (__s32)up - shift);
	return (__s32)((magnitude ^ negative) - negative);
}

/* Position of the highest bit; 0 for 0. */
INAGG_INLINE __u32 inagg_log2(__u32 x)
{
	__u32 log2 = 0;

#ifdef __clang__
#pragma unroll
#endif
	for (__u32 step = 16; step; step >>= 1) {
		__u64 room = (1ULL << step) - 1 - x;	/* negative: x needs more than step bits */
		__u32 more;

		INAGG_OPAQUE(room);
		more = (__u32)(room >> 63) * step;
		x >>= more;
		log2 += more;
	}
	return log2;
}

/** Fixed point back to a 16-bit float: round to nearest even, subnormals, overflow to infinity. */
INAGG_INLINE __u16 inagg_fixed_to_half(__s32 fixed, __u32 mantissa_bits, __u32 fan_in_log2, __u8 scale)
{
	const __u32 exponent_bits = 15 - mantissa_bits, up = 16;
	const __s32 max_exponent = (1 << exponent_bits) - 1, bias = max_exponent >> 1;
	const __s32 infinity = max_exponent << mantissa_bits;
	__u32 negative = -((__u32)fixed >> 31), magnitude = ((__u32)fixed ^ negative) - negative;
	__u32 nonzero = -((magnitude | -magnitude) >> 31), top = inagg_log2(magnitude);
	/* magnitude = 1.f * 2^top, value = magnitude * 2^-k */
	__s32 exponent = (__s32)top + bias - inagg_fixed_point(fan_in_log2, scale);
	__s32 subnormal = -inagg_not_above_zero(exponent - 1);	/* so many mantissa bits fewer */
	__s32 drop = (__s32)top - (__s32)mantissa_bits + subnormal, half;

	half = (__s32)inagg_round_shift((__u64)magnitude << up, (__s32)up + drop);
	/* a normal number's hidden bit adds 1 to the exponent field, and so does a carry from rounding */
	half += (exponent - 1 + subnormal) << mantissa_bits;
	half = infinity + inagg_not_above_zero(half - infinity);
	return (__u16)(((__u32)half | (negative & 0x8000)) & nonzero);
}

/** A 16-bit float divided by @count, 1 .. 64: to nearest even, with subnormals; infinities and NaN as they are. */
INAGG_INLINE __u16 inagg_half_divide(__u16 bits, __u32 mantissa_bits, __u32 count)
{
	const __u32 exponent_bits = 15 - mantissa_bits, up = 29 - mantissa_bits;
	const __u32 max_exponent = (1U << exponent_bits) - 1;
	__u32 exponent = bits >> mantissa_bits & max_exponent, normal = exponent != 0;
	__u32 mantissa = (bits & ((1U << mantissa_bits) - 1)) | normal << mantissa_bits, quotient;
	/* value = mantissa * 2^unit */
	__s32 unit = (__s32)(exponent + 1 - normal) - (__s32)(max_exponent >> 1) - (__s32)mantissa_bits;

	if (exponent == max_exponent || !mantissa)
		return bits;
	/* below 2^30; what the division leaves shows in the last bit, so that rounding goes the right way */
	quotient = (mantissa << up) / count;
	quotient |= quotient * count != mantissa << up;
	return inagg_fixed_to_half((__s32)quotient, mantissa_bits, 0, (__u8)(157 + unit - (__s32)up)) | (bits & 0x8000);
}

/**
 * A binary32 to offset binary: round(x * 2^point) + bias, to nearest even.  What does not fit is clamped
 * to the largest that does, infinities and NaN too, and sets *@saturated.  @bias is 2^25 .. 2^31.
 */
INAGG_INLINE __u32 inagg_float_to_fixed(__u32 bits, __s32 point, __u32 bias, __u8 *saturated)
{
	__u32 exponent = bits >> 23 & 0xff, normal = exponent != 0, magnitude;
	__u32 mantissa = (bits & 0x7fffff) | normal << 23;
	/* value = mantissa * 2^(exponent - 150), with the exponent of a subnormal 1 */
	__s32 shift = (__s32)(exponent + 1 - normal) - 150 + point;
	__u64 scaled;

	if (shift <= 0)
		scaled = inagg_round_shift(mantissa, -shift);
	else
		scaled = mantissa && shift > 31 ? ~0ULL : (__u64)mantissa << (shift & 31);
	if (exponent == 255 || scaled >= bias) {
		*saturated = 1;
		scaled = bias - (bias >> 24);
	}
	magnitude = (__u32)scaled;
	return bias + (bits >> 31 ? -magnitude : magnitude);
}

/** The way back from two's complement: rounded to nearest even, subnormals, overflow to infinity. */
INAGG_INLINE __u32 inagg_fixed_to_float(__s32 fixed, __s32 point)
{
	__u32 sign = (__u32)fixed & 0x80000000, magnitude = sign ? -(__u32)fixed : (__u32)fixed, mantissa;
	__s32 top, exponent;
	__u64 normalized;

	if (!magnitude)
		return 0;
	top = 31 - __builtin_clz(magnitude);
	exponent = top + 127 - point;
	normalized = (__u64)magnitude << (31 - top);
	mantissa = (__u32)((normalized + 0x7f + (normalized >> 8 & 1)) >> 8); /* 24 bits, or a carry */
	/* the hidden bit adds 1 to the exponent field, and so does the carry */
	if (exponent > 0 && exponent < 254)
		return sign | (((__u32)(exponent - 1) << 23) + mantissa);
	exponent += mantissa >> 24;
	mantissa >>= mantissa >> 24;
	if (exponent >= 255)
		return sign | 0x7f800000;
	if (exponent <= 0)
		return sign | (__u32)inagg_round_shift(mantissa, 1 - exponent);
	return sign | ((__u32)exponent << 23 | (mantissa & 0x7fffff));
}

#endif /* INAGG_CORE_FIXED_H */
