// SPDX-License-Identifier: BSD-2-Clause
#include "p4/bfrt.hpp"

#include "error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <filesystem>
#include <utility>

namespace inaggd::p4 {
namespace {

using Json = nlohmann::json;

constexpr uint32_t reasons = 64; // of a row of the counters `drops`, p4/tna/leave.p4
static_assert(INAGG_R_COUNT <= reasons && reasons <= INAGG_R_CAPACITY);
// What this agent may have left.
const Json own_tables = {"settings", "own4",   "own6",      "own_sources", "jobs", "members",     "stations", "copies",
                         "uplinks",  "places", "positions", "speakers",    "rows", "slot_newest", "owners",   "drops"};
// atp: a position of a job is one of so many; further ones go on to the server as they are.
constexpr uint32_t positions_of_job = 1024;
// canary: blocks whose results do not come have their descriptors for so long.
constexpr std::chrono::seconds abandoned_after{2};

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
    if (!sizes_.contains("claims") && !sizes_.contains("owners") && !sizes_.contains("slot_newest"))
        throw Error("BF Runtime at {}: inaggd drives the programs of p4/tna, and {} is none of them", address,
                    program.at("program").get<std::string>());
}

// By what only one program has.
uint8_t BfRuntime::algorithm() const {
    return sizes_.contains("claims")           ? INAGG_ATP
           : sizes_.contains("owners")         ? INAGG_CANARY
           : sizes_.contains("marked_packets") ? INAGG_PANAMA
                                               : INAGG_SWITCHML;
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

// A slot of a pool has two versions.
Program BfRuntime::program() {
    Program program{
        .name = fmt::format("Tofino at {}", address_), .slots = 0, .shared_slots = 1, .limits = tofino_limits(algorithm())};
    if (algorithm() == INAGG_ATP) {
        program.slots = INAGG_MAX_JOBS * positions_of_job;
        program.shared_slots = sizes_.at("claims");
    } else if (algorithm() == INAGG_CANARY) {
        program.slots = sizes_.at("positions");
        program.shared_slots = sizes_.at("owners");
    } else {
        program.slots = sizes_.at("slot_newest") / 2;
    }
    return program;
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

void BfRuntime::put_settings(const Settings &settings) {
    shared_ = {.count = settings.shared_slots, .share = settings.share};
    Tables::put_settings(settings);
    if (!has_clock())
        return;
    Json frames = Json::array();
    for (const Address &own : {settings.address4, settings.address6})
        frames.push_back(own.family ? fmt::format("{:02x}", fmt::join(tofino_tick(settings.mac, own), "")) : "");
    ask("set_clock", frames, shared_.count, std::chrono::nanoseconds(tofino_clock_period).count());
}

void BfRuntime::put_job(const Job &job) {
    Tables::put_job(job);
    run_clock(true);
}

void BfRuntime::remove_job(uint16_t number) {
    Tables::remove_job(number);
    run_clock(!jobs().empty());
}

void BfRuntime::run_clock(bool runs) {
    if (!has_clock() || clock_runs_ == runs)
        return;
    ask("run_clock", runs);
    clock_runs_ = runs;
}

// A slot of no block is one of no generation. Aggregators of another generation give way, and so do descriptors but for one in
// 256.
void BfRuntime::clear_slots(const inagg_job &record) {
    if (algorithm() == INAGG_CANARY)
        tidy();
    else if (algorithm() != INAGG_ATP)
        ask("zero", "slot_newest", 2 * record.first_slot, 2 * pool_slots(record));
}

// Descriptors of no job that is here, and those whose block has not ended.
void BfRuntime::tidy() {
    if (algorithm() != INAGG_CANARY)
        return;
    Json rows = Json::array();
    for (const auto &[number, job] : jobs())
        for (const Entry &entry : job.entries)
            if (entry.table == "rows")
                rows.push_back(entry.key.front());
    ask("free_descriptors", rows, abandoned_after / tofino_clock_period);
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

void BfRuntime::erase_all() {
    ask("clear", own_tables);
    clock_runs_ = true; // if a former agent has left it so
    run_clock(false);
}

} // namespace inaggd::p4
