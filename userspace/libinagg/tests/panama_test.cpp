// SPDX-License-Identifier: BSD-2-Clause
// panama against a switch in user space: floats that travel as they are, and windows that keep to marks and
// caps.
#include "ranks.hpp"

#include <inagg/core/half.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <mutex>
#include <optional>
#include <random>
#include <set>

namespace inagg {
namespace {

using namespace std::chrono_literals;

constexpr float infinity = std::numeric_limits<float>::infinity();

void use_panama(inagg_options &options) { std::strcpy(options.algorithm, "panama"); }

void run_panama(const SoftwareSwitch &software_switch, uint16_t size, const std::function<void(Communicator &)> &body,
                const std::function<void(inagg_options &)> &change = {}) {
    run_ranks(software_switch, size, body, [&](inagg_options &options) {
        use_panama(options);
        if (change)
            change(options);
    });
}

// Magnitudes far apart, so that the order of the additions shows.
std::vector<float> random_floats(int rank, std::size_t count, uint64_t seed = 1) {
    std::mt19937_64 random(seed * 1000 + static_cast<uint64_t>(rank));
    std::vector<float> values(count);
    for (float &value : values)
        value = std::ldexp(static_cast<float>(static_cast<int32_t>(random())), static_cast<int>(random() % 60) - 60);
    return values;
}

std::vector<float> sum_in_order(int size, std::size_t count, uint64_t seed = 1) {
    std::vector<float> sum = random_floats(0, count, seed);
    for (int rank = 1; rank < size; rank++) {
        const auto other = random_floats(rank, count, seed);
        std::transform(sum.begin(), sum.end(), other.begin(), sum.begin(), std::plus<>());
    }
    return sum;
}

void allreduce(Communicator &c, std::vector<float> &data, inagg_op op = INAGG_SUM) {
    c.wait(*c.allreduce(data.data(), data.data(), data.size(), INAGG_FLOAT32, op));
}

class PanamaRanks : public testing::TestWithParam<uint16_t> {};
INSTANTIATE_TEST_SUITE_P(Sizes, PanamaRanks, testing::Values(1, 2, 3, 7), testing::PrintToStringParamName());

TEST_P(PanamaRanks, SumsHaveTheBitsOfFloatAddition) {
    SoftwareSwitch software_switch({.elements = 352});
    run_panama(software_switch, GetParam(), [&](Communicator &c) {
        for (const std::size_t count : {1, 31, 352, 353, 20000}) {
            std::vector<float> data = random_floats(c.rank(), count);
            allreduce(c, data);
            EXPECT_EQ(data, sum_in_order(GetParam(), count)) << count;
        }
        EXPECT_EQ(c.block_elements(INAGG_FLOAT32, INAGG_SUM), 352U);
        EXPECT_EQ(c.block_elements(INAGG_FLOAT16, INAGG_SUM), 352U) << "as floats";
    });
}

// Wholes of this size have their places in fixed point, whatever the scale.
TEST(Panama, WhereNoFloatsAreAddedTheyAreFixedPoint) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.01, .integers = true});
    run_panama(software_switch, 3, [&](Communicator &c) {
        for (const std::size_t count : {1, 64, 65, 3000}) {
            std::vector<float> data(count), expected(count);
            for (std::size_t i = 0; i < count; i++) {
                data[i] = static_cast<float>(i) * static_cast<float>(c.rank() + 1);
                expected[i] = static_cast<float>(i) * 6;
            }
            allreduce(c, data);
            ASSERT_EQ(data, expected) << count;
        }
        std::vector<float> special = {std::numeric_limits<float>::infinity(), 1};
        allreduce(c, special);
        EXPECT_EQ(special, (std::vector<float>{std::numeric_limits<float>::infinity(), 3}));
    });
}

