// SPDX-License-Identifier: BSD-2-Clause
#include "error.hpp"
#include "options.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <string>
#include <utility>

namespace inagg {
namespace {

using Variables = std::initializer_list<std::pair<const char *, const char *>>;

constexpr const char *known[] = {"INAGG_SWITCH",
                                 "INAGG_JOB",
                                 "INAGG_RANK",
                                 "INAGG_SIZE",
                                 "INAGG_ALGORITHM",
                                 "INAGG_TRANSPORT",
                                 "INAGG_TIMEOUT_MS",
                                 "INAGG_SCALE",
                                 "INAGG_CHECKED",
                                 "INAGG_EXPIRY",
                                 "INAGG_QUORUM",
                                 "INAGG_HISTORY",
                                 "INAGG_CONGESTION_CONTROL",
                                 "INAGG_TREES",
                                 "INAGG_AGGREGATE_FROM",
                                 "INAGG_POLL",
                                 "RANK",
                                 "WORLD_SIZE",
                                 "OMPI_COMM_WORLD_RANK",
                                 "OMPI_COMM_WORLD_SIZE",
                                 "SLURM_PROCID",
                                 "SLURM_NTASKS"};

inagg_options from(Variables variables) {
    for (const char *name : known)
        unsetenv(name);
    setenv("INAGG_SWITCH", "10.0.0.1", 1);
    for (const auto &[name, value] : variables)
        setenv(name, value, 1);
    return options_from_env();
}

// The message must name the variable that is wrong.
void expect_blames(const char *name, Variables variables) {
    try {
        from(variables);
        ADD_FAILURE() << "accepted a wrong " << name;
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), INAGG_EINVAL);
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
    }
}

TEST(Environment, ReadsEverything) {
    const inagg_options options = from({{"INAGG_SWITCH", "fd77::1"},
                                        {"INAGG_JOB", "9"},
                                        {"INAGG_RANK", "3"},
                                        {"INAGG_SIZE", "4"},
                                        {"INAGG_ALGORITHM", "trio"},
                                        {"INAGG_TRANSPORT", "udp"},
                                        {"INAGG_TIMEOUT_MS", "250"},
                                        {"INAGG_SCALE", "-4"},
                                        {"INAGG_CHECKED", "1"}});
    EXPECT_STREQ(options.switch_address, "fd77::1");
    EXPECT_EQ(options.job, 9);
    EXPECT_EQ(options.rank, 3);
    EXPECT_EQ(options.size, 4);
    EXPECT_STREQ(options.algorithm, "trio");
    EXPECT_STREQ(options.transport, "udp");
    EXPECT_EQ(options.timeout_ms, 250U);
    EXPECT_EQ(options.scale, -4);
    EXPECT_EQ(options.checked, 1);
}

