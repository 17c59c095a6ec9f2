// SPDX-License-Identifier: BSD-2-Clause
// Jobs with canary, which all parents of a switch know.
#include "fabric.hpp"

namespace {

class Spread : public Fabric {
protected:
    Spread() { algorithm = INAGG_CANARY; }

    static uint8_t all_of(size_t root_count) { return static_cast<uint8_t>((1u << root_count) - 1); }
    void expect_up(uint8_t up, uint16_t size, uint16_t number = job) {
        for (size_t leaf = 0; leaf < size; leaf++) {
            ASSERT_TRUE(has(leaves[leaf], number)) << "leaf " << leaf << said();
            EXPECT_EQ(state(leaves[leaf], number).up, up) << "leaf " << leaf << said();
        }
    }
    // All roots that leaves use have the job as the leaves have it.
    void expect_same_everywhere(uint16_t size, uint16_t number = job) {
        const JobState &first = state(leaves[0], number);
        for (size_t leaf = 0; leaf < size; leaf++)
            EXPECT_EQ(state(leaves[leaf], number).record.generation, first.record.generation);
        for (size_t i = 0; i < roots.size(); i++) {
            if (!(first.up >> i & 1))
                continue;
            ASSERT_TRUE(has(roots[i], number)) << "root " << i << said();
            const JobState &there = state(roots[i], number);
            EXPECT_EQ(there.record.generation, first.record.generation) << said();
            EXPECT_EQ(there.record.slots, first.record.slots);
            EXPECT_EQ(there.record.control_slots, first.record.control_slots);
            EXPECT_EQ(there.record.elements, first.record.elements);
            EXPECT_EQ(there.record.all, inagg_all_ranks(size));
            EXPECT_TRUE(there.record.flags & INAGG_JOIN_TREE);
            for (uint16_t rank = 0; rank < size; rank++) {
                EXPECT_EQ(there.members[rank].nonce, state(leaves[rank], number).members[rank].nonce);
                EXPECT_EQ(there.members[rank].ifindex, port_to_leaf(rank));
                EXPECT_TRUE(there.members[rank].flags & INAGG_MEMBER_SWITCH);
                EXPECT_EQ(subtree_of(there, rank), inagg_rank_bit(rank));
            }
        }
    }
    // The root is new, and knows nothing.
    void forget(size_t root) {
        const Policy policy = roots[root].book->policy();
        roots[root].book = make_book(policy);
    }
    void restart_leaf(size_t leaf, bool with_up_ports = true) {
        const Policy policy = leaves[leaf].book->policy();
        const JobState before = state(leaves[leaf]);
        const UpPorts ports = leaves[leaf].book->up_ports();
        leaves[leaf].book = make_book(policy);
        if (with_up_ports)
            leaves[leaf].book->restore_up_ports(ports);
        leaves[leaf].book->restore(job, before.record, {}, before.members, before.uplink, now, before.up);
    }
    void leave(size_t leaf, uint16_t number = job, uint64_t run = 1) {
        inagg_event event = from_host(leaf, nonce_of(leaf, run), 2, number);
        event.type = INAGG_LEAVE;
        event.generation = state(leaves[leaf], number).record.generation;
        act(leaves[leaf], leaves[leaf].book->leave(event, now));
    }
    // Ranks 0 .. size - 1 are all behind the first leaf.
    void join_one_leaf(uint16_t size) {
        for (int i = 0; i < 10; i++) {
            for (uint16_t rank = 0; rank < size; rank++) {
                inagg_event event = from_host(rank, nonce_of(rank, 1), size, job);
                act(leaves[0], leaves[0].book->join(event, now));
            }
            pass(20ms);
        }
    }
    bool is_anywhere(uint16_t number = job) {
        for (const auto *side : {&leaves, &roots})
            for (const Switch &at : *side)
                if (has(at, number))
                    return true;
        return false;
    }
};

} // namespace

