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

#include <cstring>

namespace inagg {

HWY_EXPORT(DotSigned);
HWY_EXPORT(DotUnsigned);

namespace {

static_assert(crypto_shorthash_siphash24_KEYBYTES == sizeof(LinearCheck::Key));

uint64_t siphash(const LinearCheck::Key &key, const void *data, std::size_t bytes) {
    unsigned char digest[crypto_shorthash_siphash24_BYTES];
    crypto_shorthash_siphash24(digest, static_cast<const unsigned char *>(data), bytes, key.data());
    uint64_t value;
    std::memcpy(&value, digest, sizeof(value));
    return value;
}

__u64 prf(const void *key, const inagg_check_tag *tag) {
    return siphash(*static_cast<const LinearCheck::Key *>(key), tag, sizeof(*tag));
}

constexpr uint8_t int32_sum = INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM, fixed_sum = INAGG_WIRE_FIXED32 << 4 | INAGG_WIRE_SUM;

// The most that can be made of `label` and the nonces by who knows the key: 128 bits.
LinearCheck::Key derive(const LinearCheck::Key &key, uint16_t label, uint16_t job, std::span<const uint32_t> nonces) {
    std::vector<uint32_t> text(nonces.begin(), nonces.end());
    text.push_back(uint32_t{label} << 16 | job);
    text.push_back(0);
    LinearCheck::Key derived;
    for (uint32_t half = 0; half < 2; half++) {
        text.back() = half;
        const uint64_t value = siphash(key, text.data(), text.size() * sizeof(uint32_t));
        std::memcpy(derived.data() + half * sizeof(value), &value, sizeof(value));
    }
    return derived;
}

} // namespace

LinearCheck::Key LinearCheck::parse_key(std::string_view hex) {
    Key key;
    std::size_t bytes = 0;
    const char *end = nullptr;
    if (hex.size() != 2 * key.size() ||
        sodium_hex2bin(key.data(), key.size(), hex.data(), hex.size(), nullptr, &bytes, &end) || bytes != key.size())
        throw Error(INAGG_EINVAL, "the key has {} characters: it must be {} hexadecimal digits, the same on all ranks",
                    hex.size(), 2 * key.size()); // not the key itself: messages end in logs
    return key;
}

LinearCheck::LinearCheck(const Key &key, const JobConfig &job)
    : rank_(job.rank), size_(job.size), job_(job.job), key_(key), weights_(job.elements) {}

LinearCheck::~LinearCheck() {
    sodium_memzero(key_.data(), key_.size());
    sodium_memzero(mask_key_.data(), mask_key_.size());
    sodium_memzero(weights_.data(), weights_.size() * sizeof(uint32_t));
}

void LinearCheck::begin(std::span<const uint32_t> nonces) {
    enum Label : uint16_t { masks, weights };
    mask_key_ = derive(key_, masks, job_, nonces);
    const Key weight_key = derive(key_, weights, job_, nonces);
    for (uint32_t i = 0; i < weights_.size(); i++)
        weights_[i] = std::max<uint32_t>(1, siphash(weight_key, &i, sizeof(i)) & INT32_MAX);
    begun_ = true;
}

inagg_check_tag LinearCheck::tag_of(const Block &block, const BlockMeta &meta) const {
    inagg_check_tag tag{};
    tag.call = inagg_swap64(block.call);
    tag.context = inagg_swap64(block.context);
    tag.index = inagg_swap32(block.index);
    tag.phase = block.phase;
    tag.chunks = static_cast<uint8_t>(meta.elements / INAGG_CHUNK);
    tag.dtype_op = meta.dtype_op;
    tag.scale = meta.scale;
    return tag;
}

// All elements but the limbs.
uint64_t LinearCheck::weigh(const BlockMeta &meta, const std::byte *payload) const {
    const std::size_t count = meta.elements - INAGG_CHECK_LIMBS;
    if (meta.dtype_op == int32_sum)
        return HWY_DYNAMIC_DISPATCH(DotSigned)(reinterpret_cast<const int32_t *>(payload), weights_.data(), count);
    return HWY_DYNAMIC_DISPATCH(DotUnsigned)(reinterpret_cast<const uint32_t *>(payload), weights_.data(), count);
}

void LinearCheck::seal(const Block &block, const BlockMeta &meta, std::byte *payload, uint32_t fits) const {
    std::byte *limbs = payload + 4 * std::size_t{meta.elements} - 4 * INAGG_CHECK_LIMBS;
    std::memcpy(limbs - 4, &fits, sizeof(fits));
    const inagg_check_tag tag = tag_of(block, meta);
    inagg_check_set_limbs(limbs, weigh(meta, payload) + inagg_check_mask(prf, &mask_key_, &tag, rank_, size_));
}

bool LinearCheck::holds(const Block &block, BlockMeta &meta, const std::byte *payload, Scale scale) const {
    // Others have smaller elements, or none: their payload would end before the limbs.
    if ((meta.dtype_op != int32_sum && meta.dtype_op != fixed_sum) || meta.elements < INAGG_CHUNK ||
        meta.elements > weights_.size())
        return false;
    const std::byte *limbs = payload + 4 * std::size_t{meta.elements} - 4 * INAGG_CHECK_LIMBS;
    const inagg_check_tag tag = tag_of(block, meta);
    if (inagg_check_of_limbs(limbs) !=
        weigh(meta, payload) + inagg_check_masks(prf, &mask_key_, &tag, meta.contributors, size_))
        return false;
    uint32_t fits;
    std::memcpy(&fits, limbs - 4, sizeof(fits));
    meta.saturated |= fits >= INAGG_CHECK_TOO_SMALL;
    const bool right = fits && fits < INAGG_CHECK_TOO_SMALL;
    if (scale == Scale::agreed) // of a rank that may not be in the sum
        return right || (!fits && meta.contributors != inagg_all_ranks(size_));
    return scale == Scale::none || right == (meta.next_scale == meta.scale);
}

} // namespace inagg

#endif // HWY_ONCE
