// SPDX-License-Identifier: BSD-2-Clause
// The server, packet by packet: what it takes, what it answers and to whom.
#include "error.hpp"
#include "server.hpp"
#include "statistics.hpp"

#include <inagg/core/aggregator.h>
#include <inagg/core/checksum.h>
#include <inagg/core/packet.h>
#include <inagg/core/raw.h>

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>

namespace ps {
namespace {

using namespace inaggd;
using namespace std::chrono_literals;

constexpr uint16_t boot = 0x1234, job_number = 7, ranks = 3, elements = 64;
constexpr uint32_t slots = 4, control_slots = 2;
constexpr uint32_t beyond = slots + control_slots;

struct Sent {
    inagg_hdr header;
    std::vector<std::byte> payload;
    Endpoint to;

    uint8_t type() const { return inagg_hdr_type(&header); }
    uint16_t flags() const { return inagg_swap16(header.level_flags); }
    uint32_t lane(std::size_t i) const {
        uint32_t value;
        std::memcpy(&value, &payload.at(i * 4), 4);
        return value;
    }
    template <typename Body> Body body() const {
        Body body;
        EXPECT_EQ(payload.size(), sizeof body);
        EXPECT_TRUE(inagg_packet_intact(&header, inagg_body_checksum(payload.data())));
        std::memcpy(&body, payload.data(), sizeof body);
        return body;
    }
};

class Mailbox final : public Outbox {
public:
    void send(const inagg_hdr &header, std::span<const std::byte> payload, std::span<const Endpoint> to) override {
        EXPECT_TRUE(inagg_hdr_intact(&header));
        EXPECT_EQ(inagg_swap16(header.boot), boot);
        for (const Endpoint &one : to)
            sent.push_back({header, {payload.begin(), payload.end()}, one});
    }
    std::vector<Sent> take() { return std::exchange(sent, {}); }

    std::vector<Sent> sent;
};

Endpoint endpoint(uint8_t host, uint16_t port = 5000) {
    Endpoint at{.address = *Address::parse("10.77.0.0"), .port = htons(port)};
    at.address.bytes[3] = host;
    return at;
}
Endpoint host_of(uint16_t rank) { return endpoint(static_cast<uint8_t>(10 + rank)); }
Endpoint child() { return endpoint(129, INAGG_PORT); }

// A packet before it is sealed; whatever a test wants to be wrong is.
struct Packet {
    inagg_hdr header{};
    std::vector<uint32_t> body{};
    bool checked = false;

    void flag(uint16_t flags) { header.level_flags |= inagg_swap16(flags); }
};

class ServerTest : public testing::Test {
protected:
    ServerTest() {
        spdlog::set_level(spdlog::level::off);
        start({});
    }

    void start(Policy policy, Indices indices = Indices::hashed, const Keys &keys = {}) {
        policy.server = true;
        policy.job_slots = slots;
        policy.job_control = control_slots;
        policy.mtu = 65536;
        policy.children = {{Server::only_port, child().address}};
        server = std::make_unique<Server>(
            policy, boot, [] { return uint16_t{41}; }, mail, indices, keys);
    }

    void deliver(Packet packet, const Endpoint &from, bool congested = false) {
        const auto bytes = static_cast<uint32_t>(packet.body.size() * 4);
        if (packet.checked)
            inagg_hdr_seal_checked(&packet.header, inagg_payload_checksum(packet.body.data(), bytes));
        else
            inagg_hdr_seal(&packet.header);
        deliver_raw(packet, from, congested);
    }
    void deliver_raw(const Packet &packet, const Endpoint &from, bool congested = false) {
        std::vector<uint32_t> words(sizeof packet.header / 4);
        std::memcpy(words.data(), &packet.header, sizeof packet.header);
        words.insert(words.end(), packet.body.begin(), packet.body.end());
        server->receive(std::as_bytes(std::span(words)), from, congested, now);
    }

    Packet packet(inagg_type type, uint16_t rank, uint32_t block = 0) const {
        Packet p;
        inagg_job_config config{};
        config.job = job_number;
        config.rank = rank;
        config.size = size;
        config.generation = generation();
        config.boot = boot;
        inagg_hdr_start(&p.header, &config, type);
        p.header.block = inagg_swap32(block);
        p.header.slot = inagg_swap32(block % slots);
        if (block / slots & 1)
            p.flag(INAGG_F_VERSION);
        p.checked = checked;
        return p;
    }
    Packet contribution(uint16_t rank, uint32_t block, std::vector<uint32_t> values, uint8_t dtype = INAGG_WIRE_INT32,
                        uint8_t op = INAGG_WIRE_SUM) const {
        Packet p = packet(INAGG_CONTRIBUTION, rank, block);
        values.resize((values.size() + INAGG_CHUNK - 1) / INAGG_CHUNK * INAGG_CHUNK);
        p.header.dtype_op = static_cast<uint8_t>(dtype << 4 | op);
        p.header.elements = inagg_swap16(static_cast<uint16_t>(values.size()));
        p.body = std::move(values);
        return p;
    }
    Packet join_packet(uint16_t rank, uint64_t nonce, uint8_t flags = 0, uint16_t job = job_number) const {
        Packet p;
        inagg_job_config config{};
        config.job = job;
        config.rank = rank;
        config.size = size;
        config.elements = elements;
        config.algorithm = algorithm;
        config.checked = checked;
        inagg_hdr_start(&p.header, &config, INAGG_JOIN);
        struct inagg_join body;
        inagg_join_fill(&body, &config, nonce, flags & INAGG_JOIN_TREE ? INAGG_PORT : 5000);
        if (flags & INAGG_JOIN_TREE) // a switch says what it adds itself
            body.flags &= static_cast<uint8_t>(~INAGG_JOIN_BIG_ENDIAN);
        body.flags |= flags;
        p.body.resize(sizeof body / 4);
        std::memcpy(p.body.data(), &body, sizeof body);
        p.checked = true;
        return p;
    }

