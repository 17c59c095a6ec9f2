// SPDX-License-Identifier: BSD-2-Clause
// Jobs that go on at another root while links between switches fail.
#include "fabric.hpp"

TEST_F(Fabric, ALinkTakesItsTreesToTheNextRoot) {
    build(2, 2);
    join(2, job);
    join(2, job + 1);
    expect_all_at(0, 2, job);
    expect_all_at(1, 2, job + 1);
    const inagg_job before = state(leaves[0]).record;
    cut(1, 0);
    pass(100ms);
    expect_all_at(1, 2, job);
    expect_all_at(1, 2, job + 1);
    const inagg_job &here = state(leaves[0]).record, &there = state(roots[1]).record;
    EXPECT_EQ(here.generation, before.generation);
    EXPECT_EQ(here.first_slot, before.first_slot);
    EXPECT_EQ(there.generation, before.generation);
    EXPECT_EQ(there.slots, before.slots);
    EXPECT_EQ(there.control_slots, before.control_slots);
    EXPECT_EQ(there.elements, before.elements);
    EXPECT_TRUE(told.empty());
    ASSERT_FALSE(notes.empty());
    EXPECT_EQ(notes[0], "leaf1: job 6: goes from the root 10.77.1.1 to 10.77.1.2: the link is down");
}

TEST_F(Fabric, AMovedJobKeepsThePlacesOfItsRanks) {
    build(2, 2);
    join(2);
    cut(0, 0);
    pass(100ms);
    EXPECT_EQ(subtree_of(state(roots[1]), 0), 1u);
    EXPECT_EQ(subtree_of(state(roots[1]), 1), 2u);
}

class PanamaFabric : public Fabric {
protected:
    // A job of panama loses its link to the first of `root_count` roots, of which one adds no floats.
    void move(size_t root_count, size_t without_floats, std::chrono::milliseconds time) {
        build(2, root_count);
        algorithm = INAGG_PANAMA;
        roots[without_floats].book->policy().limits.adds_floats = false;
        join(2);
        cut(1, 0);
        pass(time);
        EXPECT_TRUE(told.empty());
    }
};

// Where it goes floats could be added, but its ranks send none.
TEST_F(PanamaFabric, AMovedJobOfIntegersRemainsOne) {
    move(2, 0, 1s);
    expect_all_at(1, 2);
    EXPECT_TRUE(state(roots[1]).record.flags & INAGG_JOIN_INTEGERS);
}

TEST_F(PanamaFabric, AJobOfFloatsPassesOverARootThatAddsNone) {
    move(3, 1, 5s);
    expect_all_at(2, 2);
}

TEST_F(Fabric, WhenTheLinkReturnsNewJobsUseItAndMovedOnesStay) {
    build(2, 2);
    join(2);
    cut(1, 0);
    pass(1s);
    mend(1, 0);
    pass(10s);
    expect_all_at(1, 2);
    join(2, job + 2);
    expect_all_at(0, 2, job + 2);
    EXPECT_TRUE(told.empty());
}

TEST_F(Fabric, ANewJobBeginsWhereAllCanBe) {
    build(2, 3);
    cut(1, 0);
    join(2);
    expect_all_at(1, 2);
    pass(10s);
    expect_all_at(1, 2);
}

TEST_F(Fabric, ANewRunFollowsTheLinks) {
    build(2, 2);
    cut(1, 0);
    join(2);
    join(2, job, 2); // the ranks were killed
    expect_all_at(1, 2);
    mend(1, 0);
    for (size_t leaf : {0, 1}) {
        inagg_event leave = from_host(leaf, nonce_of(leaf, 2), 2, job);
        leave.type = INAGG_LEAVE;
        leave.generation = state(leaves[leaf]).record.generation;
        act(leaves[leaf], leaves[leaf].book->leave(leave, now));
    }
    pass(20s);
    EXPECT_FALSE(has(roots[1]));
    join(2, job, 3);
    expect_all_at(0, 2);
}

