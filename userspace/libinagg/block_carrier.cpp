// SPDX-License-Identifier: BSD-2-Clause
#include "block_carrier.hpp"

#include "convert.hpp"
#include "engine.hpp"
#include "errors.hpp"

#include <algorithm>

namespace inagg {

struct BlockCarrier::BlockOperation : Operation {
    using Operation::Operation;

    Reduction reduction{};   // broadcast: recv and count in bytes
    bool scale_known = true; // float sums: agreed, or not needed
    uint8_t scale = 0;       // own exponent, then the agreed one
    uint32_t pending = 0;    // blocks assigned and not back yet
    bool assigned = false;   // no more blocks will come
    bool absent = false;     // the scale was agreed without this rank: its elements do not fit
    bool saturated = false;
    std::unique_ptr<ClassCounts> classes;
};

BlockCarrier::BlockCarrier(const inagg_options &options, MakeTransport make)
    : options_(options), transport_(make(options_, *this)), trio_(transport_->config().algorithm == INAGG_TRIO) {}

// Starting operations

Handle BlockCarrier::prepare(const Call &call) {
    auto operation = std::make_shared<BlockOperation>(call);
    operation->reduction = {call.send, call.recv,     call.count, call.dtype, carried(call.op), call.op == INAGG_AVG,
                            options_.size, elements()};
    if (call.kind == Call::Kind::broadcast)
        operation->reduction.count *= inagg_memory_bytes(call.dtype);
    if (call.kind == Call::Kind::reduction)
        choose_scale(*operation);
    return operation;
}

void BlockCarrier::choose_scale(BlockOperation &operation) const {
    const Reduction &r = operation.reduction;
    if (!inagg_needs_scale(r.dtype, r.op))
        return;
    if (r.dtype == INAGG_FLOAT32 && options_.scale != INAGG_SCALE_AUTO) {
        operation.scale = inagg_scale_for_point(inagg_fan_in_log2(r.size), options_.scale);
    } else {
        operation.scale = max_exponent(r.send, r.count, r.dtype);
        operation.scale_known = false;
    }
}

void BlockCarrier::start(const Handle &prepared) {
    const auto operation = std::static_pointer_cast<BlockOperation>(prepared);
    const bool barrier = operation->call.kind == Call::Kind::barrier;
    operation->assigned = barrier;
    if (barrier || !operation->scale_known)
        queue_control(operation, operation->scale);
    if (!barrier) {
        unassigned_.push_back(operation);
        assign_blocks();
    }
}

void BlockCarrier::queue_control(const BlockHandle &operation, uint8_t exponent) {
    controls_.push_back({operation, exponent});
    operation->pending++;
    transport_->extend(Stream::control, first_control_ + static_cast<uint32_t>(controls_.size()));
}

// Data blocks are numbered in call order: all ranks number them alike, whenever their scales arrive.
void BlockCarrier::assign_blocks() {
    const uint32_t before = next_data_;
    while (!unassigned_.empty() && assign(unassigned_.front())) {
        unassigned_.front()->assigned = true;
        unassigned_.pop_front();
    }
    if (next_data_ != before)
        transport_->extend(Stream::data, next_data_);
}

// True when all of the operation's blocks have numbers.
bool BlockCarrier::assign(const BlockHandle &operation) {
    const Reduction &r = operation->reduction;
    if (operation->call.kind == Call::Kind::broadcast)
        add_segment(operation, make_broadcast(r.recv, r.count, r.elements, operation->call.root), Part::elements_of_all);
    else if (!operation->scale_known)
        return false;
    else if (operation->scale == INAGG_SCALE_NONFINITE || operation->classes)
        return assign_float_sum(operation);
    else
        add_segment(operation, make_encoding(r, operation->scale), Part::elements);
    return true;
}

// A float sum with infinities or NaN somewhere: one more block agrees on the exponent of the finite part,
// then that part and the counts of infinities and NaN travel one behind the other, all with all ranks: the three
// mean something only together.
bool BlockCarrier::assign_float_sum(const BlockHandle &operation) {
    Reduction r = operation->reduction;
    if (!operation->classes) {
        operation->classes = std::make_unique<ClassCounts>(r);
        operation->scale_known = false;
        const uint8_t exponent = max_finite_exponent(r.send, r.count, r.dtype);
        add_segment(operation, make_exponent_block(exponent, operation->scale), Part::beside_of_all);
        return false;
    }
    r.send = operation->classes->finite();
    add_segment(operation, make_encoding(r, operation->scale), Part::elements_of_all);
    add_segment(operation, operation->classes->make_encoding(), Part::beside_of_all);
    return true;
}

void BlockCarrier::add_segment(const BlockHandle &operation, std::unique_ptr<Encoding> encoding, Part part) {
    const uint32_t blocks = encoding->blocks();
    operation->pending += blocks;
    if (part != Part::beside_of_all) {
        operation->blocks = blocks;
        operation->block_elements = encoding->per_block();
        if (trio_)
            operation->contributors.resize(blocks);
    }
    segments_.push_back({operation, std::move(encoding), trio_ && part != Part::elements,
                         trio_ && part != Part::beside_of_all, next_data_, blocks, blocks});
    next_data_ += blocks;
}

// Blocks

BlockCarrier::Segment &BlockCarrier::segment_of(uint32_t block) {
    const auto after =
        std::partition_point(segments_.begin(), segments_.end(),
                             [block](const Segment &segment) { return !inagg_before(block, segment.first); });
    return *std::prev(after);
}

BlockMeta BlockCarrier::load(Stream stream, uint32_t block, std::byte *payload) {
    if (stream == Stream::control) {
        const Control &control = controls_[block - first_control_];
        BlockMeta meta = control_meta(control.exponent);
        meta.whole = trio_ && control.operation->call.kind == Call::Kind::barrier;
        return meta;
    }
    const Segment &segment = segment_of(block);
    BlockMeta meta = segment.encoding->load(block - segment.first, payload);
    meta.whole = segment.whole;
    meta.absent = segment.operation->absent;
    return meta;
}

void BlockCarrier::store(Stream stream, uint32_t block, const BlockMeta &meta, const std::byte *payload) {
    if (stream == Stream::control)
        store_control(block, meta);
    else
        store_data(block, meta, payload);
}

void BlockCarrier::store_control(uint32_t block, const BlockMeta &meta) {
    const BlockHandle operation = std::move(controls_[block - first_control_].operation);
    while (!controls_.empty() && !controls_.front().operation) {
        controls_.pop_front();
        first_control_++;
    }
    if (operation->call.kind == Call::Kind::reduction) {
        operation->absent = trio_ && operation->scale > meta.next_scale;
        operation->scale = meta.next_scale;
        operation->scale_known = true;
        assign_blocks();
    }
    returned(operation);
}

void BlockCarrier::store_data(uint32_t block, const BlockMeta &meta, const std::byte *payload) {
    Segment &segment = segment_of(block);
    const BlockHandle operation = segment.operation;
    operation->saturated |= meta.saturated != 0;
    if (segment.values)
        operation->contributors[block - segment.first] = meta.contributors;
    if (!segment.encoding->store(block - segment.first, meta, payload))
        operation->set_error(calls_differ(options_.job, fmt::format(", block {}", block)));
    if (--segment.left == 0)
        segment.encoding.reset();
    while (!segments_.empty() && segments_.front().left == 0)
        segments_.pop_front();
    if (operation->classes && !operation->scale_known) { // that was the finite part's exponent
        operation->scale_known = true;
        assign_blocks();
    }
    returned(operation);
}

// One of the operation's blocks is back.
void BlockCarrier::returned(const BlockHandle &operation) {
    operation->progress_ns = monotonic_ns();
    if (--operation->pending == 0 && operation->assigned)
        finish(*operation);
}

void BlockCarrier::finish(BlockOperation &operation) const {
    const Reduction &r = operation.reduction;
    if (operation.classes && r.recv)
        operation.classes->combine(r.recv);
    if (operation.saturated)
        operation.set_error(out_of_scale(operation.call, options_));
    operation.classes.reset();
    operation.finish();
}

std::optional<std::string> BlockCarrier::stall() const {
    Stalled stalled{};
    return transport_->stalled(stalled) ? describe(stalled, options_) : "nothing is in flight";
}

} // namespace inagg