    static uint64_t nonce_of(uint16_t rank) { return 1000u + rank; }
    void join_all() {
        for (uint16_t rank = 0; rank < size; rank++)
            deliver(join_packet(rank, nonce_of(rank)), host_of(rank));
        mail.take();
    }
    // Ranks 0 and 2 are behind a switch, rank 1 is not.
    void join_tree() {
        deliver(join_packet(0, nonce_of(0), INAGG_JOIN_TREE), child());
        deliver(join_packet(2, nonce_of(2), INAGG_JOIN_TREE), child());
        EXPECT_TRUE(mail.take().empty()) << "a switch hears nothing before all ranks have joined";
        deliver(join_packet(1, nonce_of(1)), host_of(1));
        mail.take();
    }
    void contribute_all(uint32_t block, uint16_t flags = 0, uint16_t index = 0) {
        for (uint16_t rank = 0; rank < size; rank++) {
            Packet p = contribution(rank, block, {rank + 1u});
            p.flag(flags);
            p.header.switch_id = inagg_swap16(index);
            deliver(p, host_of(rank));
        }
    }
    uint16_t generation() const {
        const auto job = server->book().jobs().find(job_number);
        return job == server->book().jobs().end() ? 0 : job->second.record.generation;
    }
    inagg_stats stats() const {
        inagg_stats found{};
        server->for_jobs([&](uint16_t number, const inagg_stats &stats) { found = number == job_number ? stats : found; });
        return found;
    }
    Sent only() {
        const auto sent = mail.take();
        EXPECT_EQ(sent.size(), 1u);
        return sent.empty() ? Sent{} : sent[0];
    }
    void expect_dropped(const Packet &p, inagg_reason reason, const Endpoint &from) {
        const uint64_t before = stats().drops[reason];
        deliver(p, from);
        EXPECT_EQ(stats().drops[reason], before + 1) << reason_name(reason);
        if (reason != INAGG_R_GENERATION) {
            EXPECT_TRUE(mail.sent.empty());
        }
        mail.take();
    }

