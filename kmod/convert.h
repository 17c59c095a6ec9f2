/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef _INAGG_CONVERT_H
#define _INAGG_CONVERT_H

#include <linux/minmax.h>
#include <linux/types.h>

#include <inagg/core/tensor.h>

u8 inagg_to_wire(const struct inagg_coding *c, const void *in, void *out, u32 count);
void inagg_from_wire(const struct inagg_coding *c, void *cell, u32 count, u32 size);
u32 inagg_magnitude(const void *in, u32 count, u32 dtype, u32 most);

const char *inagg_convert_init(void);

/*
 * What a vector unit does, between kernel_fpu_begin() and kernel_fpu_end().  @count is whole chunks.  Scales are the
 * bits of floats.
 */
struct inagg_vectors {
	u8	(*encode)(const void *in, void *out, u32 count, u32 scale, u32 bias);
	void	(*decode)(const void *in, void *out, u32 count, u32 scale, u32 bias);
	u32	(*magnitude)(const void *in, u32 count, u32 most);
};

/* sse2_x86.c, avx2_x86.c */
extern const struct inagg_vectors inagg_sse2_vectors, inagg_avx2_vectors;

#endif /* _INAGG_CONVERT_H */
