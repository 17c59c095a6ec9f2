// SPDX-License-Identifier: BSD-2-Clause
// Leaves and spines with a few descriptors each (core/descriptor.h), on the way to leaders, which are ranks.
#include "fabric.hpp"
#include "switch.hpp"

#include <inagg/core/descriptor.h>
#include <inagg/core/leader.h>
#include <inagg/core/ways.h>

#include <algorithm>

namespace simulation {
namespace {

struct Descriptor {
    inagg_descriptor state{};
    Payload sum;
    uint64_t came = 0; // as the simulator has seen
};

struct Node {
    inagg_job job; // as this switch knows it
    uint16_t boot = 1;
    inagg_patience patience{};
    std::vector<Descriptor> descriptors;
};

// A timer that was started. It fires whatever has become of its descriptor.
struct Timer {
    uint32_t node;
    Packet of; // what the sum that it sends looks like
};

// To whom a result goes.
struct Children {
    uint64_t ranks = 0;
    uint8_t ups = 0;
};

// Whose block a descriptor holds, and has no result yet.
struct Waiting {
    uint32_t block = 0;
    uint64_t ranks = 0;
};

class CanaryFabric : public Switch {
public:
    explicit CanaryFabric(World &shared) : Switch(shared), fabric(shared), nodes(fabric.size()) {
        for (uint32_t n = 0; n < nodes.size(); n++) {
            nodes[n].job = job;
            nodes[n].job.all = fabric.here(n);
            nodes[n].descriptors.resize(1u << world.random.below(5));
            fill(n);
        }
    }

    void receive(int target, const Packet &packet) override {
        const auto n = static_cast<uint32_t>(the_switch - target);
        if (!fabric.carries(n, packet))
            return;
        Packet arrived = packet;
        arrived.block.stream = sc.control;
        check_admission(n, arrived);
        switch (packet.type) {
        case INAGG_CONTRIBUTION:
        case INAGG_PARTIAL:
            return contribute(n, arrived);
        case INAGG_REQUEST:
            return forward(n, leader_of(packet), packet);
        case INAGG_RESULT:
            return packet.everyone ? spread_result(n, arrived) : forward(n, packet.block.rank, packet);
        case INAGG_BLOCK_FAILED:
            return packet.everyone ? spread_failure(n, packet) : forward(n, packet.block.rank, packet);
        case INAGG_WAIT:
            return forward(n, packet.block.rank, packet);
        default:
            world.require(false, "switch {} gets a packet of type {}", n, packet.type);
        }
    }

    void handle(const Event &event) override {
        const Timer timer = timers[event.index];
        free_timers.push_back(event.index);
        if (!fabric.is_dead(timer.node))
            expire(timer.node, timer.of);
    }

    void restart() override { restart(fabric.any()); }

    void clear_all() override {
        const bool everywhere = world.random.chance(0.3);
        const uint32_t chosen = fabric.any();
        for (uint32_t n = 0; n < nodes.size(); n++)
            if (everywhere || n == chosen)
                forget(n);
    }

    void clear_one() override {
        const uint32_t n = fabric.any();
        const uint64_t index = world.random.below(nodes[n].descriptors.size());
        world.trace("switch {}: descriptor {} cleared", n, index);
        nodes[n].descriptors[index] = {};
    }

    void fail_spine(uint32_t spine, Time duration) override {
        world.trace("spine {} dies for {} us", spine, duration / us);
        fabric.fail_spine(spine, duration);
        restart(sc.canary.leaves + spine);
    }

    void fail_link(uint32_t link, Time duration) override {
        world.trace("link {} fails for {} us", link, duration / us);
        fabric.fail_link(link, duration);
    }

private:
    Fabric fabric;
    std::vector<Node> nodes;
    std::vector<Timer> timers;
    std::vector<uint32_t> free_timers;

    uint32_t leader_of(const Packet &packet) const { return inagg_leader_of(sc.ranks, packet.slot); }

    void restart(uint32_t n) {
        world.trace("switch {} restarts", n);
        nodes[n].boot++;
        forget(n);
    }

    void forget(uint32_t n) {
        world.trace("switch {} forgets", n);
        std::fill(nodes[n].descriptors.begin(), nodes[n].descriptors.end(), Descriptor{});
        nodes[n].patience = {};
        fill(n);
    }

    // Another job's blocks are first.
    void fill(uint32_t n) {
        for (Descriptor &d : nodes[n].descriptors)
            if (sc.canary.foreign && world.random.chance(0.3)) {
                d.state.slot.flags = INAGG_SLOT_LIVE;
                d.state.slot.block = sc.base;
                d.state.slot.generation = job.generation;
                d.state.job = static_cast<uint8_t>(job.index + 1);
                d.state.stream = sc.control;
                d.state.opened_ns = world.now;
            }
    }

