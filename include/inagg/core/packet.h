/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * What a worker writes into its packets, and which of a switch's answers it believes.
 */
#ifndef INAGG_CORE_PACKET_H
#define INAGG_CORE_PACKET_H

#include <inagg/core/checksum.h>
#include <inagg/core/types.h>
#include <inagg/core/worker.h>
#include <inagg/reason.h>
#include <inagg/wire.h>

#define INAGG_MAX_SLOTS	(1U << 13)	/* of a stream: timers look at all of them, in interrupts too */

/* A worker's membership, host byte order: what it asked for, then struct inagg_config's answer. */
struct inagg_job_config {
	__u16	job, rank, size, generation, boot;
	__u16	elements;	/* 32-bit elements per packet */
	__u32	slots, control_slots;
	__u8	algorithm;	/* enum inagg_algorithm */
	__u8	checked;	/* payload checksums */
	__u8	tree;		/* switches in a tree add: sums of 16-bit floats travel as fixed point */
	__u8	integers;	/* panama, where a switch adds no floats: all sums of floats do */
	__u8	big_endian;	/* elements are turned, outbound and inbound */
	__u8	blocks;		/* most that the switch takes in a CONTRIBUTION of several buffers; 0: one */
	__u16	quorum;		/* trio, asked for: ranks that decide a block; 0: all */
	__u32	expiry_us;	/* trio, asked for: a block waits so long for its next rank; 0: for all */
	__u32	exclude_ms;	/* trio, asked for: a rank that is silent for so long is excluded; 0: none */
};

/* What goes into a block's header beside its number. */
struct inagg_block_meta {
	__u8	dtype_op;	/* enum inagg_wire_dtype << 4 | enum inagg_wire_op */
	__u8	scale;		/* agreed exponent, 0 where none is needed */
	__u8	next_scale;	/* control blocks: exponent asked for; results: the maximum */
	__u8	saturated;
	__u16	elements;	/* multiple of INAGG_CHUNK; 0 contributes nothing */
	__u8	whole;		/* trio: no result without all ranks */
	__u8	absent;		/* trio: this rank adds nothing to the block */
	__u16	epoch;		/* trio: of a block that is being recovered */
	__u64	contributors;	/* results: ranks in the sum */
};

/** Blocks of @elements for which a packet has room, in @room bytes behind its header; 0: two would be no more than one may have. */
INAGG_INLINE __u32 inagg_blocks_of_room(__u32 elements, __u32 room)
{
	const __u32 bytes = elements * 4;

	if (2 * bytes <= INAGG_MAX_PAYLOAD)
		return 0;
	return room / bytes < INAGG_MAX_BLOCKS ? room / bytes : INAGG_MAX_BLOCKS;
}

/** May the elements of the next block follow those of this CONTRIBUTION in its packet?  A plain sum's, sent for the first time. */
INAGG_INLINE int inagg_may_be_joined(const struct inagg_hdr *h)
{
	const __u16 others = ~(INAGG_F_VERSION | INAGG_F_SATURATED | INAGG_F_WHOLE) & INAGG_FLAGS_MASK;

	return !(inagg_swap16(h->level_flags) & others) &&
	       (h->dtype_op == INAGG_WIRE_INT32 << 4 || h->dtype_op == INAGG_WIRE_FIXED32 << 4);
}

/** Payload bytes of a block. */
INAGG_INLINE __u32 inagg_block_bytes(const struct inagg_block_meta *m)
{
	return m->elements * inagg_element_bytes(m->dtype_op >> 4);
}

/**
 * Turn @bytes of elements from this machine's byte order to big-endian, or back: whole words, since none are smaller
 * where a job is big-endian.  @payload may be unaligned.
 */
INAGG_INLINE void inagg_turn_elements(void *payload, __u32 bytes)
{
	__u8 *at = (__u8 *)payload;
	__u32 word;

	for (; bytes >= sizeof(word); bytes -= sizeof(word), at += sizeof(word)) {
		__builtin_memcpy(&word, at, sizeof(word));
		word = inagg_swap32(word);
		__builtin_memcpy(at, &word, sizeof(word));
	}
}

/** 32-bit elements per packet that a UDP payload of @path_payload bytes can carry; 0: too small. */
INAGG_INLINE __u16 inagg_elements_for(__u32 path_payload)
{
	const __u32 most = sizeof(struct inagg_hdr) + INAGG_MAX_PAYLOAD;
	__u32 room = path_payload < most ? path_payload : most;

	if (room < sizeof(struct inagg_hdr))
		return 0;
	return (__u16)((room - sizeof(struct inagg_hdr)) / 4 / INAGG_CHUNK * INAGG_CHUNK);
}

/*
 * Start @h with what all packets of this member share; not sealed yet.  Who sends anything but a first contribution
 * repairs a block; a switch keeps the flag in the RESULT that it makes from the packet.
 */
