// SPDX-License-Identifier: BSD-2-Clause
// The whole library against a switch in user space: exact results whatever the network and the switch do.
#include "error.hpp"
#include "ranks.hpp"

#include <inagg/core/tensor.h>

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <mutex>
#include <random>
#include <set>
#include <span>

namespace inagg {
namespace {

using namespace std::chrono_literals;

using Bytes = std::vector<std::byte>;

Bytes random_input(inagg_dtype dtype, std::size_t count, int rank, uint64_t seed) {
    std::mt19937_64 random(seed * 1000 + rank);
    Bytes bytes(count * inagg_memory_bytes(dtype));
    for (std::size_t i = 0; i < count; i++) {
        if (dtype == INAGG_INT32) {
            const auto value = static_cast<int32_t>(random());
            std::memcpy(&bytes[i * 4], &value, 4);
            continue;
        }
        const auto value = static_cast<float>(std::normal_distribution<double>(0, 3)(random));
        if (dtype == INAGG_FLOAT32) {
            std::memcpy(&bytes[i * 4], &value, 4);
        } else if (dtype == INAGG_BFLOAT16) {
            const auto half = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
            std::memcpy(&bytes[i * 2], &half, 2);
        } else {
            const auto half = static_cast<uint16_t>(random() % 0x7bff | (random() & 1) << 15);
            std::memcpy(&bytes[i * 2], &half, 2);
        }
    }
    return bytes;
}

template <typename T> T element(const Bytes &bytes, std::size_t i) {
    T value;
    std::memcpy(&value, &bytes[i * sizeof(T)], sizeof(T));
    return value;
}

double half_to_double(uint16_t bits, inagg_dtype dtype) {
    if (dtype == INAGG_BFLOAT16)
        return std::bit_cast<float>(uint32_t{bits} << 16);
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const double magnitude = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

double to_double(const Bytes &bytes, std::size_t i, inagg_dtype dtype) {
    if (dtype == INAGG_INT32)
        return element<int32_t>(bytes, i);
    if (dtype == INAGG_FLOAT32)
        return element<float>(bytes, i);
    return half_to_double(element<uint16_t>(bytes, i), dtype);
}

int exponent_of_largest(const std::vector<Bytes> &inputs, std::size_t count, inagg_dtype dtype) {
    double largest = 0;
    for (const Bytes &input : inputs)
        for (std::size_t i = 0; i < count; i++)
            largest = std::max(largest, std::fabs(to_double(input, i, dtype)));
    return largest == 0 ? 0 : std::ilogb(largest) + 127;
}

// The result by its definition, in doubles and wide integers.
Bytes reference(const std::vector<Bytes> &inputs, std::size_t count, inagg_dtype dtype, inagg_op op) {
    Bytes result(inputs[0].size());
    const bool float_sum = op == INAGG_SUM && dtype != INAGG_INT32;
    const auto log2 = inagg_fan_in_log2(static_cast<uint32_t>(inputs.size()));
    const int exponent = float_sum ? exponent_of_largest(inputs, count, dtype) : 0;
    const int point = inagg_fixed_point(log2, static_cast<uint8_t>(exponent));
    const std::size_t width = inagg_memory_bytes(dtype);
    for (std::size_t i = 0; i < count; i++) {
        if (op != INAGG_SUM) {
            std::size_t best = 0;
            for (std::size_t r = 1; r < inputs.size(); r++) {
                const double value = to_double(inputs[r], i, dtype), so_far = to_double(inputs[best], i, dtype);
                if (op == INAGG_MIN ? value < so_far : value > so_far)
                    best = r;
            }
            std::memcpy(&result[i * width], &inputs[best][i * width], width);
            continue;
        }
        int64_t sum = 0;
        for (const Bytes &input : inputs)
            sum += dtype == INAGG_INT32 ? element<int32_t>(input, i)
                                        : static_cast<int64_t>(std::nearbyint(std::ldexp(to_double(input, i, dtype), point)));
        if (dtype == INAGG_INT32) {
            const auto wrapped = static_cast<int32_t>(sum);
            std::memcpy(&result[i * 4], &wrapped, 4);
        } else if (dtype == INAGG_FLOAT32) {
            const auto value = static_cast<float>(std::ldexp(static_cast<double>(sum), -point));
            std::memcpy(&result[i * 4], &value, 4);
        } else {
            const uint16_t half = inagg_fixed_to_half(static_cast<int32_t>(sum), dtype == INAGG_FLOAT16 ? 10 : 7, log2,
                                                      static_cast<uint8_t>(exponent));
            std::memcpy(&result[i * 2], &half, 2);
        }
    }
    return result;
}

std::vector<Bytes> random_inputs(inagg_dtype dtype, std::size_t count, int ranks, uint64_t seed) {
    std::vector<Bytes> inputs;
    for (int rank = 0; rank < ranks; rank++)
        inputs.push_back(random_input(dtype, count, rank, seed));
    return inputs;
}

void expect_exact_allreduce(Communicator &c, const std::vector<Bytes> &inputs, const Bytes &expected, std::size_t count,
                            inagg_dtype dtype, inagg_op op) {
    Bytes result(expected.size());
    c.wait(*c.allreduce(inputs[c.rank()].data(), result.data(), count, dtype, op));
    EXPECT_EQ(result, expected) << "rank " << c.rank() << ", count " << count << ", type " << dtype << ", op " << op;
}

constexpr inagg_dtype all_dtypes[] = {INAGG_INT32, INAGG_FLOAT32, INAGG_FLOAT16, INAGG_BFLOAT16};
constexpr inagg_op all_ops[] = {INAGG_SUM, INAGG_MIN, INAGG_MAX};

void expect_exact_for_all(SoftwareSwitch &software_switch, uint16_t ranks, std::initializer_list<std::size_t> counts,
                          const std::function<void(inagg_options &)> &change = {},
                          std::span<const inagg_dtype> dtypes = all_dtypes) {
    struct Case {
        std::size_t count;
        inagg_dtype dtype;
        inagg_op op;
        std::vector<Bytes> inputs;
        Bytes expected;
    };
    std::vector<Case> cases;
    for (const std::size_t count : counts)
        for (const inagg_dtype dtype : dtypes)
            for (const inagg_op op : all_ops) {
                auto inputs = random_inputs(dtype, count, ranks, cases.size() + 1);
                auto expected = reference(inputs, count, dtype, op);
                cases.push_back({count, dtype, op, std::move(inputs), std::move(expected)});
            }
    run_ranks(
        software_switch, ranks,
        [&](Communicator &c) {
            for (const Case &one : cases)
                expect_exact_allreduce(c, one.inputs, one.expected, one.count, one.dtype, one.op);
        },
        change);
}

class Ranks : public testing::TestWithParam<int> {};

TEST_P(Ranks, EveryTypeAndOperatorIsExact) {
    SoftwareSwitch software_switch({.elements = 352});
    expect_exact_for_all(software_switch, static_cast<uint16_t>(GetParam()), {0, 1, 352, 353, 5000});
}

INSTANTIATE_TEST_SUITE_P(Sizes, Ranks, testing::Values(1, 2, 3, 7, 16), testing::PrintToStringParamName());

TEST(Allreduce, PacketsOfTheLargestSize) {
    SoftwareSwitch software_switch;
    expect_exact_for_all(software_switch, 2, {832, 30000});
}

TEST(Allreduce, Ipv6) {
    std::unique_ptr<SoftwareSwitch> software_switch;
    try {
        software_switch = std::make_unique<SoftwareSwitch>(SoftwareSwitchOptions{.elements = 320, .ipv6 = true});
    } catch (const std::exception &error) {
        GTEST_SKIP() << error.what();
    }
    expect_exact_for_all(*software_switch, 3, {3000});
}

TEST(Allreduce, LossAndDuplicationAreRepaired) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.05, .duplication = 0.05});
    expect_exact_for_all(software_switch, 4, {1, 5000});
    EXPECT_GT(software_switch.counters().dropped, 0U);
}

