// SPDX-License-Identifier: GPL-2.0-only
/* Float32 to and from offset-binary fixed point, four at a time.  The only file built with SSE2. */
#include "convert.h"

typedef float vector_float __attribute__((vector_size(16), aligned(4), may_alias));
typedef int vector_int __attribute__((vector_size(16), aligned(4), may_alias));

#define LANES	4

static inline vector_float float_of_bits(u32 bits)
{
	vector_int v = { bits, bits, bits, bits };

	return (vector_float)v;
}

static inline vector_int int_of(u32 x)
{
	vector_int v = { x, x, x, x };

	return v;
}

/* round(x * scale1 * scale2) + bias, to nearest even.  What does not fit is clamped, and 1 returned. */
u8 inagg_encode_sse2(const void *in, void *out, u32 count, u32 scale1, u32 scale2, u32 bias)
{
	const vector_int magnitude = int_of(0x7fffffff), offset = int_of(bias);
	const vector_float s1 = float_of_bits(scale1), s2 = float_of_bits(scale2);
	/* a power of two, and the float just below it */
	const u32 limit_bits = (u32)(127 + 31 - __builtin_clz(bias)) << 23;
	const vector_float limit = float_of_bits(limit_bits), most = float_of_bits(limit_bits - 1);
	vector_int misfits = int_of(0), fits, clamped;
	vector_float scaled;
	u32 i;

	for (i = 0; i < count; i += LANES) {
		scaled = ((const vector_float *)in)[i / LANES] * s1 * s2;
		fits = (vector_float)((vector_int)scaled & magnitude) < limit;	/* not for NaN */
		misfits |= ~fits;
		clamped = ((vector_int)scaled & fits) |
			  (((vector_int)most | ((vector_int)scaled & ~magnitude)) & ~fits);
		((vector_int *)out)[i / LANES] = (vector_int)__builtin_ia32_cvtps2dq((vector_float)clamped) + offset;
	}
	return (misfits[0] | misfits[1] | misfits[2] | misfits[3]) != 0;
}

/* (x - bias) * scale1 * scale2 */
void inagg_decode_sse2(const void *in, void *out, u32 count, u32 scale1, u32 scale2, u32 bias)
{
	const vector_float s1 = float_of_bits(scale1), s2 = float_of_bits(scale2);
	const vector_int offset = int_of(bias);
	u32 i;

	for (i = 0; i < count; i += LANES)
		((vector_float *)out)[i / LANES] =
			__builtin_ia32_cvtdq2ps(((const vector_int *)in)[i / LANES] - offset) * s1 * s2;
}
