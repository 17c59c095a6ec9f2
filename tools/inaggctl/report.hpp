// SPDX-License-Identifier: BSD-2-Clause
// What inaggctl shows of a switch, as text.
#pragma once

#include "switch_state.hpp"

namespace inaggctl {

using json = nlohmann::ordered_json;
using inaggd::Where;

// A name of an interface may be any bytes.
void print_json(const json &value);
void print_status(const json &status);
void print_jobs(const json &jobs);
void print_job(const json &job);
void print_stats(const json &stats);
void print_drops(const json &drops);

} // namespace inaggctl
