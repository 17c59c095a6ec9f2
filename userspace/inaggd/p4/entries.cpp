// SPDX-License-Identifier: BSD-2-Clause
#include "p4/entries.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>

#include <algorithm>
#include <span>

namespace inaggd::p4 {
namespace {

std::string hex(uint64_t number) { return fmt::format("{:#x}", number); }

std::string hex(std::span<const uint8_t> bytes) {
    std::string text = "0x";
    for (uint8_t byte : bytes)
        text += fmt::format("{:02x}", byte);
    return text;
}

// IPv4 addresses stand in the last 4 bytes.
std::string hex(const Address &address) {
    return hex(std::span(address.bytes).first(address.family == 4 ? 4 : 16));
}

// Numbers are on the wire, and in the records, big-endian.
std::string port_number(uint16_t network_order) { return hex(ntohs(network_order)); }

Address address_of(const inagg_uplink &parent) {
    Address address{.family = parent.family};
    std::copy(std::begin(parent.address), std::end(parent.address), address.bytes.begin());
    return address;
}

bool is_here(const Seat &seat) { return seat.member.ifindex != 0; }

} // namespace

Entry settings_entry(const Settings &settings) {
    const Address none{.family = 4};
    return {.table = "settings",
            .key = {},
            .action = "set_switch",
            .parameters = {hex(settings.cpu_port), hex(settings.address4.family ? settings.address4 : none),
                           hex(settings.address6.family ? settings.address6 : none), hex(settings.boot), hex(settings.has_parent), hex(settings.aggregators - 1)}};
}

JobEntries job_entries(uint16_t number, const inagg_job &job, const Seats &seats, const inagg_uplink &parent) {
    JobEntries all;
    all.group = static_cast<uint16_t>(job.index + 1);
    for (uint16_t rank = 0; rank < job.size; rank++) {
        const Seat &seat = seats[rank];
        if (!is_here(seat))
            continue;
        const std::string address = hex(Address::of(seat.member));
        const std::string receive_port = port_number(seat.member.receive_port);
        all.entries.push_back({.table = "members",
                               .key = {hex(number), hex(rank)},
                               .action = "set_member",
                               .parameters = {hex(seat.member.ifindex), hex(seat.member.mac), address, receive_port,
                                              hex(seat.subtree)}});
        if (seat.is_represented || inagg_job_excludes(&job, rank))
            continue;
        all.entries.push_back({.table = "copies",
                               .key = {hex(number), hex(rank)},
                               .action = "to_rank",
                               .parameters = {hex(seat.member.mac), address, receive_port}});
        all.copies.push_back({.rank = rank, .port = static_cast<uint16_t>(seat.member.ifindex)});
    }
    if (parent.ifindex)
        all.entries.push_back({.table = "parents",
                               .key = {hex(number)},
                               .action = "set_parent",
                               .parameters = {hex(parent.ifindex), hex(parent.own_mac), hex(parent.mac),
                                              hex(address_of(parent))}});
    all.entries.push_back({.table = "jobs",
                           .key = {hex(number)},
                           .action = "set_job",
                           .parameters = {hex(job.index), hex(job.generation), hex(job.size), hex(job.elements),
                                          hex(job.first_slot), hex(job.slots), hex(job.control_slots),
                                          hex((job.flags & INAGG_JOIN_TREE) != 0), hex(job.all),
                                          hex(inagg_all_ranks(job.size))}});
    return all;
}

Entry station_entry(const std::array<uint8_t, 6> &mac, uint16_t port) {
    return {.table = "stations", .key = {hex(mac)}, .action = "forward", .parameters = {hex(port)}};
}

} // namespace inaggd::p4
