// SPDX-License-Identifier: BSD-2-Clause
// Results that are verified: what the ranks have sent, or an error that says so.
#include "world.hpp"

#include <inagg/core/mac.h>
#include <inagg/core/packet.h>
#include <inagg/core/tensor.h>

#include <cmath>
#include <limits>
#include <map>

namespace kmod {

constexpr uint8_t key[INAGG_KEY_BYTES] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};

static void give_key(Rank &rank) { ASSERT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_VERIFY, key, sizeof(key)), 0); }

static void choose_trio(Rank &rank) { ASSERT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_ALGORITHM, "trio", 4), 0); }

static bool is_result(const inagg_hdr &h) { return inagg_hdr_type(&h) == INAGG_RESULT; }
static bool is_sum_of_int32(const inagg_hdr &h) { return h.dtype_op == (INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM); }

struct VerifyTest : KmodTest {
    static constexpr uint16_t size = 3;

    void begin(const inagg::SoftwareSwitchOptions &options = small(), bool trio = false) {
        start(options);
        join(size, [trio](Rank &rank) {
            if (trio)
                choose_trio(rank);
            give_key(rank);
            rank.set(INAGG_DEADLINE, 5000);
        });
    }
    // A switch that lies.
    void begin_with(const std::function<void(inagg_hdr &, std::span<std::byte>, int)> &change) {
        inagg::SoftwareSwitchOptions options = small();
        options.change = change;
        begin(options);
    }
    void set_dtype(inagg_dtype dtype) {
        for (Rank &rank : ranks)
            ASSERT_EQ(rank.set(INAGG_DTYPE, dtype), 0);
    }
    // Small integers in any type, exact.
    static std::vector<Bytes> small_numbers(inagg_dtype dtype, size_t count) {
        std::vector<Bytes> inputs;
        for (uint16_t rank = 0; rank < size; rank++) {
            Bytes bytes(count * inagg_memory_bytes(dtype));
            for (size_t i = 0; i < count; i++)
                inagg_set_element(bytes.data(), i, inagg_memory_bytes(dtype), number(dtype, static_cast<int>(i % 8) - 3 + rank));
            inputs.push_back(bytes);
        }
        return inputs;
    }
    static uint32_t number(inagg_dtype dtype, int value) {
        if (dtype == INAGG_INT32)
            return static_cast<uint32_t>(value);
        const auto f = static_cast<float>(value);
        uint32_t bits;
        std::memcpy(&bits, &f, sizeof(bits));
        if (dtype == INAGG_FLOAT32)
            return bits;
        return inagg_float_to_half(bits, inagg_mantissa_bits(dtype));
    }
    void expect_exact(inagg_dtype dtype, size_t count) {
        set_dtype(dtype);
        const auto inputs = small_numbers(dtype, count);
        for (const Transfer &t : allreduce(inputs)) {
            EXPECT_EQ(t.error, 0);
            EXPECT_TRUE(t.output == expected(dtype, INAGG_SUM, inputs)) << "type " << dtype << ", " << count;
        }
    }
    // All ranks fail, and say which block does not hold.
    void expect_refused(const std::vector<Transfer> &transfers, uint32_t block, bool control, bool alike) {
        for (const Transfer &t : transfers) {
            EXPECT_EQ(t.error, -EKEYREJECTED);
            const auto fault = t.rank.fault();
            ASSERT_TRUE(fault);
            EXPECT_EQ(fault->error, static_cast<uint32_t>(EKEYREJECTED));
            EXPECT_EQ(fault->block, block);
            EXPECT_EQ(fault->control, control);
            EXPECT_EQ(fault->heard, alike);
            EXPECT_EQ(t.rank.info().mismatches, 8U);
        }
    }
    uint64_t mismatches() {
        uint64_t all = 0;
        for (Rank &rank : ranks)
            all += rank.info().mismatches;
        return all;
    }
    // Calls this for each contribution of a block, with its place in the job.
    void watch(const std::function<void(std::tuple<uint16_t, uint32_t, uint32_t>, Bytes)> &seen) {
        world->filter = [seen](const mock_packet &packet) {
            const inagg_hdr h = header_of(packet);
            const auto *bytes = static_cast<const std::byte *>(packet.data);
            if (inagg_hdr_type(&h) == INAGG_CONTRIBUTION)
                seen({packet.from_port, inagg_swap32(h.slot) >= small().slots, inagg_swap32(h.block)},
                     Bytes(bytes + sizeof(h), bytes + packet.bytes));
            return false;
        };
    }
};

