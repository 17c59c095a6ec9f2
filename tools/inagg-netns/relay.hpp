// SPDX-License-Identifier: BSD-2-Clause
// Delay and reordering: a process that holds frames back.
#pragma once

#include "options.hpp"
#include "process.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace netns {

// Shared by the relay's process and whoever reads the counters.
struct RelayCounters {
    std::atomic<uint64_t> reordered, overflowed;

    RelayCounters() = default;
    RelayCounters(const RelayCounters &other) : reordered(other.reordered.load()), overflowed(other.overflowed.load()) {}
};

class Relay {
public:
    explicit Relay(const Impairments &impairments);

    // Frames that come in by interface `from` leave by interface `to`.
    void add(unsigned from, unsigned to) { directions_.push_back({from, to}); }
    size_t directions() const { return directions_.size(); }
    RelayCounters counters(size_t direction) const { return shared_[direction]; }

    // Starts the process, in `space`; no add() after this.
    pid_t start(const Namespace &space);

private:
    struct Direction {
        unsigned from, to;
    };

    const Impairments &impairments_;
    std::vector<Direction> directions_;
    std::unique_ptr<RelayCounters[], void (*)(RelayCounters *)> shared_;
};

} // namespace netns
