// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/congestion.h>
#include <inagg/core/queue.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <set>

namespace {

constexpr __u32 most = 128;

// A rank that has always more to send.
struct Sender : testing::Test {
    inagg_congestion c{};
    __u32 done = 0; // blocks with results
    __u32 cap = 0;

    explicit Sender(__u8 reaction) { inagg_congestion_init(&c, reaction, most); }
    void fill() {
        while (inagg_congestion_has_room(&c))
            inagg_congestion_sent(&c);
    }
    // The next result, and what may go because of it.
    void result(bool marked = false) {
        inagg_congestion_result(&c, done++, marked, cap);
        fill();
    }
    void results(__u32 count, bool marked = false) {
        for (__u32 i = 0; i < count; i++)
            result(marked);
    }
    // One block at a time, whatever the window.
    void trickle(__u32 count) {
        for (__u32 i = 0; i < count; i++) {
            inagg_congestion_sent(&c);
            inagg_congestion_result(&c, done++, 0, cap);
        }
    }
    // A window of results, so many of them marked; returns the next window.
    __u32 round(__u32 marked = 0) {
        const __u32 rest = c.window - marked;
        results(marked, true);
        results(rest);
        return c.window;
    }
};

struct Window : Sender {
    Window() : Sender(INAGG_AIMD) {}
};

// PANAMA's Figure 5.
struct Figure5 : Sender {
    Figure5() : Sender(INAGG_DCTCP) { fill(); }
    // Until the window is `window`.
    void grow_to(__u32 window) {
        while (c.window < window)
            round();
        ASSERT_EQ(c.window, window);
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
    trickle(500);
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

TEST_F(Window, AnOldCutDoesNotHideNewMarks) {
    c.next = done = 1U << 31;
    fill();
    c.next = done = c.next + 100; // without a cut since block 0
    c.flying = 0;
    fill();
    result(true);
    EXPECT_EQ(c.window, 21U);
}

TEST(Reaction, IsTheAlgorithms) {
    EXPECT_EQ(inagg_reaction_of(INAGG_ATP), INAGG_AIMD);
    EXPECT_EQ(inagg_reaction_of(INAGG_PANAMA), INAGG_DCTCP);
    EXPECT_EQ(inagg_reaction_of(INAGG_SWITCHML), INAGG_UNCONTROLLED);
    EXPECT_EQ(inagg_reaction_of(INAGG_TRIO), INAGG_UNCONTROLLED);
}

// The paper's initialization, and alpha as it decays: alpha - alpha / 16, rounded up.
TEST_F(Figure5, DoublesUpToTheThresholdThenGrowsByOne) {
    EXPECT_EQ(c.window, 2U);
    EXPECT_EQ(c.threshold, 64U);
    EXPECT_EQ(c.alpha, 1024U);
    const struct {
        __u32 window, alpha;
    } expected[] = {{4, 960}, {8, 900}, {16, 844}, {32, 792}, {64, 743}, {65, 697}, {66, 654}};
    for (const auto &next : expected) {
        EXPECT_EQ(round(), next.window);
        EXPECT_EQ(c.alpha, next.alpha);
        EXPECT_EQ(c.flying, next.window);
    }
    EXPECT_EQ(c.cuts, 0U);
}

TEST_F(Figure5, ChangesOnlyOnceAWindow) {
    grow_to(8);
    results(7, true);
    EXPECT_EQ(c.window, 8U);
    EXPECT_EQ(c.alpha, 900U);
    result(true);
    EXPECT_LT(c.window, 8U);
}

// alpha is 743: a quarter is marked, so 743 - 46 + 16 = 713, and 64 * 713 / 2048 = 22 go.
TEST_F(Figure5, ShrinksByHalfOfAlpha) {
    grow_to(64);
    EXPECT_EQ(round(16), 42U);
    EXPECT_EQ(c.alpha, 713U);
    EXPECT_EQ(c.threshold, 42U);
    EXPECT_EQ(c.cuts, 1U);
    EXPECT_EQ(round(), 43U) << "above the threshold, which is the window now";
}

TEST_F(Figure5, HalvesAtMost) {
    grow_to(64);
    for (int i = 0; i < 100; i++) { // alpha goes to 1
        round(c.window);
        EXPECT_GE(c.window, 2U);
    }
    EXPECT_EQ(c.alpha, 1024U);
    EXPECT_EQ(c.window, 2U);
    c.window = 64;
    c.results = c.marked = 0;
    fill();
    EXPECT_EQ(round(64), 32U);
}

TEST_F(Figure5, AlphaGoesToNothing) {
    grow_to(64);
    for (int i = 0; i < 200; i++)
        round();
    EXPECT_EQ(c.alpha, 0U);
    EXPECT_EQ(c.window, most) << "the pool has no more";
    EXPECT_EQ(c.flying, most);
    EXPECT_EQ(round(most), most - 4) << "alpha is 1/16: a 32nd goes";
    EXPECT_EQ(c.alpha, 64U);
}

// Marks on one in eight: alpha finds it.
TEST_F(Figure5, AlphaIsTheFractionThatIsMarked) {
    c.window = 64;
    for (int i = 0; i < 200; i++) {
        c.window = 64;
        c.results = c.marked = 0;
        fill();
        round(8);
    }
    EXPECT_NEAR(c.alpha, 1024 / 8, 16);
}

TEST_F(Figure5, KeepsToTheCap) {
    grow_to(32);
    cap = 5;
    result();
    EXPECT_EQ(c.window, 5U);
    EXPECT_EQ(c.flying, 31U) << "what is in flight comes back";
    results(200);
    EXPECT_EQ(c.window, 5U);
    EXPECT_EQ(c.flying, 5U);
    EXPECT_EQ(c.cuts, 0U);
    cap = 1;
    results(100);
    EXPECT_EQ(c.window, 1U) << "smaller than the least";
    results(100, true);
    EXPECT_EQ(c.window, 1U);
    inagg_congestion_cut(&c, c.next);
    EXPECT_EQ(c.window, 1U) << "a loss does not open it";
    cap = 0;
    results(1);
    EXPECT_EQ(c.window, 2U);
}

TEST_F(Figure5, ReturnsToTheThresholdWhenTheCapIsGone) {
    grow_to(64);
    cap = 4;
    results(100);
    EXPECT_EQ(c.window, 4U);
    cap = 0;
    results(4 - c.results);
    EXPECT_EQ(c.window, 8U);
    EXPECT_EQ(round(), 16U);
}

TEST_F(Figure5, ALossHalvesOnceForAllThatWasInFlight) {
    grow_to(64);
    result();
    const __u32 sent = c.next;
    inagg_congestion_cut(&c, done);
    EXPECT_EQ(c.window, 32U);
    EXPECT_EQ(c.threshold, 32U);
    while (done < sent) {
        inagg_congestion_cut(&c, done);
        result();
    }
    EXPECT_EQ(c.cuts, 1U);
    EXPECT_EQ(c.window, 33U) << "a window of results later";
    inagg_congestion_cut(&c, done);
    EXPECT_EQ(c.window, 16U) << "one that was sent after it";
    EXPECT_EQ(c.cuts, 2U);
    EXPECT_EQ(c.alpha, 697U) << "a loss is no mark";
}

TEST_F(Figure5, WhatIsNotUsedDoesNotGrow) {
    grow_to(8);
    c.flying = 0;
    inagg_congestion_recount(&c);
    trickle(500);
    EXPECT_EQ(c.window, 8U) << "one block at a time says nothing about the network";
    fill();
    EXPECT_EQ(round(), 16U) << "and what is known of it is kept";
}

TEST_F(Figure5, APoolOfOneSlotIsTheWindow) {
    inagg_congestion_init(&c, INAGG_DCTCP, 1);
    fill();
    EXPECT_EQ(c.flying, 1U);
    results(10);
    results(10, true);
    inagg_congestion_cut(&c, c.next);
    EXPECT_EQ(c.window, 1U);
}

namespace {

// Flows that always have more to send share a link: one block a tick, the answer a round trip later. A block
// that finds `mark` others waiting is marked, one that finds `room` is lost, and what is missing is
// sent again when a later one's result comes.
class Link {
public:
    Link(std::size_t mark, std::size_t room) : mark_(mark), room_(room) {}

    // A flow's reaction; INAGG_UNCONTROLLED: a window of `most` blocks always.
    void add(__u8 reaction) {
        flows_.emplace_back();
        inagg_congestion_init(&flows_.back().c, reaction, most);
        if (reaction == INAGG_UNCONTROLLED)
            flows_.back().c.window = most;
    }
    void run(__u32 ticks) {
        for (Flow &flow : flows_)
            flow.served = 0;
        for (const __u64 end = now_ + ticks; now_ < end; now_++) {
            for (__u32 i = 0; i < flows_.size(); i++) { // not the same one first each time
                Flow &flow = flows_[(now_ + i) % flows_.size()];
                while (inagg_congestion_has_room(&flow.c)) {
                    enqueue(flow, flow.c.next);
                    inagg_congestion_sent(&flow.c);
                }
            }
            serve();
            answer();
        }
    }
    // Of what the link carried.
    double share(std::size_t flow) const { return flows_[flow].served / all(); }
    double all() const {
        double sum = 0;
        for (const Flow &flow : flows_)
            sum += flow.served;
        return sum;
    }
    std::size_t longest = 0; // queue

private:
    struct Flow {
        inagg_congestion c{};
        std::set<__u32> lost;
        double served = 0;
    };
    struct Block {
        Flow *flow;
        __u32 number;
        bool marked;
        __u64 due;
    };

    void enqueue(Flow &flow, __u32 number) {
        if (queue_.size() >= room_)
            flow.lost.insert(number);
        else
            queue_.push_back({&flow, number, queue_.size() >= mark_, 0});
        longest = std::max(longest, queue_.size());
    }
    void serve() {
        if (queue_.empty())
            return;
        flying_.push_back(queue_.front());
        flying_.back().due = now_ + round_trip;
        queue_.pop_front();
    }
    void answer() {
        while (!flying_.empty() && flying_.front().due <= now_) {
            const Block block = flying_.front();
            flying_.pop_front();
            block.flow->served++;
            if (block.flow->c.reaction == INAGG_UNCONTROLLED)
                block.flow->c.flying--;
            else
                inagg_congestion_result(&block.flow->c, block.number, block.marked, 0);
            const std::set<__u32> lost(block.flow->lost.begin(), block.flow->lost.lower_bound(block.number));
            for (const __u32 number : lost) {
                if (block.flow->c.reaction != INAGG_UNCONTROLLED)
                    inagg_congestion_cut(&block.flow->c, number);
                block.flow->lost.erase(number);
                enqueue(*block.flow, number);
            }
        }
    }

    static constexpr __u64 round_trip = 20;
    std::size_t mark_, room_;
    std::deque<Flow> flows_;
    std::deque<Block> queue_, flying_;
    __u64 now_ = 0;
};

constexpr std::size_t endless = 10000;

} // namespace

TEST(SharedLink, TwoJobsShareItAndKeepTheQueueShort) {
    Link link(10, endless);
    link.add(INAGG_DCTCP);
    link.run(5000);
    link.add(INAGG_DCTCP); // the second one comes when the first has all of it
    link.run(20000);
    link.longest = 0;
    link.run(20000);
    EXPECT_GT(link.all(), 0.99 * 20000);
    EXPECT_NEAR(link.share(0), 0.5, 0.1);
    EXPECT_LT(link.longest, 20U);
}

// AIMD stands for TCP's Reno.
TEST(SharedLink, WhereNothingIsMarkedLossSharesIt) {
    Link link(endless, 30);
    link.add(INAGG_DCTCP);
    link.add(INAGG_AIMD);
    link.run(20000);
    link.run(50000);
    EXPECT_GT(link.all(), 0.98 * 50000);
    EXPECT_NEAR(link.share(0), 0.5, 0.1);
}

TEST(SharedLink, WhoDoesNotReactHasItAlone) {
    Link link(endless, 30);
    link.add(INAGG_UNCONTROLLED);
    link.add(INAGG_AIMD);
    link.run(20000);
    link.run(50000);
    EXPECT_GT(link.share(0), 0.9);
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

TEST(VirtualQueue, KeepsAsMuchAsItsLinkDoes) {
    inagg_queue q = link_of_100_mbit(1000);
    q.longest_ns = 50'000'000;
    for (int i = 0; i < 100000; i++)
        inagg_queue_add(&q, 1250, 5'000'000'000);
    EXPECT_NEAR(static_cast<double>(inagg_queue_wait(&q, 5'000'000'000)), 50e6, 0.2e6);
}

TEST(VirtualQueue, WhatComesByANearlyFullLinkMakesALongQueue) {
    const inagg_queue link = link_of_100_mbit(1000);
    const auto wait_after = [&](unsigned gap_us) {
        inagg_queue arrivals = inagg_queue_of_arrivals(&link);
        __u64 now = 5'000'000'000;
        for (int i = 0; i < 1000; i++, now += gap_us * 1000)
            inagg_queue_add(&arrivals, 1250, now);
        return inagg_queue_wait(&arrivals, now);
    };
    EXPECT_GT(wait_after(100), 1'000'000U) << "as fast as the link";
    EXPECT_GT(wait_after(110), 1'000'000U) << "nine tenths of it";
    EXPECT_LT(wait_after(120), 1'000'000U);
}

TEST(VirtualQueue, KnowsTheRatesThatThereAre) {
    EXPECT_EQ(inagg_queue_unit(8000), 1'024'000'000U);
    EXPECT_EQ(inagg_queue_unit(1'000'000'000), 8192U);
    EXPECT_EQ(inagg_queue_unit(100'000'000'000), 81U);
}

TEST(Quota, LetsABurstAndThenTheRatePass) {
    inagg_queue q = link_of_100_mbit(1000);
    __u64 now = 5'000'000'000;
    int burst = 0;
    while (inagg_quota_admits(&q, 1250, now))
        burst++;
    EXPECT_EQ(burst, 11) << "1 ms of 100 us each, and the one that fills it";
    int passed = 0;
    for (int i = 0; i < 1000; i++) {
        now += 50'000; // twice the rate
        passed += inagg_quota_admits(&q, 1250, now);
    }
    EXPECT_NEAR(passed, 500, 2);
}

TEST(Quota, WhatIsRefusedCostsNothing) {
    inagg_queue q = link_of_100_mbit(1000);
    while (inagg_quota_admits(&q, 1250, 5'000'000'000))
        ;
    const __u64 empty = q.empty_ns;
    for (int i = 0; i < 1000; i++)
        EXPECT_FALSE(inagg_quota_admits(&q, 1250, 5'000'000'000));
    EXPECT_EQ(q.empty_ns, empty);
    EXPECT_TRUE(inagg_quota_admits(&q, 1250, empty));
}

TEST(Quota, IsShortWhenPartOfABurstIsUsed) {
    inagg_queue q = link_of_100_mbit(1000);
    const __u64 now = 5'000'000'000;
    int spent = 0;
    for (; !inagg_quota_is_short(&q, now); spent++)
        ASSERT_TRUE(inagg_quota_admits(&q, 1250, now));
    EXPECT_EQ(spent, 6) << "more than half of 1 ms, of 100 us each";
    EXPECT_TRUE(inagg_quota_admits(&q, 1250, now)) << "it is a warning";
    EXPECT_FALSE(inagg_quota_is_short(&q, q.empty_ns));
}
