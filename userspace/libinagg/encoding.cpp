// SPDX-License-Identifier: BSD-2-Clause
#include "encoding.hpp"

#include "convert.hpp"

#include <inagg/core/fixed.h>
#include <inagg/wire.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace inagg {

namespace {

constexpr uint8_t wire(inagg_wire_dtype dtype, inagg_wire_op op = INAGG_WIRE_SUM) {
    return static_cast<uint8_t>(dtype << 4 | op);
}

constexpr std::size_t whole_chunks(std::size_t count) { return count / INAGG_CHUNK * INAGG_CHUNK; }

// Run convert(in, out, count) over `count` elements of memory into whole chunks on the wire: the last
// chunk goes through a buffer that is filled up with zeros.
template <typename In, typename Out, typename Convert>
void pad_out(const In *in, std::size_t count, std::byte *payload, Convert convert) {
    auto *out = reinterpret_cast<Out *>(payload);
    const std::size_t whole = whole_chunks(count);
    if (whole)
        convert(in, out, whole);
    if (whole == count)
        return;
    std::array<In, INAGG_CHUNK> last{};
    std::memcpy(last.data(), in + whole, (count - whole) * sizeof(In));
    convert(last.data(), out + whole, INAGG_CHUNK);
}

// The way back: only `count` elements of memory are written.
template <typename In, typename Out, typename Convert>
void cut_in(const std::byte *payload, Out *out, std::size_t count, Convert convert) {
    const auto *in = reinterpret_cast<const In *>(payload);
    const std::size_t whole = whole_chunks(count);
    if (whole)
        convert(in, out, whole);
    if (whole == count)
        return;
    std::array<Out, INAGG_CHUNK> last;
    convert(in + whole, last.data(), INAGG_CHUNK);
    std::memcpy(out + whole, last.data(), (count - whole) * sizeof(Out));
}

void pad_bytes(const std::byte *in, std::size_t bytes, std::byte *payload, std::size_t padded) {
    std::memcpy(payload, in, bytes);
    std::memset(payload + bytes, 0, padded - bytes);
}

// Elements travel as they lie in memory: int32, and 16-bit floats that the switch adds.
class PlainEncoding : public Encoding {
public:
    PlainEncoding(const Reduction &r, uint8_t dtype_op, std::size_t element_bytes, uint8_t scale)
        : Encoding(r.count, inagg_block_elements(r.elements, dtype_op >> 4)),
          send_(static_cast<const std::byte *>(r.send)), recv_(static_cast<std::byte *>(r.recv)),
          element_bytes_(element_bytes), dtype_op_(dtype_op), scale_(scale) {}

    BlockMeta load(uint32_t index, std::byte *payload) const override {
        const Range r = range(index);
        pad_bytes(send_ + r.first * element_bytes_, r.count * element_bytes_, payload,
                  r.padded * element_bytes_);
        return {.dtype_op = dtype_op_, .scale = scale_, .elements = r.padded};
    }

    bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) override {
        const Range r = range(index);
        if (meta.dtype_op != dtype_op_ || meta.elements != r.padded)
            return false;
        if (recv_)
            std::memcpy(recv_ + r.first * element_bytes_, payload, r.count * element_bytes_);
        return true;
    }

private:
    const std::byte *send_;
    std::byte *recv_;
    std::size_t element_bytes_;
    uint8_t dtype_op_, scale_;
};

// A float32 sum in offset-binary fixed point.
class FixedEncoding : public Encoding {
public:
    FixedEncoding(const Reduction &r, uint8_t scale)
        : Encoding(r.count, r.elements), send_(static_cast<const float *>(r.send)),
          recv_(static_cast<float *>(r.recv)), scale_(scale) {
        const uint32_t log2 = inagg_fan_in_log2(r.size);
        point_ = inagg_fixed_point(log2, scale);
        bias_ = inagg_fixed_bias(log2);
        total_bias_ = bias_ * r.size;
    }

    BlockMeta load(uint32_t index, std::byte *payload) const override {
        const Range r = range(index);
        bool saturated = false;
        pad_out<float, uint32_t>(send_ + r.first, r.count, payload,
                                 [&](const float *in, uint32_t *out, std::size_t n) {
                                     saturated |= to_fixed(in, out, n, point_, bias_);
                                 });
        return {.dtype_op = dtype_op, .scale = scale_, .elements = r.padded, .saturated = saturated};
    }

    bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) override {
        const Range r = range(index);
        if (meta.dtype_op != dtype_op || meta.scale != scale_ || meta.elements != r.padded)
            return false;
        if (recv_)
            cut_in<uint32_t>(payload, recv_ + r.first, r.count,
                             [&](const uint32_t *in, float *out, std::size_t n) {
                                 from_fixed(in, out, n, point_, total_bias_);
                             });
        return true;
    }

