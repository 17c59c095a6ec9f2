// SPDX-License-Identifier: BSD-2-Clause
#include "server.hpp"

#include "common/lanes.hpp"
#include "common/log.hpp"
#include "error.hpp"
#include "refusal_log.hpp"

#include <inagg/core/aggregator.h>
#include <inagg/core/checksum.h>
#include <inagg/core/packet.h>
#include <inagg/core/raw.h>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace ps {

using namespace inaggd;

namespace {

using Kind = Outcome::Change::Kind;

bool is_flagged(const inagg_job &job, inagg_join_flag flag) { return job.flags & flag; }

// Who asks, as the book knows it.
inagg_event event_of(const inagg_hdr &header, const struct inagg_join &join, const Endpoint &from) {
    inagg_event event{};
    event.ifindex = Server::only_port;
    event.source_port = from.port;
    event.family = from.address.family;
    event.type = inagg_hdr_type(&header);
    event.job = inagg_swap16(header.job);
    event.rank = inagg_swap16(header.source);
    event.generation = inagg_swap16(header.generation);
    event.mac[0] = 2; // any: the kernel knows whose frames are sent
    std::copy(from.address.bytes.begin(), from.address.bytes.end(), event.address);
    event.join = join;
    event.hdr = header;
    return event;
}

Endpoint endpoint_of(const inagg_member &member) {
    return inaggd::has_joined(member) ? Endpoint{Address::of(member), member.receive_port} : Endpoint{};
}

// The sums over `ranks` ranks of the `count` elements of each, one rank behind the other in `elements`. In
// binary64 and in this order, rounded once.
void sum_floats(uint32_t *sums, const float *elements, std::size_t count, std::size_t ranks) {
    for (std::size_t i = 0; i < count; i++) {
        double sum = elements[i];
        for (std::size_t rank = 1; rank < ranks; rank++)
            sum += elements[rank * count + i];
        sums[i] = std::bit_cast<uint32_t>(static_cast<float>(sum));
    }
}

const char *type_name(uint8_t type) { return type == INAGG_JOIN ? "JOIN" : "LEAVE"; }

void log_decision(const inagg_event &event, const Endpoint &from, const Outcome &outcome) {
    static RefusalLog refusals;
    const bool refused = outcome.verdict == Outcome::Verdict::refused, done = outcome.verdict == Outcome::Verdict::done;
    const auto level = refused ? refusals.next() : done ? spdlog::level::info : spdlog::level::debug;
    const inagg::LogFields about{{"job", event.job}, {"rank", event.rank}, {"address", from.address.text()}};
    spdlog::log(level, "job {}: {} of rank {} from {}{}{}{}", event.job, type_name(event.type), event.rank, from.address.text(),
                refused                                        ? ", refused " + reason_name(outcome.reason)
                : outcome.verdict == Outcome::Verdict::ignored ? ", ignored"
                                                               : "",
                outcome.detail.empty() ? "" : ": ", outcome.detail);
}

void add(inagg_stats &sum, const inagg_stats &more) {
    static_assert(sizeof sum % sizeof(__u64) == 0);
    auto *to = reinterpret_cast<__u64 *>(&sum);
    const auto *from = reinterpret_cast<const __u64 *>(&more);
    for (std::size_t i = 0; i < sizeof sum / sizeof *to; i++)
        to[i] += from[i];
}

} // namespace

Server::Server(const Policy &policy, uint16_t boot, std::function<uint16_t()> random, Outbox &outbox, Indices indices,
               inaggd::Keys keys)
    : book_(policy, std::move(random)), gate_(std::move(keys)), boot_(boot), outbox_(outbox), indices_(indices) {}

Server::Job *Server::find(uint16_t number) {
    const auto found = jobs_.find(number);
    return found == jobs_.end() ? nullptr : &found->second;
}

// Packets.

