// SPDX-License-Identifier: BSD-2-Clause
// A tree of switches with records: one decides (trio_switch.cpp), those below it add up (core/combiner.h). Each may
// forget by itself.
#include "switch.hpp"

#include <inagg/core/combiner.h>

#include <algorithm>

namespace simulation {
namespace {

// A switch below the one that decides.
struct Combiner {
    inagg_job job;
    inagg_policy policy;
    Time sweep_period;
    uint16_t boot = 1;
    uint32_t open = 0; // records
    std::vector<inagg_record> records;
    std::vector<Payload> sums; // of each record
    std::vector<inagg_floor> floors;
    std::vector<bool> swept; // buckets whose next sweep is scheduled
};

class TrioTree : public Switch {
public:
    explicit TrioTree(World &shared) : Switch(shared), tree(shared), root(make_trio_switch(shared, &tree)) {
        for (uint32_t n = 0; n < tree.size(); n++)
            nodes.push_back(make_combiner(n));
    }

    void receive(int target, const Packet &packet) override {
        const auto n = static_cast<uint32_t>(the_switch - target);
        if (n == tree.apex())
            return root->receive(the_switch, packet);
        switch (packet.type) {
        case INAGG_CONTRIBUTION:
        case INAGG_PARTIAL:
            return contribute(n, packet);
        case INAGG_RESTORE:
            if (!world.broken(Mutation::keep_restore))
                tree.send_up(n, packet);
            return;
        case INAGG_RESULT:
            return take(n, packet);
        case INAGG_WAIT:
            return pass_wait(n, packet);
        default:
            return request(n, packet);
        }
    }

    void restart() override {
        const uint32_t n = tree.any();
        if (n == tree.apex())
            return root->restart();
        world.trace("switch {} restarts", n);
        nodes[n].boot++;
        forget(n);
    }

    void clear_all() override {
        const bool everywhere = world.random.chance(0.3);
        const uint32_t chosen = tree.any();
        world.trace("all records and floors of {} cleared", everywhere ? "all switches" : "one switch");
        for (uint32_t n = 0; n < tree.size(); n++)
            if (everywhere || n == chosen)
                forget(n);
    }

    void clear_one() override {
        const uint32_t n = tree.any();
        if (n == tree.apex())
            return root->clear_one();
        Combiner &node = nodes[n];
        const auto first = node.records.begin() + static_cast<long>(world.random.below(sc.trio.buckets) * INAGG_WAYS);
        world.trace("switch {}: a bucket is cleared", n);
        std::fill(first, first + INAGG_WAYS, inagg_record{});
        node.open = open_records(node);
    }

    void clear_floor() override {
        const uint32_t n = tree.any();
        if (n == tree.apex())
            return root->clear_floor();
        nodes[n].floors[world.random.below(nodes[n].floors.size())] = {};
    }

    void handle(const Event &event) override {
        if (event.target == the_switch)
            return root->handle(event);
        const auto n = static_cast<uint32_t>(node_events - event.target);
        if (event.kind == Event::sweep)
            sweep(n, event.index);
        else
            tick(n, event.index);
    }

    void check_end() override { root->check_end(); }

private:
    // Sweeps and ticks of switch n are for node_events - n; those of the root, wherever it is, for the_switch.
    static constexpr int node_events = -1000;

    const Tree tree;
    const std::unique_ptr<Switch> root;
    std::vector<Combiner> nodes; // also for those that add nothing

    Combiner make_combiner(uint32_t n) const {
        Combiner node{};
        node.job = job;
        node.job.all = tree.here(n);
        node.job.flags |= INAGG_JOIN_TREE;
        node.boot = 1;
        node.policy = policy_of(n);
        node.sweep_period = std::max<Time>(sc.trio.sweep_period >> tree.depth(n), 1);
        node.records.resize(sc.trio.buckets * INAGG_WAYS);
        node.sums.resize(node.records.size());
        for (uint32_t position = 0; position < job.slots + job.control_slots; position++) {
            node.floors.push_back(inagg_floor_at_start(&job, position));
            if (inagg_stream_of(&job, position) == sc.control)
                node.floors.back().block += sc.base;
        }
        node.swept.resize(sc.trio.buckets);
        return node;
    }

    // Half of the time at each level is here half of the sweep's period.
    inagg_policy policy_of(uint32_t n) const {
        if (n == 0)
            return sc.trio.policy;
        const uint32_t above = tree.parent(n);
        inagg_policy policy = policy_of(above);
        policy.quorum = inagg_quorum_below(policy.quorum, inagg_count_ranks(tree.here(above)), inagg_count_ranks(tree.here(n)));
        return policy;
    }

    void forget(uint32_t n) {
        if (n == tree.apex())
            return root->clear_all();
        std::fill(nodes[n].records.begin(), nodes[n].records.end(), inagg_record{});
        std::fill(nodes[n].floors.begin(), nodes[n].floors.end(), inagg_floor{});
        nodes[n].open = 0;
    }

