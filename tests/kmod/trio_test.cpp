// SPDX-License-Identifier: BSD-2-Clause
// Algorithm trio: ranks that are late get what the others have, bit for bit, and each block is the sum of those it names.
#include "world.hpp"

#include <inagg/core/packet.h>

#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace kmod {

struct TrioTest : KmodTest {
    static constexpr uint16_t size = 3;

    void begin(const inagg::SoftwareSwitchOptions &options, const std::function<void(Rank &)> &prepare, uint64_t jitter_ns = 0) {
        start(options, jitter_ns);
        join(size, [&](Rank &rank) {
            choose_trio(rank);
            prepare(rank);
        });
    }
    static void choose_trio(Rank &rank) { ASSERT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_ALGORITHM, "trio", 4), 0); }
    static void exact(Rank &) {}
    static void quorum_of_two(Rank &rank) { ASSERT_EQ(rank.set(INAGG_QUORUM, 2), 0); }
    static void expiring(Rank &rank) { ASSERT_EQ(rank.set(INAGG_EXPIRY, 10'000), 0); }
    void sweep(uint64_t often = ms) {
        world->every(often, [this] {
            world->sw().sweep();
            return sweeping;
        });
    }
    void TearDown() override {
        sweeping = false;
        KmodTest::TearDown();
    }

    // What rank r has of element i of tensor n: small integers, exact in every type.
    static float value(size_t rank, size_t i, unsigned n) {
        return static_cast<float>(static_cast<int>((rank * 7 + i * 3 + n) % 15) - 7);
    }
    static Bytes floats_of(size_t rank, size_t count, unsigned n) {
        std::vector<float> values(count);
        for (size_t i = 0; i < count; i++)
            values[i] = value(rank, i, n);
        return bytes_of(values);
    }
    static float float_at(const Bytes &bytes, size_t i) {
        float x;
        std::memcpy(&x, bytes.data() + 4 * i, 4);
        return x;
    }
    // The sum, or average, of the ranks that are in its block.
    void expect_sum_of_named(const Bytes &result, const std::vector<uint64_t> &blocks, unsigned n, bool average) {
        for (size_t i = 0; i < result.size() / 4; i++) {
            const uint64_t ranks_in = blocks.at(i / 64);
            float sum = 0;
            for (size_t rank = 0; rank < size; rank++)
                sum += ranks_in >> rank & 1 ? value(rank, i, n) : 0;
            if (average)
                sum /= static_cast<float>(std::popcount(ranks_in));
            ASSERT_EQ(float_at(result, i), sum) << "element " << i << " of ranks " << ranks_in;
        }
    }

    static constexpr unsigned tensors = 6;
    static constexpr size_t count = 1500;
    static uint8_t op_of(unsigned n) { return n % 3 == 2 ? INAGG_AVG : INAGG_SUM; }

    // One rank's part in tensor n: its result is checked, and the same for all ranks.
    void expect_tensors(std::initializer_list<size_t> who) {
        for (unsigned n = 0; n < tensors; n++) {
            for (const size_t r : who)
                ASSERT_EQ(ranks[r].send(floats_of(r, count, n), {INAGG_FLOAT32, op_of(n), 0, INAGG_SCALE_AUTO}), int{4 * count});
            for (const size_t r : who) {
                Bytes got(4 * count);
                std::vector<uint64_t> blocks;
                int flags = 0;
                ASSERT_EQ(ranks[r].recv(got, blocks, 512, flags), int{4 * count}) << "tensor " << n << " of rank " << r;
                ASSERT_EQ(blocks.size(), (count + 63) / 64);
                expect_sum_of_named(got, blocks, n, op_of(n) == INAGG_AVG);
                if (results.size() <= n)
                    results.push_back(got);
                EXPECT_TRUE(got == results[n]) << "tensor " << n << " of rank " << r;
            }
        }
    }
    // All at once, so that nobody waits for whom it is called before.
    void expect_barrier() {
        for (Rank &rank : ranks)
            ASSERT_EQ(rank.send({}), 0);
        for (Rank &rank : ranks)
            EXPECT_EQ(rank.recv({}), 0);
    }
    void expect_catching_up() {
        expect_tensors({0, 1});
        expect_tensors({2});
        expect_barrier();
        EXPECT_GT(ranks[2].info().skipped, 0U);
        EXPECT_GT(ranks[2].info().degraded, 0U);
        EXPECT_GT(world->sw().counters().degraded, 0U);
    }

    std::vector<Bytes> results;
    bool sweeping = true;
};

TEST_F(TrioTest, WithoutStragglersItIsExact) {
    begin({.elements = 64, .slots = 8, .control_slots = 2, .loss = 0.02, .duplication = 0.02}, exact, 200 * us);
    for (int d = 0; d < INAGG_DTYPES; d++)
        for (int o = 0; o <= INAGG_MAX; o++) {
            for (Rank &rank : ranks) {
                rank.set(INAGG_DTYPE, d);
                rank.set(INAGG_OP, o);
            }
            const auto inputs = inputs_of(static_cast<inagg_dtype>(d), size, 1000);
            const Bytes want = expected(static_cast<inagg_dtype>(d), static_cast<inagg_op>(o), inputs);
            for (const Transfer &t : allreduce(inputs)) {
                EXPECT_EQ(t.error, 0);
                EXPECT_TRUE(t.output == want) << d << " " << o;
                EXPECT_EQ(t.info.contributors, 7U);
                EXPECT_EQ(t.info.any, 7U);
                EXPECT_EQ(t.info.count, 3);
                EXPECT_EQ(t.info.flags, 0);
                EXPECT_EQ(t.info.degraded_blocks, 0U);
            }
        }
    EXPECT_EQ(world->sw().counters().degraded, 0U);
}

TEST_F(TrioTest, AStragglerTakesWhatAQuorumDecided) {
    begin(small(), quorum_of_two);
    expect_catching_up();
    EXPECT_LT(ranks[2].info().contributions, 20U) << "it sends next to nothing";
}

TEST_F(TrioTest, AStragglerTakesWhatExpired) {
    begin(small(), expiring);
    sweep();
    expect_catching_up();
}

TEST_F(TrioTest, ABadNetworkLosesWhatItNeeds) {
    begin({.elements = 64, .slots = 8, .control_slots = 2, .loss = 0.05, .duplication = 0.02, .reordering = 0.05, .buckets = 2},
          expiring, 200 * us);
    sweep();
    expect_catching_up();
    EXPECT_GT(world->sw().counters().recoveries, 0U);
    EXPECT_GT(world->sw().counters().restores, 0U);
}

// Its results never came: the others give them back.
TEST_F(TrioTest, AStragglerRecoversWhatTheSwitchForgot) {
    begin(small(), quorum_of_two);
    world->deaf = ranks[2].port;
    expect_tensors({0, 1});
    world->sw().clear_slots();
    world->deaf = 0;
    expect_tensors({2});
    expect_barrier();
    EXPECT_GT(world->sw().counters().restores, 0U);
    EXPECT_EQ(ranks[2].info().retransmissions > 0, true);
}

// One result is late, and behind it is more than an interrupt may pass.
TEST_F(TrioTest, WhatIsAheadIsPassedInParts) {
    constexpr int blocks = 16 * 100, block_bytes = 256, most = 512;
    begin({.elements = 64, .slots = 16, .control_slots = 2}, quorum_of_two);
    for (Rank &rank : ranks)
        rank.set(INAGG_DTYPE, INAGG_INT32);
    bool loses = true;
    world->lost = [&](const inagg_hdr &h, uint16_t port) { return loses && port == ranks[2].port && !h.slot && !h.block; };
    const auto inputs = integers(size, 64 * blocks);
    std::vector<Transfer> two = {{ranks[0], inputs[0]}, {ranks[1], inputs[1]}};
    pump(two);
    world->run(ms);
    ASSERT_EQ(ranks[2].send(inputs[2], MSG_DONTWAIT), blocks * block_bytes);
    world->run(s);
    const auto here = [&] {
        int bytes = 0;
        EXPECT_EQ(mock_ioctl(ranks[2].sock, SIOCINQ, &bytes), 0);
        return bytes / block_bytes;
    };
    EXPECT_EQ(here(), 0);
    loses = false;
    int most_seen = 0;
    for (int before = 0; before < blocks; before = here()) {
        ASSERT_TRUE(mock_step());
        most_seen = std::max(most_seen, here() - before);
    }
    EXPECT_LE(most_seen, most);
    EXPECT_EQ(ranks[2].info().skipped, blocks - 1U);
    Bytes got(inputs[2].size());
    EXPECT_EQ(ranks[2].recv(got), blocks * block_bytes);
    EXPECT_TRUE(got == two[0].output);
    world->lost = {};
}

TEST_F(TrioTest, TheResultTellsWhoIsInIt) {
    begin(small(), quorum_of_two);
    for (Rank &rank : ranks)
        rank.set(INAGG_DTYPE, INAGG_INT32);
    const auto inputs = integers(size, 64 * 10 + 1);
    std::vector<Transfer> two = {{ranks[0], inputs[0]}, {ranks[1], inputs[1]}}, last = {{ranks[2], inputs[2]}};
    pump(two);
    pump(last);
    for (const Transfer &t : {two[0], two[1], last[0]}) {
        EXPECT_TRUE(t.output == expected(INAGG_INT32, INAGG_SUM, {inputs[0], inputs[1]}));
        EXPECT_EQ(t.info.contributors, 3U);
        EXPECT_EQ(t.info.any, 3U);
        EXPECT_EQ(t.info.count, 2);
        EXPECT_EQ(t.info.flags, INAGG_RESULT_DEGRADED);
        EXPECT_EQ(t.info.blocks, 11U);
        EXPECT_EQ(t.info.degraded_blocks, 11U);
        EXPECT_EQ(t.info.block_elements, 64U);
    }
}

// Block 0 lacks rank 2, block 1 rank 0, block 2 nobody.
TEST_F(TrioTest, TheResultTellsOfBlocksThatDiffer) {
    begin(small(), expiring);
    sweep();
    world->filter = [&](const mock_packet &packet) {
        const inagg_hdr h = header_of(packet);
        const uint32_t block = inagg_swap32(h.block);
        const bool of_elements = inagg_hdr_type(&h) == INAGG_CONTRIBUTION && inagg_swap32(h.slot) < small().slots;
        return of_elements &&
               ((block == 0 && packet.from_port == ranks[2].port) || (block == 1 && packet.from_port == ranks[0].port));
    };
    const auto inputs = integers(size, 64 * 3);
    for (size_t r = 0; r < size; r++)
        ASSERT_EQ(ranks[r].send(inputs[r], {INAGG_INT32, INAGG_SUM, 0, 0}), 3 * 256);
    for (Rank &rank : ranks) {
        Bytes got(3 * 256);
        std::vector<uint64_t> blocks;
        inagg_result_info info{};
        int flags = 0;
        ASSERT_EQ(rank.recv(std::span(got).first(256), blocks, 4, flags), 256);
        EXPECT_EQ(blocks, std::vector<uint64_t>{3});
        ASSERT_EQ(rank.recv(std::span(got).subspan(256), flags = 0, &info), 2 * 256);
        EXPECT_EQ(info.contributors, 2U);
        EXPECT_EQ(info.any, 7U);
        EXPECT_EQ(info.count, 2);
        EXPECT_EQ(info.blocks, 3U);
        EXPECT_EQ(info.degraded_blocks, 2U);
        EXPECT_EQ(info.flags, INAGG_RESULT_DEGRADED);
    }
    world->filter = {};
}

TEST_F(TrioTest, WithoutExpiryAndQuorumAllAreWaitedFor) {
    begin(small(), exact);
    sweep();
    for (const size_t r : {0, 1})
        ASSERT_EQ(ranks[r].send(floats_of(r, 64, 0)), 256);
    world->run(10 * s);
    Bytes got(256);
    EXPECT_EQ(ranks[0].recv_nowait(got), -EAGAIN);
    ASSERT_EQ(ranks[2].send(floats_of(2, 64, 0)), 256);
    for (Rank &rank : ranks) {
        ASSERT_EQ(rank.recv(got), 256);
        expect_sum_of_named(got, {7}, 0, false);
    }
}

TEST_F(TrioTest, ABlockWaitsAsLongAsItsExpirySays) {
    begin(small(), expiring);
    sweep(100 * us);
    for (const size_t r : {0, 1})
        ASSERT_EQ(ranks[r].send(Bytes(256), {INAGG_INT32, INAGG_SUM, 0, 0}), 256);
    const uint64_t start = mock_now();
    Bytes got(256);
    ASSERT_EQ(ranks[0].recv(got), 256);
    EXPECT_GE(mock_now() - start, 10 * ms);
    EXPECT_LE(mock_now() - start, 12 * ms);
}

// Results are kept from when a rank that did not wait for its join calls again.
TEST_F(TrioTest, WhatCameBeforeTheJoinWasToldOfIsNotKept) {
    start();
    for (uint16_t r = 0; r < size; r++) {
        ranks.emplace_back();
        ASSERT_EQ(ranks[r].bind(r), 0);
        choose_trio(ranks[r]);
        quorum_of_two(ranks[r]);
        ASSERT_EQ(ranks[r].set(INAGG_DTYPE, INAGG_INT32), 0);
        ASSERT_EQ(ranks[r].connect(size, r == 2), r == 2 ? -EINPROGRESS : 0);
    }
    world->run(ms);
    const Bytes ten_blocks(10 * 256);
    Bytes got(ten_blocks.size());
    const auto sum = [&](std::initializer_list<size_t> who) {
        for (const size_t r : who)
            ASSERT_EQ(ranks[r].send(ten_blocks), 10 * 256);
        for (const size_t r : who)
            ASSERT_EQ(ranks[r].recv(got), 10 * 256);
    };
    sum({0, 1});
    world->run(ms);
    EXPECT_EQ(ranks[2].info().ahead, 0U);
    ASSERT_EQ(ranks[2].connect(size), 0);
    sum({0, 1});
    world->run(ms);
    sum({2});
    EXPECT_EQ(ranks[2].info().skipped, 0U);
    sum({2});
    EXPECT_EQ(ranks[2].info().skipped, 10U);
}

TEST_F(TrioTest, AControlBufferThatIsTooSmallIsCut) {
    begin(small(), quorum_of_two);
    const Bytes data = floats_of(0, 640, 0);
    for (const size_t r : {0, 1})
        ASSERT_EQ(ranks[r].send(data), int{2560});
    Bytes got(2560);
    std::vector<uint64_t> blocks;
    int flags = 0;
    EXPECT_EQ(ranks[0].recv(std::span(got).first(1000), blocks, 4, flags), 1000) << "three blocks and a part";
    EXPECT_EQ(blocks, std::vector<uint64_t>(3, 3));
    EXPECT_FALSE(flags & (MSG_CTRUNC | MSG_EOR));
    flags = 0;
    EXPECT_EQ(ranks[0].recv(got, blocks, 4, flags), 1560);
    EXPECT_EQ(blocks, std::vector<uint64_t>(7, 3)) << "four more of seven";
    EXPECT_TRUE(flags & MSG_CTRUNC && flags & MSG_EOR);
}

TEST_F(TrioTest, EveryTypeIsTheSumOfTheNamedRanks) {
    begin(small(), quorum_of_two);
    const std::vector<uint16_t> halves(1000, 0x3c00), brains(1000, 0x3f80);
    for (const size_t r : {0, 1, 2}) {
        const Bytes one = bytes_of(std::vector<uint16_t>(1000, r ? 0x3c00 : 0x3c01));
        ASSERT_EQ(ranks[r].send(bytes_of(std::vector<int32_t>(1000, 1 << 8 * r)), {INAGG_INT32, INAGG_SUM, 0, 0}), 4000);
        ASSERT_EQ(ranks[r].send(bytes_of(std::vector<int32_t>(1000, 1 << 8 * r)), {INAGG_INT32, INAGG_MAX, 0, 0}), 4000);
        ASSERT_EQ(ranks[r].send(bytes_of(halves), {INAGG_FLOAT16, INAGG_SUM, 0, INAGG_SCALE_AUTO}), 2000);
        ASSERT_EQ(ranks[r].send(bytes_of(brains), {INAGG_BFLOAT16, INAGG_SUM, 0, INAGG_SCALE_AUTO}), 2000);
        ASSERT_EQ(ranks[r].send(one, {INAGG_FLOAT16, INAGG_AVG, 0, INAGG_SCALE_AUTO}), 2000);
        if (r)
            world->run(100 * ms);
    }
    for (Rank &rank : ranks) {
        Bytes got(4000);
        ASSERT_EQ(rank.recv(got), 4000);
        EXPECT_TRUE(got == bytes_of(std::vector<int32_t>(1000, 0x101)));
        ASSERT_EQ(rank.recv(got), 4000);
        EXPECT_TRUE(got == bytes_of(std::vector<int32_t>(1000, 0x100)));
        got.resize(2000);
        for (const uint16_t want : {0x4000, 0x4000, 0x3c00}) { // the last: the sum is a tie, rounded to even
            ASSERT_EQ(rank.recv(got), 2000);
            EXPECT_TRUE(got == bytes_of(std::vector<uint16_t>(1000, want))) << want;
        }
    }
}

TEST_F(TrioTest, BlocksAheadAreCounted) {
    begin(small(), quorum_of_two);
    for (Rank &rank : ranks)
        rank.set(INAGG_DTYPE, INAGG_INT32);
    for (int i = 0; i < 2; i++)
        for (const size_t r : {0, 1})
            ASSERT_EQ(ranks[r].send(Bytes(640 * 4)), 2560);
    world->run(100 * ms);
    EXPECT_EQ(ranks[2].info().ahead, 20U);
    EXPECT_EQ(ranks[0].info().ahead, 0U);
    for (const uint64_t left : {10, 0}) {
        Bytes got(2560);
        ASSERT_EQ(ranks[2].send(got), 2560);
        EXPECT_EQ(ranks[2].recv(got), 2560);
        EXPECT_EQ(ranks[2].info().ahead, left);
    }
    EXPECT_EQ(ranks[2].info().contributions, 0U) << "all of it was here";
    EXPECT_EQ(ranks[2].info().skipped, 20U);
}

// What is here may be of a tensor that is sent: the user is not to take it for the next one's.
TEST_F(TrioTest, NothingIsAheadOfATensorWithoutNumbers) {
    begin(small(), quorum_of_two);
    world->lost = [&](const inagg_hdr &h, uint16_t port) { // what rank 2 would hear of scales
        return port == ranks[2].port && inagg_swap32(h.slot) >= small().slots;
    };
    for (const size_t r : {0, 1})
        ASSERT_EQ(ranks[r].send(floats_of(r, 640, 0)), 2560);
    world->run(100 * ms);
    EXPECT_EQ(ranks[2].info().ahead, 10U);
    world->lost = nullptr;
    Bytes got(2560);
    ASSERT_EQ(ranks[2].send(floats_of(2, 640, 0)), 2560);
    EXPECT_EQ(ranks[2].info().ahead, 0U);
    EXPECT_EQ(ranks[2].recv(got), 2560);
    EXPECT_EQ(ranks[2].info().ahead, 0U);
}

// Thousands of results that are here are taken a burst at a time.
TEST_F(TrioTest, ALongWayIsCaughtUpInParts) {
    begin({.elements = 64, .slots = 64, .control_slots = 2, .buckets = 256}, quorum_of_two);
    for (Rank &rank : ranks)
        rank.set(INAGG_DTYPE, INAGG_INT32);
    const auto inputs = integers(size, 64 * 3000);
    std::vector<Transfer> two = {{ranks[0], inputs[0]}, {ranks[1], inputs[1]}}, last = {{ranks[2], inputs[2]}};
    pump(two);
    world->run(ms);
    EXPECT_EQ(ranks[2].info().ahead, 3000U);
    pump(last);
    EXPECT_TRUE(last[0].output == two[0].output);
    EXPECT_EQ(ranks[2].info().skipped, 3000U);
    EXPECT_EQ(ranks[2].info().contributions, 0U);
}

TEST_F(TrioTest, BarriersWholeTensorsAndNanWaitForAll) {
    begin(small(), quorum_of_two);
    constexpr float inf = std::numeric_limits<float>::infinity();
    std::vector<float> values(200, 1);
    values[7] = inf;
    for (const size_t r : {0, 1}) {
        ASSERT_EQ(ranks[r].send(floats_of(r, 200, 0), {INAGG_FLOAT32, INAGG_SUM, INAGG_TENSOR_WHOLE, INAGG_SCALE_AUTO}), 800);
        ASSERT_EQ(ranks[r].send(bytes_of(values)), 800);
        ASSERT_EQ(ranks[r].send({}), 0);
    }
    world->run(s);
    Bytes got(800);
    EXPECT_EQ(ranks[0].recv_nowait(got), -EAGAIN);
    ASSERT_EQ(ranks[2].send(floats_of(2, 200, 0), {INAGG_FLOAT32, INAGG_SUM, INAGG_TENSOR_WHOLE, INAGG_SCALE_AUTO}), 800);
    Bytes first(800);
    inagg_result_info info;
    int flags = 0;
    EXPECT_EQ(ranks[0].recv(first, flags, &info), 800);
    EXPECT_EQ(info.contributors, 7U);
    world->run(s);
    EXPECT_EQ(ranks[0].recv_nowait(got), -EAGAIN) << "infinities are counted in all ranks";
    ASSERT_EQ(ranks[2].send(bytes_of(std::vector<float>(200, 1))), 800);
    EXPECT_EQ(ranks[0].recv(got), 800);
    EXPECT_EQ(float_at(got, 0), 3);
    EXPECT_EQ(float_at(got, 7), inf);
    world->run(s);
    EXPECT_EQ(ranks[0].recv_nowait({}), -EAGAIN);
    ASSERT_EQ(ranks[2].send({}), 0);
    for (const size_t r : {1, 2})
        for (const Bytes &want : {first, got}) {
            Bytes other(800);
            EXPECT_EQ(ranks[r].recv(other), 800);
            EXPECT_TRUE(other == want);
        }
    for (Rank &rank : ranks)
        EXPECT_EQ(rank.recv({}), 0);
}

// A straggler with an infinity, or with elements that the scale of the others does not hold, adds nothing.
TEST_F(TrioTest, WhoDoesNotFitTheScaleIsAbsent) {
    for (const float large : {1e6F, std::numeric_limits<float>::infinity()}) {
        SCOPED_TRACE(large);
        begin(small(), quorum_of_two);
        world->lost = [&](const inagg_hdr &h, uint16_t port) { // the scale comes, the results do not
            return port == ranks[2].port && inagg_hdr_type(&h) == INAGG_RESULT && inagg_swap32(h.slot) < small().slots;
        };
        for (const size_t r : {0, 1})
            ASSERT_EQ(ranks[r].send(bytes_of(std::vector<float>(1000, 1))), 4000);
        world->run(100 * ms);
        world->sw().clear_slots();
        world->lost = {};
        ASSERT_EQ(ranks[2].send(bytes_of(std::vector<float>(1000, large))), 4000);
        for (Rank &rank : ranks) {
            Bytes got(4000);
            ASSERT_EQ(rank.recv(got), 4000);
            EXPECT_TRUE(got == bytes_of(std::vector<float>(1000, 2)));
        }
        expect_barrier();
        EXPECT_EQ(ranks[2].info().abstained, 16U) << "blocks";
        EXPECT_EQ(ranks[0].info().abstained, 0U);
        TearDown();
        ranks.clear();
        world.reset();
        sweeping = true;
    }
}

TEST_F(TrioTest, RefusedBlocksGoLaterAndNobodyIsStuck) {
    begin({.elements = 64, .slots = 64, .control_slots = 2, .most_open = 8}, exact, 100 * us);
    sweep();
    for (unsigned n = 0; n < 3; n++) {
        std::vector<Bytes> inputs;
        for (size_t r = 0; r < size; r++)
            inputs.push_back(floats_of(r, 20000, n));
        for (const Transfer &t : allreduce(inputs)) {
            EXPECT_EQ(t.error, 0);
            expect_sum_of_named(t.output, std::vector<uint64_t>(313, 7), n, false);
        }
    }
    uint64_t refused = 0;
    for (Rank &rank : ranks)
        refused += rank.info().refused;
    EXPECT_GT(refused, 0U);
}

TEST_F(TrioTest, WhoIsTooFarBehindTimesOut) {
    begin(small(), [](Rank &rank) {
        quorum_of_two(rank);
        rank.set(INAGG_HISTORY, 1); // two results for each slot
    });
    for (Rank &rank : ranks)
        rank.set(INAGG_DTYPE, INAGG_INT32);
    const auto inputs = integers(size, 64 * 300);
    std::vector<Transfer> two = {{ranks[0], inputs[0]}, {ranks[1], inputs[1]}}, last = {{ranks[2], inputs[2]}};
    world->deaf = ranks[2].port;
    pump(two);
    world->sw().clear_slots();
    world->deaf = 0;
    pump(last);
    EXPECT_EQ(last[0].error, -ETIMEDOUT);
}

// Without memory to keep results in, a rank asks for them; without any, the call says so and may be repeated.
TEST_F(TrioTest, MemoryMayLack) {
    for (const auto &[what, most] : {std::pair{"kvcalloc", 7}, {"__vmalloc", 2}})
        for (int nth = 1; nth <= most; nth++) {
            SCOPED_TRACE(nth);
            start();
            join(size, [&](Rank &rank) {
                ASSERT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_ALGORITHM, "trio", 4), 0);
                quorum_of_two(rank);
                rank.set(INAGG_DTYPE, INAGG_INT32);
                mock_fail(what, nth);
            });
            mock_fail(nullptr, 0);
            for (Rank &rank : ranks)
                ASSERT_EQ(rank.send(Bytes(640 * 4)), 2560);
            for (Rank &rank : ranks) {
                Bytes got(2560);
                std::vector<uint64_t> blocks;
                int flags = 0;
                mock_fail("kvcalloc", 1);
                EXPECT_EQ(rank.recv(got, blocks, 16, flags), -ENOMEM);
                mock_fail(nullptr, 0);
                EXPECT_EQ(rank.recv(got, blocks, 16, flags = 0), 2560);
                EXPECT_EQ(blocks.size(), 10U);
            }
            TearDown();
            ranks.clear();
            world.reset();
        }
}