void Server::receive(std::span<const std::byte> bytes, const Endpoint &from, bool congested, Time now) {
    Packet packet{.header = {}, .body = {}, .from = from, .flags = 0, .block = {}, .now = now};
    if (bytes.size() < sizeof packet.header) {
        no_job_.drops[INAGG_R_LENGTH]++;
        return;
    }
    std::memcpy(&packet.header, bytes.data(), sizeof packet.header);
    packet.body = bytes.subspan(sizeof packet.header);
    if (inagg_hdr_version(&packet.header) != INAGG_WIRE_VERSION) {
        no_job_.drops[INAGG_R_VERSION]++;
    } else if (!inagg_hdr_intact(&packet.header)) {
        no_job_.drops[INAGG_R_HEADER_CHECKSUM]++;
    } else {
        packet.flags = inagg_swap16(packet.header.level_flags) & INAGG_FLAGS_MASK;
        packet.flags |= congested ? INAGG_F_CONGESTION : 0;
        packet.block = inagg_block_of(&packet.header);
        handle(packet);
    }
}

void Server::handle(const Packet &packet) {
    Job *job = find(inagg_swap16(packet.header.job));
    inagg_stats &stats = job ? job->stats : no_job_;
    int verdict = -INAGG_R_TYPE;
    switch (inagg_hdr_type(&packet.header)) {
    case INAGG_JOIN:
    case INAGG_LEAVE:
        return membership(packet); // may remove the job
    case INAGG_CONTRIBUTION:
    case INAGG_PARTIAL:
    case INAGG_REQUEST:
        verdict = job ? handle_block(*job, packet) : -INAGG_R_JOB;
        break;
    default: // a RESTORE, too: what is complete is not forgotten
        break;
    }
    if (verdict < 0)
        stats.drops[-verdict]++;
    if (verdict == -INAGG_R_JOB || verdict == -INAGG_R_GENERATION)
        answer_stranger(packet);
}

// Blocks. Returns of these: 0 or a negative reason.

int Server::admit(const Job &job, const Packet &packet) const {
    const inagg_block &block = packet.block;
    const auto bytes = static_cast<uint32_t>(packet.body.size());
    const int verdict = inagg_job_admits(&job.record, &block, inagg_swap32(packet.header.slot), bytes);
    if (verdict)
        return verdict;
    const Endpoint &at = job.at[block.rank];
    if (!at.port)
        return -INAGG_R_RANK;
    if (at != packet.from)
        return -INAGG_R_ADDRESS;
    if (is_flagged(job.record, INAGG_JOIN_CHECKED) &&
        !inagg_packet_intact(&packet.header, inagg_payload_checksum(packet.body.data(), bytes)))
        return -INAGG_R_PAYLOAD_CHECKSUM;
    return 0;
}

int Server::handle_block(Job &job, const Packet &arrived) {
    Packet packet = arrived;
    const bool asks = inagg_hdr_type(&packet.header) == INAGG_REQUEST;
    if (asks)
        packet.block.elements = 0;
    if (const int verdict = admit(job, packet))
        return verdict;
    job.stats.packets++;
    job.heard = true;
    packet.block.stream = inagg_stream_of(&job.record, inagg_swap32(packet.header.slot));
    Slot &slot = job.slots[inagg_swap32(packet.header.slot) * 2 + (packet.flags & INAGG_F_VERSION ? 1 : 0)];
    return asks ? request(job, slot, packet) : contribute(job, slot, packet);
}

// The ranks whose sum the packet is; 0: its sender may not speak for them.
uint64_t Server::ranks_of(const Job &job, const Packet &packet) {
    const inagg_block &block = packet.block;
    if (inagg_hdr_type(&packet.header) != INAGG_PARTIAL)
        return inagg_rank_bit(block.rank);
    return block.contributors & ~job.subtree[block.rank] ? 0 : block.contributors;
}

