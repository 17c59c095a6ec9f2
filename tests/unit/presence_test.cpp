// SPDX-License-Identifier: BSD-2-Clause
// Which ranks are stragglers, and which of them for good.
#include <inagg/core/presence.h>

#include <gtest/gtest.h>

#include <initializer_list>

namespace {

constexpr __u64 second = 1000000000, patience = 3 * second;

// Three ranks, looked at once a second.
struct Presence : testing::Test {
    inagg_presence presence{};
    inagg_attendance counts{};
    __u64 ranks = 7, now = 100 * second;

    void look(std::initializer_list<int> heard, std::initializer_list<int> missed = {}, __u64 wait = patience) {
        for (int rank : heard)
            counts.heard[rank]++;
        for (int rank : missed)
            counts.missed[rank]++;
        inagg_presence_look(&presence, ranks, &counts, now, wait);
        now += second;
    }
};

} // namespace

TEST_F(Presence, WhoIsThereIsNoStraggler) {
    for (int i = 0; i < 10; i++)
        look({0, 1, 2});
    EXPECT_EQ(presence.temporary, 0u);
    EXPECT_EQ(presence.permanent, 0u);
}

TEST_F(Presence, WhoIsLateIsATemporaryOneForAsLongAsItLasts) {
    look({0, 1, 2});
    for (int i = 0; i < 10; i++) {
        look({0, 1, 2}, {1});
        EXPECT_EQ(presence.temporary, 2u);
        EXPECT_EQ(presence.permanent, 0u) << "it is heard";
    }
    look({0, 1, 2});
    EXPECT_EQ(presence.temporary, 0u);
}

TEST_F(Presence, WhatWasMissedBeforeTheFirstLookSaysNothing) {
    look({0, 1, 2}, {1});
    EXPECT_EQ(presence.temporary, 0u);
}

TEST_F(Presence, WhoIsSilentWhileOthersAreHeardIsAPermanentOne) {
    look({0, 1, 2});
    look({0, 1}, {2});
    look({0, 1}, {2});
    EXPECT_EQ(presence.temporary, 4u);
    EXPECT_EQ(presence.permanent, 0u) << "after two seconds";
    look({0, 1}, {2});
    EXPECT_EQ(presence.permanent, 4u);
    EXPECT_EQ(presence.temporary, 0u);
    look({0, 1, 2});
    EXPECT_EQ(presence.permanent, 0u) << "unless it comes back first";
}

TEST_F(Presence, WithoutBlocksSilenceSuffices) {
    for (int i = 0; i < 4; i++)
        look({0, 1});
    EXPECT_EQ(presence.permanent, 4u) << "blocks that wait for all ranks are never decided";
}

TEST_F(Presence, NobodyIsJudgedWhileAllAreSilent) {
    look({0, 1, 2});
    for (int i = 0; i < 100; i++)
        look({});
    EXPECT_EQ(presence.permanent, 0u);
    look({0});
    EXPECT_EQ(presence.permanent, 0u) << "silence counts only while somebody is heard";
}

TEST_F(Presence, WithoutPatienceNobodyEverIs) {
    for (int i = 0; i < 100; i++)
        look({0}, {1, 2}, 0);
    EXPECT_EQ(presence.permanent, 0u);
    EXPECT_EQ(presence.temporary, 6u);
}

TEST_F(Presence, OnlyThoseWhoHaveJoinedAreJudged) {
    ranks = 3;
    for (int i = 0; i < 10; i++)
        look({0, 1});
    ranks = 7;
    look({0, 1});
    EXPECT_EQ(presence.permanent, 0u) << "its time begins now";
    for (int i = 0; i < 3; i++)
        look({0, 1});
    EXPECT_EQ(presence.permanent, 4u);
}

TEST_F(Presence, OneLookDoesNotJudge) {
    look({0, 1, 2});
    now += 100 * second;
    look({0, 1});
    EXPECT_EQ(presence.permanent, 0u) << "whoever looks may have slept, too";
    now += 100 * second;
    look({0, 1});
    EXPECT_EQ(presence.permanent, 4u);
}
