// SPDX-License-Identifier: BSD-2-Clause
// Flows as data centers have them: sizes of a published distribution, between random hosts, at random times.
#pragma once

#include "host.hpp"

#include <ns3/random-variable-stream.h>

namespace sim {

enum class Sizes { none, websearch, datamining, both };

struct Load {
    Sizes sizes = Sizes::none;
    double share = 0.2;            // of what hosts' links carry, in each direction
    uint64_t largest = 30'000'000; // longer flows are as long as this: a run is shorter than they are
};

struct Finished {
    uint64_t bytes = 0, started_ns = 0, took_ns = 0; // took 0: it has not finished
};

class Workload {
public:
    Workload(const std::vector<Host *> &hosts, const Load &load, uint64_t link_rate, const Transport &transport, uint64_t seed);
    void start();
    // Flows that start before or after are there, but do not count.
    void count_from(uint64_t from_ns, uint64_t until_ns) { from_ns_ = from_ns, until_ns_ = until_ns; }

    const std::vector<Finished> &flows() const { return flows_; }
    bool done() const { return left_ == 0; }

private:
    void arrive();
    void arrived(uint32_t message);
    Sizes pick();
    uint64_t size();

    const std::vector<Host *> hosts_;
    const Load load_;
    const Transport transport_;
    ns3::Ptr<ns3::UniformRandomVariable> random_;
    double gap_ns_ = 0; // between flows, on average
    uint64_t from_ns_ = 0, until_ns_ = never;
    uint32_t next_ = 0, left_ = 0;
    std::vector<Finished> flows_; // that count
    std::unordered_map<uint32_t, size_t> running_;
};

} // namespace sim
