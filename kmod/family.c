// SPDX-License-Identifier: GPL-2.0-only
/*
 * AF_INAGG, the family: a socket is one rank of one job.  bind() chooses the rank, connect() joins, send()
 * queues a tensor, recv() returns its sum over all ranks.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/errqueue.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/random.h>
#include <linux/sched/signal.h>
#include <linux/sockios.h>
#include <linux/termios.h>
#include <net/ipv6.h>

#include "af_inagg.h"
#include "convert.h"
#include "tensor.h"
#define CREATE_TRACE_POINTS
#include "trace.h"

#define LINGER_LOOK	(HZ / 100 ?: 1)	/* and then less and less often */
#define LINGER_LOOK_MAX	(HZ / 2)
#define LINGER_MOST	(60000ULL * NSEC_PER_MSEC)
#define WIRE_BEFORE_JOIN	(64 << 10)

int inagg_family = AF_INAGG;
module_param_named(family, inagg_family, int, 0444);
MODULE_PARM_DESC(family, "address family number (default 25)");

unsigned int inagg_net_id;
atomic_long_t inagg_memory = ATOMIC_LONG_INIT(0);
unsigned long inagg_memory_limit;
struct workqueue_struct *inagg_workqueue;

/* SO_BINDTODEVICE has changed; under lock_sock(). */
static void rehash(struct sock *sk)
{
	inagg_link_bind_device(inagg_sk(sk));
}

static struct proto inagg_proto = {
	.name = "INAGG",
	.owner = THIS_MODULE,
	.obj_size = sizeof(struct inagg_sock),
	.rehash = rehash,
};

/* Failing. */

static void queue_fault(struct inagg_sock *isk, const struct inagg_fault *fault)
{
	struct sk_buff *skb = alloc_skb(sizeof(*fault), GFP_ATOMIC);
	struct sock_exterr_skb *err;

	if (!skb)
		return;
	skb_put_data(skb, fault, sizeof(*fault));
	err = SKB_EXT_ERR(skb);
	memset(err, 0, sizeof(*err));
	err->ee.ee_errno = fault->error;
	err->ee.ee_origin = SO_EE_ORIGIN_LOCAL;
	err->ee.ee_type = fault->reason;
	err->ee.ee_info = fault->block;
	err->ee.ee_data = fault->job;
	if (sock_queue_err_skb(&isk->sk, skb))
		kfree_skb(skb);
}

static void fail(struct inagg_sock *isk, const struct inagg_fault *fault)
{
	struct sock *sk = &isk->sk;

	if (sk->sk_state == TCP_CLOSE)
		return;
	trace_inagg_fail(isk, fault);
	WRITE_ONCE(sk->sk_err, fault->error);
	smp_store_release(&sk->sk_state, TCP_CLOSE);	/* who sees this sees why */
	queue_fault(isk, fault);
	sk_error_report(sk);
}

static void fail_waiting(struct inagg_sock *isk, struct inagg_fault *fault)
{
	fault->job = isk->job.job;
	fault->tree = isk->job.tree;
	inagg_describe_stall(isk, fault);
	fail(isk, fault);
}

/**
 * inagg_fail() - the socket's job is over for it
 * @isk: the socket, locked
 * @error: errno value that the next call gets
 * @reason: enum inagg_reason from the switch, or 0
 */
void inagg_fail(struct inagg_sock *isk, int error, int reason)
{
	struct inagg_fault fault = { .error = error, .reason = reason };

	fail_waiting(isk, &fault);
}

/**
 * inagg_fail_refused() - likewise, since the switch, or one above it, says so
 * @isk: the socket, locked
 * @error: errno value that the next call gets
 * @h: header of the REFUSED
 * @r: what is behind it
 */
void inagg_fail_refused(struct inagg_sock *isk, int error, const struct inagg_hdr *h, const struct inagg_refusal *r)
{
	struct inagg_fault fault = { .error = error, .reason = inagg_swap32(h->slot) };
	const u8 *above = inagg_refused_above(h, r);

	if (above)
		memcpy(fault.above, above, sizeof(fault.above));
	fail_waiting(isk, &fault);
}

