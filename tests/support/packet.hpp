// SPDX-License-Identifier: BSD-2-Clause
// Frames from fields and back. A Packet is right unless told otherwise: lengths and checksums are
// computed, and each has a knob that makes it wrong.
#pragma once

#include <inagg/wire.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

namespace support {

using Frame = std::vector<uint8_t>;

// What a frame has from there on, whatever its alignment; it must be that long.
template <typename T> T read(const Frame &frame, size_t at) {
    T value;
    std::memcpy(&value, frame.data() + at, sizeof value);
    return value;
}

using Mac = std::array<uint8_t, 6>;
using Address = std::array<uint8_t, 16>; // IPv4 in the first 4 bytes

inline constexpr uint16_t switch_boot = 0x1234;

// Addresses of the test network. `job` is the job's index on the switch.
Address switch_address(int family);
Address worker_address(int family, uint32_t job, uint32_t rank);
Mac switch_mac();
Mac tick_mac(); // of results that no packet asked for
Mac worker_mac(uint32_t job, uint32_t rank);
// The switch that is the parent of the one under test.
Address parent_address(int family);
Mac parent_mac();
uint16_t worker_port(uint32_t rank);

struct Packet {
    int family = 4;
    Mac source_mac{}, target_mac{};
    Address source{}, target{};
    uint16_t source_port = 0, target_port = INAGG_PORT;

    uint8_t version = INAGG_WIRE_VERSION;
    uint8_t type = 0, dtype = 0, op = 0;
    uint16_t flags = 0;
    uint16_t job = 0, generation = 0, rank = 0;
    uint32_t block = 0, slot = 0;
    uint16_t count = 0, fan_in = 0, boot = 0;
    uint64_t contributors = 0;
    uint8_t port = 0;                   // of canary: up ports, inside a switch
    uint16_t window_cap = 0, epoch = 0; // of trio; of canary: the attempt
    uint8_t scale = 0, next_scale = 0;
    uint16_t elements = 0;
    std::vector<uint8_t> payload;

    // Knobs.
    unsigned tags = 0;   // of VLAN 0, in front of the IP header
    bool marked = false; // by a router whose queue was long
    uint16_t header_checksum_xor = 0;
    uint32_t payload_checksum_xor = 0;
    int udp_length_delta = 0; // what the UDP header says, beside the truth
    int ip_length_delta = 0;
    int frame_delta = 0; // bytes cut off or added behind the datagram
};

// Elements of 32 or 16 bits as they lie on the wire.
std::vector<uint8_t> element_bytes(const std::vector<uint32_t> &values, uint8_t dtype);
std::vector<uint32_t> element_values(const std::vector<uint8_t> &payload, uint8_t dtype);

Frame build(const Packet &packet);

// What is in a frame that a switch sent. Empty if a length, a checksum or the type of service is wrong.
std::optional<Packet> parse(const Frame &frame);

// The fields of an inagg header.
void read_header(const inagg_hdr &header, Packet &packet);

// The frame's inagg header, wherever it lies.
size_t header_offset(int family);

} // namespace support
