// SPDX-License-Identifier: BSD-2-Clause
#include "p4/tofino.hpp"

#include <fmt/format.h>

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

// A job's slots are those of both streams.
Entry job_of(const Entry &entry) {
    Entry job = with(entry, {"index", "generation", "size", "first_slot", "slots", "everyone"});
    for (Parameter &parameter : job.parameters)
        if (parameter.name == "slots")
            parameter.value = fmt::format("{:#x}", number(entry.value("slots")) + number(entry.value("control_slots")));
    return job;
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

} // namespace inaggd::p4
