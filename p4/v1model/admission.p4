// SPDX-License-Identifier: BSD-2-Clause
// Which packets may touch a slot: the checks of inagg_switch in bpf/switch.bpf.c, bpf/parent.h and inagg/core/job.h, in
// their order.
#ifndef INAGG_P4_ADMISSION
#define INAGG_P4_ADMISSION

// Entries come from the agent: userspace/inaggd/p4/entries.hpp.
control Admission(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    action set_job(bit<16> index, bit<16> generation, bit<16> size, bit<16> elements, bit<32> first_slot, bit<32> slots,
                   bit<32> control_slots, bit<1> in_tree, bit<64> here, bit<64> everyone) {
        meta.row = (bit<32>)index;
        meta.multicast_group = index + 1;
        meta.generation = generation;
        meta.size = size;
        meta.job_elements = elements;
        meta.first_slot = first_slot;
        meta.slots = slots;
        meta.control_slots = control_slots;
        meta.in_tree = in_tree;
        meta.here = here;
        meta.everyone = everyone;
    }
    table jobs {
        key = { hdr.inagg.job: exact; }
        actions = { set_job; NoAction; }
        const default_action = NoAction;
        size = 64;
    }

    action set_member(bit<9> port, bit<48> mac, bit<128> address, bit<16> receive_port, bit<64> subtree) {
        meta.member_port = port;
        meta.member_mac = mac;
        meta.member_address = address;
        meta.receive_port = receive_port;
        meta.subtree = subtree;
    }
    table members {
        key = { hdr.inagg.job: exact; hdr.inagg.source: exact; }
        actions = { set_member; NoAction; }
        const default_action = NoAction;
        size = 4096;
    }

    action set_parent(bit<9> port, bit<48> own_mac, bit<48> mac, bit<128> address) {
        meta.parent_port = port;
        meta.own_mac = own_mac;
        meta.parent_mac = mac;
        meta.parent_address = address;
    }
    table parents {
        key = { hdr.inagg.job: exact; }
        actions = { set_parent; NoAction; }
        const default_action = NoAction;
        size = 64;
    }

    action refuse(bit<8> reason) {
        meta.reason = reason;
    }

    // Sets meta.reason and whose counter it is.
    apply {
        bit<16> ip_length = hdr.ipv6.length;
        bit<32> headers = 54 + 72;
        bit<128> source = hdr.ipv6.src;
        if (hdr.ipv4.isValid()) {
            ip_length = hdr.ipv4.length - 20;
            headers = 34 + 72;
            source = (bit<128>)hdr.ipv4.src;
        }
        bit<32> payload = (bit<32>)hdr.udp.length - 72;
        if (!hdr.inagg.isValid() || standard.parser_error != error.NoError || ip_length != hdr.udp.length ||
            hdr.udp.length < 72 || standard.packet_length != headers + payload) {
            refuse(INAGG_R_LENGTH);
            return;
        }
        if (hdr.inagg.version != INAGG_WIRE_VERSION) {
            refuse(INAGG_R_VERSION);
            return;
        }
        if (standard.checksum_error == 1) {
            refuse(INAGG_R_HEADER_CHECKSUM);
            return;
        }
        // These the agent answers, or has asked for; struct inagg_join and inagg_config are as long.
        if (hdr.inagg.type == INAGG_JOIN || hdr.inagg.type == INAGG_LEAVE ||
            (meta.has_parent == 1 && (hdr.inagg.type == INAGG_CONFIG || hdr.inagg.type == INAGG_REFUSED))) {
            if (payload != 40) {
                refuse(INAGG_R_LENGTH);
            } else {
                meta.is_for_agent = 1;
            }
            return;
        }
        if (meta.has_parent == 1 && (hdr.inagg.type == INAGG_RESULT || hdr.inagg.type == INAGG_WAIT)) {
            meta.from_above = 1;
        } else if (hdr.inagg.type != INAGG_CONTRIBUTION && hdr.inagg.type != INAGG_REQUEST &&
                   hdr.inagg.type != INAGG_RESTORE && hdr.inagg.type != INAGG_PARTIAL) {
            refuse(INAGG_R_TYPE);
            return;
        }
        if (!jobs.apply().hit) {
            refuse(INAGG_R_JOB);
            return;
        }
        count(meta.row, STAT_PACKETS, 1);
        parents.apply();
        if (meta.from_above == 1) {
            if (meta.parent_port != standard.ingress_port) {
                refuse(INAGG_R_PORT);
                return;
            }
            if (meta.parent_address != source) {
                refuse(INAGG_R_ADDRESS);
                return;
            }
        }
        // What asks or tells who is in brings no elements, whatever it says of them.
        if (hdr.inagg.type == INAGG_REQUEST || hdr.inagg.type == INAGG_WAIT) {
            hdr.inagg.elements = 0;
        }
        bool is_known = hdr.inagg.op == INAGG_WIRE_SUM &&
                        (hdr.inagg.dtype == INAGG_WIRE_FIXED32 || hdr.inagg.dtype == INAGG_WIRE_NONE ||
                         (ALGORITHM == INAGG_ATP && hdr.inagg.dtype == INAGG_WIRE_FLOAT32));
        if (hdr.inagg.dtype == INAGG_WIRE_INT32 && hdr.inagg.op <= INAGG_WIRE_MAX) {
            is_known = true;
        }
        if (hdr.inagg.generation != meta.generation) {
            refuse(INAGG_R_GENERATION);
        } else if (hdr.inagg.source >= meta.size) {
            refuse(INAGG_R_RANK);
        } else if (hdr.inagg.slot >= meta.slots + meta.control_slots) {
            refuse(INAGG_R_SLOT);
        } else if (!is_known) {
            refuse(INAGG_R_DTYPE);
        } else if (hdr.inagg.elements[4:0] != 0 || hdr.inagg.elements > meta.job_elements ||
                   (hdr.inagg.dtype == INAGG_WIRE_NONE && hdr.inagg.elements != 0)) {
            refuse(INAGG_R_ELEMENTS);
        } else if (payload != (bit<32>)hdr.inagg.elements << 2) {
            refuse(INAGG_R_LENGTH);
        } else if (!members.apply().hit && meta.from_above == 0) {
            refuse(INAGG_R_RANK);
        }
        if (meta.reason == INAGG_R_NONE && meta.from_above == 0) {
            if (meta.member_port != standard.ingress_port) {
                refuse(INAGG_R_PORT);
            } else if (meta.member_address != source) {
                refuse(INAGG_R_ADDRESS);
            } else if (hdr.inagg.type == INAGG_PARTIAL && meta.in_tree == 0) {
                refuse(INAGG_R_TYPE);
            }
        }
        meta.slot_key = (meta.first_slot + hdr.inagg.slot) << 1 | (bit<32>)(hdr.inagg.flags & INAGG_F_VERSION);
        meta.ranks = 64w1 << (bit<8>)hdr.inagg.source;
        if (hdr.inagg.type == INAGG_PARTIAL) {
            meta.ranks = hdr.inagg.contributors;
            if (hdr.inagg.contributors & ~meta.subtree != 0) {
                meta.ranks = 0;
            }
        }
    }
}

#endif
