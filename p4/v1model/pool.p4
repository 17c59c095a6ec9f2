// SPDX-License-Identifier: BSD-2-Clause
// What switchml and panama share: jobs with pools of slots of their own, in one switch or in a tree of them.  The rules,
// and why they hold, are in inagg/core/slot.h and tree.h: what is here follows them function by function.
#ifndef INAGG_P4_POOL
#define INAGG_P4_POOL

#include "state.p4"
#include "parser.p4"
#include "admission.p4"
#include "elements.p4"
#include "slot.p4"
#include "tree.p4"
#include "mark.p4"

control Aggregation(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    slot_t slot;
    bool holds;
    bool is_past;
    bool agrees;
    bit<12> marks;
    CompareWithSlot() compare;
    FoldIntoSlot() fold;
    FindMark() find_mark;

    action refuse(bit<8> reason) {
        meta.reason = reason;
    }
    action pass_up() {
        meta.way = way_t.up;
        count(meta.row, STAT_RELAYED, 1);
    }
    action wait(way_t way, bit<64> who, bit<12> flags) {
        meta.way = way;
        count(meta.row, STAT_WAITS, 1);
        write_wait(hdr, meta, who, flags);
    }
    // The slot's sum, which the packet does not hold.
    action load_sum(way_t way, bit<4> type) {
        meta.way = way;
        meta.move = move_t.load;
        write_sum(hdr, meta, slot, type, 0);
    }
    // The packet's elements are all there is, or are going to be.
    action send_sum(way_t way, bit<4> type) {
        meta.way = way;
        write_sum(hdr, meta, slot, type, 0);
    }
    action take_back(bit<64> contributors) {
        give_back(hdr.inagg, contributors, marks, slot);
        meta.move = move_t.store;
    }

    apply {
        bool is_root = meta.here == meta.everyone;
        bit<64> elsewhere = meta.everyone & ~meta.here;
        marks = hdr.inagg.flags & INAGG_F_CONGESTION;
        if (meta.in_tree == 1 || ALGORITHM == INAGG_PANAMA) {
            bit<12> mark;
            find_mark.apply(hdr, mark);
            marks = marks | mark;
        }
        load_slot(meta.slot_key, slot);
        compare.apply(hdr.inagg, slot, holds, is_past, agrees);
        bool is_complete = holds && slot.flags & INAGG_SLOT_COMPLETE != 0;
        bool is_sent = holds && slot.flags & INAGG_SLOT_SENT != 0;
        meta.move = move_t.none;

        if (hdr.inagg.type == INAGG_REQUEST) {
            if (is_past) {
                refuse(INAGG_R_STALE);
            } else if (is_complete) {
                count(meta.row, STAT_REPLIES, 1);
                load_sum(way_t.reply, INAGG_RESULT);
            } else if (is_sent) {
                pass_up();
            } else {
                // Of ranks behind other switches nothing is known here: nobody shall blame them.
                bit<64> who = holds && slot.seen != 0 ? slot.seen | elsewhere : 0;
                if (hdr.inagg.flags & INAGG_F_MULTICAST == 0) {
                    wait(way_t.reply, who, 0);
                } else {
                    wait(way_t.multicast, who, meta.in_tree == 1 ? INAGG_F_MULTICAST : 0);
                }
            }
        } else if (hdr.inagg.type == INAGG_WAIT) {
            bit<64> who = hdr.inagg.contributors;
            if (holds && slot.flags & (INAGG_SLOT_SENT | INAGG_SLOT_COMPLETE) == 0) {
                who = who | slot.seen;
            }
            bit<12> kept = hdr.inagg.flags & (INAGG_F_MULTICAST | INAGG_F_SATURATED);
            wait(kept & INAGG_F_MULTICAST != 0 ? way_t.multicast : way_t.down, who, kept);
        } else if (hdr.inagg.type == INAGG_RESULT) {
            if (hdr.inagg.contributors != meta.everyone) {
                refuse(INAGG_R_RANK);
            } else if (is_past) {
                refuse(INAGG_R_STALE);
            } else if (is_complete) {
                refuse(INAGG_R_DUPLICATE);
            } else if (holds && (!agrees || (slot.elements != 0 && hdr.inagg.elements == 0))) {
                refuse(INAGG_R_MISMATCH);
            } else {
                take_slot(hdr.inagg, slot);
                take_back(hdr.inagg.contributors);
                count(meta.row, STAT_RELAYED, 1);
                send_sum(way_t.multicast, INAGG_RESULT);
            }
        } else if (hdr.inagg.type == INAGG_RESTORE) {
            bool somebody_waits = holds && slot.seen != 0 && !is_complete && !is_sent;
            if (!somebody_waits && !is_root) {
                pass_up();
            } else if (!somebody_waits) {
                refuse(INAGG_R_UNSOLICITED);
            } else if (!agrees || (slot.elements != 0 && hdr.inagg.elements == 0)) {
                refuse(INAGG_R_MISMATCH);
            } else {
                take_back(meta.everyone);
                count(meta.row, STAT_RESTORES, 1);
                send_sum(way_t.multicast, INAGG_RESULT);
            }
        } else if (meta.ranks == 0) {
            refuse(INAGG_R_RANK);
        } else if (hdr.inagg.elements == 0 && hdr.inagg.dtype != INAGG_WIRE_NONE && hdr.inagg.dtype != INAGG_WIRE_INT32) {
            refuse(INAGG_R_ELEMENTS);
        } else if (is_past) {
            refuse(INAGG_R_STALE);
        } else if (is_complete) {
            count(meta.row, STAT_DUPLICATES, 1);
            count(meta.row, STAT_REPLIES, 1);
            load_sum(way_t.reply, INAGG_RESULT);
        } else if (holds && slot.seen & meta.ranks != 0) {
            count(meta.row, STAT_DUPLICATES, 1);
            if (is_sent) {
                count(meta.row, STAT_RELAYED, 1);
                load_sum(way_t.up, INAGG_PARTIAL);
            } else {
                wait(way_t.reply, slot.seen | elsewhere, 0);
            }
        } else if (holds && !agrees) {
            refuse(INAGG_R_MISMATCH);
        } else {
            if (!holds) {
                take_slot(hdr.inagg, slot);
            }
            fold.apply(hdr.inagg, meta.ranks, marks, slot, meta.move);
            count(meta.row, STAT_ADDITIONS, 1);
            count(meta.row, STAT_ELEMENTS, (bit<64>)hdr.inagg.elements);
            if (slot.seen == meta.here) {
                count(meta.row, STAT_COMPLETIONS, 1);
                // Who comes last may bring nothing.
                if (meta.move == move_t.none) {
                    meta.move = move_t.load;
                }
                if (is_root) {
                    slot.flags = slot.flags | INAGG_SLOT_COMPLETE;
                    send_sum(way_t.multicast, INAGG_RESULT);
                } else {
                    slot.flags = slot.flags | INAGG_SLOT_SENT;
                    send_sum(way_t.up, INAGG_PARTIAL);
                }
            }
        }
        if (meta.reason == INAGG_R_NONE) {
            // Where nothing has changed this writes what is there.
            store_slot(meta.slot_key, slot);
            meta.sum_elements = slot.elements;
        }
    }
}

#include "pipeline.p4"

#endif
