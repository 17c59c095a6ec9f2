// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/guess.h>

#include <gtest/gtest.h>

#include <deque>
#include <random>

namespace {

struct Guesses : testing::Test {
    Guesses() { inagg_guesses_init(&guesses); }
    inagg_guesses guesses;
};

TEST_F(Guesses, AreTheScaleOfFourSumsBefore) {
    for (__u32 turn = 0; turn < 40; turn++) {
        ASSERT_TRUE(inagg_guess_known(&guesses, turn));
        EXPECT_EQ(inagg_guess(&guesses, turn), turn < INAGG_GUESS_AGE ? 0 : 100 + turn - INAGG_GUESS_AGE);
        inagg_guess_learn(&guesses, turn, static_cast<__u8>(100 + turn));
    }
}

TEST_F(Guesses, WaitForThatOne) {
    for (const __u32 turn : {1, 2, 3})
        inagg_guess_learn(&guesses, turn, 100);
    EXPECT_FALSE(inagg_guess_known(&guesses, 4));
    EXPECT_TRUE(inagg_guess_known(&guesses, 5));
    EXPECT_FALSE(inagg_guess_known(&guesses, 8));
    inagg_guess_learn(&guesses, 0, 90);
    EXPECT_TRUE(inagg_guess_known(&guesses, 4));
    EXPECT_EQ(inagg_guess(&guesses, 4), 90);
}

TEST_F(Guesses, InfinitiesAndNanAreNoGuess) {
    inagg_guess_learn(&guesses, 0, 120);
    inagg_guess_learn(&guesses, 4, INAGG_SCALE_NONFINITE);
    ASSERT_TRUE(inagg_guess_known(&guesses, 8));
    EXPECT_NE(inagg_guess(&guesses, 8), INAGG_SCALE_NONFINITE);
}

TEST_F(Guesses, GoOnWhereNumbersWrap) {
    guesses.next[3] = ~0U; // the last turn before 0
    ASSERT_TRUE(inagg_guess_known(&guesses, ~0U));
    inagg_guess_learn(&guesses, ~0U, 77);
    ASSERT_TRUE(inagg_guess_known(&guesses, 3));
    EXPECT_EQ(inagg_guess(&guesses, 3), 77);
}

// Sums that do not guess need not wait, so ranks learn scales in orders of their own.
TEST_F(Guesses, AreTheSameWhateverTheOrder) {
    std::mt19937 random(1);
    for (int run = 0; run < 200; run++) {
        inagg_guesses in_order, shuffled;
        inagg_guesses_init(&in_order);
        inagg_guesses_init(&shuffled);
        std::deque<std::pair<__u32, __u8>> late;
        for (__u32 turn = 0; turn < 40; turn++) {
            const auto scale = static_cast<__u8>(random() % 8 ? 100 + random() % 4 : INAGG_SCALE_NONFINITE);
            inagg_guess_learn(&in_order, turn, scale);
            late.insert(late.begin() + static_cast<long>(random() % (late.size() + 1)), {turn, scale});
        }
        for (const auto &[turn, scale] : late)
            inagg_guess_learn(&shuffled, turn, scale);
        for (__u32 turn = 40; turn < 40 + INAGG_GUESS_AGE; turn++) {
            ASSERT_TRUE(inagg_guess_known(&shuffled, turn));
            ASSERT_EQ(inagg_guess(&shuffled, turn), inagg_guess(&in_order, turn));
        }
    }
}

TEST(GuessesScale, OfSumsThatHalfTheControlSlotsHold) {
    inagg_job_config job{};
    job.control_slots = 8;
    EXPECT_TRUE(inagg_guesses_scale(&job, 1));
    EXPECT_TRUE(inagg_guesses_scale(&job, 4));
    EXPECT_FALSE(inagg_guesses_scale(&job, 5));
    job.control_slots = 1;
    EXPECT_FALSE(inagg_guesses_scale(&job, 1));
}

TEST(GuessesScale, NotWithTrio) {
    inagg_job_config job{};
    job.control_slots = 8;
    job.algorithm = INAGG_TRIO;
    EXPECT_FALSE(inagg_guesses_scale(&job, 1));
}

} // namespace
