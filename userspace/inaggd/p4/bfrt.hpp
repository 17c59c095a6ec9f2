// SPDX-License-Identifier: BSD-2-Clause
// A Tofino whose driver, bf_switchd, serves BF Runtime, through inagg-bfrt, which speaks that.
#pragma once

#include "p4/dialogue.hpp"
#include "p4/tables.hpp"
#include "p4/tofino.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <string>
#include <vector>

namespace inaggd::p4 {

// What the programs in p4/tna can do.
constexpr Limits tofino_limits(uint8_t algorithm) {
    return {.algorithm = algorithm,
            .elements = 32,
            .ranks = tofino_ranks,
            .adds_halves = false,
            .adds_floats = false,
            .big_endian = true,
            .checks_payloads = false,
            .excludes = false,
            .trees = false,
            .lists_slots = algorithm == INAGG_CANARY};
}

class BfRuntime : public Tables {
public:
    // `address`: HOST:PORT. Throws Error if there is no such server, none of these programs in it, or what inagg-bfrt needs is
    // missing.
    explicit BfRuntime(const std::string &address);

    Program program() override;
    // Throws Error for a port that was never added to the switch; one that goes later has no link.
    std::map<uint16_t, bool> links(const std::map<std::string, uint16_t> &ports) override;
    void put_settings(const Settings &settings) override;
    void put_job(const Job &job) override;
    void remove_job(uint16_t number) override;
    void clear_slots(const inagg_job &record) override;
    std::vector<inagg_stats> stats() override;
    void clear_stats(uint32_t row) override;
    bool has_clock() const override { return algorithm() == INAGG_CANARY; }
    void tidy() override;

private:
    std::vector<Entry> own(const Entry &entry) const override { return tofino_entries(entry); }
    JobEntries own_job(const Job &job) const override { return tofino_job(job, shared_); }
    void write_default(const Entry &entry) override;
    void add(const Entry &entry) override;
    void modify(const Entry &entry) override;
    void erase(const Entry &entry) override;
    void write_group(uint16_t group, const std::vector<Copy> &copies) override;
    void erase_group(uint16_t group) override;
    void erase_all() override;

    uint8_t algorithm() const;
    void run_clock(bool runs);
    nlohmann::json heard();
    template <typename... Arguments> nlohmann::json ask(const char *method, const Arguments &...arguments) {
        client_.say(nlohmann::json{method, arguments...}.dump() + "\n");
        return heard();
    }

    const std::string address_;
    Dialogue client_;
    std::map<std::string, uint32_t> sizes_; // of the program's tables and registers
    std::map<uint16_t, bool> ports_;        // that were there: still are
    Shared shared_;
    bool clock_runs_ = false;
};

} // namespace inaggd::p4
