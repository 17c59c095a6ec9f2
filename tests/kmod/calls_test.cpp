// SPDX-License-Identifier: BSD-2-Clause
// Each system call with good and bad arguments, in every state of a socket.
#include "world.hpp"

#include <linux/sockios.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>

#include <cstring>

namespace kmod {

constexpr int restart = -512; // ERESTARTSYS

struct CallsTest : KmodTest {
    void SetUp() override { start(); }

    // Does a closed socket finish something?
    static bool is_leaving() { return std::string(mock_read_proc(0)).find("leaving") != std::string::npos; }
    static int bind(Rank &rank, sockaddr_inagg a, int length = sizeof(sockaddr_inagg)) {
        return mock_bind(rank.sock, &a, length);
    }
};

template <typename Content> struct ControlMessage {
    size_t length = sizeof(*this);
    int level, type;
    Content content{};
};

// Both must live as long as the message.
template <typename Content> static mock_message message_with(const Bytes &data, ControlMessage<Content> &control) {
    mock_message m{};
    m.data = const_cast<std::byte *>(data.data());
    m.bytes = data.size();
    m.control = &control;
    m.control_bytes = sizeof(control);
    return m;
}

static sockaddr_inagg with(sockaddr_inagg a, const std::function<void(sockaddr_inagg &)> &change) {
    change(a);
    return a;
}

// The module.

TEST(ModuleTest, RefusesFamiliesThatAreNone) {
    World world;
    for (const int family : {-1, 0, 46, 1000}) {
        inagg_family = family;
        EXPECT_EQ(mock_load(), -EINVAL);
    }
    EXPECT_NE(std::string(mock_printed()).find("family=1000"), std::string::npos);
    inagg_family = AF_INAGG;
    mock_check_empty();
    EXPECT_STREQ(mock_complaints(), "");
}

TEST(ModuleTest, SaysThatTheFamilyIsTakenAndLeavesNothing) {
    World world;
    mock_take_family(true);
    EXPECT_EQ(mock_load(), -EEXIST);
    EXPECT_NE(std::string(mock_printed()).find("family 25 is taken"), std::string::npos);
    mock_check_empty();
    EXPECT_STREQ(mock_complaints(), "");
}

TEST(ModuleTest, TakesAnotherFamily) {
    World world;
    inagg_family = 27;
    ASSERT_EQ(mock_load(), 0);
    {
        Rank rank;
        sockaddr_inagg a = address_of("10.0.0.1"), name;
        EXPECT_EQ(mock_bind(rank.sock, &a, sizeof(a)), -EAFNOSUPPORT);
        a.sinagg_family = 27;
        EXPECT_EQ(mock_bind(rank.sock, &a, sizeof(a)), 0);
        EXPECT_EQ(mock_getname(rank.sock, &name, false), static_cast<int>(sizeof(name)));
        EXPECT_EQ(name.sinagg_family, 27);
    }
    world.run(s);
    mock_unload();
    inagg_family = AF_INAGG;
}

TEST(ModuleTest, WhateverFailsAtLoadIsUndone) {
    for (unsigned nth = 1;; nth++) {
        World world;
        mock_fail(nullptr, nth);
        const int error = mock_load();
        if (!mock_failed()) {
            EXPECT_EQ(error, 0);
            EXPECT_GT(nth, 5U);
            mock_unload();
            break;
        }
        EXPECT_LT(error, 0) << mock_failed();
        mock_check_empty();
        EXPECT_STREQ(mock_complaints(), "") << mock_failed();
    }
}

// socket()

TEST_F(CallsTest, SocketKnowsOneTypeAndNoProtocol) {
    int error;
    EXPECT_EQ(mock_socket(0, SOCK_STREAM, 0, &error), nullptr);
    EXPECT_EQ(error, -ESOCKTNOSUPPORT);
    EXPECT_EQ(mock_socket(0, SOCK_SEQPACKET, 17, &error), nullptr);
    EXPECT_EQ(error, -EPROTONOSUPPORT);
}

TEST_F(CallsTest, SocketsHoldTheModuleAndTheirNamespace) {
    const int before = mock_module_references();
    {
        Rank rank(1);
        EXPECT_GT(mock_module_references(), before);
    }
    world->run(1 * s); // a grace period of RCU later
    EXPECT_EQ(mock_module_references(), before);
}

TEST_F(CallsTest, FailedSocketLeavesNothing) {
    for (const char *what : {"socket", "sk_alloc", "dst_cache_init"}) {
        mock_fail(what, 1);
        int error;
        EXPECT_EQ(mock_socket(0, SOCK_SEQPACKET, 0, &error), nullptr);
        EXPECT_EQ(error, -ENOMEM);
        EXPECT_STREQ(mock_failed(), what);
    }
}

// bind()

TEST_F(CallsTest, BindChecksItsAddress) {
    const sockaddr_inagg good = address_of("::");
    Rank rank;
    EXPECT_EQ(bind(rank, good, 0), -EINVAL);
    EXPECT_EQ(bind(rank, good, 1), -EINVAL);
    EXPECT_EQ(bind(rank, good, 2), -EINVAL);
    EXPECT_EQ(bind(rank, good, sizeof(good) - 1), -EINVAL);
    const struct {
        sockaddr_inagg address;
        int error;
    } wrong[] = {
        {with(good, [](auto &a) { a.sinagg_family = AF_INET; }), -EAFNOSUPPORT},
        {with(good, [](auto &a) { a.sinagg_family = 0; }), -EAFNOSUPPORT},
        {with(good, [](auto &a) { a.sinagg_reserved = 1; }), -EINVAL},
        {with(good, [](auto &a) { a.sinagg_rank = 64; }), -EINVAL},
        {with(good, [](auto &a) { a.sinagg_job = 1; }), -EINVAL},
        {with(good, [](auto &a) { a.sinagg_size = 1; }), -EINVAL},
        {address_of("192.0.2.1"), -EADDRNOTAVAIL},
        {address_of("fe80::1"), -EINVAL},
    };
    for (const auto &[address, error] : wrong)
        EXPECT_EQ(bind(rank, address), error);
    struct {
        sockaddr_inagg a;
        char more;
    } longer{good, 0};
    EXPECT_EQ(mock_bind(rank.sock, &longer, sizeof(good) + 1), -EINVAL);
    EXPECT_EQ(bind(rank, good), 0);
    EXPECT_EQ(bind(rank, good), -EINVAL) << "a second time";
}

TEST_F(CallsTest, BindTakesAPortOnce) {
    Rank one, two, other_family;
    EXPECT_EQ(one.bind(0, "10.0.0.1", 5000), 0);
    EXPECT_EQ(two.bind(1, "10.0.0.1", 5000), -EADDRINUSE);
    EXPECT_EQ(other_family.bind(1, "fd00::1", 5000), 0);
    EXPECT_EQ(two.bind(1, "10.0.0.1", 5001), 0) << "after a failure";
    sockaddr_inagg name;
    ASSERT_EQ(mock_getname(two.sock, &name, false), static_cast<int>(sizeof(name)));
    EXPECT_EQ(ntohs(name.sinagg_port), 5001);
    EXPECT_EQ(name.sinagg_rank, 1);
}

TEST_F(CallsTest, SocketsFollowTheirDevice) {
    Rank before, after, link_local;
    mock_bind_to_device(before.sock, 3);
    ASSERT_EQ(before.bind(0, "10.0.0.1"), 0);
    EXPECT_EQ(mock_device_of(before.sock), 3);
    ASSERT_EQ(after.bind(0, "10.0.0.1"), 0);
    EXPECT_EQ(mock_device_of(after.sock), 0);
    mock_bind_to_device(after.sock, 3);
    EXPECT_EQ(mock_device_of(after.sock), 3) << "also once bound to an address";
    mock_bind_to_device(after.sock, 0);
    EXPECT_EQ(mock_device_of(after.sock), 0);
    ASSERT_EQ(bind(link_local, with(address_of("fe80::1"), [](auto &a) { a.sinagg_scope_id = 4; })), 0);
    mock_bind_to_device(link_local.sock, 3);
    EXPECT_EQ(mock_device_of(link_local.sock), 4) << "its address names one";
}

TEST_F(CallsTest, BindTakesLinkLocalAddressesWithTheirInterface) {
    Rank rank;
    EXPECT_EQ(bind(rank, with(address_of("fe80::1"), [](auto &a) { a.sinagg_scope_id = 3; })), 0);
}

static sockaddr_inagg scoped(sockaddr_inagg a, uint32_t scope) {
    return with(a, [&](auto &changed) { changed.sinagg_scope_id = scope; });
}

TEST_F(CallsTest, ScopesFitTheirAddresses) {
    const struct {
        int device;
        const char *local;
        uint32_t bound;
        const char *sw;
        uint32_t scope;
        int bind_error, connect_error;
    } cases[] = {
        {0, "10.0.0.1", 3, "10.0.0.254", 0, -EINVAL, 0}, {0, "10.0.0.1", 0, "10.0.0.254", 3, 0, -EINVAL},
        {3, "10.0.0.1", 0, "10.0.0.254", 0, 0, 0},       {0, "::", 3, "10.0.0.254", 0, 0, -EINVAL},
        {0, "fe80::1", 0, "fe80::fe", 0, -EINVAL, 0},    {3, "fe80::1", 0, "fe80::fe", 0, 0, 0},
        {0, "fe80::1", 3, "fe80::fe", 0, 0, 0},          {0, "fe80::1", 3, "fe80::fe", 3, 0, 0},
        {0, "fe80::1", 3, "fe80::fe", 4, 0, -EINVAL},    {3, "fe80::1", 4, "fe80::fe", 4, -EINVAL, 0},
        {0, "::", 0, "fe80::fe", 0, 0, -EINVAL},         {3, "::", 0, "fe80::fe", 0, 0, 0},
        {3, "::", 0, "fe80::fe", 4, 0, -EINVAL},         {0, "::", 4, "fe80::fe", 0, 0, 0},
        {0, "fd00::1", 3, "fd00::fe", 0, 0, 0},          {3, "fd00::1", 4, "fd00::fe", 0, -EINVAL, 0},
        {3, "fd00::1", 0, "fd00::fe", 4, 0, -EINVAL},    {3, "fd00::1", 3, "fd00::fe", 3, 0, 0},
    };
    world->filter = [](const mock_packet &) { return true; };
    for (const auto &c : cases) {
        Rank rank;
        SCOPED_TRACE(std::string(c.local) + "%" + std::to_string(c.bound) + " to " + c.sw + "%" + std::to_string(c.scope) +
                     " over " + std::to_string(c.device));
        mock_bind_to_device(rank.sock, c.device);
        ASSERT_EQ(bind(rank, scoped(address_of(c.local), c.bound)), c.bind_error);
        if (!c.bind_error) {
            EXPECT_EQ(rank.connect(scoped(switch_address(1, c.sw), c.scope), true),
                      c.connect_error ? c.connect_error : -EINPROGRESS);
        }
    }
}

TEST_F(CallsTest, ScopesFitADeviceThatIsBoundLater) {
    Rank rank;
    ASSERT_EQ(bind(rank, scoped(address_of("fe80::1"), 4)), 0);
    mock_bind_to_device(rank.sock, 3);
    EXPECT_EQ(rank.connect(scoped(switch_address(1, "fe80::fe"), 4)), -EINVAL);
}

TEST_F(CallsTest, ALinkLocalSwitchSpeaksOverItsLinkOnly) {
    Rank rank;
    world->filter = [](const mock_packet &) { return true; };
    ASSERT_EQ(rank.bind(0), 0);
    ASSERT_EQ(rank.connect(scoped(switch_address(1, "fe80::fe"), 3), true), -EINPROGRESS);
    const auto strangers = [&](int interface, int slave = 0) {
        EXPECT_TRUE(world->deliver(Bytes(64), rank.port, "fe80::fe", INAGG_PORT, interface, slave));
        return std::string(mock_read_proc(0)).find("dropped_ADDRESS 1") != std::string::npos;
    };
    EXPECT_FALSE(strangers(3));
    EXPECT_FALSE(strangers(9, 3)) << "in a VRF";
    EXPECT_TRUE(strangers(4));
}

TEST_F(CallsTest, RoutesFollowTheMarkAndTheUser) {
    for (const char *sw : {"10.0.0.254", "fd00::fe"}) {
        Rank rank;
        Bytes data(64);
        ASSERT_EQ(rank.bind(0), 0);
        ASSERT_EQ(rank.connect(switch_address(1, sw)), 0);
        const auto reduce = [&] {
            EXPECT_EQ(rank.send(data), 64);
            EXPECT_EQ(rank.recv(data), 64);
            return mock_lookups();
        };
        const unsigned before = reduce().count;
        EXPECT_EQ(reduce().count, before) << "the route is remembered";
        mock_set_mark(rank.sock, 5);
        EXPECT_EQ(reduce().mark, 5U);
        EXPECT_EQ(reduce().count, before + 1) << "and the new one, too";
        mock_set_uid(rank.sock, 1000);
        EXPECT_EQ(reduce().uid, 1000U);
        EXPECT_EQ(reduce().count, before + 2);
        mock_set_linger(rank.sock, true, 0);
        rank.close();
        world->run(1 * s);
    }
}

// connect()

TEST_F(CallsTest, ConnectChecksItsAddress) {
    Rank rank;
    EXPECT_EQ(rank.connect(2), -EINVAL) << "not bound";
    ASSERT_EQ(rank.bind(2), 0);
    const sockaddr_inagg good = switch_address(3);
    for (const auto &wrong : {with(good, [](auto &a) { a.sinagg_size = 0; }), with(good, [](auto &a) { a.sinagg_size = 65; }),
                              with(good, [](auto &a) { a.sinagg_size = 2; }), with(good, [](auto &a) { a.sinagg_rank = 1; }),
                              with(good, [](auto &a) { a.sinagg_reserved = 1; })})
        EXPECT_EQ(rank.connect(wrong), -EINVAL);
    EXPECT_EQ(rank.connect(with(good, [](auto &a) { a.sinagg_family = AF_INET6; })), -EAFNOSUPPORT);
    EXPECT_EQ(rank.connect(good), 0);
    EXPECT_EQ(rank.connect(good), -EISCONN);
}

TEST_F(CallsTest, ConnectNeedsARouteThatCarriesAPacket) {
    Rank rank;
    ASSERT_EQ(rank.bind(0), 0);
    mock_set_route_error(-EHOSTUNREACH);
    EXPECT_EQ(rank.connect(1), -EHOSTUNREACH);
    mock_set_route_error(0);
    mock_set_mtu(200);
    EXPECT_EQ(rank.connect(1), -EMSGSIZE);
    mock_set_mtu(20);
    EXPECT_EQ(rank.connect(1), -EMSGSIZE);
    mock_set_mtu(1500);
    EXPECT_EQ(rank.connect(1), 0) << "a later attempt";
}

TEST_F(CallsTest, ConnectToABroadcastAddressMustBeAllowed) {
    Rank rank;
    ASSERT_EQ(rank.bind(0), 0);
    mock_set_broadcast_route(true);
    EXPECT_EQ(rank.connect(1), -EACCES);
    mock_allow_broadcast(rank.sock);
    EXPECT_EQ(rank.connect(1), 0);
}

TEST_F(CallsTest, ConnectOverIPv6) {
    Rank rank, mixed, changing;
    ASSERT_EQ(rank.bind(0, "fd00::1"), 0);
    EXPECT_EQ(rank.connect(switch_address(1, "fd00::fe")), 0);
    const Bytes data = integers(1, 100)[0];
    EXPECT_EQ(rank.send(data, {INAGG_INT32, INAGG_SUM, 0, 0}), 400);
    Bytes got(400);
    EXPECT_EQ(rank.recv(got), 400);
    EXPECT_EQ(got, data);
    ASSERT_EQ(mixed.bind(0, "fd00::1"), 0);
    EXPECT_EQ(mixed.connect(1), -EINVAL) << "bound to IPv6, switch on IPv4";

    ASSERT_EQ(changing.bind(0), 0);
    mock_set_route_error(-ENETUNREACH);
    EXPECT_EQ(changing.connect(switch_address(1, "fd00::fe")), -ENETUNREACH);
    mock_set_route_error(0);
    EXPECT_EQ(changing.connect(with(switch_address(1), [](auto &a) { a.sinagg_job = 8; })), 0) << "then IPv4";
}

TEST_F(CallsTest, LocalAddressIsOfTheSwitchsFamily) {
    for (const char *local : {"10.0.0.1", "0.0.0.0"}) {
        Rank rank;
        ASSERT_EQ(rank.bind(0, local), 0);
        EXPECT_EQ(rank.connect(switch_address(1, "fd00::fe")), -EINVAL);
        EXPECT_EQ(rank.connect(1, true), -EINPROGRESS);
    }
    Rank rank;
    ASSERT_EQ(rank.bind(0, "fd00::1"), 0);
    EXPECT_EQ(rank.connect(1), -EINVAL);
}

TEST_F(CallsTest, ConnectTakesThePortsThatAreGiven) {
    uint16_t from = 0, to = 0;
    world->filter = [&](const mock_packet &packet) {
        from = packet.from_port;
        to = packet.to_port;
        return true;
    };
    Rank rank, other;
    ASSERT_EQ(rank.bind(0, "::", 5000), 0);
    EXPECT_EQ(rank.connect(with(switch_address(1), [](auto &a) { a.sinagg_port = htons(13000); }), true), -EINPROGRESS);
    EXPECT_TRUE(mock_step());
    EXPECT_EQ(from, 5000);
    EXPECT_EQ(to, 13000);
    ASSERT_EQ(other.bind(0, "::", 5000), 0);
    EXPECT_EQ(other.connect(1), -EADDRINUSE);
    world->filter = {};
}

TEST_F(CallsTest, ConnectWithoutWaiting) {
    Rank rank;
    ASSERT_EQ(rank.bind(0), 0);
    EXPECT_EQ(rank.connect(1, true), -EINPROGRESS);
    EXPECT_EQ(rank.connect(1, true), -EALREADY);
    Bytes nothing(4);
    EXPECT_EQ(rank.recv_nowait(nothing), -EAGAIN);
    EXPECT_NE(std::string(mock_read_proc(0)).find(" state joining job 7 rank 0 size 1 "), std::string::npos);
    EXPECT_EQ(mock_poll(rank.sock) & (EPOLLIN | EPOLLOUT | EPOLLERR), 0);
    world->run(10 * ms);
    EXPECT_TRUE(mock_poll(rank.sock) & EPOLLOUT);
    EXPECT_EQ(mock_so_error(rank.sock), 0);
    EXPECT_EQ(rank.connect(1, true), 0);
    EXPECT_EQ(rank.connect(1, true), -EISCONN);
}

TEST_F(CallsTest, ConnectWaitsNoLongerThanItsTimeout) {
    world->filter = [](const mock_packet &) { return true; };
    Rank rank;
    ASSERT_EQ(rank.bind(0), 0);
    mock_set_timeouts(rank.sock, 100, -1);
    const uint64_t start = mock_now();
    EXPECT_EQ(rank.connect(1), -EINPROGRESS);
    EXPECT_EQ(mock_now() - start, 100 * ms);
    EXPECT_EQ(rank.connect(1, true), -EALREADY) << "the join goes on";
    world->filter = {};
    EXPECT_EQ(rank.connect(1), 0);
}

TEST_F(CallsTest, ConnectCanBeInterrupted) {
    world->filter = [](const mock_packet &) { return true; };
    Rank rank, timed;
    ASSERT_EQ(rank.bind(0), 0);
    world->at(3 * ms, [] { mock_interrupt(true); });
    EXPECT_EQ(rank.connect(1), restart);
    mock_interrupt(false);
    EXPECT_EQ(rank.connect(1, true), -EALREADY) << "the join goes on";
    ASSERT_EQ(timed.bind(0), 0);
    mock_set_timeouts(timed.sock, 5000, -1);
    world->at(3 * ms, [] { mock_interrupt(true); });
    EXPECT_EQ(timed.connect(1), -EINTR);
}

TEST_F(CallsTest, ConnectGivesUpAtItsDeadlineAndMayTryAgain) {
    int joins = 0;
    world->filter = [&](const mock_packet &) { return ++joins; };
    Rank rank;
    ASSERT_EQ(rank.bind(0), 0);
    ASSERT_EQ(rank.set(INAGG_DEADLINE, 1000), 0);
    const uint64_t start = mock_now();
    EXPECT_EQ(rank.connect(1), -ETIMEDOUT);
    EXPECT_EQ(mock_now() - start, 1 * s);
    EXPECT_EQ(joins, 10) << "after 5, 10, 20, 40, 80, 160 and then each 200 ms";
    const auto fault = rank.fault();
    ASSERT_TRUE(fault);
    EXPECT_EQ(fault->error, static_cast<unsigned>(ETIMEDOUT));
    EXPECT_EQ(fault->job, job_number);
    world->filter = {};
    EXPECT_EQ(rank.connect(1), 0);
}

TEST_F(CallsTest, FailedJoinShowsWithoutWaitingToo) {
    Rank rank, other;
    ASSERT_EQ(rank.bind(0), 0);
    ASSERT_EQ(rank.connect(2), 0);
    ASSERT_EQ(other.bind(1), 0);
    EXPECT_EQ(other.connect(3, true), -EINPROGRESS);
    world->run(10 * ms);
    EXPECT_TRUE(mock_poll(other.sock) & EPOLLERR);
    EXPECT_EQ(other.connect(3, true), -EINVAL) << "SIZE";
    EXPECT_EQ(other.connect(2, true), -EINPROGRESS);
    EXPECT_FALSE(mock_poll(other.sock) & EPOLLERR) << "that was the first attempt's";
    EXPECT_FALSE(other.fault()) << "and so was what its error queue held";
    EXPECT_EQ(other.connect(2), 0);
}

static std::function<void()> interruption;

// Somebody else's turn, but not again while it has one.
static void interrupt_with(std::function<void()> what) {
    interruption = std::move(what);
    mock_set_preemption(interruption ? +[] {
        if (const auto now = std::exchange(interruption, nullptr)) {
            now();
            interruption = now;
        }
    } : nullptr);
}

TEST_F(CallsTest, LaterAttemptsAreApartFromEarlierOnes) {
    Rank rank;
    ASSERT_EQ(rank.bind(0, "10.0.0.1"), 0);
    world->filter = [](const mock_packet &) { return true; };
    ASSERT_EQ(rank.set(INAGG_DEADLINE, 100), 0);
    const unsigned before = mock_grace_periods();
    EXPECT_EQ(rank.connect(1), -ETIMEDOUT);
    EXPECT_EQ(mock_grace_periods(), before) << "nothing came before the first";
    EXPECT_TRUE(world->deliver(Bytes(64), rank.port, "10.0.0.253"));
    EXPECT_EQ(rank.info().rejected, 1U);

    mock_set_route_error(-EHOSTUNREACH); // the second gets no further than to its route
    int delivered = 0;
    interrupt_with([&] { delivered += world->deliver(Bytes(64), rank.port, "10.0.0.253"); });
    EXPECT_EQ(rank.connect(1), -EHOSTUNREACH);
    interrupt_with(nullptr);
    EXPECT_EQ(mock_grace_periods(), before + 1);
    EXPECT_GT(delivered, 0) << "the port is still ours";
    EXPECT_EQ(rank.info().rejected, 1U) << "while it changes, nobody looks at the socket";
    mock_set_route_error(0);
    world->filter = {};
    EXPECT_EQ(rank.connect(1), 0);
    EXPECT_TRUE(world->deliver(Bytes(64), rank.port, "10.0.0.253"));
    EXPECT_EQ(rank.info().rejected, 2U) << "and then again";
}

TEST_F(CallsTest, ConnectToNothingIsRefused) {
    Rank rank;
    const sockaddr_inagg nothing{}; // AF_UNSPEC
    EXPECT_EQ(rank.connect(nothing), -EAFNOSUPPORT);
    ASSERT_EQ(rank.bind(0), 0);
    ASSERT_EQ(rank.connect(1), 0);
    EXPECT_EQ(rank.connect(nothing), -EAFNOSUPPORT);
    EXPECT_EQ(rank.send(Bytes(64)), 64) << "still joined";
}

TEST_F(CallsTest, ShutdownEndsAJoin) {
    int joins = 0, leaves = 0;
    world->filter = [&](const mock_packet &packet) {
        const auto *h = static_cast<const inagg_hdr *>(packet.data);
        joins += inagg_hdr_type(h) == INAGG_JOIN;
        leaves += inagg_hdr_type(h) == INAGG_LEAVE;
        return true;
    };
    for (const int how : {SHUT_RD, SHUT_WR, SHUT_RDWR}) {
        Rank rank;
        ASSERT_EQ(rank.bind(0), 0);
        joins = leaves = 0;
        world->at(3 * ms, [&] { EXPECT_EQ(mock_shutdown(rank.sock, how), 0); });
        const uint64_t start = mock_now();
        EXPECT_EQ(rank.connect(1), -ECONNRESET);
        EXPECT_EQ(mock_now() - start, 3 * ms);
        EXPECT_EQ(leaves, 1) << "the switch may have heard of it";
        EXPECT_EQ(rank.fault().value_or(inagg_fault{}).error, static_cast<unsigned>(ECONNRESET));
        EXPECT_EQ(mock_shutdown(rank.sock, how), -ENOTCONN);
        const int before = joins;
        world->run(1 * s);
        EXPECT_EQ(joins, before);
    }
}

TEST_F(CallsTest, AConnectThatWasEndedLeavesTheNextOneAlone) {
    world->filter = [](const mock_packet &) { return true; };
    Rank rank;
    ASSERT_EQ(rank.bind(0), 0);
    world->at(ms, [&] { // another thread, while the first has not come to leave
        EXPECT_EQ(mock_shutdown(rank.sock, SHUT_RDWR), 0);
        EXPECT_EQ(rank.connect(1, true), -EINPROGRESS);
        world->filter = {};
        world->run(10 * ms);
    });
    EXPECT_EQ(rank.connect(1), -ECONNRESET);
    EXPECT_EQ(rank.connect(1), 0) << "tells that the second join went well";
    EXPECT_EQ(rank.connect(1), -EISCONN);
}

TEST_F(CallsTest, ShutdownEndsAJoinThatNobodyWaitsFor) {
    world->filter = [](const mock_packet &) { return true; };
    Rank rank;
    ASSERT_EQ(rank.bind(0), 0);
    ASSERT_EQ(rank.connect(1, true), -EINPROGRESS);
    world->at(3 * ms, [&] { EXPECT_EQ(mock_shutdown(rank.sock, SHUT_RDWR), 0); });
    EXPECT_EQ(rank.send(Bytes(64)), -ECONNRESET) << "a send() that waits for the join";
    EXPECT_EQ(mock_so_error(rank.sock), 0) << "told once";
    world->filter = {};
    EXPECT_EQ(rank.connect(1), 0) << "a later attempt";
    EXPECT_EQ(rank.send(Bytes(64)), 64);
}

// Names.

TEST_F(CallsTest, NamesOfBothEnds) {
    Rank rank;
    sockaddr_inagg name;
    EXPECT_EQ(mock_getname(rank.sock, &name, false), static_cast<int>(sizeof(name)));
    EXPECT_EQ(name.sinagg_family, AF_INAGG);
    EXPECT_EQ(mock_getname(rank.sock, &name, true), -ENOTCONN);
    ASSERT_EQ(rank.bind(0), 0);
    world->filter = [](const mock_packet &) { return true; };
    ASSERT_EQ(rank.connect(1, true), -EINPROGRESS);
    EXPECT_EQ(mock_getname(rank.sock, &name, true), -ENOTCONN) << "not joined yet";
    world->filter = {};
    ASSERT_EQ(rank.connect(1), 0);
    ASSERT_EQ(mock_getname(rank.sock, &name, true), static_cast<int>(sizeof(name)));
    EXPECT_EQ(ntohs(name.sinagg_port), INAGG_PORT);
    EXPECT_EQ(name.sinagg_job, job_number);
    EXPECT_EQ(name.sinagg_size, 1);
    EXPECT_EQ(std::memcmp(name.sinagg_addr, switch_address(1).sinagg_addr, 16), 0);
    ASSERT_EQ(mock_getname(rank.sock, &name, false), static_cast<int>(sizeof(name)));
    EXPECT_NE(name.sinagg_port, 0);
}

// send() and recv()

TEST_F(CallsTest, NothingIsSentOrReceivedWithoutAJob) {
    Rank rank;
    Bytes data(64);
    EXPECT_EQ(rank.send(data), -ENOTCONN);
    EXPECT_EQ(rank.recv_nowait(data), -ENOTCONN);
    EXPECT_EQ(mock_shutdown(rank.sock, SHUT_WR), -ENOTCONN);
}

TEST_F(CallsTest, SendWaitsForTheJoin) {
    Rank rank;
    const Bytes data(64);
    ASSERT_EQ(rank.bind(0), 0);
    EXPECT_EQ(rank.connect(1, true), -EINPROGRESS);
    EXPECT_EQ(rank.send(data, MSG_DONTWAIT), -EAGAIN);
    EXPECT_EQ(rank.send(data), 64);
}

TEST_F(CallsTest, UnknownFlagsAreRefused) {
    join(1);
    Bytes data(64);
    for (int bit = 0; bit < 31; bit++) {
        const int flag = 1 << bit;
        const bool sends = flag & (MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_WAITALL | MSG_BATCH);
        EXPECT_EQ(ranks[0].send(data, flag), sends ? 64 : flag == MSG_OOB ? -EOPNOTSUPP : -EINVAL) << std::hex << flag;
        int flags = flag | MSG_DONTWAIT;
        const int got = ranks[0].recv(data, flags);
        if (flag == MSG_PEEK || flag == MSG_OOB)
            EXPECT_EQ(got, -EOPNOTSUPP);
        else if (flag & (MSG_DONTWAIT | MSG_WAITALL | MSG_TRUNC | MSG_ERRQUEUE | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC))
            EXPECT_EQ(got, -EAGAIN) << std::hex << flag;
        else
            EXPECT_EQ(got, -EINVAL) << std::hex << flag;
    }
}

TEST_F(CallsTest, SendRefusesAddressesAndOddLengths) {
    join(1);
    Bytes data(64);
    const sockaddr_inagg to = switch_address(1);
    mock_message m{};
    m.data = data.data();
    m.bytes = data.size();
    m.name = &to;
    EXPECT_EQ(mock_sendmsg(ranks[0].sock, &m), -EISCONN);
    data.resize(62);
    EXPECT_EQ(ranks[0].send(data), -EINVAL) << "half a float";
    ASSERT_EQ(ranks[0].set(INAGG_DTYPE, INAGG_FLOAT16), 0);
    EXPECT_EQ(ranks[0].send(data), 62);
}

TEST_F(CallsTest, ControlMessagesAreChecked) {
    join(1);
    const Bytes data(64);
    EXPECT_EQ(ranks[0].send(data, {INAGG_INT32, INAGG_MAX, 0, INAGG_SCALE_AUTO}), 64);
    EXPECT_EQ(ranks[0].send(data, {INAGG_DTYPES, INAGG_SUM, 0, 0}), -EINVAL);
    EXPECT_EQ(ranks[0].send(data, {INAGG_INT32, INAGG_OPS, 0, 0}), -EINVAL);
    EXPECT_EQ(ranks[0].send(data, {INAGG_INT32, INAGG_AVG, 0, 0}), -EINVAL);
    EXPECT_EQ(ranks[0].send(data, {INAGG_INT32, INAGG_SUM, INAGG_TENSOR_WHOLE << 1, 0}), -EINVAL);
    EXPECT_EQ(ranks[0].send(data, {INAGG_FLOAT32, INAGG_SUM, 0, 200}), -ERANGE);
    EXPECT_EQ(ranks[0].send(data, {INAGG_FLOAT32, INAGG_SUM, 0, -200}), -ERANGE);
    ControlMessage<inagg_tensor_type> control;
    mock_message m = message_with(data, control);
    const auto send_with = [&](size_t length, int level, int type) {
        control.length = length;
        control.level = level;
        control.type = type;
        return mock_sendmsg(ranks[0].sock, &m);
    };
    const size_t right = sizeof(control);
    EXPECT_EQ(send_with(right, SOL_INAGG, INAGG_CMSG_RESULT), -EINVAL);
    EXPECT_EQ(send_with(right - 1, SOL_INAGG, INAGG_CMSG_TENSOR), -EINVAL);
    EXPECT_EQ(send_with(right + 1, SOL_INAGG, INAGG_CMSG_TENSOR), -EINVAL);
    EXPECT_EQ(send_with(3, SOL_INAGG, INAGG_CMSG_TENSOR), -EINVAL);
    EXPECT_EQ(send_with(right, SOL_SOCKET, 1), -EINVAL) << "what we do not honour";
    EXPECT_EQ(send_with(right, SOL_IP, INAGG_CMSG_TENSOR), -EINVAL);
    EXPECT_EQ(send_with(right, SOL_INAGG, INAGG_CMSG_TENSOR), 64);
}

TEST_F(CallsTest, TheRestOfATensorHasNoOtherControlMessages) {
    join(1, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); }); // four blocks
    const Bytes data = integers(1, 64 * 6)[0];
    const inagg_tensor_type type{INAGG_INT32, INAGG_MAX, 0, INAGG_SCALE_AUTO};
    ASSERT_EQ(ranks[0].send(data, type, MSG_DONTWAIT), 4 * 256);
    const Bytes rest(data.begin() + 4 * 256, data.end());
    Bytes got(512);
    ASSERT_EQ(ranks[0].recv(got), 512) << "room for all of it";
    for (const auto &other : {inagg_tensor_type{INAGG_FLOAT32, INAGG_MAX, 0, INAGG_SCALE_AUTO},
                              {INAGG_INT32, INAGG_SUM, 0, INAGG_SCALE_AUTO},
                              {INAGG_INT32, INAGG_MAX, INAGG_TENSOR_WHOLE, INAGG_SCALE_AUTO},
                              {INAGG_INT32, INAGG_MAX, 0, 3},
                              {INAGG_DTYPES, INAGG_MAX, 0, INAGG_SCALE_AUTO}})
        EXPECT_EQ(ranks[0].send(rest, other), -EINVAL);
    ControlMessage<uint64_t> rights{.level = SOL_SOCKET, .type = 1}; // SCM_RIGHTS
    mock_message m = message_with(rest, rights);
    EXPECT_EQ(mock_sendmsg(ranks[0].sock, &m), -EINVAL);
    ASSERT_EQ(ranks[0].set(INAGG_DTYPE, INAGG_FLOAT16), 0) << "of the next tensor";
    EXPECT_EQ(ranks[0].send(Bytes(rest.begin(), rest.end()), type), 512) << "said again, or not, it is the same";
    Bytes last(1024);
    EXPECT_EQ(ranks[0].recv(last), 1024);
    EXPECT_TRUE(std::equal(last.begin(), last.end(), data.begin() + 512)) << "what was refused took nothing";
}

