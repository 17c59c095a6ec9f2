// SPDX-License-Identifier: GPL-2.0-only
/*
 * The worker's state machine (core/worker.h) over packets: one stream of data blocks, one of control
 * blocks, which carry scales, barriers and small float sums.  Everything here runs under `lock`, mostly in
 * softirq; a call sends a burst at most, and what of a window is left goes in the next ones.
 */
#include <linux/mm.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "af_inagg.h"
#include "trace.h"

#define AHEAD_STEP	512U	/* results looked at with the lock held */

static u32 slots_of(const struct inagg_job_config *job, int stream)
{
	return stream == INAGG_DATA ? job->slots : job->control_slots;
}

/* Most bytes of a block: with trio control blocks have no elements. */
static u32 cell_bytes_of(const struct inagg_job_config *job, int stream)
{
	return stream == INAGG_CONTROL && job->algorithm == INAGG_TRIO ? 0 : job->elements * 4;
}

/* The copy of a packet's elements that is turned, where the job's are big-endian. */
static u32 turned_bytes_of(const struct inagg_job_config *job, int stream)
{
	return job->big_endian ? cell_bytes_of(job, stream) : 0;
}

static u32 kept_of(const struct inagg_sock *isk, const struct inagg_job_config *job, int stream)
{
	return inagg_history_blocks(job, slots_of(job, stream), isk->set.history);
}

/** inagg_streams_bytes() - the memory of a socket's streams in @job */
u64 inagg_streams_bytes(const struct inagg_sock *isk, const struct inagg_job_config *job)
{
	u64 bytes = 0;
	int stream;

	for (stream = 0; stream < INAGG_STREAMS; stream++)
		bytes += (u64)slots_of(job, stream) * (sizeof(struct inagg_wslot) + sizeof(struct inagg_record)) +
			 (u64)kept_of(isk, job, stream) * (sizeof(struct inagg_kept) + cell_bytes_of(job, stream)) +
			 turned_bytes_of(job, stream);
	return bytes;
}

static void stream_free(struct inagg_stream *s)
{
	kvfree(s->slots);
	kvfree(s->records);
	kvfree(s->history.results);
	vfree(s->kept);
	kvfree(s->turned);
}

static int stream_alloc(struct inagg_sock *isk, const struct inagg_job_config *job, int stream, struct inagg_stream *s)
{
	u32 slots = slots_of(job, stream), blocks = kept_of(isk, job, stream);
	u32 turned_bytes = turned_bytes_of(job, stream);

	s->cell_bytes = cell_bytes_of(job, stream);
	s->slots = kvcalloc(slots, sizeof(*s->slots), INAGG_GFP);
	s->records = kvcalloc(slots, sizeof(*s->records), INAGG_GFP);
	inagg_history_init(&s->history, job, kvcalloc(blocks, sizeof(struct inagg_kept), INAGG_GFP), blocks);
	if (s->cell_bytes)
		s->kept = __vmalloc((size_t)blocks * s->cell_bytes, INAGG_GFP | __GFP_ZERO);
	if (turned_bytes)
		s->turned = kvcalloc(1, turned_bytes, INAGG_GFP);
	if (s->slots && s->records && s->history.results && (s->kept || !s->cell_bytes) && (s->turned || !turned_bytes))
		return 0;
	stream_free(s);
	return -ENOMEM;
}

/**
 * inagg_streams_alloc() - memory of a socket's streams in a job, of which nothing has been sent
 * @isk: the socket
 * @job: what the switch has said of it
 * @streams: all zero; INAGG_STREAMS of them
 *
 * May sleep; charges the caller's cgroup.  Return: 0 or -ENOMEM.
 */