// Each root has lost one link or more, so they have to find the only one that has all of the job's.
TEST_F(Fabric, SeveralLinksFailAtOnce) {
    build(3, 4);
    join(3);
    cut(1, 0);
    cut(0, 1);
    cut(2, 2);
    pass(5s);
    expect_all_at(3, 3);
    EXPECT_TRUE(told.empty());
}

TEST_F(Fabric, SeveralLinksFailOneAfterTheOther) {
    build(3, 3);
    join(3);
    for (size_t root : {0, 1}) {
        cut(root, root);
        pass(3s);
        expect_all_at(root + 1, 3);
    }
    mend(0, 0); // around the list, and on
    pass(1s);
    cut(2, 2);
    pass(3s);
    expect_all_at(0, 3);
    EXPECT_TRUE(told.empty());
}

TEST_F(Fabric, LinksThatFailInTurnWhileTheJobMoves) {
    build(4, 4);
    join(4);
    cut(3, 0);
    cut(2, 1);
    pass(40ms);
    mend(3, 0);
    cut(1, 2);
    pass(40ms);
    cut(0, 0);
    pass(10s);
    expect_all_at(3, 4);
}

TEST_F(Fabric, ARackThatIsOffDisturbsNoOther) {
    build(4, 2);
    for (size_t root : {0, 1})
        cut(3, root);
    join(3);
    expect_all_at(0, 3);
    cut(2, 0);
    pass(1s);
    expect_all_at(1, 3);
    pass(20s);
    expect_all_at(1, 3);
    EXPECT_TRUE(told.empty());
}

// Each leaf has another root until one of the links returns.
TEST_F(Fabric, AJobWithoutACommonRootWaitsForOne) {
    build(2, 2);
    join(2);
    cut(0, 0);
    pass(500ms);
    cut(1, 1);
    pass(3s);
    mend(0, 0);
    pass(1s);
    expect_all_at(0, 2);
    EXPECT_TRUE(told.empty()) << said();
}

TEST_F(Fabric, WithoutACommonRootTheRanksAreTold) {
    build(2, 2);
    join(2);
    cut(0, 0);
    cut(1, 1);
    pass(30s);
    EXPECT_FALSE(has(leaves[0]));
    EXPECT_FALSE(has(leaves[1]));
    EXPECT_FALSE(has(roots[0]));
    EXPECT_FALSE(has(roots[1]));
    EXPECT_EQ(told, std::vector(2, INAGG_R_UNLINKED)) << said();
}

TEST_F(Fabric, ALeafWithoutAnyLinkTellsItsRanks) {
    build(2, 2);
    join(2);
    cut(0, 0);
    cut(0, 1);
    pass(outage - 100ms);
    EXPECT_TRUE(told.empty());
    pass(10s);
    EXPECT_EQ(told, std::vector(2, INAGG_R_UNLINKED)) << said();
    EXPECT_FALSE(has(roots[0]));
    EXPECT_FALSE(has(roots[1]));
}

TEST_F(Fabric, ANewRankWithoutAnyLinkIsTold) {
    build(2, 2);
    cut(0, 0);
    cut(0, 1);
    EXPECT_EQ(leaves[0].book->join(from_host(0, 1, 2, job), now).verdict, Verdict::ignored);
    now += patience;
    const Outcome outcome = leaves[0].book->join(from_host(0, 1, 2, job), now);
    EXPECT_EQ(outcome.reason, INAGG_R_UNLINKED);
}

// With nowhere else to go, a short outage is no reason to end a job.
TEST_F(Fabric, AnOutageOfTheOnlyLinkIsWaitedFor) {
    build(2, 1);
    join(2);
    cut(1, 0);
    pass(outage - 1s);
    mend(1, 0);
    pass(20s);
    expect_all_at(0, 2);
    EXPECT_TRUE(told.empty());
}

TEST_F(Fabric, ALinkThatFlapsLeavesNothingBehind) {
    build(2, 2);
    join(2);
    cut(1, 0);
    mend(1, 0);
    pass(5s);
    expect_all_at(1, 2);
}

