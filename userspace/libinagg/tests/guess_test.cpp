// SPDX-License-Identifier: BSD-2-Clause
// Small float sums whose control blocks carry their elements, at a scale that is guessed.
#include "ranks.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <limits>
#include <random>

namespace inagg {
namespace {

using namespace std::chrono_literals;
using Values = std::vector<float>;

constexpr uint16_t ranks = 3;
constexpr uint16_t elements = 64;  // of a block
constexpr std::size_t small = 200; // in four blocks, half of the control slots

SoftwareSwitchOptions guessing() { return {.elements = elements, .control_slots = 8}; }
// Its sums agree on their scales first.
SoftwareSwitchOptions without_guesses() { return {.elements = elements, .control_slots = 1}; }

// Below 2^exponent, the largest just.
Values values_of(int exponent, int rank, unsigned seed, std::size_t count = small) {
    std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
    Values values(count);
    for (float &value : values)
        value = std::ldexp(std::uniform_real_distribution<float>(-0.9F, 0.9F)(random), exponent);
    values[0] = std::ldexp(0.95F, exponent);
    return values;
}

// A sum, in place, and the blocks that it took.
uint64_t sum_in_place(Communicator &c, Values &values, inagg_op op = INAGG_SUM) {
    const uint64_t before = c.stats().blocks;
    c.wait(*c.allreduce(values.data(), values.data(), values.size(), INAGG_FLOAT32, op));
    return c.stats().blocks - before;
}

// What rank 0 gets of a queue of sums whose scales change, large ones and averages among them.
// `calm` ends what disturbs the switch.
std::vector<Values> queue_of_sums(
    SoftwareSwitch &software_switch, const std::function<void()> &calm = [] {}) {
    constexpr int sums = 80;
    std::vector<Values> kept;
    run_ranks(software_switch, ranks, [&](Communicator &c) {
        std::vector<Values> values;
        std::vector<Communicator::Handle> handles;
        for (int i = 0; i < sums; i++)
            values.push_back(values_of(i / 20 % 2, c.rank(), i, i % 7 ? small - i : 5000));
        for (int i = 0; i < sums; i++)
            handles.push_back(
                c.allreduce(values[i].data(), values[i].data(), values[i].size(), INAGG_FLOAT32, i % 3 ? INAGG_SUM : INAGG_AVG));
        for (const auto &handle : handles)
            c.wait(*handle);
        c.wait(*c.barrier());
        calm();
        if (c.rank() == 0)
            kept = values;
    });
    return kept;
}

TEST(Guess, OneRoundWhileTheScaleStays) {
    SoftwareSwitch software_switch(guessing());
    run_ranks(software_switch, ranks, [&](Communicator &c) {
        for (unsigned i = 0; i < 24; i++) { // one rank's grow, then all shrink
            Values values = values_of(i < 8 ? 0 : i < 16 ? 3 * (c.rank() == 1) : -9, c.rank(), i);
            EXPECT_EQ(sum_in_place(c, values, i % 2 ? INAGG_SUM : INAGG_AVG), i % 8 < 4 ? 8U : 4U) << i;
        }
    });
}

TEST(Guess, OnlyWhatFitsHalfTheControlSlots) {
    SoftwareSwitch software_switch(guessing());
    run_ranks(software_switch, ranks, [&](Communicator &c) {
        for (unsigned i = 0; i < 6; i++) {
            Values values = values_of(0, c.rank(), i, 4 * elements + 1);
            EXPECT_EQ(sum_in_place(c, values), 1 + 5U);
        }
        Values values = values_of(0, c.rank(), 9, 4 * elements);
        EXPECT_EQ(sum_in_place(c, values), 4U) << "of the scale of sums that did not guess";
    });
}

TEST(Guess, NotAScaleFixedByHand) {
    SoftwareSwitch software_switch(guessing());
    run_ranks(
        software_switch, ranks,
        [&](Communicator &c) {
            for (unsigned i = 0; i < 6; i++) {
                Values values = values_of(0, c.rank(), i);
                EXPECT_EQ(sum_in_place(c, values), 4U);
            }
        },
        [](inagg_options &options) { options.scale = 20; });
}

TEST(Guess, InfinitiesAreNone) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    SoftwareSwitch software_switch(guessing());
    run_ranks(software_switch, ranks, [&](Communicator &c) {
        for (unsigned i = 0; i < 12; i++) {
            Values values = values_of(0, c.rank(), i);
            values[7] = c.rank() == 2 && i != 8 ? infinity : 1;
            EXPECT_EQ(sum_in_place(c, values), i == 8 ? 8U : 4 + 1 + 4 + 4U) << i;
            EXPECT_EQ(values[7], i == 8 ? 3 : infinity);
            EXPECT_TRUE(std::isfinite(values[6]));
        }
    });
}

// Who has asked for no scale says so again when that was lost, though it knows the finite part's by then: of two blocks, rank 0
// hears of the one that was repeated first.
TEST(Guess, InfinitiesAreNoneWhateverIsRepeated) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    constexpr uint32_t finite_sums = 4; // until the guess is their scale
    const auto is_block = [](const inagg_hdr &h, inagg_type type, uint32_t index) {
        return inagg_hdr_type(&h) == type && inagg_swap32(h.slot) >= 16 && inagg_swap32(h.block) == 2 * finite_sums + index;
    };
    SoftwareSwitchOptions options = guessing();
    bool missed = false, came = false;
    options.miss = [&](const inagg_hdr &h) {
        return is_block(h, INAGG_CONTRIBUTION, 1) && inagg_swap16(h.source) == 2 && !std::exchange(missed, true);
    };
    options.lose = [&](const inagg_hdr &h, int rank) {
        came |= rank == 0 && is_block(h, INAGG_RESULT, 1);
        return rank == 0 && is_block(h, INAGG_RESULT, 0) && !came;
    };
    SoftwareSwitch software_switch(options);
    run_ranks(software_switch, ranks, [&](Communicator &c) {
        for (unsigned i = 0; i < finite_sums + 4; i++) {
            const bool has_infinity = i == finite_sums;
            Values values = values_of(0, c.rank(), i, 2 * elements);
            values[7] = c.rank() == 2 && has_infinity ? infinity : 1;
            sum_in_place(c, values);
            EXPECT_EQ(values[7], has_infinity ? infinity : 3) << i;
            EXPECT_TRUE(std::isfinite(values[6]));
        }
    });
    EXPECT_TRUE(missed && came);
}

