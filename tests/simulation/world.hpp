// SPDX-License-Identifier: BSD-2-Clause
// What switch and workers share: the job, time, and a network that drops, doubles, delays and reorders.
#pragma once

#include "content.hpp"
#include "simulation.hpp"

#include <inagg/core/job.h>

#include <fmt/format.h>

#include <map>
#include <queue>
#include <set>

namespace simulation {

inline constexpr uint16_t first_generation = 3;

// Where packets go: to a rank, to the switch, or to another switch of a tree, whose root is the_switch.
inline constexpr int the_switch = -1;
constexpr int switch_target(uint32_t index) { return the_switch - static_cast<int>(index); }

struct Packet {
    uint8_t type;
    uint8_t version;
    bool everyone; // REQUEST: answer all; WAIT: is for all
    bool degraded; // RESULT, RESTORE: not all ranks are in
    bool repeated; // no first contribution; RESULT: nor was made from one
    bool raw;      // WAIT: the server asks for floats
    bool bypass;   // canary: is not to be summed; BLOCK_FAILED: send it so
    int from;      // canary: who has sent it over this link
    uint16_t boot;
    uint32_t life;       // JOIN, CONFIG: how often the rank has started again
    uint16_t window_cap; // WAIT: the block was refused; canary: which question of a rank this is or answers
    uint32_t slot;
    uint64_t contributors;
    inagg_block block;
    Payload payload;
};

// The ranks whose sum it is.
inline uint64_t ranks_in(const Packet &packet) {
    return packet.type == INAGG_PARTIAL ? packet.contributors : inagg_rank_bit(packet.block.rank);
}

struct Event {
    enum Kind : uint8_t { arrival, timer, call, fault, sweep, tick } kind;
    Time at;
    uint64_t order; // of equal times, the one scheduled first
    int target;
    uint32_t index; // of packet or fault; the switch's own
    bool operator>(const Event &other) const { return at != other.at ? at > other.at : order > other.order; }
};

class World {
public:
    explicit World(const Options &chosen);

    const Options options;
    Random random;
    const Scenario sc;
    inagg_job job{};
    Content content; // of the generation that the job is in; a rank may lag
    Time now = 0;
    Outcome outcome{};
    std::map<uint32_t, uint64_t> accepted;                // by block: which ranks have its result
    std::set<std::pair<uint16_t, uint32_t>> decided_anew; // generation and block: by the ranks that remained, once forgotten
    uint64_t returning = 0;                               // excluded ranks that wait for the next generation

    bool idle() const { return events.empty(); }
    Event next();
    const Packet take(const Event &arrival);
    void schedule(Event::Kind kind, Time at, int target, uint32_t index) { events.push({kind, at, order++, target, index}); }
    void transmit(int to, const Packet &packet);
    // The job goes on without this rank, unless it is the last.
    void exclude(uint32_t rank);
    // With those that wait for it.
    void begin_generation();

    // Is this rule broken on purpose?
    bool broken(Mutation mutation) const { return options.mutation == mutation; }

    template <typename... Args> void trace(fmt::format_string<Args...> text, Args &&...args) {
        if (options.verbose)
            fmt::print("{:>10.3f} us  {}\n", static_cast<double>(now) / us, fmt::vformat(text, fmt::make_format_args(args...)));
    }

    template <typename... Args> void require(bool holds, fmt::format_string<Args...> text, Args &&...args) {
        if (!holds)
            throw Violation(fmt::format("at {} us: {}", now / us, fmt::vformat(text, fmt::make_format_args(args...))));
    }

private:
    void deliver_later(int to, const Packet &packet);

    uint64_t order = 0;
    std::priority_queue<Event, std::vector<Event>, std::greater<>> events;
    std::vector<Packet> packets;
    std::vector<uint32_t> free_packets;
};

} // namespace simulation
