// SPDX-License-Identifier: BSD-2-Clause
#include "neighbours.hpp"

#include "error.hpp"

#include <fmt/ranges.h>

#include <string>
#include <vector>

namespace inaggd {

Neighbour other_switch(const char *option, const std::string &text, const std::map<std::string, uint32_t> &ports,
                       const Address &four, const Address &six) {
    const size_t slash = text.find('/');
    const auto port = ports.find(text.substr(0, slash));
    if (slash == std::string::npos || port == ports.end()) {
        std::vector<std::string> names;
        for (const auto &[name, index] : ports)
            names.push_back(name);
        throw Error("{} {}: write it as PORT/ADDRESS, with one of {}", option, text, fmt::join(names, ", "));
    }
    const auto address = Address::parse(text.substr(slash + 1));
    if (!address || !address->is_host())
        throw Error("{} {}: not an address of a switch", option, text);
    if (*address == four || *address == six)
        throw Error("{} {}: is this switch's own address", option, text);
    if (!(address->family == 4 ? four : six).family)
        throw Error("{} {}: this switch has no address of that family", option, text);
    return {.port = port->second, .address = *address};
}

} // namespace inaggd
