// SPDX-License-Identifier: BSD-2-Clause
// Runs vectors (README.md) on a plane, one GoogleTest for each case.
#pragma once

#include "support/plane.hpp"

#include <functional>
#include <memory>

namespace conformance {

inline constexpr uint32_t switch_slots = 64;

using MakePlane = std::function<std::unique_ptr<support::Plane>()>;

// Registers the cases of all files in `folder`, runs them, returns main()'s status.
int run_vectors(int argc, char **argv, const MakePlane &make_plane);

} // namespace conformance