    uint16_t size = ranks;
    uint8_t algorithm = INAGG_ATP;
    bool checked = false;
    Mailbox mail;
    std::unique_ptr<Server> server;
    Time now = Time{} + 1h;
};

TEST_F(ServerTest, TellsRanksWhatTheJobIs) {
    deliver(join_packet(1, 77), host_of(1));
    const Sent answer = only();
    EXPECT_EQ(answer.type(), INAGG_CONFIG);
    EXPECT_EQ(answer.to, host_of(1));
    EXPECT_EQ(inagg_swap16(answer.header.generation), 41);
    EXPECT_EQ(inagg_swap64(answer.header.contributors), 0b111u);
    const auto config = answer.body<inagg_config>();
    EXPECT_EQ(inagg_swap64(config.nonce), 77u);
    EXPECT_EQ(inagg_swap16(config.elements), elements);
    EXPECT_EQ(inagg_swap32(config.slots), slots);
    EXPECT_EQ(config.algorithm, INAGG_ATP);
    EXPECT_EQ(config.flags, INAGG_JOIN_TREE);

    deliver(join_packet(1, 77), host_of(1)); // repeated
    EXPECT_EQ(only().type(), INAGG_CONFIG);
}

TEST_F(ServerTest, SumsAndTellsAll) {
    join_all();
    contribute_all(0, 0, 99);
    const auto sent = mail.take();
    ASSERT_EQ(sent.size(), 3u);
    for (uint16_t rank = 0; rank < size; rank++) {
        const Sent &result = sent[rank];
        EXPECT_EQ(result.to, host_of(rank));
        EXPECT_EQ(result.type(), INAGG_RESULT);
        EXPECT_EQ(result.flags(), INAGG_F_MULTICAST);
        EXPECT_EQ(inagg_swap16(result.header.count), 3);
        EXPECT_EQ(inagg_swap64(result.header.contributors), 0b111u);
        EXPECT_EQ(inagg_swap16(result.header.switch_id), 99);
        ASSERT_EQ(result.payload.size(), INAGG_CHUNK * 4u);
        EXPECT_EQ(result.lane(0), 6u);
        EXPECT_EQ(result.lane(31), 0u);
    }
    EXPECT_EQ(stats().additions, 3u);
    EXPECT_EQ(stats().completions, 1u);
}

TEST_F(ServerTest, FoldsAsTheOperatorSays) {
    join_all();
    const std::vector<uint32_t> values[] = {{5, 0x80000000, 0xffffffff}, {0xfffffffd, 0x7fffffff, 2}, {7, 0, 0xfffffff0}};
    struct Case {
        uint8_t dtype, op;
        std::vector<uint32_t> expected;
    };
    const Case cases[] = {
        {INAGG_WIRE_INT32, INAGG_WIRE_SUM, {9, 0xffffffff, 0xfffffff1}},
        {INAGG_WIRE_INT32, INAGG_WIRE_MIN, {0xfffffffd, 0x80000000, 0xfffffff0}},
        {INAGG_WIRE_INT32, INAGG_WIRE_MAX, {7, 0x7fffffff, 2}},
        {INAGG_WIRE_FIXED32, INAGG_WIRE_SUM, {9, 0xffffffff, 0xfffffff1}},
    };
    uint32_t block = 0;
    for (const Case &one : cases) {
        for (uint16_t rank = 0; rank < size; rank++) {
            std::vector<uint32_t> all(elements); // the same in each vector of lanes
            for (std::size_t i = 0; i < all.size(); i++)
                all[i] = values[rank][i % 3];
            deliver(contribution(rank, block, all, one.dtype, one.op), host_of(rank));
        }
        const auto sent = mail.take();
        ASSERT_EQ(sent.size(), 3u);
        for (std::size_t i = 0; i < elements; i++)
            ASSERT_EQ(sent[0].lane(i), one.expected[i % 3]) << int{one.dtype} << " " << int{one.op} << " " << i;
        block++;
    }
}

TEST_F(ServerTest, RanksWithoutElementsCount) {
    join_all();
    deliver(contribution(0, 0, {}), host_of(0));
    deliver(contribution(1, 0, {5}), host_of(1));
    deliver(contribution(2, 0, {}), host_of(2));
    const auto sent = mail.take();
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_EQ(sent[0].lane(0), 5u);
}

TEST_F(ServerTest, ControlBlocksAgreeOnTheLargestScale) {
    join_all();
    for (uint16_t rank = 0; rank < size; rank++) {
        Packet p = packet(INAGG_CONTRIBUTION, rank);
        p.header.slot = inagg_swap32(slots);
        p.header.next_scale = static_cast<uint8_t>(100 + (rank == 1 ? 9 : rank));
        deliver(p, host_of(rank));
    }
    const auto sent = mail.take();
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_EQ(sent[2].header.next_scale, 109);
    EXPECT_TRUE(sent[2].payload.empty());
}

TEST_F(ServerTest, AnswersDuplicates) {
    join_all();
    deliver(contribution(1, 0, {2}), host_of(1));
    EXPECT_TRUE(mail.sent.empty());
    deliver(contribution(1, 0, {2}), host_of(1));
    const Sent wait = only();
    EXPECT_EQ(wait.type(), INAGG_WAIT);
    EXPECT_EQ(wait.to, host_of(1));
    EXPECT_EQ(inagg_swap64(wait.header.contributors), 0b010u);
    EXPECT_EQ(wait.header.window_cap, 0);

    contribute_all(0);
    const auto first = mail.take();
    Packet again = contribution(0, 0, {1});
    again.flag(INAGG_F_RESEND);
    deliver(again, host_of(0));
    const Sent result = only();
    EXPECT_EQ(result.type(), INAGG_RESULT);
    EXPECT_EQ(result.flags(), INAGG_F_RESEND);
    EXPECT_EQ(result.payload, first.back().payload);
    EXPECT_EQ(stats().additions, 3u);
}

TEST_F(ServerTest, AnswersRequests) {
    join_all();
    deliver(packet(INAGG_REQUEST, 2), host_of(2));
    Sent wait = only();
    EXPECT_EQ(wait.type(), INAGG_WAIT);
    EXPECT_EQ(wait.header.contributors, 0u);

    deliver(contribution(0, 0, {1}), host_of(0));
    Packet everyone = packet(INAGG_REQUEST, 0);
    everyone.flag(INAGG_F_MULTICAST);
    deliver(everyone, host_of(0));
    const auto sent = mail.take();
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_EQ(sent[2].type(), INAGG_WAIT);
    EXPECT_EQ(sent[2].flags(), INAGG_F_MULTICAST);
    EXPECT_EQ(inagg_swap64(sent[2].header.contributors), 0b001u);

    contribute_all(0);
    mail.take();
    deliver(packet(INAGG_REQUEST, 2), host_of(2));
    EXPECT_EQ(only().type(), INAGG_RESULT);
}

TEST_F(ServerTest, KeepsTheLastBlockOfAPosition) {
    join_all();
    contribute_all(0);
    contribute_all(slots);
    mail.take();
    deliver(packet(INAGG_REQUEST, 0, 0), host_of(0));
    EXPECT_EQ(inagg_swap32(only().header.block), 0u);
    contribute_all(2 * slots);
    mail.take();
    expect_dropped(contribution(0, 0, {1}), INAGG_R_STALE, host_of(0));
    expect_dropped(packet(INAGG_REQUEST, 0, 0), INAGG_R_STALE, host_of(0));
}

TEST_F(ServerTest, NamesTheAggregatorOfTheNextBlock) {
    join_all();
    const auto expect_next = [&](uint32_t block, uint16_t flags, uint32_t moves) {
        contribute_all(block, flags);
        deliver(packet(INAGG_REQUEST, 1, block), host_of(1)); // a copy says the same
        const auto sent = mail.take();
        ASSERT_EQ(sent.size(), 4u);
        for (const Sent &one : sent)
            EXPECT_EQ(inagg_swap16(one.header.window_cap), inagg_aggregator_index(job_number, block % slots, moves)) << block;
    };
    expect_next(0, 0, 0);
    expect_next(slots, INAGG_F_COLLISION, 1); // once, however many packets collided
    expect_next(2 * slots, 0, 1);
    expect_next(3 * slots, INAGG_F_COLLISION, 2);
    expect_next(1, 0, 0); // other positions stay where they are
}

TEST_F(ServerTest, OneCollisionOrMarkOfABlockIsEnough) {
    join_all();
    deliver(contribution(0, 0, {1}), host_of(0));
    Packet marked = contribution(1, 0, {1});
    marked.flag(INAGG_F_COLLISION | INAGG_F_CONGESTION);
    deliver(marked, host_of(1));
    deliver(contribution(2, 0, {1}), host_of(2));
    Sent result = mail.take().at(0);
    EXPECT_EQ(result.flags(), INAGG_F_MULTICAST | INAGG_F_CONGESTION);
    EXPECT_EQ(inagg_swap16(result.header.window_cap), inagg_aggregator_index(job_number, 0, 1));

    contribute_all(2 * slots); // the next one in its place is unmarked
    result = mail.take().at(0);
    EXPECT_EQ(result.flags(), INAGG_F_MULTICAST);
    EXPECT_EQ(inagg_swap16(result.header.window_cap), inagg_aggregator_index(job_number, 0, 1));

    deliver(contribution(0, 4 * slots, {1}), host_of(0), true); // marked by a router
    deliver(contribution(1, 4 * slots, {1}), host_of(1));
    deliver(contribution(2, 4 * slots, {1}), host_of(2));
    EXPECT_EQ(mail.take().at(0).flags(), INAGG_F_MULTICAST | INAGG_F_CONGESTION);
}

TEST_F(ServerTest, OtherAggregatorsAreForComparison) {
    const auto next = [this] {
        join_all();
        Packet collided = contribution(0, 3, {1});
        collided.flag(INAGG_F_COLLISION);
        deliver(collided, host_of(0));
        deliver(contribution(1, 3, {1}), host_of(1));
        deliver(contribution(2, 3, {1}), host_of(2));
        return inagg_swap16(mail.take().at(0).header.window_cap);
    };
    start({}, Indices::linear);
    EXPECT_EQ(next(), 3) << "as in every job";
    start({}, Indices::partitioned);
    const uint32_t own = next();
    const inagg_job &record = server->book().jobs().at(job_number).record;
    EXPECT_EQ(own, job_number * std::bit_ceil(record.slots + record.control_slots) + 3) << "whichever its server is";
}

TEST_F(ServerTest, SwitchmlHasNoAggregators) {
    algorithm = INAGG_SWITCHML;
    join_all();
    contribute_all(0, INAGG_F_COLLISION, 99);
    const Sent result = mail.take().at(0);
    EXPECT_EQ(result.header.window_cap, 0);
    EXPECT_EQ(result.header.switch_id, 0);
}

// Blocks with an element that does not fit the scale.
class SaturationTest : public ServerTest {
protected:
    Packet fixed(uint16_t rank, uint32_t block = 0) const {
        Packet p = contribution(rank, block, {rank + 1u}, INAGG_WIRE_FIXED32);
        if (rank == 1)
            p.flag(INAGG_F_SATURATED);
        return p;
    }
    Packet floats(uint16_t rank, const std::vector<float> &values, uint32_t block = 0) const {
        std::vector<uint32_t> bits;
        for (const float value : values)
            bits.push_back(std::bit_cast<uint32_t>(value));
        Packet p = contribution(rank, block, bits, INAGG_WIRE_FLOAT32);
        p.flag(INAGG_F_RESEND);
        return p;
    }
    void saturate(uint32_t block = 0) {
        for (uint16_t rank = 0; rank < size; rank++)
            deliver(fixed(rank, block), host_of(rank));
    }
    // Answered by the demand for floats, to one rank.
    void expect_demand(const Packet &p, uint16_t rank, uint64_t contributors) {
        deliver(p, host_of(rank));
        const Sent wait = only();
        EXPECT_EQ(wait.type(), INAGG_WAIT);
        EXPECT_EQ(wait.flags() & ~INAGG_F_VERSION, INAGG_F_SATURATED);
        EXPECT_EQ(wait.to, host_of(rank));
        EXPECT_EQ(inagg_swap64(wait.header.contributors), contributors);
    }
    static float value(const Sent &result, std::size_t i) { return std::bit_cast<float>(result.lane(i)); }
};

TEST_F(SaturationTest, AllRanksAreAskedForFloats) {
    join_all();
    saturate();
    const auto sent = mail.take();
    ASSERT_EQ(sent.size(), 3u);
    for (uint16_t rank = 0; rank < size; rank++) {
        EXPECT_EQ(sent[rank].to, host_of(rank));
        EXPECT_EQ(sent[rank].type(), INAGG_WAIT);
        EXPECT_EQ(sent[rank].flags(), INAGG_F_MULTICAST | INAGG_F_SATURATED);
        EXPECT_EQ(sent[rank].header.contributors, 0u);
    }
    EXPECT_EQ(stats().saturated, 1u);
    EXPECT_EQ(stats().completions, 0u);

    deliver(floats(2, {1e10f}), host_of(2));
    deliver(floats(0, {0.5f}), host_of(0));
    EXPECT_TRUE(mail.sent.empty());
    deliver(floats(1, {-1e10f}), host_of(1));
    const Sent result = mail.take().at(2);
    EXPECT_EQ(result.type(), INAGG_RESULT);
    EXPECT_EQ(result.flags(), INAGG_F_MULTICAST | INAGG_F_RESEND);
    EXPECT_EQ(result.header.dtype_op, INAGG_RAW_DTYPE_OP);
    EXPECT_EQ(inagg_swap64(result.header.contributors), 0b111u);
    EXPECT_EQ(inagg_swap16(result.header.count), 3);
    EXPECT_EQ(value(result, 0), 0.5f);
    EXPECT_EQ(result.lane(31), 0u);
    EXPECT_EQ(stats().completions, 1u);

    contribute_all(2 * slots); // the next block there
    EXPECT_EQ(mail.take().at(0).lane(0), 6u);
}

TEST_F(SaturationTest, TheOrderOfArrivalDoesNotShow) {
    constexpr float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const std::vector<float> values[ranks] = {
        {1e30f, 0x1p53f, 3e38f, infinity, infinity, nan, -0.0f, 1e-45f, 1e-30f},
        {1, 1, 3e38f, 1, -infinity, 1, -0.0f, 1e-45f, 1},
        {-1e30f, -0x1p53f, 1, 1, 1, infinity, -0.0f, 0, -1},
    };
    join_all();
    std::array<uint16_t, ranks> order{0, 1, 2};
    std::vector<std::byte> first;
    uint32_t block = 0;
    do {
        saturate(block);
        for (const uint16_t rank : order)
            deliver(floats(rank, values[rank], block), host_of(rank));
        const Sent result = mail.take().back();
        ASSERT_EQ(result.type(), INAGG_RESULT);
        for (std::size_t i = 0; i < values[0].size(); i++) {
            const auto sum = static_cast<float>(double{values[0][i]} + values[1][i] + values[2][i]);
            if (std::isnan(sum))
                EXPECT_TRUE(std::isnan(value(result, i))) << i;
            else
                EXPECT_EQ(result.lane(i), std::bit_cast<uint32_t>(sum)) << i;
        }
        if (first.empty())
            first = result.payload;
        EXPECT_EQ(result.payload, first);
        block++;
    } while (std::next_permutation(order.begin(), order.end()));
    EXPECT_EQ(block, 6u);
}

// What a rank or switch says and is told where elements travel in network byte order.
Packet turned(Packet packet) {
    inagg_turn_elements(packet.body.data(), static_cast<uint32_t>(packet.body.size() * sizeof(uint32_t)));
    return packet;
}

TEST_F(SaturationTest, AddsInTheByteOrderOfTheSwitchBelow) {
    for (const uint16_t rank : {0, 2})
        deliver(join_packet(rank, nonce_of(rank), INAGG_JOIN_TREE | INAGG_JOIN_BIG_ENDIAN), child());
    deliver(join_packet(1, nonce_of(1)), host_of(1));
    const Sent config = mail.take().back();
    ASSERT_EQ(config.type(), INAGG_CONFIG);
    EXPECT_TRUE(server->book().jobs().at(job_number).record.flags & INAGG_JOIN_BIG_ENDIAN);

    Packet both = turned(contribution(0, 0, {0x00ff00ffu}));
    both.header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_PARTIAL;
    both.header.contributors = inagg_swap64(0b101);
    both.header.count = inagg_swap16(2);
    deliver(both, child());
    deliver(turned(contribution(1, 0, {1})), host_of(1));
    EXPECT_EQ(mail.take().at(0).lane(0), inagg_swap32(0x00ff0100u));

    const Endpoint senders[ranks] = {child(), host_of(1), child()};
    for (uint16_t rank = 0; rank < ranks; rank++)
        deliver(turned(fixed(rank, 1)), senders[rank]);
    const std::vector<float> values[ranks] = {{1.5f}, {0.25f}, {-1}};
    for (uint16_t rank = 0; rank < ranks; rank++)
        deliver(turned(floats(rank, values[rank], 1)), senders[rank]);
    const Sent result = mail.take().back();
    EXPECT_EQ(result.header.dtype_op, INAGG_RAW_DTYPE_OP);
    EXPECT_EQ(result.lane(0), inagg_swap32(std::bit_cast<uint32_t>(0.75f)));
}

TEST_F(ServerTest, SwitchesBelowAddInOneByteOrder) {
    deliver(join_packet(0, nonce_of(0), INAGG_JOIN_TREE | INAGG_JOIN_BIG_ENDIAN), child());
    mail.take();
    deliver(join_packet(2, nonce_of(2), INAGG_JOIN_TREE), child());
    const Sent refused = only();
    EXPECT_EQ(refused.type(), INAGG_REFUSED);
    EXPECT_EQ(inagg_swap32(refused.header.slot), uint32_t{INAGG_R_POLICY});
}

TEST_F(SaturationTest, WhateverIsLostIsAskedForAgain) {
    join_all();
    saturate();
    mail.take(); // lost
    expect_demand(fixed(0), 0, 0);
    expect_demand(packet(INAGG_REQUEST, 2), 2, 0);
    deliver(floats(1, {1}), host_of(1));
    expect_demand(floats(1, {1}), 1, 0b010);
    expect_demand(fixed(1), 1, 0b010);
    expect_demand(packet(INAGG_REQUEST, 0), 0, 0b010);
    Packet everyone = packet(INAGG_REQUEST, 1);
    everyone.flag(INAGG_F_MULTICAST);
    deliver(everyone, host_of(1));
    for (const Sent &wait : mail.take())
        EXPECT_EQ(wait.flags(), INAGG_F_MULTICAST | INAGG_F_SATURATED);
    deliver(floats(0, {2}), host_of(0));
    deliver(floats(2, {4}), host_of(2));
    const Sent result = mail.take().at(0);
    EXPECT_EQ(value(result, 0), 7);
    EXPECT_EQ(stats().saturated, 1u);
    for (const Packet &again : {floats(0, {2}), fixed(0), packet(INAGG_REQUEST, 0)}) {
        deliver(again, host_of(0));
        const Sent copy = only();
        EXPECT_EQ(copy.type(), INAGG_RESULT);
        EXPECT_EQ(copy.header.dtype_op, INAGG_RAW_DTYPE_OP);
        EXPECT_EQ(copy.payload, result.payload);
    }
}

TEST_F(SaturationTest, FloatsThatItDidNotAskForDoNoHarm) {
    join_tree();
    expect_dropped(floats(1, {1}), INAGG_R_UNSOLICITED, host_of(1));
    deliver(fixed(1), host_of(1));
    expect_dropped(floats(1, {1}), INAGG_R_UNSOLICITED, host_of(1));
    Packet partial = fixed(2);
    partial.header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_PARTIAL;
    partial.header.contributors = inagg_swap64(0b101);
    deliver(partial, child());
    ASSERT_EQ(mail.take().size(), 2u) << "to the switch once";
    Packet sum = floats(2, {1});
    sum.header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_PARTIAL;
    sum.header.contributors = inagg_swap64(0b101);
    expect_dropped(sum, INAGG_R_DTYPE, child());
    deliver(partial, child()); // late
    EXPECT_EQ(only().flags(), INAGG_F_SATURATED);
    Packet longer = floats(1, {1});
    longer.header.elements = inagg_swap16(elements);
    longer.body.resize(elements);
    expect_dropped(longer, INAGG_R_MISMATCH, host_of(1));
    deliver(floats(0, {1}), child());
    deliver(floats(2, {2}), child());
    deliver(floats(1, {4}), host_of(1));
    EXPECT_EQ(value(mail.take().at(0), 0), 7);
}

TEST_F(SaturationTest, SwitchmlAndControlBlocksSayItInTheResult) {
    join_all();
    for (uint16_t rank = 0; rank < size; rank++) {
        Packet p = fixed(rank);
        p.header.slot = inagg_swap32(slots);
        deliver(p, host_of(rank));
    }
    EXPECT_EQ(mail.take().at(0).flags(), INAGG_F_MULTICAST | INAGG_F_SATURATED);

    start({});
    algorithm = INAGG_SWITCHML;
    join_all();
    saturate();
    EXPECT_EQ(mail.take().at(0).flags(), INAGG_F_MULTICAST | INAGG_F_SATURATED);
    expect_dropped(floats(0, {1}), INAGG_R_DTYPE, host_of(0));
}

TEST_F(SaturationTest, ItsMemoryIsBounded) {
    start({.slots = beyond}); // 40 KB; a block of 64 ranks takes 16
    size = 64;
    join_all();
    for (uint32_t block = 0; block < 3; block++) {
        saturate(block);
        mail.take();
        for (uint16_t rank = 0; rank < size - 1; rank++)
            deliver(floats(rank, {1}, block), host_of(rank));
    }
    EXPECT_EQ(stats().drops[INAGG_R_FULL], 63u);
    EXPECT_TRUE(mail.take().empty());
    deliver(floats(63, {1}, 0), host_of(63));
    EXPECT_EQ(value(mail.take().at(0), 0), 64);
    for (uint16_t rank = 0; rank < size; rank++) // now there is room
        deliver(floats(rank, {1}, 2), host_of(rank));
    EXPECT_EQ(value(mail.take().at(0), 0), 64);
}

TEST_F(ServerTest, TellsASwitchWhoIsBehindIt) {
    join_tree();
    deliver(join_packet(2, nonce_of(2), INAGG_JOIN_TREE), child());
    const Sent config = only();
    EXPECT_EQ(config.type(), INAGG_CONFIG);
    EXPECT_EQ(config.to, child());
    EXPECT_EQ(inagg_swap64(config.header.contributors), 0b101u);
}

TEST_F(ServerTest, TakesPartialSumsOfASubtree) {
    join_tree();
    Packet partial = contribution(2, 0, {40});
    partial.header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_PARTIAL;
    partial.header.contributors = inagg_swap64(0b111);
    expect_dropped(partial, INAGG_R_RANK, child()); // not all of these are behind it
    partial.header.contributors = 0;
    expect_dropped(partial, INAGG_R_RANK, child());
    Packet forged = partial;
    forged.header.source = inagg_swap16(1);
    forged.header.contributors = inagg_swap64(0b010);
    expect_dropped(forged, INAGG_R_RANK, host_of(1)); // no switch

    partial.header.contributors = inagg_swap64(0b101);
    deliver(partial, child());
    EXPECT_TRUE(mail.sent.empty());
    deliver(contribution(0, 0, {1}), child()); // overlaps
    const Sent wait = only();
    EXPECT_EQ(wait.type(), INAGG_WAIT);
    EXPECT_EQ(wait.to, child());
    EXPECT_EQ(inagg_swap16(wait.header.source), 0);
    EXPECT_EQ(inagg_swap64(wait.header.contributors), 0b101u);

    deliver(contribution(1, 0, {2}), host_of(1));
    const auto sent = mail.take();
    ASSERT_EQ(sent.size(), 2u) << "one copy for all ranks behind the switch";
    EXPECT_EQ(sent[0].to, child());
    EXPECT_EQ(sent[1].to, host_of(1));
    EXPECT_EQ(sent[0].lane(0), 42u);
    EXPECT_EQ(stats().additions, 2u);
}

TEST_F(ServerTest, AddsPartsOfASubtreeAsTheyCome) {
    join_tree();
    deliver(contribution(2, 0, {4}), child()); // collided: it went past the aggregator
    Packet partial = contribution(0, 0, {1});
    partial.header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_PARTIAL;
    partial.header.contributors = inagg_swap64(0b101);
    deliver(partial, child());
    EXPECT_EQ(only().type(), INAGG_WAIT);
    partial.header.contributors = inagg_swap64(0b001);
    deliver(partial, child());
    deliver(contribution(1, 0, {2}), host_of(1));
    EXPECT_EQ(mail.take().at(0).lane(0), 7u);
}

TEST_F(ServerTest, DropsWhatItMustNotTake) {
    join_all();
    const Packet good = contribution(0, 0, {1});
    const auto expect = [&](inagg_reason reason, const auto &change, Endpoint from = host_of(0)) {
        Packet bad = good;
        change(bad);
        expect_dropped(bad, reason, from);
    };
    for (const inagg_type type :
         {INAGG_RESTORE, INAGG_RESULT, INAGG_WAIT, INAGG_CONFIG, INAGG_REFUSED, INAGG_PARAMETER, INAGG_TICK, inagg_type{}})
        expect(INAGG_R_TYPE, [&](Packet &p) { p.header.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | type); });
    expect(INAGG_R_GENERATION, [](Packet &p) { p.header.generation ^= 1; });
    for (const uint16_t rank : {ranks, uint16_t{64}, uint16_t{65535}})
        expect(INAGG_R_RANK, [&](Packet &p) { p.header.source = inagg_swap16(rank); });
    expect(
        INAGG_R_ADDRESS, [](Packet &) {}, host_of(1));
    expect(
        INAGG_R_ADDRESS, [](Packet &) {}, endpoint(10, 5001)); // another process there
    for (const uint32_t slot : {beyond, UINT32_MAX})
        expect(INAGG_R_SLOT, [&](Packet &p) { p.header.slot = inagg_swap32(slot); });
    for (const inagg_wire_dtype dtype : {INAGG_WIRE_FLOAT16, INAGG_WIRE_BFLOAT16, INAGG_WIRE_DTYPES})
        expect(INAGG_R_DTYPE, [&](Packet &p) { p.header.dtype_op = static_cast<uint8_t>(dtype << 4); });
    expect(INAGG_R_DTYPE, [](Packet &p) { p.header.dtype_op = INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_MIN; });
    expect(INAGG_R_ELEMENTS, [](Packet &p) { p.header.elements = inagg_swap16(33); });
    expect(INAGG_R_ELEMENTS, [](Packet &p) {
        p.header.elements = inagg_swap16(elements + INAGG_CHUNK);
        p.body.resize(elements + INAGG_CHUNK);
    });
    expect(INAGG_R_ELEMENTS, [](Packet &p) {
        p.header.dtype_op = INAGG_WIRE_FIXED32 << 4;
        p.header.elements = 0;
        p.body.clear();
    });
    expect(INAGG_R_LENGTH, [](Packet &p) { p.body.pop_back(); });
    expect(INAGG_R_LENGTH, [](Packet &p) { p.body.push_back(0); });
    EXPECT_EQ(stats().additions, 0u);

