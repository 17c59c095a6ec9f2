// SPDX-License-Identifier: BSD-2-Clause
/* The mocked kernel itself: contexts, locks, memory, time, sleeping, user memory. */
#include "kernel.h"

#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>

#define MOST_HELD	8
#define MOST_DEPTH	16
#define MOST_CLASSES	16
#define MOST_ALLOCATED	65536
#define MOST_IN_VAIN	20000	/* steps or waits without any time passing */
#define MOST_AT_ONCE	66	/* packets: a burst, and what one of them answers */
#define MOST_COPIES	64	/* without cond_resched() */
#define SOCK_LOCK	"sk_lock"
#define NET_LOCK	"&in->lock"	/* of the module */

/* What a task or a softirq holds. */
struct context {
	struct mock_lock *held[MOST_HELD];
	int count, bh;
	bool softirq, work;
	int built, sent;	/* packets, since the first spinlock was taken, and softirqs turned off */
	struct mem_cgroup *memcg;	/* active */
};

static struct {
	struct context contexts[MOST_DEPTH];
	int depth;
	struct { const void *memory; enum mock_memory kind; } allocated[MOST_ALLOCATED];
	int allocations;
	const char *classes[MOST_CLASSES];
	bool before[MOST_CLASSES][MOST_CLASSES];	/* lock order seen */
	u64 now;
	struct mock_due *due;
	unsigned int steps_in_vain, waits_in_vain;
	const char *fail_what, *failed;
	unsigned int fail_in;
	bool signal, killed, no_vectors, no_avx2, no_ymm;
	unsigned int copies;	/* of parts of a message, since others were last let on */
	int sigpipes;
	u64 random;
	void (*preempt)(void);
	char complaints[8192], printed[4096];
} k;

const struct mock_world *mock_the_world;
struct task_struct mock_task;
static struct mem_cgroup memcg_of_processes;

void mock_reset(const struct mock_world *w)
{
	memset(&k, 0, sizeof(k));
	k.now = 1000000000;
	k.random = 1;
	mock_task.flags = 0;
	memcg_of_processes.references = 0;
	mock_the_world = w;
	mock_set_mtu(MOCK_MTU);
	mock_set_nonlinear(false);
	mock_set_route_error(0);
	mock_set_broadcast_route(false);
	mock_take_family(false);
}

/* Telling. */

static void append(char *text, size_t room, const char *format, va_list arguments)
{
	size_t used = strlen(text);

	vsnprintf(text + used, room - used, format, arguments);
	used = strlen(text);
	if (used && used + 1 < room && text[used - 1] != '\n')
		strcpy(text + used, "\n");
}

void mock_complain(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	append(k.complaints, sizeof(k.complaints), format, arguments);
	va_end(arguments);
}

void mock_log(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	append(k.printed, sizeof(k.printed), format, arguments);
	va_end(arguments);
}

void mock_die(const char *why)
{
	fprintf(stderr, "%smock kernel: %s\n", k.complaints, why);
	abort();
}

const char *mock_complaints(void) { return k.complaints; }
const char *mock_printed(void) { return k.printed; }

/* Failing. */

void mock_fail(const char *what, unsigned int nth)
{
	k.fail_what = what;
	k.fail_in = nth;
	k.failed = NULL;
}

const char *mock_failed(void) { return k.failed; }

bool mock_fails(const char *what)
{
	if (!k.fail_in || (k.fail_what && strcmp(k.fail_what, what)))
		return false;
	if (--k.fail_in)
		return false;
	k.failed = what;
	return true;
}

/* Contexts. */

static struct context *here(void) { return &k.contexts[k.depth]; }

void mock_enter(bool softirq)
{
	if (++k.depth == MOST_DEPTH)
		mock_die("the test nests too deeply");
	memset(here(), 0, sizeof(*here()));
	here()->softirq = softirq;
}

