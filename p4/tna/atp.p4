// SPDX-License-Identifier: BSD-2-Clause
// ATP (§3.5, §3.7, Figures 7 and 17), for Tofino: slots that belong to nobody, with a server behind.  The rules, and why they hold, are in
// inagg/core/aggregator.h; what of them is not here docs/P4-tofino.md says.
//
// What a rank sends for the first time is done in one pass.  What it sends again finds out in a first pass what there is, and does
// something in a second one, by resubmission, if it is still so.
#define AGGREGATORS
#define MARKS_QUEUES

#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "../shared/constants.p4"
#include "../shared/headers.p4"

#include "state.p4"
#include "parser.p4"
#include "findings.p4"
#include "aggregator.p4"
#include "elements.p4"
#include "leave.p4"
#include "mark.p4"

// How many ranks a sum has: four bits at a time, in two halves.  (Keys of four bits would cut the sum in pieces, which no ALU joins.)
#define COUNT1(i, x, n, low) (x) << low &&& 0xf << low: add##i(n);
#define COUNT4(i, x, n, low) COUNT1(i, x, n, low) COUNT1(i, x + 1, n + 1, low) COUNT1(i, x + 2, n + 1, low) COUNT1(i, x + 3, n + 2, low)
#define COUNT_RANKS(i, low, half) \
    action add##i(bit<16> ranks) { \
        meta.half = meta.half + ranks; \
    } \
    table count##i { \
        key = { meta.sum: ternary; } \
        actions = { add##i; NoAction; } \
        const default_action = NoAction; \
        size = 16; \
        const entries = { COUNT4(i, 0, 0, low) COUNT4(i, 4, 1, low) COUNT4(i, 8, 1, low) COUNT4(i, 12, 2, low) } \
    }
control CountRanks(inout facts_t meta) {
    COUNT_RANKS(0, 0, low_ranks)
    COUNT_RANKS(1, 4, low_ranks)
    COUNT_RANKS(2, 8, low_ranks)
    COUNT_RANKS(3, 12, low_ranks)
    COUNT_RANKS(4, 16, high_ranks)
    COUNT_RANKS(5, 20, high_ranks)
    COUNT_RANKS(6, 24, high_ranks)
    COUNT_RANKS(7, 28, high_ranks)

    apply {
        count0.apply();
        count4.apply();
        count1.apply();
        count5.apply();
        count2.apply();
        count6.apply();
        count3.apply();
        count7.apply();
    }
}

// Between the passes over registers, what follows from them by itself.
control Weigh(inout frame_t hdr, inout facts_t meta) {
    Hash<bit<32>>(HashAlgorithm_t.IDENTITY) widen;
    action set_mark() {
        meta.mark = widen.get({ 20w0, hdr.inagg.flags });
    }
    action expect_mark() {
        meta.mark = meta.expected;
        meta.twice = meta.expected & meta.rank;
    }
    action set_came() {
        meta.came = meta.expected | meta.rank;
    }

    table weigh {
        key = { meta.wish: exact; }
        actions = { set_mark; expect_mark; NoAction; }
        const default_action = NoAction;
        size = 4;
        const entries = {
            WISH_ADD: set_mark();
            WISH_CLOSE: expect_mark();
        }
    }

    apply {
        set_came();
        weigh.apply();
    }
}