TEST_F(Spread, AllParentsKnowTheJob) {
    build(3, 4);
    join(3);
    pass(100ms);
    expect_up(0b1111, 3);
    expect_same_everywhere(3);
    for (size_t root = 0; root < 4; root++) {
        const inagg_uplink &port = leaves[0].book->up_ports()[root];
        EXPECT_EQ(port.ifindex, port_to_root(root));
        EXPECT_EQ(port.family, 4);
        EXPECT_EQ(port.address[3], roots[root].address.bytes[3]);
    }
    pass(60s);
    expect_up(0b1111, 3);
    EXPECT_TRUE(told.empty());
    EXPECT_TRUE(notes.empty()) << said();
}

TEST_F(Spread, SeveralJobsWithHomesOfTheirOwn) {
    build(2, 3);
    for (uint16_t number = job; number < job + 3; number++)
        join(2, number);
    pass(100ms);
    for (uint16_t number = job; number < job + 3; number++) {
        expect_up(0b111, 2, number);
        expect_same_everywhere(2, number);
    }
}

TEST_F(Spread, AFrameOfTheAgentsHasRoomForASum) {
    build(2, 2);
    for (auto *side : {&leaves, &roots})
        for (Switch &at : *side)
            at.book->policy().mtu = 3498;
    for (int i = 0; i < 5; i++) {
        for (size_t leaf : {0, 1}) {
            inagg_event event = from_host(leaf, nonce_of(leaf, 1), 2, job);
            event.join.elements = htobe16(832);
            act(leaves[leaf], leaves[leaf].book->join(event, now));
        }
        pass(20ms);
    }
    expect_up(0b11, 2);
    EXPECT_EQ(state(leaves[0]).record.elements, INAGG_SWEPT_ELEMENTS);
}

class SpreadSeeds : public Spread, public ::testing::WithParamInterface<unsigned> {};

TEST_P(SpreadSeeds, MessagesAreLostAndOvertakeEachOther) {
    std::minstd_rand random(GetParam());
    next_of = [&](size_t n) { return static_cast<size_t>(random() % n); };
    loses = [&](const Message &) { return random() % 4 == 0; };
    const auto leaf_count = static_cast<uint16_t>(2 + random() % 3);
    const size_t root_count = 1 + random() % 4;
    build(leaf_count, root_count);
    join(leaf_count);
    pass(3s);
    expect_up(all_of(root_count), leaf_count);
    expect_same_everywhere(leaf_count);
    loses = [](const Message &) { return false; };
    for (size_t leaf = 0; leaf < leaf_count; leaf++)
        leave(leaf);
    pass(70s);
    EXPECT_FALSE(is_anywhere()) << said();
    EXPECT_TRUE(told.empty()) << said();
}

// Whatever fails and comes back, the job goes on as it is while one parent has links to all.
TEST_P(SpreadSeeds, OneGoodRootIsEnough) {
    std::minstd_rand random(GetParam());
    const auto below = [&](size_t n) { return static_cast<size_t>(random() % n); };
    const auto leaf_count = static_cast<uint16_t>(2 + below(3));
    const size_t root_count = 2 + below(3), good = below(root_count);
    build(leaf_count, root_count);
    join(leaf_count);
    pass(1s);
    const uint16_t generation = state(leaves[0]).record.generation;
    loses = [&](const Message &) { return below(10) == 0; };
    for (int i = 0; i < 60; i++) {
        const size_t leaf = below(leaf_count), root = below(root_count);
        if (root != good)
            set_link(leaf, root, down.contains({leaf, root}));
        if (root != good && below(4) == 0)
            forget(root);
        Switch &some = below(2) ? leaves[leaf] : roots[root];
        set_busy(some, true);
        pass(std::chrono::milliseconds(below(2) ? below(60) : below(3000)));
        set_busy(some, false);
        pass(std::chrono::milliseconds(below(2) ? 0 : below(3000)));
        for (size_t at = 0; at < leaf_count; at++)
            ASSERT_TRUE(has(leaves[at])) << said();
    }
    pass(10s);
    uint8_t whole = 0;
    for (size_t root = 0; root < root_count; root++)
        if (std::none_of(down.begin(), down.end(), [&](const auto &link) { return link.second == root; }))
            whole |= static_cast<uint8_t>(1u << root);
    expect_up(whole, leaf_count);
    for (const auto &[leaf, root] : std::set(down))
        mend(leaf, root);
    pass(5s);
    expect_up(all_of(root_count), leaf_count);
    expect_same_everywhere(leaf_count);
    EXPECT_EQ(state(leaves[0]).record.generation, generation);
    EXPECT_TRUE(told.empty()) << said();
}

