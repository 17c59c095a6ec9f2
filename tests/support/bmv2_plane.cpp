// SPDX-License-Identifier: BSD-2-Clause
#include "support/bmv2_plane.hpp"

#include "error.hpp"
#include "p4/punt.hpp"
#include "switch_maps.h"

#include <inagg/core/checksum.h>
#include <inagg/core/packet.h>

#include <fmt/format.h>

#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <set>
#include <stdexcept>
#include <thread>

namespace support {
namespace {

using namespace std::chrono_literals;
using inagg::Fd;
using inaggd::system_text;

constexpr uint16_t thrift_port = 9090;
constexpr uint32_t cleared_slots = 64; // as the vectors use at most
constexpr size_t columns = 128, drops_column = 17;

std::string outer(uint16_t port) { return fmt::format("out{}", port); }
std::string inner(uint16_t port) { return fmt::format("in{}", port); }

// Stations of frames that only mark the end of what came before them.
Mac sentinel_mac(uint16_t port) { return {2, 0, 0, 0, 0xee, static_cast<uint8_t>(port)}; }

// The agent's clock, for all places of blocks.
std::vector<Frame> clock_frames(uint8_t work) {
    std::vector<Frame> frames;
    for (uint16_t place = 0; place < switch_buckets * INAGG_WAYS; place++)
        frames.push_back(inaggd::p4::clock_frame(place, work));
    return frames;
}

void run(const std::string &command) {
    if (std::system(command.c_str()))
        throw std::runtime_error(fmt::format("{} failed", command));
}

Fd open_port(const std::string &name) {
    Fd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL)));
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(if_nametoindex(name.c_str()));
    if (!fd || bind(fd.get(), reinterpret_cast<sockaddr *>(&address), sizeof address))
        throw std::runtime_error(fmt::format("{}: {}", name, system_text(errno)));
    const int on = 1;
    setsockopt(fd.get(), SOL_PACKET, PACKET_IGNORE_OUTGOING, &on, sizeof on);
    return fd;
}

bool starts_with_mac(const Frame &frame, const Mac &mac) {
    return frame.size() >= mac.size() && std::equal(mac.begin(), mac.end(), frame.begin());
}

// The number that a sentinel carries.
uint64_t number_in(const Frame &frame) {
    uint64_t number = 0;
    if (frame.size() >= 22)
        std::memcpy(&number, frame.data() + 14, sizeof number);
    return number;
}

inagg_stats row_of(const std::vector<uint64_t> &all, uint32_t row) {
    inagg_stats stats{};
    const uint64_t *from = all.data() + row * columns;
    auto *to = reinterpret_cast<uint64_t *>(&stats);
    std::copy_n(from, drops_column, to);
    std::copy_n(from + drops_column, INAGG_R_CAPACITY, stats.drops);
    return stats;
}

} // namespace

Bmv2Plane::Bmv2Plane(uint8_t algorithm, const std::string &json) : algorithm_(algorithm) {
    if (unshare(CLONE_NEWNET))
        throw std::runtime_error(fmt::format("a new network namespace: {}", system_text(errno)));
    for (uint16_t port : port_numbers) {
        run(fmt::format("ip link add {0} type veth peer name {1} && ip link set {0} up && ip link set {1} up", outer(port),
                        inner(port)));
        for (const std::string &name : {outer(port), inner(port)})
            run(fmt::format("echo 1 > /proc/sys/net/ipv6/conf/{}/disable_ipv6", name));
        ports_[port] = open_port(outer(port));
    }
    run("ip link set lo up");
    start(json);
    connect();
}

Bmv2Plane::~Bmv2Plane() {
    tables_.reset();
    if (child_ > 0) {
        kill(child_, SIGKILL);
        waitpid(child_, nullptr, 0);
    }
}

// Ends with this thread, however that ends.
void Bmv2Plane::start(const std::string &json) {
    child_ = fork();
    if (child_ < 0)
        throw std::runtime_error(fmt::format("fork: {}", system_text(errno)));
    if (child_)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    std::vector<std::string> arguments = {"simple_switch"};
    for (uint16_t port : port_numbers) {
        arguments.push_back("-i");
        arguments.push_back(fmt::format("{}@{}", port, inner(port)));
    }
    // By default all of a machine share a file for notifications, which nobody here reads.
    arguments.insert(arguments.end(), {"--notifications-addr", "inproc://notifications", "--thrift-port",
                                       std::to_string(thrift_port), "--log-level", "off", json});
    std::vector<char *> argv;
    for (std::string &argument : arguments)
        argv.push_back(argument.data());
    argv.push_back(nullptr);
    execvp(argv[0], argv.data());
    _exit(127);
}

void Bmv2Plane::connect() {
    for (int tries = 0; !tables_; tries++) {
        try {
            tables_ = std::make_unique<inaggd::p4::Bmv2>(thrift_port);
        } catch (const inaggd::Error &error) {
            if (tries == 50 || waitpid(child_, nullptr, WNOHANG))
                throw std::runtime_error(error.what());
            std::this_thread::sleep_for(100ms);
        }
    }
}

void Bmv2Plane::put_settings(bool has_parent) {
    inaggd::p4::Settings settings{.cpu_port = cpu_port,
                                  .address4 = {.family = 4, .bytes = switch_address(4)},
                                  .address6 = {.family = 6, .bytes = switch_address(6)},
                                  .boot = switch_boot,
                                  .has_parent = has_parent,
                                  .mac = tick_mac(),
                                  .shared_slots = algorithm_ == INAGG_TRIO ? switch_buckets : switch_aggregators,
                                  .share = switch_share};
    tables_->put(inaggd::p4::settings_entry(settings));
}

