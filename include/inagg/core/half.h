/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * 16-bit floats to binary32 and back, in integer instructions.  @mantissa_bits is 10 (binary16) or 7 (bfloat16).
 */
#ifndef INAGG_CORE_HALF_H
#define INAGG_CORE_HALF_H

#include <inagg/core/fixed.h>
#include <inagg/core/types.h>

/* What is added to the exponent of a number that keeps its value in binary32. */
INAGG_INLINE __u32 inagg_half_rebias(__u32 mantissa_bits)
{
	return 128 - (1U << (14 - mantissa_bits));
}

/** Exact, infinities and NaN too. */
INAGG_INLINE __u32 inagg_half_to_float(__u16 bits, __u32 mantissa_bits)
{
	__u32 sign = (__u32)(bits & 0x8000) << 16, magnitude = bits & 0x7fff, top;
	__u32 infinity = 0x7fff >> mantissa_bits << mantissa_bits, rebias = inagg_half_rebias(mantissa_bits);

	if (magnitude >= infinity)
		return sign | 0x7f800000 | (magnitude - infinity) << (23 - mantissa_bits);
	if (!rebias || magnitude >> mantissa_bits)
		return sign | ((magnitude << (23 - mantissa_bits)) + (rebias << 23));
	if (!magnitude)
		return sign;
	/* a subnormal, magnitude * 2^(1 - bias - mantissa_bits), is a normal number there */
	top = inagg_log2(magnitude);
	return sign | ((magnitude << (23 - top) & 0x7fffff) + ((rebias + 1 + top - mantissa_bits) << 23));
}

/** To nearest even, with subnormals; what is too large becomes infinity, and each NaN the quiet one without a sign. */
INAGG_INLINE __u16 inagg_float_to_half(__u32 bits, __u32 mantissa_bits)
{
	__u16 sign = (__u16)(bits >> 16 & 0x8000), infinity = (__u16)(0x7fff >> mantissa_bits << mantissa_bits);
	__u32 magnitude = bits & 0x7fffffff, exponent = magnitude >> 23, drop = 23 - mantissa_bits;
	__u32 rebias = inagg_half_rebias(mantissa_bits), half;

	if (magnitude > 0x7f800000)
		return infinity | (__u16)(1 << (mantissa_bits - 1));
	if (exponent > rebias) {
		half = (__u32)inagg_round_shift(magnitude - (rebias << 23), (__s32)drop);
		return sign | (half < infinity ? (__u16)half : infinity);
	}
	/* a subnormal; a carry makes the smallest normal number of it */
	magnitude = exponent ? (magnitude & 0x7fffff) | 1 << 23 : magnitude;
	return sign | (__u16)inagg_round_shift(magnitude, (__s32)(drop + rebias + 1 - (exponent ? exponent : 1)));
}

#endif /* INAGG_CORE_HALF_H */
