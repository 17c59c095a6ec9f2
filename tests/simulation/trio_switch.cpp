// SPDX-License-Identifier: BSD-2-Clause
// Keyed records in buckets, floors, sweeps and the agent's ticks (core/record.h).
#include "switch.hpp"

#include <inagg/core/record.h>

#include <algorithm>
#include <cstring>

namespace simulation {
namespace {

constexpr uint32_t another_job = 0;

// Beside a record: its elements, and what the checks need to know.
struct Beside {
    Payload sum;
    Time touched_at = 0; // when a rank came in last
    bool restored = false;
};

class TrioSwitch : public OneSwitch {
public:
    TrioSwitch(World &shared, const Tree *below)
        : OneSwitch(shared, below), policy(sc.trio.policy), whole(job), records(sc.trio.buckets * INAGG_WAYS),
          beside(records.size()), floors(job.slots + job.control_slots), swept(sc.trio.buckets) {
        for (uint32_t position = 0; position < floors.size(); position++)
            start_floor(position);
        if (sc.trio.foreign)
            for (uint32_t bucket = 0; bucket < sc.trio.buckets; bucket++)
                records[bucket * INAGG_WAYS + bucket % INAGG_WAYS] = foreign();
    }

    void receive(int target, const Packet &packet) override {
        if (packet.type == INAGG_JOIN)
            return join(packet);
        Packet taken = packet;
        if (world.broken(Mutation::any_generation))
            taken.block.generation = job.generation;
        OneSwitch::receive(target, taken);
    }

    void restart() override {
        OneSwitch::restart();
        asked = 0;
    }

    void clear_all() override {
        world.trace("all records and floors cleared");
        std::fill(records.begin(), records.end(), inagg_record{});
        std::fill(floors.begin(), floors.end(), inagg_floor{});
        counted_open = 0;
        foreign_cleared = ~0ULL;
    }

    void clear_one() override {
        const uint64_t bucket = world.random.below(sc.trio.buckets);
        world.trace("bucket {} cleared", bucket);
        for (uint64_t way = 0; way < INAGG_WAYS; way++)
            records[bucket * INAGG_WAYS + way] = {};
        counted_open = open_records();
        foreign_cleared |= 1ULL << bucket;
    }

    void clear_floor() override {
        const uint64_t position = world.random.below(floors.size());
        world.trace("floor {} cleared", position);
        floors[position] = {};
    }

    void handle(const Event &event) override {
        if (event.kind == Event::sweep)
            sweep(event.index);
        else
            tick(event.index);
    }

    void check_end() override {
        const inagg_record expected = foreign();
        for (uint32_t bucket = 0; sc.trio.foreign && bucket < sc.trio.buckets; bucket++)
            world.require(foreign_cleared >> bucket & 1 ||
                              !memcmp(&records[bucket * INAGG_WAYS + bucket % INAGG_WAYS], &expected, sizeof(expected)),
                          "another job's open record in bucket {} was touched", bucket);
    }

private:
    const inagg_policy policy;
    const inagg_job whole; // as it was before anybody was excluded
    std::vector<inagg_record> records;
    std::vector<Beside> beside; // of each record
    std::vector<inagg_floor> floors;
    std::vector<bool> swept; // buckets whose next sweep is scheduled
    uint32_t counted_open = 0;
    uint64_t asked = 0;                            // ranks that want the next generation
    std::array<uint32_t, INAGG_MAX_RANKS> lives{}; // of those in this one
    uint64_t foreign_cleared = 0;

    // An open record of another job with the number of one of our blocks.
    inagg_record foreign() const {
        inagg_record r{};
        r.slot.seen = 1;
        r.slot.block = sc.base;
        r.slot.generation = first_generation;
        r.slot.flags = INAGG_SLOT_LIVE;
        r.job = another_job;
        r.stream = sc.control;
        return r;
    }

