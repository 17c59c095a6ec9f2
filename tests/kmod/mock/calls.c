// SPDX-License-Identifier: BSD-2-Clause
/* System calls on the family's sockets, as net/socket.c passes them on. */
#include "kernel.h"

int mock_bind(struct socket *sock, const void *address, int length)
{
	struct __kernel_sockaddr_storage copy = {};

	memcpy(&copy, address, length);
	return sock->ops->bind(sock, (struct sockaddr *)&copy, length);
}

int mock_connect(struct socket *sock, const void *address, int length, bool nonblock)
{
	struct __kernel_sockaddr_storage copy = {};

	memcpy(&copy, address, length);
	return sock->ops->connect(sock, (struct sockaddr *)&copy, length, nonblock ? O_NONBLOCK : 0);
}

int mock_getname(struct socket *sock, void *address, bool peer)
{
	struct __kernel_sockaddr_storage name = {};
	int length = sock->ops->getname(sock, (struct sockaddr *)&name, peer);

	if (length > 0)
		memcpy(address, &name, length);
	return length;
}

int mock_poll(struct socket *sock) { return (int)sock->ops->poll(NULL, sock, NULL); }

int mock_ioctl(struct socket *sock, unsigned int command, int *value)
{
	return sock->ops->ioctl(sock, command, (unsigned long)value);
}

int mock_shutdown(struct socket *sock, int how) { return sock->ops->shutdown(sock, how); }

int mock_setsockopt(struct socket *sock, int level, int name, const void *value, unsigned int length)
{
	return sock->ops->setsockopt(sock, level, name, (sockptr_t){ value }, length);
}

int mock_getsockopt(struct socket *sock, int level, int name, void *value, int *length)
{
	return sock->ops->getsockopt(sock, level, name, value, length);
}

static long jiffies_of(long ms) { return ms < 0 ? MAX_SCHEDULE_TIMEOUT : (ms * HZ + 999) / 1000; }

void mock_set_timeouts(struct socket *sock, long send, long receive)
{
	sock->sk->sk_sndtimeo = jiffies_of(send);
	sock->sk->sk_rcvtimeo = jiffies_of(receive);
}

void mock_bind_to_device(struct socket *sock, int device)
{
	lock_sock(sock->sk);
	sock->sk->sk_bound_dev_if = device;
	sock->sk->sk_prot->rehash(sock->sk);
	release_sock(sock->sk);
}

void mock_set_linger(struct socket *sock, bool on, long ms)
{
	sock->sk->sk_flags = (sock->sk->sk_flags & ~(1UL << SOCK_LINGER)) | (unsigned long)on << SOCK_LINGER;
	sock->sk->sk_lingertime = jiffies_of(ms);
}

void mock_allow_broadcast(struct socket *sock) { sock->sk->sk_flags |= 1UL << SOCK_BROADCAST; }

int mock_so_error(struct socket *sock) { return -sock_error(sock->sk); }

void mock_set_mark(struct socket *sock, unsigned int mark) { sock->sk->sk_mark = mark; }
void mock_set_uid(struct socket *sock, unsigned int uid) { sock->sk->sk_uid = uid; }

static struct msghdr header_of(const struct mock_message *m)
{
	mock_begin_message();
	return (struct msghdr){
		.msg_name = (void *)m->name,
		.msg_iter = { .memory = m->data, .count = m->bytes, .fault_at = m->mapped ?: m->bytes },
		.msg_control = m->control,
		.msg_controllen = m->control_bytes,
	};
}

int mock_sendmsg(struct socket *sock, struct mock_message *m)
{
	struct msghdr header = header_of(m);

	header.msg_flags = m->flags;
	return sock->ops->sendmsg(sock, &header, m->bytes);
}

int mock_recvmsg(struct socket *sock, struct mock_message *m)
{
	struct msghdr header = header_of(m);
	int result = sock->ops->recvmsg(sock, &header, m->bytes, m->flags);

	m->flags = (int)header.msg_flags;
	m->control_bytes -= header.msg_controllen;
	return result;
}

/* Of the module's own state, what a test looks at. */
extern atomic_long_t inagg_memory;
extern unsigned long inagg_memory_limit;

long mock_charged(void) { return atomic_long_read(&inagg_memory); }
void mock_set_memory_limit(unsigned long bytes) { inagg_memory_limit = bytes; }
