// SPDX-License-Identifier: BSD-2-Clause
#include "encoding.hpp"

#include "convert.hpp"

#include <inagg/core/raw.h>

#include <algorithm>
#include <array>
#include <cstring>

namespace inagg {

namespace {

BlockMeta meta_of(uint8_t dtype_op, uint8_t scale, uint16_t elements, bool saturated = false) {
    BlockMeta meta{};
    meta.dtype_op = dtype_op;
    meta.scale = scale;
    meta.saturated = saturated;
    meta.elements = elements;
    return meta;
}

constexpr std::size_t whole_chunks(std::size_t count) { return count / INAGG_CHUNK * INAGG_CHUNK; }

// Run convert(in, out, count) over `count` elements of memory into whole chunks on the wire, `padded` elements: the last
// chunk goes through a buffer that is filled up with zeros.
template <typename In, typename Out, typename Convert>
void pad_out(const In *in, std::size_t count, std::byte *payload, std::size_t padded, Convert convert) {
    auto *out = reinterpret_cast<Out *>(payload);
    std::size_t written = whole_chunks(count);
    if (written)
        convert(in, out, written);
    if (written != count) {
        std::array<In, INAGG_CHUNK> last{};
        std::memcpy(last.data(), in + written, (count - written) * sizeof(In));
        convert(last.data(), out + written, INAGG_CHUNK);
        written += INAGG_CHUNK;
    }
    std::memset(out + written, 0, (padded - written) * sizeof(Out));
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

// Elements travel as they lie in memory: int32, and floats that the switch adds.
class PlainEncoding : public Encoding {
public:
    PlainEncoding(const Reduction &r, uint8_t dtype_op, uint8_t scale)
        : Encoding(r.count, inagg_block_elements(r.elements, dtype_op >> 4), r.tail),
          send_(static_cast<const std::byte *>(r.send)), recv_(static_cast<std::byte *>(r.recv)),
          element_bytes_(inagg_memory_bytes(r.dtype)), dtype_(r.dtype), average_(r.average), dtype_op_(dtype_op), scale_(scale) {}

    BlockMeta load(uint32_t index, std::byte *payload) const override {
        const Range r = range(index);
        pad_bytes(send_ + r.first * element_bytes_, r.count * element_bytes_, payload, r.padded * element_bytes_);
        return meta_of(dtype_op_, scale_, r.padded);
    }

    bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) override {
        const Range r = range(index);
        if (meta.dtype_op != dtype_op_ || meta.elements != r.padded)
            return false;
        if (!recv_)
            return true;
        std::byte *out = recv_ + r.first * element_bytes_;
        std::memcpy(out, payload, r.count * element_bytes_);
        if (average_)
            divide(out, r.count, dtype_, inagg_count_ranks(meta.contributors));
        return true;
    }

private:
    const std::byte *send_;
    std::byte *recv_;
    std::size_t element_bytes_;
    inagg_dtype dtype_;
    bool average_;
    uint8_t dtype_op_, scale_;
};

// How many ranks have what is not finite, and which ranks were asked.
class CountsEncoding : public PlainEncoding {
public:
    CountsEncoding(const Reduction &r, std::vector<uint64_t> &counted)
        : PlainEncoding(r, INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM, 0), counted_(counted) {}

    bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) override {
        counted_[index] = meta.contributors;
        return PlainEncoding::store(index, meta, payload);
    }

private:
    std::vector<uint64_t> &counted_;
};

// A float sum in offset-binary fixed point: of float32, and of 16-bit floats where a tree of switches adds them, by the
// core's integer code.
template <typename Float> class FixedEncoding : public Encoding {
public:
    FixedEncoding(const Reduction &r, const inagg_coding &coding, uint8_t dtype_op, uint8_t scale)
        : Encoding(r.count, r.elements, r.tail), send_(static_cast<const Float *>(r.send)), recv_(static_cast<Float *>(r.recv)),
          coding_(coding), average_(r.average), dtype_op_(dtype_op), scale_(scale) {}

    BlockMeta load(uint32_t index, std::byte *payload) const override {
        const Range r = range(index);
        bool saturated = false;
        if constexpr (sizeof(Float) == 4)
            pad_out<float, uint32_t>(send_ + r.first, r.count, payload, r.padded,
                                     [&](const float *in, uint32_t *out, std::size_t n) {
                                         saturated |= to_fixed(in, out, n, coding_.point, coding_.bias);
                                     });
        else
            saturated = encode_halves(send_ + r.first, r, payload);
        return meta_of(dtype_op_, scale_, r.padded, saturated);
    }

    BlockMeta load_raw(uint32_t index, std::byte *payload) const override {
        if constexpr (sizeof(Float) != 4)
            return load(index, payload);
        const Range r = range(index);
        pad_bytes(reinterpret_cast<const std::byte *>(send_ + r.first), r.count * sizeof(Float), payload,
                  r.padded * sizeof(Float));
        return meta_of(INAGG_RAW_DTYPE_OP, scale_, r.padded);
    }

    bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) override {
        const Range r = range(index);
        const bool raw = sizeof(Float) == 4 && meta.dtype_op == INAGG_RAW_DTYPE_OP;
        if ((meta.dtype_op != dtype_op_ && !raw) || meta.scale != scale_ || meta.elements != r.padded)
            return false;
        if (!recv_)
            return true;
        Float *out = recv_ + r.first;
        const uint32_t ranks = inagg_count_ranks(meta.contributors);
        if (raw)
            std::memcpy(out, payload, r.count * sizeof(Float));
        else if constexpr (sizeof(Float) == 4)
            cut_in<uint32_t>(payload, out, r.count, [&](const uint32_t *in, float *to, std::size_t n) {
                from_fixed(in, to, n, coding_.point, coding_.bias * ranks);
            });
        else
            inagg_decode_block(&coding_, payload, out, static_cast<uint32_t>(r.count), ranks);
        if (average_)
            divide(out, r.count, static_cast<inagg_dtype>(coding_.dtype), ranks);
        return true;
    }

private:
    bool encode_halves(const Float *in, const Range &r, std::byte *payload) const {
        const auto count = static_cast<uint32_t>(r.count);
        const std::size_t written = inagg_padded(count) * std::size_t{4};
        std::memset(payload + written, 0, r.padded * std::size_t{4} - written);
        return inagg_encode_block(&coding_, in, payload, count);
    }

