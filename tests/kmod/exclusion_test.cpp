// SPDX-License-Identifier: BSD-2-Clause
// Jobs that go on without ranks that are silent: who is there says so, who is out is told, and who comes back is taken back.
#include "world.hpp"

#include <inagg/core/membership.h>
#include <inagg/core/packet.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <poll.h>

namespace kmod {

struct ExclusionTest : KmodTest {
    static constexpr uint16_t size = 3;
    static constexpr inagg_tensor_type renewal = {INAGG_INT32, INAGG_SUM, INAGG_TENSOR_RENEW, 0};

    static void choose(Rank &rank, int exclude_ms) {
        ASSERT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_ALGORITHM, "trio", 4), 0);
        ASSERT_EQ(rank.set(INAGG_EXCLUDE, exclude_ms), 0);
        ASSERT_EQ(rank.set(INAGG_DTYPE, INAGG_INT32), 0);
        ASSERT_EQ(rank.set(INAGG_DEADLINE, 5000), 0);
    }
    void begin(int exclude_ms = 1000, const inagg::SoftwareSwitchOptions &options = small(), uint64_t jitter_ns = 0) {
        start(options, jitter_ns);
        join(size, [&](Rank &rank) { choose(rank, exclude_ms); });
        sweeping = true;
        world->every(ms, [this] {
            world->sw().sweep();
            return sweeping;
        });
    }
    void TearDown() override {
        sweeping = false;
        KmodTest::TearDown();
    }

    // How many JOINs a rank sends while `ns` pass.
    std::vector<unsigned> joins_in(uint64_t ns) {
        std::vector<unsigned> joins(ranks.size());
        world->filter = [&](const mock_packet &packet) {
            const inagg_hdr h = header_of(packet);
            joins.at(inagg_swap16(h.source)) += inagg_hdr_type(&h) == INAGG_JOIN;
            return false;
        };
        world->run(ns);
        world->filter = {};
        return joins;
    }
    // Tensors of ranks from `first` to `last`, summed over those that are in `mask`.
    void expect_sums(std::initializer_list<size_t> who, uint64_t mask) {
        const auto inputs = integers(size, 64 * 30);
        std::vector<Bytes> in;
        std::vector<Transfer> transfers;
        for (const size_t r : who) {
            in.push_back(inputs[r]);
            transfers.push_back({ranks[r], inputs[r]});
        }
        pump(transfers);
        for (const Transfer &t : transfers) {
            EXPECT_EQ(t.error, 0);
            EXPECT_TRUE(t.output == expected(INAGG_INT32, INAGG_SUM, in));
            EXPECT_EQ(t.info.contributors, mask);
        }
    }
    void exclude(uint16_t rank) {
        world->sw().exclude(job_number, rank);
        world->run(300 * ms); // all have heard
    }
    // Another process of rank 2.
    void come_back() {
        ranks[2].close();
        Rank fresh;
        std::swap(ranks[2].sock, fresh.sock);
        ASSERT_EQ(ranks[2].bind(2), 0);
        choose(ranks[2], 1000);
        ASSERT_EQ(ranks[2].connect(size, true), -EINPROGRESS);
        world->run(500 * ms);
    }
    void begin_renewal() {
        for (const size_t r : {0, 1})
            ASSERT_EQ(ranks[r].send({}, renewal), 0);
    }
    // What ranks 0 and 1 learn from the barrier.
    void expect_renewed(bool renewed) {
        for (const size_t r : {0, 1}) {
            inagg_result_info info{};
            int flags = 0;
            ASSERT_EQ(ranks[r].recv({}, flags, &info), 0);
            EXPECT_TRUE(flags & MSG_EOR);
            EXPECT_EQ(info.flags & INAGG_RESULT_RENEWED, renewed ? INAGG_RESULT_RENEWED : 0) << r;
        }
    }
    bool sweeping = false;
};

TEST_F(ExclusionTest, WhoIsIdleSaysThatItIsThere) {
    begin();
    for (const unsigned joins : joins_in(3 * s)) {
        EXPECT_GE(joins, 11U);
        EXPECT_LE(joins, 13U);
    }
    expect_sums({0, 1, 2}, 7);
    for (const unsigned joins : joins_in(3 * s))
        EXPECT_GE(joins, 11U) << "after tensors, too";
}

TEST_F(ExclusionTest, NobodySaysSoWhereNobodyLooks) {
    begin(0);
    for (const unsigned joins : joins_in(3 * s))
        EXPECT_EQ(joins, 0U);
}

