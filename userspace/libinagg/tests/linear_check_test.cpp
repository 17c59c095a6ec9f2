// SPDX-License-Identifier: BSD-2-Clause
// What the linear check of a sum catches.
#include "error.hpp"
#include "linear_check.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <random>
#include <vector>

namespace inagg {
namespace {

constexpr char key[] = "000102030405060708090a0b0c0d0e0f", other_key[] = "000102030405060708090a0b0c0d0e0e";
constexpr uint16_t size = 5, elements = 96, own_elements = elements - INAGG_CHECK_ELEMENTS;
constexpr uint32_t blocks = 64;
#ifdef __SANITIZE_ADDRESS__
constexpr int injections = 50'000;
#else
constexpr int injections = 1'000'000;
#endif

using Words = std::vector<uint32_t>;

std::byte *bytes(Words &words) { return reinterpret_cast<std::byte *>(words.data()); }
const std::byte *bytes(const Words &words) { return reinterpret_cast<const std::byte *>(words.data()); }

std::unique_ptr<LinearCheck> check_of(uint16_t rank, const char *hex = key, uint32_t nonce = 1, uint16_t ranks = size) {
    JobConfig job{};
    job.job = 7;
    job.rank = rank;
    job.size = ranks;
    job.elements = elements;
    auto check = std::make_unique<LinearCheck>(LinearCheck::parse_key(hex), job);
    check->begin(Words(ranks * INAGG_CHECK_NONCE_WORDS, nonce));
    return check;
}

inagg_check_block block_of(uint64_t call, uint64_t context = 0, uint8_t phase = 1, uint32_t index = 0) {
    return {call, context, index, phase};
}

BlockMeta meta_of(uint8_t dtype_op, uint64_t contributors = inagg_all_ranks(size)) {
    BlockMeta meta{};
    meta.dtype_op = dtype_op;
    meta.elements = elements;
    meta.contributors = contributors;
    return meta;
}

constexpr uint8_t int32_sum = INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM, fixed_sum = INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_SUM;

// What the ranks send in some blocks, all that can be on its way at once.
class Job {
public:
    explicit Job(uint8_t dtype_op) : meta(meta_of(dtype_op)) {
        const uint32_t limit = UINT32_MAX / size;
        for (uint16_t rank = 0; rank < size; rank++) {
            const auto check = check_of(rank);
            for (uint32_t block = 0; block < blocks; block++) {
                Words words(elements);
                std::generate_n(words.begin(), own_elements, [&] { // sums fit
                    return dtype_op == int32_sum ? static_cast<uint32_t>(static_cast<int32_t>(random()) / size)
                                                 : static_cast<uint32_t>(random() % limit);
                });
                check->seal(identify(block), meta, bytes(words), 0);
                sent_[block][rank] = words;
            }
        }
    }

    static inagg_check_block identify(uint32_t block) { return block_of(block); }
    const Words &sent(uint32_t block, uint32_t rank) const { return sent_[block][rank]; }
    Words sum(uint32_t block) const {
        Words sum(elements);
        for (const Words &words : sent_[block])
            add(sum, words, 1);
        return sum;
    }
    static void add(Words &to, const Words &words, uint32_t times) {
        for (uint32_t i = 0; i < elements; i++)
            to[i] += words[i] * times;
    }
    uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random() % limit); }

    const BlockMeta meta;
    std::mt19937_64 random{3};

private:
    Words sent_[blocks][size];
};

bool same_elements(const Words &a, const Words &b) { return std::equal(a.begin(), a.begin() + own_elements, b.begin()); }

// Changes the sum of a block, or what is said of it.
using Fault = std::function<void(Job &, uint32_t block, Words &sum, BlockMeta &meta)>;

const std::pair<const char *, Fault> faults[] = {
    {"a bit", [](Job &job, uint32_t, Words &sum, BlockMeta &) { sum[job.below(own_elements)] ^= 1U << job.below(32); }},
    {"two bits that cancel in the plain sum",
     [](Job &job, uint32_t, Words &sum, BlockMeta &) {
         const uint32_t at = job.below(own_elements - 1), bit = 1U << job.below(32);
         sum[at] += bit;
         sum[at + 1 + job.below(own_elements - at - 1)] -= bit;
     }},
    {"doubled", [](Job &job, uint32_t block, Words &sum, BlockMeta &) { Job::add(sum, job.sent(block, job.below(size)), 1); }},
    {"dropped",
     [](Job &job, uint32_t block, Words &sum, BlockMeta &) { Job::add(sum, job.sent(block, job.below(size)), UINT32_MAX); }},
    {"of another block",
     [](Job &job, uint32_t block, Words &sum, BlockMeta &) {
         const uint32_t rank = job.below(size);
         Job::add(sum, job.sent(block, rank), UINT32_MAX);
         Job::add(sum, job.sent((block + 1 + job.below(blocks - 1)) % blocks, rank), 1);
     }},
    {"of another rank",
     [](Job &job, uint32_t block, Words &sum, BlockMeta &) {
         const uint32_t rank = job.below(size);
         Job::add(sum, job.sent(block, rank), UINT32_MAX);
         Job::add(sum, job.sent(block, (rank + 1 + job.below(size - 1)) % size), 1);
     }},
    {"of one who does not know the key",
     [](Job &job, uint32_t block, Words &sum, BlockMeta &meta) {
         static const auto forger = check_of(1, other_key);
         Words forged(elements, job.below(1000));
         forger->seal(Job::identify(block), meta, bytes(forged), 0);
         Job::add(sum, job.sent(block, 1), UINT32_MAX);
         Job::add(sum, forged, 1);
     }},
    {"of an earlier run",
     [](Job &job, uint32_t block, Words &sum, BlockMeta &meta) {
         static const auto earlier = check_of(1, key, 2);
         Words forged(elements, job.below(1000));
         earlier->seal(Job::identify(block), meta, bytes(forged), 0);
         Job::add(sum, job.sent(block, 1), UINT32_MAX);
         Job::add(sum, forged, 1);
     }},
    {"the sum of another block",
     [](Job &job, uint32_t block, Words &sum, BlockMeta &) { sum = job.sum((block + 1 + job.below(blocks - 1)) % blocks); }},
};