TEST(Panama, SumsHaveTheSameBitsInEveryRunWhateverIsLost) {
    const std::size_t count = 4000;
    const std::vector<float> expected = sum_in_order(4, count);
    for (const bool big_endian : {false, true}) {
        SoftwareSwitch software_switch({.elements = 64, .loss = 0.03, .duplication = 0.03, .big_endian = big_endian});
        run_panama(software_switch, 4, [&](Communicator &c) {
            for (int round = 0; round < 20; round++) {
                std::vector<float> data = random_floats(c.rank(), count);
                allreduce(c, data);
                ASSERT_EQ(data, expected) << "round " << round;
            }
        });
        EXPECT_GT(software_switch.counters().dropped, 0U);
    }
}

TEST(Panama, AForgetfulSwitchIsHelped) {
    const std::size_t count = 20000;
    const std::vector<float> expected = sum_in_order(3, count);
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.01});
    std::jthread disturber([&](const std::stop_token &stop) {
        while (!stop.stop_requested()) {
            software_switch.reboot();
            std::this_thread::sleep_for(3ms);
        }
    });
    run_panama(software_switch, 3, [&](Communicator &c) {
        for (int round = 0; round < 5; round++) {
            std::vector<float> data = random_floats(c.rank(), count);
            allreduce(c, data);
            EXPECT_EQ(data, expected);
        }
        c.wait(*c.barrier());
        disturber.request_stop();
    });
    EXPECT_GT(software_switch.counters().restores, 0U);
}

// What all other algorithms do with integers, minima, maxima and bytes.
TEST(Panama, IntegersMinimaMaximaAndBroadcasts) {
    SoftwareSwitch software_switch({.elements = 64, .loss = 0.02});
    run_panama(software_switch, 3, [](Communicator &c) {
        const int rank = c.rank();
        std::vector<int32_t> integers(1000, INT32_MAX - rank);
        c.wait(*c.allreduce(integers.data(), integers.data(), integers.size(), INAGG_INT32, INAGG_SUM));
        EXPECT_EQ(integers, std::vector<int32_t>(1000, static_cast<int32_t>(3U * INT32_MAX - 3)));
        std::vector<float> floats(1000, -1.5F * static_cast<float>(rank));
        allreduce(c, floats, INAGG_MIN);
        EXPECT_EQ(floats, std::vector<float>(1000, -3));
        std::vector<uint16_t> halves(1000, static_cast<uint16_t>(0x3c00 + rank));
        c.wait(*c.allreduce(halves.data(), halves.data(), halves.size(), INAGG_FLOAT16, INAGG_MAX));
        EXPECT_EQ(halves, std::vector<uint16_t>(1000, 0x3c02));
        std::vector<float> bytes(1000, static_cast<float>(rank + 1));
        c.wait(*c.broadcast(bytes.data(), bytes.size(), INAGG_FLOAT32, 2));
        EXPECT_EQ(bytes, std::vector<float>(1000, 3));
        c.wait(*c.barrier());
    });
}

TEST(Panama, SixteenBitSumsAreRoundedOnce) {
    constexpr std::size_t count = 0x10000;
    for (const inagg_dtype dtype : {INAGG_FLOAT16, INAGG_BFLOAT16}) {
        const uint32_t mantissa = dtype == INAGG_FLOAT16 ? 10 : 7;
        const auto input_of = [](int rank) { // every pattern, and what is far from it
            std::vector<uint16_t> halves(count);
            for (std::size_t i = 0; i < count; i++)
                halves[i] = static_cast<uint16_t>(rank ? i * 40503 + static_cast<std::size_t>(rank) * 7919 : i);
            return halves;
        };
        const auto wide = [&](uint16_t half) { return std::bit_cast<float>(inagg_half_to_float(half, mantissa)); };
        std::vector<uint16_t> expected(count);
        const auto a = input_of(0), b = input_of(1), c2 = input_of(2);
        for (std::size_t i = 0; i < count; i++) {
            const float sum = wide(a[i]) + wide(b[i]) + wide(c2[i]);
            expected[i] = inagg_float_to_half(std::bit_cast<uint32_t>(sum), mantissa);
        }
        SoftwareSwitch software_switch;
        run_panama(software_switch, 3, [&](Communicator &c) {
            std::vector<uint16_t> data = input_of(c.rank());
            c.wait(*c.allreduce(data.data(), data.data(), count, dtype, INAGG_SUM));
            EXPECT_EQ(data, expected) << dtype;
        });
    }
}

