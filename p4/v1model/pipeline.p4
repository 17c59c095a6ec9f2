// SPDX-License-Identifier: BSD-2-Clause
// The switch around `Admission` and `Aggregation`: ordinary frames, the agent's, the clock, and where goes what was
// decided.  Entries of the tables come from the agent: userspace/inaggd/p4/entries.hpp.

control SwitchIngress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    Admission() admission;
    Aggregation() aggregation;
    Elements() elements;
#ifdef CLOCK
    Clock() clock;
#endif

    action set_switch(bit<9> cpu_port, bit<48> mac, bit<32> own4, bit<128> own6, bit<16> boot, bit<1> has_parent,
                      bit<16> shared_mask, bit<16> share) {
        meta.cpu_port = cpu_port;
        meta.switch_mac = mac;
        meta.own4 = own4;
        meta.own6 = own6;
        meta.boot = boot;
        meta.has_parent = has_parent;
        meta.shared_mask = shared_mask;
        meta.share = share;
    }
    table settings {
        actions = { set_switch; }
        default_action = set_switch(511, 0, 0, 0, 0, 0, 0, 0);
    }

    // Ordinary frames go where their station is, or everywhere.
    action to_station(bit<9> port) {
        standard.egress_spec = port;
    }
    action flood() {
        standard.mcast_grp = FLOOD_GROUP;
    }
    table stations {
        key = { hdr.ethernet.dst: exact; }
        actions = { to_station; flood; }
        const default_action = flood;
        size = 4097; // ranks of all jobs, and the switch
    }

    // To the agent, with the port that it came by.
    action punt() {
        hdr.punt.setValid();
        hdr.punt.dst = hdr.ethernet.dst;
        hdr.punt.src = hdr.ethernet.src;
        hdr.punt.type = TYPE_PUNT;
        hdr.punt.port = (bit<16>)standard.ingress_port;
        standard.egress_spec = meta.cpu_port;
    }

    action drop(bit<8> reason) {
        count(meta.row, STAT_DROPS + (bit<32>)reason, 1);
        mark_to_drop(standard);
    }

    // What every answer of this switch says.
    action sign() {
        hdr.inagg.boot = meta.boot;
        hdr.inagg.fan_in = meta.size;
        hdr.inagg.level = 0;
        hdr.inagg.payload_checksum = 0;
        // else the aggregator, the attempt
        hdr.inagg.switch_id = ALGORITHM == INAGG_SWITCHML || ALGORITHM == INAGG_PANAMA ? 0 : hdr.inagg.switch_id;
    }
    // The headers below inagg's, from this switch; to whom, others say.
    action write_headers() {
        meta.is_sealed_anew = 1;
        hdr.udp.src = INAGG_PORT;
        hdr.udp.length = 72 + (hdr.inagg.elements << 2);
        hdr.udp.checksum = 0;	// RFC 6935
        // of these only one is there
        hdr.ipv4.tos = INAGG_TOS;
        hdr.ipv4.length = 20 + hdr.udp.length;
        hdr.ipv4.id = 0;
        hdr.ipv4.reserved = 0;
        hdr.ipv4.never_fragmented = 1;
        hdr.ipv4.ttl = 64;
        hdr.ipv6.tos = INAGG_TOS;
        hdr.ipv6.flow = hdr.ipv6.flow & 0xffff;
        hdr.ipv6.length = hdr.udp.length;
        hdr.ipv6.ttl = 64;
    }
    action send_to(bit<9> port, bit<48> mac, bit<128> address, bit<16> receive_port) {
        standard.egress_spec = port;
        hdr.ethernet.dst = mac;
        hdr.ipv4.dst = address[31:0];
        hdr.ipv6.dst = address;
        hdr.udp.dst = receive_port;
    }

    apply {
        settings.apply();
        meta.row = INAGG_STATS_NO_JOB;
        meta.reason = INAGG_R_NONE;
        meta.way = way_t.absorb;
        meta.move = move_t.none;
        bool is_agents = standard.ingress_port == meta.cpu_port;
        if (hdr.punt.isValid()) {
            // Only the agent says by which port a frame leaves, and what time it is.
            if (is_agents && hdr.punt.type == TYPE_PUNT) {
                standard.egress_spec = (bit<9>)hdr.punt.port;
                hdr.punt.setInvalid();
                return;
            }
#ifdef CLOCK
            if (is_agents) {
                clock.apply(hdr, meta, standard);
            }
#endif
            if (meta.is_clock == 0) {
                mark_to_drop(standard);
                return;
            }
        } else {
            bool four = hdr.ipv4.isValid() && meta.own4 != 0;
            bool six = hdr.ipv6.isValid() && meta.own6 != 0;
            bool for_us = !is_agents && hdr.udp.isValid() && hdr.udp.dst == INAGG_PORT &&
                          ((four && hdr.ipv4.dst == meta.own4) || (six && hdr.ipv6.dst == meta.own6));
            // Nobody behind a port may send in this switch's name, which workers believe.
            if (hdr.vlan1.isValid() && !is_agents && (hdr.vlan1.type == TYPE_VLAN || hdr.vlan1.type == TYPE_QINQ)) {
                drop(INAGG_R_PARSE);	// nobody needs three tags
                return;
            }
            if (!for_us && !is_agents &&
                ((four && hdr.ipv4.src == meta.own4) || (six && hdr.ipv6.src == meta.own6))) {
                drop(INAGG_R_ADDRESS);
                return;
            }
            if (!for_us) {
                stations.apply();
                return;
            }
        }
        admission.apply(hdr, meta, standard);
        if (meta.is_for_agent == 1) {
            punt();
            return;
        }
        if (meta.reason == INAGG_R_NONE) {
            aggregation.apply(hdr, meta, standard);
        }
        if (meta.reason == INAGG_R_NONE) {
            elements.apply(hdr, meta);
        }
        if (meta.reason == INAGG_R_NONE && meta.way == way_t.up && meta.parent_port == 0) {
            meta.reason = INAGG_R_PARENT;
        }
        if (meta.reason == INAGG_R_NONE && meta.way == way_t.down && meta.place.port == 0) {
            meta.reason = INAGG_R_RANK;
        }
        if (meta.is_clock == 1 && meta.reason != INAGG_R_NONE) {
            slot_flags.write(meta.slot_key, 0);	// of a job that is no more
            mark_to_drop(standard);
            return;
        }
        if (meta.reason != INAGG_R_NONE) {
            drop(meta.reason);
            return;
        }
        if (meta.way == way_t.absorb) {
            mark_to_drop(standard);
            return;
        }
        if (meta.is_answer == 1) {
            sign();
        }
        bit<48> sender_mac = hdr.ethernet.src;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv6.src = hdr.ipv6.dst;
        write_headers();
        if (meta.way == way_t.multicast) {
            standard.mcast_grp = meta.multicast_group;
        } else if (meta.way == way_t.reply) {
            send_to(standard.ingress_port, sender_mac, meta.source, meta.receive_port);
        } else if (meta.way == way_t.down) {
            send_to(meta.place.port, meta.place.mac, meta.place.address, meta.place.receive_port);
        } else {
            hdr.ethernet.src = meta.own_mac;
            send_to(meta.parent_port, meta.parent_mac, meta.parent_address, INAGG_PORT);
        }
    }
}

