// SPDX-License-Identifier: GPL-2.0-only
/* Tensors: their memory, and their blocks in call order.  What packets touch runs under `lock`. */
#include <linux/memcontrol.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "convert.h"
#include "tensor.h"

static void free_tensor(struct inagg_tensor *t)
{
	vfree(t->own);
	kfree(t);
}

/**
 * inagg_companion() - a tensor of int32 that the user does not see: one block without elements if @bytes is 0
 * @isk: a joined socket
 * @bytes: of its elements
 * @dtype_op: of them on the wire
 *
 * May sleep.  Return: NULL if there is no memory.
 */
struct inagg_tensor *inagg_companion(struct inagg_sock *isk, u64 bytes, u8 dtype_op)
{
	struct inagg_tensor *t = kzalloc(sizeof(*t), GFP_KERNEL_ACCOUNT);

	if (!t)
		return NULL;
	t->bytes = bytes;
	t->copied = bytes;
	t->coding.dtype = INAGG_INT32;
	t->dtype_op = dtype_op;
	t->per_block = isk->job.elements - inagg_tail(isk);
	t->blocks = blocks_in(t, bytes) ?: 1;
	t->scale_known = true;
	t->whole = true;
	return t;
}

/** inagg_alloc_own() - memory of a companion's elements, all zero; may sleep; 0 or an errno */
int inagg_alloc_own(struct inagg_sock *isk, struct inagg_tensor *t)
{
	int error = inagg_charge(isk, own_bytes(t));

	if (error)
		return error;
	t->own = __vmalloc(own_bytes(t), INAGG_GFP | __GFP_ZERO);
	if (t->own)
		return 0;
	inagg_uncharge(isk, own_bytes(t));
	return -ENOMEM;
}

/** inagg_free_companion() - a companion with its memory; @isk is locked, or nobody else knows of @t */
void inagg_free_companion(struct inagg_sock *isk, struct inagg_tensor *t)
{
	inagg_uncharge(isk, own_bytes(t));
	free_tensor(t);
}

/** inagg_charge() - count @bytes of memory as the socket's; -ENOBUFS at the machine's limit */
int inagg_charge(struct inagg_sock *isk, u64 bytes)
{
	if (atomic_long_add_return(bytes, &inagg_memory) > READ_ONCE(inagg_memory_limit)) {
		atomic_long_sub(bytes, &inagg_memory);
		return -ENOBUFS;
	}
	atomic64_add(bytes, &isk->charged);
	return 0;
}

/** inagg_uncharge() - give back what inagg_charge() counted; @isk is locked or nobody's */
void inagg_uncharge(struct inagg_sock *isk, u64 bytes)
{
	atomic_long_sub(bytes, &inagg_memory);
	atomic64_sub(bytes, &isk->charged);
}

static void free_ring(struct inagg_ring *ring)
{
	vfree(ring->memory);
	kvfree(ring->contributors);
	ring->memory = NULL;
	ring->contributors = NULL;
}

/** inagg_alloc_memory() - all that a joined socket needs, before its first tensor; may sleep; 0 or an errno */
int inagg_alloc_memory(struct inagg_sock *isk)
{
	struct inagg_stream streams[INAGG_STREAMS] = {};
	struct inagg_ring *ring = &isk->ring;
	u64 bytes, wire;
	int error;

	if (isk->has_memory)
		return 0;
	ring->cell_bytes = isk->job.elements * 4;
	ring->cells = rounddown_pow_of_two(max(isk->set.buffer / ring->cell_bytes, inagg_least_cells(isk)));
	wire = inagg_wire_bytes(&isk->job);
	bytes = sizeof(*isk) + wire + (u64)ring->cells * (ring->cell_bytes + sizeof(u64)) +
		inagg_streams_bytes(isk, &isk->job) + inagg_verifier_bytes(isk);
	error = inagg_charge(isk, bytes);
	if (error)
		return error;
	ring->memory = __vmalloc((size_t)ring->cells * ring->cell_bytes, INAGG_GFP | __GFP_ZERO);
	ring->contributors = kvcalloc(ring->cells, sizeof(u64), INAGG_GFP);
	if (ring->memory && ring->contributors)
		error = inagg_verifier_alloc(isk) ?: inagg_streams_alloc(isk, &isk->job, streams);
	if (ring->memory && ring->contributors && !error) {
		isk->memcg = get_mem_cgroup_from_mm(current->mm);
		isk->wire_limit = wire;
		spin_lock_bh(&isk->lock);
		memcpy(isk->streams, streams, sizeof(streams));
		smp_store_release(&isk->has_memory, true);	/* who sees this sees the ring */
		spin_unlock_bh(&isk->lock);
		return 0;
	}
	free_ring(ring);
	inagg_verifier_free(isk);
	inagg_uncharge(isk, atomic64_read(&isk->charged));
	return -ENOMEM;
}

