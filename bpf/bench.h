/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* What bench.bpf.c and tools/bench/bench_switch.cpp agree on. */
#ifndef INAGG_BENCH_H
#define INAGG_BENCH_H

#include <linux/if_ether.h>
#include <linux/ip.h>
#include <linux/udp.h>

#include <inagg/wire.h>

enum bench_target {
	BENCH_NOTHING,
	BENCH_COPY,
	BENCH_SWITCH,
	BENCH_TARGETS
};

/* One rotation of contributions. */
struct bench_plan {
	__u32	target;		/* enum bench_target */
	__u32	ranks;
	__u32	slots;		/* window of each rank, a power of two */
	__u32	lines;		/* 64-byte lines of payload */
	__u32	restore;	/* the frame's payload may not be a contribution's */
	__u32	all_change;	/* every rank's packet may come out changed, not the last one's only */
	__u64	next[BENCH_TARGETS];	/* contributions so far */
};

/* A rank's headers; block, slot, pool version and checksum are the driver's. */
struct bench_frame {
	struct ethhdr eth;
	struct iphdr ip;
	struct udphdr udp;
	struct inagg_hdr hdr;
} __attribute__((packed));

#endif /* INAGG_BENCH_H */
