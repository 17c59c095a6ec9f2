// SPDX-License-Identifier: BSD-2-Clause
#include "communicator.hpp"

#include <algorithm>
#include <bit>
#include <functional>
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

std::vector<std::vector<uint64_t>> Communicator::gather(const std::vector<uint64_t> &values) {
    std::vector<std::vector<uint64_t>> all(size(), values);
    for (unsigned root = 0; root < size(); root++)
        require(inagg_broadcast(comm_, all[root].data(), 2 * values.size(), INAGG_INT32, static_cast<uint16_t>(root)));
    return all;
}

double Communicator::max(double value) {
    double largest = value;
    for (const auto &other : gather({std::bit_cast<uint64_t>(value)}))
        largest = std::max(largest, std::bit_cast<double>(other[0]));
    return largest;
}

std::vector<uint64_t> Communicator::sum(const std::vector<uint64_t> &values) {
    std::vector<uint64_t> sums(values.size());
    for (const auto &other : gather(values))
        std::transform(sums.begin(), sums.end(), other.begin(), sums.begin(), std::plus<>());
    return sums;
}

bool Communicator::same(uint64_t value) {
    const auto all = gather({value});
    return std::all_of(all.begin(), all.end(), [&](const auto &other) { return other[0] == value; });
}

} // namespace perf
