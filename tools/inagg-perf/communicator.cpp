// SPDX-License-Identifier: BSD-2-Clause
#include "communicator.hpp"

#include <utility>

namespace perf {

void require(int status) {
    if (status != INAGG_OK)
        throw LibraryError(inagg_message());
}

Communicator::Communicator() {
    require(inagg_options_from_env(&options_));
    require(inagg_join(&options_, &comm_));
}

Communicator::~Communicator() { inagg_leave(comm_); }

void Communicator::leave() { require(inagg_leave(std::exchange(comm_, nullptr))); }

inagg_stats_t Communicator::stats() const {
    inagg_stats_t stats;
    inagg_get_stats(comm_, &stats);
    return stats;
}

double Communicator::max(double value) {
    auto mine = static_cast<float>(value), largest = 0.0f;
    require(inagg_allreduce(comm_, &mine, &largest, 1, INAGG_FLOAT32, INAGG_MAX));
    return largest;
}

std::vector<uint64_t> Communicator::sum(const std::vector<uint64_t> &values) {
    constexpr int limbs = 4; // 16 bits each: sums over 64 ranks stay within int32
    std::vector<int32_t> parts;
    for (uint64_t value : values)
        for (int limb = 0; limb < limbs; limb++)
            parts.push_back(static_cast<int32_t>(value >> (16 * limb) & 0xffff));
    require(inagg_allreduce(comm_, parts.data(), parts.data(), parts.size(), INAGG_INT32, INAGG_SUM));
    std::vector<uint64_t> sums(values.size());
    for (size_t i = 0; i < parts.size(); i++)
        sums[i / limbs] += static_cast<uint64_t>(parts[i]) << (16 * (i % limbs));
    return sums;
}

bool Communicator::same(uint64_t value) {
    const int32_t halves[2] = {static_cast<int32_t>(value), static_cast<int32_t>(value >> 32)};
    int32_t low[2], high[2];
    require(inagg_allreduce(comm_, halves, low, 2, INAGG_INT32, INAGG_MIN));
    require(inagg_allreduce(comm_, halves, high, 2, INAGG_INT32, INAGG_MAX));
    return low[0] == high[0] && low[1] == high[1];
}

} // namespace perf
