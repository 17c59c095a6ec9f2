// SPDX-License-Identifier: BSD-2-Clause
#include "simulation.hpp"

#include <inagg/core/job.h>
#include <inagg/core/slot.h>
#include <inagg/core/worker.h>

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <queue>

namespace simulation {
namespace {

// Without progress; longer than every sleep and pause. At 30 % loss and the ceiling of the timers, 500 ms, each
// attempt fails with probability one half, and a block may need a request, a restore and a resend in turn.
constexpr Time deadline = 60 * s;
constexpr uint64_t most_events = 20'000'000;
constexpr int the_switch = -1;

// Elements, as the model needs them: the sum, and how often each rank is in it.
struct Payload {
    uint64_t value = 0;
    std::array<uint8_t, INAGG_MAX_RANKS> counts{};

    bool operator==(const Payload &) const = default;
    void add(const Payload &other) {
        value += other.value;
        for (size_t rank = 0; rank < counts.size(); rank++)
            counts[rank] += other.counts[rank];
    }
};

struct Packet {
    uint8_t type;
    uint8_t version;
    bool everyone; // REQUEST: answer all
    uint16_t boot;
    uint32_t slot;
    uint64_t contributors;
    inagg_block block;
    Payload payload;
};

struct Event {
    enum Kind : uint8_t { arrival, timer, call, fault } kind;
    Time at;
    uint64_t order; // of equal times, the one scheduled first
    int target;
    uint32_t index; // of packet or fault
    bool operator>(const Event &other) const { return at != other.at ? at > other.at : order > other.order; }
};

// One copy of a slot in the switch.
struct Copy {
    inagg_slot state;
    Payload sum;
};

struct Rank {
    inagg_worker worker;
    std::vector<inagg_wslot> slots;
    std::vector<Payload> held; // result of the slot's previous block
    std::vector<uint32_t> held_block;
    std::vector<std::optional<uint64_t>> heard; // contributors in the latest WAIT for the slot's block
    std::vector<uint32_t> missing;              // blocks of each tensor that are still to come
    uint32_t called = 0;                        // tensors
    uint32_t finished = 0;                      // tensors
    inagg_boots boots{1, 0};
    Time timer_at = ~0ULL;
    Time asleep_until = 0;
    Time progress_at = 0;
    bool dead = false;
    std::vector<Packet> inbox; // arrived while asleep
};

class Simulation {
public:
    explicit Simulation(const Options &chosen)
        : options(chosen), random(chosen.seed), sc(make_scenario(random, chosen.ranks)) {
        set_up();
    }

    Outcome run() {
        trace("{}", sc.describe());
        for (uint32_t r = 0; r < sc.ranks; r++)
            schedule(Event::call, random.below(1 + sc.pause), static_cast<int>(r), 0);
        for (uint32_t i = 0; i < sc.faults.size(); i++)
            schedule(Event::fault, sc.faults[i].at, the_switch, i);
        while (!over()) {
            if (events.empty() || outcome.events == most_events)
                throw Violation("the run does not end: " + stuck());
            const Event event = events.top();
            events.pop();
            outcome.events++;
            now = event.at;
            handle(event);
        }
        check_end();
        return outcome;
    }

private:
    const Options options;
    Random random;
    const Scenario sc;
    inagg_job job{};
    std::vector<Copy> memory;
    std::vector<Rank> ranks;
    std::vector<uint32_t> tensor_start;
    uint16_t boot = 1;
    Time now = 0;
    uint64_t order = 0;
    Outcome outcome{};
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    std::vector<Packet> packets;
    std::vector<uint32_t> free_packets;

    template <typename... Args> void trace(fmt::format_string<Args...> text, Args &&...args) {
        if (options.verbose)
            fmt::print("{:>10.3f} us  {}\n", static_cast<double>(now) / us,
                       fmt::vformat(text, fmt::make_format_args(args...)));
    }

    template <typename... Args> void require(bool holds, fmt::format_string<Args...> text, Args &&...args) {
        if (!holds)
            throw Violation(
                fmt::format("at {} us: {}", now / us, fmt::vformat(text, fmt::make_format_args(args...))));
    }

