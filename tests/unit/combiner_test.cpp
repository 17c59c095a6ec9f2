// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/combiner.h>

#include <gtest/gtest.h>

#include <array>

namespace {

constexpr __u8 int32_sum = INAGG_WIRE_INT32 << 4;
constexpr __u32 window = 4;

// A bucket of a switch with ranks 0, 1 and 2 behind it, in a job of five.
struct Combiner : testing::Test {
    std::array<inagg_record, INAGG_WAYS> bucket{};
    inagg_job job{};
    inagg_floor floor{};
    inagg_policy policy{.expiry_us = 1000, .most_open = 8, .expiry_sweeps = 2, .quorum = 0, .exclude_ms = 0};
    __u32 open = 0, way = 0;

    Combiner() {
        job.all = 0b00111;
        job.size = 5;
        job.slots = job.control_slots = window;
        job.generation = 1;
        job.flags = INAGG_JOIN_TREE;
        floor = inagg_floor_at_start(&job, 0);
    }
    static inagg_block block(__u32 number, __u16 epoch = 0, __u64 contributors = 0) {
        inagg_block b{};
        b.block = number;
        b.generation = 1;
        b.elements = 32;
        b.dtype_op = int32_sum;
        b.epoch = epoch;
        b.contributors = contributors;
        return b;
    }
    int contribute(__u64 ranks, inagg_block b) {
        const int verdict = inagg_combiner_contribute(bucket.data(), &floor, &job, &policy, open, ranks, &b, &way, nullptr);
        open += verdict > 0 && (verdict & INAGG_OPENS);
        return verdict;
    }
    int contribute(__u64 ranks, __u32 number = 0) { return contribute(ranks, block(number)); }
    int absent(__u64 ranks) {
        inagg_block b = block(0);
        b.absent = 1;
        return contribute(ranks, b);
    }
    int request(bool everyone = false, __u16 epoch = 0) {
        const inagg_block b = block(0, epoch);
        int at;
        return inagg_combiner_request(bucket.data(), &job, &b, everyone, &at);
    }
    int result(__u64 contributors, __u16 epoch = 0, __u32 number = 0) {
        const inagg_block b = block(number, epoch, contributors);
        return inagg_combiner_result(bucket.data(), &floor, &job, &b, &way);
    }
    __u64 wait(__u64 contributors, bool everyone = false, __u16 epoch = 0) {
        const inagg_block b = block(0, epoch, contributors);
        int closes;
        const __u64 in = inagg_combiner_wait(bucket.data(), &job, &b, everyone, &closes);
        open -= static_cast<__u32>(closes);
        return in;
    }
    int sweep() { return inagg_record_sweep(&bucket[way], &job, &policy, 1); }
    const inagg_slot &slot() const { return bucket[way].slot; }
};

constexpr int first = INAGG_STORE | INAGG_OPENS, last = INAGG_ADD | INAGG_COMPLETES;

} // namespace

