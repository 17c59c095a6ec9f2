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
    static Job job_with(const std::vector<uint16_t> &ports, uint8_t algorithm = INAGG_PANAMA) {
        Job job{.number = 9, .record = record(8, 2), .seats = {}, .above = {}, .policy = {}};
        job.record.algorithm = algorithm;
        for (uint16_t rank = 0; rank < ports.size(); rank++) {
            inagg_member &member = job.seats[rank].member;
            member.ifindex = ports[rank];
            member.family = 4;
            member.address[3] = static_cast<uint8_t>(rank + 1);
        }
        return job;
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
    EXPECT_THROW(connect(), Error) << "none of ours";
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
    plane.put_job(job_with({3}));
    EXPECT_EQ(state()["jobs"]["[9]"][1]["slots"], 10) << "data and control";
    EXPECT_EQ(state()["members"]["[9, 0]"], (json{"set_member", {{"port", 3}, {"address", 1}, {"receive_port", 0}}}));
    const json alone = state()["$pre.mgid"]["[2]"][1]["$MULTICAST_NODE_ID"];
    ASSERT_EQ(alone.size(), 1u);
    plane.put_job(job_with({3, 4}));
    const json both = state()["$pre.mgid"]["[2]"][1]["$MULTICAST_NODE_ID"];
    ASSERT_EQ(both.size(), 2u);
    EXPECT_EQ(both[0], alone[0]) << "the first one stays in it";
    EXPECT_EQ(state()["$pre.node"]["[" + both[1].dump() + "]"][1],
              (json{{"$MULTICAST_RID", 1}, {"$MULTICAST_LAG_ID", json::array()}, {"$DEV_PORT", {4}}}));
    plane.put_job(job_with({3, 5}));
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
    plane.put_job(job_with({3}));
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
    plane.put_job(job_with({3}));
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
    plane.put_job(job_with({3}));
    EXPECT_EQ(state()["$pre.node"].size(), 2u);
}

TEST_F(BfRuntimeTest, AGroupThatWasNotWrittenIsWrittenNextTime) {
    program["$pre.node"]["size"] = 1;
    BfRuntime plane = connect();
    plane.reset();
    EXPECT_THROW(plane.put_job(job_with({3, 4})), Error);
    EXPECT_THROW(plane.put_job(job_with({3, 4})), Error) << "it is not taken for written";
    plane.put_job(job_with({3}));
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
        EXPECT_THROW(plane.put_job(job_with({3, 4})), Error);
        EXPECT_EQ(state()["$pre.node"].size(), 1u);
    }
}

TEST_F(BfRuntimeTest, ErrorsOfTheServerAreErrors) {
    program["jobs"]["size"] = 0;
    BfRuntime plane = connect();
    try {
        plane.put_job(job_with({3}));
        FAIL();
    } catch (const Error &error) {
        EXPECT_NE(std::string(error.what()).find("no space"), std::string::npos) << error.what();
    }
    plane.remove_job(9); // what was written of it
    EXPECT_TRUE(state()["members"].empty());
}

// Those of p4/tna/atp.p4 and canary.p4 that panama has not, or otherwise.
json tables_of_atp() {
    json tables = tables_of_panama();
    tables.erase("slot_newest");
    tables.erase("marked_packets");
    tables["jobs"]["actions"] = {
        {"set_job", {"index", "generation", "size", "slots", "here", "everyone", "alone", "base", "last", "tenure"}}};
    tables["members"] = {{"size", 4096},
                         {"key", {{"hdr.inagg.job", 16}, {"hdr.inagg.source", 16}, {"is_above", 1}}},
                         {"actions", {{"set_member", {"port", "address"}}}}};
    tables["copies"]["actions"]["to_above"] = {"own_mac", "mac", "address"};
    tables["uplinks"] = {{"size", 64}, {"key", {{"hdr.inagg.job", 16}}}, {"actions", {{"set_uplink", {"port"}}}}};
    tables["places"] = {{"size", 2048}, {"key", {{"hdr.inagg.job", 16}, {"rank", 16}}}, {"actions", {{"set_place", {"port"}}}}};
    tables["claims"] = {{"size", 4096}, {"key", {{"$REGISTER_INDEX", 32}}}, {"data", {{"claims.id", 0}, {"claims.until", 0}}}};
    return tables;
}

