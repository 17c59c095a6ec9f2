/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What every algorithm does with elements and results: fold a packet into a block's memory, round sums of
 * 16-bit floats, tell ranks who is in, deliver results.  The algorithm decides, under the block's lock.
 */
#ifndef INAGG_ANSWER_H
#define INAGG_ANSWER_H

/* Where a block is: a copy of a slot (switchml), or a record and its lanes (trio). */
struct place {
	__u32	*busy;		/* the lock of what follows */
	__u32	*ready;		/* lanes hold the result, as on the wire */
	__u64	*lanes;
	struct inagg_slot *state;
	const struct inagg_record *record;	/* around `state`; NULL: a slot */
};

/* What there is to say about a block; copied while its lock is held. */
struct report {
	struct inagg_slot state;	/* of ranks that are in: `seen` */
	__u64	absent;			/* of a WAIT: ranks that it names beside them */
	__u16	count;			/* of a result: how many */
	__u16	flags;			/* enum inagg_flag; of a WAIT only MULTICAST and SATURATED count */
	__u16	epoch;
	__u16	cap;			/* of a WAIT: the block was refused */
};

static __always_inline int is_half(__u8 dtype_op)
{
	__u8 dtype = dtype_op >> 4;

	return dtype == INAGG_WIRE_FLOAT16 || dtype == INAGG_WIRE_BFLOAT16;
}

static __always_inline int is_float(__u8 dtype_op)
{
	return dtype_op >> 4 == INAGG_WIRE_FLOAT32;
}

static __always_inline __u32 mantissa_bits(__u8 dtype_op)
{
	return dtype_op >> 4 == INAGG_WIRE_FLOAT16 ? 10 : 7;
}

static __always_inline int is_plain_sum(__u8 dtype_op)
{
	return dtype_op == INAGG_WIRE_FIXED32 << 4 || dtype_op == INAGG_WIRE_INT32 << 4;
}

/* The header of what the switch says about a block, but for its checksums. */
static __always_inline void write_answer(struct inagg_hdr *h, const struct packet *p, const struct inagg_job *job, __u8 type,
					 const struct report *r)
{
	int sum = type != INAGG_WAIT;
	__u16 flags = p->flags & INAGG_F_VERSION;

	flags |= sum ? r->flags | r->state.marks | (p->flags & INAGG_F_RESEND) : r->flags & (INAGG_F_MULTICAST | INAGG_F_SATURATED);
	if (sum && (r->state.flags & INAGG_SLOT_SATURATED))
		flags |= INAGG_F_SATURATED;
	h->payload_checksum = 0;
	h->version_type = INAGG_WIRE_VERSION << 4 | type;
	h->level_flags = bpf_htons(flags);
	h->boot = bpf_htons(p->boot);
	h->fan_in = bpf_htons(job->size);
	h->count = sum ? bpf_htons(r->count) : 0;
	h->contributors = bpf_cpu_to_be64(sum ? r->state.seen : r->state.seen | r->absent);
	h->window_cap = bpf_htons(sum ? r->state.cap : r->cap);
	h->switch_id = bpf_htons(r->epoch);
	h->dtype_op = p->block.dtype_op;
	h->scale = p->block.scale;
	h->next_scale = sum ? r->state.next_scale : 0;
	h->elements = sum ? bpf_htons(r->state.elements) : 0;
}

/* The same in the frame, whose payload is final. */
static __always_inline void answer(struct xdp_md *ctx, const struct packet *p, const struct inagg_job *job,
				   __u8 type, const struct report *r)
{
	int checked = job->flags & INAGG_JOIN_CHECKED;
	__u32 checksum = 0;
	struct inagg_hdr *h;
	void *end;

	if (checked)
		checksum = payload_checksum(ctx, p->payload / 64);
	h = header_of(ctx, &end);
	if (!h)
		return;
	write_answer(h, p, job, type, r);
	if (checked)
		inagg_hdr_seal_checked(h, checksum);
	else
		inagg_hdr_seal(h);
}

/* Set a flag of a packet that is otherwise left as it came, or as it was finished. */
static __always_inline void flag_header(struct inagg_hdr *h, __u16 flag)
{
	__u32 payload = inagg_hdr_payload_part(h);

	h->level_flags |= bpf_htons(flag);
	inagg_hdr_reseal(h, payload);
}

static __always_inline int add_flag(const struct xdp_md *ctx, __u16 flag)
{
	struct inagg_hdr *h;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return -1;
	flag_header(h, flag);
	return 0;
}

/* Send the finished frame to one rank, or to all. */
static __always_inline int send(struct xdp_md *ctx, const struct packet *p, const struct inagg_job *job,
				struct inagg_stats *count, int everyone)
{
	return everyone ? multicast(ctx, p->payload, job, count) : reply(ctx, p->payload, p->reply_port);
}

/* Tell one rank, or all, who is in. */
static __always_inline int tell(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
				struct inagg_stats *count, const struct report *r, int everyone)
{
	if (resize(ctx, p, 0))
		return drop(count, -INAGG_R_RESIZE);
	answer(ctx, p, job, INAGG_WAIT, r);
	return send(ctx, p, job, count, everyone);
}

