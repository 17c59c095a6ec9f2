// SPDX-License-Identifier: BSD-2-Clause
// Elements of a block: 32-bit lanes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ps {

// INT32 and FIXED32: folds `count` lanes (whole chunks) of `from` into `into`; `op` is an enum inagg_wire_op.
void fold_lanes(uint32_t *into, const uint32_t *from, std::size_t count, uint8_t op);

// FLOAT32: the sums over `ranks` ranks of the `count` elements of each, one rank behind the other in `elements`. In
// binary64 and in this order, rounded once.
void sum_floats(uint32_t *sums, const float *elements, std::size_t count, std::size_t ranks);

} // namespace ps