/**
 * inagg_free_tensors() - give back all memory of tensors and streams; what packets may take stays charged
 * @isk: a socket that nobody can reach any more
 */
void inagg_free_tensors(struct inagg_sock *isk)
{
	u64 wire = isk->has_memory ? isk->wire_limit : 0;
	struct inagg_tensor *t, *next;

	list_for_each_entry_safe(t, next, &isk->tensors, list)
		free_tensor(t);
	INIT_LIST_HEAD(&isk->tensors);
	inagg_streams_free(isk->streams);
	inagg_verifier_free(isk);
	free_ring(&isk->ring);
	mem_cgroup_put(isk->memcg);
	isk->memcg = NULL;
	isk->has_memory = false;
	inagg_uncharge(isk, atomic64_read(&isk->charged) - wire);
}

/** inagg_free_cells() - the receiver is done with the cells before number @tail */
void inagg_free_cells(struct inagg_sock *isk, u32 tail)
{
	if (isk->ring.tail == tail)
		return;
	smp_store_release(&isk->ring.tail, tail);	/* our reads of the cells come before */
	isk->sk.sk_write_space(&isk->sk);
}

/** inagg_unlink_tensor() - a complete tensor goes, with its cells; @isk is locked */
void inagg_unlink_tensor(struct inagg_sock *isk, struct inagg_tensor *t)
{
	list_del(&t->list);
	WRITE_ONCE(isk->tensor_count, isk->tensor_count - 1);
	inagg_free_cells(isk, t->cell + t->blocks);
	if (t->classes) {
		list_del(&t->classes->list);
		inagg_free_companion(isk, t->classes);
	}
	free_tensor(t);
}

static struct inagg_tensor *tensor_of(const struct inagg_sock *isk, u32 block)
{
	struct inagg_tensor *t;

	for (t = isk->active; t && t->assigned; t = next_tensor(isk, t))
		if (!t->guessed && block - t->block < t->blocks)
			return t;
	return NULL;
}

static struct inagg_tensor *tensor_of_control(const struct inagg_sock *isk, u32 block)
{
	struct inagg_tensor *t;

	for (t = isk->active; t; t = next_tensor(isk, t))
		if (block - t->control < t->controls)
			return t;
	return NULL;
}

/* Whose this block is, and which of its blocks. */
static struct inagg_tensor *find_tensor(const struct inagg_sock *isk, int stream, u32 block, u32 *index)
{
	struct inagg_tensor *t = stream == INAGG_DATA ? tensor_of(isk, block) : tensor_of_control(isk, block);

	if (t)
		*index = block - (stream == INAGG_DATA ? t->block : t->control);
	return t;
}

/* Has no elements, but this rank's exponent. */
static bool is_exponent_block(const struct inagg_tensor *t)
{
	return t->sum && !t->own;
}

/* On the wire, in its block @index. */
static u32 elements_of(const struct inagg_sock *isk, const struct inagg_tensor *t, u32 index)
{
	return inagg_padded(bytes_of(t, index) / memory_bytes(t) + inagg_tail(isk));
}

static void load_elements(struct inagg_sock *isk, const struct inagg_tensor *t, u32 index,
			  const struct inagg_coding *coding, void *payload, struct inagg_block_meta *meta)
{
	u32 count = bytes_of(t, index) / memory_bytes(t);

	meta->dtype_op = t->dtype_op;
	meta->elements = elements_of(isk, t, index);
	meta->saturated = inagg_to_wire(coding, cell_of(isk, t, index), payload, count);
	if (meta->elements > inagg_padded(count))	/* one more, for the check */
		memset(payload + inagg_block_bytes(meta) - INAGG_CHUNK * 4, 0, INAGG_CHUNK * 4);
}

/* No elements, or those that are sealed. */
static void load_nothing(const struct inagg_sock *isk, void *payload, struct inagg_block_meta *meta)
{
	meta->dtype_op = inagg_nothing(isk);
	meta->elements = inagg_padded(inagg_tail(isk));
	memset(payload, 0, inagg_block_bytes(meta));
}

