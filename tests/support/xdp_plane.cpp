// SPDX-License-Identifier: BSD-2-Clause
#include "support/xdp_plane.hpp"

#include "switch_maps.h"
#include "switch_programs.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#include "switch.skel.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>

namespace support {
namespace {

void check(int result, const char *what) {
    if (result < 0)
        throw std::runtime_error(fmt::format("{}: {}", what, std::strerror(errno)));
}

// A devmap without devices: a test run reports the redirect and does not perform it.
void add_ports(int ports, uint32_t index) {
    const int inner = bpf_map_create(BPF_MAP_TYPE_DEVMAP, "ports_of_job", sizeof(uint32_t), sizeof(bpf_devmap_val),
                                     INAGG_PORT_ENTRIES, nullptr);
    check(inner, "creating a devmap");
    const int result = bpf_map_update_elem(ports, &index, &inner, BPF_ANY);
    close(inner);
    check(result, "adding a devmap to `ports`");
}

inagg_stats total(int map, uint32_t row) {
    std::vector<inagg_stats> each(static_cast<size_t>(libbpf_num_possible_cpus()));
    check(bpf_map_lookup_elem(map, &row, each.data()), "reading `stats`");
    inagg_stats sum{};
    constexpr size_t counters = sizeof sum / sizeof(uint64_t);
    auto *to = reinterpret_cast<uint64_t *>(&sum);
    for (const inagg_stats &one : each)
        for (size_t i = 0; i < counters; i++)
            to[i] += reinterpret_cast<const uint64_t *>(&one)[i];
    return sum;
}

// Replies and multicasts both leave as redirects. The group of a job without one is zero; the egress
// program, which a test run does not reach, puts the ranks' addresses there.
bool to_group(const Frame &frame) {
    return std::all_of(frame.begin(), frame.begin() + 6, [](uint8_t byte) { return byte == 0; });
}

bool to_parent(const Frame &frame) {
    const auto packet = parse(frame);
    return packet && packet->target == parent_address(packet->family);
}

int count_event(void *count, void *, size_t) {
    ++*static_cast<uint64_t *>(count);
    return 0;
}

} // namespace

XdpPlane::XdpPlane(uint32_t slot_count) : skeleton(switch_bpf__open()), slots(slot_count) {
    if (!skeleton)
        throw std::runtime_error(fmt::format("opening switch.bpf.o: {}", std::strerror(errno)));
    bpf_map__set_max_entries(skeleton->maps.slots, 2 * slots);
    bpf_map__set_max_entries(skeleton->maps.floors, slots);
    bpf_map__set_max_entries(skeleton->maps.buckets, switch_buckets);
    bpf_map__set_max_entries(skeleton->maps.record_lanes, switch_buckets * INAGG_WAYS);
    skeleton->rodata->bucket_count = switch_buckets;
    bpf_map__set_max_entries(skeleton->maps.aggregators, switch_aggregators);
    skeleton->rodata->aggregator_count = switch_aggregators;
    skeleton->rodata->aggregator_share = switch_share;
    skeleton->rodata->aggregator_ways = 1; // as in the other planes
    skeleton->rodata->ask_ns = 0;          // all that a test sends comes by one port
    bpf_map__set_max_entries(skeleton->maps.descriptors, switch_descriptors);
    skeleton->rodata->descriptor_count = switch_descriptors;
    skeleton->rodata->descriptor_share = switch_share;
    bpf_map__set_max_entries(skeleton->maps.float_buffers, switch_buffers);
    bpf_map__set_max_entries(skeleton->maps.free_buffers, switch_buffers);
    skeleton->rodata->buffer_count = switch_buffers;
    if (switch_bpf__load(skeleton) || inagg_link_programs(skeleton->obj)) {
        const int error = errno;
        switch_bpf__destroy(skeleton);
        throw std::runtime_error(fmt::format("loading switch.bpf.o: {}", std::strerror(error)));
    }
    inagg_switch_settings settings{};
    const Address address4 = switch_address(4), address6 = switch_address(6);
    std::memcpy(&settings.address4, address4.data(), 4);
    std::memcpy(settings.address6, address6.data(), 16);
    settings.boot = switch_boot;
    ring = ring_buffer__new(bpf_map__fd(skeleton->maps.events), count_event, &event_count, nullptr);
    if (!ring)
        throw std::runtime_error("opening `events`");
    const uint32_t zero = 0;
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.settings), &zero, &settings, BPF_ANY), "writing `settings`");
    // Frames of a test run seem to come from the loopback device, and so do those that become ticks: here they do not.
    const uint32_t call_tick = INAGG_CALL_TICK;
    check(bpf_map_delete_elem(bpf_map__fd(skeleton->maps.algorithms), &call_tick), "clearing `algorithms`");
    inagg_sweep_settings sweeps{};
    const Mac mac = tick_mac();
    std::copy(mac.begin(), mac.end(), sweeps.mac);
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.sweep_settings), &zero, &sweeps, BPF_ANY), "writing `sweep_settings`");
}

