// SPDX-License-Identifier: BSD-2-Clause
#include "report.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

namespace inagg::mpi {

namespace {

void add_all(nlohmann::json &sum, const nlohmann::json &more) {
    for (const auto &[name, value] : more.items())
        if (value.is_object())
            add_all(sum.emplace(name, nlohmann::json::object()).first.value(), value);
        else
            sum[name] = sum.value(name, uint64_t{0}) + value.get<uint64_t>();
}

// All ranks' texts, at rank 0.
std::vector<std::string> gather(const std::string &text) {
    int rank, size, length = static_cast<int>(text.size());
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    PMPI_Comm_size(MPI_COMM_WORLD, &size);
    std::vector<int> lengths(rank ? 0 : size), starts(lengths.size());
    PMPI_Gather(&length, 1, MPI_INT, lengths.data(), 1, MPI_INT, 0, MPI_COMM_WORLD);
    std::exclusive_scan(lengths.begin(), lengths.end(), starts.begin(), 0);
    std::string all(std::accumulate(lengths.begin(), lengths.end(), std::size_t{0}), '\0');
    PMPI_Gatherv(text.data(), length, MPI_CHAR, all.data(), lengths.data(), starts.data(), MPI_CHAR, 0, MPI_COMM_WORLD);
    std::vector<std::string> texts;
    for (std::size_t i = 0; i < lengths.size(); i++)
        texts.push_back(all.substr(starts[i], lengths[i]));
    return texts;
}

// "12 (MPI_PROD), 3 (derived type)", the most frequent first.
std::string reasons(const nlohmann::json &left) {
    std::vector<std::pair<uint64_t, std::string>> sorted;
    for (const auto &[why, calls] : left.items())
        sorted.emplace_back(calls.get<uint64_t>(), why);
    std::ranges::sort(sorted, std::greater());
    std::vector<std::string> texts;
    for (const auto &[calls, why] : sorted)
        texts.push_back(fmt::format("{} ({})", calls, why));
    return fmt::format("{}", fmt::join(texts, ", "));
}

} // namespace

void Report::offloaded(int job, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    calls_++;
    offloaded_calls_++;
    offloaded_bytes_ += bytes;
    eligible_bytes_ += bytes;
    jobs_[job].bytes += bytes;
}

void Report::left(std::string_view why) { fell_back(why, 0); }

void Report::fell_back(std::string_view why, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    calls_++;
    eligible_bytes_ += bytes;
    left_[std::string(why)]++;
}

void Report::job_left(int number, inagg_comm *comm) {
    inagg_stats_t stats;
    inagg_get_stats(comm, &stats);
    const std::lock_guard lock(mutex_);
    Job &job = jobs_[number];
    job.members++;
    job.stats.blocks += stats.blocks;
    job.stats.contributions += stats.contributions;
    job.stats.retransmissions += stats.retransmissions;
    transports_[inagg_transport(comm)]++;
}

nlohmann::json Report::own() const {
    const std::lock_guard lock(mutex_);
    nlohmann::json jobs = nlohmann::json::object();
    for (const auto &[number, job] : jobs_)
        jobs[std::to_string(number)] = {{"members", job.members},
                                        {"bytes", job.bytes},
                                        {"blocks", job.stats.blocks},
                                        {"contributions", job.stats.contributions},
                                        {"retransmissions", job.stats.retransmissions}};
    return {{"ranks", 1},
            {"calls", calls_},
            {"offloaded_calls", offloaded_calls_},
            {"offloaded_bytes", offloaded_bytes_},
            {"eligible_bytes", eligible_bytes_},
            {"left", nlohmann::json(left_)},
            {"transports", nlohmann::json(transports_)},
            {"jobs", jobs}};
}

nlohmann::json Report::total() const {
    nlohmann::json total = nlohmann::json::object();
    for (const std::string &text : gather(own().dump()))
        add_all(total, nlohmann::json::parse(text));
    return total;
}

std::string summary(const nlohmann::json &total) {
    const double bytes = total["offloaded_bytes"].get<double>(), eligible = total["eligible_bytes"].get<double>();
    std::string line =
        fmt::format("inagg: {} of {} calls of {} ranks, {:.1f} MiB of {:.1f} MiB eligible "
                    "summed in the switch ({:.0f} %)",
                    total["offloaded_calls"].get<uint64_t>(), total["calls"].get<uint64_t>(), total["ranks"].get<uint64_t>(),
                    bytes / 0x1p20, eligible / 0x1p20, eligible ? 100 * bytes / eligible : 0);
    if (const std::string left = reasons(total["left"]); !left.empty())
        line += "; left to MPI: " + left;
    return line;
}

} // namespace inagg::mpi
