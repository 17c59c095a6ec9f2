// SPDX-License-Identifier: BSD-2-Clause
// What all agents say of what they hear, to ranks and in the log.
#pragma once

#include "job_book.hpp"

#include <string>

namespace inaggd {

// In network byte order; all other fields are zero.
inagg_hdr header_of(inagg_type type, uint16_t job, uint16_t rank, uint16_t generation);
// Of what goes to another switch; `boot` is the agent's own.
inagg_hdr header_of(const Message &message, uint16_t boot);
// What is behind the REFUSED to a rank that is out, which knows itself by its nonce; `header` says who decides.
inagg_join farewell(const Displaced &gone, inagg_hdr &header);
void log_event(const inagg_event &event, const Outcome &outcome, const std::string &port);
uint16_t random_generation();

} // namespace inaggd
