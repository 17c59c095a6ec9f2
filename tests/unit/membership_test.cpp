// SPDX-License-Identifier: BSD-2-Clause
// What a rank says of itself while it is in a job, and what is answered.
#include <inagg/core/membership.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <iterator>

namespace {

constexpr __u64 nonce = 5, next_nonce = 6, ms = 1000000, now = 1000 * ms;

struct Membership : testing::Test {
    inagg_membership m{};
    inagg_job_config job{};
    inagg_hdr header{};
    inagg_config answer{};
    inagg_refusal echo{};

    Membership() {
        job.size = 3;
        job.generation = 2;
        job.elements = 64;
        job.algorithm = answer.algorithm = INAGG_TRIO;
        header.generation = inagg_swap16(2);
        header.contributors = inagg_swap64(7);
        answer.nonce = inagg_swap64(nonce);
        answer.size = inagg_swap16(3);
        answer.elements = inagg_swap16(64);
        answer.slots = inagg_swap32(8);
        answer.control_slots = inagg_swap32(2);
        m.nonce = nonce;
    }
    void begin(__u8 flags) {
        answer.flags = flags;
        inagg_membership_begin(&m, job.size, &header, &answer, now);
    }
    int config(__u64 of) {
        answer.nonce = inagg_swap64(of);
        return inagg_membership_config(&m, &job, &header, &answer);
    }
    int refused(__u64 of, __u32 reason) {
        echo.nonce = inagg_swap64(of);
        header.slot = inagg_swap32(reason);
        return inagg_membership_refused(&m, &job, &header, &echo);
    }
};

} // namespace

TEST_F(Membership, WhoIsNotWatchedSaysNothing) {
    begin(0);
    EXPECT_EQ(inagg_membership_due(&m), INAGG_NEVER_SAYS);
}

TEST_F(Membership, WhoIsWatchedSaysNowAndThenThatItIsThere) {
    begin(INAGG_JOIN_WATCHED);
    EXPECT_EQ(inagg_membership_due(&m), now + 250 * ms);
    EXPECT_EQ(inagg_membership_say(&m, now + 300 * ms), INAGG_SAY_PRESENT);
    EXPECT_EQ(inagg_membership_due(&m), now + 550 * ms);
}

TEST_F(Membership, TheSwitchSaysWhoAreStragglersAndForGood) {
    answer.stragglers.temporary = inagg_swap64(1 | 1ULL << 40);
    answer.stragglers.permanent = inagg_swap64(2);
    header.contributors = inagg_swap64(3);
    begin(INAGG_JOIN_WATCHED);
    EXPECT_EQ(m.excluded, 4u);
    EXPECT_EQ(m.temporary, 1u) << "ranks of the job";
    EXPECT_EQ(m.permanent, 2u | 4u) << "also who is excluded";
}

TEST_F(Membership, AGroupsAddressNamesNoRanks) {
    answer.group_port = 1;
    std::fill(std::begin(answer.group), std::end(answer.group), 0xff);
    begin(INAGG_JOIN_WATCHED);
    EXPECT_EQ(m.temporary | m.permanent, 0u);
}

TEST_F(Membership, WhoGoesOnAsksUntilItIsAnswered) {
    begin(INAGG_JOIN_WATCHED);
    inagg_membership_renew(&m, next_nonce);
    EXPECT_LE(inagg_membership_due(&m), now) << "at once";
    EXPECT_EQ(inagg_membership_say(&m, now), INAGG_SAY_PRESENT | INAGG_SAY_NEXT) << "others may need what it holds";
    EXPECT_EQ(inagg_membership_due(&m), now + 20 * ms);
    EXPECT_EQ(config(nonce), INAGG_CONFIRMED);
    EXPECT_EQ(inagg_membership_due(&m), now + 20 * ms) << "that was not the answer";
    header.generation = inagg_swap16(3);
    EXPECT_EQ(config(next_nonce), INAGG_RENEWED);
    EXPECT_EQ(job.generation, 3);
    EXPECT_EQ(m.nonce, next_nonce);
    EXPECT_EQ(inagg_membership_due(&m), now + 250 * ms);
    EXPECT_EQ(config(next_nonce), INAGG_CONFIRMED);
    EXPECT_EQ(config(nonce), INAGG_NO_NEWS);
}

TEST_F(Membership, TheAnswerTellsWhoIsExcludedAndWhoWaits) {
    begin(INAGG_JOIN_WATCHED);
    EXPECT_EQ(m.excluded, 0U);
    EXPECT_FALSE(inagg_membership_returning(&m));
    header.contributors = inagg_swap64(5);
    header.generation = inagg_swap16(9);
    answer.flags |= INAGG_JOIN_RETURNING;
    EXPECT_EQ(config(nonce), INAGG_CONFIRMED);
    EXPECT_EQ(m.excluded, 2U);
    EXPECT_TRUE(inagg_membership_returning(&m));
    EXPECT_EQ(job.generation, 2) << "this rank's";
}