/* Asks for the scale, and carries elements at the scale guessed. */
static void load_control(struct inagg_sock *isk, const struct inagg_tensor *t, u32 index, void *payload,
			 struct inagg_block_meta *meta)
{
	struct inagg_coding coding;

	meta->next_scale = t->exponent;
	if (!t->guesses && inagg_is_sealed(isk, t, INAGG_CONTROL))
		load_nothing(isk, payload, meta);
	if (!t->guesses)
		return;
	meta->scale = t->guess;
	inagg_coding_init(&coding, t->coding.dtype, t->coding.op, isk->job.size, t->guess, inagg_floats(isk));
	load_elements(isk, t, index, &coding, payload, meta);
}

/**
 * inagg_load() - the elements of a block, for a packet
 * @isk: the socket, locked
 * @stream: INAGG_DATA or INAGG_CONTROL
 * @block: in flight
 * @payload: room for job.elements * 4 bytes
 * @meta: what its header says
 *
 * Return: false if there is no such block.
 */
bool inagg_load(struct inagg_sock *isk, int stream, u32 block, void *payload, struct inagg_block_meta *meta)
{
	u32 index;
	struct inagg_tensor *t = find_tensor(isk, stream, block, &index);

	memset(meta, 0, sizeof(*meta));
	if (!t)
		return false;
	meta->whole = t->whole && isk->job.algorithm == INAGG_TRIO;
	if (stream == INAGG_CONTROL) {
		load_control(isk, t, index, payload, meta);
	} else if (is_exponent_block(t)) {
		meta->next_scale = t->exponent;
		load_nothing(isk, payload, meta);
	} else {
		meta->scale = t->scale;
		meta->absent = t->absent;
		load_elements(isk, t, index, &t->coding, payload, meta);
	}
	if (inagg_is_sealed(isk, t, stream))
		inagg_seal(isk, t, stream, index, meta, payload);
	return true;
}

/**
 * inagg_verify() - is this the result of a block?
 * @isk: the socket, locked
 * @stream: INAGG_DATA or INAGG_CONTROL
 * @block: in flight, or decided without this rank
 * @meta: what the result's header says; `saturated` is corrected
 * @payload: its elements, inagg_block_bytes(@meta) of them
 */
bool inagg_verify(struct inagg_sock *isk, int stream, u32 block, struct inagg_block_meta *meta, const void *payload)
{
	u32 index;
	struct inagg_tensor *t = isk->verify.wanted ? find_tensor(isk, stream, block, &index) : NULL;

	return !t || !inagg_is_sealed(isk, t, stream) || inagg_holds(isk, t, stream, index, meta, payload);
}

static u32 blocks_copied(const struct inagg_tensor *t)
{
	return is_exponent_block(t) ? 1 : blocks_in(t, t->copied);
}

/**
 * inagg_ask_scales() - let control blocks go
 * @isk: the socket, locked
 * @burst: takes what may be sent now
 *
 * In call order.  Those with elements wait until their guess is known and the elements are in the ring, and what is
 * behind them waits with them.
 */
void inagg_ask_scales(struct inagg_sock *isk, struct inagg_burst *burst)
{
	struct inagg_tensor *t;
	u32 open;

	if (isk->verify.wanted && !isk->verify.begun)
		return;
	for (t = isk->unasked; t; t = next_tensor(isk, t)) {
		if (t->guesses && !t->asked) {
			if (!inagg_guess_known(&isk->guesses, t->turn))
				break;
			t->guess = inagg_guess(&isk->guesses, t->turn);
			t->asked = true;
		}
		open = t->guesses ? blocks_copied(t) : t->controls;
		if (open)
			inagg_extend(isk, INAGG_CONTROL, t->control + open, burst);
		if (open < t->controls)
			break;
	}
	isk->unasked = t;
}

/** inagg_open_copied() - more of @t is in the ring: its blocks may be sent; @isk is locked */
void inagg_open_copied(struct inagg_sock *isk, struct inagg_tensor *t, struct inagg_burst *burst)
{
	if (t == isk->unasked)
		inagg_ask_scales(isk, burst);
	if (t->assigned && t->blocks && !t->guessed)
		inagg_extend(isk, INAGG_DATA, t->block + blocks_copied(t), burst);
}