XdpPlane::~XdpPlane() {
    ring_buffer__free(ring);
    switch_bpf__destroy(skeleton);
}

void XdpPlane::reset() {
    const inagg_job none{};
    for (const auto &[number, row] : rows)
        check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.jobs), &number, &none, BPF_ANY), "clearing `jobs`");
    rows.clear();
    set_flags(0);
    const inagg_member nobody{};
    for (uint32_t key = 0; key < INAGG_MAX_JOBS * INAGG_MAX_RANKS; key++)
        check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.members), &key, &nobody, BPF_ANY), "clearing `members`");
    const std::vector<inagg_stats> zeros(static_cast<size_t>(libbpf_num_possible_cpus()));
    for (uint32_t row = 0; row <= INAGG_STATS_NO_JOB; row++)
        check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.stats), &row, zeros.data(), BPF_ANY), "clearing `stats`");
    clear_slots();
}

// What comes from the parent counts only while there is a job that has one.
void XdpPlane::add_uplink(const JobSpec &spec) {
    inagg_uplink up{};
    if (spec.has_parent()) {
        const Address parent = parent_address(spec.family), own = switch_address(spec.family);
        const Mac mac = parent_mac(), own_mac = switch_mac();
        up.ifindex = spec.parent_port;
        up.family = static_cast<uint8_t>(spec.family);
        std::copy(mac.begin(), mac.end(), up.mac);
        std::copy(own_mac.begin(), own_mac.end(), up.own_mac);
        std::copy(parent.begin(), parent.end(), up.address);
        std::copy(own.begin(), own.end(), up.own_address);
        set_flags(INAGG_SWITCH_HAS_PARENT);
    }
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.uplinks), &spec.index, &up, BPF_ANY), "writing `uplinks`");
    if (spec.algorithm == INAGG_CANARY)
        add_route(spec, up);
}

// The parent is the only switch above. Timers are for sweep() to play.
void XdpPlane::add_route(const JobSpec &spec, const inagg_uplink &up) {
    const uint32_t zero = 0;
    const auto has_parent = static_cast<uint8_t>(spec.has_parent());
    const inagg_route route{
        .up = has_parent, .policy = INAGG_UP_DEFAULT, .ups = has_parent, .reserved = 0, .timeout_us = 3'600'000'000};
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.routes), &spec.index, &route, BPF_ANY), "writing `routes`");
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.up_ports), &zero, &up, BPF_ANY), "writing `up_ports`");
}