TEST(Allreduce, CorruptionIsDetectedWithPayloadChecksums) {
    SoftwareSwitch software_switch({.elements = 64, .corruption = 0.02});
    expect_exact_for_all(software_switch, 3, {5000}, [](inagg_options &options) { options.checked = 1; });
    const SoftwareSwitchCounters counters = software_switch.counters();
    EXPECT_GT(counters.refused[INAGG_R_PAYLOAD_CHECKSUM], 0U);
    EXPECT_GT(counters.refused[INAGG_R_HEADER_CHECKSUM], 0U);
}

// 16-bit floats travel as fixed point then, with more bits than the reference has.
TEST(BigEndian, ElementsAreTurnedOnTheirWay) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.03, .corruption = 0.01, .big_endian = true});
    constexpr inagg_dtype words[] = {INAGG_INT32, INAGG_FLOAT32};
    expect_exact_for_all(
        software_switch, 3, {1, 64, 65, 5000}, [](inagg_options &options) { options.checked = 1; }, words);
    EXPECT_GT(software_switch.counters().refused[INAGG_R_PAYLOAD_CHECKSUM], 0U);
}

TEST(BigEndian, HalvesAndBytes) {
    SoftwareSwitch software_switch({.elements = 64, .big_endian = true});
    run_ranks(software_switch, 3, [](Communicator &c) {
        const std::vector<uint16_t> ones(100, 0x3f80), threes(100, 0x4040); // bfloat16
        std::vector<uint16_t> sum(100);
        c.wait(*c.allreduce(ones.data(), sum.data(), sum.size(), INAGG_BFLOAT16, INAGG_SUM));
        EXPECT_EQ(sum, threes);
        std::vector<uint16_t> mine(301, static_cast<uint16_t>(c.rank() + 40000));
        c.wait(*c.broadcast(mine.data(), mine.size(), INAGG_FLOAT16, 1));
        EXPECT_EQ(mine, std::vector<uint16_t>(301, 40001));
    });
}

