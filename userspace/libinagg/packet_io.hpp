// SPDX-License-Identifier: BSD-2-Clause
// The seam between the engine, which knows packets, and what carries them: UdpIo and AfxdpIo.
#pragma once

#include <inagg/core/packet.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace inagg {

// Largest UDP payload of wire version 1.
inline constexpr std::size_t max_packet = sizeof(inagg_hdr) + INAGG_MAX_PAYLOAD;

// Who handles received packets.
class PacketReceiver {
public:
    virtual ~PacketReceiver() = default;
    // One UDP payload from the switch, at least 4-byte aligned, gone after the call; `congested`: a router on its way
    // marked it so. May reserve and commit packets. Must not throw.
    virtual void packet(std::span<const std::byte> payload, bool congested) noexcept = 0;
};

// Packets to one switch, port INAGG_PORT. Used by one thread at a time, not always the same.
class PacketSender {
public:
    virtual ~PacketSender() = default;
    // A frame to write the next packet to: the start of its UDP payload, 8-byte aligned, room for
    // max_packet bytes. Waits for an earlier packet to leave if all frames are taken; if that fails
    // returns an emergency frame whose packet is dropped, as a network may do. Never null.
    virtual std::byte *reserve() noexcept = 0;
    // Queue the frame reserved last as a packet with `bytes` of UDP payload.
    virtual void commit(std::size_t bytes) noexcept = 0;
    // Send what is queued.
    virtual void flush() = 0;
};

// Datagrams to and from it.
class PacketIo : public PacketSender {
public:
    // From now on contributions to as many consecutive data blocks as `job` says may leave in one packet.
    virtual void join_blocks(const inagg_job_config & /*job*/) {}
    // Send what is queued and hand every packet that has arrived to `receiver`; if none has, sleep up to
    // `wait` for one. What the receiver queues may stay queued until the next receive() or flush().
    // Throws inagg::Error if the system fails.
    virtual void receive(PacketReceiver &receiver, std::chrono::nanoseconds wait) = 0;
    // Readable when a packet has come; -1 if nothing tells.
    virtual int descriptor() const { return -1; }
    // Results of this job come to this group address (network byte order, IPv4 in the first 4 bytes)
    // and UDP port (host byte order) instead of receive_port().
    virtual void join_group(std::span<const uint8_t, 16> group, uint16_t port) = 0;

    // UDP port to which the switch sends, host byte order.
    virtual uint16_t receive_port() const = 0;
    // UDP payload bytes that the path's MTU allows; more than max_packet is possible.
    virtual std::size_t path_payload() const = 0;
};

} // namespace inagg
