// SPDX-License-Identifier: GPL-2.0-only
/* send(): tensors from user space into the ring. */
#include <linux/sched/signal.h>
#include <linux/slab.h>

#include "convert.h"
#include "tensor.h"

/* What a sender says of a tensor. */
struct description {
	struct inagg_tensor_type type;
	u64	agreed;
};

static bool take_cmsg(const struct cmsghdr *cmsg, int type, void *value, size_t bytes)
{
	if (cmsg->cmsg_type != type || cmsg->cmsg_len != CMSG_LEN(bytes))
		return false;
	memcpy(value, CMSG_DATA(cmsg), bytes);
	return true;
}

/* What the control messages say of a tensor; @what is what holds without them. */
static int parse_cmsgs(struct msghdr *msg, struct description *what)
{
	struct cmsghdr *cmsg;

	for_each_cmsghdr(cmsg, msg) {
		if (!CMSG_OK(msg, cmsg) || cmsg->cmsg_level != SOL_INAGG)
			return -EINVAL;
		if (!take_cmsg(cmsg, INAGG_CMSG_TENSOR, &what->type, sizeof(what->type)) &&
		    !take_cmsg(cmsg, INAGG_CMSG_AGREED, &what->agreed, sizeof(what->agreed)))
			return -EINVAL;
	}
	return inagg_check_tensor_type(&what->type);
}

/* The scale of a float sum that the user fixed, or -ERANGE. */
static int fixed_scale(const struct inagg_sock *isk, s32 k)
{
	u32 log2 = inagg_fan_in_log2(isk->job.size);

	if (k < inagg_fixed_point(log2, 254) || k > inagg_fixed_point(log2, 0))
		return -ERANGE;
	return inagg_scale_for_point(log2, k);
}

/* A linear check knows sums of integers. */
static bool is_verifiable(const struct inagg_sock *isk, const struct inagg_tensor_type *type, u8 op)
{
	return !isk->verify.wanted || op == INAGG_SUM || type->flags & INAGG_TENSOR_UNVERIFIED;
}

static struct inagg_tensor *new_tensor(struct inagg_sock *isk, const struct inagg_tensor_type *type, u64 bytes)
{
	u32 floats = inagg_floats(isk);
	u8 op = type->op == INAGG_AVG ? INAGG_SUM : type->op;
	struct inagg_tensor *t;
	int scale;

	/* a mask: not every kernel can divide 64 bits */
	if (bytes & (inagg_memory_bytes(type->dtype) - 1) || (bytes && type->flags & INAGG_TENSOR_RENEW))
		return ERR_PTR(-EINVAL);
	if (bytes && !is_verifiable(isk, type, op))
		return ERR_PTR(-EOPNOTSUPP);
	t = kzalloc(sizeof(*t), GFP_KERNEL_ACCOUNT);
	if (!t)
		return ERR_PTR(-ENOMEM);
	t->bytes = bytes;
	t->type = *type;
	t->coding.dtype = type->dtype;
	t->coding.op = op;
	t->average = type->op == INAGG_AVG;
	t->whole = !bytes || type->flags & INAGG_TENSOR_WHOLE;
	t->renews = type->flags & INAGG_TENSOR_RENEW;
	inagg_roll_init(&t->roll, isk->job.size);
	t->dtype_op = inagg_wire_encoding(type->dtype, op, floats);
	t->per_block = inagg_block_elements(isk->job.elements - inagg_tail(isk), t->dtype_op >> 4);
	t->sealed = op == INAGG_SUM;
	t->phase = 1;
	t->controls = !bytes || inagg_needs_scale(type->dtype, op, floats);
	if (bytes && t->controls && type->dtype == INAGG_FLOAT32 && type->scale != INAGG_SCALE_AUTO) {
		scale = fixed_scale(isk, type->scale);
		if (scale < 0) {
			kfree(t);
			return ERR_PTR(scale);
		}
		t->scale = scale;
		t->controls = 0;
	}
	t->scale_known = !t->controls;
	if (div_u64(bytes, block_bytes(t)) >= S32_MAX) {
		kfree(t);
		return ERR_PTR(-EMSGSIZE);
	}
	t->blocks = blocks_in(t, bytes);
	t->guesses = bytes && t->controls && inagg_guesses_scale(&isk->job, t->blocks);
	if (t->guesses)
		t->controls = t->blocks;
	t->controls_left = t->controls;
	return t;
}

