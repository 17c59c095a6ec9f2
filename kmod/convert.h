/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _INAGG_CONVERT_H
#define _INAGG_CONVERT_H

#include <linux/minmax.h>
#include <linux/types.h>

#include <inagg/core/tensor.h>

u8 inagg_to_wire(const struct inagg_coding *c, const void *in, void *out, u32 count);
void inagg_from_wire(const struct inagg_coding *c, void *cell, u32 count, u32 size);
u32 inagg_magnitude(const void *in, u32 count, u32 dtype, u32 most);

/*
 * vector_x86.c, between kernel_fpu_begin() and kernel_fpu_end().  @count is whole chunks.  Scales are the bits
 * of floats: nothing outside of that file has a float in a register.
 */
u8 inagg_encode_sse2(const void *in, void *out, u32 count, u32 scale, u32 bias);
void inagg_decode_sse2(const void *in, void *out, u32 count, u32 scale, u32 bias);
u32 inagg_magnitude_sse2(const void *in, u32 count, u32 most);

#endif /* _INAGG_CONVERT_H */
