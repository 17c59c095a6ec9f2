// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/worker.h>

#include <gtest/gtest.h>

namespace {

constexpr __u64 us = 1000, ms = 1000 * us;

struct Worker : testing::Test {
    inagg_worker w;
    inagg_wslot s;

    Worker() {
        inagg_worker_init(&w, 4, 0);
        inagg_wslot_init(&s, 1);
        w.limit = 100;
    }
    int open(__u64 now) { return inagg_worker_open(&w, &s, now); }
    int result(__u32 block, __u64 now, int repaired = 0) { return inagg_worker_result(&w, &s, block, repaired, now); }
    int wait(__u32 block, __u64 contributors, __u64 now, __u32 rank = 0) {
        return inagg_worker_wait(&w, &s, block, contributors, rank, now);
    }
    int timeout(__u64 now) { return inagg_worker_timeout(&w, &s, now); }
    // Sends the slot's block and gets its result `rtt` later.
    void round_trip(__u64 now, __u64 rtt) {
        ASSERT_EQ(open(now), INAGG_W_SEND);
        ASSERT_EQ(result(s.block, now + rtt), INAGG_W_ACCEPT);
    }
};

} // namespace

TEST_F(Worker, WindowFollowsTheLimit) {
    w.limit = 1;
    EXPECT_EQ(open(0), INAGG_W_NOTHING);
    w.limit = 2;
    EXPECT_EQ(open(0), INAGG_W_SEND);
    EXPECT_EQ(open(0), INAGG_W_NOTHING) << "one block of a slot in flight";
    EXPECT_EQ(result(1, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(s.block, 5u);
    EXPECT_EQ(open(2), INAGG_W_NOTHING);
    w.limit = 6;
    EXPECT_EQ(open(2), INAGG_W_SEND);
}

TEST_F(Worker, OnlyWhatIsInFlightHasAResult) {
    EXPECT_EQ(result(s.block, 1), INAGG_W_NOTHING) << "its turn, but not sent yet";
    EXPECT_EQ(s.block, 1u);
    EXPECT_EQ(open(2), INAGG_W_SEND);
    EXPECT_EQ(result(s.block, 3), INAGG_W_ACCEPT);
}

TEST_F(Worker, NothingMayGoBeforeALimitIsSet) {
    inagg_worker_init(&w, 4, 0);
    for (__u32 index = 0; index < 4; index++) {
        inagg_wslot_init(&s, index);
        EXPECT_EQ(open(0), INAGG_W_NOTHING);
    }
}

TEST_F(Worker, VersionsAlternateAndSlotsRepeat) {
    for (__u32 block = 0; block < 64; block++) {
        EXPECT_EQ(inagg_slot_index(&w, block), block % 4);
        EXPECT_EQ(inagg_pool_version(&w, block), block / 4 % 2);
    }
    EXPECT_NE(inagg_pool_version(&w, 0xffffffff), inagg_pool_version(&w, 3)) << "also across the wrap";
    inagg_worker_init(&w, 1, 0);
    EXPECT_EQ(inagg_pool_version(&w, 7), 1u);
    EXPECT_EQ(inagg_slot_index(&w, 7), 0u);
}

TEST_F(Worker, BlockNumbersWrap) {
    s.block = 0xfffffffd;
    w.limit = 0xfffffffd;
    EXPECT_EQ(open(0), INAGG_W_NOTHING);
    w.limit = 2;
    EXPECT_EQ(open(0), INAGG_W_SEND);
    EXPECT_EQ(result(0xfffffffd, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(s.block, 1u);
    EXPECT_TRUE(inagg_wslot_holds(&w, &s, 0xfffffffd));
    EXPECT_EQ(open(2), INAGG_W_SEND);
}

TEST_F(Worker, AcceptsEachResultOnce) {
    open(0);
    EXPECT_EQ(result(5, 1), INAGG_W_NOTHING);
    EXPECT_EQ(result(0xfffffffd, 1), INAGG_W_NOTHING);
    EXPECT_EQ(result(1, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(result(1, 2), INAGG_W_NOTHING);
    open(3);
    EXPECT_EQ(result(1, 4), INAGG_W_NOTHING);
}

TEST_F(Worker, Rfc6298) {
    EXPECT_EQ(w.rto_ns, INAGG_RTO_START_NS);
    round_trip(0, 8 * ms);
    EXPECT_EQ(w.srtt_ns, 8 * ms);
    EXPECT_EQ(w.rttvar_ns, 4 * ms);
    EXPECT_EQ(w.rto_ns, 24 * ms);
    round_trip(100 * ms, 16 * ms);
    EXPECT_EQ(w.rttvar_ns, 5 * ms); // 3/4 * 4 + 1/4 * |8 - 16|, with the old average
    EXPECT_EQ(w.srtt_ns, 9 * ms);   // 7/8 * 8 + 1/8 * 16
    EXPECT_EQ(w.rto_ns, 29 * ms);
    round_trip(200 * ms, 1 * ms);
    EXPECT_EQ(w.rttvar_ns, 5750 * us);
    EXPECT_EQ(w.srtt_ns, 8 * ms);
}

// What varies once a window must not be forgotten within one.
TEST_F(Worker, VarianceFallsOverTwoWindowsNotAFewPackets) {
    inagg_worker_init(&w, 64, 0);
    inagg_worker_sample(&w, 8 * ms); // variance 4 ms
    for (int i = 0; i < 64; i++)
        inagg_worker_sample(&w, 8 * ms);
    EXPECT_GT(w.rttvar_ns, 2400 * us) << "e^-1/2 of it after one window";
    EXPECT_LT(w.rttvar_ns, 2500 * us);
    inagg_worker_sample(&w, 8 * ms + w.rttvar_ns + 4 * ms);
    EXPECT_GT(w.rttvar_ns, 3400 * us) << "but rises with each";
    EXPECT_EQ(w.rto_ns, w.srtt_ns + 4 * w.rttvar_ns);
}

// One late rank must not make the time-outs of all as long as it was late.
TEST_F(Worker, VarianceCountsUpToTheAverage) {
    round_trip(0, 2 * ms);
    for (int i = 1; i <= 4; i++)
        round_trip(i * 1000 * ms, 90 * ms);
    for (int i = 5; i <= 20; i++)
        round_trip(i * 1000 * ms, 2 * ms);
    EXPECT_GT(w.rttvar_ns, w.srtt_ns);
    EXPECT_EQ(w.rto_ns, 5 * w.srtt_ns);
}

// A path that takes longer than the first RTO: Karn's rule allows no sample until the RTO is long enough.
TEST_F(Worker, AWindowThatTimesOutTogetherDoublesTheRtoOnce) {
    inagg_wslot other;
    inagg_wslot_init(&other, 2);
    open(0);
    inagg_worker_open(&w, &other, 0);
    EXPECT_EQ(timeout(INAGG_RTO_START_NS), INAGG_W_RESEND);
    EXPECT_EQ(inagg_worker_timeout(&w, &other, INAGG_RTO_START_NS + us), INAGG_W_RESEND);
    EXPECT_EQ(w.doublings, 1u);
    EXPECT_EQ(result(1, 150 * ms), INAGG_W_ACCEPT);
    open(150 * ms);
    EXPECT_EQ(s.due_ns, 150 * ms + 2 * INAGG_RTO_START_NS) << "what follows waits longer";
    EXPECT_EQ(inagg_worker_timeout(&w, &other, other.due_ns), INAGG_W_RESEND);
    EXPECT_EQ(w.doublings, 2u) << "sent since";
    EXPECT_EQ(result(5, 300 * ms), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 150 * ms);
    EXPECT_EQ(w.doublings, 0u) << "a sample ends it";
}

TEST_F(Worker, OnlyTimeOutsOfWhatMayBeLostDoubleTheRtoOfAll) {
    open(0);
    wait(1, 1, ms); // ours are in: the others are late
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_REQUEST);
    EXPECT_EQ(s.tries, 1);
    EXPECT_EQ(w.doublings, 0u);
}

TEST_F(Worker, RtoHasAFloorAndACeiling) {
    round_trip(0, 10 * us);
    EXPECT_EQ(w.rto_ns, INAGG_RTO_FLOOR_NS);
    for (int i = 0; i < 20; i++)
        round_trip((i + 1) * 10000 * ms, 400 * ms);
    EXPECT_LE(w.rto_ns, INAGG_RTO_CEILING_NS);
    inagg_worker_init(&w, 4, 3 * ms);
    inagg_worker_sample(&w, 1);
    EXPECT_EQ(w.rto_ns, 3 * ms);
    inagg_worker_sample(&w, 3600000 * ms);
    EXPECT_EQ(w.rto_ns, INAGG_RTO_CEILING_NS);
}

TEST_F(Worker, AWindowFromRestExpectsTheSlowestRoundTripOfTheLastOne) {
    w.limit = 10000;
    inagg_worker_restart(&w);
    EXPECT_EQ(w.rto_ns, INAGG_RTO_START_NS) << "without a sample";
    for (int i = 0; i < 20; i++)
        round_trip(i * 100 * ms, 20 * ms); // in the middle of a tensor
    const __u64 slow = w.srtt_ns;
    for (int i = 20; i < 60; i++)
        round_trip(i * 100 * ms, 2 * ms); // at its end
    EXPECT_LT(w.srtt_ns, 3 * ms);
    inagg_worker_restart(&w);
    EXPECT_GE(w.srtt_ns, slow);
    EXPECT_GE(w.rto_ns, slow);
    for (int i = 60; i < 100; i++)
        round_trip(i * 100 * ms, 2 * ms);
    inagg_worker_restart(&w);
    round_trip(100 * 100 * ms, 2 * ms);
    for (int i = 101; i < 140; i++)
        round_trip(i * 100 * ms, 2 * ms);
    const __u64 last = w.slowest_ns;
    inagg_worker_restart(&w);
    EXPECT_EQ(w.srtt_ns, last) << "what is longer ago is forgotten";
}

TEST_F(Worker, TimerBacksOffToTheCeiling) {
    open(0);
    __u64 now = 0, wait = INAGG_RTO_START_NS;
    for (int i = 0; i < 300; i++) {
        EXPECT_EQ(timeout(s.due_ns - 1), INAGG_W_NOTHING);
        EXPECT_EQ(s.due_ns, now + wait);
        now = s.due_ns;
        ASSERT_EQ(timeout(now), i < INAGG_ASK_ALL_AFTER ? INAGG_W_RESEND : INAGG_W_RESEND_ASK_ALL);
        wait = std::min<__u64>(wait * 2, INAGG_RTO_CEILING_NS);
    }
    EXPECT_EQ(s.tries, 252);
}

TEST_F(Worker, KarnTakesNoSampleOfWhatWasSentTwice) {
    open(0);
    timeout(INAGG_RTO_START_NS);
    EXPECT_EQ(result(1, 121 * ms), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 0u);
    open(130 * ms);
    wait(5, 2, 131 * ms); // the switch lacks ours
    EXPECT_EQ(result(5, 132 * ms), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 0u);
    round_trip(140 * ms, ms);
    EXPECT_EQ(w.srtt_ns, ms);
}

// Another rank's packet was lost, and its timer ran longer than ours would have.
TEST_F(Worker, TheTimeOfARepairedBlockIsNoSample) {
    round_trip(0, ms);
    const __u64 rto = w.rto_ns;
    open(10 * ms);
    EXPECT_EQ(result(5, 90 * ms, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, ms);
    EXPECT_EQ(w.rto_ns, rto);
}

// Where a switch has lost its floors all blocks are, and without samples no back-off would ever end.
TEST_F(Worker, ARecoveredBlockIsASampleThough) {
    open(0);
    EXPECT_EQ(timeout(INAGG_RTO_START_NS), INAGG_W_RESEND);
    EXPECT_EQ(w.doublings, 1u);
    EXPECT_EQ(inagg_worker_recovers(&w, &s, 1, 7, 101 * ms), INAGG_W_RESEND);
    EXPECT_EQ(result(1, 103 * ms, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 2 * ms);
    EXPECT_EQ(w.doublings, 0u);
}

// What is late is another rank, not the path: the RTO need not grow, even if no block goes by without a loss.
TEST_F(Worker, AnAnswerToTheFirstRepeatWithinAnRtoEndsTheDoubling) {
    round_trip(0, ms);
    open(10 * ms);
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_RESEND);
    EXPECT_EQ(w.doublings, 1u);
    EXPECT_EQ(wait(5, 1, s.sent_ns + ms), INAGG_W_NOTHING);
    EXPECT_EQ(w.doublings, 0u);
    open(20 * ms);
    EXPECT_EQ(result(5, 20 * ms), INAGG_W_ACCEPT);
    open(20 * ms);
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_RESEND);
    EXPECT_EQ(wait(9, 1, s.sent_ns + w.rto_ns + 1), INAGG_W_NOTHING);
    EXPECT_EQ(w.doublings, 1u) << "the path may be longer than the RTO";
}

// A first window whose last result takes longer than the RTO that its first one teaches.
TEST_F(Worker, NothingTimesOutWhileResultsCome) {
    inagg_wslot first, last;
    inagg_wslot_init(&first, 0);
    inagg_wslot_init(&last, 2);
    for (inagg_wslot *slot : {&first, &s, &last})
        ASSERT_EQ(inagg_worker_open(&w, slot, 0), INAGG_W_SEND);
    ASSERT_EQ(inagg_worker_result(&w, &first, 0, 0, 50 * us), INAGG_W_ACCEPT);
    ASSERT_EQ(result(1, 99 * ms), INAGG_W_ACCEPT);
    const __u64 rto = w.rto_ns, silent = 99 * ms + rto;
    EXPECT_EQ(inagg_worker_timeout(&w, &last, INAGG_RTO_START_NS), INAGG_W_NOTHING);
    EXPECT_EQ(last.due_ns, silent) << "an RTO after the last result";
    EXPECT_EQ(w.doublings, 0u);
    EXPECT_EQ(inagg_worker_timeout(&w, &last, silent - 1), INAGG_W_NOTHING);
    EXPECT_EQ(inagg_worker_timeout(&w, &last, silent), INAGG_W_RESEND);
}

// The result was lost: no later one shows that as long as they come faster than two round trips.
TEST_F(Worker, WhoIsInAsksForTheResultAlsoWhileOthersCome) {
    inagg_wslot other;
    inagg_wslot_init(&other, 2);
    open(0);
    EXPECT_EQ(timeout(INAGG_RTO_START_NS), INAGG_W_RESEND);
    EXPECT_EQ(wait(1, 1, 101 * ms), INAGG_W_NOTHING);
    inagg_worker_open(&w, &other, 102 * ms);
    ASSERT_EQ(inagg_worker_result(&w, &other, 2, 0, s.due_ns - 1), INAGG_W_ACCEPT);
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_REQUEST);
}

TEST_F(Worker, WhatWasRefusedComesAgainAlsoWhileResultsCome) {
    inagg_wslot other;
    inagg_wslot_init(&other, 2);
    open(0);
    inagg_worker_open(&w, &other, 0);
    inagg_worker_refused(&w, &s, 1, 2);
    ASSERT_EQ(inagg_worker_result(&w, &other, 2, 0, s.due_ns - 1), INAGG_W_ACCEPT);
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_RESEND);
}

TEST_F(Worker, AcknowledgedElementsAreAskedForNotSentAgain) {
    open(0);
    EXPECT_EQ(timeout(INAGG_RTO_START_NS), INAGG_W_RESEND);
    EXPECT_EQ(wait(1, 1, 101 * ms), INAGG_W_NOTHING);
    EXPECT_TRUE(s.acked);
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_REQUEST);
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_REQUEST_ALL);
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_RESEND_ASK_ALL) << "every fourth time, for switches that cannot answer requests";
    wait(1, 1, s.sent_ns + ms);
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_REQUEST_ALL);
    EXPECT_EQ(wait(1, 2, s.due_ns), INAGG_W_RESEND_ASK_ALL) << "the switch lost them";
    EXPECT_FALSE(s.acked);
    EXPECT_FALSE(s.forgotten) << "asked once";
}

