// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "process.hpp"

namespace netns {

// Of a TCP socket, whatever the machine's default is. They throw std::system_error if it cannot be had.
void use_cubic(const Fd &socket);

// The kernel's, or where it has none ours, which then goes with this process and the sockets that use it.
void use_dctcp(const Fd &socket);

} // namespace netns
