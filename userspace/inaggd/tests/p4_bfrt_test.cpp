// SPDX-License-Identifier: BSD-2-Clause
// inagg-bfrt and what asks it, with a client of BF Runtime's that keeps the tables itself (tests/p4/bfrt).
#include "error.hpp"
#include "p4/bfrt.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace inaggd::p4 {
namespace {

using nlohmann::json;

// Those of p4/tna/panama.p4 that the agent writes, by the bits of their keys, and the parameters of their
// actions.
json tables_of_panama() {
    const json none = json::array();
    return {{"settings", {{"size", 1}, {"key", json::object()}, {"actions", {{"set_switch", {"cpu_port", "boot"}}}}}},
            {"own4", {{"size", 16}, {"key", {{"hdr.ipv4.dst", 32}}}, {"actions", {{"is_own", none}}}}},
            {"own_sources",
             {{"size", 16}, {"key", {{"meta.source_high", 96}, {"meta.source_low", 32}}}, {"actions", {{"is_forged", none}}}}},
            {"jobs",
             {{"size", 64},
              {"key", {{"hdr.inagg.job", 16}}},
              {"actions", {{"set_job", {"index", "generation", "size", "first_slot", "slots", "everyone"}}}}}},
            {"members",
             {{"size", 2048},
              {"key", {{"hdr.inagg.job", 16}, {"hdr.inagg.source", 16}}},
              {"actions", {{"set_member", {"port", "address", "receive_port"}}}}}},
            {"stations", {{"size", 1024}, {"key", {{"hdr.ethernet.dst", 48}}}, {"actions", {{"to_station", {"port"}}}}}},
            {"copies",
             {{"size", 2048},
              {"key", {{"hdr.bridge.job", 16}, {"intrinsic.egress_rid", 16}}},
              {"actions", {{"to_rank", {"mac", "address", "receive_port"}}}}}},
            {"slot_newest",
             {{"size", 64}, {"key", {{"$REGISTER_INDEX", 32}}}, {"data", {{"newest.block", 0}, {"newest.generation", 0}}}}},
            {"drops", {{"size", 4160}, {"key", {{"$COUNTER_INDEX", 32}}}, {"data", {{"$COUNTER_SPEC_PKTS", 0}}}}},
            {"marked_packets", {{"size", 1}, {"key", {{"$COUNTER_INDEX", 32}}}, {"data", {{"$COUNTER_SPEC_PKTS", 0}}}}},
            {"$pre.node",
             {{"size", 64},
              {"key", {{"$MULTICAST_NODE_ID", 32}}},
              {"data", {{"$MULTICAST_RID", 0}, {"$MULTICAST_LAG_ID", 0}, {"$DEV_PORT", 0}}}}},
            {"$pre.mgid",
             {{"size", 64},
              {"key", {{"$MGID", 16}}},
              {"data", {{"$MULTICAST_NODE_ID", 0}, {"$MULTICAST_NODE_L1_XID_VALID", 0}, {"$MULTICAST_NODE_L1_XID", 0}}}}},
            {"$PORT", {{"size", 64}, {"key", {{"$DEV_PORT", 32}}}, {"data", {{"$PORT_UP", 0}}}}}};
}

class BfRuntimeTest : public ::testing::Test {
protected:
    const std::string name = fmt::format("{}bfrt-{}", testing::TempDir(), getpid());
    json program = tables_of_panama();