// As if the timers of the job's descriptors had found them, which then wait for nothing more.
void XdpPlane::expire_descriptors(uint32_t number, uint32_t index) {
    inagg_alarm alarm;
    check(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.alarms), &index, &alarm), "reading `alarms`");
    alarm.first = alarm.end;
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.alarms), &index, &alarm, BPF_ANY), "writing `alarms`");
    for (uint32_t key = 0; key < switch_descriptors; key++) {
        inagg_descriptor_memory memory;
        check(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.descriptors), &key, &memory), "reading a descriptor");
        const inagg_descriptor &d = memory.state;
        if (!(d.slot.flags & INAGG_SLOT_LIVE) || (d.slot.flags & INAGG_SLOT_SENT) || d.job != index)
            continue;
        const inagg_expired due{.block = d.slot.block,
                                .generation = d.slot.generation,
                                .job = static_cast<uint16_t>(number),
                                .stream = d.stream,
                                .reserved = 0,
                                .attempt = d.attempt};
        check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.expired), nullptr, &due, BPF_ANY), "writing `expired`");
    }
}

void XdpPlane::set_flags(uint16_t flags) {
    const uint32_t zero = 0;
    inagg_switch_settings settings{};
    check(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.settings), &zero, &settings), "reading `settings`");
    settings.flags = flags;
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.settings), &zero, &settings, BPF_ANY), "writing `settings`");
}

void XdpPlane::change_job(const JobSpec &spec) {
    const inagg_job job = spec.job();
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.jobs), &spec.number, &job, BPF_ANY), "writing `jobs`");
}

void XdpPlane::add_job(const JobSpec &spec) {
    change_job(spec);
    for (uint32_t rank = 0; rank < spec.ranks; rank++) {
        const uint32_t key = spec.index * INAGG_MAX_RANKS + rank;
        const inagg_member member = spec.member(rank);
        check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.members), &key, &member, BPF_ANY), "writing `members`");
        const uint64_t subtree = spec.subtree(rank);
        check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.subtrees), &key, &subtree, BPF_ANY), "writing `subtrees`");
    }
    const inagg_share share{.cap = spec.cap, .children = spec.children(), .reserved = 0};
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.shares), &spec.index, &share, BPF_ANY), "writing `shares`");
    add_uplink(spec);
    add_ports(bpf_map__fd(skeleton->maps.ports), spec.index);
    rows[spec.number] = spec.index;
    if (spec.algorithm != INAGG_TRIO)
        return;
    const inagg_job_policy policy{
        .policy = spec.policy(), .job = static_cast<uint16_t>(spec.number), .generation = spec.generation};
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.policies), &spec.index, &policy, BPF_ANY), "writing `policies`");
    const uint32_t none = 0;
    check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.open_records), &spec.index, &none, BPF_ANY), "writing `open_records`");
    for (uint32_t position = 0; position < spec.slots + spec.control_slots; position++) {
        const uint32_t key = spec.first_slot + position;
        const inagg_floor_memory floor{.busy = 0, .floor = spec.floor(position)};
        check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.floors), &key, &floor, BPF_ANY), "writing a floor");
    }
}

void XdpPlane::clear_slots() {
    clear(INAGG_CLEAR_SLOTS, 2 * slots);
    const inagg_floor_memory lost{};
    for (uint32_t key = 0; key < slots; key++)
        check(bpf_map_update_elem(bpf_map__fd(skeleton->maps.floors), &key, &lost, BPF_ANY), "clearing a floor");
    clear(INAGG_CLEAR_AGGREGATORS, switch_aggregators);
    clear(INAGG_CLEAR_DESCRIPTORS, switch_descriptors);
    check_occupancy();
    clear_records();
}

void XdpPlane::lose_floats() {
    const int map = bpf_map__fd(skeleton->maps.slots);
    for (uint32_t key = 0; key < 2 * slots; key++) {
        inagg_slot_memory memory;
        check(bpf_map_lookup_elem(map, &key, &memory), "reading a slot");
        memory.lost = 1;
        check(bpf_map_update_elem(map, &key, &memory, BPF_ANY), "writing a slot");
    }
}

