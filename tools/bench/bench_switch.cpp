// SPDX-License-Identifier: BSD-2-Clause
// bench-switch: nanoseconds per element of the XDP switch beside a program that only copies.
//
// Both run under BPF_PROG_TEST_RUN behind one driver program (bpf/bench.bpf.c), which makes every
// repetition another contribution. Driver alone, copy and switch take turns in short rounds; medians.
// The driver's own time is subtracted from both, which makes the ratio larger than dividing the sums.
// After every configuration the switch's counters and slots or records must show that it added all of them.
#include "bench.h"
#include "bench.skel.h"
#include "switch.skel.h"
#include "switch_maps.h"
#include "switch_programs.h"

#include <inagg/core/checksum.h>
#include <inagg/core/fixed.h>

#include <CLI/CLI.hpp>
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <vector>

namespace {

constexpr uint32_t job_number = 1, job_index = 0, window = 128;
constexpr uint32_t loopback = 1; // what a test run calls the frame's interface
constexpr uint32_t switch_address = 0x0a4d0001, worker_address = 0x0a4d000a;
constexpr uint8_t scale = 127; // all magnitudes below 2

struct Encoding {
    const char *name;
    inagg_wire_dtype dtype;
};
constexpr Encoding encodings[] = {{"int32", INAGG_WIRE_INT32},
                                  {"fixed32", INAGG_WIRE_FIXED32},
                                  {"float16", INAGG_WIRE_FLOAT16},
                                  {"bfloat16", INAGG_WIRE_BFLOAT16},
                                  {"float32", INAGG_WIRE_FLOAT32}};

struct Algorithm {
    const char *name;
    inagg_algorithm number;
};
constexpr Algorithm algorithms[] = {{"switchml", INAGG_SWITCHML}, {"trio", INAGG_TRIO}, {"panama", INAGG_PANAMA}};

// Does the switch add this in such jobs?
bool is_summed(const Algorithm &algorithm, const Encoding &encoding) {
    const bool raw = encoding.dtype == INAGG_WIRE_FLOAT32;
    return encoding.dtype == INAGG_WIRE_INT32 || raw == (algorithm.number == INAGG_PANAMA);
}

struct Configuration {
    Algorithm algorithm;
    Encoding encoding;
    uint32_t elements, ranks;
    bool checked;
};

[[noreturn]] void fail(const std::string &what, int error = errno) {
    throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(error)));
}

void require(int status, const char *what) {
    if (status < 0)
        fail(what, -status);
}

template <typename Skeleton, void (*destroy)(Skeleton *)> struct Destroy {
    void operator()(Skeleton *skeleton) const { destroy(skeleton); }
};

// The elements of every contribution: ones, minus ones and halves, so that sums stay exact.
std::vector<std::byte> payload_of(const Configuration &c) {
    static const uint16_t half[] = {0x3c00, 0xbc00, 0x3800, 0xb800};
    static const uint16_t brain[] = {0x3f80, 0xbf80, 0x3f00, 0xbf00};
    std::vector<std::byte> payload(c.elements * inagg_element_bytes(c.encoding.dtype));
    for (uint32_t i = 0; i < c.elements; i++) {
        uint32_t fixed = inagg_fixed_bias(inagg_fan_in_log2(c.ranks)) + i - c.elements / 2;
        uint32_t word = c.encoding.dtype == INAGG_WIRE_INT32     ? i * 0x9e3779b9
                        : c.encoding.dtype == INAGG_WIRE_FIXED32 ? fixed
                        : c.encoding.dtype == INAGG_WIRE_FLOAT32 ? std::bit_cast<uint32_t>(static_cast<float>(fixed % 1000) - 499)
                        : c.encoding.dtype == INAGG_WIRE_FLOAT16 ? half[i * 7 / 3 % 4]
                                                                 : brain[i * 7 / 3 % 4];
        size_t bytes = inagg_element_bytes(c.encoding.dtype);
        std::memcpy(payload.data() + i * bytes, &word, bytes);
    }
    return payload;
}