TEST(BigEndian, OnTheWire) {
    std::set<uint32_t> words;
    SoftwareSwitchOptions options{.elements = 32, .big_endian = true};
    options.watch = [&](const inagg_hdr &header, std::span<const std::byte> body) {
        uint32_t word;
        if (inagg_hdr_type(&header) == INAGG_CONTRIBUTION && inagg_hdr_dtype(&header) == INAGG_WIRE_INT32) {
            std::memcpy(&word, body.data(), sizeof(word));
            words.insert(word);
        }
    };
    {
        SoftwareSwitch software_switch(options);
        run_ranks(software_switch, 2, [](Communicator &c) {
            int32_t one = 1;
            c.wait(*c.allreduce(&one, &one, 1, INAGG_INT32, INAGG_SUM));
            EXPECT_EQ(one, 2);
        });
    }
    EXPECT_EQ(words, std::set<uint32_t>{0x01000000});
}

TEST(Allreduce, InPlaceUnderLoss) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.05});
    const auto inputs = random_inputs(INAGG_FLOAT32, 20000, 3, 1);
    const Bytes expected = reference(inputs, 20000, INAGG_FLOAT32, INAGG_SUM);
    run_ranks(software_switch, 3, [&](Communicator &c) {
        Bytes data = inputs[c.rank()];
        c.wait(*c.allreduce(data.data(), data.data(), 20000, INAGG_FLOAT32, INAGG_SUM));
        EXPECT_EQ(data, expected);
    });
}

// Whatever the switch forgets in mid-run, all ranks get the same exact result.
void expect_exact_while(void (SoftwareSwitch::*disturb)(), bool big_endian = false) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.01, .big_endian = big_endian});
    const auto inputs = random_inputs(INAGG_FLOAT32, 20000, 4, 2);
    const Bytes expected = reference(inputs, 20000, INAGG_FLOAT32, INAGG_SUM);
    std::jthread disturber([&](const std::stop_token &stop) {
        while (!stop.stop_requested()) {
            (software_switch.*disturb)();
            std::this_thread::sleep_for(3ms);
        }
    });
    run_ranks(software_switch, 4, [&](Communicator &c) {
        for (int i = 0; i < 10; i++)
            expect_exact_allreduce(c, inputs, expected, 20000, INAGG_FLOAT32, INAGG_SUM);
        c.wait(*c.barrier());
        disturber.request_stop();
    });
    EXPECT_GT(software_switch.counters().restores, 0U);
}