// The answer to a packet of a block, once its aggregator has been asked everything: the rest of inagg_aggregator_contribute().
control Answer(inout frame_t hdr, inout facts_t meta) {
    action weigh_sum() {
        meta.sum = meta.came & ~meta.gone;
    }
    action weigh_look() {
        meta.gone = meta.gone & meta.rank;
    }
    table weigh {
        key = { meta.deed: exact; }
        actions = { weigh_sum; weigh_look; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            DEED_FOLD: weigh_sum();
            DEED_LOOK: weigh_look();
            DEED_CLOSE: weigh_sum();
        }
    }

    action refuse(bit<8> reason) {
        meta.path = PATH_NOWHERE;
        meta.reason = reason;
    }
    action absorb() {
        meta.path = PATH_NOWHERE;
    }
    action send_again() {
        meta.path = PATH_AGAIN;
    }
    // As it is, but for marks.
    action pass_up() {
        meta.path = PATH_UP;
        meta.is_answer = true;
        hdr.bridge.errand = ERRAND_SEND;
        hdr.bridge.target = COPY_ABOVE;
    }
    // The server will move the position to another aggregator.
    action collide() {
        pass_up();
        hdr.inagg.flags[7:7] = 1;	// INAGG_F_COLLISION
    }
    action sign() {
        meta.is_answer = true;
        hdr.inagg.boot = meta.boot;
        hdr.inagg.fan_in = meta.size;
        hdr.inagg.payload_checksum = 0;
    }
    action send_sum() {
        sign();
        meta.path = PATH_SUM;
        hdr.bridge.errand = ERRAND_SEND;
        hdr.bridge.target = COPY_ABOVE;
        hdr.inagg.type = INAGG_PARTIAL;
        hdr.inagg.window_cap = 0;
        hdr.inagg.contributors = (bit<64>)meta.sum;
        meta.flags = hdr.inagg.flags & (INAGG_F_VERSION | AGGREGATED_FLAGS);
        hdr.inagg.next_scale = meta.next_scale[7:0];
        meta.sum_flags = meta.result_flags[11:0] & AGGREGATED_FLAGS;
    }
    table answers {
        key = {
            meta.wish: ternary;
            meta.claim: ternary;
            meta.order: ternary;
            meta.deed: ternary;
            meta.lack: ternary;
            meta.twice: ternary;
            meta.gone: ternary;
            meta.sum: ternary;
        }
        actions = { refuse; absorb; send_again; pass_up; collide; send_sum; NoAction; }
        const default_action = pass_up;
        size = 32;
        const entries = {
            (WISH_NONE, _, _, _, _, _, _, _): NoAction();
            (WISH_RESULT, _, _, _, _, _, _, _): NoAction();
            (WISH_WAIT, _, _, _, _, _, _, _): NoAction();
            (WISH_PASS, _, _, _, _, _, _, _): pass_up();
            // Neither has the packet's position it, nor has anybody else left it; or it has a later block.
            (WISH_ADD, 1, _, _, _, _, _, _): collide();
            (WISH_ADD, _, SECOND_ONLY, _, _, _, _, _): collide();
            (_, _, _, DEED_TAKE, _, _, _, _): absorb();
            (_, _, _, DEED_FOLD, AS_EXPECTED, _, _, _): send_sum();
            (_, _, _, DEED_FOLD, _, 0, _, _): absorb();
            (_, _, _, DEED_FOLD, _, _, _, _): refuse(INAGG_R_DUPLICATE);
            // It is missing, or in the sum that is here.
            (_, _, _, DEED_LOOK, _, _, 0, _): send_again();
            // It is as the first pass has seen it; or all of it went on just now.
            (_, _, _, DEED_CLOSE, AS_EXPECTED, _, _, 0): absorb();
            (_, _, _, DEED_CLOSE, AS_EXPECTED, _, _, _): send_sum();
        }
    }

    action tell(path_t path, errand_t errand) {
        sign();
        meta.path = path;
        hdr.bridge.errand = errand;
        hdr.bridge.target = hdr.inagg.source;
    }
    action tell_result(path_t path, errand_t errand) {
        tell(path, errand);
        meta.flags = hdr.inagg.flags;
    }
    action tell_wait(path_t path, errand_t errand) {
        tell(path, errand);
        meta.flags = hdr.inagg.flags & (INAGG_F_VERSION | INAGG_F_MULTICAST | INAGG_F_SATURATED);
        hdr.inagg.count = 0;
        hdr.inagg.window_cap = 0;
        hdr.inagg.next_scale = 0;
        hdr.inagg.elements = 0;
    }
#define FOR_ALL INAGG_F_MULTICAST &&& INAGG_F_MULTICAST
    table words {
        key = {
            meta.wish: ternary;
            meta.lacking: ternary;
            hdr.inagg.contributors: ternary;
            hdr.inagg.flags: ternary;
        }
        actions = { refuse; tell_result; tell_wait; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            (WISH_RESULT, 0, 0 &&& 0xffffffff00000000, FOR_ALL): tell_result(PATH_ALL, ERRAND_MULTICAST);
            (WISH_RESULT, 0, 0 &&& 0xffffffff00000000, _): tell_result(PATH_DOWN, ERRAND_SEND);
            (WISH_RESULT, _, _, _): refuse(INAGG_R_RANK);
            (WISH_WAIT, _, _, FOR_ALL): tell_wait(PATH_ALL, ERRAND_MULTICAST);
            (WISH_WAIT, _, _, _): tell_wait(PATH_DOWN, ERRAND_SEND);
        }
    }

    apply {
        weigh.apply();
        words.apply();
        answers.apply();
    }
}

