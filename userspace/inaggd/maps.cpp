// SPDX-License-Identifier: BSD-2-Clause
#include "maps.hpp"

#include "error.hpp"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <sys/random.h>

#include <algorithm>
#include <filesystem>

namespace inaggd {
namespace {

namespace fs = std::filesystem;

constexpr const char *port_prefix = "link_", *meter_prefix = "meter_", *spread_prefix = "spread_";

// Map operations fail only when kernel and program disagree about the map; say which.
void check(int result, const char *what) {
    if (result < 0)
        throw Error("map {}: {}", what, system_text(errno));
}

bpf_map_info info_of(const Fd &map, const char *what) {
    bpf_map_info info{};
    uint32_t length = sizeof info;
    check(bpf_obj_get_info_by_fd(map.get(), &info, &length), what);
    return info;
}

// Of a map whose values must be those that this program knows.
uint32_t entries_of(const Fd &map, const std::string &dir, const char *name, size_t value_bytes) {
    const bpf_map_info info = info_of(map, name);
    if (info.value_size != value_bytes)
        throw Error("{}/{} is of another version of inagg (values of {} bytes, this program knows {}): use "
                    "the tools of that version, or start inaggd with --fresh",
                    dir, name, info.value_size, value_bytes);
    return info.max_entries;
}

// A row of counters, each a 64-bit word, of which each CPU has its own.
template <typename Row> Row sum_of_cpus(const Fd &map, uint32_t index, const char *name) {
    std::vector<Row> cpus(libbpf_num_possible_cpus());
    check(bpf_map_lookup_elem(map.get(), &index, cpus.data()), name);
    constexpr size_t words = sizeof(Row) / sizeof(uint64_t);
    std::array<uint64_t, words> sum{};
    for (const Row &cpu : cpus) {
        std::array<uint64_t, words> counters;
        std::memcpy(counters.data(), &cpu, sizeof cpu);
        std::transform(sum.begin(), sum.end(), counters.begin(), sum.begin(), std::plus<>());
    }
    Row total;
    std::memcpy(&total, sum.data(), sizeof total);
    return total;
}

void run(const Fd &program, void *context, uint32_t bytes, const char *name) {
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = context, .ctx_size_in = bytes);
    if (bpf_prog_test_run_opts(program.get(), &options))
        throw Error("program {}: {}", name, system_text(errno));
}

void fill_random(void *to, size_t bytes) {
    if (getrandom(to, bytes, 0) != static_cast<ssize_t>(bytes))
        throw Error("getrandom: {}", system_text(errno));
}

// Of a map that only an agent writes, which an older switch may lack: there is nothing to take over, and the agent makes it.
Fd open_newer_pin(const std::string &dir, const char *name) {
    return fs::exists(fs::path(dir) / name) ? open_pin(dir, name) : Fd();
}

void put_for_all_jobs(const Fd &quotas, const char *name, const inagg_queue &quota) {
    for (uint32_t index = 0; index < INAGG_MAX_JOBS; index++)
        check(bpf_map_update_elem(quotas.get(), &index, &quota, BPF_ANY), name);
}

} // namespace

Fd open_pin(const std::string &dir, const char *name) {
    const std::string path = fs::path(dir) / name;
    Fd fd(bpf_obj_get(path.c_str()));
    if (!fd)
        throw Error("{}: {}; is a switch running here? (inaggd --port IF, or --bpffs DIR)", path, system_text(errno));
    return fd;
}

