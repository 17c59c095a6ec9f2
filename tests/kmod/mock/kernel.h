/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * As much of the kernel as kmod/ uses, for user space: included before everything else in place of the
 * kernel's headers.  What can fail asks mock_fails(); what may sleep says so; locks know who holds them.
 */
#ifndef MOCK_KERNEL_H
#define MOCK_KERNEL_H

#include <errno.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <linux/eventpoll.h>
#include <linux/in.h>
#include <linux/in6.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/socket.h>
#include <linux/types.h>
#include <linux/udp.h>

#include "mock.h"

/* The kernel that kmod/compat.h sees. */
#define KERNEL_VERSION(a, b, c)	((a) << 16 | (b) << 8 | (c))
#define LINUX_VERSION_CODE	KERNEL_VERSION(6, 12, 0)
#define IS_ENABLED(option)	1
#define KBUILD_MODNAME		"af_inagg"
#ifdef __x86_64__
#define CONFIG_X86_64
#endif

/* Types and small change. */

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;
typedef unsigned int gfp_t;

#undef __always_inline
#define __always_inline		inline __attribute__((always_inline))
#define __user
#define __init
#define __ro_after_init
#define __exit
#define __net_init
#define __net_exit

#define U64_MAX			UINT64_MAX
#define S32_MAX			INT32_MAX
#define NSEC_PER_USEC		1000L
#define NSEC_PER_MSEC		1000000L
#define HZ			250
#define PAGE_SHIFT		12
#define PAGE_SIZE		(1UL << PAGE_SHIFT)
#define ENOIOCTLCMD		515
#define ERESTARTSYS		512

#define READ_ONCE(x)		(*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value)	(*(volatile __typeof__(x) *)&(x) = (value))
#define smp_store_release(p, v)	WRITE_ONCE(*(p), v)
#define smp_load_acquire(p)	READ_ONCE(*(p))
#define smp_mb()		((void)0)
#define smp_mb__after_atomic()	((void)0)
#define BUILD_BUG_ON(condition)	_Static_assert(!(condition), #condition)
#define ARRAY_SIZE(a)		(sizeof(a) / sizeof((a)[0]))
#define container_of(p, type, member) ((type *)((char *)(p) - offsetof(type, member)))
#define min(a, b)		({ __typeof__(a) _a = (a); __typeof__(b) _b = (b); _a < _b ? _a : _b; })
#define max(a, b)		({ __typeof__(a) _a = (a); __typeof__(b) _b = (b); _a > _b ? _a : _b; })
#define min_t(type, a, b)	min((type)(a), (type)(b))
#define swap(a, b)		do { __typeof__(a) _a = (a); (a) = (b); (b) = _a; } while (0)
#define min3(a, b, c)		min(min(a, b), c)
#define max_t(type, a, b)	max((type)(a), (type)(b))
#define round_up(x, to)		((((x) - 1) | ((__typeof__(x))(to) - 1)) + 1)
#define clamp_t(type, x, lo, hi) min_t(type, max_t(type, x, lo), hi)

#define htons(x)		__builtin_bswap16(x)
#define ntohs(x)		__builtin_bswap16(x)

static inline void *ERR_PTR(long error) { return (void *)error; }
static inline long PTR_ERR(const void *p) { return (long)p; }
static inline bool IS_ERR(const void *p) { return (unsigned long)p >= (unsigned long)-4095; }
static inline void *ERR_CAST(const void *p) { return (void *)p; }

static inline u64 div_u64(u64 a, u32 b) { return a / b; }
static inline u64 div_u64_rem(u64 a, u32 b, u32 *rest) { return *rest = a % b, a / b; }
static inline unsigned long rounddown_pow_of_two(unsigned long n) { return 1UL << (63 - __builtin_clzl(n)); }

int match_string(const char *const *names, size_t count, const char *name);
ssize_t strscpy(char *to, const char *from, size_t room);
u64 get_random_u64(void);
unsigned long totalram_pages(void);

#define pr_err(...)		mock_log(__VA_ARGS__)
#define pr_info(...)		mock_log(__VA_ARGS__)
void mock_log(const char *format, ...);

