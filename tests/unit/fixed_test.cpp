// SPDX-License-Identifier: BSD-2-Clause
// Sixteen-bit floats against a reference in doubles, which hold every value here exactly.
#include <inagg/core/fixed.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

namespace {

struct Format {
    const char *name;
    __u32 mantissa_bits;
    int bias;
    int max_exponent; // field value of infinities and NaN
};
constexpr Format formats[] = {{"float16", 10, 15, 31}, {"bfloat16", 7, 127, 255}};

double value_of(const Format &format, __u16 bits) {
    const int exponent = bits >> format.mantissa_bits & format.max_exponent;
    const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
    const int hidden = exponent ? 1 << format.mantissa_bits : 0;
    const double magnitude =
        std::ldexp(hidden + mantissa, std::max(exponent, 1) - format.bias - static_cast<int>(format.mantissa_bits));
    return bits & 0x8000 ? -magnitude : magnitude;
}

bool is_finite(const Format &format, __u16 bits) {
    return (bits >> format.mantissa_bits & format.max_exponent) != format.max_exponent;
}

// The nearest number of the format, ties to even; zero is positive.
__u16 nearest(const Format &format, double value) {
    if (value == 0)
        return 0;
    const __u16 sign = value < 0 ? 0x8000 : 0;
    const double magnitude = std::fabs(value);
    const int exponent = std::max(std::ilogb(magnitude), 1 - format.bias);
    const double quantum = std::ldexp(1.0, exponent - static_cast<int>(format.mantissa_bits));
    const double rounded = std::nearbyint(magnitude / quantum) * quantum;
    if (rounded >= std::ldexp(1.0, format.max_exponent - format.bias))
        return sign | static_cast<__u16>(format.max_exponent << format.mantissa_bits);
    // Subnormals count quanta of the smallest exponent; a carry into the first normal fits as well.
    if (rounded < std::ldexp(1.0, 1 - format.bias))
        return sign | static_cast<__u16>(rounded / quantum);
    const int field = std::ilogb(rounded) + format.bias;
    const double fraction = std::ldexp(rounded, -std::ilogb(rounded)) - 1;
    return sign |
           static_cast<__u16>(field << format.mantissa_bits | static_cast<int>(std::ldexp(fraction, format.mantissa_bits)));
}

// Biased binary32 exponent E with |value| < 2^(E-126).
int scale_of(double value) { return value == 0 ? 0 : std::max(std::ilogb(std::fabs(value)) + 127, 0); }

} // namespace

TEST(Fixed, FanInLog2) {
    for (__u32 fan_in = 1; fan_in <= 65535; fan_in++)
        ASSERT_EQ(inagg_fan_in_log2(fan_in), static_cast<__u32>(std::ceil(std::log2(fan_in)))) << fan_in;
}

// Theorem 2, for the largest float below the bound: no rank and no sum leaves 32 bits.
TEST(Fixed, Theorem2HoldsForEveryFanInAndScale) {
    for (__u32 fan_in = 1; fan_in <= INAGG_MAX_RANKS; fan_in++) {
        const __u32 log2 = inagg_fan_in_log2(fan_in);
        const __s64 bias = inagg_fixed_bias(log2);
        ASSERT_GE(__s64{1} << log2, fan_in);
        for (int scale = 0; scale < INAGG_SCALE_NONFINITE; scale++) {
            const int k = inagg_fixed_point(log2, static_cast<__u8>(scale));
            const double largest = std::nextafterf(static_cast<float>(std::ldexp(1.0, std::min(scale - 126, 127))), 0.0f);
            const auto fixed = static_cast<__s64>(std::nearbyint(std::ldexp(largest, k)));
            ASSERT_LT(fixed, bias) << "fan-in " << fan_in << " scale " << scale;
            ASSERT_GT(bias - fixed, 0);
            ASSERT_LT((bias + fixed) * fan_in, __s64{1} << 32) << "fan-in " << fan_in << " scale " << scale;
            ASSERT_LT(fixed * fan_in, __s64{1} << 31);
        }
    }
}

