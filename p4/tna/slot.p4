// SPDX-License-Identifier: BSD-2-Clause
// What a slot knows of its block: struct inagg_slot, spread over registers that each can be touched once by a packet.
#ifndef INAGG_P4_TNA_SLOT
#define INAGG_P4_TNA_SLOT

// Third stage: type and scale (inagg_slot_agrees()).  All blocks of one slot have the same number of elements, or none.
control SlotTag(in frame_t hdr, inout facts_t meta) {
    Register<tag_t, key_t>(KEYS) slot_tag;
#define COMPARE_TAG this.predicate(slot.block == hdr.inagg.block, slot.tag == meta.tag)
    RegisterAction<tag_t, key_t, pair_t>(slot_tag) agree_or_take = {
        void apply(inout tag_t slot, out pair_t fit) {
            fit = COMPARE_TAG;
            if (slot.block != hdr.inagg.block) {
                slot.tag = meta.tag;
            }
            slot.block = hdr.inagg.block;
        }
    };
    RegisterAction<tag_t, key_t, pair_t>(slot_tag) take = {
        void apply(inout tag_t slot) {
            slot.block = hdr.inagg.block;
            slot.tag = meta.tag;
        }
    };
    RegisterAction<tag_t, key_t, pair_t>(slot_tag) agree = {
        void apply(inout tag_t slot, out pair_t fit) {
            fit = COMPARE_TAG;
        }
    };
    RegisterAction<tag_t, key_t, bit<32>>(slot_tag) tell = {
        void apply(inout tag_t slot, out bit<32> tag) {
            tag = 0;
            if (slot.block == hdr.inagg.block) {
                tag = slot.tag;
            }
        }
    };

    action do_agree_or_take() {
        meta.fit = agree_or_take.execute(meta.index);
    }
    action do_take() {
        take.execute(meta.index);
    }
    action do_agree() {
        meta.fit = agree.execute(meta.index);
    }
    action do_tell() {
        meta.slot_tag = tell.execute(meta.index);
    }
    table tags {
        key = { meta.wish: ternary; meta.order: ternary; }
        actions = { do_agree_or_take; do_take; do_agree; do_tell; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            (WISH_ADD, FIRST_ONLY): do_agree_or_take();
            (WISH_ADD, BOTH): NoAction();
            (WISH_ADD, _): do_take();
            (WISH_ASK, FIRST_ONLY): do_tell();
            (WISH_RESTORE, FIRST_ONLY): do_agree();
        }
    }

    apply {
        tags.apply();
    }
}

// Fourth stage: the ranks that are missing, in three registers that always hold the same, since an ALU answers one question.
#define MISSING_ENTRIES(fold, take, tell, give_back) \
            (WISH_ADD, BOTH, _, _): NoAction(); \
            (WISH_ADD, FIRST_ONLY, BOTH, _): fold(); \
            (WISH_ADD, FIRST_ONLY, FIRST_ONLY, _): NoAction(); \
            (WISH_ADD, _, _, _): take(); \
            (WISH_ASK, _, _, TAG_HELD &&& TAG_HELD): tell(); \
            (WISH_RESTORE, _, BOTH, _): give_back();
#define MISSING_KEY \
        key = { meta.wish: ternary; meta.order: ternary; meta.fit: ternary; meta.slot_tag: ternary; }