TEST_F(CallsTest, NobodyWaitsForAnotherThreadsCallIfItMustNotWait) {
    join(2);
    const Bytes data(64);
    Bytes got(64);
    ASSERT_EQ(ranks[0].send(data), 64);
    int receive = 0;
    world->at(1 * ms, [&] {
        Bytes other(64);
        receive = ranks[0].recv_nowait(other);
        EXPECT_EQ(ranks[1].send(data), 64);
    });
    EXPECT_EQ(ranks[0].recv(got), 64);
    EXPECT_EQ(receive, -EAGAIN);
}

TEST_F(CallsTest, NobodyWaitsForAnotherThreadsSendIfItMustNotWait) {
    join(2, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); });
    ASSERT_EQ(ranks[0].send(Bytes(1024)), 1024); // fills the buffer
    const Bytes data(64);
    int send = 0;
    world->at(1 * ms, [&] {
        send = ranks[0].send(data, MSG_DONTWAIT);
        mock_interrupt(true);
    });
    EXPECT_EQ(ranks[0].send(data), restart);
    EXPECT_EQ(send, -EAGAIN);
}

// The first to wait is interrupted by an event that is the second, and so cannot go on before it.
TEST_F(CallsTest, WaitingForAnotherThreadsCallTakesNoLongerThanTheTimeout) {
    join(2, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); });
    Rank &rank = ranks[0];
    ASSERT_EQ(rank.send(Bytes(1024)), 1024); // fills the buffer
    Bytes got(64);
    const auto second = [&](auto call) {
        int result = 0;
        uint64_t waited = 0;
        world->at(1 * ms, [&] {
            mock_set_timeouts(rank.sock, 200, 300);
            const uint64_t start = mock_now();
            result = call(rank);
            waited = mock_now() - start;
            mock_interrupt(true); // the first has waited long enough
        });
        mock_set_timeouts(rank.sock, -1, -1);
        EXPECT_EQ(call(rank), restart);
        mock_interrupt(false);
        return std::pair(result, waited);
    };
    EXPECT_EQ(second([&](Rank &r) { return r.send(got); }), std::pair(-EAGAIN, 200 * ms));
    EXPECT_EQ(second([&](Rank &r) { return r.recv(got); }), std::pair(-EAGAIN, 300 * ms));
}