// What the slot of a complete block holds: the result as it goes on the wire.
std::vector<std::byte> result_of(const Configuration &c, const std::vector<std::byte> &payload) {
    std::vector<std::byte> result(payload.size());
    if (inagg_element_bytes(c.encoding.dtype) == 4) {
        for (size_t i = 0; i < payload.size(); i += 4) {
            uint32_t word;
            std::memcpy(&word, &payload[i], 4);
            if (c.encoding.dtype == INAGG_WIRE_FLOAT32)
                word = std::bit_cast<uint32_t>(std::bit_cast<float>(word) * static_cast<float>(c.ranks));
            else
                word *= c.ranks;
            std::memcpy(&result[i], &word, 4);
        }
        return result;
    }
    uint32_t mantissa = c.encoding.dtype == INAGG_WIRE_FLOAT16 ? 10 : 7;
    uint32_t log2 = inagg_fan_in_log2(c.ranks);
    for (size_t i = 0; i < payload.size(); i += 2) {
        uint16_t bits;
        std::memcpy(&bits, &payload[i], 2);
        int32_t sum = inagg_half_to_fixed(bits, mantissa, log2, scale) * static_cast<int32_t>(c.ranks);
        bits = inagg_fixed_to_half(sum, mantissa, log2, scale);
        std::memcpy(&result[i], &bits, 2);
    }
    return result;
}

bench_frame frame_of(const Configuration &c, uint32_t rank, uint16_t generation, const std::vector<std::byte> &payload) {
    bench_frame f = {};
    auto udp_bytes = static_cast<uint16_t>(sizeof(udphdr) + sizeof(inagg_hdr) + payload.size());
    f.eth.h_dest[0] = 0x02;
    f.eth.h_source[0] = 0x02;
    f.eth.h_source[5] = static_cast<uint8_t>(rank + 1);
    f.eth.h_proto = htons(ETH_P_IP);
    iphdr ip = {};
    ip.version = 4;
    ip.ihl = 5;
    ip.tos = INAGG_TOS;
    ip.ttl = 64;
    ip.protocol = IPPROTO_UDP;
    ip.tot_len = htons(sizeof(iphdr) + udp_bytes);
    ip.saddr = htonl(worker_address + rank);
    ip.daddr = htonl(switch_address);
    ip.check = inagg_ipv4_checksum(&ip);
    f.ip = ip;
    f.udp.source = htons(20000);
    f.udp.dest = htons(INAGG_PORT);
    f.udp.len = htons(udp_bytes);
    f.hdr.version_type = INAGG_WIRE_VERSION << 4 | INAGG_CONTRIBUTION;
    f.hdr.dtype_op = static_cast<uint8_t>(c.encoding.dtype << 4 | INAGG_WIRE_SUM);
    f.hdr.level_flags = htons(c.checked ? INAGG_F_CHECKED : 0);
    f.hdr.job = htons(job_number);
    f.hdr.generation = htons(generation);
    f.hdr.source = htons(static_cast<uint16_t>(rank));
    f.hdr.count = htons(1);
    f.hdr.fan_in = htons(static_cast<uint16_t>(c.ranks));
    f.hdr.scale = c.encoding.dtype == INAGG_WIRE_INT32 ? 0 : scale;
    f.hdr.elements = htons(static_cast<uint16_t>(c.elements));
    f.hdr.payload_checksum = inagg_payload_checksum(payload.data(), payload.size());
    return f;
}

class Bench {
public:
    explicit Bench(const std::string &program) : switch_(switch_bpf__open_and_load()), driver_(bench_bpf__open_and_load()) {
        if (!switch_ || !driver_)
            fail("cannot load the BPF programs (root is needed)");
        require(inagg_link_programs(switch_->obj), "cannot fill the switch's table of algorithms");
        const int programs[BENCH_TARGETS] = {bpf_program__fd(driver_->progs.inagg_bench_nothing),
                                             bpf_program__fd(driver_->progs.inagg_bench_copy), find_program(program)};
        for (uint32_t target = 0; target < BENCH_TARGETS; target++)
            require(bpf_map__update_elem(driver_->maps.targets, &target, sizeof(target), &programs[target], sizeof(int), BPF_ANY),
                    "cannot fill the driver's targets");
        configure_switch();
    }

