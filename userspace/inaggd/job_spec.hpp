// SPDX-License-Identifier: BSD-2-Clause
#pragma once

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

// A configured job: --job and `inaggctl job add`.
struct JobSpec {
    uint16_t number = 0;
    uint16_t size = 0;
    uint32_t slots = 0;    // 0: the agent's default
    uint32_t control = 0;  // likewise
    uint16_t elements = 0; // 0: as many as every port's MTU allows
    uint8_t algorithm = INAGG_SWITCHML;
    bool checked = false;
    std::vector<MemberSpec> members;
};

// Reads `7:size=4,slots=256,control=8,elements=352,algorithm=switchml,checked,member=0@p0/10.77.0.10`;
// only the number and size are needed. Throws Error.
JobSpec parse_job_spec(const std::string &text);

} // namespace inaggd
