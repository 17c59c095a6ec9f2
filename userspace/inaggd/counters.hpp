// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "names.hpp"

#include <nlohmann/json.hpp>

#include <span>

namespace inaggd {

struct Counter {
    const char *name, *help;
    __u64 inagg_stats::*value;
};

// All but the drops.
std::span<const Counter> counters();

// One row of counters by name, and all drops together, of `job`: its number, or what stands for it.
nlohmann::ordered_json counters_json(nlohmann::ordered_json job, const inagg_stats &stats);

} // namespace inaggd
