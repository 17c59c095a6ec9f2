// SPDX-License-Identifier: BSD-2-Clause
#include "simulation.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

namespace simulation {

uint64_t Random::next() {
    uint64_t z = state += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

namespace {

uint32_t draw_ranks(Random &random) {
    static constexpr uint32_t usual[] = {1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 7, 8, 16};
    return random.chance(0.002) ? 64 : usual[random.below(std::size(usual))];
}

void draw_tensors(Random &random, Scenario &sc) {
    const uint64_t count = random.between(1, 5);
    for (uint64_t i = 0; i < count; i++)
        sc.tensors.push_back(static_cast<uint32_t>(random.between(1, std::max(4u, 160 / sc.ranks))));
    sc.depth = static_cast<uint32_t>(random.between(1, 4));
    sc.pause = random.chance(0.5) ? 0 : random.below(50 * ms);
}

void draw_network(Random &random, Scenario &sc) {
    static constexpr double losses[] = {0, 0, 0.001, 0.01, 0.05, 0.1, 0.3};
    static constexpr double doubles[] = {0, 0, 0.01, 0.05, 0.3};
    static constexpr double reorders[] = {0, 0, 0.01, 0.1, 0.3};
    sc.loss = losses[random.below(std::size(losses))];
    sc.duplicate = doubles[random.below(std::size(doubles))];
    sc.reorder = reorders[random.below(std::size(reorders))];
    sc.delay = random.between(1 * us, random.chance(0.2) ? 5 * ms : 50 * us);
    sc.jitter = random.below(sc.delay + 1);
    sc.late = random.chance(0.3) ? 400 * ms : 20 * sc.delay; // long enough to outlive many phases
}

void draw_faults(Random &random, Scenario &sc) {
    const uint64_t count = random.chance(0.3) ? 0 : random.below(13);
    const Time span = random.chance(0.5) ? 5 * ms : 500 * ms;
    for (uint64_t i = 0; i < count; i++) {
        static constexpr Fault::Kind kinds[] = {Fault::restart,   Fault::clear_all, Fault::clear_one,
                                                Fault::clear_one, Fault::sleep,     Fault::clear_floor};
        const size_t known = std::size(kinds) - (sc.algorithm != INAGG_TRIO); // only trio has floors
        sc.faults.push_back({kinds[random.below(known)], random.below(span), static_cast<uint32_t>(random.below(sc.ranks)),
                             random.below(random.chance(0.2) ? 2 * s : 20 * ms)});
    }
    if (sc.ranks > 1 && random.chance(0.1)) {
        sc.killed = static_cast<uint32_t>(random.below(sc.ranks));
        sc.faults.push_back({Fault::kill, random.below(span), *sc.killed, 0});
    }
}

// Any tree, of any depth, with ranks at any switch.
void draw_tree(Random &random, Scenario &sc) {
    const uint64_t switches = random.between(sc.algorithm == INAGG_PANAMA ? 1 : 2, 7);
    std::vector<uint32_t> depth(switches);
    sc.parents.push_back(0);
    for (uint64_t n = 1; n < switches; n++) {
        sc.parents.push_back(static_cast<uint32_t>(random.below(n)));
        depth[n] = depth[sc.parents[n]] + 1;
    }
    for (uint32_t r = 0; r < sc.ranks; r++)
        sc.leaf_of.push_back(static_cast<uint32_t>(random.below(switches)));
    for (uint32_t leaf : sc.leaf_of)
        sc.deepest = std::max(sc.deepest, depth[leaf]);
}

inagg_policy draw_policy(Random &random, const Scenario &sc) {
    enum Kind { wait_for_all, expiry, quorum, both };
    static constexpr Kind kinds[] = {wait_for_all, expiry, expiry, quorum, both};
    const Kind kind = kinds[random.below(std::size(kinds))];
    inagg_policy policy{};
    policy.most_open = random.chance(0.2) ? static_cast<uint32_t>(random.between(1, 4)) : 4096;
    if (kind == expiry || kind == both)
        policy.expiry_sweeps = static_cast<uint16_t>(1u << random.below(3));
    if (kind == quorum || kind == both)
        policy.quorum = static_cast<uint16_t>(random.between((sc.ranks + 1) / 2, sc.ranks));
    return policy;
}

// Whatever the ranks are doing: the agent's judgement may be wrong. Often of one that slept or died.
void draw_exclusions(Random &random, Scenario &sc) {
    const size_t faults = sc.faults.size();
    const uint64_t count = random.chance(0.6) ? 0 : random.between(1, std::min(sc.ranks - 1, 3u));
    for (uint64_t i = 0; i < count; i++) {
        const Fault *const before = faults && random.chance(0.7) ? &sc.faults[random.below(faults)] : nullptr;
        const uint32_t any = static_cast<uint32_t>(random.below(sc.ranks));
        sc.faults.push_back({Fault::exclude, (before ? before->at : 0) + random.below(random.chance(0.5) ? 5 * ms : 500 * ms),
                             before ? before->rank : any, 0});
        const Fault excluded = sc.faults.back();
        if (random.chance(0.7))
            sc.faults.push_back(
                {Fault::come_back, excluded.at + random.below(random.chance(0.5) ? 5 * ms : 500 * ms), excluded.rank, 0});
    }
}

void draw_renewals(Random &random, Scenario &sc) {
    const double often = random.chance(0.5) ? 0 : 0.5;
    for (size_t tensor = 1; tensor < sc.tensors.size(); tensor++)
        sc.trio.renewals[tensor] = random.chance(often);
    sc.trio.leftovers = random.chance(0.5) ? 0 : 0.5;
}

void draw_trio(Random &random, Scenario &sc, bool tree) {
    static constexpr Time periods[] = {2 * ms, 5 * ms, 5 * ms, 10 * ms, 20 * ms};
    sc.trio.buckets = 1u << random.below(4);
    sc.trio.policy = draw_policy(random, sc);
    sc.trio.sweep_period = periods[random.below(std::size(periods))];
    sc.trio.clock_base = random.next() >> 8;
    sc.trio.clock_slows = random.chance(0.2) ? 8 : 1;
    sc.trio.lost_ticks = random.chance(0.8) ? 0 : random.chance(0.5) ? 0.5 : 1;
    sc.trio.history = random.chance(0.25) ? sc.slots << random.between(0, 2) : 4096;
    sc.trio.foreign = random.chance(0.3);
    sc.trio.renewals.resize(sc.tensors.size());
    if (sc.ranks > 1 && !tree && !sc.quiet) {
        draw_exclusions(random, sc);
        draw_renewals(random, sc);
    }
}

// Spines die and links fail; one spine never dies for good.
void draw_fabric_faults(Random &random, Scenario &sc) {
    const CanaryScenario &fabric = sc.canary;
    if (!fabric.spines || sc.quiet)
        return;
    const uint64_t count = random.chance(0.5) ? 0 : random.below(6);
    const Time span = random.chance(0.5) ? 5 * ms : 500 * ms;
    const auto survivor = static_cast<uint32_t>(random.below(fabric.spines));
    for (uint64_t i = 0; i < count; i++) {
        const bool link = random.chance(0.5);
        const auto number = static_cast<uint32_t>(random.below(fabric.spines * (link ? fabric.leaves : 1)));
        Time duration = 1 + random.below(random.chance(0.2) ? 2 * s : 20 * ms);
        if (!link && number != survivor && random.chance(0.3))
            duration = 0;
        sc.faults.push_back({link ? Fault::link : Fault::spine, random.below(span), number, duration});
    }
}

void draw_canary(Random &random, Scenario &sc) {
    static constexpr double wanders[] = {0, 0, 0.05, 0.5};
    const Time waits[] = {0, sc.delay / 2, 2 * sc.delay, 10 * sc.delay, 100 * sc.delay};
    CanaryScenario &fabric = sc.canary;
    fabric.leaves = static_cast<uint32_t>(random.between(1, 4));
    if (fabric.leaves > 1 || random.chance(0.2))
        fabric.spines = static_cast<uint32_t>(random.between(1, 4));
    for (uint32_t r = 0; r < sc.ranks; r++)
        sc.leaf_of.push_back(static_cast<uint32_t>(random.below(fabric.leaves)));
    fabric.number = static_cast<uint32_t>(random.below(1000));
    fabric.longest_wait = waits[random.below(std::size(waits))];
    fabric.learns = random.chance(0.25);
    fabric.wanders = wanders[random.below(std::size(wanders))];
    fabric.notices = random.below(random.chance(0.5) ? 1 * ms : 200 * ms);
    fabric.foreign = random.chance(0.3);
    // a question and its answer have up to eight links to go, and elements four more
    sc.deepest = fabric.leaves > 1 ? 2 : 1;
    if (fabric.leaves > 1)
        sc.loss = std::min(sc.loss, 0.2);
    draw_fabric_faults(random, sc);
}

void draw_panama(Random &random, Scenario &sc) {
    static constexpr double stumbles[] = {0, 0, 0.0001, 0.001, 0.01};
    static constexpr double foreigns[] = {0, 0, 0.01, 0.2};
    const Time steps[] = {1, sc.delay / 2 + 1, 2 * sc.delay, 10 * sc.delay};
    sc.panama.longest_step = steps[random.below(std::size(steps))];
    sc.panama.stumbles = stumbles[random.below(std::size(stumbles))];
    sc.panama.foreign = foreigns[random.below(std::size(foreigns))];
    sc.panama.cap = random.chance(0.3) ? 0 : static_cast<uint16_t>(random.between(1, std::max(1u, sc.slots / 4)));
}

// A clean network and one rank that sleeps.
void make_quiet(Random &random, Scenario &sc) {
    sc.quiet = true;
    sc.loss = sc.duplicate = sc.reorder = 0;
    sc.pause = 0;
    sc.delay = std::min(sc.delay, 50 * us);
    sc.jitter = std::min(sc.jitter, sc.delay);
    sc.faults = {
        {Fault::sleep, random.below(1 * ms), static_cast<uint32_t>(random.below(sc.ranks)), random.between(10 * ms, 5 * s)}};
    sc.killed.reset();
}

} // namespace

Scenario make_scenario(Random &random, const Options &options) {
    Scenario sc{};
    sc.algorithm = options.algorithm;
    sc.ranks = options.ranks ? *options.ranks : draw_ranks(random);
    sc.slots = 1u << random.below(4);
    sc.control = random.chance(0.2);
    sc.first_slot = static_cast<uint32_t>(random.between(1, 3));
    const uint32_t periods = static_cast<uint32_t>(random.below(4));
    sc.base = random.chance(0.3) ? 0u - 2 * sc.slots * periods : 0;
    draw_tensors(random, sc);
    draw_network(random, sc);
    draw_faults(random, sc);
    if (sc.ranks > 1 && random.chance(0.05))
        make_quiet(random, sc);
    if (sc.algorithm == INAGG_TRIO)
        draw_trio(random, sc, options.tree);
    if (sc.algorithm == INAGG_CANARY)
        draw_canary(random, sc);
    else if (options.tree)
        draw_tree(random, sc);
    if (sc.algorithm == INAGG_PANAMA)
        draw_panama(random, sc);
    sc.short_frames = random.chance(0.5);
    return sc;
}

std::string Scenario::describe() const {
    static constexpr const char *names[] = {"restart",     "clear-all", "clear-one", "sleep", "kill",
                                            "clear-floor", "exclude",   "come-back", "spine", "link"};
    std::string text =
        fmt::format("{} ranks, {} {} slots, base {:#x}, tensors", ranks, slots, control ? "control" : "data", base);
    for (uint32_t blocks : tensors)
        text += fmt::format(" {}", blocks);
    text += fmt::format(", depth {}, pause {} us, loss {}, duplicate {}, reorder {}, delay {}+{} us, late {} us", depth,
                        pause / us, loss, duplicate, reorder, delay / us, jitter / us, late / us);
    if (algorithm == INAGG_TRIO)
        text += fmt::format("\n  trio: {} buckets, expiry {} sweeps of {} us, quorum {}, most open {}, history {}, "
                            "lost ticks {}{}",
                            trio.buckets, trio.policy.expiry_sweeps, trio.sweep_period / us, trio.policy.quorum,
                            trio.policy.most_open, trio.history, trio.lost_ticks, trio.foreign ? ", beside another job" : "");
    for (size_t tensor = 0; tensor < trio.renewals.size(); tensor++)
        if (trio.renewals[tensor])
            text += fmt::format(", may renew before tensor {}", tensor);
    if (short_frames)
        text += ", results do not fit into questions";
    if (!parents.empty())
        text += fmt::format("\n  tree: parents {}, ranks at {}", fmt::join(parents, " "), fmt::join(leaf_of, " "));
    if (algorithm == INAGG_PANAMA)
        text += fmt::format("\n  panama: steps of {} us, {} of them fail, no buffer {}, cap {}", panama.longest_step / us,
                            panama.stumbles, panama.foreign, panama.cap);
    if (algorithm == INAGG_CANARY)
        text += fmt::format("\n  canary: {} leaves, {} spines, ranks at {}, timers {} us{}, wanders {}, notices after "
                            "{} us{}",
                            canary.leaves, canary.spines, fmt::join(leaf_of, " "), canary.longest_wait / us,
                            canary.learns ? " or as learnt" : "", canary.wanders, canary.notices / us,
                            canary.foreign ? ", beside another job" : "");
    for (const Fault &fault : faults)
        text +=
            fmt::format("\n  at {} us {} rank {} for {} us", fault.at / us, names[fault.kind], fault.rank, fault.duration / us);
    return text;
}

} // namespace simulation