// Of its last sum, which the other rank has and the switch has forgotten, a rank finds a holder, too.
TEST(Soft, WhoIsDoneStaysUntilAllAre) {
    std::atomic<bool> lost{false};
    SoftwareSwitch software_switch({.elements = 64, .lose = [&](const inagg_hdr &h, int rank) {
                                        const bool is_data = inagg_swap32(h.slot) < SoftwareSwitchOptions{}.slots;
                                        return inagg_hdr_type(&h) == INAGG_RESULT && is_data && rank == 1 && !lost.exchange(true);
                                    }});
    std::jthread forgetful([&](const std::stop_token &stop) {
        while (!lost && !stop.stop_requested())
            std::this_thread::sleep_for(1ms);
        software_switch.clear_slots();
    });
    const auto inputs = random_inputs(INAGG_INT32, 64, 2, 5);
    const Bytes expected = reference(inputs, 64, INAGG_INT32, INAGG_SUM);
    run_ranks(software_switch, 2,
              [&](Communicator &c) { expect_exact_allreduce(c, inputs, expected, 64, INAGG_INT32, INAGG_SUM); });
    EXPECT_EQ(software_switch.counters().restores, 1U);
}

// Whose calls go on is told so, and does not take that rank's goodbye for its own barrier. leave() repeats what it was told.
TEST(Soft, WhoLeavesIsMissed) {
    std::vector<float> data(64 * 100, 1);
    const std::function<Communicator::Handle(Communicator &)> calls[] = {
        [](Communicator &c) { return c.barrier(); },
        [&](Communicator &c) { return c.allreduce(data.data(), data.data(), data.size(), INAGG_FLOAT32, INAGG_SUM); }};
    for (const auto &call : calls) {
        SoftwareSwitch software_switch({.elements = 64});
        try {
            run_ranks(software_switch, 2, [&](Communicator &c) {
                c.wait(*c.barrier());
                if (c.rank() == 1) {
                    EXPECT_THROW(c.wait(*call(c)), Error);
                }
            });
            ADD_FAILURE() << "it succeeds";
        } catch (const Error &error) {
            EXPECT_EQ(error.code(), INAGG_ECLOSED);
            EXPECT_NE(std::string(error.what()).find("a rank has left the job"), std::string::npos) << error.what();
        }
    }
}

TEST(Soft, ClearedSlotsAreRepaired) { expect_exact_while(&SoftwareSwitch::clear_slots); }

TEST(Soft, ClearedSlotsAreRepairedInTheSwitchsByteOrder) { expect_exact_while(&SoftwareSwitch::clear_slots, true); }

TEST(Soft, RebootsAreRepaired) { expect_exact_while(&SoftwareSwitch::reboot); }

TEST(Queue, EightTensorsOfDifferentTypesInFlight) {
    SoftwareSwitch software_switch({.elements = 96, .loss = 0.01});
    std::vector<std::vector<Bytes>> inputs;
    std::vector<Bytes> expected;
    const auto count = [](int i) { return std::size_t{1000} + 777 * i; };
    for (int i = 0; i < 8; i++) {
        inputs.push_back(random_inputs(all_dtypes[i % 4], count(i), 3, i));
        expected.push_back(reference(inputs[i], count(i), all_dtypes[i % 4], INAGG_SUM));
    }
    run_ranks(software_switch, 3, [&](Communicator &c) {
        std::vector<Bytes> results = expected;
        std::vector<Communicator::Handle> handles;
        for (int i = 0; i < 8; i++) {
            std::fill(results[i].begin(), results[i].end(), std::byte{0});
            handles.push_back(c.allreduce(inputs[i][c.rank()].data(), results[i].data(), count(i), all_dtypes[i % 4], INAGG_SUM));
        }
        for (int i = 7; i >= 0; i--)
            c.wait(*handles[i]);
        EXPECT_EQ(results, expected);
    });
}

