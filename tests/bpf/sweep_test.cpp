// SPDX-License-Identifier: BSD-2-Clause
// Sweeps and ticks of the XDP switch (bpf/sweep.h) as the agent uses them: timers of the kernel, live frames into
// a veth. In a network namespace of its own.
#include "support/xdp_plane.hpp"

#include "switch_maps.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "switch.skel.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/ethtool.h>
#include <linux/if_packet.h>
#include <linux/sockios.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <thread>

namespace {

using namespace std::chrono_literals;
using namespace support;
using Clock = std::chrono::steady_clock;

constexpr uint32_t slots = 64;
constexpr auto patience = 10s; // the machine may be busy

JobSpec trio_job() {
    JobSpec spec;
    spec.algorithm = INAGG_TRIO;
    spec.expiry_sweeps = 1;
    return spec;
}

// Beside trio_job(), with slots of its own.
JobSpec another_job() {
    JobSpec spec = trio_job();
    spec.number = 8;
    spec.index = 1;
    spec.first_slot = 16;
    return spec;
}

bool eventually(const std::function<bool()> &condition) {
    const auto end = Clock::now() + patience;
    while (!condition()) {
        if (Clock::now() > end)
            return false;
        std::this_thread::sleep_for(1ms);
    }
    return true;
}

class Sweeps : public testing::Test {
public:
    Sweeps() : plane(slots), bpf(plane.bpf()) {}
    ~Sweeps() override { start(0, 0ms); }

    void start(uint32_t sweepers, std::chrono::nanoseconds period) {
        inagg_sweep_settings settings{};
        settings.sweepers = sweepers;
        settings.period_ns = static_cast<uint64_t>(period.count());
        const Mac mac = tick_mac();
        std::copy(mac.begin(), mac.end(), settings.mac);
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = &settings, .data_size_in = sizeof settings, .repeat = 1);
        ASSERT_TRUE(eventually([&] { // the kernel may lack memory for a timer
            return bpf_prog_test_run_opts(bpf_program__fd(bpf.progs.inagg_sweep), &options) || options.retval == XDP_DROP;
        }));
        ASSERT_EQ(options.retval, uint32_t{XDP_DROP});
    }

    inagg_sweeper sweeper(uint32_t index) {
        inagg_sweeper one{};
        EXPECT_EQ(bpf_map_lookup_elem(bpf_map__fd(bpf.maps.sweepers), &index, &one), 0);
        return one;
    }

    uint32_t open_records(const JobSpec &spec) {
        uint32_t open = 0;
        EXPECT_EQ(bpf_map_lookup_elem(bpf_map__fd(bpf.maps.open_records), &spec.index, &open), 0);
        return open;
    }

    // For what is full, since ranks were excluded: nothing grows older.
    void sweep_for_the_full() {
        const Frame frame(64, 0);
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_size_in = static_cast<uint32_t>(frame.size()));
        ASSERT_EQ(bpf_prog_test_run_opts(bpf_program__fd(bpf.progs.inagg_sweep_once), &options), 0);
        ASSERT_EQ(options.retval, uint32_t{XDP_DROP});
    }

    // What the CONFIG that answers rank 0's JOIN says of stragglers.
    inagg_stragglers told(const JobSpec &spec) {
        inagg_join asked{};
        asked.nonce = inagg_swap64(spec.nonce);
        asked.size = htons(spec.ranks);
        asked.elements = htons(spec.elements);
        asked.receive_port = htons(worker_port(0));
        Packet packet = contribution(spec, 0, 0, 0);
        packet.type = INAGG_JOIN;
        packet.payload.resize(sizeof asked);
        std::memcpy(packet.payload.data(), &asked, sizeof asked);
        const Answer answer = send(packet);
        const auto config = parse(answer.frame);
        EXPECT_TRUE(config && config->type == INAGG_CONFIG) << action_name(answer.action);
        inagg_config c{};
        if (config && config->payload.size() == sizeof c)
            std::memcpy(&c, config->payload.data(), sizeof c);
        return {inagg_swap64(c.stragglers.temporary), inagg_swap64(c.stragglers.permanent)};
    }

    bool pop(inagg_expired &e) { return bpf_map_lookup_and_delete_elem(bpf_map__fd(bpf.maps.expired), nullptr, &e) == 0; }

    Answer send(const Packet &packet) { return plane.receive(build(packet)); }

    XdpPlane plane;
    switch_bpf &bpf;
};

