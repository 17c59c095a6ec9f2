// SPDX-License-Identifier: BSD-2-Clause
#include "history.hpp"

#include <cstring>

namespace inagg {

const History::Result &History::keep(uint32_t block, const BlockMeta &meta, std::span<const std::byte> payload) {
    Result &result = results_[index(block)];
    result = {block, true, meta};
    if (!payload.empty())
        std::memcpy(payload_.get() + index(block) * payload_bytes_, payload.data(), payload.size());
    return result;
}

const History::Result *History::find(uint32_t block) const {
    const Result &result = results_[index(block)];
    return result.kept && result.block == block ? &result : nullptr;
}

uint32_t History::run(uint32_t block) const {
    uint32_t length = 0;
    while (length < blocks() && find(block + length))
        length++;
    return length;
}

const std::byte *History::payload(const Result &result) const {
    return payload_.get() + index(result.block) * payload_bytes_;
}

} // namespace inagg