    // Another job's, which may still need it.
    bool is_others(const Descriptor &d) const {
        return (d.state.slot.flags & INAGG_SLOT_LIVE) && d.state.job != job.index &&
               world.now - d.state.opened_ns < INAGG_DESCRIPTOR_STALE_NS;
    }

    // Those of whom only this descriptor may know.
    Waiting who_waits(const Descriptor &d) const {
        if (!(d.state.slot.flags & INAGG_SLOT_LIVE) || d.state.job != job.index ||
            world.now - d.state.opened_ns >= INAGG_DESCRIPTOR_STALE_NS)
            return {};
        const auto have = world.accepted.find(d.state.slot.block);
        return {d.state.slot.block, d.came & ~(have == world.accepted.end() ? 0 : have->second)};
    }

    Descriptor &descriptor_of(uint32_t n, const Packet &packet, uint16_t attempt) {
        std::vector<Descriptor> &all = nodes[n].descriptors;
        const auto count = static_cast<uint32_t>(all.size());
        return all[inagg_descriptor_index(&job, sc.canary.number, packet.slot, &packet.block, attempt, count, count)];
    }

    Packet from(uint32_t n, Packet packet) const {
        packet.boot = nodes[n].boot;
        return packet;
    }

    void forward(uint32_t n, uint32_t rank, const Packet &packet) { fabric.forward(n, rank, from(n, packet)); }

    // ---- on the way to the leader ----

    void contribute(uint32_t n, Packet &packet) {
        const uint32_t leader = leader_of(packet);
        if (packet.bypass && !world.broken(Mutation::fold_bypass))
            return forward(n, leader, packet);
        Descriptor &d = descriptor_of(n, packet, packet.block.epoch);
        inagg_arrival arrival{};
        arrival.ranks = ranks_in(packet);
        arrival.expected = fabric.expected(n, leader);
        arrival.now_ns = world.now;
        arrival.up = static_cast<uint8_t>(fabric.from_above(n, packet) ? 1u << fabric.up_of(packet) : 0);
        break_rules(n, d, packet, arrival.ranks);
        const bool others = is_others(d);
        const Waiting waiting = who_waits(d);
        const int verdict = inagg_descriptor_contribute(&d.state, &nodes[n].job, &arrival, &packet.block);
        world.trace("switch {}: {:#x} contribute block {:#x} attempt {}: verdict {:#x}", n, arrival.ranks, packet.block.block,
                    packet.block.epoch, verdict);
        world.require(verdict > 0 || verdict == -INAGG_R_STALE || verdict == -INAGG_R_DUPLICATE,
                      "switch {} refuses block {:#x} of {:#x} for reason {}", n, packet.block.block, arrival.ranks, -verdict);
        world.require(!others || is_others(d), "switch {}: block {:#x} takes another job's descriptor", n, packet.block.block);
        world.require(verdict < 0 || !(verdict & INAGG_OPENS) || !waiting.ranks,
                      "switch {}: block {:#x} takes the descriptor of block {:#x}, whose result {:#x} have yet to get", n,
                      packet.block.block, waiting.block, waiting.ranks);
        if (verdict > 0)
            take(n, d, packet, arrival, verdict);
    }

    void break_rules(uint32_t n, Descriptor &d, Packet &packet, uint64_t ranks) const {
        inagg_descriptor &state = d.state;
        if (world.broken(Mutation::ignore_block) && inagg_descriptor_is_jobs(&state, &nodes[n].job, &packet.block) &&
            inagg_same_copy(&job, &packet.block, state.slot.block)) {
            packet.block.block = state.slot.block;
            packet.block.epoch = state.attempt;
            packet.block.scale = state.slot.scale;
        }
        if (world.broken(Mutation::merge_overlaps) && inagg_descriptor_holds(&state, &nodes[n].job, &packet.block)) {
            state.slot.seen &= ~ranks;
            state.children &= ~ranks;
        }
    }

    void take(uint32_t n, Descriptor &d, const Packet &packet, const inagg_arrival &arrival, int verdict) {
        const int action = INAGG_VERDICT(verdict);
        if (verdict & INAGG_OPENS)
            d.came = 0;
        if (action == INAGG_COLLIDES || action == INAGG_EVADES)
            return evade(n, packet, action == INAGG_COLLIDES);
        world.require(!packet.bypass, "switch {}: block {:#x} of {:#x} is summed though it is to pass", n, packet.block.block,
                      arrival.ranks);
        d.came |= arrival.ranks;
        fold(action, d.sum, packet);
        check(n, d);
        if (action == INAGG_PASS_UP) {
            world.outcome.stragglers += d.state.late;
            return forward(n, leader_of(packet), packet);
        }
        if (verdict & INAGG_OPENS)
            start_timer(n, packet);
        if (verdict & INAGG_COMPLETES)
            send_sum(n, d, packet);
    }