TEST_F(CallsTest, WaitingForAnotherThreadsCallIsInterrupted) {
    join(2);
    Rank &rank = ranks[0];
    Bytes got(64);
    for (const auto &[timeout, error] : {std::pair(-1L, restart), std::pair(5000L, -EINTR)}) {
        int second = 0;
        world->at(1 * ms, [&] {
            mock_set_timeouts(rank.sock, timeout, timeout);
            world->at(3 * ms, [] { mock_interrupt(true); });
            second = rank.recv(got);
        });
        mock_set_timeouts(rank.sock, -1, -1);
        EXPECT_EQ(rank.recv(got), restart);
        EXPECT_EQ(second, error);
        mock_interrupt(false);
    }
}

TEST_F(CallsTest, WhatWasSentOrReceivedBeforeASignalCounts) {
    join(2, [](Rank &rank) {
        rank.set(INAGG_BUFFER, 1);
        rank.set(INAGG_DTYPE, INAGG_INT32);
    });
    const auto inputs = integers(2, 64 * 8);
    world->at(ms, [] { mock_interrupt(true); });
    EXPECT_EQ(ranks[0].send(inputs[0]), 4 * 256) << "its buffer";
    mock_interrupt(false);
    ASSERT_EQ(ranks[1].send(inputs[1], MSG_DONTWAIT), 4 * 256);
    world->run(ms);
    Bytes got(8 * 256);
    world->at(ms, [] { mock_interrupt(true); });
    EXPECT_EQ(ranks[0].recv(got), 4 * 256);
    mock_interrupt(false);
}

