// SPDX-License-Identifier: BSD-2-Clause
#include "unit/blocks.hpp"

#include <inagg/core/aggregator.h>

#include <gtest/gtest.h>

#include <cstring>
#include <set>

namespace {

constexpr __u32 stale = INAGG_AGGREGATOR_STALE;
constexpr __u16 again = INAGG_F_RESEND;

// One aggregator of a switch with ranks 0, 1 and 2 behind it, in jobs of four ranks.
struct Aggregator : testing::Test {
    inagg_aggregator a{};
    inagg_job job{};
    inagg_job other{};
    __u32 now = 100;

    Aggregator() {
        job.all = 0b0111;
        job.size = 4;
        job.slots = 8;
        job.control_slots = 2;
        job.index = 1;
        other = job;
        other.index = 2;
    }
    static inagg_block block(__u32 number, __u8 stream = 0) {
        inagg_block b = block_of(number, INAGG_WIRE_INT32);
        b.stream = stream;
        return b;
    }
    int contribute(__u64 ranks, __u16 flags = 0, __u32 number = 0) {
        const inagg_block b = block(number);
        return inagg_aggregator_contribute(&a, &job, ranks, &b, flags, now);
    }
    int contribute(const inagg_job &of, const inagg_block &b) { return inagg_aggregator_contribute(&a, &of, 1, &b, 0, now); }
    bool result(const inagg_job &of, __u32 number = 0) {
        const inagg_block b = block(number);
        return inagg_aggregator_result(&a, &of, &b, now);
    }
    bool in_use() const { return a.slot.flags & INAGG_SLOT_LIVE; }
};

} // namespace

