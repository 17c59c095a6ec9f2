// SPDX-License-Identifier: BSD-2-Clause
// Sends packets to the switch as frames of a device, through a packet socket (packet(7)): the IP stack is not on their way.
#pragma once

#include "packet_io.hpp"
#include "xdp_device.hpp"

#include <array>
#include <vector>

#include <sys/socket.h>

namespace inagg {

class FrameSender final : public PacketSender {
public:
    // `header` is that of packets to the switch. Throws INAGG_ESYSTEM, which is for want of CAP_NET_RAW, too.
    FrameSender(const FrameHeader &header, const XdpDevice &device);

    std::byte *reserve() noexcept override;
    void commit(std::size_t bytes) noexcept override;
    // What the device does not take is lost, as in a network.
    void flush() noexcept override;

private:
    static constexpr unsigned frames = 16;
    static constexpr std::size_t frame_bytes = (INAGG_FRAME_ROOM + max_packet + 63) / 64 * 64;

    std::byte *payload(unsigned frame) { return memory_.data() + frame * frame_bytes + INAGG_FRAME_ROOM; }

    FrameHeader header_;
    Fd socket_;
    std::vector<std::byte> memory_;
    std::array<iovec, frames> parts_{};
    std::array<mmsghdr, frames> messages_{};
    unsigned queued_ = 0;
};

} // namespace inagg