    uint32_t bucket_of(const inagg_block &b) const { return inagg_bucket_of(job.index, b.stream, b.block, sc.trio.buckets); }
    inagg_record *records_of(const inagg_block &b) { return &records[bucket_of(b) * INAGG_WAYS]; }
    uint16_t clock() const { return inagg_epoch_of(sc.trio.clock_base + world.now / sc.trio.clock_slows); }

    uint32_t open_records() const {
        return static_cast<uint32_t>(std::count_if(records.begin(), records.end(), [&](const inagg_record &r) {
            return r.job == job.index && r.slot.generation == job.generation && inagg_record_is_open(&r);
        }));
    }

    // ---- generations ----

    // All that remain ask for the next generation; one that is excluded waits for it, once it has started again.
    void join(const Packet &packet) {
        const uint32_t rank = packet.block.rank;
        if (packet.block.generation == job.generation)
            asked |= inagg_rank_bit(rank);
        else if (!inagg_job_excludes(&job, rank))
            return configure(rank);
        else if (packet.life != lives[rank])
            world.returning |= inagg_rank_bit(rank);
        if ((asked & job.all) == job.all)
            begin_generation();
    }

    void configure(uint32_t rank) {
        Packet packet{};
        packet.type = INAGG_CONFIG;
        packet.boot = boot;
        packet.life = lives[rank];
        packet.block.generation = job.generation;
        send_to(rank, packet);
    }

    // Whatever is left of the one before is nobody's.
    void begin_generation() {
        for (uint32_t rank = 0; rank < sc.ranks; rank++)
            lives[rank] += world.returning >> rank & 1;
        world.begin_generation();
        asked = 0;
        counted_open = 0;
        for (inagg_record &r : records)
            if (r.job == job.index && world.broken(Mutation::keep_records))
                r.slot.generation = job.generation;
            else if (r.job == job.index && !world.random.chance(sc.trio.leftovers))
                r = {};
        for (uint32_t position = 0; position < floors.size(); position++)
            start_floor(position);
        for (uint32_t rank = 0; rank < sc.ranks; rank++)
            if (!inagg_job_excludes(&job, rank))
                configure(rank);
    }

    // The first block of this generation is the next.
    void start_floor(uint32_t position) {
        floors[position] = inagg_floor_at_start(&job, position);
        if (inagg_stream_of(&job, position) == sc.control)
            floors[position].block += sc.base;
    }

    // ---- packets ----

    void contribute(Packet packet) override {
        inagg_block &b = packet.block;
        inagg_record *bucket = records_of(b);
        inagg_floor &floor = floors[packet.slot];
        const inagg_job as = job_for(b.rank);
        break_rules(bucket, floor, b);
        if (world.broken(Mutation::no_way_kept) && would_displace(bucket, b))
            return refuse(packet);
        uint32_t way = 0;
        const uint64_t ranks = ranks_in(packet);
        int verdict =
            inagg_record_contribute_ranks(bucket, &floor, &as, &policy, counted_open, ranks, &b, clock(), &way, nullptr);
        if (verdict == -INAGG_R_FULL && fill_bucket(bucket, floor, b, way))
            verdict = inagg_record_fold(&bucket[way], &floor, &job, &policy, ranks, &b) | INAGG_OPENS;
        if (world.broken(Mutation::forget_floor) && verdict > 0 && verdict & INAGG_OPENS)
            floor.block -= sc.slots * (floor.block == b.block);
        world.trace("switch: {:#x} contribute block {:#x} epoch {}: verdict {:#x}", ranks, b.block, b.epoch, verdict);
        if (verdict == -INAGG_R_FULL)
            return refuse(packet);
        if (verdict == -INAGG_R_EXCLUDED)
            return turn_away(packet);
        if (world.broken(Mutation::find_floor) && verdict > 0 && verdict & INAGG_COMPLETES && bucket[way].epoch)
            inagg_floor_found(&floor, &whole, b.block, b.epoch);
        world.require(verdict > 0, "block {:#x} of rank {} is refused for reason {}", b.block, b.rank, -verdict);
        answer(verdict, static_cast<uint32_t>(bucket - records.data()) + way, packet);
        world.require(counted_open == open_records(), "{} records are open, not {}", open_records(), counted_open);
    }