/**
 * inagg_fail_unverified() - the switch's results are none
 * @isk: the socket, locked
 * @stream: INAGG_DATA or INAGG_CONTROL
 * @block: whose results they were
 * @alike: all of them had the same elements
 */
void inagg_fail_unverified(struct inagg_sock *isk, int stream, u32 block, bool alike)
{
	struct inagg_fault fault = {
		.error = EKEYREJECTED,
		.job = isk->job.job,
		.block = block,
		.control = stream,
		.heard = alike,
	};

	fail(isk, &fault);
}

/* Creating and closing. */

/* Packets that arrived as the socket was closed have been handled. */
static void destruct(struct sock *sk)
{
	dst_cache_destroy(&inagg_sk(sk)->link.dst);
	skb_queue_purge(&sk->sk_error_queue);
	memzero_explicit(&inagg_sk(sk)->key, sizeof(inagg_sk(sk)->key));
	memzero_explicit(&inagg_sk(sk)->verify, sizeof(inagg_sk(sk)->verify));
}

static void look_later(struct inagg_sock *isk)
{
	isk->linger_pause = clamp_t(u64, 2 * isk->linger_pause, LINGER_LOOK, LINGER_LOOK_MAX);
	queue_delayed_work(inagg_workqueue, &isk->linger, isk->linger_pause);
}

/* What waits below us is charged to the socket, which therefore stays, with nothing else, until it has gone. */
static void free_when_drained(struct inagg_sock *isk)
{
	if (isk->wire && refcount_read(&isk->wire->sk_wmem_alloc) > 1) {
		look_later(isk);
		return;
	}
	inagg_uncharge(isk, atomic64_read(&isk->charged));
	if (isk->wire)
		sock_put(isk->wire);
	sock_put(&isk->sk);
}

/* Nobody can reach the socket any more: leave the job, and free it. */
static void destroy(struct inagg_sock *isk)
{
	struct inagg_net *in = inagg_pernet(sock_net(&isk->sk));
	struct inagg_burst burst;
	bool was_member;

	spin_lock_bh(&isk->lock);
	inagg_burst_start(&burst);
	was_member = isk->joined || isk->sk.sk_state == TCP_SYN_SENT;	/* a JOIN may have been heard */
	isk->sk.sk_state = TCP_CLOSE;
	if (isk->next.agreed)	/* the switch has gone on already */
		isk->job.generation = isk->next.job.generation;
	if (was_member && !isk->vanished)
		inagg_send_membership(isk, INAGG_LEAVE, &burst);
	spin_unlock_bh(&isk->lock);
	if (isk->link.udp)
		inagg_transmit(isk, &burst);
	inagg_timer_stop(isk);
	if (cancel_work_sync(&isk->split))
		__sock_put(&isk->sk);
	inagg_renewal_cancel(isk);
	inagg_group_cancel(isk);
	if (isk->link.udp) {
		isk->wire = isk->link.udp->sk;
		sock_hold(isk->wire);
	}
	inagg_link_close(isk);
	mutex_lock(&in->lock);
	list_del(&isk->node);
	mutex_unlock(&in->lock);
	inagg_free_tensors(isk);
	isk->linger_pause = 0;
	free_when_drained(isk);
}

/* Are there contributions that other ranks wait for? */
static bool has_unfinished(struct inagg_sock *isk)
{
	bool result;

	spin_lock_bh(&isk->lock);
	result = isk->sk.sk_state == TCP_ESTABLISHED && !READ_ONCE(isk->sending) && isk->active;
	spin_unlock_bh(&isk->lock);
	return result;
}

/* After close(): until the last result is here, or the deadline has passed. */
static void linger(struct work_struct *work)
{
	struct inagg_sock *isk = container_of(to_delayed_work(work), struct inagg_sock, linger);

	if (isk->wire)
		free_when_drained(isk);
	else if (has_unfinished(isk) && ktime_get_ns() < isk->linger_until)
		look_later(isk);
	else
		destroy(isk);
}

/*
 * Where silent ranks are excluded, the others go on without one that was killed, as without one whose host died.  Who
 * leaves has nothing more to send, and is waited for if the others send.  Of the threads that exit_group() ends any may
 * be the last, with PF_SIGNALED: only what wait() will say tells that a signal did it.
 */
