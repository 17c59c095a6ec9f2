// SPDX-License-Identifier: BSD-2-Clause
// Frames to headers and back, and their checksums.
#ifndef INAGG_P4_PARSER
#define INAGG_P4_PARSER

parser SwitchParser(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    state start {
        transition select(packet.lookahead<ethernet_h>().type) {
            TYPE_PUNT: parse_punt;
            TYPE_CLOCK: parse_clock;
            default: parse_ethernet;
        }
    }
    state parse_punt {
        packet.extract(hdr.punt);
        transition accept;
    }
    // As short as Ethernet allows; what it becomes begins anew.
    state parse_clock {
        packet.extract(hdr.punt);
        packet.advance((60 - 16) * 8);
        transition accept;
    }
    state parse_ethernet {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            TYPE_IPV4: parse_ipv4;
            TYPE_IPV6: parse_ipv6;
            TYPE_VLAN: parse_vlan0;
            TYPE_QINQ: parse_vlan0;
            default: accept;
        }
    }
    // Nothing behind a tag is for this switch, but receivers take those of VLAN 0 off.
    state parse_vlan0 {
        packet.extract(hdr.vlan0);
        transition select(hdr.vlan0.type) {
            TYPE_IPV4: parse_tagged_ipv4;
            TYPE_IPV6: parse_tagged_ipv6;
            TYPE_VLAN: parse_vlan1;
            TYPE_QINQ: parse_vlan1;
            default: accept;
        }
    }
    state parse_vlan1 {
        packet.extract(hdr.vlan1);
        transition select(hdr.vlan1.type) {
            TYPE_IPV4: parse_tagged_ipv4;
            TYPE_IPV6: parse_tagged_ipv6;
            default: accept;
        }
    }
    state parse_tagged_ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
    state parse_tagged_ipv6 {
        packet.extract(hdr.ipv6);
        transition accept;
    }
    // A datagram in one piece without options; anything else is no business of ours.
    state parse_ipv4 {
        packet.extract(hdr.ipv4);
        transition select(hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.fragment, hdr.ipv4.protocol) {
            (4, 5, 0, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }
    state parse_ipv6 {
        packet.extract(hdr.ipv6);
        transition select(hdr.ipv6.version, hdr.ipv6.protocol) {
            (6, PROTOCOL_UDP): parse_udp;
            default: accept;
        }
    }
    state parse_udp {
        packet.extract(hdr.udp);
        transition select(hdr.udp.dst) {
            INAGG_PORT: parse_inagg;
            default: accept;
        }
    }
    // Other lengths than these are refused, and nobody looks at what they hold.
    state parse_inagg {
        packet.extract(hdr.inagg);
        transition select(hdr.inagg.type, hdr.udp.length) {
            (INAGG_JOIN, _): accept;
            (INAGG_LEAVE, _): accept;
            (_, 8 + 64 + 128): parse_chunk0;
            (_, 8 + 64 + 256): parse_chunks;
            default: accept;
        }
    }
    state parse_chunk0 {
        packet.extract(hdr.chunk0);
        transition accept;
    }
    state parse_chunks {
        packet.extract(hdr.chunk0);
        packet.extract(hdr.chunk1);
        transition accept;
    }
}

#define INAGG_FIELDS \
    hdr.inagg.version, hdr.inagg.type, hdr.inagg.dtype, hdr.inagg.op, hdr.inagg.level, hdr.inagg.flags, \
    hdr.inagg.job, hdr.inagg.generation, hdr.inagg.block, hdr.inagg.slot, hdr.inagg.tree, hdr.inagg.port, \
    hdr.inagg.source, hdr.inagg.count, hdr.inagg.fan_in, hdr.inagg.contributors, hdr.inagg.boot, \
    hdr.inagg.window_cap, hdr.inagg.switch_id, hdr.inagg.scale, hdr.inagg.next_scale, hdr.inagg.elements, \
    hdr.inagg.payload_checksum, hdr.inagg.check

control CheckChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        verify_checksum(hdr.inagg.isValid(), { INAGG_FIELDS }, hdr.inagg.checksum, HashAlgorithm.csum16);
    }
}

control WriteChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(meta.is_sealed_anew == 1, { INAGG_FIELDS }, hdr.inagg.checksum, HashAlgorithm.csum16);
        update_checksum(meta.is_sealed_anew == 1 && hdr.ipv4.isValid(),
                        { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.length, hdr.ipv4.id, hdr.ipv4.reserved,
                          hdr.ipv4.never_fragmented, hdr.ipv4.fragment, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src,
                          hdr.ipv4.dst },
                        hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

control SwitchDeparser(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}

#endif
