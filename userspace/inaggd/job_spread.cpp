// SPDX-License-Identifier: BSD-2-Clause
// Jobs with canary: all parents of a switch know them, and packets go by any (PROTOCOL §15.5). As in
// job_moves.cpp, tend() looks at what there is, and says everything again until it has worked.
#include "job_book.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace inaggd {
namespace {

using namespace std::chrono_literals;
using Kind = Outcome::Change::Kind;
using Verdict = Outcome::Verdict;

// Ranks of it are behind other switches.
bool needs_parents(const JobState &job) { return job.record.all != inagg_all_ranks(job.record.size); }

} // namespace

unsigned JobBook::up_count() const { return static_cast<unsigned>(std::min<size_t>(policy_.parents.size(), INAGG_MAX_UPS)); }

// Which of the parents has sent this.
std::optional<unsigned> JobBook::up_index(const inagg_event &event) const {
    const auto parents = policy_.parents.begin(), end = parents + up_count();
    const auto found = std::find(parents, end, neighbour_of(event));
    return found == end ? std::nullopt : std::optional(static_cast<unsigned>(found - parents));
}

// There is a link to that parent, and it understands this job's packets.
bool JobBook::can_be_asked(const JobState &job, unsigned up) const {
    const Neighbour &parent = policy_.parents[up];
    return !down_.contains(parent.port) && parent.address.family == job.uplink.family;
}

// The event is about the job as it is here, and a rank that is.
bool JobBook::is_run_of(const JobState &job, const inagg_event &event) const {
    return job.record.generation == event.generation && event.rank < job.record.size && has_joined(job.members[event.rank]) &&
           job.members[event.rank].nonce == event.join.nonce;
}

// Where ranks that begin the next run are to ask: where this one is known, if anywhere.
std::optional<uint16_t> JobBook::next_home(uint16_t number) const {
    const unsigned first = position_of(number), count = static_cast<unsigned>(policy_.parents.size());
    for (unsigned position = first; position < first + count; position++)
        if (jobs_.at(number).up >> ((number + position) % count) & 1)
            return static_cast<uint16_t>(position);
    return linked_position(number, first);
}

// By its packets. True: the parent was elsewhere before.
bool JobBook::learn_up_port(unsigned up, const inagg_event &event) {
    inagg_uplink port{};
    port.ifindex = event.ifindex;
    port.family = event.family;
    std::copy_n(event.mac, sizeof port.mac, port.mac);
    std::copy_n(event.own_mac, sizeof port.own_mac, port.own_mac);
    std::copy_n(event.address, event.family == 4 ? 4 : 16, port.address);
    const bool changed = std::memcmp(&port, &up_ports_[up], sizeof port) != 0;
    up_ports_[up] = port;
    return changed;
}

// It is where the policy has it: with other options than the last agent's it may not be.
bool JobBook::is_learnt(unsigned up) const {
    const inagg_uplink &port = up_ports_[up];
    const Neighbour &parent = policy_.parents[up];
    return port.ifindex == parent.port && port.family == parent.address.family &&
           std::equal(parent.address.bytes.begin(), parent.address.bytes.end(), port.address);
}

void JobBook::note_up(uint16_t number, JobState &job, unsigned up, bool knows, const std::string &why, Outcome &outcome) {
    Above &above = job.above[up];
    if (above.knows != knows && (!knows || above.is_lost))
        outcome.notes.push_back(
            fmt::format("job {}: {} by {}: {}", number, knows ? "again" : "no longer", policy_.parents[up].address.text(), why));
    above.is_lost = !knows && (above.knows || above.is_lost);
    above.knows = knows;
    above.silent.reset();
}

void JobBook::refresh_up(uint16_t number, JobState &job, Outcome &outcome, Time now) {
    uint8_t up = 0;
    for (unsigned i = 0; i < up_count(); i++)
        if (job.above[i].knows)
            up |= static_cast<uint8_t>(1 << i);
    if (up == job.up)
        return;
    job.up = up;
    job.changed = now;
    outcome.verdict = Verdict::done;
    outcome.changes.push_back({Kind::route, number, job.record});
}

// To a parent that does not know the job: all ranks that are here. To others: one, which they answer if they
// still do.
void JobBook::announce(uint16_t number, JobState &job, unsigned up, bool all, Outcome &outcome, Time now) {
    job.above[up].told = now;
    for (uint16_t rank = 0; rank < job.record.size; rank++)
        if (has_joined(job.members[rank])) {
            outcome.messages.push_back(adoption(number, job, rank, policy_.parents[up], 0));
            if (!all)
                return;
        }
}

void JobBook::tend_parents(uint16_t number, JobState &job, Outcome &outcome, Time now) {
    for (unsigned up = 0; up < up_count(); up++) {
        Above &above = job.above[up];
        if (!can_be_asked(job, up)) {
            note_up(number, job, up, false, "the link is down", outcome);
            continue;
        }
        if (above.knows && !is_learnt(up))
            note_up(number, job, up, false, "it is elsewhere", outcome);
        if (above.silent && now - *above.silent > outage)
            note_up(number, job, up, false, "it does not answer", outcome);
        if (!above.knows && now - above.told >= tend_soon) {
            announce(number, job, up, true, outcome, now);
        } else if (above.knows && now - above.told >= tend_late) {
            announce(number, job, up, false, outcome, now);
            above.silent = above.silent.value_or(now);
        }
    }
    refresh_up(number, job, outcome, now);
    if (!job.up && needs_parents(job) && now - job.changed > outage) {
        outcome.notes.push_back(fmt::format("job {}: no parent left that knows all its ranks; those here are told", number));
        erase(number, outcome, INAGG_R_UNLINKED);
    }
}