    bool broken(Mutation mutation) const { return options.mutation == mutation; }

    // ---- what the job is ----

    void set_up() {
        job.all = inagg_all_ranks(sc.ranks);
        job.first_slot = sc.first_slot;
        job.slots = sc.control ? 16 : sc.slots;
        job.control_slots = sc.control ? sc.slots : 2;
        job.generation = 3;
        job.size = static_cast<uint16_t>(sc.ranks);
        job.elements = 64;
        memory.resize(2 * (job.first_slot + job.slots + job.control_slots + 2));
        uint32_t block = sc.base;
        for (uint32_t blocks : sc.tensors) {
            tensor_start.push_back(block);
            block += blocks;
            outcome.blocks += blocks;
        }
        ranks.resize(sc.ranks);
        for (Rank &rank : ranks) {
            inagg_worker_init(&rank.worker, sc.slots, 0);
            rank.worker.limit = sc.base;
            rank.slots.resize(sc.slots);
            rank.held.resize(sc.slots);
            rank.held_block.resize(sc.slots);
            rank.heard.resize(sc.slots);
            rank.missing = sc.tensors;
            for (uint32_t i = 0; i < sc.slots; i++) {
                inagg_wslot_init(&rank.slots[i], i);
                rank.slots[i].block += sc.base;
            }
        }
    }

    uint64_t hash(uint64_t a, uint64_t b) const {
        return Random(options.seed * 1000003 + a * 7919 + b).next();
    }

    enum class Use { sum, broadcast, barrier };

    Use use_of(uint32_t block) const {
        if (sc.control)
            return Use::barrier;
        return hash(block, 1) % 4 == 0 ? Use::broadcast : Use::sum;
    }

    bool has_elements(uint32_t block, uint32_t rank) const {
        switch (use_of(block)) {
        case Use::sum:
            return true;
        case Use::broadcast:
            return rank == hash(block, 2) % sc.ranks;
        default:
            return false;
        }
    }

    inagg_block meta_of(uint32_t block, uint32_t rank) const {
        inagg_block b{};
        b.block = block;
        b.generation = job.generation;
        b.rank = static_cast<uint16_t>(rank);
        b.elements =
            has_elements(block, rank) ? static_cast<uint16_t>(INAGG_CHUNK * (1 + hash(block, 3) % 2)) : 0;
        b.dtype_op = sc.control ? INAGG_WIRE_NONE << 4 : INAGG_WIRE_INT32 << 4;
        b.scale = static_cast<uint8_t>(hash(block, 4));
        b.next_scale = static_cast<uint8_t>(hash(block, 100 + rank));
        b.saturated = hash(block, 200 + rank) % 16 == 0;
        return b;
    }

    Payload contribution(uint32_t block, uint32_t rank) const {
        Payload p;
        if (has_elements(block, rank)) {
            p.value = hash(block, 300 + rank);
            p.counts[rank] = 1;
        }
        return p;
    }

    // The exact sum of the ranks in `seen`.
    Payload sum_of(uint32_t block, uint64_t seen) const {
        Payload sum;
        for (uint32_t rank = 0; rank < sc.ranks; rank++)
            if (seen & inagg_rank_bit(rank))
                sum.add(contribution(block, rank));
        return sum;
    }

    uint32_t tensor_of(uint32_t block) const {
        uint32_t i = 0;
        while (i + 1 < tensor_start.size() && !inagg_before(block, tensor_start[i + 1]))
            i++;
        return i;
    }

    // ---- time and network ----

    void schedule(Event::Kind kind, Time at, int target, uint32_t index) {
        events.push({kind, at, order++, target, index});
    }

    void deliver_later(int to, const Packet &packet) {
        uint32_t index;
        if (free_packets.empty()) {
            index = static_cast<uint32_t>(packets.size());
            packets.push_back(packet);
        } else {
            index = free_packets.back();
            free_packets.pop_back();
            packets[index] = packet;
        }
        Time at = now + sc.delay + random.below(sc.jitter + 1);
        if (random.chance(sc.reorder))
            at += random.below(sc.late + 1);
        schedule(Event::arrival, at, to, index);
    }

