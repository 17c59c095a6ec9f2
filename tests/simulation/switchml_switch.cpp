// SPDX-License-Identifier: BSD-2-Clause
// Slots with a shadow copy each (core/slot.h).
#include "switch.hpp"

#include <algorithm>

namespace simulation {
namespace {

// One copy of a slot.
struct Copy {
    inagg_slot state;
    Payload sum;
};

class SwitchmlSwitch : public OneSwitch {
public:
    explicit SwitchmlSwitch(World &shared)
        : OneSwitch(shared), memory(2 * (job.first_slot + job.slots + job.control_slots + 2)) {}

    void clear_all() override {
        world.trace("all slots cleared");
        std::fill(memory.begin(), memory.end(), Copy{});
    }

    void clear_one() override {
        const uint64_t key = world.random.below(memory.size());
        world.trace("copy {} cleared", key);
        memory[key] = {};
    }

    void check_end() override {
        for (size_t key = 0; key < memory.size(); key++)
            if (key < 2 * job.first_slot || key >= 2 * (job.first_slot + job.slots + job.control_slots))
                world.require(!memory[key].state.flags, "another job's copy {} was written", key);
    }

private:
    std::vector<Copy> memory;

    Copy &copy_of(const Packet &packet) {
        const uint32_t version = world.broken(Mutation::one_copy) ? 0 : packet.version;
        return memory[(job.first_slot + packet.slot) * 2 + version];
    }

    void contribute(Packet packet) override {
        Copy &copy = copy_of(packet);
        uint64_t all = job.all;
        if (world.broken(Mutation::ignore_seen) && !(copy.state.flags & INAGG_SLOT_COMPLETE))
            copy.state.seen &= ~inagg_rank_bit(packet.block.rank);
        if (world.broken(Mutation::complete_early) && sc.ranks > 1)
            all &= all >> 1;
        if (world.broken(Mutation::ignore_block) && (copy.state.flags & INAGG_SLOT_LIVE) &&
            !(copy.state.flags & INAGG_SLOT_COMPLETE)) {
            packet.block.block = copy.state.block;
            packet.block.scale = copy.state.scale;
        }
        const int verdict = inagg_slot_contribute(&copy.state, all, &packet.block);
        world.trace("switch: rank {} contributes block {:#x}: verdict {}, seen {:#x}", packet.block.rank, packet.block.block,
                    verdict, copy.state.seen);
        world.require(verdict != -INAGG_R_MISMATCH, "block {:#x} of rank {} disagrees with the others", packet.block.block,
                      packet.block.rank);
        if (verdict > 0)
            answer(verdict, copy, packet);
        check_copy(copy);
    }

    void answer(int verdict, Copy &copy, const Packet &packet) {
        fold(verdict & ~INAGG_COMPLETES, copy.sum, packet);
        if (verdict == INAGG_REPLY)
            world.transmit(packet.block.rank, result(copy.state, copy.sum, packet));
        else if (verdict == INAGG_TELL)
            world.transmit(packet.block.rank, wait(inagg_slot_seen(&copy.state, &packet.block), packet));
        else if (verdict & INAGG_COMPLETES)
            multicast(result(copy.state, copy.sum, packet));
    }

    void restore(const Packet &packet) override {
        Copy &copy = copy_of(packet);
        const int verdict = inagg_slot_restore(&copy.state, job.all, &packet.block);
        world.trace("switch: rank {} restores block {:#x}: verdict {}", packet.block.rank, packet.block.block, verdict);
        if (verdict < 0) {
            world.require(verdict == -INAGG_R_UNSOLICITED, "a restore is refused for reason {}", -verdict);
            return;
        }
        world.outcome.restores++;
        fold(verdict & ~INAGG_COMPLETES, copy.sum, packet);
        multicast(result(copy.state, copy.sum, packet));
        check_copy(copy);
    }

    void request(const Packet &packet) override {
        Copy &copy = copy_of(packet);
        const int verdict = inagg_slot_request(&copy.state, &packet.block, packet.everyone);
        world.trace("switch: rank {} requests block {:#x}: verdict {}", packet.block.rank, packet.block.block, verdict);
        const Packet told = wait(inagg_slot_seen(&copy.state, &packet.block), packet);
        if (verdict == INAGG_REPLY)
            world.transmit(packet.block.rank, reply(copy.state, copy.sum, packet));
        else if (verdict == INAGG_TELL)
            world.transmit(packet.block.rank, told);
        else if (verdict == INAGG_TELL_ALL)
            multicast(told);
    }

    // What a copy holds is the sum of the ranks it names, each once.
    void check_copy(const Copy &copy) {
        if (!(copy.state.flags & INAGG_SLOT_LIVE))
            return;
        world.require(!(copy.state.seen & ~job.all), "block {:#x} names ranks outside the job", copy.state.block);
        const Payload sum = copy.state.elements ? copy.sum : Payload{};
        world.require(sum == world.content.sum_of(copy.state.block, copy.state.seen),
                      "block {:#x}: the slot is not the sum of {:#x}", copy.state.block, copy.state.seen);
        const bool complete = copy.state.flags & INAGG_SLOT_COMPLETE;
        world.require(complete == (copy.state.seen == job.all), "block {:#x}: complete is {} with {:#x} in", copy.state.block,
                      complete, copy.state.seen);
    }
};

} // namespace

std::unique_ptr<Switch> make_switchml_switch(World &world) { return std::make_unique<SwitchmlSwitch>(world); }

} // namespace simulation
