// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/checksum.h>
#include <inagg/core/mac.h>

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <random>

namespace {

// 00 01 02 ...
template <size_t size> constexpr std::array<unsigned char, size> counting() {
    std::array<unsigned char, size> bytes{};
    for (size_t i = 0; i < size; i++)
        bytes[i] = static_cast<unsigned char>(i);
    return bytes;
}

const inagg_mac_key key = inagg_mac_key_of(counting<INAGG_KEY_BYTES>().data());

struct Message {
    inagg_hdr header;
    inagg_join body;
};
static_assert(sizeof(Message) == sizeof(inagg_hdr) + sizeof(inagg_join));

Message random_message(unsigned seed) {
    std::mt19937 random(seed);
    Message m;
    std::array<unsigned char, sizeof m> bytes;
    for (unsigned char &byte : bytes)
        byte = static_cast<unsigned char>(random());
    std::memcpy(&m, bytes.data(), sizeof m);
    return m;
}

Message proven(unsigned seed) {
    Message m = random_message(seed);
    inagg_hdr_prove(&m.header, &m.body, &key);
    inagg_hdr_seal_checked(&m.header, inagg_body_checksum(&m.body));
    return m;
}

} // namespace

// Appendix A of the paper.
TEST(Mac, IsThatOfThePaper) { EXPECT_EQ(inagg_siphash(&key, counting<15>().data(), 15), 0xa129ca6149be45e5u); }

// The authors' program, vectors.h: lengths 0 to 8.
TEST(Mac, IsThatOfTheAuthorsProgram) {
    const __u64 tags[] = {0x726fdb47dd0e0e31, 0x74f839c593dc67fd, 0x0d6c8009d9a94f5a, 0x85676696d7fb7e2d, 0xcf2794e0277187b7,
                          0x18765564cd99a68d, 0xcbc9466e58fee3ce, 0xab0200f58b01d137, 0x93f5f5799a932462};
    for (__u32 bytes = 0; bytes < std::size(tags); bytes++)
        EXPECT_EQ(inagg_siphash(&key, counting<8>().data(), bytes), tags[bytes]) << bytes;
}

TEST(Mac, OfAMessageIsThatOfItsBytes) {
    Message m = random_message(1);
    const __u64 proof = inagg_proof(&key, &m.header, &m.body);
    m.header.checksum = 0;
    m.header.payload_checksum = 0;
    std::array<unsigned char, 56 + sizeof m.body> bytes; // up to the proof, and the body
    std::memcpy(bytes.data(), &m.header, 56);
    std::memcpy(bytes.data() + 56, &m.body, sizeof m.body);
    EXPECT_EQ(proof, inagg_siphash(&key, bytes.data(), bytes.size()));
}

TEST(Mac, HoldsOnceTheMessageIsSealed) {
    const Message m = proven(2);
    EXPECT_TRUE(inagg_hdr_is_proven(&m.header, &m.body, &key));
    EXPECT_TRUE(inagg_packet_intact(&m.header, inagg_body_checksum(&m.body)));
}

TEST(Mac, EachBitCounts) {
    const Message m = proven(3);
    for (size_t bit = 0; bit < 8 * sizeof m; bit++) {
        const size_t byte = bit / 8;
        const bool is_checksum = byte >= offsetof(inagg_hdr, checksum) && byte < offsetof(inagg_hdr, check);
        Message changed = m;
        reinterpret_cast<unsigned char *>(&changed)[byte] ^= static_cast<unsigned char>(1 << bit % 8);
        EXPECT_EQ(inagg_hdr_is_proven(&changed.header, &changed.body, &key), is_checksum) << bit;
    }
}

TEST(Mac, AnotherKeyProvesNothing) {
    const Message m = proven(4);
    for (int word : {0, 1}) {
        inagg_mac_key other = key;
        other.word[word] ^= 1;
        EXPECT_FALSE(inagg_hdr_is_proven(&m.header, &m.body, &other));
    }
}

TEST(Mac, ChallengeAndProofAreTheFieldCheck) {
    inagg_hdr h{};
    inagg_hdr_set_challenge(&h, 0x0123456789abcdef);
    EXPECT_EQ(inagg_hdr_challenge(&h), 0x0123456789abcdefu);
    EXPECT_EQ(inagg_hdr_proof(&h), 0u);
    const inagg_mac_key none{};
    EXPECT_FALSE(inagg_mac_key_is_set(&none));
    EXPECT_TRUE(inagg_mac_key_is_set(&key));
}
