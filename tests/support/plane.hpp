// SPDX-License-Identifier: BSD-2-Clause
// A switch that takes frames: the portable core in user space (reference_switch.hpp) or the XDP
// program (xdp_plane.hpp). Conformance vectors and fuzzers drive either.
#pragma once

#include "support/packet.hpp"

#include <inagg/core/job.h>
#include <inagg/core/record.h>

#include <string>

namespace support {

// The port that frames arrive through; BPF_PROG_TEST_RUN offers the loopback device's.
inline constexpr uint32_t the_port = 1;

// Few enough that blocks collide.
inline constexpr uint32_t switch_buckets = 8;
inline constexpr uint32_t switch_aggregators = 16;
inline constexpr uint32_t switch_descriptors = 16;
inline constexpr uint32_t switch_share = 8; // that a job has of both: of jobs with even and with odd rows
// As many as all slots of a small switch may need.
inline constexpr uint32_t switch_buffers = 256;

struct JobSpec {
    uint32_t number = 7;
    uint32_t index = 0;
    uint16_t ranks = 3;
    uint32_t first_slot = 0, slots = 4, control_slots = 2;
    uint16_t generation = 1;
    uint16_t elements = 64;
    uint8_t blocks = 0; // in a packet
    uint8_t flags = 0;
    uint8_t algorithm = INAGG_SWITCHML;
    int family = 4;
    uint16_t expiry_sweeps = 0, quorum = 0; // trio
    uint32_t most_open = 64;
    uint16_t cap = 0;               // panama
    uint64_t here = 0;              // in a tree: the ranks behind this switch; 0: it stands alone
    std::vector<uint64_t> subtrees; // in a tree: the ranks for which the switch at a rank's address may speak
    uint64_t excluded = 0;          // bitmap of ranks
    std::vector<uint32_t> ports;    // of each rank; the_port where not given, 0: has not joined
    uint32_t parent_port = the_port;
    uint64_t nonce = 0x1122334455667788; // of every rank's JOIN

    inagg_job job() const;
    inagg_member member(uint32_t rank) const;
    inagg_policy policy() const;
    inagg_floor floor(uint32_t position) const;
    bool has_parent() const { return here && here != inagg_all_ranks(ranks); }
    // Of the tree in which floats are added: where a rank's or its switch's enter, and how many do.
    uint8_t leaf(uint32_t rank) const;
    uint8_t children() const { return leaf(ranks); }
    uint64_t subtree(uint32_t rank) const { return rank < subtrees.size() ? subtrees[rank] : 0; }
};

// A rank's block of `elements` elements, all rank + 1.
Packet contribution(const JobSpec &spec, uint32_t rank, uint32_t block, uint16_t elements);

enum class Action { pass, absorb, drop, reply, multicast, up, fail };

struct Answer {
    Action action = Action::fail;
    uint32_t reason = 0; // drop: enum inagg_reason
    Frame frame;         // reply (also to another rank than the one that asked), multicast, up (to the parent)
};

const char *action_name(Action action);
const char *reason_name(uint32_t reason);

class Plane {
public:
    virtual ~Plane() = default;
    // Forgets jobs, slots, records and counters.
    virtual void reset() = 0;
    virtual void add_job(const JobSpec &spec) = 0;
    // The job, which is there, goes on with what `spec` says now of its ranks.
    virtual void change_job(const JobSpec &spec) = 0;
    virtual Answer receive(const Frame &frame) = 0;
    // All slots, records and floors lose what they hold, as after a restart.
    virtual void clear_slots() = 0;
    // Records go, as if others had needed their places; nobody knows but the floors.
    virtual void clear_records() = 0;
    // Some of the floats that are being added now, of all blocks, are lost.
    virtual void lose_floats() = 0;
    // One visit to all records.
    virtual void sweep() = 0;
    // Decides one block that a sweep has found expired; absorbed if there is none.
    virtual Answer tick() = 0;
    // Counters of the job with that index; of packets that belong to no job.
    virtual inagg_stats stats(uint32_t index) = 0;
    virtual inagg_stats unowned() = 0;
    // Contents of the pool of `spec`, byte for byte; with trio its open records.
    virtual std::string pool(const JobSpec &spec) = 0;
};

} // namespace support
