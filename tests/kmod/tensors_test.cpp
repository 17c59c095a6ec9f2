// SPDX-License-Identifier: BSD-2-Clause
// Whole allreduces: types, sizes, several at once, short calls, bad networks.
#include "world.hpp"

#include <cmath>
#include <cstring>
#include <limits>
#include <map>

namespace kmod {

static void tiny_buffer(Rank &rank) { rank.set(INAGG_BUFFER, 1); } // four blocks

struct TensorTest : KmodTest {
    // Two ranks whose buffers hold a fifth of these tensors.
    std::vector<Bytes> begin_streaming() {
        start();
        join(2, tiny_buffer);
        set_all(INAGG_DTYPE, INAGG_INT32);
        return integers(2, 64 * 20);
    }
    // Rank 1, and the receiving half of rank 0, whose sending half is the test's.
    std::vector<Transfer> all_but_sending(const std::vector<Bytes> &inputs) {
        std::vector<Transfer> others;
        others.push_back({ranks[1], inputs[1]});
        others.push_back({ranks[0], inputs[0], {}, inputs[0].size(), true});
        return others;
    }
    void check(inagg_dtype dtype, inagg_op op, const std::vector<Bytes> &inputs) {
        const Bytes want = expected(dtype, op, inputs);
        for (const Transfer &t : allreduce(inputs)) {
            EXPECT_EQ(t.error, 0);
            EXPECT_TRUE(t.output == want) << "type " << dtype << " operator " << op;
            EXPECT_EQ(t.info.count, inputs.size());
            EXPECT_EQ(t.info.contributors, inagg_all_ranks(static_cast<uint32_t>(inputs.size())));
            EXPECT_EQ(t.info.flags, 0);
        }
    }
    void set_all(int option, int value) {
        for (Rank &rank : ranks)
            ASSERT_EQ(rank.set(option, value), 0);
    }
    uint64_t sum(__u64 inagg_info::*counter) {
        uint64_t total = 0;
        for (Rank &rank : ranks)
            total += rank.info().*counter;
        return total;
    }