    static uint32_t open_records(const Combiner &node) {
        return static_cast<uint32_t>(std::count_if(node.records.begin(), node.records.end(),
                                                   [](const inagg_record &r) { return inagg_record_is_open(&r); }));
    }

    uint32_t bucket_of(const inagg_block &b) const { return inagg_bucket_of(job.index, b.stream, b.block, sc.trio.buckets); }
    uint16_t clock() const { return inagg_epoch_of(sc.trio.clock_base + world.now / sc.trio.clock_slows); }

    Packet from(uint32_t n, Packet packet) const {
        packet.boot = nodes[n].boot;
        return packet;
    }

    Packet sum_of(uint32_t n, uint32_t index, const Packet &cause) const {
        const inagg_record &r = nodes[n].records[index];
        Packet packet = from(n, reply(r.slot, nodes[n].sums[index], cause));
        packet.block.epoch = r.epoch;
        packet.degraded = (r.flags & INAGG_RECORD_DEGRADED) != 0;
        return packet;
    }

    void send_partial(uint32_t n, uint32_t index, const Packet &cause) {
        Packet partial = sum_of(n, index, cause);
        partial.type = INAGG_PARTIAL;
        partial.block.whole = (nodes[n].records[index].flags & INAGG_RECORD_WHOLE) != 0 && !world.broken(Mutation::hide_whole);
        world.trace("switch {}: sends {:#x} of block {:#x} up", n, partial.contributors, partial.block.block);
        tree.send_up(n, partial);
    }

    // ---- packets ----

    void contribute(uint32_t n, const Packet &packet) {
        Combiner &node = nodes[n];
        const uint32_t bucket = bucket_of(packet.block) * INAGG_WAYS;
        const uint64_t ranks = ranks_in(packet);
        inagg_block b = packet.block;
        uint32_t way = 0;
        const int found = inagg_record_find(&node.records[bucket], job.index, &b);
        const bool complete = found >= 0 && !inagg_record_is_open(&node.records[bucket + static_cast<uint32_t>(found)]);
        if (complete && world.broken(Mutation::answer_stale))
            b.epoch = 0;
        const int verdict = inagg_combiner_contribute(&node.records[bucket], &node.floors[packet.slot], &node.job, &node.policy,
                                                      node.open, ranks, &b, &way, nullptr);
        const uint32_t index = bucket + way;
        world.trace("switch {}: {:#x} contribute block {:#x} epoch {}: verdict {:#x}", n, ranks, b.block, packet.block.epoch,
                    verdict);
        world.require(verdict > 0, "switch {}: block {:#x} of {:#x} is refused for reason {}", n, b.block, ranks, -verdict);
        if (verdict == INAGG_PASS_UP)
            return tree.send_up(n, packet);
        if (verdict == INAGG_REPLY)
            return tree.send_down(n, b.rank, sum_of(n, index, packet));
        if (verdict == INAGG_TELL)
            return tree.send_down(n, b.rank, told(n, index, packet));
        if (verdict == INAGG_SEND_UP) {
            if (!world.broken(Mutation::one_partial))
                send_partial(n, index, packet);
            return;
        }
        node.open += (verdict & INAGG_OPENS) != 0;
        fold(INAGG_VERDICT(verdict), node.sums[index], packet);
        watch(n, index / INAGG_WAYS);
        if (verdict & INAGG_COMPLETES)
            send_partial(n, index, packet);
        check_record(n, index);
    }

    Packet told(uint32_t n, uint32_t index, const Packet &packet) const {
        return from(n, wait(inagg_combiner_seen(&nodes[n].records[index], &nodes[n].job), packet));
    }

    void request(uint32_t n, const Packet &packet) {
        Combiner &node = nodes[n];
        const uint32_t bucket = bucket_of(packet.block) * INAGG_WAYS;
        int way;
        const int verdict = inagg_combiner_request(&node.records[bucket], &node.job, &packet.block, packet.everyone, &way);
        world.trace("switch {}: rank {} requests block {:#x}: verdict {}", n, packet.block.rank, packet.block.block, verdict);
        if (verdict == INAGG_PASS_UP)
            return tree.send_up(n, packet);
        const uint32_t index = bucket + static_cast<uint32_t>(way);
        if (world.broken(Mutation::hold_back))
            node.records[index].flags &= static_cast<uint8_t>(~INAGG_RECORD_EXPIRED);
        if (verdict == INAGG_REPLY)
            tree.send_down(n, packet.block.rank, sum_of(n, index, packet));
        else
            tree.send_down(n, packet.block.rank, told(n, index, packet));
    }

