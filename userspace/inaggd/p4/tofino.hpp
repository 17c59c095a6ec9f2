// SPDX-License-Identifier: BSD-2-Clause
// What the tables of p4/tna say, where those of p4/v1model have an entry (docs/P4-tofino.md).
#pragma once

#include "p4/entries.hpp"

#include <vector>

namespace inaggd::p4 {

// None, if the program has no such table.
std::vector<Entry> tofino_entries(const Entry &entry);

// Of a switch with atp: how many aggregators a job has, and all of them together; both are powers of two.
struct Aggregators {
    uint64_t share, count;
};
std::vector<Entry> tofino_entries(const Entry &entry, const Aggregators &aggregators);
// Of the descriptors that jobs of canary share.
struct Descriptors {
    uint32_t count = 4096; // a power of two, as the program has them at most
    uint32_t share = 4096; // that a job has; likewise
};
// canary: of each slot its leader and its descriptors, of each rank whose address is whose, and for how many visits of the clock
// a sum waits.
std::vector<Entry> descriptor_entries(uint16_t number, const inagg_job &job, const Seats &seats, const Descriptors &shared,
                                      uint32_t patience);

} // namespace inaggd::p4