void mock_leave(void)
{
	if (here()->count)
		mock_complain("%s is still held at the end", here()->held[0]->name);
	if (here()->bh)
		mock_complain("softirqs are still off at the end");
	if (here()->memcg)
		mock_complain("a work goes on charging another one's control group");
	k.depth--;
}

static const struct mock_lock *held_spinlock(void)
{
	for (int i = 0; i < here()->count; i++)
		if (here()->held[i]->spins)
			return here()->held[i];
	return NULL;
}

static bool holds(const char *name)
{
	for (int i = 0; i < here()->count; i++)
		if (!strcmp(here()->held[i]->name, name))
			return true;
	return false;
}

void mock_must_not_hold_spinlocks(const char *what)
{
	if (held_spinlock())
		mock_complain("%s with %s held", what, held_spinlock()->name);
}

void mock_might_sleep(const char *what)
{
	mock_must_not_hold_spinlocks(what);
	if (here()->softirq || here()->bh)
		mock_complain("%s may sleep, but softirqs are off", what);
}

void mock_must_be_atomic(const char *what)
{
	if (!here()->softirq && !here()->bh)
		mock_complain("%s needs softirqs off", what);
}

void local_bh_disable(void)
{
	if (!here()->bh++ && !here()->softirq)
		here()->sent = 0;
}

/* Whoever else wants the processor waits for a burst, not for a window. */
void mock_count_built(void)
{
	if (held_spinlock() && ++here()->built > MOST_AT_ONCE)
		mock_complain("%d packets are built in one go", here()->built);
}

void mock_count_sent(void)
{
	if (++here()->sent > MOST_AT_ONCE)
		mock_complain("%d packets are sent in one go", here()->sent);
}

/* Another processor, or an interrupt, gets a turn where the first task of all may lose it. */
static void preempt(void)
{
	if (k.preempt && !k.depth && !here()->bh && !held_spinlock())
		k.preempt();
}

void local_bh_enable(void)
{
	if (--here()->bh < 0)
		mock_complain("softirqs are turned on once too often");
	preempt();
}

void mock_set_vectors(bool usable) { k.no_vectors = !usable; }
void mock_set_avx2(bool cpu, bool saved) { k.no_avx2 = !cpu, k.no_ymm = !saved; }
#ifdef CONFIG_X86_64
bool mock_has_avx2(void) { return __builtin_cpu_supports("avx2"); }
#else
bool mock_has_avx2(void) { return false; }
#endif
bool boot_cpu_has(int feature) { return feature == X86_FEATURE_AVX2 && !k.no_avx2 && mock_has_avx2(); }
int cpu_has_xfeatures(u64 mask, const char **missing) { return !(mask & XFEATURE_MASK_YMM) || !k.no_ymm; }
bool irq_fpu_usable(void) { return !k.no_vectors; }
void kernel_fpu_begin(void) { local_bh_disable(); }
void kernel_fpu_end(void) { local_bh_enable(); }

/* Locks. */

static int class_of(const struct mock_lock *lock)
{
	int i;

	for (i = 0; i < MOST_CLASSES && k.classes[i]; i++)
		if (!strcmp(k.classes[i], lock->name))
			return i;
	if (i == MOST_CLASSES)
		mock_die("too many kinds of locks");
	k.classes[i] = lock->name;
	return i;
}

/* As lockdep: whatever comes before @first now comes before @second and all behind it. */
static void note_order(const struct mock_lock *first, const struct mock_lock *second)
{
	int a = class_of(first), b = class_of(second), x, y;

	if (k.before[a][b])
		return;
	if (a == b || k.before[b][a]) {
		mock_complain("%s is taken under %s, elsewhere the other way round", second->name, first->name);
		return;
	}
	for (x = 0; x < MOST_CLASSES; x++)
		for (y = 0; y < MOST_CLASSES; y++)
			if ((x == a || k.before[x][a]) && (y == b || k.before[b][y]))
				k.before[x][y] = true;
}