TEST_F(VerifyTest, SumsOfAllTypesAndSizes) {
    for (const auto &[trio, big_endian] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
        SCOPED_TRACE(testing::Message() << "trio " << trio << ", big-endian " << big_endian);
        inagg::SoftwareSwitchOptions options = small();
        options.loss = options.duplication = options.reordering = 0.02;
        options.big_endian = big_endian;
        begin(options, trio);
        for (const inagg_dtype dtype : {INAGG_INT32, INAGG_FLOAT32, INAGG_FLOAT16, INAGG_BFLOAT16})
            for (const size_t count : {1, 27, 28, 59, 60, 1000}) {
                expect_exact(dtype, count);
                for (const Transfer &t : allreduce(std::vector<Bytes>(size)))
                    EXPECT_EQ(t.error, 0) << "barrier";
            }
        EXPECT_EQ(mismatches(), 0U);
        TearDown();
    }
    world.reset();
}

// Guesses that are right and wrong, infinities: the same bits as without a key.
TEST_F(VerifyTest, FloatsHaveTheSameBits) {
    std::vector<Bytes> results[2];
    for (const bool keyed : {false, true}) {
        inagg::SoftwareSwitchOptions options = small();
        options.control_slots = 8;
        options.loss = 0.02;
        start(options);
        join(
            size, keyed ? give_key : [](Rank &) {});
        for (const size_t count : {3, 100, 101, 2000, 7})
            for (int step = 0; step < 4; step++) {
                std::vector<Bytes> inputs;
                for (uint16_t rank = 0; rank < size; rank++) {
                    std::vector<float> values(count);
                    for (size_t i = 0; i < count; i++)
                        values[i] = std::sin(static_cast<float>((i + 1) * (rank + 1U))) * static_cast<float>(1 + step * 8);
                    if (step == 3)
                        values[1] = rank == 1 ? std::numeric_limits<float>::infinity() : 1;
                    inputs.push_back(bytes_of(values));
                }
                for (const Transfer &t : allreduce(inputs)) {
                    EXPECT_EQ(t.error, 0);
                    results[keyed].push_back(t.output);
                }
            }
        EXPECT_EQ(mismatches(), 0U);
        TearDown();
    }
    EXPECT_TRUE(results[0] == results[1]);
    world.reset();
}

// With different contents of one block somebody on the way would learn something of the weights.
TEST_F(VerifyTest, NothingIsSealedTwice) {
    inagg::SoftwareSwitchOptions options = small();
    options.control_slots = 8;
    options.loss = 0.1;
    begin(options);
    std::map<std::tuple<uint16_t, uint32_t, uint32_t>, Bytes> sent;
    unsigned again = 0;
    watch([&](auto place, const Bytes &payload) {
        const auto [before, is_new] = sent.emplace(place, payload);
        again += !is_new;
        EXPECT_TRUE(before->second == payload) << "block " << std::get<2>(place);
    });
    for (int step = 0; step < 24; step++) { // each guess is wrong, and some have no number
        std::vector<Bytes> inputs;
        for (uint16_t rank = 0; rank < size; rank++) {
            std::vector<float> values(200, std::ldexp(1.0F + rank, step % 3 * 9));
            if (step % 4 == 3)
                values[step + rank] = std::numeric_limits<float>::infinity();
            inputs.push_back(bytes_of(values));
        }
        for (const Transfer &t : allreduce(inputs))
            EXPECT_EQ(t.error, 0);
    }
    EXPECT_GT(again, 100U);
}

// A guess that is too small for them must not make their sums wrap.
TEST_F(VerifyTest, HalvesThatGrow) {
    begin();
    for (const inagg_dtype dtype : {INAGG_FLOAT16, INAGG_BFLOAT16}) {
        set_dtype(dtype);
        for (const int value : {1, 1, 1, 1, 1, 2, 4, -4, -64, 64, 1000, -1})
            for (const Transfer &t :
                 allreduce(std::vector<Bytes>(size, bytes_of(std::vector<uint16_t>(3, number(dtype, value)))))) {
                EXPECT_EQ(t.error, 0) << value;
                EXPECT_EQ(inagg_element(t.output.data(), 2, 2), number(dtype, size * value)) << value;
            }
    }
    EXPECT_EQ(mismatches(), 0U);
}

TEST_F(VerifyTest, AWrongGuessLargerThanTheBuffer) {
    inagg::SoftwareSwitchOptions options = small();
    options.control_slots = 32;
    start(options);
    join(2, [](Rank &rank) {
        give_key(rank);
        rank.set(INAGG_BUFFER, 1);
    });
    for (const float magnitude : {1.0F, 1000.0F, 1.0F}) {
        const std::vector<Bytes> inputs(2, bytes_of(std::vector<float>(59 * 10, magnitude)));
        for (const Transfer &t : allreduce(inputs)) {
            EXPECT_EQ(t.error, 0);
            EXPECT_TRUE(t.output == expected(INAGG_FLOAT32, INAGG_SUM, inputs));
        }
    }
}

