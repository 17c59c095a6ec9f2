// SPDX-License-Identifier: BSD-2-Clause
// Runs vectors (README.md) on a plane, one GoogleTest for each case.
#pragma once

#include "support/plane.hpp"

namespace conformance {

inline constexpr uint32_t switch_slots = 64;

// Runs the cases of all files in the folder that argv names; returns main()'s status.
int run_vectors(int argc, char **argv, support::Plane &plane);

} // namespace conformance
