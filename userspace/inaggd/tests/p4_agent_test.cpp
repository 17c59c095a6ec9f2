// SPDX-License-Identifier: BSD-2-Clause
#include "error.hpp"
#include "p4/agent.hpp"
#include "p4/bmv2.hpp"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <inagg/core/checksum.h>

#include <sys/stat.h>

#include <cstring>
#include <filesystem>
#include <fstream>

using namespace inaggd;
using namespace inaggd::p4;
using namespace std::chrono_literals;

namespace {

// Tables as the agent leaves them, and what it did, in order.
struct FakeSwitch : Driver {
    std::map<uint16_t, JobEntries> jobs;
    std::map<std::vector<std::string>, Entry> stations;
    std::vector<uint16_t> flood;
    std::vector<std::string> done;
    std::vector<inagg_stats> counted = std::vector<inagg_stats>(INAGG_STATS_NO_JOB + 1);

    void reset() override { done.push_back("reset"); }
    void put_settings(const Settings &settings) override { put(settings_entry(settings)); }
    void put(const Entry &entry) override {
        done.push_back("put " + entry.table);
        if (entry.table == "stations")
            stations[entry.key] = entry;
    }
    void remove(const Entry &entry) override { stations.erase(entry.key); }
    void put_job(const Job &job) override {
        done.push_back("put job");
        jobs[job.number] = job_entries(job);
    }
    void remove_job(uint16_t number) override {
        done.push_back("remove job");
        jobs.erase(number);
    }
    void put_flood(const std::vector<uint16_t> &ports) override { flood = ports; }
    void clear_slots(const inagg_job &record) override { done.push_back("clear slots of job " + std::to_string(record.index)); }
    std::vector<inagg_stats> stats() override { return counted; }
    void clear_stats(uint32_t row) override { done.push_back("clear stats " + std::to_string(row)); }
};

const Address own = *Address::parse("10.77.0.1");
constexpr Mac own_mac = {2, 0, 0, 0, 0, 1};

// Rank r is behind port 1 + r at 10.77.0.(10 + r).
struct Worker {
    uint16_t rank, size = 2, port = static_cast<uint16_t>(1 + rank);
    uint8_t host = static_cast<uint8_t>(10 + rank), algorithm = INAGG_SWITCHML, flags = 0;
    uint64_t nonce = 1000u + rank;
    inagg_mac_key key{}; // none
    uint64_t challenge = 0;
    uint8_t mac = host;

    Endpoint endpoint() const {
        return {.mac = {2, 0, 0, 0, 0, mac}, .address = *Address::parse("10.77.0." + std::to_string(host))};
    }
    std::vector<uint8_t> says(inagg_type type, uint16_t generation = 0) const {
        inagg_hdr header{};
        header.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | type);
        header.job = htons(7);
        header.source = htons(rank);
        header.generation = htons(generation);
        inagg_join join{};
        join.nonce = nonce;
        join.size = htons(size);
        join.elements = htons(352);
        join.receive_port = htons(static_cast<uint16_t>(5000 + rank));
        join.algorithm = algorithm;
        join.flags = flags;
        inagg_hdr_set_challenge(&header, challenge);
        if (inagg_mac_key_is_set(&key))
            inagg_hdr_prove(&header, &join, &key);
        return write_punted(port, endpoint(), {own_mac, own}, htons(INAGG_PORT), header, join);
    }
};

// What the agent has sent, taken apart as a rank would.
struct Answer {
    uint16_t port;
    Mac to;
    uint8_t tos;
    uint16_t from_udp, to_udp;
    inagg_hdr header;
    inagg_config config;

