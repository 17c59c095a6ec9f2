// SPDX-License-Identifier: BSD-2-Clause
#include "job.hpp"

#include <ns3/simulator.h>

namespace sim {
namespace {

constexpr uint16_t generation = 3;
constexpr uint32_t control_slots = 8;

} // namespace

uint64_t now_ns() { return static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds()); }

void Job::prepare() {
    core.index = number;
    core.slots = slots;
    core.control_slots = control_slots;
    core.generation = generation;
    core.size = static_cast<uint16_t>(size());
    core.elements = elements;
    core.algorithm = algorithm;
}

inagg_block Job::block(uint32_t number_of_block) const {
    inagg_block b{};
    b.block = number_of_block;
    b.generation = generation;
    b.elements = elements;
    b.dtype_op = INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM;
    return b;
}

uint32_t Job::unit(uint32_t block) const { return (block * 2654435761u + number * 40503u) | 1; }

Elements Job::contribution(uint32_t block, uint32_t rank) const { return {unit(block) * (2 * rank + 1), 1}; }

// The first n odd numbers are n * n together.
Elements Job::sum(uint32_t block) const { return {unit(block) * size() * size(), size()}; }

void fold(int verdict, Elements &sum, const Elements &more) {
    const int action = INAGG_VERDICT(verdict);
    if (action == INAGG_STORE)
        sum = more;
    for (size_t i = 0; action == INAGG_ADD && i < sum.size(); i++)
        sum[i] += more[i];
}

} // namespace sim
