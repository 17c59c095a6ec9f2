// SPDX-License-Identifier: BSD-2-Clause
#include "counters.hpp"

#include <numeric>

namespace inaggd {
namespace {

struct Counter {
    const char *name;
    __u64 inagg_stats::*value;
};

constexpr Counter counters[] = {
    {"packets", &inagg_stats::packets},         {"additions", &inagg_stats::additions},
    {"completions", &inagg_stats::completions}, {"duplicates", &inagg_stats::duplicates},
    {"replies", &inagg_stats::replies},         {"waits", &inagg_stats::waits},
    {"restores", &inagg_stats::restores},       {"joins", &inagg_stats::joins},
    {"elements", &inagg_stats::elements},       {"degraded", &inagg_stats::degraded},
    {"late", &inagg_stats::late},               {"recoveries", &inagg_stats::recoveries},
    {"expired", &inagg_stats::expired},         {"relayed", &inagg_stats::relayed},
    {"collisions", &inagg_stats::collisions},   {"partials", &inagg_stats::partials},
    {"saturated", &inagg_stats::saturated},
};

} // namespace

nlohmann::ordered_json counters_json(nlohmann::ordered_json job, const inagg_stats &stats) {
    nlohmann::ordered_json row = {{"job", std::move(job)}};
    for (const Counter &counter : counters)
        row[counter.name] = stats.*counter.value;
    row["drops"] = std::accumulate(std::begin(stats.drops), std::end(stats.drops), uint64_t{0});
    return row;
}

} // namespace inaggd
