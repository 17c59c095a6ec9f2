// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/tree.h>

#include <gtest/gtest.h>

#include <cstring>

namespace {

constexpr __u8 int32_sum = INAGG_WIRE_INT32 << 4;

// A slot of a switch with ranks 0 and 1 behind it, in a job of four.
struct Tree : testing::Test {
    inagg_slot slot{};
    inagg_tree leaf{.here = 0b0011, .everyone = 0b1111};
    inagg_tree root{.here = 0b1111, .everyone = 0b1111};

    static inagg_block block(__u32 number, __u16 rank = 0, __u64 contributors = 0) {
        inagg_block b{};
        b.block = number;
        b.generation = 1;
        b.rank = rank;
        b.elements = 32;
        b.dtype_op = int32_sum;
        b.contributors = contributors;
        return b;
    }
    int contribute(const inagg_tree &tree, __u64 ranks, __u32 number = 0) {
        const inagg_block b = block(number);
        return inagg_tree_contribute(&slot, &tree, ranks, &b);
    }
    int request(__u32 number = 0, bool everyone = false) {
        const inagg_block b = block(number);
        return inagg_tree_request(&slot, &b, everyone);
    }
    int restore(const inagg_tree &tree, __u32 number = 0) {
        const inagg_block b = block(number);
        return inagg_tree_restore(&slot, &tree, &b);
    }
    int result(__u32 number = 0, __u64 contributors = 0b1111) {
        const inagg_block b = block(number, 0, contributors);
        return inagg_tree_result(&slot, &leaf, &b);
    }
    __u64 seen(__u32 number = 0) {
        const inagg_block b = block(number);
        return inagg_tree_seen(&slot, &leaf, &b);
    }
    void send() {
        contribute(leaf, 1);
        contribute(leaf, 2);
    }
};

} // namespace

