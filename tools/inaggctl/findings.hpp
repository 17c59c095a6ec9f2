// SPDX-License-Identifier: BSD-2-Clause
// What inaggctl doctor finds.
#pragma once

#include "report.hpp"

#include <string>
#include <vector>

namespace inaggctl {

inline json finding(const std::string &check, const char *state, const std::string &detail,
                    const std::string &fix = "") {
    return {{"check", check}, {"state", state}, {"detail", detail}, {"fix", fix}};
}

inline json judge(const std::string &check, bool good, const char *otherwise, const std::string &detail,
                  const std::string &fix) {
    return finding(check, good ? "ok" : otherwise, detail, good ? "" : fix);
}

// Of a rank: what its environment says, and whether its switch answers. Nothing without INAGG_SWITCH,
// INAGG_RANK and INAGG_SIZE.
void examine_worker(json &findings);
// The switch that runs here; nothing without one.
void examine_switch(const Where &where, json &findings);
// Is the interface connected, and has the switch an address there?
void examine_network(const std::string &interface, json &findings);

} // namespace inaggctl
