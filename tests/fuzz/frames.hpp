// SPDX-License-Identifier: BSD-2-Clause
// Frames from a seed: mostly what a worker would send, then mutated in fields, bytes and length.
#pragma once

#include "support/plane.hpp"

#include <map>
#include <random>
#include <utility>

namespace fuzz {

class Frames {
public:
    // Frames of ranks of `job`; some claim to belong to `victim`, whose addresses they never use.
    Frames(uint64_t seed, const support::JobSpec &job, const support::JobSpec &victim);
    support::Frame next();
    // Learns from what the switch said.
    void heard(const support::Frame &answer);

private:
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(random() % n); }
    bool chance(uint32_t one_in) { return below(one_in) == 0; }
    support::Packet plausible();
    void add_floats(support::Packet &p);
    void aggregate(support::Packet &p);
    void straggle(support::Packet &packet);
    void converse(support::Packet &p);
    void climb(support::Packet &packet);
    void mutate_field(support::Packet &packet);
    void fill(support::Packet &packet);
    void mutate_bytes(support::Frame &frame);

    std::mt19937_64 random;
    const support::JobSpec job, victim;
    uint32_t phase = 0;                                       // blocks move on
    std::map<std::pair<uint32_t, uint32_t>, uint16_t> epochs; // by slot and block
};

} // namespace fuzz