    BfRuntimeTest() {
        setenv("PYTHONPATH", INAGG_SOURCE "/tests/p4/bfrt", 1);
        setenv("PYTHONDONTWRITEBYTECODE", "1", 1);
        setenv("BFRT_TABLES", (name + "-tables").c_str(), 1);
        setenv("BFRT_STATE", (name + "-state").c_str(), 1);
    }
    ~BfRuntimeTest() override {
        for (const char *file : {"-tables", "-state"})
            std::filesystem::remove(name + file);
    }
    BfRuntime connect() const {
        std::ofstream(name + "-tables") << program;
        return BfRuntime("there:50052");
    }
    json state() const { return json::parse(std::ifstream(name + "-state")); }
    static inagg_job record(uint32_t slots, uint32_t control_slots) {
        inagg_job job{};
        job.index = 1;
        job.size = 4;
        job.all = inagg_all_ranks(job.size);
        job.first_slot = 10;
        job.slots = slots;
        job.control_slots = control_slots;
        job.generation = 7;
        return job;
    }
    static JobEntries job_with(const std::vector<uint16_t> &ports) {
        const inagg_job job = record(8, 2);
        Seats seats{};
        for (uint16_t rank = 0; rank < ports.size(); rank++) {
            seats[rank].member.ifindex = ports[rank];
            seats[rank].member.family = 4;
            seats[rank].member.address[3] = static_cast<uint8_t>(rank + 1);
        }
        return job_entries(9, job, seats);
    }
};

TEST_F(BfRuntimeTest, KnowsTheProgramByItsTables) {
    Program its = connect().program();
    EXPECT_EQ(its.slots, 32u);
    EXPECT_EQ(its.limits.algorithm, INAGG_PANAMA);
    EXPECT_TRUE(its.limits.big_endian);
    program.erase("marked_packets");
    EXPECT_EQ(connect().program().limits.algorithm, INAGG_SWITCHML);
    program.erase("slot_newest");
    EXPECT_THROW(connect(), Error);
    EXPECT_THROW(BfRuntime("elsewhere:50052"), Error);
}

TEST_F(BfRuntimeTest, SaysWhatThePythonClientLacks) {
    unsetenv("PYTHONPATH");
    try {
        connect();
        FAIL();
    } catch (const Error &error) {
        EXPECT_NE(std::string(error.what()).find("PYTHONPATH"), std::string::npos) << error.what();
    }
}

TEST_F(BfRuntimeTest, PortsHaveLinks) {
    BfRuntime plane = connect();
    EXPECT_EQ(plane.links({{"p0", 1}, {"p1", 2}}), (std::map<uint16_t, bool>{{1, true}, {2, false}}));
    EXPECT_THROW(plane.links({{"p9", 9}}), Error);
}

TEST_F(BfRuntimeTest, WritesSettingsAndStations) {
    BfRuntime plane = connect();
    plane.reset();
    plane.put(settings_entry({.cpu_port = 64, .address4 = *Address::parse("10.77.0.1"), .address6 = {}, .boot = 0xb007}));
    plane.put(station_entry({2, 0, 0, 0, 0, 9}, 3));
    plane.put(station_entry({2, 0, 0, 0, 0, 9}, 4));
    plane.put(station_entry({2, 0, 0, 0, 0, 8}, 4));
    plane.remove(station_entry({2, 0, 0, 0, 0, 8}, 4));
    const json now = state();
    EXPECT_EQ(now["settings"]["default"], (json{"set_switch", {{"cpu_port", 64}, {"boot", 0xb007}}}));
    EXPECT_EQ(now["own4"].items().begin().key(), "[172818433]");
    EXPECT_EQ(now["own_sources"].items().begin().key(), "[0, 172818433]");
    EXPECT_EQ(now["stations"], (json{{"[2199023255561]", {"to_station", {{"port", 4}}}}}));
}

TEST_F(BfRuntimeTest, WritesJobsAndTheirGroups) {
    BfRuntime plane = connect();
    plane.reset();
    plane.put_job(9, job_with({3}));
    EXPECT_EQ(state()["jobs"]["[9]"][1]["slots"], 10) << "data and control";
    EXPECT_EQ(state()["members"]["[9, 0]"], (json{"set_member", {{"port", 3}, {"address", 1}, {"receive_port", 0}}}));
    const json alone = state()["$pre.mgid"]["[2]"][1]["$MULTICAST_NODE_ID"];
    ASSERT_EQ(alone.size(), 1u);
    plane.put_job(9, job_with({3, 4}));
    const json both = state()["$pre.mgid"]["[2]"][1]["$MULTICAST_NODE_ID"];
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(both[0], alone[0]) << "the first one stays in it";
    EXPECT_EQ(state()["$pre.node"]["[" + both[1].dump() + "]"][1],
              (json{{"$MULTICAST_RID", 1}, {"$MULTICAST_LAG_ID", json::array()}, {"$DEV_PORT", {4}}}));
    plane.put_job(9, job_with({3, 5}));
    EXPECT_EQ(state()["$pre.node"].size(), 2u) << "where the rank was is forgotten";
    EXPECT_EQ(state()["copies"].size(), 2u);
    plane.remove_job(9);
    for (const char *table : {"jobs", "members", "copies", "$pre.mgid", "$pre.node"})
        EXPECT_TRUE(state()[table].empty()) << table;
}

TEST_F(BfRuntimeTest, ClearsSlotsAndCounts) {
    BfRuntime plane = connect();
    plane.reset();
    plane.clear_slots(record(2, 1));
    EXPECT_EQ(state()["slot_newest"].size(), 6u);
    EXPECT_TRUE(state()["slot_newest"].contains("[20]") && state()["slot_newest"].contains("[25]"));
    plane.put_job(9, job_with({3}));
    plane.clear_stats(1);
    EXPECT_EQ(state()["drops"].size(), 64u);
    const std::vector<inagg_stats> stats = plane.stats();
    EXPECT_EQ(stats.size(), INAGG_STATS_NO_JOB + 1u);
    EXPECT_EQ(stats[1].packets, 0u);
}

TEST_F(BfRuntimeTest, CountersAreByJobAndReason) {
    const auto counted = [&](uint32_t row, uint32_t reason, int packets) {
        program["drops"]["entries"]["[" + std::to_string(64 * row + reason) + "]"] = {nullptr, {{"$COUNTER_SPEC_PKTS", packets}}};
    };
    counted(1, INAGG_R_NONE, 100);
    counted(1, INAGG_R_STALE, 3);
    counted(1, INAGG_R_ADDRESS, 20);
    counted(2, INAGG_R_STALE, 7);
    counted(INAGG_STATS_NO_JOB, INAGG_R_JOB, 5);
    BfRuntime plane = connect();
    plane.put_job(9, job_with({3}));
    const std::vector<inagg_stats> stats = plane.stats();
    EXPECT_EQ(stats[1].packets, 103u) << "a forged one is not the job's";
    EXPECT_EQ(stats[1].drops[INAGG_R_STALE], 3u);
    EXPECT_EQ(stats[1].drops[INAGG_R_ADDRESS], 20u);
    EXPECT_EQ(stats[2].drops[INAGG_R_STALE], 0u) << "of no job that is here";
    EXPECT_EQ(stats[INAGG_STATS_NO_JOB].drops[INAGG_R_JOB], 5u);
}

TEST_F(BfRuntimeTest, WhatAFormerAgentLeftIsGone) {
    const json node = {nullptr, {{"$MULTICAST_RID", 0}, {"$MULTICAST_LAG_ID", json::array()}, {"$DEV_PORT", {3}}}};
    const uint32_t orphan = 2u << 16 | 0 << 9 | 3, of_others = 1000u << 16;
    program["jobs"]["entries"]["[7]"] = {"set_job", json::object()};
    program["$pre.node"]["entries"] = {{"[" + std::to_string(orphan) + "]", node}, {"[" + std::to_string(of_others) + "]", node}};
    BfRuntime plane = connect();
    plane.reset();
    EXPECT_TRUE(state()["jobs"].empty());
    EXPECT_EQ(state()["$pre.node"].size(), 1u);
    plane.put_job(9, job_with({3}));
    EXPECT_EQ(state()["$pre.node"].size(), 2u);
}

TEST_F(BfRuntimeTest, AGroupThatWasNotWrittenIsWrittenNextTime) {
    program["$pre.node"]["size"] = 1;
    BfRuntime plane = connect();
    plane.reset();
    EXPECT_THROW(plane.put_job(9, job_with({3, 4})), Error);
    EXPECT_THROW(plane.put_job(9, job_with({3, 4})), Error) << "it is not taken for written";
    plane.put_job(9, job_with({3}));
    EXPECT_EQ(state()["$pre.mgid"]["[2]"][1]["$MULTICAST_NODE_ID"].size(), 1u);
    plane.remove_job(9);
    EXPECT_TRUE(state()["$pre.node"].empty());
    EXPECT_TRUE(state()["$pre.mgid"].empty());
}

TEST_F(BfRuntimeTest, ACopyThatDoesNotFitIsTriedAgain) {
    program["$pre.mgid"]["members"] = 1;
    BfRuntime plane = connect();
    plane.reset();
    for (int i = 0; i < 2; i++) {
        EXPECT_THROW(plane.put_job(9, job_with({3, 4})), Error);
        EXPECT_EQ(state()["$pre.node"].size(), 1u);
    }
}

TEST_F(BfRuntimeTest, ErrorsOfTheServerAreErrors) {
    program["jobs"]["size"] = 0;
    BfRuntime plane = connect();
    try {
        plane.put_job(9, job_with({3}));
        FAIL();
    } catch (const Error &error) {
        EXPECT_NE(std::string(error.what()).find("no space"), std::string::npos) << error.what();
    }
    plane.remove_job(9); // what was written of it
    EXPECT_TRUE(state()["members"].empty());
}

} // namespace
} // namespace inaggd::p4
