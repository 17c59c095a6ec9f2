// SPDX-License-Identifier: BSD-2-Clause
// The calls that are taken. Whatever decides between the switch and MPI is alike on all ranks: a
// communicator, an operator, a number of bytes. Bad arguments go to MPI, which says what is wrong with them.
#include "session.hpp"

#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

namespace inagg::mpi {

namespace {

// That of a communicator on which a call of so many bytes is carried; null if MPI does it.
Offload *offload_for(Session &session, MPI_Comm comm, uint64_t bytes) {
    Offload &offload = session.offload(comm);
    const char *why = nullptr;
    if (!offload.objection().empty())
        why = offload.objection().c_str();
    else if (bytes < session.settings().min_bytes)
        why = "below INAGG_MPI_MIN_BYTES";
    else if (bytes > session.settings().max_bytes)
        why = "above INAGG_MPI_MAX_BYTES";
    if (why)
        session.report().left(why);
    return why ? nullptr : &offload;
}

struct Plan {
    Offload &offload;
    Travel travel;
    uint64_t bytes;
};

// How a reduction is carried, if it is.
std::optional<Plan> plan_reduction(int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    Session *const session = Session::current();
    if (!session || count <= 0 || comm == MPI_COMM_NULL)
        return std::nullopt;
    const auto travel = travel_of(type, op, session->settings());
    if (const Reason *why = std::get_if<Reason>(&travel)) {
        session->report().left(*why);
        return std::nullopt;
    }
    const uint64_t bytes = std::get<Travel>(travel).bytes * static_cast<uint64_t>(count);
    Offload *const offload = offload_for(*session, comm, bytes);
    return offload ? std::optional<Plan>({*offload, std::get<Travel>(travel), bytes}) : std::nullopt;
}

bool is_rank(int root, MPI_Comm comm) {
    int size = 0;
    return comm != MPI_COMM_NULL && PMPI_Comm_size(comm, &size) == MPI_SUCCESS && root >= 0 && root < size;
}

// Bytes that travel as words: the root's elements, in the order of their type's signature, which all ranks
// have in common.
class Broadcast {
public:
    Broadcast(void *buffer, int count, MPI_Datatype type, int bytes)
        : buffer_(buffer), count_(count), type_(type), bytes_(bytes), words_((bytes + sizeof(int32_t) - 1) / sizeof(int32_t)),
          is_plain_(mpi::is_plain(type)) {
        if (!is_plain_ || bytes % sizeof(int32_t))
            packed_ = std::make_unique_for_overwrite<int32_t[]>(words_);
    }

    int carry(inagg_comm *job, int root, MPI_Comm comm) {
        const bool is_root = inagg_rank(job) == root;
        if (packed_ && is_root)
            pack(comm);
        const int error =
            inagg_broadcast(job, packed_ ? packed_.get() : buffer_, words_, INAGG_INT32, static_cast<uint16_t>(root));
        if (packed_ && !is_root && error == INAGG_OK)
            unpack(comm);
        return error;
    }

private:
    void pack(MPI_Comm comm) {
        int position = 0;
        packed_[words_ - 1] = 0;
        if (is_plain_)
            std::memcpy(packed_.get(), buffer_, bytes_);
        else
            PMPI_Pack(buffer_, count_, type_, packed_.get(), bytes_, &position, comm);
    }

    void unpack(MPI_Comm comm) {
        int position = 0;
        if (is_plain_)
            std::memcpy(buffer_, packed_.get(), bytes_);
        else
            PMPI_Unpack(packed_.get(), bytes_, &position, buffer_, count_, type_, comm);
    }

    void *const buffer_;
    const int count_;
    const MPI_Datatype type_;
    const int bytes_;
    const std::size_t words_;
    const bool is_plain_;
    std::unique_ptr<int32_t[]> packed_; // unless memory has it already
};

// Of a broadcast; nothing if the arguments are bad or there are none.
std::optional<uint64_t> bytes_of(int count, MPI_Datatype type) {
    int bytes;
    if (count <= 0 || type == MPI_DATATYPE_NULL || PMPI_Type_size(type, &bytes) != MPI_SUCCESS || bytes <= 0)
        return std::nullopt;
    return static_cast<uint64_t>(bytes) * static_cast<uint64_t>(count);
}

// Threads of ours call MPI, so it has to allow that, whatever the application asked for.
int init(int *argc, char ***argv, int required, int *provided) {
    const int code = PMPI_Init_thread(argc, argv, std::getenv("INAGG_SWITCH") ? MPI_THREAD_MULTIPLE : required, provided);
    if (code == MPI_SUCCESS)
        Session::begin(*provided);
    return code;
}

} // namespace

} // namespace inagg::mpi

