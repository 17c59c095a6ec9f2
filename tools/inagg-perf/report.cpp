// SPDX-License-Identifier: BSD-2-Clause
#include "report.hpp"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include <cstdio>
#include <string>
#include <string_view>

namespace perf {
namespace {

using Json = nlohmann::ordered_json;

// Bits that cross each worker's link per bit of tensor in the best algorithm without a switch, as in
// nccl-tests, so that numbers compare.
double bus_factor(Collective collective, unsigned ranks) {
    return collective == Collective::allreduce ? 2.0 * (ranks - 1) / ranks : 1.0;
}

template <typename Value> Json or_null(const std::optional<Value> &value) { return value ? Json(*value) : Json(); }

std::string text(const std::optional<double> &value) { return value ? fmt::format("{:.2f}", *value) : "-"; }

void print(const std::string &line) {
    fmt::print("{}\n", line);
    std::fflush(stdout);
}

} // namespace

bool Report::leaves_ranks_out() const { return std::string_view(comm_.options().algorithm) == "trio"; }

Report::Report(const Arguments &args, const Communicator &comm) : args_(args), comm_(comm) {}

void Report::header() const {
    if (args_.json)
        return;
    const char *note = inagg_transport_note(comm_.get());
    print(fmt::format("# inagg-perf {} {}: {} workers, {} over {}{}{}, {} in flight", inagg_version(), name_of(args_.collective),
                      comm_.size(), comm_.options().algorithm, comm_.transport(), *note ? ": " : "", note, args_.inflight));
    print(fmt::format("#{:>11} {:>11} {:>9} {:>4} {:>12} {:>10} {:>10} {:>7}{}  {:<16}", "size", "count", "type", "op", "time",
                      "algbw", "busbw", "wrong", leaves_ranks_out() ? "  degraded" : "", "hash"));
    print(fmt::format("#{:>11} {:>11} {:>9} {:>4} {:>12} {:>10} {:>10}", "(B)", "(elements)", "", "", "(us)", "(Gbit/s)",
                      "(Gbit/s)"));
}

void Report::row(const Row &row) const {
    const auto &[dtype, op, count] = row.operation;
    size_t bytes = count * element_bytes(dtype);
    std::optional<double> algbw, busbw;
    if (row.time_us && *row.time_us > 0) {
        algbw = bytes * 8 / *row.time_us / 1e3;
        busbw = *algbw * bus_factor(args_.collective, comm_.size());
    }
    std::string hash = row.hash ? fmt::format("{:016x}", *row.hash) : "-";
    if (!args_.json) {
        print(fmt::format("{:>12} {:>11} {:>9} {:>4} {:>12} {:>10} {:>10} {:>7}{}  {:<16}{}", bytes, count, name_of(dtype),
                          name_of(op), text(row.time_us), text(algbw), text(busbw), row.wrong ? std::to_string(*row.wrong) : "-",
                          leaves_ranks_out() ? fmt::format("{:>10}", row.degraded) : "", hash, row.same ? "" : "  RANKS DIFFER"));
        return;
    }
    Json object = {{"collective", name_of(args_.collective)},
                   {"size", bytes},
                   {"count", count},
                   {"dtype", name_of(dtype)},
                   {"op", name_of(op)},
                   {"algorithm", comm_.options().algorithm},
                   {"transport", comm_.transport()},
                   {"workers", comm_.size()},
                   {"inflight", args_.inflight},
                   {"in_place", args_.in_place},
                   {"iterations", args_.iterations},
                   {"time_us", or_null(row.time_us)},
                   {"time_mean_us", or_null(row.time_mean_us)},
                   {"algbw_gbps", or_null(algbw)},
                   {"busbw_gbps", or_null(busbw)},
                   {"wrong", or_null(row.wrong)},
                   {"hash", row.hash ? Json(hash) : Json()},
                   {"same", row.hash ? Json(row.same) : Json()},
                   {"retransmissions", row.retransmissions}};
    if (leaves_ranks_out())
        object["degraded_blocks"] = row.degraded;
    print(object.dump());
}

void Report::counters(const std::vector<uint64_t> &totals, uint64_t wrong) const {
    Json object;
    for (size_t i = 0; i < totals.size(); i++)
        object[names_of_counters[i]] = totals[i];
    if (args_.json) {
        print(Json{{"counters", object}, {"workers", comm_.size()}, {"wrong", args_.check ? Json(wrong) : Json()}}.dump());
        return;
    }
    std::string line;
    for (size_t i = 0; i < totals.size(); i++)
        line += fmt::format("{}{} {}", i ? ", " : "", names_of_counters[i], totals[i]);
    print("# all ranks: " + line);
    if (args_.check)
        print(fmt::format("# wrong elements: {}", wrong));
}

std::vector<uint64_t> counters_of(const inagg_stats_t &stats) {
    return {stats.blocks,   stats.contributions, stats.retransmissions, stats.requests,  stats.restores,  stats.duplicates,
            stats.rejected, stats.reboots,       stats.degraded,        stats.skipped,   stats.abstained, stats.refused,
            stats.cuts,     stats.parts,         stats.reissues,        stats.mismatches};
}

} // namespace perf