TEST(Queue, AdvancesWhileNobodyWaits) {
    SoftwareSwitch software_switch;
    const auto inputs = random_inputs(INAGG_FLOAT32, 5000, 2, 3);
    const Bytes expected = reference(inputs, 5000, INAGG_FLOAT32, INAGG_SUM);
    run_ranks(software_switch, 2, [&](Communicator &c) {
        Bytes result(expected.size());
        const auto handle = c.allreduce(inputs[c.rank()].data(), result.data(), 5000, INAGG_FLOAT32, INAGG_SUM);
        while (!handle->done()) // only the keeper works
            std::this_thread::sleep_for(1ms);
        EXPECT_EQ(result, expected);
    });
}

TEST(Queue, TwoThreadsShareACommunicator) {
    SoftwareSwitch software_switch({.elements = 64});
    const auto inputs = random_inputs(INAGG_INT32, 3000, 2, 4);
    const Bytes expected = reference(inputs, 3000, INAGG_INT32, INAGG_SUM);
    run_ranks(software_switch, 2, [&](Communicator &c) {
        std::vector<Bytes> results(2, Bytes(expected.size()));
        std::vector<std::thread> threads;
        for (Bytes &result : results) // the same input twice: the order of the calls does not matter
            threads.emplace_back(
                [&] { c.wait(*c.allreduce(inputs[c.rank()].data(), result.data(), 3000, INAGG_INT32, INAGG_SUM)); });
        for (std::thread &thread : threads)
            thread.join();
        EXPECT_EQ(results[0], expected);
        EXPECT_EQ(results[1], expected);
    });
}

TEST(Others, BroadcastCopiesEveryBit) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.02});
    for (const inagg_dtype dtype : all_dtypes)
        for (const std::size_t count : {1, 3, 5001}) {
            const Bytes expected = random_input(dtype, count, 1, count);
            run_ranks(software_switch, 3, [&](Communicator &c) {
                Bytes data = c.rank() == 1 ? expected : Bytes(expected.size());
                c.wait(*c.broadcast(data.data(), count, dtype, 1));
                EXPECT_EQ(data, expected);
            });
        }
}

TEST(Others, ReduceWritesOnlyAtTheRoot) {
    SoftwareSwitch software_switch;
    const auto inputs = random_inputs(INAGG_FLOAT32, 4000, 3, 5);
    const Bytes expected = reference(inputs, 4000, INAGG_FLOAT32, INAGG_SUM);
    run_ranks(software_switch, 3, [&](Communicator &c) {
        Bytes result(expected.size());
        c.wait(*c.reduce(inputs[c.rank()].data(), result.data(), 4000, INAGG_FLOAT32, INAGG_SUM, 2));
        EXPECT_EQ(result, c.rank() == 2 ? expected : Bytes(expected.size()));
    });
}

TEST(Others, NobodyPassesABarrierBeforeTheLastHasCome) {
    SoftwareSwitch software_switch({.loss = 0.05});
    std::atomic<int> came{0};
    run_ranks(software_switch, 5, [&](Communicator &c) {
        for (int i = 1; i <= 20; i++) {
            came++;
            c.wait(*c.barrier());
            EXPECT_GE(came.load(), i * 5);
        }
    });
}

// How often the thread of rank 0 sleeps in a call while rank 1 lets it wait.
long sleeps(uint32_t poll_us, int calls) {
    const auto slept = [] {
        rusage usage{};
        getrusage(RUSAGE_THREAD, &usage);
        return usage.ru_nvcsw;
    };
    SoftwareSwitch software_switch;
    long count = 0;
    const auto body = [&](Communicator &c) {
        for (int i = 0; i < calls; i++) {
            if (c.rank() == 1)
                std::this_thread::sleep_for(2ms);
            const long before = slept();
            c.wait(*c.barrier());
            if (c.rank() == 0)
                count += slept() - before;
        }
    };
    run_ranks(software_switch, 2, body, [poll_us](inagg_options &options) { options.poll_us = poll_us; });
    return count;
}