TEST(Panama, AveragesAreSumsDivided) {
    SoftwareSwitch software_switch;
    run_panama(software_switch, 3, [](Communicator &c) {
        std::vector<float> floats(100, static_cast<float>(c.rank()));
        floats[7] = 1e-40F;
        allreduce(c, floats, INAGG_AVG);
        EXPECT_EQ(floats[0], 1.0F);
        EXPECT_EQ(floats[7], (1e-40F + 1e-40F + 1e-40F) / 3.0F);
        std::vector<uint16_t> halves(100, 0x3c01); // 1.0009765625
        halves[9] = 0x7bff;                        // 65504
        c.wait(*c.allreduce(halves.data(), halves.data(), halves.size(), INAGG_FLOAT16, INAGG_AVG));
        EXPECT_EQ(halves[0], 0x3c01);
        EXPECT_EQ(halves[9], 0x7c00) << "the sum is infinity, as with other algorithms";
    });
}

// One round for all of them, in each place of a block: nothing is agreed on and nothing counted beside the
// sum.
TEST(Panama, InfinitiesAndNanAreAddedLikeTheRest) {
    constexpr uint32_t nan = 0x7fc00000;
    struct Case {
        float first, second;
        uint32_t sum;
    };
    const auto bits = [](float x) { return std::bit_cast<uint32_t>(x); };
    const Case cases[] = {{1, infinity, bits(infinity)},
                          {-infinity, -infinity, bits(-infinity)},
                          {infinity, -infinity, nan},
                          {std::bit_cast<float>(0xffc12345), 1, nan},
                          {std::bit_cast<float>(0x7f800001), infinity, nan},
                          {-0.0F, -0.0F, 0x80000000},
                          {0.0F, -0.0F, 0},
                          {1e-45F, 1e-45F, 2},
                          {3e38F, 3e38F, bits(infinity)},
                          {1, -1, 0}};
    SoftwareSwitch software_switch;
    run_panama(software_switch, 2, [&](Communicator &c) {
        std::vector<float> data(100, 0.5F);
        for (std::size_t i = 0; i < std::size(cases); i++)
            data[10 * i] = c.rank() ? cases[i].second : cases[i].first;
        const auto operation = c.allreduce(data.data(), data.data(), data.size(), INAGG_FLOAT32, INAGG_SUM);
        c.wait(*operation);
        for (std::size_t i = 0; i < std::size(cases); i++) {
            EXPECT_EQ(bits(data[10 * i]), cases[i].sum) << cases[i].first << " + " << cases[i].second;
            EXPECT_EQ(data[10 * i + 1], 1.0F);
        }
        EXPECT_EQ(c.stats().blocks, 1U);
        std::vector<uint16_t> halves(64, 0x7c00); // infinity
        halves[1] = c.rank() ? 0xfc00 : 0x7c00;
        c.wait(*c.allreduce(halves.data(), halves.data(), halves.size(), INAGG_FLOAT16, INAGG_SUM));
        EXPECT_EQ(halves[0], 0x7c00);
        EXPECT_EQ(halves[1], 0x7e00);
    });
}

// Congestion control.

constexpr std::size_t elements = 32;

std::vector<float> blocks(std::size_t count) { return std::vector<float>(count * elements, 1.0F); }

