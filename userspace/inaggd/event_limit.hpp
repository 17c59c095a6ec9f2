// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "token_bucket.hpp"

#include <cstdint>
#include <map>

namespace inaggd {

// How many JOINs and LEAVEs of each port an agent looks at. Ranks repeat theirs every few milliseconds, and 64 of them may be
// behind one port.
class EventLimit {
public:
    bool take(uint32_t port, std::chrono::steady_clock::time_point now) {
        return buckets_.try_emplace(port, 4000.0, 4000.0).first->second.take(now);
    }
    void forget(uint32_t port) { buckets_.erase(port); }

private:
    std::map<uint32_t, TokenBucket> buckets_;
};

} // namespace inaggd