TEST_F(Tree, LeafSendsItsSumUpAndTakesTheResult) {
    EXPECT_EQ(contribute(leaf, 1), INAGG_STORE);
    EXPECT_EQ(contribute(leaf, 2), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_EQ(slot.flags & (INAGG_SLOT_SENT | INAGG_SLOT_COMPLETE), INAGG_SLOT_SENT);
    EXPECT_EQ(result(), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(slot.flags & (INAGG_SLOT_SENT | INAGG_SLOT_COMPLETE), INAGG_SLOT_COMPLETE);
    EXPECT_EQ(slot.seen, 0b1111u);
    EXPECT_EQ(contribute(leaf, 1), INAGG_REPLY);
    EXPECT_EQ(request(), INAGG_REPLY);
}

TEST_F(Tree, RootAddsSwitchesAndRanks) {
    EXPECT_EQ(contribute(root, 0b0011), INAGG_STORE);
    EXPECT_EQ(contribute(root, 0b0011), INAGG_TELL);
    EXPECT_EQ(contribute(root, 0b0100), INAGG_ADD);
    EXPECT_EQ(contribute(root, 0b1000), INAGG_ADD | INAGG_COMPLETES);
    EXPECT_TRUE(slot.flags & INAGG_SLOT_COMPLETE);
}

TEST_F(Tree, OverlappingSumsAreNotAddedTwice) {
    contribute(root, 0b0011);
    const inagg_slot before = slot;
    EXPECT_EQ(contribute(root, 0b0110), INAGG_TELL);
    EXPECT_EQ(memcmp(&before, &slot, sizeof slot), 0);
}

TEST_F(Tree, WhatWasSentIsSentAgain) {
    contribute(leaf, 1);
    EXPECT_EQ(contribute(leaf, 1), INAGG_TELL);
    contribute(leaf, 2);
    EXPECT_EQ(contribute(leaf, 1), INAGG_SEND_UP);
    EXPECT_EQ(contribute(leaf, 2), INAGG_SEND_UP);
}

TEST_F(Tree, TheParentIsAskedOnlyOnceItHasTheSum) {
    EXPECT_EQ(request(), INAGG_TELL);
    contribute(leaf, 1);
    EXPECT_EQ(request(), INAGG_TELL);
    EXPECT_EQ(request(0, true), INAGG_TELL_ALL);
    contribute(leaf, 2);
    EXPECT_EQ(request(), INAGG_PASS_UP);
    EXPECT_EQ(request(0, true), INAGG_PASS_UP);
    contribute(leaf, 1, 8);
    EXPECT_EQ(request(), -INAGG_R_STALE);
}

TEST_F(Tree, RanksElsewhereAreNotBlamed) {
    EXPECT_EQ(seen(), 0u);
    contribute(leaf, 2);
    EXPECT_EQ(seen(), 0b1110u);
}

TEST_F(Tree, AParentsWaitIsCorrectedUntilTheSumIsSent) {
    const inagg_block b = block(0);
    EXPECT_EQ(inagg_tree_wait(&slot, &b, 0b1000), 0b1000u);
    contribute(leaf, 1);
    EXPECT_EQ(inagg_tree_wait(&slot, &b, 0b1000), 0b1001u);
    contribute(leaf, 2); // the parent speaks of what it has: the sum may be lost
    EXPECT_EQ(inagg_tree_wait(&slot, &b, 0b1000), 0b1000u);
}

TEST_F(Tree, ARestoreStaysWhereSomebodyWaits) {
    EXPECT_EQ(restore(leaf), INAGG_PASS_UP);
    EXPECT_EQ(restore(root), -INAGG_R_UNSOLICITED);
    contribute(leaf, 1);
    EXPECT_EQ(restore(leaf), INAGG_STORE | INAGG_COMPLETES);
    EXPECT_EQ(slot.seen, 0b1111u);
    EXPECT_EQ(restore(leaf), INAGG_PASS_UP);
}

TEST_F(Tree, ARestoreOfWhatWasSentIsTheParents) {
    send();
    EXPECT_EQ(restore(leaf), INAGG_PASS_UP);
}

TEST_F(Tree, AResultIsTakenOnce) {
    EXPECT_EQ(result(), INAGG_STORE | INAGG_COMPLETES); // forgotten, or not yet sent
    EXPECT_EQ(result(), -INAGG_R_DUPLICATE);
    EXPECT_EQ(contribute(leaf, 1, 8), INAGG_STORE);
    EXPECT_EQ(result(), -INAGG_R_STALE);
    EXPECT_EQ(result(8, 0b0111), -INAGG_R_RANK);
}

TEST_F(Tree, WhatIsLostBeginsAnewUnlessItWasFinished) {
    contribute(leaf, 1);
    EXPECT_EQ(inagg_tree_lose(&slot), 1);
    EXPECT_EQ(seen(), 0u);
    EXPECT_EQ(request(), INAGG_TELL);
    EXPECT_EQ(contribute(leaf, 1), INAGG_STORE);
    contribute(leaf, 2);
    EXPECT_EQ(inagg_tree_lose(&slot), 0);
    EXPECT_EQ(request(), INAGG_PASS_UP);
    result();
    EXPECT_EQ(inagg_tree_lose(&slot), 0);
    EXPECT_EQ(request(), INAGG_REPLY);
}

TEST_F(Tree, WhoSendsTheNextBlockAddsNoMoreToTheOneBefore) {
    contribute(leaf, 1, 4);
    const inagg_block before = block(0), same = block(4), next = block(8);
    inagg_block other = next;
    other.generation++;
    EXPECT_EQ(inagg_tree_overtaken(&slot, &before), 0);
    EXPECT_EQ(inagg_tree_overtaken(&slot, &same), 0);
    EXPECT_EQ(inagg_tree_overtaken(&slot, &other), 0);
    EXPECT_TRUE(inagg_slot_holds(&slot, &same));
    EXPECT_EQ(inagg_tree_overtaken(&slot, &next), 1);
    EXPECT_FALSE(inagg_slot_holds(&slot, &same));
    result(4);
    EXPECT_EQ(inagg_tree_overtaken(&slot, &next), 1);
    EXPECT_EQ(request(4), INAGG_REPLY); // a result stays
}

TEST_F(Tree, TheBlockThatBeganLastGivesWayToEarlierOnes) {
    contribute(leaf, 1, 4);
    const inagg_block before = block(3), same = block(4), next = block(5);
    EXPECT_EQ(inagg_tree_gives_way(&slot, &same, 0), 0);
    EXPECT_EQ(inagg_tree_gives_way(&slot, &next, 0), 0);
    EXPECT_TRUE(inagg_slot_holds(&slot, &same));
    EXPECT_EQ(inagg_tree_gives_way(&slot, &before, 0), 1);
    EXPECT_FALSE(inagg_slot_holds(&slot, &same));
}

TEST_F(Tree, ABlockThatNobodyWaitsForGivesWay) {
    const inagg_block same = block(4), next = block(5);
    inagg_block other = next;
    other.generation++;
    contribute(leaf, 1, 4);
    EXPECT_EQ(inagg_tree_gives_way(&slot, &next, 1), 1) << "nobody asks for it";
    EXPECT_FALSE(inagg_slot_holds(&slot, &same));
    contribute(leaf, 1, 4);
    EXPECT_EQ(inagg_tree_gives_way(&slot, &other, 0), 1) << "its run has ended";
    EXPECT_FALSE(inagg_slot_holds(&slot, &same));
    contribute(leaf, 1, 4);
    contribute(leaf, 2, 4);
    EXPECT_EQ(inagg_tree_gives_way(&slot, &next, 1), 0) << "what is finished stays";
    EXPECT_EQ(request(4), INAGG_PASS_UP);
}