/* May the sender fill this cell? */
static bool is_free(const struct inagg_sock *isk, u32 cell)
{
	/* pairs with inagg_free_cells(): the cell is written after its last reader has left */
	return cell - smp_load_acquire(&isk->ring.tail) < isk->ring.cells;
}

/* Copy as many blocks as there are free cells; tells the largest magnitude among them. */
static int copy_blocks(struct inagg_sock *isk, struct inagg_tensor *t, struct iov_iter *from, u32 *magnitude)
{
	u64 before = t->filled;	/* what a fault here must not take back: it may be on its way */
	u32 bytes, index;
	u8 *cell;

	while (t->filled < t->bytes && is_free(isk, t->cell + blocks_in(t, t->filled))) {
		index = blocks_in(t, t->filled);
		bytes = bytes_of(t, index);
		cell = cell_of(isk, t, index);
		if (!copy_from_iter_full(cell, bytes, from))
			return t->filled > before ? 0 : -EFAULT;
		if (magnitude)
			*magnitude = inagg_magnitude(cell, bytes / memory_bytes(t), t->coding.dtype, *magnitude);
		t->filled += bytes;
		if (signal_pending(current) && t->filled > before)
			break;
		cond_resched();
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
			*magnitude = inagg_magnitude(page, bytes / memory_bytes(t), t->coding.dtype, *magnitude);
		cond_resched();
	}
	free_page((unsigned long)page);
	if (!error)
		iov_iter_revert(from, done);
	return error;
}

/* Why nothing may be sent: what happened to the socket comes first.  -EAGAIN: it is joining. */
static int send_error(struct inagg_sock *isk)
{
	struct sock *sk = &isk->sk;
	int state = smp_load_acquire(&sk->sk_state), error = sock_error(sk);

	if (error)
		return error;
	if (sk->sk_shutdown & SEND_SHUTDOWN)
		return -EPIPE;
	if (state == TCP_SYN_SENT)
		return -EAGAIN;
	return state == TCP_ESTABLISHED ? 0 : -ENOTCONN;
}

/* Block numbers begin anew behind @t, so there is nothing before it; its result is the maximum, over the ranks. */
static int begin_renewal(struct inagg_sock *isk, struct inagg_tensor *t)
{
	if (!list_empty(&isk->tensors))
		return -EBUSY;
	t->exponent = inagg_membership_returning(&isk->member);
	WRITE_ONCE(isk->renewal, t);
	return 0;
}

/* Behind the others; @isk is locked. */
static void enqueue(struct inagg_sock *isk, struct inagg_tensor *t)
{
	list_add_tail(&t->list, &isk->tensors);
	if (!isk->active)
		isk->active = t;
	if (!isk->unassigned)
		isk->unassigned = t;
}

/* Put a new tensor, whose first blocks are in the ring, behind the others, and @exchange, unless it is NULL, before it. */
static int submit(struct inagg_sock *isk, struct inagg_tensor *t, struct inagg_tensor *exchange)
{
	struct inagg_burst burst;
	int error;

	spin_lock_bh(&isk->lock);
	inagg_burst_start(&burst);
	error = send_error(isk);
	if (!error && t->renews)
		error = begin_renewal(isk, t);
	if (!error) {
		if (exchange) {
			isk->verify.asked = true;
			isk->verify.exchange = exchange;
			enqueue(isk, exchange);
		}
		t->copied = t->filled;
		t->call = isk->verify.calls++;
		enqueue(isk, t);
		isk->tensor_count++;
		isk->ring.head = t->cell + t->blocks;
		if (!isk->unasked)
			isk->unasked = t;
		t->control = isk->next_control;
		isk->next_control += t->controls;
		if (t->bytes && t->controls)
			t->turn = isk->next_turn++;
		inagg_ask_scales(isk, &burst);
		inagg_assign_blocks(isk, &burst);
		inagg_timer_follow(isk);
	}
	spin_unlock_bh(&isk->lock);
	inagg_transmit(isk, &burst);
	inagg_open_rest(isk);
	return error;
}

