/* SPDX-License-Identifier: ((GPL-2.0-only WITH Linux-syscall-note) OR BSD-2-Clause) */
/*
 * AF_INAGG: the socket ABI.  What each call does is in inagg(7).
 *
 * Linux gives no number to a family out of tree: the module takes 25 unless told otherwise, and shows
 * the one in force in /proc/net/inagg.  Structures have no holes; reserved fields are zero or EINVAL.
 */
#ifndef INAGG_UAPI_H
#define INAGG_UAPI_H

#include <linux/socket.h>
#include <linux/types.h>

#define AF_INAGG	25
#define PF_INAGG	AF_INAGG
#define SOL_INAGG	300

/* An address: bind() gives the local one and the rank, connect() the switch's and the job. */
struct sockaddr_inagg {
	__kernel_sa_family_t sinagg_family;	/* AF_INAGG */
	__be16	sinagg_port;	/* UDP: ours, 0 for any; the switch's, 0 for 12000 */
	__u16	sinagg_job;	/* connect: number of the job */
	__u16	sinagg_rank;	/* bind: 0 .. size-1 */
	__u16	sinagg_size;	/* connect: ranks in the job, 1 .. 64 */
	__u16	sinagg_reserved;	/* zero */
	__u32	sinagg_scope_id;	/* interface of a link-local IPv6 address */
	__u8	sinagg_addr[16];	/* IPv6, or IPv4 as ::ffff:a.b.c.d; bind: zero lets the route choose */
};

/* How the elements of a tensor look in memory: of the host's byte order. */
enum inagg_dtype {
	INAGG_INT32	= 0,
	INAGG_FLOAT32	= 1,	/* summed as 32-bit fixed point at a scale agreed for each tensor */
	INAGG_FLOAT16	= 2,	/* IEEE binary16 */
	INAGG_BFLOAT16	= 3,	/* the upper half of binary32 */
	INAGG_DTYPES,

	/* libinagg only, as several INT32; AF_INAGG gives EINVAL */
	INAGG_INT64	= 16,
	INAGG_FLOAT64	= 17,	/* summed exactly, then rounded once */
};

enum inagg_op {
	INAGG_SUM	= 0,
	INAGG_MIN	= 1,
	INAGG_MAX	= 2,
	INAGG_AVG	= 3,	/* of floats: the sum divided by the ranks in it */
	INAGG_OPS
};

/* Keep the scale agreed over the wire (Theorem 2 of SwitchML). */
#define INAGG_SCALE_AUTO	(-2147483647 - 1)

/* Socket options of level SOL_INAGG.  An int each, unless it says otherwise. */
enum inagg_sockopt {
	INAGG_ALGORITHM		= 1,	/* text, as TCP_CONGESTION; before connect() */
	INAGG_DTYPE		= 2,	/* enum inagg_dtype of the next tensors */
	INAGG_OP		= 3,	/* enum inagg_op of the next tensors */
	INAGG_SCALE		= 4,	/* k: float32 sums travel as round(x * 2^k); INAGG_SCALE_AUTO */
	INAGG_WINDOW		= 5,	/* most blocks in flight; 0: as many as the job has slots */
	INAGG_BLOCK		= 6,	/* most 32-bit elements a packet, a multiple of 32; 0: by MTU; before connect() */
	INAGG_RTO_MIN		= 7,	/* microseconds: floor of the retransmission timer; before connect() */
	INAGG_DEADLINE		= 8,	/* milliseconds without progress, of connect() and of tensors, until ETIMEDOUT */
	INAGG_CHECKED		= 9,	/* 1: payload checksums; before connect() */
	INAGG_BUFFER		= 10,	/* bytes of tensors the socket holds; before the first send() */
	INAGG_INFO		= 11,	/* get only: struct inagg_info */
	INAGG_KEY		= 12,	/* set only: 16 bytes, of joins, or none; before connect() */
	INAGG_EXPIRY		= 13,	/* trio: microseconds that a block waits for its next rank; 0: for all; before connect() */
	INAGG_QUORUM		= 14,	/* trio: ranks that decide a block at once; 0: all; before connect() */
	INAGG_HISTORY		= 15,	/* trio: bytes of results kept for and from stragglers; before connect() */
	INAGG_EXCLUDE		= 16,	/* trio: milliseconds of silence that exclude a rank; 0: never; before connect() */
	INAGG_VERIFY		= 17,	/* set only: 16 bytes that verify results, or none; before connect() */
};

#define INAGG_MOST_BLOCKS	512	/* in one INAGG_CMSG_BLOCKS */

