/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * inagg wire format, version 1.  Written specification: docs/PROTOCOL.md.
 *
 * Ethernet / IPv4 or IPv6 / UDP (zero UDP checksum, RFC 6935) / struct inagg_hdr / elements.
 * The header is in network byte order.  Elements are little-endian, since most planes are CPUs, and a
 * switch that swaps nothing adds two lanes with one 64-bit instruction; or, where a job's CONFIG says so,
 * in network byte order, too, for a switch that can do nothing else.
 *
 * Shared by BPF, the kernel, C and C++: only <linux/types.h> is needed.
 */
#ifndef INAGG_WIRE_H
#define INAGG_WIRE_H

#include <linux/types.h>

#define INAGG_PORT		12000	/* UDP port of every switch */
#define INAGG_WIRE_VERSION	1
#define INAGG_TOS		0xe2	/* DSCP 56, ECN-capable transport ECT(0) */

#define INAGG_MAX_RANKS		64	/* children of one switch: bits in `contributors` */
#define INAGG_CHUNK		32	/* element counts on the wire are multiples of this */
#define INAGG_MAX_ELEMENTS	832	/* per packet: 26 chunks, one 3.5 KB XDP buffer */
#define INAGG_MAX_PAYLOAD	(INAGG_MAX_ELEMENTS * 4)
#define INAGG_MAX_BLOCKS	4	/* of one CONTRIBUTION that is longer than that */

#define INAGG_CANARY_ATTEMPTS	3	/* canary: at a block, that may fail before its elements go past all sums (BYPASS) */

/* What a packet is.  Numbers are never reused. */
enum inagg_type {
	/* worker to switch */
	INAGG_CONTRIBUTION	= 1,	/* a block of one rank */
	INAGG_REQUEST		= 2,	/* header only: result of this block, or who is missing? */
	INAGG_RESTORE		= 3,	/* a result that the switch lost, from a rank that holds it */
	INAGG_JOIN		= 4,	/* struct inagg_join follows */
	INAGG_LEAVE		= 5,	/* struct inagg_join follows */
	/* switch to worker */
	INAGG_RESULT		= 6,	/* the sum of `contributors` */
	INAGG_WAIT		= 7,	/* header only: `contributors` are in, the others are not */
	INAGG_CONFIG		= 8,	/* struct inagg_config follows: the join succeeded */
	INAGG_REFUSED		= 9,	/* `slot` holds an inagg_reason: join refused or job ended */
	/* between switches, servers and agents */
	INAGG_PARTIAL		= 10,	/* switch to its parent: the sum of `contributors`, all behind it */
	INAGG_PARAMETER		= 11,	/* never sent: a server's parameters are a RESULT */
	INAGG_BLOCK_FAILED	= 12,	/* canary: leader gives a block up */
	INAGG_TICK		= 13,	/* agent to its own XDP program; never on a wire */
};

/* How elements are encoded. */
enum inagg_wire_dtype {
	INAGG_WIRE_NONE		= 0,	/* control block: no elements */
	INAGG_WIRE_INT32	= 1,	/* two's complement, wraps */
	/*
	 * Fixed point in offset binary: u = round(x * 2^k) + bias, bias = 2^31 / fan-in rounded up to a
	 * power of two (core/fixed.h).  The sum of all ranks fits in 32 bits, so no lane ever carries
	 * into its neighbour and wide registers add it with plain instructions.
	 */
	INAGG_WIRE_FIXED32	= 2,
	INAGG_WIRE_FLOAT16	= 3,	/* IEEE binary16; the switch adds it as fixed point */
	INAGG_WIRE_BFLOAT16	= 4,	/* likewise */
	INAGG_WIRE_FLOAT32	= 5,	/* raw float: panama, and atp after saturation */
	INAGG_WIRE_DTYPES
};

enum inagg_wire_op {
	INAGG_WIRE_SUM		= 0,
	INAGG_WIRE_MIN		= 1,
	INAGG_WIRE_MAX		= 2,
	INAGG_WIRE_OPS
};

