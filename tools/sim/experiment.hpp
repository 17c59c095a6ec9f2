// SPDX-License-Identifier: BSD-2-Clause
// One run: a network, allreduces on some of its hosts, other traffic between the others.
#pragma once

#include "switch.hpp"
#include "workload.hpp"

#include <ns3/random-variable-stream.h>

#include <string>

namespace sim {

enum class Algorithm { switchml, atp, trio, panama, canary, ring };
enum class Placement { packed, scattered };
enum class Traffic { none, permutation, uniform, rank };

struct Options {
    Shape shape;
    std::vector<Algorithm> algorithms = {Algorithm::switchml}; // of the jobs, in turn
    uint32_t trees = 1;
    uint32_t ranks = 0; // of all jobs together; 0: all hosts
    uint32_t jobs = 1;
    Placement placement = Placement::packed;
    uint64_t bytes = 4 << 20;
    uint32_t elements = 256, slots = 128, descriptors = 32768;
    uint64_t patience_ns = 1000, rto_floor_ns = 0, jitter_ns = 1000;
    bool timers_only = false; // nothing but a timer tells ranks of a loss
    double loss = 0;          // the share of packets that links of `lossy` ranks lose, the first ones of the first job
    uint32_t lossy = 1;
    bool controlled = true;        // panama, atp: ranks heed marks
    double noise = 0;              // the share of a rank's packets that are a microsecond late
    bool results_overtake = false; // canary: in the hosts' queues
    uint32_t aggregators = 8192;   // atp: of each switch
    uint32_t records = 32768;      // trio: of each switch, a power of two
    TrioPolicy trio;
    uint32_t stragglers = 0; // ranks of each job, the last ones, that call so much later than the others
    uint64_t late_ns = 0;
    uint32_t buffers = 64 << 10; // panama: of each switch, for sums that wait
    uint32_t iterations = 1;     // allreduces of a job, one after the other
    uint64_t stagger_ns = 0;     // each job begins so much later than the one before
    uint32_t skipped = 0;        // of them, the first do not count
    uint64_t compute_ns = 0;     // between them
    uint64_t duration_ns = 0;    // jobs go on until then; 0: until they are done
    Load load;
    bool reacts = false;    // the ring's and the background's messages are DCTCP's; the load's always are
    uint64_t sample_ns = 0; // how often Results::samples are taken; 0: never
    Traffic background = Traffic::none;
    uint32_t senders = ~0u;                                       // hosts that send it, of those without a job
    uint64_t message_bytes = 256 << 10, window_bytes = 256 << 10; // of the background and the ring
    uint64_t warm_up_ns = 50'000;                                 // before the jobs begin
    uint64_t limit_ns = 10'000'000'000;
    uint64_t seed = 1;
    bool progress = false;
};

// A job's, on average.
struct Allreduce {
    uint32_t ranks = 0, count = 0;
    double seconds = 0, gbps = 0; // its tensor's bits for each second, until the last rank has them
};

// What has arrived until then: blocks of all ranks, and flows' bytes.
struct Sample {
    uint64_t at_ns = 0, blocks = 0, flow_bytes = 0;
};

struct Results {
    std::vector<Allreduce> jobs;
    std::vector<double> links; // utilisation of each, while the jobs ran
    Counters counters;
    uint64_t drops = 0, marks = 0, lost = 0, events = 0;
    std::vector<Finished> flows; // those that count
    std::vector<Sample> samples;
    double simulated_s = 0;
};

// The same options give the same results. Throws Violation if a sum is wrong, or if the jobs do not end.
Results run(const Options &options);

} // namespace sim