TEST_F(CallsTest, ReceivingTimesOutAndIsInterrupted) {
    join(2);
    Bytes got(64);
    mock_set_timeouts(ranks[0].sock, -1, 200);
    const uint64_t start = mock_now();
    EXPECT_EQ(ranks[0].recv(got), -EAGAIN);
    EXPECT_EQ(mock_now() - start, 200 * ms);
    mock_set_timeouts(ranks[0].sock, -1, -1);
    world->at(ms, [] { mock_interrupt(true); });
    EXPECT_EQ(ranks[0].recv(got), restart);
}

TEST_F(CallsTest, ErrorQueueIsEmptyAtFirst) {
    Rank rank;
    EXPECT_FALSE(rank.fault());
}

// poll() and ioctl()

TEST_F(CallsTest, PollFollowsTheSocket) {
    Rank fresh;
    EXPECT_EQ(mock_poll(fresh.sock), EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND) << "send() fails at once";
    join(1, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); }); // four blocks of 64 elements
    Rank &rank = ranks[0];
    rank.set(INAGG_DTYPE, INAGG_INT32);
    EXPECT_EQ(mock_poll(rank.sock), EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
    Bytes data(4 * 256);
    ASSERT_EQ(rank.send(data), 1024);
    EXPECT_EQ(mock_poll(rank.sock), 0) << "the buffer is full, nothing is here";
    world->run(1 * ms);
    EXPECT_EQ(mock_poll(rank.sock), EPOLLIN | EPOLLRDNORM);
    EXPECT_EQ(rank.recv_nowait(std::span(data).first(256)), 256);
    EXPECT_TRUE(mock_poll(rank.sock) & EPOLLOUT) << "room for a block";
    EXPECT_EQ(rank.recv_nowait(data), 768);
    EXPECT_FALSE(mock_poll(rank.sock) & EPOLLIN);
    ASSERT_EQ(mock_shutdown(rank.sock, SHUT_RD), 0);
    EXPECT_TRUE(mock_poll(rank.sock) & EPOLLRDHUP);
    ASSERT_EQ(mock_shutdown(rank.sock, SHUT_WR), 0);
    EXPECT_TRUE(mock_poll(rank.sock) & EPOLLHUP);
}

