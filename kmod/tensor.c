// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tensors: what send() queues and recv() returns.
 *
 * The ring holds one block a cell: the elements as the user gave them, until the block's result takes
 * their place.  Conversion to the wire happens as a packet is built, and again if it is sent again; the way
 * back happens in the cell when it is read.  Cells are numbered without end (mod 2^32): the sender fills
 * those before `tail + cells`, the receiver frees them in order.
 */
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>

#include "af_inagg.h"
#include "trace.h"

static u8 *cell_at(const struct inagg_ring *ring, u32 number)
{
	return ring->memory + (size_t)(number & (ring->cells - 1)) * ring->cell_bytes;
}

static u32 memory_bytes(const struct inagg_tensor *t)
{
	return inagg_memory_bytes(t->coding.dtype);
}

/* Bytes of a whole block in memory. */
static u32 block_bytes(const struct inagg_tensor *t)
{
	return t->per_block * memory_bytes(t);
}

/* Bytes of its block @index in memory. */
static u32 bytes_of(const struct inagg_tensor *t, u32 index)
{
	return min_t(u64, block_bytes(t), t->bytes - (u64)index * block_bytes(t));
}

static u32 blocks_in(const struct inagg_tensor *t, u64 bytes)
{
	return div_u64(bytes + block_bytes(t) - 1, block_bytes(t));
}

/* Results of this tensor that are here, from its first block on without a gap. */
static u32 blocks_done(const struct inagg_sock *isk, const struct inagg_tensor *t)
{
	u32 done = isk->streams[INAGG_DATA].done - t->block;

	if (!t->assigned || (s32)done < 0)
		return 0;
	return min(done, t->blocks);
}

static bool is_complete(const struct inagg_tensor *t)
{
	return t->assigned && !t->left;
}

static struct inagg_tensor *next_tensor(const struct inagg_sock *isk, struct inagg_tensor *t)
{
	return list_is_last(&t->list, &isk->tensors) ? NULL : list_next_entry(t, list);
}

static struct inagg_tensor *first_tensor(const struct inagg_sock *isk)
{
	return list_empty(&isk->tensors) ? NULL : list_first_entry(&isk->tensors, struct inagg_tensor, list);
}

/* Memory of a socket. */

static int charge(struct inagg_sock *isk, u64 bytes)
{
	if (atomic_long_add_return(bytes, &inagg_memory) > READ_ONCE(inagg_memory_limit)) {
		atomic_long_sub(bytes, &inagg_memory);
		return -ENOBUFS;
	}
	isk->charged += bytes;
	return 0;
}

/* All that a joined socket needs, before its first tensor. */
static int alloc_memory(struct inagg_sock *isk)
{
	struct inagg_ring *ring = &isk->ring;
	u64 bytes;
	int error;

	if (isk->has_memory)
		return 0;
	ring->cell_bytes = isk->job.elements * 4;
	ring->cells = rounddown_pow_of_two(max(isk->set.buffer / ring->cell_bytes, 4U));
	bytes = (u64)ring->cells * ring->cell_bytes + (u64)isk->job.slots * ring->cell_bytes +
		(u64)(isk->job.slots + isk->job.control_slots) *
			(sizeof(struct inagg_wslot) + sizeof(struct inagg_record));
	error = charge(isk, bytes);
	if (error)
		return error;
	ring->memory = __vmalloc((size_t)ring->cells * ring->cell_bytes, GFP_KERNEL_ACCOUNT);
	if (ring->memory)
		error = inagg_streams_alloc(isk);
	if (ring->memory && !error)
		return 0;
	vfree(ring->memory);
	ring->memory = NULL;
	atomic_long_sub(isk->charged, &inagg_memory);
	isk->charged = 0;
	return -ENOMEM;
}

/**
 * inagg_free_tensors() - give back all memory of tensors and streams
 * @isk: a socket that nobody can reach any more
 */
