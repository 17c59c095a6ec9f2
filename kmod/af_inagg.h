/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * AF_INAGG inside.
 *
 *   family.c     the family: system calls, and their life cycle
 *   options.c    socket options
 *   send.c       tensors from user space
 *   recv.c       results to user space
 *   tensor.c     what lies between: memory, blocks in call order
 *   convert.c    elements between memory and wire; vector_x86.h: a register of sse2_x86.c or avx2_x86.c at a time
 *   nonfinite.c  sums with infinities or NaN
 *   verify.c     sums that are verified
 *   stream.c     core/worker.h and history.h over packets: windows, results, retransmission
 *   transport.c  packets over UDP, joining and leaving
 *   group.c      results that come to a group address
 *   renew.c      the job's next generation, with ranks that were excluded
 *   timer.c      one high-resolution timer a socket
 *   stats.c      /proc/net/inagg, and what is refused
 *   sysctl.c     /proc/sys/net/inagg
 *   compat.h     differences between kernels
 *
 * Locks, outermost first.  lock_sock(): bind, connect, options.  send_lock and recv_lock: one sender and
 * one receiver at a time, who sleep with nothing else held.  `lock`, with softirqs off: everything that
 * packets and timers touch, and sk_shutdown; it is never held over copies from and to user space, which go to ring cells
 * that only the sender or only the receiver owns, nor while packets are handed to IP.
 */
#ifndef _AF_INAGG_H
#define _AF_INAGG_H

#include <linux/hrtimer.h>
#include <linux/mutex.h>
#include <linux/net.h>
#include <linux/skbuff.h>
#include <linux/workqueue.h>
#include <net/dst_cache.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/sock.h>

#include <inagg/core/guess.h>
#include <inagg/core/history.h>
#include <inagg/core/linear_check.h>
#include <inagg/core/mac.h>
#include <inagg/core/membership.h>
#include <inagg/core/packet.h>
#include <inagg/core/roll.h>
#include <inagg/core/tensor.h>
#include <inagg/core/worker.h>
#include <inagg/uapi.h>

#include "compat.h"

#define INAGG_VERSION		"0.1.0"
#define INAGG_BUFFER_DEFAULT	(4 << 20)
#define INAGG_BUFFER_MAX	(256 << 20)
#define INAGG_HISTORY_DEFAULT	(16 << 20)
#define INAGG_MOST_TENSORS	1024	/* of a socket, not read yet */
#define INAGG_DEADLINE_DEFAULT	30000	/* ms */
#define INAGG_BURST		64	/* packets built and sent, or results taken, in one go, with softirqs off */
#define INAGG_BURST_PAUSE	(10 * NSEC_PER_USEC)	/* for others, before a timer builds the next */

/* For memory as large as a user wants: where a control group or the machine has none left it fails, and kills nobody. */
#define INAGG_GFP		(GFP_KERNEL_ACCOUNT | __GFP_RETRY_MAYFAIL | __GFP_NOWARN)

/* Settings of the next tensor, and of the join. */
struct inagg_settings {
	struct inagg_tensor_type tensor;
	u8	algorithm;
	u8	checked;
	u32	window;		/* blocks; 0: all slots */
	u32	elements;	/* a packet; 0: by MTU */
	u32	rto_min_us;
	u32	deadline_ms;
	u32	buffer;		/* bytes */
	u32	expiry_us;
	u32	history;	/* bytes */
	u32	exclude_ms;
	u16	quorum;
};

/*
 * One send(): in call order on the socket's list until it is read.  A float sum with infinities or NaN
 * somewhere has two more beside it that the user does not see: before it the block that agrees on the
 * exponent of the finite part, behind it the counts of the others.
 */