    void transmit(int to, const Packet &packet) {
        outcome.packets++;
        if (random.chance(sc.loss)) {
            outcome.dropped++;
            trace("lost: type {} block {:#x} to {}", packet.type, packet.block.block, to);
            return;
        }
        deliver_later(to, packet);
        if (random.chance(sc.duplicate))
            deliver_later(to, packet);
    }

    void handle(const Event &event) {
        switch (event.kind) {
        case Event::arrival: {
            const Packet packet = packets[event.index];
            free_packets.push_back(event.index);
            if (event.target == the_switch)
                switch_receives(packet);
            else
                arrive(static_cast<uint32_t>(event.target), packet);
            break;
        }
        case Event::timer:
            wake(static_cast<uint32_t>(event.target));
            break;
        case Event::call:
            call(static_cast<uint32_t>(event.target));
            break;
        case Event::fault:
            strike(sc.faults[event.index]);
            break;
        }
    }

    // ---- faults ----

    void strike(const Fault &fault) {
        switch (fault.kind) {
        case Fault::restart:
            trace("switch restarts");
            boot++;
            [[fallthrough]];
        case Fault::clear_all:
            trace("all slots cleared");
            std::fill(memory.begin(), memory.end(), Copy{});
            break;
        case Fault::clear_one: {
            const uint64_t key = random.below(memory.size());
            trace("copy {} cleared", key);
            memory[key] = {};
            break;
        }
        case Fault::sleep:
            trace("rank {} sleeps", fault.rank);
            ranks[fault.rank].asleep_until = std::max(ranks[fault.rank].asleep_until, now + fault.duration);
            schedule(Event::timer, ranks[fault.rank].asleep_until, static_cast<int>(fault.rank), 0);
            break;
        case Fault::kill:
            trace("rank {} is killed", fault.rank);
            ranks[fault.rank].dead = true;
            break;
        }
    }

    // ---- the switch ----

    Copy &copy_of(const Packet &packet) {
        const uint32_t version = broken(Mutation::one_copy) ? 0 : packet.version;
        return memory[(job.first_slot + packet.slot) * 2 + version];
    }

    void switch_receives(const Packet &packet) {
        const int refused =
            inagg_job_admits(&job, &packet.block, packet.slot,
                             packet.block.elements * inagg_element_bytes(packet.block.dtype_op >> 4));
        require(!refused, "an honest packet is refused for reason {}", -refused);
        Copy &copy = copy_of(packet);
        switch (packet.type) {
        case INAGG_CONTRIBUTION:
            switch_contribute(copy, packet);
            break;
        case INAGG_RESTORE:
            switch_restore(copy, packet);
            break;
        default:
            switch_request(copy, packet);
            break;
        }
        check_copy(copy);
    }

    void switch_contribute(Copy &copy, Packet packet) {
        uint64_t all = job.all;
        if (broken(Mutation::ignore_seen) && !(copy.state.flags & INAGG_SLOT_COMPLETE))
            copy.state.seen &= ~inagg_rank_bit(packet.block.rank);
        if (broken(Mutation::complete_early) && sc.ranks > 1)
            all &= all >> 1;
        if (broken(Mutation::ignore_block) && (copy.state.flags & INAGG_SLOT_LIVE) &&
            !(copy.state.flags & INAGG_SLOT_COMPLETE)) {
            packet.block.block = copy.state.block;
            packet.block.scale = copy.state.scale;
        }
        const int verdict = inagg_slot_contribute(&copy.state, all, &packet.block);
        trace("switch: rank {} contributes block {:#x}: verdict {}, seen {:#x}", packet.block.rank,
              packet.block.block, verdict, copy.state.seen);
        require(verdict != -INAGG_R_MISMATCH, "block {:#x} of rank {} disagrees with the others",
                packet.block.block, packet.block.rank);
        if (verdict < 0)
            return;
        switch (verdict & ~INAGG_COMPLETES) {
        case INAGG_STORE:
            copy.sum = packet.payload;
            break;
        case INAGG_ADD:
            copy.sum.add(packet.payload);
            break;
        case INAGG_COUNT:
            break;
        case INAGG_REPLY:
            return send_result(copy, packet, packet.block.rank);
        case INAGG_TELL:
            return send_wait(copy, packet, packet.block.rank);
        }
        if (verdict & INAGG_COMPLETES)
            multicast_result(copy, packet);
    }

