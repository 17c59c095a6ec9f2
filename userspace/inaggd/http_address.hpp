// SPDX-License-Identifier: BSD-2-Clause
// Where a program serves HTTP, if it is asked to.
#pragma once

#include <CLI/CLI.hpp>

#include <string>

namespace inaggd {

// A check of options: "ADDRESS:PORT", or "PORT" of the loopback interface, which the text becomes. IPv4: given an
// IPv6 address, Debian's CivetWeb does not listen.
CLI::Validator http_address();
// Throws Error, which names `option`, if none of this machine's interfaces has the address.
void need_own_address(const std::string &option, const std::string &where);
// Throws it also if somebody listens there.
void need_free_address(const std::string &option, const std::string &where);
// May not two programs listen at these at a time?
bool overlap(const std::string &one, const std::string &other);

} // namespace inaggd
