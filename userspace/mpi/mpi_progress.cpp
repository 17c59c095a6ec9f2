// SPDX-License-Identifier: BSD-2-Clause
#include "mpi_progress.hpp"

#include <chrono>

namespace inagg::mpi {

using namespace std::chrono_literals;

namespace {

constexpr auto period = 1ms; // most calls of the switch are over before

} // namespace

MpiProgress::MpiProgress(MPI_Comm world) : world_(world), thread_([this] { run(); }) {}

MpiProgress::~MpiProgress() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_one();
    thread_.join();
}

void MpiProgress::run() {
    std::unique_lock lock(mutex_);
    while (!wake_.wait_for(lock, period, [this] { return stopping_; })) {
        int found;
        if (waiting_ > 0)
            PMPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, world_, &found, MPI_STATUS_IGNORE);
    }
}

} // namespace inagg::mpi