INSTANTIATE_TEST_SUITE_P(Seeds, SpreadSeeds, ::testing::Range(1u, 41u));

TEST_F(Spread, ALinkTakesItsBitAndBringsItBack) {
    build(3, 2);
    join(3);
    pass(1s);
    const inagg_job before = state(leaves[0]).record;
    for (size_t root : {0, 1}) { // of the home, too
        cut(1, root);
        EXPECT_EQ(state(leaves[1]).up, 1 << (1 - root)) << "not at once";
        pass(20ms); // the others' packets for the rank there would go astray
        expect_up(static_cast<uint8_t>(1 << (1 - root)), 3);
        pass(20s);
        expect_up(static_cast<uint8_t>(1 << (1 - root)), 3);
        mend(1, root);
        pass(400ms);
        expect_up(0b11, 3);
        expect_same_everywhere(3);
    }
    EXPECT_EQ(state(leaves[0]).record.generation, before.generation);
    EXPECT_EQ(state(leaves[0]).uplink.position, 0);
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, ARestartedRootLearnsTheJobAgain) {
    build(2, 2);
    join(2);
    pass(1s);
    const uint16_t generation = state(leaves[0]).record.generation;
    for (size_t root : {0, 1}) {
        forget(root);
        pass(2500ms);
        ASSERT_TRUE(has(roots[root])) << said();
        expect_up(0b11, 2);
        expect_same_everywhere(2);
    }
    EXPECT_EQ(state(leaves[0]).record.generation, generation);
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, ARootThatLosesPowerComesBackKnowingNothing) {
    build(3, 3);
    join(3);
    pass(1s);
    for (size_t leaf : {0, 1, 2})
        cut(leaf, 0);
    forget(0);
    pass(60s);
    expect_up(0b110, 3);
    for (size_t leaf : {0, 1, 2})
        mend(leaf, 0);
    pass(400ms);
    expect_up(0b111, 3);
    expect_same_everywhere(3);
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, ARootThatIsSilentLosesItsBit) {
    build(2, 2);
    join(2);
    pass(1s);
    roots[0].off = true;
    pass(outage + 3s);
    expect_up(0b10, 2);
    roots[0].off = false;
    pass(400ms);
    expect_up(0b11, 2);
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, ARootWhoseAgentIsDeadIsStillThere) {
    build(2, 2);
    join(2);
    pass(1s);
    roots[0].dead = true;
    pass(60s);
    expect_up(0b11, 2);
    roots[0].dead = false;
    pass(20s);
    expect_up(0b11, 2);
}

TEST_F(Spread, AShortOutageOfAllLinksIsWaitedFor) {
    build(2, 2);
    join(2);
    pass(1s);
    for (size_t root : {0, 1})
        cut(0, root);
    expect_up(0, 1);
    pass(outage - 500ms);
    for (size_t root : {0, 1})
        mend(0, root);
    pass(400ms);
    expect_up(0b11, 2);
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, WithoutAnyParentTheRanksAreTold) {
    build(2, 2);
    join(2);
    pass(1s);
    for (size_t root : {0, 1})
        cut(0, root);
    pass(outage - 100ms);
    EXPECT_TRUE(told.empty());
    pass(2s);
    EXPECT_EQ(told, std::vector(2, INAGG_R_UNLINKED)) << said();
    pass(90s);
    EXPECT_FALSE(is_anywhere()) << said();
}

