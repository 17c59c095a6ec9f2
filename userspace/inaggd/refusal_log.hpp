// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "token_bucket.hpp"

#include <spdlog/spdlog.h>

#include <cstdint>
#include <utility>

namespace inaggd {

// Strangers can be refused thousands of times a second: a few are told, and how many more there were. For one thread.
class RefusalLog {
public:
    // How the refusal that comes now is to be logged.
    spdlog::level::level_enum next(std::chrono::steady_clock::time_point now = std::chrono::steady_clock::now()) {
        if (!told_.take(now)) {
            more_++;
            return spdlog::level::debug;
        }
        if (more_)
            spdlog::info("{} more refusals were not logged", std::exchange(more_, 0));
        return spdlog::level::info;
    }

private:
    TokenBucket told_{10, 100};
    uint64_t more_ = 0;
};

} // namespace inaggd