json tables_of_canary() {
    json tables = tables_of_panama();
    tables["own6"] = {{"size", 16}, {"key", {{"hdr.ipv6.dst", 128}}}, {"actions", {{"is_own", json::array()}}}};
    tables.erase("slot_newest");
    tables.erase("marked_packets");
    tables["positions"] = {{"size", 16},
                           {"key", {{"hdr.inagg.job", 16}, {"hdr.inagg.slot", 32}}},
                           {"actions", {{"set_position", {"id", "descriptor", "leader", "others", "mask", "place"}}}}};
    tables["speakers"] = {{"size", 2048},
                          {"key", {{"hdr.inagg.job", 16}, {"meta.source_high", 96}, {"meta.source_low", 32}, {"port", 9}}},
                          {"actions", {{"set_speaker", {"rank"}}}}};
    tables["places"] = {{"size", 2048}, {"key", {{"hdr.inagg.job", 16}, {"rank", 16}}}, {"actions", {{"set_place", {"port"}}}}};
    tables["rows"] = {{"size", 128},
                      {"key", {{"id", 16}, {"is_six", 1}}},
                      {"actions", {{"set_row", {"job", "generation", "size", "patience"}}}}};
    tables["owners"] = {
        {"size", 32}, {"key", {{"$REGISTER_INDEX", 32}}}, {"data", {{"Ingress.owners.id", 0}, {"Ingress.owners.block", 0}}}};
    tables["waits"] = {
        {"size", 32}, {"key", {{"$REGISTER_INDEX", 32}}}, {"data", {{"Ingress.waits.visits", 0}, {"Ingress.waits.sent", 0}}}};
    tables["device_configuration"] = {
        {"size", 1}, {"key", json::object()}, {"data", {{"num_pipes", 0}}}, {"default", {{"num_pipes", 2}}}};
    tables["pktgen.port_cfg"] = {{"size", 256}, {"key", {{"dev_port", 32}}}, {"data", {{"pktgen_enable", 0}}}};
    tables["pktgen.pkt_buffer"] = {
        {"size", 1024}, {"key", {{"pkt_buffer_offset", 32}, {"pkt_buffer_size", 32}}}, {"data", {{"buffer", 0}}}};
    tables["pktgen.app_cfg"] = {{"size", 8},
                                {"key", {{"app_id", 32}}},
                                {"data",
                                 {{"timer_nanosec", 0},
                                  {"app_enable", 0},
                                  {"pkt_len", 0},
                                  {"pkt_buffer_offset", 0},
                                  {"pipe_local_source_port", 0},
                                  {"batch_count_cfg", 0},
                                  {"packets_per_batch_cfg", 0},
                                  {"ibg", 0},
                                  {"ipg", 0}}}};
    return tables;
}

class AtpTest : public BfRuntimeTest {
protected:
    AtpTest() { program = tables_of_atp(); }
};

TEST_F(AtpTest, HasAggregatorsAndAServer) {
    BfRuntime plane = connect();
    const Program its = plane.program();
    EXPECT_EQ(its.limits.algorithm, INAGG_ATP);
    EXPECT_EQ(its.shared_slots, 4096u);
    EXPECT_FALSE(its.limits.lists_slots);
    plane.reset();
    plane.put_settings(
        {.cpu_port = 64, .address4 = *Address::parse("10.77.0.1"), .address6 = {}, .shared_slots = 4096, .share = 1024});
    Job job = job_with({3, 4}, INAGG_ATP);
    job.above.ups[0].ifindex = 5;
    job.above.ups[0].family = 4;
    job.above.ups[0].address[3] = 9;
    plane.put_job(job);
    EXPECT_EQ(state()["jobs"]["[9]"][1]["last"], 1023);
    EXPECT_EQ(state()["members"].size(), 2u + 32);
    EXPECT_EQ(state()["members"]["[9, 31, 1]"], (json{"set_member", {{"port", 5}, {"address", 9}}}));
    EXPECT_EQ(state()["uplinks"]["[9]"], (json{"set_uplink", {{"port", 5}}}));
    EXPECT_EQ(state()["copies"]["[9, 65535]"][0], "to_above");
    plane.clear_slots(job.record); // nothing is to be
    plane.tidy();
    EXPECT_FALSE(plane.has_clock());
    plane.remove_job(9);
    for (const char *table : {"jobs", "members", "copies", "uplinks", "places", "claims"})
        EXPECT_TRUE(state()[table].empty()) << table;
}

