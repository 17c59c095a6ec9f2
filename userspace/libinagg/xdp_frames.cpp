// SPDX-License-Identifier: BSD-2-Clause
#include "xdp_frames.hpp"

#include "signals_blocked.hpp"

#include <algorithm>
#include <cstring>
#include <sched.h>
#include <system_error>

namespace inagg {

// What the program knows live frames by: a packet to us that nobody else could send.
static std::vector<uint8_t> frame_with(const FrameHeader &header, uint64_t token) {
    FrameHeader back = header.reversed();
    inagg_hdr h{};
    h.contributors = token;
    std::vector<uint8_t> frame(back.size + sizeof(h));
    std::memcpy(&frame[back.size], &h, sizeof(h));
    back.write_before(&frame[back.size], sizeof(h));
    return frame;
}

LiveFrames::LiveFrames(const XdpDevice &device, const FrameHeader &header, const inagg_stream_settings &settings,
                       inagg_order *ring, inagg_stream_shared &shared)
    : device_(device), frame_(frame_with(header, settings.token)), ring_(ring), mask_(settings.orders - 1), shared_(shared) {
    cpu_set_t usable;
    if (sched_getaffinity(0, sizeof(usable), &usable) || CPU_COUNT(&usable) < 2)
        return;
    try {
        const SignalsBlocked blocked;
        helper_ = std::thread([this] { help(); });
    } catch (const std::system_error &) { // a limit: it goes without
    }
}

LiveFrames::~LiveFrames() {
    if (!helper_.joinable())
        return;
    frames_ = leave;
    frames_.notify_one();
    helper_.join();
}

bool LiveFrames::probe() const { return !device_.run(frame_, 1); }

uint32_t LiveFrames::left() const {
    const uint32_t taken = std::atomic_ref(shared_.taken).load(); // first: or it might be ahead of the other
    return std::atomic_ref(shared_.ordered).load() - taken;
}

// Whose frames take an order does not matter: the oldest goes first.
void LiveFrames::run(uint32_t frames) {
    while (frames && !failed_) {
        const uint32_t batch = std::min(frames, XdpDevice::live_batch);
        if (device_.run(frame_, batch))
            failed_ = true;
        frames -= batch;
    }
}

bool LiveFrames::send(std::span<const inagg_order> orders, bool more) {
    const uint32_t missed = frames_ ? 0 : left(); // by a frame that the program could not use
    uint32_t at = shared_.ordered;
    for (const inagg_order &order : orders)
        ring_[at++ & mask_] = order;
    std::atomic_ref(shared_.ordered).store(at);
    const auto frames = static_cast<uint32_t>(orders.size()) + missed;
    uint32_t none = 0;
    if (more && helper_.joinable() && frames_.compare_exchange_strong(none, frames))
        frames_.notify_one();
    else
        run(frames);
    return !failed_;
}

// On a veth what a rank sends is received within its own system call, by the switch and then, as results, by all ranks; so who
// comes last does everybody's work. With the helper that is at least two CPUs'.
void LiveFrames::help() {
    for (;;) {
        frames_.wait(0);
        uint32_t frames = frames_;
        if (frames == leave)
            return;
        run(frames);
        frames_.compare_exchange_strong(frames, 0);
    }
}

} // namespace inagg
