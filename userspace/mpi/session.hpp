// SPDX-License-Identifier: BSD-2-Clause
// The time between MPI_Init and MPI_Finalize.
#pragma once

#include "job_numbers.hpp"
#include "mpi_progress.hpp"
#include "offload.hpp"
#include "report.hpp"
#include "settings.hpp"

#include <mpi.h>

#include <map>
#include <memory>
#include <mutex>

namespace inagg::mpi {

class Session {
public:
    // After MPI_Init; collective over MPI_COMM_WORLD. A bad setting aborts the program.
    static void begin(int thread_level);
    // The one that offloads calls; null before it begins, after its end and where nothing is offloaded.
    static Session *current();

    // That of @comm, made when it is first asked for.
    Offload &offload(MPI_Comm comm);

    const Settings &settings() const { return settings_; }
    MpiProgress &progress() { return *progress_; }
    // A copy of MPI_COMM_WORLD without its attributes.
    MPI_Comm world() const { return world_; }
    JobNumbers &numbers() { return *numbers_; }
    // Tags for MPI_Comm_create_group that no other communicator of the application has.
    int next_tag();
    Report &report() { return report_; }

private:
    explicit Session(const Settings &settings);
    // Callbacks of attributes that are deleted.
    static int end(MPI_Comm, int, void *, void *);
    static int forget(MPI_Comm, int, void *offload, void *);
    void agree();
    void print_report() const;

    Settings settings_;
    MPI_Comm world_ = MPI_COMM_NULL;
    int rank_ = 0, size_ = 0, keyval_ = MPI_KEYVAL_INVALID;
    std::unique_ptr<JobNumbers> numbers_;
    Report report_;
    std::unique_ptr<MpiProgress> progress_; // while calls are offloaded
    std::mutex mutex_;                      // over what follows
    std::map<Offload *, std::unique_ptr<Offload>> offloads_;
    int tags_ = 0; // given away
};

} // namespace inagg::mpi