    void switch_restore(Copy &copy, const Packet &packet) {
        const int verdict = inagg_slot_restore(&copy.state, job.all, &packet.block);
        trace("switch: rank {} restores block {:#x}: verdict {}", packet.block.rank, packet.block.block,
              verdict);
        if (verdict < 0) {
            require(verdict == -INAGG_R_UNSOLICITED, "a restore is refused for reason {}", -verdict);
            return;
        }
        outcome.restores++;
        if ((verdict & ~INAGG_COMPLETES) == INAGG_STORE)
            copy.sum = packet.payload;
        multicast_result(copy, packet);
    }

    void switch_request(Copy &copy, const Packet &packet) {
        const int verdict = inagg_slot_request(&copy.state, &packet.block, packet.everyone);
        trace("switch: rank {} requests block {:#x}: verdict {}", packet.block.rank, packet.block.block,
              verdict);
        if (verdict == INAGG_REPLY)
            send_result(copy, packet, packet.block.rank);
        else if (verdict == INAGG_TELL)
            send_wait(copy, packet, packet.block.rank);
        else if (verdict == INAGG_TELL_ALL)
            for (uint32_t rank = 0; rank < sc.ranks; rank++)
                send_wait(copy, packet, rank);
    }

    void send_result(const Copy &copy, const Packet &cause, uint32_t rank) {
        Packet packet = cause;
        packet.type = INAGG_RESULT;
        packet.boot = boot;
        packet.contributors = copy.state.seen;
        packet.block.elements = copy.state.elements;
        packet.block.next_scale = copy.state.next_scale;
        packet.block.saturated = (copy.state.flags & INAGG_SLOT_SATURATED) != 0;
        packet.payload = copy.state.elements ? copy.sum : Payload{};
        transmit(static_cast<int>(rank), packet);
    }

    void multicast_result(const Copy &copy, const Packet &cause) {
        for (uint32_t rank = 0; rank < sc.ranks; rank++)
            send_result(copy, cause, rank);
    }

    void send_wait(const Copy &copy, const Packet &cause, uint32_t rank) {
        Packet packet = cause;
        packet.type = INAGG_WAIT;
        packet.boot = boot;
        packet.contributors = inagg_slot_seen(&copy.state, &cause.block);
        packet.payload = {};
        transmit(static_cast<int>(rank), packet);
    }

    // A slot's sum is that of the ranks it names, each once.
    void check_copy(const Copy &copy) {
        if (!(copy.state.flags & INAGG_SLOT_LIVE))
            return;
        require(!(copy.state.seen & ~job.all), "block {:#x} names ranks outside the job", copy.state.block);
        const Payload sum = copy.state.elements ? copy.sum : Payload{};
        require(sum == sum_of(copy.state.block, copy.state.seen),
                "block {:#x}: the slot is not the sum of {:#x}", copy.state.block, copy.state.seen);
        const bool complete = copy.state.flags & INAGG_SLOT_COMPLETE;
        require(complete == (copy.state.seen == job.all), "block {:#x}: complete is {} with {:#x} in",
                copy.state.block, complete, copy.state.seen);
    }

    // ---- the workers ----

    void arrive(uint32_t r, const Packet &packet) {
        Rank &rank = ranks[r];
        if (rank.dead)
            return;
        if (now < rank.asleep_until) {
            if (rank.inbox.size() < 256) // a receive ring
                rank.inbox.push_back(packet);
            return;
        }
        worker_receives(r, packet);
        arm(r);
    }

