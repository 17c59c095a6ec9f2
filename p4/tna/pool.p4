// SPDX-License-Identifier: BSD-2-Clause
// A switch with a pool of slots, in one pass through ingress.  The rules, and why they hold, are in inagg/core/slot.h; what of them
// is not here docs/P4-tofino.md says.
#ifndef INAGG_P4_TNA_POOL
#define INAGG_P4_TNA_POOL

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
#include "admission.p4"
#include "slot.p4"
#include "elements.p4"

// The answer to a packet of a block, once its slot has been asked everything: the rest of inagg_slot_contribute(),
// inagg_slot_request() and inagg_slot_restore().
control Answer(inout frame_t hdr, inout facts_t meta) {
    action refuse(bit<8> reason) {
        meta.path = PATH_NOWHERE;
        meta.reason = reason;
    }
    action absorb() {
        meta.path = PATH_NOWHERE;
    }
    action send(errand_t errand) {
        hdr.bridge.errand = errand;
        meta.is_answer = true;
        hdr.inagg.window_cap = 0;
        hdr.inagg.switch_id = 0;
        hdr.inagg.payload_checksum = 0;
        hdr.inagg.boot = meta.boot;
        hdr.inagg.fan_in = meta.size;
    }
    action result(errand_t errand) {
        send(errand);
        hdr.inagg.type = INAGG_RESULT;
        hdr.inagg.contributors = (bit<64>)meta.everyone;
        hdr.inagg.count = meta.size;
        hdr.inagg.elements = INAGG_CHUNK;
        hdr.chunk0.setValid();
    }
    // Of a control block.
    action bare_result(errand_t errand) {
        send(errand);
        hdr.inagg.type = INAGG_RESULT;
        hdr.inagg.contributors = (bit<64>)meta.everyone;
        hdr.inagg.count = meta.size;
        hdr.inagg.elements = 0;
    }
    action wait(errand_t errand) {
        send(errand);
        hdr.inagg.type = INAGG_WAIT;
        hdr.inagg.contributors = (bit<64>)(meta.everyone ^ meta.missing);
        hdr.inagg.count = 0;
        hdr.inagg.elements = 0;
        hdr.chunk0.setInvalid();
    }
    table answers {
        key = {
            meta.deed: ternary;
            meta.lack: ternary;
            meta.twice: ternary;
            meta.others: ternary;
            hdr.inagg.flags: ternary;
            hdr.inagg.dtype: ternary;
            meta.slot_tag: ternary;	// of what is asked for
        }
        actions = { refuse; absorb; result; bare_result; wait; NoAction; }
        const default_action = NoAction;
        size = 32;
        const entries = {
            (DEED_TAKE, _, _, 0, _, INAGG_WIRE_NONE, _): bare_result(ERRAND_MULTICAST);
            (DEED_TAKE, _, _, 0, _, _, _): result(ERRAND_MULTICAST | ERRAND_ELEMENTS);
            (DEED_TAKE, _, _, _, _, _, _): absorb();
            (DEED_FOLD, FIRST_ONLY, _, _, _, INAGG_WIRE_NONE, _): bare_result(ERRAND_REPLY);
            (DEED_FOLD, FIRST_ONLY, _, _, _, _, _): result(ERRAND_REPLY | ERRAND_ELEMENTS);
            (DEED_FOLD, SECOND_ONLY, _, _, _, INAGG_WIRE_NONE, _): bare_result(ERRAND_MULTICAST);
            (DEED_FOLD, SECOND_ONLY, _, _, _, _, _): result(ERRAND_MULTICAST | ERRAND_ELEMENTS);
            (DEED_FOLD, _, 0, _, _, _, _): absorb();
            (DEED_FOLD, _, _, _, _, _, _): wait(ERRAND_REPLY);
            (DEED_LOOK, FIRST_ONLY, _, _, _, _, 0 &&& TAG_DTYPE): bare_result(ERRAND_REPLY);	// INAGG_WIRE_NONE
            (DEED_LOOK, FIRST_ONLY, _, _, _, _, _): result(ERRAND_REPLY | ERRAND_ELEMENTS);
            (DEED_LOOK, _, _, _, INAGG_F_MULTICAST &&& INAGG_F_MULTICAST, _, _): wait(ERRAND_MULTICAST);
            (DEED_LOOK, _, _, _, _, _, _): wait(ERRAND_REPLY);
            (DEED_RESTORE, FIRST_ONLY, _, _, _, _, _): refuse(INAGG_R_UNSOLICITED);
            (DEED_RESTORE, _, _, _, _, INAGG_WIRE_NONE, _): bare_result(ERRAND_MULTICAST);
            (DEED_RESTORE, _, _, _, _, _, _): result(ERRAND_MULTICAST | ERRAND_ELEMENTS);
            (DEED_STALE, _, _, _, _, _, _): refuse(INAGG_R_STALE);
            (DEED_MISMATCH, _, _, _, _, _, _): refuse(INAGG_R_MISMATCH);
            (DEED_UNSOLICITED, _, _, _, _, _, _): refuse(INAGG_R_UNSOLICITED);
        }
    }

    apply {
        answers.apply();
    }
}

