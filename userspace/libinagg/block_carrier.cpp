// SPDX-License-Identifier: BSD-2-Clause
#include "block_carrier.hpp"

#include "convert.hpp"
#include "engine.hpp"
#include "errors.hpp"

#include <algorithm>

#include <sodium.h>

namespace inagg {

struct BlockCarrier::BlockOperation : Operation {
    using Operation::Operation;

    Reduction reduction{};           // broadcast: recv and count in bytes
    bool scale_known = true;         // float sums: agreed, or not needed
    bool scale_is_given = true;      // not needed, or fixed by hand
    uint8_t exponent = 0;            // float sums: this rank's, in all control blocks, however often they are sent
    uint8_t finite_exponent = 0;     // with infinities or NaN somewhere: that of the rest
    uint8_t scale = 0;               // guessed, then agreed
    uint64_t number = 0;             // among the calls since the key was agreed on
    uint8_t runs = 0;                // of data blocks that it has so far
    uint32_t turn = 0;               // among the sums that ask for their scales
    bool guesses = false;            // its control blocks carry its elements
    std::unique_ptr<Encoding> guess; // at the scale guessed, once that is known
    bool agreed = false;             // the first control block is back
    bool guessed = false;            // and says that the guess was right: they bring the sum
    uint32_t pending = 0;            // blocks assigned and not back yet
    bool assigned = false;           // no more blocks will come
    bool absent = false;             // the scale was agreed without this rank: its elements do not fit
    bool saturated = false;
    std::unique_ptr<ClassCounts> classes;

