// SPDX-License-Identifier: BSD-2-Clause
// What is on the wire.  inagg_h has the fields of struct inagg_hdr (include/inagg/wire.h), in the same places:
// tests/p4/constants compares their offsets.
#ifndef INAGG_P4_HEADERS
#define INAGG_P4_HEADERS

const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_IPV6 = 0x86dd;
const bit<16> TYPE_PUNT = 0x88b5;	// IEEE 802 local experimental
@noWarn("unused") const bit<16> TYPE_VLAN = 0x8100;
@noWarn("unused") const bit<16> TYPE_QINQ = 0x88a8;
const bit<8> PROTOCOL_UDP = 17;

// The clock: instead of a port it says which slot is to be looked at, and nothing is behind it.
@noWarn("unused") const bit<16> TYPE_CLOCK = 0x88b6;

// Between the switch and its agent: the port that the frame behind it came by, or is to leave by.
header punt_h {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
    bit<16> port;
}

header ethernet_h {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header vlan_h {
    bit<16> tag;
    bit<16> type;
}

header ipv4_h {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> length;
    bit<16> id;
    bit<1>  reserved;
    bit<1>  never_fragmented;
    bit<14> fragment;	// more of them follow, or it is not the first
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

header ipv6_h {
    bit<4>   version;
    bit<8>   tos;
    bit<20>  flow;
    bit<16>  length;
    bit<8>   protocol;
    bit<8>   ttl;
    bit<128> src;
    bit<128> dst;
}

header udp_h {
    bit<16> src;
    bit<16> dst;
    bit<16> length;
    bit<16> checksum;
}

header inagg_h {
    bit<4>   version;
    bit<4>   type;
    bit<4>   dtype;
    bit<4>   op;
    bit<4>   level;
    bit<12>  flags;
    bit<16>  job;
    bit<16>  generation;
    bit<32>  block;
    bit<32>  slot;
    bit<8>   tree;
    bit<8>   port;
    bit<16>  source;
    bit<16>  count;
    bit<16>  fan_in;
    bit<64>  contributors;
    bit<16>  boot;
    bit<16>  window_cap;
    bit<16>  switch_id;
    bit<8>   scale;
    bit<8>   next_scale;
    bit<16>  elements;
    bit<16>  checksum;
    bit<32>  payload_checksum;
    bit<128> check;
}

// INAGG_CHUNK elements
header chunk_h {
    bit<32> e0;
    bit<32> e1;
    bit<32> e2;
    bit<32> e3;
    bit<32> e4;
    bit<32> e5;
    bit<32> e6;
    bit<32> e7;
    bit<32> e8;
    bit<32> e9;
    bit<32> e10;
    bit<32> e11;
    bit<32> e12;
    bit<32> e13;
    bit<32> e14;
    bit<32> e15;
    bit<32> e16;
    bit<32> e17;
    bit<32> e18;
    bit<32> e19;
    bit<32> e20;
    bit<32> e21;
    bit<32> e22;
    bit<32> e23;
    bit<32> e24;
    bit<32> e25;
    bit<32> e26;
    bit<32> e27;
    bit<32> e28;
    bit<32> e29;
    bit<32> e30;
    bit<32> e31;
}

struct headers_t {
    punt_h     punt;
    ethernet_h ethernet;
    vlan_h     vlan0;
    vlan_h     vlan1;
    ipv4_h     ipv4;
    ipv6_h     ipv6;
    udp_h      udp;
    inagg_h    inagg;
    chunk_h    chunk0;
    chunk_h    chunk1;
}

#endif
