// SPDX-License-Identifier: BSD-2-Clause
// The P4 switch in BMv2's simple_switch, in the place of the XDP switch.
#pragma once

#include "network.hpp"

#include <string>
#include <vector>

namespace netns {

// Throws if simple_switch or the compiled P4 program is not there.
void need_bmv2(const std::string &algorithm);
std::vector<std::string> bmv2_command(const Switch &node, const std::string &algorithm);
// What tells inaggd of this switch and its ports.
std::vector<std::string> bmv2_agent_options(const Switch &node);
// Has it come so far that its tables can be written?
bool bmv2_answers(const Switch &node);

} // namespace netns
