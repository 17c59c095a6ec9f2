// SPDX-License-Identifier: BSD-2-Clause
// struct inagg_slot, and the parts of inagg/core/slot.h that algorithms share.
#ifndef INAGG_P4_SLOT
#define INAGG_P4_SLOT

struct slot_t {
    bit<64> seen;
    bit<32> block;
    bit<16> generation;
    bit<16> elements;
    bit<8>  dtype_op;
    bit<8>  scale;
    bit<8>  next_scale;
    bit<8>  flags;
    bit<12> marks;
    bit<16> cap;
}
register<bit<64>>(SLOTS * 2) slot_seen;
register<bit<32>>(SLOTS * 2) slot_block;
register<bit<16>>(SLOTS * 2) slot_generation;
register<bit<16>>(SLOTS * 2) slot_elements;
register<bit<8>>(SLOTS * 2) slot_dtype_op;
register<bit<8>>(SLOTS * 2) slot_scale;
register<bit<8>>(SLOTS * 2) slot_next_scale;
register<bit<8>>(SLOTS * 2) slot_flags;
register<bit<12>>(SLOTS * 2) slot_marks;
register<bit<16>>(SLOTS * 2) slot_cap;

action load_slot(in bit<32> key, out slot_t slot) {
    slot_seen.read(slot.seen, key);
    slot_block.read(slot.block, key);
    slot_generation.read(slot.generation, key);
    slot_elements.read(slot.elements, key);
    slot_dtype_op.read(slot.dtype_op, key);
    slot_scale.read(slot.scale, key);
    slot_next_scale.read(slot.next_scale, key);
    slot_flags.read(slot.flags, key);
    slot_marks.read(slot.marks, key);
    slot_cap.read(slot.cap, key);
}

action store_slot(in bit<32> key, in slot_t slot) {
    slot_seen.write(key, slot.seen);
    slot_block.write(key, slot.block);
    slot_generation.write(key, slot.generation);
    slot_elements.write(key, slot.elements);
    slot_dtype_op.write(key, slot.dtype_op);
    slot_scale.write(key, slot.scale);
    slot_next_scale.write(key, slot.next_scale);
    slot_flags.write(key, slot.flags);
    slot_marks.write(key, slot.marks);
    slot_cap.write(key, slot.cap);
}

// inagg_slot_take()
action take_slot(in inagg_h h, out slot_t slot) {
    slot = { 0, h.block, h.generation, 0, h.dtype ++ h.op, h.scale, 0, INAGG_SLOT_LIVE, 0, 0 };
}

// inagg_slot_give_back(), of a result that agrees
@noWarn("unused") action give_back(in inagg_h h, in bit<64> contributors, in bit<12> marks, inout slot_t slot) {
    slot.seen = contributors;
    slot.elements = h.elements;
    slot.next_scale = h.next_scale;
    slot.marks = marks;
    slot.cap = h.window_cap;
    slot.flags = INAGG_SLOT_LIVE | INAGG_SLOT_COMPLETE | (bit<8>)(h.flags & INAGG_F_SATURATED) >> 1;
}

// Does the slot hold the packet's block (inagg_slot_holds()), or a later one (inagg_slot_is_past())?  Does it agree with
// what the packet says of the block (inagg_slot_agrees())?
control CompareWithSlot(in inagg_h h, in slot_t slot, out bool holds, out bool is_past, out bool agrees) {
    apply {
        bool is_ours = slot.flags & INAGG_SLOT_LIVE != 0 && slot.generation == h.generation;
        holds = is_ours && slot.block == h.block;
        is_past = is_ours && (int<32>)(h.block - slot.block) < 0;
        agrees = slot.dtype_op == h.dtype ++ h.op && slot.scale == h.scale &&
                 (h.elements == 0 || slot.elements == 0 || slot.elements == h.elements);
    }
}

// The end of inagg_slot_fold(): the packet, which is not in yet and agrees, is the sum of @ranks.
control FoldIntoSlot(in inagg_h h, in bit<64> ranks, in bit<12> marks, inout slot_t slot, out move_t move) {
    apply {
        move = move_t.none;
        if (h.elements != 0) {
            if (slot.elements == 0) {
                move = move_t.store;
            } else if (h.op == INAGG_WIRE_MIN) {
                move = move_t.minimum;
            } else if (h.op == INAGG_WIRE_MAX) {
                move = move_t.maximum;
            } else {
                move = move_t.add;
            }
            slot.elements = h.elements;
        }
        slot.seen = slot.seen | ranks;
        if (h.next_scale > slot.next_scale) {
            slot.next_scale = h.next_scale;
        }
        if (h.flags & INAGG_F_SATURATED != 0) {
            slot.flags = slot.flags | INAGG_SLOT_SATURATED;
        }
        slot.marks = slot.marks | (marks & INAGG_F_CONGESTION);
        if (h.window_cap != 0 && (slot.cap == 0 || h.window_cap < slot.cap)) {
            slot.cap = h.window_cap;
        }
    }
}

// The header of a sum that this switch sends: answer() in bpf/answer.h.
// @flags: beside those that the slot and the packet have.
action write_sum(inout headers_t hdr, inout metadata_t meta, in slot_t slot, in bit<4> type, in bit<12> flags) {
    meta.is_answer = 1;
    hdr.inagg.type = type;
    hdr.inagg.flags = (hdr.inagg.flags & (INAGG_F_VERSION | INAGG_F_RESEND)) | flags | slot.marks |
                      (bit<12>)(slot.flags & INAGG_SLOT_SATURATED) << 1;
    hdr.inagg.contributors = slot.seen;
    count_ranks(slot.seen, hdr.inagg.count);
    hdr.inagg.window_cap = slot.cap;
    hdr.inagg.dtype = slot.dtype_op[7:4];
    hdr.inagg.op = slot.dtype_op[3:0];
    hdr.inagg.scale = slot.scale;
    hdr.inagg.next_scale = slot.next_scale;
    hdr.inagg.elements = slot.elements;
}

#endif
