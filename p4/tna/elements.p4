// SPDX-License-Identifier: BSD-2-Clause
// The elements of slots: a register and a stateful ALU a lane, four lanes a stage, from the fifth stage to the last.
#ifndef INAGG_P4_TNA_ELEMENTS
#define INAGG_P4_TNA_ELEMENTS

#ifndef LANE
#ifndef LANE_KEY
#define LANE_KEY \
        key = { meta.deed: ternary; meta.lack: ternary; meta.twice: ternary; meta.form: ternary; }
#define LANE_ENTRIES(store, clear, add, load) \
            (DEED_TAKE, _, _, FORM_FULL): store(); \
            (DEED_TAKE, _, _, _): clear(); \
            (DEED_FOLD, FIRST_ONLY, _, _): load(); \
            (DEED_FOLD, _, 0, FORM_FULL): add(); \
            (DEED_FOLD, SECOND_ONLY, _, _): load(); \
            (DEED_LOOK, FIRST_ONLY, _, _): load(); \
            (DEED_RESTORE, FIRST_ONLY, _, _): NoAction(); \
            (DEED_RESTORE, _, _, FORM_RESTORE): store();
#endif

#define LANE(i, s) \
    Register<bit<32>, key_t>(KEYS) lane##i; \
    RegisterAction<bit<32>, key_t, bit<32>>(lane##i) store##i = { \
        void apply(inout bit<32> lane) { \
            lane = hdr.chunk0.e##i; \
        } \
    }; \
    /* For the first of a block, if it brings none: then the next can be added. */ \
    RegisterAction<bit<32>, key_t, bit<32>>(lane##i) clear##i = { \
        void apply(inout bit<32> lane) { \
            lane = 0; \
        } \
    }; \
    RegisterAction<bit<32>, key_t, bit<32>>(lane##i) add##i = { \
        void apply(inout bit<32> lane, out bit<32> sum) { \
            lane = lane + hdr.chunk0.e##i; \
            sum = lane; \
        } \
    }; \
    RegisterAction<bit<32>, key_t, bit<32>>(lane##i) load##i = { \
        void apply(inout bit<32> lane, out bit<32> sum) { \
            sum = lane; \
        } \
    }; \
    action do_store##i() { \
        store##i.execute(meta.index); \
    } \
    action do_clear##i() { \
        clear##i.execute(meta.index); \
        hdr.chunk0.e##i = 0; \
    } \
    action do_add##i() { \
        hdr.chunk0.e##i = add##i.execute(meta.index); \
    } \
    action do_load##i() { \
        hdr.chunk0.e##i = load##i.execute(meta.index); \
    } \
    /* The compiler's own order would leave ALUs unused. */ \
    @stage(s) table move##i { \
        LANE_KEY \
        actions = { do_store##i; do_clear##i; do_add##i; do_load##i; NoAction; } \
        const default_action = NoAction; \
        size = 8; \
        const entries = { \
            LANE_ENTRIES(do_store##i, do_clear##i, do_add##i, do_load##i) \
        } \
    }
#endif

control Elements(inout frame_t hdr, in facts_t meta) {
    LANE(0, 4) LANE(1, 4) LANE(2, 4) LANE(3, 4)
    LANE(4, 5) LANE(5, 5) LANE(6, 5) LANE(7, 5)
    LANE(8, 6) LANE(9, 6) LANE(10, 6) LANE(11, 6)
    LANE(12, 7) LANE(13, 7) LANE(14, 7) LANE(15, 7)
    LANE(16, 8) LANE(17, 8) LANE(18, 8) LANE(19, 8)
    LANE(20, 9) LANE(21, 9) LANE(22, 9) LANE(23, 9)
    LANE(24, 10) LANE(25, 10) LANE(26, 10) LANE(27, 10)
    LANE(28, 11) LANE(29, 11) LANE(30, 11) LANE(31, 11)

    apply {
#define MOVE4(a, b, c, d) move##a.apply(); move##b.apply(); move##c.apply(); move##d.apply();
        MOVE4(0, 1, 2, 3)
        MOVE4(4, 5, 6, 7)
        MOVE4(8, 9, 10, 11)
        MOVE4(12, 13, 14, 15)
        MOVE4(16, 17, 18, 19)
        MOVE4(20, 21, 22, 23)
        MOVE4(24, 25, 26, 27)
        MOVE4(28, 29, 30, 31)
    }
}

#endif
