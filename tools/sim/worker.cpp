// SPDX-License-Identifier: BSD-2-Clause
#include "host.hpp"

#include <inagg/core/aggregator.h>
#include <inagg/core/leader.h>

#include <ns3/simulator.h>

#include <algorithm>

namespace sim {

constexpr uint64_t noise_ns = 1000; // Canary §5.2.5

Worker::Worker(Host &host, Job &job, uint32_t rank, uint32_t name, Counters &counters)
    : job_(job), rank_(rank), name_(name), counters_(counters), slots_(job.slots), host_(host) {
    std::seed_seq seed{static_cast<uint32_t>(job.seed), host.number(), static_cast<uint32_t>(job.number)};
    noise_.seed(seed);
    inagg_worker_init(&worker_, job.slots, job.rto_floor_ns);
    for (uint32_t i = 0; i < job.slots; i++)
        inagg_wslot_init(&slots_[i], i);
    const uint8_t reaction = job.controlled ? inagg_reaction_of(job.algorithm) : uint8_t{INAGG_UNCONTROLLED};
    inagg_congestion_init(&congestion_, reaction, job.slots);
}

void Worker::call() {
    const uint32_t from = worker_.limit;
    missing_ = job_.blocks;
    if (std::none_of(slots_.begin(), slots_.end(), [](const inagg_wslot &slot) { return slot.state == INAGG_WSLOT_SENT; }))
        inagg_worker_restart(&worker_);
    worker_.limit += job_.blocks;
    if (controlled())
        return open_in_order();
    for (uint32_t block = from; block != from + std::min(job_.blocks, job_.slots); block++)
        if (slot_of(block).block == block)
            open(slot_of(block));
}

// As far as the network has room.
void Worker::open_in_order() {
    while (inagg_congestion_has_room(&congestion_)) {
        inagg_wslot &slot = slot_of(congestion_.next);
        if (slot.block != congestion_.next || inagg_worker_open(&worker_, &slot, now_ns()) != INAGG_W_SEND)
            return;
        inagg_congestion_sent(&congestion_);
        act(slot, INAGG_W_SEND);
    }
}

void Worker::arm(const inagg_wslot &slot) {
    if (slot.state != INAGG_WSLOT_SENT || slot.due_ns >= timer_at_)
        return;
    timer_at_ = slot.due_ns;
    timer_.Cancel();
    const uint64_t now = now_ns();
    timer_ = ns3::Simulator::Schedule(ns3::NanoSeconds(timer_at_ > now ? timer_at_ - now : 0), &Worker::wake, this);
}

void Worker::wake() {
    timer_at_ = never;
    for (inagg_wslot &slot : slots_)
        act(slot, expire(slot));
    for (const inagg_wslot &slot : slots_)
        arm(slot);
}

void Worker::act(inagg_wslot &slot, int action) {
    switch (action) {
    case INAGG_W_SEND:
        send(slot.block, INAGG_CONTRIBUTION, false, false);
        break;
    case INAGG_W_RESEND:
        send(slot.block, INAGG_CONTRIBUTION, false, true);
        break;
    case INAGG_W_RESEND_ASK_ALL:
        send(slot.block, INAGG_CONTRIBUTION, false, true);
        send(slot.block, INAGG_REQUEST, true, true);
        break;
    case INAGG_W_REQUEST:
    case INAGG_W_REQUEST_ALL:
        send(slot.block, INAGG_REQUEST, action == INAGG_W_REQUEST_ALL, true);
        break;
    case INAGG_W_RESTORE:
        send(slot.block - job_.slots, INAGG_RESTORE, false, true);
        break;
    default:
        break;
    }
    arm(slot);
}

Message Worker::blank(uint32_t block, inagg_type type) const {
    Message message;
    message.set_type(type);
    message.set_job(job_.number);
    message.set_block(job_.block(block));
    message.set_slot(inagg_position_of(&job_.core, 0, block));
    message.set_flag(INAGG_F_VERSION, inagg_pool_version(&worker_, block));
    message.set_rank(name_);
    message.set_contributors(inagg_rank_bit(name_));
    return message;
}

void Worker::send(uint32_t block, inagg_type type, bool everyone, bool repeated) {
    Message message = blank(block, type);
    message.set_flag(INAGG_F_MULTICAST, everyone);
    message.set_flag(INAGG_F_RESEND, repeated);
    const inagg_wslot &slot = slot_of(block);
    if (slot.state == INAGG_WSLOT_SENT && slot.block == block) {
        message.set_epoch(slot.epoch);
        message.set_flag(INAGG_F_BYPASS, type == INAGG_CONTRIBUTION && slot.bypass);
        message.set_cap(message.has(INAGG_F_BYPASS) ? inagg_wslot_question(&slot) : 0);
    }
    if (type == INAGG_CONTRIBUTION) {
        message.elements = job_.contribution(block, rank_);
        stamp(message);
    } else if (type == INAGG_RESTORE) {
        load_held(message);
    } else {
        message.set_length(0);
        message.set_cap(inagg_wslot_question(&slot));
    }
    counters_.resends += type == INAGG_CONTRIBUTION && repeated;
    counters_.requests += type == INAGG_REQUEST;
    transmit(message);
}

void Worker::transmit(const Message &message) {
    if (job_.noise > 0 && std::bernoulli_distribution(job_.noise)(noise_))
        ns3::Simulator::Schedule(ns3::NanoSeconds(noise_ns), &Worker::put, this, message);
    else
        put(message);
}

void Worker::put(Message message) {
    const bool urgent = job_.results_overtake && message.type() == INAGG_RESULT;
    host_.send_to(host_.leaf(), Kind::inagg, message.packet(), anyone, urgent);
}

// Others wait for the block of `slot`, if it has not been sent.
void Worker::hurry(const inagg_wslot &slot) {
    if (slot.state != INAGG_WSLOT_IDLE)
        return;
    for (inagg_wslot &other : slots_)
        if (inagg_wslot_hurry(&worker_, &other, now_ns()))
            act(other, expire(other));
}

void Worker::accepted(inagg_wslot &slot, uint32_t block, const Message &message) {
    check(message);
    if (controlled()) {
        const uint32_t cuts = congestion_.cuts;
        inagg_congestion_result(&congestion_, block, message.has(INAGG_F_CONGESTION),
                                job_.algorithm == INAGG_PANAMA ? message.cap() : 0);
        counters_.cuts += congestion_.cuts - cuts;
    }
    // Looking at each slot for each result would be most of the run's time.
    if (!job_.timers_only && ++since_scan_ >= job_.slots / 8) {
        since_scan_ = 0;
        for (inagg_wslot &other : slots_)
            if (overtaken(other)) {
                if (other.overtaken && !other.resent && controlled()) // as libinagg
                    inagg_congestion_cut(&congestion_, other.block);
                act(other, expire(other));
            }
    }
    if (controlled())
        open_in_order();
    else
        open(slot);
    count();
}

void Worker::check(const Message &result) const {
    const uint32_t block = result.block().block;
    const Elements &got = result.elements,
                   sum = job_.algorithm == INAGG_TRIO ? job_.sum_of(block, result.contributors()) : job_.sum(block);
    require(got == sum, "job {}: rank {} takes {} and {} for the sum of block {}, which is {} and {}", job_.number, rank_, got[0],
            got[1], block, sum[0], sum[1]);
}

void Worker::count() {
    counters_.blocks++;
    if (--missing_ == 0)
        done_();
}

namespace {

class SwitchmlWorker : public Worker {
public:
    SwitchmlWorker(Host &host, Job &job, uint32_t rank, uint32_t name, Counters &counters)
        : Worker(host, job, rank, name, counters), held_(job.slots), aggregators_(job.slots) {
        for (uint32_t position = 0; position < job.slots; position++)
            aggregators_[position] = inagg_aggregator_index(job.number, position, 0);
    }

