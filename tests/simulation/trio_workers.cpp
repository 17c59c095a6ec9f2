// SPDX-License-Identifier: BSD-2-Clause
// Ranks that keep the results of many blocks, also of blocks ahead (docs/PROTOCOL.md §11).
#include "workers.hpp"

#include <inagg/core/history.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <vector>

namespace simulation {
namespace {

// A result, whoever holds it.
struct Result {
    Payload payload;
    inagg_block meta;
    uint64_t contributors;
};

class TrioWorkers : public Workers {
public:
    explicit TrioWorkers(World &shared)
        : Workers(shared), everyone(job.all), history(sc.ranks), refused(sc.ranks, std::vector<bool>(sc.slots)) {
        for (uint32_t r = 0; r < sc.ranks; r++)
            forget(r);
    }

    void come_back(uint32_t r) override {
        const uint32_t lives = ranks[r].lives + 1;
        if (!inagg_job_excludes(&job, r) || !ranks[r].generation) // it is coming back
            return;
        world.trace("rank {} starts again", r);
        ranks[r] = {};
        ranks[r].lives = lives;
        ranks[r].dead = ranks[r].returns = true;
        ranks[r].generation = 0;
        begin(ranks[r], 0);
        forget(r);
        world.schedule(Event::call, world.now, static_cast<int>(r), 0);
    }

private:
    using Key = std::pair<uint16_t, uint32_t>; // a generation's block

    struct Truth {
        Result result;
        uint64_t known_by = 0; // ranks that have accepted it
    };
    // What a rank has of results.
    struct History {
        struct Free {
            void operator()(inagg_kept *kept) const { std::free(kept); }
        };
        std::unique_ptr<inagg_kept[], Free> kept; // calloc's: most of it is never touched
        std::map<uint32_t, Result> results;       // of which these are the elements, by their place
        inagg_history core{};
    };
    const uint64_t everyone;                // also the excluded
    std::vector<History> history;           // by rank
    std::vector<std::vector<bool>> refused; // by rank and slot: the latest answer was that
    std::map<Key, Truth> truth;             // what the first rank accepted
    std::map<uint32_t, bool> agreed;        // by tensor: whether a generation begins before it
    std::vector<uint32_t> begins = {0};     // of each generation: its first tensor

    bool holds(uint32_t r, uint32_t block) const { return inagg_history_find(&history[r].core, block); }

    void forget(uint32_t r) {
        inagg_job_config config{};
        config.algorithm = INAGG_TRIO;
        History &h = history[r];
        h.results.clear();
        h.kept.reset(static_cast<inagg_kept *>(std::calloc(sc.trio.history, sizeof(inagg_kept))));
        inagg_history_init(&h.core, &config, h.kept.get(), sc.trio.history);
        refused[r].assign(sc.slots, false);
    }

    void receive(uint32_t r, const Packet &packet) override {
        if (packet.type == INAGG_CONFIG)
            return join(r, packet);
        const bool believes = packet.type == INAGG_RESULT && world.broken(Mutation::believe_old);
        if (packet.block.generation == ranks[r].generation || (believes && !ranks[r].dead))
            Workers::receive(r, packet);
    }

    // ---- generations ----

    // Is the rank at a tensor before which a generation may begin?
    bool at_renewal(const Rank &rank) const {
        return rank.called < sc.tensors.size() && sc.trio.renewals[rank.called] && rank.first != rank.called;
    }

    bool renews(const Rank &rank) const {
        const auto known = agreed.find(rank.called);
        return known == agreed.end() || known->second;
    }

    bool is_waiting(const Rank &rank) const override { return Workers::is_waiting(rank) || (at_renewal(rank) && renews(rank)); }

    bool prepares(uint32_t r) override {
        Rank &rank = ranks[r];
        if (rank.returns)
            ask(r);
        else if (rank.dead || !at_renewal(rank))
            return false;
        else if (rank.finished == rank.called && world.now >= rank.asleep_until)
            agree(r);
        if (!rank.dead && !renews(rank))
            return false;
        if (rank.returns || !rank.dead) // else it has been refused
            world.schedule(Event::call, std::max(world.now + 1 + world.random.below(20 * ms), rank.asleep_until),
                           static_cast<int>(r), 0);
        return true;
    }

    // As the barrier at which all ranks say which others they know to wait; it tells an excluded one that it is out.
    void agree(uint32_t r) {
        const uint32_t tensor = ranks[r].called;
        if (inagg_job_excludes(&job, r))
            return kill(r);
        if (!agreed.contains(tensor) && all_have_finished(tensor)) {
            agreed[tensor] = world.returning;
            if (world.returning)
                begins.push_back(tensor);
        }
        if (agreed.contains(tensor) && agreed[tensor])
            ask(r);
    }