class CanaryTest : public BfRuntimeTest {
protected:
    CanaryTest() { program = tables_of_canary(); }
    static Settings settings() {
        return {.cpu_port = 64,
                .address4 = *Address::parse("10.77.0.1"),
                .address6 = *Address::parse("fd77::1"),
                .mac = {2, 0, 0, 0, 0, 1},
                .shared_slots = 32,
                .share = 32};
    }
    json application(int number) const { return state()["pktgen.app_cfg"]["[" + std::to_string(number) + "]"][1]; }
    void own(uint32_t descriptor, uint32_t id, int visits) {
        const std::string key = "[" + std::to_string(descriptor) + "]";
        program["owners"]["entries"][key] = {nullptr, {{"Ingress.owners.id", {0, id}}, {"Ingress.owners.block", {0, 1}}}};
        program["waits"]["entries"][key] = {nullptr, {{"Ingress.waits.visits", {0, visits}}, {"Ingress.waits.sent", {0, 0}}}};
    }
    // Of its descriptors, those that are somebody's.
    std::vector<uint32_t> owned() const {
        std::vector<uint32_t> found;
        const json owners = state()["owners"];
        for (uint32_t i = 0; i < 32; i++)
            if (const std::string key = "[" + std::to_string(i) + "]";
                owners.contains(key) && owners[key][1]["Ingress.owners.id"] != 0)
                found.push_back(i);
        return found;
    }
};

TEST_F(CanaryTest, TheGeneratorIsItsClockWhileThereAreJobs) {
    BfRuntime plane = connect();
    EXPECT_TRUE(plane.has_clock());
    EXPECT_EQ(plane.program().shared_slots, 32u);
    EXPECT_EQ(plane.program().slots, 16u) << "each is in a table";
    EXPECT_TRUE(plane.program().limits.lists_slots);
    plane.reset();
    plane.put_settings(settings());
    for (const auto &[number, bytes] : {std::pair{2, 234}, {3, 254}}) {
        EXPECT_EQ(application(number)["packets_per_batch_cfg"], 31) << "one less than they are";
        EXPECT_EQ(application(number)["timer_nanosec"], 1'000'000);
        EXPECT_EQ(application(number)["pipe_local_source_port"], 68);
        EXPECT_EQ(application(number)["pkt_len"], bytes);
        EXPECT_EQ(application(number)["app_enable"], false);
        const std::string at = application(number)["pkt_buffer_offset"].dump();
        EXPECT_EQ(state()["pktgen.pkt_buffer"]["[" + at + ", " + std::to_string(bytes) + "]"][1]["buffer"].size(), bytes);
    }
    EXPECT_EQ(state()["pktgen.port_cfg"],
              (json{{"[68]", {nullptr, {{"pktgen_enable", true}}}}, {"[196]", {nullptr, {{"pktgen_enable", true}}}}}));
    plane.put_job(job_with({3, 4}, INAGG_CANARY));
    EXPECT_EQ(application(2)["app_enable"], true);
    EXPECT_EQ(application(3)["app_enable"], true);
    EXPECT_EQ(application(2)["pkt_len"], 234) << "no other field of it has changed";
    EXPECT_EQ(state()["positions"].size(), 10u);
    EXPECT_EQ(state()["speakers"]["[9, 0, 1, 3]"], (json{"set_speaker", {{"rank", 0}}}));
    EXPECT_EQ(state()["rows"].size(), 1u);
    plane.remove_job(9);
    EXPECT_EQ(application(2)["app_enable"], false);
    for (const char *table : {"jobs", "members", "copies", "positions", "speakers", "places", "rows"})
        EXPECT_TRUE(state()[table].empty()) << table;
}

TEST_F(CanaryTest, HasAClockForEachOfItsAddresses) {
    program["pktgen.app_cfg"]["entries"]["[3]"] = {"trigger_timer_periodic", {{"app_enable", true}}}; // a former agent's
    BfRuntime plane = connect();
    plane.reset();
    EXPECT_EQ(application(3)["app_enable"], false);
    Settings four = settings();
    four.address6 = {};
    plane.put_settings(four);
    plane.put_job(job_with({3}, INAGG_CANARY));
    EXPECT_EQ(application(2)["app_enable"], true);
    EXPECT_EQ(application(3)["app_enable"], false);
}

TEST_F(CanaryTest, FreesDescriptorsOfNobody) {
    const Job job = job_with({3, 4}, INAGG_CANARY);
    const uint32_t row = descriptor_row(job.record);
    own(3, row << 16 | 1, 10);
    own(5, row << 16 | 2, 2000); // for 2 s
    own(7, (row ^ 1) << 16 | 1, 1);
    BfRuntime plane = connect();
    plane.put_job(job);
    plane.tidy();
    EXPECT_EQ(owned(), std::vector<uint32_t>{3});
    plane.remove_job(9);
    plane.clear_slots(job.record);
    EXPECT_TRUE(owned().empty()) << "a generation with the same 8 bits finds none of this one's";
}

} // namespace
} // namespace inaggd::p4
