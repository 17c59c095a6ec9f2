// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/float32.h>

#include "support/float_pairs.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

namespace {

// What the processor gives, with one NaN for all.
uint32_t expected(uint32_t a, uint32_t b) {
    const float sum = std::bit_cast<float>(a) + std::bit_cast<float>(b);
    return std::isnan(sum) ? INAGG_NAN : std::bit_cast<uint32_t>(sum);
}

} // namespace

TEST(Float32, BoundaryPairsAreTheProcessors) {
    const std::vector<uint32_t> numbers = support::boundary_floats();
    for (const uint32_t a : numbers)
        for (const uint32_t b : numbers)
            ASSERT_EQ(inagg_float32_add(a, b), expected(a, b)) << std::hex << a << " + " << b;
}

TEST(Float32, RandomPairsAreTheProcessors) {
    support::RandomFloats random(1);
    for (int i = 0; i < 2'000'000; i++) {
        const auto [a, b] = random.pair();
        ASSERT_EQ(inagg_float32_add(a, b), expected(a, b)) << std::hex << a << " + " << b;
    }
}

TEST(Float32, OneNaN) {
    EXPECT_EQ(inagg_float32_add(0x7f800001, 0x3f800000), INAGG_NAN) << "signalling";
    EXPECT_EQ(inagg_float32_add(0xffc12345, 0xffc12345), INAGG_NAN) << "negative, with a payload";
    EXPECT_EQ(inagg_float32_add(INAGG_INFINITY, INAGG_INFINITY | INAGG_SIGN), INAGG_NAN);
}

TEST(Float32, QuotientsAreTheProcessors) {
    std::vector<uint32_t> numbers = support::boundary_floats();
    support::RandomFloats random(2);
    for (int i = 0; i < 20'000; i++)
        numbers.push_back(random.pair().first);
    for (const uint32_t a : numbers)
        for (uint32_t count = 1; count <= 64; count++) {
            const float x = std::bit_cast<float>(a);
            const uint32_t want = std::isnan(x) ? a : std::bit_cast<uint32_t>(x / static_cast<float>(count));
            ASSERT_EQ(inagg_float32_divide(a, count), want) << std::hex << a << " / " << count;
        }
}
