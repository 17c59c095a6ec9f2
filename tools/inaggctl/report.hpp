// SPDX-License-Identifier: BSD-2-Clause
// What inaggctl reads from a switch, as JSON and as text.
#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace inaggctl {

using json = nlohmann::ordered_json;

struct Where {
    std::string bpffs, run_dir;
};

json read_status(const Where &where);
json read_jobs(const Where &where);
json read_job(const Where &where, uint16_t number);
// Of one job, or of all and of the packets that belong to none.
json read_stats(const Where &where, std::optional<uint16_t> job);
json read_drops(const Where &where, std::optional<uint16_t> job);

void print_status(const json &status);
void print_jobs(const json &jobs);
void print_job(const json &job);
void print_stats(const json &stats);
void print_drops(const json &drops);

} // namespace inaggctl
