// SPDX-License-Identifier: BSD-2-Clause
// What is on a link: an envelope, which says between whom, and behind it a packet of inagg or a segment of a flow.
//
// The headers have their lengths on a wire. Of a block's elements the first two are there, and the others are only length.
#pragma once

#include <inagg/core/job.h>

#include <ns3/header.h>
#include <ns3/packet.h>

#include <array>

namespace sim {

inline constexpr uint32_t envelope_bytes = 66; // Ethernet, IPv4 and UDP headers, checksum, preamble and gap
inline constexpr uint32_t carried_elements = 2;
inline constexpr uint16_t anyone = 0xffff; // no node

enum class Kind : uint8_t { inagg, segment };

class Envelope : public ns3::Header {
public:
    Kind kind = Kind::inagg;
    uint16_t to = 0, from = 0; // nodes
    uint16_t asker = anyone;   // whose question this is or answers, below a switch that passed it up
    uint16_t path = anyone;    // which of several ways is preferred; `anyone`: as `to` says
    bool congested = false;    // ECN: a queue on the way was long

    static ns3::TypeId GetTypeId();
    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    uint32_t GetSerializedSize() const override { return envelope_bytes; }
    void Serialize(ns3::Buffer::Iterator at) const override;
    uint32_t Deserialize(ns3::Buffer::Iterator at) override;
    void Print(std::ostream &) const override {}
};

// A packet of inagg: the header of wire.h, and elements. The elements' sums are exact or the run fails.
class Message : public ns3::Header {
public:
    inagg_hdr header{};
    std::array<uint32_t, carried_elements> elements{};

    static ns3::TypeId GetTypeId();
    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    uint32_t GetSerializedSize() const override { return sizeof header + sizeof elements; }
    void Serialize(ns3::Buffer::Iterator at) const override;
    uint32_t Deserialize(ns3::Buffer::Iterator at) override;
    void Print(std::ostream &) const override {}

    inagg_type type() const { return static_cast<inagg_type>(inagg_hdr_type(&header)); }
    uint16_t flags() const { return inagg_swap16(header.level_flags) & INAGG_FLAGS_MASK; }
    bool has(inagg_flag flag) const { return flags() & flag; }
    uint16_t job() const { return inagg_swap16(header.job); }
    uint32_t slot() const { return inagg_swap32(header.slot); }
    uint32_t version() const { return has(INAGG_F_VERSION); }
    uint64_t contributors() const { return inagg_swap64(header.contributors); }
    // The ranks whose sum it is.
    uint64_t ranks() const { return type() == INAGG_PARTIAL ? contributors() : inagg_rank_bit(inagg_swap16(header.source)); }
    inagg_block block() const { return inagg_block_of(&header); }

    void set_type(inagg_type type) { header.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | type); }
    void set_flag(inagg_flag flag, bool on);
    void set_job(uint16_t job) { header.job = inagg_swap16(job); }
    void set_slot(uint32_t slot) { header.slot = inagg_swap32(slot); }
    void set_rank(uint32_t rank) { header.source = inagg_swap16(static_cast<uint16_t>(rank)); }
    void set_contributors(uint64_t ranks) { header.contributors = inagg_swap64(ranks); }
    void set_epoch(uint16_t epoch) { header.switch_id = inagg_swap16(epoch); }
    // Of block @b of generation, type and length that all its packets have.
    void set_block(const inagg_block &b);
    void set_length(uint16_t count) { header.elements = inagg_swap16(count); }
    uint16_t cap() const { return inagg_swap16(header.window_cap); }
    void set_cap(uint16_t cap) { header.window_cap = inagg_swap16(cap); }

    // With the length that its elements have on a wire.
    ns3::Ptr<ns3::Packet> packet() const;
};

// A segment of a flow, or its acknowledgement.
class Segment : public ns3::Header {
public:
    uint32_t message = 0, number = 0, count = 0; // of the segment, and how many the message has
    bool is_ack = false, echo = false;           // echo: what this acknowledges had been marked

    static ns3::TypeId GetTypeId();
    ns3::TypeId GetInstanceTypeId() const override { return GetTypeId(); }
    uint32_t GetSerializedSize() const override { return 20; } // as TCP's
    void Serialize(ns3::Buffer::Iterator at) const override;
    uint32_t Deserialize(ns3::Buffer::Iterator at) override;
    void Print(std::ostream &) const override {}
};

// Whatever is wrong in a run: a sum, or a state that cannot be.
struct Violation : std::runtime_error {
    using runtime_error::runtime_error;
};

} // namespace sim
