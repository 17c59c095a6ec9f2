// SPDX-License-Identifier: BSD-2-Clause
// Jobs whose links fail go on at another root: PROTOCOL §12.2. Nothing here depends on a message that may be lost or on an
// event that may be missed: tend() looks at the links as they are, and says everything again until it has worked.
#include "job_book.hpp"

#include <endian.h>
#include <fmt/format.h>

#include <algorithm>

namespace inaggd {
namespace {

using namespace std::chrono_literals;
using Kind = Outcome::Change::Kind;
using Verdict = Outcome::Verdict;

uint8_t moved_flags(const inagg_job &record) {
    return static_cast<uint8_t>(INAGG_JOIN_TREE | INAGG_JOIN_MOVED | (record.flags & shape_flags));
}

// At a root: the job's position, as far as it knows.
uint16_t latest_position(const JobState &job) { return std::max(job.uplink.position, job.gone_to); }

// Some of its switches have looked for another root, and the others may not know.
bool is_gathering(const JobState &job) { return latest_position(job) && missing_count(job); }

} // namespace

Outcome JobBook::link(uint32_t ifindex, bool up, Time now) {
    const bool changed = up ? down_.erase(ifindex) : down_.try_emplace(ifindex, now).second;
    if (changed && up) // they may look at all parents once more
        for (auto &[number, job] : jobs_)
            job.round = position_of(number);
    return changed ? tend(now) : Outcome{};
}

Outcome JobBook::tend(Time now) {
    Outcome outcome{.verdict = Verdict::done};
    const bool hello = now >= next_hello_;
    if (hello)
        next_hello_ = now + tend_late;
    std::vector<uint16_t> numbers; // jobs may go on the way
    for (const auto &[number, job] : jobs_)
        if (needs_no_root(job.record.algorithm))
            numbers.push_back(number);
    for (uint16_t number : numbers) {
        JobState &job = jobs_.at(number);
        if (is_spread(job.record.algorithm) && policy_.has_parent())
            tend_parents(number, job, outcome, now);
        else if (job.runs && !policy_.has_parent())
            tend_spread(number, job, outcome, now);
        else if (job.uplink.ifindex && policy_.has_parent())
            tend_below(number, job, outcome, now);
        else if (!policy_.children.empty() && !policy_.has_parent())
            tend_root(number, job, hello, outcome, now);
    }
    return outcome;
}

std::chrono::milliseconds JobBook::tend_interval(Time now) const {
    auto interval = tend_late;
    for (const auto &[number, job] : jobs_) {
        std::optional<Time> since;
        if (!needs_no_root(job.record.algorithm))
            continue;
        if (is_spread(job.record.algorithm) && policy_.has_parent())
            since = lacks_parents(job);
        else if (job.runs && !policy_.has_parent())
            since = missing_count(job) ? std::optional(job.seated) : std::nullopt;
        else if (!policy_.has_parent())
            since = is_gathering(job) ? job.seated : hopeless(job, now);
        else if (job.uplink.ifindex)
            since = is_moving(number, job) ? job.answered : in_trouble(number, job, now);
        if (since)
            interval = std::min(interval, now - *since < patience ? tend_soon : tend_later);
    }
    return interval;
}

uint16_t JobBook::position_of(uint16_t number) const {
    auto found = positions_.find(number);
    return found == positions_.end() ? 0 : found->second;
}

bool JobBook::is_asked_for(uint16_t number) const {
    auto first = asked_.lower_bound({number, 0});
    return first != asked_.end() && first->first.first == number;
}

// The first position from this one on, all parents once, that there is a link to.
std::optional<uint16_t> JobBook::linked_position(uint16_t number, unsigned first) const {
    for (unsigned position = first; position < first + policy_.parents.size(); position++)
        if (!down_.contains(policy_.parent_of(number, position).port))
            return static_cast<uint16_t>(position);
    return std::nullopt;
}

// It has a next parent that has not taken it over yet, be it the one that it had.
bool JobBook::is_moving(uint16_t number, const JobState &job) const {
    if (!job.uplink.ifindex || !can_move(job.record.algorithm))
        return false;
    const Neighbour &next = parent_of(number);
    return job.uplink.position != position_of(number) || job.uplink.ifindex != next.port ||
           !std::equal(next.address.bytes.begin(), next.address.bytes.end(), job.uplink.address);
}

// When it left the root that it had.
Time JobBook::left_at(uint16_t number, const JobState &job, Time now) const { return is_moving(number, job) ? job.left : now; }

bool JobBook::adopts(const inagg_event &config, const JobState &job) const {
    return is_moving(config.job, job) && job.record.generation == config.generation && config.rank < job.record.size &&
           has_joined(job.members[config.rank]) && job.members[config.rank].nonce == config.join.nonce;
}

// The ranks here go to the first root from that position on that there is a link to, and leave where they were. False:
// there is none but those that have been tried in this round.
bool JobBook::go_on_from(uint16_t number, JobState &job, unsigned position, const std::string &why, Outcome &outcome, Time now) {
    const auto next = linked_position(number, position);
    if (!next || *next > job.round + policy_.parents.size() ||
        policy_.parent_of(number, *next).address.family != job.uplink.family)
        return false;
    const Neighbour from = parent_of(number);
    job.left = left_at(number, job, now);
    positions_[number] = *next;
    const Neighbour &to = parent_of(number);
    if (from != to)
        leave_root(number, from, outcome);
    outcome.notes.push_back(
        fmt::format("job {}: goes from the root {} to {}: {}", number, from.address.text(), to.address.text(), why));
    job.answered = now;
    ask_for_adoption(number, job, outcome);
    return true;
}

void JobBook::ask_for_adoption(uint16_t number, const JobState &job, Outcome &outcome) const {
    for (uint16_t rank = 0; rank < job.record.size; rank++) {
        if (has_joined(job.members[rank]))
            outcome.messages.push_back(adoption(number, job, rank, parent_of(number), position_of(number)));
    }
}

// The JOIN that makes a job known to a parent that has not set it up.
Message JobBook::adoption(uint16_t number, const JobState &job, uint16_t rank, const Neighbour &to, uint16_t position) const {
    Message message = repeated_join(number, job, rank);
    message.to = to.address;
    message.join.flags = moved_flags(job.record);
    message.join.position = htobe16(position);
    message.join.slots = htobe32(job.record.slots);
    message.join.control_slots = htobe32(job.record.control_slots);
    message.again = false;
    return message;
}

// The JOIN of a rank that has joined, to the job's parent, which tells whether it has it still.
Message JobBook::repeated_join(uint16_t number, const JobState &job, uint16_t rank) const {
    inagg_join join{};
    join.nonce = job.members[rank].nonce;
    join.size = htobe16(job.record.size);
    join.elements = htobe16(job.record.elements);
    join.receive_port = htobe16(INAGG_PORT);
    join.algorithm = job.record.algorithm;
    join.flags = INAGG_JOIN_TREE | (job.record.flags & INAGG_JOIN_BIG_ENDIAN);
    join.position = htobe16(position_of(number));
    return {parent_of(number).address, INAGG_JOIN, number, rank, job.record.generation, INAGG_R_NONE, join, true};
}

// If it still has the ranks that are here, or have asked to be, it is told that they go on elsewhere, and where.
void JobBook::leave_root(uint16_t number, const Neighbour &root, Outcome &outcome) const {
    const auto job = jobs_.find(number);
    const uint16_t generation = job == jobs_.end() ? 0 : job->second.record.generation;
    auto leave = [&](uint16_t rank, uint64_t nonce) {
        inagg_join join{};
        join.nonce = nonce;
        join.flags = INAGG_JOIN_TREE | INAGG_JOIN_MOVED;
        join.position = htobe16(position_of(number));
        outcome.messages.push_back({root.address, INAGG_LEAVE, number, rank, generation, INAGG_R_NONE, join});
    };
    if (job != jobs_.end())
        for (uint16_t rank = 0; rank < job->second.record.size; rank++)
            if (const inagg_member &member = job->second.members[rank]; has_joined(member))
                leave(rank, member.nonce);
    for (auto asked = asked_.lower_bound({number, 0}); asked != asked_.end() && asked->first.first == number; ++asked)
        leave(asked->first.second, asked->second.event.join.nonce);
}

// Since when the job's root is out of reach: no link, or no sign of life of one that is to take it over.
std::optional<Time> JobBook::in_trouble(uint16_t number, const JobState &job, Time now) const {
    if (auto down = down_.find(parent_of(number).port); down != down_.end())
        return down->second;
    if (is_moving(number, job) && now - job.answered > outage)
        return job.answered;
    return std::nullopt;
}

void JobBook::tend_below(uint16_t number, JobState &job, Outcome &outcome, Time now) {
    const auto since = in_trouble(number, job, now);
    if (since) {
        const char *why = down_.contains(parent_of(number).port) ? "the link is down" : "it does not answer";
        if (go_on_from(number, job, position_of(number) + 1u, why, outcome, now))
            return;
        if (now - *since > outage) {
            outcome.notes.push_back(fmt::format("job {}: no root left that there is a link to; its ranks are told", number));
            erase(number, outcome, INAGG_R_UNLINKED);
            return;
        }
    }
    if (is_moving(number, job))
        ask_for_adoption(number, job, outcome);
}

// A root says where the job is, as far as it knows. The job only goes forward, so whoever knows more is followed, and
// who knows less learns that the ranks here have gone.
Outcome JobBook::told_where(const inagg_event &event, Time now) {
    const Neighbour sender = neighbour_of(event);
    if (std::find(policy_.parents.begin(), policy_.parents.end(), sender) == policy_.parents.end())
        return {.detail = "not from a parent"};
    Outcome outcome;
    const uint16_t position = be16toh(event.join.position);
    const auto job = jobs_.find(event.job);
    const bool is_here = job != jobs_.end() && job->second.record.generation == event.generation && job->second.uplink.ifindex &&
                         needs_no_root(job->second.record.algorithm);
    if (const auto up = up_index(event); is_here && up && is_spread(job->second.record.algorithm))
        return lacking_above(*up, event, job->second, now);
    if (is_here && sender == parent_of(event.job))
        job->second.answered = now;
    if (position > position_of(event.job)) {
        // A link may have returned since. Switches without a common root would send each other around for ever.
        if (is_here && now - left_at(event.job, job->second, now) < outage)
            job->second.round = linked_position(event.job, position).value_or(position);
        if (is_here && go_on_from(event.job, job->second, position, sender.address.text() + " says so", outcome, now))
            return outcome;
        if (const auto next = linked_position(event.job, position); next && !is_here && is_asked_for(event.job)) {
            const Neighbour from = parent_of(event.job);
            positions_[event.job] = *next;
            leave_root(event.job, from, outcome);
            return outcome;
        }
    }
    if (sender != parent_of(event.job))
        leave_root(event.job, sender, outcome);
    return outcome;
}

// Since when there is no link to some switch that has ranks of the job.
std::optional<Time> JobBook::cut_off_since(const JobState &job) const {
    std::optional<Time> since;
    for (const inagg_member &member : job.members)
        if (auto down = down_.find(member.ifindex);
            down != down_.end() && has_joined(member) && member.flags & INAGG_MEMBER_SWITCH)
            since = std::min(since.value_or(down->second), down->second);
    return since;
}

// Since when the job cannot have all its ranks here; not: it can, as far as this root sees.
std::optional<Time> JobBook::hopeless(const JobState &job, Time now) const {
    if (const auto since = cut_off_since(job))
        return since;
    const bool lacks_a_child = std::any_of(policy_.children.begin(), policy_.children.end(),
                                           [&](const Neighbour &child) { return down_.contains(child.port); });
    if (is_gathering(job) && lacks_a_child && now - job.seated > patience)
        return job.seated + patience;
    return std::nullopt;
}

void JobBook::tend_root(uint16_t number, JobState &job, bool hello, Outcome &outcome, Time now) {
    const auto since = hopeless(job, now);
    const bool all_gone = missing_count(job) && std::none_of(job.members.begin(), job.members.end(), [&](const auto &member) {
                              return has_joined(member) && !down_.contains(member.ifindex);
                          });
    if (since && (all_gone || now - *since > outage))
        give_up(number, job, outcome);
    else if (since || is_gathering(job) || hello)
        tell_where(number, job, std::max<unsigned>(latest_position(job), job.uplink.position + (since ? 1 : 0)), outcome);
}

void JobBook::tell_where(uint16_t number, const JobState &job, unsigned position, Outcome &outcome) const {
    inagg_join join{};
    join.size = htobe16(job.record.size);
    join.algorithm = job.record.algorithm;
    join.flags = moved_flags(job.record);
    join.position = htobe16(static_cast<uint16_t>(position));
    for (const Neighbour &child : policy_.children)
        if (!down_.contains(child.port))
            outcome.messages.push_back({child.address, INAGG_REFUSED, number, 0, job.record.generation, INAGG_R_MOVED, join});
}

// Whoever is still here cannot be helped. Ranks that there is no link to are elsewhere, or know it by themselves.
void JobBook::give_up(uint16_t number, JobState &job, Outcome &outcome) {
    for (inagg_member &member : job.members)
        if (has_joined(member) && down_.contains(member.ifindex))
            empty_seat(member);
    outcome.notes.push_back(fmt::format("job {}: {}", number,
                                        joined_count(job.members) ? "not all ranks have a link to this root, nor to another"
                                                                  : "its ranks have gone to another root"));
    if (job.record.keep)
        renew(number, job, outcome, INAGG_R_UNLINKED);
    else
        erase(number, outcome, INAGG_R_UNLINKED);
}

} // namespace inaggd
