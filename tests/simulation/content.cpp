// SPDX-License-Identifier: BSD-2-Clause
#include "content.hpp"

#include <inagg/core/raw.h>

#include <algorithm>
#include <vector>

namespace simulation {

namespace {

// Numbers whose sum tells in which order they were added.
uint32_t any_float(uint64_t random) {
    const uint32_t exponent = 120 + (random >> 32) % 16;
    return static_cast<uint32_t>(random & (INAGG_SIGN | 0x7fffff)) | exponent << 23;
}

// Two by two; who has no partner goes on alone.
Payload add_in_order(std::vector<Payload> sums) {
    while (sums.size() > 1) {
        std::vector<Payload> above;
        for (size_t i = 0; i < sums.size(); i += 2) {
            above.push_back(sums[i]);
            if (i + 1 < sums.size())
                above.back().add(sums[i + 1]);
        }
        sums.swap(above);
    }
    return sums.empty() ? Payload{} : sums[0];
}

} // namespace

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
    return sc.algorithm == INAGG_TRIO && sc.ranks > 2 && use_of(block) == Use::sum && hash(block, 5) % 8 == 0 &&
           rank == hash(block, 6) % sc.ranks;
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
    b.elements = has_elements(block, rank) ? static_cast<uint16_t>(INAGG_CHUNK * (1 + hash(block, 3) % 2)) : 0;
    b.dtype_op = sc.control ? INAGG_WIRE_NONE << 4 : INAGG_WIRE_INT32 << 4;
    if (sc.algorithm == INAGG_ATP && use_of(block) == Use::sum)
        b.dtype_op = INAGG_WIRE_FIXED32 << 4;
    b.stream = sc.control;
    if (is_float(block)) {
        b.dtype_op = INAGG_WIRE_FLOAT32 << 4;
        return b;
    }
    b.scale = static_cast<uint8_t>(hash(block, 4));
    b.next_scale = static_cast<uint8_t>(hash(block, 100 + rank));
    b.saturated = hash(block, 200 + rank) % 16 == 0;
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
        if (is_float(block))
            p.real = any_float(p.value);
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

uint64_t Content::behind(uint32_t n) const {
    uint64_t ranks = 0;
    for (uint32_t rank = 0; rank < sc.ranks; rank++) {
        uint32_t at = sc.leaf_of[rank];
        while (at > n) // parents have lower numbers
            at = sc.parents[at];
        ranks |= at == n ? inagg_rank_bit(rank) : 0;
    }
    return ranks;
}

Payload Content::float_sum(uint32_t block, uint64_t ranks, uint32_t n) const {
    std::vector<Payload> children; // by their lowest ranks
    for (uint32_t rank = 0; rank < sc.ranks; rank++) {
        if (!(ranks & inagg_rank_bit(rank)))
            continue;
        uint32_t child = sc.leaf_of[rank];
        while (child != n && sc.parents[child] != n)
            child = sc.parents[child];
        const uint64_t of_child = child == n ? inagg_rank_bit(rank) : ranks & behind(child);
        children.push_back(child == n ? contribution(block, rank) : float_sum(block, of_child, child));
        ranks &= ~of_child;
    }
    return add_in_order(children);
}

Payload Content::sum_of(uint32_t block, uint64_t seen, bool raw) const {
    if (is_float(block))
        return float_sum(block, seen, 0);
    Payload sum;
    for (uint32_t rank = 0; rank < sc.ranks; rank++)
        if (seen & inagg_rank_bit(rank))
            sum.add(contribution(block, rank, raw));
    return sum;
}

} // namespace simulation
