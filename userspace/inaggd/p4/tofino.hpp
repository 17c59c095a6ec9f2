// SPDX-License-Identifier: BSD-2-Clause
// What the tables of p4/tna say, where those of p4/v1model have an entry (docs/P4-tofino.md).
#pragma once

#include "p4/entries.hpp"
#include "p4/punt.hpp"

#include <chrono>
#include <vector>

namespace inaggd::p4 {

constexpr uint16_t tofino_ranks = 32; // of a job, at most

// Of the switch itself: settings, and stations.
std::vector<Entry> tofino_entries(const Entry &entry);

// Places of blocks that all jobs of atp (aggregators) or canary (descriptors) share, and how many of them a job has; both are
// powers of two.
struct Shared {
    uint32_t count = 1, share = 1;
};
// By the job's algorithm.
JobEntries tofino_job(const Job &job, const Shared &shared = {});
// What tells the descriptors of a job of canary from those of others, as the table `rows` has it.
uint32_t descriptor_row(const inagg_job &job);

// canary: how often the packet generator sends the clock by each descriptor.
constexpr std::chrono::milliseconds tofino_clock_period{1};
// What it sends behind its own header.
std::vector<uint8_t> tofino_tick(const Mac &mac, const Address &own);

} // namespace inaggd::p4
