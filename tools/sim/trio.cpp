// SPDX-License-Identifier: BSD-2-Clause
// trio (docs/PROTOCOL.md §11, §12.1; core/record.h): switches whose blocks are decided without who is late,
// and ranks that keep results.
#include "host.hpp"
#include "switch.hpp"

#include <inagg/core/combiner.h>

#include <ns3/simulator.h>

namespace sim {
namespace {

// What the root and those below it have in common.
class TrioRole : public Role {
public:
    TrioRole(Switch &place, const Job &job, Site site, uint32_t expiry_us, const TrioPolicy &policy, Counters &counters)
        : Role(place, job), site_(std::move(site)), counters_(counters), core_(job.core), threads_(policy.threads) {
        core_.all = site_.ranks();
        core_.flags |= INAGG_JOIN_TREE;
        policy_.expiry_us = expiry_us;
        policy_.expiry_sweeps = policy.sweeps;
        policy_.most_open = static_cast<uint32_t>(place.records().states.size() / 2);
        for (uint32_t position = 0; position < job.core.slots + job.core.control_slots; position++)
            floors_.push_back(inagg_floor_at_start(&core_, position));
        period_ns_ = uint64_t{expiry_us} * 1000 / policy.sweeps / threads_;
        if (period_ns_)
            ns3::Simulator::Schedule(ns3::NanoSeconds(period_ns_), &TrioRole::sweep, this, 0);
    }

protected:
    virtual void expired(uint32_t index) = 0;

    Records &records() { return switch_.records(); }
    inagg_record *bucket_of(const inagg_block &block) { return &records().states[first_of(block)]; }
    uint32_t first_of(const inagg_block &block) {
        const auto buckets = static_cast<uint32_t>(records().states.size() / INAGG_WAYS);
        return inagg_bucket_of(core_.index, block.stream, block.block, buckets) * INAGG_WAYS;
    }

    inagg_block admit_streamed(const Message &message) const {
        inagg_block block = admit(message);
        block.stream = inagg_stream_of(&core_, message.slot());
        return block;
    }

    void add(uint32_t index, int verdict, const Message &message) {
        records().causes[index] = message;
        fold(verdict & ~(INAGG_COMPLETES | INAGG_OPENS), records().sums[index], message.elements);
    }

    // ---- answers ----

    Message sum(uint32_t index, inagg_type type) {
        const inagg_record &record = records().states[index];
        Message message = records().causes[index];
        message.set_type(type);
        message.set_length(record.slot.elements);
        message.set_contributors(record.slot.seen);
        message.set_flag(INAGG_F_DEGRADED, type == INAGG_RESULT && record.flags & INAGG_RECORD_DEGRADED);
        message.set_epoch(record.epoch);
        message.elements = records().sums[index];
        return message;
    }

    Message wait(const Message &cause, uint64_t ranks, uint16_t epoch, uint16_t cap) const {
        counters_.waits++;
        Message message = cause;
        message.set_type(INAGG_WAIT);
        message.set_length(0);
        message.set_contributors(ranks);
        message.set_epoch(epoch);
        message.set_cap(cap);
        return message;
    }

    void send(uint32_t rank, Message message) { send_to(inagg_rank_bit(rank), message, false); }
    void send_all(const Message &message) { send_to(core_.all, message, true); }

    const Site site_;
    Counters &counters_;
    inagg_job core_;
    inagg_policy policy_{};
    std::vector<inagg_floor> floors_; // by position
    uint32_t open_ = 0;

private:
    const uint32_t threads_;
    uint64_t period_ns_ = 0; // from one thread's sweep to the next one's

    void send_to(uint64_t ranks, Message message, bool everyone) {
        message.set_flag(INAGG_F_MULTICAST, everyone);
        for (const Site::Child &child : site_.children)
            if (child.ranks & ranks)
                switch_.send_to(child.node, message);
    }