TEST_F(VerifyTest, NobodySaysThatAScaleWasTooSmall) {
    begin_with([](inagg_hdr &h, std::span<std::byte>, int) {
        if (is_result(h))
            h.level_flags |= inagg_swap16(INAGG_F_SATURATED);
    });
    expect_exact(INAGG_INT32, 100);
    expect_exact(INAGG_FLOAT32, 1000);
}

TEST_F(VerifyTest, AResultThatWasChangedOnceIsAskedForAgain) {
    int changed = 0;
    begin_with([&](inagg_hdr &h, std::span<std::byte> body, int rank) {
        if (is_result(h) && is_sum_of_int32(h) && rank == 1 && inagg_swap32(h.block) % 5 == 3 && changed < 4) {
            body[inagg_swap32(h.block) % 50] ^= std::byte{0x80};
            changed++;
        }
    });
    expect_exact(INAGG_INT32, 3000);
    EXPECT_EQ(changed, 4);
    EXPECT_EQ(mismatches(), 4U);
}

TEST_F(VerifyTest, ASwitchThatAddsWrongIsTold) {
    begin_with([](inagg_hdr &h, std::span<std::byte> body, int) {
        if (is_result(h) && is_sum_of_int32(h) && inagg_swap32(h.block) == 9)
            body[3] ^= std::byte{0x80}; // bit 31
    });
    set_dtype(INAGG_INT32);
    expect_refused(allreduce(small_numbers(INAGG_INT32, 3000)), 9, false, true);
}

TEST_F(VerifyTest, AResultThatIsChangedOnItsWayIsToldFromOneAddedWrong) {
    uint8_t next = 1;
    begin_with([&](inagg_hdr &h, std::span<std::byte> body, int) {
        if (is_result(h) && is_sum_of_int32(h) && inagg_swap32(h.block) == 9)
            body[0] ^= std::byte{++next};
    });
    set_dtype(INAGG_INT32);
    expect_refused(allreduce(small_numbers(INAGG_INT32, 3000)), 9, false, false);
}

TEST_F(VerifyTest, NobodyPretendsThatAllCameToABarrier) {
    begin_with([](inagg_hdr &h, std::span<std::byte> body, int) {
        if (is_result(h) && inagg_swap32(h.slot) >= small().slots)
            std::ranges::fill(body, std::byte{});
    });
    expect_refused(allreduce(std::vector<Bytes>(size)), 0, true, true);
}

TEST_F(VerifyTest, NobodyChoosesTheScale) {
    for (const int wrong : {200, 1}) {
        begin_with([wrong](inagg_hdr &h, std::span<std::byte>, int) {
            if (is_result(h) && h.next_scale)
                h.next_scale = static_cast<uint8_t>(wrong);
        });
        for (const Transfer &t : allreduce(inputs_of(INAGG_FLOAT32, size, 3000)))
            EXPECT_EQ(t.error, -EKEYREJECTED);
        TearDown();
    }
    world.reset();
}

TEST_F(VerifyTest, AnOldKeyCannotBeRepeated) {
    begin_with([](inagg_hdr &h, std::span<std::byte> body, int) {
        if (is_result(h) && h.dtype_op == (INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX))
            std::ranges::fill(body, std::byte{7}); // the same nonces in each run
    });
    set_dtype(INAGG_INT32);
    for (const Transfer &t : allreduce(small_numbers(INAGG_INT32, 10)))
        EXPECT_EQ(t.error, -EKEYREJECTED);
}

TEST_F(VerifyTest, AnswersWithOtherTypesAreNotRead) {
    for (const int dtype : {int{INAGG_WIRE_NONE}, int{INAGG_WIRE_FLOAT16}, int{INAGG_WIRE_FLOAT32}, 15}) {
        begin_with([dtype](inagg_hdr &h, std::span<std::byte>, int) {
            if (is_result(h) && is_sum_of_int32(h) && inagg_swap32(h.block) == 9) {
                h.dtype_op = static_cast<uint8_t>(dtype << 4 | INAGG_WIRE_SUM);
                if (dtype == INAGG_WIRE_FLOAT16)
                    h.elements = inagg_swap16(128); // as many bytes
            }
        });
        set_dtype(INAGG_INT32);
        for (const Transfer &t : allreduce(small_numbers(INAGG_INT32, 3000)))
            EXPECT_TRUE(t.error == -EKEYREJECTED || t.error == -ETIMEDOUT) << t.error;
        TearDown();
    }
    world.reset();
}

