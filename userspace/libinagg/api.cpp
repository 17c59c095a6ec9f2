// SPDX-License-Identifier: BSD-2-Clause
// The C API: handles, error numbers and messages around Communicator.
#pragma GCC visibility push(default) // these declarations, and nothing else, leave the library
#include <inagg/inagg.h>
#pragma GCC visibility pop

#include "communicator.hpp"
#include "error.hpp"
#include "options.hpp"
#include "wide.hpp"

#include <unistd.h>

#include <cstring>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

using inagg::Communicator;
using inagg::Error;

struct inagg_comm {
    explicit inagg_comm(const inagg_options &options) : communicator(options) {}
    Communicator communicator;
    const pid_t owner = getpid();    // a child of fork() has neither its threads nor a membership
    std::shared_ptr<inagg_comm> own; // until inagg_leave(): its requests may be there for longer
};

struct inagg_request {
    std::shared_ptr<inagg_comm> comm;
    Communicator::Handle operation;
};

namespace {

thread_local std::string last_message;
// Of this thread's last call that succeeded.
thread_local inagg_outcome last_outcome;
thread_local std::vector<uint64_t> last_contributors;

int fail(int code, const char *message) noexcept {
    try {
        last_message = message;
    } catch (...) { // out of memory: an older message stays
    }
    return code;
}

// Run `body`; what it throws becomes an error number and this thread's message.
template <typename Body> int guarded(Body body) noexcept {
    try {
        body();
        return INAGG_OK;
    } catch (const Error &error) {
        return fail(error.code(), error.what());
    } catch (const std::bad_alloc &) {
        return fail(INAGG_ESYSTEM, "out of memory");
    } catch (const std::exception &error) {
        return fail(INAGG_ESYSTEM, error.what());
    }
}

// Wait for an operation whose handle nobody needs any more.
void finish(Communicator &communicator, const Communicator::Handle &operation) {
    communicator.wait(*operation);
    last_outcome = inagg::outcome_of(*operation, communicator.size());
    last_contributors = std::move(operation->contributors);
}

void require(bool condition, const char *message) {
    if (!condition)
        throw Error(INAGG_EINVAL, std::string(message));
}

void require_comm(const inagg_comm *comm) {
    require(comm, "the communicator is NULL");
    if (comm->owner != getpid())
        throw Error(INAGG_ECLOSED,
                    "process {} has joined with this communicator, and not its child {}: join here again, as another rank",
                    comm->owner, getpid());
}

// C callers can pass any number as an enumeration; C++ may not even read it as one.
template <typename Enum> int number_of(const Enum &value) {
    static_assert(sizeof(value) == sizeof(int));
    int number;
    std::memcpy(&number, &value, sizeof(number));
    return number;
}

void check_dtype(const inagg_dtype &dtype) {
    const int number = number_of(dtype);
    const bool known = (number >= 0 && number < INAGG_DTYPES) || number == INAGG_INT64 || number == INAGG_FLOAT64;
    if (!known)
        throw Error(INAGG_EINVAL, "data type {}: use an inagg_dtype", number);
}

void check_root(const inagg_comm *comm, uint16_t root) {
    if (root >= comm->communicator.size())
        throw Error(INAGG_EINVAL, "root {}: with {} ranks it must be 0 to {}", root, comm->communicator.size(),
                    comm->communicator.size() - 1);
}

// Blocks are numbered in 32 bits; half of them, minus some, may be in flight.
void check_count(std::size_t count) {
    constexpr std::size_t most = std::size_t{1} << 35;
    if (count > most)
        throw Error(INAGG_EINVAL, "{} elements in one call: at most {}", count, most);
}

void check_reduction(const void *send, const void *recv, std::size_t count, const inagg_dtype &dtype, const inagg_op &op) {
    require(count == 0 || (send && recv), "a buffer is NULL");
    check_count(count);
    check_dtype(dtype);
    if (const int number = number_of(op); number < 0 || number >= INAGG_OPS)
        throw Error(INAGG_EINVAL, "operator {}: use an inagg_op", number);
    if (op == INAGG_AVG && (dtype == INAGG_INT32 || dtype == INAGG_INT64))
        throw Error(INAGG_EINVAL, "average of integers: it is none; sum, and divide, or use a float type");
}

// The collectives, begun.

inagg::Handle allreduce(inagg_comm *comm, const void *send, void *recv, std::size_t count, const inagg_dtype &dtype,
                        const inagg_op &op) {
    check_reduction(send, recv, count, dtype, op);
    return comm->communicator.allreduce(send, recv, count, dtype, op);
}

inagg::Handle broadcast(inagg_comm *comm, void *data, std::size_t count, const inagg_dtype &dtype, uint16_t root) {
    require(count == 0 || data, "the buffer is NULL");
    check_count(count);
    check_dtype(dtype);
    check_root(comm, root);
    return comm->communicator.broadcast(data, count, dtype, root);
}

inagg::Handle reduce(inagg_comm *comm, const void *send, void *recv, std::size_t count, const inagg_dtype &dtype,
                     const inagg_op &op, uint16_t root) {
    check_root(comm, root);
    check_reduction(send, comm->communicator.rank() == root ? recv : send, count, dtype, op);
    return comm->communicator.reduce(send, recv, count, dtype, op, root);
}

// Begin a collective and wait for it.
template <typename Begin> int finished(inagg_comm *comm, Begin begin) {
    return guarded([&] {
        require_comm(comm);
        finish(comm->communicator, begin());
    });
}

// Begin a collective that `*request` stands for.
template <typename Begin> int requested(inagg_comm *comm, inagg_request **request, Begin begin) {
    return guarded([&] {
        require(request, "the request is NULL");
        *request = nullptr;
        require_comm(comm);
        auto handle = std::make_unique<inagg_request>(inagg_request{comm->own, nullptr});
        handle->operation = begin();
        comm->communicator.test(*handle->operation); // sends the first blocks
        *request = handle.release();
    });
}

} // namespace

