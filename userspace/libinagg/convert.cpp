// SPDX-License-Identifier: BSD-2-Clause
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "convert.cpp" // compiled once for each instruction set
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "convert.hpp"

#include <inagg/wire.h>

HWY_BEFORE_NAMESPACE();
namespace inagg::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most a chunk wide, so that chunks are whole vectors also where vectors are longer.
template <typename T> using Tag = hn::CappedTag<T, INAGG_CHUNK>;

// Largest of the bit patterns without their sign.
template <typename T> T MaxMagnitude(const T *in, std::size_t count) {
    const Tag<T> d;
    const std::size_t lanes = hn::Lanes(d);
    constexpr T magnitude = static_cast<T>(T(~T{0}) >> 1);
    const auto mask = hn::Set(d, magnitude);
    auto a = hn::Zero(d), b = a;
    std::size_t i = 0;
    for (; i + 2 * lanes <= count; i += 2 * lanes) {
        a = hn::Max(a, hn::And(hn::LoadU(d, in + i), mask));
        b = hn::Max(b, hn::And(hn::LoadU(d, in + i + lanes), mask));
    }
    T buffer[INAGG_CHUNK] = {};
    hn::StoreU(hn::Max(a, b), d, buffer);
    T largest = 0;
    for (const T lane : buffer)
        largest = lane > largest ? lane : largest;
    for (; i < count; i++) {
        T bits;
        __builtin_memcpy(&bits, in + i, sizeof(bits));
        bits = static_cast<T>(bits & magnitude);
        largest = bits > largest ? bits : largest;
    }
    return largest;
}

uint32_t MaxMagnitude32(const uint32_t *in, std::size_t count) { return MaxMagnitude(in, count); }
uint16_t MaxMagnitude16(const uint16_t *in, std::size_t count) { return MaxMagnitude(in, count); }

bool ToFixed(const float *in, uint32_t *out, std::size_t count, float scale1, float scale2, float limit, float largest,
             uint32_t bias) {
    const Tag<float> d;
    const Tag<uint32_t> du;
    const auto s1 = hn::Set(d, scale1), s2 = hn::Set(d, scale2), top = hn::Set(d, limit);
    const auto most = hn::Set(d, largest);
    const auto offset = hn::Set(du, bias);
    auto fits = hn::Eq(s1, s1);
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
        const auto scaled = hn::Mul(hn::Mul(hn::LoadU(d, in + i), s1), s2);
        const auto fit = hn::Lt(hn::Abs(scaled), top); // false for NaN
        fits = hn::And(fits, fit);
        const auto clamped = hn::IfThenElse(fit, scaled, hn::CopySign(most, scaled));
        hn::StoreU(hn::Add(hn::BitCast(du, hn::NearestInt(clamped)), offset), du, out + i);
    }
    return !hn::AllTrue(d, fits);
}

void FromFixed(const uint32_t *in, float *out, std::size_t count, float scale1, float scale2, uint32_t bias) {
    const Tag<float> d;
    const Tag<uint32_t> du;
    const Tag<int32_t> di;
    const auto s1 = hn::Set(d, scale1), s2 = hn::Set(d, scale2);
    const auto offset = hn::Set(du, bias);
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
        const auto fixed = hn::BitCast(di, hn::Sub(hn::LoadU(du, in + i), offset));
        hn::StoreU(hn::Mul(hn::Mul(hn::ConvertTo(d, fixed), s1), s2), d, out + i);
    }
}

// A negative float's magnitude bits are flipped: two's complement order is then the floats' order.
template <class V> V Flip(V bits) {
    const hn::DFromV<V> d;
    return hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), hn::Set(d, INT32_MAX)));
}

void ToOrdered(const int32_t *in, int32_t *out, std::size_t count, int32_t nan) {
    const Tag<int32_t> d;
    const auto magnitude = hn::Set(d, INT32_MAX), infinity = hn::Set(d, 0x7f800000), instead = hn::Set(d, nan);
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
        const auto bits = hn::LoadU(d, in + i);
        const auto is_nan = hn::Gt(hn::And(bits, magnitude), infinity);
        hn::StoreU(hn::IfThenElse(is_nan, instead, Flip(bits)), d, out + i);
    }
}

