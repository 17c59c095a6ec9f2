// SPDX-License-Identifier: BSD-2-Clause
// Feeds frames to one plane, or to two that must agree, and checks after each that it was counted
// exactly once and that nothing of the other job's slots has changed.
#pragma once

#include "support/plane.hpp"

#include <vector>

namespace fuzz {

inline constexpr uint32_t switch_slots = 64;

// Parses the command line and runs; returns main()'s status.
int run(int argc, char **argv, const std::vector<support::Plane *> &planes);

} // namespace fuzz
