// SPDX-License-Identifier: BSD-2-Clause
// Results of a stream's blocks: the last ones, in case a switch loses them, and those of blocks that this rank has
// not come to, because they were decided without it.
#pragma once

#include "transport.hpp"

#include <inagg/core/history.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace inagg {

class History {
public:
    using Result = inagg_kept;

    History() = default;
    // Room for as many results of a stream of `slots` as `bytes` hold, with at most `payload_bytes` each. Memory is taken as
    // it is filled.
    History(const JobConfig &job, uint32_t slots, uint64_t bytes, std::size_t payload_bytes)
        : payload_bytes_(payload_bytes), results_(inagg_history_blocks(&job, slots, bytes)),
          payload_(std::make_unique_for_overwrite<std::byte[]>(results_.size() * payload_bytes)) {
        inagg_history_init(&core_, &job, results_.data(), static_cast<uint32_t>(results_.size()));
    }

    const inagg_history *core() const { return &core_; }
    uint32_t blocks() const { return core_.blocks; }
    // Keep a result in the place of the one that is blocks() behind it.
    const Result *keep(uint32_t block, const BlockMeta &meta, std::span<const std::byte> payload);
    void forget(uint32_t block) { inagg_history_forget(&core_, block); }
    // Null: not here, or not any more.
    const Result *find(uint32_t block) const { return inagg_history_find(&core_, block); }
    // How many blocks from `block` on are here without a gap.
    uint32_t run(uint32_t block) const { return inagg_history_run(&core_, block, blocks()); }
    // Gone when a result blocks() later is kept.
    const std::byte *payload(const Result &result) const;

private:
    std::size_t payload_bytes_ = 0;
    std::vector<Result> results_;
    inagg_history core_{}; // over results_
    std::unique_ptr<std::byte[]> payload_;
};

} // namespace inagg
