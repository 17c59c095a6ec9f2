// SPDX-License-Identifier: BSD-2-Clause
// --shares: how much one job has of what jobs share.
#pragma once

#include "error.hpp"

#include <cstdint>

namespace inaggd {

// Of `count` of `what`. Throws Error: a canary slot may have two blocks in flight, and both need a place.
inline uint32_t share_of(uint32_t count, const char *what, uint32_t shares) {
    if (shares > 1 && count / shares < 2)
        throw Error("--shares {}: of {} {}, a job would have less than two; take at most {}", shares, count, what, count / 2);
    return count / shares;
}

} // namespace inaggd
