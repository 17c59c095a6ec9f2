// SPDX-License-Identifier: BSD-2-Clause
// Frames between a P4 switch and its agent: behind the header punt_h of p4/shared/headers.p4 as they are on a link.
#pragma once

#include "names.hpp"

#include <switch_maps.h>

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace inaggd::p4 {

inline constexpr uint16_t punt_type = 0x88b5;  // the Ethernet type: IEEE 802 local experimental
inline constexpr uint16_t clock_type = 0x88b6; // likewise

using Mac = std::array<uint8_t, 6>;

// What the switch has sent up.
struct Punted {
    inagg_reason wrong = INAGG_R_NONE; // why it is none of JOIN, LEAVE, CONFIG and REFUSED, or damaged; then there is no event
    inagg_event event{};               // ifindex: the port that it came by
};
Punted read_punted(std::span<const uint8_t> frame);

// A packet of the clock: the switch looks at the place `index` of a block. Trio: what it does there.
enum ClockWork : uint8_t { clock_sweeps = 1, clock_decides = 2 };
std::vector<uint8_t> clock_frame(uint16_t index, uint8_t work = clock_sweeps | clock_decides);

struct Endpoint {
    Mac mac;
    Address address;
};

// A frame, sealed already. `udp_port`: to which it goes, in network order.
std::vector<uint8_t> write_datagram(const Endpoint &from, const Endpoint &to, uint16_t udp_port, const inagg_hdr &header,
                                    std::span<const uint8_t> body);
// One of the agent's that leaves the switch by `port`. This seals it.
std::vector<uint8_t> write_punted(uint16_t port, const Endpoint &from, const Endpoint &to, uint16_t udp_port, inagg_hdr header,
                                  const inagg_join &body);

} // namespace inaggd::p4
