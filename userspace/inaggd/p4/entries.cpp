// SPDX-License-Identifier: BSD-2-Clause
#include "p4/entries.hpp"

#include "error.hpp"

#include <fmt/format.h>

#include <arpa/inet.h>

#include <algorithm>

namespace inaggd::p4 {
namespace {

// Numbers are on the wire, and in the records, big-endian.
std::string port_number(uint16_t network_order) { return hex(ntohs(network_order)); }

Address address_of(const inagg_uplink &parent) {
    Address address{.family = parent.family};
    std::copy(std::begin(parent.address), std::end(parent.address), address.bytes.begin());
    return address;
}

std::vector<Parameter> way_to(const inagg_uplink &parent) {
    return {{"port", hex(parent.ifindex)},
            {"own_mac", hex(parent.own_mac)},
            {"mac", hex(parent.mac)},
            {"address", hex(address_of(parent))}};
}

// Rows of the multicast group behind those of ranks are ports above.
void add_route(uint16_t number, const Above &above, JobEntries &all) {
    const auto ups = std::count_if(above.ups.begin(), above.ups.end(), [](const inagg_uplink &up) { return up.ifindex; });
    all.entries.push_back(
        {"routes",
         {hex(number)},
         "set_route",
         {{"live", hex(above.live)}, {"ups", hex(static_cast<uint64_t>(ups))}, {"timeout_us", hex(above.timeout_us)}}});
    for (uint16_t i = 0; i < above.ups.size(); i++) {
        if (!(above.live >> i & 1))
            continue;
        const inagg_uplink &up = above.ups[i];
        const auto row = static_cast<uint16_t>(INAGG_MAX_RANKS + i);
        all.entries.push_back({"copies",
                               {hex(number), hex(row)},
                               "to_above",
                               {{"own_mac", hex(up.own_mac)}, {"mac", hex(up.mac)}, {"address", hex(address_of(up))}}});
        all.copies.push_back({.rank = row, .port = static_cast<uint16_t>(up.ifindex)});
    }
}

Entry policy_entry(uint16_t number, const inagg_policy &policy) {
    return {"policies",
            {hex(number)},
            "set_policy",
            {{"sweeps", hex(policy.expiry_sweeps)}, {"ranks", hex(policy.quorum)}, {"blocks", hex(policy.most_open)}}};
}

bool is_here(const Seat &seat) { return seat.member.ifindex != 0; }

} // namespace

std::string hex(uint64_t number) { return fmt::format("{:#x}", number); }

std::string hex(std::span<const uint8_t> bytes) {
    std::string text = "0x";
    for (uint8_t byte : bytes)
        text += fmt::format("{:02x}", byte);
    return text;
}

// IPv4 addresses stand in the last 4 bytes.
std::string hex(const Address &address) { return hex(std::span(address.bytes).first(address.family == 4 ? 4 : 16)); }

const std::string &Entry::value(const std::string &name) const {
    const auto found = std::find_if(parameters.begin(), parameters.end(), [&](const Parameter &p) { return p.name == name; });
    if (found == parameters.end())
        throw Error("table {}: {} has no {}", table, action, name);
    return found->value;
}

Entry settings_entry(const Settings &settings) {
    const Address none{.family = 4};
    return {.table = "settings",
            .key = {},
            .action = "set_switch",
            .parameters = {{"cpu_port", hex(settings.cpu_port)},
                           {"mac", hex(settings.mac)},
                           {"own4", hex(settings.address4.family ? settings.address4 : none)},
                           {"own6", hex(settings.address6.family ? settings.address6 : none)},
                           {"boot", hex(settings.boot)},
                           {"has_parent", hex(settings.has_parent)},
                           {"shared_mask", hex(settings.shared_slots - 1)},
                           {"share", hex(settings.share)}}};
}

JobEntries job_entries(const Job &of) {
    const auto &[number, job, seats, above, policy] = of;
    JobEntries all;
    all.group = static_cast<uint16_t>(job.index + 1);
    if (job.algorithm == INAGG_TRIO)
        all.entries.push_back(policy_entry(number, policy));
    for (uint16_t rank = 0; rank < job.size; rank++) {
        const Seat &seat = seats[rank];
        if (!is_here(seat))
            continue;
        const Parameter port{"port", hex(seat.member.ifindex)}, mac{"mac", hex(seat.member.mac)};
        const Parameter address{"address", hex(Address::of(seat.member))};
        const Parameter receive_port{"receive_port", port_number(seat.member.receive_port)};
        const Parameter subtree{"subtree", hex(seat.subtree)};
        const std::vector<std::string> key = {hex(number), hex(rank)};
        all.entries.push_back({"members", key, "set_member", {port, address, receive_port, subtree}});
        all.entries.push_back({"places", key, "set_place", {port, mac, address, receive_port, subtree}});
        if (seat.is_represented || inagg_job_excludes(&job, rank))
            continue;
        all.entries.push_back({"copies", key, "to_rank", {mac, address, receive_port, subtree}});
        all.copies.push_back({.rank = rank, .port = static_cast<uint16_t>(seat.member.ifindex)});
    }
    if (job.algorithm == INAGG_CANARY)
        add_route(number, above, all);
    else if (above.ups[0].ifindex)
        all.entries.push_back({"parents", {hex(number)}, "set_parent", way_to(above.ups[0])});
    all.entries.push_back({.table = "jobs",
                           .key = {hex(number)},
                           .action = "set_job",
                           .parameters = {{"index", hex(job.index)},
                                          {"generation", hex(job.generation)},
                                          {"size", hex(job.size)},
                                          {"elements", hex(job.elements)},
                                          {"first_slot", hex(job.first_slot)},
                                          {"slots", hex(job.slots)},
                                          {"control_slots", hex(job.control_slots)},
                                          {"in_tree", hex((job.flags & INAGG_JOIN_TREE) != 0)},
                                          {"here", hex(job.all)},
                                          {"everyone", hex(inagg_all_ranks(job.size))}}});
    return all;
}

Entry station_entry(const std::array<uint8_t, 6> &mac, uint16_t port) {
    return {.table = "stations", .key = {hex(mac)}, .action = "to_station", .parameters = {{"port", hex(port)}}};
}

std::vector<inagg_floor> first_floors(const inagg_job &job) {
    std::vector<inagg_floor> floors;
    for (uint32_t position = 0; position < job.slots + job.control_slots; position++)
        floors.push_back(inagg_floor_at_start(&job, position));
    return floors;
}

std::vector<Entry> up_entries(const Ups &ups) {
    std::vector<Entry> entries;
    for (uint16_t i = 0; i < ups.size(); i++) {
        if (!ups[i].ifindex)
            continue;
        entries.push_back({"up_ports", {hex(i)}, "set_up_port", way_to(ups[i])});
        entries.push_back({"above", {hex(ups[i].ifindex), hex(address_of(ups[i]))}, "set_up", {{"bit_of_port", hex(1u << i)}}});
    }
    return entries;
}

} // namespace inaggd::p4