SwitchMaps SwitchMaps::open(const std::string &dir) {
    SwitchMaps maps;
    maps.settings_ = open_pin(dir, "settings");
    maps.jobs_ = open_pin(dir, "jobs");
    maps.members_ = open_pin(dir, "members");
    maps.slots_ = open_pin(dir, "slots");
    maps.ports_ = open_pin(dir, "ports");
    maps.port_ranks_ = open_pin(dir, "port_ranks");
    maps.stats_ = open_pin(dir, "stats");
    maps.events_ = open_pin(dir, "events");
    maps.clear_ = open_pin(dir, "inagg_clear");
    maps.policies_ = open_pin(dir, "policies");
    maps.attendance_ = open_pin(dir, "attendance");
    maps.stragglers_ = open_pin(dir, "stragglers");
    maps.sweepers_ = open_pin(dir, "sweepers");
    maps.sweep_settings_ = open_pin(dir, "sweep_settings");
    maps.sweep_process_ = open_pin(dir, "sweep_process");
    maps.hand_sweeper_ = open_pin(dir, "hand_sweeper");
    maps.forget_ = open_pin(dir, "inagg_forget_job");
    maps.uplinks_ = open_pin(dir, "uplinks");
    maps.subtrees_ = open_pin(dir, "subtrees");
    maps.queues_ = open_pin(dir, "queues");
    maps.arrivals_ = open_newer_pin(dir, "arrivals");
    maps.quotas_ = open_newer_pin(dir, "quotas");
    maps.uplink_quotas_ = open_newer_pin(dir, "uplink_quotas");
    maps.shares_ = open_pin(dir, "shares");
    maps.up_ports_ = open_pin(dir, "up_ports");
    maps.routes_ = open_pin(dir, "routes");
    maps.patience_ = open_pin(dir, "patience");
    maps.ways_ = open_newer_pin(dir, "ways");
    maps.keys_ = open_pin(dir, "keys");
    maps.occupancy_ = open_pin(dir, "occupancy");

    maps.slot_count_ = entries_of(maps.slots_, dir, "slots", sizeof(inagg_slot_memory)) / 2;
    maps.bucket_count_ = entries_of(open_pin(dir, "buckets"), dir, "buckets", sizeof(inagg_bucket_memory));
    maps.descriptor_count_ = info_of(open_pin(dir, "descriptors"), "descriptors").max_entries;
    maps.aggregator_count_ = info_of(open_pin(dir, "aggregators"), "aggregators").max_entries;
    maps.buffer_count_ = info_of(open_pin(dir, "float_buffers"), "float_buffers").max_entries;
    maps.floor_count_ = info_of(open_pin(dir, "floors"), "floors").max_entries;
    return maps;
}

inagg_switch_settings SwitchMaps::settings() const {
    inagg_switch_settings settings{};
    uint32_t zero = 0;
    check(bpf_map_lookup_elem(settings_.get(), &zero, &settings), "settings");
    return settings;
}

void SwitchMaps::set_settings(const inagg_switch_settings &settings) const {
    uint32_t zero = 0;
    check(bpf_map_update_elem(settings_.get(), &zero, &settings, BPF_ANY), "settings");
}

std::map<uint16_t, inagg_job> SwitchMaps::jobs() const {
    std::vector<inagg_job> rows(INAGG_JOB_NUMBERS);
    std::vector<uint32_t> numbers(INAGG_JOB_NUMBERS);
    uint32_t count = INAGG_JOB_NUMBERS, position = 0;
    int result = bpf_map_lookup_batch(jobs_.get(), nullptr, &position, numbers.data(), rows.data(), &count, nullptr);
    if (result != -ENOENT) // the end
        check(result, "jobs");
    std::map<uint16_t, inagg_job> jobs;
    for (uint32_t i = 0; i < count; i++)
        if (rows[i].size)
            jobs[static_cast<uint16_t>(numbers[i])] = rows[i];
    return jobs;
}

// A row is copied while packets read it, so the size, which makes it valid, comes last and goes first.
void SwitchMaps::put_job(uint16_t number, const inagg_job &job) const {
    delete_job(number);
    uint32_t key = number;
    inagg_job row = job;
    row.size = 0;
    check(bpf_map_update_elem(jobs_.get(), &key, &row, BPF_ANY), "jobs");
    check(bpf_map_update_elem(jobs_.get(), &key, &job, BPF_ANY), "jobs");
}

