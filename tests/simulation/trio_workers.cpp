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
        inagg_job_config config{};
        config.algorithm = INAGG_TRIO;
        for (History &h : history) {
            h.kept.reset(static_cast<inagg_kept *>(std::calloc(sc.trio.history, sizeof(inagg_kept))));
            inagg_history_init(&h.core, &config, h.kept.get(), sc.trio.history);
        }
    }

private:
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
    std::map<uint32_t, Truth> truth;        // by block: what the first rank accepted

    bool holds(uint32_t r, uint32_t block) const { return inagg_history_find(&history[r].core, block); }

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
        Truth &first = truth.try_emplace(block, Truth{result}).first->second;
        if (first.result.contributors == result.contributors) {
            first.known_by |= inagg_rank_bit(r);
            return;
        }
        const bool alone = inagg_job_excludes(&job, r), replaces = !alone && !(first.known_by & job.all);
        world.require((alone || replaces) && world.decided_anew.contains(block),
                      "block {:#x} is the sum of {:#x} for rank {}, and of {:#x} for {:#x}", block, result.contributors, r,
                      first.result.contributors, first.known_by);
        if (replaces)
            first = {result, inagg_rank_bit(r)};
    }

    void check_result(uint32_t r, const Packet &packet) {
        const uint32_t block = packet.block.block;
        const uint64_t in = packet.contributors;
        const inagg_block expected = world.content.result_meta(block, in);
        world.require(in && !(in & ~everyone), "rank {}: the result of block {:#x} names {:#x}", r, block, in);
        world.require(packet.degraded == (in != everyone), "rank {}: block {:#x} with {:#x} in, degraded {}", r, block, in,
                      packet.degraded);
        world.require(packet.payload == world.content.sum_of(block, in), "rank {}: wrong sum of block {:#x}", r, block);
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
    bool outrun(uint32_t block) const {
        const auto known = truth.find(block);
        bool passed = false;
        for (uint32_t r = 0; known != truth.end() && r < sc.ranks; r++) {
            if (ranks[r].dead || inagg_job_excludes(&job, r) || !(known->second.known_by & inagg_rank_bit(r)))
                continue;
            if (holds(r, block))
                return false;
            passed = true;
        }
        return passed;
    }

    // Nobody remains alive who has something to add.
    bool nobodys(uint32_t block) const {
        uint64_t left = job.all & ~world.content.absent_from(block);
        for (uint32_t r = 0; r < sc.ranks; r++)
            left &= ranks[r].dead ? ~inagg_rank_bit(r) : ~uint64_t{0};
        return !left;
    }

    // Does a rank wait for a block of which this is true?
    bool anybody_waits(bool (TrioWorkers::*is)(uint32_t) const) const {
        for (const Rank &rank : ranks)
            for (const inagg_wslot &slot : rank.slots)
                if (!rank.dead && slot.state == INAGG_WSLOT_SENT && (this->*is)(slot.block))
                    return true;
        return false;
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
        world.require(sc.killed && !inagg_job_excludes(&job, *sc.killed), "no progress for {} s: {}", deadline() / s, stuck());
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
