// SPDX-License-Identifier: BSD-2-Clause
#include "support/reference_canary.hpp"

#include <inagg/core/checksum.h>
#include <inagg/core/leader.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace support {
namespace {

constexpr uint8_t the_up_port = 1; // bit of the only one

uint64_t clock_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

uint32_t fold(uint32_t a, uint32_t b, uint8_t dtype_op) {
    const auto x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
    switch (dtype_op) {
    case INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MIN:
        return static_cast<uint32_t>(std::min(x, y));
    case INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX:
        return static_cast<uint32_t>(std::max(x, y));
    default:
        return a + b;
    }
}

bool is_word(uint8_t type) { return type == INAGG_RESULT || type == INAGG_WAIT || type == INAGG_BLOCK_FAILED; }

uint32_t leader_of(const ReferenceCanary::Request &request) { return inagg_leader_of(request.job.size, request.packet.slot); }

bool is_here(const JobSpec &spec, uint32_t rank) { return rank < spec.ranks && spec.member(rank).ifindex; }

uint64_t expected_here(const ReferenceCanary::Request &request) {
    const uint32_t leader = leader_of(request);
    if (!is_here(request.spec, leader))
        return request.job.all;
    return inagg_all_ranks(request.job.size) & ~(request.spec.subtree(leader) | inagg_rank_bit(leader));
}

// From this switch, below inagg's header.
void leave(Packet &packet) {
    packet.boot = switch_boot;
    packet.source = switch_address(packet.family);
    packet.source_mac = packet.target_mac;
    packet.source_port = INAGG_PORT;
}

} // namespace

Answer ReferenceCanary::drop(Request &request, int verdict) {
    request.row.drops[-verdict]++;
    return {Action::drop, static_cast<uint32_t>(-verdict), {}};
}

ReferenceCanary::Descriptor &ReferenceCanary::descriptor(const Request &request, uint16_t attempt) {
    return descriptors_[inagg_descriptor_index(&request.job, request.spec.number, request.packet.slot, &request.block, attempt,
                                               switch_share, switch_descriptors)];
}

Answer ReferenceCanary::receive(Request request, bool intact) {
    const JobSpec &spec = request.spec;
    Packet &packet = request.packet;
    request.block.stream = inagg_stream_of(&request.job, packet.slot);
    if (inagg_position_of(&request.job, request.block.stream, request.block.block) != packet.slot)
        return drop(request, -INAGG_R_SLOT);
    const uint32_t speaker = is_word(packet.type) ? leader_of(request) : packet.rank;
    const inagg_member m = spec.member(speaker);
    const bool from_above = !m.ifindex;
    if (from_above && (!spec.has_parent() || spec.parent_port != the_port || packet.source != parent_address(packet.family)))
        return drop(request, -INAGG_R_RANK);
    if (!from_above && m.ifindex != the_port)
        return drop(request, -INAGG_R_PORT);
    if (!from_above && (spec.family != packet.family || packet.source != worker_address(spec.family, spec.index, speaker)))
        return drop(request, -INAGG_R_ADDRESS);
    if (from_above && !is_word(packet.type) && !is_here(spec, leader_of(request)))
        return drop(request, -INAGG_R_PARENT);
    if (!intact)
        return drop(request, -INAGG_R_PAYLOAD_CHECKSUM);
    request.row.packets++;
    switch (packet.type) {
    case INAGG_CONTRIBUTION:
    case INAGG_PARTIAL:
        return contribute(request, from_above);
    case INAGG_REQUEST:
        return relay(request, leader_of(request), from_above);
    case INAGG_RESULT:
    case INAGG_BLOCK_FAILED:
        if (packet.flags & INAGG_F_MULTICAST)
            return spread(request, from_above);
        break;
    case INAGG_WAIT:
        if (packet.flags & INAGG_F_MULTICAST)
            return drop(request, -INAGG_R_TYPE);
        break;
    default:
        return drop(request, -INAGG_R_TYPE);
    }
    if (from_above && !is_here(spec, packet.rank))
        return drop(request, -INAGG_R_RANK);
    return relay(request, packet.rank, from_above);
}

