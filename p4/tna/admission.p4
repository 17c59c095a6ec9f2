// SPDX-License-Identifier: BSD-2-Clause
// Which packets may touch a slot: the checks of inagg_switch in bpf/switch.bpf.c and inagg/core/job.h.  The first stage finds
// out what is off, all at once; what follows from that one table says, in the second.
#ifndef INAGG_P4_TNA_ADMISSION
#define INAGG_P4_TNA_ADMISSION

@noWarn("unused") const bit<16> GENERATION_LIVE = 1;	// above the number: a slot of zeros is of no generation

// The first stage.
control Findings(inout frame_t hdr, inout facts_t meta, in ingress_intrinsic_metadata_t intrinsic) {
    action set_switch(PortId_t cpu_port, bit<16> boot) {
        meta.cpu_port = cpu_port;
        meta.agent_off = intrinsic.ingress_port ^ cpu_port;
        meta.boot = boot;
    }
    table settings {
        actions = { set_switch; }
        default_action = set_switch(511, 0);
        size = 1;
    }

    // The switch's addresses; v1model has them in `settings`.
    action is_own() {
        meta.is_own = 1;
    }
    table own4 {
        key = { hdr.ipv4.dst: exact; }
        actions = { is_own; NoAction; }
        const default_action = NoAction;
        size = 16;
    }
    table own6 {
        key = { hdr.ipv6.dst: exact; }
        actions = { is_own; NoAction; }
        const default_action = NoAction;
        size = 16;
    }
    action is_forged() {
        meta.is_forged = 1;
    }
    table own_sources {
        key = { meta.source_high: exact; meta.source_low: exact; }
        actions = { is_forged; NoAction; }
        const default_action = NoAction;
        size = 16;
    }

    // The datagram fills the IP packet, and is as long as one of ours.
    action set_whole() {
        meta.is_whole = 1;
    }
    table lengths4 {
        key = { hdr.ipv4.length: exact; hdr.udp.length: exact; }
        actions = { set_whole; NoAction; }
        const default_action = NoAction;
        size = 4;
        const entries = {
            (20 + LENGTH_BARE, LENGTH_BARE): set_whole();
            (20 + LENGTH_CHUNK, LENGTH_CHUNK): set_whole();
            (20 + LENGTH_JOIN, LENGTH_JOIN): set_whole();
#ifdef AGGREGATORS
            (20 + LENGTH_HALVES, LENGTH_HALVES): set_whole();
#endif
        }
    }
    table lengths6 {
        key = { hdr.ipv6.length: exact; hdr.udp.length: exact; }
        actions = { set_whole; NoAction; }
        const default_action = NoAction;
        size = 4;
        const entries = {
            (LENGTH_BARE, LENGTH_BARE): set_whole();
            (LENGTH_CHUNK, LENGTH_CHUNK): set_whole();
            (LENGTH_JOIN, LENGTH_JOIN): set_whole();
#ifdef AGGREGATORS
            (LENGTH_HALVES, LENGTH_HALVES): set_whole();
#endif
        }
    }

#ifdef AGGREGATORS
    // @base, @last: of its share of the aggregators, the first one, and how many there are less one. Of @alone's job only one rank
    // is behind this switch. @tenure: index and generation, above 10 bits of zeros.
    action set_job(bit<8> index, bit<16> generation, bit<16> size, bit<16> slots, bit<32> here, bit<32> everyone, bit<1> alone,
                   bit<16> base, bit<16> last, bit<32> tenure) {
        meta.job_is_known = 1;
        meta.row = index;
        meta.generation_off = hdr.inagg.generation ^ generation;
        meta.size = size;
        meta.slots_left = slots |-| hdr.inagg.slot[15:0];
        meta.key = hdr.inagg.switch_id & last;
        meta.base = base;
        meta.here = here;
        meta.lacking = hdr.inagg.contributors[31:0] ^ everyone;
        meta.is_alone = alone;
        meta.who = hdr.inagg.slot | tenure;
    }
#else
    // @slots: data and control.
    action set_job(bit<8> index, bit<16> generation, bit<16> size, bit<16> first_slot, bit<16> slots, bit<32> everyone) {
        meta.job_is_known = 1;
        meta.row = index;
        meta.generation_off = hdr.inagg.generation ^ generation;
        meta.generation = GENERATION_LIVE ++ generation;
        meta.size = size;
        meta.slots_left = slots |-| hdr.inagg.slot[15:0];
        meta.key = first_slot + hdr.inagg.slot[15:0];
        meta.everyone = everyone;
    }
#endif
    table jobs {
        key = { hdr.inagg.job: exact; }
        actions = { set_job; NoAction; }
        const default_action = NoAction;
        size = 64;
    }

#ifdef AGGREGATORS
    action set_member(bit<9> port, bit<128> address) {
        meta.member_is_known = 1;
        meta.port_off = intrinsic.ingress_port ^ port;
        meta.source_high = meta.source_high ^ address[127:32];
        meta.source_low = meta.source_low ^ address[31:0];
    }
#else
    action set_member(bit<9> port, bit<128> address, bit<16> receive_port) {
        meta.member_is_known = 1;
        meta.port_off = intrinsic.ingress_port ^ port;
        meta.source_high = meta.source_high ^ address[127:32];
        meta.source_low = meta.source_low ^ address[31:0];
        hdr.bridge.receive_port = receive_port;
    }
#endif
    table members {
#ifdef AGGREGATORS
        // What the parent says is for a rank: it has a row for each of them, with 1.
        key = { hdr.inagg.job: exact; hdr.inagg.source: exact; meta.is_above: exact @name("is_above"); }
        size = 4096;
#else
        key = { hdr.inagg.job: exact; hdr.inagg.source: exact; }
        size = 2048;
#endif
        actions = { set_member; NoAction; }
        const default_action = NoAction;
    }

    // One register holds the bits of a slot's ranks.
    action set_rank(bit<32> bit_) {
        meta.rank = bit_;
    }
    table ranks {
        key = { hdr.inagg.source[4:0]: exact @name("rank"); }
        actions = { set_rank; }
        size = 32;
        const entries = {
            0: set_rank(1 << 0);
            1: set_rank(1 << 1);
            2: set_rank(1 << 2);
            3: set_rank(1 << 3);
            4: set_rank(1 << 4);
            5: set_rank(1 << 5);
            6: set_rank(1 << 6);
            7: set_rank(1 << 7);
            8: set_rank(1 << 8);
            9: set_rank(1 << 9);
            10: set_rank(1 << 10);
            11: set_rank(1 << 11);
            12: set_rank(1 << 12);
            13: set_rank(1 << 13);
            14: set_rank(1 << 14);
            15: set_rank(1 << 15);
            16: set_rank(1 << 16);
            17: set_rank(1 << 17);
            18: set_rank(1 << 18);
            19: set_rank(1 << 19);
            20: set_rank(1 << 20);
            21: set_rank(1 << 21);
            22: set_rank(1 << 22);
            23: set_rank(1 << 23);
            24: set_rank(1 << 24);
            25: set_rank(1 << 25);
            26: set_rank(1 << 26);
            27: set_rank(1 << 27);
            28: set_rank(1 << 28);
            29: set_rank(1 << 29);
            30: set_rank(1 << 30);
            31: set_rank(1 << 31);
        }
    }

    apply {
        settings.apply();
        ranks.apply();
        own_sources.apply();
        if (hdr.ipv4.isValid()) {
            own4.apply();
            lengths4.apply();
        } else if (hdr.ipv6.isValid()) {
            own6.apply();
            lengths6.apply();
        }
        if (hdr.inagg.isValid()) {
            jobs.apply();
            members.apply();
        }
    }
}

#ifndef AGGREGATORS
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

#endif
