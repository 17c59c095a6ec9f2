/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * The results that a worker keeps of a stream: the last of each slot, in case a switch loses it.  With trio many more,
 * because others may lack them, and those of blocks that this rank has not come to, which were decided without it.
 *
 * Who has results ahead of it takes them in the place of sending, block by block, so it catches up without the switch.
 * What may be believed, given back and taken is decided here; the plane stores the elements, which lie at
 * inagg_history_index() in memory of its own.
 */
#ifndef INAGG_CORE_HISTORY_H
#define INAGG_CORE_HISTORY_H

#include <inagg/core/packet.h>
#include <inagg/core/types.h>
#include <inagg/core/worker.h>

#define INAGG_MOST_HISTORY	(1U << 24)	/* blocks: far below where block numbers wrap */

struct inagg_kept {
	struct inagg_block_meta meta;
	__u32	block;
	__u8	kept;
	__u8	reserved[3];
};

struct inagg_history {
	struct inagg_kept *results;
	__u32	blocks;		/* how many: a power of two, no fewer than the stream's slots */
	__u8	ahead;		/* also of blocks that this rank has not come to */
	__u8	reserved[3];
};

/**
 * How many results to keep of a stream of @slots: the last of each, or with trio as many as fit @bytes, of both streams alike,
 * since stragglers fall behind in both.
 */
INAGG_INLINE __u32 inagg_history_blocks(const struct inagg_job_config *job, __u32 slots, __u64 bytes)
{
	__u32 room = (__u32)(bytes >> 2 > 0xffffffffULL ? 0xffffffffULL : bytes >> 2) / job->elements, blocks = 2 * slots;

	if (job->algorithm != INAGG_TRIO)
		return slots;
	while (blocks <= room / 2 && blocks < INAGG_MOST_HISTORY)
		blocks *= 2;
	return blocks;
}

/** @results: @blocks of them, all zero. */
INAGG_INLINE void inagg_history_init(struct inagg_history *h, const struct inagg_job_config *job, struct inagg_kept *results,
				     __u32 blocks)
{
	h->results = results;
	h->blocks = blocks;
	h->ahead = job->algorithm == INAGG_TRIO;
}

/** Where @block's result is, if it is here. */
INAGG_INLINE __u32 inagg_history_index(const struct inagg_history *h, __u32 block)
{
	return block & (h->blocks - 1);
}

/** The result of @block; NULL (0): not here, or not any more. */
INAGG_INLINE const struct inagg_kept *inagg_history_find(const struct inagg_history *h, __u32 block)
{
	const struct inagg_kept *kept = &h->results[inagg_history_index(h, block)];

	return kept->kept && kept->block == block ? kept : (const struct inagg_kept *)0;
}

/** Keep a result in the place of the one that is h->blocks behind it. */
INAGG_INLINE const struct inagg_kept *inagg_history_keep(struct inagg_history *h, __u32 block,
							 const struct inagg_block_meta *meta)
{
	struct inagg_kept *kept = &h->results[inagg_history_index(h, block)];

	kept->meta = *meta;
	kept->block = block;
	kept->kept = 1;
	return kept;
}

/** The result of @block is not believed. */
INAGG_INLINE void inagg_history_forget(struct inagg_history *h, __u32 block)
{
	h->results[inagg_history_index(h, block)].kept = 0;
}

/** How many blocks from @block on are here without a gap, @most at most. */
INAGG_INLINE __u32 inagg_history_run(const struct inagg_history *h, __u32 block, __u32 most)
{
	__u32 length = 0;

	while (length < most && inagg_history_find(h, block + length))
		length++;
	return length;
}

/**
 * A RESULT with @meta for @block arrives, as in inagg_worker_result(): ACCEPT, or KEEP if this rank will take it when it comes
 * to the block.
 */
INAGG_INLINE int inagg_history_result(const struct inagg_history *h, struct inagg_worker *w, struct inagg_wslot *s, __u32 block,
				      const struct inagg_block_meta *meta, int repaired, __u64 now)
{
	if (!inagg_wslot_believes(s, block, meta->epoch))
		return INAGG_W_NOTHING;
	if (inagg_worker_result(w, s, block, repaired, now) == INAGG_W_ACCEPT)
		return INAGG_W_ACCEPT;
	if (h->ahead && block - s->block < h->blocks && !inagg_history_find(h, block))
		return INAGG_W_KEEP;
	return INAGG_W_NOTHING;
}

/**
 * trio: a WAIT for @block, recovered in @epoch (0: it is not).  As inagg_worker_wait(); who holds the result of a block that
 * is not recovering need not give it back.
 */
INAGG_INLINE int inagg_history_wait(const struct inagg_history *h, struct inagg_worker *w, struct inagg_wslot *s, __u32 block,
				    __u64 contributors, __u32 rank, __u16 epoch, __u64 now)
{
	int action;

	if (inagg_history_find(h, block))
		return epoch ? INAGG_W_RESTORE : INAGG_W_NOTHING;
	if (inagg_epoch_before(s->epoch, epoch))
		return inagg_worker_recovers(w, s, block, epoch, now);
	if (epoch != s->epoch && epoch)	/* of an earlier recovery */
		return INAGG_W_NOTHING;
	action = inagg_worker_wait(w, s, block, contributors, rank, now);
	return action == INAGG_W_RESTORE ? INAGG_W_NOTHING : action;
}

/**
 * The result of the slot's next block, if that may be sent and was decided without this rank; NULL (0).  The plane takes it,
 * after inagg_worker_skip(), in the place of inagg_worker_open().
 */
INAGG_INLINE const struct inagg_kept *inagg_history_decided(const struct inagg_history *h, const struct inagg_worker *w,
							    const struct inagg_wslot *s)
{
	if (!h->ahead || s->state != INAGG_WSLOT_IDLE || !inagg_before(s->block, w->limit))
		return (const struct inagg_kept *)0;
	return inagg_history_find(h, s->block);
}

#endif /* INAGG_CORE_HISTORY_H */
