// SPDX-License-Identifier: BSD-2-Clause
// Switches with a few aggregators (core/aggregator.h) that may vanish by themselves, in a tree whose root is a server.
#include "switch.hpp"

#include <inagg/core/aggregator.h>
#include <inagg/core/raw.h>

#include <algorithm>

namespace simulation {
namespace {

struct Aggregator {
    inagg_aggregator state;
    Payload sum;
};

struct Node {
    inagg_job job; // as this switch knows it
    uint16_t boot = 1;
    std::vector<Aggregator> aggregators;
};

// What the server keeps of a block.
struct Copy {
    inagg_slot state;
    Payload sum;
};

class AtpTree : public Switch {
public:
    explicit AtpTree(World &shared)
        : Switch(shared), tree(shared), nodes(tree.size()), server(2 * (job.slots + job.control_slots)) {
        for (uint32_t n = 0; n < nodes.size(); n++) {
            nodes[n].job = job;
            nodes[n].job.all = tree.here(n);
            nodes[n].aggregators.resize(1u << world.random.below(5));
        }
    }

    void receive(int target, const Packet &packet) override {
        const auto n = static_cast<uint32_t>(the_switch - target);
        Packet arrived = packet;
        arrived.block.stream = sc.control;
        if (n == 0)
            return serve(arrived);
        switch (packet.type) {
        case INAGG_CONTRIBUTION:
        case INAGG_PARTIAL:
            return aggregate(n, arrived);
        case INAGG_REQUEST:
            return tree.send_up(n, packet);
        case INAGG_RESULT:
            for (Aggregator *a : set_of(n, packet.block.block))
                inagg_aggregator_result(&a->state, &nodes[n].job, &arrived.block, tick());
            return pass_down(n, packet);
        case INAGG_WAIT:
            return pass_down(n, packet);
        default: // a RESTORE: nobody needs it
            return;
        }
    }

    // The server's jobs would end with it.
    void restart() override {
        Node &node = nodes[tree.any()];
        world.trace("switch {} restarts", &node - nodes.data());
        node.boot += &node != nodes.data();
        std::fill(node.aggregators.begin(), node.aggregators.end(), Aggregator{});
    }

    void clear_all() override {
        for (Node &node : nodes)
            std::fill(node.aggregators.begin(), node.aggregators.end(), Aggregator{});
    }

    void clear_one() override {
        Node &node = nodes[tree.any()];
        node.aggregators[world.random.below(node.aggregators.size())] = {};
    }

private:
    const Tree tree;
    std::vector<Node> nodes; // the server comes first
    std::vector<Copy> server;

    uint32_t tick() const { return static_cast<uint32_t>(world.now >> INAGG_AGGREGATOR_TICK_SHIFT); }

    // Mostly what all ranks would choose, but nothing may depend on that.
    std::vector<Aggregator *> set_of(uint32_t n, uint32_t block) {
        std::vector<Aggregator> &all = nodes[n].aggregators;
        const uint32_t index = world.random.chance(0.02) ? static_cast<uint32_t>(world.random.next()) : block % sc.slots;
        std::vector<Aggregator *> set;
        for (uint32_t way = 0; way < std::min<size_t>(INAGG_AGGREGATOR_WAYS, all.size()); way++)
            set.push_back(&all[(index ^ way) % all.size()]);
        return set;
    }

    // The best one. But what CPUs see of them at one moment may differ.
    Aggregator &aggregator_of(uint32_t n, const inagg_block &block) {
        const std::vector<Aggregator *> set = set_of(n, block.block);
        if (world.random.chance(0.02))
            return *set[world.random.below(set.size())];
        return **std::ranges::max_element(
            set, {}, [&](const Aggregator *a) { return inagg_aggregator_fit(&a->state, &nodes[n].job, &block, tick()); });
    }

    Packet from(uint32_t n, Packet packet) const {
        packet.boot = nodes[n].boot;
        return packet;
    }

    void pass_down(uint32_t n, const Packet &packet) {
        packet.everyone ? tree.send_down_to_all(n, from(n, packet)) : tree.send_down(n, packet.block.rank, from(n, packet));
    }

