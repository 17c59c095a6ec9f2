// SPDX-License-Identifier: BSD-2-Clause
// An allreduce: who takes part, how long its tensor is, and what the exact sums are.
#pragma once

#include "network.hpp"

#include <inagg/core/job.h>

#include <fmt/format.h>

namespace sim {

using Elements = std::array<uint32_t, carried_elements>;

inline constexpr uint64_t never = ~0ULL;

uint64_t now_ns();

struct Job {
    uint16_t number = 0;
    inagg_algorithm algorithm = INAGG_SWITCHML;
    std::vector<uint32_t> hosts; // by rank
    uint32_t blocks = 0;         // of an allreduce
    uint16_t elements = 0;       // of a block
    uint32_t slots = 0;
    uint32_t root = 0;             // switchml: the number of the spine
    uint64_t patience_ns = 0;      // canary: how long a sum waits for more; 0: as learnt (struct inagg_patience)
    uint64_t rto_floor_ns = 0;     // 0: the core's
    bool timers_only = false;      // nothing but a timer tells of a loss, as in SwitchML's paper
    bool controlled = true;        // panama, atp: ranks heed marks
    double noise = 0;              // the share of its packets that a rank sends a microsecond late (Canary §5.2.5)
    uint64_t seed = 1;             // of which
    bool results_overtake = false; // canary: what leaders send out passes their own elements that wait in the host
    inagg_job core{};

    uint32_t size() const { return static_cast<uint32_t>(hosts.size()); }

    bool is_float() const { return algorithm == INAGG_PANAMA; }
    // The core's job; ranks behind one switch are numbered from 0 there.
    void prepare();
    inagg_block block(uint32_t number_of_block) const;
    // One element is the rank's own, so that what is in twice cannot pass for another; the other one counts ranks.
    Elements contribution(uint32_t block, uint32_t rank) const;
    Elements sum(uint32_t block) const;
    Elements sum_of(uint32_t block, uint64_t ranks) const;

private:
    Elements elements_of(uint32_t of_unit, uint32_t ranks, uint32_t block) const;
};

// What happened, for the table.
struct Counters {
    uint64_t blocks = 0; // results taken by ranks
    uint64_t resends = 0, requests = 0, waits = 0, restores = 0;
    uint64_t collisions = 0, stragglers = 0, expired = 0, failed_attempts = 0; // canary
    uint32_t most_held = 0;                                                    // of a switch's descriptors
    // trio: blocks decided without some rank, and those that a sweep decided; blocks refused; results that a rank had before it
    // came to them
    uint64_t degraded = 0, refused = 0, skipped = 0;
    uint64_t latency_ns = 0, latency_most_ns = 0; // trio: from a contribution to its result, of all that were sent
    uint64_t partials = 0, at_server = 0;         // atp: sums that went on before all were in; packets that servers sum
    uint64_t cuts = 0, unbuffered = 0; // panama, atp: windows that were cut; panama: packets dropped for want of a buffer
    uint64_t segments_resent = 0, messages = 0, flow_bytes = 0; // of flows
};

template <typename... Args> void require(bool holds, fmt::format_string<Args...> text, Args &&...args) {
    if (!holds)
        throw Violation(fmt::format("at {} ns: {}", now_ns(), fmt::format(text, std::forward<Args>(args)...)));
}

// Floats, by the core's addition.
Elements add_floats(const Elements &a, const Elements &b);

// Moves the elements as a verdict says.
void fold(int verdict, Elements &sum, const Elements &more);

} // namespace sim