/* Atomics: one thread. */
typedef struct { s64 counter; } atomic64_t;
typedef struct { long counter; } atomic_long_t;
typedef struct { int refs; } refcount_t;
#define ATOMIC_LONG_INIT(value)	{ value }
#define atomic_long_add_return(n, a)	((a)->counter += (n))
#define atomic_long_sub(n, a)	((void)((a)->counter -= (n)))
#define atomic_long_read(a)	((a)->counter)
#define atomic64_inc(a)		((void)(a)->counter++)
#define atomic64_add(n, a)	((void)((a)->counter += (n)))
#define atomic64_sub(n, a)	((void)((a)->counter -= (n)))
#define atomic64_read(a)	((long long)(a)->counter)
#define refcount_read(r)	((unsigned int)(r)->refs)

/* Lists. */
struct list_head {
	struct list_head *next, *prev;
};

static inline void INIT_LIST_HEAD(struct list_head *list) { list->next = list->prev = list; }
static inline bool list_empty(const struct list_head *list) { return list->next == list; }
static inline bool list_is_last(const struct list_head *entry, const struct list_head *list)
{
	return entry->next == list;
}

static inline void list_add_tail(struct list_head *entry, struct list_head *list)
{
	entry->prev = list->prev;
	entry->next = list;
	list->prev->next = entry;
	list->prev = entry;
}

static inline void list_add(struct list_head *entry, struct list_head *list) { list_add_tail(entry, list->next); }

static inline void list_del(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	entry->next = entry->prev = NULL;
}

#define list_entry(p, type, member)		container_of(p, type, member)
#define list_first_entry(list, type, member)	list_entry((list)->next, type, member)
#define list_next_entry(p, member)		list_entry((p)->member.next, __typeof__(*(p)), member)
#define list_for_each_entry(p, list, member)						\
	for (p = list_first_entry(list, __typeof__(*p), member); &p->member != (list);	\
	     p = list_next_entry(p, member))
#define list_for_each_entry_safe(p, n, list, member)						\
	for (p = list_first_entry(list, __typeof__(*p), member), n = list_next_entry(p, member);	\
	     &p->member != (list); p = n, n = list_next_entry(n, member))

/* Shared by the mock's files. */
extern const struct mock_world *mock_the_world;
void mock_check_network(void);

/* Where code runs, and locks. */

void mock_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
void mock_die(const char *why) __attribute__((noreturn));	/* the kernel would hang or panic */
void mock_might_sleep(const char *what);
void mock_must_not_hold_spinlocks(const char *what);
void mock_must_be_atomic(const char *what);	/* softirqs off */
void mock_enter(bool softirq);	/* something else runs on this processor: */
void mock_leave(void);		/* until here */
void cond_resched(void);
void mock_count_built(void);	/* a packet is built */
void mock_count_sent(void);	/* and handed to IP */
void local_bh_disable(void);
void local_bh_enable(void);
static inline void rcu_read_lock(void) {}
static inline void rcu_read_unlock(void) {}
#define rcu_dereference(p)	READ_ONCE(p)

struct mock_lock {
	const char *name;
	bool spins, held;
	bool in_softirq;	/* taken there, ever */
	bool softirqs_on;	/* taken while softirqs could interrupt, ever */
};
typedef struct { struct mock_lock lock; } spinlock_t;
struct mutex { struct mock_lock lock; };

void mock_lock_init(struct mock_lock *lock, const char *name, bool spins);
void mock_acquire(struct mock_lock *lock);
void mock_release(struct mock_lock *lock);

#define spin_lock_init(l)	mock_lock_init(&(l)->lock, #l, true)
#define spin_lock(l)		mock_acquire(&(l)->lock)
#define spin_unlock(l)		mock_release(&(l)->lock)
#define spin_lock_bh(l)		do { local_bh_disable(); spin_lock(l); } while (0)
#define write_lock_bh(l)	spin_lock_bh(l)
#define write_unlock_bh(l)	spin_unlock_bh(l)
#define spin_unlock_bh(l)	do { spin_unlock(l); local_bh_enable(); } while (0)
#define mutex_init(m)		mock_lock_init(&(m)->lock, #m, false)
#define mutex_lock(m)		mock_acquire(&(m)->lock)
#define mutex_unlock(m)		mock_release(&(m)->lock)
int mutex_trylock(struct mutex *m);
int mutex_lock_killable(struct mutex *m);

/* The vector unit: nothing may sleep or wait in between. */
#define X86_FEATURE_AVX2	1
#define XFEATURE_MASK_SSE	2
#define XFEATURE_MASK_YMM	4
bool boot_cpu_has(int feature);
int cpu_has_xfeatures(u64 mask, const char **missing);
bool irq_fpu_usable(void);
void kernel_fpu_begin(void);
void kernel_fpu_end(void);

/* Memory. */

