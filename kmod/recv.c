// SPDX-License-Identifier: GPL-2.0-only
/* recv(): results from the ring to user space. */

#include "convert.h"
#include "tensor.h"

static void apply_classes(const struct inagg_tensor *t, u8 *cell, u32 first, u32 count)
{
	u32 bytes = memory_bytes(t), i;

	for (i = 0; i < count; i++)
		inagg_set_element(cell, i, bytes,
				  inagg_class_apply(inagg_element(cell, i, bytes),
						    inagg_element(t->classes->own, first + i, 4), t->coding.dtype));
}

/* Block @index of a result, in the user's type: turned back once, in its cell. */
static u8 *decoded_cell(struct inagg_sock *isk, struct inagg_tensor *t, u32 index)
{
	u8 *cell = cell_of(isk, t, index);
	u32 count = bytes_of(t, index) / memory_bytes(t);

	if (t->decoded <= index) {	/* those before may have been thrown away */
		inagg_from_wire(&t->coding, cell, count, isk->job.size);
		if (t->classes)
			apply_classes(t, cell, index * t->per_block, count);
		t->decoded = index + 1;
	}
	return cell;
}

/* Hand what is here to the user, or throw it away (@to NULL).  0, -EFAULT, or -EINTR of who is killed. */
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

	if (sk->sk_err)
		return sock_error(sk);
	return sk->sk_state == TCP_CLOSE ? -ENOTCONN : 0;
}

/* The tensor's own error, once all of it is here. */
static int result_error(const struct inagg_tensor *t)
{
	if (is_broken(t))
		return -EBADMSG;
	return t->saturated ? -ERANGE : 0;
}

/* Hand over what is here of the oldest tensor; with MSG_TRUNC throw away what the buffer has no room for. */
static int read_tensor(struct inagg_sock *isk, struct inagg_tensor *t, u32 done, struct msghdr *msg, int flags)
{
	int error = read_done(isk, t, done, &msg->msg_iter);

	if (error || !(flags & MSG_TRUNC) || iov_iter_count(&msg->msg_iter) || t->read == t->bytes)
		return error;
	msg->msg_flags |= MSG_TRUNC;
	return read_done(isk, t, done, NULL);
}

/* Take what there is of the oldest tensor.  1: that is all recv() has to do; 0: wait; or an error. */
static int recv_step(struct inagg_sock *isk, struct msghdr *msg, int flags, bool wait, u64 *read)
{
	bool complete, worth, full;
	struct inagg_tensor *t;
	u64 before;
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
		return read_done(isk, t, done, NULL);
	before = t->read;
	error = read_tensor(isk, t, done, msg, flags);
	*read += t->read - before;
	if (error)
		return *read ? 1 : error;	/* what is in the user's hands counts */
	if (t->read == t->bytes && complete) {
		end_tensor(isk, t);
		put_result(isk, msg);
		return 1;
	}
	full = !iov_iter_count(&msg->msg_iter);
	return full && !(flags & MSG_TRUNC);
}

static ssize_t recv_locked(struct inagg_sock *isk, struct msghdr *msg, int flags, long timeout)
{
	u64 read = 0;
	int result;

	while (!inagg_at_end(isk)) {
		result = recv_step(isk, msg, flags, timeout, &read);
		if (result)
			return result < 0 ? result : read;
		/* what was read is returned; the error is the next call's */
		result = read && isk->sk.sk_err ? -EAGAIN : recv_error(isk);
		if (!result)
			result = inagg_wait(isk, recv_ready, &timeout);
		if (result)
			return read ?: result;
	}
	return read;
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
	result = recv_locked(isk, msg, flags, timeout);
	if (result != -EAGAIN) {
		spin_lock_bh(&isk->lock);
		inagg_update_readable(isk);
		spin_unlock_bh(&isk->lock);
	}
	inagg_unlock_call(isk, &isk->recv_lock);
	return result;
}
