// SPDX-License-Identifier: BSD-2-Clause
#include "workers.hpp"

#include <algorithm>
#include <numeric>

namespace simulation {

Workers::Workers(World &shared) : world(shared), sc(shared.sc), job(shared.job), ranks(shared.sc.ranks) {
    for (Rank &rank : ranks)
        begin(rank, 0);
}

void Workers::begin(Rank &rank, uint32_t tensor) {
    inagg_worker_init(&rank.worker, sc.slots, 0);
    rank.worker.limit = sc.base;
    rank.worker.accepted = sc.base - 1;
    rank.slots.resize(sc.slots);
    rank.heard.assign(sc.slots, {});
    rank.missing = sc.tensors;
    rank.first = rank.called = rank.finished = tensor;
    for (uint32_t i = 0; i < sc.slots; i++) {
        inagg_wslot_init(&rank.slots[i], i);
        rank.slots[i].block += sc.base;
    }
}

void Workers::start() {
    for (uint32_t r = 0; r < sc.ranks; r++)
        world.schedule(Event::call, world.random.below(1 + sc.pause), static_cast<int>(r), 0);
}

void Workers::sleep(uint32_t r, Time duration) {
    world.trace("rank {} sleeps", r);
    ranks[r].asleep_until = std::max(ranks[r].asleep_until, world.now + duration);
    world.schedule(Event::timer, ranks[r].asleep_until, static_cast<int>(r), 0);
}

void Workers::kill(uint32_t r) {
    world.trace("rank {} is killed", r);
    ranks[r].dead = true;
    ranks[r].returns = false;
}

void Workers::arrive(uint32_t r, const Packet &packet) {
    Rank &rank = ranks[r];
    if (rank.dead && !rank.returns)
        return;
    if (world.now < rank.asleep_until) {
        if (rank.inbox.size() < 256) // a receive ring
            rank.inbox.push_back(packet);
        return;
    }
    receive(r, packet);
    arm(r);
}

// The rank runs: what arrived in its sleep, then its timers.
void Workers::wake(uint32_t r) {
    Rank &rank = ranks[r];
    if (rank.dead || world.now < rank.asleep_until)
        return;
    if (world.now >= rank.timer_at)
        rank.timer_at = ~0ULL;
    std::vector<Packet> inbox;
    inbox.swap(rank.inbox);
    for (const Packet &packet : inbox)
        receive(r, packet);
    if (rank.dead) // refused
        return;
    for (inagg_wslot &slot : rank.slots)
        expire(r, slot);
    open_all(r);
    arm(r);
}

void Workers::expire(uint32_t r, inagg_wslot &slot) {
    const int action = inagg_worker_timeout(&ranks[r].worker, &slot, world.now);
    if (!world.broken(Mutation::no_resend))
        act(r, slot, action);
}

void Workers::arm(uint32_t r) {
    Rank &rank = ranks[r];
    Time due = ~0ULL;
    for (const inagg_wslot &slot : rank.slots)
        if (slot.state == INAGG_WSLOT_SENT)
            due = std::min<Time>(due, slot.due_ns);
    if (due >= rank.timer_at)
        return;
    rank.timer_at = due;
    world.schedule(Event::timer, std::max(due, world.now), static_cast<int>(r), 0);
}

void Workers::call(uint32_t r) {
    Rank &rank = ranks[r];
    if (prepares(r) || rank.dead || rank.called == sc.tensors.size() || !may_call(rank))
        return;
    if (world.now < rank.asleep_until)
        return world.schedule(Event::call, rank.asleep_until, static_cast<int>(r), 0);
    const uint32_t tensor = rank.called++;
    rank.worker.limit = start_of(rank, tensor) + sc.tensors[tensor];
    rank.progress_at = world.now;
    world.trace("rank {} calls tensor {}", r, tensor);
    for (inagg_wslot &slot : rank.slots)
        open(r, slot);
    arm(r);
    if (rank.called - rank.finished < sc.depth)
        world.schedule(Event::call, world.now, static_cast<int>(r), 0);
}

void Workers::open(uint32_t r, inagg_wslot &slot) {
    send_next(r, slot);
    if (ranks[r].worker.cap)
        open_all(r);
}

// In the order of blocks: a cap lets the first of them go.
void Workers::open_all(uint32_t r) {
    std::vector<inagg_wslot *> idle;
    for (inagg_wslot &slot : ranks[r].slots)
        if (slot.state == INAGG_WSLOT_IDLE)
            idle.push_back(&slot);
    std::sort(idle.begin(), idle.end(),
              [](const inagg_wslot *a, const inagg_wslot *b) { return inagg_before(a->block, b->block); });
    for (inagg_wslot *slot : idle)
        send_next(r, *slot);
}

void Workers::send_next(uint32_t r, inagg_wslot &slot) { act(r, slot, inagg_worker_open(&ranks[r].worker, &slot, world.now)); }

void Workers::act(uint32_t r, inagg_wslot &slot, int action) {
    switch (action) {
    case INAGG_W_SEND:
        return send(r, slot.block, INAGG_CONTRIBUTION, false, false);
    case INAGG_W_RESEND:
        return send(r, slot.block, INAGG_CONTRIBUTION, false);
    case INAGG_W_RESEND_ASK_ALL:
        send(r, slot.block, INAGG_CONTRIBUTION, false);
        return send(r, slot.block, INAGG_REQUEST, true);
    case INAGG_W_REQUEST:
        return send(r, slot.block, INAGG_REQUEST, false);
    case INAGG_W_REQUEST_ALL:
        return send(r, slot.block, INAGG_REQUEST, true);
    case INAGG_W_RESTORE:
        return send(r, slot.block - sc.slots, INAGG_RESTORE, false);
    default:
        return;
    }
}

void Workers::send(uint32_t r, uint32_t block, uint8_t type, bool everyone, bool repeated) {
    Rank &rank = ranks[r];
    Packet packet{};
    packet.type = type;
    packet.everyone = everyone;
    packet.repeated = repeated;
    packet.from = static_cast<int>(r);
    packet.version = static_cast<uint8_t>(inagg_pool_version(&rank.worker, block));
    packet.slot = inagg_position_of(&job, sc.control, block);
    const Content content = content_of(r);
    packet.block = content.meta_of(block, r);
    packet.block.whole = content.whole(block);
    packet.block.absent = content.absent(block, r);
    packet.block.contributors = inagg_rank_bit(r);
    const inagg_wslot &slot = rank.slots[index_of(block)];
    if (slot.state == INAGG_WSLOT_SENT && slot.block == block) {
        packet.block.epoch = slot.epoch;
        packet.bypass = type == INAGG_CONTRIBUTION && slot.bypass;
        packet.window_cap = packet.bypass ? inagg_wslot_question(&slot) : 0;
    }
    if (type == INAGG_REQUEST) {
        packet.block.elements = 0;
        packet.window_cap = inagg_wslot_question(&slot);
    } else if (type == INAGG_CONTRIBUTION && slot.raw)
        load_raw(r, packet);
    else if (type == INAGG_CONTRIBUTION)
        packet.payload = content.contribution(block, r);
    else
        load_held(r, packet);
    world.trace("rank {} sends type {} block {:#x} epoch {}", r, type, block, packet.block.epoch);
    world.transmit(sc.leaf_of.empty() ? the_switch : switch_target(sc.leaf_of[r]), packet);
}

void Workers::load_raw(uint32_t r, Packet &packet) const {
    const uint32_t block = packet.block.block;
    packet.block = world.content.raw_meta_of(block, r);
    packet.payload = world.content.contribution(block, r, true);
}

void Workers::receive(uint32_t r, const Packet &packet) {
    Rank &rank = ranks[r];
    notice_boot(r, packet.boot);
    if (packet.type == INAGG_REFUSED)
        return kill(r); // its calls fail
    const uint32_t block = packet.block.block;
    inagg_wslot &slot = rank.slots[index_of(block)];
    if (packet.type == INAGG_RESULT)
        return receive_result(r, slot, packet);
    receive_wait(r, slot, packet);
}

void Workers::receive_wait(uint32_t r, inagg_wslot &slot, const Packet &packet) {
    Rank &rank = ranks[r];
    const uint32_t block = packet.block.block;
    if (packet.window_cap)
        return inagg_worker_refused(&rank.worker, &slot, block, packet.window_cap);
    if (slot.state == INAGG_WSLOT_SENT && slot.block == block)
        rank.heard[index_of(block)] = packet.contributors;
    const Time due = slot.due_ns;
    const int action = inagg_worker_wait_raw(&rank.worker, &slot, block, packet.contributors, r, packet.raw, world.now);
    if (world.broken(Mutation::no_put_off) && action == INAGG_W_NOTHING)
        slot.due_ns = due;
    if (action == INAGG_W_RESTORE && world.broken(Mutation::no_restore))
        return;
    act(r, slot, action);
    expire_overtaken(r);
}

void Workers::notice_boot(uint32_t r, uint16_t heard) {
    Rank &rank = ranks[r];
    if (inagg_boot_heard(&rank.boots, heard, world.now))
        for (inagg_wslot &slot : rank.slots)
            rebooted(r, slot);
}

void Workers::accepted(uint32_t r, inagg_wslot &slot, uint32_t block) {
    Rank &rank = ranks[r];
    world.accepted[block] |= inagg_rank_bit(r);
    rank.heard[index_of(block)].reset();
    rank.progress_at = world.now;
    expire_overtaken(r);
    open(r, slot);
}

void Workers::expire_overtaken(uint32_t r) {
    Rank &rank = ranks[r];
    for (inagg_wslot &other : rank.slots)
        if (overtaken(r, other))
            expire(r, other);
}

bool Workers::overtaken(uint32_t r, inagg_wslot &slot) { return inagg_worker_overtaken(&ranks[r].worker, &slot, world.now); }

void Workers::finish_block(uint32_t r, uint32_t block) {
    Rank &rank = ranks[r];
    rank.missing[tensor_of(rank, block)]--;
    while (rank.finished < rank.called && !rank.missing[rank.finished]) {
        rank.finished++;
        world.schedule(Event::call, world.now + (sc.pause ? world.random.below(sc.pause) : 0), static_cast<int>(r), 0);
    }
}

void Workers::check_result(uint32_t r, uint32_t block, const Packet &packet) {
    const inagg_block expected = world.content.result_meta(block, job.all);
    world.require(packet.contributors == job.all, "rank {}: the result of block {:#x} names only {:#x}", r, block,
                  packet.contributors);
    world.require(packet.payload == world.content.sum_of(block, job.all, world.content.is_raw(block)),
                  "rank {}: wrong sum of block {:#x}", r, block);
    world.require(packet.block.elements == expected.elements && packet.block.dtype_op == expected.dtype_op &&
                      packet.block.next_scale == expected.next_scale && packet.block.saturated == expected.saturated &&
                      packet.block.scale == expected.scale,
                  "rank {}: wrong header in the result of block {:#x}", r, block);
}

void Workers::check_lag(uint32_t index) {
    uint32_t lowest = ranks[0].slots[index].block, highest = lowest;
    for (const Rank &rank : ranks) {
        const uint32_t block = rank.slots[index].block;
        lowest = inagg_before(block, lowest) ? block : lowest;
        highest = inagg_before(highest, block) ? block : highest;
    }
    world.require(highest - lowest <= sc.slots, "slot {}: a rank lags from {:#x} to {:#x}", index, highest, lowest);
}

// The first block of a tensor, or behind the last one's.
uint32_t Workers::start_of(const Rank &rank, size_t tensor) const {
    return std::accumulate(sc.tensors.begin() + rank.first, sc.tensors.begin() + static_cast<ptrdiff_t>(tensor), sc.base);
}

uint32_t Workers::tensor_of(const Rank &rank, uint32_t block) const {
    uint32_t tensor = rank.first;
    while (!inagg_before(block, start_of(rank, tensor + 1)))
        tensor++;
    return tensor;
}

// Nothing has happened for so long that a library would return an error.
bool Workers::expired(const Rank &rank) const {
    return is_waiting(rank) && world.now >= rank.progress_at + deadline() && world.now >= rank.asleep_until + deadline();
}

// One that comes back is not, once it is in a generation that has begun.
bool Workers::is_over(uint32_t r) const {
    const Rank &rank = ranks[r];
    return rank.dead ? !rank.returns || inagg_job_excludes(&job, r) : done(rank) || expired(rank);
}

bool Workers::over() const {
    for (uint32_t r = 0; r < sc.ranks; r++)
        if (!is_over(r))
            return false;
    return true;
}

std::string Workers::stuck() const {
    std::string text;
    for (uint32_t r = 0; r < sc.ranks; r++) {
        if (ranks[r].dead || done(ranks[r]))
            continue;
        const inagg_wslot *slot = oldest(ranks[r]);
        text += slot ? fmt::format("rank {} waits for block {:#x}; ", r, slot->block)
                     : fmt::format("rank {} has nothing in flight; ", r);
    }
    return text;
}

const inagg_wslot *Workers::oldest(const Rank &rank) const {
    const inagg_wslot *first = nullptr;
    for (const inagg_wslot &slot : rank.slots)
        if (slot.state == INAGG_WSLOT_SENT && (!first || inagg_before(slot.block, first->block)))
            first = &slot;
    return first;
}

void Workers::check_end() {
    for (uint32_t r = 0; r < sc.ranks; r++) {
        if (ranks[r].dead || done(ranks[r]) || inagg_job_excludes(&job, r))
            continue;
        const inagg_wslot *slot = oldest(ranks[r]);
        if (slot)
            check_deadline(r, *slot);
        else
            check_idle(r);
    }
}

void Workers::check_idle(uint32_t r) { world.require(false, "rank {} has nothing in flight and is not done", r); }

// Only a death excuses a deadline, and the error must name exactly who died.
void Workers::check_deadline(uint32_t r, const inagg_wslot &slot) {
    world.require(sc.killed.has_value(), "no progress for {} s: {}", deadline() / s, stuck());
    const auto heard = ranks[r].heard[index_of(slot.block)];
    world.require(heard.has_value(), "rank {} cannot say who is missing from block {:#x}", r, slot.block);
    const uint64_t blamed = job.all & ~*heard, died = inagg_rank_bit(*sc.killed);
    world.require((blamed & died) && !(blamed & ~beside_killed()), "rank {} blames {:#x} for block {:#x}, not rank {}", r, blamed,
                  slot.block, *sc.killed);
}

// The ranks that cannot be told from the one that was killed: those behind the same child of the root.
uint64_t Workers::beside_killed() const {
    const auto branch = [&](uint32_t r) {
        uint32_t at = sc.leaf_of[r];
        while (at && sc.parents[at])
            at = sc.parents[at];
        return at;
    };
    uint64_t ranks = inagg_rank_bit(*sc.killed);
    for (uint32_t r = 0; r < sc.leaf_of.size(); r++)
        if (branch(r) && branch(r) == branch(*sc.killed))
            ranks |= inagg_rank_bit(r);
    return ranks;
}

} // namespace simulation
