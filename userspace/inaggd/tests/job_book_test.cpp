// SPDX-License-Identifier: BSD-2-Clause
#include "error.hpp"
#include "job_book.hpp"
#include "messages.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <gtest/gtest.h>
#include <inagg/core/packet.h>

#include <cstring>

using namespace inaggd;
using namespace std::chrono_literals;
using Kind = Outcome::Change::Kind;
using Verdict = Outcome::Verdict;

namespace {

// A worker: rank r behind port 100 + r at 10.77.0.(10 + r).
struct Worker {
    uint16_t job = 7, rank = 0, size = 2, elements = 352;
    uint64_t nonce = 1;
    uint32_t port = 100;
    uint8_t host = 10;
    uint16_t receive_port = 5000;
    uint8_t algorithm = INAGG_SWITCHML, flags = 0;
    Stragglers stragglers{};
    uint32_t slots = 0; // of a switch: what its links carry

    static Worker of(uint16_t rank, uint16_t size = 2) {
        Worker w;
        w.rank = rank;
        w.size = size;
        w.nonce = 1000u + rank;
        w.port = 100u + rank;
        w.host = static_cast<uint8_t>(10 + rank);
        return w;
    }
    Worker again(uint64_t new_nonce) const {
        Worker w = *this;
        w.nonce = new_nonce;
        return w;
    }
    inagg_event event(uint8_t type = INAGG_JOIN, uint16_t generation = 0) const {
        inagg_event e{};
        e.ifindex = port;
        e.family = 4;
        e.type = type;
        e.job = job;
        e.rank = rank;
        e.generation = generation;
        e.mac[0] = 2;
        e.mac[5] = host;
        const uint8_t address[4] = {10, 77, 0, host};
        std::copy_n(address, 4, e.address);
        e.join.nonce = nonce;
        e.join.size = htobe16(size);
        e.join.elements = htobe16(elements);
        e.join.receive_port = htons(receive_port);
        e.join.algorithm = algorithm;
        e.join.flags = flags;
        e.join.expiry_us = htobe32(stragglers.expiry_us);
        e.join.quorum = htobe16(stragglers.quorum);
        e.join.exclude_ms = htobe32(stragglers.exclude_ms);
        e.join.slots = htobe32(slots);
        return e;
    }
};

class Book : public ::testing::Test {
protected:
    Policy policy{};
    JobBook book{policy, [] { return uint16_t{65535}; }};
    Time now = Time{} + 1h;

    Outcome join(const Worker &w) { return book.join(w.event(), now); }
    // As it repeats its JOIN once it has joined, in that generation.
    Outcome join_again(const Worker &w, uint16_t of, uint8_t flags = 0) {
        inagg_event event = w.event(INAGG_JOIN, of);
        event.hdr.boot = htons(9); // as CONFIG told it
        event.join.flags |= flags;
        return book.join(event, now);
    }
    Outcome leave(const Worker &w) { return book.leave(w.event(INAGG_LEAVE, generation(w.job)), now); }
    uint16_t generation(uint16_t job = 7) const { return book.jobs().at(job).record.generation; }
    const JobState &job(uint16_t number = 7) const { return book.jobs().at(number); }
    bool has(uint16_t number) const { return book.jobs().contains(number); }

    void expect_done(const Outcome &outcome) {
        EXPECT_EQ(outcome.verdict, Verdict::done) << outcome.detail << reason_name(outcome.reason);
    }
    inagg_job job_of_one(uint16_t number, uint8_t algorithm) {
        Worker w = Worker::of(0, 1);
        w.job = number;
        w.nonce = number;
        w.port = 100u + number;
        w.host = static_cast<uint8_t>(number);
        w.algorithm = algorithm;
        expect_done(join(w));
        return book.jobs().at(number).record;
    }
    void expect_ignored(const Outcome &outcome) {
        EXPECT_EQ(outcome.verdict, Verdict::ignored) << reason_name(outcome.reason);
        EXPECT_TRUE(outcome.changes.empty());
    }
    void expect_refused(const Outcome &outcome, inagg_reason reason) {
        EXPECT_EQ(outcome.verdict, Verdict::refused) << outcome.detail;
        EXPECT_EQ(outcome.reason, reason) << reason_name(outcome.reason);
        EXPECT_TRUE(outcome.changes.empty());
    }
    // Refused only after the time in which a restart of the job could have helped.
    void expect_refused_late(const Worker &w, inagg_reason reason) {
        expect_ignored(join(w));
        now += patience;
        expect_refused(join(w), reason);
    }
    void join_all(uint16_t size) {
        for (uint16_t rank = 0; rank < size; rank++)
            expect_done(join(Worker::of(rank, size)));
    }
    // Three ranks of a job that excludes those that are silent for 5 s.
    static Worker watched(uint16_t rank) {
        Worker w = Worker::of(rank, 3);
        w.algorithm = INAGG_TRIO;
        w.stragglers.exclude_ms = 5000;
        return w;
    }
    void join_watched() {
        for (uint16_t rank = 0; rank < 3; rank++)
            expect_done(join(watched(rank)));
    }
    Outcome renew(uint16_t rank) {
        Worker w = watched(rank).again(2000u + rank);
        w.flags = INAGG_JOIN_RENEW;
        return book.join(w.event(INAGG_JOIN, generation()), now);
    }
    void expect_put_off(const Outcome &outcome, inagg_reason reason = INAGG_R_NONE) {
        EXPECT_EQ(outcome.verdict, Verdict::put_off) << outcome.detail << reason_name(outcome.reason);
        EXPECT_EQ(outcome.reason, reason);
    }
    JobSpec spec(const std::string &text) { return parse_job_spec(text); }
    Outcome add(const std::string &text) {
        return book.add(
            spec(text), [](const std::string &name) { return name == "p0" ? 100u : 101u; }, now);
    }
};

} // namespace

TEST(Elements, FollowTheMtu) {
    EXPECT_EQ(elements_for_mtu(1500, 4), 352);
    EXPECT_EQ(elements_for_mtu(1500, 6), 320);
    EXPECT_EQ(elements_for_mtu(3498, 4), INAGG_MAX_ELEMENTS);
    EXPECT_EQ(elements_for_mtu(9000, 4), INAGG_MAX_ELEMENTS);
    EXPECT_EQ(elements_for_mtu(220, 4), 32);
    EXPECT_EQ(elements_for_mtu(219, 4), 0);
    EXPECT_EQ(elements_for_mtu(0, 4), 0);
}

TEST_F(Book, FirstJoinCreatesTheJob) {
    Outcome outcome = join(Worker::of(1, 3));
    expect_done(outcome);
    ASSERT_EQ(outcome.changes.size(), 2u);
    EXPECT_EQ(outcome.changes[0].kind, Kind::renew);
    EXPECT_EQ(outcome.changes[1].kind, Kind::members);
    const inagg_job &record = job().record;
    EXPECT_EQ(record.size, 3);
    EXPECT_EQ(record.all, 7u);
    EXPECT_EQ(record.slots, 128u);
    EXPECT_EQ(record.control_slots, 8u);
    EXPECT_EQ(record.elements, 352);
    EXPECT_EQ(record.fan_in_log2, 2);
    EXPECT_EQ(record.generation, 65535);
    EXPECT_FALSE(record.keep);
    EXPECT_EQ(joined_count(job().members), 1u);
    const inagg_member &member = job().members[1];
    EXPECT_EQ(member.ifindex, 101u);
    EXPECT_EQ(member.receive_port, htons(5000));
    EXPECT_EQ(member.address[3], 11);
    EXPECT_EQ(member.mac[5], 11);
    EXPECT_EQ(member.nonce, 1001u);
}

TEST_F(Book, RepeatedJoinChangesNothing) {
    join_all(2);
    expect_ignored(join(Worker::of(0)));
    EXPECT_EQ(generation(), 65535);
}

TEST_F(Book, ElementsAreLimitedByPortsAndWholeChunks) {
    book.policy().mtu = 1000;
    Worker w = Worker::of(0);
    w.elements = 352;
    expect_done(join(w));
    EXPECT_EQ(job().record.elements, 224);
    w = Worker::of(0);
    w.job = 8;
    w.nonce = 5;
    w.elements = 100;
    expect_done(join(w));
    EXPECT_EQ(job(8).record.elements, 96);
}

TEST_F(Book, NonsenseIsIgnored) {
    auto ignored_with = [&](auto change) {
        inagg_event event = Worker::of(0).event();
        change(event);
        expect_ignored(book.join(event, now));
    };
    ignored_with([](inagg_event &e) { e.join.nonce = 0; });
    ignored_with([](inagg_event &e) { e.join.receive_port = 0; });
    ignored_with([](inagg_event &e) { e.ifindex = 0; });
    ignored_with([](inagg_event &e) { e.family = 5; });
    ignored_with([](inagg_event &e) { e.address[0] = 224; });
    ignored_with([](inagg_event &e) { e.address[0] = 127; });
    ignored_with([](inagg_event &e) { e.mac[0] |= 1; });
    ignored_with([](inagg_event &e) { std::fill_n(e.mac, 6, uint8_t{0}); });
    EXPECT_FALSE(has(7));
}

TEST_F(Book, ImpossibleRequestsAreRefused) {
    Worker w = Worker::of(0);
    w.size = 0;
    expect_refused(join(w), INAGG_R_SIZE);
    w.size = 65;
    expect_refused(join(w), INAGG_R_SIZE);
    w = Worker::of(2, 2);
    expect_refused(join(w), INAGG_R_RANK);
    w = Worker::of(0);
    w.algorithm = INAGG_ATP;
    expect_refused(join(w), INAGG_R_ALGORITHM);
    w.algorithm = 200;
    expect_refused(join(w), INAGG_R_ALGORITHM);
    w = Worker::of(0);
    w.elements = 31;
    expect_refused(join(w), INAGG_R_MTU);
    EXPECT_FALSE(has(7));
}

Worker trio(uint16_t rank, Stragglers stragglers) {
    Worker w = Worker::of(rank);
    w.algorithm = INAGG_TRIO;
    w.stragglers = stragglers;
    return w;
}