INAGG_INLINE void inagg_hdr_start(struct inagg_hdr *h, const struct inagg_job_config *job, __u8 type)
{
	__builtin_memset(h, 0, sizeof(*h));
	h->version_type = (__u8)(INAGG_WIRE_VERSION << 4 | type);
	if (type == INAGG_REQUEST || type == INAGG_RESTORE)
		h->level_flags = inagg_swap16(INAGG_F_RESEND);
	h->job = inagg_swap16(job->job);
	h->generation = inagg_swap16(job->generation);
	h->source = inagg_swap16(job->rank);
	h->count = inagg_swap16(1);
	h->fan_in = inagg_swap16(job->size);
	h->contributors = inagg_swap64(inagg_rank_bit(job->rank));
	h->boot = inagg_swap16(job->boot);
}

/** Name @block of the stream whose slots begin at @first_slot of the job's pool. */
INAGG_INLINE void inagg_hdr_set_block(struct inagg_hdr *h, const struct inagg_worker *w, __u32 first_slot, __u32 block)
{
	if (inagg_pool_version(w, block))
		h->level_flags |= inagg_swap16(INAGG_F_VERSION);
	h->block = inagg_swap32(block);
	h->slot = inagg_swap32(first_slot + inagg_slot_index(w, block));
}

INAGG_INLINE void inagg_hdr_set_meta(struct inagg_hdr *h, const struct inagg_block_meta *m)
{
	h->dtype_op = m->dtype_op;
	h->scale = m->scale;
	h->next_scale = m->next_scale;
	h->elements = inagg_swap16(m->elements);
	h->switch_id = inagg_swap16(m->epoch);
	if (m->saturated)
		h->level_flags |= inagg_swap16(INAGG_F_SATURATED);
	if (m->whole)
		h->level_flags |= inagg_swap16(INAGG_F_WHOLE);
	if (m->absent)
		h->level_flags |= inagg_swap16(INAGG_F_ABSENT);
}

/** A RESTORE names the ranks that are in the result, @m, which inagg_hdr_set_meta() has written. */
INAGG_INLINE void inagg_hdr_set_contributors(struct inagg_hdr *h, const struct inagg_block_meta *m)
{
	h->contributors = inagg_swap64(m->contributors);
	h->count = inagg_swap16((__u16)inagg_count_ranks(m->contributors));
	if (m->contributors != inagg_all_ranks(inagg_swap16(h->fan_in)))
		h->level_flags |= inagg_swap16(INAGG_F_DEGRADED);
}

INAGG_INLINE struct inagg_block_meta inagg_hdr_meta(const struct inagg_hdr *h)
{
	struct inagg_block_meta m = {
		.dtype_op = h->dtype_op,
		.scale = h->scale,
		.next_scale = h->next_scale,
		.saturated = (inagg_swap16(h->level_flags) & INAGG_F_SATURATED) != 0,
		.elements = inagg_swap16(h->elements),
		.whole = (inagg_swap16(h->level_flags) & INAGG_F_WHOLE) != 0,
		.absent = (inagg_swap16(h->level_flags) & INAGG_F_ABSENT) != 0,
		.epoch = inagg_swap16(h->switch_id),
		.contributors = inagg_swap64(h->contributors),
	};
	return m;
}

/** The body of a JOIN or LEAVE. */
INAGG_INLINE void inagg_join_fill(struct inagg_join *join, const struct inagg_job_config *job, __u64 nonce,
				  __u16 receive_port)
{
	__builtin_memset(join, 0, sizeof(*join));
	join->nonce = inagg_swap64(nonce);
	join->size = inagg_swap16(job->size);
	join->elements = inagg_swap16(job->elements);
	join->receive_port = inagg_swap16(receive_port);
	join->algorithm = job->algorithm;
	join->flags = (job->checked ? INAGG_JOIN_CHECKED : 0) | INAGG_JOIN_BIG_ENDIAN;
	join->expiry_us = inagg_swap32(job->expiry_us);
	join->quorum = inagg_swap16(job->quorum);
	join->exclude_ms = inagg_swap32(job->exclude_ms);
}

/**
 * Take over what a CONFIG says, @h its header.  0, or why no sane switch would answer this to what @job
 * asked: -INAGG_R_SIZE, _ALGORITHM, _MTU or _SLOT.
 */
