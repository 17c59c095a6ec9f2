// SPDX-License-Identifier: BSD-2-Clause
// Egress: the addresses of answers, and of each copy.
#ifndef INAGG_P4_TNA_EGRESS
#define INAGG_P4_TNA_EGRESS

#ifdef MARKS_QUEUES
#include "mark.p4"
#endif

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
    action answer4(bit<16> udp) {
        turn();
        turn4();
        hdr.ipv4.length = 20 + udp;
        hdr.udp.length = udp;
    }
    action answer6(bit<16> udp) {
        turn();
        turn6();
        hdr.ipv6.length = udp;
        hdr.udp.length = udp;
    }
    // Not before ingress needs the stage no more.
    @stage(2) table turns {
        key = { hdr.bridge.errand: ternary; hdr.ipv4.isValid(): exact; }
        actions = { answer4; answer6; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            (ERRAND_ELEMENTS &&& ERRAND_ELEMENTS, true): answer4(LENGTH_CHUNK);
            (ERRAND_ELEMENTS &&& ERRAND_ELEMENTS, false): answer6(LENGTH_CHUNK);
            (_, true): answer4(LENGTH_BARE);
            (_, false): answer6(LENGTH_BARE);
        }
    }

    action to_rank(bit<48> mac, bit<128> address, bit<16> receive_port) {
        hdr.ethernet.dst = mac;
        meta.address = address;
        hdr.udp.dst = receive_port;
    }
#ifdef MARKS_QUEUES
    MarkIfQueued() mark_if_queued;
#endif
    action to_address4() {
        hdr.ipv4.dst = meta.address[31:0];
    }
    action to_address6() {
        hdr.ipv6.dst = meta.address;
    }
#ifdef CANARY
#define BY_RANK (ERRAND_REPLY | ERRAND_MULTICAST)
#define COPY_RANK meta.rank
    action find_copy() {
        meta.rank = intrinsic.egress_rid;
    }
    action find_target() {
        meta.rank = hdr.bridge.target;
    }
    @stage(2) table ranks {
        key = { hdr.bridge.errand: ternary; }
        actions = { find_copy; find_target; }
        const default_action = find_target;
        size = 2;
        const entries = { (ERRAND_MULTICAST &&& ERRAND_MULTICAST): find_copy(); }
    }
    // Is a copy for one of those that it is for?
    action ask_told(bit<32> bit_) {
        meta.told = hdr.bridge.told & bit_;
    }
    @stage(3) table told {
        key = { intrinsic.egress_rid[4:0]: exact @name("rank"); }
        actions = { ask_told; }
        size = 32;
        const entries = { EACH_RANK(ask_told) }
    }
#else
#define BY_RANK ERRAND_MULTICAST
#define COPY_RANK intrinsic.egress_rid
#endif
    // Each copy of what goes to all ranks gets its rank's addresses.
    table copies {
        key = { hdr.bridge.job: exact; COPY_RANK: exact @name("rank"); }
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
            turns.apply();
#ifdef MARKS_QUEUES
            mark_if_queued.apply(hdr, intrinsic);
#endif
#ifdef CANARY
            ranks.apply();
            if (hdr.bridge.errand & ERRAND_MULTICAST != 0) {
                told.apply();
                if (meta.told == 0) {
                    drop();
                }
            }
#endif
            if (hdr.bridge.errand & BY_RANK != 0) {
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

#endif