    explicit Answer(const std::vector<uint8_t> &frame) {
        auto half = [&](size_t at) { return static_cast<uint16_t>(frame.at(at) << 8 | frame.at(at + 1)); };
        EXPECT_EQ(frame.size(), 16u + 14 + 20 + 8 + 64 + 40);
        EXPECT_EQ(half(12), 0x88b5);
        port = half(14);
        std::copy_n(frame.begin() + 16, to.size(), to.begin());
        tos = frame.at(31);
        from_udp = half(50);
        to_udp = half(52);
        EXPECT_EQ(half(56), 0) << "UDP checksum";
        std::memcpy(&header, &frame.at(58), sizeof header);
        std::memcpy(&config, &frame.at(122), sizeof config);
        EXPECT_TRUE(inagg_hdr_intact(&header) && inagg_packet_intact(&header, inagg_body_checksum(&config)));
    }
    uint8_t type() const { return inagg_hdr_type(&header); }
    uint32_t reason() const { return ntohl(header.slot); }
    uint16_t generation() const { return ntohs(header.generation); }
};

class P4AgentTest : public ::testing::Test {
protected:
    Policy policy{.slots = 512, .job_slots = 16, .limits = bmv2_limits(INAGG_SWITCHML)};
    Surroundings around{.settings = {.cpu_port = 255, .address4 = own, .address6 = {}, .boot = 0xb007, .mac = own_mac},
                        .ports = {{"p0", 1}, {"p1", 2}, {"p2", 3}}};
    FakeSwitch plane;
    std::vector<Answer> answers;
    std::optional<P4Agent> agent;

    void SetUp() override { start(); }
    void start() {
        agent.emplace(plane, policy, around, [this](std::span<const uint8_t> frame) {
            answers.emplace_back(std::vector<uint8_t>(frame.begin(), frame.end()));
        });
        agent->start({});
        plane.done.clear();
    }
    // The answers to what the worker says.
    std::vector<Answer> hear(const Worker &worker, inagg_type type = INAGG_JOIN) {
        answers.clear();
        agent->frame(worker.says(type, agent->book().jobs().contains(7) ? record().generation : 0));
        return answers;
    }
    const inagg_job &record() const { return agent->book().jobs().at(7).record; }
    uint64_t drops(inagg_reason reason) const {
        for (const auto &row : agent->read("drops", {}))
            if (row["number"] == int{reason})
                return row["packets"];
        return 0;
    }
    void expect_config(const std::vector<Answer> &got, const Worker &to) {
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].type(), INAGG_CONFIG);
        EXPECT_EQ(got[0].port, to.port);
        EXPECT_EQ(got[0].to, to.endpoint().mac);
        EXPECT_EQ(got[0].to_udp, 5000 + to.rank);
        EXPECT_EQ(got[0].config.nonce, to.nonce);
        EXPECT_EQ(got[0].generation(), record().generation);
    }
    void expect_refused(const std::vector<Answer> &got, inagg_reason reason) {
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].type(), INAGG_REFUSED);
        EXPECT_EQ(got[0].reason(), reason);
    }
};

} // namespace

TEST_F(P4AgentTest, StartsFromEmptyTables) {
    agent->start({});
    EXPECT_EQ(plane.done, (std::vector<std::string>{"reset", "put stations", "put settings"}));
    EXPECT_EQ(plane.flood, (std::vector<uint16_t>{255, 1, 2, 3}));
    EXPECT_EQ(plane.stations.size(), 1u);
}

TEST_F(P4AgentTest, FirstJoinIsAnsweredAtOnce) {
    const Worker worker{.rank = 0, .flags = INAGG_JOIN_CHECKED};
    const auto got = hear(worker);
    expect_config(got, worker);
    EXPECT_EQ(got[0].tos, INAGG_TOS);
    EXPECT_EQ(got[0].from_udp, INAGG_PORT);
    EXPECT_EQ(ntohs(got[0].header.boot), 0xb007);
    EXPECT_EQ(ntohs(got[0].header.fan_in), 2);
    EXPECT_EQ(be64toh(got[0].header.contributors), 3u);
    EXPECT_EQ(ntohs(got[0].config.elements), 64);
    EXPECT_EQ(ntohl(got[0].config.slots), 16u);
    EXPECT_EQ(got[0].config.flags, INAGG_JOIN_TREE) << "no payload checksums, and no halves";
    EXPECT_EQ(plane.jobs.at(7).copies, (std::vector<Copy>{{0, 1}}));
    EXPECT_EQ(plane.stations.size(), 2u);
}