    // The job as the rules see it; the broken ones, if any.
    inagg_job job_for(uint32_t rank) const {
        inagg_job as = job;
        if (world.broken(Mutation::take_excluded))
            as.all |= inagg_rank_bit(rank);
        if (world.broken(Mutation::await_excluded) && !inagg_job_excludes(&job, rank))
            as.all = whole.all;
        return as;
    }

    void break_rules(inagg_record *bucket, inagg_floor &floor, inagg_block &b) {
        const int found = inagg_record_find(bucket, job.index, &b);
        if (world.broken(Mutation::all_fresh) && found < 0) {
            floor = inagg_floor_at_start(&job, 0);
            floor.block = b.block - sc.slots;
        }
        if (world.broken(Mutation::ignore_epoch) && found >= 0)
            b.epoch = bucket[found].epoch;
        if (world.broken(Mutation::evict_open) && found < 0 && inagg_record_room(bucket) < 0)
            bucket[b.block % INAGG_WAYS] = {};
    }

    // Does the block get no place but that of a later new one?
    bool would_displace(const inagg_record *bucket, const inagg_block &b) const {
        return inagg_record_find(bucket, job.index, &b) < 0 && inagg_record_room(bucket) < 0 &&
               inagg_record_later(bucket, job.index, &b, 0) < 0;
    }

    // What inagg_record_place() would leave free, taken by a block that it refuses.
    bool fill_bucket(inagg_record *bucket, inagg_floor &floor, const inagg_block &b, uint32_t &way) {
        const int room = inagg_record_room(bucket);
        if (!world.broken(Mutation::no_way_kept) || room < 0 || counted_open >= policy.most_open)
            return false;
        way = static_cast<uint32_t>(room);
        bucket[way] = {};
        inagg_record_open(&bucket[way], &floor, &job, &b, 1, clock());
        return true;
    }

    void answer(int verdict, uint32_t index, const Packet &packet) {
        inagg_record &r = records[index];
        Beside &by = beside[index];
        const int moves = INAGG_VERDICT(verdict);
        counted_open += (verdict & INAGG_OPENS) != 0;
        world.outcome.recoveries += moves == INAGG_TELL_ALL;
        fold(moves, by.sum, packet);
        if (moves == INAGG_STORE || moves == INAGG_ADD || moves == INAGG_COUNT) {
            by.touched_at = world.now;
            by.restored = false;
        } else if (world.broken(Mutation::touch_by_any)) {
            r.age = 0;
        }
        watch(index / INAGG_WAYS);
        check_record(index);
        if (moves == INAGG_REPLY) {
            world.outcome.late += !(r.slot.seen & inagg_rank_bit(packet.block.rank));
            send_to(packet.block.rank, answer_with(index, packet));
        } else if (moves == INAGG_TELL) {
            send_to(packet.block.rank, tell(&r, packet));
        } else if (moves == INAGG_TELL_ALL) {
            multicast(tell(&r, packet));
        }
        if (verdict & INAGG_COMPLETES)
            decided(index, packet);
    }

    void refuse(const Packet &packet) {
        world.outcome.refused++;
        Packet told = tell(nullptr, packet);
        told.window_cap = inagg_window_cap(counted_open);
        send_to(packet.block.rank, told);
    }

    // An excluded rank learns that it is one.
    void turn_away(const Packet &packet) {
        Packet told = wait(0, packet);
        told.type = INAGG_REFUSED;
        send_to(packet.block.rank, told);
    }

