// SPDX-License-Identifier: BSD-2-Clause
// Values with units on the command line.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace inagg {

using Nanoseconds = std::chrono::nanoseconds;

// "1gbit", "500mbit", "64kbit": bits per second. Throws std::invalid_argument naming the value.
uint64_t parse_rate(const std::string &text);

// "2s", "1ms", "200us", "50ns"; a bare number is seconds. Throws std::invalid_argument.
Nanoseconds parse_duration(const std::string &text);

// 0 .. 1. Throws std::invalid_argument.
double parse_fraction(const std::string &text);

} // namespace inagg
