// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "report.hpp"

#include <string>
#include <vector>

namespace inaggctl {

// What on this machine is missing for an inagg switch or worker, and what is wrong with those that are set up: a list of
// {check, state: ok|warn|missing, detail, fix}.
json examine(const std::vector<std::string> &interfaces, const Where &where);
void print_doctor(const json &findings);
// Nothing is missing; warnings are fine.
bool healthy(const json &findings);

} // namespace inaggctl