#define __GFP_ZERO		1u
#define __GFP_SLEEPS		2u
#define __GFP_NOWARN		0u
#define GFP_ATOMIC		0u
#define GFP_KERNEL		__GFP_SLEEPS
#define __GFP_ACCOUNT		4u
#define __GFP_RETRY_MAYFAIL	8u
#define GFP_KERNEL_ACCOUNT	(__GFP_SLEEPS | __GFP_ACCOUNT)

enum mock_memory { MOCK_KMALLOC = 1, MOCK_VMALLOC = 2, MOCK_PAGE = 4, MOCK_OBJECT = 8 };
void *mock_alloc(const char *what, size_t bytes, gfp_t flags, enum mock_memory kind);
void mock_free(const void *memory, unsigned int kinds);

#define kzalloc(bytes, flags)		mock_alloc("kzalloc", bytes, (flags) | __GFP_ZERO, MOCK_KMALLOC)
#define kfree(p)			mock_free(p, MOCK_KMALLOC)
#define kvcalloc(n, bytes, flags) \
	mock_alloc("kvcalloc", (size_t)(n) * (bytes), (flags) | __GFP_ZERO, MOCK_VMALLOC)
#define kvfree(p)			mock_free(p, MOCK_KMALLOC | MOCK_VMALLOC)
#define kvfree_sensitive(p, bytes)	((void)((p) && memset(p, 0, bytes)), kvfree(p))
#define __vmalloc(bytes, flags)		mock_alloc("__vmalloc", bytes, flags, MOCK_VMALLOC)
#define vfree(p)			mock_free(p, MOCK_VMALLOC)
#define __get_free_page(flags)		((unsigned long)mock_alloc("__get_free_page", PAGE_SIZE, flags, MOCK_PAGE))
#define free_page(address)		mock_free((void *)(address), MOCK_PAGE)
void *kmemdup(const void *from, size_t bytes, gfp_t flags);

/* Control groups: all processes are in one; works are in none, and charge what they were told to. */
struct mem_cgroup { int references; };
struct mm_struct;
struct mem_cgroup *get_mem_cgroup_from_mm(struct mm_struct *mm);
void mem_cgroup_put(struct mem_cgroup *memcg);
struct mem_cgroup *set_active_memcg(struct mem_cgroup *memcg);

/* Time. */

typedef s64 ktime_t;
#define ns_to_ktime(ns)		((ktime_t)(ns))
#define ktime_get_ns()		mock_now()

enum hrtimer_restart { HRTIMER_NORESTART, HRTIMER_RESTART };
enum hrtimer_mode { HRTIMER_MODE_ABS_SOFT };
#ifndef CLOCK_MONOTONIC
#define CLOCK_MONOTONIC 1
#endif

/* A timer, delayed work, or the end of a grace period of RCU: on the list of what is due some time while `pending`. */
struct mock_due {
	struct mock_due *next;
	u64 due;
	bool pending, is_timer;
	void (*after_readers)(struct mock_due *due);
};
void mock_wait_for_readers(const char *what);
void mock_call_rcu(struct mock_due *due, void (*function)(struct mock_due *due));

struct hrtimer {
	struct mock_due queued;
	enum hrtimer_restart (*function)(struct hrtimer *timer);
};

void hrtimer_init(struct hrtimer *timer, clockid_t clock, enum hrtimer_mode mode);
void hrtimer_start(struct hrtimer *timer, ktime_t due, enum hrtimer_mode mode);
int hrtimer_cancel(struct hrtimer *timer);

struct workqueue_struct { int unused; };
struct work_struct {
	struct mock_due queued;
	void (*function)(struct work_struct *work);
};
struct delayed_work { struct work_struct work; };
#define WQ_UNBOUND		0
#define INIT_WORK(w, f)		((w)->function = (f), (w)->queued.pending = false)
#define INIT_DELAYED_WORK(w, f)	INIT_WORK(&(w)->work, f)
#define to_delayed_work(w)	container_of(w, struct delayed_work, work)
#define queue_delayed_work(queue, delayed, delay) mock_queue(queue, &(delayed)->work, delay)
#define queue_work(queue, work)	mock_queue(queue, work, 0)
struct workqueue_struct *alloc_workqueue(const char *name, unsigned int flags, int most);
void destroy_workqueue(struct workqueue_struct *queue);
bool mock_queue(struct workqueue_struct *queue, struct work_struct *work, unsigned long delay);
bool cancel_work_sync(struct work_struct *work);

