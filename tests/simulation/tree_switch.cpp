// SPDX-License-Identifier: BSD-2-Clause
#include "tree_switch.hpp"

#include <algorithm>

namespace simulation {

TreeSwitch::TreeSwitch(World &shared) : Switch(shared), tree(shared), nodes(tree.size()) {
    for (uint32_t n = 0; n < nodes.size(); n++) {
        nodes[n].place = {.here = tree.here(n), .everyone = job.all};
        nodes[n].memory.resize(2 * (job.slots + job.control_slots));
    }
}

void TreeSwitch::receive(int target, const Packet &packet) {
    const auto n = static_cast<uint32_t>(the_switch - target);
    switch (packet.type) {
    case INAGG_CONTRIBUTION:
    case INAGG_PARTIAL:
        return contribute(n, packet);
    case INAGG_RESTORE:
    case INAGG_RESULT:
        return take(n, packet);
    case INAGG_WAIT:
        return pass_wait(n, packet);
    default:
        return request(n, packet);
    }
}

void TreeSwitch::restart() {
    const uint32_t n = tree.any();
    world.trace("switch {} restarts", n);
    nodes[n].boot++;
    forget_all(n);
}

void TreeSwitch::clear_all() {
    const bool everywhere = world.random.chance(0.3);
    const uint32_t chosen = tree.any();
    world.trace("all slots of {} cleared", everywhere ? "all switches" : "one switch");
    for (uint32_t n = 0; n < nodes.size(); n++)
        if (everywhere || n == chosen)
            forget_all(n);
}

void TreeSwitch::clear_one() {
    const uint32_t n = tree.any();
    forget(n, static_cast<uint32_t>(world.random.below(nodes[n].memory.size())));
}

void TreeSwitch::forget_all(uint32_t n) {
    for (uint32_t key = 0; key < nodes[n].memory.size(); key++)
        forget(n, key);
}

Packet TreeSwitch::from(uint32_t n, Packet packet) const {
    packet.boot = nodes[n].boot;
    return packet;
}

void TreeSwitch::send_partial(uint32_t n, const TreeCopy &copy, const Packet &cause) {
    Packet partial = from(n, result(copy.state, copy.sum, cause));
    partial.type = INAGG_PARTIAL;
    tree.send_up(n, partial);
}

void TreeSwitch::repeat(uint32_t n, const Packet &packet, int verdict) {
    const TreeCopy &copy = copy_of(n, packet);
    if (verdict == INAGG_REPLY)
        tree.send_down(n, packet.block.rank, from(n, reply(copy.state, copy.sum, packet)));
    else if (verdict == INAGG_TELL)
        tree.send_down(n, packet.block.rank, told(n, copy, packet, false));
    else if (verdict == INAGG_SEND_UP && !world.broken(Mutation::one_partial))
        send_partial(n, copy, packet);
}

void TreeSwitch::refuse(uint32_t n, const Packet &packet, uint16_t cap) {
    world.outcome.full++;
    Packet answer = from(n, wait(0, packet));
    answer.window_cap = cap;
    tree.send_down(n, packet.block.rank, answer);
}

void TreeSwitch::finish(uint32_t n, const TreeCopy &copy, const Packet &packet) {
    if (copy.state.flags & INAGG_SLOT_SENT)
        return send_partial(n, copy, packet);
    tree.send_down_to_all(n, from(n, result(copy.state, copy.sum, packet)));
}

void TreeSwitch::contribute(uint32_t n, const Packet &packet) {
    TreeCopy &copy = copy_of(n, packet);
    const uint64_t ranks = ranks_in(packet);
    if (world.broken(Mutation::ignore_seen) && !(copy.state.flags & INAGG_SLOT_COMPLETE))
        copy.state.seen &= ~ranks;
    const int verdict = inagg_tree_contribute(&copy.state, &nodes[n].place, ranks, &packet.block);
    world.trace("switch {}: {:#x} contribute block {:#x}: verdict {}, seen {:#x}", n, ranks, packet.block.block, verdict,
                copy.state.seen);
    world.require(verdict != -INAGG_R_MISMATCH, "block {:#x} of {:#x} disagrees with the others", packet.block.block, ranks);
    if (verdict < 0)
        return;
    fold(verdict & ~INAGG_COMPLETES, copy.sum, packet);
    if (verdict & INAGG_COMPLETES)
        finish(n, copy, packet);
    else
        repeat(n, packet, verdict);
    check_copy(n, copy);
}

Packet TreeSwitch::told(uint32_t n, const TreeCopy &copy, const Packet &packet, bool everyone) const {
    Packet answer = from(n, wait(inagg_tree_seen(&copy.state, &nodes[n].place, &packet.block), packet));
    answer.everyone = everyone;
    return answer;
}

void TreeSwitch::request(uint32_t n, const Packet &packet) {
    TreeCopy &copy = copy_of(n, packet);
    const int verdict = inagg_tree_request(&copy.state, &packet.block, packet.everyone);
    world.trace("switch {}: rank {} requests block {:#x}: verdict {}", n, packet.block.rank, packet.block.block, verdict);
    if (verdict == INAGG_TELL_ALL)
        tree.send_down_to_all(n, told(n, copy, packet, true));
    else if (verdict == INAGG_PASS_UP)
        tree.send_up(n, packet);
    else
        repeat(n, packet, verdict);
}

void TreeSwitch::take(uint32_t n, const Packet &packet) {
    TreeCopy &copy = copy_of(n, packet);
    const bool restore = packet.type == INAGG_RESTORE;
    inagg_block block = packet.block;
    block.contributors = restore ? block.contributors : packet.contributors;
    const int verdict = restore ? inagg_tree_restore(&copy.state, &nodes[n].place, &block)
                                : inagg_tree_result(&copy.state, &nodes[n].place, &block);
    world.trace("switch {}: {} of block {:#x}: verdict {}", n, restore ? "restore" : "result", block.block, verdict);
    if (verdict == INAGG_PASS_UP && !world.broken(Mutation::keep_restore))
        return tree.send_up(n, packet);
    if (verdict < 0 || verdict == INAGG_PASS_UP)
        return world.require(verdict != -INAGG_R_MISMATCH && verdict != -INAGG_R_RANK, "block {:#x} is refused for reason {}",
                             block.block, -verdict);
    world.outcome.restores += restore;
    fold(verdict & ~INAGG_COMPLETES, copy.sum, packet);
    tree.send_down_to_all(n, from(n, result(copy.state, copy.sum, packet)));
    check_copy(n, copy);
}

void TreeSwitch::pass_wait(uint32_t n, const Packet &packet) {
    Packet passed = from(n, packet);
    passed.contributors = inagg_tree_wait(&copy_of(n, packet).state, &packet.block, packet.contributors);
    world.trace("switch {}: passes a WAIT for block {:#x} down: {:#x}", n, packet.block.block, passed.contributors);
    if (packet.everyone)
        tree.send_down_to_all(n, passed);
    else
        tree.send_down(n, packet.block.rank, passed);
}

void TreeSwitch::check_copy(uint32_t n, const TreeCopy &copy) {
    const inagg_slot &slot = copy.state;
    if (!(slot.flags & INAGG_SLOT_LIVE))
        return;
    const bool complete = slot.flags & INAGG_SLOT_COMPLETE, sent = slot.flags & INAGG_SLOT_SENT;
    const inagg_tree &place = nodes[n].place;
    world.require(complete == (slot.seen == job.all), "switch {}: block {:#x}: complete is {} with {:#x} in", n, slot.block,
                  complete, slot.seen);
    world.require(complete || !(slot.seen & ~place.here), "switch {}: block {:#x} names {:#x}, ranks elsewhere", n, slot.block,
                  slot.seen);
    world.require(complete || n == 0 || sent == (slot.seen == place.here), "switch {}: block {:#x}: sent is {} with {:#x} in", n,
                  slot.block, sent, slot.seen);
    if (world.content.is_float(slot.block) && !complete && !sent)
        return; // what is not all of them has no order
    const Payload sum = slot.elements ? copy.sum : Payload{};
    world.require(sum == world.content.sum_of(slot.block, slot.seen), "switch {}: block {:#x}: the slot is not the sum of {:#x}",
                  n, slot.block, slot.seen);
}

std::unique_ptr<Switch> make_tree_switch(World &world) { return std::make_unique<TreeSwitch>(world); }

} // namespace simulation