TEST_F(P4AgentTest, RepeatedJoinChangesNothing) {
    hear({.rank = 0});
    plane.done.clear();
    expect_config(hear({.rank = 0}), {.rank = 0});
    EXPECT_TRUE(plane.done.empty());
    EXPECT_EQ(agent->read("stats", 7)[0]["joins"], 2);
}

TEST_F(P4AgentTest, AllRanksGetCopies) {
    hear({.rank = 0});
    expect_config(hear({.rank = 1}), {.rank = 1});
    EXPECT_EQ(plane.jobs.at(7).copies, (std::vector<Copy>{{0, 1}, {1, 2}}));
}

TEST_F(P4AgentTest, OtherAlgorithmIsRefused) {
    expect_refused(hear({.rank = 0, .algorithm = INAGG_TRIO}), INAGG_R_ALGORITHM);
    EXPECT_TRUE(plane.jobs.empty());
    const auto refusals = agent->refusals().rows(Clock::now());
    ASSERT_EQ(refusals.size(), 1u);
    EXPECT_EQ(refusals[0]["reason"], "ALGORITHM");
    EXPECT_EQ(refusals[0]["joins"], 1);
}

// Its sender may be anybody's address.
TEST_F(P4AgentTest, RefusesNotOften) {
    size_t refused = 0;
    for (int i = 0; i < 1000; i++)
        refused += hear({.rank = 0, .algorithm = INAGG_TRIO}).size();
    EXPECT_GE(refused, 200u);
    EXPECT_LT(refused, 1000u);
}

TEST_F(P4AgentTest, DamagedJoinIsCountedOnly) {
    std::vector<uint8_t> frame = Worker{.rank = 0}.says(INAGG_JOIN);
    frame.back() ^= 1; // of the body, which only the payload checksum covers
    agent->frame(frame);
    EXPECT_EQ(drops(INAGG_R_PAYLOAD_CHECKSUM), 1u);
    frame[60] ^= 1;
    agent->frame(frame);
    EXPECT_EQ(drops(INAGG_R_HEADER_CHECKSUM), 1u);
    for (size_t bytes = 0; bytes < frame.size(); bytes++)
        agent->frame(std::span(frame).first(bytes));
    EXPECT_EQ(drops(INAGG_R_LENGTH), frame.size());
    agent->frame(Worker{.rank = 0}.says(INAGG_CONTRIBUTION));
    EXPECT_EQ(drops(INAGG_R_TYPE), 1u);
    EXPECT_TRUE(answers.empty() && plane.jobs.empty());
}

TEST_F(P4AgentTest, RankIsWhereItHasJoined) {
    hear({.rank = 0});
    EXPECT_TRUE(hear({.rank = 0, .port = 2, .host = 99}).empty()) << "it waits, and is refused later";
    EXPECT_EQ(plane.jobs.at(7).copies, (std::vector<Copy>{{0, 1}}));
}

TEST_F(P4AgentTest, ARankIsWhereItsLatestJoinCameFrom) {
    const Worker damaged{.rank = 0, .mac = 99}, whole{.rank = 0};
    expect_config(hear(damaged), damaged);
    EXPECT_EQ(agent->book().jobs().at(7).members[0].mac[5], 99);
    plane.done.clear();
    expect_config(hear(whole), whole);
    EXPECT_EQ(agent->book().jobs().at(7).members[0].mac[5], 10);
    EXPECT_FALSE(plane.done.empty()) << "the switch is told, too";
}

TEST_F(P4AgentTest, LastLeaveEndsTheJob) {
    hear({.rank = 0});
    hear({.rank = 1});
    hear({.rank = 0}, INAGG_LEAVE);
    EXPECT_EQ(plane.jobs.at(7).copies, (std::vector<Copy>{{1, 2}}));
    hear({.rank = 1}, INAGG_LEAVE);
    EXPECT_TRUE(plane.jobs.empty());
    EXPECT_EQ(plane.stations.size(), 1u);
}

