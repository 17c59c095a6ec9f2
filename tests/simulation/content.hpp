// SPDX-License-Identifier: BSD-2-Clause
// What the ranks contribute to each block, and what the exact sums are.
#pragma once

#include "scenario.hpp"

#include <inagg/core/float32.h>
#include <inagg/core/slot.h>

#include <array>

namespace simulation {

// Elements, as the model needs them: the sum, of integers and of floats, and how often each rank is in it.
struct Payload {
    uint64_t value = 0;
    uint32_t real = 0; // the bits of a float: panama
    std::array<uint8_t, INAGG_MAX_RANKS> counts{};

    bool operator==(const Payload &) const = default;
    void add(const Payload &other) {
        value += other.value;
        real = inagg_float32_add(real, other.real);
        for (size_t rank = 0; rank < counts.size(); rank++)
            counts[rank] += other.counts[rank];
    }
};

class Content {
public:
    Content(uint64_t seed, const Scenario &scenario, uint16_t job_generation)
        : seed_(seed), sc(scenario), generation(job_generation) {}

    // Each generation sums something else.
    Content of(uint16_t job_generation) const { return {seed_, sc, job_generation}; }
    void begin(uint16_t job_generation) { generation = job_generation; }

    // Broadcasts and barriers mean nothing without all ranks.
    bool whole(uint32_t block) const { return use_of(block) != Use::sum; }
    // This rank has nothing to add to the block (trio).
    bool absent(uint32_t block, uint32_t rank) const;
    uint64_t absent_from(uint32_t block) const;
    inagg_block meta_of(uint32_t block, uint32_t rank) const;
    // With `raw` what it sends once the server has asked for floats (atp).
    inagg_block raw_meta_of(uint32_t block, uint32_t rank) const;
    Payload contribution(uint32_t block, uint32_t rank, bool raw = false) const;
    // Are its elements added as floats (panama)?
    bool is_float(uint32_t block) const { return sc.algorithm == INAGG_PANAMA && use_of(block) == Use::sum; }
    // Does some rank's contribution not fit its scale?
    bool is_raw(uint32_t block) const;
    // The exact result of the ranks in `seen`: header and sum. Of floats, these are all that are behind some switch.
    inagg_block result_meta(uint32_t block, uint64_t seen) const;
    Payload sum_of(uint32_t block, uint64_t seen, bool raw = false) const;

private:
    enum class Use { sum, broadcast, barrier };

    uint64_t hash(uint64_t a, uint64_t b) const { return Random(seed_ * 1000003 + generation * 104729 + a * 7919 + b).next(); }
    Use use_of(uint32_t block) const;
    // What switch `n` makes of these ranks, which are behind it.
    Payload float_sum(uint32_t block, uint64_t ranks, uint32_t n) const;
    uint64_t behind(uint32_t n) const;
    bool has_elements(uint32_t block, uint32_t rank) const;

    const uint64_t seed_;
    const Scenario &sc;
    uint16_t generation;
};

} // namespace simulation
