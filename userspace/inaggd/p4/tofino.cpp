// SPDX-License-Identifier: BSD-2-Clause
#include "p4/tofino.hpp"

#include <inagg/core/aggregator.h>
#include <inagg/core/leader.h>

#include <bit>
#include <initializer_list>
#include <utility>

namespace inaggd::p4 {
namespace {

// The entry with these parameters only.
Entry with(const Entry &entry, std::initializer_list<const char *> names) {
    Entry kept{entry.table, entry.key, entry.action, {}};
    for (const char *name : names)
        kept.parameters.push_back({name, entry.value(name)});
    return kept;
}

uint64_t number(const std::string &text) { return std::stoull(text, nullptr, 16); }

// An address as 12 bytes and 4.
std::pair<std::string, std::string> halves(const std::string &address) {
    const size_t low = address.size() - 8;
    return {low > 2 ? address.substr(0, low) : "0x0", "0x" + address.substr(low)};
}

// Tables know the switch's addresses, and who pretends to have them.
void add_own(const std::string &table, const std::string &address, std::vector<Entry> &entries) {
    if (address.find_first_not_of("0x") == std::string::npos)
        return;
    const auto [high, low] = halves(address);
    entries.push_back({table, {address}, "is_own", {}});
    entries.push_back({"own_sources", {high, low}, "is_forged", {}});
}

std::vector<Entry> settings(const Entry &entry) {
    std::vector<Entry> entries = {with(entry, {"cpu_port", "boot"})};
    add_own("own4", entry.value("own4"), entries);
    add_own("own6", entry.value("own6"), entries);
    return entries;
}

// A job's slots are those of both streams.
std::string all_slots(const Entry &entry) { return hex(number(entry.value("slots")) + number(entry.value("control_slots"))); }

Entry job_of(const Entry &entry) {
    Entry job = with(entry, {"index", "generation", "size", "first_slot", "slots", "everyone"});
    for (Parameter &parameter : job.parameters)
        if (parameter.name == "slots")
            parameter.value = all_slots(entry);
    return job;
}

// Where the job's aggregators are, and by what they know whose they are.
Entry job_with(const Entry &entry, const Shared &aggregators) {
    Entry job = with(entry, {"index", "generation", "size", "here", "everyone"});
    const auto index = static_cast<uint32_t>(number(entry.value("index")));
    job.parameters.push_back({"slots", all_slots(entry)});
    job.parameters.push_back({"alone", hex(std::has_single_bit(number(entry.value("here"))))});
    job.parameters.push_back({"base", hex(inagg_shared_entry(index, 0, aggregators.share, aggregators.count))});
    job.parameters.push_back({"last", hex(aggregators.share - 1)});
    job.parameters.push_back({"tenure", hex(uint64_t{index} << 26 | number(entry.value("generation")) << 10)});
    return job;
}

// From below, or from above.
Entry member_of(const Entry &entry, bool is_above) {
    Entry member = with(entry, {"port", "address"});
    member.key.push_back(hex(is_above));
    return member;
}

// Who may speak from above to each rank; by which port to go there; and, for egress, the addresses.
std::vector<Entry> parent_of(const Entry &entry) {
    Entry uplink = with(entry, {"port"}), copy = with(entry, {"own_mac", "mac", "address"});
    uplink.table = "uplinks";
    uplink.action = "set_uplink";
    copy.table = "copies";
    copy.action = "to_above";
    copy.key.push_back("0xffff");
    std::vector<Entry> entries = {uplink, copy};
    for (uint64_t rank = 0; rank < tofino_ranks; rank++) {
        Entry member = entry;
        member.table = "members";
        member.action = "set_member";
        member.key.push_back(hex(rank));
        entries.push_back(member_of(member, true));
    }
    return entries;
}

// What tells a slot's descriptors from all others, but for the slot: rows of the table `rows`.
uint32_t id_of(const inagg_job &job) { return 0x8000 | (job.generation & 0xffu) << 7 | job.index; }

Entry position_of(uint16_t number, const inagg_job &job, uint32_t slot, const Shared &descriptors) {
    const bool is_control = slot >= job.slots;
    const uint32_t window = is_control ? job.control_slots : job.slots;
    const uint32_t leader = inagg_leader_of(job.size, slot);
    // The pool version tells the two of a slot apart.
    const uint32_t descriptor =
        inagg_shared_entry(job.index, inagg_aggregator_index(number, slot, 0), descriptors.share, descriptors.count) & ~1u;
    return {"positions",
            {hex(number), hex(slot)},
            "set_position",
            {{"id", hex(uint64_t{id_of(job)} << 16 | slot)},
             {"descriptor", hex(descriptor)},
             {"leader", hex(leader)},
             {"others", hex(inagg_all_ranks(job.size) & ~inagg_rank_bit(leader))},
             {"mask", hex(window - 1)},
             {"place", hex(is_control ? slot - job.slots : slot)}}};
}

} // namespace

std::vector<Entry> tofino_entries(const Entry &entry) {
    if (entry.table == "settings")
        return settings(entry);
    if (entry.table == "jobs")
        return {job_of(entry)};
    if (entry.table == "members")
        return {with(entry, {"port", "address", "receive_port"})};
    if (entry.action == "to_rank")
        return {with(entry, {"mac", "address", "receive_port"})};
    if (entry.table == "stations")
        return {entry};
    return {};
}

std::vector<Entry> tofino_entries(const Entry &entry, const Shared &aggregators) {
    if (entry.table == "jobs")
        return {job_with(entry, aggregators)};
    if (entry.table == "members")
        return {member_of(entry, false)};
    if (entry.table == "places")
        return {with(entry, {"port"})};
    if (entry.table == "parents")
        return parent_of(entry);
    return tofino_entries(entry);
}

std::vector<Entry> descriptor_entries(uint16_t number, const inagg_job &job, const Seats &seats, const Shared &descriptors,
                                      uint32_t patience) {
    std::vector<Entry> entries;
    bool is_six = false;
    for (uint16_t rank = 0; rank < job.size; rank++) {
        const inagg_member &member = seats[rank].member;
        if (!member.ifindex)
            continue;
        const std::string port = hex(member.ifindex);
        is_six = member.family == 6;
        const auto [high, low] = halves(hex(Address::of(member)));
        entries.push_back({"places", {hex(number), hex(rank)}, "set_place", {{"port", port}}});
        entries.push_back({"speakers", {hex(number), high, low, port}, "set_speaker", {{"rank", hex(rank)}}});
    }
    entries.push_back(
        {"rows",
         {hex(id_of(job)), hex(is_six)},
         "set_row",
         {{"job", hex(number)}, {"generation", hex(job.generation)}, {"size", hex(job.size)}, {"patience", hex(patience)}}});
    for (uint32_t slot = 0; slot < job.slots + job.control_slots; slot++)
        entries.push_back(position_of(number, job, slot, descriptors));
    return entries;
}

} // namespace inaggd::p4
