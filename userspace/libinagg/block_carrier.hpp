// SPDX-License-Identifier: BSD-2-Clause
// Tensors in call order on the two streams of blocks of a Transport: scales, encodings.
#pragma once

#include "carrier.hpp"
#include "encoding.hpp"
#include "linear_check.hpp"
#include "transport.hpp"

#include <inagg/core/guess.h>

#include <deque>

namespace inagg {

class BlockCarrier final : public Carrier, private BlockClient {
public:
    // `make` joins the job; its transport gets this carrier as its client.
    using MakeTransport = std::unique_ptr<Transport> (*)(const inagg_options &, BlockClient &);
    BlockCarrier(const inagg_options &options, MakeTransport make);

    std::string_view name() const override { return transport_->name(); }
    Handle prepare(const Call &call) override;
    void start(const Handle &operation) override;
    bool progress(std::chrono::nanoseconds wait) override { return transport_->progress(wait); }
    // What is here may belong to a call whose blocks have no numbers yet.
    uint32_t blocks_ahead() const override { return unassigned_.empty() ? transport_->decided(next_data_) : 0; }
    Stragglers stragglers() const override { return transport_->stragglers(); }
    bool renew() override;
    uint16_t elements() const override { return transport_->config().elements - tail_; }
    uint32_t floats() const override;
    int descriptor() const override { return transport_->descriptor(); }
    std::optional<std::string> stall() const override;
    inagg_stats_t stats() const override { return transport_->stats(); }
    std::chrono::nanoseconds linger() const override { return transport_->linger(); }
    void leave() override { transport_->leave(); }

private:
    struct BlockOperation;
    using BlockHandle = std::shared_ptr<BlockOperation>;
    // A run of data blocks that belongs to one operation.
    struct Segment {
        BlockHandle operation;
        std::unique_ptr<Encoding> encoding;
        bool whole;    // not without all ranks
        bool values;   // the operation's elements, not what goes before and behind them
        bool sealed;   // with a linear check
        uint8_t phase; // in it
        inagg_check_scale scale;
        uint32_t first, blocks, left;

        inagg_check_block identify(uint32_t block) const;
    };
    // A control block, of a barrier or a float sum; `operation` is reset when its result is here.
    struct Control {
        BlockHandle operation;
        uint32_t index; // of the operation's
    };
    static inagg_check_block identify(const Control &control);

    BlockMeta load(Stream stream, uint32_t block, std::byte *payload) override;
    BlockMeta load_raw(uint32_t block, std::byte *payload) override;
    bool verify(Stream stream, uint32_t block, BlockMeta &meta, const std::byte *wire) override;
    void store(Stream stream, uint32_t block, const BlockMeta &meta, const std::byte *wire) override;

    // From this machine's byte order to the job's, and back.
    void turn_outbound(const BlockMeta &meta, std::byte *payload) const;
    const std::byte *turned_inbound(const BlockMeta &meta, const std::byte *wire, std::vector<std::byte> &room) const;

    void agree_on_key();
    bool has_key() const { return !check_ || check_->has_begun(); }
    bool seals(Stream stream) const { return check_ && (stream == Stream::data || !trio_); }
    bool waits_for_all(const BlockOperation &operation) const;
    bool has_all_it_must(const Segment &segment, const BlockMeta &meta) const;
    void choose_scale(BlockOperation &operation) const;
    void ask_scale(const BlockHandle &operation);
    void queue_control(const BlockHandle &operation, uint32_t blocks);
    void open_control();
    void agree(BlockOperation &operation, uint8_t scale);
    void assign_blocks();
    bool assign(const BlockHandle &operation);
    bool seals_anew(const BlockOperation &operation) const;
    bool assign_float_sum(const BlockHandle &operation);
    // What an operation has of segments, and who must be in their blocks.
    enum class Part { elements, elements_of_all, beside_of_all, key_of_all };
    void note_blocks(BlockOperation &operation, const Encoding &encoding) const;
    void add_segment(const BlockHandle &operation, std::unique_ptr<Encoding> encoding, Part part);
    Segment &segment_of(uint32_t block);
    BlockMeta load_control(uint32_t block, std::byte *payload);
    BlockMeta load_data(uint32_t block, std::byte *payload);
    void store_control(uint32_t block, const BlockMeta &meta, const std::byte *payload);
    void store_elements(BlockOperation &operation, Encoding &encoding, uint32_t index, const BlockMeta &meta,
                        const std::byte *payload) const;
    void store_data(uint32_t block, const BlockMeta &meta, const std::byte *payload);
    void returned(const BlockHandle &operation);
    void finish(BlockOperation &operation);
    void begin_check();
    static inagg_check_scale scale_of(const BlockOperation &operation);

    const inagg_options options_;
    std::unique_ptr<Transport> transport_;
    const bool trio_;
    const bool says_whole_;                    // which blocks need all ranks, or have no elements of some
    const std::unique_ptr<LinearCheck> check_; // null: sums are not verified
    const uint16_t tail_;                      // elements of a block that are the check's
    BlockHandle key_exchange_;
    std::vector<uint32_t> own_nonce_, nonces_; // where others have zeros; of all ranks
    std::deque<BlockHandle> unassigned_;       // operations whose data blocks are not (all) known yet
    std::deque<Segment> segments_;
    uint32_t next_data_ = 0;
    uint64_t calls_ = 0; // begun since the key was agreed on
    std::deque<Control> controls_;
    uint32_t first_control_ = 0; // number of controls_.front()
    uint32_t open_control_ = 0;  // those before it may be sent
    uint32_t next_turn_ = 0;     // of the next sum that asks for its scale
    inagg_guesses guesses_;
};

} // namespace inagg
