// SPDX-License-Identifier: BSD-2-Clause
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "linear_check.cpp" // compiled once for each instruction set
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace inagg::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// inagg_check_dot(). `T`: the elements' type; weights have 31 bits, so they are the same in both.
template <typename T> uint64_t Dot(const T *in, const uint32_t *weights, std::size_t count) {
    uint64_t total = 0;
    std::size_t i = 0;
#if HWY_TARGET != HWY_SCALAR
    const hn::ScalableTag<T> d;
    const hn::Rebind<uint32_t, decltype(d)> dw;
    const hn::RepartitionToWide<decltype(dw)> wide; // unsigned: sums wrap
    const std::size_t lanes = hn::Lanes(d);
    auto even = hn::Zero(wide), odd = even;
    for (; i + lanes <= count; i += lanes) {
        const auto x = hn::LoadU(d, in + i), w = hn::BitCast(d, hn::LoadU(dw, weights + i));
        even = hn::Add(even, hn::BitCast(wide, hn::MulEven(x, w)));
        odd = hn::Add(odd, hn::BitCast(wide, hn::MulEven(hn::DupOdd(x), hn::DupOdd(w))));
    }
    uint64_t sums[hn::MaxLanes(wide)]; // not SumOfLanes(): GCC's of AVX-512 adds signed numbers
    hn::StoreU(hn::Add(even, odd), wide, sums);
    for (std::size_t lane = 0; lane < hn::Lanes(wide); lane++)
        total += sums[lane];
#endif
    for (; i < count; i++) {
        T x;
        __builtin_memcpy(&x, in + i, sizeof(x));
        total += static_cast<uint64_t>(static_cast<int64_t>(x)) * weights[i];
    }
    return total;
}

uint64_t DotSigned(const int32_t *in, const uint32_t *weights, std::size_t count) { return Dot(in, weights, count); }
uint64_t DotUnsigned(const uint32_t *in, const uint32_t *weights, std::size_t count) { return Dot(in, weights, count); }

} // namespace inagg::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "linear_check.hpp"

#include "error.hpp"

#include <sodium.h>

namespace inagg {

HWY_EXPORT(DotSigned);
HWY_EXPORT(DotUnsigned);

namespace {

static_assert(sizeof(LinearCheck::Key) == INAGG_KEY_BYTES);

__u64 dot(const void *elements, const __u32 *weights, __u32 count, int is_signed) {
    if (is_signed)
        return HWY_DYNAMIC_DISPATCH(DotSigned)(static_cast<const int32_t *>(elements), weights, count);
    return HWY_DYNAMIC_DISPATCH(DotUnsigned)(static_cast<const uint32_t *>(elements), weights, count);
}

} // namespace

LinearCheck::Key LinearCheck::parse_key(std::string_view hex, std::string_view name) {
    Key key;
    std::size_t bytes = 0;
    const char *end = nullptr;
    if (hex.size() != 2 * key.size() || sodium_hex2bin(key.data(), key.size(), hex.data(), hex.size(), nullptr, &bytes, &end) ||
        bytes != key.size())
        throw Error(INAGG_EINVAL, "{} has {} characters: it must be {} hexadecimal digits, the same on all ranks", name,
                    hex.size(), 2 * key.size()); // not the key itself: messages end in logs
    return key;
}

LinearCheck::LinearCheck(const Key &key, const JobConfig &job)
    : job_(job.job), key_(inagg_mac_key_of(key.data())),
      weights_(job.elements), check_{{}, weights_.data(), dot, job.elements, job.rank, job.size} {}

LinearCheck::~LinearCheck() {
    sodium_memzero(&key_, sizeof(key_));
    sodium_memzero(&check_.masks, sizeof(check_.masks));
    sodium_memzero(weights_.data(), weights_.size() * sizeof(uint32_t));
}

void LinearCheck::begin(std::span<const uint32_t> nonces) {
    check_.masks = inagg_check_derive(&key_, INAGG_CHECK_MASKS, job_, nonces.data(), check_.size);
    const inagg_mac_key weights = inagg_check_derive(&key_, INAGG_CHECK_WEIGHTS, job_, nonces.data(), check_.size);
    for (uint32_t i = 0; i < weights_.size(); i++)
        weights_[i] = inagg_check_weight(&weights, i);
    begun_ = true;
}

} // namespace inagg

#endif // HWY_ONCE