    // Queues the sums of all[i], rank by rank, of type dtype_of(i), and then receives them.
    template <typename Dtype> void check_queued(const std::vector<std::vector<Bytes>> &all, const Dtype &dtype_of) {
        for (unsigned i = 0; i < all.size(); i++)
            for (size_t r = 0; r < ranks.size(); r++)
                ASSERT_EQ(ranks[r].send(all[i][r], {static_cast<uint8_t>(dtype_of(i)), INAGG_SUM, 0, INAGG_SCALE_AUTO}),
                          static_cast<int>(all[i][r].size()));
        for (unsigned i = 0; i < all.size(); i++)
            for (Rank &rank : ranks) {
                Bytes got(all[i][0].size());
                ASSERT_EQ(rank.recv(got), static_cast<int>(got.size())) << i;
                EXPECT_TRUE(got == expected(dtype_of(i), INAGG_SUM, all[i])) << i;
            }
    }
};

TEST_F(TensorTest, EveryTypeAndOperatorIsExact) {
    start();
    join(3);
    for (int d = 0; d < INAGG_DTYPES; d++)
        for (int o = 0; o <= INAGG_MAX; o++) {
            const auto dtype = static_cast<inagg_dtype>(d);
            const auto op = static_cast<inagg_op>(o);
            set_all(INAGG_DTYPE, dtype);
            set_all(INAGG_OP, op);
            for (const size_t count : {1, 31, 64, 65, 1000})
                check(dtype, op, inputs_of(dtype, 3, count));
        }
}

TEST_F(TensorTest, FloatsWhereTheVectorUnitIsBusy) {
    start();
    join(3);
    for (Rank &rank : ranks) { // only some of them: the sums must agree
        mock_set_vectors(&rank != &ranks[0]);
        ASSERT_EQ(rank.send(inputs_of(INAGG_FLOAT32, 3, 100)[0]), 400);
        world->run(ms);
    }
    Bytes got[3];
    for (size_t i = 0; i < 3; i++) {
        got[i].resize(400);
        mock_set_vectors(i != 1);
        ASSERT_EQ(ranks[i].recv(got[i]), 400);
        EXPECT_TRUE(got[i] == got[0]);
    }
}

TEST_F(TensorTest, JobsOfOneAndOfSixtyFour) {
    for (const uint16_t size : {1, 64}) {
        start();
        join(size);
        SCOPED_TRACE(size);
        check(INAGG_FLOAT32, INAGG_SUM, inputs_of(INAGG_FLOAT32, size, 200));
        TearDown();
    }
    world.reset();
}

TEST_F(TensorTest, FloatsAreWithinTheBoundOfFixedPoint) {
    start();
    join(4);
    const auto inputs = inputs_of(INAGG_FLOAT32, 4, 500);
    const auto done = allreduce(inputs);
    float largest = 0;
    for (size_t i = 0; i < 500; i++) {
        double exact = 0;
        float x;
        for (const Bytes &in : inputs) {
            std::memcpy(&x, in.data() + 4 * i, 4);
            exact += x;
            largest = std::max(largest, std::fabs(x));
        }
        std::memcpy(&x, done[0].output.data() + 4 * i, 4);
        EXPECT_NEAR(x, exact, std::ldexp(8.0, -27) + std::fabs(exact) * 1e-7) << i;
    }
    EXPECT_GT(largest, 1);
}

TEST_F(TensorTest, InfinitiesAndNanComeOutWhereTheyGoIn) {
    start();
    join(3);
    constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    std::vector<std::vector<float>> values(3, std::vector<float>(200, 1.5F));
    values[0][3] = inf;
    values[1][3] = 7;
    values[0][70] = inf;
    values[2][70] = -inf;
    values[1][199] = nan;
    values[2][0] = -inf;
    check(INAGG_FLOAT32, INAGG_SUM, inputs_of(INAGG_FLOAT32, 3, 100));
    const long charged = mock_charged();
    for (int round = 0; round < 2; round++) { // and the stream goes on behind it
        std::vector<Bytes> inputs;
        for (const auto &v : values)
            inputs.push_back(bytes_of(v));
        for (const Transfer &t : allreduce(inputs)) {
            ASSERT_EQ(t.error, 0);
            std::vector<float> got(200);
            std::memcpy(got.data(), t.output.data(), 800);
            EXPECT_EQ(got[3], inf);
            EXPECT_TRUE(std::isnan(got[70]));
            EXPECT_TRUE(std::isnan(got[199]));
            EXPECT_EQ(got[0], -inf);
            EXPECT_EQ(got[1], 4.5F);
        }
        check(INAGG_FLOAT32, INAGG_SUM, inputs_of(INAGG_FLOAT32, 3, 100));
    }
    EXPECT_EQ(mock_charged(), charged) << "the counts' memory is given back";
}

// A tensor as large as the buffer, of which results that nobody has read take a half: its rest comes late.
TEST_F(TensorTest, InfinitiesWaitForTheRestOfTheirTensor) {
    start();
    join(2, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); }); // four blocks
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<float> values(64 * 4, 1);
    values[3] = inf;
    const Bytes input = bytes_of(values), other = bytes_of(std::vector<float>(64 * 4, 2));
    for (Rank &rank : ranks)
        ASSERT_EQ(rank.send(Bytes(512), {INAGG_INT32, INAGG_SUM, 0, 0}), 512);
    ASSERT_EQ(ranks[0].send(input, MSG_DONTWAIT), 512);
    ASSERT_EQ(ranks[1].send(other, MSG_DONTWAIT), 512);
    world->run(10 * ms); // the scale says that there are infinities
    std::vector<Transfer> transfers;
    for (Rank &rank : ranks) {
        Bytes first(512);
        ASSERT_EQ(rank.recv_nowait(first), 512);
        transfers.push_back({rank, &rank == &ranks[0] ? input : other, {}, 512, true});
    }
    pump(transfers);
    for (const Transfer &t : transfers) {
        ASSERT_EQ(t.error, 0);
        std::vector<float> got(64 * 4);
        std::memcpy(got.data(), t.output.data(), t.output.size());
        EXPECT_EQ(got[3], inf);
        EXPECT_EQ(got[255], 3);
    }
}

// Small float sums.

static std::vector<Bytes> scaled(std::vector<Bytes> inputs, int exponent) {
    for (Bytes &in : inputs)
        for (size_t i = 0; i < in.size(); i += 4) {
            float x;
            std::memcpy(&x, in.data() + i, 4);
            x = std::ldexp(i ? std::tanh(x) : 0.99F, exponent); // below 2^exponent, the first one just
            std::memcpy(in.data() + i, &x, 4);
        }
    return inputs;
}

struct GuessTest : TensorTest {
    static inagg::SoftwareSwitchOptions guessing() { return {.elements = 64, .slots = 8, .control_slots = 8}; }
    // Blocks that rank 0 takes for a sum.
    uint64_t blocks_of(inagg_dtype dtype, const std::vector<Bytes> &inputs) {
        const uint64_t before = ranks[0].info().blocks;
        check(dtype, INAGG_SUM, inputs);
        return ranks[0].info().blocks - before;
    }
    static std::vector<Bytes> sum_of(int exponent, unsigned seed) {
        return scaled(inputs_of(INAGG_FLOAT32, 3, 200, seed), exponent); // four blocks
    }
};

TEST_F(GuessTest, OneRoundWhileTheScaleStays) {
    start(guessing());
    join(3);
    for (unsigned i = 0; i < 30; i++)
        EXPECT_EQ(blocks_of(INAGG_FLOAT32, sum_of(static_cast<int>(i / 10), i)), i % 10 < 4 ? 8U : 4U) << i;
    std::vector<Bytes> one_grows = sum_of(2, 99);
    one_grows[1] = sum_of(9, 99)[1];
    EXPECT_EQ(blocks_of(INAGG_FLOAT32, one_grows), 8U);
    for (unsigned i = 0; i < 3; i++)
        EXPECT_EQ(blocks_of(INAGG_FLOAT32, sum_of(2, i)), 4U);
    EXPECT_EQ(blocks_of(INAGG_FLOAT32, sum_of(9, 7)), 4U) << "four sums before";
    EXPECT_EQ(blocks_of(INAGG_FLOAT32, scaled(inputs_of(INAGG_FLOAT32, 3, 300), 2)), 6U) << "too large to guess";
}