TEST(Environment, FallsBackToLaunchers) {
    const std::pair<const char *, const char *> launchers[] = {
        {"RANK", "WORLD_SIZE"}, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"}, {"SLURM_PROCID", "SLURM_NTASKS"}};
    for (const auto &[rank, size] : launchers) {
        const inagg_options options = from({{rank, "1"}, {size, "2"}});
        EXPECT_EQ(options.rank, 1);
        EXPECT_EQ(options.size, 2);
        EXPECT_EQ(options.scale, INAGG_SCALE_AUTO);
    }
    const inagg_options own = from({{"INAGG_RANK", "0"}, {"INAGG_SIZE", "3"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}});
    EXPECT_EQ(own.size, 3);
}

TEST(Environment, NamesWhatIsWrong) {
    expect_blames("INAGG_SIZE", {{"INAGG_RANK", "0"}});
    expect_blames("INAGG_RANK", {{"INAGG_SIZE", "2"}});
    expect_blames("INAGG_RANK", {});
    expect_blames("INAGG_RANK", {{"INAGG_RANK", "2"}, {"INAGG_SIZE", "2"}});
    expect_blames("INAGG_SIZE", {{"INAGG_RANK", "0"}, {"INAGG_SIZE", "65"}});
    const auto with = [](const char *name, const char *value) {
        expect_blames(name, {{"INAGG_RANK", "0"}, {"INAGG_SIZE", "1"}, {name, value}});
    };
    with("INAGG_JOB", "65536");
    with("INAGG_JOB", "seven");
    with("INAGG_TIMEOUT_MS", "0");
    with("INAGG_SCALE", "1e3");
    with("INAGG_CHECKED", "yes");
    with("INAGG_HISTORY", "0");
    for (const char *value : {"2", "01", "cubic", "aimd", "dctcp"}) // of switchml, which has none
        with("INAGG_CONGESTION_CONTROL", value);
    for (const char *value : {"soon", "-1ms", "10min", "1e3", "ms", "5000s"})
        with("INAGG_EXPIRY", value);
    for (const char *value : {"yes", "-1us", "2h"})
        with("INAGG_POLL", value);
    for (const char *value : {"2", "-1", "1.5", "0.0", "0.5x", "half"})
        with("INAGG_QUORUM", value);
    for (const char *value : {"-1", "40MB", "1e6", "K", "9000000G"})
        with("INAGG_AGGREGATE_FROM", value);
}

TEST(Environment, TimesAndQuorums) {
    const auto with = [](const char *name, const char *value) {
        return from({{"INAGG_ALGORITHM", "trio"}, {"INAGG_RANK", "0"}, {"INAGG_SIZE", "50"}, {name, value}});
    };
    for (const auto &[text, us] : {std::pair{"500us", 500U}, {"10ms", 10000}, {"2s", 2000000}, {"7", 7000}, {"2.5", 2500}})
        EXPECT_EQ(with("INAGG_EXPIRY", text).expiry_us, us) << text;
    for (const auto &[text, ranks] :
         {std::pair{"0", 0}, {"3", 3}, {"50", 50}, {"0.88", 44}, {"0.94", 47}, {"0.881", 45}, {"1.0", 50}, {"0.001", 1}})
        EXPECT_EQ(with("INAGG_QUORUM", text).quorum, ranks) << text;
    EXPECT_EQ(with("INAGG_EXCLUDE_AFTER", "5s").exclude_ms, 5000U);
    EXPECT_EQ(with("INAGG_EXCLUDE_AFTER", "0").exclude_ms, 0U);
    EXPECT_EQ(with("INAGG_POLL", "20us").poll_us, 20U);
    EXPECT_EQ(with("INAGG_POLL", "0").poll_us, 0U);
    EXPECT_EQ(with("INAGG_JOB", "5").poll_us, 500U);
    EXPECT_EQ(with("INAGG_HISTORY", "5").history_mib, 5U);
    EXPECT_EQ(with("INAGG_JOB", "5").history_mib, 64U);
}

TEST(Environment, CongestionControl) {
    const auto with = [](const char *algorithm, const char *value) {
        return from({{"INAGG_ALGORITHM", algorithm},
                     {"INAGG_RANK", "0"},
                     {"INAGG_SIZE", "2"},
                     {"INAGG_CONGESTION_CONTROL", value}})
            .congestion_control;
    };
    EXPECT_EQ(with("switchml", ""), INAGG_CONGESTION_OWN);
    EXPECT_EQ(with("switchml", "0"), INAGG_CONGESTION_NONE);
    EXPECT_EQ(with("switchml", "1"), INAGG_CONGESTION_OWN);
    EXPECT_EQ(with("panama", "aimd"), INAGG_CONGESTION_AIMD);
    EXPECT_EQ(with("atp", "dctcp"), INAGG_CONGESTION_DCTCP);
}

TEST(Environment, Bytes) {
    for (const auto &[text, bytes] :
         {std::pair{"0", 0ULL}, {"4096", 4096}, {"1.5K", 1536}, {"40M", 40 << 20}, {"2G", 2ULL << 30}})
        EXPECT_EQ(from({{"INAGG_AGGREGATE_FROM", text}, {"INAGG_RANK", "0"}, {"INAGG_SIZE", "2"}}).aggregate_from, bytes) << text;
}

// Who asks for something that does not exist hears what does.
void expect_refused(const inagg_options &options, std::initializer_list<const char *> words) {
    try {
        validate(options);
        ADD_FAILURE() << "accepted";
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), INAGG_EINVAL);
        for (const char *word : words)
            EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
}