struct inagg_tensor {
	struct list_head list;
	struct inagg_tensor *sum;	/* of these two: whose they are */
	struct inagg_tensor *classes;	/* of a sum: its counts */
	u8	*own;		/* of the counts: their memory, instead of ring cells */
	u64	bytes;
	u64	filled;		/* send_lock: bytes the sender has put into the ring */
	u64	copied;		/* of them, those that may be sent: with the last ones the tensor is no longer the sender's */
	u64	read;		/* bytes the receiver has taken */
	u32	decoded;	/* blocks turned back into the user's type, in their cells */
	u32	cell;		/* number of its first ring cell */
	u32	block;		/* number of the first block that brings its result, once assigned */
	u32	blocks;
	u32	left;		/* data blocks without a result */
	u32	per_block;	/* elements */
	u32	control;	/* number of its first control block */
	u32	controls;	/* how many it has: 0, 1, or all blocks if `guesses` */
	u32	controls_left;	/* of them, without a result */
	u32	turn;		/* among the sums that ask for their scales */
	struct inagg_tensor_type type;	/* as the sender has said: its rest may not have another */
	struct inagg_coding coding;
	u64	call;		/* its number, and what the ranks have agreed on for it: for the check of its sums */
	u64	context;
	u8	phase;
	u8	dtype_op;	/* on the wire */
	u8	exponent;	/* this rank's */
	u8	guess;		/* the scale of its elements in its control blocks */
	u8	scale;		/* the agreed one */
	bool	guesses;	/* its control blocks carry its elements */
	bool	sealed;		/* its data blocks, with a check */
	bool	asked;		/* its control blocks, or the first of them, may be sent */
	bool	agreed;		/* the first of them is back */
	bool	guessed;	/* the guess was right: they bring the result, and there are no data blocks */
	bool	scale_known;
	bool	assigned;	/* the blocks that bring its result have numbers */
	bool	split;		/* infinities and NaN wait to be split off */
	bool	whole;		/* no result without all ranks */
	bool	absent;		/* the scale was agreed without this rank: its elements do not fit */
	bool	renews;		/* a barrier: excluded ranks that have joined again are taken back */
	bool	renewing;	/* they are: the next generation is to begin */
	bool	renewed;	/* it has */
	bool	average;	/* the user wants the sum divided by the ranks in it */
	bool	saturated;
	bool	mismatch;
	struct inagg_roll roll;
};

/* What is remembered of a slot beside its timers. */
struct inagg_record {
	u64	contributors;	/* of the last WAIT, for heard_block */
	u32	heard_block;
	bool	heard;
	struct inagg_doubt doubt;
};

enum { INAGG_DATA, INAGG_CONTROL, INAGG_STREAMS };

struct inagg_stream {
	struct inagg_worker worker;
	struct inagg_wslot *slots;
	struct inagg_record *records;
	struct inagg_history history;
	u8	*kept;		/* the elements of its results, a cell each */
	u8	*turned;	/* those of the last packet, where the job's are big-endian */
	u32	cell_bytes;
	u32	first_slot;	/* in the job's pool */
	u32	done;		/* blocks before this one have their results */
	u32	opening;	/* where blocks wait for the next burst */
	u32	waiting;	/* how many slots to look at from there on */
	u64	earliest_due;
	bool	answered;	/* loss detection has something new to look at */
	bool	behind;		/* `done` waits for the next burst: there are results from it on */
};

/* Cells of one block each: its elements as the user gave them, then its result as it came. */
struct inagg_ring {
	u8	*memory;
	u64	*contributors;	/* of each cell's result */
	u32	cell_bytes;
	u32	cells;
	u32	head;		/* cells before this one are given to tensors */
	u32	tail;		/* cells before this one are free again */
};

struct inagg_link {
	struct socket *udp;
	struct socket *group;	/* results of a job without an agent come here */
	struct dst_cache dst;
	u32	mark;		/* of the routes in `dst` */
	kuid_t	uid;
	union {
		struct in_addr v4;
		struct in6_addr v6;
	} local, peer;
	__be16	port, peer_port;
	int	ifindex;
	u8	family;		/* AF_INET, AF_INET6 */
};

/* A CONFIG that names a group: the socket has joined when the group is joined, too. */
struct inagg_group {
	struct work_struct work;
	struct inagg_job_config job;
	u8	address[16];	/* IPv4 in the first 4 bytes */
	__be16	port;		/* 0: none */
};

