// SPDX-License-Identifier: BSD-2-Clause
// Tensors round a ring of the ranks' hosts: reduce-scatter, then allgather, over TCP.
//
// A tensor is cut into stretches and each of these into a chunk a rank. A rank sends its own chunk; what it receives, it
// folds its own elements into and passes on, until a chunk is complete; then the complete ones go round. So what leaves a
// rank is what has come in, one chunk later, and stretches and tensors follow each other without a gap. A chunk is folded
// in the order of the ranks from its own on: the bits do not depend on anything else, and all ranks get the same.
#pragma once

#include "carrier.hpp"
#include "ring_lanes.hpp"
#include "ring_links.hpp"

#include <deque>

namespace inagg {

class Ring {
public:
    explicit Ring(const inagg_options &options);

    const RingEntry &own() const { return links_.own(); }
    // All ranks' entries. Tensors may be started before.
    void meet(const std::vector<RingEntry> &entries) { links_.meet(entries); }

    // As a Carrier's, of reductions and broadcasts.
    Handle prepare(const Call &call);
    void start(const Handle &operation);
    // Without waiting.
    bool move();
    void poll_for(std::vector<pollfd> &polled) const;
    std::string stall() const;
    // No tensor is under way.
    bool idle() const { return tensors_.empty(); }

private:
    struct Tensor;
    struct Header;
    // `count` elements of a tensor from `first` on, that go round together.
    struct Stretch {
        Tensor *tensor;
        std::size_t first, count;
        bool opens, closes; // the tensor's first, last
    };
    // Part of what a rank receives: elements of a stretch.
    struct Turn {
        std::size_t first, count;
        bool lanes;     // partial: this rank adds to it
        bool completes; // and is the last that does
        bool onward;    // the rank after gets it, too
    };

    Turn chunk(const Stretch &stretch, std::size_t number) const;
    std::size_t turns(const Stretch &stretch) const;
    Turn turn(const Stretch &stretch, std::size_t step) const;
    Turn own_turn(const Stretch &stretch) const;
    bool may_begin(std::size_t index) const;

    bool give_own();
    bool give_part(const Stretch &stretch, const Turn &own);
    bool take();
    bool take_header(const Tensor &tensor);
    bool take_part(const Stretch &stretch, const Turn &turn);
    std::size_t take_partial(Tensor &tensor, const Turn &turn, std::size_t most);
    std::size_t take_complete(Tensor &tensor, const Turn &turn, std::size_t most);
    void end_stretch();
    bool fetch();
    bool flush();
    void finish_done();
    uint64_t patience_ns() const;
    void ask();
    uint64_t missing() const;
    Error broken() const;

    std::size_t room() const;
    void give(Tensor &tensor, const void *bytes, std::size_t count);
    const std::byte *arrived() const { return in_.data() + in_begin_; }
    std::size_t waiting() const { return in_end_ - in_begin_; }

    const inagg_options options_;
    RingLinks links_;
    std::deque<std::shared_ptr<Tensor>> tensors_; // in call order
    std::deque<Stretch> stretches_;               // of them, that have not come round
    uint32_t calls_ = 0;                          // tensors ever
    uint64_t moved_ns_ = 0, asked_ns_ = 0;        // when something moved last; when the others were asked last

    std::size_t giving_ = 0; // of stretches_: whose own part goes out next
    std::size_t given_ = 0;  // elements of it that have
    bool opened_ = false;    // and its header has
    bool checked_ = false;   // stretches_[0]: the header that came is its own
    std::size_t step_ = 0;   // stretches_[0]: turns that have come
    std::size_t taken_ = 0;  // elements of the next

    std::vector<std::byte> in_, out_; // bytes from the rank before, and for the rank after
    std::size_t in_begin_ = 0, in_end_ = 0, out_begin_ = 0, out_end_ = 0;
    uint64_t given_bytes_ = 0, sent_bytes_ = 0; // ever
    std::vector<uint32_t> partial_, mine_;      // scratch
};

} // namespace inagg