void SwitchMaps::update_job(uint16_t number, const inagg_job &job) const {
    uint32_t key = number;
    check(bpf_map_update_elem(jobs_.get(), &key, &job, BPF_ANY), "jobs");
}

void SwitchMaps::delete_job(uint16_t number) const {
    uint32_t key = number;
    inagg_job row{};
    check(bpf_map_lookup_elem(jobs_.get(), &key, &row), "jobs");
    row.size = 0;
    check(bpf_map_update_elem(jobs_.get(), &key, &row, BPF_ANY), "jobs");
}

Members SwitchMaps::members(uint32_t index) const {
    Members members{};
    for (uint32_t rank = 0; rank < INAGG_MAX_RANKS; rank++) {
        uint32_t row = index * INAGG_MAX_RANKS + rank;
        check(bpf_map_lookup_elem(members_.get(), &row, &members[rank]), "members");
    }
    return members;
}

void SwitchMaps::put_member(uint32_t index, uint32_t rank, const inagg_member &member) const {
    uint32_t row = index * INAGG_MAX_RANKS + rank;
    check(bpf_map_update_elem(members_.get(), &row, &member, BPF_ANY), "members");
}

void SwitchMaps::put_key(uint32_t index, const inagg_mac_key &key) const {
    check(bpf_map_update_elem(keys_.get(), &index, &key, BPF_ANY), "keys");
}

inagg_mac_key SwitchMaps::key(uint32_t index) const {
    inagg_mac_key key{};
    check(bpf_map_lookup_elem(keys_.get(), &index, &key), "keys");
    return key;
}

void SwitchMaps::put_uplink(uint32_t index, const inagg_uplink &uplink) const {
    check(bpf_map_update_elem(uplinks_.get(), &index, &uplink, BPF_ANY), "uplinks");
}

inagg_uplink SwitchMaps::uplink(uint32_t index) const {
    inagg_uplink uplink{};
    check(bpf_map_lookup_elem(uplinks_.get(), &index, &uplink), "uplinks");
    return uplink;
}

void SwitchMaps::put_subtree(uint32_t index, uint32_t rank, uint64_t ranks) const {
    uint32_t row = index * INAGG_MAX_RANKS + rank;
    check(bpf_map_update_elem(subtrees_.get(), &row, &ranks, BPF_ANY), "subtrees");
}

void SwitchMaps::put_up_port(uint32_t up, const inagg_uplink &uplink) const {
    check(bpf_map_update_elem(up_ports_.get(), &up, &uplink, BPF_ANY), "up_ports");
}

UpPorts SwitchMaps::up_ports() const {
    UpPorts ports{};
    for (uint32_t up = 0; up < INAGG_MAX_UPS; up++)
        check(bpf_map_lookup_elem(up_ports_.get(), &up, &ports[up]), "up_ports");
    return ports;
}

void SwitchMaps::put_route(uint32_t index, const inagg_route &route) const {
    check(bpf_map_update_elem(routes_.get(), &index, &route, BPF_ANY), "routes");
}

inagg_route SwitchMaps::route(uint32_t index) const {
    inagg_route route{};
    check(bpf_map_lookup_elem(routes_.get(), &index, &route), "routes");
    return route;
}

inagg_patience SwitchMaps::patience(uint32_t index) const {
    inagg_patience learnt{};
    check(bpf_map_lookup_elem(patience_.get(), &index, &learnt), "patience");
    return learnt;
}

inagg_ways SwitchMaps::ways(uint32_t index) const {
    inagg_ways learnt{};
    if (ways_)
        check(bpf_map_lookup_elem(ways_.get(), &index, &learnt), "ways");
    return learnt;
}

void SwitchMaps::put_ports(uint32_t index, int devmap) const {
    check(bpf_map_update_elem(ports_.get(), &index, &devmap, BPF_ANY), "ports");
}

void SwitchMaps::delete_ports(uint32_t index) const {
    bpf_map_delete_elem(ports_.get(), &index); // absent is as good
}

