// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/slot.h>

#include <gtest/gtest.h>

namespace {

constexpr __u8 int32_sum = INAGG_WIRE_INT32 << 4;

// One copy of a slot in a job of `size` ranks.
struct Slot : testing::Test {
    inagg_slot slot{};
    __u64 all = inagg_all_ranks(3);

    static inagg_block block(__u16 rank, __u32 number, __u16 elements = 32) {
        inagg_block b{};
        b.block = number;
        b.generation = 1;
        b.rank = rank;
        b.elements = elements;
        b.dtype_op = int32_sum;
        b.scale = 5;
        return b;
    }
    int contribute(const inagg_block &b) { return inagg_slot_contribute(&slot, all, &b); }
    int contribute(__u16 rank, __u32 number, __u16 elements = 32) { return contribute(block(rank, number, elements)); }
    int request(__u16 rank, __u32 number, bool everyone = false) {
        const inagg_block b = block(rank, number, 0);
        return inagg_slot_request(&slot, &b, everyone);
    }
    int restore(const inagg_block &b) { return inagg_slot_restore(&slot, all, &b); }
    __u64 seen(__u32 number) {
        const inagg_block b = block(0, number);
        return inagg_slot_seen(&slot, &b);
    }
    void complete(__u32 number) {
        for (__u16 rank = 0; inagg_rank_bit(rank) & all; rank++)
            contribute(rank, number);
    }
};

// Exact contents: a verdict other than a fold must not change a byte.
std::string bytes(const inagg_slot &slot) { return {reinterpret_cast<const char *>(&slot), sizeof slot}; }

} // namespace

