// SPDX-License-Identifier: BSD-2-Clause
// Which packets may touch a slot: the checks of inagg_switch in bpf/switch.bpf.c, bpf/parent.h and inagg/core/job.h, in
// their order.  Entries of the tables come from the agent: userspace/inaggd/p4/entries.hpp.
#ifndef INAGG_P4_ADMISSION
#define INAGG_P4_ADMISSION

// A whole and intact packet of a job that is known, or one for the agent.
control FindJob(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
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

    action refuse(bit<8> reason) {
        meta.reason = reason;
    }

    apply {
        bit<16> ip_length = 0;
        bit<32> headers = 0;
        meta.source = 0;	// of a clock packet
        if (hdr.ipv4.isValid()) {
            ip_length = hdr.ipv4.length - 20;
            headers = 34 + 72;
            meta.source = (bit<128>)hdr.ipv4.src;
        } else if (hdr.ipv6.isValid()) {
            ip_length = hdr.ipv6.length;
            headers = 54 + 72;
            meta.source = hdr.ipv6.src;
        }
        bit<4> type = hdr.inagg.type;
        if (meta.is_clock == 0) {
            if (!hdr.inagg.isValid() || standard.parser_error != error.NoError || ip_length != hdr.udp.length ||
                hdr.udp.length < 72 || standard.packet_length != headers + (bit<32>)hdr.udp.length - 72) {
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
            if (type == INAGG_JOIN || type == INAGG_LEAVE ||
                (meta.has_parent == 1 && (type == INAGG_CONFIG || type == INAGG_REFUSED))) {
                if (hdr.udp.length != 72 + 40) {
                    refuse(INAGG_R_LENGTH);
                } else {
                    meta.is_for_agent = 1;
                }
                return;
            }
            bool from_below = type == INAGG_CONTRIBUTION || type == INAGG_REQUEST || type == INAGG_RESTORE ||
                              type == INAGG_PARTIAL;
            bool from_above = type == INAGG_RESULT || type == INAGG_WAIT;
            if (ALGORITHM == INAGG_CANARY) {
                from_below = from_below || from_above || type == INAGG_BLOCK_FAILED;
            }
            if (!from_below && !(from_above && meta.has_parent == 1)) {
                refuse(INAGG_R_TYPE);
                return;
            }
        }
        if (!jobs.apply().hit) {
            refuse(INAGG_R_JOB);
        }
    }
}

// inagg_job_admits()
control CheckBlock(inout headers_t hdr, inout metadata_t meta) {
    action refuse(bit<8> reason) {
        meta.reason = reason;
    }

    apply {
        // What asks or tells who is in brings no elements, whatever it says of them.
        if (hdr.inagg.type == INAGG_REQUEST || hdr.inagg.type == INAGG_WAIT || hdr.inagg.type == INAGG_BLOCK_FAILED) {
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
        } else if (hdr.udp.length != 72 + (hdr.inagg.elements << 2)) {
            refuse(INAGG_R_LENGTH);
        }
    }
}

// Who speaks, by meta.speaker, and where goes what is for one rank, by meta.target.
control FindRanks(inout headers_t hdr, inout metadata_t meta) {
    action set_member(bit<9> port, bit<128> address, bit<16> receive_port, bit<64> subtree) {
        meta.speaker_port = port;
        meta.speaker_address = address;
        meta.receive_port = receive_port;
        meta.subtree = subtree;
    }
    table members {
        key = { hdr.inagg.job: exact; meta.speaker: exact; }
        actions = { set_member; NoAction; }
        const default_action = NoAction;
        size = 4096;
    }

    action set_place(bit<9> port, bit<48> mac, bit<128> address, bit<16> receive_port, bit<64> subtree) {
        meta.place = { port, mac, address, receive_port, subtree };
    }
    table places {
        key = { hdr.inagg.job: exact; meta.target: exact; }
        actions = { set_place; NoAction; }
        const default_action = NoAction;
        size = 4096;
    }

    apply {
        members.apply();
        places.apply();
    }
}

#endif