TEST_F(ExclusionTest, TheJobsFirstRankDecidesWhetherRanksAreExcluded) {
    for (const auto &[first, others] : {std::pair{1000, 0}, {0, 1000}}) {
        start();
        join(size, [&](Rank &rank) { choose(rank, ranks.size() == 1 ? first : others); });
        for (const unsigned joins : joins_in(s))
            EXPECT_EQ(joins >= 3, first != 0) << joins;
        TearDown();
        ranks.clear();
        world.reset();
    }
}

TEST_F(ExclusionTest, TheOthersGoOnAndTheExcludedIsTold) {
    begin();
    expect_sums({0, 1, 2}, 7);
    for (Rank &rank : ranks)
        EXPECT_EQ(rank.info().excluded, 0U);
    std::vector<Transfer> waiting = {{ranks[0], Bytes(256)}, {ranks[1], Bytes(256)}};
    take_turns(waiting);
    world->run(10 * ms);
    EXPECT_FALSE(take_turns(waiting)) << "a rank is missing";
    exclude(2);
    pump(waiting);
    for (const Transfer &t : waiting) {
        EXPECT_EQ(t.error, 0);
        EXPECT_EQ(t.info.contributors, 3U);
        EXPECT_EQ(t.info.flags, INAGG_RESULT_DEGRADED);
    }
    expect_sums({0, 1}, 3);
    for (const size_t r : {0, 1}) {
        EXPECT_EQ(ranks[r].info().excluded, 4U);
        ASSERT_EQ(ranks[r].send({}), 0) << "a barrier needs no more";
    }
    for (const size_t r : {0, 1})
        EXPECT_EQ(ranks[r].recv({}), 0);

    EXPECT_TRUE(mock_poll(ranks[2].sock) & POLLERR);
    EXPECT_EQ(ranks[2].send({}), -ECONNRESET);
    const auto fault = ranks[2].fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->reason, unsigned{INAGG_R_EXCLUDED});
    EXPECT_EQ(fault->error, unsigned{ECONNRESET});
    EXPECT_EQ(ranks[2].send({}), -ENOTCONN);
    EXPECT_EQ(ranks[2].recv({}), -ENOTCONN);
    EXPECT_EQ(joins_in(s)[2], 0U) << "it is silent then";
}

TEST_F(ExclusionTest, WhoComesBackIsInTheNextGeneration) {
    for (const bool lossy : {false, true}) {
        if (lossy)
            begin(1000, {.elements = 64, .slots = 8, .control_slots = 2, .loss = 0.1, .duplication = 0.05}, 200 * us);
        else
            begin();
        for (int n = 0; n < 3; n++) {
            SCOPED_TRACE(n);
            expect_sums({0, 1, 2}, 7);
            const uint16_t generation = ranks[0].info().generation;
            const long charged = mock_charged();
            exclude(2);
            expect_sums({0, 1}, 3);
            come_back();
            EXPECT_EQ(ranks[2].connect(size, true), -EALREADY) << "not yet";
            begin_renewal();
            expect_renewed(true);
            ASSERT_EQ(ranks[2].connect(size), 0);
            for (Rank &rank : ranks) {
                EXPECT_EQ(rank.info().generation, generation + 1);
                EXPECT_EQ(rank.info().excluded, 0U);
            }
            expect_sums({0, 1, 2}, 7);
            EXPECT_EQ(mock_charged(), charged);
        }
        TearDown();
        ranks.clear();
        world.reset();
    }
}

TEST_F(ExclusionTest, WhoIsNotTakenBackLearnsWhy) {
    begin();
    exclude(2);
    come_back();
    world->run(6 * s);
    EXPECT_EQ(ranks[2].connect(size), -ETIMEDOUT);
    const auto fault = ranks[2].fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->reason, unsigned{INAGG_R_EXCLUDED});
}

TEST_F(ExclusionTest, WhereNobodyWaitsARenewalIsABarrier) {
    begin();
    const uint16_t generation = ranks[0].info().generation;
    exclude(2);
    begin_renewal();
    expect_renewed(false);
    EXPECT_EQ(ranks[0].info().generation, generation);
    expect_sums({0, 1}, 3);
}

