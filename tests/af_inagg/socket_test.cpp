// SPDX-License-Identifier: BSD-2-Clause
// What docs/man/inagg.7 says of each system call, on real sockets through a real switch.
#include "rank.hpp"

#include <inagg/core/types.h>
#include <inagg/reason.h>

#include <gtest/gtest.h>
#include <liburing.h>
#include <linux/errqueue.h>
#include <linux/sockios.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <limits>
#include <numeric>
#include <span>
#include <thread>

using namespace af_inagg;
using inagg::Fd;

// The call fails with this errno value.
#define EXPECT_ERRNO(call, number) EXPECT_EQ((call) < 0 ? errno : 0, number)

namespace {

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

ssize_t send_typed(int fd, const void *data, std::size_t bytes, inagg_tensor_type type) {
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

Received receive_message(int fd, void *data, std::size_t bytes, int flags = 0) {
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

bool read_fault(int fd, Fault &out) {
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

// Who is in each block, with INAGG_CMSG_BLOCKS.
std::vector<uint64_t> receive_blocks(int fd, void *data, std::size_t bytes, Received &r) {
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(inagg_result_info)) + CMSG_SPACE(INAGG_MOST_BLOCKS * 8)] = {};
    iovec iov{data, bytes};
    msghdr msg{};
    msg.msg_iov = &iov;
    msg.msg_iovlen = 1;
    msg.msg_control = control;
    msg.msg_controllen = sizeof(control);
    std::vector<uint64_t> blocks;
    r.bytes = recvmsg(fd, &msg, 0);
    r.flags = msg.msg_flags;
    for (cmsghdr *c = CMSG_FIRSTHDR(&msg); r.bytes >= 0 && c; c = CMSG_NXTHDR(&msg, c))
        if (c->cmsg_type == INAGG_CMSG_RESULT) {
            std::memcpy(&r.info, CMSG_DATA(c), sizeof(r.info));
        } else if (c->cmsg_type == INAGG_CMSG_BLOCKS) {
            blocks.resize((c->cmsg_len - CMSG_LEN(0)) / 8);
            std::memcpy(blocks.data(), CMSG_DATA(c), blocks.size() * 8);
        }
    return blocks;
}

// "limit N" in /proc/net/inagg.
long memory_limit() {
    std::ifstream proc("/proc/net/inagg");
    std::string word;
    long number = 0;
    while (proc >> word && word != "limit")
        ;
    proc >> number;
    return number;
}

// "memory N" in /proc/net/inagg.
long memory_in_use() {
    std::ifstream proc("/proc/net/inagg");
    std::string word;
    long bytes = -1;
    while (proc >> word && word != "memory")
        ;
    proc >> bytes;
    return bytes;
}

// The local name, with the UDP port.
sockaddr_inagg name_of(int fd) {
    sockaddr_inagg a{};
    socklen_t length = sizeof(a);
    EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr *>(&a), &length), 0);
    return a;
}

// Wait until no more memory is in use than `before`: closed sockets leave in the background, those of earlier tests, too.
void expect_memory_back(long before) {
    for (int i = 0; i < 200 && memory_in_use() > before; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_LE(memory_in_use(), before);
}

void write_sysctl(const char *name, const std::string &value) {
    std::ofstream(std::string("/proc/sys/net/inagg/") + name) << value;
}

} // namespace

TEST(Socket, KnowsOneTypeAndProtocol) {
    EXPECT_ERRNO(socket(AF_INAGG, SOCK_STREAM, 0), ESOCKTNOSUPPORT);
    EXPECT_ERRNO(socket(AF_INAGG, SOCK_DGRAM, 0), ESOCKTNOSUPPORT);
    EXPECT_ERRNO(socket(AF_INAGG, SOCK_SEQPACKET, 1), EPROTONOSUPPORT);
    EXPECT_GE(open_socket().get(), 0);
}

TEST(Bind, ChecksTheAddress) {
    const Fd fd = open_socket();
    sockaddr_inagg a = address("::", 1);
    EXPECT_ERRNO(bind_to(fd.get(), a, sizeof(a) - 1), EINVAL);
    a.sinagg_family = AF_INET;
    EXPECT_ERRNO(bind_to(fd.get(), a), EAFNOSUPPORT);
    a = address("::", 1);
    a.sinagg_reserved = 1;
    EXPECT_ERRNO(bind_to(fd.get(), a), EINVAL);
    EXPECT_ERRNO(bind_to(fd.get(), address("::", 64)), EINVAL);
    EXPECT_ERRNO(bind_to(fd.get(), address("::", 1, 1, 0)), EINVAL);
    EXPECT_ERRNO(bind_to(fd.get(), address("::", 1, 0, 2)), EINVAL);
    EXPECT_ERRNO(bind_to(fd.get(), address("192.0.2.1", 1)), EADDRNOTAVAIL);
    EXPECT_EQ(bind_to(fd.get(), address("127.0.0.1", 1)), 0);
    EXPECT_ERRNO(bind_to(fd.get(), address("127.0.0.1", 1)), EINVAL);
}

TEST(Bind, ChecksTheScope) {
    const Fd fd = open_socket();
    const uint32_t loopback = if_nametoindex("lo");
    sockaddr_inagg a = address("127.0.0.1", 1);
    a.sinagg_scope_id = loopback;
    EXPECT_ERRNO(bind_to(fd.get(), a), EINVAL);
    EXPECT_ERRNO(bind_to(fd.get(), address("fe80::1", 1)), EINVAL);
    ASSERT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_BINDTODEVICE, "lo", 2), 0);
    a = address("::1", 1);
    a.sinagg_scope_id = loopback + 1;
    EXPECT_ERRNO(bind_to(fd.get(), a), EINVAL);
    a.sinagg_scope_id = loopback;
    EXPECT_EQ(bind_to(fd.get(), a), 0);
    sockaddr_inagg peer = address("fe80::2", 0, 1, 2);
    peer.sinagg_scope_id = loopback + 1;
    EXPECT_ERRNO(connect_to(fd.get(), peer), EINVAL);
}

TEST(Bind, TakesAPort) {
    const Fd one = open_socket(), two = open_socket();
    ASSERT_EQ(bind_to(one.get(), address("127.0.0.1", 3)), 0);
    sockaddr_inagg a{};
    socklen_t length = sizeof(a);
    ASSERT_EQ(getsockname(one.get(), reinterpret_cast<sockaddr *>(&a), &length), 0);
    EXPECT_EQ(length, sizeof(a));
    EXPECT_EQ(a.sinagg_family, AF_INAGG);
    EXPECT_EQ(a.sinagg_rank, 3);
    EXPECT_NE(a.sinagg_port, 0);
    EXPECT_ERRNO(bind_to(two.get(), a), EADDRINUSE);
}

TEST(Connect, ChecksTheAddress) {
    const Fd fd = open_socket();
    EXPECT_ERRNO(connect_to(fd.get(), address(switch_address(), 0, 1, 2)), EINVAL); // not bound
    ASSERT_EQ(bind_to(fd.get(), address("::", 2)), 0);
    EXPECT_ERRNO(connect_to(fd.get(), address(switch_address(), 0, 1, 0)), EINVAL);
    EXPECT_ERRNO(connect_to(fd.get(), address(switch_address(), 0, 1, 65)), EINVAL);
    EXPECT_ERRNO(connect_to(fd.get(), address(switch_address(), 0, 1, 2)), EINVAL); // rank 2 of 2
    EXPECT_ERRNO(connect_to(fd.get(), address(switch_address(), 1, 1, 4)), EINVAL); // a rank here
    sockaddr_inagg peer{};
    socklen_t length = sizeof(peer);
    EXPECT_ERRNO(getpeername(fd.get(), reinterpret_cast<sockaddr *>(&peer), &length), ENOTCONN);
    EXPECT_ERRNO(send(fd.get(), &peer, 4, MSG_NOSIGNAL), ENOTCONN);
    EXPECT_ERRNO(recv(fd.get(), &peer, 4, 0), ENOTCONN);
    EXPECT_ERRNO(shutdown(fd.get(), SHUT_WR), ENOTCONN);
}

TEST(Connect, TimesOutWhereNoSwitchIs) {
    const Fd fd = open_socket();
    ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
    ASSERT_EQ(set(fd.get(), INAGG_DEADLINE, 200), 0);
    EXPECT_ERRNO(connect_to(fd.get(), address("127.0.0.1", 0, 1, 2)), ETIMEDOUT);
    Fault fault{};
    ASSERT_TRUE(read_fault(fd.get(), fault));
    EXPECT_EQ(fault.fault.error, static_cast<uint32_t>(ETIMEDOUT));
    EXPECT_EQ(fault.fault.job, 1);
    EXPECT_ERRNO(connect_to(fd.get(), address("127.0.0.1", 0, 1, 2)), ETIMEDOUT); // may be tried again
}

TEST(Connect, DoesNotWaitIfNonBlocking) {
    const Fd fd = open_socket(SOCK_NONBLOCK);
    ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
    ASSERT_EQ(set(fd.get(), INAGG_DEADLINE, 300), 0);
    EXPECT_ERRNO(connect_to(fd.get(), address("127.0.0.1", 0, 1, 2)), EINPROGRESS);
    EXPECT_ERRNO(connect_to(fd.get(), address("127.0.0.1", 0, 1, 2)), EALREADY);
    EXPECT_ERRNO(send(fd.get(), &fd, 4, MSG_NOSIGNAL), EAGAIN);
    EXPECT_TRUE(wait_for(fd.get(), POLLOUT) & POLLERR);
    EXPECT_EQ(pending_error(fd.get()), ETIMEDOUT);
}

