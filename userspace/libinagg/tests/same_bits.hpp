// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <vector>

namespace inagg {

// Bits that all ranks must agree on: of the first rank that brings them. Threads may share one.
class SameBits {
public:
    void expect(std::size_t key, const std::vector<float> &bits) {
        const std::lock_guard lock(mutex_);
        const auto [at, first] = seen_.try_emplace(key, bits);
        EXPECT_TRUE(first || at->second == bits) << "ranks differ in result " << key;
    }

private:
    std::mutex mutex_;
    std::map<std::size_t, std::vector<float>> seen_;
};

} // namespace inagg
