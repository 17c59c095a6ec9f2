// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <sys/socket.h>

#include <string>

namespace inagg {

// Name of the interface that has the address `local`, or empty. Throws Error.
std::string device_of(const sockaddr_storage &local);

} // namespace inagg
