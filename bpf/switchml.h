/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * SwitchML in XDP (Algorithm 3): core/slot.h decides under the slot's lock, which also covers the
 * elements: two ports' cores may meet in one slot, and a result must not leave before its last
 * addition.
 */
#ifndef INAGG_SWITCHML_H
#define INAGG_SWITCHML_H

static __always_inline int lock_slot(struct inagg_slot_memory *m)
{
	return lock_word(&m->busy);
}

static __always_inline void unlock_slot(struct inagg_slot_memory *m)
{
	unlock_word(&m->busy);
}

static __always_inline int is_half(__u8 dtype_op)
{
	__u8 dtype = dtype_op >> 4;

	return dtype == INAGG_WIRE_FLOAT16 || dtype == INAGG_WIRE_BFLOAT16;
}

static __always_inline __u32 mantissa_bits(__u8 dtype_op)
{
	return dtype_op >> 4 == INAGG_WIRE_FLOAT16 ? 10 : 7;
}

static __always_inline int is_plain_sum(__u8 dtype_op)
{
	return dtype_op == INAGG_WIRE_FIXED32 << 4 || dtype_op == INAGG_WIRE_INT32 << 4;
}

/* The header of what the switch says about a slot; the frame's payload is final. */
static __always_inline void answer(const struct xdp_md *ctx, const struct packet *p, const struct inagg_job *job,
				   __u8 type, const struct inagg_slot *s, __u64 contributors)
{
	int checked = job->flags & INAGG_JOIN_CHECKED;
	__u16 flags = p->flags & INAGG_F_VERSION;
	__u32 checksum = 0;
	struct inagg_hdr *h;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return;
	if (checked) {
		checksum = payload_checksum(h + 1, end, p->payload / 64);
		h = header_of(ctx, &end);
		if (!h)
			return;
	}
	if (type == INAGG_RESULT && (s->flags & INAGG_SLOT_SATURATED))
		flags |= INAGG_F_SATURATED;
	h->payload_checksum = 0;
	h->version_type = INAGG_WIRE_VERSION << 4 | type;
	h->level_flags = bpf_htons(flags);
	h->boot = bpf_htons(p->boot);
	h->fan_in = bpf_htons(job->size);
	h->count = type == INAGG_RESULT ? bpf_htons(job->size) : 0;
	h->contributors = bpf_cpu_to_be64(contributors);
	h->dtype_op = p->block.dtype_op;
	h->scale = p->block.scale;
	h->next_scale = type == INAGG_RESULT ? s->next_scale : 0;
	h->elements = type == INAGG_RESULT ? bpf_htons(s->elements) : 0;
	if (checked)
		inagg_hdr_seal_checked(h, checksum);
	else
		inagg_hdr_seal(h);
}

/* Send the finished frame to one rank, or to all. */
static __always_inline int send(struct xdp_md *ctx, const struct packet *p, const struct inagg_job *job,
				struct inagg_stats *count, int everyone)
{
	return everyone ? multicast(ctx, p->payload, job, count) : reply(ctx, p->payload, p->reply_port);
}

/* Tell one rank, or all, who is in. */
static __always_inline int tell(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
				struct inagg_stats *count, __u64 seen, int everyone)
{
	struct inagg_slot none = {};

	if (resize(ctx, p, 0))
		return drop(count, -INAGG_R_RESIZE);
	answer(ctx, p, job, INAGG_WAIT, &none, seen);
	count->waits++;
	return send(ctx, p, job, count, everyone);
}

/* Put the slot's result, which is ready, into the frame and send it. */
static __always_inline int deliver(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
				   struct inagg_slot_memory *m, struct inagg_stats *count, int everyone)
{
	struct inagg_slot state;
	struct inagg_hdr *h;
	__u32 bytes, ready;
	void *end;

	if (!lock_slot(m))
		return drop(count, -INAGG_R_BUSY);
	state = m->state;
	unlock_slot(m);
	bytes = state.elements * inagg_element_bytes(state.dtype_op >> 4);
	if (bytes > INAGG_MAX_PAYLOAD || resize(ctx, p, bytes))
		return drop(count, -INAGG_R_RESIZE);
	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	if (!lock_slot(m))
		return drop(count, -INAGG_R_BUSY);
	ready = m->ready && inagg_slot_holds(&m->state, &p->block);
	if (ready)
		result_to_packet(m->lanes, h + 1, end, bytes / 64);
	unlock_slot(m);
	if (!ready)
		return drop(count, -INAGG_R_STALE);
	p->block.dtype_op = state.dtype_op;
	p->block.scale = state.scale;
	answer(ctx, p, job, INAGG_RESULT, &state, state.seen);
	return send(ctx, p, job, count, everyone);
}

/* A block of 16-bit floats is complete: round its sums once, for the multicast and for every reply. */
static __always_inline int narrow_result(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
					 struct inagg_slot_memory *m)
{
	__u32 log2 = job->fan_in_log2, bias = job->size * inagg_fixed_bias(log2);
	__u32 elements = m->state.elements;
	struct inagg_hdr *h;
	void *end;