Answer ReferenceCanary::contribute(Request &request, bool from_above) {
    const Packet &packet = request.packet;
    const uint64_t everyone = inagg_all_ranks(request.job.size), leader = inagg_rank_bit(leader_of(request));
    uint64_t ranks = inagg_rank_bit(packet.rank);
    if (packet.type == INAGG_PARTIAL) {
        ranks = request.block.contributors;
        if (ranks & ~(from_above ? everyone : request.spec.subtree(packet.rank)))
            ranks = 0;
    }
    if (!ranks || ranks & ((from_above ? request.job.all : 0) | leader))
        return drop(request, -INAGG_R_RANK);
    if (packet.flags & INAGG_F_BYPASS)
        return relay(request, leader_of(request), from_above);
    Descriptor &d = descriptor(request, request.block.epoch);
    const inagg_arrival arrival{.ranks = ranks,
                                .expected = expected_here(request),
                                .now_ns = clock_ns(),
                                .up = static_cast<uint8_t>(from_above ? the_up_port : 0)};
    const int verdict = inagg_descriptor_contribute(&d.state, &request.job, &arrival, &request.block);
    request.row.duplicates += verdict == -INAGG_R_DUPLICATE;
    if (verdict < 0)
        return drop(request, verdict);
    const int action = INAGG_VERDICT(verdict);
    request.row.late += action == INAGG_PASS_UP && d.state.late;
    request.row.collisions += action == INAGG_COLLIDES;
    if (action > INAGG_COUNT) {
        request.packet.flags |= action == INAGG_COLLIDES ? INAGG_F_BYPASS | INAGG_F_COLLISION
                                : action == INAGG_EVADES ? INAGG_F_BYPASS
                                                         : 0;
        return relay(request, leader_of(request), from_above);
    }
    const std::vector<uint32_t> values = element_values(packet.payload, packet.dtype);
    for (std::size_t i = 0; i < values.size(); i++)
        d.lanes[i] = action == INAGG_STORE ? values[i] : fold(d.lanes[i], values[i], request.block.dtype_op);
    request.row.additions++;
    request.row.elements += request.block.elements;
    if (!(verdict & INAGG_COMPLETES))
        return {Action::absorb, 0, {}};
    request.row.completions++;
    return send_sum(request, d);
}

// To the leader.
Answer ReferenceCanary::send_sum(Request &request, const Descriptor &d) {
    const inagg_slot &state = d.state.slot;
    Packet &out = request.packet;
    out.type = INAGG_PARTIAL;
    out.flags &= INAGG_F_VERSION | INAGG_F_RESEND;
    out.flags |= state.marks | (state.flags & INAGG_SLOT_SATURATED ? INAGG_F_SATURATED : 0) |
                 (request.job.flags & INAGG_JOIN_CHECKED ? INAGG_F_CHECKED : 0);
    out.contributors = state.seen;
    out.count = static_cast<uint16_t>(inagg_count_ranks(state.seen));
    out.fan_in = request.job.size;
    out.epoch = d.state.attempt;
    out.window_cap = state.cap;
    out.dtype = state.dtype_op >> 4;
    out.op = state.dtype_op & 0xf;
    out.scale = state.scale;
    out.next_scale = state.next_scale;
    out.elements = state.elements;
    out.payload = element_bytes({d.lanes.begin(), d.lanes.begin() + state.elements}, out.dtype);
    return forward(request, leader_of(request), d.state.ups);
}

// What is neither summed here nor answered, if it does go on.
Answer ReferenceCanary::relay(Request &request, uint32_t rank, bool from_above) {
    const Answer answer = forward(request, rank, from_above);
    request.row.relayed += answer.action != Action::drop;
    return answer;
}

// To where that rank is: its own address, or the only switch above.
Answer ReferenceCanary::forward(Request &request, uint32_t rank, bool from_above) {
    const JobSpec &spec = request.spec;
    Packet &out = request.packet;
    if (!is_here(spec, rank) && (from_above || !spec.has_parent()))
        return drop(request, -INAGG_R_PARENT);
    if (is_here(spec, rank) && spec.subtree(rank) && worker_address(spec.family, spec.index, rank) == out.source)
        return drop(request, -INAGG_R_PORT);
    leave(out);
    if (!is_here(spec, rank)) {
        out.source_mac = switch_mac();
        out.target = parent_address(spec.family);
        out.target_mac = parent_mac();
        out.target_port = INAGG_PORT;
        return {Action::up, 0, build(out)};
    }
    out.target = worker_address(spec.family, spec.index, rank);
    out.target_mac = worker_mac(spec.index, rank);
    out.target_port = worker_port(rank);
    return {Action::reply, 0, build(out)};
}

