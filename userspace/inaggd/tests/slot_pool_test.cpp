// SPDX-License-Identifier: BSD-2-Clause
#include "slot_pool.hpp"

#include <gtest/gtest.h>

using inaggd::first_fit;

TEST(FirstFit, EmptySwitchGivesTheFirstSlot) { EXPECT_EQ(first_fit({}, 136, 4096), 0u); }

TEST(FirstFit, TakesTheFirstGapThatIsLargeEnough) {
    EXPECT_EQ(first_fit({{100, 50}, {0, 50}, {200, 100}}, 50, 1000), 50u);
    EXPECT_EQ(first_fit({{100, 50}, {0, 60}, {200, 100}}, 50, 1000), 150u);
    EXPECT_EQ(first_fit({{100, 50}, {0, 60}, {200, 100}}, 51, 1000), 300u);
}

TEST(FirstFit, FillsTheSwitchExactly) {
    EXPECT_EQ(first_fit({{0, 64}}, 64, 128), 64u);
    EXPECT_EQ(first_fit({{0, 64}}, 65, 128), std::nullopt);
    EXPECT_EQ(first_fit({}, 129, 128), std::nullopt);
}

TEST(FirstFit, OverlappingRangesDoNotHideTheLongerOne) { EXPECT_EQ(first_fit({{0, 100}, {10, 5}}, 20, 200), 100u); }

TEST(FirstFit, SumsDoNotWrap) { EXPECT_EQ(first_fit({{0, UINT32_MAX}}, 2, UINT32_MAX), std::nullopt); }

TEST(PoolSize, IsAPowerOfTwo) {
    EXPECT_TRUE(inaggd::is_pool_size(1));
    EXPECT_TRUE(inaggd::is_pool_size(128));
    EXPECT_FALSE(inaggd::is_pool_size(0));
    EXPECT_FALSE(inaggd::is_pool_size(96));
}
