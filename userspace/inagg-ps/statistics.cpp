// SPDX-License-Identifier: BSD-2-Clause
#include "statistics.hpp"

#include "counters.hpp"

#include <fmt/format.h>

namespace ps {

using json = nlohmann::ordered_json;

static json row(json job, const inagg_stats &stats) {
    json row = inaggd::counters_json(std::move(job), stats);
    json &reasons = row["reasons"] = json::object();
    for (int reason = 0; reason < INAGG_R_CAPACITY; reason++)
        if (stats.drops[reason])
            reasons[inaggd::reason_name(reason)] = stats.drops[reason];
    return row;
}

json statistics(const Server &server) {
    json rows = json::array();
    server.for_jobs([&](uint16_t number, const inagg_stats &stats) { rows.push_back(row(number, stats)); });
    rows.push_back(row("past", server.past_stats()));
    rows.push_back(row(nullptr, server.no_job_stats()));
    return rows;
}

inaggd::Metrics metrics(const Server &server) {
    std::vector<inaggd::MetricsRow> rows;
    server.for_jobs(
        [&](uint16_t number, const inagg_stats &stats) { rows.push_back({.job = fmt::format("{}", number), .stats = stats}); });
    rows.push_back({.job = "past", .stats = server.past_stats()});
    rows.push_back({.job = "none", .stats = server.no_job_stats()});
    return inaggd::metrics_of(server.book(), rows);
}

} // namespace ps