TEST(Guess, NewRunsStartAnew) {
    SoftwareSwitch software_switch(guessing());
    for (int run = 0; run < 2; run++)
        run_ranks(software_switch, ranks, [&](Communicator &c) {
            for (unsigned i = 0; i < 6; i++) {
                Values values = values_of(0, c.rank(), i);
                EXPECT_EQ(sum_in_place(c, values), i < 4 ? 8U : 4U);
            }
        });
}

TEST(Guess, QueuesHaveTheSameBitsAsWithout) {
    SoftwareSwitch first(without_guesses()), second(guessing());
    const std::vector<Values> agreed = queue_of_sums(first);
    EXPECT_EQ(agreed, queue_of_sums(second));
    EXPECT_LT(second.counters().completions, first.counters().completions);
}

TEST(Guess, QueuesOnBadNetworksToo) {
    SoftwareSwitch first(without_guesses());
    const std::vector<Values> agreed = queue_of_sums(first);
    SoftwareSwitchOptions bad = guessing();
    bad.loss = bad.duplication = 0.05;
    SoftwareSwitch second(bad);
    EXPECT_EQ(agreed, queue_of_sums(second));
}

TEST(Guess, ForgetfulSwitchesGetTheSumBack) {
    SoftwareSwitch first(without_guesses());
    const std::vector<Values> agreed = queue_of_sums(first);
    SoftwareSwitchOptions lossy = guessing();
    lossy.loss = 0.02;
    SoftwareSwitch second(lossy);
    std::jthread disturber([&](const std::stop_token &stop) {
        for (int i = 0; !stop.stop_requested(); i++) {
            i % 2 ? second.reboot() : second.clear_slots();
            std::this_thread::sleep_for(2ms);
        }
    });
    EXPECT_EQ(agreed, queue_of_sums(second, [&] { disturber.request_stop(); }));
    EXPECT_GT(second.counters().restores, 0U);
}

} // namespace
} // namespace inagg