static bool is_killed(const struct inagg_sock *isk)
{
	return current->flags & PF_EXITING && current->exit_code & 0x7f && isk->member.flags & INAGG_JOIN_RENEW;
}

static int inagg_release(struct socket *sock)
{
	bool exiting = current->flags & PF_EXITING, patient;
	struct sock *sk = sock->sk;
	struct inagg_sock *isk;

	if (!sk)
		return 0;
	isk = inagg_sk(sk);
	isk->vanished = is_killed(isk);
	inagg_discard_results(isk);	/* at once: no call is under way */
	patient = !sock_flag(sk, SOCK_LINGER) || (sk->sk_lingertime && exiting);
	if (!patient && sk->sk_lingertime)
		wait_event_interruptible_timeout(*sk_sleep(sk), !has_unfinished(isk), sk->sk_lingertime);
	inagg_link_orphan(isk);
	sock_orphan(sk);
	sock->sk = NULL;
	if (patient && has_unfinished(isk)) {
		isk->lingering = true;
		isk->linger_until = ktime_get_ns() + LINGER_MOST;
		look_later(isk);
	} else {
		destroy(isk);
	}
	return 0;
}

/* Room was made, or the last result is here. */
static void write_space(struct sock *sk)
{
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait, EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND);
	sk_wake_async(sk, SOCK_WAKE_SPACE, POLL_OUT);
	rcu_read_unlock();
}

static void init_settings(struct inagg_sock *isk)
{
	const struct inagg_net *in = inagg_pernet(sock_net(&isk->sk));

	isk->set.tensor.dtype = INAGG_FLOAT32;
	isk->set.tensor.scale = INAGG_SCALE_AUTO;
	isk->set.algorithm = INAGG_SWITCHML;
	isk->set.rto_min_us = INAGG_RTO_FLOOR_NS / NSEC_PER_USEC;
	isk->set.deadline_ms = READ_ONCE(in->deadline_default);
	isk->set.buffer = min(READ_ONCE(in->buffer_default), READ_ONCE(in->buffer_max));
	isk->set.history = inagg_history_limit(isk, INAGG_HISTORY_DEFAULT);
}

static int init_sock(struct inagg_sock *isk)
{
	int error = dst_cache_init(&isk->link.dst, GFP_KERNEL_ACCOUNT);

	if (error)
		return error;
	mutex_init(&isk->send_lock);
	mutex_init(&isk->recv_lock);
	init_waitqueue_head(&isk->calls);
	spin_lock_init(&isk->lock);
	INIT_LIST_HEAD(&isk->tensors);
	inagg_guesses_init(&isk->guesses);
	INIT_DELAYED_WORK(&isk->linger, linger);
	INIT_WORK(&isk->split, inagg_split_work);
	INIT_WORK(&isk->group.work, inagg_group_work);
	INIT_WORK(&isk->next.work, inagg_renewal_work);
	init_settings(isk);
	inagg_timer_init(isk);
	isk->wire_limit = WIRE_BEFORE_JOIN;
	sock_set_flag(&isk->sk, SOCK_RCU_FREE);
	isk->sk.sk_destruct = destruct;
	isk->sk.sk_write_space = write_space;
	isk->sk.sk_state = TCP_CLOSE;
	return 0;
}

/* Addresses. */

static bool is_any(const struct in6_addr *address)
{
	return ipv6_addr_any(address) || (ipv6_addr_v4mapped(address) && !address->s6_addr32[3]);
}

static bool same_or_none(u32 a, u32 b)
{
	return !a || !b || a == b;
}

/*
 * Does the scope of @a go with its address, with the one bound and with SO_BINDTODEVICE?  IPv4 has none, a link-local
 * address needs one from somewhere, and no two may differ.
 */
static bool scope_fits(const struct inagg_sock *isk, const struct sockaddr_inagg *a)
{
	u32 scope = a->sinagg_scope_id, bound = isk->local.sinagg_scope_id, device = READ_ONCE(isk->sk.sk_bound_dev_if);
	const struct in6_addr *address = (const void *)a->sinagg_addr;

	if (ipv6_addr_v4mapped(address))
		return !scope && !bound;
	if (!scope && !bound && !device)
		return !(ipv6_addr_type(address) & IPV6_ADDR_LINKLOCAL);
	return same_or_none(scope, bound) && same_or_none(scope, device) && same_or_none(bound, device);
}

