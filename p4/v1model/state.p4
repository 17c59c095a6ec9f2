// SPDX-License-Identifier: BSD-2-Clause
// What the parts of the pipeline know of a packet, and the counters.
#ifndef INAGG_P4_STATE
#define INAGG_P4_STATE

// What becomes of a packet that passed admission.
enum bit<3> way_t {
    absorb = 0,		// nothing is sent
    reply = 1,		// to whom it came from
    multicast = 2,	// to all ranks here
    up = 3,		// to the parent
    down = 4		// to one rank, or to its switch
}

// What is to be done with the elements of a packet and its slot.
enum bit<3> move_t {
    none = 0,
    store = 1,
    add = 2,
    minimum = 3,
    maximum = 4,
    load = 5	// the slot's, into the packet
}

// Where a rank is, or its switch; port 0: not behind this switch.
struct place_t {
    bit<9>   port;
    bit<48>  mac;
    bit<128> address;
    bit<16>  receive_port;
    bit<64>  subtree;
}

struct metadata_t {
    // this switch
    bit<9>   cpu_port;
    bit<32>  own4;
    bit<128> own6;
    bit<16>  boot;
    bit<1>   has_parent;
    bit<48>  switch_mac;	// of packets that nobody has asked for
    bit<16>  shared_mask;	// atp, canary: how many slots all jobs share, less one; trio: buckets
    bit<16>  share;		// atp, canary: how many of them one job has
    // the packet's job
    bit<32>  row;		// of its counters
    bit<16>  multicast_group;
    bit<32>  first_slot;
    bit<32>  slots;
    bit<32>  control_slots;
    bit<16>  generation;
    bit<16>  size;
    bit<16>  job_elements;
    bit<1>   in_tree;		// switches in a tree add
    bit<64>  here;		// ranks behind this switch
    bit<64>  everyone;		// ranks of the job
    // who sent it; IPv4 addresses in the last 4 bytes
    bit<16>  speaker;		// rank
    bit<9>   speaker_port;	// 0: it is not behind this switch
    bit<128> speaker_address;
    bit<16>  receive_port;
    bit<64>  subtree;		// the ranks for which the switch at its address may speak; 0: it is no switch's
    bit<128> source;		// the packet's
    // to whom it goes, if that is one
    bit<16>  target;		// rank
    place_t  place;
    bit<1>   stream;		// 1: control
    // canary
    bit<16>  leader;		// rank
    bit<8>   up;		// bit of the up port that it came by; 0: from below
    bit<8>   live_ups;		// bitmap
    bit<8>   ups;
    bit<8>   up_index;
    bit<48>  timeout_us;
    // the switch above
    bit<9>   parent_port;
    bit<48>  parent_mac;
    bit<48>  own_mac;		// towards it
    bit<128> parent_address;
    // the packet
    bit<32>  slot_key;		// where its block is
    move_t   move;
    bit<16>  sum_elements;	// that the slot has: 0, 32 or 64
    bit<64>  ranks;		// whose sum it is; 0: its sender may not speak for them
    bit<1>   is_for_agent;
    bit<1>   from_above;
    bit<1>   is_clock;		// made of a clock packet
    bit<1>   is_relayed;	// canary: neither summed nor answered here
    bit<8>   clock;		// trio: what that is to do
    bit<8>   reason;		// enum inagg_reason: why it is dropped
    way_t    way;
    bit<1>   is_answer;		// of this switch, not only passed on
    bit<1>   is_sealed_anew;
    bit<64>  copy_subtree;	// of a copy for all: as in place_t
}

// Of all ports, for ordinary frames; a job's is its index and 1.
const bit<16> FLOOD_GROUP = 0xffff;

// Rows as in bpf/switch_maps.h: a job's, or INAGG_STATS_NO_JOB.  Columns: the counters of struct inagg_stats in their
// order, then its drops by reason.
@noWarn("unused") const bit<32> STATS_COLUMNS = 128;
@noWarn("unused") const bit<32> STAT_PACKETS = 0;
@noWarn("unused") const bit<32> STAT_ADDITIONS = 1;
@noWarn("unused") const bit<32> STAT_COMPLETIONS = 2;
@noWarn("unused") const bit<32> STAT_DUPLICATES = 3;
@noWarn("unused") const bit<32> STAT_REPLIES = 4;
@noWarn("unused") const bit<32> STAT_WAITS = 5;
@noWarn("unused") const bit<32> STAT_RESTORES = 6;
@noWarn("unused") const bit<32> STAT_ELEMENTS = 8;
@noWarn("unused") const bit<32> STAT_DEGRADED = 9;
@noWarn("unused") const bit<32> STAT_LATE = 10;
@noWarn("unused") const bit<32> STAT_RECOVERIES = 11;
@noWarn("unused") const bit<32> STAT_EXPIRED = 12;
@noWarn("unused") const bit<32> STAT_RELAYED = 13;
@noWarn("unused") const bit<32> STAT_COLLISIONS = 14;
@noWarn("unused") const bit<32> STAT_PARTIALS = 15;
@noWarn("unused") const bit<32> STAT_DROPS = 17;

register<bit<64>>((INAGG_STATS_NO_JOB + 1) * STATS_COLUMNS) stats;

// inagg_shared_entry()
@noWarn("unused") action find_shared(in metadata_t meta, in bit<16> index, out bit<32> key) {
    bit<32> share = (bit<32>)meta.share;
    key = (meta.row * share + ((bit<32>)index & (share - 1))) & (bit<32>)meta.shared_mask;
}

action count(in bit<32> row, in bit<32> column, in bit<64> by) {
    bit<64> so_far;
    stats.read(so_far, row * STATS_COLUMNS + column);
    stats.write(row * STATS_COLUMNS + column, so_far + by);
}

action count_ranks(in bit<64> ranks, out bit<16> number) {
    bit<64> x = ranks;
    x = x - ((x >> 1) & 0x5555555555555555);
    x = (x & 0x3333333333333333) + ((x >> 2) & 0x3333333333333333);
    x = (x + (x >> 4)) & 0x0f0f0f0f0f0f0f0f;
    x = x + (x >> 8);
    x = x + (x >> 16);
    x = x + (x >> 32);
    number = (bit<16>)(x & 0x7f);
}

#endif