/* Tasks and waiting. */

#define PF_EXITING		4
#define PF_SIGNALED		0x400
#define SIGKILL			9
#define SIGPIPE			13
struct task_struct {
	unsigned int flags;
	int exit_code;
	struct mm_struct *mm;
};
extern struct task_struct mock_task;
#define current			(&mock_task)
#define signal_pending(task)	mock_signal_pending()
#define fatal_signal_pending(task) mock_killed()
bool mock_signal_pending(void);
bool mock_killed(void);
int send_sig(int signal, struct task_struct *task, int privileged);

#define MAX_SCHEDULE_TIMEOUT	LONG_MAX

typedef struct wait_queue_head { unsigned long wakes; } wait_queue_head_t;
void mock_wake(wait_queue_head_t *queue);
#define init_waitqueue_head(queue) ((queue)->wakes = 0)
#define wq_has_sleeper(queue)	((queue) != NULL)
#define wake_up_interruptible(queue) mock_wake(queue)
#define wake_up_interruptible_poll(queue, events) mock_wake(queue)

/* Sleeps until @queue is woken; false: after a signal or when *@timeout is over (then 0, or -ERESTARTSYS). */
bool mock_sleep(wait_queue_head_t *queue, unsigned long wakes, long *timeout);

/* Looks at the condition again only when somebody wakes it: who forgets to do so hangs here as well. */
#define wait_event_interruptible_timeout(queue, condition, timeout)			\
({											\
	long _left = (timeout);								\
	unsigned long _wakes;								\
											\
	mock_might_sleep("wait_event");							\
	mock_count_wait();								\
	for (;;) {									\
		_wakes = (queue).wakes;							\
		if (condition) {							\
			_left = _left ?: 1;						\
			break;								\
		}									\
		if (!mock_sleep(&(queue), _wakes, &_left)) {				\
			if (!_left && (condition))					\
				_left = 1;						\
			break;								\
		}									\
	}										\
	_left;										\
})
void mock_count_wait(void);

/* User memory and messages. */

typedef struct { const void *user; } sockptr_t;

struct iov_iter {
	u8 *memory;
	size_t offset, count;
	size_t fault_at;	/* offset of the first byte that is not mapped */
};

struct msghdr {
	void *msg_name;
	int msg_namelen;
	struct iov_iter msg_iter;
	void *msg_control;
	size_t msg_controllen;	/* sendmsg: filled; recvmsg: room left */
	unsigned int msg_flags;
};

struct cmsghdr {
	size_t cmsg_len;
	int cmsg_level, cmsg_type;
};
#define CMSG_ALIGN(n)		(((n) + sizeof(long) - 1) & ~(sizeof(long) - 1))
#define CMSG_LEN(n)		(sizeof(struct cmsghdr) + (n))
#define CMSG_SPACE(n)		(CMSG_LEN(0) + CMSG_ALIGN(n))
#define CMSG_DATA(cmsg)		((void *)((struct cmsghdr *)(cmsg) + 1))
#define CMSG_OK(msg, cmsg)								\
	((cmsg)->cmsg_len >= sizeof(struct cmsghdr) &&					\
	 (cmsg)->cmsg_len <= (msg)->msg_controllen - ((char *)(cmsg) - (char *)(msg)->msg_control))
struct cmsghdr *mock_next_cmsg(struct msghdr *msg, struct cmsghdr *cmsg);
#define for_each_cmsghdr(cmsg, msg) for (cmsg = mock_next_cmsg(msg, NULL); cmsg; cmsg = mock_next_cmsg(msg, cmsg))
int put_cmsg(struct msghdr *msg, int level, int type, int bytes, void *data);

#define iov_iter_count(iter)	((iter)->count)
bool copy_from_iter_full(void *to, size_t bytes, struct iov_iter *from);
void mock_begin_message(void);
size_t copy_to_iter(const void *from, size_t bytes, struct iov_iter *to);
void iov_iter_revert(struct iov_iter *iter, size_t bytes);

int mock_copy(const char *what, void *to, const void *from, size_t bytes);
#define KERNEL_SOCKPTR(p)			((sockptr_t){ (p) })
#define memzero_explicit(at, bytes)		memset(at, 0, bytes)
#define copy_from_sockptr(to, from, bytes)	mock_copy("copy_from_sockptr", to, (from).user, bytes)
#define copy_to_user(to, from, bytes)		mock_copy("copy_to_user", to, from, bytes)
#define get_user(x, p)				mock_copy("get_user", &(x), p, sizeof(x))
#define put_user(x, p)				({ __typeof__(*(p)) _x = (x); mock_copy("put_user", p, &_x, sizeof(_x)); })

