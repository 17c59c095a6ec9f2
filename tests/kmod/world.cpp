// SPDX-License-Identifier: BSD-2-Clause
#include "world.hpp"

#include <inagg/core/fixed.h>
#include <inagg/core/tensor.h>

#include <arpa/inet.h>
#include <linux/errqueue.h>

#include <algorithm>
#include <cmath>
#include <cstring>

namespace kmod {

sockaddr_inagg address_of(const char *text, uint16_t port) {
    sockaddr_inagg a{};
    a.sinagg_family = AF_INAGG;
    a.sinagg_port = htons(port);
    if (inet_pton(AF_INET6, text, a.sinagg_addr) != 1) {
        a.sinagg_addr[10] = a.sinagg_addr[11] = 0xff;
        if (inet_pton(AF_INET, text, a.sinagg_addr + 12) != 1)
            throw std::invalid_argument(text);
    }
    return a;
}

inagg::Endpoint group_of(const char *text, uint16_t port) {
    inagg::Endpoint group;
    auto &in6 = reinterpret_cast<sockaddr_in6 &>(group.address);
    auto &in = reinterpret_cast<sockaddr_in &>(group.address);
    if (inet_pton(AF_INET, text, &in.sin_addr) == 1) {
        in.sin_family = AF_INET;
        group.length = sizeof(in);
    } else if (inet_pton(AF_INET6, text, &in6.sin6_addr) == 1) {
        in6.sin6_family = AF_INET6;
        group.length = sizeof(in6);
    }
    in.sin_port = htons(port);
    return group;
}

sockaddr_inagg switch_address(uint16_t size, const char *text) {
    sockaddr_inagg a = address_of(text);
    a.sinagg_job = job_number;
    a.sinagg_size = size;
    return a;
}

// Sockets.

// A message's control buffer with one control message: struct cmsghdr without its flexible array.
template <typename T> struct Control {
    size_t length;
    int level, type;
    T content;
};

Rank::Rank(int net) {
    int error;
    sock = mock_socket(net, SOCK_SEQPACKET, 0, &error);
}

int Rank::bind(uint16_t rank, const char *address, uint16_t port) {
    sockaddr_inagg a = address_of(address, port);
    a.sinagg_rank = rank;
    return mock_bind(sock, &a, sizeof(a));
}

int Rank::connect(const sockaddr_inagg &address, bool nonblock) {
    const int result = mock_connect(sock, &address, sizeof(address), nonblock);
    sockaddr_inagg name;
    mock_getname(sock, &name, false);
    port = ntohs(name.sinagg_port);
    return result;
}

int Rank::get(int option) {
    int value = 0, length = sizeof(value);
    const int error = mock_getsockopt(sock, SOL_INAGG, option, &value, &length);
    return error ? error : value;
}

inagg_info Rank::info() {
    inagg_info info{};
    int length = sizeof(info);
    EXPECT_EQ(mock_getsockopt(sock, SOL_INAGG, INAGG_INFO, &info, &length), 0);
    EXPECT_EQ(length, static_cast<int>(sizeof(info)));
    return info;
}

int Rank::send(std::span<const std::byte> data, int flags) {
    mock_message m{};
    m.data = const_cast<std::byte *>(data.data());
    m.bytes = data.size();
    m.flags = flags;
    return mock_sendmsg(sock, &m);
}

int Rank::send(const Bytes &data, const inagg_tensor_type &type, int flags) {
    Control<inagg_tensor_type> control{CMSG_LEN(sizeof(type)), SOL_INAGG, INAGG_CMSG_TENSOR, type};
    mock_message m{};
    m.data = const_cast<std::byte *>(data.data());
    m.bytes = data.size();
    m.control = &control;
    m.control_bytes = sizeof(control);
    m.flags = flags;
    return mock_sendmsg(sock, &m);
}

int Rank::recv(std::span<std::byte> data, int &flags, inagg_result_info *result) {
    Control<inagg_result_info> control;
    mock_message m{};
    m.data = data.data();
    m.bytes = data.size();
    m.control = &control;
    m.control_bytes = sizeof(control);
    m.flags = flags;
    const int length = mock_recvmsg(sock, &m);
    flags = m.flags;
    if (m.control_bytes && result)
        *result = control.content;
    return length;
}

int Rank::recv(std::span<std::byte> data, std::vector<uint64_t> &blocks, size_t room, int &flags) {
    std::vector<uint64_t> control(CMSG_SPACE(sizeof(inagg_result_info)) / 8 + CMSG_SPACE(0) / 8 + room);
    mock_message m{};
    m.data = data.data();
    m.bytes = data.size();
    m.control = control.data();
    m.control_bytes = control.size() * 8;
    m.flags = flags;
    const int length = mock_recvmsg(sock, &m);
    flags = m.flags;
    size_t at = 0;
    while (at + sizeof(cmsghdr) <= m.control_bytes) {
        cmsghdr header;
        std::memcpy(&header, reinterpret_cast<const char *>(control.data()) + at, sizeof(header));
        if (header.cmsg_type == INAGG_CMSG_BLOCKS)
            blocks.insert(blocks.end(), control.begin() + static_cast<long>((at + sizeof(header)) / 8),
                          control.begin() + static_cast<long>((at + header.cmsg_len) / 8));
        at += header.cmsg_len;
    }
    return length;
}

std::optional<inagg_fault> Rank::fault() {
    inagg_fault fault{};
    Control<sock_extended_err> control;
    mock_message m{};
    m.data = &fault;
    m.bytes = sizeof(fault);
    m.control = &control;
    m.control_bytes = sizeof(control);
    m.flags = MSG_ERRQUEUE;
    const int length = mock_recvmsg(sock, &m);
    if (length < 0)
        return {};
    EXPECT_EQ(length, static_cast<int>(sizeof(fault)));
    EXPECT_TRUE(m.flags & MSG_ERRQUEUE);
    EXPECT_EQ(control.type, INAGG_CMSG_FAULT);
    EXPECT_EQ(control.content.ee_errno, fault.error);
    return fault;
}

int Rank::close() {
    struct socket *closing = std::exchange(sock, nullptr);
    return closing ? mock_close(closing) : 0;
}

// The network.

World *World::current_;

World::World(const inagg::SoftwareSwitchOptions &options, uint64_t jitter_ns) : jitter_(jitter_ns) {
    static const mock_world callbacks = {transmit, next_event, run_event};
    inagg::SoftwareSwitchOptions with_us = options;
    with_us.emit = [this](std::span<const std::byte> data, const inagg::Endpoint &to) { to_rank(data, to); };
    with_us.clock = mock_now;
    switch_ = std::make_unique<inagg::SoftwareSwitch>(with_us);
    current_ = this;
    mock_reset(&callbacks);
}

World::~World() { current_ = nullptr; }

void World::at(uint64_t after_ns, std::function<void()> what) { events_.emplace(mock_now() + after_ns, std::move(what)); }

void World::every(uint64_t ns, std::function<bool()> what) {
    at(ns, [this, ns, what] {
        if (what())
            every(ns, what);
    });
}

void World::run(uint64_t for_ns) {
    bool over = false;
    at(for_ns, [&] { over = true; });
    while (!over)
        mock_step();
}

uint64_t World::delay() { return 50 * us + (jitter_ ? random_() % jitter_ : 0); }

uint64_t World::next_event() { return current_->events_.empty() ? UINT64_MAX : current_->events_.begin()->first; }

void World::run_event() {
    auto &events = current_->events_;
    const auto what = std::move(events.begin()->second);
    events.erase(events.begin());
    what();
}

static inagg::Endpoint endpoint_of(const uint8_t *address, uint16_t port) {
    inagg::Endpoint e;
    if (IN6_IS_ADDR_V4MAPPED(reinterpret_cast<const in6_addr *>(address))) {
        auto &in = reinterpret_cast<sockaddr_in &>(e.address);
        in.sin_family = AF_INET;
        in.sin_port = htons(port);
        std::memcpy(&in.sin_addr, address + 12, 4);
        e.length = sizeof(in);
    } else {
        auto &in6 = reinterpret_cast<sockaddr_in6 &>(e.address);
        in6.sin6_family = AF_INET6;
        in6.sin6_port = htons(port);
        std::memcpy(&in6.sin6_addr, address, 16);
        e.length = sizeof(in6);
    }
    return e;
}

void World::transmit(const mock_packet *packet) {
    World &world = *current_;
    if (world.filter && world.filter(*packet))
        return;
    const auto *data = static_cast<const std::byte *>(packet->data);
    Bytes copy(data, data + packet->bytes);
    const inagg::Endpoint from = endpoint_of(packet->from, packet->from_port);
    world.at(world.delay(), [&world, copy, from]() mutable { world.switch_->receive(copy, from); });
}

void World::to_rank(std::span<const std::byte> data, const inagg::Endpoint &to) {
    const bool v6 = to.address.ss_family == AF_INET6;
    const sockaddr_inagg from = address_of(v6 ? "fd00::fe" : "10.0.0.254");
    mock_packet packet{};
    std::memcpy(packet.from, from.sinagg_addr, 16);
    packet.from_port = INAGG_PORT;
    if (v6) {
        const auto &in6 = reinterpret_cast<const sockaddr_in6 &>(to.address);
        std::memcpy(packet.to, &in6.sin6_addr, 16);
        packet.to_port = ntohs(in6.sin6_port);
    } else {
        const auto &in = reinterpret_cast<const sockaddr_in &>(to.address);
        packet.to[10] = packet.to[11] = 0xff;
        std::memcpy(packet.to + 12, &in.sin_addr, 4);
        packet.to_port = ntohs(in.sin_port);
    }
    inagg_hdr h;
    std::memcpy(&h, data.data(), sizeof(h));
    if ((deaf && packet.to_port == deaf) || (lost && lost(h, packet.to_port)))
        return;
    at(delay(), [packet, copy = Bytes(data.begin(), data.end())]() mutable {
        packet.data = copy.data();
        packet.bytes = copy.size();
        mock_deliver(&packet);
    });
}

bool World::deliver(std::span<const std::byte> data, uint16_t to, const char *from, uint16_t from_port, int interface,
                    int slave) {
    mock_packet packet{};
    const sockaddr_inagg source = address_of(from), target = address_of(std::strchr(from, ':') ? "fe80::1" : "10.0.0.1");
    std::memcpy(packet.from, source.sinagg_addr, 16);
    std::memcpy(packet.to, target.sinagg_addr, 16);
    packet.from_port = from_port;
    packet.to_port = to;
    packet.interface = interface;
    packet.slave = slave;
    packet.data = data.data();
    packet.bytes = data.size();
    return mock_deliver(&packet);
}

// Whole jobs.

void KmodTest::start(const inagg::SoftwareSwitchOptions &options, uint64_t jitter_ns) {
    world.reset();
    world = std::make_unique<World>(options, jitter_ns);
    ASSERT_EQ(mock_load(), 0) << mock_printed();
}

std::vector<Rank> &KmodTest::join(uint16_t size, const std::function<void(Rank &)> &prepare) {
    for (uint16_t i = 0; i < size; i++) {
        ranks.emplace_back();
        EXPECT_EQ(ranks.back().bind(i), 0);
        if (prepare)
            prepare(ranks.back());
        EXPECT_EQ(ranks.back().connect(size), 0) << "rank " << i;
    }
    return ranks;
}

std::vector<Transfer> KmodTest::allreduce(const std::vector<Bytes> &inputs) {
    std::vector<Transfer> transfers;
    for (size_t i = 0; i < inputs.size(); i++)
        transfers.push_back({ranks.at(i), inputs[i]});
    pump(transfers);
    return transfers;
}

void expect_clean_end(World &world, std::vector<Rank> &ranks) {
    mock_fail(nullptr, 0);
    mock_kill(false);
    mock_set_preemption(nullptr);
    ranks.clear();
    world.run(61 * s); // beyond every deadline: lingering sockets end
    mock_unload();
    mock_check_empty();
    EXPECT_EQ(mock_charged(), 0);
    EXPECT_STREQ(mock_complaints(), "");
}

void KmodTest::TearDown() {
    if (world)
        expect_clean_end(*world, ranks);
}

static bool send_more(Transfer &t) {
    if (t.begun && t.sent == t.input.size())
        return false;
    const int sent = t.rank.send(std::span(t.input).subspan(t.sent), MSG_DONTWAIT);
    if (sent == -EAGAIN)
        return false;
    if (sent < 0) {
        t.error = sent;
        t.done = true;
        return true;
    }
    t.begun = true;
    t.sent += static_cast<size_t>(sent);
    return true;
}

static bool receive_more(Transfer &t) {
    std::byte part[1000]; // no multiple of anything
    int flags = MSG_DONTWAIT;
    const int got = t.rank.recv(part, flags, &t.info);
    if (got == -EAGAIN)
        return false;
    t.error = std::min(got, 0);
    t.done = got < 0 || flags & MSG_EOR;
    t.output.insert(t.output.end(), part, part + std::max(got, 0));
    return true;
}

bool take_turns(std::vector<Transfer> &transfers) {
    bool progress = false;
    for (Transfer &t : transfers)
        if (!t.done)
            progress = send_more(t) | (!t.done && receive_more(t)) | progress;
    return progress;
}

bool are_done(const std::vector<Transfer> &transfers) {
    return std::all_of(transfers.begin(), transfers.end(), [](const Transfer &t) { return t.done; });
}

void pump(std::vector<Transfer> &transfers) {
    while (!are_done(transfers)) {
        if (!take_turns(transfers) && !mock_step()) {
            ADD_FAILURE() << "nothing will happen any more, but there are results missing";
            return;
        }
    }
}

// Arithmetic.

static uint32_t element(const Bytes &in, size_t i, uint32_t width) {
    uint32_t bits = 0;
    std::memcpy(&bits, in.data() + i * width, width);
    return bits;
}

// The switch's part: one element of all ranks.
static uint32_t fold(const inagg_coding &coding, uint8_t scale, const std::vector<Bytes> &inputs, size_t i) {
    const uint32_t width = inagg_memory_bytes(coding.dtype), log2 = inagg_fan_in_log2(inputs.size());
    const bool half_sum = width == 2 && coding.op == INAGG_SUM;
    const uint32_t mantissa = coding.dtype == INAGG_FLOAT16 ? 10 : 7;
    uint32_t total = 0;
    uint8_t saturated = 0;
    for (size_t rank = 0; rank < inputs.size(); rank++) {
        const uint32_t bits = element(inputs[rank], i, width);
        const auto wire = half_sum                      ? static_cast<uint32_t>(inagg_half_to_fixed(bits, mantissa, log2, scale))
                          : coding.dtype == INAGG_INT32 ? bits
                                                        : inagg_encode(&coding, bits, &saturated);
        const bool less = static_cast<int32_t>(wire) < static_cast<int32_t>(total);
        if (!rank || (coding.op != INAGG_SUM && less == (coding.op == INAGG_MIN)))
            total = wire;
        else if (coding.op == INAGG_SUM)
            total += wire;
    }
    if (half_sum)
        return inagg_fixed_to_half(static_cast<int32_t>(total), mantissa, log2, scale);
    return coding.dtype == INAGG_INT32 ? total : inagg_decode(&coding, total, static_cast<uint32_t>(inputs.size()));
}

Bytes expected(inagg_dtype dtype, inagg_op op, const std::vector<Bytes> &inputs) {
    const uint32_t width = inagg_memory_bytes(dtype);
    const size_t count = inputs[0].size() / width;
    uint8_t scale = 0;
    if (inagg_needs_scale(dtype, op, INAGG_FLOATS_FIXED))
        for (const Bytes &in : inputs)
            scale = std::max(scale, inagg_exponent_of(inagg_largest_magnitude(in.data(), count, dtype, 0), dtype));
    inagg_coding coding;
    inagg_coding_init(&coding, dtype, op, static_cast<uint32_t>(inputs.size()), scale, 0);
    Bytes out(inputs[0].size());
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = fold(coding, scale, inputs, i);
        std::memcpy(out.data() + i * width, &bits, width);
    }
    return out;
}

std::vector<Bytes> inputs_of(inagg_dtype dtype, uint16_t size, size_t count, unsigned seed) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    std::vector<Bytes> inputs(size, Bytes(count * inagg_memory_bytes(dtype)));
    for (Bytes &in : inputs)
        for (size_t i = 0; i < count; i++) {
            const float x = normal(random);
            uint32_t bits = static_cast<uint32_t>(random());
            if (dtype == INAGG_FLOAT32)
                std::memcpy(&bits, &x, 4);
            else if (dtype == INAGG_BFLOAT16)
                std::memcpy(&bits, reinterpret_cast<const char *>(&x) + 2, 2);
            else if (dtype == INAGG_FLOAT16)
                bits = (bits & 0x83ff) | (10 + bits % 8) << 10;
            std::memcpy(in.data() + i * inagg_memory_bytes(dtype), &bits, inagg_memory_bytes(dtype));
        }
    return inputs;
}

std::vector<Bytes> integers(uint16_t size, size_t count, unsigned seed) { return inputs_of(INAGG_INT32, size, count, seed); }

} // namespace kmod
