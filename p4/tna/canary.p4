// SPDX-License-Identifier: BSD-2-Clause
// Canary (§3.1 to §3.3) in one switch, for Tofino: sums of what meets on the way to a block's leader.  The rules, and why they hold, are
// in inagg/core/descriptor.h; what of them is not here, or otherwise, docs/P4-tofino.md says.
//
// A slot has two descriptors, one for each of its blocks that may be under way.  A descriptor has the sum of one attempt at a block, and
// remembers who has come in any.
#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "../shared/constants.p4"
#include "../shared/headers.p4"

#define CANARY
#define CLOCK
#ifndef POSITIONS
#define POSITIONS 8192	// slots of all jobs
#endif
#define LANE_KEY \
        key = { meta.deed: ternary; meta.open: ternary; meta.twice: ternary; meta.form: ternary; }
#define LANE_ENTRIES(store, clear, add, load) \
            (DEED_TAKE, _, _, FORM_FULL): store(); \
            (DEED_FOLD, BOTH, 0, FORM_FULL): add(); \
            (DEED_LOOK, BOTH, _, _): load();

#include "state.p4"
#include "clock.p4"
#include "parser.p4"
#include "findings.p4"
#include "folded.p4"
#include "elements.p4"
#include "leave.p4"
#include "egress.p4"

// The first stage, too: a slot's leader, and where its descriptors are; and who has the packet's address.
control Position(inout frame_t hdr, inout facts_t meta, in ingress_intrinsic_metadata_t intrinsic) {
    // @descriptor: the number of the first of the two.  @others: all ranks but the leader.  @mask: block & mask is @place in the stream.
    action set_position(bit<32> id, bit<16> descriptor, bit<16> leader, bit<32> others, bit<16> mask, bit<16> place) {
        meta.position_is_known = 1;
        meta.id = id;
        meta.descriptor = descriptor;
        meta.leader = leader;
        meta.leader_off = hdr.inagg.source ^ leader;
        meta.others = others;
        meta.position = hdr.inagg.block[15:0] & mask;
        meta.said_position = place;
    }
    @stage(0) table positions {
        key = { hdr.inagg.job: exact; hdr.inagg.slot: exact; }
        actions = { set_position; NoAction; }
        const default_action = NoAction;
        size = POSITIONS;
    }

    action set_speaker(bit<16> rank) {
        meta.speaker = rank;
    }
    @stage(0) table speakers {
        key = {
            hdr.inagg.job: exact;
            meta.source_high: exact;
            meta.source_low: exact;
            intrinsic.ingress_port: exact @name("port");
        }
        actions = { set_speaker; NoAction; }
        const default_action = NoAction;
        size = 2048;
    }

    // The clock says which descriptor, of which each other has pool version 1.
    action set_version() {
        hdr.inagg.flags = 10w0 ++ 1w1 ++ meta.descriptor[0:0];	// INAGG_F_RESEND
    }

    apply {
        if (meta.form == FORM_TICK) {
            set_version();
        } else if (hdr.inagg.isValid()) {
            positions.apply();
            speakers.apply();
        }
    }
}

// The second stage, with the first of a descriptor's registers: whose it is.
struct owner_t {
    bit<32> id;		// 0, or bits: 1; 8 of the generation, 7 of the job's row, 16 of the slot
    bit<32> block;	// the last one that has come
}

