// SPDX-License-Identifier: BSD-2-Clause
#include "units.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace inagg {
namespace {

using Units = std::vector<std::pair<std::string_view, double>>;

// The number at the start of `text` times the factor of the unit that follows it.
double parse(const std::string &text, const Units &units, std::string_view expected) {
    double number = 0;
    const char *end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    const std::string_view unit(rest, end - rest);
    for (const auto &[name, factor] : units) {
        if (error == std::errc() && unit == name && std::isfinite(number) && number >= 0) {
            return number * factor;
        }
    }
    throw std::invalid_argument(fmt::format("'{}' is not {}", text, expected));
}

} // namespace

uint64_t parse_rate(const std::string &text) {
    static const Units units = {{"bit", 1}, {"kbit", 1e3}, {"mbit", 1e6}, {"gbit", 1e9}};
    constexpr std::string_view expected = "a rate from 8kbit to 100gbit: write it like 500mbit or 1gbit";
    const double rate = parse(text, units, expected);
    if (rate < 8e3 || rate > 1e11) {
        throw std::invalid_argument(fmt::format("'{}' is not {}", text, expected));
    }
    return static_cast<uint64_t>(rate);
}

Nanoseconds parse_duration(const std::string &text) {
    static const Units units = {{"", 1e9}, {"s", 1e9}, {"ms", 1e6}, {"us", 1e3}, {"ns", 1}};
    constexpr std::string_view expected = "a time of at most 1 day: write it like 200us, 1ms or 2.5s";
    const double time = parse(text, units, expected);
    if (time > 86400e9) {
        throw std::invalid_argument(fmt::format("'{}' is not {}", text, expected));
    }
    return Nanoseconds(std::llround(time));
}

double parse_fraction(const std::string &text) {
    constexpr std::string_view expected = "a probability: write a fraction from 0 to 1, like 0.01 for 1 %";
    const double fraction = parse(text, {{"", 1}}, expected);
    if (fraction > 1) {
        throw std::invalid_argument(fmt::format("'{}' is not {}", text, expected));
    }
    return fraction;
}

} // namespace inagg
