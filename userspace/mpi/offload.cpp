// SPDX-License-Identifier: BSD-2-Clause
#include "offload.hpp"

#include "errors.hpp"
#include "session.hpp"

#include <inagg/wire.h>

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <numeric>
#include <utility>

namespace inagg::mpi {

namespace {

// A rank that is late to a call is waited for, as MPI does: one that is gone, mpirun sees before.
constexpr uint32_t patience_ms = 30 * 60 * 1000;

// Ranks of other applications may be without this library.
bool is_within(MPI_Comm comm, MPI_Comm world, int size) {
    std::vector<int> ranks(size), in_world(size);
    std::iota(ranks.begin(), ranks.end(), 0);
    MPI_Group group, all;
    PMPI_Comm_group(comm, &group);
    PMPI_Comm_group(world, &all);
    PMPI_Group_translate_ranks(group, size, ranks.data(), all, in_world.data());
    PMPI_Group_free(&group);
    PMPI_Group_free(&all);
    return std::ranges::find(in_world, MPI_UNDEFINED) == in_world.end();
}

Reason objection_to(MPI_Comm comm, MPI_Comm world) {
    int is_inter, size;
    PMPI_Comm_test_inter(comm, &is_inter);
    PMPI_Comm_size(comm, &size);
    if (is_inter)
        return "intercommunicator";
    if (size == 1)
        return "communicator of one rank";
    if (size > INAGG_MAX_RANKS)
        return fmt::format("communicator of more than {} ranks", INAGG_MAX_RANKS);
    return is_within(comm, world, size) ? "" : "ranks of another application";
}

// Call libinagg: its error and message. What is thrown on the way is an error of this machine.
template <typename Call> Outcome attempt(Call call) {
    try {
        const int error = call();
        return {error, error ? inagg_message() : ""};
    } catch (const std::exception &error) {
        return {INAGG_ESYSTEM, error.what()};
    }
}

} // namespace

PendingSum::PendingSum(const Travel &travel, const void *send, void *recv, std::size_t count, Collective call)
    : travel_(travel), send_(send), recv_(recv), count_(count), call_(std::move(call)) {}

int PendingSum::make_request(std::unique_ptr<PendingSum> sum, MPI_Request *request) {
    const auto query = [](void *state, MPI_Status *status) {
        PMPI_Status_set_elements(status, MPI_BYTE, 0);
        PMPI_Status_set_cancelled(status, 0);
        status->MPI_SOURCE = status->MPI_TAG = MPI_UNDEFINED;
        return static_cast<PendingSum *>(state)->code_;
    };
    const auto free = [](void *state) {
        const std::unique_ptr<PendingSum> owned(static_cast<PendingSum *>(state));
        return owned->code_;
    };
    const auto cancel = [](void *, int) { return MPI_SUCCESS; };
    const int code = PMPI_Grequest_start(query, free, cancel, sum.get(), request);
    if (code == MPI_SUCCESS)
        sum.release()->request_ = *request;
    return code;
}

void PendingSum::begin(inagg_comm *job) {
    outcome_ = attempt([&] {
        reduction_.emplace(travel_, send_, recv_, count_);
        return inagg_iallreduce(job, reduction_->send(), reduction_->recv(), count_, travel_.dtype, travel_.op, &pending_);
    });
}

const Outcome &PendingSum::finish() {
    if (outcome_.error == INAGG_OK)
        outcome_ = attempt([&] { return inagg_wait(pending_); });
    if (outcome_.error == INAGG_OK)
        reduction_->deliver();
    return outcome_;
}

void PendingSum::complete(int code) {
    code_ = code;
    PMPI_Grequest_complete(request_);
}

Offload::Offload(Session &session, MPI_Comm comm)
    : session_(session), comm_(comm), objection_(objection_to(comm, session.world())) {
    if (!objection_.empty())
        return;
    PMPI_Comm_rank(comm, &rank_);
    PMPI_Comm_size(comm, &size_);
    if (rank_ == 0)
        invitation_ = {session.next_tag(),
                       comm == MPI_COMM_WORLD ? session.numbers().of_world() : session.numbers().take().value_or(-1)};
    PMPI_Ibcast(&invitation_, 2, MPI_INT, 0, comm, &invited_);
}

// All ranks are in the job, or none is.
void Offload::join() {
    PMPI_Wait(&invited_, MPI_STATUS_IGNORE);
    MPI_Group group;
    PMPI_Comm_group(comm_, &group);
    PMPI_Comm_create_group(session_.world(), group, invitation_.tag, &private_);
    PMPI_Group_free(&group);
    PMPI_Comm_set_errhandler(private_, MPI_ERRORS_RETURN);
    const int own = join_job();
    int all = own;
    PMPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, private_);
    if (own && !all) {
        leave();
        refusal_ = "another rank cannot join the job";
    }
}

