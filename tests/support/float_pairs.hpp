// SPDX-License-Identifier: BSD-2-Clause
// Numbers for tests of float addition, in the manner of Berkeley TestFloat: what is near the bounds of a significand for
// each exponent, and pairs whose exponents are near each other.
#pragma once

#include <cstdint>
#include <random>
#include <utility>
#include <vector>

namespace support {

// All exponents, with significands near their bounds and middle: zeros, subnormals, powers of two and their neighbours,
// infinities, quiet and signalling NaN, of both signs.
inline std::vector<uint32_t> boundary_floats() {
    std::vector<uint32_t> numbers;
    for (uint32_t exponent = 0; exponent < 256; exponent++)
        for (const uint32_t fraction : {0x0u, 0x1u, 0x2u, 0x3fffffu, 0x400000u, 0x400001u, 0x7ffffeu, 0x7fffffu})
            for (const uint32_t sign : {0u, 0x80000000u})
                numbers.push_back(sign | exponent << 23 | fraction);
    return numbers;
}

class RandomFloats {
public:
    explicit RandomFloats(uint64_t seed) : random_(seed) {}

    // Every other pair may cancel or round: exponents that are far apart leave nothing to add.
    std::pair<uint32_t, uint32_t> pair() {
        const uint64_t bits = random_();
        const auto a = static_cast<uint32_t>(bits), b = static_cast<uint32_t>(bits >> 32);
        near_ = !near_;
        if (!near_)
            return {a, b};
        const uint32_t exponent = (a >> 23) + (b >> 23) % 61 - 30;
        return {a, (b & 0x807fffff) | (exponent & 0xff) << 23};
    }

private:
    std::mt19937_64 random_;
    bool near_ = false;
};

} // namespace support
