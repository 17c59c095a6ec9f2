// SPDX-License-Identifier: BSD-2-Clause
// Every socket option: defaults, edges of its range, when it may be set, how it is read.
#include "world.hpp"

#include <array>
#include <cstring>

namespace kmod {

struct OptionsTest : KmodTest {
    void SetUp() override { start(); }
    static int set_text(Rank &rank, const char *text, unsigned length) {
        return mock_setsockopt(rank.sock, SOL_INAGG, INAGG_ALGORITHM, text, length);
    }
};

struct Range {
    int option, initial;
    std::vector<int> good, bad;
};

static const Range ranges[] = {
    {INAGG_DTYPE, INAGG_FLOAT32, {INAGG_INT32, INAGG_BFLOAT16}, {-1, INAGG_DTYPES}},
    {INAGG_OP, INAGG_SUM, {INAGG_SUM, INAGG_AVG}, {-1, INAGG_OPS}},
    {INAGG_SCALE, INAGG_SCALE_AUTO, {-128, 157, 0, INAGG_SCALE_AUTO}, {-129, 158, INT32_MAX, INAGG_SCALE_AUTO + 1}},
    {INAGG_WINDOW, 0, {0, 1, INT32_MAX}, {-1, INT32_MIN}},
    {INAGG_BLOCK, 0, {0, 32, 832}, {-32, 1, 31, 33, 864, INT32_MAX}},
    {INAGG_RTO_MIN, 1000, {100, 500'000}, {0, -1, 99, 500'001}},
    {INAGG_DEADLINE, 30'000, {1, INT32_MAX}, {0, -1}},
    {INAGG_CHECKED, 0, {0, 1}, {-1, 2}},
    {INAGG_BUFFER, 4 << 20, {1, 256 << 20}, {0, -1}},
    {INAGG_EXPIRY, 0, {0, 1, INT32_MAX}, {-1, INT32_MIN}},
    {INAGG_QUORUM, 0, {0, 1, 64}, {-1, 65}},
    {INAGG_EXCLUDE, 0, {0, 1000, INT32_MAX}, {-1, 1, 999}},
    {INAGG_HISTORY, 16 << 20, {1, 16 << 20}, {0, -1}}, // a 32nd of the memory_limit
};

TEST_F(OptionsTest, RangesHaveTheirEdges) {
    for (const Range &range : ranges) {
        Rank rank;
        SCOPED_TRACE(range.option);
        EXPECT_EQ(rank.get(range.option), range.initial);
        for (const int value : range.good) {
            EXPECT_EQ(rank.set(range.option, value), 0) << value;
            EXPECT_EQ(rank.get(range.option), value);
        }
        for (const int value : range.bad) {
            EXPECT_EQ(rank.set(range.option, value), -EINVAL) << value;
            EXPECT_EQ(rank.get(range.option), range.good.back()) << "and changes nothing";
        }
    }
}

TEST_F(OptionsTest, BufferAndHistoryAreCutToTheirLimits) {
    Rank rank;
    for (const int option : {INAGG_BUFFER, INAGG_HISTORY}) {
        EXPECT_EQ(rank.set(option, INT32_MAX), 0);
        EXPECT_EQ(rank.get(option), option == INAGG_BUFFER ? 256 << 20 : 16 << 20);
    }
    mock_set_memory_limit(1UL << 40);
    Rank large;
    EXPECT_EQ(large.get(INAGG_HISTORY), 16 << 20);
    EXPECT_EQ(large.set(INAGG_HISTORY, INT32_MAX), 0);
    EXPECT_EQ(large.get(INAGG_HISTORY), 256 << 20);
    ASSERT_EQ(mock_write_sysctl(0, "buffer_max", 1 << 20), 0);
    for (const int option : {INAGG_BUFFER, INAGG_HISTORY}) {
        EXPECT_EQ(large.set(option, INT32_MAX), 0);
        EXPECT_EQ(large.get(option), 1 << 20);
    }
}

TEST_F(OptionsTest, LengthsAndPointersAreChecked) {
    Rank rank;
    const int value = 1;
    EXPECT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_WINDOW, &value, 3), -EINVAL);
    EXPECT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_WINDOW, &value, 0), -EINVAL);
    EXPECT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_WINDOW, nullptr, 4), -EFAULT);
    EXPECT_EQ(set_text(rank, nullptr, 8), -EFAULT);
    int got, length = 4;
    EXPECT_EQ(mock_getsockopt(rank.sock, SOL_INAGG, INAGG_WINDOW, &got, nullptr), -EFAULT);
    EXPECT_EQ(mock_getsockopt(rank.sock, SOL_INAGG, INAGG_WINDOW, nullptr, &length), -EFAULT);
    length = -1;
    EXPECT_EQ(mock_getsockopt(rank.sock, SOL_INAGG, INAGG_WINDOW, &got, &length), -EINVAL);
    length = 100;
    EXPECT_EQ(mock_getsockopt(rank.sock, SOL_INAGG, INAGG_WINDOW, &got, &length), 0);
    EXPECT_EQ(length, 4);
    char one = 9;
    length = 1;
    EXPECT_EQ(mock_getsockopt(rank.sock, SOL_INAGG, INAGG_WINDOW, &one, &length), 0);
    EXPECT_EQ(length, 1);
}

