// SPDX-License-Identifier: BSD-2-Clause
#include "ring.hpp"

#include "engine.hpp"
#include "errors.hpp"

#include <algorithm>
#include <cstring>

namespace inagg {

namespace {

constexpr std::size_t lane_bytes = sizeof(uint32_t);
constexpr std::size_t chunk_lanes = 32 << 10;
constexpr std::size_t part_lanes = 8 << 10; // worked on at a time
// While a chunk is on its way here the one before it may wait to leave, with the header of the next tensor: with
// less room for what leaves, ranks could wait for each other all round.
constexpr std::size_t most_waiting = 2 * chunk_lanes * lane_bytes + 64;

} // namespace

// What precedes a tensor: the ranks' calls must be alike.
struct Ring::Header {
    uint64_t count;
    uint32_t number;
    uint8_t kind, dtype, op;
    int8_t root;
};

struct Ring::Tensor : Operation {
    Tensor(const Call &what, uint16_t size) : Operation(what), lanes(what.dtype, what.op, size) {}

    const std::byte *source(std::size_t i) const { return static_cast<const std::byte *>(call.send) + i * lanes.element_bytes(); }
    std::byte *target(std::size_t i) const { return static_cast<std::byte *>(call.recv) + i * lanes.element_bytes(); }

    const RingLanes lanes;
    Header header{};
    bool received = false;
    uint64_t end = 0; // of what this rank has given of it
};

Ring::Ring(const inagg_options &options)
    : options_(options), links_(options), in_(chunk_lanes * lane_bytes), out_(2 * most_waiting), partial_(part_lanes),
      mine_(part_lanes) {}

// Starting tensors

Handle Ring::prepare(const Call &call) {
    auto tensor = std::make_shared<Tensor>(call, options_.size);
    tensor->header = {call.count,
                      0,
                      static_cast<uint8_t>(call.kind),
                      static_cast<uint8_t>(call.dtype),
                      static_cast<uint8_t>(call.op),
                      static_cast<int8_t>(call.root_rank)};
    return tensor;
}

void Ring::start(const Handle &prepared) {
    const auto tensor = std::static_pointer_cast<Tensor>(prepared);
    const std::size_t most = chunk_lanes * options_.size, count = tensor->call.count;
    if (idle())
        moved_ns_ = asked_ns_ = monotonic_ns();
    tensor->header.number = calls_++;
    tensor->blocks = (count + most - 1) / most;
    tensor->block_elements = static_cast<uint32_t>(most);
    tensors_.push_back(tensor);
    for (std::size_t first = 0; first < count; first += most)
        stretches_.push_back({tensor.get(), first, std::min(most, count - first), first == 0, count - first <= most});
}

// What goes round

Ring::Turn Ring::chunk(const Stretch &stretch, std::size_t number) const {
    const std::size_t begin = stretch.count * number / options_.size;
    const std::size_t end = stretch.count * (number + 1) / options_.size;
    return {stretch.first + begin, end - begin, false, false, true};
}

// That come in of the stretch: in a reduction all chunks but one of each kind, in a broadcast the whole, not to the root.
std::size_t Ring::turns(const Stretch &stretch) const {
    const Call &call = stretch.tensor->call;
    if (call.kind == Call::Kind::broadcast)
        return !call.root;
    return 2 * (std::size_t{options_.size} - 1);
}

// The partial chunk of the rank before comes first, then that of the one before that, ...
Ring::Turn Ring::turn(const Stretch &stretch, std::size_t step) const {
    const Call &call = stretch.tensor->call;
    const std::size_t size = options_.size;
    if (call.kind == Call::Kind::broadcast)
        return {stretch.first, stretch.count, false, false, (options_.rank + 1) % options_.size != call.root_rank};
    Turn turn = chunk(stretch, (options_.rank + 2 * size - 1 - step) % size);
    turn.lanes = step < size - 1;
    turn.completes = step == size - 2;
    turn.onward = step + 1 < turns(stretch);
    return turn;
}

Ring::Turn Ring::own_turn(const Stretch &stretch) const {
    const Call &call = stretch.tensor->call;
    if (call.kind == Call::Kind::reduction)
        return chunk(stretch, options_.rank);
    return {stretch.first, call.root ? stretch.count : 0, false, false, true};
}

// May this rank's own part of a stretch go out? All that goes out of the stretches before has.
bool Ring::may_begin(std::size_t index) const {
    if (index == 0)
        return true;
    const Stretch &front = stretches_.front();
    return index == 1 && (step_ == turns(front) || !turn(front, step_).onward);
}

// Out

std::size_t Ring::room() const { return most_waiting - (out_end_ - out_begin_); }

// There is room.
void Ring::give(Tensor &tensor, const void *bytes, std::size_t count) {
    if (out_end_ + count > out_.size()) {
        std::memmove(out_.data(), out_.data() + out_begin_, out_end_ - out_begin_);
        out_end_ -= std::exchange(out_begin_, 0);
    }
    std::memcpy(out_.data() + out_end_, bytes, count);
    out_end_ += count;
    given_bytes_ += count;
    tensor.end = given_bytes_;
}

// What does not wait for the rank before: headers, own chunks, a root's elements.
bool Ring::give_own() {
    bool gave = false;
    while (giving_ < stretches_.size() && may_begin(giving_)) {
        const Stretch &stretch = stretches_[giving_];
        const Turn own = own_turn(stretch);
        if (stretch.opens && !opened_) {
            if (room() < sizeof(Header))
                break;
            give(*stretch.tensor, &stretch.tensor->header, sizeof(Header));
            opened_ = gave = true;
        }
        while (given_ < own.count && give_part(stretch, own))
            gave = true;
        if (given_ < own.count)
            break;
        giving_++;
        given_ = 0;
        opened_ = false;
    }
    return gave;
}

bool Ring::give_part(const Stretch &stretch, const Turn &own) {
    Tensor &tensor = *stretch.tensor;
    const bool lanes = tensor.call.kind == Call::Kind::reduction;
    const std::size_t width = lanes ? lane_bytes : tensor.lanes.element_bytes();
    const std::size_t count = std::min({own.count - given_, room() / width, part_lanes});
    if (count && lanes)
        tensor.lanes.load(tensor.source(own.first + given_), mine_.data(), count);
    if (count)
        give(tensor, lanes ? static_cast<const void *>(mine_.data()) : tensor.source(own.first + given_), count * width);
    given_ += count;
    return count;
}

bool Ring::flush() {
    const std::size_t sent = links_.send({out_.data() + out_begin_, out_end_ - out_begin_});
    sent_bytes_ += sent;
    out_begin_ += sent;
    if (out_begin_ == out_end_)
        out_begin_ = out_end_ = 0;
    return sent;
}

// In

bool Ring::fetch() {
    std::memmove(in_.data(), arrived(), waiting());
    in_end_ -= std::exchange(in_begin_, 0);
    const std::size_t got = in_end_ < in_.size() ? links_.receive(std::span(in_).subspan(in_end_)) : 0;
    in_end_ += got;
    return got;
}

bool Ring::take() {
    bool took = false;
    while (!stretches_.empty() && giving_ > 0) {
        const Stretch &stretch = stretches_.front();
        if (stretch.opens && !checked_ && !take_header(*stretch.tensor))
            break;
        if (step_ < turns(stretch) && !take_part(stretch, turn(stretch, step_)))
            break;
        took = true;
        if (step_ == turns(stretch))
            end_stretch();
    }
    return took;
}

bool Ring::take_header(const Tensor &tensor) {
    if (waiting() < sizeof(Header))
        return false;
    if (std::memcmp(arrived(), &tensor.header, sizeof(Header))) {
        links_.break_off();
        throw calls_differ(options_.job, fmt::format(", tensor {} of the ring", tensor.header.number));
    }
    in_begin_ += sizeof(Header);
    return checked_ = true;
}

// Some elements of a turn, or all; false if none can be taken.
bool Ring::take_part(const Stretch &stretch, const Turn &turn) {
    Tensor &tensor = *stretch.tensor;
    const std::size_t most = std::min(turn.count - taken_, part_lanes);
    const std::size_t count = turn.lanes ? take_partial(tensor, turn, most) : take_complete(tensor, turn, most);
    taken_ += count;
    if (taken_ < turn.count)
        return count;
    taken_ = 0;
    step_++;
    return true;
}

std::size_t Ring::take_partial(Tensor &tensor, const Turn &turn, std::size_t most) {
    const std::size_t count = std::min({most, waiting() / lane_bytes, room() / lane_bytes});
    const std::size_t first = turn.first + taken_;
    if (!count)
        return 0;
    std::memcpy(partial_.data(), arrived(), count * lane_bytes);
    in_begin_ += count * lane_bytes;
    tensor.lanes.load(tensor.source(first), mine_.data(), count);
    tensor.lanes.fold(partial_.data(), mine_.data(), count);
    if (!turn.completes) {
        give(tensor, partial_.data(), count * lane_bytes);
        return count;
    }
    const std::size_t bytes = count * tensor.lanes.element_bytes();
    tensor.lanes.store(partial_.data(), mine_.data(), count);
    if (tensor.call.recv)
        std::memcpy(tensor.target(first), mine_.data(), bytes);
    give(tensor, mine_.data(), bytes);
    return count;
}

std::size_t Ring::take_complete(Tensor &tensor, const Turn &turn, std::size_t most) {
    const std::size_t width = tensor.lanes.element_bytes();
    const std::size_t count = std::min({most, waiting() / width, turn.onward ? room() / width : most});
    if (tensor.call.recv)
        std::memcpy(tensor.target(turn.first + taken_), arrived(), count * width);
    if (turn.onward)
        give(tensor, arrived(), count * width);
    in_begin_ += count * width;
    return count;
}

void Ring::end_stretch() {
    stretches_.front().tensor->received = stretches_.front().closes;
    stretches_.pop_front();
    giving_--;
    step_ = 0;
    checked_ = false;
}

// Driving

bool Ring::move() {
    links_.move(calls_);
    bool moved = false;
    if (!idle() && links_.up()) {
        moved = fetch();
        moved |= take();
        moved |= give_own();
        moved |= out_begin_ < out_end_ && flush();
        if (!moved && out_begin_ == out_end_)
            links_.starve();
    }
    if (moved)
        moved_ns_ = tensors_.front()->progress_ns = monotonic_ns();
    finish_done();
    if (!idle() && links_.lost())
        throw broken();
    if (!idle() && !moved)
        ask();
    return moved;
}

// The rank after needs what is not sent yet.
void Ring::finish_done() {
    while (!idle() && tensors_.front()->received && sent_bytes_ >= tensors_.front()->end) {
        tensors_.front()->finish();
        tensors_.pop_front();
    }
}

void Ring::poll_for(std::vector<pollfd> &polled) const {
    links_.poll_for(polled);
    if (!links_.up())
        return;
    if (waiting() < in_.size())
        polled.push_back({links_.before(), POLLIN, 0});
    if (out_begin_ < out_end_)
        polled.push_back({links_.after(), POLLOUT, 0});
}

// Nothing moves

uint64_t Ring::patience_ns() const { return std::min<uint64_t>(uint64_t{options_.timeout_ms} * 1'000'000 / 8, 1'000'000'000); }

void Ring::ask() {
    const uint64_t now = monotonic_ns();
    if (now - std::max(moved_ns_, asked_ns_) < patience_ns())
        return;
    asked_ns_ = now;
    links_.ask();
}

// Ranks that do not answer, or have not come to the oldest tensor.
uint64_t Ring::missing() const { return links_.missing(tensors_.front()->header.number + 1, monotonic_ns() - 3 * patience_ns()); }

std::string Ring::stall() const {
    if (idle())
        return "nothing is in flight";
    const std::string tensor = fmt::format("tensor {} of the ring", tensors_.front()->header.number);
    if (missing())
        return waits_for(tensor, missing());
    return fmt::format("{} waits for {}", tensor, links_.trouble());
}

// Who goes first may have waited in vain, as this rank has: then those for whom it did are the reason.
Error Ring::broken() const {
    const Error &lost = *links_.lost();
    if (asked_ns_ <= moved_ns_ || !missing())
        return lost;
    return {lost.code(), "{}; {}", lost.what(), stall()};
}

} // namespace inagg
