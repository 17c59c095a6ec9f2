// SPDX-License-Identifier: BSD-2-Clause
// What surrounds the module in a test: sockets of its family, a network with a switch behind it, one clock.
#pragma once

#include "mock/mock.h"
#include "software_switch.hpp"

#include <gtest/gtest.h>
#include <inagg/uapi.h>

#include <cstring>
#include <functional>
#include <memory>
#include <optional>

namespace kmod {

using Bytes = std::vector<std::byte>;

constexpr uint64_t us = 1'000, ms = 1'000'000, s = 1'000'000'000;
constexpr uint16_t job_number = 7;

template <typename T> Bytes bytes_of(const std::vector<T> &values) {
    const auto bytes = std::as_bytes(std::span(values));
    return {bytes.begin(), bytes.end()};
}

// IPv4 as in struct sockaddr_inagg.
sockaddr_inagg address_of(const char *text, uint16_t port = 0);
// The switch's, with the job.
sockaddr_inagg switch_address(uint16_t size, const char *text = "10.0.0.254");

// Where a switch without an agent sends results.
inagg::Endpoint group_of(const char *text, uint16_t port);

inline inagg_hdr header_of(const mock_packet &packet) {
    inagg_hdr h;
    std::memcpy(&h, packet.data, sizeof(h));
    return h;
}

// A socket. Results are those of the system calls: negative errno.
class Rank {
public:
    explicit Rank(int net = 0);
    ~Rank() { close(); }
    Rank(Rank &&other) noexcept : sock(std::exchange(other.sock, nullptr)), port(other.port) {}

    int bind(uint16_t rank, const char *address = "::", uint16_t port = 0);
    int connect(const sockaddr_inagg &address, bool nonblock = false);
    int connect(uint16_t size, bool nonblock = false) { return connect(switch_address(size), nonblock); }
    int set(int option, int value) { return mock_setsockopt(sock, SOL_INAGG, option, &value, sizeof(value)); }
    int get(int option);
    inagg_info info();
    int send(std::span<const std::byte> data, int flags = 0);
    int send(const Bytes &data, const inagg_tensor_type &type, int flags = 0);
    // `flags` becomes msg_flags.
    int recv(std::span<std::byte> data, int &flags, inagg_result_info *result = nullptr);
    // Who is in each block, too.
    int recv(std::span<std::byte> data, std::vector<uint64_t> &blocks, size_t room, int &flags);
    int recv(std::span<std::byte> data) {
        int flags = 0;
        return recv(data, flags);
    }
    int recv_nowait(std::span<std::byte> data) {
        int flags = MSG_DONTWAIT;
        return recv(data, flags);
    }
    std::optional<inagg_fault> fault(); // the next of the error queue
    int close();

    struct socket *sock = nullptr;
    uint16_t port = 0; // UDP, once known
};

// A tensor of one rank on its way.
struct Transfer {
    Rank &rank;
    Bytes input;
    Bytes output{};
    size_t sent = 0;
    bool begun = false, done = false;
    int error = 0; // negative errno of recv()
    inagg_result_info info{};
};

class World {
public:
    explicit World(const inagg::SoftwareSwitchOptions &options = {}, uint64_t jitter_ns = 0);
    ~World();

    inagg::SoftwareSwitch &sw() { return *switch_; }
    // Run something `after_ns` from now, as another process. It must not wait for the one it interrupts.
    void at(uint64_t after_ns, std::function<void()> what);
    // Again and again, until it returns false.
    void every(uint64_t ns, std::function<bool()> what);
    // Let this much time pass.
    void run(uint64_t for_ns);
    // Every packet of a rank passes it; true: it goes no further.
    std::function<bool(const mock_packet &)> filter;
    // What the switch sends to this port is lost.
    uint16_t deaf = 0;
    // And of the rest what this says, of a header and a port.
    std::function<bool(const inagg_hdr &, uint16_t)> lost;
    // A datagram for the local port `to`, at once.
    bool deliver(std::span<const std::byte> data, uint16_t to, const char *from = "10.0.0.254", uint16_t from_port = INAGG_PORT,
                 int interface = 0, int slave = 0);

private:
    static void transmit(const mock_packet *packet);
    static uint64_t next_event();
    static void run_event();
    void to_rank(std::span<const std::byte> data, const inagg::Endpoint &to);
    uint64_t delay();

    static World *current_;
    std::unique_ptr<inagg::SoftwareSwitch> switch_;
    std::multimap<uint64_t, std::function<void()>> events_;
    std::mt19937_64 random_{1};
    uint64_t jitter_;
};

// A job of `options` with the module loaded; at the end nothing may be left and nothing was done wrong.
class KmodTest : public testing::Test {
protected:
    void start(const inagg::SoftwareSwitchOptions &options = small(), uint64_t jitter_ns = 0);
    void TearDown() override;

    static inagg::SoftwareSwitchOptions small() { return {.elements = 64, .slots = 8, .control_slots = 2}; }
    // Ranks that have joined; `prepare` sets their options.
    std::vector<Rank> &join(uint16_t size, const std::function<void(Rank &)> &prepare = {});
    // One tensor of each rank to the end.
    std::vector<Transfer> allreduce(const std::vector<Bytes> &inputs);

    std::unique_ptr<World> world;
    std::vector<Rank> ranks;
};

// Each transfer sends and receives what it can without waiting; false: none could do anything.
bool take_turns(std::vector<Transfer> &transfers);
bool are_done(const std::vector<Transfer> &transfers);
// Take turns until all are done.
void pump(std::vector<Transfer> &transfers);
// Close the ranks, unload the module, and expect nothing to be left.
void expect_clean_end(World &world, std::vector<Rank> &ranks);

// What all ranks must get, by the core's own arithmetic.
Bytes expected(inagg_dtype dtype, inagg_op op, const std::vector<Bytes> &inputs);
// Inputs of `count` elements for `size` ranks, of small magnitudes.
std::vector<Bytes> inputs_of(inagg_dtype dtype, uint16_t size, size_t count, unsigned seed = 1);
std::vector<Bytes> integers(uint16_t size, size_t count, unsigned seed = 1);

} // namespace kmod
