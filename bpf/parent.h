/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What only the parent of a switch sends: its agent's answers, and what is to be passed down.
 */
#ifndef INAGG_PARENT_H
#define INAGG_PARENT_H

static __always_inline int pass_wait(struct xdp_md *ctx, const struct packet *p, const struct branch *b)
{
	struct report r = { .flags = p->flags, .cap = p->block.cap };

	if (!lock_slot(b->memory))
		return drop(b->count, -INAGG_R_BUSY);
	forget_lost(b->memory);
	touch_merge(b->memory, p);
	r.state.seen = inagg_tree_wait(&b->memory->state, &p->block, p->block.contributors);
	unlock_slot(b->memory);
	return send_wait_down(ctx, p, b, &r);
}

/* Is it the job's parent that speaks, and of what can be?  As admit() for what comes from below. */
static __always_inline int admit_parent(struct xdp_md *ctx, struct packet *p, const struct branch *b)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct datagram *d;
	__u32 slot, family;
	int verdict;

	if (data + INAGG_HDR4 > end)
		return -INAGG_R_LENGTH;
	family = family_of(data);
	d = datagram_of(data, end, family);
	if (!d)
		return -INAGG_R_LENGTH;
	if (b->uplink->ifindex != ctx->ingress_ifindex)
		return -INAGG_R_PORT;
	if (b->uplink->family != family || !same_address(b->uplink->address, source_of(data, family).address, family))
		return -INAGG_R_ADDRESS;
	p->block = inagg_block_of(&d->hdr);
	if (p->type == INAGG_WAIT)
		p->block.elements = 0;
	slot = bpf_ntohl(d->hdr.slot);
	verdict = inagg_job_admits(b->job, &p->block, slot, p->payload);
	if (verdict)
		return verdict;
	if ((b->job->flags & INAGG_JOIN_CHECKED) &&
	    !inagg_packet_intact(&d->hdr, payload_checksum(ctx, p->payload / 64)))
		return -INAGG_R_PAYLOAD_CHECKSUM;
	p->block.stream = inagg_stream_of(b->job, slot);
	p->slot_key = (b->job->first_slot + slot) * 2 + ((p->flags & INAGG_F_VERSION) != 0);
	return 0;
}

/* RESULT or WAIT of the parent. */
static __always_inline int from_parent(struct xdp_md *ctx, struct packet *p)
{
	struct branch b;
	int verdict;

	if (tree_lookup(&b, p))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_JOB);
	verdict = admit_parent(ctx, p, &b);
	if (verdict)
		return drop(b.count, verdict);
	b.count->packets++;
	if (b.job->algorithm == INAGG_ATP)
		return atp_from_parent(ctx, p, &b);
	if (b.job->algorithm == INAGG_TRIO) {
		bpf_tail_call(ctx, &algorithms, INAGG_CALL_COMBINED);
		return drop(b.count, -INAGG_R_ALGORITHM);
	}
	if (find_slot(&b, p))
		return drop(b.count, -INAGG_R_SLOT);
	note_mark(ctx, p);
	return p->type == INAGG_WAIT ? pass_wait(ctx, p, &b) : tree_take(ctx, p, &b);
}

/* CONFIG or REFUSED answer the agent's JOINs: only it can tell whether it asked. */
static __always_inline int to_agent(struct xdp_md *ctx, const struct packet *p)
{
	void *data = frame_data(ctx), *end = frame_end(ctx);
	struct inagg_join *join;
	struct datagram *d;

	if (data + INAGG_HDR4 > end)
		return XDP_ABORTED;
	d = datagram_of(data, end, family_of(data));
	if (!d)
		return XDP_ABORTED;
	join = (void *)(d + 1);
	if ((void *)(join + 1) > end || p->payload != sizeof(*join))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_LENGTH);
	if (!(p->flags & INAGG_F_CHECKED) || !inagg_packet_intact(&d->hdr, inagg_body_checksum(join)))
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_PAYLOAD_CHECKSUM);
	return ask_agent(ctx, data, d, join);
}

/* What only a parent sends. */
SEC("xdp.frags")
int inagg_parent(struct xdp_md *ctx)
{
	struct packet *p = handed_over();

	if (!p)
		return XDP_ABORTED;
	switch (p->type) {
	case INAGG_RESULT:
	case INAGG_WAIT:
		return from_parent(ctx, p);
	case INAGG_CONFIG:
	case INAGG_REFUSED:
		return to_agent(ctx, p);
	default:
		return refuse(INAGG_STATS_NO_JOB, INAGG_R_TYPE);
	}
}

#endif /* INAGG_PARENT_H */