TEST(Connect, WaitsNoLongerThanTheSendTimeout) {
    const Fd fd = open_socket();
    ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
    const timeval limit{0, 100000};
    ASSERT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)), 0);
    EXPECT_ERRNO(connect_to(fd.get(), address("127.0.0.1", 0, 1, 2)), EINPROGRESS);
}

TEST(Connect, NeedsARouteAndAnAddressOfItsFamily) {
    const Fd fd = open_socket();
    ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
    EXPECT_ERRNO(connect_to(fd.get(), address("203.0.113.1", 0, 1, 2)), ENETUNREACH);
    EXPECT_ERRNO(connect_to(fd.get(), address("127.255.255.255", 0, 1, 2)), EACCES) << "a broadcast address";
    sockaddr_inagg other = address(switch_address(), 0, 1, 2);
    for (const sa_family_t family : {AF_UNSPEC, AF_INET, AF_INET6}) {
        other.sinagg_family = family;
        EXPECT_ERRNO(connect_to(fd.get(), other), EAFNOSUPPORT);
    }
    EXPECT_ERRNO(listen(fd.get(), 1), EOPNOTSUPP);
    EXPECT_ERRNO(accept(fd.get(), nullptr, nullptr), EOPNOTSUPP);
    int pair[2];
    EXPECT_ERRNO(socketpair(AF_INAGG, SOCK_SEQPACKET, 0, pair), EOPNOTSUPP);
}

TEST(Connect, StaysWhenItIsToldToLeaveForNothing) {
    const auto ranks = join(1);
    sockaddr_inagg nothing{};
    EXPECT_ERRNO(connect_to(ranks[0].get(), nothing), EAFNOSUPPORT);
    EXPECT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    EXPECT_EQ(receive<float>(ranks[0].get(), 10).size(), 10u);
}

TEST(Connect, JoinsOnce) {
    const auto ranks = join(1);
    sockaddr_inagg peer{};
    socklen_t length = sizeof(peer);
    ASSERT_EQ(getpeername(ranks[0].get(), reinterpret_cast<sockaddr *>(&peer), &length), 0);
    EXPECT_EQ(ntohs(peer.sinagg_port), 12000);
    EXPECT_EQ(peer.sinagg_size, 1);
    EXPECT_EQ(connect_to(ranks[0].get(), peer), 0); // tells that the join went well
    EXPECT_ERRNO(connect_to(ranks[0].get(), peer), EISCONN);
}

TEST(Options, HaveDefaultsAndRanges) {
    const Fd fd = open_socket();
    struct Case {
        int name, standard, good;
        std::vector<int> bad;
    };
    const Case cases[] = {
        {INAGG_DTYPE, INAGG_FLOAT32, INAGG_BFLOAT16, {-1, 4}},
        {INAGG_OP, INAGG_SUM, INAGG_AVG, {-1, INAGG_OPS}},
        {INAGG_SCALE, INAGG_SCALE_AUTO, 20, {-129, 158}},
        {INAGG_WINDOW, 0, 16, {-1}},
        {INAGG_BLOCK, 0, 832, {-32, 16, 864}},
        {INAGG_RTO_MIN, 1000, 500000, {99, 500001}},
        {INAGG_DEADLINE, 30000, 1, {0, -1}},
        {INAGG_CHECKED, 0, 1, {2, -1}},
        {INAGG_BUFFER, 4 << 20, 65536, {0, -1}},
        {INAGG_EXPIRY, 0, 10000, {-1}},
        {INAGG_QUORUM, 0, 64, {-1, 65}},
        {INAGG_EXCLUDE, 0, 1000, {-1, 1, 999}},
    };
    for (const Case &c : cases) {
        EXPECT_EQ(get(fd.get(), c.name), c.standard) << c.name;
        for (const int bad : c.bad)
            EXPECT_ERRNO(set(fd.get(), c.name, bad), EINVAL) << c.name << " " << bad;
        EXPECT_EQ(set(fd.get(), c.name, c.good), 0) << c.name;
        EXPECT_EQ(get(fd.get(), c.name), c.good) << c.name;
    }
    EXPECT_EQ(set(fd.get(), INAGG_BUFFER, std::numeric_limits<int>::max()), 0);
    EXPECT_EQ(get(fd.get(), INAGG_BUFFER), 256 << 20); // buffer_max
    EXPECT_EQ(set(fd.get(), INAGG_HISTORY, std::numeric_limits<int>::max()), 0);
    EXPECT_EQ(get(fd.get(), INAGG_HISTORY), std::min<long>(256 << 20, memory_limit() / 32));
    EXPECT_ERRNO(set(fd.get(), INAGG_HISTORY, 0), EINVAL);
    EXPECT_ERRNO(set(fd.get(), INAGG_KEY, 1), EINVAL); // it has 16 bytes
    EXPECT_EQ(setsockopt(fd.get(), SOL_INAGG, INAGG_KEY, "0123456789abcdef", 16), 0);
    EXPECT_ERRNO(set(fd.get(), INAGG_INFO, 1), ENOPROTOOPT);
    EXPECT_ERRNO(set(fd.get(), 99, 1), ENOPROTOOPT);
    EXPECT_ERRNO(setsockopt(fd.get(), SOL_INAGG, INAGG_DTYPE, "", 1), EINVAL);
    EXPECT_ERRNO(setsockopt(fd.get(), SOL_INAGG + 1, INAGG_DTYPE, "abcd", 4), ENOPROTOOPT);
}

TEST(Options, NameTheAlgorithm) {
    const Fd fd = open_socket();
    const auto choose = [&](const char *name) {
        return setsockopt(fd.get(), SOL_INAGG, INAGG_ALGORITHM, name, static_cast<socklen_t>(std::strlen(name)));
    };
    EXPECT_EQ(choose("switchml"), 0);
    EXPECT_ERRNO(choose("atp"), EPROTONOSUPPORT);
    EXPECT_EQ(choose("trio"), 0);
    EXPECT_ERRNO(choose("nonsense"), ENOENT);
    char name[16] = {};
    socklen_t length = sizeof(name);
    ASSERT_EQ(getsockopt(fd.get(), SOL_INAGG, INAGG_ALGORITHM, name, &length), 0);
    EXPECT_STREQ(name, "trio");
}

TEST(Options, AreFixedOnceJoined) {
    const auto ranks = join(1);
    for (const int name : {INAGG_WINDOW, INAGG_BLOCK, INAGG_RTO_MIN, INAGG_CHECKED, INAGG_EXPIRY, INAGG_QUORUM, INAGG_HISTORY, INAGG_EXCLUDE})
        EXPECT_ERRNO(set(ranks[0].get(), name, 1), EISCONN) << name;
    EXPECT_EQ(set(ranks[0].get(), INAGG_BUFFER, 65536), 0);
    EXPECT_EQ(send_all(ranks[0].get(), ramp<float>(8, 0)), 32);
    EXPECT_ERRNO(set(ranks[0].get(), INAGG_BUFFER, 65536), EBUSY);
    EXPECT_EQ(set(ranks[0].get(), INAGG_DTYPE, INAGG_INT32), 0);
}

TEST(Tensor, IsSummedOverAllRanks) {
    const auto ranks = join(3);
    for (int rank = 0; rank < 3; rank++)
        ASSERT_EQ(send_all(ranks[rank].get(), ramp<float>(1000, rank)), 4000);
    for (const Fd &rank : ranks) {
        std::vector<float> sum(1000);
        const Received r = receive_message(rank.get(), sum.data(), 4000);
        EXPECT_EQ(r.bytes, 4000);
        EXPECT_TRUE(r.flags & MSG_EOR);
        EXPECT_EQ(r.info.contributors, 7u);
        EXPECT_EQ(r.info.count, 3);
        EXPECT_EQ(r.info.flags, 0);
        for (int i = 0; i < 1000; i++)
            ASSERT_EQ(sum[i], static_cast<float>(3 * i + 3)) << i;
    }
}