TEST_F(Sweeps, EachSweeperHasItsPhaseAndItsPace) {
    constexpr uint32_t sweepers = 5;
    constexpr auto period = 20ms;
    const auto began = Clock::now();
    start(sweepers, period);
    const inagg_sweeper first = sweeper(0);
    for (uint32_t i = 1; i < sweepers; i++)
        EXPECT_EQ((sweeper(i).due_ns - first.due_ns) % std::chrono::nanoseconds(period).count(),
                  i * std::chrono::nanoseconds(period).count() / sweepers);
    for (uint32_t i = 0; i < sweepers; i++)
        EXPECT_TRUE(eventually([&] { return sweeper(i).runs >= 5; })) << "sweeper " << i;
    for (uint32_t i = 0; i < sweepers; i++) {
        const uint64_t runs = sweeper(i).runs;
        EXPECT_LE(runs, static_cast<uint64_t>((Clock::now() - began) / period) + 1) << "sweeper " << i;
    }
    EXPECT_EQ(sweeper(sweepers).runs, 0u);

    start(0, 0ms);
    const uint64_t runs = sweeper(0).runs;
    std::this_thread::sleep_for(3 * period);
    EXPECT_EQ(sweeper(0).runs, runs) << "sweepers go on after they were stopped";
}

// One that did not start would leave its part of the blocks waiting for ever.
TEST_F(Sweeps, AsManyRunAsWereAskedFor) {
    constexpr uint32_t sweepers = 100;
    start(sweepers, 5ms);
    for (uint32_t i = 0; i < sweepers; i++)
        EXPECT_TRUE(eventually([&] { return sweeper(i).runs > 0; })) << "sweeper " << i;
}

TEST_F(Sweeps, EachVisitsItsPart) {
    JobSpec spec = trio_job();
    spec.expiry_sweeps = 0;
    spec.slots = 32;
    plane.add_job(spec);
    constexpr uint32_t taken = INAGG_WAYS - 1; // new blocks leave a way to those that must be recovered
    for (uint32_t block = 0; block < switch_buckets * taken; block++)
        ASSERT_EQ(send(contribution(spec, 0, block, spec.elements)).action, Action::absorb);
    std::vector<inagg_sweeper> before(INAGG_MAX_SWEEPERS);
    for (const uint32_t sweepers : {1, 3, 8, 100}) { // 100: most of them have nothing to do
        for (uint32_t i = 0; i < sweepers; i++)
            before[i] = sweeper(i);
        start(sweepers, 100ms);
        ASSERT_TRUE(eventually([&] { return sweeper(sweepers - 1).runs > 0; }));
        start(0, 0ms);
        uint32_t parts = 0;
        for (uint32_t i = 0; i < sweepers; i++) {
            const uint32_t part = switch_buckets * (i + 1) / sweepers - switch_buckets * i / sweepers;
            const inagg_sweeper after = sweeper(i);
            EXPECT_EQ(after.records - before[i].records, after.runs * part * taken) << "sweeper " << i << " of " << sweepers;
            parts += part;
        }
        EXPECT_EQ(parts, switch_buckets);
    }
}

TEST_F(Sweeps, ExpiredBlocksWakeTheAgent) {
    const JobSpec spec = trio_job();
    plane.add_job(spec);
    uint32_t rung = 0;
    const auto count = [](void *context, void *data, size_t) {
        *static_cast<uint32_t *>(context) += static_cast<inagg_due *>(data)->expired;
        return 0;
    };
    ring_buffer *ring = ring_buffer__new(bpf_map__fd(bpf.maps.due), count, &rung, nullptr);
    ASSERT_TRUE(ring);
    start(4, 10ms);
    ASSERT_EQ(send(contribution(spec, 0, 0, spec.elements)).action, Action::absorb);
    EXPECT_GT(ring_buffer__poll(ring, std::chrono::milliseconds(patience).count()), 0);
    ring_buffer__free(ring);
    EXPECT_GE(rung, 1u);
    start(0, 0ms);
    const Answer answer = plane.tick();
    EXPECT_EQ(answer.action, Action::multicast);
    EXPECT_EQ(open_records(spec), 0u);
}

TEST_F(Sweeps, ATickThatIsLostIsMadeUpFor) {
    const JobSpec spec = trio_job();
    plane.add_job(spec);
    send(contribution(spec, 0, 0, spec.elements));
    plane.sweep();
    plane.sweep();
    inagg_expired e{};
    ASSERT_TRUE(pop(e));
    EXPECT_EQ(e.block, 0u);
    EXPECT_EQ(e.job, spec.number);
    EXPECT_EQ(e.generation, spec.generation);
    ASSERT_FALSE(pop(e));
    EXPECT_EQ(plane.tick().action, Action::absorb);
    plane.sweep();
    EXPECT_EQ(plane.tick().action, Action::multicast);
}