class Check : public testing::TestWithParam<uint8_t> {};
INSTANTIATE_TEST_SUITE_P(Types, Check, testing::Values(int32_sum, fixed_sum),
                         [](const auto &info) { return info.param == int32_sum ? "Int32" : "Fixed32"; });

TEST_P(Check, CatchesWhatChangesASum) {
    Job job(GetParam());
    const auto check = check_of(2);
    for (const auto &[name, inject] : faults) {
        int passed = 0;
        for (int i = 0; i < injections / int{std::size(faults)} / 2; i++) {
            const uint32_t block = job.below(blocks);
            const Words truth = job.sum(block);
            Words sum = truth;
            BlockMeta meta = job.meta;
            inject(job, block, sum, meta);
            ASSERT_FALSE(same_elements(sum, truth)) << name << ": without the check it goes through, or is none";
            passed += check->holds(Job::identify(block), meta, bytes(sum), INAGG_CHECK_UNSCALED);
        }
        EXPECT_EQ(passed, 0) << name;
    }
}

TEST_P(Check, HoldsForSumsOfSomeRanks) {
    Job job(GetParam());
    const auto check = check_of(0);
    for (uint64_t contributors = 1; contributors < uint64_t{1} << size; contributors++) {
        Words sum(elements);
        for (uint32_t rank = 0; rank < size; rank++)
            if (contributors >> rank & 1)
                Job::add(sum, job.sent(3, rank), 1);
        for (uint64_t named = 1; named < uint64_t{1} << size; named++) {
            BlockMeta meta = meta_of(GetParam(), named);
            EXPECT_EQ(check->holds(Job::identify(3), meta, bytes(sum), INAGG_CHECK_UNSCALED), named == contributors);
        }
    }
}

TEST_P(Check, IsOfItsStreamTypeAndScale) {
    Job job(GetParam());
    const auto check = check_of(0);
    const Words sum = job.sum(1);
    BlockMeta meta = job.meta;
    EXPECT_TRUE(check->holds(block_of(1), meta, bytes(sum), INAGG_CHECK_UNSCALED));
    EXPECT_FALSE(check->holds(block_of(1, 0, 0), meta, bytes(sum), INAGG_CHECK_UNSCALED));
    EXPECT_FALSE(check->holds(block_of(1, 0, 1, 9), meta, bytes(sum), INAGG_CHECK_UNSCALED));
    EXPECT_FALSE(check->holds(block_of(1, 9), meta, bytes(sum), INAGG_CHECK_UNSCALED));
    meta.scale = 1;
    EXPECT_FALSE(check->holds(block_of(1), meta, bytes(sum), INAGG_CHECK_UNSCALED));
    meta = job.meta;
    meta.dtype_op ^= int32_sum ^ fixed_sum;
    EXPECT_FALSE(check->holds(block_of(1), meta, bytes(sum), INAGG_CHECK_UNSCALED));
    for (const uint16_t wrong : {0, INAGG_CHUNK, elements + INAGG_CHUNK}) {
        meta = job.meta;
        meta.elements = wrong;
        Words longer = sum;
        longer.resize(2 * elements);
        EXPECT_FALSE(check->holds(block_of(1), meta, bytes(longer), INAGG_CHECK_UNSCALED));
    }
}

// Sums whose ranks say this of their scale.
bool scale_holds(const Words &said, inagg_check_scale scale, uint8_t next_scale = 0,
                 uint64_t contributors = inagg_all_ranks(size)) {
    Words sum(elements);
    for (uint16_t rank = 0; rank < size; rank++) {
        Words words(elements, rank);
        check_of(rank)->seal(block_of(0), meta_of(fixed_sum), bytes(words), said[rank]);
        if (contributors >> rank & 1)
            Job::add(sum, words, 1);
    }
    BlockMeta meta = meta_of(fixed_sum, contributors);
    meta.next_scale = next_scale; // meta.scale is 0
    return check_of(0)->holds(block_of(0), meta, bytes(sum), scale);
}

