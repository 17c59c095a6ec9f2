// SPDX-License-Identifier: BSD-2-Clause
// A rank that has nothing to add to a block: nobody waits for it, and nothing is decided of nobody.
#include <inagg/core/record.h>

#include <gtest/gtest.h>

namespace {

constexpr __u32 slots = 4;

struct Absent : testing::Test {
    inagg_job job{};
    inagg_policy policy{};
    inagg_record bucket[INAGG_WAYS]{};
    inagg_floor floor{};
    __u32 way = 0;

    Absent() {
        policy.expiry_sweeps = 1;
        policy.most_open = 8;
        job.size = 3;
        job.all = inagg_all_ranks(3);
        job.slots = job.control_slots = slots;
        floor = inagg_floor_at_start(&job, 1);
    }
    int send(__u16 rank, bool absent, __u16 epoch = 0, bool whole = false, __u32 block = 1) {
        inagg_block b{};
        b.block = block;
        b.rank = rank;
        b.elements = 32;
        b.dtype_op = INAGG_WIRE_INT32 << 4;
        b.absent = absent;
        b.whole = whole;
        b.epoch = epoch;
        return inagg_record_contribute(bucket, &floor, &job, &policy, 0, &b, 100, &way, nullptr);
    }
};

TEST_F(Absent, NobodyWaitsForIt) {
    EXPECT_EQ(send(0, false), INAGG_STORE | INAGG_OPENS);
    EXPECT_EQ(send(1, true), INAGG_TELL);
    EXPECT_EQ(send(1, true), INAGG_TELL);
    EXPECT_EQ(send(2, false), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(bucket[way].slot.seen, 5U);
    EXPECT_TRUE(bucket[way].flags & INAGG_RECORD_DEGRADED);
    EXPECT_EQ(send(1, true), INAGG_REPLY);
}

TEST_F(Absent, TheLastOneDecides) {
    EXPECT_EQ(send(0, false), INAGG_STORE | INAGG_OPENS);
    EXPECT_EQ(send(2, false), INAGG_ADD);
    EXPECT_EQ(send(1, true), INAGG_COUNT | INAGG_COMPLETES);
}

TEST_F(Absent, NothingIsDecidedOfNobody) {
    for (const __u16 rank : {0, 1, 2})
        EXPECT_EQ(send(rank, true) & ~INAGG_OPENS, INAGG_TELL);
    for (int sweep = 0; sweep < 5; sweep++)
        EXPECT_EQ(inagg_record_sweep(&bucket[way], &job, &policy, 100), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(inagg_record_finish(&bucket[way], &job), -INAGG_R_STALE);
    EXPECT_EQ(send(0, false), INAGG_STORE | INAGG_COMPLETES);
}

TEST_F(Absent, IsNoReasonToDecideAWholeBlock) {
    EXPECT_EQ(send(0, false, 0, true), INAGG_STORE | INAGG_OPENS);
    EXPECT_EQ(send(1, true, 0, true), INAGG_TELL);
    EXPECT_EQ(send(2, false, 0, true), INAGG_ADD);
}

TEST_F(Absent, SaysThatItHoldsNothing) {
    floor.known = 0;
    floor.epoch = 99; // lost in an earlier tick
    EXPECT_EQ(send(1, true), INAGG_TELL_ALL | INAGG_OPENS);
    const __u16 epoch = bucket[way].epoch;
    EXPECT_NE(epoch, 0);
    EXPECT_EQ(send(1, true), INAGG_TELL); // of before: counts for nothing
    EXPECT_EQ(send(0, false, epoch), INAGG_STORE);
    EXPECT_EQ(send(2, false, epoch), INAGG_ADD);
    EXPECT_EQ(send(1, true, epoch), INAGG_COUNT | INAGG_COMPLETES);
    EXPECT_EQ(bucket[way].slot.seen, 5U);
    EXPECT_TRUE(floor.known);
}

} // namespace