TEST_F(Aggregator, SumsWhoIsHereAndKeepsItsPlaceUntilTheResultPasses) {
    EXPECT_EQ(contribute(1), INAGG_STORE);
    EXPECT_EQ(contribute(4), INAGG_ADD);
    EXPECT_EQ(contribute(2), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(a.slot.seen, job.all);
    EXPECT_TRUE(in_use()) << "late copies are recognised";
    EXPECT_EQ(contribute(2), -INAGG_R_DUPLICATE);
    EXPECT_TRUE(result(job));
    EXPECT_FALSE(in_use());
    EXPECT_FALSE(result(job));
}

TEST_F(Aggregator, ACollisionGoesOnAndChangesNoSum) {
    contribute(1);
    const inagg_slot before = a.slot;
    EXPECT_EQ(contribute(other, block(0)), INAGG_COLLIDES);
    EXPECT_EQ(contribute(job, block(1)), INAGG_COLLIDES) << "another position";
    EXPECT_EQ(contribute(job, block(0, 1)), INAGG_COLLIDES) << "another stream";
    EXPECT_EQ(std::memcmp(&a.slot, &before, sizeof before), 0);
    EXPECT_FALSE(result(other)) << "whose result it is not";
}

TEST_F(Aggregator, WhoComesAfterACollisionGoesOnToo) {
    contribute(1);
    EXPECT_EQ(contribute(1, 0, 1), INAGG_COLLIDES);
    EXPECT_TRUE(result(job));
    EXPECT_EQ(contribute(2, 0, 1), INAGG_COLLIDES) << "here it would wait for the first one, in vain";
    EXPECT_FALSE(in_use());
    EXPECT_EQ(contribute(2, again, 1), INAGG_PASS_UP);
    EXPECT_EQ(contribute(other, block(1)), INAGG_STORE) << "another job's";
    EXPECT_EQ(contribute(4, 0, 1), INAGG_COLLIDES);
}

TEST_F(Aggregator, TheBestOfASetIsTheBlocks) {
    const inagg_block b = block(0);
    const auto fit = [&](const inagg_job &of) { return inagg_aggregator_fit(&a, &of, &b, now); };
    EXPECT_EQ(fit(job), INAGG_FREE);
    contribute(1);
    EXPECT_EQ(fit(job), INAGG_ITS);
    EXPECT_EQ(fit(other), INAGG_TAKEN);
    contribute(other, b);
    EXPECT_EQ(fit(other), INAGG_ITS) << "which has refused it";
    result(job);
    EXPECT_EQ(fit(other), INAGG_ITS);
    EXPECT_EQ(fit(job), INAGG_FREE);
    EXPECT_GT(INAGG_ITS, INAGG_FREE);
    EXPECT_GT(INAGG_FREE, INAGG_TAKEN);
}

TEST_F(Aggregator, ALaterBlockOfThePositionTakesItsPlace) {
    contribute(1, 0, 3);
    EXPECT_EQ(contribute(2, 0, 3 + job.slots), INAGG_STORE);
    EXPECT_EQ(a.slot.seen, 2U);
    EXPECT_EQ(contribute(4, 0, 3), INAGG_COLLIDES) << "a late copy does not take it back";
    inagg_block next = block(3);
    next.generation = 2;
    EXPECT_EQ(contribute(job, next), INAGG_STORE) << "another run of the job";
}

TEST_F(Aggregator, WhatIsAbandonedIsTaken) {
    contribute(1);
    now += stale - 1;
    EXPECT_EQ(contribute(other, block(0)), INAGG_COLLIDES);
    now++;
    EXPECT_TRUE(result(other)) << "any result frees it";
    contribute(1);
    now += stale;
    EXPECT_EQ(contribute(other, block(1)), INAGG_STORE);
}

TEST_F(Aggregator, WhatIsSentAgainTakesAlongAllThatIsHere) {
    contribute(1);
    EXPECT_EQ(contribute(2, again), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(a.slot.seen, 3U);
    EXPECT_TRUE(in_use()) << "for who is not here yet";
}

TEST_F(Aggregator, WhoComesAfterwardsIsWaitedForStill) {
    job.all = 0b1111;
    contribute(1);
    contribute(2, again);
    EXPECT_EQ(contribute(4), INAGG_STORE) << "a sum of its own";
    EXPECT_EQ(a.slot.seen, 4U);
    EXPECT_EQ(contribute(1), -INAGG_R_DUPLICATE);
    EXPECT_EQ(contribute(1, again), INAGG_PASS_UP) << "what it was in may be lost";
    EXPECT_EQ(a.slot.seen, 4U);
    EXPECT_EQ(contribute(8), INAGG_ADD | INAGG_COMPLETES) << "all are in or have gone on";
    EXPECT_EQ(a.slot.seen, 12U);
}

TEST_F(Aggregator, WhatIsInAlreadyIsSentOnTwice) {
    contribute(1);
    contribute(2);
    EXPECT_EQ(contribute(1, again), INAGG_SEND_UP);
    EXPECT_EQ(a.slot.seen, 3U);
    EXPECT_EQ(contribute(1, again), INAGG_PASS_UP);
    EXPECT_EQ(contribute(4), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(contribute(4, again), INAGG_SEND_UP) << "the sum may have been lost";
    EXPECT_EQ(contribute(4, again), INAGG_PASS_UP) << "the server may have some of it";
}

// A switch below has merged other ranks than this one since.
TEST_F(Aggregator, SumsThatOverlapAreNotAdded) {
    contribute(1);
    EXPECT_EQ(contribute(3, again), INAGG_PASS_UP);
    EXPECT_EQ(contribute(3), -INAGG_R_DUPLICATE);
    EXPECT_EQ(a.slot.seen, 1U);
}

TEST_F(Aggregator, WhatDisagreesIsTheServersToRefuse) {
    contribute(1);
    inagg_block b = block(0);
    b.scale = 1;
    EXPECT_EQ(inagg_aggregator_contribute(&a, &job, 2, &b, 0, now), INAGG_PASS_UP);
    EXPECT_EQ(inagg_aggregator_contribute(&a, &job, 2, &b, again, now), INAGG_PASS_UP);
    EXPECT_EQ(inagg_aggregator_contribute(&a, &job, 1, &b, again, now), INAGG_PASS_UP) << "also a duplicate";
    EXPECT_EQ(a.slot.seen, 1U);
}

// A sum goes on in the packet that completes it.
TEST_F(Aggregator, WhatHasNoRoomForASumIsTheServers) {
    inagg_block b = block(0);
    b.elements = 0;
    EXPECT_EQ(contribute(job, b), INAGG_PASS_UP);
    b = block(0);
    b.whole = 1;
    EXPECT_EQ(contribute(job, b), INAGG_PASS_UP) << "others will bring none";
    EXPECT_FALSE(in_use());
    b = block(0, 1);
    b.elements = 0;
    b.dtype_op = INAGG_WIRE_NONE << 4;
    EXPECT_EQ(contribute(job, b), INAGG_COUNT) << "a control block has none at all";
}

TEST_F(Aggregator, FloatsGoToTheServerWhateverIsHere) {
    inagg_block b = block(0);
    b.dtype_op = INAGG_WIRE_FLOAT32 << 4;
    EXPECT_EQ(contribute(job, b), INAGG_PASS_UP);
    EXPECT_FALSE(in_use());
    contribute(1);
    EXPECT_EQ(inagg_aggregator_contribute(&a, &job, 1, &b, again, now), INAGG_PASS_UP);
    EXPECT_EQ(a.slot.seen, 1u);
}

TEST_F(Aggregator, MarksAddUp) {
    contribute(1, INAGG_F_VERSION | INAGG_F_CONGESTION);
    EXPECT_EQ(a.marks, INAGG_F_CONGESTION);
    contribute(2, INAGG_F_COLLISION);
    EXPECT_EQ(contribute(4), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(a.marks, INAGG_F_CONGESTION | INAGG_F_COLLISION);
    result(job);
    contribute(1);
    EXPECT_EQ(a.marks, 0);
}

TEST_F(Aggregator, WhoIsAloneHereNeedsNone) {
    job.all = 2;
    EXPECT_EQ(contribute(2), INAGG_PASS_UP);
    EXPECT_FALSE(in_use());
}

TEST(AggregatorIndex, SpreadsJobsPositionsAndMoves) {
    std::set<__u16> indices;
    for (__u32 job = 1; job <= 8; job++)
        for (__u32 position = 0; position < 128; position++)
            for (__u32 moves = 0; moves < 4; moves++)
                indices.insert(inagg_aggregator_index(job, position, moves));
    EXPECT_GT(indices.size(), 3900U) << "4096 draws of 65536: 3971 are expected";
    EXPECT_EQ(inagg_aggregator_index(7, 3, 1), inagg_aggregator_index(7, 3, 1));
}

TEST(SharedEntry, NoJobFindsAnythingInAnothersShare) {
    std::map<__u32, std::set<__u32>> entries;
    for (__u32 row = 0; row < 8; row++)
        for (__u32 index = 0; index < 65536; index++)
            entries[row].insert(inagg_shared_entry(row, index, 16, 64));
    std::set<__u32> together;
    for (__u32 row = 0; row < 4; row++) {
        EXPECT_EQ(entries[row].size(), 16U);
        EXPECT_EQ(entries[row], entries[row + 4]) << "there are more jobs than shares";
        together.merge(entries[row]);
    }
    EXPECT_EQ(together.size(), 64U);
    EXPECT_EQ(*together.rbegin(), 63U);
}

TEST(SharedEntry, IsAnyWhereNothingIsDivided) {
    for (__u32 row = 0; row < 64; row++)
        for (__u32 index = 0; index < 65536; index += 77)
            EXPECT_EQ(inagg_shared_entry(row, index, 4096, 4096), index % 4096);
}