TEST_F(GuessTest, HalvesToo) {
    start(guessing());
    join(3);
    for (const inagg_dtype dtype : {INAGG_FLOAT16, INAGG_BFLOAT16}) {
        set_all(INAGG_DTYPE, dtype);
        const auto inputs = inputs_of(dtype, 3, 500);
        for (int i = 0; i < 4; i++)
            blocks_of(dtype, inputs);
        EXPECT_EQ(blocks_of(dtype, inputs), 4U);
    }
}

TEST_F(GuessTest, NothingIsGuessedOfAScaleSetByHandOrOfInfinities) {
    start(guessing());
    join(2);
    set_all(INAGG_SCALE, 10);
    EXPECT_EQ(blocks_of(INAGG_FLOAT32, {bytes_of(std::vector<float>{1, 2}), bytes_of(std::vector<float>{3, 4})}), 1U);
    set_all(INAGG_SCALE, INAGG_SCALE_AUTO);
    const auto infinite = bytes_of(std::vector<float>{1, std::numeric_limits<float>::infinity()});
    for (int i = 0; i < 6; i++)
        for (const Transfer &t : allreduce({infinite, infinite})) {
            EXPECT_EQ(t.error, 0);
            EXPECT_TRUE(t.output == bytes_of(std::vector<float>{2, std::numeric_limits<float>::infinity()}));
        }
}

TEST_F(GuessTest, SumsStayExactInBadWeather) {
    auto options = guessing();
    options.loss = options.duplication = 0.1;
    options.corruption = 0.02;
    start(options, 300 * us);
    join(3, [](Rank &rank) {
        tiny_buffer(rank);
        rank.set(INAGG_CHECKED, 1);
    });
    int left = 200;
    world->every(2 * ms, [&] {
        if (left % 2)
            world->sw().reboot();
        else
            world->sw().clear_slots();
        return --left > 0;
    });
    std::mt19937 random(3);
    for (unsigned i = 0; i < 60; i++) {
        const size_t counts[] = {1, 64, 65, 200, 256, 1000};
        check(INAGG_FLOAT32, INAGG_SUM,
              scaled(inputs_of(INAGG_FLOAT32, 3, counts[random() % 6], i), static_cast<int>(random() % 8 / 7)));
    }
    EXPECT_GT(sum(&inagg_info::restores), 0U);
    EXPECT_GT(sum(&inagg_info::reboots), 0U);
}

TEST_F(GuessTest, ManyAreQueuedAtScalesThatChange) {
    auto options = guessing();
    options.loss = 0.02;
    start(options, 100 * us);
    join(3);
    std::vector<std::vector<Bytes>> all;
    const auto dtype_of = [](unsigned i) { return i % 9 == 5 ? INAGG_INT32 : INAGG_FLOAT32; };
    for (unsigned i = 0; i < 60; i++) {
        const auto dtype = static_cast<uint8_t>(dtype_of(i));
        all.push_back(dtype == INAGG_INT32 ? integers(3, 100, i) : sum_of(static_cast<int>(i / 7 % 2), i));
    }
    check_queued(all, dtype_of);
}

// The control blocks of what is not in the ring yet cannot go, and the other ranks wait for them.
TEST_F(GuessTest, PieceByPieceThroughASmallRing) {
    start(guessing());
    bool small = true;
    join(3, [&](Rank &rank) {
        if (std::exchange(small, false))
            tiny_buffer(rank);
    });
    for (const int exponent : {0, 0, 0, 0, 1, 1, 0, 1}) { // guessed wrong, and right
        const auto first = scaled(inputs_of(INAGG_FLOAT32, 3, 130), exponent), second = sum_of(exponent, 1);
        ASSERT_EQ(ranks[0].send(first[0]), 520);
        ASSERT_EQ(ranks[0].send(second[0], MSG_DONTWAIT), 256) << "one block fits behind three";
        for (const size_t r : {1, 2}) {
            ASSERT_EQ(ranks[r].send(first[r]), 520);
            ASSERT_EQ(ranks[r].send(second[r]), 800);
        }
        world->run(ms);
        for (Rank &rank : ranks) {
            Bytes got(520);
            ASSERT_EQ(rank.recv(got), 520);
            EXPECT_TRUE(got == expected(INAGG_FLOAT32, INAGG_SUM, first));
        }
        ASSERT_EQ(ranks[0].send(std::span(second[0]).subspan(256)), 544);
        for (Rank &rank : ranks) {
            Bytes got(800);
            int flags = 0;
            ASSERT_EQ(rank.recv(got, flags), 800);
            EXPECT_TRUE(flags & MSG_EOR);
            EXPECT_TRUE(got == expected(INAGG_FLOAT32, INAGG_SUM, second));
        }
    }
}