control Admission(inout frame_t hdr, inout facts_t meta) {
    Register<owner_t, key_t>(KEYS) owners;
    // SECOND_ONLY: it was free, and is the packet's now; FIRST_ONLY: it was the packet's; BOTH: it is another one's
    RegisterAction<owner_t, key_t, pair_t>(owners) claim = {
        void apply(inout owner_t owner, out pair_t order) {
            order = this.predicate(owner.id != 0, owner.id != meta.id);
            if (owner.id == 0 || owner.id == meta.id) {
                owner.id = meta.id;
                owner.block = hdr.inagg.block;
            }
        }
    };
    // BOTH: it was the packet's block's
    RegisterAction<owner_t, key_t, pair_t>(owners) release = {
        void apply(inout owner_t owner, out pair_t order) {
            order = this.predicate(owner.id == meta.id, owner.block == hdr.inagg.block);
            if (owner.id == meta.id && owner.block == hdr.inagg.block) {
                owner.id = 0;
            }
        }
    };
    RegisterAction<owner_t, key_t, bit<32>>(owners) tell = {
        void apply(inout owner_t owner, out bit<32> id) {
            id = owner.id;
        }
    };

#define DESCRIPTOR meta.descriptor[KEY_BITS - 1:1] ++ hdr.inagg.flags[0:0]
    action prepare() {
        meta.index = DESCRIPTOR;
        meta.path = PATH_BLOCK;
        meta.flags = hdr.inagg.flags & (INAGG_F_VERSION | INAGG_F_RESEND);
    }
    action contribute() {
        prepare();
        meta.wish = WISH_ADD;
        meta.order = claim.execute(DESCRIPTOR);
        hdr.bridge.target = meta.leader;
    }
    action hear() {
        prepare();
        meta.wish = WISH_HEAR;
        meta.order = release.execute(DESCRIPTOR);
    }
    action tick() {
        prepare();
        meta.wish = WISH_ASK;
        meta.order = FIRST_ONLY;
        meta.slot_id = tell.execute(DESCRIPTOR);
    }
    action pass_up(wish_t wish) {
        meta.path = PATH_BLOCK;
        meta.wish = wish;
        hdr.bridge.target = meta.leader;
    }
    action pass_down(wish_t wish) {
        meta.path = PATH_BLOCK;
        meta.wish = wish;
        hdr.bridge.target = hdr.inagg.source;
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
        meta.tag = join_tag.get({ meta.leader, hdr.inagg.dtype, hdr.inagg.op, hdr.inagg.scale });
    }
    // The attempts at a block are in order, as blocks are.
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) join_turn;
    action set_turn() {
        meta.turn = join_turn.get({ hdr.inagg.block[29:0], hdr.inagg.switch_id[1:0] });
    }