static int check_address(const struct sockaddr_unsized *addr, int length, const struct sockaddr_inagg **out)
{
	const struct sockaddr_inagg *a = (const void *)addr;

	if (length < (int)sizeof(a->sinagg_family))
		return -EINVAL;
	if (a->sinagg_family != inagg_family)
		return -EAFNOSUPPORT;
	if (length != sizeof(*a) || a->sinagg_reserved)
		return -EINVAL;
	*out = a;
	return 0;
}

/* Family and local address of the link from what was bound, as far as that says. */
static void set_local(struct inagg_link *link, const struct sockaddr_inagg *a, u8 family)
{
	const struct in6_addr *address = (const void *)a->sinagg_addr;

	memset(&link->local, 0, sizeof(link->local));
	link->family = family;
	WRITE_ONCE(link->port, a->sinagg_port);
	link->ifindex = a->sinagg_scope_id;
	if (family == AF_INET)
		link->local.v4.s_addr = address->s6_addr32[3];
	else
		link->local.v6 = *address;
}

static u8 family_of(const u8 *address)
{
	return ipv6_addr_v4mapped((const struct in6_addr *)address) ? AF_INET : AF_INET6;
}

static int inagg_bind(struct socket *sock, struct sockaddr_unsized *addr, int length)
{
	struct inagg_sock *isk = inagg_sk(sock->sk);
	const struct sockaddr_inagg *a;
	int error = check_address(addr, length, &a);

	if (error)
		return error;
	if (a->sinagg_rank >= INAGG_MAX_RANKS || a->sinagg_job || a->sinagg_size)
		return -EINVAL;
	lock_sock(&isk->sk);
	if (isk->bound) {
		error = -EINVAL;	/* as of an Internet socket */
	} else if (!scope_fits(isk, a)) {
		error = -EINVAL;
	} else if (!is_any((const void *)a->sinagg_addr)) {
		set_local(&isk->link, a, family_of(a->sinagg_addr));
		error = inagg_link_open(isk);
	}
	if (!error) {
		spin_lock_bh(&isk->lock);
		isk->local = *a;
		spin_unlock_bh(&isk->lock);
		isk->bound = true;
	}
	release_sock(&isk->sk);
	return error;
}

static int inagg_getname(struct socket *sock, struct sockaddr *addr, int peer)
{
	struct inagg_sock *isk = inagg_sk(sock->sk);
	struct sockaddr_inagg *a = (void *)addr;
	int result = sizeof(*a);

	lock_sock(&isk->sk);
	if (peer && !isk->joined)
		result = -ENOTCONN;
	else
		*a = peer ? isk->peer : isk->local;
	a->sinagg_family = inagg_family;
	if (!peer && isk->link.udp)
		a->sinagg_port = isk->link.port;
	release_sock(&isk->sk);
	return result;
}

/* Joining. */

/* The link to the switch: opened now, unless bind() did. */
static int open_link(struct inagg_sock *isk, const struct sockaddr_inagg *a)
{
	struct inagg_link *link = &isk->link;
	u8 family = family_of(a->sinagg_addr);
	int error;

	if (link->udp && link->family != family) {
		if (!is_any((const void *)isk->local.sinagg_addr))
			return -EINVAL;
		inagg_link_close(isk);	/* of an earlier attempt */
	}
	if (!link->udp) {
		set_local(link, &isk->local, family);
		if (family == AF_INET6 && ipv6_addr_v4mapped(&link->local.v6))
			return -EINVAL;
		error = inagg_link_open(isk);
		if (error)
			return error;
	}
	if (family == AF_INET)
		link->peer.v4.s_addr = ((const struct in6_addr *)a->sinagg_addr)->s6_addr32[3];
	else
		memcpy(&link->peer.v6, a->sinagg_addr, sizeof(link->peer.v6));
	link->peer_port = a->sinagg_port ?: htons(INAGG_PORT);
	link->ifindex = a->sinagg_scope_id ?: isk->local.sinagg_scope_id;
	dst_cache_reset(&link->dst);
	return 0;
}

