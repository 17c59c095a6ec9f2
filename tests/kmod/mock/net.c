// SPDX-License-Identifier: BSD-2-Clause
/* The mocked network: buffers, sockets, UDP, routes, namespaces, /proc and sysctl. */
#include "kernel.h"

#include <stdarg.h>
#include <stdio.h>

#define MOCK_INTERFACE	3	/* that leads to the switch */

struct net mock_nets[INAGG_MOCK_NETS];
struct module mock_module;

static struct {
	long skbs;
	struct sk_buff *held;	/* on their way */
	bool holds;
	struct inet_sock *udp;
	u16 next_port;
	struct rtable route;
	struct net_device device;
	struct mock_lookups lookups;
	u32 mtu;
	int route_error;
	bool nonlinear, family_taken;
	const struct net_proto_family *family;
	struct pernet_operations *pernet;
	struct proto *proto;
	struct ctl_table_header *sysctls[INAGG_MOCK_NETS];
	int (*show[INAGG_MOCK_NETS])(struct seq_file *seq, void *unused);
	void (*racer)(void);
	unsigned int grace_periods;
	char proc[16384];
} n;

void mock_set_mtu(unsigned int mtu) { n.mtu = mtu; }
void mock_set_route_error(int error) { n.route_error = error; }
void mock_set_broadcast_route(bool broadcast) { n.route.rt_flags = broadcast ? RTCF_BROADCAST : 0; }
void mock_set_nonlinear(bool nonlinear) { n.nonlinear = nonlinear; }
void mock_take_family(bool taken) { n.family_taken = taken; }
int mock_module_references(void) { return mock_module.references; }

/* Buffers: `head` is just as large as was asked for, so a byte too many is caught. */

static struct sk_buff *new_skb(size_t bytes)
{
	struct sk_buff *skb = calloc(1, sizeof(*skb));

	skb->head = skb->data = skb->tail = malloc(bytes ?: 1);
	skb->end = skb->head + bytes;
	skb->truesize = bytes;
	n.skbs++;
	return skb;
}

struct sk_buff *alloc_skb(unsigned int bytes, gfp_t flags)
{
	if (flags & __GFP_SLEEPS)
		mock_might_sleep("alloc_skb");
	mock_count_built();
	return mock_fails("alloc_skb") ? NULL : new_skb(bytes);
}

void kfree_skb(struct sk_buff *skb)
{
	if (!skb)
		return;
	if (skb->destructor)
		skb->destructor(skb);
	free(skb->head);
	free(skb->fragment);
	free(skb);
	n.skbs--;
}

void skb_reserve(struct sk_buff *skb, int bytes)
{
	skb->data += bytes;
	skb->tail += bytes;
}

void *skb_put(struct sk_buff *skb, unsigned int bytes)
{
	u8 *at = skb->tail;

	if (bytes > (size_t)(skb->end - skb->tail))
		mock_die("skb_over_panic");
	skb->tail += bytes;
	skb->len += bytes;
	return at;
}

void *skb_put_data(struct sk_buff *skb, const void *data, unsigned int bytes)
{
	void *at = skb_put(skb, bytes);

	return bytes ? memcpy(at, data, bytes) : at;
}

static void give_back_wmem(struct sk_buff *skb) { skb->sk->sk_wmem_alloc.refs -= skb->truesize; }

void skb_set_owner_w(struct sk_buff *skb, struct sock *sk)
{
	skb->sk = sk;
	skb->destructor = give_back_wmem;
	sk->sk_wmem_alloc.refs += skb->truesize;
}

int skb_linearize(struct sk_buff *skb)
{
	size_t before = skb->data - skb->head, here = skb->tail - skb->data, ip = skb->network_header - skb->head;
	u8 *head;

	if (!skb->fragment)
		return 0;
	if (mock_fails("skb_linearize"))
		return -ENOMEM;
	head = malloc(before + skb->len);
	memcpy(head, skb->head, before + here);
	memcpy(head + before + here, skb->fragment, skb->len - here);
	free(skb->head);
	free(skb->fragment);
	skb->fragment = NULL;
	skb->head = head;
	skb->data = head + before;
	skb->tail = skb->end = skb->data + skb->len;
	skb->network_header = head + ip;
	return 0;
}

