// SPDX-License-Identifier: BSD-2-Clause
// Collective calls: their order, handles, deadlines, and a thread that keeps them moving.
#pragma once

#include "carrier.hpp"

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace inagg {

// A mutex that serves threads in the order in which they come.
class FairMutex {
public:
    void lock();
    bool try_lock();
    void unlock();
    // Somebody else waits for it.
    bool contended() const { return next_.load() - serving_.load() > 1; }

private:
    std::atomic<uint32_t> next_{0}, serving_{0};
};

class Communicator final {
public:
    // Joins; throws inagg::Error.
    explicit Communicator(const inagg_options &options);
    ~Communicator();

    using Handle = inagg::Handle;
    // Each starts an operation; wait() ends it.
    Handle allreduce(const void *send, void *recv, std::size_t count, inagg_dtype dtype, inagg_op op);
    Handle broadcast(void *data, std::size_t count, inagg_dtype dtype, uint16_t root);
    Handle reduce(const void *send, void *recv, std::size_t count, inagg_dtype dtype, inagg_op op, uint16_t root);
    Handle barrier();
    // Takes excluded ranks back that have joined again; true on all ranks if the job has gone on to its next
    // generation.
    bool renew();
    Stragglers stragglers();
    // Drives the carrier until the operation is done, then throws its error if it has one.
    void wait(Operation &operation);
    // Drives the carrier without waiting.
    bool test(Operation &operation);
    // Finish what is under way, tell the switch. Throws the first error; the communicator is closed anyway.
    void leave();

    uint16_t rank() const { return options_.rank; }
    uint16_t size() const { return options_.size; }
    const char *transport_name() const { return transport_name_.c_str(); }
    const char *transport_note() const { return note_.c_str(); }
    inagg_stats_t stats();
    uint32_t blocks_ahead();
    uint32_t block_elements(inagg_dtype dtype, inagg_op op);

private:
    Handle submit(const Call &call);
    bool progress(std::chrono::nanoseconds wait);
    void give_way();
    void drain();
    void settle();
    void wait_until_given(uint64_t quiet_ns, uint64_t last, const std::function<bool()> &done);
    void forget_finished();
    void check_deadline();
    void break_off(const Error &error);
    void require_open() const;
    void keep();

    const inagg_options options_;
    std::string note_;
    std::unique_ptr<Carrier> carrier_;
    const std::string transport_name_;
    std::optional<Error> broken_; // what closed this communicator

    FairMutex mutex_;               // over everything below and the carrier
    std::deque<Handle> operations_; // not done yet, in call order
    uint64_t oldest_since_ns_ = 0;  // when the first of them became that
    uint64_t poll_from_ns_ = 0;     // not before

    std::mutex keeper_mutex_;
    std::condition_variable keeper_wake_;
    bool stopping_ = false;
    std::thread keeper_;
};

} // namespace inagg
