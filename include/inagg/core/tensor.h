/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * How a tensor becomes blocks: which encoding its type and operator travel in, how many elements a block
 * has, which scale it needs, and its elements in integer instructions.  Vector code must give the same bits.
 */
#ifndef INAGG_CORE_TENSOR_H
#define INAGG_CORE_TENSOR_H

#include <inagg/core/fixed.h>
#include <inagg/core/float32.h>
#include <inagg/core/half.h>
#include <inagg/core/packet.h>
#include <inagg/core/types.h>
#include <inagg/uapi.h>
#include <inagg/wire.h>

/** Bytes of an element in memory; 0: no such type. */
INAGG_INLINE __u32 inagg_memory_bytes(__u32 dtype)
{
	switch (dtype) {
	case INAGG_INT32:
	case INAGG_FLOAT32:
		return 4;
	case INAGG_FLOAT16:
	case INAGG_BFLOAT16:
		return 2;
	default:
		return 0;
	}
}

/* How sums of floats travel: that is up to who adds them. */
enum inagg_floats {
	INAGG_FLOATS_FIXED	= 0,	/* one switch: as fixed point; it converts 16-bit floats itself */
	INAGG_FLOATS_WIDENED	= 1,	/* a tree of them: 16-bit floats as FIXED32, since partial sums have no room in 16 bits */
	INAGG_FLOATS_RAW	= 2,	/* panama's: as FLOAT32, 16-bit floats too; then nobody needs a scale */
};

INAGG_INLINE __u32 inagg_floats_of(const struct inagg_job_config *job)
{
	if (job->algorithm == INAGG_PANAMA && !job->integers)
		return INAGG_FLOATS_RAW;
	return job->tree ? INAGG_FLOATS_WIDENED : INAGG_FLOATS_FIXED;
}

/** A sum of 16-bit floats that has 32 bits on the wire. */
INAGG_INLINE int inagg_is_widened(__u32 dtype, __u32 op, __u32 floats)
{
	return floats != INAGG_FLOATS_FIXED && op == INAGG_SUM && inagg_memory_bytes(dtype) == 2;
}

/** `dtype_op` on the wire: sums in a type of their own, minima and maxima as integers of the same order. */
INAGG_INLINE __u8 inagg_wire_encoding(__u32 dtype, __u32 op, __u32 floats)
{
	static const __u8 sums[INAGG_DTYPES] = {
		[INAGG_INT32] = INAGG_WIRE_INT32,
		[INAGG_FLOAT32] = INAGG_WIRE_FIXED32,
		[INAGG_FLOAT16] = INAGG_WIRE_FLOAT16,
		[INAGG_BFLOAT16] = INAGG_WIRE_BFLOAT16,
	};

	if (op != INAGG_SUM)
		return (__u8)(INAGG_WIRE_INT32 << 4 | (op == INAGG_MIN ? INAGG_WIRE_MIN : INAGG_WIRE_MAX));
	if (floats == INAGG_FLOATS_RAW && dtype != INAGG_INT32)
		return INAGG_WIRE_FLOAT32 << 4 | INAGG_WIRE_SUM;
	if (inagg_is_widened(dtype, op, floats))
		return INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_SUM;
	return (__u8)(sums[dtype] << 4 | INAGG_WIRE_SUM);
}

/** A sum of floats in fixed point travels at a scale: the largest exponent of all ranks' elements. */
INAGG_INLINE int inagg_needs_scale(__u32 dtype, __u32 op, __u32 floats)
{
	return op == INAGG_SUM && dtype != INAGG_INT32 && floats != INAGG_FLOATS_RAW;
}

/** With trio a scale may be agreed without a rank, whose elements, of this @exponent, do not fit it: it has nothing to add. */
INAGG_INLINE int inagg_is_absent(__u32 algorithm, __u8 exponent, __u8 scale)
{
	return algorithm == INAGG_TRIO && exponent > scale;
}

/** Blocks of a tensor of @count elements, @per_block each. */
INAGG_INLINE __u32 inagg_blocks_of(__u64 count, __u32 per_block)
{
	return (__u32)((count + per_block - 1) / per_block);
}

