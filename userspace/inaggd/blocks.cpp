// SPDX-License-Identifier: BSD-2-Clause
#include "blocks.hpp"

#include "control.hpp"
#include "switch_state.hpp"

#include <bpf/bpf.h>

#include <algorithm>
#include <cerrno>
#include <tuple>

namespace inaggd {
namespace {

using json = nlohmann::ordered_json;

// There may be a million: many at a time.
template <class Visit> void for_each_bucket(const Fd &map, Visit visit) {
    std::vector<uint32_t> keys(128);
    std::vector<inagg_bucket_memory> buckets(keys.size());
    uint32_t position = 0, *after = nullptr, count = 0;
    for (int error = 0; !error; after = &position) {
        count = static_cast<uint32_t>(keys.size());
        error = bpf_map_lookup_batch(map.get(), after, &position, keys.data(), buckets.data(), &count, nullptr);
        if (!error || error == -ENOENT) // the last of them
            std::for_each_n(buckets.begin(), count, visit);
    }
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
    const bool waits_here = in() && !(slot.flags & (INAGG_SLOT_COMPLETE | INAGG_SLOT_SENT));
    return waits_here ? job.all & ~in() : 0;
}

Blocks BlockMemory::slots(const inagg_job &job) const {
    Blocks found;
    inagg_slot_memory memory;
    for (uint32_t index = 0; index < 2 * pool_slots(job); index++) {
        const uint32_t at = 2 * job.first_slot + index;
        if (bpf_map_lookup_elem(slots_.get(), &at, &memory))
            break;
        if (is_live(memory.state, job))
            found[{inagg_stream_of(&job, index / 2), memory.state.block}] = {.slot = memory.state};
    }
    return found;
}

void BlockMemory::add_records(const Jobs &jobs, std::map<uint16_t, Blocks> &found) const {
    std::map<uint32_t, std::pair<const inagg_job *, Blocks *>> by_index;
    for (const auto &[number, job] : jobs)
        if (has_records(job))
            by_index[job.index] = {&job, &found[number]};
    if (by_index.empty())
        return;
    for_each_bucket(buckets_, [&](const inagg_bucket_memory &bucket) {
        for (const inagg_record &record : bucket.records)
            if (const auto owner = by_index.find(record.job); owner != by_index.end()) {
                const auto &[job, blocks] = owner->second;
                if (is_live(record.slot, *job))
                    (*blocks)[{record.stream, record.slot.block}] = {.slot = record.slot, .absent = record.absent};
            }
    });
}

std::map<uint16_t, Blocks> BlockMemory::look(const Jobs &jobs) const {
    std::map<uint16_t, Blocks> found;
    for (const auto &[number, job] : jobs)
        found[number] = has_records(job) ? Blocks{} : slots(job);
    add_records(jobs, found);
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
    const SwitchMaps maps = SwitchMaps::open(where.bpffs);
    memory_.emplace(where.bpffs);
    const Jobs before = std::exchange(jobs_, maps.jobs());
    std::erase_if(jobs_, [](const auto &entry) { return shares_slots(entry.second); });
    std::erase_if(watched_, [&](const auto &entry) { // of a job that is gone, or begins anew
        const auto now = jobs_.find(entry.first);
        return now == jobs_.end() || now->second.generation != before.at(entry.first).generation;
    });
    for (const auto &[number, job] : jobs_)
        watched_[number].children = children_json(maps.members(job.index), job.size);
    look_again();
}

void Waits::look_again() {
    if (!memory_)
        return;
    const LookClock::time_point now = LookClock::now();
    for (const auto &[number, blocks] : memory_->look(jobs_)) {
        Watched &watched = watched_[number];
        update(watched.seen, blocks, now);
        for (const auto &[key, entry] : watched.seen)
            if (const uint64_t ranks = entry.block.waits_for(jobs_.at(number)); ranks && now - entry.since > watched.time) {
                watched.ranks = ranks;
                watched.time = now - entry.since;
            }
    }
}

json Waits::take() {
    json list = json::array();
    for (auto &[number, watched] : watched_) {
        if (watched.ranks)
            list.push_back({{"job", number},
                            {"ranks", ranks_of(watched.ranks)},
                            {"children", watched.children},
                            {"seconds", std::chrono::duration<double>(watched.time).count()}});
        watched.ranks = 0;
        watched.time = {};
    }
    return list;
}

} // namespace inaggd