    void aggregate(uint32_t n, const Packet &packet) {
        Aggregator &a = aggregator_of(n, packet.block);
        const uint64_t ranks = ranks_in(packet);
        const bool repeated = packet.repeated && !world.broken(Mutation::keep_repeats);
        if (world.broken(Mutation::merge_overlaps)) {
            a.state.slot.seen &= ~ranks;
            a.state.gone &= ~ranks;
        }
        const int verdict =
            inagg_aggregator_contribute(&a.state, &nodes[n].job, ranks, &packet.block, repeated ? INAGG_F_RESEND : 0, tick());
        const int action = verdict < 0 ? verdict : verdict & ~INAGG_COMPLETES;
        world.trace("switch {}: {:#x} contribute block {:#x}: verdict {}", n, ranks, packet.block.block, verdict);
        if (verdict < 0)
            return;
        if (action == INAGG_PASS_UP || action == INAGG_COLLIDES)
            return tree.send_up(n, packet);
        fold(action, a.sum, packet);
        check(fmt::format("switch {}", n), a.state.slot, a.sum);
        if (action != INAGG_SEND_UP && !(verdict & INAGG_COMPLETES))
            return;
        Packet partial = from(n, result(a.state.slot, a.sum, packet));
        partial.type = INAGG_PARTIAL;
        partial.repeated = a.state.marks & INAGG_F_RESEND;
        tree.send_up(n, partial);
    }

    void serve(const Packet &packet) {
        Copy &copy = server[packet.slot * 2 + packet.version];
        if (packet.type == INAGG_CONTRIBUTION || packet.type == INAGG_PARTIAL)
            return add(copy, packet);
        if (packet.type != INAGG_REQUEST)
            return;
        const int verdict = inagg_slot_request(&copy.state, &packet.block, packet.everyone);
        if (verdict == INAGG_REPLY)
            reply(copy, packet, false);
        else if (verdict > 0)
            tell(copy, packet, verdict == INAGG_TELL_ALL);
    }

    void add(Copy &copy, const Packet &packet) {
        const uint64_t ranks = ranks_in(packet);
        if (world.broken(Mutation::ignore_seen) && !(copy.state.flags & INAGG_SLOT_COMPLETE))
            copy.state.seen &= ~ranks;
        inagg_block block = packet.block;
        if (world.broken(Mutation::count_fixed) && inagg_raw_holds(&copy.state, &block))
            block.dtype_op = INAGG_RAW_DTYPE_OP;
        const int verdict = inagg_raw_contribute(&copy.state, job.all, ranks, &block);
        world.trace("server: {:#x} contribute block {:#x}: verdict {}, seen {:#x}", ranks, packet.block.block, verdict,
                    copy.state.seen);
        world.require(verdict != -INAGG_R_MISMATCH, "block {:#x} of {:#x} disagrees with the others", packet.block.block, ranks);
        world.require(verdict != -INAGG_R_UNSOLICITED, "floats of block {:#x} that nobody has asked for", packet.block.block);
        if (verdict < 0)
            return;
        fold(verdict & ~INAGG_COMPLETES, copy.sum, packet);
        if (verdict == INAGG_TELL_ALL)
            copy.sum = {};
        check("server", copy.state, copy.sum);
        if (verdict == INAGG_REPLY)
            reply(copy, packet, false);
        else if (verdict == INAGG_TELL || verdict == INAGG_TELL_ALL)
            tell(copy, packet, verdict == INAGG_TELL_ALL);
        else if (verdict & INAGG_COMPLETES)
            reply(copy, packet, true);
    }

    void tell(const Copy &copy, const Packet &packet, bool everyone) {
        Packet answer = wait(inagg_slot_seen(&copy.state, &packet.block), packet);
        answer.raw = inagg_raw_holds(&copy.state, &packet.block);
        send(answer, everyone);
    }

    void reply(const Copy &copy, const Packet &packet, bool everyone) { send(result(copy.state, copy.sum, packet), everyone); }

    // From the server.
    void send(const Packet &packet, bool everyone) {
        Packet answer = from(0, packet);
        answer.everyone = everyone;
        everyone ? tree.send_down_to_all(0, answer) : tree.send_down(0, packet.block.rank, answer);
    }

    // What is there is the sum of the ranks that it names, each once.
    void check(const std::string &who, const inagg_slot &slot, const Payload &sum) {
        world.require((slot.elements ? sum : Payload{}) ==
                          world.content.sum_of(slot.block, slot.seen, slot.flags & INAGG_SLOT_RAW),
                      "{}: block {:#x}: this is not the sum of {:#x}", who, slot.block, slot.seen);
    }
};

} // namespace

std::unique_ptr<Switch> make_atp_tree(World &world) { return std::make_unique<AtpTree>(world); }

} // namespace simulation