/* What the JOIN asks for. */
static int prepare_job(struct inagg_sock *isk, const struct sockaddr_inagg *a, struct inagg_job_config *job)
{
	int error = 0;
	u32 payload = inagg_path_payload(isk, &error);
	u16 elements = inagg_elements_for(payload);

	if (error)
		return error;
	if (!elements)
		return -EMSGSIZE;
	if (isk->set.elements)
		elements = min_t(u16, elements, isk->set.elements);
	memset(job, 0, sizeof(*job));
	job->job = a->sinagg_job;
	job->rank = isk->local.sinagg_rank;
	job->size = a->sinagg_size;
	job->elements = elements;
	job->algorithm = isk->set.algorithm;
	job->checked = isk->set.checked;
	job->expiry_us = isk->set.expiry_us;
	job->quorum = isk->set.quorum;
	job->exclude_ms = isk->set.exclude_ms;
	return 0;
}

/*
 * What an earlier attempt left: its last answer may just be handled on another CPU, its last JOIN be on its way.
 * Afterwards nobody but connect() looks at the link and the job.
 */
static void end_attempt(struct inagg_sock *isk)
{
	if (!isk->member.nonce)
		return;	/* this is the first */
	inagg_link_ignore(isk);
	inagg_group_cancel(isk);
	synchronize_net();
	inagg_timer_stop(isk);
}

static void start_join(struct inagg_sock *isk, const struct sockaddr_inagg *a, const struct inagg_job_config *job)
{
	u64 now = ktime_get_ns();

	skb_queue_purge(&isk->sk.sk_error_queue);	/* of an earlier attempt */
	spin_lock_bh(&isk->lock);
	isk->peer = *a;
	isk->peer.sinagg_port = isk->link.peer_port;
	isk->job = *job;
	isk->member = (struct inagg_membership){ .challenge = isk->member.challenge };
	isk->member.nonce = get_random_u64() ?: 1;	/* 0 means "any" in a switch's tables */
	isk->attempt++;
	isk->sk.sk_state = TCP_SYN_SENT;
	isk->sk.sk_err = 0;
	isk->progress = now;
	isk->join_due = now;
	isk->join_pause = 0;
	isk->not_yet = INAGG_R_NONE;
	inagg_link_listen(isk, isk->link.udp);
	inagg_timer_arm(isk, now);
	spin_unlock_bh(&isk->lock);
}

static int wait_for_join(struct socket *sock, int flags)
{
	struct sock *sk = sock->sk;
	long timeout = sock_sndtimeo(sk, flags & O_NONBLOCK);
	u32 attempt = inagg_sk(sk)->attempt;

	if (!timeout)
		return -EINPROGRESS;
	release_sock(sk);
	timeout = wait_event_interruptible_timeout(*sk_sleep(sk), smp_load_acquire(&sk->sk_state) != TCP_SYN_SENT,
						   timeout);
	lock_sock(sk);
	if (inagg_sk(sk)->attempt != attempt)
		return -ECONNRESET;	/* it ended, and another thread has begun the next */
	if (timeout < 0)
		return sock_intr_errno(sk->sk_sndtimeo);
	return timeout ? 0 : -EINPROGRESS;
}

/*
 * With trio others may go on before this rank has sent anything: what they decide is kept for it.  Without memory it asks for
 * it, and send() says so.
 */
static void keep_results(struct inagg_sock *isk)
{
	if (isk->job.algorithm != INAGG_TRIO || !mutex_trylock(&isk->send_lock))
		return;
	inagg_alloc_memory(isk);
	inagg_unlock_call(isk, &isk->send_lock);
}

