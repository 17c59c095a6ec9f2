// SPDX-License-Identifier: BSD-2-Clause
#include "flow.hpp"

#include "congestion_control.hpp"

#include <array>
#include <chrono>
#include <ctime>
#include <thread>

#include <arpa/inet.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

namespace netns {
namespace {

using Clock = std::chrono::steady_clock;
using Counter = std::atomic<uint64_t>;

constexpr uint16_t first_port = 5201; // iperf's
constexpr size_t buffer_size = 64 * 1024;
constexpr auto longest_lag = std::chrono::milliseconds(10);                    // that datagrams make up for
constexpr unsigned ethernet_header = 14, ipv4_headers = 28, ipv6_headers = 48; // with UDP's

Counter *map_counter() {
    void *memory = mmap(nullptr, sizeof(Counter), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fail("mmap");
    }
    return new (memory) Counter(0);
}

void unmap_counter(Counter *memory) { munmap(memory, sizeof *memory); }

// For both families: IPv4 addresses are mapped.
Fd open_socket(int type) {
    Fd fd(socket(AF_INET6, type | SOCK_CLOEXEC, 0));
    const int no = 0;
    if (!fd || setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no) != 0) {
        fail("socket");
    }
    return fd;
}

sockaddr_in6 address_of(const std::string &host, uint16_t port) {
    sockaddr_in6 address = {};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(port);
    const bool mapped = host.find('.') != std::string::npos;
    inet_pton(AF_INET6, (mapped ? "::ffff:" + host : host).c_str(), &address.sin6_addr);
    return address;
}

void connect_to(const Fd &fd, const std::string &host, uint16_t port) {
    const sockaddr_in6 address = address_of(host, port);
    if (connect(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0) {
        fail("connect");
    }
}

// In that namespace, for one end of such a flow.
Fd open_end(const Namespace &space, const Background &flow) {
    const Inside inside(space);
    Fd fd = open_socket(flow.is_udp() ? SOCK_DGRAM : SOCK_STREAM);
    if (flow.kind == "tcp") {
        use_cubic(fd);
    } else if (flow.kind == "dctcp") {
        use_dctcp(fd);
    }
    return fd;
}

// What it accepts has its congestion control.
Fd open_receiver(const Namespace &space, const Background &flow, uint16_t port) {
    Fd fd = open_end(space, flow);
    const sockaddr_in6 address = address_of("::", port);
    if (bind(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0 ||
        (!flow.is_udp() && listen(fd.get(), 1) != 0)) {
        fail("cannot receive a background flow");
    }
    return fd;
}

} // namespace

Flow::Flow(const FlowPath &path, const std::string &address, unsigned number, unsigned mtu)
    : path_(path), address_(address), port_(first_port + number), mtu_(mtu), received_(map_counter(), unmap_counter) {}

std::vector<pid_t> Flow::start() {
    const Background &flow = path_.flow;
    const Fd receiver = open_receiver(path_.to.space, flow, port_); // before the sender starts
    const Fd sender = open_end(path_.from.space, flow);
    return {start_process(path_.to.space, name(), [&] { receive(receiver.get()); }),
            start_process(path_.from.space, name(), [&] { flow.is_udp() ? send_datagrams(sender) : send_stream(sender); })};
}

void Flow::receive(int bound) const {
    const Fd stream(path_.flow.is_udp() ? dup(bound) : accept(bound, nullptr, nullptr));
    std::array<char, buffer_size> buffer;
    for (;;) {
        const ssize_t got = recv(stream.get(), buffer.data(), buffer.size(), MSG_TRUNC); // TCP: not copied
        if (got < 0 || (got == 0 && !path_.flow.is_udp())) {
            fail("cannot receive");
        }
        *received_ += got;
    }
}

void Flow::send_stream(const Fd &fd) const {
    if (const uint64_t bytes_per_second = path_.flow.rate / 8; bytes_per_second > 0) {
        setsockopt(fd.get(), SOL_SOCKET, SO_MAX_PACING_RATE, &bytes_per_second, sizeof bytes_per_second);
    }
    connect_to(fd, address_, port_);
    const std::array<char, buffer_size> buffer = {};
    while (send(fd.get(), buffer.data(), buffer.size(), MSG_NOSIGNAL) > 0) {
    }
    fail("cannot send");
}

// The rate is that of frames. Errors are like loss: a datagram that cannot be sent now is not sent later.
void Flow::send_datagrams(const Fd &fd) const {
    prctl(PR_SET_TIMERSLACK, 1);
    connect_to(fd, address_, port_);
    const std::vector<char> payload(mtu_ - (address_.find(':') == std::string::npos ? ipv4_headers : ipv6_headers));
    const Nanoseconds interval(8'000'000'000 * (mtu_ + ethernet_header) / path_.flow.rate);
    for (auto next = Clock::now();; next += interval) {
        std::this_thread::sleep_until(next);
        next = std::max(next, Clock::now() - longest_lag);
        send(fd.get(), payload.data(), payload.size(), MSG_DONTWAIT);
    }
}

void Flow::sample() {
    const std::chrono::duration<double> now = Clock::now().time_since_epoch();
    samples_.emplace_back(now.count(), *received_);
}

double Flow::mbit_per_s() const {
    const double seconds = samples_.empty() ? 0 : samples_.back().first - samples_.front().first;
    return seconds > 0 ? static_cast<double>(samples_.back().second - samples_.front().second) * 8 / seconds / 1e6 : 0;
}

nlohmann::json Flow::to_json() const { return {{"flow", name()}, {"mbit_per_s", mbit_per_s()}, {"samples", samples_}}; }

} // namespace netns