    // The rank runs: what arrived in its sleep, then its timers.
    void wake(uint32_t r) {
        Rank &rank = ranks[r];
        if (rank.dead || now < rank.asleep_until)
            return;
        if (now >= rank.timer_at)
            rank.timer_at = ~0ULL;
        std::vector<Packet> inbox;
        inbox.swap(rank.inbox);
        for (const Packet &packet : inbox)
            worker_receives(r, packet);
        for (inagg_wslot &slot : rank.slots)
            expire(r, slot);
        arm(r);
    }

    void expire(uint32_t r, inagg_wslot &slot) {
        const int action = inagg_worker_timeout(&ranks[r].worker, &slot, now);
        if (!broken(Mutation::no_resend))
            act(r, slot, action);
    }

    void arm(uint32_t r) {
        Rank &rank = ranks[r];
        Time due = ~0ULL;
        for (const inagg_wslot &slot : rank.slots)
            if (slot.state == INAGG_WSLOT_SENT)
                due = std::min<Time>(due, slot.due_ns);
        if (due >= rank.timer_at)
            return;
        rank.timer_at = due;
        schedule(Event::timer, std::max(due, now), static_cast<int>(r), 0);
    }

    void call(uint32_t r) {
        Rank &rank = ranks[r];
        if (rank.dead || rank.called == sc.tensors.size())
            return;
        if (now < rank.asleep_until)
            return schedule(Event::call, rank.asleep_until, static_cast<int>(r), 0);
        const uint32_t tensor = rank.called++;
        rank.worker.limit = tensor_start[tensor] + sc.tensors[tensor];
        rank.progress_at = now;
        trace("rank {} calls tensor {}", r, tensor);
        for (inagg_wslot &slot : rank.slots)
            open(r, slot);
        arm(r);
        if (rank.called - rank.finished < sc.depth)
            schedule(Event::call, now, static_cast<int>(r), 0);
    }

    void open(uint32_t r, inagg_wslot &slot) {
        if (inagg_worker_open(&ranks[r].worker, &slot, now) == INAGG_W_SEND)
            act(r, slot, INAGG_W_SEND);
    }

    void act(uint32_t r, inagg_wslot &slot, int action) {
        switch (action) {
        case INAGG_W_SEND:
        case INAGG_W_RESEND:
            return send(r, slot.block, INAGG_CONTRIBUTION, false);
        case INAGG_W_RESEND_ASK_ALL:
            send(r, slot.block, INAGG_CONTRIBUTION, false);
            return send(r, slot.block, INAGG_REQUEST, true);
        case INAGG_W_REQUEST:
            return send(r, slot.block, INAGG_REQUEST, false);
        case INAGG_W_REQUEST_ALL:
            return send(r, slot.block, INAGG_REQUEST, true);
        case INAGG_W_RESTORE:
            return send(r, slot.block - sc.slots, INAGG_RESTORE, false);
        default:
            return;
        }
    }

    void send(uint32_t r, uint32_t block, uint8_t type, bool everyone) {
        Rank &rank = ranks[r];
        Packet packet{};
        packet.type = type;
        packet.everyone = everyone;
        packet.version = static_cast<uint8_t>(inagg_pool_version(&rank.worker, block));
        const uint32_t index = inagg_slot_index(&rank.worker, block);
        packet.slot = sc.control ? job.slots + index : index;
        packet.block = meta_of(block, r);
        if (type == INAGG_REQUEST)
            packet.block.elements = 0;
        else if (type == INAGG_CONTRIBUTION)
            packet.payload = contribution(block, r);
        else
            load_held(r, index, packet);
        trace("rank {} sends type {} block {:#x}", r, type, block);
        transmit(the_switch, packet);
    }