#define SMALL_ATTEMPT 0 &&& 0xfffc
#define IN_ORDER 1, 0, 1, 1
    @stage(1) table admission {
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
            meta.position_is_known: ternary;
            hdr.inagg.elements: ternary;
            meta.port_off: ternary;
            meta.source_high: ternary;
            meta.source_low: ternary;
            meta.leader_off: ternary;
            hdr.inagg.flags: ternary;
            hdr.inagg.switch_id: ternary;
        }
        actions = {
            contribute; hear; tick; pass_up; pass_down; refuse; refuse_stray; pass_on; to_agent; from_agent; ignore;
        }
        const default_action = pass_on;
        size = 128;
        const entries = {
            (_, _, _, _, FORM_TICK, _, _, _, _, _, _, _, _, _, _, _, _, _): tick();
            (_, _, _, _, FORM_NO_TICK, _, _, _, _, _, _, _, _, _, _, _, _, _): ignore();
            // whose frame it is
            (true, 0, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): from_agent();
            (true, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): ignore();
            (_, 0, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): pass_on();
            // Nobody behind a port may send in this switch's name, which workers believe.
            (_, _, 0, 1, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_ADDRESS);
            (_, _, _, 1, FORM_ORDINARY, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_ADDRESS);
            (_, _, 0, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): pass_on();
            (_, _, _, _, FORM_ORDINARY, _, _, _, _, _, _, _, _, _, _, _, _, _): pass_on();
            // a datagram that cannot be a block of any job
            (_, _, _, _, FORM_LENGTH, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_LENGTH);
            (_, _, _, _, _, 0, _, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_LENGTH);
            (_, _, _, _, FORM_VERSION, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_VERSION);
            (_, _, _, _, _, _, true, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_HEADER_CHECKSUM);
            (_, _, _, _, FORM_JOIN, _, _, _, _, _, _, _, _, _, _, _, _, _): to_agent();
            (_, _, _, _, FORM_TYPE, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse_stray(INAGG_R_TYPE);
            (_, _, _, _, FORM_DTYPE, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_DTYPE);
            (_, _, _, _, FORM_ELEMENTS, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_ELEMENTS);
            // the leader's word, which it is: that was looked at before
            (_, _, _, _, FORM_RESULT, _, _, IN_ORDER, INAGG_CHUNK, _, _, _, _,
             INAGG_F_MULTICAST &&& INAGG_F_MULTICAST, _): hear();
            (_, _, _, _, FORM_RESULT_EMPTY, _, _, IN_ORDER, 0, _, _, _, _, INAGG_F_MULTICAST &&& INAGG_F_MULTICAST, _): hear();
            (_, _, _, _, FORM_FAILED, _, _, IN_ORDER, _, _, _, _, _, INAGG_F_MULTICAST &&& INAGG_F_MULTICAST, _): pass_down(WISH_FAIL);
            (_, _, _, _, FORM_WAIT, _, _, IN_ORDER, _, _, _, _, _, INAGG_F_MULTICAST &&& INAGG_F_MULTICAST, _): refuse(INAGG_R_TYPE);
            (_, _, _, _, FORM_RESULT, _, _, IN_ORDER, INAGG_CHUNK, _, _, _, _, _, _): pass_down(WISH_PASS);
            (_, _, _, _, FORM_RESULT_EMPTY, _, _, IN_ORDER, 0, _, _, _, _, _, _): pass_down(WISH_PASS);
            (_, _, _, _, FORM_FAILED, _, _, IN_ORDER, _, _, _, _, _, _, _): pass_down(WISH_PASS);
            (_, _, _, _, FORM_WAIT, _, _, IN_ORDER, _, _, _, _, _, _, _): pass_down(WISH_PASS);
            // for the leader
            (_, _, _, _, FORM_REQUEST, _, _, IN_ORDER, _, 0, 0, 0, _, _, _): pass_up(WISH_PASS);
            (_, _, _, _, FORM_RESTORE, _, _, IN_ORDER, _, 0, 0, 0, _, _, _): refuse(INAGG_R_TYPE);
            (_, _, _, _, FORM_PARTIAL, _, _, IN_ORDER, _, 0, 0, 0, _, _, _): refuse(INAGG_R_RANK);
            (_, _, _, _, 0x10 &&& 0xf0, _, _, IN_ORDER, _, 0, 0, 0, 0, _, _): refuse(INAGG_R_RANK);
            (_, _, _, _, FORM_FULL, _, _, IN_ORDER, INAGG_CHUNK, 0, 0, 0, _, INAGG_F_BYPASS &&& INAGG_F_BYPASS, _): pass_up(WISH_PASS);
            (_, _, _, _, FORM_UNFIT, _, _, IN_ORDER, INAGG_CHUNK, 0, 0, 0, _, INAGG_F_BYPASS &&& INAGG_F_BYPASS, _): pass_up(WISH_PASS);
            (_, _, _, _, 0x11 &&& 0xf9, _, _, IN_ORDER, 0, 0, 0, 0, _, INAGG_F_BYPASS &&& INAGG_F_BYPASS, _): pass_up(WISH_PASS);
            (_, _, _, _, FORM_FULL, _, _, IN_ORDER, INAGG_CHUNK, 0, 0, 0, _, INAGG_F_WHOLE &&& INAGG_F_WHOLE, _): pass_up(WISH_EVADE);
            (_, _, _, _, FORM_EMPTY, _, _, IN_ORDER, 0, 0, 0, 0, _, INAGG_F_WHOLE &&& INAGG_F_WHOLE, _): pass_up(WISH_EVADE);
            (_, _, _, _, FORM_UNFIT, _, _, IN_ORDER, INAGG_CHUNK, 0, 0, 0, _, _, _): pass_up(WISH_EVADE);
            (_, _, _, _, FORM_UNFIT_EMPTY, _, _, IN_ORDER, 0, 0, 0, 0, _, _, _): pass_up(WISH_EVADE);
            (_, _, _, _, FORM_FULL, _, _, IN_ORDER, INAGG_CHUNK, 0, 0, 0, _, _, SMALL_ATTEMPT): contribute();
            (_, _, _, _, FORM_EMPTY, _, _, IN_ORDER, 0, 0, 0, 0, _, _, SMALL_ATTEMPT): contribute();
            (_, _, _, _, FORM_FULL, _, _, IN_ORDER, INAGG_CHUNK, 0, 0, 0, _, _, _): pass_up(WISH_EVADE);
            (_, _, _, _, FORM_EMPTY, _, _, IN_ORDER, 0, 0, 0, 0, _, _, _): pass_up(WISH_EVADE);
            // what is wrong with it
            (_, _, _, _, FORM_WORD, _, _, IN_ORDER, _, _, _, _, _, _, _): refuse(INAGG_R_ELEMENTS);
            (_, _, _, _, _, _, _, IN_ORDER, _, 0, 0, 0, _, _, _): refuse(INAGG_R_ELEMENTS);
            (_, _, _, _, _, _, _, IN_ORDER, _, 0, _, _, _, _, _): refuse(INAGG_R_ADDRESS);
            (_, _, _, _, _, _, _, IN_ORDER, _, _, _, _, _, _, _): refuse(INAGG_R_PORT);
            (_, _, _, _, _, _, _, 1, 0, 1, _, _, _, _, _, _, _, _): refuse(INAGG_R_SLOT);
            (_, _, _, _, _, _, _, 1, 0, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_RANK);
            (_, _, _, _, _, _, _, 1, _, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_GENERATION);
            (_, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _): refuse(INAGG_R_JOB);
        }
    }

    apply {
        set_tag();
        set_turn();
        // Of fields that are to be equal: no table compares them.
        if (meta.is_own == 1 && meta.position_is_known == 1 && meta.position != meta.said_position) {
            refuse(INAGG_R_SLOT);
        } else if (meta.is_own == 1 && meta.position_is_known == 1 && meta.form & 0xf0 == 0x20 && meta.speaker != meta.leader) {
            refuse(INAGG_R_ADDRESS);
        } else {
            admission.apply();
        }
    }
}

