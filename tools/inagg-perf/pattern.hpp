// SPDX-License-Identifier: BSD-2-Clause
// Random data whose collective result is known exactly.
//
// An element is a function of seed, rank, iteration and index, so every rank can compute every other
// rank's data and the result. Sums of floats are exact because all ranks draw small integers times one
// power of two, chosen so that the sum still fits the type's significand.
#pragma once

#include "arguments.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace perf {

class Pattern {
public:
    // `scale` is inagg_options.scale: sums of float32 keep to it when it is fixed by hand.
    Pattern(const Arguments &args, const Operation &operation, unsigned ranks, int32_t scale, uint32_t iteration,
            bool verified = false);

    /** Write `rank`'s elements 0 .. count-1. */
    void fill(unsigned rank, size_t count, std::byte *out) const;
    /**
     * Number of elements among `count` of `result`, which begins with element `first`, that are not the exact result
     * of the ranks in the bitmap `from`, bit for bit.
     */
    size_t wrong(size_t first, size_t count, const std::byte *result, uint64_t from) const;
    /** The same of all elements and ranks. */
    size_t wrong(size_t count, const std::byte *result) const { return wrong(0, count, result, all_); }

private:
    // Elements are integers until they are encoded: terms of a sum, ordered keys of a minimum or
    // maximum, or bits that are only copied.
    enum class Domain { exact, ordered, raw };

    void values(unsigned rank, size_t first, size_t count, int32_t *out) const;
    void combine(size_t first, size_t count, uint64_t from, int32_t *out) const;
    // `values` are of the elements from `first` on.
    void encode(const int32_t *values, size_t first, size_t count, std::byte *out) const;
    float unit_of(size_t element) const;
    void divide(size_t count, unsigned ranks, std::byte *data) const;
    void build_table(int exponent, int32_t largest);

    Collective collective_;
    inagg_dtype dtype_;
    inagg_op op_;
    bool average_;
    uint64_t all_; // bitmap of the ranks
    uint64_t key_;
    Domain domain_;
    int32_t limit_ = 0;           // terms of exact sums lie in -limit .. limit
    float unit_ = 1;              // what an exact float32 term of 1 stands for
    int shift_ = 0;               // sums of int32 that are verified must not wrap
    size_t outliers_ = 0;         // but in each so many elements, if not 0
    std::vector<uint16_t> table_; // encodings of exact 16-bit sums -largest .. largest
    int32_t largest_ = 0;
};

/** Continue `hash` over `bytes` bytes. */
uint64_t hash_bytes(uint64_t hash, const std::byte *data, size_t bytes);

} // namespace perf
