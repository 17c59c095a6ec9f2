// SPDX-License-Identifier: BSD-2-Clause
// libinagg's ranks and the server, over real sockets that lose packets.
#include "server.hpp"
#include "socket_io.hpp"

#include "ranks.hpp"

#include <inagg/core/checksum.h>

#include <gtest/gtest.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <mutex>
#include <random>

namespace ps {
namespace {

using namespace std::chrono_literals;
using inaggd::Address;
using inaggd::Clock;

// Every server has the same port, so each takes an address of its own.
Address random_loopback() {
    std::random_device random;
    Address address = *Address::parse("127.1.0.1");
    for (const int byte : {1, 2, 3})
        address.bytes[byte] = static_cast<uint8_t>(1 + random() % 250);
    return address;
}

// A server in a thread; packets in and out get lost with a probability.
class RunningServer final : public Outbox {
public:
    explicit RunningServer(double loss = 0, Address address = random_loopback())
        : address_(address), loss_(loss), io_(std::array{address}) {
        spdlog::set_level(spdlog::level::off);
        start(1);
        thread_ = std::thread([this] {
            while (!stopping_) {
                io_.receive(
                    [this](auto packet, const Endpoint &from, bool congested) {
                        const std::lock_guard lock(mutex_);
                        if (!lost())
                            server_->receive(packet, from, congested, Clock::now());
                    },
                    1ms);
            }
        });
    }
    ~RunningServer() override {
        stopping_ = true;
        thread_.join();
    }

    // The next incarnation knows nothing of this one's jobs.
    void restart() {
        const std::lock_guard lock(mutex_);
        start(2);
    }
    // With each result the ranks also hear that their job is gone.
    void forge_hints() { forges_ = true; }
    std::string address() const { return address_.text(); }
    // Of the only job there was, or is, if its ranks' LEAVE got lost.
    inagg_stats stats() {
        const std::lock_guard lock(mutex_);
        inagg_stats stats = server_->past_stats();
        server_->for_jobs([&](uint16_t, const inagg_stats &running) { stats = running; });
        return stats;
    }
    uint64_t lost_packets() const { return lost_packets_; }

private:
    void start(uint16_t boot) {
        inaggd::Policy policy{.mtu = 65536, .port_forming = INAGG_MAX_JOBS, .port_jobs = INAGG_MAX_JOBS, .server = true};
        policy.job_slots = 16;
        server_ = std::make_unique<Server>(
            policy, boot, [boot] { return static_cast<uint16_t>(100 * boot); }, *this);
    }
    void forge_hint(const inagg_hdr &result, std::span<const Endpoint> to) {
        inagg_hdr header = result;
        header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_REFUSED;
        header.slot = inagg_swap32(INAGG_R_JOB);
        header.boot ^= 1;
        const struct inagg_join nobody {};
        inagg_hdr_seal_checked(&header, inagg_body_checksum(&nobody));
        io_.send(header, std::as_bytes(std::span(&nobody, 1)), to);
    }
    void send(const inagg_hdr &header, std::span<const std::byte> payload, std::span<const Endpoint> to) override {
        if (forges_ && inagg_hdr_type(&header) == INAGG_RESULT)
            forge_hint(header, to);
        for (const Endpoint &one : to)
            if (!lost())
                io_.send(header, payload, {&one, 1});
    }
    bool lost() {
        const bool lost = loss_ > 0 && std::uniform_real_distribution<>()(random_) < loss_;
        lost_packets_ += lost;
        return lost;
    }

