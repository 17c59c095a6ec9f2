// SPDX-License-Identifier: BSD-2-Clause
// A tree of switches (core/tree.h), each with slots of its own that may vanish by themselves.
#include "switch.hpp"

#include <inagg/core/tree.h>

#include <algorithm>

namespace simulation {
namespace {

struct Copy {
    inagg_slot state;
    Payload sum;
};

struct Node {
    inagg_tree place;
    uint16_t boot = 1;
    std::vector<Copy> memory;
};

class TreeSwitch : public Switch {
public:
    explicit TreeSwitch(World &shared) : Switch(shared), tree(shared), nodes(tree.size()) {
        for (uint32_t n = 0; n < nodes.size(); n++) {
            nodes[n].place = {.here = tree.here(n), .everyone = job.all};
            nodes[n].memory.resize(2 * (job.slots + job.control_slots));
        }
    }

    void receive(int target, const Packet &packet) override {
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

    void restart() override {
        Node &node = any_node();
        world.trace("switch {} restarts", &node - nodes.data());
        node.boot++;
        std::fill(node.memory.begin(), node.memory.end(), Copy{});
    }

    void clear_all() override {
        const bool everywhere = world.random.chance(0.3);
        Node &chosen = any_node();
        world.trace("all slots of {} cleared", everywhere ? "all switches" : "one switch");
        for (Node &node : nodes)
            if (everywhere || &node == &chosen)
                std::fill(node.memory.begin(), node.memory.end(), Copy{});
    }

    void clear_one() override {
        Node &node = any_node();
        node.memory[world.random.below(node.memory.size())] = {};
    }

private:
    const Tree tree;
    std::vector<Node> nodes; // the root comes first

    Node &any_node() { return nodes[tree.any()]; }

    Copy &copy_of(uint32_t n, const Packet &packet) { return nodes[n].memory[packet.slot * 2 + packet.version]; }

    Packet from(uint32_t n, Packet packet) const {
        packet.boot = nodes[n].boot;
        return packet;
    }

    void send_partial(uint32_t n, const Copy &copy, const Packet &cause) {
        Packet partial = from(n, result(copy.state, copy.sum, cause));
        partial.type = INAGG_PARTIAL;
        tree.send_up(n, partial);
    }

    void contribute(uint32_t n, const Packet &packet) {
        Copy &copy = copy_of(n, packet);
        const uint64_t ranks = ranks_in(packet);
        if (world.broken(Mutation::ignore_seen) && !(copy.state.flags & INAGG_SLOT_COMPLETE))
            copy.state.seen &= ~ranks;
        const int verdict = inagg_tree_contribute(&copy.state, &nodes[n].place, ranks, &packet.block);
        world.trace("switch {}: {:#x} contribute block {:#x}: verdict {}, seen {:#x}", n, ranks, packet.block.block,
                    verdict, copy.state.seen);
        world.require(verdict != -INAGG_R_MISMATCH, "block {:#x} of {:#x} disagrees with the others",
                      packet.block.block, ranks);
        if (verdict < 0)
            return;
        fold(verdict & ~INAGG_COMPLETES, copy.sum, packet);
        if (verdict == INAGG_REPLY)
            tree.send_down(n, packet.block.rank, from(n, result(copy.state, copy.sum, packet)));
        else if (verdict == INAGG_TELL)
            tree.send_down(n, packet.block.rank, told(n, copy, packet, false));
        else if (verdict == INAGG_SEND_UP && !world.broken(Mutation::one_partial))
            send_partial(n, copy, packet);
        else if ((verdict & INAGG_COMPLETES) && (copy.state.flags & INAGG_SLOT_SENT))
            send_partial(n, copy, packet);
        else if (verdict & INAGG_COMPLETES)
            tree.send_down_to_all(n, from(n, result(copy.state, copy.sum, packet)));
        check_copy(n, copy);
    }

    Packet told(uint32_t n, const Copy &copy, const Packet &packet, bool everyone) const {
        Packet answer = from(n, wait(inagg_tree_seen(&copy.state, &nodes[n].place, &packet.block), packet));
        answer.everyone = everyone;
        return answer;
    }

    void request(uint32_t n, const Packet &packet) {
        Copy &copy = copy_of(n, packet);
        const int verdict = inagg_tree_request(&copy.state, &packet.block, packet.everyone);
        world.trace("switch {}: rank {} requests block {:#x}: verdict {}", n, packet.block.rank, packet.block.block,
                    verdict);
        if (verdict == INAGG_REPLY)
            tree.send_down(n, packet.block.rank, from(n, result(copy.state, copy.sum, packet)));
        else if (verdict == INAGG_TELL)
            tree.send_down(n, packet.block.rank, told(n, copy, packet, false));
        else if (verdict == INAGG_TELL_ALL)
            tree.send_down_to_all(n, told(n, copy, packet, true));
        else if (verdict == INAGG_PASS_UP)
            tree.send_up(n, packet);
    }

    // A RESTORE from below, or a RESULT from above.
    void take(uint32_t n, Packet packet) {
        Copy &copy = copy_of(n, packet);
        const bool restore = packet.type == INAGG_RESTORE;
        packet.block.contributors = restore ? packet.block.contributors : packet.contributors;
        const int verdict = restore ? inagg_tree_restore(&copy.state, &nodes[n].place, &packet.block)
                                    : inagg_tree_result(&copy.state, &nodes[n].place, &packet.block);
        world.trace("switch {}: {} of block {:#x}: verdict {}", n, restore ? "restore" : "result",
                    packet.block.block, verdict);
        if (verdict == INAGG_PASS_UP && !world.broken(Mutation::keep_restore))
            return tree.send_up(n, packet);
        if (verdict < 0 || verdict == INAGG_PASS_UP)
            return world.require(verdict != -INAGG_R_MISMATCH && verdict != -INAGG_R_RANK,
                                 "block {:#x} is refused for reason {}", packet.block.block, -verdict);
        world.outcome.restores += restore;
        fold(verdict & ~INAGG_COMPLETES, copy.sum, packet);
        tree.send_down_to_all(n, from(n, result(copy.state, copy.sum, packet)));
        check_copy(n, copy);
    }

    void pass_wait(uint32_t n, Packet packet) {
        packet.contributors = inagg_tree_wait(&copy_of(n, packet).state, &packet.block, packet.contributors);
        world.trace("switch {}: passes a WAIT for block {:#x} down: {:#x}", n, packet.block.block, packet.contributors);
        if (packet.everyone)
            tree.send_down_to_all(n, from(n, packet));
        else
            tree.send_down(n, packet.block.rank, from(n, packet));
    }

    // What a copy holds is the sum of the ranks it names, each once: those here, or, with the result, everyone.
    void check_copy(uint32_t n, const Copy &copy) {
        const inagg_slot &slot = copy.state;
        if (!(slot.flags & INAGG_SLOT_LIVE))
            return;
        const bool complete = slot.flags & INAGG_SLOT_COMPLETE, sent = slot.flags & INAGG_SLOT_SENT;
        const inagg_tree &place = nodes[n].place;
        world.require(complete == (slot.seen == job.all), "switch {}: block {:#x}: complete is {} with {:#x} in", n,
                      slot.block, complete, slot.seen);
        world.require(complete || !(slot.seen & ~place.here), "switch {}: block {:#x} names {:#x}, ranks elsewhere", n,
                      slot.block, slot.seen);
        world.require(complete || n == 0 || sent == (slot.seen == place.here),
                      "switch {}: block {:#x}: sent is {} with {:#x} in", n, slot.block, sent, slot.seen);
        const Payload sum = slot.elements ? copy.sum : Payload{};
        world.require(sum == world.content.sum_of(slot.block, slot.seen),
                      "switch {}: block {:#x}: the slot is not the sum of {:#x}", n, slot.block, slot.seen);
    }
};

} // namespace

std::unique_ptr<Switch> make_tree_switch(World &world) { return std::make_unique<TreeSwitch>(world); }

} // namespace simulation