// What rank 0 has open while rank 1 sleeps is its window. Nothing if a timer of its went off before, as on a busy machine: that
// makes the window smaller.
std::optional<uint32_t> look_at_window(const SoftwareSwitchOptions &options, std::size_t warm_up, int control) {
    SoftwareSwitch software_switch(options);
    std::optional<uint32_t> open;
    std::atomic<bool> looked{false};
    run_panama(
        software_switch, 2,
        [&](Communicator &c) {
            std::vector<float> data = blocks(warm_up);
            allreduce(c, data);
            c.wait(*c.barrier());
            const bool calm = !c.stats().retransmissions;
            data = blocks(300);
            if (c.rank() == 0) {
                software_switch.reset_most_open();
                const auto operation = c.allreduce(data.data(), data.data(), data.size(), INAGG_FLOAT32, INAGG_SUM);
                for (int i = 0; i < 20; i++) {
                    c.test(*operation);
                    std::this_thread::sleep_for(1ms);
                }
                if (calm)
                    open = software_switch.counters().most_open;
                looked = true;
                c.wait(*operation);
            } else {
                while (!looked)
                    std::this_thread::sleep_for(1ms);
                allreduce(c, data);
            }
        },
        [&](inagg_options &changed) { changed.congestion_control = control; });
    return open;
}

uint32_t window_after(SoftwareSwitchOptions options, std::size_t warm_up, int control = 1) {
    options.elements = elements;
    for (int tries = 0; tries < 10; tries++)
        if (const auto window = look_at_window(options, warm_up, control))
            return *window;
    ADD_FAILURE() << "the machine is too busy to look at a window";
    return 0;
}

TEST(PanamaWindow, GrowsAsInFigure5) {
    EXPECT_EQ(window_after({.slots = 128}, 2), 4U);
    EXPECT_EQ(window_after({.slots = 128}, 2 + 4 + 8), 16U);
    EXPECT_EQ(window_after({.slots = 128}, 2 + 4 + 8 + 16 + 32), 64U);
    EXPECT_EQ(window_after({.slots = 128}, 2 + 4 + 8 + 16 + 32 + 64 + 65), 66U);
    EXPECT_EQ(window_after({.slots = 16}, 500), 16U) << "the pool";
}

TEST(PanamaWindow, KeepsToTheCap) {
    EXPECT_EQ(window_after({.slots = 128, .window_cap = 5}, 500), 5U);
    EXPECT_EQ(window_after({.slots = 128, .window_cap = 1}, 100), 1U);
    EXPECT_EQ(window_after({.slots = 128, .window_cap = 200}, 14), 16U);
}

TEST(PanamaWindow, ShrinksWithMarks) {
    const auto always = [](uint32_t) { return true; };
    EXPECT_EQ(window_after({.slots = 128, .congested = always}, 200), 2U);
    const auto late = [](uint32_t block) { return block >= 62; };
    // 64 marked results: alpha is 743 - 46 + 64 = 761, and 64 * 761 / 2048 = 23 go
    EXPECT_EQ(window_after({.slots = 128, .congested = late}, 62 + 64), 41U);
}

TEST(PanamaWindow, IsThePoolWithoutControl) {
    EXPECT_EQ(window_after({.slots = 128, .window_cap = 5, .congested = [](uint32_t) { return true; }}, 100, 0), 128U);
}

TEST(PanamaWindow, CutsAreCounted) {
    SoftwareSwitch software_switch({.elements = elements, .slots = 64, .congested = [](uint32_t b) { return b % 50 == 49; }});
    run_panama(software_switch, 2, [](Communicator &c) {
        std::vector<float> data = blocks(500);
        allreduce(c, data);
        EXPECT_GT(c.stats().cuts, 2U);
        EXPECT_LE(c.stats().cuts, 10U);
    });
}