TEST(Tensor, OfEachTypeAndOperator) {
    const auto ranks = join(2);
    const std::vector<int32_t> ints[2] = {{1, -5, 7}, {2, -6, -7}};
    const std::vector<float> floats[2] = {{1.5F, -0.25F, 3}, {2, -8, -3}};
    const std::vector<uint16_t> halves[2] = {{0x3c00, 0xc000}, {0x4000, 0x3c00}};  // 1 -2, 2 1
    const std::vector<uint16_t> bfloats[2] = {{0x3f80, 0xc000}, {0x4000, 0x3f80}}; // 1 -2, 2 1
    const auto both = [&](const auto *in, inagg_dtype dtype, inagg_op op) {
        auto out = in[0];
        for (int rank = 0; rank < 2; rank++)
            EXPECT_GT(send_typed(ranks[rank].get(), in[rank].data(), in[rank].size() * sizeof(in[rank][0]),
                                 {static_cast<__u8>(dtype), static_cast<__u8>(op), 0, INAGG_SCALE_AUTO}),
                      0);
        for (const Fd &rank : ranks)
            EXPECT_GT(recv(rank.get(), out.data(), out.size() * sizeof(out[0]), 0), 0);
        return out;
    };
    EXPECT_EQ(both(ints, INAGG_INT32, INAGG_SUM), (std::vector<int32_t>{3, -11, 0}));
    EXPECT_EQ(both(ints, INAGG_INT32, INAGG_MIN), (std::vector<int32_t>{1, -6, -7}));
    EXPECT_EQ(both(ints, INAGG_INT32, INAGG_MAX), (std::vector<int32_t>{2, -5, 7}));
    EXPECT_EQ(both(floats, INAGG_FLOAT32, INAGG_SUM), (std::vector<float>{3.5F, -8.25F, 0}));
    EXPECT_EQ(both(floats, INAGG_FLOAT32, INAGG_MIN), (std::vector<float>{1.5F, -8, -3}));
    EXPECT_EQ(both(floats, INAGG_FLOAT32, INAGG_MAX), (std::vector<float>{2, -0.25F, 3}));
    EXPECT_EQ(both(halves, INAGG_FLOAT16, INAGG_SUM), (std::vector<uint16_t>{0x4200, 0xbc00}));
    EXPECT_EQ(both(halves, INAGG_FLOAT16, INAGG_MAX), (std::vector<uint16_t>{0x4000, 0x3c00}));
    EXPECT_EQ(both(bfloats, INAGG_BFLOAT16, INAGG_SUM), (std::vector<uint16_t>{0x4040, 0xbf80}));
    EXPECT_EQ(both(bfloats, INAGG_BFLOAT16, INAGG_MIN), (std::vector<uint16_t>{0x3f80, 0xc000}));
    EXPECT_EQ(both(floats, INAGG_FLOAT32, INAGG_AVG), (std::vector<float>{1.75F, -4.125F, 0}));
    EXPECT_EQ(both(halves, INAGG_FLOAT16, INAGG_AVG), (std::vector<uint16_t>{0x3e00, 0xb800}));
    EXPECT_EQ(both(bfloats, INAGG_BFLOAT16, INAGG_AVG), (std::vector<uint16_t>{0x3fc0, 0xbf00}));
}

TEST(Tensor, TypeMessageIsChecked) {
    const auto ranks = join(1);
    const float data[4] = {};
    EXPECT_ERRNO(send_typed(ranks[0].get(), data, 16, {4, 0, 0, INAGG_SCALE_AUTO}), EINVAL);
    EXPECT_ERRNO(send_typed(ranks[0].get(), data, 16, {0, INAGG_OPS, 0, INAGG_SCALE_AUTO}), EINVAL);
    EXPECT_ERRNO(send_typed(ranks[0].get(), data, 16, {0, 0, INAGG_TENSOR_WHOLE << 1, INAGG_SCALE_AUTO}), EINVAL);
    EXPECT_ERRNO(send_typed(ranks[0].get(), data, 16, {INAGG_INT32, INAGG_AVG, 0, INAGG_SCALE_AUTO}), EINVAL);
    EXPECT_ERRNO(send_typed(ranks[0].get(), data, 16, {INAGG_FLOAT32, 0, 0, 200}), ERANGE);
    EXPECT_ERRNO(send(ranks[0].get(), data, 15, MSG_NOSIGNAL), EINVAL); // no whole elements
}

TEST(Tensor, ManyInFlightComeInOrder) {
    const auto ranks = join(2);
    for (int i = 0; i < 50; i++)
        for (const Fd &rank : ranks)
            ASSERT_EQ(send_all(rank.get(), std::vector<float>(100 + i, i)), 4 * (100 + i));
    for (int i = 0; i < 50; i++)
        for (const Fd &rank : ranks)
            ASSERT_EQ(receive<float>(rank.get(), 1000), std::vector<float>(100 + i, 2 * i)) << i;
}

TEST(Tensor, OfZeroBytesIsABarrier) {
    const auto ranks = join(2);
    char byte;
    EXPECT_EQ(send(ranks[0].get(), nullptr, 0, MSG_NOSIGNAL), 0);
    EXPECT_ERRNO(recv(ranks[0].get(), &byte, 1, MSG_DONTWAIT), EAGAIN);
    EXPECT_EQ(send(ranks[1].get(), nullptr, 0, MSG_NOSIGNAL), 0);
    const Received r = receive_message(ranks[0].get(), &byte, 1);
    EXPECT_EQ(r.bytes, 0);
    EXPECT_TRUE(r.flags & MSG_EOR);
    EXPECT_EQ(recv(ranks[1].get(), &byte, 1, 0), 0);
}

TEST(Tensor, LargerThanTheBufferStreams) {
    static constexpr std::size_t count = 1 << 18;
    const auto ranks = join(2, [](int fd) { set(fd, INAGG_BUFFER, 128 << 10); });
    std::vector<std::thread> senders;
    for (const Fd &rank : ranks)
        senders.emplace_back([fd = rank.get()] {
            const auto in = ramp<float>(count, 0);
            const auto *at = reinterpret_cast<const char *>(in.data());
            for (std::size_t left = count * 4; left;) {
                const ssize_t sent = send(fd, at, left, MSG_NOSIGNAL);
                ASSERT_GT(sent, 0) << std::strerror(errno);
                at += sent;
                left -= static_cast<std::size_t>(sent);
            }
        });
    std::vector<std::thread> receivers;
    for (const Fd &rank : ranks)
        receivers.emplace_back([fd = rank.get()] {
            const auto sum = receive<float>(fd, count); // waits for all of it
            ASSERT_EQ(sum.size(), count);
            for (std::size_t i = 0; i < count; i++)
                ASSERT_EQ(sum[i], static_cast<float>(2 * i)) << i;
        });
    for (auto *threads : {&senders, &receivers})
        for (std::thread &thread : *threads)
            thread.join();
}

TEST(Tensor, BlockingSendReturnsWhenOnlyItsReceiverHelps) {
    constexpr std::size_t bytes = 1 << 20;
    const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 128 << 10); });
    const std::vector<char> data(bytes);
    std::vector<char> result(bytes);
    std::size_t sent = 0, received = 0;
    while (received < bytes) { // one thread: no deadlock
        if (sent < bytes) {
            const ssize_t n = send(ranks[0].get(), data.data() + sent, bytes - sent, MSG_NOSIGNAL);
            ASSERT_GT(n, 0);
            sent += static_cast<std::size_t>(n);
        }
        const ssize_t n = recv(ranks[0].get(), result.data() + received, bytes - received, MSG_DONTWAIT);
        ASSERT_TRUE(n >= 0 || errno == EAGAIN) << std::strerror(errno);
        received += static_cast<std::size_t>(std::max<ssize_t>(n, 0));
    }
}

TEST(Tensor, RestMustBeWhole) {
    const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 64 << 10); });
    const std::vector<char> data(1 << 20);
    const ssize_t sent = send(ranks[0].get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    ASSERT_LT(sent, 1 << 20);
    EXPECT_ERRNO(send(ranks[0].get(), data.data(), 4, MSG_NOSIGNAL), EMSGSIZE);
    char result[16 << 10];
    EXPECT_EQ(wait_for(ranks[0].get(), POLLIN), POLLIN);
    ASSERT_GT(recv(ranks[0].get(), result, sizeof(result), MSG_DONTWAIT), 0) << "there is room for more";
    const std::size_t rest = data.size() - static_cast<std::size_t>(sent);
    EXPECT_ERRNO(send_typed(ranks[0].get(), data.data() + sent, rest, {INAGG_INT32, INAGG_SUM, 0, INAGG_SCALE_AUTO}), EINVAL);
}

void use_trio(int fd) { EXPECT_EQ(setsockopt(fd, SOL_INAGG, INAGG_ALGORITHM, "trio", 4), 0); }

inagg_info info_of(int fd) {
    inagg_info info{};
    socklen_t length = sizeof(info);
    EXPECT_EQ(getsockopt(fd, SOL_INAGG, INAGG_INFO, &info, &length), 0);
    return info;
}

// Rank 2 sleeps, the others have their result in time; what it gets later is the same, bit for bit. `told`: it has it before
// it asks. (Linux 6.1 sends what a sweep has decided to one of several ranks behind a port.)
void expect_result_without_a_straggler(const std::vector<Fd> &ranks, bool told) {
    constexpr std::size_t count = 5000;
    std::vector<std::vector<float>> results;
    sockaddr_inagg peer{};
    socklen_t length = sizeof(peer);
    ASSERT_EQ(getpeername(ranks[2].get(), reinterpret_cast<sockaddr *>(&peer), &length), 0);
    ASSERT_EQ(connect_to(ranks[2].get(), peer), 0); // the first did not wait
    std::vector<uint64_t> blocks;
    for (const int rank : {0, 1})
        ASSERT_EQ(send_all(ranks[rank].get(), ramp<float>(count, static_cast<float>(rank))), int{4 * count});
    for (const int rank : {0, 1, 2}) {
        if (rank == 2) {
            if (told) {
                EXPECT_EQ(info_of(ranks[2].get()).ahead, blocks.size());
            }
            ASSERT_EQ(send_all(ranks[2].get(), std::vector<float>(count, 1000)), int{4 * count});
        }
        Received r{};
        results.emplace_back(count);
        blocks = receive_blocks(ranks[rank].get(), results.back().data(), 4 * count, r);
        ASSERT_EQ(r.bytes, int{4 * count}) << rank;
        EXPECT_EQ(r.flags & MSG_EOR, MSG_EOR);
        EXPECT_EQ(r.info.flags, INAGG_RESULT_DEGRADED);
        EXPECT_EQ(r.info.contributors & 4, 0U);
        EXPECT_EQ(r.info.any & ~3ULL, 0U);
        EXPECT_NE(r.info.any, 0U);
        EXPECT_EQ(r.info.blocks, (count + r.info.block_elements - 1) / r.info.block_elements);
        EXPECT_EQ(r.info.degraded_blocks, r.info.blocks);
        ASSERT_EQ(blocks.size(), r.info.blocks);
        EXPECT_EQ(results[0], results.back()) << "the same bits on rank " << rank;
        for (std::size_t i = 0; i < count; i++) {
            const uint64_t in = blocks[i / r.info.block_elements];
            const float want = (in & 1 ? static_cast<float>(i) : 0) + (in & 2 ? static_cast<float>(i + 1) : 0);
            ASSERT_NEAR(results.back()[i], want, 0.001) << i;
        }
    }
    EXPECT_GT(info_of(ranks[0].get()).degraded, 0U);
    if (told) {
        EXPECT_GT(info_of(ranks[2].get()).skipped, 0U);
    }
}

