// SPDX-License-Identifier: BSD-2-Clause
#include "gate.hpp"

#include "error.hpp"
#include "messages.hpp"

#include <endian.h>
#include <sys/random.h>

#include <cstring>

namespace inaggd {
namespace {

using Verdict = Outcome::Verdict;

int64_t period_of(Time now) { return now.time_since_epoch() / challenge_period; }

// Its nonce leaves once, so a copy of it does nothing. A rank that changes roots may come back with it.
bool needs_no_challenge(const inagg_event &event) { return event.type == INAGG_LEAVE && !(event.join.flags & INAGG_JOIN_MOVED); }

} // namespace

inagg_mac_key random_key() {
    inagg_mac_key key;
    if (getrandom(&key, sizeof key, 0) != sizeof key)
        throw Error("getrandom: {}", system_text(errno));
    return key;
}

Gate::Gate(Keys keys) : Gate(std::move(keys), random_key()) {}

std::optional<inagg_mac_key> Gate::key(uint16_t job) const {
    const auto own = own_.find(job);
    if (own == own_.end())
        return keys_.find(job);
    return inagg_mac_key_is_set(&own->second) ? std::optional(own->second) : std::nullopt;
}

void Gate::need_key(uint16_t job, const inagg_mac_key &key) const {
    need_same(job, key, this->key(job).value_or(inagg_mac_key{}));
}

void Gate::need_same(uint16_t job, const inagg_mac_key &key, const inagg_mac_key &own) {
    if (own.word[0] != key.word[0] || own.word[1] != key.word[1])
        throw Error("job {} exists with another key, or none; remove it first: inaggctl job del {}", job, job);
}

void Gate::forget_gone(const Outcome &outcome, const JobBook &book) {
    for (const Outcome::Change &change : outcome.changes) {
        if (book.jobs().contains(change.job))
            continue;
        own_.erase(change.job);
        std::erase_if(learnt_, [&](const auto &entry) { return entry.first.first == change.job; });
    }
}

std::optional<Outcome> Gate::objection(const inagg_event &event, Time now) {
    const bool is_from_above = event.type == INAGG_CONFIG || event.type == INAGG_REFUSED;
    return is_from_above ? objection_above(event) : objection_below(event, now);
}

std::optional<Outcome> Gate::objection_below(const inagg_event &event, Time now) const {
    const auto own = key(event.job);
    const bool is_join = event.type == INAGG_JOIN;
    if (!own && is_join && inagg_hdr_proof(&event.hdr))
        return refused(INAGG_R_KEY, "it has a key, and this job none here (--key-file)");
    if (!own)
        return std::nullopt;
    if (!inagg_hdr_is_proven(&event.hdr, &event.join, &*own)) {
        const char *why = inagg_hdr_proof(&event.hdr) ? "it has another key" : "it has no key";
        return is_join ? refused(INAGG_R_KEY, why) : ignored(why);
    }
    if (needs_no_challenge(event) || is_new(event, now))
        return std::nullopt;
    return Outcome{.verdict = Verdict::put_off, .reason = INAGG_R_CHALLENGE};
}

// A parent that has no key, where this switch has one, is as good as none.
std::optional<Outcome> Gate::objection_above(const inagg_event &event) {
    const auto own = key(event.job);
    if (!own)
        return std::nullopt;
    if (!inagg_hdr_is_proven(&event.hdr, &event.join, &*own))
        return ignored("it does not prove that the parent knows the job's key");
    if (event.type != INAGG_REFUSED || event.reason != INAGG_R_CHALLENGE)
        return std::nullopt;
    learnt_[{event.job, sender_of(event)}] = inagg_hdr_challenge(&event.hdr);
    return ignored("a challenge");
}

// Nothing is kept of it, so nobody can fill a table. It is bound to where the sender is: what was said from there means nothing
// from elsewhere.
uint64_t Gate::challenge_of(const inagg_event &event, int64_t period) const {
    struct {
        uint8_t address[16];
        uint32_t ifindex;
        uint16_t family, job;
        int64_t period;
    } bound{.address = {}, .ifindex = event.ifindex, .family = event.family, .job = event.job, .period = period};
    static_assert(sizeof bound == 32); // without padding
    std::memcpy(bound.address, event.address, sizeof bound.address);
    const uint64_t challenge = inagg_siphash(&secret_, &bound, sizeof bound);
    return challenge ? challenge : 1; // 0: none yet
}

uint64_t Gate::challenge(const inagg_event &event, Time now) const { return challenge_of(event, period_of(now)); }

bool Gate::is_new(const inagg_event &event, Time now) const {
    const uint64_t said = inagg_hdr_challenge(&event.hdr);
    const int64_t period = period_of(now);
    return said == challenge_of(event, period) || said == challenge_of(event, period - 1);
}

void Gate::prove(inagg_hdr &header, const inagg_join &body, const Address &to) const {
    const uint16_t job = be16toh(header.job);
    const uint8_t type = inagg_hdr_type(&header);
    const auto own = key(job);
    // Whoever asks without the key could show others a proof that it has been given.
    const bool is_to_stranger = type == INAGG_REFUSED && header.slot == htobe32(INAGG_R_KEY);
    if (!own || is_to_stranger)
        return;
    if (type == INAGG_JOIN || type == INAGG_LEAVE) {
        const auto learnt = learnt_.find({job, to});
        inagg_hdr_set_challenge(&header, learnt == learnt_.end() ? 0 : learnt->second);
    }
    inagg_hdr_prove(&header, &body, &*own);
}

} // namespace inaggd