int inagg_streams_alloc(struct inagg_sock *isk, const struct inagg_job_config *job, struct inagg_stream *streams)
{
	u32 first_slot = 0, slots, i;
	int stream, error;

	for (stream = 0; stream < INAGG_STREAMS; stream++) {
		slots = slots_of(job, stream);
		error = stream_alloc(isk, job, stream, &streams[stream]);
		if (error)
			goto fail;
		inagg_worker_init(&streams[stream].worker, slots, (u64)isk->set.rto_min_us * NSEC_PER_USEC);
		for (i = 0; i < slots; i++)
			inagg_wslot_init(&streams[stream].slots[i], i);
		streams[stream].first_slot = first_slot;
		streams[stream].earliest_due = U64_MAX;
		first_slot += slots;
	}
	return 0;
fail:
	while (stream--)
		stream_free(&streams[stream]);
	memset(streams, 0, INAGG_STREAMS * sizeof(*streams));
	return error;
}

void inagg_streams_free(struct inagg_stream *streams)
{
	int stream;

	for (stream = 0; stream < INAGG_STREAMS; stream++)
		stream_free(&streams[stream]);
	memset(streams, 0, INAGG_STREAMS * sizeof(*streams));
}

/* Sending. */

static struct inagg_hdr *start_packet(struct inagg_sock *isk, int stream, u8 type, u32 block, u32 room,
				      struct sk_buff **skb)
{
	struct inagg_stream *s = &isk->streams[stream];
	struct inagg_hdr *h;

	*skb = inagg_packet_alloc(isk, room);
	if (!*skb)
		return NULL;
	h = skb_put(*skb, sizeof(*h));
	inagg_hdr_start(h, &isk->job, type);
	inagg_hdr_set_block(h, &s->worker, s->first_slot, block);
	return h;
}

/* The header and @bytes of elements behind it are final; the elements go out in the job's byte order. */
static void finish_packet(struct inagg_sock *isk, struct sk_buff *skb, struct inagg_hdr *h, u32 bytes,
			  struct inagg_burst *burst)
{
	if (isk->job.big_endian)
		inagg_turn_elements(h + 1, bytes);
	if (isk->job.checked)
		inagg_hdr_seal_checked(h, inagg_payload_checksum(h + 1, bytes));
	else
		inagg_hdr_seal(h);
	inagg_packet_queue(isk, skb, burst);
}

static void send_contribution(struct inagg_sock *isk, int stream, const struct inagg_wslot *slot, bool resend,
			      struct inagg_burst *burst)
{
	struct inagg_block_meta meta;
	struct inagg_hdr *h;
	struct sk_buff *skb;
	u32 bytes;

	h = start_packet(isk, stream, INAGG_CONTRIBUTION, slot->block, isk->job.elements * 4, &skb);
	if (!h)
		return;
	if (!inagg_load(isk, stream, slot->block, h + 1, &meta)) {
		kfree_skb(skb);
		return;
	}
	if (resend)
		h->level_flags |= inagg_swap16(INAGG_F_RESEND);
	else
		isk->info.abstained += meta.absent;
	meta.epoch = slot->epoch;
	inagg_hdr_set_meta(h, &meta);
	bytes = inagg_block_bytes(&meta);
	skb_put(skb, bytes);
	finish_packet(isk, skb, h, bytes, burst);
}

static void send_request(struct inagg_sock *isk, int stream, u32 block, bool everyone, struct inagg_burst *burst)
{
	struct inagg_hdr *h;
	struct sk_buff *skb;

	isk->info.requests++;
	h = start_packet(isk, stream, INAGG_REQUEST, block, 0, &skb);
	if (!h)
		return;
	if (everyone)
		h->level_flags |= inagg_swap16(INAGG_F_MULTICAST);
	finish_packet(isk, skb, h, 0, burst);
}

/* Where the elements of @block's result are, if it is kept. */
static u8 *kept_elements(const struct inagg_stream *s, u32 block)
{
	return s->kept + (size_t)inagg_history_index(&s->history, block) * s->cell_bytes;
}

