// SPDX-License-Identifier: BSD-2-Clause
// Canary (§3.1 to §3.3): sums of what meets on the way to a block's leader, which is one of the ranks.  The rules, and why
// they hold, are in inagg/core/descriptor.h and bpf/canary.h: what is here follows them function by function.
#include <core.p4>
#include <v1model.p4>

#include "../shared/constants.p4"
#include "../shared/headers.p4"

const bit<8> ALGORITHM = INAGG_CANARY;
#define CLOCK
#define ADDRESS_COPY

#include "state.p4"
#include "parser.p4"
#include "admission.p4"
#include "elements.p4"
#include "slot.p4"
#include "clock.p4"

const bit<48> STALE_US = 2000000;	// INAGG_DESCRIPTOR_STALE_NS

// struct inagg_descriptor around its slot
struct descriptor_t {
    bit<64> children;
    bit<48> opened;	// us
    bit<16> attempt;
    bit<32> job;	// row
    bit<16> number;	// of the job
    bit<1>  stream;
    bit<8>  ups;
}
register<bit<64>>(SLOTS * 2) descriptor_children;
register<bit<48>>(SLOTS * 2) descriptor_opened;
register<bit<16>>(SLOTS * 2) descriptor_attempt;
register<bit<32>>(SLOTS * 2) descriptor_job;
register<bit<16>>(SLOTS * 2) descriptor_number;
register<bit<1>>(SLOTS * 2) descriptor_stream;
register<bit<8>>(SLOTS * 2) descriptor_ups;

action load_descriptor(in bit<32> key, out descriptor_t d) {
    descriptor_children.read(d.children, key);
    descriptor_opened.read(d.opened, key);
    descriptor_attempt.read(d.attempt, key);
    descriptor_job.read(d.job, key);
    descriptor_number.read(d.number, key);
    descriptor_stream.read(d.stream, key);
    descriptor_ups.read(d.ups, key);
}

action store_descriptor(in bit<32> key, in descriptor_t d) {
    descriptor_children.write(key, d.children);
    descriptor_opened.write(key, d.opened);
    descriptor_attempt.write(key, d.attempt);
    descriptor_job.write(key, d.job);
    descriptor_number.write(key, d.number);
    descriptor_stream.write(key, d.stream);
    descriptor_ups.write(key, d.ups);
}

// inagg_descriptor_index(); the version that the block implies, as there, not what the packet says of it
action find_descriptor(in inagg_h h, in metadata_t meta, in bit<32> window, in bit<16> attempt, out bit<32> key) {
    bit<32> x = (bit<32>)h.job << 16 ^ h.slot ^ (bit<32>)attempt * 0x9e3779b9;
    x = x ^ x >> 16;
    x = x * 0x85ebca6b;
    x = x ^ x >> 13;
    x = x * 0xc2b2ae35;
    x = x ^ x >> 16;
    bit<16> moved = attempt == 0 ? 16w0 : x[15:0];
    bit<32> copy = (meta.first_slot + h.slot) << 1 | (h.block & window != 0 ? 32w1 : 0);
    find_shared(meta, copy[15:0] ^ moved, key);
}

#define REMAINDER_STEP(k) rest = rest >= divisor << k ? rest - (divisor << k) : rest;
// @number is less than 2^15: of slots, data and control, there are 2 * INAGG_MAX_SLOTS, and turns add a few hundred to that.
action remainder(in bit<32> number, in bit<32> divisor, out bit<32> rest) {
    rest = number;
    REMAINDER_STEP(14) REMAINDER_STEP(13) REMAINDER_STEP(12) REMAINDER_STEP(11) REMAINDER_STEP(10) REMAINDER_STEP(9)
    REMAINDER_STEP(8) REMAINDER_STEP(7) REMAINDER_STEP(6) REMAINDER_STEP(5) REMAINDER_STEP(4)
    REMAINDER_STEP(3) REMAINDER_STEP(2) REMAINDER_STEP(1) REMAINDER_STEP(0)
}