    nlohmann::ordered_json measure(const Configuration &c, int rounds, uint32_t windows) {
        payload_ = payload_of(c);
        generation_++;
        configure_job(c);
        plan(c);
        uint32_t repeat = windows * window * c.ranks;
        std::vector<uint32_t> times[BENCH_TARGETS];
        for (int round = -1; round < rounds; round++) // the first one warms up
            for (uint32_t target = 0; target < BENCH_TARGETS; target++) {
                uint32_t ns = run(target, repeat);
                if (round >= 0)
                    times[target].push_back(ns);
            }
        verify(c, repeat * static_cast<uint64_t>(rounds + 1));
        return summary(c, times);
    }

private:
    int find_program(const std::string &name) {
        bpf_program *program = bpf_object__find_program_by_name(switch_->obj, name.c_str());
        if (!program)
            throw std::runtime_error(fmt::format("the switch has no program {}", name));
        return bpf_program__fd(program);
    }

    void configure_switch() {
        uint32_t zero = 0;
        inagg_switch_settings settings = {};
        settings.address4 = htonl(switch_address);
        settings.boot = 1;
        require(bpf_map__update_elem(switch_->maps.settings, &zero, sizeof(zero), &settings, sizeof(settings), BPF_ANY),
                "settings");
        // Nobody listens: a test run does not send what the program redirects.
        int ports =
            bpf_map_create(BPF_MAP_TYPE_DEVMAP, "ports", sizeof(uint32_t), sizeof(bpf_devmap_val), INAGG_PORT_ENTRIES, nullptr);
        require(ports, "cannot create a devmap");
        uint32_t index = job_index;
        int status = bpf_map__update_elem(switch_->maps.ports, &index, sizeof(index), &ports, sizeof(ports), BPF_ANY);
        close(ports);
        require(status, "ports");
    }

    void configure_job(const Configuration &c) {
        inagg_job job = {};
        job.all = inagg_all_ranks(c.ranks);
        job.index = job_index;
        job.slots = window;
        job.control_slots = 1;
        job.generation = generation_;
        job.size = static_cast<uint16_t>(c.ranks);
        job.elements = static_cast<uint16_t>(c.elements);
        job.algorithm = static_cast<uint8_t>(c.algorithm.number);
        job.flags = c.checked ? INAGG_JOIN_CHECKED : 0;
        job.fan_in_log2 = static_cast<uint8_t>(inagg_fan_in_log2(c.ranks));
        require(bpf_map__update_elem(switch_->maps.jobs, &job_number, sizeof(job_number), &job, sizeof(job), BPF_ANY), "jobs");
        if (c.algorithm.number == INAGG_TRIO)
            configure_records(job);
        const inagg_share share = {.cap = 0, .children = static_cast<uint8_t>(c.ranks), .reserved = 0};
        const uint32_t index = job_index;
        require(bpf_map__update_elem(switch_->maps.shares, &index, sizeof(index), &share, sizeof(share), BPF_ANY), "shares");
        for (uint32_t rank = 0; rank < c.ranks; rank++) {
            uint32_t key = job_index * INAGG_MAX_RANKS + rank, address = htonl(worker_address + rank);
            inagg_member member = {};
            member.ifindex = loopback;
            member.family = 4;
            member.receive_port = htons(20000);
            member.leaf = static_cast<uint8_t>(rank);
            std::memcpy(member.address, &address, sizeof(address));
            require(bpf_map__update_elem(switch_->maps.members, &key, sizeof(key), &member, sizeof(member), BPF_ANY), "members");
        }
        before_ = statistics();
    }

