// SPDX-License-Identifier: BSD-2-Clause
#include "p4/bmv2.hpp"

#include "error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

extern char **environ;

namespace inaggd::p4 {
namespace {

constexpr const char *prompt = "RuntimeCmd: ";
constexpr uint16_t flood_group = 0xffff;

// Both ends, closed in children.
std::array<Fd, 2> make_pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC))
        throw Error("pipe: {}", system_text(errno));
    return {Fd(ends[0]), Fd(ends[1])};
}

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

} // namespace

Bmv2::Bmv2(uint16_t thrift_port) {
    auto [in_reader, in_writer] = make_pipe();
    auto [out_reader, out_writer] = make_pipe();
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in_reader.get(), STDIN_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_writer.get(), STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, out_writer.get(), STDERR_FILENO);
    std::string program = "simple_switch_CLI", option = "--thrift-port", port = std::to_string(thrift_port);
    char *argv[] = {program.data(), option.data(), port.data(), nullptr};
    const int error = posix_spawnp(&child_, program.c_str(), &actions, nullptr, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        throw Error("{}: {}; it comes with BMv2, whose bin directory must be on the PATH", program, system_text(error));
    to_ = std::move(in_writer);
    from_ = std::move(out_reader);
    out_writer.reset();
    try {
        answer();
    } catch (const Error &said) {
        throw Error("no BMv2 simple_switch answers at Thrift port {}: {}", thrift_port, said.what());
    }
}

// Its standard input ends, and so does it.
Bmv2::~Bmv2() {
    to_.reset();
    from_.reset();
    if (child_ > 0)
        waitpid(child_, nullptr, 0);
}

// What it says until it prompts again.
std::string Bmv2::answer() {
    std::string said;
    while (!said.ends_with(prompt)) {
        char buffer[65536];
        const ssize_t bytes = read(from_.get(), buffer, sizeof buffer);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes <= 0)
            throw Error("simple_switch_CLI has ended: {}", said.empty() ? "it said nothing" : said);
        said.append(buffer, static_cast<size_t>(bytes));
    }
    said.resize(said.size() - std::string_view(prompt).size());
    return said;
}

std::string Bmv2::run(const std::string &command) {
    const std::string line = command + "\n";
    if (write(to_.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()))
        throw Error("simple_switch_CLI has ended: {}", system_text(errno));
    std::string said = answer();
    for (const char *mark : {"Error", "Invalid", "Unknown"})
        if (said.find(mark) != std::string::npos)
            throw Error("simple_switch: {}: {}", command, said);
    return said;
}

uint64_t Bmv2::handle_of(const std::string &command, const std::string &said) const {
    if (const auto handle = number_behind(said, "with handle "))
        return *handle;
    throw Error("simple_switch: {}: {}", command, said);
}

void Bmv2::put(const Entry &entry) {
    const std::string parameters = fmt::format("{}", fmt::join(entry.parameters, " "));
    if (entry.key.empty()) {
        run(fmt::format("table_set_default {} {} {}", entry.table, entry.action, parameters));
        return;
    }
    const auto found = installed_.find({entry.table, entry.key});
    if (found == installed_.end()) {
        const std::string command = fmt::format("table_add {} {} {} => {}", entry.table, entry.action,
                                                fmt::join(entry.key, " "), parameters);
        const uint64_t handle = handle_of(command, run(command));
        installed_[{entry.table, entry.key}] = {.entry = entry, .handle = handle};
    } else if (found->second.entry != entry) {
        run(fmt::format("table_modify {} {} {} {}", entry.table, entry.action, found->second.handle, parameters));
        found->second.entry = entry;
    }
}

void Bmv2::remove(const Entry &entry) {
    const auto found = installed_.find({entry.table, entry.key});
    if (found == installed_.end())
        return;
    run(fmt::format("table_delete {} {}", entry.table, found->second.handle));
    installed_.erase(found);
}

void Bmv2::put_job(uint16_t number, const JobEntries &wanted) {
    JobEntries &now = jobs_[number];
    for (const Entry &old : now.entries)
        if (std::none_of(wanted.entries.begin(), wanted.entries.end(), [&](const Entry &entry) {
                return entry.table == old.table && entry.key == old.key;
            }))
            remove(old);
    if (now.copies != wanted.copies || now.group != wanted.group) {
        remove_group(now.group);
        put_group(wanted.group, wanted.copies);
    }
    for (const Entry &entry : wanted.entries)
        put(entry);
    now = wanted;
}

void Bmv2::remove_job(uint16_t number) {
    const auto job = jobs_.find(number);
    if (job == jobs_.end())
        return;
    std::for_each(job->second.entries.rbegin(), job->second.entries.rend(), [this](const Entry &entry) { remove(entry); });
    remove_group(job->second.group);
    jobs_.erase(job);
}

void Bmv2::put_flood(const std::vector<uint16_t> &ports) {
    remove_group(flood_group);
    std::vector<Copy> copies;
    for (uint16_t port : ports)
        copies.push_back({.rank = 0, .port = port});
    put_group(flood_group, copies);
}

void Bmv2::put_group(uint16_t group, const std::vector<Copy> &copies) {
    run(fmt::format("mc_mgrp_create {}", group));
    std::vector<uint64_t> &nodes = nodes_[group];
    for (const Copy &copy : copies) {
        const std::string command = fmt::format("mc_node_create {} {}", copy.rank, copy.port);
        nodes.push_back(handle_of(command, run(command)));
        run(fmt::format("mc_node_associate {} {}", group, nodes.back()));
    }
}

void Bmv2::remove_group(uint16_t group) {
    const auto found = nodes_.find(group);
    if (found == nodes_.end())
        return;
    for (uint64_t node : found->second) {
        run(fmt::format("mc_node_dissociate {} {}", group, node));
        run(fmt::format("mc_node_destroy {}", node));
    }
    run(fmt::format("mc_mgrp_destroy {}", group));
    nodes_.erase(found);
}

void Bmv2::write_register(const std::string &name, uint32_t index, uint64_t value) {
    run(fmt::format("register_write {} {} {}", name, index, value));
}

void Bmv2::clear_registers(const std::string &name) { run(fmt::format("register_reset {}", name)); }

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