TEST_F(Membership, AnAnswerThatIsOfAnotherOrMeansNothingIsNoNews) {
    begin(0);
    header.contributors = 0;
    EXPECT_EQ(config(7), INAGG_NO_NEWS);
    EXPECT_EQ(config(0), INAGG_NO_NEWS);
    answer.elements = inagg_swap16(32);
    EXPECT_EQ(config(nonce), INAGG_NO_NEWS) << "packets of another size";
    EXPECT_EQ(m.excluded, 0U);
}

TEST_F(Membership, OnlyARefusalWithItsNonceEndsIt) {
    begin(0);
    EXPECT_EQ(refused(7, INAGG_R_EXCLUDED), INAGG_NO_NEWS);
    inagg_membership_renew(&m, next_nonce);
    EXPECT_EQ(refused(next_nonce, INAGG_R_EXCLUDED), INAGG_NO_NEWS) << "not yet";
    EXPECT_EQ(refused(nonce, INAGG_R_EXCLUDED), INAGG_ENDED);
}

TEST_F(Membership, WhoAsksForTheNextGenerationIsThereUnderItsNextName) {
    begin(INAGG_JOIN_WATCHED);
    inagg_membership_renew(&m, next_nonce);
    EXPECT_EQ(refused(nonce, INAGG_R_REPLACED), INAGG_NO_NEWS) << "the next may have begun, and its CONFIG been lost";
    EXPECT_EQ(refused(nonce, INAGG_R_JOB), INAGG_NO_NEWS);
    EXPECT_EQ(refused(next_nonce, INAGG_R_REPLACED), INAGG_ENDED);
    EXPECT_EQ(refused(next_nonce, INAGG_R_JOB), INAGG_ENDED);
}

TEST_F(Membership, WhoGetsNoResultsAsksNowAndThen) {
    begin(0);
    inagg_membership_doubt(&m, now + 999 * ms);
    EXPECT_EQ(inagg_membership_due(&m), INAGG_NEVER_SAYS) << "it has just been told";
    inagg_membership_doubt(&m, now + 1000 * ms);
    EXPECT_LE(inagg_membership_due(&m), now + 1000 * ms);
    EXPECT_EQ(inagg_membership_say(&m, now + 1000 * ms), INAGG_SAY_PRESENT);
    inagg_membership_doubt(&m, now + 1999 * ms);
    EXPECT_EQ(inagg_membership_due(&m), INAGG_NEVER_SAYS);
    inagg_membership_doubt(&m, now + 2000 * ms);
    EXPECT_LE(inagg_membership_due(&m), now + 2000 * ms);
    header.generation = inagg_swap16(1);
    EXPECT_EQ(refused(0, INAGG_R_JOB), INAGG_NO_NEWS);
    EXPECT_LE(inagg_membership_due(&m), now + 2000 * ms) << "what is of another generation takes no doubt away";
}

TEST_F(Membership, WhoIsDoubtedAsksOnce) {
    begin(0);
    header.generation = inagg_swap16(1);
    EXPECT_EQ(refused(0, INAGG_R_JOB), INAGG_NO_NEWS);
    EXPECT_EQ(inagg_membership_due(&m), INAGG_NEVER_SAYS) << "of another generation";
    header.generation = inagg_swap16(2);
    EXPECT_EQ(refused(0, INAGG_R_JOB), INAGG_NO_NEWS);
    EXPECT_EQ(inagg_membership_due(&m), now + 20 * ms);
    EXPECT_EQ(inagg_membership_say(&m, now + 20 * ms), INAGG_SAY_PRESENT);
    EXPECT_EQ(inagg_membership_due(&m), INAGG_NEVER_SAYS);
}

TEST_F(Membership, AChallengeIsAnsweredAtOnce) {
    begin(INAGG_JOIN_WATCHED);
    inagg_hdr_set_challenge(&header, 77);
    EXPECT_EQ(refused(7, INAGG_R_CHALLENGE), INAGG_NO_NEWS);
    EXPECT_EQ(refused(nonce, INAGG_R_CHALLENGE), INAGG_CHALLENGED);
    EXPECT_EQ(m.challenge, 77U);
    EXPECT_LE(inagg_membership_due(&m), now);
    EXPECT_EQ(inagg_membership_say(&m, now), INAGG_SAY_PRESENT);
    EXPECT_EQ(refused(nonce, INAGG_R_CHALLENGE), INAGG_NO_NEWS) << "is known";
    inagg_membership_renew(&m, next_nonce);
    inagg_hdr_set_challenge(&header, 78);
    EXPECT_EQ(refused(next_nonce, INAGG_R_CHALLENGE), INAGG_CHALLENGED);
}