TEST(Waiting, PollsBeforeItSleeps) {
    constexpr int calls = 20, tries = 100; // beside other tests a rank may find the result there, and nobody polls for long
    long fewest = calls, most = 0;
    for (int i = 0; i < tries && most < calls * 3 / 4; i++)
        most = std::max(most, sleeps(0, calls));
    for (int i = 0; i < tries && fewest >= calls / 2; i++)
        fewest = std::min(fewest, sleeps(10'000'000, calls));
    EXPECT_GE(most, calls * 3 / 4);
    EXPECT_LT(fewest, calls / 2);
}

// Infinities and NaN.

float sum_of(std::initializer_list<float> values) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    SoftwareSwitch software_switch;
    const std::vector<float> inputs(values);
    std::atomic<uint32_t> bits{0};
    run_ranks(software_switch, static_cast<uint16_t>(inputs.size()), [&](Communicator &c) {
        // The neighbours make sure that the finite part keeps its own scale.
        const float in[3] = {0.5F, inputs[c.rank()], -infinity};
        float out[3];
        c.wait(*c.allreduce(in, out, 3, INAGG_FLOAT32, INAGG_SUM));
        EXPECT_EQ(out[0], 0.5F * static_cast<float>(inputs.size()));
        EXPECT_EQ(out[2], -infinity);
        bits = std::bit_cast<uint32_t>(out[1]);
    });
    return std::bit_cast<float>(bits.load());
}

TEST(NonFinite, SumsAreThoseOfIeeeAddition) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(sum_of({1.0F, infinity, 2.0F}), infinity);
    EXPECT_EQ(sum_of({-infinity, 3.0F}), -infinity);
    EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
    EXPECT_TRUE(std::isnan(sum_of({1.0F, std::nanf("")})));
    EXPECT_EQ(sum_of({1.0F, 2.0F}), 3.0F);
}

TEST(NonFinite, HalvesAndQueuesAndInPlace) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.02});
    run_ranks(software_switch, 3, [&](Communicator &c) {
        std::vector<uint16_t> halves(2000, 0x3c00); // 1.0
        halves[c.rank() * 7] = 0x7c00;              // infinity
        halves[1000 + c.rank()] = 0x7e01;           // NaN
        std::vector<float> floats(2000, 1.0F);
        const auto first = c.allreduce(halves.data(), halves.data(), halves.size(), INAGG_FLOAT16, INAGG_SUM);
        const auto second = c.allreduce(floats.data(), floats.data(), floats.size(), INAGG_FLOAT32, INAGG_SUM);
        c.wait(*second);
        c.wait(*first);
        for (int i = 0; i < 2000; i++) {
            const bool infinity = i == 0 || i == 7 || i == 14, nan = i >= 1000 && i < 1003;
            ASSERT_EQ(halves[i], infinity ? 0x7c00 : nan ? 0x7e00 : 0x4200) << i; // 3.0
            ASSERT_EQ(floats[i], 3.0F) << i;
        }
    });
}

TEST(NonFinite, NanWinsMinimumAndMaximum) {
    SoftwareSwitch software_switch;
    run_ranks(software_switch, 2, [&](Communicator &c) {
        const float in[4] = {c.rank() ? 1.0F : std::nanf(""), c.rank() ? -0.0F : 0.0F,
                             c.rank() ? std::numeric_limits<float>::infinity() : 5.0F, -7.0F};
        float least[4], most[4];
        c.wait(*c.allreduce(in, least, 4, INAGG_FLOAT32, INAGG_MIN));
        c.wait(*c.allreduce(in, most, 4, INAGG_FLOAT32, INAGG_MAX));
        EXPECT_TRUE(std::isnan(least[0]) && std::isnan(most[0]));
        EXPECT_TRUE(std::signbit(least[1]) && !std::signbit(most[1]));
        EXPECT_EQ(least[2], 5.0F);
        EXPECT_EQ(most[2], std::numeric_limits<float>::infinity());
        EXPECT_EQ(least[3], -7.0F);
    });
}

// Errors.

