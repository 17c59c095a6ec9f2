/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Contributions to several blocks in one packet (PROTOCOL §7.4): a frame of more than one buffer, whose elements programs do not reach.
 * They are copied, block by block, and folded from there.  Nor does XDP copy such a frame for several receivers: one that completes
 * blocks becomes an skb, of which tc makes their results.
 */
#ifndef INAGG_SEVERAL_H
#define INAGG_SEVERAL_H

/* What XDP tells tc of a frame, in front of it. */
struct completed {
	__u32	mark;		/* COMPLETED: whoever else puts something there does not write this */
	__u32	blocks;		/* bitmap, of those in the packet: their results are for all */
	__u32	replies;	/* likewise: for who sent it */
	__u32	reserved;
};
#define COMPLETED	0x696e6167

/* fold() of elements that lie in the scratch buffer; plain sums only. */
static __always_inline void fold_copy(const struct inagg_slot *state, __u32 *ready, __u64 *lanes, const struct packet *p, int verdict)
{
	__u32 chunks = p->block.elements / INAGG_CHUNK;
	struct lanes *sums = (struct lanes *)lanes;

	if (INAGG_VERDICT(verdict) == INAGG_STORE)
		wide_store(sums, chunks);
	else if (INAGG_VERDICT(verdict) == INAGG_ADD && p->block.dtype_op == INAGG_WIRE_FIXED32 << 4)
		wide_add(sums, chunks);
	else if (INAGG_VERDICT(verdict) == INAGG_ADD)
		wide_add_wrapping(sums, chunks);
	/* a packet that adds nothing may claim another type than the block's */
	*ready = (verdict & INAGG_COMPLETES) && !(is_half(state->dtype_op) && state->elements);
}

static __always_inline int switchml_fold_copy(const struct packet *p, const struct inagg_job *job)
{
	struct inagg_slot_memory *m = bpf_map_lookup_elem(&slots, &p->slot_key);
	int verdict;

	if (!m)
		return -INAGG_R_SLOT;
	if (!lock_slot(m))
		return -INAGG_R_BUSY;
	verdict = inagg_slot_contribute(&m->state, job->all, &p->block);
	if (verdict > 0 && INAGG_VERDICT(verdict) <= INAGG_COUNT)
		fold_copy(&m->state, &m->ready, m->lanes, p, verdict);
	unlock_slot(m);
	return verdict;
}

struct several {
	struct xdp_md *ctx;
	struct packet *p;	/* of the block that is looked at */
	const struct inagg_job *job;
	struct inagg_stats *count;
	__u32 offset;		/* of its elements in the frame */
	__u32 bytes;
	__u32 payload;		/* bytes of all blocks */
	int outside;		/* the rank is not in the block, whoever is */
	__u32 refused;		/* the first block that there was no room for, from 1; 0: none */
	__u16 cap;		/* trio: what ranks may have open then */
	struct completed completed;
};

static __always_inline int trio_fold_copy(struct several *s, struct packet *p)
{
	struct inagg_floor_memory *floor = floor_of(p);
	struct report r;
	struct place at;
	struct trio t;
	int verdict;

	p->loser = (struct inagg_loser){};
	if (trio_lookup(&t, p) || !floor || !fits_slot(t.job, p))
		return -INAGG_R_SLOT;
	if (!lock_word(&t.bucket->busy))
		return -INAGG_R_BUSY;
	verdict = trio_fold(t.bucket, floor, t.job, t.policy, p);
	if (trio_place(&t, p, &at)) {
		unlock_word(&t.bucket->busy);
		return -INAGG_R_SLOT;
	}
	if (verdict > 0 && INAGG_VERDICT(verdict) <= INAGG_COUNT)
		fold_copy(at.state, at.ready, at.lanes, p, verdict);
	r = trio_report(t.record);
	unlock_word(&t.bucket->busy);
	if (verdict > 0 && (verdict & INAGG_OPENS) && r.epoch)
		t.count->recoveries++;
	if (verdict > 0 && (verdict & INAGG_COMPLETES))
		count_decision(&t, &r);
	s->outside = !(r.state.seen & inagg_rank_bit(p->block.rank));
	if (verdict == -INAGG_R_FULL)
		s->cap = inagg_window_cap(*t.open);
	return verdict;
}

