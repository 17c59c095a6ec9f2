// SPDX-License-Identifier: BSD-2-Clause
// What switchml, panama, atp and trio share, whose jobs have at most one parent: admission, WAITs.
#ifndef INAGG_P4_TREE
#define INAGG_P4_TREE

// answer() in bpf/answer.h, of a WAIT.
action write_wait(inout headers_t hdr, inout metadata_t meta, in bit<64> who, in bit<12> flags) {
    meta.is_answer = 1;
    hdr.inagg.type = INAGG_WAIT;
    hdr.inagg.flags = (hdr.inagg.flags & INAGG_F_VERSION) | flags;
    hdr.inagg.contributors = who;
    hdr.inagg.count = 0;
    hdr.inagg.window_cap = 0;
    hdr.inagg.next_scale = 0;
    hdr.inagg.elements = 0;
    hdr.chunk0.setInvalid();
    hdr.chunk1.setInvalid();
}

// From a member, or from the job's parent.
control Admission(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t standard) {
    FindJob() find_job;
    CheckBlock() check_block;
    FindRanks() find_ranks;

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
        find_job.apply(hdr, meta, standard);
        if (meta.reason != INAGG_R_NONE || meta.is_for_agent == 1) {
            return;
        }
        parents.apply();
        meta.speaker = hdr.inagg.source;
        meta.target = hdr.inagg.source;
        find_ranks.apply(hdr, meta);
        if (meta.is_clock == 1) {
            return;
        }
        if (hdr.inagg.type == INAGG_RESULT || hdr.inagg.type == INAGG_WAIT) {
            meta.from_above = 1;
            if (meta.parent_port != standard.ingress_port) {
                refuse(INAGG_R_PORT);
                return;
            }
            if (meta.parent_address != meta.source) {
                refuse(INAGG_R_ADDRESS);
                return;
            }
        }
        check_block.apply(hdr, meta);
        if (meta.reason != INAGG_R_NONE) {
            return;
        }
        if (meta.from_above == 0) {
            if (meta.speaker_port == 0) {
                refuse(INAGG_R_RANK);
            } else if (meta.speaker_port != standard.ingress_port) {
                refuse(INAGG_R_PORT);
            } else if (meta.speaker_address != meta.source) {
                refuse(INAGG_R_ADDRESS);
            }
        }
        if (meta.reason == INAGG_R_NONE) {
            count(meta.row, STAT_PACKETS, 1);
            if (hdr.inagg.type == INAGG_PARTIAL && meta.in_tree == 0) {
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
