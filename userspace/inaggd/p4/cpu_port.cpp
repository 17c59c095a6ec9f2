// SPDX-License-Identifier: BSD-2-Clause
#include "p4/cpu_port.hpp"

#include "error.hpp"
#include "p4/punt.hpp"

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

namespace inaggd::p4 {

CpuPort::CpuPort(const std::string &interface)
    : fd_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (!fd_)
        throw Error("packet socket: {}; inaggd needs CAP_NET_RAW: run it as root", system_text(errno));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(punt_type);
    address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
    if (!address.sll_ifindex)
        throw Error("--cpu-port {}: no such interface (ip link)", interface);
    if (bind(fd_.get(), reinterpret_cast<sockaddr *>(&address), sizeof address))
        throw Error("--cpu-port {}: {}", interface, system_text(errno));
}

void CpuPort::send(std::span<const uint8_t> frame) const {
    if (::send(fd_.get(), frame.data(), frame.size(), 0) < 0)
        spdlog::debug("CPU port: {}", system_text(errno));
}

void CpuPort::read(const std::function<void(std::span<const uint8_t>)> &seen) const {
    uint8_t frame[4096];
    ssize_t bytes;
    while ((bytes = recv(fd_.get(), frame, sizeof frame, 0)) > 0)
        seen(std::span(frame, static_cast<size_t>(bytes)));
}

} // namespace inaggd::p4
