// SPDX-License-Identifier: BSD-2-Clause
#include "counters.hpp"

#include <numeric>

namespace inaggd {
namespace {

constexpr Counter table[] = {
    {"packets", "Intact packets of the job's ranks and switches.", &inagg_stats::packets},
    {"additions", "Contributions folded in: ranks x blocks.", &inagg_stats::additions},
    {"completions", "Blocks completed and multicast.", &inagg_stats::completions},
    {"duplicates", "Contributions that were already in.", &inagg_stats::duplicates},
    {"replies", "Results sent again to one rank.", &inagg_stats::replies},
    {"waits", "WAITs sent.", &inagg_stats::waits},
    {"restores", "Results given back by a rank.", &inagg_stats::restores},
    {"joins", "Joins answered, also with a refusal.", &inagg_stats::joins},
    {"elements", "Elements folded in.", &inagg_stats::elements},
    {"degraded", "Blocks completed without some rank.", &inagg_stats::degraded},
    {"late", "Contributions to a block that was decided without them.", &inagg_stats::late},
    {"recoveries", "Blocks whose record was gone and that all ranks were asked for.", &inagg_stats::recoveries},
    {"expired", "Blocks completed by what adds nothing, like the end of an expiry.", &inagg_stats::expired},
    {"relayed", "In a tree: packets passed to the parent, or results passed down.", &inagg_stats::relayed},
    {"collisions", "atp: contributions whose aggregator another block had.", &inagg_stats::collisions},
    {"partials", "atp: sums sent on before all ranks here were in.", &inagg_stats::partials},
    {"saturated", "atp, the server: blocks that all ranks were asked for as floats.", &inagg_stats::saturated},
};

} // namespace

std::span<const Counter> counters() { return table; }

nlohmann::ordered_json counters_json(nlohmann::ordered_json job, const inagg_stats &stats) {
    nlohmann::ordered_json row = {{"job", std::move(job)}};
    for (const Counter &counter : table)
        row[counter.name] = stats.*counter.value;
    row["drops"] = std::accumulate(std::begin(stats.drops), std::end(stats.drops), uint64_t{0});
    return row;
}

} // namespace inaggd
