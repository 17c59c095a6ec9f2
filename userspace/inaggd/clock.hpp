// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <chrono>
#include <cstdint>

namespace inaggd {

// Nanoseconds of the monotonic clock, as bpf_ktime_get_ns().
inline uint64_t now_ns() {
    return static_cast<uint64_t>(std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
}

} // namespace inaggd
