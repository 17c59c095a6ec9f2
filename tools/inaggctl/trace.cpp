// SPDX-License-Identifier: BSD-2-Clause
#include "trace.hpp"

#include "error.hpp"
#include "maps.hpp"

#include <bpf/bpf.h>
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>

namespace inaggctl {
namespace {

using namespace inaggd;
using Clock = std::chrono::steady_clock;

constexpr auto look_period = std::chrono::milliseconds(20);

// A block as a switch has it: a copy of a slot, or a record of trio's.
struct Block {
    inagg_slot slot;
    uint64_t absent = 0; // ranks that have nothing to add
};

using Key = std::pair<uint8_t, uint32_t>; // stream, block: data first, the oldest first

// A switch's memory of blocks of one job.
class Memory {
public:
    Memory(const std::string &dir, uint16_t number)
        : maps_(SwitchMaps::open(dir)), name_(dir) {
        const auto jobs = maps_.jobs();
        const auto job = jobs.find(number);
        if (job == jobs.end())
            throw Error("{}: job {}: no such job on this switch (inaggctl job list)", dir, number);
        job_ = job->second;
        if (shares_slots(job_))
            throw Error(
                "job {}: trace knows switchml, panama and trio; blocks of {} are in memory that jobs share",
                number, algorithm_name(job_.algorithm));
        blocks_ = open_pin(dir, has_records(job_) ? "buckets" : "slots");
    }

    std::map<Key, Block> look() const { return has_records(job_) ? records() : slots(); }

    const inagg_job &job() const { return job_; }
    const SwitchMaps &maps() const { return maps_; }
    const std::string &name() const { return name_; }
    Members members() const { return maps_.members(job_.index); }

private:
    template <class Value> bool read(uint32_t index, Value &value) const {
        return !bpf_map_lookup_elem(blocks_.get(), &index, &value);
    }

    bool is_live(const inagg_slot &slot) const {
        return slot.flags & INAGG_SLOT_LIVE && slot.generation == job_.generation;
    }

    std::map<Key, Block> slots() const {
        std::map<Key, Block> found;
        inagg_slot_memory memory;
        for (uint32_t index = 0; index < 2 * pool_slots(job_); index++)
            if (read(2 * job_.first_slot + index, memory) && is_live(memory.state))
                found[{inagg_stream_of(&job_, index / 2), memory.state.block}] = {.slot = memory.state};
        return found;
    }

    std::map<Key, Block> records() const {
        std::map<Key, Block> found;
        inagg_bucket_memory memory;
        for (uint32_t index = 0; read(index, memory); index++)
            for (const inagg_record &record : memory.records)
                if (is_live(record.slot) && record.job == job_.index)
                    found[{record.stream, record.slot.block}] = {.slot = record.slot,
                                                                 .absent = record.absent};
        return found;
    }