void inagg_free_tensors(struct inagg_sock *isk)
{
	struct inagg_tensor *t, *next;

	list_for_each_entry_safe(t, next, &isk->tensors, list)
		kfree(t);
	INIT_LIST_HEAD(&isk->tensors);
	inagg_streams_free(isk);
	vfree(isk->ring.memory);
	isk->ring.memory = NULL;
	atomic_long_sub(isk->charged, &inagg_memory);
	isk->charged = 0;
}

/* Blocks: called under `lock`. */

static struct inagg_tensor *tensor_of(const struct inagg_sock *isk, u32 block)
{
	struct inagg_tensor *t;

	for (t = isk->active; t && t->assigned; t = next_tensor(isk, t))
		if (block - t->block < t->blocks)
			return t;
	return NULL;
}

static struct inagg_tensor *tensor_of_control(const struct inagg_sock *isk, u32 block)
{
	struct inagg_tensor *t;

	for (t = isk->active; t; t = next_tensor(isk, t))
		if (t->has_control && t->control == block)
			return t;
	return NULL;
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
	struct inagg_tensor *t = stream == INAGG_DATA ? tensor_of(isk, block) : tensor_of_control(isk, block);
	u32 index, count;

	memset(meta, 0, sizeof(*meta));
	if (!t)
		return false;
	if (stream == INAGG_CONTROL) {
		meta->next_scale = t->scale;
		return true;
	}
	index = block - t->block;
	count = bytes_of(t, index) / memory_bytes(t);
	meta->dtype_op = t->dtype_op;
	meta->scale = t->scale;
	meta->elements = inagg_padded(count);
	meta->saturated = inagg_encode_block(&t->coding, cell_at(&isk->ring, t->cell + index), payload, count);
	return true;
}

static u32 blocks_copied(const struct inagg_tensor *t)
{
	return blocks_in(t, t->copied);
}

static void open_copied(struct inagg_sock *isk, struct inagg_tensor *t, struct inagg_burst *burst)
{
	if (t->assigned && t->blocks)
		inagg_extend(isk, INAGG_DATA, t->block + blocks_copied(t), burst);
}

/* Data blocks are numbered in call order: all ranks number them alike, whenever their scales arrive. */
static void assign_blocks(struct inagg_sock *isk, struct inagg_burst *burst)
{
	struct inagg_tensor *t;

	for (t = isk->unassigned; t && t->scale_known; t = next_tensor(isk, t)) {
		inagg_coding_init(&t->coding, t->coding.dtype, t->coding.op, isk->job.size, t->scale);
		t->block = isk->next_block;
		t->left = t->blocks;
		t->assigned = true;
		isk->next_block += t->blocks;
		open_copied(isk, t, burst);
	}
	isk->unassigned = t;
}

static void advance_active(struct inagg_sock *isk)
{
	while (isk->active && is_complete(isk->active))
		isk->active = next_tensor(isk, isk->active);
}

/* A quarter of the ring is worth waking the receiver for, or the end of the tensor. */
static bool worth_reading(const struct inagg_sock *isk, const struct inagg_tensor *t)
{
	u32 done = blocks_done(isk, t);

	return is_complete(t) || (t->blocks && done - (u32)div_u64(t->read, block_bytes(t)) > isk->ring.cells / 4);
}

static void store_control(struct inagg_sock *isk, u32 block, const struct inagg_block_meta *meta,
			  struct inagg_burst *burst)
{
	struct inagg_tensor *t = tensor_of_control(isk, block);

	if (!t)
		return;
	t->scale_known = true;
	if (t->bytes)
		t->scale = meta->next_scale;
	if (t->scale == INAGG_SCALE_NONFINITE) {
		inagg_fail(isk, EDOM, 0);
		return;
	}
	assign_blocks(isk, burst);
}

