// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "job_book.hpp"

#include <map>
#include <string>

namespace inaggd {

// The switch above or below this one in a tree that `option` names, as PORT/ADDRESS. `ports`: their numbers, by name; `four`
// and `six`: this switch's addresses. Throws Error.
Neighbour other_switch(const char *option, const std::string &text, const std::map<std::string, uint32_t> &ports,
                       const Address &four, const Address &six);

} // namespace inaggd