// A clock packet looks at one descriptor.  If its sum still waits, the packet becomes one that says so, of that job.
control Clock(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    slot_t slot;
    descriptor_t d;

    apply {
        meta.slot_key = (bit<32>)(hdr.punt.port & meta.shared_mask);
        load_slot(meta.slot_key, slot);
        load_descriptor(meta.slot_key, d);
        if (slot.flags & INAGG_SLOT_LIVE == 0) {
            return;
        }
        if (standard.ingress_global_timestamp - d.opened >= STALE_US) {
            slot_flags.write(meta.slot_key, 0);
            return;
        }
        if (slot.flags & INAGG_SLOT_SENT != 0) {
            return;
        }
        become_tick(hdr, meta, slot, d.number, d.stream, d.attempt);
    }
}

// As canary_admit(): the sender may be above, and then comes by one of several ports.
control Admission(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    FindJob() find_job;
    FindPosition() find_position;
    CheckBlock() check_block;
    FindRanks() find_ranks;

    action set_up(bit<8> bit_of_port) {
        meta.up = bit_of_port;
    }
    table above {
        key = { standard.ingress_port: exact; meta.source: exact; }
        actions = { set_up; NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    // By which ports above packets of the job may go, as a bitmap, of how many; and how long a sum waits.
    action set_route(bit<8> live, bit<8> ups, bit<32> timeout_us) {
        meta.live_ups = live;
        meta.ups = ups;
        meta.timeout_us = (bit<48>)timeout_us;
    }
    table routes {
        key = { hdr.inagg.job: exact; }
        actions = { set_route; NoAction; }
        const default_action = NoAction;
        size = 64;
    }
    action set_up_port(bit<9> port, bit<48> own_mac, bit<48> mac, bit<128> address) {
        meta.parent_port = port;
        meta.own_mac = own_mac;
        meta.parent_mac = mac;
        meta.parent_address = address;
    }
    table up_ports {
        key = { meta.up_index: exact; }
        actions = { set_up_port; NoAction; }
        const default_action = NoAction;
        size = 8;
    }

    action refuse(bit<8> reason) {
        meta.reason = reason;
    }

    apply {
        find_job.apply(hdr, meta, standard);
        if (meta.reason != INAGG_R_NONE || meta.is_for_agent == 1) {
            return;
        }
        find_position.apply(hdr, meta);
        bit<4> type = hdr.inagg.type;
        bool is_word = type == INAGG_RESULT || type == INAGG_WAIT || type == INAGG_BLOCK_FAILED;
        bit<32> rest;
        remainder(hdr.inagg.slot, (bit<32>)meta.size, rest);
        meta.leader = (bit<16>)rest;
        meta.speaker = is_word ? meta.leader : hdr.inagg.source;
        meta.target = is_word ? hdr.inagg.source : meta.leader;
        find_ranks.apply(hdr, meta);
        above.apply();
        routes.apply();
        // By inagg_ways_turn(), past ports that are out of order.
        remainder(hdr.inagg.slot + (bit<32>)hdr.inagg.switch_id + (bit<32>)hdr.inagg.window_cap, (bit<32>)meta.ups, rest);
        meta.up_index = (bit<8>)rest;
        if (meta.live_ups >> meta.up_index & 1 == 0) {
            bit<8> lowest = meta.live_ups & (~meta.live_ups + 1);
            bit<16> number;
            count_ranks((bit<64>)(lowest - 1), number);
            meta.up_index = (bit<8>)number;
        }
        if (meta.live_ups != 0) {
            up_ports.apply();
        }
        if (meta.is_clock == 1) {
            meta.up = 0;
            return;
        }
        check_block.apply(hdr, meta);
        if (meta.reason != INAGG_R_NONE) {
            return;
        }
        // A block has one position only.
        bit<32> position;
        position_of(meta, hdr.inagg.block, position);
        if (position != hdr.inagg.slot) {
            meta.reason = INAGG_R_SLOT;
            return;
        }
        if (meta.speaker_port == 0) {
            if (meta.up == 0) {
                refuse(INAGG_R_RANK);
            }
        } else {
            meta.up = 0;
            if (meta.speaker_port != standard.ingress_port) {
                refuse(INAGG_R_PORT);
            } else if (meta.speaker_address != meta.source) {
                refuse(INAGG_R_ADDRESS);
            }
        }
        if (meta.reason == INAGG_R_NONE && meta.up != 0 && !is_word && meta.place.port == 0) {
            refuse(INAGG_R_PARENT);	// what comes from above goes down
        }
        if (meta.reason == INAGG_R_NONE) {
            count(meta.row, STAT_PACKETS, 1);
        }
    }
}

// The children of an attempt; nobody needs to know them from now on.
control CollectChildren(in headers_t hdr, in metadata_t meta, in bit<16> attempt, inout bit<64> ranks, inout bit<8> ups) {
    slot_t slot;
    descriptor_t d;
    bit<32> key;

    apply {
        find_descriptor(hdr.inagg, meta, meta.stream == 1 ? meta.control_slots : meta.slots, attempt, key);
        load_slot(key, slot);
        load_descriptor(key, d);
        if (slot.flags & INAGG_SLOT_LIVE != 0 && slot.generation == hdr.inagg.generation && slot.block == hdr.inagg.block &&
            d.job == meta.row && d.stream == meta.stream && d.attempt == attempt && attempt <= hdr.inagg.switch_id) {
            slot_flags.write(key, slot.flags & ~INAGG_SLOT_LIVE);
            ranks = ranks | d.children;
            ups = ups | d.ups;
        }
    }
}

// To where the target is, which Aggregation finds out; ranks know one switch.
action forward(inout headers_t hdr, inout metadata_t meta, in bit<12> flags) {
    meta.way = way_t.down;
    hdr.inagg.flags = hdr.inagg.flags | flags;
    hdr.inagg.boot = meta.boot;
}

action pass_on(inout headers_t hdr, inout metadata_t meta, in bit<12> flags) {
    forward(hdr, meta, flags);
    meta.is_relayed = 1;
}

// What is in the slot goes on to the leader.
action send_sum(inout headers_t hdr, inout metadata_t meta, in slot_t slot) {
    forward(hdr, meta, 0);
    meta.sum_elements = slot.elements;
    write_sum(hdr, meta, slot, INAGG_PARTIAL, 0);
}

// To those below and above; the egress gives each copy its own (AddressCopy).
action spread(inout headers_t hdr, inout metadata_t meta, in bit<64> ranks, in bit<8> ups) {
    meta.way = way_t.multicast;
    hdr.inagg.contributors = ranks;
    hdr.inagg.port = ups;
    hdr.inagg.boot = meta.boot;
}

// The leader's word: to one rank, or to those who have come and those whom it names.
control HearLeader(inout headers_t hdr, inout metadata_t meta) {
    CollectChildren() collect0;
    CollectChildren() collect1;
    CollectChildren() collect2;

    apply {
        bit<64> elsewhere = meta.everyone & ~meta.here;
        bit<64> named = hdr.inagg.contributors & meta.everyone;
        bit<8> any_up = meta.live_ups == 0 ? 0 : 8w1 << meta.up_index;
        bit<64> ranks = 0;
        bit<8> ups = 0;

        if (hdr.inagg.flags & INAGG_F_MULTICAST == 0) {
            if (meta.up != 0 && meta.place.port == 0) {
                meta.reason = INAGG_R_RANK;
            } else {
                pass_on(hdr, meta, 0);
            }
        } else if (hdr.inagg.type == INAGG_RESULT) {
            collect0.apply(hdr, meta, 0, ranks, ups);
            collect1.apply(hdr, meta, 1, ranks, ups);
            collect2.apply(hdr, meta, 2, ranks, ups);
            if (hdr.inagg.flags & INAGG_F_BYPASS != 0) {
                ranks = 0;	// another copy is for the others who have come
            }
            if (meta.up != 0) {
                named = named & meta.here;
                ups = 0;
            } else if (named & elsewhere != 0 && ups == 0) {
                ups = any_up;
            }
            ranks = (ranks & meta.here) | named;
            if (ranks == 0 && ups == 0) {
                meta.reason = INAGG_R_STALE;
            } else {
                count(meta.row, STAT_REPLIES, 1);
                spread(hdr, meta, ranks, ups);
            }
        } else if (hdr.inagg.type == INAGG_BLOCK_FAILED) {
            bool some_above = elsewhere & ~hdr.inagg.contributors != 0 && meta.up == 0;
            count(meta.row, STAT_WAITS, 1);
            spread(hdr, meta, hdr.inagg.contributors, some_above ? any_up : 0);
        } else {
            meta.reason = INAGG_R_TYPE;
        }
    }
}

// A clock packet has found a sum: when its time is up, it goes on.
control SendWhatIsDue(inout headers_t hdr, inout metadata_t meta, in bit<48> now) {
    slot_t slot;
    descriptor_t d;
    DressClock() dress;

    apply {
        load_slot(meta.slot_key, slot);
        load_descriptor(meta.slot_key, d);
        if (slot.generation != meta.generation || now - d.opened < meta.timeout_us) {
            return;
        }
        slot.flags = slot.flags | INAGG_SLOT_SENT;
        count(meta.row, STAT_EXPIRED, 1);
        count(meta.row, STAT_PARTIALS, 1);
        // The first of the ranks that it is of speaks for it.
        lowest_rank(slot.seen, hdr.inagg.source);
        bool is_six = meta.place.address[127:32] != 0 || (meta.place.port == 0 && meta.parent_address[127:32] != 0);
        dress.apply(hdr, meta, is_six);
        meta.move = move_t.load;
        send_sum(hdr, meta, slot);
        store_slot(meta.slot_key, slot);
    }
}

// The ranks whose sum the packet is; 0: its sender may not speak for them.
control FindArrivedRanks(in inagg_h h, in metadata_t meta, out bit<64> ranks) {
    apply {
        // Neither from above what is below, nor from anywhere what the leader has.
        bit<64> others = ~meta.everyone | (64w1 << (bit<8>)meta.leader);
        ranks = 64w1 << (bit<8>)h.source;
        if (h.type == INAGG_PARTIAL) {
            ranks = h.contributors;
        }
        if (meta.up != 0) {
            others = others | meta.here;
        } else if (h.type == INAGG_PARTIAL) {
            others = others | ~meta.subtree;
        }
        if (ranks & others != 0) {
            ranks = 0;
        }
    }
}

// inagg_descriptor_contribute()
control MeetOthers(inout headers_t hdr, inout metadata_t meta, in bit<64> ranks, in bit<48> now) {
    slot_t slot;
    descriptor_t d;
    CompareWithSlot() compare;
    FoldIntoSlot() fold;

    apply {
        bit<64> leader = 64w1 << (bit<8>)meta.leader;
        bit<32> window = meta.stream == 1 ? meta.control_slots : meta.slots;
        // All ranks that can come here on their way to the leader.
        bit<64> expected = meta.place.port == 0 ? meta.here : meta.everyone & ~(meta.place.subtree | leader);
        bool holds;
        bool is_past;
        bool agrees;
        find_descriptor(hdr.inagg, meta, window, hdr.inagg.switch_id, meta.slot_key);
        load_slot(meta.slot_key, slot);
        load_descriptor(meta.slot_key, d);
        compare.apply(hdr.inagg, slot, holds, is_past, agrees);
        bool is_live = slot.flags & INAGG_SLOT_LIVE != 0;
        bool is_jobs = is_live && d.job == meta.row && d.stream == meta.stream;
        bool same_copy = (slot.block ^ hdr.inagg.block) & (2 * window - 1) == 0;
        holds = holds && is_jobs && d.attempt == hdr.inagg.switch_id;
        if (!holds) {
            if (is_past && is_jobs && same_copy) {
                meta.reason = INAGG_R_STALE;
                return;
            }
            bool is_abandoned = !is_live || now - d.opened >= STALE_US;
            bool is_overtaken = is_jobs && (slot.generation != hdr.inagg.generation ||
                                            ((int<32>)(slot.block - hdr.inagg.block) < 0 && same_copy));
            if (!is_abandoned && !is_overtaken) {
                pass_on(hdr, meta, INAGG_F_BYPASS | INAGG_F_COLLISION);
                count(meta.row, STAT_COLLISIONS, 1);
                return;
            }
            take_slot(hdr.inagg, slot);
            d = { 0, now, hdr.inagg.switch_id, meta.row, hdr.inagg.job, meta.stream, 0 };
        } else if (ranks & d.children != 0) {
            count(meta.row, STAT_DUPLICATES, 1);
            meta.reason = INAGG_R_DUPLICATE;
            return;
        } else if (!agrees) {
            pass_on(hdr, meta, INAGG_F_BYPASS);	// the leader's to refuse
            return;
        }
        d.children = d.children | ranks;
        d.ups = d.ups | meta.up;
        if (slot.flags & INAGG_SLOT_SENT != 0) {
            count(meta.row, STAT_LATE, 1);
            pass_on(hdr, meta, 0);
        } else if (ranks == expected) {
            slot.flags = slot.flags | INAGG_SLOT_SENT;	// nobody else is to come
            pass_on(hdr, meta, 0);
        } else {
            fold.apply(hdr.inagg, ranks, hdr.inagg.flags, slot, meta.move);
            count(meta.row, STAT_ADDITIONS, 1);
            count(meta.row, STAT_ELEMENTS, (bit<64>)hdr.inagg.elements);
            if (slot.seen == expected) {
                slot.flags = slot.flags | INAGG_SLOT_SENT;
                count(meta.row, STAT_COMPLETIONS, 1);
                send_sum(hdr, meta, slot);
            }
        }
        store_slot(meta.slot_key, slot);
        store_descriptor(meta.slot_key, d);
    }
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    HearLeader() hear_leader;
    SendWhatIsDue() send_what_is_due;
    FindArrivedRanks() find_arrived_ranks;
    MeetOthers() meet_others;

    apply {
        bit<4> type = hdr.inagg.type;
        bit<48> now = standard.ingress_global_timestamp;

        if (type == INAGG_RESULT || type == INAGG_WAIT || type == INAGG_BLOCK_FAILED) {
            hear_leader.apply(hdr, meta);
        } else if (type == INAGG_TICK) {
            send_what_is_due.apply(hdr, meta, now);
        } else if (type == INAGG_REQUEST) {
            pass_on(hdr, meta, 0);
        } else if (type == INAGG_RESTORE) {
            meta.reason = INAGG_R_TYPE;	// a leader forgets nothing that could be restored
        } else {
            bit<64> ranks;
            find_arrived_ranks.apply(hdr.inagg, meta, ranks);
            if (ranks == 0) {
                meta.reason = INAGG_R_RANK;
            } else if (hdr.inagg.flags & INAGG_F_BYPASS != 0) {
                pass_on(hdr, meta, 0);
            } else if (hdr.inagg.switch_id >= INAGG_CANARY_ATTEMPTS || hdr.inagg.flags & INAGG_F_WHOLE != 0 ||
                       (hdr.inagg.elements == 0 && hdr.inagg.dtype != INAGG_WIRE_NONE)) {
                pass_on(hdr, meta, INAGG_F_BYPASS);	// it has no room for a sum
            } else {
                meet_others.apply(hdr, meta, ranks, now);
            }
        }
        // Where the target is behind a switch above, up; but a switch does not get back what it has sent.
        if (meta.way == way_t.down) {
            if (meta.place.port == 0) {
                meta.way = way_t.up;
                if (meta.up != 0) {
                    meta.reason = INAGG_R_PARENT;
                }
            } else if (meta.place.subtree != 0 && meta.place.address == meta.source) {
                meta.reason = INAGG_R_PORT;
            }
        }
        if (meta.is_relayed == 1 && meta.reason == INAGG_R_NONE) {
            count(meta.row, STAT_RELAYED, 1);
        }
    }
}

// Is a copy of the leader's word for whom it goes to?  A RESULT names those of them that it is for; a rank sees all ranks.
control AddressCopy(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    apply {
        bit<16> rid = standard.egress_rid;
        bit<64> subtree = meta.copy_subtree;
        bit<64> named = hdr.inagg.contributors;
        bit<64> below = subtree != 0 ? subtree : 64w1 << (bit<8>)rid;
        bool goes = below & (64w1 << (bit<8>)meta.leader) == 0;
        bit<64> told = subtree != 0 ? named & subtree : meta.everyone;
        if (rid >= INAGG_MAX_RANKS) {
            // Of those above, the first is to find whom no descriptor knows.
            bit<8> up = 8w1 << (bit<8>)(rid - INAGG_MAX_RANKS);
            bit<8> first = hdr.inagg.port & (~hdr.inagg.port + 1);
            goes = hdr.inagg.port & up != 0;
            told = up == first ? named & meta.everyone & ~meta.here : 0;
        } else if (hdr.inagg.type == INAGG_BLOCK_FAILED) {
            goes = goes && below & ~named != 0;
        } else {
            goes = goes && below & named != 0;
        }
        if (!goes) {
            mark_to_drop(standard);
        } else if (hdr.inagg.type == INAGG_RESULT) {
            hdr.inagg.contributors = told;
        }
        hdr.inagg.port = 0;
    }
}

#include "pipeline.p4"