TEST(CheckOfScales, NobodyChoosesTheScale) {
    constexpr uint32_t fits = INAGG_CHECK_FITS, too_small = INAGG_CHECK_TOO_SMALL;
    EXPECT_TRUE(scale_holds({0, 0, fits, 0, 0}, INAGG_CHECK_AGREED));
    EXPECT_TRUE(scale_holds({fits, fits, fits, fits, fits}, INAGG_CHECK_AGREED));
    EXPECT_FALSE(scale_holds({0, 0, 0, 0, 0}, INAGG_CHECK_AGREED)) << "too large for all";
    EXPECT_FALSE(scale_holds({fits, 0, too_small, 0, 0}, INAGG_CHECK_AGREED));
    EXPECT_TRUE(scale_holds({0, fits, 0, 0, 0}, INAGG_CHECK_AGREED, 0, 0b11101)) << "who has the largest element may be late";
    EXPECT_TRUE(scale_holds({0, 0, too_small, 0, 0}, INAGG_CHECK_UNSCALED)) << "fixed by hand: it is told as saturation";
    EXPECT_TRUE(scale_holds({0, 0, fits, 0, 0}, INAGG_CHECK_GUESSED, 0));
    EXPECT_FALSE(scale_holds({0, 0, fits, 0, 0}, INAGG_CHECK_GUESSED, 9)) << "it was right, and the result says no";
    EXPECT_FALSE(scale_holds({0, fits, too_small, 0, 0}, INAGG_CHECK_GUESSED, 0)) << "it was wrong, and the result says yes";
    EXPECT_TRUE(scale_holds({0, fits, too_small, 0, 0}, INAGG_CHECK_GUESSED, 9));
    EXPECT_FALSE(scale_holds({0, 0, 0, 0, 0}, INAGG_CHECK_GUESSED, 0));
}

TEST(CheckOfKeys, AreHexadecimal) {
    EXPECT_NO_THROW(LinearCheck::parse_key("00112233445566778899aAbBcCdDeEfF"));
    for (const char *wrong : {"", "0", "00112233445566778899aabbccddeef", "00112233445566778899aabbccddeefff",
                              "00112233445566778899aabbccddeefg", "0x112233445566778899aabbccddeeff"})
        EXPECT_THROW(LinearCheck::parse_key(wrong), Error) << wrong;
}

TEST(CheckOfOne, Works) {
    const auto check = check_of(0, key, 1, 1);
    Words words(elements, 5);
    BlockMeta meta = meta_of(int32_sum, 1);
    check->seal(block_of(9), meta, bytes(words), 0);
    EXPECT_TRUE(check->holds(block_of(9), meta, bytes(words), INAGG_CHECK_UNSCALED));
    words[0]++;
    EXPECT_FALSE(check->holds(block_of(9), meta, bytes(words), INAGG_CHECK_UNSCALED));
}

// The vector code and the core's agree, at any alignment and length.
TEST(CheckOfOne, IsWhatTheCoreSays) {
    std::mt19937 random(1);
    Words memory(2 * elements);
    std::generate(memory.begin(), memory.end(), std::ref(random));
    const auto check = check_of(0, key, 1, 1);
    for (const uint8_t dtype_op : {int32_sum, fixed_sum})
        for (uint16_t count = INAGG_CHUNK; count <= elements; count += INAGG_CHUNK)
            for (const std::size_t shift : {0, 1, 4}) {
                std::byte *at = bytes(memory) + shift;
                BlockMeta meta = meta_of(dtype_op, 1);
                meta.elements = count;
                check->seal(block_of(0), meta, at, 0);
                const uint64_t sealed = inagg_check_of_limbs(at + 4 * (count - INAGG_CHECK_LIMBS));
                std::vector<std::byte> zeros(std::size_t{4} * count);
                check->seal(block_of(0), meta, zeros.data(), 0);
                const uint64_t mask = inagg_check_of_limbs(zeros.data() + 4 * (count - INAGG_CHECK_LIMBS));
                uint64_t sum = 0; // weights are what single ones weigh
                for (int i = 0; i < count - INAGG_CHECK_ELEMENTS; i++) {
                    std::vector<std::byte> one(zeros.size());
                    one[std::size_t{4} * i] = std::byte{1};
                    check->seal(block_of(0), meta, one.data(), 0);
                    const auto weight =
                        static_cast<uint32_t>(inagg_check_of_limbs(one.data() + 4 * (count - INAGG_CHECK_LIMBS)) - mask);
                    sum += inagg_check_dot(at + std::size_t{4} * i, &weight, 1, dtype_op == int32_sum);
                }
                EXPECT_EQ(sealed - mask, sum);
            }
}

} // namespace
} // namespace inagg