    uint8_t exponent_of_data() const { return classes ? finite_exponent : exponent; }
};

namespace {

std::unique_ptr<LinearCheck> make_check(const inagg_options &options, const JobConfig &job) {
    if (!options.key[0])
        return nullptr;
    return std::make_unique<LinearCheck>(LinearCheck::parse_key(options.key), job);
}

} // namespace

BlockCarrier::BlockCarrier(const inagg_options &options, MakeTransport make)
    : options_(options), transport_(make(options_, *this)), trio_(transport_->config().algorithm == INAGG_TRIO),
      says_whole_(trio_ || transport_->config().algorithm == INAGG_ATP), check_(make_check(options, transport_->config())),
      tail_(check_ ? INAGG_CHECK_ELEMENTS : 0) {
    inagg_guesses_init(&guesses_);
}

// The check adds 32-bit elements up, as they are on the wire.
uint32_t BlockCarrier::floats() const {
    const uint32_t floats = inagg_floats_of(&transport_->config());
    return check_ && floats == INAGG_FLOATS_FIXED ? uint32_t{INAGG_FLOATS_WIDENED} : floats;
}

// Starting operations

Handle BlockCarrier::prepare(const Call &call) {
    check_verifiable(call, options_, floats());
    auto operation = std::make_shared<BlockOperation>(call);
    operation->reduction = {call.send,     call.recv,  call.count, call.dtype, carried(call.op), call.op == INAGG_AVG,
                            options_.size, elements(), floats(),   tail_};
    if (call.kind == Call::Kind::broadcast)
        operation->reduction.count *= inagg_memory_bytes(call.dtype);
    if (call.kind == Call::Kind::reduction)
        choose_scale(*operation);
    return operation;
}

void BlockCarrier::choose_scale(BlockOperation &operation) const {
    const Reduction &r = operation.reduction;
    if (!inagg_needs_scale(r.dtype, r.op, r.floats))
        return;
    if (r.dtype == INAGG_FLOAT32 && options_.scale != INAGG_SCALE_AUTO) {
        operation.scale = inagg_scale_for_point(inagg_fan_in_log2(r.size), options_.scale);
    } else {
        operation.exponent = max_exponent(r.send, r.count, r.dtype);
        operation.scale_known = operation.scale_is_given = false;
    }
}

void BlockCarrier::start(const Handle &prepared) {
    if (!has_key() && !key_exchange_)
        agree_on_key();
    const auto operation = std::static_pointer_cast<BlockOperation>(prepared);
    operation->number = calls_++;
    const bool renewal = operation->call.kind == Call::Kind::renewal;
    const bool barrier = renewal || operation->call.kind == Call::Kind::barrier || operation->call.kind == Call::Kind::leaving;
    operation->assigned = barrier;
    if (renewal) // its result is the maximum: if one rank knows of a returning one, all do
        operation->exponent = transport_->returning();
    if (!barrier)
        unassigned_.push_back(operation);
    if (barrier)
        queue_control(operation, 1);
    else if (operation->scale_known)
        assign_blocks();
    else
        ask_scale(operation);
}

// A number from each rank, where others have zeros, makes a key that never was. Nothing else travels before. Who changes these
// gives the ranks different keys, and no sum holds. A maximum: no rank without a key has one for its first call, and takes this
// for it.
void BlockCarrier::agree_on_key() {
    constexpr std::size_t words = INAGG_CHECK_NONCE_WORDS;
    own_nonce_.assign(options_.size * words, 0);
    nonces_ = own_nonce_;
    for (std::size_t i = 0; i < words; i++)
        own_nonce_[options_.rank * words + i] = randombytes_random() & INT32_MAX;
    Call call;
    call.kind = Call::Kind::reduction;
    call.send = own_nonce_.data();
    call.recv = nonces_.data();
    call.count = nonces_.size();
    call.op = INAGG_MAX;
    call.is_agreement = true;
    key_exchange_ = std::static_pointer_cast<BlockOperation>(prepare(call));
    unassigned_.push_back(key_exchange_);
    assign_blocks();
}

// One control block asks for the scale of a sum; those of a small one carry its elements, too.
void BlockCarrier::ask_scale(const BlockHandle &operation) {
    const Reduction &r = operation->reduction;
    const uint32_t blocks = inagg_blocks_of(r.count, block_elements(r.elements, r.dtype, r.op, r.floats));
    operation->guesses = inagg_guesses_scale(&transport_->config(), blocks);
    operation->turn = next_turn_++;
    queue_control(operation, operation->guesses ? blocks : 1);
}

void BlockCarrier::queue_control(const BlockHandle &operation, uint32_t blocks) {
    for (uint32_t index = 0; index < blocks; index++)
        controls_.push_back({operation, index});
    operation->pending += blocks;
    open_control();
}

// Control blocks are numbered in call order, too. Those with elements wait until their guess is known, and what is
// behind them waits with them.
void BlockCarrier::open_control() {
    if (!has_key())
        return;
    const uint32_t before = open_control_, end = first_control_ + static_cast<uint32_t>(controls_.size());
    for (; open_control_ != end; open_control_++) {
        BlockOperation &operation = *controls_[open_control_ - first_control_].operation;
        if (!operation.guesses || operation.guess)
            continue;
        if (!inagg_guess_known(&guesses_, operation.turn))
            break;
        operation.scale = inagg_guess(&guesses_, operation.turn);
        operation.guess = make_encoding(operation.reduction, operation.scale);
    }
    if (open_control_ != before)
        transport_->extend(Stream::control, open_control_);
}

// Data blocks are numbered in call order: all ranks number them alike, whenever their scales arrive.
void BlockCarrier::assign_blocks() {
    const uint32_t before = next_data_;
    while (!unassigned_.empty() && assign(unassigned_.front())) {
        const BlockHandle operation = std::move(unassigned_.front());
        unassigned_.pop_front();
        operation->assigned = true;
        if (operation->pending == 0) // its control blocks brought all of it
            finish(*operation);
    }
    if (next_data_ != before)
        transport_->extend(Stream::data, next_data_);
}

// True when all of the operation's blocks have numbers.
bool BlockCarrier::assign(const BlockHandle &operation) {
    const Reduction &r = operation->reduction;
    if (operation == key_exchange_)
        add_segment(operation, make_encoding(r, 0), Part::key_of_all);
    else if (!has_key())
        return false;
    else if (operation->call.kind == Call::Kind::broadcast)
        add_segment(operation, make_broadcast(r.recv, r.count, r.elements, r.tail, operation->call.root), Part::elements_of_all);
    else if (!operation->scale_known || seals_anew(*operation))
        return false;
    else if (operation->guessed)
        note_blocks(*operation, *operation->guess);
    else if (operation->scale == INAGG_SCALE_NONFINITE || operation->classes)
        return assign_float_sum(operation);
    else
        add_segment(operation, make_encoding(r, operation->scale), Part::elements);
    return true;
}

// A guess was wrong, and not all of its blocks are back: results of others would change what they carry if they are sent again,
// and nothing is sealed twice (core/linear_check.h).
bool BlockCarrier::seals_anew(const BlockOperation &operation) const {
    return check_ && operation.guesses && !operation.guessed && !operation.runs && operation.pending;
}

// A float sum with infinities or NaN somewhere: one more block agrees on the exponent of the finite part,
// then that part and the counts of infinities and NaN travel one behind the other, all with all ranks: the three
// mean something only together.
bool BlockCarrier::assign_float_sum(const BlockHandle &operation) {
    Reduction r = operation->reduction;
    if (!operation->classes) {
        operation->classes = std::make_unique<ClassCounts>(r);
        operation->scale_known = false;
        operation->finite_exponent = max_finite_exponent(r.send, r.count, r.dtype);
        add_segment(operation, make_exponent_block(operation->finite_exponent, r.tail, operation->scale), Part::beside_of_all);
        return false;
    }
    r.send = operation->classes->finite();
    add_segment(operation, make_encoding(r, operation->scale), Part::elements_of_all);
    add_segment(operation, operation->classes->make_encoding(), Part::beside_of_all);
    return true;
}

// Its elements travel like this.
void BlockCarrier::note_blocks(BlockOperation &operation, const Encoding &encoding) const {
    operation.blocks = encoding.blocks();
    operation.block_elements = encoding.per_block();
    if (trio_)
        operation.contributors.resize(operation.blocks);
}

void BlockCarrier::add_segment(const BlockHandle &operation, std::unique_ptr<Encoding> encoding, Part part) {
    const uint32_t blocks = encoding->blocks();
    const bool elements = part == Part::elements || part == Part::elements_of_all;
    operation->pending += blocks;
    if (elements)
        note_blocks(*operation, *encoding);
    const bool is_sum = carried(operation->call.op) == INAGG_SUM;
    const bool agreed = elements && !operation->scale_is_given;
    segments_.push_back({operation, std::move(encoding), says_whole_ && part != Part::elements, trio_ && elements,
                         seals(Stream::data) && part != Part::key_of_all && is_sum, ++operation->runs,
                         agreed ? INAGG_CHECK_AGREED : INAGG_CHECK_UNSCALED, next_data_, blocks, blocks});
    next_data_ += blocks;
}

// Of the elements in its control blocks.
inagg_check_scale BlockCarrier::scale_of(const BlockOperation &operation) {
    return operation.guess ? INAGG_CHECK_GUESSED : INAGG_CHECK_UNSCALED;
}

// Blocks

BlockCarrier::Segment &BlockCarrier::segment_of(uint32_t block) {
    const auto after = std::partition_point(segments_.begin(), segments_.end(),
                                            [block](const Segment &segment) { return !inagg_before(block, segment.first); });
    return *std::prev(after);
}

BlockMeta BlockCarrier::load(Stream stream, uint32_t block, std::byte *payload) {
    const BlockMeta meta = stream == Stream::control ? load_control(block, payload) : load_data(block, payload);
    turn_outbound(meta, payload);
    return meta;
}

BlockMeta BlockCarrier::load_control(uint32_t block, std::byte *payload) {
    const Control &control = controls_[block - first_control_];
    const BlockOperation &operation = *control.operation;
    const uint16_t tail = seals(Stream::control) ? tail_ : 0;
    BlockMeta meta = operation.guess ? operation.guess->load(control.index, payload) : load_exponent(0, tail, payload);
    meta.next_scale = operation.exponent;
    meta.saturated |= operation.call.kind == Call::Kind::leaving; // else only elements make it so
    meta.whole = says_whole_ && operation.call.kind != Call::Kind::reduction;
    if (tail)
        check_->seal(identify(control), meta, payload, inagg_check_fits(scale_of(operation), operation.exponent, &meta));
    return meta;
}

BlockMeta BlockCarrier::load_data(uint32_t block, std::byte *payload) {
    const Segment &segment = segment_of(block);
    BlockMeta meta = segment.encoding->load(block - segment.first, payload);
    meta.whole = segment.whole;
    meta.absent = segment.operation->absent;
    if (segment.sealed)
        check_->seal(segment.identify(block), meta, payload,
                     inagg_check_fits(segment.scale, segment.operation->exponent_of_data(), &meta));
    return meta;
}

inagg_check_block BlockCarrier::identify(const Control &control) {
    return {control.operation->number, control.operation->call.context, control.index, 0};
}

inagg_check_block BlockCarrier::Segment::identify(uint32_t block) const {
    return {operation->number, operation->call.context, block - first, phase};
}

// With trio some may be missing, but not everywhere.
bool BlockCarrier::has_all_it_must(const Segment &segment, const BlockMeta &meta) const {
    const bool waits = segment.whole || !(options_.expiry_us || options_.quorum);
    return options_.exclude_ms || !waits || meta.contributors == inagg_all_ranks(options_.size);
}

void BlockCarrier::turn_outbound(const BlockMeta &meta, std::byte *payload) const {
    if (transport_->config().big_endian)
        inagg_turn_elements(payload, inagg_block_bytes(&meta));
}

// What the transport keeps stays as it came: `room` takes what is turned.
const std::byte *BlockCarrier::turned_inbound(const BlockMeta &meta, const std::byte *wire, std::vector<std::byte> &room) const {
    if (!transport_->config().big_endian)
        return wire;
    room.assign(wire, wire + inagg_block_bytes(&meta));
    inagg_turn_elements(room.data(), inagg_block_bytes(&meta));
    return room.data();
}

bool BlockCarrier::verify(Stream stream, uint32_t block, BlockMeta &meta, const std::byte *wire) {
    std::vector<std::byte> room;
    if (stream == Stream::control) {
        const Control &control = controls_[block - first_control_];
        return !seals(stream) ||
               check_->holds(identify(control), meta, turned_inbound(meta, wire, room), scale_of(*control.operation));
    }
    const Segment &segment = segment_of(block);
    return !segment.sealed || (has_all_it_must(segment, meta) &&
                               check_->holds(segment.identify(block), meta, turned_inbound(meta, wire, room), segment.scale));
}

BlockMeta BlockCarrier::load_raw(uint32_t block, std::byte *payload) {
    const Segment &segment = segment_of(block);
    BlockMeta meta = segment.encoding->load_raw(block - segment.first, payload);
    meta.whole = segment.whole;
    turn_outbound(meta, payload);
    return meta;
}

void BlockCarrier::store(Stream stream, uint32_t block, const BlockMeta &meta, const std::byte *wire) {
    std::vector<std::byte> room;
    const std::byte *payload = turned_inbound(meta, wire, room);
    if (stream == Stream::control)
        store_control(block, meta, payload);
    else
        store_data(block, meta, payload);
}

void BlockCarrier::store_control(uint32_t block, const BlockMeta &meta, const std::byte *payload) {
    Control &control = controls_[block - first_control_];
    const BlockHandle operation = std::move(control.operation);
    const uint32_t index = control.index;
    while (!controls_.empty() && !controls_.front().operation) {
        controls_.pop_front();
        first_control_++;
    }
    if (!operation->guess && meta.saturated && waits_for_all(*operation))
        throw others_have_left(options_.job);
    if (operation->call.kind == Call::Kind::reduction && !operation->agreed)
        agree(*operation, meta.next_scale);
    if (operation->guessed)
        store_elements(*operation, *operation->guess, index, meta, payload);
    if (operation->call.kind == Call::Kind::renewal)
        operation->renews = meta.next_scale != 0;
    returned(operation);
}

// Of who is leaving it does not matter, and sums of trio may go on without them.
bool BlockCarrier::waits_for_all(const BlockOperation &operation) const {
    const bool goes_on = options_.expiry_us || options_.quorum || options_.exclude_ms;
    return operation.call.kind != Call::Kind::leaving && !(goes_on && operation.call.kind == Call::Kind::reduction);
}

// The first of a sum's control blocks is back. All of them say the same.
void BlockCarrier::agree(BlockOperation &operation, uint8_t scale) {
    operation.agreed = true;
    operation.guessed = operation.guess && scale == operation.scale;
    operation.absent = inagg_is_absent(transport_->config().algorithm, operation.exponent, scale);
    operation.scale = scale;
    operation.scale_known = true;
    inagg_guess_learn(&guesses_, operation.turn, scale);
    open_control();
    assign_blocks();
}

void BlockCarrier::store_elements(BlockOperation &operation, Encoding &encoding, uint32_t index, const BlockMeta &meta,
                                  const std::byte *payload) const {
    operation.saturated |= meta.saturated != 0;
    if (!encoding.store(index, meta, payload))
        operation.set_error(calls_differ(options_.job, fmt::format(", block {}", index)));
}

void BlockCarrier::store_data(uint32_t block, const BlockMeta &meta, const std::byte *payload) {
    Segment &segment = segment_of(block);
    const BlockHandle operation = segment.operation;
    if (segment.values)
        operation->contributors[block - segment.first] = meta.contributors;
    if (lacks_root(operation->call, meta.contributors)) // all ranks see the same
        operation->set_error(broadcast_without_root(operation->call, options_.job));
    else
        store_elements(*operation, *segment.encoding, block - segment.first, meta, payload);
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
    if (--operation->pending)
        return;
    if (operation->assigned)
        finish(*operation);
    else if (check_ && operation->guesses)
        assign_blocks();
}

void BlockCarrier::finish(BlockOperation &operation) {
    if (&operation == key_exchange_.get())
        return begin_check();
    const Reduction &r = operation.reduction;
    if (operation.classes && r.recv)
        operation.classes->combine(r.recv, operation.contributors, operation.block_elements);
    if (operation.saturated)
        operation.set_error(out_of_scale(operation.call, options_));
    operation.classes.reset();
    operation.finish();
}

// With this rank's own nonce, whatever came for it: then nobody can have it use an old key.
void BlockCarrier::begin_check() {
    constexpr std::size_t words = INAGG_CHECK_NONCE_WORDS;
    std::copy_n(&own_nonce_[options_.rank * words], words, &nonces_[options_.rank * words]);
    check_->begin(nonces_);
    key_exchange_.reset();
    open_control();
    assign_blocks();
}

bool BlockCarrier::renew() {
    if (!transport_->renew())
        return false;
    if (check_)
        check_->end();
    calls_ = 0;
    next_data_ = first_control_ = open_control_ = next_turn_ = 0;
    inagg_guesses_init(&guesses_);
    return true;
}

std::optional<std::string> BlockCarrier::stall() const {
    Stalled stalled{};
    return transport_->stalled(stalled) ? describe(stalled, options_) : "nothing is in flight";
}

} // namespace inagg
