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

#define INAGG_PORTS		65536	/* `streams`, `sockets`: index is the UDP receive port */
#define INAGG_SOCKET_QUEUE	0	/* that `sockets` are bound to: they take frames of no other */

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
	__u32	busy;		/* a program or the process is deciding */
	__u32	reserved;
};

/*
 * `orders`: a ring of packets that user space wants the program to make of live frames (BPF_F_TEST_XDP_LIVE_FRAMES).
 * A live frame is known by the token, and carries out the next order.
 */
struct inagg_order {
	__u32	slot;
	__u32	block;
	__u32	action;		/* INAGG_W_SEND or INAGG_W_RESEND */
	__u32	reserved;
};

#define INAGG_LIVE_HEADROOM	192	/* bytes of a live frame's headroom, 256, that are for data; the kernel wants 40 */

/* What a communicator is; constant, so that the verifier removes what it does not need. */
struct inagg_stream_settings {
	__u64	all;		/* inagg_all_ranks(size) */
	__u64	token;		/* `contributors` of live frames */
	__u8	remote[16];	/* the switch */
	__u32	header_bytes;	/* Ethernet to UDP: 42, 46, 62 or 66 */
	__u32	family;		/* 4 or 6 */
	__u32	slots;
	__u32	control_slots;
	__u32	cells;		/* powers of two, at least 4 windows */
	__u32	control_cells;
	__u32	checked;
	__u32	device;		/* that leads to the switch */
	__u32	orders;		/* places in the ring of that name, a power of two */
	__u32	longest;	/* frame of the job, in bytes */
	__u16	job;		/* network byte order, as on the wire */
	__u16	generation;
	__u16	rank;
	__u16	size;
};

struct inagg_stream_state {
	struct inagg_worker worker;
	__u64	accepted;		/* results accepted */
	__u64	done;			/* results stored in their cells */
	__u64	wake_at;		/* ring the doorbell when `done` gets here */
	__u32	cursor;			/* slot that is looked at next: has its block been lost? */
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

/* Does the path take what XDP sends? See XdpTransport::prove_path(). */
enum inagg_probe {
	INAGG_PROBE_OFF		= 0,
	INAGG_PROBE_ASKED	= 1,	/* user space has sent a REQUEST; answer the WAIT with another */
	INAGG_PROBE_ANSWERED	= 2,	/* done so */
	INAGG_PROBE_PROVEN	= 3,	/* and that was answered, too */
};

struct inagg_stream_shared {
	struct inagg_stream_state streams[2];	/* data, control */
	struct inagg_stream_counters counters;
	__u32	owed;		/* length of the queue of that name */
	struct inagg_boots boots;	/* network byte order */
	__u32	probe;		/* enum inagg_probe */
	__u32	restore;	/* slot + 1 whose last result somebody waits for, if BPF had no room for it */
	__u32	redirect;	/* send by redirection; 0: XDP_TX */
	__u32	ordered;	/* orders so far: the next one goes to `ordered` % settings.orders */
	__u32	taken;		/* of these, by live frames */
	__u32	reserved2;
};

#endif /* INAGG_WORKER_MAPS_H */