static void store_data(struct inagg_sock *isk, u32 block, const struct inagg_block_meta *meta, const void *payload)
{
	struct inagg_tensor *t = tensor_of(isk, block);
	u32 index, count;

	if (!t)
		return;
	index = block - t->block;
	count = bytes_of(t, index) / memory_bytes(t);
	t->saturated |= meta->saturated;
	if (meta->dtype_op != t->dtype_op || meta->scale != t->scale || meta->elements != inagg_padded(count))
		t->mismatch = true;
	else
		memcpy(cell_at(&isk->ring, t->cell + index), payload, inagg_block_bytes(meta));
	t->left--;
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
		store_control(isk, block, meta, burst);
	else
		store_data(isk, block, meta, payload);
	advance_active(isk);
}

/* send() */

static int parse_cmsgs(struct msghdr *msg, struct inagg_tensor_type *type)
{
	struct cmsghdr *cmsg;

	for_each_cmsghdr(cmsg, msg) {
		if (!CMSG_OK(msg, cmsg))
			return -EINVAL;
		if (cmsg->cmsg_level != SOL_INAGG)
			continue;
		if (cmsg->cmsg_type != INAGG_CMSG_TENSOR || cmsg->cmsg_len != CMSG_LEN(sizeof(*type)))
			return -EINVAL;
		memcpy(type, CMSG_DATA(cmsg), sizeof(*type));
	}
	return inagg_check_tensor_type(type);
}

/* The scale of a float sum that the user fixed, or -ERANGE. */
static int fixed_scale(const struct inagg_sock *isk, s32 k)
{
	u32 log2 = inagg_fan_in_log2(isk->job.size);

	if (k < inagg_fixed_point(log2, 254) || k > inagg_fixed_point(log2, 0))
		return -ERANGE;
	return inagg_scale_for_point(log2, k);
}

static struct inagg_tensor *new_tensor(struct inagg_sock *isk, const struct inagg_tensor_type *type, u64 bytes)
{
	struct inagg_tensor *t;
	int scale;

	if (bytes % inagg_memory_bytes(type->dtype))
		return ERR_PTR(-EINVAL);
	t = kzalloc(sizeof(*t), GFP_KERNEL_ACCOUNT);
	if (!t)
		return ERR_PTR(-ENOMEM);
	t->bytes = bytes;
	t->coding.dtype = type->dtype;
	t->coding.op = type->op;
	t->dtype_op = inagg_wire_encoding(type->dtype, type->op);
	t->per_block = inagg_block_elements(isk->job.elements, t->dtype_op >> 4);
	t->has_control = !bytes || inagg_needs_scale(type->dtype, type->op);
	if (bytes && t->has_control && type->dtype == INAGG_FLOAT32 && type->scale != INAGG_SCALE_AUTO) {
		scale = fixed_scale(isk, type->scale);
		if (scale < 0) {
			kfree(t);
			return ERR_PTR(scale);
		}
		t->scale = scale;
		t->has_control = false;
	}
	t->scale_known = !t->has_control;
	if (div_u64(bytes, block_bytes(t)) >= S32_MAX) {
		kfree(t);
		return ERR_PTR(-EMSGSIZE);
	}
	t->blocks = blocks_in(t, bytes);
	return t;
}

/* Whether the sender may fill the cell of the tensor's next block. */
static bool has_room(const struct inagg_sock *isk, const struct inagg_tensor *t)
{
	/* pairs with free_cells(): the cell is written after its last reader has left */
	return t->cell + blocks_in(t, t->copied) - smp_load_acquire(&isk->ring.tail) < isk->ring.cells;
}

/* Copy as many blocks as there are free cells; tells the largest magnitude among them. */
static int copy_blocks(struct inagg_sock *isk, struct inagg_tensor *t, struct iov_iter *from, u32 *magnitude)
{
	u64 copied = t->copied;
	u32 bytes, index;
	u8 *cell;

	while (t->copied < t->bytes && has_room(isk, t)) {
		index = blocks_in(t, t->copied);
		bytes = bytes_of(t, index);
		cell = cell_at(&isk->ring, t->cell + index);
		if (!copy_from_iter_full(cell, bytes, from)) {
			t->copied = copied;
			return -EFAULT;
		}
		if (magnitude)
			*magnitude = inagg_largest_magnitude(cell, bytes / memory_bytes(t), t->coding.dtype, *magnitude);
		t->copied += bytes;
		if (signal_pending(current) && t->copied > copied)
			break;
	}
	return 0;
}

