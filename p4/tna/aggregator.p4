// SPDX-License-Identifier: BSD-2-Clause
// Aggregators, which belong to nobody: struct inagg_aggregator, spread over registers that each can be touched once by a pass of a
// packet.  What is known of ranks is who has `come` and whose elements have `gone` on; the sum that is here is of the others.
#ifndef INAGG_P4_TNA_AGGREGATOR
#define INAGG_P4_TNA_AGGREGATOR

// 2^31 ns, as INAGG_AGGREGATOR_STALE ticks, in units of 2^16 ns.
const bit<32> STALE = 0x8000;
#define NOW intrinsic.ingress_mac_tstamp[47:16]

// Of a pair of answers, the first one.
#define AS_EXPECTED FIRST_ONLY

// Flags that a sum has if one of its packets had them.
const bit<12> AGGREGATED_FLAGS = INAGG_F_RESEND | INAGG_F_SATURATED | INAGG_F_COLLISION | INAGG_F_CONGESTION;

// The second stage: what is off, and whose the aggregator is.  `who` is a position of a job in its generation; it has the aggregator
// until the server's RESULT passes, or nothing has come for a while.
struct claim_t {
    bit<32> until;
    bit<32> who;
}

control Admission(inout frame_t hdr, inout facts_t meta, in ingress_intrinsic_metadata_t intrinsic) {
    // Base of a share and index in it have no bits in common, so this is the sum of both.
    Hash<bit<KEY_BITS>>(HashAlgorithm_t.XOR16) find;
#define FOUND find.get({ meta.base, meta.key })

    Register<claim_t, key_t>(KEYS) claims;
#define COMPARE_CLAIM this.predicate(claim.who == meta.who, NOW >= claim.until)
    RegisterAction<claim_t, key_t, pair_t>(claims) claim_it = {
        void apply(inout claim_t claim, out pair_t answer) {
            answer = COMPARE_CLAIM;
            if (claim.who == meta.who || NOW >= claim.until) {
                claim.who = meta.who;
                claim.until = NOW + STALE;
            }
        }
    };
    RegisterAction<claim_t, key_t, pair_t>(claims) look = {
        void apply(inout claim_t claim, out pair_t answer) {
            answer = COMPARE_CLAIM;
        }
    };
    RegisterAction<claim_t, key_t, pair_t>(claims) release = {
        void apply(inout claim_t claim) {
            if (claim.who == meta.who) {
                claim.until = 0;
            }
        }
    };

    action prepare(wish_t wish) {
        meta.path = PATH_BLOCK;
        meta.wish = wish;
        meta.index = meta.base[KEY_BITS - 1:0] | meta.key[KEY_BITS - 1:0];
    }
    // For the first time, from one rank: it can be added at once.
    action contribute() {
        prepare(WISH_ADD);
        meta.claim = claim_it.execute(FOUND);
        meta.expected = meta.here ^ meta.rank;
    }
    // What was sent again needs two passes. The first one finds out what there is, which nobody else must have changed when the second
    // one comes.
    action repeat() {
        prepare(WISH_REPEAT);
        meta.claim = look.execute(FOUND);
    }
    action close() {
        prepare(WISH_CLOSE);
        meta.claim = look.execute(FOUND);
    }
    action hear_result() {
        prepare(WISH_RESULT);
        release.execute(FOUND);
    }
    action hear_wait() {
        prepare(WISH_WAIT);
    }
    action pass_up() {
        prepare(WISH_PASS);
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
    Hash<bit<16>>(HashAlgorithm_t.IDENTITY) join_tag;
    action set_tag() {
        meta.tag = join_tag.get({ hdr.inagg.dtype, hdr.inagg.op, hdr.inagg.scale });
    }

#define SMALL_SLOT 0 &&& 0xffff0000
#define IS_RESEND INAGG_F_RESEND &&& INAGG_F_RESEND
#define IS_WHOLE INAGG_F_WHOLE &&& INAGG_F_WHOLE
    // As in a pool: the first row that fits counts.
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
            hdr.inagg.flags: ternary;
            meta.is_again: ternary;
            meta.is_alone: ternary;
        }
        actions = { contribute; repeat; close; hear_result; hear_wait; pass_up; refuse; refuse_stray; pass_on; to_agent;
                    from_agent; ignore; }
        const default_action = pass_on;
        size = 64;
#define FRAME(punt, agent, own, forged, form, whole, corrupt) \
            (punt, agent, own, forged, form, whole, corrupt, _, _, _, _, _, _, _, _, _, _, _, _)
#define BLOCK(form, member, slot, left, elements, port, high, low) \
            (_, _, _, _, form, _, _, 1, 0, member, slot, left, elements, port, high, low, _, _, _)
#define SENT(form, elements, flags, again, alone) \
            (_, _, _, _, form, _, _, 1, 0, 1, SMALL_SLOT, _, elements, 0, 0, 0, flags, again, alone)
#define SENT_HERE(form, elements, flags, again) \
            (_, _, _, _, form, _, _, 1, 0, 1, 0 &&& 0xfffffc00, _, elements, 0, 0, 0, flags, again, _)
        const entries = {
            // whose frame it is
            FRAME(true, 0, _, _, _, _, _): from_agent();
            FRAME(true, _, _, _, _, _, _): ignore();
            FRAME(_, 0, _, _, _, _, _): pass_on();
            FRAME(_, _, 0, 1, _, _, _): refuse_stray(INAGG_R_ADDRESS);
            FRAME(_, _, _, 1, FORM_ORDINARY, _, _): refuse_stray(INAGG_R_ADDRESS);
            FRAME(_, _, 0, _, _, _, _): pass_on();
            FRAME(_, _, _, _, FORM_ORDINARY, _, _): pass_on();
            // a datagram that cannot be a block of any job
            FRAME(_, _, _, _, FORM_LENGTH, _, _): refuse_stray(INAGG_R_LENGTH);
            FRAME(_, _, _, _, _, 0, _): refuse_stray(INAGG_R_LENGTH);
            FRAME(_, _, _, _, FORM_VERSION, _, _): refuse_stray(INAGG_R_VERSION);
            FRAME(_, _, _, _, _, _, true): refuse_stray(INAGG_R_HEADER_CHECKSUM);
            FRAME(_, _, _, _, FORM_JOIN, _, _): to_agent();
            FRAME(_, _, _, _, FORM_TYPE, _, _): refuse_stray(INAGG_R_TYPE);
            FRAME(_, _, _, _, FORM_DTYPE, _, _): refuse(INAGG_R_DTYPE);
            FRAME(_, _, _, _, FORM_ELEMENTS, _, _): refuse(INAGG_R_ELEMENTS);
            // a block
            BLOCK(_, 1, _, 0, _, _, _, _): refuse(INAGG_R_SLOT);
            // from above
            SENT(FORM_RESULT, INAGG_CHUNK, _, _, _): hear_result();
            SENT(FORM_RESULT_EMPTY, 0, _, _, _): hear_result();
            SENT(FORM_WAIT, _, _, _, _): hear_wait();
            // a server forgets nothing that could be restored
            SENT(FORM_RESTORE, _, _, _, _): refuse(INAGG_R_TYPE);
            SENT(FORM_RESTORE_EMPTY, _, _, _, _): refuse(INAGG_R_TYPE);
            SENT(FORM_REQUEST, _, _, _, _): pass_up();
            // No switch is below.
            SENT(FORM_PARTIAL, _, _, _, _): refuse(INAGG_R_RANK);
            // what the server alone sums
            SENT(FORM_SERVERS, INAGG_CHUNK, _, _, _): pass_up();
            SENT(FORM_SERVERS_EMPTY, 0, _, _, _): pass_up();
            SENT(FORM_FULL, INAGG_CHUNK, IS_WHOLE, _, _): pass_up();
            SENT(FORM_EMPTY, 0, IS_WHOLE, _, _): pass_up();
            // nobody else is to come here
            SENT(FORM_FULL, INAGG_CHUNK, _, _, 1): pass_up();
            SENT(FORM_EMPTY, 0, _, _, 1): pass_up();
            SENT_HERE(FORM_FULL, INAGG_CHUNK, IS_RESEND, 0): repeat();
            SENT_HERE(FORM_FULL, INAGG_CHUNK, IS_RESEND, _): close();
            SENT_HERE(FORM_FULL, INAGG_CHUNK, _, _): contribute();
            SENT_HERE(FORM_EMPTY, 0, IS_RESEND, 0): repeat();
            SENT_HERE(FORM_EMPTY, 0, IS_RESEND, _): close();
            SENT_HERE(FORM_EMPTY, 0, _, _): contribute();
            // `who` has room for no more
            SENT(FORM_FULL, INAGG_CHUNK, _, _, _): pass_up();
            SENT(FORM_EMPTY, 0, _, _, _): pass_up();
            BLOCK(_, 1, SMALL_SLOT, _, _, 0, 0, 0): refuse(INAGG_R_ELEMENTS);
            BLOCK(_, 1, SMALL_SLOT, _, _, 0, _, _): refuse(INAGG_R_ADDRESS);
            BLOCK(_, 1, SMALL_SLOT, _, _, _, _, _): refuse(INAGG_R_PORT);
            BLOCK(_, 1, _, _, _, _, _, _): refuse(INAGG_R_SLOT);
            BLOCK(_, _, _, _, _, _, _, _): refuse(INAGG_R_RANK);
            (_, _, _, _, _, _, _, 1, _, _, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_GENERATION);
            (_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_JOB);
        }
    }

    // As if its sender had said so, which is OR-ed.
    action set_congestion() {
        hdr.inagg.flags[9:9] = 1;	// INAGG_F_CONGESTION
    }
    table marks {
        key = { meta.is_marked: exact; meta.is_own: exact; hdr.inagg.isValid(): exact; }
        actions = { set_congestion; NoAction; }
        const default_action = NoAction;
        size = 1;
        const entries = { (1, 1, true): set_congestion(); }
    }

    apply {
        set_tag();
        admission.apply();
        marks.apply();
    }
}

