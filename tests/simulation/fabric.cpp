// SPDX-License-Identifier: BSD-2-Clause
#include "fabric.hpp"

#include <inagg/core/ways.h>

#include <algorithm>

namespace simulation {

Fabric::Fabric(World &shared)
    : world(shared), shape(shared.sc.canary), at_leaf(shape.leaves), spines(shape.spines), links(shape.leaves * shape.spines) {
    for (uint32_t r = 0; r < world.sc.ranks; r++)
        at_leaf[leaf_of(r)] |= inagg_rank_bit(r);
}

uint64_t Fabric::expected(uint32_t n, uint32_t leader) const {
    if (!is_here(n, leader))
        return here(n);
    return world.job.all & ~(is_leaf(n) ? inagg_rank_bit(leader) : at_leaf[leaf_of(leader)]);
}

uint64_t Fabric::behind(uint32_t n, int from) const {
    if (from >= 0)
        return inagg_rank_bit(static_cast<uint32_t>(from));
    return is_leaf(n) ? world.job.all & ~here(n) : at_leaf[switch_of(from)];
}

// What dies while it is dead stays so for the longer time.
void Fabric::Outage::extend(Time now, Time duration) {
    const Time end = duration ? now + duration : ~0ULL;
    from = lasts(now) ? from : now;
    until = std::max(until, end);
}

void Fabric::fail_spine(uint32_t spine, Time duration) { spines[spine].extend(world.now, duration); }

void Fabric::fail_link(uint32_t link, Time duration) { links[link].extend(world.now, duration); }

bool Fabric::is_link_dead(uint32_t a, uint32_t b) const {
    return link(std::min(a, b), std::max(a, b) - shape.leaves).lasts(world.now);
}

bool Fabric::carries(uint32_t n, const Packet &packet) const {
    return !is_dead(n) && (packet.from >= 0 || !is_link_dead(n, switch_of(packet.from)));
}

bool Fabric::seems_dead(uint32_t leaf, uint32_t spine) const {
    if (world.now < shape.notices)
        return false;
    const Time noticed = world.now - shape.notices;
    return spines[spine].lasts(noticed) || link(leaf, spine).lasts(noticed);
}

std::optional<uint32_t> Fabric::choose_up(uint32_t n, const Packet &packet) const {
    const uint32_t turn = inagg_ways_turn(packet.slot, packet.block.epoch, packet.window_cap);
    const bool wanders = world.random.chance(shape.wanders);
    const auto first = static_cast<uint32_t>(wanders ? world.random.below(shape.spines) : turn % shape.spines);
    for (uint32_t i = 0; i < shape.spines; i++) {
        const uint32_t spine = (first + i) % shape.spines;
        if (seems_dead(n, spine))
            continue;
        world.outcome.detours += spine != turn % shape.spines;
        return spine;
    }
    return std::nullopt;
}

uint32_t Fabric::live_spines(uint32_t n) const {
    uint32_t live = 0;
    for (uint32_t spine = 0; spine < shape.spines; spine++)
        live |= static_cast<uint32_t>(!seems_dead(n, spine)) << spine;
    return live;
}

void Fabric::forward(uint32_t n, uint32_t rank, const Packet &packet) const {
    if (is_leaf(n) && is_here(n, rank))
        return send_to_rank(n, rank, packet);
    if (!is_leaf(n))
        return send_to_leaf(n, leaf_of(rank), packet);
    if (const auto spine = choose_up(n, packet))
        send_up(n, *spine, packet);
}

void Fabric::send_up(uint32_t n, uint32_t spine, const Packet &packet) const {
    transmit(n, switch_target(shape.leaves + spine), packet);
}

void Fabric::send_to_leaf(uint32_t n, uint32_t leaf, const Packet &packet) const { transmit(n, switch_target(leaf), packet); }

void Fabric::send_to_rank(uint32_t n, uint32_t rank, const Packet &packet) const { transmit(n, static_cast<int>(rank), packet); }

void Fabric::transmit(uint32_t n, int to, const Packet &packet) const {
    Packet sent = packet;
    sent.from = switch_target(n);
    world.transmit(to, sent);
}

} // namespace simulation
