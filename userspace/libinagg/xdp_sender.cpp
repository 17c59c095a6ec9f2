// SPDX-License-Identifier: BSD-2-Clause
#include "xdp_sender.hpp"

#include "errors.hpp"

#include <algorithm>

#include <linux/if_packet.h>

namespace inagg {

static_assert(INAGG_FRAME_ROOM % 8 == 0, "UDP payloads start at a multiple of 8");

FrameSender::FrameSender(const FrameHeader &header, const XdpDevice &device)
    : header_(header), socket_(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)), // protocol 0: it receives nothing
      memory_(frames * frame_bytes) {
    sockaddr_ll address{};
    address.sll_family = AF_PACKET;
    address.sll_ifindex = static_cast<int>(device.index());
    if (!socket_ || bind(socket_.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)))
        throw system_error(fmt::format("a packet socket on device {}", device.name()));
}

std::byte *FrameSender::reserve() noexcept {
    if (queued_ == frames)
        flush();
    return payload(queued_);
}

void FrameSender::commit(std::size_t bytes) noexcept {
    parts_[queued_] = {header_.write_before(payload(queued_), bytes), header_.size + bytes};
    messages_[queued_].msg_hdr.msg_iov = &parts_[queued_];
    messages_[queued_].msg_hdr.msg_iovlen = 1;
    queued_++;
}

void FrameSender::flush() noexcept {
    for (unsigned at = 0; at < queued_;) {
        const int sent = sendmmsg(socket_.get(), &messages_[at], queued_ - at, MSG_DONTWAIT);
        at += std::max(sent, 1); // past the one that failed
    }
    queued_ = 0;
}

} // namespace inagg
