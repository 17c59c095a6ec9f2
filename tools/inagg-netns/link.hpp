// SPDX-License-Identifier: BSD-2-Clause
// Impaired links: they run through a namespace of their own, between the hosts and the switch.
#pragma once

#include "options.hpp"
#include "process.hpp"
#include "relay.hpp"

#include <chrono>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

struct impair_bpf;

namespace netns {

// What happened to the frames of one direction, all links together.
struct Counters {
    uint64_t frames = 0, dropped = 0, duplicated = 0, corrupted = 0;
    uint64_t reordered = 0;  // held back longer than those behind them
    uint64_t overflowed = 0; // dropped because the relay was full

    Counters &operator+=(const Counters &other);
};

// What differs from link to link.
struct LinkQuality {
    bool lossy;    // frames may be lost, doubled and damaged
    uint64_t rate; // bits per second, 0: unlimited
};

// Devices in the LinkSpace, one towards each end of a link.
struct LinkEnds {
    std::string near, far; // towards the switch (of two, the upper one), towards the host or lower switch
};

// How long a frame waits at most before a link of that rate, in bits per second: more are dropped.
std::chrono::nanoseconds longest_queue(uint64_t rate);

class LinkSpace {
public:
    explicit LinkSpace(const Impairments &impairments);
    ~LinkSpace();

    const Namespace &space() const { return space_; }

    // How the ends of the next link are to be called.
    LinkEnds next_ends() const { return ends(names_.size()); }

    // Frames that come in by one of the next link's ends leave by the other, impaired.
    void join(const std::string &name, LinkQuality quality);

    // The link of that name.
    size_t find(const std::string &name) const;
    // Takes the carrier from the devices at both ends of a link, or gives it back.
    void set_carrier(size_t link, bool carrier);

    // Starts the process that delays and reorders, after the last join(); 0 if it is not needed.
    pid_t start_relay();

    Counters to_switch() const { return counters(to_switch_); }
    Counters to_hosts() const { return counters(to_hosts_); }

private:
    // One direction of one link.
    struct Direction {
        unsigned from;    // interface that frames come in by: their key in the map
        size_t relay = 0; // index in the relay's directions
    };

    static LinkEnds ends(size_t link);
    void connect(const std::string &from, const std::string &to, LinkQuality quality, std::vector<Direction> &directions);
    unsigned through_relay(unsigned to);
    void limit_rate(const std::string &device, uint64_t rate);
    Counters counters(const std::vector<Direction> &directions) const;

    const Impairments &impairments_;
    std::mt19937_64 seeds_; // of each direction's own generator
    Namespace space_;
    std::unique_ptr<impair_bpf, void (*)(impair_bpf *)> program_;
    Relay relay_;
    std::vector<std::string> names_; // of the links
    std::vector<Direction> to_switch_, to_hosts_;
};

} // namespace netns