void __skb_queue_head_init(struct sk_buff_head *queue) { memset(queue, 0, sizeof(*queue)); }

void __skb_queue_tail(struct sk_buff_head *queue, struct sk_buff *skb)
{
	skb->next = NULL;
	if (queue->last)
		queue->last->next = skb;
	else
		queue->first = skb;
	queue->last = skb;
	queue->qlen++;
}

struct sk_buff *__skb_dequeue(struct sk_buff_head *queue)
{
	struct sk_buff *skb = queue->first;

	if (!skb)
		return NULL;
	queue->first = skb->next;
	if (!queue->first)
		queue->last = NULL;
	queue->qlen--;
	return skb;
}

void skb_queue_purge(struct sk_buff_head *queue)
{
	struct sk_buff *skb;

	while ((skb = __skb_dequeue(queue)))
		kfree_skb(skb);
}

/* Sockets. */

static void wake(struct sock *sk)
{
	if (sk->sk_wq)
		mock_wake(&sk->sk_wq->wait);
}

static void init_sock(struct sock *sk, struct net *net)
{
	sk->sk_net = net;
	sk->sk_refcnt.refs = sk->sk_wmem_alloc.refs = 1;
	mock_lock_init(&sk->sk_lock.lock, "sk_lock", false);
	mock_lock_init(&sk->sk_callback_lock.lock, "sk_callback_lock", true);
}

struct sock *sk_alloc(struct net *net, int family, gfp_t flags, struct proto *proto, int kern)
{
	struct sock *sk = mock_alloc("sk_alloc", proto->obj_size, flags | __GFP_ZERO, MOCK_OBJECT);

	if (!sk)
		return NULL;
	init_sock(sk, net);
	sk->sk_prot = proto;
	net->sockets++;
	proto->owner->references++;
	return sk;
}

static void destruct_nothing(struct sock *sk) {}

void sock_init_data(struct socket *sock, struct sock *sk)
{
	sk->sk_state = TCP_CLOSE;
	sk->sk_socket = sock;
	sk->sk_wq = &sock->wq;
	sock->sk = sk;
	sk->sk_sndtimeo = sk->sk_rcvtimeo = MAX_SCHEDULE_TIMEOUT;
	sk->sk_state_change = sk->sk_data_ready = sk->sk_write_space = sk->sk_error_report = wake;
	sk->sk_destruct = destruct_nothing;
	__skb_queue_head_init(&sk->sk_error_queue);
}

static void free_udp(struct sock *sk);

static void free_sock(struct mock_due *freed)
{
	struct sock *sk = container_of(freed, struct sock, freed);

	sk->sk_destruct(sk);
	if (sk->sk_error_queue.first)
		mock_complain("a socket is freed with errors in its queue");
	if (sk->sk_socket)
		mock_complain("a socket is freed that its user still has");
	sk->sk_net->sockets--;
	sk->sk_prot->owner->references--;
	mock_free(sk, MOCK_OBJECT);
}

void sock_put(struct sock *sk)
{
	if (--sk->sk_refcnt.refs)
		return;
	if (!sk->sk_prot)
		free_udp(sk);
	else if (sock_flag(sk, SOCK_RCU_FREE))
		mock_call_rcu(&sk->freed, free_sock);
	else
		free_sock(&sk->freed);
}

void sock_orphan(struct sock *sk)
{
	sk->sk_flags |= 1 << SOCK_DEAD;
	sk->sk_socket = NULL;
	sk->sk_wq = NULL;
}

int sock_error(struct sock *sk)
{
	int error = -sk->sk_err;

	sk->sk_err = 0;
	return error;
}

void sk_error_report(struct sock *sk) { sk->sk_error_report(sk); }

int sock_queue_err_skb(struct sock *sk, struct sk_buff *skb)
{
	if (mock_fails("sock_queue_err_skb"))
		return -ENOMEM;
	__skb_queue_tail(&sk->sk_error_queue, skb);
	if (!(sk->sk_flags & 1 << SOCK_DEAD))
		sk_error_report(sk);
	return 0;
}