TEST_F(Worker, SendsAgainEveryFourthTimeHoweverLongItWaits) {
    open(0);
    timeout(INAGG_RTO_START_NS);
    wait(1, 1, 101 * ms);
    int resent = 0;
    for (int i = 0; i < 1000; i++)
        resent += timeout(s.due_ns) == INAGG_W_RESEND_ASK_ALL && wait(1, 1, s.sent_ns + ms) == INAGG_W_NOTHING;
    EXPECT_NEAR(resent, 250, 2);
}

// One of the ranks that wait asks for all; its answer, heard by everyone, makes the others wait on.
TEST_F(Worker, AWaitPutsOffTheNextRequestLongerForHigherRanks) {
    inagg_wslot slots[3];
    const __u32 ranks[] = {0, 1, 63};
    for (int i = 0; i < 3; i++) {
        inagg_wslot_init(&slots[i], 1);
        inagg_worker_open(&w, &slots[i], 0);
        slots[i].tries = 3;
        slots[i].due_ns = 11 * ms;
        inagg_worker_wait(&w, &slots[i], 1, ~inagg_rank_bit(2), ranks[i], 10 * ms);
    }
    EXPECT_EQ(slots[0].due_ns, 10 * ms + inagg_wslot_backoff(&w, &slots[0], 3));
    EXPECT_GT(slots[1].due_ns, slots[0].due_ns + w.floor_ns / 4);
    EXPECT_GT(slots[2].due_ns, slots[1].due_ns);
    EXPECT_LT(slots[2].due_ns, 10 * ms + 2 * inagg_wslot_backoff(&w, &slots[0], 3));
}

