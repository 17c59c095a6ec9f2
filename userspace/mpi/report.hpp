// SPDX-License-Identifier: BSD-2-Clause
// What was offloaded, what was not, and why.
#pragma once

#include <inagg/inagg.h>
#include <mpi.h>

#include <nlohmann/json.hpp>

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

namespace inagg::mpi {

// Counters of this rank. Threads may use it at once.
class Report {
public:
    // The switch has done a call of so many bytes, in this job.
    void offloaded(int job, uint64_t bytes);
    // MPI does a call that could not be carried.
    void left(std::string_view why);
    // MPI does a call of so many bytes that could have been carried: it counts as eligible.
    void fell_back(std::string_view why, uint64_t bytes);
    // This rank leaves a job: its transport, and libinagg's counters.
    void job_left(int number, inagg_comm *comm);

    // Those of all ranks, at rank 0 of MPI_COMM_WORLD.
    nlohmann::json total() const;

private:
    struct Job {
        uint64_t bytes = 0, members = 0;
        inagg_stats_t stats{};
    };

    nlohmann::json own() const;

    mutable std::mutex mutex_;
    uint64_t calls_ = 0, offloaded_calls_ = 0, offloaded_bytes_ = 0, eligible_bytes_ = 0;
    std::map<std::string, uint64_t, std::less<>> left_, transports_;
    std::map<int, Job> jobs_; // by number: communicators may have had the same one, one after the other
};

// The line for people.
std::string summary(const nlohmann::json &total);

} // namespace inagg::mpi
