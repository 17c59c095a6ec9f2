// SPDX-License-Identifier: BSD-2-Clause
// What the kernel says about network interfaces.
#pragma once

#include "common/fd.hpp"
#include "names.hpp"

#include <array>
#include <functional>
#include <string>
#include <vector>

namespace inaggd {

using inagg::Fd;

// Tells when interfaces come and go.
class LinkWatch {
public:
    LinkWatch();
    int fd() const { return fd_.get(); }
    // Calls `seen(gone, ifindex, name)` for what has happened since.
    void read(const std::function<void(bool gone, uint32_t ifindex, const std::string &name)> &seen) const;

private:
    Fd fd_;
};

// Is it up, and is somebody at the other end?
bool has_link(const std::string &port);
uint32_t mtu_of(const std::string &port);
// More than that one block, however large, makes no use of, and takes frames of several buffers.
inline constexpr uint32_t largest_single_mtu = 3498;
std::array<uint8_t, 6> mac_of(const std::string &port);
// The first address of `family` on the port, or on the bridge that the port belongs to.
Address address_near(const std::string &port, uint8_t family);

} // namespace inaggd