// The third stage: which block is it that the descriptor has, and which attempt at it?  Its registers keep the block each.
struct age_t {
    int<32> block;
    int<32> ranks;
}

control Children(inout frame_t hdr, inout facts_t meta) {
    Register<age_t, key_t>(KEYS) children;
    RegisterAction<age_t, key_t, pair_t>(children) meet = {
        void apply(inout age_t d, out pair_t age) {
            age = this.predicate(d.block == (int<32>)hdr.inagg.block, d.block - (int<32>)hdr.inagg.block > 0);
            if (d.block == (int<32>)hdr.inagg.block) {
                d.ranks = d.ranks | (int<32>)meta.rank;
            } else if (d.block - (int<32>)hdr.inagg.block <= 0) {
                d.ranks = (int<32>)meta.rank;
                d.block = (int<32>)hdr.inagg.block;
            }
        }
    };
    RegisterAction<age_t, key_t, pair_t>(children) take = {
        void apply(inout age_t d) {
            d.block = (int<32>)hdr.inagg.block;
            d.ranks = (int<32>)meta.rank;
        }
    };
    RegisterAction<age_t, key_t, bit<32>>(children) collect = {
        void apply(inout age_t d, out bit<32> ranks) {
            ranks = 0;
            if (d.block == (int<32>)hdr.inagg.block) {
                ranks = (bit<32>)d.ranks;
            }
        }
    };
    RegisterAction<age_t, key_t, bit<32>>(children) tell = {
        void apply(inout age_t d, out bit<32> block) {
            block = (bit<32>)d.block;
        }
    };

    action do_meet() {
        meta.age = meet.execute(meta.index);
    }
    action do_take() {
        take.execute(meta.index);
    }
    action do_collect() {
        meta.children = collect.execute(meta.index);
    }
    action do_tell() {
        hdr.inagg.block = tell.execute(meta.index);
    }
    @stage(2) table ages {
        key = { meta.wish: ternary; meta.order: ternary; }
        actions = { do_meet; do_take; do_collect; do_tell; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            (WISH_ADD, FIRST_ONLY): do_meet();
            (WISH_ADD, SECOND_ONLY): do_take();
            (WISH_HEAR, BOTH): do_collect();
            (WISH_ASK, _): do_tell();
        }
    }

    apply {
        ages.apply();
    }
}

control Attempt(inout frame_t hdr, inout facts_t meta) {
    Register<int<32>, key_t>(KEYS) turns;
    RegisterAction<int<32>, key_t, pair_t>(turns) advance = {
        void apply(inout int<32> turn, out pair_t attempt) {
            attempt = this.predicate(turn == (int<32>)meta.turn, turn - (int<32>)meta.turn > 0);
            if (turn - (int<32>)meta.turn <= 0) {
                turn = (int<32>)meta.turn;
            }
        }
    };
    RegisterAction<int<32>, key_t, pair_t>(turns) take = {
        void apply(inout int<32> turn) {
            turn = (int<32>)meta.turn;
        }
    };
    RegisterAction<int<32>, key_t, bit<32>>(turns) tell = {
        void apply(inout int<32> turn, out bit<32> now) {
            now = (bit<32>)turn;
        }
    };

    action do_advance() {
        meta.attempt = advance.execute(meta.index);
    }
    action do_take() {
        take.execute(meta.index);
    }
    action do_tell() {
        meta.slot_turn = tell.execute(meta.index);
    }
    @stage(2) table attempts {
        key = { meta.wish: ternary; meta.order: ternary; }
        actions = { do_advance; do_take; do_tell; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            (WISH_ADD, FIRST_ONLY): do_advance();
            (WISH_ADD, SECOND_ONLY): do_take();
            (WISH_ASK, _): do_tell();
        }
    }

    apply {
        attempts.apply();
    }
}