TEST_F(P4AgentTest, NewRunFindsEmptySlots) {
    hear({.rank = 0});
    hear({.rank = 1});
    const uint16_t generation = record().generation;
    plane.done.clear();
    const auto got = hear({.rank = 0, .nonce = 5});
    EXPECT_EQ(record().generation, static_cast<uint16_t>(generation + 1));
    EXPECT_EQ(std::vector(plane.done.begin(), plane.done.begin() + 3),
              (std::vector<std::string>{"remove job", "clear slots of job 0", "put job"}));
    ASSERT_EQ(got.size(), 3u); // both ranks of the former run, and the new one
    EXPECT_EQ(got[1].type(), INAGG_REFUSED);
    EXPECT_EQ(got[1].reason(), INAGG_R_REPLACED);
    EXPECT_EQ(got[1].port, 2);
    EXPECT_EQ(got[1].config.nonce, 1001u);
    EXPECT_EQ(got[2].type(), INAGG_CONFIG);
}

TEST_F(P4AgentTest, SwitchBelowSpeaksForItsRanks) {
    const Worker first{.rank = 0, .size = 3, .port = 3, .host = 128, .flags = INAGG_JOIN_TREE};
    Worker second = first;
    second.rank = 1;
    second.nonce = 1001;
    expect_refused(hear(first), INAGG_R_PARENT);

    policy.children = {{.port = 3, .address = *Address::parse("10.77.0.128")}};
    start();
    EXPECT_TRUE(hear(first).empty()) << "its other ranks are not known yet";
    EXPECT_TRUE(hear(second).empty());
    hear({.rank = 2, .size = 3, .port = 1});
    const auto got = hear(first);
    expect_config(got, first);
    EXPECT_EQ(be64toh(got[0].header.contributors), 3u);
    EXPECT_EQ(plane.jobs.at(7).copies, (std::vector<Copy>{{0, 3}, {2, 1}}));
}

TEST_F(P4AgentTest, ConfiguredJobs) {
    agent->add_job(parse_job_spec("7:size=2,slots=32,member=1@p2/10.77.0.11"));
    EXPECT_TRUE(plane.jobs.at(7).copies.empty()) << "nobody has joined";
    expect_refused(hear({.rank = 1}), INAGG_R_PORT);
    expect_config(hear({.rank = 1, .port = 3}), {.rank = 1, .port = 3});
    EXPECT_EQ(agent->read("job", 7)["members"][1]["port"], "p2");
    agent->remove_job(7);
    EXPECT_TRUE(plane.jobs.empty());
    EXPECT_THROW(agent->add_job(parse_job_spec("7:size=2,member=0@p9/10.77.0.11")), Error);
    EXPECT_THROW(agent->add_job(parse_job_spec("7:size=2,checked")), Error);
    EXPECT_THROW(agent->add_job(parse_job_spec("7:size=2,elements=96")), Error);
    EXPECT_THROW(agent->add_job(parse_job_spec("7:size=2,algorithm=canary")), Error);
    EXPECT_THROW(agent->read("job", 7), Error);
}

TEST_F(P4AgentTest, NobodyJoinsByAPortThatIsNotServed) {
    EXPECT_TRUE(hear({.rank = 0, .port = 200}).empty());
    EXPECT_TRUE(plane.jobs.empty());
    EXPECT_EQ(drops(INAGG_R_PORT), 1u);
}

TEST_F(P4AgentTest, JobsAreNoLargerThanTheSwitchHasRanks) {
    policy.limits.ranks = 2;
    start();
    expect_refused(hear({.rank = 0, .size = 3}), INAGG_R_POLICY);
    EXPECT_THROW(agent->add_job(parse_job_spec("7:size=3")), Error);
    hear({.rank = 0, .size = 2});
    EXPECT_EQ(plane.jobs.size(), 1u);
}

