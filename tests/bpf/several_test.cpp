// SPDX-License-Identifier: BSD-2-Clause
// Contributions to several blocks in one frame (bpf/several.h): the switch does with each block as if it had come by itself.
#include "support/xdp_plane.hpp"

#include "switch_maps.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>

namespace {

using namespace support;

constexpr uint32_t rounds = 2000;

// All blocks of one packet, and each in a packet of its own.
struct Sent {
    Packet together;
    std::vector<Packet> apart;
};

class Several : public testing::TestWithParam<std::tuple<uint8_t, int>> {
public:
    static void SetUpTestSuite() { plane = std::make_unique<XdpPlane>(64); }
    static void TearDownTestSuite() { plane.reset(); }

    Several() {
        spec.algorithm = std::get<0>(GetParam());
        spec.family = std::get<1>(GetParam());
        spec.elements = 512;
        spec.blocks = 4;
        spec.slots = 8;
        spec.first_slot = 10;
        plane->reset();
        plane->add_job(spec);
    }

    // `from` is a block that the rank has got to.
    Sent contribution_to(uint32_t rank, uint32_t from, uint32_t blocks, uint32_t value) const {
        Sent sent{contribution(spec, rank, from, spec.elements), {}};
        sent.together.payload.clear();
        sent.together.dtype = from / spec.slots % 2 ? INAGG_WIRE_FIXED32 : INAGG_WIRE_INT32; // which saturates, or wraps
        for (uint32_t i = 0; i < blocks; i++) {
            Packet one = contribution(spec, rank, from + i, spec.elements);
            std::vector<uint32_t> values(spec.elements, value + i);
            values.back() = from;
            one.dtype = sent.together.dtype;
            one.payload = element_bytes(values, one.dtype);
            sent.together.payload.insert(sent.together.payload.end(), one.payload.begin(), one.payload.end());
            sent.apart.push_back(one);
        }
        return sent;
    }

    // Packets of ranks that are two rounds of slots apart at most, some twice; their blocks do not wrap around.
    std::vector<Sent> traffic(uint32_t seed) const {
        std::mt19937 random(seed);
        std::vector<uint32_t> reached(spec.ranks);
        std::vector<Sent> all;
        while (all.size() < rounds / 4) {
            const auto rank = static_cast<uint32_t>(random() % spec.ranks);
            uint32_t &at = reached[rank];
            if (at >= *std::ranges::min_element(reached) + spec.slots)
                continue;
            const uint32_t blocks = std::min(2 + static_cast<uint32_t>(random() % 3), spec.slots - at % spec.slots);
            if (blocks > 1)
                all.push_back(contribution_to(rank, at, blocks, static_cast<uint32_t>(random())));
            if (blocks < 2 || random() % 4)
                at += blocks;
        }
        return all;
    }

    // A pool without the times at which recoveries began.
    std::string timeless(std::string pool) const {
        constexpr size_t stride = sizeof(inagg_record) + sizeof(inagg_record_memory);
        for (size_t at = offsetof(inagg_record, epoch); spec.algorithm == INAGG_TRIO && at < pool.size(); at += stride)
            pool.replace(at, sizeof(inagg_record::epoch), sizeof(inagg_record::epoch), '\0');
        return pool;
    }

    void expect_refused(const std::function<void(Packet &)> &change, uint32_t reason) {
        Packet packet = contribution_to(1, 0, 3, 5).together;
        change(packet);
        const std::string before = plane->pool(spec);
        const Answer answer = plane->receive(build(packet));
        EXPECT_EQ(answer.action, Action::drop);
        EXPECT_EQ(answer.reason, reason) << reason_name(answer.reason);
        EXPECT_TRUE(plane->pool(spec) == before);
    }

    static std::unique_ptr<XdpPlane> plane;
    JobSpec spec;
};

std::unique_ptr<XdpPlane> Several::plane;

// A WAIT is none that several blocks have.
bool is_result(const Answer &answer) {
    const auto packet = parse(answer.frame);
    return packet && packet->type == INAGG_RESULT;
}

} // namespace

TEST_P(Several, EachBlockAsIfItHadComeByItself) {
    XdpPlane together(64), apart(64); // new ones, for some of what a switch counts outlives a reset
    together.add_job(spec);
    apart.add_job(spec);
    const std::vector<Sent> all = traffic(1);
    for (size_t i = 0; i < all.size(); i++) {
        bool answered = false;
        for (const Packet &one : all[i].apart)
            answered |= is_result(apart.receive(build(one)));
        const Answer answer = together.receive(build(all[i].together));
        EXPECT_EQ(answer.action == Action::pass, answered) << i << ": what tc has to send";
    }
    const std::string a = timeless(together.pool(spec)), b = timeless(apart.pool(spec));
    EXPECT_TRUE(a == b) << "from byte " << std::ranges::mismatch(a, b).in1 - a.begin() << " of " << a.size();
    const inagg_stats x = together.stats(spec.index), y = apart.stats(spec.index);
    EXPECT_EQ(x.additions, y.additions);
    EXPECT_EQ(x.elements, y.elements);
    EXPECT_EQ(x.completions, y.completions);
    EXPECT_EQ(x.duplicates, y.duplicates);
    EXPECT_EQ(x.late, y.late);
    EXPECT_EQ(x.recoveries, y.recoveries);
    EXPECT_EQ(x.expired, y.expired);
    EXPECT_TRUE(std::ranges::equal(x.drops, y.drops));
    EXPECT_GT(x.additions, uint64_t{rounds} / 4);
    EXPECT_GT(x.completions, 100u);
    EXPECT_EQ(x.packets, all.size());
}

