// SPDX-License-Identifier: GPL-2.0-only
/*
 * Elements between memory and wire: the core's integer code, or the vector unit for float32 sums, where this
 * context may use it.  Both give the same bits (tests/unit/tensor_test.cpp, tests/kmod).
 */
#include <linux/cache.h>
#include <linux/init.h>

#include "convert.h"

#ifdef CONFIG_X86_64
#include <asm/cpufeature.h>
#include <asm/fpu/api.h>

static const struct inagg_vectors *vectors __ro_after_init = &inagg_sse2_vectors;

/** inagg_convert_init() - choose this machine's widest vector unit, once; returns its name */
const char *__init inagg_convert_init(void)
{
	vectors = &inagg_sse2_vectors;
	if (!boot_cpu_has(X86_FEATURE_AVX2) || !cpu_has_xfeatures(XFEATURE_MASK_SSE | XFEATURE_MASK_YMM, NULL))
		return "SSE2";
	vectors = &inagg_avx2_vectors;
	return "AVX2";
}

static u32 power_of_two(int exponent)
{
	return (u32)(127 + exponent) << 23;
}

/* Also if 2^point or its inverse is no normal float: then tensors are next to zero, and take their time. */
static bool may_use_vectors(const struct inagg_coding *c)
{
	return c->op == INAGG_SUM && c->dtype == INAGG_FLOAT32 && c->point >= -126 && c->point <= 126 && irq_fpu_usable();
}

static u8 encode_vectors(const struct inagg_coding *c, const void *in, void *out, u32 count)
{
	u32 whole = count / INAGG_CHUNK * INAGG_CHUNK;
	u8 saturated;

	kernel_fpu_begin();
	saturated = vectors->encode(in, out, whole, power_of_two(c->point), c->bias);
	kernel_fpu_end();
	if (whole < count)
		saturated |= inagg_encode_block(c, in + 4 * whole, out + 4 * whole, count - whole);
	return saturated;
}

static void decode_vectors(const struct inagg_coding *c, const void *in, void *out, u32 count, u32 size)
{
	u32 whole = count / INAGG_CHUNK * INAGG_CHUNK;

	kernel_fpu_begin();
	vectors->decode(in, out, whole, power_of_two(-c->point), c->bias * size);
	kernel_fpu_end();
	if (whole < count)
		inagg_decode_block(c, in + 4 * whole, out + 4 * whole, count - whole, size);
}

/* Of as many as the vector unit takes; the others are left. */
static u32 magnitude_vectors(const void *in, u32 *count, u32 dtype, u32 most)
{
	u32 whole = *count / INAGG_CHUNK * INAGG_CHUNK;

	if (dtype != INAGG_FLOAT32 || !irq_fpu_usable())
		return most;
	kernel_fpu_begin();
	most = vectors->magnitude(in, whole, most);
	kernel_fpu_end();
	*count -= whole;
	return most;
}
#else
const char *__init inagg_convert_init(void)
{
	return "integers";
}

static bool may_use_vectors(const struct inagg_coding *c)
{
	return false;
}

static u8 encode_vectors(const struct inagg_coding *c, const void *in, void *out, u32 count)
{
	return 0;
}

static void decode_vectors(const struct inagg_coding *c, const void *in, void *out, u32 count, u32 size)
{
}

static u32 magnitude_vectors(const void *in, u32 *count, u32 dtype, u32 most)
{
	return most;
}
#endif

/**
 * inagg_to_wire() - a block's elements for its packet
 * @c: of the tensor
 * @in: @count elements of its type
 * @out: whole chunks on the wire
 * @count: elements
 *
 * Any context but hard interrupts.  Return: nonzero if one did not fit the scale.
 */
u8 inagg_to_wire(const struct inagg_coding *c, const void *in, void *out, u32 count)
{
	if (may_use_vectors(c))
		return encode_vectors(c, in, out, count);
	return inagg_encode_block(c, in, out, count);
}

/**
 * inagg_from_wire() - a result's elements for the user
 * @c: of the tensor
 * @cell: the payload; its first @count elements become the user's, in place
 * @count: elements
 * @size: ranks in the sum
 */
void inagg_from_wire(const struct inagg_coding *c, void *cell, u32 count, u32 size)
{
	if (may_use_vectors(c))
		decode_vectors(c, cell, cell, count, size);
	else
		inagg_decode_block(c, cell, cell, count, size);
}

/**
 * inagg_magnitude() - the larger of @most and the magnitudes of floats
 * @in: @count elements of @dtype
 * @count: elements
 * @dtype: a float type
 * @most: bits of a magnitude
 */
u32 inagg_magnitude(const void *in, u32 count, u32 dtype, u32 most)
{
	u32 left = count;

	most = magnitude_vectors(in, &left, dtype, most);
	return inagg_largest_magnitude(in + 4 * (count - left), left, dtype, most);
}
