// SPDX-License-Identifier: BSD-2-Clause
// System calls on AF_INAGG sockets, and what they return, as tests look at it.
#pragma once

#include "rank.hpp"

#include <gtest/gtest.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <sys/ioctl.h>

#include <fstream>
#include <numeric>

// The call fails with this errno value.
#define EXPECT_ERRNO(call, number) EXPECT_EQ((call) < 0 ? errno : 0, number)

namespace af_inagg {

template <typename T> ssize_t send_all(int fd, const std::vector<T> &v, int flags = 0) {
    return send(fd, v.data(), v.size() * sizeof(T), flags | MSG_NOSIGNAL);
}

template <typename T> std::vector<T> receive(int fd, std::size_t count) {
    std::vector<T> v(count);
    const ssize_t bytes = recv(fd, v.data(), count * sizeof(T), 0);
    v.resize(bytes < 0 ? 0 : static_cast<std::size_t>(bytes) / sizeof(T));
    return v;
}

template <typename T> std::vector<T> ramp(std::size_t count, T first) {
    std::vector<T> v(count);
    std::iota(v.begin(), v.end(), first);
    return v;
}

inline ssize_t send_typed(int fd, const void *data, std::size_t bytes, inagg_tensor_type type) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(type))] = {};
    iovec iov{const_cast<void *>(data), bytes};
    msghdr msg{};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof(control);
    cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);
    cmsg->cmsg_level = SOL_INAGG;
    cmsg->cmsg_type = INAGG_CMSG_TENSOR;
    cmsg->cmsg_len = CMSG_LEN(sizeof(type));
    std::memcpy(CMSG_DATA(cmsg), &type, sizeof(type));
    return sendmsg(fd, &msg, MSG_NOSIGNAL);
}

struct Received {
    ssize_t bytes;
    int flags;
    inagg_result_info info;
};

inline Received receive_message(int fd, void *data, std::size_t bytes, int flags = 0) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(inagg_result_info))] = {};
    iovec iov{data, bytes};
    msghdr msg{};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof(control);
    Received r{};
    r.bytes = recvmsg(fd, &msg, flags);
    r.flags = msg.msg_flags;
    if (const cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); r.bytes >= 0 && cmsg && cmsg->cmsg_type == INAGG_CMSG_RESULT)
        std::memcpy(&r.info, CMSG_DATA(cmsg), sizeof(r.info));
    return r;
}

// What recvmsg(MSG_ERRQUEUE) tells.
struct Fault {
    sock_extended_err extended;
    inagg_fault fault;
};

inline bool read_fault(int fd, Fault &out) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(sock_extended_err)) + 64] = {};
    iovec iov{&out.fault, sizeof(out.fault)};
    msghdr msg{};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof(control);
    if (recvmsg(fd, &msg, MSG_ERRQUEUE) != static_cast<ssize_t>(sizeof(out.fault)))
        return false;
    for (cmsghdr *cmsg = CMSG_FIRSTHDR(&msg); cmsg; cmsg = CMSG_NXTHDR(&msg, cmsg))
        if (cmsg->cmsg_level == SOL_INAGG && cmsg->cmsg_type == INAGG_CMSG_FAULT)
            std::memcpy(&out.extended, CMSG_DATA(cmsg), sizeof(out.extended));
    return true;
}

// Who is in each block, with INAGG_CMSG_BLOCKS: there is room for `most` of them.
inline std::vector<uint64_t> receive_blocks(int fd, void *data, std::size_t bytes, Received &r,
                                            std::size_t most = INAGG_MOST_BLOCKS) {
    const std::size_t room = CMSG_SPACE(sizeof(inagg_result_info)) + CMSG_SPACE(most * sizeof(uint64_t));
    std::vector<cmsghdr> control(room / sizeof(cmsghdr) + 1);
    iovec iov{data, bytes};
    msghdr msg{};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control.data();
    msg.msg_controllen = room;
    std::vector<uint64_t> blocks;
    r.bytes = recvmsg(fd, &msg, 0);
    r.flags = msg.msg_flags;
    for (cmsghdr *c = CMSG_FIRSTHDR(&msg); r.bytes >= 0 && c; c = CMSG_NXTHDR(&msg, c))
        if (c->cmsg_type == INAGG_CMSG_RESULT) {
            std::memcpy(&r.info, CMSG_DATA(c), sizeof(r.info));
        } else if (c->cmsg_type == INAGG_CMSG_BLOCKS) {
            blocks.resize((c->cmsg_len - CMSG_LEN(0)) / sizeof(uint64_t));
            std::memcpy(blocks.data(), CMSG_DATA(c), blocks.size() * sizeof(uint64_t));
        }
    return blocks;
}

inline inagg_info info_of(int fd) {
    inagg_info info{};
    socklen_t length = sizeof(info);
    EXPECT_EQ(getsockopt(fd, SOL_INAGG, INAGG_INFO, &info, &length), 0);
    return info;
}

// The number behind this word of the first line of /proc/net/inagg, or -1.
inline long proc_number(const std::string &name) {
    std::ifstream proc("/proc/net/inagg");
    std::string word;
    long number = -1;
    while (proc >> word && word != name)
        ;
    proc >> number;
    return number;
}

inline long memory_limit() { return proc_number("limit"); }

inline long memory_in_use() { return proc_number("memory"); }

inline int queued(int fd, unsigned long request) {
    int bytes = -1;
    EXPECT_EQ(ioctl(fd, request, &bytes), 0);
    return bytes;
}

// The local name, with the UDP port.
inline sockaddr_inagg name_of(int fd) {
    sockaddr_inagg a{};
    socklen_t length = sizeof(a);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr *>(&a), &length), 0);
    return a;
}

} // namespace af_inagg