extern "C" {

void inagg_options_init(inagg_options *options) { *options = inagg::default_options(); }

int inagg_options_from_env(inagg_options *options) {
    return guarded([&] {
        require(options, "the options are NULL");
        *options = inagg::options_from_env();
    });
}

int inagg_options_for_rank(inagg_options *options, uint16_t rank, uint16_t size) {
    return guarded([&] {
        require(options, "the options are NULL");
        *options = inagg::options_for_rank(rank, size);
    });
}

int inagg_join(const inagg_options *options, inagg_comm **comm) {
    return guarded([&] {
        require(options && comm, "the options or the result are NULL");
        *comm = nullptr;
        const auto made = std::make_shared<inagg_comm>(*options);
        made->own = made;
        *comm = made.get();
    });
}

int inagg_leave(inagg_comm *comm) {
    if (!comm || comm->owner != getpid()) // the parent's, who goes on with it: what a child has of it goes with its memory
        return INAGG_OK;
    const auto own = std::move(comm->own);
    return guarded([&] { own->communicator.leave(); });
}

uint16_t inagg_rank(const inagg_comm *comm) { return comm->communicator.rank(); }

uint16_t inagg_size(const inagg_comm *comm) { return comm->communicator.size(); }

const char *inagg_transport(const inagg_comm *comm) { return comm->communicator.transport_name(); }

const char *inagg_transport_note(const inagg_comm *comm) { return comm->communicator.transport_note(); }

void inagg_get_stats(inagg_comm *comm, inagg_stats_t *stats) {
    *stats = comm->owner == getpid() ? comm->communicator.stats() : inagg_stats_t{};
}

int inagg_allreduce(inagg_comm *comm, const void *send, void *recv, size_t count, inagg_dtype dtype, inagg_op op) {
    return finished(comm, [&] { return allreduce(comm, send, recv, count, dtype, op); });
}

int inagg_iallreduce(inagg_comm *comm, const void *send, void *recv, size_t count, inagg_dtype dtype, inagg_op op,
                     inagg_request **request) {
    return requested(comm, request, [&] { return allreduce(comm, send, recv, count, dtype, op); });
}

int inagg_broadcast(inagg_comm *comm, void *data, size_t count, inagg_dtype dtype, uint16_t root) {
    return finished(comm, [&] { return broadcast(comm, data, count, dtype, root); });
}

int inagg_ibroadcast(inagg_comm *comm, void *data, size_t count, inagg_dtype dtype, uint16_t root, inagg_request **request) {
    return requested(comm, request, [&] { return broadcast(comm, data, count, dtype, root); });
}

int inagg_reduce(inagg_comm *comm, const void *send, void *recv, size_t count, inagg_dtype dtype, inagg_op op, uint16_t root) {
    return finished(comm, [&] { return reduce(comm, send, recv, count, dtype, op, root); });
}

int inagg_ireduce(inagg_comm *comm, const void *send, void *recv, size_t count, inagg_dtype dtype, inagg_op op, uint16_t root,
                  inagg_request **request) {
    return requested(comm, request, [&] { return reduce(comm, send, recv, count, dtype, op, root); });
}

int inagg_barrier(inagg_comm *comm) {
    return finished(comm, [&] { return comm->communicator.barrier(); });
}

int inagg_ibarrier(inagg_comm *comm, inagg_request **request) {
    return requested(comm, request, [&] { return comm->communicator.barrier(); });
}

int inagg_wait(inagg_request *request) {
    return guarded([&] {
        require(request, "the request is NULL");
        const std::unique_ptr<inagg_request> owned(request);
        require_comm(owned->comm.get());
        finish(owned->comm->communicator, owned->operation);
    });
}

int inagg_test(inagg_request *request) {
    int finished = 1; // also after an error: inagg_wait() tells it
    guarded([&] {
        if (!request)
            return;
        require_comm(request->comm.get());
        finished = request->comm->communicator.test(*request->operation);
    });
    return finished;
}

int inagg_last_outcome(inagg_outcome *outcome) {
    return guarded([&] {
        require(outcome, "the outcome is NULL");
        if (outcome->struct_size != sizeof(*outcome))
            throw Error(INAGG_EINVAL, "outcome.struct_size is {}, not {}: set it to sizeof(inagg_outcome)", outcome->struct_size,
                        sizeof(*outcome));
        require(last_outcome.struct_size, "no call of this thread has succeeded yet: there is no outcome");
        *outcome = last_outcome;
    });
}

uint64_t inagg_last_contributors(uint64_t block) {
    if (block >= last_outcome.blocks)
        return 0;
    return last_contributors.empty() ? last_outcome.in_all : last_contributors[block];
}

int inagg_blocks_ahead(inagg_comm *comm, uint64_t *blocks) {
    return guarded([&] {
        require(blocks, "the result is NULL");
        require_comm(comm);
        *blocks = comm->communicator.blocks_ahead();
    });
}

int inagg_blocks_of_call(inagg_comm *comm, size_t count, inagg_dtype dtype, inagg_op op, uint64_t *blocks) {
    return guarded([&] {
        require(blocks, "the result is NULL");
        require_comm(comm);
        check_reduction(&count, &count, count, dtype, op);
        if (inagg::is_wide(dtype))
            throw Error(INAGG_EINVAL, "blocks of 64-bit elements: how many depends on their values; use a 32-bit type");
        const uint64_t each = comm->communicator.block_elements(dtype, op);
        *blocks = (count + each - 1) / each;
    });
}

int inagg_excluded(inagg_comm *comm, uint64_t *ranks) {
    return guarded([&] {
        require(ranks, "the result is NULL");
        require_comm(comm);
        *ranks = comm->communicator.stragglers().excluded;
    });
}

int inagg_stragglers(inagg_comm *comm, uint64_t *temporary, uint64_t *permanent) {
    return guarded([&] {
        require(temporary && permanent, "a result is NULL");
        require_comm(comm);
        const inagg::Stragglers now = comm->communicator.stragglers();
        *temporary = now.temporary;
        *permanent = now.permanent;
    });
}

int inagg_renew(inagg_comm *comm, int *renewed) {
    return guarded([&] {
        require(renewed, "the result is NULL");
        require_comm(comm);
        *renewed = comm->communicator.renew();
    });
}

const char *inagg_message(void) { return last_message.c_str(); }

const char *inagg_strerror(int error) {
    switch (error) {
    case INAGG_OK:
        return "success";
    case INAGG_EINVAL:
        return "invalid argument or environment";
    case INAGG_ENOSWITCH:
        return "no switch answers";
    case INAGG_EREFUSED:
        return "the switch refuses the join";
    case INAGG_EDEADLINE:
        return "deadline passed without progress";
    case INAGG_ERANGE:
        return "a value does not fit the fixed scale";
    case INAGG_ESYSTEM:
        return "a system call failed";
    case INAGG_EPRIVILEGE:
        return "the transport needs privileges";
    case INAGG_EVERIFY:
        return "a result is not the sum of what the ranks have sent";
    case INAGG_ECLOSED:
        return "the communicator is closed";
    default:
        return "unknown error";
    }
}

const char *inagg_version(void) { return INAGG_VERSION; }

} // extern "C"
