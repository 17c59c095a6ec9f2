// SPDX-License-Identifier: BSD-2-Clause
// A tree of switches that add floats as packets climb core/merge.h's order, between whose steps others come (bpf/panama.h).
#include "tree_switch.hpp"

#include <inagg/core/merge.h>

#include <algorithm>
#include <map>

namespace simulation {
namespace {

// What waits in a slot, beside its lanes, which are the copy's `sum`.
struct Merging {
    inagg_merge merge;
    uint32_t turn = 0;
    bool lost = false;
    bool held = false; // its block is one of those that its switch adds, and the buffers that it may need are promised to it
    Time touched = 0;  // when that was last heard of
    std::map<uint32_t, Payload> buffers;
};

struct Adder {
    std::vector<Merging> memory;
    std::vector<uint64_t> children; // the ranks of each leaf
    uint32_t free;                  // buffers
    uint32_t newest = 0;            // the copy whose block began last
};

// A packet on its way up: its payload is the sum that it carries.
struct Climber {
    uint32_t n;
    Packet packet;
    inagg_climber at;
    uint32_t turn;
    bool has_buffer;
    bool takes_lanes; // it adds them next
};

class PanamaTree : public TreeSwitch {
public:
    explicit PanamaTree(World &shared) : TreeSwitch(shared), adders(nodes.size()) {
        for (uint32_t n = 0; n < adders.size(); n++) {
            adders[n].memory.resize(nodes[n].memory.size());
            adders[n].children = children_of(n);
            adders[n].free = all_buffers(n);
        }
    }

    void handle(const Event &event) override {
        const auto climber = climbers.find(event.index);
        if (climb(climber->second))
            return schedule_step(event.index);
        give_back(climber->second);
        climbers.erase(climber);
    }

    // No buffer is lost, however its block ended.
    void check_end() override {
        for (uint32_t n = 0; n < adders.size(); n++) {
            size_t used = 0;
            for (const Merging &merging : adders[n].memory)
                used += merging.buffers.size();
            for (const auto &[id, climber] : climbers)
                used += climber.n == n && climber.has_buffer;
            world.require(adders[n].free + used == all_buffers(n), "switch {}: {} buffers are free and {} in use, of {}", n,
                          adders[n].free, used, all_buffers(n));
        }
    }

private:
    std::vector<Adder> adders; // of each node
    std::map<uint32_t, Climber> climbers;
    uint32_t last_climber = 0;

    // Ranks at the switch's ports and switches below it, by their lowest ranks.
    std::vector<uint64_t> children_of(uint32_t n) const {
        std::vector<uint64_t> children;
        uint64_t known = 0;
        for (uint32_t r = 0; r < sc.ranks; r++) {
            if (!(tree.here(n) & ~known & inagg_rank_bit(r)))
                continue;
            uint64_t ranks = inagg_rank_bit(r);
            for (uint32_t below = 1; below < tree.size(); below++)
                if (tree.parent(below) == n && (tree.here(below) & inagg_rank_bit(r)))
                    ranks = tree.here(below);
            children.push_back(ranks);
            known |= ranks;
        }
        return children;
    }

    uint32_t leaves(uint32_t n) const { return static_cast<uint32_t>(adders[n].children.size()); }

    uint32_t buffers_of_a_block(uint32_t n) const { return leaves(n) ? inagg_merge_buffers(leaves(n)) - 1 : 0; }

    // So few that blocks which wait in vain are in the way of others (docs/PROTOCOL.md 14.4).
    uint32_t all_buffers(uint32_t n) const { return sc.slots * buffers_of_a_block(n); }

    // Is there memory for another block, if those end that wait in vain or can wait?
    bool has_room(uint32_t n, const Packet &packet) {
        const auto room = [&] { return (blocks_of(n) + 1) * buffers_of_a_block(n) <= all_buffers(n); };
        return room() || (reclaim(n, packet) && room()) || (gives_way(n, packet) && room());
    }

    Merging &merging_of(uint32_t n, const Packet &packet) { return adders[n].memory[key_of(packet)]; }

    bool take_buffer(uint32_t n) {
        if (!adders[n].free || world.random.chance(sc.panama.foreign))
            return false;
        adders[n].free--;
        return true;
    }

    void give_back(Climber &c) {
        adders[c.n].free += c.has_buffer;
        c.has_buffer = false;
    }

    // Frees what waits in vain in the slot's other copy. Was there anything?
    bool reclaim(uint32_t n, const Packet &packet) {
        const uint32_t key = key_of(packet) ^ 1;
        Merging &other = adders[n].memory[key];
        if (!other.held || world.broken(Mutation::keep_buffers) ||
            !inagg_tree_overtaken(&nodes[n].memory[key].state, &packet.block))
            return false;
        end_merge(n, other);
        return true;
    }