    bool all_have_finished(uint32_t tensor) const {
        for (uint32_t r = 0; r < sc.ranks; r++)
            if (!inagg_job_excludes(&job, r) && ranks[r].finished < tensor)
                return false;
        return true;
    }

    void ask(uint32_t r) {
        Packet packet{};
        packet.type = INAGG_JOIN;
        packet.life = ranks[r].lives;
        packet.block.rank = static_cast<uint16_t>(r);
        packet.block.generation = ranks[r].generation;
        world.transmit(the_switch, packet);
    }

    void join(uint32_t r, const Packet &packet) {
        Rank &rank = ranks[r];
        const uint16_t generation = packet.block.generation;
        if (packet.life != rank.lives || generation <= rank.generation)
            return;
        world.trace("rank {} is in generation {}", r, generation);
        rank.generation = generation;
        rank.dead = rank.returns = false;
        rank.progress_at = world.now;
        begin(rank, begins.at(generation - first_generation));
        forget(r);
        world.schedule(Event::call, world.now, static_cast<int>(r), 0);
    }

    // A switch that lacks room can be filled with blocks that others will not send before they have earlier
    // ones.
    bool may_call(const Rank &rank) const override { return rank.called - rank.finished < sc.depth; }

    // ---- results ----

    void receive_result(uint32_t r, inagg_wslot &slot, const Packet &packet) override {
        const uint32_t block = packet.block.block;
        inagg_block_meta meta{};
        meta.epoch = world.broken(Mutation::believe_anything) ? slot.epoch : packet.block.epoch;
        switch (inagg_history_result(&history[r].core, &ranks[r].worker, &slot, block, &meta, packet.repeated, world.now)) {
        case INAGG_W_ACCEPT:
            keep(r, packet, meta);
            pass(r, slot);
            return accepted(r, slot, block);
        case INAGG_W_KEEP:
            keep(r, packet, meta);
            return open(r, slot);
        }
    }

    void keep(uint32_t r, const Packet &packet, const inagg_block_meta &meta) {
        const uint32_t block = packet.block.block;
        world.trace("rank {} accepts block {:#x} epoch {}: {:#x}", r, block, packet.block.epoch, packet.contributors);
        const Result result{packet.payload, packet.block, packet.contributors};
        check_result(r, packet);
        check_truth(r, block, result);
        inagg_history_keep(&history[r].core, block, &meta);
        history[r].results[inagg_history_index(&history[r].core, block)] = result;
    }

    // One result of a block, for all ranks that have not been excluded.
    void check_truth(uint32_t r, uint32_t block, const Result &result) {
        Truth &first = truth.try_emplace({ranks[r].generation, block}, Truth{result}).first->second;
        if (first.result.contributors == result.contributors) {
            first.known_by |= inagg_rank_bit(r);
            return;
        }
        const bool alone = inagg_job_excludes(&job, r), replaces = !alone && !(first.known_by & job.all);
        world.require((alone || replaces) && world.decided_anew.contains({ranks[r].generation, block}),
                      "block {:#x} is the sum of {:#x} for rank {}, and of {:#x} for {:#x}", block, result.contributors, r,
                      first.result.contributors, first.known_by);
        if (replaces)
            first = {result, inagg_rank_bit(r)};
    }

    void check_result(uint32_t r, const Packet &packet) {
        const uint32_t block = packet.block.block;
        const uint64_t in = packet.contributors;
        const Content content = content_of(r);
        const inagg_block expected = content.result_meta(block, in);
        world.require(in && !(in & ~everyone), "rank {}: the result of block {:#x} names {:#x}", r, block, in);
        world.require(packet.degraded == (in != everyone), "rank {}: block {:#x} with {:#x} in, degraded {}", r, block, in,
                      packet.degraded);
        world.require(packet.payload == content.sum_of(block, in), "rank {}: wrong sum of block {:#x}", r, block);
        world.require(packet.block.elements == expected.elements && packet.block.next_scale == expected.next_scale &&
                          packet.block.saturated == expected.saturated && packet.block.scale == expected.scale,
                      "rank {}: wrong header in the result of block {:#x}", r, block);
    }

    // The slot has gone on to its next block.
    void pass(uint32_t r, const inagg_wslot &slot) {
        const uint32_t block = slot.block - sc.slots;
        refused[r][index_of(block)] = false;
        finish_block(r, block);
    }

    void open(uint32_t r, inagg_wslot &slot) override {
        inagg_worker &worker = ranks[r].worker;
        while (inagg_history_decided(&history[r].core, &worker, &slot)) {
            inagg_worker_skip(&worker, &slot);
            ranks[r].progress_at = world.now;
            pass(r, slot);
        }
        Workers::open(r, slot);
    }