/* The largest magnitude of what did not fit into the ring; leaves @from where it was. */
static int scan_rest(struct inagg_tensor *t, struct iov_iter *from, u32 *magnitude)
{
	size_t rest = iov_iter_count(from), bytes, done = 0;
	void *page;
	int error = 0;

	if (!rest)
		return 0;
	page = (void *)__get_free_page(GFP_KERNEL_ACCOUNT);
	if (!page)
		return -ENOMEM;
	for (; done < rest && !error; done += bytes) {
		bytes = min_t(size_t, PAGE_SIZE, rest - done);
		if (!copy_from_iter_full(page, bytes, from))
			error = -EFAULT;
		else if (fatal_signal_pending(current))
			error = -EINTR;
		else
			*magnitude = inagg_largest_magnitude(page, bytes / memory_bytes(t), t->coding.dtype, *magnitude);
		cond_resched();
	}
	free_page((unsigned long)page);
	if (!error)
		iov_iter_revert(from, done);
	return error;
}

/* Put a new tensor, whose first blocks are in the ring, behind the others. */
static int submit(struct inagg_sock *isk, struct inagg_tensor *t)
{
	struct inagg_burst burst;
	int error = 0;

	inagg_burst_start(&burst);
	spin_lock_bh(&isk->lock);
	if (isk->sk.sk_state != TCP_ESTABLISHED || isk->sk.sk_err) {
		error = -EPIPE;
	} else {
		list_add_tail(&t->list, &isk->tensors);
		isk->tensor_count++;
		isk->ring.head = t->cell + t->blocks;
		if (!isk->active)
			isk->active = t;
		if (!isk->unassigned)
			isk->unassigned = t;
		if (t->has_control) {
			t->control = isk->next_control++;
			inagg_extend(isk, INAGG_CONTROL, isk->next_control, &burst);
		}
		assign_blocks(isk, &burst);
		inagg_timer_follow(isk);
	}
	spin_unlock_bh(&isk->lock);
	inagg_transmit(isk, &burst);
	return error;
}

/* More of the tensor is in the ring. */
static void publish(struct inagg_sock *isk, struct inagg_tensor *t)
{
	struct inagg_burst burst;

	inagg_burst_start(&burst);
	spin_lock_bh(&isk->lock);
	open_copied(isk, t, &burst);
	inagg_timer_follow(isk);
	spin_unlock_bh(&isk->lock);
	inagg_transmit(isk, &burst);
}

/* The rest of it, if any, is the next send()'s.  Afterwards a tensor copied whole may be read and gone. */
static void note_rest(struct inagg_sock *isk, struct inagg_tensor *t)
{
	isk->sending = t->copied < t->bytes ? t : NULL;
}

static int begin_tensor(struct inagg_sock *isk, struct msghdr *msg, size_t length)
{
	struct inagg_tensor_type type = isk->set.tensor;
	u32 magnitude = 0, *largest = NULL;
	struct inagg_tensor *t;
	int error;

	error = parse_cmsgs(msg, &type);
	if (error)
		return error;
	error = alloc_memory(isk);
	if (error)
		return error;
	t = new_tensor(isk, &type, length);
	if (IS_ERR(t))
		return PTR_ERR(t);
	t->cell = isk->ring.head;
	if (t->bytes && t->has_control)
		largest = &magnitude;
	error = copy_blocks(isk, t, &msg->msg_iter, largest);
	if (!error && largest)
		error = scan_rest(t, &msg->msg_iter, largest);
	if (largest)
		t->scale = inagg_exponent_of(magnitude, type.dtype);
	note_rest(isk, t);
	if (!error)
		error = submit(isk, t);
	if (error) {
		isk->sending = NULL;
		kfree(t);
	}
	return error;
}

