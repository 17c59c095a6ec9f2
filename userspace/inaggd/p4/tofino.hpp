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

} // namespace inaggd::p4