TEST(Validation, OnlyTrioLeavesRanksOut) {
    inagg_options options = from({{"INAGG_ALGORITHM", "trio"}, {"INAGG_RANK", "0"}, {"INAGG_SIZE", "4"}});
    options.expiry_us = 1000;
    options.quorum = 5;
    expect_refused(options, {"quorum 5", "4 ranks"});
    options.quorum = 3;
    options.expiry_us = 99;
    expect_refused(options, {"expiry 99 us", "100 us to 25 s"});
    options.expiry_us = 60'000'001;
    expect_refused(options, {"expiry 60000001 us"});
    options.expiry_us = 1000;
    options.exclude_ms = 999;
    expect_refused(options, {"999 ms", "1000"});
    options.exclude_ms = 1000;
    validate(options);
    std::string("switchml").copy(options.algorithm, sizeof(options.algorithm));
    expect_refused(options, {"expiry 1000 us", "quorum 3", "INAGG_ALGORITHM=trio", "INAGG_EXPIRY", "INAGG_QUORUM"});
}

TEST(Validation, TheSwitchMayBeNamedAfterTheRest) {
    inagg_options options = from({{"INAGG_SWITCH", ""}, {"INAGG_RANK", "0"}, {"INAGG_SIZE", "4"}});
    expect_refused(options, {"INAGG_SWITCH is not set", "options.switch_address"});
    std::string("10.0.0.1").copy(options.switch_address, sizeof(options.switch_address) - 1);
    validate(options);
}

TEST(Validation, AKeyOfZerosIsNone) {
    for (const auto &[name, key] : {std::pair{"INAGG_JOIN_KEY", &inagg_options::join_key}, {"INAGG_KEY", &inagg_options::key}}) {
        inagg_options options = from({{"INAGG_RANK", "0"}, {"INAGG_SIZE", "4"}});
        std::string(32, '0').copy(options.*key, sizeof(options.*key));
        expect_refused(options, {name, "all zeros", "openssl rand -hex 16"});
        (options.*key)[31] = '1';
        validate(options);
    }
}

TEST(Validation, ARingWaitsForAll) {
    inagg_options options =
        from({{"INAGG_ALGORITHM", "trio"}, {"INAGG_RANK", "0"}, {"INAGG_SIZE", "4"}, {"INAGG_AGGREGATE_FROM", "4K"}});
    options.expiry_us = 1000;
    expect_refused(options, {"from 4096 bytes", "expiry 1000 us", "INAGG_AGGREGATE_FROM=0"});
    options.expiry_us = 0;
    validate(options);
}

TEST(Validation, TreesAreJobsWithAddresses) {
    const inagg_options options = from({{"INAGG_SWITCH", "10.0.0.1,fd77::2"},
                                        {"INAGG_TREES", "2"},
                                        {"INAGG_JOB", "7"},
                                        {"INAGG_RANK", "0"},
                                        {"INAGG_SIZE", "4"}});
    EXPECT_EQ(options_of_tree(options, 1).job, 8);
    EXPECT_EQ(options_of_tree(options, 1).trees, 1);
    EXPECT_STREQ(options_of_tree(options, 0).switch_address, "10.0.0.1");
    EXPECT_STREQ(options_of_tree(options, 1).switch_address, "fd77::2");
    const inagg_options alike = from({{"INAGG_TREES", "64"}, {"INAGG_RANK", "0"}, {"INAGG_SIZE", "4"}});
    EXPECT_STREQ(options_of_tree(alike, 63).switch_address, "10.0.0.1");

    inagg_options wrong = options;
    wrong.trees = 3;
    expect_refused(wrong, {"10.0.0.1,fd77::2", "2 switches for 3 trees", "INAGG_TREES=2"});
    wrong.trees = 1;
    expect_refused(wrong, {"2 switches for 1 tree:"});
    wrong.trees = 0;
    expect_refused(wrong, {"0 trees", "1 to 64"});
    wrong = options;
    wrong.job = 65535;
    expect_refused(wrong, {"job 65535 with 2 trees"});
    wrong = options;
    std::strcpy(wrong.algorithm, "trio");
    wrong.exclude_ms = 5000;
    expect_refused(wrong, {"5000 ms", "2 trees", "INAGG_EXCLUDE_AFTER=0"});
}

TEST(Validation, ListsTheChoices) {
    inagg_options options = from({{"INAGG_RANK", "0"}, {"INAGG_SIZE", "1"}});
    std::string("carrier").copy(options.transport, sizeof(options.transport));
    options.transport[7] = '\0';
    try {
        validate(options);
        FAIL();
    } catch (const Error &error) {
        EXPECT_STREQ(error.what(), "transport 'carrier': set one of udp, kernel, afxdp, xdp, auto");
    }
}

} // namespace
} // namespace inagg