#define MSG_OOB			0x1
#define MSG_PEEK		0x2
#define MSG_TRUNC		0x20
#define MSG_DONTWAIT		0x40
#define MSG_EOR			0x80
#define MSG_WAITALL		0x100
#define MSG_ERRQUEUE		0x2000
#define MSG_NOSIGNAL		0x4000
#define MSG_BATCH		0x40000
#define MSG_CTRUNC		0x8
#define MSG_CMSG_CLOEXEC	0x40000000
#define MSG_CMSG_COMPAT		0x80000000

/* Namespaces. */

#define INAGG_MOCK_NETS		2
struct proc_dir_entry { int unused; };
struct net {
	void *generic;		/* of the one pernet subsystem */
	struct proc_dir_entry *proc_net;
	int sockets;		/* that hold a reference */
};
#define init_net (mock_nets[0])
extern struct net mock_nets[INAGG_MOCK_NETS];
#define net_eq(a, b)		((a) == (b))
#define net_generic(net, id)	((net)->generic)

struct pernet_operations {
	int (*init)(struct net *net);
	void (*exit)(struct net *net);
	unsigned int *id;
	size_t size;
};
int register_pernet_subsys(struct pernet_operations *operations);
void unregister_pernet_subsys(struct pernet_operations *operations);

/* Buffers. */

struct sock;
struct sk_buff {
	struct sk_buff *next;
	struct sock *sk;
	void (*destructor)(struct sk_buff *skb);
	char cb[48] __attribute__((aligned(8)));
	unsigned int len, truesize, mark, priority;
	__be16 protocol;
	u8 *head, *data, *tail, *end, *network_header;
	int interface, slave;
	u8 *fragment;		/* what is behind `tail`, until skb_linearize() */
};
struct sk_buff_head {
	struct sk_buff *first, *last;
	unsigned int qlen;
};

#define MAX_HEADER		128
#define XDP_PACKET_HEADROOM	256
struct sk_buff *alloc_skb(unsigned int bytes, gfp_t flags);
#define __netdev_alloc_skb(dev, bytes, flags) alloc_skb(bytes, flags)
void kfree_skb(struct sk_buff *skb);
#define consume_skb(skb)	kfree_skb(skb)
void skb_reserve(struct sk_buff *skb, int bytes);
void *skb_put(struct sk_buff *skb, unsigned int bytes);
void *skb_put_data(struct sk_buff *skb, const void *data, unsigned int bytes);
void skb_set_owner_w(struct sk_buff *skb, struct sock *sk);
int skb_linearize(struct sk_buff *skb);
void __skb_queue_head_init(struct sk_buff_head *queue);
void __skb_queue_tail(struct sk_buff_head *queue, struct sk_buff *skb);
struct sk_buff *__skb_dequeue(struct sk_buff_head *queue);
void skb_queue_purge(struct sk_buff_head *queue);
#define skb_queue_len(queue)	((queue)->qlen)
#define skb_queue_empty_lockless(queue) (!(queue)->first)
#define ip_hdr(skb)		((const struct iphdr *)(skb)->network_header)
#define ipv6_hdr(skb)		((const struct ipv6hdr *)(skb)->network_header)
#define inet6_iif(skb)		((skb)->interface)
#define inet6_sdif(skb)		((skb)->slave)

/* Sockets. */

#define NPROTO			46
#define AF_UNSPEC		0
#define AF_INET			2
#define AF_INET6		10
#define SOCK_SEQPACKET		5
#define O_NONBLOCK		00004000
#define SHUT_RD			0
#define SHUT_WR			1
#define SHUT_RDWR		2
#define RCV_SHUTDOWN		1
#define SEND_SHUTDOWN		2
#define SHUTDOWN_MASK		3
enum { TCP_ESTABLISHED = 1, TCP_SYN_SENT = 2, TCP_CLOSE = 7 };
enum { SS_FREE, SS_UNCONNECTED, SS_CONNECTING, SS_CONNECTED };
enum { SOCKWQ_ASYNC_NOSPACE };
enum { SOCK_WAKE_SPACE };
enum { POLL_OUT };
enum sock_flags { SOCK_LINGER, SOCK_DEAD, SOCK_RCU_FREE, SOCK_BROADCAST };

struct module { int references; };
extern struct module mock_module;
#define THIS_MODULE		(&mock_module)