TEST_F(TrioTest, AControlResultHasNoElements) {
    begin(small(), exact);
    inagg_hdr sent{};
    world->filter = [&](const mock_packet &packet) {
        if (packet.from_port == ranks[0].port)
            std::memcpy(&sent, packet.data, sizeof(sent));
        return true;
    };
    ASSERT_EQ(ranks[0].send(floats_of(0, 64, 0)), 256);
    world->run(ms);
    sent.version_type = INAGG_WIRE_VERSION << 4 | INAGG_RESULT;
    sent.contributors = inagg_swap64(7);
    sent.count = inagg_swap16(3);
    sent.level_flags &= inagg_swap16(INAGG_F_VERSION);
    sent.dtype_op = INAGG_WIRE_INT32 << 4;
    sent.elements = inagg_swap16(64);
    inagg_hdr_seal(&sent);
    Bytes packet(sizeof(sent) + 256);
    std::memcpy(packet.data(), &sent, sizeof(sent));
    const uint64_t rejected = ranks[0].info().rejected;
    EXPECT_TRUE(world->deliver(packet, ranks[0].port));
    EXPECT_EQ(ranks[0].info().rejected, rejected + 1);
    EXPECT_EQ(ranks[0].info().blocks, 0U);
    world->filter = {};
}

} // namespace kmod
