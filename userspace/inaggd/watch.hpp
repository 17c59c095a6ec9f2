// SPDX-License-Identifier: BSD-2-Clause
// The second, slower timer of Trio (§5): looks at what the switch has counted of each rank, tells temporary
// stragglers from permanent ones, and writes down what it thinks.
#pragma once

#include "maps.hpp"

#include <chrono>
#include <cstdint>
#include <map>

namespace inaggd {

// How often a job's ranks are looked at that may be silent for `exclude_ms`; 0: they are never excluded.
std::chrono::milliseconds watch_period(uint32_t exclude_ms);

class Watch {
public:
    explicit Watch(const SwitchMaps &maps) : maps_(maps) {}

    // Looks at `ranks` of a job, those that have joined; returns the bitmap of those to exclude.
    uint64_t look(uint16_t number, const inagg_job &job, uint64_t ranks, uint32_t exclude_ms);
    void forget(uint16_t number) { jobs_.erase(number); }

private:
    struct Seen {
        uint16_t generation;
        inagg_presence presence{};
    };

    const SwitchMaps &maps_;
    std::map<uint16_t, Seen> jobs_;
};

} // namespace inaggd
