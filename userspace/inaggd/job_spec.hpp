// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "common/expiry.hpp"
#include "names.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace inaggd {

// A configured member: this rank joins from this port and address only.
struct MemberSpec {
    uint16_t rank;
    std::string port;
    Address address;
};

// When a block of a trio job is decided without all ranks, and when it goes on without a rank. Not set:
// never.
struct Stragglers {
    uint32_t expiry_us = 0;  // so long without a further rank
    uint16_t quorum = 0;     // as soon as so many are in
    uint32_t exclude_ms = 0; // a rank that is silent for so long is excluded

    bool operator==(const Stragglers &) const = default;
};

using inagg::least_expiry_us, inagg::most_expiry_us, inagg::expiry_can_be_kept;
// Ranks say that they are there four times in it.
inline constexpr uint32_t least_exclude_ms = 1000;

// "10ms": microseconds. Throws where that is no time, or none that a switch's timers can keep.
uint32_t parse_expiry(const std::string &text);

// A configured job: --job and `inaggctl job add`.
struct JobSpec {
    uint16_t number = 0;
    uint16_t size = 0;
    uint32_t slots = 0;    // 0: the agent's default
    uint32_t control = 0;  // likewise
    uint16_t elements = 0; // 0: as many as every port's MTU allows
    uint8_t blocks = 0;    // at most, of a packet; 0: as many as every port's MTU allows or, with `elements`, one
    uint8_t algorithm = INAGG_SWITCHML;
    bool checked = false;
    std::string key_file{}; // where its key is, if it has one of its own
    Stragglers stragglers{};
    std::vector<MemberSpec> members;
};

// Reads `7:size=4,slots=256,control=8,elements=352,algorithm=trio,expiry=10ms,quorum=3,
// exclude-after=5s,checked,key-file=/etc/inagg/7.key,member=0@p0/10.77.0.10`; only the number and size are needed. Throws Error.
JobSpec parse_job_spec(const std::string &text);

} // namespace inaggd