/* What a rank is not told here of, a block that is not taken or that it is in already, it asks for. */
static __always_inline void note_verdict(struct several *s, __u32 i, int verdict)
{
	int action = INAGG_VERDICT(verdict);

	if (verdict < 0) {
		drop(s->count, verdict);
		if (verdict == -INAGG_R_FULL && !s->refused)
			s->refused = i + 1;
	} else if (action == INAGG_REPLY) {
		s->count->late += s->outside;
		s->count->duplicates += !s->outside;
		s->completed.replies |= 1 << i;
	} else if (action >= INAGG_TELL) {
		s->count->duplicates += !s->outside;
	} else if (action == INAGG_COUNT) {	/* was in already, and found the block expired */
		s->count->expired++;
	} else {
		s->count->additions++;
		s->count->elements += s->p->block.elements;
		s->count->completions += s->job->algorithm == INAGG_SWITCHML && (verdict & INAGG_COMPLETES);
	}
	if (verdict > 0 && (verdict & INAGG_COMPLETES))
		s->completed.blocks |= 1 << i;
}

static long fold_next(__u32 i, void *context)
{
	struct several *s = context;
	struct lanes *copy = get_widened();
	__u32 bytes = s->bytes;
	int verdict;

	if (!copy || i >= INAGG_MAX_BLOCKS)
		return 1;
	if (bytes > INAGG_MAX_PAYLOAD)
		return 1;
	barrier_var(bytes);	/* verifiers of 6.1 do not see both bounds in one comparison */
	if (bytes < INAGG_CHUNK)
		return 1;
	if (bpf_xdp_load_bytes(s->ctx, s->offset, copy, bytes))
		return 1;
	if (s->job->algorithm == INAGG_TRIO)
		verdict = trio_fold_copy(s, s->p);
	else
		verdict = switchml_fold_copy(s->p, s->job);
	note_verdict(s, i, verdict);
	s->offset += bytes;
	s->p->block.block++;
	s->p->slot_key += 2;
	return 0;
}

/* To tc, with what it has to send; there is room for it. */
static __always_inline int pass_on(struct xdp_md *ctx, const struct completed *completed)
{
	struct completed *to;

	to = (void *)(long)ctx->data_meta;
	if ((void *)(to + 1) > frame_data(ctx))
		return XDP_ABORTED;
	*to = *completed;
	return XDP_PASS;
}

/*
 * The root program has seen that the frame is for this switch, and no more.  The number of blocks in it, or 0: there is *@action to
 * take.  A function, so that its stack is free again when the blocks are folded.
 */
static __attribute__((noinline)) int admit_several(struct xdp_md *ctx, struct several *s, int *action)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct datagram *d;
	__u32 family, blocks, rest;
	int payload, verdict;

	*action = XDP_ABORTED;
	if (!s->p || data + INAGG_HDR4 > end)
		return 0;
	family = family_of(data);
	d = datagram_of(data, end, family);
	rest = bpf_xdp_get_buff_len(ctx) - (family == 4 ? INAGG_UDP4 : INAGG_UDP6);	/* in all its buffers */
	payload = d ? payload_length(data, rest, family, d) : -1;
	*action = XDP_DROP;
	if (!d || payload < 0)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_LENGTH), 0;
	if (inagg_hdr_version(&d->hdr) != INAGG_WIRE_VERSION)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_VERSION), 0;
	if (!inagg_hdr_intact(&d->hdr))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_HEADER_CHECKSUM), 0;
	s->job = get_job(&d->hdr);
	if (!s->job)
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_JOB), 0;
	s->count = get_stats(s->job->index);
	if (!s->count)
		return 0;
	s->bytes = s->job->elements * 4;
	*s->p = (struct packet){};	/* what the last one has left there */
	s->p->payload = s->bytes;
	s->p->type = inagg_hdr_type(&d->hdr);
	s->p->flags = bpf_ntohs(d->hdr.level_flags) & INAGG_FLAGS_MASK;
	s->p->job = bpf_ntohs(d->hdr.job);
	if (s->p->type != INAGG_CONTRIBUTION)
		return drop(s->count, -INAGG_R_LENGTH), 0;
	verdict = admit(ctx, s->p, data, &d->hdr, s->job);
	if (verdict)
		return drop(s->count, verdict), 0;
	blocks = inagg_blocks_in(s->job, &s->p->block, bpf_ntohl(d->hdr.slot), payload);
	/* the first buffer is to hold a result, of which tc makes the others */
	if (!blocks || (void *)(&d->hdr + 1) + s->bytes > end)
		return drop(s->count, -INAGG_R_LENGTH), 0;
	s->count->packets++;
	if (is_over_quota(s->job, bpf_xdp_get_buff_len(ctx)))
		return drop(s->count, -INAGG_R_QUOTA), 0;
	s->payload = payload;
	s->offset = (family == 4 ? INAGG_HDR4 : INAGG_HDR6) + sizeof(struct inagg_hdr);
	if (s->job->algorithm == INAGG_TRIO)
		attend(s->job->index, s->p->block.rank);
	return blocks;
}