TEST_F(Worker, AnotherRanksRequestCountsAsOurTryWhenOursWasNear) {
    open(0);
    s.tries = 3;
    wait(1, 1, 10 * ms);
    EXPECT_EQ(s.tries, 3) << "the answer to our elements";
    wait(1, 1, 11 * ms);
    EXPECT_EQ(s.tries, 3) << "long before our turn";
    wait(1, 1, s.due_ns - ms);
    EXPECT_EQ(s.tries, 4);
    s.tries = 255;
    wait(1, 1, s.due_ns);
    EXPECT_EQ(s.tries, 252);
}

TEST_F(Worker, AWaitThatCrossedOurElementsIsIgnored) {
    open(10 * ms);
    EXPECT_EQ(wait(1, 2, 10 * ms + w.floor_ns / 4 - 1), INAGG_W_NOTHING);
    EXPECT_EQ(wait(1, 2, 10 * ms + w.floor_ns / 4), INAGG_W_RESEND);
    EXPECT_EQ(s.sent_ns, 10 * ms + w.floor_ns / 4);
}

TEST_F(Worker, ElementsThatTheSwitchWantsAgainDoNotBackOff) {
    open(0);
    for (int i = 0; i < 4; i++) {
        timeout(s.due_ns);
        wait(1, 3, s.sent_ns + ms);
    }
    const __u64 now = s.due_ns - 1;
    EXPECT_EQ(wait(1, 2, now), INAGG_W_RESEND_ASK_ALL) << "it had them";
    EXPECT_EQ(s.due_ns, now + w.rto_ns);
}

TEST_F(Worker, TheAnswerToTheOnlyRepeatBoundsTheRoundTrip) {
    round_trip(0, 80 * ms); // others lost a result
    const auto answered = [this](int repeats, __u32 more = 0) {
        w.limit = s.block + 1 + more;
        open(s.due_ns);
        for (int i = 0; i < repeats; i++)
            timeout(s.due_ns);
        const __u64 now = s.sent_ns + 100 * us;
        wait(s.block, 3, now);
        result(s.block, now + 300 * ms, 1);
    };
    answered(2);
    EXPECT_EQ(w.srtt_ns, 80 * ms) << "or it is that to the one before";
    answered(1, INAGG_FEW_BLOCKS);
    EXPECT_EQ(w.srtt_ns, 80 * ms) << "of a window: a rank may be late";
    EXPECT_EQ(w.doublings, 0u);
    answered(1);
    EXPECT_GE(w.srtt_ns, INAGG_ASKS_A_ROUND * 100 * us);
    EXPECT_LT(w.srtt_ns, INAGG_ASKS_A_ROUND * 103 * us) << "in units of 1024 ns";
    EXPECT_LT(w.rto_ns, 10 * ms);
}

TEST_F(Worker, OnALongPathAWaitCrossesForARoundTrip) {
    round_trip(0, 10 * ms);
    open(100 * ms);
    EXPECT_EQ(wait(5, 2, 105 * ms), INAGG_W_NOTHING);
    EXPECT_EQ(wait(5, 2, 110 * ms), INAGG_W_RESEND);
}

TEST_F(Worker, HolderRestoresWhatOthersWaitFor) {
    round_trip(0, ms);
    EXPECT_EQ(wait(1, 2, 2 * ms), INAGG_W_RESTORE) << "idle";
    EXPECT_EQ(wait(1, 0, 2 * ms), INAGG_W_NOTHING) << "nobody waits";
    EXPECT_EQ(wait(1, 3, 2 * ms), INAGG_W_RESTORE) << "a late copy of our contribution is in";
    EXPECT_EQ(wait(5, 2, 2 * ms), INAGG_W_NOTHING) << "not sent yet";
    EXPECT_EQ(wait(9, 2, 2 * ms), INAGG_W_NOTHING);
    open(3 * ms);
    EXPECT_EQ(wait(1, 2, 9 * ms), INAGG_W_RESTORE) << "the next block is in flight";
    EXPECT_EQ(result(5, 10 * ms), INAGG_W_ACCEPT);
    EXPECT_EQ(wait(1, 2, 11 * ms), INAGG_W_NOTHING) << "overwritten by now";
}