int Server::contribute(Job &job, Slot &slot, const Packet &packet) {
    const inagg_block &block = packet.block;
    const uint64_t ranks = ranks_of(job, packet);
    if (!ranks)
        return -INAGG_R_RANK;
    if (block.dtype_op == INAGG_RAW_DTYPE_OP && ranks != inagg_rank_bit(block.rank))
        return -INAGG_R_DTYPE; // floats come by rank
    if (!reserve_raw(job, slot, block))
        return -INAGG_R_FULL;
    const bool is_new = !inagg_slot_holds(&slot.state, &block);
    const int verdict = decide(job, slot, ranks, block);
    if (verdict < 0)
        return verdict;
    if (is_new)
        job.raw.erase(index_of(job, slot)); // of a block that was not completed
    const int action = verdict & ~INAGG_COMPLETES;
    if (action == INAGG_REPLY) {
        job.stats.duplicates++;
        job.stats.replies++;
        send_result(job, slot, packet, false);
        return 0;
    }
    slot.marks = static_cast<uint16_t>((is_new ? 0 : slot.marks) | (packet.flags & (INAGG_F_COLLISION | INAGG_F_CONGESTION)));
    if (action == INAGG_TELL) {
        job.stats.duplicates++;
        send_wait(job, slot, packet, false);
        return 0;
    }
    job.stats.additions++;
    job.stats.elements += block.elements;
    if (action == INAGG_TELL_ALL) {
        job.stats.saturated++;
        send_wait(job, slot, packet, true);
        return 0;
    }
    fold(job, slot, packet, action);
    if (verdict & INAGG_COMPLETES)
        complete(job, slot, packet);
    return 0;
}

uint16_t Server::next_aggregator(const Job &job, uint32_t position) const {
    switch (indices_) {
    case Indices::linear:
        return static_cast<uint16_t>(position);
    case Indices::partitioned: // by the job's number: other servers' jobs have aggregators of the same switches
        return static_cast<uint16_t>(job.number * std::bit_ceil(job.record.slots + job.record.control_slots) + position);
    default:
        return inagg_aggregator_index(job.number, position, job.moves[position]);
    }
}

int Server::decide(const Job &job, Slot &slot, uint64_t ranks, const inagg_block &block) const {
    if (job.record.algorithm == INAGG_ATP)
        return inagg_raw_contribute(&slot.state, job.record.all, ranks, &block);
    return inagg_slot_contribute_ranks(&slot.state, job.record.all, ranks, &block);
}

// What is folded in of floats is kept by rank: in which order packets come must not show in their sum.
void Server::fold(Job &job, const Slot &slot, const Packet &packet, int action) {
    const inagg_block &block = packet.block;
    const auto fold_lanes = is_flagged(job.record, INAGG_JOIN_BIG_ENDIAN) ? inagg::fold_turned_lanes : inagg::fold_lanes;
    if (inagg_raw_holds(&slot.state, &block))
        std::memcpy(&job.raw.at(index_of(job, slot))[std::size_t{block.rank} * block.elements], packet.body.data(),
                    packet.body.size());
    else if (action == INAGG_STORE)
        std::memcpy(lanes_of(job, slot), packet.body.data(), packet.body.size());
    else if (action == INAGG_ADD)
        fold_lanes(lanes_of(job, slot), reinterpret_cast<const uint32_t *>(packet.body.data()), block.elements,
                   block.dtype_op & 0xf);
}

// False if `block` brings floats that were asked for and there is no memory for them. A job that has none gets some, whatever the
// others have.
bool Server::reserve_raw(Job &job, const Slot &slot, const inagg_block &block) {
    const bool asked = inagg_raw_holds(&slot.state, &block) && !(slot.state.flags & INAGG_SLOT_COMPLETE);
    if (block.dtype_op != INAGG_RAW_DTYPE_OP || !asked || job.raw.contains(index_of(job, slot)))
        return true;
    const std::size_t floats = std::size_t{job.record.size} * slot.state.elements;
    if (!job.raw.empty() && raw_bytes() + floats * sizeof(float) > std::size_t{book_.policy().slots} * slot_bytes)
        return false; // it comes again
    job.raw.emplace(index_of(job, slot), std::make_unique_for_overwrite<float[]>(floats));
    return true;
}

