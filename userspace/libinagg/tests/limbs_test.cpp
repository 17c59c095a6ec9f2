// SPDX-License-Identifier: BSD-2-Clause
#include "limbs.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace inagg {
namespace {

using Tensors = std::vector<std::vector<double>>; // one a rank
constexpr double infinity = std::numeric_limits<double>::infinity();

Reach reach_of_all(const Tensors &ranks) {
    Reach all;
    for (const auto &tensor : ranks) {
        const Reach own = reach_of<double>(tensor);
        all = {std::max(all.finest, own.finest), std::max(all.top, own.top), all.nonfinite | own.nonfinite};
    }
    return all;
}

// As a switch adds `count` limbs of each rank, which encode(tensor, limbs) makes. Its additions wrap; these need not.
template <typename T, typename Encode>
std::vector<int32_t> add_limbs(const std::vector<std::vector<T>> &ranks, std::size_t count, Encode encode) {
    std::vector<int64_t> sums(count);
    std::vector<int32_t> limbs(count);
    for (const auto &tensor : ranks) {
        encode(tensor, limbs.data());
        for (std::size_t i = 0; i < count; i++)
            sums[i] += limbs[i];
    }
    for (std::size_t i = 0; i < count; i++) {
        limbs[i] = static_cast<int32_t>(sums[i]);
        EXPECT_EQ(limbs[i], sums[i]) << "limb " << i << " overflows";
    }
    return limbs;
}

// As ranks and a switch do it.
std::vector<double> summed(const Tensors &ranks) {
    const auto how = Limbs::of(reach_of_all(ranks), static_cast<uint32_t>(ranks.size()));
    EXPECT_TRUE(how);
    const std::vector<int32_t> limbs = add_limbs(ranks, how->count * ranks[0].size(),
                                                 [&](const auto &tensor, int32_t *out) { to_limbs<double>(tensor, *how, out); });
    std::vector<double> out(ranks[0].size());
    from_limbs<double>(limbs.data(), *how, out);
    return out;
}

TEST(Limbs, SumsAreExactAndRoundedOnce) {
    std::mt19937_64 random(1);
    for (const uint32_t size : {1U, 2U, 3U, 5U, 8U, 33U, 64U}) {
        // 53 bits of mantissa and so many exponents fill the limbs to the last bit.
        const int exponents = static_cast<int>(Limbs::bits(size)) - 1 - 53;
        for (const int offset : {-1074, -1000, -60, 0, 900}) {
            Tensors ranks(size, std::vector<double>(50));
            for (auto &tensor : ranks)
                for (double &element : tensor) {
                    const int exponent = offset + static_cast<int>(random() % static_cast<unsigned>(exponents + 1));
                    const auto mantissa = static_cast<double>(random() >> 11 | 1);
                    element = std::ldexp(random() & 1 ? mantissa : -mantissa, exponent);
                }
            ranks[0][0] = std::ldexp(9007199254740991.0, offset + exponents); // the largest, and the finest
            ranks[0][1] = std::ldexp(1.0, offset);
            const std::vector<double> sums = summed(ranks);
            for (std::size_t i = 0; i < sums.size(); i++) {
                __float128 exact = 0; // of 113 bits
                for (const auto &tensor : ranks)
                    exact += static_cast<__float128>(tensor[i]);
                const auto expected = static_cast<double>(exact);
                if (Limbs::bits(size) + 6 <= 113) {
                    EXPECT_EQ(sums[i], expected) << size << " ranks, element " << i;
                } else {
                    EXPECT_NEAR(sums[i], expected, std::abs(expected) * 0x1p-52);
                }
            }
        }
    }
}

TEST(Limbs, CancellationLeavesWhatIsSmall) {
    EXPECT_EQ(summed({{0x1p60, 1}, {0x1p-30, 2}, {-0x1p60, -3}}), (std::vector<double>{0x1p-30, 0}));
}

TEST(Limbs, AsFewAsTheElementsNeed) {
    const auto count = [](const Tensors &ranks) { return Limbs::of(reach_of_all(ranks), 4)->count; };
    EXPECT_EQ(count({{0, -0.0}}), 0U);
    EXPECT_EQ(count({{3, -5, 0x1p27}}), 1U);
    EXPECT_EQ(count({{0x1.8p500}}), 1U);
    EXPECT_EQ(count({{1.0 / 3}}), 2U);
    EXPECT_EQ(count({{1.0 / 3, 1e10}}), 4U);
}

TEST(Limbs, MoreThanFourAreTooMany) {
    for (const uint32_t size : {1U, 2U, 4U, 64U}) {
        const auto bits = static_cast<int>(Limbs::bits(size)) - 1;
        EXPECT_TRUE(Limbs::of(reach_of<double>(std::vector{1.0, std::ldexp(0.5, bits)}), size));
        EXPECT_FALSE(Limbs::of(reach_of<double>(std::vector{1.0, std::ldexp(1.0, bits)}), size));
    }
    EXPECT_FALSE(Limbs::of(reach_of<double>(std::vector{0x1p-1074, 0x1p1023}), 2));
}

TEST(Limbs, IntegersWrapAsInt64) {
    std::mt19937_64 random(2);
    for (const uint32_t size : {1U, 2U, 7U, 64U}) {
        constexpr std::size_t count = 20;
        std::vector<uint64_t> exact(count);
        std::vector<uint32_t> sums(3 * count);
        Reach reach;
        reach.top = 64;
        reach.finest = 0;
        const Limbs how = *Limbs::of(reach, size);
        ASSERT_EQ(how.count, 3U);
        for (uint32_t rank = 0; rank < size; rank++) {
            std::vector<int64_t> tensor(count);
            for (std::size_t i = 0; i < count; i++)
                exact[i] += static_cast<uint64_t>(tensor[i] = static_cast<int64_t>(random()));
            tensor[0] = std::numeric_limits<int64_t>::min();
            exact[0] = uint64_t{size} << 63;
            std::vector<int32_t> limbs(sums.size());
            to_limbs<int64_t>(tensor, how, limbs.data());
            for (std::size_t i = 0; i < sums.size(); i++)
                sums[i] += static_cast<uint32_t>(limbs[i]);
        }
        std::vector<int64_t> out(count);
        from_limbs<int64_t>(reinterpret_cast<const int32_t *>(sums.data()), how, out);
        for (std::size_t i = 0; i < count; i++)
            EXPECT_EQ(static_cast<uint64_t>(out[i]), exact[i]);
    }
}

template <typename T> std::vector<T> summed_full(const std::vector<std::vector<T>> &ranks) {
    const auto size = static_cast<uint32_t>(ranks.size());
    const std::vector<int32_t> limbs = add_limbs(ranks, ranks[0].size() * full_limbs<T>(size),
                                                 [&](const auto &tensor, int32_t *out) { to_full_limbs<T>(tensor, size, out); });
    std::vector<T> out(ranks[0].size());
    from_full_limbs<T>(limbs.data(), size, out);
    return out;
}

TEST(Limbs, FullLimbsHaveAllDoubles) {
    constexpr double most = std::numeric_limits<double>::max(), least = 0x1p-1074;
    EXPECT_EQ(
        summed_full<double>(
            {{most, least, 1, most, 0x1p53, 0x1p53}, {-most, least, least, most, 1, -0.5}, {least, 0, 0, -most, least, -least}}),
        (std::vector<double>{least, 2 * least, 1, most, 0x1p53 + 2, 0x1p53 - 1}));
    EXPECT_EQ(summed_full<double>({{most, -most, infinity}, {most, -most, -1}}),
              (std::vector<double>{infinity, -infinity, infinity}));
    for (const uint32_t size : {1U, 64U})
        EXPECT_EQ(summed_full(Tensors(size, {-least, 0, most / 64})), (std::vector<double>{-least * size, 0, most / 64 * size}));
    EXPECT_LE(4 * full_limbs<double>(64), 352U); // four fit a packet of MTU 1500
}

// What fewer limbs sum exactly, too.
TEST(Limbs, FullLimbsAgreeWithFewer) {
    std::mt19937_64 random(3);
    for (const uint32_t size : {1U, 2U, 3U, 8U, 64U}) {
        const unsigned exponents = Limbs::bits(size) - 1 - 53;
        for (const int offset : {-1074, -500, 0, 800}) {
            Tensors ranks(size, std::vector<double>(200));
            for (auto &tensor : ranks)
                for (double &element : tensor)
                    element = std::ldexp(static_cast<double>(static_cast<int64_t>(random()) >> 11),
                                         offset + static_cast<int>(random() % exponents));
            EXPECT_EQ(summed_full(ranks), summed(ranks));
        }
    }
}

TEST(Limbs, FullLimbsHaveAllIntegers) {
    constexpr int64_t least = std::numeric_limits<int64_t>::min();
    EXPECT_EQ(summed_full<int64_t>({{least, 5, -1}, {least, -7, 1}, {-1, 0, 0}}), (std::vector<int64_t>{-1, -2, 0}));
    EXPECT_EQ(summed_full(std::vector(64, std::vector<int64_t>{least, -1})), (std::vector<int64_t>{0, -64}));
}

TEST(Limbs, ReachOfIntegers) {
    EXPECT_EQ(reach_of<int64_t>(std::vector<int64_t>{0, 0}), Reach{});
    EXPECT_EQ(reach_of<int64_t>(std::vector<int64_t>{12, -40}), (Reach{-2, 6, 0}));
    EXPECT_EQ(reach_of<int64_t>(std::vector<int64_t>{std::numeric_limits<int64_t>::min()}), (Reach{-63, 64, 0}));
}

TEST(Limbs, ClassesAreThoseOfIeeeAddition) {
    const std::vector<double> first{1, infinity, infinity, std::nan(""), -infinity}, second{2, 5, -infinity, 1, -infinity};
    std::vector<int32_t> one(5), other(5);
    to_classes(first, one.data());
    to_classes(second, other.data());
    for (std::size_t i = 0; i < 5; i++)
        one[i] += other[i];
    std::vector<double> sums{3, 5, 0, 1, 0};
    apply_classes(one.data(), sums);
    EXPECT_EQ(sums[0], 3);
    EXPECT_EQ(sums[1], infinity);
    EXPECT_TRUE(std::isnan(sums[2]));
    EXPECT_TRUE(std::isnan(sums[3]));
    EXPECT_EQ(sums[4], -infinity);
}

TEST(Limbs, OrderOfDoubles) {
    const std::vector<double> ascending{-infinity, -1e300, -1, -0x1p-1074, -0.0, 0.0, 0x1p-1074, 1, 1e300, infinity};
    for (std::size_t i = 0; i < ascending.size(); i++) {
        const int64_t own = to_ordered64(ascending[i], 0);
        EXPECT_EQ(std::bit_cast<int64_t>(from_ordered64<double>(own)), std::bit_cast<int64_t>(ascending[i]));
        if (i > 0) {
            EXPECT_LT(to_ordered64(ascending[i - 1], 0), own);
        }
    }
    for (const int64_t nan : {std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max()}) {
        EXPECT_EQ(to_ordered64(std::nan(""), nan), nan);
        EXPECT_TRUE(std::isnan(from_ordered64<double>(nan)));
    }
}

} // namespace
} // namespace inagg