    void take(uint32_t n, const Packet &packet) {
        Combiner &node = nodes[n];
        const uint32_t bucket = bucket_of(packet.block) * INAGG_WAYS;
        inagg_floor &floor = node.floors[packet.slot];
        inagg_block b = packet.block;
        b.contributors = packet.contributors;
        uint32_t way = 0;
        const int verdict = inagg_combiner_result(&node.records[bucket], &floor, &node.job, &b, &way);
        world.trace("switch {}: result of block {:#x}: verdict {:#x}", n, b.block, verdict);
        world.require(verdict > 0 || verdict == -INAGG_R_DUPLICATE,
                      "switch {}: the result of block {:#x} is refused for reason {}", n, b.block, -verdict);
        if (verdict == INAGG_PASS_DOWN)
            return tree.send_down_to_all(n, from(n, packet));
        if (verdict < 0)
            return;
        node.open -= !(verdict & INAGG_OPENS);
        fold(INAGG_VERDICT(verdict), node.sums[bucket + way], packet);
        check_record(n, bucket + way);
        tree.send_down_to_all(n, sum_of(n, bucket + way, packet));
    }

    void pass_wait(uint32_t n, Packet packet) {
        Combiner &node = nodes[n];
        inagg_record *records = &node.records[bucket_of(packet.block) * INAGG_WAYS];
        inagg_block b = packet.block;
        b.contributors = packet.contributors;
        int closes = 0;
        if (!world.broken(Mutation::keep_overlap) || b.epoch)
            packet.contributors =
                inagg_combiner_wait(records, &node.job, &b, packet.everyone && !world.broken(Mutation::hold_back), &closes);
        node.open -= static_cast<uint32_t>(closes);
        world.trace("switch {}: passes a WAIT for block {:#x} epoch {} down: {:#x}", n, packet.block.block, packet.block.epoch,
                    packet.contributors);
        if (packet.everyone)
            tree.send_down_to_all(n, from(n, packet));
        else
            tree.send_down(n, packet.block.rank, from(n, packet));
    }

    // ---- sweeps ----

    void watch(uint32_t n, uint32_t bucket) {
        Combiner &node = nodes[n];
        if (node.swept[bucket])
            return;
        node.swept[bucket] = true;
        const Time period = node.sweep_period;
        world.schedule(Event::sweep, (world.now / period + 1) * period, node_events - static_cast<int>(n), bucket);
    }

    void sweep(uint32_t n, uint32_t bucket) {
        Combiner &node = nodes[n];
        node.swept[bucket] = false;
        bool more = false;
        for (uint32_t index = bucket * INAGG_WAYS; index < (bucket + 1) * INAGG_WAYS; index++) {
            inagg_record &r = node.records[index];
            const int found = inagg_record_sweep(&r, &node.job, &node.policy, clock());
            world.require(found != INAGG_SWEEP_FREED, "switch {}: a sweep gave block {:#x} up", n, r.slot.block);
            if (found == INAGG_SWEEP_EXPIRED && !world.random.chance(sc.trio.lost_ticks))
                world.schedule(Event::tick, world.now + world.random.below(1 * ms), node_events - static_cast<int>(n), index);
            more |= inagg_record_is_open(&r) && !(r.slot.flags & INAGG_SLOT_SENT);
        }
        if (more)
            watch(n, bucket);
    }

    void tick(uint32_t n, uint32_t index) {
        inagg_record &r = nodes[n].records[index];
        if (inagg_combiner_finish(&r) < 0)
            return;
        Packet cause{};
        cause.block = world.content.meta_of(r.slot.block, static_cast<uint32_t>(__builtin_ctzll(r.slot.seen)));
        cause.version = (r.slot.block & sc.slots) != 0;
        cause.slot = inagg_position_of(&job, r.stream, r.slot.block);
        send_partial(n, index, cause);
    }

    // ---- checks ----

    // What a record holds is the sum of the ranks it names, each once: those here, or, with the result, any.
    void check_record(uint32_t n, uint32_t index) {
        const Combiner &node = nodes[n];
        const inagg_record &r = node.records[index];
        world.require(!(r.slot.seen & ~(inagg_record_is_open(&r) ? node.job.all : job.all)),
                      "switch {}: block {:#x} names {:#x}, ranks elsewhere", n, r.slot.block, r.slot.seen);
        const Payload sum = r.slot.elements ? node.sums[index] : Payload{};
        world.require(sum == world.content.sum_of(r.slot.block, r.slot.seen),
                      "switch {}: block {:#x}: the record is not the sum of {:#x}", n, r.slot.block, r.slot.seen);
        world.require(node.open == open_records(node), "switch {}: {} records are open, not {}", n, open_records(node),
                      node.open);
    }
};

} // namespace

std::unique_ptr<Switch> make_trio_tree(World &world) { return std::make_unique<TrioTree>(world); }

} // namespace simulation
