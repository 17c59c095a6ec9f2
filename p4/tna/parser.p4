// SPDX-License-Identifier: BSD-2-Clause
// Frames to headers and back, and their checksums.
#ifndef INAGG_P4_TNA_PARSER
#define INAGG_P4_TNA_PARSER

// Behind UDP's 8 bytes and inagg's 64.
#define LENGTH_BARE 72
#define LENGTH_JOIN (72 + 40)
#define LENGTH_CHUNK (72 + 128)
#define LENGTH_HALVES (72 + 64)

parser IngressParser(packet_in packet, out frame_t hdr, out facts_t meta, out ingress_intrinsic_metadata_t intrinsic) {
    Checksum() inagg_checksum;

    state start {
        packet.extract(intrinsic);
#ifndef AGGREGATORS
        packet.advance(PORT_METADATA_SIZE);
#endif
        meta.form = FORM_ORDINARY;
        meta.is_own = 0;
        meta.is_forged = 0;
        meta.is_corrupt = false;
        meta.is_answer = false;
        meta.is_whole = 0;
        meta.job_is_known = 0;
        meta.member_is_known = 0;
        meta.agent_off = 0;
        meta.cpu_port = 0;
        meta.boot = 0;
        meta.generation_off = 0;
        meta.generation = 0;
        meta.size = 0;
        meta.slots_left = 0;
        meta.key = 0;
        meta.everyone = 0;
        meta.port_off = 0;
        meta.rank = 0;
        meta.others = 0;
        meta.index = 0;
#ifdef MARKS_QUEUES
        meta.is_marked = 0;
#endif
        meta.flags = 0;
        meta.row = (bit<8>)INAGG_STATS_NO_JOB;
        meta.source_high = 0;
        meta.source_low = 0;
        meta.wish = WISH_NONE;
        meta.order = 0;
        meta.fit = 0;
        meta.tag = 0;
        meta.slot_tag = 0;
        meta.next_scale = 0;
        meta.result_flags = 0;
        meta.path = PATH_ORDINARY;
        meta.twice = 0;
        meta.lack = 0;
        meta.missing = 0;
        meta.deed = DEED_NONE;
        meta.reason = INAGG_R_NONE;
        hdr.bridge.setValid();
        hdr.bridge.errand = ERRAND_NONE;
        hdr.bridge.port = intrinsic.ingress_port;
#ifdef CANARY
        hdr.bridge.target = 0;
        hdr.bridge.told = 0;
        meta.position_is_known = 0;
        meta.id = 0;
        meta.descriptor = 0;
        meta.leader = 0;
        meta.leader_off = 0;
        meta.speaker = 0xffff;
        meta.position = 0;
        meta.said_position = 0;
        meta.turn = 0;
        meta.slot_turn = 0;
        meta.slot_id = 0;
        meta.is_tick = 0;
        meta.patience = 0;
        meta.age = 0;
        meta.attempt = 0;
        meta.open = 0;
        meta.left = 0;
        meta.children = 0;
        meta.byte0 = 0;
        meta.byte1 = 0;
        meta.byte2 = 0;
        meta.byte3 = 0;
#endif
#if defined(AGGREGATORS)
        transition start_aggregators;
    }
    state start_aggregators {
        meta.is_again = 0;
        meta.is_alone = 0;
        meta.is_above = 0;
        meta.lacking = 0;
        meta.here = 0;
        meta.base = 0;
        meta.who = 0;
        meta.claim = 0;
        meta.expected = 0;
        meta.mark = 0;
        meta.came = 0;
        meta.gone = 0;
        meta.sum = 0;
        meta.low_ranks = 0;
        meta.high_ranks = 0;
        meta.sum_flags = 0;
        meta.way_up = PORT_NONE;
        meta.way_down = PORT_NONE;
        transition select(intrinsic.resubmit_flag) {
            1: parse_again;
            default: parse_first;
        }
    }
    state parse_again {
        again_h again;
        packet.extract(again);
        meta.is_again = 1;
        meta.expected = again.came;
        transition parse_frame;
    }
    state parse_first {
        packet.advance(PORT_METADATA_SIZE);
        transition parse_frame;
    }
    state parse_frame {
#elif defined(CLOCK)
        transition select(intrinsic.ingress_port) {
            CLOCK_PORT: parse_clock;
            default: begin;
        }
    }
    CLOCK_STATES(meta.descriptor)
    state begin {
#endif
        transition select(packet.lookahead<ethernet_h>().type) {
            TYPE_PUNT: parse_punt;
            default: parse_ethernet;
        }
    }
    state parse_punt {
        packet.extract(hdr.punt);
        transition accept;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: parse_ipv4;
            TYPE_IPV6: parse_ipv6;
            default: accept;
        }
    }