/* A CONFIG that begins the next generation: the memory of the new streams is to be found first. */
struct inagg_renewal {
	struct work_struct work;
	struct inagg_job_config job;
	bool agreed;	/* the switch is in it, and we are not yet */
};

/* Results that are verified. */
struct inagg_verifier {
	struct inagg_mac_key key;	/* as the join found it, and so is the next one */
	bool	wanted;
	bool	asked;		/* the ranks' nonces are under way, or here */
	bool	begun;		/* they are here */
	struct inagg_tensor *exchange;	/* brings them: a maximum in which others have zeros */
	u32	own[INAGG_CHECK_NONCE_WORDS];	/* send_lock, until then */
	u32	*weights;
	struct inagg_check check;
	u64	calls;		/* since then */
};

struct inagg_sock {
	struct sock sk;
	struct list_head node;		/* in inagg_net.sockets */
	struct inagg_settings set;	/* lock_sock() */
	struct sockaddr_inagg local, peer;	/* lock_sock() and, to write, `lock` */

	struct mutex send_lock, recv_lock;
	wait_queue_head_t calls;	/* those that wait for one of these two; apart from sk_sleep(), where epoll waits, too */
	struct inagg_tensor *sending;	/* send_lock: not all of it is copied yet; others only ask if there is one */
	u32	fill;			/* send_lock, read by all: number of the cell that the sender fills next */

	spinlock_t lock;
	struct inagg_link link;
	struct inagg_group group;
	struct inagg_renewal next;
	struct inagg_job_config job;
	struct inagg_stream streams[INAGG_STREAMS];
	struct inagg_ring ring;
	struct list_head tensors;	/* not read yet, in call order */
	struct inagg_tensor *active;	/* the first whose results are not all here */
	struct inagg_tensor *unassigned;	/* the first whose blocks have no numbers */
	struct inagg_tensor *unasked;	/* the first whose control blocks may not all be sent */
	struct inagg_tensor *renewal;	/* a barrier that may begin the next generation; sends wait for it */
	u32	tensor_count;
	u32	next_block;	/* the next data block to be assigned */
	u32	next_control;
	u32	next_turn;
	u32	ahead;		/* data blocks from next_block to before this one are here, decided without us */
	struct inagg_guesses guesses;
	struct inagg_boots boots;
	struct inagg_membership member;
	struct inagg_mac_key key;	/* of the job; all zero: none */
	struct inagg_verifier verify;
	u64	join_due, join_pause;
	u32	not_yet;	/* why the switch has last put the join off */
	u32	attempt;	/* number of the join; under lock_sock() */
	u64	progress;	/* when a result came last, or the first block after a rest was sent */
	u64	timer_due;	/* when the timer fires; U64_MAX: it does not */
	u64	paused_until;	/* before, it leaves the rest of a window alone, whatever it fires for */
	struct hrtimer timer;
	struct inagg_info info;		/* its counters */
	u64	drops[INAGG_R_CAPACITY];	/* info.rejected, by reason */
	atomic64_t charged;	/* bytes of inagg_memory */
	struct mem_cgroup *memcg;	/* of who sent first: what works allocate is charged to it, too */
	struct delayed_work linger;	/* what is left to do after close() */
	u64	linger_until, linger_pause;	/* ns; jiffies */
	struct sock *wire;	/* link.udp's, from when it is closed until its packets have gone */
	u64	wire_limit;	/* bytes of packets below us; charged */
	struct work_struct split;
	bool	bound;
	bool	turned_away;	/* a call that may not wait found another in its way */
	bool	has_memory;
	bool	joined;		/* once; a socket joins one job */
	bool	readable;	/* recv() would return something worth returning; read without the lock */
	bool	discard;	/* nobody will read: results are thrown away as they come */
	bool	lingering;	/* closed by its user, contributions under way */
	bool	vanished;	/* its user was killed: it does not say that it leaves */
};

static inline struct inagg_sock *inagg_sk(const struct sock *sk)
{
	return container_of(sk, struct inagg_sock, sk);
}