TEST_F(Sweeps, AnExclusionMakesNobodyElsesBlocksOlder) {
    const JobSpec spec = trio_job(), other = another_job();
    plane.add_job(other);
    plane.add_job(spec);
    send(contribution(other, 0, 0, other.elements));
    send(contribution(spec, 0, 0, spec.elements));
    send(contribution(spec, 1, 0, spec.elements));
    inagg_job row = spec.job();
    row.all &= ~uint64_t{4};
    ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(bpf.maps.jobs), &spec.number, &row, BPF_ANY), 0);
    for (int i = 0; i < 3; i++)
        sweep_for_the_full();
    inagg_expired e{};
    ASSERT_TRUE(pop(e));
    EXPECT_EQ(e.job, spec.number);
    while (pop(e))
        EXPECT_EQ(e.job, spec.number);
}

TEST_F(Sweeps, WatchedRanksHearWhoTheStragglersAre) {
    JobSpec spec = trio_job();
    const inagg_stragglers judged{2, 4};
    for (const uint8_t flags : {uint8_t{INAGG_JOIN_WATCHED}, uint8_t{0}}) {
        spec.flags = flags;
        plane.add_job(spec);
        ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(bpf.maps.stragglers), &spec.index, &judged, BPF_ANY), 0);
        const inagg_stragglers heard = told(spec);
        EXPECT_EQ(heard.temporary, flags ? 2u : 0u);
        EXPECT_EQ(heard.permanent, flags ? 4u : 0u);
    }
}

TEST_F(Sweeps, RecordsOfAnotherGenerationGo) {
    JobSpec spec = trio_job();
    plane.add_job(spec);
    send(contribution(spec, 0, 0, spec.elements));
    ASSERT_FALSE(plane.pool(spec).empty());
    spec.generation++;
    plane.add_job(spec);
    plane.sweep();
    EXPECT_TRUE(plane.pool(spec).empty());
    EXPECT_EQ(open_records(spec), 0u) << "counted by the new generation's";
}

TEST_F(Sweeps, AForgottenJobStartsAnew) {
    JobSpec spec = trio_job(), other = another_job();
    plane.add_job(spec);
    plane.add_job(other);
    for (uint32_t block = 0; block < 2; block++) {
        send(contribution(spec, 0, block, spec.elements));
        send(contribution(other, 0, block, other.elements));
    }
    const std::string untouched = plane.pool(other);

    spec.generation = 2;
    inagg_forget_args args{};
    args.job = spec.job();
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &args, .ctx_size_in = sizeof args);
    ASSERT_EQ(bpf_prog_test_run_opts(bpf_program__fd(bpf.progs.inagg_forget_job), &options), 0);
    EXPECT_EQ(options.retval, 0u);
    EXPECT_EQ(args.busy, 0u);
    EXPECT_EQ(open_records(spec), 0u);
    EXPECT_TRUE(plane.pool(spec).empty());
    EXPECT_EQ(plane.pool(other), untouched);
    EXPECT_EQ(open_records(other), 2u);
    inagg_job_policy policy{};
    ASSERT_EQ(bpf_map_lookup_elem(bpf_map__fd(bpf.maps.policies), &spec.index, &policy), 0);
    EXPECT_EQ(policy.policy.most_open, 0u) << "packets on their way may still open records";
    for (uint32_t position = 0; position < spec.slots + spec.control_slots; position++) {
        inagg_floor_memory floor{};
        const uint32_t key = spec.first_slot + position;
        ASSERT_EQ(bpf_map_lookup_elem(bpf_map__fd(bpf.maps.floors), &key, &floor), 0);
        const inagg_floor expected = spec.floor(position);
        EXPECT_EQ(std::memcmp(&floor.floor, &expected, sizeof expected), 0) << position;
    }
}