int sock_recv_errqueue(struct sock *sk, struct msghdr *msg, int length, int level, int type)
{
	struct sk_buff *skb = __skb_dequeue(&sk->sk_error_queue);
	int copied;

	if (!skb)
		return -EAGAIN;
	copied = min((int)skb->len, length);
	if (copied < (int)skb->len)
		msg->msg_flags |= MSG_TRUNC;
	if (copy_to_iter(skb->data, copied, &msg->msg_iter) == (size_t)copied)
		put_cmsg(msg, level, type, sizeof(struct sock_extended_err), &SKB_EXT_ERR(skb)->ee);
	else
		copied = -EFAULT;
	msg->msg_flags |= MSG_ERRQUEUE;
	kfree_skb(skb);
	return copied;
}

void sock_poll_wait(struct file *file, struct socket *sock, poll_table *wait) {}

int proto_register(struct proto *proto, int slab)
{
	if (mock_fails("proto_register"))
		return -ENOMEM;
	n.proto = proto;
	return 0;
}

void proto_unregister(struct proto *proto) { n.proto = NULL; }

int sock_register(const struct net_proto_family *family)
{
	if (n.family_taken || mock_fails("sock_register"))
		return -EEXIST;
	n.family = family;
	return 0;
}

void sock_unregister(int family) { n.family = NULL; }

/* Control messages. */

struct cmsghdr *mock_next_cmsg(struct msghdr *msg, struct cmsghdr *cmsg)
{
	char *next = cmsg ? (char *)cmsg + CMSG_ALIGN(cmsg->cmsg_len) : msg->msg_control;

	if (!next || next + sizeof(*cmsg) > (char *)msg->msg_control + msg->msg_controllen)
		return NULL;
	return (struct cmsghdr *)next;
}

int put_cmsg(struct msghdr *msg, int level, int type, int bytes, void *data)
{
	struct cmsghdr header = { .cmsg_len = CMSG_LEN(bytes), .cmsg_level = level, .cmsg_type = type };

	mock_might_sleep("put_cmsg");
	if (!msg->msg_control || msg->msg_controllen < header.cmsg_len || mock_fails("put_cmsg")) {
		msg->msg_flags |= MSG_CTRUNC;
		return 0;
	}
	memcpy(msg->msg_control, &header, sizeof(header));
	memcpy((char *)msg->msg_control + sizeof(header), data, bytes);
	msg->msg_control = (char *)msg->msg_control + header.cmsg_len;
	msg->msg_controllen -= header.cmsg_len;
	return 0;
}

/* Routes. */

struct mock_lookups mock_lookups(void) { return n.lookups; }

static struct dst_entry *route(unsigned int mark, unsigned int uid)
{
	n.lookups = (struct mock_lookups){ mark, uid, n.lookups.count + 1 };
	if (n.route_error || mock_fails("route"))
		return ERR_PTR(n.route_error ?: -ENETUNREACH);
	n.route.dst.references++;
	n.route.dst.dev = &n.device;
	n.device.ifindex = MOCK_INTERFACE;
	n.device.mtu = n.mtu;
	return &n.route.dst;
}

struct rtable *ip_route_output_key(struct net *net, struct flowi4 *flow)
{
	struct dst_entry *dst = route(flow->flowi4_mark, flow->flowi4_uid);

	if (!flow->saddr)
		flow->saddr = __builtin_bswap32(0x0a000001);	/* 10.0.0.1 */
	return (struct rtable *)dst;
}

struct dst_entry *ip6_dst_lookup_flow(struct net *net, const struct sock *sk, struct flowi6 *flow,
				      const struct in6_addr *final)
{
	struct dst_entry *dst = route(flow->flowi6_mark, flow->flowi6_uid);

	if (ipv6_addr_any(&flow->saddr))
		flow->saddr = (struct in6_addr){ .s6_addr = { 0xfd, [15] = 1 } };
	return dst;
}

void dst_release(struct dst_entry *dst)
{
	if (--dst->references < 0)
		mock_complain("a route is released once too often");
}

int dst_cache_init(struct dst_cache *cache, gfp_t flags)
{
	cache->dst = NULL;
	cache->memory = mock_alloc("dst_cache_init", 1, flags, MOCK_OBJECT);
	return cache->memory ? 0 : -ENOMEM;
}

void dst_cache_reset(struct dst_cache *cache)
{
	if (cache->dst)
		dst_release(cache->dst);
	cache->dst = NULL;
}

void dst_cache_destroy(struct dst_cache *cache)
{
	dst_cache_reset(cache);
	mock_free(cache->memory, MOCK_OBJECT);
}

