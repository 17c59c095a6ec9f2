// SPDX-License-Identifier: BSD-2-Clause
// Packets of the clock: the pipe's packet generator makes them, one for each place that something may be due at, and they come by
// a port that has no cable.  Behind the generator's header is what the agent has put into its buffer: headers of a packet to this
// switch.
#ifndef INAGG_P4_TNA_CLOCK
#define INAGG_P4_TNA_CLOCK

#define CLOCK_PORT 68 &&& 0x7f	// of any pipe
#define APP_TICK 2 &&& 6	// of the generator, for IPv4 and for IPv6: decides what is due

// States of the parser.  `place` is a field of 16 bits.
#define CLOCK_STATES(place) \
    state parse_clock { \
        pktgen_timer_header_t clock = packet.lookahead<pktgen_timer_header_t>(); \
        place = clock.packet_id; \
        packet.advance(48); \
        transition select(clock.app_id) { \
            APP_TICK: tick; \
            default: no_tick; \
        } \
    } \
    state no_tick { \
        meta.form = FORM_NO_TICK; \
        transition accept; \
    } \
    state tick { \
        meta.form = FORM_TICK; \
        transition select(packet.lookahead<ethernet_h>().type) { \
            TYPE_IPV4: tick4; \
            default: tick6; \
        } \
    } \
    state tick4 { \
        packet.extract(hdr.ethernet); \
        packet.extract(hdr.ipv4); \
        transition tick_inagg; \
    } \
    state tick6 { \
        packet.extract(hdr.ethernet); \
        packet.extract(hdr.ipv6); \
        transition tick_inagg; \
    } \
    state tick_inagg { \
        packet.extract(hdr.udp); \
        packet.extract(hdr.inagg); \
        packet.extract(hdr.chunk0); \
        hdr.bridge.errand = ERRAND_ELEMENTS; \
        transition accept; \
    }

#endif
