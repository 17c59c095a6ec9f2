// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "names.hpp"

#include <nlohmann/json.hpp>

namespace inaggd {

// One row of counters by name, and all drops together, of `job`: its number, or what stands for it.
nlohmann::ordered_json counters_json(nlohmann::ordered_json job, const inagg_stats &stats);

} // namespace inaggd