/** Elements of a block that holds @count of them: whole chunks. */
INAGG_INLINE __u16 inagg_padded(__u32 count)
{
	return (__u16)((count + INAGG_CHUNK - 1) / INAGG_CHUNK * INAGG_CHUNK);
}

/** The scale that makes the binary point @k: round(x * 2^@k). */
INAGG_INLINE __u8 inagg_scale_for_point(__u32 fan_in_log2, __s32 k)
{
	return (__u8)(inagg_fixed_point(fan_in_log2, 0) - k);
}

/** Bit pattern of +infinity. */
INAGG_INLINE __u32 inagg_infinity(__u32 dtype)
{
	return dtype == INAGG_FLOAT32 ? 0x7f800000 : dtype == INAGG_FLOAT16 ? 0x7c00 : 0x7f80;
}

/** Biased binary32 exponent of a magnitude (no sign bit) of a float type; INAGG_SCALE_NONFINITE. */
INAGG_INLINE __u8 inagg_exponent_of(__u32 magnitude, __u32 dtype)
{
	if (dtype == INAGG_FLOAT32)
		return (__u8)(magnitude >> 23);
	if (dtype == INAGG_BFLOAT16)
		return (__u8)(magnitude >> 7);
	if (magnitude >= 0x7c00)
		return INAGG_SCALE_NONFINITE;
	if (magnitude >= 0x0400)
		return (__u8)((magnitude >> 10) - 15 + 127);
	return magnitude ? (__u8)(inagg_log2(magnitude) - 24 + 127) : 0; /* subnormal: m * 2^-24 */
}

/** Element @i of floats or halves at @memory, any alignment. */
INAGG_INLINE __u32 inagg_element(const void *memory, __u64 i, __u32 bytes)
{
	__u32 bits;
	__u16 half;

	if (bytes == 4) {
		__builtin_memcpy(&bits, (const char *)memory + 4 * i, 4);
		return bits;
	}
	__builtin_memcpy(&half, (const char *)memory + 2 * i, 2);
	return half;
}

INAGG_INLINE void inagg_set_element(void *memory, __u64 i, __u32 bytes, __u32 bits)
{
	__u16 half = (__u16)bits;

	if (bytes == 4)
		__builtin_memcpy((char *)memory + 4 * i, &bits, 4);
	else
		__builtin_memcpy((char *)memory + 2 * i, &half, 2);
}

/** The larger of @most and the magnitudes of @count floats at @in, any alignment. */
INAGG_INLINE __u32 inagg_largest_magnitude(const void *in, __u32 count, __u32 dtype, __u32 most)
{
	__u32 bytes = inagg_memory_bytes(dtype), mask = bytes == 4 ? 0x7fffffff : 0x7fff, i, magnitude;

	for (i = 0; i < count; i++) {
		magnitude = inagg_element(in, i, bytes) & mask;
		most = magnitude > most ? magnitude : most;
	}
	return most;
}

/*
 * Minimum and maximum of floats as integers: a negative float's magnitude bits are flipped, so -0 comes
 * before +0.  NaN becomes the integer that wins; the way back makes a NaN of it.
 */
INAGG_INLINE __s32 inagg_to_ordered(__s32 bits, __u32 infinity, __s32 magnitude, __s32 nan)
{
	return (__u32)(bits & magnitude) > infinity ? nan : bits ^ (bits >> 31 & magnitude);
}

/** The integer that wins: INT32_MAX or INT32_MIN. */
INAGG_INLINE __s32 inagg_nan_that_wins(__u32 op)
{
	return op == INAGG_MAX ? 0x7fffffff : -0x7fffffff - 1;
}

/** The way back for 16-bit floats; a NaN cut to 16 bits would be none, so it gets one of both types. */
INAGG_INLINE __u16 inagg_half_of_ordered(__s32 ordered)
{
	if (ordered == 0x7fffffff || ordered == -0x7fffffff - 1)
		return 0x7fff;
	return (__u16)(ordered ^ (ordered >> 31 & 0x7fff));
}

