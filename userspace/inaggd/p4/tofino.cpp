// SPDX-License-Identifier: BSD-2-Clause
#include "p4/tofino.hpp"

#include <inagg/core/aggregator.h>
#include <inagg/core/leader.h>

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <bit>
#include <initializer_list>
#include <iterator>
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

// An entry of a job's in p4/v1model, as the pool has it.
std::vector<Entry> pool_entries(const Entry &entry) {
    if (entry.table == "jobs")
        return {job_of(entry)};
    if (entry.table == "members")
        return {with(entry, {"port", "address", "receive_port"})};
    if (entry.action == "to_rank")
        return {with(entry, {"mac", "address", "receive_port"})};
    return {};
}

// Likewise atp.
std::vector<Entry> aggregator_entries(const Entry &entry, const Shared &aggregators) {
    if (entry.table == "jobs")
        return {job_with(entry, aggregators)};
    if (entry.table == "members")
        return {member_of(entry, false)};
    if (entry.table == "places")
        return {with(entry, {"port"})};
    if (entry.table == "parents")
        return parent_of(entry);
    return pool_entries(entry);
}

Entry position_of(const Job &of, uint32_t slot, const Shared &descriptors) {
    const inagg_job &job = of.record;
    const bool is_control = slot >= job.slots;
    const uint32_t window = is_control ? job.control_slots : job.slots;
    const uint32_t leader = inagg_leader_of(job.size, slot);
    // That of a first attempt, as inagg_descriptor_index() has it; the pool version tells the two of a slot apart.
    const uint32_t descriptor = inagg_shared_entry(job.index, 2 * (job.first_slot + slot), descriptors.share, descriptors.count);
    return {"positions",
            {hex(of.number), hex(slot)},
            "set_position",
            {{"id", hex(uint64_t{descriptor_row(job)} << 16 | slot)},
             {"descriptor", hex(descriptor)},
             {"leader", hex(leader)},
             {"others", hex(inagg_all_ranks(job.size) & ~inagg_rank_bit(leader))},
             {"mask", hex(window - 1)},
             {"place", hex(is_control ? slot - job.slots : slot)}}};
}

// canary: whose address is whose; for how many visits of the clock a sum waits; and of each slot its leader and descriptors.
std::vector<Entry> descriptor_entries(const Job &of, const Shared &descriptors) {
    const inagg_job &job = of.record;
    std::vector<Entry> entries;
    bool is_six = false;
    for (uint16_t rank = 0; rank < job.size; rank++) {
        const inagg_member &member = of.seats[rank].member;
        if (!member.ifindex)
            continue;
        const std::string port = hex(member.ifindex);
        is_six = member.family == 6;
        const auto [high, low] = halves(hex(Address::of(member)));
        entries.push_back({"places", {hex(of.number), hex(rank)}, "set_place", {{"port", port}}});
        entries.push_back({"speakers", {hex(of.number), high, low, port}, "set_speaker", {{"rank", hex(rank)}}});
    }
    const auto patience = std::chrono::microseconds(of.above.timeout_us) / tofino_clock_period;
    entries.push_back({"rows",
                       {hex(descriptor_row(job)), hex(is_six)},
                       "set_row",
                       {{"job", hex(of.number)},
                        {"generation", hex(job.generation)},
                        {"size", hex(job.size)},
                        {"patience", hex(static_cast<uint64_t>(patience))}}});
    for (uint32_t slot = 0; slot < job.slots + job.control_slots; slot++)
        entries.push_back(position_of(of, slot, descriptors));
    return entries;
}

} // namespace

std::vector<Entry> tofino_entries(const Entry &entry) {
    return entry.table == "settings" ? settings(entry) : std::vector<Entry>{entry};
}

// That of the table `jobs` stays the last.
JobEntries tofino_job(const Job &job, const Shared &shared) {
    const bool is_atp = job.record.algorithm == INAGG_ATP;
    const JobEntries all = job_entries(job);
    JobEntries own{.entries = {}, .group = all.group, .copies = all.copies};
    if (job.record.algorithm == INAGG_CANARY)
        own.entries = descriptor_entries(job, shared);
    for (const Entry &entry : all.entries)
        std::ranges::copy(is_atp ? aggregator_entries(entry, shared) : pool_entries(entry), std::back_inserter(own.entries));
    return own;
}

uint32_t descriptor_row(const inagg_job &job) { return 0x8000 | (job.generation & 0xffu) << 7 | job.index; }

std::vector<uint8_t> tofino_tick(const Mac &mac, const Address &own) {
    const std::array<uint8_t, INAGG_CHUNK * sizeof(uint32_t)> elements{};
    return write_datagram({mac, own}, {mac, own}, htons(INAGG_PORT), inagg_hdr{}, elements);
}

} // namespace inaggd::p4