TEST_F(OptionsTest, UnknownOptionsAndLevelsAreRefused) {
    Rank rank;
    int value = 0, length = 4;
    for (const int name : {-1, 0, 18, 1000})
        EXPECT_EQ(rank.set(name, 0), -ENOPROTOOPT) << name;
    for (const int name : {-1, 0, 18, 1000})
        EXPECT_EQ(mock_getsockopt(rank.sock, SOL_INAGG, name, &value, &length), -ENOPROTOOPT) << name;
    EXPECT_EQ(rank.set(INAGG_INFO, 0), -ENOPROTOOPT) << "can only be read";
    EXPECT_EQ(mock_getsockopt(rank.sock, SOL_INAGG, INAGG_KEY, &value, &length), -EOPNOTSUPP) << "can only be written";
    EXPECT_EQ(mock_setsockopt(rank.sock, 6, INAGG_WINDOW, &value, 4), -ENOPROTOOPT);
    EXPECT_EQ(mock_getsockopt(rank.sock, 6, INAGG_WINDOW, &value, &length), -ENOPROTOOPT);
}

TEST_F(OptionsTest, AlgorithmsAreNamed) {
    Rank rank;
    EXPECT_EQ(set_text(rank, "switchml", 8), 0);
    EXPECT_EQ(set_text(rank, "switchml", 9), 0);
    EXPECT_EQ(set_text(rank, "switch", 6), -ENOENT);
    EXPECT_EQ(set_text(rank, "", 1), -ENOENT);
    EXPECT_EQ(set_text(rank, "", 0), -EINVAL);
    EXPECT_EQ(set_text(rank, "switchml and a long tail of it", 30), -ENOENT);
    EXPECT_EQ(set_text(rank, "trio", 4), 0);
    for (const char *name : {"atp", "panama", "canary"})
        EXPECT_EQ(set_text(rank, name, strlen(name)), -EPROTONOSUPPORT) << name;
    char text[32] = {};
    int length = sizeof(text);
    EXPECT_EQ(mock_getsockopt(rank.sock, SOL_INAGG, INAGG_ALGORITHM, text, &length), 0);
    EXPECT_STREQ(text, "trio");
}

TEST_F(OptionsTest, AKeyHas16BytesOrNone) {
    Rank rank;
    const std::array<uint8_t, 17> key = {1};
    const auto set = [&](const void *at, int bytes) { return mock_setsockopt(rank.sock, SOL_INAGG, INAGG_KEY, at, bytes); };
    for (const int bytes : {1, 4, 15, 17})
        EXPECT_EQ(set(key.data(), bytes), -EINVAL) << bytes;
    EXPECT_EQ(set(nullptr, 16), -EFAULT);
    EXPECT_EQ(set(key.data(), 16), 0);
    EXPECT_EQ(set(key.data(), 0), 0);
}