TEST_P(Several, WhatIsNotAsItMustBeChangesNothing) {
    plane->receive(build(contribution_to(0, 0, 4, 1).together));
    const auto resized = [](int by) { return [by](Packet &p) { p.payload.resize(p.payload.size() + static_cast<size_t>(by)); }; };
    for (int by : {4, -4, 64, 1, 2 * 2048})
        expect_refused(resized(by), INAGG_R_LENGTH);
    expect_refused([](Packet &p) { p.slot = 6; }, INAGG_R_LENGTH); // the third would be a control block
    expect_refused([](Packet &p) { p.elements = 480; }, INAGG_R_LENGTH);
    expect_refused([](Packet &p) { p.dtype = INAGG_WIRE_FLOAT16; }, INAGG_R_LENGTH);
    expect_refused([](Packet &p) { p.op = INAGG_WIRE_MIN; }, INAGG_R_LENGTH);
    expect_refused([](Packet &p) { p.type = INAGG_RESTORE; }, INAGG_R_LENGTH);
    expect_refused([](Packet &p) { p.udp_length_delta = -2048; }, INAGG_R_LENGTH);
    expect_refused([](Packet &p) { p.ip_length_delta = -2048; }, INAGG_R_LENGTH);
    expect_refused([](Packet &p) { p.frame_delta = 100; }, INAGG_R_LENGTH);
    expect_refused([](Packet &p) { p.header_checksum_xor = 1; }, INAGG_R_HEADER_CHECKSUM);
    expect_refused([](Packet &p) { p.version++; }, INAGG_R_VERSION);
    expect_refused([](Packet &p) { p.job++; }, INAGG_R_JOB);
    expect_refused([](Packet &p) { p.generation++; }, INAGG_R_GENERATION);
    expect_refused([](Packet &p) { p.rank = 0; }, INAGG_R_ADDRESS);
    spec.blocks = 2;
    plane->change_job(spec);
    expect_refused([](Packet &) {}, INAGG_R_LENGTH);
    spec.blocks = 4;
    spec.flags = INAGG_JOIN_CHECKED;
    plane->change_job(spec);
    expect_refused([](Packet &) {}, INAGG_R_PAYLOAD_CHECKSUM);
}

TEST_P(Several, WhoFindsNoRoomIsTold) {
    if (spec.algorithm != INAGG_TRIO)
        GTEST_SKIP() << "only trio has caps";
    spec.most_open = 2;
    plane->add_job(spec);
    const Answer answer = plane->receive(build(contribution_to(1, 1, 4, 5).together));
    EXPECT_EQ(answer.action, Action::reply) << action_name(answer.action);
    EXPECT_EQ(answer.reason, uint32_t{INAGG_R_FULL});
    const auto wait = parse(answer.frame);
    ASSERT_TRUE(wait);
    EXPECT_EQ(wait->type, INAGG_WAIT);
    EXPECT_EQ(wait->block, 3u) << "two found room";
    EXPECT_EQ(wait->slot, 3u);
    EXPECT_NE(wait->window_cap, 0);
    EXPECT_TRUE(wait->payload.empty());
    EXPECT_EQ(plane->stats(spec.index).additions, 2u);
}

TEST_P(Several, NoFrameTouchesAnothersPool) {
    std::mt19937 random(7);
    JobSpec left = spec, right = spec;
    left.number = 20, left.index = 1, left.first_slot = 0;
    right.number = 21, right.index = 2, right.first_slot = 20;
    for (JobSpec *job : {&left, &right}) {
        plane->add_job(*job);
        for (uint32_t block = 0; block < job->slots; block++)
            plane->receive(build(contribution(*job, 0, block, job->elements)));
        job->ports = {2, 2, 2}; // from now on behind another port than what comes
        plane->add_job(*job);
    }
    const auto pools = [&] { return plane->pool(left) + plane->pool(right); };
    const std::string before = pools();
    uint64_t dropped = 0;
    for (uint32_t i = 0; i < rounds; i++) {
        Packet packet = contribution_to(static_cast<uint32_t>(random() % spec.ranks), static_cast<uint32_t>(random() % 16),
                                        2 + static_cast<uint32_t>(random() % 3), 1)
                            .together;
        if (random() % 4 == 0)
            packet.job = static_cast<uint16_t>(20 + random() % 2);
        if (random() % 4 == 0)
            packet.slot = static_cast<uint32_t>(random() % 3 ? random() % 40 : random());
        if (random() % 4 == 0)
            packet.elements = static_cast<uint16_t>(random() % 900);
        if (random() % 4 == 0)
            packet.payload.resize(random() % 16000);
        Frame frame = build(packet);
        for (uint32_t flips = random() % 3; flips--;)
            frame[14 + random() % 100] ^= static_cast<uint8_t>(1 << random() % 8);
        const Answer answer = plane->receive(frame);
        ASSERT_TRUE(answer.action != Action::fail) << i;
        dropped += answer.action == Action::drop;
    }
    EXPECT_TRUE(pools() == before);
    EXPECT_GT(dropped, rounds / 4);
    EXPECT_GT(plane->stats(spec.index).additions, rounds / 100);
}

INSTANTIATE_TEST_SUITE_P(Of, Several, testing::Values(std::tuple{INAGG_SWITCHML, 4}, std::tuple{INAGG_TRIO, 6}),
                         [](const auto &param) {
                             return fmt::format("{}_{}", std::get<0>(param.param) == INAGG_TRIO ? "trio" : "switchml",
                                                std::get<1>(param.param));
                         });

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    if (geteuid() != 0) {
        fmt::print("SKIP: BPF_PROG_TEST_RUN needs root\n");
        return 77;
    }
    return RUN_ALL_TESTS();
}