static int send_error(struct inagg_sock *isk)
{
	struct sock *sk = &isk->sk;

	if (sk->sk_err)
		return sock_error(sk);
	if (sk->sk_shutdown & SEND_SHUTDOWN)
		return -EPIPE;
	if (sk->sk_state == TCP_SYN_SENT)
		return -EAGAIN;
	return sk->sk_state == TCP_ESTABLISHED ? 0 : -ENOTCONN;
}

/* Can a tensor, or the rest of one, be taken? */
static bool may_send(const struct inagg_sock *isk)
{
	const struct inagg_tensor *t = isk->sending;

	if (t)
		return has_room(isk, t);
	return READ_ONCE(isk->tensor_count) < INAGG_MOST_TENSORS &&
	       (!isk->has_memory || isk->ring.head - READ_ONCE(isk->ring.tail) < isk->ring.cells);
}

static bool send_ready(struct inagg_sock *isk)
{
	struct sock *sk = &isk->sk;

	return sk->sk_err || sk->sk_shutdown & SEND_SHUTDOWN ||
	       (sk->sk_state != TCP_SYN_SENT && (sk->sk_state != TCP_ESTABLISHED || may_send(isk)));
}

/* Is it only unread results that keep the sender waiting? */
static bool only_reader_helps(struct inagg_sock *isk)
{
	struct inagg_tensor *t;
	bool result;

	spin_lock_bh(&isk->lock);
	t = first_tensor(isk);
	result = t && (worth_reading(isk, t) || blocks_done(isk, t) > div_u64(t->read, max(block_bytes(t), 1U)));
	spin_unlock_bh(&isk->lock);
	return result;
}

/* Wait for room; or, if something was taken already, until only a reader makes room. */
static int wait_to_send(struct inagg_sock *isk, long *timeout, bool taken)
{
	long left;

	if (!*timeout)
		return -EAGAIN;
	left = wait_event_interruptible_timeout(*sk_sleep(&isk->sk),
						send_ready(isk) || (taken && only_reader_helps(isk)), *timeout);
	if (left < 0)
		return sock_intr_errno(*timeout);
	*timeout = left;
	return left ? 0 : -EAGAIN;
}

/* Begin a tensor, or take more of the one begun. */
static int take(struct inagg_sock *isk, struct msghdr *msg)
{
	struct inagg_tensor *t = isk->sending;
	int error;

	if (!t)
		return begin_tensor(isk, msg, iov_iter_count(&msg->msg_iter));
	error = copy_blocks(isk, t, &msg->msg_iter, NULL);
	if (error)
		return error;
	note_rest(isk, t);
	publish(isk, t);
	return 0;
}

static int send_locked(struct inagg_sock *isk, struct msghdr *msg, size_t length, long timeout)
{
	bool taken = false;
	int error;

	if (isk->sending && length != isk->sending->bytes - isk->sending->copied)
		return -EMSGSIZE;
	for (;;) {
		error = send_error(isk);
		if (error && error != -EAGAIN)
			break;
		if (error == -EAGAIN || !may_send(isk)) {
			if (taken && only_reader_helps(isk))
				break;
			error = wait_to_send(isk, &timeout, taken);
			if (error)
				break;
			continue;
		}
		error = take(isk, msg);
		taken = true;
		if (error || !isk->sending)
			break;
		if (signal_pending(current)) {
			error = sock_intr_errno(timeout);
			break;
		}
	}
	length -= iov_iter_count(&msg->msg_iter);
	return length ? length : error;
}

/**
 * inagg_sendmsg() - queue a tensor for reduction
 * @sock: connected
 * @msg: its elements; control message INAGG_CMSG_TENSOR overrides the socket's type and operator
 * @length: bytes of the tensor, or of all that an earlier short send left; 0: a barrier
 *
 * Return: bytes taken.  Fewer than @length if the results that nobody reads fill the buffer, or without
 * waiting as many as fit: send the rest.  Errors: see inagg(7).
 */
