// SPDX-License-Identifier: BSD-2-Clause
// Tensors to blocks by the definitions, in doubles, which hold every value here exactly.
#include <inagg/core/packet.h>
#include <inagg/core/tensor.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace {

constexpr __u32 dtypes[] = {INAGG_INT32, INAGG_FLOAT32, INAGG_FLOAT16, INAGG_BFLOAT16};
constexpr __u32 ops[] = {INAGG_SUM, INAGG_MIN, INAGG_MAX};

float float_of(__u32 bits) { return std::bit_cast<float>(bits); }
__u32 bits_of(float value) { return std::bit_cast<__u32>(value); }

// Patterns of which each class of binary32 has some; the others are random.
std::vector<__u32> float_patterns(std::mt19937 &random) {
    std::vector<__u32> patterns = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000, 0x3f800000, 0xbf800000,
                                   0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00001, 0x7f800001};
    while (patterns.size() < 96)
        patterns.push_back(random());
    return patterns;
}

inagg_coding coding_of(__u32 dtype, __u32 op, __u32 size = 4, __u8 scale = 130) {
    inagg_coding c;
    inagg_coding_init(&c, dtype, op, size, scale, 0);
    return c;
}

} // namespace

TEST(FixedFloat, IsRoundedToNearestEvenAtEveryPoint) {
    std::mt19937 random(1);
    for (__u32 log2 = 0; log2 <= 6; log2++)
        for (int scale = 0; scale < INAGG_SCALE_NONFINITE; scale++) {
            const __u32 bias = inagg_fixed_bias(log2);
            const int point = inagg_fixed_point(log2, static_cast<__u8>(scale));
            for (__u32 bits : float_patterns(random)) {
                if (random() % 2) // near the scale, where bits are rounded off
                    bits = (bits & 0x807fffff) | static_cast<__u32>(std::max(0, scale - int(random() % 40))) << 23;
                const double exact = std::ldexp(double{float_of(bits)}, point);
                const bool fits = std::fabs(exact) < bias; // false for NaN
                __u8 saturated = 0;
                const __u32 fixed = inagg_float_to_fixed(bits, point, bias, &saturated);
                ASSERT_EQ(saturated, !fits) << std::hex << bits << " point " << std::dec << point;
                const auto most = static_cast<double>(bias - (bias >> 24)); // the largest float below the bias
                const double nearest = fits ? std::nearbyint(exact) : bits >> 31 ? -most : most;
                ASSERT_EQ(fixed - bias, static_cast<__u32>(static_cast<__s64>(nearest)))
                    << std::hex << bits << " point " << std::dec << point;
            }
        }
}

// Two roundings, as a CPU does it: to 24 bits, and to what a subnormal has.
TEST(FixedFloat, ComesBackAsTheNearestFloat) {
    std::mt19937 random(2);
    const __s32 edges[] = {0,
                           1,
                           -1,
                           std::numeric_limits<__s32>::max(),
                           std::numeric_limits<__s32>::min(),
                           0xffffff,
                           0x1000000,
                           0x1000001,
                           0x1000003,
                           0x1ffffff,
                           -0x1ffffff,
                           0x7fffffbf,
                           0x7fffffc0};
    for (int point = inagg_fixed_point(6, 254); point <= inagg_fixed_point(0, 0); point++)
        for (int i = 0; i < 2000; i++) {
            const auto fixed = i < static_cast<int>(std::size(edges)) ? edges[i] : static_cast<__s32>(random()) >> random() % 32;
            const auto expected = static_cast<float>(std::ldexp(double{static_cast<float>(fixed)}, -point));
            ASSERT_EQ(inagg_fixed_to_float(fixed, point), bits_of(expected)) << fixed << " point " << point;
        }
}

