// SPDX-License-Identifier: BSD-2-Clause
// Live frames: those that the kernel makes for an XDP program when asked to (BPF_F_TEST_XDP_LIVE_FRAMES, see
// Documentation/bpf/bpf_prog_run.rst). The stream program turns each into a packet that is ordered here. A run costs as much as
// three or four datagrams, and each packet of it a tenth of one: no skb, and no way through the IP stack.
#pragma once

#include "xdp_device.hpp"

#include "worker_maps.h"

#include <atomic>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

namespace inagg {

class LiveFrames {
public:
    // `header` is that of packets to the switch. `ring` has settings.orders places and `shared` is the program's; both outlive
    // this.
    LiveFrames(const XdpDevice &device, const FrameHeader &header, const inagg_stream_settings &settings, inagg_order *ring,
               inagg_stream_shared &shared);
    LiveFrames(const LiveFrames &) = delete;
    ~LiveFrames();

    // Has the program send its probe.
    bool probe() const;

    // Have these sent, soon and behind those ordered before. At most a packet of each slot; one thread calls, in the device's
    // network namespace. `more` is about to come, so that it pays to wake a thread. False: the kernel no longer lets us, and some
    // are not sent.
    bool send(std::span<const inagg_order> orders, bool more);

private:
    static constexpr uint32_t leave = UINT32_MAX;

    void help();
    void run(uint32_t frames);
    uint32_t left() const;

    const XdpDevice &device_;
    std::vector<uint8_t> frame_;
    inagg_order *ring_;
    uint32_t mask_;
    inagg_stream_shared &shared_;
    std::atomic<bool> failed_ = false;
    std::atomic<uint32_t> frames_ = 0; // that the helper is to run, or `leave`; 0: it has nothing to do
    std::thread helper_;
};

} // namespace inagg
