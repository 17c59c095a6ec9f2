// SPDX-License-Identifier: BSD-2-Clause
#include "frames.hpp"

#include <inagg/core/leader.h>

#include <algorithm>
#include <cstring>

namespace fuzz {

using namespace support;

Frames::Frames(uint64_t seed, const JobSpec &job_spec, const JobSpec &victim_spec)
    : random(seed), job(job_spec), victim(victim_spec) {}

// What one of the job's ranks could send just now.
Packet Frames::plausible() {
    static constexpr uint8_t types[] = {INAGG_CONTRIBUTION, INAGG_CONTRIBUTION, INAGG_CONTRIBUTION,
                                        INAGG_CONTRIBUTION, INAGG_CONTRIBUTION, INAGG_REQUEST,
                                        INAGG_RESTORE,      INAGG_JOIN,         INAGG_LEAVE};
    static constexpr uint8_t dtypes[] = {INAGG_WIRE_INT32, INAGG_WIRE_FIXED32, INAGG_WIRE_FLOAT16, INAGG_WIRE_BFLOAT16};
    // With trio a position that nobody uses in one phase must be recovered in the next.
    if (chance(job.algorithm == INAGG_TRIO ? 200 : 40))
        phase++;
    Packet p;
    p.type = types[below(std::size(types))];
    p.family = job.family;
    p.rank = static_cast<uint16_t>(below(job.ranks));
    p.source = worker_address(p.family, job.index, p.rank);
    p.source_mac = worker_mac(job.index, p.rank);
    p.source_port = worker_port(p.rank);
    p.target = switch_address(p.family);
    p.target_mac = switch_mac();
    p.job = static_cast<uint16_t>(job.number);
    p.generation = job.generation;
    const bool control = chance(6);
    const uint32_t slots = control ? job.control_slots : job.slots;
    p.block = phase * slots + below(slots);
    p.slot = (control ? job.slots : 0) + p.block % slots;
    p.flags = p.block / slots % 2 ? INAGG_F_VERSION : 0;
    p.dtype = control ? uint8_t{INAGG_WIRE_NONE} : dtypes[p.block % std::size(dtypes)];
    p.op = p.dtype == INAGG_WIRE_INT32 ? static_cast<uint8_t>(p.block / 4 % INAGG_WIRE_OPS) : 0;
    p.scale = 128;
    p.next_scale = static_cast<uint8_t>(random());
    p.elements = control ? 0 : static_cast<uint16_t>(INAGG_CHUNK * (1 + p.block % 2));
    if (p.type == INAGG_REQUEST)
        p.elements = 0;
    if (job.algorithm == INAGG_TRIO)
        straggle(p);
    if (job.algorithm == INAGG_ATP)
        aggregate(p);
    if (job.algorithm == INAGG_PANAMA)
        add_floats(p);
    if (job.algorithm == INAGG_CANARY)
        converse(p);
    else if (job.here)
        climb(p);
    return p;
}

// What leaders say, what ranks say to them, and sums of other switches, in canary.
void Frames::converse(Packet &p) {
    static constexpr uint8_t words[] = {INAGG_RESULT, INAGG_WAIT, INAGG_BLOCK_FAILED};
    const uint32_t leader = inagg_leader_of(job.ranks, p.slot);
    uint32_t speaker = p.rank;
    if (p.rank == leader || chance(4)) {
        p.type = words[below(std::size(words))];
        p.rank = static_cast<uint16_t>(chance(2) ? leader : below(job.ranks));
        speaker = leader;
        if (p.type != INAGG_RESULT)
            p.elements = 0;
    }
    for (const uint16_t flag : {INAGG_F_RESEND, INAGG_F_MULTICAST})
        if (chance(2))
            p.flags |= flag;
    for (const uint16_t flag : {INAGG_F_BYPASS, INAGG_F_WHOLE, INAGG_F_COLLISION})
        if (chance(8))
            p.flags |= flag;
    if (p.dtype == INAGG_WIRE_FLOAT16 || p.dtype == INAGG_WIRE_BFLOAT16)
        p.dtype = INAGG_WIRE_FIXED32;
    p.epoch = static_cast<uint16_t>(chance(4) ? below(5) : 0);
    p.window_cap = static_cast<uint16_t>(chance(3) ? below(9) : 0);
    const bool is_above = !job.member(speaker).ifindex;
    const uint64_t all = inagg_all_ranks(job.ranks), theirs = is_above ? all & ~job.here : job.subtree(p.rank);
    p.contributors = chance(4) ? random() & all : theirs;
    if (p.type == INAGG_CONTRIBUTION && theirs && chance(2))
        p.type = INAGG_PARTIAL;
    p.source = is_above ? parent_address(p.family) : worker_address(p.family, job.index, speaker);
    p.source_mac = is_above ? parent_mac() : worker_mac(job.index, speaker);
}

// What only switches in a tree send: sums from below, results and waits from above.
void Frames::climb(Packet &p) {
    const uint64_t all = inagg_all_ranks(job.ranks);
    p.contributors = chance(4) ? random() & all : all;
    if (p.type == INAGG_CONTRIBUTION && chance(3)) {
        p.type = INAGG_PARTIAL;
        p.contributors = chance(6) ? random() & all : job.subtree(p.rank);
    }
    if (!chance(4))
        return;
    p.type = chance(3) ? INAGG_WAIT : INAGG_RESULT;
    p.source = parent_address(p.family);
    p.source_mac = parent_mac();
    if (p.type == INAGG_WAIT)
        p.elements = 0;
    if (chance(3))
        p.flags |= INAGG_F_MULTICAST;
    if (job.algorithm == INAGG_TRIO) {
        p.window_cap = p.type == INAGG_WAIT && chance(4) ? static_cast<uint16_t>(1 + below(8)) : 0;
        p.epoch = chance(3) ? static_cast<uint16_t>(1 + below(3)) : 0;
    }
}

// What only atp looks at. Blocks meet in aggregators, and each is sent again and again.
void Frames::aggregate(Packet &p) {
    p.epoch = static_cast<uint16_t>(p.slot * 3 + (chance(8) ? below(16) : 0));
    for (const uint16_t flag : {INAGG_F_RESEND, INAGG_F_COLLISION, INAGG_F_CONGESTION, INAGG_F_WHOLE})
        if (chance(5))
            p.flags |= flag;
    p.marked = chance(5);
}

// What only panama adds, and what it passes on.
void Frames::add_floats(Packet &p) {
    if (p.dtype != INAGG_WIRE_NONE && p.dtype != INAGG_WIRE_INT32)
        p.dtype = INAGG_WIRE_FLOAT32;
    p.scale = p.next_scale = 0;
    p.window_cap = chance(3) ? static_cast<uint16_t>(below(9)) : 0;
    if (chance(5))
        p.flags |= INAGG_F_CONGESTION;
    p.marked = chance(5);
}

// What only trio looks at.
void Frames::straggle(Packet &p) {
    if (chance(5))
        p.flags |= INAGG_F_WHOLE;
    if (p.type == INAGG_RESTORE)
        p.contributors = chance(4) ? random() : 1 + below((1u << job.ranks) - 1);
    const auto known = epochs.find({p.slot, p.block});
    if (known != epochs.end())
        p.epoch = known->second;
    if (chance(20))
        p.epoch = static_cast<uint16_t>(p.epoch + below(3) - 1);
}

void Frames::heard(const Frame &answer) {
    const auto packet = parse(answer);
    if (packet && packet->epoch)
        epochs[{packet->slot, packet->block}] = packet->epoch;
}

void Frames::mutate_field(Packet &p) {
    switch (below(19)) {
    case 0:
        p.version = static_cast<uint8_t>(below(16));
        break;
    case 1:
        p.type = static_cast<uint8_t>(below(16));
        break;
    case 2:
        p.dtype = static_cast<uint8_t>(below(16));
        break;
    case 3:
        p.op = static_cast<uint8_t>(below(16));
        break;
    case 4:
        p.flags ^= static_cast<uint16_t>(random() & INAGG_FLAGS_MASK & ~INAGG_F_CHECKED);
        break;
    case 5:
        p.job = static_cast<uint16_t>(chance(2) ? victim.number : random());
        break;
    case 6:
        p.generation = static_cast<uint16_t>(chance(2) ? p.generation + 1 : random());
        break;
    case 7:
        p.rank = static_cast<uint16_t>(chance(2) ? below(job.ranks + 2) : random());
        break;
    case 8:
        p.block = chance(2) ? p.block - below(40) : static_cast<uint32_t>(phase * job.slots + below(60));
        break;
    case 9:
        p.slot = static_cast<uint32_t>(chance(2) ? below(40) : random());
        break;
    case 10:
        p.elements = static_cast<uint16_t>(chance(2) ? INAGG_CHUNK * below(30) : random());
        break;
    case 11:
        p.scale = chance(2) ? 128 : 129;
        break;
    case 12:
        p.header_checksum_xor = static_cast<uint16_t>(random());
        break;
    case 13:
        p.payload_checksum_xor = static_cast<uint32_t>(random());
        break;
    case 14:
        p.udp_length_delta = static_cast<int>(below(200)) - 100;
        break;
    case 15:
        p.ip_length_delta = static_cast<int>(below(200)) - 100;
        break;
    case 16:
        p.source = worker_address(p.family, job.index, below(job.ranks));
        break;
    case 17:
        p.target_port = static_cast<uint16_t>(random());
        break;
    case 18:
        p.family = 10 - p.family;
        break;
    }
}

// Elements that are within the contract of their type: what a rank does to its own job's sums by breaking
// it is its own affair.
void Frames::fill(Packet &p) {
    if (p.type == INAGG_JOIN || p.type == INAGG_LEAVE) {
        inagg_join join{};
        join.nonce = inagg_swap64(chance(3) ? random() : job.nonce);
        join.size = inagg_swap16(static_cast<uint16_t>(chance(5) ? random() : job.ranks));
        join.elements = inagg_swap16(static_cast<uint16_t>(chance(5) ? random() : job.elements));
        join.receive_port = static_cast<uint16_t>(random());
        p.payload.resize(sizeof join);
        std::memcpy(p.payload.data(), &join, sizeof join);
        return;
    }
    std::vector<uint32_t> values(std::min<uint32_t>(p.elements, INAGG_MAX_ELEMENTS));
    for (uint32_t &value : values) {
        value = static_cast<uint32_t>(random());
        if (p.dtype == INAGG_WIRE_FIXED32)
            value &= 0x3fffffff; // below 2 * bias of three ranks
        else if (inagg_element_bytes(p.dtype) == 2)
            value &= 0xbfff; // below 2
    }
    p.payload = element_bytes(values, p.dtype);
}

// Behind the builder's back. Payload stays as it is: see fill().
void Frames::mutate_bytes(Frame &frame) {
    const size_t headers = std::min(frame.size(), header_offset(4) + sizeof(inagg_hdr));
    switch (below(4)) {
    case 0:
        frame[below(static_cast<uint32_t>(headers))] ^= static_cast<uint8_t>(1u << below(8));
        break;
    case 1:
        frame[below(static_cast<uint32_t>(headers))] = static_cast<uint8_t>(random());
        break;
    case 2:
        frame.resize(std::max<size_t>(14, below(static_cast<uint32_t>(frame.size()))));
        break;
    case 3:
        frame.resize(frame.size() + below(64));
        break;
    }
}

Frame Frames::next() {
    if (chance(50)) { // noise
        Frame frame(14 + below(1500));
        for (uint8_t &byte : frame)
            byte = static_cast<uint8_t>(random());
        return frame;
    }
    Packet packet = plausible();
    for (uint32_t mutations = chance(2) ? 0 : 1 + below(3); mutations; mutations--)
        mutate_field(packet);
    if ((job.flags & INAGG_JOIN_CHECKED) && packet.type != INAGG_JOIN && packet.type != INAGG_LEAVE)
        packet.flags |= INAGG_F_CHECKED;
    fill(packet);
    Frame frame = build(packet);
    if (chance(8))
        mutate_bytes(frame);
    return frame;
}

} // namespace fuzz
