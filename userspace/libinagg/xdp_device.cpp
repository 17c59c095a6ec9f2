// SPDX-License-Identifier: BSD-2-Clause
#include "xdp_device.hpp"

#include "device_of.hpp"
#include "error.hpp"

#include "worker.skel.h"

#include <inagg/core/checksum.h>

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <string_view>
#include <thread>

namespace inagg {

namespace {

constexpr int attach_attempts = 100;
constexpr uint16_t dont_fragment = 0x4000; // IPv4 flag
constexpr std::string_view program_name = "inagg_worker";

struct SkeletonDeleter {
    void operator()(worker_bpf *skeleton) const { worker_bpf__destroy(skeleton); }
};

Fd duplicate(int fd) {
    Fd copy(fcntl(fd, F_DUPFD_CLOEXEC, 0));
    if (copy.get() < 0)
        throw system_error("fcntl");
    return copy;
}

template <typename Info> bool query(int fd, Info &info) {
    uint32_t length = sizeof(info);
    return bpf_obj_get_info_by_fd(fd, &info, &length) == 0;
}

template <typename T> void put(uint8_t *&at, const T &value) {
    std::memcpy(at, &value, sizeof(value));
    at += sizeof(value);
}

// The local address that the kernel would use towards `peer`.
sockaddr_storage source_towards(const sockaddr_storage &peer, socklen_t length) {
    const Fd probe(socket(peer.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage local{};
    socklen_t local_length = sizeof(local);
    if (probe.get() < 0 || connect(probe.get(), reinterpret_cast<const sockaddr *>(&peer), length) ||
        getsockname(probe.get(), reinterpret_cast<sockaddr *>(&local), &local_length))
        throw system_error("route to the switch");
    return local;
}

} // namespace

int without_signals(const std::function<int()> &load) {
    int result = 0;
    std::thread([&] {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, nullptr);
        result = load();
    }).join();
    return result;
}

FrameHeader FrameHeader::reversed() const {
    FrameHeader back = *this;
    const auto swap = [&](std::size_t at, std::size_t length) {
        std::swap_ranges(&back.bytes[at], &back.bytes[at + length], &back.bytes[at + length]);
    };
    const std::size_t udp = size - sizeof(udphdr);
    const std::size_t address = ipv4_ ? 4 : 16;
    swap(0, ETH_ALEN);
    swap(udp - 2 * address, address); // the last of the IP header
    swap(udp, sizeof(uint16_t));
    return back;
}

std::byte *FrameHeader::write_before(void *payload, std::size_t payload_bytes) {
    if (payload_bytes_ != payload_bytes)
        set_payload(payload_bytes);
    std::byte *frame = static_cast<std::byte *>(payload) - size;
    std::memcpy(frame, bytes.data(), size);
    return frame;
}

void FrameHeader::set_payload(std::size_t payload_bytes) {
    payload_bytes_ = payload_bytes;
    const auto udp_length = static_cast<uint16_t>(payload_bytes + sizeof(udphdr));
    uint8_t *udp = bytes.data() + size - sizeof(udphdr);
    const uint16_t wire_udp = htons(udp_length);
    std::memcpy(udp + offsetof(udphdr, len), &wire_udp, 2);
    if (!ipv4_) {
        std::memcpy(udp - sizeof(ipv6hdr) + offsetof(ipv6hdr, payload_len), &wire_udp, 2);
        return;
    }
    iphdr ip;
    std::memcpy(&ip, udp - sizeof(ip), sizeof(ip));
    ip.tot_len = htons(static_cast<uint16_t>(udp_length + sizeof(ip)));
    ip.check = 0;
    ip.check = inagg_ipv4_checksum(&ip);
    std::memcpy(udp - sizeof(ip), &ip, sizeof(ip));
}

// To share another rank's program takes CAP_SYS_ADMIN, which includes CAP_BPF; to make its maps, CAP_NET_ADMIN.
static Error lacks_privileges(const std::string &transport) {
    return {INAGG_EPRIVILEGE, "transport {} needs {}: run as root or use transport udp", transport,
            transport == "afxdp" ? "CAP_SYS_ADMIN, CAP_NET_ADMIN and CAP_NET_RAW" : "CAP_SYS_ADMIN and CAP_NET_ADMIN"};
}

XdpDevice::XdpDevice(const std::string &transport, const std::string &switch_address, bool native) : transport_(transport) {
    uint32_t any = 0;
    if (bpf_prog_get_next_id(0, &any) && errno == EPERM) // needs CAP_SYS_ADMIN, as share() does
        throw lacks_privileges(transport_);
    find_device(switch_address);
    // Another process may attach, or leave, while we look.
    for (int attempt = 0; attempt < attach_attempts; attempt++)
        if (attach(native))
            return;
    throw Error(INAGG_ESYSTEM, "device {}: its XDP program keeps changing, cannot attach ours", name_);
}

void XdpDevice::find_device(const std::string &switch_address) {
    sockaddr_storage peer{};
    auto &in = reinterpret_cast<sockaddr_in &>(peer);
    auto &in6 = reinterpret_cast<sockaddr_in6 &>(peer);
    socklen_t length = sizeof(in);
    if (inet_pton(AF_INET, switch_address.c_str(), &in.sin_addr) == 1) {
        in.sin_family = AF_INET;
        in.sin_port = htons(INAGG_PORT);
        std::memcpy(remote_.data(), &in.sin_addr, 4);
    } else if (inet_pton(AF_INET6, switch_address.c_str(), &in6.sin6_addr) == 1) {
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(INAGG_PORT);
        std::memcpy(remote_.data(), &in6.sin6_addr, 16);
        length = sizeof(in6);
        family_ = 6;
    } else {
        throw Error(INAGG_ESYSTEM, "transport {} needs a plain IPv4 or IPv6 address of the switch, not '{}'", transport_,
                    switch_address);
    }
    name_ = device_of(source_towards(peer, length));
    index_ = name_.empty() ? 0 : static_cast<int>(if_nametoindex(name_.c_str()));
    if (!index_ || name_ == "lo")
        throw Error(INAGG_ESYSTEM, "no network device of this host leads to the switch at {}", switch_address);
}

// Attach our program, or share one that is there; false: look again.
bool XdpDevice::attach(bool native) {
    uint32_t id = 0;
    if (const int error = bpf_xdp_query_id(index_, 0, &id))
        throw system_error(fmt::format("XDP on device {}", name_), -error);
    if (id)
        return share(id, native);

    std::unique_ptr<worker_bpf, SkeletonDeleter> skeleton(worker_bpf__open());
    if (!skeleton)
        throw system_error("opening the worker's XDP program");
    if (const int error = without_signals([&] { return worker_bpf__load(skeleton.get()); }))
        throw error == -EPERM ? lacks_privileges(transport_) : system_error("loading the worker's XDP program", -error);
    const int program = bpf_program__fd(skeleton->progs.inagg_worker);
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = XDP_FLAGS_DRV_MODE);
    int link = bpf_link_create(program, index_, BPF_XDP, &options);
    if (link < 0 && errno == EOPNOTSUPP && !native) {
        options.flags = XDP_FLAGS_SKB_MODE;
        link = bpf_link_create(program, index_, BPF_XDP, &options);
    }
    if (link < 0) {
        if (errno == EBUSY || errno == EEXIST)
            return false;
        throw system_error(fmt::format("attaching XDP to device {}", name_));
    }
    link_ = Fd(link);
    program_ = duplicate(program);
    streams_ = duplicate(bpf_map__fd(skeleton->maps.streams));
    sockets_ = duplicate(bpf_map__fd(skeleton->maps.sockets));
    templates_ = duplicate(bpf_map__fd(skeleton->maps.templates));
    return true;
}

bool XdpDevice::share(uint32_t program_id, bool native) {
    program_ = Fd(bpf_prog_get_fd_by_id(program_id));
    if (program_.get() < 0)
        return false;
    std::array<uint32_t, 16> maps{};
    bpf_prog_info info{};
    info.nr_map_ids = maps.size();
    info.map_ids = reinterpret_cast<uint64_t>(maps.data());
    if (!query(program_.get(), info))
        return false;
    if (info.name != program_name)
        throw Error(INAGG_ESYSTEM, "device {} carries another XDP program, {} (id {}): detach it or use transport udp", name_,
                    info.name, program_id);
    bpf_xdp_query_opts mode{};
    mode.sz = sizeof(mode);
    if (native && !bpf_xdp_query(index_, 0, &mode) && mode.attach_mode == XDP_ATTACHED_SKB) // or none: it has just gone
        throw Error(INAGG_ESYSTEM, "device {} runs XDP in generic mode: transport {} needs a driver with XDP", name_, transport_);
    for (uint32_t i = 0; i < info.nr_map_ids && i < maps.size(); i++)
        open_map(maps[i]);
    if (!open_link(program_id))
        return false; // its last owner has just gone
    if (!complete())
        throw Error(INAGG_ESYSTEM, "device {} is used by another version of inagg: let its processes end, or use transport udp",
                    name_);
    return true;
}

void XdpDevice::open_map(uint32_t id) {
    Fd map(bpf_map_get_fd_by_id(id));
    bpf_map_info info{};
    if (map.get() < 0 || !query(map.get(), info))
        return;
    const std::string_view name = info.name;
    if (name == "streams")
        streams_ = std::move(map);
    else if (name == "sockets")
        sockets_ = std::move(map);
    else if (name == "templates" && info.value_size == sizeof(inagg_template))
        templates_ = std::move(map);
}

bool XdpDevice::open_link(uint32_t program_id) {
    uint32_t id = 0;
    while (bpf_link_get_next_id(id, &id) == 0) {
        Fd link(bpf_link_get_fd_by_id(id));
        bpf_link_info info{};
        if (link.get() < 0 || !query(link.get(), info))
            continue;
        if (info.type == BPF_LINK_TYPE_XDP && info.prog_id == program_id && info.xdp.ifindex == static_cast<uint32_t>(index_)) {
            link_ = std::move(link);
            return true;
        }
    }
    return false;
}

bool XdpDevice::complete() const { return streams_.get() >= 0 && sockets_.get() >= 0 && templates_.get() >= 0; }

void XdpDevice::expect_config(uint16_t port) {
    inagg_template empty{};
    std::memcpy(empty.remote, remote_.data(), sizeof(empty.remote));
    empty.family = static_cast<uint8_t>(family_);
    const uint16_t key = htons(port);
    if (bpf_map_update_elem(templates_.get(), &key, &empty, BPF_ANY))
        throw system_error("templates map");
    // What a process that was killed on this port may have left behind.
    const uint32_t index = port;
    bpf_map_delete_elem(streams_.get(), &index);
}

// The program is attached: to run another so, the kernel would wait for two RCU grace periods.
int XdpDevice::run(std::span<const uint8_t> frame, uint32_t count) const {
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_size_in = static_cast<uint32_t>(frame.size()),
                .repeat = static_cast<int>(count), .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = count);
    return bpf_prog_test_run_opts(program_.get(), &options) ? errno : 0;
}

