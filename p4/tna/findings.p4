// SPDX-License-Identifier: BSD-2-Clause
// The first stage: what is off about a packet, all at once.
#ifndef INAGG_P4_TNA_FINDINGS
#define INAGG_P4_TNA_FINDINGS

@noWarn("unused") const bit<16> GENERATION_LIVE = 1;	// above the number: a slot of zeros is of no generation

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
    @ternary(1) table lengths4 {
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
    @ternary(1) table lengths6 {
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
    @stage(0) table jobs {
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
    @stage(0) table members {
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
    @stage(0) @ternary(1) table ranks {
        key = { hdr.inagg.source[4:0]: exact @name("rank"); }
        actions = { set_rank; }
        size = 32;
        const entries = { EACH_RANK(set_rank) }
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

#endif