/* Give a result back to a switch that lost it. */
static void send_restore(struct inagg_sock *isk, int stream, u32 block, struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];
	const struct inagg_kept *kept = inagg_history_find(&s->history, block);
	struct inagg_hdr *h;
	struct sk_buff *skb;
	u32 bytes;

	if (!kept)
		return;
	bytes = inagg_block_bytes(&kept->meta);
	h = start_packet(isk, stream, INAGG_RESTORE, block, bytes, &skb);
	if (!h)
		return;
	isk->info.restores++;
	inagg_hdr_set_meta(h, &kept->meta);
	inagg_hdr_set_contributors(h, &kept->meta);
	skb_put_data(skb, kept_elements(s, block), bytes);
	finish_packet(isk, skb, h, bytes, burst);
}

static void act(struct inagg_sock *isk, int stream, const struct inagg_wslot *slot, int action,
		struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];

	switch (action) {
	case INAGG_W_SEND:
		isk->info.contributions++;
		send_contribution(isk, stream, slot, false, burst);
		break;
	case INAGG_W_RESEND:
	case INAGG_W_RESEND_ASK_ALL:
		isk->info.retransmissions++;
		trace_inagg_resend(isk, stream, slot->block);
		send_contribution(isk, stream, slot, true, burst);
		if (action == INAGG_W_RESEND_ASK_ALL)
			send_request(isk, stream, slot->block, true, burst);
		break;
	case INAGG_W_REQUEST:
	case INAGG_W_REQUEST_ALL:
		send_request(isk, stream, slot->block, action == INAGG_W_REQUEST_ALL, burst);
		break;
	default:
		return;
	}
	s->earliest_due = min(s->earliest_due, slot->due_ns);
}

/* May this slot's next block go, by the window that the user set? */
static bool in_window(const struct inagg_sock *isk, int stream, u32 block)
{
	const struct inagg_stream *s = &isk->streams[stream];
	u32 window = isk->set.window;

	return stream != INAGG_DATA || !window || inagg_before(block, s->done + window);
}

/* Note that the blocks from @from to @to may go. */
static void add_waiting(struct inagg_sock *isk, int stream, u32 from, u32 to)
{
	struct inagg_stream *s = &isk->streams[stream];
	u32 slots = s->worker.slots, more = min(to - from, slots);

	if (!s->waiting)
		s->opening = from;
	/* behind others that wait; or anywhere, and all slots are looked at */
	WRITE_ONCE(s->waiting, s->opening + s->waiting == from ? min(s->waiting + more, slots) : slots);
}

/* What the switch had no room for may go as that grows. */
struct room {
	u32 end;
	u16 cap;
};

static struct room room_of(const struct inagg_stream *s)
{
	return (struct room){ .end = inagg_worker_room(&s->worker), .cap = s->worker.cap };
}

static void follow_room(struct inagg_sock *isk, int stream, struct room before)
{
	u32 end = inagg_worker_room(&isk->streams[stream].worker);

	if (before.cap && inagg_before(before.end, end))
		add_waiting(isk, stream, before.end, end);
}

/* Is the result here of the first block that counts as without one? */
static bool has_next(const struct inagg_stream *s)
{
	return inagg_before(s->done, s->worker.limit) &&
	       inagg_before(s->done, s->slots[inagg_slot_index(&s->worker, s->done)].block);
}

/*
 * Whether @s has its results up to here: advance over what came.  With trio the slots may be far ahead of one that was late,
 * and a burst passes no more blocks than there are slots, which timers look at, too.
 */
static void advance_done(struct inagg_sock *isk, int stream, struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];
	u32 before = s->done, window = isk->set.window, most = max(s->worker.slots, AHEAD_STEP);

	while (has_next(s) && burst->passed < most) {
		s->done++;
		burst->passed++;
	}
	WRITE_ONCE(s->behind, has_next(s));
	if (window && stream == INAGG_DATA && s->done != before)
		add_waiting(isk, stream, before + window, s->done + window);
}

/* Where an earlier burst has stopped. */
static void catch_up(struct inagg_sock *isk, int stream, struct inagg_burst *burst)
{
	if (!isk->streams[stream].behind)
		return;
	advance_done(isk, stream, burst);
	inagg_wake_reader(isk);
}

