// SPDX-License-Identifier: BSD-2-Clause
// Bytes from outside, as a fuzzer makes them, taken apart: what is asked for beyond their end is zero.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

// Of each fuzzer; libFuzzer calls it, or driver.cpp does.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

namespace fuzz {

// What must hold; else the input is a finding.
inline void need(bool holds, const char *what) {
    if (holds)
        return;
    fmt::print(stderr, "violated: {}\n", what);
    std::abort();
}

class Bytes {
public:
    Bytes(const uint8_t *data, size_t size) : left_(data, size) {}

    bool empty() const { return left_.empty(); }

    template <typename Value> Value take() {
        Value value{};
        const size_t bytes = std::min(sizeof value, left_.size());
        if (bytes)
            std::memcpy(&value, left_.data(), bytes);
        left_ = left_.subspan(bytes);
        return value;
    }
    // 0 .. n-1
    uint32_t below(uint32_t n) { return take<uint8_t>() % n; }
    std::string rest() {
        const std::string text(left_.begin(), left_.end());
        left_ = {};
        return text;
    }
    std::vector<uint8_t> some(size_t most) {
        const auto part = left_.first(std::min(most, left_.size()));
        left_ = left_.subspan(part.size());
        return {part.begin(), part.end()};
    }

private:
    std::span<const uint8_t> left_;
};

} // namespace fuzz