// Writable is who send() does not keep waiting.
static void expect_agreement(Rank &rank, int result, const char *state) {
    Bytes data(64);
    const bool writable = mock_poll(rank.sock) & EPOLLOUT;
    EXPECT_EQ(rank.send(data, MSG_DONTWAIT), result) << state;
    EXPECT_EQ(writable, result != -EAGAIN) << state;
}

TEST_F(CallsTest, PollAndSendAgree) {
    Rank rank;
    expect_agreement(rank, -ENOTCONN, "fresh");
    ASSERT_EQ(rank.bind(0), 0);
    expect_agreement(rank, -ENOTCONN, "bound");
    world->filter = [](const mock_packet &) { return true; };
    ASSERT_EQ(rank.connect(1, true), -EINPROGRESS);
    expect_agreement(rank, -EAGAIN, "joining");
    ASSERT_EQ(mock_shutdown(rank.sock, SHUT_RDWR), 0);
    expect_agreement(rank, -ECONNRESET, "its join ended");
    expect_agreement(rank, -ENOTCONN, "and told so");
    world->filter = {};
    ASSERT_EQ(rank.set(INAGG_BUFFER, 1), 0);
    ASSERT_EQ(rank.connect(1), 0);
    for (int i = 0; i < 4; i++)
        expect_agreement(rank, 64, "joined");
    expect_agreement(rank, -EAGAIN, "full");
    world->run(ms);
    expect_agreement(rank, -EAGAIN, "full of results");
    Bytes got(64);
    ASSERT_EQ(rank.recv_nowait(got), 64);
    expect_agreement(rank, 64, "with room again");
    ASSERT_EQ(mock_shutdown(rank.sock, SHUT_WR), 0);
    expect_agreement(rank, -EPIPE, "shut down");
}