TEST_F(Fabric, LostMessagesAreRepeated) {
    build(3, 3);
    join(3);
    std::minstd_rand random(7);
    unsigned lost = 0;
    loses = [&](const Message &) { return random() % 4 && ++lost; };
    cut(1, 0);
    pass(5s);
    expect_all_at(1, 3);
    EXPECT_GT(lost, 5u);
}

// The next root calls the others: they need not be told by the old one.
TEST_F(Fabric, TheOldRootsAgentIsDead) {
    build(3, 2);
    join(3);
    roots[0].dead = true;
    cut(1, 0);
    pass(100ms);
    for (size_t leaf : {0, 1, 2})
        EXPECT_EQ(root_of(leaf), 1u);
    EXPECT_TRUE(has(roots[0]));
    roots[0].dead = false; // asks who is still there
    mend(1, 0);
    pass(5s);
    expect_all_at(1, 3);
}

TEST_F(Fabric, ANextRootWhoseAgentIsDeadIsPassedOver) {
    build(2, 3);
    join(2);
    roots[1].dead = true;
    cut(0, 0);
    pass(outage + 200ms);
    expect_all_at(2, 2);
}

// One leaf has been around the list and is back at the first root, which has not noticed; the other follows a call of
// before, to the second.
TEST_F(Fabric, OldCallsDoNotPartAJob) {
    build(2, 2);
    join(2);
    set_busy(leaves[1], true);
    set_busy(roots[1], true);
    loses = [](const Message &message) { return message.type == INAGG_LEAVE; };
    cut(0, 0);
    pass(1s);
    mend(0, 0);
    set_busy(roots[0], true);
    pass(outage);
    EXPECT_EQ(state(leaves[0]).uplink.position, 2);
    loses = [](const Message &) { return false; };
    set_busy(leaves[1], false);
    EXPECT_EQ(state(roots[0]).uplink.position, 0);
    set_busy(roots[1], false);
    pass(100ms);
    set_busy(roots[0], false);
    pass(5s);
    expect_all_at(0, 2);
}

TEST_F(Fabric, ALeafWhoseAgentIsDeadStops) {
    build(2, 2);
    join(2);
    leaves[0].dead = true;
    cut(1, 0);
    pass(3s);
    EXPECT_EQ(root_of(0), 0u);
    leaves[0].dead = false; // comes back before the others have given up
    pass(200ms);
    expect_all_at(1, 2);
}

TEST_F(Fabric, ARootWithoutRoomIsPassedOver) {
    build(2, 3, 200);
    join(2, job + 1); // fills the second root
    join(2, job);
    cut(1, 0);
    pass(1s);
    expect_all_at(2, 2, job);
    expect_all_at(1, 2, job + 1);
}

TEST_F(Fabric, AnotherRunAtTheNextRootIsNotDisturbed) {
    build(4, 2);
    join(2);
    // A run of the same number, of other leaves, that has lost its first root.
    for (size_t leaf : {2, 3})
        cut(leaf, 0);
    for (int i = 0; i < 5; i++) {
        join_another_run();
        pass(50ms);
    }
    ASSERT_EQ(root_of(2), 1u);
    const uint64_t nonce = state(roots[1]).members[0].nonce;
    cut(1, 0);
    pass(10s);
    EXPECT_EQ(state(roots[1]).members[0].nonce, nonce);
    EXPECT_EQ(root_of(2), 1u);
    EXPECT_EQ(told.size(), 2u) << said();
}

TEST_F(Fabric, AnAgentThatIsRestartedGoesOn) {
    build(2, 3);
    join(2);
    cut(1, 0);
    pass(1s);
    const JobState before = state(leaves[1]);
    EXPECT_EQ(before.uplink.position, 1);
    auto policy = leaves[1].book->policy();
    leaves[1].book = make_book(policy);
    leaves[1].book->restore(job, before.record, {}, before.members, before.uplink, now);
    leaves[1].book->link(port_to_root(0), false, now);
    pass(3s);
    expect_all_at(1, 2);
    cut(1, 1);
    pass(3s);
    expect_all_at(2, 2);
}

