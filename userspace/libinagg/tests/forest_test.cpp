// SPDX-License-Identifier: BSD-2-Clause
// Several trees share each tensor: what comes out is what one would have brought.
#include "ranks.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>

namespace inagg {
namespace {

constexpr uint16_t size = 3;

std::vector<int32_t> input_of(int rank, std::size_t count) {
    std::vector<int32_t> values(count);
    std::mt19937 random(static_cast<uint32_t>(rank * 1000 + count));
    std::generate(values.begin(), values.end(), [&] { return static_cast<int32_t>(random()) >> 4; });
    return values;
}

std::vector<int32_t> sum_of_all(std::size_t count) {
    std::vector<int32_t> sum(count);
    for (int rank = 0; rank < size; rank++) {
        const auto input = input_of(rank, count);
        std::transform(sum.begin(), sum.end(), input.begin(), sum.begin(), std::plus<>());
    }
    return sum;
}

// A job with a switch for each tree.
class Trees : public testing::TestWithParam<uint16_t> {
protected:
    explicit Trees(SoftwareSwitchOptions options = {.elements = 64, .loss = 0.02}) {
        for (uint16_t tree = 0; tree < GetParam(); tree++) {
            options.seed = tree + 1;
            switches.push_back(std::make_unique<SoftwareSwitch>(options));
            addresses += (tree ? "," : "") + switches.back()->address();
        }
    }
    void run(const std::function<void(Communicator &)> &body, const std::function<void(inagg_options &)> &change = {}) {
        run_ranks(addresses, size, body, [&](inagg_options &options) {
            options.trees = GetParam();
            if (change)
                change(options);
        });
    }

