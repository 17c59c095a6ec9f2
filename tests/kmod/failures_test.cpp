// SPDX-License-Identifier: BSD-2-Clause
// What fails, whenever it fails: an error that says so, and nothing left behind.
#include "world.hpp"

#include <cstring>

namespace kmod {

struct FailuresTest : KmodTest {
    void integers_only() {
        for (Rank &rank : ranks)
            rank.set(INAGG_DTYPE, INAGG_INT32);
    }
};

static void tiny_buffer(Rank &rank) { rank.set(INAGG_BUFFER, 1); } // four blocks

// Deadlines.

TEST_F(FailuresTest, DeadlineNamesTheBlockAndWhoIsMissing) {
    start();
    join(3, [](Rank &rank) { rank.set(INAGG_DEADLINE, 2000); });
    integers_only();
    allreduce(integers(3, 64 * 5));
    ASSERT_EQ(ranks[0].send(Bytes(64 * 4)), 256);
    ASSERT_EQ(ranks[2].send(Bytes(64 * 4)), 256);
    const uint64_t begun = mock_now();
    Bytes got(256);
    EXPECT_EQ(ranks[0].recv(got), -ETIMEDOUT);
    EXPECT_NEAR(static_cast<double>(mock_now() - begun), 2e9, 1e7);
    const auto fault = ranks[0].fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->error, static_cast<unsigned>(ETIMEDOUT));
    EXPECT_EQ(fault->missing, 1U << 1);
    EXPECT_EQ(fault->block, 5U);
    EXPECT_EQ(fault->control, 0);
    EXPECT_FALSE(ranks[0].fault());
    EXPECT_EQ(ranks[0].recv(got), -ENOTCONN);
    EXPECT_EQ(ranks[0].send(got), -ENOTCONN);
}

TEST_F(FailuresTest, DeadlineOfABarrier) {
    start();
    join(2, [](Rank &rank) { rank.set(INAGG_DEADLINE, 1000); });
    ASSERT_EQ(ranks[1].send({}), 0);
    Bytes none;
    EXPECT_EQ(ranks[1].recv(none), -ETIMEDOUT);
    const auto fault = ranks[1].fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->missing, 1U);
    EXPECT_EQ(fault->control, 1);
}

TEST_F(FailuresTest, DeadlineCountsFromTheLastProgress) {
    start();
    join(2, [](Rank &rank) { rank.set(INAGG_DEADLINE, 1000); });
    Bytes none;
    for (int i = 0; i < 5; i++) {
        world->run(5 * s); // at rest nothing is due
        ASSERT_EQ(ranks[0].send({}), 0);
        world->at(900 * ms, [&] { ASSERT_EQ(ranks[1].send({}), 0); });
        EXPECT_EQ(ranks[0].recv(none), 0);
        EXPECT_EQ(ranks[1].recv(none), 0);
    }
}

TEST_F(FailuresTest, DeadlineWakesABlockedSender) {
    start();
    join(2, [](Rank &rank) {
        tiny_buffer(rank);
        rank.set(INAGG_DEADLINE, 1000);
    });
    integers_only();
    EXPECT_EQ(ranks[0].send(Bytes(256 * 20)), 1024) << "what was taken";
    EXPECT_EQ(ranks[0].send(Bytes(256 * 16)), -ETIMEDOUT);
    EXPECT_EQ(ranks[0].send(Bytes(256 * 16)), -ENOTCONN);
}

TEST_F(FailuresTest, ResultsThatCameBeforeTheFailureCanBeRead) {
    start();
    join(2, [](Rank &rank) { rank.set(INAGG_DEADLINE, 1000); });
    integers_only();
    const auto inputs = integers(2, 64);
    ASSERT_EQ(ranks[0].send(inputs[0]), 256);
    ASSERT_EQ(ranks[1].send(inputs[1]), 256);
    ASSERT_EQ(ranks[0].send(inputs[0]), 256);
    world->run(3 * s);
    Bytes got(256);
    EXPECT_EQ(ranks[0].recv(got), 256);
    EXPECT_TRUE(got == expected(INAGG_INT32, INAGG_SUM, inputs));
    EXPECT_EQ(ranks[0].recv(got), -ETIMEDOUT);
}

