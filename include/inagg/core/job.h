/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * A switch's record of a job and of the ranks in it, and the check every packet passes before it may
 * touch a slot.
 */
#ifndef INAGG_CORE_JOB_H
#define INAGG_CORE_JOB_H

#include <inagg/core/fixed.h>
#include <inagg/core/slot.h>
#include <inagg/core/types.h>
#include <inagg/reason.h>
#include <inagg/wire.h>

struct inagg_job {
	__u64	all;		/* ranks that blocks wait for here: of the whole job, but for those that are excluded, or
				 * with a parent those behind this switch */
	__u32	index;		/* this job's row in members, ports and stats */
	__u32	first_slot;	/* its pool in the switch's slots */
	__u32	slots;		/* data slots, a power of two */
	__u32	control_slots;	/* behind them, a power of two */
	__u16	generation;
	__u16	size;		/* ranks */
	__u16	elements;	/* 32-bit elements per packet */
	__u16	group_port;	/* results go to this UDP port of `group`, network byte order; 0: no group */
	__u8	algorithm;	/* enum inagg_algorithm */
	__u8	flags;		/* enum inagg_join_flag */
	__u8	fan_in_log2;	/* inagg_fan_in_log2(size) */
	__u8	family;		/* of `group`: 4 or 6 */
	__u8	group_mac[6];
	__u8	keep;		/* configured: stays when all its ranks have left */
	__u8	blocks;		/* most in a CONTRIBUTION that all ports carry; 0, 1: one */
	__u8	group[16];	/* IPv4 in the first 4 bytes */
};

INAGG_ASSERT(sizeof(struct inagg_job) == 64);

/* One rank: where it may speak from and where its results go. */
struct inagg_member {
	__u64	nonce;		/* of its JOIN; 0 in a static job: any */
	__u32	ifindex;	/* port; 0: nobody has joined */
	__u16	receive_port;	/* UDP, network byte order */
	__u8	family;		/* 4 or 6 */
	__u8	flags;		/* enum inagg_member_flag */
	__u8	mac[6];
	__u8	leaf;		/* panama: of the tree in which floats are added, for this rank or its switch: core/merge.h */
	__u8	reserved;
	__u8	address[16];	/* IPv4 in the first 4 bytes */
};

enum inagg_member_flag {
	INAGG_MEMBER_STATIC	= 1 << 0,	/* configured: the JOIN fills in nonce, MAC and receive port */
	INAGG_MEMBER_RESERVED	= 1 << 1,	/* the agent lets only this port and address join as this rank */
	INAGG_MEMBER_LEFT	= 1 << 2,	/* has left this generation */
	INAGG_MEMBER_SWITCH	= 1 << 3,	/* behind the switch that has this address, and speaks for it */
};

INAGG_ASSERT(sizeof(struct inagg_member) == 40);

/* Counters of one job on one CPU; also the row of packets that belong to no job. */
struct inagg_stats {
	__u64	packets;	/* intact, and from who speaks for the rank or switch that they name */
	__u64	additions;	/* contributions folded in: ranks x blocks */
	__u64	completions;	/* blocks completed and multicast */
	__u64	duplicates;	/* contributions that were already in */
	__u64	replies;	/* results sent again to one rank */
	__u64	waits;		/* WAITs sent */
	__u64	restores;	/* results given back by a rank */
	__u64	joins;		/* joins answered, also with a refusal */
	__u64	elements;	/* folded in */
	__u64	degraded;	/* completions without some rank */
	__u64	late;		/* contributions to a block that was decided without them */
	__u64	recoveries;	/* blocks whose record was gone and that all ranks were asked for */
	__u64	expired;	/* completions by what adds nothing: a TICK, a rank that is absent or in already */
	__u64	relayed;	/* in a tree: passed to the parent, or results passed down; canary: what is neither summed nor for all */
	__u64	collisions;	/* atp: contributions whose aggregator another block had */
	__u64	partials;	/* atp: sums sent on before all ranks here were in */
	__u64	saturated;	/* atp, the server: blocks that all ranks were asked for as floats */
	__u64	drops[INAGG_R_CAPACITY];	/* by enum inagg_reason */
};

/** The block of @h in host byte order; no check is made here. */
INAGG_INLINE struct inagg_block inagg_block_of(const struct inagg_hdr *h)
{
	struct inagg_block b = {
		.block = inagg_swap32(h->block),
		.generation = inagg_swap16(h->generation),
		.rank = inagg_swap16(h->source),
		.elements = inagg_swap16(h->elements),
		.dtype_op = h->dtype_op,
		.scale = h->scale,
		.next_scale = h->next_scale,
		.saturated = (inagg_swap16(h->level_flags) & INAGG_F_SATURATED) != 0,
		.marks = (__u16)(inagg_swap16(h->level_flags) & INAGG_KEPT_FLAGS),
		.cap = inagg_swap16(h->window_cap),
		.stream = 0,	/* inagg_stream_of(), which needs the job */
		.whole = (inagg_swap16(h->level_flags) & INAGG_F_WHOLE) != 0,
		.absent = (inagg_swap16(h->level_flags) & INAGG_F_ABSENT) != 0,
		.epoch = inagg_swap16(h->switch_id),
		.contributors = inagg_swap64(h->contributors),
	};
	return b;
}

/** Has the job gone on without @rank, for good (trio)? */
INAGG_INLINE int inagg_job_excludes(const struct inagg_job *job, __u32 rank)
{
	return !(job->all & inagg_rank_bit(rank));
}

