// SPDX-License-Identifier: BSD-2-Clause
#include "links.hpp"

#include "error.hpp"

#include <ifaddrs.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <memory>

namespace inaggd {
namespace {

// The attribute's payload, or nothing.
std::string_view attribute(const nlmsghdr *message, int type) {
    auto *info = static_cast<ifinfomsg *>(NLMSG_DATA(message));
    int left = static_cast<int>(IFLA_PAYLOAD(message));
    for (rtattr *a = IFLA_RTA(info); RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == type)
            return {static_cast<char *>(RTA_DATA(a)), RTA_PAYLOAD(a)};
    return {};
}

bool is_link(const nlmsghdr *message) {
    return (message->nlmsg_type == RTM_DELLINK || message->nlmsg_type == RTM_NEWLINK) &&
           message->nlmsg_len >= NLMSG_LENGTH(sizeof(ifinfomsg));
}

// Name of the bridge that `port` is in, or the port itself. By netlink: /sys may show another namespace.
std::string owner_of(const std::string &port) {
    struct {
        nlmsghdr header;
        ifinfomsg info;
    } request{};
    request.header = {
        .nlmsg_len = sizeof request, .nlmsg_type = RTM_GETLINK, .nlmsg_flags = NLM_F_REQUEST, .nlmsg_seq = 0, .nlmsg_pid = 0};
    request.info.ifi_index = static_cast<int>(if_nametoindex(port.c_str()));
    Fd fd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    alignas(nlmsghdr) char buffer[32 * 1024];
    if (!fd || send(fd.get(), &request, sizeof request, 0) < 0)
        return port;
    ssize_t bytes = recv(fd.get(), buffer, sizeof buffer, 0);
    auto *reply = reinterpret_cast<nlmsghdr *>(buffer);
    if (bytes <= 0 || !NLMSG_OK(reply, static_cast<unsigned>(bytes)) || !is_link(reply))
        return port;
    std::string_view master = attribute(reply, IFLA_MASTER);
    unsigned ifindex = 0;
    char name[IF_NAMESIZE];
    if (master.size() == sizeof ifindex)
        std::memcpy(&ifindex, master.data(), sizeof ifindex);
    return ifindex && if_indextoname(ifindex, name) ? name : port;
}

ifreq ask(const std::string &port, unsigned long what) {
    Fd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ifreq request{};
    std::copy_n(port.begin(), std::min<size_t>(port.size(), IFNAMSIZ - 1), request.ifr_name);
    if (ioctl(fd.get(), what, &request))
        throw Error("port {}: {}", port, system_text(errno));
    return request;
}

} // namespace

LinkWatch::LinkWatch() : fd_(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE)) {
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (!fd_ || bind(fd_.get(), reinterpret_cast<sockaddr *>(&address), sizeof address))
        throw Error("netlink: {}", system_text(errno));
}

void LinkWatch::read(const std::function<void(bool, uint32_t, const std::string &)> &seen) const {
    alignas(nlmsghdr) char buffer[16 * 1024];
    ssize_t bytes;
    while ((bytes = recv(fd_.get(), buffer, sizeof buffer, 0)) > 0) {
        auto left = static_cast<unsigned>(bytes);
        for (auto *m = reinterpret_cast<nlmsghdr *>(buffer); NLMSG_OK(m, left); m = NLMSG_NEXT(m, left)) {
            if (!is_link(m))
                continue;
            auto *info = static_cast<ifinfomsg *>(NLMSG_DATA(m));
            if (info->ifi_family != AF_UNSPEC)
                continue; // a port that only leaves its bridge
            std::string_view name = attribute(m, IFLA_IFNAME);
            seen(m->nlmsg_type == RTM_DELLINK, static_cast<uint32_t>(info->ifi_index),
                 std::string(name.substr(0, name.find('\0'))));
        }
    }
}

bool has_link(const std::string &port) {
    try {
        const auto flags = static_cast<unsigned>(ask(port, SIOCGIFFLAGS).ifr_flags);
        return flags & IFF_UP && flags & IFF_RUNNING;
    } catch (const Error &) {
        return false; // it has just gone
    }
}

uint32_t mtu_of(const std::string &port) { return static_cast<uint32_t>(ask(port, SIOCGIFMTU).ifr_mtu); }

std::array<uint8_t, 6> mac_of(const std::string &port) {
    const ifreq answer = ask(port, SIOCGIFHWADDR);
    std::array<uint8_t, 6> mac;
    std::memcpy(mac.data(), answer.ifr_hwaddr.sa_data, mac.size());
    return mac;
}

Address address_near(const std::string &port, uint8_t family) {
    ifaddrs *list = nullptr;
    if (getifaddrs(&list))
        throw Error("getifaddrs: {}", system_text(errno));
    std::unique_ptr<ifaddrs, void (*)(ifaddrs *)> owner(list, freeifaddrs);
    for (const std::string &name : {owner_of(port), port})
        for (ifaddrs *entry = list; entry; entry = entry->ifa_next) {
            if (!entry->ifa_addr || name != entry->ifa_name)
                continue;
            Address address{.family = family};
            if (family == 4 && entry->ifa_addr->sa_family == AF_INET) {
                std::memcpy(address.bytes.data(), &reinterpret_cast<sockaddr_in *>(entry->ifa_addr)->sin_addr, 4);
                return address;
            }
            auto *six = reinterpret_cast<sockaddr_in6 *>(entry->ifa_addr);
            if (family == 6 && six->sin6_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&six->sin6_addr)) {
                std::memcpy(address.bytes.data(), &six->sin6_addr, 16);
                return address;
            }
        }
    return {};
}

} // namespace inaggd
