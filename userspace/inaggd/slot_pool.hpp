// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <optional>
#include <vector>

namespace inaggd {

struct SlotRange {
    uint32_t first, count;
};

// First fit: where `count` slots lie free among `total`, or nothing.
inline std::optional<uint32_t> first_fit(std::vector<SlotRange> taken, uint32_t count, uint32_t total) {
    std::sort(taken.begin(), taken.end(), [](const SlotRange &a, const SlotRange &b) { return a.first < b.first; });
    uint64_t start = 0;
    for (const SlotRange &range : taken) {
        if (start + count <= range.first)
            return static_cast<uint32_t>(start);
        start = std::max<uint64_t>(start, uint64_t{range.first} + range.count);
    }
    if (start + count <= total)
        return static_cast<uint32_t>(start);
    return std::nullopt;
}

// Streams index their slots with masks.
inline bool is_pool_size(uint32_t slots) { return std::has_single_bit(slots); }

} // namespace inaggd