TEST_F(P4AgentTest, PortGoesWithItsRanks) {
    hear({.rank = 0});
    hear({.rank = 1});
    agent->port_gone(2);
    EXPECT_EQ(plane.jobs.at(7).copies, (std::vector<Copy>{{0, 1}}));
}

TEST_F(P4AgentTest, JobsWhoseRanksDoNotComeEnd) {
    policy.idle = 0s;
    policy.join = 0s;
    start();
    hear({.rank = 0});
    plane.counted[record().index].packets = 5;
    agent->poll_activity();
    EXPECT_TRUE(plane.jobs.empty()) << "no further rank has joined";
}

TEST_F(P4AgentTest, CountersAreTheSwitchs) {
    hear({.rank = 0});
    plane.counted[record().index].additions = 12;
    plane.counted[INAGG_STATS_NO_JOB].drops[INAGG_R_JOB] = 3;
    EXPECT_EQ(agent->read("stats", 7)[0]["additions"], 12);
    EXPECT_EQ(drops(INAGG_R_JOB), 3u);
    EXPECT_EQ(agent->read("status", {})["slots_used"], 24);
    EXPECT_EQ(agent->read("jobs", {})[0]["joined"], 1);
}

TEST_F(P4AgentTest, EndTellsRanks) {
    hear({.rank = 0});
    answers.clear();
    agent->end_jobs();
    expect_refused(answers, INAGG_R_JOB);
    EXPECT_TRUE(plane.jobs.empty());
}

// With a server behind port 3.
class P4AgentBelow : public P4AgentTest {
protected:
    const Endpoint server{.mac = {2, 0, 0, 0, 0, 0xaa}, .address = *Address::parse("10.77.0.2")};

    void SetUp() override {
        policy.limits = bmv2_limits(INAGG_ATP);
        policy.parents = {{.port = 3, .address = server.address}};
        around.settings.has_parent = true;
        start();
    }
    // The server's answer to the JOIN of that rank.
    std::vector<Answer> configure(const Worker &worker, uint16_t elements = 64, uint8_t flags = INAGG_JOIN_TREE) {
        inagg_hdr header{};
        header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_CONFIG;
        header.job = htons(7);
        header.source = htons(worker.rank);
        header.generation = htons(99);
        header.contributors = htobe64(3);
        inagg_config config{};
        config.nonce = worker.nonce;
        config.size = htons(2);
        config.elements = htons(elements);
        config.slots = htonl(16);
        config.control_slots = htonl(8);
        config.algorithm = INAGG_ATP;
        config.flags = flags;
        inagg_join body;
        std::memcpy(&body, &config, sizeof body);
        answers.clear();
        agent->frame(write_punted(3, server, {own_mac, own}, htons(INAGG_PORT), header, body));
        return answers;
    }
    bool has_table(const std::string &table) const {
        const auto &entries = plane.jobs.at(7).entries;
        return std::any_of(entries.begin(), entries.end(), [&](const Entry &entry) { return entry.table == table; });
    }
};

TEST_F(P4AgentBelow, JoinsGoOnToTheParentAsThisSwitchCan) {
    const auto got = hear({.rank = 0, .algorithm = INAGG_ATP, .flags = INAGG_JOIN_CHECKED});
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].type(), INAGG_JOIN);
    EXPECT_EQ(got[0].port, 3);
    EXPECT_EQ(got[0].to_udp, INAGG_PORT);
    EXPECT_EQ(got[0].header.boot, 0) << "or the parent takes the rank for one that has been there";
    inagg_join join;
    std::memcpy(&join, &got[0].config, sizeof join);
    EXPECT_EQ(ntohs(join.elements), 64);
    EXPECT_EQ(join.flags, INAGG_JOIN_TREE) << "no payload checksums";
}