    // A restore needs the result of the slot's latest block and no older one.
    void load_held(uint32_t r, uint32_t index, Packet &packet) {
        const Rank &rank = ranks[r];
        const bool forgotten = broken(Mutation::forget_result) && rank.slots[index].state == INAGG_WSLOT_SENT;
        require(rank.held_block[index] == packet.block.block && !forgotten,
                "rank {} is asked for block {:#x} and no longer holds it", r, packet.block.block);
        packet.payload = rank.held[index];
        const inagg_block expected = result_meta(packet.block.block);
        packet.block.elements = expected.elements;
        packet.block.next_scale = expected.next_scale;
        packet.block.saturated = expected.saturated;
    }

    inagg_block result_meta(uint32_t block) const {
        inagg_block result = meta_of(block, 0);
        for (uint32_t rank = 1; rank < sc.ranks; rank++) {
            const inagg_block b = meta_of(block, rank);
            result.elements = std::max(result.elements, b.elements);
            result.next_scale = std::max(result.next_scale, b.next_scale);
            result.saturated |= b.saturated;
        }
        return result;
    }

    void worker_receives(uint32_t r, const Packet &packet) {
        Rank &rank = ranks[r];
        notice_boot(r, packet.boot);
        const uint32_t block = packet.block.block;
        inagg_wslot &slot = rank.slots[inagg_slot_index(&rank.worker, block)];
        if (packet.type == INAGG_RESULT)
            return receive_result(r, slot, packet);
        const uint32_t index = inagg_slot_index(&rank.worker, block);
        if (slot.state == INAGG_WSLOT_SENT && slot.block == block)
            rank.heard[index] = packet.contributors;
        const Time due = slot.due_ns;
        const int action = inagg_worker_wait(&rank.worker, &slot, block, packet.contributors, r, now);
        if (broken(Mutation::no_put_off) && action == INAGG_W_NOTHING)
            slot.due_ns = due;
        if (action == INAGG_W_RESTORE && broken(Mutation::no_restore))
            return;
        act(r, slot, action);
    }

    void notice_boot(uint32_t r, uint16_t heard) {
        Rank &rank = ranks[r];
        if (inagg_boot_heard(&rank.boots, heard))
            for (inagg_wslot &slot : rank.slots)
                inagg_worker_rebooted(&slot);
    }

    void receive_result(uint32_t r, inagg_wslot &slot, const Packet &packet) {
        Rank &rank = ranks[r];
        const uint32_t block = packet.block.block;
        const bool any = broken(Mutation::accept_any_result) && slot.state == INAGG_WSLOT_SENT;
        const uint32_t taken = any ? slot.block : block;
        if (inagg_worker_result(&rank.worker, &slot, taken, now) != INAGG_W_ACCEPT)
            return;
        trace("rank {} accepts block {:#x}", r, taken);
        check_result(r, taken, packet);
        const uint32_t index = inagg_slot_index(&rank.worker, taken);
        rank.held[index] = packet.payload;
        rank.held_block[index] = taken;
        rank.heard[index].reset();
        rank.progress_at = now;
        for (inagg_wslot &other : rank.slots)
            if (inagg_worker_overtaken(&rank.worker, &other, now))
                expire(r, other);
        open(r, slot);
        check_lag(index);
        finish_block(r, taken);
    }

    void check_result(uint32_t r, uint32_t block, const Packet &packet) {
        const inagg_block expected = result_meta(block);
        require(packet.contributors == job.all, "rank {}: the result of block {:#x} names only {:#x}", r,
                block, packet.contributors);
        require(packet.payload == sum_of(block, job.all), "rank {}: wrong sum of block {:#x}", r, block);
        require(packet.block.elements == expected.elements &&
                    packet.block.next_scale == expected.next_scale &&
                    packet.block.saturated == expected.saturated && packet.block.scale == expected.scale,
                "rank {}: wrong header in the result of block {:#x}", r, block);
    }

    void check_lag(uint32_t index) {
        uint32_t lowest = ranks[0].slots[index].block, highest = lowest;
        for (const Rank &rank : ranks) {
            const uint32_t block = rank.slots[index].block;
            lowest = inagg_before(block, lowest) ? block : lowest;
            highest = inagg_before(highest, block) ? block : highest;
        }
        require(highest - lowest <= sc.slots, "slot {}: a rank lags from {:#x} to {:#x}", index, highest,
                lowest);
    }

