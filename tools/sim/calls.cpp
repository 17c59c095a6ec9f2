// SPDX-License-Identifier: BSD-2-Clause
#include "calls.hpp"

#include <ns3/simulator.h>

#include <algorithm>

namespace sim {

uint64_t Calls::compute_ns(uint32_t rank, uint32_t iteration) const {
    const uint64_t late = plan_.late ? plan_.late(rank, iteration) : 0;
    return late + (iteration ? plan_.compute_ns : 0);
}

void Calls::began(uint32_t iteration) {
    if (spans_.size() <= iteration)
        spans_.resize(iteration + 1);
    spans_[iteration].from_ns = std::min(spans_[iteration].from_ns, now_ns());
}

void Calls::ended(uint32_t iteration) {
    spans_[iteration].done++;
    spans_[iteration].until_ns = now_ns();
}

void Caller::start() { ns3::Simulator::Schedule(ns3::NanoSeconds(calls_.compute_ns(rank_, iteration_)), &Caller::call, this); }

void Caller::call() {
    calls_.began(iteration_);
    left_ = static_cast<uint32_t>(parts_.size());
    for (const Part &part : parts_)
        part();
}

void Caller::part_done() {
    if (--left_)
        return;
    calls_.ended(iteration_);
    if (calls_.has(++iteration_))
        start();
}

} // namespace sim