struct dst_entry *dst_cache_get_ip6(struct dst_cache *cache, struct in6_addr *source)
{
	mock_must_be_atomic("dst_cache_get");
	if (cache->dst) {
		cache->dst->references++;
		*source = cache->source;
	}
	return cache->dst;
}

struct rtable *dst_cache_get_ip4(struct dst_cache *cache, __be32 *source)
{
	struct in6_addr address;
	struct dst_entry *dst = dst_cache_get_ip6(cache, &address);

	if (dst)
		*source = address.s6_addr32[0];
	return (struct rtable *)dst;
}

void dst_cache_set_ip6(struct dst_cache *cache, struct dst_entry *dst, const struct in6_addr *source)
{
	mock_must_be_atomic("dst_cache_set");
	dst_cache_reset(cache);
	dst->references++;
	cache->dst = dst;
	cache->source = *source;
}

void dst_cache_set_ip4(struct dst_cache *cache, struct dst_entry *dst, __be32 source)
{
	dst_cache_set_ip6(cache, dst, &(struct in6_addr){ .s6_addr32 = { source } });
}

/* UDP. */

struct udp_pair {
	struct socket socket;
	struct inet_sock inet;
};

static void free_udp(struct sock *sk)
{
	if (sk->sk_wmem_alloc.refs != 1)
		mock_complain("a UDP socket is freed with packets of its own");
	mock_free(container_of(inet_sk(sk), struct udp_pair, inet), MOCK_OBJECT);
}

static void map_v4(u8 *to, const void *v4)
{
	memset(to, 0, 10);
	to[10] = to[11] = 0xff;
	memcpy(to + 12, v4, 4);
}

static bool is_any(const struct inet_sock *udp)
{
	static const u8 zero[16];

	return !memcmp(udp->address + 12, zero, 4) && (udp->family == AF_INET || !memcmp(udp->address, zero, 16));
}

/* Like bind(2): what is in use, what is not ours, what needs to name its interface. */
static int check_bind(const struct inet_sock *udp, int interface)
{
	const struct inet_sock *other;

	if (udp->family == AF_INET && udp->address[12] == 192)
		return -EADDRNOTAVAIL;
	if (udp->family == AF_INET6 && udp->address[0] == 0xfe && udp->address[1] == 0x80 && !interface)
		return -EINVAL;
	for (other = n.udp; other; other = other->next)
		if (other != udp && other->family == udp->family && other->inet_sport == udp->inet_sport &&
		    !(other->reuses && udp->reuses) &&
		    (is_any(other) || is_any(udp) || !memcmp(other->address, udp->address, 16)))
			return -EADDRINUSE;
	return 0;
}

static int join_group(struct inet_sock *udp, const struct group_req *request, unsigned int length)
{
	mock_might_sleep("joining a group");
	if (length != sizeof(*request))
		return -EINVAL;
	if (request->gr_interface != MOCK_INTERFACE)
		return -ENODEV;
	if (mock_fails("joining a group"))
		return -ENOBUFS;
	udp->in_group = true;
	return 0;
}

static int set_udp_option(struct socket *sock, int level, int name, sockptr_t value, unsigned int length)
{
	struct inet_sock *udp = inet_sk(sock->sk);
	bool is_v4 = udp->family == AF_INET;

	if (level != (is_v4 ? SOL_IP : SOL_IPV6))
		return -ENOPROTOOPT;
	if (name == MCAST_JOIN_GROUP)
		return join_group(udp, value.user, length);
	if (name != (is_v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER) || length != sizeof(int))
		return -ENOPROTOOPT;
	if (mock_fails("how long packets may be"))
		return -ENOMEM;
	udp->ignores_icmp = *(const int *)value.user == (is_v4 ? IP_PMTUDISC_INTERFACE : IPV6_PMTUDISC_INTERFACE);
	return 0;
}

static const struct proto_ops udp_ops = { .setsockopt = set_udp_option };

static struct udp_pair *new_udp(const char *what, struct net *net, int family)
{
	struct udp_pair *pair;

	mock_might_sleep(what);
	pair = mock_alloc(what, sizeof(*pair), GFP_KERNEL | __GFP_ZERO, MOCK_OBJECT);
	if (!pair)
		return NULL;
	init_sock(&pair->inet.sk, net);
	pair->inet.family = family;
	pair->socket.sk = &pair->inet.sk;
	pair->socket.ops = &udp_ops;
	return pair;
}