FrameHeader XdpDevice::frame_header(uint16_t port) const {
    inagg_template t{};
    const uint16_t key = htons(port);
    if (bpf_map_lookup_elem(templates_.get(), &key, &t) || !t.ready)
        throw Error(INAGG_ESYSTEM,
                    "the switch's answer did not come through device {}: results that take another way than "
                    "contributions need transport udp",
                    name_);
    FrameHeader header;
    uint8_t *at = header.bytes.data();
    put(at, t.remote_mac);
    put(at, t.local_mac);
    if (t.vlan) {
        put(at, htons(ETH_P_8021Q));
        put(at, t.vlan_tci);
    }
    put(at, htons(family_ == 4 ? ETH_P_IP : ETH_P_IPV6));
    if (family_ == 4) {
        iphdr ip{};
        ip.version = 4;
        ip.ihl = 5;
        ip.tos = INAGG_TOS;
        ip.frag_off = htons(dont_fragment);
        ip.ttl = 64;
        ip.protocol = IPPROTO_UDP;
        std::memcpy(&ip.saddr, t.local, 4);
        std::memcpy(&ip.daddr, t.remote, 4);
        put(at, ip);
    } else {
        ipv6hdr ip{};
        ip.version = 6;
        ip.priority = INAGG_TOS >> 4;
        ip.flow_lbl[0] = static_cast<uint8_t>((INAGG_TOS & 0xf) << 4);
        ip.nexthdr = IPPROTO_UDP;
        ip.hop_limit = 64;
        std::memcpy(&ip.saddr, t.local, 16);
        std::memcpy(&ip.daddr, t.remote, 16);
        put(at, ip);
    }
    udphdr udp{};
    udp.source = htons(port);
    udp.dest = htons(INAGG_PORT);
    put(at, udp);
    header.size = static_cast<std::size_t>(at - header.bytes.data());
    header.ipv4_ = family_ == 4;
    return header;
}

} // namespace inagg