bool Offload::join_job() {
    inagg_options options;
    inagg_options_init(&options);
    if (invitation_.job < 0) {
        refusal_ = "no job number left: raise INAGG_MPI_JOBS";
        return false;
    }
    int error = inagg_options_for_rank(&options, static_cast<uint16_t>(rank_), static_cast<uint16_t>(size_));
    options.job = static_cast<uint16_t>(invitation_.job);
    if (!options.join_timeout_ms)
        options.join_timeout_ms = options.timeout_ms;
    timeout_ms_ = options.join_timeout_ms;
    if (!std::getenv("INAGG_TIMEOUT_MS"))
        options.timeout_ms = patience_ms;
    if (error == INAGG_OK)
        error = inagg_join(&options, &job_);
    if (error != INAGG_OK)
        refusal_ = inagg_message();
    return error == INAGG_OK;
}

int Offload::run(const Collective &call) {
    const MpiProgress::Scope scope(session_.progress());
    drain();
    std::call_once(join_once_, [this] { join(); });
    const int code = job_ ? settle(call, attempt([&] { return call.carry(job_); })) : fall_back(call, refusal_);
    return code == MPI_SUCCESS ? code : raise(comm_, code);
}

int Offload::start(std::unique_ptr<PendingSum> sum, MPI_Request *request) {
    PendingSum *const queued = sum.get();
    if (const int code = PendingSum::make_request(std::move(sum), request); code != MPI_SUCCESS)
        return raise(comm_, code);
    const std::lock_guard lock(mutex_);
    queue_.push_back(queued);
    if (!thread_.joinable())
        thread_ = std::thread([this] { work(); });
    wake_.notify_one();
    return MPI_SUCCESS;
}

// What a call ends with: an error code of MPI.
int Offload::settle(const Collective &call, const Outcome &outcome) {
    if (outcome.error == INAGG_ERANGE) // on all ranks
        return fall_back(call, "values too far apart");
    if (outcome.error != INAGG_OK)
        return error_code(fmt::format("{}, ranks of {}: {}", call.name, describe(comm_), outcome.message));
    session_.report().offloaded(invitation_.job, call.bytes);
    return MPI_SUCCESS;
}

int Offload::fall_back(const Collective &call, const Reason &why) {
    session_.report().fell_back(why, call.bytes);
    return call.by_mpi(private_);
}

void Offload::work() {
    std::unique_lock lock(mutex_);
    for (;;) {
        wake_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
        if (queue_.empty())
            return;
        const std::vector<PendingSum *> sums = std::exchange(queue_, {});
        busy_ = true;
        lock.unlock();
        carry(sums);
        lock.lock();
        busy_ = false;
        idle_.notify_all();
    }
}

// Blocks of the next sum may travel while this one's are under way.
void Offload::carry(const std::vector<PendingSum *> &sums) {
    std::call_once(join_once_, [this] { join(); });
    for (PendingSum *sum : sums)
        if (job_)
            sum->begin(job_);
    for (PendingSum *sum : sums)
        sum->complete(job_ ? settle(sum->call(), sum->finish()) : fall_back(sum->call(), refusal_));
}

// What was started before comes first.
void Offload::drain() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return queue_.empty() && !busy_; });
}

void Offload::stop() {
    drain();
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wake_.notify_one();
    if (thread_.joinable())
        thread_.join();
}

void Offload::leave() {
    if (!job_)
        return;
    session_.report().job_left(invitation_.job, job_);
    inagg_leave(std::exchange(job_, nullptr));
}

void Offload::finish() {
    const MpiProgress::Scope scope(session_.progress());
    stop();
    leave();
    if (objection_.empty() && private_ == MPI_COMM_NULL) // never joined: the invitation may still come, to this memory
        PMPI_Wait(&invited_, MPI_STATUS_IGNORE);
}

void Offload::dissolve() {
    finish();
    const bool joined = private_ != MPI_COMM_NULL; // else nobody has used the number
    if (!objection_.empty() || (joined && !all_have_left()))
        return;
    if (joined)
        PMPI_Comm_free(&private_);
    if (rank_ == 0 && invitation_.job >= 0)
        session_.numbers().give_back(invitation_.job);
}

// A barrier that does not wait for ever for a rank that is gone.
bool Offload::all_have_left() {
    using Clock = std::chrono::steady_clock;
    const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms_);
    MPI_Request request;
    int done = 0;
    PMPI_Ibarrier(private_, &request);
    while (PMPI_Test(&request, &done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !done && Clock::now() < deadline)
        std::this_thread::yield();
    return done;
}

} // namespace inagg::mpi
