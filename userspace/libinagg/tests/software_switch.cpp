// SPDX-License-Identifier: BSD-2-Clause
#include "software_switch.hpp"
#include "common/expiry.hpp"

#include <inagg/core/checksum.h>
#include <inagg/core/fixed.h>
#include <inagg/core/merge.h>
#include <inagg/core/packet.h>
#include <inagg/core/tree.h>

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <system_error>

namespace inagg {

namespace {

constexpr std::size_t max_packet = sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD;
constexpr int every_rank = -1;
constexpr uint16_t sweeps_in_expiry = 4;
constexpr uint64_t shortest_sweep_ns = 1'000'000;

std::system_error failure(const char *what) { return {errno, std::generic_category(), what}; }

bool is_here(uint8_t algorithm) {
    return algorithm == INAGG_SWITCHML || algorithm == INAGG_TRIO || algorithm == INAGG_PANAMA || algorithm == INAGG_CANARY;
}

uint32_t mantissa_bits(uint8_t dtype) { return dtype == INAGG_WIRE_FLOAT16 ? 10 : 7; }

bool is_half(uint8_t dtype) { return dtype == INAGG_WIRE_FLOAT16 || dtype == INAGG_WIRE_BFLOAT16; }

uint32_t fold_lane(uint32_t a, uint32_t b, uint8_t op) {
    switch (op) {
    case INAGG_WIRE_MIN:
        return static_cast<uint32_t>(std::min(static_cast<int32_t>(a), static_cast<int32_t>(b)));
    case INAGG_WIRE_MAX:
        return static_cast<uint32_t>(std::max(static_cast<int32_t>(a), static_cast<int32_t>(b)));
    default:
        return a + b;
    }
}

void set_port(Endpoint &endpoint, __be16 port) {
    if (endpoint.address.ss_family == AF_INET)
        reinterpret_cast<sockaddr_in &>(endpoint.address).sin_port = port;
    else
        reinterpret_cast<sockaddr_in6 &>(endpoint.address).sin6_port = port;
}

void name_group(const Endpoint &group, inagg_config &config) {
    if (group.address.ss_family == AF_INET) {
        const auto &in = reinterpret_cast<const sockaddr_in &>(group.address);
        config.group_port = in.sin_port;
        std::memcpy(config.group, &in.sin_addr, sizeof(in.sin_addr));
    } else {
        const auto &in6 = reinterpret_cast<const sockaddr_in6 &>(group.address);
        config.group_port = in6.sin6_port;
        std::memcpy(config.group, &in6.sin6_addr, sizeof(in6.sin6_addr));
    }
}

inagg_hdr answer_to(const inagg_hdr &asked, inagg_type type, uint16_t boot) {
    inagg_hdr header = asked;
    header.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | type);
    header.level_flags &= inagg_swap16(type == INAGG_RESULT ? INAGG_F_VERSION | INAGG_F_RESEND : INAGG_F_VERSION);
    header.boot = inagg_swap16(boot);
    header.payload_checksum = 0;
    return header;
}

} // namespace

SoftwareSwitch::SoftwareSwitch(const SoftwareSwitchOptions &options) : options_(options), random_(options.seed) {
    if (options_.emit)
        return;
    open_socket(options.ipv6);
    thread_ = std::thread(&SoftwareSwitch::run, this);
}

SoftwareSwitch::~SoftwareSwitch() {
    if (options_.emit)
        return;
    stopping_ = true;
    thread_.join();
    close(socket_);
}

// Every switch has port 12000, so each takes an address of its own.
void SoftwareSwitch::open_socket(bool ipv6) {
    socket_ = socket(ipv6 ? AF_INET6 : AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (socket_ < 0)
        throw failure("socket");
    const int buffer = 8 << 20;
    setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof(buffer));
    if (ipv6) {
        const int on = 1; // workers send zero checksums
        setsockopt(socket_, IPPROTO_UDP, UDP_NO_CHECK6_RX, &on, sizeof(on));
        sockaddr_in6 in6{};
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(INAGG_PORT);
        in6.sin6_addr = in6addr_loopback;
        if (bind(socket_, reinterpret_cast<sockaddr *>(&in6), sizeof(in6)))
            throw failure("binding to ::1 port 12000");
        address_ = "::1";
        return;
    }
    std::random_device random;
    for (int tries = 0; tries < 100; tries++) {
        sockaddr_in in{};
        in.sin_family = AF_INET;
        in.sin_port = htons(INAGG_PORT);
        in.sin_addr.s_addr = htonl(0x7f010101 + random() % 0xfe0000);
        if (bind(socket_, reinterpret_cast<sockaddr *>(&in), sizeof(in)))
            continue;
        address_ = inet_ntoa(in.sin_addr);
        return;
    }
    throw failure("binding to 127.0.0.0/8 port 12000");
}

