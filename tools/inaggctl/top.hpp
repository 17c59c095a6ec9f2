// SPDX-License-Identifier: BSD-2-Clause
// inaggctl top: what a switch does now.
#pragma once

#include "report.hpp"

#include <chrono>

namespace inaggctl {

// Shows rates over `interval` until q is pressed.
void watch_switch(const Where &where, std::chrono::duration<double> interval);
// Prints them once, as plain text or JSON.
void print_switch(const Where &where, std::chrono::duration<double> interval, bool as_json);

} // namespace inaggctl
