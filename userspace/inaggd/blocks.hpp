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
    // Those of the job's ranks here that are not in; nobody if the parent has what this switch has summed, all have the sum,
    // or nobody is in.
    uint64_t waits_for(const inagg_job &job) const;
};

using BlockKey = std::pair<uint8_t, uint32_t>; // stream, block: data first, the oldest first
using Blocks = std::map<BlockKey, Block>;

using Jobs = std::map<uint16_t, inagg_job>; // by number

// Where a switch has its blocks, which stays open: if the switch is taken down, and another comes, this is still the old one's.
class BlockMemory {
public:
    // The switch pinned in `dir`, which SwitchMaps::open() takes.
    explicit BlockMemory(const std::string &dir) : slots_(open_pin(dir, "slots")), buckets_(open_pin(dir, "buckets")) {}

    // Of jobs that do not share their slots.
    std::map<uint16_t, Blocks> look(const Jobs &jobs) const;
    Blocks look(const inagg_job &job) const { return look(Jobs{{0, job}})[0]; }

private:
    Blocks slots(const inagg_job &job) const;
    void add_records(const Jobs &jobs, std::map<uint16_t, Blocks> &found) const;

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
    struct Watched {
        SeenBlocks seen{};
        nlohmann::ordered_json children{};
        uint64_t ranks = 0; // of the longest wait
        LookClock::duration time{};
    };

    std::optional<BlockMemory> memory_;
    Jobs jobs_;
    std::map<uint16_t, Watched> watched_;
};

} // namespace inaggd