// Third stage: the block that the aggregator has, or had.
#define IS_ITS(wish) \
            (wish, FIRST_ONLY)
#define IS_ITS_TOO(wish) \
            (wish, BOTH)
#define WAS_FREE(wish) \
            (wish, SECOND_ONLY)
#define BLOCK_KEY \
        key = { meta.wish: ternary; meta.claim: ternary; }

// FIRST_ONLY: it is the packet's; SECOND_ONLY: it is later; neither: it is earlier.
control AggregatorBlock(in frame_t hdr, inout facts_t meta) {
    Register<int<32>, key_t>(KEYS) slot_block;
#define COMPARE_BLOCK this.predicate(block == (int<32>)hdr.inagg.block, block - (int<32>)hdr.inagg.block > 0)
    RegisterAction<int<32>, key_t, pair_t>(slot_block) advance = {
        void apply(inout int<32> block, out pair_t order) {
            order = COMPARE_BLOCK;
            if (block - (int<32>)hdr.inagg.block <= 0) {
                block = (int<32>)hdr.inagg.block;
            }
        }
    };
    RegisterAction<int<32>, key_t, pair_t>(slot_block) take = {
        void apply(inout int<32> block) {
            block = (int<32>)hdr.inagg.block;
        }
    };
    RegisterAction<int<32>, key_t, pair_t>(slot_block) compare = {
        void apply(inout int<32> block, out pair_t order) {
            order = COMPARE_BLOCK;
        }
    };

    action do_advance() {
        meta.order = advance.execute(meta.index);
    }
    action do_take() {
        take.execute(meta.index);
    }
    action do_compare() {
        meta.order = compare.execute(meta.index);
    }
    table blocks {
        BLOCK_KEY
        actions = { do_advance; do_take; do_compare; NoAction; }
        const default_action = NoAction;
        size = 16;
        const entries = {
            IS_ITS(WISH_ADD): do_advance();
            IS_ITS_TOO(WISH_ADD): do_advance();
            WAS_FREE(WISH_ADD): do_take();
            IS_ITS(WISH_REPEAT): do_compare();
            IS_ITS_TOO(WISH_REPEAT): do_compare();
            IS_ITS(WISH_CLOSE): do_compare();
            IS_ITS_TOO(WISH_CLOSE): do_compare();
        }
    }

    apply {
        blocks.apply();
    }
}

