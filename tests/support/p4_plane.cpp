// SPDX-License-Identifier: BSD-2-Clause
#include "support/p4_plane.hpp"

#include "switch_maps.h"

#include <inagg/core/checksum.h>
#include <inagg/core/packet.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <stdexcept>

namespace support {
namespace {

constexpr size_t punt_bytes = 16;

// A leader's word for all has become a copy for each that it is for, which names whom it is for: the word again, as a switch
// that sends copies later has it.
Answer spread(const std::vector<Frame> &copies, const JobSpec &spec) {
    Answer answer{.action = Action::multicast, .reason = 0, .frame = copies[0]};
    uint64_t ranks = 0;
    uint8_t ups = 0;
    bool is_failure = false;
    for (const Frame &copy : copies) {
        const auto packet = parse(copy);
        if (!packet)
            return {};
        is_failure = packet->type == INAGG_BLOCK_FAILED;
        if (packet->target == parent_address(packet->family)) {
            ups |= 1;
            ranks |= packet->contributors;
            continue;
        }
        for (uint32_t rank = 0; rank < spec.ranks; rank++)
            if (packet->target == worker_address(packet->family, spec.index, rank)) {
                ranks |= spec.subtree(rank) ? packet->contributors : inagg_rank_bit(rank);
                if (!spec.subtree(rank) && !is_failure && packet->contributors != inagg_all_ranks(spec.ranks))
                    return {}; // a rank sees all ranks
            }
    }
    inagg_hdr header;
    std::memcpy(&header, answer.frame.data() + header_offset(spec.family), sizeof header);
    if (!is_failure)
        header.contributors = inagg_swap64(ranks);
    header.port = ups;
    inagg_hdr_seal(&header);
    std::memcpy(answer.frame.data() + header_offset(spec.family), &header, sizeof header);
    return answer;
}

// A copy for each rank that has joined, with its addresses; otherwise the same.
bool are_for_all(const std::vector<Frame> &copies, const JobSpec &spec) {
    const int family = spec.family;
    const auto header = static_cast<long>(header_offset(family));
    std::multiset<uint32_t> missing;
    for (uint32_t rank = 0; rank < spec.ranks; rank++)
        if (spec.member(rank).ifindex && spec.job().all & inagg_rank_bit(rank))
            missing.insert(rank);
    for (const Frame &copy : copies) {
        const auto packet = parse(copy);
        if (!packet || copy.size() != copies[0].size() ||
            !std::equal(copy.begin() + header, copy.end(), copies[0].begin() + header))
            return false;
        const uint32_t rank = packet->target_port - worker_port(0);
        if (packet->target != worker_address(family, spec.index, rank) || packet->target_mac != worker_mac(spec.index, rank) ||
            !missing.erase(rank))
            return false;
    }
    return missing.empty();
}

} // namespace

inagg_uplink parent_of(const JobSpec &spec) {
    inagg_uplink up{};
    if (!spec.has_parent())
        return up;
    const Address address = parent_address(spec.family);
    const Mac mac = parent_mac(), own_mac = switch_mac();
    up.ifindex = spec.parent_port;
    up.family = static_cast<uint8_t>(spec.family);
    std::copy(mac.begin(), mac.end(), up.mac);
    std::copy(own_mac.begin(), own_mac.end(), up.own_mac);
    std::copy(address.begin(), address.end(), up.address);
    return up;
}

Answer P4Plane::receive(const Frame &frame) { return first_answer({frame}, the_port); }

inagg_stats P4Plane::stats(uint32_t index) { return counters().at(index); }
inagg_stats P4Plane::unowned() { return stats(INAGG_STATS_NO_JOB); }
std::string P4Plane::pool(const JobSpec &) { throw std::runtime_error("not of a P4 switch"); }

bool P4Plane::is_there(uint8_t algorithm) const {
    return std::any_of(jobs_.begin(), jobs_.end(), [=](const auto &job) { return job.second.algorithm == algorithm; });
}

// Sends the frames, one after the other, until there is something to say.
Answer P4Plane::first_answer(const std::vector<Frame> &questions, uint16_t port) {
    const std::vector<inagg_stats> before = counters();
    Frames frames;
    for (size_t i = 0; i < questions.size() && frames.empty(); i++)
        frames = exchange(questions[i], port);
    const std::vector<inagg_stats> after = counters();
    uint64_t drops = 0, completions = 0;
    uint32_t reason = 0;
    for (size_t row = 0; row < after.size(); row++) {
        const inagg_stats &then = before[row], &now = after[row];
        completions += now.completions - then.completions;
        for (uint32_t i = 0; i < INAGG_R_CAPACITY; i++)
            if (now.drops[i] != then.drops[i]) {
                drops += now.drops[i] - then.drops[i];
                reason = i;
            }
    }
    Answer answer = answer_of(questions.front(), frames, completions > 0);
    answer.reason = reason;
    if (drops)
        // Who is refused for want of room is told so.
        answer.action = drops == 1 && answer.action == Action::absorb                            ? Action::drop
                        : drops == 1 && answer.action == Action::reply && reason == INAGG_R_FULL ? Action::reply
                                                                                                 : Action::fail;
    return answer;
}

Answer P4Plane::answer_of(const Frame &sent, Frames frames, bool completed) const {
    const std::vector<Frame> &to_agent = frames[cpu_port], &to_others = frames[2];
    if (to_others.size() == 1 && to_others[0] == as_received(sent))
        return {.action = Action::pass, .reason = 0, .frame = {}}; // to all stations
    if (!to_agent.empty()) {
        const Frame &punted = to_agent[0];
        const bool whole =
            punted.size() == sent.size() + punt_bytes && std::equal(sent.begin(), sent.end(), punted.begin() + punt_bytes);
        return {.action = whole ? Action::absorb : Action::fail, .reason = 0, .frame = {}};
    }
    std::vector<Frame> copies = frames[1];
    copies.insert(copies.end(), frames[2].begin(), frames[2].end());
    if (copies.empty())
        return {.action = Action::absorb, .reason = 0, .frame = {}};
    Answer answer{.action = Action::fail, .reason = 0, .frame = copies[0]};
    const auto packet = parse(copies[0]);
    const auto job = packet ? jobs_.find(packet->job) : jobs_.end();
    if (job == jobs_.end())
        return answer;
    if (job->second.algorithm == INAGG_CANARY && packet->flags & INAGG_F_MULTICAST)
        return spread(copies, job->second);
    if (packet->target == parent_address(packet->family))
        answer.action = copies.size() == 1 ? Action::up : Action::fail;
    // Of a job of one rank both look the same.
    else if (copies.size() == 1 && !(job->second.ranks == 1 && completed))
        answer.action = Action::reply;
    else if (are_for_all(copies, job->second))
        answer.action = Action::multicast;
    return answer;
}

} // namespace support