TEST_F(Book, TheFirstRankSaysWhenStragglersAreGivenUp) {
    expect_done(join(trio(0, {.expiry_us = 10000, .quorum = 1})));
    EXPECT_EQ(job().record.algorithm, INAGG_TRIO);
    EXPECT_EQ(job().stragglers.expiry_us, 10000u);
    EXPECT_EQ(job().stragglers.quorum, 1);
}

TEST_F(Book, RanksAgreeOnTheAlgorithmOrTakeTheJobs) {
    join(trio(0, {.expiry_us = 10000}));
    const Worker other = trio(1, {.expiry_us = 20000});
    expect_ignored(join(other));
    now += 2 * patience;
    expect_refused(join(other), INAGG_R_ALGORITHM);
    const Worker waits_for_all = Worker::of(1).again(77);
    expect_ignored(join(waits_for_all));
    now += 2 * patience;
    expect_refused(join(waits_for_all), INAGG_R_ALGORITHM);
    expect_done(join(trio(1, {}).again(78)));
}

TEST_F(Book, ANewRunMayChooseAnotherAlgorithm) {
    join(trio(0, {.expiry_us = 10000}));
    join(trio(1, {.expiry_us = 10000}));
    expect_done(join(Worker::of(0).again(99)));
    EXPECT_EQ(job().record.algorithm, INAGG_SWITCHML);
    EXPECT_EQ(job().stragglers, Stragglers{});
}

TEST_F(Book, AJobHasAddressesOfOneFamily) {
    join(Worker::of(0));
    inagg_event event = Worker::of(1).event();
    event.family = 6;
    event.address[0] = 0xfd;
    expect_ignored(book.join(event, now));
    now += 2 * patience;
    expect_refused(book.join(event, now), INAGG_R_ADDRESS);
    expect_done(join(Worker::of(1)));
}

TEST_F(Book, AnExpiryKeepsNoProcessorBusyAndIsTriosAlone) {
    for (const uint32_t expiry_us : {1u, least_expiry_us - 1, most_expiry_us + 1})
        expect_refused(join(trio(0, {.expiry_us = expiry_us})), INAGG_R_POLICY);
    for (const Stragglers stragglers : {Stragglers{.expiry_us = 10000}, {.quorum = 1}, {.exclude_ms = least_exclude_ms}}) {
        Worker w = trio(0, stragglers);
        w.algorithm = INAGG_SWITCHML;
        expect_refused(join(w), INAGG_R_POLICY);
    }
    EXPECT_FALSE(has(7));
    expect_done(join(trio(0, {.expiry_us = least_expiry_us})));
}

TEST_F(Book, AQuorumIsNoLargerThanTheJob) {
    expect_refused(join(trio(0, {.quorum = 3})), INAGG_R_SIZE);
    EXPECT_FALSE(has(7));
}

TEST_F(Book, JobsWithRecordsTakeNoSlotsOfTheOthers) {
    book.policy().slots = 2 * (book.policy().job_slots + book.policy().job_control);
    for (uint16_t number = 1; number <= 4; number++) {
        Worker w = number % 2 ? trio(0, {}) : Worker::of(0);
        w.job = number;
        w.nonce = number;
        w.port = 200u + number;
        expect_done(join(w));
    }
    EXPECT_EQ(job(1).record.first_slot, job(2).record.first_slot);
    EXPECT_EQ(job(3).record.first_slot, job(4).record.first_slot);
    EXPECT_NE(job(1).record.first_slot, job(3).record.first_slot);
}

TEST_F(Book, SixtyFourRanksFit) {
    join_all(64);
    EXPECT_EQ(job().record.all, ~uint64_t{0});
    EXPECT_EQ(joined_count(job().members), 64u);
}

TEST_F(Book, PolicyMayForbidNewJobs) {
    book.policy().auto_jobs = false;
    expect_refused(join(Worker::of(0)), INAGG_R_POLICY);
    add("7:size=2");
    expect_done(join(Worker::of(0)));
}

TEST_F(Book, OtherSizeOrSmallerMtuIsRefused) {
    expect_done(join(Worker::of(0)));
    expect_refused_late(Worker::of(1, 3), INAGG_R_SIZE);
    Worker w = Worker::of(1);
    w.nonce = 77;
    w.elements = 320;
    expect_refused_late(w, INAGG_R_MTU);
    w.elements = 832;
    expect_done(join(w));
    EXPECT_EQ(job().record.elements, 352);
}

TEST_F(Book, RankOfAnotherHostIsTaken) {
    join_all(2);
    Worker thief = Worker::of(0).again(66);
    thief.host = 99;
    expect_refused_late(thief, INAGG_R_TAKEN);
    thief = Worker::of(0).again(67);
    thief.port = 199;
    expect_refused_late(thief, INAGG_R_TAKEN);
    thief = Worker::of(0); // right nonce, wrong address
    thief.host = 99;
    expect_ignored(join(thief));
    EXPECT_EQ(job().members[0].nonce, 1000u);
    EXPECT_EQ(generation(), 65535);
}

TEST_F(Book, OneHostMayHoldTwoRanksAtTwoPorts) {
    expect_done(join(Worker::of(0)));
    Worker second = Worker::of(0).again(5);
    second.rank = 1;
    expect_refused_late(second, INAGG_R_TAKEN);
    second.receive_port = 5001;
    expect_done(join(second));
    EXPECT_EQ(joined_count(job().members), 2u);
}

TEST_F(Book, MemberMayMoveWithItsNonce) {
    join_all(2);
    Worker moved = Worker::of(0);
    moved.port = 150;
    moved.receive_port = 6000;
    expect_done(join(moved));
    EXPECT_EQ(job().members[0].ifindex, 150u);
    EXPECT_EQ(job().members[0].receive_port, htons(6000));
    EXPECT_EQ(generation(), 65535);
}

TEST_F(Book, NewNonceFromTheSamePlaceRestartsTheJob) {
    join_all(2);
    Outcome outcome = join(Worker::of(0).again(50));
    expect_done(outcome);
    EXPECT_EQ(outcome.changes[0].kind, Kind::renew);
    EXPECT_EQ(generation(), 0) << "65535 + 1";
    EXPECT_EQ(joined_count(job().members), 1u);
    ASSERT_EQ(outcome.displaced.size(), 2u);
    EXPECT_EQ(outcome.displaced[1].member.nonce, 1001u);
    EXPECT_EQ(outcome.displaced[1].generation, 65535);
    EXPECT_EQ(outcome.displaced[1].reason, INAGG_R_REPLACED);

    expect_ignored(join(Worker::of(0))); // late copies of the old run
    expect_ignored(join(Worker::of(1)));
    expect_done(join(Worker::of(1).again(51)));
    EXPECT_EQ(generation(), 0);
}

TEST_F(Book, RestartMayChangeTheSize) {
    join_all(2);
    Worker w = Worker::of(0, 5).again(50);
    w.elements = 64;
    expect_done(join(w));
    EXPECT_EQ(job().record.size, 5);
    EXPECT_EQ(job().record.elements, 64);
    EXPECT_NE(generation(), 65535);
    EXPECT_EQ(joined_count(job().members), 1u);
}

TEST_F(Book, ALargerRunMayBeginWithANewRank) {
    join_all(2);
    Worker third = Worker::of(2, 3).again(52);
    expect_ignored(join(third)); // patience, not a refusal
    expect_done(join(Worker::of(0, 3).again(50)));
    expect_done(join(third));
    EXPECT_EQ(joined_count(job().members), 2u);
}

TEST_F(Book, LastLeaveRemovesTheJob) {
    join_all(2);
    Outcome outcome = leave(Worker::of(0));
    expect_done(outcome);
    EXPECT_EQ(outcome.changes.at(0).kind, Kind::members);
    EXPECT_EQ(joined_count(job().members), 1u);
    outcome = leave(Worker::of(1));
    EXPECT_EQ(outcome.changes.at(0).kind, Kind::remove);
    EXPECT_FALSE(has(7));
    expect_ignored(join(Worker::of(0))); // a late copy does not bring the job back
    EXPECT_FALSE(has(7));
    expect_done(join(Worker::of(0).again(60)));
    EXPECT_EQ(generation(), 0) << "not the last generation again";
}

TEST_F(Book, WhoMissedTheEndIsToldWhenItAsks) {
    join_all(2);
    const uint16_t first = generation();
    expect_ignored(join_again(Worker::of(0), first));
    expect_ignored(join_again(Worker::of(1), first));
    expect_done(join(Worker::of(0).again(50)));
    const uint16_t second = generation();
    expect_refused(join_again(Worker::of(1), first), INAGG_R_REPLACED);
    expect_refused(join_again(Worker::of(0), first), INAGG_R_REPLACED);
    EXPECT_EQ(generation(), second) << "it is no new run of rank 0";
    EXPECT_EQ(joined_count(job().members), 1u);
    expect_done(join(Worker::of(1).again(51)));
    expect_refused(join_again(Worker::of(1), first), INAGG_R_REPLACED);
    leave(Worker::of(1).again(51));
    expect_refused(join_again(Worker::of(1).again(51), second), INAGG_R_JOB);
    leave(Worker::of(0).again(50));
    EXPECT_FALSE(has(7));
    expect_refused(join_again(Worker::of(0).again(50), second), INAGG_R_JOB);
    EXPECT_FALSE(has(7));
}

TEST_F(Book, LeaveIsBelievedOnlyFromTheMember) {
    join_all(2);
    Worker liar = Worker::of(0);
    liar.port = 190;
    expect_ignored(leave(liar));
    liar = Worker::of(0);
    liar.host = 99;
    expect_ignored(leave(liar));
    expect_ignored(leave(Worker::of(0).again(3)));
    expect_ignored(book.leave(Worker::of(0).event(INAGG_LEAVE, 5), now));
    liar = Worker::of(0);
    liar.rank = 64;
    expect_ignored(leave(liar));
    expect_ignored(book.leave(
        [] {
            Worker w = Worker::of(0);
            w.job = 9;
            return w.event(INAGG_LEAVE);
        }(),
        now));
    EXPECT_EQ(joined_count(job().members), 2u);
}

TEST_F(Book, NextRunWaitsUntilTheLastOneHasLeft) {
    join_all(2);
    expect_done(leave(Worker::of(0)));
    expect_ignored(join(Worker::of(0).again(50)));
    EXPECT_EQ(generation(), 65535) << "rank 1 still finishes";
    expect_done(leave(Worker::of(1)));
    expect_done(join(Worker::of(0).again(50)));
    EXPECT_EQ(generation(), 0);
}