control Ingress(inout frame_t hdr, inout facts_t meta, in ingress_intrinsic_metadata_t intrinsic,
                in ingress_intrinsic_metadata_from_parser_t parser_intrinsic,
                inout ingress_intrinsic_metadata_for_deparser_t deparser_intrinsic,
                inout ingress_intrinsic_metadata_for_tm_t tm) {
    Findings() findings;
    Admission() admission;
    SlotTag() slot_tag;
    SlotNextScale() slot_next_scale;
    SlotFlags() slot_flags;
    SlotTwice() slot_twice;
    SlotLack() slot_lack;
    SlotMissing() slot_missing;
    Elements() elements;
    Answer() answer;

    // Ordinary frames go where their station is, or everywhere.
    action to_station(bit<9> port) {
        tm.ucast_egress_port = port;
    }
    action flood() {
        hdr.bridge.errand = ERRAND_FLOOD;
        tm.mcast_grp_a = FLOOD_GROUP;
    }
    table stations {
        key = { hdr.ethernet.dst: exact; }
        actions = { to_station; flood; }
        const default_action = flood;
        size = 1024;
    }

    // To the agent, with the port that it came by.
    action punt() {
        hdr.punt.setValid();
        hdr.punt.dst = hdr.ethernet.dst;
        hdr.punt.src = hdr.ethernet.src;
        hdr.punt.type = TYPE_PUNT;
        hdr.punt.port = (bit<16>)intrinsic.ingress_port;
        tm.ucast_egress_port = meta.cpu_port;
    }
    action unpunt() {
        tm.ucast_egress_port = hdr.punt.port[8:0];
        hdr.punt.setInvalid();
    }

    // A job's row, or INAGG_STATS_NO_JOB; 64 reasons. INAGG_R_NONE: the packets of the job that were not refused.
    Counter<bit<32>, bit<13>>((64 + 1) * 64, CounterType_t.PACKETS) drops;
    action drop() {
        deparser_intrinsic.drop_ctl = 1;
    }
    action count() {
        drops.count(meta.row[6:0] ++ meta.reason[5:0]);
    }

    action to_sender() {
        tm.ucast_egress_port = intrinsic.ingress_port;
    }
    action to_all() {
        tm.mcast_grp_a = (bit<16>)meta.row + 1;
    }
    action add_flags() {
        meta.flags = meta.flags | meta.result_flags[11:0];
    }
    action keep_version() {
        meta.flags = meta.flags & INAGG_F_VERSION;
    }
    action set_flags() {
        hdr.inagg.level = 0;
        hdr.inagg.flags = meta.flags;
    }
    action set_next_scale() {
        hdr.inagg.next_scale = meta.next_scale[7:0];
    }
    action clear_next_scale() {
        hdr.inagg.next_scale = 0;
    }
    // What was asked for a block need not have said what the block is.
    action asked() {
        hdr.inagg.dtype = meta.slot_tag[15:12];
        hdr.inagg.op = meta.slot_tag[11:8];
        hdr.inagg.scale = meta.slot_tag[7:0];
    }

    apply {
        findings.apply(hdr, meta, intrinsic);
        admission.apply(hdr, meta);
        slot_tag.apply(hdr, meta);
        slot_next_scale.apply(hdr, meta);
        slot_flags.apply(hdr, meta);
        slot_twice.apply(meta);
        slot_lack.apply(meta);
        slot_missing.apply(meta);
        elements.apply(hdr, meta);
        answer.apply(hdr, meta);

        if (meta.path == PATH_BLOCK || meta.path == PATH_NOWHERE) {
            count();
        }
        if (meta.path == PATH_ORDINARY) {
            stations.apply();
        } else if (meta.path == PATH_TO_AGENT) {
            punt();
        } else if (meta.path == PATH_FROM_AGENT) {
            unpunt();
        } else if (meta.path == PATH_NOWHERE) {
            drop();
        } else {
            hdr.bridge.job = hdr.inagg.job;
            if (hdr.bridge.errand & ERRAND_MULTICAST != 0) {
                to_all();
            } else {
                to_sender();
            }
            if (hdr.inagg.type == INAGG_RESULT) {
                add_flags();
                set_next_scale();
                if (meta.deed == DEED_LOOK) {
                    asked();
                }
            } else {
                keep_version();
                clear_next_scale();
            }
            set_flags();
        }
    }
}

