// SPDX-License-Identifier: BSD-2-Clause
// Failures of libinagg as errors of MPI.
#pragma once

#include <mpi.h>

#include <string>

namespace inagg::mpi {

// An error code whose MPI_Error_string() is @text, as much of it as MPI has room for.
int error_code(const std::string &text);

// Call the error handler of @comm; returns the code if that returns.
int raise(MPI_Comm comm, int code);

// What is meant by ranks of this communicator in a message: its name, or its size.
std::string describe(MPI_Comm comm);

} // namespace inagg::mpi
