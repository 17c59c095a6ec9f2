// SPDX-License-Identifier: BSD-2-Clause
#include "relay.hpp"

#include <fmt/core.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <queue>
#include <random>

#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>

#include "impair.h"

namespace netns {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t max_directions = IMPAIR_MAX_LINKS;
constexpr size_t max_held = 16384;       // frames, all directions together
constexpr size_t max_frame = 128 * 1024; // a coalesced TCP segment and its headers
constexpr size_t batch = 32;             // frames a system call
constexpr int socket_buffer = 8 << 20;
constexpr auto longest_hold = std::chrono::microseconds(2'000); // of a frame that others overtake

struct Frame {
    Clock::time_point due;
    uint64_t order; // of arrival: frames that are due at the same time keep theirs
    size_t direction;
    std::vector<char> bytes;

    bool operator<(const Frame &other) const { // the earliest on top of a priority queue
        return due != other.due ? due > other.due : order > other.order;
    }
};

sockaddr_ll interface_address(unsigned interface) {
    sockaddr_ll address = {};
    address.sll_family = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex = static_cast<int>(interface);
    return address;
}

void set_option(const Fd &socket, int level, int option, int value) {
    if (setsockopt(socket.get(), level, option, &value, sizeof value) != 0) {
        fail("cannot set a packet socket's option");
    }
}

// Reads the frames of one interface. Checksums that the sender left to its device, and segments that it left
// to be cut, stay so: their description (struct virtio_net_hdr) goes before each frame in both directions.
Fd open_socket(unsigned interface) {
    Fd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd) {
        fail("packet socket");
    }
    set_option(fd, SOL_PACKET, PACKET_VNET_HDR, 1);
    set_option(fd, SOL_PACKET, PACKET_IGNORE_OUTGOING, 1);
    set_option(fd, SOL_SOCKET, SO_RCVBUFFORCE, socket_buffer);
    set_option(fd, SOL_SOCKET, SO_SNDBUFFORCE, socket_buffer);
    const sockaddr_ll address = interface_address(interface);
    if (bind(fd.get(), reinterpret_cast<const sockaddr *>(&address), sizeof address) != 0) {
        fail("cannot bind a packet socket");
    }
    return fd;
}

class Holder {
public:
    Holder(const Impairments &impairments, RelayCounters *counters)
        : impairments_(impairments), counters_(counters), random_(impairments.seed), buffer_(batch * max_frame) {}

    void add(unsigned from, unsigned to) {
        sockets_.push_back(open_socket(from));
        targets_.push_back(interface_address(to));
    }

    [[noreturn]] void run() {
        std::vector<pollfd> polled;
        for (const Fd &socket : sockets_) {
            polled.push_back({socket.get(), POLLIN, 0});
        }
        for (;;) {
            const timespec wait = until_next();
            if (ppoll(polled.data(), polled.size(), held_.empty() ? nullptr : &wait, nullptr) < 0 && errno != EINTR) {
                fail("ppoll");
            }
            for (size_t i = 0; i < polled.size(); ++i) {
                if (polled[i].revents != 0) {
                    receive(i);
                }
            }
            send_due();
        }
    }

private:
    timespec until_next() const {
        if (held_.empty()) {
            return {};
        }
        const auto left = std::max(Nanoseconds(held_.top().due - Clock::now()), Nanoseconds(0));
        return {left.count() / 1'000'000'000, left.count() % 1'000'000'000};
    }

    void receive(size_t direction) {
        std::array<mmsghdr, batch> messages = {};
        std::array<iovec, batch> parts;
        for (size_t i = 0; i < batch; ++i) {
            parts[i] = {&buffer_[i * max_frame], max_frame};
            messages[i].msg_hdr.msg_iov = &parts[i];
            messages[i].msg_hdr.msg_iovlen = 1;
        }
        const int got = recvmmsg(sockets_[direction].get(), messages.data(), batch, 0, nullptr);
        const auto now = Clock::now();
        for (int i = 0; i < got; ++i) {
            hold(direction, now, static_cast<char *>(parts[i].iov_base), messages[i].msg_len);
        }
    }

    void hold(size_t direction, Clock::time_point now, const char *bytes, size_t size) {
        if (held_.size() >= max_held) {
            ++counters_[direction].overflowed;
            return;
        }
        auto due = now + impairments_.delay;
        if (std::bernoulli_distribution(impairments_.reorder)(random_)) {
            due += Nanoseconds(std::uniform_int_distribution<int64_t>(
                1, std::chrono::duration_cast<Nanoseconds>(longest_hold).count())(random_));
            ++counters_[direction].reordered;
        }
        held_.push({due, order_++, direction, {bytes, bytes + size}});
    }

    void send_due() {
        const auto now = Clock::now();
        while (!held_.empty() && held_.top().due <= now) {
            const Frame &frame = held_.top();
            const sockaddr_ll &target = targets_[frame.direction];
            if (sendto(sockets_[frame.direction].get(), frame.bytes.data(), frame.bytes.size(), 0,
                       reinterpret_cast<const sockaddr *>(&target), sizeof target) < 0) {
                ++counters_[frame.direction].overflowed;
            }
            held_.pop();
        }
    }

    const Impairments &impairments_;
    RelayCounters *counters_;
    std::mt19937_64 random_;
    std::vector<char> buffer_;
    std::vector<Fd> sockets_;
    std::vector<sockaddr_ll> targets_;
    std::priority_queue<Frame> held_;
    uint64_t order_ = 0;
};

RelayCounters *map_counters() {
    void *memory =
        mmap(nullptr, max_directions * sizeof(RelayCounters), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        fail("mmap");
    }
    return new (memory) RelayCounters[max_directions]();
}

void unmap_counters(RelayCounters *memory) { munmap(memory, max_directions * sizeof(RelayCounters)); }

} // namespace

Relay::Relay(const Impairments &impairments) : impairments_(impairments), shared_(map_counters(), unmap_counters) {}

pid_t Relay::start(const Namespace &space) {
    return start_process(space, "relay", [this] {
        prctl(PR_SET_TIMERSLACK, 1);
        Holder holder(impairments_, shared_.get());
        for (const Direction &direction : directions_) {
            holder.add(direction.from, direction.to);
        }
        holder.run();
    });
}

} // namespace netns