// At most: the last block of a tensor is shorter.
std::size_t Server::raw_bytes() const {
    std::size_t bytes = 0;
    for (const auto &[number, job] : jobs_)
        bytes += job.raw.size() * job.record.size * job.record.elements * sizeof(float);
    return bytes;
}

// All ranks' floats are there, in the job's byte order, and so is their sum.
void Server::sum_raw(const Job &job, const Slot &slot, float *floats) const {
    const bool turned = is_flagged(job.record, INAGG_JOIN_BIG_ENDIAN);
    const uint32_t count = slot.state.elements;
    if (turned)
        inagg_turn_elements(floats, static_cast<uint32_t>(sizeof *floats * count * job.record.size));
    sum_floats(lanes_of(job, slot), floats, count, job.record.size);
    if (turned)
        inagg_turn_elements(lanes_of(job, slot), static_cast<uint32_t>(sizeof(uint32_t) * count));
}

// Where the position's next block goes is decided here, once, so that all copies of the result say the same.
void Server::complete(Job &job, Slot &slot, const Packet &packet) {
    if (const auto raw = job.raw.find(index_of(job, slot)); raw != job.raw.end()) {
        sum_raw(job, slot, raw->second.get());
        job.raw.erase(raw);
    }
    const uint32_t position = inagg_swap32(packet.header.slot);
    if (slot.marks & INAGG_F_COLLISION)
        job.moves[position]++;
    slot.next = next_aggregator(job, position);
    job.stats.completions++;
    send_result(job, slot, packet, true);
}

int Server::request(Job &job, const Slot &slot, const Packet &packet) {
    const int verdict = inagg_slot_request(&slot.state, &packet.block, packet.flags & INAGG_F_MULTICAST);
    if (verdict < 0)
        return verdict;
    if (verdict == INAGG_REPLY) {
        job.stats.replies++;
        send_result(job, slot, packet, false);
    } else {
        send_wait(job, slot, packet, verdict == INAGG_TELL_ALL);
    }
    return 0;
}

uint32_t *Server::lanes_of(const Job &job, const Slot &slot) const {
    return job.lanes.get() + index_of(job, slot) * job.record.elements;
}

// Answers.

// A header for whoever sent `asked`; not sealed.
inagg_hdr Server::answer(const inagg_hdr &asked, inagg_type type) const {
    inagg_hdr header{};
    header.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | type);
    header.job = asked.job;
    header.generation = asked.generation;
    header.source = asked.source;
    header.boot = inagg_swap16(boot_);
    return header;
}

// The same about the packet's block.
inagg_hdr Server::answer(const Job &job, const Packet &packet, inagg_type type, bool everyone) const {
    inagg_hdr header = answer(packet.header, type);
    header.level_flags = inagg_swap16(packet.flags & INAGG_F_VERSION);
    if (everyone) // switches below pass it on likewise
        header.level_flags |= inagg_swap16(INAGG_F_MULTICAST);
    header.block = packet.header.block;
    header.slot = packet.header.slot;
    header.fan_in = inagg_swap16(job.record.size);
    if (job.record.algorithm == INAGG_ATP)
        header.switch_id = packet.header.switch_id;
    return header;
}

