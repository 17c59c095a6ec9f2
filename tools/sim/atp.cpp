// SPDX-License-Identifier: BSD-2-Clause
// atp (docs/PROTOCOL.md §13): switches whose aggregators belong to nobody (core/aggregator.h), and servers,
// which sum what reaches them (core/slot.h, core/raw.h). Two levels: the switches of the ranks, and above
// them that of the server.
#include "host.hpp"
#include "switch.hpp"

#include <inagg/core/raw.h>

#include <algorithm>
#include <bit>
#include <ranges>

namespace sim {
namespace {

uint32_t tick() { return static_cast<uint32_t>(now_ns() >> INAGG_AGGREGATOR_TICK_SHIFT); }

class AtpRole : public Role {
public:
    AtpRole(Switch &place, const Job &job, Site site, Counters &counters)
        : Role(place, job), site_(std::move(site)), counters_(counters), core_(job.core) {
        core_.all = site_.ranks();
    }

    void receive(const Envelope &, Message message) override {
        const inagg_block block = admit(message);
        switch (message.type()) {
        case INAGG_CONTRIBUTION:
        case INAGG_PARTIAL:
            return contribute(message, block);
        case INAGG_RESULT:
            for (uint32_t way = 0; way < ways(); way++)
                inagg_aggregator_result(&aggregator_of(message, way).state, &core_, &block, tick());
            return send_down(message);
        case INAGG_WAIT:
            return send_down(message);
        default:
            return send_up(message);
        }
    }

private:
    const Site site_;
    Counters &counters_;
    inagg_job core_;

    uint32_t ways() const { return std::min<uint32_t>(INAGG_AGGREGATOR_WAYS, std::bit_floor(switch_.aggregators().size())); }

    // Of the set in which the message's block may have one.
    Aggregator &aggregator_of(const Message &message, uint32_t way) {
        std::vector<Aggregator> &all = switch_.aggregators();
        return all[(message.block().epoch ^ way) % all.size()];
    }

    Aggregator &best_aggregator(const Message &message, const inagg_block &block) {
        const auto fit = [&](uint32_t way) {
            return inagg_aggregator_fit(&aggregator_of(message, way).state, &core_, &block, tick());
        };
        return aggregator_of(message, *std::ranges::max_element(std::views::iota(0u, ways()), {}, fit));
    }

    void contribute(Message &message, const inagg_block &block) {
        Aggregator &a = best_aggregator(message, block);
        const int verdict = inagg_aggregator_contribute(&a.state, &core_, message.ranks(), &block, message.flags(), tick());
        if (verdict < 0)
            return;
        switch (INAGG_VERDICT(verdict)) {
        case INAGG_COLLIDES:
            counters_.collisions++;
            message.set_flag(INAGG_F_COLLISION, true);
            return send_up(message);
        case INAGG_PASS_UP:
            return send_up(message);
        case INAGG_SEND_UP:
            return send_sum(a, message);
        default:
            fold(verdict, a.sum, message.elements);
            if (verdict & INAGG_COMPLETES)
                send_sum(a, message);
        }
    }

    void send_sum(const Aggregator &a, Message message) {
        counters_.partials += a.state.slot.seen != core_.all;
        message.set_type(INAGG_PARTIAL);
        message.set_contributors(a.state.slot.seen);
        message.elements = a.sum;
        for (inagg_flag flag : {INAGG_F_RESEND, INAGG_F_COLLISION, INAGG_F_CONGESTION})
            message.set_flag(flag, a.state.marks & flag);
        send_up(message);
    }

    void send_up(const Message &message) { switch_.send_to(*site_.parent, message); }