control Egress(inout frame_t hdr, inout egress_facts_t meta, in egress_intrinsic_metadata_t intrinsic,
               in egress_intrinsic_metadata_from_parser_t parser_intrinsic,
               inout egress_intrinsic_metadata_for_deparser_t deparser_intrinsic,
               inout egress_intrinsic_metadata_for_output_port_t port_intrinsic) {
    action drop() {
        deparser_intrinsic.drop_ctl = 1;
    }
    // From where the packet went, to where it came from. The statements of an action run in order.
    action turn() {
        bit<48> sender = hdr.ethernet.src;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = sender;
        hdr.udp.src = INAGG_PORT;
        hdr.udp.dst = hdr.bridge.receive_port;
        hdr.udp.checksum = 0;	// RFC 6935
    }
    action turn4() {
        bit<32> sender = hdr.ipv4.src;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = sender;
        hdr.ipv4.tos = INAGG_TOS;
        hdr.ipv4.id = 0;
        hdr.ipv4.reserved = 0;
        hdr.ipv4.never_fragmented = 1;
        hdr.ipv4.ttl = 64;
    }
    action turn6() {
        bit<128> sender = hdr.ipv6.src;
        hdr.ipv6.src = hdr.ipv6.dst;
        hdr.ipv6.dst = sender;
        hdr.ipv6.tos = INAGG_TOS;
        hdr.ipv6.ttl = 64;
    }
    action set_lengths4(bit<16> udp) {
        hdr.ipv4.length = 20 + udp;
        hdr.udp.length = udp;
    }
    action set_lengths6(bit<16> udp) {
        hdr.ipv6.length = udp;
        hdr.udp.length = udp;
    }

    action to_rank(bit<48> mac, bit<128> address, bit<16> receive_port) {
        hdr.ethernet.dst = mac;
        meta.address = address;
        hdr.udp.dst = receive_port;
    }
#ifdef MARKS_QUEUES
    // A queue of this switch is long, and what this switch sends by it says so, as a router's would (RFC 3168).
    Counter<bit<32>, bit<1>>(1, CounterType_t.PACKETS) marked_packets;
    action mark4() {
        hdr.ipv4.tos = INAGG_TOS | 3;
        marked_packets.count(0);
    }
    action mark6() {
        hdr.ipv6.tos = INAGG_TOS | 3;
        marked_packets.count(0);
    }
#endif
    action to_address4() {
        hdr.ipv4.dst = meta.address[31:0];
    }
    action to_address6() {
        hdr.ipv6.dst = meta.address;
    }
    // Each copy of what goes to all ranks gets its rank's addresses.
    table copies {
        key = { hdr.bridge.job: exact; intrinsic.egress_rid: exact @name("rid"); }
        actions = { to_rank; drop; }
        const default_action = drop;
        size = 2048;
    }

    apply {
        if (hdr.bridge.errand == ERRAND_FLOOD) {
            if (intrinsic.egress_port == hdr.bridge.port) {
                drop();
            }
        } else if (hdr.bridge.errand != ERRAND_NONE) {
            turn();
            if (hdr.ipv4.isValid()) {
                turn4();
                if (hdr.bridge.errand & ERRAND_ELEMENTS != 0) {
                    set_lengths4(LENGTH_CHUNK);
                } else {
                    set_lengths4(LENGTH_BARE);
                }
            } else {
                turn6();
                if (hdr.bridge.errand & ERRAND_ELEMENTS != 0) {
                    set_lengths6(LENGTH_CHUNK);
                } else {
                    set_lengths6(LENGTH_BARE);
                }
            }
#ifdef MARKS_QUEUES
            // 64 cells of 80 bytes, which are 16 results, or more: a gateway compares no numbers of 19 bits.
            if (intrinsic.enq_qdepth[18:6] != 0) {
                if (hdr.ipv4.isValid()) {
                    mark4();
                } else {
                    mark6();
                }
            }
#endif
            if (hdr.bridge.errand & ERRAND_MULTICAST != 0) {
                copies.apply();
                if (hdr.ipv4.isValid()) {
                    to_address4();
                } else {
                    to_address6();
                }
            }
        }
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;

#endif
