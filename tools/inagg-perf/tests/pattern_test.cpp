// SPDX-License-Identifier: BSD-2-Clause
// The check of inagg-perf must accept the exact result and nothing else. The expected values are made here
// with decoders and arithmetic of their own.
#include "pattern.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>

namespace perf {
namespace {

constexpr size_t count = 5000; // more than one chunk, no multiple of anything
constexpr inagg_dtype floats[] = {INAGG_FLOAT32, INAGG_FLOAT16, INAGG_BFLOAT16};
constexpr inagg_op operators[] = {INAGG_SUM, INAGG_MIN, INAGG_MAX};
constexpr unsigned sizes[] = {1, 2, 3, 7, 16, 64};

double decode(inagg_dtype dtype, const std::byte *at) {
    if (dtype == INAGG_FLOAT32) {
        float value;
        std::memcpy(&value, at, 4);
        return value;
    }
    uint16_t bits;
    std::memcpy(&bits, at, 2);
    if (dtype == INAGG_BFLOAT16)
        return std::bit_cast<float>(uint32_t{bits} << 16);
    int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    double magnitude = exponent ? std::ldexp(1024 + mantissa, exponent - 25) : std::ldexp(mantissa, -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

// Exact for values that the type represents; the test checks that it was.
void encode(inagg_dtype dtype, double value, std::byte *at) {
    if (dtype == INAGG_FLOAT16) {
        int exponent = value == 0 ? -14 : std::max(-14, std::ilogb(value));
        double steps = std::ldexp(std::fabs(value), 10 - exponent); // 1024 .. 2047; less: subnormal
        auto bits = static_cast<uint16_t>(steps < 1024 ? steps : (exponent + 15) * 1024 + (steps - 1024));
        bits |= value < 0 ? 0x8000 : 0;
        std::memcpy(at, &bits, 2);
        return;
    }
    auto bits = std::bit_cast<uint32_t>(static_cast<float>(value));
    if (dtype == INAGG_BFLOAT16)
        std::memcpy(at, reinterpret_cast<std::byte *>(&bits) + 2, 2);
    else
        std::memcpy(at, &bits, 4);
}

double combine(inagg_op op, double a, double b) {
    return op == INAGG_SUM ? a + b : op == INAGG_MIN ? std::fmin(a, b) : std::fmax(a, b);
}

// The result that all ranks should see, from what each rank contributes.
std::vector<std::byte> reduce(const Pattern &pattern, inagg_dtype dtype, inagg_op op, unsigned ranks) {
    size_t bytes = element_bytes(dtype);
    std::vector<std::byte> data(count * bytes), result(count * bytes);
    std::vector<double> values(count);
    for (unsigned rank = 0; rank < ranks; rank++) {
        pattern.fill(rank, count, data.data());
        for (size_t i = 0; i < count; i++) {
            double value = decode(dtype, &data[i * bytes]);
            EXPECT_TRUE(std::isfinite(value));
            values[i] = rank ? combine(op, values[i], value) : value;
        }
    }
    for (size_t i = 0; i < count; i++) {
        encode(dtype, values[i], &result[i * bytes]);
        EXPECT_EQ(decode(dtype, &result[i * bytes]), values[i]) << "the sum is not representable";
    }
    return result;
}

TEST(Pattern, AcceptsTheExactResultOfFloats) {
    Arguments args;
    for (unsigned ranks : sizes)
        for (inagg_dtype dtype : floats)
            for (inagg_op op : operators)
                for (uint32_t iteration = 1; iteration < 6; iteration++) {
                    Pattern pattern(args, {dtype, op}, ranks, INAGG_SCALE_AUTO, iteration);
                    auto result = reduce(pattern, dtype, op, ranks);
                    EXPECT_EQ(pattern.wrong(count, result.data()), 0U)
                        << ranks << " ranks, " << name_of(dtype) << ", " << name_of(op);
                }
}

// What stragglers leave: the sum of some ranks, of a part of the tensor, and averages of so many.
TEST(Pattern, KnowsTheResultOfSomeRanks) {
    Arguments args;
    for (inagg_dtype dtype : floats)
        for (inagg_op op : {INAGG_SUM, INAGG_AVG}) {
            const size_t bytes = element_bytes(dtype), first = 300, some = 700;
            Pattern pattern(args, {dtype, op}, 5, INAGG_SCALE_AUTO, 1);
            std::vector<std::byte> one(count * bytes), other(count * bytes), result(some * bytes);
            pattern.fill(1, count, one.data());
            pattern.fill(4, count, other.data());
            for (size_t i = 0; i < some; i++) { // of two ranks an average needs no rounding
                const double sum = decode(dtype, &one[(first + i) * bytes]) + decode(dtype, &other[(first + i) * bytes]);
                encode(dtype, op == INAGG_AVG ? sum / 2 : sum, &result[i * bytes]);
            }
            EXPECT_EQ(pattern.wrong(first, some, result.data(), 0x12), 0U) << name_of(dtype) << ", " << name_of(op);
            EXPECT_GT(pattern.wrong(first, some, result.data(), 0x13), some / 2);
        }
}

TEST(Pattern, IntegersWrap) {
    Arguments args;
    Pattern pattern(args, {INAGG_INT32}, 7, INAGG_SCALE_AUTO, 1);
    std::vector<uint32_t> data(count), sum(count);
    for (unsigned rank = 0; rank < 7; rank++) {
        pattern.fill(rank, count, reinterpret_cast<std::byte *>(data.data()));
        for (size_t i = 0; i < count; i++)
            sum[i] += data[i];
    }
    EXPECT_EQ(pattern.wrong(count, reinterpret_cast<std::byte *>(sum.data())), 0U);
}

TEST(Pattern, SeesEveryWrongBit) {
    Arguments args;
    for (inagg_dtype dtype : floats) {
        Pattern pattern(args, {dtype}, 4, INAGG_SCALE_AUTO, 1);
        auto result = reduce(pattern, dtype, INAGG_SUM, 4);
        for (size_t at : {size_t{0}, result.size() / 2, result.size() - 1})
            for (int bit = 0; bit < 8; bit++) {
                result[at] ^= std::byte(1 << bit);
                EXPECT_EQ(pattern.wrong(count, result.data()), 1U) << "byte " << at << ", bit " << bit;
                result[at] ^= std::byte(1 << bit);
            }
    }
}

TEST(Pattern, DependsOnSeedRankAndIteration) {
    Arguments args, other;
    other.seed = 2;
    std::vector<std::byte> base(count * 4), data(count * 4);
    Pattern pattern(args, {}, 4, INAGG_SCALE_AUTO, 1);
    pattern.fill(0, count, base.data());
    pattern.fill(0, count, data.data());
    EXPECT_EQ(data, base);
    pattern.fill(1, count, data.data());
    EXPECT_NE(data, base);
    Pattern(args, {}, 4, INAGG_SCALE_AUTO, 2).fill(0, count, data.data());
    EXPECT_NE(data, base);
    Pattern(other, {}, 4, INAGG_SCALE_AUTO, 1).fill(0, count, data.data());
    EXPECT_NE(data, base);
}

TEST(Pattern, OutliersDoNotFitTheScaleAndTheirSumsAreExact) {
    constexpr int scale = 10;
    Arguments args;
    args.outliers = 100;
    Pattern pattern(args, {}, 8, scale, 1);
    const auto result = reduce(pattern, INAGG_FLOAT32, INAGG_SUM, 8);
    EXPECT_EQ(pattern.wrong(count, result.data()), 0U);
    EXPECT_EQ(pattern.wrong(50, count - 50, result.data() + 50 * 4, 0xff), 0U);
    size_t large = 0;
    for (size_t i = 0; i < count; i++) {
        const bool fits = std::fabs(std::ldexp(decode(INAGG_FLOAT32, &result[i * 4]), scale)) < 0x1p31;
        EXPECT_TRUE(fits || i % 100 == 99) << i;
        large += !fits;
    }
    EXPECT_GT(large, 45U);
    const auto usual = reduce(Pattern(args, {}, 8, INAGG_SCALE_AUTO, 1), INAGG_FLOAT32, INAGG_SUM, 8);
    args.outliers = 0;
    EXPECT_EQ(usual, reduce(Pattern(args, {}, 8, INAGG_SCALE_AUTO, 1), INAGG_FLOAT32, INAGG_SUM, 8));
}

TEST(Pattern, KeepsToAScaleFixedByHand) {
    constexpr int scale = 10;
    Arguments args;
    Pattern pattern(args, {}, 8, scale, 1);
    std::vector<float> data(count);
    for (unsigned rank = 0; rank < 8; rank++) {
        pattern.fill(rank, count, reinterpret_cast<std::byte *>(data.data()));
        for (float value : data) {
            double fixed = std::ldexp(value, scale);
            EXPECT_EQ(fixed, std::nearbyint(fixed));
            EXPECT_LT(std::fabs(fixed), std::ldexp(1.0, 31 - 3));
        }
    }
}

} // namespace
} // namespace perf