    const Address address_;
    const double loss_;
    std::mt19937_64 random_{1};
    std::atomic<bool> forges_{false};
    std::atomic<uint64_t> lost_packets_{0};
    SocketIo io_;
    std::mutex mutex_;
    std::unique_ptr<Server> server_;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

auto with(const char *algorithm) {
    return [algorithm](inagg_options &options) {
        options.algorithm[std::string(algorithm).copy(options.algorithm, sizeof options.algorithm - 1)] = '\0';
        options.timeout_ms = 20000;
    };
}

// Small integers: exact in every type, and so is their sum.
float value(unsigned rank, std::size_t i) { return static_cast<float>(static_cast<int>((rank * 7 + i * 3) % 15) - 7); }

template <typename T> void expect_exact(inagg::Communicator &c, unsigned size, std::size_t count, inagg_dtype dtype) {
    std::vector<T> mine(count), sum(count), expected(count);
    for (std::size_t i = 0; i < count; i++) {
        mine[i] = static_cast<T>(value(c.rank(), i));
        for (unsigned rank = 0; rank < size; rank++)
            expected[i] += static_cast<T>(value(rank, i));
    }
    c.wait(*c.allreduce(mine.data(), sum.data(), count, dtype, INAGG_SUM));
    EXPECT_EQ(sum, expected) << "rank " << c.rank() << ", " << count << " elements";
}

struct Case {
    const char *algorithm;
    uint16_t ranks;
    double loss;
};

class OverSockets : public testing::TestWithParam<Case> {};

TEST_P(OverSockets, SumsAreExact) {
    const auto [algorithm, ranks, loss] = GetParam();
    RunningServer server(loss);
    inagg::run_ranks(
        server.address(), ranks,
        [&](inagg::Communicator &c) {
            for (const std::size_t count : {1, 832, 100000}) {
                expect_exact<int32_t>(c, ranks, count, INAGG_INT32);
                expect_exact<float>(c, ranks, count, INAGG_FLOAT32);
            }
        },
        with(algorithm));
    EXPECT_EQ(server.lost_packets() > 0, loss > 0);
    EXPECT_GT(server.stats().completions, 200u);
    EXPECT_EQ(server.stats().additions, server.stats().completions * ranks);
}

INSTANTIATE_TEST_SUITE_P(All, OverSockets,
                         testing::Values(Case{"switchml", 4, 0}, Case{"switchml", 4, 0.01}, Case{"atp", 1, 0}, Case{"atp", 4, 0},
                                         Case{"atp", 4, 0.01}, Case{"atp", 7, 0.05}),
                         [](const auto &info) {
                             return fmt::format("{}{}ranks{}percent", info.param.algorithm, info.param.ranks,
                                                info.param.loss * 100);
                         });

// Every 3000th element, and the last one, is far beyond the scale; some are not finite.
std::vector<float> with_outliers(unsigned rank, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; i++)
        values[i] = value(rank, i);
    for (std::size_t i = 7; i < count; i += 3000)
        values[i] = 1e20f / static_cast<float>(rank + 1);
    values[count - 1] = 3e38f;
    values[5000] = rank == 1 ? INFINITY : 1;
    values[9000] = rank == 1 ? NAN : 1;
    return values;
}

std::vector<float> float_sum(unsigned ranks, std::size_t count, float divisor = 1) {
    std::vector<double> sum(count);
    for (unsigned rank = 0; rank < ranks; rank++) {
        const std::vector<float> values = with_outliers(rank, count);
        std::transform(values.begin(), values.end(), sum.begin(), sum.begin(), [](float a, double b) { return b + a; });
    }
    std::vector<float> rounded(count);
    std::transform(sum.begin(), sum.end(), rounded.begin(),
                   [divisor](double value) { return static_cast<float>(value) / divisor; });
    return rounded;
}

void expect_same(const std::vector<float> &got, const std::vector<float> &expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (std::size_t i = 0; i < got.size(); i++)
        ASSERT_TRUE(got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i])))
            << i << ": " << got[i] << ", not " << expected[i];
}

// Out of place and in place, averages, at one rank only.
void expect_float_sums(inagg::Communicator &c, unsigned ranks, std::size_t count) {
    const std::vector<float> mine = with_outliers(c.rank(), count), expected = float_sum(ranks, count);
    std::vector<float> sum(count), in_place = mine, average = mine;
    const auto first = c.allreduce(mine.data(), sum.data(), count, INAGG_FLOAT32, INAGG_SUM);
    const auto second = c.allreduce(in_place.data(), in_place.data(), count, INAGG_FLOAT32, INAGG_SUM);
    c.wait(*c.allreduce(average.data(), average.data(), count, INAGG_FLOAT32, INAGG_AVG));
    c.wait(*first);
    c.wait(*second);
    expect_same(sum, expected);
    expect_same(in_place, expected);
    expect_same(average, float_sum(ranks, count, static_cast<float>(ranks)));
    std::vector<float> at_root(count);
    c.wait(*c.reduce(mine.data(), c.rank() == 1 ? at_root.data() : nullptr, count, INAGG_FLOAT32, INAGG_SUM, 1));
    expect_same(at_root, c.rank() == 1 ? expected : std::vector<float>(count));
}

