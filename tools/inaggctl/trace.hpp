// SPDX-License-Identifier: BSD-2-Clause
// Where blocks of a job are, in the switches whose maps are on this machine.
#pragma once

#include "report.hpp"

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace inaggctl {

// Looks at the memory of each of the switches (their pins) for so long. Blocks that are not complete, or
// `block` of the data stream, which may be. Throws Error if none of the switches has the job.
json trace_job(const std::vector<std::string> &switches, uint16_t job, std::optional<uint32_t> block,
               std::chrono::duration<double> time);
void print_trace(const json &trace);

// "2, 3 (behind 10.77.1.1), 5"; `children`: of the switch that waits for them.
std::string ranks_text(const json &ranks, const json &children);

} // namespace inaggctl
