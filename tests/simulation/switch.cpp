// SPDX-License-Identifier: BSD-2-Clause
#include "switch.hpp"

namespace simulation {

void OneSwitch::receive(int, const Packet &packet) {
    const int refused = inagg_job_admits(&job, &packet.block, packet.slot,
                                         packet.block.elements * inagg_element_bytes(packet.block.dtype_op >> 4));
    if (refused == -INAGG_R_GENERATION && packet.block.generation != job.generation)
        return; // it was long on its way
    world.require(!refused, "an honest packet is refused for reason {}", -refused);
    switch (packet.type) {
    case INAGG_CONTRIBUTION:
    case INAGG_PARTIAL:
        return contribute(packet);
    case INAGG_RESTORE:
        return restore(packet);
    default:
        return request(packet);
    }
}

void OneSwitch::restart() {
    world.trace("switch restarts");
    boot++;
    clear_all();
}

void Switch::fold(int verdict, Payload &sum, const Packet &packet) {
    if (verdict == INAGG_STORE)
        sum = packet.payload;
    else if (verdict == INAGG_ADD)
        sum.add(packet.payload);
}

Packet Switch::result(const inagg_slot &slot, const Payload &sum, const Packet &cause) const {
    Packet packet = cause;
    packet.type = INAGG_RESULT;
    packet.boot = boot;
    packet.contributors = slot.seen;
    packet.block.dtype_op = slot.dtype_op;
    packet.block.elements = slot.elements;
    packet.block.next_scale = slot.next_scale;
    packet.block.saturated = (slot.flags & INAGG_SLOT_SATURATED) != 0;
    packet.payload = slot.elements ? sum : Payload{};
    return packet;
}

Packet Switch::wait(uint64_t seen, const Packet &cause) const {
    Packet packet = cause;
    packet.type = INAGG_WAIT;
    packet.boot = boot;
    packet.contributors = seen;
    packet.payload = {};
    return packet;
}

Packet Switch::reply(const inagg_slot &slot, const Payload &sum, const Packet &cause) const {
    if (sc.short_frames && cause.type == INAGG_REQUEST)
        return wait(0, cause);
    return result(slot, sum, cause);
}

void OneSwitch::send_to(uint32_t rank, const Packet &packet) {
    if (tree)
        return tree->send_down(tree->apex(), rank, packet);
    world.transmit(static_cast<int>(rank), packet);
}

void OneSwitch::multicast(Packet packet) {
    packet.everyone = true;
    if (tree)
        return tree->send_down_to_all(tree->apex(), packet);
    for (uint32_t rank = 0; rank < sc.ranks; rank++)
        world.transmit(static_cast<int>(rank), packet);
}

} // namespace simulation
