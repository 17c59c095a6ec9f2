// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/types.h>
#include <inagg/inagg.h>
#include <inagg/reason.h>
#include <inagg/wire.h>

#include <gtest/gtest.h>

#include <set>
#include <string>

extern "C" int headers_in_c(void);

TEST(Headers, CompileAndRunAsC) { EXPECT_EQ(headers_in_c(), 4); }

TEST(Types, SerialNumbersWrap) {
    EXPECT_TRUE(inagg_before(0, 1));
    EXPECT_FALSE(inagg_before(1, 1));
    EXPECT_FALSE(inagg_before(2, 1));
    EXPECT_TRUE(inagg_before(0xffffffff, 0));
    EXPECT_TRUE(inagg_before(0xffffff00, 0x10));
    EXPECT_FALSE(inagg_before(0x10, 0xffffff00));
}

TEST(Types, RankBitmaps) {
    EXPECT_EQ(inagg_all_ranks(1), 1u);
    EXPECT_EQ(inagg_all_ranks(2), 3u);
    EXPECT_EQ(inagg_all_ranks(63), ~0ULL >> 1);
    EXPECT_EQ(inagg_all_ranks(64), ~0ULL);
    __u64 all = 0;
    for (__u32 rank = 0; rank < INAGG_MAX_RANKS; rank++) {
        all |= inagg_rank_bit(rank);
        EXPECT_EQ(all, inagg_all_ranks(rank + 1));
    }
}

TEST(Types, SwapIsNetworkOrder) {
    const unsigned char wire[] = {0x12, 0x34, 0x56, 0x78};
    __u32 word;
    __builtin_memcpy(&word, wire, 4);
    EXPECT_EQ(inagg_swap32(word), 0x12345678u);
    EXPECT_EQ(inagg_swap16(inagg_swap16(__u16{0x1234})), 0x1234);
}

TEST(Wire, VersionTypeDtypeAndOperatorShareBytes) {
    inagg_hdr h{};
    h.version_type = INAGG_WIRE_VERSION << 4 | INAGG_RESTORE;
    h.dtype_op = INAGG_WIRE_INT32 << 4 | INAGG_WIRE_MAX;
    EXPECT_EQ(inagg_hdr_version(&h), 1);
    EXPECT_EQ(inagg_hdr_type(&h), INAGG_RESTORE);
    EXPECT_EQ(inagg_hdr_dtype(&h), INAGG_WIRE_INT32);
    EXPECT_EQ(inagg_hdr_op(&h), INAGG_WIRE_MAX);
}

TEST(Wire, ElementBytes) {
    EXPECT_EQ(inagg_element_bytes(INAGG_WIRE_NONE), 0u);
    for (__u8 dtype : {INAGG_WIRE_INT32, INAGG_WIRE_FIXED32, INAGG_WIRE_FLOAT32})
        EXPECT_EQ(inagg_element_bytes(dtype), 4u);
    for (__u8 dtype : {INAGG_WIRE_FLOAT16, INAGG_WIRE_BFLOAT16})
        EXPECT_EQ(inagg_element_bytes(dtype), 2u);
    for (__u8 dtype = INAGG_WIRE_DTYPES; dtype < 16; dtype++)
        EXPECT_EQ(inagg_element_bytes(dtype), 0u);
}

// 352 elements fill an IPv4 packet of 1,500 bytes.
TEST(Wire, FullPacketFitsEthernet) { EXPECT_EQ(20 + 8 + sizeof(inagg_hdr) + 352 * 4, 1500u); }

TEST(Reason, NumbersAreDenseUniqueAndFitTheirCounters) {
    std::set<int> numbers;
    std::set<std::string> names, texts;
#define COLLECT(number, name, text)                                                                                              \
    numbers.insert(number);                                                                                                      \
    names.insert(#name);                                                                                                         \
    texts.insert(text);
    INAGG_REASONS(COLLECT)
#undef COLLECT
    EXPECT_EQ(numbers.size(), size_t{INAGG_R_COUNT});
    EXPECT_EQ(names.size(), numbers.size());
    EXPECT_EQ(texts.size(), numbers.size());
    EXPECT_EQ(*numbers.rbegin(), INAGG_R_COUNT - 1);
    EXPECT_LE(INAGG_R_COUNT, INAGG_R_CAPACITY);
}