    void receive(const Message &message) override {
        const inagg_block block = message.block();
        inagg_wslot &slot = slot_of(block.block);
        if (message.type() == INAGG_WAIT) {
            act(slot, inagg_worker_wait(&worker_, &slot, block.block, message.contributors(), name_, now_ns()));
            return hurry(slot);
        }
        require(message.type() == INAGG_RESULT, "rank {} gets a packet of type {}", rank_, static_cast<int>(message.type()));
        if (inagg_worker_result(&worker_, &slot, block.block, message.has(INAGG_F_RESEND), now_ns()) != INAGG_W_ACCEPT)
            return;
        held_[inagg_slot_index(&worker_, block.block)] = message.elements;
        aggregators_[inagg_slot_index(&worker_, block.block)] = message.cap();
        accepted(slot, block.block, message);
    }

private:
    std::vector<Elements> held_;        // the result of each slot's previous block
    std::vector<uint16_t> aggregators_; // atp: of its next

    int expire(inagg_wslot &slot) override { return inagg_worker_timeout(&worker_, &slot, now_ns()); }
    void stamp(Message &message) override {
        if (job_.algorithm == INAGG_ATP)
            message.set_epoch(aggregators_[inagg_slot_index(&worker_, message.block().block)]);
    }
    void load_held(Message &message) override { message.elements = held_[inagg_slot_index(&worker_, message.block().block)]; }
};

// A rank that leads the blocks of some slots (core/leader.h) and waits for others'.
class CanaryWorker : public Worker {
public:
    CanaryWorker(Host &host, Job &job, uint32_t rank, Counters &counters)
        : Worker(host, job, rank, rank, counters), all_(inagg_all_ranks(job.size())), leads_(2 * job.slots) {}

