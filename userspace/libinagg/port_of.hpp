// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdint>

namespace inagg {

// The port of an address of IPv4 or IPv6, in network byte order.
inline uint16_t &port_of(sockaddr_storage &address) {
    return address.ss_family == AF_INET ? reinterpret_cast<sockaddr_in &>(address).sin_port
                                        : reinterpret_cast<sockaddr_in6 &>(address).sin6_port;
}

} // namespace inagg
