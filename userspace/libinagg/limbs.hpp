// SPDX-License-Identifier: BSD-2-Clause
// Elements of 64 bits as several of 32, for switches that know no others.
//
// Sums: all elements of a tensor are multiples of a power of two, its `unit`, and less than 2^bits units. Such an integer
// is cut into limbs of so few bits that the sum of all ranks' limbs fits 32 bits: no carry is lost, the sum is exact, and
// is rounded once, at the end. This is a Kulisch accumulator that has only the digits that a tensor needs.
//
// Few elements need not tell what digits they need: those of all int64 or double fit one packet.
//
// Minimum and maximum: first those of the upper halves, then those of the lower halves among the elements that have it.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>

namespace inagg {

// int64_t and double.
template <typename T>
concept Wide64 = std::is_same_v<T, int64_t> || std::is_same_v<T, double>;

// Which powers of two a tensor's finite elements reach, in a form of which all ranks' maximum is that of all tensors.
struct Reach {
    int32_t finest = std::numeric_limits<int32_t>::min(); // all are multiples of 2^-finest
    int32_t top = std::numeric_limits<int32_t>::min();    // and less than 2^top
    int32_t nonfinite = 0;                                // 1: there are infinities or NaN
    bool operator==(const Reach &) const = default;
    bool covers(const Reach &part) const { return finest >= part.finest && top >= part.top && nonfinite >= part.nonfinite; }

    // Of a reach that is possible: another number than any other's.
    uint64_t packed() const {
        return uint64_t{static_cast<uint32_t>(finest)} << 32 | static_cast<uint32_t>(top) << 1 | static_cast<uint32_t>(nonfinite);
    }

    bool is_zero() const { return top == std::numeric_limits<int32_t>::min(); }
};
// Can elements have it? Else somebody made it up.
template <Wide64 T> bool is_possible(const Reach &reach) {
    const bool is_double = std::is_same_v<T, double>;
    const int32_t finest = is_double ? 1074 : 0, coarsest = is_double ? -1023 : -63, top = is_double ? 1024 : 64;
    if (reach.nonfinite < 0 || reach.nonfinite > is_double)
        return false;
    if (reach.is_zero())
        return reach.finest == reach.top;
    return reach.finest >= coarsest && reach.finest <= finest && reach.top <= top && reach.top >= -finest;
}

template <Wide64 T> Reach reach_of(std::span<const T> elements);

// How the elements of one tensor are cut.
struct Limbs {
    int32_t finest; // the unit is 2^-finest
    uint32_t width; // bits of a limb; the highest one has a sign, too
    uint32_t count; // of them; 0: all elements are 0 or not finite

    static constexpr uint32_t most = 4;
    // What an element may have in all, with its sign, and each limb.
    static constexpr uint32_t bits(uint32_t ranks) { return most * width_of(ranks); }
    static constexpr uint32_t width_of(uint32_t ranks) { return 31U - static_cast<uint32_t>(std::bit_width(ranks - 1)); }
    // For sums of `ranks` tensors; nothing: they need more than so many.
    static std::optional<Limbs> of(const Reach &reach, uint32_t ranks);
};

// limbs[i * elements.size() + j] is limb i of element j; of what is not finite it is 0.
template <Wide64 T> void to_limbs(std::span<const T> elements, const Limbs &how, int32_t *limbs);
// The way back, from sums of limbs. int64_t wraps; double is rounded once, to nearest even.
template <Wide64 T> void from_limbs(const int32_t *limbs, const Limbs &how, std::span<T> elements);

// The same with all limbs that any T may need: full_limbs() for each element, one element after the other. The last one of
// a double counts its infinities and NaN.
template <Wide64 T> uint32_t full_limbs(uint32_t ranks);
template <Wide64 T> void to_full_limbs(std::span<const T> elements, uint32_t ranks, int32_t *limbs);
template <Wide64 T> void from_full_limbs(const int32_t *limbs, uint32_t ranks, std::span<T> elements);

// Of a sum's infinities and NaN: how many ranks have which, as core/tensor.h counts them (enum inagg_class), and the sums
// with them, as IEEE 754 addition gives it.
void to_classes(std::span<const double> elements, int32_t *counts);
void apply_classes(const int32_t *counts, std::span<double> sums);

// Integers of the same order, -0 before 0. NaN becomes `nan`, which is the least or the greatest of all.
int64_t to_ordered64(int64_t value, int64_t nan);
int64_t to_ordered64(double value, int64_t nan);
template <Wide64 T> T from_ordered64(int64_t ordered);

} // namespace inagg
