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

#endif