TEST_F(VerifyTest, RanksHaveTheSameKey) {
    start(small());
    join(size, [number = 0](Rank &rank) mutable {
        uint8_t own[sizeof(key)];
        std::memcpy(own, key, sizeof(key));
        own[5] += number++ == 2;
        ASSERT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_VERIFY, own, sizeof(own)), 0);
    });
    set_dtype(INAGG_INT32);
    for (const Transfer &t : allreduce(small_numbers(INAGG_INT32, 3000)))
        EXPECT_EQ(t.error, -EKEYREJECTED);
}

TEST_F(VerifyTest, MinimaAreRefusedUnlessTheyNeedNotBe) {
    begin();
    for (const int op : {INAGG_MIN, INAGG_MAX})
        EXPECT_EQ(ranks[0].send(Bytes(256), {INAGG_INT32, static_cast<uint8_t>(op), 0, 0}), -EOPNOTSUPP);
    const auto inputs = small_numbers(INAGG_INT32, 100);
    for (uint16_t rank = 0; rank < size; rank++)
        ASSERT_EQ(ranks[rank].send(inputs[rank], {INAGG_INT32, INAGG_MAX, INAGG_TENSOR_UNVERIFIED, 0}), 400);
    for (Rank &rank : ranks) {
        Bytes got(400);
        ASSERT_EQ(rank.recv(got), 400);
        EXPECT_TRUE(got == expected(INAGG_INT32, INAGG_MAX, inputs));
    }
    expect_exact(INAGG_INT32, 100);
}

// Two control messages as they lie in memory.
struct WithAgreement {
    size_t type_bytes = CMSG_LEN(sizeof(inagg_tensor_type));
    int level = SOL_INAGG, type = INAGG_CMSG_TENSOR;
    inagg_tensor_type tensor{INAGG_INT32, INAGG_SUM, 0, 0};
    size_t agreed_bytes = CMSG_LEN(sizeof(uint64_t));
    int agreed_level = SOL_INAGG, agreed_type = INAGG_CMSG_AGREED;
    uint64_t agreed = 0;
};

static int send_agreed(Rank &rank, const Bytes &data, uint64_t agreed) {
    WithAgreement control;
    control.agreed = agreed;
    mock_message m{};
    m.data = const_cast<std::byte *>(data.data());
    m.bytes = data.size();
    m.control = &control;
    m.control_bytes = sizeof(control);
    m.flags = MSG_DONTWAIT;
    return mock_sendmsg(rank.sock, &m);
}

TEST_F(VerifyTest, WhatTheRanksHaveAgreedOnIsCompared) {
    for (const uint64_t of_the_last : {5, 6}) {
        begin();
        const auto inputs = small_numbers(INAGG_INT32, 100);
        for (uint16_t rank = 0; rank < size; rank++)
            ASSERT_EQ(send_agreed(ranks[rank], inputs[rank], rank == 2 ? of_the_last : 5), 400);
        for (Rank &rank : ranks) {
            Bytes got(400);
            EXPECT_EQ(rank.recv(got), of_the_last == 5 ? 400 : -EKEYREJECTED);
        }
        TearDown();
    }
    world.reset();
}

TEST_F(VerifyTest, TheRestOfATensorSaysTheSame) {
    start();
    join(1, [](Rank &rank) {
        give_key(rank);
        rank.set(INAGG_BUFFER, 1);
    });
    const Bytes data(59 * 4 * 6);
    ASSERT_EQ(send_agreed(ranks[0], data, 5), 59 * 4 * 4);
    world->run(ms);
    Bytes first(59 * 4);
    ASSERT_EQ(ranks[0].recv(first), 59 * 4) << "makes room";
    const Bytes rest(59 * 4 * 2);
    EXPECT_EQ(send_agreed(ranks[0], rest, 6), -EINVAL);
    std::vector<Transfer> transfers;
    transfers.push_back({ranks[0], data, first, 59 * 4 * 4, true});
    pump(transfers);
    EXPECT_TRUE(transfers[0].output == data);
}

TEST_F(VerifyTest, KeysAreSetBeforeTheJoin) {
    start();
    Rank rank;
    EXPECT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_VERIFY, key, 15), -EINVAL);
    EXPECT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_VERIFY, key, sizeof(key)), 0);
    EXPECT_EQ(mock_setsockopt(rank.sock, SOL_INAGG, INAGG_VERIFY, key, 0), 0) << "taken back";
    EXPECT_EQ(rank.get(INAGG_VERIFY), -EOPNOTSUPP) << "can only be written";
    join(1);
    EXPECT_EQ(mock_setsockopt(ranks[0].sock, SOL_INAGG, INAGG_VERIFY, key, sizeof(key)), -EISCONN);
}

} // namespace kmod
