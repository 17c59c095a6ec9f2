// SPDX-License-Identifier: BSD-2-Clause
#include <inagg/core/merge.h>
#include <inagg/wire.h>

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <string>

namespace {

// What is carried: a term of the sum, written out.
std::string plus(const std::string &a, const std::string &b) { return "(" + a + "+" + b + ")"; }

// The sum of the leaves [first, first + 2^level) that there are.
std::string tree(uint32_t first, uint32_t level, uint32_t children) {
    if (level == 0)
        return std::to_string(first);
    const uint32_t right = first + (1u << (level - 1));
    const std::string left = tree(first, level - 1, children);
    return right < children ? plus(left, tree(right, level - 1, children)) : left;
}

// One block of a switch with so many children, each of whose elements climb as far as they get.
struct Block {
    uint32_t children;
    inagg_merge merge{};
    std::map<uint32_t, std::string> buffers{}; // in use

    // The sum, if this was the last.
    std::string arrive(uint32_t leaf) {
        inagg_climber climber{leaf, 0};
        std::string carried = std::to_string(leaf);
        for (;;) {
            uint32_t buffer = ~0u;
            const uint32_t before = climber.first;
            switch (inagg_merge_climb(&merge, &climber, children, &buffer)) {
            case INAGG_CLIMB_DONE:
                return carried;
            case INAGG_CLIMB_WAIT:
                EXPECT_TRUE(buffers.emplace(buffer, carried).second) << "buffer " << buffer << " is in use";
                EXPECT_LT(buffer, inagg_merge_buffers(children));
                return "";
            default: {
                const auto taken = buffers.extract(buffer);
                EXPECT_FALSE(taken.empty()) << "nothing waits in buffer " << buffer;
                carried = before == climber.first ? plus(carried, taken.mapped()) : plus(taken.mapped(), carried);
            }
            }
        }
    }
};

} // namespace

TEST(Merge, EveryOrderOfFewGivesTheSameSum) {
    for (uint32_t children = 1; children <= 7; children++) {
        std::vector<uint32_t> order(children);
        std::iota(order.begin(), order.end(), 0);
        const std::string sum = tree(0, INAGG_MERGE_LEVELS, children);
        do {
            Block block{children};
            for (uint32_t i = 0; i + 1 < children; i++)
                ASSERT_EQ(block.arrive(order[i]), "");
            ASSERT_EQ(block.arrive(order.back()), sum);
            ASSERT_TRUE(block.buffers.empty());
            ASSERT_EQ(block.merge.waiting, 0u);
        } while (std::next_permutation(order.begin(), order.end()));
    }
}

TEST(Merge, ManyOrdersOfMany) {
    std::mt19937 random(1);
    for (uint32_t children = 8; children <= INAGG_MAX_RANKS; children++) {
        std::vector<uint32_t> order(children);
        std::iota(order.begin(), order.end(), 0);
        for (int i = 0; i < 50; i++) {
            std::shuffle(order.begin(), order.end(), random);
            Block block{children};
            std::string sum;
            for (const uint32_t leaf : order)
                sum = block.arrive(leaf);
            ASSERT_EQ(sum, tree(0, INAGG_MERGE_LEVELS, children));
        }
    }
}

TEST(Merge, ThoseOfOddNumberWaitInAsManyBuffersAsThereAre) {
    Block block{8};
    for (const uint32_t leaf : {1, 3, 5, 7})
        EXPECT_EQ(block.arrive(leaf), "");
    EXPECT_EQ(block.buffers.size(), inagg_merge_buffers(8));
}

TEST(Merge, WhoseSiblingWaitsNeedsNoBuffer) {
    inagg_merge merge{};
    const auto waits = [&](uint32_t leaf) { return inagg_merge_waits(&merge, leaf, 7) != 0; };
    const auto arrive = [&](uint32_t leaf) {
        inagg_climber c{leaf, 0};
        uint32_t buffer;
        while (inagg_merge_climb(&merge, &c, 7, &buffer) == INAGG_CLIMB_ADD) {
        }
    };
    EXPECT_FALSE(waits(0)) << "in the slot itself";
    EXPECT_FALSE(waits(1));
    EXPECT_TRUE(waits(4));
    EXPECT_TRUE(waits(6)) << "for the sum of 4 and 5";
    arrive(4);
    EXPECT_FALSE(waits(5));
    EXPECT_TRUE(waits(6));
    arrive(5);
    EXPECT_FALSE(waits(6));
}

TEST(Merge, AJobAddsTwiceAsManyBlocksAsItsCap) {
    EXPECT_TRUE(inagg_merge_allows(1, 1));
    EXPECT_FALSE(inagg_merge_allows(1, 2));
    EXPECT_TRUE(inagg_merge_allows(UINT16_MAX, 2 * UINT16_MAX - 1));
    EXPECT_FALSE(inagg_merge_allows(UINT16_MAX, 2 * UINT16_MAX));
    EXPECT_TRUE(inagg_merge_allows(0, UINT32_MAX)) << "no cap";
}
