// SPDX-License-Identifier: BSD-2-Clause
// What a switch has and does, as JSON: read from its pinned maps, or asked of the agent of one that has none.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace inaggd {

// Directories of a switch: of its pins, and of its agent's socket.
struct Where {
    std::string bpffs, run_dir;
};

// Each throws Error if there is no switch, or no such job.
nlohmann::ordered_json read_status(const Where &where);
nlohmann::ordered_json read_jobs(const Where &where);
nlohmann::ordered_json read_job(const Where &where, uint16_t number); // with its members
// Of one job, or of all and of the packets that belong to none.
nlohmann::ordered_json read_stats(const Where &where, std::optional<uint16_t> job);
nlohmann::ordered_json read_drops(const Where &where, std::optional<uint16_t> job);

} // namespace inaggd
