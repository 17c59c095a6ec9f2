// SPDX-License-Identifier: BSD-2-Clause
// Leaf switches, each linked to all spines: who is where, what is dead, and by which spine a packet goes.
#pragma once

#include "world.hpp"

#include <optional>

namespace simulation {

class Fabric {
public:
    explicit Fabric(World &shared);

    // Switches: the leaves come first.
    uint32_t size() const { return shape.leaves + shape.spines; }
    bool is_leaf(uint32_t n) const { return n < shape.leaves; }
    uint32_t any() const { return static_cast<uint32_t>(world.random.below(size())); }
    uint32_t leaf_of(uint32_t rank) const { return world.sc.leaf_of[rank]; }
    // The ranks at a leaf, or behind a spine: all.
    uint64_t here(uint32_t n) const { return is_leaf(n) ? at_leaf[n] : world.job.all; }
    bool is_here(uint32_t n, uint32_t rank) const { return here(n) & inagg_rank_bit(rank); }
    // All that can come to `n` on their way to the leader.
    uint64_t expected(uint32_t n, uint32_t leader) const;
    // The ranks that one who sends to `n` may speak for.
    uint64_t behind(uint32_t n, int from) const;
    // Has `packet` come to leaf `n` from a spine?
    bool from_above(uint32_t n, const Packet &packet) const { return is_leaf(n) && packet.from < 0; }
    // The number of the spine that it came from.
    uint32_t up_of(const Packet &packet) const { return switch_of(packet.from) - shape.leaves; }

    void fail_spine(uint32_t spine, Time duration);
    void fail_link(uint32_t link, Time duration);
    bool is_dead(uint32_t n) const { return !is_leaf(n) && spines[n - shape.leaves].lasts(world.now); }
    // Does what its sender has sent to switch `n` arrive?
    bool carries(uint32_t n, const Packet &packet) const;

    // The spine by which leaf `n` sends the packet: none, as far as it knows.
    std::optional<uint32_t> choose_up(uint32_t n, const Packet &packet) const;
    // Bitmap of the spines that leaf `n` can send by, as far as it knows.
    uint32_t live_spines(uint32_t n) const;
    // From switch `n`, to where `rank` is.
    void forward(uint32_t n, uint32_t rank, const Packet &packet) const;
    void send_up(uint32_t n, uint32_t spine, const Packet &packet) const;
    void send_to_leaf(uint32_t n, uint32_t leaf, const Packet &packet) const;
    void send_to_rank(uint32_t n, uint32_t rank, const Packet &packet) const;

private:
    struct Outage {
        Time from = 0, until = 0;
        bool lasts(Time at) const { return from <= at && at < until; }
        void extend(Time now, Time duration);
    };

    static uint32_t switch_of(int target) { return static_cast<uint32_t>(the_switch - target); }
    const Outage &link(uint32_t leaf, uint32_t spine) const { return links[leaf * shape.spines + spine]; }
    bool is_link_dead(uint32_t a, uint32_t b) const;
    bool seems_dead(uint32_t leaf, uint32_t spine) const;
    void transmit(uint32_t n, int to, const Packet &packet) const;

    World &world;
    const CanaryScenario &shape;
    std::vector<uint64_t> at_leaf;
    std::vector<Outage> spines, links;
};

} // namespace simulation
