// SPDX-License-Identifier: BSD-2-Clause
#include "pattern.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

namespace perf {
namespace {

constexpr size_t chunk = 2048; // elements worked on at a time: stays in the first-level cache

struct FloatFormat {
    int significand_bits, exponent_bits;
    int first_exponent, last_exponent; // of the unit of exact sums
};

FloatFormat format_of(inagg_dtype dtype) {
    switch (dtype) {
    case INAGG_FLOAT16:
        return {11, 5, -24, 4}; // down to subnormals, up to sums of 2^15
    case INAGG_BFLOAT16:
        return {8, 8, -90, 90};
    default:
        return {24, 8, -90, 90};
    }
}

// Steele and Vigna's SplitMix64 finalizer: keys from counters.
uint64_t mix64(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

// A 32-bit mixer that vectorises: one per element.
uint32_t mix32(uint32_t x) {
    x = (x ^ (x >> 16)) * 0x7feb352d;
    x = (x ^ (x >> 15)) * 0x846ca68b;
    return x ^ (x >> 16);
}

// Exact conversion of a value that binary16 represents.
uint16_t encode_float16(double value) {
    int exponent;
    double fraction = std::frexp(std::fabs(value), &exponent); // 0.5 <= fraction < 1
    uint16_t sign = std::signbit(value) ? 0x8000 : 0;
    if (value == 0 || exponent < -13)
        return sign | static_cast<uint16_t>(std::ldexp(std::fabs(value), 24));
    auto mantissa = static_cast<uint16_t>((2 * fraction - 1) * 1024);
    return static_cast<uint16_t>(sign | (exponent + 14) << 10 | mantissa);
}

uint16_t encode_bfloat16(double value) { return static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(value)) >> 16); }

float decode_float16(uint16_t bits) {
    const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
    const float magnitude = exponent ? std::ldexp(1024.0f + mantissa, exponent - 25) : std::ldexp(float(mantissa), -24);
    return bits & 0x8000 ? -magnitude : magnitude;
}

// To nearest, ties to even; below the largest that binary16 has.
uint16_t round_to_float16(float value) {
    const int exponent = value == 0 ? -14 : std::max(-14, std::ilogb(value));
    const auto steps = static_cast<int>(std::nearbyint(std::ldexp(std::fabs(value), 10 - exponent)));
    return static_cast<uint16_t>((std::signbit(value) ? 0x8000 : 0) | ((exponent + 14) * 1024 + steps));
}

uint16_t round_to_bfloat16(float value) {
    const auto bits = std::bit_cast<uint32_t>(value);
    return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Signed magnitude to a number with the order of the floats, and back.
int32_t ordered(int32_t bits, int32_t magnitude_mask) { return bits ^ ((bits >> 31) & magnitude_mask); }

} // namespace

Pattern::Pattern(const Arguments &args, const Operation &operation, unsigned ranks, int32_t scale, uint32_t iteration,
                 bool verified)
    : collective_(args.collective), dtype_(operation.dtype), op_(operation.op == INAGG_AVG ? INAGG_SUM : operation.op),
      average_(operation.op == INAGG_AVG), all_(~uint64_t{0} >> (64 - ranks)),
      key_(mix64(args.seed + 0x9e3779b97f4a7c15 * (iteration + 1))) {
    if (collective_ == Collective::broadcast || dtype_ == INAGG_INT32) {
        domain_ = Domain::raw;
        if (verified && collective_ != Collective::broadcast)
            shift_ = std::bit_width(ranks - 1);
        return;
    }
    domain_ = op_ == INAGG_SUM ? Domain::exact : Domain::ordered;
    FloatFormat format = format_of(dtype_);
    limit_ = std::max(1, (1 << format.significand_bits) / static_cast<int>(ranks));
    int span = format.last_exponent - format.first_exponent + 1;
    int exponent = format.first_exponent + static_cast<int>(mix64(key_) % span);
    if (dtype_ == INAGG_FLOAT32 && scale != INAGG_SCALE_AUTO) {
        exponent = -scale;
        outliers_ = args.outliers;
    }
    unit_ = std::ldexp(1.0f, exponent);
    if (element_bytes(dtype_) == 2)
        build_table(exponent, limit_ * static_cast<int>(ranks));
}

void Pattern::build_table(int exponent, int32_t largest) {
    largest_ = largest;
    table_.reserve(2 * largest + 1);
    for (int32_t value = -largest; value <= largest; value++) {
        double number = std::ldexp(value, exponent);
        table_.push_back(dtype_ == INAGG_FLOAT16 ? encode_float16(number) : encode_bfloat16(number));
    }
}

void Pattern::values(unsigned rank, size_t first, size_t count, int32_t *out) const {
    uint64_t key = mix64(key_ + 0x9e3779b97f4a7c15 * (rank + 1));
    auto base = static_cast<uint32_t>(key) + static_cast<uint32_t>(first) * 0x9e3779b9;
    auto high = static_cast<uint32_t>(key >> 32);
    for (size_t i = 0; i < count; i++)
        out[i] = static_cast<int32_t>(mix32((base + static_cast<uint32_t>(i) * 0x9e3779b9) ^ high)) >> shift_;
    if (domain_ == Domain::exact) {
        for (size_t i = 0; i < count; i++)
            out[i] = static_cast<int32_t>(uint64_t(uint32_t(out[i])) * (2 * limit_ + 1) >> 32) - limit_;
    } else if (domain_ == Domain::ordered) {
        bool half = element_bytes(dtype_) == 2;
        int32_t mask = half ? 0x7fff : 0x7fffffff;
        FloatFormat format = format_of(dtype_);
        int32_t exponent_mask = ((1 << format.exponent_bits) - 1) << (format.significand_bits - 1);
        int32_t low_exponent_bit = 1 << (format.significand_bits - 1);
        for (size_t i = 0; i < count; i++) {
            int32_t bits = half ? static_cast<int16_t>(out[i]) : out[i];
            if ((bits & exponent_mask) == exponent_mask) // infinity or NaN: make it finite
                bits ^= low_exponent_bit;
            if (!(bits & mask)) // minus zero equals zero: only one of them has an order
                bits = 0;
            out[i] = ordered(bits, mask);
        }
    }
}

void Pattern::combine(size_t first, size_t count, uint64_t from, int32_t *out) const {
    if (collective_ == Collective::broadcast)
        return values(0, first, count, out);
    int32_t term[chunk];
    values(static_cast<unsigned>(std::countr_zero(from)), first, count, out);
    for (from &= from - 1; from; from &= from - 1) {
        values(static_cast<unsigned>(std::countr_zero(from)), first, count, term);
        for (size_t i = 0; i < count; i++) {
            if (op_ == INAGG_SUM)
                out[i] = static_cast<int32_t>(uint32_t(out[i]) + uint32_t(term[i]));
            else
                out[i] = op_ == INAGG_MIN ? std::min(out[i], term[i]) : std::max(out[i], term[i]);
        }
    }
}

// Exact in float32 as all others, but any of more than a few bits is too large for the scale.
float Pattern::unit_of(size_t element) const {
    constexpr float much = 0x1p30f;
    return outliers_ && element % outliers_ == outliers_ - 1 ? unit_ * much : unit_;
}

void Pattern::encode(const int32_t *values, size_t first, size_t count, std::byte *out) const {
    bool half = element_bytes(dtype_) == 2;
    for (size_t i = 0; i < count; i++) {
        int32_t bits = values[i];
        if (domain_ == Domain::exact)
            bits =
                half ? table_[values[i] + largest_] : std::bit_cast<int32_t>(static_cast<float>(values[i]) * unit_of(first + i));
        else if (domain_ == Domain::ordered)
            bits = ordered(values[i], half ? 0x7fff : 0x7fffffff);
        std::memcpy(out + i * (half ? 2 : 4), &bits, half ? 2 : 4); // little-endian: the low half
    }
}

void Pattern::fill(unsigned rank, size_t count, std::byte *out) const {
    int32_t block[chunk];
    for (size_t first = 0; first < count; first += chunk) {
        size_t n = std::min(chunk, count - first);
        values(rank, first, n, block);
        encode(block, first, n, out + first * element_bytes(dtype_));
    }
}

// Division of the exact sum, rounded once: of 16-bit floats in binary32, which is wide enough for that.
void Pattern::divide(size_t count, unsigned ranks, std::byte *data) const {
    const auto divisor = static_cast<float>(ranks);
    for (size_t i = 0; i < count; i++) {
        uint16_t half;
        float value;
        if (dtype_ == INAGG_FLOAT32) {
            std::memcpy(&value, data + i * 4, 4);
            value /= divisor;
            std::memcpy(data + i * 4, &value, 4);
            continue;
        }
        std::memcpy(&half, data + i * 2, 2);
        value = (dtype_ == INAGG_FLOAT16 ? decode_float16(half) : std::bit_cast<float>(uint32_t{half} << 16)) / divisor;
        half = dtype_ == INAGG_FLOAT16 ? round_to_float16(value) : round_to_bfloat16(value);
        std::memcpy(data + i * 2, &half, 2);
    }
}

size_t Pattern::wrong(size_t begin, size_t count, const std::byte *result, uint64_t from) const {
    int32_t block[chunk];
    std::byte expected[chunk * 4];
    size_t bytes = element_bytes(dtype_), wrong = 0;
    for (size_t first = 0; first < count; first += chunk) {
        size_t n = std::min(chunk, count - first);
        const std::byte *at = result + first * bytes;
        combine(begin + first, n, from, block);
        encode(block, begin + first, n, expected);
        if (average_)
            divide(n, static_cast<unsigned>(std::popcount(from)), expected);
        if (!std::memcmp(at, expected, n * bytes))
            continue;
        for (size_t i = 0; i < n; i++)
            wrong += std::memcmp(at + i * bytes, expected + i * bytes, bytes) != 0;
    }
    return wrong;
}

uint64_t hash_bytes(uint64_t hash, const std::byte *data, size_t bytes) {
    for (size_t i = 0; i < bytes; i += 8) {
        uint64_t word = 0;
        std::memcpy(&word, data + i, std::min<size_t>(8, bytes - i));
        hash = mix64(hash + 0x9e3779b97f4a7c15 + word);
    }
    return hash;
}

} // namespace perf