inagg_error code_of(const std::function<void()> &body, std::string *message = nullptr) {
    try {
        body();
    } catch (const Error &error) {
        if (message)
            *message = error.what();
        return error.code();
    }
    return INAGG_OK;
}

TEST(FixedScale, SaturationIsAnErrorOnAllRanks) {
    SoftwareSwitch software_switch;
    run_ranks(
        software_switch, 3,
        [&](Communicator &c) {
            std::vector<float> data(1000, 0.25F);
            c.wait(*c.allreduce(data.data(), data.data(), data.size(), INAGG_FLOAT32, INAGG_SUM));
            EXPECT_EQ(data[999], 0.75F);
            std::vector<float> large(1000, c.rank() == 1 ? 1e9F : 1.0F);
            const auto handle = c.allreduce(large.data(), large.data(), large.size(), INAGG_FLOAT32, INAGG_SUM);
            EXPECT_EQ(code_of([&] { c.wait(*handle); }), INAGG_ERANGE);
            c.wait(*c.barrier()); // the communicator still works
        },
        [](inagg_options &options) { options.scale = 16; });
}

TEST(Deadline, WhoseOwnCallDiffersIsToldSo) {
    SoftwareSwitch software_switch;
    std::mutex mutex;
    std::set<std::string> messages;
    EXPECT_EQ(code_of([&] {
                  run_ranks(
                      software_switch, 2,
                      [&](Communicator &c) {
                          int32_t data = 1;
                          std::string message;
                          const auto call = [&] {
                              c.wait(*c.allreduce(&data, &data, 1, INAGG_INT32, c.rank() ? INAGG_MIN : INAGG_SUM));
                          };
                          EXPECT_EQ(code_of(call, &message), INAGG_EDEADLINE);
                          const std::lock_guard lock(mutex);
                          messages.insert(message.substr(message.find("data block")));
                      },
                      [](inagg_options &options) { options.timeout_ms = 2000; });
              }),
              INAGG_EDEADLINE);
    ASSERT_EQ(messages.size(), 2U);
    const auto other = std::ranges::find_if(messages, [](const auto &text) { return text.find("differ") == std::string::npos; });
    ASSERT_NE(other, messages.end());
    const std::string own = *messages.begin() == *other ? *messages.rbegin() : *messages.begin();
    EXPECT_EQ(own, *other + ", one of which is this one: what it sends is lost, or its calls differ from others' in count, type, "
                            "operator or INAGG_SCALE, or another has left the job");
}

TEST(Deadline, NamesJobBlockAndMissingRanks) {
    SoftwareSwitch software_switch;
    std::atomic<int> failed{0};
    const auto impatient = [](inagg_options &options) { options.timeout_ms = options.rank == 1 ? 30000 : 500; };
    EXPECT_EQ(code_of([&] {
                  run_ranks(
                      software_switch, 3,
                      [&](Communicator &c) {
                          if (c.rank() == 1) { // joins and does nothing
                              while (failed < 2)
                                  std::this_thread::sleep_for(10ms);
                              return;
                          }
                          int32_t data = 1;
                          std::string message;
                          const auto call = [&] { c.wait(*c.allreduce(&data, &data, 1, INAGG_INT32, INAGG_SUM)); };
                          EXPECT_EQ(code_of(call, &message), INAGG_EDEADLINE);
                          EXPECT_NE(message.find("job 7"), std::string::npos) << message;
                          EXPECT_NE(message.find("data block 0 waits for rank 1"), std::string::npos) << message;
                          EXPECT_EQ(code_of(call), INAGG_ECLOSED);
                          failed++;
                      },
                      impatient);
              }),
              INAGG_EDEADLINE); // leave() repeats what broke the communicator
}

TEST(Deadline, SaysThatTheSwitchIsSilent) {
    SoftwareSwitch software_switch;
    std::string message;
    EXPECT_EQ(code_of(
                  [&] {
                      run_ranks(
                          software_switch, 2,
                          [&](Communicator &c) {
                              c.wait(*c.barrier());
                              software_switch.silence();
                              c.wait(*c.barrier());
                          },
                          [](inagg_options &options) { options.timeout_ms = 300; });
                  },
                  &message),
              INAGG_EDEADLINE);
    EXPECT_NE(message.find("silent"), std::string::npos) << message;
}

