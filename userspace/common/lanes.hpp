// SPDX-License-Identifier: BSD-2-Clause
// Elements of a block: 32-bit lanes.
#pragma once

#include <cstddef>
#include <cstdint>

namespace inagg {

// INT32 and FIXED32: folds `count` lanes (whole chunks) of `from` into `into`; `op` is an enum inagg_wire_op.
void fold_lanes(uint32_t *into, const uint32_t *from, std::size_t count, uint8_t op);
// The same of lanes in network byte order.
void fold_turned_lanes(uint32_t *into, const uint32_t *from, std::size_t count, uint8_t op);

} // namespace inagg
