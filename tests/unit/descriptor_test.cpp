// SPDX-License-Identifier: BSD-2-Clause
#include "unit/blocks.hpp"

#include <inagg/core/descriptor.h>

#include <gtest/gtest.h>

#include <bit>
#include <cstring>
#include <set>

namespace {

// One descriptor of a leaf with ranks 0, 1 and 2 of four behind it; the leader is behind a switch above.
struct Descriptor : testing::Test {
    inagg_descriptor d{};
    inagg_job job{};
    uint64_t now = 1'000'000;
    uint64_t expected = 0b0111;

    Descriptor() {
        job.all = 0b0111;
        job.size = 4;
        job.slots = 8;
        job.control_slots = 2;
        job.index = 1;
    }
    static inagg_block block(__u32 number, __u16 attempt = 0) {
        inagg_block b = block_of(number, INAGG_WIRE_INT32);
        b.epoch = attempt;
        return b;
    }
    int arrive(uint64_t ranks, const inagg_block &b, uint8_t up = 0) {
        const inagg_arrival a{.ranks = ranks, .expected = expected, .now_ns = now, .up = up};
        return inagg_descriptor_contribute(&d, &job, &a, &b);
    }
    int arrive(uint64_t ranks, __u32 number = 0) { return arrive(ranks, block(number)); }
    bool expire(const inagg_block &b = block(0)) { return inagg_descriptor_expire(&d, &job, &b); }
    bool free(const inagg_block &b = block(0)) { return inagg_descriptor_free(&d, &job, &b); }
};

} // namespace

