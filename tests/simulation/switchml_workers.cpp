// SPDX-License-Identifier: BSD-2-Clause
// Ranks that keep the last result of each slot (docs/PROTOCOL.md §7).
#include "workers.hpp"

namespace simulation {
namespace {

class SwitchmlWorkers : public Workers {
public:
    explicit SwitchmlWorkers(World &shared) : Workers(shared), held(sc.ranks, std::vector<Held>(sc.slots)) {}

private:
    // Result of a slot's previous block.
    struct Held {
        uint32_t block = 0;
        Payload payload;
    };
    std::vector<std::vector<Held>> held; // by rank and slot

    // A restore needs the result of the slot's latest block and no older one.
    void load_held(uint32_t r, Packet &packet) override {
        const uint32_t block = packet.block.block;
        const Held &last = held[r][index_of(block)];
        const bool forgotten = world.broken(Mutation::forget_result) &&
                               ranks[r].slots[index_of(block)].state == INAGG_WSLOT_SENT;
        world.require(last.block == block && !forgotten,
                      "rank {} is asked for block {:#x} and no longer holds it", r, block);
        packet.payload = last.payload;
        const inagg_block expected = world.content.result_meta(block, job.all);
        packet.block.elements = expected.elements;
        packet.block.next_scale = expected.next_scale;
        packet.block.saturated = expected.saturated;
    }

    void receive_result(uint32_t r, inagg_wslot &slot, const Packet &packet) override {
        const bool any = world.broken(Mutation::accept_any_result) && slot.state == INAGG_WSLOT_SENT;
        const uint32_t block = any ? slot.block : packet.block.block;
        if (inagg_worker_result(&ranks[r].worker, &slot, block, packet.repeated, world.now) != INAGG_W_ACCEPT)
            return;
        world.trace("rank {} accepts block {:#x}", r, block);
        check_result(r, block, packet);
        held[r][index_of(block)] = {block, packet.payload};
        accepted(r, slot, block);
        check_lag(index_of(block));
        finish_block(r, block);
    }

    void check_result(uint32_t r, uint32_t block, const Packet &packet) {
        const inagg_block expected = world.content.result_meta(block, job.all);
        world.require(packet.contributors == job.all, "rank {}: the result of block {:#x} names only {:#x}",
                      r, block, packet.contributors);
        world.require(packet.payload == world.content.sum_of(block, job.all, world.content.is_raw(block)),
                      "rank {}: wrong sum of block {:#x}", r, block);
        world.require(
            packet.block.elements == expected.elements && packet.block.dtype_op == expected.dtype_op &&
                packet.block.next_scale == expected.next_scale &&
                packet.block.saturated == expected.saturated && packet.block.scale == expected.scale,
            "rank {}: wrong header in the result of block {:#x}", r, block);
    }

    void check_lag(uint32_t index) {
        uint32_t lowest = ranks[0].slots[index].block, highest = lowest;
        for (const Rank &rank : ranks) {
            const uint32_t block = rank.slots[index].block;
            lowest = inagg_before(block, lowest) ? block : lowest;
            highest = inagg_before(highest, block) ? block : highest;
        }
        world.require(highest - lowest <= sc.slots, "slot {}: a rank lags from {:#x} to {:#x}", index,
                      highest, lowest);
    }
};

} // namespace

std::unique_ptr<Workers> make_switchml_workers(World &world) {
    return std::make_unique<SwitchmlWorkers>(world);
}

} // namespace simulation
