// SPDX-License-Identifier: BSD-2-Clause
// Job numbers of one MPI application. The first is that of MPI_COMM_WORLD. Of the others each rank has some
// of its own and gives them to the communicators in which it is rank 0, so that nobody has to be asked.
#pragma once

#include "settings.hpp"

#include <mutex>
#include <optional>
#include <set>

namespace inagg::mpi {

class JobNumbers {
public:
    JobNumbers(const Settings &settings, int world_rank, int world_size);

    int of_world() const { return of_world_; }
    // The first of this rank's that is free.
    std::optional<int> take();
    // All ranks have left this job.
    void give_back(int number);

private:
    const int of_world_;
    std::mutex mutex_;
    std::set<int> free_;
};

} // namespace inagg::mpi