// The switch drops what disagrees with the block's first contribution: nobody gets a sum of unlike tensors.
TEST_F(FailuresTest, RanksThatDisagreeGetNoSum) {
    constexpr inagg_tensor_type ints = {INAGG_INT32, INAGG_SUM, 0, 0}, scaled = {INAGG_FLOAT32, INAGG_SUM, 0, 5};
    const struct {
        inagg_tensor_type one, other;
        int bytes;
    } pairs[] = {
        {ints, {INAGG_INT32, INAGG_MAX, 0, 0}, 256},
        {ints, scaled, 256},
        {scaled, {INAGG_FLOAT32, INAGG_SUM, 0, 6}, 256},
        {ints, ints, 128},
    };
    for (const auto &[one, other, bytes] : pairs) {
        start();
        join(2, [](Rank &rank) { rank.set(INAGG_DEADLINE, 1000); });
        ASSERT_EQ(ranks[0].send(Bytes(256), one), 256);
        world->run(ms);
        ASSERT_EQ(ranks[1].send(Bytes(static_cast<size_t>(bytes)), other), bytes);
        for (Rank &rank : ranks) {
            Bytes got(256);
            EXPECT_EQ(rank.recv(got), -ETIMEDOUT);
            EXPECT_EQ(rank.fault().value_or(inagg_fault{}).missing, 2U) << "whose elements were refused";
        }
        TearDown();
    }
    world.reset();
}

TEST_F(FailuresTest, WhereTheSwitchDoesNotSeeThatRanksDisagreeAllGetAResult) {
    start();
    join(2);
    ASSERT_EQ(ranks[0].send(Bytes(256), {INAGG_INT32, INAGG_MIN, 0, 0}), 256);
    ASSERT_EQ(ranks[1].send(Bytes(256), {INAGG_FLOAT32, INAGG_MIN, 0, 0}), 256);
    for (Rank &rank : ranks) {
        Bytes got(256);
        EXPECT_EQ(rank.recv(got), 256);
    }
}

// Retransmission.

struct TimerTest : FailuresTest {
    // Rank 0 sends `count` tensors of a block each, rank 1 the same, the nth after `pause(n)` more.
    void trail(int count, const std::function<uint64_t(int)> &pause) {
        const Bytes block(256);
        for (int i = 0; i < count; i++)
            ASSERT_EQ(ranks[0].send(block), 256);
        for (int i = 0; i < count; i++) {
            world->run(pause(i));
            ASSERT_EQ(ranks[1].send(block), 256);
        }
        Bytes got(256);
        for (int i = 0; i < count; i++)
            for (Rank &rank : ranks)
                ASSERT_EQ(rank.recv(got), 256);
    }
    void SetUp() override {
        start();
        join(2);
        integers_only();
        trail(8, [](int) { return 0; });
    }
};

TEST_F(TimerTest, WaitsWhileResultsCome) {
    trail(8, [](int) { return 400 * us; }); // the last one 3 ms, which is three RTOs
    EXPECT_EQ(ranks[0].info().retransmissions, 0U);
    trail(8, [](int) { return 100 * ms; });
    EXPECT_GT(ranks[0].info().retransmissions, 0U);
}

TEST_F(TimerTest, RemembersHowLongAWindowTakes) {
    trail(60, [](int n) { return n < 8 ? 400 * us : 0; });
    EXPECT_LT(ranks[0].info().srtt_ns, 200 * us) << "of those that did not wait";
    trail(8, [](int n) { return n ? 0 : 1300 * us; });
    EXPECT_EQ(ranks[0].info().retransmissions, 0U);
    trail(8, [](int n) { return n ? 0 : 1300 * us; });
    EXPECT_EQ(ranks[0].info().retransmissions, 0U);
}

// Memory.

