// SPDX-License-Identifier: BSD-2-Clause
#include "job.hpp"

#include <inagg/core/float32.h>

#include <ns3/simulator.h>

#include <bit>

namespace sim {
namespace {

constexpr uint16_t generation = 3;
constexpr uint32_t control_slots = 8;

} // namespace

uint64_t now_ns() { return static_cast<uint64_t>(ns3::Simulator::Now().GetNanoSeconds()); }

void Job::prepare() {
    core.index = number;
    core.first_slot = number * (slots + control_slots);
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
    b.dtype_op = static_cast<uint8_t>((is_float() ? INAGG_WIRE_FLOAT32 : INAGG_WIRE_INT32) << 4 | INAGG_WIRE_SUM);
    return b;
}

// Floats are small whole numbers: their sums are exact in whatever order.
Elements Job::elements_of(uint32_t units, uint32_t ranks, uint32_t block) const {
    const uint32_t unit = (block * 2654435761u + number * 40503u) | 1;
    if (!is_float())
        return {unit * units, ranks};
    return {std::bit_cast<uint32_t>(static_cast<float>((unit >> 29) * units)),
            std::bit_cast<uint32_t>(static_cast<float>(ranks))};
}

Elements Job::contribution(uint32_t block, uint32_t rank) const { return elements_of(2 * rank + 1, 1, block); }

// The first n odd numbers are n * n together.
Elements Job::sum(uint32_t block) const { return elements_of(size() * size(), size(), block); }

Elements Job::sum_of(uint32_t block, uint64_t ranks) const {
    uint32_t units = 0;
    for (uint64_t left = ranks; left; left &= left - 1)
        units += 2 * inagg_lowest_rank(left) + 1;
    return elements_of(units, inagg_count_ranks(ranks), block);
}

Elements add_floats(const Elements &a, const Elements &b) {
    Elements sum;
    for (size_t i = 0; i < sum.size(); i++)
        sum[i] = inagg_float32_add(a[i], b[i]);
    return sum;
}

void fold(int verdict, Elements &sum, const Elements &more) {
    const int action = INAGG_VERDICT(verdict);
    if (action == INAGG_STORE)
        sum = more;
    for (size_t i = 0; action == INAGG_ADD && i < sum.size(); i++)
        sum[i] += more[i];
}

} // namespace sim