/* The job or the bucket is full: the rank is told to slow down, of the first block that this befell. */
static __attribute__((noinline)) int tell_refused(struct several *s)
{
	struct report r = { .cap = s->cap };
	struct packet *p = s->p;
	struct inagg_hdr *h;
	void *end;

	if (!p || !s->count || bpf_xdp_adjust_meta(s->ctx, sizeof(s->completed)))
		return XDP_ABORTED;
	h = header_of(s->ctx, &end);
	if (!h)
		return XDP_ABORTED;
	h->block = bpf_htonl(bpf_ntohl(h->block) + s->refused - 1);
	h->slot = bpf_htonl(bpf_ntohl(h->slot) + s->refused - 1);
	p->payload = s->payload;
	return tell(s->ctx, p, s->job, s->count, &r, 0);
}

SEC("xdp.frags")
int inagg_several(struct xdp_md *ctx)
{
	struct several s = { .ctx = ctx, .p = handed_over(), .completed.mark = COMPLETED };
	int action, blocks = admit_several(ctx, &s, &action);

	if (!blocks || !s.count)
		return action;
	if (bpf_xdp_adjust_meta(ctx, -(int)sizeof(s.completed)))	/* before anything is added: not all drivers can */
		return drop(s.count, -INAGG_R_RESIZE);
	bpf_loop(blocks, fold_next, &s, 0);
	if (s.completed.blocks | s.completed.replies)
		return pass_on(ctx, &s.completed);
	return s.refused ? tell_refused(&s) : XDP_DROP;
}

/* What programs on tc answer; as <linux/pkt_cls.h> has them, but for the first, which is TCX_NEXT. */
enum { PASS_ON = -1, TAKE = 2 };

/* The results of the blocks of one packet. */
struct spreading {
	struct __sk_buff *skb;
	const struct inagg_job *job;
	struct inagg_stats *count;
	struct inagg_hdr hdr;	/* of the contribution, then of results */
	struct completed completed;
	__u32 family;
	__u32 bytes;		/* of a block's elements */
	__u32 first;		/* rank that gets the block */
};

static long send_copy(__u32 i, void *context)
{
	struct spreading *s = context;
	void *data, *end;
	struct endpoint rank;
	struct inagg_member *m = member_of(s->job, s->first + i);

	data = (void *)(long)s->skb->data;
	end = (void *)(long)s->skb->data_end;
	if (!m || !m->ifindex || !m->receive_port || m->family != s->family || data + INAGG_HDR4 > end)
		return 0;
	rank.mac = (void *)m->mac;
	rank.address = m->address;
	if (write_headers(data, end, s->family, s->bytes, source_of(data, s->family), rank, m->receive_port))
		return 1;
	bpf_clone_redirect(s->skb, m->ifindex, 0);
	return 0;
}

/* The block's result into the skb; its header into @s->hdr. */
static __always_inline int load_result(struct spreading *s, const struct place *at, const struct packet *p, const struct report *r)
{
	__u32 bytes = s->bytes, at_elements = (s->family == 4 ? INAGG_HDR4 : INAGG_HDR6) + sizeof(s->hdr);
	int error;

	if (!inagg_slot_agrees(&r->state, &p->block) || r->state.elements * 4 != bytes || !*at->ready || bytes > INAGG_MAX_PAYLOAD)
		return -1;
	barrier_var(bytes);	/* as in fold_next() */
	if (bytes < INAGG_CHUNK)
		return -1;
	error = bpf_skb_store_bytes(s->skb, at_elements, at->lanes, bytes, 0);
	write_answer(&s->hdr, p, s->job, INAGG_RESULT, r);
	inagg_hdr_seal(&s->hdr);
	return error;
}