// Two ends of a veth; what leaves by the one arrives at a socket on the other.
class Wire {
public:
    Wire() {
        if (std::system("ip link add inagg0 mtu 3498 type veth peer name inagg1 mtu 3498 && "
                        "ip link set inagg0 up && ip link set inagg1 up"))
            throw std::runtime_error("ip link add failed");
        socket_ = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ALL));
        ifreq request{};
        std::strcpy(request.ifr_name, "inagg1");
        ethtool_value on{.cmd = ETHTOOL_SGRO, .data = 1}; // a veth takes redirected frames only so
        request.ifr_data = reinterpret_cast<char *>(&on);
        if (ioctl(socket_, SIOCETHTOOL, &request))
            throw std::runtime_error("ETHTOOL_SGRO failed");
        sockaddr_ll address{};
        address.sll_family = AF_PACKET;
        address.sll_protocol = htons(ETH_P_ALL);
        address.sll_ifindex = static_cast<int>(if_nametoindex("inagg1"));
        if (bind(socket_, reinterpret_cast<sockaddr *>(&address), sizeof address))
            throw std::runtime_error("bind failed");
    }
    ~Wire() {
        close(socket_);
        if (std::system("ip link del inagg0"))
            fmt::print("ip link del failed\n");
    }
    uint32_t port() const { return if_nametoindex("inagg0"); }
    // The next frame from the switch.
    std::optional<Packet> receive() const {
        for (;;) {
            pollfd wait{socket_, POLLIN, 0};
            if (poll(&wait, 1, std::chrono::milliseconds(patience).count()) != 1)
                return {};
            Frame frame(4096);
            frame.resize(static_cast<size_t>(std::max<ssize_t>(recv(socket_, frame.data(), frame.size(), 0), 0)));
            if (auto packet = parse(frame))
                return packet;
        }
    }

private:
    int socket_;
};

class LiveTicks : public Sweeps, public testing::WithParamInterface<int> {};

// Blocks of several jobs by one call, as many frames as a page holds.
TEST_P(LiveTicks, BecomeResults) {
    constexpr uint32_t blocks = 3, elements = INAGG_SWEPT_ELEMENTS;
    Wire wire;
    JobSpec spec = trio_job();
    spec.family = GetParam();
    spec.elements = elements;
    plane.add_job(spec);
    const int ports = bpf_map_create(BPF_MAP_TYPE_DEVMAP, "ports_of_job", sizeof(uint32_t), sizeof(bpf_devmap_val),
                                     INAGG_PORT_ENTRIES, nullptr);
    ASSERT_GE(ports, 0);
    const uint32_t first = 0;
    bpf_devmap_val port{};
    port.ifindex = wire.port();
    ASSERT_EQ(bpf_map_update_elem(ports, &first, &port, BPF_ANY), 0);
    ASSERT_EQ(bpf_map_update_elem(bpf_map__fd(bpf.maps.ports), &spec.index, &ports, BPF_ANY), 0);
    close(ports);

    for (uint32_t block = 0; block < blocks; block++)
        for (const uint32_t rank : {0u, 2u})
            ASSERT_EQ(send(contribution(spec, rank, block, spec.elements)).action, Action::absorb);
    plane.sweep();
    plane.sweep();
    Frame frame(header_offset(6) + sizeof(inagg_hdr) + elements * 4, 0x5a);
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_size_in = static_cast<uint32_t>(frame.size()),
                .repeat = 8, .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = 8);
    ASSERT_EQ(bpf_prog_test_run_opts(bpf_program__fd(bpf.progs.inagg_tick), &options), 0) << std::strerror(errno);
    for (uint32_t i = 0; i < blocks; i++) {
        const auto got = wire.receive();
        ASSERT_TRUE(got) << "result " << i << " did not arrive";
        EXPECT_EQ(got->type, INAGG_RESULT);
        EXPECT_EQ(got->family, spec.family);
        EXPECT_EQ(got->source, switch_address(spec.family));
        EXPECT_EQ(got->source_mac, tick_mac());
        EXPECT_EQ(got->block, i);
        EXPECT_EQ(got->contributors, 5u);
        EXPECT_EQ(got->count, 2u);
        EXPECT_EQ(got->flags, INAGG_F_RESEND | INAGG_F_DEGRADED | (i / spec.slots % 2 ? INAGG_F_VERSION : 0));
        EXPECT_EQ(element_values(got->payload, got->dtype), std::vector<uint32_t>(elements, 4));
    }
    const inagg_stats stats = plane.stats(spec.index);
    EXPECT_EQ(stats.expired, blocks);
    EXPECT_EQ(stats.completions, blocks);
    EXPECT_EQ(open_records(spec), 0u);
}

INSTANTIATE_TEST_SUITE_P(Family, LiveTicks, testing::Values(4, 6));

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    if (geteuid() != 0) {
        fmt::print("SKIP: loading BPF programs needs root\n");
        return 77;
    }
    if (unshare(CLONE_NEWNET)) {
        fmt::print("SKIP: no network namespace: {}\n", std::strerror(errno));
        return 77;
    }
    return RUN_ALL_TESTS();
}
