// SPDX-License-Identifier: BSD-2-Clause
// A switch in a static tree (core/tree.h).
//
// Packets name up to 64 ranks (docs/PROTOCOL.md); a tree of 1,024 needs names of its own at each switch. So here bitmaps name a
// switch's children, 0 to 63, and below the root one bit stands for whatever is elsewhere. The switch renames what it passes on:
// that is all that the protocol would have to add. The rules are those of the core, as they are.
//
// panama adds floats in the order of core/merge.h; sums that wait lie in buffers that its jobs share (docs/PROTOCOL.md §14.4).
#include "switch.hpp"

#include <inagg/core/merge.h>
#include <inagg/core/tree.h>

#include <algorithm>
#include <utility>

namespace sim {
namespace {

constexpr uint64_t elsewhere = 1ULL << 63;

struct Copy {
    inagg_slot state{};
    Elements sum{};
    inagg_merge merge{};
    std::vector<Elements> waiting; // panama: by buffer, of which the first is the slot's own
    uint32_t borrowed = 0;         // of the switch's
};

class TreeRole : public Role {
public:
    TreeRole(Switch &place, const Job &job, const TreeSite &site, Counters &counters)
        : Role(place, job), site_(site), counters_(counters), memory_(2 * (job.core.slots + job.core.control_slots)) {
        const auto children = static_cast<uint32_t>(site.children.size());
        require(children && children <= (site.parent ? 63 : INAGG_MAX_RANKS),
                "switch {}: {} children of job {}: 1 to {} can be named", place.number(), children, job.number,
                site.parent ? 63 : INAGG_MAX_RANKS);
        place.panama_jobs() += job.is_float();
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
        if (job_.is_float())
            return merge(envelope, message, block);
        Copy &copy = copy_of(message);
        const int verdict = inagg_tree_contribute(&copy.state, &place_, inagg_rank_bit(block.rank), &block);
        if (verdict < 0)
            return;
        fold(verdict & ~INAGG_COMPLETES, copy.sum, message.elements);
        if (!(verdict & INAGG_COMPLETES))
            return repeat(envelope, message, block, verdict);
        finish(copy, message);
    }

    // The sum of all here is made.
    void finish(const Copy &copy, const Message &message) {
        if (copy.state.flags & INAGG_SLOT_SENT)
            return send_up(partial(copy, message), anyone);
        send_down(result(copy, message));
    }

    // ---- panama ----

    void merge(const Envelope &envelope, const Message &message, const inagg_block &block) {
        Copy &copy = copy_of(message);
        if (!has_buffer(message, block)) {
            counters_.unbuffered++;
            return;
        }
        if (!inagg_slot_holds(&copy.state, &block) && !inagg_slot_is_past(&copy.state, &block))
            begin_merge(copy);
        const int verdict = inagg_tree_admit(&copy.state, inagg_rank_bit(block.rank), &block);
        if (verdict > INAGG_COUNT)
            return repeat(envelope, message, block, verdict);
        if (verdict < 0 || !climb(copy, block.rank, message.elements))
            return;
        inagg_tree_added(&copy.state, &place_);
        finish(copy, message);
    }

    uint32_t children() const { return static_cast<uint32_t>(site_.children.size()); }

    // A packet has a buffer at hand before it climbs, in case it has to wait in one that is not the slot's.
    bool has_buffer(const Message &message, const inagg_block &block) {
        if (inagg_merge_buffers(children()) == 1 || switch_.free_buffers())
            return true;
        Copy &other = memory_[message.slot() * 2 + 1 - message.version()];
        if (!other.borrowed || !inagg_tree_overtaken(&other.state, &block))
            return false;
        begin_merge(other);
        return switch_.free_buffers() > 0;
    }

    void begin_merge(Copy &copy) {
        switch_.free_buffers() += std::exchange(copy.borrowed, 0);
        copy.merge = {};
        copy.waiting.resize(inagg_merge_buffers(children()));
    }

    void borrow(Copy &copy, uint32_t buffer, int count) {
        if (!buffer)
            return;
        copy.borrowed += static_cast<uint32_t>(count);
        switch_.free_buffers() -= static_cast<uint32_t>(count);
    }

    // True if it is the sum of all.
    bool climb(Copy &copy, uint32_t leaf, Elements sum) {
        inagg_climber at{leaf, 0};
        uint32_t buffer = 0;
        int step;
        while ((step = inagg_merge_climb(&copy.merge, &at, children(), &buffer)) == INAGG_CLIMB_ADD) {
            sum = add_floats(copy.waiting[buffer], sum);
            borrow(copy, buffer, -1);
        }
        if (step == INAGG_CLIMB_DONE) {
            copy.sum = sum;
            return true;
        }
        borrow(copy, buffer, 1);
        copy.waiting[buffer] = sum;
        return false;
    }

    // As many blocks of a job as there is memory for (docs/PROTOCOL.md §14.4); 0: no cap.
    uint16_t own_cap() const {
        const uint32_t of_a_block = inagg_merge_buffers(children()) - 1;
        if (!job_.is_float() || !of_a_block)
            return 0;
        return static_cast<uint16_t>(std::min(switch_.buffers() / (switch_.panama_jobs() + 1) / of_a_block, 0xffffu));
    }

    // ---- whatever is added ----

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
        const int verdict =
            restore ? inagg_tree_restore(&copy.state, &place_, &block) : inagg_tree_result(&copy.state, &place_, &block);
        if (verdict == INAGG_PASS_UP)
            return send_up(message, asker(envelope));
        if (verdict < 0)
            return;
        counters_.restores += restore;
        if (job_.is_float())
            begin_merge(copy); // what waits for a sum that is here, waits in vain
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
        message.set_flag(INAGG_F_CONGESTION, copy.state.marks & INAGG_F_CONGESTION);
        message.set_cap(inagg_smaller_cap(copy.state.cap, own_cap()));
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
