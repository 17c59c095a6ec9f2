// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <algorithm>
#include <chrono>

namespace inaggd {

// Lets `rate` a second through, `burst` at once.
class TokenBucket {
public:
    TokenBucket(double rate, double burst) : rate_(rate), burst_(burst), tokens_(burst) {}

    bool has(std::chrono::steady_clock::time_point now) {
        const std::chrono::duration<double> passed = now - last_;
        last_ = now;
        tokens_ = std::min(burst_, tokens_ + passed.count() * rate_);
        return tokens_ >= 1;
    }
    bool take(std::chrono::steady_clock::time_point now) {
        if (!has(now))
            return false;
        spend(1);
        return true;
    }
    // Also more than there are: the next wait longer.
    void spend(double tokens) { tokens_ -= tokens; }

private:
    double rate_, burst_, tokens_;
    std::chrono::steady_clock::time_point last_{};
};

} // namespace inaggd