	if (elements > INAGG_MAX_ELEMENTS || resize(ctx, p, elements * 2))
		return -1;
	if (narrow(ctx, mantissa_bits(p->block.dtype_op), log2, p->block.scale, bias))
		return -1;
	h = header_of(ctx, &end);
	if (!h)
		return -1;
	if (!lock_slot(m))
		return -1;
	packet_to_result(h + 1, end, m->lanes, elements / INAGG_CHUNK);
	m->ready = 1;
	unlock_slot(m);
	return 0;
}

static __always_inline int switchml_contribute(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
					       struct inagg_slot_memory *m, struct inagg_stats *count)
{
	int half = is_half(p->block.dtype_op), verdict, action, fused = 0;
	__u32 chunks = p->block.elements / INAGG_CHUNK, log2 = job->fan_in_log2;
	struct widened *wide = NULL;
	struct inagg_slot state;
	struct inagg_hdr *h;
	void *end, *payload;

	if (half) {
		wide = get_widened();
		if (!wide || widen(ctx, mantissa_bits(p->block.dtype_op), log2, p->block.scale,
				   inagg_fixed_bias(log2)))
			return XDP_ABORTED;
	}
	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	payload = h + 1;

	if (!lock_slot(m))
		return drop(count, -INAGG_R_BUSY);
	verdict = inagg_slot_contribute(&m->state, job->all, &p->block);
	action = verdict & ~INAGG_COMPLETES;
	if (verdict > 0 && action <= INAGG_COUNT) {
		fused = verdict == (INAGG_ADD | INAGG_COMPLETES) && is_plain_sum(p->block.dtype_op);
		if (fused)
			lanes_complete(payload, end, m->lanes, chunks, p->block.dtype_op);
		else if (action == INAGG_STORE && wide)
			wide_store(wide, m->lanes, chunks);
		else if (action == INAGG_STORE)
			lanes_store(payload, end, m->lanes, chunks);
		else if (action == INAGG_ADD && wide)
			wide_add(wide, m->lanes, chunks);
		else if (action == INAGG_ADD)
			lanes_add(payload, end, m->lanes, chunks, p->block.dtype_op);
		m->ready = (verdict & INAGG_COMPLETES) && !(half && m->state.elements);
		if (wide && !m->ready && (verdict & INAGG_COMPLETES))
			wide_load(m->lanes, wide, m->state.elements / INAGG_CHUNK);
	}
	state = m->state;
	unlock_slot(m);

	if (verdict < 0)
		return drop(count, verdict);
	if (action == INAGG_REPLY) {
		count->duplicates++;
		count->replies++;
		return deliver(ctx, p, job, m, count, 0);
	}
	if (action == INAGG_TELL) {
		count->duplicates++;
		return tell(ctx, p, job, count, state.seen, 0);
	}
	count->additions++;
	count->elements += p->block.elements;
	if (!(verdict & INAGG_COMPLETES))
		return XDP_DROP;	/* folded in; nothing to say yet */

	count->completions++;
	if (fused) {
		answer(ctx, p, job, INAGG_RESULT, &state, state.seen);
		return send(ctx, p, job, count, 1);
	}
	if (wide && state.elements && narrow_result(ctx, p, job, m)) {
		/*
		 * Forget the block: nobody has its result, so all ranks will contribute again.  Without the
		 * lock, which may be what could not be had: a block that stayed complete but never ready
		 * would be answered no more.  No later block can have taken the copy over, for want of this result.
		 */
		*(volatile __u8 *)&m->state.flags = 0;
		return drop(count, -INAGG_R_RESIZE);
	}
	return deliver(ctx, p, job, m, count, 1);
}

static __always_inline int switchml_request(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
					    struct inagg_slot_memory *m, struct inagg_stats *count)
{
	int verdict;
	__u64 seen;

	if (!lock_slot(m))
		return drop(count, -INAGG_R_BUSY);
	verdict = inagg_slot_request(&m->state, &p->block, p->flags & INAGG_F_MULTICAST);
	seen = inagg_slot_seen(&m->state, &p->block);
	unlock_slot(m);
	if (verdict < 0)
		return drop(count, verdict);
	if (verdict == INAGG_REPLY) {
		count->replies++;
		return deliver(ctx, p, job, m, count, 0);
	}
	return tell(ctx, p, job, count, seen, verdict == INAGG_TELL_ALL);
}

static __always_inline int switchml_restore(struct xdp_md *ctx, struct packet *p, const struct inagg_job *job,
					    struct inagg_slot_memory *m, struct inagg_stats *count)
{
	struct inagg_slot state;
	struct inagg_hdr *h;
	int verdict;
	void *end;

	h = header_of(ctx, &end);
	if (!h)
		return XDP_ABORTED;
	if (!lock_slot(m))
		return drop(count, -INAGG_R_BUSY);
	verdict = inagg_slot_restore(&m->state, job->all, &p->block);
	if (verdict > 0) {
		packet_to_result(h + 1, end, m->lanes, p->payload / 64);
		m->ready = 1;
	}
	state = m->state;
	unlock_slot(m);
	if (verdict < 0)
		return drop(count, verdict);
	count->restores++;
	answer(ctx, p, job, INAGG_RESULT, &state, state.seen);
	return send(ctx, p, job, count, 1);
}

#endif /* INAGG_SWITCHML_H */
