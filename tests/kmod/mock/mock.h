/* SPDX-License-Identifier: BSD-2-Clause */
/*
 * What tests see of the mocked kernel: system calls on the module, a clock, failures on command, and
 * whether anything was left behind or done where it must not be.
 *
 * There is one thread.  Unless a test says so, time passes only in mock_step(), which a call that sleeps repeats until it
 * is woken: timers, delayed work and the test's own events run in the order in which they are due.
 */
#ifndef MOCK_H
#define MOCK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MOCK_MTU	1500

struct socket;

/* A datagram; addresses as in struct sockaddr_inagg, ports in host byte order. */
struct mock_packet {
	uint8_t from[16], to[16];
	uint16_t from_port, to_port;
	int interface, slave;	/* it comes in by; with a VRF: that, and the interface in it */
	const void *data;
	size_t bytes;
};

/* The world outside. */
struct mock_world {
	void (*transmit)(const struct mock_packet *packet);
	uint64_t (*next_event)(void);	/* when; UINT64_MAX: none */
	void (*run_event)(void);
};

/* Start anew: time, counters, failures. */
void mock_reset(const struct mock_world *world);
/* What is wrong: misplaced calls, locks in a wrong order or held, and, at the end, what was not given back. */
const char *mock_complaints(void);
void mock_check_empty(void);
/* What the module printed. */
const char *mock_printed(void);

/* Time. */
uint64_t mock_now(void);
void mock_pass(uint64_t ns);	/* what runs takes so long */
bool mock_step(void);	/* run what is due next; false: nothing is */

/* Let the @nth (from 1) call of @what (NULL: of any) fail that can; 0: none. */
void mock_fail(const char *what, unsigned int nth);
const char *mock_failed(void);	/* which one did; NULL: none yet */
bool mock_fails(const char *what);
void mock_interrupt(bool pending);	/* a signal is, or is not, pending */
void mock_kill(bool killed);	/* by a signal, pending, too */
void mock_set_exiting(bool exiting, bool killed);	/* the process ends, perhaps by a signal */
int mock_sigpipes(void);
void mock_set_mtu(unsigned int mtu);
void mock_set_nonlinear(bool nonlinear);	/* arriving packets are in fragments */
void mock_take_family(bool taken);
bool mock_has_avx2(void);	/* this machine */
void mock_set_avx2(bool cpu, bool saved);	/* what the module finds at most: the unit, and that tasks keep their registers */
void mock_set_vectors(bool usable);	/* the vector unit; it is by default */
/* Errors that the network below gives, negative errno or 0. */
void mock_set_route_error(int error);
void mock_set_broadcast_route(bool broadcast);	/* IPv4 routes lead to all hosts of a network */
/* Packets keep their memory when they are on their way, as in a queue: until this is called with false. */
void mock_hold_packets(bool hold);
/* Called wherever user memory is copied and softirqs are turned on again: others get a turn there. */
void mock_set_preemption(void (*function)(void));

/* Called once by a packet that has just found its socket. */
void mock_set_racer(void (*function)(void));
/* How many grace periods of RCU a call has waited for. */
unsigned int mock_grace_periods(void);
/* UDP sockets of which netfilter's owner match says that they are the user's of @sock. */
unsigned int mock_count_owned(const struct socket *sock);
/* Index of the interface that it receives from, 0: any. */
int mock_device_of(const struct socket *sock);

/* What is in use. */
long mock_charged(void);	/* bytes of inagg_memory */
int mock_module_references(void);
void mock_set_memory_limit(unsigned long bytes);

/* The module. */
int mock_load(void);
void mock_unload(void);
extern int inagg_family;

/* Deliver a datagram in softirq.  False: nobody listens. */
bool mock_deliver(const struct mock_packet *packet);

/* System calls: negative errno or the result. */
struct socket *mock_socket(int net, int type, int protocol, int *error);
int mock_close(struct socket *sock);
int mock_bind(struct socket *sock, const void *address, int length);
int mock_connect(struct socket *sock, const void *address, int length, bool nonblock);
int mock_getname(struct socket *sock, void *address, bool peer);
int mock_poll(struct socket *sock);
int mock_ioctl(struct socket *sock, unsigned int command, int *value);
int mock_shutdown(struct socket *sock, int how);
int mock_setsockopt(struct socket *sock, int level, int name, const void *value, unsigned int length);
int mock_getsockopt(struct socket *sock, int level, int name, void *value, int *length);
/* Options of level SOL_SOCKET; times in ms, negative: for ever. */
void mock_set_timeouts(struct socket *sock, long send, long receive);
void mock_bind_to_device(struct socket *sock, int device);
void mock_allow_broadcast(struct socket *sock);
void mock_set_linger(struct socket *sock, bool on, long ms);
int mock_so_error(struct socket *sock);
void mock_set_mark(struct socket *sock, unsigned int mark);
void mock_set_uid(struct socket *sock, unsigned int uid);	/* of its file */

/* Of the routes looked up: the mark and user of the last one, and how many there were. */
struct mock_lookups { unsigned int mark, uid, count; };
struct mock_lookups mock_lookups(void);

struct mock_message {
	void *data;
	size_t bytes;
	size_t mapped;		/* bytes of `data` that can be accessed; 0: all */
	void *control;
	size_t control_bytes;	/* recv: room, then what was filled */
	int flags;		/* in; recv: msg_flags out */
	const void *name;
};
int mock_sendmsg(struct socket *sock, struct mock_message *message);
int mock_recvmsg(struct socket *sock, struct mock_message *message);

/* /proc/net/inagg and /proc/sys/net/inagg. */
const char *mock_read_proc(int net);
int mock_write_sysctl(int net, const char *name, long value);

#ifdef __cplusplus
}
#endif

#endif /* MOCK_H */
