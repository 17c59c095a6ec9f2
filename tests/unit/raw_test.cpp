// SPDX-License-Identifier: BSD-2-Clause
#include "unit/blocks.hpp"

#include <inagg/core/raw.h>

#include <gtest/gtest.h>

namespace {

constexpr __u64 all = 0b111;

// A server's slot for ranks 0, 1 and 2; block 5 is sent with an element that does not fit.
struct Raw : testing::Test {
    inagg_slot s{};

    static inagg_block fixed(__u8 saturated = 0, __u32 number = 5) {
        inagg_block b = block_of(number, INAGG_WIRE_FIXED32);
        b.scale = 120;
        b.saturated = saturated;
        return b;
    }
    static inagg_block floats(__u32 number = 5) {
        inagg_block b = fixed(0, number);
        b.dtype_op = INAGG_RAW_DTYPE_OP;
        return b;
    }
    int send(__u64 ranks, const inagg_block &b) { return inagg_raw_contribute(&s, all, ranks, &b); }
    void saturate() {
        send(1, fixed());
        send(2, fixed(1));
        EXPECT_EQ(send(4, fixed()), INAGG_TELL_ALL);
    }
    __u64 seen() const {
        const inagg_block b = fixed();
        return inagg_slot_seen(&s, &b);
    }
};

} // namespace

TEST_F(Raw, WhatFitsIsSummedAsEver) {
    EXPECT_EQ(send(1, fixed()), INAGG_STORE);
    EXPECT_EQ(send(1, fixed()), INAGG_TELL);
    EXPECT_EQ(send(6, fixed()), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(send(1, fixed()), INAGG_REPLY);
}

TEST_F(Raw, ASaturatedBlockBeginsAnewAsFloats) {
    EXPECT_EQ(send(1, fixed()), INAGG_STORE);
    EXPECT_EQ(send(6, fixed(1)), INAGG_TELL_ALL);
    EXPECT_EQ(seen(), 0u);
    for (const __u64 rank : {4, 1}) {
        EXPECT_EQ(send(rank, floats()), INAGG_ADD);
        EXPECT_EQ(send(rank, floats()), INAGG_TELL) << "a repeat";
    }
    EXPECT_EQ(seen(), 0b101u);
    EXPECT_EQ(send(2, floats()), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(send(2, floats()), INAGG_REPLY);
    EXPECT_FALSE(s.flags & INAGG_SLOT_SATURATED);
    EXPECT_EQ(s.dtype_op, INAGG_RAW_DTYPE_OP);
}

TEST_F(Raw, FixedPointCountsNoMore) {
    saturate();
    EXPECT_EQ(send(1, fixed()), INAGG_TELL);
    EXPECT_EQ(send(6, fixed(1)), INAGG_TELL) << "a switch's sum";
    EXPECT_EQ(seen(), 0u);
    for (const __u64 rank : {1, 2, 4})
        send(rank, floats());
    EXPECT_EQ(send(6, fixed(1)), INAGG_REPLY);
}

TEST_F(Raw, FloatsThatNobodyAskedForDoNothing) {
    EXPECT_EQ(send(1, floats()), -INAGG_R_UNSOLICITED);
    EXPECT_FALSE(s.flags & INAGG_SLOT_LIVE);
    send(1, fixed(1));
    EXPECT_EQ(send(2, floats()), -INAGG_R_UNSOLICITED);
    send(6, fixed());
    EXPECT_EQ(send(1, floats(4)), -INAGG_R_STALE);
    EXPECT_EQ(send(1, floats(6)), -INAGG_R_UNSOLICITED);
    EXPECT_EQ(seen(), 0u);
}

TEST_F(Raw, FloatsMustAgreeWithTheBlock) {
    saturate();
    inagg_block b = floats();
    b.elements = 64;
    EXPECT_EQ(send(1, b), -INAGG_R_MISMATCH);
    b = floats();
    b.scale = 3;
    EXPECT_EQ(send(1, b), -INAGG_R_MISMATCH);
    b.elements = 0;
    EXPECT_EQ(send(1, b), -INAGG_R_ELEMENTS);
    EXPECT_EQ(seen(), 0u);
}

TEST_F(Raw, TheNextBlockIsFixedPointAgain) {
    saturate();
    for (const __u64 rank : {1, 2, 4})
        send(rank, floats());
    EXPECT_EQ(send(1, fixed(0, 9)), INAGG_STORE);
    EXPECT_EQ(send(2, floats(9)), -INAGG_R_UNSOLICITED);
    EXPECT_EQ(send(6, fixed(0, 9)), INAGG_ADD | INAGG_COMPLETES);
}

TEST_F(Raw, OnlyForSumsOfDataBlocks) {
    inagg_block b = fixed(1);
    b.stream = 1;
    EXPECT_EQ(send(all, b), INAGG_STORE | INAGG_COMPLETES) << "a guess that was wrong";
    b = fixed(1, 9);
    b.dtype_op = INAGG_WIRE_INT32 << 4;
    EXPECT_EQ(send(all, b), INAGG_STORE | INAGG_COMPLETES);
}
