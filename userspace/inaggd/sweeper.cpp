// SPDX-License-Identifier: BSD-2-Clause
#include "sweeper.hpp"

#include "clock.hpp"
#include "error.hpp"
#include "maps.hpp"
#include "ring.hpp"

#include <bpf/bpf.h>
#include <linux/bpf.h>
#include <poll.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/eventfd.h>

#include <algorithm>

namespace inaggd {
namespace {

using namespace std::chrono_literals;

constexpr auto least_shift = 50us; // between two timers: 20,000 runs a second, some percent of a CPU
// A visit takes so long where a bucket has all the open records that it takes of new blocks: 32 ns each; 55 if they have expired,
// and 28 for four that are complete. Visits may take a quarter of a processor: whoever may join could else have all of one by
// a short expiry.
constexpr auto bucket_visit = 100ns;
constexpr int share_of_processor = 4;
constexpr auto least_period = 400us; // so that records can count to the longest expiry, whoever's shorter ones are beside it
static_assert(least_period * (INAGG_MOST_SWEEPS - 1) >= std::chrono::microseconds(inagg::most_expiry_us));
constexpr uint32_t batch = 64; // a veth's ring holds 256 frames
constexpr auto pause = 50us;   // after each, or half as long as it took: what has no real-time priority runs, and more expires
constexpr auto report_period = 200ms; // of what that costs
constexpr int most_attempts = 100;    // to start the timers
// Room for IPv6's headers and the largest result of a job that is swept.
constexpr size_t frame_bytes = 14 + 40 + 8 + sizeof(inagg_hdr) + INAGG_SWEPT_ELEMENTS * 4;

// All ranks wait for what this thread does, and it is short: it goes before whatever else wants the CPU.
void go_first() {
    const sched_param priority{.sched_priority = sched_get_priority_min(SCHED_FIFO)};
    if (const int error = pthread_setschedparam(pthread_self(), SCHED_FIFO, &priority))
        spdlog::warn("sweeps: no real-time priority: {}; results of expired blocks are late when the CPUs are busy",
                     system_text(error));
}

int add_due(void *blocks, void *data, size_t bytes) {
    if (bytes >= sizeof(inagg_due))
        *static_cast<uint32_t *>(blocks) += static_cast<inagg_due *>(data)->expired;
    return 0;
}

// That this thread has used.
uint64_t cpu_ns() {
    timespec used{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return static_cast<uint64_t>(used.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(used.tv_nsec);
}

// What this thread costs while it has something to do, in the switch's memory.
class Cost {
public:
    explicit Cost(const Fd &map) : map_(map) {}
    bool is_open() const { return since_; }
    // There is something to do.
    void begin() {
        if (is_open())
            return;
        since_ = now_ns();
        before_ = cpu_ns();
    }
    // Now and then.
    void report() {
        if (!is_open() || now_ns() < since_ + report_period / 1ns)
            return;
        const inagg_sweep_process process{.since_ns = since_, .until_ns = now_ns(), .cpu_ns = cpu_ns() - before_};
        const uint32_t zero = 0;
        if (bpf_map_update_elem(map_.get(), &zero, &process, BPF_ANY))
            spdlog::error("sweep_process: {}", system_text(errno));
        since_ = 0;
    }

private:
    const Fd &map_;
    uint64_t since_ = 0, before_ = 0;
};

// What was too much for `due` must not stay in the queue, before all that comes later. A frame too many is dropped.
uint32_t with_uncounted(uint32_t blocks) { return blocks + blocks / 8 + 1; }

} // namespace

SweepPlan plan_sweeps(std::span<const uint32_t> expiries, uint32_t sweepers, uint32_t per_expiry, uint32_t buckets) {
    uint32_t shortest_us = 0;
    for (const uint32_t expiry : expiries)
        if (expiry && (!shortest_us || expiry < shortest_us))
            shortest_us = expiry;
    if (!shortest_us)
        return {};
    const std::chrono::nanoseconds shortest = std::chrono::microseconds(shortest_us);
    const auto least = std::max<std::chrono::nanoseconds>(buckets * bucket_visit * share_of_processor, least_period);
    // The shortest expiry is a whole number of periods; it would last up to one longer.
    const auto periods = std::clamp<int64_t>(shortest / least, 1, per_expiry);
    const std::chrono::nanoseconds period = std::max((shortest + std::chrono::nanoseconds(periods - 1)) / periods, least);
    const auto most = static_cast<uint32_t>(std::max<int64_t>(period / least_shift, 1));
    return {.sweepers = std::min(sweepers, most), .period = period};
}

uint16_t expiry_in_sweeps(uint32_t expiry_us, const SweepPlan &plan) {
    if (!expiry_us || !plan.sweepers)
        return 0;
    const auto expiry = std::chrono::nanoseconds(std::chrono::microseconds(expiry_us));
    return static_cast<uint16_t>(std::clamp<int64_t>((expiry + plan.period - 1ns) / plan.period, 1, INAGG_MOST_SWEEPS - 1));
}

// Ranks keep to one window, but a straggler may be in the one before.
inagg_job_policy policy_row(uint16_t number, const inagg_job &job, const Stragglers &stragglers, const SweepPlan &plan) {
    inagg_job_policy row{};
    row.policy.expiry_us = stragglers.expiry_us;
    row.policy.expiry_sweeps = expiry_in_sweeps(stragglers.expiry_us, plan);
    row.policy.quorum = stragglers.quorum;
    row.policy.exclude_ms = stragglers.exclude_ms;
    row.policy.most_open = 2 * pool_slots(job);
    row.job = number;
    row.generation = job.generation;
    return row;
}

Sweeper::Sweeper(const std::string &bpffs, const std::array<uint8_t, 6> &mac)
    : sweep_(open_pin(bpffs, "inagg_sweep")), once_(open_pin(bpffs, "inagg_sweep_once")),
      switch_(open_pin(bpffs, "inagg_switch")), due_(open_pin(bpffs, "due")), cost_(open_pin(bpffs, "sweep_process")),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), mac_(mac) {
    if (!wake_)
        throw Error("eventfd: {}", system_text(errno));
    thread_ = std::thread(&Sweeper::run, this);
}

inagg_sweep_settings Sweeper::settings_of(const SweepPlan &plan) const {
    inagg_sweep_settings settings{};
    settings.sweepers = plan.sweepers;
    settings.period_ns = static_cast<uint64_t>(plan.period.count());
    std::copy(mac_.begin(), mac_.end(), settings.mac);
    return settings;
}

Sweeper::~Sweeper() {
    stopping_ = true;
    eventfd_write(wake_.get(), 1);
    thread_.join();
}

void Sweeper::sweep(const SweepPlan &plan) {
    inagg_sweep_settings settings = settings_of(plan);
    by_hand_ms_ = 0;
    int attempts = 0;
    while (!start(settings) && ++attempts < most_attempts)
        std::this_thread::sleep_for(1ms);
    if (attempts == most_attempts) {
        settings.sweepers = 0;
        start(settings);
        by_hand_ms_ = std::max<int>(static_cast<int>(plan.period / 1ms), 1);
        eventfd_write(wake_.get(), 1);
    }
    plan_ = plan;
    if (plan.sweepers)
        spdlog::info("sweeps: every {} us, by {}", plan.period / 1us,
                     attempts == most_attempts ? "this process: the kernel lacks memory for timers"
                                               : fmt::format("{} timers", plan.sweepers));
}

void Sweeper::sweep_once(Look look) const {
    std::array<char, 64> frame{static_cast<char>(look)};
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_size_in = frame.size());
    if (bpf_prog_test_run_opts(once_.get(), &options))
        throw Error("program inagg_sweep_once: {}", system_text(errno));
    if (options.retval != XDP_DROP)
        throw Error("program inagg_sweep_once returned {}; restart inaggd with --fresh", options.retval);
}

// Whether all timers run.
bool Sweeper::start(const inagg_sweep_settings &settings) const {
    LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = &settings, .data_size_in = sizeof settings);
    if (bpf_prog_test_run_opts(sweep_.get(), &options))
        throw Error("program inagg_sweep: {}", system_text(errno));
    if (options.retval != XDP_DROP)
        spdlog::debug("sweeps: not all timers could be started");
    return options.retval == XDP_DROP;
}

