/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Float32 to and from offset-binary fixed point, a register at a time: a template.  Whoever includes it is built for
 * that unit, and defines VECTOR_BYTES, TO_INTEGERS (to nearest even) and the table to fill, VECTORS.  Only such files
 * have floats in registers.
 */
#include "convert.h"

typedef float vector_float __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));
typedef int vector_int __attribute__((vector_size(VECTOR_BYTES), aligned(4), may_alias));

#define LANES	(VECTOR_BYTES / 4)

static inline vector_int int_of(u32 x)
{
	return (vector_int){} + (int)x;
}

static inline vector_float float_of_bits(u32 bits)
{
	return (vector_float)int_of(bits);
}

/* Without its sign a float compares as an integer, and an infinity or a NaN is above all others. */
static inline vector_int magnitude_of(vector_int bits)
{
	return bits & int_of(0x7fffffff);
}

static inline vector_int choose(vector_int mask, vector_int yes, vector_int no)
{
	return (yes & mask) | (no & ~mask);
}

/*
 * All exceptions masked, to nearest, as kernel_fpu_begin() left it, but the inexact flag up: in a user's program it is
 * after the first rounding, and an emulated processor (QEMU's hardfloat) uses the real one only then.
 */
static inline void begin_inexact(void)
{
	const u32 mxcsr = 0x1fa0;

	asm volatile("ldmxcsr %0" : : "m"(mxcsr));
}

/* round(x * scale) + bias, to nearest even.  What does not fit is clamped, and 1 returned. */
static u8 encode(const void *in, void *out, u32 count, u32 scale, u32 bias)
{
	/* a power of two, and the float just below it */
	const u32 limit_bits = (u32)(127 + 31 - __builtin_clz(bias)) << 23;
	const vector_int limit = int_of(limit_bits), most = int_of(limit_bits - 1), offset = int_of(bias);
	const vector_float s = float_of_bits(scale);
	vector_int misfits = int_of(0), scaled, magnitude, fits, clamped;
	u32 i, any = 0;

	begin_inexact();
	for (i = 0; i < count; i += LANES) {
		scaled = (vector_int)(((const vector_float *)in)[i / LANES] * s);
		magnitude = magnitude_of(scaled);
		fits = limit > magnitude;
		misfits |= ~fits;
		clamped = choose(fits, scaled, most | (scaled ^ magnitude));
		((vector_int *)out)[i / LANES] = (vector_int)TO_INTEGERS((vector_float)clamped) + offset;
	}
	for (i = 0; i < LANES; i++)
		any |= misfits[i];
	return any != 0;
}

/* (x - bias) * scale */
static void decode(const void *in, void *out, u32 count, u32 scale, u32 bias)
{
	const vector_float s = float_of_bits(scale);
	const vector_int offset = int_of(bias);
	u32 i;

	begin_inexact();
	for (i = 0; i < count; i += LANES)
		((vector_float *)out)[i / LANES] =
			__builtin_convertvector(((const vector_int *)in)[i / LANES] - offset, vector_float) * s;
}

/* The larger of @most and the largest magnitude, as bits. */
static u32 magnitude(const void *in, u32 count, u32 most)
{
	vector_int best = int_of(most), one;
	u32 i;

	for (i = 0; i < count; i += LANES) {
		one = magnitude_of(((const vector_int *)in)[i / LANES]);
		best = choose(one > best, one, best);
	}
	for (i = 0; i < LANES; i++)
		most = max(most, (u32)best[i]);
	return most;
}

const struct inagg_vectors VECTORS = { encode, decode, magnitude };
