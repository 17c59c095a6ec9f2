// SPDX-License-Identifier: BSD-2-Clause
#include "sweeper.hpp"

#include <inagg/core/record.h>

#include <gtest/gtest.h>

#include <vector>

using namespace inaggd;
using namespace std::chrono_literals;

namespace {

SweepPlan plan(std::vector<uint32_t> expiries, uint32_t sweepers = 100, uint32_t per_expiry = 4, uint32_t buckets = 1) {
    return plan_sweeps(expiries, sweepers, per_expiry, buckets);
}

TEST(Sweeps, TheShortestExpirySetsThePace) {
    EXPECT_EQ(plan({}), SweepPlan{});
    EXPECT_EQ(plan({0, 0}), SweepPlan{});
    EXPECT_EQ(plan({0, 40000, 20000}), (SweepPlan{100, 5ms}));
    EXPECT_EQ(plan({20000}, 100, 1), (SweepPlan{100, 20ms})) << "the paper's flag";
}

TEST(Sweeps, ShortPeriodsHaveFewerTimers) {
    EXPECT_EQ(plan({4000}).sweepers, 20U);
    EXPECT_EQ(plan({100}).sweepers, 8U);
    EXPECT_EQ(plan({20000}, 7).sweepers, 7U);
}

TEST(Sweeps, ShortExpiriesDoNotTakeAProcessor) {
    const SweepPlan thousand = plan({100}, 100, 4, 1024);
    EXPECT_GE(thousand.period, 250us);
    EXPECT_LE(thousand.period, 500us);
    EXPECT_EQ(expiry_in_sweeps(100, thousand), 1) << "as soon as it can be";
    EXPECT_EQ(expiry_in_sweeps(1000, thousand), 3);
    EXPECT_EQ(plan({1000}, 100, 4, 1024).period, 500us) << "a whole number in an expiry";
    EXPECT_EQ(plan({100}, 100, 4, 4096).period, 4 * thousand.period);
    EXPECT_EQ(plan({10000}, 100, 4, 1024), plan({10000})) << "these need no more";
}

TEST(Sweeps, TheShortestExpiryIsAWholeNumberOfSweeps) {
    for (uint32_t per_expiry = 1; per_expiry <= 16; per_expiry++)
        for (uint32_t expiry = 500; expiry < 100000; expiry += 37) {
            const SweepPlan own = plan({expiry}, 100, per_expiry, 1024);
            const auto sweeps = expiry_in_sweeps(expiry, own);
            EXPECT_LE(sweeps, per_expiry);
            EXPECT_LE(sweeps * own.period - std::chrono::microseconds(expiry), 16ns) << expiry << " us, " << per_expiry;
        }
}

TEST(Sweeps, RecordsCountUpToTheLongestExpiry) {
    const SweepPlan shortest = plan({least_expiry_us}, 100, 64); // whose job came first
    EXPECT_GE(expiry_in_sweeps(most_expiry_us, shortest) * shortest.period, std::chrono::microseconds(most_expiry_us));
}

TEST(Sweeps, ExpiriesCountWholeSweeps) {
    const SweepPlan four = plan({10000});
    EXPECT_EQ(expiry_in_sweeps(10000, four), 4);
    EXPECT_EQ(expiry_in_sweeps(10001, four), 5);
    EXPECT_EQ(expiry_in_sweeps(0, four), 0);
    EXPECT_EQ(expiry_in_sweeps(10000, {}), 0);
    EXPECT_EQ(expiry_in_sweeps(UINT32_MAX, plan({100})), INAGG_MOST_SWEEPS - 1);
}

} // namespace
