// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "error.hpp"

#include <algorithm>
#include <string>
#include <vector>

namespace inaggd {

// The values of an option that may be given more than once, each another.
inline void need_different(const char *option, std::vector<std::string> values) {
    std::ranges::sort(values);
    if (const auto twice = std::ranges::adjacent_find(values); twice != values.end())
        throw Error("{} {}: given twice", option, *twice);
}

} // namespace inaggd
