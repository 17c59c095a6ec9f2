// SPDX-License-Identifier: BSD-2-Clause
// What the tables of p4/tna say, where those of p4/v1model have an entry (docs/P4-tofino.md).
#pragma once

#include "p4/entries.hpp"

#include <vector>

namespace inaggd::p4 {

constexpr uint16_t tofino_ranks = 32; // of a job, at most

// None, if the program has no such table.
std::vector<Entry> tofino_entries(const Entry &entry);

// Places of blocks that all jobs of atp (aggregators) or canary (descriptors) share, and how many of them a job has; both are
// powers of two.
struct Shared {
    uint32_t count, share;
};
// Likewise, of a switch with atp.
std::vector<Entry> tofino_entries(const Entry &entry, const Shared &aggregators);
// canary: of each slot its leader and its descriptors, of each rank whose address is whose, and for how many visits of the clock
// a sum waits.
std::vector<Entry> descriptor_entries(uint16_t number, const inagg_job &job, const Seats &seats, const Shared &descriptors,
                                      uint32_t patience);

} // namespace inaggd::p4