/* What a network namespace has. */
struct inagg_net {
	struct mutex lock;		/* over sockets */
	struct list_head sockets;
	struct ctl_table_header *sysctls;
	struct ctl_table *table;
	int	buffer_default, buffer_max, deadline_default;
	atomic64_t drops[INAGG_R_CAPACITY];	/* of all sockets, also of those that have gone */
};

extern unsigned int inagg_net_id;
extern int inagg_family;
extern atomic_long_t inagg_memory;	/* bytes that sockets hold */
extern unsigned long inagg_memory_limit;
extern struct workqueue_struct *inagg_workqueue;

static inline struct inagg_net *inagg_pernet(const struct net *net)
{
	return net_generic(net, inagg_net_id);
}

/* Packets to send once `lock` is free. */
struct inagg_burst {
	struct sk_buff_head skbs;
	u32	taken;	/* results that were decided without this rank */
	u32	passed;	/* blocks that now count as with their results */
	u64	now;
};

/* With `lock` held: what was sent before it was taken has an earlier time. */
static inline void inagg_burst_start(struct inagg_burst *burst)
{
	__skb_queue_head_init(&burst->skbs);
	burst->taken = 0;
	burst->passed = 0;
	burst->now = ktime_get_ns();
}

static inline bool inagg_burst_full(const struct inagg_burst *burst)
{
	return skb_queue_len(&burst->skbs) >= INAGG_BURST || burst->taken >= INAGG_BURST;
}

/* family.c */
void inagg_fail(struct inagg_sock *isk, int error, int reason);
void inagg_fail_refused(struct inagg_sock *isk, int error, const struct inagg_hdr *h, const struct inagg_refusal *r);
void inagg_fail_unverified(struct inagg_sock *isk, int stream, u32 block, bool alike);
int inagg_wait(struct inagg_sock *isk, bool (*ready)(struct inagg_sock *isk), long *timeout);
int inagg_lock_call(struct inagg_sock *isk, struct mutex *lock, long *timeout);
void inagg_unlock_call(struct inagg_sock *isk, struct mutex *lock);

/* options.c */
int inagg_setsockopt(struct socket *sock, int level, int name, sockptr_t value, unsigned int length);
int inagg_getsockopt(struct socket *sock, int level, int name, char __user *value, int __user *length);
u32 inagg_history_limit(const struct inagg_sock *isk, u32 wanted);
int inagg_check_tensor_type(const struct inagg_tensor_type *type);

/* Nothing will come any more: everything sent is read, and no more may be sent. */
static inline bool inagg_at_end(const struct inagg_sock *isk)
{
	return isk->sk.sk_shutdown & RCV_SHUTDOWN ||
	       (isk->sk.sk_shutdown & SEND_SHUTDOWN && !READ_ONCE(isk->tensor_count));
}

/* send.c */
int inagg_sendmsg(struct socket *sock, struct msghdr *msg, size_t length);
bool inagg_send_ready(struct inagg_sock *isk);

/* recv.c */
int inagg_recvmsg(struct socket *sock, struct msghdr *msg, size_t length, int flags);

/* Elements at the end of a sealed block that are the check's. */
static inline u32 inagg_tail(const struct inagg_sock *isk)
{
	return isk->verify.wanted ? INAGG_CHECK_ELEMENTS : 0;
}

/* How floats travel: the check adds 32-bit elements up, as they are on the wire. */
static inline u32 inagg_floats(const struct inagg_sock *isk)
{
	u32 floats = inagg_floats_of(&isk->job);

	return isk->verify.wanted && floats == INAGG_FLOATS_FIXED ? INAGG_FLOATS_WIDENED : floats;
}

/* tensor.c */
bool inagg_load(struct inagg_sock *isk, int stream, u32 block, void *payload, struct inagg_block_meta *meta);
void inagg_store(struct inagg_sock *isk, int stream, u32 block, const struct inagg_block_meta *meta,
		 const void *payload, struct inagg_burst *burst);
void inagg_wake_reader(struct inagg_sock *isk);
bool inagg_update_readable(struct inagg_sock *isk);
void inagg_count_bytes(struct inagg_sock *isk, u64 *unsent, u64 *unread);
int inagg_discard_results(struct inagg_sock *isk);
int inagg_alloc_memory(struct inagg_sock *isk);
void inagg_free_tensors(struct inagg_sock *isk);

