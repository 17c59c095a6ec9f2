// SPDX-License-Identifier: BSD-2-Clause
// A communicator of MPI and the job that does its collective calls.
#pragma once

#include "reduction.hpp"

#include <inagg/inagg.h>
#include <mpi.h>

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace inagg::mpi {

class Session;

// A call that could be carried.
struct Collective {
    const char *name;
    uint64_t bytes;
    std::function<int(inagg_comm *)> carry; // by libinagg, whose error number it returns
    std::function<int(MPI_Comm)> by_mpi;    // the same on a communicator of the same ranks
};

// What libinagg says of it.
struct Outcome {
    int error = INAGG_OK;
    std::string message;
};

// A sum that nobody waits for yet.
class PendingSum {
public:
    PendingSum(const Travel &travel, const void *send, void *recv, std::size_t count, Collective call);

    // What MPI_Wait() and MPI_Test() look at, which is freed by MPI.
    static int make_request(std::unique_ptr<PendingSum> sum, MPI_Request *request);

    const Collective &call() const { return call_; }
    void begin(inagg_comm *job);
    // Waits.
    const Outcome &finish();
    // MPI may free the sum now.
    void complete(int code);

private:
    const Travel travel_;
    const void *const send_;
    void *const recv_;
    const std::size_t count_;
    const Collective call_;
    std::optional<Reduction> reduction_;
    Outcome outcome_;
    inagg_request *pending_ = nullptr;
    MPI_Request request_ = MPI_REQUEST_NULL;
    int code_ = MPI_SUCCESS;
};

/*
 * All ranks make the same calls on a communicator in the same order, and so do they here. What cannot be
 * carried after all goes to a private communicator of the same ranks: only then do calls that a thread of
 * ours makes not mix with the application's own.
 *
 * The first call makes the job. That must not wait for other ranks if it is MPI_Iallreduce, so the
 * constructor only starts to send what they need to know, and the thread does the rest.
 */
class Offload {
public:
    Offload(Session &session, MPI_Comm comm);

    // Why no call on this communicator is carried; empty: some are.
    const Reason &objection() const { return objection_; }
    int rank() const { return rank_; }
    int size() const { return size_; }
    // Number of the job; negative: none of this communicator's ranks has joined one.
    int job() const { return private_ == MPI_COMM_NULL ? -1 : invitation_.job; }

    // Do @call now; an error has been through the communicator's error handler.
    int run(const Collective &call);
    // The same without waiting.
    int start(std::unique_ptr<PendingSum> sum, MPI_Request *request);
    // Leave the job when nothing is under way any more.
    void finish();
    // The same on all ranks, when the communicator is freed: then others can use what it used.
    void dissolve();

private:
    void join();
    bool join_job();
    void leave();
    bool all_have_left();
    int settle(const Collective &call, const Outcome &outcome);
    int fall_back(const Collective &call, const Reason &why);
    void work();
    void carry(const std::vector<PendingSum *> &sums);
    void drain();
    void stop();

    Session &session_;
    const MPI_Comm comm_;
    const Reason objection_;
    int rank_ = 0, size_ = 0;

    // From rank 0 of the communicator.
    struct Invitation {
        int tag, job; // -1: it has no number left
    } invitation_{};
    MPI_Request invited_ = MPI_REQUEST_NULL;
    std::once_flag join_once_;
    MPI_Comm private_ = MPI_COMM_NULL;
    inagg_comm *job_ = nullptr;
    uint32_t timeout_ms_ = 0;
    Reason refusal_ = "not joined"; // why there is no job

    std::mutex mutex_; // over what follows
    std::condition_variable wake_, idle_;
    std::vector<PendingSum *> queue_;
    bool busy_ = false, stopping_ = false;
    std::thread thread_; // runs from the first MPI_Iallreduce on
};

} // namespace inagg::mpi