    void finish_block(uint32_t r, uint32_t block) {
        Rank &rank = ranks[r];
        rank.missing[tensor_of(block)]--;
        while (rank.finished < rank.called && !rank.missing[rank.finished]) {
            rank.finished++;
            schedule(Event::call, now + (sc.pause ? random.below(sc.pause) : 0), static_cast<int>(r), 0);
        }
    }

    // ---- the end ----

    bool done(const Rank &rank) const { return rank.finished == sc.tensors.size(); }
    // Nothing has happened for so long that a library would return an error.
    bool expired(const Rank &rank) const {
        return rank.called > rank.finished && now >= rank.progress_at + deadline &&
               now >= rank.asleep_until + deadline;
    }

    bool over() const {
        return std::all_of(ranks.begin(), ranks.end(),
                           [&](const Rank &rank) { return rank.dead || done(rank) || expired(rank); });
    }

    std::string stuck() const {
        std::string text;
        for (uint32_t r = 0; r < sc.ranks; r++) {
            if (ranks[r].dead || done(ranks[r]))
                continue;
            const inagg_wslot *slot = oldest(ranks[r]);
            text += slot ? fmt::format("rank {} waits for block {:#x}; ", r, slot->block)
                         : fmt::format("rank {} has nothing in flight; ", r);
        }
        return text;
    }

    static const inagg_wslot *oldest(const Rank &rank) {
        const inagg_wslot *first = nullptr;
        for (const inagg_wslot &slot : rank.slots)
            if (slot.state == INAGG_WSLOT_SENT && (!first || inagg_before(slot.block, first->block)))
                first = &slot;
        return first;
    }

    void check_end() {
        for (uint32_t r = 0; r < sc.ranks; r++)
            if (!ranks[r].dead && !done(ranks[r]))
                check_deadline(r);
        for (size_t key = 0; key < memory.size(); key++)
            if (key < 2 * job.first_slot || key >= 2 * (job.first_slot + job.slots + job.control_slots))
                require(!memory[key].state.flags, "another job's copy {} was written", key);
        if (sc.quiet)
            check_quiet();
    }

    // Only a death excuses a deadline, and the error must name exactly who died.
    void check_deadline(uint32_t r) {
        require(sc.killed.has_value(), "no progress for {} s: {}", deadline / s, stuck());
        const inagg_wslot *slot = oldest(ranks[r]);
        require(slot, "rank {} has nothing in flight and is not done", r);
        const auto heard = ranks[r].heard[inagg_slot_index(&ranks[r].worker, slot->block)];
        require(heard.has_value(), "rank {} cannot say who is missing from block {:#x}", r, slot->block);
        require((job.all & ~*heard) == inagg_rank_bit(*sc.killed),
                "rank {} blames {:#x} for block {:#x}, not rank {}", r, job.all & ~*heard, slot->block,
                *sc.killed);
    }

    // One rank slept and nothing was lost: for each block of the window every other rank sends its
    // elements and asks a few times. After that a back-off's round costs the order of n packets, not n * n.
    void check_quiet() {
        uint64_t rounds = 2 + sc.faults[0].duration / INAGG_RTO_CEILING_NS;
        for (Time wait = INAGG_RTO_FLOOR_NS;
             wait < std::min<Time>(sc.faults[0].duration, INAGG_RTO_CEILING_NS); wait *= 2)
            rounds++;
        const uint64_t window = std::min<uint64_t>(sc.slots, outcome.blocks);
        const uint64_t necessary = outcome.blocks * 2 * sc.ranks;
        const uint64_t most = 2 * necessary + window * (12 * sc.ranks + rounds * 4 * (sc.ranks + 1));
        require(outcome.packets <= most, "{} packets for {} blocks of {} ranks while one slept: more than {}",
                outcome.packets, outcome.blocks, sc.ranks, most);
    }
};

} // namespace

Outcome simulate(const Options &options) { return Simulation(options).run(); }

} // namespace simulation
