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
#include "findings.p4"
#include "admission.p4"
#include "folded.p4"
#include "slot.p4"
#include "elements.p4"
#include "leave.p4"
#include "egress.p4"

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
    Leave() leave;

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

        leave.apply(hdr, meta, intrinsic, deparser_intrinsic, tm);
        if (meta.path == PATH_BLOCK) {
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

Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;

#endif