    void evade(uint32_t n, Packet packet, bool collides) {
        world.outcome.collisions += collides;
        packet.bypass = true;
        forward(n, leader_of(packet), packet);
    }

    void send_sum(uint32_t n, const Descriptor &d, const Packet &cause) {
        Packet partial = result(d.state.slot, d.sum, cause);
        partial.type = INAGG_PARTIAL;
        partial.block.scale = d.state.slot.scale;
        partial.block.contributors = d.state.slot.seen;
        forward(n, leader_of(cause), partial);
    }

    // A timer may be late, or be that of an earlier time that the block was here.
    void start_timer(uint32_t n, const Packet &packet) {
        Time wait = world.random.below(sc.canary.longest_wait + 1);
        if (sc.canary.learns && world.random.chance(0.9))
            wait = inagg_patience_ns(&nodes[n].patience);
        uint32_t index = static_cast<uint32_t>(timers.size());
        if (free_timers.empty()) {
            timers.push_back({n, packet});
        } else {
            index = free_timers.back();
            free_timers.pop_back();
            timers[index] = {n, packet};
        }
        world.schedule(Event::sweep, world.now + wait, switch_target(n), index);
    }

    void expire(uint32_t n, const Packet &of) {
        Descriptor &d = descriptor_of(n, of, of.block.epoch);
        if (!inagg_descriptor_expire(&d.state, &nodes[n].job, &of.block))
            return;
        world.trace("switch {}: time is up for {:#x} of block {:#x}", n, d.state.slot.seen, of.block.block);
        world.outcome.timers++;
        Packet cause = of;
        cause.repeated = true;
        cause.block.rank = static_cast<uint16_t>(inagg_lowest_rank(d.state.slot.seen));
        send_sum(n, d, cause);
    }

    // ---- what the leader says ----

    // Who has come for the packet's block: nobody needs to know it from now on.
    Children collect(uint32_t n, const Packet &packet) {
        Children all;
        inagg_block block = packet.block;
        for (uint16_t attempt = 0; attempt <= packet.block.epoch; attempt++) {
            Descriptor &d = descriptor_of(n, packet, attempt);
            block.epoch = attempt;
            if (!inagg_descriptor_free(&d.state, &nodes[n].job, &block))
                continue;
            all.ranks |= d.state.children;
            all.ups |= d.state.ups;
            inagg_patience_learn(&nodes[n].patience, &d.state);
        }
        return all;
    }

    void spread_result(uint32_t n, const Packet &packet) {
        const uint64_t here = fabric.here(n);
        uint64_t named = packet.contributors;
        Children to = collect(n, packet);
        if (packet.bypass) // another copy is for the others who have come
            to.ranks = 0;
        if (fabric.from_above(n, packet)) {
            named &= here;
            to.ups = 0;
        } else if (sc.canary.spines && fabric.is_leaf(n) && world.random.chance(sc.canary.wanders)) {
            return share_out(n, packet, to.ranks | named); // the ways by which they have come are bad
        } else if ((named & ~here) && !to.ups) {
            to.ups = any_up(n, packet);
        }
        Packet word = from(n, packet);
        word.contributors = (to.ranks & here) | named;
        spread_up(n, word, to.ups);
        spread_down(n, word);
    }

    // By ways that are good, or that are said to be; each copy is for those only whom it names.
    void share_out(uint32_t n, const Packet &packet, uint64_t named) {
        inagg_ways ways{};
        inagg_copies copies{};
        for (__u64 &bad : ways.bad)
            bad = world.random.next() & job.all;
        if (const uint32_t live = fabric.live_spines(n))
            inagg_ways_share(&ways, live, packet.slot % sc.canary.spines, named & ~fabric.here(n), &copies);
        Packet word = from(n, packet);
        word.bypass = true;
        for (uint32_t spine = 0; spine < sc.canary.spines; spine++)
            if (word.contributors = copies.ranks[spine]; word.contributors)
                fabric.send_up(n, spine, word);
        word.contributors = named;
        spread_down(n, word);
    }

    void spread_failure(uint32_t n, const Packet &packet) {
        const uint64_t elsewhere = job.all & ~fabric.here(n) & ~packet.contributors;
        const Packet word = from(n, packet);
        if (elsewhere && !fabric.from_above(n, packet))
            spread_up(n, word, any_up(n, packet));
        spread_down(n, word);
    }