TEST(OverSockets, WhatDoesNotFitTheScaleIsSummedAsFloats) {
    constexpr unsigned ranks = 3;
    for (const double loss : {0.0, 0.05}) {
        RunningServer server(loss);
        inagg::run_ranks(
            server.address(), ranks,
            [&](inagg::Communicator &c) {
                expect_float_sums(c, ranks, 20001);
                const std::vector<uint16_t> most(1000, 0x7bff); // 65504: the scale is for float32 only
                std::vector<uint16_t> halves(1000);
                c.wait(*c.allreduce(most.data(), halves.data(), halves.size(), INAGG_FLOAT16, INAGG_SUM));
                EXPECT_EQ(halves, std::vector<uint16_t>(1000, 0x7c00)) << "infinity";
                expect_exact<float>(c, ranks, 20000, INAGG_FLOAT32);
            },
            [](inagg_options &options) {
                with("atp")(options);
                options.scale = 24;
            });
        EXPECT_EQ(server.stats().saturated, 4 * 9u); // of 25 blocks
        EXPECT_EQ(server.stats().drops[INAGG_R_UNSOLICITED], 0u);
    }
}

TEST(OverSockets, SwitchmlFailsThenOnAllRanks) {
    RunningServer server;
    inagg::run_ranks(
        server.address(), 3,
        [](inagg::Communicator &c) {
            std::vector<float> values = with_outliers(c.rank(), 10000);
            try {
                c.wait(*c.allreduce(values.data(), values.data(), values.size(), INAGG_FLOAT32, INAGG_SUM));
                ADD_FAILURE() << "it does not fit";
            } catch (const inagg::Error &error) {
                EXPECT_EQ(error.code(), INAGG_ERANGE);
            }
        },
        [](inagg_options &options) {
            with("switchml")(options);
            options.scale = 24;
        });
}

TEST(OverSockets, AnAgreedScaleNeverSaturates) {
    RunningServer server;
    inagg::run_ranks(
        server.address(), 3,
        [](inagg::Communicator &c) {
            for (const float magnitude : {1.0f, 1e20f, 1e-20f, 3e37f}) {
                std::vector<float> values(20000, magnitude);
                values[77] *= 2;
                c.wait(*c.allreduce(values.data(), values.data(), values.size(), INAGG_FLOAT32, INAGG_SUM));
                EXPECT_NEAR(values[77] / magnitude, 6, 1e-6);
                EXPECT_NEAR(values[78] / magnitude, 3, 1e-6);
            }
        },
        with("atp"));
    EXPECT_EQ(server.stats().saturated, 0u);
}

// What arrives at a SocketIo from a plain socket that marks its packets with `tos`.
struct Arrival {
    std::size_t bytes;
    bool congested;
};
std::vector<Arrival> arrivals(std::initializer_list<std::pair<std::size_t, int>> sizes_and_tos) {
    const Address address = random_loopback();
    SocketIo io(std::array{address});
    inagg::Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(INAGG_PORT);
    std::memcpy(&to.sin_addr, address.bytes.data(), 4);
    for (const auto &[bytes, tos] : sizes_and_tos) {
        setsockopt(socket.get(), IPPROTO_IP, IP_TOS, &tos, sizeof tos);
        const std::vector<char> packet(bytes);
        sendto(socket.get(), packet.data(), bytes, 0, reinterpret_cast<const sockaddr *>(&to), sizeof to);
    }
    std::vector<Arrival> seen;
    for (int i = 0; i < 100 && seen.size() < sizes_and_tos.size(); i++)
        io.receive([&](auto packet, const Endpoint &, bool congested) { seen.push_back({packet.size(), congested}); }, 2ms);
    return seen;
}

