// SPDX-License-Identifier: BSD-2-Clause
// Jobs as inaggctl shows them.
#pragma once

#include "maps.hpp"

#include <nlohmann/json.hpp>

namespace inaggd {

// What every switch knows of a job; `policy` is all zero if the job waits for stragglers.
nlohmann::ordered_json job_json(uint16_t number, const inagg_job &job, const Members &members, const inagg_policy &policy);
// A rank; it is not `here` if it is behind another switch. `port`: the name of the member's.
nlohmann::ordered_json member_json(uint16_t rank, const inagg_member &member, bool is_here, const std::string &port);
// Appends why packets of the job were dropped, and how many.
void add_drops(nlohmann::ordered_json &list, const nlohmann::ordered_json &job, const inagg_stats &stats);

} // namespace inaggd