TEST_F(Slot, StoresAddsCompletes) {
    EXPECT_EQ(contribute(1, 0), INAGG_STORE);
    EXPECT_EQ(seen(0), 2u);
    EXPECT_EQ(contribute(0, 0), INAGG_ADD);
    EXPECT_EQ(contribute(2, 0), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(seen(0), 7u);
}

TEST_F(Slot, OneRankCompletesAtOnce) {
    all = inagg_all_ranks(1);
    EXPECT_EQ(contribute(0, 9), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(contribute(0, 9), INAGG_REPLY);
}

TEST_F(Slot, SixtyFourRanks) {
    all = inagg_all_ranks(64);
    EXPECT_EQ(contribute(63, 0), INAGG_STORE);
    for (__u16 rank = 0; rank < 62; rank++)
        ASSERT_EQ(contribute(rank, 0), INAGG_ADD);
    EXPECT_EQ(seen(0), ~inagg_rank_bit(62));
    EXPECT_EQ(contribute(62, 0), INAGG_ADD | INAGG_COMPLETES);
}

TEST_F(Slot, DuplicateIsToldThenAnswered) {
    contribute(0, 0);
    const std::string before = bytes(slot);
    EXPECT_EQ(contribute(0, 0), INAGG_TELL);
    EXPECT_EQ(bytes(slot), before);
    complete(0);
    const std::string after = bytes(slot);
    EXPECT_EQ(contribute(0, 0), INAGG_REPLY);
    EXPECT_EQ(bytes(slot), after);
}

TEST_F(Slot, NewerBlockTakesTheCopyOver) {
    complete(0);
    EXPECT_EQ(contribute(2, 256), INAGG_STORE);
    EXPECT_EQ(seen(256), 4u);
    EXPECT_EQ(seen(0), 0u);
    EXPECT_EQ(slot.flags, INAGG_SLOT_LIVE);
}

TEST_F(Slot, TakeOverForgetsFlagsLengthAndScale) {
    inagg_block b = block(0, 0, 64);
    b.saturated = 1;
    b.next_scale = 200;
    contribute(b);
    EXPECT_TRUE(slot.flags & INAGG_SLOT_SATURATED);
    contribute(0, 256, 32);
    EXPECT_EQ(slot.flags, INAGG_SLOT_LIVE);
    EXPECT_EQ(slot.elements, 32);
    EXPECT_EQ(slot.next_scale, 0);
}

TEST_F(Slot, OlderBlockIsStale) {
    complete(256);
    const std::string before = bytes(slot);
    EXPECT_EQ(contribute(0, 0), -INAGG_R_STALE);
    EXPECT_EQ(request(0, 0), -INAGG_R_STALE);
    EXPECT_EQ(request(0, 0, true), -INAGG_R_STALE);
    EXPECT_EQ(restore(block(0, 0)), -INAGG_R_UNSOLICITED);
    EXPECT_EQ(bytes(slot), before);
}

TEST_F(Slot, BlockNumbersWrap) {
    complete(0xffffff00);
    EXPECT_EQ(contribute(0, 0), INAGG_STORE);
    EXPECT_EQ(contribute(1, 0xffffff00), -INAGG_R_STALE);
    EXPECT_EQ(request(1, 0xffffff00), -INAGG_R_STALE);
    EXPECT_EQ(seen(0), 1u);
}

TEST_F(Slot, AnotherGenerationTakesOverWhateverTheBlock) {
    complete(256);
    inagg_block b = block(1, 0);
    b.generation = 2;
    EXPECT_EQ(contribute(b), INAGG_STORE);
    EXPECT_EQ(slot.seen, 2u);
    EXPECT_EQ(slot.generation, 2);
    EXPECT_EQ(seen(0), 0u) << "of generation 1";
}

TEST_F(Slot, TypeOperatorScaleAndLengthMustAgree) {
    contribute(0, 0);
    const std::string before = bytes(slot);
    inagg_block b = block(1, 0);
    b.dtype_op = INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MIN;
    EXPECT_EQ(contribute(b), -INAGG_R_MISMATCH);
    b = block(1, 0);
    b.dtype_op = INAGG_WIRE_FIXED32 << 4;
    EXPECT_EQ(contribute(b), -INAGG_R_MISMATCH);
    b = block(1, 0);
    b.scale = 6;
    EXPECT_EQ(contribute(b), -INAGG_R_MISMATCH);
    EXPECT_EQ(contribute(block(1, 0, 64)), -INAGG_R_MISMATCH);
    EXPECT_EQ(bytes(slot), before);
    EXPECT_EQ(contribute(1, 0), INAGG_ADD);
}

TEST_F(Slot, RanksWithoutElementsCount) {
    EXPECT_EQ(contribute(0, 0, 0), INAGG_COUNT);
    EXPECT_EQ(contribute(1, 0, 64), INAGG_STORE);
    EXPECT_EQ(contribute(2, 0, 0), INAGG_COUNT | INAGG_COMPLETES);
    EXPECT_EQ(slot.elements, 64);
    EXPECT_EQ(contribute(2, 0, 0), INAGG_REPLY);
}

// Their sums carry an offset for every rank of the job: one that brings nothing would shift them.
TEST_F(Slot, OffsetEncodingsNeedElementsFromEveryRank) {
    for (__u8 dtype : {INAGG_WIRE_FIXED32, INAGG_WIRE_FLOAT16, INAGG_WIRE_BFLOAT16}) {
        slot = {};
        inagg_block b = block(0, 0, 32);
        b.dtype_op = dtype << 4;
        EXPECT_EQ(contribute(b), INAGG_STORE);
        const std::string before = bytes(slot);
        b.rank = 1;
        b.elements = 0;
        EXPECT_EQ(contribute(b), -INAGG_R_ELEMENTS);
        b.block = 256;
        EXPECT_EQ(contribute(b), -INAGG_R_ELEMENTS);
        EXPECT_EQ(bytes(slot), before);
    }
}

TEST_F(Slot, ControlBlocksCarryTheMaximumScale) {
    for (__u16 rank = 0; rank < 3; rank++) {
        inagg_block b = block(rank, 0, 0);
        b.next_scale = rank == 1 ? 140 : 100 + rank;
        contribute(b);
    }
    EXPECT_EQ(slot.next_scale, 140);
    EXPECT_TRUE(slot.flags & INAGG_SLOT_COMPLETE);
}

TEST_F(Slot, SaturationOfAnyRankStays) {
    inagg_block b = block(1, 0);
    b.saturated = 1;
    contribute(0, 0);
    contribute(b);
    contribute(2, 0);
    EXPECT_EQ(slot.flags, INAGG_SLOT_LIVE | INAGG_SLOT_COMPLETE | INAGG_SLOT_SATURATED);
}

TEST_F(Slot, RequestTellsOrReplies) {
    EXPECT_EQ(request(0, 0), INAGG_TELL);
    EXPECT_EQ(seen(0), 0u);
    contribute(0, 0);
    EXPECT_EQ(request(0, 0), INAGG_TELL);
    EXPECT_EQ(request(0, 0, true), INAGG_TELL_ALL);
    EXPECT_EQ(request(0, 256), INAGG_TELL);
    EXPECT_EQ(seen(256), 0u);
    complete(0);
    const std::string before = bytes(slot);
    EXPECT_EQ(request(0, 0), INAGG_REPLY);
    EXPECT_EQ(request(0, 0, true), INAGG_REPLY);
    EXPECT_EQ(bytes(slot), before);
}

TEST_F(Slot, RestoreCompletesAWaitingBlock) {
    contribute(1, 0);
    inagg_block b = block(0, 0, 32);
    b.next_scale = 77;
    EXPECT_EQ(restore(b), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(seen(0), all);
    EXPECT_EQ(slot.next_scale, 77);
    EXPECT_EQ(contribute(1, 0), INAGG_REPLY);
    EXPECT_EQ(restore(b), -INAGG_R_UNSOLICITED) << "the second holder";
}

TEST_F(Slot, RestoreWithoutElementsAndWithSaturation) {
    contribute(1, 0, 0);
    inagg_block b = block(0, 0, 0);
    b.saturated = 1;
    EXPECT_EQ(restore(b), INAGG_COUNT | INAGG_COMPLETES);
    EXPECT_TRUE(slot.flags & INAGG_SLOT_SATURATED);
}

TEST_F(Slot, RestoredResultIsAsSaturatedAsItWas) {
    inagg_block waiting = block(1, 0);
    waiting.saturated = 1;
    contribute(waiting);
    EXPECT_EQ(restore(block(0, 0)), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(slot.flags, INAGG_SLOT_LIVE | INAGG_SLOT_COMPLETE);
}

TEST_F(Slot, RestoreOfABroadcastBringsTheLength) {
    contribute(1, 0, 0);
    EXPECT_EQ(restore(block(0, 0, 96)), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(slot.elements, 96);
}

TEST_F(Slot, RestoreThatNobodyWaitsFor) {
    EXPECT_EQ(restore(block(0, 0)), -INAGG_R_UNSOLICITED) << "empty slot";
    contribute(1, 256);
    EXPECT_EQ(restore(block(0, 0)), -INAGG_R_UNSOLICITED) << "older block";
    EXPECT_EQ(restore(block(0, 512)), -INAGG_R_UNSOLICITED) << "newer block";
    inagg_block b = block(0, 256);
    b.generation = 2;
    EXPECT_EQ(restore(b), -INAGG_R_UNSOLICITED) << "other generation";
    EXPECT_EQ(seen(256), 2u);
}

TEST_F(Slot, RestoreMustAgreeWithThoseWhoWait) {
    contribute(1, 0);
    const std::string before = bytes(slot);
    inagg_block b = block(0, 0);
    b.dtype_op = INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX;
    EXPECT_EQ(restore(b), -INAGG_R_MISMATCH);
    b = block(0, 0);
    b.scale = 6;
    EXPECT_EQ(restore(b), -INAGG_R_MISMATCH);
    EXPECT_EQ(restore(block(0, 0, 64)), -INAGG_R_MISMATCH) << "longer than what they sent";
    EXPECT_EQ(restore(block(0, 0, 0)), -INAGG_R_MISMATCH) << "nothing, where they sent elements";
    EXPECT_EQ(bytes(slot), before);
}

TEST_F(Slot, ClearedSlotStartsAgain) {
    contribute(0, 0);
    contribute(1, 0);
    slot = {};
    EXPECT_EQ(request(0, 0), INAGG_TELL);
    EXPECT_EQ(contribute(1, 0), INAGG_STORE);
    EXPECT_EQ(contribute(0, 0), INAGG_ADD);
    EXPECT_EQ(contribute(2, 0), INAGG_ADD | INAGG_COMPLETES);
}