void XdpPlane::clear(uint32_t what, uint32_t count) {
    inagg_clear_args args{.first = 0, .count = count, .cleared = 0, .what = what, .job = INAGG_MAX_JOBS};
    LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &args, .ctx_size_in = sizeof args);
    check(bpf_prog_test_run_opts(bpf_program__fd(skeleton->progs.inagg_clear), &options), "inagg_clear");
    if (args.cleared != count)
        throw std::runtime_error("inagg_clear left entries out");
}

// All descriptors are free: so has each been counted that was taken or freed before.
void XdpPlane::check_occupancy() {
    const uint32_t zero = 0;
    inagg_occupancy occupancy{};
    check(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.occupancy), &zero, &occupancy), "reading `occupancy`");
    if (occupancy.held)
        throw std::runtime_error("descriptors that are free count as held: " +
                                 std::to_string(static_cast<int32_t>(occupancy.held)));
}

void XdpPlane::clear_records() {
    clear(INAGG_CLEAR_BUCKETS, switch_buckets);
    inagg_expired ignored;
    while (bpf_map_lookup_and_delete_elem(bpf_map__fd(skeleton->maps.expired), nullptr, &ignored) == 0)
        ;
}

void XdpPlane::sweep() {
    for (const auto &[number, row] : rows)
        expire_descriptors(number, row);
    if (run(skeleton->progs.inagg_sweep_once, Frame(64, 1), {}).action != Action::absorb)
        throw std::runtime_error("inagg_sweep_once failed");
}

// On a frame of the largest size, full of something else.
Answer XdpPlane::tick() {
    std::set<uint32_t> all;
    for (const auto &[number, row] : rows)
        all.insert(row);
    return run(skeleton->progs.inagg_tick, Frame(header_offset(6) + sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD, 0xa5), all);
}

inagg_stats XdpPlane::stats(uint32_t index) { return total(bpf_map__fd(skeleton->maps.stats), index); }
inagg_stats XdpPlane::unowned() { return stats(INAGG_STATS_NO_JOB); }

std::string XdpPlane::pool(const JobSpec &spec) {
    std::string bytes;
    for (uint32_t key = 0; spec.algorithm == INAGG_TRIO && key < switch_buckets * INAGG_WAYS; key++) {
        const uint32_t bucket = key / INAGG_WAYS;
        inagg_bucket_memory memory;
        check(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.buckets), &bucket, &memory), "reading a bucket");
        inagg_record &record = memory.records[key % INAGG_WAYS];
        if (!inagg_record_is_open(&record) || record.job != spec.index)
            continue;
        inagg_record_memory lanes;
        check(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.record_lanes), &key, &lanes), "reading a record");
        record.age = 0;
        bytes.append(reinterpret_cast<const char *>(&record), sizeof record);
        bytes.append(reinterpret_cast<const char *>(&lanes), sizeof lanes);
    }
    if (spec.algorithm == INAGG_TRIO)
        return bytes;
    for (uint32_t key = 0; spec.algorithm == INAGG_ATP && key < switch_aggregators; key++) {
        inagg_aggregator_memory memory;
        check(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.aggregators), &key, &memory), "reading an aggregator");
        if (!(memory.state.slot.flags & INAGG_SLOT_LIVE) || memory.state.job != spec.index)
            continue;
        memory.state.touched = 0;
        bytes.append(reinterpret_cast<const char *>(&memory.state), sizeof memory.state);
        bytes.append(reinterpret_cast<const char *>(&memory.lanes), memory.state.slot.elements * 4UL);
    }
    for (uint32_t key = 0; spec.algorithm == INAGG_CANARY && key < switch_descriptors; key++) {
        inagg_descriptor_memory memory;
        check(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.descriptors), &key, &memory), "reading a descriptor");
        if (!(memory.state.slot.flags & INAGG_SLOT_LIVE) || memory.state.job != spec.index)
            continue;
        memory.state.opened_ns = 0;
        memory.state.spread_ns = 0;
        bytes.append(reinterpret_cast<const char *>(&memory.state), sizeof memory.state);
        if (!(memory.state.slot.flags & INAGG_SLOT_SENT))
            bytes.append(reinterpret_cast<const char *>(&memory.lanes), memory.state.slot.elements * 4UL);
    }
    if (spec.algorithm == INAGG_ATP || spec.algorithm == INAGG_CANARY)
        return bytes;
    inagg_slot_memory memory;
    for (uint32_t i = 0; i < 2 * (spec.slots + spec.control_slots); i++) {
        const uint32_t key = 2 * spec.first_slot + i;
        check(bpf_map_lookup_elem(bpf_map__fd(skeleton->maps.slots), &key, &memory), "reading a slot");
        bytes.append(reinterpret_cast<const char *>(&memory), sizeof memory);
    }
    return bytes;
}