TEST(Trio, DecidesWhenABlockHasExpired) {
    expect_result_without_a_straggler(join(3, [](int fd) {
        use_trio(fd);
        EXPECT_EQ(set(fd, INAGG_EXPIRY, 10000), 0);
    }), false);
}

TEST(Trio, DecidesWhenAQuorumIsIn) {
    const auto ranks = join(3, [](int fd) {
        use_trio(fd);
        EXPECT_EQ(set(fd, INAGG_QUORUM, 2), 0);
    });
    expect_result_without_a_straggler(ranks, true);
    const std::vector<float> ones(100, 1);
    for (const int rank : {0, 1})
        ASSERT_GT(send_typed(ranks[rank].get(), ones.data(), 400, {INAGG_FLOAT32, INAGG_AVG, 0, INAGG_SCALE_AUTO}), 0);
    for (const int rank : {0, 1})
        EXPECT_EQ(receive<float>(ranks[rank].get(), 100), ones) << "divided by the two that are in it";
}

TEST(Trio, WaitsForAllWhereThatIsAsked) {
    const auto ranks = join(2, [](int fd) {
        use_trio(fd);
        EXPECT_EQ(set(fd, INAGG_QUORUM, 1), 0);
        const timeval limit{0, 300000};
        EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    });
    const float inf = std::numeric_limits<float>::infinity();
    const std::vector<float> one(8, 1), infinite(8, inf);
    const int fd = ranks[0].get();
    float got[8];
    const inagg_tensor_type whole = {INAGG_FLOAT32, INAGG_SUM, INAGG_TENSOR_WHOLE, INAGG_SCALE_AUTO};
    EXPECT_EQ(send_typed(fd, one.data(), 32, whole), 32);
    EXPECT_ERRNO(recv(fd, got, 32, 0), EAGAIN);
    EXPECT_EQ(send_typed(ranks[1].get(), one.data(), 32, whole), 32);
    EXPECT_EQ(receive<float>(fd, 8), std::vector<float>(8, 2));
    EXPECT_EQ(send_all(fd, infinite), 32);
    EXPECT_ERRNO(recv(fd, got, 32, 0), EAGAIN);
    EXPECT_EQ(send_all(ranks[1].get(), one), 32);
    EXPECT_EQ(receive<float>(fd, 8), infinite);
    EXPECT_EQ(send(fd, nullptr, 0, 0), 0);
    EXPECT_ERRNO(recv(fd, nullptr, 0, 0), EAGAIN);
    EXPECT_EQ(send(ranks[1].get(), nullptr, 0, 0), 0);
    EXPECT_EQ(receive_message(fd, nullptr, 0).flags & MSG_EOR, MSG_EOR);
}

TEST(Trio, OnlyItLeavesRanksOut) {
    for (const int name : {INAGG_EXPIRY, INAGG_QUORUM, INAGG_EXCLUDE}) {
        const Fd fd = open_socket(SOCK_NONBLOCK);
        ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
        EXPECT_EQ(set(fd.get(), name, name == INAGG_EXCLUDE ? 1000 : 1), 0);
        EXPECT_ERRNO(connect_to(fd.get(), address(switch_address(), 0, new_job(), 2)), EINVAL);
    }
    const Fd fd = open_socket(SOCK_NONBLOCK);
    ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
    use_trio(fd.get());
    EXPECT_EQ(set(fd.get(), INAGG_QUORUM, 3), 0);
    EXPECT_ERRNO(connect_to(fd.get(), address(switch_address(), 0, new_job(), 2)), EINVAL) << "of more ranks than there are";
}

// Jobs that exclude silent ranks.

constexpr inagg_tensor_type renewal = {INAGG_INT32, INAGG_SUM, INAGG_TENSOR_RENEW, 0};

void exclude_the_silent(int fd) {
    use_trio(fd);
    EXPECT_EQ(set(fd, INAGG_EXCLUDE, 2000), 0);
    EXPECT_EQ(set(fd, INAGG_DTYPE, INAGG_INT32), 0);
}

// Is there an interface, lo, by which no packet comes to the switch?
bool can_be_silent() { return !std::string(switch_address()).starts_with("127."); }

// What leaves through this interface, or with "" through any.
void use_interface(int fd, const std::string &name) {
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, name.c_str(), static_cast<socklen_t>(name.size())), 0);
}

// A tensor of ones is the sum of `ranks`, which are the job's first.
void expect_sum(const std::vector<Fd> &sockets, int ranks) {
    for (int r = 0; r < ranks; r++)
        ASSERT_EQ(send_all(sockets[r].get(), std::vector<int32_t>(1000, 1)), 4000);
    for (int r = 0; r < ranks; r++) {
        std::vector<int32_t> got(1000);
        const Received received = receive_message(sockets[r].get(), got.data(), 4000);
        ASSERT_EQ(received.bytes, 4000) << strerror(errno);
        EXPECT_EQ(got, std::vector<int32_t>(1000, ranks));
        EXPECT_EQ(received.info.contributors, inagg_all_ranks(static_cast<uint32_t>(ranks)));
    }
}

// Ranks 0 and 1 come to a renewal; true: the job has gone on.
bool renew(const std::vector<Fd> &ranks) {
    for (const int r : {0, 1})
        EXPECT_EQ(send_typed(ranks[r].get(), nullptr, 0, renewal), 0);
    bool renewed[2];
    for (const int r : {0, 1}) {
        const Received received = receive_message(ranks[r].get(), nullptr, 0);
        EXPECT_EQ(received.bytes, 0) << strerror(errno);
        EXPECT_TRUE(received.flags & MSG_EOR);
        renewed[r] = received.info.flags & INAGG_RESULT_RENEWED;
    }
    EXPECT_EQ(renewed[0], renewed[1]);
    return renewed[0];
}

TEST(Exclusion, WhoIsIdleIsNotSilent) {
    const auto ranks = join(2, exclude_the_silent);
    sleep(4);
    expect_sum(ranks, 2);
    EXPECT_EQ(info_of(ranks[0].get()).excluded, 0U);
    EXPECT_FALSE(renew(ranks)) << "a barrier";
}

TEST(Exclusion, TheOthersGoOnAndTakeBackWhoJoinsAgain) {
    if (!can_be_silent())
        GTEST_SKIP() << "the switch is on this host";
    auto ranks = join(3, exclude_the_silent);
    expect_sum(ranks, 3);
    use_interface(ranks[2].get(), "lo"); // where no switch is
    expect_sum(ranks, 2);
    for (int i = 0; i < 100 && !info_of(ranks[0].get()).excluded; i++)
        usleep(20000);
    EXPECT_EQ(info_of(ranks[0].get()).excluded, 4U);
    EXPECT_FALSE(renew(ranks)) << "nobody waits";

    use_interface(ranks[2].get(), "");
    EXPECT_TRUE(wait_for(ranks[2].get(), POLLIN) & POLLERR);
    int32_t one = 1;
    EXPECT_ERRNO(recv(ranks[2].get(), &one, 4, 0), ECONNRESET);
    Fault fault{};
    ASSERT_TRUE(read_fault(ranks[2].get(), fault));
    EXPECT_EQ(fault.fault.reason, unsigned{INAGG_R_EXCLUDED});
    EXPECT_ERRNO(send(ranks[2].get(), &one, 4, MSG_NOSIGNAL), ENOTCONN);

    sockaddr_inagg peer{};
    socklen_t length = sizeof(peer);
    ASSERT_EQ(getpeername(ranks[0].get(), reinterpret_cast<sockaddr *>(&peer), &length), 0);
    Fd back = open_socket(SOCK_NONBLOCK);
    ASSERT_EQ(bind_to(back.get(), address("::", 2)), 0);
    exclude_the_silent(back.get());
    EXPECT_ERRNO(connect_to(back.get(), peer), EINPROGRESS);

    EXPECT_ERRNO(send_typed(ranks[0].get(), &one, 4, renewal), EINVAL) << "no barrier";
    for (const int r : {0, 1})
        ASSERT_EQ(send_all(ranks[r].get(), std::vector<int32_t>(1, 1)), 4);
    EXPECT_ERRNO(send_typed(ranks[0].get(), nullptr, 0, renewal), EBUSY) << "behind what is not received";
    for (const int r : {0, 1})
        EXPECT_EQ(receive<int32_t>(ranks[r].get(), 1), std::vector<int32_t>(1, 2));
    EXPECT_FALSE(wait_for(back.get(), POLLOUT, 200)) << "it waits";
    const uint16_t generation = info_of(ranks[0].get()).generation;
    bool renewed = false;
    for (int i = 0; i < 50 && !renewed; i++) {
        usleep(100000);
        renewed = renew(ranks);
    }
    ASSERT_TRUE(renewed);
    EXPECT_NE(info_of(ranks[0].get()).generation, generation);
    EXPECT_EQ(info_of(ranks[0].get()).excluded, 0U);
    EXPECT_TRUE(wait_for(back.get(), POLLOUT) & POLLOUT);
    EXPECT_EQ(pending_error(back.get()), 0);
    block(back.get(), true);
    ranks[2] = std::move(back);
    expect_sum(ranks, 3);
}

