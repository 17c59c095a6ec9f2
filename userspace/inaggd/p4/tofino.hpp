// SPDX-License-Identifier: BSD-2-Clause
// What the tables of p4/tna say, where those of p4/v1model have an entry (docs/P4-tofino.md).
#pragma once

#include "p4/entries.hpp"

#include <vector>

namespace inaggd::p4 {

// None, if the program has no such table.
std::vector<Entry> tofino_entries(const Entry &entry);

} // namespace inaggd::p4
