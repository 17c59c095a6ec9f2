// SPDX-License-Identifier: BSD-2-Clause
#include "engine.hpp"

#include "errors.hpp"

#include <inagg/core/aggregator.h>
#include <inagg/core/checksum.h>
#include <inagg/core/fixed.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <utility>

namespace inagg {

uint64_t monotonic_ns() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

namespace {

// The reaction, INAGG_AIMD for example, that an enum inagg_congestion_control means.
uint8_t reaction(int control, uint8_t algorithm) {
    switch (control) {
    case INAGG_CONGESTION_NONE:
        return INAGG_UNCONTROLLED;
    case INAGG_CONGESTION_AIMD:
        return INAGG_AIMD;
    case INAGG_CONGESTION_DCTCP:
        return INAGG_DCTCP;
    default:
        return inagg_reaction_of(algorithm);
    }
}

} // namespace

Engine::Engine(std::string name, std::unique_ptr<PacketIo> io, const Membership &membership, BlockClient &client,
               const inagg_options &options, Owned owned)
    : name_(std::move(name)), io_(std::move(io)), membership_(membership),
      client_(client), boots_{membership.config.boot, 0, 0, 0}, history_mib_(options.history_mib),
      reaction_(reaction(options.congestion_control, membership.config.algorithm)) {
    const unsigned owners[stream_count] = {own_data, own_control};
    for (int i = 0; i < stream_count; i++)
        streams_[i].owned = owned & owners[i];
    try {
        start_streams();
    } catch (...) { // without memory: the others count on this rank
        leave();
        throw;
    }
}

// Both from block 0.
void Engine::start_streams() {
    const JobConfig &job = membership_.config;
    io_->join_blocks(job);
    const uint32_t counts[stream_count] = {job.slots, job.control_slots};
    uint32_t first_slot = 0;
    for (int i = 0; i < stream_count; i++) {
        const bool owned = streams_[i].owned;
        StreamState &s = streams_[i] = {};
        s.stream = static_cast<Stream>(i);
        s.owned = owned;
        s.first_slot = first_slot;
        if (s.stream == Stream::data || !trio())
            s.payload_bytes = std::size_t{job.elements} * 4;
        first_slot += counts[i];
        inagg_worker_init(&s.worker, counts[i], 0);
        inagg_congestion_init(&s.congestion, s.stream == Stream::data ? reaction_ : uint8_t{INAGG_UNCONTROLLED}, counts[i]);
        if (!s.owned)
            continue;
        s.slots.resize(counts[i]);
        for (uint32_t index = 0; index < counts[i]; index++)
            inagg_wslot_init(&s.slots[index], index);
        s.records.resize(counts[i]);
        for (uint32_t index = 0; atp() && index < counts[i]; index++)
            s.records[index].aggregator = inagg_aggregator_index(job.job, s.first_slot + index, 0);
        s.history = History(job, counts[i], uint64_t{history_mib_} << 20, s.payload_bytes);
    }
    if (job.algorithm != INAGG_CANARY)
        return;
    leader_ = std::make_unique<Leader>(membership_.config, *io_);
    for (std::vector<Led> *blocks : {&completed_, &finishing_})
        blocks->reserve(first_slot); // at most one of each slot
}

Engine::~Engine() = default;

void Engine::extend(Stream stream, uint32_t limit) {
    StreamState &s = streams_[static_cast<int>(stream)];
    now_ = monotonic_ns();
    const uint32_t from = s.worker.limit;
    if (!is_waiting(s)) {
        inagg_worker_restart(&s.worker);
        if (std::ranges::none_of(streams_, is_waiting))
            waiting_since_ = now_;
    }
    s.worker.limit = limit;
    if (controlled(s))
        return open_in_order(s);
    open(s, from, from + std::min(limit - from, s.worker.slots));
}

bool Engine::progress(std::chrono::nanoseconds wait) {
    const uint64_t before = packets_;
    now_ = monotonic_ns();
    const bool finished = finish_led();
    const uint64_t due = earliest_due();
    const uint64_t until_due = due > now_ ? due - now_ : 0;
    const auto longest = finished ? 0 : static_cast<uint64_t>(std::max<int64_t>(wait.count(), 0));
    receive(std::chrono::nanoseconds(std::min(longest, until_due)));
    run_timers();
    if (stuck())
        inagg_membership_doubt(&membership_, now_);
    inagg::say_present(*io_, membership_, now_);
    // Nobody may come back soon to send what was queued; of a leader that may be what others wait for.
    if (longest == 0 || leader_)
        io_->flush();
    if (ended_)
        throw *ended_;
    if (wrong_)
        throw *wrong_;
    return finished || packets_ != before;
}

bool Engine::is_waiting(const StreamState &s) {
    return std::ranges::any_of(s.slots, [](const inagg_wslot &slot) { return slot.state == INAGG_WSLOT_SENT; });
}

bool Engine::stuck() const {
    const auto is_stuck = [this](const StreamState &s) { return inagg_worker_stuck(&s.worker, now_); };
    return now_ >= waiting_since_ + INAGG_RTO_CEILING_NS && std::ranges::all_of(streams_, is_stuck) &&
           std::ranges::any_of(streams_, is_waiting);
}

bool Engine::renew() {
    if (!renewed_ && !membership_.next_nonce)
        inagg_membership_renew(&membership_, random_nonce());
    return std::exchange(renewed_, false);
}

// True if a packet came.
bool Engine::receive(std::chrono::nanoseconds wait) {
    const uint64_t before = packets_;
    io_->receive(*this, wait);
    finish_led();
    for (StreamState &s : streams_)
        if (std::exchange(s.answered, false))
            detect_overtaken(s);
    return packets_ != before;
}

uint64_t Engine::earliest_due() const { return std::min(streams_[0].earliest_due, streams_[1].earliest_due); }

// A process that did not run for a while finds its timers due and the answers there: the answers count.
void Engine::run_timers() {
    constexpr int most_batches = 16; // of packets that keep coming
    now_ = monotonic_ns();
    for (int i = 0; i < most_batches && now_ >= earliest_due() && receive(std::chrono::nanoseconds(0)); i++)
        now_ = monotonic_ns();
    for (StreamState &s : streams_)
        if (now_ >= s.earliest_due)
            run_timers(s);
}

bool Engine::stalled(Stalled &out) const {
    // A switch or leader may have died since it answered: then it is who is missing, and not whom it named. Ranks ask more often.
    constexpr uint64_t silence = 3 * INAGG_RTO_CEILING_NS;
    for (const StreamState &s : streams_) {
        const inagg_wslot *oldest = nullptr;
        for (const inagg_wslot &slot : s.slots)
            if (slot.state == INAGG_WSLOT_SENT && (!oldest || inagg_before(slot.block, oldest->block)))
                oldest = &slot;
        if (!oldest)
            continue;
        const SlotRecord &record = s.records[oldest - s.slots.data()];
        const bool silent = now_ - record.heard_ns > silence;
        const bool heard = record.heard && record.heard_block == oldest->block && !silent;
        const uint32_t behind = s.beyond - oldest->block, position = position_of(s, oldest->block);
        out = {s.stream,
               oldest->block,
               heard,
               membership_.config.tree != 0,
               heard ? record.contributors : 0,
               trio() && behind > s.history.blocks() && behind < INT32_MAX ? s.history.blocks() : 0,
               leader_ ? static_cast<int>(inagg_leader_of(membership_.config.size, position)) : -1};
        if (leads(s, oldest->block)) {
            out.heard = true;
            out.contributors = leader_->seen(position, oldest->block);
        }
        return true;
    }
    return false;
}

inagg_stats_t Engine::stats() const {
    inagg_stats_t stats = stats_;
    const StreamState &busiest = streams_[streams_[0].worker.srtt_ns ? 0 : 1];
    stats.srtt_ns = busiest.worker.srtt_ns;
    stats.cuts = streams_[0].congestion.cuts;
    if (leader_) {
        stats.parts = leader_->parts();
        stats.reissues = leader_->reissues();
        stats.restores = leader_->replies();
    }
    return stats;
}

std::chrono::nanoseconds Engine::linger() const {
    if (!leader_)
        return {};
    // The first question of others comes after one; where answers get lost, so may questions.
    const uint64_t timeouts = leader_->replies() ? 6 : 2;
    const StreamState &control = streams_[static_cast<int>(Stream::control)];
    const bool asked = membership_.config.size > 1 && leads(control, control.worker.limit - 1);
    return std::chrono::nanoseconds(asked ? timeouts * control.worker.rto_ns : 0);
}

void Engine::leave() { inagg::leave(*io_, membership_); }

// Receiving.

void Engine::packet(std::span<const std::byte> payload, bool congested) noexcept {
    try {
        take(payload, congested);
    } catch (const std::exception &) { // out of memory
        wrong_ = current_error();
    }
}

void Engine::take(std::span<const std::byte> payload, bool congested) {
    packets_++;
    now_ = monotonic_ns();
    inagg_hdr header;
    if (payload.size() < sizeof(header)) {
        stats_.rejected++;
        return;
    }
    std::memcpy(&header, payload.data(), sizeof(header));
    const auto body = payload.subspan(sizeof(header));
    if (inagg_answer_admits(&membership_.config, &header)) {
        stats_.rejected++;
        return;
    }
    congested_ = congested;
    switch (inagg_hdr_type(&header)) {
    case INAGG_CONTRIBUTION:
    case INAGG_PARTIAL:
    case INAGG_REQUEST:
        on_led(header, body);
        break;
    case INAGG_RESULT:
    case INAGG_WAIT:
    case INAGG_BLOCK_FAILED:
        if (StreamState *s = stream_of(inagg_swap32(header.slot)))
            on_block(*s, header, body);
        else
            stats_.rejected++;
        break;
    case INAGG_REFUSED:
        on_refused(header, body);
        break;
    case INAGG_CONFIG:
        on_config(header, body);
        break;
    default:
        stats_.rejected++;
    }
}

bool Engine::admits(const StreamState &s, const inagg_hdr &header, std::span<const std::byte> body) const {
    const auto bytes = static_cast<uint32_t>(body.size());
    if (bytes > s.payload_bytes || (inagg_hdr_type(&header) == INAGG_BLOCK_FAILED && !leader_))
        return false;
    if (leads(s, inagg_swap32(header.block))) // nobody else knows
        return false;
    if (inagg_block_admits(&membership_.config, &s.worker, s.first_slot, &header, bytes))
        return false;
    return !membership_.config.checked || inagg_packet_intact(&header, inagg_payload_checksum(body.data(), bytes));
}

Engine::StreamState *Engine::stream_of(uint32_t slot) {
    for (StreamState &s : streams_)
        if (s.owned && slot - s.first_slot < s.worker.slots)
            return &s;
    return nullptr;
}

void Engine::on_block(StreamState &s, const inagg_hdr &header, std::span<const std::byte> body) {
    if (!admits(s, header, body)) {
        stats_.rejected++;
        return;
    }
    const uint32_t block = inagg_swap32(header.block);
    on_boot(inagg_swap16(header.boot));
    if (inagg_hdr_type(&header) == INAGG_RESULT)
        on_result(s, block, header, body);
    else
        on_wait(s, block, header);
}

// For the leader of a block.
void Engine::on_led(const inagg_hdr &header, std::span<const std::byte> body) {
    const int verdict = leader_ ? leader_->receive(header, body) : -INAGG_R_TYPE;
    if (verdict < 0) {
        stats_.rejected += verdict != -INAGG_R_DUPLICATE;
        return;
    }
    on_boot(inagg_swap16(header.boot));
    if (verdict == INAGG_COMPLETES)
        completed_.push_back({stream_of(inagg_swap32(header.slot)), inagg_swap32(header.block)});
}

void Engine::on_boot(uint16_t boot) {
    if (!inagg_boot_heard(&boots_, boot, now_))
        return;
    membership_.config.boot = boot;
    stats_.reboots++;
    for (StreamState &s : streams_) {
        for (inagg_wslot &slot : s.slots)
            if (!leads(s, slot.block))
                inagg_worker_rebooted(&slot);
        s.earliest_due = now_;
    }
}

void Engine::on_result(StreamState &s, uint32_t block, const inagg_hdr &header, std::span<const std::byte> body) {
    const uint32_t index = inagg_slot_index(&s.worker, block);
    inagg_wslot &slot = s.slots[index];
    BlockMeta meta = inagg_hdr_meta(&header);
    const bool awaited = slot.state == INAGG_WSLOT_SENT && slot.block == block;
    const bool believed = inagg_wslot_believes(&slot, block, meta.epoch);
    if (believed && awaited && !verify(s, block, meta, body))
        return; // as if it were lost
    if (inagg_before(s.beyond, block + 1))
        s.beyond = block + 1;
    const unsigned flags = inagg_swap16(header.level_flags);
    const bool repaired = flags & INAGG_F_RESEND;
    if (leader_)
        inagg_worker_told(&s.worker, &slot, block, inagg_swap16(header.window_cap), now_);
    switch (inagg_history_result(s.history.core(), &s.worker, &slot, block, &meta, repaired, now_)) {
    case INAGG_W_ACCEPT:
        s.answered = true;
        stats_.blocks++;
        if (atp())
            s.records[index].aggregator = inagg_swap16(header.window_cap);
        if (controlled(s))
            inagg_congestion_result(&s.congestion, block, congested_ || flags & INAGG_F_CONGESTION,
                                    inagg_result_cap(&membership_.config, &header));
        deliver(s, *s.history.keep(block, meta, body));
        break;
    case INAGG_W_KEEP:
        stats_.blocks++;
        s.history.keep(block, meta, body);
        break;
    default:
        stats_.duplicates++;
        return;
    }
    if (controlled(s))
        return open_in_order(s);
    open(s, slot);
    open_capped(s);
}

bool Engine::verify(StreamState &s, uint32_t block, BlockMeta &meta, std::span<const std::byte> body) {
    if (client_.verify(s.stream, block, meta, body.data()))
        return true;
    stats_.mismatches++;
    inagg_doubt &doubt = s.records[inagg_slot_index(&s.worker, block)].doubt;
    const uint32_t sum = inagg_payload_checksum(body.data(), static_cast<uint32_t>(body.size()));
    if (inagg_doubt_another(&doubt, block, sum, stats_.mismatches))
        wrong_ = no_sum(membership_.config.job, membership_.switch_address, s.stream, block, !doubt.differ);
    return false;
}

void Engine::deliver(StreamState &s, const History::Result &result) {
    stats_.degraded += result.meta.contributors != inagg_all_ranks(membership_.config.size);
    client_.store(s.stream, result.block, result.meta, s.history.payload(result));
}

// Blocks that this rank led. Not where they complete: what the client then opens may complete, too, and so
// on. True if there were any.
bool Engine::finish_led() {
    const bool any = !completed_.empty();
    while (!completed_.empty()) {
        std::swap(completed_, finishing_);
        for (const Led &led : finishing_)
            finish_led(*led.stream, led.block);
        finishing_.clear();
    }
    return any;
}

void Engine::finish_led(StreamState &s, uint32_t block) {
    inagg_wslot &slot = s.slots[inagg_slot_index(&s.worker, block)];
    if (inagg_worker_completed(&s.worker, &slot, block) != INAGG_W_ACCEPT)
        return;
    stats_.blocks++;
    Leader::Result result = leader_->result(position_of(s, block), block);
    if (!client_.verify(s.stream, block, result.meta, result.payload)) {
        stats_.mismatches++;
        wrong_ = no_sum(membership_.config.job, membership_.switch_address, s.stream, block, true);
        return;
    }
    try {
        client_.store(s.stream, block, result.meta, result.payload);
    } catch (const std::exception &) { // for the others the result is in the queue, and goes first
        wrong_ = current_error();
        return;
    }
    open(s, slot);
}

void Engine::on_wait(StreamState &s, uint32_t block, const inagg_hdr &header) {
    const uint32_t index = inagg_slot_index(&s.worker, block);
    inagg_wslot &slot = s.slots[index];
    const bool waiting = slot.state == INAGG_WSLOT_SENT && slot.block == block;
    SlotRecord &record = s.records[index];
    const uint64_t contributors = inagg_swap64(header.contributors);
    if (waiting)
        record.heard_ns = now_;
    if (header.window_cap && !leader_)
        return on_full(s, block, inagg_swap16(header.window_cap));
    if (waiting) {
        record.heard = true;
        record.heard_block = block;
        record.contributors = contributors;
    }
    s.answered = true;
    const int action = heed(s, slot, block, header);
    if (action == INAGG_W_RESTORE)
        send_restore(s, block);
    else
        act(s, slot, action);
}

int Engine::heed(StreamState &s, inagg_wslot &slot, uint32_t block, const inagg_hdr &header) {
    const uint64_t contributors = inagg_swap64(header.contributors);
    const uint16_t rank = membership_.config.rank, epoch = inagg_swap16(header.switch_id);
    if (leader_) {
        inagg_worker_told(&s.worker, &slot, block, inagg_swap16(header.window_cap), now_);
        return inagg_worker_failed(&s.worker, &slot, block, contributors, rank, epoch,
                                   header.level_flags & inagg_swap16(INAGG_F_BYPASS), now_);
    }
    if (!trio()) {
        const bool raw = atp() && s.stream == Stream::data && header.level_flags & inagg_swap16(INAGG_F_SATURATED);
        return inagg_worker_wait_raw(&s.worker, &slot, block, contributors, rank, raw, now_);
    }
    return inagg_history_wait(s.history.core(), &s.worker, &slot, block, contributors, rank, epoch, now_);
}

// The switch had no room for a block.
void Engine::on_full(StreamState &s, uint32_t block, uint16_t cap) {
    stats_.refused++;
    inagg_worker_refused(&s.worker, &s.slots[inagg_slot_index(&s.worker, block)], block, cap);
    s.held_back |= s.worker.cap != 0;
}

// The answer to a repeated JOIN, or to that for the next generation.
void Engine::on_config(const inagg_hdr &header, std::span<const std::byte> body) {
    inagg_config answer;
    if (body.size() != sizeof(answer) || !is_believed(membership_, header, body)) {
        stats_.rejected++;
        return;
    }
    std::memcpy(&answer, body.data(), sizeof(answer));
    if (inagg_membership_config(&membership_, &membership_.config, &header, &answer) != INAGG_RENEWED)
        return;
    renewed_ = true;
    start_streams();
}

void Engine::on_refused(const inagg_hdr &header, std::span<const std::byte> body) {
    inagg_refusal refusal;
    if (body.size() != sizeof(refusal) || !is_believed(membership_, header, body)) {
        stats_.rejected++;
        return;
    }
    std::memcpy(&refusal, body.data(), sizeof(refusal));
    if (const auto error = ended_by(membership_, header, refusal))
        ended_ = error;
}

// Answers came: what was sent before what they answer may be lost.
void Engine::detect_overtaken(StreamState &s) {
    for (inagg_wslot &other : s.slots) {
        const bool lost = overtaken(s, other);
        if (lost && other.overtaken && !other.resent && controlled(s)) // what timers sent says nothing about the network
            inagg_congestion_cut(&s.congestion, other.block);
        if (lost)
            act(s, other, expire(s, other));
        else if (other.overtaken)
            s.earliest_due = std::min<uint64_t>(s.earliest_due, other.due_ns);
    }
}

bool Engine::overtaken(StreamState &s, inagg_wslot &slot) const {
    if (!leader_)
        return inagg_worker_overtaken(&s.worker, &slot, now_);
    return !leads(s, slot.block) && inagg_worker_overtaken_at_leader(&s.worker, &slot, now_);
}

int Engine::expire(StreamState &s, inagg_wslot &slot) const {
    return leader_ ? inagg_worker_ask(&s.worker, &slot, now_) : inagg_worker_timeout(&s.worker, &slot, now_);
}

// Timers and sending.

void Engine::run_timers(StreamState &s) {
    uint64_t earliest = UINT64_MAX;
    open_capped(s);
    for (inagg_wslot &slot : s.slots) {
        act(s, slot, expire(s, slot));
        if (slot.state == INAGG_WSLOT_SENT)
            earliest = std::min<uint64_t>(earliest, slot.due_ns);
    }
    s.earliest_due = earliest;
}

void Engine::open(StreamState &s, inagg_wslot &slot) {
    if (s.stream == Stream::control) // who does not answer computes, and does not stay for long after the last of them
        slot.lag = 0;
    skip_decided(s, slot);
    act(s, slot, inagg_worker_open(&s.worker, &slot, now_));
}

void Engine::open(StreamState &s, uint32_t from, uint32_t to) {
    for (uint32_t block = from; block != to; block++) {
        inagg_wslot &slot = s.slots[inagg_slot_index(&s.worker, block)];
        if (slot.block == block)
            open(s, slot);
    }
}

// What the switch has no room for yet waits in idle slots: time and results make room for some of it, and for all once there is
// no cap.
void Engine::open_capped(StreamState &s) {
    if (!s.worker.cap && !s.held_back)
        return;
    s.held_back = s.worker.cap;
    if (controlled(s))
        return open_in_order(s);
    for (inagg_wslot &slot : s.slots)
        open(s, slot);
}

// As far as the network has room.
void Engine::open_in_order(StreamState &s) {
    while (inagg_congestion_has_room(&s.congestion)) {
        inagg_wslot &slot = s.slots[inagg_slot_index(&s.worker, s.congestion.next)];
        if (slot.block != s.congestion.next || inagg_worker_open(&s.worker, &slot, now_) != INAGG_W_SEND)
            return;
        inagg_congestion_sent(&s.congestion);
        act(s, slot, INAGG_W_SEND);
    }
}

// Takes the results of blocks that were decided without this rank. To store one may move the limit and open slots,
// this one, too.
void Engine::skip_decided(StreamState &s, inagg_wslot &slot) {
    while (const History::Result *result = inagg_history_decided(s.history.core(), &s.worker, &slot)) {
        BlockMeta meta = result->meta;
        if (!verify(s, slot.block, meta, {s.history.payload(*result), inagg_block_bytes(&meta)}))
            return s.history.forget(slot.block);
        stats_.skipped++;
        inagg_worker_skip(&s.worker, &slot);
        deliver(s, {.meta = meta, .block = result->block, .kept = 1, .reserved = {}});
    }
}

void Engine::act(StreamState &s, inagg_wslot &slot, int action) {
    switch (action) {
    case INAGG_W_SEND:
        if (leads(s, slot.block))
            return lead(s, slot);
        stats_.contributions++;
        send_contribution(s, slot, false);
        break;
    case INAGG_W_RESEND:
    case INAGG_W_RESEND_ASK_ALL:
        stats_.retransmissions++;
        send_contribution(s, slot, true);
        if (action == INAGG_W_RESEND_ASK_ALL)
            send_request(s, slot, true);
        break;
    case INAGG_W_REQUEST:
    case INAGG_W_REQUEST_ALL:
        send_request(s, slot, action == INAGG_W_REQUEST_ALL);
        break;
    default:
        return;
    }
    s.earliest_due = std::min<uint64_t>(s.earliest_due, slot.due_ns);
}

inagg_hdr Engine::header(const StreamState &s, inagg_type type, uint32_t block, unsigned flags) const {
    inagg_hdr header = header_for(membership_.config, type);
    header.level_flags |= inagg_swap16(static_cast<uint16_t>(flags));
    inagg_hdr_set_block(&header, &s.worker, s.first_slot, block);
    return header;
}

static std::size_t payload_bytes_of(const inagg_hdr &header) {
    const BlockMeta meta = inagg_hdr_meta(&header);
    return inagg_block_bytes(&meta);
}

// What others send completes the block: there is nothing to wait for that a timer could bring.
void Engine::lead(StreamState &s, inagg_wslot &slot) {
    slot.due_ns = UINT64_MAX;
    std::byte *frame = io_->reserve(); // not to be sent
    const inagg_hdr h = load(s, slot, false, frame);
    if (leader_->contribute(h, {frame + sizeof(h), payload_bytes_of(h)}) == INAGG_COMPLETES)
        completed_.push_back({&s, slot.block});
}

void Engine::send_contribution(StreamState &s, const inagg_wslot &slot, bool resend) {
    std::byte *frame = io_->reserve();
    inagg_hdr h = load(s, slot, resend, frame);
    commit(h, frame, payload_bytes_of(h));
}

// A CONTRIBUTION: its elements to their place in the frame, and its header.
inagg_hdr Engine::load(StreamState &s, const inagg_wslot &slot, bool resend, std::byte *frame) {
    std::byte *payload = frame + sizeof(inagg_hdr);
    BlockMeta meta = slot.raw ? client_.load_raw(slot.block, payload) : client_.load(s.stream, slot.block, payload);
    // both are `switch_id`
    meta.epoch = atp() ? s.records[inagg_slot_index(&s.worker, slot.block)].aggregator : slot.epoch;
    if (!resend)
        stats_.abstained += meta.absent;
    inagg_hdr h = header(s, INAGG_CONTRIBUTION, slot.block, (resend ? INAGG_F_RESEND : 0) | (slot.bypass ? INAGG_F_BYPASS : 0));
    inagg_hdr_set_meta(&h, &meta);
    if (slot.bypass) // each time by another way
        h.window_cap = inagg_swap16(inagg_wslot_question(&slot));
    return h;
}

void Engine::send_request(StreamState &s, const inagg_wslot &slot, bool everyone) {
    stats_.requests++;
    inagg_hdr h = header(s, INAGG_REQUEST, slot.block, everyone ? INAGG_F_MULTICAST : 0);
    h.switch_id = inagg_swap16(leader_ ? slot.epoch : s.records[inagg_slot_index(&s.worker, slot.block)].aggregator);
    h.window_cap = inagg_swap16(inagg_wslot_question(&slot));
    commit(h, io_->reserve(), 0);
}

void Engine::send_restore(StreamState &s, uint32_t block) {
    const History::Result *result = s.history.find(block);
    if (!result)
        return;
    stats_.restores++;
    const std::size_t bytes = inagg_block_bytes(&result->meta);
    std::byte *frame = io_->reserve();
    if (bytes)
        std::memcpy(frame + sizeof(inagg_hdr), s.history.payload(*result), bytes);
    inagg_hdr h = header(s, INAGG_RESTORE, block, 0);
    inagg_hdr_set_meta(&h, &result->meta);
    inagg_hdr_set_contributors(&h, &result->meta);
    commit(h, frame, bytes);
}

void Engine::commit(inagg_hdr &header, std::byte *frame, std::size_t payload_bytes) {
    inagg::commit(*io_, membership_.config, header, frame, payload_bytes);
}

} // namespace inagg
