/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Tensors and their memory, as send(), recv() and the streams see them.
 *
 * The ring holds one block a cell: the elements as the user gave them, until the block's result takes
 * their place.  Conversion to the wire happens as a packet is built, and again if it is sent again; the way
 * back happens in the cell when it is read.  Cells are numbered without end (mod 2^32): the sender fills
 * those before `tail + cells`, the receiver frees them in order.
 */
#ifndef _INAGG_TENSOR_H
#define _INAGG_TENSOR_H

#include "af_inagg.h"

static inline u32 memory_bytes(const struct inagg_tensor *t)
{
	return inagg_memory_bytes(t->coding.dtype);
}

/* Bytes of a whole block in memory. */
static inline u32 block_bytes(const struct inagg_tensor *t)
{
	return t->per_block * memory_bytes(t);
}

/* Where its block @index lies. */
static inline u8 *cell_of(const struct inagg_sock *isk, const struct inagg_tensor *t, u32 index)
{
	const struct inagg_ring *ring = &isk->ring;

	if (t->own)
		return t->own + (size_t)index * block_bytes(t);
	return ring->memory + (size_t)((t->cell + index) & (ring->cells - 1)) * ring->cell_bytes;
}

/* Bytes of a tensor's own memory: behind its elements is who is in each block. */
static inline u64 own_bytes(const struct inagg_tensor *t)
{
	return round_up(t->bytes, sizeof(u64)) + t->blocks * sizeof(u64);
}

/* Who is in the result of its block @index. */
static inline u64 *contributors_of(const struct inagg_sock *isk, const struct inagg_tensor *t, u32 index)
{
	if (t->own)
		return (void *)(t->own + round_up(t->bytes, sizeof(u64)) + index * sizeof(u64));
	return &isk->ring.contributors[(t->cell + index) & (isk->ring.cells - 1)];
}

/* Bytes of its block @index in memory. */
static inline u32 bytes_of(const struct inagg_tensor *t, u32 index)
{
	return min_t(u64, block_bytes(t), t->bytes - (u64)index * block_bytes(t));
}

static inline u32 blocks_in(const struct inagg_tensor *t, u64 bytes)
{
	return div_u64(bytes + block_bytes(t) - 1, block_bytes(t));
}

static inline bool has_results(const struct inagg_tensor *t)
{
	return t->assigned && !t->left && !t->controls_left && !t->renewing;
}

/* How far its stream has come, from the first block that brings its result on. */
static inline s32 stream_done(const struct inagg_sock *isk, const struct inagg_tensor *t)
{
	return isk->streams[t->guessed ? INAGG_CONTROL : INAGG_DATA].done - t->block;
}

/* The type of what has no elements of the user's. */
static inline u8 inagg_nothing(const struct inagg_sock *isk)
{
	return isk->verify.wanted ? INAGG_WIRE_INT32 << 4 | INAGG_WIRE_SUM : INAGG_WIRE_NONE << 4;
}

/* Also for the stream, which passes them a burst at a time. */
static inline bool is_complete(const struct inagg_sock *isk, const struct inagg_tensor *t)
{
	return has_results(t) && stream_done(isk, t) >= (s32)t->blocks && (!t->classes || has_results(t->classes));
}

/* A result of another shape than its blocks came: from then on none of it is handed out. */
static inline bool is_broken(const struct inagg_tensor *t)
{
	return READ_ONCE(t->mismatch) || (t->classes && READ_ONCE(t->classes->mismatch));
}

/* Blocks of this tensor that may be read, from its first on without a gap. */
static inline u32 blocks_done(const struct inagg_sock *isk, const struct inagg_tensor *t)
{
	s32 done = stream_done(isk, t);

	if (!t->assigned || done < 0 || (t->classes && !is_complete(isk, t)))
		return 0;
	if (t->controls_left && (u32)done >= t->blocks)	/* a wrong guess is not all back: that ends the tensor */
		done = t->blocks - 1;
	return min_t(u32, done, t->blocks);
}

static inline struct inagg_tensor *next_tensor(const struct inagg_sock *isk, struct inagg_tensor *t)
{
	return list_is_last(&t->list, &isk->tensors) ? NULL : list_next_entry(t, list);
}

/* The oldest of the user's. */
static inline struct inagg_tensor *first_tensor(const struct inagg_sock *isk)
{
	struct inagg_tensor *t;

	list_for_each_entry(t, &isk->tensors, list)
		if (!t->sum)
			return t;
	return NULL;
}

/* A quarter of the ring is worth waking the receiver for, or the end of the tensor. */
static inline bool worth_reading(const struct inagg_sock *isk, const struct inagg_tensor *t)
{
	u32 done = blocks_done(isk, t);

	return is_complete(isk, t) || (t->blocks && done - (u32)div_u64(t->read, block_bytes(t)) > isk->ring.cells / 4);
}

/* tensor.c */
int inagg_charge(struct inagg_sock *isk, u64 bytes);
void inagg_uncharge(struct inagg_sock *isk, u64 bytes);
void inagg_ask_scales(struct inagg_sock *isk, struct inagg_burst *burst);
void inagg_assign_blocks(struct inagg_sock *isk, struct inagg_burst *burst);
void inagg_open_copied(struct inagg_sock *isk, struct inagg_tensor *t, struct inagg_burst *burst);
void inagg_free_cells(struct inagg_sock *isk, u32 tail);
void inagg_advance_active(struct inagg_sock *isk);
void inagg_unlink_tensor(struct inagg_sock *isk, struct inagg_tensor *t);
struct inagg_tensor *inagg_companion(struct inagg_sock *isk, u64 bytes, u8 dtype_op);
int inagg_alloc_own(struct inagg_sock *isk, struct inagg_tensor *t);
void inagg_free_companion(struct inagg_sock *isk, struct inagg_tensor *t);

/* verify.c */
u32 inagg_least_cells(const struct inagg_sock *isk);
u64 inagg_verifier_bytes(const struct inagg_sock *isk);
int inagg_verifier_alloc(struct inagg_sock *isk);
void inagg_verifier_free(struct inagg_sock *isk);
int inagg_exchange_new(struct inagg_sock *isk, struct inagg_tensor **exchange);
void inagg_exchange_done(struct inagg_sock *isk);
bool inagg_may_assign(const struct inagg_sock *isk, const struct inagg_tensor *t);
bool inagg_is_sealed(const struct inagg_sock *isk, const struct inagg_tensor *t, int stream);
void inagg_seal(const struct inagg_sock *isk, const struct inagg_tensor *t, int stream, u32 index,
		const struct inagg_block_meta *meta, void *payload);
bool inagg_holds(const struct inagg_sock *isk, const struct inagg_tensor *t, int stream, u32 index,
		 struct inagg_block_meta *meta, const void *payload);

/* nonfinite.c */
void inagg_queue_split(struct inagg_sock *isk, struct inagg_tensor *t);

#endif /* _INAGG_TENSOR_H */
