// SPDX-License-Identifier: BSD-2-Clause
// A check of options.
#pragma once

#include <CLI/CLI.hpp>

#include <bit>
#include <cstdint>
#include <string>

namespace inaggd {

inline CLI::Validator power_of_two(uint32_t most) {
    return {[most](const std::string &text) {
                uint32_t value = 0;
                const bool ok = CLI::detail::lexical_cast(text, value) && value <= most && std::has_single_bit(value);
                return ok ? std::string() : "must be a power of two up to " + std::to_string(most) + ", not " + text;
            },
            "POWER OF TWO"};
}

} // namespace inaggd
