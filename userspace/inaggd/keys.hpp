// SPDX-License-Identifier: BSD-2-Clause
// The keys of jobs: who joins one with a key proves that it knows it, and so does who answers.
#pragma once

#include "job_spec.hpp"

#include <inagg/core/mac.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace inaggd {

class Keys {
public:
    // Adds a file of lines "JOB KEY", "FIRST-LAST KEY", or "KEY" for all jobs; KEY are 32 hexadecimal digits. Throws Error, also
    // if others than its owner may read it.
    void read(const std::string &path);
    // The first line that names the job counts.
    std::optional<inagg_mac_key> find(uint16_t job) const;

private:
    struct Row {
        uint16_t first, last;
        inagg_mac_key key;
    };
    void add(std::string_view line, const std::string &where);

    std::vector<Row> rows_;
};

// That of the file that the specification names; nothing, if it names none. Throws Error.
std::optional<inagg_mac_key> key_of(const JobSpec &spec);

} // namespace inaggd
