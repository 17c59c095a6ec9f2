// SPDX-License-Identifier: BSD-2-Clause
#include "ring_lanes.hpp"

#include "carrier.hpp"
#include "convert.hpp"

#include <inagg/core/float32.h>

#include <bit>
#include <cstring>

namespace inagg {

namespace {

// The NaN that sums in a switch have, whatever went in.
uint32_t canonical(uint32_t bits) { return (bits & ~INAGG_SIGN) > INAGG_INFINITY ? INAGG_NAN : bits; }

template <uint32_t (*fold)(uint32_t, uint32_t)> void fold_all(uint32_t *partial, const uint32_t *own, std::size_t count) {
    for (std::size_t i = 0; i < count; i++)
        partial[i] = fold(partial[i], own[i]);
}

uint32_t add_floats(uint32_t a, uint32_t b) { return std::bit_cast<uint32_t>(std::bit_cast<float>(a) + std::bit_cast<float>(b)); }
uint32_t add_integers(uint32_t a, uint32_t b) { return a + b; }
uint32_t smaller(uint32_t a, uint32_t b) { return static_cast<int32_t>(a) < static_cast<int32_t>(b) ? a : b; }
uint32_t larger(uint32_t a, uint32_t b) { return static_cast<int32_t>(a) > static_cast<int32_t>(b) ? a : b; }

} // namespace

RingLanes::RingLanes(inagg_dtype dtype, inagg_op op, uint16_t ranks)
    : dtype_(dtype), op_(op), ranks_(ranks), bytes_(inagg_memory_bytes(dtype)),
      floats_(dtype != INAGG_INT32 && carried(op) == INAGG_SUM) {
    inagg_coding_init(&coding_, dtype, carried(op), ranks, 0, INAGG_FLOATS_RAW);
}

void RingLanes::load(const void *elements, uint32_t *lanes, std::size_t count) const {
    if (!floats_)
        inagg_encode_block(&coding_, elements, lanes, static_cast<uint32_t>(count));
    else if (bytes_ == sizeof(*lanes))
        std::memcpy(lanes, elements, count * bytes_);
    else
        for (std::size_t i = 0; i < count; i++)
            lanes[i] = inagg_encode(&coding_, inagg_element(elements, i, 2), nullptr);
}

void RingLanes::fold(uint32_t *partial, const uint32_t *own, std::size_t count) const {
    if (floats_)
        fold_all<add_floats>(partial, own, count);
    else if (op_ == INAGG_SUM)
        fold_all<add_integers>(partial, own, count);
    else if (op_ == INAGG_MIN)
        fold_all<smaller>(partial, own, count);
    else
        fold_all<larger>(partial, own, count);
}

void RingLanes::store(const uint32_t *lanes, void *elements, std::size_t count) const {
    if (!floats_)
        inagg_decode_block(&coding_, lanes, elements, static_cast<uint32_t>(count), ranks_);
    for (std::size_t i = 0; floats_ && i < count; i++) {
        const uint32_t bits = canonical(lanes[i]);
        inagg_set_element(elements, i, static_cast<uint32_t>(bytes_),
                          bytes_ == sizeof(bits) ? bits : inagg_decode(&coding_, bits, ranks_));
    }
    if (op_ == INAGG_AVG)
        divide(elements, count, dtype_, ranks_);
}

} // namespace inagg