// A wrong guess that is not all back when the sum is: the end of the tensor waits for it.
TEST_F(GuessTest, TheEndOfASumIsTheEndOfItsGuess) {
    start(guessing());
    join(3);
    world->filter = [&](const mock_packet &packet) {
        inagg_hdr h;
        if (packet.from_port != ranks[0].port || packet.bytes < sizeof(h))
            return false;
        std::memcpy(&h, packet.data, sizeof(h));
        return inagg_swap32(h.slot) == 8 + 3; // the last control block
    };
    const auto inputs = sum_of(0, 1);
    for (size_t r = 0; r < 3; r++)
        ASSERT_EQ(ranks[r].send(inputs[r]), 800);
    world->run(5 * ms);
    Bytes got(800);
    int flags = MSG_DONTWAIT;
    EXPECT_EQ(ranks[1].recv(got, flags), 768);
    EXPECT_FALSE(flags & MSG_EOR);
    world->filter = nullptr;
    Bytes rest(800);
    flags = 0;
    ASSERT_EQ(ranks[1].recv(rest, flags), 32);
    EXPECT_TRUE(flags & MSG_EOR);
    std::copy_n(rest.begin(), 32, got.begin() + 768);
    EXPECT_TRUE(got == expected(INAGG_FLOAT32, INAGG_SUM, inputs));
}

TEST_F(TensorTest, FixedScaleSumsAndSaturates) {
    start();
    join(2);
    set_all(INAGG_SCALE, 10);
    for (const Transfer &t : allreduce({bytes_of(std::vector<float>{1.5F, -2}), bytes_of(std::vector<float>{0.25F, 2})}))
        EXPECT_TRUE(t.output == bytes_of(std::vector<float>{1.75F, 0}));
    for (const Transfer &t : allreduce({bytes_of(std::vector<float>{1, 1e9F}), bytes_of(std::vector<float>{1, 1})}))
        EXPECT_EQ(t.error, -ERANGE) << "for all ranks";
    for (const Transfer &t :
         allreduce({bytes_of(std::vector<float>{std::numeric_limits<float>::infinity(), 1}), bytes_of(std::vector<float>{1, 1})}))
        EXPECT_EQ(t.error, -ERANGE) << "infinities, too";
    check(INAGG_FLOAT32, INAGG_SUM, {bytes_of(std::vector<float>{1, 2}), bytes_of(std::vector<float>{3, 4})});
    set_all(INAGG_SCALE, 157);
    EXPECT_EQ(ranks[0].send(Bytes(4)), -ERANGE) << "no scale of two ranks";
}

TEST_F(TensorTest, LargerThanTheBuffer) {
    start();
    join(2, tiny_buffer);
    for (const inagg_dtype dtype : {INAGG_INT32, INAGG_FLOAT32, INAGG_FLOAT16}) {
        set_all(INAGG_DTYPE, dtype);
        check(dtype, INAGG_SUM, inputs_of(dtype, 2, 64 * 50 + 7));
    }
}

TEST_F(TensorTest, ShortSendsTellWhatIsLeft) {
    start();
    join(2, tiny_buffer);
    set_all(INAGG_DTYPE, INAGG_INT32);
    const auto inputs = integers(2, 64 * 6);
    const auto rest = [&](size_t from) { return std::span(inputs[0]).subspan(from); };
    EXPECT_EQ(ranks[0].send(inputs[0], MSG_DONTWAIT), 1024);
    EXPECT_EQ(ranks[0].send(rest(1024), MSG_DONTWAIT), -EAGAIN);
    EXPECT_EQ(ranks[0].send(rest(1024).first(256)), -EMSGSIZE);
    EXPECT_EQ(ranks[0].send(inputs[0]), -EMSGSIZE);
    EXPECT_EQ(ranks[0].send({}), -EMSGSIZE) << "no barrier within a tensor";
    std::vector<Transfer> transfers;
    transfers.push_back({ranks[0], inputs[0], {}, 1024, true});
    transfers.push_back({ranks[1], inputs[1]});
    pump(transfers);
    for (const Transfer &t : transfers)
        EXPECT_TRUE(t.output == expected(INAGG_INT32, INAGG_SUM, inputs));
}

TEST_F(TensorTest, BlockingSendReturnsWhenOnlyTheReaderHelps) {
    const auto inputs = begin_streaming();
    std::vector<Transfer> other;
    other.push_back({ranks[1], inputs[1]});
    world->every(100 * us, [&] { return take_turns(other) || !are_done(other); });
    Bytes got;
    size_t sent = 0;
    int calls = 0;
    while (got.size() < inputs[0].size()) {
        if (sent < inputs[0].size()) {
            const int more = ranks[0].send(std::span(inputs[0]).subspan(sent));
            ASSERT_GT(more, 0);
            sent += static_cast<size_t>(more);
            calls++;
        }
        Bytes part(512);
        const int more = ranks[0].recv(part);
        ASSERT_GT(more, 0);
        got.insert(got.end(), part.begin(), part.begin() + more);
    }
    EXPECT_GT(calls, 2);
    EXPECT_TRUE(got == expected(INAGG_INT32, INAGG_SUM, inputs));
    world->run(10 * ms);
    EXPECT_TRUE(are_done(other));
}