void SoftwareSwitch::run() {
    std::array<std::byte, max_packet + 8> buffer;
    while (!stopping_) {
        pollfd ready = {socket_, POLLIN, 0};
        const int arrived = poll(&ready, 1, 1);
        sweep();
        if (arrived <= 0)
            continue;
        Endpoint from;
        from.length = sizeof(from.address);
        const ssize_t bytes = recvfrom(socket_, buffer.data(), buffer.size(), MSG_DONTWAIT,
                                       reinterpret_cast<sockaddr *>(&from.address), &from.length);
        if (bytes >= 0)
            receive({buffer.data(), static_cast<std::size_t>(bytes)}, from);
    }
}

void SoftwareSwitch::receive(std::span<std::byte> bytes, const Endpoint &from) {
    const std::lock_guard lock(mutex_);
    bool missed = silent_;
    if ((options_.watch || options_.miss) && bytes.size() >= sizeof(inagg_hdr)) {
        inagg_hdr header;
        std::memcpy(&header, bytes.data(), sizeof(header));
        if (options_.watch)
            options_.watch(header, bytes.subspan(sizeof(header)));
        missed |= options_.miss && options_.miss(header);
    }
    if (missed || chance(options_.loss)) {
        counters_.dropped++;
        return;
    }
    if (chance(options_.corruption))
        bytes[random_() % bytes.size()] ^= std::byte{1} << random_() % 8;
    arrived(bytes, from);
    if (chance(options_.duplication))
        arrived(bytes, from);
}

bool SoftwareSwitch::chance(double probability) {
    return probability > 0 && std::uniform_real_distribution<>()(random_) < probability;
}

// What tests do to it.

void SoftwareSwitch::clear_slots() {
    const std::lock_guard lock(mutex_);
    for (auto &[number, job] : jobs_)
        forget(job);
}

void SoftwareSwitch::reboot() {
    clear_slots();
    const std::lock_guard lock(mutex_);
    boot_++;
}

void SoftwareSwitch::silence() {
    const std::lock_guard lock(mutex_);
    silent_ = true;
}

void SoftwareSwitch::end_job(uint16_t number, inagg_reason reason, std::optional<std::array<uint8_t, 16>> above) {
    const std::lock_guard lock(mutex_);
    const Job &job = jobs_.at(number);
    for (const Member &member : job.members) {
        inagg_hdr header{};
        header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_REFUSED;
        header.job = inagg_swap16(number);
        header.slot = inagg_swap32(static_cast<uint32_t>(reason));
        header.boot = inagg_swap16(boot_);
        inagg_refusal refusal{};
        refusal.nonce = inagg_swap64(member.nonce);
        if (above)
            inagg_refuse_for(&header, &refusal, above->data());
        transmit(header, std::as_bytes(std::span(&refusal, 1)), member.endpoint);
    }
}

void SoftwareSwitch::exclude(uint16_t number, uint16_t rank) {
    const std::lock_guard lock(mutex_);
    jobs_.at(number).record.all &= ~inagg_rank_bit(rank);
}

SoftwareSwitchCounters SoftwareSwitch::counters() {
    const std::lock_guard lock(mutex_);
    return counters_;
}

void SoftwareSwitch::reset_most_open() {
    const std::lock_guard lock(mutex_);
    counters_.most_open = 0;
}

void SoftwareSwitch::set_most_open(uint32_t blocks) {
    const std::lock_guard lock(mutex_);
    for (auto &[number, job] : jobs_)
        job.policy.most_open = blocks;
}

// Packets.

void SoftwareSwitch::arrived(std::span<const std::byte> bytes, const Endpoint &from) {
    Packet packet{{}, {}, from};
    if (bytes.size() < sizeof(packet.header)) {
        counters_.refused[INAGG_R_LENGTH]++;
        return;
    }
    std::memcpy(&packet.header, bytes.data(), sizeof(packet.header));
    packet.body = bytes.subspan(sizeof(packet.header));
    if (inagg_hdr_version(&packet.header) != INAGG_WIRE_VERSION)
        counters_.refused[INAGG_R_VERSION]++;
    else if (!inagg_hdr_intact(&packet.header))
        counters_.refused[INAGG_R_HEADER_CHECKSUM]++;
    else
        handle(packet);
}