int inagg_sendmsg(struct socket *sock, struct msghdr *msg, size_t length)
{
	struct inagg_sock *isk = inagg_sk(sock->sk);
	int result;

	if (msg->msg_flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_WAITALL | MSG_CMSG_COMPAT))
		return -EINVAL;
	if (msg->msg_name)
		return -EISCONN;
	if (mutex_lock_interruptible(&isk->send_lock))
		return -ERESTARTSYS;
	result = send_locked(isk, msg, length, sock_sndtimeo(sock->sk, msg->msg_flags & MSG_DONTWAIT));
	mutex_unlock(&isk->send_lock);
	if (result == -EPIPE && !(msg->msg_flags & MSG_NOSIGNAL))
		send_sig(SIGPIPE, current, 0);
	return result;
}

/* recv() */

/* The blocks of @t before the result's @done are here: turn the one at `read` back into the user's type. */
static u8 *decoded_cell(struct inagg_sock *isk, struct inagg_tensor *t, u32 index)
{
	u8 *cell = cell_at(&isk->ring, t->cell + index);

	if (t->decoded == index) {
		inagg_decode_block(&t->coding, cell, cell, bytes_of(t, index) / memory_bytes(t), isk->job.size);
		t->decoded++;
	}
	return cell;
}

static void free_cells(struct inagg_sock *isk, u32 tail)
{
	if (isk->ring.tail == tail)
		return;
	smp_store_release(&isk->ring.tail, tail);	/* our reads of the cells come before */
	isk->sk.sk_write_space(&isk->sk);
}

/* Hand what is here to the user, or throw it away (@to NULL).  0 or -EFAULT. */
static int read_done(struct inagg_sock *isk, struct inagg_tensor *t, u32 done, struct iov_iter *to)
{
	u64 end = min_t(u64, t->bytes, (u64)done * block_bytes(t));
	u32 index, offset, bytes;
	u8 *cell;
	int error = 0;

	while (t->read < end && (!to || iov_iter_count(to)) && !error) {
		index = div_u64_rem(t->read, block_bytes(t), &offset);
		bytes = bytes_of(t, index) - offset;
		if (to) {
			cell = decoded_cell(isk, t, index);
			bytes = min_t(size_t, bytes, iov_iter_count(to));
			offset = copy_to_iter(cell + offset, bytes, to);
			error = offset < bytes ? -EFAULT : 0;
			bytes = offset;
		}
		t->read += bytes;
		cond_resched();
	}
	free_cells(isk, t->cell + (t->read == t->bytes ? t->blocks : (u32)div_u64(t->read, block_bytes(t))));
	return error;
}

/* The tensor is read to its end, or not wanted. */
static void end_tensor(struct inagg_sock *isk, struct inagg_tensor *t)
{
	spin_lock_bh(&isk->lock);
	list_del(&t->list);
	WRITE_ONCE(isk->tensor_count, isk->tensor_count - 1);
	spin_unlock_bh(&isk->lock);
	free_cells(isk, t->cell + t->blocks);
	kfree(t);
	isk->sk.sk_write_space(&isk->sk);
}

static void put_result(struct inagg_sock *isk, struct msghdr *msg)
{
	struct inagg_result_info info = {
		.contributors = inagg_all_ranks(isk->job.size),
		.count = isk->job.size,
	};

	msg->msg_flags |= MSG_EOR;
	if (msg->msg_controllen)
		put_cmsg(msg, SOL_INAGG, INAGG_CMSG_RESULT, sizeof(info), &info);
}

/* The oldest tensor, and how many of its blocks are here. */
static struct inagg_tensor *oldest(struct inagg_sock *isk, u32 *done, bool *complete, bool *worth)
{
	struct inagg_tensor *t;

