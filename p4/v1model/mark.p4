// SPDX-License-Identifier: BSD-2-Clause
#ifndef INAGG_P4_MARK
#define INAGG_P4_MARK

// A router on the way has marked the packet because of its queue (RFC 3168).
control FindMark(in headers_t hdr, out bit<12> mark) {
    apply {
        mark = 0;
        if ((hdr.ipv4.isValid() && hdr.ipv4.tos[1:0] == 3) || (hdr.ipv6.isValid() && hdr.ipv6.tos[1:0] == 3)) {
            mark = INAGG_F_CONGESTION;
        }
    }
}

#ifdef MARKS_QUEUES
// So many packets were in the queue when this one came to it: a third of what simple_switch lets wait.
const bit<19> MARKED_DEPTH = 20;
register<bit<64>>(1) marked_packets;

// A queue of this switch is long, and what this switch sends by it says so, as a router's would (RFC 3168).
control MarkIfQueued(inout headers_t hdr, in metadata_t meta, in standard_metadata_t standard) {
    apply {
        if (meta.is_sealed_anew == 0 || standard.enq_qdepth < MARKED_DEPTH) {
            return;
        }
        hdr.ipv4.tos[1:0] = 3;	// of these only one is there
        hdr.ipv6.tos[1:0] = 3;
        bit<64> so_far;
        marked_packets.read(so_far, 0);
        marked_packets.write(0, so_far + 1);
    }
}
#endif

#endif
