// SPDX-License-Identifier: BSD-2-Clause
// Writes the tables of a BMv2 simple_switch, through the command line that comes with it (simple_switch_CLI), which
// stays open: so neither Thrift nor BMv2 is needed to build this.
#pragma once

#include "common/fd.hpp"
#include "p4/entries.hpp"

#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

namespace inaggd::p4 {

using inagg::Fd;

class Bmv2 {
public:
    // The switch whose Thrift server is at that port of this machine. Throws Error if there is none, or no simple_switch_CLI.
    explicit Bmv2(uint16_t thrift_port);
    ~Bmv2();
    Bmv2(const Bmv2 &) = delete;
    Bmv2 &operator=(const Bmv2 &) = delete;

    // Adds the entry, or gives the one with its key this action. A table without keys: its default action.
    void put(const Entry &entry);
    void remove(const Entry &entry);
    // The job's entries and its multicast group become these.
    void put_job(uint16_t number, const JobEntries &wanted);
    // First the one by which packets find the job.
    void remove_job(uint16_t number);
    // What leaves by all ports but the one that it came by.
    void put_flood(const std::vector<uint16_t> &ports);

    void write_register(const std::string &name, uint32_t index, uint64_t value);
    void clear_registers(const std::string &name);
    std::vector<uint64_t> read_registers(const std::string &name);

private:
    using Key = std::pair<std::string, std::vector<std::string>>;
    struct Installed {
        Entry entry;
        uint64_t handle;
    };

    std::string run(const std::string &command);
    std::string answer();
    uint64_t handle_of(const std::string &command, const std::string &said) const;
    void put_group(uint16_t group, const std::vector<Copy> &copies);
    void remove_group(uint16_t group);

    pid_t child_ = 0;
    Fd to_, from_;
    std::map<Key, Installed> installed_;
    std::map<uint16_t, JobEntries> jobs_;
    std::map<uint16_t, std::vector<uint64_t>> nodes_; // of multicast groups
};

} // namespace inaggd::p4