// Each parent lacks another leaf.
TEST_F(Spread, WithoutACommonParentTheRanksAreTold) {
    build(2, 2);
    join(2);
    pass(1s);
    cut(0, 0);
    cut(1, 1);
    pass(10s);
    EXPECT_EQ(told, std::vector(2, INAGG_R_UNLINKED)) << said();
    pass(90s);
    EXPECT_FALSE(is_anywhere()) << said();
}

TEST_F(Spread, AJobBeginsWhereAllCanBe) {
    build(3, 2);
    cut(1, 0); // the home's
    join(3);
    pass(1s);
    expect_up(0b10, 3);
    mend(1, 0);
    pass(400ms);
    expect_up(0b11, 3);
    expect_same_everywhere(3);
    EXPECT_TRUE(told.empty());
}

// One leaf has got its configuration, the other has not when it loses the link to the home.
TEST_F(Spread, TheHomeIsLostWhileTheJobBegins) {
    for (bool also_the_first : {false, true}) {
        leaves.clear();
        roots.clear();
        down.clear();
        build(2, 3);
        set_busy(leaves[1], true);
        set_busy(leaves[0], also_the_first);
        for (int i = 0; i < 3; i++) {
            for (size_t leaf : {0, 1}) {
                inagg_event event = from_host(leaf, nonce_of(leaf, 1), 2, job);
                act(leaves[leaf], leaves[leaf].book->join(event, now));
            }
            deliver();
            pass(20ms);
        }
        leaves[0].held.clear();
        leaves[1].held.clear(); // the answers are lost
        EXPECT_EQ(has(leaves[0]), !also_the_first);
        cut(1, 0);
        set_busy(leaves[0], false);
        set_busy(leaves[1], false);
        join(2);
        pass(1s);
        expect_up(0b110, 2);
        mend(1, 0);
        pass(1s);
        expect_up(0b111, 2);
        expect_same_everywhere(2);
        EXPECT_TRUE(told.empty()) << said();
    }
}

TEST_F(Spread, TheNextRunIsKnownEverywhere) {
    build(2, 3);
    join(2);
    pass(1s);
    const uint16_t generation = state(leaves[0]).record.generation;
    join(2, job, 2); // the ranks were killed
    pass(1s);
    expect_up(0b111, 2);
    expect_same_everywhere(2);
    EXPECT_EQ(state(leaves[0]).record.generation, generation + 1);
}

TEST_F(Spread, TheNextRunHasNoHomeToAsk) {
    build(2, 3);
    join(2);
    pass(1s);
    for (size_t leaf : {0, 1})
        cut(leaf, 0);
    pass(1s);
    join(2, job, 2);
    pass(1s);
    expect_up(0b110, 2);
    expect_same_everywhere(2);
    for (size_t leaf : {0, 1})
        mend(leaf, 0); // it still has the run before
    pass(1s);
    expect_up(0b111, 2);
    expect_same_everywhere(2);
    join(2, job, 3);
    pass(1s);
    expect_up(0b111, 2);
    expect_same_everywhere(2);
}

TEST_F(Spread, OneLeafCannotReachTheHomeAndTheNextRunBegins) {
    build(3, 3);
    join(3);
    pass(1s);
    cut(2, 0);
    pass(1s);
    join(3, job, 2);
    pass(1s);
    expect_up(0b110, 3);
    expect_same_everywhere(3);
}