	spin_lock_bh(&isk->lock);
	t = first_tensor(isk);
	*done = t ? blocks_done(isk, t) : 0;
	*complete = t && is_complete(t);
	*worth = t && worth_reading(isk, t);
	spin_unlock_bh(&isk->lock);
	return t;
}

/** inagg_readable() - would recv() return something worth returning? */
bool inagg_readable(const struct inagg_sock *isk)
{
	const struct inagg_tensor *t;
	bool result;

	spin_lock_bh((spinlock_t *)&isk->lock);
	t = first_tensor(isk);
	result = t && worth_reading(isk, t);
	spin_unlock_bh((spinlock_t *)&isk->lock);
	return result;
}

/** inagg_writable() - would send() take something? */
bool inagg_writable(const struct inagg_sock *isk)
{
	return isk->sk.sk_state == TCP_ESTABLISHED && may_send(isk);
}

/* Nothing will come any more: everything sent is read, and no more may be sent. */
static bool at_end(struct inagg_sock *isk)
{
	return isk->sk.sk_shutdown & RCV_SHUTDOWN ||
	       (isk->sk.sk_shutdown & SEND_SHUTDOWN && !READ_ONCE(isk->tensor_count));
}

static bool recv_ready(struct inagg_sock *isk)
{
	return isk->sk.sk_err || isk->sk.sk_state == TCP_CLOSE || at_end(isk) || inagg_readable(isk);
}

static int recv_error(struct inagg_sock *isk)
{
	struct sock *sk = &isk->sk;

	if (sk->sk_err)
		return sock_error(sk);
	return sk->sk_state == TCP_CLOSE ? -ENOTCONN : 0;
}

static int wait_to_recv(struct inagg_sock *isk, long *timeout)
{
	long left;

	if (!*timeout)
		return -EAGAIN;
	left = wait_event_interruptible_timeout(*sk_sleep(&isk->sk), recv_ready(isk), *timeout);
	if (left < 0)
		return sock_intr_errno(*timeout);
	*timeout = left;
	return left ? 0 : -EAGAIN;
}

/* The tensor's own error, once all of it is here. */
static int result_error(const struct inagg_tensor *t)
{
	if (t->mismatch)
		return -EBADMSG;
	return t->saturated ? -ERANGE : 0;
}

static int recv_locked(struct inagg_sock *isk, struct msghdr *msg, size_t length, int flags, long timeout)
{
	struct iov_iter *to = &msg->msg_iter;
	struct inagg_tensor *t;
	bool complete, worth;
	u64 read = 0, bytes;
	int error = 0;
	u32 done;

	while (!at_end(isk)) {
		t = oldest(isk, &done, &complete, &worth);
		if (t && complete && result_error(t)) {
			error = result_error(t);
			end_tensor(isk, t);
			break;
		}
		if (t && t->bytes && !length && !(flags & MSG_TRUNC))
			break;
		if (t && (worth || !timeout)) {
			bytes = t->read;
			error = read_done(isk, t, done, to);
			read += t->read - bytes;
			if (!error && complete && flags & MSG_TRUNC && t->read < t->bytes) {
				read += t->bytes - t->read;
				read_done(isk, t, done, NULL);
				msg->msg_flags |= MSG_TRUNC;
			}
			if (t->read == t->bytes && complete) {
				end_tensor(isk, t);
				put_result(isk, msg);
				break;
			}
		}
		if (error || (read == length && length && !(flags & MSG_TRUNC)))
			break;
		error = recv_error(isk);
		if (!error)
			error = wait_to_recv(isk, &timeout);
		if (error)
			break;
	}
	return read && error != -EFAULT ? read : error;
}