// The row that a frame's drop is counted in, if its job is known: where the header says.
std::set<uint32_t> XdpPlane::job_row(const Frame &frame) const {
    const size_t at = header_offset(frame.size() > 12 && frame[12] == 0x86 ? 6 : 4) + offsetof(inagg_hdr, job);
    if (frame.size() < at + 2)
        return {};
    const auto found = rows.find(frame[at] << 8 | frame[at + 1]);
    return found == rows.end() ? std::set<uint32_t>{} : std::set<uint32_t>{found->second};
}

Answer XdpPlane::receive(const Frame &frame) { return run(skeleton->progs.inagg_switch, frame, job_row(frame)); }

Answer XdpPlane::run(const bpf_program *program, const Frame &frame, const std::set<uint32_t> &rows_of_jobs) {
    std::set<uint32_t> counted = rows_of_jobs;
    counted.insert(INAGG_STATS_NO_JOB);
    const auto drops_by_reason = [&] {
        std::array<uint64_t, INAGG_R_CAPACITY> drops{};
        for (uint32_t row : counted) {
            const inagg_stats one = stats(row);
            for (uint32_t reason = 0; reason < INAGG_R_CAPACITY; reason++)
                drops[reason] += one.drops[reason];
        }
        return drops;
    };
    const auto before = drops_by_reason();
    Answer answer;
    answer.frame.resize(std::max<size_t>(4096, frame.size() + 256)); // with what is told to tc
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = frame.data(), .data_out = answer.frame.data(),
                .data_size_in = static_cast<uint32_t>(frame.size()), .data_size_out = static_cast<uint32_t>(answer.frame.size()),
                .repeat = 1);
    check(bpf_prog_test_run_opts(bpf_program__fd(program), &run), "BPF_PROG_TEST_RUN");
    answer.frame.resize(run.data_size_out);
    ring_buffer__consume(ring);
    const auto after = drops_by_reason();
    uint64_t drops = 0;
    for (uint32_t reason = 0; reason < INAGG_R_CAPACITY; reason++) {
        drops += after[reason] - before[reason];
        if (after[reason] != before[reason])
            answer.reason = reason;
    }
    switch (run.retval) {
    case XDP_PASS:
        answer.action = Action::pass;
        break;
    case XDP_DROP:
        answer.action = drops ? Action::drop : Action::absorb;
        break;
    case XDP_REDIRECT:
        answer.action = to_group(answer.frame) ? Action::multicast : to_parent(answer.frame) ? Action::up : Action::reply;
        break;
    default:
        answer.action = Action::fail;
        break;
    }
    // Who is refused for want of room is told so.
    const bool told = answer.action == Action::reply && answer.reason == INAGG_R_FULL;
    const bool may_bring_several = frame.size() > header_offset(4) + sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD;
    if (!may_bring_several && (drops > 1 || (drops && answer.action != Action::drop && !told)))
        answer.action = Action::fail;
    if (answer.action != Action::reply && answer.action != Action::multicast && answer.action != Action::up)
        answer.frame.clear();
    return answer;
}

} // namespace support
