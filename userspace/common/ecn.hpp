// SPDX-License-Identifier: BSD-2-Clause
// Explicit congestion notification of datagrams that io_uring's recvmsg received (RFC 3168, ip(7), ipv6(7)).
#pragma once

#include <liburing.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <sys/socket.h>

#include <cstddef>
#include <cstdint>

namespace inagg {

// Room for the type of service, which sockets with IP_RECVTOS or IPV6_RECVTCLASS tell.
inline constexpr std::size_t ecn_control_bytes = CMSG_SPACE(sizeof(int));

// Did a router on the way mark the datagram "congestion experienced"? `shape` is that of the request.
inline bool is_congested(io_uring_recvmsg_out *out, msghdr *shape) {
    for (cmsghdr *c = io_uring_recvmsg_cmsg_firsthdr(out, shape); c; c = io_uring_recvmsg_cmsg_nexthdr(out, shape, c))
        if ((c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_TOS) ||
            (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_TCLASS))
            return (*reinterpret_cast<const uint8_t *>(CMSG_DATA(c)) & IPTOS_ECN_MASK) == IPTOS_ECN_CE;
    return false;
}

} // namespace inagg