private:
    static constexpr uint8_t dtype_op = wire(INAGG_WIRE_FIXED32);
    const float *send_;
    float *recv_;
    int point_;
    uint32_t bias_, total_bias_;
    uint8_t scale_;
};

// Minimum or maximum of a float type, as integers of the same order.
template <typename Float> class OrderedEncoding : public Encoding {
public:
    OrderedEncoding(const Reduction &r, uint8_t dtype_op, uint16_t infinity)
        : Encoding(r.count, r.elements), send_(static_cast<const Float *>(r.send)),
          recv_(static_cast<Float *>(r.recv)), dtype_op_(dtype_op), infinity_(infinity),
          nan_(r.op == INAGG_MAX ? INT32_MAX : INT32_MIN) {}

    BlockMeta load(uint32_t index, std::byte *payload) const override {
        const Range r = range(index);
        pad_out<Float, int32_t>(send_ + r.first, r.count, payload,
                                [&](const Float *in, int32_t *out, std::size_t n) {
                                    if constexpr (sizeof(Float) == 4)
                                        to_ordered(in, out, n, nan_);
                                    else
                                        to_ordered16(in, out, n, infinity_, nan_);
                                });
        return {.dtype_op = dtype_op_, .elements = r.padded};
    }

    bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) override {
        const Range r = range(index);
        if (meta.dtype_op != dtype_op_ || meta.elements != r.padded)
            return false;
        if (recv_)
            cut_in<int32_t>(payload, recv_ + r.first, r.count,
                            [&](const int32_t *in, Float *out, std::size_t n) {
                                if constexpr (sizeof(Float) == 4)
                                    from_ordered(in, out, n);
                                else
                                    from_ordered16(in, out, n);
                            });
        return true;
    }

private:
    const Float *send_;
    Float *recv_;
    uint8_t dtype_op_;
    uint16_t infinity_;
    int32_t nan_;
};

// A sum to which only the root contributes: its bytes come out everywhere.
class BroadcastEncoding : public Encoding {
public:
    BroadcastEncoding(std::byte *data, std::size_t bytes, uint16_t elements, bool root)
        : Encoding((bytes + 3) / 4, elements), data_(data), bytes_(bytes), root_(root) {}

    BlockMeta load(uint32_t index, std::byte *payload) const override {
        const Range r = range(index);
        // Zeros, not nothing: the switch answers in the frame that came, and cannot grow a small one.
        if (!root_)
            std::memset(payload, 0, std::size_t{r.padded} * 4);
        else
            pad_bytes(data_ + r.first * 4, bytes_of(r), payload, std::size_t{r.padded} * 4);
        return {.dtype_op = dtype_op, .elements = r.padded};
    }

    bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) override {
        const Range r = range(index);
        if (meta.dtype_op != dtype_op || meta.elements != r.padded)
            return false;
        if (!root_)
            std::memcpy(data_ + r.first * 4, payload, bytes_of(r));
        return true;
    }

private:
    std::size_t bytes_of(const Range &r) const { return std::min(r.count * 4, bytes_ - r.first * 4); }

    static constexpr uint8_t dtype_op = wire(INAGG_WIRE_INT32);
    std::byte *data_;
    std::size_t bytes_;
    bool root_;
};

class ExponentBlock : public Encoding {
public:
    ExponentBlock(uint8_t exponent, uint8_t &agreed) : Encoding(1, 1), exponent_(exponent), agreed_(agreed) {}

    BlockMeta load(uint32_t, std::byte *) const override {
        return {.dtype_op = wire(INAGG_WIRE_NONE), .next_scale = exponent_};
    }

    bool store(uint32_t, const BlockMeta &meta, const std::byte *) override {
        agreed_ = meta.next_scale;
        return meta.dtype_op == wire(INAGG_WIRE_NONE);
    }

private:
    uint8_t exponent_;
    uint8_t &agreed_;
};

// Ten bits for each class in one integer: 64 ranks cannot carry from one to the next.
enum : int32_t { one_infinity = 1, one_negative_infinity = 1 << 10, one_nan = 1 << 20 };
constexpr int32_t class_mask = 0x3ff;

template <typename Bits> struct FloatFormat { Bits infinity, sign, nan; };
constexpr FloatFormat<uint32_t> binary32 = {0x7f800000, 0x80000000, 0x7fc00000};
constexpr FloatFormat<uint16_t> binary16 = {0x7c00, 0x8000, 0x7e00};
constexpr FloatFormat<uint16_t> bfloat16 = {0x7f80, 0x8000, 0x7fc0};

