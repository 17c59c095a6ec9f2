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
        const bool forgotten = world.broken(Mutation::forget_result) && ranks[r].slots[index_of(block)].state == INAGG_WSLOT_SENT;
        world.require(last.block == block && !forgotten, "rank {} is asked for block {:#x} and no longer holds it", r, block);
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
};

} // namespace

std::unique_ptr<Workers> make_switchml_workers(World &world) { return std::make_unique<SwitchmlWorkers>(world); }

} // namespace simulation
