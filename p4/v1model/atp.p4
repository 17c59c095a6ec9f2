// SPDX-License-Identifier: BSD-2-Clause
// ATP (§3.5, §3.7, Figures 7 and 17): slots that belong to nobody, with a server behind.  The rules, and why they hold,
// are in inagg/core/aggregator.h: what is here follows it function by function.
#include <core.p4>
#include <v1model.p4>

#include "../shared/constants.p4"
#include "../shared/headers.p4"

const bit<8> ALGORITHM = INAGG_ATP;

#include "state.p4"
#include "parser.p4"
#include "admission.p4"
#include "elements.p4"
#include "slot.p4"
#include "tree.p4"
#include "mark.p4"

// struct inagg_aggregator around its slot
struct owner_t {
    bit<32> touched;
    bit<32> job;	// row
    bit<1>  stream;
    bit<12> marks;
    bit<64> gone;
}
register<bit<32>>(SLOTS * 2) owner_touched;
register<bit<32>>(SLOTS * 2) owner_job;
register<bit<1>>(SLOTS * 2) owner_stream;
register<bit<12>>(SLOTS * 2) owner_marks;
register<bit<64>>(SLOTS * 2) owner_gone;

action load_owner(in bit<32> key, out owner_t owner) {
    owner_touched.read(owner.touched, key);
    owner_job.read(owner.job, key);
    owner_stream.read(owner.stream, key);
    owner_marks.read(owner.marks, key);
    owner_gone.read(owner.gone, key);
}

action store_owner(in bit<32> key, in owner_t owner) {
    owner_touched.write(key, owner.touched);
    owner_job.write(key, owner.job);
    owner_stream.write(key, owner.stream);
    owner_marks.write(key, owner.marks);
    owner_gone.write(key, owner.gone);
}

// What a sum has if one of its packets had it.
const bit<12> AGGREGATED_FLAGS = INAGG_F_RESEND | INAGG_F_COLLISION | INAGG_F_CONGESTION;
const bit<32> STALE_TICKS = 2097;	// of 1.024 ms: as long as INAGG_AGGREGATOR_STALE