TEST(Tensor, EncodingsOfEveryTypeAndOperator) {
    EXPECT_EQ(inagg_wire_encoding(INAGG_INT32, INAGG_SUM, 0), INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM);
    EXPECT_EQ(inagg_wire_encoding(INAGG_FLOAT32, INAGG_SUM, 0), INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_SUM);
    EXPECT_EQ(inagg_wire_encoding(INAGG_FLOAT16, INAGG_SUM, 0), INAGG_WIRE_FLOAT16 << 4 | INAGG_WIRE_SUM);
    EXPECT_EQ(inagg_wire_encoding(INAGG_BFLOAT16, INAGG_SUM, 0), INAGG_WIRE_BFLOAT16 << 4 | INAGG_WIRE_SUM);
    for (const __u32 dtype : dtypes) {
        EXPECT_EQ(inagg_wire_encoding(dtype, INAGG_MIN, 0), INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MIN);
        EXPECT_EQ(inagg_wire_encoding(dtype, INAGG_MAX, 0), INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX);
        EXPECT_EQ(inagg_needs_scale(dtype, INAGG_SUM, 0), dtype != INAGG_INT32);
        EXPECT_FALSE(inagg_needs_scale(dtype, INAGG_MIN, 0) || inagg_needs_scale(dtype, INAGG_MAX, 0));
    }
    EXPECT_EQ(inagg_memory_bytes(INAGG_INT32), 4U);
    EXPECT_EQ(inagg_memory_bytes(INAGG_FLOAT32), 4U);
    EXPECT_EQ(inagg_memory_bytes(INAGG_FLOAT16), 2U);
    EXPECT_EQ(inagg_memory_bytes(INAGG_BFLOAT16), 2U);
    EXPECT_EQ(inagg_memory_bytes(INAGG_DTYPES), 0U);
}

TEST(Tensor, EncodingsByWhoAdds) {
    for (const __u32 dtype : {INAGG_FLOAT16, INAGG_BFLOAT16, INAGG_FLOAT32}) {
        EXPECT_EQ(inagg_wire_encoding(dtype, INAGG_SUM, INAGG_FLOATS_WIDENED), INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_SUM);
        EXPECT_EQ(inagg_wire_encoding(dtype, INAGG_SUM, INAGG_FLOATS_RAW), INAGG_WIRE_FLOAT32 << 4 | INAGG_WIRE_SUM);
        EXPECT_TRUE(inagg_needs_scale(dtype, INAGG_SUM, INAGG_FLOATS_WIDENED));
        EXPECT_FALSE(inagg_needs_scale(dtype, INAGG_SUM, INAGG_FLOATS_RAW));
    }
    for (const __u32 floats : {INAGG_FLOATS_WIDENED, INAGG_FLOATS_RAW}) {
        EXPECT_EQ(inagg_wire_encoding(INAGG_INT32, INAGG_SUM, floats), INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM);
        for (const __u32 dtype : dtypes)
            for (const __u32 op : {INAGG_MIN, INAGG_MAX})
                EXPECT_EQ(inagg_wire_encoding(dtype, op, floats), inagg_wire_encoding(dtype, op, INAGG_FLOATS_FIXED));
    }
}

TEST(Tensor, HowFloatsTravelIsUpToWhoAddsThem) {
    auto floats_of = [](__u8 algorithm, __u8 tree, __u8 integers) {
        inagg_job_config job{};
        job.algorithm = algorithm;
        job.tree = tree;
        job.integers = integers;
        return inagg_floats_of(&job);
    };
    EXPECT_EQ(floats_of(INAGG_SWITCHML, 0, 0), __u32{INAGG_FLOATS_FIXED});
    EXPECT_EQ(floats_of(INAGG_ATP, 1, 0), __u32{INAGG_FLOATS_WIDENED});
    for (const __u8 tree : {0, 1})
        EXPECT_EQ(floats_of(INAGG_PANAMA, tree, 0), __u32{INAGG_FLOATS_RAW});
    EXPECT_EQ(floats_of(INAGG_PANAMA, 0, 1), __u32{INAGG_FLOATS_FIXED});
    EXPECT_EQ(floats_of(INAGG_PANAMA, 1, 1), __u32{INAGG_FLOATS_WIDENED});
}

TEST(Tensor, BlocksAndPadding) {
    EXPECT_EQ(inagg_blocks_of(0, 352), 0U);
    EXPECT_EQ(inagg_blocks_of(1, 352), 1U);
    EXPECT_EQ(inagg_blocks_of(352, 352), 1U);
    EXPECT_EQ(inagg_blocks_of(353, 352), 2U);
    EXPECT_EQ(inagg_blocks_of(1ULL << 35, 32), 1U << 30);
    EXPECT_EQ(inagg_padded(0), 0);
    for (__u32 count = 1; count <= INAGG_MAX_ELEMENTS; count++) {
        EXPECT_EQ(inagg_padded(count) % INAGG_CHUNK, 0U);
        EXPECT_GE(inagg_padded(count), count);
        EXPECT_LT(inagg_padded(count) - count, __u32{INAGG_CHUNK});
    }
}