TEST(Fixed, RoundShiftTiesToEven) {
    for (__u32 value = 0; value < 4096; value++)
        for (__u32 shift = 0; shift < 16; shift++)
            ASSERT_EQ(inagg_round_shift(value, static_cast<__s32>(shift)),
                      std::nearbyint(std::ldexp(value, -static_cast<int>(shift))));
    EXPECT_EQ(inagg_round_shift(0xffffffff, 31), 2u);
    EXPECT_EQ(inagg_round_shift(0xffffffff, 32), 1u);
    EXPECT_EQ(inagg_round_shift(0x80000000, 32), 0u);
    EXPECT_EQ(inagg_round_shift((1ull << 62) - 1, 63), 0u);
    EXPECT_EQ(inagg_round_shift(5, 1000), 0u);
}

TEST(Fixed, EveryHalfToFixed) {
    for (const Format &format : formats)
        for (__u32 bits = 0; bits < 65536; bits++) {
            const auto half = static_cast<__u16>(bits);
            if (!is_finite(format, half))
                continue;
            const double value = value_of(format, half);
            for (__u32 log2 = 0; log2 <= 6; log2++)
                for (int above : {0, 1, 5, 10, 20, 30, 31, 60, 253}) {
                    const int scale = std::min(scale_of(value) + above, 254);
                    const double exact = std::ldexp(value, inagg_fixed_point(log2, static_cast<__u8>(scale)));
                    const __s32 fixed = inagg_half_to_fixed(half, format.mantissa_bits, log2, static_cast<__u8>(scale));
                    ASSERT_EQ(fixed, std::nearbyint(exact)) << format.name << " " << bits << " scale " << scale;
                    ASSERT_LT(std::abs(static_cast<__s64>(fixed)), __s64{inagg_fixed_bias(log2)});
                }
        }
}

TEST(Fixed, EveryHalfComesBackAtItsOwnScale) {
    for (const Format &format : formats)
        for (__u32 bits = 0; bits < 65536; bits++) {
            const auto half = static_cast<__u16>(bits);
            if (!is_finite(format, half))
                continue;
            const auto scale = static_cast<__u8>(scale_of(value_of(format, half)));
            for (__u32 log2 = 0; log2 <= 6; log2++) {
                const __s32 fixed = inagg_half_to_fixed(half, format.mantissa_bits, log2, scale);
                const __u16 back = inagg_fixed_to_half(fixed, format.mantissa_bits, log2, scale);
                ASSERT_EQ(back, bits == 0x8000 ? 0 : bits) << format.name << " log2 " << log2;
            }
        }
}

TEST(Fixed, FixedToHalfRoundsToNearestEven) {
    std::mt19937 random(5);
    for (const Format &format : formats)
        for (int scale = 0; scale < INAGG_SCALE_NONFINITE; scale++)
            for (__u32 log2 : {0, 1, 3, 6})
                for (int i = 0; i < 700; i++) {
                    // All magnitudes; half of them at or next to a tie.
                    __u32 magnitude = static_cast<__u32>(random()) >> random() % 32;
                    if (i % 2)
                        magnitude = (magnitude & ~0u << random() % 28) + static_cast<__u32>(random() % 3) - 1;
                    const auto fixed = static_cast<__s32>(random() % 2 ? magnitude : -magnitude);
                    const double exact = std::ldexp(fixed, -inagg_fixed_point(log2, static_cast<__u8>(scale)));
                    ASSERT_EQ(inagg_fixed_to_half(fixed, format.mantissa_bits, log2, static_cast<__u8>(scale)),
                              nearest(format, exact))
                        << format.name << " fixed " << fixed << " log2 " << log2 << " scale " << scale;
                }
}

