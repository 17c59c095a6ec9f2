// SPDX-License-Identifier: BSD-2-Clause
#include "p4/punt.hpp"

#include <inagg/core/checksum.h>

#include <arpa/inet.h>
#include <net/ethernet.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>

#include <algorithm>
#include <cstring>
#include <iterator>

namespace inaggd::p4 {
namespace {

struct PuntHeader {
    uint8_t to[6], from[6];
    uint16_t type, port;
};
static_assert(sizeof(PuntHeader) == 16);

using Frame = std::span<const uint8_t>;

// The next header of the frame; false: it is not all there.
template <typename Header> bool take(Frame &rest, Header &header) {
    if (rest.size() < sizeof header)
        return false;
    std::memcpy(&header, rest.data(), sizeof header);
    rest = rest.subspan(sizeof header);
    return true;
}

// The sender's address, and up to the datagram.
bool take_ip(Frame &rest, uint16_t type, inagg_event &event) {
    if (type == ETHERTYPE_IP) {
        iphdr ip;
        event.family = 4;
        if (!take(rest, ip))
            return false;
        std::memcpy(event.address, &ip.saddr, sizeof ip.saddr);
        return ip.version == 4 && ip.ihl == 5 && ip.protocol == IPPROTO_UDP;
    }
    ip6_hdr ip;
    event.family = 6;
    if (type != ETHERTYPE_IPV6 || !take(rest, ip))
        return false;
    std::memcpy(event.address, &ip.ip6_src, sizeof ip.ip6_src);
    return ip.ip6_nxt == IPPROTO_UDP;
}

// As the header says: what comes is as the XDP switch hands them to its agent.
void describe(const inagg_hdr &header, inagg_event &event) {
    event.type = inagg_hdr_type(&header);
    event.job = ntohs(header.job);
    event.rank = ntohs(header.source);
    event.generation = ntohs(header.generation);
    event.reason = ntohl(header.slot);
    event.ranks = be64toh(header.contributors);
    event.expiry_us = ntohl(header.block);
    event.quorum = ntohs(header.count);
    event.hdr = header;
}

inagg_reason wrong_with(const inagg_hdr &header, const inagg_join &join) {
    const uint8_t type = inagg_hdr_type(&header);
    if (inagg_hdr_version(&header) != INAGG_WIRE_VERSION)
        return INAGG_R_VERSION;
    if (!inagg_hdr_intact(&header))
        return INAGG_R_HEADER_CHECKSUM;
    const bool from_parent = type == INAGG_CONFIG || type == INAGG_REFUSED;
    if (type != INAGG_JOIN && type != INAGG_LEAVE && !from_parent)
        return INAGG_R_TYPE;
    const bool checked = from_parent || ntohs(header.level_flags) & INAGG_F_CHECKED;
    return checked && !inagg_packet_intact(&header, inagg_body_checksum(&join)) ? INAGG_R_PAYLOAD_CHECKSUM : INAGG_R_NONE;
}

template <typename Header> void append(std::vector<uint8_t> &frame, const Header &header) {
    const auto *bytes = reinterpret_cast<const uint8_t *>(&header);
    frame.insert(frame.end(), bytes, bytes + sizeof header);
}

void append_ipv4(std::vector<uint8_t> &frame, const Address &from, const Address &to, uint16_t bytes) {
    iphdr ip{};
    ip.version = 4;
    ip.ihl = 5;
    ip.tos = INAGG_TOS;
    ip.tot_len = htons(static_cast<uint16_t>(sizeof ip + bytes));
    ip.frag_off = htons(IP_DF);
    ip.ttl = IPDEFTTL;
    ip.protocol = IPPROTO_UDP;
    std::memcpy(&ip.saddr, from.bytes.data(), sizeof ip.saddr);
    std::memcpy(&ip.daddr, to.bytes.data(), sizeof ip.daddr);
    ip.check = inagg_ipv4_checksum(&ip);
    append(frame, ip);
}

void append_ipv6(std::vector<uint8_t> &frame, const Address &from, const Address &to, uint16_t bytes) {
    ip6_hdr ip{};
    ip.ip6_flow = htonl(6u << 28 | INAGG_TOS << 20);
    ip.ip6_plen = htons(bytes);
    ip.ip6_nxt = IPPROTO_UDP;
    ip.ip6_hlim = IPDEFTTL;
    std::memcpy(&ip.ip6_src, from.bytes.data(), sizeof ip.ip6_src);
    std::memcpy(&ip.ip6_dst, to.bytes.data(), sizeof ip.ip6_dst);
    append(frame, ip);
}

} // namespace

Punted read_punted(Frame rest) {
    Punted result{.wrong = INAGG_R_LENGTH};
    inagg_event &event = result.event;
    PuntHeader punt;
    ether_header ethernet;
    udphdr udp;
    inagg_hdr header;
    if (!take(rest, punt) || ntohs(punt.type) != punt_type || !take(rest, ethernet) ||
        !take_ip(rest, ntohs(ethernet.ether_type), event) || !take(rest, udp) || !take(rest, header) || !take(rest, event.join) ||
        ntohs(udp.len) != sizeof udp + sizeof header + sizeof event.join)
        return result;
    event.ifindex = ntohs(punt.port);
    event.source_port = udp.source;
    std::copy_n(ethernet.ether_shost, sizeof event.mac, event.mac);
    std::copy_n(ethernet.ether_dhost, sizeof event.own_mac, event.own_mac);
    describe(header, event);
    result.wrong = wrong_with(header, event.join);
    return result;
}

std::vector<uint8_t> clock_frame(uint16_t index, uint8_t work) {
    constexpr size_t shortest = 60;
    std::vector<uint8_t> frame;
    append(frame, PuntHeader{.to = {}, .from = {0, 0, 0, 0, 0, work}, .type = htons(clock_type), .port = htons(index)});
    frame.resize(shortest);
    return frame;
}

std::vector<uint8_t> write_datagram(const Endpoint &from, const Endpoint &to, uint16_t udp_port, const inagg_hdr &header,
                                    std::span<const uint8_t> body) {
    const bool four = to.address.family == 4;
    udphdr udp{};
    const auto bytes = static_cast<uint16_t>(sizeof udp + sizeof header + body.size());
    ether_header ethernet{};
    std::copy(to.mac.begin(), to.mac.end(), ethernet.ether_dhost);
    std::copy(from.mac.begin(), from.mac.end(), ethernet.ether_shost);
    ethernet.ether_type = htons(four ? ETHERTYPE_IP : ETHERTYPE_IPV6);
    udp.source = htons(INAGG_PORT);
    udp.dest = udp_port;
    udp.len = htons(bytes); // and no checksum: RFC 6935

    std::vector<uint8_t> frame;
    append(frame, ethernet);
    (four ? append_ipv4 : append_ipv6)(frame, from.address, to.address, bytes);
    append(frame, udp);
    append(frame, header);
    frame.insert(frame.end(), body.begin(), body.end());
    return frame;
}

std::vector<uint8_t> write_punted(uint16_t port, const Endpoint &from, const Endpoint &to, uint16_t udp_port, inagg_hdr header,
                                  const inagg_join &body) {
    inagg_hdr_seal_checked(&header, inagg_body_checksum(&body));
    std::vector<uint8_t> frame;
    append(frame, PuntHeader{.to = {}, .from = {}, .type = htons(punt_type), .port = htons(port)});
    const auto *bytes = reinterpret_cast<const uint8_t *>(&body);
    std::ranges::copy(write_datagram(from, to, udp_port, header, {bytes, sizeof body}), std::back_inserter(frame));
    return frame;
}

} // namespace inaggd::p4