// inagg_aggregator_fold(), of a packet that agrees
control FoldIntoAggregator(in inagg_h h, in bit<64> ranks, in bit<12> marks, inout slot_t slot, inout owner_t owner,
                           out move_t move) {
    FoldIntoSlot() fold;

    apply {
        // What has gone on makes room for a sum of those who come after it.
        if (slot.seen & owner.gone != 0) {
            take_slot(h, slot);
            owner.marks = 0;
        }
        owner.marks = owner.marks | marks;
        fold.apply(h, ranks, marks, slot, move);
    }
}

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    slot_t slot;
    owner_t owner;
    bit<32> key;
    CompareWithSlot() compare;
    FoldIntoAggregator() fold;
    FindMark() find_mark;

    action refuse(bit<8> reason) {
        meta.reason = reason;
    }
    action pass_up() {
        meta.way = way_t.up;
        count(meta.row, STAT_RELAYED, 1);
    }
    // The server will move the position to another aggregator.
    action collide() {
        pass_up();
        count(meta.row, STAT_COLLISIONS, 1);
        hdr.inagg.flags = hdr.inagg.flags | INAGG_F_COLLISION;
    }

    // inagg_aggregator_contribute()
    action take() {
        take_slot(hdr.inagg, slot);
        owner.job = meta.row;
        owner.marks = 0;
        owner.gone = 0;
    }

    apply {
        bit<12> mark;
        find_mark.apply(hdr, mark);
        hdr.inagg.flags = hdr.inagg.flags | mark;
        bit<12> marks = hdr.inagg.flags & AGGREGATED_FLAGS;
        bool is_resend = hdr.inagg.flags & INAGG_F_RESEND != 0;
        bit<1> stream = hdr.inagg.slot >= meta.slots ? 1w1 : 1w0;
        bit<32> window = stream == 1 ? meta.control_slots : meta.slots;
        bit<32> now = (bit<32>)(standard.ingress_global_timestamp >> 10);
        bool is_server_only = hdr.inagg.flags & INAGG_F_WHOLE != 0 || hdr.inagg.dtype == INAGG_WIRE_FLOAT32 ||
                              (hdr.inagg.elements == 0 && hdr.inagg.dtype != INAGG_WIRE_NONE);
        bool holds;
        bool is_past;
        bool agrees;
        find_shared(meta, hdr.inagg.switch_id, key);
        meta.move = move_t.none;
        load_slot(key, slot);
        load_owner(key, owner);
        compare.apply(hdr.inagg, slot, holds, is_past, agrees);
        bool is_live = slot.flags & INAGG_SLOT_LIVE != 0;
        bool is_jobs = is_live && owner.job == meta.row && owner.stream == stream;
        bool is_abandoned = !is_live || now - owner.touched >= STALE_TICKS;
        holds = holds && is_jobs;

        if (meta.from_above == 1) {
            // To the ranks as if from here, since they know one switch; a RESULT frees its aggregator.
            bit<12> told = hdr.inagg.flags & (INAGG_F_MULTICAST | INAGG_F_SATURATED);
            if (hdr.inagg.type == INAGG_RESULT && hdr.inagg.contributors != meta.everyone) {
                refuse(INAGG_R_RANK);
                return;
            }
            meta.way = told & INAGG_F_MULTICAST != 0 ? way_t.multicast : way_t.down;
            if (hdr.inagg.type == INAGG_WAIT) {
                count(meta.row, STAT_WAITS, 1);
                write_wait(hdr, meta, hdr.inagg.contributors, told);
            } else {
                count(meta.row, STAT_REPLIES, 1);
                hdr.inagg.boot = meta.boot;
                if (holds || is_abandoned) {
                    slot_flags.write(key, slot.flags & ~INAGG_SLOT_LIVE);
                }
            }
            return;
        }
        if (hdr.inagg.type == INAGG_RESTORE) {
            refuse(INAGG_R_TYPE);	// a server forgets nothing that could be restored
            return;
        }
        if (hdr.inagg.type == INAGG_REQUEST) {
            pass_up();
            return;
        }
        if (meta.ranks == 0) {
            refuse(INAGG_R_RANK);
            return;
        }
        if (is_server_only) {
            pass_up();
            return;
        }
        if (!holds) {
            if (is_resend || meta.ranks == meta.here) {
                pass_up();	// nobody else is to come here
                return;
            }
            // Abandoned, or an earlier block of the same position, whose result all that send this one have.
            bool is_overtaken = is_jobs && (slot.generation != hdr.inagg.generation ||
                                            ((int<32>)(slot.block - hdr.inagg.block) < 0 &&
                                             (slot.block ^ hdr.inagg.block) & (window - 1) == 0));
            if (!is_abandoned && !is_overtaken) {
                collide();
                return;
            }
            take();
            owner.stream = stream;
        } else if (!agrees) {
            pass_up();		// the server's to refuse
            return;
        }
        if (is_resend && meta.ranks & ~slot.seen == 0) {
            // All that is here goes on, once more; after that these packets pass by themselves.
            if (slot.flags & INAGG_SLOT_SENT != 0) {
                pass_up();
                return;
            }
            slot.flags = slot.flags | INAGG_SLOT_SENT;
            owner.gone = owner.gone | slot.seen;
            owner.marks = owner.marks | marks;
            meta.move = move_t.load;
            meta.way = way_t.up;
            count(meta.row, STAT_DUPLICATES, 1);
            count(meta.row, STAT_RELAYED, 1);
        } else if (meta.ranks & (slot.seen | owner.gone) != 0) {
            if (is_resend) {
                pass_up();	// the server may have some of them
            } else {
                count(meta.row, STAT_DUPLICATES, 1);
                refuse(INAGG_R_DUPLICATE);
            }
            return;
        } else {
            fold.apply(hdr.inagg, meta.ranks, marks, slot, owner, meta.move);
            owner.touched = now;
            count(meta.row, STAT_ADDITIONS, 1);
            count(meta.row, STAT_ELEMENTS, (bit<64>)hdr.inagg.elements);
            if (is_resend || slot.seen | owner.gone == meta.here) {
                owner.gone = owner.gone | slot.seen;
                meta.way = way_t.up;
            }
        }
        store_slot(key, slot);
        store_owner(key, owner);
        meta.slot_key = key;
        meta.sum_elements = slot.elements;
        if (meta.way == way_t.up) {
            if (slot.seen == meta.here) {
                count(meta.row, STAT_COMPLETIONS, 1);
            } else {
                count(meta.row, STAT_PARTIALS, 1);
            }
            write_sum(hdr, meta, slot, INAGG_PARTIAL, owner.marks);
        }
    }
}

#include "pipeline.p4"
