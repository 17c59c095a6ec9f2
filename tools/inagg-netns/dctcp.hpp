// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "process.hpp"

namespace netns {

// Makes a TCP socket's congestion control DCTCP: the kernel's, or where it has none ours, which then goes with this process and
// the sockets that use it. Throws std::system_error if neither can be had.
void use_dctcp(const Fd &socket);

} // namespace netns
