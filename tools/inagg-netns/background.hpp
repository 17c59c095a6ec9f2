// SPDX-License-Identifier: BSD-2-Clause
// --background: what it says, and what it means in a topology.
#pragma once

#include "options.hpp"

#include <string>

namespace netns {

// "tcp|dctcp|udp[:SPINE[,SPINE...]][@RATE]". Throws std::invalid_argument naming the value.
Background parse_background(const std::string &text);

// Spines that are not named are all, and datagrams fill the link if they have no rate. Throws std::invalid_argument for
// flows that cannot be.
void prepare_background(Options &options);

} // namespace netns
