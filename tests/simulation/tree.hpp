// SPDX-License-Identifier: BSD-2-Clause
// The links of a tree of switches.
#pragma once

#include "world.hpp"

namespace simulation {

class Tree {
public:
    explicit Tree(World &shared);

    uint32_t size() const { return static_cast<uint32_t>(behind.size()); }
    uint32_t parent(uint32_t n) const { return world.sc.parents[n]; }
    uint32_t depth(uint32_t n) const { return n ? 1 + depth(parent(n)) : 0; }
    // The ranks behind switch `n`.
    uint64_t here(uint32_t n) const { return behind[n]; }
    // The lowest switch that has all ranks behind it: those above it hear nothing of the job.
    uint32_t apex() const { return top; }
    uint32_t any() const { return static_cast<uint32_t>(world.random.below(size())); }

    void send_up(uint32_t n, const Packet &packet) const { world.transmit(switch_target(parent(n)), packet); }
    // To the rank itself, or to the switch below that leads to it.
    void send_down(uint32_t n, uint32_t rank, const Packet &packet) const;
    void send_down_to_all(uint32_t n, const Packet &packet) const;

private:
    World &world;
    std::vector<uint64_t> behind;
    uint32_t top = 0;
};

} // namespace simulation
