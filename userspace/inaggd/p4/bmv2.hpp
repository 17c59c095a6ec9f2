// SPDX-License-Identifier: BSD-2-Clause
// Writes the tables of a BMv2 simple_switch, through the command line that comes with it (simple_switch_CLI), which
// stays open: so neither Thrift nor BMv2 is needed to build this.
#pragma once

#include "common/fd.hpp"
#include "p4/driver.hpp"

#include <map>
#include <string>
#include <sys/types.h>
#include <vector>

namespace inaggd::p4 {

using inagg::Fd;

class Bmv2 : public Driver {
public:
    // The switch whose Thrift server is at that port of this machine. Throws Error if there is none, or no simple_switch_CLI.
    explicit Bmv2(uint16_t thrift_port);
    ~Bmv2() override;
    Bmv2(const Bmv2 &) = delete;
    Bmv2 &operator=(const Bmv2 &) = delete;

    // Slots of its program. Throws Error if that is not inagg's.
    size_t slot_count();
    // Of its program, which does nothing else.
    uint8_t algorithm();
    void reset() override;
    void put(const Entry &entry) override;
    void remove(const Entry &entry) override;
    void put_job(uint16_t number, const JobEntries &wanted) override;
    void remove_job(uint16_t number) override;
    void put_flood(const std::vector<uint16_t> &ports) override;
    void write_registers(const std::string &name, uint32_t first, uint32_t count, uint64_t value) override;
    std::vector<uint64_t> read_registers(const std::string &name) override;

private:
    using Key = std::pair<std::string, std::vector<std::string>>;
    struct Installed {
        Entry entry;
        uint64_t handle;
    };

    void say(const std::string &lines);
    std::string answer();
    static void need_success(const std::string &command, const std::string &said);
    std::string run(const std::string &command);
    uint64_t handle_of(const std::string &command, const std::string &said) const;
    void put_group(uint16_t group, const std::vector<Copy> &copies);
    void remove_node(uint16_t group, uint64_t node);
    void remove_group(uint16_t group);

    uint16_t thrift_port_;
    pid_t child_ = 0;
    Fd to_, from_;
    std::string heard_; // and not yet understood
    bool silent_ = false; // it has not answered in time
    std::map<Key, Installed> installed_;
    std::map<uint16_t, JobEntries> jobs_;
    std::map<uint16_t, std::map<Copy, uint64_t>> nodes_; // of multicast groups
};

} // namespace inaggd::p4