void Server::send_result(const Job &job, const Slot &slot, const Packet &packet, bool everyone) {
    inagg_hdr header = answer(job, packet, INAGG_RESULT, everyone);
    const unsigned flags = (packet.flags & INAGG_F_RESEND) | (slot.marks & INAGG_F_CONGESTION) |
                           (slot.state.flags & INAGG_SLOT_SATURATED ? INAGG_F_SATURATED : 0);
    header.level_flags |= inagg_swap16(static_cast<uint16_t>(flags));
    header.count = header.fan_in;
    header.contributors = inagg_swap64(slot.state.seen);
    header.dtype_op = slot.state.dtype_op;
    header.scale = slot.state.scale;
    header.next_scale = slot.state.next_scale;
    header.elements = inagg_swap16(slot.state.elements);
    if (job.record.algorithm == INAGG_ATP)
        header.window_cap = inagg_swap16(slot.next);
    const std::span lanes(lanes_of(job, slot), slot.state.elements);
    send_block(job, header, std::as_bytes(lanes), everyone);
}

void Server::send_wait(Job &job, const Slot &slot, const Packet &packet, bool everyone) {
    inagg_hdr header = answer(job, packet, INAGG_WAIT, everyone);
    if (inagg_raw_holds(&slot.state, &packet.block))
        header.level_flags |= inagg_swap16(INAGG_F_SATURATED);
    header.contributors = inagg_swap64(inagg_slot_seen(&slot.state, &packet.block));
    job.stats.waits++;
    send_block(job, header, {}, everyone);
}

// To the rank in the header, or to all.
void Server::send_block(const Job &job, inagg_hdr &header, std::span<const std::byte> payload, bool everyone) {
    if (is_flagged(job.record, INAGG_JOIN_CHECKED))
        inagg_hdr_seal_checked(&header, inagg_payload_checksum(payload.data(), static_cast<uint32_t>(payload.size())));
    else
        inagg_hdr_seal(&header);
    const std::span<const Endpoint> one(&job.at[inagg_swap16(header.source)], 1);
    outbox_.send(header, payload, everyone ? std::span<const Endpoint>(job.everyone) : one);
}

void Server::refuse(const inagg_hdr &asked, const struct inagg_join &join, inagg_reason reason, const Endpoint &to,
                    uint64_t challenge) {
    const inagg_hdr header = refusal(asked, join, reason, to, challenge);
    outbox_.send(header, std::as_bytes(std::span(&join, 1)), {&to, 1});
}

inagg_hdr Server::refusal(const inagg_hdr &asked, const struct inagg_join &join, inagg_reason reason, const Endpoint &to,
                          uint64_t challenge) const {
    inagg_hdr header = answer(asked, INAGG_REFUSED);
    header.slot = inagg_swap32(static_cast<uint32_t>(reason));
    inagg_hdr_set_challenge(&header, challenge);
    gate_.prove(header, join, to.address);
    inagg_hdr_seal_checked(&header, inagg_body_checksum(&join));
    return header;
}

// Probably a rank that this server has forgotten, because it was restarted. It proves nothing to the rank, but makes it
// ask again as who it is: see join().
void Server::answer_stranger(const Packet &packet) {
    if (limits_of(packet.from).strangers.take(packet.now) && in_all_.strangers.take(packet.now))
        refuse(packet.header, {}, INAGG_R_JOB, packet.from);
}

// Who floods takes from those whose addresses come to the same of many limits; which ones, nobody can know.
Server::Limits &Server::limits_of(const Endpoint &from) {
    return limits_[inagg_siphash(&limits_key_, from.address.bytes.data(), from.address.bytes.size()) % limits_.size()];
}

// Membership.

void Server::membership(const Packet &packet) {
    struct inagg_join body;
    if (packet.body.size() != sizeof body) {
        no_job_.drops[INAGG_R_LENGTH]++;
        return;
    }
    std::memcpy(&body, packet.body.data(), sizeof body);
    if (!inagg_packet_intact(&packet.header, inagg_body_checksum(&body))) {
        no_job_.drops[INAGG_R_PAYLOAD_CHECKSUM]++;
        return;
    }
    if (inagg_hdr_type(&packet.header) == INAGG_JOIN)
        return join(packet, body);
    const inagg_event event = event_of(packet.header, body, packet.from);
    const auto objection = gate_.objection(event, packet.now);
    const Outcome outcome = objection ? *objection : book_.leave(event, packet.now);
    log_decision(event, packet.from, outcome);
    apply(outcome);
}