TEST_F(Book, NextRunDoesNotWaitForTheDead) {
    join_all(2);
    expect_done(leave(Worker::of(0)));
    expect_ignored(join(Worker::of(0).again(50)));
    now += patience;
    expect_done(join(Worker::of(0).again(50)));
    EXPECT_EQ(generation(), 0);
    EXPECT_EQ(joined_count(job().members), 1u);
}

TEST_F(Book, AFloodOfJoinsEndsNobodysPatience) {
    Worker flooder = Worker::of(0);
    flooder.job = 9;
    flooder.port = 105;
    expect_done(join(flooder));
    join_all(2);
    expect_done(leave(Worker::of(0)));
    Worker other = Worker::of(1);
    other.job = 9;
    for (uint16_t rank = 0; rank < 2; rank++) // of another size, behind the flooder's port and that of rank 0
        for (uint64_t nonce = 1; nonce < 2000; nonce++) {
            Worker w = other.again(10'000 + nonce);
            w.port = rank ? flooder.port : Worker::of(0).port;
            w.size = 3;
            expect_ignored(join(w));
        }
    expect_ignored(join(Worker::of(0).again(50)));
    EXPECT_EQ(generation(), 65535) << "rank 1 still finishes";
    for (uint64_t nonce = 2000; nonce < 4000; nonce++) {
        Worker w = other.again(10'000 + nonce);
        w.port = Worker::of(0).port;
        w.size = 3;
        join(w);
    }
    now += patience;
    expect_done(join(Worker::of(0).again(50)));
}

TEST_F(Book, WhatIsConfiguredAgainIsTheSameJobOrNone) {
    expect_done(add("7:size=2"));
    book.policy().mtu = 9000; // of which its elements would be others
    book.policy().job_slots = 64;
    expect_ignored(add("7:size=2"));
    book.policy().mtu = 1000;
    expect_ignored(add("7:size=2"));
    book.policy().mtu = 1500;
    expect_done(add("8:size=2,member=0@p0/10.77.0.10"));
    expect_ignored(add("8:size=2,member=0@p0/10.77.0.10"));
    expect_done(add("8:size=2,member=0@p1/10.77.0.10")); // as if p0 had been made anew
    EXPECT_EQ(job(8).members[0].ifindex, 101u);
    expect_done(add("8:size=2,member=0@p0/10.77.0.10"));
    for (const char *other : {"7:size=3", "7:size=2,slots=256", "7:size=2,member=0@p0/10.77.0.10", "8:size=2",
                              "8:size=2,member=0@p0/10.77.0.11", "8:size=2,member=1@p0/10.77.0.10"})
        EXPECT_THROW(add(other), Error) << other;
}

TEST_F(Book, SeveralBlocksInAPacketWherePortsCarryThem) {
    const auto blocks_of = [&](const std::string &settings) {
        expect_done(add("7:size=2" + settings));
        const unsigned blocks = job().record.blocks;
        expect_done(book.remove(7));
        return blocks;
    };
    book.policy().mtu = 9000;
    EXPECT_EQ(blocks_of(""), 0u) << "no program for them";
    EXPECT_EQ(blocks_of(",elements=832,blocks=2"), 0u);
    book.policy().several = true;
    EXPECT_EQ(blocks_of(""), 2u) << "of 832";
    EXPECT_EQ(blocks_of(",blocks=3"), 2u) << "no more than fit";
    EXPECT_EQ(blocks_of(",blocks=1"), 1u);
    EXPECT_EQ(blocks_of(",elements=512"), 1u) << "who says how long packets are";
    EXPECT_EQ(blocks_of(",elements=512,blocks=4"), 4u);
    EXPECT_EQ(blocks_of(",elements=512,blocks=3"), 3u);
    EXPECT_EQ(blocks_of(",elements=352,blocks=4"), 0u) << "two might be one";
    for (const char *none : {",checked", ",algorithm=panama", ",algorithm=canary"})
        EXPECT_EQ(blocks_of(none), 0u) << none;
    expect_done(add("7:size=2"));
    book.policy().mtu = 3498;
    expect_ignored(add("7:size=2"));
    EXPECT_EQ(job().record.blocks, 2) << "its ranks know";
    expect_done(book.remove(7));
    EXPECT_EQ(blocks_of(""), 0u);
    book.policy().mtu = 4250;
    EXPECT_EQ(blocks_of(",elements=512,blocks=2"), 2u);
    Worker w = Worker::of(0);
    w.elements = 512;
    expect_done(join(w));
    EXPECT_EQ(job().record.blocks, 2);
}

TEST_F(Book, ConfiguredJobStaysAndBeginsAnew) {
    expect_done(add("7:size=2,slots=64,control=4,elements=320,checked"));
    EXPECT_EQ(job().record.slots, 64u);
    EXPECT_EQ(job().record.flags, INAGG_JOIN_CHECKED);
    join_all(2);
    uint16_t before = generation();
    expect_done(leave(Worker::of(0)));
    Outcome outcome = leave(Worker::of(1));
    EXPECT_EQ(outcome.changes.at(0).kind, Kind::renew);
    EXPECT_EQ(generation(), static_cast<uint16_t>(before + 1));
    expect_done(join(Worker::of(0).again(50)));
    EXPECT_EQ(generation(), static_cast<uint16_t>(before + 1));
}

TEST_F(Book, ConfiguredMembersAreHeldToPortAndAddress) {
    add("7:size=2,member=0@p0/10.77.0.10,member=1@p1/10.77.0.11");
    EXPECT_EQ(joined_count(job().members), 0u);
    Worker other = Worker::of(0);
    other.port = 101;
    expect_refused(join(other), INAGG_R_PORT);
    other = Worker::of(0);
    other.host = 12;
    expect_refused(join(other), INAGG_R_ADDRESS);
    join_all(2);
    other = Worker::of(0);
    other.port = 101;
    expect_ignored(join_again(other, generation())); // it is a member: to be refused would end it
    expect_done(leave(Worker::of(0)));
    expect_done(leave(Worker::of(1)));
    EXPECT_EQ(job().members[0].ifindex, 100u) << "still configured";
    EXPECT_EQ(joined_count(job().members), 0u);
    other = Worker::of(1).again(9);
    other.port = 100;
    expect_refused(join(other), INAGG_R_PORT);
}

TEST_F(Book, ConfiguredJobKeepsItsSizeInARestart) {
    add("7:size=2");
    join_all(2);
    expect_refused(join(Worker::of(0, 3).again(50)), INAGG_R_SIZE);
    EXPECT_EQ(joined_count(job().members), 2u);
}

TEST_F(Book, AddingTwiceIsOnceAndOtherwiseAnError) {
    add("7:size=2");
    expect_ignored(add("7:size=2"));
    EXPECT_THROW(add("7:size=3"), Error);
    EXPECT_THROW(add("8:size=2,elements=832"), Error) << "does not fit an MTU of 1500";
    EXPECT_THROW(book.remove(9), Error);
    Outcome outcome = book.remove(7);
    EXPECT_EQ(outcome.changes.at(0).kind, Kind::remove);
    EXPECT_FALSE(has(7));
}

TEST_F(Book, PoolsNeverOverlap) {
    for (uint16_t number = 0; number < 30; number++) {
        Worker w = Worker::of(0);
        w.job = number;
        w.nonce = w.port = 100u + number;
        expect_done(join(w));
    }
    Worker w = Worker::of(0).again(999);
    w.job = 30;
    w.port = 130;
    expect_refused(join(w), INAGG_R_FULL); // 31 * 136 > 4096
    for (const auto &[a, first] : book.jobs())
        for (const auto &[b, second] : book.jobs())
            if (a < b) {
                EXPECT_NE(first.record.index, second.record.index);
                EXPECT_TRUE(first.record.first_slot + 136 <= second.record.first_slot ||
                            second.record.first_slot + 136 <= first.record.first_slot);
            }
    book.remove(3);
    expect_done(join(w));
    EXPECT_EQ(job(30).record.index, 3u);
    EXPECT_EQ(job(30).record.first_slot, 3u * 136);
}

TEST_F(Book, JobNumbersRunOut) {
    book.policy().job_slots = 8;
    for (uint16_t number = 0; number < INAGG_MAX_JOBS; number++) {
        Worker w = Worker::of(0);
        w.job = number;
        w.nonce = w.port = 100u + number;
        expect_done(join(w));
    }
    Worker w = Worker::of(0).again(999);
    w.job = 1000;
    w.port = 1000;
    expect_refused(join(w), INAGG_R_FULL);
}

TEST_F(Book, SilentJobsGiveWayWhenTheirPlaceIsNeeded) {
    book.policy().slots = 2 * 136;
    for (uint16_t number : {1, 2}) {
        Worker w = Worker::of(0).again(100u + number);
        w.job = number;
        expect_done(join(w));
        now += 1s;
    }
    Worker third = Worker::of(0).again(300);
    third.job = 3;
    expect_refused(join(third), INAGG_R_FULL);
    now += book.policy().idle;
    book.heard(1, now);
    Outcome outcome = join(third);
    expect_done(outcome);
    EXPECT_EQ(outcome.changes.at(0).kind, Kind::remove);
    EXPECT_EQ(outcome.changes.at(0).job, 2);
    EXPECT_EQ(outcome.displaced.size(), 1u);
    EXPECT_TRUE(has(1));
    EXPECT_FALSE(has(2));
}

TEST_F(Book, WhoSaysThatItIsThereIsNotSilent) {
    book.policy().slots = 136;
    expect_done(join(Worker::of(0)));
    now += book.policy().idle;
    book.announced(7, now);
    now += 1s;
    Worker other = Worker::of(0).again(300);
    other.job = 3;
    expect_refused(join(other), INAGG_R_FULL);
    EXPECT_TRUE(has(7));
}

TEST_F(Book, SilentJobGivesItsNumberToOtherHosts) {
    join_all(2);
    now += book.policy().idle + 1s;
    Worker other = Worker::of(0).again(70);
    other.host = 50;
    expect_done(join(other));
    EXPECT_EQ(joined_count(job().members), 1u);
    EXPECT_EQ(job().members[0].address[3], 50);
}

TEST_F(Book, TheRanksOfASilentConfiguredJobGiveWay) {
    add("7:size=2");
    join_all(2);
    Worker other = Worker::of(0).again(70);
    other.host = 50;
    expect_refused_late(other, INAGG_R_TAKEN);
    now += book.policy().idle + 1s;
    expect_done(join(other));
    EXPECT_EQ(joined_count(job().members), 1u);
    EXPECT_EQ(job().members[0].address[3], 50);
}

// All processes were killed, and their scheduler has dealt the ranks out anew.
TEST_F(Book, TheSameHostsMayComeAgainWithOtherRanks) {
    join_all(3);
    const uint16_t first = job().record.generation;
    const auto turned = [](uint16_t rank) {
        Worker w = Worker::of(rank, 3), at = Worker::of((rank + 1) % 3, 3);
        w.nonce = 70u + rank;
        w.port = at.port;
        w.host = at.host;
        return w;
    };
    now += patience - 1ms;
    EXPECT_EQ(join(turned(0)).verdict, Verdict::ignored) << "they may still run";
    now += 1ms;
    Outcome outcome = join(turned(0));
    expect_done(outcome);
    EXPECT_EQ(outcome.displaced.size(), 3u);
    EXPECT_NE(job().record.generation, first);
    expect_done(join(turned(1)));
    expect_done(join(turned(2)));
    EXPECT_EQ(joined_count(job().members), 3u);
}

TEST_F(Book, WhoHasNoRankOfASilentJobCannotTakeOne) {
    join_all(2);
    now += 10 * patience;
    Worker other = Worker::of(0).again(70);
    other.host = 50;
    expect_refused_late(other, INAGG_R_TAKEN);
}

TEST_F(Book, ARankOfAJobThatLacksRanksIsNoFormerOne) {
    expect_done(join(Worker::of(0, 3)));
    expect_done(join(Worker::of(1, 3)));
    now += 10 * patience;
    Worker other = Worker::of(1, 3).again(70);
    other.host = Worker::of(0).host;
    other.port = Worker::of(0).port;
    expect_refused_late(other, INAGG_R_TAKEN);
}

TEST_F(Book, ConfiguredJobsNeverGiveWay) {
    book.policy().slots = 136;
    add("1:size=2");
    now += 2 * book.policy().idle;
    expect_refused(join(Worker::of(0)), INAGG_R_FULL);
    EXPECT_TRUE(has(1));
}

TEST_F(Book, ARankIsWhereItsLatestJoinCameFrom) {
    Worker w = Worker::of(0);
    inagg_event event = w.event();
    event.mac[1] ^= 4; // damaged on the way
    expect_done(book.join(event, now));
    const uint16_t first = job().record.generation;
    expect_done(join(w));
    EXPECT_EQ(job().members[0].mac[1], 0);
    expect_ignored(join(w));
    EXPECT_EQ(job().record.generation, first);
}

TEST_F(Book, OnePortCannotFillTheSwitchWithJobsOfItsOwn) {
    Worker w = Worker::of(0, 1), elsewhere = w.again(2000);
    elsewhere.port++;
    elsewhere.host++;
    elsewhere.job = 100;
    expect_done(join(elsewhere));
    add("101:size=1,member=0@p0/10.77.0.10"); // configured: not the port's choice
    for (uint16_t number = 1; number <= book.policy().port_jobs; number++) {
        w.job = number;
        expect_done(join(w.again(number)));
    }
    w.job = 50;
    const Outcome refusal = join(w.again(50));
    expect_refused(refusal, INAGG_R_FULL);
    EXPECT_EQ(refusal.detail, "all ranks of 8 jobs are behind this port (--port-jobs); remove some");
    elsewhere.job = 50;
    expect_done(join(elsewhere.again(51)));
    now += book.policy().idle + 1s;
    for (uint16_t number = 2; number <= book.policy().port_jobs; number++)
        book.heard(number, now);
    w.job = 60;
    expect_done(join(w.again(60)));
    EXPECT_FALSE(has(1)) << "which nobody has used for long, and might use again";
    EXPECT_TRUE(has(50) && has(100) && has(101));
    w.job = 61;
    expect_refused(join(w.again(61)), INAGG_R_FULL);
}

TEST_F(Book, AJobTakesTheShareThatFewestHave) {
    book.policy().shares = 4;
    book.policy().slots = 64 * 136;
    const auto row = [&](uint16_t number, uint8_t algorithm) { return job_of_one(number, algorithm).index; };
    EXPECT_EQ(row(1, INAGG_SWITCHML), 0U);
    EXPECT_EQ(row(2, INAGG_CANARY), 1U);
    EXPECT_EQ(row(3, INAGG_SWITCHML), 2U);
    std::set<uint32_t> shares{1};
    for (uint16_t number = 4; number <= 6; number++)
        shares.insert(row(number, INAGG_CANARY) % 4);
    EXPECT_EQ(shares.size(), 4U);
    const uint32_t freed = book.jobs().at(5).record.index % 4;
    book.remove(5);
    EXPECT_EQ(row(7, INAGG_CANARY) % 4, freed);
    shares.clear();
    for (const auto &[number, job] : book.jobs())
        if (job.record.algorithm == INAGG_CANARY) {
            EXPECT_TRUE(shares.insert(job.record.index % 4).second) << number;
        }
    EXPECT_EQ(shares.size(), 4U);
}

TEST_F(Book, JobsWithOneShareHaveDescriptorsApart) {
    const auto place = [&](uint16_t number) { return job_of_one(number, INAGG_CANARY).first_slot; };
    EXPECT_EQ(place(1), 0U);
    const uint32_t pool = inaggd::pool_slots(book.jobs().at(1).record);
    EXPECT_EQ(place(2), pool);
    EXPECT_EQ(place(3), 2 * pool);
    book.remove(2);
    EXPECT_EQ(place(4), pool);
    book.policy().shares = 4;
    EXPECT_EQ(book.jobs().at(4).record.index % 4, 1U);
    EXPECT_EQ(place(5), 0U) << "the first of its share";
}

TEST_F(Book, JobsOfSeveralPortsAreNoOnesOwn) {
    for (uint16_t number = 1; number <= book.policy().port_jobs + 4; number++)
        for (uint16_t rank = 0; rank < 2; rank++) {
            Worker w = Worker::of(rank);
            w.job = number;
            expect_done(join(w.again(100u * number + rank)));
        }
}

TEST_F(Book, OnePortCannotFillTheSwitchWithJobsThatWaitForRanks) {
    Worker w = Worker::of(0);
    for (uint16_t number = 1; number <= book.policy().port_forming; number++) {
        w.job = number;
        expect_done(join(w.again(number)));
    }
    w.job = 20;
    expect_refused(join(w.again(20)), INAGG_R_FORMING);
    Worker elsewhere = Worker::of(1);
    elsewhere.job = 20;
    expect_done(join(elsewhere));
    elsewhere.job = 1;
    expect_done(join(elsewhere.again(21))); // job 1 waits no more
    w.job = 21;
    expect_done(join(w.again(22)));
}

TEST_F(Book, AJobWhoseRanksDoNotComeGoes) {
    add("9:size=2");
    Worker w = Worker::of(0, 3);
    expect_done(join(w));
    now += book.policy().join;
    expect_done(join(Worker::of(1, 3))); // another one came
    now += book.policy().join;
    EXPECT_TRUE(book.expire(now).changes.empty());
    Outcome outcome = book.expire(now + 1s);
    ASSERT_EQ(outcome.changes.size(), 1u);
    EXPECT_EQ(outcome.changes[0].kind, Kind::remove);
    ASSERT_EQ(outcome.displaced.size(), 2u);
    EXPECT_EQ(outcome.displaced[0].reason, INAGG_R_JOB);
    EXPECT_FALSE(has(7));
    EXPECT_TRUE(has(9));
}

TEST_F(Book, AJobWhoseRanksAllCameStays) {
    join_all(3);
    leave(Worker::of(2, 3));
    now += 2 * book.policy().join;
    EXPECT_TRUE(book.expire(now).changes.empty());
    EXPECT_TRUE(has(7));
}

TEST_F(Book, LostPortTakesItsRanksAlong) {
    join_all(2);
    Worker other = Worker::of(0).again(90);
    other.job = 8;
    expect_done(join(other));
    Outcome outcome = book.port_gone(100);
    EXPECT_TRUE(has(7));
    EXPECT_EQ(joined_count(job().members), 1u);
    EXPECT_FALSE(has(8)) << "nobody is left in it";
    EXPECT_EQ(outcome.changes.size(), 2u);
    book.port_gone(12345);
    EXPECT_TRUE(has(7));
}

TEST_F(Book, RestoredJobsGoOn) {
    join_all(2);
    JobBook next(policy, [] { return uint16_t{0}; });
    next.restore(7, job().record, job().stragglers, job().members, {}, now);
    expect_ignored(next.join(Worker::of(1).event(), now));
    EXPECT_EQ(next.jobs().at(7).record.generation, generation());
    expect_done(next.join(Worker::of(1).again(44).event(), now));
    EXPECT_EQ(next.jobs().at(7).record.generation, 0) << "the run's generation + 1";
    Worker w = Worker::of(0).again(45);
    w.job = 9;
    expect_done(next.join(w.event(), now));
    EXPECT_EQ(next.jobs().at(9).record.first_slot, 136u);
}

TEST_F(Book, WhereNobodyIsExcludedRanksAreWatchedIfBlocksDoNotWaitForAll) {
    for (const Stragglers stragglers : {Stragglers{}, {.expiry_us = 10000}, {.quorum = 1}}) {
        JobBook own(policy, [] { return uint16_t{0}; });
        Worker w = Worker::of(0);
        w.algorithm = INAGG_TRIO;
        w.stragglers = stragglers;
        expect_done(own.join(w.event(), now));
        const uint8_t flags = own.jobs().at(7).record.flags;
        EXPECT_EQ((flags & INAGG_JOIN_WATCHED) != 0, stragglers != Stragglers{});
        EXPECT_FALSE(flags & INAGG_JOIN_RENEW);
    }
}

TEST_F(Book, WhoCannotJudgeRanksDoesNotWatchThem) {
    Policy unable = policy;
    unable.limits.excludes = false;
    JobBook own(unable, [] { return uint16_t{0}; });
    Worker w = Worker::of(0);
    w.algorithm = INAGG_TRIO;
    w.stragglers.expiry_us = 10000;
    expect_done(own.join(w.event(), now));
    EXPECT_FALSE(own.jobs().at(7).record.flags & INAGG_JOIN_WATCHED);
}

TEST_F(Book, AnExcludedRankIsToldAndNotWaitedFor) {
    join_watched();
    EXPECT_TRUE(job().record.flags & INAGG_JOIN_WATCHED);
    EXPECT_TRUE(job().record.flags & INAGG_JOIN_RENEW);
    const uint16_t before = generation();
    const Outcome outcome = book.exclude(7, 1 << 2, now);
    expect_done(outcome);
    ASSERT_EQ(outcome.displaced.size(), 1u);
    EXPECT_EQ(outcome.displaced[0].rank, 2);
    EXPECT_EQ(outcome.displaced[0].reason, INAGG_R_EXCLUDED);
    ASSERT_EQ(outcome.changes.size(), 1u);
    EXPECT_EQ(outcome.changes[0].kind, Kind::state);
    EXPECT_EQ(job().record.all, 3u);
    EXPECT_EQ(generation(), before);
    EXPECT_EQ(present_ranks(job()), 3u);
    expect_refused(join(watched(2)), INAGG_R_EXCLUDED);
}

TEST_F(Book, TheLastRankIsNotExcluded) {
    join_watched();
    expect_ignored(book.exclude(7, 7, now));
    EXPECT_EQ(job().record.all, 7u);
}

TEST_F(Book, AnExcludedRankComesBackWhenTheOthersGoOn) {
    join_watched();
    book.exclude(7, 1 << 2, now);
    const uint16_t before = generation();
    const Outcome back = join(watched(2).again(3000));
    expect_put_off(back, INAGG_R_EXCLUDED);
    ASSERT_EQ(back.changes.size(), 1u) << "the others are told";
    EXPECT_TRUE(job().record.flags & INAGG_JOIN_RETURNING);
    EXPECT_TRUE(join(watched(2).again(3000)).changes.empty()) << "once";
    expect_put_off(renew(0));
    EXPECT_EQ(generation(), before) << "rank 1 has not come to the same place yet";
    const Outcome all = renew(1);
    expect_done(all);
    EXPECT_TRUE(all.displaced.empty());
    EXPECT_EQ(generation(), static_cast<uint16_t>(before + 1));
    EXPECT_EQ(job().record.all, 7u);
    EXPECT_EQ(present_ranks(job()), 7u);
    EXPECT_EQ(job().members[2].nonce, 3000u);
    EXPECT_EQ(job().members[0].nonce, 2000u);
    EXPECT_FALSE(job().record.flags & INAGG_JOIN_RETURNING);
    expect_ignored(join(watched(0))); // a late copy
}

TEST_F(Book, WhoHasLeftIsNotWaitedForInTheNextGeneration) {
    join_watched();
    book.exclude(7, 1 << 2, now);
    expect_put_off(join(watched(2).again(3000)), INAGG_R_EXCLUDED);
    expect_done(leave(watched(1)));
    expect_done(renew(0));
    EXPECT_EQ(job().record.all, 5u);
    now += 1h;
    EXPECT_TRUE(book.expire(now).changes.empty()) << "it goes on";
}

TEST_F(Book, NobodyElseComesBackAsAnExcludedRank) {
    join_watched();
    book.exclude(7, 1 << 2, now);
    Worker stranger = watched(2).again(3000);
    stranger.port++;
    expect_refused(join(stranger), INAGG_R_TAKEN);
    EXPECT_FALSE(job().record.flags & INAGG_JOIN_RETURNING);
    renew(0);
    renew(1);
    EXPECT_EQ(job().record.all, 3u);
}

TEST_F(Book, WhoMissedThatTheNextGenerationHasBegunIsNotTakenForANewRun) {
    join_watched();
    book.exclude(7, 1 << 2, now);
    const uint16_t first = generation();
    expect_put_off(join_again(watched(0).again(2000), first, INAGG_JOIN_RENEW));
    expect_done(join_again(watched(1).again(2001), first, INAGG_JOIN_RENEW));
    EXPECT_EQ(generation(), static_cast<uint16_t>(first + 1));
    expect_ignored(join_again(watched(0).again(2000), first, INAGG_JOIN_RENEW));
    expect_refused(join_again(watched(0), first), INAGG_R_REPLACED);                            // under its old name
    expect_refused(join_again(watched(0).again(7), first, INAGG_JOIN_RENEW), INAGG_R_REPLACED); // of a run that has ended
    expect_refused(join_again(watched(2), first), INAGG_R_EXCLUDED);
    expect_refused(join_again(watched(2).again(2002), first, INAGG_JOIN_RENEW), INAGG_R_EXCLUDED);
    EXPECT_EQ(generation(), static_cast<uint16_t>(first + 1));
}

TEST_F(Book, WhoGivesUpIsNotTakenBack) {
    join_watched();
    book.exclude(7, 1 << 2, now);
    join(watched(2).again(3000));
    now += 2 * patience;
    const Outcome outcome = book.forget_returning(now);
    EXPECT_EQ(outcome.changes.size(), 1u);
    EXPECT_FALSE(job().record.flags & INAGG_JOIN_RETURNING);
    renew(0);
    expect_done(renew(1));
    EXPECT_EQ(job().record.all, 3u) << "it stays excluded";
    EXPECT_EQ(job().members[2].nonce, 1002u) << "and is told so when it wakes up";
}

TEST_F(Book, OneRankOfAWatchedJobMayBeRestartedAlone) {
    join_watched();
    const uint16_t before = generation();
    expect_put_off(join(watched(2).again(3000)));
    EXPECT_EQ(generation(), before) << "the others' calls go on";
    book.exclude(7, 1 << 2, now);
    expect_put_off(join(watched(2).again(3000)), INAGG_R_EXCLUDED);
    renew(0);
    expect_done(renew(1));
    EXPECT_EQ(job().members[2].nonce, 3000u);
}

TEST_F(Book, AWatchedJobThatIsRestartedAsAWholeBeginsAtOnce) {
    join_watched();
    book.exclude(7, 1 << 2, now);
    const uint16_t before = generation();
    expect_put_off(join(watched(0).again(3000)));
    expect_done(join(watched(1).again(3001)));
    EXPECT_EQ(generation(), static_cast<uint16_t>(before + 1));
    EXPECT_EQ(job().record.all, 7u) << "nobody is excluded from a new run";
}

TEST_F(Book, RanksThatGoOnDoNotMixWithOneThatBeginsAnew) {
    join_watched();
    const uint16_t before = generation();
    expect_put_off(renew(0));
    expect_put_off(renew(1));
    expect_put_off(join(watched(2).again(3000)));
    EXPECT_EQ(generation(), before);
    expect_done(book.exclude(7, 1 << 2, now));
    EXPECT_EQ(generation(), static_cast<uint16_t>(before + 1)) << "now it is one that comes back";
    EXPECT_EQ(job().members[2].nonce, 3000u);
}

TEST_F(Book, AJobEndsWithTheLastThatIsNotExcluded) {
    join_watched();
    book.exclude(7, 1 << 2, now);
    leave(watched(0));
    leave(watched(1));
    EXPECT_FALSE(has(7));
}

// A switch at 10.77.0.1 with ranks and the switches .129 and .130 below it.
class Root : public Book {
protected:
    Root() { book.policy().children = {{129, *Address::parse("10.77.0.129")}, {130, *Address::parse("10.77.0.130")}}; }

    // Rank `rank`, behind the switch with that number.
    static Worker behind(uint16_t rank, uint16_t size, uint8_t host) {
        Worker w = Worker::of(rank, size);
        w.host = host;
        w.port = host;
        w.receive_port = INAGG_PORT;
        w.flags = INAGG_JOIN_TREE;
        return w;
    }
};

TEST_F(Root, DoesNotWatchRanksThatSwitchesSpeakFor) {
    Worker w = behind(0, 4, 129);
    w.algorithm = INAGG_TRIO;
    w.stragglers.expiry_us = 10000;
    expect_done(join(w));
    EXPECT_FALSE(job().record.flags & INAGG_JOIN_WATCHED);
}

TEST_F(Root, NamesTheRanksBehindASwitchOnceAllHaveJoined) {
    expect_done(join(behind(0, 4, 129)));
    expect_done(join(behind(2, 4, 129)));
    expect_done(join(behind(3, 4, 130)));
    EXPECT_TRUE(job().record.flags & INAGG_JOIN_TREE);
    EXPECT_EQ(subtree_of(job(), 0), 0u);
    expect_done(join(Worker::of(1, 4)));
    EXPECT_EQ(subtree_of(job(), 0), 0b0101u);
    EXPECT_EQ(subtree_of(job(), 2), 0b0101u);
    EXPECT_EQ(subtree_of(job(), 3), 0b1000u);
    EXPECT_EQ(subtree_of(job(), 1), 0u); // no switch's
    EXPECT_FALSE(is_represented(job(), 0));
    EXPECT_TRUE(is_represented(job(), 2));
    EXPECT_FALSE(is_represented(job(), 3));
}

TEST_F(Root, ASwitchIsToldThatARunHasEndedWhenItAsks) {
    expect_done(join(behind(0, 2, 129)));
    expect_done(join(behind(1, 2, 130)));
    const uint16_t first = generation();
    expect_ignored(join_again(behind(1, 2, 130), first));
    expect_done(join(behind(0, 2, 129).again(50)));
    expect_refused(join_again(behind(1, 2, 130), first), INAGG_R_REPLACED);
    EXPECT_EQ(joined_count(job().members), 1u);
}

TEST_F(Book, MoreThanItsLinksCarryWouldWait) {
    const auto slots_of = [this](uint16_t number, uint8_t algorithm) {
        Worker w = Worker::of(0);
        w.job = number;
        w.algorithm = algorithm;
        w.slots = 2; // ranks have no say
        join(w);
        return job(number).record.slots;
    };
    EXPECT_EQ(slots_of(1, INAGG_SWITCHML), 128u) << "no rate is known";
    book.policy().slowest_link = 50'000'000;
    EXPECT_EQ(slots_of(2, INAGG_SWITCHML), 64u);
    EXPECT_EQ(slots_of(3, INAGG_PANAMA), 128u) << "its window follows the queues";
    expect_done(add("4:size=2"));
    EXPECT_EQ(job(4).record.slots, 128u) << "other roots may have the same job, and other links";
    book.policy().slowest_link = 1'000'000'000;
    EXPECT_EQ(slots_of(5, INAGG_SWITCHML), 128u);
}

TEST_F(Root, SwitchesBelowSayWhatTheirLinksCarry) {
    const auto slots_of = [this](uint16_t number, uint32_t said) {
        Worker w = behind(0, 2, 129);
        w.job = number;
        w.slots = said;
        expect_done(join(w));
        return job(number).record.slots;
    };
    EXPECT_EQ(slots_of(1, 64), 64u);
    EXPECT_EQ(slots_of(2, 63), 32u) << "a power of two";
    EXPECT_EQ(slots_of(3, 4096), 128u);
    book.policy().slowest_link = 50'000'000;
    EXPECT_EQ(slots_of(4, 128), 64u);
    EXPECT_EQ(slots_of(5, 16), 16u);
    EXPECT_EQ(slots_of(6, 0), 64u);
    book.policy().fits_links = false;
    EXPECT_EQ(slots_of(7, 16), 128u) << "somebody has said how many";
}

TEST_F(Root, OnlyItsChildrenMayJoinForOthers) {
    expect_refused(join(behind(0, 2, 131)), INAGG_R_PARENT);
    Worker elsewhere = behind(0, 2, 129);
    elsewhere.port = 130;
    expect_refused(join(elsewhere), INAGG_R_PARENT);
    EXPECT_FALSE(has(7));
}

TEST_F(Root, SwitchesBelowHaveNoLimitOfJobs) {
    for (uint16_t number = 1; number <= book.policy().port_jobs + 4; number++) {
        Worker w = behind(0, number % 2 ? 1 : 2, 129);
        w.job = number;
        expect_done(join(w.again(number)));
    }
}

TEST_F(Root, RefusesWhatTreesCannotDo) {
    Worker w = behind(0, 2, 129);
    w.algorithm = INAGG_TRIO;
    w.stragglers.exclude_ms = 5000;
    expect_refused(join(w), INAGG_R_POLICY);
    EXPECT_THROW(add("9:size=2,algorithm=trio,exclude-after=5s"), Error);
}

TEST_F(Root, TakesJobsOfTrio) {
    Worker w = behind(0, 2, 129);
    w.algorithm = INAGG_TRIO;
    w.stragglers.expiry_us = 10000;
    expect_done(join(w));
    EXPECT_EQ(job().stragglers.expiry_us, 10000u);
    EXPECT_TRUE(job().record.flags & INAGG_JOIN_TREE);
}

TEST_F(Root, ARestartedRankBehindASwitchRestartsTheJob) {
    expect_done(join(behind(0, 2, 129)));
    expect_done(join(behind(1, 2, 129)));
    Outcome outcome = join(behind(1, 2, 129).again(77));
    expect_done(outcome);
    EXPECT_EQ(outcome.displaced.size(), 2u);
    EXPECT_EQ(job().record.generation, 0);
}

// A switch whose parent is 10.77.0.1, behind port 99.
class Leaf : public Book {
protected:
    Leaf() { book.policy().parents = {{99, *Address::parse("10.77.0.1")}}; }

    // The parent's answer to what `w` has asked.
    static inagg_event answer(const Worker &w, uint8_t type, uint16_t generation, uint64_t ranks = 0,
                              inagg_reason reason = INAGG_R_NONE) {
        Worker parent = w;
        parent.host = 1;
        parent.port = 99;
        inagg_event e = parent.event(type, generation);
        e.ranks = ranks;
        e.reason = reason;
        e.own_mac[5] = 129;
        if (type == INAGG_CONFIG) {
            inagg_config config{};
            config.nonce = w.nonce;
            config.size = htobe16(w.size);
            config.elements = htobe16(352);
            config.slots = htobe32(64);
            config.control_slots = htobe32(8);
            config.flags = INAGG_JOIN_TREE;
            memcpy(&e.join, &config, sizeof config);
        }
        return e;
    }
    Outcome configure(const Worker &w, uint16_t generation, uint64_t ranks) {
        return book.configured(answer(w, INAGG_CONFIG, generation, ranks), now);
    }
    // The parent's CONFIG for rank 0 of 4, which has asked, of a job with that algorithm and those flags beside TREE.
    inagg_event config_of(uint8_t algorithm, uint8_t flags, uint64_t ranks) {
        Worker zero = Worker::of(0, 4);
        zero.flags = INAGG_JOIN_BIG_ENDIAN; // it can
        expect_asked(join(zero));
        inagg_event event = answer(zero, INAGG_CONFIG, 500, ranks);
        inagg_config config;
        memcpy(&config, &event.join, sizeof config);
        config.algorithm = algorithm;
        config.flags |= flags;
        memcpy(&event.join, &config, sizeof config);
        return event;
    }
    Outcome configure_as(uint8_t algorithm, uint8_t flags) { return book.configured(config_of(algorithm, flags, 1), now); }
    Outcome refuse(const Worker &w, uint16_t generation, inagg_reason reason) {
        return book.refused_above(answer(w, INAGG_REFUSED, generation, 0, reason), now);
    }
    void expect_asked(const Outcome &outcome) {
        EXPECT_EQ(outcome.verdict, Verdict::asked) << outcome.detail << reason_name(outcome.reason);
    }
};

TEST_F(Leaf, OnePortCannotFillTheTreeWithJobsOfItsOwn) {
    book.policy().port_jobs = 2;
    const auto run = [&](uint16_t number, uint16_t size) {
        Worker w = Worker::of(0, size);
        w.job = number;
        expect_asked(join(w));
        expect_done(configure(w, 500, 1));
    };
    for (uint16_t number = 1; number <= 4; number++)
        run(number, 2); // of which the other rank is elsewhere
    run(5, 1);
    run(6, 1);
    Worker w = Worker::of(0, 1);
    w.job = 8;
    expect_refused(join(w), INAGG_R_FULL);
    w.port++;
    w.host++;
    expect_asked(join(w));
}

TEST_F(Leaf, OnePortCannotFillTheTreeWithJobsThatWaitForRanks) {
    book.policy().port_forming = 2;
    const auto ask = [&](uint16_t number, uint16_t rank, uint32_t port) {
        Worker w = Worker::of(rank, 3);
        w.job = number;
        w.port = port;
        return join(w);
    };
    for (uint16_t number = 1; number <= 2; number++)
        for (uint16_t rank = 0; rank < 3; rank++)
            expect_asked(ask(number, rank, 100));
    expect_refused(ask(3, 0, 100), INAGG_R_FORMING);
    expect_asked(ask(1, 0, 100));
    expect_asked(ask(3, 1, 101));
    for (uint16_t rank = 0; rank < 3; rank++) {
        Worker w = Worker::of(rank, 3);
        w.job = 1;
        w.port = 100;
        expect_done(configure(w, 500, 7)); // it waits no more
    }
    expect_asked(ask(3, 0, 100));
}

TEST_F(Leaf, WhatItsParentSetsUpTakesTheTimeOfTheRanksPort) {
    const Worker zero = Worker::of(0, 4);
    expect_asked(join(zero));
    EXPECT_EQ(book.payer(zero.event()), zero.port);
    const inagg_event config = answer(zero, INAGG_CONFIG, 500, 0b0001);
    EXPECT_EQ(book.payer(config), 0u) << "nothing has been set up";
    expect_done(book.configured(config, now));
    EXPECT_EQ(book.payer(config), zero.port);
    book.policy().children.insert(neighbour_of(zero.event()));
    EXPECT_EQ(book.payer(zero.event()), 0u) << "a switch below limits its own ports";
}

TEST_F(Leaf, WhoseRanksAskAsksItsParent) {
    const Worker zero = Worker::of(0, 1);
    EXPECT_TRUE(book.announced(7, now).messages.empty());
    expect_asked(join(zero));
    expect_done(configure(zero, 500, 1));
    const Outcome outcome = book.announced(7, now);
    ASSERT_EQ(outcome.messages.size(), 1u);
    const Message &message = outcome.messages[0];
    EXPECT_TRUE(message.again) << "the parent must not take it for a new run";
    EXPECT_EQ(message.to, *Address::parse("10.77.0.1"));
    EXPECT_EQ(message.type, INAGG_JOIN);
    EXPECT_EQ(message.generation, 500);
    EXPECT_EQ(message.join.nonce, zero.nonce);
    EXPECT_EQ(message.join.flags, INAGG_JOIN_TREE);
    EXPECT_EQ(message.join.slots, 0u);
    expect_ignored(configure(zero, 500, 1)); // it has it still
    const Outcome ended = refuse(zero, 500, INAGG_R_REPLACED);
    ASSERT_EQ(ended.displaced.size(), 1u);
    EXPECT_EQ(ended.displaced[0].reason, INAGG_R_REPLACED);
    EXPECT_FALSE(has(7));
}

TEST_F(Leaf, SaysWhatItsLinksCarry) {
    const auto said = [this](Worker w) {
        const Outcome outcome = join(w);
        return outcome.messages.size() == 1 ? be32toh(outcome.messages[0].join.slots) : ~0U;
    };
    Worker w = Worker::of(0, 4);
    w.slots = 2;
    EXPECT_EQ(said(w), 0u) << "ranks have no say";
    book.policy().slowest_link = 50'000'000;
    book.policy().fits_links = false; // of its own jobs, if it had any
    EXPECT_EQ(said(Worker::of(1, 4)), 64u);
    Worker behind = Worker::of(2, 4);
    behind.flags = INAGG_JOIN_TREE;
    behind.receive_port = INAGG_PORT;
    book.policy().children.insert(neighbour_of(behind.event()));
    behind.slots = 16;
    EXPECT_EQ(said(behind), 16u) << "of all on the way";
}

TEST_F(Leaf, AMemberMayComeByAnotherPort) {
    Worker zero = Worker::of(0, 1);
    expect_asked(join(zero));
    expect_done(configure(zero, 500, 1));
    zero.port = 105;
    expect_done(join_again(zero, 500));
    EXPECT_EQ(job().members[0].ifindex, 105u);
}

TEST_F(Leaf, ARankIsWhereItsLatestJoinCameFrom) {
    const Worker zero = Worker::of(0, 1);
    expect_asked(join(zero));
    expect_done(configure(zero, 500, 1));
    inagg_event event = zero.event();
    event.mac[1] ^= 4; // damaged on the way
    expect_done(book.join(event, now));
    EXPECT_EQ(job().members[0].mac[1], 4);
    expect_done(join(zero));
    EXPECT_EQ(job().members[0].mac[1], 0);
    expect_ignored(join(zero));
    event = zero.event();
    event.join.receive_port = htons(5999);
    expect_done(book.join(event, now));
    EXPECT_EQ(job().members[0].receive_port, htons(5999));
    EXPECT_EQ(job().record.generation, 500);
}

TEST_F(Leaf, WhatTheParentRefusesMayWaitThereAllTheSame) {
    book.policy().port_forming = 2;
    Worker w = Worker::of(0, 2);
    for (w.job = 1; w.job <= 2; w.job++) {
        expect_asked(join(w));
        Worker other = w.again(w.nonce + 1);
        other.algorithm = INAGG_TRIO; // the parent refuses, and the job waits on
        expect_asked(join(other));
        expect_done(refuse(other, 0, INAGG_R_ALGORITHM));
    }
    expect_refused(join(w), INAGG_R_FORMING);
    now += book.policy().join + 1s;
    book.expire(now);
    expect_asked(join(w));
}

TEST_F(Leaf, OnePortCannotAskForAll) {
    const auto rank_of = [](uint16_t number, uint16_t rank, uint32_t port) {
        Worker w = Worker::of(rank, 64);
        w.job = number;
        w.port = port;
        return w;
    };
    expect_asked(join(rank_of(9, 0, 200)));
    expect_done(configure(rank_of(9, 0, 200), 500, 1));
    for (uint16_t number = 1; number <= 4; number++)
        for (uint16_t rank = 0; rank < 64; rank++)
            expect_asked(join(rank_of(number, rank, 100)));
    expect_refused_late(rank_of(9, 1, 100), INAGG_R_FULL);
    expect_asked(join(rank_of(9, 2, 200)));
}

TEST_F(Leaf, AsksItsParentAndDoesWhatThatSays) {
    const Worker zero = Worker::of(0, 4), two = Worker::of(2, 4);
    expect_asked(join(zero));
    expect_asked(join(zero));
    expect_asked(join(two));
    EXPECT_FALSE(has(7));
    expect_done(configure(zero, 500, 0b0101));
    EXPECT_EQ(job().record.all, 0b0101u);
    EXPECT_EQ(job().record.generation, 500);
    EXPECT_EQ(job().record.slots, 64u);
    EXPECT_EQ(job().record.size, 4);
    EXPECT_EQ(job().uplink.ifindex, 99u);
    EXPECT_EQ(joined_count(job().members), 1u);
    expect_done(configure(two, 500, 0b0101));
    EXPECT_EQ(joined_count(job().members), 2u);
    expect_ignored(join(two));
    now += 1h;
    EXPECT_TRUE(book.expire(now).changes.empty()); // nobody else will join here
}

TEST_F(Leaf, ItsParentTellsWhenToSendSums) {
    inagg_event event = config_of(INAGG_TRIO, 0, 0b0101);
    event.expiry_us = 5000;
    event.quorum = 1;
    expect_done(book.configured(event, now));
    EXPECT_EQ(job().record.algorithm, INAGG_TRIO);
    EXPECT_EQ(job().stragglers, (Stragglers{.expiry_us = 5000, .quorum = 1, .exclude_ms = 0}));
}

TEST_F(Leaf, AddsIntegersWhereAParentAddsNoFloats) {
    expect_done(configure_as(INAGG_PANAMA, INAGG_JOIN_INTEGERS));
    EXPECT_TRUE(job().record.flags & INAGG_JOIN_INTEGERS);
    EXPECT_FALSE(inagg_job_adds_floats(&job().record));
}

TEST_F(Leaf, TakesNoFloatsThatItCannotAdd) {
    book.policy().limits.adds_floats = false;
    const Outcome outcome = configure_as(INAGG_PANAMA, 0);
    ASSERT_EQ(outcome.displaced.size(), 1u);
    EXPECT_EQ(outcome.displaced[0].reason, INAGG_R_POLICY);
    EXPECT_NE(outcome.detail.find("floats"), std::string::npos) << outcome.detail;
    EXPECT_FALSE(has(7));
    expect_done(configure_as(INAGG_PANAMA, INAGG_JOIN_INTEGERS));
}

TEST_F(Leaf, AddsInItsParentsByteOrderOrNotAtAll) {
    const Outcome outcome = configure_as(INAGG_SWITCHML, INAGG_JOIN_BIG_ENDIAN);
    ASSERT_EQ(outcome.displaced.size(), 1u);
    EXPECT_EQ(outcome.displaced[0].reason, INAGG_R_POLICY);
    EXPECT_NE(outcome.detail.find("elements are big-endian"), std::string::npos) << outcome.detail;
    EXPECT_FALSE(has(7));
    book.policy().limits.big_endian = true;
    EXPECT_NE(configure_as(INAGG_SWITCHML, 0).detail.find("little-endian"), std::string::npos);
    EXPECT_FALSE(has(7));
    expect_done(configure_as(INAGG_SWITCHML, INAGG_JOIN_BIG_ENDIAN));
    EXPECT_TRUE(job().record.flags & INAGG_JOIN_BIG_ENDIAN);
}

TEST_F(Leaf, OnlyPanamaHasFloatsToLeaveOut) {
    configure_as(INAGG_SWITCHML, INAGG_JOIN_INTEGERS);
    EXPECT_FALSE(has(7));
}

TEST_F(Leaf, BelievesOnlyAnswersToItsQuestions) {
    const Worker zero = Worker::of(0, 4);
    expect_ignored(configure(zero, 500, 1));
    expect_asked(join(zero));
    expect_ignored(configure(zero.again(9), 500, 1));
    inagg_event forged = answer(zero, INAGG_CONFIG, 500, 1);
    forged.address[3] = 66;
    expect_ignored(book.configured(forged, now));
    forged = answer(zero, INAGG_CONFIG, 500, 1);
    forged.ifindex = 100; // the parent's address at another port
    expect_ignored(book.configured(forged, now));
    forged.type = INAGG_REFUSED;
    expect_ignored(book.refused_above(forged, now));
    EXPECT_FALSE(has(7));
}

TEST_F(Leaf, RanksMustHaveAddressesOfItsParentsFamily) {
    inagg_event event = Worker::of(0, 4).event(INAGG_JOIN);
    const Address six = *Address::parse("fd77::10");
    event.family = 6;
    std::copy(six.bytes.begin(), six.bytes.end(), event.address);
    const Outcome outcome = book.join(event, now);
    EXPECT_EQ(outcome.reason, INAGG_R_PARENT);
    EXPECT_NE(outcome.detail.find("IPv4"), std::string::npos) << outcome.detail;
}

TEST_F(Leaf, EachOfItsParentsHasTheJobsOfItsTurn) {
    const Neighbour second{99, *Address::parse("10.77.0.2")};
    book.policy().parents.insert(book.policy().parents.begin(), second); // the first parent has the odd numbers now
    EXPECT_EQ(book.policy().parent_of(6), second);
    const Worker zero = Worker::of(0, 4); // of job 7
    expect_asked(join(zero));
    inagg_event answer_of_second = answer(zero, INAGG_CONFIG, 500, 1);
    answer_of_second.address[3] = 2;
    expect_ignored(book.configured(answer_of_second, now));
    expect_done(configure(zero, 500, 1));
}

TEST_F(Leaf, RefusesWhatNoParentWouldSay) {
    const Worker zero = Worker::of(0, 4);
    for (uint64_t ranks : {uint64_t{0}, uint64_t{0b0010}, uint64_t{0b10001}}) {
        expect_asked(join(zero));
        Outcome outcome = configure(zero, 500, ranks);
        ASSERT_EQ(outcome.displaced.size(), 1u) << ranks;
        EXPECT_EQ(outcome.displaced[0].reason, INAGG_R_FULL);
        EXPECT_FALSE(has(7));
    }
}

// The root sees one place for all ranks here, so the leaf must tell them apart.
TEST_F(Leaf, KeepsItsRanksApart) {
    const Worker zero = Worker::of(0, 4);
    Worker other = Worker::of(3, 4);
    other.rank = 0;
    expect_asked(join(zero));
    expect_ignored(join(other));
    configure(zero, 500, 0b0001);
    expect_ignored(join(other));
    now += patience;
    expect_refused(join(other), INAGG_R_TAKEN);
    EXPECT_EQ(job().members[0].nonce, zero.nonce);
}

TEST_F(Leaf, ForgetsWhatIsNeverAnswered) {
    const Worker zero = Worker::of(0, 4);
    expect_asked(join(zero));
    now += 20 * patience;
    book.expire(now);
    expect_ignored(configure(zero, 500, 1));
}

TEST_F(Leaf, RefusesSizesThatNoSwitchHas) {
    const Worker zero = Worker::of(0, 4);
    for (int what = 0; what < 5; what++) {
        expect_asked(join(zero));
        inagg_event event = answer(zero, INAGG_CONFIG, 500, 1);
        inagg_config config;
        memcpy(&config, &event.join, sizeof config);
        if (what == 0)
            config.slots = htobe32(1u << 31);
        if (what == 1)
            config.control_slots = htobe32(1u << 31);
        if (what == 2)
            config.algorithm = INAGG_ALGORITHMS;
        if (what == 3)
            config.flags = 0;
        if (what == 4)
            config.elements = htobe16(384); // more than this switch's ports carry
        memcpy(&event.join, &config, sizeof config);
        EXPECT_EQ(book.configured(event, now).displaced.size(), 1u) << what;
        EXPECT_FALSE(has(7));
    }
}

TEST_F(Leaf, PassesRefusalsOn) {
    const Worker zero = Worker::of(0, 4);
    expect_asked(join(zero));
    Outcome outcome = refuse(zero, 0, INAGG_R_SIZE);
    ASSERT_EQ(outcome.displaced.size(), 1u);
    EXPECT_EQ(outcome.displaced[0].reason, INAGG_R_SIZE);
    EXPECT_EQ(outcome.displaced[0].member.nonce, zero.nonce);
    EXPECT_EQ(outcome.displaced[0].above.text(), "10.77.0.1");
    expect_ignored(refuse(zero, 0, INAGG_R_SIZE));
}

TEST_F(Leaf, SaysWhoRefusesAboveItsParent) {
    const Worker zero = Worker::of(0, 4);
    expect_asked(join(zero));
    configure(zero, 500, 0b0001);
    const Displaced by_parent{
        .job = 7, .rank = 0, .generation = 500, .member = {}, .reason = INAGG_R_JOB, .above = *Address::parse("10.77.0.9")};
    inagg_event event = answer(zero, INAGG_REFUSED, 500, 0, INAGG_R_JOB);
    event.join = farewell(by_parent, event.hdr);
    event.join.nonce = zero.nonce;
    const Outcome outcome = book.refused_above(event, now);
    ASSERT_EQ(outcome.displaced.size(), 1u);
    EXPECT_EQ(outcome.displaced[0].above.text(), "10.77.0.9");
}

TEST_F(Leaf, ItsJobsEndWithTheParents) {
    const Worker zero = Worker::of(0, 4), one = Worker::of(1, 4);
    expect_asked(join(zero));
    expect_asked(join(one));
    configure(zero, 500, 0b0011);
    configure(one, 500, 0b0011);
    expect_ignored(refuse(zero, 499, INAGG_R_REPLACED));
    Outcome outcome = refuse(zero, 500, INAGG_R_REPLACED);
    EXPECT_EQ(outcome.displaced.size(), 2u);
    EXPECT_FALSE(has(7));
}

TEST_F(Leaf, ItsJobsEndWhenTheParentHasLostThem) {
    const Worker zero = Worker::of(0, 4);
    expect_asked(join(zero));
    configure(zero, 500, 0b0001);
    const Worker nobody = zero.again(0);
    expect_ignored(refuse(nobody, 499, INAGG_R_JOB));
    expect_ignored(refuse(nobody, 500, INAGG_R_REPLACED));
    Outcome outcome = refuse(nobody, 500, INAGG_R_JOB);
    ASSERT_EQ(outcome.displaced.size(), 1u);
    EXPECT_EQ(outcome.displaced[0].member.nonce, zero.nonce);
    EXPECT_EQ(outcome.displaced[0].above.text(), "10.77.0.1");
    EXPECT_FALSE(has(7));
}

TEST_F(Leaf, ANewGenerationReplacesTheOld) {
    const Worker zero = Worker::of(0, 4);
    expect_asked(join(zero));
    configure(zero, 500, 0b0001);
    const Worker next = zero.again(5);
    expect_asked(join(next));
    Outcome outcome = configure(next, 501, 0b0001);
    expect_done(outcome);
    ASSERT_EQ(outcome.displaced.size(), 1u);
    EXPECT_EQ(outcome.displaced[0].member.nonce, zero.nonce);
    EXPECT_EQ(generation(), 501);
}

TEST_F(Leaf, GoesWithTheLinkToItsParent) {
    const Worker zero = Worker::of(0, 4);
    expect_asked(join(zero));
    configure(zero, 500, 0b0001);
    book.port_gone(99);
    book.link(99, false, now);
    EXPECT_TRUE(has(7));
    now += outage + 1ms;
    const Outcome outcome = book.tend(now);
    ASSERT_EQ(outcome.displaced.size(), 1u);
    EXPECT_EQ(outcome.displaced[0].reason, INAGG_R_UNLINKED);
    EXPECT_FALSE(has(7));
}

TEST_F(Leaf, HasNoJobsOfItsOwn) { EXPECT_THROW(add("9:size=2"), Error); }

TEST(Links, CarryAPoolInTwentyMilliseconds) {
    EXPECT_EQ(slots_of_link(1'000'000'000, 352), 1024u);
    EXPECT_EQ(slots_of_link(1'000'000'000, 832), 512u);
    EXPECT_EQ(slots_of_link(100'000'000, 352), 128u);
    EXPECT_EQ(slots_of_link(8'000, 352), 16u) << "for want of less";
    EXPECT_EQ(slots_of_link(400'000'000'000, 32), uint32_t{INAGG_MAX_SLOTS});
}

TEST(Shares, MemoryIsSharedOutAmongJobsAndTheNext) {
    EXPECT_EQ(window_cap(4096, 8, 8), 4096 / 9 / 3);
    EXPECT_EQ(window_cap(72, 8, 3), 8);
    EXPECT_EQ(window_cap(4096, 8, 1), 0) << "the slot itself is enough";
    EXPECT_EQ(window_cap(4096, 8, 2), 0) << "the slot itself is enough";
    EXPECT_EQ(window_cap(UINT32_MAX, 1, 3), UINT16_MAX);
}

TEST(Shares, ThoseAreLeftOutThatNeedNone) {
    JobState job;
    job.record.algorithm = INAGG_PANAMA;
    for (uint16_t size = 1; size <= INAGG_MAX_RANKS; size++) {
        job.record.size = size;
        job.record.all = inagg_all_ranks(size);
        EXPECT_EQ(needs_buffers(job), size > 2) << size << " ranks";
    }
    job.record.algorithm = INAGG_SWITCHML;
    EXPECT_FALSE(needs_buffers(job));
}

TEST(Shares, LeavesAreNumberedByTheirLowestRanks) {
    JobState job;
    job.record.all = 0b11111;
    job.record.size = 5;
    const auto behind = [&](uint32_t rank, uint8_t address) {
        inagg_member &member = job.members[rank];
        member.nonce = 1;
        member.ifindex = 2;
        member.family = 4;
        member.flags = INAGG_MEMBER_SWITCH;
        member.address[0] = address;
    };
    behind(0, 1);
    behind(3, 1);
    behind(2, 2);
    behind(4, 2);
    EXPECT_EQ(children_of(job), 3);
    for (const auto &[rank, leaf] : {std::pair{0u, 0}, {1u, 1}, {2u, 2}, {3u, 0}, {4u, 2}})
        EXPECT_EQ(leaf_of(job, rank), leaf) << rank;
}

TEST(Shares, WhereNoFloatsAreAddedNoBufferIsNeeded) {
    Policy policy;
    policy.buffers = 0;
    policy.limits.adds_floats = false;
    JobBook book(policy, [] { return uint16_t{1}; });
    JobSpec spec;
    spec.number = 1;
    spec.size = 4;
    spec.algorithm = INAGG_PANAMA;
    EXPECT_NO_THROW(book.add(
        spec, [](const std::string &) { return 1u; }, Time{}));
    EXPECT_TRUE(book.jobs().at(1).record.flags & INAGG_JOIN_INTEGERS);
}

TEST(Shares, JobsHaveTheByteOrderOfTheirSwitch) {
    Policy policy;
    policy.limits.adds_halves = false;
    policy.limits.big_endian = true;
    JobBook book(policy, [] { return uint16_t{1}; });
    JobSpec spec;
    spec.number = 1;
    spec.size = 4;
    book.add(
        spec, [](const std::string &) { return 1u; }, Time{});
    EXPECT_EQ(book.jobs().at(1).record.flags, INAGG_JOIN_TREE | INAGG_JOIN_BIG_ENDIAN);
}

TEST(Shares, JobsHaveNoMoreSlotsThanTheirSwitchLists) {
    Policy policy;
    policy.slots = 40;
    policy.limits.lists_slots = true;
    JobBook book(policy, [] { return uint16_t{1}; });
    const auto add = [&](uint16_t number) {
        JobSpec spec;
        spec.number = number;
        spec.size = 4;
        spec.algorithm = INAGG_CANARY;
        spec.slots = 16;
        spec.control = 4;
        book.add(
            spec, [](const std::string &) { return 1u; }, Time{});
    };
    add(1);
    add(2);
    EXPECT_THROW(add(3), Error);
    book.policy().limits.lists_slots = false;
    EXPECT_NO_THROW(add(3)) << "descriptors are for whoever comes";
}

TEST_F(Book, WhoCannotTurnElementsIsToldBeforeItJoins) {
    Worker worker = Worker::of(0, 2);
    worker.flags = INAGG_JOIN_BIG_ENDIAN;
    expect_done(join(worker)); // it can, and need not here
    EXPECT_FALSE(job().record.flags & INAGG_JOIN_BIG_ENDIAN);
    book.policy().limits.big_endian = true;
    worker = Worker::of(0, 2);
    worker.job = 8;
    expect_refused(join(worker), INAGG_R_POLICY);
    EXPECT_FALSE(has(8));
    worker.flags = INAGG_JOIN_BIG_ENDIAN;
    expect_done(join(worker));
    EXPECT_EQ(job(8).record.flags, INAGG_JOIN_TREE | INAGG_JOIN_BIG_ENDIAN);
}

TEST_F(Leaf, PassesOnWhoCanTurnElementsOnlyIfItCan) {
    Worker worker = Worker::of(0, 4);
    worker.flags = INAGG_JOIN_BIG_ENDIAN;
    const Outcome little = join(worker);
    ASSERT_EQ(little.messages.size(), 1u);
    EXPECT_FALSE(little.messages[0].join.flags & INAGG_JOIN_BIG_ENDIAN);
    book.policy().limits.big_endian = true;
    worker.nonce++;
    const Outcome big = join(worker);
    ASSERT_EQ(big.messages.size(), 1u);
    EXPECT_TRUE(big.messages[0].join.flags & INAGG_JOIN_BIG_ENDIAN);
}

TEST(Shares, JobThatWouldHaveNoBufferIsRefused) {
    Policy policy;
    policy.buffers = 5; // a block of 4 ranks needs one; one is left for the next job
    JobBook book(policy, [] { return uint16_t{1}; });
    for (uint16_t number = 1; number <= 5; number++) {
        JobSpec spec;
        spec.number = number;
        spec.size = 4;
        spec.algorithm = INAGG_PANAMA;
        const auto add = [&] {
            book.add(
                spec, [](const std::string &) { return 1u; }, Time{});
        };
        if (number < 5)
            EXPECT_NO_THROW(add()) << number;
        else
            EXPECT_THROW(add(), Error);
    }
}