bool inagg_verify(struct inagg_sock *isk, int stream, u32 block, struct inagg_block_meta *meta, const void *payload);

/* nonfinite.c */
void inagg_split_work(struct work_struct *work);

/* verify.c */
void inagg_verifier_forget(struct inagg_sock *isk);

/* stream.c */
u64 inagg_streams_bytes(const struct inagg_sock *isk, const struct inagg_job_config *job);
int inagg_streams_alloc(struct inagg_sock *isk, const struct inagg_job_config *job, struct inagg_stream *streams);
void inagg_streams_free(struct inagg_stream *streams);
void inagg_extend(struct inagg_sock *isk, int stream, u32 limit, struct inagg_burst *burst);
void inagg_receive_block(struct inagg_sock *isk, const struct inagg_hdr *h, const void *body, u32 bytes,
			 struct inagg_burst *burst);
u64 inagg_run_timers(struct inagg_sock *isk, struct inagg_burst *burst);
bool inagg_waits(const struct inagg_sock *isk);
void inagg_open_waiting(struct inagg_sock *isk, struct inagg_burst *burst);
void inagg_open_rest(struct inagg_sock *isk);
bool inagg_in_flight(const struct inagg_sock *isk);
u32 inagg_blocks_ahead(struct inagg_sock *isk);
void inagg_describe_stall(const struct inagg_sock *isk, struct inagg_fault *fault);

/* transport.c */
int inagg_link_open(struct inagg_sock *isk);
void inagg_link_bind_device(struct inagg_sock *isk);
void inagg_link_orphan(struct inagg_sock *isk);
void inagg_link_close(struct inagg_sock *isk);
void inagg_udp_close(struct socket *udp);
u32 inagg_path_payload(struct inagg_sock *isk, int *error);
u64 inagg_wire_bytes(const struct inagg_job_config *job);
struct sk_buff *inagg_packet_alloc(struct inagg_sock *isk, u32 payload);
void inagg_packet_queue(struct inagg_sock *isk, struct sk_buff *skb, struct inagg_burst *burst);
void inagg_send_membership(struct inagg_sock *isk, u8 type, struct inagg_burst *burst);
void inagg_send_renewal(struct inagg_sock *isk, struct inagg_burst *burst);
void inagg_transmit(struct inagg_sock *isk, struct inagg_burst *burst);
int inagg_path_interface(struct inagg_sock *isk);
void inagg_udp_take_over(struct inagg_sock *isk, struct socket *udp);
void inagg_link_listen(struct inagg_sock *isk, struct socket *udp);
void inagg_link_ignore(struct inagg_sock *isk);
void inagg_established(struct inagg_sock *isk, const struct inagg_job_config *job);

/* group.c */
void inagg_group_join(struct inagg_sock *isk, const struct inagg_job_config *job, const struct inagg_config *config);
void inagg_group_work(struct work_struct *work);
void inagg_group_cancel(struct inagg_sock *isk);

/* renew.c */
void inagg_renewal_agreed(struct inagg_sock *isk, struct inagg_tensor *t, bool renews, struct inagg_burst *burst);
void inagg_renewal_begin(struct inagg_sock *isk, const struct inagg_job_config *job);
void inagg_renewal_work(struct work_struct *work);
void inagg_renewal_cancel(struct inagg_sock *isk);

/* timer.c */
void inagg_timer_init(struct inagg_sock *isk);
void inagg_timer_arm(struct inagg_sock *isk, u64 due);
void inagg_timer_follow(struct inagg_sock *isk);
void inagg_transmit_and_pause(struct inagg_sock *isk, struct inagg_burst *burst, u64 due);
void inagg_timer_stop(struct inagg_sock *isk);

/* stats.c, sysctl.c */
void inagg_count_drop(struct inagg_sock *isk, int reason);
int inagg_proc_init(struct net *net);
void inagg_proc_exit(struct net *net);
int inagg_sysctl_init(struct net *net);
void inagg_sysctl_exit(struct net *net);

#endif /* _AF_INAGG_H */
