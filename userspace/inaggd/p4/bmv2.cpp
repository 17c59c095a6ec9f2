// SPDX-License-Identifier: BSD-2-Clause
#include "p4/bmv2.hpp"

#include "error.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>

extern char **environ;

namespace inaggd::p4 {
namespace {

constexpr const char *prompt = "RuntimeCmd: ";
constexpr int answer_ms = 5000;
constexpr uint16_t flood_group = 0xffff;
constexpr uint32_t commands_at_once = 256; // what it says to them fits a pipe

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

Bmv2::Bmv2(uint16_t thrift_port) : thrift_port_(thrift_port) {
    signal(SIGPIPE, SIG_IGN); // its end is an error
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
    answer();
}

// Nothing is under way, or the switch does not answer: then it would wait for that.
Bmv2::~Bmv2() {
    to_.reset();
    from_.reset();
    if (child_ > 0) {
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
    }
}

void Bmv2::say(const std::string &lines) {
    if (write(to_.get(), lines.data(), lines.size()) != static_cast<ssize_t>(lines.size()))
        throw Error("BMv2's simple_switch_CLI has ended: {}", system_text(errno));
}

// What it says until it prompts again. It ends when it finds no switch, and when the switch does.
std::string Bmv2::answer() {
    if (silent_) // what it says now answers something else
        throw Error("BMv2's simple_switch at Thrift port {} has not answered in time: start inaggd again", thrift_port_);
    size_t end;
    while ((end = heard_.find(prompt)) == std::string::npos) {
        char buffer[65536];
        pollfd readable{.fd = from_.get(), .events = POLLIN, .revents = 0};
        silent_ = poll(&readable, 1, answer_ms) == 0;
        if (silent_)
            throw Error("BMv2's simple_switch at Thrift port {} has not answered for {} s", thrift_port_, answer_ms / 1000);
        const ssize_t bytes = read(from_.get(), buffer, sizeof buffer);
        if (bytes < 0 && errno == EINTR)
            continue;
        if (bytes <= 0) {
            spdlog::debug("simple_switch_CLI has ended: {}", heard_);
            throw Error("BMv2's simple_switch does not answer at Thrift port {}: start it, and then inaggd", thrift_port_);
        }
        heard_.append(buffer, static_cast<size_t>(bytes));
    }
    const std::string said = heard_.substr(0, end);
    heard_.erase(0, end + std::string_view(prompt).size());
    return said;
}

void Bmv2::need_success(const std::string &command, const std::string &said) {
    for (const char *mark : {"Error", "Invalid", "Unknown"})
        if (said.find(mark) != std::string::npos)
            throw Error("simple_switch: {}: {}", command, said);
}

std::string Bmv2::run(const std::string &command) {
    say(command + "\n");
    std::string said = answer();
    need_success(command, said);
    return said;
}

uint64_t Bmv2::handle_of(const std::string &command, const std::string &said) const {
    if (const auto handle = number_behind(said, "with handle "))
        return *handle;
    throw Error("simple_switch: {}: {}", command, said);
}

void Bmv2::put(const Entry &entry) {
    std::vector<std::string> values;
    for (const Parameter &parameter : entry.parameters)
        values.push_back(parameter.value);
    const std::string parameters = fmt::format("{}", fmt::join(values, " "));
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
    if (now.group != wanted.group)
        remove_group(now.group);
    now = wanted; // also if not all of it can be written: what has been is to be removed with the job
    put_group(wanted.group, wanted.copies);
    for (const Entry &entry : wanted.entries)
        put(entry);
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
    std::vector<Copy> copies;
    for (uint16_t port : ports)
        copies.push_back({.rank = 0, .port = port});
    put_group(flood_group, copies);
}

// Whoever stays misses nothing.
void Bmv2::put_group(uint16_t group, const std::vector<Copy> &copies) {
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
        const std::string command = fmt::format("mc_node_create {} {}", copy.rank, copy.port);
        const uint64_t node = handle_of(command, run(command));
        nodes[copy] = node;
        run(fmt::format("mc_node_associate {} {}", group, node));
    }
}

void Bmv2::remove_node(uint16_t group, uint64_t node) {
    run(fmt::format("mc_node_dissociate {} {}", group, node));
    run(fmt::format("mc_node_destroy {}", node));
}

void Bmv2::remove_group(uint16_t group) {
    const auto found = nodes_.find(group);
    if (found == nodes_.end())
        return;
    for (const auto &[copy, node] : found->second)
        remove_node(group, node);
    run(fmt::format("mc_mgrp_destroy {}", group));
    nodes_.erase(found);
}

// Two registers each.
size_t Bmv2::slot_count() {
    try {
        return read_registers("slot_flags").size() / 2;
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
        say(fmt::format("register_read {} 0\n", name));
        if (answer().find(std::string(name) + "[") != std::string::npos)
            return algorithm;
    }
    return INAGG_SWITCHML;
}

void Bmv2::reset() {
    run("reset_state");
    installed_.clear();
    jobs_.clear();
    nodes_.clear();
}

void Bmv2::write_registers(const std::string &name, uint32_t first, uint32_t count, uint64_t value) {
    for (uint32_t done = 0; done < count; done += commands_at_once) {
        const uint32_t last = std::min(done + commands_at_once, count);
        std::string lines;
        for (uint32_t i = done; i < last; i++)
            lines += fmt::format("register_write {} {} {}\n", name, first + i, value);
        say(lines);
        for (uint32_t i = done; i < last; i++)
            need_success("register_write " + name, answer());
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
