/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Memory shared by the worker's XDP programs (worker.bpf.c, stream.bpf.c) and libinagg.
 *
 * worker.bpf.c is attached once per network device and serves every process that uses it: it steers by
 * UDP receive port.  stream.bpf.c is loaded once per communicator and moves its blocks.
 */
#ifndef INAGG_WORKER_MAPS_H
#define INAGG_WORKER_MAPS_H

#include <inagg/core/worker.h>

#define INAGG_PORTS		65536	/* `streams`, `kicks`, `sockets`: index is the UDP receive port */

/* `templates`: key __be16 receive port.  How to reach the switch, learned from a CONFIG packet. */
struct inagg_template {
	__u8	remote_mac[6];
	__u8	local_mac[6];
	__u8	remote[16];	/* the switch's address; filled in by user space; IPv4 in the first 4 bytes */
	__u8	local[16];
	__be16	vlan_tci;
	__u8	vlan;		/* 0 or 1: frames carry an 802.1Q tag */
	__u8	family;		/* 4 or 6; filled in by user space */
	__u32	ready;		/* the rest is filled in */
};

/*
 * The frame that user space hands to BPF_PROG_RUN: it tells the root program whose kick program to
 * run.  The same frame from a network does nothing that a spurious wake-up would not do.
 */
struct inagg_tick {
	__u8	mac[12];
	__be16	ethertype;	/* INAGG_TICK_ETHERTYPE */
	__u16	port;		/* receive port, host byte order */
	__u64	magic[2];
	__u8	padding[32];
};
#define INAGG_TICK_ETHERTYPE	0x88b5	/* IEEE 802 local experimental */
#define INAGG_TICK_MAGIC0	0x6b63695467676e69ULL
#define INAGG_TICK_MAGIC1	0x9e3779b97f4a7c15ULL

/*
 * `cells`: a ring of packet images.  Block b of the data stream lies in cell b % cells, control blocks
 * in the ring behind.  User space writes a whole frame, so that sending is one copy; the result
 * replaces header and payload.
 */
#define INAGG_FRAME_ROOM	72	/* Ethernet, VLAN, IPv6 and UDP, right-aligned before `hdr` */
struct inagg_cell {
	__u64	contributors;	/* of the last WAIT */
	__u32	heard;		/* a WAIT came */
	__u32	done;		/* the result is here: set last */
	__u32	bytes;		/* payload to send */
	__u32	reserved[9];
	__u8	frame[INAGG_FRAME_ROOM];
	struct inagg_hdr hdr;
	__u8	payload[INAGG_MAX_PAYLOAD];
};

INAGG_ASSERT(sizeof(struct inagg_cell) % 64 == 0);
INAGG_AT(inagg_cell, hdr, 128);

/* `slots`: data slots, control slots behind them. */
struct inagg_worker_slot {
	struct inagg_wslot state;
	__u32	busy;		/* a CPU is deciding; only BPF writes here */
	__u32	reserved;
};

/* What a communicator is; constant, so that the verifier removes what it does not need. */
struct inagg_stream_settings {
	__u64	all;		/* inagg_all_ranks(size) */
	__u8	remote[16];	/* the switch */
	__u32	header_bytes;	/* Ethernet to UDP: 42, 46, 62 or 66 */
	__u32	family;		/* 4 or 6 */
	__u32	slots;
	__u32	control_slots;
	__u32	cells;		/* powers of two, at least 4 windows */
	__u32	control_cells;
	__u32	checked;
	__u16	job;		/* network byte order, as on the wire */
	__u16	generation;
	__u16	rank;
	__u16	size;
};

struct inagg_stream_state {
	struct inagg_worker worker;
	__u64	delivered_sent_ns;	/* latest transmission whose result came */
	__u64	accepted;		/* results accepted */
	__u64	done;			/* results stored in their cells */
	__u64	wake_at;		/* ring the doorbell when `done` gets here */
	__u32	cursor;			/* slot that is compared next for overtaking */
	__u32	reserved;
};

struct inagg_stream_counters {
	__u64	contributions;
	__u64	retransmissions;
	__u64	requests;
	__u64	restores;
	__u64	duplicates;
	__u64	rejected;
	__u64	reboots;
};

/* The queue of one BPF_PROG_RUN: the n-th tick serves the n-th slot. */
#define INAGG_KICKS		256
#define INAGG_KICK_REBOOTED	(1U << 30)	/* the switch restarted: send again now */
#define INAGG_KICK_PROBE	(1U << 31)	/* send cell 0 as it is: does the path take our frames? */

struct inagg_stream_shared {
	struct inagg_stream_state streams[2];	/* data, control */
	struct inagg_stream_counters counters;
	__u32	overdue;	/* a slot was overtaken: user space should kick */
	__u16	boot;		/* of the switch, as last heard; network byte order */
	__u16	reserved;
	__u32	kick_count;
	__u32	kick_next;
	__u32	kicks[INAGG_KICKS];	/* slot | INAGG_KICK_* */
};

#endif /* INAGG_WORKER_MAPS_H */
