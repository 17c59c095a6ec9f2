// SPDX-License-Identifier: GPL-2.0-only
/*
 * Elements between memory and wire: the core's integer code, or the vector unit for float32 sums, where this
 * context may use it.  Both give the same bits (tests/unit/tensor_test.cpp, tests/kmod).
 */
#include "convert.h"

#ifdef CONFIG_X86_64
#include <asm/fpu/api.h>

/* 2^point may lie outside binary32, its two halves never do. */
static u32 power_of_two(int exponent)
{
	return (u32)(127 + exponent) << 23;
}

static bool may_use_vectors(const struct inagg_coding *c)
{
	return c->op == INAGG_SUM && c->dtype == INAGG_FLOAT32 && irq_fpu_usable();
}

static u8 encode_vectors(const struct inagg_coding *c, const void *in, void *out, u32 count)
{
	u32 whole = count / INAGG_CHUNK * INAGG_CHUNK;
	u8 saturated;

	kernel_fpu_begin();
	saturated = inagg_encode_sse2(in, out, whole, power_of_two(c->point / 2), power_of_two(c->point - c->point / 2),
				      c->bias);
	kernel_fpu_end();
	if (whole < count)
		saturated |= inagg_encode_block(c, in + 4 * whole, out + 4 * whole, count - whole);
	return saturated;
}

static void decode_vectors(const struct inagg_coding *c, const void *in, void *out, u32 count, u32 size)
{
	u32 whole = count / INAGG_CHUNK * INAGG_CHUNK;

	kernel_fpu_begin();
	inagg_decode_sse2(in, out, whole, power_of_two(-(c->point / 2)), power_of_two(-(c->point - c->point / 2)),
			  c->bias * size);
	kernel_fpu_end();
	if (whole < count)
		inagg_decode_block(c, in + 4 * whole, out + 4 * whole, count - whole, size);
}
#else
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
