// SPDX-License-Identifier: BSD-2-Clause
// A leaf or a spine of canary (core/descriptor.h; docs/PROTOCOL.md §15).
#include "switch.hpp"

#include <inagg/core/leader.h>
#include <inagg/core/ways.h>

#include <ns3/simulator.h>

namespace sim {
namespace {

class CanaryRole : public Role {
public:
    CanaryRole(Switch &place, const Job &job, Counters &counters)
        : Role(place, job), counters_(counters), network_(place.network()), is_leaf_(network_.is_leaf(place.number())),
          at_leaf_(network_.shape.leaves), core_(job.core) {
        for (uint32_t rank = 0; rank < job.size(); rank++)
            at_leaf_[network_.leaf_index(job.hosts[rank])] |= inagg_rank_bit(rank);
        everyone_ = inagg_all_ranks(job.size());
        here_ = is_leaf_ ? at_leaf_[place.number() - network_.leaf(0)] : everyone_;
        core_.all = here_;
    }

    void receive(const Envelope &envelope, Message message) override {
        const inagg_block block = admit(message);
        const bool above = is_leaf_ && envelope.from >= network_.spine(0);
        switch (message.type()) {
        case INAGG_CONTRIBUTION:
        case INAGG_PARTIAL:
            return contribute(envelope, above, message, block);
        case INAGG_REQUEST:
            return forward(leader_of(message), message);
        case INAGG_RESULT:
            return message.has(INAGG_F_MULTICAST) ? spread_result(above, message, block) : forward(block.rank, message);
        case INAGG_BLOCK_FAILED:
            return message.has(INAGG_F_MULTICAST) ? spread_failure(above, message) : forward(block.rank, message);
        default:
            return forward(block.rank, message);
        }
    }

private:
    Counters &counters_;
    Network &network_;
    const bool is_leaf_;
    std::vector<uint64_t> at_leaf_;
    inagg_job core_;
    uint64_t everyone_ = 0, here_ = 0;
    inagg_patience patience_{};

    uint32_t leader_of(const Message &message) const { return inagg_leader_of(job_.size(), message.slot()); }
    uint32_t leaf_of(uint32_t rank) const { return network_.leaf_index(job_.hosts[rank]); }
    uint32_t index() const { return switch_.number() - network_.leaf(0); }

    uint64_t expected(uint32_t leader) const {
        if (!(here_ & inagg_rank_bit(leader)))
            return here_;
        return everyone_ & ~(is_leaf_ ? inagg_rank_bit(leader) : at_leaf_[leaf_of(leader)]);
    }

    Descriptor &descriptor_of(const Message &message, uint16_t attempt) {
        std::vector<Descriptor> &all = switch_.descriptors();
        const inagg_block block = message.block();
        const auto count = static_cast<uint32_t>(all.size());
        return all[inagg_descriptor_index(&core_, job_.number, message.slot(), &block, attempt, count, count)];
    }

    // ---- on the way to the leader ----

    void contribute(const Envelope &envelope, bool above, Message &message, const inagg_block &block) {
        if (message.has(INAGG_F_BYPASS))
            return forward(leader_of(message), message);
        Descriptor &d = descriptor_of(message, block.epoch);
        inagg_arrival arrival{};
        arrival.ranks = message.ranks();
        arrival.expected = expected(leader_of(message));
        arrival.now_ns = now_ns();
        const bool was_free = !(d.state.slot.flags & INAGG_SLOT_LIVE);
        const int verdict = inagg_descriptor_contribute(&d.state, &core_, &arrival, &block);
        if (was_free && d.state.slot.flags & INAGG_SLOT_LIVE)
            counters_.most_held = std::max(counters_.most_held, switch_.holds(1));
        if (verdict < 0)
            return;
        const int action = INAGG_VERDICT(verdict);
        if (verdict & INAGG_OPENS)
            d.ups = 0;
        if (action == INAGG_COLLIDES || action == INAGG_EVADES) {
            counters_.collisions += action == INAGG_COLLIDES;
            message.set_flag(INAGG_F_BYPASS, true);
            return forward(leader_of(message), message);
        }
        d.ups |= above ? 1u << (envelope.from - network_.spine(0)) : 0;
        fold(action, d.sum, message.elements);
        if (action == INAGG_PASS_UP) {
            counters_.stragglers += d.state.late;
            return forward(leader_of(message), message);
        }
        if (verdict & INAGG_COMPLETES)
            send_sum(d, message);
        else if (verdict & INAGG_OPENS)
            start_timer(message);
    }

    void start_timer(const Message &message) {
        const uint64_t wait = job_.patience_ns ? job_.patience_ns : inagg_patience_ns(&patience_);
        ns3::Simulator::Schedule(ns3::NanoSeconds(wait), &CanaryRole::expire, this, message);
    }

