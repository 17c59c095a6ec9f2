// SPDX-License-Identifier: BSD-2-Clause
// inaggd of a P4 switch that runs in BMv2.
#pragma once

#include "daemon_options.hpp"

namespace inaggd::p4 {

// Until a signal ends it. Throws Error, also when simple_switch ends. `arguments`: of this process.
void run(const Options &options, std::vector<std::string> arguments);
// Throws what run() would end with at once; changes nothing.
void check_start(const Options &options);

} // namespace inaggd::p4
