// SPDX-License-Identifier: BSD-2-Clause
// mpi-victim SIGNAL RANK {world|half|started|fatal}: sums for ever, on MPI_COMM_WORLD or on its even and odd ranks, until
// RANK sends itself SIGNAL. The others print the error that they get, and after how many seconds.
#include <mpi.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

namespace {

constexpr unsigned patience = 5; // seconds, so that all have printed before the first one ends

// One sum; what MPI says of it.
int sum(std::vector<double> &numbers, MPI_Comm comm, bool starts) {
    const int count = static_cast<int>(numbers.size());
    if (!starts)
        return MPI_Allreduce(MPI_IN_PLACE, numbers.data(), count, MPI_DOUBLE, MPI_SUM, comm);
    MPI_Request request;
    const int code = MPI_Iallreduce(MPI_IN_PLACE, numbers.data(), count, MPI_DOUBLE, MPI_SUM, comm, &request);
    return code == MPI_SUCCESS ? MPI_Wait(&request, MPI_STATUS_IGNORE) : code;
}

} // namespace

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    const std::string how = argc > 3 ? argv[3] : "world";
    int rank, length, rank_there;
    MPI_Comm comm = MPI_COMM_WORLD;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (how == "half")
        MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &comm);
    MPI_Comm_rank(comm, &rank_there);
    if (how != "fatal") {
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
        MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    }
    std::vector<double> numbers(10000, 0);
    int code = MPI_SUCCESS;
    double last = MPI_Wtime();
    for (int i = 0; code == MPI_SUCCESS; i++) {
        if (i == 20 && rank == std::atoi(argv[2]))
            std::raise(std::atoi(argv[1]));
        last = MPI_Wtime();
        code = sum(numbers, comm, how == "started");
        if (i > 2000)
            break; // a communicator that nobody of died
    }
    char text[MPI_MAX_ERROR_STRING] = "none";
    if (code != MPI_SUCCESS)
        MPI_Error_string(code, text, &length);
    std::printf("{\"rank\": %d, \"there\": %d, \"seconds\": %.1f, \"error\": \"%s\"}\n", rank, rank_there, MPI_Wtime() - last,
                text);
    std::fflush(stdout);
    sleep(patience);
    _exit(0);
}