struct typed_t {
    int<32> block;
    int<32> tag;
}

// Type and scale of the block (inagg_slot_agrees()): those of the packet, if it is a new one.
control AggregatorTag(in frame_t hdr, inout facts_t meta) {
    Register<typed_t, key_t>(KEYS) slot_tag;
    RegisterAction<typed_t, key_t, int<32>>(slot_tag) advance = {
        void apply(inout typed_t slot, out int<32> tag) {
            if (slot.block - (int<32>)hdr.inagg.block < 0) {
                slot.tag = (int<32>)(bit<32>)meta.tag;
                slot.block = (int<32>)hdr.inagg.block;
            }
            tag = slot.tag;
        }
    };
    RegisterAction<typed_t, key_t, int<32>>(slot_tag) take = {
        void apply(inout typed_t slot, out int<32> tag) {
            slot.tag = (int<32>)(bit<32>)meta.tag;
            slot.block = (int<32>)hdr.inagg.block;
            tag = slot.tag;
        }
    };
    RegisterAction<typed_t, key_t, int<32>>(slot_tag) tell = {
        void apply(inout typed_t slot, out int<32> tag) {
            tag = slot.tag;
        }
    };

    action do_advance() {
        meta.slot_tag = (bit<16>)(bit<32>)advance.execute(meta.index);
    }
    action do_take() {
        meta.slot_tag = (bit<16>)(bit<32>)take.execute(meta.index);
    }
    action do_tell() {
        meta.slot_tag = (bit<16>)(bit<32>)tell.execute(meta.index);
    }
    table tags {
        BLOCK_KEY
        actions = { do_advance; do_take; do_tell; NoAction; }
        const default_action = NoAction;
        size = 16;
        const entries = {
            IS_ITS(WISH_ADD): do_advance();
            IS_ITS_TOO(WISH_ADD): do_advance();
            WAS_FREE(WISH_ADD): do_take();
            IS_ITS(WISH_REPEAT): do_tell();
            IS_ITS_TOO(WISH_REPEAT): do_tell();
            IS_ITS(WISH_CLOSE): do_tell();
            IS_ITS_TOO(WISH_CLOSE): do_tell();
        }
    }

    apply {
        tags.apply();
    }
}

