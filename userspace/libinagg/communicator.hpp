// SPDX-License-Identifier: BSD-2-Clause
// Tensors in call order on the two streams of blocks: scales, handles, deadlines.
#pragma once

#include "encoding.hpp"
#include "error.hpp"
#include "transport.hpp"

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
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

// One collective call. Owned jointly by the communicator and the caller's handle.
class Operation {
public:
    bool done() const { return done_.load(std::memory_order_acquire); }
    // Throws what went wrong, once done.
    void check() const;

private:
    friend class Communicator;
    enum class Kind { reduction, broadcast, barrier };

    Kind kind = Kind::barrier;
    Reduction reduction{}; // broadcast: recv and count in bytes
    bool root = false;
    bool scale_known = true; // float sums: agreed, or not needed
    uint8_t scale = 0;       // own exponent, then the agreed one
    uint32_t pending = 0;    // blocks assigned and not back yet
    bool assigned = false;   // no more blocks will come
    bool saturated = false;
    std::unique_ptr<ClassCounts> classes;
    std::optional<Error> error;
    std::atomic<bool> done_{false};
};

class Communicator final : private BlockClient {
public:
    // Joins; throws inagg::Error.
    explicit Communicator(const inagg_options &options);
    // On a transport of the caller's choice (tests); `make` gets the communicator's BlockClient.
    template <typename MakeTransport>
    Communicator(const inagg_options &options, MakeTransport make) : options_(options) {
        start(make(static_cast<BlockClient &>(*this)));
    }
    ~Communicator() override;

    using Handle = std::shared_ptr<Operation>;
    // Each starts an operation; wait() ends it.
    Handle allreduce(const void *send, void *recv, std::size_t count, inagg_dtype dtype, inagg_op op);
    Handle broadcast(void *data, std::size_t count, inagg_dtype dtype, uint16_t root);
    Handle reduce(const void *send, void *recv, std::size_t count, inagg_dtype dtype, inagg_op op,
                  uint16_t root);
    Handle barrier();
    // Drives the transport until the operation is done, then throws its error if it has one.
    void wait(Operation &operation);
    // Drives the transport without waiting.
    bool test(Operation &operation);
    // Finish what is under way, tell the switch. Throws the first error; the communicator is closed anyway.
    void leave();

    uint16_t rank() const { return options_.rank; }
    uint16_t size() const { return options_.size; }
    const char *transport_name() const { return transport_name_.c_str(); }
    const char *transport_note() const { return note_.c_str(); }
    inagg_stats_t stats();

private:
    // A run of data blocks that belongs to one operation.
    struct Segment {
        Handle operation;
        std::unique_ptr<Encoding> encoding;
        uint32_t first, blocks, left;
    };
    // A control block; `operation` is reset when its result is here.
    struct Control {
        Handle operation;
        uint8_t exponent;
    };

    BlockMeta load(Stream stream, uint32_t block, std::byte *payload) override;
    void store(Stream stream, uint32_t block, const BlockMeta &meta, const std::byte *payload) override;

    void start(std::unique_ptr<Transport> transport);
    Handle submit(Handle operation);
    Handle submit_reduction(const Reduction &reduction);
    void queue_control(const Handle &operation, uint8_t exponent);
    void assign_blocks();
    bool assign(const Handle &operation);
    bool assign_float_sum(const Handle &operation);
    void add_segment(const Handle &operation, std::unique_ptr<Encoding> encoding);
    Segment &segment_of(uint32_t block);
    void store_control(uint32_t block, const BlockMeta &meta);
    void store_data(uint32_t block, const BlockMeta &meta, const std::byte *payload);
    void returned(const Handle &operation);
    void finish(Operation &operation);
    void progress(std::chrono::nanoseconds wait);
    void check_deadline();
    std::string describe_stall() const;
    void break_off(const Error &error);
    void require_open() const;
    void keep();

    const inagg_options options_;
    std::string transport_name_, note_;
    std::unique_ptr<Transport> transport_;
    std::optional<Error> broken_; // what closed this communicator

    FairMutex mutex_;               // over everything below and the transport
    std::deque<Handle> operations_; // not done yet, in call order
    std::deque<Handle> unassigned_; // their tail whose data blocks are not (all) known yet
    std::deque<Segment> segments_;
    uint32_t next_data_ = 0;
    std::deque<Control> controls_;
    uint32_t first_control_ = 0;    // number of controls_.front()
    uint64_t last_progress_ns_ = 0; // of the oldest operation

    std::mutex keeper_mutex_;
    std::condition_variable keeper_wake_;
    bool stopping_ = false;
    std::thread keeper_;
};

} // namespace inagg
