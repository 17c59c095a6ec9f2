// SPDX-License-Identifier: BSD-2-Clause
#ifndef INAGG_P4_TNA_MARK
#define INAGG_P4_TNA_MARK

// A queue of this switch is long, and what this switch sends by it says so, as a router's would (RFC 3168).
control MarkIfQueued(inout frame_t hdr, in egress_intrinsic_metadata_t intrinsic) {
    Counter<bit<32>, bit<1>>(1, CounterType_t.PACKETS) marked_packets;
    action mark4() {
        hdr.ipv4.tos = INAGG_TOS | 3;
    }
    action mark6() {
        hdr.ipv6.tos = INAGG_TOS | 3;
    }
    // In one table, since a counter is one's.
    action count() {
        marked_packets.count(0);
    }

    apply {
        // 64 cells of 80 bytes, which are 16 results, or more: a gateway compares no numbers of 19 bits.
        if (intrinsic.enq_qdepth[18:6] != 0) {
            count();
            if (hdr.ipv4.isValid()) {
                mark4();
            } else {
                mark6();
            }
        }
    }
}

#endif