void FromOrdered(const int32_t *in, int32_t *out, std::size_t count) {
    const Tag<int32_t> d;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d))
        hn::StoreU(Flip(hn::LoadU(d, in + i)), d, out + i);
}

// 16-bit floats in 32-bit lanes. Magnitudes have no sign, so signed comparisons do.
using Lanes = Tag<int32_t>;
using V32 = hn::Vec<Lanes>;
using FromHalves = hn::Rebind<uint16_t, Lanes>;

V32 WidenBfloat16(V32 bits) { return hn::ShiftLeft<16>(bits); }

V32 WidenFloat16(V32 bits) {
    const Lanes d;
    const hn::Rebind<float, Lanes> df;
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fff));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto normal = hn::Add(hn::ShiftLeft<13>(magnitude), hn::Set(d, 112 << 23));
    const auto infinite = hn::Add(normal, hn::Set(d, 112 << 23)); // or NaN
    const auto integer = hn::ConvertTo(df, magnitude);
    const auto subnormal = hn::BitCast(d, hn::Mul(integer, hn::Set(df, 0x1p-24F)));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 0x400)), subnormal, normal);
    return hn::Or(sign, hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7bff)), infinite, finite));
}

// Without the lowest bits, to nearest even.
template <int bits> V32 RoundOff(V32 x) {
    const Lanes d;
    const auto odd = hn::And(hn::ShiftRight<bits>(x), hn::Set(d, 1));
    return hn::ShiftRight<bits>(hn::Add(x, hn::Add(odd, hn::Set(d, (1 << (bits - 1)) - 1))));
}

// Adds the sign to a half's magnitude, if the float is none of the NaN.
V32 SignOrNan(V32 bits, V32 magnitude, V32 half, int32_t nan) {
    const Lanes d;
    const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000));
    return hn::IfThenElse(hn::Gt(magnitude, hn::Set(d, 0x7f800000)), hn::Set(d, nan), hn::Or(half, sign));
}

V32 NarrowBfloat16(V32 bits) {
    const auto magnitude = hn::And(bits, hn::Set(Lanes(), 0x7fffffff));
    return SignOrNan(bits, magnitude, RoundOff<16>(magnitude), 0x7fc0);
}

V32 NarrowFloat16(V32 bits) {
    const Lanes d;
    const hn::Rebind<float, Lanes> df;
    const auto magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
    const auto normal = hn::Min(RoundOff<13>(hn::Sub(magnitude, hn::Set(d, 112 << 23))), hn::Set(d, 0x7c00));
    // the sum's last bit is worth as much as a subnormal's: the addition rounds
    const auto half = hn::Set(df, 0.5F);
    const auto subnormal = hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(df, magnitude), half)), hn::BitCast(d, half));
    const auto finite = hn::IfThenElse(hn::Lt(magnitude, hn::Set(d, 113 << 23)), subnormal, normal);
    return SignOrNan(bits, magnitude, finite, 0x7e00);
}

template <V32 convert(V32)> void WidenAll(const uint16_t *in, int32_t *out, std::size_t count) {
    const Lanes d;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d))
        hn::StoreU(convert(hn::PromoteTo(d, hn::LoadU(FromHalves(), in + i))), d, out + i);
}

template <V32 convert(V32)> void NarrowAll(const int32_t *in, uint16_t *out, std::size_t count) {
    const Lanes d;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d))
        hn::StoreU(hn::DemoteTo(FromHalves(), convert(hn::LoadU(d, in + i))), FromHalves(), out + i);
}

void Widen(const uint16_t *in, int32_t *out, std::size_t count, bool bfloat16) {
    bfloat16 ? WidenAll<WidenBfloat16>(in, out, count) : WidenAll<WidenFloat16>(in, out, count);
}

void Narrow(const int32_t *in, uint16_t *out, std::size_t count, bool bfloat16) {
    bfloat16 ? NarrowAll<NarrowBfloat16>(in, out, count) : NarrowAll<NarrowFloat16>(in, out, count);
}

} // namespace inagg::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <inagg/core/tensor.h>

#include <algorithm>
#include <cmath>

