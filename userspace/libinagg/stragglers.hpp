// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <cstdint>

namespace inagg {

// Bitmaps of ranks, as the switch last said.
struct Stragglers {
    uint64_t excluded = 0; // the job goes on without them
    uint64_t temporary = 0;
    uint64_t permanent = 0; // also those that are excluded
};

} // namespace inagg
