// SPDX-License-Identifier: BSD-2-Clause
// One run: a network, allreduces on some of its hosts, other traffic between the others.
#pragma once

#include "host.hpp"
#include "switch.hpp"

#include <ns3/random-variable-stream.h>

#include <string>

namespace sim {

enum class Algorithm { switchml, canary, ring };
enum class Placement { packed, scattered };
enum class Traffic { none, permutation, uniform };

struct Options {
    Shape shape;
    Algorithm algorithm = Algorithm::switchml;
    uint32_t trees = 1;
    uint32_t ranks = 0; // of all jobs together; 0: all hosts
    uint32_t jobs = 1;
    Placement placement = Placement::packed;
    uint64_t bytes = 4 << 20;
    uint32_t elements = 256, slots = 128, descriptors = 32768;
    uint64_t patience_ns = 1000, rto_floor_ns = 0, jitter_ns = 1000;
    bool two_descriptors = false;
    Traffic background = Traffic::none;
    uint64_t message_bytes = 256 << 10, window_bytes = 256 << 10; // of the background and the ring
    uint64_t warm_up_ns = 50'000;                                 // before the jobs begin
    uint64_t limit_ns = 10'000'000'000;
    uint64_t seed = 1;
    bool progress = false;
};

struct Allreduce {
    uint32_t ranks = 0;
    double seconds = 0, gbps = 0; // its tensor's bits for each second, until the last rank has them
};

struct Results {
    std::vector<Allreduce> jobs;
    std::vector<double> links; // utilisation of each, while the jobs ran
    Counters counters;
    uint64_t drops = 0, events = 0;
    double simulated_s = 0;
};

// The same options give the same results. Throws Violation if a sum is wrong, or if the jobs do not end.
Results run(const Options &options);

} // namespace sim