    void decided(uint32_t index, const Packet &cause) {
        inagg_record &r = records[index];
        counted_open--;
        if (r.flags & INAGG_RECORD_RECOVERING && !beside[index].restored && inagg_job_excluded(&job))
            world.decided_anew.insert({job.generation, r.slot.block});
        if (world.broken(Mutation::hide_degraded))
            r.flags &= static_cast<uint8_t>(~INAGG_RECORD_DEGRADED);
        world.outcome.degraded += (r.flags & INAGG_RECORD_DEGRADED) != 0;
        check_record(index);
        check_decision(index);
        multicast(answer_with(index, cause));
    }

    void restore(const Packet &packet) override {
        inagg_record *bucket = records_of(packet.block);
        uint32_t way = 0;
        const inagg_job as = job_for(packet.block.rank);
        const int verdict = inagg_record_restore(bucket, &as, &packet.block, &way);
        world.trace("switch: rank {} restores block {:#x}: verdict {:#x}", packet.block.rank, packet.block.block, verdict);
        if (verdict == -INAGG_R_EXCLUDED)
            return turn_away(packet);
        if (verdict < 0) {
            world.require(verdict == -INAGG_R_UNSOLICITED, "a restore is refused for reason {}", -verdict);
            return;
        }
        const uint32_t index = static_cast<uint32_t>(bucket - records.data()) + way;
        world.outcome.restores++;
        beside[index].restored = true;
        fold(INAGG_VERDICT(verdict), beside[index].sum, packet);
        decided(index, packet);
    }

    void request(const Packet &packet) override {
        inagg_record *bucket = records_of(packet.block);
        int way;
        const inagg_job as = job_for(packet.block.rank);
        const int verdict = inagg_record_request(bucket, &as, &packet.block, packet.everyone, &way);
        if (verdict == -INAGG_R_EXCLUDED)
            return turn_away(packet);
        world.trace("switch: rank {} requests block {:#x}: verdict {}", packet.block.rank, packet.block.block, verdict);
        const inagg_record *r = way < 0 ? nullptr : &bucket[way];
        if (verdict == INAGG_REPLY)
            send_to(packet.block.rank, answer_with(static_cast<uint32_t>(r - records.data()), packet));
        else if (verdict == INAGG_TELL)
            send_to(packet.block.rank, tell(r, packet));
        else
            multicast(tell(r, packet));
    }

    Packet answer_with(uint32_t index, const Packet &cause) const {
        const inagg_record &r = records[index];
        Packet packet = reply(r.slot, beside[index].sum, cause);
        packet.block.epoch = r.epoch;
        packet.degraded = (r.flags & INAGG_RECORD_DEGRADED) != 0;
        return packet;
    }

    Packet tell(const inagg_record *r, const Packet &cause) const {
        Packet packet = wait(r ? inagg_record_heard(r) : 0, cause);
        packet.block.epoch = r ? r->epoch : 0;
        packet.window_cap = 0;
        return packet;
    }

    // ---- sweeps ----

    // Each bucket has its phase. One without open records is not visited: there is nothing to see.
    void watch(uint32_t bucket) {
        if (swept[bucket])
            return;
        swept[bucket] = true;
        const Time period = sc.trio.sweep_period, phase = period * bucket / sc.trio.buckets;
        const Time next = (world.now + period - phase) / period * period + phase;
        world.schedule(Event::sweep, std::max(next, world.now + 1), the_switch, bucket);
    }

    void sweep(uint32_t bucket) {
        swept[bucket] = false;
        for (uint32_t index = bucket * INAGG_WAYS; index < (bucket + 1) * INAGG_WAYS; index++)
            if (records[index].job == job.index)
                visit(index);
        const auto begin = records.begin() + bucket * INAGG_WAYS;
        if (std::any_of(begin, begin + INAGG_WAYS,
                        [&](const inagg_record &r) { return r.job == job.index && inagg_record_is_open(&r); }))
            watch(bucket);
    }

