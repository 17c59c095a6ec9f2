// SPDX-License-Identifier: BSD-2-Clause
// The blocks that a switch holds, as whoever looks again and again sees them: who is in, who is waited for, how long.
#pragma once

#include "maps.hpp"

#include <nlohmann/json.hpp>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace inaggd {

struct Where;

using LookClock = std::chrono::steady_clock;

// A block as a switch has it: a copy of a slot, or a record of trio's.
struct Block {
    inagg_slot slot;
    uint64_t absent = 0; // ranks that have nothing to add

    uint64_t in() const { return slot.seen | absent; }
    // Those of the job's ranks here that are not in; nobody if the parent has what this switch has summed, or all have the sum.
    uint64_t waits_for(const inagg_job &job) const;
};

using BlockKey = std::pair<uint8_t, uint32_t>; // stream, block: data first, the oldest first
using Blocks = std::map<BlockKey, Block>;

// Where a switch has its blocks. The maps stay open: of a switch that is loaded anew it is that of the old one.
class BlockMemory {
public:
    // The switch pinned in `dir`.
    explicit BlockMemory(const std::string &dir) : slots_(open_pin(dir, "slots")), buckets_(open_pin(dir, "buckets")) {}

    // Of a job that does not share its slots.
    Blocks look(const inagg_job &job) const { return has_records(job) ? records(job) : slots(job); }

private:
    Blocks slots(const inagg_job &job) const;
    Blocks records(const inagg_job &job) const;

    Fd slots_, buckets_;
};

// As it is, and since when it has been so while we looked.
struct SeenBlock {
    Block block;
    LookClock::time_point since;
};

using SeenBlocks = std::map<BlockKey, SeenBlock>;

void update(SeenBlocks &seen, const Blocks &now, LookClock::time_point time);

std::vector<uint32_t> ranks_of(uint64_t bits);
// The switches below that `members` of a job of `size` ranks are behind: [{"address", "ranks"}].
nlohmann::ordered_json children_json(const Members &members, uint16_t size);

// For whom the jobs of a switch wait, but those that share slots; a wait is found by two looks between which nothing came.
class Waits {
public:
    // At the jobs that the switch has now.
    void look(const Where &where);
    // At the same jobs as before, which costs far less.
    void look_again();
    // The longest wait of each job since the last call: [{"job", "ranks", "children", "seconds"}].
    nlohmann::ordered_json take();

private:
    struct Longest {
        uint64_t ranks = 0;
        LookClock::duration time{};
        nlohmann::ordered_json children{};
    };

    void look_at(uint16_t number, const inagg_job &job);

    std::optional<SwitchMaps> maps_;
    std::optional<BlockMemory> memory_;
    std::map<uint16_t, inagg_job> jobs_;
    std::map<uint16_t, SeenBlocks> seen_;
    std::map<uint16_t, Longest> longest_;
};

} // namespace inaggd