TEST_F(ExclusionTest, ARenewalIsAlone) {
    begin();
    exclude(2);
    come_back();
    EXPECT_EQ(ranks[0].send(Bytes(4), renewal), -EINVAL);
    ASSERT_EQ(ranks[0].send(Bytes(4)), 4);
    EXPECT_EQ(ranks[0].send({}, renewal), -EBUSY) << "what was sent before is not received";
    ASSERT_EQ(ranks[1].send(Bytes(4)), 4);
    for (const size_t r : {0, 1}) {
        Bytes got(4);
        EXPECT_EQ(ranks[r].recv(got), 4);
    }
    ASSERT_EQ(ranks[0].send({}, renewal), 0);
    EXPECT_EQ(ranks[0].send(Bytes(4), MSG_DONTWAIT), -EAGAIN) << "what is behind it waits";
    EXPECT_FALSE(mock_poll(ranks[0].sock) & POLLOUT);
    ASSERT_EQ(ranks[1].send({}, renewal), 0);
    world->run(100 * ms);
    EXPECT_TRUE(mock_poll(ranks[0].sock) & POLLOUT);
    for (const size_t r : {0, 1})
        ASSERT_EQ(ranks[r].send(Bytes(4)), 4) << "also before the barrier is received";
    ASSERT_EQ(ranks[2].connect(size), 0);
    ASSERT_EQ(ranks[2].send(Bytes(4)), 4);
    expect_renewed(true);
    for (Rank &rank : ranks) {
        Bytes got(4);
        EXPECT_EQ(rank.recv(got), 4);
    }
}

TEST_F(ExclusionTest, WithoutMemoryThereIsNoNextGeneration) {
    for (const auto &[what, most] : {std::pair{"kvcalloc", 6}, {"__vmalloc", 1}})
        for (int nth = 1; nth <= most; nth++) {
            SCOPED_TRACE(nth);
            begin();
            expect_sums({0, 1, 2}, 7);
            exclude(2);
            come_back();
            begin_renewal();
            mock_fail(what, nth);
            world->run(100 * ms);
            ASSERT_TRUE(mock_failed());
            mock_fail(nullptr, 0);
            EXPECT_EQ((ranks[0].recv({}) == -ENOMEM) + (ranks[1].recv({}) == -ENOMEM), 1) << "one of them";
            TearDown();
            ranks.clear();
            world.reset();
        }
    begin();
    expect_sums({0, 1, 2}, 7);
    exclude(2);
    come_back();
    std::map<int, uint16_t> said; // of the generation, by type
    const auto note_generation = [&](const mock_packet &packet) {
        const inagg_hdr h = header_of(packet);
        said[inagg_hdr_type(&h)] = inagg_swap16(h.generation);
        return false;
    };
    world->filter = [&](const mock_packet &packet) {
        return inagg_swap16(header_of(packet).source) == 0 && note_generation(packet);
    };
    world->run(300 * ms);
    world->filter = {};
    begin_renewal();
    mock_set_memory_limit(static_cast<unsigned long>(mock_charged()));
    world->run(100 * ms);
    EXPECT_EQ(ranks[0].recv({}), -ENOBUFS);
    world->filter = note_generation;
    ranks[0].close();
    world->filter = {};
    EXPECT_EQ(said.at(INAGG_LEAVE), said.at(INAGG_JOIN) + 1) << "that in which the switch has it";
}

TEST_F(ExclusionTest, ANextGenerationThatDoesNotBeginTimesOut) {
    begin();
    exclude(2);
    come_back();
    begin_renewal();
    world->filter = [](const mock_packet &packet) { // what asks for it is lost
        struct inagg_join join;
        if (packet.bytes == sizeof(inagg_hdr) + sizeof(join))
            std::memcpy(&join, static_cast<const std::byte *>(packet.data) + sizeof(inagg_hdr), sizeof(join));
        return packet.bytes == sizeof(inagg_hdr) + sizeof(join) && join.flags & INAGG_JOIN_RENEW;
    };
    for (const size_t r : {0, 1})
        EXPECT_EQ(ranks[r].recv({}), -ETIMEDOUT);
    world->filter = {};
}

TEST_F(ExclusionTest, OnlyWhoIsKilledVanishes) {
    for (const auto &[exclude_ms, killed] : {std::pair{1000, true}, {1000, false}, {0, true}}) {
        begin(exclude_ms);
        unsigned leaves = 0;
        world->filter = [&](const mock_packet &packet) {
            const inagg_hdr h = header_of(packet);
            leaves += inagg_hdr_type(&h) == INAGG_LEAVE;
            return false;
        };
        mock_set_exiting(true, killed);
        ranks[2].close();
        mock_set_exiting(false, false);
        EXPECT_EQ(leaves, exclude_ms && killed ? 0U : 1U);
        world->filter = {};
        TearDown();
        ranks.clear();
        world.reset();
    }
}

TEST_F(ExclusionTest, WhoIsKilledIsThereUntilNobodyWaitsForWhatItSent) {
    begin();
    const auto inputs = integers(size, 64);
    ASSERT_EQ(ranks[2].send(inputs[2]), 256);
    mock_set_exiting(true, true);
    ranks[2].close();
    mock_set_exiting(false, false);
    EXPECT_GE(joins_in(s)[2], 3U);
    for (const size_t r : {0, 1})
        ASSERT_EQ(ranks[r].send(inputs[r]), 256);
    for (const size_t r : {0, 1}) {
        Bytes got(256);
        ASSERT_EQ(ranks[r].recv(got), 256);
        EXPECT_TRUE(got == expected(INAGG_INT32, INAGG_SUM, inputs));
    }
    world->run(s);
    EXPECT_EQ(joins_in(s)[2], 0U);
}

