// SPDX-License-Identifier: BSD-2-Clause
// A BMv2 simple_switch, through the command line that comes with it (simple_switch_CLI), which stays open.
#pragma once

#include "p4/dialogue.hpp"
#include "p4/tables.hpp"

#include <map>
#include <string>
#include <vector>

namespace inaggd::p4 {

// What the programs in p4/v1model can do; there is one for each of these algorithms.
constexpr Limits bmv2_limits(uint8_t algorithm) {
    return {.algorithm = algorithm,
            .elements = 64,
            .adds_halves = false,
            .adds_floats = false,
            .checks_payloads = false,
            .excludes = false};
}
// The clock looks at each place of canary and trio, and each look is a packet, of which BMv2 takes a few
// thousand a second beside its other work.
constexpr uint32_t bmv2_shared_slots(uint8_t algorithm) {
    return algorithm == INAGG_CANARY ? 64 : algorithm == INAGG_TRIO ? 16 : 512;
}

class Bmv2 : public Tables {
public:
    // The switch whose Thrift server is at that port of this machine. Throws Error if there is none, or no
    // simple_switch_CLI.
    explicit Bmv2(uint16_t thrift_port);

    Program program() override;
    std::map<uint16_t, bool> links(const std::map<std::string, uint16_t> &ports) override;
    void clear_slots(const inagg_job &record) override;
    std::vector<inagg_stats> stats() override;
    void clear_stats(uint32_t row) override;
    void write_registers(const std::string &name, uint32_t first, uint32_t count, uint64_t value);
    std::vector<uint64_t> read_registers(const std::string &name);

private:
    void write_default(const Entry &entry) override;
    void add(const Entry &entry) override;
    void modify(const Entry &entry) override;
    void erase(const Entry &entry) override;
    void write_group(uint16_t group, const std::vector<Copy> &copies) override;
    void erase_group(uint16_t group) override;
    void erase_all() override;

    uint8_t algorithm();
    uint32_t slot_count();
    static void need_success(const std::string &command, const std::string &said);
    std::string run(const std::string &command);
    uint64_t handle_of(const std::string &command);
    void remove_node(uint16_t group, uint64_t node);
    void write_floors(const inagg_job &record);

    const uint16_t thrift_port_;
    Dialogue cli_;
    std::map<Key, uint64_t> handles_;
    std::map<uint16_t, std::map<Copy, uint64_t>> nodes_; // of multicast groups
};

} // namespace inaggd::p4