void Server::join(const Packet &packet, const struct inagg_join &body) {
    const uint16_t number = inagg_swap16(packet.header.job);
    const Endpoint to{packet.from.address, body.receive_port};
    if (Job *job = find(number); job && has_joined(*job, packet, body))
        return configure(*job, packet, body);
    const inagg_event event = event_of(packet.header, body, packet.from);
    const auto objection = gate_.objection(event, packet.now);
    const bool has_key = gate_.key(number) && (!objection || objection->reason == INAGG_R_CHALLENGE);
    const bool proven = has_key && !objection; // else it may be a copy
    const bool too_many =
        (!proven && !limits_of(packet.from).joins.take(packet.now)) || (!has_key && !in_all_.joins.take(packet.now));
    if (too_many) { // it asks again
        no_job_.drops[INAGG_R_RATE]++;
        return;
    }
    const Outcome outcome = objection ? *objection : book_.join(event, packet.now);
    log_decision(event, packet.from, outcome);
    apply(outcome);
    if (outcome.reason) {
        const bool is_free = proven || outcome.reason == INAGG_R_CHALLENGE;
        if (!is_free && !(limits_of(packet.from).refusals.take(packet.now) && in_all_.refusals.take(packet.now))) {
            no_job_.drops[INAGG_R_RATE]++;
            return;
        }
        no_job_.joins++;
        refuse(packet.header, body, outcome.reason, to, gate_.challenge(event, packet.now));
    } else if (Job *job = find(number); job && has_joined(*job, packet, body)) {
        configure(*job, packet, body);
    }
}

bool Server::has_joined(const Job &job, const Packet &packet, const struct inagg_join &body) const {
    const uint16_t rank = packet.block.rank;
    return rank < job.record.size && job.at[rank] == Endpoint{packet.from.address, body.receive_port} &&
           book_.jobs().at(job.number).members[rank].nonce == body.nonce;
}

// A switch hears who is behind it once all ranks are known; until then it asks again.
void Server::configure(Job &job, const Packet &packet, const struct inagg_join &body) {
    const inagg_job &record = job.record;
    const uint16_t rank = packet.block.rank;
    const bool is_switch = book_.jobs().at(job.number).members[rank].flags & INAGG_MEMBER_SWITCH;
    const uint64_t ranks = is_switch ? job.subtree[rank] : record.all;
    job.heard = true;
    if (!ranks)
        return;
    inagg_hdr header = answer(packet.header, INAGG_CONFIG);
    header.generation = inagg_swap16(record.generation);
    header.fan_in = inagg_swap16(record.size);
    header.contributors = inagg_swap64(ranks);
    inagg_config config{};
    config.nonce = body.nonce;
    config.size = inagg_swap16(record.size);
    config.elements = inagg_swap16(record.elements);
    config.slots = inagg_swap32(record.slots);
    config.control_slots = inagg_swap32(record.control_slots);
    config.algorithm = record.algorithm;
    config.flags = record.flags;
    struct inagg_join sent;
    static_assert(sizeof sent == sizeof config);
    std::memcpy(&sent, &config, sizeof sent);
    gate_.prove(header, sent, packet.from.address);
    inagg_hdr_seal_checked(&header, inagg_body_checksum(&sent));
    job.stats.joins++;
    outbox_.send(header, std::as_bytes(std::span(&sent, 1)), {&job.at[rank], 1});
}

// Jobs.

void Server::apply(const Outcome &outcome) {
    for (const Outcome::Change &change : outcome.changes) {
        if (change.kind == Kind::remove)
            remove(change.job);
        else if (!book_.jobs().contains(change.job))
            continue; // a later change of this outcome removes it
        else if (change.kind == Kind::renew)
            renew(change.job);
        if (Job *job = find(change.job))
            seat(*job);
    }
    for (const Displaced &gone : outcome.displaced)
        farewell(gone)();
    gate_.forget_gone(outcome, book_);
}