void Bmv2Plane::reset() {
    jobs_.clear();
    tables_->reset();
    put_settings(false);
    tables_->put_flood({std::begin(port_numbers), std::end(port_numbers)});
    for (uint16_t port : port_numbers)
        tables_->put(inaggd::p4::station_entry(sentinel_mac(port), port));
}

void Bmv2Plane::add_job(const JobSpec &spec) {
    change_job(spec);
    if (spec.algorithm == INAGG_TRIO)
        put_floors(spec);
}

void Bmv2Plane::change_job(const JobSpec &spec) {
    jobs_[spec.number] = spec;
    inaggd::p4::Seats seats{};
    for (uint32_t rank = 0; rank < spec.ranks; rank++)
        seats[rank] = {.member = spec.member(rank), .subtree = spec.subtree(rank), .is_represented = false};
    const inaggd::p4::Above above{.ups = {parent_of(spec)}, .live = spec.has_parent(), .timeout_us = 0};
    if (spec.has_parent())
        put_settings(true);
    if (spec.algorithm == INAGG_CANARY)
        for (const inaggd::p4::Entry &entry : inaggd::p4::up_entries(above.ups))
            tables_->put(entry);
    tables_->put_job({.number = static_cast<uint16_t>(spec.number),
                      .record = spec.job(),
                      .seats = seats,
                      .above = above,
                      .policy = spec.policy()});
}

void Bmv2Plane::clear_slots() {
    tables_->write_registers("slot_flags", 0, 2 * cleared_slots, 0);
    clear_records();
    for (const auto &[number, spec] : jobs_)
        if (spec.algorithm == INAGG_TRIO)
            for (const char *name : {"floor_known", "floor_epoch"})
                tables_->write_registers(name, spec.first_slot, spec.slots + spec.control_slots, 0);
}

std::vector<inagg_stats> Bmv2Plane::counters() {
    const std::vector<uint64_t> all = tables_->read_registers("stats");
    std::vector<inagg_stats> rows;
    for (uint32_t row = 0; row <= INAGG_STATS_NO_JOB; row++)
        rows.push_back(row_of(all, row));
    return rows;
}

// Sends the frame by that port, and behind it a sentinel to each port: what is there before the sentinel is the answer.
P4Plane::Frames Bmv2Plane::exchange(const Frame &frame, uint16_t port) {
    const auto send_frame = [&](const Frame &out) {
        if (send(ports_.at(port).get(), out.data(), out.size(), 0) != static_cast<ssize_t>(out.size()))
            throw std::runtime_error(fmt::format("sending a frame: {}", system_text(errno)));
    };
    send_frame(frame);
    sent_++;
    std::set<uint16_t> waiting;
    for (uint16_t port : port_numbers) {
        Frame sentinel(60);
        const Mac mac = sentinel_mac(port);
        std::copy(mac.begin(), mac.end(), sentinel.begin());
        sentinel[12] = 0x90; // nobody's
        sentinel[13] = 0x00;
        std::memcpy(sentinel.data() + 14, &sent_, sizeof sent_);
        send_frame(sentinel);
        waiting.insert(port);
    }
    Frames got;
    const auto deadline = std::chrono::steady_clock::now() + 5s;
    while (!waiting.empty()) {
        for (uint16_t port : port_numbers) {
            const Mac mac = sentinel_mac(port);
            Frame in(4096);
            for (ssize_t bytes; (bytes = recv(ports_.at(port).get(), in.data(), in.size(), 0)) > 0; in.assign(4096, 0)) {
                in.resize(static_cast<size_t>(bytes));
                if (!starts_with_mac(in, mac))
                    got[port].push_back(in);
                else if (number_in(in) == sent_)
                    waiting.erase(port);
            }
        }
        if (std::chrono::steady_clock::now() > deadline)
            throw std::runtime_error("simple_switch does not answer");
        std::this_thread::sleep_for(100us);
    }
    return got;
}

// The kernel takes the first VLAN tag off what a socket receives.
Frame Bmv2Plane::as_received(Frame frame) const {
    if (frame.size() > 16 && frame[12] == 0x81 && frame[13] == 0)
        frame.erase(frame.begin() + 12, frame.begin() + 16);
    return frame;
}

// Descriptors' time is up always: tick() finds them.
void Bmv2Plane::sweep() {
    if (is_there(INAGG_TRIO) && first_answer(clock_frames(inaggd::p4::clock_sweeps), cpu_port).action != Action::absorb)
        throw std::runtime_error("a sweep has sent something");
}

Answer Bmv2Plane::tick() { return first_answer(clock_frames(inaggd::p4::clock_decides), cpu_port); }

// A record is free when its flags are zero; how many are open is then to be forgotten, too.
void Bmv2Plane::clear_records() {
    if (!is_there(INAGG_TRIO))
        return;
    tables_->write_registers("slot_flags", 0, switch_buckets * INAGG_WAYS, 0);
    tables_->write_registers("open_records", 0, INAGG_STATS_NO_JOB, 0);
}

void Bmv2Plane::put_floors(const JobSpec &spec) {
    uint32_t key = spec.first_slot;
    for (uint32_t position = 0; position < spec.slots + spec.control_slots; position++, key++) {
        const inagg_floor floor = spec.floor(position);
        tables_->write_registers("floor_block", key, 1, floor.block);
        tables_->write_registers("floor_generation", key, 1, floor.generation);
        tables_->write_registers("floor_epoch", key, 1, floor.epoch);
        tables_->write_registers("floor_known", key, 1, floor.known);
    }
}

} // namespace support
