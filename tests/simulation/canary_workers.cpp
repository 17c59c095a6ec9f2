// SPDX-License-Identifier: BSD-2-Clause
// Ranks that lead the blocks of some slots (core/leader.h) and wait for others' (docs/PROTOCOL.md §15).
#include "workers.hpp"

#include <inagg/core/leader.h>

namespace simulation {
namespace {

// What a leader keeps of a block.
struct Copy {
    inagg_lead state{};
    Payload sum;
};

class CanaryWorkers : public Workers {
public:
    explicit CanaryWorkers(World &shared)
        : Workers(shared), copies(sc.ranks, std::vector<Copy>(2 * sc.slots)), heard_at(sc.ranks, std::vector<Time>(sc.slots)),
          alarms(sc.ranks) {}

private:
    std::vector<std::vector<Copy>> copies;   // by rank; two of each slot
    std::vector<std::vector<Time>> heard_at; // by rank and slot: when its leader last said anything
    std::vector<Time> alarms;                // by rank: when it looks whether its deadline has passed

    uint32_t leader_of(uint32_t block) const { return inagg_leader_of(sc.ranks, inagg_position_of(&job, sc.control, block)); }
    bool leads(uint32_t r, uint32_t block) const { return leader_of(block) == r; }

    Copy &copy_of(uint32_t r, uint32_t block) {
        const uint32_t version = world.broken(Mutation::one_copy) ? 0 : inagg_pool_version(&ranks[r].worker, block);
        return copies[r][index_of(block) * 2 + version];
    }

    // A leader forgets nothing: nobody is asked to restore.
    void load_held(uint32_t r, Packet &packet) override {
        world.require(false, "rank {} restores block {:#x}", r, packet.block.block);
    }

    bool overtaken(uint32_t r, inagg_wslot &slot) override {
        return !leads(r, slot.block) && inagg_worker_overtaken_at_leader(&ranks[r].worker, &slot, world.now);
    }

    void expire(uint32_t r, inagg_wslot &slot) override {
        if (slot.state == INAGG_WSLOT_SENT && leads(r, slot.block))
            return watch(r);
        act(r, slot, inagg_worker_ask(&ranks[r].worker, &slot, world.now));
    }

    // Nothing that this rank leads was in a switch.
    void rebooted(uint32_t r, inagg_wslot &slot) override {
        if (!leads(r, slot.block))
            inagg_worker_rebooted(&slot);
    }

    void act(uint32_t r, inagg_wslot &slot, int action) override {
        world.require(action == INAGG_W_NOTHING || action == INAGG_W_SEND || !leads(r, slot.block),
                      "rank {} would send block {:#x} to itself", r, slot.block);
        if (action == INAGG_W_SEND && leads(r, slot.block))
            return lead(r, slot);
        world.outcome.bypasses += action == INAGG_W_RESEND && slot.bypass;
        Workers::act(r, slot, action);
    }

    void receive(uint32_t r, const Packet &packet) override {
        notice_boot(r, packet.boot);
        const bool to_leader = packet.type == INAGG_CONTRIBUTION || packet.type == INAGG_PARTIAL || packet.type == INAGG_REQUEST;
        world.require(to_leader == leads(r, packet.block.block), "rank {} gets a packet of type {} for block {:#x}", r,
                      packet.type, packet.block.block);
        if (packet.type == INAGG_REQUEST)
            return answer(r, packet);
        if (to_leader)
            return add(r, packet);
        Workers::receive(r, packet);
    }

    // ---- of a block that another rank leads ----

    void receive_wait(uint32_t r, inagg_wslot &slot, const Packet &packet) override {
        const uint32_t block = packet.block.block, index = index_of(block);
        if (slot.state == INAGG_WSLOT_SENT && slot.block == block) {
            ranks[r].heard[index] = packet.contributors;
            heard_at[r][index] = world.now;
        }
        if (packet.type == INAGG_BLOCK_FAILED && world.broken(Mutation::no_resend))
            return;
        inagg_worker_told(&ranks[r].worker, &slot, block, packet.window_cap, world.now);
        act(r, slot,
            inagg_worker_failed(&ranks[r].worker, &slot, block, packet.contributors, r, packet.block.epoch, packet.bypass,
                                world.now));
        expire_overtaken(r);
    }

    void receive_result(uint32_t r, inagg_wslot &slot, const Packet &packet) override {
        const uint32_t block = packet.block.block;
        world.require(inagg_wslot_believes(&slot, block, packet.block.epoch),
                      "rank {}: block {:#x} is complete in attempt {}, and was said to be in {}", r, block, packet.block.epoch,
                      slot.epoch);
        inagg_worker_told(&ranks[r].worker, &slot, block, packet.window_cap, world.now);
        accept(r, slot, packet);
    }

