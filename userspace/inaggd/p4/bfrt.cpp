// SPDX-License-Identifier: BSD-2-Clause
#include "p4/bfrt.hpp"

#include "error.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <filesystem>
#include <utility>

namespace inaggd::p4 {
namespace {

using Json = nlohmann::json;

constexpr uint32_t reasons = 64; // of a row of the counters `drops`, p4/tna/leave.p4
static_assert(INAGG_R_COUNT <= reasons && reasons <= INAGG_R_CAPACITY);
// What this agent may have left.
const Json own_tables = {"settings", "own4",     "own6",   "own_sources", "jobs",
                         "members",  "stations", "copies", "slot_newest", "drops"};

// Beside this program, or where packages have it.
std::string client_path() {
    const std::filesystem::path here = std::filesystem::read_symlink("/proc/self/exe").parent_path();
    for (const std::filesystem::path &path : {here / "inagg-bfrt", here.parent_path() / "libexec/inagg/inagg-bfrt"})
        if (std::filesystem::exists(path))
            return path;
    return "inagg-bfrt";
}

Json parameters_of(const Entry &entry) {
    Json parameters = Json::array();
    for (const Parameter &parameter : entry.parameters)
        parameters.push_back({parameter.name, parameter.value});
    return parameters;
}

// Dropped for one of these, a packet was the job's: it is one that the slots refuse (INAGG_R_NONE: that they do not).
constexpr inagg_reason of_admitted[] = {INAGG_R_NONE, INAGG_R_STALE, INAGG_R_MISMATCH, INAGG_R_UNSOLICITED};

inagg_stats row_of(const Json &counted) {
    inagg_stats stats{};
    for (uint32_t reason = 1; reason < INAGG_R_COUNT; reason++)
        stats.drops[reason] = counted.at(reason);
    for (inagg_reason reason : of_admitted)
        stats.packets += counted.at(reason).get<uint64_t>();
    return stats;
}

} // namespace

BfRuntime::BfRuntime(const std::string &address)
    : address_(address), client_({.command = {client_path(), address},
                                  .end = "\x1e\n",
                                  .name = fmt::format("BF Runtime at {}", address),
                                  .comes_with = "inagg",
                                  .answer_ms = 30'000,
                                  .hears_errors = false}) {
    const Json program = heard();
    spdlog::debug("BF Runtime at {}: {}", address, program.dump());
    program.at("tables").get_to(sizes_);
    if (!sizes_.contains("slot_newest"))
        throw Error("BF Runtime at {}: inaggd drives switchml and panama of p4/tna, and {} is neither", address,
                    program.at("program").get<std::string>());
}

// What Python says beside it, if it does, is in front of it.
Json BfRuntime::heard() {
    const std::string said = client_.answer();
    const Json answer = Json::parse(said.substr(said.rfind('\n') + 1), nullptr, false);
    if (answer.is_object() && answer.contains("value"))
        return answer["value"];
    throw Error("BF Runtime at {}: {}", address_,
                answer.is_object() && answer.contains("error") ? answer["error"].get<std::string>() : said);
}

// A slot has two versions.
Program BfRuntime::program() {
    return {.name = fmt::format("Tofino at {}", address_),
            .slots = sizes_.at("slot_newest") / 2,
            .shared_slots = 1,
            .limits = tofino_limits(sizes_.contains("marked_packets") ? INAGG_PANAMA : INAGG_SWITCHML)};
}

std::map<uint16_t, bool> BfRuntime::links(const std::map<std::string, uint16_t> &ports) {
    std::vector<uint16_t> numbers;
    for (const auto &[name, port] : ports)
        numbers.push_back(port);
    const Json up = ask("links", numbers);
    std::map<uint16_t, bool> links;
    size_t i = 0;
    for (const auto &[name, port] : ports) {
        const Json &has_link = up.at(i++);
        if (has_link.is_null() && !ports_.contains(port))
            throw Error("--port {}={}: the switch has no such port; add it (port-add of bf_switchd's pm)", name, port);
        if (has_link.is_null() && std::exchange(ports_[port], false))
            spdlog::warn("port {}={}: has gone from the switch", name, port);
        if (!has_link.is_null())
            ports_[port] = true;
        links[port] = has_link.is_boolean() && has_link.get<bool>();
    }
    return links;
}

std::vector<Entry> BfRuntime::own(const Entry &entry) const { return tofino_entries(entry); }

// A slot of no block is one of no generation.
void BfRuntime::clear_slots(const inagg_job &record) {
    ask("zero", "slot_newest", 2 * record.first_slot, 2 * pool_slots(record));
}

// A job's row is its group's number, less one; nobody asks for others.
std::vector<inagg_stats> BfRuntime::stats() {
    std::vector<uint32_t> counting = {INAGG_STATS_NO_JOB}, firsts;
    for (const auto &[number, job] : jobs())
        counting.push_back(job.group - 1u);
    for (uint32_t row : counting)
        firsts.push_back(row * reasons);
    const Json counted = ask("count", "drops", firsts, INAGG_R_COUNT);
    std::vector<inagg_stats> rows(INAGG_STATS_NO_JOB + 1);
    size_t i = 0;
    for (uint32_t row : counting)
        rows[row] = row_of(counted.at(i++));
    return rows;
}

void BfRuntime::clear_stats(uint32_t row) { ask("uncount", "drops", row * reasons, reasons); }

void BfRuntime::write_default(const Entry &entry) { ask("set_default", entry.table, entry.action, parameters_of(entry)); }

void BfRuntime::add(const Entry &entry) { ask("add", entry.table, entry.key, entry.action, parameters_of(entry)); }

void BfRuntime::modify(const Entry &entry) { ask("modify", entry.table, entry.key, entry.action, parameters_of(entry)); }

void BfRuntime::erase(const Entry &entry) { ask("erase", entry.table, entry.key); }

void BfRuntime::write_group(uint16_t group, const std::vector<Copy> &copies) {
    Json pairs = Json::array();
    for (const Copy &copy : copies)
        pairs.push_back({copy.rank, copy.port});
    ask("put_group", group, pairs);
}

void BfRuntime::erase_group(uint16_t group) { ask("remove_group", group); }

void BfRuntime::erase_all() { ask("clear", own_tables); }

} // namespace inaggd::p4