    void receive(const Message &message) override {
        const inagg_block block = message.block();
        switch (message.type()) {
        case INAGG_CONTRIBUTION:
        case INAGG_PARTIAL:
            return add(message);
        case INAGG_REQUEST:
            return answer(message);
        case INAGG_RESULT:
            return take(message);
        default:
            break;
        }
        counters_.waits++;
        inagg_wslot &slot = slot_of(block.block);
        inagg_worker_told(&worker_, &slot, block.block, message.cap(), now_ns());
        act(slot, inagg_worker_failed(&worker_, &slot, block.block, message.contributors(), rank_, block.epoch,
                                      message.has(INAGG_F_BYPASS), now_ns()));
        hurry(slot);
    }

private:
    struct Lead {
        inagg_lead state{};
        Elements sum{};
    };
    const uint64_t all_;
    std::vector<Lead> leads_; // two of each slot

    bool leads(uint32_t block) const { return inagg_leader_of(job_.size(), inagg_position_of(&job_.core, 0, block)) == rank_; }
    Lead &lead_of(uint32_t block) { return leads_[inagg_slot_index(&worker_, block) * 2 + inagg_pool_version(&worker_, block)]; }
    bool overtaken(inagg_wslot &slot) override {
        return !leads(slot.block) && inagg_worker_overtaken_at_leader(&worker_, &slot, now_ns());
    }
    int expire(inagg_wslot &slot) override {
        // What others send completes it: a timer could bring nothing.
        return leads(slot.block) ? INAGG_W_NOTHING : inagg_worker_ask(&worker_, &slot, now_ns());
    }

    void act(inagg_wslot &slot, int action) override {
        if (action != INAGG_W_SEND || !leads(slot.block))
            return Worker::act(slot, action);
        slot.due_ns = never;
        Message own = blank(slot.block, INAGG_CONTRIBUTION);
        own.elements = job_.contribution(slot.block, rank_);
        add(own);
    }

    void take(const Message &message) {
        const inagg_block block = message.block();
        inagg_wslot &slot = slot_of(block.block);
        inagg_worker_told(&worker_, &slot, block.block, message.cap(), now_ns());
        if (inagg_wslot_believes(&slot, block.block, block.epoch) &&
            inagg_worker_result(&worker_, &slot, block.block, message.has(INAGG_F_RESEND), now_ns()) == INAGG_W_ACCEPT)
            accepted(slot, block.block, message);
    }

    void add(const Message &message) {
        const inagg_block block = message.block();
        require(leads(block.block), "rank {} gets elements of block {}, which it does not lead", rank_, block.block);
        Lead &lead = lead_of(block.block);
        const int verdict = inagg_lead_contribute(&lead.state, all_, message.ranks(), &block, message.has(INAGG_F_BYPASS));
        if (verdict < 0)
            return;
        fold(verdict & ~INAGG_COMPLETES, lead.sum, message.elements);
        if (verdict & INAGG_COMPLETES)
            complete(lead, block.block);
    }

    void complete(const Lead &lead, uint32_t block) {
        Message word = result(lead, block);
        word.set_flag(INAGG_F_MULTICAST, true);
        word.set_flag(INAGG_F_RESEND, lead.state.attempt);
        word.set_contributors(lead.state.restore & ~inagg_rank_bit(rank_));
        if (job_.size() > 1)
            transmit(word);
        inagg_wslot &slot = slot_of(block);
        if (inagg_worker_completed(&worker_, &slot, block) == INAGG_W_ACCEPT)
            accepted(slot, block, result(lead, block));
    }

    void answer(const Message &message) {
        const inagg_block block = message.block();
        Lead &lead = lead_of(block.block);
        const int verdict = inagg_lead_request(&lead.state, &block);
        if (verdict < 0)
            return;
        if (verdict == INAGG_REPLY) {
            Message reply = result(lead, block.block);
            reply.set_rank(block.rank);
            reply.set_cap(message.cap());
            reply.set_flag(INAGG_F_RESEND, true);
            return transmit(reply);
        }
        const bool everyone = verdict == INAGG_FAIL_ALL;
        counters_.failed_attempts += everyone;
        Message word = blank(block.block, verdict == INAGG_TELL ? INAGG_WAIT : INAGG_BLOCK_FAILED);
        word.set_length(0);
        word.set_rank(everyone ? rank_ : block.rank);
        word.set_cap(everyone ? 0 : message.cap());
        word.set_flag(INAGG_F_MULTICAST, everyone);
        word.set_flag(INAGG_F_BYPASS, verdict != INAGG_TELL && inagg_lead_bypasses(&lead.state));
        word.set_contributors(inagg_lead_seen(&lead.state, &block));
        word.set_epoch(lead.state.attempt);
        transmit(word);
    }

    Message result(const Lead &lead, uint32_t block) const {
        Message message = blank(block, INAGG_RESULT);
        message.set_contributors(all_);
        message.set_epoch(lead.state.attempt);
        message.elements = lead.sum;
        return message;
    }
};

} // namespace

std::unique_ptr<Worker> make_switchml_worker(Host &host, Job &job, uint32_t rank, uint32_t name, Counters &counters) {
    return std::make_unique<SwitchmlWorker>(host, job, rank, name, counters);
}

std::unique_ptr<Worker> make_canary_worker(Host &host, Job &job, uint32_t rank, Counters &counters) {
    return std::make_unique<CanaryWorker>(host, job, rank, counters);
}

} // namespace sim