namespace inagg {

HWY_EXPORT(MaxMagnitude32);
HWY_EXPORT(MaxMagnitude16);
HWY_EXPORT(ToFixed);
HWY_EXPORT(FromFixed);
HWY_EXPORT(ToOrdered);
HWY_EXPORT(FromOrdered);
HWY_EXPORT(Widen);
HWY_EXPORT(Narrow);

namespace {

template <typename T> T max_finite_magnitude(const T *in, std::size_t count, uint32_t infinity) {
    T largest = 0;
    for (std::size_t i = 0; i < count; i++) {
        const T magnitude = static_cast<T>(in[i] & (T(~T{0}) >> 1));
        if (magnitude < infinity)
            largest = std::max(largest, magnitude);
    }
    return largest;
}

} // namespace

uint8_t max_exponent(const void *data, std::size_t count, inagg_dtype dtype) {
    const uint32_t magnitude = dtype == INAGG_FLOAT32
                                   ? HWY_DYNAMIC_DISPATCH(MaxMagnitude32)(static_cast<const uint32_t *>(data), count)
                                   : HWY_DYNAMIC_DISPATCH(MaxMagnitude16)(static_cast<const uint16_t *>(data), count);
    return inagg_exponent_of(magnitude, dtype);
}

uint8_t max_finite_exponent(const void *data, std::size_t count, inagg_dtype dtype) {
    const uint32_t infinity = inagg_infinity(dtype);
    const uint32_t magnitude = dtype == INAGG_FLOAT32
                                   ? max_finite_magnitude(static_cast<const uint32_t *>(data), count, infinity)
                                   : max_finite_magnitude(static_cast<const uint16_t *>(data), count, infinity);
    return inagg_exponent_of(magnitude, dtype);
}

bool to_fixed(const float *in, uint32_t *out, std::size_t count, int point, uint32_t bias) {
    // 2^point may lie outside binary32, its two halves never do; both products are exact or round to 0.
    const float scale1 = std::ldexp(1.0F, point / 2), scale2 = std::ldexp(1.0F, point - point / 2);
    const auto limit = static_cast<float>(bias);
    return HWY_DYNAMIC_DISPATCH(ToFixed)(in, out, count, scale1, scale2, limit, std::nextafter(limit, 0.0F), bias);
}

void from_fixed(const uint32_t *in, float *out, std::size_t count, int point, uint32_t total_bias) {
    const float scale1 = std::ldexp(1.0F, -(point / 2)), scale2 = std::ldexp(1.0F, -(point - point / 2));
    HWY_DYNAMIC_DISPATCH(FromFixed)(in, out, count, scale1, scale2, total_bias);
}

void to_ordered(const float *in, int32_t *out, std::size_t count, int32_t nan) {
    HWY_DYNAMIC_DISPATCH(ToOrdered)(reinterpret_cast<const int32_t *>(in), out, count, nan);
}

void from_ordered(const int32_t *in, float *out, std::size_t count) {
    HWY_DYNAMIC_DISPATCH(FromOrdered)(in, reinterpret_cast<int32_t *>(out), count);
}

void to_ordered16(const uint16_t *in, int32_t *out, std::size_t count, uint32_t infinity, int32_t nan) {
    for (std::size_t i = 0; i < count; i++)
        out[i] = inagg_to_ordered(static_cast<int16_t>(in[i]), infinity, INT16_MAX, nan);
}

void from_ordered16(const int32_t *in, uint16_t *out, std::size_t count) {
    for (std::size_t i = 0; i < count; i++)
        out[i] = inagg_half_of_ordered(in[i]);
}

void widen(const uint16_t *in, float *out, std::size_t count, inagg_dtype dtype) {
    HWY_DYNAMIC_DISPATCH(Widen)(in, reinterpret_cast<int32_t *>(out), count, dtype == INAGG_BFLOAT16);
}

void narrow(const float *in, uint16_t *out, std::size_t count, inagg_dtype dtype) {
    HWY_DYNAMIC_DISPATCH(Narrow)(reinterpret_cast<const int32_t *>(in), out, count, dtype == INAGG_BFLOAT16);
}

void divide(void *data, std::size_t count, inagg_dtype dtype, uint32_t ranks) {
    if (dtype == INAGG_FLOAT32) {
        auto *floats = static_cast<float *>(data);
        for (std::size_t i = 0; i < count; i++)
            floats[i] /= static_cast<float>(ranks);
        return;
    }
    inagg_average_block(data, static_cast<uint32_t>(count), dtype, ranks);
}

} // namespace inagg

#endif // HWY_ONCE