    // A thread looks at its part of the table, and then it is the next one's turn: each comes once in a
    // sweep.
    void sweep(uint32_t thread) {
        const size_t all = records().states.size();
        for (size_t index = all * thread / threads_; index < all * (thread + 1) / threads_; index++)
            sweep_record(static_cast<uint32_t>(index));
        ns3::Simulator::Schedule(ns3::NanoSeconds(period_ns_), &TrioRole::sweep, this, (thread + 1) % threads_);
    }

    void sweep_record(uint32_t index) {
        inagg_record &record = records().states[index];
        if (!(record.slot.flags & INAGG_SLOT_LIVE) || record.job != core_.index)
            return;
        const int swept = inagg_record_sweep(&record, &core_, &policy_, inagg_epoch_of(now_ns()));
        open_ -= swept == INAGG_SWEEP_FREED;
        if (swept == INAGG_SWEEP_EXPIRED)
            expired(index);
    }
};

// It has all ranks behind it, and decides.
class TrioRoot : public TrioRole {
public:
    TrioRoot(Switch &place, const Job &job, const Site &site, const TrioPolicy &policy, Counters &counters)
        : TrioRole(place, job, site, static_cast<uint32_t>(policy.expiry_ns / 1000), policy, counters) {}

    void receive(const Envelope &, Message message) override {
        const inagg_block block = admit_streamed(message);
        switch (message.type()) {
        case INAGG_CONTRIBUTION:
        case INAGG_PARTIAL:
            return contribute(message, block);
        case INAGG_RESTORE:
            return restore(message, block);
        default:
            return request(message, block);
        }
    }

private:
    void contribute(const Message &message, const inagg_block &block) {
        uint32_t way = 0;
        const int verdict = inagg_record_contribute_ranks(bucket_of(block), &floors_[message.slot()], &core_, &policy_, open_,
                                                          message.ranks(), &block, inagg_epoch_of(now_ns()), &way, nullptr);
        if (verdict == -INAGG_R_FULL)
            return refuse(message);
        if (verdict < 0)
            return;
        const uint32_t index = first_of(block) + way;
        open_ += verdict & INAGG_OPENS ? 1 : 0;
        switch (INAGG_VERDICT(verdict)) {
        case INAGG_REPLY:
            return send(block.rank, sum(index, INAGG_RESULT));
        case INAGG_TELL:
        case INAGG_TELL_ALL:
            return tell(&records().states[index], message, INAGG_VERDICT(verdict) == INAGG_TELL_ALL);
        default:
            add(index, verdict, message);
        }
        if (verdict & INAGG_COMPLETES)
            decide(index);
    }

    void decide(uint32_t index) {
        open_--;
        counters_.degraded += (records().states[index].flags & INAGG_RECORD_DEGRADED) != 0;
        send_all(sum(index, INAGG_RESULT));
    }

    void expired(uint32_t index) override {
        if (inagg_record_finish(&records().states[index], &core_) <= 0)
            return;
        counters_.expired++;
        decide(index);
    }

    void restore(const Message &message, const inagg_block &block) {
        uint32_t way = 0;
        const int verdict = inagg_record_restore(bucket_of(block), &core_, &block, &way);
        if (verdict < 0)
            return;
        counters_.restores++;
        add(first_of(block) + way, verdict, message);
        decide(first_of(block) + way);
    }

    void request(const Message &message, const inagg_block &block) {
        int way = -1;
        const int verdict = inagg_record_request(bucket_of(block), &core_, &block, message.has(INAGG_F_MULTICAST), &way);
        if (verdict == INAGG_REPLY)
            return send(block.rank, sum(first_of(block) + static_cast<uint32_t>(way), INAGG_RESULT));
        if (verdict > 0)
            tell(way < 0 ? nullptr : bucket_of(block) + way, message, verdict == INAGG_TELL_ALL);
    }

    void refuse(const Message &message) {
        counters_.refused++;
        send(message.block().rank, wait(message, 0, 0, inagg_window_cap(open_)));
    }

