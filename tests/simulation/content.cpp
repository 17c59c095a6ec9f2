// SPDX-License-Identifier: BSD-2-Clause
#include "content.hpp"

#include <inagg/core/raw.h>

#include <algorithm>

namespace simulation {

Content::Use Content::use_of(uint32_t block) const {
    if (sc.control)
        return Use::barrier;
    return hash(block, 1) % 4 == 0 ? Use::broadcast : Use::sum;
}

bool Content::has_elements(uint32_t block, uint32_t rank) const {
    switch (use_of(block)) {
    case Use::sum:
        return true;
    case Use::broadcast:
        return rank == hash(block, 2) % sc.ranks;
    default:
        return false;
    }
}

bool Content::absent(uint32_t block, uint32_t rank) const {
    return sc.algorithm == INAGG_TRIO && sc.ranks > 2 && use_of(block) == Use::sum &&
           hash(block, 5) % 8 == 0 && rank == hash(block, 6) % sc.ranks;
}

uint64_t Content::absent_from(uint32_t block) const {
    uint64_t ranks = 0;
    for (uint32_t rank = 0; rank < sc.ranks; rank++)
        ranks |= absent(block, rank) ? inagg_rank_bit(rank) : 0;
    return ranks;
}

inagg_block Content::meta_of(uint32_t block, uint32_t rank) const {
    inagg_block b{};
    b.block = block;
    b.generation = generation;
    b.rank = static_cast<uint16_t>(rank);
    b.elements =
        has_elements(block, rank) ? static_cast<uint16_t>(INAGG_CHUNK * (1 + hash(block, 3) % 2)) : 0;
    b.dtype_op = sc.control ? INAGG_WIRE_NONE << 4 : INAGG_WIRE_INT32 << 4;
    if (sc.algorithm == INAGG_ATP && use_of(block) == Use::sum)
        b.dtype_op = INAGG_WIRE_FIXED32 << 4;
    b.scale = static_cast<uint8_t>(hash(block, 4));
    b.next_scale = static_cast<uint8_t>(hash(block, 100 + rank));
    b.saturated = hash(block, 200 + rank) % 16 == 0;
    b.stream = sc.control;
    return b;
}

inagg_block Content::raw_meta_of(uint32_t block, uint32_t rank) const {
    inagg_block b = meta_of(block, rank);
    b.dtype_op = INAGG_RAW_DTYPE_OP;
    b.saturated = 0;
    return b;
}

bool Content::is_raw(uint32_t block) const {
    bool saturated = false;
    for (uint32_t rank = 0; rank < sc.ranks; rank++)
        saturated |= meta_of(block, rank).saturated;
    return saturated && meta_of(block, 0).dtype_op == INAGG_WIRE_FIXED32 << 4;
}

Payload Content::contribution(uint32_t block, uint32_t rank, bool raw) const {
    Payload p;
    if (has_elements(block, rank)) {
        p.value = hash(block, (raw ? 400 : 300) + rank);
        p.counts[rank] = 1;
    }
    return p;
}

inagg_block Content::result_meta(uint32_t block, uint64_t seen) const {
    inagg_block result = meta_of(block, 0);
    result.elements = result.next_scale = result.saturated = 0;
    for (uint32_t rank = 0; rank < sc.ranks; rank++) {
        if (!(seen & inagg_rank_bit(rank)))
            continue;
        const inagg_block b = meta_of(block, rank);
        result.elements = std::max(result.elements, b.elements);
        result.next_scale = std::max(result.next_scale, b.next_scale);
        result.saturated |= b.saturated;
    }
    if (is_raw(block)) {
        result.dtype_op = INAGG_RAW_DTYPE_OP;
        result.saturated = 0;
    }
    return result;
}

Payload Content::sum_of(uint32_t block, uint64_t seen, bool raw) const {
    Payload sum;
    for (uint32_t rank = 0; rank < sc.ranks; rank++)
        if (seen & inagg_rank_bit(rank))
            sum.add(contribution(block, rank, raw));
    return sum;
}

} // namespace simulation