/* Low 12 bits of `level_flags`. */
enum inagg_flag {
	INAGG_F_VERSION		= 1 << 0,	/* pool version: which of the slot's two copies */
	INAGG_F_RESEND		= 1 << 1,	/* not the first of its kind for this block */
	INAGG_F_MULTICAST	= 1 << 2,	/* REQUEST: tell everyone what is missing; from a parent: for all ranks */
	INAGG_F_SATURATED	= 1 << 3,	/* an element did not fit; ORed into the result; atp, in WAIT: send floats */
	INAGG_F_CHECKED		= 1 << 4,	/* payload checksum is present */
	INAGG_F_DEGRADED	= 1 << 5,	/* trio: `contributors` are not all ranks */
	INAGG_F_FINAL		= 1 << 6,
	INAGG_F_COLLISION	= 1 << 7,	/* atp, canary */
	INAGG_F_BYPASS		= 1 << 8,	/* canary */
	INAGG_F_CONGESTION	= 1 << 9,	/* ECN seen; ORed into the result */
	INAGG_F_WHOLE		= 1 << 10,	/* trio: no result without all ranks (broadcast, barrier); atp, canary: no sum on the way */
	INAGG_F_ABSENT		= 1 << 11,	/* trio, CONTRIBUTION: nothing to add; its elements are room for the answer */
};
#define INAGG_FLAGS_MASK	0x0fff
#define INAGG_LEVEL_SHIFT	12

/* Upper 4 bits of `level_flags` of a REFUSED: who refuses. */
enum inagg_level {
	INAGG_LEVEL_SENDER	= 0,
	INAGG_LEVEL_ABOVE	= 1,	/* `above` in struct inagg_refusal, which the sender passes on */
};

/*
 * The one fixed header.  64 bytes, so that 352 elements fill an IPv4 packet of 1,500 bytes exactly.
 * Offsets are multiples of each field's size.
 */
struct inagg_hdr {
	__u8	version_type;	/*  0: version << 4 | enum inagg_type */
	__u8	dtype_op;	/*  1: enum inagg_wire_dtype << 4 | enum inagg_wire_op */
	__be16	level_flags;	/*  2: level << 12 | enum inagg_flag; the level is 0, but in REFUSED: enum inagg_level */
	__be16	job;		/*  4 */
	__be16	generation;	/*  6: the job's incarnation; another one's packets change nothing */
	__be32	block;		/*  8: sequence number of the block in its stream; CONFIG to a switch: its expiry in us */
	__be32	slot;		/* 12: pool index; reason (REFUSED) */
	__u8	tree;		/* 16: canary: ways up that had better not lead to who asks, or to the leader that speaks; else 0 */
	__u8	port;		/* 17: 0; inside a switch of canary: up ports that a copy is for */
	__be16	source;		/* 18: rank, or child switch */
	__be16	count;		/* 20: ranks folded in; CONFIG to a switch: its quorum, to a rank: blocks of a packet */
	__be16	fan_in;		/* 22: ranks expected */
	__be64	contributors;	/* 24: bitmap of the sources at this level */
	__be16	boot;		/* 32: incarnation of the switch that sent this, or was last heard */
	__be16	window_cap;	/* 34: trio, in WAIT: the block was refused, keep to so many; 0: no cap.  atp, in RESULT: next index.  panama.
				 * canary, in REQUEST, its answer, and what goes past sums: how often the rank has asked for the block */
	__be16	switch_id;	/* 36: trio: epoch of a recovering block.  atp: aggregator's index.  canary */
	__u8	scale;		/* 38: biased binary32 exponent all elements of this block obey */
	__u8	next_scale;	/* 39: exponent this rank needs next; the result carries the maximum */
	__be16	elements;	/* 40: multiple of INAGG_CHUNK, may be 0 */
	__be16	checksum;	/* 42: RFC 1071 over these 64 bytes */
	__be32	payload_checksum; /* 44: of payload and header, when INAGG_F_CHECKED: core/checksum.h */
	__be32	check[4];	/* 48: JOIN, LEAVE, CONFIG, REFUSED of a job with a key: challenge and proof, core/mac.h */
};