/* Is this a result?  Else it is as if it were lost; after some that are none the job has ended. */
static bool verify(struct inagg_sock *isk, int stream, u32 block, struct inagg_block_meta *meta, const void *payload)
{
	struct inagg_stream *s = &isk->streams[stream];
	struct inagg_doubt *doubt = &s->records[inagg_slot_index(&s->worker, block)].doubt;
	u32 sum;

	if (inagg_verify(isk, stream, block, meta, payload))
		return true;
	sum = inagg_payload_checksum(payload, inagg_block_bytes(meta));
	if (inagg_doubt_another(doubt, block, sum, ++isk->info.mismatches))
		inagg_fail_unverified(isk, stream, block, !doubt->differ);
	return false;
}

/* Hand on the result of a block that this rank waits for, or has come to. */
static void deliver(struct inagg_sock *isk, int stream, const struct inagg_kept *kept, struct inagg_burst *burst)
{
	isk->progress = burst->now;
	isk->info.degraded += kept->meta.contributors != inagg_all_ranks(isk->job.size);
	inagg_store(isk, stream, kept->block, &kept->meta, kept_elements(&isk->streams[stream], kept->block), burst);
	advance_done(isk, stream, burst);
	inagg_wake_reader(isk);
}

/* Take the results of this slot's next blocks that were decided without this rank.  False: the next burst goes on. */
static bool take_decided(struct inagg_sock *isk, int stream, struct inagg_wslot *slot, struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];
	const struct inagg_kept *kept;
	struct inagg_block_meta meta;
	struct room before;

	while ((kept = inagg_history_decided(&s->history, &s->worker, slot))) {
		if (burst->taken >= INAGG_BURST)
			return false;
		burst->taken++;
		meta = kept->meta;
		if (!verify(isk, stream, slot->block, &meta, kept_elements(s, slot->block))) {
			inagg_history_forget(&s->history, slot->block);
			break;
		}
		kept = inagg_history_keep(&s->history, slot->block, &meta);
		isk->info.skipped++;
		before = room_of(s);
		inagg_worker_skip(&s->worker, slot);
		follow_room(isk, stream, before);
		deliver(isk, stream, kept, burst);
	}
	return true;
}

static void open_slot(struct inagg_sock *isk, int stream, struct inagg_wslot *slot, struct inagg_burst *burst)
{
	if (!take_decided(isk, stream, slot, burst))
		add_waiting(isk, stream, slot->block, slot->block + 1);
	else if (in_window(isk, stream, slot->block))
		act(isk, stream, slot, inagg_worker_open(&isk->streams[stream].worker, slot, burst->now), burst);
}

static void open_waiting(struct inagg_sock *isk, int stream, struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];

	while (s->waiting && !inagg_burst_full(burst)) {
		WRITE_ONCE(s->waiting, s->waiting - 1);
		open_slot(isk, stream, &s->slots[inagg_slot_index(&s->worker, s->opening++)], burst);
	}
}

/*
 * The blocks from @from to @to may go: now or, those that this burst does not take, soon.  With trio all go soon: some may
 * have results already, and whoever calls this is in the middle of the tensors that these would change.
 */
static void open_range(struct inagg_sock *isk, int stream, u32 from, u32 to, struct inagg_burst *burst)
{
	add_waiting(isk, stream, from, to);
	if (!isk->streams[stream].history.ahead)
		open_waiting(isk, stream, burst);
}

static bool stream_waits(const struct inagg_stream *s)
{
	return READ_ONCE(s->waiting) || READ_ONCE(s->behind);
}

/** inagg_waits() - are there blocks that may be sent, or that have results, and wait for the next burst? */
bool inagg_waits(const struct inagg_sock *isk)
{
	return READ_ONCE(isk->sk.sk_state) == TCP_ESTABLISHED &&
	       (stream_waits(&isk->streams[INAGG_DATA]) || stream_waits(&isk->streams[INAGG_CONTROL]));
}

