// SPDX-License-Identifier: BSD-2-Clause
// What the tables of a P4 switch (p4/) say of a job: the same for every target, and without I/O.
#pragma once

#include "names.hpp"

#include <inagg/core/job.h>
#include <inagg/core/record.h>
#include <switch_maps.h>

#include <array>
#include <compare>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace inaggd::p4 {

// As values and keys are written.
std::string hex(uint64_t number);
std::string hex(std::span<const uint8_t> bytes);
std::string hex(const Address &address);

// Of an action, as p4/v1model names it, in its order. The number is hexadecimal.
struct Parameter {
    std::string name;
    std::string value;

    auto operator<=>(const Parameter &) const = default;
};

// Names without the control that the table is in; numbers in hexadecimal.
struct Entry {
    std::string table;
    std::vector<std::string> key;
    std::string action;
    std::vector<Parameter> parameters;

    // Of a parameter. Throws Error if the action has none of that name.
    const std::string &value(const std::string &name) const;
    auto operator<=>(const Entry &) const = default;
};

// One copy of what goes to all ranks.
struct Copy {
    uint16_t rank;
    uint16_t port;

    auto operator<=>(const Copy &) const = default;
};

struct JobEntries {
    std::vector<Entry> entries; // that of table `jobs`, without which there is no job, is the last
    uint16_t group = 0;         // multicast group
    std::vector<Copy> copies;
};

// Of the switch itself.
struct Settings {
    uint16_t cpu_port = 0; // where its agent is
    Address address4, address6;
    uint16_t boot = 0;
    bool has_parent = false;
    std::array<uint8_t, 6> mac{}; // source of what nobody has asked for
    uint32_t shared_slots = 512;  // atp, canary: a power of two
    uint32_t share = 512;         // of them, that one job has; likewise
};
Entry settings_entry(const Settings &settings);

// By rank: its row, and for which ranks the switch at its address may speak. `ifindex` is the P4 port.
struct Seat {
    inagg_member member{};
    uint64_t subtree = 0;
    bool is_represented = false; // by the seat of another rank behind the same switch
};
using Seats = std::array<Seat, INAGG_MAX_RANKS>;

// The switches above, in the order of their configuration; without ports at a root.
using Ups = std::array<inagg_uplink, INAGG_MAX_UPS>;
struct Above {
    Ups ups{};               // with switchml and atp the first is the job's parent
    uint8_t live = 0;        // canary: bitmap of those by which its packets may go
    uint32_t timeout_us = 0; // canary: how long a sum waits for more
};
// A job, as its switch is to know it.
struct Job {
    uint16_t number;
    inagg_job record{};
    Seats seats{};
    Above above{};
    inagg_policy policy{}; // trio: when its blocks are decided without all ranks
};
JobEntries job_entries(const Job &job);

// trio: what the registers floor_block, floor_generation, floor_epoch and floor_known hold when a generation begins, by position.
std::vector<inagg_floor> first_floors(const inagg_job &job);

// canary: of all jobs.
std::vector<Entry> up_entries(const Ups &ups);

// Frames for `mac` leave by `port`.
Entry station_entry(const std::array<uint8_t, 6> &mac, uint16_t port);

} // namespace inaggd::p4