/* INAGG_JOIN and INAGG_LEAVE: what a worker asks for.  As long as the answer, so that a switch can turn
 * one into the other in place. */
struct inagg_join {
	__be64	nonce;		/*  0: names this incarnation of the worker; echoed in the answer */
	__be16	size;		/*  8: ranks in the job */
	__be16	elements;	/* 10: 32-bit elements per packet that its MTU allows */
	__be16	receive_port;	/* 12: UDP port for results */
	__u8	algorithm;	/* 14: enum inagg_algorithm */
	__u8	flags;		/* 15: enum inagg_join_flag */
	__be32	expiry_us;	/* 16: trio: a block waits this long for its next rank; 0: for all ranks */
	__be16	quorum;		/* 20: trio: ranks that suffice; 0: all */
	__be16	position;	/* 22: between switches: how many parents the job has passed over */
	__be32	exclude_ms;	/* 24: trio: a rank that is silent for so long is excluded; 0: none ever is */
	__be32	slots;		/* 28: with MOVED: as in CONFIG; from a switch, else: what its links carry; 0: not known */
	__be32	control_slots;	/* 32: with MOVED: as in CONFIG */
	__u8	reserved[4];	/* 36: zero; makes JOIN as long as CONFIG */
};

enum inagg_join_flag {
	INAGG_JOIN_CHECKED	= 1 << 0,	/* wants payload checksums */
	INAGG_JOIN_TREE		= 1 << 1,	/* JOIN: from a switch, for a rank behind it; CONFIG: switches in a tree add */
	INAGG_JOIN_WATCHED	= 1 << 2,	/* CONFIG: silent ranks are taken for gone, so repeat the JOIN */
	INAGG_JOIN_RETURNING	= 1 << 3,	/* CONFIG: an excluded rank waits for the next generation */
	INAGG_JOIN_RENEW	= 1 << 4,	/* JOIN: goes on, from the generation in the header to the next; CONFIG: the job does,
						 * as it excludes ranks that are gone, and takes them back in the next */
	INAGG_JOIN_MOVED	= 1 << 5,	/* JOIN, LEAVE of a switch: the rank goes on, in that generation, at another root */
	INAGG_JOIN_INTEGERS	= 1 << 6,	/* CONFIG, MOVED: a switch adds no floats: fixed point with panama, too */
	INAGG_JOIN_BIG_ENDIAN	= 1 << 7,	/* JOIN: the rank can turn its elements; CONFIG, MOVED: it has to, with TREE */
};

/* INAGG_CONFIG: what the job is.  All ranks of a generation get the same. */
struct inagg_config {
	__be64	nonce;		/*  0: of the JOIN that this answers */
	__be16	size;		/*  8 */
	__be16	elements;	/* 10: 32-bit elements per packet, multiple of INAGG_CHUNK */
	__be32	slots;		/* 12: data slots 0 .. slots-1 */
	__be32	control_slots;	/* 16: slots .. slots+control_slots-1 */
	__u8	algorithm;	/* 20 */
	__u8	flags;		/* 21: enum inagg_join_flag in force */
	__be16	group_port;	/* 22: results come to this group address and port (no egress rewrite) */
	union {
		__u8	group[16];	/* 24: zero: results come to the worker's own address */
		struct {
			__be64	temporary;	/* without group_port: bitmaps of ranks, stragglers as the switch sees them */
			__be64	permanent;
		} stragglers;
	};
};

/* INAGG_REFUSED: the JOIN that it answers, echoed; where one above refuses, with its address. */
struct inagg_refusal {
	__be64	nonce;		/*  0: of the JOIN; 0: of none */
	__u8	asked[16];	/*  8: as in the JOIN */
	__u8	above[16];	/* 24: at INAGG_LEVEL_ABOVE: a server's or switch's; IPv4 as ::ffff:a.b.c.d */
};