TEST_F(TensorTest, BlockingSendGoesOnWhileAnotherThreadReads) {
    const auto inputs = begin_streaming();
    auto others = all_but_sending(inputs);
    world->every(10 * us, [&] { return take_turns(others) || !are_done(others); });
    size_t sent = 0;
    while (sent < inputs[0].size())
        sent += static_cast<size_t>(std::max(ranks[0].send(std::span(inputs[0]).subspan(sent)), 0));
    world->run(10 * ms);
    for (const Transfer &t : others)
        EXPECT_TRUE(t.output == expected(INAGG_INT32, INAGG_SUM, inputs));
}

TEST_F(TensorTest, ASendThatWaitsForAllReturnsWithAll) {
    const auto inputs = begin_streaming();
    auto others = all_but_sending(inputs);
    // Results lie there unread for long.
    world->every(5 * ms, [&] { return take_turns(others) || !are_done(others); });
    EXPECT_EQ(ranks[0].send(inputs[0], MSG_WAITALL), static_cast<int>(inputs[0].size()));
    world->run(100 * ms);
    for (const Transfer &t : others)
        EXPECT_TRUE(t.output == expected(INAGG_INT32, INAGG_SUM, inputs));
}

TEST_F(TensorTest, SeveralInFlightComeInOrder) {
    start();
    join(3);
    std::vector<std::vector<Bytes>> all;
    const inagg_dtype dtypes[] = {INAGG_INT32, INAGG_FLOAT32, INAGG_BFLOAT16, INAGG_FLOAT16};
    for (unsigned i = 0; i < 40; i++) {
        const inagg_dtype dtype = dtypes[i % 4];
        all.push_back(i % 7 == 3 ? std::vector<Bytes>(3) : inputs_of(dtype, 3, 10 + 37 * i, i));
        for (size_t r = 0; r < 3; r++)
            ASSERT_EQ(ranks[r].send(all[i][r], {static_cast<uint8_t>(dtype), INAGG_SUM, 0, INAGG_SCALE_AUTO}),
                      static_cast<int>(all[i][r].size()));
    }
    for (unsigned i = 0; i < 40; i++)
        for (Rank &rank : ranks) {
            Bytes got(10'000);
            int flags = 0;
            const int length = rank.recv(got, flags);
            ASSERT_EQ(length, static_cast<int>(all[i][0].size())) << i;
            EXPECT_TRUE(flags & MSG_EOR);
            got.resize(length);
            EXPECT_TRUE(!length || got == expected(dtypes[i % 4], INAGG_SUM, all[i])) << i;
        }
}

TEST_F(TensorTest, OnlySoManyTensorsWait) {
    start();
    join(1);
    int sent = 0;
    while (sent < 2000 && !ranks[0].send({}, MSG_DONTWAIT))
        sent++;
    EXPECT_EQ(sent, 1024);
    EXPECT_EQ(ranks[0].send({}, MSG_DONTWAIT), -EAGAIN);
    Bytes none;
    EXPECT_EQ(ranks[0].recv(none), 0);
    EXPECT_EQ(ranks[0].send({}, MSG_DONTWAIT), 0);
}

TEST_F(TensorTest, BarriersWaitForAll) {
    start();
    join(2);
    Bytes none;
    int flags = 0;
    ASSERT_EQ(ranks[0].send({}), 0);
    EXPECT_EQ(ranks[0].recv_nowait(none), -EAGAIN);
    world->at(30 * ms, [&] { ASSERT_EQ(ranks[1].send({}), 0); });
    const uint64_t start = mock_now();
    EXPECT_EQ(ranks[0].recv(none, flags), 0);
    EXPECT_TRUE(flags & MSG_EOR);
    EXPECT_GE(mock_now() - start, 30 * ms);
}

TEST_F(TensorTest, SmallBuffersGetItPieceByPiece) {
    start();
    join(1);
    ranks[0].set(INAGG_DTYPE, INAGG_INT32);
    const Bytes data = integers(1, 100)[0];
    ASSERT_EQ(ranks[0].send(data), 400);
    Bytes got;
    while (got.size() < 400) {
        Bytes part(7);
        int flags = 0;
        const int more = ranks[0].recv(part, flags);
        ASSERT_GT(more, 0);
        got.insert(got.end(), part.begin(), part.begin() + more);
        EXPECT_EQ(static_cast<bool>(flags & MSG_EOR), got.size() == 400);
        EXPECT_EQ(ranks[0].recv_nowait({}), got.size() < 400 ? 0 : -EAGAIN);
    }
    EXPECT_TRUE(got == data);
}

TEST_F(TensorTest, TruncatedOnRequest) {
    start();
    join(1, tiny_buffer);
    ranks[0].set(INAGG_DTYPE, INAGG_INT32);
    const Bytes data = integers(1, 256)[0];
    for (const size_t room : {0, 100, 1024, 2000}) {
        ASSERT_EQ(ranks[0].send(data), 1024);
        Bytes got(room);
        int flags = MSG_TRUNC;
        EXPECT_EQ(ranks[0].recv(got, flags), 1024);
        EXPECT_EQ(flags, MSG_EOR | (room < 1024 ? MSG_TRUNC : 0));
        got.resize(std::min<size_t>(room, 1024));
        EXPECT_TRUE(std::equal(got.begin(), got.end(), data.begin()));
    }
    ASSERT_EQ(ranks[0].send(data), 1024);
    Bytes got(100);
    ASSERT_EQ(ranks[0].recv(got), 100);
    int flags = MSG_TRUNC;
    EXPECT_EQ(ranks[0].recv(std::span(got).first(8), flags), 924) << "of all that was left";
}

TEST_F(TensorTest, TruncatedInTheMiddle) {
    start();
    join(2, [](Rank &rank) { rank.set(INAGG_BUFFER, 1 << 16); });
    const auto inputs = inputs_of(INAGG_FLOAT32, 2, 64 * 8);
    ASSERT_EQ(ranks[1].set(INAGG_BUFFER, 1), 0);
    ASSERT_EQ(ranks[0].send(inputs[0]), 2048);
    ASSERT_EQ(ranks[1].send(inputs[1], MSG_DONTWAIT), 1024);
    world->run(ms);
    const Bytes want = expected(INAGG_FLOAT32, INAGG_SUM, inputs);
    Bytes got(100), rest(2000);
    int flags = MSG_TRUNC | MSG_DONTWAIT;
    ASSERT_EQ(ranks[0].recv(got, flags), 1024) << "what is here";
    EXPECT_EQ(flags, MSG_TRUNC);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin()));
    ASSERT_EQ(ranks[1].recv_nowait(rest), 1024);
    ASSERT_EQ(ranks[1].send(std::span(inputs[1]).subspan(1024)), 1024);
    ASSERT_EQ(ranks[0].recv(rest), 1024);
    EXPECT_TRUE(std::equal(rest.begin(), rest.begin() + 1024, want.begin() + 1024));
}