TEST_F(CallsTest, IoctlsCountBytes) {
    join(2);
    Rank &rank = ranks[0];
    rank.set(INAGG_DTYPE, INAGG_INT32);
    ranks[1].set(INAGG_DTYPE, INAGG_INT32);
    int value = -1;
    EXPECT_EQ(mock_ioctl(rank.sock, SIOCOUTQ, &value), 0);
    EXPECT_EQ(value, 0);
    const auto inputs = integers(2, 100);
    ASSERT_EQ(rank.send(inputs[0]), 400);
    EXPECT_EQ(mock_ioctl(rank.sock, SIOCOUTQ, &value), 0);
    EXPECT_EQ(value, 400);
    ASSERT_EQ(ranks[1].send(inputs[1]), 400);
    world->run(1 * ms);
    EXPECT_EQ(mock_ioctl(rank.sock, SIOCOUTQ, &value), 0);
    EXPECT_EQ(value, 0);
    EXPECT_EQ(mock_ioctl(rank.sock, SIOCINQ, &value), 0);
    EXPECT_EQ(value, 400);
    Bytes part(100);
    ASSERT_EQ(rank.recv_nowait(part), 100);
    EXPECT_EQ(mock_ioctl(rank.sock, SIOCINQ, &value), 0);
    EXPECT_EQ(value, 300);
    EXPECT_EQ(mock_ioctl(rank.sock, FIONBIO, &value), -515) << "ENOIOCTLCMD";
    EXPECT_EQ(mock_ioctl(rank.sock, SIOCINQ, nullptr), -EFAULT);
}

// shutdown() and close()

TEST_F(CallsTest, ShutdownOfSending) {
    join(2);
    const Bytes data(64);
    ASSERT_EQ(ranks[0].send(data), 64);
    EXPECT_EQ(mock_shutdown(ranks[0].sock, 3), -EINVAL);
    EXPECT_EQ(mock_shutdown(ranks[0].sock, -1), -EINVAL);
    ASSERT_EQ(mock_shutdown(ranks[0].sock, SHUT_WR), 0);
    EXPECT_EQ(ranks[0].send(data, MSG_NOSIGNAL), -EPIPE);
    EXPECT_EQ(mock_sigpipes(), 0);
    EXPECT_EQ(ranks[0].send(data), -EPIPE);
    EXPECT_EQ(mock_sigpipes(), 1);
    ASSERT_EQ(ranks[1].send(data), 64);
    Bytes got(64);
    EXPECT_FALSE(mock_poll(ranks[0].sock) & EPOLLRDHUP);
    EXPECT_EQ(ranks[0].recv(got), 64);
    EXPECT_EQ(mock_poll(ranks[0].sock) & (EPOLLIN | EPOLLRDHUP), EPOLLIN | EPOLLRDHUP);
    EXPECT_EQ(ranks[0].recv(got), 0) << "all results have been received";
}

TEST_F(CallsTest, ResultsThatNobodyWantsAreThrownAway) {
    join(2, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); });
    for (Rank &rank : ranks)
        rank.set(INAGG_DTYPE, INAGG_INT32);
    ASSERT_EQ(mock_shutdown(ranks[0].sock, SHUT_RD), 0);
    for (int i = 0; i < 5; i++) {
        const auto inputs = integers(2, 256, i);
        Bytes got(1024);
        EXPECT_EQ(ranks[0].send(inputs[0]), 1024);
        EXPECT_EQ(ranks[1].send(inputs[1]), 1024);
        EXPECT_EQ(ranks[1].recv(got), 1024);
        EXPECT_EQ(got, expected(INAGG_INT32, INAGG_SUM, inputs));
        EXPECT_EQ(ranks[0].recv(got), 0);
    }
}

TEST_F(CallsTest, ResultsLargerThanTheBufferAreThrownAwayAsTheyCome) {
    join(2, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); });
    for (Rank &rank : ranks)
        rank.set(INAGG_DTYPE, INAGG_INT32);
    ASSERT_EQ(mock_shutdown(ranks[0].sock, SHUT_RD), 0);
    const auto inputs = integers(2, 64 * 20);
    std::vector<Transfer> other;
    other.push_back({ranks[1], inputs[1]});
    world->every(100 * us, [&] { return take_turns(other) || !are_done(other); });
    EXPECT_EQ(ranks[0].send(inputs[0]), static_cast<int>(inputs[0].size()));
    world->run(10 * ms);
    EXPECT_EQ(other[0].output, expected(INAGG_INT32, INAGG_SUM, inputs));
}

