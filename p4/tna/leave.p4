// SPDX-License-Identifier: BSD-2-Clause
// How frames leave ingress that are no packet of a block, and what is counted of those that are.
#ifndef INAGG_P4_TNA_LEAVE
#define INAGG_P4_TNA_LEAVE

control Leave(inout frame_t hdr, in facts_t meta, in ingress_intrinsic_metadata_t intrinsic,
              inout ingress_intrinsic_metadata_for_deparser_t deparser_intrinsic,
              inout ingress_intrinsic_metadata_for_tm_t tm) {
    // Ordinary frames go where their station is, or everywhere.
    action to_station(bit<9> port) {
        hdr.bridge.errand = ERRAND_NONE;
        tm.ucast_egress_port = port;
    }
    action flood() {
        hdr.bridge.errand = ERRAND_FLOOD;
        tm.mcast_grp_a = FLOOD_GROUP;
    }
    table stations {
        key = { hdr.ethernet.dst: exact; }
        actions = { to_station; flood; }
        const default_action = flood;
        size = 4096;	// ranks of all jobs, and the switch
    }

#ifdef CANARY
    // What goes to one rank only.
    action set_place(bit<9> port) {
        tm.ucast_egress_port = port;
    }
    action know_no_place() {
        deparser_intrinsic.drop_ctl = 1;
    }
    table places {
        key = { hdr.inagg.job: exact; hdr.bridge.target: exact @name("rank"); }
        actions = { set_place; know_no_place; }
        const default_action = know_no_place;
        size = 2048;
    }
#endif

    // To the agent, with the port that it came by.
    action punt() {
        hdr.punt.setValid();
        hdr.punt.dst = hdr.ethernet.dst;
        hdr.punt.src = hdr.ethernet.src;
        hdr.punt.type = TYPE_PUNT;
        hdr.punt.port = (bit<16>)intrinsic.ingress_port;
        tm.ucast_egress_port = meta.cpu_port;
    }
    action unpunt() {
        tm.ucast_egress_port = hdr.punt.port[8:0];
        hdr.punt.setInvalid();
    }

    // A job's row, or INAGG_STATS_NO_JOB; 64 reasons. INAGG_R_NONE: the packets of the job that were not refused.
    Counter<bit<32>, bit<13>>((64 + 1) * 64, CounterType_t.PACKETS) drops;
    action drop() {
        deparser_intrinsic.drop_ctl = 1;
    }
    action count() {
        drops.count(meta.row[6:0] ++ meta.reason[5:0]);
    }

    apply {
        if (IS_COUNTED(meta.path)) {
            count();
        }
        if (meta.path == PATH_ORDINARY) {
            stations.apply();
        } else if (meta.path == PATH_TO_AGENT) {
            punt();
        } else if (meta.path == PATH_FROM_AGENT) {
            unpunt();
        } else if (meta.path == PATH_NOWHERE) {
            drop();
#ifdef CANARY
        } else if (hdr.bridge.errand & ERRAND_MULTICAST == 0) {
            places.apply();
#endif
        }
    }
}

#endif