    uint32_t blocks_of(uint32_t n) const {
        const auto &memory = adders[n].memory;
        return static_cast<uint32_t>(std::count_if(memory.begin(), memory.end(), [](const Merging &m) { return m.held; }));
    }

    // Who has a place adds, or would but for what was lost.
    void check_places(uint32_t n) const {
        for (uint32_t key = 0; key < adders[n].memory.size(); key++) {
            const inagg_slot &state = nodes[n].memory[key].state;
            world.require(!adders[n].memory[key].held ||
                              ((state.flags & INAGG_SLOT_LIVE) && !(state.flags & (INAGG_SLOT_COMPLETE | INAGG_SLOT_SENT))),
                          "switch {}: block {:#x} has a place and adds nothing", n, state.block);
        }
    }

    bool is_idle(const Merging &merging) const {
        return world.now - merging.touched > INAGG_MERGE_IDLE_NS && !world.broken(Mutation::never_idle);
    }

    void touch(uint32_t n, const Packet &packet) {
        if (inagg_slot_holds(&copy_of(n, packet).state, &packet.block))
            merging_of(n, packet).touched = world.now;
    }

    // Does the block that began last give way to the packet's?
    bool gives_way(uint32_t n, const Packet &packet) {
        const uint32_t key = adders[n].newest;
        Merging &last = adders[n].memory[key];
        if (!last.held || world.broken(Mutation::first_come) ||
            !inagg_tree_gives_way(&nodes[n].memory[key].state, &packet.block, is_idle(last)))
            return false;
        end_merge(n, last);
        return true;
    }

    // The packet's block begins in its slot. May it?
    bool begin_merge(uint32_t n, const Packet &packet) {
        Merging &merging = merging_of(n, packet);
        if (!merging.held && !inagg_merge_allows(sc.panama.cap, blocks_of(n)) && !gives_way(n, packet)) {
            check_places(n);
            refuse(n, packet, sc.panama.cap);
            return false;
        }
        end_merge(n, merging);
        if (!has_room(n, packet)) {
            refuse(n, packet, sc.panama.cap);
            return false;
        }
        merging.held = true;
        adders[n].newest = key_of(packet);
        world.require(!sc.panama.cap || blocks_of(n) <= 2u * sc.panama.cap, "switch {}: {} blocks, and memory for {}", n,
                      blocks_of(n), 2u * sc.panama.cap);
        return true;
    }

    void end_merge(uint32_t n, Merging &merging) {
        merging.held = false;
        adders[n].free += static_cast<uint32_t>(merging.buffers.size());
        merging.buffers.clear();
        merging.merge.waiting = 0;
        merging.lost = false;
        merging.turn++;
    }

    void forget(uint32_t n, uint32_t key) override {
        TreeSwitch::forget(n, key);
        end_merge(n, adders[n].memory[key]);
    }

    void forget_lost(uint32_t n, const Packet &packet) {
        Merging &merging = merging_of(n, packet);
        if (merging.lost && inagg_tree_lose(&copy_of(n, packet).state))
            end_merge(n, merging);
        merging.lost = false;
    }

    // With its result nothing waits any more.
    void take(uint32_t n, const Packet &packet) override {
        TreeSwitch::take(n, packet);
        if ((copy_of(n, packet).state.flags & INAGG_SLOT_COMPLETE) && !world.broken(Mutation::keep_buffers))
            end_merge(n, merging_of(n, packet));
    }

    void request(uint32_t n, const Packet &packet) override {
        forget_lost(n, packet);
        touch(n, packet);
        TreeSwitch::request(n, packet);
    }

    void pass_wait(uint32_t n, const Packet &packet) override {
        if (!world.broken(Mutation::wait_for_lost))
            forget_lost(n, packet);
        touch(n, packet);
        TreeSwitch::pass_wait(n, packet);
    }

    void contribute(uint32_t n, const Packet &packet) override {
        if (!world.content.is_float(packet.block.block) || world.broken(Mutation::as_they_come)) {
            if (inagg_slot_is_new(&copy_of(n, packet).state, &packet.block))
                end_merge(n, merging_of(n, packet));
            return TreeSwitch::contribute(n, packet);
        }
        const std::vector<uint64_t> &children = adders[n].children;
        const uint64_t ranks = ranks_in(packet);
        const auto leaf = static_cast<uint32_t>(std::find(children.begin(), children.end(), ranks) - children.begin());
        world.require(leaf < children.size(), "switch {}: {:#x} are no child's ranks", n, ranks);
        Climber c{.n = n, .packet = packet, .at = {leaf, 0}, .turn = 0, .has_buffer = false, .takes_lanes = false};
        const int verdict = admit(c, ranks);
        world.trace("switch {}: {:#x} contribute block {:#x}: verdict {}", n, ranks, packet.block.block, verdict);
        world.require(verdict != -INAGG_R_MISMATCH, "block {:#x} of {:#x} disagrees with the others", packet.block.block, ranks);
        if (verdict > 0 && verdict <= INAGG_COUNT)
            return begin_climb(c);
        give_back(c);
        repeat(n, packet, verdict);
    }

