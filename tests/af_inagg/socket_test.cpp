// SPDX-License-Identifier: BSD-2-Clause
// What docs/man/inagg.7 says of each system call, on real sockets through a real switch.
#include "calls.hpp"

#include <inagg/core/types.h>
#include <inagg/reason.h>

#include <liburing.h>
#include <linux/userfaultfd.h>
#include <net/if.h>
#include <sys/epoll.h>
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
#include <future>
#include <limits>
#include <thread>

using namespace af_inagg;
using inagg::Fd;

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
    EXPECT_ERRNO(set(fd.get(), INAGG_VERIFY, 1), EINVAL);
    EXPECT_EQ(setsockopt(fd.get(), SOL_INAGG, INAGG_VERIFY, "0123456789abcdef", 16), 0);
    EXPECT_EQ(get(fd.get(), INAGG_VERIFY), -EOPNOTSUPP);
    EXPECT_ERRNO(set(fd.get(), INAGG_INFO, 1), ENOPROTOOPT);
    EXPECT_ERRNO(set(fd.get(), 99, 1), ENOPROTOOPT);
    EXPECT_ERRNO(setsockopt(fd.get(), SOL_INAGG, INAGG_DTYPE, "", 1), EINVAL);
    EXPECT_ERRNO(setsockopt(fd.get(), SOL_INAGG + 1, INAGG_DTYPE, "abcd", 4), ENOPROTOOPT);
}

// Until rank 0, which waits for rank 1, has sent or asked again.
std::chrono::steady_clock::duration time_to_repeat(int floor_us) {
    const auto ranks = join(2, [&](int fd) {
        EXPECT_EQ(set(fd, INAGG_RTO_MIN, floor_us), 0);
        EXPECT_EQ(set(fd, INAGG_DTYPE, INAGG_INT32), 0);
    });
    const int fd = ranks[0].get();
    for (int i = 0; i < 3; i++) {
        for (const Fd &rank : ranks)
            EXPECT_EQ(send_all(rank.get(), ramp<int32_t>(10, 0)), 40);
        for (const Fd &rank : ranks)
            EXPECT_EQ(receive<int32_t>(rank.get(), 10).size(), 10u);
    }
    const auto repeated = [&] { return info_of(fd).retransmissions + info_of(fd).requests; };
    const uint64_t before = repeated();
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_EQ(send_all(fd, ramp<int32_t>(10, 0)), 40);
    while (repeated() == before)
        usleep(1000);
    return std::chrono::steady_clock::now() - begin;
}