TEST(Exclusion, WhoIsNotTakenBackLearnsWhy) {
    if (!can_be_silent())
        GTEST_SKIP() << "the switch is on this host";
    auto ranks = join(2, exclude_the_silent);
    use_interface(ranks[1].get(), "lo");
    expect_sum(ranks, 1);
    sockaddr_inagg peer{};
    socklen_t length = sizeof(peer);
    ASSERT_EQ(getpeername(ranks[0].get(), reinterpret_cast<sockaddr *>(&peer), &length), 0);
    const Fd back = open_socket();
    ASSERT_EQ(bind_to(back.get(), address("::", 1)), 0);
    exclude_the_silent(back.get());
    EXPECT_EQ(set(back.get(), INAGG_DEADLINE, 1000), 0);
    EXPECT_ERRNO(connect_to(back.get(), peer), ETIMEDOUT);
    Fault fault{};
    ASSERT_TRUE(read_fault(back.get(), fault));
    EXPECT_EQ(fault.fault.reason, unsigned{INAGG_R_EXCLUDED});
}

TEST(Receive, BufferMayBeSmall) {
    const auto ranks = join(1);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(1000, 0)), 4000);
    std::vector<char> bytes(4000);
    for (std::size_t at = 0; at < 4000;) {
        const std::size_t want = std::min<std::size_t>(37, 4000 - at);
        const Received r = receive_message(ranks[0].get(), bytes.data() + at, want);
        ASSERT_EQ(r.bytes, static_cast<ssize_t>(want));
        at += want;
        EXPECT_EQ(!!(r.flags & MSG_EOR), at == 4000);
    }
    std::vector<float> floats(1000);
    std::memcpy(floats.data(), bytes.data(), 4000);
    EXPECT_EQ(floats, ramp<float>(1000, 0));
}

TEST(Receive, TruncThrowsTheRestAway) {
    const auto ranks = join(1);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(1000, 0)), 4000);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(10, 5)), 40);
    float two[2] = {};
    const Received r = receive_message(ranks[0].get(), two, 8, MSG_TRUNC);
    EXPECT_EQ(r.bytes, 4000);
    EXPECT_TRUE(r.flags & MSG_TRUNC);
    EXPECT_TRUE(r.flags & MSG_EOR);
    EXPECT_EQ(two[1], 1);
    EXPECT_EQ(receive<float>(ranks[0].get(), 10), ramp<float>(10, 5));
}

TEST(Receive, RefusesFlags) {
    const auto ranks = join(1);
    char byte;
    EXPECT_ERRNO(recv(ranks[0].get(), &byte, 1, MSG_PEEK), EOPNOTSUPP);
    EXPECT_ERRNO(recv(ranks[0].get(), &byte, 1, MSG_OOB), EOPNOTSUPP);
    EXPECT_ERRNO(send(ranks[0].get(), &byte, 1, MSG_OOB), EOPNOTSUPP);
    EXPECT_ERRNO(send(ranks[0].get(), &byte, 1, MSG_CONFIRM), EINVAL);
    EXPECT_ERRNO(recv(ranks[0].get(), &byte, 1, MSG_ERRQUEUE), EAGAIN);
}

TEST(Send, RefusesAddressesAndOtherControlMessages) {
    const auto ranks = join(1);
    const float data[4] = {};
    const sockaddr_inagg to = address(switch_address(), 0, 1, 1);
    EXPECT_ERRNO(sendto(ranks[0].get(), data, 16, MSG_NOSIGNAL, reinterpret_cast<const sockaddr *>(&to), sizeof(to)), EISCONN);
    for (const auto &[level, type] : {std::pair(SOL_SOCKET, SO_MARK), {SOL_SOCKET, SCM_RIGHTS}, {IPPROTO_IP, INAGG_CMSG_TENSOR}}) {
        alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
        iovec iov{const_cast<float *>(data), 16};
        msghdr msg{};
        msg.msg_iov = &iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control;
        msg.msg_controllen = sizeof(control);
        *CMSG_FIRSTHDR(&msg) = {CMSG_LEN(sizeof(int)), level, type};
        EXPECT_ERRNO(sendmsg(ranks[0].get(), &msg, MSG_NOSIGNAL), EINVAL) << level << " " << type;
    }
}

TEST(Send, WritesButDoesNotSplice) {
    const auto ranks = join(1);
    const auto tensor = ramp<float>(1024, 0);
    const Fd file(memfd_create("tensor", MFD_CLOEXEC));
    ASSERT_EQ(write(file.get(), tensor.data(), 4096), 4096);
    off_t begin = 0;
    EXPECT_ERRNO(sendfile(ranks[0].get(), file.get(), &begin, 4096), EINVAL);
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    const Fd out(ends[0]), in(ends[1]);
    ASSERT_EQ(write(in.get(), tensor.data(), 4096), 4096);
    EXPECT_ERRNO(splice(out.get(), nullptr, ranks[0].get(), nullptr, 4096, 0), EINVAL);
    std::vector<float> got(1024);
    ASSERT_EQ(read(out.get(), got.data(), 4096), 4096) << "it is still in the pipe";

    ASSERT_EQ(write(ranks[0].get(), tensor.data(), 4096), 4096);
    ASSERT_EQ(read(ranks[0].get(), got.data(), 4096), 4096);
    EXPECT_EQ(got, tensor);
    ASSERT_EQ(write(ranks[0].get(), tensor.data(), 4096), 4096);
    for (ssize_t moved = 0; moved < 4096;) {
        const ssize_t n = splice(ranks[0].get(), nullptr, in.get(), nullptr, 4096, 0);
        ASSERT_GT(n, 0) << std::strerror(errno);
        moved += n;
    }
    got.assign(1024, 0);
    ASSERT_EQ(read(out.get(), got.data(), 4096), 4096);
    EXPECT_EQ(got, tensor);
}