/**
 * inagg_open_waiting() - go on with blocks that waited for this burst
 * @isk: the socket, locked, and inagg_waits()
 * @burst: takes the packets
 */
void inagg_open_waiting(struct inagg_sock *isk, struct inagg_burst *burst)
{
	catch_up(isk, INAGG_CONTROL, burst);
	catch_up(isk, INAGG_DATA, burst);
	open_waiting(isk, INAGG_CONTROL, burst);	/* the data of others wait for them */
	open_waiting(isk, INAGG_DATA, burst);
}

/**
 * inagg_open_rest() - go on with all blocks that wait, burst by burst
 * @isk: the socket, not locked; in process context
 */
void inagg_open_rest(struct inagg_sock *isk)
{
	struct inagg_burst burst;

	while (inagg_waits(isk)) {
		cond_resched();
		spin_lock_bh(&isk->lock);
		inagg_burst_start(&burst);
		if (inagg_waits(isk))
			inagg_open_waiting(isk, &burst);
		inagg_timer_follow(isk);
		spin_unlock_bh(&isk->lock);
		inagg_transmit(isk, &burst);
	}
}

/**
 * inagg_extend() - blocks of a stream before @limit may be sent
 * @isk: the socket, locked
 * @stream: INAGG_DATA or INAGG_CONTROL
 * @limit: number of a block; limits only grow
 * @burst: takes the packets
 */
void inagg_extend(struct inagg_sock *isk, int stream, u32 limit, struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];
	u32 from = s->worker.limit;

	if (limit == from)
		return;
	if (!inagg_in_flight(isk))
		isk->progress = burst->now;
	if (s->done == from)
		inagg_worker_restart(&s->worker);
	s->worker.limit = limit;
	open_range(isk, stream, from, limit, burst);
}

/* Receiving. */

static void on_boot(struct inagg_sock *isk, u16 boot, u64 now)
{
	struct inagg_stream *s;
	u32 i;

	if (!inagg_boot_heard(&isk->boots, boot, now))
		return;
	isk->job.boot = boot;
	isk->info.reboots++;
	for (s = isk->streams; s < isk->streams + INAGG_STREAMS; s++) {
		for (i = 0; i < s->worker.slots; i++)
			inagg_worker_rebooted(&s->slots[i]);
		s->earliest_due = now;
	}
}

static void on_result(struct inagg_sock *isk, int stream, const struct inagg_hdr *h, const void *body, u32 bytes,
		      struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];
	u32 block = inagg_swap32(h->block);
	struct inagg_wslot *slot = &s->slots[inagg_slot_index(&s->worker, block)];
	int repaired = inagg_swap16(h->level_flags) & INAGG_F_RESEND, action;
	struct inagg_block_meta meta = inagg_hdr_meta(h);
	struct room before = room_of(s);

	if (slot->state == INAGG_WSLOT_SENT && slot->block == block && inagg_wslot_believes(slot, block, meta.epoch) &&
	    !verify(isk, stream, block, &meta, body))
		return;
	action = inagg_history_result(&s->history, &s->worker, slot, block, &meta, repaired, burst->now);
	if (action == INAGG_W_NOTHING) {
		isk->info.duplicates++;
		return;
	}
	isk->info.blocks++;
	inagg_history_keep(&s->history, block, &meta);
	if (bytes)
		memcpy(kept_elements(s, block), body, bytes);
	if (action == INAGG_W_ACCEPT) {
		follow_room(isk, stream, before);
		deliver(isk, stream, inagg_history_find(&s->history, block), burst);
	}
	open_slot(isk, stream, slot, burst);
}

/* What trio says of @block, or what others do. */
static int heed(struct inagg_sock *isk, int stream, const struct inagg_hdr *h, u32 block, struct inagg_wslot *slot, u64 now)
{
	struct inagg_stream *s = &isk->streams[stream];
	u64 contributors = inagg_swap64(h->contributors);

	if (isk->job.algorithm != INAGG_TRIO)
		return inagg_worker_wait(&s->worker, slot, block, contributors, isk->job.rank, now);
	return inagg_history_wait(&s->history, &s->worker, slot, block, contributors, isk->job.rank,
				  inagg_swap16(h->switch_id), now);
}