TEST_F(Fabric, AConfiguredJobTakesTheGenerationOfTheOneThatComes) {
    build(2, 2);
    auto no_port = [](const std::string &) { return 0u; };
    roots[1].book->add(parse_job_spec("6:size=2,elements=352"), no_port, now);
    ASSERT_EQ(state(roots[1]).record.generation, 500);
    join(2);
    join(2, job, 2); // the next generation
    ASSERT_EQ(state(roots[0]).record.generation, 501);
    cut(0, 0);
    pass(1s);
    expect_all_at(1, 2);
    EXPECT_EQ(state(roots[1]).record.generation, 501);
    EXPECT_TRUE(state(roots[1]).record.keep);
}

// What a host may send: a JOIN that its leaf passes on, and whatever it likes to addresses of switches.
TEST_F(Fabric, HostsMoveNobodysJob) {
    build(2, 2);
    join(2);
    inagg_event join = from_host(0, 77, 2, job + 2, INAGG_JOIN_TREE | INAGG_JOIN_MOVED);
    join.join.slots = join.join.control_slots = htobe32(8);
    join.join.position = htobe16(9);
    EXPECT_EQ(leaves[0].book->join(join, now).reason, INAGG_R_PARENT);
    join.join.flags = INAGG_JOIN_MOVED;
    const Outcome asked = leaves[0].book->join(join, now);
    ASSERT_EQ(asked.messages.size(), 1u);
    EXPECT_EQ(asked.messages[0].join.flags, INAGG_JOIN_TREE);
    EXPECT_EQ(asked.messages[0].join.position, 0);
    EXPECT_EQ(asked.messages[0].join.slots, 0u);

    // To a root: not from a child's port, or not from its address.
    Message message{roots[1].address, INAGG_JOIN, job, 0, 500, INAGG_R_NONE, join.join};
    message.join.flags = INAGG_JOIN_TREE | INAGG_JOIN_MOVED;
    EXPECT_EQ(roots[1].book->join(event_of(message, 299, leaves[0].address), now).reason, INAGG_R_PARENT);
    EXPECT_EQ(roots[1].book->join(event_of(message, port_to_leaf(0), leaves[1].address), now).reason, INAGG_R_PARENT);
    EXPECT_FALSE(has(roots[1]));
    message = {roots[0].address, INAGG_LEAVE, job, 0, 500, INAGG_R_NONE, {}};
    message.join.nonce = nonce_of(0, 1);
    message.join.flags = INAGG_JOIN_TREE | INAGG_JOIN_MOVED;
    EXPECT_EQ(roots[0].book->leave(event_of(message, 299, leaves[0].address), now).verdict, Verdict::ignored);

    // To a leaf: not from a parent's port, or not from its address.
    message = {leaves[0].address, INAGG_REFUSED, job, 0, 500, INAGG_R_MOVED, {}};
    message.join.position = htobe16(1);
    for (uint32_t port : {1u, port_to_root(1)})
        EXPECT_TRUE(leaves[0].book->refused_above(event_of(message, port, roots[0].address), now).messages.empty());
    EXPECT_TRUE(leaves[0].book->refused_above(event_of(message, port_to_root(0), leaves[1].address), now).messages.empty());
    pass(1s);
    expect_all_at(0, 2);
}

// A rank of the root's own knows no other switch.
TEST_F(Fabric, RanksOfTheRootItselfAreTold) {
    build(2, 2);
    inagg_event direct = from_host(2, 1002, 3, job);
    for (int i = 0; i < 5; i++) {
        for (uint16_t leaf : {0, 1})
            act(leaves[leaf], leaves[leaf].book->join(from_host(leaf, nonce_of(leaf, 1), 3, job), now));
        roots[0].book->join(direct, now);
        pass(50ms);
    }
    ASSERT_EQ(joined_count(state(roots[0]).members), 3u);
    cut(1, 0);
    std::vector<inagg_reason> at_root;
    for (int i = 0; i < 400; i++) {
        for (const Displaced &gone : roots[0].book->tend(now).displaced)
            at_root.push_back(gone.reason);
        pass(20ms);
    }
    EXPECT_EQ(at_root, std::vector(1, INAGG_R_UNLINKED));
    EXPECT_FALSE(has(roots[0]));
}

