// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/ways.h>

#include <gtest/gtest.h>

#include <set>

namespace {

constexpr __u32 four = 0b1111;

struct Ways : testing::Test {
    inagg_ways ways{};
    inagg_copies copies{};

    void learn(__u32 rank, __u8 bad, __u16 generation = 7, __u64 now = 0) {
        inagg_ways_refresh(&ways, generation, now);
        inagg_ways_learn(&ways, rank, bad);
    }
    void share(__u32 usable, __u32 preferred, __u64 ranks) { inagg_ways_share(&ways, usable, preferred, ranks, &copies); }
    void expect_copies(std::initializer_list<__u64> ranks) const {
        std::size_t way = 0;
        for (const __u64 named : ranks) {
            EXPECT_EQ(copies.ranks[way], named) << "way " << way;
            way++;
        }
        for (; way < INAGG_MAX_UPS; way++)
            EXPECT_EQ(copies.ranks[way], 0U) << "way " << way;
    }
};

} // namespace

TEST(Turns, WhatMayBeLostGoesByAnotherWayNextTime) {
    constexpr __u32 ups = 4;
    std::set<__u32> attempts, questions;
    for (__u16 again = 0; again < ups; again++) {
        attempts.insert(inagg_ways_turn(6, again, 0) % ups);
        questions.insert(inagg_ways_turn(6, 1, again) % ups);
    }
    EXPECT_EQ(attempts.size(), ups);
    EXPECT_EQ(questions.size(), ups);
}

TEST_F(Ways, WhatARanksSwitchSaysLastCounts) {
    learn(3, 0b0101);
    learn(5, 0b0100);
    EXPECT_EQ(inagg_ways_good(&ways, four, inagg_rank_bit(3)), 0b1010U);
    EXPECT_EQ(inagg_ways_good(&ways, four, inagg_rank_bit(4)), four);
    learn(3, 0b0010);
    EXPECT_EQ(inagg_ways_good(&ways, four, inagg_rank_bit(3)), 0b1101U);
    EXPECT_EQ(inagg_ways_good(&ways, four, inagg_rank_bit(5)), 0b1011U);
}

TEST_F(Ways, WhatIsKnownOfAnotherJobIsForgotten) {
    learn(1, 0b0001);
    learn(2, 0b0010, 8);
    EXPECT_EQ(inagg_ways_good(&ways, four, inagg_rank_bit(1)), four);
    EXPECT_EQ(inagg_ways_good(&ways, four, inagg_rank_bit(2)), 0b1101U);
}

TEST_F(Ways, AGoodOneIsSoForAll) {
    learn(1, 0b0001);
    learn(2, 0b0011);
    EXPECT_EQ(inagg_ways_good(&ways, four, 0b110), 0b1100U);
    EXPECT_EQ(inagg_ways_good(&ways, 0b0111, 0b110), 0b0100U) << "of those that were asked for";
    EXPECT_EQ(inagg_ways_good(&ways, four, 0), four) << "to nobody in particular";
}

TEST_F(Ways, BeforeAnythingIsSaidOfAnotherGenerationNothingIsKnown) {
    learn(1, 0b0001);
    inagg_ways_refresh(&ways, 8, 0);
    EXPECT_EQ(inagg_ways_good(&ways, four, inagg_rank_bit(1)), four);
}

TEST_F(Ways, WhatIsNotSaidAgainAges) {
    constexpr __u64 age = INAGG_WAYS_AGE_NS;
    learn(1, 0b0001, 7, age);
    learn(2, 0b0010, 7, 2 * age - 1);
    inagg_ways_refresh(&ways, 7, 2 * age); // both since the first
    EXPECT_EQ(inagg_ways_good(&ways, four, 0b110), 0b1100U);
    learn(2, 0b0010, 7, 2 * age + 1);
    inagg_ways_refresh(&ways, 7, 3 * age);
    EXPECT_EQ(inagg_ways_good(&ways, four, 0b110), 0b1101U) << "of the first for an age not";
    inagg_ways_refresh(&ways, 7, 5 * age);
    EXPECT_EQ(inagg_ways_good(&ways, four, 0b110), four) << "of nobody for two";
}

TEST_F(Ways, SomeLeadWellToSome) {
    learn(1, 0b0011);
    learn(2, 0b0100);
    EXPECT_EQ(inagg_ways_reached(&ways, 0b0101, 0b110), 0b110U);
    EXPECT_EQ(inagg_ways_reached(&ways, 0b0011, 0b110), 0b100U);
    EXPECT_EQ(inagg_ways_reached(&ways, 0b0011, 0b100), 0b100U) << "of those that were asked for";
    EXPECT_EQ(inagg_ways_reached(&ways, 0, 0b1000), 0U);
}

TEST_F(Ways, OneCopyIsEnoughIfAWayIsGoodForAll) {
    share(four, 2, 0b1110);
    expect_copies({0, 0, 0b1110});
    learn(1, 0b0100);
    share(four, 2, 0b1110);
    expect_copies({0, 0, 0, 0b1110});
    share(0b0111, 2, 0b1110);
    expect_copies({0b1110});
}

TEST_F(Ways, ElseEachRankHasAGoodOne) {
    learn(1, 0b0001);
    learn(2, 0b0110);
    learn(3, 0b1000);
    share(four, 0, 0b1110);
    expect_copies({0b1100, 0b0010});
    share(four, 3, 0b1110);
    expect_copies({0b1000, 0, 0, 0b0110});
}

TEST_F(Ways, WhoHasNoGoodOneGetsTheFirst) {
    learn(1, 0b1111);
    learn(2, 0b0010);
    share(four, 1, 0b0110);
    expect_copies({0, 0, 0b0110});
    share(four, 1, 0b0010);
    expect_copies({0, 0b0010});
}

TEST_F(Ways, ThereAreNoMoreCopiesThanAHeaderCanName) {
    for (__u32 rank = 0; rank < 4; rank++)
        learn(rank, static_cast<__u8>(~(1 << rank)));
    share(four, 0, 0b1111);
    expect_copies({0b1001, 0b0010, 0b0100});
}
