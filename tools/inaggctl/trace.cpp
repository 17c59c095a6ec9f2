// SPDX-License-Identifier: BSD-2-Clause
#include "trace.hpp"

#include "blocks.hpp"
#include "error.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <thread>

namespace inaggctl {
namespace {

using namespace inaggd;
using Clock = LookClock;

constexpr auto poll_period = std::chrono::milliseconds(20);

// A switch's memory of blocks of one job.
class Memory {
public:
    Memory(const std::string &dir, uint16_t number) : maps_(SwitchMaps::open(dir)), name_(dir), blocks_(dir) {
        const auto jobs = maps_.jobs();
        const auto job = jobs.find(number);
        if (job == jobs.end())
            throw Error("{}: job {}: no such job on this switch (inaggctl job list)", dir, number);
        job_ = job->second;
        if (shares_slots(job_))
            throw Error("job {}: trace knows switchml, panama and trio; blocks of {} are in memory that jobs share", number,
                        algorithm_name(job_.algorithm));
    }

    Blocks look() const { return blocks_.look(job_); }

    const inagg_job &job() const { return job_; }
    const SwitchMaps &maps() const { return maps_; }
    const std::string &name() const { return name_; }

private:
    SwitchMaps maps_;
    std::string name_;
    BlockMemory blocks_;
    inagg_job job_{};
};

// The parent has what this switch has summed, or the sum is everybody's.
const char *state_of(const Block &block) {
    return block.slot.flags & INAGG_SLOT_COMPLETE ? "complete" : block.slot.flags & INAGG_SLOT_SENT ? "sent up" : "open";
}

json block_json(const BlockKey &key, const SeenBlock &seen, const inagg_job &job, Clock::time_point now) {
    const Block &block = seen.block;
    return {{"stream", key.first ? "control" : "data"},
            {"block", key.second},
            {"state", state_of(block)},
            {"in", ranks_of(block.in())},
            {"waits_for", ranks_of(block.waits_for(job))},
            {"seconds", std::chrono::duration<double>(now - seen.since).count()}};
}

std::string parent_of(const Memory &memory) {
    const inagg_uplink uplink = memory.maps().uplink(memory.job().index);
    Address address{.family = static_cast<uint8_t>(uplink.ifindex ? uplink.family : 0)};
    std::memcpy(address.bytes.data(), uplink.address, sizeof uplink.address);
    return address.text();
}

json switch_json(const Memory &memory, const SeenBlocks &seen, std::optional<uint32_t> wanted, Clock::time_point now) {
    json blocks = json::array();
    for (const auto &[key, entry] : seen)
        if (wanted ? key == BlockKey{0, *wanted} : !(entry.block.slot.flags & INAGG_SLOT_COMPLETE))
            blocks.push_back(block_json(key, entry, memory.job(), now));
    const inagg_switch_settings settings = memory.maps().settings();
    Address own{.family = static_cast<uint8_t>(settings.address4 ? 4 : 6)};
    std::memcpy(own.bytes.data(), settings.address4 ? static_cast<const void *>(&settings.address4) : settings.address6,
                settings.address4 ? 4 : 16);
    return {{"bpffs", memory.name()},
            {"address", own.text()},
            {"algorithm", algorithm_name(memory.job().algorithm)},
            {"generation", memory.job().generation},
            {"size", memory.job().size},
            {"here", ranks_of(memory.job().all)},
            {"parent", parent_of(memory)},
            {"children", children_json(memory.maps().members(memory.job().index), memory.job().size)},
            {"blocks", blocks}};
}

std::string waits_text(const json &one, const json &block) {
    if (block["state"] == "sent up")
        return "the parent, " + one["parent"].get<std::string>();
    return block["waits_for"].empty() ? "nobody" : ranks_text(block["waits_for"], one["children"]);
}

} // namespace

std::string ranks_text(const json &ranks, const json &children) {
    std::map<std::string, std::vector<int>> by_switch;
    std::vector<int> own;
    for (const json &rank : ranks) {
        const auto child = std::find_if(children.begin(), children.end(), [&](const json &c) {
            return std::find(c["ranks"].begin(), c["ranks"].end(), rank) != c["ranks"].end();
        });
        (child == children.end() ? own : by_switch[(*child)["address"]]).push_back(rank);
    }
    std::vector<std::string> texts;
    if (!own.empty())
        texts.push_back(fmt::format("{}", fmt::join(own, ", ")));
    for (const auto &[address, behind] : by_switch)
        texts.push_back(fmt::format("{} (behind {})", fmt::join(behind, ", "), address));
    return fmt::format("{}", fmt::join(texts, ", "));
}

json trace_job(const std::vector<std::string> &switches, uint16_t job, std::optional<uint32_t> block,
               std::chrono::duration<double> time) {
    std::vector<Memory> memories;
    for (const std::string &dir : switches)
        memories.emplace_back(dir, job);
    std::vector<SeenBlocks> seen(memories.size());
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
    for (bool last = false; !last;) {
        last = Clock::now() >= end;
        for (std::size_t i = 0; i < memories.size(); i++)
            update(seen[i], memories[i].look(), Clock::now());
        if (!last)
            std::this_thread::sleep_for(poll_period);
    }
    json list = json::array();
    for (std::size_t i = 0; i < memories.size(); i++)
        list.push_back(switch_json(memories[i], seen[i], block, Clock::now()));
    return {{"job", job}, {"block", block ? json(*block) : json(nullptr)}, {"seconds", time.count()}, {"switches", list}};
}

void print_trace(const json &trace) {
    for (const json &one : trace["switches"]) {
        fmt::print("switch {}: job {}, generation {}, {}, ranks here: {}\n", one["address"].get<std::string>(),
                   trace["job"].dump(), one["generation"].dump(), one["algorithm"].get<std::string>(),
                   ranks_text(one["here"], one["children"]));
        if (one["blocks"].empty())
            fmt::print("  {}\n", trace["block"].is_null() ? "no block is open" : "it has no memory of that block");
        else
            fmt::print("  {:>8} {:<8} {:<9} {:>8}  {:<24} {}\n", "BLOCK", "STREAM", "STATE", "SECONDS", "IN", "WAITS FOR");
        for (const json &block : one["blocks"])
            fmt::print("  {:>8} {:<8} {:<9} {:>8.2f}  {:<24} {}\n", block["block"].dump(), block["stream"].get<std::string>(),
                       block["state"].get<std::string>(), block["seconds"].get<double>(),
                       ranks_text(block["in"], one["children"]), waits_text(one, block));
    }
}

} // namespace inaggctl
