// SPDX-License-Identifier: BSD-2-Clause
#include "link.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <stdexcept>
#include <system_error>

#include <net/if.h>

#include "impair.h"
#include "impair.skel.h"

namespace netns {
namespace {

unsigned index_of(const std::string &device) {
    const unsigned index = if_nametoindex(device.c_str());
    if (index == 0) {
        fail("no device " + device);
    }
    return index;
}

// That a limited link queues: 10 ms' worth, at least a window of 128 of the largest frames twice: only impairments that were
// asked for lose frames.
uint64_t queue_bytes(uint64_t rate) { return std::max<uint64_t>(rate / 800, 1024 * 1024); }

uint64_t threshold(double probability) { return std::llround(probability * static_cast<double>(IMPAIR_ALWAYS)); }

void attach(impair_bpf *program, unsigned interface) {
    LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = static_cast<int>(interface), .attach_point = BPF_TC_INGRESS);
    LIBBPF_OPTS(bpf_tc_opts, options, .prog_fd = bpf_program__fd(program->progs.inagg_impair));
    int error = bpf_tc_hook_create(&hook);
    if (error == 0 || error == -EEXIST) {
        error = bpf_tc_attach(&hook, &options);
    }
    if (error != 0) {
        throw std::system_error(-error, std::generic_category(), "cannot attach the program that impairs links");
    }
}

} // namespace

std::chrono::nanoseconds longest_queue(uint64_t rate) {
    return std::chrono::nanoseconds(queue_bytes(rate) * 8'000'000'000 / rate);
}

Counters &Counters::operator+=(const Counters &other) {
    frames += other.frames;
    dropped += other.dropped;
    duplicated += other.duplicated;
    corrupted += other.corrupted;
    reordered += other.reordered;
    overflowed += other.overflowed;
    return *this;
}

LinkSpace::LinkSpace(const Impairments &impairments)
    : impairments_(impairments), seeds_(impairments.seed), space_(Namespace::create()),
      program_(impair_bpf__open_and_load(), impair_bpf__destroy), relay_(impairments) {
    if (!program_) {
        fail("cannot load the program that impairs links");
    }
}

LinkSpace::~LinkSpace() = default;

LinkEnds LinkSpace::ends(size_t link) { return {fmt::format("near{}", link), fmt::format("far{}", link)}; }

void LinkSpace::join(const std::string &name, LinkQuality quality) {
    const Inside inside(space_);
    const LinkEnds here = next_ends();
    connect(here.far, here.near, quality, to_switch_);
    connect(here.near, here.far, quality, to_hosts_);
    names_.push_back(name);
}

size_t LinkSpace::find(const std::string &name) const {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) {
        throw std::invalid_argument(fmt::format("there is no link {}: there are {}", name, fmt::join(names_, ", ")));
    }
    return found - names_.begin();
}

void LinkSpace::set_carrier(size_t link, bool carrier) {
    const LinkEnds devices = ends(link);
    const char *state = carrier ? "up" : "down";
    ip_batch(space_, fmt::format("link set {} {}\nlink set {} {}\n", devices.near, state, devices.far, state));
}

void LinkSpace::connect(const std::string &from, const std::string &to, LinkQuality quality, std::vector<Direction> &directions) {
    Direction direction{.from = index_of(from)};
    impair_link link = {};
    link.target = index_of(to);
    if (impairments_.needs_relay()) {
        direction.relay = relay_.directions();
        link.target = through_relay(link.target);
    }
    link.corrupt_offset = impairments_.corrupt_offset;
    link.corrupt_bits = impairments_.corrupt_bits;
    if (quality.lossy) {
        link.drop = threshold(impairments_.loss);
        link.duplicate = threshold(impairments_.duplicate);
        link.corrupt = threshold(impairments_.corrupt);
    }
    link.random = seeds_();
    if (impairments_.marks(quality.rate)) {
        link.queue.unit_ns = inagg_queue_unit(quality.rate);
        link.queue.mark_ns = static_cast<uint32_t>(impairments_.ecn.count());
        link.queue.longest_ns = static_cast<uint64_t>(longest_queue(quality.rate).count());
    }
    if (bpf_map__update_elem(program_->maps.links, &direction.from, sizeof direction.from, &link, sizeof link, BPF_ANY) != 0) {
        fail("cannot describe a link to the program that impairs it");
    }
    attach(program_.get(), direction.from);
    if (quality.rate > 0) {
        limit_rate(to, quality.rate);
    }
    directions.push_back(direction);
}

// A veth pair to the relay, which reads one end and sends to `to`; returns the other end.
unsigned LinkSpace::through_relay(unsigned to) {
    const std::string in = fmt::format("relay{}", relay_.directions()), out = "r" + in;
    ip_batch(space_, fmt::format("link add {0} mtu 65535 type veth peer name {1} mtu 65535\n"
                                 "link set {0} addrgenmode none up\nlink set {1} addrgenmode none up\n",
                                 out, in));
    relay_.add(index_of(in), to);
    return index_of(out);
}

// A token bucket that never lets more than 1 ms worth of frames out at once.
void LinkSpace::limit_rate(const std::string &device, uint64_t rate) {
    const uint64_t bytes_per_second = rate / 8;
    const uint64_t burst = std::max<uint64_t>(bytes_per_second / 1000, 16 * 1024);
    run_checked(space_, {"tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", fmt::format("{}bit", rate), "burst",
                         std::to_string(burst), "limit", std::to_string(queue_bytes(rate))});
}

pid_t LinkSpace::start_relay() { return impairments_.needs_relay() ? relay_.start(space_) : 0; }

Counters LinkSpace::counters(const std::vector<Direction> &directions) const {
    Counters sum;
    for (const Direction &direction : directions) {
        impair_link link = {};
        bpf_map__lookup_elem(program_->maps.links, &direction.from, sizeof direction.from, &link, sizeof link, 0);
        sum += {link.frames, link.dropped, link.duplicated, link.corrupted, 0, 0};
        if (impairments_.needs_relay()) {
            const RelayCounters relayed = relay_.counters(direction.relay);
            sum += {0, 0, 0, 0, relayed.reordered, relayed.overflowed};
        }
    }
    return sum;
}

} // namespace netns
