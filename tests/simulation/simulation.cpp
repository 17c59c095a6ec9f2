// SPDX-License-Identifier: BSD-2-Clause
#include "simulation.hpp"

#include "switch.hpp"
#include "workers.hpp"

#include <algorithm>

namespace simulation {
namespace {

constexpr uint64_t most_events = 20'000'000;

std::unique_ptr<Switch> make_switch(World &world) {
    const bool alone = world.sc.parents.empty();
    if (world.sc.algorithm == INAGG_ATP)
        return make_atp_tree(world);
    if (world.sc.algorithm == INAGG_PANAMA)
        return make_panama_tree(world);
    if (world.sc.algorithm == INAGG_CANARY)
        return make_canary_fabric(world);
    if (world.sc.algorithm == INAGG_TRIO)
        return alone ? make_trio_switch(world) : make_trio_tree(world);
    return alone ? make_switchml_switch(world) : make_tree_switch(world);
}

std::unique_ptr<Workers> make_workers(World &world) {
    switch (world.sc.algorithm) {
    case INAGG_TRIO:
        return make_trio_workers(world);
    case INAGG_CANARY:
        return make_canary_workers(world);
    default:
        return make_switchml_workers(world);
    }
}

class Simulation {
public:
    explicit Simulation(const Options &options) : world(options), the_one(make_switch(world)), workers(make_workers(world)) {}

    Outcome run() {
        world.trace("{}", world.sc.describe());
        workers->start();
        for (uint32_t i = 0; i < world.sc.faults.size(); i++)
            world.schedule(Event::fault, world.sc.faults[i].at, the_switch, i);
        while (!workers->over()) {
            if (world.idle() || world.outcome.events == most_events << world.sc.deepest)
                throw Violation("the run does not end: " + workers->stuck());
            handle(world.next());
        }
        workers->check_end();
        the_one->check_end();
        const bool counts = world.sc.algorithm != INAGG_ATP && world.sc.algorithm != INAGG_PANAMA;
        if (world.sc.quiet && counts && !world.outcome.outrun)
            check_quiet();
        return world.outcome;
    }

private:
    World world;
    std::unique_ptr<Switch> the_one;
    std::unique_ptr<Workers> workers;

    void handle(const Event &event) {
        const uint32_t rank = static_cast<uint32_t>(event.target);
        switch (event.kind) {
        case Event::arrival:
            if (event.target < 0)
                return the_one->receive(event.target, world.take(event));
            return workers->arrive(rank, world.take(event));
        case Event::timer:
            return workers->wake(rank);
        case Event::call:
            return workers->call(rank);
        case Event::fault:
            return strike(world.sc.faults[event.index]);
        default:
            return the_one->handle(event);
        }
    }

    void strike(const Fault &fault) {
        switch (fault.kind) {
        case Fault::restart:
            return the_one->restart();
        case Fault::clear_all:
            return the_one->clear_all();
        case Fault::clear_one:
            return the_one->clear_one();
        case Fault::clear_floor:
            return the_one->clear_floor();
        case Fault::sleep:
            return workers->sleep(fault.rank, fault.duration);
        case Fault::kill:
            return workers->kill(fault.rank);
        case Fault::exclude:
            return world.exclude(fault.rank);
        case Fault::come_back:
            return workers->come_back(fault.rank);
        case Fault::spine:
            return the_one->fail_spine(fault.rank, fault.duration);
        case Fault::link:
            return the_one->fail_link(fault.rank, fault.duration);
        }
    }

    // One rank slept and nothing was lost: for each block of the window every other rank sends its
    // elements and asks a few times. After that a back-off's round costs the order of n packets, not n * n. Blocks that are
    // given up (trio) are waited for one window after the other.
    void check_quiet() {
        const Scenario &sc = world.sc;
        const Outcome &outcome = world.outcome;
        uint64_t rounds = 2 + sc.faults[0].duration / INAGG_RTO_CEILING_NS;
        for (Time wait = INAGG_RTO_FLOOR_NS; wait < std::min<Time>(sc.faults[0].duration, INAGG_RTO_CEILING_NS); wait *= 2)
            rounds++;
        const uint64_t window = outcome.degraded ? outcome.blocks : std::min<uint64_t>(sc.slots, outcome.blocks);
        const uint64_t necessary = outcome.blocks * 2 * sc.ranks;
        const uint64_t hops = sc.algorithm == INAGG_CANARY ? 2 * sc.deepest : std::max<size_t>(sc.parents.size(), 1);
        const uint64_t most = hops * (2 * necessary + window * (12 * sc.ranks + rounds * 4 * (sc.ranks + 1)));
        world.require(outcome.packets <= most, "{} packets for {} blocks of {} ranks while one slept: more than {}",
                      outcome.packets, outcome.blocks, sc.ranks, most);
    }
};

} // namespace

Outcome simulate(const Options &options) { return Simulation(options).run(); }

} // namespace simulation
