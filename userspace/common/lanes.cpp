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

template <typename Function> void ForEach(uint32_t *into, const uint32_t *from, std::size_t count, Function function) {
    const Lanes d;
    const hn::RebindToUnsigned<Lanes> du;
    for (std::size_t i = 0; i < count; i += hn::Lanes(d)) {
        const auto a = hn::BitCast(d, hn::LoadU(du, into + i)), b = hn::BitCast(d, hn::LoadU(du, from + i));
        hn::StoreU(hn::BitCast(du, function(a, b)), du, into + i);
    }
}

void AddLanes(uint32_t *into, const uint32_t *from, std::size_t count) {
    ForEach(into, from, count, [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); });
}

void MinLanes(uint32_t *into, const uint32_t *from, std::size_t count) {
    ForEach(into, from, count, [](auto a, auto b) HWY_ATTR { return hn::Min(a, b); });
}

void MaxLanes(uint32_t *into, const uint32_t *from, std::size_t count) {
    ForEach(into, from, count, [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); });
}

} // namespace inagg::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace inagg {

HWY_EXPORT(AddLanes);
HWY_EXPORT(MinLanes);
HWY_EXPORT(MaxLanes);

void fold_lanes(uint32_t *into, const uint32_t *from, std::size_t count, uint8_t op) {
    switch (op) {
    case INAGG_WIRE_MIN:
        return HWY_DYNAMIC_DISPATCH(MinLanes)(into, from, count);
    case INAGG_WIRE_MAX:
        return HWY_DYNAMIC_DISPATCH(MaxLanes)(into, from, count);
    default:
        return HWY_DYNAMIC_DISPATCH(AddLanes)(into, from, count);
    }
}

} // namespace inagg

#endif // HWY_ONCE
