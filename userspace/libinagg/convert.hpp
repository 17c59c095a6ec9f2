// SPDX-License-Identifier: BSD-2-Clause
// Element conversions between memory and wire, with the widest vectors of the CPU at hand. Wire buffers
// and counts of the bulk functions are whole chunks of INAGG_CHUNK elements; no alignment is needed.
#pragma once

#include <inagg/inagg.h>

#include <cstddef>
#include <cstdint>

namespace inagg {

// Biased binary32 exponent of the largest magnitude among `count` elements of a float type;
// INAGG_SCALE_NONFINITE if there is an infinity or a NaN.
uint8_t max_exponent(const void *data, std::size_t count, inagg_dtype dtype);

// The same over the finite elements only.
uint8_t max_finite_exponent(const void *data, std::size_t count, inagg_dtype dtype);

// Offset-binary fixed point (core/fixed.h): round(x * 2^point) + bias, rounded to nearest even. Values
// that do not fit are clamped; returns true if there was one.
bool to_fixed(const float *in, uint32_t *out, std::size_t count, int point, uint32_t bias);

// Back from a sum whose biases add up to `total_bias` (mod 2^32).
void from_fixed(const uint32_t *in, float *out, std::size_t count, int point, uint32_t total_bias);

// Floats to integers of the same order, -0 before +0. NaN becomes `nan`: the largest or smallest
// integer, so that it wins a maximum or minimum. The way back maps both of them to a NaN.
void to_ordered(const float *in, int32_t *out, std::size_t count, int32_t nan);
void from_ordered(const int32_t *in, float *out, std::size_t count);

// The same for binary16 and bfloat16; `infinity` is the type's bit pattern of +infinity.
void to_ordered16(const uint16_t *in, int32_t *out, std::size_t count, uint32_t infinity, int32_t nan);
void from_ordered16(const int32_t *in, uint16_t *out, std::size_t count);

// 16-bit floats to binary32, exactly, and back, rounded to nearest even (core/half.h).
void widen(const uint16_t *in, float *out, std::size_t count, inagg_dtype dtype);
void narrow(const float *in, uint16_t *out, std::size_t count, inagg_dtype dtype);

// Divide elements of a float type by a number of ranks, rounded to nearest even.
void divide(void *data, std::size_t count, inagg_dtype dtype, uint32_t ranks);

} // namespace inagg
