// SPDX-License-Identifier: BSD-2-Clause
#include "job_json.hpp"

#include <arpa/inet.h>

#include <algorithm>

namespace inaggd {
namespace {

using json = nlohmann::ordered_json;

bool has_joined(const inagg_member &member) { return member.ifindex && member.nonce; }

const char *state_of(const inagg_member &member, bool is_here) {
    if (!is_here)
        return "elsewhere";
    if (has_joined(member))
        return "joined";
    if (member.flags & INAGG_MEMBER_LEFT)
        return "left";
    return member.flags & (INAGG_MEMBER_RESERVED | INAGG_MEMBER_STATIC) ? "configured" : "missing";
}

} // namespace

json job_json(uint16_t number, const inagg_job &job, const Members &members, const inagg_policy &policy) {
    return {{"job", number},
            {"size", job.size},
            {"joined", std::count_if(members.begin(), members.end(), has_joined)},
            {"generation", job.generation},
            {"algorithm", algorithm_name(job.algorithm)},
            {"expiry_us", policy.expiry_us},
            {"quorum", policy.quorum},
            {"exclude_ms", policy.exclude_ms},
            {"stragglers", json::array()},
            {"first_slot", job.first_slot},
            {"slots", job.slots},
            {"control_slots", job.control_slots},
            {"elements", job.elements},
            {"blocks", std::max<unsigned>(job.blocks, 1)},
            {"checked", (job.flags & INAGG_JOIN_CHECKED) != 0},
            {"tree", (job.flags & INAGG_JOIN_TREE) != 0},
            {"integers", (job.flags & INAGG_JOIN_INTEGERS) != 0},
            {"big_endian", (job.flags & INAGG_JOIN_BIG_ENDIAN) != 0},
            {"parent", "none"},
            {"parent_port", ""},
            {"route", nullptr},
            {"configured", job.keep != 0}};
}

json member_json(uint16_t rank, const inagg_member &member, bool is_here, const std::string &port) {
    return {{"rank", rank},
            {"state", state_of(member, is_here)},
            {"port", port},
            {"switch", (member.flags & INAGG_MEMBER_SWITCH) != 0},
            {"address", Address::of(member).text()},
            {"mac", mac_text(member.mac)},
            {"receive_port", ntohs(member.receive_port)}};
}

void add_drops(json &list, const json &job, const inagg_stats &stats) {
    for (int reason = 0; reason < INAGG_R_CAPACITY; reason++)
        if (stats.drops[reason])
            list.push_back({{"job", job},
                            {"reason", reason_name(reason)},
                            {"number", reason},
                            {"packets", stats.drops[reason]},
                            {"text", reason_text(reason)}});
}

} // namespace inaggd
