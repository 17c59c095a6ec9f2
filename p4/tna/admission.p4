// SPDX-License-Identifier: BSD-2-Clause
// Which packets may touch a slot: the checks of inagg_switch in bpf/switch.bpf.c and inagg/core/job.h.  The first stage finds
// out what is off, all at once; what follows from that one table says, in the second.
#ifndef INAGG_P4_TNA_ADMISSION
#define INAGG_P4_TNA_ADMISSION

// The second stage, with the first of the slot's registers: the newest block that its copy has had, and in which generation.
struct newest_t {
    int<32> block;
    int<32> generation;
}

control Admission(inout frame_t hdr, inout facts_t meta) {
    Register<newest_t, key_t>(KEYS) slot_newest;
    // Of the same generation, and past the block (RFC 1982)?
#define COMPARE_NEWEST this.predicate(newest.generation == (int<32>)meta.generation, \
                                      newest.block - (int<32>)hdr.inagg.block > 0)
    RegisterAction<newest_t, key_t, pair_t>(slot_newest) advance = {
        void apply(inout newest_t newest, out pair_t order) {
            order = COMPARE_NEWEST;
            if (newest.generation != (int<32>)meta.generation || newest.block - (int<32>)hdr.inagg.block <= 0) {
                newest.block = (int<32>)hdr.inagg.block;
            }
            newest.generation = (int<32>)meta.generation;
        }
    };
    RegisterAction<newest_t, key_t, pair_t>(slot_newest) compare = {
        void apply(inout newest_t newest, out pair_t order) {
            order = COMPARE_NEWEST;
        }
    };

    action prepare() {
        meta.index = meta.key[KEY_BITS - 2:0] ++ hdr.inagg.flags[0:0];
        meta.others = meta.everyone ^ meta.rank;
        meta.flags = hdr.inagg.flags & (INAGG_F_VERSION | INAGG_F_RESEND);
    }
    action contribute() {
        meta.path = PATH_BLOCK;
        meta.wish = WISH_ADD;
        meta.order = advance.execute(meta.key[KEY_BITS - 2:0] ++ hdr.inagg.flags[0:0]);
        prepare();
    }
    action ask() {
        meta.path = PATH_BLOCK;
        meta.wish = WISH_ASK;
        meta.order = compare.execute(meta.key[KEY_BITS - 2:0] ++ hdr.inagg.flags[0:0]);
        prepare();
    }
    action restore() {
        meta.path = PATH_BLOCK;
        meta.wish = WISH_RESTORE;
        meta.order = compare.execute(meta.key[KEY_BITS - 2:0] ++ hdr.inagg.flags[0:0]);
        prepare();
    }
    action refuse(bit<8> reason) {
        meta.path = PATH_NOWHERE;
        meta.reason = reason;
    }
    // Whatever job it names.
    action refuse_stray(bit<8> reason) {
        refuse(reason);
        meta.row = (bit<8>)INAGG_STATS_NO_JOB;
    }
    action pass_on() {
        meta.path = PATH_ORDINARY;
    }
    action to_agent() {
        meta.path = PATH_TO_AGENT;
    }
    action from_agent() {
        meta.path = PATH_FROM_AGENT;
    }
    action ignore() {
        meta.path = PATH_NOWHERE;
    }

    // Bytes from here and there to one operand: only a hash moves them.
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) join_tag;
    action set_tag() {
        meta.tag = join_tag.get({ 12w0, hdr.inagg.version, hdr.inagg.dtype, hdr.inagg.op, hdr.inagg.scale });
    }

    // Pools are smaller than the other half can tell. (Of a part of a field constants would not tell drivers which they mean.)