// As SlotTag, with the leader; a tick does not know its block yet.
control Tag(in frame_t hdr, inout facts_t meta) {
    Register<tag_t, key_t>(KEYS) tags;
    RegisterAction<tag_t, key_t, pair_t>(tags) agree_or_take = {
        void apply(inout tag_t slot, out pair_t fit) {
            fit = this.predicate(slot.block == hdr.inagg.block, slot.tag == meta.tag);
            if (slot.block != hdr.inagg.block) {
                slot.tag = meta.tag;
            }
            slot.block = hdr.inagg.block;
        }
    };
    RegisterAction<tag_t, key_t, pair_t>(tags) take = {
        void apply(inout tag_t slot) {
            slot.block = hdr.inagg.block;
            slot.tag = meta.tag;
        }
    };
    RegisterAction<tag_t, key_t, bit<32>>(tags) tell = {
        void apply(inout tag_t slot, out bit<32> tag) {
            tag = slot.tag;
        }
    };

    action do_agree_or_take() {
        meta.fit = agree_or_take.execute(meta.index);
    }
    action do_take() {
        take.execute(meta.index);
    }
    action do_tell() {
        meta.slot_tag = tell.execute(meta.index);
    }
    @stage(2) table tag {
        key = { meta.wish: ternary; meta.order: ternary; }
        actions = { do_agree_or_take; do_take; do_tell; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            (WISH_ADD, FIRST_ONLY): do_agree_or_take();
            (WISH_ADD, SECOND_ONLY): do_take();
            (WISH_ASK, _): do_tell();
        }
    }

    apply {
        tag.apply();
    }
}

// The fourth stage: who is in the sum, and has it gone on?
#define SUM_KEY \
        key = { meta.wish: ternary; meta.order: ternary; meta.age: ternary; meta.fit: ternary; meta.attempt: ternary; \
                meta.is_tick: ternary; }
// A block that is newer, or an attempt that is, takes the place of what was there.
#define SUM_ENTRIES(fold, take, tell) \
            (WISH_ADD, SECOND_ONLY, _, _, _, _): take(); \
            (WISH_ADD, FIRST_ONLY, 1, _, _, _): take(); \
            (WISH_ADD, FIRST_ONLY, FIRST_ONLY, BOTH, 1, _): take(); \
            (WISH_ADD, FIRST_ONLY, FIRST_ONLY, BOTH, FIRST_ONLY, _): fold(); \
            (WISH_ASK, _, _, _, _, 1): tell();

