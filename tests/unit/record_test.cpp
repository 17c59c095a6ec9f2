// SPDX-License-Identifier: BSD-2-Clause
// trio's block records: when a block is decided, what makes room, and what a floor knows.
#include <inagg/core/record.h>
#include <inagg/core/worker.h>

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>

namespace {

constexpr __u16 now = 1000; // epoch clock
constexpr __u32 slots = 8, control_slots = 2;

inagg_job some_job(__u32 index = 5, __u16 size = 3) {
    inagg_job job{};
    job.index = index;
    job.size = size;
    job.all = inagg_all_ranks(size);
    job.slots = slots;
    job.control_slots = control_slots;
    job.generation = 1;
    return job;
}

inagg_block block_of(__u16 rank, __u32 number, __u16 epoch = 0) {
    inagg_block b{};
    b.block = number;
    b.generation = 1;
    b.rank = rank;
    b.elements = 32;
    b.dtype_op = INAGG_WIRE_INT32 << 4;
    b.epoch = epoch;
    b.contributors = inagg_rank_bit(rank);
    return b;
}

// One bucket, and the floor of the position of block 0.
struct Records : testing::Test {
    inagg_job job = some_job();
    inagg_policy policy{};
    std::array<inagg_record, INAGG_WAYS> bucket{};
    inagg_floor floor = inagg_floor_at_start(&job, 0);
    inagg_loser loser{}; // of a record to another job
    __u32 open = 0, way = 0;

    Records() { policy.most_open = 100; }

    int contribute(const inagg_block &b, __u16 clock = now) {
        const int verdict = inagg_record_contribute(bucket.data(), &floor, &job, &policy, open, &b, clock, &way, &loser);
        if (verdict > 0) {
            open += (verdict & INAGG_OPENS) != 0;
            open -= (verdict & INAGG_COMPLETES) != 0;
        }
        return verdict;
    }
    int contribute(__u16 rank, __u32 number, __u16 epoch = 0, __u16 clock = now) {
        return contribute(block_of(rank, number, epoch), clock);
    }
    int restore(__u16 rank, __u32 number, __u64 contributors) {
        inagg_block b = block_of(rank, number);
        b.contributors = contributors;
        return inagg_record_restore(bucket.data(), &job, &b, &way);
    }
    int request(__u32 number, bool everyone = false) {
        const inagg_block b = block_of(0, number);
        int found;
        return inagg_record_request(bucket.data(), &job, &b, everyone, &found);
    }
    int find(__u32 number) {
        const inagg_block b = block_of(0, number);
        return inagg_record_find(bucket.data(), job.index, &b);
    }
    inagg_record &record(__u32 number) { return bucket.at(static_cast<size_t>(find(number))); }
    int sweep(__u32 number, __u16 clock = now) { return inagg_record_sweep(&record(number), &job, &policy, clock); }
    // The first contribution to a block whose floor says that it is new.
    int open_new(__u32 number, __u16 rank = 0) {
        floor.known = 1;
        floor.generation = job.generation;
        floor.block = number - slots;
        return contribute(rank, number);
    }
    void decide(__u32 number) {
        open_new(number);
        contribute(1, number);
        ASSERT_EQ(contribute(2, number), INAGG_ADD | INAGG_COMPLETES);
    }
    // Opens a block that is to be recovered.
    void recover(__u32 number, __u16 clock) {
        ASSERT_EQ(contribute(0, number, 0, clock), INAGG_TELL_ALL | INAGG_OPENS);
        ASSERT_EQ(record(number).epoch, clock);
    }

    std::string bytes() const { return {reinterpret_cast<const char *>(bucket.data()), sizeof bucket}; }
};

constexpr int stored_first = INAGG_STORE | INAGG_OPENS;

} // namespace

