/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * IEEE 754 binary32 addition in integer instructions, for planes that have no floating point unit: to nearest, ties to
 * even, with subnormals, infinities and signed zeros.  The bits are a CPU's, but for NaN: whatever NaN goes in, or if
 * infinities cancel, INAGG_NAN comes out, on every plane.
 */
#ifndef INAGG_CORE_FLOAT32_H
#define INAGG_CORE_FLOAT32_H

#include <inagg/core/types.h>

#define INAGG_INFINITY	0x7f800000U
#define INAGG_NAN	0x7fc00000U	/* quiet, positive, no payload */
#define INAGG_SIGN	0x80000000U

/* Three bits below the last one decide how to round: guard, round and sticky. */
#define INAGG_ROUND_BITS	3
#define INAGG_HIDDEN		(1U << (23 + INAGG_ROUND_BITS))	/* the leading one of a normal number */

/* Exponent of a finite number; subnormal ones have that of the smallest normal ones. */
INAGG_INLINE __u32 inagg_float32_exponent(__u32 magnitude)
{
	__u32 exponent = magnitude >> 23;

	return exponent ? exponent : 1;
}

/* Its significand, with room for rounding. */
INAGG_INLINE __u32 inagg_float32_significand(__u32 magnitude)
{
	__u32 hidden = magnitude >> 23 ? INAGG_HIDDEN : 0;

	return hidden | (magnitude & 0x7fffff) << INAGG_ROUND_BITS;
}

/* Shift right; what falls out leaves its trace in the last bit. */
INAGG_INLINE __u32 inagg_shift_sticky(__u32 x, __u32 by)
{
	if (by > 31)
		by = 31;
	return x >> by | ((x & ((1U << by) - 1)) != 0);
}

/* How far to the left the leading one of @x, not 0, may go until it is a normal number's. */
INAGG_INLINE __u32 inagg_room_left(__u32 x)
{
	__u32 room = 0;

	for (__u32 step = 16; step; step /= 2) {
		if (x >> (24 + INAGG_ROUND_BITS - step))
			continue;
		x <<= step;
		room += step;
	}
	return room;
}

/* The number of this sign whose significand, below twice INAGG_HIDDEN, has the exponent @exponent. */
INAGG_INLINE __u32 inagg_float32_round(__u32 sign, __u32 exponent, __u32 significand)
{
	__u32 rest = significand & ((1U << INAGG_ROUND_BITS) - 1), bits;

	/* A leading one adds itself to the exponent field, so a carry from rounding ends there, too. */
	bits = ((exponent - 1) << 23) + (significand >> INAGG_ROUND_BITS);
	bits += rest > 4 || (rest == 4 && (bits & 1));
	return sign | (bits < INAGG_INFINITY ? bits : INAGG_INFINITY);
}

/** The bits of a number divided by @count, 1 .. 64; infinities and NaN as they are. */
INAGG_INLINE __u32 inagg_float32_divide(__u32 bits, __u32 count)
{
	__u32 magnitude = bits & 0x7fffffff, sign = bits & 0x80000000, significand, quotient, rest, up = 0;
	__s32 exponent;

	if (!magnitude || magnitude >= INAGG_INFINITY)
		return bits;
	while (1U << up < count)
		up++;
	/* (significand << up) / count, in two steps: so a leading one stays in its place, or goes to the next */
	significand = inagg_float32_significand(magnitude);
	rest = significand % count << up;
	quotient = (significand / count << up) + rest / count;
	quotient |= rest % count != 0;
	exponent = (__s32)inagg_float32_exponent(magnitude) - (__s32)up;
	if (quotient >= 2 * INAGG_HIDDEN) {
		quotient = inagg_shift_sticky(quotient, 1);
		exponent++;
	}
	if (exponent < 1) {
		quotient = inagg_shift_sticky(quotient, (__u32)(1 - exponent));
		exponent = 1;
	}
	return inagg_float32_round(sign, (__u32)exponent, quotient);
}

/** The bits of @a + @b. */
INAGG_INLINE __u32 inagg_float32_add(__u32 a, __u32 b)
{
	__u32 large = a & ~INAGG_SIGN, small = b & ~INAGG_SIGN, sign = a & INAGG_SIGN;
	__u32 opposite = (a ^ b) & INAGG_SIGN, exponent, sum, addend, up;

	if (large < small) {
		up = large;
		large = small;
		small = up;
		sign = b & INAGG_SIGN;
	}
	if (large >= INAGG_INFINITY) {
		if (large > INAGG_INFINITY || (opposite && small == INAGG_INFINITY))
			return INAGG_NAN;
		return sign | large;
	}
	exponent = inagg_float32_exponent(large);
	sum = inagg_float32_significand(large);
	addend = inagg_shift_sticky(inagg_float32_significand(small), exponent - inagg_float32_exponent(small));
	if (!opposite) {
		sum += addend;
		if (sum >= 2 * INAGG_HIDDEN) {
			sum = inagg_shift_sticky(sum, 1);
			exponent++;
		}
		return inagg_float32_round(sign, exponent, sum);
	}
	sum -= addend;
	if (!sum)
		return 0;	/* x - x is +0 */
	up = inagg_room_left(sum);
	if (up >= exponent)
		up = exponent - 1;
	return inagg_float32_round(sign, exponent - up, sum << up);
}

#endif /* INAGG_CORE_FLOAT32_H */