TEST_F(Combiner, SendsOneSumUpAndKeepsTheResult) {
    EXPECT_EQ(contribute(0b001), first);
    EXPECT_EQ(contribute(0b110), last); // a switch's
    EXPECT_EQ(slot().flags & (INAGG_SLOT_SENT | INAGG_SLOT_COMPLETE), INAGG_SLOT_SENT);
    EXPECT_EQ(contribute(0b010), INAGG_SEND_UP);
    EXPECT_EQ(request(), INAGG_PASS_UP);
    EXPECT_EQ(result(0b11111), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(contribute(0b001), INAGG_REPLY);
    EXPECT_EQ(request(), INAGG_REPLY);
    EXPECT_EQ(result(0b11111), -INAGG_R_DUPLICATE);
}

TEST_F(Combiner, GivesUpWaitingBeforeTheRootDoes) {
    contribute(0b001);
    EXPECT_EQ(sweep(), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(sweep(), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(sweep(), INAGG_SWEEP_EXPIRED);
    EXPECT_EQ(inagg_combiner_finish(&bucket[way]), INAGG_COUNT | INAGG_COMPLETES);
    EXPECT_EQ(inagg_combiner_finish(&bucket[way]), -INAGG_R_STALE);
    for (int i = 0; i < 10; i++)
        EXPECT_EQ(sweep(), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(contribute(0b010), INAGG_PASS_UP); // the root adds who comes later
    EXPECT_EQ(slot().seen, 0b001U);
}

TEST_F(Combiner, SendsWhatTheRootNeedsAtLeast) {
    policy.quorum = 2;
    contribute(0b001);
    EXPECT_EQ(contribute(0b100), last);
    EXPECT_EQ(contribute(0b010), INAGG_PASS_UP);
}

TEST_F(Combiner, AQuorumLeavesAsManyOutBelow) {
    EXPECT_EQ(inagg_quorum_below(0, 16, 8), 0);
    EXPECT_EQ(inagg_quorum_below(16, 16, 8), 0);
    EXPECT_EQ(inagg_quorum_below(14, 16, 8), 6);
    EXPECT_EQ(inagg_quorum_below(6, 8, 4), 2);
    EXPECT_EQ(inagg_quorum_below(8, 16, 4), 1);
    EXPECT_EQ(inagg_expiry_below(10000), 5000U);
    EXPECT_EQ(inagg_expiry_below(1), 1U);
    EXPECT_EQ(inagg_expiry_below(0), 0U);
}

TEST_F(Combiner, BlocksForAllRanksWaitForThemHere) {
    policy.quorum = 1;
    inagg_block b = block(0);
    b.whole = 1;
    EXPECT_EQ(contribute(0b001, b), first);
    for (int i = 0; i < 10; i++)
        EXPECT_EQ(sweep(), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(contribute(0b010, b), INAGG_ADD);
    EXPECT_EQ(contribute(0b100, b), last);
}

TEST_F(Combiner, RecoveryIsTheRootsAlone) {
    EXPECT_EQ(contribute(0b001, block(0, 7)), INAGG_PASS_UP);
    contribute(0b001);
    EXPECT_EQ(contribute(0b010, block(0, 7)), INAGG_PASS_UP);
    EXPECT_EQ(wait(0b01000, true, 7), 0b01000U); // what is here counts no more
    EXPECT_EQ(open, 0U);
    EXPECT_EQ(contribute(0b001), INAGG_PASS_UP); // no new block
}

TEST_F(Combiner, OnlyNewBlocksAreAdded) {
    EXPECT_EQ(result(0b11000), INAGG_STORE | INAGG_COMPLETES | INAGG_OPENS);
    EXPECT_NE(bucket[way].flags & INAGG_RECORD_DEGRADED, 0);
    bucket = {};
    EXPECT_EQ(contribute(0b001), INAGG_PASS_UP);
    EXPECT_EQ(contribute(0b001, window), first);
    floor = {}; // lost
    EXPECT_EQ(contribute(0b001, 2 * window), INAGG_PASS_UP);
    result(0b11111, 0, 2 * window);
    EXPECT_EQ(contribute(0b001, 3 * window), first);
}

TEST_F(Combiner, AnOlderResultIsNoAnswer) {
    result(0b11000);
    EXPECT_EQ(contribute(0b001, block(0, 7)), INAGG_PASS_UP);
    EXPECT_EQ(request(false, 7), INAGG_PASS_UP);
    EXPECT_EQ(result(0b11111, 7), INAGG_STORE | INAGG_COMPLETES | INAGG_OPENS);
    EXPECT_EQ(contribute(0b001, block(0, 7)), INAGG_REPLY);
    EXPECT_EQ(result(0b11000), -INAGG_R_DUPLICATE);
}

TEST_F(Combiner, WhoIsAbsentSaysSoToTheRoot) {
    contribute(0b001);
    EXPECT_EQ(absent(0b010), INAGG_PASS_UP);
    EXPECT_EQ(contribute(0b100), last);
    EXPECT_EQ(absent(0b010), INAGG_PASS_UP);
    EXPECT_EQ(slot().seen, 0b101U);
}

TEST_F(Combiner, WhoIsAbsentMayBeTheLast) {
    contribute(0b101);
    EXPECT_EQ(absent(0b010), INAGG_COUNT | INAGG_COMPLETES);
}

TEST_F(Combiner, ASumThatTheRootCannotAddIsGivenUp) {
    contribute(0b111);
    EXPECT_EQ(wait(0b11000), 0b11000U);
    EXPECT_EQ(wait(0b11111), 0b11111U);
    EXPECT_EQ(contribute(0b001), INAGG_SEND_UP);
    EXPECT_EQ(wait(0b11001), 0b11001U);
    EXPECT_EQ(contribute(0b010), INAGG_PASS_UP);
    EXPECT_EQ(open, 0U);
}

TEST_F(Combiner, RanksElsewhereAreNotBlamed) {
    contribute(0b001);
    EXPECT_EQ(contribute(0b001), INAGG_TELL);
    EXPECT_EQ(request(), INAGG_TELL);
    EXPECT_EQ(inagg_combiner_seen(&bucket[way], &job), 0b11001U);
    EXPECT_EQ(wait(0b01000), 0b01001U);
}

TEST_F(Combiner, WhoAsksEveryoneMakesTheSumGoUp) {
    contribute(0b001);
    EXPECT_EQ(request(true), INAGG_TELL);
    EXPECT_EQ(inagg_combiner_seen(&bucket[way], &job), 0U); // it brings its elements again
    EXPECT_EQ(contribute(0b001), INAGG_COUNT | INAGG_COMPLETES);
}

TEST_F(Combiner, WhoAsksEveryoneElsewhereDoes) {
    contribute(0b001);
    EXPECT_EQ(wait(0b01000, true), 0b01000U);
    EXPECT_EQ(contribute(0b010), last);
}

TEST_F(Combiner, WithoutRoomEverythingGoesUp) {
    policy.most_open = 1;
    contribute(0b001);
    EXPECT_EQ(contribute(0b001, window), INAGG_PASS_UP);
    for (inagg_record &r : bucket)
        r.slot.flags = INAGG_SLOT_LIVE;
    EXPECT_EQ(result(0b11111, 0, 9 * window), INAGG_PASS_DOWN);
}

TEST_F(Combiner, ResultsNameRanksOfTheJob) {
    EXPECT_EQ(result(0), -INAGG_R_RANK);
    EXPECT_EQ(result(0b111111), -INAGG_R_RANK);
}