    uint8_t any_up(uint32_t n, const Packet &packet) const {
        const auto spine = sc.canary.spines ? fabric.choose_up(n, packet) : std::nullopt;
        return static_cast<uint8_t>(spine ? 1u << *spine : 0);
    }

    // Whom no descriptor knows, the first of them is to find.
    void spread_up(uint32_t n, const Packet &word, uint8_t ups) {
        uint64_t elsewhere = job.all & ~fabric.here(n);
        for (uint32_t spine = 0; spine < sc.canary.spines; spine++) {
            if (!(ups >> spine & 1))
                continue;
            Packet copy = word;
            if (word.type == INAGG_RESULT)
                copy.contributors &= elsewhere;
            elsewhere = 0;
            fabric.send_up(n, spine, copy);
        }
    }

    void spread_down(uint32_t n, const Packet &word) {
        const uint64_t leader = inagg_rank_bit(leader_of(word));
        if (fabric.is_leaf(n)) {
            for (uint32_t r = 0; r < sc.ranks; r++)
                if (fabric.is_here(n, r) && inagg_rank_bit(r) != leader && is_for(word, inagg_rank_bit(r)))
                    fabric.send_to_rank(n, r, addressed(word, job.all));
            return;
        }
        for (uint32_t leaf = 0; leaf < sc.canary.leaves; leaf++)
            if (!(fabric.here(leaf) & leader) && is_for(word, fabric.here(leaf)))
                fabric.send_to_leaf(n, leaf, addressed(word, word.contributors & fabric.here(leaf)));
    }

    // A result names those who get it, a failure those who need not.
    static bool is_for(const Packet &word, uint64_t ranks) {
        return ranks & (word.type == INAGG_RESULT ? word.contributors : ~word.contributors);
    }

    static Packet addressed(Packet word, uint64_t named) {
        if (word.type == INAGG_RESULT)
            word.contributors = named;
        return word;
    }

    // ---- checks ----

    // Honest packets are admitted, and come from where their ranks or their leader are.
    void check_admission(uint32_t n, const Packet &packet) {
        const int refused = inagg_job_admits(&job, &packet.block, packet.slot,
                                             packet.block.elements * inagg_element_bytes(packet.block.dtype_op >> 4));
        world.require(!refused, "an honest packet is refused for reason {}", -refused);
        world.require(packet.block.epoch <= INAGG_CANARY_ATTEMPTS, "attempt {} at block {:#x}", packet.block.epoch,
                      packet.block.block);
        const uint32_t leader = leader_of(packet);
        const uint64_t behind = fabric.behind(n, packet.from);
        if (packet.type == INAGG_RESULT || packet.type == INAGG_WAIT || packet.type == INAGG_BLOCK_FAILED) {
            world.require(behind & inagg_rank_bit(leader), "switch {}: not the leader's word on block {:#x}", n,
                          packet.block.block);
            return;
        }
        world.require(!fabric.from_above(n, packet) || fabric.is_here(n, leader), "switch {}: block {:#x} would go up again", n,
                      packet.block.block);
        if (packet.type != INAGG_REQUEST)
            check_sum(n, packet, leader, behind);
    }

    void check_sum(uint32_t n, const Packet &packet, uint32_t leader, uint64_t may) {
        const uint64_t ranks = ranks_in(packet);
        world.require(ranks && !(ranks & ~may) && !(ranks & inagg_rank_bit(leader)),
                      "switch {}: who sends it may not speak for {:#x}", n, ranks);
        world.require((packet.block.elements ? packet.payload : Payload{}) == world.content.sum_of(packet.block.block, ranks),
                      "switch {}: block {:#x}: what comes is not the sum of {:#x}", n, packet.block.block, ranks);
    }

    void check(uint32_t n, const Descriptor &d) {
        const inagg_slot &slot = d.state.slot;
        world.require(d.state.children == d.came, "switch {}: block {:#x}: {:#x} came, the descriptor says {:#x}", n, slot.block,
                      d.came, d.state.children);
        world.require(!(slot.seen & ~d.came), "switch {}: block {:#x}: {:#x} never came", n, slot.block, slot.seen & ~d.came);
        world.require((slot.elements ? d.sum : Payload{}) == world.content.sum_of(slot.block, slot.seen),
                      "switch {}: block {:#x}: the descriptor is not the sum of {:#x}", n, slot.block, slot.seen);
    }
};

} // namespace

std::unique_ptr<Switch> make_canary_fabric(World &world) { return std::make_unique<CanaryFabric>(world); }

} // namespace simulation