// Since when some parent, which there is a link to, does not know the job.
std::optional<Time> JobBook::lacks_parents(const JobState &job) const {
    for (unsigned up = 0; up < up_count(); up++)
        if (can_be_asked(job, up) && !job.above[up].knows)
            return job.changed;
    return std::nullopt;
}

// CONFIG of any parent.
Outcome JobBook::known_above(unsigned up, const inagg_event &event, JobState &job, Time now) {
    Outcome outcome{.detail = "knows the job"};
    if (!can_be_asked(job, up))
        return outcome; // from before the link failed
    if (learn_up_port(up, event))
        outcome.changes.push_back({Kind::route, event.job, job.record});
    note_up(event.job, job, up, true, "it knows all ranks", outcome);
    job.above[up].refusal = INAGG_R_NONE;
    refresh_up(event.job, job, outcome, now);
    return outcome;
}

// It asks who is there.
Outcome JobBook::lacking_above(unsigned up, const inagg_event &event, JobState &job, Time now) {
    Outcome outcome{.detail = "lacks ranks of the job"};
    note_up(event.job, job, up, false, "it lacks ranks of the job", outcome);
    refresh_up(event.job, job, outcome, now);
    return outcome;
}

// Others may take what this one does not, but for a run that has ended.
Outcome JobBook::refused_by_one(unsigned up, const inagg_event &event, JobState &job, Time now) {
    const auto reason = static_cast<inagg_reason>(event.reason);
    Outcome outcome{.detail = reason_name(reason)};
    if (reason == INAGG_R_REPLACED || reason == INAGG_R_JOB) {
        outcome.verdict = Verdict::done;
        outcome.detail = "the parent has ended the job: " + reason_name(reason);
        erase(event.job, outcome, reason, refuser_of(event));
        return outcome;
    }
    if (std::exchange(job.above[up].refusal, reason) != reason)
        outcome.notes.push_back(
            fmt::format("job {}: {} refuses it: {}", event.job, policy_.parents[up].address.text(), reason_name(reason)));
    note_up(event.job, job, up, false, reason_name(reason), outcome);
    refresh_up(event.job, job, outcome, now);
    return outcome;
}

// All parents hear that the rank goes. Those that do not, because the link is down, notice that nobody has
// the job any more.
void JobBook::take_leave(uint16_t number, const JobState &job, uint16_t rank, Outcome &outcome) const {
    if (!is_spread(job.record.algorithm) || !policy_.has_parent())
        return;
    inagg_join join{};
    join.nonce = job.members[rank].nonce;
    join.size = htobe16(job.record.size);
    join.flags = INAGG_JOIN_TREE;
    for (unsigned up = 0; up < up_count(); up++)
        if (can_be_asked(job, up))
            outcome.messages.push_back(
                {policy_.parents[up].address, INAGG_LEAVE, number, rank, job.record.generation, INAGG_R_NONE, join});
}

// At a parent. Ranks behind a link that is down are not here; the switches that others are behind are told,
// because packets that came here for those would be lost, and they ask again until all are back.
void JobBook::tend_spread(uint16_t number, JobState &job, Outcome &outcome, Time now) {
    bool lost = false;
    for (inagg_member &member : job.members)
        if (has_joined(member) && member.flags & INAGG_MEMBER_SWITCH && down_.contains(member.ifindex)) {
            empty_seat(member);
            lost = true;
        }
    if (lost) {
        job.seated = now;
        outcome.notes.push_back(fmt::format("job {}: the link to some of its ranks is down", number));
        close_if_empty(number, job, outcome);
        if (!jobs_.contains(number))
            return;
    }
    if (joined_count(job.members) && missing_count(job))
        tell_where(number, job, job.uplink.position, outcome);
}

// No switch below has it any more, as far as can be seen from here: they ask every tend_late. Their agents
// may be away for a while, and their packets still come.
bool JobBook::is_abandoned(const JobState &job, Time now) const {
    const bool has_own = std::any_of(job.members.begin(), job.members.end(), [](const inagg_member &member) {
        return has_joined(member) && !(member.flags & INAGG_MEMBER_SWITCH);
    });
    if (has_own || !joined_count(job.members))
        return false;
    const Time last = missing_count(job) ? job.seated : std::max(job.announced, job.heard);
    return now - last > policy_.join;
}

// Without a word, and so that it may come back: whoever still has it says so.
void JobBook::drop(uint16_t number, JobState &job, Outcome &outcome) {
    outcome.notes.push_back(
        fmt::format("job {}: no switch below has said for {} s that it has it", number, policy_.join.count()));
    if (job.record.keep) {
        std::for_each(job.members.begin(), job.members.end(), empty_seat);
        job.runs = false;
        outcome.changes.push_back({Kind::renew, number, job.record});
    } else {
        outcome.changes.push_back({Kind::remove, number, job.record});
        jobs_.erase(number);
    }
}

} // namespace inaggd
