// SPDX-License-Identifier: BSD-2-Clause
// simulate --seeds A..B          run the seeds; stop at the first violation and tell how to replay it
// simulate --seed N --verbose    replay one
// simulate --seeds A..B --mutation NAME   succeed if a seed in the range notices the broken rule
#include "simulation.hpp"

#include <common/words.hpp>
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

using namespace simulation;

namespace {

const std::map<std::string, Mutation> mutations = {
    {"none", Mutation::none},
    {"ignore-seen", Mutation::ignore_seen},
    {"one-copy", Mutation::one_copy},
    {"ignore-block", Mutation::ignore_block},
    {"complete-early", Mutation::complete_early},
    {"no-restore", Mutation::no_restore},
    {"no-resend", Mutation::no_resend},
    {"accept-any-result", Mutation::accept_any_result},
    {"no-put-off", Mutation::no_put_off},
    {"forget-result", Mutation::forget_result},
    {"one-partial", Mutation::one_partial},
    {"keep-restore", Mutation::keep_restore},
    {"answer-stale", Mutation::answer_stale},
    {"keep-overlap", Mutation::keep_overlap},
    {"hold-back", Mutation::hold_back},
    {"hide-whole", Mutation::hide_whole},
    {"merge-overlaps", Mutation::merge_overlaps},
    {"keep-repeats", Mutation::keep_repeats},
    {"count-fixed", Mutation::count_fixed},
    {"as-they-come", Mutation::as_they_come},
    {"mix-turns", Mutation::mix_turns},
    {"keep-lost", Mutation::keep_lost},
    {"wait-for-lost", Mutation::wait_for_lost},
    {"keep-buffers", Mutation::keep_buffers},
    {"keep-places", Mutation::keep_places},
    {"first-come", Mutation::first_come},
    {"never-idle", Mutation::never_idle},
    {"fold-bypass", Mutation::fold_bypass},
    {"silent-leader", Mutation::silent_leader},
    {"all-fresh", Mutation::all_fresh},
    {"ignore-epoch", Mutation::ignore_epoch},
    {"believe-anything", Mutation::believe_anything},
    {"restore-as-all", Mutation::restore_as_all},
    {"evict-open", Mutation::evict_open},
    {"expire-whole", Mutation::expire_whole},
    {"hide-degraded", Mutation::hide_degraded},
    {"touch-by-any", Mutation::touch_by_any},
    {"no-way-kept", Mutation::no_way_kept},
    {"forget-floor", Mutation::forget_floor},
    {"take-excluded", Mutation::take_excluded},
    {"await-excluded", Mutation::await_excluded},
    {"find-floor", Mutation::find_floor},
    {"any-generation", Mutation::any_generation},
    {"keep-records", Mutation::keep_records},
    {"believe-old", Mutation::believe_old},
};

const std::map<std::string, inagg_algorithm> algorithms = {
    {"switchml", INAGG_SWITCHML}, {"trio", INAGG_TRIO}, {"atp", INAGG_ATP}, {"panama", INAGG_PANAMA}, {"canary", INAGG_CANARY}};

std::string name_of(inagg_algorithm algorithm) {
    return std::find_if(algorithms.begin(), algorithms.end(), [&](const auto &row) { return row.second == algorithm; })->first;
}

struct Range {
    uint64_t first = 1, last = 1000;
};

// "A..B" or "A".
Range parse_range(const std::string &text) {
    Range range;
    const size_t dots = text.find("..");
    try {
        range.first = std::stoull(text);
        range.last = dots == std::string::npos ? range.first : std::stoull(text.substr(dots + 2));
    } catch (const std::exception &) {
        throw CLI::ValidationError("--seeds", fmt::format("'{}' is not a range like 1..1000", text));
    }
    if (range.last < range.first)
        throw CLI::ValidationError("--seeds", fmt::format("'{}' ends before it begins", text));
    return range;
}

void accumulate(Outcome &total, const Outcome &one) {
    total.events += one.events;
    total.packets += one.packets;
    total.dropped += one.dropped;
    total.blocks += one.blocks;
    total.restores += one.restores;
    total.degraded += one.degraded;
    total.recoveries += one.recoveries;
    total.refused += one.refused;
    total.late += one.late;
    total.outrun += one.outrun;
    total.excluded += one.excluded;
    total.returned += one.returned;
    total.fallen += one.fallen;
    total.full += one.full;
    total.reissues += one.reissues;
    total.collisions += one.collisions;
    total.stragglers += one.stragglers;
    total.bypasses += one.bypasses;
    total.timers += one.timers;
    total.asked += one.asked;
    total.detours += one.detours;
    total.deaths += one.deaths;
}

// What schedules are to bring about.
struct Sight {
    uint64_t count;
    const char *what;
};

constexpr uint64_t enough_to_see_all = 1000; // seeds

std::vector<Sight> sights_of(const Options &options, const Outcome &total) {
    switch (options.algorithm) {
    case INAGG_TRIO: {
        std::vector<Sight> sights = {{total.degraded, "blocks degraded"},
                                     {total.recoveries, "blocks recovered"},
                                     {total.refused, "contributions refused"},
                                     {total.late, "late contributions"},
                                     {total.outrun, "ranks outran all histories"}};
        if (!options.tree) { // where nobody is excluded
            sights.push_back({total.excluded, "ranks excluded"});
            sights.push_back({total.returned, "ranks taken back"});
        }
        return sights;
    }
    case INAGG_PANAMA:
        return {{total.fallen, "sums lost on their way up"}, {total.full, "packets without a buffer"}};
    case INAGG_CANARY:
        return {{total.reissues, "attempts failed"},
                {total.timers, "sums sent on by timers"},
                {total.collisions, "collisions"},
                {total.stragglers, "stragglers"},
                {total.bypasses, "contributions past all switches"},
                {total.detours, "packets by another spine than their turn's"},
                {total.asked, "results asked for"},
                {total.deaths, "ranks given up, as another was killed"}};
    default:
        return {};
    }
}

} // namespace