TEST(SocketIo, SeesMarksOfRouters) {
    const auto seen = arrivals({{64, INAGG_TOS}, {64, INAGG_TOS | 3}, {64, INAGG_TOS}});
    ASSERT_EQ(seen.size(), 3u);
    EXPECT_FALSE(seen[0].congested);
    EXPECT_TRUE(seen[1].congested);
    EXPECT_FALSE(seen[2].congested);
}

TEST(SocketIo, DropsWhatIsLongerThanAPacket) {
    const auto seen = arrivals({{sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD, 0}, {5000, 0}, {0, 0}, {1, 0}});
    ASSERT_GE(seen.size(), 2u);
    EXPECT_EQ(seen.front().bytes, sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD);
    EXPECT_EQ(seen.back().bytes, 1u);
    for (const Arrival &one : seen)
        EXPECT_LE(one.bytes, sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD + 8);
}

TEST(OverSockets, HalvesOfAllRanksAreSummed) {
    RunningServer server;
    inagg::run_ranks(
        server.address(), 3,
        [](inagg::Communicator &c) {
            std::vector<uint16_t> ones(5000, 0x3c00), sum(5000); // 1.0
            c.wait(*c.allreduce(ones.data(), sum.data(), ones.size(), INAGG_FLOAT16, INAGG_SUM));
            EXPECT_EQ(sum, std::vector<uint16_t>(5000, 0x4200)); // 3.0
        },
        with("atp"));
}

TEST(OverSockets, Ipv6) {
    std::unique_ptr<RunningServer> server;
    try {
        server = std::make_unique<RunningServer>(0, *Address::parse("::1"));
    } catch (const std::exception &error) {
        GTEST_SKIP() << error.what();
    }
    inagg::run_ranks(
        server->address(), 2, [](inagg::Communicator &c) { expect_exact<int32_t>(c, 2, 10000, INAGG_INT32); }, with("atp"));
}

TEST(OverSockets, OtherTransportsRefuseAtp) {
    const RunningServer server;
    const auto message = [&](const char *transport, const char *algorithm) -> std::string {
        inagg_options options = inagg::options_for(server.address(), 0, 1);
        with(algorithm)(options);
        options.transport[std::string(transport).copy(options.transport, sizeof options.transport - 1)] = '\0';
        try {
            inagg::Communicator communicator(options);
            return communicator.transport_note();
        } catch (const inagg::Error &error) {
            EXPECT_EQ(error.code(), INAGG_EINVAL);
            return error.what();
        }
    };
    for (const char *transport : {"kernel", "xdp"})
        for (const char *algorithm : {"atp", "canary"})
            EXPECT_EQ(message(transport, algorithm),
                      fmt::format("transport '{}' does not do algorithm '{}': use afxdp, udp or auto", transport, algorithm));
    EXPECT_NE(message("auto", "atp").find("kernel: does not do algorithm 'atp'"), std::string::npos);
}

TEST(OverSockets, CallsEndWhenTheServerIsRestarted) {
    RunningServer server;
    std::atomic<int> calls{0};
    const auto begin = Clock::now();
    try {
        inagg::run_ranks(
            server.address(), 2,
            [&](inagg::Communicator &c) {
                for (;;) {
                    expect_exact<int32_t>(c, 2, 10000, INAGG_INT32);
                    if (c.rank() == 0 && ++calls == 3)
                        server.restart();
                }
            },
            with("atp"));
        FAIL() << "calls go on";
    } catch (const inagg::Error &error) {
        EXPECT_EQ(error.code(), INAGG_ECLOSED);
        EXPECT_EQ(std::string(error.what()),
                  "the switch at " + server.address() + " has restarted and lost job 7: start all its ranks again");
    }
    EXPECT_LT(Clock::now() - begin, 10s) << "not the deadline";
}

// Whoever forges the server's address can say so, but does not know the nonces.
TEST(OverSockets, AHintAloneEndsNothing) {
    RunningServer server;
    server.forge_hints();
    inagg::run_ranks(
        server.address(), 2, [&](inagg::Communicator &c) { expect_exact<int32_t>(c, 2, 1000000, INAGG_INT32); }, with("atp"));
    EXPECT_GT(server.stats().joins, 2u) << "the ranks have asked whether it is true";
}

} // namespace
} // namespace ps
