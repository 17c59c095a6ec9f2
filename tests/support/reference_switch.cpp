// SPDX-License-Identifier: BSD-2-Clause
#include "support/reference_switch.hpp"

#include <inagg/core/checksum.h>
#include <inagg/core/combiner.h>
#include <inagg/core/fixed.h>
#include <inagg/core/merge.h>
#include <inagg/core/slot.h>

#include <arpa/inet.h>
#include <netinet/ether.h>
#include <netinet/ip.h>
#include <netinet/ip6.h>
#include <netinet/udp.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <ctime>
#include <span>

namespace support {
namespace {

// Who sent a frame to whom, below inagg's header. Empty: none of the switch's business.
struct Envelope {
    int family;
    Address source;
    uint16_t source_port;
    bool lengths_agree;
};

// VLAN tags in front of what else is there.
size_t count_tags(const Frame &frame) {
    size_t tags = 0;
    for (size_t at = 12; at + 2 <= frame.size(); at += 4, tags++) {
        const uint16_t type = ntohs(read<uint16_t>(frame, at));
        if (type != ETHERTYPE_VLAN && type != 0x88a8)
            break;
    }
    return tags;
}

// Does the frame's IP header, of whatever protocol, have this switch's address as its source?  It has no VLAN tags any more.
bool claims_to_be_us(const Frame &frame) {
    if (frame.size() < sizeof(ether_header) + sizeof(iphdr))
        return false;
    const uint16_t ethertype = ntohs(read<uint16_t>(frame, 12));
    Address source{};
    if (ethertype == ETHERTYPE_IP) {
        const auto ip = read<iphdr>(frame, sizeof(ether_header));
        std::memcpy(source.data(), &ip.saddr, 4);
        return source == switch_address(4);
    }
    if (ethertype != ETHERTYPE_IPV6 || frame.size() < sizeof(ether_header) + sizeof(ip6_hdr))
        return false;
    const auto ip = read<ip6_hdr>(frame, sizeof(ether_header));
    std::memcpy(source.data(), &ip.ip6_src, 16);
    return source == switch_address(6);
}

std::optional<Envelope> open_envelope(const Frame &frame) {
    if (frame.size() < sizeof(ether_header))
        return {};
    const uint16_t ethertype = ntohs(read<uint16_t>(frame, 12));
    Envelope e{};
    e.family = ethertype == ETHERTYPE_IPV6 ? 6 : 4;
    const size_t header = header_offset(e.family);
    if ((ethertype != ETHERTYPE_IP && ethertype != ETHERTYPE_IPV6) || frame.size() < header)
        return {};
    Address target{};
    size_t l3;
    if (e.family == 6) {
        const auto ip = read<ip6_hdr>(frame, sizeof(ether_header));
        if (ip.ip6_vfc >> 4 != 6 || ip.ip6_nxt != IPPROTO_UDP)
            return {};
        std::memcpy(e.source.data(), &ip.ip6_src, 16);
        std::memcpy(target.data(), &ip.ip6_dst, 16);
        l3 = ntohs(ip.ip6_plen);
    } else {
        const auto ip = read<iphdr>(frame, sizeof(ether_header));
        if (ip.version != 4 || ip.ihl != 5 || ip.protocol != IPPROTO_UDP || (ntohs(ip.frag_off) & 0x3fff))
            return {};
        std::memcpy(e.source.data(), &ip.saddr, 4);
        std::memcpy(target.data(), &ip.daddr, 4);
        l3 = static_cast<size_t>(ntohs(ip.tot_len)) - sizeof ip;
    }
    const auto udp = read<udphdr>(frame, header - sizeof(udphdr));
    if (target != switch_address(e.family) || ntohs(udp.dest) != INAGG_PORT)
        return {};
    e.source_port = ntohs(udp.source);
    const size_t bytes = ntohs(udp.len);
    e.lengths_agree =
        l3 == bytes && bytes >= sizeof(udphdr) + sizeof(inagg_hdr) && header - sizeof(udphdr) + bytes == frame.size();
    return e;
}

uint32_t mantissa_bits(uint8_t dtype) { return dtype == INAGG_WIRE_FLOAT16 ? 10 : 7; }
bool is_half(uint8_t dtype) { return inagg_element_bytes(dtype) == 2; }

uint32_t fold(uint32_t a, uint32_t b, uint8_t dtype, uint8_t op) {
    if (dtype != INAGG_WIRE_INT32 || op == INAGG_WIRE_SUM)
        return a + b;
    const auto x = static_cast<int32_t>(a), y = static_cast<int32_t>(b);
    return static_cast<uint32_t>(op == INAGG_WIRE_MIN ? std::min(x, y) : std::max(x, y));
}

} // namespace

struct ReferenceSwitch::Request {
    const JobSpec &spec;
    inagg_job job;
    inagg_stats &row;
    Packet packet;
    inagg_block block;
    Copy &copy;
    bool marked; // by a router on the way
    inagg_tree tree{.here = job.all, .everyone = inagg_all_ranks(job.size)};

    // By the rules of trees, also if it is one of this switch alone.
    bool is_in_tree() const { return spec.here || spec.algorithm == INAGG_PANAMA; }
};

struct ReferenceSwitch::Report {
    inagg_slot state;
    const Lanes *lanes;
    uint64_t absent = 0; // of a WAIT
    uint16_t epoch = 0, cap = 0;
    bool degraded = false, whole = false;
    bool raw = false; // of a WAIT: the server asks for floats

