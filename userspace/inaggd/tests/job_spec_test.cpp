// SPDX-License-Identifier: BSD-2-Clause
#include "error.hpp"
#include "job_spec.hpp"

#include <gtest/gtest.h>

using namespace inaggd;

TEST(JobSpec, NeedsOnlyNumberAndSize) {
    JobSpec spec = parse_job_spec("7:size=4");
    EXPECT_EQ(spec.number, 7);
    EXPECT_EQ(spec.size, 4);
    EXPECT_EQ(spec.slots, 0u);
    EXPECT_FALSE(spec.checked);
    EXPECT_TRUE(spec.members.empty());
}

TEST(JobSpec, ReadsEverySetting) {
    JobSpec spec = parse_job_spec("65535:size=64,slots=256,control=4,elements=352,blocks=3,algorithm=switchml,checked,"
                                  "member=0@p0/10.77.0.10,member=63@eth0.100/fd77::73");
    EXPECT_EQ(spec.number, 65535);
    EXPECT_EQ(spec.slots, 256u);
    EXPECT_EQ(spec.control, 4u);
    EXPECT_EQ(spec.elements, 352);
    EXPECT_EQ(spec.blocks, 3);
    EXPECT_TRUE(spec.checked);
    ASSERT_EQ(spec.members.size(), 2u);
    EXPECT_EQ(spec.members[0].port, "p0");
    EXPECT_EQ(spec.members[0].address.text(), "10.77.0.10");
    EXPECT_EQ(spec.members[1].rank, 63);
    EXPECT_EQ(spec.members[1].port, "eth0.100");
    EXPECT_EQ(spec.members[1].address.text(), "fd77::73");
}

TEST(JobSpec, ReadsWhenStragglersAreGivenUp) {
    JobSpec spec = parse_job_spec("7:size=4,algorithm=trio,expiry=10ms,quorum=3");
    EXPECT_EQ(spec.algorithm, INAGG_TRIO);
    EXPECT_EQ(spec.stragglers.expiry_us, 10000u);
    EXPECT_EQ(spec.stragglers.quorum, 3);
    EXPECT_EQ(parse_job_spec("7:size=4,algorithm=trio,expiry=500us").stragglers.expiry_us, 500u);
    EXPECT_EQ(parse_job_spec("7:size=4,algorithm=trio,expiry=2s").stragglers.expiry_us, 2000000u);
    EXPECT_EQ(parse_job_spec("7:size=4,algorithm=trio").stragglers, Stragglers{});
}

// The message names the value that is wrong.
TEST(JobSpec, RefusesWhatItCannotMean) {
    const std::pair<const char *, const char *> cases[] = {
        {"7", "NUMBER:size"},
        {"", "NUMBER:size"},
        {"7:", "lacks size"},
        {"7:slots=64", "lacks size"},
        {"65536:size=4", "65536"},
        {"-1:size=4", "-1"},
        {"7:size=0", "'0'"},
        {"7:size=65", "'65'"},
        {"7:size=4x", "'4x'"},
        {"7:size=4,slots=100", "not 100"},
        {"7:size=4,control=3", "not 3"},
        {"7:size=4,elements=350", "not 350"},
        {"7:size=4,elements=864", "'864'"},
        {"7:size=4,blocks=0", "'0'"},
        {"7:size=4,blocks=5", "'5'"},
        {"7:size=4,algorithm=ring", "'ring'"},
        {"7:size=4,algorithm=trio,expiry=10", "'10'"},
        {"7:size=4,algorithm=trio,expiry=99us", "'99us'"},
        {"7:size=4,algorithm=trio,expiry=61s", "'61s'"},
        {"7:size=4,algorithm=trio,expiry=ms", "'ms'"},
        {"7:size=4,algorithm=trio,quorum=0", "'0'"},
        {"7:size=4,algorithm=trio,quorum=5", "quorum 5"},
        {"7:size=4,expiry=10ms", "switchml waits"},
        {"7:size=4,checked=maybe", "checked"},
        {"7:size=4,colour=red", "'colour'"},
        {"7:size=4,member=0", "'0'"},
        {"7:size=4,member=0@/10.77.0.10", "0@/10"},
        {"7:size=4,member=0@p0/here", "'here'"},
        {"7:size=4,member=0@p0/224.0.0.1", "224.0.0.1"},
        {"7:size=4,member=4@p0/10.77.0.14", "member 4"},
        {"7:size=4,member=0@p0/10.77.0.10,member=0@p1/10.77.0.11", "member 0 is named twice"},
        {"7:size=4,size=2", "size is named twice"},
    };
    for (auto [text, named] : cases)
        try {
            parse_job_spec(text);
            ADD_FAILURE() << text << " was taken";
        } catch (const Error &error) {
            EXPECT_NE(std::string(error.what()).find(named), std::string::npos) << text << ": " << error.what();
        }
}