TEST_F(OptionsTest, WhatTheJobWasMadeWithStays) {
    join(1);
    const std::array<uint8_t, 16> key = {1};
    EXPECT_EQ(mock_setsockopt(ranks[0].sock, SOL_INAGG, INAGG_KEY, key.data(), 16), -EISCONN);
    for (const int option :
         {INAGG_WINDOW, INAGG_BLOCK, INAGG_RTO_MIN, INAGG_CHECKED, INAGG_EXPIRY, INAGG_QUORUM, INAGG_HISTORY, INAGG_EXCLUDE})
        EXPECT_EQ(ranks[0].set(option, ranks[0].get(option)), -EISCONN) << option;
    EXPECT_EQ(set_text(ranks[0], "switchml", 8), -EISCONN);
    for (const int option : {INAGG_DTYPE, INAGG_OP, INAGG_SCALE, INAGG_DEADLINE, INAGG_BUFFER})
        EXPECT_EQ(ranks[0].set(option, ranks[0].get(option)), 0) << option;
    ASSERT_EQ(ranks[0].send({}), 0);
    EXPECT_EQ(ranks[0].set(INAGG_BUFFER, 1), -EBUSY);
}

TEST_F(OptionsTest, WhatTheJoinAsksForStaysWhileItWaits) {
    world->filter = [](const mock_packet &) { return true; };
    Rank rank;
    ASSERT_EQ(rank.bind(0), 0);
    ASSERT_EQ(rank.connect(1, true), -EINPROGRESS);
    EXPECT_EQ(rank.set(INAGG_BLOCK, 32), -EISCONN);
    EXPECT_EQ(rank.set(INAGG_CHECKED, 1), -EISCONN);
    world->filter = {};
    ASSERT_EQ(rank.connect(1), 0);
    EXPECT_EQ(rank.get(INAGG_BLOCK), 0);
}

TEST_F(OptionsTest, OnlyTrioLeavesRanksOut) {
    for (const auto &[option, value] :
         {std::pair{INAGG_EXPIRY, 1000}, {INAGG_QUORUM, 1}, {INAGG_QUORUM, 3}, {INAGG_EXCLUDE, 1000}}) {
        Rank rank;
        ASSERT_EQ(rank.bind(0), 0);
        EXPECT_EQ(rank.set(option, value), 0);
        EXPECT_EQ(rank.connect(2, true), -EINVAL);
        EXPECT_EQ(set_text(rank, "trio", 4), 0);
        EXPECT_EQ(rank.connect(2, true), value == 3 ? -EINVAL : -EINPROGRESS) << "no quorum of more ranks than there are";
    }
}

TEST_F(OptionsTest, BlockBoundsTheJobsPackets) {
    join(1, [](Rank &rank) { rank.set(INAGG_BLOCK, 32); });
    EXPECT_EQ(ranks[0].info().elements, 32);
}

TEST_F(OptionsTest, InfoTellsOfTheJob) {
    Rank fresh;
    EXPECT_EQ(fresh.info().size, 0);
    join(2);
    for (Rank &rank : ranks)
        rank.set(INAGG_DTYPE, INAGG_INT32);
    allreduce(integers(2, 64 * 10));
    const inagg_info info = ranks[1].info();
    EXPECT_EQ(info.job, job_number);
    EXPECT_EQ(info.rank, 1);
    EXPECT_EQ(info.size, 2);
    EXPECT_EQ(info.elements, 64);
    EXPECT_EQ(info.slots, 8U);
    EXPECT_EQ(info.blocks, 10U);
    EXPECT_EQ(info.contributions, 10U);
    EXPECT_EQ(info.retransmissions, 0U);
    EXPECT_EQ(info.rejected, 0U);
    EXPECT_GE(info.srtt_ns, 100 * us);
    inagg_info part{};
    int length = 8;
    EXPECT_EQ(mock_getsockopt(ranks[1].sock, SOL_INAGG, INAGG_INFO, &part, &length), 0);
    EXPECT_EQ(length, 8);
    EXPECT_EQ(part.size, 2);
    EXPECT_EQ(part.blocks, 0U);
}

} // namespace kmod
