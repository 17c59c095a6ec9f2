// SPDX-License-Identifier: BSD-2-Clause
// Elements to the wire and back: the vector units give the bits of the core's integer code.
#include "world.hpp"

#include <inagg/core/tensor.h>

#include <cstring>

extern "C" {
uint8_t inagg_to_wire(const struct inagg_coding *c, const void *in, void *out, uint32_t count);
void inagg_from_wire(const struct inagg_coding *c, void *cell, uint32_t count, uint32_t size);
uint32_t inagg_magnitude(const void *in, uint32_t count, uint32_t dtype, uint32_t most);
const char *inagg_convert_init(void);
}

namespace kmod {

// By the core's integers, by SSE2 and by AVX2, whatever this processor has of them.
struct ConvertTest : testing::TestWithParam<std::string> {
    World world; // a mocked kernel without the module

    void SetUp() override {
        if (GetParam() == "AVX2" && !mock_has_avx2())
            GTEST_SKIP() << "this processor has no AVX2";
        mock_set_avx2(GetParam() == "AVX2", true);
        mock_set_vectors(GetParam() != "Integers");
        const std::string unit = inagg_convert_init();
        EXPECT_TRUE(unit == GetParam() || GetParam() == "Integers" || unit == "integers") << unit;
    }

    inagg_coding coding(uint32_t size, uint8_t scale) {
        inagg_coding c;
        inagg_coding_init(&c, INAGG_FLOAT32, INAGG_SUM, size, scale, 0);
        return c;
    }
    std::vector<uint32_t> random_words(size_t count) {
        std::vector<uint32_t> words(count);
        for (uint32_t &word : words)
            word = static_cast<uint32_t>(random());
        return words;
    }
    // Where rounding and clamping change, around 2^-@point and what @bias bounds.
    static std::vector<uint32_t> edges(uint8_t scale) {
        std::vector<uint32_t> words = {0,          0x80000000, 1,          0x80000001, 0x007fffff, 0x00800000,
                                       0x7f7fffff, 0xff7fffff, 0x7f800000, 0xff800000, 0x7fc00000, 0xffc00000};
        for (int exponent = scale - 34; exponent <= scale + 2; exponent++)
            for (const uint32_t mantissa : {0U, 1U, 2U, 0x3fffffU, 0x400000U, 0x400001U, 0x7ffffeU, 0x7fffffU})
                if (exponent >= 0 && exponent < 255)
                    for (const uint32_t sign : {0U, 0x80000000U})
                        words.push_back(sign | static_cast<uint32_t>(exponent) << 23 | mantissa);
        return words;
    }
    void compare(const inagg_coding &c, const std::vector<uint32_t> &in, uint32_t size) {
        const auto count = static_cast<uint32_t>(in.size());
        std::vector<uint32_t> want(inagg_padded(count)), got(want.size());
        const bool saturated = inagg_encode_block(&c, in.data(), want.data(), count);
        ASSERT_EQ(inagg_to_wire(&c, in.data(), got.data(), count) != 0, saturated) << "point " << c.point;
        for (size_t i = 0; i < want.size(); i++)
            ASSERT_EQ(got[i], want[i]) << std::hex << in[std::min<size_t>(i, count - 1)] << " point " << c.point;
        std::vector<uint32_t> back = in, there = in;
        inagg_decode_block(&c, in.data(), back.data(), count, size);
        inagg_from_wire(&c, there.data(), count, size);
        for (size_t i = 0; i < count; i++)
            ASSERT_EQ(there[i], back[i]) << std::hex << in[i] << " point " << c.point;
    }

    std::mt19937 random;
};

TEST_P(ConvertTest, VectorsGiveTheSameBits) {
    for (const uint32_t size : {1, 2, 3, 8, 64})
        for (int scale = 0; scale < 255; scale++) {
            const inagg_coding c = coding(size, static_cast<uint8_t>(scale));
            compare(c, edges(static_cast<uint8_t>(scale)), size);
            compare(c, random_words(1 + random() % 200), size);
        }
    EXPECT_STREQ(mock_complaints(), "");
}

TEST_P(ConvertTest, OneElementTooLargeShowsWhereverItIs) {
    const inagg_coding c = coding(4, 127);
    for (uint32_t at = 0; at < 100; at++) {
        std::vector<uint32_t> in(100, 0x3f000000), out(128);
        EXPECT_FALSE(inagg_to_wire(&c, in.data(), out.data(), 100));
        in[at] = 0x42000000;
        EXPECT_TRUE(inagg_to_wire(&c, in.data(), out.data(), 100)) << at;
    }
}

TEST_P(ConvertTest, LargestMagnitudeIsSeenWhereverItIs) {
    for (const uint32_t largest : {1U, 0x3f800001U, 0x7f7fffffU, 0x7f800000U, 0x7fffffffU})
        for (const uint32_t sign : {0U, 0x80000000U})
            for (uint32_t at = 0; at < 100; at++) {
                std::vector<uint32_t> in(100, 0x80000000);
                in[at] = largest | sign;
                EXPECT_EQ(inagg_magnitude(in.data(), 100, INAGG_FLOAT32, 0), largest) << at;
                EXPECT_EQ(inagg_magnitude(in.data(), at, INAGG_FLOAT32, 0), 0U) << at;
                EXPECT_EQ(inagg_magnitude(in.data(), 100, INAGG_FLOAT32, 0x7fffffff), 0x7fffffffU) << at;
            }
    const std::vector<uint16_t> halves(100, 0xc000);
    EXPECT_EQ(inagg_magnitude(halves.data(), 100, INAGG_BFLOAT16, 0), 0x4000U);
}

INSTANTIATE_TEST_SUITE_P(, ConvertTest, testing::Values("Integers", "SSE2", "AVX2"), [](const auto &info) { return info.param; });

#ifdef __x86_64__
TEST(ConvertInitTest, TakesOnlyWhatTasksKeep) {
    World world;
    const std::string widest = mock_has_avx2() ? "AVX2" : "SSE2";
    EXPECT_EQ(inagg_convert_init(), widest);
    mock_set_avx2(true, false);
    EXPECT_STREQ(inagg_convert_init(), "SSE2") << "the kernel does not save its registers";
    mock_set_avx2(false, true);
    EXPECT_STREQ(inagg_convert_init(), "SSE2");
    mock_set_avx2(true, true);
    ASSERT_EQ(mock_load(), 0);
    EXPECT_NE(std::string(mock_printed()).find("float32 by " + widest), std::string::npos) << mock_printed();
    mock_unload();
}
#endif

} // namespace kmod