TEST_F(Spread, AtTheEndNothingIsLeft) {
    build(2, 3);
    join(2);
    pass(1s);
    leave(0);
    for (const Switch &root : roots)
        EXPECT_TRUE(has(root));
    deliver();
    for (const Switch &root : roots)
        EXPECT_EQ(joined_count(state(root).members), 1u);
    leave(1);
    deliver();
    EXPECT_FALSE(is_anywhere());
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, ARootThatHearsNoLeaveForgets) {
    build(2, 2);
    join(2);
    pass(1s);
    loses = [](const Message &message) { return message.type == INAGG_LEAVE; };
    leave(0);
    leave(1);
    deliver();
    EXPECT_TRUE(has(roots[0]));
    EXPECT_TRUE(has(roots[1]));
    pass(50s);
    EXPECT_TRUE(has(roots[0]));
    pass(15s);
    EXPECT_FALSE(is_anywhere()) << said();
    join(2, job, 2); // and nothing of it is in the way
    pass(1s);
    expect_up(0b11, 2);
}

TEST_F(Spread, TheLinkIsDownWhenRanksLeave) {
    build(2, 2);
    join(2);
    pass(1s);
    cut(0, 1);
    pass(100ms);
    leave(0);
    leave(1);
    pass(100ms);
    EXPECT_FALSE(has(roots[0]));
    EXPECT_FALSE(has(roots[1])) << said();
}

TEST_F(Spread, ALeafsAgentIsRestarted) {
    build(2, 2);
    join(2);
    pass(1s);
    restart_leaf(0);
    EXPECT_EQ(state(leaves[0]).up, 0b11);
    pass(10s);
    expect_up(0b11, 2);
    cut(1, 0);
    pass(100ms);
    expect_up(0b10, 2);
    restart_leaf(1);
    leaves[1].book->link(port_to_root(0), false, now);
    pass(10s);
    expect_up(0b10, 2);
    mend(1, 0);
    pass(400ms);
    expect_up(0b11, 2);
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, ALeafsAgentMissesThatALinkFailed) {
    build(2, 2);
    join(2);
    pass(1s);
    leaves[0].dead = true;
    cut(0, 0);
    pass(1s);
    EXPECT_EQ(state(leaves[0]).up, 0b11);
    EXPECT_EQ(state(leaves[1]).up, 0b10);
    leaves[0].dead = false;
    restart_leaf(0);
    leaves[0].book->link(port_to_root(0), false, now);
    EXPECT_EQ(state(leaves[0]).up, 0b10);
    mend(0, 0);
    pass(1s);
    expect_up(0b11, 2);
}

// Its --parent options are in another order than the last agent's.
TEST_F(Spread, OldUpPortsOfOtherParentsAreNotUsed) {
    build(2, 2);
    join(2);
    pass(1s);
    restart_leaf(0, false);
    leaves[0].book->tend(now);
    EXPECT_EQ(state(leaves[0]).up, 0);
    pass(100ms);
    expect_up(0b11, 2);
}

TEST_F(Spread, AJobOfOneLeaf) {
    build(2, 2);
    join_one_leaf(3);
    ASSERT_TRUE(has(leaves[0]));
    EXPECT_EQ(state(leaves[0]).record.all, 0b111u);
    EXPECT_EQ(state(leaves[0]).up, 0b11);
    for (const Switch &root : roots) {
        ASSERT_TRUE(has(root));
        EXPECT_EQ(subtree_of(state(root), 1), 0b111u);
    }
    for (size_t root : {0, 1})
        cut(0, root);
    pass(90s); // it needs nobody
    EXPECT_EQ(state(leaves[0]).up, 0);
    EXPECT_FALSE(has(roots[0]));
    for (size_t root : {0, 1})
        mend(0, root);
    pass(400ms);
    EXPECT_EQ(state(leaves[0]).up, 0b11);
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, AJobOfOneRank) {
    build(2, 2);
    join(1);
    pass(100ms);
    expect_up(0b11, 1);
    expect_same_everywhere(1);
    leave(0);
    deliver();
    EXPECT_FALSE(is_anywhere());
}