TEST(Options, FloorHoldsTheRetransmissionTimerBack) {
    EXPECT_GE(time_to_repeat(500000), std::chrono::milliseconds(500));
    EXPECT_GE(time_to_repeat(100000), std::chrono::milliseconds(100));
    EXPECT_GE(time_to_repeat(1000), std::chrono::milliseconds(1));
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
    for (const int name :
         {INAGG_WINDOW, INAGG_BLOCK, INAGG_RTO_MIN, INAGG_CHECKED, INAGG_EXPIRY, INAGG_QUORUM, INAGG_HISTORY, INAGG_EXCLUDE})
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
    EXPECT_ERRNO(send_typed(ranks[0].get(), data, 16, {0, 0, INAGG_TENSOR_UNVERIFIED << 1, INAGG_SCALE_AUTO}), EINVAL);
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
                for (int i = 0; i < 1000 && info_of(ranks[2].get()).ahead < blocks.size(); i++)
                    usleep(10000); // a switch may tell it last
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
    expect_result_without_a_straggler(join(3,
                                           [](int fd) {
                                               use_trio(fd);
                                               EXPECT_EQ(set(fd, INAGG_EXPIRY, 10000), 0);
                                           }),
                                      false);
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

TEST(Trio, KeepsTheBufferItJoinedWith) {
    const Fd fd = open_socket();
    ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
    use_trio(fd.get());
    ASSERT_EQ(connect_to(fd.get(), address(switch_address(), 0, new_job(), 1)), 0);
    EXPECT_ERRNO(set(fd.get(), INAGG_BUFFER, 65536), EBUSY);
}

TEST(Trio, TellsOfAsManyBlocksAsThereIsRoomFor) {
    constexpr std::size_t blocks = 600, count = 32 * blocks;
    const auto ranks = join(1, [](int fd) {
        use_trio(fd);
        EXPECT_EQ(set(fd, INAGG_BLOCK, 32), 0);
        EXPECT_EQ(set(fd, INAGG_DTYPE, INAGG_INT32), 0);
    });
    const auto tensor = ramp<int32_t>(count, 0);
    for (const std::size_t room : {std::size_t{10}, std::size_t{INAGG_MOST_BLOCKS}, std::size_t{1000}}) {
        ASSERT_EQ(send_all(ranks[0].get(), tensor), int{4 * count});
        std::vector<int32_t> got(count);
        Received r{};
        const auto told = receive_blocks(ranks[0].get(), got.data(), 4 * count, r, room);
        ASSERT_EQ(r.bytes, int{4 * count});
        EXPECT_EQ(r.info.blocks, blocks);
        EXPECT_EQ(told, std::vector<uint64_t>(std::min<std::size_t>(room, INAGG_MOST_BLOCKS), 1));
        EXPECT_TRUE(r.flags & MSG_CTRUNC);
        EXPECT_EQ(got, tensor);
    }
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

TEST(Trio, TheSwitchRefusesAnExpiryThatItCannotKeep) {
    for (const int us : {99, 60'000'001}) {
        const Fd fd = open_socket();
        ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
        use_trio(fd.get());
        EXPECT_EQ(set(fd.get(), INAGG_EXPIRY, us), 0);
        EXPECT_ERRNO(connect_to(fd.get(), address(switch_address(), 0, new_job(), 1)), ECONNREFUSED);
        Fault fault{};
        ASSERT_TRUE(read_fault(fd.get(), fault));
        EXPECT_EQ(fault.fault.reason, unsigned{INAGG_R_POLICY});
    }
}

// Jobs that exclude silent ranks.

constexpr inagg_tensor_type renewal = {INAGG_INT32, INAGG_SUM, INAGG_TENSOR_RENEW, 0};

void exclude_the_silent(int fd) {
    use_trio(fd);
    EXPECT_EQ(set(fd, INAGG_EXCLUDE, 2000), 0);
    EXPECT_EQ(set(fd, INAGG_DTYPE, INAGG_INT32), 0);
}

// What this rank knows of, which is a little later than the results.
uint64_t excluded_by(int fd, int tries = 100) {
    for (int i = 0; i < tries && !info_of(fd).excluded; i++)
        usleep(20000);
    return info_of(fd).excluded;
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

// Verified results.

std::vector<Fd> join_with_keys(const std::vector<std::string> &keys) {
    std::size_t next = 0;
    return join(static_cast<uint16_t>(keys.size()), [&](int fd) {
        const std::string &key = keys[next++];
        EXPECT_EQ(setsockopt(fd, SOL_INAGG, INAGG_VERIFY, key.data(), static_cast<socklen_t>(key.size())), 0);
        EXPECT_EQ(set(fd, INAGG_DTYPE, INAGG_INT32), 0);
    });
}

TEST(Verify, SumsAreWhatTheRanksHaveSent) {
    const auto ranks = join_with_keys({"0123456789abcdef", "0123456789abcdef"});
    for (const std::size_t count : {1UL, 5000UL}) {
        for (const Fd &rank : ranks)
            EXPECT_EQ(send_all(rank.get(), ramp<int32_t>(count, -3)), static_cast<ssize_t>(4 * count));
        for (const Fd &rank : ranks) {
            const std::vector<int32_t> sum = receive<int32_t>(rank.get(), count);
            ASSERT_EQ(sum.size(), count);
            EXPECT_EQ(sum[count - 1], 2 * (static_cast<int32_t>(count) - 4));
            EXPECT_EQ(info_of(rank.get()).mismatches, 0U);
        }
    }
    for (const Fd &rank : ranks)
        EXPECT_EQ(send(rank.get(), nullptr, 0, MSG_NOSIGNAL), 0) << "a barrier";
    char byte;
    for (const Fd &rank : ranks)
        EXPECT_EQ(recv(rank.get(), &byte, 1, 0), 0);
}

void expect_rejected(const std::vector<Fd> &ranks) {
    for (const Fd &rank : ranks) {
        int32_t sum[10];
        EXPECT_ERRNO(recv(rank.get(), sum, sizeof(sum), 0), EKEYREJECTED);
        Fault fault{};
        ASSERT_TRUE(read_fault(rank.get(), fault));
        EXPECT_EQ(fault.extended.ee_errno, static_cast<uint32_t>(EKEYREJECTED));
        EXPECT_EQ(fault.fault.heard, 1) << "the same each time";
        EXPECT_EQ(info_of(rank.get()).mismatches, 8U);
    }
}

TEST(Verify, RanksHaveTheSameKey) {
    const auto ranks = join_with_keys({"0123456789abcdef", "0123456789abcdeg"});
    for (const Fd &rank : ranks)
        EXPECT_EQ(send_all(rank.get(), ramp<int32_t>(10, 0)), 40);
    expect_rejected(ranks);
}

TEST(Verify, SumsMustNotOverflow) {
    const auto ranks = join_with_keys({"0123456789abcdef", "0123456789abcdef"});
    for (const Fd &rank : ranks)
        EXPECT_EQ(send_all(rank.get(), std::vector<int32_t>(10, INT32_MAX)), 40);
    expect_rejected(ranks);
}

TEST(Verify, MaximaAreRefusedUnlessTheyNeedNotBe) {
    const auto ranks = join_with_keys({"0123456789abcdef"});
    const int32_t data[2] = {7, -9};
    EXPECT_ERRNO(send_typed(ranks[0].get(), data, 8, {INAGG_INT32, INAGG_MAX, 0, 0}), EOPNOTSUPP);
    EXPECT_EQ(send_typed(ranks[0].get(), data, 8, {INAGG_INT32, INAGG_MAX, INAGG_TENSOR_UNVERIFIED, 0}), 8);
    EXPECT_EQ(receive<int32_t>(ranks[0].get(), 2), (std::vector<int32_t>{7, -9}));
}

TEST(Exclusion, WhoIsIdleIsNotSilent) {
    const auto ranks = join(2, exclude_the_silent);
    sleep(4);
    expect_sum(ranks, 2);
    EXPECT_EQ(info_of(ranks[0].get()).excluded, 0U);
    EXPECT_FALSE(renew(ranks)) << "a barrier";
}

// A job of two: rank 0 is here, rank 1 a process that does nothing.
struct WithIdleProcess {
    Fd here;
    pid_t other = -1;

    WithIdleProcess() {
        const sockaddr_inagg job = address(switch_address(), 0, new_job(), 2);
        int ends[2];
        EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
        const Fd ready(ends[0]), done(ends[1]);
        other = fork();
        if (!other) {
            signal(SIGTERM, [](int) { _exit(0); });
            const Fd socket = open_socket();
            exclude_the_silent(socket.get());
            if (bind_to(socket.get(), address("::", 1)) || connect_to(socket.get(), job) || write(done.get(), "", 1) != 1)
                _exit(1);
            for (;;)
                pause();
        }
        here = open_socket(SOCK_NONBLOCK);
        EXPECT_EQ(bind_to(here.get(), address("::", 0)), 0);
        exclude_the_silent(here.get());
        EXPECT_ERRNO(connect_to(here.get(), job), EINPROGRESS);
        wait_for(here.get(), POLLOUT);
        EXPECT_EQ(pending_error(here.get()), 0);
        block(here.get(), true);
        EXPECT_EQ(wait_for(ready.get(), POLLIN), POLLIN);
    }
    ~WithIdleProcess() {
        if (other > 0)
            end_by(SIGKILL);
    }
    void end_by(int signal) {
        kill(other, signal);
        waitpid(other, nullptr, 0);
        other = -1;
    }
    WithIdleProcess(const WithIdleProcess &) = delete;
    WithIdleProcess &operator=(const WithIdleProcess &) = delete;
};

TEST(Exclusion, AProcessThatIsStoppedIsNotSilent) {
    const WithIdleProcess job;
    kill(job.other, SIGSTOP);
    sleep(4);
    EXPECT_EQ(info_of(job.here.get()).excluded, 0U);
}

TEST(Exclusion, AProcessThatASignalHasKilledIsSilent) {
    for (const int signal : {SIGKILL, SIGABRT, SIGSEGV}) {
        WithIdleProcess job;
        job.end_by(signal);
        ASSERT_EQ(send_all(job.here.get(), std::vector<int32_t>(1000, 1)), 4000);
        EXPECT_EQ(receive<int32_t>(job.here.get(), 1000), std::vector<int32_t>(1000, 1));
        EXPECT_EQ(excluded_by(job.here.get()), 2U) << strsignal(signal);
    }
}

// What a core is dumped to takes its time.
class SlowDump {
public:
    explicit SlowDump(const std::string &seconds) {
        std::getline(std::ifstream(file), before_);
        std::ofstream(file) << "|" << std::filesystem::canonical("/usr/bin/sleep").string() << " " << seconds;
    }
    ~SlowDump() { std::ofstream(file) << before_; }
    SlowDump(const SlowDump &) = delete;
    SlowDump &operator=(const SlowDump &) = delete;

private:
    static constexpr const char *file = "/proc/sys/kernel/core_pattern";
    std::string before_;
};

TEST(Exclusion, AProcessIsSilentOnceItsCoreHasBeenDumped) {
    if (access("/proc/sys/kernel/core_pattern", W_OK) != 0)
        GTEST_SKIP() << "this kernel dumps no cores";
    const SlowDump dump("6");
    WithIdleProcess job;
    kill(job.other, SIGSEGV);
    sleep(4);
    EXPECT_EQ(info_of(job.here.get()).excluded, 0U);
    job.end_by(SIGSEGV);
    EXPECT_EQ(excluded_by(job.here.get(), 400), 2U);
}

TEST(Exclusion, NobodyIsOutWhereAllAreSilent) {
    if (!can_be_silent())
        GTEST_SKIP() << "the switch is on this host";
    const auto ranks = join(2, exclude_the_silent);
    for (const Fd &rank : ranks)
        use_interface(rank.get(), "lo"); // where no switch is
    sleep(4);
    for (const Fd &rank : ranks)
        use_interface(rank.get(), "");
    expect_sum(ranks, 2);
    EXPECT_EQ(info_of(ranks[0].get()).excluded, 0U);
}

TEST(Exclusion, AProcessThatEndsInAnotherWayHasLeft) {
    WithIdleProcess job;
    job.end_by(SIGTERM); // it exits
    EXPECT_EQ(set(job.here.get(), INAGG_DEADLINE, 4000), 0);
    ASSERT_EQ(send_all(job.here.get(), std::vector<int32_t>(1000, 1)), 4000);
    int32_t one;
    EXPECT_ERRNO(recv(job.here.get(), &one, 4, 0), ETIMEDOUT);
    EXPECT_EQ(info_of(job.here.get()).excluded, 0U);
}

TEST(Exclusion, TheOthersGoOnAndTakeBackWhoJoinsAgain) {
    if (!can_be_silent())
        GTEST_SKIP() << "the switch is on this host";
    auto ranks = join(3, exclude_the_silent);
    expect_sum(ranks, 3);
    use_interface(ranks[2].get(), "lo"); // where no switch is
    expect_sum(ranks, 2);
    EXPECT_EQ(excluded_by(ranks[0].get()), 4U);
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
    for (const auto &[level, type] :
         {std::pair(SOL_SOCKET, SO_MARK), {SOL_SOCKET, SCM_RIGHTS}, {IPPROTO_IP, INAGG_CMSG_TENSOR}}) {
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

TEST(Send, WaitsNoLongerThanItsTimeout) {
    const auto ranks = join(2, [](int fd) { set(fd, INAGG_BUFFER, 64 << 10); });
    const auto limit = std::chrono::milliseconds(50);
    const timeval timeout{0, std::chrono::microseconds(limit).count()};
    ASSERT_EQ(setsockopt(ranks[0].get(), SOL_SOCKET, SO_SNDTIMEO, &timeout, sizeof(timeout)), 0);
    const std::vector<char> data(1 << 20);
    const auto begin = std::chrono::steady_clock::now();
    const ssize_t sent = send(ranks[0].get(), data.data(), data.size(), MSG_NOSIGNAL);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, limit);
    ASSERT_GT(sent, 0) << std::strerror(errno);
    ASSERT_LT(sent, 1 << 20);
    EXPECT_ERRNO(send(ranks[0].get(), data.data() + sent, data.size() - static_cast<std::size_t>(sent), MSG_NOSIGNAL), EAGAIN);
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 2 * limit);
}

TEST(Send, WaitsBehindManyTensors) {
    const auto ranks = join(2);
    for (int i = 0; i < 1024; i++)
        ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(1, 0), MSG_DONTWAIT), 4) << i;
    EXPECT_EQ(wait_for(ranks[0].get(), POLLOUT, 0), 0);
    EXPECT_ERRNO(send_all(ranks[0].get(), ramp<float>(1, 0), MSG_DONTWAIT), EAGAIN);
    ASSERT_EQ(send_all(ranks[1].get(), ramp<float>(1, 0)), 4);
    EXPECT_EQ(receive<float>(ranks[0].get(), 1).size(), 1u);
    EXPECT_EQ(send_all(ranks[0].get(), ramp<float>(1, 0)), 4);
}

TEST(Send, TakesNoMoreThanLinuxDoesInOneCall) {
    constexpr std::size_t most = (std::size_t{2} << 30) - 4096, more = std::size_t{3} << 30;
    const auto ranks = join(1, [](int fd) {
        set(fd, INAGG_BUFFER, 64 << 10);
        set(fd, INAGG_DTYPE, INAGG_INT32);
    });
    const int fd = ranks[0].get();
    void *zeros = mmap(nullptr, more, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    ASSERT_NE(zeros, MAP_FAILED);
    const ssize_t sent = send(fd, zeros, more, MSG_DONTWAIT | MSG_NOSIGNAL);
    ASSERT_GT(sent, 0) << std::strerror(errno);
    const std::size_t rest = most - static_cast<std::size_t>(sent);
    EXPECT_ERRNO(send(fd, zeros, rest + 4096, MSG_DONTWAIT | MSG_NOSIGNAL), EMSGSIZE) << "the tensor is no larger";
    EXPECT_EQ(wait_for(fd, POLLIN), POLLIN);
    char result[16 << 10];
    ASSERT_GT(recv(fd, result, sizeof(result), MSG_DONTWAIT), 0);
    EXPECT_GT(send(fd, zeros, rest, MSG_DONTWAIT | MSG_NOSIGNAL), 0) << std::strerror(errno);
    munmap(zeros, more);
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
    std::thread setter([&] { EXPECT_EQ(setsockopt(fd.get(), SOL_INAGG, INAGG_ALGORITHM, page.memory, 8), 0); });
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

// Rank 1's buffer lets it send a part of what rank 0's holds.
TEST(Poll, AQuarterOfTheBufferIsWorthReading) {
    const auto ranks = join(2, [](int fd) { set(fd, INAGG_DTYPE, INAGG_INT32); });
    const int here = ranks[0].get(), other = ranks[1].get();
    ASSERT_EQ(set(here, INAGG_BUFFER, 1 << 20), 0);
    ASSERT_EQ(set(other, INAGG_BUFFER, 64 << 10), 0);
    std::vector<char> data(4 << 20);
    const ssize_t held = send(here, data.data(), data.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
    ASSERT_GT(held, 512 << 10);
    std::size_t sent = 0;
    for (bool readable = false; !readable;) {
        const ssize_t more = send(other, data.data() + sent, data.size() - sent, MSG_DONTWAIT | MSG_NOSIGNAL);
        ASSERT_GT(more, 0) << std::strerror(errno);
        sent += static_cast<std::size_t>(more);
        for (int i = 0; i < 1000 && queued(here, SIOCINQ) < static_cast<int>(sent); i++)
            usleep(10000);
        ASSERT_EQ(queued(here, SIOCINQ), static_cast<int>(sent));
        readable = wait_for(here, POLLIN, 0);
        EXPECT_EQ(readable, sent > static_cast<std::size_t>(held) / 4) << sent << " of " << held;
        while (recv(other, data.data(), data.size(), MSG_DONTWAIT) > 0)
            ;
    }
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

// Who found another thread in its way learns when it has gone.
TEST(Poll, AnEdgeComesWhenAnotherThreadHasLeftTheCall) {
    const auto ranks = join(1);
    const int fd = ranks[0].get();
    for (int i = 0; i < 2; i++)
        ASSERT_EQ(send_all(fd, ramp<float>(1000, 0)), 4000);
    while (queued(fd, SIOCINQ) < 8000)
        usleep(1000);
    LatePage page;
    if (page.faults.get() < 0)
        GTEST_SKIP() << "no userfaultfd(2): " << std::strerror(errno);
    auto reader = std::async(std::launch::async, [&] { return recv(fd, page.memory, 4000, 0); });
    EXPECT_TRUE(page.is_wanted());
    const Fd epoll(epoll_create1(EPOLL_CLOEXEC));
    epoll_event event{EPOLLIN | EPOLLET, {}};
    ASSERT_EQ(epoll_ctl(epoll.get(), EPOLL_CTL_ADD, fd, &event), 0);
    EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 0), 1);
    float byte;
    EXPECT_ERRNO(recv(fd, &byte, 4, MSG_DONTWAIT), EAGAIN);
    EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 0), 0);
    page.come("");
    EXPECT_EQ(reader.get(), 4000);
    EXPECT_EQ(epoll_wait(epoll.get(), &event, 1, 30000), 1);
    EXPECT_EQ(recv(fd, &byte, 4, MSG_DONTWAIT), 4);
}

// With O_ASYNC, by SIGIO, which this thread waits for.
TEST(Poll, ASignalTellsOfAJoinAndOfRoom) {
    sigset_t io;
    sigemptyset(&io);
    sigaddset(&io, SIGIO);
    pthread_sigmask(SIG_BLOCK, &io, nullptr);
    const timespec patience{30, 0}, none{0, 0};
    const Fd fd = open_socket(SOCK_NONBLOCK);
    ASSERT_EQ(fcntl(fd.get(), F_SETOWN, getpid()), 0);
    ASSERT_EQ(fcntl(fd.get(), F_SETFL, O_ASYNC | O_NONBLOCK), 0);
    ASSERT_EQ(bind_to(fd.get(), address("::", 0)), 0);
    set(fd.get(), INAGG_BUFFER, 64 << 10);
    set(fd.get(), INAGG_DTYPE, INAGG_INT32);
    EXPECT_ERRNO(connect_to(fd.get(), address(switch_address(), 0, new_job(), 1)), EINPROGRESS);
    EXPECT_EQ(sigtimedwait(&io, nullptr, &patience), SIGIO);
    EXPECT_EQ(pending_error(fd.get()), 0);
    std::vector<char> data(1 << 20);
    ASSERT_GT(send(fd.get(), data.data(), data.size(), MSG_NOSIGNAL), 0);
    while (queued(fd.get(), SIOCOUTQ))
        usleep(1000); // results are here, whose signals are not meant
    while (sigtimedwait(&io, nullptr, &none) == SIGIO)
        ;
    ASSERT_GT(recv(fd.get(), data.data(), 32 << 10, 0), 0);
    EXPECT_EQ(sigtimedwait(&io, nullptr, &patience), SIGIO);
    pthread_sigmask(SIG_UNBLOCK, &io, nullptr);
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

class Uring : public testing::Test {
protected:
    void SetUp() override {
        if (const int error = io_uring_queue_init(8, &ring, 0))
            GTEST_SKIP() << "no io_uring: " << std::strerror(-error);
        is_open = true;
    }
    void TearDown() override {
        if (is_open)
            io_uring_queue_exit(&ring);
    }
    io_uring_sqe *request(uint64_t number) {
        io_uring_sqe *sqe = io_uring_get_sqe(&ring);
        sqe->user_data = number;
        return sqe;
    }
    // What the next of the submitted requests to end returns, and which it is.
    std::pair<uint64_t, int> next() {
        io_uring_cqe *cqe = nullptr;
        __kernel_timespec patience{30, 0};
        if (const int error = io_uring_wait_cqe_timeout(&ring, &cqe, &patience))
            return {0, error};
        const std::pair result(cqe->user_data, cqe->res);
        io_uring_cqe_seen(&ring, cqe);
        return result;
    }
    io_uring ring;
    bool is_open = false;
};

TEST_F(Uring, SendsAndReceives) {
    const auto ranks = join(2);
    const auto in = ramp<float>(5000, 1);
    std::vector<float> out(5000);
    io_uring_prep_recv(request(1), ranks[0].get(), out.data(), 20000, MSG_WAITALL); // before there is anything
    io_uring_prep_send(request(2), ranks[0].get(), in.data(), 20000, 0);
    ASSERT_EQ(io_uring_submit(&ring), 2);
    ASSERT_EQ(send_all(ranks[1].get(), in), 20000);
    for (int i = 0; i < 2; i++) {
        const auto [number, result] = next();
        EXPECT_EQ(result, 20000) << number;
    }
    EXPECT_EQ(out[4999], 10000);
}

TEST_F(Uring, DoesWhatItCanWithoutWaitingUnlessItShallWaitForAll) {
    constexpr int bytes = 1 << 20;
    const auto ranks = join(1, [](int fd) {
        set(fd, INAGG_BUFFER, 64 << 10);
        set(fd, INAGG_DTYPE, INAGG_INT32);
    });
    const int fd = ranks[0].get();
    const auto in = ramp<int32_t>(bytes / 4, 0);
    std::vector<int32_t> out(bytes / 4);
    const auto from = [](auto &v, int at) { return reinterpret_cast<char *>(const_cast<int32_t *>(v.data())) + at; };
    io_uring_prep_send(request(1), fd, in.data(), bytes, 0);
    ASSERT_EQ(io_uring_submit(&ring), 1);
    const int sent = next().second;
    ASSERT_GT(sent, 0) << "nobody receives";
    ASSERT_LT(sent, bytes);
    EXPECT_EQ(wait_for(fd, POLLIN), POLLIN);
    io_uring_prep_recv(request(2), fd, out.data(), bytes, 0);
    ASSERT_EQ(io_uring_submit(&ring), 1);
    const int received = next().second;
    ASSERT_GT(received, 0) << "recv() would wait for the rest";
    ASSERT_LE(received, sent);
    io_uring_prep_recv(request(3), fd, from(out, received), static_cast<size_t>(bytes - received), MSG_WAITALL);
    io_uring_prep_send(request(4), fd, from(in, sent), static_cast<size_t>(bytes - sent), MSG_WAITALL);
    ASSERT_EQ(io_uring_submit(&ring), 2);
    for (int i = 0; i < 2; i++) {
        const auto [number, result] = next();
        EXPECT_EQ(result, number == 3 ? bytes - received : bytes - sent) << number;
    }
    EXPECT_EQ(out, in);
}

TEST_F(Uring, GoesOnBehindATensorsEndIfItShallWaitForAll) {
    const auto ranks = join(1);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(10, 0)), 40);
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(10, 10)), 40);
    std::vector<float> both(20);
    io_uring_prep_recv(request(1), ranks[0].get(), both.data(), 80, MSG_WAITALL);
    ASSERT_EQ(io_uring_submit(&ring), 1);
    EXPECT_EQ(next().second, 80);
    EXPECT_EQ(both, ramp<float>(20, 0));
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