/* More of the tensor is in the ring. */
static void publish(struct inagg_sock *isk, struct inagg_tensor *t)
{
	struct inagg_burst burst;

	spin_lock_bh(&isk->lock);
	inagg_burst_start(&burst);
	t->copied = t->filled;
	if (t->split && t->copied == t->bytes)
		inagg_queue_split(isk, t);
	inagg_open_copied(isk, t, &burst);
	inagg_timer_follow(isk);
	spin_unlock_bh(&isk->lock);
	inagg_transmit(isk, &burst);
	inagg_open_rest(isk);
}

/* The rest of it, if any, is the next send()'s.  Afterwards a tensor copied whole may be read and gone. */
static void note_rest(struct inagg_sock *isk, struct inagg_tensor *t)
{
	WRITE_ONCE(isk->sending, t->filled < t->bytes ? t : NULL);
	WRITE_ONCE(isk->fill, t->cell + blocks_in(t, t->filled));
}

static bool needs_key(struct inagg_sock *isk)
{
	bool needed;

	spin_lock_bh(&isk->lock);
	needed = isk->verify.wanted && !isk->verify.asked;
	spin_unlock_bh(&isk->lock);
	return needed;
}

/* Submit a new tensor; before the first one goes what makes the key of their checks. */
static int submit_in_order(struct inagg_sock *isk, struct inagg_tensor *t)
{
	struct inagg_tensor *exchange = NULL;
	int error = needs_key(isk) ? inagg_exchange_new(isk, &exchange) : 0;

	if (!error)
		error = submit(isk, t, exchange);
	if (error && exchange)
		inagg_free_companion(isk, exchange);
	return error;
}

static int begin_tensor(struct inagg_sock *isk, const struct description *what, struct msghdr *msg)
{
	size_t length = iov_iter_count(&msg->msg_iter);
	u32 magnitude = 0, *largest = NULL;
	struct inagg_tensor *t;
	int error;

	error = inagg_alloc_memory(isk);
	if (error)
		return error;
	t = new_tensor(isk, &what->type, length);
	if (IS_ERR(t))
		return PTR_ERR(t);
	t->context = what->agreed;
	t->cell = isk->ring.head;
	if (t->bytes && t->controls)
		largest = &magnitude;
	error = copy_blocks(isk, t, &msg->msg_iter, largest);
	if (!error && largest)
		error = scan_rest(t, &msg->msg_iter, largest);
	if (largest)
		t->exponent = inagg_exponent_of(magnitude, what->type.dtype);
	note_rest(isk, t);
	if (!error)
		error = submit_in_order(isk, t);
	if (error) {
		WRITE_ONCE(isk->sending, NULL);
		WRITE_ONCE(isk->fill, isk->ring.head);
		kfree(t);
		iov_iter_revert(&msg->msg_iter, length - iov_iter_count(&msg->msg_iter));	/* nothing was taken */
	}
	return error;
}

/* Can a tensor, or the rest of one, be taken? */
static bool may_send(const struct inagg_sock *isk)
{
	if (!READ_ONCE(isk->sending) && READ_ONCE(isk->tensor_count) >= INAGG_MOST_TENSORS)
		return false;
	if (READ_ONCE(isk->renewal))
		return false;
	return !smp_load_acquire(&isk->has_memory) || is_free(isk, READ_ONCE(isk->fill));
}

/** inagg_send_ready() - would send() return without waiting, with something taken or an error? */
bool inagg_send_ready(struct inagg_sock *isk)
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

