// SPDX-License-Identifier: BSD-2-Clause
// What inaggctl doctor finds.
#pragma once

#include "report.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace inaggctl {

inline json finding(const std::string &check, const char *state, const std::string &detail, const std::string &fix = "") {
    return {{"check", check}, {"state", state}, {"detail", detail}, {"fix", fix}};
}

inline json judge(const std::string &check, bool good, const char *otherwise, const std::string &detail, const std::string &fix) {
    return finding(check, good ? "ok" : otherwise, detail, good ? "" : fix);
}

// Somebody has said who this rank is, or where its switch.
bool is_worker();
// Of a rank: what its environment says, and whether its switch answers. Nothing unless is_worker().
void examine_worker(json &findings);
// The switch that runs here; nothing without one.
void examine_switch(const Where &where, json &findings);
// What it has dropped, and which joins its agent, which has to run, has refused of late.
void examine_drops(const Where &where, json &findings);
void examine_refusals(const Where &where, json &findings);
// Has it a program in generic mode, which is slower than the driver's own?
bool is_generic(uint32_t ifindex);
// Is the interface connected, and has the switch an address there?
void examine_network(const std::string &interface, json &findings);

} // namespace inaggctl
