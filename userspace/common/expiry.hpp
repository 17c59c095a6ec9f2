// SPDX-License-Identifier: BSD-2-Clause
// What a trio job may ask for: each expiry takes sweeps, which keep a processor busy if they come too often.
#pragma once

#include <cstdint>

namespace inagg {

inline constexpr uint32_t least_expiry_us = 100, most_expiry_us = 25'000'000;

/// Can a switch keep it?  0: blocks do not expire.
inline constexpr bool expiry_can_be_kept(uint32_t us) { return !us || (us >= least_expiry_us && us <= most_expiry_us); }

} // namespace inagg