struct sockaddr {
	unsigned short sa_family;
	char sa_data[14];
};

#define sockaddr_storage __kernel_sockaddr_storage
#define SOCK_DGRAM		2
#define SOL_IP			0
#define SOL_IPV6		41
#define IP_MTU_DISCOVER		10
#define IP_PMTUDISC_INTERFACE	4
#define IPV6_MTU_DISCOVER	23
#define IPV6_PMTUDISC_INTERFACE	4

struct socket_wq { wait_queue_head_t wait; };
struct proto_ops;
struct file;
struct poll_table_struct;
typedef struct poll_table_struct poll_table;

struct socket {
	int state, type;
	struct sock *sk;
	const struct proto_ops *ops;
	struct socket_wq wq;
	struct net *net;
};

struct proto {
	const char *name;
	struct module *owner;
	size_t obj_size;
	void (*rehash)(struct sock *sk);
};

struct sock {
	int sk_state, sk_err, sk_shutdown;
	unsigned int sk_uid, sk_mark, sk_priority;
	struct net *sk_net;
	struct proto *sk_prot;
	struct socket *sk_socket;
	struct socket_wq *sk_wq;
	refcount_t sk_refcnt, sk_wmem_alloc;
	long sk_sndtimeo, sk_rcvtimeo;
	unsigned long sk_lingertime, sk_flags;
	int sk_bound_dev_if;
	struct sk_buff_head sk_error_queue;
	void *sk_user_data;
	unsigned int ignored_until;	/* grace periods of RCU that have passed when its last readers have left */
	struct mutex sk_lock;
	spinlock_t sk_callback_lock;
	struct mock_due freed;	/* after a grace period of RCU */
	void (*sk_state_change)(struct sock *sk);
	void (*sk_data_ready)(struct sock *sk);
	void (*sk_write_space)(struct sock *sk);
	void (*sk_error_report)(struct sock *sk);
	void (*sk_destruct)(struct sock *sk);
};

typedef unsigned int kuid_t;
#define uid_eq(a, b)		((a) == (b))
#define sock_net(sk)		((sk)->sk_net)
#define sk_sleep(sk)		(&(sk)->sk_wq->wait)
#define skwq_has_sleeper(wq)	((wq) != NULL)
#define sk_wake_async(sk, how, band)	((void)0)
#define sk_set_bit(bit, sk)	((void)0)
#define sock_flag(sk, flag)	((sk)->sk_flags >> (flag) & 1)
#define sock_set_flag(sk, flag)	((void)((sk)->sk_flags |= 1UL << (flag)))
#define sk_set_socket(sk, sock)	((void)((sk)->sk_socket = (sock)))
void *mock_sk_user_data(struct sock *sk);
#define rcu_dereference_sk_user_data(sk) mock_sk_user_data(sk)
void mock_assign_sk_user_data(struct sock *sk, void *data);
#define rcu_assign_sk_user_data(sk, p) mock_assign_sk_user_data(sk, p)
void synchronize_net(void);
#define lock_sock(sk)		mutex_lock(&(sk)->sk_lock)
#define release_sock(sk)	mutex_unlock(&(sk)->sk_lock)
static inline long sock_sndtimeo(const struct sock *sk, bool nonblock) { return nonblock ? 0 : sk->sk_sndtimeo; }
static inline long sock_rcvtimeo(const struct sock *sk, bool nonblock) { return nonblock ? 0 : sk->sk_rcvtimeo; }
static inline int sock_intr_errno(long timeout) { return timeout == MAX_SCHEDULE_TIMEOUT ? -ERESTARTSYS : -EINTR; }
struct sock *sk_alloc(struct net *net, int family, gfp_t flags, struct proto *proto, int kern);
void sock_init_data(struct socket *sock, struct sock *sk);
void sock_put(struct sock *sk);
#define sock_hold(sk)		((void)(sk)->sk_refcnt.refs++)
#define __sock_put(sk)		((void)(sk)->sk_refcnt.refs--)
void sock_orphan(struct sock *sk);
int sock_error(struct sock *sk);
void sk_error_report(struct sock *sk);
int sock_queue_err_skb(struct sock *sk, struct sk_buff *skb);
int sock_recv_errqueue(struct sock *sk, struct msghdr *msg, int length, int level, int type);
void sock_poll_wait(struct file *file, struct socket *sock, poll_table *wait);

#include <linux/errqueue.h>
struct sock_exterr_skb { struct sock_extended_err ee; };
#define SKB_EXT_ERR(skb)	((struct sock_exterr_skb *)(skb)->cb)

