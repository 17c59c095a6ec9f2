// SPDX-License-Identifier: BSD-2-Clause
// The shell around a run: whatever happens to the launcher, the kernel removes everything.
#pragma once

#include <functional>

namespace netns {

// Of a run alone, since its /run is its own; there from the beginning.
constexpr const char *scratch = "/run/inagg";

// Runs `body` as process 1 of a new PID namespace, with mounts and a network of its own: a fresh /proc, an
// empty BPF file system on /sys/fs/bpf, an empty /run. SIGINT, SIGTERM and SIGHUP are blocked in the body and
// passed on to it; a second one kills it. When it ends, or the launcher does (kill -9 included), the kernel
// kills every process in there, and with them go namespaces, links and BPF programs. Returns the body's
// result.
int run_isolated(const std::function<int()> &body);

} // namespace netns