void SwitchMaps::put_port_ranks(const inagg_port_key &key, const inagg_port_ranks &ranks) const {
    check(bpf_map_update_elem(port_ranks_.get(), &key, &ranks, BPF_ANY), "port_ranks");
}

std::vector<inagg_port_key> SwitchMaps::port_keys(uint32_t index) const {
    std::vector<inagg_port_key> keys;
    inagg_port_key key{}, next{};
    for (inagg_port_key *from = nullptr; bpf_map_get_next_key(port_ranks_.get(), from, &next) == 0; from = &key) {
        key = next;
        if (key.job == index)
            keys.push_back(key);
    }
    return keys;
}

void SwitchMaps::delete_port_ranks(const inagg_port_key &key) const {
    bpf_map_delete_elem(port_ranks_.get(), &key); // absent is as good
}

inagg_stats SwitchMaps::stats(uint32_t index) const { return sum_of_cpus<inagg_stats>(stats_, index, "stats"); }

inagg_attendance SwitchMaps::attendance(uint32_t index) const {
    return sum_of_cpus<inagg_attendance>(attendance_, index, "attendance");
}

void SwitchMaps::put_stragglers(uint32_t index, const inagg_stragglers &stragglers) const {
    check(bpf_map_update_elem(stragglers_.get(), &index, &stragglers, BPF_ANY), "stragglers");
}

inagg_stragglers SwitchMaps::stragglers(uint32_t index) const {
    inagg_stragglers stragglers{};
    check(bpf_map_lookup_elem(stragglers_.get(), &index, &stragglers), "stragglers");
    return stragglers;
}

void SwitchMaps::clear_stats(uint32_t index) const {
    std::vector<inagg_stats> zero(libbpf_num_possible_cpus());
    check(bpf_map_update_elem(stats_.get(), &index, zero.data(), BPF_ANY), "stats");
    if (index == INAGG_STATS_NO_JOB)
        return;
    std::vector<inagg_attendance> nobody(libbpf_num_possible_cpus());
    check(bpf_map_update_elem(attendance_.get(), &index, nobody.data(), BPF_ANY), "attendance");
    put_stragglers(index, {});
}

void SwitchMaps::put_queue(uint32_t ifindex, const inagg_queue &queue, bool is_up) const {
    check(bpf_map_update_elem(queues_.get(), &ifindex, &queue, BPF_ANY), "queues");
    if (!is_up)
        return;
    const inagg_queue arrivals = inagg_queue_of_arrivals(&queue);
    check(bpf_map_update_elem(arrivals_.get(), &ifindex, &arrivals, BPF_ANY), "arrivals");
}

void SwitchMaps::forget_arrivals() const {
    uint32_t ifindex;
    while (!bpf_map_get_next_key(arrivals_.get(), nullptr, &ifindex))
        check(bpf_map_delete_elem(arrivals_.get(), &ifindex), "arrivals");
}

void SwitchMaps::put_quotas(const inagg_queue &quota) const { put_for_all_jobs(quotas_, "quotas", quota); }

void SwitchMaps::put_uplink_quotas(const inagg_queue &quota) const { put_for_all_jobs(uplink_quotas_, "uplink_quotas", quota); }

void SwitchMaps::delete_queue(uint32_t ifindex) const {
    const auto forget = [&](const Fd &map, const char *name) {
        if (const int result = bpf_map_delete_elem(map.get(), &ifindex); result != -ENOENT)
            check(result, name);
    };
    forget(queues_, "queues");
    forget(arrivals_, "arrivals");
}

std::optional<inagg_queue> SwitchMaps::queue(uint32_t ifindex) const {
    inagg_queue queue{};
    const int result = bpf_map_lookup_elem(queues_.get(), &ifindex, &queue);
    if (result == -ENOENT)
        return std::nullopt;
    check(result, "queues");
    return queue;
}

