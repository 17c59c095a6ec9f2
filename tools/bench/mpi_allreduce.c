// SPDX-License-Identifier: BSD-2-Clause
// mpi-allreduce BYTES:ITERATIONS...: time of MPI_Allreduce of float32, one JSON object a line from rank 0.
// Open MPI's algorithm is chosen on mpirun's command line.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static void *allocate(size_t bytes) {
    void *memory = malloc(bytes);

    if (!memory) {
        fprintf(stderr, "mpi-allreduce: cannot allocate %zu bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

// Maximum over ranks of the median time in microseconds; -1 if a result is wrong anywhere.
static double measure(size_t bytes, int iterations, int ranks) {
    int count = (int)(bytes / sizeof(float)), warmup = iterations / 5 + 1, wrong = 0;
    float *send = allocate(bytes), *recv = allocate(bytes);
    double *times = allocate(iterations * sizeof(*times)), median, result;

    for (int i = 0; i < count; i++)
        send[i] = (float)(i % 1000);
    for (int i = 0; i < warmup; i++)
        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < iterations; i++) {
        double start = MPI_Wtime();

        MPI_Allreduce(send, recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        times[i] = MPI_Wtime() - start;
    }
    for (int i = 0; i < count; i++)
        wrong |= recv[i] != (float)(i % 1000) * (float)ranks;
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    qsort(times, iterations, sizeof(*times), compare);
    median = times[iterations / 2] * 1e6;
    MPI_Allreduce(&median, &result, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    free(send);
    free(recv);
    free(times);
    return wrong ? -1 : result;
}

int main(int argc, char **argv) {
    int rank, ranks;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    for (int i = 1; i < argc; i++) {
        size_t bytes;
        int iterations;
        double time;

        if (sscanf(argv[i], "%zu:%d", &bytes, &iterations) != 2 || iterations < 1) {
            fprintf(stderr, "mpi-allreduce: %s: want BYTES:ITERATIONS\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        time = measure(bytes, iterations, ranks);
        if (time < 0) {
            fprintf(stderr, "mpi-allreduce: wrong sum of %zu bytes\n", bytes);
            MPI_Abort(MPI_COMM_WORLD, 1);
        }
        if (rank == 0) {
            printf("{\"size\": %zu, \"workers\": %d, \"time_us\": %.3f}\n", bytes, ranks, time);
            fflush(stdout);
        }
    }
    MPI_Finalize();
    return 0;
}