TEST_F(CallsTest, ShutdownOfReceivingWaitsForAReceiverUnlessKilled) {
    join(2);
    int result = 0;
    world->at(1 * ms, [&] { // while the receiver has not come to leave
        mock_kill(true);
        result = mock_shutdown(ranks[0].sock, SHUT_RD);
    });
    Bytes got(64);
    EXPECT_EQ(ranks[0].recv(got), 0);
    EXPECT_EQ(result, -EINTR);
    mock_kill(false);
    EXPECT_EQ(mock_shutdown(ranks[0].sock, SHUT_RD), 0) << "by another process that has the socket";
    for (Rank &rank : ranks)
        ASSERT_EQ(rank.send(got), 64);
    world->run(ms);
    int unread = -1;
    EXPECT_EQ(mock_ioctl(ranks[0].sock, SIOCINQ, &unread), 0);
    EXPECT_EQ(unread, 0) << "results are thrown away";
}

// The mock complains of loops that let nobody else on.
TEST_F(CallsTest, LongTensorsLetOthersOnAndKilledTasksGo) {
    join(1);
    ranks[0].set(INAGG_DTYPE, INAGG_INT32);
    const Bytes data = integers(1, 64 * 300)[0];
    ASSERT_EQ(ranks[0].send(data), 256 * 300);
    world->run(10 * ms);
    Bytes got(data.size());
    mock_kill(true);
    EXPECT_EQ(ranks[0].recv(got), 256) << "block by block";
    mock_kill(false);
    EXPECT_EQ(ranks[0].recv(std::span(got).subspan(256)), 256 * 299);
    EXPECT_TRUE(got == data);
}

// A sender that has just copied the last block loses the processor, until the whole result is read and the tensor
// gone: the scale comes just then, so that all of its blocks go at once.
TEST_F(CallsTest, SenderIsOvertakenByItsResult) {
    for (uint64_t scale_in = 0; scale_in < 15 * ms; scale_in += 500 * us) {
        ranks.clear();
        world->run(1 * s);
        join(1, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); });
        bool lost = false;
        world->filter = [&](const mock_packet &packet) {
            const auto *h = static_cast<const inagg_hdr *>(packet.data);
            return inagg_hdr_type(h) == INAGG_CONTRIBUTION && inagg_swap32(h->slot) >= 8 && !std::exchange(lost, true);
        };
        ASSERT_EQ(ranks[0].send(Bytes(512), {INAGG_INT32, INAGG_SUM, 0, 0}), 512); // half of the buffer
        const auto inputs = inputs_of(INAGG_FLOAT32, 1, 64 * 4);
        ASSERT_EQ(ranks[0].send(inputs[0], MSG_DONTWAIT), 512);
        ASSERT_TRUE(lost); // and repeated after 100 ms
        world->run(100 * ms - scale_in);
        Bytes output;
        world->every(20 * us, [&] {
            Bytes part(1000);
            const int got = ranks[0].recv_nowait(part);
            if (got > 0)
                output.insert(output.end(), part.begin(), part.begin() + got);
            return output.size() < 512 + inputs[0].size();
        });
        mock_set_preemption([] {
            for (int i = 0; i < 100; i++)
                mock_step();
        });
        EXPECT_EQ(ranks[0].send(std::span(inputs[0]).subspan(512)), 512);
        mock_set_preemption(nullptr);
        world->run(1 * s);
        ASSERT_EQ(output.size(), 512 + inputs[0].size()) << scale_in;
        output.erase(output.begin(), output.begin() + 512);
        EXPECT_TRUE(output == expected(INAGG_FLOAT32, INAGG_SUM, inputs)) << scale_in;
    }
    world->filter = {};
}

TEST_F(CallsTest, CloseFinishesWhatOthersWaitFor) {
    join(2);
    for (Rank &rank : ranks)
        rank.set(INAGG_DTYPE, INAGG_INT32);
    const auto inputs = integers(2, 256);
    ASSERT_EQ(ranks[0].send(inputs[0]), 1024);
    EXPECT_EQ(ranks[0].close(), 0);
    EXPECT_TRUE(is_leaving());
    world->run(1 * s);
    ASSERT_EQ(ranks[1].send(inputs[1]), 1024);
    Bytes got(1024);
    EXPECT_EQ(ranks[1].recv(got), 1024);
    EXPECT_EQ(got, expected(INAGG_INT32, INAGG_SUM, inputs));
    world->run(1 * s);
    EXPECT_FALSE(is_leaving()) << "gone with the last result";
}

TEST_F(CallsTest, CloseFinishesUntilTheDeadline) {
    join(2, [](Rank &rank) { rank.set(INAGG_DEADLINE, 2000); });
    ASSERT_EQ(ranks[0].send(Bytes(64)), 64);
    EXPECT_EQ(ranks[0].close(), 0);
    world->run(1 * s);
    EXPECT_TRUE(is_leaving());
    world->run(2 * s);
    EXPECT_FALSE(is_leaving());
}

TEST_F(CallsTest, CloseFinishesNothingBehindATensorInPart) {
    join(2, [](Rank &rank) { rank.set(INAGG_BUFFER, 1); });
    ASSERT_EQ(ranks[0].send(Bytes(64)), 64);
    ASSERT_EQ(ranks[0].send(Bytes(64 * 256), MSG_DONTWAIT), 768);
    EXPECT_EQ(ranks[0].close(), 0);
    EXPECT_FALSE(is_leaving());
}

TEST_F(CallsTest, CloseFinishesInAMinuteOrNotAtAll) {
    join(2);
    ASSERT_EQ(ranks[0].set(INAGG_DEADLINE, INT_MAX), 0);
    ASSERT_EQ(ranks[0].send(Bytes(64)), 64);
    EXPECT_EQ(ranks[0].close(), 0);
    world->run(50 * s);
    EXPECT_TRUE(is_leaving());
    world->run(12 * s);
    EXPECT_FALSE(is_leaving());
}

// And nothing else of their socket is: whoever holds them up must not have its memory for so long.
TEST_F(CallsTest, PacketsOnTheirWayAreChargedUntilTheyHaveGone) {
    join(2);
    mock_hold_packets(true);
    ASSERT_EQ(ranks[0].send(Bytes(64)), 64);
    mock_set_linger(ranks[0].sock, true, 0);
    const long tensors = ranks[0].get(INAGG_BUFFER) / 2, charged = mock_charged();
    EXPECT_GT(charged, tensors);
    EXPECT_EQ(ranks[0].close(), 0);
    world->run(10 * s);
    EXPECT_GT(mock_charged(), 0);
    EXPECT_LT(mock_charged(), charged - tensors);
    mock_hold_packets(false);
    world->run(1 * s);
    EXPECT_EQ(mock_charged(), 0);
}

TEST_F(CallsTest, NoMoreThanItsWindowsTwiceIsOnItsWay) {
    join(2);
    mock_hold_packets(true);
    int contributions = 0;
    world->filter = [&](const mock_packet &packet) {
        const auto *h = reinterpret_cast<const inagg_hdr *>(packet.data);
        contributions += inagg_hdr_type(h) == INAGG_CONTRIBUTION;
        return true; // all are lost, and repeated for half a minute
    };
    const inagg_info info = ranks[0].info();
    ASSERT_GT(ranks[0].send(Bytes(info.slots * info.elements * 4UL), MSG_DONTWAIT), 0);
    world->run(20 * s);
    EXPECT_GT(contributions, static_cast<int>(info.slots));
    EXPECT_LE(contributions, static_cast<int>(3 * (info.slots + 8)));
    mock_hold_packets(false);
    world->filter = {};
}

