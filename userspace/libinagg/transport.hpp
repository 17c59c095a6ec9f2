// SPDX-License-Identifier: BSD-2-Clause
// The seam between tensors and packets.
//
//   BlockCarrier (block_carrier.cpp)   tensors, scales: implements BlockClient
//   Transport                          moves blocks of two streams: udp, afxdp, xdp
//     Engine (engine.cpp)              core/worker.h over a PacketIo: all of udp and afxdp, control of xdp
//       PacketIo                       UdpIo (io_uring), AfxdpIo (AF_XDP rings)
#pragma once

#include "stragglers.hpp"

#include <inagg/core/packet.h>
#include <inagg/inagg.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>

namespace inagg {

// A job has two streams of blocks. Control blocks carry scales, barriers and small float sums; they have
// slots of their own so that the next tensor's scale is agreed while this one's data flow.
enum class Stream : uint8_t { data, control };
inline constexpr int stream_count = 2;

using BlockMeta = inagg_block_meta;
using JobConfig = inagg_job_config;

// The owner of the tensors. Called from Transport::progress() and extend(), on the caller's thread.
class BlockClient {
public:
    virtual ~BlockClient() = default;
    // Write this rank's elements of `block` to `payload` (room for INAGG_MAX_PAYLOAD bytes, any
    // alignment). May be called again for a retransmission, only until the block's result is stored.
    virtual BlockMeta load(Stream stream, uint32_t block, std::byte *payload) = 0;
    // The same of a data block whose elements do not fit their scale: as floats, where the encoding has them.
    virtual BlockMeta load_raw(uint32_t block, std::byte *payload) = 0;
    // Is this the sum of what meta.contributors have loaded, as far as this rank can tell? May correct `meta`. A result that
    // is not is dropped, and asked for again.
    virtual bool verify(Stream, uint32_t, BlockMeta &, const std::byte *) { return true; }
    // The block's result; once per block, in any order. `payload` is gone after the call.
    virtual void store(Stream stream, uint32_t block, const BlockMeta &meta, const std::byte *payload) = 0;
};

// Which block a transport is waiting for, for the error message of a deadline.
struct Stalled {
    Stream stream;
    uint32_t block;
    bool heard;            // a WAIT came: `contributors` is what the switch knows
    bool tree;             // there are switches or servers above it
    uint64_t contributors; // bitmap of ranks
    uint32_t given_up;     // not 0: no rank keeps the result of a block that so many others have followed
    int leader = -1;       // canary: the rank that completes the block
};

class Transport {
public:
    virtual ~Transport() = default;
    virtual std::string_view name() const = 0;
    virtual const JobConfig &config() const = 0;
    // Blocks of `stream` before `limit` may be sent from now on; limits only grow (mod 2^32).
    virtual void extend(Stream stream, uint32_t limit) = 0;
    // Handle what has arrived and every timer that is due. If nothing has, sleep up to `wait` for it.
    // True if something had arrived: there may be more. Throws inagg::Error when the job has ended (REFUSED) or the
    // system fails.
    virtual bool progress(std::chrono::nanoseconds wait) = 0;
    // As Carrier's.
    virtual int descriptor() const { return -1; }
    // The oldest block in flight; false if there is none.
    virtual bool stalled(Stalled &out) const = 0;
    // Data blocks from `block` on, without a gap, whose results are here though nobody has asked for them.
    virtual uint32_t decided(uint32_t) const { return 0; }
    virtual Stragglers stragglers() const { return {}; }
    // Does one of them wait to be taken back?
    virtual bool returning() const { return false; }
    // Nothing is in flight, here and at all ranks: go on in the job's next generation, from block 0 of each stream. True
    // once that has begun; until then progress() works on it.
    virtual bool renew() { return true; }
    virtual inagg_stats_t stats() const = 0;
    // As Carrier's, after a barrier that was the last control block.
    virtual std::chrono::nanoseconds linger() const { return {}; }
    // Tell the switch that this rank leaves; best effort, does not wait.
    virtual void leave() = 0;
};

} // namespace inagg