int udp_sock_create(struct net *net, struct udp_port_cfg *port, struct socket **sock)
{
	struct udp_pair *pair = new_udp("udp_sock_create", net, port->family);
	struct inet_sock *udp;
	int error;

	if (!pair)
		return -ENOMEM;
	udp = &pair->inet;
	if (port->family == AF_INET)
		map_v4(udp->address, &port->local_ip);
	else
		memcpy(udp->address, &port->local_ip6, 16);
	udp->inet_sport = port->local_udp_port ?: htons((u16)(40000 + n.next_port++ % 20000));
	udp->device = port->bind_ifindex;
	error = check_bind(udp, port->bind_ifindex);
	if (error) {
		mock_free(pair, MOCK_OBJECT);
		return error;
	}
	udp->next = n.udp;
	n.udp = udp;
	*sock = &pair->socket;
	return 0;
}

int sock_bindtoindex(struct sock *sk, int device, bool lock)
{
	mock_might_sleep("sock_bindtoindex");
	inet_sk(sk)->device = device;
	return 0;
}

/* Groups: a socket is created, bound and joined in steps. */

int sock_create_kern(struct net *net, int family, int type, int protocol, struct socket **sock)
{
	struct udp_pair *pair = new_udp("sock_create_kern", net, family);

	if (!pair)
		return -ENOMEM;
	pair->inet.next = n.udp;
	n.udp = &pair->inet;
	*sock = &pair->socket;
	return 0;
}

void sock_set_reuseaddr(struct sock *sk) { inet_sk(sk)->reuses = true; }
void udp_set_no_check6_rx(struct sock *sk, bool accept) { inet_sk(sk)->accepts_no_checksum = accept; }
bool inet_port_requires_bind_service(struct net *net, unsigned short port) { return port < 1024; }

int kernel_bind(struct socket *sock, struct sockaddr *address, int length)
{
	struct inet_sock *udp = inet_sk(sock->sk);
	const struct sockaddr_in6 *in6 = (const struct sockaddr_in6 *)address;
	const struct sockaddr_in *in = (const struct sockaddr_in *)address;

	mock_might_sleep("kernel_bind");
	udp->inet_sport = in->sin_port;
	if (udp->family == AF_INET)
		map_v4(udp->address, &in->sin_addr);
	else
		memcpy(udp->address, &in6->sin6_addr, 16);
	return mock_fails("kernel_bind") ? -EADDRINUSE : check_bind(udp, udp->family == AF_INET ? 0 : (int)in6->sin6_scope_id);
}

void setup_udp_tunnel_sock(struct net *net, struct socket *sock, struct udp_tunnel_sock_cfg *tunnel)
{
	sock->sk->sk_user_data = tunnel->sk_user_data;
	inet_sk(sock->sk)->encap_rcv = tunnel->encap_rcv;
}

int kernel_sock_shutdown(struct socket *sock, int how) { return -ENOTCONN; }

void sock_release(struct socket *sock)
{
	struct inet_sock **at;

	mock_might_sleep("sock_release");
	if (sock->sk->sk_user_data)
		mock_complain("a UDP socket is closed that still hands on its packets");
	if (sock->sk->sk_socket)	/* as sk_common_release() since 6.10 */
		sock->sk->sk_socket->sk = NULL;
	for (at = &n.udp; *at != inet_sk(sock->sk); at = &(*at)->next)
		;
	*at = (*at)->next;
	sock_put(sock->sk);
}

static void transmit(struct dst_entry *dst, struct sk_buff *skb, struct mock_packet *packet, __be16 from, __be16 to)
{
	mock_must_be_atomic("handing a packet to IP");
	mock_must_not_hold_spinlocks("handing a packet to IP");
	mock_count_sent();
	packet->from_port = ntohs(from);
	packet->to_port = ntohs(to);
	packet->data = skb->data;
	packet->bytes = skb->len;
	if (!inet_sk(skb->sk)->ignores_icmp)
		mock_complain("ICMP may lower the MTU");
	if (packet->bytes + sizeof(struct udphdr) + sizeof(struct iphdr) > n.mtu)
		mock_complain("a packet is longer than the path allows");
	mock_the_world->transmit(packet);
	dst_release(dst);
	if (n.holds) {
		skb->next = n.held;
		n.held = skb;
	} else {
		kfree_skb(skb);
	}
}