// Loss detection: `s` is slot 1 and sends block 5 at 100 ms; the round trip is 4 ms.
class LossDetection : public Worker {
protected:
    void SetUp() override {
        round_trip(0, 4 * ms);
        open(100 * ms);
    }
    // Block 4 * round + 2, sent once at `sent`, has its result at `now`.
    void deliver(__u64 sent, __u64 now, __u32 round = 1) {
        inagg_wslot other;
        inagg_wslot_init(&other, 2);
        other.block += 4 * round;
        ASSERT_EQ(inagg_worker_open(&w, &other, sent), INAGG_W_SEND);
        ASSERT_EQ(inagg_worker_result(&w, &other, other.block, 0, now), INAGG_W_ACCEPT);
        w.srtt_ns = 4 * ms; // as before, whatever that took
    }
    bool overtaken(__u64 now) { return inagg_worker_overtaken(&w, &s, now); }
};

TEST_F(LossDetection, WaitsARoundTripAfterTheEvidence) {
    const __u64 rto = s.due_ns;
    deliver(100 * ms, 104 * ms);
    EXPECT_FALSE(overtaken(104 * ms)) << "sent together";
    EXPECT_EQ(s.due_ns, rto);
    deliver(101 * ms, 105 * ms);
    EXPECT_FALSE(overtaken(105 * ms));
    EXPECT_EQ(s.due_ns, 108 * ms) << "a round trip of 4 ms and once more";
    deliver(102 * ms, 107 * ms);
    EXPECT_FALSE(overtaken(107 * ms)) << "no later evidence puts it off";
    EXPECT_EQ(timeout(108 * ms - 1), INAGG_W_NOTHING);
    EXPECT_TRUE(overtaken(108 * ms));
    EXPECT_EQ(timeout(108 * ms), INAGG_W_RESEND);
    EXPECT_EQ(w.doublings, 0u) << "no time-out";
    EXPECT_EQ(s.tries, 0);
    EXPECT_EQ(s.due_ns, 108 * ms + w.rto_ns);
}

TEST_F(LossDetection, WhatWasSentAgainMayBeLostLikeTheFirst) {
    deliver(105 * ms, 109 * ms);
    EXPECT_TRUE(overtaken(109 * ms));
    EXPECT_EQ(timeout(109 * ms), INAGG_W_RESEND);
    EXPECT_FALSE(overtaken(111 * ms)) << "once a transmission";
    deliver(114 * ms, 118 * ms);
    EXPECT_TRUE(overtaken(118 * ms));
    EXPECT_EQ(timeout(118 * ms), INAGG_W_RESEND);
}

TEST_F(LossDetection, AnEarlierBlockProvesNothing) {
    deliver(150 * ms, 154 * ms,
            0); // block 2, sent late: its rank fell behind, and may not have sent ours yet
    EXPECT_FALSE(overtaken(190 * ms));
    deliver(150 * ms, 154 * ms, 1); // block 6
    EXPECT_TRUE(overtaken(154 * ms));
}

TEST_F(LossDetection, TheResultOfWhatWasSentTwiceProvesNothing) {
    inagg_wslot other;
    inagg_wslot_init(&other, 2);
    other.block += 4;
    inagg_worker_open(&w, &other, 102 * ms);
    ASSERT_EQ(inagg_worker_timeout(&w, &other, other.due_ns), INAGG_W_RESEND);
    inagg_worker_result(&w, &other, other.block, 0, 290 * ms);
    EXPECT_FALSE(overtaken(300 * ms));
}

TEST_F(LossDetection, AsksSoonForALateResultWhileOthersCome) {
    for (int i = 0; i < 3; i++)
        timeout(s.due_ns); // a straggler: everybody backs off
    wait(5, 1, 500 * ms);
    const __u64 backed_off = s.due_ns;
    EXPECT_FALSE(overtaken(501 * ms)) << "nothing comes";
    EXPECT_EQ(s.due_ns, backed_off);
    deliver(498 * ms, 502 * ms);
    EXPECT_FALSE(overtaken(502 * ms));
    EXPECT_EQ(s.due_ns, 510 * ms) << "two round trips after what came last";
    const int tries = s.tries;
    EXPECT_EQ(timeout(510 * ms), INAGG_W_RESEND) << "the answer needs room";
    EXPECT_EQ(s.tries, tries) << "no time-out";
    wait(5, 1, 514 * ms);
    EXPECT_FALSE(overtaken(515 * ms)) << "nothing came since";
    EXPECT_GT(s.due_ns, 530 * ms);
}

// Others wait for a block of the stream: this rank may lack the result before it.
struct Awaited : LossDetection {
    inagg_wslot next;

    void SetUp() override {
        LossDetection::SetUp(); // block 5 is under way, since 100 ms
        for (int i = 0; i < 3; i++) {
            timeout(s.due_ns);
            wait(5, 1, s.due_ns - 1);
        }
        wait(5, 1, 600 * ms);
        inagg_wslot_init(&next, 2);
        next.block = 6;
    }
    void heard_of(__u32 block, __u64 contributors, __u64 now) {
        EXPECT_EQ(inagg_worker_wait(&w, &next, block, contributors, 0, now), INAGG_W_NOTHING);
    }
};

TEST_F(Awaited, AsksAtOnce) {
    EXPECT_FALSE(overtaken(601 * ms));
    heard_of(6, 2, 610 * ms);
    const int tries = s.tries;
    EXPECT_TRUE(overtaken(610 * ms));
    EXPECT_FALSE(s.overtaken) << "which would tell the congestion control of a loss";
    EXPECT_EQ(timeout(610 * ms), INAGG_W_REQUEST) << "the switch had the elements, and need not tell everybody";
    EXPECT_EQ(s.tries, tries) << "no time-out";
}

TEST_F(Awaited, SendsAgainWhatNobodyHasAcknowledged) {
    s.acked = 0;
    heard_of(6, 2, 610 * ms);
    EXPECT_TRUE(overtaken(610 * ms));
    EXPECT_EQ(timeout(610 * ms), INAGG_W_RESEND_ASK_ALL);
}

TEST_F(Awaited, AsksOnceForEachTimeOut) {
    heard_of(6, 2, 610 * ms);
    overtaken(610 * ms);
    timeout(610 * ms);
    wait(5, 1, 611 * ms);
    heard_of(6, 2, 620 * ms);
    EXPECT_FALSE(overtaken(620 * ms)) << "or nobody would ever be asked but the switch";
    EXPECT_EQ(timeout(s.due_ns), INAGG_W_REQUEST_ALL);
    const __u64 asked = static_cast<__u64>(s.asked) << 10;
    heard_of(6, 2, asked + 2 * ms);
    EXPECT_FALSE(overtaken(asked + 2 * ms)) << "before our question was there";
    EXPECT_FALSE(overtaken(asked + 20 * ms)) << "nobody has said so since";
    heard_of(6, 2, asked + 20 * ms);
    EXPECT_TRUE(overtaken(asked + 20 * ms));
}

TEST_F(Awaited, OnlyForALaterBlockThatHasNotBeenSent) {
    heard_of(6, 0, 610 * ms);
    EXPECT_FALSE(overtaken(610 * ms)) << "nobody waits";
    heard_of(10, 2, 610 * ms);
    EXPECT_FALSE(overtaken(610 * ms)) << "not the block that is next";
    inagg_worker_open(&w, &next, 600 * ms);
    inagg_worker_wait(&w, &next, 6, 3, 0, 610 * ms);
    EXPECT_FALSE(overtaken(610 * ms)) << "it has been sent";
    inagg_wslot_init(&next, 0);
    next.block = 4;
    heard_of(4, 2, 610 * ms);
    EXPECT_FALSE(overtaken(610 * ms)) << "it is before ours";
}