TEST(Send, ManyTensorsInOneCall) {
    const auto ranks = join(1);
    std::vector<float> a = ramp<float>(100, 1), b = ramp<float>(200, 2);
    iovec parts[2] = {{a.data(), 400}, {b.data(), 800}};
    mmsghdr messages[2]{};
    for (int i = 0; i < 2; i++) {
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    ASSERT_EQ(sendmmsg(ranks[0].get(), messages, 2, 0), 2);
    EXPECT_EQ(receive<float>(ranks[0].get(), 100), a);
    EXPECT_EQ(receive<float>(ranks[0].get(), 200), b);
}

TEST(Receive, WaitsNoLongerThanItsTimeout) {
    const auto ranks = join(2);
    const timeval limit{0, 50000};
    ASSERT_EQ(setsockopt(ranks[0].get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    float sum[10];
    EXPECT_ERRNO(recv(ranks[0].get(), sum, sizeof(sum), 0), EAGAIN);
}

TEST(Receive, WaitsForAnotherThreadNoLongerThanItsTimeout) {
    const auto ranks = join(2);
    const int fd = ranks[0].get();
    std::thread first([&] { EXPECT_EQ(receive<float>(fd, 10).size(), 10u); });
    std::this_thread::sleep_for(std::chrono::milliseconds(200)); // it waits
    const timeval limit{0, 50000};
    ASSERT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    float sum[10];
    EXPECT_ERRNO(recv(fd, sum, sizeof(sum), 0), EAGAIN);
    EXPECT_ERRNO(recv(fd, sum, sizeof(sum), MSG_DONTWAIT), EAGAIN);
    for (const Fd &rank : ranks)
        EXPECT_EQ(send_all(rank.get(), ramp<float>(10, 0)), 40);
    first.join();
}

TEST(Receive, ThreadsTakeTurns) {
    const auto ranks = join(1);
    std::atomic<int> received{0};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
        threads.emplace_back([&] { received += receive<float>(ranks[0].get(), 10).size() == 10; });
    std::this_thread::sleep_for(std::chrono::milliseconds(200)); // one waits for a result, three for the first
    for (int i = 0; i < 4; i++)
        EXPECT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(received, 4);
}

TEST(Receive, IsInterrupted) {
    const auto ranks = join(2);
    struct sigaction action {};
    action.sa_handler = [](int) {};
    sigaction(SIGALRM, &action, nullptr);
    const itimerval soon{{0, 0}, {0, 50000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    char byte;
    EXPECT_ERRNO(recv(ranks[0].get(), &byte, 1, 0), EINTR);
}

TEST(Receive, IsRestartedUnlessItHasATimeout) {
    const auto ranks = join(2);
    struct sigaction action {};
    action.sa_handler = [](int) {};
    action.sa_flags = SA_RESTART;
    sigaction(SIGALRM, &action, nullptr);
    sigset_t alarm;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    pthread_sigmask(SIG_BLOCK, &alarm, nullptr);
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        for (const Fd &rank : ranks)
            EXPECT_EQ(send_all(rank.get(), ramp<float>(10, 0)), 40);
    });
    pthread_sigmask(SIG_UNBLOCK, &alarm, nullptr);
    const itimerval soon{{0, 0}, {0, 50000}};
    setitimer(ITIMER_REAL, &soon, nullptr);
    EXPECT_EQ(receive<float>(ranks[0].get(), 10).size(), 10u);
    later.join();
    const timeval limit{20, 0};
    ASSERT_EQ(setsockopt(ranks[0].get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
    setitimer(ITIMER_REAL, &soon, nullptr);
    char byte;
    EXPECT_ERRNO(recv(ranks[0].get(), &byte, 1, 0), EINTR);
}

// Memory whose first page comes when the test wants it to.
struct LatePage {
    static constexpr std::size_t size = 4096;
    Fd faults{static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))};
    void *memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    LatePage() {
        if (faults.get() < 0)
            return;
        uffdio_api api{UFFD_API, 0, 0};
        uffdio_register range{{reinterpret_cast<uintptr_t>(memory), size}, UFFDIO_REGISTER_MODE_MISSING, 0};
        EXPECT_EQ(ioctl(faults.get(), UFFDIO_API, &api), 0);
        EXPECT_EQ(ioctl(faults.get(), UFFDIO_REGISTER, &range), 0);
    }
    ~LatePage() { munmap(memory, size); }
    // Until somebody wants it.
    bool is_wanted() { return wait_for(faults.get(), POLLIN) == POLLIN; }
    void come(const std::string &text) {
        alignas(size) static char page[size];
        text.copy(page, size);
        uffdio_copy copy{reinterpret_cast<uintptr_t>(memory), reinterpret_cast<uintptr_t>(page), size, 0, 0};
        EXPECT_EQ(ioctl(faults.get(), UFFDIO_COPY, &copy), 0);
    }
};

TEST(Options, APageThatDoesNotComeKeepsNobodyElseWaiting) {
    const Fd fd = open_socket();
    LatePage page;
    if (page.faults.get() < 0)
        GTEST_SKIP() << "no userfaultfd(2): " << std::strerror(errno);
    std::thread setter(
        [&] { EXPECT_EQ(setsockopt(fd.get(), SOL_INAGG, INAGG_ALGORITHM, page.memory, 8), 0); });
    EXPECT_TRUE(page.is_wanted());
    auto others = std::async(std::launch::async, [&] {
        EXPECT_EQ(bind_to(fd.get(), address("::", 1)), 0);
        EXPECT_GE(memory_in_use(), 0);
        EXPECT_GE(open_socket().get(), 0);
    });
    EXPECT_EQ(others.wait_for(std::chrono::seconds(30)), std::future_status::ready);
    page.come("switchml");
    setter.join();
}

TEST(Poll, TellsWhatCanBeDone) {
    const auto ranks = join(2);
    EXPECT_EQ(wait_for(ranks[0].get(), POLLIN | POLLOUT, 0), POLLOUT);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    EXPECT_EQ(wait_for(ranks[0].get(), POLLIN, 50), 0);
    ASSERT_EQ(send_all(ranks[1].get(), ramp<float>(10, 0)), 40);
    EXPECT_EQ(wait_for(ranks[0].get(), POLLIN), POLLIN);
    EXPECT_EQ(receive<float>(ranks[0].get(), 10).size(), 10u);
    EXPECT_EQ(wait_for(ranks[0].get(), POLLIN, 0), 0);
    ASSERT_EQ(shutdown(ranks[0].get(), SHUT_WR), 0);
    EXPECT_EQ(wait_for(ranks[0].get(), POLLOUT, 0), POLLOUT) << "send() does not wait, but fail";
    EXPECT_EQ(wait_for(open_socket().get(), POLLOUT, 0), POLLOUT);
}

TEST(Poll, EdgesAreReported) {
    const auto ranks = join(2);
    const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{EPOLLIN | EPOLLET, {}};
    ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, ranks[0].get(), &event), 0);
    EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 0), 0);
    for (int round = 0; round < 3; round++) {
        for (const Fd &rank : ranks)
            ASSERT_EQ(send_all(rank.get(), ramp<float>(10, round)), 40);
        EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 30000), 1);
        EXPECT_TRUE(event.events & EPOLLIN);
        EXPECT_EQ(receive<float>(ranks[0].get(), 10).size(), 10u);
        EXPECT_EQ(receive<float>(ranks[1].get(), 10).size(), 10u);
    }
}

TEST(Poll, WritableAgainWhenRead) {
    const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 64 << 10); });
    const std::vector<char> data(1 << 20);
    std::vector<char> result(1 << 20);
    ASSERT_GT(send(ranks[0].get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL), 0);
    wait_for(ranks[0].get(), POLLIN);
    EXPECT_EQ(wait_for(ranks[0].get(), POLLOUT, 0), 0);
    ASSERT_GT(recv(ranks[0].get(), result.data(), result.size(), MSG_DONTWAIT), 0);
    EXPECT_EQ(wait_for(ranks[0].get(), POLLOUT), POLLOUT);
}

TEST(Uring, SendsAndReceives) {
    const auto ranks = join(2);
    io_uring ring;
    if (const int error = io_uring_queue_init(8, &ring, 0))
        GTEST_SKIP() << "no io_uring: " << std::strerror(-error);
    const auto in = ramp<float>(5000, 1);
    std::vector<float> out(5000);
    io_uring_sqe *sqe = io_uring_get_sqe(&ring);
    io_uring_prep_recv(sqe, ranks[0].get(), out.data(), 20000, MSG_WAITALL); // before there is anything
    io_uring_sqe_set_data64(sqe, 1);
    sqe = io_uring_get_sqe(&ring);
    io_uring_prep_send(sqe, ranks[0].get(), in.data(), 20000, 0);
    io_uring_sqe_set_data64(sqe, 2);
    ASSERT_EQ(io_uring_submit(&ring), 2);
    ASSERT_EQ(send_all(ranks[1].get(), in), 20000);
    for (int i = 0; i < 2; i++) {
        io_uring_cqe *cqe;
        ASSERT_EQ(io_uring_wait_cqe(&ring, &cqe), 0);
        EXPECT_EQ(cqe->res, 20000) << cqe->user_data;
        io_uring_cqe_seen(&ring, cqe);
    }
    EXPECT_EQ(out[4999], 10000);
    io_uring_queue_exit(&ring);
}

TEST(Uring, ReceivesWhatIsThereUnlessItShallWaitForAll) {
    const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 64 << 10); });
    io_uring ring;
    if (const int error = io_uring_queue_init(8, &ring, 0))
        GTEST_SKIP() << "no io_uring: " << std::strerror(-error);
    std::vector<char> data(1 << 20);
    const ssize_t sent = send(ranks[0].get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    ASSERT_GT(sent, 0);
    EXPECT_EQ(wait_for(ranks[0].get(), POLLIN), POLLIN);
    io_uring_prep_recv(io_uring_get_sqe(&ring), ranks[0].get(), data.data(), data.size(), 0);
    ASSERT_EQ(io_uring_submit(&ring), 1);
    io_uring_cqe *cqe;
    __kernel_timespec patience{10, 0};
    ASSERT_EQ(io_uring_wait_cqe_timeout(&ring, &cqe, &patience), 0) << "recv() would wait for the rest";
    EXPECT_GT(cqe->res, 0);
    EXPECT_LE(cqe->res, sent);
    io_uring_queue_exit(&ring);
}

TEST(Shutdown, OfSending) {
    const auto ranks = join(2);
    for (const Fd &rank : ranks)
        ASSERT_EQ(send_all(rank.get(), ramp<float>(10, 0)), 40);
    ASSERT_EQ(shutdown(ranks[0].get(), SHUT_WR), 0);
    EXPECT_ERRNO(send_all(ranks[0].get(), ramp<float>(10, 0)), EPIPE);
    EXPECT_EQ(receive<float>(ranks[0].get(), 10).size(), 10u);
    char byte;
    EXPECT_EQ(recv(ranks[0].get(), &byte, 1, 0), 0);
}

TEST(Shutdown, EndsAJoin) {
    const Fd fd = open_socket();
    ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        EXPECT_EQ(shutdown(fd.get(), SHUT_RDWR), 0);
    });
    EXPECT_ERRNO(connect_to(fd.get(), address("127.0.0.1", 0, 1, 2)), ECONNRESET);
    other.join();
    EXPECT_ERRNO(shutdown(fd.get(), SHUT_RDWR), ENOTCONN);
    EXPECT_EQ(connect_to(fd.get(), address(switch_address(), 0, new_job(), 1)), 0); // may be called again
}

TEST(Shutdown, OfReceivingEndsARecv) {
    const auto ranks = join(2);
    std::thread other([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        EXPECT_EQ(shutdown(ranks[0].get(), SHUT_RD), 0);
    });
    char byte;
    EXPECT_EQ(recv(ranks[0].get(), &byte, 1, 0), 0);
    other.join();
}

TEST(Shutdown, InTheMiddleOfATensorIsTheEnd) {
    const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 64 << 10); });
    std::vector<char> data(1 << 20);
    ASSERT_GT(send(ranks[0].get(), data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL), 0);
    ASSERT_EQ(shutdown(ranks[0].get(), SHUT_WR), 0);
    ssize_t received = 0;
    while ((received = recv(ranks[0].get(), data.data(), data.size(), 0)) > 0)
        ;
    EXPECT_EQ(received < 0 ? errno : 0, ECONNABORTED);
}