/*
 * A float sum with infinities or NaN somewhere travels in two parts: the finite elements with 0 for the
 * others, then how many ranks put which of them into each element.  Ten bits a class: 64 ranks cannot carry
 * from one to the next.
 */
enum inagg_class {
	INAGG_ONE_INFINITY		= 1,
	INAGG_ONE_NEGATIVE_INFINITY	= 1 << 10,
	INAGG_ONE_NAN			= 1 << 20,
};
#define INAGG_CLASS_MASK	0x3ff

/** What an element of a float type counts as; 0: it is finite. */
INAGG_INLINE __u32 inagg_class_of(__u32 bits, __u32 dtype)
{
	__u32 sign = dtype == INAGG_FLOAT32 ? 0x80000000 : 0x8000, infinity = inagg_infinity(dtype);
	__u32 magnitude = bits & (sign - 1);

	if (magnitude < infinity)
		return 0;
	if (magnitude > infinity)
		return INAGG_ONE_NAN;
	return bits & sign ? INAGG_ONE_NEGATIVE_INFINITY : INAGG_ONE_INFINITY;
}

/**
 * What is certain of a sum of @ranks, if @counts are of the ranks @counted: bitmaps.  They differ if a rank was excluded in the
 * middle of a tensor (trio).  Then one that is in the sum may have what nobody has counted, or what was counted be of one
 * that is not in it: that is a NaN, and the same one for all ranks.
 */
INAGG_INLINE __u32 inagg_class_certain(__u32 counts, __u64 counted, __u64 ranks)
{
	if ((ranks & ~counted) || (counts && counted != ranks))
		return INAGG_ONE_NAN;
	return counts;
}

/** The sum, as IEEE 754 addition gives it: @finite unless @counts, of the same ranks, says otherwise. */
INAGG_INLINE __u32 inagg_class_apply(__u32 finite, __u32 counts, __u32 dtype)
{
	__u32 sign = dtype == INAGG_FLOAT32 ? 0x80000000 : 0x8000, infinity = inagg_infinity(dtype);
	__u32 quiet = dtype == INAGG_FLOAT32 ? 1 << 22 : dtype == INAGG_FLOAT16 ? 1 << 9 : 1 << 6;
	__u32 positive = counts & INAGG_CLASS_MASK, negative = counts >> 10 & INAGG_CLASS_MASK;

	if (counts >> 20 || (positive && negative))
		return infinity | quiet;
	if (positive)
		return infinity;
	return negative ? infinity | sign : finite;
}

/** Bits of the fraction of a 16-bit float type. */
INAGG_INLINE __u32 inagg_mantissa_bits(__u32 dtype)
{
	return dtype == INAGG_FLOAT16 ? 10 : 7;
}

/* What the blocks of one tensor have in common. */
struct inagg_coding {
	__u32	dtype, op;	/* enum inagg_dtype, inagg_op */
	__u32	bias;		/* of one rank; of all of them on the way back */
	__s32	point;
	__u8	floats;		/* enum inagg_floats */
	__u8	widened;	/* inagg_is_widened(): what the switch does with 16-bit floats elsewhere, the ranks do */
	__u8	scale;
	__u8	fan_in_log2;
};

/** @scale is the agreed one, where inagg_needs_scale(). */
INAGG_INLINE void inagg_coding_init(struct inagg_coding *c, __u32 dtype, __u32 op, __u32 size, __u8 scale, __u32 floats)
{
	__u32 log2 = inagg_fan_in_log2(size);

	c->dtype = dtype;
	c->op = op;
	c->bias = inagg_fixed_bias(log2);
	c->point = inagg_fixed_point(log2, scale);
	c->floats = (__u8)floats;
	c->widened = (__u8)inagg_is_widened(dtype, op, floats);
	c->scale = scale;
	c->fan_in_log2 = (__u8)log2;
}

/** Elements travel as they lie in memory. */
INAGG_INLINE int inagg_is_plain(const struct inagg_coding *c)
{
	if (c->op != INAGG_SUM || c->dtype == INAGG_INT32)
		return c->dtype == INAGG_INT32;
	return c->dtype == INAGG_FLOAT32 ? c->floats == INAGG_FLOATS_RAW : !c->widened;
}