    deliver(good, host_of(0));
    expect(
        INAGG_R_MISMATCH,
        [](Packet &p) {
            p.header.source = inagg_swap16(1);
            p.header.dtype_op = INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX;
        },
        host_of(1));
    contribute_all(0);
    EXPECT_EQ(mail.take().back().lane(0), 6u);
}

TEST_F(ServerTest, CountsWhatBelongsToNoJob) {
    Packet p = packet(INAGG_CONTRIBUTION, 0);
    p.header.version_type = 2 << 4 | INAGG_CONTRIBUTION;
    deliver(p, host_of(0));
    EXPECT_EQ(server->no_job_stats().drops[INAGG_R_VERSION], 1u);
    p = packet(INAGG_CONTRIBUTION, 0);
    inagg_hdr_seal(&p.header);
    p.header.block ^= 1;
    deliver_raw(p, host_of(0));
    EXPECT_EQ(server->no_job_stats().drops[INAGG_R_HEADER_CHECKSUM], 1u);
    const std::byte few[8]{};
    server->receive(few, host_of(0), false, now);
    EXPECT_EQ(server->no_job_stats().drops[INAGG_R_LENGTH], 1u);
    p = join_packet(0, 1);
    inagg_hdr_seal_checked(&p.header, inagg_payload_checksum(p.body.data(), 40));
    p.body[1] ^= 1;
    deliver_raw(p, host_of(0));
    EXPECT_EQ(server->no_job_stats().drops[INAGG_R_PAYLOAD_CHECKSUM], 1u);
    p = join_packet(0, 1);
    p.body.resize(8);
    deliver(p, host_of(0));
    EXPECT_EQ(server->no_job_stats().drops[INAGG_R_LENGTH], 2u);
    EXPECT_TRUE(mail.sent.empty());
}

TEST_F(ServerTest, ChecksPayloadsWhereTheJobDoes) {
    checked = true;
    join_all();
    Packet damaged = contribution(0, 0, {1});
    inagg_hdr_seal_checked(&damaged.header, inagg_payload_checksum(damaged.body.data(), INAGG_CHUNK * 4));
    damaged.body[5] ^= 4;
    deliver_raw(damaged, host_of(0));
    EXPECT_EQ(stats().drops[INAGG_R_PAYLOAD_CHECKSUM], 1u);
    Packet unchecked = contribution(0, 0, {1});
    unchecked.checked = false;
    expect_dropped(unchecked, INAGG_R_PAYLOAD_CHECKSUM, host_of(0));
    contribute_all(0);
    const Sent result = mail.take().at(0);
    EXPECT_EQ(result.lane(0), 6u);
    EXPECT_TRUE(inagg_packet_intact(&result.header, inagg_payload_checksum(result.payload.data(), INAGG_CHUNK * 4)));
}

TEST_F(ServerTest, RefusesJoins) {
    const auto expect_refused = [&](const Packet &p, const Endpoint &from, inagg_reason reason) {
        deliver(p, from);
        const Sent answer = only();
        EXPECT_EQ(answer.type(), INAGG_REFUSED);
        EXPECT_EQ(inagg_swap32(answer.header.slot), static_cast<uint32_t>(reason)) << reason_name(reason);
        EXPECT_EQ(answer.to.address, from.address);
        EXPECT_EQ(inagg_swap64(answer.body<struct inagg_join>().nonce), 5u);
    };
    algorithm = INAGG_TRIO;
    expect_refused(join_packet(0, 5), host_of(0), INAGG_R_ALGORITHM);
    algorithm = INAGG_ATP;
    expect_refused(join_packet(0, 5, INAGG_JOIN_TREE), endpoint(130, INAGG_PORT), INAGG_R_PARENT);
    size = 65;
    expect_refused(join_packet(0, 5), host_of(0), INAGG_R_SIZE);
    size = 2;
    expect_refused(join_packet(2, 5), host_of(0), INAGG_R_RANK);
    start({.slots = beyond - 1});
    expect_refused(join_packet(0, 5), host_of(0), INAGG_R_FULL);
    start({.auto_jobs = false});
    expect_refused(join_packet(0, 5), host_of(0), INAGG_R_POLICY);
}

TEST_F(ServerTest, OneHostCannotFillItWithJobsThatWaitForRanks) {
    start({.port_forming = 2});
    const auto join = [&](uint16_t job, const Endpoint &from) {
        deliver(join_packet(0, job, 0, job), from);
        return only().type();
    };
    EXPECT_EQ(join(1, host_of(0)), INAGG_CONFIG);
    EXPECT_EQ(join(2, host_of(0)), INAGG_CONFIG);
    EXPECT_EQ(join(3, host_of(0)), INAGG_REFUSED);
    EXPECT_EQ(join(3, host_of(1)), INAGG_CONFIG);
}

TEST_F(ServerTest, MemoryBoundsTheJobs) {
    start({.slots = 2 * beyond});
    deliver(join_packet(0, 1), host_of(0));
    deliver(join_packet(0, 2, 0, 8), endpoint(20));
    EXPECT_EQ(mail.take().size(), 2u);
    deliver(join_packet(0, 3, 0, 9), endpoint(21));
    EXPECT_EQ(inagg_swap32(only().header.slot), static_cast<uint32_t>(INAGG_R_FULL));
}

TEST_F(ServerTest, RanksMayBeOnItsOwnMachine) {
    Endpoint here = endpoint(0);
    here.address = *Address::parse("127.0.0.1");
    deliver(join_packet(0, 1), here);
    EXPECT_EQ(only().type(), INAGG_CONFIG);
}

TEST_F(ServerTest, JobsDoNotMeet) {
    join_all();
    for (uint16_t rank = 0; rank < size; rank++)
        deliver(join_packet(rank, 500u + rank, 0, 8), host_of(rank));
    mail.take();
    deliver(contribution(0, 0, {1}), host_of(0));
    for (uint16_t rank = 0; rank < size; rank++) {
        Packet p = contribution(rank, 0, {100});
        p.header.job = inagg_swap16(8);
        deliver(p, host_of(rank));
    }
    const auto sent = mail.take();
    ASSERT_EQ(sent.size(), 3u);
    EXPECT_EQ(inagg_swap16(sent[0].header.job), 8);
    EXPECT_EQ(sent[0].lane(0), 300u);
}

TEST_F(ServerTest, AnotherRunReplacesTheJob) {
    join_all();
    const uint16_t before = generation();
    deliver(contribution(0, 0, {1}), host_of(0));
    deliver(join_packet(1, 77), host_of(1));
    EXPECT_NE(generation(), before);
    const auto sent = mail.take();
    ASSERT_EQ(sent.size(), 4u);
    for (uint16_t rank = 0; rank < size; rank++) {
        EXPECT_EQ(sent[rank].type(), INAGG_REFUSED);
        EXPECT_EQ(inagg_swap32(sent[rank].header.slot), static_cast<uint32_t>(INAGG_R_REPLACED));
        EXPECT_EQ(inagg_swap64(sent[rank].body<struct inagg_join>().nonce), nonce_of(rank));
        EXPECT_EQ(sent[rank].to, host_of(rank));
    }
    EXPECT_EQ(sent[3].type(), INAGG_CONFIG);
    deliver(packet(INAGG_REQUEST, 1), host_of(1)); // nothing of the old run is left
    EXPECT_EQ(only().header.contributors, 0u);
}

TEST_F(ServerTest, ItsEndIsTold) {
    join_tree();
    server->end();
    const auto sent = mail.take();
    ASSERT_EQ(sent.size(), 3u);
    for (uint16_t rank = 0; rank < size; rank++) {
        EXPECT_EQ(inagg_swap32(sent[rank].header.slot), static_cast<uint32_t>(INAGG_R_JOB));
        EXPECT_EQ(inagg_swap64(sent[rank].body<struct inagg_join>().nonce), nonce_of(rank));
    }
    EXPECT_TRUE(server->book().jobs().empty());
}

TEST_F(ServerTest, AStrangerLearnsThatItIsOne) {
    join_all();
    const Packet before = contribution(0, 0, {1});
    const Packet asks_again = [&] {
        Packet p = join_packet(0, nonce_of(0));
        p.header.generation = before.header.generation;
        p.header.boot = before.header.boot;
        return p;
    }();
    deliver(asks_again, host_of(0));
    EXPECT_EQ(only().type(), INAGG_CONFIG) << "who is in the job is told so, whatever others say";

    start({}); // restarted
    deliver(before, host_of(0));
    const Sent hint = only();
    EXPECT_EQ(hint.type(), INAGG_REFUSED);
    EXPECT_EQ(hint.to, host_of(0));
    EXPECT_EQ(inagg_swap32(hint.header.slot), static_cast<uint32_t>(INAGG_R_JOB));
    EXPECT_EQ(hint.header.generation, before.header.generation);
    EXPECT_EQ(hint.body<struct inagg_join>().nonce, 0u) << "a nonce that it does not know";

    deliver(asks_again, host_of(0));
    const Sent end = only();
    EXPECT_EQ(end.type(), INAGG_REFUSED);
    EXPECT_EQ(inagg_swap64(end.body<struct inagg_join>().nonce), nonce_of(0));
    EXPECT_FALSE(generation()) << "no new job for a rank of the old one";
    EXPECT_EQ(server->no_job_stats().drops[INAGG_R_JOB], 1u);

    deliver(join_packet(0, 9), host_of(0)); // a new run
    EXPECT_EQ(only().type(), INAGG_CONFIG);
    deliver(before, host_of(0));
    EXPECT_EQ(mail.take().size(), before.header.generation == inagg_swap16(generation()) ? 0u : 1u);
}

TEST_F(ServerTest, StrangersGetFewAnswers) {
    for (int i = 0; i < 10000; i++)
        deliver(packet(INAGG_REQUEST, 0), host_of(0));
    EXPECT_EQ(mail.take().size(), 100u);
    now += 100ms;
    for (int i = 0; i < 100; i++)
        deliver(packet(INAGG_REQUEST, 0), host_of(0));
    EXPECT_NEAR(static_cast<double>(mail.take().size()), 10, 1);
    int answers = 0;
    for (uint16_t other = 1; other < 9; other++) { // one or two of these may share its limit
        deliver(packet(INAGG_REQUEST, 0), host_of(other));
        answers += !mail.take().empty();
    }
    EXPECT_GE(answers, 6);
}

TEST_F(ServerTest, RefusalsAreLimitedByHost) {
    for (int i = 0; i < 3000; i++)
        deliver(join_packet(60, 1), endpoint(200)); // a rank that the job cannot have
    EXPECT_EQ(mail.take().size(), 200u);
    EXPECT_EQ(server->no_job_stats().drops[INAGG_R_RATE], 2800u);
    int answers = 0;
    for (uint8_t other = 201; other < 209; other++) { // one or two of these may share its limit
        deliver(join_packet(60, 1), endpoint(other));
        answers += !mail.take().empty();
    }
    EXPECT_GE(answers, 6);
}

TEST_F(ServerTest, WhoKnowsTheKeyIsNotHeldUpByWhoDoesNot) {
    const std::string path = testing::TempDir() + "server-key-" + std::to_string(getpid());
    std::ofstream(path) << "7 000102030405060708090a0b0c0d0e0f\n";
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    Keys keys;
    keys.read(path);
    std::filesystem::remove(path);
    start({}, Indices::hashed, keys);
    for (int i = 0; i < 40000; i++) // more than it looks at
        deliver(join_packet(0, 1, 0, 9), endpoint(static_cast<uint8_t>(20 + i % 200)));
    mail.take();
    const inagg_mac_key key = *keys.find(7);
    int challenged = 0;
    for (uint8_t host = 221; host < 251; host++) {
        Packet p = join_packet(0, 1);
        inagg_hdr_prove(&p.header, p.body.data(), &key);
        deliver(p, endpoint(host));
        for (const Sent &sent : mail.take())
            challenged += inagg_swap32(sent.header.slot) == INAGG_R_CHALLENGE;
    }
    EXPECT_EQ(challenged, 30);
}

TEST_F(ServerTest, RemovesJobsWhoseRanksDoNotCome) {
    deliver(join_packet(0, 1), host_of(0));
    mail.take();
    server->tick(now + 59s);
    EXPECT_TRUE(generation());
    server->tick(now + 61s);
    EXPECT_FALSE(generation());
    EXPECT_EQ(inagg_swap32(only().header.slot), static_cast<uint32_t>(INAGG_R_JOB));
}

TEST_F(ServerTest, ALastLeaveEndsTheJobAndKeepsItsCounters) {
    join_all();
    contribute_all(0);
    for (uint16_t rank = 0; rank < size; rank++) {
        Packet leave = join_packet(rank, nonce_of(rank));
        leave.header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_LEAVE;
        leave.header.generation = inagg_swap16(41);
        deliver(leave, host_of(rank));
    }
    EXPECT_TRUE(server->book().jobs().empty());
    const auto rows = statistics(*server);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[0]["job"], "past");
    EXPECT_EQ(rows[0]["completions"], 1);
    EXPECT_EQ(rows[1]["job"], nullptr);
}

