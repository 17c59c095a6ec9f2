// SPDX-License-Identifier: BSD-2-Clause
// MPI moves messages only while a rank is in a call of MPI. One that waits in a call of ours is, too: another
// rank may need the rest of a message from it to get there. So a thread calls MPI for it now and then.
#pragma once

#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace inagg::mpi {

class MpiProgress {
public:
    explicit MpiProgress(MPI_Comm world);
    ~MpiProgress();

    // A call that may wait for other ranks lasts as long.
    class Scope {
    public:
        explicit Scope(MpiProgress &progress) : waiting_(progress.waiting_) { waiting_++; }
        ~Scope() { waiting_--; }
        Scope(const Scope &) = delete;

    private:
        std::atomic<int> &waiting_;
    };

private:
    void run();

    const MPI_Comm world_;
    std::atomic<int> waiting_{0}; // calls
    std::mutex mutex_;            // over what follows
    std::condition_variable wake_;
    bool stopping_ = false;
    std::thread thread_;
};

} // namespace inagg::mpi