void mock_lock_init(struct mock_lock *lock, const char *name, bool spins)
{
	*lock = (struct mock_lock){ .name = name, .spins = spins };
}

static void take(struct mock_lock *lock)
{
	struct context *c = here();

	if (c->count == MOST_HELD)
		mock_die("too many locks are held");
	lock->held = true;
	c->held[c->count++] = lock;
}

void mock_acquire(struct mock_lock *lock)
{
	struct context *c = here();
	int i;

	if (!lock->name)
		mock_die("a lock was never initialised");
	if (!lock->spins)
		mock_might_sleep(lock->name);
	if (!strcmp(lock->name, SOCK_LOCK) && holds(NET_LOCK))
		mock_die("all sockets of a namespace wait for one: lock_sock() under its list's lock");
	if (lock->held) {
		fprintf(stderr, "mock kernel: %s is held already\n", lock->name);
		mock_die("deadlock");
	}
	if (lock->spins) {
		lock->in_softirq |= c->softirq;
		lock->softirqs_on |= !c->softirq && !c->bh;
		if (lock->in_softirq && lock->softirqs_on)
			mock_complain("%s is taken in softirq, and elsewhere with softirqs on", lock->name);
	}
	for (i = 0; i < c->count; i++)
		note_order(c->held[i], lock);
	if (lock->spins && !held_spinlock())
		c->built = 0;
	take(lock);
}

void mock_release(struct mock_lock *lock)
{
	struct context *c = here();
	int i;

	for (i = c->count; i--;) {
		if (c->held[i] != lock)
			continue;
		memmove(&c->held[i], &c->held[i + 1], (c->count - i - 1) * sizeof(c->held[0]));
		c->count--;
		lock->held = false;
		return;
	}
	mock_complain("%s is released by somebody who does not hold it", lock->name ?: "a lock");
}

int mutex_trylock(struct mutex *m)
{
	mock_might_sleep(m->lock.name);
	if (m->lock.held)
		return 0;
	take(&m->lock);
	return 1;
}

/* Only a signal that kills ends the wait for another task. */
int mutex_lock_killable(struct mutex *m)
{
	if (m->lock.held && k.killed) {
		mock_might_sleep(m->lock.name);
		return -EINTR;
	}
	mock_acquire(&m->lock);
	return 0;
}

void cond_resched(void)
{
	mock_might_sleep("cond_resched");
	k.copies = 0;
}

/* Memory. */

void *mock_alloc(const char *what, size_t bytes, gfp_t flags, enum mock_memory kind)
{
	void *memory;

	if (flags & __GFP_SLEEPS)
		mock_might_sleep(what);
	if (kind == MOCK_VMALLOC && !(flags & __GFP_ACCOUNT))
		mock_complain("%s: memory as large as a user wants is charged to no control group", what);
	if (kind == MOCK_VMALLOC && !(flags & __GFP_RETRY_MAYFAIL))
		mock_complain("%s: where a control group has no memory left its processes are killed", what);
	if (kind == MOCK_VMALLOC && !(flags & __GFP_ZERO))
		mock_complain("%s: memory that a user will see holds what others left there", what);
	if (flags & __GFP_ACCOUNT && here()->work && !here()->memcg)
		mock_complain("%s: a work has no control group to charge", what);
	if (mock_fails(what))
		return NULL;
	memory = malloc(bytes);
	if (!memory || k.allocations == MOST_ALLOCATED)
		mock_die("the test needs too much memory");
	/* not zero by accident */
	memset(memory, flags & __GFP_ZERO ? 0 : 0xa5, bytes);
	k.allocated[k.allocations].memory = memory;
	k.allocated[k.allocations++].kind = kind;
	return memory;
}

static bool is_within(const void *p, const void *memory, size_t bytes)
{
	return (const char *)p >= (const char *)memory && (const char *)p < (const char *)memory + bytes;
}

