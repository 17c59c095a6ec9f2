// SPDX-License-Identifier: BSD-2-Clause
#include "limbs.hpp"

#include <inagg/core/tensor.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

namespace inagg {

namespace {

__extension__ using Integer = __int128; // of units: limbs of all ranks together have at most 127 bits

constexpr int fraction_bits = 52;
constexpr int subnormal_exponent = -1074; // of the least positive double
constexpr uint64_t hidden_bit = uint64_t{1} << fraction_bits;

// A finite double is mantissa * 2^exponent.
struct Parts {
    int64_t mantissa;
    int exponent;
};

Parts parts_of(double value) {
    const auto bits = std::bit_cast<uint64_t>(value);
    const auto biased = static_cast<int>(bits >> fraction_bits & 0x7ff);
    const uint64_t fraction = bits & (hidden_bit - 1);
    const auto magnitude = static_cast<int64_t>(biased ? fraction | hidden_bit : fraction);
    return {bits >> 63 ? -magnitude : magnitude, subnormal_exponent + std::max(biased, 1) - 1};
}

void extend(Reach &reach, double value) {
    if (!std::isfinite(value)) {
        reach.nonfinite = 1;
        return;
    }
    const Parts parts = parts_of(value);
    const auto magnitude = static_cast<uint64_t>(std::abs(parts.mantissa));
    if (!magnitude)
        return;
    reach.finest = std::max(reach.finest, -(parts.exponent + std::countr_zero(magnitude)));
    reach.top = std::max(reach.top, parts.exponent + static_cast<int>(std::bit_width(magnitude)));
}

// Negated in uint64_t: the least integer has no positive one.
void extend(Reach &reach, int64_t value) {
    const uint64_t magnitude = value < 0 ? -static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
    if (!magnitude)
        return;
    reach.finest = std::max(reach.finest, -std::countr_zero(magnitude));
    reach.top = std::max(reach.top, static_cast<int32_t>(std::bit_width(magnitude)));
}

Integer in_units(double value, const Limbs &how) {
    if (!std::isfinite(value) || value == 0)
        return 0;
    const Parts parts = parts_of(value);
    const int shift = parts.exponent + how.finest;
    // Below 0 the mantissa has so many zeros at its end; a left shift of a negative number is defined since C++20.
    return shift >= 0 ? static_cast<Integer>(parts.mantissa) << shift : parts.mantissa >> -shift;
}

Integer in_units(int64_t value, const Limbs &how) { return value >> -how.finest; }

void from_units(Integer sum, const Limbs &how, double &value) {
    // Rounded by the conversion. No result of it is subnormal and inexact: no unit is less than the least double.
    value = std::ldexp(static_cast<double>(sum), -how.finest);
}

void from_units(Integer sum, const Limbs &how, int64_t &value) {
    value = static_cast<int64_t>(static_cast<uint64_t>(sum) << -how.finest);
}

} // namespace

template <Wide64 T> Reach reach_of(std::span<const T> elements) {
    Reach reach;
    for (const T element : elements)
        extend(reach, element);
    return reach;
}

std::optional<Limbs> Limbs::of(const Reach &reach, uint32_t ranks) {
    const uint32_t width = width_of(ranks);
    if (reach.is_zero())
        return Limbs{0, width, 0};
    const int64_t bits = int64_t{reach.top} + reach.finest + 1; // with a sign
    const int64_t count = (bits + width - 1) / width;
    if (count > most)
        return std::nullopt;
    return Limbs{reach.finest, width, static_cast<uint32_t>(count)};
}

template <Wide64 T> void to_limbs(std::span<const T> elements, const Limbs &how, int32_t *limbs) {
    const auto mask = (uint32_t{1} << how.width) - 1;
    for (std::size_t j = 0; j < elements.size(); j++) {
        Integer rest = how.count ? in_units(elements[j], how) : 0;
        for (uint32_t i = 0; i + 1 < how.count; i++, rest >>= how.width)
            limbs[i * elements.size() + j] = static_cast<int32_t>(static_cast<uint32_t>(rest) & mask);
        if (how.count)
            limbs[(how.count - 1) * elements.size() + j] = static_cast<int32_t>(rest);
    }
}

template <Wide64 T> void from_limbs(const int32_t *limbs, const Limbs &how, std::span<T> elements) {
    for (std::size_t j = 0; j < elements.size(); j++) {
        Integer sum = 0;
        for (uint32_t i = how.count; i-- > 0;)
            sum = (sum << how.width) + limbs[i * elements.size() + j];
        from_units(sum, how, elements[j]);
    }
}

namespace {

constexpr Reach any_int64 = {0, 64, 0};
constexpr int double_bits = 1024 - subnormal_exponent; // from the least one to infinity

uint32_t digits_of_double(uint32_t ranks) {
    const uint32_t width = Limbs::width_of(ranks);
    return (double_bits + width - 1) / width;
}

// The limbs have the element's sign: each sum of them keeps less than 31 bits.
void to_digits(double value, uint32_t width, int32_t *digits) {
    const Parts parts = parts_of(value);
    const auto bit = static_cast<uint32_t>(parts.exponent - subnormal_exponent);
    const int sign = parts.mantissa < 0 ? -1 : 1;
    auto rest = static_cast<Integer>(std::abs(parts.mantissa)) << bit % width;
    for (int32_t *digit = digits + bit / width; rest; rest >>= width)
        *digit++ = sign * static_cast<int32_t>(static_cast<uint32_t>(rest) & ((uint32_t{1} << width) - 1));
}

// Digits of 0 .. 2^width - 1 with the same sum; returns what is left above them, which has its sign.
int64_t carry(const int32_t *sums, int64_t sign, uint32_t width, std::span<uint32_t> digits) {
    int64_t rest = 0;
    for (uint32_t &digit : digits) {
        rest += sign * *sums++;
        digit = static_cast<uint32_t>(rest) & ((uint32_t{1} << width) - 1);
        rest >>= width;
    }
    return rest;
}

double from_digits(const int32_t *sums, uint32_t width, uint32_t count) {
    std::vector<uint32_t> digits(count + 1); // one more for what 64 ranks' largest elements carry
    const bool negative = carry(sums, 1, width, std::span(digits).first(count)) < 0;
    digits[count] = static_cast<uint32_t>(carry(sums, negative ? -1 : 1, width, std::span(digits).first(count)));
    // The highest 64 bits or more, and in the lowest of them whether there are any below, decide how it is rounded.
    Integer high = 0;
    std::size_t i = digits.size();
    while (i > 0 && high >> 64 == 0)
        high = high << width | digits[--i];
    const auto low = static_cast<int>(i * width);
    if (std::any_of(digits.begin(), digits.begin() + static_cast<std::ptrdiff_t>(i), [](uint32_t digit) { return digit; }))
        high |= 1;
    const double magnitude = std::ldexp(static_cast<double>(high), low + subnormal_exponent);
    return negative ? -magnitude : magnitude;
}

} // namespace

template <> uint32_t full_limbs<int64_t>(uint32_t ranks) { return Limbs::of(any_int64, ranks)->count; }

template <> void to_full_limbs(std::span<const int64_t> elements, uint32_t ranks, int32_t *limbs) {
    const Limbs how = *Limbs::of(any_int64, ranks);
    for (std::size_t i = 0; i < elements.size(); i++)
        to_limbs(elements.subspan(i, 1), how, limbs + i * how.count);
}

template <> void from_full_limbs(const int32_t *limbs, uint32_t ranks, std::span<int64_t> elements) {
    const Limbs how = *Limbs::of(any_int64, ranks);
    for (std::size_t i = 0; i < elements.size(); i++)
        from_limbs(limbs + i * how.count, how, elements.subspan(i, 1));
}

template <> uint32_t full_limbs<double>(uint32_t ranks) { return digits_of_double(ranks) + 1; }

template <> void to_full_limbs(std::span<const double> elements, uint32_t ranks, int32_t *limbs) {
    const uint32_t each = full_limbs<double>(ranks);
    std::fill_n(limbs, elements.size() * each, 0);
    for (std::size_t i = 0; i < elements.size(); i++, limbs += each)
        if (std::isfinite(elements[i]))
            to_digits(elements[i], Limbs::width_of(ranks), limbs);
        else
            to_classes(elements.subspan(i, 1), limbs + each - 1);
}

template <> void from_full_limbs(const int32_t *limbs, uint32_t ranks, std::span<double> elements) {
    const uint32_t digits = digits_of_double(ranks);
    for (std::size_t i = 0; i < elements.size(); i++, limbs += digits + 1) {
        elements[i] = from_digits(limbs, Limbs::width_of(ranks), digits);
        apply_classes(limbs + digits, elements.subspan(i, 1));
    }
}

void to_classes(std::span<const double> elements, int32_t *counts) {
    for (const double element : elements)
        *counts++ = std::isfinite(element) ? 0
                    : std::isnan(element)  ? INAGG_ONE_NAN
                    : element > 0          ? INAGG_ONE_INFINITY
                                           : INAGG_ONE_NEGATIVE_INFINITY;
}

// The class of a float32 with the same infinities is that of the double.
void apply_classes(const int32_t *counts, std::span<double> sums) {
    for (double &sum : sums)
        if (const auto count = static_cast<uint32_t>(*counts++))
            sum = std::bit_cast<float>(inagg_class_apply(0, count, INAGG_FLOAT32));
}

int64_t to_ordered64(int64_t value, int64_t) { return value; }

int64_t to_ordered64(double value, int64_t nan) {
    const auto bits = std::bit_cast<int64_t>(value);
    return std::isnan(value) ? nan : bits ^ (bits >> 63 & std::numeric_limits<int64_t>::max());
}

template <> int64_t from_ordered64(int64_t ordered) { return ordered; }

// Both integers that NaN becomes are NaN on the way back.
template <> double from_ordered64(int64_t ordered) {
    return std::bit_cast<double>(ordered ^ (ordered >> 63 & std::numeric_limits<int64_t>::max()));
}

template Reach reach_of(std::span<const double>);
template Reach reach_of(std::span<const int64_t>);
template void to_limbs(std::span<const double>, const Limbs &, int32_t *);
template void to_limbs(std::span<const int64_t>, const Limbs &, int32_t *);
template void from_limbs(const int32_t *, const Limbs &, std::span<double>);
template void from_limbs(const int32_t *, const Limbs &, std::span<int64_t>);

} // namespace inagg
