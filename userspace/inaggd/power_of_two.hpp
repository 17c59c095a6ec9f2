// SPDX-License-Identifier: BSD-2-Clause
// A check of options.
#pragma once

#include <CLI/CLI.hpp>

#include <bit>
#include <cstdint>
#include <string>

namespace inaggd {

inline const CLI::Validator power_of_two(
    [](const std::string &text) {
        uint32_t value = 0;
        const bool ok = CLI::detail::lexical_cast(text, value) && value <= (1u << 20) && std::has_single_bit(value);
        return ok ? std::string() : "must be a power of two, not " + text;
    },
    "POWER OF TWO");

} // namespace inaggd
