// SPDX-License-Identifier: BSD-2-Clause
// Vector conversions against their definitions, value by value.
#include "convert.hpp"

#include <inagg/core/fixed.h>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace inagg {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

TEST(MaxExponent, OfEveryTailLength) {
    for (std::size_t count = 1; count < 200; count++) {
        std::vector<float> data(count, 1.0F);
        data[count - 1] = -1024.0F;
        EXPECT_EQ(max_exponent(data.data(), count, INAGG_FLOAT32), 137);
        data[count / 2] = std::nanf("");
        EXPECT_EQ(max_exponent(data.data(), count, INAGG_FLOAT32), INAGG_SCALE_NONFINITE);
        if (count > 2) {
            EXPECT_EQ(max_finite_exponent(data.data(), count, INAGG_FLOAT32), 137);
        }
    }
}

TEST(MaxExponent, OfEveryBinary16) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const auto half = static_cast<uint16_t>(bits);
        const int exponent = half >> 10 & 31, mantissa = half & 1023;
        int expected = INAGG_SCALE_NONFINITE;
        if (exponent < 31) {
            const double value = std::ldexp(exponent ? mantissa + 1024 : mantissa, (exponent ? exponent : 1) - 25);
            expected = value == 0 ? 0 : std::ilogb(value) + 127;
        }
        ASSERT_EQ(max_exponent(&half, 1, INAGG_FLOAT16), expected) << bits;
    }
}

TEST(MaxExponent, OfEveryBfloat16) {
    for (uint32_t bits = 0; bits < 0x10000; bits++) {
        const auto half = static_cast<uint16_t>(bits);
        const float wide = std::bit_cast<float>(bits << 16);
        ASSERT_EQ(max_exponent(&half, 1, INAGG_BFLOAT16), max_exponent(&wide, 1, INAGG_FLOAT32)) << bits;
    }
}

TEST(Fixed, IsRoundedToNearestEvenAtEveryScale) {
    std::mt19937 random(1);
    for (int ranks : {1, 2, 3, 8, 64}) {
        const uint32_t log2 = inagg_fan_in_log2(ranks), bias = inagg_fixed_bias(log2);
        for (int scale = 0; scale < 255; scale++) {
            const int point = inagg_fixed_point(log2, static_cast<uint8_t>(scale));
            float in[64];
            for (float &value : in) // anything whose exponent is at most the scale
                value = std::bit_cast<float>(static_cast<uint32_t>(
                    (random() & 0x807fffff) | static_cast<uint32_t>(std::max(0, scale - int(random() % 40))) << 23));
            uint32_t out[64];
            ASSERT_FALSE(to_fixed(in, out, 64, point, bias)) << "scale " << scale;
            for (int i = 0; i < 64; i++) {
                const auto fixed = static_cast<int64_t>(std::nearbyint(std::ldexp(double(in[i]), point)));
                ASSERT_EQ(out[i], static_cast<uint32_t>(fixed + bias)) << in[i] << " at scale " << scale;
            }
            float back[64];
            from_fixed(out, back, 64, point, bias);
            for (int i = 0; i < 64; i++) {
                const auto fixed = static_cast<float>(static_cast<int32_t>(out[i] - bias));
                ASSERT_EQ(back[i], static_cast<float>(std::ldexp(double(fixed), -point)));
            }
        }
    }
}

TEST(Fixed, ClampsAndTells) {
    const uint32_t bias = inagg_fixed_bias(2);
    for (const float bad : {1e30F, -1e30F, infinity, -infinity, std::nanf(""), 536870912.0F}) {
        float in[32] = {1.0F};
        uint32_t out[32];
        EXPECT_FALSE(to_fixed(in, out, 32, 0, bias));
        in[17] = bad;
        EXPECT_TRUE(to_fixed(in, out, 32, 0, bias)) << bad;
        EXPECT_GT(out[17], 0U);
        EXPECT_LT(out[17], 2 * bias);
        EXPECT_EQ(out[0], bias + 1);
    }
}

TEST(Ordered, KeepsOrderAndBits) {
    const float values[] = {-infinity, -1e38F, -1.0F, -1e-45F, -0.0F, 0.0F, 1e-45F, 1.0F, 1e38F, infinity};
    float in[32] = {}, back[32];
    std::copy(std::begin(values), std::end(values), in);
    int32_t out[32];
    to_ordered(in, out, 32, INT32_MAX);
    for (std::size_t i = 1; i < std::size(values); i++)
        EXPECT_LT(out[i - 1], out[i]) << values[i];
    from_ordered(out, back, 32);
    for (int i = 0; i < 32; i++)
        EXPECT_EQ(std::bit_cast<uint32_t>(back[i]), std::bit_cast<uint32_t>(in[i]));
    for (const int32_t nan : {INT32_MAX, INT32_MIN}) {
        in[3] = -std::nanf("");
        to_ordered(in, out, 32, nan);
        EXPECT_EQ(out[3], nan);
        from_ordered(out, back, 32);
        EXPECT_TRUE(std::isnan(back[3]));
    }
}

TEST(Ordered16, KeepsEveryBit) {
    for (const uint16_t infinity16 : {0x7c00, 0x7f80}) {
        std::vector<uint16_t> in(0x10000), back(0x10000);
        for (uint32_t bits = 0; bits < 0x10000; bits++)
            in[bits] = static_cast<uint16_t>(bits);
        std::vector<int32_t> out(0x10000);
        to_ordered16(in.data(), out.data(), in.size(), infinity16, INT32_MIN);
        from_ordered16(out.data(), back.data(), out.size());
        for (uint32_t bits = 0; bits < 0x10000; bits++)
            ASSERT_EQ(back[bits], (bits & 0x7fff) > infinity16 ? 0x7fff : bits);
        EXPECT_LT(out[0x8000], out[0]);
        EXPECT_LT(out[0x8001], out[0x8000]);
        EXPECT_LT(out[0], out[1]);
    }
}

} // namespace
} // namespace inagg