struct scaled_t {
    int<32> block;
    int<32> next_scale;
}

// The greatest next_scale of all that has come for the block: a sum that is not the block's first has that of the others, too, which
// the server finds all the same.
control AggregatorNextScale(in frame_t hdr, inout facts_t meta) {
    Register<scaled_t, key_t>(KEYS) slot_next_scale;
#define NEXT_SCALE ((int<32>)(bit<32>)hdr.inagg.next_scale)
    RegisterAction<scaled_t, key_t, int<32>>(slot_next_scale) advance = {
        void apply(inout scaled_t slot, out int<32> result) {
            if (slot.block == (int<32>)hdr.inagg.block) {
                slot.next_scale = max(slot.next_scale, NEXT_SCALE);
            } else if (slot.block - (int<32>)hdr.inagg.block < 0) {
                slot.next_scale = NEXT_SCALE;
            }
            if (slot.block - (int<32>)hdr.inagg.block < 0) {
                slot.block = (int<32>)hdr.inagg.block;
            }
            result = slot.next_scale;
        }
    };
    RegisterAction<scaled_t, key_t, int<32>>(slot_next_scale) take = {
        void apply(inout scaled_t slot, out int<32> result) {
            slot.block = (int<32>)hdr.inagg.block;
            slot.next_scale = NEXT_SCALE;
            result = slot.next_scale;
        }
    };
    RegisterAction<scaled_t, key_t, int<32>>(slot_next_scale) fold = {
        void apply(inout scaled_t slot, out int<32> result) {
            if (slot.block == (int<32>)hdr.inagg.block) {
                slot.next_scale = max(slot.next_scale, NEXT_SCALE);
            }
            result = slot.next_scale;
        }
    };

    action do_advance() {
        meta.next_scale = (bit<32>)advance.execute(meta.index);
    }
    action do_take() {
        meta.next_scale = (bit<32>)take.execute(meta.index);
    }
    action do_fold() {
        meta.next_scale = (bit<32>)fold.execute(meta.index);
    }
    table next_scales {
        BLOCK_KEY
        actions = { do_advance; do_take; do_fold; NoAction; }
        const default_action = NoAction;
        size = 16;
        const entries = {
            IS_ITS(WISH_ADD): do_advance();
            IS_ITS_TOO(WISH_ADD): do_advance();
            WAS_FREE(WISH_ADD): do_take();
            IS_ITS(WISH_CLOSE): do_fold();
            IS_ITS_TOO(WISH_CLOSE): do_fold();
        }
    }

    apply {
        next_scales.apply();
    }
}

// Fourth stage: who has come, in four registers that always hold the same, since an ALU answers one question.
struct come_t {
    bit<32> come;
    bit<32> gone;
}
struct marked_t {
    bit<32> come;
    bit<32> flags;
}
#define COME_ENTRIES(take, fold, look, close) \
            (WISH_ADD, SECOND_ONLY, _): take(); \
            (WISH_ADD, FIRST_ONLY, 1): take(); \
            (WISH_ADD, BOTH, 1): take(); \
            (WISH_ADD, FIRST_ONLY, FIRST_ONLY): fold(); \
            (WISH_ADD, BOTH, FIRST_ONLY): fold(); \
            (WISH_REPEAT, FIRST_ONLY, FIRST_ONLY): look(); \
            (WISH_REPEAT, BOTH, FIRST_ONLY): look(); \
            (WISH_CLOSE, FIRST_ONLY, FIRST_ONLY): close(); \
            (WISH_CLOSE, BOTH, FIRST_ONLY): close();