/** One element of memory to wire; not for plain encodings. */
INAGG_INLINE __u32 inagg_encode(const struct inagg_coding *c, __u32 bits, __u8 *saturated)
{
	__s32 nan = inagg_nan_that_wins(c->op);

	if (c->widened && c->floats == INAGG_FLOATS_RAW)
		return inagg_half_to_float((__u16)bits, inagg_mantissa_bits(c->dtype));
	if (c->widened && inagg_exponent_of(bits & 0x7fff, c->dtype) > c->scale) {	/* of a wrong guess: sums must not wrap */
		*saturated = 1;
		return c->bias;
	}
	if (c->widened)
		return c->bias + (__u32)inagg_half_to_fixed((__u16)bits, inagg_mantissa_bits(c->dtype), c->fan_in_log2,
							    c->scale);
	if (c->op == INAGG_SUM)
		return inagg_float_to_fixed(bits, c->point, c->bias, saturated);
	if (c->dtype == INAGG_FLOAT32)
		return (__u32)inagg_to_ordered((__s32)bits, inagg_infinity(c->dtype), 0x7fffffff, nan);
	return (__u32)inagg_to_ordered((__s16)bits, inagg_infinity(c->dtype), 0x7fff, nan);
}

/** One element of a result of @size ranks back to memory. */
INAGG_INLINE __u32 inagg_decode(const struct inagg_coding *c, __u32 wire, __u32 size)
{
	__s32 ordered = (__s32)wire;

	if (c->widened && c->floats == INAGG_FLOATS_RAW)
		return inagg_float_to_half(wire, inagg_mantissa_bits(c->dtype));
	if (c->widened)
		return inagg_fixed_to_half((__s32)(wire - c->bias * size), inagg_mantissa_bits(c->dtype), c->fan_in_log2,
					   c->scale);
	if (c->op == INAGG_SUM)
		return inagg_fixed_to_float((__s32)(wire - c->bias * size), c->point);
	if (c->dtype == INAGG_FLOAT32)
		return (__u32)(ordered ^ (ordered >> 31 & 0x7fffffff));
	return inagg_half_of_ordered(ordered);
}

/** @count elements of memory to a block's payload, whole chunks; nonzero: one did not fit the scale. */
INAGG_INLINE __u8 inagg_encode_block(const struct inagg_coding *c, const void *in, void *out, __u32 count)
{
	__u32 bytes = inagg_memory_bytes(c->dtype), i, padded = inagg_padded(count);
	__u8 saturated = 0;

	if (inagg_is_plain(c)) {
		__builtin_memcpy(out, in, count * bytes);
		__builtin_memset((char *)out + count * bytes, 0, (padded - count) * bytes);
		return 0;
	}
	for (i = 0; i < padded; i++)
		inagg_set_element(out, i, 4, inagg_encode(c, i < count ? inagg_element(in, i, bytes) : 0, &saturated));
	return saturated;
}

/** The first @count elements of a result's payload to memory, in place too. */
INAGG_INLINE void inagg_decode_block(const struct inagg_coding *c, const void *in, void *out, __u32 count, __u32 size)
{
	__u32 bytes = inagg_memory_bytes(c->dtype), i;

	if (inagg_is_plain(c)) {
		if (in != out)
			__builtin_memcpy(out, in, count * bytes);
		return;
	}
	for (i = 0; i < count; i++)
		inagg_set_element(out, i, bytes, inagg_decode(c, inagg_element(in, i, 4), size));
}

/** INAGG_AVG: @count floats of a sum of @ranks ranks, divided by that. */
INAGG_INLINE void inagg_average_block(void *memory, __u32 count, __u32 dtype, __u32 ranks)
{
	__u32 bytes = inagg_memory_bytes(dtype), i, bits;

	for (i = 0; i < count; i++) {
		bits = inagg_element(memory, i, bytes);
		bits = bytes == 4 ? inagg_float32_divide(bits, ranks) :
				    inagg_half_divide((__u16)bits, inagg_mantissa_bits(dtype), ranks);
		inagg_set_element(memory, i, bytes, bits);
	}
}

#endif /* INAGG_CORE_TENSOR_H */
