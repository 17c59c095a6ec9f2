// SPDX-License-Identifier: BSD-2-Clause
#include "history.hpp"

#include <cstring>

namespace inagg {

const History::Result *History::keep(uint32_t block, const BlockMeta &meta, std::span<const std::byte> payload) {
    if (!payload.empty())
        std::memcpy(payload_.get() + inagg_history_index(&core_, block) * payload_bytes_, payload.data(), payload.size());
    return inagg_history_keep(&core_, block, &meta);
}

const std::byte *History::payload(const Result &result) const {
    return payload_.get() + inagg_history_index(&core_, result.block) * payload_bytes_;
}

} // namespace inagg
