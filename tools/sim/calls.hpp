// SPDX-License-Identifier: BSD-2-Clause
// What a job does: an allreduce, a while of computing, the next allreduce.
#pragma once

#include "job.hpp"

#include <functional>

namespace sim {

struct Plan {
    uint32_t iterations = 1;
    uint64_t compute_ns = 0; // between them
    std::function<uint64_t(uint32_t rank, uint32_t iteration)> late =
        {}; // how much longer a straggler computes; empty: none does
};

// The calls of all ranks of a job, and how long each took: from when the first rank calls until the last one
// has its result.
class Calls {
public:
    struct Span {
        uint64_t from_ns = never, until_ns = 0;
        uint32_t done = 0;
    };

    Calls(uint32_t ranks, Plan plan) : plan_(std::move(plan)), ranks_(ranks) {}

    uint32_t ranks() const { return ranks_; }
    const std::vector<Span> &spans() const { return spans_; }
    bool is_whole(const Span &span) const { return span.done == ranks_; }
    bool done() const { return spans_.size() == plan_.iterations && is_whole(spans_.back()); }
    bool has(uint32_t iteration) const { return iteration < plan_.iterations; }

    // In ns from now: when `rank` calls for the iteration.
    uint64_t compute_ns(uint32_t rank, uint32_t iteration) const;
    void began(uint32_t iteration);
    void ended(uint32_t iteration);

private:
    const Plan plan_;
    const uint32_t ranks_;
    std::vector<Span> spans_;
};

// A rank's calls. Each ends when all its parts have, a tree each.
class Caller {
public:
    using Part = std::function<void()>; // begins one

    Caller(Calls &calls, uint32_t rank) : calls_(calls), rank_(rank) {}
    void add(Part part) { parts_.push_back(std::move(part)); }
    void start();
    void part_done();

private:
    void call();

    Calls &calls_;
    const uint32_t rank_;
    std::vector<Part> parts_;
    uint32_t iteration_ = 0, left_ = 0;
};

} // namespace sim
