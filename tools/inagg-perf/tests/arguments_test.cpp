// SPDX-License-Identifier: BSD-2-Clause
// What the command line must refuse, and with which words: each of these once ran for ever, or measured nothing.
#include "arguments.hpp"

#include <gtest/gtest.h>

namespace perf {
namespace {

Arguments parse(std::vector<std::string> words) {
    words.insert(words.begin(), "inagg-perf");
    std::vector<char *> argv;
    for (std::string &word : words)
        argv.push_back(word.data());
    return parse_arguments(static_cast<int>(argv.size()), argv.data());
}

void expect_refused(const std::vector<std::string> &words, const std::string &message) {
    auto failed = [](int status) { return WIFEXITED(status) && WEXITSTATUS(status) != 0; };
    EXPECT_EXIT(parse(words), failed, message);
}

TEST(ArgumentsDeathTest, RefusesWhatMeasuresNothingOrNeverEnds) {
    expect_refused({"allreduce", "-b", "-1"}, "--begin: -1: give a positive");
    expect_refused({"allreduce", "-e", "-5K"}, "--end: -5K: give a positive");
    expect_refused({"allreduce", "--count", "-1"}, "--count: -1: give a positive");
    expect_refused({"allreduce", "--count", "0"}, "--count: 0 elements");
    expect_refused({"allreduce", "-b", "0"}, "--begin: 0 bytes");
    expect_refused({"allreduce", "-b", "64K", "-e", "4K"}, "--end: 4096 bytes are less than --begin, 65536");
    expect_refused({"allreduce", "-f", "1"}, "--factor: Value 1 not in range 2");
    expect_refused({"allreduce", "-n", "0"}, "--iterations: 0 measures nothing");
    expect_refused({"barrier", "-n", "0", "--check"}, "--iterations: 0 measures nothing");
}

TEST(ArgumentsDeathTest, RefusesAveragesOfIntegersAndStragglersOfNoTime) {
    expect_refused({"allreduce", "-o", "avg", "-d", "int32"}, "--op: avg of int32");
    for (const char *text : {"2", "2:10", "2:0ms", "2:10min", "64:1s", "1:5ms:0", "1:5ms:2x", ":5ms"})
        expect_refused({"allreduce", "--straggle", text}, "--straggle: .*give RANK:TIME");
}

TEST(ArgumentsDeathTest, RefusesTypesThatAreNone) {
    expect_refused({"allreduce", "-d", "int32,int64"}, "--dtype: int64 not in .bfloat16,float16,float32,int32.");
    expect_refused({"allreduce", "-d", "0"}, "--dtype: 0 not in"); // what int32 is to the C API
    expect_refused({"allreduce", "-o", "prod"}, "--op: prod not in .avg,max,min,sum.");
    expect_refused({"gather"}, "collective: gather not in .allreduce,barrier,broadcast,reduce.");
    expect_refused({"allreduce", "-d", "float32,int32", "-o", "sum,avg"}, "--op: avg of int32");
    expect_refused({"broadcast", "-o", "max"}, "--op: a broadcast and a barrier have none");
}

TEST(Arguments, Stragglers) {
    const auto one = parse({"allreduce", "--straggle", "3:2.5ms"}).straggler;
    ASSERT_TRUE(one);
    EXPECT_EQ(one->rank, 3U);
    EXPECT_EQ(one->time.count(), 2500);
    EXPECT_EQ(one->every, 1U);
    EXPECT_EQ(parse({"allreduce", "--straggle", "0:1s:7"}).straggler->every, 7U);
}

TEST(ArgumentsDeathTest, RefusesWhatExceedsMemory) {
    expect_refused({"allreduce", "-e", "15E"}, "--end: 17293822569102704640 bytes: .* at most [0-9]+");
    expect_refused({"allreduce", "--count", "1,9999999999999999"}, "--count: 9999999999999999 elements: .* at most");
    expect_refused({"allreduce", "-e", "1G", "--inflight", "1024", "--begin", "99999999999999999999"}, "less than");
}

using Operations = std::vector<Operation>;

Operations operations(std::vector<std::string> words) { return parse(std::move(words)).operations; }

TEST(Arguments, SizesEndAtTheLargestThatIsAsked) {
    const auto floats = [](std::vector<size_t> counts) {
        Operations of;
        for (size_t count : counts)
            of.push_back({INAGG_FLOAT32, INAGG_SUM, count});
        return of;
    };
    EXPECT_EQ(operations({"allreduce", "-b", "4", "-e", "64"}), floats({1, 4, 16}));
    EXPECT_EQ(operations({"allreduce", "-b", "4K", "-e", "5000", "-f", "1048576"}), floats({1024}));
    EXPECT_EQ(operations({"allreduce", "-n", "0", "--check", "--count", "1,353"}), floats({1, 353}));
}

TEST(Arguments, EveryTypeWithEveryOperatorInEverySize) {
    EXPECT_EQ(operations({"allreduce", "-d", "int32,float16", "-o", "sum,max", "-b", "8", "-e", "16", "-f", "2"}),
              (Operations{{INAGG_INT32, INAGG_SUM, 2},
                          {INAGG_INT32, INAGG_SUM, 4},
                          {INAGG_INT32, INAGG_MAX, 2},
                          {INAGG_INT32, INAGG_MAX, 4},
                          {INAGG_FLOAT16, INAGG_SUM, 4},
                          {INAGG_FLOAT16, INAGG_SUM, 8},
                          {INAGG_FLOAT16, INAGG_MAX, 4},
                          {INAGG_FLOAT16, INAGG_MAX, 8}}));
    EXPECT_EQ(operations({"-d", "int32", "allreduce", "--count", "7"}), (Operations{{INAGG_INT32, INAGG_SUM, 7}}));
    EXPECT_EQ(operations({"barrier", "-d", "int32,float16"}), (Operations{{INAGG_INT32, INAGG_SUM, 0}}));
}

} // namespace
} // namespace perf
