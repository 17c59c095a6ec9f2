// SPDX-License-Identifier: BSD-2-Clause
// What a seed stands for: the job, the tensors, how bad the network is and what breaks when.
#pragma once

#include <inagg/core/record.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace simulation {

struct Options;

using Time = uint64_t; // nanoseconds
inline constexpr Time us = 1000, ms = 1000 * us, s = 1000 * ms;

// splitmix64: the same sequence on every machine.
class Random {
public:
    explicit Random(uint64_t seed) : state(seed) {}
    uint64_t next();
    // 0 .. n-1; n > 0.
    uint64_t below(uint64_t n) { return next() % n; }
    uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
    bool chance(double probability) { return static_cast<double>(next() >> 11) * 0x1p-53 < probability; }

private:
    uint64_t state;
};

struct Fault {
    enum Kind { restart, clear_all, clear_one, sleep, kill, clear_floor, exclude, come_back, spine, link } kind;
    Time at;
    uint32_t rank; // sleep, kill, exclude, come_back; spine, link: its number
    Time duration; // sleep, link; spine: 0: for good
};

// What only trio has.
struct TrioScenario {
    uint32_t buckets;
    inagg_policy policy;
    Time sweep_period;
    Time clock_base;      // of the epochs: any, also next to the wrap
    uint32_t clock_slows; // by this factor: more happens in one tick
    double lost_ticks;    // the agent is dead or late
    uint32_t history;     // results that each rank keeps
    bool foreign;         // another job has an open record in each bucket
    double leftovers;     // records that are not cleared when a generation begins
    // Of each tensor: before it, all agree whether the next generation begins.
    std::vector<bool> renewals;
};

// What only canary has: leaf switches with the ranks, and spines that each leaf is linked to.
struct CanaryScenario {
    uint32_t leaves, spines;
    uint32_t number;   // of the job: where its blocks are in tables of descriptors
    Time longest_wait; // of a descriptor's timer
    bool learns;       // timers follow what was seen (struct inagg_patience)
    double wanders;    // a packet goes by any spine, not by the one that its slot prefers
    Time notices;      // a leaf knows of a dead spine or link only after so long
    bool foreign;      // another job has descriptors, too
};

// What only panama has.
struct PanamaScenario {
    Time longest_step; // between two steps of what climbs
    double stumbles;   // a step fails, and what climbs is lost
    double foreign;    // all buffers are another job's when one is wanted
    uint16_t cap;      // which the ranks do not heed; 0: none
};

struct Scenario {
    inagg_algorithm algorithm;
    uint32_t ranks;
    uint32_t slots;                // of the stream under test
    bool control;                  // it is the job's control stream
    uint32_t first_slot;           // of the job's pool
    uint32_t base;                 // first block: streams in the middle of their life, also next to the wrap
    std::vector<uint32_t> tensors; // blocks in each
    uint32_t depth;                // tensors in flight
    Time pause;                    // at most, between a tensor's end and the call that follows
    double loss, duplicate, reorder;
    bool short_frames;        // those of questions have no room for results
    Time delay, jitter, late; // late: at most, for a reordered packet
    std::vector<Fault> faults;
    std::optional<uint32_t> killed;
    std::vector<uint32_t> parents; // of each switch, the root first; empty: there is one switch
    std::vector<uint32_t> leaf_of; // the switch of each rank
    uint32_t deepest;              // so many switches between a rank and the root, at most
    TrioScenario trio;
    CanaryScenario canary;
    PanamaScenario panama;
    bool quiet; // nothing is lost and one rank sleeps: the others must not flood the switch

    std::string describe() const;
};

Scenario make_scenario(Random &random, const Options &options);

} // namespace simulation