/* Algorithms: `--algorithm` names in this order. */
enum inagg_algorithm {
	INAGG_SWITCHML	= 0,
	INAGG_TRIO	= 1,
	INAGG_ATP	= 2,
	INAGG_PANAMA	= 3,
	INAGG_CANARY	= 4,
	INAGG_ALGORITHMS
};

#ifndef __cplusplus
#define INAGG_ASSERT(cond) _Static_assert(cond, #cond)
#else
#define INAGG_ASSERT(cond) static_assert(cond, #cond)
#endif
#define INAGG_AT(type, field, offset) \
	INAGG_ASSERT(__builtin_offsetof(struct type, field) == (offset))

INAGG_ASSERT(sizeof(struct inagg_hdr) == 64);
INAGG_AT(inagg_hdr, level_flags, 2);
INAGG_AT(inagg_hdr, job, 4);
INAGG_AT(inagg_hdr, generation, 6);
INAGG_AT(inagg_hdr, block, 8);
INAGG_AT(inagg_hdr, slot, 12);
INAGG_AT(inagg_hdr, tree, 16);
INAGG_AT(inagg_hdr, port, 17);
INAGG_AT(inagg_hdr, source, 18);
INAGG_AT(inagg_hdr, count, 20);
INAGG_AT(inagg_hdr, fan_in, 22);
INAGG_AT(inagg_hdr, contributors, 24);
INAGG_AT(inagg_hdr, boot, 32);
INAGG_AT(inagg_hdr, window_cap, 34);
INAGG_AT(inagg_hdr, switch_id, 36);
INAGG_AT(inagg_hdr, scale, 38);
INAGG_AT(inagg_hdr, next_scale, 39);
INAGG_AT(inagg_hdr, elements, 40);
INAGG_AT(inagg_hdr, checksum, 42);
INAGG_AT(inagg_hdr, payload_checksum, 44);
INAGG_AT(inagg_hdr, check, 48);
INAGG_ASSERT(sizeof(struct inagg_join) == sizeof(struct inagg_config));
INAGG_ASSERT(sizeof(struct inagg_config) == 40);
INAGG_AT(inagg_join, position, 22);
INAGG_AT(inagg_join, exclude_ms, 24);
INAGG_AT(inagg_join, slots, 28);
INAGG_AT(inagg_config, group, 24);
INAGG_ASSERT(sizeof(struct inagg_refusal) == sizeof(struct inagg_join));
INAGG_AT(inagg_refusal, above, 24);
INAGG_ASSERT(INAGG_MAX_ELEMENTS % INAGG_CHUNK == 0);

static inline __u8 inagg_hdr_version(const struct inagg_hdr *h) { return h->version_type >> 4; }
static inline __u8 inagg_hdr_type(const struct inagg_hdr *h) { return h->version_type & 0xf; }
static inline __u8 inagg_hdr_level(const struct inagg_hdr *h) { return ((const __u8 *)&h->level_flags)[0] >> 4; }
static inline __u8 inagg_hdr_dtype(const struct inagg_hdr *h) { return h->dtype_op >> 4; }
static inline __u8 inagg_hdr_op(const struct inagg_hdr *h) { return h->dtype_op & 0xf; }

/** Bytes of one element of @dtype on the wire; 0 when the encoding is unknown. */
static inline __u32 inagg_element_bytes(__u8 dtype)
{
	switch (dtype) {
	case INAGG_WIRE_INT32:
	case INAGG_WIRE_FIXED32:
	case INAGG_WIRE_FLOAT32:
		return 4;
	case INAGG_WIRE_FLOAT16:
	case INAGG_WIRE_BFLOAT16:
		return 2;
	default:
		return 0;
	}
}

#endif /* INAGG_WIRE_H */
