// SPDX-License-Identifier: BSD-2-Clause
#include "unit/blocks.hpp"

#include <inagg/core/leader.h>

#include <gtest/gtest.h>

namespace {

constexpr __u64 all = 0b1111;

// Rank 0's copy of a position, in a job of four.
struct Lead : testing::Test {
    inagg_lead l{};

    static inagg_block block(__u32 number = 5, __u16 attempt = 0) {
        inagg_block b = block_of(number, INAGG_WIRE_FIXED32);
        b.scale = 120;
        b.epoch = attempt;
        return b;
    }
    int add(__u64 ranks, const inagg_block &b, int bypass = 0) { return inagg_lead_contribute(&l, all, ranks, &b, bypass); }
    int add(__u64 ranks, __u16 attempt = 0, int bypass = 0) { return add(ranks, block(5, attempt), bypass); }
    int ask(__u16 rank, __u16 attempt = 0, __u32 number = 5, __u16 question = 1) {
        inagg_block b{};
        b.cap = question;
        b.block = number;
        b.generation = 1;
        b.rank = rank;
        b.epoch = attempt;
        return inagg_lead_request(&l, &b);
    }
    __u64 seen(__u32 number = 5) const {
        const inagg_block b = block(number);
        return inagg_lead_seen(&l, &b);
    }
};

} // namespace

TEST(Leaders, TakeTurns) {
    EXPECT_EQ(inagg_leader_of(3, 0), 0u);
    EXPECT_EQ(inagg_leader_of(3, 4), 1u);
    EXPECT_EQ(inagg_leader_of(3, 17), 2u);
    EXPECT_EQ(inagg_leader_of(1, 17), 0u);
}

