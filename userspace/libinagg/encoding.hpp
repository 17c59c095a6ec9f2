// SPDX-License-Identifier: BSD-2-Clause
// How a run of elements becomes blocks: one class for each way to travel.
#pragma once

#include "transport.hpp"

#include <inagg/core/tensor.h>
#include <inagg/inagg.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace inagg {

// A contiguous run of blocks and the memory behind them.
class Encoding {
public:
    // `tail`: elements at the end of each block that are somebody else's.
    Encoding(std::size_t count, uint32_t per_block, uint16_t tail = 0) : count_(count), per_block_(per_block), tail_(tail) {}
    virtual ~Encoding() = default;

    uint32_t per_block() const { return per_block_; }
    uint32_t blocks() const { return inagg_blocks_of(count_, per_block_); }
    // Write this rank's part of block `index` to `payload`.
    virtual BlockMeta load(uint32_t index, std::byte *payload) const = 0;
    // The same as floats, if that is what they are. Others always fit.
    virtual BlockMeta load_raw(uint32_t index, std::byte *payload) const { return load(index, payload); }
    // Take the result of block `index`. False if it is not what this rank expects there.
    virtual bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) = 0;

protected:
    // The elements of one block: [first, first + count), padded to whole chunks with the tail on the wire.
    struct Range {
        std::size_t first, count;
        uint16_t padded;
    };
    Range range(uint32_t index) const;

private:
    std::size_t count_;
    uint32_t per_block_;
    uint16_t tail_;
};

// What the encodings need to know about a reduction.
struct Reduction {
    const void *send;
    void *recv; // null: the result is not wanted here
    std::size_t count;
    inagg_dtype dtype;
    inagg_op op;       // not INAGG_AVG
    bool average;      // a sum, divided by the ranks in it
    uint16_t size;     // ranks
    uint16_t elements; // 32-bit elements of it per packet
    uint32_t floats;   // enum inagg_floats
    uint16_t tail = 0; // elements behind them
};

// A block without elements of its own that asks for the ranks' largest `exponent`.
BlockMeta load_exponent(uint8_t exponent, uint16_t tail, std::byte *payload);

// A sum, minimum or maximum. `scale` is the agreed exponent of a float sum.
std::unique_ptr<Encoding> make_encoding(const Reduction &reduction, uint8_t scale);

// `bytes` bytes of `data`, sent by the root and received by the others.
std::unique_ptr<Encoding> make_broadcast(void *data, std::size_t bytes, uint16_t elements, uint16_t tail, bool root);

// One block without elements, whose result tells the ranks' largest `exponent`.
std::unique_ptr<Encoding> make_exponent_block(uint8_t exponent, uint16_t tail, uint8_t &agreed);

// How many ranks put +infinity, -infinity and NaN into each element of a float sum.
class ClassCounts {
public:
    explicit ClassCounts(const Reduction &reduction);
    // The finite part of the input: 0 where it is not finite.
    const void *finite() const { return finite_.data(); }
    std::unique_ptr<Encoding> make_encoding();
    // Write infinities and NaN over the finite sums in `recv`, as IEEE 754 addition gives them. `ranks`: who is in each block of
    // these, of `per_block` elements; empty: all ranks, everywhere.
    void combine(void *recv, std::span<const uint64_t> ranks, uint32_t per_block) const;

private:
    Reduction reduction_;
    std::vector<std::byte> finite_;
    std::vector<int32_t> counts_;
    std::vector<uint64_t> counted_; // whose they are, block by block
};

} // namespace inagg
