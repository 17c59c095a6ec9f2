// SPDX-License-Identifier: BSD-2-Clause
#include "p4/tables.hpp"

#include <algorithm>
#include <set>

namespace inaggd::p4 {
namespace {

constexpr uint16_t flood_group = 0xffff;

} // namespace

void Tables::reset() {
    erase_all();
    installed_.clear();
    jobs_.clear();
    groups_.clear();
}

void Tables::put(const Entry &entry) {
    for (const Entry &of_program : own(entry))
        put_own(of_program);
}

void Tables::remove(const Entry &entry) {
    for (const Entry &of_program : own(entry))
        remove_own(of_program);
}

void Tables::put_own(const Entry &entry) {
    if (entry.key.empty()) {
        write_default(entry);
        return;
    }
    const auto found = installed_.find({entry.table, entry.key});
    if (found == installed_.end()) {
        add(entry);
        installed_[{entry.table, entry.key}] = entry;
    } else if (found->second != entry) {
        modify(entry);
        found->second = entry;
    }
}

void Tables::remove_own(const Entry &entry) {
    const auto found = installed_.find({entry.table, entry.key});
    if (found == installed_.end())
        return;
    erase(found->second);
    installed_.erase(found);
}

void Tables::put_job(const Job &job) {
    JobEntries wanted = own_job(job);
    std::set<Key> keys;
    for (const Entry &entry : wanted.entries)
        keys.insert({entry.table, entry.key});
    JobEntries &now = jobs_[job.number];
    for (const Entry &old : now.entries)
        if (!keys.contains({old.table, old.key}))
            remove_own(old);
    if (now.group != wanted.group)
        remove_group(now.group);
    now = std::move(wanted); // also if not all of it can be written: what has been is to be removed with the job
    put_group(now.group, now.copies);
    for (const Entry &entry : now.entries)
        put_own(entry);
}

void Tables::remove_job(uint16_t number) {
    const auto job = jobs_.find(number);
    if (job == jobs_.end())
        return;
    std::for_each(job->second.entries.rbegin(), job->second.entries.rend(), [this](const Entry &entry) { remove_own(entry); });
    remove_group(job->second.group);
    jobs_.erase(job);
}

void Tables::put_flood(const std::vector<uint16_t> &ports) {
    std::vector<Copy> copies;
    for (uint16_t port : ports)
        copies.push_back({.rank = 0, .port = port});
    put_group(flood_group, copies);
}

void Tables::put_group(uint16_t group, const std::vector<Copy> &copies) {
    std::optional<std::vector<Copy>> &now = groups_[group];
    if (now == copies)
        return;
    now.reset();
    write_group(group, copies);
    now = copies;
}

void Tables::remove_group(uint16_t group) {
    if (!groups_.contains(group))
        return;
    erase_group(group);
    groups_.erase(group);
}

} // namespace inaggd::p4
