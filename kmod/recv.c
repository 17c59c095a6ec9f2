// SPDX-License-Identifier: GPL-2.0-only
/* recv(): results from the ring to user space. */

#include <linux/slab.h>

#include "convert.h"
#include "tensor.h"

/* One recv(). */
struct reading {
	struct msghdr *msg;
	int	flags;
	u64	bytes;		/* that the user has, or that were thrown away */
	u64	*contributors;	/* of the blocks that it has come to the end of; NULL: nobody asks */
	u32	blocks, most;
};

/* @ranks are in the sum. */
static void apply_classes(const struct inagg_sock *isk, const struct inagg_tensor *t, u8 *cell, u32 first, u32 count,
			  u64 ranks)
{
	const struct inagg_tensor *classes = t->classes;
	u32 bytes = memory_bytes(t), i, counts;

	for (i = 0; i < count; i++) {
		counts = inagg_class_certain(inagg_element(classes->own, first + i, 4),
					     *contributors_of(isk, classes, (first + i) / classes->per_block), ranks);
		inagg_set_element(cell, i, bytes,
				  inagg_class_apply(inagg_element(cell, i, bytes), counts, t->coding.dtype));
	}
}

/* Block @index of a result, in the user's type: turned back once, in its cell. */
static u8 *decoded_cell(struct inagg_sock *isk, struct inagg_tensor *t, u32 index)
{
	u32 count = bytes_of(t, index) / memory_bytes(t), in;
	u8 *cell = cell_of(isk, t, index);
	u64 ranks;

	if (t->decoded <= index) {	/* those before may have been thrown away */
		ranks = *contributors_of(isk, t, index);
		in = inagg_count_ranks(ranks);
		inagg_from_wire(&t->coding, cell, count, in);
		if (t->average)
			inagg_average_block(cell, count, t->coding.dtype, in);
		if (t->classes)
			apply_classes(isk, t, cell, index * t->per_block, count, ranks);
		t->decoded = index + 1;
	}
	return cell;
}

static void note_block(struct reading *r, u64 contributors)
{
	if (!r->contributors)
		return;
	if (r->blocks < r->most)
		r->contributors[r->blocks++] = contributors;
	else
		r->msg->msg_flags |= MSG_CTRUNC;
}

/* Hand what is here to the user, or throw it away (@to NULL).  0, -EFAULT, or -EINTR of who is killed. */
static int read_done(struct inagg_sock *isk, struct inagg_tensor *t, u32 done, struct iov_iter *to, struct reading *r)
{
	u64 end = min_t(u64, t->bytes, (u64)done * block_bytes(t));
	u32 index, offset, bytes, left;
	u8 *cell;
	int error = 0;

	while (t->read < end && (!to || iov_iter_count(to)) && !error) {
		index = div_u64_rem(t->read, block_bytes(t), &offset);
		left = bytes = bytes_of(t, index) - offset;
		if (to) {
			cell = decoded_cell(isk, t, index);
			bytes = min_t(size_t, bytes, iov_iter_count(to));
			offset = copy_to_iter(cell + offset, bytes, to);
			error = offset < bytes ? -EFAULT : 0;
			bytes = offset;
		}
		t->read += bytes;
		r->bytes += bytes;
		if (bytes == left)
			note_block(r, *contributors_of(isk, t, index));
		if (fatal_signal_pending(current))
			error = -EINTR;
		cond_resched();
	}
	inagg_free_cells(isk, t->cell + (t->read == t->bytes ? t->blocks : (u32)div_u64(t->read, block_bytes(t))));
	return error;
}

/* The tensor is read to its end, or not wanted. */
static void end_tensor(struct inagg_sock *isk, struct inagg_tensor *t)
{
	spin_lock_bh(&isk->lock);
	inagg_unlink_tensor(isk, t);
	spin_unlock_bh(&isk->lock);
	isk->sk.sk_write_space(&isk->sk);
	if (inagg_at_end(isk))
		isk->sk.sk_state_change(&isk->sk);
}