control SwitchEgress(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
#ifdef ADDRESS_COPY
    AddressCopy() address_copy;
#endif
#ifdef MARKS_QUEUES
    MarkIfQueued() mark_if_queued;
#endif

    action to_rank(bit<48> mac, bit<128> address, bit<16> receive_port, bit<64> subtree) {
        hdr.ethernet.dst = mac;
        hdr.ipv4.dst = address[31:0];
        hdr.ipv6.dst = address;
        hdr.udp.dst = receive_port;
        meta.copy_subtree = subtree;
    }
    // To a switch above; @own_mac: of the port.
    action to_above(bit<48> own_mac, bit<48> mac, bit<128> address) {
        to_rank(mac, address, INAGG_PORT, 0);
        hdr.ethernet.src = own_mac;
    }
    action drop() {
        mark_to_drop(standard);
    }
    // Each copy of what goes to all ranks gets its rank's addresses.
    table copies {
        key = { hdr.inagg.job: exact; standard.egress_rid: exact; }
        actions = { to_rank; to_above; drop; }
        const default_action = drop;
        size = 4096;
    }

    apply {
        if (meta.way == way_t.multicast) {
            copies.apply();
#ifdef ADDRESS_COPY
            address_copy.apply(hdr, meta, standard);
#endif
        } else if (standard.mcast_grp == FLOOD_GROUP && standard.egress_port == standard.ingress_port) {
            mark_to_drop(standard);
        } else if (hdr.ethernet.isValid() && standard.egress_port == meta.cpu_port &&
                   (hdr.ethernet.type == TYPE_VLAN || hdr.ethernet.type == TYPE_QINQ)) {
            // Who takes the tag off there would take what is behind it for this switch's own word.
            mark_to_drop(standard);
        }
#ifdef MARKS_QUEUES
        mark_if_queued.apply(hdr, meta, standard);
#endif
    }
}

V1Switch(SwitchParser(), CheckChecksums(), SwitchIngress(), SwitchEgress(), WriteChecksums(), SwitchDeparser()) main;