TEST(Tensor, ScaleOfAPointChosenByHand) {
    for (__u32 log2 = 0; log2 <= 6; log2++)
        for (int k = inagg_fixed_point(log2, 254); k <= inagg_fixed_point(log2, 0); k++)
            EXPECT_EQ(inagg_fixed_point(log2, inagg_scale_for_point(log2, k)), k) << log2;
}

TEST(Tensor, ExponentsOfEveryMagnitudeOf16Bits) {
    for (__u32 bits = 0; bits < 0x8000; bits++) {
        const int exponent = static_cast<int>(bits >> 10), mantissa = static_cast<int>(bits & 1023);
        const double half = std::ldexp(exponent ? mantissa + 1024 : mantissa, (exponent ? exponent : 1) - 25);
        const int expected = exponent == 31 ? INAGG_SCALE_NONFINITE : half == 0 ? 0 : std::ilogb(half) + 127;
        ASSERT_EQ(inagg_exponent_of(bits, INAGG_FLOAT16), expected) << bits;
        ASSERT_EQ(inagg_exponent_of(bits, INAGG_BFLOAT16), inagg_exponent_of(bits << 16, INAGG_FLOAT32)) << bits;
    }
    EXPECT_EQ(inagg_exponent_of(bits_of(1.0F), INAGG_FLOAT32), 127);
    EXPECT_EQ(inagg_exponent_of(bits_of(1.99F), INAGG_FLOAT32), 127);
    EXPECT_EQ(inagg_exponent_of(0, INAGG_FLOAT32), 0);
    EXPECT_EQ(inagg_exponent_of(0x007fffff, INAGG_FLOAT32), 0);
    EXPECT_EQ(inagg_exponent_of(0x7f800000, INAGG_FLOAT32), INAGG_SCALE_NONFINITE);
}

TEST(Tensor, LargestMagnitudeAtAnyAlignmentAndPlace) {
    for (const __u32 dtype : {INAGG_FLOAT32, INAGG_FLOAT16, INAGG_BFLOAT16}) {
        const __u32 bytes = inagg_memory_bytes(dtype), sign = dtype == INAGG_FLOAT32 ? 0x80000000 : 0x8000;
        for (__u32 place = 0; place < 40; place++) {
            std::vector<char> memory(1 + 40 * bytes);
            const __u32 largest = (sign >> 1) | sign;
            std::memcpy(&memory[1 + place * bytes], &largest, bytes);
            EXPECT_EQ(inagg_largest_magnitude(&memory[1], 40, dtype, 0), sign >> 1);
            EXPECT_EQ(inagg_largest_magnitude(&memory[1], place, dtype, 5), 5U) << "earlier ones count, too";
        }
    }
}

// Each value of an encoding that is no sum comes back with its bits, and in order.
TEST(Tensor, OrderedFloatsKeepOrderAndBits) {
    for (const __u32 dtype : {INAGG_FLOAT16, INAGG_BFLOAT16})
        for (const __u32 op : {INAGG_MIN, INAGG_MAX}) {
            const inagg_coding c = coding_of(dtype, op);
            const __u32 infinity = inagg_infinity(dtype);
            __u8 saturated = 0;
            for (__u32 bits = 0; bits < 0x10000; bits++) {
                const bool nan = (bits & 0x7fff) > infinity;
                const auto wire = static_cast<__s32>(inagg_encode(&c, bits, &saturated));
                ASSERT_EQ(inagg_decode(&c, wire, 4), nan ? 0x7fffU : bits);
                ASSERT_EQ(nan, wire == (op == INAGG_MAX ? 0x7fffffff : -0x7fffffff - 1)) << "NaN wins";
                if (!nan && bits && !(bits & 0x8000)) {
                    ASSERT_GT(wire, static_cast<__s32>(inagg_encode(&c, bits - 1, &saturated)));
                }
                if (!nan && bits > 0x8000) {
                    ASSERT_LT(wire, static_cast<__s32>(inagg_encode(&c, bits - 1, &saturated)));
                }
            }
            EXPECT_EQ(saturated, 0);
            EXPECT_LT(static_cast<__s32>(inagg_encode(&c, 0x8000, &saturated)), 0) << "-0 before +0";
        }
    std::mt19937 random(3);
    const inagg_coding c = coding_of(INAGG_FLOAT32, INAGG_MIN);
    std::vector<__u32> patterns = float_patterns(random);
    for (const __u32 a : patterns)
        for (const __u32 b : patterns) {
            __u8 saturated = 0;
            const auto wire_a = static_cast<__s32>(inagg_encode(&c, a, &saturated)),
                       wire_b = static_cast<__s32>(inagg_encode(&c, b, &saturated));
            if (!std::isnan(float_of(a))) {
                EXPECT_EQ(inagg_decode(&c, static_cast<__u32>(wire_a), 4), a);
            }
            if (float_of(a) < float_of(b)) {
                EXPECT_LT(wire_a, wire_b) << float_of(a) << " and " << float_of(b);
            }
        }
}