void SwitchMaps::put_share(uint32_t index, const inagg_share &share) const {
    check(bpf_map_update_elem(shares_.get(), &index, &share, BPF_ANY), "shares");
}

void SwitchMaps::put_policy(uint32_t index, const inagg_job_policy &policy) const {
    check(bpf_map_update_elem(policies_.get(), &index, &policy, BPF_ANY), "policies");
}

inagg_job_policy SwitchMaps::policy(uint32_t index) const {
    inagg_job_policy policy{};
    check(bpf_map_lookup_elem(policies_.get(), &index, &policy), "policies");
    return policy;
}

inagg_sweep_settings SwitchMaps::sweep_settings() const {
    inagg_sweep_settings settings{};
    uint32_t zero = 0;
    check(bpf_map_lookup_elem(sweep_settings_.get(), &zero, &settings), "sweep_settings");
    return settings;
}

inagg_sweep_process SwitchMaps::sweep_process() const {
    inagg_sweep_process process{};
    const uint32_t zero = 0;
    check(bpf_map_lookup_elem(sweep_process_.get(), &zero, &process), "sweep_process");
    return process;
}

inagg_sweeper SwitchMaps::sweeps(uint32_t timers) const {
    inagg_sweeper total{}, one;
    const auto add = [&](const Fd &map, uint32_t index, const char *what) {
        check(bpf_map_lookup_elem(map.get(), &index, &one), what);
        total.records += one.records;
        total.expired += one.expired;
        total.busy += one.busy;
    };
    add(hand_sweeper_, 0, "hand_sweeper");
    for (uint32_t index = 0; index < INAGG_MAX_SWEEPERS; index++) {
        add(sweepers_, index, "sweepers");
        if (index >= timers)
            continue;
        total.runs += one.runs;
        total.ns += one.ns;
        total.longest_ns = std::max(total.longest_ns, one.longest_ns);
    }
    return total;
}

// An entry is busy for a microsecond: whoever still is after so many attempts hangs.
constexpr int attempts = 100;

void SwitchMaps::forget_job(const inagg_job &job) const {
    for (int attempt = 0; attempt < attempts; attempt++) {
        inagg_forget_args args{.job = job, .busy = 0, .reserved = 0};
        run(forget_, &args, sizeof args, "inagg_forget_job");
        if (!args.busy)
            return;
    }
    throw Error("records stay busy; a processor hangs in one, restart inaggd with --fresh");
}

void SwitchMaps::clear(const inagg_clear_args &args, const char *what) const {
    for (int attempt = 0; attempt < attempts; attempt++) {
        inagg_clear_args work = args;
        run(clear_, &work, sizeof work, "inagg_clear");
        if (work.cleared == args.count)
            return;
    }
    throw Error("{} {} to {} stay busy; a processor hangs in one, restart inaggd with --fresh", what, args.first,
                args.first + args.count - 1);
}

void SwitchMaps::zero_slots(uint32_t first, uint32_t count) const {
    clear({.first = first * 2, .count = count * 2, .cleared = 0, .what = INAGG_CLEAR_SLOTS, .job = 0}, "copies of slots");
}

void SwitchMaps::zero_records(uint32_t index) const {
    clear({.first = 0, .count = bucket_count_, .cleared = 0, .what = INAGG_CLEAR_BUCKETS, .job = index}, "buckets");
}

void SwitchMaps::zero_floors(uint32_t first, uint32_t count) const {
    clear({.first = first, .count = count, .cleared = 0, .what = INAGG_CLEAR_FLOORS, .job = 0}, "floors");
}

void SwitchMaps::zero_aggregators(uint32_t index) const {
    clear({.first = 0, .count = aggregator_count_, .cleared = 0, .what = INAGG_CLEAR_AGGREGATORS, .job = index}, "aggregators");
}

void SwitchMaps::zero_descriptors(uint32_t index) const {
    clear({.first = 0, .count = descriptor_count_, .cleared = 0, .what = INAGG_CLEAR_DESCRIPTORS, .job = index}, "descriptors");
}