/* As CONFIG_DEBUG_OBJECTS and lockdep: nothing in it is in use. */
static void check_unused(void *memory)
{
	size_t bytes = malloc_usable_size(memory);
	const struct mock_due *d;
	int depth, i;

	for (d = k.due; d; d = d->next)
		if (is_within(d, memory, bytes))
			mock_complain("memory with an armed %s is freed", d->is_timer ? "timer" : "work");
	for (depth = 0; depth <= k.depth; depth++)
		for (i = 0; i < k.contexts[depth].count; i++)
			if (is_within(k.contexts[depth].held[i], memory, bytes))
				mock_complain("memory with a held lock, %s, is freed", k.contexts[depth].held[i]->name);
}

void mock_free(const void *memory, unsigned int kinds)
{
	int i;

	if (!memory)
		return;
	for (i = k.allocations; i--;)
		if (k.allocated[i].memory == memory)
			break;
	if (i < 0)
		mock_die("memory is freed that is not allocated");
	if (!(k.allocated[i].kind & kinds))
		mock_complain("memory is freed by another function than belongs to it");
	check_unused((void *)memory);
	k.allocated[i] = k.allocated[--k.allocations];
	free((void *)memory);
}

void *kmemdup(const void *from, size_t bytes, gfp_t flags)
{
	void *copy = mock_alloc("kmemdup", bytes, flags, MOCK_KMALLOC);

	return copy ? memcpy(copy, from, bytes) : NULL;
}

struct mem_cgroup *get_mem_cgroup_from_mm(struct mm_struct *mm)
{
	if (here()->softirq || here()->work)
		mock_complain("the control group of a process is asked for where there is none");
	memcg_of_processes.references++;
	return &memcg_of_processes;
}

void mem_cgroup_put(struct mem_cgroup *memcg)
{
	if (memcg && --memcg->references < 0)
		mock_complain("a control group is released once too often");
}

struct mem_cgroup *set_active_memcg(struct mem_cgroup *memcg)
{
	struct mem_cgroup *before = here()->memcg;

	here()->memcg = memcg;
	return before;
}

/* Time. */

uint64_t mock_now(void) { return k.now; }
void mock_pass(uint64_t ns) { k.now += ns; }

static void enqueue(struct mock_due *d, u64 due, bool is_timer)
{
	d->due = due;
	d->is_timer = is_timer;
	d->pending = true;
	d->next = k.due;
	k.due = d;
}

static bool dequeue(struct mock_due *d)
{
	struct mock_due **at;

	for (at = &k.due; *at; at = &(*at)->next) {
		if (*at != d)
			continue;
		*at = d->next;
		d->pending = false;
		return true;
	}
	return false;
}

static struct mock_due *earliest(void)
{
	struct mock_due *d, *first = k.due;

	for (d = k.due; d; d = d->next)
		if (d->due <= first->due)	/* of equals the one that was queued first */
			first = d;
	return first;
}

void hrtimer_init(struct hrtimer *timer, clockid_t clock, enum hrtimer_mode mode)
{
	memset(timer, 0, sizeof(*timer));
}

void hrtimer_start(struct hrtimer *timer, ktime_t due, enum hrtimer_mode mode)
{
	dequeue(&timer->queued);
	enqueue(&timer->queued, due, true);
}

int hrtimer_cancel(struct hrtimer *timer)
{
	mock_might_sleep("hrtimer_cancel");
	return dequeue(&timer->queued);
}

bool mock_queue(struct workqueue_struct *queue, struct work_struct *work, unsigned long delay)
{
	if (!queue)
		mock_die("work is queued on a workqueue that is gone");
	if (work->queued.pending)
		return false;
	enqueue(&work->queued, k.now + delay * (1000000000 / HZ), false);
	return true;
}

bool cancel_work_sync(struct work_struct *work)
{
	mock_might_sleep("cancel_work_sync");
	return dequeue(&work->queued);
}

