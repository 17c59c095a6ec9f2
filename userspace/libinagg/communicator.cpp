// SPDX-License-Identifier: BSD-2-Clause
#include "communicator.hpp"

#include "engine.hpp"
#include "errors.hpp"
#include "float_mode.hpp"
#include "options.hpp"
#include "signals_blocked.hpp"

#include <algorithm>
#include <system_error>

namespace inagg {

using namespace std::chrono_literals;

namespace {

constexpr std::chrono::nanoseconds drive_wait = 5ms; // a blocked caller hands over to others after this
constexpr uint64_t others_turn_ns = 1'000'000;       // longer than other ranks take for what is small
constexpr uint64_t poll_pause_ns = 100'000'000;
constexpr std::chrono::nanoseconds keeper_period = 5ms;
constexpr std::chrono::nanoseconds keeper_wait = 1ms; // while operations are under way
// Leaving waits so long for others, who ask all ranks at their third time-out. Ranks of canary lead blocks: of what others ask of
// them ten may be lost.
constexpr uint64_t settle_ns = 4 * INAGG_RTO_CEILING_NS, settle_led_ns = 10 * INAGG_RTO_CEILING_NS;

std::unique_ptr<Carrier> join(const inagg_options &options, std::string &note) {
    validate(options);
    return make_carrier(options, note);
}

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

// Joining and leaving

Communicator::Communicator(const inagg_options &options)
    : options_(options), carrier_(join(options_, note_)), transport_name_(carrier_->name()) {
    try {
        const SignalsBlocked blocked;
        keeper_ = std::thread(&Communicator::keep, this);
    } catch (const std::system_error &error) {
        carrier_->leave();
        throw system_error("a thread of libinagg", error.code().value());
    }
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
    drain();
    try {
        settle();
    } catch (const std::exception &) { // the others' calls differ, or they are gone
    }
    try {
        carrier_->leave();
    } catch (const Error &) {
        // Nobody is left to hear it; the switch forgets this rank when the job restarts.
    }
    const std::optional<Error> cause = std::exchange(broken_, Error(INAGG_ECLOSED, "this rank has left the job"));
    if (cause)
        throw *cause;
}

// Until nothing is under way any more. The lock is held.
void Communicator::drain() {
    while (!broken_ && !operations_.empty())
        progress(drive_wait);
}

// Others may need results that only ranks keep: the switch may forget one before all have it (PROTOCOL §7.3). A barrier that
// says what it is for tells that all are done, and then only its own result may be missed somewhere. A rank that is dead, or
// not done for long, must not hold the others, so the barrier is given up when nobody has been given a result for a while.
// The lock is held.
void Communicator::settle() {
    if (broken_ || !carrier_->stats().blocks)
        return;
    Call call;
    call.kind = Call::Kind::leaving;
    const Handle barrier = carrier_->prepare(call);
    carrier_->start(barrier);
    const uint64_t last = monotonic_ns() + options_.timeout_ms * 1'000'000ULL;
    const bool leads = algorithm_number(options_.algorithm) == INAGG_CANARY;
    wait_until_given(leads ? settle_led_ns : settle_ns, last, [&] { return barrier->done(); });
    if (barrier->done())
        wait_until_given(static_cast<uint64_t>(carrier_->linger().count()), last, [] { return false; });
}

// Until `done`, or nobody has been given a result for `quiet_ns`, or `last` has come.
void Communicator::wait_until_given(uint64_t quiet_ns, uint64_t last, const std::function<bool()> &done) {
    uint64_t now = monotonic_ns(), given = carrier_->stats().restores;
    for (uint64_t deadline = std::min(now + quiet_ns, last); !done() && now < deadline; now = monotonic_ns()) {
        carrier_->progress(drive_wait);
        if (std::exchange(given, carrier_->stats().restores) != given)
            deadline = std::min(now + quiet_ns, last);
    }
}

Stragglers Communicator::stragglers() {
    const std::lock_guard lock(mutex_);
    progress(0ns);
    return carrier_->stragglers();
}

// The result of the renewal is that all ranks have come to it, with all operations done, and whether they go
// on.
bool Communicator::renew() {
    Call call;
    call.kind = Call::Kind::renewal;
    {
        const std::lock_guard lock(mutex_);
        drain();
    }
    const Handle operation = submit(call);
    wait(*operation);
    if (!operation->renews)
        return false;
    const std::lock_guard lock(mutex_);
    const uint64_t since = monotonic_ns();
    while (!broken_ && !carrier_->renew()) {
        progress(drive_wait);
        if (monotonic_ns() - since > uint64_t{options_.timeout_ms} * 1'000'000)
            break_off(deadline_passed(options_, "the next generation does not begin"));
    }
    if (broken_)
        throw *broken_;
    return true;
}

// Starting operations

Handle Communicator::allreduce(const void *send, void *recv, std::size_t count, inagg_dtype dtype, inagg_op op) {
    return submit({Call::Kind::reduction, send, recv, count, dtype, op, false, -1});
}

Handle Communicator::reduce(const void *send, void *recv, std::size_t count, inagg_dtype dtype, inagg_op op, uint16_t root) {
    const bool is_root = rank() == root;
    return submit({Call::Kind::reduction, send, is_root ? recv : nullptr, count, dtype, op, is_root, root});
}

Handle Communicator::broadcast(void *data, std::size_t count, inagg_dtype dtype, uint16_t root) {
    return submit({Call::Kind::broadcast, data, data, count, dtype, INAGG_SUM, rank() == root, root});
}

Handle Communicator::barrier() { return submit({}); }

Handle Communicator::submit(const Call &call) {
    const std::lock_guard lock(mutex_);
    require_open();
    if (call.kind != Call::Kind::barrier && call.kind != Call::Kind::renewal && call.count == 0) {
        const auto nothing = std::make_shared<Operation>(call);
        nothing->finish();
        return nothing;
    }
    const FloatMode mode;
    const Handle operation = carrier_->prepare(call);
    if (operations_.empty())
        oldest_since_ns_ = monotonic_ns();
    operations_.push_back(operation);
    try {
        carrier_->start(operation);
    } catch (const std::exception &) { // half of it may be under way
        break_off(current_error());
    }
    return operation;
}

// Driving

// A round trip is over before a thread that sleeps would be woken, so who waits looks for a while, and gives way in between: if
// ranks share a CPU, what the others have to send is what it waits for. What takes long gains nothing by it: results come
// before they are waited for. Nor does who shares a CPU with something that computes: it would not be given it back for a result,
// as who is woken is.
void Communicator::wait(Operation &operation) {
    std::unique_lock lock(mutex_);
    const uint64_t poll_ns = uint64_t{options_.poll_us} * 1000, began_ns = monotonic_ns();
    uint64_t came_ns = began_ns;
    while (!operation.done()) {
        const uint64_t now = monotonic_ns();
        const bool polls = now - came_ns < poll_ns && now - began_ns < 4 * poll_ns && now >= poll_from_ns_;
        if (progress(polls ? 0ns : drive_wait))
            came_ns = monotonic_ns();
        else if (polls)
            give_way();
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

void Communicator::give_way() {
    const uint64_t before_ns = monotonic_ns();
    std::this_thread::yield();
    const uint64_t back_ns = monotonic_ns();
    if (back_ns - before_ns > others_turn_ns)
        poll_from_ns_ = back_ns + poll_pause_ns;
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
    return carrier_->stats();
}

uint32_t Communicator::blocks_ahead() {
    const std::lock_guard lock(mutex_);
    while (progress(0ns))
        ;
    return broken_ ? 0 : carrier_->blocks_ahead();
}

uint32_t Communicator::block_elements(inagg_dtype dtype, inagg_op op) {
    const std::lock_guard lock(mutex_);
    return inagg::block_elements(carrier_->elements(), dtype, op, carrier_->floats());
}

// Let the carrier work; an error ends all operations. True if something came. The lock is held.
bool Communicator::progress(std::chrono::nanoseconds wait) {
    if (broken_)
        return false;
    const FloatMode mode;
    try {
        const bool came = carrier_->progress(wait);
        forget_finished();
        if (!operations_.empty())
            check_deadline();
        return came;
    } catch (const std::exception &) {
        break_off(current_error());
        return false;
    }
}

void Communicator::forget_finished() {
    while (!operations_.empty() && operations_.front()->done()) {
        operations_.pop_front();
        oldest_since_ns_ = monotonic_ns();
    }
}

void Communicator::check_deadline() {
    const uint64_t limit = uint64_t{options_.timeout_ms} * 1'000'000;
    const uint64_t since = std::max(oldest_since_ns_, operations_.front()->progress_ns);
    if (monotonic_ns() - since <= limit)
        return;
    if (const std::optional<std::string> why = carrier_->stall())
        throw deadline_passed(options_, *why);
}

void Communicator::break_off(const Error &error) {
    broken_ = error;
    for (const Handle &operation : operations_) {
        if (operation->done())
            continue;
        operation->set_error(error);
        operation->finish();
    }
    operations_.clear();
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
            // Others may decide blocks without us faster than a look in each period could fetch.
            while (progress(0ns) && !mutex_.contended())
                ;
            while (!broken_ && !operations_.empty() && !mutex_.contended())
                progress(keeper_wait);
        }
        lock.lock();
    }
}

} // namespace inagg