#define COME_KEY \
        key = { meta.wish: ternary; meta.claim: ternary; meta.order: ternary; }

// Have those come who are expected, and nobody else?
control AggregatorLack(inout facts_t meta) {
    Register<bit<32>, key_t>(KEYS) slot_come;
    RegisterAction<bit<32>, key_t, pair_t>(slot_come) fold = {
        void apply(inout bit<32> come, out pair_t answer) {
            answer = this.predicate(come == meta.expected);
            come = come | meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, pair_t>(slot_come) take = {
        void apply(inout bit<32> come) {
            come = meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, pair_t>(slot_come) close = {
        void apply(inout bit<32> come, out pair_t answer) {
            answer = this.predicate(come == meta.expected);
            if (come == meta.expected) {
                come = come | meta.rank;
            }
        }
    };

    action do_take() {
        take.execute(meta.index);
    }
    action do_fold() {
        meta.lack = fold.execute(meta.index);
    }
    action do_close() {
        meta.lack = close.execute(meta.index);
    }
    table lack {
        COME_KEY
        actions = { do_take; do_fold; do_close; NoAction; }
        const default_action = NoAction;
        size = 16;
        const entries = { COME_ENTRIES(do_take, do_fold, NoAction, do_close) }
    }

    apply {
        lack.apply();
    }
}

// Has the packet's rank come already?  Or, who has?
control AggregatorTwice(inout facts_t meta) {
    Register<bit<32>, key_t>(KEYS) slot_come;
    RegisterAction<bit<32>, key_t, bit<32>>(slot_come) fold = {
        void apply(inout bit<32> come, out bit<32> twice) {
            twice = come & meta.rank;
            come = come | meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(slot_come) take = {
        void apply(inout bit<32> come) {
            come = meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(slot_come) tell = {
        void apply(inout bit<32> come, out bit<32> before) {
            before = come;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(slot_come) close = {
        void apply(inout bit<32> come) {
            if (come == meta.expected) {
                come = come | meta.rank;
            }
        }
    };

    action do_take() {
        take.execute(meta.index);
    }
    action do_fold() {
        meta.twice = fold.execute(meta.index);
    }
    action do_tell() {
        meta.twice = tell.execute(meta.index);
    }
    action do_close() {
        close.execute(meta.index);
    }
    table twice {
        COME_KEY
        actions = { do_take; do_fold; do_tell; do_close; NoAction; }
        const default_action = NoAction;
        size = 16;
        const entries = { COME_ENTRIES(do_take, do_fold, do_tell, do_close) }
    }

    apply {
        twice.apply();
    }
}

// Whose elements have gone on?  And what the packet comes to, as far as its block goes.
control AggregatorGone(inout facts_t meta) {
    Register<come_t, key_t>(KEYS) slot_gone;
    RegisterAction<come_t, key_t, bit<32>>(slot_gone) fold = {
        void apply(inout come_t slot, out bit<32> gone) {
            gone = slot.gone;
            slot.come = slot.come | meta.rank;
        }
    };
    RegisterAction<come_t, key_t, bit<32>>(slot_gone) take = {
        void apply(inout come_t slot) {
            slot.come = meta.rank;
            slot.gone = 0;
        }
    };
    RegisterAction<come_t, key_t, bit<32>>(slot_gone) look = {
        void apply(inout come_t slot, out bit<32> gone) {
            gone = slot.gone;
        }
    };
    RegisterAction<come_t, key_t, bit<32>>(slot_gone) close = {
        void apply(inout come_t slot, out bit<32> gone) {
            gone = slot.gone;
            if (slot.come == meta.expected) {
                slot.gone = slot.come | meta.rank;
                slot.come = slot.come | meta.rank;
            }
        }
    };

    action do_take() {
        meta.deed = DEED_TAKE;
        take.execute(meta.index);
    }
    action do_fold() {
        meta.deed = DEED_FOLD;
        meta.gone = fold.execute(meta.index);
    }
    action do_look() {
        meta.deed = DEED_LOOK;
        meta.gone = look.execute(meta.index);
    }
    action do_close() {
        meta.deed = DEED_CLOSE;
        meta.gone = close.execute(meta.index);
    }
    table gone {
        COME_KEY
        actions = { do_take; do_fold; do_look; do_close; NoAction; }
        const default_action = NoAction;
        size = 16;
        const entries = { COME_ENTRIES(do_take, do_fold, do_look, do_close) }
    }

    apply {
        gone.apply();
    }
}

// Flags of the sum that is here.  A packet that comes when it has changed since the first pass may leave its own here, too.
control AggregatorFlags(inout facts_t meta) {
    Register<marked_t, key_t>(KEYS) slot_flags;
    RegisterAction<marked_t, key_t, bit<32>>(slot_flags) fold = {
        void apply(inout marked_t slot, out bit<32> flags) {
            slot.come = slot.come | meta.rank;
            slot.flags = slot.flags | meta.mark;
            flags = slot.flags;
        }
    };
    RegisterAction<marked_t, key_t, bit<32>>(slot_flags) take = {
        void apply(inout marked_t slot) {
            slot.come = meta.rank;
            slot.flags = meta.mark;
        }
    };
    RegisterAction<marked_t, key_t, bit<32>>(slot_flags) close = {
        void apply(inout marked_t slot, out bit<32> flags) {
            flags = slot.flags;
            if (slot.come == meta.mark) {
                slot.come = slot.come | meta.rank;
                slot.flags = 0;
            }
        }
    };

    action do_take() {
        take.execute(meta.index);
    }
    action do_fold() {
        meta.result_flags = fold.execute(meta.index);
    }
    action do_close() {
        meta.result_flags = close.execute(meta.index);
    }
    table flags {
        COME_KEY
        actions = { do_take; do_fold; do_close; NoAction; }
        const default_action = NoAction;
        size = 16;
        const entries = { COME_ENTRIES(do_take, do_fold, NoAction, do_close) }
    }

    apply {
        flags.apply();
    }
}

// A sum that goes on with what comes again leaves zeros, to which those are added that come after it.
struct lane_t {
    bit<32> sum;
    bit<32> told;
}
#define LANE(i, s) \
    Register<lane_t, key_t>(KEYS) lane##i; \
    RegisterAction<lane_t, key_t, bit<32>>(lane##i) store##i = { \
        void apply(inout lane_t lane) { \
            lane.sum = hdr.chunk0.e##i; \
        } \
    }; \
    RegisterAction<lane_t, key_t, bit<32>>(lane##i) add##i = { \
        void apply(inout lane_t lane, out bit<32> sum) { \
            lane.sum = lane.sum + hdr.chunk0.e##i; \
            sum = lane.sum; \
        } \
    }; \
    RegisterAction<lane_t, key_t, bit<32>>(lane##i) add_and_clear##i = { \
        void apply(inout lane_t lane, out bit<32> sum) { \
            lane.told = lane.sum + hdr.chunk0.e##i; \
            lane.sum = 0; \
            sum = lane.told; \
        } \
    }; \
    RegisterAction<lane_t, key_t, bit<32>>(lane##i) clear##i = { \
        void apply(inout lane_t lane, out bit<32> sum) { \
            sum = lane.sum; \
            lane.sum = 0; \
        } \
    }; \
    action do_store##i() { \
        store##i.execute(meta.index); \
    } \
    action do_add##i() { \
        hdr.chunk0.e##i = add##i.execute(meta.index); \
    } \
    action do_add_and_clear##i() { \
        hdr.chunk0.e##i = add_and_clear##i.execute(meta.index); \
    } \
    action do_clear##i() { \
        hdr.chunk0.e##i = clear##i.execute(meta.index); \
    } \
    @stage(s) table move##i { \
        key = { meta.deed: ternary; meta.lack: ternary; meta.twice: ternary; meta.form: ternary; } \
        actions = { do_store##i; do_add##i; do_add_and_clear##i; do_clear##i; NoAction; } \
        const default_action = NoAction; \
        size = 16; \
        const entries = { \
            (DEED_TAKE, _, _, FORM_FULL): do_store##i(); \
            (DEED_FOLD, _, 0, FORM_FULL): do_add##i(); \
            (DEED_CLOSE, AS_EXPECTED, 0, FORM_FULL): do_add_and_clear##i(); \
            (DEED_CLOSE, AS_EXPECTED, _, FORM_FULL): do_clear##i(); \
        } \
    }

#endif
