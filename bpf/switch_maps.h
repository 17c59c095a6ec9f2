/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Keys and values of the switch's maps: the interface between switch.bpf.c and whoever fills its maps
 * (inaggd, bpftool, tests).  Map names are those of the sections in switch.bpf.c.
 */
#ifndef INAGG_SWITCH_MAPS_H
#define INAGG_SWITCH_MAPS_H

#include <inagg/core/job.h>

#define INAGG_MAX_JOBS		64	/* rows of members, ports and stats */
#define INAGG_STATS_NO_JOB	INAGG_MAX_JOBS	/* stats row of packets that belong to no job */
#define INAGG_DEFAULT_SLOTS	4096	/* slot pairs of a switch; inaggd may choose another number */

/* `settings`[0]: this switch. */
struct inagg_switch_settings {
	__u8	address6[16];	/* all zero: no IPv6 */
	__u32	address4;	/* network byte order; 0: no IPv4 */
	__u16	boot;		/* incarnation, not 0 */
	__u16	reserved;
};

/*
 * `jobs`: index job number, value struct inagg_job; size 0: no such job.  An array of all 65,536 numbers
 * (4 MiB) because its lookup is inlined, where a hash costs 20 ns a packet.
 */
#define INAGG_JOB_NUMBERS	65536

/* `members`: index job.index * INAGG_MAX_RANKS + rank, value struct inagg_member. */

/* `slots`: index (job.first_slot + slot) * 2 + pool version. */
struct inagg_slot_memory {
	__u32	busy;			/* a CPU is in this slot: see lock_slot() */
	__u32	ready;			/* lanes hold the result, as on the wire */
	struct inagg_slot state;
	__u64	reserved[4];
	/* Until the block completes: 32-bit accumulators, two in a word.  Then: the result's payload. */
	__u64	lanes[INAGG_MAX_ELEMENTS / 2];
};

/* Context of the syscall program `inagg_clear`: entries of `slots` to forget. */
struct inagg_clear_args {
	__u32	first;
	__u32	count;
	__u32	cleared;	/* out: less than count if a slot stayed busy; repeat */
};

/* `ports`: index job.index, an inner devmap with one entry per rank (broadcast goes to all of them). */

/*
 * `port_ranks`: which ranks a port leads to, for the egress program: one copy of a result leaves per
 * rank, and the n-th copy through a port belongs to the n-th rank behind it.
 */
struct inagg_port_key {
	__u32	job;		/* job.index */
	__u32	ifindex;
};
struct inagg_port_ranks {
	__u32	count;
	__u8	rank[INAGG_MAX_RANKS];
};

/* `events`: ring buffer; one for each JOIN or LEAVE that the agent must decide. */
struct inagg_event {
	__u32	ifindex;	/* port it came through */
	__u16	source_port;	/* UDP, network byte order */
	__u8	family;		/* 4 or 6 */
	__u8	type;		/* INAGG_JOIN or INAGG_LEAVE */
	__u16	job;
	__u16	rank;
	__u16	generation;	/* LEAVE: of the incarnation that is left */
	__u8	mac[6];
	__u8	address[16];	/* IPv4 in the first 4 bytes */
	struct inagg_join join;	/* as on the wire */
};

#endif /* INAGG_SWITCH_MAPS_H */
