// SPDX-License-Identifier: BSD-2-Clause
// What a rank keeps of results, believes of those that come, and takes of those that were decided without it; and of whom
// its tensors' results are made.
#include <inagg/core/history.h>
#include <inagg/core/roll.h>

#include <gtest/gtest.h>

#include <vector>

namespace {

struct History : testing::Test {
    static constexpr uint32_t slots = 4;

    History() { begin(INAGG_TRIO); }
    void begin(uint8_t algorithm) {
        job = {};
        job.algorithm = algorithm;
        job.elements = 32;
        kept.assign(inagg_history_blocks(&job, slots, 2048), {});
        inagg_history_init(&history, &job, kept.data(), static_cast<uint32_t>(kept.size()));
        inagg_worker_init(&worker, slots, 0);
        for (uint32_t i = 0; i < slots; i++)
            inagg_wslot_init(&slot[i], i);
    }
    void send_up_to(uint32_t limit) {
        worker.limit = limit;
        for (inagg_wslot &s : slot)
            inagg_worker_open(&worker, &s, 1000);
    }
    int result(uint32_t block, uint16_t epoch = 0) {
        inagg_block_meta meta{};
        meta.epoch = epoch;
        const int verdict = inagg_history_result(&history, &worker, &slot[block % slots], block, &meta, 0, 2000);
        if (verdict != INAGG_W_NOTHING)
            inagg_history_keep(&history, block, &meta);
        return verdict;
    }
    int wait(uint32_t block, uint64_t contributors, uint16_t epoch = 0) {
        return inagg_history_wait(&history, &worker, &slot[block % slots], block, contributors, 2, epoch, 1000'000'000);
    }
    const inagg_kept *decided(uint32_t block) { return inagg_history_decided(&history, &worker, &slot[block % slots]); }

    inagg_job_config job{};
    std::vector<inagg_kept> kept;
    inagg_history history{};
    inagg_worker worker{};
    inagg_wslot slot[slots];
};

TEST_F(History, HoldsAsManyAsFit) {
    EXPECT_EQ(inagg_history_blocks(&job, slots, 2048), 16U) << "of 128 bytes each";
    EXPECT_EQ(inagg_history_blocks(&job, slots, 2047), 8U) << "a power of two";
    EXPECT_EQ(inagg_history_blocks(&job, slots, 0), 8U) << "two for each slot at least";
    EXPECT_EQ(inagg_history_blocks(&job, slots, UINT64_MAX), INAGG_MOST_HISTORY);
    job.algorithm = INAGG_SWITCHML;
    EXPECT_EQ(inagg_history_blocks(&job, slots, 2048), slots);
}

TEST_F(History, KeepsWhatIsAhead) {
    EXPECT_EQ(result(0), INAGG_W_KEEP);
    EXPECT_EQ(result(0), INAGG_W_NOTHING) << "it is here";
    EXPECT_EQ(result(15), INAGG_W_KEEP);
    EXPECT_EQ(result(16), INAGG_W_NOTHING) << "in the place of one that is still wanted";
    EXPECT_EQ(inagg_history_run(&history, 0, 16), 1U);
    EXPECT_EQ(result(1), INAGG_W_KEEP);
    EXPECT_EQ(inagg_history_run(&history, 0, 16), 2U);
    EXPECT_EQ(inagg_history_run(&history, 0, 1), 1U);
    EXPECT_EQ(decided(0), nullptr) << "it may not be sent yet";
    worker.limit = 1;
    ASSERT_NE(decided(0), nullptr);
    EXPECT_EQ(decided(0)->block, 0U);
    EXPECT_EQ(decided(1), nullptr);
    inagg_worker_skip(&worker, &slot[0]);
    EXPECT_EQ(decided(0), nullptr);
    EXPECT_EQ(result(16), INAGG_W_KEEP) << "now the other is behind";
}

TEST_F(History, NothingIsAheadWhereAllAreWaitedFor) {
    begin(INAGG_SWITCHML);
    worker.limit = 8;
    EXPECT_EQ(result(0), INAGG_W_NOTHING);
    send_up_to(8);
    EXPECT_EQ(result(0), INAGG_W_ACCEPT);
    EXPECT_EQ(result(0), INAGG_W_NOTHING);
    EXPECT_NE(inagg_history_find(&history, 0), nullptr);
    EXPECT_EQ(decided(0), nullptr);
}

TEST_F(History, WhoHoldsAResultGivesItBackToARecovery) {
    send_up_to(4);
    ASSERT_EQ(result(0), INAGG_W_ACCEPT);
    EXPECT_EQ(wait(0, 2), INAGG_W_NOTHING) << "the switch has not forgotten it";
    EXPECT_EQ(wait(0, 2, 5), INAGG_W_RESTORE);
    ASSERT_EQ(result(9), INAGG_W_KEEP);
    EXPECT_EQ(wait(9, 2, 5), INAGG_W_RESTORE) << "also one that is ahead";
}

TEST_F(History, WhoHasContributedAnewBelievesNoEarlierResult) {
    send_up_to(4);
    EXPECT_EQ(wait(1, 0, 5), INAGG_W_RESEND);
    EXPECT_EQ(slot[1].epoch, 5);
    EXPECT_EQ(wait(1, 0, 4), INAGG_W_NOTHING) << "an earlier recovery";
    EXPECT_EQ(result(1), INAGG_W_NOTHING);
    EXPECT_EQ(result(1, 4), INAGG_W_NOTHING);
    EXPECT_EQ(result(1, 5), INAGG_W_ACCEPT);
}

TEST_F(History, RoomIsBehindTheLastResult) {
    EXPECT_EQ(inagg_worker_room(&worker), slots);
    send_up_to(4);
    inagg_worker_refused(&worker, &slot[3], 3, 2);
    EXPECT_EQ(inagg_worker_room(&worker), 2U);
    ASSERT_EQ(result(0), INAGG_W_ACCEPT);
    EXPECT_EQ(inagg_worker_room(&worker), 3U);
}

TEST(Roll, NamesWhoIsInAllAndInAny) {
    inagg_roll roll;
    inagg_roll_init(&roll, 3);
    EXPECT_EQ(roll.in_all, 7U);
    EXPECT_EQ(roll.in_any, 7U);
    EXPECT_EQ(roll.fewest, 3);
    for (const uint64_t ranks : {6, 2, 3})
        inagg_roll_call(&roll, ranks);
    EXPECT_EQ(roll.in_all, 2U);
    EXPECT_EQ(roll.in_any, 7U);
    EXPECT_EQ(roll.fewest, 1);
    EXPECT_EQ(roll.degraded, 3U);
    inagg_roll_init(&roll, 3);
    inagg_roll_call(&roll, 3);
    EXPECT_EQ(roll.in_any, 3U) << "not those of no block";
}

} // namespace