void mock_hold_packets(bool hold)
{
	struct sk_buff *skb;

	n.holds = hold;
	while (!hold && (skb = n.held)) {
		n.held = skb->next;
		kfree_skb(skb);
	}
}

void udp_tunnel_xmit_skb(struct rtable *route, struct sock *sk, struct sk_buff *skb, __be32 source, __be32 target,
			 __u8 tos, __u8 ttl, __be16 df, __be16 source_port, __be16 target_port, bool xnet, bool nocheck)
{
	struct mock_packet packet = {};

	map_v4(packet.from, &source);
	map_v4(packet.to, &target);
	transmit(&route->dst, skb, &packet, source_port, target_port);
}

int udp_tunnel6_xmit_skb(struct dst_entry *dst, struct sock *sk, struct sk_buff *skb, void *dev,
			 const struct in6_addr *source, const struct in6_addr *target, __u8 tos, __u8 ttl, __be32 label,
			 __be16 source_port, __be16 target_port, bool nocheck)
{
	struct mock_packet packet = {};

	memcpy(packet.from, source, 16);
	memcpy(packet.to, target, 16);
	transmit(dst, skb, &packet, source_port, target_port);
	return 0;
}

/* Who has been told to ignore a socket may still be at it until a grace period of RCU is over. */
void mock_assign_sk_user_data(struct sock *sk, void *data)
{
	if (!data)
		sk->ignored_until = n.grace_periods + 1;
	else if (n.grace_periods < sk->ignored_until)
		mock_complain("packets are handed on anew while earlier ones may still be handled");
	sk->sk_user_data = data;
}

void synchronize_net(void)
{
	mock_wait_for_readers("synchronize_net");
	n.grace_periods++;
}

unsigned int mock_grace_periods(void) { return n.grace_periods; }

/* Another processor is faster than the one that receives. */
void *mock_sk_user_data(struct sock *sk)
{
	void *data = sk->sk_user_data;
	void (*racer)(void) = n.racer;

	n.racer = NULL;
	if (racer) {
		mock_enter(false);
		racer();
		mock_leave();
	}
	return data;
}

static const struct inet_sock *udp_of(const struct socket *sock)
{
	const struct inet_sock *udp;

	for (udp = n.udp; udp; udp = udp->next)
		if (udp->sk.sk_socket == sock)
			return udp;
	return NULL;
}

unsigned int mock_count_owned(const struct socket *sock)
{
	const struct inet_sock *udp;
	unsigned int count = 0;

	for (udp = n.udp; udp; udp = udp->next)
		count += udp->sk.sk_socket == sock;
	return count;
}

int mock_device_of(const struct socket *sock) { return udp_of(sock)->device; }

void mock_set_racer(void (*function)(void)) { n.racer = function; }

static bool is_mapped(const u8 *address) { return ipv6_addr_v4mapped((const struct in6_addr *)address); }

static bool is_group(const u8 *address)
{
	return is_mapped(address) ? address[12] >> 4 == 14 : address[0] == 0xff;
}

static bool is_in_group(const struct inet_sock *udp, const u8 *address)
{
	return udp->in_group && !memcmp(udp->address, address, 16) && (udp->family == AF_INET || udp->accepts_no_checksum);
}

/* The next that listens, from @udp on. */
static struct inet_sock *listener(struct inet_sock *udp, const struct mock_packet *packet)
{
	for (; udp; udp = udp->next)
		if (udp->encap_rcv && udp->inet_sport == htons(packet->to_port) &&
		    (udp->family == AF_INET) == is_mapped(packet->to) &&
		    (is_group(packet->to) ? is_in_group(udp, packet->to) : is_any(udp) || !memcmp(udp->address, packet->to, 16)))
			return udp;
	return NULL;
}

static struct sk_buff *datagram(const struct mock_packet *packet)
{
	struct udphdr header = { .source = htons(packet->from_port), .dest = htons(packet->to_port),
				 .len = htons((u16)(sizeof(header) + packet->bytes)) };
	struct iphdr v4 = { .version = 4, .ihl = 5 };
	struct ipv6hdr v6 = { .version = 6 };
	bool is_v4 = is_mapped(packet->from);
	size_t ip = is_v4 ? sizeof(v4) : sizeof(v6), here = n.nonlinear ? packet->bytes / 4 : packet->bytes;
	struct sk_buff *skb = new_skb(ip + sizeof(header) + here);