TEST(Fixed, OverflowAndSubnormals) {
    // 2 * 65504 does not fit binary16; scale 142 is 2^16, two ranks.
    const __s32 largest = inagg_half_to_fixed(0x7bff, 10, 1, 142);
    EXPECT_EQ(inagg_fixed_to_half(2 * largest, 10, 1, 142), 0x7c00);
    EXPECT_EQ(inagg_fixed_to_half(-2 * largest, 10, 1, 142), 0xfc00);
    // The smallest subnormals add exactly.
    const __s32 smallest = inagg_half_to_fixed(0x0001, 10, 1, 103);
    EXPECT_EQ(inagg_fixed_to_half(2 * smallest, 10, 1, 103), 0x0002);
    const __s32 tiny = inagg_half_to_fixed(0x0001, 7, 1, 0);
    EXPECT_EQ(inagg_fixed_to_half(2 * tiny, 7, 1, 0), 0x0002);
    // The largest subnormal plus the smallest is the first normal.
    const __s32 below = inagg_half_to_fixed(0x03ff, 10, 1, 113);
    EXPECT_EQ(inagg_fixed_to_half(below + inagg_half_to_fixed(0x0001, 10, 1, 113), 10, 1, 113), 0x0400);
    EXPECT_EQ(inagg_fixed_to_half(std::numeric_limits<__s32>::min(), 10, 0, 127), nearest(formats[0], -2.0));
}

// A rank gives a result back as 16-bit floats: the switch must answer with the same bits as before.
TEST(Fixed, RestoredResultsKeepTheirBits) {
    std::mt19937 random(6);
    for (const Format &format : formats)
        for (__u32 fan_in = 1; fan_in <= INAGG_MAX_RANKS; fan_in++)
            for (int i = 0; i < 4000; i++) {
                const __u32 log2 = inagg_fan_in_log2(fan_in);
                const int lowest = format.mantissa_bits == 10 ? 103 : 0;
                const int highest = format.mantissa_bits == 10 ? 142 : 254;
                const auto scale = static_cast<__u8>(lowest + random() % (highest - lowest + 1));
                // Ranks send numbers of the format below 2^(scale-126): the largest, or any.
                const __s64 bias = inagg_fixed_bias(log2);
                const __s64 most = bias - (bias >> (format.mantissa_bits + 1));
                __s64 sum = 0;
                for (__u32 rank = 0; rank < fan_in; rank++) {
                    __s64 wanted = i % 4 ? static_cast<__s64>(random() % (2 * most)) - most : i % 8 ? most : -most;
                    __u16 half;
                    do { // what rounds up to the bound is not below it
                        half = inagg_fixed_to_half(static_cast<__s32>(wanted), format.mantissa_bits, log2, scale);
                        wanted /= 2;
                    } while (std::fabs(value_of(format, half)) >= std::ldexp(1.0, scale - 126));
                    sum += inagg_half_to_fixed(half, format.mantissa_bits, log2, scale);
                }
                const __u16 sent = inagg_fixed_to_half(static_cast<__s32>(sum), format.mantissa_bits, log2, scale);
                const __s32 restored = inagg_half_to_fixed(sent, format.mantissa_bits, log2, scale);
                ASSERT_EQ(inagg_fixed_to_half(restored, format.mantissa_bits, log2, scale), sent)
                    << format.name << " fan-in " << fan_in << " sum " << sum << " scale " << int{scale};
            }
}

// What a careless or hostile rank sends at a wrong scale is a wrong number, never undefined behaviour.
TEST(Fixed, AnyHalfAtAnyScaleIsDefined) {
    for (const Format &format : formats)
        for (__u32 bits = 0; bits < 65536; bits += 7)
            for (int scale = 0; scale < 256; scale++)
                for (__u32 log2 : {0, 6}) {
                    const __s32 fixed =
                        inagg_half_to_fixed(static_cast<__u16>(bits), format.mantissa_bits, log2, static_cast<__u8>(scale));
                    const __s32 mirrored = inagg_half_to_fixed(static_cast<__u16>(bits ^ 0x8000), format.mantissa_bits, log2,
                                                               static_cast<__u8>(scale));
                    ASSERT_EQ(static_cast<__u32>(fixed) + static_cast<__u32>(mirrored), 0u);
                }
}

TEST(Fixed, BlockElementsFollowTheElementSize) {
    EXPECT_EQ(inagg_block_elements(352, INAGG_WIRE_INT32), 352u);
    EXPECT_EQ(inagg_block_elements(352, INAGG_WIRE_FLOAT16), 704u);
    EXPECT_EQ(inagg_block_elements(832, INAGG_WIRE_FLOAT16), 832u);
    EXPECT_EQ(inagg_block_elements(832, INAGG_WIRE_BFLOAT16), 832u);
    EXPECT_EQ(inagg_block_elements(448, INAGG_WIRE_BFLOAT16), 832u);
}