void mock_call_rcu(struct mock_due *d, void (*function)(struct mock_due *due))
{
	d->after_readers = function;
	enqueue(d, k.now + 10000000, false);
}

/* No softirq is at work. */
static void check_no_readers(void)
{
	int depth;

	for (depth = 0; depth <= k.depth; depth++)
		if (k.contexts[depth].softirq)
			mock_die("time passes in a softirq");
}

void mock_wait_for_readers(const char *what)
{
	mock_might_sleep(what);
	check_no_readers();
	preempt();
}

static void end_grace_period(struct mock_due *d)
{
	check_no_readers();
	mock_enter(true);
	d->after_readers(d);
	mock_leave();
}

static void run_due(struct mock_due *d)
{
	struct hrtimer *timer = container_of(d, struct hrtimer, queued);
	struct work_struct *work = container_of(d, struct work_struct, queued);

	dequeue(d);
	if (d->after_readers) {
		end_grace_period(d);
		return;
	}
	mock_enter(d->is_timer);
	here()->work = !d->is_timer;
	if (!d->is_timer)
		work->function(work);
	else if (timer->function(timer) != HRTIMER_NORESTART)
		mock_complain("a timer wants to restart itself");
	mock_leave();
}

bool mock_step(void)
{
	struct mock_due *d = earliest();
	u64 event = mock_the_world->next_event(), next = d && d->due <= event ? d->due : event;

	if (next == U64_MAX)
		return false;
	k.waits_in_vain = 0;
	k.steps_in_vain = next > k.now ? 0 : k.steps_in_vain + 1;
	if (k.steps_in_vain > MOST_IN_VAIN)
		mock_die("timers or packets go on and on at one instant");
	k.now = max(k.now, next);
	if (d && d->due <= event) {
		run_due(d);
	} else {
		mock_enter(false);
		mock_the_world->run_event();
		mock_leave();
	}
	return true;
}

/* Sleeping. */

bool mock_signal_pending(void)
{
	preempt();	/* here as well as anywhere else */
	return k.signal;
}
bool mock_killed(void) { return k.killed; }
void mock_interrupt(bool pending) { k.signal = pending; }
void mock_kill(bool killed) { k.signal = k.killed = killed; }
void mock_set_exiting(bool exiting, bool killed)
{
	mock_task.flags = exiting ? PF_EXITING | PF_SIGNALED : 0;	/* a thread that another's exit_group() ends has both */
	mock_task.exit_code = killed ? SIGKILL : exiting ? 1 << 8 : 0;
}
int mock_sigpipes(void) { return k.sigpipes; }
int send_sig(int signal, struct task_struct *task, int privileged) { return k.sigpipes += signal == SIGPIPE, 0; }
void mock_wake(wait_queue_head_t *queue) { queue->wakes++; }

void mock_count_wait(void)
{
	if (++k.waits_in_vain > MOST_IN_VAIN)
		mock_die("a call spins: what it waits for is there, but it goes on waiting");
}

static u64 next_time(void)
{
	struct mock_due *d = earliest();
	u64 event = mock_the_world->next_event();

	return d ? min(d->due, event) : event;
}

bool mock_sleep(wait_queue_head_t *queue, unsigned long wakes, long *timeout)
{
	const u64 jiffy = 1000000000 / HZ;
	u64 end = *timeout == MAX_SCHEDULE_TIMEOUT ? U64_MAX : k.now + *timeout * jiffy;

	while (queue->wakes == wakes) {
		if (k.signal || mock_fails("wait_event")) {
			*timeout = -ERESTARTSYS;
			return false;
		}
		if (end != U64_MAX && next_time() > end) {
			k.now = end;
			*timeout = 0;
			return false;
		}
		if (!mock_step()) {
			mock_complain("a call would sleep for ever");
			*timeout = -ERESTARTSYS;
			return false;
		}
	}
	if (end != U64_MAX)
		*timeout = end > k.now ? (end - k.now + jiffy - 1) / jiffy : 0;
	return end == U64_MAX || *timeout;
}

