// SPDX-License-Identifier: BSD-2-Clause
// Which types and operators can be carried exactly, and as what.
#pragma once

#include "settings.hpp"

#include <inagg/inagg.h>
#include <mpi.h>

#include <cstddef>
#include <memory>
#include <string>
#include <variant>

namespace inagg::mpi {

// How the elements of a reduction travel.
struct Travel {
    inagg_dtype dtype;
    inagg_op op;
    std::size_t bytes; // of an element in memory
    // To the type that travels and back; null: memory has it already.
    void (*encode)(const void *from, void *to, std::size_t count);
    void (*decode)(const void *from, void *to, std::size_t count);
};

// Why a call is left to MPI, in a few words.
using Reason = std::string;

std::variant<Travel, Reason> travel_of(MPI_Datatype type, MPI_Op op, const Settings &settings);

// Elements on their way.
class Reduction {
public:
    // @recv may be null where no result is wanted. MPI_IN_PLACE is the caller's to replace.
    Reduction(const Travel &travel, const void *send, void *recv, std::size_t count);

    const Travel &travel() const { return travel_; }
    std::size_t count() const { return count_; }
    const void *send() const { return coded_ ? coded_.get() : send_; }
    void *recv() { return coded_ ? coded_.get() : recv_; }
    // The result has arrived.
    void deliver();

private:
    const Travel travel_;
    const void *const send_;
    void *const recv_;
    const std::size_t count_;
    std::unique_ptr<std::byte[]> coded_; // in the type that travels, if that is another one
};

// Is @type one of MPI's own without gaps, so that its elements are the bytes of a call?
bool is_plain(MPI_Datatype type);

} // namespace inagg::mpi
