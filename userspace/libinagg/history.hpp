// SPDX-License-Identifier: BSD-2-Clause
// Results of a stream's blocks: the last ones, in case a switch loses them, and those of blocks that this rank has
// not come to, because they were decided without it.
#pragma once

#include "transport.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace inagg {

class History {
public:
    struct Result {
        uint32_t block;
        bool kept;
        BlockMeta meta;
    };

    History() = default;
    // Room for `blocks` results, a power of two, with at most `payload_bytes` each. Memory is taken as it is filled.
    History(uint32_t blocks, std::size_t payload_bytes)
        : payload_bytes_(payload_bytes), results_(blocks),
          payload_(std::make_unique_for_overwrite<std::byte[]>(blocks * payload_bytes)) {}

    uint32_t blocks() const { return static_cast<uint32_t>(results_.size()); }
    // Keep a result in the place of the one that is blocks() behind it.
    const Result &keep(uint32_t block, const BlockMeta &meta, std::span<const std::byte> payload);
    void forget(uint32_t block) { results_[index(block)].kept = false; }
    // Null: not here, or not any more.
    const Result *find(uint32_t block) const;
    // How many blocks from `block` on are here without a gap.
    uint32_t run(uint32_t block) const;
    // Gone when a result blocks() later is kept.
    const std::byte *payload(const Result &result) const;

private:
    std::size_t index(uint32_t block) const { return block & (results_.size() - 1); }

    std::size_t payload_bytes_ = 0;
    std::vector<Result> results_;
    std::unique_ptr<std::byte[]> payload_;
};

} // namespace inagg