struct workqueue_struct *alloc_workqueue(const char *name, unsigned int flags, int most)
{
	return mock_alloc("alloc_workqueue", sizeof(struct workqueue_struct), GFP_KERNEL, MOCK_OBJECT);
}

void destroy_workqueue(struct workqueue_struct *queue)
{
	for (struct mock_due *d = k.due; d; d = d->next)
		if (!d->is_timer && !d->after_readers)
			mock_complain("a workqueue with work is destroyed");
	mock_free(queue, MOCK_OBJECT);
}

/* User memory. */

void mock_set_preemption(void (*function)(void)) { k.preempt = function; }

/* A page of the user's may keep us waiting for ever (userfaultfd): nobody else may wait for this socket meanwhile. */
static void touch_user_memory(const char *what)
{
	mock_might_sleep(what);
	if (holds(SOCK_LOCK))
		mock_die("user memory is copied under lock_sock()");
	preempt();
}

int mock_copy(const char *what, void *to, const void *from, size_t bytes)
{
	touch_user_memory(what);
	if (!to || !from || mock_fails(what))
		return -EFAULT;
	memcpy(to, from, bytes);
	return 0;
}

void mock_begin_message(void) { k.copies = 0; }

static void touch_message(const char *what)
{
	touch_user_memory(what);
	if (++k.copies > MOST_COPIES)
		mock_complain("%s: a long loop lets nobody else on", what);
}

static size_t mapped_of(const struct iov_iter *iter, size_t bytes)
{
	bytes = min(bytes, iter->count);
	return iter->offset >= iter->fault_at ? 0 : min(bytes, iter->fault_at - iter->offset);
}

static void advance(struct iov_iter *iter, size_t bytes)
{
	iter->offset += bytes;
	iter->count -= bytes;
}

bool copy_from_iter_full(void *to, size_t bytes, struct iov_iter *from)
{
	touch_message("copy_from_iter_full");
	if (mapped_of(from, bytes) < bytes || mock_fails("copy_from_iter_full"))
		return false;
	memcpy(to, from->memory + from->offset, bytes);
	advance(from, bytes);
	return true;
}

size_t copy_to_iter(const void *from, size_t bytes, struct iov_iter *to)
{
	touch_message("copy_to_iter");
	bytes = mock_fails("copy_to_iter") ? 0 : mapped_of(to, bytes);
	if (bytes)
		memcpy(to->memory + to->offset, from, bytes);
	advance(to, bytes);
	return bytes;
}

void iov_iter_revert(struct iov_iter *iter, size_t bytes)
{
	if (bytes > iter->offset)
		mock_die("a message is taken back that was not there");
	iter->offset -= bytes;
	iter->count += bytes;
}

/* Small change. */

int match_string(const char *const *names, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(names[i], name))
			return i;
	return -EINVAL;
}

ssize_t strscpy(char *to, const char *from, size_t room)
{
	size_t length = min(strlen(from), room - 1);

	memcpy(to, from, length);
	to[length] = 0;
	return length;
}

/* SplitMix64 */
u64 get_random_u64(void)
{
	u64 x = k.random += 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return x ^ x >> 31;
}

unsigned long totalram_pages(void) { return 1UL << 20; }	/* 4 GiB */

/* Everything is given back: to be called with the module unloaded. */
void mock_check_empty(void)
{
	mock_check_network();
	if (k.allocations)
		mock_complain("%d allocations are left", k.allocations);
	if (memcg_of_processes.references)
		mock_complain("a control group is left with %d references", memcg_of_processes.references);
	if (k.due)
		mock_complain("a %s is left", k.due->is_timer ? "timer" : "delayed work");
	if (here()->count)
		mock_complain("%s is still held", here()->held[0]->name);
	if (here()->bh)
		mock_complain("softirqs are still off");
}
