// SPDX-License-Identifier: BSD-2-Clause
// Packets of the clock: each looks at one of the switch's blocks, and becomes what there is to say about it.  On Tofino the
// packet generator makes them, here they come from the agent.
#ifndef INAGG_P4_CLOCK
#define INAGG_P4_CLOCK

// The lowest of some ranks.
action lowest_rank(in bit<64> ranks, out bit<16> rank) {
    count_ranks((ranks & (~ranks + 1)) - 1, rank);
}

// A packet of the block's job, whose number stands for it until FindPosition.
action become_tick(inout headers_t hdr, inout metadata_t meta, in slot_t slot, in bit<16> job, in bit<1> stream,
                   in bit<16> epoch) {
    meta.is_clock = 1;
    meta.stream = stream;
    hdr.inagg.setValid();
    hdr.inagg = { INAGG_WIRE_VERSION, INAGG_TICK, slot.dtype_op[7:4], slot.dtype_op[3:0], 0, INAGG_F_RESEND, job,
                  slot.generation, slot.block, 0, 0, 0, 0, 0, 0, 0, 0, 0, epoch, 0, 0, 0, 0, 0, 0 };
}

// inagg_position_of(), of a block of the packet's stream
@noWarn("unused") action position_of(in metadata_t meta, in bit<32> block, out bit<32> position) {
    position = meta.stream == 1 ? meta.slots + (block & (meta.control_slots - 1)) : block & (meta.slots - 1);
}

// The packet's stream; of a tick, its slot and pool version.
control FindPosition(inout headers_t hdr, inout metadata_t meta) {
    apply {
        if (meta.is_clock == 0) {
            meta.stream = hdr.inagg.slot >= meta.slots ? 1w1 : 1w0;
        } else {
            bit<32> window = meta.stream == 1 ? meta.control_slots : meta.slots;
            position_of(meta, hdr.inagg.block, hdr.inagg.slot);
            if (hdr.inagg.block & window != 0) {
                hdr.inagg.flags = hdr.inagg.flags | INAGG_F_VERSION;
            }
        }
    }
}

// The headers below inagg's, as of a packet to this switch.
control DressClock(inout headers_t hdr, in metadata_t meta, in bool is_six) {
    apply {
        hdr.punt.setInvalid();
        hdr.ethernet.setValid();
        hdr.ethernet = { meta.switch_mac, meta.switch_mac, TYPE_IPV4 };
        hdr.udp.setValid();
        hdr.udp = { INAGG_PORT, INAGG_PORT, 0, 0 };
        if (is_six) {
            hdr.ethernet.type = TYPE_IPV6;
            hdr.ipv6.setValid();
            hdr.ipv6 = { 6, INAGG_TOS, 0, 0, PROTOCOL_UDP, 64, 0, meta.own6 };
        } else {
            hdr.ipv4.setValid();
            hdr.ipv4 = { 4, 5, INAGG_TOS, 0, 0, 0, 1, 0, 64, PROTOCOL_UDP, 0, 0, meta.own4 };
        }
    }
}

#endif
