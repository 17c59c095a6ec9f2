// SPDX-License-Identifier: BSD-2-Clause
#include "p4/cpu_port.hpp"

#include "error.hpp"
#include "p4/punt.hpp"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <iterator>

namespace inaggd::p4 {
namespace {

// Of all frames, those that the switch itself has put behind its header. The kernel takes VLAN tags off, and a host can send
// what looks like such a frame behind one: a socket for that Ethernet type alone would not see that there was a tag.
void take_only_punted(int fd) {
    sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(SKF_AD_OFF + SKF_AD_VLAN_TAG_PRESENT)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 0, 0, 3),
        BPF_STMT(BPF_LD | BPF_H | BPF_ABS, 12),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, punt_type, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, UINT32_MAX),
        BPF_STMT(BPF_RET | BPF_K, 0),
    };
    const sock_fprog program{.len = std::size(code), .filter = code};
    const int on = 1;
    if (setsockopt(fd, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) ||
        setsockopt(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on))
        throw Error("packet socket: {}", system_text(errno));
}

} // namespace

CpuPort::CpuPort(const std::string &interface) : fd_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)) {
    if (!fd_)
        throw Error("packet socket: {}; inaggd needs CAP_NET_RAW: run it as root", system_text(errno));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(if_nametoindex(interface.c_str()));
    if (!address.sll_ifindex)
        throw Error("--cpu-port {}: no such interface (ip link)", interface);
    take_only_punted(fd_.get());
    if (bind(fd_.get(), reinterpret_cast<sockaddr *>(&address), sizeof address))
        throw Error("--cpu-port {}: {}", interface, system_text(errno));
}

void CpuPort::send(std::span<const uint8_t> frame) const {
    if (::send(fd_.get(), frame.data(), frame.size(), 0) < 0)
        spdlog::debug("CPU port: {}", system_text(errno));
}

void CpuPort::read(const std::function<void(std::span<const uint8_t>)> &seen) const {
    constexpr int most = 256; // frames; then signals and the control socket have their turn, however many there are
    uint8_t frame[4096];
    ssize_t bytes;
    for (int i = 0; i < most && (bytes = recv(fd_.get(), frame, sizeof frame, 0)) > 0; i++)
        seen(std::span(frame, static_cast<size_t>(bytes)));
}

} // namespace inaggd::p4
