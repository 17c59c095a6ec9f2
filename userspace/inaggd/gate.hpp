// SPDX-License-Identifier: BSD-2-Clause
// What is said of a job with a key must be proven by it, and be new: docs/PROTOCOL.md §9.1. The agents ask here before they
// ask the book, and what they send is proven here.
#pragma once

#include "job_book.hpp"
#include "keys.hpp"

#include <map>
#include <optional>
#include <utility>

namespace inaggd {

// How long a challenge can be used is once to twice this.
inline constexpr std::chrono::seconds challenge_period{30};

// That nobody else knows.
inagg_mac_key random_key();

class Gate {
public:
    // Without keys it lets all pass that needs none.
    Gate() : Gate(Keys{}) {}
    explicit Gate(Keys keys);
    Gate(Keys keys, const inagg_mac_key &secret) : keys_(std::move(keys)), secret_(secret) {}

    std::optional<inagg_mac_key> key(uint16_t job) const;
    // What the keys' file says.
    std::optional<inagg_mac_key> listed(uint16_t job) const { return keys_.find(job); }
    // That of a job that is here, whatever the keys' file says; all zero: it has none.
    void set_key(uint16_t job, const inagg_mac_key &key) { own_[job] = key; }
    // Throws Error if the job, which is here, has another.
    void need_key(uint16_t job, const inagg_mac_key &key) const;
    // Likewise; all zero: none.
    static void need_same(uint16_t job, const inagg_mac_key &key, const inagg_mac_key &own);
    // Jobs that this outcome has removed. Their ranks have been told.
    void forget_gone(const Outcome &outcome, const JobBook &book);

    // Why the book is not to hear of this; nothing: it is.
    std::optional<Outcome> objection(const inagg_event &event, Time now);
    // What its sender is to prove that it has heard.
    uint64_t challenge(const inagg_event &event, Time now) const;
    // All of the header is written but the checksums. `to`: of a JOIN or LEAVE, the parent.
    void prove(inagg_hdr &header, const inagg_join &body, const Address &to) const;

private:
    std::optional<Outcome> objection_below(const inagg_event &event, Time now) const;
    std::optional<Outcome> objection_above(const inagg_event &event);
    uint64_t challenge_of(const inagg_event &event, int64_t period) const;
    bool is_new(const inagg_event &event, Time now) const;

    Keys keys_;
    inagg_mac_key secret_;
    std::map<uint16_t, inagg_mac_key> own_;
    std::map<std::pair<uint16_t, Address>, uint64_t> learnt_; // the latest challenge of a parent, by job
};

} // namespace inaggd
