// SPDX-License-Identifier: BSD-2-Clause
#include "software_switch.hpp"

#include <inagg/core/checksum.h>
#include <inagg/core/fixed.h>

#include <arpa/inet.h>
#include <netinet/udp.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace inagg {

namespace {

constexpr std::size_t max_packet = sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD;
constexpr int every_rank = -1;

std::system_error failure(const char *what) { return {errno, std::generic_category(), what}; }

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

inagg_hdr answer_to(const inagg_hdr &asked, inagg_type type, uint16_t boot) {
    inagg_hdr header = asked;
    header.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | type);
    header.level_flags &= inagg_swap16(INAGG_F_VERSION);
    header.boot = inagg_swap16(boot);
    header.payload_checksum = 0;
    return header;
}

} // namespace

SoftwareSwitch::SoftwareSwitch(const SoftwareSwitchOptions &options)
    : options_(options), random_(options.seed) {
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
        if (poll(&ready, 1, 20) <= 0)
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
    if (silent_ || chance(options_.loss)) {
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
        for (Slot &slot : job.slots)
            slot.state = {};
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

void SoftwareSwitch::end_job(uint16_t number, inagg_reason reason) {
    const std::lock_guard lock(mutex_);
    const Job &job = jobs_.at(number);
    for (const Member &member : job.members) {
        inagg_hdr header{};
        header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_REFUSED;
        header.job = inagg_swap16(number);
        header.slot = inagg_swap32(static_cast<uint32_t>(reason));
        struct inagg_join echo {};
        echo.nonce = inagg_swap64(member.nonce);
        transmit(header, std::as_bytes(std::span(&echo, 1)), member.endpoint);
    }
}

SoftwareSwitchCounters SoftwareSwitch::counters() {
    const std::lock_guard lock(mutex_);
    return counters_;
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
    if (job.record.flags & INAGG_JOIN_CHECKED &&
        !inagg_packet_intact(&packet.header,
                             inagg_payload_checksum(packet.body.data(), packet.body.size())))
        return -INAGG_R_PAYLOAD_CHECKSUM;
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
    const int verdict = inagg_slot_contribute(&slot.state, job.record.all, &block);
    if (verdict < 0)
        return verdict;
    const int action = verdict & ~INAGG_COMPLETES;
    if (action == INAGG_REPLY) {
        counters_.replies++;
        send_result(job, slot, packet, block.rank);
        return 0;
    }
    if (action == INAGG_TELL) {
        send_wait(job, slot.state.seen, packet, block.rank);
        return 0;
    }
    counters_.additions++;
    if (action != INAGG_COUNT)
        fold(job, slot, block, action == INAGG_STORE, packet.body);
    if (verdict & INAGG_COMPLETES) {
        counters_.completions++;
        complete(job, slot);
        send_result(job, slot, packet, every_rank);
    }
    return 0;
}

int SoftwareSwitch::restore(Job &job, Slot &slot, const inagg_block &block, const Packet &packet) {
    const int verdict = inagg_slot_restore(&slot.state, job.record.all, &block);
    if (verdict < 0)
        return verdict;
    counters_.restores++;
    slot.result.assign(packet.body.begin(), packet.body.end());
    send_result(job, slot, packet, every_rank);
    return 0;
}

int SoftwareSwitch::request(Job &job, Slot &slot, const inagg_block &block, const Packet &packet) {
    const int everyone = inagg_swap16(packet.header.level_flags) & INAGG_F_MULTICAST;
    const int verdict = inagg_slot_request(&slot.state, &block, everyone);
    if (verdict < 0)
        return verdict;
    if (verdict == INAGG_REPLY) {
        counters_.replies++;
        send_result(job, slot, packet, block.rank);
    } else {
        send_wait(job, inagg_slot_seen(&slot.state, &block), packet,
                  verdict == INAGG_TELL_ALL ? every_rank : block.rank);
    }
    return 0;
}

// Elements.

void SoftwareSwitch::fold(Job &job, Slot &slot, const inagg_block &block, bool first,
                          std::span<const std::byte> body) {
    const uint8_t dtype = block.dtype_op >> 4, op = block.dtype_op & 0xf;
    slot.lanes.resize(INAGG_MAX_ELEMENTS);
    for (uint32_t i = 0; i < block.elements; i++) {
        uint32_t lane;
        if (is_half(dtype)) {
            uint16_t half;
            std::memcpy(&half, body.data() + i * 2, 2);
            lane = static_cast<uint32_t>(
                inagg_half_to_fixed(half, mantissa_bits(dtype), job.record.fan_in_log2, block.scale));
        } else {
            std::memcpy(&lane, body.data() + i * 4, 4);
        }
        slot.lanes[i] = first ? lane : fold_lane(slot.lanes[i], lane, op);
    }
}

// The sums become what goes on the wire, once.
void SoftwareSwitch::complete(Job &job, Slot &slot) {
    const uint8_t dtype = slot.state.dtype_op >> 4;
    const std::size_t width = inagg_element_bytes(dtype);
    slot.result.resize(slot.state.elements * width);
    for (uint32_t i = 0; i < slot.state.elements; i++) {
        if (is_half(dtype)) {
            const uint16_t half =
                inagg_fixed_to_half(static_cast<int32_t>(slot.lanes[i]), mantissa_bits(dtype),
                                    job.record.fan_in_log2, slot.state.scale);
            std::memcpy(slot.result.data() + i * width, &half, 2);
        } else {
            std::memcpy(slot.result.data() + i * width, &slot.lanes[i], 4);
        }
    }
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
    job.record.flags = asked.flags;
    job.record.fan_in_log2 = static_cast<uint8_t>(inagg_fan_in_log2(job.record.size));
    restart(job);
    return job;
}

// A new generation, that nobody has joined yet.
void SoftwareSwitch::restart(Job &job) {
    job.members.assign(job.record.size, {});
    job.slots.assign((job.record.slots + job.record.control_slots) * 2, {});
    job.record.generation++;
}

void SoftwareSwitch::join(const Packet &packet) {
    struct inagg_join asked;
    std::memcpy(&asked, packet.body.data(), sizeof(asked));
    Endpoint to = packet.from;
    set_port(to, asked.receive_port);
    const uint16_t rank = inagg_swap16(packet.header.source), size = inagg_swap16(asked.size);
    if (size < 1 || size > INAGG_MAX_RANKS)
        return refuse(packet, to, INAGG_R_SIZE);
    const uint16_t number = inagg_swap16(packet.header.job);
    const auto found = jobs_.find(number);
    Job &job = found == jobs_.end() ? create(number, asked) : found->second;
    if (size != job.record.size)
        return refuse(packet, to, INAGG_R_SIZE);
    if (rank >= size)
        return refuse(packet, to, INAGG_R_RANK);
    if (inagg_swap16(asked.elements) < job.record.elements)
        return refuse(packet, to, INAGG_R_MTU);
    if (asked.algorithm != INAGG_SWITCHML)
        return refuse(packet, to, INAGG_R_ALGORITHM);
    const uint64_t nonce = inagg_swap64(asked.nonce);
    if (job.members[rank].nonce && job.members[rank].nonce != nonce)
        restart(job);
    job.members[rank] = {nonce, to, false};

    inagg_hdr header = answer_to(packet.header, INAGG_CONFIG, boot_);
    header.generation = inagg_swap16(job.record.generation);
    inagg_config config{};
    config.nonce = asked.nonce;
    config.size = inagg_swap16(job.record.size);
    config.elements = inagg_swap16(job.record.elements);
    config.slots = inagg_swap32(job.record.slots);
    config.control_slots = inagg_swap32(job.record.control_slots);
    config.algorithm = job.record.algorithm;
    config.flags = job.record.flags;
    transmit(header, std::as_bytes(std::span(&config, 1)), to);
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

void SoftwareSwitch::send_result(const Job &job, const Slot &slot, const Packet &packet, int rank) {
    inagg_hdr header = answer_to(packet.header, INAGG_RESULT, boot_);
    if (slot.state.flags & INAGG_SLOT_SATURATED)
        header.level_flags |= inagg_swap16(INAGG_F_SATURATED);
    header.count = inagg_swap16(job.record.size);
    header.contributors = inagg_swap64(slot.state.seen);
    header.dtype_op = slot.state.dtype_op;
    header.scale = slot.state.scale;
    header.next_scale = slot.state.next_scale;
    header.elements = inagg_swap16(slot.state.elements);
    const auto body =
        std::span<const std::byte>(slot.result).first(slot.state.elements ? slot.result.size() : 0);
    send_to(job, header, body, rank);
}

void SoftwareSwitch::send_wait(const Job &job, uint64_t seen, const Packet &packet, int rank) {
    counters_.waits++;
    inagg_hdr header = answer_to(packet.header, INAGG_WAIT, boot_);
    header.contributors = inagg_swap64(seen);
    header.elements = 0;
    send_to(job, header, {}, rank);
}

void SoftwareSwitch::send_to(const Job &job, inagg_hdr header, std::span<const std::byte> body, int rank) {
    for (std::size_t to = 0; to < job.members.size(); to++)
        if ((rank == every_rank || static_cast<int>(to) == rank) && job.members[to].nonce)
            transmit(header, body, job.members[to].endpoint, job.record.flags & INAGG_JOIN_CHECKED);
}

void SoftwareSwitch::transmit(inagg_hdr header, std::span<const std::byte> body, const Endpoint &to,
                              bool checked) {
    std::array<std::byte, max_packet> frame;
    if (checked)
        inagg_hdr_seal_checked(&header,
                               inagg_payload_checksum(body.data(), static_cast<uint32_t>(body.size())));
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
    sendto(socket_, bytes.data(), bytes.size(), 0, reinterpret_cast<const sockaddr *>(&to.address),
           to.length);
}

} // namespace inagg
