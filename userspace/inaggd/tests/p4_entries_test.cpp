// SPDX-License-Identifier: BSD-2-Clause
#include "p4/entries.hpp"
#include "p4/tofino.hpp"

#include <gtest/gtest.h>

#include <algorithm>

using namespace inaggd;
using namespace inaggd::p4;

namespace {

inagg_job three_ranks() {
    inagg_job job{};
    job.index = 4;
    job.size = 3;
    job.all = inagg_all_ranks(3);
    job.slots = 16;
    job.control_slots = 8;
    job.elements = 64;
    return job;
}

Seat seat(uint16_t rank) {
    Seat seat;
    seat.member.ifindex = 1u + rank;
    seat.member.family = 4;
    seat.member.address[0] = 10;
    seat.member.address[3] = static_cast<uint8_t>(rank);
    return seat;
}

Seats all_seats() {
    Seats seats{};
    for (uint16_t rank = 0; rank < 3; rank++)
        seats[rank] = seat(rank);
    return seats;
}

Job job_of(const inagg_job &record, const Seats &seats = all_seats()) {
    return {.number = 7, .record = record, .seats = seats, .above = {}, .policy = {}};
}

// The second part of the keys in that table.
std::vector<std::string> ranks_in(const JobEntries &job, const std::string &table) {
    std::vector<std::string> ranks;
    for (const Entry &entry : job.entries)
        if (entry.table == table)
            ranks.push_back(entry.key.at(1));
    return ranks;
}

using Texts = std::vector<std::string>;

Texts values_of(const Entry &entry, const Texts &names) {
    Texts values;
    for (const std::string &name : names)
        values.push_back(entry.value(name));
    return values;
}

} // namespace

TEST(P4Entries, AJobIsFoundOnceItsRanksAre) {
    const JobEntries job = job_entries(job_of(three_ranks()));
    EXPECT_EQ(job.entries.back().table, "jobs");
    EXPECT_EQ(job.entries.back().key, Texts{"0x7"});
    EXPECT_EQ(std::count_if(job.entries.begin(), job.entries.end(), [](const Entry &e) { return e.table == "jobs"; }), 1);
    EXPECT_EQ(ranks_in(job, "members"), (Texts{"0x0", "0x1", "0x2"}));
    EXPECT_EQ(ranks_in(job, "copies"), (Texts{"0x0", "0x1", "0x2"}));
    EXPECT_EQ(job.group, 5);
    EXPECT_EQ(job.copies, (std::vector<Copy>{{0, 1}, {1, 2}, {2, 3}}));
}

TEST(P4Entries, WhoIsNotThereGetsNothing) {
    Seats seats = all_seats();
    seats[1] = {};
    const JobEntries job = job_entries(job_of(three_ranks(), seats));
    EXPECT_EQ(ranks_in(job, "members"), (Texts{"0x0", "0x2"}));
    EXPECT_EQ(job.copies, (std::vector<Copy>{{0, 1}, {2, 3}}));
}

TEST(P4Entries, ASwitchBelowGetsOneCopy) {
    Seats seats = all_seats();
    seats[2].is_represented = true;
    const JobEntries job = job_entries(job_of(three_ranks(), seats));
    EXPECT_EQ(ranks_in(job, "members"), (Texts{"0x0", "0x1", "0x2"}));
    EXPECT_EQ(ranks_in(job, "copies"), (Texts{"0x0", "0x1"}));
    EXPECT_EQ(job.copies.size(), 2u);
}

TEST(P4Entries, WhoIsExcludedMaySpeakAndHearsNothing) {
    inagg_job job = three_ranks();
    job.all &= ~inagg_rank_bit(0);
    const JobEntries entries = job_entries(job_of(job));
    EXPECT_EQ(ranks_in(entries, "members"), (Texts{"0x0", "0x1", "0x2"}));
    EXPECT_EQ(ranks_in(entries, "copies"), (Texts{"0x1", "0x2"}));
}

TEST(P4Entries, AddressesAreNumbers) {
    const Entry settings = settings_entry({.cpu_port = 255,
                                           .address4 = *Address::parse("10.77.0.1"),
                                           .address6 = *Address::parse("fd77::1"),
                                           .boot = 0xbeef,
                                           .mac = {2, 0, 0, 0, 0, 1}});
    EXPECT_TRUE(settings.key.empty());
    EXPECT_EQ(values_of(settings, {"cpu_port", "mac", "own4", "own6", "boot"}),
              (Texts{"0xff", "0x020000000001", "0x0a4d0001", "0xfd770000000000000000000000000001", "0xbeef"}));
    const Entry none = settings_entry({.cpu_port = 255, .address4 = {}, .address6 = {}, .boot = 1});
    EXPECT_EQ(values_of(none, {"own4", "own6"}), (Texts{"0x00000000", "0x00000000"}));
    const Entry station = station_entry({2, 0, 10, 77, 0, 1}, 3);
    EXPECT_EQ(station.key, Texts{"0x02000a4d0001"});
    EXPECT_EQ(values_of(station, {"port"}), Texts{"0x3"});
}