void SoftwareSwitch::handle(const Packet &packet) {
    const uint8_t type = inagg_hdr_type(&packet.header);
    if (type == INAGG_JOIN || type == INAGG_LEAVE) {
        if (packet.body.size() != sizeof(struct inagg_join))
            counters_.refused[INAGG_R_LENGTH]++;
        else if (!inagg_packet_intact(&packet.header, inagg_body_checksum(packet.body.data())))
            counters_.refused[INAGG_R_PAYLOAD_CHECKSUM]++;
        else if (type == INAGG_JOIN)
            join(packet);
        else
            leave(packet);
        return;
    }
    const auto found = jobs_.find(inagg_swap16(packet.header.job));
    const int verdict = found == jobs_.end() ? -INAGG_R_JOB : handle_block(found->second, packet);
    if (verdict < 0)
        counters_.refused[-verdict]++;
}

// Returns 0 or a negative reason.
int SoftwareSwitch::handle_block(Job &job, const Packet &packet) {
    inagg_block block = inagg_block_of(&packet.header);
    const uint32_t index = inagg_swap32(packet.header.slot);
    const uint16_t flags = inagg_swap16(packet.header.level_flags);
    if (inagg_hdr_type(&packet.header) == INAGG_REQUEST)
        block.elements = 0;
    if (const int verdict = inagg_job_admits(&job.record, &block, index, packet.body.size()))
        return verdict;
    if (!job.members[block.rank].nonce)
        return -INAGG_R_RANK;
    if (inagg_job_excludes(&job.record, block.rank))
        return -INAGG_R_EXCLUDED;
    note_heard(job, packet.header);
    if (job.record.flags & INAGG_JOIN_CHECKED &&
        !inagg_packet_intact(&packet.header, inagg_payload_checksum(packet.body.data(), packet.body.size())))
        return -INAGG_R_PAYLOAD_CHECKSUM;
    if (job.record.algorithm == INAGG_TRIO)
        return handle_record(job, block, packet);
    if (job.record.algorithm == INAGG_CANARY)
        return handle_canary(job, block, packet);
    Slot &slot = job.slots[index * 2 + (flags & INAGG_F_VERSION)];
    switch (inagg_hdr_type(&packet.header)) {
    case INAGG_CONTRIBUTION:
        return contribute(job, slot, block, packet);
    case INAGG_RESTORE:
        return restore(job, slot, block, packet);
    case INAGG_REQUEST:
        return request(job, slot, block, packet);
    default:
        return -INAGG_R_TYPE;
    }
}

int SoftwareSwitch::contribute(Job &job, Slot &slot, const inagg_block &block, const Packet &packet) {
    if (inagg_slot_is_new(&slot.state, &block) && !may_begin(job, slot, block)) {
        send_wait(job, 0, packet, block.rank, 0, options_.buffers_cap);
        return -INAGG_R_FULL;
    }
    const int verdict = inagg_slot_contribute(&slot.state, job.record.all, &block);
    if (verdict < 0)
        return verdict;
    const int action = verdict & ~INAGG_COMPLETES;
    if (action == INAGG_REPLY) {
        counters_.replies++;
        send_result(job, slot, packet.header, block.rank);
        return 0;
    }
    if (action == INAGG_TELL) {
        send_wait(job, slot.state.seen, packet, block.rank);
        return 0;
    }
    counters_.additions++;
    note_open(job);
    if (action != INAGG_COUNT)
        fold(job, slot, block, action == INAGG_STORE, packet.body);
    if (verdict & INAGG_COMPLETES) {
        counters_.completions++;
        complete(job, slot);
        send_result(job, slot, packet.header, every_rank);
    }
    return 0;
}

bool SoftwareSwitch::is_open(const Slot &slot) {
    return slot.state.flags & INAGG_SLOT_LIVE && !(slot.state.flags & INAGG_SLOT_COMPLETE);
}

uint32_t SoftwareSwitch::count_open(const Job &job) {
    return static_cast<uint32_t>(std::count_if(job.slots.begin(), job.slots.begin() + job.record.slots * 2, is_open));
}

void SoftwareSwitch::note_open(const Job &job) { counters_.most_open = std::max(counters_.most_open, count_open(job)); }

// Is there room for the block, or one that gives way to it?
bool SoftwareSwitch::may_begin(Job &job, const Slot &slot, const inagg_block &block) const {
    const bool adds_floats = block.dtype_op >> 4 == INAGG_WIRE_FLOAT32;
    if (!adds_floats || is_open(slot) || inagg_merge_allows(options_.buffers_cap, count_open(job)))
        return true;
    return std::any_of(job.slots.begin(), job.slots.begin() + job.record.slots * 2,
                       [&](Slot &other) { return is_open(other) && inagg_tree_gives_way(&other.state, &block, 0); });
}