INAGG_INLINE int inagg_config_accept(struct inagg_job_config *job, const struct inagg_hdr *h, const struct inagg_config *c)
{
	__u16 offered = job->elements;

	job->generation = inagg_swap16(h->generation);
	job->boot = inagg_swap16(h->boot);
	job->elements = inagg_swap16(c->elements);
	job->slots = inagg_swap32(c->slots);
	job->control_slots = inagg_swap32(c->control_slots);
	job->checked = c->flags & INAGG_JOIN_CHECKED;
	job->tree = (c->flags & (INAGG_JOIN_TREE | INAGG_JOIN_BIG_ENDIAN)) != 0;	/* then whole words only are turned */
	job->integers = (c->flags & INAGG_JOIN_INTEGERS) != 0;
	job->big_endian = (c->flags & INAGG_JOIN_BIG_ENDIAN) != 0;
	job->blocks = inagg_swap16(h->count) <= INAGG_MAX_BLOCKS ? (__u8)inagg_swap16(h->count) : 0;
	if (inagg_swap16(c->size) != job->size)
		return -INAGG_R_SIZE;
	if (c->algorithm != job->algorithm)
		return -INAGG_R_ALGORITHM;
	if (!job->elements || job->elements % INAGG_CHUNK || job->elements > offered)
		return -INAGG_R_MTU;
	if (!job->slots || (job->slots & (job->slots - 1)) || job->slots > INAGG_MAX_SLOTS || !job->control_slots ||
	    (job->control_slots & (job->control_slots - 1)) || job->control_slots > INAGG_MAX_SLOTS)
		return -INAGG_R_SLOT;
	return 0;
}

/** The most blocks that RESULT @h lets a rank have in flight; 0: no cap. */
INAGG_INLINE __u16 inagg_result_cap(const struct inagg_job_config *job, const struct inagg_hdr *h)
{
	return job->algorithm == INAGG_PANAMA ? inagg_swap16(h->window_cap) : 0;
}

/** A packet's header is intact and of this wire version and job.  0 or a negative reason. */
INAGG_INLINE int inagg_answer_admits(const struct inagg_job_config *job, const struct inagg_hdr *h)
{
	if (!inagg_hdr_intact(h))
		return -INAGG_R_HEADER_CHECKSUM;
	if (inagg_hdr_version(h) != INAGG_WIRE_VERSION)
		return -INAGG_R_VERSION;
	if (inagg_swap16(h->job) != job->job)
		return -INAGG_R_JOB;
	return 0;
}

/** Is a join that was refused for @reason to be repeated until its deadline?  Other reasons last. */
INAGG_INLINE int inagg_refusal_may_pass(__u32 reason)
{
	return reason == INAGG_R_EXCLUDED || reason == INAGG_R_FORMING;
}

/** Who refuses, if it is not who sends @h and @r: address of a server or switch above, IPv4 as ::ffff:a.b.c.d; else null. */
INAGG_INLINE const __u8 *inagg_refused_above(const struct inagg_hdr *h, const struct inagg_refusal *r)
{
	return inagg_hdr_level(h) == INAGG_LEVEL_ABOVE ? r->above : (const __u8 *)0;
}

/** Say in a REFUSED that @above does, in that form. */
INAGG_INLINE void inagg_refuse_for(struct inagg_hdr *h, struct inagg_refusal *r, const __u8 above[16])
{
	h->level_flags |= inagg_swap16(INAGG_LEVEL_ABOVE << INAGG_LEVEL_SHIFT);
	__builtin_memcpy(r->above, above, sizeof(r->above));
}

/* Does a RESULT name the ranks that it may: all, or, if stragglers are left out, some? */
INAGG_INLINE int inagg_contributors_admitted(const struct inagg_job_config *job, const struct inagg_hdr *h)
{
	__u64 in = inagg_swap64(h->contributors), all = inagg_all_ranks(job->size);
	int degraded = (inagg_swap16(h->level_flags) & INAGG_F_DEGRADED) != 0;

	if (inagg_swap16(h->count) != inagg_count_ranks(in))
		return 0;
	if (!degraded)
		return in == all;
	return job->algorithm == INAGG_TRIO && in && !(in & ~all);
}

/**
 * A RESULT, WAIT or BLOCK_FAILED with @bytes behind its header fits the stream @w, whose slots begin at @first_slot.
 * The payload checksum is the caller's to verify.  0 or a negative reason.
 */
INAGG_INLINE int inagg_block_admits(const struct inagg_job_config *job, const struct inagg_worker *w, __u32 first_slot,
				    const struct inagg_hdr *h, __u32 bytes)
{
	struct inagg_block_meta m = inagg_hdr_meta(h);
	__u32 block = inagg_swap32(h->block);
	int version = (inagg_swap16(h->level_flags) & INAGG_F_VERSION) != 0;

	if (inagg_swap16(h->generation) != job->generation)
		return -INAGG_R_GENERATION;
	if (first_slot + inagg_slot_index(w, block) != inagg_swap32(h->slot) || (int)inagg_pool_version(w, block) != version)
		return -INAGG_R_SLOT;
	if (inagg_hdr_type(h) != INAGG_RESULT)
		return bytes ? -INAGG_R_LENGTH : 0;
	if (m.elements % INAGG_CHUNK || bytes > (__u32)job->elements * 4)
		return -INAGG_R_ELEMENTS;
	if (bytes != inagg_block_bytes(&m))
		return -INAGG_R_LENGTH;
	return inagg_contributors_admitted(job, h) ? 0 : -INAGG_R_RANK;
}

#endif /* INAGG_CORE_PACKET_H */
