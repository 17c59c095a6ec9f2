// SPDX-License-Identifier: BSD-2-Clause
// AF_INAGG sockets of this network namespace, from /proc/net/inagg.
#pragma once

#include "report.hpp"

#include <istream>

namespace inaggctl {

// {version, family, memory, limit, drops: [{packets, text}], sockets: [{…, drops: {reason: packets}}]}. Throws if the
// module is not loaded.
json read_sockets();
json parse_sockets(std::istream &proc);
void print_sockets(const json &sockets);

} // namespace inaggctl
