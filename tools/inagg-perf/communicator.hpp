// SPDX-License-Identifier: BSD-2-Clause
// The library's C API with exceptions, and small reductions of statistics over all ranks.
#pragma once

#include <inagg/inagg.h>

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace perf {

struct LibraryError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/** Throws what inagg_message() says unless `status` is INAGG_OK. */
void require(int status);

class Communicator {
public:
    /** Joins the job that the environment names. */
    Communicator();
    ~Communicator();
    Communicator(const Communicator &) = delete;
    Communicator &operator=(const Communicator &) = delete;
    /** Leaves the job; throws if that fails. */
    void leave();

    inagg_comm *get() const { return comm_; }
    const inagg_options &options() const { return options_; }
    unsigned rank() const { return inagg_rank(comm_); }
    unsigned size() const { return inagg_size(comm_); }
    const char *transport() const { return inagg_transport(comm_); }
    inagg_stats_t stats() const;

    void barrier() { require(inagg_barrier(comm_)); }
    // Statistics are of all ranks, also where calls leave stragglers out: a barrier cannot carry numbers, but each
    // rank can broadcast its own.
    /** Largest of the ranks' values. */
    double max(double value);
    /** Sums over the ranks, exact. */
    std::vector<uint64_t> sum(const std::vector<uint64_t> &values);
    /** Do all ranks have the same value? */
    bool same(uint64_t value);

private:
    /** Each rank's values. */
    std::vector<std::vector<uint64_t>> gather(const std::vector<uint64_t> &values);

    inagg_options options_;
    inagg_comm *comm_ = nullptr;
};

} // namespace perf