    void accept(uint32_t r, inagg_wslot &slot, const Packet &packet) {
        const uint32_t block = packet.block.block;
        if (inagg_worker_result(&ranks[r].worker, &slot, block, packet.repeated, world.now) == INAGG_W_ACCEPT)
            finish(r, slot, packet);
    }

    void finish(uint32_t r, inagg_wslot &slot, const Packet &packet) {
        const uint32_t block = packet.block.block;
        world.trace("rank {} accepts block {:#x}", r, block);
        check_result(r, block, packet);
        accepted(r, slot, block);
        check_lag(index_of(block));
        finish_block(r, block);
    }

    // ---- of a block that this rank leads ----

    // What others send completes it: a timer could bring nothing.
    void lead(uint32_t r, inagg_wslot &slot) {
        const uint32_t block = slot.block;
        slot.due_ns = ~0ULL;
        watch(r);
        Packet own{};
        own.type = INAGG_CONTRIBUTION;
        own.version = static_cast<uint8_t>(inagg_pool_version(&ranks[r].worker, block));
        own.slot = inagg_position_of(&job, sc.control, block);
        own.block = world.content.meta_of(block, r);
        own.payload = world.content.contribution(block, r);
        add(r, own);
    }

    // But the call has a deadline.
    void watch(uint32_t r) {
        const Time at = std::max(ranks[r].progress_at, ranks[r].asleep_until) + deadline();
        if (alarms[r] > world.now || at <= world.now)
            return;
        alarms[r] = at;
        world.schedule(Event::timer, at, static_cast<int>(r), 0);
    }

    void add(uint32_t r, const Packet &packet) {
        const uint32_t block = packet.block.block;
        const uint64_t ranks_in_it = ranks_in(packet);
        Copy &copy = copy_of(r, block);
        if (world.broken(Mutation::ignore_seen) && !(copy.state.slot.flags & INAGG_SLOT_COMPLETE))
            copy.state.slot.seen &= ~ranks_in_it;
        const uint64_t all = world.broken(Mutation::complete_early) && sc.ranks > 1 ? job.all & job.all >> 1 : job.all;
        const int verdict = inagg_lead_contribute(&copy.state, all, ranks_in_it, &packet.block, packet.bypass);
        world.trace("leader {}: {:#x} contribute block {:#x}: verdict {:#x}, seen {:#x}", r, ranks_in_it, block, verdict,
                    copy.state.slot.seen);
        world.require((verdict > 0 && INAGG_VERDICT(verdict) <= INAGG_COUNT) || verdict == -INAGG_R_STALE ||
                          verdict == -INAGG_R_DUPLICATE,
                      "leader {}: verdict {} on block {:#x} of {:#x}", r, verdict, block, ranks_in_it);
        if (verdict < 0)
            return;
        if (INAGG_VERDICT(verdict) == INAGG_STORE)
            copy.sum = packet.payload;
        else if (INAGG_VERDICT(verdict) == INAGG_ADD)
            copy.sum.add(packet.payload);
        check_copy(r, copy);
        if (verdict & INAGG_COMPLETES)
            complete(r, copy, packet);
    }

    void complete(uint32_t r, Copy &copy, const Packet &cause) {
        const Packet all = result(copy, cause, job.all);
        Packet word = all;
        word.everyone = true;
        word.block.rank = static_cast<uint16_t>(r);
        word.repeated = copy.state.attempt;
        word.contributors = copy.state.restore & ~inagg_rank_bit(r);
        if (sc.ranks > 1)
            say(r, word);
        if (world.broken(Mutation::forget_result))
            copy = {};
        inagg_wslot &slot = ranks[r].slots[index_of(all.block.block)];
        if (inagg_worker_completed(&ranks[r].worker, &slot, all.block.block) == INAGG_W_ACCEPT)
            finish(r, slot, all);
    }