#ifdef MARKS_QUEUES
#define NEXT4 find_mark4
#define NEXT6 find_mark6
#else
#define NEXT4 parse_udp
#define NEXT6 parse_udp
#endif
    // A datagram in one piece without options; anything else is no business of ours.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        meta.source_low = hdr.ipv4.src;
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (4, 5, 0, PROTOCOL_UDP): NEXT4;
            default: accept;
        }
    }
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        meta.source_high = hdr.ipv6.src[127:32];
        meta.source_low = hdr.ipv6.src[31:0];
        transition select(hdr.ipv6.version, hdr.ipv6.protocol) {
            (6, PROTOCOL_UDP): NEXT6;
            default: accept;
        }
    }
#ifdef MARKS_QUEUES
    state find_mark4 {
        transition select(hdr.ipv4.tos) {
            3 &&& 3: marked;
            default: parse_udp;
        }
    }
    state find_mark6 {
        transition select(hdr.ipv6.tos) {
            3 &&& 3: marked;
            default: parse_udp;
        }
    }
    state marked {
        meta.is_marked = 1;
        transition parse_udp;
    }
#endif
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst, hdr.udp.length) {
            (INAGG_PORT, LENGTH_BARE): judge_bare;
            (INAGG_PORT, LENGTH_CHUNK): judge_chunk;
            (INAGG_PORT, LENGTH_JOIN): judge_join;
#ifdef AGGREGATORS
            (INAGG_PORT, LENGTH_HALVES): judge_halves;
#endif
            (INAGG_PORT, _): odd_datagram;
            default: accept;
        }
    }
    // Perhaps too short for inagg's header.
    state odd_datagram {
        meta.form = FORM_LENGTH;
        transition accept;
    }

#if defined(AGGREGATORS)
    // The first two bytes of inagg's header: version, type; data type, operator. What cannot be summed here may be the server's.
#define ONLY_BY_SERVER(type, state) \
            type##11: state; \
            type##12: state; \
            type##50: state;
#define KNOWN_BY_SERVER(type, state) \
            type##00: state; \
            type##10: state; \
            type##20: state; \
            ONLY_BY_SERVER(type, state)
    state judge_bare {
        transition select(packet.lookahead<bit<16>>()) {
            0x1100: empty;
            0x1110: servers_empty;
            0x1120: servers_empty;
            ONLY_BY_SERVER(0x11, servers_empty)
            KNOWN_BY_SERVER(0x12, request)
            0x1300 &&& 0xff00: restore_empty;
            KNOWN_BY_SERVER(0x16, result_empty)
            KNOWN_BY_SERVER(0x17, wait)
            KNOWN_BY_SERVER(0x1a, partial)
            default: judge_type;
        }
    }
    state judge_chunk {
        transition select(packet.lookahead<bit<16>>()) {
            0x1110: full;
            0x1120: full;
            0x1100: elements;
            ONLY_BY_SERVER(0x11, servers)
            0x1200 &&& 0xff00: odd_length;
            0x1300 &&& 0xff00: restore;
            0x1600: elements;
            0x1610: result;
            0x1620: result;
            ONLY_BY_SERVER(0x16, result)
            0x1700 &&& 0xff00: odd_length;
            KNOWN_BY_SERVER(0x1a, partial)
            default: judge_type;
        }
    }
    state judge_halves {
        transition select(packet.lookahead<bit<16>>()) {
            0x1130: dtype;
            0x1140: dtype;
            default: odd_length;
        }
    }
    state judge_join {
        transition select(packet.lookahead<bit<8>>()) {
            0x14: join;
            0x15: join;
            0x18: join;
            0x19: join;
            0x1c &&& 0xfc: type;
            0x1b: type;
            0x10 &&& 0xf0: odd_length;
            default: judge_type;
        }
    }
    state judge_type {
        transition select(packet.lookahead<bit<8>>()) {
            0x11: dtype;
            0x12: dtype;
            0x13: dtype;
            0x16: dtype;
            0x17: dtype;
            0x1a: dtype;
            0x14: odd_length;
            0x15: odd_length;
            0x18: odd_length;
            0x19: odd_length;
            0x10 &&& 0xf0: type;
            default: version;
        }
    }
