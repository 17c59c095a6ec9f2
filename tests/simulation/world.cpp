// SPDX-License-Identifier: BSD-2-Clause
#include "world.hpp"

namespace simulation {
namespace {

inagg_job make_job(const Scenario &sc) {
    inagg_job job{};
    job.all = inagg_all_ranks(sc.ranks);
    job.index = 1;
    job.first_slot = sc.first_slot;
    job.slots = sc.control ? 16 : sc.slots;
    job.control_slots = sc.control ? sc.slots : 2;
    job.generation = first_generation;
    job.size = static_cast<uint16_t>(sc.ranks);
    job.elements = 64;
    job.algorithm = static_cast<uint8_t>(sc.algorithm);
    return job;
}

} // namespace

World::World(const Options &chosen)
    : options(chosen), random(chosen.seed), sc(make_scenario(random, chosen)), job(make_job(sc)),
      content(chosen.seed, sc, first_generation) {
    for (uint32_t blocks : sc.tensors)
        outcome.blocks += blocks;
}

Event World::next() {
    const Event event = events.top();
    events.pop();
    outcome.events++;
    now = event.at;
    return event;
}

const Packet World::take(const Event &arrival) {
    const Packet packet = packets[arrival.index];
    free_packets.push_back(arrival.index);
    return packet;
}

void World::exclude(uint32_t rank) {
    const uint64_t remaining = job.all & ~inagg_rank_bit(rank);
    if (!remaining || inagg_job_excludes(&job, rank))
        return;
    trace("rank {} is excluded", rank);
    job.all = remaining;
    outcome.excluded++;
}

void World::begin_generation() {
    job.generation++;
    trace("generation {} begins, {:#x} come back", job.generation, returning);
    job.all |= returning;
    outcome.returned += inagg_count_ranks(returning);
    returning = 0;
    content.begin(job.generation);
}

void World::deliver_later(int to, const Packet &packet) {
    uint32_t index;
    if (free_packets.empty()) {
        index = static_cast<uint32_t>(packets.size());
        packets.push_back(packet);
    } else {
        index = free_packets.back();
        free_packets.pop_back();
        packets[index] = packet;
    }
    Time at = now + sc.delay + random.below(sc.jitter + 1);
    if (random.chance(sc.reorder))
        at += random.below(sc.late + 1);
    schedule(Event::arrival, at, to, index);
}

void World::transmit(int to, const Packet &packet) {
    outcome.packets++;
    if (random.chance(sc.loss)) {
        outcome.dropped++;
        trace("lost: type {} block {:#x} to {}", packet.type, packet.block.block, to);
        return;
    }
    deliver_later(to, packet);
    if (random.chance(sc.duplicate))
        deliver_later(to, packet);
}

} // namespace simulation