TEST_F(Spread, AJobOfASwitchAlone) {
    Policy alone;
    JobBook book(alone, [] { return uint16_t{9}; });
    book.join(from_host(0, 1, 2, job), now);
    book.join(from_host(1, 2, 2, job), now);
    const JobState &s = book.jobs().at(job);
    EXPECT_EQ(s.record.flags, INAGG_JOIN_TREE);
    EXPECT_EQ(s.record.all, 0b11u);
    EXPECT_EQ(s.up, 0);
    for (int i = 0; i < 100; i++) {
        now += 2s;
        EXPECT_TRUE(book.tend(now).messages.empty());
        book.expire(now);
    }
    EXPECT_TRUE(book.jobs().contains(job));
}

TEST_F(Spread, AConfiguredJobTakesTheGenerationThatRuns) {
    build(2, 2);
    auto no_port = [](const std::string &) { return 0u; };
    for (Switch &root : roots)
        root.book->add(parse_job_spec("6:size=2,elements=320,algorithm=canary"), no_port, now);
    for (uint64_t run = 1; run < 4; run++) {
        join(2, job, run);
        pass(1s);
        expect_up(0b11, 2);
        expect_same_everywhere(2);
        EXPECT_EQ(state(leaves[0]).record.elements, 320);
    }
    leave(0, job, 3);
    leave(1, job, 3);
    pass(1s);
    for (const Switch &root : roots) {
        ASSERT_TRUE(has(root));
        EXPECT_EQ(joined_count(state(root).members), 0u);
    }
    join(2, job, 4);
    pass(1s);
    expect_up(0b11, 2);
}

TEST_F(Spread, AParentWithoutRoomIsDoneWithout) {
    build(2, 2);
    roots[1].book->policy().mtu = 500;
    join(2);
    pass(20s);
    expect_up(0b01, 2);
    EXPECT_EQ(notes.size(), 2u) << said(); // each leaf says it once
    roots[1].book->policy().mtu = 1500;
    pass(1s);
    expect_up(0b11, 2);
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, AJobThatIsDeletedAtOneParentEnds) {
    build(2, 3);
    join(2);
    pass(1s);
    act(roots[2], roots[2].book->remove(job));
    pass(100ms);
    EXPECT_EQ(told, std::vector(2, INAGG_R_JOB));
    EXPECT_FALSE(is_anywhere()) << said();
}

TEST_F(Spread, AJobThatIsDeletedAtALeafEndsThere) {
    build(2, 2);
    join(2);
    pass(1s);
    act(leaves[0], leaves[0].book->remove(job));
    deliver();
    for (const Switch &root : roots)
        EXPECT_EQ(joined_count(state(root).members), 1u);
}

// Two runs of a number, of leaves of their own: the second is not let in, and disturbs nobody.
TEST_F(Spread, AnotherRunOfTheNumberIsRefused) {
    build(4, 2);
    join(2);
    pass(1s);
    const uint16_t generation = state(leaves[0]).record.generation;
    for (int i = 0; i < 100; i++) {
        join_another_run();
        pass(50ms);
    }
    EXPECT_FALSE(has(leaves[2]));
    expect_up(0b11, 2);
    EXPECT_EQ(state(leaves[0]).record.generation, generation);
}

TEST_F(Spread, APortThatGoesComesBackAsAnother) {
    build(2, 2);
    join(2);
    pass(1s);
    act(leaves[0], leaves[0].book->port_gone(port_to_root(0)));
    set_link(0, 0, false);
    pass(1s);
    expect_up(0b10, 2);
    EXPECT_TRUE(told.empty());
}

TEST_F(Spread, MoreParentsThanBitsAreRefused) {
    build(1, INAGG_MAX_UPS + 1);
    EXPECT_EQ(leaves[0].book->join(from_host(0, 1, 1, job), now).reason, INAGG_R_ALGORITHM);
}

TEST_F(Spread, EightParents) {
    build(2, INAGG_MAX_UPS);
    join(2, 3);
    pass(100ms);
    expect_up(0xff, 2, 3);
    cut(0, 7);
    expect_up(0x7f, 1, 3);
}