/* Control messages of level SOL_INAGG. */
enum inagg_cmsg {
	INAGG_CMSG_TENSOR	= 1,	/* sendmsg(): struct inagg_tensor_type of this tensor only */
	INAGG_CMSG_AGREED	= 5,	/* sendmsg(): __u64, with INAGG_VERIFY compared over the ranks; 0 where it is left out */
	INAGG_CMSG_RESULT	= 2,	/* recvmsg(): struct inagg_result_info, with MSG_EOR */
	INAGG_CMSG_BLOCKS	= 4,	/* recvmsg(), trio: for each block whose last element this call took, a bitmap of its ranks: __u64 */
	INAGG_CMSG_FAULT	= 3,	/* recvmsg(MSG_ERRQUEUE): struct sock_extended_err; the data is struct inagg_fault */
};

enum inagg_tensor_flag {
	INAGG_TENSOR_WHOLE	= 1 << 0,	/* trio: no result without all ranks */
	INAGG_TENSOR_RENEW	= 1 << 1,	/* of a barrier: take excluded ranks back that have joined again */
	INAGG_TENSOR_UNVERIFIED	= 1 << 2,	/* of a minimum or maximum, in spite of INAGG_VERIFY */
};

struct inagg_tensor_type {
	__u8	dtype;		/* enum inagg_dtype */
	__u8	op;		/* enum inagg_op */
	__u16	flags;		/* enum inagg_tensor_flag */
	__s32	scale;		/* as the option INAGG_SCALE */
};

enum inagg_result_flag {
	INAGG_RESULT_DEGRADED	= 1 << 0,	/* some ranks are missing from the result */
	INAGG_RESULT_RENEWED	= 1 << 1,	/* of a barrier: the job has gone on to its next generation */
};

/* A tensor travels in blocks, and with trio each is decided for itself. */
struct inagg_result_info {
	__u64	contributors;	/* bitmap of the ranks that are in every block */
	__u16	count;		/* ranks in the block that has the fewest */
	__u16	flags;		/* enum inagg_result_flag */
	__u32	block_elements;	/* elements in a block; the last one may have fewer */
	__u64	any;		/* bitmap of the ranks that are in at least one block */
	__u32	blocks;		/* 0 for a barrier */
	__u32	degraded_blocks;	/* of them, those without some rank */
};

/* Why a socket failed, for people: which block, and who is missing. */
struct inagg_fault {
	__u64	missing;	/* bitmap of ranks the switch waits for, if heard */
	__u32	error;		/* errno value */
	__u32	reason;		/* enum inagg_reason that the switch gave; 0: none */
	__u32	block;		/* the oldest one unanswered; EKEYREJECTED: the one whose results do not hold */
	__u16	job;
	__u8	control;	/* 1: `block` is a control block: scales, barriers, small float sums */
	__u8	heard;		/* 1: the switch said who is missing; EKEYREJECTED: its answers were all alike */
	__u8	above[16];	/* address of the server or switch above that gave `reason`, IPv4 as ::ffff:a.b.c.d; else 0 */
	__u8	tree;		/* 1: there are switches or servers above this rank's */
	__u8	reserved[7];
};

struct inagg_info {
	__u16	job;
	__u16	rank;
	__u16	size;
	__u16	generation;	/* incarnation of the job */
	__u16	boot;		/* incarnation of the switch */
	__u16	elements;	/* 32-bit elements a packet */
	__u32	slots;
	__u64	blocks;		/* results received */
	__u64	contributions;	/* first transmissions */
	__u64	retransmissions;
	__u64	requests;	/* header-only requests after time-outs */
	__u64	restores;	/* results given back to a switch that lost them */
	__u64	duplicates;	/* results that were already here */
	__u64	rejected;	/* packets with a wrong length, checksum, job or generation */
	__u64	reboots;	/* changes of the switch's boot id */
	__u64	srtt_ns;	/* smoothed round trip of a block */
	__u64	degraded;	/* trio: results without some rank */
	__u64	skipped;	/* trio: blocks that were decided before this rank came to them */
	__u64	abstained;	/* trio: blocks that this rank could not add to: their scale was agreed without it */
	__u64	refused;	/* trio: contributions for which the switch had no room */
	__u64	ahead;		/* trio: data blocks behind those of all tensors sent, whose results are here */
	__u64	excluded;	/* trio: bitmap of ranks that the others have gone on without */
	__u64	mismatches;	/* results that were not what the ranks have sent: INAGG_VERIFY */
	__u64	temporary;	/* trio: bitmap of ranks without which blocks were decided lately */
	__u64	permanent;	/* trio: bitmap of ranks that nothing was heard of for long, and of those that are excluded */
};

#endif /* INAGG_UAPI_H */