static void on_wait(struct inagg_sock *isk, int stream, const struct inagg_hdr *h, struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];
	u32 block = inagg_swap32(h->block), index = inagg_slot_index(&s->worker, block);
	struct inagg_record *record = &s->records[index];
	struct inagg_wslot *slot = &s->slots[index];
	int action;

	if (h->window_cap) {
		isk->info.refused++;
		inagg_worker_refused(&s->worker, slot, block, inagg_swap16(h->window_cap));
		return;
	}
	if (slot->state == INAGG_WSLOT_SENT && slot->block == block) {
		record->heard = true;
		record->heard_block = block;
		record->contributors = inagg_swap64(h->contributors);
	}
	action = heed(isk, stream, h, block, slot, burst->now);
	if (action == INAGG_W_RESTORE)
		send_restore(isk, stream, block, burst);
	else
		act(isk, stream, slot, action, burst);
	if (slot->state == INAGG_WSLOT_SENT)
		s->earliest_due = min(s->earliest_due, slot->due_ns);
}

/*
 * Answers came: what was sent before what they answer may be lost.  The timer looks, a fraction of a round trip
 * later: the answers that are missing may be the next packets in this very batch.
 */
static void look_soon(struct inagg_sock *isk, int stream, u64 now)
{
	struct inagg_stream *s = &isk->streams[stream];

	if (s->answered)
		return;
	s->answered = true;
	s->earliest_due = min(s->earliest_due, now + s->worker.srtt_ns / 8);
}

static void detect_overtaken(struct inagg_sock *isk, int stream, struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];
	struct inagg_wslot *slot;

	s->answered = false;
	for (slot = s->slots; slot < s->slots + s->worker.slots; slot++) {
		if (inagg_worker_overtaken(&s->worker, slot, burst->now) && !inagg_burst_full(burst))
			act(isk, stream, slot, inagg_worker_timeout(&s->worker, slot, burst->now), burst);
	}
}

/**
 * inagg_receive_block() - handle a RESULT or WAIT
 * @isk: the socket, locked
 * @h: header, intact and of this job
 * @body: @bytes behind it
 * @bytes: of the body
 * @burst: takes what is to be sent
 *
 * What does not fit is counted and changes nothing.
 */
void inagg_receive_block(struct inagg_sock *isk, const struct inagg_hdr *h, const void *body, u32 bytes,
			 struct inagg_burst *burst)
{
	u32 slot = inagg_swap32(h->slot);
	int stream = slot >= isk->job.slots ? INAGG_CONTROL : INAGG_DATA, reason;
	struct inagg_stream *s = &isk->streams[stream];
	bool waited = inagg_waits(isk);

	if (!isk->has_memory || slot >= isk->job.slots + isk->job.control_slots) {
		inagg_count_drop(isk, INAGG_R_SLOT);
		return;
	}
	reason = inagg_block_admits(&isk->job, &s->worker, s->first_slot, h, bytes);
	if (!reason && bytes > s->cell_bytes)
		reason = -INAGG_R_LENGTH;
	if (reason) {
		inagg_count_drop(isk, -reason);
		return;
	}
	if (isk->job.checked && !inagg_packet_intact(h, inagg_payload_checksum(body, bytes))) {
		inagg_count_drop(isk, INAGG_R_PAYLOAD_CHECKSUM);
		return;
	}
	if (isk->job.big_endian && bytes) {
		memcpy(s->turned, body, bytes);
		inagg_turn_elements(s->turned, bytes);
		body = s->turned;
	}
	on_boot(isk, inagg_swap16(h->boot), burst->now);
	if (inagg_hdr_type(h) == INAGG_RESULT)
		on_result(isk, stream, h, body, bytes, burst);
	else
		on_wait(isk, stream, h, burst);
	look_soon(isk, stream, burst->now);
	if (!waited && inagg_waits(isk))
		inagg_open_waiting(isk, burst);
}