	memcpy(&v4.saddr, packet->from + 12, 4);
	memcpy(&v6.saddr, packet->from, 16);
	skb->network_header = skb_put_data(skb, is_v4 ? (void *)&v4 : &v6, ip);
	skb->data += ip;
	skb->len = 0;
	skb->interface = packet->interface;
	skb->slave = packet->slave;
	skb->protocol = is_v4 ? htons(ETH_P_IP) : htons(ETH_P_IPV6);
	skb_put_data(skb, &header, sizeof(header));
	skb_put_data(skb, packet->data, here);
	if (n.nonlinear) {
		skb->fragment = malloc(packet->bytes - here ?: 1);
		memcpy(skb->fragment, (const u8 *)packet->data + here, packet->bytes - here);
		skb->len += packet->bytes - here;
	}
	return skb;
}

static void deliver_to(struct inet_sock *udp, const struct mock_packet *packet)
{
	struct sk_buff *skb = datagram(packet);

	mock_enter(true);
	if (udp->encap_rcv(&udp->sk, skb)) {
		mock_complain("a datagram was not taken");
		kfree_skb(skb);
	}
	mock_leave();
}

bool mock_deliver(const struct mock_packet *packet)
{
	struct inet_sock *udp = listener(n.udp, packet);

	if (!udp)
		return false;
	deliver_to(udp, packet);
	while (is_group(packet->to) && (udp = listener(udp->next, packet)))
		deliver_to(udp, packet);
	return true;
}

/* Namespaces. */

static int enter_net(struct pernet_operations *operations, struct net *net)
{
	int error;

	net->generic = mock_alloc("pernet", operations->size, GFP_KERNEL | __GFP_ZERO, MOCK_OBJECT);
	if (!net->generic)
		return -ENOMEM;
	error = operations->init(net);
	if (error) {
		mock_free(net->generic, MOCK_OBJECT);
		net->generic = NULL;
	}
	return error;
}

static void leave_nets(struct pernet_operations *operations)
{
	struct net *net;

	for (net = mock_nets; net < mock_nets + INAGG_MOCK_NETS; net++) {
		if (!net->generic)
			continue;
		if (net->sockets)
			mock_complain("a namespace is left with %d sockets in it", net->sockets);
		operations->exit(net);
		mock_free(net->generic, MOCK_OBJECT);
		net->generic = NULL;
	}
}

int register_pernet_subsys(struct pernet_operations *operations)
{
	int i, error = 0;

	for (i = 0; i < INAGG_MOCK_NETS && !error; i++)
		error = enter_net(operations, &mock_nets[i]);
	if (error)
		leave_nets(operations);
	else
		n.pernet = operations;
	return error;
}

void unregister_pernet_subsys(struct pernet_operations *operations)
{
	leave_nets(operations);
	n.pernet = NULL;
}

/* /proc. */

/* The conversions that the module uses. */
void seq_printf(struct seq_file *seq, const char *format, ...)
{
	char *at = n.proc + strlen(n.proc), *end = n.proc + sizeof(n.proc);
	const struct in6_addr *address;
	va_list arguments;
	int longs, i;

	va_start(arguments, format);
	for (; *format && at + 64 < end; format++) {
		if (*format != '%') {
			*at++ = *format;
			*at = 0;
			continue;
		}
		for (longs = 0; *++format == 'l'; longs++)
			;
		switch (*format) {
		case 'd':
			at += sprintf(at, "%ld", longs ? va_arg(arguments, long) : va_arg(arguments, int));
			break;
		case 'u':
			at += sprintf(at, "%lu", longs ? va_arg(arguments, unsigned long) : va_arg(arguments, unsigned int));
			break;
		case 's':
			at += snprintf(at, end - at, "%s", va_arg(arguments, const char *));
			break;
		case 'p':	/* %pI6c, without the shortening */
			format += 3;
			address = va_arg(arguments, const struct in6_addr *);
			for (i = 0; i < 8; i++)
				at += sprintf(at, "%s%x", i ? ":" : "", ntohs(address->s6_addr16[i]));
			break;
		default:
			mock_complain("seq_printf: the mock does not know %%%c", *format);
		}
	}
	va_end(arguments);
}