    std::vector<std::unique_ptr<SoftwareSwitch>> switches;
    std::string addresses;
};

INSTANTIATE_TEST_SUITE_P(Numbers, Trees, testing::Values(2, 3), testing::PrintToStringParamName());

TEST_P(Trees, SumsAreExactWhateverTheirSize) {
    run([](Communicator &c) {
        for (const std::size_t count : {1, 64, 65, 129, 193, 5000}) {
            std::vector<int32_t> data = input_of(c.rank(), count);
            c.wait(*c.allreduce(data.data(), data.data(), count, INAGG_INT32, INAGG_SUM));
            EXPECT_EQ(data, sum_of_all(count)) << count;
        }
    });
}

TEST_P(Trees, FloatsHaveTheSameBitsOnAllRanks) {
    std::vector<std::vector<float>> results(size);
    run([&](Communicator &c) {
        std::vector<float> data(3000);
        for (int round = 0; round < 6; round++) { // small ones too, whose scales are guessed
            const std::size_t count = round % 2 ? data.size() : 200;
            std::iota(data.begin(), data.end(), 0.1F * static_cast<float>(c.rank() + 1));
            c.wait(*c.allreduce(data.data(), data.data(), count, INAGG_FLOAT32, INAGG_SUM));
            EXPECT_NEAR(data[100], 300.6, 1e-4);
        }
        results[c.rank()] = data;
    });
    EXPECT_EQ(results[0], results[1]);
    EXPECT_EQ(results[0], results[2]);
}

TEST_P(Trees, EachHasItsShare) {
    run([](Communicator &c) {
        for (int i = 0; i < 12; i++) { // of one block each: they go round
            std::vector<int32_t> data = input_of(c.rank(), 64);
            c.wait(*c.allreduce(data.data(), data.data(), 64, INAGG_INT32, INAGG_SUM));
        }
        std::vector<int32_t> data = input_of(c.rank(), 64 * 60);
        const auto operation = c.allreduce(data.data(), data.data(), data.size(), INAGG_INT32, INAGG_SUM);
        c.wait(*operation);
        EXPECT_EQ(operation->blocks, 60U);
        EXPECT_EQ(operation->block_elements, 64U);
        EXPECT_EQ(c.stats().blocks, 72U);
    });
    for (const auto &tree : switches)
        EXPECT_EQ(tree->counters().completions, 72U / GetParam() + (tree == switches.front() ? leaving : 0));
}

TEST_P(Trees, ManyTensorsInFlight) {
    run([](Communicator &c) {
        std::vector<std::vector<int32_t>> data;
        std::vector<Communicator::Handle> handles;
        for (std::size_t i = 0; i < 8; i++) {
            data.push_back(input_of(c.rank(), 100 + 333 * i));
            handles.push_back(c.allreduce(data[i].data(), data[i].data(), data[i].size(), INAGG_INT32, INAGG_SUM));
        }
        for (std::size_t i = 8; i-- > 0;) {
            c.wait(*handles[i]);
            EXPECT_EQ(data[i], sum_of_all(data[i].size()));
        }
    });
}

TEST_P(Trees, BroadcastsAndBarriers) {
    std::atomic<int> came{0};
    run([&](Communicator &c) {
        for (const std::size_t count : {1, 127, 1001}) {
            std::vector<uint16_t> data(count, static_cast<uint16_t>(c.rank() + 7));
            c.wait(*c.broadcast(data.data(), count, INAGG_FLOAT16, 2));
            EXPECT_EQ(data, std::vector<uint16_t>(count, 9)) << count;
        }
        came++;
        c.wait(*c.barrier());
        EXPECT_EQ(came.load(), size);
    });
}

TEST_P(Trees, AForgetfulSwitchIsHelped) {
    std::jthread disturber([&](const std::stop_token &stop) {
        while (!stop.stop_requested()) {
            switches.back()->reboot();
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
        }
    });
    run([&](Communicator &c) {
        for (int i = 0; i < 5; i++) {
            std::vector<int32_t> data = input_of(c.rank(), 20000);
            c.wait(*c.allreduce(data.data(), data.data(), data.size(), INAGG_INT32, INAGG_SUM));
            EXPECT_EQ(data, sum_of_all(data.size()));
        }
        c.wait(*c.barrier());
        disturber.request_stop();
        c.wait(*c.barrier());
    });
}

TEST_P(Trees, TrioSaysWhoIsInWhichBlock) {
    run(
        [](Communicator &c) {
            std::vector<int32_t> data = input_of(c.rank(), 64 * 7);
            const auto operation = c.allreduce(data.data(), data.data(), data.size(), INAGG_INT32, INAGG_SUM);
            c.wait(*operation);
            EXPECT_EQ(data, sum_of_all(data.size()));
            EXPECT_EQ(operation->contributors, std::vector<uint64_t>(7, 0b111));
        },
        [](inagg_options &options) { std::strcpy(options.algorithm, "trio"); });
}

TEST_P(Trees, ASilentTreeIsNamed) {
    const auto call = [](Communicator &c) {
        std::vector<int32_t> data(64 * 10);
        c.wait(*c.allreduce(data.data(), data.data(), data.size(), INAGG_INT32, INAGG_SUM));
    };
    try {
        run(
            [&](Communicator &c) {
                call(c);
                c.wait(*c.barrier());
                switches[1]->silence();
                call(c);
            },
            [](inagg_options &options) { options.timeout_ms = 1000; });
        ADD_FAILURE() << "summed by nobody";
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), INAGG_EDEADLINE);
        EXPECT_NE(std::string(error.what()).find("tree 1 (job 8): "), std::string::npos) << error.what();
    }
}

TEST(Forest, OneSwitchCanHaveAllTrees) {
    SoftwareSwitch software_switch({.elements = 64});
    run_ranks(
        software_switch, size,
        [](Communicator &c) {
            std::vector<int32_t> data = input_of(c.rank(), 3000);
            c.wait(*c.allreduce(data.data(), data.data(), data.size(), INAGG_INT32, INAGG_SUM));
            EXPECT_EQ(data, sum_of_all(data.size()));
        },
        [](inagg_options &options) { options.trees = 4; });
}

TEST(Forest, SwitchesMustAgreeOnBlocks) {
    SoftwareSwitch one({.elements = 64}), other({.elements = 96});
    inagg_options options = options_for(one.address() + "," + other.address(), 0, 1);
    options.trees = 2;
    try {
        const Communicator communicator(options);
        ADD_FAILURE() << "blocks of 64 and 96 elements";
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), INAGG_EREFUSED);
        EXPECT_NE(std::string(error.what()).find("job 7 has packets of 64 elements, job 8 of 96"), std::string::npos);
    }
}

} // namespace
} // namespace inagg