using namespace inagg::mpi;

#pragma GCC visibility push(default)
extern "C" {

int MPI_Init(int *argc, char ***argv) {
    int provided;
    return init(argc, argv, MPI_THREAD_SINGLE, &provided);
}

int MPI_Init_thread(int *argc, char ***argv, int required, int *provided) { return init(argc, argv, required, provided); }

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm) {
    const auto by_mpi = [=](MPI_Comm on) { return PMPI_Allreduce(send, recv, count, type, op, on); };
    const auto plan = recv == MPI_IN_PLACE ? std::nullopt : plan_reduction(count, type, op, comm);
    if (!plan)
        return by_mpi(comm);
    const auto carry = [&](inagg_comm *job) {
        Reduction reduction(plan->travel, send == MPI_IN_PLACE ? recv : send, recv, count);
        const int error = inagg_allreduce(job, reduction.send(), reduction.recv(), count, plan->travel.dtype, plan->travel.op);
        if (error == INAGG_OK)
            reduction.deliver();
        return error;
    };
    return plan->offload.run({"MPI_Allreduce", plan->bytes, carry, by_mpi});
}

int MPI_Reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm) {
    const auto by_mpi = [=](MPI_Comm on) { return PMPI_Reduce(send, recv, count, type, op, root, on); };
    const auto plan = is_rank(root, comm) ? plan_reduction(count, type, op, comm) : std::nullopt;
    const bool is_root = plan && plan->offload.rank() == root;
    if (!plan || (is_root ? recv : send) == MPI_IN_PLACE)
        return by_mpi(comm);
    const auto carry = [&](inagg_comm *job) {
        Reduction reduction(plan->travel, send == MPI_IN_PLACE ? recv : send, is_root ? recv : nullptr, count);
        const int error = inagg_reduce(job, reduction.send(), reduction.recv(), count, plan->travel.dtype, plan->travel.op,
                                       static_cast<uint16_t>(root));
        if (error == INAGG_OK)
            reduction.deliver();
        return error;
    };
    return plan->offload.run({"MPI_Reduce", plan->bytes, carry, by_mpi});
}

int MPI_Iallreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request) {
    const auto by_mpi = [=](MPI_Comm on) { return PMPI_Allreduce(send, recv, count, type, op, on); };
    const auto plan = recv == MPI_IN_PLACE ? std::nullopt : plan_reduction(count, type, op, comm);
    if (!plan)
        return PMPI_Iallreduce(send, recv, count, type, op, comm, request);
    const Collective call{"MPI_Iallreduce", plan->bytes, nullptr, by_mpi};
    return plan->offload.start(std::make_unique<PendingSum>(plan->travel, send == MPI_IN_PLACE ? recv : send, recv, count, call),
                               request);
}

int MPI_Bcast(void *buffer, int count, MPI_Datatype type, int root, MPI_Comm comm) {
    const auto by_mpi = [=](MPI_Comm on) { return PMPI_Bcast(buffer, count, type, root, on); };
    Session *const session = Session::current();
    const auto bytes = bytes_of(count, type);
    if (!session || !bytes || !is_rank(root, comm))
        return by_mpi(comm);
    if (*bytes > INT_MAX) { // which MPI_Pack() cannot count
        session->report().left("broadcast of 2 GiB and more");
        return by_mpi(comm);
    }
    Offload *const offload = offload_for(*session, comm, *bytes);
    if (!offload)
        return by_mpi(comm);
    const auto carry = [&](inagg_comm *job) {
        return Broadcast(buffer, count, type, static_cast<int>(*bytes)).carry(job, root, comm);
    };
    return offload->run({"MPI_Bcast", *bytes, carry, by_mpi});
}

int MPI_Barrier(MPI_Comm comm) {
    Session *const session = Session::current();
    Offload *const offload = session && comm != MPI_COMM_NULL ? &session->offload(comm) : nullptr;
    if (offload && offload->objection().empty())
        return offload->run({"MPI_Barrier", 0, inagg_barrier, PMPI_Barrier});
    if (offload)
        session->report().left(offload->objection());
    return PMPI_Barrier(comm);
}

} // extern "C"
#pragma GCC visibility pop