// Tells a rank that it is out.
std::function<void()> Server::farewell(const Displaced &gone) const {
    inagg_hdr header{};
    header.job = inagg_swap16(gone.job);
    header.source = inagg_swap16(gone.rank);
    header.generation = inagg_swap16(gone.generation);
    struct inagg_join join {};
    join.nonce = gone.member.nonce;
    const Endpoint to = endpoint_of(gone.member);
    return [this, join, to, header = refusal(header, join, gone.reason, to, 0)] {
        outbox_.send(header, std::as_bytes(std::span(&join, 1)), {&to, 1});
    };
}

// A new job, or a new generation of it: slots that hold nothing.
void Server::renew(uint16_t number) {
    const inagg_job &record = book_.jobs().at(number).record;
    Job &job = jobs_[number];
    const std::size_t positions = pool_slots(record);
    job.number = number;
    job.record = record;
    job.slots.assign(2 * positions, {});
    job.lanes = std::make_unique_for_overwrite<uint32_t[]>(2 * positions * record.elements);
    job.moves.assign(positions, 0);
    job.raw.clear();
    const inagg::LogFields about{{"job", number}};
    spdlog::info("job {}: generation {}, {} ranks, {}, {}+{} slots, {} elements per packet{}", number, record.generation,
                 record.size, algorithm_name(record.algorithm), record.slots, record.control_slots, record.elements,
                 is_flagged(record, INAGG_JOIN_CHECKED) ? ", payloads checked" : "");
}

// Ranks came or went.
void Server::seat(Job &job) {
    const JobState &state = book_.jobs().at(job.number);
    job.everyone.clear();
    for (uint32_t rank = 0; rank < INAGG_MAX_RANKS; rank++) {
        job.at[rank] = endpoint_of(state.members[rank]);
        job.subtree[rank] = rank < job.record.size ? subtree_of(state, rank) : 0;
        if (job.at[rank].port && !is_represented(state, rank))
            job.everyone.push_back(job.at[rank]);
    }
}

void Server::remove(uint16_t number) {
    const auto job = jobs_.find(number);
    if (job == jobs_.end())
        return;
    add(past_, job->second.stats);
    jobs_.erase(job);
    const inagg::LogFields about{{"job", number}};
    spdlog::info("job {}: removed", number);
}

void Server::add_job(const JobSpec &spec, Time now) {
    const auto port_index = [&](const std::string &port) {
        if (port != "any")
            throw Error("job {}: member on port '{}': a server has no ports, write RANK@any/ADDRESS", spec.number, port);
        return only_port;
    };
    const auto key = key_of(spec);
    if (key && book_.jobs().contains(spec.number))
        gate_.need_key(spec.number, *key);
    const Outcome outcome = book_.add(spec, port_index, now);
    if (key)
        gate_.set_key(spec.number, *key);
    apply(outcome);
}

void Server::tick(Time now) {
    for (auto &[number, job] : jobs_)
        if (std::exchange(job.heard, false))
            book_.heard(number, now);
    const Outcome expired = book_.expire(now);
    for (const Outcome::Change &change : expired.changes) {
        const inagg::LogFields about{{"job", change.job}};
        spdlog::warn("job {}: no further rank of its {} has joined for {} s (--join-timeout)", change.job, change.record.size,
                     book_.policy().join.count());
    }
    apply(expired);
}

std::vector<std::function<void()>> Server::end() {
    std::vector<std::function<void()>> farewells;
    while (!book_.jobs().empty()) {
        const Outcome outcome = book_.remove(book_.jobs().begin()->first);
        for (const Displaced &gone : outcome.displaced)
            farewells.push_back(farewell(gone)); // while the job's key is known
        apply(outcome);
    }
    return farewells;
}

} // namespace ps