TEST_F(P4AgentBelow, TheParentsConfigSeatsTheRank) {
    const Worker worker{.rank = 0, .algorithm = INAGG_ATP};
    hear(worker);
    EXPECT_TRUE(configure(worker).empty()) << "the rank asks again";
    EXPECT_TRUE(has_table("parents"));
    EXPECT_EQ(record().generation, 99);
    expect_config(hear(worker), worker);
}

TEST_F(P4AgentBelow, AJobThatDoesNotFitIsNotTaken) {
    const Worker worker{.rank = 0, .algorithm = INAGG_ATP};
    for (const auto &[elements, flags] : {std::pair{352, 0}, {64, int{INAGG_JOIN_CHECKED}}}) {
        hear(worker);
        const auto got = configure(worker, static_cast<uint16_t>(elements), static_cast<uint8_t>(INAGG_JOIN_TREE | flags));
        expect_refused(got, INAGG_R_FULL);
        EXPECT_TRUE(agent->book().jobs().empty());
    }
}

TEST_F(P4AgentBelow, WhoIsNotTheParentIsNotBelieved) {
    const Worker worker{.rank = 0, .algorithm = INAGG_ATP};
    hear(worker);
    policy.parents = {{.port = 2, .address = server.address}};
    start();
    EXPECT_TRUE(configure(worker).empty());
    EXPECT_TRUE(agent->book().jobs().empty());
}

// Trio's floors, and the clock.
TEST_F(P4AgentTest, TheClockRunsWhileThereAreJobs) {
    policy.limits = bmv2_limits(INAGG_TRIO);
    policy.floors = 512;
    around.settings.shared_slots = bmv2_shared_slots(INAGG_TRIO);
    start();
    EXPECT_FALSE(agent->clock_interval());
    hear({.rank = 0, .algorithm = INAGG_TRIO});
    EXPECT_TRUE(agent->clock_interval());
    std::vector<std::vector<uint8_t>> ticks;
    P4Agent another(plane, policy, around,
                    [&](std::span<const uint8_t> frame) { ticks.emplace_back(frame.begin(), frame.end()); });
    another.clock();
    ASSERT_EQ(ticks.size(), 4u * bmv2_shared_slots(INAGG_TRIO));
    EXPECT_EQ(ticks[5].size(), 60u);
    EXPECT_EQ(ticks[5].at(15), 5) << "the place";
    EXPECT_EQ(ticks[5].at(11), clock_sweeps | clock_decides);
}

TEST_F(P4AgentTest, AJobWithAKeyIsJoinedWithIt) {
    const std::string path = testing::TempDir() + "p4-key";
    std::ofstream(path) << "7 01000000000000000200000000000000\n";
    ASSERT_EQ(chmod(path.c_str(), 0600), 0);
    agent->add_job(parse_job_spec("7:size=2,key-file=" + path));
    std::filesystem::remove(path);
    const auto expect_reason = [](const std::vector<Answer> &got, inagg_reason reason) {
        ASSERT_EQ(got.size(), 1u);
        EXPECT_EQ(got[0].type(), INAGG_REFUSED);
        EXPECT_EQ(got[0].reason(), reason);
    };
    Worker worker{.rank = 0};
    expect_reason(hear(worker), INAGG_R_KEY);
    EXPECT_TRUE(hear({.rank = 0, .nonce = 0}).empty()) << "of no worker";
    worker.key = {{1, 2}};
    expect_reason(hear(worker), INAGG_R_CHALLENGE);
    worker.challenge = inagg_hdr_challenge(&answers[0].header);
    const auto got = hear(worker);
    expect_config(got, worker);
    EXPECT_TRUE(inagg_hdr_is_proven(&got[0].header, &got[0].config, &worker.key));
    EXPECT_TRUE(hear({.rank = 0}, INAGG_LEAVE).empty());
    EXPECT_EQ(joined_count(agent->book().jobs().at(7).members), 1u) << "anybody's LEAVE";
    hear(worker, INAGG_LEAVE);
    EXPECT_EQ(joined_count(agent->book().jobs().at(7).members), 0u);
}
