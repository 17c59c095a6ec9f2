// SPDX-License-Identifier: BSD-2-Clause
// AF_INAGG sockets for tests: one process holds all ranks of a job. The switch is INAGG_SWITCH's.
#pragma once

#include <inagg/uapi.h>

#include "common/fd.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>
#include <vector>

namespace af_inagg {

inline sockaddr_inagg address(const char *text, uint16_t rank = 0, uint16_t job = 0, uint16_t size = 0) {
    sockaddr_inagg a{};
    a.sinagg_family = AF_INAGG;
    a.sinagg_rank = rank;
    a.sinagg_job = job;
    a.sinagg_size = size;
    const std::string mapped = std::strchr(text, ':') ? text : std::string("::ffff:") + text;
    if (inet_pton(AF_INET6, mapped.c_str(), a.sinagg_addr) != 1)
        throw std::invalid_argument("not an address: " + mapped);
    return a;
}

inline const char *switch_address() {
    const char *text = std::getenv("INAGG_SWITCH");
    if (!text)
        throw std::runtime_error("INAGG_SWITCH is not set: run this under inagg-netns");
    return text;
}

inline inagg::Fd open_socket(int flags = 0) { return inagg::Fd(socket(AF_INAGG, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0)); }

inline int bind_to(int fd, const sockaddr_inagg &a, socklen_t length = sizeof(sockaddr_inagg)) {
    return bind(fd, reinterpret_cast<const sockaddr *>(&a), length);
}

inline int connect_to(int fd, const sockaddr_inagg &a) { return connect(fd, reinterpret_cast<const sockaddr *>(&a), sizeof(a)); }

inline int set(int fd, int name, int value) { return setsockopt(fd, SOL_INAGG, name, &value, sizeof(value)); }

inline int get(int fd, int name) {
    int value = -1;
    socklen_t length = sizeof(value);
    return getsockopt(fd, SOL_INAGG, name, &value, &length) ? -errno : value;
}

inline short wait_for(int fd, short events, int timeout_ms = 30000) {
    pollfd p{fd, events, 0};
    poll(&p, 1, timeout_ms);
    return p.revents;
}

inline int pending_error(int fd) {
    int error = 0;
    socklen_t length = sizeof(error);
    getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
    return error;
}

inline void block(int fd, bool blocking) {
    const int flags = fcntl(fd, F_GETFL);
    fcntl(fd, F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK);
}

// Shared with processes that this one forks: not every switch lets a job begin anew with another size.
inline std::atomic<uint16_t> &next_job =
    *new (mmap(nullptr, sizeof(next_job), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) std::atomic<uint16_t>(100);

inline uint16_t new_job() { return next_job++; }

// Lets calls of this thread fail inside the kernel, where it was built for that (fault injection): the nth
// allocation, or copy from or to user space, from here on.
class FailNth {
public:
    FailNth() : file_(::open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC)) {}
    explicit operator bool() const { return static_cast<bool>(file_); }
    void arm(unsigned nth) const { write(std::to_string(nth)); }
    // Ends it; true: one failed.
    bool disarm() const {
        char text[16] = {};
        const bool failed = pread(file_.get(), text, sizeof(text) - 1, 0) > 0 && std::atoi(text) == 0;
        write("0");
        return failed;
    }

private:
    void write(const std::string &text) const {
        const auto once = [&] { return pwrite(file_.get(), text.data(), text.size(), 0); };
        // What is armed still may be this very copy; then the second is not.
        if (once() < 0 && (errno != EFAULT || once() < 0))
            throw std::system_error(errno, std::generic_category(), "fail-nth");
    }

    inagg::Fd file_;
};

// All ranks of a new job, joined and blocking. `options` run on each socket before connect().
template <typename Options> std::vector<inagg::Fd> join(uint16_t size, Options options) {
    const uint16_t job = new_job();
    std::vector<inagg::Fd> ranks;
    for (uint16_t rank = 0; rank < size; rank++) {
        ranks.push_back(open_socket(SOCK_NONBLOCK));
        const int fd = ranks.back().get();
        if (fd < 0 || bind_to(fd, address("::", rank)))
            throw std::system_error(errno, std::generic_category(), "socket or bind");
        options(fd);
        if (connect_to(fd, address(switch_address(), 0, job, size)) && errno != EINPROGRESS)
            throw std::system_error(errno, std::generic_category(), "connect");
    }
    for (const inagg::Fd &rank : ranks) {
        wait_for(rank.get(), POLLOUT);
        if (const int error = pending_error(rank.get()))
            throw std::system_error(error, std::generic_category(), "join");
        block(rank.get(), true);
    }
    return ranks;
}

inline std::vector<inagg::Fd> join(uint16_t size) {
    return join(size, [](int) {});
}

} // namespace af_inagg