TEST_F(LossDetection, AfterAResendTheOthersSendAgainToo) {
    deliver(105 * ms, 109 * ms);
    ASSERT_TRUE(overtaken(109 * ms));
    EXPECT_EQ(timeout(109 * ms), INAGG_W_RESEND);
    wait(5, 1, 113 * ms);
    EXPECT_EQ(s.due_ns, 121 * ms) << "the result is due in two round trips";
    EXPECT_FALSE(overtaken(118 * ms));
    EXPECT_EQ(timeout(121 * ms), INAGG_W_REQUEST);
    EXPECT_EQ(w.doublings, 0u);
}

TEST_F(Worker, LossDetectionNeedsASampleAndABlockInFlight) {
    open(0);
    EXPECT_FALSE(inagg_worker_overtaken(&w, &s, 54 * ms)) << "no round trip known";
    result(1, 4 * ms);
    EXPECT_FALSE(inagg_worker_overtaken(&w, &s, 54 * ms)) << "idle";
}

TEST_F(Worker, RebootSendsAgainWithoutBackOff) {
    open(0);
    timeout(INAGG_RTO_START_NS);
    timeout(s.due_ns);
    wait(1, 1, 410 * ms);
    EXPECT_EQ(w.doublings, 2u);
    inagg_worker_sample(&w, 10 * ms); // of another slot
    inagg_worker_rebooted(&s);
    EXPECT_FALSE(s.acked);
    EXPECT_EQ(timeout(420 * ms), INAGG_W_RESEND_ASK_ALL);
    EXPECT_EQ(s.due_ns, 420 * ms + w.rto_ns);
    result(1, 421 * ms);
    inagg_worker_rebooted(&s);
    EXPECT_EQ(s.state, INAGG_WSLOT_IDLE);
    EXPECT_EQ(timeout(1000 * ms), INAGG_W_NOTHING);
}