// The leader's word for many: what each of them gets of it is the egress program's.
Answer ReferenceCanary::spread(Request &request, bool from_above) {
    const uint64_t here = request.job.all, everyone = inagg_all_ranks(request.job.size);
    Packet &out = request.packet;
    uint64_t named = request.block.contributors & everyone;
    uint8_t ups = 0;
    if (out.type == INAGG_BLOCK_FAILED) {
        request.row.waits++;
        ups = !from_above && (everyone & ~here & ~request.block.contributors) && request.spec.has_parent() ? the_up_port : 0;
        named = request.block.contributors;
    } else {
        uint64_t children = 0;
        for (uint16_t attempt = 0; attempt <= std::min<uint16_t>(request.block.epoch, INAGG_CANARY_ATTEMPTS - 1); attempt++) {
            Descriptor &d = descriptor(request, attempt);
            inagg_block block = request.block;
            block.epoch = attempt;
            if (!inagg_descriptor_free(&d.state, &request.job, &block))
                continue;
            children |= d.state.children;
            ups |= d.state.ups;
        }
        if (out.flags & INAGG_F_BYPASS) // another copy is for the others who have come
            children = 0;
        if (from_above)
            named &= here;
        if (from_above)
            ups = 0;
        else if ((named & ~here) && !ups && request.spec.has_parent())
            ups = the_up_port;
        named |= children & here;
        if (!named && !ups)
            return drop(request, -INAGG_R_STALE);
        request.row.replies++;
    }
    leave(out);
    out.contributors = named;
    out.port = ups;
    out.target = {};
    out.target_mac = {};
    out.target_port = 0;
    return {Action::multicast, 0, build(out)};
}

void ReferenceCanary::sweep(const JobSpec &spec) {
    for (const Descriptor &d : descriptors_) {
        const inagg_slot &slot = d.state.slot;
        if (!(slot.flags & INAGG_SLOT_LIVE) || (slot.flags & INAGG_SLOT_SENT) || d.state.job != spec.index)
            continue;
        inagg_block block{};
        block.block = slot.block;
        block.generation = slot.generation;
        block.stream = d.state.stream;
        block.epoch = d.state.attempt;
        const inagg_job job = spec.job();
        expired_.push_back({spec, block, inagg_position_of(&job, block.stream, block.block)});
    }
}

Answer ReferenceCanary::finish(const Expired &expired, inagg_stats &row) {
    const JobSpec &spec = expired.spec;
    Request request{spec, spec.job(), row, {}, expired.block};
    Packet &packet = request.packet;
    packet.family = spec.family;
    packet.job = static_cast<uint16_t>(spec.number);
    packet.generation = spec.generation;
    packet.block = expired.block.block;
    packet.slot = expired.position;
    packet.flags = INAGG_F_RESEND;
    if (packet.block & (expired.block.stream ? spec.control_slots : spec.slots))
        packet.flags |= INAGG_F_VERSION;
    packet.target_mac = tick_mac();
    Descriptor &d = descriptor(request, expired.block.epoch);
    if (!inagg_descriptor_expire(&d.state, &request.job, &request.block))
        return {Action::absorb, 0, {}};
    packet.rank = static_cast<uint16_t>(inagg_lowest_rank(d.state.slot.seen));
    row.expired++;
    row.partials++;
    return send_sum(request, d);
}

std::string ReferenceCanary::pool(const JobSpec &spec) const {
    std::string bytes;
    for (const Descriptor &d : descriptors_) {
        if (!(d.state.slot.flags & INAGG_SLOT_LIVE) || d.state.job != spec.index)
            continue;
        inagg_descriptor copy = d.state;
        copy.opened_ns = 0;
        copy.spread_ns = 0;
        bytes.append(reinterpret_cast<const char *>(&copy), sizeof copy);
        if (!(copy.slot.flags & INAGG_SLOT_SENT))
            bytes.append(reinterpret_cast<const char *>(d.lanes.data()), copy.slot.elements * 4UL);
    }
    return bytes;
}

} // namespace support
