// SPDX-License-Identifier: BSD-2-Clause
#include "blocks.hpp"

#include "control.hpp"
#include "switch_state.hpp"

#include <bpf/bpf.h>

#include <tuple>

namespace inaggd {
namespace {

using json = nlohmann::ordered_json;

template <class Value> bool read(const Fd &map, uint32_t index, Value &value) {
    return !bpf_map_lookup_elem(map.get(), &index, &value);
}

bool is_live(const inagg_slot &slot, const inagg_job &job) {
    return slot.flags & INAGG_SLOT_LIVE && slot.generation == job.generation;
}

// Of two incarnations of a job, blocks with the same number are two.
bool same(const Block &a, const Block &b) {
    return std::tie(a.slot.generation, a.slot.seen, a.slot.flags, a.absent) ==
           std::tie(b.slot.generation, b.slot.seen, b.slot.flags, b.absent);
}

} // namespace

uint64_t Block::waits_for(const inagg_job &job) const {
    return slot.flags & (INAGG_SLOT_COMPLETE | INAGG_SLOT_SENT) ? 0 : job.all & ~in();
}

Blocks BlockMemory::slots(const inagg_job &job) const {
    Blocks found;
    inagg_slot_memory memory;
    for (uint32_t index = 0; index < 2 * pool_slots(job); index++)
        if (read(slots_, 2 * job.first_slot + index, memory) && is_live(memory.state, job))
            found[{inagg_stream_of(&job, index / 2), memory.state.block}] = {.slot = memory.state};
    return found;
}

Blocks BlockMemory::records(const inagg_job &job) const {
    Blocks found;
    inagg_bucket_memory memory;
    for (uint32_t index = 0; read(buckets_, index, memory); index++)
        for (const inagg_record &record : memory.records)
            if (is_live(record.slot, job) && record.job == job.index)
                found[{record.stream, record.slot.block}] = {.slot = record.slot, .absent = record.absent};
    return found;
}

void update(SeenBlocks &seen, const Blocks &now, LookClock::time_point time) {
    std::erase_if(seen, [&](const auto &entry) { return !now.contains(entry.first); });
    for (const auto &[key, block] : now) {
        auto [entry, is_new] = seen.try_emplace(key, SeenBlock{block, time});
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

json children_json(const Members &members, uint16_t size) {
    std::map<std::string, std::vector<uint32_t>> behind;
    for (uint32_t rank = 0; rank < size && rank < INAGG_MAX_RANKS; rank++)
        if (members[rank].flags & INAGG_MEMBER_SWITCH)
            behind[Address::of(members[rank]).text()].push_back(rank);
    json list = json::array();
    for (const auto &[address, ranks] : behind)
        list.push_back({{"address", address}, {"ranks", ranks}});
    return list;
}

void Waits::look(const Where &where) {
    if (is_asked(where.run_dir)) // it has no maps
        return;
    maps_ = SwitchMaps::open(where.bpffs);
    memory_.emplace(where.bpffs);
    jobs_ = maps_->jobs();
    std::erase_if(jobs_, [](const auto &entry) { return shares_slots(entry.second); });
    std::erase_if(seen_, [this](const auto &entry) { return !jobs_.contains(entry.first); });
    look_again();
}

void Waits::look_again() {
    for (const auto &[number, job] : jobs_)
        look_at(number, job);
}

void Waits::look_at(uint16_t number, const inagg_job &job) {
    SeenBlocks &seen = seen_[number];
    const LookClock::time_point now = LookClock::now();
    update(seen, memory_->look(job), now);
    for (const auto &[key, entry] : seen)
        if (const uint64_t ranks = entry.block.waits_for(job); ranks && now - entry.since > longest_[number].time)
            longest_[number] = {.ranks = ranks, .time = now - entry.since,
                                .children = children_json(maps_->members(job.index), job.size)};
}

json Waits::take() {
    json list = json::array();
    for (const auto &[number, longest] : longest_)
        if (longest.ranks)
            list.push_back({{"job", number},
                            {"ranks", ranks_of(longest.ranks)},
                            {"children", longest.children},
                            {"seconds", std::chrono::duration<double>(longest.time).count()}});
    longest_.clear();
    return list;
}

} // namespace inaggd
