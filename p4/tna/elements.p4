// SPDX-License-Identifier: BSD-2-Clause
// The elements of slots, a register a lane, from the fifth stage on.
#ifndef INAGG_P4_TNA_ELEMENTS
#define INAGG_P4_TNA_ELEMENTS

control Lane(inout bit<32> element, in facts_t meta) {
    Register<bit<32>, key_t>(KEYS) lane;
    RegisterAction<bit<32>, key_t, bit<32>>(lane) store = {
        void apply(inout bit<32> value) {
            value = element;
        }
    };
    // For the first of a block that brings none: so the next can be added.
    RegisterAction<bit<32>, key_t, bit<32>>(lane) clear = {
        void apply(inout bit<32> value) {
            value = 0;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(lane) add = {
        void apply(inout bit<32> value, out bit<32> sum) {
            value = value + element;
            sum = value;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(lane) load = {
        void apply(inout bit<32> value, out bit<32> sum) {
            sum = value;
        }
    };

    action do_store() {
        store.execute(meta.index);
    }
    action do_clear() {
        clear.execute(meta.index);
    }
    action do_add() {
        element = add.execute(meta.index);
    }
    action do_load() {
        element = load.execute(meta.index);
    }
    table lanes {
        key = { meta.deed: ternary; meta.lack: ternary; meta.twice: ternary; meta.form: ternary; }
        actions = { do_store; do_clear; do_add; do_load; NoAction; }
        const default_action = NoAction;
        size = 16;
        const entries = {
            (DEED_TAKE, _, _, FORM_FULL): do_store();
            (DEED_TAKE, _, _, _): do_clear();
            (DEED_FOLD, FIRST_ONLY, _, _): do_load();
            (DEED_FOLD, _, 0, FORM_FULL): do_add();
            (DEED_FOLD, SECOND_ONLY, _, _): do_load();
            (DEED_LOOK, FIRST_ONLY, _, _): do_load();
            (DEED_RESTORE, FIRST_ONLY, _, _): NoAction();
            (DEED_RESTORE, _, _, FORM_RESTORE): do_store();
        }
    }

    apply {
        lanes.apply();
    }
}

#define FOR_EACH_ELEMENT(X) \
    X(0) X(1) X(2) X(3) X(4) X(5) X(6) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14) X(15) \
    X(16) X(17) X(18) X(19) X(20) X(21) X(22) X(23) X(24) X(25) X(26) X(27) X(28) X(29) X(30) X(31)

control Elements(inout frame_t hdr, in facts_t meta) {
#define LANE(i) Lane() lane##i;
    FOR_EACH_ELEMENT(LANE)
#define APPLY_LANE(i) lane##i.apply(hdr.chunk0.e##i, meta);
    apply {
        FOR_EACH_ELEMENT(APPLY_LANE)
    }
}

#endif