    int admit(Climber &c, uint64_t ranks) {
        TreeCopy &copy = copy_of(c.n, c.packet);
        Merging &merging = merging_of(c.n, c.packet);
        forget_lost(c.n, c.packet);
        if (inagg_slot_is_new(&copy.state, &c.packet.block) && !begin_merge(c.n, c.packet))
            return -INAGG_R_FULL;
        inagg_slot state = copy.state;
        const int verdict = inagg_tree_admit(&state, ranks, &c.packet.block);
        if (verdict >= 0 && verdict <= INAGG_COUNT && inagg_merge_waits(&merging.merge, c.at.first, leaves(c.n))) {
            c.has_buffer = take_buffer(c.n);
            if (!c.has_buffer) {
                if (inagg_slot_is_new(&copy.state, &c.packet.block))
                    end_merge(c.n, merging);
                world.outcome.full++;
                return -INAGG_R_FULL;
            }
        }
        copy.state = state;
        touch(c.n, c.packet);
        c.turn = merging.turn;
        return verdict;
    }

    void begin_climb(const Climber &c) {
        climbers.emplace(++last_climber, c);
        schedule_step(last_climber);
    }

    void schedule_step(uint32_t id) {
        world.schedule(Event::tick, world.now + 1 + world.random.below(sc.panama.longest_step), the_switch, id);
    }

    // Does the slot still wait for what climbs?
    bool is_awaited(const Climber &c, const TreeCopy &copy, const Merging &merging) const {
        return (merging.turn == c.turn || world.broken(Mutation::mix_turns)) &&
               (!merging.lost || world.broken(Mutation::keep_lost)) && inagg_tree_is_adding(&copy.state, &c.packet.block);
    }

    // One step up. May there be another?
    bool climb(Climber &c) {
        TreeCopy &copy = copy_of(c.n, c.packet);
        Merging &merging = merging_of(c.n, c.packet);
        if (c.takes_lanes)
            add(c, copy.sum); // whatever they hold by now
        c.takes_lanes = false;
        if (world.random.chance(sc.panama.stumbles)) { // another holds the lock
            lose(c, merging);
            return false;
        }
        if (!is_awaited(c, copy, merging))
            return false;
        uint32_t index = 0;
        switch (inagg_merge_climb(&merging.merge, &c.at, leaves(c.n), &index)) {
        case INAGG_CLIMB_DONE:
            complete(c, copy, merging);
            return false;
        case INAGG_CLIMB_WAIT:
            leave(c, copy, merging, index);
            return false;
        default:
            take_sum(c, merging, index);
            return true;
        }
    }

    void lose(const Climber &c, Merging &merging) {
        world.trace("switch {}: {:#x} lost of block {:#x}", c.n, ranks_in(c.packet), c.packet.block.block);
        merging.lost = true;
        world.outcome.fallen++;
    }

    void add(Climber &c, const Payload &sum) { c.packet.payload.add(sum); }

    void complete(const Climber &c, TreeCopy &copy, Merging &merging) {
        inagg_tree_added(&copy.state, &nodes[c.n].place);
        copy.sum = c.packet.payload;
        if (!world.broken(Mutation::keep_places))
            end_merge(c.n, merging);
        world.trace("switch {}: block {:#x} is added", c.n, c.packet.block.block);
        check_copy(c.n, copy);
        finish(c.n, copy, c.packet);
    }

    // The sum waits for its sibling; now and then it does not get there.
    void leave(Climber &c, TreeCopy &copy, Merging &merging, uint32_t index) {
        Payload left = c.packet.payload;
        if (world.random.chance(sc.panama.stumbles)) {
            lose(c, merging);
            left = {};
        }
        if (index == 0) {
            copy.sum = left;
            return;
        }
        world.require(c.has_buffer, "switch {}: a sum of block {:#x} has no buffer to wait in", c.n, c.packet.block.block);
        const bool is_new = merging.buffers.emplace(index, left).second;
        world.require(is_new, "switch {}: buffer {} of block {:#x} is in use", c.n, index, c.packet.block.block);
        c.has_buffer = false;
    }

    // Its sibling's sum is the climber's to add, with the buffer that it lies in.
    void take_sum(Climber &c, Merging &merging, uint32_t index) {
        c.takes_lanes = index == 0;
        if (c.takes_lanes)
            return;
        const auto taken = merging.buffers.extract(index);
        world.require(!taken.empty(), "switch {}: nothing waits in buffer {} of block {:#x}", c.n, index, c.packet.block.block);
        give_back(c);
        c.has_buffer = true;
        add(c, taken.mapped());
    }
};

} // namespace

std::unique_ptr<Switch> make_panama_tree(World &world) { return std::make_unique<PanamaTree>(world); }

} // namespace simulation