// Copy the finite elements of `in` to `finite` and count what the others are.
template <typename Bits>
void split(const void *in, void *finite, std::vector<int32_t> &counts, const FloatFormat<Bits> &format) {
    const auto *from = static_cast<const Bits *>(in);
    auto *to = static_cast<Bits *>(finite);
    for (std::size_t i = 0; i < counts.size(); i++) {
        const Bits magnitude = from[i] & static_cast<Bits>(~format.sign);
        if (magnitude < format.infinity)
            to[i] = from[i];
        else if (magnitude > format.infinity)
            counts[i] = one_nan;
        else
            counts[i] = from[i] & format.sign ? one_negative_infinity : one_infinity;
    }
}

template <typename Bits>
void overwrite(void *recv, const std::vector<int32_t> &counts, const FloatFormat<Bits> &format) {
    auto *out = static_cast<Bits *>(recv);
    for (std::size_t i = 0; i < counts.size(); i++) {
        const bool infinity = counts[i] & class_mask, negative = counts[i] >> 10 & class_mask;
        const bool nan = counts[i] >> 20 & class_mask || (infinity && negative);
        if (nan)
            out[i] = format.nan;
        else if (infinity || negative)
            out[i] = static_cast<Bits>(format.infinity | (negative ? format.sign : 0));
    }
}

inagg_wire_op wire_op(inagg_op op) {
    return op == INAGG_MIN ? INAGG_WIRE_MIN : op == INAGG_MAX ? INAGG_WIRE_MAX : INAGG_WIRE_SUM;
}

} // namespace

std::size_t size_of(inagg_dtype dtype) { return dtype == INAGG_FLOAT16 || dtype == INAGG_BFLOAT16 ? 2 : 4; }

Encoding::Range Encoding::range(uint32_t index) const {
    const std::size_t first = std::size_t{index} * per_block_;
    const std::size_t count = std::min<std::size_t>(per_block_, count_ - first);
    return {first, count, static_cast<uint16_t>((count + INAGG_CHUNK - 1) / INAGG_CHUNK * INAGG_CHUNK)};
}

std::unique_ptr<Encoding> make_encoding(const Reduction &r, uint8_t scale) {
    const uint8_t int32 = wire(INAGG_WIRE_INT32, wire_op(r.op));
    if (r.dtype == INAGG_INT32)
        return std::make_unique<PlainEncoding>(r, int32, 4, 0);
    const bool sum = r.op == INAGG_SUM;
    switch (r.dtype) {
    case INAGG_FLOAT32:
        if (sum)
            return std::make_unique<FixedEncoding>(r, scale);
        return std::make_unique<OrderedEncoding<float>>(r, int32, 0);
    case INAGG_FLOAT16:
        if (sum)
            return std::make_unique<PlainEncoding>(r, wire(INAGG_WIRE_FLOAT16), 2, scale);
        return std::make_unique<OrderedEncoding<uint16_t>>(r, int32, binary16.infinity);
    default:
        if (sum)
            return std::make_unique<PlainEncoding>(r, wire(INAGG_WIRE_BFLOAT16), 2, scale);
        return std::make_unique<OrderedEncoding<uint16_t>>(r, int32, bfloat16.infinity);
    }
}

std::unique_ptr<Encoding> make_broadcast(void *data, std::size_t bytes, uint16_t elements, bool root) {
    return std::make_unique<BroadcastEncoding>(static_cast<std::byte *>(data), bytes, elements, root);
}

std::unique_ptr<Encoding> make_exponent_block(uint8_t exponent, uint8_t &agreed) {
    return std::make_unique<ExponentBlock>(exponent, agreed);
}

ClassCounts::ClassCounts(const Reduction &reduction)
    : reduction_(reduction), finite_(reduction.count * size_of(reduction.dtype)), counts_(reduction.count) {
    if (reduction.dtype == INAGG_FLOAT32)
        split(reduction.send, finite_.data(), counts_, binary32);
    else
        split(reduction.send, finite_.data(), counts_,
              reduction.dtype == INAGG_FLOAT16 ? binary16 : bfloat16);
}

std::unique_ptr<Encoding> ClassCounts::make_encoding() {
    Reduction r = reduction_;
    r.send = counts_.data();
    r.recv = counts_.data();
    r.dtype = INAGG_INT32;
    return inagg::make_encoding(r, 0);
}

void ClassCounts::combine(void *recv) const {
    if (reduction_.dtype == INAGG_FLOAT32)
        overwrite(recv, counts_, binary32);
    else
        overwrite(recv, counts_, reduction_.dtype == INAGG_FLOAT16 ? binary16 : bfloat16);
}

} // namespace inagg