TEST(Join, NobodyAnswers) {
    SoftwareSwitch software_switch;
    software_switch.silence();
    inagg_options options = options_for(software_switch, 0, 2);
    options.timeout_ms = 100;
    EXPECT_EQ(code_of([&] { Communicator communicator(options); }), INAGG_ENOSWITCH);
}

TEST(Join, TheKernelTransportNeedsItsModule) {
    if (std::filesystem::exists("/proc/net/inagg"))
        GTEST_SKIP() << "this machine has AF_INAGG";
    SoftwareSwitch software_switch;
    inagg_options options = options_for(software_switch, 0, 1);
    std::strcpy(options.transport, "kernel");
    std::string message;
    EXPECT_EQ(code_of([&] { Communicator communicator(options); }, &message), INAGG_EPRIVILEGE);
    EXPECT_NE(message.find("load the module af_inagg"), std::string::npos) << message;
}

TEST(Join, RefusalCarriesItsReason) {
    SoftwareSwitch software_switch;
    Communicator first(options_for(software_switch, 0, 2));
    std::string message;
    EXPECT_EQ(code_of([&] { Communicator other(options_for(software_switch, 1, 3)); }, &message), INAGG_EREFUSED);
    EXPECT_NE(message.find("another number of ranks"), std::string::npos) << message;
}

TEST(Join, AnEndedJobClosesTheCommunicator) {
    SoftwareSwitch software_switch;
    Communicator communicator(options_for(software_switch, 0, 2));
    const auto handle = communicator.barrier();
    software_switch.end_job(7, INAGG_R_REPLACED);
    std::string message;
    EXPECT_EQ(code_of([&] { communicator.wait(*handle); }, &message), INAGG_ECLOSED);
    EXPECT_EQ(message, "the switch at " + software_switch.address() + " ended job 7: the job was restarted by another run");
}

TEST(Join, WhoEndsAJobAboveItsSwitchIsNamed) {
    constexpr std::array<uint8_t, 16> ipv4 = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 77, 0, 9}, ipv6 = {0xfd, 0x77};
    for (const auto &[above, name] : {std::pair(ipv4, "10.77.0.9"), std::pair(ipv6, "fd77::")}) {
        SoftwareSwitch software_switch;
        Communicator communicator(options_for(software_switch, 0, 2));
        const auto handle = communicator.barrier();
        software_switch.end_job(7, INAGG_R_JOB, above);
        std::string message;
        EXPECT_EQ(code_of([&] { communicator.wait(*handle); }, &message), INAGG_ECLOSED);
        EXPECT_EQ(message, fmt::format("the server or switch at {}, which the switch at {} is behind, ended job 7: "
                                       "no such job: it has restarted, or the job was removed there, as its log says: "
                                       "start all ranks of the job again",
                                       name, software_switch.address()));
    }
}

TEST(Join, WhoMissedTheEndAsks) {
    SoftwareSwitch software_switch; // which tells nobody that a job was restarted
    const Communicator killed(options_for(software_switch, 0, 2));
    Communicator other(options_for(software_switch, 1, 2));
    const Communicator again(options_for(software_switch, 0, 2));
    std::string message;
    EXPECT_EQ(code_of([&] { other.wait(*other.barrier()); }, &message), INAGG_ECLOSED);
    EXPECT_NE(message.find("restarted by another run"), std::string::npos) << message;
}

TEST(Join, ARestartedRunReplacesTheOldOne) {
    SoftwareSwitch software_switch;
    {
        Communicator killed(options_for(software_switch, 0, 2)); // goes without leave()
        Communicator other(options_for(software_switch, 1, 2));
    }
    run_ranks(software_switch, 2, [](Communicator &c) {
        // The first rank that comes back starts a new generation; the other may still be of the old one.
        c.wait(*c.barrier());
    });
}

} // namespace
} // namespace inagg