// A block that nobody adds to comes back as it was, whatever its length; nothing behind it is touched.
TEST(Tensor, BlocksComeBack) {
    std::mt19937 random(4);
    for (const __u32 dtype : dtypes)
        for (const __u32 op : ops)
            for (const __u32 count : {1U, 31U, 32U, 33U, 352U, 353U, 832U}) {
                const __u32 bytes = inagg_memory_bytes(dtype);
                const inagg_coding c = coding_of(dtype, op, 1, 254);
                inagg_block_meta meta{};
                meta.dtype_op = inagg_wire_encoding(dtype, op, 0);
                meta.elements = inagg_padded(count);
                std::vector<unsigned char> in(count * bytes), wire(inagg_block_bytes(&meta) + 8, 0xaa);
                for (__u32 i = 0; i < count; i++) { // what one rank's scale keeps: no more than 24 bits
                    const __u32 bits =
                        dtype == INAGG_FLOAT32 ? bits_of(std::ldexp(float(random() % 1000), 110)) : random() & 0x3bff;
                    std::memcpy(&in[i * bytes], &bits, bytes);
                }
                EXPECT_EQ(inagg_encode_block(&c, in.data(), wire.data(), count), 0);
                for (__u32 i = 0; i < 8; i++)
                    EXPECT_EQ(wire[wire.size() - 1 - i], 0xaa) << "not the block's";
                std::vector<unsigned char> out(in.size() + 8, 0xbb);
                inagg_decode_block(&c, wire.data(), out.data(), count, 1);
                EXPECT_EQ(std::memcmp(out.data(), in.data(), in.size()), 0) << dtype << " " << op << " " << count;
                for (__u32 i = 0; i < 8; i++)
                    EXPECT_EQ(out[in.size() + i], 0xbb) << "not the tensor's";
                inagg_decode_block(&c, wire.data(), wire.data(), count, 1);
                EXPECT_EQ(std::memcmp(wire.data(), in.data(), in.size()), 0) << "in place " << dtype << " " << op;
            }
}

TEST(Tensor, PaddingIsZero) {
    for (const __u32 dtype : dtypes)
        for (const __u32 op : ops) {
            const inagg_coding c = coding_of(dtype, op);
            const __u32 one = dtype == INAGG_FLOAT32 ? bits_of(1) : 0x3c00;
            unsigned char wire[INAGG_CHUNK * 4];
            std::memset(wire, 0xaa, sizeof(wire));
            inagg_encode_block(&c, &one, wire, 1);
            const __u32 width = inagg_element_bytes(inagg_wire_encoding(dtype, op, 0) >> 4);
            const __u32 zero = op == INAGG_SUM && dtype == INAGG_FLOAT32 ? c.bias : 0;
            for (__u32 i = 1; i < INAGG_CHUNK; i++)
                EXPECT_EQ(std::memcmp(wire + i * width, &zero, width), 0) << dtype << " " << op << " " << i;
        }
}

TEST(Tensor, AnElementThatDoesNotFitSaturatesItsBlock) {
    const inagg_coding c = coding_of(INAGG_FLOAT32, INAGG_SUM, 4, 127); // |x| < 2
    float in[40] = {};
    unsigned char wire[64 * 4];
    EXPECT_EQ(inagg_encode_block(&c, in, wire, 40), 0);
    in[39] = 2;
    EXPECT_EQ(inagg_encode_block(&c, in, wire, 40), 1);
    EXPECT_EQ(inagg_encode_block(&c, in, wire, 39), 0);
}