void SwitchMaps::free_stale_descriptors() const {
    clear({.first = 0, .count = descriptor_count_, .cleared = 0, .what = INAGG_CLEAR_STALE, .job = 0}, "descriptors");
}

void SwitchMaps::zero_blocks(const inagg_job &record) const {
    if (has_descriptors(record))
        zero_descriptors(record.index);
    else if (shares_slots(record))
        zero_aggregators(record.index);
    else
        zero_slots(record.first_slot, pool_slots(record));
}

inagg_occupancy SwitchMaps::occupancy() const {
    inagg_occupancy occupancy{};
    uint32_t zero = 0;
    check(bpf_map_lookup_elem(occupancy_.get(), &zero, &occupancy), "occupancy");
    return occupancy;
}

uint16_t random_boot(uint16_t previous) {
    uint16_t boot = 0;
    while (boot == 0 || boot == previous)
        fill_random(&boot, sizeof boot);
    return boot;
}

void clear_slots(const SwitchMaps &maps, const uint16_t *number, bool keep_boot) {
    if (!number) {
        maps.zero_slots(0, maps.slot_count());
        maps.zero_floors(0, maps.floor_count());
        maps.zero_records(INAGG_MAX_JOBS);
        maps.zero_aggregators(INAGG_MAX_JOBS);
        maps.zero_descriptors(INAGG_MAX_JOBS);
    } else {
        auto jobs = maps.jobs();
        auto job = jobs.find(*number);
        if (job == jobs.end())
            throw Error("job {}: no such job on this switch (inaggctl job list)", *number);
        const inagg_job &record = job->second;
        if (has_records(record)) {
            maps.zero_floors(record.first_slot, pool_slots(record));
            maps.zero_records(record.index);
        } else {
            maps.zero_blocks(record);
        }
    }
    if (keep_boot)
        return;
    // After the slots: whoever sees the new boot id must find them empty.
    inagg_switch_settings settings = maps.settings();
    settings.boot = random_boot(settings.boot);
    maps.set_settings(settings);
}

// Interface names may hold dots, which bpffs does not allow, and never colons.
static std::string pin_of(const char *prefix, const std::string &dir, const std::string &name) {
    std::string file = prefix + name;
    std::replace(file.begin(), file.end(), '.', ':');
    return fs::path(dir) / file;
}

std::string port_pin(const std::string &dir, const std::string &name) { return pin_of(port_prefix, dir, name); }

std::string meter_pin(const std::string &dir, const std::string &name) { return pin_of(meter_prefix, dir, name); }

std::string spread_pin(const std::string &dir, const std::string &name) { return pin_of(spread_prefix, dir, name); }

std::vector<AttachedPort> attached_ports(const std::string &dir) {
    std::vector<AttachedPort> ports;
    std::error_code ignored;
    for (const auto &entry : fs::directory_iterator(dir, ignored)) {
        std::string name = entry.path().filename();
        if (!name.starts_with(port_prefix))
            continue;
        Fd link(bpf_obj_get(entry.path().c_str()));
        bpf_link_info info{};
        uint32_t length = sizeof info;
        if (!link || bpf_obj_get_info_by_fd(link.get(), &info, &length) || info.type != BPF_LINK_TYPE_XDP)
            continue;
        name.erase(0, std::strlen(port_prefix));
        std::replace(name.begin(), name.end(), ':', '.');
        ports.push_back({.name = name, .pin = entry.path(), .ifindex = info.xdp.ifindex});
    }
    std::sort(ports.begin(), ports.end(), [](const AttachedPort &a, const AttachedPort &b) { return a.name < b.name; });
    return ports;
}

bool serves(const std::string &dir, uint32_t ifindex) {
    const std::vector<AttachedPort> ports = attached_ports(dir);
    return std::ranges::any_of(ports, [&](const AttachedPort &port) { return port.ifindex == ifindex; });
}

} // namespace inaggd