TEST_F(TensorTest, TruncatedWhileItStreams) {
    const auto inputs = begin_streaming();
    std::vector<Transfer> other;
    other.push_back({ranks[1], inputs[1]});
    size_t sent = 0;
    world->every(100 * us, [&] {
        take_turns(other);
        if (sent < inputs[0].size())
            sent += static_cast<size_t>(std::max(ranks[0].send(std::span(inputs[0]).subspan(sent), MSG_DONTWAIT), 0));
        return !are_done(other);
    });
    Bytes got(100);
    int flags = MSG_TRUNC;
    EXPECT_EQ(ranks[0].recv(got, flags), static_cast<int>(inputs[0].size()));
    EXPECT_EQ(flags, MSG_TRUNC | MSG_EOR);
    const Bytes want = expected(INAGG_INT32, INAGG_SUM, inputs);
    EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin()));
    world->run(10 * ms);
    EXPECT_TRUE(are_done(other));
}

TEST_F(TensorTest, WindowBoundsWhatIsInFlight) {
    start();
    join(2, [](Rank &rank) { rank.set(INAGG_WINDOW, 3); });
    set_all(INAGG_DTYPE, INAGG_INT32);
    const auto inputs = integers(2, 64 * 30);
    ASSERT_EQ(ranks[0].send(inputs[0]), 64 * 30 * 4);
    EXPECT_EQ(ranks[0].info().contributions, 3U);
    std::vector<Transfer> transfers;
    transfers.push_back({ranks[0], inputs[0], {}, inputs[0].size(), true});
    transfers.push_back({ranks[1], inputs[1]});
    pump(transfers);
    for (const Transfer &t : transfers)
        EXPECT_TRUE(t.output == expected(INAGG_INT32, INAGG_SUM, inputs));
}

// A window goes in bursts: the mock complains of larger ones.
struct BurstTest : TensorTest {
    void begin(double loss = 0, int window = 0) {
        inagg::SoftwareSwitchOptions options{.elements = 64, .slots = 1024, .control_slots = 2};
        options.loss = loss;
        start(options);
        join(2, [&](Rank &rank) { rank.set(INAGG_WINDOW, window); });
    }
    // Data blocks of rank 0.
    bool is_ours(const mock_packet &packet) const {
        const auto *h = static_cast<const inagg_hdr *>(packet.data);
        return packet.from_port == ranks[0].port && inagg_swap32(h->slot) < 1024;
    }
    bool is_contribution(const mock_packet &packet) const {
        return is_ours(packet) && inagg_hdr_type(static_cast<const inagg_hdr *>(packet.data)) == INAGG_CONTRIBUTION;
    }
    // Contributions of rank 0 from now on, by when they go.
    void watch() {
        bursts.clear();
        world->filter = [this](const mock_packet &packet) {
            if (is_contribution(packet))
                bursts[mock_now()]++;
            return is_ours(packet) && deaf;
        };
    }
    void expect_bursts(unsigned total) {
        unsigned sum = 0;
        for (const auto &[when, count] : bursts) {
            EXPECT_LE(count, 64U) << when;
            sum += count;
        }
        EXPECT_EQ(sum, total);
        EXPECT_GE(bursts.size(), total / 64);
    }
    void TearDown() override {
        if (world)
            world->filter = {};
        TensorTest::TearDown();
    }

    std::map<uint64_t, unsigned> bursts;
    bool deaf = false;
};

