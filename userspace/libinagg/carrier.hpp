// SPDX-License-Identifier: BSD-2-Clause
// The seam between the communicator, which knows calls, and what carries their tensors to the switch.
//
//   Communicator (communicator.cpp)   calls in order, handles, deadlines, a thread that keeps them moving
//   Carrier                           moves tensors
//     BlockCarrier                    cuts them into blocks for a Transport: xdp, afxdp, udp
//     KernelCarrier (kernel.cpp)      gives them to an AF_INAGG socket: kernel
//     Forest (forest.cpp)             shares them out to carriers, each with a tree of switches of its own
//     BySize (by_size.cpp)            gives a carrier large ones only, and the others to a Ring of hosts (ring.cpp)
//     Wide (wide.cpp)                 makes two reductions of one of 64-bit elements
#pragma once

#include "error.hpp"
#include "stragglers.hpp"

#include <inagg/core/tensor.h>
#include <inagg/inagg.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inagg {

// What one rank wants of a collective call.
struct Call {
    enum class Kind { reduction, broadcast, barrier, renewal, leaving } kind = Kind::barrier;
    const void *send = nullptr; // broadcast: as recv
    void *recv = nullptr;       // null: the result is not wanted here
    std::size_t count = 0;
    inagg_dtype dtype = INAGG_INT32;
    inagg_op op = INAGG_SUM;
    bool root = false;
    int root_rank = -1;        // of all ranks that one; -1: all are alike
    bool is_agreement = false; // its result is no user's, and need not be verified
    uint64_t context = 0;      // what the ranks have agreed on before it: verified with its sums
};

// A block of a broadcast that was decided without its root: it holds nothing.
inline bool lacks_root(const Call &call, uint64_t contributors) {
    return call.kind == Call::Kind::broadcast && !(contributors & inagg_rank_bit(static_cast<uint32_t>(call.root_rank)));
}

// A call under way. Owned jointly by the communicator and the caller's handle; carriers add what they need.
class Operation {
public:
    explicit Operation(const Call &what) : call(what) {}
    virtual ~Operation() = default;

    bool done() const { return done_.load(std::memory_order_acquire); }
    // Throws what went wrong, once done.
    void check() const {
        if (error_)
            throw *error_;
    }
    // It will end with this error, unless with an earlier one.
    void set_error(const Error &error) {
        if (!error_)
            error_ = error;
    }
    // Its buffers are the caller's again.
    void finish() { done_.store(true, std::memory_order_release); }

    const Call call;
    uint64_t blocks = 0;                // that its elements travelled in
    uint32_t block_elements = 0;        // in each of them but the last
    bool renews = false;                // a renewal: all ranks go on to the next generation
    std::vector<uint64_t> contributors; // of each block; empty: all ranks, everywhere
    uint64_t progress_ns = 0;           // when something of its result came last

private:
    std::optional<Error> error_;
    std::atomic<bool> done_{false};
};

using Handle = std::shared_ptr<Operation>;

// Of whom the result of an operation that is done is made, in a job of `size` ranks.
inagg_outcome outcome_of(const Operation &operation, uint16_t size);

// The operator that travels: an average is a sum, divided where it arrives.
constexpr inagg_op carried(inagg_op op) { return op == INAGG_AVG ? INAGG_SUM : op; }
// Elements of a reduction that travel in one block, in a job with so many 32-bit elements a packet and `floats` as
// inagg_floats_of() says.
uint32_t block_elements(uint16_t elements, inagg_dtype dtype, inagg_op op, uint32_t floats);

// Throws INAGG_EINVAL for a reduction that cannot be verified, if options.key says that results are.
void check_verifiable(const Call &call, const inagg_options &options, uint32_t floats);

// A rank's membership of a job. Used by one thread at a time, not always the same.
class Carrier {
public:
    virtual ~Carrier() = default;
    // Name of the transport.
    virtual std::string_view name() const = 0;
    // An operation for start(). Throws for calls that this carrier cannot carry.
    virtual Handle prepare(const Call &call) = 0;
    // Queue it behind those started before; `operation` stays alive until it is finished or this carrier
    // is never used again but to leave. Throws when the membership has ended.
    virtual void start(const Handle &operation) = 0;
    // Move what can move; finish() what is done. If nothing can, sleep up to `wait` for it. True if something came:
    // there may be more. Throws when the membership has ended or the system fails.
    virtual bool progress(std::chrono::nanoseconds wait) = 0;
    // Data blocks of calls that have not been started yet whose results are here.
    virtual uint32_t blocks_ahead() const { return 0; }
    // As Transport's; renew() when all operations are done, the last a renewal that renews.
    virtual Stragglers stragglers() const { return {}; }
    virtual bool renew() { return true; }
    // 32-bit elements in a packet of the job.
    virtual uint16_t elements() const = 0;
    // How sums of floats travel.
    virtual uint32_t floats() const { return INAGG_FLOATS_FIXED; }
    // Readable when something has come for progress(); -1 if nothing tells.
    virtual int descriptor() const { return -1; }
    // What the oldest operation waits for, for the message of a deadline that has passed. Nothing: whatever
    // carries the tensors has deadlines of its own.
    virtual std::optional<std::string> stall() const = 0;
    virtual inagg_stats_t stats() const = 0;
    // After a barrier of all that are leaving: for how long others may need its result from this rank.
    virtual std::chrono::nanoseconds linger() const { return {}; }
    // Tell the switch that this rank leaves; best effort, does not wait.
    virtual void leave() = 0;
};

// Joins the job with the transport that options.transport names and returns when the switch has
// accepted the rank. `note` receives why `auto` passed over faster transports. Throws inagg::Error.
std::unique_ptr<Carrier> make_carrier(const inagg_options &options, std::string &note);
// Whatever happens to one of them.
void leave_all(const std::vector<std::unique_ptr<Carrier>> &trees);

} // namespace inagg
