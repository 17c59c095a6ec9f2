// SPDX-License-Identifier: BSD-2-Clause
// A switch in a static tree (core/tree.h).
//
// Packets name up to 64 ranks (docs/PROTOCOL.md); a tree of 1,024 needs names of its own at each switch. So here bitmaps name a
// switch's children, 0 to 63, and below the root one bit stands for whatever is elsewhere. The switch renames what it passes on:
// that is all that the protocol would have to add. The rules are those of the core, as they are.
#include "switch.hpp"

#include <inagg/core/tree.h>

namespace sim {
namespace {

constexpr uint64_t elsewhere = 1ULL << 63;

struct Copy {
    inagg_slot state{};
    Elements sum{};
};

class TreeRole : public Role {
public:
    TreeRole(Switch &place, const Job &job, const TreeSite &site, Counters &counters)
        : Role(place, job), site_(site), counters_(counters), memory_(2 * (job.core.slots + job.core.control_slots)) {
        const auto children = static_cast<uint32_t>(site.children.size());
        require(children && children <= (site.parent ? 63 : INAGG_MAX_RANKS), "switch {}: {} children of job {}: 1 to {} can be named",
                place.number(), children, job.number, site.parent ? 63 : INAGG_MAX_RANKS);
        place_.here = inagg_all_ranks(children);
        place_.everyone = place_.here | (site.parent ? elsewhere : 0);
    }

    void receive(const Envelope &envelope, Message message) override {
        const inagg_block block = admit(message);
        switch (message.type()) {
        case INAGG_CONTRIBUTION:
        case INAGG_PARTIAL:
            return contribute(envelope, message, block);
        case INAGG_RESTORE:
        case INAGG_RESULT:
            return take(envelope, message, block);
        case INAGG_WAIT:
            return pass_wait(envelope, message, block);
        default:
            return request(envelope, message, block);
        }
    }

private:
    const TreeSite site_;
    Counters &counters_;
    std::vector<Copy> memory_;
    inagg_tree place_{};

    Copy &copy_of(const Message &message) { return memory_[message.slot() * 2 + message.version()]; }

    // The host that an answer is for in the end.
    static uint16_t asker(const Envelope &envelope) { return envelope.asker == anyone ? envelope.from : envelope.asker; }

    void contribute(const Envelope &envelope, const Message &message, const inagg_block &block) {
        Copy &copy = copy_of(message);
        const int verdict = inagg_tree_contribute(&copy.state, &place_, inagg_rank_bit(block.rank), &block);
        if (verdict < 0)
            return;
        fold(verdict & ~INAGG_COMPLETES, copy.sum, message.elements);
        if (!(verdict & INAGG_COMPLETES))
            return repeat(envelope, message, block, verdict);
        if (copy.state.flags & INAGG_SLOT_SENT)
            return send_up(partial(copy, message), anyone);
        send_down(result(copy, message));
    }

    void repeat(const Envelope &envelope, const Message &message, const inagg_block &block, int verdict) {
        const Copy &copy = copy_of(message);
        if (verdict == INAGG_REPLY)
            answer(envelope, block.rank, result(copy, message));
        else if (verdict == INAGG_TELL)
            answer(envelope, block.rank, wait(copy, message, block, false));
        else if (verdict == INAGG_SEND_UP)
            send_up(partial(copy, message), asker(envelope));
    }

    void request(const Envelope &envelope, const Message &message, const inagg_block &block) {
        const Copy &copy = copy_of(message);
        const int verdict = inagg_tree_request(&copy.state, &block, message.has(INAGG_F_MULTICAST));
        if (verdict == INAGG_TELL_ALL)
            send_down(wait(copy, message, block, true));
        else if (verdict == INAGG_PASS_UP)
            send_up(message, asker(envelope));
        else if (verdict > 0)
            repeat(envelope, message, block, verdict);
    }

    // A RESTORE from below, or the parent's RESULT.
    void take(const Envelope &envelope, const Message &message, inagg_block block) {
        Copy &copy = copy_of(message);
        const bool restore = message.type() == INAGG_RESTORE;
        block.contributors = place_.everyone; // only a whole sum is a RESULT
        const int verdict = restore ? inagg_tree_restore(&copy.state, &place_, &block)
                                    : inagg_tree_result(&copy.state, &place_, &block);
        if (verdict == INAGG_PASS_UP)
            return send_up(message, asker(envelope));
        if (verdict < 0)
            return;
        counters_.restores += restore;
        fold(verdict & ~INAGG_COMPLETES, copy.sum, message.elements);
        send_down(result(copy, message));
    }

    void pass_wait(const Envelope &envelope, Message message, const inagg_block &block) {
        const uint64_t above = message.contributors(), mine = inagg_rank_bit(site_.number);
        const uint64_t here = (above & mine ? place_.here : 0) | (above & ~mine ? elsewhere : 0);
        message.set_contributors(inagg_tree_wait(&copy_of(message).state, &block, here));
        if (message.has(INAGG_F_MULTICAST))
            return send_down(message);
        switch_.send_to(envelope.asker, message);
    }

    Message result(const Copy &copy, const Message &cause) const {
        Message message = cause;
        message.set_type(INAGG_RESULT);
        message.set_length(copy.state.elements);
        message.set_contributors(copy.state.seen);
        message.elements = copy.sum;
        return message;
    }

    Message partial(const Copy &copy, const Message &cause) const {
        Message message = result(copy, cause);
        message.set_type(INAGG_PARTIAL);
        return message;
    }

    Message wait(const Copy &copy, const Message &cause, const inagg_block &block, bool everyone) {
        counters_.waits++;
        Message message = cause;
        message.set_type(INAGG_WAIT);
        message.set_length(0);
        message.set_flag(INAGG_F_MULTICAST, everyone);
        message.set_contributors(inagg_tree_seen(&copy.state, &place_, &block));
        return message;
    }

    void send_up(Message message, uint16_t asker) {
        require(site_.parent.has_value(), "the root of job {} has nobody above it", job_.number);
        message.set_rank(site_.number);
        switch_.send_to(*site_.parent, message, asker);
    }

    void send_down(const Message &message) {
        for (uint32_t child : site_.children)
            switch_.send_to(child, message);
    }

    void answer(const Envelope &envelope, uint32_t child, const Message &message) {
        switch_.send_to(site_.children[child], message, asker(envelope));
    }
};

} // namespace

std::unique_ptr<Role> make_tree_role(Switch &place, const Job &job, const TreeSite &site, Counters &counters) {
    return std::make_unique<TreeRole>(place, job, site, counters);
}

} // namespace sim