control Ingress(inout frame_t hdr, inout facts_t meta, in ingress_intrinsic_metadata_t intrinsic,
                in ingress_intrinsic_metadata_from_parser_t parser_intrinsic,
                inout ingress_intrinsic_metadata_for_deparser_t deparser_intrinsic,
                inout ingress_intrinsic_metadata_for_tm_t tm) {
    Findings() findings;
    Leave() leave;
    Admission() admission;
    AggregatorBlock() aggregator_block;
    AggregatorTag() aggregator_tag;
    AggregatorNextScale() aggregator_next_scale;
    AggregatorLack() aggregator_lack;
    AggregatorTwice() aggregator_twice;
    AggregatorGone() aggregator_gone;
    AggregatorFlags() aggregator_flags;
    Weigh() weigh;
    Elements() elements;
    Answer() answer;
    CountRanks() count_ranks;

    action finish_sum() {
        meta.flags = meta.flags | meta.sum_flags;
    }
    table finish_sums {
        key = { meta.path: exact; }
        actions = { finish_sum; NoAction; }
        const default_action = NoAction;
        size = 1;
        const entries = { PATH_SUM: finish_sum(); }
    }
    action set_count() {
        hdr.inagg.count = meta.low_ranks + meta.high_ranks;
    }
    table set_counts {
        key = { meta.path: exact; }
        actions = { set_count; NoAction; }
        const default_action = NoAction;
        size = 1;
        const entries = { PATH_SUM: set_count(); }
    }
    action set_uplink(bit<9> port) {
        meta.way_up = port;
    }
    table uplinks {
        key = { hdr.inagg.job: exact; }
        actions = { set_uplink; NoAction; }
        const default_action = NoAction;
        size = 64;
    }
    action set_place(bit<9> port) {
        meta.way_down = port;
    }
    table places {
        key = { hdr.inagg.job: exact; hdr.inagg.source: exact @name("rank"); }
        actions = { set_place; NoAction; }
        const default_action = NoAction;
        size = 2048;
    }

    action lose(bit<8> reason) {
        meta.path = PATH_NOWHERE;
        meta.reason = reason;
    }
    action go_again() {
        deparser_intrinsic.resubmit_type = RESUBMIT_AGAIN;
    }
    action go_up() {
        tm.ucast_egress_port = meta.way_up;
        hdr.bridge.job = hdr.inagg.job;
    }
    action set_flags() {
        hdr.inagg.level = 0;
        hdr.inagg.flags = meta.flags;
        hdr.bridge.job = hdr.inagg.job;
    }
    action send_sum() {
        tm.ucast_egress_port = meta.way_up;
        set_flags();
    }
    action go_down() {
        tm.ucast_egress_port = meta.way_down;
        set_flags();
    }
    action go_to_all() {
        tm.mcast_grp_a = (bit<16>)meta.row + 1;
        set_flags();
    }
    table ways {
        key = { meta.path: ternary; meta.way_up: ternary; meta.way_down: ternary; }
        actions = { lose; go_again; go_up; send_sum; go_down; go_to_all; NoAction; }
        const default_action = NoAction;
        size = 16;
        const entries = {
            (PATH_AGAIN, _, _): go_again();
            (PATH_UP, PORT_NONE, _): lose(INAGG_R_PARENT);
            (PATH_UP, _, _): go_up();
            (PATH_SUM, PORT_NONE, _): lose(INAGG_R_PARENT);
            (PATH_SUM, _, _): send_sum();
            (PATH_DOWN, _, PORT_NONE): lose(INAGG_R_RANK);
            (PATH_DOWN, _, _): go_down();
            (PATH_ALL, _, _): go_to_all();
        }
    }

    apply {
        findings.apply(hdr, meta, intrinsic);
        admission.apply(hdr, meta, intrinsic);
        aggregator_block.apply(hdr, meta);
        aggregator_tag.apply(hdr, meta);
        aggregator_next_scale.apply(hdr, meta);
        weigh.apply(hdr, meta);
        if (meta.slot_tag == meta.tag) {
            aggregator_lack.apply(meta);
            aggregator_twice.apply(meta);
            aggregator_gone.apply(meta);
            aggregator_flags.apply(meta);
        }
        elements.apply(hdr, meta);
        answer.apply(hdr, meta);
        uplinks.apply();
        places.apply();
        count_ranks.apply(meta);

        set_counts.apply();
        finish_sums.apply();
        ways.apply();
        leave.apply(hdr, meta, intrinsic, deparser_intrinsic, tm);
    }
}