static int begin_connect(struct inagg_sock *isk, const struct sockaddr_inagg *a)
{
	struct inagg_job_config job;
	int error;

	if (!isk->bound || !a->sinagg_size || a->sinagg_size > INAGG_MAX_RANKS ||
	    isk->local.sinagg_rank >= a->sinagg_size || a->sinagg_rank || !scope_fits(isk, a))
		return -EINVAL;
	if (isk->set.quorum > a->sinagg_size ||
	    ((isk->set.quorum || isk->set.expiry_us || isk->set.exclude_ms) && isk->set.algorithm != INAGG_TRIO))
		return -EINVAL;
	end_attempt(isk);
	error = open_link(isk, a);
	if (!error)
		error = prepare_job(isk, a, &job);
	if (!error)
		start_join(isk, a, &job);
	return error;
}

static int inagg_connect(struct socket *sock, struct sockaddr_unsized *addr, int length, int flags)
{
	struct inagg_sock *isk = inagg_sk(sock->sk);
	struct sock *sk = sock->sk;
	const struct sockaddr_inagg *a;
	int error = check_address(addr, length, &a), state;

	if (error)
		return error;
	lock_sock(sk);
	state = smp_load_acquire(&sk->sk_state);	/* the switch's answer may come at any time: one look at it */
	if (state == TCP_SYN_SENT) {
		error = flags & O_NONBLOCK ? -EALREADY : wait_for_join(sock, flags);
	} else if (isk->joined) {
		error = sock->state == SS_CONNECTING && state == TCP_ESTABLISHED ? 0 : -EISCONN;
	} else if (sock->state == SS_CONNECTING && sk->sk_err) {
		error = sock_error(sk);	/* of a connect() that did not wait */
		sock->state = SS_UNCONNECTED;
		goto out;
	} else {
		error = begin_connect(isk, a);
		if (!error) {
			sock->state = SS_CONNECTING;
			error = wait_for_join(sock, flags);
		}
	}
	if (!error && smp_load_acquire(&sk->sk_state) != TCP_ESTABLISHED) {
		error = sock_error(sk) ?: -ECONNABORTED;
		sock->state = SS_UNCONNECTED;
	}
	if (!error) {
		sock->state = SS_CONNECTED;
		keep_results(isk);
	}
out:
	release_sock(sk);
	return error;
}

/* Waiting. */

/**
 * inagg_wait() - wait in send() or recv()
 * @isk: the socket
 * @ready: ends the wait
 * @timeout: jiffies; becomes what is left of them
 *
 * Return: 0, -EAGAIN when the time is over, or an error of interrupted calls.
 */
int inagg_wait(struct inagg_sock *isk, bool (*ready)(struct inagg_sock *isk), long *timeout)
{
	long left;

	if (!*timeout)
		return -EAGAIN;
	if (signal_pending(current))	/* also where there is always something to do */
		return sock_intr_errno(*timeout);
	left = wait_event_interruptible_timeout(*sk_sleep(&isk->sk), ready(isk), *timeout);
	if (left < 0)
		return sock_intr_errno(*timeout);
	*timeout = left;
	return left ? 0 : -EAGAIN;
}

/**
 * inagg_lock_call() - one send() and one recv() at a time: wait for another thread's as long as for anything else
 * @isk: the socket
 * @lock: send_lock or recv_lock
 * @timeout: jiffies; becomes what is left of them
 *
 * Return: 0, -EAGAIN when the time is over, or an error of interrupted calls.
 */
int inagg_lock_call(struct inagg_sock *isk, struct mutex *lock, long *timeout)
{
	long left;

	if (mutex_trylock(lock))
		return 0;
	if (!*timeout) {
		WRITE_ONCE(isk->turned_away, true);
		smp_mb();	/* the holder sees that, or we that it has gone */
		return mutex_trylock(lock) ? 0 : -EAGAIN;
	}
	left = wait_event_interruptible_timeout(isk->calls, mutex_trylock(lock), *timeout);
	if (left < 0)
		return sock_intr_errno(*timeout);
	*timeout = left;
	return left ? 0 : -EAGAIN;
}

void inagg_unlock_call(struct inagg_sock *isk, struct mutex *lock)
{
	mutex_unlock(lock);
	if (wq_has_sleeper(&isk->calls))	/* a full barrier */
		wake_up_interruptible(&isk->calls);
	if (READ_ONCE(isk->turned_away)) {
		WRITE_ONCE(isk->turned_away, false);
		isk->sk.sk_state_change(&isk->sk);	/* an edge for who polls: it may call again */
	}
}