/* For whom something was taken already, and who may return. */
static bool send_ready_or_stuck(struct inagg_sock *isk)
{
	return inagg_send_ready(isk) || only_reader_helps(isk);
}

static int continue_tensor(struct inagg_sock *isk, struct inagg_tensor *t, struct msghdr *msg)
{
	int error = copy_blocks(isk, t, &msg->msg_iter, NULL);

	if (error)
		return error;
	note_rest(isk, t);
	publish(isk, t);
	return 0;
}

/* Begin a tensor, or take more of the one begun: its type may be said again, but is not another. */
static int take(struct inagg_sock *isk, struct msghdr *msg)
{
	struct inagg_tensor *t = isk->sending;
	struct description what = { .type = t ? t->type : isk->set.tensor, .agreed = t ? t->context : 0 };
	int error = parse_cmsgs(msg, &what);

	if (error)
		return error;
	if (!t)
		return begin_tensor(isk, &what, msg);
	if (memcmp(&what.type, &t->type, sizeof(what.type)) || what.agreed != t->context)
		return -EINVAL;
	return continue_tensor(isk, t, msg);
}

static bool is_sending(const struct inagg_sock *isk)
{
	return READ_ONCE(isk->sk.sk_state) == TCP_ESTABLISHED && !(isk->sk.sk_shutdown & SEND_SHUTDOWN);
}

static int send_locked(struct inagg_sock *isk, struct msghdr *msg, size_t length, long timeout)
{
	bool taken = false, whole = msg->msg_flags & MSG_WAITALL;
	int error = send_error(isk);

	if (!error && isk->sending && length != isk->sending->bytes - isk->sending->filled)
		error = -EMSGSIZE;
	if (error && error != -EAGAIN)
		return error;
	for (;;) {
		if (taken && !is_sending(isk))
			break;	/* what was taken is returned; the error is the next call's */
		error = taken ? 0 : send_error(isk);
		if (error && error != -EAGAIN)
			break;
		if (error == -EAGAIN || !may_send(isk)) {
			sk_set_bit(SOCKWQ_ASYNC_NOSPACE, &isk->sk);
			smp_mb__after_atomic();
			if (!error && may_send(isk))
				continue;	/* room came before anybody knew that a signal is wanted */
			if (taken && !whole && only_reader_helps(isk))
				break;
			error = inagg_wait(isk, taken && !whole ? send_ready_or_stuck : inagg_send_ready, &timeout);
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
 * @msg: its elements; control messages: INAGG_CMSG_TENSOR overrides the socket's type and operator, INAGG_CMSG_AGREED
 * @length: bytes of the tensor, or of all that an earlier short send left; 0: a barrier
 *
 * Return: bytes taken.  Fewer than @length if the results that nobody reads fill the buffer, unless MSG_WAITALL says that
 * somebody will, or without waiting as many as fit: send the rest.  Errors: see inagg(7).
 */
int inagg_sendmsg(struct socket *sock, struct msghdr *msg, size_t length)
{
	long timeout = sock_sndtimeo(sock->sk, msg->msg_flags & MSG_DONTWAIT);
	struct inagg_sock *isk = inagg_sk(sock->sk);
	int result;

	if (msg->msg_flags & MSG_OOB)
		return -EOPNOTSUPP;
	/* sendmmsg() says MSG_BATCH of all messages but the last */
	if (msg->msg_flags & ~(MSG_DONTWAIT | MSG_NOSIGNAL | MSG_EOR | MSG_WAITALL | MSG_BATCH | MSG_CMSG_COMPAT))
		return -EINVAL;
	if (msg->msg_name)
		return -EISCONN;
	result = inagg_lock_call(isk, &isk->send_lock, &timeout);
	if (result)
		return result;
	result = send_locked(isk, msg, length, timeout);
	inagg_unlock_call(isk, &isk->send_lock);
	if (result == -EPIPE && !(msg->msg_flags & MSG_NOSIGNAL))
		send_sig(SIGPIPE, current, 0);
	return result;
}
