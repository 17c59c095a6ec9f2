// SPDX-License-Identifier: BSD-2-Clause
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "common/lanes.cpp" // compiled once for each instruction set
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lanes.hpp"

#include <inagg/wire.h>

HWY_BEFORE_NAMESPACE();
namespace inagg::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// At most a chunk wide, so that chunks are whole vectors also where vectors are longer.
using Lanes = hn::CappedTag<int32_t, INAGG_CHUNK>;

// `Order`: of the bytes in memory.
template <typename Order, typename Function>
void ForEach(uint32_t *into, const uint32_t *from, std::size_t count, Order order, Function function) {
    const Lanes d;
    const hn::RebindToUnsigned<Lanes> du;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
        const auto a = hn::BitCast(d, order(hn::LoadU(du, into + i))), b = hn::BitCast(d, order(hn::LoadU(du, from + i)));
        hn::StoreU(order(hn::BitCast(du, function(a, b))), du, into + i);
    }
}

template <typename Order> void Fold(uint32_t *into, const uint32_t *from, std::size_t count, uint8_t op, Order order) {
    switch (op) {
    case INAGG_WIRE_MIN:
        return ForEach(into, from, count, order, [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); });
    case INAGG_WIRE_MAX:
        return ForEach(into, from, count, order, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); });
    default:
        return ForEach(into, from, count, order, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
    }
}

void FoldLanes(uint32_t *into, const uint32_t *from, std::size_t count, uint8_t op) {
    Fold(into, from, count, op, [](auto lanes) HWY_ATTR { return lanes; });
}

void FoldTurnedLanes(uint32_t *into, const uint32_t *from, std::size_t count, uint8_t op) {
    Fold(into, from, count, op, [](auto lanes) HWY_ATTR {
        const auto even = hn::Set(hn::DFromV<decltype(lanes)>(), 0x00ff00ff);
        return hn::OrAnd(hn::And(even, hn::RotateRight<24>(lanes)), hn::RotateRight<8>(lanes), hn::Not(even));
    });
}

} // namespace inagg::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace inagg {

HWY_EXPORT(FoldLanes);
HWY_EXPORT(FoldTurnedLanes);

void fold_lanes(uint32_t *into, const uint32_t *from, std::size_t count, uint8_t op) {
    HWY_DYNAMIC_DISPATCH(FoldLanes)(into, from, count, op);
}

void fold_turned_lanes(uint32_t *into, const uint32_t *from, std::size_t count, uint8_t op) {
    HWY_DYNAMIC_DISPATCH(FoldTurnedLanes)(into, from, count, op);
}

} // namespace inagg

#endif // HWY_ONCE
