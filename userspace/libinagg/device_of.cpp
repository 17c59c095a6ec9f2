// SPDX-License-Identifier: BSD-2-Clause
#include "device_of.hpp"

#include "errors.hpp"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cstring>

namespace inagg {

namespace {

bool same_host(const sockaddr *a, const sockaddr_storage &b) {
    if (!a || a->sa_family != b.ss_family)
        return false;
    if (a->sa_family == AF_INET)
        return reinterpret_cast<const sockaddr_in *>(a)->sin_addr.s_addr ==
               reinterpret_cast<const sockaddr_in &>(b).sin_addr.s_addr;
    const auto &one = reinterpret_cast<const sockaddr_in6 &>(*a), &other = reinterpret_cast<const sockaddr_in6 &>(b);
    return !std::memcmp(&one.sin6_addr, &other.sin6_addr, sizeof(in6_addr)) &&
           (!other.sin6_scope_id || one.sin6_scope_id == other.sin6_scope_id);
}

} // namespace

std::string device_of(const sockaddr_storage &local) {
    ifaddrs *all = nullptr;
    if (getifaddrs(&all))
        throw system_error("getifaddrs");
    std::string name;
    for (const ifaddrs *one = all; one && name.empty(); one = one->ifa_next)
        if (same_host(one->ifa_addr, local))
            name = one->ifa_name;
    freeifaddrs(all);
    return name;
}

} // namespace inagg