int SoftwareSwitch::restore(Job &job, Slot &slot, const inagg_block &block, const Packet &packet) {
    const int verdict = inagg_slot_restore(&slot.state, job.record.all, &block);
    if (verdict < 0)
        return verdict;
    counters_.restores++;
    slot.result.assign(packet.body.begin(), packet.body.end());
    send_result(job, slot, packet.header, every_rank);
    return 0;
}

int SoftwareSwitch::request(Job &job, Slot &slot, const inagg_block &block, const Packet &packet) {
    const int everyone = inagg_swap16(packet.header.level_flags) & INAGG_F_MULTICAST;
    const int verdict = inagg_slot_request(&slot.state, &block, everyone);
    if (verdict < 0)
        return verdict;
    if (verdict == INAGG_REPLY) {
        counters_.replies++;
        send_result(job, slot, packet.header, block.rank);
    } else {
        send_wait(job, inagg_slot_seen(&slot.state, &block), packet, verdict == INAGG_TELL_ALL ? every_rank : block.rank);
    }
    return 0;
}

// Blocks that do not wait for stragglers.

uint64_t SoftwareSwitch::now_ns() const {
    if (options_.clock)
        return options_.clock();
    return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

int SoftwareSwitch::handle_record(Job &job, const inagg_block &asked, const Packet &packet) {
    inagg_block block = asked;
    const uint32_t position = inagg_swap32(packet.header.slot);
    block.stream = inagg_stream_of(&job.record, position);
    if (position != inagg_position_of(&job.record, block.stream, block.block))
        return -INAGG_R_SLOT;
    switch (inagg_hdr_type(&packet.header)) {
    case INAGG_CONTRIBUTION:
        return contribute(job, block, packet);
    case INAGG_RESTORE:
        return restore(job, block, packet);
    default:
        return request(job, block, packet);
    }
}

static uint32_t first_of_bucket(const inagg_job &job, const inagg_block &block, std::size_t records) {
    const auto buckets = static_cast<uint32_t>(records / INAGG_WAYS);
    return inagg_bucket_of(job.index, block.stream, block.block, buckets) * INAGG_WAYS;
}

int SoftwareSwitch::contribute(Job &job, const inagg_block &block, const Packet &packet) {
    const uint32_t first = first_of_bucket(job.record, block, job.records.size());
    inagg_floor &floor = job.floors[inagg_swap32(packet.header.slot)];
    uint32_t way = 0;
    const int verdict = inagg_record_contribute(&job.records[first], &floor, &job.record, &job.policy, job.open, &block,
                                                inagg_epoch_of(now_ns()), &way, nullptr);
    if (verdict == -INAGG_R_FULL)
        send_wait(job, 0, packet, block.rank, 0, inagg_window_cap(job.open));
    if (verdict < 0)
        return verdict;
    const uint32_t index = first + way;
    Slot &slot = job.slots[index];
    job.open += verdict & INAGG_OPENS ? 1 : 0;
    slot.header = packet.header;
    switch (INAGG_VERDICT(verdict)) {
    case INAGG_REPLY:
        counters_.replies++;
        reply(job, index, block.rank);
        return 0;
    case INAGG_TELL:
        tell(job, &job.records[index], packet, block.rank);
        return 0;
    case INAGG_TELL_ALL:
        counters_.recoveries++;
        tell(job, &job.records[index], packet, every_rank);
        return 0;
    case INAGG_COUNT:
        break;
    default:
        counters_.additions++;
        fold(job, slot, block, INAGG_VERDICT(verdict) == INAGG_STORE, packet.body);
    }
    if (verdict & INAGG_COMPLETES)
        decide(job, index);
    return 0;
}

// The record has become complete.
void SoftwareSwitch::decide(Job &job, uint32_t index) {
    counters_.completions++;
    counters_.degraded += job.records[index].flags & INAGG_RECORD_DEGRADED ? 1 : 0;
    job.open--;
    job.slots[index].state = job.records[index].slot;
    complete(job, job.slots[index]);
    reply(job, index, every_rank);
}

void SoftwareSwitch::reply(Job &job, uint32_t index, int rank) {
    send_result(job, job.slots[index], job.slots[index].header, rank, job.records[index].epoch);
}

void SoftwareSwitch::tell(Job &job, const inagg_record *record, const Packet &packet, int rank) {
    send_wait(job, record ? inagg_record_heard(record) : 0, packet, rank, record ? record->epoch : 0);
}

int SoftwareSwitch::restore(Job &job, const inagg_block &block, const Packet &packet) {
    const uint32_t first = first_of_bucket(job.record, block, job.records.size());
    uint32_t way = 0;
    const int verdict = inagg_record_restore(&job.records[first], &job.record, &block, &way);
    if (verdict < 0)
        return verdict;
    Slot &slot = job.slots[first + way];
    counters_.restores++;
    job.open--;
    slot.state = job.records[first + way].slot;
    slot.header = packet.header;
    slot.result.assign(packet.body.begin(), packet.body.end());
    reply(job, first + way, every_rank);
    return 0;
}

int SoftwareSwitch::request(Job &job, const inagg_block &block, const Packet &packet) {
    const uint32_t first = first_of_bucket(job.record, block, job.records.size());
    const int everyone = inagg_swap16(packet.header.level_flags) & INAGG_F_MULTICAST;
    int way = -1;
    const int verdict = inagg_record_request(&job.records[first], &job.record, &block, everyone, &way);
    if (verdict == INAGG_REPLY) {
        counters_.replies++;
        reply(job, first + static_cast<uint32_t>(way), block.rank);
    } else {
        tell(job, way < 0 ? nullptr : &job.records[first + static_cast<uint32_t>(way)], packet,
             verdict == INAGG_TELL_ALL ? every_rank : block.rank);
    }
    return 0;
}

// Each job is swept as often as its expiry asks for; what has expired is decided at once.
void SoftwareSwitch::sweep() {
    const std::lock_guard lock(mutex_);
    const uint64_t now = now_ns();
    release_held();
    for (auto &[number, job] : jobs_) {
        send_due_sums(job, now);
        look_for_silent(job, now);
        const uint64_t period = std::max(uint64_t{job.policy.expiry_us} * 1000 / sweeps_in_expiry, shortest_sweep_ns);
        if (job.records.empty() || now - job.swept_ns < period)
            continue;
        job.swept_ns = now;
        for (uint32_t index = 0; index < job.records.size(); index++) {
            const int swept = inagg_record_sweep(&job.records[index], &job.record, &job.policy, inagg_epoch_of(now));
            job.open -= swept == INAGG_SWEEP_FREED ? 1 : 0;
            if (swept == INAGG_SWEEP_EXPIRED && inagg_record_finish(&job.records[index], &job.record) > 0)
                decide(job, index);
        }
    }
}

void SoftwareSwitch::note_heard(Job &job, const inagg_hdr &header) {
    job.attendance.heard[inagg_swap16(header.source) % INAGG_MAX_RANKS]++;
}

// Who has left has nothing to say.
void SoftwareSwitch::look_for_silent(Job &job, uint64_t now) {
    constexpr unsigned looks = 8;
    if (!job.patience_ns || now - job.presence.look_ns < job.patience_ns / looks)
        return;
    uint64_t ranks = 0;
    for (uint32_t rank = 0; rank < job.record.size; rank++)
        if (job.members[rank].nonce && !job.members[rank].left)
            ranks |= inagg_rank_bit(rank);
    inagg_presence_look(&job.presence, ranks & job.record.all, &job.attendance, now, job.patience_ns);
    job.record.all &= ~job.presence.permanent;
}

// Elements.

// From the job's byte order to this machine's, and back.
void SoftwareSwitch::turn(const Job &job, void *elements, std::size_t bytes) {
    if (job.record.flags & INAGG_JOIN_BIG_ENDIAN)
        inagg_turn_elements(elements, static_cast<uint32_t>(bytes));
}

void SoftwareSwitch::fold(Job &job, Slot &slot, const inagg_block &block, bool first, std::span<const std::byte> body) {
    const uint8_t dtype = block.dtype_op >> 4, op = block.dtype_op & 0xf;
    if (dtype == INAGG_WIRE_FLOAT32) {
        if (first)
            slot.floats.clear();
        std::vector<float> &floats = slot.floats[block.rank];
        floats.resize(block.elements);
        std::memcpy(floats.data(), body.data(), body.size());
        turn(job, floats.data(), body.size());
        return;
    }
    slot.lanes.resize(INAGG_MAX_ELEMENTS);
    for (uint32_t i = 0; i < block.elements; i++) {
        uint32_t lane;
        if (is_half(dtype)) {
            uint16_t half;
            std::memcpy(&half, body.data() + i * 2, 2);
            lane = static_cast<uint32_t>(inagg_half_to_fixed(half, mantissa_bits(dtype), job.record.fan_in_log2, block.scale));
        } else {
            std::memcpy(&lane, body.data() + i * 4, 4);
            turn(job, &lane, 4);
        }
        slot.lanes[i] = first ? lane : fold_lane(slot.lanes[i], lane, op);
    }
}

// In the order of ranks, whatever the order in which they came. A NaN is the same one however it came about.
static std::vector<float> sum_of(const std::map<uint16_t, std::vector<float>> &floats) {
    std::vector<float> sum = floats.begin()->second;
    for (auto other = std::next(floats.begin()); other != floats.end(); ++other)
        std::transform(sum.begin(), sum.end(), other->second.begin(), sum.begin(), std::plus<>());
    std::replace_if(
        sum.begin(), sum.end(), [](float x) { return std::isnan(x); }, std::bit_cast<float>(0x7fc00000));
    return sum;
}

// The sums become what goes on the wire, once.
void SoftwareSwitch::complete(Job &job, Slot &slot) {
    const uint8_t dtype = slot.state.dtype_op >> 4;
    const std::size_t width = inagg_element_bytes(dtype);
    slot.result.resize(slot.state.elements * width);
    const std::vector<float> floats = dtype == INAGG_WIRE_FLOAT32 ? sum_of(slot.floats) : std::vector<float>{};
    for (uint32_t i = 0; i < slot.state.elements; i++) {
        if (dtype == INAGG_WIRE_FLOAT32) {
            std::memcpy(slot.result.data() + i * width, &floats[i], 4);
        } else if (is_half(dtype)) {
            const uint16_t half = inagg_fixed_to_half(static_cast<int32_t>(slot.lanes[i]), mantissa_bits(dtype),
                                                      job.record.fan_in_log2, slot.state.scale);
            std::memcpy(slot.result.data() + i * width, &half, 2);
        } else {
            std::memcpy(slot.result.data() + i * width, &slot.lanes[i], 4);
        }
    }
    turn(job, slot.result.data(), slot.result.size());
}

// Membership.

SoftwareSwitch::Job &SoftwareSwitch::create(uint16_t number, const struct inagg_join &asked) {
    Job &job = jobs_[number];
    job.record.size = inagg_swap16(asked.size);
    job.record.all = inagg_all_ranks(job.record.size);
    job.record.slots = options_.slots;
    job.record.control_slots = options_.control_slots;
    job.record.generation = 1;
    job.record.elements = std::min(inagg_swap16(asked.elements), options_.elements);
    job.record.algorithm = asked.algorithm;
    job.record.flags = asked.flags & INAGG_JOIN_CHECKED;
    if (asked.exclude_ms)
        job.record.flags |= INAGG_JOIN_WATCHED | INAGG_JOIN_RENEW;
    job.patience_ns = uint64_t{inagg_swap32(asked.exclude_ms)} * 1'000'000;
    if (asked.algorithm == INAGG_CANARY) // partial sums of 16-bit floats have no room in 16 bits
        job.record.flags |= INAGG_JOIN_TREE;
    if (asked.algorithm == INAGG_PANAMA && options_.integers)
        job.record.flags |= INAGG_JOIN_TREE | INAGG_JOIN_INTEGERS;
    if (options_.big_endian)
        job.record.flags |= INAGG_JOIN_TREE | INAGG_JOIN_BIG_ENDIAN;
    job.record.fan_in_log2 = static_cast<uint8_t>(inagg_fan_in_log2(job.record.size));
    job.policy.expiry_us = inagg_swap32(asked.expiry_us);
    job.policy.expiry_sweeps = job.policy.expiry_us ? sweeps_in_expiry : 0;
    job.policy.quorum = inagg_swap16(asked.quorum);
    job.policy.most_open = options_.most_open;
    restart(job);
    return job;
}

// A new generation, that nobody has joined yet.
void SoftwareSwitch::restart(Job &job) {
    job.members.assign(job.record.size, {});
    const uint32_t positions = job.record.slots + job.record.control_slots;
    job.record.generation++;
    job.descriptors.clear();
    if (job.record.algorithm != INAGG_TRIO) {
        job.slots.assign(positions * 2, {});
        return;
    }
    job.slots.assign(options_.buckets * INAGG_WAYS, {});
    job.records.assign(job.slots.size(), {});
    job.floors.clear();
    for (uint32_t position = 0; position < positions; position++)
        job.floors.push_back(inagg_floor_at_start(&job.record, position));
    job.open = 0;
}

// What is in slots, records and floors may be gone at any moment.
void SoftwareSwitch::forget(Job &job) {
    for (Slot &slot : job.slots)
        slot.state = {};
    std::fill(job.records.begin(), job.records.end(), inagg_record{});
    std::fill(job.floors.begin(), job.floors.end(), inagg_floor{});
    job.open = 0;
    job.descriptors.clear();
}

void SoftwareSwitch::join(const Packet &packet) {
    struct inagg_join asked;
    std::memcpy(&asked, packet.body.data(), sizeof(asked));
    Endpoint to = packet.from;
    set_port(to, asked.receive_port);
    const uint16_t rank = inagg_swap16(packet.header.source), size = inagg_swap16(asked.size);
    if (size < 1 || size > INAGG_MAX_RANKS)
        return refuse(packet, to, INAGG_R_SIZE);
    if (!expiry_can_be_kept(inagg_swap32(asked.expiry_us)))
        return refuse(packet, to, INAGG_R_POLICY);
    const uint16_t number = inagg_swap16(packet.header.job);
    const auto found = jobs_.find(number);
    const uint64_t nonce = inagg_swap64(asked.nonce);
    if (packet.header.boot && !(asked.flags & INAGG_JOIN_RENEW)) { // it had joined
        if (found == jobs_.end())
            return refuse(packet, to, INAGG_R_JOB);
        if (rank >= found->second.record.size || found->second.members[rank].nonce != nonce)
            return refuse(packet, to, INAGG_R_REPLACED);
    }
    Job &job = found == jobs_.end() ? create(number, asked) : found->second;
    if (size != job.record.size)
        return refuse(packet, to, INAGG_R_SIZE);
    if (rank >= size)
        return refuse(packet, to, INAGG_R_RANK);
    if (inagg_swap16(asked.elements) < job.record.elements)
        return refuse(packet, to, INAGG_R_MTU);
    if (asked.algorithm != job.record.algorithm || !is_here(asked.algorithm))
        return refuse(packet, to, INAGG_R_ALGORITHM);
    if (is_put_off(job, packet, {nonce, to, false}, asked.flags))
        return;
    if (job.members[rank].nonce && job.members[rank].nonce != nonce)
        restart(job);
    job.members[rank] = {nonce, to, false};
    note_heard(job, packet.header);

    inagg_hdr header = answer_to(packet.header, INAGG_CONFIG, boot_);
    header.generation = inagg_swap16(job.record.generation);
    header.contributors = inagg_swap64(job.record.all);
    inagg_config config{};
    config.nonce = asked.nonce;
    config.size = inagg_swap16(job.record.size);
    config.elements = inagg_swap16(job.record.elements);
    config.slots = inagg_swap32(job.record.slots);
    config.control_slots = inagg_swap32(job.record.control_slots);
    config.algorithm = job.record.algorithm;
    config.flags = job.record.flags;
    if (options_.group.length)
        name_group(options_.group, config);
    transmit(header, std::as_bytes(std::span(&config, 1)), to);
}

// Is this JOIN one for the next generation, which has not begun? It does when all that are not excluded ask for it.
bool SoftwareSwitch::is_put_off(Job &job, const Packet &packet, const Member &member, uint8_t flags) {
    const uint16_t rank = inagg_swap16(packet.header.source);
    const bool excluded = inagg_job_excludes(&job.record, rank), asks = flags & INAGG_JOIN_RENEW;
    const uint64_t nonce = job.members[rank].nonce;
    if (nonce == member.nonce || (!excluded && !asks)) {
        if (excluded)
            refuse(packet, member.endpoint, INAGG_R_EXCLUDED);
        const bool is_old = nonce && nonce != member.nonce; // of the generation before
        return excluded || (is_old && job.record.flags & INAGG_JOIN_RENEW);
    }
    job.next[rank] = member;
    uint64_t next = 0;
    for (const auto &[who, as] : job.next)
        next |= inagg_rank_bit(who);
    if (job.record.all & ~next) {
        job.record.flags |= excluded ? INAGG_JOIN_RETURNING : 0;
        if (excluded)
            refuse(packet, member.endpoint, INAGG_R_EXCLUDED);
        return true;
    }
    job.record.all = next;
    job.record.flags &= ~INAGG_JOIN_RETURNING;
    restart(job);
    for (const auto &[who, as] : std::exchange(job.next, {}))
        job.members[who] = as;
    return false;
}

void SoftwareSwitch::leave(const Packet &packet) {
    const auto found = jobs_.find(inagg_swap16(packet.header.job));
    if (found == jobs_.end())
        return;
    Job &job = found->second;
    const uint16_t rank = inagg_swap16(packet.header.source);
    if (rank < job.members.size() && inagg_swap16(packet.header.generation) == job.record.generation)
        job.members[rank].left = true;
    const auto has_left = [](const Member &member) { return member.left; };
    if (std::all_of(job.members.begin(), job.members.end(), has_left))
        jobs_.erase(found);
}

void SoftwareSwitch::refuse(const Packet &packet, const Endpoint &to, inagg_reason reason) {
    counters_.refused[reason]++;
    inagg_hdr header = answer_to(packet.header, INAGG_REFUSED, boot_);
    header.slot = inagg_swap32(static_cast<uint32_t>(reason));
    transmit(header, packet.body, to);
}

// Sending. `rank` may be every_rank.

void SoftwareSwitch::send_result(const Job &job, const Slot &slot, const inagg_hdr &asked, int rank, uint16_t epoch) {
    inagg_hdr header = answer_to(asked, INAGG_RESULT, boot_);
    if (slot.state.flags & INAGG_SLOT_SATURATED)
        header.level_flags |= inagg_swap16(INAGG_F_SATURATED);
    if (slot.state.seen != inagg_all_ranks(job.record.size))
        header.level_flags |= inagg_swap16(INAGG_F_DEGRADED);
    header.count = inagg_swap16(static_cast<uint16_t>(inagg_count_ranks(slot.state.seen)));
    header.contributors = inagg_swap64(slot.state.seen);
    header.switch_id = inagg_swap16(epoch);
    if (job.record.algorithm == INAGG_PANAMA) {
        header.window_cap = inagg_swap16(options_.window_cap);
        if (options_.congested && options_.congested(inagg_swap32(header.block)))
            header.level_flags |= inagg_swap16(INAGG_F_CONGESTION);
    }
    header.dtype_op = slot.state.dtype_op;
    header.scale = slot.state.scale;
    header.next_scale = slot.state.next_scale;
    header.elements = inagg_swap16(slot.state.elements);
    const auto body = std::span<const std::byte>(slot.result).first(slot.state.elements ? slot.result.size() : 0);
    send_to(job, header, body, rank);
}

void SoftwareSwitch::send_wait(const Job &job, uint64_t seen, const Packet &packet, int rank, uint16_t epoch, uint16_t cap) {
    counters_.waits++;
    inagg_hdr header = answer_to(packet.header, INAGG_WAIT, boot_);
    header.contributors = inagg_swap64(seen);
    header.switch_id = inagg_swap16(epoch);
    header.window_cap = inagg_swap16(cap);
    header.elements = 0;
    send_to(job, header, {}, rank);
}

void SoftwareSwitch::send_to(const Job &job, inagg_hdr header, std::span<const std::byte> body, int rank) {
    if (rank == every_rank && options_.group.length)
        return transmit(header, body, options_.group, job.record.flags & INAGG_JOIN_CHECKED);
    for (int to = 0; to < static_cast<int>(job.members.size()); to++) {
        if ((rank != every_rank && to != rank) || !job.members[to].nonce || (options_.lose && options_.lose(header, to)))
            continue;
        inagg_hdr own = header;
        std::vector<std::byte> bytes(body.begin(), body.end());
        if (options_.change)
            options_.change(own, bytes, to);
        transmit(own, bytes, job.members[to].endpoint, job.record.flags & INAGG_JOIN_CHECKED);
    }
}

void SoftwareSwitch::transmit(inagg_hdr header, std::span<const std::byte> body, const Endpoint &to, bool checked) {
    std::array<std::byte, max_packet> frame;
    if (checked)
        inagg_hdr_seal_checked(&header, inagg_payload_checksum(body.data(), static_cast<uint32_t>(body.size())));
    else
        inagg_hdr_seal(&header);
    std::memcpy(frame.data(), &header, sizeof(header));
    std::copy(body.begin(), body.end(), frame.begin() + sizeof(header));
    const std::size_t bytes = sizeof(header) + body.size();
    if (chance(options_.loss)) {
        counters_.dropped++;
        return;
    }
    if (chance(options_.corruption))
        frame[random_() % bytes] ^= std::byte{1} << random_() % 8;
    emit({frame.data(), bytes}, to);
    if (chance(options_.duplication))
        emit({frame.data(), bytes}, to);
}

void SoftwareSwitch::emit(std::span<const std::byte> bytes, const Endpoint &to) {
    if (options_.emit)
        return options_.emit(bytes, to);
    if (chance(options_.reordering)) {
        held_.emplace_back(std::vector(bytes.begin(), bytes.end()), to);
        return;
    }
    sendto(socket_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr *>(&to.address), to.length);
    release_held();
}

void SoftwareSwitch::release_held() {
    for (const auto &[bytes, to] : std::exchange(held_, {}))
        sendto(socket_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr *>(&to.address), to.length);
}

} // namespace inagg
