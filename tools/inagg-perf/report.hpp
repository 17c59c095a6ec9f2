// SPDX-License-Identifier: BSD-2-Clause
// What rank 0 prints: a table, or one JSON object a line.
#pragma once

#include "arguments.hpp"
#include "communicator.hpp"

#include <cstdint>
#include <optional>

namespace perf {

struct Row {
    Operation operation;
    std::optional<double> time_us, time_mean_us; // maximum over ranks of the median and the mean
    std::optional<uint64_t> wrong, hash;         // with --check; wrong elements summed over ranks
    bool same = true;                            // all ranks have the same hash
    uint64_t retransmissions = 0;                // summed over ranks
    uint64_t degraded = 0;                       // results without some rank, as rank 0 has them
};

class Report {
public:
    Report(const Arguments &args, const Communicator &comm);
    void header() const;
    void row(const Row &row) const;
    /** `totals`: the counters of all ranks, in the order of `names_of_counters`. */
    void counters(const std::vector<uint64_t> &totals, uint64_t wrong) const;

private:
    bool leaves_ranks_out() const;

    const Arguments &args_;
    const Communicator &comm_;
};

inline constexpr const char *names_of_counters[] = {
    "blocks",   "contributions", "retransmissions", "requests", "restores", "duplicates", "rejected", "reboots",
    "degraded", "skipped",       "abstained",       "refused",  "cuts",     "parts",      "reissues", "mismatches"};

/** The counters that names_of_counters names. */
std::vector<uint64_t> counters_of(const inagg_stats_t &stats);

} // namespace perf