TEST_F(ServerTest, ConfiguredJobsHaveNoPorts) {
    EXPECT_THROW(server->add_job(parse_job_spec("9:size=2,algorithm=trio"), now), Error);
    EXPECT_THROW(server->add_job(parse_job_spec("9:size=2,member=0@eth0/10.77.0.10"), now), Error);
    server->add_job(parse_job_spec("7:size=3,elements=64,algorithm=atp,member=0@any/10.77.0.10"), now);
    deliver(join_packet(0, 1), host_of(1));
    EXPECT_EQ(inagg_swap32(only().header.slot), static_cast<uint32_t>(INAGG_R_ADDRESS));
    deliver(join_packet(0, 1), host_of(0));
    EXPECT_EQ(only().type(), INAGG_CONFIG);
}

// Damaged, cut and forged packets between good ones: every sum stays exact, and nothing else is ever sent as one.
TEST_F(ServerTest, NothingThatItHearsSpoilsASum) {
    join_tree();
    std::mt19937 random(1);
    for (uint32_t block = 0; block < 2000; block++) {
        for (const uint16_t rank : {0, 1, 2}) {
            const Endpoint from = rank == 1 ? host_of(1) : child();
            const Packet good = contribution(rank, block, {rank + block, ~block});
            for (unsigned bad = random() % 4; bad; bad--) {
                Packet p = good;
                auto *bytes = reinterpret_cast<unsigned char *>(&p.header);
                for (unsigned flips = random() % 3; flips; flips--)
                    bytes[random() % sizeof p.header] ^= static_cast<unsigned char>(random());
                if (random() % 4 == 0)
                    p.body.resize(random() % 100);
                // Not as a rank of the job: those may add what they like.
                deliver(p, random() % 2 ? endpoint(99) : endpoint(12, 1));
            }
            deliver(good, from);
        }
        bool found = false;
        for (const Sent &sent : mail.take()) {
            if (sent.type() != INAGG_RESULT)
                continue;
            ASSERT_EQ(inagg_swap32(sent.header.block), block);
            ASSERT_EQ(sent.lane(0), 3 + 3 * block);
            ASSERT_EQ(sent.lane(1), 3 * ~block);
            found = true;
        }
        ASSERT_TRUE(found) << block;
    }
}

} // namespace
} // namespace ps