/**
 * inagg_assign_blocks() - number the blocks of all tensors whose scales are known
 * @isk: the socket, locked
 * @burst: takes what may be sent now
 *
 * In call order: all ranks number them alike, whenever their scales arrive.
 */
void inagg_assign_blocks(struct inagg_sock *isk, struct inagg_burst *burst)
{
	struct inagg_tensor *t;

	for (t = isk->unassigned; t && t->scale_known && inagg_may_assign(isk, t); t = next_tensor(isk, t)) {
		inagg_coding_init(&t->coding, t->coding.dtype, t->coding.op, isk->job.size, t->scale, inagg_floats(isk));
		t->assigned = true;
		t->block = t->guessed ? t->control : isk->next_block;
		if (t->guessed)
			continue;
		t->left = t->blocks;
		isk->next_block += t->blocks;
		inagg_open_copied(isk, t, burst);
	}
	if (inagg_before(isk->ahead, isk->next_block))	/* here, since nobody else may ever look */
		isk->ahead = isk->next_block;
	isk->unassigned = t;
}

/** inagg_advance_active() - some tensor may have its results; @isk is locked */
void inagg_advance_active(struct inagg_sock *isk)
{
	while (isk->active && has_results(isk->active))
		isk->active = next_tensor(isk, isk->active);
}

/* The result of its block @index. */
static void store_elements(struct inagg_sock *isk, struct inagg_tensor *t, u32 index,
			   const struct inagg_block_meta *meta, const void *payload)
{
	u32 count = bytes_of(t, index) / memory_bytes(t);

	t->saturated |= meta->saturated;
	if (meta->dtype_op != t->dtype_op || meta->scale != t->scale || meta->elements != elements_of(isk, t, index))
		t->mismatch = true;
	else
		memcpy(cell_of(isk, t, index), payload, count * inagg_element_bytes(t->dtype_op >> 4));
	*contributors_of(isk, t, index) = meta->contributors;
	if (!t->own)
		inagg_roll_call(&t->roll, meta->contributors);
}

/* The first of the control blocks of @t is back.  All of them say the same. */
static void agree(struct inagg_sock *isk, struct inagg_tensor *t, u8 scale, struct inagg_burst *burst)
{
	t->agreed = true;
	if (t->renews)
		inagg_renewal_agreed(isk, t, scale, burst);
	if (t->bytes) {
		inagg_guess_learn(&isk->guesses, t->turn, scale);
		inagg_ask_scales(isk, burst);
	}
	if (t->bytes && scale == INAGG_SCALE_NONFINITE) {
		inagg_queue_split(isk, t);
		return;
	}
	t->scale = scale;
	t->absent = inagg_is_absent(isk->job.algorithm, t->exponent, scale);
	t->guessed = t->guesses && t->guess == scale;
	t->scale_known = true;
	inagg_assign_blocks(isk, burst);
}

static void store_control(struct inagg_sock *isk, u32 block, const struct inagg_block_meta *meta, const void *payload,
			  struct inagg_burst *burst)
{
	struct inagg_tensor *t = tensor_of_control(isk, block);

	if (!t)
		return;
	t->controls_left--;
	if (!t->agreed)
		agree(isk, t, meta->next_scale, burst);
	if (t->guessed)
		store_elements(isk, t, block - t->control, meta, payload);
	if (!t->controls_left && t->split)	/* these waited for that */
		inagg_queue_split(isk, t);
	else if (!t->controls_left && !t->assigned)
		inagg_assign_blocks(isk, burst);
}

/* The ranks agree on the exponent of a sum's finite part. */
static void store_exponent(struct inagg_sock *isk, struct inagg_tensor *t, const struct inagg_block_meta *meta,
			   struct inagg_burst *burst)
{
	t->left = 0;
	t->sum->mismatch |= meta->dtype_op != inagg_nothing(isk);
	t->sum->scale = meta->next_scale;
	t->sum->scale_known = true;
	inagg_advance_active(isk);
	list_del(&t->list);
	kfree(t);
	inagg_assign_blocks(isk, burst);
}

/* The nonces of all ranks are here: who waits for the key may go. */
static void end_exchange(struct inagg_sock *isk, struct inagg_burst *burst)
{
	struct inagg_tensor *t = isk->verify.exchange;

	inagg_exchange_done(isk);
	inagg_advance_active(isk);
	list_del(&t->list);
	inagg_free_companion(isk, t);
	inagg_ask_scales(isk, burst);
	inagg_assign_blocks(isk, burst);
}

