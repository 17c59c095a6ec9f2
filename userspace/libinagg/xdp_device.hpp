// SPDX-License-Identifier: BSD-2-Clause
// A network device with the worker's root XDP program (bpf/worker.bpf.c), shared by all processes on it.
#pragma once

#include "udp_io.hpp"

#include <inagg/wire.h>

#include "worker_maps.h"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace inagg {

// Runs `load`, a libbpf call that returns 0 or a negative error, on a thread of its own without signals. The
// verifier gives up with EAGAIN when one is pending, and io_uring signals the thread that set up a ring.
int without_signals(const std::function<int()> &load);

// Ethernet, IP and UDP headers of our packets to the switch.
struct FrameHeader {
    std::array<uint8_t, INAGG_FRAME_ROOM> bytes{};
    std::size_t size = 0;

    // The way back.
    FrameHeader reversed() const;

    // Write it right before a UDP payload of so many bytes; returns where the frame begins.
    std::byte *write_before(void *payload, std::size_t payload_bytes);

private:
    friend class XdpDevice;
    void set_payload(std::size_t payload_bytes);

    bool ipv4_ = false;
    std::size_t payload_bytes_ = SIZE_MAX; // that lengths and the IPv4 checksum are right for
};

class XdpDevice {
public:
    // Finds the device that leads to the switch and attaches the root program, or joins the processes
    // that have. `native`: only a driver that runs XDP itself will do. Throws INAGG_EPRIVILEGE or
    // INAGG_ESYSTEM.
    XdpDevice(const std::string &transport, const std::string &switch_address, bool native);

    // Learn the way to the switch from the CONFIG that will come to this UDP port.
    void expect_config(uint16_t port);
    // The headers learned; throws INAGG_ESYSTEM if no CONFIG came through this device.
    FrameHeader frame_header(uint16_t port) const;

    // The kernel takes so many pages at once, all with the frame on them; then it would use again what was sent or dropped, as it
    // is by then. And a veth's ring holds 256 frames, others' too.
    static constexpr uint32_t live_batch = 64;
    // Run the root program on so many live frames, live_batch at most, that look like `frame`. Returns 0 or an errno.
    int run(std::span<const uint8_t> frame, uint32_t count) const;

    const std::string &name() const { return name_; }
    uint32_t index() const { return static_cast<uint32_t>(index_); }
    int family() const { return family_; }
    const std::array<uint8_t, 16> &switch_address() const { return remote_; }
    int streams() const { return streams_.get(); }
    int sockets() const { return sockets_.get(); }

private:
    void find_device(const std::string &switch_address);
    bool attach(bool native);
    bool share(uint32_t program_id, bool native);
    void open_map(uint32_t id);
    bool open_link(uint32_t program_id);
    bool complete() const;

    std::string transport_, name_;
    int index_ = 0;
    int family_ = 4;
    std::array<uint8_t, 16> remote_{}; // the switch's address, IPv4 in the first 4 bytes
    Fd link_, program_, streams_, sockets_, templates_;
};

} // namespace inagg