TEST(P4Entries, TofinoHasOthers) {
    const std::vector<Entry> own = tofino_entries(settings_entry(
        {.cpu_port = 64, .address4 = *Address::parse("10.77.0.1"), .address6 = *Address::parse("fd77::1"), .boot = 0xbeef}));
    EXPECT_EQ(own, (std::vector<Entry>{
                       {"settings", {}, "set_switch", {{"cpu_port", "0x40"}, {"boot", "0xbeef"}}},
                       {"own4", {"0x0a4d0001"}, "is_own", {}},
                       {"own_sources", {"0x0", "0x0a4d0001"}, "is_forged", {}},
                       {"own6", {"0xfd770000000000000000000000000001"}, "is_own", {}},
                       {"own_sources", {"0xfd7700000000000000000000", "0x00000001"}, "is_forged", {}},
                   }));
    EXPECT_EQ(tofino_entries(settings_entry({.cpu_port = 64, .address4 = {}, .address6 = {}, .boot = 1})).size(), 1u);
    const JobEntries job = tofino_job(job_of(three_ranks()));
    EXPECT_EQ(job.group, 5);
    EXPECT_EQ(job.copies, job_entries(job_of(three_ranks())).copies);
    EXPECT_EQ(ranks_in(job, "members"), (Texts{"0x0", "0x1", "0x2"}));
    EXPECT_EQ(ranks_in(job, "copies"), (Texts{"0x0", "0x1", "0x2"}));
    EXPECT_EQ(job.entries.size(), 7u) << "no places";
    const Entry &set_job = job.entries.back();
    EXPECT_EQ(set_job.table, "jobs");
    EXPECT_EQ(set_job.value("slots"), "0x18") << "data and control slots";
    EXPECT_EQ(set_job.value("everyone"), "0x7");
    EXPECT_EQ(set_job.parameters.size(), 6u);
}

TEST(P4Entries, TofinoHasOthersWithAggregators) {
    Job of = job_of(three_ranks());
    of.record.algorithm = INAGG_ATP;
    inagg_uplink &parent = of.above.ups[0];
    parent.ifindex = 5;
    parent.family = 4;
    parent.address[3] = 3;
    const JobEntries job = tofino_job(of, {.count = 16, .share = 8});
    const Entry &set_job = job.entries.back();
    EXPECT_EQ(set_job.value("last"), "0x7");
    EXPECT_EQ(set_job.value("alone"), "0x0");
    EXPECT_EQ(ranks_in(job, "places"), (Texts{"0x0", "0x1", "0x2"}));
    const auto uplink = std::ranges::find(job.entries, "uplinks", &Entry::table);
    ASSERT_LE(34, job.entries.end() - uplink) << "the way up, the addresses, and who speaks from above to each of 32 ranks";
    EXPECT_EQ(uplink[0], (Entry{"uplinks", {"0x7"}, "set_uplink", {{"port", "0x5"}}}));
    EXPECT_EQ(uplink[1].key, (Texts{"0x7", "0xffff"}));
    EXPECT_EQ(values_of(uplink[1], {"address"}), Texts{"0x00000003"});
    EXPECT_EQ(uplink[33], (Entry{"members", {"0x7", "0x1f", "0x1"}, "set_member", {{"port", "0x5"}, {"address", "0x00000003"}}}));
}

TEST(P4Entries, TofinoFindsLeadersBySlot) {
    Job of = job_of(three_ranks());
    of.record.algorithm = INAGG_CANARY;
    of.above.timeout_us = 2000;
    const inagg_job &job = of.record;
    const std::vector<Entry> entries = tofino_job(of, {.count = 16, .share = 8}).entries;
    const uint32_t slots = job.slots + job.control_slots;
    ASSERT_EQ(entries.size(), 2 * 3 + 1 + slots + 2 * 3 + 1)
        << "places and speakers, a row, positions; members and copies, the job";
    EXPECT_EQ(entries[6].table, "rows");
    EXPECT_EQ(entries[6].key, (Texts{hex(descriptor_row(job)), "0x0"}));
    EXPECT_EQ(entries[6].value("patience"), "0x2") << "visits of the clock, one in each millisecond";
    for (uint32_t slot = 0; slot < slots; slot++) {
        const Entry &position = entries[7 + slot];
        const bool is_control = slot >= job.slots;
        EXPECT_EQ(std::stoul(position.value("leader"), nullptr, 16), slot % 3);
        EXPECT_EQ(std::stoul(position.value("others"), nullptr, 16), 7u & ~(1u << slot % 3));
        EXPECT_EQ(std::stoul(position.value("id"), nullptr, 16) >> 16, std::stoul(entries[6].key[0], nullptr, 16));
        EXPECT_EQ(std::stoul(position.value("id"), nullptr, 16) & 0xffff, slot);
        EXPECT_EQ(std::stoul(position.value("place"), nullptr, 16), is_control ? slot - job.slots : slot);
        EXPECT_EQ(std::stoul(position.value("descriptor"), nullptr, 16) % 2, 0u);
    }
}

TEST(P4Entries, TofinosClockIsAPacketToTheSwitchFromItself) {
    const Mac mac = {2, 0, 0, 0, 0, 1};
    const std::vector<uint8_t> four = tofino_tick(mac, *Address::parse("10.77.0.1")),
                               six = tofino_tick(mac, *Address::parse("fd77::1"));
    ASSERT_EQ(four.size(), 14u + 20 + 200);
    ASSERT_EQ(six.size(), 14u + 40 + 200);
    EXPECT_EQ(std::vector(four.begin(), four.begin() + 6), std::vector(four.begin() + 6, four.begin() + 12));
    EXPECT_EQ(std::vector(four.begin() + 26, four.begin() + 34), (std::vector<uint8_t>{10, 77, 0, 1, 10, 77, 0, 1}));
    EXPECT_EQ(std::vector(four.begin() + 36, four.begin() + 40), (std::vector<uint8_t>{0x2e, 0xe0, 0, 200}))
        << "port 12000, and length";
    EXPECT_TRUE(std::ranges::all_of(four.begin() + 42, four.end(), [](uint8_t byte) { return !byte; }));
}