struct proto_ops {
	int family;
	struct module *owner;
	int (*release)(struct socket *sock);
	int (*bind)(struct socket *sock, struct sockaddr *address, int length);
	int (*connect)(struct socket *sock, struct sockaddr *address, int length, int flags);
	int (*socketpair)(struct socket *a, struct socket *b);
	int (*accept)(void);
	int (*getname)(struct socket *sock, struct sockaddr *address, int peer);
	__poll_t (*poll)(struct file *file, struct socket *sock, poll_table *wait);
	int (*ioctl)(struct socket *sock, unsigned int command, unsigned long argument);
	int (*gettstamp)(void);
	int (*listen)(struct socket *sock, int backlog);
	int (*shutdown)(struct socket *sock, int how);
	int (*setsockopt)(struct socket *sock, int level, int name, sockptr_t value, unsigned int length);
	int (*getsockopt)(struct socket *sock, int level, int name, char *value, int *length);
	int (*sendmsg)(struct socket *sock, struct msghdr *msg, size_t length);
	int (*recvmsg)(struct socket *sock, struct msghdr *msg, size_t length, int flags);
	int (*mmap)(void);
};
#define sock_no_socketpair	NULL
#define sock_no_accept		NULL
#define sock_no_listen		NULL
#define sock_no_mmap		NULL
#define sock_gettstamp		NULL

struct net_proto_family {
	int family;
	int (*create)(struct net *net, struct socket *sock, int protocol, int kern);
	struct module *owner;
};
int proto_register(struct proto *proto, int slab);
void proto_unregister(struct proto *proto);
int sock_register(const struct net_proto_family *family);
void sock_unregister(int family);

#define module_param_named(...)
#define MODULE_PARM_DESC(...)
#define MODULE_LICENSE(...)
#define MODULE_DESCRIPTION(...)
#define MODULE_VERSION(...)
#define MODULE_ALIAS_NETPROTO(...)
int mock_module_init(void);
void mock_module_exit(void);
#define module_init(f)		int mock_module_init(void) { return f(); }
#define module_exit(f)		void mock_module_exit(void) { f(); }

/* Internet. */

#define IP_DF			0x4000
#define ETH_P_IP		0x0800
#define ETH_P_IPV6		0x86dd

static inline bool ipv6_addr_any(const struct in6_addr *a)
{
	return !(a->s6_addr32[0] | a->s6_addr32[1] | a->s6_addr32[2] | a->s6_addr32[3]);
}

static inline bool ipv6_addr_v4mapped(const struct in6_addr *a)
{
	return !(a->s6_addr32[0] | a->s6_addr32[1]) && a->s6_addr32[2] == __builtin_bswap32(0xffff);
}

static inline bool ipv6_addr_equal(const struct in6_addr *a, const struct in6_addr *b)
{
	return !memcmp(a, b, sizeof(*a));
}

#define IPV6_ADDR_LINKLOCAL	0x20
static inline int ipv6_addr_type(const struct in6_addr *a)
{
	return a->s6_addr[0] == 0xfe && a->s6_addr[1] >> 6 == 2 ? IPV6_ADDR_LINKLOCAL : 0;
}

static inline bool ipv6_addr_is_multicast(const struct in6_addr *a)
{
	return a->s6_addr[0] == 0xff;
}

static inline bool ipv4_is_multicast(__be32 a)
{
	return (a & __builtin_bswap32(0xf0000000)) == __builtin_bswap32(0xe0000000);
}

struct inet_sock {
	struct sock sk;
	__be16 inet_sport;
	int family;
	u8 address[16];
	int device;
	bool reuses, accepts_no_checksum, in_group, ignores_icmp;
	int (*encap_rcv)(struct sock *sk, struct sk_buff *skb);
	struct inet_sock *next;
};
#define inet_sk(s)		((struct inet_sock *)(s))

struct net_device { int ifindex; unsigned int mtu; };
struct dst_entry { int references; struct net_device *dev; };
struct rtable { struct dst_entry dst; unsigned int rt_flags; };
#define RTCF_BROADCAST		0x10000000
struct flowi4 {
	__be32 daddr, saddr;
	int flowi4_oif;
	unsigned int flowi4_uid, flowi4_mark;
	u8 flowi4_proto;
	__be16 fl4_sport, fl4_dport;
};
struct flowi6 {
	struct in6_addr daddr, saddr;
	int flowi6_oif;
	unsigned int flowi6_uid, flowi6_mark;
	u8 flowi6_proto;
	__be16 fl6_sport, fl6_dport;
};
struct dst_entry *ip6_dst_lookup_flow(struct net *net, const struct sock *sk, struct flowi6 *flow,
				      const struct in6_addr *final);
