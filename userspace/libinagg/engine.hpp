// SPDX-License-Identifier: BSD-2-Clause
// core/worker.h over a PacketIo: builds, verifies, stores and repeats packets of one or both streams.
#pragma once

#include "error.hpp"
#include "history.hpp"
#include "join.hpp"
#include "leader.hpp"
#include "packet_io.hpp"
#include "transport.hpp"

#include <inagg/core/congestion.h>
#include <inagg/core/linear_check.h>
#include <inagg/core/worker.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace inagg {

// Nanoseconds of CLOCK_MONOTONIC.
uint64_t monotonic_ns();

class Engine final : public Transport, private PacketReceiver {
public:
    enum Owned : unsigned { own_data = 1, own_control = 2, own_both = own_data | own_control };

    // `name` is the transport's. Streams that are not owned belong to someone else who shares the
    // membership (the XDP worker's data): their packets are ignored. Of `options` how much trio keeps and whether
    // congestion is controlled count here.
    Engine(std::string name, std::unique_ptr<PacketIo> io, const Membership &membership, BlockClient &client,
           const inagg_options &options, Owned owned = own_both);
    ~Engine() override;

    std::string_view name() const override { return name_; }
    const JobConfig &config() const override { return membership_.config; }
    void extend(Stream stream, uint32_t limit) override;
    bool progress(std::chrono::nanoseconds wait) override;
    int descriptor() const override { return io_->descriptor(); }
    bool stalled(Stalled &out) const override;
    uint32_t decided(uint32_t block) const override { return streams_[0].history.run(block); }
    Stragglers stragglers() const override { return {membership_.excluded, membership_.temporary, membership_.permanent}; }
    bool returning() const override { return inagg_membership_returning(&membership_); }
    bool renew() override;
    inagg_stats_t stats() const override;
    std::chrono::nanoseconds linger() const override;
    void leave() override;

    // Boot id of the switch as last heard; another owner of the membership watches it for changes.
    uint16_t boot() const { return membership_.config.boot; }
    const Membership &membership() const { return membership_; }
    PacketIo &io() { return *io_; }

private:
    // What is remembered of a slot beside its timers.
    struct SlotRecord {
        bool heard = false; // a WAIT came for heard_block
        uint32_t heard_block = 0;
        uint64_t heard_ns = 0;
        uint16_t aggregator = 0; // atp: where switches sum the slot's next block
        uint64_t contributors = 0;
        inagg_doubt doubt{};
    };
    struct StreamState {
        Stream stream;
        bool owned = false;
        uint32_t first_slot = 0;            // of this stream in the job's pool
        std::size_t payload_bytes = 0;      // of its largest block
        bool answered = false;              // RACK has something new to look at
        uint64_t earliest_due = UINT64_MAX; // no timer is due before this
        inagg_worker worker{};
        inagg_congestion congestion{};
        std::vector<inagg_wslot> slots;
        std::vector<SlotRecord> records;
        History history;
        bool held_back = false; // idle slots may wait for room
        uint32_t beyond = 0;    // the block after the last one that has a result anywhere
    };

    void packet(std::span<const std::byte> payload, bool congested) noexcept override;
    void take(std::span<const std::byte> payload, bool congested);
    bool admits(const StreamState &s, const inagg_hdr &header, std::span<const std::byte> body) const;
    void on_block(StreamState &s, const inagg_hdr &header, std::span<const std::byte> body);
    void on_led(const inagg_hdr &header, std::span<const std::byte> body);
    void on_boot(uint16_t boot);
    void on_result(StreamState &s, uint32_t block, const inagg_hdr &header, std::span<const std::byte> body);
    bool verify(StreamState &s, uint32_t block, BlockMeta &meta, std::span<const std::byte> body);
    void deliver(StreamState &s, const History::Result &result);
    bool finish_led();
    void finish_led(StreamState &s, uint32_t block);
    void on_wait(StreamState &s, uint32_t block, const inagg_hdr &header);
    int heed(StreamState &s, inagg_wslot &slot, uint32_t block, const inagg_hdr &header);
    void on_full(StreamState &s, uint32_t block, uint16_t cap);
    void on_config(const inagg_hdr &header, std::span<const std::byte> body);
    void on_refused(const inagg_hdr &header, std::span<const std::byte> body);
    void start_streams();
    void detect_overtaken(StreamState &s);
    bool overtaken(StreamState &s, inagg_wslot &slot) const;
    int expire(StreamState &s, inagg_wslot &slot) const;
    bool receive(std::chrono::nanoseconds wait);
    uint64_t earliest_due() const;
    static bool is_waiting(const StreamState &s); // for a block's result
    bool stuck() const;
    void run_timers();
    void run_timers(StreamState &s);
    void open(StreamState &s, inagg_wslot &slot);
    void open(StreamState &s, uint32_t from, uint32_t to);
    void open_capped(StreamState &s);
    void open_in_order(StreamState &s);
    void skip_decided(StreamState &s, inagg_wslot &slot);
    void act(StreamState &s, inagg_wslot &slot, int action);
    void lead(StreamState &s, inagg_wslot &slot);
    void send_contribution(StreamState &s, const inagg_wslot &slot, bool resend);
    inagg_hdr load(StreamState &s, const inagg_wslot &slot, bool resend, std::byte *frame);
    void send_request(StreamState &s, const inagg_wslot &slot, bool everyone);
    void send_restore(StreamState &s, uint32_t block);
    void commit(inagg_hdr &header, std::byte *frame, std::size_t payload_bytes);
    inagg_hdr header(const StreamState &s, inagg_type type, uint32_t block, unsigned flags) const;
    StreamState *stream_of(uint32_t slot);
    static bool controlled(const StreamState &s) { return s.congestion.reaction != INAGG_UNCONTROLLED; }
    bool atp() const { return membership_.config.algorithm == INAGG_ATP; }
    bool trio() const { return membership_.config.algorithm == INAGG_TRIO; }
    uint32_t position_of(const StreamState &s, uint32_t block) const { return s.first_slot + inagg_slot_index(&s.worker, block); }
    // Is this rank the leader of the stream's block?
    bool leads(const StreamState &s, uint32_t block) const { return leader_ && leader_->leads(position_of(s, block)); }

    std::string name_;
    std::unique_ptr<PacketIo> io_;
    Membership membership_;
    BlockClient &client_;
    uint64_t now_ = 0;
    uint64_t waiting_since_ = 0; // when it last began to
    bool congested_ = false;     // the packet that is handled met a long queue
    inagg_boots boots_;
    std::array<StreamState, stream_count> streams_;
    std::unique_ptr<Leader> leader_; // canary
    // Blocks that this rank led and that are complete, and those of them that are being delivered: the client
    // may open blocks meanwhile that complete at once.
    struct Led {
        StreamState *stream;
        uint32_t block;
    };
    std::vector<Led> completed_, finishing_;
    uint64_t packets_ = 0;
    inagg_stats_t stats_{};
    const uint32_t history_mib_;
    const uint8_t reaction_; // enum inagg_reaction, of the data stream
    bool renewed_ = false;
    std::optional<Error> ended_; // by a REFUSED
    std::optional<Error> wrong_; // a result that is no sum of the ranks' blocks, however often it is asked for
};

} // namespace inagg
