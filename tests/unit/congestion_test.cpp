// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/congestion.h>
#include <inagg/core/queue.h>

#include <gtest/gtest.h>

namespace {

constexpr __u32 most = 128;

// A rank that has always more to send.
struct Window : testing::Test {
    inagg_congestion c{};
    __u32 done = 0; // blocks with results

    Window() { inagg_congestion_init(&c, most); }
    void fill() {
        while (inagg_congestion_has_room(&c))
            inagg_congestion_sent(&c);
    }
    // The next result, and what may go because of it.
    void result(bool marked = false) {
        inagg_congestion_result(&c, done++, marked);
        fill();
    }
    void results(__u32 count) {
        for (__u32 i = 0; i < count; i++)
            result();
    }
};

} // namespace

TEST_F(Window, StartsAsThePaperSaysAndGrowsWithEachResult) {
    EXPECT_EQ(c.window, 42U);
    fill();
    EXPECT_EQ(c.flying, 42U);
    results(10);
    EXPECT_EQ(c.window, 52U);
    results(200);
    EXPECT_EQ(c.window, most) << "the pool has no more";
    EXPECT_EQ(c.flying, most);
}

TEST_F(Window, IsHalvedOnceForAllThatWasInFlight) {
    fill();
    const __u32 sent = c.next;
    result(true);
    EXPECT_EQ(c.window, 21U);
    while (done < sent)
        result(true);
    EXPECT_EQ(c.window, 21U) << "the rest of that window tells nothing new";
    result(true);
    EXPECT_EQ(c.window, 10U);
    EXPECT_EQ(c.cuts, 2U);
}

TEST_F(Window, GrowsByOneAWindowAboveTheThreshold) {
    fill();
    result(true);
    while (c.flying > c.window)
        result();
    const __u32 before = c.window;
    results(before);
    EXPECT_EQ(c.window, before + 1);
    results(before + 1);
    EXPECT_EQ(c.window, before + 2);
}

TEST_F(Window, NeverClosesAltogether) {
    fill();
    for (int i = 0; i < 1000; i++)
        result(true);
    EXPECT_EQ(c.window, 2U);
    EXPECT_GE(c.flying, 1U);
    results(100);
    EXPECT_GT(c.window, 2U);
}

TEST_F(Window, ALossCountsAsAMark) {
    fill();
    inagg_congestion_cut(&c, 3);
    EXPECT_EQ(c.window, 21U);
    inagg_congestion_cut(&c, 4);
    EXPECT_EQ(c.window, 21U);
}

TEST_F(Window, WhatIsNotUsedDoesNotGrow) {
    for (int i = 0; i < 500; i++) {
        inagg_congestion_sent(&c);
        inagg_congestion_result(&c, done++, 0);
    }
    EXPECT_EQ(c.window, 42U) << "one block at a time says nothing about the network";
}

TEST_F(Window, BlockNumbersMayWrap) {
    c.next = c.recovered = done = ~0U - 20;
    fill();
    result(true);
    EXPECT_EQ(c.window, 21U);
    for (int i = 0; i < 41; i++)
        result(true);
    EXPECT_EQ(c.window, 21U);
    result(true);
    EXPECT_EQ(c.window, 10U);
}

namespace {

// 1,250 bytes take 100 us.
inagg_queue link_of_100_mbit(__u32 mark_us) {
    inagg_queue q{};
    q.unit_ns = inagg_queue_unit(100'000'000);
    q.mark_ns = mark_us * 1000;
    return q;
}

} // namespace

TEST(VirtualQueue, MarksWhatWaitsForLong) {
    inagg_queue q = link_of_100_mbit(1000);
    int unmarked = 0;
    while (!inagg_queue_add(&q, 1250, 5'000'000'000))
        unmarked++;
    EXPECT_NEAR(unmarked, 11, 1) << "a burst: the eleventh waits for a millisecond";
    EXPECT_EQ(q.marked, 1U);
}

TEST(VirtualQueue, EmptiesAtTheRateOfItsLink) {
    inagg_queue q = link_of_100_mbit(1000);
    __u64 now = 5'000'000'000;
    for (int i = 0; i < 100000; i++, now += 100'100)
        ASSERT_FALSE(inagg_queue_add(&q, 1250, now)) << "as fast as the link";
    int marked = 0;
    for (int i = 0; i < 1000; i++, now += 90'000)
        marked += inagg_queue_add(&q, 1250, now);
    EXPECT_NEAR(marked, 900, 10) << "a tenth faster: after 100 frames 1 ms is there";
    now += 8'000'000 + 1'000'000;
    EXPECT_FALSE(inagg_queue_add(&q, 1250, now));
}

TEST(VirtualQueue, ForgetsWhatNoLinkWouldHaveKept) {
    inagg_queue q = link_of_100_mbit(1000);
    for (int i = 0; i < 100000; i++)
        inagg_queue_add(&q, 1250, 5'000'000'000);
    EXPECT_FALSE(inagg_queue_add(&q, 1250, 5'000'000'000 + 8'200'000));
}

TEST(VirtualQueue, KnowsTheRatesThatThereAre) {
    EXPECT_EQ(inagg_queue_unit(8000), 1'024'000'000U);
    EXPECT_EQ(inagg_queue_unit(1'000'000'000), 8192U);
    EXPECT_EQ(inagg_queue_unit(100'000'000'000), 81U);
}