    // ---- WAITs and restores ----

    void receive_wait(uint32_t r, inagg_wslot &slot, const Packet &packet) override {
        inagg_worker &worker = ranks[r].worker;
        const uint32_t block = packet.block.block;
        const bool waiting = slot.state == INAGG_WSLOT_SENT && slot.block == block;
        if (waiting && (packet.window_cap || packet.contributors))
            refused[r][index_of(block)] = packet.window_cap;
        if (packet.window_cap)
            return inagg_worker_refused(&worker, &slot, block, packet.window_cap);
        if (waiting)
            ranks[r].heard[index_of(block)] = packet.contributors;
        const Time due = slot.due_ns;
        const int action =
            inagg_history_wait(&history[r].core, &worker, &slot, block, packet.contributors, r, packet.block.epoch, world.now);
        if (world.broken(Mutation::no_put_off) && action == INAGG_W_NOTHING)
            slot.due_ns = due;
        if (action != INAGG_W_RESTORE)
            act(r, slot, action);
        else if (!world.broken(Mutation::no_restore))
            send(r, block, INAGG_RESTORE, false);
    }

    void load_held(uint32_t r, Packet &packet) override {
        const Result &held = history[r].results.at(inagg_history_index(&history[r].core, packet.block.block));
        packet.payload = held.payload;
        packet.block.elements = held.meta.elements;
        packet.block.next_scale = held.meta.next_scale;
        packet.block.saturated = held.meta.saturated;
        packet.block.contributors = world.broken(Mutation::restore_as_all) ? everyone : held.contributors;
    }

    // ---- the end ----

    // Others have gone on, and none of them keeps the result any more.
    bool outrun(Key key) const {
        const auto known = truth.find(key);
        bool passed = false;
        for (uint32_t r = 0; known != truth.end() && r < sc.ranks; r++) {
            if (ranks[r].dead || inagg_job_excludes(&job, r) || !(known->second.known_by & inagg_rank_bit(r)))
                continue;
            if (holds(r, key.second))
                return false;
            passed = true;
        }
        return passed;
    }

    // Nobody remains alive who has something to add.
    bool nobodys(Key key) const {
        uint64_t left = job.all & ~world.content.of(key.first).absent_from(key.second);
        for (uint32_t r = 0; r < sc.ranks; r++)
            left &= ranks[r].dead ? ~inagg_rank_bit(r) : ~uint64_t{0};
        return !left;
    }

    // Does a rank wait for a block of which this is true?
    bool anybody_waits(bool (TrioWorkers::*is)(Key) const) const {
        for (const Rank &rank : ranks)
            for (const inagg_wslot &slot : rank.slots)
                if (!rank.dead && slot.state == INAGG_WSLOT_SENT && (this->*is)({rank.generation, slot.block}))
                    return true;
        return false;
    }

    bool needs_killed() const { return sc.killed && ranks[*sc.killed].dead && !inagg_job_excludes(&job, *sc.killed); }

    // Between two generations a rank waits for the others.
    void check_idle(uint32_t r) override {
        bool others_wait = false;
        for (const Rank &other : ranks)
            others_wait |= !other.dead && oldest(other);
        world.require(at_renewal(ranks[r]) && (needs_killed() || others_wait), "rank {} waits in vain for the next generation",
                      r);
    }

    // A rank may be stuck if it, or one that it needs, was outrun, or if it needs one that is dead.
    void check_deadline(uint32_t r, const inagg_wslot &slot) override {
        if (anybody_waits(&TrioWorkers::nobodys))
            return;
        if (anybody_waits(&TrioWorkers::outrun)) {
            world.require(sc.trio.history < 4096, "rank {} was outrun at block {:#x}", r, slot.block);
            world.outcome.outrun++;
            return;
        }
        world.require(needs_killed(), "no progress for {} s: {}", deadline() / s, stuck());
        if (slot.epoch || refused[r][index_of(slot.block)])
            return; // the dead one is needed here, or for what is in the way
        const inagg_policy &policy = sc.trio.policy;
        const uint64_t others = job.all & ~inagg_rank_bit(*sc.killed) & ~world.content.absent_from(slot.block);
        const bool goes_on = policy.expiry_sweeps || (policy.quorum && policy.quorum <= inagg_count_ranks(others));
        world.require(world.content.whole(slot.block) || !goes_on,
                      "rank {} waits for block {:#x}, which a dead rank does not hold up", r, slot.block);
        Workers::check_deadline(r, slot);
    }
};

} // namespace

std::unique_ptr<Workers> make_trio_workers(World &world) { return std::make_unique<TrioWorkers>(world); }

} // namespace simulation