/* If not, SIGIO comes when it can. */
static bool can_send(struct inagg_sock *isk)
{
	if (inagg_send_ready(isk))
		return true;
	sk_set_bit(SOCKWQ_ASYNC_NOSPACE, &isk->sk);
	smp_mb__after_atomic();	/* room that came before the bit told nobody */
	return inagg_send_ready(isk);
}

static __poll_t inagg_poll(struct file *file, struct socket *sock, poll_table *wait)
{
	struct sock *sk = sock->sk;
	struct inagg_sock *isk = inagg_sk(sk);
	__poll_t mask = 0;

	sock_poll_wait(file, sock, wait);
	if (sk->sk_err || !skb_queue_empty_lockless(&sk->sk_error_queue))
		mask |= EPOLLERR;
	if (sk->sk_shutdown == SHUTDOWN_MASK || (isk->joined && sk->sk_state == TCP_CLOSE))
		mask |= EPOLLHUP;
	if (inagg_at_end(isk))
		mask |= EPOLLIN | EPOLLRDNORM | EPOLLRDHUP;
	if (sk->sk_err || READ_ONCE(isk->readable))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (can_send(isk))
		mask |= EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
	return mask;
}

static int inagg_ioctl(struct socket *sock, unsigned int command, unsigned long argument)
{
	struct inagg_sock *isk = inagg_sk(sock->sk);
	u64 unsent, unread;

	if (command != SIOCOUTQ && command != SIOCINQ)
		return -ENOIOCTLCMD;
	inagg_count_bytes(isk, &unsent, &unread);
	return put_user((int)min_t(u64, command == SIOCOUTQ ? unsent : unread, INT_MAX), (int __user *)argument);
}

/* Ends a connect() under way, if there is one; returns whether. */
static bool abort_join(struct inagg_sock *isk)
{
	struct inagg_burst burst;
	bool joining;

	spin_lock_bh(&isk->lock);
	inagg_burst_start(&burst);
	joining = isk->sk.sk_state == TCP_SYN_SENT;
	if (joining) {
		inagg_send_membership(isk, INAGG_LEAVE, &burst);	/* a JOIN may have been heard */
		inagg_fail(isk, ECONNRESET, 0);
	}
	spin_unlock_bh(&isk->lock);
	inagg_transmit(isk, &burst);
	return joining;
}

/* In the middle of a tensor that is the end: its rest will never come. */
static void stop_sending(struct inagg_sock *isk)
{
	spin_lock_bh(&isk->lock);
	isk->sk.sk_shutdown |= SEND_SHUTDOWN;
	if (READ_ONCE(isk->sending))
		inagg_fail(isk, ECONNABORTED, 0);
	spin_unlock_bh(&isk->lock);
}

static int inagg_shutdown(struct socket *sock, int how)
{
	struct sock *sk = sock->sk;
	struct inagg_sock *isk = inagg_sk(sk);
	int error = 0;

	if (how < SHUT_RD || how > SHUT_RDWR)
		return -EINVAL;
	lock_sock(sk);
	if (abort_join(isk)) {	/* which may be tried again, as of a TCP socket */
		sock->state = SS_UNCONNECTED;
		release_sock(sk);
		return 0;
	}
	if (!isk->joined) {
		release_sock(sk);
		return -ENOTCONN;
	}
	if (how != SHUT_RD)
		stop_sending(isk);
	release_sock(sk);
	if (how != SHUT_WR)
		error = inagg_discard_results(isk);
	sk->sk_state_change(sk);
	return error;
}

/* Its family is the module's parameter. */
static struct proto_ops inagg_ops = {
	.owner = THIS_MODULE,
	.release = inagg_release,
	.bind = inagg_bind,
	.connect = inagg_connect,
	.socketpair = sock_no_socketpair,
	.accept = sock_no_accept,
	.getname = inagg_getname,
	.poll = inagg_poll,
	.ioctl = inagg_ioctl,
	.gettstamp = sock_gettstamp,
	.listen = sock_no_listen,
	.shutdown = inagg_shutdown,
	.setsockopt = inagg_setsockopt,
	.getsockopt = inagg_getsockopt,
	.sendmsg = inagg_sendmsg,
	.recvmsg = inagg_recvmsg,
	.mmap = sock_no_mmap,
	INAGG_REFUSE_SPLICE
};

