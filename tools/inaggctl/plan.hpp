// SPDX-License-Identifier: BSD-2-Clause
// Which trees the jobs of a fabric have, and what its switches and ranks have to be told (PANAMA, §3 and §4.1).
#pragma once

#include "fabric.hpp"
#include "report.hpp"

namespace inaggctl {

// "jobs": number, trees and ranks of each; "links": from each leaf, what part of the jobs' tensors goes over them; "files":
// contents by name, of inaggd on each switch and of the environment of each host's ranks; "warnings". Throws inaggd::Error.
json plan(const Fabric &fabric);
void print_plan(const json &plan);
// Writes "files" there; makes the directory. Throws inaggd::Error.
void write_files(const json &plan, const std::string &directory);

} // namespace inaggctl