    void answer(uint32_t r, const Packet &packet) {
        Copy &copy = copy_of(r, packet.block.block);
        inagg_block asked = packet.block;
        asked.cap = packet.window_cap;
        const int verdict = inagg_lead_request(&copy.state, &asked);
        world.trace("leader {}: rank {} asks for block {:#x} in attempt {}: verdict {}, attempt {}, seen {:#x}", r,
                    packet.block.rank, packet.block.block, packet.block.epoch, verdict, copy.state.attempt, copy.state.slot.seen);
        world.require(copy.state.attempt <= INAGG_CANARY_ATTEMPTS, "leader {}: attempt {} at block {:#x}", r, copy.state.attempt,
                      packet.block.block);
        if (verdict < 0 || world.broken(Mutation::silent_leader))
            return;
        if (verdict == INAGG_REPLY) {
            world.outcome.asked++;
            return say(r, result(copy, packet, job.all));
        }
        world.outcome.reissues += verdict == INAGG_FAIL_ALL;
        Packet word = packet;
        word.type = verdict == INAGG_TELL ? INAGG_WAIT : INAGG_BLOCK_FAILED;
        word.everyone = verdict == INAGG_FAIL_ALL;
        if (word.everyone) {
            word.block.rank = static_cast<uint16_t>(r);
            word.window_cap = 0;
        }
        word.bypass = word.type == INAGG_BLOCK_FAILED && inagg_lead_bypasses(&copy.state);
        word.contributors = inagg_lead_seen(&copy.state, &packet.block);
        word.block.epoch = copy.state.attempt;
        say(r, word);
    }

    Packet result(const Copy &copy, const Packet &cause, uint64_t contributors) const {
        const inagg_slot &slot = copy.state.slot;
        Packet packet = cause;
        packet.type = INAGG_RESULT;
        packet.bypass = false;
        packet.repeated = true;
        packet.contributors = contributors;
        packet.block.dtype_op = slot.dtype_op;
        packet.block.scale = slot.scale;
        packet.block.elements = slot.elements;
        packet.block.next_scale = slot.next_scale;
        packet.block.saturated = (slot.flags & INAGG_SLOT_SATURATED) != 0;
        packet.block.epoch = copy.state.attempt;
        packet.payload = slot.elements ? copy.sum : Payload{};
        return packet;
    }

    void say(uint32_t r, Packet packet) {
        packet.from = static_cast<int>(r);
        world.transmit(switch_target(sc.leaf_of[r]), packet);
    }

    void check_copy(uint32_t r, const Copy &copy) {
        const inagg_slot &slot = copy.state.slot;
        world.require(!(slot.seen & ~job.all) && !(copy.state.restore & ~slot.seen),
                      "leader {}: block {:#x} names {:#x}, and {:#x} to be restored", r, slot.block, slot.seen,
                      copy.state.restore);
        world.require((slot.elements ? copy.sum : Payload{}) == world.content.sum_of(slot.block, slot.seen),
                      "leader {}: block {:#x}: this is not the sum of {:#x}", r, slot.block, slot.seen);
        const bool is_complete = slot.flags & INAGG_SLOT_COMPLETE;
        world.require(is_complete == (slot.seen == job.all), "leader {}: block {:#x}: complete is {} with {:#x} in", r,
                      slot.block, is_complete, slot.seen);
    }

    // ---- the end ----

    // Who is missing, as rank `r` would say. Of a leader that has said nothing for long it can only say that.
    uint64_t missing(uint32_t r, const inagg_wslot &slot) {
        const uint32_t index = index_of(slot.block);
        if (leads(r, slot.block)) {
            inagg_block block = world.content.meta_of(slot.block, r);
            return job.all & ~inagg_lead_seen(&copy_of(r, slot.block).state, &block);
        }
        const auto heard = ranks[r].heard[index];
        if (!heard || heard_at[r][index] + deadline() / 2 < world.now)
            return inagg_rank_bit(leader_of(slot.block));
        return job.all & ~*heard;
    }

    // Only a death excuses a deadline. An error names the dead, and who is stuck before this block for the
    // same reason: the dead rank has answered some ranks and not others, and those go on to what these will
    // never send.
    void check_deadline(uint32_t r, const inagg_wslot &slot) override {
        world.outcome.deaths++;
        world.require(sc.killed.has_value(), "no progress for {} s: {}", deadline() / s, stuck());
        const uint64_t blamed = missing(r, slot);
        world.require(blamed, "rank {} cannot say who is missing from block {:#x}", r, slot.block);
        for (uint32_t other = 0; other < sc.ranks; other++) {
            if (!(blamed & inagg_rank_bit(other)) || other == *sc.killed)
                continue;
            const inagg_wslot *first = done(ranks[other]) ? nullptr : oldest(ranks[other]);
            world.require(first && inagg_before(first->block, slot.block), "rank {} blames {:#x} for block {:#x}, not rank {}", r,
                          blamed, slot.block, *sc.killed);
        }
    }
};

} // namespace

std::unique_ptr<Workers> make_canary_workers(World &world) { return std::make_unique<CanaryWorkers>(world); }

} // namespace simulation