    const Float *send_;
    Float *recv_;
    inagg_coding coding_;
    bool average_;
    uint8_t dtype_op_, scale_;
};

// A sum of 16-bit floats where the switch adds float32: rounded once, here.
class WidenedEncoding : public Encoding {
public:
    WidenedEncoding(const Reduction &r, uint8_t dtype_op)
        : Encoding(r.count, r.elements, r.tail), send_(static_cast<const uint16_t *>(r.send)),
          recv_(static_cast<uint16_t *>(r.recv)), dtype_(r.dtype), average_(r.average), dtype_op_(dtype_op) {}

    BlockMeta load(uint32_t index, std::byte *payload) const override {
        const Range r = range(index);
        pad_out<uint16_t, float>(send_ + r.first, r.count, payload, r.padded,
                                 [&](const uint16_t *in, float *out, std::size_t n) { widen(in, out, n, dtype_); });
        return meta_of(dtype_op_, 0, r.padded);
    }

    bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) override {
        const Range r = range(index);
        if (meta.dtype_op != dtype_op_ || meta.elements != r.padded)
            return false;
        if (!recv_)
            return true;
        uint16_t *out = recv_ + r.first;
        cut_in<float>(payload, out, r.count, [&](const float *in, uint16_t *to, std::size_t n) { narrow(in, to, n, dtype_); });
        if (average_)
            divide(out, r.count, dtype_, inagg_count_ranks(meta.contributors));
        return true;
    }

private:
    const uint16_t *send_;
    uint16_t *recv_;
    inagg_dtype dtype_;
    bool average_;
    uint8_t dtype_op_;
};

