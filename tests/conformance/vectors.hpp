// SPDX-License-Identifier: BSD-2-Clause
// Runs vectors (README.md) on a plane, one GoogleTest for each case.
#pragma once

#include "support/plane.hpp"

#include <nlohmann/json_fwd.hpp>

#include <functional>
#include <string>

namespace conformance {

inline constexpr uint32_t switch_slots = 64;

// The algorithm of a case's job.
int algorithm_of(const nlohmann::json &one);

// What a plane makes of a case.
struct Scope {
    // Does the case concern it at all?
    std::function<bool(const nlohmann::json &)> concerns = [](const nlohmann::json &) { return true; };
    // Why it is known to answer otherwise, so that the case is skipped; empty: it is not.
    std::function<std::string(const nlohmann::json &)> difference = [](const nlohmann::json &) { return std::string(); };
    bool counts_drops_only = false;
};

// Runs the cases of all files in the folder that argv names; returns main()'s status.
int run_vectors(int argc, char **argv, support::Plane &plane, const Scope &scope = {});

} // namespace conformance