TEST(PanamaWindow, LossHalvesIt) {
    std::set<uint32_t> lost; // one result in a hundred, once: on a busy machine a timer may find some of them first
    SoftwareSwitch software_switch({.elements = elements, .slots = 128, .lose = [&](const inagg_hdr &h, int rank) {
                                        const uint32_t block = inagg_swap32(h.block);
                                        return inagg_hdr_type(&h) == INAGG_RESULT && inagg_swap32(h.slot) < 128 && rank == 0 &&
                                               block % 100 == 99 && lost.insert(block).second;
                                    }});
    run_panama(software_switch, 2, [](Communicator &c) {
        std::vector<float> data = blocks(1000);
        allreduce(c, data);
        if (c.rank() == 0) {
            EXPECT_GE(c.stats().cuts, 1U);
        }
    });
    EXPECT_EQ(lost.size(), 10U);
}

// Of ranks that begin more blocks than the switch has memory for, some are told so and go on with fewer.
TEST(PanamaWindow, WhatIsRefusedComesAgain) {
    for (const int control : {0, 1}) {
        SoftwareSwitch software_switch({.elements = elements, .slots = 64, .loss = 0.01, .buffers_cap = 3});
        std::atomic<uint64_t> refused{0};
        run_panama(
            software_switch, 3,
            [&](Communicator &c) {
                for (int round = 0; round < 3; round++) {
                    if (c.rank() == 0)
                        std::this_thread::sleep_for(20ms); // the others run into the limit
                    std::vector<float> data = blocks(500);
                    allreduce(c, data);
                    EXPECT_EQ(data, std::vector<float>(data.size(), 3.0F));
                }
                refused += c.stats().refused;
            },
            [&](inagg_options &changed) { changed.congestion_control = control; });
        EXPECT_GT(refused, 0U) << "control " << control;
        EXPECT_LE(software_switch.counters().most_open, 6U) << "control " << control;
    }
}

// Several trees.

TEST(PanamaTrees, EachHasAWindowAndAnEqualShare) {
    std::vector<std::unique_ptr<SoftwareSwitch>> switches;
    std::string addresses;
    for (uint16_t tree = 0; tree < 4; tree++) {
        SoftwareSwitchOptions options{.elements = elements, .slots = 64};
        if (tree == 1)
            options.congested = [](uint32_t) { return true; };
        switches.push_back(std::make_unique<SoftwareSwitch>(options));
        addresses += (tree ? "," : "") + switches.back()->address();
    }
    const std::size_t count = 400 * elements;
    const std::vector<float> expected = sum_in_order(2, count);
    run_ranks(
        addresses, 2,
        [&](Communicator &c) {
            std::vector<float> data = random_floats(c.rank(), count);
            allreduce(c, data);
            EXPECT_EQ(data, expected);
        },
        [](inagg_options &options) {
            use_panama(options);
            options.trees = 4;
        });
    for (std::size_t tree = 0; tree < switches.size(); tree++) {
        EXPECT_EQ(switches[tree]->counters().completions, 100U + (tree ? 0 : leaving)) << tree;
        if (tree == 1) {
            EXPECT_LE(switches[tree]->counters().most_open, 2U);
        }
    }
}

// Options.

std::string refusal(const std::function<void(inagg_options &)> &change) {
    inagg_options options = options_for("127.0.0.1", 0, 2);
    use_panama(options);
    change(options);
    try {
        Communicator communicator(options);
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), INAGG_EINVAL);
        return error.what();
    }
    return "";
}

TEST(PanamaOptions, NameWhatCannotBe) {
    EXPECT_EQ(refusal([](inagg_options &options) { options.scale = 12; }),
              "scale 12 with algorithm 'panama': its float sums travel as float32; set INAGG_SCALE=auto");
    EXPECT_NE(refusal([](inagg_options &options) { options.quorum = 1; }).find("INAGG_ALGORITHM=trio"), std::string::npos);
    for (const char *transport : {"kernel", "xdp"}) {
        const std::string message = refusal([&](inagg_options &options) { std::strcpy(options.transport, transport); });
        if (message.find("not in this build") == std::string::npos) {
            EXPECT_NE(message.find("does not do algorithm 'panama': use afxdp, udp or auto"), std::string::npos) << message;
        }
    }
}

} // namespace
} // namespace inagg