TEST(Shutdown, RaisesSigpipeUnlessAskedNotTo) {
    const pid_t child = fork();
    if (!child) {
        const auto ranks = join(1);
        shutdown(ranks[0].get(), SHUT_WR);
        send(ranks[0].get(), "abcd", 4, 0);
        _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGPIPE) << status;
}

TEST(Shutdown, OfReceivingThrowsResultsAway) {
    const auto ranks = join(2, [](int fd) { set(fd, INAGG_BUFFER, 64 << 10); });
    ASSERT_EQ(shutdown(ranks[0].get(), SHUT_RD), 0);
    EXPECT_TRUE(wait_for(ranks[0].get(), POLLRDHUP, 0) & POLLRDHUP);
    for (int i = 0; i < 20; i++) { // more than its buffer holds
        ASSERT_EQ(send_all(ranks[0].get(), std::vector<float>(4000, 1)), 16000);
        ASSERT_EQ(send_all(ranks[1].get(), std::vector<float>(4000, 1)), 16000);
        ASSERT_EQ(receive<float>(ranks[1].get(), 4000), std::vector<float>(4000, 2));
    }
    char byte;
    EXPECT_EQ(recv(ranks[0].get(), &byte, 1, 0), 0);
}

TEST(Close, FinishesContributions) {
    auto ranks = join(2);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(100000, 0)), 400000);
    ranks[0] = Fd();
    ASSERT_EQ(send_all(ranks[1].get(), ramp<float>(100000, 0)), 400000);
    const auto sum = receive<float>(ranks[1].get(), 100000);
    ASSERT_EQ(sum.size(), 100000u);
    EXPECT_EQ(sum[99999], 2 * 99999.F);
}

TEST(Close, LingersAsLongAsTold) {
    auto ranks = join(2);
    const linger two_seconds{1, 2};
    ASSERT_EQ(setsockopt(ranks[0].get(), SOL_SOCKET, SO_LINGER, &two_seconds, sizeof(two_seconds)), 0);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    const auto before = std::chrono::steady_clock::now();
    std::thread later([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        send_all(ranks[1].get(), ramp<float>(10, 0));
    });
    ranks[0] = Fd();
    EXPECT_GE(std::chrono::steady_clock::now() - before, std::chrono::milliseconds(250));
    later.join();
    EXPECT_EQ(receive<float>(ranks[1].get(), 10).size(), 10u);
}

TEST(Ioctl, CountsBytes) {
    const auto ranks = join(2);
    int bytes = -1;
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(1000, 0)), 4000);
    ASSERT_EQ(ioctl(ranks[0].get(), SIOCOUTQ, &bytes), 0);
    EXPECT_EQ(bytes, 4000);
    ASSERT_EQ(ioctl(ranks[0].get(), SIOCINQ, &bytes), 0);
    EXPECT_EQ(bytes, 0);
    ASSERT_EQ(send_all(ranks[1].get(), ramp<float>(1000, 0)), 4000);
    wait_for(ranks[0].get(), POLLIN);
    ASSERT_EQ(ioctl(ranks[0].get(), SIOCINQ, &bytes), 0);
    EXPECT_EQ(bytes, 4000);
    ASSERT_EQ(ioctl(ranks[0].get(), SIOCOUTQ, &bytes), 0);
    EXPECT_EQ(bytes, 0);
    EXPECT_ERRNO(ioctl(ranks[0].get(), SIOCGSTAMP_OLD - 100, &bytes), ENOTTY);
}

TEST(Info, TellsTheJob) {
    const auto ranks = join(2);
    for (const Fd &rank : ranks)
        ASSERT_EQ(send_all(rank.get(), ramp<float>(1000, 0)), 4000);
    EXPECT_EQ(receive<float>(ranks[1].get(), 1000).size(), 1000u);
    inagg_info info{};
    socklen_t length = sizeof(info);
    ASSERT_EQ(getsockopt(ranks[1].get(), SOL_INAGG, INAGG_INFO, &info, &length), 0);
    EXPECT_EQ(length, sizeof(info));
    EXPECT_EQ(info.rank, 1);
    EXPECT_EQ(info.size, 2);
    EXPECT_GT(info.elements, 0);
    EXPECT_GT(info.slots, 0u);
    EXPECT_EQ(info.blocks, 2 * ((1000 + info.elements - 1u) / info.elements)); // the first guess is wrong
    EXPECT_EQ(info.contributions, info.blocks);
    EXPECT_TRUE(info.srtt_ns > 0 || info.retransmissions + info.requests > 0); // what is repeated is not timed
}

TEST(Fault, DeadlineNamesWhoIsMissing) {
    const auto ranks = join(3);
    for (const Fd &rank : ranks)
        ASSERT_EQ(set(rank.get(), INAGG_DEADLINE, 500), 0);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    ASSERT_EQ(send_all(ranks[2].get(), ramp<float>(10, 0)), 40);
    float sum[10];
    EXPECT_ERRNO(recv(ranks[0].get(), sum, sizeof(sum), 0), ETIMEDOUT);
    EXPECT_TRUE(wait_for(ranks[0].get(), POLLIN, 0) & POLLHUP);
    Fault fault{};
    ASSERT_TRUE(read_fault(ranks[0].get(), fault));
    EXPECT_EQ(fault.fault.heard, 1);
    EXPECT_EQ(fault.fault.missing, 2u);
    EXPECT_EQ(fault.fault.control, 1);
    EXPECT_EQ(fault.extended.ee_errno, static_cast<uint32_t>(ETIMEDOUT));
    EXPECT_EQ(fault.extended.ee_origin, SO_EE_ORIGIN_LOCAL);
    EXPECT_EQ(fault.extended.ee_data, fault.fault.job);
    EXPECT_ERRNO(recv(ranks[0].get(), sum, sizeof(sum), 0), ENOTCONN);
    EXPECT_ERRNO(send(ranks[0].get(), sum, sizeof(sum), MSG_NOSIGNAL), ENOTCONN);
}

TEST(Fault, ValueOutsideTheFixedScale) {
    const auto ranks = join(2);
    for (const Fd &rank : ranks)
        ASSERT_EQ(set(rank.get(), INAGG_SCALE, 20), 0);
    ASSERT_EQ(send_all(ranks[0].get(), std::vector<float>{1, 1e9F}), 8);
    ASSERT_EQ(send_all(ranks[1].get(), std::vector<float>{1, 1}), 8);
    float sum[2];
    for (const Fd &rank : ranks)
        EXPECT_ERRNO(recv(rank.get(), sum, sizeof(sum), 0), ERANGE);
    for (const Fd &rank : ranks) // the next one is fine
        ASSERT_EQ(send_all(rank.get(), std::vector<float>{1, 2}), 8);
    for (const Fd &rank : ranks)
        EXPECT_EQ(receive<float>(rank.get(), 2), (std::vector<float>{2, 4}));
}

TEST(Nonfinite, ComesOutWhereItGoesIn) {
    constexpr float inf = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
    const auto ranks = join(2);
    std::vector<float> one(1000, 0.5F), two(1000, 2);
    one[0] = inf, one[400] = -inf, one[401] = nan, one[999] = inf, two[999] = -inf, two[7] = 1e30F;
    ASSERT_EQ(send_all(ranks[0].get(), one), 4000);
    ASSERT_EQ(send_all(ranks[1].get(), two), 4000);
    for (const Fd &rank : ranks) // another one behind it
        ASSERT_EQ(send_all(rank.get(), ramp<float>(10, 0)), 40);
    for (const Fd &rank : ranks) {
        const auto sum = receive<float>(rank.get(), 1000);
        ASSERT_EQ(sum.size(), 1000u);
        EXPECT_EQ(sum[0], inf);
        EXPECT_EQ(sum[400], -inf);
        EXPECT_TRUE(std::isnan(sum[401]) && std::isnan(sum[999]));
        EXPECT_EQ(sum[7], 1e30F);
        EXPECT_EQ(receive<float>(rank.get(), 10)[9], 18);
    }
    const std::vector<uint16_t> half = {0x7c00, 0x3c00, 0xfc00, 0x7e00}; // inf 1 -inf nan
    for (const Fd &rank : ranks)
        ASSERT_EQ(send_typed(rank.get(), half.data(), 8, {INAGG_FLOAT16, INAGG_SUM, 0, INAGG_SCALE_AUTO}), 8);
    for (const Fd &rank : ranks)
        EXPECT_EQ(receive<uint16_t>(rank.get(), 4), (std::vector<uint16_t>{0x7c00, 0x4000, 0xfc00, 0x7e00}));
}

TEST(Nonfinite, NeedsTheWholeTensorInTheBuffer) {
    const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 64 << 10); });
    std::vector<float> large(100000, std::numeric_limits<float>::infinity());
    ASSERT_GT(send(ranks[0].get(), large.data(), 400000, MSG_DONTWAIT | MSG_NOSIGNAL), 0);
    EXPECT_ERRNO(recv(ranks[0].get(), large.data(), 400000, 0), EDOM);
}

TEST(Fault, BadMemory) {
    const auto ranks = join(1);
    EXPECT_ERRNO(send(ranks[0].get(), reinterpret_cast<void *>(8), 4000, MSG_NOSIGNAL), EFAULT);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    EXPECT_ERRNO(recv(ranks[0].get(), reinterpret_cast<void *>(8), 40, 0), EFAULT);
    EXPECT_EQ(receive<float>(ranks[0].get(), 10), ramp<float>(10, 0));
}