TEST(Tensor, InfinitiesAndNanAddAsFloatsDo) {
    struct Format {
        __u32 dtype, one, infinity, sign, nan;
    };
    const Format formats[] = {{INAGG_FLOAT32, 0x3f800000, 0x7f800000, 0x80000000, 0x7fc00000},
                              {INAGG_FLOAT16, 0x3c00, 0x7c00, 0x8000, 0x7e00},
                              {INAGG_BFLOAT16, 0x3f80, 0x7f80, 0x8000, 0x7fc0}};
    for (const Format &f : formats) {
        const __u32 values[] = {f.one, f.one | f.sign, f.infinity, f.infinity | f.sign, f.infinity + 1, f.nan | f.sign};
        const float as_float[] = {1, -1, INFINITY, -INFINITY, NAN, NAN};
        EXPECT_EQ(inagg_class_of(f.infinity - 1, f.dtype), 0U) << "the largest number";
        for (int a = 0; a < 6; a++)
            for (int b = 0; b < 6; b++) { // one rank has a, 63 have b
                __u32 counts = inagg_class_of(values[a], f.dtype);
                float sum = as_float[a];
                for (int rank = 1; rank < INAGG_MAX_RANKS; rank++) {
                    counts += inagg_class_of(values[b], f.dtype);
                    sum += as_float[b];
                }
                const __u32 expected = std::isnan(sum) ? f.nan : std::isinf(sum) ? f.infinity | (sum < 0 ? f.sign : 0) : 0x1234;
                EXPECT_EQ(inagg_class_apply(0x1234, counts, f.dtype), expected) << f.dtype << " " << a << " " << b;
            }
    }
}

// Whoever is in the sum and in the counts: a result is that of the ranks in the sum, or NaN.
TEST(Tensor, WhatWasCountedOfOthersIsNoNumber) {
    constexpr __u32 finite = 0x1234, nan = 0x7fc00000;
    const __u32 values[] = {0x3f800000, 0x7f800000, 0xff800000, 0x7fc00000};
    for (__u64 ranks = 1; ranks < 8; ranks++)
        for (__u64 counted = 1; counted < 8; counted++)
            for (int choice = 0; choice < 64; choice++) {
                __u32 of_sum = 0, counts = 0;
                for (int rank = 0; rank < 3; rank++) {
                    const __u32 one = inagg_class_of(values[choice >> 2 * rank & 3], INAGG_FLOAT32);
                    of_sum += ranks >> rank & 1 ? one : 0;
                    counts += counted >> rank & 1 ? one : 0;
                }
                const __u32 truth = inagg_class_apply(finite, of_sum, INAGG_FLOAT32);
                const __u32 result = inagg_class_apply(finite, inagg_class_certain(counts, counted, ranks), INAGG_FLOAT32);
                EXPECT_TRUE(result == truth || result == nan) << ranks << " " << counted << " " << choice;
                if (counted == ranks || (!counts && !(ranks & ~counted))) {
                    EXPECT_EQ(result, truth) << ranks << " " << counted << " " << choice;
                }
            }
}

// A sum of 16-bit floats in a tree of switches has the bits that one switch gives it.
TEST(Widened, RoundsAsASwitchDoes) {
    for (__u32 dtype : {INAGG_FLOAT16, INAGG_BFLOAT16}) {
        const __u32 mantissa = inagg_mantissa_bits(dtype), size = 3, log2 = inagg_fan_in_log2(size);
        const __u8 scale = 130;
        inagg_coding c;
        inagg_coding_init(&c, dtype, INAGG_SUM, size, scale, 1);
        EXPECT_FALSE(inagg_is_plain(&c));
        EXPECT_EQ(inagg_wire_encoding(dtype, INAGG_SUM, 1), INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_SUM);
        EXPECT_EQ(inagg_wire_encoding(dtype, INAGG_MAX, 1), inagg_wire_encoding(dtype, INAGG_MAX, 0));
        __u32 random = 1;
        for (int round = 0; round < 10000; round++) {
            __u32 wire = 0;
            __s32 fixed = 0;
            __u8 saturated = 0;
            for (__u32 rank = 0; rank < size; rank++) {
                random = random * 1664525 + 1013904223;
                // below 2^(scale - 126): exponents of at most `scale`
                const __u32 one = dtype == INAGG_FLOAT16 ? random >> 16 & 0xcbff : random >> 16 & 0xc0ff;
                wire += inagg_encode(&c, one, &saturated);
                fixed += inagg_half_to_fixed(static_cast<__u16>(one), mantissa, log2, scale);
            }
            ASSERT_EQ(inagg_decode(&c, wire, size), inagg_fixed_to_half(fixed, mantissa, log2, scale));
        }
    }
}