    Report(const inagg_slot &slot, const Lanes &sums) : state(slot), lanes(&sums) {}
    Report(const inagg_record &record, const Lanes &sums)
        : state(record.slot), lanes(&sums), absent(record.absent), epoch(record.epoch),
          degraded((record.flags & INAGG_RECORD_DEGRADED) != 0), whole((record.flags & INAGG_RECORD_WHOLE) != 0) {}
    // Of a block that is not here.
    explicit Report(uint16_t window_cap) : state{}, lanes(nullptr), cap(window_cap) {}
};

inagg_job JobSpec::job() const {
    inagg_job j{};
    j.all = (here ? here : inagg_all_ranks(ranks)) & ~excluded;
    j.index = index;
    j.first_slot = first_slot;
    j.slots = slots;
    j.control_slots = control_slots;
    j.generation = generation;
    j.size = ranks;
    j.elements = elements;
    j.blocks = blocks;
    j.algorithm = algorithm;
    j.flags = flags | (here ? INAGG_JOIN_TREE : 0);
    j.fan_in_log2 = static_cast<uint8_t>(inagg_fan_in_log2(ranks));
    return j;
}

inagg_member JobSpec::member(uint32_t rank) const {
    inagg_member m{};
    m.nonce = inagg_swap64(nonce);
    m.ifindex = rank < ports.size() ? ports[rank] : the_port;
    m.receive_port = htons(worker_port(rank));
    m.family = static_cast<uint8_t>(family);
    const Mac mac = worker_mac(index, rank);
    const Address address = worker_address(family, index, rank);
    std::copy(mac.begin(), mac.end(), m.mac);
    std::copy(address.begin(), address.end(), m.address);
    m.leaf = leaf(rank);
    return m;
}

uint8_t JobSpec::leaf(uint32_t rank) const {
    const uint64_t all = job().all;
    const uint64_t own = rank < ranks ? subtree(rank) : 0;
    uint8_t before = 0;
    for (uint32_t other = 0; other < rank; other++) {
        const uint64_t others = subtree(other);
        const bool first = !others || std::countr_zero(others) == static_cast<int>(other);
        if (own && others == own)
            break;
        before += (all & inagg_rank_bit(other)) && first;
    }
    return before;
}

inagg_policy JobSpec::policy() const {
    return {.expiry_us = 0, .most_open = most_open, .expiry_sweeps = expiry_sweeps, .quorum = quorum, .exclude_ms = 0};
}

inagg_floor JobSpec::floor(uint32_t position) const {
    const inagg_job j = job();
    return inagg_floor_at_start(&j, position);
}

Packet contribution(const JobSpec &spec, uint32_t rank, uint32_t block, uint16_t elements) {
    Packet p;
    p.type = INAGG_CONTRIBUTION;
    p.family = spec.family;
    p.source = worker_address(spec.family, spec.index, rank);
    p.source_mac = worker_mac(spec.index, rank);
    p.target = switch_address(spec.family);
    p.target_mac = switch_mac();
    p.job = static_cast<uint16_t>(spec.number);
    p.generation = spec.generation;
    p.rank = static_cast<uint16_t>(rank);
    p.block = block;
    p.slot = block % spec.slots;
    p.flags = block / spec.slots % 2 ? INAGG_F_VERSION : 0;
    p.dtype = INAGG_WIRE_INT32;
    p.elements = elements;
    p.payload = element_bytes(std::vector<uint32_t>(elements, rank + 1), p.dtype);
    return p;
}

namespace {

uint64_t coarse_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

uint32_t aggregator_tick() { return static_cast<uint32_t>(coarse_ns() >> INAGG_AGGREGATOR_TICK_SHIFT); }

uint16_t epoch_now() { return inagg_epoch_of(coarse_ns()); }

} // namespace

const char *action_name(Action action) {
    static constexpr const char *names[] = {"pass", "absorb", "drop", "reply", "multicast", "up", "fail"};
    return names[static_cast<int>(action)];
}

const char *reason_name(uint32_t reason) {
    switch (reason) {
#define NAME(number, name, text)                                                                                                 \
    case number:                                                                                                                 \
        return #name;
        INAGG_REASONS(NAME)
#undef NAME
    default:
        return "unknown";
    }
}

ReferenceSwitch::ReferenceSwitch(uint32_t slots)
    : memory(2 * slots), records(switch_buckets * INAGG_WAYS), record_lanes(records.size()), floors(slots),
      aggregators(switch_aggregators) {}

void ReferenceSwitch::reset() {
    jobs.clear();
    rows.clear();
    no_job = {};
    clear_slots();
}

void ReferenceSwitch::change_job(const JobSpec &spec) { jobs[spec.number] = spec; }

void ReferenceSwitch::add_job(const JobSpec &spec) {
    jobs[spec.number] = spec;
    if (spec.algorithm != INAGG_TRIO)
        return;
    open[spec.index] = 0;
    for (uint32_t position = 0; position < spec.slots + spec.control_slots; position++)
        floors[spec.first_slot + position] = spec.floor(position);
}

void ReferenceSwitch::clear_slots() {
    std::fill(memory.begin(), memory.end(), Copy{});
    std::fill(floors.begin(), floors.end(), inagg_floor{});
    std::fill(aggregators.begin(), aggregators.end(), Aggregator{});
    canary.clear();
    clear_records();
}

void ReferenceSwitch::lose_floats() {
    for (Copy &copy : memory)
        if (!copy.leaves.empty() && inagg_tree_lose(&copy.state))
            copy.leaves.clear();
}

void ReferenceSwitch::clear_records() {
    std::fill(records.begin(), records.end(), inagg_record{});
    open.clear();
    expired.clear();
    canary.forget_expired();
}

std::string ReferenceSwitch::pool(const JobSpec &spec) {
    if (spec.algorithm == INAGG_TRIO) {
        std::string bytes;
        for (const inagg_record &record : records) {
            if (!inagg_record_is_open(&record) || record.job != spec.index)
                continue;
            inagg_record copy = record;
            copy.age = 0;
            bytes.append(reinterpret_cast<const char *>(&copy), sizeof copy);
            bytes.append(reinterpret_cast<const char *>(&lanes_of(record)), sizeof(Lanes));
        }
        return bytes;
    }
    if (spec.algorithm == INAGG_ATP) {
        std::string bytes;
        for (const Aggregator &a : aggregators) {
            if (!(a.state.slot.flags & INAGG_SLOT_LIVE) || a.state.job != spec.index)
                continue;
            inagg_aggregator copy = a.state;
            copy.touched = 0;
            bytes.append(reinterpret_cast<const char *>(&copy), sizeof copy);
            bytes.append(reinterpret_cast<const char *>(a.lanes.data()), copy.slot.elements * 4UL);
        }
        return bytes;
    }
    if (spec.algorithm == INAGG_CANARY)
        return canary.pool(spec);
    std::string bytes;
    for (uint32_t i = 0; i < 2 * (spec.slots + spec.control_slots); i++) {
        const Copy &copy = memory[2 * spec.first_slot + i];
        bytes.append(reinterpret_cast<const char *>(&copy.state), sizeof copy.state);
        bytes.append(reinterpret_cast<const char *>(&copy.lanes), sizeof copy.lanes);
    }
    return bytes;
}

Answer ReferenceSwitch::drop(inagg_stats &row, uint32_t reason) {
    row.drops[reason]++;
    return {Action::drop, reason, {}};
}

static bool is_marked(const Frame &frame, int family) {
    const uint8_t *ip = frame.data() + sizeof(ether_header);
    return ((family == 4 ? ip[1] : ip[1] >> 4) & IPTOS_ECN_MASK) == IPTOS_ECN_CE;
}

// Receivers take the tags of VLAN 0 off.
Answer ReferenceSwitch::pass(const Frame &frame) {
    const size_t tags = count_tags(frame);
    if (tags > 2)
        return drop(no_job, INAGG_R_PARSE);
    Frame bare = frame;
    bare.erase(bare.begin() + 12, bare.begin() + 12 + static_cast<long>(4 * tags));
    return claims_to_be_us(bare) ? drop(no_job, INAGG_R_ADDRESS) : Answer{Action::pass, 0, {}};
}

Answer ReferenceSwitch::receive(const Frame &frame) {
    const auto envelope = open_envelope(frame);
    if (!envelope)
        return pass(frame);
    if (!envelope->lengths_agree)
        return drop(no_job, INAGG_R_LENGTH);
    const auto h = read<inagg_hdr>(frame, header_offset(envelope->family));
    if (inagg_hdr_version(&h) != INAGG_WIRE_VERSION)
        return drop(no_job, INAGG_R_VERSION);
    if (!inagg_hdr_intact(&h))
        return drop(no_job, INAGG_R_HEADER_CHECKSUM);
    Packet packet;
    packet.family = envelope->family;
    packet.source = envelope->source;
    packet.source_port = envelope->source_port;
    std::copy_n(frame.begin(), 6, packet.target_mac.begin());
    std::copy_n(frame.begin() + 6, 6, packet.source_mac.begin());
    read_header(h, packet);
    if (const auto job = jobs.find(packet.job);
        job != jobs.end() && job->second.algorithm == INAGG_ATP && is_marked(frame, packet.family))
        packet.flags |= INAGG_F_CONGESTION;
    const auto body = frame.begin() + static_cast<long>(header_offset(packet.family) + sizeof h);
    packet.payload.assign(body, frame.end());
    switch (packet.type) {
    case INAGG_JOIN:
    case INAGG_LEAVE:
        return join(packet);
    case INAGG_CONTRIBUTION:
    case INAGG_REQUEST:
    case INAGG_RESTORE:
    case INAGG_PARTIAL:
        return admit(frame, packet);
    default:
        if (const auto job = jobs.find(packet.job);
            job != jobs.end() && job->second.algorithm == INAGG_CANARY &&
            (packet.type == INAGG_RESULT || packet.type == INAGG_WAIT || packet.type == INAGG_BLOCK_FAILED))
            return admit(frame, packet);
        return from_parent(frame, packet);
    }
}

// The agent decides about joins and leaves; the answer to a member's repeated JOIN is the data plane's.
Answer ReferenceSwitch::join(const Packet &packet) {
    inagg_join j;
    if (packet.payload.size() != sizeof j)
        return drop(no_job, INAGG_R_LENGTH);
    std::memcpy(&j, packet.payload.data(), sizeof j);
    const auto found = jobs.find(packet.job);
    if (packet.type == INAGG_LEAVE || found == jobs.end() || packet.rank >= found->second.ranks)
        return {Action::absorb, 0, {}};
    const JobSpec &spec = found->second;
    const inagg_member m = spec.member(packet.rank);
    if (m.ifindex != the_port || spec.family != packet.family || j.nonce != m.nonce ||
        packet.source != worker_address(spec.family, spec.index, packet.rank) || !std::ranges::equal(packet.source_mac, m.mac))
        return {Action::absorb, 0, {}};
    const inagg_job row = spec.job();
    Packet out = packet;
    out.flags = INAGG_F_CHECKED;
    out.boot = switch_boot;
    out.source = switch_address(spec.family);
    out.target = packet.source;
    out.source_mac = packet.target_mac;
    out.target_mac = packet.source_mac;
    out.source_port = INAGG_PORT;
    out.target_port = ntohs(j.receive_port);
    rows[spec.index].joins++;
    if (const inagg_reason why = ntohs(j.size) != spec.ranks             ? INAGG_R_SIZE
                                 : ntohs(j.elements) < spec.elements     ? INAGG_R_MTU
                                 : inagg_job_excludes(&row, packet.rank) ? INAGG_R_EXCLUDED
                                                                         : INAGG_R_NONE) {
        out.type = INAGG_REFUSED;
        out.slot = why;
        return {Action::reply, 0, build(out)};
    }
    inagg_config c{};
    c.nonce = j.nonce;
    c.size = htons(spec.ranks);
    c.elements = htons(spec.elements);
    c.slots = htonl(spec.slots);
    c.control_slots = htonl(spec.control_slots);
    c.algorithm = spec.algorithm;
    c.flags = spec.job().flags;
    out.type = INAGG_CONFIG;
    out.generation = spec.generation;
    out.fan_in = spec.ranks;
    out.contributors = spec.here ? inagg_all_ranks(spec.ranks) : row.all;
    out.payload.resize(sizeof c);
    std::memcpy(out.payload.data(), &c, sizeof c);
    return {Action::reply, 0, build(out)};
}

Answer ReferenceSwitch::admit(const Frame &frame, const Packet &packet) {
    const auto found = jobs.find(packet.job);
    if (found == jobs.end())
        return drop(no_job, INAGG_R_JOB);
    const JobSpec &spec = found->second;
    inagg_stats &row = rows[spec.index];
    const inagg_job job = spec.job();
    const auto h = read<inagg_hdr>(frame, header_offset(packet.family));
    inagg_block block = inagg_block_of(&h);
    if (packet.type == INAGG_REQUEST || packet.type == INAGG_WAIT || packet.type == INAGG_BLOCK_FAILED)
        block.elements = 0;
    const auto bytes = static_cast<uint32_t>(packet.payload.size());
    if (const int refused = inagg_job_admits(&job, &block, packet.slot, bytes))
        return drop(row, static_cast<uint32_t>(-refused));
    if (spec.algorithm == INAGG_CANARY) {
        const bool intact =
            !(spec.flags & INAGG_JOIN_CHECKED) || inagg_packet_intact(&h, inagg_payload_checksum(packet.payload.data(), bytes));
        return canary.receive({spec, job, row, packet, block}, intact);
    }
    const inagg_member m = spec.member(block.rank);
    if (!m.ifindex)
        return drop(row, INAGG_R_RANK);
    if (m.ifindex != the_port)
        return drop(row, INAGG_R_PORT);
    if (spec.family != packet.family || packet.source != worker_address(spec.family, spec.index, block.rank))
        return drop(row, INAGG_R_ADDRESS);
    if ((spec.flags & INAGG_JOIN_CHECKED) && !inagg_packet_intact(&h, inagg_payload_checksum(packet.payload.data(), bytes)))
        return drop(row, INAGG_R_PAYLOAD_CHECKSUM);
    row.packets++;
    if (spec.algorithm >= INAGG_ALGORITHMS)
        return drop(row, INAGG_R_ALGORITHM);
    const uint32_t key = (spec.first_slot + packet.slot) * 2 + (packet.flags & INAGG_F_VERSION);
    Request request{spec, job, row, packet, block, memory[key], is_marked(frame, packet.family)};
    return serve(request);
}

Answer ReferenceSwitch::serve(Request &request) {
    if (request.spec.algorithm == INAGG_TRIO)
        return serve_record(request);
    if (request.spec.algorithm == INAGG_ATP)
        return serve_aggregator(request);
    if (request.marked && request.is_in_tree())
        request.block.marks |= INAGG_F_CONGESTION;
    const bool floats = request.block.dtype_op >> 4 == INAGG_WIRE_FLOAT32;
    switch (request.packet.type) {
    case INAGG_CONTRIBUTION:
        return floats ? contribute_floats(request) : contribute(request, inagg_rank_bit(request.block.rank));
    case INAGG_PARTIAL:
        return floats ? contribute_floats(request) : add_partial(request);
    case INAGG_RESTORE:
        return take(request, inagg_tree_restore(&request.copy.state, &request.tree, &request.block));
    default:
        return ask(request);
    }
}

namespace {

// Folds a packet's elements, in the order of inagg_verdict.
template <typename Lanes>
void add_elements(Lanes &lanes, const Packet &packet, const inagg_block &block, const inagg_job &job, int action) {
    const uint8_t dtype = block.dtype_op >> 4, op = block.dtype_op & 0xf;
    if (action == INAGG_COUNT)
        return;
    std::vector<uint32_t> values = element_values(packet.payload, dtype);
    for (size_t i = 0; i < values.size(); i++) {
        uint32_t value = values[i];
        if (is_half(dtype))
            value = static_cast<uint32_t>(
                inagg_half_to_fixed(static_cast<uint16_t>(value), mantissa_bits(dtype), job.fan_in_log2, block.scale));
        lanes[i] = action == INAGG_STORE ? value : fold(lanes[i], value, dtype, op);
    }
}

// The block is complete: its sums become what goes on the wire.
template <typename Lanes> void round_sums(Lanes &lanes, const inagg_slot &state, const inagg_job &job) {
    const uint8_t dtype = state.dtype_op >> 4;
    for (size_t i = 0; i < state.elements && is_half(dtype); i++)
        lanes[i] = inagg_fixed_to_half(static_cast<int32_t>(lanes[i]), mantissa_bits(dtype), job.fan_in_log2, state.scale);
}

} // namespace

// Slots. A switch that stands alone is the root of a tree without others.

Answer ReferenceSwitch::contribute(Request &request, uint64_t ranks) {
    inagg_slot &state = request.copy.state;
    Lanes &lanes = request.copy.lanes;
    if (inagg_slot_is_new(&state, &request.block))
        request.copy.leaves.clear();
    const int verdict = inagg_tree_contribute(&state, &request.tree, ranks, &request.block);
    if (verdict < 0)
        return drop(request.row, static_cast<uint32_t>(-verdict));
    const int action = verdict & ~INAGG_COMPLETES;
    if (action > INAGG_COUNT)
        return repeat(request, action);
    add_elements(lanes, request.packet, request.block, request.job, action);
    request.row.additions++;
    request.row.elements += request.block.elements;
    if (!(verdict & INAGG_COMPLETES))
        return {Action::absorb, 0, {}};
    request.row.completions++;
    if (state.flags & INAGG_SLOT_SENT)
        return partial(request, Report(state, lanes));
    round_sums(lanes, state, request.job);
    return result(request, Report(state, lanes), true);
}

// What is in already.
Answer ReferenceSwitch::repeat(Request &request, int verdict) {
    request.row.duplicates++;
    request.row.replies += verdict == INAGG_REPLY;
    Report report(request.copy.state, request.copy.lanes);
    if (verdict == INAGG_REPLY)
        return result(request, report, false);
    if (verdict == INAGG_SEND_UP) {
        request.row.relayed++;
        return partial(request, report);
    }
    report.state.seen = inagg_tree_seen(&request.copy.state, &request.tree, &request.block);
    return tell(request, report, false);
}

namespace {

// The sum of the leaves [first, first + 2^level) that there are, by the processor's own addition.
std::vector<float> sum_of_leaves(const std::map<uint8_t, std::vector<float>> &leaves, uint32_t first, uint32_t level) {
    if (level == 0)
        return leaves.at(static_cast<uint8_t>(first));
    std::vector<float> sum = sum_of_leaves(leaves, first, level - 1);
    const uint32_t right = first + (1u << (level - 1));
    if (right >= leaves.size())
        return sum;
    const std::vector<float> other = sum_of_leaves(leaves, right, level - 1);
    for (size_t i = 0; i < sum.size(); i++) {
        sum[i] += other[i];
        if (std::isnan(sum[i])) // one for all of them
            sum[i] = std::bit_cast<float>(0x7fc00000u);
    }
    return sum;
}

} // namespace

// There is no room for the block: its rank is to have at most so many in flight.
Answer ReferenceSwitch::refuse(Request &request, uint16_t cap) {
    Answer answer = tell(request, Report(cap), false);
    request.row.waits--;
    request.row.drops[INAGG_R_FULL]++;
    answer.reason = INAGG_R_FULL;
    return answer;
}

// May the job add another block? In the place of the one that it began last, perhaps.
bool ReferenceSwitch::may_begin_floats(const Request &request) {
    const JobSpec &spec = request.spec;
    const auto pool = std::span(memory).subspan(2 * spec.first_slot, 2 * (spec.slots + spec.control_slots));
    const auto adding = std::count_if(pool.begin(), pool.end(), [](const Copy &copy) { return !copy.leaves.empty(); });
    if (inagg_merge_allows(spec.cap, static_cast<uint32_t>(adding)))
        return true;
    Copy *last = newest[spec.index];
    if (!last || last->leaves.empty() ||
        !inagg_tree_gives_way(&last->state, &request.block, coarse_ns() - last->touched_ns > INAGG_MERGE_IDLE_NS))
        return false;
    last->leaves.clear();
    return true;
}

void ReferenceSwitch::touch_floats(const Request &request) {
    if (inagg_slot_holds(&request.copy.state, &request.block))
        request.copy.touched_ns = coarse_ns();
}

// Leaves are kept apart until all are here.
Answer ReferenceSwitch::contribute_floats(Request &request) {
    const uint64_t subtree = request.spec.subtree(request.block.rank);
    const uint64_t ranks = subtree ? subtree : inagg_rank_bit(request.block.rank);
    inagg_slot &state = request.copy.state;
    auto &leaves = request.copy.leaves;
    if (request.packet.type != (subtree ? INAGG_PARTIAL : INAGG_CONTRIBUTION) ||
        (subtree && request.block.contributors != subtree) ||
        request.spec.leaf(request.block.rank) >= request.spec.children()) // behind another switch
        return drop(request.row, INAGG_R_RANK);
    request.block.cap = inagg_smaller_cap(request.block.cap, request.spec.cap);
    if (request.block.elements && inagg_slot_is_new(&state, &request.block)) {
        if (leaves.empty() && !may_begin_floats(request))
            return refuse(request, request.block.cap);
        leaves.clear();
        newest[request.spec.index] = &request.copy;
    }
    const int verdict = inagg_tree_admit(&state, ranks, &request.block);
    touch_floats(request);
    if (verdict < 0)
        return drop(request.row, static_cast<uint32_t>(-verdict));
    if (verdict > INAGG_COUNT)
        return repeat(request, verdict);
    std::vector<float> &leaf = leaves[request.spec.leaf(request.block.rank)];
    for (const uint32_t bits : element_values(request.packet.payload, INAGG_WIRE_FLOAT32))
        leaf.push_back(std::bit_cast<float>(bits));
    request.row.additions++;
    request.row.elements += request.block.elements;
    if (leaves.size() < request.spec.children())
        return {Action::absorb, 0, {}};
    request.row.completions++;
    const std::vector<float> sum = sum_of_leaves(leaves, 0, INAGG_MERGE_LEVELS);
    leaves.clear();
    std::transform(sum.begin(), sum.end(), request.copy.lanes.begin(), [](float x) { return std::bit_cast<uint32_t>(x); });
    inagg_tree_added(&state, &request.tree);
    const Report report(state, request.copy.lanes);
    return state.flags & INAGG_SLOT_SENT ? partial(request, report) : result(request, report, true);
}

// From a switch below: only for the ranks behind it.
Answer ReferenceSwitch::add_partial(Request &request) {
    const uint64_t named = request.block.contributors;
    if (!request.is_in_tree())
        return drop(request.row, INAGG_R_TYPE);
    if (!named || (named & ~request.spec.subtree(request.block.rank)))
        return drop(request.row, INAGG_R_RANK);
    return contribute(request, named);
}

Answer ReferenceSwitch::ask(Request &request) {
    touch_floats(request);
    const int verdict = inagg_tree_request(&request.copy.state, &request.block, request.packet.flags & INAGG_F_MULTICAST);
    if (verdict < 0)
        return drop(request.row, static_cast<uint32_t>(-verdict));
    if (verdict == INAGG_PASS_UP) {
        request.row.relayed++;
        return pass_up(request);
    }
    Report report(request.copy.state, request.copy.lanes);
    if (verdict == INAGG_REPLY) {
        request.row.replies++;
        return result(request, report, false);
    }
    report.state.seen = inagg_tree_seen(&request.copy.state, &request.tree, &request.block);
    return tell(request, report, verdict == INAGG_TELL_ALL);
}

// A result that a rank gives back, or the parent's.
Answer ReferenceSwitch::take(Request &request, int verdict) {
    if (verdict < 0)
        return drop(request.row, static_cast<uint32_t>(-verdict));
    const bool given_back = request.packet.type == INAGG_RESTORE && verdict != INAGG_PASS_UP;
    (given_back ? request.row.restores : request.row.relayed)++;
    if (verdict == INAGG_PASS_UP)
        return pass_up(request);
    const auto values = element_values(request.packet.payload, request.block.dtype_op >> 4);
    std::copy(values.begin(), values.end(), request.copy.lanes.begin());
    request.copy.leaves.clear();
    return result(request, Report(request.copy.state, request.copy.lanes), true);
}

Answer ReferenceSwitch::from_parent(const Frame &frame, const Packet &packet) {
    const bool any = std::any_of(jobs.begin(), jobs.end(), [](const auto &job) { return job.second.has_parent(); });
    if (any && (packet.type == INAGG_CONFIG || packet.type == INAGG_REFUSED)) { // the agent's
        const auto h = read<inagg_hdr>(frame, header_offset(packet.family));
        if (packet.payload.size() != sizeof(inagg_config))
            return drop(no_job, INAGG_R_LENGTH);
        if (!(packet.flags & INAGG_F_CHECKED) ||
            !inagg_packet_intact(&h, inagg_payload_checksum(packet.payload.data(), sizeof(inagg_config))))
            return drop(no_job, INAGG_R_PAYLOAD_CHECKSUM);
        return {Action::absorb, 0, {}};
    }
    if (!any || (packet.type != INAGG_RESULT && packet.type != INAGG_WAIT))
        return drop(no_job, INAGG_R_TYPE);
    const auto found = jobs.find(packet.job);
    if (found == jobs.end())
        return drop(no_job, INAGG_R_JOB);
    const JobSpec &spec = found->second;
    inagg_stats &row = rows[spec.index];
    if (!spec.has_parent())
        return drop(row, INAGG_R_PORT);
    if (spec.family != packet.family || packet.source != parent_address(spec.family))
        return drop(row, INAGG_R_ADDRESS);
    const inagg_job job = spec.job();
    const auto h = read<inagg_hdr>(frame, header_offset(packet.family));
    inagg_block block = inagg_block_of(&h);
    if (packet.type == INAGG_WAIT)
        block.elements = 0;
    const auto bytes = static_cast<uint32_t>(packet.payload.size());
    if (const int refused = inagg_job_admits(&job, &block, packet.slot, bytes))
        return drop(row, static_cast<uint32_t>(-refused));
    if ((spec.flags & INAGG_JOIN_CHECKED) && !inagg_packet_intact(&h, inagg_payload_checksum(packet.payload.data(), bytes)))
        return drop(row, INAGG_R_PAYLOAD_CHECKSUM);
    row.packets++;
    Request request{spec,
                    job,
                    row,
                    packet,
                    block,
                    memory[(spec.first_slot + packet.slot) * 2 + (packet.flags & INAGG_F_VERSION)],
                    is_marked(frame, packet.family)};
    if (spec.algorithm == INAGG_ATP)
        return from_server(request);
    if (spec.algorithm == INAGG_TRIO)
        return from_parent_of_records(request);
    if (request.marked)
        request.block.marks |= INAGG_F_CONGESTION;
    if (packet.type == INAGG_RESULT)
        return take(request, inagg_tree_result(&request.copy.state, &request.tree, &request.block));
    touch_floats(request);
    Report report(packet.window_cap);
    report.state.seen = inagg_tree_wait(&request.copy.state, &block, block.contributors);
    return pass_down(request, report);
}

// The parent's WAIT, to the rank that asked or to all.
Answer ReferenceSwitch::pass_down(Request &request, Report report) {
    report.raw = request.block.saturated;
    request.packet.source = worker_address(request.spec.family, request.spec.index, request.block.rank);
    request.packet.source_mac = worker_mac(request.spec.index, request.block.rank);
    return tell(request, report, request.packet.flags & INAGG_F_MULTICAST);
}

// To the parent.
Answer ReferenceSwitch::pass_up(const Request &request) {
    Packet out = request.packet;
    out.source = switch_address(request.spec.family);
    out.source_mac = switch_mac();
    out.source_port = INAGG_PORT;
    out.target = parent_address(request.spec.family);
    out.target_port = INAGG_PORT;
    out.target_mac = parent_mac();
    return {Action::up, 0, build(out)};
}

Answer ReferenceSwitch::partial(const Request &request, const Report &report) {
    Request sum = request;
    const Answer as_result = result(request, report, false);
    sum.packet = *parse(as_result.frame);
    sum.packet.type = INAGG_PARTIAL;
    if (report.whole)
        sum.packet.flags |= INAGG_F_WHOLE;
    return pass_up(sum);
}

// trio

inagg_record *ReferenceSwitch::bucket(const Request &request) {
    return &records[INAGG_WAYS * inagg_bucket_of(request.job.index, request.block.stream, request.block.block, switch_buckets)];
}

ReferenceSwitch::Lanes &ReferenceSwitch::lanes_of(const inagg_record &record) {
    return record_lanes[static_cast<size_t>(&record - records.data())];
}

Answer ReferenceSwitch::serve_record(Request &request) {
    request.block.stream = inagg_stream_of(&request.job, request.packet.slot);
    if (inagg_position_of(&request.job, request.block.stream, request.block.block) != request.packet.slot)
        return drop(request.row, INAGG_R_SLOT);
    uint64_t ranks = inagg_rank_bit(request.block.rank);
    if (request.packet.type == INAGG_PARTIAL) {
        ranks = request.block.contributors;
        if (!request.spec.here)
            return drop(request.row, INAGG_R_TYPE);
        if (!ranks || (ranks & ~request.spec.subtree(request.block.rank)))
            return drop(request.row, INAGG_R_RANK);
    }
    if (inagg_job_has_parent(&request.job))
        return combine(request, ranks);
    switch (request.packet.type) {
    case INAGG_RESTORE:
        return restore_record(request);
    case INAGG_REQUEST:
        return ask_record(request);
    default:
        return contribute_record(request, ranks);
    }
}

std::map<uint32_t, JobSpec>::const_iterator ReferenceSwitch::owner_of(uint32_t row, uint16_t generation) const {
    return std::find_if(jobs.begin(), jobs.end(),
                        [&](const auto &entry) { return entry.second.index == row && entry.second.generation == generation; });
}

// An open record goes before it is complete.
void ReferenceSwitch::count_gone(const inagg_loser &loser) {
    if (loser.lost && owner_of(loser.job, loser.generation) != jobs.end())
        open[loser.job]--;
}

Answer ReferenceSwitch::contribute_record(Request &request, uint64_t ranks) {
    inagg_record *const place = bucket(request);
    const inagg_policy policy = request.spec.policy();
    uint32_t &opened = open[request.job.index], way = 0;
    inagg_loser loser{};
    const int verdict = inagg_record_contribute_ranks(place, &floors[request.spec.first_slot + request.packet.slot], &request.job,
                                                      &policy, opened, ranks, &request.block, epoch_now(), &way, &loser);
    count_gone(loser);
    if (verdict == -INAGG_R_FULL)
        return refuse(request, inagg_window_cap(opened));
    if (verdict < 0)
        return drop(request.row, static_cast<uint32_t>(-verdict));
    const inagg_record &record = place[way];
    Lanes &lanes = lanes_of(record);
    const bool in = record.slot.seen & inagg_rank_bit(request.block.rank);
    const int action = INAGG_VERDICT(verdict);
    opened += (verdict & INAGG_OPENS) != 0;
    opened -= (verdict & INAGG_COMPLETES) != 0;
    request.row.recoveries += (verdict & INAGG_OPENS) && record.epoch;
    if (action == INAGG_REPLY)
        return late_reply(request, record);
    if (action == INAGG_TELL || action == INAGG_TELL_ALL) {
        request.row.duplicates += in;
        return tell(request, Report(record, lanes), action == INAGG_TELL_ALL);
    }
    add_elements(lanes, request.packet, request.block, request.job, action);
    if (action == INAGG_COUNT && request.block.elements) {
        request.row.expired++;
    } else {
        request.row.additions++;
        request.row.elements += request.block.elements;
    }
    if (!(verdict & INAGG_COMPLETES))
        return {Action::absorb, 0, {}};
    request.row.completions++;
    const Report report(record, lanes);
    request.row.degraded += report.degraded;
    round_sums(lanes, record.slot, request.job);
    return result(request, report, true);
}

// The block was decided before: with its rank, or without.
Answer ReferenceSwitch::late_reply(Request &request, const inagg_record &record) {
    const bool in = record.slot.seen & inagg_rank_bit(request.block.rank);
    (in ? request.row.duplicates : request.row.late)++;
    request.row.replies++;
    return result(request, Report(record, lanes_of(record)), false);
}

Answer ReferenceSwitch::restore_record(Request &request) {
    inagg_record *const place = bucket(request);
    uint32_t way = 0;
    const int verdict = inagg_record_restore(place, &request.job, &request.block, &way);
    if (verdict < 0)
        return drop(request.row, static_cast<uint32_t>(-verdict));
    open[request.job.index]--;
    Lanes &lanes = lanes_of(place[way]);
    const auto values = element_values(request.packet.payload, request.block.dtype_op >> 4);
    std::copy(values.begin(), values.end(), lanes.begin());
    request.row.restores++;
    return result(request, Report(place[way], lanes), true);
}

Answer ReferenceSwitch::ask_record(Request &request) {
    inagg_record *const place = bucket(request);
    int way = -1;
    const int verdict = inagg_record_request(place, &request.job, &request.block, request.packet.flags & INAGG_F_MULTICAST, &way);
    if (verdict < 0)
        return drop(request.row, static_cast<uint32_t>(-verdict));
    if (way < 0)
        return tell(request, Report(uint16_t{0}), verdict == INAGG_TELL_ALL);
    if (verdict == INAGG_REPLY) {
        request.row.replies++;
        return result(request, Report(place[way], lanes_of(place[way])), false);
    }
    return tell(request, Report(place[way], lanes_of(place[way])), verdict == INAGG_TELL_ALL);
}

// An expired block is decided by something that brings nothing to it.
Answer ReferenceSwitch::finish_record(Request &request, uint32_t way) {
    inagg_record &record = bucket(request)[way];
    request.packet.rank = static_cast<uint16_t>(std::countr_zero(record.slot.seen));
    if (inagg_job_has_parent(&request.job)) {
        if (inagg_combiner_finish(&record) < 0)
            return {Action::absorb, 0, {}};
        request.row.expired++;
        request.row.completions++;
        return partial(request, Report(record, lanes_of(record)));
    }
    if (inagg_record_finish(&record, &request.job) < 0)
        return {Action::absorb, 0, {}};
    open[request.job.index]--;
    round_sums(lanes_of(record), record.slot, request.job);
    const Report report(record, lanes_of(record));
    request.row.expired++;
    request.row.completions++;
    request.row.degraded += report.degraded;
    return result(request, report, true);
}

// trio, below the root of a tree

Answer ReferenceSwitch::combine(Request &request, uint64_t ranks) {
    switch (request.packet.type) {
    case INAGG_RESTORE:
        request.row.relayed++;
        return pass_up(request);
    case INAGG_REQUEST:
        return ask_combiner(request);
    default:
        return add_to_sum(request, ranks);
    }
}

Answer ReferenceSwitch::add_to_sum(Request &request, uint64_t ranks) {
    inagg_record *const place = bucket(request);
    const inagg_policy policy = request.spec.policy();
    uint32_t &opened = open[request.job.index], way = 0;
    inagg_loser loser{};
    const int verdict = inagg_combiner_contribute(place, &floors[request.spec.first_slot + request.packet.slot], &request.job,
                                                  &policy, opened, ranks, &request.block, &way, &loser);
    count_gone(loser);
    if (verdict < 0)
        return drop(request.row, static_cast<uint32_t>(-verdict));
    const inagg_record &record = place[way];
    Lanes &lanes = lanes_of(record);
    const int action = INAGG_VERDICT(verdict);
    opened += (verdict & INAGG_OPENS) != 0;
    if (action == INAGG_PASS_UP) {
        request.row.relayed++;
        return pass_up(request);
    }
    if (action == INAGG_REPLY)
        return late_reply(request, record);
    if (action == INAGG_TELL || action == INAGG_SEND_UP)
        request.row.duplicates++;
    if (action == INAGG_TELL) {
        Report report(uint16_t{0});
        report.state.seen = inagg_combiner_seen(&record, &request.job);
        return tell(request, report, false);
    }
    if (action == INAGG_SEND_UP) {
        request.row.relayed++;
        return partial(request, Report(record, lanes));
    }
    add_elements(lanes, request.packet, request.block, request.job, action);
    if (action == INAGG_COUNT && request.block.elements) {
        request.row.expired++;
    } else {
        request.row.additions++;
        request.row.elements += request.block.elements;
    }
    if (!(verdict & INAGG_COMPLETES))
        return {Action::absorb, 0, {}};
    request.row.completions++;
    return partial(request, Report(record, lanes));
}

Answer ReferenceSwitch::ask_combiner(Request &request) {
    inagg_record *const place = bucket(request);
    int way = -1;
    const int verdict =
        inagg_combiner_request(place, &request.job, &request.block, request.packet.flags & INAGG_F_MULTICAST, &way);
    if (verdict == INAGG_PASS_UP) {
        request.row.relayed++;
        return pass_up(request);
    }
    if (verdict == INAGG_REPLY) {
        request.row.replies++;
        return result(request, Report(place[way], lanes_of(place[way])), false);
    }
    Report report(uint16_t{0});
    report.state.seen = inagg_combiner_seen(&place[way], &request.job);
    return tell(request, report, false);
}

Answer ReferenceSwitch::from_parent_of_records(Request &request) {
    request.block.stream = inagg_stream_of(&request.job, request.packet.slot);
    if (inagg_position_of(&request.job, request.block.stream, request.block.block) != request.packet.slot)
        return drop(request.row, INAGG_R_SLOT);
    if (request.packet.type == INAGG_RESULT)
        return take_record(request);
    const int everyone = request.packet.flags & INAGG_F_MULTICAST;
    Report report(request.packet.window_cap);
    int closes = 0;
    report.state.seen = inagg_combiner_wait(bucket(request), &request.job, &request.block, everyone, &closes);
    report.epoch = request.block.epoch;
    open[request.job.index] -= static_cast<uint32_t>(closes);
    return pass_down(request, report);
}

// What the parent has decided goes down as it came, whether or not there is room to keep it.
Answer ReferenceSwitch::take_record(Request &request) {
    inagg_record *const place = bucket(request);
    uint32_t &opened = open[request.job.index], way = 0;
    const int verdict =
        inagg_combiner_result(place, &floors[request.spec.first_slot + request.packet.slot], &request.job, &request.block, &way);
    if (verdict < 0)
        return drop(request.row, static_cast<uint32_t>(-verdict));
    request.row.relayed++;
    const auto values = element_values(request.packet.payload, request.block.dtype_op >> 4);
    Lanes lanes{};
    std::copy(values.begin(), values.end(), lanes.begin());
    if (verdict != INAGG_PASS_DOWN) {
        opened -= !(verdict & INAGG_OPENS);
        lanes_of(place[way]) = lanes;
    }
    inagg_slot state{};
    inagg_slot_take(&state, &request.block);
    inagg_slot_give_back(&state, request.block.contributors, &request.block);
    Report report(state, lanes);
    report.epoch = request.block.epoch;
    report.degraded = state.seen != inagg_all_ranks(request.job.size);
    return result(request, report, true);
}

void ReferenceSwitch::sweep() {
    for (const auto &[number, spec] : jobs)
        if (spec.algorithm == INAGG_CANARY)
            canary.sweep(spec);
    for (inagg_record &record : records) {
        if (!(record.slot.flags & INAGG_SLOT_LIVE))
            continue;
        const auto owner = owner_of(record.job, record.slot.generation);
        if (owner == jobs.end()) {
            record.slot.flags = 0;
            continue;
        }
        const inagg_policy policy = owner->second.policy();
        const inagg_job job = owner->second.job();
        const int found = inagg_record_sweep(&record, &job, &policy, epoch_now());
        if (found == INAGG_SWEEP_FREED)
            open[record.job]--;
        if (found != INAGG_SWEEP_EXPIRED)
            continue;
        inagg_block block{};
        block.block = record.slot.block;
        block.generation = record.slot.generation;
        block.stream = record.stream;
        expired.push_back({owner->first, block});
    }
}

Answer ReferenceSwitch::tick() {
    if (expired.empty())
        return canary.tick([this](uint32_t index) -> inagg_stats & { return rows[index]; });
    const Expired next = expired.front();
    expired.pop_front();
    const auto found = jobs.find(next.job);
    if (found == jobs.end())
        return {Action::absorb, 0, {}};
    const JobSpec &spec = found->second;
    Packet packet;
    packet.family = spec.family;
    packet.job = static_cast<uint16_t>(next.job);
    packet.block = next.block.block;
    const inagg_job job = spec.job();
    packet.slot = inagg_position_of(&job, next.block.stream, next.block.block);
    packet.flags = INAGG_F_RESEND;
    if (packet.block & (next.block.stream ? spec.control_slots : spec.slots))
        packet.flags |= INAGG_F_VERSION;
    packet.target_mac = tick_mac();
    Request request{spec, job, rows[spec.index], packet, next.block, memory[0], false};
    const int way = inagg_record_find(bucket(request), job.index, &request.block);
    return way < 0 ? Answer{Action::absorb, 0, {}} : finish_record(request, static_cast<uint32_t>(way));
}

// atp

Answer ReferenceSwitch::serve_aggregator(Request &request) {
    const uint64_t named = request.block.contributors;
    request.block.stream = inagg_stream_of(&request.job, request.packet.slot);
    switch (request.packet.type) {
    case INAGG_CONTRIBUTION:
        return aggregate(request, inagg_rank_bit(request.block.rank));
    case INAGG_PARTIAL:
        return named && !(named & ~request.spec.subtree(request.block.rank)) ? aggregate(request, named)
                                                                             : drop(request.row, INAGG_R_RANK);
    case INAGG_REQUEST:
        request.row.relayed++;
        return pass_up(request);
    default:
        return drop(request.row, INAGG_R_TYPE);
    }
}

ReferenceSwitch::Aggregator &ReferenceSwitch::aggregator_of(const Request &request) {
    return aggregators[inagg_shared_entry(request.job.index, request.block.epoch, switch_share, switch_aggregators)];
}

Answer ReferenceSwitch::aggregate(Request &request, uint64_t ranks) {
    Aggregator &a = aggregator_of(request);
    inagg_stats &row = request.row;
    const int verdict =
        inagg_aggregator_contribute(&a.state, &request.job, ranks, &request.block, request.packet.flags, aggregator_tick());
    const int action = INAGG_VERDICT(verdict);
    row.duplicates += verdict == -INAGG_R_DUPLICATE || (verdict > 0 && action == INAGG_SEND_UP);
    if (verdict < 0)
        return drop(row, static_cast<uint32_t>(-verdict));
    if (action == INAGG_PASS_UP || action == INAGG_COLLIDES) {
        row.relayed++;
        row.collisions += action == INAGG_COLLIDES;
        request.packet.flags |= action == INAGG_COLLIDES ? INAGG_F_COLLISION : 0;
        return pass_up(request);
    }
    if (action == INAGG_SEND_UP) {
        row.relayed++;
    } else {
        add_elements(a.lanes, request.packet, request.block, request.job, action);
        row.additions++;
        row.elements += request.block.elements;
        if (!(verdict & INAGG_COMPLETES))
            return {Action::absorb, 0, {}};
    }
    (a.state.slot.seen == request.job.all ? row.completions : row.partials)++;
    return send_sum(request, a);
}

Answer ReferenceSwitch::send_sum(const Request &request, const Aggregator &from) {
    Report report(from.state.slot, from.lanes);
    report.epoch = request.block.epoch;
    Request sum = request;
    sum.packet = *parse(result(request, report, false).frame);
    sum.packet.type = INAGG_PARTIAL;
    sum.packet.flags |= from.state.marks;
    return pass_up(sum);
}

// Its RESULT goes on as it is, from this switch.
Answer ReferenceSwitch::from_server(Request &request) {
    if (request.packet.type == INAGG_WAIT) {
        Report report(uint16_t{0});
        report.state.seen = request.block.contributors;
        report.epoch = request.block.epoch;
        return pass_down(request, report);
    }
    if (request.block.contributors != request.tree.everyone)
        return drop(request.row, INAGG_R_RANK);
    request.block.stream = inagg_stream_of(&request.job, request.packet.slot);
    inagg_aggregator_result(&aggregator_of(request).state, &request.job, &request.block, aggregator_tick());
    request.row.replies++;
    Packet out = request.packet;
    out.boot = switch_boot;
    out.source = switch_address(request.spec.family);
    out.source_mac = request.packet.target_mac;
    out.source_port = INAGG_PORT;
    out.target = {};
    out.target_mac = {};
    out.target_port = 0;
    if (out.flags & INAGG_F_MULTICAST)
        return {Action::multicast, 0, build(out)};
    out.target = worker_address(request.spec.family, request.spec.index, request.block.rank);
    out.target_mac = worker_mac(request.spec.index, request.block.rank);
    out.target_port = worker_port(request.block.rank);
    return {Action::reply, 0, build(out)};
}

// Answers

Packet ReferenceSwitch::answer_to(const Request &request, uint8_t type, const Report &report, bool everyone) const {
    Packet out = request.packet;
    out.type = type;
    out.flags &= type == INAGG_WAIT ? INAGG_F_VERSION : INAGG_F_VERSION | INAGG_F_RESEND;
    if (request.job.flags & INAGG_JOIN_CHECKED)
        out.flags |= INAGG_F_CHECKED;
    if (request.is_in_tree() && everyone && type == INAGG_WAIT)
        out.flags |= INAGG_F_MULTICAST; // switches below pass it on likewise
    if (report.raw)
        out.flags |= INAGG_F_SATURATED;
    out.generation = request.block.generation;
    out.block = request.block.block;
    out.dtype = request.block.dtype_op >> 4;
    out.op = request.block.dtype_op & 0xf;
    out.scale = request.block.scale;
    out.contributors = report.state.seen | (type == INAGG_WAIT ? report.absent : 0);
    out.window_cap = report.cap;
    out.epoch = report.epoch;
    out.count = 0;
    out.next_scale = 0;
    out.elements = 0;
    out.boot = switch_boot;
    out.fan_in = request.job.size;
    out.source = switch_address(request.spec.family);
    out.source_mac = request.packet.target_mac;
    out.source_port = INAGG_PORT;
    out.target = everyone ? Address{} : request.packet.source;
    out.target_mac = everyone ? Mac{} : request.packet.source_mac;
    out.target_port = everyone ? 0 : worker_port(request.block.rank);
    out.payload.clear();
    return out;
}

Answer ReferenceSwitch::result(const Request &request, const Report &report, bool everyone) {
    const inagg_slot &state = report.state;
    Packet out = answer_to(request, INAGG_RESULT, report, everyone);
    out.dtype = state.dtype_op >> 4;
    out.op = state.dtype_op & 0xf;
    out.scale = state.scale;
    out.next_scale = state.next_scale;
    out.count = static_cast<uint16_t>(inagg_count_ranks(state.seen));
    out.elements = state.elements;
    out.payload = element_bytes({report.lanes->begin(), report.lanes->begin() + state.elements}, out.dtype);
    out.flags |= state.marks;
    out.window_cap = state.cap;
    if (state.flags & INAGG_SLOT_SATURATED)
        out.flags |= INAGG_F_SATURATED;
    if (report.degraded)
        out.flags |= INAGG_F_DEGRADED;
    return {everyone ? Action::multicast : Action::reply, 0, build(out)};
}

Answer ReferenceSwitch::tell(const Request &request, const Report &report, bool everyone) {
    request.row.waits++;
    return {everyone ? Action::multicast : Action::reply, 0, build(answer_to(request, INAGG_WAIT, report, everyone))};
}

} // namespace support