// At any moment.
TEST_F(ExclusionTest, WhoClosesMeanwhileLeavesNothing) {
    for (int step = 0; step < 40; step++) {
        begin();
        exclude(2);
        come_back();
        begin_renewal();
        for (int i = 0; i < step; i++)
            mock_step();
        mock_set_linger(ranks[0].sock, true, 0);
        ranks[0].close();
        TearDown();
        ranks.clear();
        world.reset();
    }
}

// Data blocks: 0 asks for the exponent, 1 to 4 are the sum, 5 to 8 the counts. Some of rank 2 are lost until it is excluded.
TEST_F(ExclusionTest, WhatAnExcludedRankCouldNotCountIsNotCalledDegraded) {
    begin();
    world->filter = [&](const mock_packet &packet) { // of its counts, which come behind four blocks of elements, two
        const inagg_hdr h = header_of(packet);
        return packet.from_port == ranks[2].port && inagg_hdr_type(&h) == INAGG_CONTRIBUTION &&
               inagg_swap32(h.slot) < small().slots && inagg_swap32(h.block) >= 6;
    };
    for (size_t r = 0; r < size; r++) {
        std::vector<float> values(256, 1);
        values[7] = r == 2 ? std::numeric_limits<float>::infinity() : 1;
        ASSERT_EQ(ranks[r].send(bytes_of(values), {INAGG_FLOAT32, INAGG_SUM, 0, INAGG_SCALE_AUTO}), 1024);
    }
    world->run(100 * ms);
    exclude(2);
    for (const size_t r : {0, 1}) {
        Bytes got(1024);
        inagg_result_info info{};
        int flags = 0;
        ASSERT_EQ(ranks[r].recv(got, flags, &info), 1024);
        EXPECT_EQ(info.contributors, 7U);
        EXPECT_EQ(info.flags, 0);
        float last;
        std::memcpy(&last, got.data() + 1020, 4);
        EXPECT_TRUE(std::isnan(last));
    }
    world->filter = {};
}

TEST_F(ExclusionTest, WhatAnExcludedRankCouldNotCountIsNaN) {
    begin();
    constexpr float inf = std::numeric_limits<float>::infinity();
    static constexpr size_t count = 256;
    world->filter = [&](const mock_packet &packet) {
        const inagg_hdr h = header_of(packet);
        const uint32_t block = inagg_swap32(h.block);
        return packet.from_port == ranks[2].port && inagg_hdr_type(&h) == INAGG_CONTRIBUTION &&
               inagg_swap32(h.slot) < small().slots && (block == 2 || block == 4 || block == 7 || block == 8);
    };
    for (size_t r = 0; r < size; r++) {
        std::vector<float> values(count, 1);
        if (r == 2)
            values[7] = values[70] = values[130] = values[200] = inf;
        if (r == 0)
            values[71] = inf, values[201] = -inf;
        ASSERT_EQ(ranks[r].send(bytes_of(values), {INAGG_FLOAT32, INAGG_SUM, 0, INAGG_SCALE_AUTO}), int{4 * count});
    }
    world->run(100 * ms);
    Bytes got[2] = {Bytes(4 * count), Bytes(4 * count)};
    EXPECT_EQ(ranks[0].recv_nowait(got[0]), -EAGAIN) << "rank 2 is missing";
    exclude(2);
    for (const size_t r : {0, 1}) {
        std::vector<uint64_t> blocks;
        int flags = 0;
        ASSERT_EQ(ranks[r].recv(got[r], blocks, 8, flags), int{4 * count});
        EXPECT_EQ(blocks, (std::vector<uint64_t>{7, 3, 7, 3}));
        std::vector<float> sum(count);
        std::memcpy(sum.data(), got[r].data(), got[r].size());
        for (size_t i = 0; i < count; i++) {
            const bool is_counted_of_others = i == 70 || i == 71, is_not_counted = i / 64 == 2;
            if (is_counted_of_others || is_not_counted) {
                EXPECT_TRUE(std::isnan(sum[i])) << i;
            } else {
                EXPECT_EQ(sum[i], i == 7 ? inf : i == 201 ? -inf : i < 64 ? 3.0F : 2.0F) << i;
            }
        }
    }
    EXPECT_TRUE(got[0] == got[1]) << "the same NaN";
    world->filter = {};
}

} // namespace kmod
