// SPDX-License-Identifier: BSD-2-Clause
// The agent's end of the link to the switch's CPU port. Beside what it reads and writes, the kernel uses the interface as any
// other: for ARP, neighbour discovery, ping.
#pragma once

#include "common/fd.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <string>

namespace inaggd::p4 {

class CpuPort {
public:
    // Throws Error if there is no such interface.
    explicit CpuPort(const std::string &interface);
    int fd() const { return fd_.get(); }
    void send(std::span<const uint8_t> frame) const;
    // Some of what the switch has sent up since; nothing else is seen.
    void read(const std::function<void(std::span<const uint8_t> frame)> &seen) const;

private:
    inagg::Fd fd_;
};

} // namespace inaggd::p4
