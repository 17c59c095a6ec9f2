// SPDX-License-Identifier: BSD-2-Clause
// Least privilege of daemons that root starts.
#pragma once

#include <initializer_list>

namespace inagg {

// Give up all capabilities(7) but `kept` (CAP_… numbers), for this process, its threads and what it executes, and the ways to new
// ones (no_new_privs). What the caller does not have it does not get. Before threads are started. Throws std::system_error.
void keep_capabilities(std::initializer_list<int> kept);

// Does this process have all of these?
bool has_capabilities(std::initializer_list<int> wanted);

} // namespace inagg