TEST_F(BurstTest, SendGoesOnUntilTheWindowIsFull) {
    begin();
    set_all(INAGG_DTYPE, INAGG_INT32);
    const auto inputs = integers(2, 64 * 3000);
    watch();
    ASSERT_EQ(ranks[0].send(inputs[0]), 64 * 3000 * 4);
    EXPECT_EQ(ranks[0].info().contributions, 1024U);
    std::vector<Transfer> transfers;
    transfers.push_back({ranks[0], inputs[0], {}, inputs[0].size(), true});
    transfers.push_back({ranks[1], inputs[1]});
    pump(transfers);
    for (const Transfer &t : transfers)
        EXPECT_TRUE(t.output == expected(INAGG_INT32, INAGG_SUM, inputs));
    EXPECT_EQ(sum(&inagg_info::retransmissions), 0U);
}

TEST_F(BurstTest, TheTimerSendsAWindowWhoseScaleHasCome) {
    begin();
    const auto inputs = inputs_of(INAGG_FLOAT32, 2, 64 * 1000);
    watch();
    for (size_t i = 0; i < 2; i++)
        ASSERT_EQ(ranks[i].send(inputs[i]), 64 * 1000 * 4);
    world->run(ms);
    expect_bursts(1000);
    std::vector<Transfer> transfers;
    for (size_t i = 0; i < 2; i++)
        transfers.push_back({ranks[i], inputs[i], {}, inputs[i].size(), true});
    pump(transfers);
    for (const Transfer &t : transfers)
        EXPECT_TRUE(t.output == expected(INAGG_FLOAT32, INAGG_SUM, inputs));
}

TEST_F(BurstTest, OthersHaveTheirTurnHoweverLongABurstTakes) {
    begin();
    const auto inputs = inputs_of(INAGG_FLOAT32, 2, 64 * 1000);
    uint64_t gone = 0;
    unsigned total = 0, together = 0, most = 0;
    world->filter = [&](const mock_packet &packet) {
        if (is_contribution(packet)) {
            together = mock_now() < gone + 10 * us ? together + 1 : 1;
            most = std::max(most, together);
            total++;
            mock_pass(us);
            gone = mock_now();
        }
        return false;
    };
    for (size_t i = 0; i < 2; i++)
        ASSERT_EQ(ranks[i].send(inputs[i]), 64 * 1000 * 4);
    world->run(10 * ms);
    EXPECT_EQ(total, 1000U);
    EXPECT_LE(most, 64U) << "packets without a pause";
}

TEST_F(BurstTest, WhatTimesOutTogetherGoesInBursts) {
    begin();
    set_all(INAGG_DTYPE, INAGG_INT32);
    deaf = true;
    ASSERT_EQ(ranks[0].send(integers(2, 64 * 1000)[0]), 64 * 1000 * 4);
    watch();
    world->run(150 * ms); // an RTO before the first sample is 100 ms
    expect_bursts(1000);
    EXPECT_EQ(ranks[0].info().retransmissions, 1000U);
    deaf = false;
}

TEST_F(BurstTest, ManyTensorsQueueUpBehindABurst) {
    begin();
    set_all(INAGG_DTYPE, INAGG_INT32);
    std::vector<std::vector<Bytes>> all;
    const auto dtype_of = [](unsigned i) { return i % 5 == 4 ? INAGG_FLOAT32 : INAGG_INT32; };
    for (unsigned i = 0; i < 30; i++)
        all.push_back(inputs_of(dtype_of(i), 2, 64 * (i % 7 * 90 + 1), i));
    check_queued(all, dtype_of);
}

TEST_F(BurstTest, SumsStayExactWhereMuchIsLost) {
    for (const int window : {0, 700}) {
        begin(0.05, window);
        int left = 6;
        world->every(700 * us, [&] {
            world->sw().reboot();
            return --left > 0;
        });
        for (const inagg_dtype dtype : {INAGG_INT32, INAGG_FLOAT32}) {
            set_all(INAGG_DTYPE, dtype);
            check(dtype, INAGG_SUM, inputs_of(dtype, 2, 64 * 5000));
        }
        EXPECT_GT(sum(&inagg_info::retransmissions), 0U);
        TearDown();
    }
    world.reset();
}

TEST_F(TensorTest, PayloadChecksums) {
    start();
    join(2, [](Rank &rank) { rank.set(INAGG_CHECKED, 1); });
    check(INAGG_FLOAT32, INAGG_SUM, inputs_of(INAGG_FLOAT32, 2, 1000));
    EXPECT_EQ(sum(&inagg_info::rejected), 0U);
}

TEST_F(TensorTest, FragmentedPackets) {
    start();
    join(2);
    mock_set_nonlinear(true);
    check(INAGG_FLOAT32, INAGG_SUM, inputs_of(INAGG_FLOAT32, 2, 1000));
}

// Bad networks.

struct Weather {
    const char *name;
    double loss, duplication, corruption;
    uint64_t jitter;
};

struct WeatherTest : TensorTest, testing::WithParamInterface<Weather> {};