#elif defined(CANARY)
    // Likewise.  What cannot be summed, since it has no room for a sum, or is none, is the leader's.  Of what only passes the data type does not
    // matter.
    state judge_bare {
        transition select(packet.lookahead<bit<16>>()) {
            0x1100: empty;
            0x1110 &&& 0xfffc: unfit_empty;
            0x1120: unfit_empty;
            0x1200 &&& 0xff00: request;
            0x1600 &&& 0xff00: result_empty;
            0x1700 &&& 0xff00: wait;
            0x1c00 &&& 0xff00: failed;
            default: judge_type;
        }
    }
    state judge_chunk {
        transition select(packet.lookahead<bit<16>>()) {
            0x1100: elements;
            0x1110: full;
            0x1110 &&& 0xfffc: unfit;
            0x1120: full;
            0x1600 &&& 0xff00: result;
            default: judge_type;
        }
    }
    state judge_join {
        transition select(packet.lookahead<bit<8>>()) {
            0x14 &&& 0xfe: join;
            0x11: odd_length;
            default: judge_type;
        }
    }
    state judge_type {
        transition select(packet.lookahead<bit<8>>()) {
            0x11: dtype;
            0x12: odd_length;
            0x13: restore;
            0x14 &&& 0xfc: odd_length;
            0x1a: partial;
            0x1c: odd_length;
            0x10 &&& 0xf0: type;
            default: version;
        }
    }
#else
    state judge_bare {
        transition select(packet.lookahead<bit<16>>()) {
            0x1100: empty;
            0x1110: empty;
            0x1120: elements;	// without them a fixed-point sum lacks its bias
            0x1200: request;
            0x1210: request;
            0x1220: request;
            0x1300: restore_empty;
            0x1310: elements;
            0x1320: elements;
            default: judge_type;
        }
    }
    state judge_chunk {
        transition select(packet.lookahead<bit<16>>()) {
            0x1110: full;
            0x1120: full;
            0x1310: restore;
            0x1320: restore;
            0x1100: elements;
            0x1300: elements;
            0x1200 &&& 0xff00: odd_length;
            default: judge_type;
        }
    }
    state judge_join {
        transition select(packet.lookahead<bit<8>>()) {
            0x14: join;
            0x15: join;
            0x11: odd_length;
            0x12: odd_length;
            0x13: odd_length;
            default: judge_type;
        }
    }
    state judge_type {
        transition select(packet.lookahead<bit<8>>()) {
            0x11: dtype;
            0x12: dtype;
            0x13: dtype;
            0x14: odd_length;
            0x15: odd_length;
            0x1a: partial;
            0x10 &&& 0xf0: type;
            default: version;
        }
    }
#endif
#define FORM_STATE(name, value) \
    state name { \
        meta.form = value; \
        transition parse_inagg; \
    }
    FORM_STATE(full, FORM_FULL)
    FORM_STATE(empty, FORM_EMPTY)
    FORM_STATE(restore, FORM_RESTORE)
#ifdef CANARY
    FORM_STATE(unfit, FORM_UNFIT)
    FORM_STATE(unfit_empty, FORM_UNFIT_EMPTY)
    FORM_STATE(result, FORM_RESULT)
    FORM_STATE(result_empty, FORM_RESULT_EMPTY)
    FORM_STATE(wait, FORM_WAIT)
    FORM_STATE(failed, FORM_FAILED)
#else
    FORM_STATE(restore_empty, FORM_RESTORE_EMPTY)
#endif
    FORM_STATE(request, FORM_REQUEST)
    FORM_STATE(partial, FORM_PARTIAL)
#ifdef AGGREGATORS
    FORM_STATE(servers, FORM_SERVERS)
    FORM_STATE(servers_empty, FORM_SERVERS_EMPTY)