/* Timers. */

static void run_timers(struct inagg_sock *isk, int stream, struct inagg_burst *burst)
{
	struct inagg_stream *s = &isk->streams[stream];
	struct inagg_wslot *slot;
	u64 earliest = U64_MAX;

	if (s->answered)
		detect_overtaken(isk, stream, burst);
	/* without results for long the switch is asked for room, whatever it has said */
	if (s->worker.cap && inagg_worker_stuck(&s->worker, burst->now))
		add_waiting(isk, stream, s->done, s->done + s->worker.slots);
	for (slot = s->slots; slot < s->slots + s->worker.slots; slot++) {
		if (slot->state != INAGG_WSLOT_SENT)
			continue;
		if (burst->now >= slot->due_ns && !inagg_burst_full(burst))
			act(isk, stream, slot, inagg_worker_timeout(&s->worker, slot, burst->now), burst);
		earliest = min(earliest, max(slot->due_ns, burst->now + INAGG_BURST_PAUSE));
	}
	s->earliest_due = earliest;
}

/**
 * inagg_run_timers() - act on slots that are due, as many as the burst takes
 * @isk: the socket, locked
 * @burst: takes what is to be sent
 *
 * Return: when to call again, U64_MAX for never.
 */
u64 inagg_run_timers(struct inagg_sock *isk, struct inagg_burst *burst)
{
	u64 earliest = U64_MAX;
	int stream;

	if (!isk->has_memory)
		return earliest;
	for (stream = 0; stream < INAGG_STREAMS; stream++) {
		if (burst->now >= isk->streams[stream].earliest_due)
			run_timers(isk, stream, burst);
		earliest = min(earliest, isk->streams[stream].earliest_due);
	}
	return earliest;
}

/** inagg_in_flight() - has this rank sent blocks whose results are not here? */
bool inagg_in_flight(const struct inagg_sock *isk)
{
	const struct inagg_stream *s;

	if (!isk->has_memory)
		return false;
	for (s = isk->streams; s < isk->streams + INAGG_STREAMS; s++)
		if (s->done != s->worker.limit)
			return true;
	return false;
}

/**
 * inagg_blocks_ahead() - how far others have gone on without this rank
 * @isk: the socket, not locked
 *
 * Return: data blocks behind those that have numbers, whose results are here without a gap.
 */
u32 inagg_blocks_ahead(struct inagg_sock *isk)
{
	const struct inagg_history *history = &isk->streams[INAGG_DATA].history;
	u32 run, ahead;

	do {	/* a part at a time: it may be far */
		cond_resched();
		spin_lock_bh(&isk->lock);
		run = isk->has_memory && history->ahead ? inagg_history_run(history, isk->ahead, AHEAD_STEP) : 0;
		isk->ahead += run;
		/* what is here may be a sent tensor's, which has no numbers yet */
		ahead = isk->unassigned ? 0 : isk->ahead - isk->next_block;
		spin_unlock_bh(&isk->lock);
	} while (run == AHEAD_STEP);
	return ahead;
}

/** inagg_describe_stall() - which block is the oldest unanswered, and who is missing */
void inagg_describe_stall(const struct inagg_sock *isk, struct inagg_fault *fault)
{
	const struct inagg_record *record;
	const struct inagg_stream *s;
	int stream;

	for (stream = 0; isk->has_memory && stream < INAGG_STREAMS; stream++) {
		s = &isk->streams[stream];
		if (s->done == s->worker.limit)
			continue;
		record = &s->records[inagg_slot_index(&s->worker, s->done)];
		fault->block = s->done;
		fault->control = stream;
		fault->heard = record->heard && record->heard_block == s->done;
		if (fault->heard)
			fault->missing = inagg_all_ranks(isk->job.size) & ~record->contributors;
		return;
	}
}