    // No records, no stragglers: every block waits for all ranks.
    void configure_records(const inagg_job &job) {
        inagg_forget_args forget = {.job = job, .busy = 0, .reserved = 0};
        LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &forget, .ctx_size_in = sizeof(forget));
        require(bpf_prog_test_run_opts(bpf_program__fd(switch_->progs.inagg_forget_job), &options), "inagg_forget_job");
        inagg_job_policy policy = {};
        policy.policy.most_open = window;
        policy.job = job_number;
        policy.generation = job.generation;
        uint32_t index = job_index;
        require(bpf_map__update_elem(switch_->maps.policies, &index, sizeof(index), &policy, sizeof(policy), BPF_ANY),
                "policies");
    }

    void plan(const Configuration &c) {
        auto *bss = driver_->bss;
        bss->plan = {};
        bss->plan.ranks = c.ranks;
        bss->plan.slots = window;
        bss->plan.lines = payload_.size() / 64;
        bss->plan.all_change = c.encoding.dtype == INAGG_WIRE_FLOAT32; // sums travel in packets
        std::memcpy(bss->payload, payload_.data(), payload_.size());
        for (uint32_t rank = 0; rank < c.ranks; rank++)
            bss->frames[rank] = frame_of(c, rank, generation_, payload_);
    }

    // Nanoseconds per repetition.
    uint32_t run(uint32_t target, uint32_t repeat) {
        driver_->bss->plan.target = target;
        std::vector<std::byte> frame(sizeof(bench_frame) + payload_.size());
        std::memcpy(frame.data(), &driver_->bss->frames[0], sizeof(bench_frame));
        std::memcpy(frame.data() + sizeof(bench_frame), payload_.data(), payload_.size());
        LIBBPF_OPTS(bpf_test_run_opts, options, .data_in = frame.data(), .data_size_in = static_cast<uint32_t>(frame.size()),
                    .repeat = static_cast<int>(repeat));
        require(bpf_prog_test_run_opts(bpf_program__fd(driver_->progs.inagg_bench_driver), &options), "test run");
        // The last repetition is the last rank's: the switch multicasts, the others drop.
        uint32_t expected = target == BENCH_SWITCH ? XDP_REDIRECT : XDP_DROP;
        if (options.retval != expected)
            throw std::runtime_error(fmt::format("target {} returned {} instead of {}", target, options.retval, expected));
        return options.duration;
    }

    inagg_stats statistics() {
        std::vector<inagg_stats> rows(libbpf_num_possible_cpus());
        uint32_t key = job_index;
        require(bpf_map__lookup_elem(switch_->maps.stats, &key, sizeof(key), rows.data(), rows.size() * sizeof(inagg_stats), 0),
                "stats");
        inagg_stats total = {};
        for (const inagg_stats &row : rows) {
            total.packets += row.packets;
            total.additions += row.additions;
            total.completions += row.completions;
        }
        return total;
    }

    // All contributions were added, all blocks completed, and the last window's results are right.
    void verify(const Configuration &c, uint64_t contributions) {
        inagg_stats now = statistics();
        if (now.additions - before_.additions != contributions ||
            now.completions - before_.completions != contributions / c.ranks)
            throw std::runtime_error(fmt::format("{} contributions gave {} additions, {} completions", contributions,
                                                 now.additions - before_.additions, now.completions - before_.completions));
        if (c.algorithm.number == INAGG_TRIO)
            verify_records(c);
        else
            verify_slots(c);
    }

    void verify_records(const Configuration &c) {
        std::vector<std::byte> result = result_of(c, payload_);
        inagg_bucket_memory bucket;
        auto lanes = std::make_unique<inagg_record_memory>();
        uint32_t found = 0;
        for (uint32_t key = 0; key < INAGG_DEFAULT_BUCKETS * INAGG_WAYS; key++) {
            uint32_t row = key / INAGG_WAYS;
            require(bpf_map__lookup_elem(switch_->maps.buckets, &row, sizeof(row), &bucket, sizeof(bucket), 0), "buckets");
            const inagg_record &record = bucket.records[key % INAGG_WAYS];
            if (!(record.slot.flags & INAGG_SLOT_COMPLETE) || record.slot.generation != generation_)
                continue;
            require(bpf_map__lookup_elem(switch_->maps.record_lanes, &key, sizeof(key), lanes.get(), sizeof(*lanes), 0),
                    "record_lanes");
            if (std::memcmp(lanes->lanes, result.data(), result.size()))
                throw std::runtime_error(fmt::format("{} x {} elements, {} ranks: record {} holds a wrong sum", c.elements,
                                                     c.encoding.name, c.ranks, key));
            found++;
        }
        if (found < window)
            throw std::runtime_error(fmt::format("{} records are complete, expected {} at least", found, window));
    }

    void verify_slots(const Configuration &c) {
        std::vector<std::byte> result = result_of(c, payload_);
        auto slot = std::make_unique<inagg_slot_memory>();
        for (uint32_t key = 0; key < window * 2; key++) {
            require(bpf_map__lookup_elem(switch_->maps.slots, &key, sizeof(key), slot.get(), sizeof(*slot), 0), "slots");
            if (std::memcmp(slot->lanes, result.data(), result.size()))
                throw std::runtime_error(fmt::format("{} x {} elements, {} ranks: slot {} holds a wrong sum", c.elements,
                                                     c.encoding.name, c.ranks, key));
        }
    }

    static double median(std::vector<uint32_t> values) {
        std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
        return values[values.size() / 2];
    }

    static nlohmann::ordered_json summary(const Configuration &c, const std::vector<uint32_t> (&times)[BENCH_TARGETS]) {
        double driver = median(times[BENCH_NOTHING]), copy = median(times[BENCH_COPY]);
        double full = median(times[BENCH_SWITCH]);
        return {{"algorithm", c.algorithm.name},
                {"dtype", c.encoding.name},
                {"elements", c.elements},
                {"ranks", c.ranks},
                {"checked", c.checked},
                {"driver_ns", driver},
                {"copy_ns", copy},
                {"switch_ns", full},
                {"copy_ns_per_element", (copy - driver) / c.elements},
                {"switch_ns_per_element", (full - driver) / c.elements},
                {"ratio", (full - driver) / (copy - driver)},
                {"ratio_with_driver", full / copy}};
    }

    std::unique_ptr<switch_bpf, Destroy<switch_bpf, switch_bpf::destroy>> switch_;
    std::unique_ptr<bench_bpf, Destroy<bench_bpf, bench_bpf::destroy>> driver_;
    std::vector<std::byte> payload_;
    uint16_t generation_ = 0;
    inagg_stats before_ = {};
};