// Is the packet's rank in already?
control SlotTwice(inout facts_t meta) {
    Register<bit<32>, key_t>(KEYS) slot_missing;
    RegisterAction<bit<32>, key_t, bit<32>>(slot_missing) fold = {
        void apply(inout bit<32> missing, out bit<32> twice) {
            twice = ~missing & meta.rank;
            missing = missing & ~meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(slot_missing) take = {
        void apply(inout bit<32> missing) {
            missing = meta.others;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(slot_missing) give_back = {
        void apply(inout bit<32> missing) {
            missing = 0;
        }
    };

    action do_fold() {
        meta.twice = fold.execute(meta.index);
    }
    action do_take() {
        take.execute(meta.index);
    }
    action do_give_back() {
        give_back.execute(meta.index);
    }
    table twice {
        MISSING_KEY
        actions = { do_fold; do_take; do_give_back; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = { MISSING_ENTRIES(do_fold, do_take, NoAction, do_give_back) }
    }

    apply {
        twice.apply();
    }
}

// Is nobody missing, or only the packet's rank?
control SlotLack(inout facts_t meta) {
    Register<bit<32>, key_t>(KEYS) slot_missing;
#define COMPARE_MISSING this.predicate(missing == 0, missing == meta.rank)
    RegisterAction<bit<32>, key_t, pair_t>(slot_missing) fold = {
        void apply(inout bit<32> missing, out pair_t lack) {
            lack = COMPARE_MISSING;
            missing = missing & ~meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, pair_t>(slot_missing) take = {
        void apply(inout bit<32> missing) {
            missing = meta.others;
        }
    };
    RegisterAction<bit<32>, key_t, pair_t>(slot_missing) tell = {
        void apply(inout bit<32> missing, out pair_t lack) {
            lack = COMPARE_MISSING;
        }
    };
    RegisterAction<bit<32>, key_t, pair_t>(slot_missing) give_back = {
        void apply(inout bit<32> missing, out pair_t lack) {
            lack = COMPARE_MISSING;
            missing = 0;
        }
    };

    action do_fold() {
        meta.lack = fold.execute(meta.index);
    }
    action do_take() {
        take.execute(meta.index);
    }
    action do_tell() {
        meta.lack = tell.execute(meta.index);
    }
    action do_give_back() {
        meta.lack = give_back.execute(meta.index);
    }
    table lack {
        MISSING_KEY
        actions = { do_fold; do_take; do_tell; do_give_back; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = { MISSING_ENTRIES(do_fold, do_take, do_tell, do_give_back) }
    }

    apply {
        lack.apply();
    }
}

// Who is missing?  And what the packet comes to, as far as its block goes.
control SlotMissing(inout facts_t meta) {
    Register<bit<32>, key_t>(KEYS) slot_missing;
    RegisterAction<bit<32>, key_t, bit<32>>(slot_missing) fold = {
        void apply(inout bit<32> missing, out bit<32> before) {
            before = missing;
            missing = missing & ~meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(slot_missing) take = {
        void apply(inout bit<32> missing) {
            missing = meta.others;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(slot_missing) tell = {
        void apply(inout bit<32> missing, out bit<32> before) {
            before = missing;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(slot_missing) give_back = {
        void apply(inout bit<32> missing) {
            missing = 0;
        }
    };

    action do_fold() {
        meta.deed = DEED_FOLD;
        meta.missing = fold.execute(meta.index);
    }
    action do_take() {
        meta.deed = DEED_TAKE;
        take.execute(meta.index);
    }
    action do_tell() {
        meta.deed = DEED_LOOK;
        meta.missing = tell.execute(meta.index);
    }
    action do_give_back() {
        meta.deed = DEED_RESTORE;
        give_back.execute(meta.index);
    }
    action know_nobody() {
        meta.deed = DEED_LOOK;
        meta.missing = meta.everyone;
    }
    action fail(deed_t deed) {
        meta.deed = deed;
    }
    table missing {
        MISSING_KEY
        actions = { do_fold; do_take; do_tell; do_give_back; know_nobody; fail; }
        const default_action = fail(DEED_NONE);
        size = 16;
        const entries = {
            (WISH_ADD, BOTH, _, _): fail(DEED_STALE);
            (WISH_ADD, FIRST_ONLY, BOTH, _): do_fold();
            (WISH_ADD, FIRST_ONLY, FIRST_ONLY, _): fail(DEED_MISMATCH);
            (WISH_ADD, _, _, _): do_take();
            (WISH_ASK, BOTH, _, _): fail(DEED_STALE);
            (WISH_ASK, _, _, TAG_HELD &&& TAG_HELD): do_tell();
            (WISH_ASK, _, _, _): know_nobody();
            (WISH_RESTORE, _, BOTH, _): do_give_back();
            (WISH_RESTORE, _, FIRST_ONLY, _): fail(DEED_MISMATCH);
            (WISH_RESTORE, _, _, _): fail(DEED_UNSOLICITED);
        }
    }

    apply {
        missing.apply();
    }
}

#endif