// Minimum or maximum of a float type, as integers of the same order.
template <typename Float> class OrderedEncoding : public Encoding {
public:
    OrderedEncoding(const Reduction &r, uint8_t dtype_op)
        : Encoding(r.count, r.elements, r.tail), send_(static_cast<const Float *>(r.send)), recv_(static_cast<Float *>(r.recv)),
          dtype_op_(dtype_op), infinity_(inagg_infinity(r.dtype)), nan_(inagg_nan_that_wins(r.op)) {}

    BlockMeta load(uint32_t index, std::byte *payload) const override {
        const Range r = range(index);
        pad_out<Float, int32_t>(send_ + r.first, r.count, payload, r.padded, [&](const Float *in, int32_t *out, std::size_t n) {
            if constexpr (sizeof(Float) == 4)
                to_ordered(in, out, n, nan_);
            else
                to_ordered16(in, out, n, infinity_, nan_);
        });
        return meta_of(dtype_op_, 0, r.padded);
    }

    bool store(uint32_t index, const BlockMeta &meta, const std::byte *payload) override {
        const Range r = range(index);
        if (meta.dtype_op != dtype_op_ || meta.elements != r.padded)
            return false;
        if (recv_)
            cut_in<int32_t>(payload, recv_ + r.first, r.count, [&](const int32_t *in, Float *out, std::size_t n) {
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
    uint32_t infinity_;
    int32_t nan_;
};

// A sum to which only the root contributes: its bytes come out everywhere.
class BroadcastEncoding : public Encoding {
public:
    BroadcastEncoding(std::byte *data, std::size_t bytes, uint16_t elements, uint16_t tail, bool root)
        : Encoding((bytes + 3) / 4, elements, tail), data_(data), bytes_(bytes), root_(root) {}

    BlockMeta load(uint32_t index, std::byte *payload) const override {
        const Range r = range(index);
        // Zeros, not nothing: the switch answers in the frame that came, and cannot grow a small one.
        if (!root_)
            std::memset(payload, 0, std::size_t{r.padded} * 4);
        else
            pad_bytes(data_ + r.first * 4, bytes_of(r), payload, std::size_t{r.padded} * 4);
        return meta_of(dtype_op, 0, r.padded);
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

    static constexpr uint8_t dtype_op = INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM;
    std::byte *data_;
    std::size_t bytes_;
    bool root_;
};

// No elements, or zeros with a tail.
uint8_t exponent_dtype_op(uint16_t tail) { return tail ? INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM : INAGG_WIRE_NONE << 4; }

class ExponentBlock : public Encoding {
public:
    ExponentBlock(uint8_t exponent, uint16_t tail, uint8_t &agreed)
        : Encoding(1, 1), exponent_(exponent), tail_(tail), agreed_(agreed) {}

    BlockMeta load(uint32_t, std::byte *payload) const override { return load_exponent(exponent_, tail_, payload); }

    bool store(uint32_t, const BlockMeta &meta, const std::byte *) override {
        agreed_ = meta.next_scale;
        return meta.dtype_op == exponent_dtype_op(tail_);
    }

private:
    uint8_t exponent_;
    uint16_t tail_;
    uint8_t &agreed_;
};

} // namespace

Encoding::Range Encoding::range(uint32_t index) const {
    const std::size_t first = std::size_t{index} * per_block_;
    const std::size_t count = std::min<std::size_t>(per_block_, count_ - first);
    return {first, count, inagg_padded(static_cast<uint32_t>(count) + tail_)};
}

BlockMeta load_exponent(uint8_t exponent, uint16_t tail, std::byte *payload) {
    BlockMeta meta = meta_of(exponent_dtype_op(tail), 0, inagg_padded(tail));
    std::memset(payload, 0, inagg_block_bytes(&meta));
    meta.next_scale = exponent;
    return meta;
}

std::unique_ptr<Encoding> make_encoding(const Reduction &r, uint8_t scale) {
    inagg_coding coding;
    inagg_coding_init(&coding, r.dtype, r.op, r.size, scale, r.floats);
    const uint8_t dtype_op = inagg_wire_encoding(r.dtype, r.op, r.floats);
    if (inagg_is_plain(&coding))
        return std::make_unique<PlainEncoding>(r, dtype_op, inagg_needs_scale(r.dtype, r.op, r.floats) ? scale : 0);
    if (coding.widened && r.floats == INAGG_FLOATS_RAW)
        return std::make_unique<WidenedEncoding>(r, dtype_op);
    if (coding.widened)
        return std::make_unique<FixedEncoding<uint16_t>>(r, coding, dtype_op, scale);
    if (r.op == INAGG_SUM)
        return std::make_unique<FixedEncoding<float>>(r, coding, dtype_op, scale);
    if (r.dtype == INAGG_FLOAT32)
        return std::make_unique<OrderedEncoding<float>>(r, dtype_op);
    return std::make_unique<OrderedEncoding<uint16_t>>(r, dtype_op);
}

std::unique_ptr<Encoding> make_broadcast(void *data, std::size_t bytes, uint16_t elements, uint16_t tail, bool root) {
    return std::make_unique<BroadcastEncoding>(static_cast<std::byte *>(data), bytes, elements, tail, root);
}

std::unique_ptr<Encoding> make_exponent_block(uint8_t exponent, uint16_t tail, uint8_t &agreed) {
    return std::make_unique<ExponentBlock>(exponent, tail, agreed);
}

ClassCounts::ClassCounts(const Reduction &reduction)
    : reduction_(reduction), finite_(reduction.count * inagg_memory_bytes(reduction.dtype)), counts_(reduction.count),
      counted_(inagg_blocks_of(reduction.count, reduction.elements)) {
    const uint32_t bytes = inagg_memory_bytes(reduction.dtype);
    for (std::size_t i = 0; i < counts_.size(); i++) {
        const uint32_t element = inagg_element(reduction.send, i, bytes);
        const uint32_t counted = inagg_class_of(element, reduction.dtype);
        counts_[i] = static_cast<int32_t>(counted);
        inagg_set_element(finite_.data(), i, bytes, counted ? 0 : element);
    }
}

std::unique_ptr<Encoding> ClassCounts::make_encoding() {
    Reduction r = reduction_;
    r.send = counts_.data();
    r.recv = counts_.data();
    r.dtype = INAGG_INT32;
    r.average = false;
    return std::make_unique<CountsEncoding>(r, counted_);
}

void ClassCounts::combine(void *recv, std::span<const uint64_t> ranks, uint32_t per_block) const {
    const uint32_t bytes = inagg_memory_bytes(reduction_.dtype);
    for (std::size_t i = 0; i < counts_.size(); i++) {
        auto counts = static_cast<uint32_t>(counts_[i]);
        if (!ranks.empty())
            counts = inagg_class_certain(counts, counted_[i / reduction_.elements], ranks[i / per_block]);
        inagg_set_element(recv, i, bytes, inagg_class_apply(inagg_element(recv, i, bytes), counts, reduction_.dtype));
    }
}

} // namespace inagg