TEST_F(Records, AllRanksDecide) {
    EXPECT_EQ(contribute(1, 0), stored_first);
    EXPECT_EQ(contribute(0, 0), INAGG_ADD);
    EXPECT_EQ(contribute(2, 0), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(record(0).slot.seen, 7u);
    EXPECT_EQ(record(0).epoch, 0);
    EXPECT_FALSE(record(0).flags & INAGG_RECORD_DEGRADED);
    EXPECT_EQ(contribute(2, 0), INAGG_REPLY);
    EXPECT_EQ(open, 0u);
}

TEST_F(Records, OneRankDecidesAtOnce) {
    job = some_job(5, 1);
    EXPECT_EQ(contribute(0, 0), INAGG_STORE | INAGG_OPENS | INAGG_COMPLETES);
    EXPECT_EQ(INAGG_VERDICT(INAGG_STORE | INAGG_OPENS | INAGG_COMPLETES), INAGG_STORE);
}

TEST_F(Records, DuplicatesChangeNothing) {
    policy.expiry_sweeps = 4;
    contribute(0, 0);
    sweep(0);
    const std::string before = bytes();
    EXPECT_EQ(contribute(0, 0), INAGG_TELL);
    EXPECT_EQ(bytes(), before) << "also the age: it is no sign of another rank";
}

TEST_F(Records, KeysAreJobStreamAndBlock) {
    contribute(0, 0);
    inagg_block b = block_of(1, 0);
    EXPECT_EQ(inagg_record_find(bucket.data(), job.index, &b), 0);
    EXPECT_EQ(inagg_record_find(bucket.data(), job.index + 1, &b), -1);
    b.stream = 1;
    EXPECT_EQ(inagg_record_find(bucket.data(), job.index, &b), -1);
    b = block_of(1, 8);
    EXPECT_EQ(inagg_record_find(bucket.data(), job.index, &b), -1);
    b = block_of(1, 0);
    b.generation = 2;
    EXPECT_EQ(inagg_record_find(bucket.data(), job.index, &b), -1);
}

TEST_F(Records, TwoJobsShareABucket) {
    inagg_job other = some_job(6, 2);
    inagg_floor others = inagg_floor_at_start(&other, 0);
    const inagg_block b = block_of(0, 0);
    __u32 others_way = 0;
    EXPECT_EQ(contribute(0, 0), stored_first);
    EXPECT_EQ(inagg_record_contribute(bucket.data(), &others, &other, &policy, 0, &b, now, &others_way, nullptr), stored_first);
    EXPECT_NE(way, others_way);
    EXPECT_EQ(contribute(1, 0), INAGG_ADD);
    EXPECT_EQ(bucket[others_way].slot.seen, 1u);
    EXPECT_EQ(contribute(2, 0), INAGG_ADD | INAGG_COMPLETES) << "of three ranks";
    EXPECT_EQ(bucket[others_way].slot.flags, INAGG_SLOT_LIVE);
}

TEST(Buckets, NeighboursInAStreamAreNeighboursAndStreamsDiffer) {
    for (__u32 block : {0U, 1U, 62U, ~0U})
        EXPECT_EQ(inagg_bucket_of(3, 0, block + 1, 64), (inagg_bucket_of(3, 0, block, 64) + 1) % 64);
    EXPECT_NE(inagg_bucket_of(3, 0, 7, 1024), inagg_bucket_of(4, 0, 7, 1024));
    EXPECT_NE(inagg_bucket_of(3, 0, 7, 1024), inagg_bucket_of(3, 1, 7, 1024));
    EXPECT_EQ(inagg_bucket_of(3, 1, 12345, 1), 0u);
}

// ---- room ----

TEST_F(Records, TheResultThatIsOldestMakesRoom) {
    for (__u32 block : {0U, 8U, 16U, 24U}) {
        decide(block);
        for (inagg_record &r : bucket)
            inagg_record_sweep(&r, &job, &policy, now);
    }
    record(8).age = 200;
    EXPECT_EQ(open_new(32), stored_first);
    EXPECT_EQ(find(8), -1);
    EXPECT_NE(find(0), -1);
    EXPECT_EQ(open_new(40), stored_first);
    EXPECT_EQ(find(0), -1) << "now the oldest";
}

TEST_F(Records, FreeRecordsComeFirst) {
    decide(0);
    record(0).age = 255;
    for (__u32 block : {8U, 16U})
        open_new(block);
    EXPECT_NE(find(0), -1);
}

TEST_F(Records, OpenRecordsStay) {
    for (__u32 block : {0U, 8U, 16U})
        ASSERT_EQ(open_new(block), stored_first);
    const std::string before = bytes();
    const inagg_floor floor_before = floor;
    EXPECT_EQ(open_new(24), -INAGG_R_FULL);
    EXPECT_EQ(bytes(), before);
    EXPECT_EQ(floor.block, floor_before.block) << "not opened: still the next";
    EXPECT_EQ(contribute(1, 16), INAGG_ADD) << "into what is open";
    EXPECT_EQ(contribute(2, 16), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(contribute(0, 24), stored_first);
}

// A rank may need a lost result before it can contribute to what fills the bucket.
TEST_F(Records, OneWayIsKeptForRecovery) {
    for (__u32 block : {16U, 24U, 32U})
        ASSERT_EQ(open_new(block), stored_first);
    recover(0, now);
    EXPECT_EQ(contribute(0, 8), -INAGG_R_FULL) << "one after the other";
    EXPECT_EQ(restore(2, 0, 7), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(open_new(40), -INAGG_R_FULL);
    recover(8, now);
}

TEST_F(Records, RecoveryMayTakeMoreThanOneWay) {
    floor = {};
    for (__u32 block : {0U, 8U, 16U, 24U})
        recover(block, now);
    EXPECT_EQ(contribute(0, 32), -INAGG_R_FULL);
}

// Without the result of an earlier block, ranks are missing from the later ones.
TEST_F(Records, AnEarlierBlockTakesTheWayOfALaterOneThatRecovers) {
    floor = {};
    for (__u32 block : {8U, 24U, 32U, 16U})
        recover(block, now);
    EXPECT_EQ(contribute(1, 0), INAGG_TELL_ALL) << "no more are open than before";
    EXPECT_EQ(find(32), -1) << "the latest";
    EXPECT_EQ(open, 4u);
    inagg_block control = block_of(0, 0);
    control.stream = 1;
    EXPECT_EQ(contribute(control), -INAGG_R_FULL) << "of another stream";
    record(24).job++;
    EXPECT_EQ(open_new(12), INAGG_STORE) << "new blocks likewise";
    EXPECT_EQ(find(16), -1) << "the latest that is this job's";
}

// ... or of one that is new: a rank may wait for the earlier block before it contributes to that.
TEST_F(Records, AnEarlierBlockThatRecoversTakesTheWayOfALaterNewOne) {
    ASSERT_EQ(open_new(16), stored_first);
    ASSERT_EQ(open_new(24), stored_first);
    for (inagg_record &r : bucket)
        if (!inagg_record_is_open(&r)) { // of jobs with one each
            r = bucket[0];
            r.job = static_cast<__u8>(100 + (&r - bucket.data()));
        }
    EXPECT_EQ(contribute(0, 8), INAGG_TELL_ALL);
    EXPECT_EQ(find(24), -1) << "the latest";
    EXPECT_NE(find(16), -1);
    EXPECT_EQ(open, 2u);
    EXPECT_EQ(open_new(12), -INAGG_R_FULL) << "a new one does not";
}

// ---- one job beside others ----

// Other jobs in the bucket, each with a floor of its own that says that block 0 is new.
struct SharedBucket : Records {
    std::map<__u32, __u32> opened;

    int contribute_of(__u32 index, __u32 number, bool fresh = true) {
        const inagg_job other = some_job(index, 2);
        inagg_floor others = inagg_floor_at_start(&other, 0);
        const inagg_block b = block_of(0, number);
        others.block = fresh ? number - slots : number;
        loser = {};
        const int verdict =
            inagg_record_contribute(bucket.data(), &others, &other, &policy, opened[index], &b, now, &way, &loser);
        opened[index] += verdict > 0 && (verdict & INAGG_OPENS);
        if (loser.lost)
            opened[loser.job]--;
        return verdict;
    }
    // How many records in the bucket are each job's, as counted.
    void expect_shares(const std::map<__u32, __u32> &shares) {
        EXPECT_EQ(opened, shares);
        for (const auto &[index, share] : shares)
            EXPECT_EQ(static_cast<__u32>(inagg_record_share(bucket.data(), index)), share) << "job " << index;
    }
};

TEST_F(SharedBucket, WhatOneJobFillsWithRecoveriesGivesWay) {
    for (__u32 number : {15U, 23U, 31U, 39U})
        ASSERT_EQ(contribute_of(6, number, false), INAGG_TELL_ALL | INAGG_OPENS);
    EXPECT_EQ(contribute_of(7, 0), stored_first);
    EXPECT_EQ(loser.job, 6);
    EXPECT_EQ(loser.generation, 1);
    EXPECT_EQ(contribute_of(7, 8, false), INAGG_TELL_ALL | INAGG_OPENS);
    expect_shares({{6, 2}, {7, 2}});
    EXPECT_EQ(contribute_of(6, 47, false), -INAGG_R_FULL) << "later than its own";
    EXPECT_EQ(contribute_of(6, 7, false), INAGG_TELL_ALL) << "earlier than its own";
    EXPECT_EQ(contribute_of(7, 16, false), -INAGG_R_FULL);
    expect_shares({{6, 2}, {7, 2}});
}

TEST_F(SharedBucket, WhatOneJobFillsWithNewBlocksGivesWay) {
    for (__u32 number : {15U, 23U, 31U})
        ASSERT_EQ(contribute_of(6, number), stored_first);
    EXPECT_EQ(contribute_of(7, 0), stored_first);
    EXPECT_EQ(contribute_of(7, 8), -INAGG_R_FULL) << "one more than the other";
    expect_shares({{6, 2}, {7, 1}});
    EXPECT_TRUE(inagg_record_leaves_a_way(bucket.data()) == 0) << "and one is free";
    EXPECT_EQ(contribute_of(6, 39, false), INAGG_TELL_ALL | INAGG_OPENS);
    EXPECT_EQ(contribute_of(8, 0), stored_first);
    EXPECT_TRUE(inagg_record_recovers(bucket.data(), 6)) << "the way that is left remains";
    expect_shares({{6, 2}, {7, 1}, {8, 1}});
}

TEST_F(SharedBucket, OfMoreJobsEachHasOne) {
    for (__u32 number : {15U, 23U, 31U, 39U})
        ASSERT_EQ(contribute_of(6, number, false), INAGG_TELL_ALL | INAGG_OPENS);
    for (__u32 index : {7U, 8U, 9U})
        EXPECT_EQ(contribute_of(index, 0, false), INAGG_TELL_ALL | INAGG_OPENS);
    expect_shares({{6, 1}, {7, 1}, {8, 1}, {9, 1}});
    EXPECT_EQ(contribute_of(10, 0, false), -INAGG_R_FULL);
}

TEST_F(SharedBucket, ACapHoldsWhateverGivesWay) {
    policy.most_open = 1;
    for (__u32 number : {15U, 23U})
        ASSERT_EQ(contribute_of(6, number, false), INAGG_TELL_ALL | INAGG_OPENS);
    ASSERT_EQ(contribute_of(7, 0), stored_first);
    EXPECT_EQ(contribute_of(7, 8), -INAGG_R_FULL);
}

TEST_F(Records, AJobHasAtMostSoManyOpen) {
    policy.most_open = 2;
    EXPECT_EQ(open_new(0), stored_first);
    EXPECT_EQ(open_new(8), stored_first);
    EXPECT_EQ(open_new(16), -INAGG_R_FULL);
    EXPECT_EQ(contribute(1, 8), INAGG_ADD);
    EXPECT_EQ(contribute(2, 8), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(open_new(16), stored_first);
}

TEST_F(Records, RecoveriesCountTwiceTheirCap) {
    policy.most_open = 1;
    EXPECT_EQ(open_new(16), stored_first);
    recover(0, now);
    EXPECT_EQ(contribute(0, 8), -INAGG_R_FULL);
}

TEST_F(Records, NewBlocksTakeNoMoreThanTheirCapFromRecovery) {
    policy.most_open = 1;
    EXPECT_EQ(open_new(8), stored_first);
    recover(24, now); // floor: 8
    EXPECT_EQ(open_new(16), -INAGG_R_FULL);
    contribute(1, 8);
    EXPECT_EQ(contribute(2, 8), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(open_new(16), INAGG_STORE) << "in the place of 24";
    EXPECT_EQ(open, 1u);
}

TEST_F(Records, EmptyContributionsOnlyWhereTheyMeanSomething) {
    inagg_block b = block_of(0, 0);
    b.elements = 0;
    EXPECT_EQ(contribute(b), INAGG_COUNT | INAGG_OPENS);
    b = block_of(1, 8);
    b.elements = 0;
    b.dtype_op = INAGG_WIRE_FIXED32 << 4;
    EXPECT_EQ(contribute(b), -INAGG_R_ELEMENTS);
    EXPECT_EQ(find(8), -1);
}

TEST_F(Records, DisagreementIsRefused) {
    contribute(0, 0);
    const std::string before = bytes();
    inagg_block b = block_of(1, 0);
    b.scale = 9;
    EXPECT_EQ(contribute(b), -INAGG_R_MISMATCH);
    EXPECT_EQ(bytes(), before);
}

// ---- quorum, expiry, whole ----

TEST_F(Records, AQuorumDecidesAndTheLateGetTheSameResult) {
    policy.quorum = 2;
    contribute(2, 0);
    EXPECT_EQ(contribute(0, 0), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_TRUE(record(0).flags & INAGG_RECORD_DEGRADED);
    const std::string before = bytes();
    EXPECT_EQ(contribute(1, 0), INAGG_REPLY);
    EXPECT_EQ(contribute(1, 0, 7), INAGG_REPLY) << "whatever its epoch";
    EXPECT_EQ(request(0), INAGG_REPLY);
    EXPECT_EQ(bytes(), before);
    EXPECT_EQ(record(0).slot.seen, 5u);
}

TEST_F(Records, AQuorumOfOneNeedsNobodyElse) {
    policy.quorum = 1;
    EXPECT_EQ(contribute(1, 0), INAGG_STORE | INAGG_OPENS | INAGG_COMPLETES);
    EXPECT_TRUE(record(0).flags & INAGG_RECORD_DEGRADED);
}

// With one sweep an expiry the age is the paper's REF flag: set by a rank, cleared by the next sweep.
TEST_F(Records, OneSweepClearsTheNextExpires) {
    policy.expiry_sweeps = 1;
    contribute(0, 0);
    EXPECT_EQ(sweep(0), INAGG_SWEEP_NOTHING);
    contribute(1, 0);
    EXPECT_EQ(sweep(0), INAGG_SWEEP_NOTHING) << "another rank came";
    EXPECT_EQ(sweep(0), INAGG_SWEEP_EXPIRED);
    EXPECT_TRUE(inagg_record_is_open(&record(0))) << "until a frame can carry its result";
    EXPECT_EQ(inagg_record_finish(&record(0), &job), INAGG_COUNT | INAGG_COMPLETES);
    EXPECT_EQ(record(0).slot.seen, 3u);
    EXPECT_TRUE(record(0).flags & INAGG_RECORD_DEGRADED);
    EXPECT_EQ(inagg_record_finish(&record(0), &job), -INAGG_R_STALE) << "once";
    EXPECT_EQ(contribute(2, 0), INAGG_REPLY);
}

TEST_F(Records, MoreSweepsAnExpiryAreFiner) {
    policy.expiry_sweeps = 4;
    contribute(0, 0);
    for (int i = 0; i < 4; i++)
        EXPECT_EQ(sweep(0), INAGG_SWEEP_NOTHING) << i;
    EXPECT_EQ(sweep(0), INAGG_SWEEP_EXPIRED);
    EXPECT_EQ(sweep(0), INAGG_SWEEP_EXPIRED) << "the agent may have missed the first";
}

TEST_F(Records, TheNextFrameDecidesWhatHasExpired) {
    policy.expiry_sweeps = 1;
    contribute(0, 0);
    sweep(0);
    sweep(0);
    EXPECT_EQ(contribute(0, 0), INAGG_COUNT | INAGG_COMPLETES) << "also one that is in";
    EXPECT_EQ(record(0).slot.seen, 1u);

    open_new(8);
    sweep(8);
    sweep(8);
    EXPECT_EQ(contribute(1, 8), INAGG_ADD | INAGG_COMPLETES) << "which is folded in";
    EXPECT_EQ(record(8).slot.seen, 3u);
}

TEST_F(Records, NothingExpiresWithoutAnExpiry) {
    contribute(0, 0);
    for (int i = 0; i < 1000; i++)
        EXPECT_EQ(sweep(0), INAGG_SWEEP_NOTHING);
    record(0).age = INAGG_MOST_SWEEPS;
    EXPECT_EQ(sweep(0), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(record(0).age, INAGG_MOST_SWEEPS) << "and does not wrap";
    EXPECT_EQ(inagg_record_finish(&record(0), &job), -INAGG_R_STALE);
}

TEST_F(Records, WholeBlocksWaitForAll) {
    policy.expiry_sweeps = 1;
    policy.quorum = 2;
    inagg_block b = block_of(0, 0);
    b.whole = 1;
    contribute(b);
    EXPECT_EQ(contribute(1, 0), INAGG_ADD) << "one rank's word is enough";
    for (int i = 0; i < 1000; i++)
        EXPECT_EQ(sweep(0), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(contribute(2, 0), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_FALSE(record(0).flags & INAGG_RECORD_DEGRADED);
}

TEST_F(Records, AJobThatShrinksWaitsForFewer) {
    contribute(0, 0);
    contribute(2, 0);
    job.all = 5;
    EXPECT_EQ(contribute(2, 0), INAGG_COUNT | INAGG_COMPLETES) << "the next frame notices";
    EXPECT_TRUE(record(0).flags & INAGG_RECORD_DEGRADED) << "of three ranks";
    open_new(8);
    EXPECT_EQ(contribute(2, 8), INAGG_ADD | INAGG_COMPLETES);
}

TEST_F(Records, AnExcludedRankCountsForNothing) {
    floor.known = 0;
    recover(0, 500);
    job.all = 5;
    const std::string before = bytes();
    EXPECT_EQ(contribute(1, 0, 500), -INAGG_R_EXCLUDED);
    EXPECT_EQ(contribute(1, 8), -INAGG_R_EXCLUDED);
    EXPECT_EQ(restore(1, 0, 7), -INAGG_R_EXCLUDED) << "it may know a result that the others have given up";
    const inagg_block b = block_of(1, 0);
    int found = 0;
    EXPECT_EQ(inagg_record_request(bucket.data(), &job, &b, 1, &found), -INAGG_R_EXCLUDED);
    EXPECT_EQ(found, -1);
    EXPECT_EQ(bytes(), before);
}

TEST_F(Records, ASweepFindsWhatNobodyIsMissingFromAnyMore) {
    inagg_block b = block_of(0, 0);
    b.whole = 1;
    contribute(b);
    contribute(2, 0);
    EXPECT_EQ(sweep(0), INAGG_SWEEP_NOTHING);
    job.all = 5;
    EXPECT_EQ(sweep(0), INAGG_SWEEP_EXPIRED) << "without an expiry, and though it waits for all ranks";
    EXPECT_EQ(inagg_record_finish(&record(0), &job), INAGG_COUNT | INAGG_COMPLETES);
    EXPECT_EQ(record(0).slot.seen, 5u);
    EXPECT_TRUE(record(0).flags & INAGG_RECORD_DEGRADED);
}

// A result of all ranks with that epoch may be on its way, from a record that is gone.
TEST_F(Records, AnExclusionBeginsRecoveriesAnew) {
    floor.known = 0;
    recover(0, 500);
    contribute(0, 0, 500);
    job.all = 5;
    EXPECT_EQ(contribute(2, 0, 500, 500), INAGG_TELL_ALL);
    EXPECT_EQ(record(0).slot.seen, 0u);
    EXPECT_TRUE(inagg_epoch_before(500, record(0).epoch)) << "in the same tick";
    EXPECT_EQ(open, 1u);
    const __u16 epoch = record(0).epoch;
    EXPECT_EQ(contribute(0, 0, epoch, 500), INAGG_STORE);
    EXPECT_EQ(contribute(2, 0, epoch, 500), INAGG_ADD | INAGG_COMPLETES);
}

TEST_F(Records, EachEraHasLaterEpochs) {
    for (const __u32 clock : {0U, 1U, 0x7fffU, 0xfffeU, 0xffffU}) {
        __u16 last = 0;
        for (const __u64 all : {7U, 5U, 4U}) {
            job.all = all;
            floor = {};
            const __u16 epoch = inagg_floor_epoch(&floor, &job, static_cast<__u16>(clock));
            EXPECT_NE(epoch, 0);
            EXPECT_TRUE(inagg_epoch_before(last, epoch)) << last << " and " << epoch;
            last = epoch;
        }
    }
}

TEST_F(Records, ASweepFreesARecoveryOfAnEarlierEra) {
    floor.known = 0;
    recover(0, 500);
    contribute(0, 0, 500);
    contribute(2, 0, 500);
    EXPECT_EQ(sweep(0), INAGG_SWEEP_NOTHING);
    job.all = 5;
    EXPECT_EQ(sweep(0), INAGG_SWEEP_FREED);
}

// The excluded rank may have gone on alone, and what it left may lie with one of the others.
TEST_F(Records, ALostFloorIsNotFoundWithoutAnExcludedRank) {
    floor = {};
    recover(0, 500);
    job.all = 5;
    EXPECT_EQ(contribute(0, 0, 500, 600), INAGG_TELL_ALL);
    const __u16 epoch = record(0).epoch;
    EXPECT_EQ(contribute(0, 0, epoch, 600), INAGG_STORE);
    EXPECT_EQ(contribute(2, 0, epoch, 600), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_FALSE(floor.known);
    EXPECT_EQ(contribute(0, 8, 0, 700), INAGG_TELL_ALL | INAGG_OPENS) << "recovering, too";
}

TEST_F(Records, FreeRecordsAreNotSwept) {
    inagg_record r{};
    EXPECT_EQ(inagg_record_sweep(&r, &job, &policy, now), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(r.age, 0);
}

// ---- floors and recovery ----

TEST(Floors, StartBelowTheFirstBlockOfTheirPosition) {
    const inagg_job job = some_job();
    for (__u32 position = 0; position < slots + control_slots; position++) {
        inagg_floor f = inagg_floor_at_start(&job, position);
        inagg_block b{};
        b.stream = position >= slots;
        b.block = b.stream ? position - slots : position;
        EXPECT_TRUE(inagg_floor_precedes(&f, &job, &b)) << position;
        EXPECT_EQ(inagg_position_of(&job, b.stream, b.block), position);
        b.block += b.stream ? control_slots : slots;
        EXPECT_FALSE(inagg_floor_precedes(&f, &job, &b)) << position;
    }
}

TEST_F(Records, OnlyTheNextBlockOfAPositionIsNew) {
    EXPECT_EQ(contribute(0, 8), INAGG_TELL_ALL | INAGG_OPENS) << "too far";
    EXPECT_EQ(contribute(0, 0), stored_first);
    EXPECT_EQ(floor.block, 0u);
    bucket = {};
    EXPECT_EQ(contribute(0, 0), INAGG_TELL_ALL | INAGG_OPENS) << "was opened before";
    EXPECT_EQ(floor.block, 0u);
    EXPECT_EQ(contribute(0, 8), stored_first);
}

TEST_F(Records, FloorsWrap) {
    floor.block = 0u - slots;
    EXPECT_EQ(contribute(0, 0), stored_first);
    floor.block = 0u - 2 * slots;
    EXPECT_EQ(contribute(0, 0u - slots), stored_first);
    EXPECT_EQ(contribute(0, 0u - 2 * slots), INAGG_TELL_ALL | INAGG_OPENS);
}

TEST_F(Records, WithoutAFloorAnyBlockIsRecovered) {
    floor = {};
    EXPECT_EQ(contribute(0, 0), INAGG_TELL_ALL | INAGG_OPENS);
    EXPECT_TRUE(record(0).flags & INAGG_RECORD_RECOVERING);
    EXPECT_EQ(record(0).slot.seen, 0u) << "who came does not count, it may yet believe an earlier result";
    floor = inagg_floor_at_start(&job, 0);
    floor.generation = 2;
    EXPECT_EQ(contribute(0, 8), INAGG_TELL_ALL | INAGG_OPENS) << "a floor of another generation";
}

TEST_F(Records, RecoveryTakesAllRanksOfItsEpoch) {
    policy.quorum = 1;
    policy.expiry_sweeps = 1;
    floor = {};
    recover(0, now);
    EXPECT_EQ(contribute(0, 0), INAGG_TELL) << "no epoch";
    EXPECT_EQ(contribute(0, 0, now - 1), INAGG_TELL);
    EXPECT_EQ(contribute(0, 0, now + 1), INAGG_TELL);
    EXPECT_EQ(record(0).slot.seen, 0u);
    EXPECT_EQ(contribute(0, 0, now), INAGG_STORE);
    EXPECT_EQ(contribute(1, 0, now), INAGG_ADD);
    EXPECT_EQ(request(0), INAGG_TELL);
    EXPECT_EQ(request(0, true), INAGG_TELL_ALL);
    for (int i = 0; i < 9; i++)
        EXPECT_EQ(sweep(0), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(contribute(2, 0, now), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(contribute(2, 0), INAGG_REPLY);
}

TEST_F(Records, AHolderGivesItsResultBack) {
    floor = {};
    recover(0, now);
    EXPECT_EQ(contribute(1, 0, now), INAGG_STORE);
    EXPECT_EQ(restore(2, 0, 0), -INAGG_R_RANK);
    EXPECT_EQ(restore(2, 0, 8), -INAGG_R_RANK) << "no such rank";
    EXPECT_EQ(restore(2, 0, 5), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(record(0).slot.seen, 5u);
    EXPECT_TRUE(record(0).flags & INAGG_RECORD_DEGRADED);
    EXPECT_EQ(restore(2, 0, 5), -INAGG_R_UNSOLICITED) << "decided";
    EXPECT_EQ(contribute(1, 0, now), INAGG_REPLY);
    EXPECT_FALSE(floor.known) << "the holder may have sent the next block";
}

TEST_F(Records, NobodyCanHoldAResultOfANewBlock) {
    EXPECT_EQ(restore(2, 0, 7), -INAGG_R_UNSOLICITED) << "not here";
    contribute(0, 0);
    EXPECT_EQ(restore(2, 0, 7), -INAGG_R_UNSOLICITED);
}

// All ranks get the same header, also those whose contribution the restore replaces.
TEST_F(Records, ARestoredResultIsAsSaturatedAsItWas) {
    floor = {};
    recover(0, now);
    inagg_block b = block_of(1, 0, now);
    b.saturated = 1;
    EXPECT_EQ(contribute(b), INAGG_STORE);
    EXPECT_EQ(restore(2, 0, 5), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_FALSE(record(0).slot.flags & INAGG_SLOT_SATURATED);
}

TEST_F(Records, AllRanksOfALaterTickMakeTheFloorKnown) {
    floor = {};
    recover(0, now);
    for (__u16 rank : {0, 1, 2})
        contribute(rank, 0, now);
    EXPECT_FALSE(floor.known) << "before the floor was lost, a switch may have asked in the same tick";
    recover(8, now + 1);
    for (__u16 rank : {0, 1, 2})
        contribute(rank, 8, now + 1);
    EXPECT_TRUE(floor.known);
    EXPECT_EQ(floor.generation, job.generation);
    EXPECT_EQ(floor.block, 8u);
    EXPECT_EQ(contribute(0, 16), stored_first);
}

TEST_F(Records, ARecoveredOldBlockDoesNotLowerTheFloor) {
    floor.block = 80;
    recover(0, now);
    for (__u16 rank : {0, 1, 2})
        contribute(rank, 0, now);
    EXPECT_EQ(floor.block, 80u);
    EXPECT_TRUE(floor.known);
}

TEST_F(Records, EpochsAreTheClockButNeverNone) {
    EXPECT_EQ(inagg_epoch_of(0), 0);
    EXPECT_EQ(inagg_epoch_of(5ULL << 22), 5);
    EXPECT_EQ(inagg_epoch_of(65541ULL << 22), 5);
    floor = {};
    EXPECT_EQ(contribute(0, 0, 0, 0), INAGG_TELL_ALL | INAGG_OPENS);
    EXPECT_EQ(record(0).epoch, 1);
}

// The clock may have wrapped, or begun again, since a floor was lost: then that counts as now.
TEST_F(Records, AFloorLostLongAgoIsFoundAgain) {
    floor = {};
    recover(0, now);
    const __u16 later = now + 40000;
    recover(8, later);
    for (__u16 rank : {0, 1, 2})
        contribute(rank, 8, later);
    EXPECT_FALSE(floor.known);
    recover(16, later + 1);
    for (__u16 rank : {0, 1, 2})
        contribute(rank, 16, later + 1);
    EXPECT_TRUE(floor.known);
}

TEST_F(Records, RecoveryThatNobodyContributesToGoes) {
    floor = {};
    recover(0, now);
    for (int i = 0; i < INAGG_RECOVERY_SWEEPS; i++)
        ASSERT_EQ(sweep(0), INAGG_SWEEP_NOTHING) << i;
    EXPECT_EQ(sweep(0), INAGG_SWEEP_FREED);
    EXPECT_EQ(find(0), -1);
    EXPECT_EQ(request(0), INAGG_TELL);
}

// However short the sweeps' period, a rank that is in has the time to be joined by others.
TEST_F(Records, RecoveryGivesAllRanksTime) {
    floor = {};
    recover(0, now);
    contribute(0, 0, now);
    for (int i = 0; i < 1000; i++)
        ASSERT_EQ(sweep(0, now + INAGG_RECOVERY_TICKS - 1), INAGG_SWEEP_NOTHING);
    EXPECT_GE(INAGG_RECOVERY_TICKS * (1ULL << 22), 8 * INAGG_RTO_CEILING_NS);
    contribute(1, 0, now);
    EXPECT_EQ(sweep(0, now + INAGG_RECOVERY_TICKS), INAGG_SWEEP_NOTHING) << "one has just come";
    for (int i = 1; i < INAGG_RECOVERY_SWEEPS; i++)
        ASSERT_EQ(sweep(0, now + INAGG_RECOVERY_TICKS), INAGG_SWEEP_NOTHING);
    EXPECT_EQ(sweep(0, now + INAGG_RECOVERY_TICKS), INAGG_SWEEP_FREED);
}