TEST(Shutdown, OfReceivingWaitsForACopy) {
    const auto ranks = join(1);
    const int fd = ranks[0].get();
    ASSERT_EQ(send_all(fd, ramp<float>(1000, 0)), 4000);
    EXPECT_EQ(wait_for(fd, POLLIN), POLLIN);
    LatePage page;
    if (page.faults.get() < 0)
        GTEST_SKIP() << "no userfaultfd(2): " << std::strerror(errno);
    auto reader = std::async(std::launch::async, [&] { return recv(fd, page.memory, 4000, 0); });
    EXPECT_TRUE(page.is_wanted());
    auto ender = std::async(std::launch::async, [&] { return shutdown(fd, SHUT_RD); });
    EXPECT_EQ(ender.wait_for(std::chrono::milliseconds(200)), std::future_status::timeout);
    page.come("");
    EXPECT_EQ(reader.get(), 4000);
    EXPECT_EQ(ender.get(), 0);
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
    ASSERT_EQ(send_all(ranks[0].get(), ramp<float>(1000, 0)), 4000);
    EXPECT_EQ(queued(ranks[0].get(), SIOCOUTQ), 4000);
    EXPECT_EQ(queued(ranks[0].get(), SIOCINQ), 0);
    ASSERT_EQ(send_all(ranks[1].get(), ramp<float>(1000, 0)), 4000);
    wait_for(ranks[0].get(), POLLIN);
    EXPECT_EQ(queued(ranks[0].get(), SIOCINQ), 4000);
    EXPECT_EQ(queued(ranks[0].get(), SIOCOUTQ), 0);
    int bytes = 0;
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
