// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/checksum.h>

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>
#include <vector>

namespace {

inagg_hdr random_header(std::mt19937_64 &random) {
    std::array<__u64, sizeof(inagg_hdr) / 8> words;
    for (__u64 &word : words)
        word = random();
    inagg_hdr h;
    std::memcpy(&h, words.data(), sizeof h);
    return h;
}

// RFC 1071 as its text says: 16-bit words in network order, carries folded in, byte by byte.
__u16 reference_sum(const inagg_hdr &h) {
    unsigned char bytes[sizeof h];
    std::memcpy(bytes, &h, sizeof h);
    __u32 sum = 0;
    for (size_t i = 0; i < sizeof h; i += 2)
        sum += bytes[i] << 8 | bytes[i + 1];
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return inagg_swap16(static_cast<__u16>(sum));
}

} // namespace

TEST(HeaderChecksum, AgreesWithRfc1071) {
    std::mt19937_64 random(1);
    for (int i = 0; i < 10000; i++) {
        inagg_hdr h = random_header(random);
        h.checksum = 0;
        const __u16 expected = static_cast<__u16>(~reference_sum(h));
        inagg_hdr_seal(&h);
        ASSERT_EQ(h.checksum, expected);
        ASSERT_TRUE(inagg_hdr_intact(&h));
    }
}

// Fields are written just before the seal: the compiler must not move those stores behind the sum.
TEST(HeaderChecksum, SealSeesTheFieldsWrittenBeforeIt) {
    for (__u32 i = 0; i < 1000; i++) {
        inagg_hdr h{};
        h.checksum = 0x5555;
        h.block = inagg_swap32(i);
        h.slot = inagg_swap32(i * 7);
        h.contributors = ~0ULL - i;
        h.scale = static_cast<__u8>(i);
        inagg_hdr_seal(&h);
        ASSERT_EQ(reference_sum(h), 0xffff) << i;
    }
}

TEST(HeaderChecksum, SeesEverySingleBit) {
    std::mt19937_64 random(2);
    for (int i = 0; i < 100; i++) {
        inagg_hdr h = random_header(random);
        inagg_hdr_seal(&h);
        for (size_t bit = 0; bit < sizeof h * 8; bit++) {
            unsigned char bytes[sizeof h];
            std::memcpy(bytes, &h, sizeof h);
            bytes[bit / 8] ^= 1 << bit % 8;
            inagg_hdr flipped;
            std::memcpy(&flipped, bytes, sizeof h);
            ASSERT_FALSE(inagg_hdr_intact(&flipped)) << "bit " << bit;
        }
    }
}

TEST(HeaderChecksum, FoldHandlesCarriesOutOfCarries) {
    EXPECT_EQ(inagg_fold16(0), 0);
    EXPECT_EQ(inagg_fold16(0xffff), 0xffff);
    EXPECT_EQ(inagg_fold16(0x10000), 1);
    EXPECT_EQ(inagg_fold16(0xffffffff), 0xffff);
    EXPECT_EQ(inagg_fold16(16ULL * 0xffffffff), 0xffff);
    EXPECT_EQ(inagg_fold16(~0ULL), 0xffff);
}

TEST(PayloadChecksum, SeesEverySingleBitOfALargestPayload) {
    std::mt19937_64 random(3);
    std::vector<unsigned char> payload(INAGG_MAX_PAYLOAD);
    for (unsigned char &byte : payload)
        byte = static_cast<unsigned char>(random());
    const auto bytes = static_cast<__u32>(payload.size());
    const __u32 sum = inagg_payload_checksum(payload.data(), bytes);
    for (size_t bit = 0; bit < payload.size() * 8; bit++) {
        payload[bit / 8] ^= 1 << bit % 8;
        ASSERT_NE(inagg_payload_checksum(payload.data(), bytes), sum) << "bit " << bit;
        payload[bit / 8] ^= 1 << bit % 8;
    }
}

TEST(PayloadChecksum, NeedsNoAlignmentAndMatchesTheWordWise) {
    unsigned char buffer[8 * 32 + 1];
    for (size_t i = 0; i < sizeof buffer; i++)
        buffer[i] = static_cast<unsigned char>(i * 37);
    std::vector<unsigned char> aligned(buffer + 1, buffer + sizeof buffer);
    inagg_digest digest{};
    for (size_t i = 0; i < aligned.size(); i += 8) {
        __u64 word;
        std::memcpy(&word, &aligned[i], 8);
        inagg_digest_add(&digest, word);
    }
    EXPECT_EQ(inagg_payload_checksum(buffer + 1, 8 * 32), inagg_digest_fold(&digest));
    EXPECT_EQ(inagg_payload_checksum(buffer, 0), 0u);
}

TEST(PayloadChecksum, SeesAnyChangeOfOneWord) {
    std::mt19937_64 random(4);
    std::vector<__u32> words(64);
    for (int i = 0; i < 10000; i++) {
        for (__u32 &word : words)
            word = static_cast<__u32>(random());
        const __u32 sum = inagg_payload_checksum(words.data(), 256);
        const size_t at = random() % words.size();
        const __u32 was = words[at];
        words[at] = static_cast<__u32>(random());
        if (words[at] != was) {
            ASSERT_NE(inagg_payload_checksum(words.data(), 256), sum);
        }
    }
}

// What a plain sum misses: a flip up and a flip down in one bit column.
TEST(PayloadChecksum, SeesFlipsThatCancelInASum) {
    std::mt19937_64 random(5);
    for (int i = 0; i < 100000; i++) {
        std::vector<__u64> words(176);
        for (__u64 &word : words)
            word = random();
        const __u64 bit = 1ULL << random() % 64;
        const size_t a = random() % words.size(), b = random() % words.size();
        if (a == b || !(words[a] & bit) == !(words[b] & bit))
            continue;
        const __u32 sum = inagg_payload_checksum(words.data(), 1408);
        words[a] ^= bit;
        words[b] ^= bit;
        ASSERT_NE(inagg_payload_checksum(words.data(), 1408), sum);
    }
}

TEST(PayloadChecksum, CoversTheHeader) {
    inagg_hdr header{};
    auto *bytes = reinterpret_cast<unsigned char *>(&header);
    for (size_t i = 0; i < sizeof header; i++)
        bytes[i] = static_cast<unsigned char>(i * 73);
    inagg_hdr_seal_checked(&header, 4711);
    ASSERT_TRUE(inagg_packet_intact(&header, 4711));
    EXPECT_FALSE(inagg_packet_intact(&header, 4712));
    for (size_t bit = 0; bit < 8 * sizeof header; bit++) {
        if (bit / 8 == 42 || bit / 8 == 43)
            continue; // the header's own checksum
        bytes[bit / 8] ^= 1 << bit % 8;
        EXPECT_FALSE(inagg_packet_intact(&header, 4711)) << "bit " << bit;
        bytes[bit / 8] ^= 1 << bit % 8;
    }
}