    SwitchMaps maps_;
    std::string name_;
    inagg_job job_{};
    Fd blocks_;
};

// As it is, and since when it has been so while we looked.
struct Seen {
    Block block;
    Clock::time_point since;
};

bool same(const Block &a, const Block &b) {
    return std::tie(a.slot.seen, a.slot.flags, a.absent) == std::tie(b.slot.seen, b.slot.flags, b.absent);
}

void update(std::map<Key, Seen> &seen, const std::map<Key, Block> &now, Clock::time_point time) {
    std::erase_if(seen, [&](const auto &entry) { return !now.contains(entry.first); });
    for (const auto &[key, block] : now) {
        auto [entry, is_new] = seen.try_emplace(key, Seen{block, time});
        if (!is_new && !same(entry->second.block, block))
            entry->second = {block, time};
    }
}

std::vector<uint32_t> ranks_of(uint64_t bits) {
    std::vector<uint32_t> ranks;
    for (uint32_t rank = 0; rank < INAGG_MAX_RANKS; rank++)
        if (bits & inagg_rank_bit(rank))
            ranks.push_back(rank);
    return ranks;
}

// The parent has what this switch has summed, or the sum is everybody's.
const char *state_of(const Block &block) {
    return block.slot.flags & INAGG_SLOT_COMPLETE ? "complete"
           : block.slot.flags & INAGG_SLOT_SENT   ? "sent up"
                                                  : "open";
}

json block_json(const Key &key, const Seen &seen, const inagg_job &job, Clock::time_point now) {
    const Block &block = seen.block;
    const bool waits_here = !(block.slot.flags & (INAGG_SLOT_COMPLETE | INAGG_SLOT_SENT));
    const uint64_t in = block.slot.seen | block.absent;
    return {{"stream", key.first ? "control" : "data"},
            {"block", key.second},
            {"state", state_of(block)},
            {"in", ranks_of(in)},
            {"waits_for", waits_here ? ranks_of(job.all & ~in) : std::vector<uint32_t>{}},
            {"seconds", std::chrono::duration<double>(now - seen.since).count()}};
}

// The switches below, by the ranks behind them.
json children_json(const Memory &memory) {
    std::map<std::string, std::vector<uint32_t>> behind;
    const Members members = memory.members();
    for (uint32_t rank = 0; rank < memory.job().size && rank < INAGG_MAX_RANKS; rank++)
        if (members[rank].flags & INAGG_MEMBER_SWITCH)
            behind[Address::of(members[rank]).text()].push_back(rank);
    json list = json::array();
    for (const auto &[address, ranks] : behind)
        list.push_back({{"address", address}, {"ranks", ranks}});
    return list;
}

std::string parent_of(const Memory &memory) {
    const inagg_uplink uplink = memory.maps().uplink(memory.job().index);
    Address address{.family = static_cast<uint8_t>(uplink.ifindex ? uplink.family : 0)};
    std::memcpy(address.bytes.data(), uplink.address, sizeof uplink.address);
    return address.text();
}

json switch_json(const Memory &memory, const std::map<Key, Seen> &seen, std::optional<uint32_t> wanted,
                 Clock::time_point now) {
    json blocks = json::array();
    for (const auto &[key, entry] : seen)
        if (wanted ? key == Key{0, *wanted} : !(entry.block.slot.flags & INAGG_SLOT_COMPLETE))
            blocks.push_back(block_json(key, entry, memory.job(), now));
    const inagg_switch_settings settings = memory.maps().settings();
    Address own{.family = static_cast<uint8_t>(settings.address4 ? 4 : 6)};
    std::memcpy(own.bytes.data(),
                settings.address4 ? static_cast<const void *>(&settings.address4) : settings.address6,
                settings.address4 ? 4 : 16);
    return {{"bpffs", memory.name()},
            {"address", own.text()},
            {"algorithm", algorithm_name(memory.job().algorithm)},
            {"generation", memory.job().generation},
            {"size", memory.job().size},
            {"here", ranks_of(memory.job().all)},
            {"parent", parent_of(memory)},
            {"children", children_json(memory)},
            {"blocks", blocks}};
}

// "2, 3 (behind 10.77.1.1), 5"
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

std::string waits_text(const json &one, const json &block) {
    if (block["state"] == "sent up")
        return "the parent, " + one["parent"].get<std::string>();
    return block["state"] == "complete" ? "nobody" : ranks_text(block["waits_for"], one["children"]);
}

} // namespace

json trace_job(const std::vector<std::string> &switches, uint16_t job, std::optional<uint32_t> block,
               std::chrono::duration<double> time) {
    std::vector<Memory> memories;
    for (const std::string &dir : switches)
        memories.emplace_back(dir, job);
    std::vector<std::map<Key, Seen>> seen(memories.size());
    const auto end = Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
    for (bool last = false; !last;) {
        last = Clock::now() >= end;
        for (std::size_t i = 0; i < memories.size(); i++)
            update(seen[i], memories[i].look(), Clock::now());
        if (!last)
            std::this_thread::sleep_for(look_period);
    }
    json list = json::array();
    for (std::size_t i = 0; i < memories.size(); i++)
        list.push_back(switch_json(memories[i], seen[i], block, Clock::now()));
    return {{"job", job},
            {"block", block ? json(*block) : json(nullptr)},
            {"seconds", time.count()},
            {"switches", list}};
}

void print_trace(const json &trace) {
    for (const json &one : trace["switches"]) {
        fmt::print("switch {}: job {}, generation {}, {}, ranks here: {}\n",
                   one["address"].get<std::string>(), trace["job"].dump(), one["generation"].dump(),
                   one["algorithm"].get<std::string>(), ranks_text(one["here"], one["children"]));
        if (one["blocks"].empty())
            fmt::print("  {}\n",
                       trace["block"].is_null() ? "no block is open" : "it has no memory of that block");
        else
            fmt::print("  {:>8} {:<8} {:<9} {:>8}  {:<24} {}\n", "BLOCK", "STREAM", "STATE", "SECONDS", "IN",
                       "WAITS FOR");
        for (const json &block : one["blocks"])
            fmt::print("  {:>8} {:<8} {:<9} {:>8.2f}  {:<24} {}\n", block["block"].dump(),
                       block["stream"].get<std::string>(), block["state"].get<std::string>(),
                       block["seconds"].get<double>(), ranks_text(block["in"], one["children"]),
                       waits_text(one, block));
    }
}

} // namespace inaggctl
