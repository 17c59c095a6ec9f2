// SPDX-License-Identifier: BSD-2-Clause
#include "communicator.hpp"

#include "convert.hpp"
#include "engine.hpp"
#include "options.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <csignal>

namespace inagg {

using namespace std::chrono_literals;

namespace {

constexpr std::chrono::nanoseconds drive_wait = 5ms; // a blocked caller hands over to others after this
constexpr std::chrono::nanoseconds keeper_period = 5ms;
constexpr std::chrono::nanoseconds keeper_wait = 1ms; // while operations are under way

// Results of `blocks` data or control blocks lie within half the number space of each other.
bool block_before(uint32_t a, uint32_t b) { return inagg_before(a, b); }

} // namespace

// FairMutex

void FairMutex::lock() {
    const uint32_t ticket = next_.fetch_add(1);
    for (uint32_t serving = serving_.load(); serving != ticket; serving = serving_.load())
        serving_.wait(serving);
}

bool FairMutex::try_lock() {
    uint32_t free = serving_.load();
    return next_.compare_exchange_strong(free, free + 1);
}

void FairMutex::unlock() {
    serving_.fetch_add(1);
    serving_.notify_all();
}

// Operation

void Operation::check() const {
    if (error)
        throw *error;
}

// Joining and leaving

Communicator::Communicator(const inagg_options &options) : options_(options) {
    validate(options);
    start(make_transport(options_, *this, note_));
}

void Communicator::start(std::unique_ptr<Transport> transport) {
    transport_ = std::move(transport);
    transport_name_ = transport_->name();
    // Signals are the application's, not the keeper's.
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    keeper_ = std::thread(&Communicator::keep, this);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

Communicator::~Communicator() {
    {
        const std::lock_guard lock(keeper_mutex_);
        stopping_ = true;
    }
    keeper_wake_.notify_all();
    if (keeper_.joinable())
        keeper_.join();
}

void Communicator::leave() {
    const std::lock_guard lock(mutex_);
    while (!broken_ && !operations_.empty())
        progress(drive_wait);
    try {
        transport_->leave();
    } catch (const Error &) {
        // Nobody is left to hear it; the switch forgets this rank when the job restarts.
    }
    const std::optional<Error> cause =
        std::exchange(broken_, Error(INAGG_ECLOSED, "this rank has left the job"));
    if (cause)
        throw *cause;
}

// Starting operations

Communicator::Handle Communicator::allreduce(const void *send, void *recv, std::size_t count,
                                             inagg_dtype dtype, inagg_op op) {
    return submit_reduction({send, recv, count, dtype, op, size(), 0});
}

Communicator::Handle Communicator::reduce(const void *send, void *recv, std::size_t count, inagg_dtype dtype,
                                          inagg_op op, uint16_t root) {
    return submit_reduction({send, rank() == root ? recv : nullptr, count, dtype, op, size(), 0});
}

Communicator::Handle Communicator::submit_reduction(const Reduction &reduction) {
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::reduction;
    operation->reduction = reduction;
    const bool needs_scale = inagg_needs_scale(reduction.dtype, reduction.op);
    if (needs_scale && reduction.dtype == INAGG_FLOAT32 && options_.scale != INAGG_SCALE_AUTO) {
        operation->scale = inagg_scale_for_point(inagg_fan_in_log2(size()), options_.scale);
    } else if (needs_scale && reduction.count) {
        operation->scale = max_exponent(reduction.send, reduction.count, reduction.dtype);
        operation->scale_known = false;
    }
    return submit(std::move(operation));
}

Communicator::Handle Communicator::broadcast(void *data, std::size_t count, inagg_dtype dtype,
                                             uint16_t root) {
    auto operation = std::make_shared<Operation>();
    operation->kind = Operation::Kind::broadcast;
    operation->reduction.recv = data;
    operation->reduction.count = count * inagg_memory_bytes(dtype);
    operation->root = rank() == root;
    return submit(std::move(operation));
}

Communicator::Handle Communicator::barrier() { return submit(std::make_shared<Operation>()); }

Communicator::Handle Communicator::submit(Handle operation) {
    const std::lock_guard lock(mutex_);
    require_open();
    const bool barrier = operation->kind == Operation::Kind::barrier;
    if (!barrier && operation->reduction.count == 0) {
        operation->done_ = true;
        return operation;
    }
    operation->reduction.elements = transport_->config().elements;
    if (operations_.empty())
        last_progress_ns_ = monotonic_ns();
    operations_.push_back(operation);
    try {
        if (barrier || !operation->scale_known)
            queue_control(operation, operation->scale);
        if (barrier) {
            operation->assigned = true;
        } else {
            unassigned_.push_back(operation);
            assign_blocks();
        }
    } catch (const Error &error) {
        break_off(error);
    }
    return operation;
}

void Communicator::queue_control(const Handle &operation, uint8_t exponent) {
    controls_.push_back({operation, exponent});
    operation->pending++;
    transport_->extend(Stream::control, first_control_ + static_cast<uint32_t>(controls_.size()));
}

// Data blocks are numbered in call order: all ranks number them alike, whenever their scales arrive.
void Communicator::assign_blocks() {
    const uint32_t before = next_data_;
    while (!unassigned_.empty() && assign(unassigned_.front())) {
        unassigned_.front()->assigned = true;
        unassigned_.pop_front();
    }
    if (next_data_ != before)
        transport_->extend(Stream::data, next_data_);
}

// True when all of the operation's blocks have numbers.
bool Communicator::assign(const Handle &operation) {
    const Reduction &r = operation->reduction;
    if (operation->kind == Operation::Kind::broadcast)
        add_segment(operation, make_broadcast(r.recv, r.count, r.elements, operation->root));
    else if (!operation->scale_known)
        return false;
    else if (operation->scale == INAGG_SCALE_NONFINITE || operation->classes)
        return assign_float_sum(operation);
    else
        add_segment(operation, make_encoding(r, operation->scale));
    return true;
}

// A float sum with infinities or NaN somewhere: one more block agrees on the exponent of the finite part,
// then that part and the counts of infinities and NaN travel one behind the other.
bool Communicator::assign_float_sum(const Handle &operation) {
    Reduction r = operation->reduction;
    if (!operation->classes) {
        operation->classes = std::make_unique<ClassCounts>(r);
        operation->scale_known = false;
        const uint8_t exponent = max_finite_exponent(r.send, r.count, r.dtype);
        add_segment(operation, make_exponent_block(exponent, operation->scale));
        return false;
    }
    r.send = operation->classes->finite();
    add_segment(operation, make_encoding(r, operation->scale));
    add_segment(operation, operation->classes->make_encoding());
    return true;
}

void Communicator::add_segment(const Handle &operation, std::unique_ptr<Encoding> encoding) {
    const uint32_t blocks = encoding->blocks();
    operation->pending += blocks;
    segments_.push_back({operation, std::move(encoding), next_data_, blocks, blocks});
    next_data_ += blocks;
}

// Blocks

Communicator::Segment &Communicator::segment_of(uint32_t block) {
    const auto after =
        std::partition_point(segments_.begin(), segments_.end(),
                             [block](const Segment &segment) { return !block_before(block, segment.first); });
    return *std::prev(after);
}

BlockMeta Communicator::load(Stream stream, uint32_t block, std::byte *payload) {
    if (stream == Stream::control)
        return control_meta(controls_[block - first_control_].exponent);
    const Segment &segment = segment_of(block);
    return segment.encoding->load(block - segment.first, payload);
}

void Communicator::store(Stream stream, uint32_t block, const BlockMeta &meta, const std::byte *payload) {
    if (stream == Stream::control)
        store_control(block, meta);
    else
        store_data(block, meta, payload);
}

void Communicator::store_control(uint32_t block, const BlockMeta &meta) {
    const Handle operation = std::move(controls_[block - first_control_].operation);
    while (!controls_.empty() && !controls_.front().operation) {
        controls_.pop_front();
        first_control_++;
    }
    if (operation->kind == Operation::Kind::reduction) {
        operation->scale = meta.next_scale;
        operation->scale_known = true;
        assign_blocks();
    }
    returned(operation);
}

void Communicator::store_data(uint32_t block, const BlockMeta &meta, const std::byte *payload) {
    Segment &segment = segment_of(block);
    const Handle operation = segment.operation;
    operation->saturated |= meta.saturated;
    if (!segment.encoding->store(block - segment.first, meta, payload) && !operation->error)
        operation->error =
            Error(INAGG_EINVAL, "job {}, block {}: the ranks' calls differ in count, type or root",
                  options_.job, block);
    if (--segment.left == 0)
        segment.encoding.reset();
    while (!segments_.empty() && segments_.front().left == 0)
        segments_.pop_front();
    if (operation->classes && !operation->scale_known) { // that was the finite part's exponent
        operation->scale_known = true;
        assign_blocks();
    }
    returned(operation);
}

// One of the operation's blocks is back.
void Communicator::returned(const Handle &operation) {
    if (operation == operations_.front())
        last_progress_ns_ = monotonic_ns();
    if (--operation->pending == 0 && operation->assigned)
        finish(*operation);
}

void Communicator::finish(Operation &operation) {
    const Reduction &r = operation.reduction;
    if (operation.classes && r.recv)
        operation.classes->combine(r.recv);
    if (operation.saturated && !operation.error)
        operation.error =
            Error(INAGG_ERANGE,
                  "a float32 sum of {} elements has a value that does not fit scale {} on some rank: "
                  "choose a smaller INAGG_SCALE or 'auto'",
                  r.count, options_.scale);
    operation.classes.reset();
    operation.done_.store(true, std::memory_order_release);
    while (!operations_.empty() && operations_.front()->done()) {
        operations_.pop_front();
        last_progress_ns_ = monotonic_ns();
    }
}

// Driving

void Communicator::wait(Operation &operation) {
    std::unique_lock lock(mutex_);
    while (!operation.done()) {
        progress(drive_wait);
        if (mutex_.contended()) {
            lock.unlock();
            lock.lock();
        }
    }
    if (!operations_.empty())
        progress(0ns); // send what the last results set free
    lock.unlock();
    operation.check();
}

bool Communicator::test(Operation &operation) {
    if (!operation.done() && mutex_.try_lock()) {
        const std::lock_guard lock(mutex_, std::adopt_lock);
        progress(0ns);
    }
    return operation.done();
}

inagg_stats_t Communicator::stats() {
    const std::lock_guard lock(mutex_);
    return transport_->stats();
}

// Let the transport work; an error ends all operations. The lock is held.
void Communicator::progress(std::chrono::nanoseconds wait) {
    if (broken_)
        return;
    try {
        transport_->progress(wait);
        if (!operations_.empty())
            check_deadline();
    } catch (const Error &error) {
        break_off(error);
    }
}

void Communicator::check_deadline() {
    const uint64_t limit = uint64_t{options_.timeout_ms} * 1'000'000;
    if (monotonic_ns() - last_progress_ns_ > limit)
        throw Error(INAGG_EDEADLINE, "job {}: no progress for {} ms: {}", options_.job, options_.timeout_ms,
                    describe_stall());
}

std::string Communicator::describe_stall() const {
    Stalled stalled{};
    if (!transport_->stalled(stalled))
        return "nothing is in flight";
    const std::string block =
        fmt::format("{} block {}", stalled.stream == Stream::data ? "data" : "control", stalled.block);
    if (!stalled.heard)
        return fmt::format("{} is unanswered, the switch at {} has been silent", block,
                           options_.switch_address);
    std::vector<int> missing;
    for (int rank = 0; rank < size(); rank++)
        if (!(stalled.contributors & inagg_rank_bit(rank)))
            missing.push_back(rank);
    if (missing.empty())
        return fmt::format("{} has all ranks' contributions, but its result does not arrive", block);
    return fmt::format("{} waits for rank{} {}", block, missing.size() == 1 ? "" : "s",
                       fmt::join(missing, ", "));
}

void Communicator::break_off(const Error &error) {
    broken_ = error;
    for (const Handle &operation : operations_) {
        operation->error = error;
        operation->done_.store(true, std::memory_order_release);
    }
    operations_.clear();
    unassigned_.clear();
}

void Communicator::require_open() const {
    if (broken_)
        throw Error(INAGG_ECLOSED, "this communicator is closed: {}", broken_->what());
}

// Answers other ranks while the application computes, and moves non-blocking operations.
void Communicator::keep() {
    std::unique_lock lock(keeper_mutex_);
    while (!keeper_wake_.wait_for(lock, keeper_period, [this] { return stopping_; })) {
        lock.unlock();
        if (mutex_.try_lock()) {
            const std::lock_guard guard(mutex_, std::adopt_lock);
            progress(0ns);
            while (!broken_ && !operations_.empty() && !mutex_.contended())
                progress(keeper_wait);
        }
        lock.lock();
    }
}

} // namespace inagg
