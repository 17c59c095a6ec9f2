// SPDX-License-Identifier: BSD-2-Clause
#include "p4/tofino.hpp"

#include <fmt/format.h>

#include <bit>
#include <initializer_list>

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

// Tables know the switch's addresses, and who pretends to have them: an address as 12 bytes and 4.
void add_own(const std::string &table, const std::string &address, std::vector<Entry> &entries) {
    if (address.find_first_not_of("0x") == std::string::npos)
        return;
    const size_t low = address.size() - 8;
    entries.push_back({table, {address}, "is_own", {}});
    entries.push_back({"own_sources", {low > 2 ? address.substr(0, low) : "0x0", "0x" + address.substr(low)}, "is_forged", {}});
}

std::vector<Entry> settings(const Entry &entry) {
    std::vector<Entry> entries = {with(entry, {"cpu_port", "boot"})};
    add_own("own4", entry.value("own4"), entries);
    add_own("own6", entry.value("own6"), entries);
    return entries;
}

std::string text(uint64_t value) { return fmt::format("{:#x}", value); }

// A job's slots are those of both streams.
std::string all_slots(const Entry &entry) { return text(number(entry.value("slots")) + number(entry.value("control_slots"))); }

Entry job_of(const Entry &entry) {
    Entry job = with(entry, {"index", "generation", "size", "first_slot", "slots", "everyone"});
    for (Parameter &parameter : job.parameters)
        if (parameter.name == "slots")
            parameter.value = all_slots(entry);
    return job;
}

// Where the job's aggregators are (inagg_shared_entry()), and by what they know whose they are.
Entry job_with(const Entry &entry, const Aggregators &aggregators) {
    Entry job = with(entry, {"index", "generation", "size", "here", "everyone"});
    const uint64_t index = number(entry.value("index"));
    job.parameters.push_back({"slots", all_slots(entry)});
    job.parameters.push_back({"alone", text(std::has_single_bit(number(entry.value("here"))))});
    job.parameters.push_back({"base", text(index * aggregators.share & (aggregators.count - 1))});
    job.parameters.push_back({"last", text(aggregators.share - 1)});
    job.parameters.push_back({"tenure", text(index << 26 | number(entry.value("generation")) << 10)});
    return job;
}

constexpr uint64_t most_ranks = 32; // of a job

// From below, or from above.
Entry member_of(const Entry &entry, bool is_above) {
    Entry member = with(entry, {"port", "address"});
    member.key.push_back(text(is_above));
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
    for (uint64_t rank = 0; rank < most_ranks; rank++) {
        Entry member = entry;
        member.table = "members";
        member.action = "set_member";
        member.key.push_back(text(rank));
        entries.push_back(member_of(member, true));
    }
    return entries;
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

std::vector<Entry> tofino_entries(const Entry &entry, const Aggregators &aggregators) {
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

} // namespace inaggd::p4