// Test runs and per-CPU maps stay on one core.
void pin_to_one_cpu() {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(sched_getcpu(), &set);
    if (sched_setaffinity(0, sizeof(set), &set))
        fail("sched_setaffinity");
}

// What to measure: all combinations of these.
struct Selection {
    std::vector<uint32_t> elements = {256, 352, 832}, ranks = {4, 8};
    std::vector<std::string> dtypes = {"int32", "fixed32", "float16", "bfloat16", "float32"}, names = {"switchml"};
    bool unchecked_only = false;

    std::vector<Configuration> configurations() const {
        std::vector<Configuration> all;
        for (uint32_t count : elements)
            for (uint32_t size : ranks)
                for (const Encoding &encoding : encodings)
                    for (bool checked : {false, true})
                        for (const Algorithm &algorithm : algorithms)
                            if (is_summed(algorithm, encoding) && std::count(dtypes.begin(), dtypes.end(), encoding.name) &&
                                std::count(names.begin(), names.end(), algorithm.name) && !(checked && unchecked_only))
                                all.push_back({algorithm, encoding, count, size, checked});
        return all;
    }
};

} // namespace

int main(int argc, char **argv) {
    int rounds = 31;
    uint32_t windows = 64;
    std::string program = "inagg_switch";
    CLI::App app{"Nanoseconds per element of the XDP switch beside a program that only copies; one JSON "
                 "object a line."};
    Selection selection;
    app.add_option("--elements", selection.elements, "Per packet, multiples of 32; default 256,352,832")
        ->delimiter(',')
        ->check(CLI::Range(32, INAGG_MAX_ELEMENTS));
    app.add_option("--ranks", selection.ranks, "In the job; default 4,8")->delimiter(',')->check(CLI::Range(2, INAGG_MAX_RANKS));
    app.add_option("--dtype", selection.dtypes, "Of int32, fixed32, float16, bfloat16, with panama int32, float32; default all")
        ->delimiter(',');
    app.add_option("--algorithm", selection.names, "Of switchml, trio, panama; default switchml")->delimiter(',');
    app.add_flag("--unchecked", selection.unchecked_only, "Leave out payload checksums");
    app.add_option("--rounds", rounds, "Rounds of each configuration; default 31")->check(CLI::PositiveNumber);
    app.add_option("--windows", windows, "Windows of 128 blocks in a round; default 64")->check(CLI::Range(1, 1024));
    app.add_option("--program", program, "Root program of the switch; default inagg_switch");
    CLI11_PARSE(app, argc, argv);
    try {
        pin_to_one_cpu();
        Bench bench(program);
        for (const Configuration &configuration : selection.configurations()) {
            fmt::print("{}\n", bench.measure(configuration, rounds, windows).dump());
            std::fflush(stdout);
        }
        return 0;
    } catch (const std::exception &error) {
        fmt::print(stderr, "bench-switch: {}\n", error.what());
        return 1;
    }
}
