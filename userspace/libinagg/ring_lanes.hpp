// SPDX-License-Identifier: BSD-2-Clause
// Elements on their way round a ring: partial results travel in 32-bit lanes, complete ones as the elements that they
// are.
#pragma once

#include <inagg/core/tensor.h>
#include <inagg/inagg.h>

#include <cstddef>
#include <cstdint>

namespace inagg {

class RingLanes {
public:
    RingLanes(inagg_dtype dtype, inagg_op op, uint16_t ranks);

    std::size_t element_bytes() const { return bytes_; }
    // This rank's elements to lanes, for which there is room in whole chunks.
    void load(const void *elements, uint32_t *lanes, std::size_t count) const;
    // Fold this rank's lanes into those of the ranks before it.
    void fold(uint32_t *partial, const uint32_t *own, std::size_t count) const;
    // Lanes of all ranks to elements of the result.
    void store(const uint32_t *lanes, void *elements, std::size_t count) const;

private:
    inagg_dtype dtype_;
    inagg_op op_;
    uint16_t ranks_;
    std::size_t bytes_;
    bool floats_;         // sums of floats are sums of binary32, also of 16-bit ones: those are rounded once, at the end
    inagg_coding coding_; // what others travel as to a switch: integers of the same order
};

} // namespace inagg
