// SPDX-License-Identifier: BSD-2-Clause
// inaggd of a P4 switch, in BMv2 or a Tofino.
#pragma once

#include "daemon_options.hpp"

namespace inaggd::p4 {

// Until a signal ends it. Throws Error, also when the switch does. `arguments`: of this process.
void run(const Options &options, std::vector<std::string> arguments);
// Throws what run() would end with at once; changes nothing.
void check_start(const Options &options);

} // namespace inaggd::p4