control Egress(inout frame_t hdr, inout egress_facts_t meta, in egress_intrinsic_metadata_t intrinsic,
               in egress_intrinsic_metadata_from_parser_t parser_intrinsic,
               inout egress_intrinsic_metadata_for_deparser_t deparser_intrinsic,
               inout egress_intrinsic_metadata_for_output_port_t port_intrinsic) {
    action drop() {
        deparser_intrinsic.drop_ctl = 1;
    }
    // From the address that the packet came to.
    action leave() {
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.udp.src = INAGG_PORT;
        hdr.udp.checksum = 0;	// RFC 6935
    }
    action leave4() {
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.tos = INAGG_TOS;
        hdr.ipv4.id = 0;
        hdr.ipv4.reserved = 0;
        hdr.ipv4.never_fragmented = 1;
        hdr.ipv4.ttl = 64;
    }
    action leave6() {
        hdr.ipv6.src = hdr.ipv6.dst;
        hdr.ipv6.tos = INAGG_TOS;
        hdr.ipv6.ttl = 64;
    }
    action choose_copy() {
        meta.copy = intrinsic.egress_rid;
    }

    action to_rank(bit<48> mac, bit<128> address, bit<16> receive_port) {
        hdr.ethernet.dst = mac;
        meta.address = address;
        hdr.udp.dst = receive_port;
    }
    // @own_mac: of the port.
    action to_above(bit<48> own_mac, bit<48> mac, bit<128> address) {
        to_rank(mac, address, INAGG_PORT);
        hdr.ethernet.src = own_mac;
    }
    // Each copy of what goes to all ranks gets its rank's addresses; and so does what goes to one, or to the parent.
    table copies {
        key = { hdr.bridge.job: exact; meta.copy: exact @name("rank"); }
        actions = { to_rank; to_above; drop; }
        const default_action = drop;
        size = 2048;
    }
    action to_address4() {
        hdr.ipv4.dst = meta.address[31:0];
    }
    action to_address6() {
        hdr.ipv6.dst = meta.address;
    }
    MarkIfQueued() mark_if_queued;

    apply {
        if (hdr.bridge.errand == ERRAND_FLOOD) {
            if (intrinsic.egress_port == hdr.bridge.port) {
                drop();
            }
        } else if (hdr.bridge.errand != ERRAND_NONE) {
            if (hdr.bridge.errand & ERRAND_MULTICAST != 0) {
                choose_copy();
            }
            leave();
            copies.apply();
            if (hdr.ipv4.isValid()) {
                leave4();
                to_address4();
            } else {
                leave6();
                to_address6();
            }
            mark_if_queued.apply(hdr, intrinsic);
        }
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