/** The ranks that it has gone on without.  Nobody in a tree, where it lacks those behind other switches. */
INAGG_INLINE __u64 inagg_job_excluded(const struct inagg_job *job)
{
	return job->flags & INAGG_JOIN_TREE ? 0 : inagg_all_ranks(job->size) & ~job->all;
}

/** How many they are: it only rises in a generation. */
INAGG_INLINE __u32 inagg_job_era(const struct inagg_job *job)
{
	return inagg_count_ranks(inagg_job_excluded(job));
}

/** Are floats added as floats (panama)?  Not if CONFIG says that a switch of the job cannot. */
INAGG_INLINE int inagg_job_adds_floats(const struct inagg_job *job)
{
	return job->algorithm == INAGG_PANAMA && !(job->flags & INAGG_JOIN_INTEGERS);
}

/*
 * May the switch fold this encoding?  A switch in a tree would have to send sums of 16-bit floats on at twice
 * their length, which a frame cannot grow to: there they travel as FIXED32.  With panama all float sums are FLOAT32,
 * unless a switch of the job adds no floats.
 */
INAGG_INLINE int inagg_foldable(const struct inagg_job *job, __u8 dtype, __u8 op)
{
	int adds_floats = inagg_job_adds_floats(job);

	switch (dtype) {
	case INAGG_WIRE_FLOAT16:
	case INAGG_WIRE_BFLOAT16:
		return op == INAGG_WIRE_SUM && !(job->flags & INAGG_JOIN_TREE) && !adds_floats &&
		       job->algorithm != INAGG_CANARY;
	case INAGG_WIRE_FIXED32:
		return op == INAGG_WIRE_SUM && !adds_floats;
	case INAGG_WIRE_NONE:
		return op == INAGG_WIRE_SUM;
	case INAGG_WIRE_INT32:
		return op < INAGG_WIRE_OPS;
	case INAGG_WIRE_FLOAT32:	/* atp: by the server alone; switches on the way pass it on */
		return op == INAGG_WIRE_SUM && (job->algorithm == INAGG_ATP || adds_floats);
	default:
		return 0;
	}
}

/** Stream of a slot index: 0 data, 1 control. */
INAGG_INLINE __u8 inagg_stream_of(const struct inagg_job *job, __u32 slot_index)
{
	return slot_index >= job->slots;
}

/** The only slot index that @block of @stream may name. */
INAGG_INLINE __u32 inagg_position_of(const struct inagg_job *job, __u32 stream, __u32 block)
{
	return stream ? job->slots + (block & (job->control_slots - 1)) : block & (job->slots - 1);
}

/** Pool version of @block of @stream: which copy of its slot. */
INAGG_INLINE __u32 inagg_version_of(const struct inagg_job *job, __u32 stream, __u32 block)
{
	return (block & (stream ? job->control_slots : job->slots)) != 0;
}

/**
 * Is block @b for slot @slot_index acceptable to @job, given @payload bytes behind the header?
 * Returns 0 or a negative reason.  The member (port, address) is the plane's to check.
 */
INAGG_INLINE int inagg_job_admits(const struct inagg_job *job, const struct inagg_block *b,
				  __u32 slot_index, __u32 payload)
{
	__u8 dtype = b->dtype_op >> 4;

	if (b->generation != job->generation)
		return -INAGG_R_GENERATION;
	if (b->rank >= job->size)
		return -INAGG_R_RANK;
	if (slot_index >= job->slots + job->control_slots)
		return -INAGG_R_SLOT;
	if (!inagg_foldable(job, dtype, b->dtype_op & 0xf))
		return -INAGG_R_DTYPE;
	if (b->elements % INAGG_CHUNK || b->elements > inagg_block_elements(job->elements, dtype) ||
	    (dtype == INAGG_WIRE_NONE && b->elements))
		return -INAGG_R_ELEMENTS;
	if (payload != b->elements * inagg_element_bytes(dtype))
		return -INAGG_R_LENGTH;
	return 0;
}

/** May ranks of @job send several blocks in a packet, where switch and MTU let them?  Each is added by itself, to integers. */
INAGG_INLINE int inagg_job_takes_several(const struct inagg_job *job)
{
	return (job->algorithm == INAGG_SWITCHML || job->algorithm == INAGG_TRIO) && !job->group_port &&
	       !(job->flags & (INAGG_JOIN_TREE | INAGG_JOIN_CHECKED));
}

/**
 * How many blocks a CONTRIBUTION with @payload bytes behind its header brings, @b the first and @slot its index, if it brings more
 * than one; each has as many elements as packets of @job have.  0: it is none that a switch takes.
 */
INAGG_INLINE __u32 inagg_blocks_in(const struct inagg_job *job, const struct inagg_block *b, __u32 slot, __u32 payload)
{
	__u32 blocks = 2;

	if (job->blocks < 2 || !inagg_job_takes_several(job) || b->elements != job->elements || b->absent)
		return 0;
	if (b->dtype_op != INAGG_WIRE_INT32 << 4 && b->dtype_op != INAGG_WIRE_FIXED32 << 4)
		return 0;
	while (blocks < job->blocks && blocks < INAGG_MAX_BLOCKS && blocks * b->elements * 4 < payload)
		blocks++;
	return payload > INAGG_MAX_PAYLOAD && payload == blocks * b->elements * 4 && slot + blocks <= job->slots ? blocks : 0;
}

#endif /* INAGG_CORE_JOB_H */