TEST_F(Lead, PartsAreAddedAsTheyCome) {
    EXPECT_EQ(add(0b0010), INAGG_STORE);
    EXPECT_EQ(add(0b1100), INAGG_ADD);
    EXPECT_EQ(seen(), 0b1110u);
    EXPECT_EQ(add(0b0001), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(l.restore, 0u);
}

TEST_F(Lead, OneRankIsDoneAtOnce) {
    const inagg_block b = block();
    EXPECT_EQ(inagg_lead_contribute(&l, 1, 1, &b, 0), INAGG_STORE | INAGG_COMPLETES);
}

TEST_F(Lead, WhatIsInOrOverlapsIsDropped) {
    add(0b0110);
    EXPECT_EQ(add(0b0010), -INAGG_R_DUPLICATE);
    EXPECT_EQ(add(0b0110), -INAGG_R_DUPLICATE);
    EXPECT_EQ(add(0b1010), -INAGG_R_DUPLICATE) << "what is new in it cannot be told apart";
    EXPECT_EQ(seen(), 0b0110u);
    add(0b1001);
    EXPECT_EQ(add(0b0001), -INAGG_R_DUPLICATE) << "complete";
}

TEST_F(Lead, PartsMustAgree) {
    add(0b0010);
    inagg_block b = block();
    b.scale = 3;
    EXPECT_EQ(add(0b0100, b), -INAGG_R_MISMATCH);
    b = block();
    b.elements = 0;
    EXPECT_EQ(add(0b0100, b), -INAGG_R_ELEMENTS) << "a sum with a bias";
    EXPECT_EQ(seen(), 0b0010u);
}

TEST_F(Lead, IntegersMayStayAway) {
    inagg_block b = block();
    b.dtype_op = INAGG_WIRE_INT32 << 4;
    b.elements = 0;
    EXPECT_EQ(add(0b0011, b), INAGG_COUNT);
    b.elements = 64;
    EXPECT_EQ(add(0b0100, b), INAGG_STORE);
    b.elements = 0;
    EXPECT_EQ(add(0b1000, b), INAGG_COUNT | INAGG_COMPLETES);
    EXPECT_EQ(l.slot.elements, 64u);
}

TEST_F(Lead, WhoIsInWaitsAndThenGetsTheResult) {
    add(0b0010);
    EXPECT_EQ(ask(1), INAGG_TELL);
    add(0b1101);
    EXPECT_EQ(ask(1), INAGG_REPLY);
    EXPECT_EQ(ask(3), INAGG_REPLY);
}

TEST_F(Lead, AnAttemptFailsForAllOnceAndForOthersThatCrossed) {
    EXPECT_EQ(ask(1), INAGG_FAIL_ALL) << "before anything has come";
    EXPECT_EQ(l.attempt, 1u);
    EXPECT_EQ(ask(2), INAGG_FAIL) << "it does not know yet";
    EXPECT_EQ(l.attempt, 1u);
    EXPECT_EQ(add(0b0110, 1), INAGG_STORE);
    EXPECT_EQ(ask(2, 1), INAGG_TELL);
    EXPECT_EQ(ask(3, 1), INAGG_FAIL_ALL);
    EXPECT_EQ(l.attempt, 2u);
    EXPECT_EQ(seen(), 0b0110u) << "what is in stays in";
}

TEST_F(Lead, AttemptsEndPastTheSums) {
    for (__u16 attempt = 0; attempt + 1 < INAGG_CANARY_ATTEMPTS; attempt++) {
        EXPECT_FALSE(inagg_lead_bypasses(&l));
        EXPECT_EQ(ask(1, attempt), INAGG_FAIL_ALL);
    }
    for (int i = 0; i < 3; i++) {
        EXPECT_EQ(ask(1, i ? INAGG_CANARY_ATTEMPTS : INAGG_CANARY_ATTEMPTS - 1), INAGG_FAIL);
        EXPECT_TRUE(inagg_lead_bypasses(&l));
        EXPECT_EQ(l.attempt, INAGG_CANARY_ATTEMPTS);
    }
}

TEST_F(Lead, PartsOfAnyAttemptCount) {
    ask(1);
    EXPECT_EQ(add(0b0010, 0), INAGG_STORE) << "it was only late";
    EXPECT_EQ(add(0b0010, 1), -INAGG_R_DUPLICATE);
    EXPECT_EQ(add(0b1100, 1), INAGG_ADD);
    EXPECT_EQ(add(0b0001, 0), INAGG_ADD | INAGG_COMPLETES);
}

TEST_F(Lead, WhoHasAskedForLongIsNamed) {
    add(0b0110);
    EXPECT_EQ(ask(1, 0, 5, 8), INAGG_TELL);
    EXPECT_EQ(l.restore, 0u);
    EXPECT_EQ(ask(1, 0, 5, 9), INAGG_TELL);
    EXPECT_EQ(l.restore, 0b0010u) << "switches may have given up what they have recorded";
}

// The result goes back by what switches have recorded of the last attempt. The others are named.
TEST_F(Lead, WhomNoSwitchHasRecordedIsRestored) {
    add(0b0010, 0, 1);
    EXPECT_EQ(l.restore, 0b0010u) << "past the sums";
    add(0b0100, 0);
    EXPECT_EQ(l.restore, 0b0010u);
    ask(3);
    EXPECT_EQ(l.restore, 0b0110u) << "in from an earlier attempt";
    add(0b1000, 1);
    EXPECT_EQ(l.restore, 0b0110u);
    add(0b0001, 0);
    EXPECT_EQ(l.restore, 0b0111u) << "late, of an earlier one";
}

TEST_F(Lead, ARequestDoesNotTellWhatTheBlockIs) {
    ask(1);
    EXPECT_EQ(add(0b0010), INAGG_STORE);
    EXPECT_EQ(l.slot.dtype_op, INAGG_WIRE_FIXED32 << 4);
    EXPECT_EQ(l.slot.scale, 120u);
    inagg_block b = block();
    b.scale = 0;
    EXPECT_EQ(add(0b0100, b), -INAGG_R_MISMATCH);
}

TEST_F(Lead, ALaterBlockTakesTheCopyOver) {
    ask(1);
    add(all, 0);
    EXPECT_EQ(ask(2, 0, 21), INAGG_FAIL_ALL) << "also if a REQUEST is the first that is heard of it";
    EXPECT_EQ(l.attempt, 1u);
    EXPECT_EQ(l.restore, 0u);
    EXPECT_EQ(seen(), 0u);
    EXPECT_EQ(add(0b0010, block(21, 1)), INAGG_STORE);
    EXPECT_EQ(add(0b0010), -INAGG_R_STALE);
    EXPECT_EQ(ask(1), -INAGG_R_STALE);
    EXPECT_EQ(seen(21), 0b0010u);
}

TEST_F(Lead, BlockNumbersWrap) {
    add(all, block(0xfffffff5));
    EXPECT_EQ(add(0b0010, block(5)), INAGG_STORE);
    EXPECT_EQ(add(0b0010, block(0xfffffff5)), -INAGG_R_STALE);
}

TEST_F(Lead, AnotherGenerationBeginsAnew) {
    add(all);
    inagg_block b = block(1);
    b.generation = 2;
    EXPECT_EQ(add(0b0010, b), INAGG_STORE);
    EXPECT_EQ(l.slot.seen, 0b0010u);
}

TEST_F(Lead, TheResultHasTheMaximumAndWhatIsSaturated) {
    inagg_block b = block();
    b.next_scale = 7;
    b.saturated = 1;
    add(0b0010, b);
    b.next_scale = 9;
    b.saturated = 0;
    add(0b1101, b);
    EXPECT_EQ(l.slot.next_scale, 9u);
    EXPECT_TRUE(l.slot.flags & INAGG_SLOT_SATURATED);
}