    void send_down(const Message &message) {
        const uint64_t ranks = message.has(INAGG_F_MULTICAST) ? core_.all : inagg_rank_bit(message.block().rank);
        for (const Site::Child &child : site_.children)
            if (child.ranks & ranks)
                switch_.send_to(child.node, message);
    }
};

class AtpServer : public Server {
public:
    AtpServer(Host &host, const Job &job, Counters &counters)
        : host_(host), job_(job), counters_(counters), slots_(2 * (job.core.slots + job.core.control_slots)),
          moves_(job.core.slots + job.core.control_slots), core_(job.core) {
        core_.all = inagg_all_ranks(job.size());
    }

    void receive(const Message &message) override {
        const inagg_block block = message.block();
        Slot &slot = slots_[message.slot() * 2 + message.version()];
        if (message.type() == INAGG_REQUEST)
            return answer(slot, message, block);
        counters_.at_server++;
        contribute(slot, message, block);
    }

private:
    struct Slot {
        inagg_slot state{};
        Elements sum{};
        uint16_t marks = 0, next = 0; // the aggregator of the position's next block
    };

    Host &host_;
    const Job &job_;
    Counters &counters_;
    std::vector<Slot> slots_;
    std::vector<uint32_t> moves_; // by position
    inagg_job core_;

    void contribute(Slot &slot, const Message &message, const inagg_block &block) {
        const bool is_new = !inagg_slot_holds(&slot.state, &block);
        const int verdict = inagg_raw_contribute(&slot.state, core_.all, message.ranks(), &block);
        if (verdict < 0)
            return;
        if (INAGG_VERDICT(verdict) == INAGG_REPLY)
            return send(result(slot, message), false);
        const uint16_t marks = message.flags() & (INAGG_F_COLLISION | INAGG_F_CONGESTION);
        slot.marks = static_cast<uint16_t>((is_new ? 0 : slot.marks) | marks);
        if (INAGG_VERDICT(verdict) == INAGG_TELL)
            return send(wait(slot, message, block), false);
        fold(verdict, slot.sum, message.elements);
        if (verdict & INAGG_COMPLETES)
            complete(slot, message);
    }

    // After a collision the position moves to another aggregator.
    void complete(Slot &slot, const Message &message) {
        const uint32_t position = message.slot();
        moves_[position] += (slot.marks & INAGG_F_COLLISION) != 0;
        slot.next = inagg_aggregator_index(job_.number, position, moves_[position]);
        send(result(slot, message), true);
    }

    void answer(const Slot &slot, const Message &message, const inagg_block &block) {
        const int verdict = inagg_slot_request(&slot.state, &block, message.has(INAGG_F_MULTICAST));
        if (verdict == INAGG_REPLY)
            send(result(slot, message), false);
        else if (verdict > 0)
            send(wait(slot, message, block), verdict == INAGG_TELL_ALL);
    }

    Message result(const Slot &slot, const Message &cause) const {
        Message message = cause;
        message.set_type(INAGG_RESULT);
        message.set_length(slot.state.elements);
        message.set_contributors(slot.state.seen);
        message.set_flag(INAGG_F_COLLISION, false);
        message.set_flag(INAGG_F_CONGESTION, slot.marks & INAGG_F_CONGESTION);
        message.set_cap(slot.next);
        message.elements = slot.sum;
        return message;
    }

    Message wait(const Slot &slot, const Message &cause, const inagg_block &block) const {
        counters_.waits++;
        Message message = cause;
        message.set_type(INAGG_WAIT);
        message.set_length(0);
        message.set_contributors(inagg_slot_seen(&slot.state, &block));
        return message;
    }

    void send(Message message, bool everyone) {
        message.set_flag(INAGG_F_MULTICAST, everyone);
        host_.send_to(host_.leaf(), Kind::inagg, message.packet());
    }
};

} // namespace

std::unique_ptr<Role> make_atp_role(Switch &place, const Job &job, const Site &site, Counters &counters) {
    return std::make_unique<AtpRole>(place, job, site, counters);
}

std::unique_ptr<Server> make_atp_server(Host &host, const Job &job, Counters &counters) {
    return std::make_unique<AtpServer>(host, job, counters);
}

} // namespace sim