    void tell(const inagg_record *record, const Message &message, bool everyone) {
        const Message word = wait(message, record ? inagg_record_heard(record) : 0, record ? record->epoch : 0, 0);
        if (everyone)
            return send_all(word);
        send(message.block().rank, word);
    }
};

// Below the root: it adds what comes in time (docs/PROTOCOL.md §12.1; core/combiner.h).
class Combiner : public TrioRole {
public:
    Combiner(Switch &place, const Job &job, const Site &site, const TrioPolicy &policy, Counters &counters)
        : TrioRole(place, job, site, inagg_expiry_below(static_cast<uint32_t>(policy.expiry_ns / 1000)), policy, counters) {}

    void receive(const Envelope &, Message message) override {
        const inagg_block block = admit_streamed(message);
        switch (message.type()) {
        case INAGG_CONTRIBUTION:
            return contribute(message, block);
        case INAGG_RESULT:
            return take(message, block);
        case INAGG_WAIT:
            return pass_wait(message, block);
        case INAGG_REQUEST:
            return request(message, block);
        default:
            return send_up(message);
        }
    }

private:
    void send_up(const Message &message) { switch_.send_to(*site_.parent, message); }

    void contribute(const Message &message, const inagg_block &block) {
        uint32_t way = 0;
        const int verdict = inagg_combiner_contribute(bucket_of(block), &floors_[message.slot()], &core_, &policy_, open_,
                                                      message.ranks(), &block, &way, nullptr);
        if (verdict < 0)
            return;
        const uint32_t index = first_of(block) + way;
        open_ += verdict & INAGG_OPENS ? 1 : 0;
        switch (INAGG_VERDICT(verdict)) {
        case INAGG_PASS_UP:
            return send_up(message);
        case INAGG_SEND_UP:
            return send_up(sum(index, INAGG_PARTIAL));
        case INAGG_REPLY:
            return send(block.rank, sum(index, INAGG_RESULT));
        case INAGG_TELL:
            return send(block.rank, wait(message, inagg_combiner_seen(&records().states[index], &core_), 0, 0));
        default:
            add(index, verdict, message);
        }
        if (verdict & INAGG_COMPLETES)
            send_up(sum(index, INAGG_PARTIAL));
    }

    void expired(uint32_t index) override {
        if (inagg_combiner_finish(&records().states[index]) > 0)
            send_up(sum(index, INAGG_PARTIAL));
    }

    void request(const Message &message, const inagg_block &block) {
        int way = -1;
        const int verdict = inagg_combiner_request(bucket_of(block), &core_, &block, message.has(INAGG_F_MULTICAST), &way);
        if (verdict == INAGG_REPLY)
            send(block.rank, sum(first_of(block) + static_cast<uint32_t>(way), INAGG_RESULT));
        else if (verdict == INAGG_TELL)
            send(block.rank, wait(message, inagg_combiner_seen(bucket_of(block) + way, &core_), 0, 0));
        else if (verdict > 0)
            send_up(message);
    }

    void take(const Message &message, const inagg_block &block) {
        uint32_t way = 0;
        const int verdict = inagg_combiner_result(bucket_of(block), &floors_[message.slot()], &core_, &block, &way);
        if (verdict < 0)
            return;
        if (INAGG_VERDICT(verdict) != INAGG_PASS_DOWN) {
            open_ -= verdict & INAGG_OPENS ? 0 : 1;
            add(first_of(block) + way, verdict, message);
        }
        send_all(message);
    }

    void pass_wait(Message message, const inagg_block &block) {
        int closes = 0;
        const bool everyone = message.has(INAGG_F_MULTICAST);
        message.set_contributors(inagg_combiner_wait(bucket_of(block), &core_, &block, everyone, &closes));
        open_ -= static_cast<uint32_t>(closes);
        if (everyone)
            return send_all(message);
        send(block.rank, message);
    }
};

// A rank that takes what was decided without it.
class TrioWorker : public Worker {
public:
    TrioWorker(Host &host, Job &job, uint32_t rank, Counters &counters)
        : Worker(host, job, rank, rank, counters), kept_(2 * job.slots) {}