int main(int argc, char **argv) {
    CLI::App app("The portable core under seeded schedules of an adversarial network.");
    std::string seeds = "1..1000";
    Options options;
    app.add_option("--seeds", seeds, "Range A..B of seeds")->capture_default_str();
    auto *one = app.add_option("--seed", options.seed, "One seed");
    app.add_option("--algorithm", options.algorithm,
                   "switchml, trio, atp or panama, which are always on a tree, or canary, always on leaves and spines")
        ->transform(inagg::one_of(algorithms));
    app.add_option("--workers", options.ranks, "Ranks of every job, instead of the seed's choice")->check(CLI::Range(1, 64));
    app.add_flag("--tree", options.tree, "Jobs on a random tree of switches");
    app.add_option("--mutation", options.mutation, "Break this rule; succeed if it is noticed")
        ->transform(inagg::one_of(mutations));
    app.add_flag("--verbose", options.verbose, "Print every event");
    Range range;
    try {
        app.parse(argc, argv);
        range = *one ? Range{options.seed, options.seed} : parse_range(seeds);
    } catch (const CLI::ParseError &error) {
        return app.exit(error);
    }

    options.tree |= options.algorithm == INAGG_ATP || options.algorithm == INAGG_PANAMA;
    Outcome total{};
    for (uint64_t seed = range.first; seed <= range.last; seed++) {
        options.seed = seed;
        try {
            accumulate(total, simulate(options));
        } catch (const Violation &violation) {
            fmt::print("seed {}: {}\n", seed, violation.what());
            if (options.mutation != Mutation::none)
                return 0;
            fmt::print("replay: simulate --algorithm {}{} --seed {}{} --verbose\n", name_of(options.algorithm),
                       options.tree ? " --tree" : "", seed, options.ranks ? fmt::format(" --workers {}", *options.ranks) : "");
            return 1;
        }
    }
    fmt::print("{} seeds, {} blocks, {} packets ({} lost), {} restores, {} events: no violation\n", range.last - range.first + 1,
               total.blocks, total.packets, total.dropped, total.restores, total.events);
    const std::vector<Sight> sights = sights_of(options, total);
    for (const Sight &sight : sights)
        fmt::print("  {:>9} {}\n", sight.count, sight.what);
    if (options.mutation != Mutation::none)
        return 1;
    const auto unseen = std::ranges::find(sights, 0U, &Sight::count);
    if (options.ranks || range.last - range.first + 1 < enough_to_see_all || unseen == sights.end())
        return 0;
    fmt::print("no {}: the scenarios leave that out\n", unseen->what);
    return 1;
}