TEST_F(FailuresTest, MemoryLimitIsKeptAndGivenBack) {
    start();
    join(4);
    mock_set_memory_limit(10 << 20); // two sockets
    EXPECT_EQ(ranks[0].send({}), 0);
    EXPECT_EQ(ranks[1].send({}), 0);
    const long charged = mock_charged();
    EXPECT_LE(charged, 10 << 20);
    EXPECT_EQ(ranks[2].send({}), -ENOBUFS);
    EXPECT_EQ(mock_charged(), charged);
    ASSERT_EQ(ranks[2].set(INAGG_BUFFER, 1 << 20), 0);
    EXPECT_EQ(ranks[2].send({}), 0) << "a smaller one";
    mock_set_linger(ranks[0].sock, true, 0);
    ranks[0].close();
    EXPECT_EQ(ranks[3].send({}), 0) << "in the place of another";
    for (Rank &rank : ranks) {
        if (rank.sock)
            mock_set_linger(rank.sock, true, 0);
        rank.close();
    }
    EXPECT_EQ(mock_charged(), 0);
}

TEST_F(FailuresTest, SendThatFailsTakesNothing) {
    for (const char *what : {"kzalloc", "kvcalloc", "__vmalloc", "__get_free_page", "copy_from_iter_full"}) {
        start();
        join(1, tiny_buffer);
        const auto inputs = inputs_of(INAGG_FLOAT32, 1, 64 * 9);
        const bool copies = std::string(what) == "copy_from_iter_full";
        mock_fail(what, copies ? 5 : 1); // the fifth looks for the largest element of the rest
        EXPECT_EQ(ranks[0].send(inputs[0], MSG_DONTWAIT), copies ? -EFAULT : -ENOMEM);
        EXPECT_STREQ(mock_failed(), what);
        for (const Transfer &t : allreduce(inputs))
            EXPECT_TRUE(t.output == expected(INAGG_FLOAT32, INAGG_SUM, inputs)) << what;
        TearDown();
    }
    world.reset();
}

// Memory that is not mapped: what was taken before counts, the rest can be sent again.
TEST_F(FailuresTest, UnmappedMemory) {
    start();
    join(1, tiny_buffer);
    integers_only();
    const auto inputs = integers(1, 64 * 9);
    const auto send_mapped = [&](size_t from, size_t mapped) {
        mock_message m{};
        m.data = const_cast<std::byte *>(inputs[0].data() + from);
        m.bytes = inputs[0].size() - from;
        m.mapped = mapped;
        m.flags = MSG_DONTWAIT;
        return mock_sendmsg(ranks[0].sock, &m);
    };
    EXPECT_EQ(send_mapped(0, 200), -EFAULT) << "not even one block";
    ASSERT_EQ(send_mapped(0, 0), 1024);
    world->run(ms);
    Bytes got(512);
    ASSERT_EQ(ranks[0].recv(got), 512);
    size_t sent = 1024;
    for (const size_t mapped : {300, 0}) { // room for two blocks, one of them mapped
        const int more = send_mapped(sent, mapped);
        EXPECT_TRUE(more > 0 || (more == -EFAULT && mapped)) << more;
        EXPECT_TRUE(!mapped || more <= static_cast<int>(mapped)) << more;
        sent += static_cast<size_t>(std::max(more, 0));
    }
    std::vector<Transfer> transfers;
    transfers.push_back({ranks[0], inputs[0], got, sent, true});
    pump(transfers);
    EXPECT_TRUE(transfers[0].output == inputs[0]);

    ASSERT_EQ(ranks[0].send(inputs[0], MSG_DONTWAIT), 1024);
    world->run(ms);
    mock_message m{};
    m.data = got.data();
    m.bytes = got.size();
    m.mapped = 100;
    EXPECT_EQ(mock_recvmsg(ranks[0].sock, &m), 100) << "what is there counts";
    mock_message rest{};
    Bytes last(1024);
    rest.data = last.data();
    rest.bytes = last.size();
    rest.flags = MSG_DONTWAIT;
    EXPECT_EQ(mock_recvmsg(ranks[0].sock, &rest), 924);
    EXPECT_TRUE(std::equal(last.begin(), last.begin() + 924, inputs[0].begin() + 100)) << "and nothing is lost";
}

