// SPDX-License-Identifier: BSD-2-Clause
// Fortran's names of the same calls. Open MPI's Fortran libraries call PMPI_ functions, which no profiling
// library sees; `use mpi` and mpif.h come in by mpi_NAME_, `use mpi_f08` by Open MPI's own ompi_NAME_f.
#include <mpi.h>

#ifdef OPEN_MPI

#define FORTRAN(name, parameters)                                                                                                \
    void mpi_##name##_ parameters;                                                                                               \
    void ompi_##name##_f parameters __attribute__((alias("mpi_" #name "_")));                                                    \
    void mpi_##name##_ parameters

namespace {

void return_code(int code, MPI_Fint *error) {
    if (error)
        *error = code;
}

} // namespace

#pragma GCC visibility push(default)
extern "C" {

// Addresses of these stand for C's constants.
extern int mpi_fortran_in_place_, mpi_fortran_bottom_;

static void *buffer(void *address) {
    return address == &mpi_fortran_in_place_ ? MPI_IN_PLACE : address == &mpi_fortran_bottom_ ? MPI_BOTTOM : address;
}

FORTRAN(init, (MPI_Fint * error)) { return_code(MPI_Init(nullptr, nullptr), error); }

FORTRAN(init_thread, (MPI_Fint * required, MPI_Fint *provided, MPI_Fint *error)) {
    return_code(MPI_Init_thread(nullptr, nullptr, *required, provided), error);
}

FORTRAN(allreduce, (void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm, MPI_Fint *error)) {
    return_code(MPI_Allreduce(buffer(send), buffer(recv), *count, PMPI_Type_f2c(*type), PMPI_Op_f2c(*op), PMPI_Comm_f2c(*comm)),
                error);
}

FORTRAN(iallreduce, (void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *comm, MPI_Fint *request,
                     MPI_Fint *error)) {
    MPI_Request started;
    const int code = MPI_Iallreduce(buffer(send), buffer(recv), *count, PMPI_Type_f2c(*type), PMPI_Op_f2c(*op),
                                    PMPI_Comm_f2c(*comm), &started);
    if (code == MPI_SUCCESS)
        *request = PMPI_Request_c2f(started);
    return_code(code, error);
}

FORTRAN(reduce, (void *send, void *recv, MPI_Fint *count, MPI_Fint *type, MPI_Fint *op, MPI_Fint *root, MPI_Fint *comm,
                 MPI_Fint *error)) {
    return_code(
        MPI_Reduce(buffer(send), buffer(recv), *count, PMPI_Type_f2c(*type), PMPI_Op_f2c(*op), *root, PMPI_Comm_f2c(*comm)),
        error);
}

FORTRAN(bcast, (void *data, MPI_Fint *count, MPI_Fint *type, MPI_Fint *root, MPI_Fint *comm, MPI_Fint *error)) {
    return_code(MPI_Bcast(buffer(data), *count, PMPI_Type_f2c(*type), *root, PMPI_Comm_f2c(*comm)), error);
}

FORTRAN(barrier, (MPI_Fint * comm, MPI_Fint *error)) { return_code(MPI_Barrier(PMPI_Comm_f2c(*comm)), error); }

} // extern "C"
#pragma GCC visibility pop

#endif