    void expire(Message cause) {
        inagg_block block = cause.block();
        Descriptor &d = descriptor_of(cause, block.epoch);
        if (!inagg_descriptor_expire(&d.state, &core_, &block))
            return;
        counters_.expired++;
        cause.set_flag(INAGG_F_RESEND, true);
        cause.set_rank(inagg_lowest_rank(d.state.slot.seen));
        send_sum(d, cause);
    }

    void send_sum(const Descriptor &d, Message message) {
        message.set_type(INAGG_PARTIAL);
        message.set_length(d.state.slot.elements);
        message.set_contributors(d.state.slot.seen);
        message.elements = d.sum;
        forward(leader_of(message), message);
    }

    uint32_t up_port(const Message &message) {
        return network_.up_port(switch_.number(), inagg_ways_turn(message.slot(), message.block().epoch, message.cap()));
    }

    // To where that rank is, by whatever way is short.
    void forward(uint32_t rank, const Message &message) {
        const uint32_t host = job_.hosts[rank];
        if (!is_leaf_)
            return switch_.send_to(network_.leaf(leaf_of(rank)), message);
        if (leaf_of(rank) == index())
            return switch_.send_to(host, message);
        send_up(up_port(message), message);
    }

    void send_up(uint32_t port, const Message &message) {
        switch_.send_through(port, network_.port(switch_.number(), port).peer, message);
    }

    // ---- what the leader says ----

    struct Children {
        uint64_t ranks = 0;
        uint32_t ups = 0;
    };

    // Who has come for the block: nobody needs to know it from now on.
    Children collect(const Message &message, inagg_block block) {
        Children all;
        const uint16_t last = block.epoch;
        for (uint16_t attempt = 0; attempt <= last; attempt++) {
            Descriptor &d = descriptor_of(message, attempt);
            block.epoch = attempt;
            if (!inagg_descriptor_free(&d.state, &core_, &block))
                continue;
            switch_.holds(-1);
            all.ranks |= d.state.children;
            all.ups |= d.ups;
            inagg_patience_learn(&patience_, &d.state);
        }
        return all;
    }

    uint32_t any_up(const Message &message) {
        if (!is_leaf_ || !network_.shape.spines)
            return 0;
        return 1u << (up_port(message) - network_.up_port_of(0));
    }

    bool is_blocked(uint32_t ups) {
        for (uint32_t spine = 0; spine < network_.shape.spines; spine++)
            if (ups >> spine & 1 && network_.is_long(switch_.number(), network_.up_port_of(spine)))
                return true;
        return false;
    }

    void spread_result(bool above, Message message, const inagg_block &block) {
        uint64_t named = message.contributors();
        Children to = collect(message, block);
        if (above) {
            named &= here_;
            to.ups = 0;
        } else {
            if (is_blocked(to.ups)) {
                named |= to.ranks & ~here_;
                to.ups = 0;
            }
            if ((named & ~here_) && !to.ups)
                to.ups = any_up(message);
        }
        message.set_contributors((to.ranks & here_) | named);
        spread_up(message, to.ups);
        spread_down(message);
    }

    void spread_failure(bool above, const Message &message) {
        if (!above && (everyone_ & ~here_ & ~message.contributors()))
            spread_up(message, any_up(message));
        spread_down(message);
    }

    // Whom no descriptor knows, the first spine is to find.
    void spread_up(const Message &message, uint32_t ups) {
        uint64_t others = everyone_ & ~here_;
        for (uint32_t spine = 0; spine < network_.shape.spines; spine++) {
            if (!(ups >> spine & 1))
                continue;
            Message copy = message;
            if (message.type() == INAGG_RESULT)
                copy.set_contributors(message.contributors() & others);
            others = 0;
            send_up(network_.up_port_of(spine), copy);
        }
    }

    void spread_down(const Message &message) {
        const uint64_t leader = inagg_rank_bit(leader_of(message));
        if (!is_leaf_) {
            for (uint32_t leaf = 0; leaf < at_leaf_.size(); leaf++)
                if (!(at_leaf_[leaf] & leader) && is_for(message, at_leaf_[leaf]))
                    switch_.send_to(network_.leaf(leaf), addressed(message, message.contributors() & at_leaf_[leaf]));
            return;
        }
        for (uint64_t ranks = here_ & ~leader; ranks; ranks &= ranks - 1) {
            const uint32_t rank = inagg_lowest_rank(ranks);
            if (is_for(message, inagg_rank_bit(rank)))
                switch_.send_to(job_.hosts[rank], addressed(message, everyone_));
        }
    }

    // A result names those who get it, a failure those who need not.
    static bool is_for(const Message &message, uint64_t ranks) {
        return ranks & (message.type() == INAGG_RESULT ? message.contributors() : ~message.contributors());
    }

    static Message addressed(Message message, uint64_t ranks) {
        if (message.type() == INAGG_RESULT)
            message.set_contributors(ranks);
        return message;
    }
};

} // namespace

std::unique_ptr<Role> make_canary_role(Switch &place, const Job &job, Counters &counters) {
    return std::make_unique<CanaryRole>(place, job, counters);
}

} // namespace sim
