// SPDX-License-Identifier: BSD-2-Clause
// What is in a switch's tables and multicast groups, so that only what changes is written.
#pragma once

#include "job_book.hpp"
#include "p4/driver.hpp"

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace inaggd::p4 {

// What the switch runs, which adds by one algorithm.
struct Program {
    std::string name;      // of the switch, as users know it
    uint32_t slots;        // pairs
    uint32_t shared_slots; // places of blocks that all jobs share, a power of two: canary's descriptors, atp's aggregators,
                           // trio's buckets
    Limits limits;
};

class Tables : public Driver {
public:
    // Throws Error if it is not inagg's.
    virtual Program program() = 0;
    // Which ports, by number, have somebody at the other end. `ports`: by the names that users know.
    virtual std::map<uint16_t, bool> links(const std::map<std::string, uint16_t> &ports) = 0;
    void reset() override;
    void put_settings(const Settings &settings) override { put(settings_entry(settings)); }
    void put(const Entry &entry) override;
    void remove(const Entry &entry) override;
    void put_job(const Job &job) override;
    void remove_job(uint16_t number) override;
    void put_flood(const std::vector<uint16_t> &ports) override;

protected:
    using Key = std::pair<std::string, std::vector<std::string>>; // table, and the key in it

    // As they are, or were to be, in the tables.
    const std::map<uint16_t, JobEntries> &jobs() const { return jobs_; }
    // What the switch's program has in its tables for this entry, or job, of p4/v1model.
    virtual std::vector<Entry> own(const Entry &entry) const { return {entry}; }
    virtual JobEntries own_job(const Job &job) const { return job_entries(job); }
    // The switch's way to do so. An entry is known by its table and key.
    virtual void write_default(const Entry &entry) = 0;
    virtual void add(const Entry &entry) = 0;
    virtual void modify(const Entry &entry) = 0;
    virtual void erase(const Entry &entry) = 0;
    // The group, which may be there, or a part of it, becomes this. Whoever stays in it misses nothing.
    virtual void write_group(uint16_t group, const std::vector<Copy> &copies) = 0;
    virtual void erase_group(uint16_t group) = 0;
    virtual void erase_all() = 0;

private:
    void put_own(const Entry &entry);
    void remove_own(const Entry &entry);
    void put_group(uint16_t group, const std::vector<Copy> &copies);
    void remove_group(uint16_t group);

    std::map<Key, Entry> installed_;
    std::map<uint16_t, JobEntries> jobs_;
    std::map<uint16_t, std::optional<std::vector<Copy>>> groups_; // nothing: it could not be written, or not all of it
};

} // namespace inaggd::p4
