// SPDX-License-Identifier: BSD-2-Clause
#include "job_numbers.hpp"

namespace inagg::mpi {

JobNumbers::JobNumbers(const Settings &settings, int world_rank, int world_size)
    : of_world_(static_cast<int>(settings.first_job)) {
    const int trees = settings.trees, end = of_world_ + static_cast<int>(settings.jobs);
    for (int number = of_world_ + (1 + world_rank) * trees; number + trees <= end; number += world_size * trees)
        free_.insert(number);
}

std::optional<int> JobNumbers::take() {
    const std::lock_guard lock(mutex_);
    if (free_.empty())
        return std::nullopt;
    return free_.extract(free_.begin()).value();
}

void JobNumbers::give_back(int number) {
    const std::lock_guard lock(mutex_);
    free_.insert(number);
}

} // namespace inagg::mpi
