// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <algorithm>
#include <chrono>

namespace inaggd {

// Lets `rate` events a second through, `burst` at once.
class TokenBucket {
public:
    TokenBucket(double rate, double burst) : rate_(rate), burst_(burst), tokens_(burst) {}

    bool take(std::chrono::steady_clock::time_point now) {
        const std::chrono::duration<double> passed = now - last_;
        last_ = now;
        tokens_ = std::min(burst_, tokens_ + passed.count() * rate_);
        if (tokens_ < 1)
            return false;
        tokens_ -= 1;
        return true;
    }

private:
    double rate_, burst_, tokens_;
    std::chrono::steady_clock::time_point last_{};
};

} // namespace inaggd