static void store_data(struct inagg_sock *isk, u32 block, const struct inagg_block_meta *meta, const void *payload,
		       struct inagg_burst *burst)
{
	struct inagg_tensor *t = tensor_of(isk, block);

	if (!t)
		return;
	if (is_exponent_block(t)) {
		store_exponent(isk, t, meta, burst);
		return;
	}
	store_elements(isk, t, block - t->block, meta, payload);
	t->left--;
	if (t == isk->verify.exchange && !t->left)
		end_exchange(isk, burst);
}

/**
 * inagg_store() - take the result of a block
 * @isk: the socket, locked
 * @stream: INAGG_DATA or INAGG_CONTROL
 * @block: was in flight; once each
 * @meta: what the result's header says
 * @payload: its elements, inagg_block_bytes(@meta) of them
 * @burst: takes what may be sent now
 */
void inagg_store(struct inagg_sock *isk, int stream, u32 block, const struct inagg_block_meta *meta,
		 const void *payload, struct inagg_burst *burst)
{
	if (stream == INAGG_CONTROL)
		store_control(isk, block, meta, payload, burst);
	else
		store_data(isk, block, meta, payload, burst);
	inagg_advance_active(isk);
}

/* Throw away what is here; @isk is locked and has no receiver. */
static void discard_done(struct inagg_sock *isk)
{
	struct inagg_tensor *t;
	u32 done;

	while ((t = first_tensor(isk)) && is_complete(isk, t)) {
		inagg_unlink_tensor(isk, t);
		isk->sk.sk_write_space(&isk->sk);	/* also after a barrier, which has no cells */
	}
	done = t ? blocks_done(isk, t) : 0;
	if (done) {
		t->read = (u64)done * block_bytes(t);
		inagg_free_cells(isk, t->cell + done);
	}
}

/**
 * inagg_discard_results() - shutdown(SHUT_RD)
 * @isk: the socket
 *
 * May sleep: a receiver in recv() leaves first.  From now on results are thrown away as they come.
 *
 * Return: 0, or -EINTR of who is killed while a receiver waits for a page of the user's.
 */
int inagg_discard_results(struct inagg_sock *isk)
{
	spin_lock_bh(&isk->lock);
	isk->sk.sk_shutdown |= RCV_SHUTDOWN;
	spin_unlock_bh(&isk->lock);
	isk->sk.sk_state_change(&isk->sk);
	if (mutex_lock_killable(&isk->recv_lock))
		return -EINTR;
	spin_lock_bh(&isk->lock);
	isk->discard = true;
	discard_done(isk);
	spin_unlock_bh(&isk->lock);
	inagg_unlock_call(isk, &isk->recv_lock);
	return 0;
}

/** inagg_update_readable() - results came or were read, @isk locked; is it worth to call recv()? */
bool inagg_update_readable(struct inagg_sock *isk)
{
	const struct inagg_tensor *t = first_tensor(isk);
	bool readable = t && worth_reading(isk, t);

	WRITE_ONCE(isk->readable, readable);
	return readable;
}

/** inagg_wake_reader() - results came, @isk locked: wake who waits for them, if it is worth it */
void inagg_wake_reader(struct inagg_sock *isk)
{
	if (isk->discard)
		discard_done(isk);
	else if (inagg_update_readable(isk))
		isk->sk.sk_data_ready(&isk->sk);
}

/**
 * inagg_count_bytes() - of the tensors that are not read to their ends
 * @isk: the socket
 * @unsent: becomes the bytes taken whose results are not here, for SIOCOUTQ
 * @unread: becomes the bytes of results that recv() would return, for SIOCINQ
 */
void inagg_count_bytes(struct inagg_sock *isk, u64 *unsent, u64 *unread)
{
	struct inagg_tensor *t;
	u64 done;

	*unsent = *unread = 0;
	spin_lock_bh(&isk->lock);
	list_for_each_entry(t, &isk->tensors, list) {
		if (t->sum)
			continue;
		done = min_t(u64, t->copied, (u64)blocks_done(isk, t) * block_bytes(t));
		*unsent += t->copied - done;
		if (!is_broken(t))
			*unread += done - t->read;
	}
	spin_unlock_bh(&isk->lock);
}