void *proc_create_net_single(const char *name, int mode, struct proc_dir_entry *parent,
			     int (*show)(struct seq_file *seq, void *unused), void *data)
{
	int net = (int)(uintptr_t)parent;

	if (mock_fails("proc_create_net_single"))
		return NULL;
	n.show[net] = show;
	return n.show;
}

void remove_proc_entry(const char *name, struct proc_dir_entry *parent) { n.show[(uintptr_t)parent] = NULL; }

const char *mock_read_proc(int net)
{
	struct seq_file seq = { .net = &mock_nets[net] };

	n.proc[0] = 0;
	if (n.show[net])
		n.show[net](&seq, NULL);
	return n.proc;
}

/* sysctl. */

int proc_doulongvec_minmax(const struct ctl_table *entry, long value)
{
	*(unsigned long *)entry->data = value;
	return 0;
}

int proc_dointvec_minmax(const struct ctl_table *entry, long value)
{
	const int *least = entry->extra1, *most = entry->extra2;

	if (value != (int)value || (least && value < *least) || (most && value > *most))
		return -EINVAL;
	*(int *)entry->data = value;
	return 0;
}

struct ctl_table_header *register_net_sysctl_sz(struct net *net, const char *path, struct ctl_table *table, size_t entries)
{
	struct ctl_table_header *header =
		mock_alloc("register_net_sysctl_sz", sizeof(*header), GFP_KERNEL, MOCK_OBJECT);

	if (!header)
		return NULL;
	*header = (struct ctl_table_header){ .net = net, .table = table, .entries = entries };
	return n.sysctls[net - mock_nets] = header;
}

void unregister_net_sysctl_table(struct ctl_table_header *header)
{
	n.sysctls[header->net - mock_nets] = NULL;
	mock_free(header, MOCK_OBJECT);
}

int mock_write_sysctl(int net, const char *name, long value)
{
	const struct ctl_table_header *header = n.sysctls[net];
	const struct ctl_table *entry;

	for (entry = header->table; entry < header->table + header->entries; entry++)
		if (!strcmp(entry->procname, name))
			return entry->mode & 0200 ? entry->proc_handler(entry, value) : -EACCES;
	return -ENOENT;
}

/* The module, and what is left of it. */

int mock_load(void)
{
	int i;

	for (i = 0; i < INAGG_MOCK_NETS; i++)
		mock_nets[i].proc_net = (void *)(uintptr_t)i;
	return mock_module_init();
}

void mock_unload(void)
{
	if (mock_module.references) {
		mock_complain("the module is still referred to: %d", mock_module.references);
		return;
	}
	mock_module_exit();
	if (n.proto || n.pernet || n.family)
		mock_complain("the module leaves a protocol, pernet operations or a family registered");
}

void mock_check_network(void)
{
	if (n.skbs)
		mock_complain("%ld packets are left", n.skbs);
	if (n.udp)
		mock_complain("a UDP socket is left");
	if (n.route.dst.references)
		mock_complain("a route is left with %d references", n.route.dst.references);
}

/* The family's own sockets. */

struct socket *mock_socket(int net, int type, int protocol, int *error)
{
	struct socket *sock = mock_alloc("socket", sizeof(*sock), GFP_KERNEL | __GFP_ZERO, MOCK_OBJECT);

	*error = -ENOMEM;
	if (!sock)
		return NULL;
	sock->type = type;
	sock->state = SS_UNCONNECTED;
	sock->net = &mock_nets[net];
	n.family->owner->references++;
	*error = n.family->create(sock->net, sock, protocol, 0);
	if (*error) {
		if (sock->sk)	/* as Linux 6.13 does */
			mock_complain("socket() failed and left sock->sk behind");
		mock_module.references--;
		mock_free(sock, MOCK_OBJECT);
		return NULL;
	}
	return sock;
}

int mock_close(struct socket *sock)
{
	int error = sock->ops->release(sock);

	if (sock->sk)
		mock_complain("close() left sock->sk behind");
	mock_module.references--;
	mock_free(sock, MOCK_OBJECT);
	return error;
}