TEST(Memory, IsLimitedAndComesBack) {
    const long before = memory_in_use();
    ASSERT_GE(before, 0);
    {
        std::vector<Fd> many;
        bool refused = false;
        for (int i = 0; i < 200 && !refused; i++) {
            auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 16 << 20); });
            refused = send(ranks[0].get(), "abcd", 4, MSG_NOSIGNAL) < 0;
            EXPECT_TRUE(!refused || errno == ENOBUFS) << std::strerror(errno);
            many.push_back(std::move(ranks[0]));
        }
        EXPECT_TRUE(refused);
        EXPECT_GT(memory_in_use(), before);
    }
    expect_memory_back(before);
}

// One that this process is in.
class ControlGroup {
public:
    ControlGroup() {
        std::ofstream(root / "cgroup.subtree_control") << "+memory";
        std::error_code error;
        made_ = std::filesystem::create_directory(path, error) && std::filesystem::exists(path / "memory.current");
        std::ofstream(path / "cgroup.procs") << getpid();
    }
    ~ControlGroup() { // once the last socket has gone
        std::ofstream(root / "cgroup.procs") << getpid();
        std::error_code error;
        std::filesystem::remove(path, error);
    }
    explicit operator bool() const { return made_; }
    long in_use() const {
        long bytes = 0;
        std::ifstream(path / "memory.current") >> bytes;
        return bytes;
    }
    void limit(const std::string &bytes) const { std::ofstream(path / "memory.max") << bytes; }

private:
    const std::filesystem::path root = "/sys/fs/cgroup", path = root / "af_inagg";
    bool made_;
};

TEST(Memory, OfInfinitiesIsChargedToTheControlGroup) {
    const ControlGroup group;
    if (!group)
        GTEST_SKIP() << "no control groups here";
    {
        constexpr std::size_t count = 1 << 20;
        const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 8 << 20); });
        std::vector<float> tensor(count, 1);
        ASSERT_EQ(send_all(ranks[0].get(), tensor), static_cast<ssize_t>(4 * count));
        ASSERT_EQ(receive<float>(ranks[0].get(), count), tensor);
        tensor[5] = std::numeric_limits<float>::infinity();
        const long before = group.in_use();
        ASSERT_EQ(send_all(ranks[0].get(), tensor), static_cast<ssize_t>(4 * count));
        wait_for(ranks[0].get(), POLLIN);
        EXPECT_GT(group.in_use() - before, static_cast<long>(3 * count)) << "a count for each element";
        EXPECT_EQ(receive<float>(ranks[0].get(), count), tensor);
    }
}

TEST(Memory, SendFailsAndNobodyIsKilledAtTheLimitOfTheControlGroup) {
    const ControlGroup group;
    if (!group)
        GTEST_SKIP() << "no control groups here";
    const auto ranks = join(1, [](int fd) { set(fd, INAGG_BUFFER, 32 << 20); });
    group.limit(std::to_string(group.in_use() + (8 << 20)));
    EXPECT_ERRNO(send(ranks[0].get(), "abcd", 4, MSG_NOSIGNAL), ENOMEM);
    group.limit("max");
    EXPECT_EQ(send(ranks[0].get(), "abcd", 4, MSG_NOSIGNAL), 4);
}

// A rank alone: all that it asks of the kernel, from socket() to close(). 0 or what failed.
int errno_of_a_job(const std::vector<float> &tensor) {
    static uint16_t job = 5000;
    const Fd fd = open_socket();
    if (!fd || bind_to(fd.get(), address("::")) || connect_to(fd.get(), address(switch_address(), 0, job++, 1)) ||
        send_all(fd.get(), tensor) < 0)
        return errno;
    std::vector<float> sum(tensor.size());
    const std::span<std::byte> bytes = std::as_writable_bytes(std::span(sum));
    for (std::size_t have = 0; have < bytes.size();) { // what was copied before a copy failed counts
        const ssize_t more = recv(fd.get(), bytes.data() + have, bytes.size() - have, 0);
        if (more <= 0)
            return errno;
        have += static_cast<std::size_t>(more);
    }
    EXPECT_EQ(sum, tensor);
    return 0;
}

void sweep_failures(const std::vector<float> &tensor) {
    const FailNth fault;
    if (!fault)
        GTEST_SKIP() << "this kernel has no fault injection";
    const long before = memory_in_use();
    unsigned nth = 1;
    for (bool failed = true; failed; nth++) {
        fault.arm(nth);
        const int error = errno_of_a_job(tensor);
        failed = fault.disarm();
        EXPECT_TRUE(error == 0 ||
                    (failed && (error == ENOMEM || error == ENOBUFS || error == ENFILE || error == EFAULT)))
            << "call " << nth << ": " << std::strerror(error);
    }
    EXPECT_GT(nth, 20U) << "nothing could fail: is ignore-gfp-wait off?";
    expect_memory_back(before);
}

TEST(Memory, EachAllocationAndCopyMayFail) { sweep_failures(ramp<float>(1000, 1)); }

TEST(Memory, EachAllocationAndCopyMayFailForInfinities) {
    sweep_failures(std::vector<float>(100, std::numeric_limits<float>::infinity()));
}

TEST(Proc, ShowsSocketsAndFamily) {
    const auto ranks = join(1);
    std::ifstream proc("/proc/net/inagg");
    std::string first, line;
    std::getline(proc, first);
    EXPECT_NE(first.find("family 25 "), std::string::npos) << first;
    int sockets = 0;
    while (std::getline(proc, line))
        sockets += line.find(" state joined job ") != std::string::npos;
    EXPECT_EQ(sockets, 1);
}

// The line of /proc/net/inagg that begins a socket with this port.
std::string line_of(uint16_t port) {
    std::ifstream proc("/proc/net/inagg");
    for (std::string line; std::getline(proc, line);)
        if (line.find("]:" + std::to_string(ntohs(port)) + " switch") != std::string::npos)
            return line;
    return "";
}

TEST(Proc, CountsWhatEachRankRefuses) {
    const auto ranks = join(2);
    const uint16_t port = name_of(ranks[1].get()).sinagg_port;
    const Fd stranger(socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = port;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const char nonsense[200] = {};
    for (int i = 0; i < 3; i++)
        ASSERT_EQ(sendto(stranger.get(), nonsense, sizeof(nonsense), 0, reinterpret_cast<sockaddr *>(&to), sizeof(to)), 200);
    for (int i = 0; i < 100 && line_of(port).find(" dropped_ADDRESS 3") == std::string::npos; i++)
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_NE(line_of(port).find(" dropped_ADDRESS 3"), std::string::npos) << line_of(port);
    EXPECT_NE(line_of(port).find(" rank 1 "), std::string::npos);
    EXPECT_EQ(line_of(name_of(ranks[0].get()).sinagg_port).find(" dropped_"), std::string::npos);
}

// What netfilter's owner match, ss(8) and this file know of a packet's user is one pointer.
TEST(Proc, UdpPacketsAreTheirUsers) {
    const Fd fd = open_socket();
    ASSERT_EQ(bind_to(fd.get(), address("127.0.0.1", 0)), 0);
    struct stat status {};
    ASSERT_EQ(fstat(fd.get(), &status), 0);
    char port[16];
    std::snprintf(port, sizeof(port), ":%04X ", ntohs(name_of(fd.get()).sinagg_port));
    std::ifstream udp("/proc/net/udp");
    std::string line;
    while (std::getline(udp, line) && line.find(port) == std::string::npos)
        ;
    EXPECT_NE(line.find(" " + std::to_string(status.st_ino) + " "), std::string::npos) << line;
}

TEST(Sysctl, CutsTheBuffer) {
    write_sysctl("buffer_max", "200000");
    const Fd fd = open_socket();
    EXPECT_EQ(get(fd.get(), INAGG_BUFFER), 200000) << "buffer_default, too";
    EXPECT_EQ(set(fd.get(), INAGG_BUFFER, 300000), 0);
    EXPECT_EQ(get(fd.get(), INAGG_BUFFER), 200000);
    write_sysctl("buffer_max", std::to_string(256 << 20));
}

TEST(Sysctl, SetsTheDefaultsOfNewSockets) {
    write_sysctl("deadline_default_ms", "1234");
    write_sysctl("buffer_default", "100000");
    const Fd fd = open_socket();
    EXPECT_EQ(get(fd.get(), INAGG_DEADLINE), 1234);
    EXPECT_EQ(get(fd.get(), INAGG_BUFFER), 100000);
    write_sysctl("deadline_default_ms", "30000");
    write_sysctl("buffer_default", std::to_string(4 << 20));
}

TEST(Unprivileged, UsersMayAllreduce) {
    const pid_t child = fork();
    if (!child) {
        if (setresgid(65534, 65534, 65534) || setresuid(65534, 65534, 65534))
            _exit(2);
        const auto ranks = join(2);
        for (const Fd &rank : ranks)
            send_all(rank.get(), ramp<float>(10, 1));
        const bool ok = receive<float>(ranks[0].get(), 10)[9] == 20;
        sockaddr_inagg low = address("127.0.0.1", 0);
        low.sinagg_port = htons(80);
        const bool denied = bind_to(open_socket().get(), low) < 0 && errno == EACCES;
        _exit(ok && denied ? 0 : 1);
    }
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
}