/**
 * inagg_recvmsg() - receive the result of the oldest tensor
 * @sock: connected
 * @msg: takes its elements, of the type they were sent in
 * @length: of the buffer
 * @flags: MSG_DONTWAIT, MSG_TRUNC, MSG_ERRQUEUE; MSG_WAITALL is what happens anyway
 *
 * Waits for the end of the tensor or of the buffer.  MSG_EOR marks the end of a tensor; what does not fit
 * stays for the next call, or is thrown away with MSG_TRUNC, which returns the whole length.
 * Return: bytes, 0 for a barrier (with MSG_EOR) or after shutdown().  Errors: see inagg(7).
 */
int inagg_recvmsg(struct socket *sock, struct msghdr *msg, size_t length, int flags)
{
	struct inagg_sock *isk = inagg_sk(sock->sk);
	int result;

	if (flags & MSG_PEEK)
		return -EOPNOTSUPP;
	if (flags & ~(MSG_DONTWAIT | MSG_WAITALL | MSG_TRUNC | MSG_ERRQUEUE | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC |
		      MSG_CMSG_COMPAT))
		return -EINVAL;
	if (flags & MSG_ERRQUEUE)
		return sock_recv_errqueue(sock->sk, msg, length, SOL_INAGG, INAGG_CMSG_FAULT);
	if (mutex_lock_interruptible(&isk->recv_lock))
		return -ERESTARTSYS;
	msg->msg_namelen = 0;
	result = recv_locked(isk, msg, length, flags, sock_rcvtimeo(sock->sk, flags & MSG_DONTWAIT));
	mutex_unlock(&isk->recv_lock);
	return result;
}

/* Throw away what is complete; @isk is locked and has no receiver. */
static void discard_complete(struct inagg_sock *isk)
{
	struct inagg_tensor *t;

	while ((t = first_tensor(isk)) && is_complete(t)) {
		list_del(&t->list);
		WRITE_ONCE(isk->tensor_count, isk->tensor_count - 1);
		free_cells(isk, t->cell + t->blocks);
		kfree(t);
	}
}

/**
 * inagg_discard_results() - shutdown(SHUT_RD)
 * @isk: the socket
 *
 * May sleep: a receiver in recv() leaves first.  From now on results are thrown away as they come.
 */
void inagg_discard_results(struct inagg_sock *isk)
{
	isk->sk.sk_shutdown |= RCV_SHUTDOWN;
	isk->sk.sk_state_change(&isk->sk);
	mutex_lock(&isk->recv_lock);
	spin_lock_bh(&isk->lock);
	isk->discard = true;
	discard_complete(isk);
	spin_unlock_bh(&isk->lock);
	mutex_unlock(&isk->recv_lock);
}

/** inagg_wake_reader() - results came, @isk locked: wake who waits for them, if it is worth it */
void inagg_wake_reader(struct inagg_sock *isk)
{
	const struct inagg_tensor *t = first_tensor(isk);

	if (isk->discard)
		discard_complete(isk);
	else if (t && worth_reading(isk, t))
		isk->sk.sk_data_ready(&isk->sk);
}

/** inagg_unread() - bytes of results that recv() would return, for SIOCINQ */
u64 inagg_unread(const struct inagg_sock *isk)
{
	struct inagg_tensor *t;
	u64 bytes = 0;

	spin_lock_bh((spinlock_t *)&isk->lock);
	list_for_each_entry(t, &isk->tensors, list)
		bytes += min_t(u64, t->bytes, (u64)blocks_done(isk, t) * block_bytes(t)) - t->read;
	spin_unlock_bh((spinlock_t *)&isk->lock);
	return bytes;
}

/** inagg_unsent() - bytes of tensors taken whose results are not here, for SIOCOUTQ */
u64 inagg_unsent(const struct inagg_sock *isk)
{
	struct inagg_tensor *t;
	u64 bytes = 0;

	spin_lock_bh((spinlock_t *)&isk->lock);
	list_for_each_entry(t, &isk->tensors, list)
		bytes += t->copied - min_t(u64, t->copied, (u64)blocks_done(isk, t) * block_bytes(t));
	spin_unlock_bh((spinlock_t *)&isk->lock);
	return bytes;
}
