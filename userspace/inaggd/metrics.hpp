// SPDX-License-Identifier: BSD-2-Clause
// What a switch counts, for Prometheus.
#pragma once

#include "job_book.hpp"

#include <prometheus/metric_family.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

struct pollfd;

namespace prometheus {
class Exposer;
}

namespace inaggd {

using Metrics = std::vector<prometheus::MetricFamily>;

// Counters of one job, or of packets that belong to none.
struct MetricsRow {
    std::string job; // its number, or what stands for it
    inagg_stats stats;
    std::optional<inagg_attendance> attendance{}; // of a job that does not wait for stragglers
};

// The rows' counters, and what the book says of the jobs and of the switch.
Metrics metrics_of(const JobBook &book, const std::vector<MetricsRow> &rows);

// Answers scrapes of http://ADDRESS:PORT/metrics. Its threads only carry text: metrics are collected by whoever calls
// serve(), and no one else needs to know of threads.
class MetricsServer {
public:
    // `where`: as http_address() leaves it. Threads that it starts have the signals blocked that the caller has.
    MetricsServer(const std::string &where, std::function<Metrics()> collect);
    ~MetricsServer();
    // A descriptor to wait for, and what to do when it is readable; otherwise it does nothing.
    int fd() const;
    void serve();

private:
    class Desk;

    std::function<Metrics()> collect_;
    std::shared_ptr<Desk> desk_;
    std::unique_ptr<prometheus::Exposer> exposer_;
};

} // namespace inaggd
