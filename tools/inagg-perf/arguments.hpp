// SPDX-License-Identifier: BSD-2-Clause
// What the user asked for.
#pragma once

#include <inagg/inagg.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace perf {

enum class Collective { allreduce, broadcast, reduce, barrier };

// A rank that sleeps before some of its iterations.
struct Straggler {
    unsigned rank;
    std::chrono::microseconds time;
    unsigned every; // iterations
};

// What one row measures.
struct Operation {
    inagg_dtype dtype = INAGG_FLOAT32;
    inagg_op op = INAGG_SUM;
    size_t count = 0; // elements

    bool operator==(const Operation &) const = default;
};

struct Arguments {
    Collective collective = Collective::allreduce;
    std::vector<Operation> operations;
    int iterations = 20;
    int warmup = 5;
    int check_iterations = 2;
    int inflight = 1;
    int tensors = 1; // different ones that take turns while times are taken
    uint64_t seed = 1;
    size_t outliers = 0; // each so many elements one is far larger; 0: none
    std::optional<Straggler> straggler;
    bool check = false;
    bool in_place = false;
    bool json = false;
};

/** Bytes of one element. */
size_t element_bytes(inagg_dtype dtype);
const char *name_of(inagg_dtype dtype);
const char *name_of(inagg_op op);
const char *name_of(Collective collective);

/**
 * Parse the command line. Options that say how to join go to the environment, where
 * inagg_options_from_env() finds them. Exits with a message on a wrong argument and on --help.
 */
Arguments parse_arguments(int argc, char **argv);

} // namespace perf
