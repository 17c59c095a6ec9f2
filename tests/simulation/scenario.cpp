// SPDX-License-Identifier: BSD-2-Clause
#include "scenario.hpp"

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
        static constexpr Fault::Kind kinds[] = {Fault::restart, Fault::clear_all, Fault::clear_one,
                                                Fault::clear_one, Fault::sleep};
        sc.faults.push_back({kinds[random.below(std::size(kinds))], random.below(span),
                             static_cast<uint32_t>(random.below(sc.ranks)),
                             random.below(random.chance(0.2) ? 2 * s : 20 * ms)});
    }
    if (sc.ranks > 1 && random.chance(0.1)) {
        sc.killed = static_cast<uint32_t>(random.below(sc.ranks));
        sc.faults.push_back({Fault::kill, random.below(span), *sc.killed, 0});
    }
}

// A clean network and one rank that sleeps.
void make_quiet(Random &random, Scenario &sc) {
    sc.quiet = true;
    sc.loss = sc.duplicate = sc.reorder = 0;
    sc.pause = 0;
    sc.delay = std::min(sc.delay, 50 * us);
    sc.jitter = std::min(sc.jitter, sc.delay);
    sc.faults = {{Fault::sleep, random.below(1 * ms), static_cast<uint32_t>(random.below(sc.ranks)),
                  random.between(10 * ms, 5 * s)}};
    sc.killed.reset();
}

} // namespace

Scenario make_scenario(Random &random, std::optional<uint32_t> ranks) {
    Scenario sc{};
    sc.ranks = ranks ? *ranks : draw_ranks(random);
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
    return sc;
}

std::string Scenario::describe() const {
    static constexpr const char *names[] = {"restart", "clear-all", "clear-one", "sleep", "kill"};
    std::string text = fmt::format("{} ranks, {} {} slots, base {:#x}, tensors", ranks, slots,
                                   control ? "control" : "data", base);
    for (uint32_t blocks : tensors)
        text += fmt::format(" {}", blocks);
    text +=
        fmt::format(", depth {}, pause {} us, loss {}, duplicate {}, reorder {}, delay {}+{} us, late {} us",
                    depth, pause / us, loss, duplicate, reorder, delay / us, jitter / us, late / us);
    for (const Fault &fault : faults)
        text += fmt::format("\n  at {} us {} rank {} for {} us", fault.at / us, names[fault.kind], fault.rank,
                            fault.duration / us);
    return text;
}

} // namespace simulation