struct rtable *ip_route_output_key(struct net *net, struct flowi4 *flow);
void dst_release(struct dst_entry *dst);

struct dst_cache {
	void *memory;
	struct dst_entry *dst;
	struct in6_addr source;
};
int dst_cache_init(struct dst_cache *cache, gfp_t flags);
void dst_cache_destroy(struct dst_cache *cache);
void dst_cache_reset(struct dst_cache *cache);
struct rtable *dst_cache_get_ip4(struct dst_cache *cache, __be32 *source);
struct dst_entry *dst_cache_get_ip6(struct dst_cache *cache, struct in6_addr *source);
void dst_cache_set_ip4(struct dst_cache *cache, struct dst_entry *dst, __be32 source);
void dst_cache_set_ip6(struct dst_cache *cache, struct dst_entry *dst, const struct in6_addr *source);

struct udp_port_cfg {
	u8 family;
	union {
		struct in_addr local_ip;
		struct in6_addr local_ip6;
	};
	__be16 local_udp_port;
	int bind_ifindex;
	unsigned int ipv6_v6only : 1;
};
struct udp_tunnel_sock_cfg {
	void *sk_user_data;
	u8 encap_type;
	int (*encap_rcv)(struct sock *sk, struct sk_buff *skb);
};
int udp_sock_create(struct net *net, struct udp_port_cfg *port, struct socket **sock);
void setup_udp_tunnel_sock(struct net *net, struct socket *sock, struct udp_tunnel_sock_cfg *tunnel);
int sock_bindtoindex(struct sock *sk, int device, bool lock);
int kernel_sock_shutdown(struct socket *sock, int how);
int sock_create_kern(struct net *net, int family, int type, int protocol, struct socket **sock);
void sock_release(struct socket *sock);
void sock_set_reuseaddr(struct sock *sk);
void udp_set_no_check6_rx(struct sock *sk, bool accept);
int kernel_bind(struct socket *sock, struct sockaddr *address, int length);
bool inet_port_requires_bind_service(struct net *net, unsigned short port);
void udp_tunnel_xmit_skb(struct rtable *route, struct sock *sk, struct sk_buff *skb, __be32 source, __be32 target,
			 __u8 tos, __u8 ttl, __be16 df, __be16 source_port, __be16 target_port, bool xnet, bool nocheck);
int udp_tunnel6_xmit_skb(struct dst_entry *dst, struct sock *sk, struct sk_buff *skb, void *dev,
			 const struct in6_addr *source, const struct in6_addr *target, __u8 tos, __u8 ttl, __be32 label,
			 __be16 source_port, __be16 target_port, bool nocheck);

/* /proc and sysctl. */

struct seq_file { struct net *net; };
void seq_printf(struct seq_file *seq, const char *format, ...);
#define seq_puts(seq, text)	seq_printf(seq, "%s", text)
#define seq_file_single_net(seq) ((seq)->net)
#define seq_user_ns(seq)	NULL
#define sock_i_ino(sk)		((void)(sk), 0UL)
#define from_kuid_munged(ns, uid) (uid)
void *proc_create_net_single(const char *name, int mode, struct proc_dir_entry *parent,
			     int (*show)(struct seq_file *seq, void *unused), void *data);
void remove_proc_entry(const char *name, struct proc_dir_entry *parent);

struct ctl_table {
	const char *procname;
	void *data;
	int maxlen, mode;
	int (*proc_handler)(const struct ctl_table *entry, long value);
	void *extra1, *extra2;
};
struct ctl_table_header {
	struct net *net;
	struct ctl_table *table;
	size_t entries;
};
int proc_dointvec_minmax(const struct ctl_table *entry, long value);
int proc_doulongvec_minmax(const struct ctl_table *entry, long value);
struct ctl_table_header *register_net_sysctl_sz(struct net *net, const char *path, struct ctl_table *table, size_t entries);
void unregister_net_sysctl_table(struct ctl_table_header *header);

/* Tracepoints are called and do nothing. */
#define TP_PROTO(...)		__VA_ARGS__
#define TRACE_EVENT(name, proto, ...)	static inline void trace_##name(proto) {}

#endif /* MOCK_KERNEL_H */