// Another CPU may have sent the block after this one looked at the clock.
TEST_F(Worker, AResultFromBeforeItsBlockIsNoSample) {
    round_trip(100 * ms, 2 * ms);
    const __u64 rto = w.rto_ns;
    ASSERT_EQ(open(200 * ms), INAGG_W_SEND);
    ASSERT_EQ(result(s.block, 200 * ms - 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 2 * ms);
    EXPECT_EQ(w.rto_ns, rto);
}

TEST(Boots, ALatePacketOfThePreviousIncarnationIsNoRestart) {
    inagg_boots boots{7, 0, 0, 0};
    EXPECT_FALSE(inagg_boot_heard(&boots, 7, 1000 * ms));
    EXPECT_TRUE(inagg_boot_heard(&boots, 3, 1000 * ms));
    EXPECT_FALSE(inagg_boot_heard(&boots, 7, 2000 * ms)) << "late";
    EXPECT_FALSE(inagg_boot_heard(&boots, 3, 2000 * ms));
    EXPECT_TRUE(inagg_boot_heard(&boots, 9, 2000 * ms));
}

TEST(Boots, OneForgedPacketInAWhileIsBelieved) {
    inagg_boots boots{7, 0, 0, 0};
    int heard = 0;
    for (__u64 now = 1000 * ms; now < 2000 * ms; now += ms)
        heard += inagg_boot_heard(&boots, static_cast<__u16>(now / ms % 3 + 1), now);
    EXPECT_LE(heard, 100);
    EXPECT_GT(heard, 50);
}

TEST_F(Worker, IdleSlotsHaveNoTimer) { EXPECT_EQ(timeout(1000 * ms), INAGG_W_NOTHING); }

// ---- trio ----

TEST_F(Worker, AResultThatIsHereIsSkipped) {
    inagg_worker_skip(&w, &s);
    EXPECT_EQ(s.block, 5u);
    EXPECT_EQ(s.state, INAGG_WSLOT_IDLE);
    EXPECT_EQ(open(0), INAGG_W_SEND);
    EXPECT_EQ(w.srtt_ns, 0u) << "no sample";
    s.block = ~0U - 2;
    inagg_worker_skip(&w, &s);
    EXPECT_EQ(s.block, 1u);
}

TEST_F(Worker, ARecoveredBlockIsSentAgainOnceAnEpoch) {
    EXPECT_EQ(inagg_worker_recovers(&w, &s, 1, 9, 0), INAGG_W_NOTHING) << "not sent yet";
    open(0);
    EXPECT_EQ(inagg_worker_recovers(&w, &s, 5, 9, 1), INAGG_W_NOTHING) << "another block";
    EXPECT_EQ(inagg_worker_recovers(&w, &s, 1, 0, 1), INAGG_W_NOTHING) << "no epoch";
    EXPECT_EQ(inagg_worker_recovers(&w, &s, 1, 9, 1), INAGG_W_RESEND) << "at once, nothing crosses it";
    EXPECT_EQ(s.epoch, 9);
    EXPECT_EQ(inagg_worker_recovers(&w, &s, 1, 9, 2), INAGG_W_NOTHING) << "heard";
    EXPECT_EQ(inagg_worker_recovers(&w, &s, 1, 8, 2), INAGG_W_NOTHING) << "late";
    EXPECT_EQ(inagg_worker_recovers(&w, &s, 1, 10, 2), INAGG_W_RESEND);
    EXPECT_EQ(s.tries, 0) << "no time-out";
    EXPECT_EQ(result(1, 3), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 1u) << "the epoch tells what was answered, so Karn's rule has no say";
    open(4);
    EXPECT_EQ(s.epoch, 0) << "of the next block";
}

TEST_F(Worker, SendsFloatsFromWhenItIsAskedTo) {
    const auto wait = [&](__u64 contributors, int raw, __u64 at) {
        return inagg_worker_wait_raw(&w, &s, 1, contributors, 0, raw, at);
    };
    open(0);
    EXPECT_EQ(wait(1, 0, 1), INAGG_W_NOTHING);
    EXPECT_TRUE(s.acked);
    EXPECT_EQ(wait(0, 1, 2), INAGG_W_RESEND) << "at once, nothing crosses it, and nobody need be asked";
    EXPECT_TRUE(s.raw);
    EXPECT_FALSE(s.acked);
    EXPECT_EQ(wait(0, 1, 3), INAGG_W_NOTHING) << "crossed by the floats";
    EXPECT_EQ(wait(1, 0, 20 * ms), INAGG_W_NOTHING) << "from before";
    EXPECT_FALSE(s.acked);
    EXPECT_EQ(wait(0, 1, 20 * ms), INAGG_W_RESEND) << "they are lost";
    EXPECT_EQ(wait(1, 1, 21 * ms), INAGG_W_NOTHING);
    EXPECT_TRUE(s.acked);
    EXPECT_EQ(inagg_worker_result(&w, &s, 1, 1, 22 * ms), INAGG_W_ACCEPT);
    EXPECT_EQ(wait(0, 1, 23 * ms), INAGG_W_NOTHING) << "a late copy";
    open(24 * ms);
    EXPECT_FALSE(s.raw) << "the next block";
}

TEST_F(Worker, EpochsWrapAndNoneIsTheEarliest) {
    EXPECT_TRUE(inagg_epoch_before(0, 1));
    EXPECT_TRUE(inagg_epoch_before(0, 0xffff));
    EXPECT_FALSE(inagg_epoch_before(1, 0));
    EXPECT_FALSE(inagg_epoch_before(0, 0));
    EXPECT_TRUE(inagg_epoch_before(0xffff, 1));
    EXPECT_FALSE(inagg_epoch_before(1, 0xffff));
    EXPECT_FALSE(inagg_epoch_before(7, 7));
}

TEST_F(Worker, BelievesNoResultOfAnEpochThatItGaveUp) {
    EXPECT_TRUE(inagg_wslot_believes(&s, 1, 0)) << "idle: has promised nothing";
    open(0);
    EXPECT_TRUE(inagg_wslot_believes(&s, 1, 0));
    EXPECT_TRUE(inagg_wslot_believes(&s, 1, 4));
    inagg_worker_recovers(&w, &s, 1, 9, 1);
    EXPECT_FALSE(inagg_wslot_believes(&s, 1, 0));
    EXPECT_FALSE(inagg_wslot_believes(&s, 1, 8));
    EXPECT_TRUE(inagg_wslot_believes(&s, 1, 9));
    EXPECT_TRUE(inagg_wslot_believes(&s, 1, 10));
    EXPECT_TRUE(inagg_wslot_believes(&s, 5, 0)) << "a block ahead";
    result(1, 2);
    EXPECT_TRUE(inagg_wslot_believes(&s, 5, 0));
}

// A stream of 16 slots, of which the switch refuses some.
struct CappedWorker : testing::Test {
    inagg_worker w;
    inagg_wslot slots[16];
    __u64 now = 1000 * ms;

    CappedWorker() {
        inagg_worker_init(&w, 16, 0);
        w.limit = 1000;
        w.progress_ns = now;
        for (__u32 i = 0; i < 16; i++)
            inagg_wslot_init(&slots[i], i);
    }
    inagg_wslot &slot(__u32 block) { return slots[block % 16]; }
    bool open(__u32 block) { return inagg_worker_open(&w, &slot(block), now) == INAGG_W_SEND; }
    void refuse(__u32 block, __u16 cap) { inagg_worker_refused(&w, &slot(block), block, cap); }
    void deliver(__u32 block) { ASSERT_EQ(inagg_worker_result(&w, &slot(block), block, 0, now), INAGG_W_ACCEPT); }
};

TEST_F(CappedWorker, OpensNoMoreThanTheCapBeyondTheLatestResult) {
    for (__u32 block = 0; block < 6; block++)
        ASSERT_TRUE(open(block));
    refuse(5, 2);
    EXPECT_EQ(w.cap, 2);
    EXPECT_EQ(slot(5).state, INAGG_WSLOT_SENT) << "its timer repeats it";
    EXPECT_FALSE(open(6));
    deliver(3);
    EXPECT_FALSE(open(6));
    deliver(4);
    EXPECT_TRUE(open(6));
    EXPECT_TRUE(open(7)) << "a cap's results have raised it by one";
    EXPECT_FALSE(open(8));
}

TEST_F(CappedWorker, ARefusedBlockIsRepeatedByItsTimer) {
    open(0);
    slot(0).acked = 1;
    const __u64 due = slot(0).due_ns;
    refuse(0, 2);
    EXPECT_EQ(slot(0).due_ns, due);
    EXPECT_EQ(inagg_worker_timeout(&w, &slot(0), due), INAGG_W_RESEND) << "elements, no request";
}

TEST_F(CappedWorker, OnlyTheBlockInFlightIsRefusedAndCapsOnlyFall) {
    refuse(0, 2);
    EXPECT_EQ(w.cap, 0) << "not sent";
    open(0);
    refuse(16, 2);
    EXPECT_EQ(w.cap, 0) << "another block";
    refuse(0, 16);
    EXPECT_EQ(w.cap, 0) << "the whole window";
    refuse(0, 2);
    refuse(0, 4);
    EXPECT_EQ(w.cap, 2);
    refuse(0, 1);
    EXPECT_EQ(w.cap, 1);
}

TEST_F(CappedWorker, ResultsRaiseTheCapUntilItIsTheWindow) {
    ASSERT_TRUE(open(0));
    refuse(0, 1);
    int results = 0;
    for (__u32 block = 0; w.cap; block++, results++) {
        open(block);
        deliver(block);
        ASSERT_LT(results, 1000);
    }
    EXPECT_EQ(results, 15 * 16 / 2) << "1 + 2 + ... + 15";
}

TEST_F(CappedWorker, SkippedBlocksCountAsResults) {
    open(0);
    refuse(0, 2);
    inagg_worker_skip(&w, &slot(1));
    EXPECT_EQ(w.accepted, 1u);
    EXPECT_TRUE(open(3));
    EXPECT_FALSE(open(4));
}

// What fills the switch may wait for what the cap holds back.
TEST_F(CappedWorker, WithoutResultsForLongTheCapDoesNotHold) {
    open(0);
    refuse(0, 1);
    EXPECT_FALSE(open(1));
    now += INAGG_RTO_CEILING_NS - 1;
    EXPECT_FALSE(open(1));
    now += 1;
    EXPECT_TRUE(open(1));
    EXPECT_TRUE(open(15));
}

TEST_F(CappedWorker, CapsHoldAcrossTheWrap) {
    for (inagg_wslot &each : slots)
        each.block -= 16;
    w.accepted = 0u - 17;
    open(0u - 16);
    refuse(0u - 16, 2);
    EXPECT_TRUE(open(0u - 15));
    EXPECT_FALSE(open(0u - 14));
    EXPECT_FALSE(open(0u - 1));
}

// Where hardly a block is spared.
TEST_F(Worker, ARepairedResultThatIsSoonIsNoSampleButABound) {
    open(0);
    EXPECT_EQ(result(1, 30 * ms, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 0u) << "not shorter than what is assumed";
    open(100 * ms);
    EXPECT_EQ(result(5, 110 * ms, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 10 * ms);
    EXPECT_EQ(w.rto_ns, 30 * ms);
    open(200 * ms);
    EXPECT_EQ(result(9, 220 * ms, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 10 * ms) << "this may be the loss";
    open(300 * ms);
    EXPECT_EQ(result(13, 302 * ms, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 9 * ms);
}

TEST_F(Worker, AResultWithinAnRtoUndoesItsDoublings) {
    round_trip(0, 10 * ms);
    w.doublings = 3;
    open(20 * ms);
    EXPECT_EQ(result(5, 20 * ms + w.rto_ns + 1 * ms, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.doublings, 1u) << "twice the RTO is enough";
    open(200 * ms);
    EXPECT_EQ(result(9, 200 * ms + w.rto_ns - 1 * ms, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.doublings, 0u);
}

// Where a leader adds (canary). Slot 1 is rank 0's, and others lead it.
struct Led : Worker {
    int ask(__u64 now) { return inagg_worker_ask(&w, &s, now); }
    // What the leader answers the latest question.
    int failed(__u64 contributors, __u16 attempt, __u64 now, int bypass = 0, __u32 block = 1) {
        inagg_worker_told(&w, &s, block, inagg_wslot_question(&s), now);
        return inagg_worker_failed(&w, &s, block, contributors, 0, attempt, bypass, now);
    }
};

TEST_F(Led, ATimeOutAsksAndSendsNothing) {
    open(0);
    EXPECT_EQ(ask(INAGG_RTO_START_NS - 1), INAGG_W_NOTHING);
    for (__u64 now = INAGG_RTO_START_NS; now < 60000 * ms; now = s.due_ns)
        EXPECT_EQ(ask(now), INAGG_W_REQUEST);
    EXPECT_FALSE(s.resent);
    EXPECT_EQ(s.due_ns - 60000 * ms < INAGG_RTO_CEILING_NS, true) << "it backs off so far and no further";
}

TEST_F(Led, WhoIsAwaitedAsksAtOnce) {
    open(0);
    for (int i = 0; i < 3; i++)
        ask(s.due_ns);
    const __u64 now = s.due_ns - 1;
    EXPECT_FALSE(inagg_worker_overtaken_at_leader(&w, &s, now));
    inagg_wslot next;
    inagg_wslot_init(&next, 2);
    EXPECT_EQ(inagg_worker_failed(&w, &next, 2, 2, 0, 1, 0, now), INAGG_W_NOTHING);
    EXPECT_TRUE(inagg_worker_overtaken_at_leader(&w, &s, now));
    EXPECT_EQ(ask(now), INAGG_W_REQUEST);
    EXPECT_FALSE(inagg_worker_overtaken_at_leader(&w, &s, now + 1 * ms)) << "it has asked";
}

TEST_F(Led, AnAnswerSaysToWhichQuestion) {
    open(0);
    for (int i = 0; i < 3; i++)
        ask(s.due_ns);
    const __u64 now = (static_cast<__u64>(s.asked) << 10) + 500 * us;
    ASSERT_EQ(inagg_wslot_question(&s), 3u);
    inagg_worker_told(&w, &s, s.block, 2, now);
    inagg_worker_told(&w, &s, s.block, 0, now);
    inagg_worker_told(&w, &s, s.block + 1, 3, now);
    EXPECT_EQ(w.doublings, 1u);
    inagg_worker_told(&w, &s, s.block, 3, now);
    EXPECT_EQ(w.doublings, 0u);
}

// A leader that has no answer, or all who ask it, by the RTO of others, would have its results wait for one another for good.
struct Lagging : Led {
    Lagging() { round_trip(2 * 3600 * 1000 * ms, 10 * ms); } // times of questions have 32 bits

    // A block, and so many questions about it.
    void asked(int times, bool others = false) {
        open(s.due_ns);
        for (int i = 0; i < times; i++) {
            if (others && i)
                w.progress_ns = s.due_ns - 1; // their results come
            while (ask(s.due_ns) != INAGG_W_REQUEST)
                ;
        }
    }
    void repaired() { result(s.block, s.due_ns, 1); }
    void answered(__u64 rtt) { failed(0b11, 0, s.due_ns - inagg_wslot_patience(&w, &s, s.tries) + rtt, 0, s.block); }
    unsigned lag() const { return s.lag; }
};

TEST_F(Lagging, IsAskedLessSoonOfLaterBlocksToo) {
    asked(2);
    EXPECT_EQ(lag(), 0u) << "one question that was lost";
    repaired();
    asked(4);
    EXPECT_EQ(lag(), 2u);
    repaired();
    w.doublings = 0; // others answer
    const __u64 sent = s.due_ns;
    open(sent);
    EXPECT_EQ(s.due_ns, sent + 4 * w.rto_ns);
    w.progress_ns = s.due_ns - 1;
    EXPECT_EQ(ask(s.due_ns), INAGG_W_NOTHING);
    EXPECT_EQ(s.due_ns, w.progress_ns + 4 * w.rto_ns) << "not an RTO after others' results";
}

TEST_F(Lagging, IsNobodyWhileResultsCome) {
    asked(300, true);
    EXPECT_EQ(lag(), 0u);
}

TEST_F(Lagging, IsNotWhoAnswers) {
    asked(2);
    answered(1 * ms);
    for (int i = 0; i < 2; i++)
        EXPECT_EQ(ask(s.due_ns), INAGG_W_REQUEST);
    EXPECT_EQ(lag(), 0u);
    s.due_ns = 0; // in a hurry
    EXPECT_EQ(ask(w.progress_ns + 10000 * ms), INAGG_W_REQUEST);
    EXPECT_EQ(lag(), 0u);
}

TEST_F(Lagging, CatchesUpAsItsResultsShow) {
    asked(4);
    repaired();
    const __u64 half = 2 * w.rto_ns;
    open(s.due_ns);
    result(s.block, s.sent_ns + half, 1);
    EXPECT_EQ(lag(), 2u) << "needed";
    open(s.due_ns);
    result(s.block, s.sent_ns + half - 1, 1);
    EXPECT_EQ(lag(), 1u);
}

TEST_F(Lagging, CatchesUpAsItsAnswersShow) {
    asked(5);
    ASSERT_EQ(lag(), 3u);
    answered(w.rto_ns * 2 / 3);
    EXPECT_EQ(lag(), 2u) << "three times as long is all that is needed";
    ask(s.due_ns);
    answered(1 * ms);
    EXPECT_EQ(lag(), 0u);
}

TEST_F(Lagging, HasACeiling) {
    asked(300);
    EXPECT_EQ(inagg_wslot_rto(&w, &s), INAGG_RTO_CEILING_NS);
    EXPECT_LT(w.rto_ns << (lag() - 1), INAGG_RTO_CEILING_NS) << "no more than has an effect";
}

TEST_F(Led, WhatWasSentAfterAQuestionIsNotWhatItsAnswerTells) {
    open(0);
    ask(s.due_ns);
    const __u64 sent = (static_cast<__u64>(s.asked) << 10) + 300 * ms;
    EXPECT_EQ(failed(0, 1, sent), INAGG_W_RESEND);
    inagg_worker_told(&w, &s, s.block, 1, sent + 500 * us);
    EXPECT_EQ(w.doublings, 1u);
}

TEST_F(Led, QuestionsBeyondCountingHaveLateNumbersAgain) {
    open(0);
    for (__u32 i = 1; i < 1000; i++) {
        ask(s.due_ns);
        EXPECT_EQ(inagg_wslot_question(&s), i < 256 ? i : 128 + i % 128);
    }
    inagg_worker_told(&w, &s, s.block, 0, (static_cast<__u64>(s.asked) << 10) + 500 * us);
    EXPECT_NE(w.doublings, 0u) << "what answers no question tells no round trip";
}

TEST_F(Led, NobodyBacksOffWhileResultsCome) {
    open(0);
    __u64 now = INAGG_RTO_START_NS;
    for (; s.tries < 3; now = s.due_ns)
        ask(now);
    w.progress_ns = now - 1 * ms;
    ask(now);
    EXPECT_EQ(s.tries, 1u);
    ask(s.due_ns);
    EXPECT_EQ(s.tries, 2u);
}

TEST_F(Led, AnAnswerInTimeSaysThatThePathIsAsShortAsBefore) {
    const auto asked = [this](__u64 rtt) {
        open(s.due_ns);
        while (ask(s.due_ns) != INAGG_W_REQUEST) // results that came put it off
            ;
        const __u64 now = static_cast<__u64>(s.asked) << 10;
        failed(0b11, 0, now + rtt, 0, s.block);
        result(s.block, now + rtt + 400 * ms, 1);
    };
    asked(w.rto_ns + 1 * ms);
    EXPECT_EQ(w.doublings, 1u) << "late";
    asked(50 * ms);
    EXPECT_EQ(w.doublings, 0u);
    EXPECT_EQ(w.srtt_ns, 0u) << "elements take longer";
    asked(500 * us);
    EXPECT_GE(w.srtt_ns, INAGG_ASKS_A_ROUND * 500 * us);
    EXPECT_LT(w.srtt_ns, INAGG_ASKS_A_ROUND * 502 * us) << "but not so much longer";
    EXPECT_LT(w.rto_ns, INAGG_RTO_START_NS);
}

TEST_F(Led, WhileResultsComeNobodyAsks) {
    open(0);
    w.progress_ns = INAGG_RTO_START_NS - 1 * ms;
    EXPECT_EQ(ask(INAGG_RTO_START_NS), INAGG_W_NOTHING);
    EXPECT_EQ(s.due_ns, w.progress_ns + w.rto_ns);
    EXPECT_EQ(ask(s.due_ns), INAGG_W_REQUEST);
    w.progress_ns = s.due_ns - 1 * ms;
    EXPECT_EQ(ask(s.due_ns), INAGG_W_REQUEST) << "but who has asked";
}

TEST_F(Led, LossesCostAFewQuestionsAndAStragglerMany) {
    open(0);
    ask(INAGG_RTO_START_NS);
    failed(0b11, 0, INAGG_RTO_START_NS + 2 * ms);
    const __u64 rto = w.rto_ns;
    for (int i = 1; i <= INAGG_LINEAR_ASKS; i++) {
        const __u64 now = s.due_ns;
        ask(now);
        EXPECT_EQ(s.due_ns, now + rto) << "if this one or its answer is lost";
        failed(0b11, 0, now + 2 * ms);
        EXPECT_EQ(s.due_ns, now + 2 * ms + (i < INAGG_LINEAR_ASKS ? rto : 2 * rto));
    }
    for (int i = 2; i < 8; i++) {
        const __u64 now = s.due_ns;
        ask(now);
        failed(0b11, 0, now + 2 * ms);
        EXPECT_EQ(s.due_ns, now + 2 * ms + std::min<__u64>(rto << i, INAGG_RTO_CEILING_NS));
    }
}

TEST_F(Led, LaterResultsAreEnoughForOneQuestion) {
    inagg_wslot other;
    inagg_wslot_init(&other, 2);
    const auto later = [&](__u64 now) {
        inagg_worker_open(&w, &other, now);
        return inagg_worker_result(&w, &other, other.block, 0, now + 10 * ms);
    };
    w.srtt_ns = 10 * ms;
    w.rttvar_ns = 5 * ms;
    inagg_worker_set_rto(&w);
    open(0);
    ASSERT_EQ(later(1 * ms), INAGG_W_ACCEPT);
    EXPECT_EQ(ask(s.due_ns), INAGG_W_NOTHING) << "results come";
    ASSERT_EQ(later(21 * ms), INAGG_W_ACCEPT);
    EXPECT_FALSE(inagg_worker_overtaken_at_leader(&w, &s, 31 * ms));
    EXPECT_EQ(s.due_ns, 10 * ms + w.rto_ns) << "an RTO after it was due";
    EXPECT_TRUE(inagg_worker_overtaken_at_leader(&w, &s, 36 * ms));
    EXPECT_EQ(ask(36 * ms), INAGG_W_REQUEST);
    EXPECT_EQ(w.doublings, 0u);
    EXPECT_FALSE(inagg_worker_overtaken_at_leader(&w, &s, 37 * ms)) << "asked already";
    EXPECT_EQ(s.due_ns, 36 * ms + w.rto_ns);
    EXPECT_EQ(failed(0b10, 1, 37 * ms), INAGG_W_RESEND);
    ASSERT_EQ(later(38 * ms), INAGG_W_ACCEPT);
    EXPECT_FALSE(inagg_worker_overtaken_at_leader(&w, &s, 48 * ms));
    EXPECT_TRUE(inagg_worker_overtaken_at_leader(&w, &s, 47 * ms + w.rto_ns)) << "what was sent again, too";
}

TEST_F(Led, AShortAnswerUndoesWhatAFullQueueMadeOfTheRto) {
    round_trip(0, 40 * ms);
    open(500 * ms);
    const __u64 now = s.due_ns;
    ASSERT_EQ(ask(now), INAGG_W_REQUEST);
    failed(0b11, 0, now + 100 * us, 0, s.block);
    EXPECT_EQ(w.doublings, 0u);
    EXPECT_LT(w.srtt_ns, 4 * ms);
    EXPECT_LT(w.rto_ns, 10 * ms);
}

TEST_F(Led, ItsOwnBlocksTellNothingOfThePath) {
    open(0);
    EXPECT_EQ(inagg_worker_completed(&w, &s, 1), INAGG_W_ACCEPT);
    EXPECT_EQ(w.srtt_ns, 0u);
    EXPECT_EQ(w.progress_ns + w.delivered_ns, 0u) << "nor of whether results come";
    EXPECT_EQ(s.block, 5u);
    EXPECT_EQ(inagg_worker_completed(&w, &s, 1), INAGG_W_NOTHING);
}

TEST_F(Led, WhatIsLostIsSentAgainInItsAttempt) {
    open(0);
    EXPECT_EQ(failed(0b10, 1, 1 * ms), INAGG_W_RESEND);
    EXPECT_EQ(s.epoch, 1u);
    EXPECT_EQ(s.due_ns, 1 * ms + (w.rto_ns << 1)) << "each attempt waits for longer";
    EXPECT_FALSE(s.bypass);
    EXPECT_EQ(failed(0b10, 1, 1 * ms + 1), INAGG_W_NOTHING) << "just sent";
    EXPECT_EQ(failed(0b10, 1, 200 * ms), INAGG_W_RESEND);
    EXPECT_EQ(failed(0b10, 3, 200 * ms + 1, 1), INAGG_W_RESEND) << "a new attempt cannot have crossed";
    EXPECT_TRUE(s.bypass);
    EXPECT_EQ(failed(0b10, 2, 900 * ms), INAGG_W_NOTHING) << "from before";
    EXPECT_EQ(result(1, 901 * ms), INAGG_W_ACCEPT);
    open(902 * ms);
    EXPECT_EQ(s.epoch, 0u);
    EXPECT_FALSE(s.bypass);
}

TEST_F(Led, NeverAsksAll) {
    open(0);
    for (__u64 now = INAGG_RTO_START_NS; s.tries < 10; now = s.due_ns)
        ask(now);
    EXPECT_EQ(failed(0, 0, s.due_ns), INAGG_W_RESEND);
    inagg_worker_rebooted(&s);
    EXPECT_EQ(ask(s.sent_ns + 1), INAGG_W_REQUEST);
    EXPECT_EQ(failed(0, 1, s.sent_ns + 2), INAGG_W_RESEND);
}

TEST_F(Led, WhoIsInWaits) {
    open(0);
    EXPECT_EQ(failed(0b11, 1, 1 * ms), INAGG_W_NOTHING);
    EXPECT_TRUE(s.acked);
    EXPECT_EQ(s.epoch, 0u);
    EXPECT_EQ(ask(s.due_ns), INAGG_W_REQUEST);
}

TEST_F(Led, AnotherBlocksFailureIsNotThisOnes) {
    EXPECT_EQ(failed(0, 1, 0), INAGG_W_NOTHING) << "not sent yet";
    open(0);
    EXPECT_EQ(failed(0, 1, 200 * ms, 0, 5), INAGG_W_NOTHING);
    result(1, 201 * ms);
    EXPECT_EQ(failed(0, 1, 202 * ms), INAGG_W_NOTHING);
    EXPECT_EQ(failed(0, 1, 202 * ms, 0, 5), INAGG_W_NOTHING) << "never a RESTORE";
}
