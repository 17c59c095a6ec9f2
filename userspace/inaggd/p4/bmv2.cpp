// SPDX-License-Identifier: BSD-2-Clause
#include "p4/bmv2.hpp"

#include "error.hpp"
#include "links.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <optional>

namespace inaggd::p4 {
namespace {

constexpr uint32_t commands_at_once = 256; // what it says to them fits a pipe

// As in p4/v1model/state.p4: struct inagg_stats is the beginning of a row.
constexpr size_t stats_rows = INAGG_STATS_NO_JOB + 1, stats_columns = 128;
static_assert(sizeof(inagg_stats) <= stats_columns * sizeof(uint64_t));

// The number behind the last `mark` of the text.
std::optional<uint64_t> number_behind(const std::string &text, const std::string &mark) {
    const size_t at = text.rfind(mark);
    if (at == std::string::npos)
        return {};
    try {
        return std::stoull(text.substr(at + mark.size()));
    } catch (const std::logic_error &) {
        return {};
    }
}

std::string values_of(const Entry &entry) {
    std::vector<std::string> values;
    for (const Parameter &parameter : entry.parameters)
        values.push_back(parameter.value);
    return fmt::format("{}", fmt::join(values, " "));
}

} // namespace

Bmv2::Bmv2(uint16_t thrift_port)
    : thrift_port_(thrift_port), cli_({.command = {"simple_switch_CLI", "--thrift-port", std::to_string(thrift_port)},
                                       .end = "RuntimeCmd: ",
                                       .name = fmt::format("BMv2's simple_switch at Thrift port {}", thrift_port),
                                       .comes_with = "BMv2, whose bin directory must be on the PATH",
                                       .answer_ms = 5000}) {
    cli_.answer(); // it ends when it finds no switch, and when the switch does
}

void Bmv2::need_success(const std::string &command, const std::string &said) {
    for (const char *mark : {"Error", "Invalid", "Unknown"})
        if (said.find(mark) != std::string::npos)
            throw Error("simple_switch: {}: {}", command, said);
}

std::string Bmv2::run(const std::string &command) {
    cli_.say(command + "\n");
    std::string said = cli_.answer();
    need_success(command, said);
    return said;
}

// Of what the command makes.
uint64_t Bmv2::handle_of(const std::string &command) {
    const std::string said = run(command);
    if (const auto handle = number_behind(said, "with handle "))
        return *handle;
    throw Error("simple_switch: {}: {}", command, said);
}

void Bmv2::write_default(const Entry &entry) {
    run(fmt::format("table_set_default {} {} {}", entry.table, entry.action, values_of(entry)));
}

void Bmv2::add(const Entry &entry) {
    handles_[{entry.table, entry.key}] = handle_of(
        fmt::format("table_add {} {} {} => {}", entry.table, entry.action, fmt::join(entry.key, " "), values_of(entry)));
}

void Bmv2::modify(const Entry &entry) {
    run(fmt::format("table_modify {} {} {} {}", entry.table, entry.action, handles_.at({entry.table, entry.key}),
                    values_of(entry)));
}

void Bmv2::erase(const Entry &entry) {
    const auto handle = handles_.find({entry.table, entry.key});
    run(fmt::format("table_delete {} {}", entry.table, handle->second));
    handles_.erase(handle);
}

void Bmv2::write_group(uint16_t group, const std::vector<Copy> &copies) {
    const auto [found, is_new] = nodes_.try_emplace(group);
    std::map<Copy, uint64_t> &nodes = found->second;
    if (is_new)
        run(fmt::format("mc_mgrp_create {}", group));
    std::erase_if(nodes, [&](const auto &node) {
        const bool gone = std::find(copies.begin(), copies.end(), node.first) == copies.end();
        if (gone)
            remove_node(group, node.second);
        return gone;
    });
    for (const Copy &copy : copies) {
        if (nodes.contains(copy))
            continue;
        const uint64_t node = handle_of(fmt::format("mc_node_create {} {}", copy.rank, copy.port));
        nodes[copy] = node;
        run(fmt::format("mc_node_associate {} {}", group, node));
    }
}

void Bmv2::remove_node(uint16_t group, uint64_t node) {
    run(fmt::format("mc_node_dissociate {} {}", group, node));
    run(fmt::format("mc_node_destroy {}", node));
}

void Bmv2::erase_group(uint16_t group) {
    const auto nodes = nodes_.find(group);
    if (nodes == nodes_.end())
        return;
    for (const auto &[copy, node] : nodes->second)
        remove_node(group, node);
    run(fmt::format("mc_mgrp_destroy {}", group));
    nodes_.erase(nodes);
}

Program Bmv2::program() {
    const uint8_t its = algorithm();
    return {.name = fmt::format("BMv2 at Thrift port {}", thrift_port_),
            .slots = slot_count(),
            .shared_slots = bmv2_shared_slots(its),
            .limits = bmv2_limits(its)};
}

// Its ports are interfaces.
std::map<uint16_t, bool> Bmv2::links(const std::map<std::string, uint16_t> &ports) {
    std::map<uint16_t, bool> links;
    for (const auto &[name, port] : ports)
        links[port] = has_link(name);
    return links;
}

// Two registers each.
uint32_t Bmv2::slot_count() {
    try {
        return static_cast<uint32_t>(read_registers("slot_flags").size() / 2);
    } catch (const Error &error) {
        throw Error("Thrift port {}: {}; is the program there one of p4/v1model?", thrift_port_, error.what());
    }
}

// By the registers that only one program has.
uint8_t Bmv2::algorithm() {
    const std::pair<const char *, uint8_t> marks[] = {{"owner_gone", INAGG_ATP},
                                                      {"floor_known", INAGG_TRIO},
                                                      {"descriptor_children", INAGG_CANARY},
                                                      {"marked_packets", INAGG_PANAMA}};
    for (const auto &[name, algorithm] : marks) {
        cli_.say(fmt::format("register_read {} 0\n", name));
        if (cli_.answer().find(std::string(name) + "[") != std::string::npos)
            return algorithm;
    }
    return INAGG_SWITCHML;
}

void Bmv2::erase_all() {
    run("reset_state");
    handles_.clear();
    nodes_.clear();
}

// Places that jobs share need not be cleared: what is there of another generation gives way.
void Bmv2::clear_slots(const inagg_job &record) {
    if (has_records(record))
        write_floors(record);
    else if (!shares_slots(record))
        write_registers("slot_flags", 2 * record.first_slot, 2 * pool_slots(record), 0);
}

// The first blocks of the generation are the next.
void Bmv2::write_floors(const inagg_job &record) {
    const std::vector<inagg_floor> floors = first_floors(record);
    const auto count = static_cast<uint32_t>(floors.size());
    for (uint32_t i = 0; i < count; i++)
        write_registers("floor_block", record.first_slot + i, 1, floors[i].block);
    write_registers("floor_generation", record.first_slot, count, record.generation);
    write_registers("floor_epoch", record.first_slot, count, 0);
    write_registers("floor_known", record.first_slot, count, 1);
    write_registers("open_records", record.index, 1, 0);
}

std::vector<inagg_stats> Bmv2::stats() {
    const std::vector<uint64_t> registers = read_registers("stats");
    if (registers.size() != stats_rows * stats_columns)
        throw Error("the switch has {} counters, not {}: it runs another version of the P4 program", registers.size(),
                    stats_rows * stats_columns);
    std::vector<inagg_stats> rows(stats_rows);
    for (size_t row = 0; row < stats_rows; row++)
        std::memcpy(&rows[row], &registers[row * stats_columns], sizeof rows[row]);
    return rows;
}

void Bmv2::clear_stats(uint32_t row) { write_registers("stats", row * stats_columns, sizeof(inagg_stats) / sizeof(uint64_t), 0); }

void Bmv2::write_registers(const std::string &name, uint32_t first, uint32_t count, uint64_t value) {
    for (uint32_t done = 0; done < count; done += commands_at_once) {
        const uint32_t last = std::min(done + commands_at_once, count);
        std::string lines;
        for (uint32_t i = done; i < last; i++)
            lines += fmt::format("register_write {} {} {}\n", name, first + i, value);
        cli_.say(lines);
        for (uint32_t i = done; i < last; i++)
            need_success("register_write " + name, cli_.answer());
    }
}

// "name= 0, 1, 2"
std::vector<uint64_t> Bmv2::read_registers(const std::string &name) {
    const std::string said = run(fmt::format("register_read {}", name));
    const size_t equals = said.find('=');
    if (equals == std::string::npos)
        throw Error("simple_switch: register_read {}: {}", name, said);
    std::vector<uint64_t> values;
    for (size_t at = equals; at != std::string::npos && at + 1 < said.size(); at = said.find(',', at + 1))
        values.push_back(std::stoull(said.substr(at + 1)));
    return values;
}

} // namespace inaggd::p4