TEST_F(CallsTest, CloseLingersForTensorsAndBarriers) {
    for (const bool barrier : {false, true}) {
        ranks.clear();
        world->run(ms);
        join(2);
        const Bytes data(barrier ? 0 : 64);
        ASSERT_EQ(ranks[0].send(data), static_cast<int>(data.size()));
        mock_set_linger(ranks[0].sock, true, 10'000);
        world->at(20 * ms, [&] { EXPECT_EQ(ranks[1].send(data), static_cast<int>(data.size())); });
        const uint64_t start = mock_now();
        EXPECT_EQ(ranks[0].close(), 0);
        EXPECT_LT(mock_now() - start, 100 * ms) << "barrier: " << barrier;
    }
}

TEST_F(CallsTest, CloseLingersNoLongerThanItWasTold) {
    join(2);
    ASSERT_EQ(ranks[0].send(Bytes(64)), 64);
    mock_set_linger(ranks[0].sock, true, 1000);
    const uint64_t start = mock_now();
    EXPECT_EQ(ranks[0].close(), 0);
    EXPECT_EQ(mock_now() - start, 1 * s);
    EXPECT_FALSE(is_leaving());
}

TEST_F(CallsTest, CloseWithLingerZeroLeavesAtOnce) {
    join(2);
    ASSERT_EQ(ranks[0].send(Bytes(64)), 64);
    mock_set_linger(ranks[0].sock, true, 0);
    EXPECT_EQ(ranks[0].close(), 0);
    EXPECT_FALSE(is_leaving());
}

static Rank *closing;

// What this processor receives finds the socket, and another one closes it: nobody waits for that.
TEST_F(CallsTest, CloseWhileAPacketIsReceived) {
    join(2);
    mock_set_linger(ranks[0].sock, true, 0);
    closing = &ranks[0];
    mock_set_racer([] { closing->close(); });
    const uint16_t port = ranks[0].port;
    const uint64_t start = mock_now();
    EXPECT_TRUE(world->deliver(Bytes(64), port));
    EXPECT_EQ(ranks[0].sock, nullptr);
    EXPECT_EQ(mock_now(), start);
    EXPECT_FALSE(world->deliver(Bytes(64), port)) << "nobody listens any more";
    Rank next;
    EXPECT_EQ(next.bind(0, "10.0.0.1", port), 0) << "the port is free";
}

TEST_F(CallsTest, PacketsAreTheUsersUntilItCloses) {
    join(2);
    struct socket *sock = ranks[0].sock;
    EXPECT_EQ(mock_count_owned(sock), 1U);
    EXPECT_EQ(mock_count_owned(ranks[1].sock), 1U);
    ASSERT_EQ(ranks[0].send(Bytes(64)), 64);
    EXPECT_EQ(ranks[0].close(), 0);
    EXPECT_TRUE(is_leaving());
    EXPECT_EQ(mock_count_owned(sock), 0U) << "its file is gone";
}

TEST_F(CallsTest, CloseWhileJoining) {
    world->filter = [](const mock_packet &) { return true; };
    Rank rank;
    ASSERT_EQ(rank.bind(0), 0);
    EXPECT_EQ(rank.connect(1, true), -EINPROGRESS);
    EXPECT_EQ(rank.close(), 0);
}

// /proc and sysctl

TEST_F(CallsTest, ProcShowsSocketsAndDrops) {
    join(2);
    const std::string text = mock_read_proc(0);
    EXPECT_NE(text.find("family 25"), std::string::npos);
    EXPECT_NE(text.find("joined job 7 rank 1 size 2"), std::string::npos) << text;
    EXPECT_EQ(std::string(mock_read_proc(1)).find("rank"), std::string::npos) << "another namespace";
    world->deliver(Bytes(64), ranks[0].port);
    EXPECT_NE(std::string(mock_read_proc(0)).find("dropped 1: "), std::string::npos);
}

TEST_F(CallsTest, ProcDoesNotWaitForACallOfASocket) {
    Rank rank;
    ASSERT_EQ(rank.bind(0, "10.0.0.1", 5000), 0);
    std::vector<std::string> seen;
    interrupt_with([&] { seen.emplace_back(mock_read_proc(0)); });
    EXPECT_EQ(rank.connect(1), 0);
    interrupt_with(nullptr);
    ASSERT_FALSE(seen.empty());
    EXPECT_NE(seen.front().find("closed job 0"), std::string::npos) << "in the middle of connect()";
    EXPECT_NE(seen.front().find("]:5000 switch"), std::string::npos) << seen.front();
}

TEST_F(CallsTest, SysctlsBelongToTheirNamespace) {
    EXPECT_EQ(mock_write_sysctl(0, "buffer_max", 1 << 20), 0);
    EXPECT_EQ(mock_write_sysctl(0, "buffer_max", 1), -EINVAL);
    EXPECT_EQ(mock_write_sysctl(0, "deadline_default_ms", 0), -EINVAL);
    EXPECT_EQ(mock_write_sysctl(0, "deadline_default_ms", 77), 0);
    EXPECT_EQ(mock_write_sysctl(1, "memory_limit", 1), -EACCES);
    Rank here, there(1);
    EXPECT_EQ(here.get(INAGG_DEADLINE), 77);
    EXPECT_EQ(there.get(INAGG_DEADLINE), 30000);
    EXPECT_EQ(here.set(INAGG_BUFFER, 4 << 20), 0);
    EXPECT_EQ(here.get(INAGG_BUFFER), 1 << 20);
    EXPECT_EQ(there.set(INAGG_BUFFER, 4 << 20), 0);
    EXPECT_EQ(there.get(INAGG_BUFFER), 4 << 20);
    Rank standard;
    EXPECT_EQ(standard.get(INAGG_BUFFER), 1 << 20) << "buffer_default is cut to buffer_max, too";
}

TEST_F(CallsTest, MemoryLimitIsTheMachines) {
    join(1);
    Rank there(1);
    ASSERT_EQ(there.bind(0), 0);
    ASSERT_EQ(there.connect(switch_address(1)), 0);
    ASSERT_EQ(mock_write_sysctl(0, "memory_limit", 1), 0);
    EXPECT_EQ(ranks[0].send(Bytes(64)), -ENOBUFS);
    EXPECT_EQ(there.send(Bytes(64)), -ENOBUFS);
}

// Groups.

TEST_F(KmodTest, ResultsMayComeToAGroup) {
    const struct { const char *group, *sw; } families[] = {{"239.77.0.7", "10.0.0.254"}, {"ff15::7", "fd00::fe"}};
    for (const auto &family : families) {
        auto options = small();
        options.group = group_of(family.group, 12001);
        start(options, 5 * us);
        uint64_t received = 0;
        for (uint16_t i = 0; i < 3; i++) {
            ranks.emplace_back();
            ASSERT_EQ(ranks.back().bind(i), 0);
            ASSERT_EQ(ranks.back().connect(switch_address(3, family.sw)), 0);
            EXPECT_EQ(mock_count_owned(ranks.back().sock), 1U) << "who listens to the group is the system";
        }
        const auto inputs = inputs_of(INAGG_FLOAT32, 3, 64 * 20 + 5);
        for (const Transfer &t : allreduce(inputs))
            EXPECT_TRUE(t.output == expected(INAGG_FLOAT32, INAGG_SUM, inputs));
        for (Rank &rank : ranks)
            received += rank.info().blocks;
        EXPECT_EQ(received, 3U * (21 + 1)) << "one copy for all of them";
        TearDown();
    }
    world.reset();
}

TEST_F(KmodTest, OnlyAGroupsAddressIsJoined) {
    for (const auto &[group, sw] : {std::pair{"10.0.0.7", "10.0.0.254"}, {"fd00::7", "fd00::fe"}}) {
        auto options = small();
        options.group = group_of(group, 12001);
        start(options);
        Rank rank;
        ASSERT_EQ(rank.bind(0), 0);
        EXPECT_EQ(rank.connect(switch_address(1, sw)), -EADDRNOTAVAIL) << group;
        rank.close();
        TearDown();
    }
    world.reset();
}

} // namespace kmod