namespace {

double half_value(__u32 bits, __u32 mantissa_bits) {
    const __u32 exponent_bits = 15 - mantissa_bits, exponent = bits >> mantissa_bits & ((1U << exponent_bits) - 1);
    const __u32 mantissa = bits & ((1U << mantissa_bits) - 1);
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const double sign = bits & 0x8000 ? -1 : 1;
    if (exponent == (1U << exponent_bits) - 1)
        return mantissa ? NAN : sign * INFINITY;
    const int unit = static_cast<int>(exponent ? exponent : 1) - bias - static_cast<int>(mantissa_bits);
    return sign * std::ldexp(exponent ? mantissa + (1U << mantissa_bits) : mantissa, unit);
}

} // namespace

TEST(Halves, WidenExactlyAndComeBack) {
    for (const __u32 dtype : {INAGG_FLOAT16, INAGG_BFLOAT16}) {
        const __u32 mantissa = inagg_mantissa_bits(dtype), infinity = inagg_infinity(dtype);
        for (__u32 bits = 0; bits < 0x10000; bits++) {
            const __u32 wide = inagg_half_to_float(static_cast<__u16>(bits), mantissa);
            const double value = half_value(bits, mantissa);
            if ((bits & 0x7fff) > infinity) {
                ASSERT_TRUE(std::isnan(float_of(wide))) << bits;
                ASSERT_EQ(inagg_float_to_half(wide, mantissa), infinity | (infinity >> 1 & ~infinity)) << bits;
                continue;
            }
            ASSERT_EQ(wide, bits_of(static_cast<float>(value))) << bits;
            ASSERT_EQ(inagg_float_to_half(wide, mantissa), bits);
        }
    }
}

// Between two neighbours the nearer one, half way the even one; the last one's next would be 2^16 or 2^128.
TEST(Halves, AreRoundedToNearestEven) {
    for (const __u32 dtype : {INAGG_FLOAT16, INAGG_BFLOAT16}) {
        const __u32 mantissa = inagg_mantissa_bits(dtype), infinity = inagg_infinity(dtype);
        const double beyond = std::ldexp(1, dtype == INAGG_FLOAT16 ? 16 : 128);
        for (__u32 bits = 0; bits < infinity; bits++) {
            const double low = half_value(bits, mantissa);
            const double high = bits + 1 < infinity ? half_value(bits + 1, mantissa) : beyond;
            const auto half_way = static_cast<float>((low + high) / 2);
            const __u32 even = bits & 1 ? bits + 1 : bits;
            for (const __u32 sign : {0U, 0x80000000U}) {
                const __u32 at = bits_of(half_way) | sign, half_sign = sign >> 16;
                ASSERT_EQ(inagg_float_to_half(at, mantissa), even | half_sign) << bits;
                ASSERT_EQ(inagg_float_to_half(at - 1, mantissa), bits | half_sign) << bits;
                ASSERT_EQ(inagg_float_to_half(at + 1, mantissa), (bits + 1) | half_sign) << bits;
            }
        }
        EXPECT_EQ(inagg_float_to_half(0x7f7fffff, mantissa), infinity);
        EXPECT_EQ(inagg_float_to_half(1, mantissa), 0U);
        EXPECT_EQ(inagg_float_to_half(0x80000001, mantissa), 0x8000U);
    }
}

TEST(Halves, TravelAsFloatsWhereTheseAreAdded) {
    for (const __u32 dtype : {INAGG_FLOAT16, INAGG_BFLOAT16}) {
        inagg_coding c;
        inagg_coding_init(&c, dtype, INAGG_SUM, 3, 0, INAGG_FLOATS_RAW);
        EXPECT_FALSE(inagg_is_plain(&c));
        __u16 halves[33];
        float wire[64];
        for (__u32 i = 0; i < 33; i++)
            halves[i] = static_cast<__u16>(i * 900);
        EXPECT_EQ(inagg_encode_block(&c, halves, wire, 33), 0);
        for (__u32 i = 0; i < 64; i++)
            EXPECT_EQ(wire[i], i < 33 ? half_value(halves[i], inagg_mantissa_bits(dtype)) : 0) << i;
        __u16 back[33];
        inagg_decode_block(&c, wire, back, 33, 3);
        EXPECT_EQ(std::memcmp(back, halves, sizeof(back)), 0);
    }
    inagg_coding c;
    inagg_coding_init(&c, INAGG_FLOAT32, INAGG_SUM, 3, 0, INAGG_FLOATS_RAW);
    EXPECT_TRUE(inagg_is_plain(&c));
}