#define ABOVE_STATE(name, value) \
    state name { \
        meta.form = value; \
        meta.is_above = 1; \
        transition parse_inagg; \
    }
    ABOVE_STATE(result, FORM_RESULT)
    ABOVE_STATE(result_empty, FORM_RESULT_EMPTY)
    ABOVE_STATE(wait, FORM_WAIT)
#endif
    FORM_STATE(join, FORM_JOIN)
    FORM_STATE(odd_length, FORM_LENGTH)
    FORM_STATE(elements, FORM_ELEMENTS)
    FORM_STATE(dtype, FORM_DTYPE)
    FORM_STATE(type, FORM_TYPE)
    FORM_STATE(version, FORM_VERSION)

    state parse_inagg {
        packet.extract(hdr.inagg);
        inagg_checksum.add(hdr.inagg);
        meta.is_corrupt = inagg_checksum.verify();	// true: it is wrong
        transition select(hdr.udp.length) {
            LENGTH_CHUNK: parse_chunk;
            default: accept;
        }
    }
    state parse_chunk {
        packet.extract(hdr.chunk0);
#ifdef CANARY
        hdr.bridge.errand = ERRAND_ELEMENTS;
#endif
        transition accept;
    }
}

control IngressDeparser(packet_out packet, inout frame_t hdr, in facts_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t intrinsic) {
    Checksum() inagg_checksum;
#ifdef AGGREGATORS
    Resubmit(RESUBMIT_AGAIN) again;
#endif

    apply {
#ifdef AGGREGATORS
        if (intrinsic.resubmit_type == RESUBMIT_AGAIN) {
            again.emit<again_h>({ meta.twice, 0 });
        }
#endif
        // What goes to ranks is this switch's; what only passes keeps its checksum, be it right or wrong.
        if (meta.is_answer) {
            hdr.inagg.checksum = inagg_checksum.update({
                hdr.inagg.version, hdr.inagg.type, hdr.inagg.dtype, hdr.inagg.op, hdr.inagg.level, hdr.inagg.flags,
                hdr.inagg.job, hdr.inagg.generation, hdr.inagg.block, hdr.inagg.slot, hdr.inagg.tree, hdr.inagg.port,
                hdr.inagg.source, hdr.inagg.count, hdr.inagg.fan_in, hdr.inagg.contributors, hdr.inagg.boot,
                hdr.inagg.window_cap, hdr.inagg.switch_id, hdr.inagg.scale, hdr.inagg.next_scale, hdr.inagg.elements,
                hdr.inagg.payload_checksum, hdr.inagg.check});
        }
        packet.emit(hdr);
    }
}

parser EgressParser(packet_in packet, out frame_t hdr, out egress_facts_t meta, out egress_intrinsic_metadata_t intrinsic) {
    state start {
        packet.extract(intrinsic);
        packet.extract(hdr.bridge);
        meta.address = 0;
#ifdef AGGREGATORS
        meta.copy = hdr.bridge.target;
#endif
#ifdef CANARY
        meta.rank = 0;
        meta.told = 0;
#endif
        transition select(hdr.bridge.errand) {
            ERRAND_NONE: accept;
            ERRAND_FLOOD: accept;
            default: parse_ethernet;
        }
    }
    // An answer, up to UDP; it has one of the two.
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: parse_ipv4;
            default: parse_ipv6;
        }
    }
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        packet.extract(hdr.udp);
        transition accept;
    }
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        packet.extract(hdr.udp);
        transition accept;
    }
}

control EgressDeparser(packet_out packet, inout frame_t hdr, in egress_facts_t meta,
                       in egress_intrinsic_metadata_for_deparser_t intrinsic) {
    Checksum() ipv4_checksum;

    apply {
        if (hdr.ipv4.isValid()) {
            hdr.ipv4.checksum = ipv4_checksum.update({
                hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.reserved,
                hdr.ipv4.never_fragmented, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src,
                hdr.ipv4.dst});
        }
        packet.emit(hdr.ethernet);
        packet.emit(hdr.ipv4);
        packet.emit(hdr.ipv6);
        packet.emit(hdr.udp);
    }
}

#endif