TEST_F(Fabric, JobsOfTrioStayWhereTheyAre) {
    build(2, 2);
    for (int i = 0; i < 5; i++) {
        for (uint16_t leaf : {0, 1}) {
            inagg_event event = from_host(leaf, nonce_of(leaf, 1), 2, job);
            event.join.algorithm = INAGG_TRIO;
            act(leaves[leaf], leaves[leaf].book->join(event, now));
        }
        pass(50ms);
    }
    expect_all_at(0, 2);
    cut(0, 0);
    pass(20s);
    expect_all_at(0, 2);
    EXPECT_TRUE(told.empty());
}

TEST_F(Fabric, OnlyARootThatIsASwitchTakesJobsOver) {
    build(2, 2);
    join(2);
    roots[1].book->policy().server = true;
    cut(0, 0);
    pass(20s);
    EXPECT_FALSE(has(roots[1]));
    EXPECT_FALSE(has(leaves[0]));
}

// Whatever else fails and comes back, whatever is lost, and whose agent ever is busy for a while: a job with a root that all its
// switches reach goes on.
class Weather : public Fabric, public ::testing::WithParamInterface<unsigned> {};

TEST_P(Weather, OneGoodRootIsEnough) {
    std::minstd_rand random(GetParam());
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const size_t leaf_count = 2 + below(3), root_count = 2 + below(3), good = below(root_count);
    build(leaf_count, root_count);
    join(static_cast<uint16_t>(leaf_count));
    loses = [&](const Message &) { return below(10) == 0; };
    for (int i = 0; i < 60; i++) {
        const size_t leaf = below(leaf_count), root = below(root_count);
        if (root != good)
            set_link(leaf, root, down.contains({leaf, root}));
        Switch &some = below(2) ? leaves[leaf] : roots[root];
        set_busy(some, true);
        pass(std::chrono::milliseconds(below(2) ? below(60) : below(3000)));
        set_busy(some, false);
        pass(std::chrono::milliseconds(below(2) ? 0 : below(3000)));
    }
    pass(30s);
    EXPECT_TRUE(told.empty()) << said();
    const size_t root = root_of(0);
    ASSERT_LT(root, root_count) << said();
    for (size_t leaf = 0; leaf < leaf_count; leaf++) {
        EXPECT_FALSE(down.contains({leaf, root})) << said();
        EXPECT_EQ(root_of(leaf), root) << said();
    }
    EXPECT_EQ(joined_count(state(roots[root]).members), leaf_count) << said();
    EXPECT_EQ(missing_count(state(roots[root])), 0) << said();
}

// Nor does it end a job that there is no such root for a while.
TEST_P(Weather, AShortOutageOfAllRootsEndsNothing) {
    std::minstd_rand random(GetParam());
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const size_t leaf_count = 2 + below(3), root_count = 2 + below(3);
    build(leaf_count, root_count);
    join(static_cast<uint16_t>(leaf_count));
    loses = [&](const Message &) { return below(10) == 0; };
    for (int outages = 0; outages < 5; outages++) {
        const size_t good = below(root_count);
        for (size_t root = 0; root < root_count; root++)
            cut(below(leaf_count), root);
        for (int i = 0; i < 10; i++) {
            pass(std::chrono::milliseconds(below(300)));
            const size_t leaf = below(leaf_count), root = below(root_count);
            set_link(leaf, root, down.contains({leaf, root}));
        }
        for (size_t leaf = 0; leaf < leaf_count; leaf++)
            mend(leaf, good);
        pass(10s);
        const size_t root = root_of(0);
        ASSERT_TRUE(told.empty()) << said();
        for (size_t leaf = 0; leaf < leaf_count; leaf++) {
            ASSERT_EQ(root_of(leaf), root) << said();
            ASSERT_FALSE(down.contains({leaf, root})) << said();
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Seeds, Weather, ::testing::Range(1u, 41u));