TEST_F(FailuresTest, PacketsThatFindNoMemoryAreLostOnes) {
    for (const char *what : {"alloc_skb", "skb_linearize", "route"})
        for (unsigned nth = 1; nth < 30; nth++) {
            start();
            join(2);
            integers_only();
            mock_set_nonlinear(true);
            mock_fail(what, nth);
            const auto inputs = integers(2, 64 * 12);
            for (const Transfer &t : allreduce(inputs))
                EXPECT_TRUE(t.output == expected(INAGG_INT32, INAGG_SUM, inputs)) << what << " " << nth;
            TearDown();
        }
    world.reset();
}

// Everything that can fail does, one after the other.

// A rank's way through a job: whichever call fails, it goes on to close. True: all of it worked.
static bool join_one(Rank &rank, uint16_t number, void (*prepare)(Rank &)) {
    if (!rank.sock)
        return false;
    prepare(rank);
    rank.set(INAGG_BUFFER, 1);
    return !rank.bind(number) && !rank.connect(2);
}

static bool finish(std::vector<Transfer> &transfers, const Bytes &want) {
    for (int i = 0; i < 100'000 && !are_done(transfers); i++)
        if (!take_turns(transfers) && !mock_step())
            break;
    bool all = are_done(transfers);
    for (const Transfer &t : transfers) {
        EXPECT_TRUE(!t.done || t.error || t.output == want) << "success with another result";
        all = all && !t.error;
    }
    return all;
}

static bool run_job(World &world, std::vector<Rank> &ranks, const std::vector<Bytes> &inputs, const Bytes &want,
                    void (*prepare)(Rank &)) {
    for (uint16_t i = 0; i < 2; i++) {
        ranks.emplace_back();
        if (!join_one(ranks.back(), i, prepare))
            return false;
        ranks.back().set(INAGG_DEADLINE, 10000); // each turn that others get takes them to their next event
    }
    std::vector<Transfer> transfers;
    for (size_t i = 0; i < 2; i++)
        transfers.push_back({ranks[i], inputs[i]});
    world.run(us);
    return finish(transfers, want);
}

struct SweepTest : KmodTest {
    inagg::SoftwareSwitchOptions options = small();
    void (*prepare)(Rank &) = [](Rank &) {};

    void sweep(const std::vector<Bytes> &inputs, const Bytes &want, unsigned least, void (*preemption)() = nullptr) {
        for (unsigned nth = 1;; nth++) {
            World here(options);
            mock_set_preemption(preemption);
            mock_fail(nullptr, nth);
            if (mock_load()) {
                mock_check_empty();
                EXPECT_STREQ(mock_complaints(), "") << mock_failed();
                continue;
            }
            std::vector<Rank> these;
            const bool passed = run_job(here, these, inputs, want, prepare);
            const char *what = mock_failed();
            SCOPED_TRACE(std::string(what ? what : "nothing") + " fails, call " + std::to_string(nth));
            expect_clean_end(here, these);
            if (!what) {
                EXPECT_TRUE(passed);
                EXPECT_GT(nth, least);
                return;
            }
            if (HasFailure())
                return;
        }
    }
};

TEST_F(SweepTest, EveryCallThatCanFailDoesOnce) {
    const auto inputs = inputs_of(INAGG_FLOAT32, 2, 64 * 9 + 3);
    sweep(inputs, expected(INAGG_FLOAT32, INAGG_SUM, inputs), 80);
}

TEST_F(SweepTest, WhileOtherTasksRun) {
    const auto inputs = inputs_of(INAGG_FLOAT32, 2, 64 * 9 + 3);
    sweep(inputs, expected(INAGG_FLOAT32, INAGG_SUM, inputs), 80, [] { mock_step(); });
}

TEST_F(SweepTest, JoiningAGroup) {
    options.group = group_of("239.77.0.7", 12001);
    const auto inputs = inputs_of(INAGG_FLOAT32, 2, 64 * 5);
    for (void (*preemption)() : {(void (*)()) nullptr, +[] { mock_step(); }})
        sweep(inputs, expected(INAGG_FLOAT32, INAGG_SUM, inputs), 80, preemption);
}

TEST_F(SweepTest, WithElementsThatAreTurned) {
    options.big_endian = true;
    const auto inputs = inputs_of(INAGG_FLOAT32, 2, 64 * 5);
    sweep(inputs, expected(INAGG_FLOAT32, INAGG_SUM, inputs), 60);
}

TEST_F(SweepTest, WithInfinities) {
    auto inputs = inputs_of(INAGG_FLOAT32, 2, 65);
    const uint32_t infinity = 0x7f800000;
    Bytes want = expected(INAGG_FLOAT32, INAGG_SUM, [&] {
        auto finite = inputs;
        for (Bytes &in : finite)
            std::memset(in.data() + 8, 0, 4);
        return finite;
    }());
    std::memcpy(inputs[0].data() + 8, &infinity, 4);
    std::memcpy(want.data() + 8, &infinity, 4);
    sweep(inputs, want, 60);
}

TEST_F(SweepTest, WithAKeyThatVerifies) {
    const auto inputs = inputs_of(INAGG_FLOAT32, 2, 64 * 9 + 3);
    prepare = [](Rank &rank) { mock_setsockopt(rank.sock, SOL_INAGG, INAGG_VERIFY, "sixteen bytes...", 16); };
    sweep(inputs, expected(INAGG_FLOAT32, INAGG_SUM, inputs), 80);
}

// A socket is closed, or shut down, after any number of events.

struct Ending {
    const char *name;
    void (*end)(Rank &);
};

struct EndingTest : KmodTest, testing::WithParamInterface<Ending> {};

TEST_P(EndingTest, AtAnyMoment) {
    auto inputs = inputs_of(INAGG_FLOAT32, 2, 64 * 3);
    const uint32_t nan = 0x7fc00000;
    std::memcpy(inputs[1].data() + 40, &nan, 4);
    for (int steps = 0; steps < 60; steps++) {
        World here(small());
        ASSERT_EQ(mock_load(), 0);
        std::vector<Rank> these(2);
        for (uint16_t i = 0; i < 2; i++) {
            ASSERT_EQ(these[i].bind(i), 0);
            these[i].set(INAGG_BUFFER, 1 << 16);
            ASSERT_EQ(these[i].connect(2, true), -EINPROGRESS);
        }
        int left[2] = {2, 2}; // tensors to send
        for (int i = 0; i < steps && mock_step(); i++)
            for (size_t r = 0; r < 2; r++)
                left[r] -= left[r] && these[r].send(inputs[r], MSG_DONTWAIT) > 0;
        GetParam().end(these[0]);
        SCOPED_TRACE(steps);
        expect_clean_end(here, these);
        if (HasFailure())
            return;
    }
}

INSTANTIATE_TEST_SUITE_P(, EndingTest,
                         testing::Values(Ending{"Close", [](Rank &rank) { rank.close(); }},
                                         Ending{"LingerZero",
                                                [](Rank &rank) {
                                                    mock_set_linger(rank.sock, true, 0);
                                                    rank.close();
                                                }},
                                         Ending{"Linger",
                                                [](Rank &rank) {
                                                    mock_set_linger(rank.sock, true, 100);
                                                    rank.close();
                                                }},
                                         Ending{"Exit",
                                                [](Rank &rank) {
                                                    mock_set_exiting(true, false);
                                                    rank.close();
                                                    mock_set_exiting(false, false);
                                                }},
                                         Ending{"ShutdownReceiving", [](Rank &rank) { mock_shutdown(rank.sock, SHUT_RD); }},
                                         Ending{"ShutdownSending", [](Rank &rank) { mock_shutdown(rank.sock, SHUT_WR); }},
                                         Ending{"ShutdownBoth", [](Rank &rank) { mock_shutdown(rank.sock, SHUT_RDWR); }}),
                         [](const auto &info) { return info.param.name; });

} // namespace kmod