    void visit(uint32_t index) {
        inagg_record &r = records[index];
        if (r.slot.generation != job.generation) {
            r.slot.flags = 0;
            return;
        }
        const bool was_expired = r.flags & INAGG_RECORD_EXPIRED;
        if (world.broken(Mutation::expire_whole))
            r.flags &= static_cast<uint8_t>(~(INAGG_RECORD_WHOLE | INAGG_RECORD_RECOVERING));
        const int found = inagg_record_sweep(&r, world.broken(Mutation::await_excluded) ? &whole : &job, &policy, clock());
        if (found == INAGG_SWEEP_FREED)
            counted_open--;
        check_expiry(index, was_expired);
        if (found == INAGG_SWEEP_EXPIRED && !world.random.chance(sc.trio.lost_ticks))
            world.schedule(Event::tick, world.now + world.random.below(1 * ms), the_switch, index);
    }

    void tick(uint32_t index) {
        inagg_record &r = records[index];
        if (r.job != job.index || r.slot.generation != job.generation || inagg_record_finish(&r, &job) < 0)
            return;
        world.trace("switch: tick decides block {:#x} with {:#x}", r.slot.block, r.slot.seen);
        Packet cause{};
        cause.block = world.content.meta_of(r.slot.block, 0);
        cause.version = (r.slot.block & sc.slots) != 0;
        cause.slot = inagg_position_of(&job, r.stream, r.slot.block);
        decided(index, cause);
    }

    // ---- checks ----

    // What a record holds is the sum of the ranks it names, each once, and of none that has nothing to add.
    void check_record(uint32_t index) {
        const inagg_record &r = records[index];
        world.require(!(r.slot.seen & ~whole.all), "block {:#x} names ranks outside the job", r.slot.block);
        world.require(!(r.slot.seen & world.content.absent_from(r.slot.block)), "block {:#x} names ranks that are absent: {:#x}",
                      r.slot.block, r.slot.seen);
        const Payload sum = r.slot.elements ? beside[index].sum : Payload{};
        world.require(sum == world.content.sum_of(r.slot.block, r.slot.seen), "block {:#x}: the record is not the sum of {:#x}",
                      r.slot.block, r.slot.seen);
        world.require(!inagg_record_is_open(&r) || r.slot.seen != whole.all, "block {:#x} is open with all ranks in",
                      r.slot.block);
    }

    // Ranks may be missing only as the job's policy says.
    void check_decision(uint32_t index) {
        const inagg_record &r = records[index];
        world.require(r.slot.seen, "block {:#x} is decided without anybody", r.slot.block);
        if (inagg_record_is_full(&r, &job) || beside[index].restored)
            return;
        world.require(!world.content.whole(r.slot.block), "block {:#x} is decided without {:#x}", r.slot.block,
                      job.all & ~r.slot.seen);
        const bool quorate = policy.quorum && inagg_count_ranks(r.slot.seen) >= policy.quorum;
        world.require(quorate || r.flags & INAGG_RECORD_EXPIRED, "block {:#x} is decided too early with {:#x}", r.slot.block,
                      r.slot.seen);
    }

    // A record expires when no rank has come for k to k + 1 sweeps.
    void check_expiry(uint32_t index, bool was_expired) {
        const inagg_record &r = records[index];
        if (!inagg_record_is_open(&r) || was_expired || !policy.expiry_sweeps || !r.slot.seen || inagg_record_is_full(&r, &job))
            return;
        const Time idle = world.now - beside[index].touched_at, expiry = policy.expiry_sweeps * sc.trio.sweep_period;
        const bool expired = r.flags & INAGG_RECORD_EXPIRED;
        world.require(!expired || idle >= expiry, "block {:#x} expires after {} us", r.slot.block, idle / us);
        world.require(expired || r.flags & (INAGG_RECORD_RECOVERING | INAGG_RECORD_WHOLE) ||
                          idle <= expiry + sc.trio.sweep_period,
                      "block {:#x} has not expired after {} us", r.slot.block, idle / us);
    }
};

} // namespace

std::unique_ptr<Switch> make_trio_switch(World &world, const Tree *below) { return std::make_unique<TrioSwitch>(world, below); }

} // namespace simulation