// Waits for the timers to find something, or looks itself.
void Sweeper::run() {
    uint32_t blocks = 0;
    Cost cost(cost_);
    go_first();
    Ring ring(ring_buffer__new(due_.get(), add_due, &blocks, nullptr));
    if (!ring) {
        spdlog::error("due: {}; blocks that expire wait for the next packet", system_text(errno));
        return;
    }
    pollfd fds[] = {{.fd = wake_.get(), .events = POLLIN, .revents = 0},
                    {.fd = ring_buffer__epoll_fd(ring.get()), .events = POLLIN, .revents = 0}};
    ring_buffer__consume(ring.get()); // what came before: the kernel wakes nobody who is behind
    if (blocks)
        blocks = INAGG_EXPIRED_QUEUE; // nobody was here for long: `due` may have become full, and not have counted all
    while (!stopping_) {
        if (blocks)
            send(with_uncounted(std::exchange(blocks, 0)));
        cost.report();
        const int by_hand = by_hand_ms_, wait = by_hand ? by_hand : cost.is_open() ? static_cast<int>(report_period / 1ms) : -1;
        if (poll(fds, std::size(fds), wait) < 0 && errno != EINTR)
            spdlog::error("sweeps: poll: {}", system_text(errno));
        eventfd_t ignored;
        eventfd_read(wake_.get(), &ignored);
        if (by_hand) {
            cost.begin();
            age_by_hand();
        }
        ring_buffer__consume(ring.get());
        if (blocks)
            cost.begin();
    }
}

void Sweeper::age_by_hand() const {
    try {
        sweep_once(Look::to_age);
    } catch (const Error &error) {
        spdlog::error("sweeps: {}", error.what());
    }
}

/*
 * As many live frames; each takes one block from the queue and becomes its result. They are the switch's own program's,
 * which knows them by the interface that they seem to come from: to run a program that is attached nowhere, the kernel
 * would wait for two RCU grace periods, some 20 ms each.
 *
 * The ports' rings are emptied at the end of each batch, in softirq; by ksoftirqd where it has been woken (before Linux 6.5),
 * which cannot run before this thread pauses.
 */
void Sweeper::send(uint32_t blocks) const {
    std::array<char, frame_bytes> frame{};
    while (blocks) {
        const uint32_t now = std::min(blocks, batch);
        const uint64_t began = now_ns();
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_size_in = frame.size(),
                    .repeat = static_cast<int>(now), .flags = BPF_F_TEST_XDP_LIVE_FRAMES, .batch_size = now);
        if (bpf_prog_test_run_opts(switch_.get(), &options)) {
            spdlog::error("live frames: {}; blocks that expire wait for the next packet", system_text(errno));
            return;
        }
        blocks -= now;
        std::this_thread::sleep_for(std::max<std::chrono::nanoseconds>(pause, std::chrono::nanoseconds((now_ns() - began) / 2)));
    }
}

} // namespace inaggd