#define SMALL_SLOT 0 &&& 0xffff0000
    // The first row that fits counts.  Below the blocks that are in order each row asks for less than the one above it, and
    // names what then must have been wrong.
    table admission {
        key = {
            hdr.punt.isValid(): ternary;
            meta.agent_off: ternary;
            meta.is_own: ternary;
            meta.is_forged: ternary;
            meta.form: ternary;
            meta.is_whole: ternary;
            meta.is_corrupt: ternary;
            meta.job_is_known: ternary;
            meta.generation_off: ternary;
            meta.member_is_known: ternary;
            hdr.inagg.slot: ternary;
            meta.slots_left: ternary;
            hdr.inagg.elements: ternary;
            meta.port_off: ternary;
            meta.source_high: ternary;
            meta.source_low: ternary;
        }
        actions = { contribute; ask; restore; refuse; refuse_stray; pass_on; to_agent; from_agent; ignore; }
        const default_action = pass_on;
        size = 64;
        const entries = {
            // whose frame it is
            (true, 0, _, _, _, _, _, _, _, _, _, _, _, _, _, _): from_agent();
            (true, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): ignore();
            (_, 0, _, _, _, _, _, _, _, _, _, _, _, _, _, _): pass_on();
            // Nobody behind a port may send in this switch's name, which workers believe.
            (_, _, 0, 1, _, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_ADDRESS);
            (_, _, _, 1, FORM_ORDINARY, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_ADDRESS);
            (_, _, 0, _, _, _, _, _, _, _, _, _, _, _, _, _): pass_on();
            (_, _, _, _, FORM_ORDINARY, _, _, _, _, _, _, _, _, _, _, _): pass_on();
            // a datagram that cannot be a block of any job
            (_, _, _, _, FORM_LENGTH, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_LENGTH);
            (_, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_LENGTH);
            (_, _, _, _, FORM_VERSION, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_VERSION);
            (_, _, _, _, _, _, true, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_HEADER_CHECKSUM);
            (_, _, _, _, FORM_JOIN, _, _, _, _, _, _, _, _, _, _, _): to_agent();
            (_, _, _, _, FORM_TYPE, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_TYPE);
            (_, _, _, _, FORM_DTYPE, _, _, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_DTYPE);
            (_, _, _, _, FORM_ELEMENTS, _, _, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_ELEMENTS);
            // a block
            (_, _, _, _, _, _, _, 1, 0, 1, _, 0, _, _, _, _): refuse(INAGG_R_SLOT);
            (_, _, _, _, FORM_FULL, _, _, 1, 0, 1, SMALL_SLOT, _, INAGG_CHUNK, 0, 0, 0): contribute();
            (_, _, _, _, FORM_EMPTY, _, _, 1, 0, 1, SMALL_SLOT, _, 0, 0, 0, 0): contribute();
            (_, _, _, _, FORM_RESTORE, _, _, 1, 0, 1, SMALL_SLOT, _, INAGG_CHUNK, 0, 0, 0): restore();
            (_, _, _, _, FORM_RESTORE_EMPTY, _, _, 1, 0, 1, SMALL_SLOT, _, 0, 0, 0, 0): restore();
            (_, _, _, _, FORM_REQUEST, _, _, 1, 0, 1, SMALL_SLOT, _, _, 0, 0, 0): ask();
            (_, _, _, _, FORM_PARTIAL, _, _, 1, 0, 1, SMALL_SLOT, _, _, 0, 0, 0): refuse(INAGG_R_TYPE);
            (_, _, _, _, _, _, _, 1, 0, 1, SMALL_SLOT, _, _, 0, 0, 0): refuse(INAGG_R_ELEMENTS);
            (_, _, _, _, _, _, _, 1, 0, 1, SMALL_SLOT, _, _, 0, _, _): refuse(INAGG_R_ADDRESS);
            (_, _, _, _, _, _, _, 1, 0, 1, SMALL_SLOT, _, _, _, _, _): refuse(INAGG_R_PORT);
            (_, _, _, _, _, _, _, 1, 0, 1, _, _, _, _, _, _): refuse(INAGG_R_SLOT);
            (_, _, _, _, _, _, _, 1, 0, _, _, _, _, _, _, _): refuse(INAGG_R_RANK);
            (_, _, _, _, _, _, _, 1, _, _, _, _, _, _, _, _): refuse(INAGG_R_GENERATION);
            (_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_JOB);
        }
    }

#ifdef MARKS_QUEUES
    // As if the rank had said so, which is OR-ed. What only passes is left as it is: nobody writes its checksum anew.
    action set_congestion() {
        hdr.inagg.flags[9:9] = 1;	// INAGG_F_CONGESTION
    }
    table marks {
        key = { meta.is_marked: exact; meta.is_own: exact; meta.form: exact; }
        actions = { set_congestion; NoAction; }
        const default_action = NoAction;
        size = 4;
        const entries = {
            (1, 1, FORM_FULL): set_congestion();
            (1, 1, FORM_EMPTY): set_congestion();
            (1, 1, FORM_RESTORE): set_congestion();
            (1, 1, FORM_RESTORE_EMPTY): set_congestion();
        }
    }
#endif

    apply {
        set_tag();
        admission.apply();
#ifdef MARKS_QUEUES
        marks.apply();
#endif
    }
}

#endif
