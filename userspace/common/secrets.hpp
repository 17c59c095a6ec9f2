// SPDX-License-Identifier: BSD-2-Clause
// Files with keys.
#pragma once

#include <string>

namespace inagg {

// Why nobody should use the open file `fd` as one that only its owner knows, and what to do: behind "FILE: ". Empty: nothing
// speaks against it.
std::string objection_to_secrets(int fd);

} // namespace inagg