static int inagg_create(struct net *net, struct socket *sock, int protocol, int kern)
{
	struct inagg_net *in = inagg_pernet(net);
	struct inagg_sock *isk;
	struct sock *sk;
	int error;

	if (sock->type != SOCK_SEQPACKET)
		return -ESOCKTNOSUPPORT;
	if (protocol)
		return -EPROTONOSUPPORT;
	sk = sk_alloc(net, inagg_family, GFP_KERNEL, &inagg_proto, kern);
	if (!sk)
		return -ENOMEM;
	sock_init_data(sock, sk);
	isk = inagg_sk(sk);
	error = init_sock(isk);
	if (error) {
		sock_orphan(sk);
		sock->sk = NULL;
		sock_put(sk);
		return error;
	}
	sock->ops = &inagg_ops;
	mutex_lock(&in->lock);
	list_add_tail(&isk->node, &in->sockets);
	mutex_unlock(&in->lock);
	return 0;
}

static struct net_proto_family inagg_net_family = {
	.owner = THIS_MODULE,
	.create = inagg_create,
};

/* Namespaces and module. */

static int __net_init inagg_net_init(struct net *net)
{
	struct inagg_net *in = inagg_pernet(net);
	int error;

	mutex_init(&in->lock);
	INIT_LIST_HEAD(&in->sockets);
	error = inagg_sysctl_init(net);
	if (error)
		return error;
	error = inagg_proc_init(net);
	if (error)
		inagg_sysctl_exit(net);
	return error;
}

static void __net_exit inagg_net_exit(struct net *net)
{
	inagg_proc_exit(net);
	inagg_sysctl_exit(net);
}

static struct pernet_operations inagg_net_ops = {
	.init = inagg_net_init,
	.exit = inagg_net_exit,
	.id = &inagg_net_id,
	.size = sizeof(struct inagg_net),
};

static int __init inagg_init(void)
{
	const char *unit = inagg_convert_init();
	int error;

	BUILD_BUG_ON(sizeof(struct sockaddr_inagg) != 32);
	BUILD_BUG_ON(sizeof(struct sockaddr_inagg) > sizeof(struct __kernel_sockaddr_storage));
	if (inagg_family <= AF_UNSPEC || inagg_family >= NPROTO) {
		pr_err("family=%d: choose a number from 1 to %d\n", inagg_family, NPROTO - 1);
		return -EINVAL;
	}
	inagg_memory_limit = (totalram_pages() << PAGE_SHIFT) / 8;
	inagg_ops.family = inagg_family;
	inagg_net_family.family = inagg_family;
	inagg_workqueue = alloc_workqueue("inagg", WQ_UNBOUND, 0);
	if (!inagg_workqueue)
		return -ENOMEM;
	error = proto_register(&inagg_proto, 1);
	if (error)
		goto free_workqueue;
	error = register_pernet_subsys(&inagg_net_ops);
	if (error)
		goto unregister_proto;
	error = sock_register(&inagg_net_family);
	if (error) {
		pr_err("address family %d is taken: choose another with family=NUMBER\n", inagg_family);
		goto unregister_pernet;
	}
	pr_info("address family %d, version %s, float32 by %s\n", inagg_family, INAGG_VERSION, unit);
	return 0;

unregister_pernet:
	unregister_pernet_subsys(&inagg_net_ops);
unregister_proto:
	proto_unregister(&inagg_proto);
free_workqueue:
	destroy_workqueue(inagg_workqueue);
	return error;
}

static void __exit inagg_exit(void)
{
	sock_unregister(inagg_family);
	destroy_workqueue(inagg_workqueue);
	unregister_pernet_subsys(&inagg_net_ops);
	proto_unregister(&inagg_proto);
}

module_init(inagg_init);
module_exit(inagg_exit);

MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("AF_INAGG: allreduce through an in-network aggregation switch");
MODULE_VERSION(INAGG_VERSION);
MODULE_ALIAS_NETPROTO(AF_INAGG);