static __always_inline int switchml_load_result(struct spreading *s, const struct packet *p)
{
	struct inagg_slot_memory *m = bpf_map_lookup_elem(&slots, &p->slot_key);
	struct place at;
	struct report r;
	int error = -1;

	if (!m || !lock_slot(m))
		return -1;
	at = switchml_place(m);
	r = switchml_report(&m->state, s->job);
	if (inagg_slot_request(&m->state, &p->block, 0) == INAGG_REPLY)
		error = load_result(s, &at, p, &r);
	unlock_slot(m);
	return error;
}

static __always_inline int trio_load_result(struct spreading *s, struct packet *p)
{
	struct report r;
	struct place at;
	struct trio t;
	int error = -1, way;

	if (trio_lookup(&t, p) || !lock_word(&t.bucket->busy))
		return -1;
	if (inagg_record_request(t.bucket->records, t.job, &p->block, 0, &way) == INAGG_REPLY) {
		p->way = way;
		if (!trio_place(&t, p, &at)) {
			r = trio_report(t.record);
			error = load_result(s, &at, p, &r);
		}
	}
	unlock_word(&t.bucket->busy);
	return error;
}

static long spread_next(__u32 i, void *context)
{
	struct spreading *s = context;
	__u32 all = s->completed.blocks >> i & 1, reply = s->completed.replies >> i & 1;
	struct packet *p = handed_over();
	int error;

	if (!p)
		return 1;
	if (all | reply) {
		if (s->job->algorithm == INAGG_TRIO)
			error = trio_load_result(s, p);
		else
			error = switchml_load_result(s, p);
		if (!error && !bpf_skb_store_bytes(s->skb, s->family == 4 ? INAGG_HDR4 : INAGG_HDR6, &s->hdr, sizeof(s->hdr), 0)) {
			s->count->replies += reply;
			s->first = all ? 0 : p->block.rank;
			bpf_loop(all ? s->job->size : 1, send_copy, s, 0);
		}
	}
	p->block.block++;
	p->slot_key += 2;
	s->hdr.block = bpf_htonl(p->block.block);
	s->hdr.slot = bpf_htonl(bpf_ntohl(s->hdr.slot) + 1);
	return 0;
}

/* What the contribution that lies in the skb is answered with.  0: it is none that inagg_several has let through. */
static __attribute__((noinline)) int begin_spreading(struct spreading *s, struct packet *p, const struct inagg_switch_settings *set)
{
	void *data = (void *)(long)s->skb->data, *end = (void *)(long)s->skb->data_end;
	struct inagg_member *m;
	struct datagram *d;

	if (data + INAGG_HDR4 > end)
		return 0;
	s->family = family_of(data);
	d = datagram_of(data, end, s->family);
	if (!d)
		return 0;
	s->hdr = d->hdr;
	s->job = get_job(&s->hdr);
	if (!s->job)
		return 0;
	s->count = get_stats(s->job->index);
	s->bytes = s->job->elements * 4;
	p->block = inagg_block_of(&s->hdr);
	p->job = bpf_ntohs(s->hdr.job);
	p->boot = set->boot;
	p->flags = bpf_ntohs(s->hdr.level_flags) & INAGG_F_VERSION;
	p->slot_key = (s->job->first_slot + bpf_ntohl(s->hdr.slot)) * 2 + (p->flags != 0);
	m = member_of(s->job, p->block.rank);
	if (!m || !s->count)
		return 0;
	/* from here on it comes from this switch */
	return !write_headers(data, end, s->family, s->bytes, destination_of(data, s->family), source_of(data, s->family),
			      m->receive_port);
}

/* On ports whose frames may have several buffers, behind inagg_several. */
SEC("tc")
int inagg_spread(struct __sk_buff *skb)
{
	struct completed *told = (void *)(long)skb->data_meta;
	struct spreading s = { .skb = skb };
	struct inagg_switch_settings *set;
	struct packet *p = handed_over();
	__u32 zero = 0, before;

	if ((void *)(told + 1) > (void *)(long)skb->data || told->mark != COMPLETED)
		return PASS_ON;
	s.completed = *told;
	told->mark = 0;		/* what is sent may come by another switch of this machine */
	set = bpf_map_lookup_elem(&settings, &zero);
	if (!p || !set || !begin_spreading(&s, p, set))
		return TAKE;
	before = (s.family == 4 ? INAGG_HDR4 : INAGG_HDR6) + sizeof(s.hdr);
	if (bpf_skb_change_tail(skb, before + s.bytes, 0))
		return TAKE;
	bpf_loop(INAGG_MAX_BLOCKS, spread_next, &s, 0);
	return TAKE;
}

#endif /* INAGG_SEVERAL_H */
