// SPDX-License-Identifier: BSD-2-Clause
// The library's vectors and the integer code of core/tensor.h, which the kernel runs, give the same bits:
// ranks of one job may use either.
#include "convert.hpp"

#include <inagg/core/tensor.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace inagg {
namespace {

constexpr std::size_t count = 8 * INAGG_CHUNK;

// Every class of binary32 and the borders between them, then patterns whose exponents lie about `exponent`,
// then any.
std::vector<float> patterns(std::mt19937 &random, int exponent) {
    std::vector<uint32_t> bits;
    for (const uint32_t magnitude :
         {0x00000000, 0x00000001, 0x00000002, 0x00400000, 0x007fffff, 0x00800000, 0x00800001, 0x3effffff, 0x3f000000, 0x3f000001,
          0x3f800000, 0x3fc00000, 0x4b7fffff, 0x4effffff, 0x4f000000, 0x7f7fffff, 0x7f800000, 0x7f800001, 0x7fc00000, 0x7fffffff})
        bits.insert(bits.end(), {magnitude, magnitude | 0x80000000});
    while (bits.size() < count) {
        const auto near = static_cast<uint32_t>(std::clamp(exponent + 2 - int(random() % 40), 0, 255));
        bits.push_back(bits.size() % 4 ? (random() & 0x807fffff) | near << 23 : random());
    }
    std::vector<float> floats(count);
    std::memcpy(floats.data(), bits.data(), count * 4);
    return floats;
}

uint32_t bits_of(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    return bits;
}

TEST(SameBits, FloatsToFixedPointAtEveryPoint) {
    std::mt19937 random(1);
    for (uint32_t size : {1, 2, 4, 8, 16, 32, 64})
        for (int scale = 0; scale < INAGG_SCALE_NONFINITE; scale++) {
            inagg_coding c;
            inagg_coding_init(&c, INAGG_FLOAT32, INAGG_SUM, size, static_cast<uint8_t>(scale), 0);
            const std::vector<float> in = patterns(random, scale);
            std::vector<uint32_t> out(count);
            to_fixed(in.data(), out.data(), count, c.point, c.bias);
            for (std::size_t i = 0; i < count; i++) {
                uint8_t saturated = 0;
                ASSERT_EQ(inagg_float_to_fixed(bits_of(in[i]), c.point, c.bias, &saturated), out[i])
                    << std::hex << bits_of(in[i]) << " point " << std::dec << c.point << " size " << size;
                const std::vector<float> chunk(INAGG_CHUNK, in[i]);
                uint32_t unused[INAGG_CHUNK];
                ASSERT_EQ(saturated, to_fixed(chunk.data(), unused, INAGG_CHUNK, c.point, c.bias))
                    << std::hex << bits_of(in[i]) << " point " << std::dec << c.point << " size " << size;
            }
        }
}

TEST(SameBits, HalvesToFloatsAndBack) {
    std::mt19937 random(3);
    for (const inagg_dtype dtype : {INAGG_FLOAT16, INAGG_BFLOAT16}) {
        const uint32_t mantissa = inagg_mantissa_bits(dtype);
        std::vector<uint16_t> halves(0x10000), narrowed(0x10000);
        for (std::size_t i = 0; i < halves.size(); i++)
            halves[i] = static_cast<uint16_t>(i);
        std::vector<float> floats(halves.size());
        widen(halves.data(), floats.data(), halves.size(), dtype);
        for (std::size_t i = 0; i < halves.size(); i++)
            ASSERT_EQ(bits_of(floats[i]), inagg_half_to_float(halves[i], mantissa)) << std::hex << i;
        // each half's value, what is half way to the next, the neighbours of both, and any
        for (int round = 0; round < 9; round++) {
            for (std::size_t i = 0; i < halves.size(); i++) {
                uint32_t bits = inagg_half_to_float(halves[i], mantissa);
                bits += round % 2 ? 0 : 1U << (22 - mantissa);
                bits = round < 6 ? bits + static_cast<uint32_t>(round / 2) - 1 : random();
                std::memcpy(&floats[i], &bits, 4);
            }
            if (round == 8) // about where subnormals begin and what is too large
                for (float &one : floats)
                    one = std::ldexp(1 + static_cast<float>(random()) * 0x1p-32F, static_cast<int>(random() % 45) - 26);
            narrow(floats.data(), narrowed.data(), floats.size(), dtype);
            for (std::size_t i = 0; i < halves.size(); i++)
                ASSERT_EQ(narrowed[i], inagg_float_to_half(bits_of(floats[i]), mantissa)) << std::hex << bits_of(floats[i]);
        }
    }
}

TEST(SameBits, FixedPointToFloatsAtEveryPoint) {
    std::mt19937 random(2);
    for (uint32_t size : {1, 2, 3, 5, 8, 16, 33, 64})
        for (int scale = 0; scale < INAGG_SCALE_NONFINITE; scale++) {
            inagg_coding c;
            inagg_coding_init(&c, INAGG_FLOAT32, INAGG_SUM, size, static_cast<uint8_t>(scale), 0);
            const uint32_t total_bias = c.bias * size;
            std::vector<uint32_t> in = {0, 1, 0x7fffffff, 0x80000000, 0xffffffff, total_bias, total_bias + 1, total_bias - 1};
            while (in.size() < count)
                in.push_back(total_bias + static_cast<uint32_t>(static_cast<int32_t>(random()) >> random() % 32));
            std::vector<float> out(count);
            from_fixed(in.data(), out.data(), count, c.point, total_bias);
            for (std::size_t i = 0; i < count; i++)
                ASSERT_EQ(inagg_decode(&c, in[i], size), bits_of(out[i])) << in[i] << " point " << c.point << " size " << size;
        }
}

TEST(SameBits, OrderedFloats) {
    std::mt19937 random(3);
    for (const inagg_op op : {INAGG_MIN, INAGG_MAX})
        for (int exponent = 0; exponent < 256; exponent++) {
            inagg_coding c;
            inagg_coding_init(&c, INAGG_FLOAT32, op, 2, 0, 0);
            const std::vector<float> in = patterns(random, exponent);
            std::vector<int32_t> out(count), expected(count);
            std::vector<float> back(count), back_expected(count);
            to_ordered(in.data(), out.data(), count, op == INAGG_MAX ? INT32_MAX : INT32_MIN);
            EXPECT_EQ(inagg_encode_block(&c, in.data(), expected.data(), count), 0);
            ASSERT_EQ(out, expected);
            from_ordered(out.data(), back.data(), count);
            inagg_decode_block(&c, out.data(), back_expected.data(), count, 2);
            ASSERT_EQ(std::memcmp(back.data(), back_expected.data(), count * 4), 0);
        }
}

TEST(SameBits, OrderedHalves) {
    for (const inagg_dtype dtype : {INAGG_FLOAT16, INAGG_BFLOAT16})
        for (const inagg_op op : {INAGG_MIN, INAGG_MAX}) {
            inagg_coding c;
            inagg_coding_init(&c, dtype, op, 2, 0, 0);
            std::vector<uint16_t> in(0x10000), back(in.size()), back_expected(in.size());
            for (std::size_t i = 0; i < in.size(); i++)
                in[i] = static_cast<uint16_t>(i);
            std::vector<int32_t> out(in.size()), expected(in.size());
            to_ordered16(in.data(), out.data(), in.size(), inagg_infinity(dtype), op == INAGG_MAX ? INT32_MAX : INT32_MIN);
            for (std::size_t i = 0; i < in.size(); i += INAGG_CHUNK)
                inagg_encode_block(&c, &in[i], &expected[i], INAGG_CHUNK);
            ASSERT_EQ(out, expected);
            from_ordered16(out.data(), back.data(), out.size());
            inagg_decode_block(&c, out.data(), back_expected.data(), static_cast<uint32_t>(out.size()), 2);
            ASSERT_EQ(back, back_expected);
        }
}

TEST(SameBits, LargestExponents) {
    std::mt19937 random(4);
    for (const inagg_dtype dtype : {INAGG_FLOAT32, INAGG_FLOAT16, INAGG_BFLOAT16})
        for (int exponent = 0; exponent < 256; exponent++) {
            const std::vector<float> in = patterns(random, exponent);
            const uint32_t elements = count * 4 / inagg_memory_bytes(dtype);
            for (uint32_t first = 0; first < elements; first++) { // of every length, and each alone
                const char *at = reinterpret_cast<const char *>(in.data()) + first * inagg_memory_bytes(dtype);
                for (const uint32_t n : {1U, elements - first})
                    ASSERT_EQ(inagg_exponent_of(inagg_largest_magnitude(at, n, dtype, 0), dtype), max_exponent(at, n, dtype))
                        << "type " << dtype << ", " << n << " from " << first;
            }
        }
}

} // namespace
} // namespace inagg
