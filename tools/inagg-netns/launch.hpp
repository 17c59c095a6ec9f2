// SPDX-License-Identifier: BSD-2-Clause
// Who starts the ranks: the supervisor itself, torchrun (one on each host), or mpirun (one, which enters the others).
#pragma once

#include "network.hpp"
#include "options.hpp"

#include <string>
#include <vector>

namespace netns {

// A command that the supervisor starts.
struct Launch {
    std::string name; // the rank's number; torchrun: the host's name; mpirun
    unsigned host;
    std::vector<std::string> environment; // NAME=value
};

// The commands of a run: one for each rank, or those that start ranks.
std::vector<Launch> launches(const Options &options, const Network &network);

// A host's name. It resolves to its address in the run.
std::string host_name(unsigned host);

// Makes the names resolve and lets enter_host() find the hosts: in process 1, before any command.
void publish_hosts(const Options &options, const Network &network);

// In a run: goes to a host and executes the words of `command`, joined, in a shell there, as ssh would. Returns the
// status of what cannot be executed.
int enter_host(const std::string &name, const std::vector<std::string> &command);

} // namespace netns