TEST_P(WeatherTest, SumsStayExact) {
    const Weather &w = GetParam();
    for (uint64_t seed = 1; seed <= 4; seed++) {
        auto options = small();
        options.loss = w.loss;
        options.duplication = w.duplication;
        options.corruption = w.corruption;
        options.seed = seed;
        start(options, w.jitter);
        join(3, [&](Rank &rank) {
            tiny_buffer(rank);
            rank.set(INAGG_CHECKED, 1);
        });
        for (const inagg_dtype dtype : {INAGG_INT32, INAGG_FLOAT32, INAGG_BFLOAT16}) {
            set_all(INAGG_DTYPE, dtype);
            check(dtype, INAGG_SUM, inputs_of(dtype, 3, 64 * 40 + 1, static_cast<unsigned>(seed)));
        }
        EXPECT_TRUE(w.loss == 0 || sum(&inagg_info::retransmissions) > 0);
        EXPECT_TRUE(w.corruption == 0 || sum(&inagg_info::rejected) > 0);
        TearDown();
    }
    world.reset();
}

INSTANTIATE_TEST_SUITE_P(, WeatherTest,
                         testing::Values(Weather{"Loss1", 0.01, 0, 0, 0}, Weather{"Loss10", 0.1, 0, 0, 0},
                                         Weather{"Loss40", 0.4, 0, 0, 0}, Weather{"Duplication", 0, 0.2, 0, 0},
                                         Weather{"Reordering", 0, 0, 0, 300 * us}, Weather{"Corruption", 0, 0, 0.05, 0},
                                         Weather{"All", 0.1, 0.1, 0.05, 500 * us}),
                         [](const auto &info) { return std::string(info.param.name); });

TEST_F(TensorTest, RestartedAndForgetfulSwitches) {
    for (const bool big_endian : {false, true}) {
        auto options = small();
        options.loss = 0.02;
        options.corruption = big_endian ? 0.02 : 0;
        options.big_endian = big_endian;
        start(options, 100 * us);
        join(3, [&](Rank &rank) {
            tiny_buffer(rank);
            rank.set(INAGG_CHECKED, big_endian);
        });
        set_all(INAGG_DTYPE, INAGG_INT32);
        int left = 20;
        world->every(700 * us, [&] {
            if (left % 2)
                world->sw().reboot();
            else
                world->sw().clear_slots();
            return --left > 0;
        });
        check(INAGG_INT32, INAGG_SUM, integers(3, 64 * 200));
        EXPECT_GT(sum(&inagg_info::reboots), 0U);
        EXPECT_GT(sum(&inagg_info::restores), 0U);
        TearDown();
    }
    world.reset();
}

// Other processors: whenever user memory is copied or softirqs are turned on, the rest of the world goes on.
struct PreemptionTest : TensorTest {
    void begin() {
        auto options = small();
        options.loss = 0.05;
        start(options, 100 * us);
        join(2, tiny_buffer);
        mock_set_preemption([] { mock_step(); });
    }
};

TEST_F(PreemptionTest, PacketsArriveWithinCalls) {
    begin();
    for (const inagg_dtype dtype : {INAGG_INT32, INAGG_FLOAT32}) {
        set_all(INAGG_DTYPE, dtype);
        check(dtype, INAGG_SUM, inputs_of(dtype, 2, 64 * 100 + 3));
    }
}

TEST_F(PreemptionTest, OneThreadSendsAnotherReceivesAThirdPolls) {
    begin();
    constexpr unsigned tensors = 60;
    std::vector<std::vector<Bytes>> inputs;
    for (unsigned i = 0; i < tensors; i++)
        inputs.push_back(integers(2, i % 3 ? 64 * (i % 11) : 0, i));
    set_all(INAGG_DTYPE, INAGG_INT32);
    // Everything but the sending of rank 0, which is this thread.
    size_t sent = 0, part = 0, received[2] = {};
    Bytes got[2];
    const auto receive = [&](size_t r) {
        Bytes some(700);
        int flags = MSG_DONTWAIT;
        const int length = ranks[r].recv(some, flags);
        if (length < 0)
            return;
        got[r].insert(got[r].end(), some.begin(), some.begin() + length);
        if (!(flags & MSG_EOR))
            return;
        EXPECT_TRUE(got[r].empty() || got[r] == expected(INAGG_INT32, INAGG_SUM, inputs[received[r]])) << received[r];
        got[r].clear();
        received[r]++;
    };
    world->every(20 * us, [&] {
        (void)mock_poll(ranks[0].sock);
        if (sent < tensors) {
            const int more = ranks[1].send(std::span(inputs[sent][1]).subspan(part), MSG_DONTWAIT);
            part += static_cast<size_t>(std::max(more, 0));
            if (more >= 0 && part == inputs[sent][1].size())
                sent++, part = 0;
        }
        receive(0);
        receive(1);
        return received[0] < tensors || received[1] < tensors;
    });
    for (const auto &input : inputs)
        for (size_t from = 0; from < input[0].size() || from == 0;) {
            const int more = ranks[0].send(std::span(input[0]).subspan(from));
            ASSERT_GE(more, 0);
            from += static_cast<size_t>(more);
            if (input[0].empty())
                break;
        }
    world->run(1 * s);
    EXPECT_EQ(received[0], tensors);
    EXPECT_EQ(received[1], tensors);
}

} // namespace kmod
