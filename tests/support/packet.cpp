// SPDX-License-Identifier: BSD-2-Clause
#include "support/packet.hpp"

#include <inagg/core/checksum.h>

#include <arpa/inet.h>
#include <netinet/ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>

namespace support {
namespace {

size_t ip_header(int family) { return family == 6 ? sizeof(ip6_hdr) : sizeof(iphdr); }

uint16_t internet_checksum(const void *data, size_t bytes) {
    const auto *at = static_cast<const uint8_t *>(data);
    uint32_t sum = 0;
    for (size_t i = 0; i < bytes; i += 2)
        sum += at[i] << 8 | at[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return static_cast<uint16_t>(~sum);
}

inagg_hdr header_of(const Packet &p) {
    inagg_hdr h{};
    h.version_type = static_cast<uint8_t>(p.version << 4 | p.type);
    h.dtype_op = static_cast<uint8_t>(p.dtype << 4 | p.op);
    h.level_flags = htons(p.flags);
    h.job = htons(p.job);
    h.generation = htons(p.generation);
    h.block = htonl(p.block);
    h.slot = htonl(p.slot);
    h.source = htons(p.rank);
    h.count = htons(p.count);
    h.fan_in = htons(p.fan_in);
    h.contributors = inagg_swap64(p.contributors);
    h.boot = htons(p.boot);
    h.window_cap = htons(p.window_cap);
    h.port = p.port;
    h.switch_id = htons(p.epoch);
    h.scale = p.scale;
    h.next_scale = p.next_scale;
    h.elements = htons(p.elements);
    if (p.flags & INAGG_F_CHECKED)
        inagg_hdr_seal_checked(&h,
                               inagg_payload_checksum(p.payload.data(), static_cast<uint32_t>(p.payload.size() & ~size_t{7})));
    h.payload_checksum ^= p.payload_checksum_xor;
    inagg_hdr_seal(&h);
    h.checksum ^= p.header_checksum_xor;
    return h;
}

void append(Frame &frame, const void *data, size_t bytes) {
    const auto *at = static_cast<const uint8_t *>(data);
    frame.insert(frame.end(), at, at + bytes);
}

uint8_t type_of_service(const Packet &p) { return INAGG_TOS | (p.marked ? IPTOS_ECN_CE : 0); }

void append_ip(Frame &frame, const Packet &p, size_t udp_bytes) {
    if (p.family == 6) {
        ip6_hdr ip{};
        ip.ip6_flow = htonl(6u << 28 | type_of_service(p) << 20);
        ip.ip6_plen = htons(static_cast<uint16_t>(static_cast<int>(udp_bytes) + p.ip_length_delta));
        ip.ip6_nxt = IPPROTO_UDP;
        ip.ip6_hlim = 64;
        std::memcpy(&ip.ip6_src, p.source.data(), 16);
        std::memcpy(&ip.ip6_dst, p.target.data(), 16);
        return append(frame, &ip, sizeof ip);
    }
    iphdr ip{};
    ip.version = 4;
    ip.ihl = 5;
    ip.tos = type_of_service(p);
    ip.tot_len = htons(static_cast<uint16_t>(static_cast<int>(sizeof ip + udp_bytes) + p.ip_length_delta));
    ip.ttl = 64;
    ip.protocol = IPPROTO_UDP;
    std::memcpy(&ip.saddr, p.source.data(), 4);
    std::memcpy(&ip.daddr, p.target.data(), 4);
    ip.check = htons(internet_checksum(&ip, sizeof ip));
    append(frame, &ip, sizeof ip);
}

// Fills in the addresses; the UDP datagram's length as IP tells it, or nothing.
std::optional<size_t> parse_ip(const Frame &frame, Packet &p) {
    const size_t at = sizeof(ether_header);
    if (p.family == 6) {
        const auto ip = read<ip6_hdr>(frame, at);
        if ((ntohl(ip.ip6_flow) >> 20 & 0xff) != INAGG_TOS || ip.ip6_nxt != IPPROTO_UDP)
            return {};
        std::memcpy(p.source.data(), &ip.ip6_src, 16);
        std::memcpy(p.target.data(), &ip.ip6_dst, 16);
        return ntohs(ip.ip6_plen);
    }
    const auto ip = read<iphdr>(frame, at);
    if (ip.tos != INAGG_TOS || ip.protocol != IPPROTO_UDP || internet_checksum(&ip, sizeof ip))
        return {};
    std::memcpy(p.source.data(), &ip.saddr, 4);
    std::memcpy(p.target.data(), &ip.daddr, 4);
    return ntohs(ip.tot_len) - sizeof ip;
}

} // namespace

Address switch_address(int family) {
    return family == 6 ? Address{0xfd, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1} : Address{10, 77, 0, 1};
}

Address worker_address(int family, uint32_t job, uint32_t rank) {
    Address address = switch_address(family);
    address[family == 6 ? 13 : 2] = static_cast<uint8_t>(job);
    address[family == 6 ? 15 : 3] = static_cast<uint8_t>(10 + rank);
    return address;
}

Mac switch_mac() { return {2, 0, 0, 0, 0xff, 1}; }
Address parent_address(int family) {
    Address address = switch_address(family);
    address[family == 4 ? 3 : 15] = 2;
    return address;
}

Mac parent_mac() { return {2, 0, 0, 0, 0xff, 3}; }
Mac tick_mac() { return {2, 0, 0, 0, 0xff, 2}; }
Mac worker_mac(uint32_t job, uint32_t rank) { return {2, 0, 0, 1, static_cast<uint8_t>(job), static_cast<uint8_t>(rank)}; }
uint16_t worker_port(uint32_t rank) { return static_cast<uint16_t>(20000 + rank); }

size_t header_offset(int family) { return sizeof(ether_header) + ip_header(family) + sizeof(udphdr); }

std::vector<uint8_t> element_bytes(const std::vector<uint32_t> &values, uint8_t dtype) {
    const uint32_t width = inagg_element_bytes(dtype);
    std::vector<uint8_t> bytes;
    for (uint32_t value : values)
        for (uint32_t i = 0; i < width; i++)
            bytes.push_back(static_cast<uint8_t>(value >> 8 * i));
    return bytes;
}

std::vector<uint32_t> element_values(const std::vector<uint8_t> &payload, uint8_t dtype) {
    const uint32_t width = inagg_element_bytes(dtype);
    std::vector<uint32_t> values(width ? payload.size() / width : 0);
    for (size_t i = 0; i < values.size() * width; i++)
        values[i / width] |= static_cast<uint32_t>(payload[i]) << 8 * (i % width);
    return values;
}

void read_header(const inagg_hdr &h, Packet &p) {
    p.version = inagg_hdr_version(&h);
    p.type = inagg_hdr_type(&h);
    p.dtype = inagg_hdr_dtype(&h);
    p.op = inagg_hdr_op(&h);
    p.flags = ntohs(h.level_flags);
    p.job = ntohs(h.job);
    p.generation = ntohs(h.generation);
    p.rank = ntohs(h.source);
    p.block = ntohl(h.block);
    p.slot = ntohl(h.slot);
    p.count = ntohs(h.count);
    p.fan_in = ntohs(h.fan_in);
    p.boot = ntohs(h.boot);
    p.window_cap = ntohs(h.window_cap);
    p.port = h.port;
    p.epoch = ntohs(h.switch_id);
    p.contributors = inagg_swap64(h.contributors);
    p.scale = h.scale;
    p.next_scale = h.next_scale;
    p.elements = ntohs(h.elements);
}

Frame build(const Packet &p) {
    Frame frame;
    append(frame, p.target_mac.data(), 6);
    append(frame, p.source_mac.data(), 6);
    const uint16_t tag[] = {htons(ETHERTYPE_VLAN), 0};
    for (unsigned i = 0; i < p.tags; i++)
        append(frame, &tag, sizeof tag);
    const uint16_t ethertype = htons(p.family == 6 ? ETHERTYPE_IPV6 : ETHERTYPE_IP);
    append(frame, &ethertype, 2);
    const size_t udp_bytes = sizeof(udphdr) + sizeof(inagg_hdr) + p.payload.size();
    append_ip(frame, p, udp_bytes);
    udphdr udp{};
    udp.source = htons(p.source_port);
    udp.dest = htons(p.target_port);
    udp.len = htons(static_cast<uint16_t>(static_cast<int>(udp_bytes) + p.udp_length_delta));
    append(frame, &udp, sizeof udp);
    const inagg_hdr h = header_of(p);
    append(frame, &h, sizeof h);
    append(frame, p.payload.data(), p.payload.size());
    frame.resize(frame.size() + p.frame_delta);
    return frame;
}

std::optional<Packet> parse(const Frame &frame) {
    Packet p;
    if (frame.size() < sizeof(ether_header) + sizeof(iphdr))
        return {};
    const uint16_t ethertype = ntohs(read<uint16_t>(frame, 12));
    if (ethertype != ETHERTYPE_IP && ethertype != ETHERTYPE_IPV6)
        return {};
    p.family = ethertype == ETHERTYPE_IPV6 ? 6 : 4;
    const size_t header = header_offset(p.family);
    if (frame.size() < header + sizeof(inagg_hdr))
        return {};
    std::copy_n(frame.begin(), 6, p.target_mac.begin());
    std::copy_n(frame.begin() + 6, 6, p.source_mac.begin());
    const auto l3 = parse_ip(frame, p);
    const auto udp = read<udphdr>(frame, header - sizeof(udphdr));
    const size_t udp_bytes = frame.size() - header + sizeof(udphdr);
    if (l3 != udp_bytes || ntohs(udp.len) != udp_bytes || udp.check)
        return {};
    p.source_port = ntohs(udp.source);
    p.target_port = ntohs(udp.dest);
    const auto h = read<inagg_hdr>(frame, header);
    if (!inagg_hdr_intact(&h))
        return {};
    read_header(h, p);
    p.payload.assign(frame.begin() + static_cast<long>(header + sizeof h), frame.end());
    if ((p.flags & INAGG_F_CHECKED) &&
        !inagg_packet_intact(&h, inagg_payload_checksum(p.payload.data(), static_cast<uint32_t>(p.payload.size()))))
        return {};
    return p;
}

} // namespace support
