// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "metrics.hpp"
#include "server.hpp"

#include <nlohmann/json.hpp>

namespace ps {

// An array with a row of counters for each job, as of `inaggctl --json stats`; `job` is "past" for the sum of those
// that have gone and null for what belonged to none.
nlohmann::ordered_json statistics(const Server &server);
// The same rows for Prometheus.
inaggd::Metrics metrics(const Server &server);

} // namespace ps
