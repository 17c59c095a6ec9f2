// SPDX-License-Identifier: BSD-2-Clause
#include "support/packet.hpp"

#include <gtest/gtest.h>

using namespace support;

namespace {

Packet example(int family) {
    Packet p;
    p.family = family;
    p.source = worker_address(family, 1, 2);
    p.target = switch_address(family);
    p.source_mac = worker_mac(1, 2);
    p.target_mac = switch_mac();
    p.source_port = worker_port(2);
    p.type = INAGG_CONTRIBUTION;
    p.dtype = INAGG_WIRE_INT32;
    p.op = INAGG_WIRE_MAX;
    p.flags = INAGG_F_VERSION | INAGG_F_CHECKED;
    p.job = 0x0102;
    p.generation = 3;
    p.rank = 2;
    p.block = 0x01020304;
    p.slot = 5;
    p.count = 1;
    p.fan_in = 4;
    p.boot = switch_boot;
    p.contributors = 0x8000000000000001;
    p.scale = 6;
    p.next_scale = 7;
    p.elements = 2;
    p.payload = element_bytes({0x11223344, 0xffffffff}, INAGG_WIRE_INT32);
    return p;
}

} // namespace

TEST(Packet, ComesBackFromItsFrame) {
    for (int family : {4, 6}) {
        const Packet p = example(family);
        const auto back = parse(build(p));
        ASSERT_TRUE(back);
        EXPECT_EQ(back->family, family);
        EXPECT_EQ(back->source, p.source);
        EXPECT_EQ(back->target, p.target);
        EXPECT_EQ(back->source_mac, p.source_mac);
        EXPECT_EQ(back->target_mac, p.target_mac);
        EXPECT_EQ(back->source_port, p.source_port);
        EXPECT_EQ(back->target_port, INAGG_PORT);
        EXPECT_EQ(back->version, 1);
        EXPECT_EQ(back->type, p.type);
        EXPECT_EQ(back->dtype, p.dtype);
        EXPECT_EQ(back->op, p.op);
        EXPECT_EQ(back->flags, p.flags);
        EXPECT_EQ(back->job, p.job);
        EXPECT_EQ(back->generation, p.generation);
        EXPECT_EQ(back->rank, p.rank);
        EXPECT_EQ(back->block, p.block);
        EXPECT_EQ(back->slot, p.slot);
        EXPECT_EQ(back->count, p.count);
        EXPECT_EQ(back->fan_in, p.fan_in);
        EXPECT_EQ(back->boot, p.boot);
        EXPECT_EQ(back->contributors, p.contributors);
        EXPECT_EQ(back->scale, p.scale);
        EXPECT_EQ(back->next_scale, p.next_scale);
        EXPECT_EQ(back->elements, p.elements);
        EXPECT_EQ(back->payload, p.payload);
    }
}

TEST(Packet, HeaderLiesWhereTheWireFormatSays) {
    const Frame frame = build(example(4));
    ASSERT_EQ(frame.size(), 14u + 20 + 8 + 64 + 8);
    EXPECT_EQ(frame[42], INAGG_WIRE_VERSION << 4 | INAGG_CONTRIBUTION);
    EXPECT_EQ(frame[42 + 4], 1); // job, network order
    EXPECT_EQ(frame[42 + 5], 2);
    EXPECT_EQ(frame[42 + 64], 0x44); // elements, little-endian
    EXPECT_EQ(header_offset(6), 62u);
}

TEST(Packet, EveryKnobBreaksTheFrame) {
    for (int family : {4, 6}) {
        Packet p = example(family);
        p.header_checksum_xor = 1;
        EXPECT_FALSE(parse(build(p)));
        p = example(family);
        p.payload_checksum_xor = 1;
        EXPECT_FALSE(parse(build(p)));
        p = example(family);
        p.udp_length_delta = -4;
        EXPECT_FALSE(parse(build(p)));
        p = example(family);
        p.ip_length_delta = 4;
        EXPECT_FALSE(parse(build(p)));
        p = example(family);
        p.frame_delta = -1;
        EXPECT_FALSE(parse(build(p)));
    }
}

TEST(Packet, ElementsOfBothWidths) {
    const std::vector<uint32_t> halves = {0x3c00, 0x8001};
    EXPECT_EQ(element_bytes(halves, INAGG_WIRE_FLOAT16), (std::vector<uint8_t>{0x00, 0x3c, 0x01, 0x80}));
    EXPECT_EQ(element_values(element_bytes(halves, INAGG_WIRE_FLOAT16), INAGG_WIRE_FLOAT16), halves);
    const std::vector<uint32_t> words = {1, 0xdeadbeef};
    EXPECT_EQ(element_values(element_bytes(words, INAGG_WIRE_FIXED32), INAGG_WIRE_FIXED32), words);
}