static void put_result(const struct inagg_tensor *t, struct msghdr *msg)
{
	struct inagg_result_info info = {
		.contributors = t->roll.in_all,
		.count = t->roll.fewest,
		.flags = (t->roll.degraded ? INAGG_RESULT_DEGRADED : 0) | (t->renewed ? INAGG_RESULT_RENEWED : 0),
		.block_elements = t->blocks ? t->per_block : 0,
		.any = t->roll.in_any,
		.blocks = t->blocks,
		.degraded_blocks = t->roll.degraded,
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
	*complete = t && is_complete(isk, t);
	*worth = inagg_update_readable(isk);
	spin_unlock_bh(&isk->lock);
	return t;
}

static bool recv_ready(struct inagg_sock *isk)
{
	return isk->sk.sk_err || isk->sk.sk_state == TCP_CLOSE || inagg_at_end(isk) || READ_ONCE(isk->readable);
}

static int recv_error(struct inagg_sock *isk)
{
	struct sock *sk = &isk->sk;
	bool closed = smp_load_acquire(&sk->sk_state) == TCP_CLOSE;

	return sock_error(sk) ?: (closed ? -ENOTCONN : 0);
}

/* The tensor's own error, once all of it is here. */
static int result_error(const struct inagg_tensor *t)
{
	if (is_broken(t))
		return -EBADMSG;
	return t->saturated ? -ERANGE : 0;
}

/* Hand over what is here of the oldest tensor; with MSG_TRUNC throw away what the buffer has no room for. */
static int read_tensor(struct inagg_sock *isk, struct inagg_tensor *t, u32 done, struct reading *r)
{
	int error = read_done(isk, t, done, &r->msg->msg_iter, r);

	if (error || !(r->flags & MSG_TRUNC) || iov_iter_count(&r->msg->msg_iter) || t->read == t->bytes)
		return error;
	r->msg->msg_flags |= MSG_TRUNC;
	return read_done(isk, t, done, NULL, r);
}

/* Take what there is of the oldest tensor.  1: that is all recv() has to do; 0: wait; or an error. */
static int recv_step(struct inagg_sock *isk, struct reading *r, bool wait)
{
	bool complete, worth, full;
	struct inagg_tensor *t;
	int error;
	u32 done;

	t = oldest(isk, &done, &complete, &worth);
	if (!t || (!worth && (wait || !t->bytes)))	/* a barrier is here or not */
		return 0;
	if (complete && result_error(t)) {
		error = result_error(t);
		end_tensor(isk, t);
		return error;
	}
	if (is_broken(t))	/* its sender may still wait for cells */
		return read_done(isk, t, done, NULL, &(struct reading){});
	error = read_tensor(isk, t, done, r);
	if (error)
		return r->bytes ? 1 : error;	/* what is in the user's hands counts */
	if (t->read == t->bytes && complete) {
		put_result(t, r->msg);
		end_tensor(isk, t);
		return 1;
	}
	full = !iov_iter_count(&r->msg->msg_iter);
	return full && !(r->flags & MSG_TRUNC);
}

static ssize_t recv_locked(struct inagg_sock *isk, struct reading *r, long timeout)
{
	int result;

	while (!inagg_at_end(isk)) {
		result = recv_step(isk, r, timeout);
		if (result)
			return result < 0 ? result : r->bytes;
		if (r->bytes && READ_ONCE(isk->sk.sk_state) == TCP_CLOSE)
			break;	/* what was read is returned; the error is the next call's */
		result = r->bytes ? 0 : recv_error(isk);
		if (!result)
			result = inagg_wait(isk, recv_ready, &timeout);
		if (result)
			return r->bytes ?: result;
	}
	return r->bytes;
}

/* The user has room for more than INAGG_CMSG_RESULT, and may want to know who is in each block. */
static int begin_reading(const struct inagg_sock *isk, struct reading *r)
{
	size_t room = r->msg->msg_controllen, taken = CMSG_SPACE(sizeof(struct inagg_result_info)) + CMSG_LEN(0);

	if (isk->job.algorithm != INAGG_TRIO || room < taken + sizeof(u64))
		return 0;
	r->most = min_t(size_t, (room - taken) / sizeof(u64), INAGG_MOST_BLOCKS);
	r->contributors = kvcalloc(r->most, sizeof(u64), INAGG_GFP);
	return r->contributors ? 0 : -ENOMEM;
}

static void end_reading(struct reading *r)
{
	if (r->blocks)
		put_cmsg(r->msg, SOL_INAGG, INAGG_CMSG_BLOCKS, r->blocks * sizeof(u64), r->contributors);
	kvfree(r->contributors);
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
	long timeout = sock_rcvtimeo(sock->sk, flags & MSG_DONTWAIT);
	struct inagg_sock *isk = inagg_sk(sock->sk);
	struct reading reading = { .msg = msg, .flags = flags };
	ssize_t result;

	if (flags & (MSG_PEEK | MSG_OOB))
		return -EOPNOTSUPP;
	if (flags & ~(MSG_DONTWAIT | MSG_WAITALL | MSG_TRUNC | MSG_ERRQUEUE | MSG_NOSIGNAL | MSG_CMSG_CLOEXEC |
		      MSG_CMSG_COMPAT))
		return -EINVAL;
	if (flags & MSG_ERRQUEUE)
		return sock_recv_errqueue(sock->sk, msg, length, SOL_INAGG, INAGG_CMSG_FAULT);
	result = inagg_lock_call(isk, &isk->recv_lock, &timeout);
	if (result)
		return result;
	msg->msg_namelen = 0;
	result = begin_reading(isk, &reading);
	if (!result)
		result = recv_locked(isk, &reading, timeout);
	end_reading(&reading);
	if (result != -EAGAIN) {
		spin_lock_bh(&isk->lock);
		inagg_update_readable(isk);
		spin_unlock_bh(&isk->lock);
	}
	inagg_unlock_call(isk, &isk->recv_lock);
	return result;
}