    void receive(const Message &message) override {
        if (message.type() == INAGG_RESULT)
            take(message);
        else
            wait(message);
    }

private:
    struct Result {
        uint32_t block = 0;
        bool is_there = false;
        Message message;
    };
    std::vector<Result> kept_; // by block, modulo their number: of the last window and of what is ahead

    Result &place_of(uint32_t block) { return kept_[block % kept_.size()]; }
    const Message *find(uint32_t block) {
        const Result &result = place_of(block);
        return result.is_there && result.block == block ? &result.message : nullptr;
    }

    void take(const Message &message) {
        const inagg_block block = message.block();
        inagg_wslot &slot = slot_of(block.block);
        if (!inagg_wslot_believes(&slot, block.block, block.epoch))
            return;
        const uint64_t sent_ns = slot.sent_ns;
        if (inagg_worker_result(&worker_, &slot, block.block, message.has(INAGG_F_RESEND), now_ns()) == INAGG_W_ACCEPT) {
            place_of(block.block) = {block.block, true, message};
            counters_.latency_ns += now_ns() - sent_ns;
            counters_.latency_most_ns = std::max(counters_.latency_most_ns, now_ns() - sent_ns);
            accepted(slot, block.block, message);
            open_capped();
        } else if (block.block - slot.block < job_.slots && !find(block.block)) {
            place_of(block.block) = {block.block, true, message}; // ahead
        }
    }

    void wait(const Message &message) {
        const inagg_block block = message.block();
        inagg_wslot &slot = slot_of(block.block);
        if (message.cap())
            return inagg_worker_refused(&worker_, &slot, block.block, message.cap());
        act(slot, heed(slot, message, block));
        hurry(slot);
    }

    int heed(inagg_wslot &slot, const Message &message, const inagg_block &block) {
        if (find(block.block)) // a block that is not recovering needs no result
            return block.epoch ? restore(block) : INAGG_W_NOTHING;
        if (inagg_epoch_before(slot.epoch, block.epoch))
            return inagg_worker_recovers(&worker_, &slot, block.block, block.epoch, now_ns());
        if (block.epoch != slot.epoch && block.epoch)
            return INAGG_W_NOTHING;
        const int action = inagg_worker_wait(&worker_, &slot, block.block, message.contributors(), rank_, now_ns());
        return action == INAGG_W_RESTORE ? INAGG_W_NOTHING : action;
    }

    // Not by act(): what is given back need not be that of the slot's last block.
    int restore(const inagg_block &block) {
        Message message = *find(block.block);
        message.set_type(INAGG_RESTORE);
        message.set_rank(rank_);
        transmit(message);
        return INAGG_W_NOTHING;
    }

    int expire(inagg_wslot &slot) override { return inagg_worker_timeout(&worker_, &slot, now_ns()); }

    void open(inagg_wslot &slot) override {
        while (slot.state == INAGG_WSLOT_IDLE && inagg_before(slot.block, worker_.limit)) {
            const Message *result = find(slot.block);
            if (!result)
                break;
            counters_.skipped++;
            inagg_worker_skip(&worker_, &slot);
            check(*result);
            count();
        }
        Worker::open(slot);
    }

    // What the switch had no room for.
    void open_capped() {
        if (worker_.cap)
            for (inagg_wslot &slot : slots_)
                open(slot);
    }
};

} // namespace

std::unique_ptr<Role> make_trio_role(Switch &place, const Job &job, const Site &site, const TrioPolicy &policy,
                                     Counters &counters) {
    if (site.parent)
        return std::make_unique<Combiner>(place, job, site, policy, counters);
    return std::make_unique<TrioRoot>(place, job, site, policy, counters);
}

std::unique_ptr<Worker> make_trio_worker(Host &host, Job &job, uint32_t rank, Counters &counters) {
    return std::make_unique<TrioWorker>(host, job, rank, counters);
}

} // namespace sim
