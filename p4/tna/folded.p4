// SPDX-License-Identifier: BSD-2-Clause
// What a sum has beside its elements, folded from what its packets say.  A register that must know whether the slot holds the
// packet's block keeps the block's number, too.
#ifndef INAGG_P4_TNA_FOLDED
#define INAGG_P4_TNA_FOLDED

struct tag_t {
    bit<32> block;
    bit<32> tag;
}
struct mark_t {
    bit<32> block;
    bit<32> mark;
}

// They do not mind being told twice: the greatest next_scale ...
control SlotNextScale(in frame_t hdr, inout facts_t meta) {
    Register<mark_t, key_t>(KEYS) slot_next_scale;
#define NEXT_SCALE ((bit<32>)hdr.inagg.next_scale)
    RegisterAction<mark_t, key_t, bit<32>>(slot_next_scale) fold = {
        void apply(inout mark_t slot, out bit<32> result) {
            if (slot.block == hdr.inagg.block) {
                slot.mark = max(slot.mark, NEXT_SCALE);
            } else {
                slot.mark = NEXT_SCALE;
            }
            slot.block = hdr.inagg.block;
            result = slot.mark;
        }
    };
    RegisterAction<mark_t, key_t, bit<32>>(slot_next_scale) take = {
        void apply(inout mark_t slot, out bit<32> result) {
            slot.block = hdr.inagg.block;
            slot.mark = NEXT_SCALE;
            result = slot.mark;
        }
    };
    RegisterAction<mark_t, key_t, bit<32>>(slot_next_scale) tell = {
        void apply(inout mark_t slot, out bit<32> result) {
            result = slot.mark;
        }
    };
    RegisterAction<mark_t, key_t, bit<32>>(slot_next_scale) give_back = {
        void apply(inout mark_t slot, out bit<32> result) {
            if (slot.block == hdr.inagg.block) {
                slot.mark = NEXT_SCALE;
            }
            result = slot.mark;
        }
    };

    action do_fold() {
        meta.next_scale = fold.execute(meta.index);
    }
    action do_take() {
        meta.next_scale = take.execute(meta.index);
    }
    action do_tell() {
        meta.next_scale = tell.execute(meta.index);
    }
    action do_give_back() {
        meta.next_scale = give_back.execute(meta.index);
    }
    @stage(2) table next_scales {
        key = { meta.wish: ternary; meta.order: ternary; }
        actions = { do_fold; do_take; do_tell; do_give_back; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            (WISH_ADD, FIRST_ONLY): do_fold();
            (WISH_ADD, BOTH): NoAction();
            (WISH_ADD, _): do_take();
            (WISH_ASK, FIRST_ONLY): do_tell();
            (WISH_RESTORE, FIRST_ONLY): do_give_back();
        }
    }

    apply {
        next_scales.apply();
    }
}

// ... and the flags that a sum has if one of its packets had them: a router's mark of one that came twice, too.
control SlotFlags(in frame_t hdr, inout facts_t meta) {
    Register<mark_t, key_t>(KEYS) slot_flags;
#define KEPT ((bit<32>)(hdr.inagg.flags & (INAGG_F_SATURATED | INAGG_F_CONGESTION)))
    RegisterAction<mark_t, key_t, bit<32>>(slot_flags) fold = {
        void apply(inout mark_t slot, out bit<32> result) {
            if (slot.block == hdr.inagg.block) {
                slot.mark = slot.mark | KEPT;
            } else {
                slot.mark = KEPT;
            }
            slot.block = hdr.inagg.block;
            result = slot.mark;
        }
    };
    RegisterAction<mark_t, key_t, bit<32>>(slot_flags) take = {
        void apply(inout mark_t slot, out bit<32> result) {
            slot.block = hdr.inagg.block;
            slot.mark = KEPT;
            result = slot.mark;
        }
    };
    RegisterAction<mark_t, key_t, bit<32>>(slot_flags) tell = {
        void apply(inout mark_t slot, out bit<32> result) {
            result = slot.mark;
        }
    };
    RegisterAction<mark_t, key_t, bit<32>>(slot_flags) give_back = {
        void apply(inout mark_t slot, out bit<32> result) {
            if (slot.block == hdr.inagg.block) {
                slot.mark = KEPT;
            }
            result = slot.mark;
        }
    };

    action do_fold() {
        meta.result_flags = fold.execute(meta.index);
    }
    action do_take() {
        meta.result_flags = take.execute(meta.index);
    }
    action do_tell() {
        meta.result_flags = tell.execute(meta.index);
    }
    action do_give_back() {
        meta.result_flags = give_back.execute(meta.index);
    }
    table flags {
        key = { meta.wish: ternary; meta.order: ternary; }
        actions = { do_fold; do_take; do_tell; do_give_back; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            (WISH_ADD, FIRST_ONLY): do_fold();
            (WISH_ADD, BOTH): NoAction();
            (WISH_ADD, _): do_take();
            (WISH_ASK, FIRST_ONLY): do_tell();
            (WISH_RESTORE, FIRST_ONLY): do_give_back();
        }
    }

    apply {
        flags.apply();
    }
}

#endif