/*
 * Do with the packet's elements as @verdict says; the lock is held.  16-bit floats have been widened.
 * 1: the packet is the result already.
 */
static __always_inline int fold(struct xdp_md *ctx, const struct place *at, const struct packet *p, void *payload, void *end,
				int verdict)
{
	int action = INAGG_VERDICT(verdict), complete = verdict & INAGG_COMPLETES, fused;
	struct lanes *sums = (struct lanes *)at->lanes;
	__u32 chunks = p->block.elements / INAGG_CHUNK;
	__u8 dtype_op = p->block.dtype_op;
	int wide = is_half(at->state->dtype_op);	/* a packet that adds nothing may claim another type */

	fused = complete && action == INAGG_ADD && is_plain_sum(dtype_op);
	if (fused)
		lanes_complete(payload, end, at->lanes, chunks, dtype_op);
	else if (action == INAGG_STORE && wide)
		wide_store(sums, chunks);
	else if (action == INAGG_STORE)
		lanes_store(payload, end, at->lanes, chunks);
	else if (action == INAGG_ADD && wide)
		wide_add(sums, chunks);
	else if (action == INAGG_ADD && is_plain_sum(dtype_op))
		lanes_add(payload, end, at->lanes, chunks, dtype_op);
	else if (action == INAGG_ADD && dtype_op >> 4 == INAGG_WIRE_INT32)
		lanes_choose(ctx, (struct lanes *)at->lanes, chunks, dtype_op & 0xf);
	*at->ready = complete && !(wide && at->state->elements);
	return fused;
}

static __always_inline int widen_elements(struct xdp_md *ctx, const struct packet *p, const struct inagg_job *job)
{
	__u32 log2 = job->fan_in_log2;

	if (!is_half(p->block.dtype_op))
		return 0;
	return widen(ctx, mantissa_bits(p->block.dtype_op), log2, p->block.scale, inagg_fixed_bias(log2));
}

/* Does the place hold the packet's block?  The lock is held. */
static __always_inline int still_there(const struct place *at, const struct packet *p, const struct inagg_job *job)
{
	return inagg_slot_holds(at->state, &p->block) &&
	       (!at->record || (at->record->job == job->index && at->record->stream == p->block.stream));
}

/*
 * Round the sums of a complete block of 16-bit floats, once for the multicast and every reply.  Without the
 * lock, as it takes long; should two CPUs do it, they do the same.
 */
static __always_inline int round_sums(const struct place *at, const struct packet *p, const struct inagg_job *job,
				      const struct report *r)
{
	__u32 log2 = job->fan_in_log2, chunks = r->state.elements / INAGG_CHUNK;
	struct lanes *sums = (struct lanes *)at->lanes;

	if (!lock_word(at->busy))
		return -1;
	wide_load(sums, chunks);
	unlock_word(at->busy);
	if (narrow(chunks, mantissa_bits(r->state.dtype_op), log2, r->state.scale,
		   r->count * inagg_fixed_bias(log2)))
		return -1;
	if (!lock_word(at->busy))
		return -1;
	/* else it has begun anew, and the lanes hold a sum under way */
	if (!*at->ready && still_there(at, p, job) && (at->state->flags & INAGG_SLOT_COMPLETE)) {
		wide_store(sums, (chunks + 1) / 2);
		*at->ready = 1;
	}
	unlock_word(at->busy);
	return 0;
}

/*
 * The block is complete, but the frame of a request is too short for the result (a veth's, whose skb cannot grow): as if it were
 * forgotten, so that the sender sends its elements again, which bring the room.
 */
static __always_inline int want_elements(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job, const struct report *r,
					 struct inagg_stats *count)
{
	struct report forgotten = {.epoch = r->epoch};

	count->waits++;
	return tell(ctx, p, job, count, &forgotten, 0);
}

/* Put the result of a complete block into the frame and send it.  Whoever does not get it asks again. */
static __always_inline int deliver(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
				   const struct place *at, const struct report *r, struct inagg_stats *count,
				   int everyone)
{
	__u32 bytes = r->state.elements * inagg_element_bytes(r->state.dtype_op >> 4), ready;

	if (is_half(r->state.dtype_op) && !*(volatile __u32 *)at->ready && round_sums(at, p, job, r))
		return drop(count, -INAGG_R_BUSY);
	if (bytes > INAGG_MAX_PAYLOAD)
		return drop(count, -INAGG_R_RESIZE);
	if (resize(ctx, p, bytes))
		return p->type == INAGG_REQUEST ? want_elements(ctx, p, job, r, count) : drop(count, -INAGG_R_RESIZE);
	if (!lock_word(at->busy))
		return drop(count, -INAGG_R_BUSY);
	ready = *at->ready && still_there(at, p, job);
	if (ready)
		lanes_load(ctx, (struct lanes *)at->lanes, bytes / 64);
	unlock_word(at->busy);
	if (!ready)
		return drop(count, -INAGG_R_STALE);
	p->block.dtype_op = r->state.dtype_op;
	p->block.scale = r->state.scale;
	count->replies += !everyone;
	answer(ctx, p, job, INAGG_RESULT, r);
	return send(ctx, p, job, count, everyone);
}

#endif /* INAGG_ANSWER_H */