TEST_F(Descriptor, SendsWhenAllThatCanComeHaveCome) {
    EXPECT_EQ(arrive(1), INAGG_STORE | INAGG_OPENS);
    EXPECT_EQ(arrive(4), INAGG_ADD);
    EXPECT_EQ(arrive(2), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_FALSE(expire()) << "it has gone";
    EXPECT_FALSE(d.expired);
    EXPECT_TRUE(free());
    EXPECT_FALSE(free());
    EXPECT_EQ(arrive(1), INAGG_STORE | INAGG_OPENS) << "a late copy opens it anew; its timer ends that";
}

TEST_F(Descriptor, WhoIsExpectedAloneNeedNotWait) {
    expected = 1;
    EXPECT_EQ(arrive(1), INAGG_PASS_UP | INAGG_OPENS);
    EXPECT_FALSE(d.late);
    EXPECT_EQ(d.children, 1U);
    EXPECT_EQ(arrive(1), -INAGG_R_DUPLICATE);
}

TEST_F(Descriptor, StragglersGoOnAndAreRemembered) {
    EXPECT_EQ(arrive(1), INAGG_STORE | INAGG_OPENS);
    EXPECT_TRUE(expire());
    EXPECT_FALSE(expire()) << "once";
    EXPECT_TRUE(d.expired);
    now += 300;
    EXPECT_EQ(arrive(2), INAGG_PASS_UP);
    EXPECT_TRUE(d.late);
    EXPECT_EQ(d.slot.seen, 1U) << "not in the sum";
    EXPECT_EQ(d.children, 3U);
    EXPECT_EQ(d.spread_ns, 300U);
    EXPECT_EQ(arrive(2), -INAGG_R_DUPLICATE);
    EXPECT_EQ(arrive(6), -INAGG_R_DUPLICATE) << "nor what overlaps";
    EXPECT_EQ(d.children, 3U);
}

TEST_F(Descriptor, RemembersUpPorts) {
    expected = 0b1110;
    arrive(2);
    EXPECT_EQ(arrive(8, block(0), 4), INAGG_ADD);
    EXPECT_EQ(d.ups, 4U);
    expire();
    EXPECT_EQ(arrive(4, block(0), 1), INAGG_PASS_UP);
    EXPECT_EQ(d.ups, 5U);
}

TEST_F(Descriptor, ACollisionChangesNothing) {
    arrive(1);
    const inagg_descriptor before = d;
    EXPECT_EQ(arrive(2, 1), INAGG_COLLIDES) << "another slot";
    EXPECT_EQ(arrive(2, block(0, 1)), INAGG_COLLIDES) << "another attempt";
    inagg_block control = block(0);
    control.stream = 1;
    EXPECT_EQ(arrive(2, control), INAGG_COLLIDES);
    job.index = 2;
    EXPECT_EQ(arrive(2), INAGG_COLLIDES);
    EXPECT_FALSE(free());
    EXPECT_FALSE(expire());
    EXPECT_EQ(std::memcmp(&d, &before, sizeof d), 0);
}

TEST_F(Descriptor, TheNextBlockOfTheSlotDoesNotTakeItsPlace) {
    arrive(1, 3);
    EXPECT_EQ(arrive(2, 3 + job.slots), INAGG_COLLIDES) << "the result of the first may be on its way";
    EXPECT_TRUE(free(block(3)));
    EXPECT_EQ(arrive(2, 3 + job.slots), INAGG_STORE | INAGG_OPENS);
    EXPECT_EQ(arrive(4, 3), INAGG_COLLIDES);
    EXPECT_EQ(d.children, 2U);
}

TEST_F(Descriptor, TheTwoBlocksOfASlotHaveTwoPlaces) {
    for (const uint8_t stream : {0, 1})
        for (__u32 position = 0; position < 8; position++)
            for (__u32 count = 2; count <= 4096; count *= 2) {
                inagg_block b = block(0), next = b, after = b;
                b.stream = next.stream = after.stream = stream;
                next.block = stream ? job.control_slots : job.slots;
                after.block = 2 * next.block;
                const auto index = [&](const inagg_block &of) {
                    return inagg_descriptor_index(&job, 7, position, &of, 0, 2, count);
                };
                EXPECT_LT(index(b), count);
                EXPECT_NE(index(b), index(next));
                EXPECT_EQ(index(b), index(after));
            }
}

TEST_F(Descriptor, BlocksMeetOnlyWhereAllPoolsAreLargerThanTheTable) {
    std::set<__u32> taken;
    inagg_job next = job;
    next.index = job.index + 1;
    next.first_slot = job.first_slot + job.slots + job.control_slots;
    const uint32_t places = 4 * (job.slots + job.control_slots), count = std::bit_ceil(places);
    for (const inagg_job &of : {job, next})
        for (uint32_t position = 0; position < of.slots + of.control_slots; position++)
            for (const uint32_t round : {0, 1}) {
                inagg_block b = block(0);
                b.stream = position >= of.slots;
                b.block = round * (b.stream ? of.control_slots : of.slots);
                taken.insert(inagg_descriptor_index(&of, 7, position, &b, 0, count, count));
            }
    EXPECT_EQ(taken.size(), places);
}

TEST_F(Descriptor, AFailedAttemptIsRepeatedElsewhere) {
    constexpr uint32_t count = 4096;
    const inagg_block b = block(3);
    std::set<__u32> places;
    for (const __u16 attempt : {0, 1, 2})
        places.insert(inagg_descriptor_index(&job, 7, 3, &b, attempt, count, count));
    EXPECT_EQ(places.size(), 3U);
}

TEST_F(Descriptor, TheBlockAfterTheNextTakesItsPlace) {
    arrive(1, 3);
    EXPECT_EQ(arrive(2, 3 + 2 * job.slots), INAGG_STORE | INAGG_OPENS);
    EXPECT_EQ(d.children, 2U);
    EXPECT_EQ(arrive(4, 3), -INAGG_R_STALE);
    EXPECT_FALSE(expire(block(3)));
    EXPECT_TRUE(expire(block(3 + 2 * job.slots)));
    inagg_block reborn = block(0);
    reborn.generation = 2;
    EXPECT_EQ(arrive(1, reborn), INAGG_STORE | INAGG_OPENS);
}

TEST_F(Descriptor, WhatIsAbandonedIsFree) {
    arrive(1, 3);
    now += INAGG_DESCRIPTOR_STALE_NS - 1;
    EXPECT_EQ(arrive(1, 4), INAGG_COLLIDES);
    now++;
    EXPECT_EQ(arrive(1, 4), INAGG_STORE | INAGG_OPENS);
}

TEST_F(Descriptor, ThreeAttemptsHaveAPlace) {
    inagg_block late = block(0);
    late.epoch = INAGG_CANARY_ATTEMPTS;
    EXPECT_EQ(arrive(1, late), INAGG_EVADES);
    EXPECT_FALSE(d.slot.flags & INAGG_SLOT_LIVE);
    late.epoch--;
    EXPECT_EQ(arrive(1, late), INAGG_STORE | INAGG_OPENS);
}

TEST_F(Descriptor, WhatItCannotSumGoesPast) {
    inagg_block empty = block(0);
    empty.elements = 0;
    EXPECT_EQ(arrive(1, empty), INAGG_EVADES);
    EXPECT_FALSE(d.slot.flags & INAGG_SLOT_LIVE);
    arrive(1);
    inagg_block other = block(0);
    other.scale = 3;
    EXPECT_EQ(arrive(2, other), INAGG_EVADES);
    EXPECT_EQ(d.children, 1U) << "the leader hears of it, and names it";
    inagg_block control = block(0, 0);
    control.dtype_op = INAGG_WIRE_NONE << 4;
    control.elements = 0;
    free();
    EXPECT_EQ(arrive(1, control), INAGG_COUNT | INAGG_OPENS);
}

namespace {

struct Patience : testing::Test {
    inagg_patience p{};

    void learn(__u32 spread_ns, bool expired = false, bool late = false, __u8 stream = 0) {
        inagg_descriptor d{};
        d.stream = stream;
        d.spread_ns = spread_ns;
        d.expired = expired;
        d.late = late;
        inagg_patience_learn(&p, &d);
    }
    __u32 wait() const { return inagg_patience_ns(&p); }
};

} // namespace

TEST_F(Patience, FollowsTheSpreadAndHasBounds) {
    EXPECT_EQ(wait(), INAGG_PATIENCE_START_NS);
    learn(0);
    EXPECT_EQ(wait(), INAGG_PATIENCE_START_NS) << "one packet alone tells nothing";
    for (int i = 0; i < 200; i++)
        learn(400'000);
    EXPECT_NEAR(wait(), 400'000, 40'000);
    for (int i = 0; i < 400; i++)
        learn(i % 2 ? 100'000 : 900'000);
    EXPECT_GT(wait(), 900'000U) << "nearly all of them are in time";
    for (int i = 0; i < 400; i++)
        learn(1);
    EXPECT_EQ(wait(), INAGG_PATIENCE_FLOOR_NS);
    for (int i = 0; i < 400; i++)
        learn(~0U);
    EXPECT_NEAR(wait(), INAGG_PATIENCE_MOST_NS, 1'000'000);
}

TEST_F(Patience, IsLessWhereWaitsAreInVain) {
    for (int i = 0; i < 400; i++)
        learn(i % 2 ? 100'000 : 900'000, true, true);
    EXPECT_GT(wait(), 900'000U) << "stragglers come";
    for (int i = 0; i < 400; i++)
        learn(i % 2 ? 100'000 : 900'000, i % 8 == 0);
    EXPECT_NEAR(wait(), 900'000, 150'000) << "an eighth of them never";
    for (int i = 0; i < 400; i++)
        learn(i % 2 ? 100'000 : 900'000);
    EXPECT_GT(wait(), 1'500'000U);
}

TEST_F(Patience, TrustsTheFirstResultsLittle) {
    learn(80'000);
    EXPECT_EQ(wait(), 90'000U);
    for (int i = 0; i < 20; i++)
        learn(i % 2 ? 40'000 : 120'000);
    EXPECT_GT(wait(), 120'000U) << "all have come";
}

TEST_F(Patience, IsHalfWhereWaitsAreOftenInVain) {
    for (int i = 0; i < 400; i++)
        learn(i % 2 ? 100'000 : 900'000, i % 2 == 0);
    EXPECT_NEAR(wait(), 250'000, 20'000);
}

TEST_F(Patience, DoesNotWaitForWhomNobodyHasSeen) {
    for (int i = 0; i < 20; i++)
        learn(0, true);
    EXPECT_EQ(wait(), INAGG_PATIENCE_FLOOR_NS);
    learn(30'000, true, true);
    EXPECT_GT(wait(), 30'000U) << "a straggler has come";
}

TEST_F(Patience, LearnsNothingFromControlBlocks) {
    for (int i = 0; i < 20; i++)
        learn(5'000'000, true, false, 1);
    EXPECT_EQ(wait(), INAGG_PATIENCE_START_NS);
}