// ... is the packet's rank in already?  And what the packet comes to, as far as its block goes.
control Present(inout facts_t meta) {
    Register<bit<32>, key_t>(KEYS) present;
    RegisterAction<bit<32>, key_t, bit<32>>(present) fold = {
        void apply(inout bit<32> ranks, out bit<32> twice) {
            twice = ranks & meta.rank;
            ranks = ranks | meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(present) take = {
        void apply(inout bit<32> ranks) {
            ranks = meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, bit<32>>(present) tell = {
        void apply(inout bit<32> ranks, out bit<32> now) {
            now = ranks;
        }
    };

    action do_fold() {
        meta.deed = DEED_FOLD;
        meta.twice = fold.execute(meta.index);
    }
    action do_take() {
        meta.deed = DEED_TAKE;
        take.execute(meta.index);
    }
    action do_tell() {
        meta.deed = DEED_LOOK;
        meta.twice = tell.execute(meta.index);
    }
    action do_nothing(deed_t deed) {
        meta.deed = deed;
    }
    @stage(3) table presents {
        SUM_KEY
        actions = { do_fold; do_take; do_tell; do_nothing; }
        const default_action = do_nothing(DEED_NONE);
        size = 32;
        const entries = {
            SUM_ENTRIES(do_fold, do_take, do_tell)
            (WISH_ADD, BOTH, _, _, _, _): do_nothing(DEED_COLLIDE);
            (WISH_ADD, _, SECOND_ONLY, _, _, _): do_nothing(DEED_STALE);
            (WISH_ADD, _, _, FIRST_ONLY, _, _): do_nothing(DEED_EVADE);	// the leader's to refuse
            (WISH_ADD, _, _, _, _, _): do_nothing(DEED_PASS);	// of an earlier attempt
            (WISH_ASK, _, _, _, _, _): do_nothing(DEED_LOOK);	// at nothing
            (WISH_HEAR, _, _, _, _, _): do_nothing(DEED_HEAR);
            (WISH_FAIL, _, _, _, _, _): do_nothing(DEED_FAIL);
            (WISH_PASS, _, _, _, _, _): do_nothing(DEED_PASS);
            (WISH_EVADE, _, _, _, _, _): do_nothing(DEED_EVADE);
        }
    }

    apply {
        presents.apply();
    }
}

// ... who is missing?  Nobody, or only the packet's rank.
control Lack(inout facts_t meta) {
    Register<bit<32>, key_t>(KEYS) missing;
    RegisterAction<bit<32>, key_t, pair_t>(missing) fold = {
        void apply(inout bit<32> ranks, out pair_t lack) {
            lack = this.predicate(ranks == 0, ranks == meta.rank);
            ranks = ranks & ~meta.rank;
        }
    };
    RegisterAction<bit<32>, key_t, pair_t>(missing) take = {
        void apply(inout bit<32> ranks) {
            ranks = meta.left;
        }
    };
    RegisterAction<bit<32>, key_t, pair_t>(missing) tell = {
        void apply(inout bit<32> ranks, out pair_t lack) {
            lack = this.predicate(ranks == 0, ranks == meta.rank);
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
    @stage(3) table lacks {
        SUM_KEY
        actions = { do_fold; do_take; do_tell; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = { SUM_ENTRIES(do_fold, do_take, do_tell) }
    }

    apply {
        lacks.apply();
    }
}

// ... has it gone on, or does it now?
struct wait_t {
    int<32> visits;	// of the clock
    int<32> sent;
}

control Wait(inout facts_t meta) {
    Register<wait_t, key_t>(KEYS) waits;
    RegisterAction<wait_t, key_t, pair_t>(waits) fold = {
        void apply(inout wait_t wait, out pair_t open) {
            open = this.predicate(wait.sent == 0, wait.visits >= 0);
        }
    };
    RegisterAction<wait_t, key_t, pair_t>(waits) take = {
        void apply(inout wait_t wait) {
            wait.visits = 0;
            wait.sent = 0;
        }
    };
    RegisterAction<wait_t, key_t, pair_t>(waits) visit = {
        void apply(inout wait_t wait, out pair_t open) {
            open = this.predicate(wait.sent == 0, wait.visits - (int<32>)meta.patience >= 0);
            if (wait.visits - (int<32>)meta.patience >= 0) {
                wait.sent = 1;
            }
            wait.visits = wait.visits + 1;
        }
    };

    action do_fold() {
        meta.open = fold.execute(meta.index);
    }
    action do_take() {
        take.execute(meta.index);
    }
    action do_visit() {
        meta.open = visit.execute(meta.index);
    }
    @stage(3) table wait {
        SUM_KEY
        actions = { do_fold; do_take; do_visit; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = { SUM_ENTRIES(do_fold, do_take, do_visit) }
    }

    apply {
        wait.apply();
    }
}

// What follows.
control Answer(inout frame_t hdr, inout facts_t meta, inout ingress_intrinsic_metadata_for_tm_t tm) {
    action refuse(bit<8> reason) {
        meta.path = PATH_NOWHERE;
        meta.reason = reason;
    }
    action absorb() {
        meta.path = PATH_NOWHERE;
    }
    // Something goes on.
    action send(errand_t errand) {
        hdr.bridge.errand = hdr.bridge.errand | errand;	// the parser knows whether there are elements
        hdr.bridge.job = hdr.inagg.job;
        meta.is_answer = true;
        hdr.inagg.boot = meta.boot;
    }
    action pass_on() {
        send(ERRAND_REPLY);
    }
    action evade() {
        pass_on();
        hdr.inagg.flags[8:8] = 1;	// INAGG_F_BYPASS
    }
    action collide() {
        evade();
        hdr.inagg.flags[7:7] = 1;	// INAGG_F_COLLISION
    }
    action spread() {
        send(ERRAND_MULTICAST);
        tm.mcast_grp_a = (bit<16>)meta.row + 1;
    }
    // A rank sees all ranks.
    action spread_result() {
        spread();
        hdr.inagg.contributors = (bit<64>)meta.everyone;
    }
    action send_sum() {
        send(ERRAND_REPLY);
        hdr.inagg.version = INAGG_WIRE_VERSION;
        hdr.inagg.type = INAGG_PARTIAL;
        hdr.inagg.window_cap = 0;
        hdr.inagg.payload_checksum = 0;
        hdr.inagg.fan_in = meta.size;
    }
    action complete() {
        send_sum();
        hdr.inagg.contributors = (bit<64>)meta.others;
        hdr.inagg.count = meta.size - 1;
    }
    action expire() {
        send_sum();
        hdr.inagg.contributors = (bit<64>)meta.twice;
        hdr.inagg.elements = INAGG_CHUNK;
    }
    // Of a control block.
    action expire_empty() {
        expire();
        hdr.bridge.errand = ERRAND_REPLY;
        hdr.inagg.elements = 0;
        hdr.chunk0.setInvalid();
    }
    // With what follows it would keep lanes from stages that they need.
    @stage(10) table answers {
        key = {
            meta.deed: ternary;
            meta.twice: ternary;
            meta.open: ternary;
            meta.lack: ternary;
            meta.left: ternary;
            hdr.bridge.told: ternary;
            meta.slot_tag: ternary;
        }
        actions = { refuse; absorb; pass_on; evade; collide; spread; spread_result; complete; expire; expire_empty; NoAction; }
        const default_action = NoAction;
        size = 32;
        const entries = {
            (DEED_TAKE, _, _, _, 0, _, _): pass_on();	// nobody else is to come
            (DEED_TAKE, _, _, _, _, _, _): absorb();
            (DEED_FOLD, 0, BOTH, SECOND_ONLY, _, _, _): complete();
            (DEED_FOLD, 0, BOTH, _, _, _, _): absorb();
            (DEED_FOLD, 0, _, _, _, _, _): pass_on();	// late
            (DEED_FOLD, _, _, _, _, _, _): refuse(INAGG_R_DUPLICATE);
            (DEED_LOOK, _, BOTH, FIRST_ONLY, _, _, _): absorb();	// it has gone on when the last was in
            (DEED_LOOK, _, BOTH, _, _, _, 0 &&& TAG_DTYPE): expire_empty();	// INAGG_WIRE_NONE
            (DEED_LOOK, _, BOTH, _, _, _, _): expire();
            (DEED_LOOK, _, _, _, _, _, _): absorb();
            (DEED_HEAR, _, _, _, _, 0, _): refuse(INAGG_R_STALE);
            (DEED_HEAR, _, _, _, _, _, _): spread_result();
            (DEED_FAIL, _, _, _, _, _, _): spread();
            (DEED_PASS, _, _, _, _, _, _): pass_on();
            (DEED_EVADE, _, _, _, _, _, _): evade();
            (DEED_COLLIDE, _, _, _, _, _, _): collide();
            (DEED_STALE, _, _, _, _, _, _): refuse(INAGG_R_STALE);
        }
    }

    apply {
        answers.apply();
    }
}

// What a tick says of a sum: how many ranks it has, of which the first speaks for it.
#define BITS1(k, n) (DEED_LOOK, k): add(n);
#define BITS2(k, n) BITS1(k, n) BITS1(k + 1, n + 1)
#define BITS3(k, n) BITS2(k, n) BITS2(k + 2, n + 1)
#define BITS4(k, n) BITS3(k, n) BITS3(k + 4, n + 1)
#define BITS5(k, n) BITS4(k, n) BITS4(k + 8, n + 1)
#define BITS6(k, n) BITS5(k, n) BITS5(k + 16, n + 1)
#define BITS7(k, n) BITS6(k, n) BITS6(k + 32, n + 1)
#define BITS8(k, n) BITS7(k, n) BITS7(k + 64, n + 1)
#define COUNT(i) \
    table count##i { \
        key = { meta.deed: exact; meta.byte##i: exact; } \
        actions = { add; NoAction; } \
        const default_action = NoAction; \
        size = 256; \
        const entries = { BITS8(0, 0) BITS8(128, 1) } \
    }
control DescribeSum(inout frame_t hdr, inout facts_t meta) {
    action add(bit<16> number) {
        hdr.inagg.count = hdr.inagg.count + number;
    }
    COUNT(0)
    COUNT(1)
    COUNT(2)
    COUNT(3)

    // Keys of their own: the chip's model does not find entries for parts of a field.
    action divide() {
        meta.byte0[7:0] = meta.twice[7:0];
        meta.byte1[7:0] = meta.twice[15:8];
        meta.byte2[7:0] = meta.twice[23:16];
        meta.byte3[7:0] = meta.twice[31:24];
    }

    action describe(bit<16> rank) {
        hdr.inagg.source = rank;
        hdr.inagg.dtype = meta.slot_tag[15:12];
        hdr.inagg.op = meta.slot_tag[11:8];
        hdr.inagg.scale = meta.slot_tag[7:0];
        hdr.inagg.slot = (bit<32>)meta.slot_id[15:0];
        hdr.inagg.switch_id = (bit<16>)meta.slot_turn[1:0];
        hdr.bridge.target = meta.slot_tag[31:16];
    }
#define LOWEST(i) (DEED_LOOK, 1 << i &&& (2 << i) - 1): describe(i);
    table sums {
        key = { meta.deed: ternary; meta.twice: ternary @name("ranks"); }
        actions = { describe; NoAction; }
        const default_action = NoAction;
        size = 32;
        const entries = {
            LOWEST(0) LOWEST(1) LOWEST(2) LOWEST(3) LOWEST(4) LOWEST(5) LOWEST(6) LOWEST(7)
            LOWEST(8) LOWEST(9) LOWEST(10) LOWEST(11) LOWEST(12) LOWEST(13) LOWEST(14) LOWEST(15)
            LOWEST(16) LOWEST(17) LOWEST(18) LOWEST(19) LOWEST(20) LOWEST(21) LOWEST(22) LOWEST(23)
            LOWEST(24) LOWEST(25) LOWEST(26) LOWEST(27) LOWEST(28) LOWEST(29) LOWEST(30) LOWEST(31)
        }
    }

    apply {
        sums.apply();
        divide();
        count0.apply();
        count1.apply();
        count2.apply();
        count3.apply();
    }
}

control Ingress(inout frame_t hdr, inout facts_t meta, in ingress_intrinsic_metadata_t intrinsic,
                in ingress_intrinsic_metadata_from_parser_t parser_intrinsic,
                inout ingress_intrinsic_metadata_for_deparser_t deparser_intrinsic,
                inout ingress_intrinsic_metadata_for_tm_t tm) {
    Findings() findings;
    Position() position;
    Admission() admission;
    Children() children;
    Attempt() attempt;
    Tag() tag;
    SlotNextScale() slot_next_scale;
    SlotFlags() slot_flags;
    Present() present;
    Lack() lack;
    Wait() wait;
    Elements() elements;
    Answer() answer;
    DescribeSum() describe_sum;
    Leave() leave;

    // The job of a tick's descriptor.  @id: its bits above the slot's.
    action set_row(bit<16> job, bit<16> generation, bit<16> size, bit<32> patience) {
        meta.is_tick = 1;
        meta.size = size;
        meta.patience = patience;
        hdr.inagg.job = job;
        hdr.inagg.generation = generation;
    }
    table rows {
        key = { meta.slot_id[31:16]: exact @name("id"); hdr.ipv6.isValid(): exact @name("is_six"); }
        actions = { set_row; NoAction; }
        const default_action = NoAction;
        size = 128;
    }

    action leave_others() {
        meta.left = meta.others & ~meta.rank;
    }
    // For whom the leader's word is: those whom it names, and ...
    action name() {
        hdr.bridge.told = hdr.inagg.contributors[31:0] & meta.others;
    }
    // ... those who have come,
    action remember() {
        hdr.bridge.told = hdr.bridge.told | meta.children;
    }
    // or those whom it does not name.
    action name_others() {
        hdr.bridge.told = meta.others & ~hdr.inagg.contributors[31:0];
    }

    action add_flags() {
        meta.flags = meta.flags | meta.result_flags[11:0];
    }
    // What sums of blocks say beside their elements.
    action dress() {
        hdr.inagg.level = 0;
        hdr.inagg.flags = meta.flags;
        hdr.inagg.next_scale = meta.next_scale[7:0];
    }

    apply {
        position.apply(hdr, meta, intrinsic);	// before what is off about its address replaces it
        findings.apply(hdr, meta, intrinsic);
        admission.apply(hdr, meta);
        attempt.apply(hdr, meta);
        tag.apply(hdr, meta);
        slot_next_scale.apply(hdr, meta);
        children.apply(hdr, meta);	// then a tick knows its block
        leave_others();
        if (meta.wish == WISH_ASK) {
            rows.apply();
        } else if (meta.wish == WISH_HEAR) {
            name();
        } else if (meta.wish == WISH_FAIL) {
            name_others();
        }
        slot_flags.apply(hdr, meta);
        present.apply(meta);
        lack.apply(meta);
        wait.apply(meta);
        if (meta.wish == WISH_HEAR) {
            remember();
        }
        add_flags();
        describe_sum.apply(hdr, meta);
        elements.apply(hdr, meta);
        answer.apply(hdr, meta, tm);

        leave.apply(hdr, meta, intrinsic, deparser_intrinsic, tm);
        if (meta.path == PATH_BLOCK && hdr.inagg.type == INAGG_PARTIAL) {
            dress();
        }
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
