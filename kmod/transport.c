// SPDX-License-Identifier: GPL-2.0-only
/*
 * Packets of one socket over UDP.  A kernel UDP socket owns the port; what comes for it is handled where it
 * arrives, in softirq (the way of the tunnels), and what goes is handed to IP without a copy through it.
 */
#include <net/ip6_route.h>
#include <net/route.h>
#include <net/udp.h>
#include <net/udp_tunnel.h>

#include "af_inagg.h"
#include "trace.h"

#define TTL		64
/* With this, in a page fragment, a veth hands a packet to its peer's XDP program without a copy. */
#define HEADROOM	(XDP_PACKET_HEADROOM + MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(struct udphdr))
#define PACKET_OVERHEAD	1024	/* of an sk_buff, its shared info and rounding */

static bool is_ipv4(const struct inagg_link *link)
{
	return link->family == AF_INET;
}

static u32 headers_of(const struct inagg_link *link)
{
	return (is_ipv4(link) ? sizeof(struct iphdr) : sizeof(struct ipv6hdr)) + sizeof(struct udphdr);
}

/* Sending. */

/* Routes depend on the mark and the user of the socket: those in the cache may be of others that it had. */
static u32 current_mark(struct inagg_sock *isk)
{
	struct inagg_link *link = &isk->link;
	kuid_t uid = READ_ONCE(isk->sk.sk_uid);
	u32 mark = READ_ONCE(isk->sk.sk_mark);

	if (mark != READ_ONCE(link->mark) || !uid_eq(uid, READ_ONCE(link->uid))) {
		WRITE_ONCE(link->mark, mark);
		WRITE_ONCE(link->uid, uid);
		dst_cache_reset(&link->dst);
	}
	return mark;
}

static struct dst_entry *route4(struct inagg_sock *isk, struct in_addr *source)
{
	struct inagg_link *link = &isk->link;
	struct flowi4 flow = {
		.daddr = link->peer.v4.s_addr,
		.saddr = link->local.v4.s_addr,
		.flowi4_oif = isk->sk.sk_bound_dev_if,
		.flowi4_uid = READ_ONCE(isk->sk.sk_uid),
		.flowi4_mark = current_mark(isk),
		.flowi4_proto = IPPROTO_UDP,
		.fl4_sport = link->port,
		.fl4_dport = link->peer_port,
	};
	struct rtable *route = dst_cache_get_ip4(&link->dst, &source->s_addr);

	if (route)
		return &route->dst;
	route = ip_route_output_key(sock_net(&isk->sk), &flow);
	if (IS_ERR(route))
		return ERR_CAST(route);
	if (route->rt_flags & RTCF_BROADCAST && !sock_flag(&isk->sk, SOCK_BROADCAST)) {
		dst_release(&route->dst);
		return ERR_PTR(-EACCES);
	}
	source->s_addr = flow.saddr;
	dst_cache_set_ip4(&link->dst, &route->dst, flow.saddr);
	return &route->dst;
}

#if IS_ENABLED(CONFIG_IPV6)
static struct dst_entry *route6(struct inagg_sock *isk, const struct sock *udp, struct in6_addr *source)
{
	struct inagg_link *link = &isk->link;
	struct flowi6 flow = {
		.daddr = link->peer.v6,
		.saddr = link->local.v6,
		.flowi6_oif = link->ifindex ?: isk->sk.sk_bound_dev_if,
		.flowi6_uid = READ_ONCE(isk->sk.sk_uid),
		.flowi6_mark = current_mark(isk),
		.flowi6_proto = IPPROTO_UDP,
		.fl6_sport = link->port,
		.fl6_dport = link->peer_port,
	};
	struct dst_entry *dst = dst_cache_get_ip6(&link->dst, source);

	if (dst)
		return dst;
	dst = ip6_dst_lookup_flow(sock_net(&isk->sk), udp, &flow, NULL);
	if (IS_ERR(dst))
		return dst;
	*source = flow.saddr;
	dst_cache_set_ip6(&link->dst, dst, &flow.saddr);
	return dst;
}
#else
static struct dst_entry *route6(struct inagg_sock *isk, const struct sock *udp, struct in6_addr *source)
{
	return ERR_PTR(-EAFNOSUPPORT);
}
#endif

/* The way to the switch, from process context. */
static struct dst_entry *path(struct inagg_sock *isk)
{
	struct in6_addr source;
	struct dst_entry *dst;

	local_bh_disable();
	dst = is_ipv4(&isk->link) ? route4(isk, (struct in_addr *)&source) : route6(isk, isk->link.udp->sk, &source);
	local_bh_enable();
	return dst;
}

/**
 * inagg_path_payload() - UDP payload that the interface to the switch allows
 * @isk: the socket, its link open
 * @error: why there is no way
 *
 * Return: bytes; 0 and *@error without a route.
 */
u32 inagg_path_payload(struct inagg_sock *isk, int *error)
{
	struct dst_entry *dst = path(isk);
	u32 mtu;

	if (IS_ERR(dst)) {
		*error = PTR_ERR(dst);
		return 0;
	}
	rcu_read_lock();
	mtu = READ_ONCE(READ_ONCE(dst->dev)->mtu);	/* that of the route heeds ICMP, see ignore_icmp() */
	rcu_read_unlock();
	dst_release(dst);
	return mtu > headers_of(&isk->link) ? mtu - headers_of(&isk->link) : 0;
}

/** inagg_path_interface() - index of the interface that leads to the switch, or an error */
int inagg_path_interface(struct inagg_sock *isk)
{
	struct dst_entry *dst = path(isk);
	int index;

	if (IS_ERR(dst))
		return PTR_ERR(dst);
	rcu_read_lock();	/* a device that goes takes itself out of its routes */
	index = READ_ONCE(dst->dev)->ifindex;
	rcu_read_unlock();
	dst_release(dst);
	return index;
}

/** inagg_wire_bytes() - most memory of packets below a socket in @job: each block of its windows twice */
u64 inagg_wire_bytes(const struct inagg_job_config *job)
{
	u64 packet = PACKET_OVERHEAD + HEADROOM + sizeof(struct inagg_hdr) + job->elements * 4;

	return 2 * packet * (job->slots + job->control_slots);
}

/**
 * inagg_packet_alloc() - an empty packet
 * @isk: the socket
 * @payload: bytes of room behind the inagg header
 *
 * Return: NULL without memory, or while too much is queued below; as if the network had dropped it.
 */
struct sk_buff *inagg_packet_alloc(struct inagg_sock *isk, u32 payload)
{
	struct sock *udp = isk->link.udp->sk;
	struct sk_buff *skb;

	if (refcount_read(&udp->sk_wmem_alloc) > isk->wire_limit)
		return NULL;
	skb = __netdev_alloc_skb(NULL, HEADROOM + sizeof(struct inagg_hdr) + payload, GFP_ATOMIC | __GFP_NOWARN);
	if (!skb)
		return NULL;
	skb_reserve(skb, HEADROOM);
	skb_set_owner_w(skb, udp);
	skb->mark = READ_ONCE(isk->sk.sk_mark);
	skb->priority = READ_ONCE(isk->sk.sk_priority);
	return skb;
}

void inagg_packet_queue(struct inagg_sock *isk, struct sk_buff *skb, struct inagg_burst *burst)
{
	__skb_queue_tail(&burst->skbs, skb);
}

static void transmit4(struct inagg_sock *isk, struct sk_buff *skb)
{
	struct inagg_link *link = &isk->link;
	struct in_addr source;
	struct dst_entry *dst = route4(isk, &source);

	if (IS_ERR(dst)) {
		kfree_skb(skb);
		return;
	}
	skb->protocol = htons(ETH_P_IP);
	udp_tunnel_xmit_skb((struct rtable *)dst, skb->sk, skb, source.s_addr, link->peer.v4.s_addr, INAGG_TOS, TTL,
			    htons(IP_DF), link->port, link->peer_port, false, true INAGG_IPCB_FLAGS);
}

#if IS_ENABLED(CONFIG_IPV6)
static void transmit6(struct inagg_sock *isk, struct sk_buff *skb)
{
	struct inagg_link *link = &isk->link;
	struct in6_addr source;
	struct dst_entry *dst = route6(isk, skb->sk, &source);

	if (IS_ERR(dst)) {
		kfree_skb(skb);
		return;
	}
	skb->protocol = htons(ETH_P_IPV6);
	udp_tunnel6_xmit_skb(dst, skb->sk, skb, NULL, &source, &link->peer.v6, INAGG_TOS, TTL, 0, link->port,
			     link->peer_port, true INAGG_IPCB_FLAGS);
}
#else
static void transmit6(struct inagg_sock *isk, struct sk_buff *skb)
{
	kfree_skb(skb);
}
#endif

/** inagg_transmit() - hand the packets of @burst to IP; nothing is locked, so the link may be closed meanwhile */
void inagg_transmit(struct inagg_sock *isk, struct inagg_burst *burst)
{
	struct sk_buff *skb;

	local_bh_disable();
	while ((skb = __skb_dequeue(&burst->skbs))) {
		if (is_ipv4(&isk->link))
			transmit4(isk, skb);
		else
			transmit6(isk, skb);
	}
	local_bh_enable();
}

static void send_join(struct inagg_sock *isk, u8 type, u64 nonce, u8 flags, struct inagg_burst *burst)
{
	struct sk_buff *skb = inagg_packet_alloc(isk, sizeof(struct inagg_join));
	struct inagg_join *join;
	struct inagg_hdr *h;

	if (!skb)
		return;
	h = skb_put(skb, sizeof(*h));
	join = skb_put(skb, sizeof(*join));
	inagg_hdr_start(h, &isk->job, type);
	inagg_join_fill(join, &isk->job, nonce, ntohs(isk->link.port));
	join->flags |= flags;
	if (inagg_mac_key_is_set(&isk->key)) {
		inagg_hdr_set_challenge(h, isk->member.challenge);
		inagg_hdr_prove(h, join, &isk->key);
	}
	/* always with its checksum: a damaged JOIN would name another port or size */
	inagg_hdr_seal_checked(h, inagg_body_checksum(join));
	inagg_packet_queue(isk, skb, burst);
}

/**
 * inagg_send_membership() - queue a JOIN or LEAVE
 * @isk: the socket, locked
 * @type: INAGG_JOIN or INAGG_LEAVE
 * @burst: takes the packet
 */
void inagg_send_membership(struct inagg_sock *isk, u8 type, struct inagg_burst *burst)
{
	send_join(isk, type, isk->member.nonce, 0, burst);
}

/** inagg_send_renewal() - queue the JOIN that asks for the next generation; @isk is locked */
void inagg_send_renewal(struct inagg_sock *isk, struct inagg_burst *burst)
{
	send_join(isk, INAGG_JOIN, isk->member.next_nonce, INAGG_JOIN_RENEW, burst);
}

/* Receiving. */

/* What a refused join is called elsewhere; the reason itself is in the error queue. */
static int errno_of(u32 reason)
{
	switch (reason) {
	case INAGG_R_TAKEN:
		return EADDRINUSE;
	case INAGG_R_MTU:
		return EMSGSIZE;
	case INAGG_R_FULL:
		return ENOBUFS;
	case INAGG_R_ALGORITHM:
		return EPROTONOSUPPORT;
	case INAGG_R_SIZE:
	case INAGG_R_RANK:
		return EINVAL;
	case INAGG_R_SLOT:
		return EPROTO;
	default:
		return ECONNREFUSED;
	}
}

/* Without a key, whoever has the switch's address is the switch.  One that does not know ours is not, or has to be told. */
static bool is_proven(struct inagg_sock *isk, const struct inagg_hdr *h, const void *body)
{
	if (!inagg_mac_key_is_set(&isk->key) || inagg_hdr_is_proven(h, body, &isk->key))
		return true;
	if (isk->sk.sk_state == TCP_SYN_SENT)
		isk->not_yet = INAGG_R_KEY;
	return false;
}

/* An answer about membership is about the JOIN that its nonce names; a REFUSED with none is about the job that we are in. */
static bool names_us(const struct inagg_sock *isk, const struct inagg_hdr *h, u64 nonce)
{
	if (inagg_membership_is(&isk->member, nonce))
		return true;
	return !nonce && inagg_hdr_type(h) == INAGG_REFUSED && isk->sk.sk_state == TCP_ESTABLISHED;
}

static bool is_about_us(struct inagg_sock *isk, const struct inagg_hdr *h, const void *body, u32 bytes)
{
	const struct inagg_config *config = body;

	if (bytes != sizeof(*config))
		return false;
	if (!inagg_packet_intact(h, inagg_body_checksum(body)))
		return false;
	return names_us(isk, h, inagg_swap64(config->nonce)) && is_proven(isk, h, body);
}

/** inagg_established() - the switch has accepted this rank of @job; @isk is locked */
void inagg_established(struct inagg_sock *isk, const struct inagg_job_config *job)
{
	isk->job = *job;
	isk->boots.latest = job->boot;
	isk->joined = true;
	smp_store_release(&isk->sk.sk_state, TCP_ESTABLISHED);	/* who sees this sees the job */
	inagg_timer_arm(isk, inagg_membership_due(&isk->member));
	isk->sk.sk_state_change(&isk->sk);
	sk_wake_async(&isk->sk, SOCK_WAKE_IO, POLL_OUT);
}

static void on_accepted(struct inagg_sock *isk, const struct inagg_hdr *h, const struct inagg_config *config, u64 now)
{
	struct inagg_job_config job = isk->job;
	int reason = -inagg_config_accept(&job, h, config);

	trace_inagg_join(&job, reason);
	if (reason) {
		inagg_fail(isk, errno_of(reason), reason);
		return;
	}
	inagg_membership_begin(&isk->member, job.size, h, config, now);
	if (config->group_port)
		inagg_group_join(isk, &job, config);
	else
		inagg_established(isk, &job);
}

/* The answer to a repeated JOIN, or to that for the next generation. */
static void on_confirmed(struct inagg_sock *isk, const struct inagg_hdr *h, const struct inagg_config *config)
{
	struct inagg_job_config job = isk->job;

	if (inagg_membership_config(&isk->member, &job, h, config) == INAGG_RENEWED)
		inagg_renewal_begin(isk, &job);
}

/* The JOIN is repeated with it, at once. */
static void on_challenge(struct inagg_sock *isk, u64 challenge, struct inagg_burst *burst)
{
	if (isk->member.challenge == challenge)
		return;
	isk->member.challenge = challenge;
	inagg_send_membership(isk, INAGG_JOIN, burst);
}

static void on_join_refused(struct inagg_sock *isk, const struct inagg_hdr *h, const struct inagg_refusal *r,
			    struct inagg_burst *burst)
{
	u32 reason = inagg_swap32(h->slot);

	trace_inagg_join(&isk->job, reason);
	if (reason == INAGG_R_CHALLENGE)
		on_challenge(isk, inagg_hdr_challenge(h), burst);
	else if (inagg_refusal_may_pass(reason))
		isk->not_yet = reason;	/* the join is repeated */
	else
		inagg_fail_refused(isk, errno_of(reason), h, r);
}

static void on_member_refused(struct inagg_sock *isk, const struct inagg_hdr *h, const struct inagg_refusal *r, u64 now)
{
	switch (inagg_membership_refused(&isk->member, &isk->job, h, r)) {
	case INAGG_CHALLENGED:
		inagg_timer_arm(isk, now);
		break;
	case INAGG_ENDED:
		trace_inagg_join(&isk->job, inagg_swap32(h->slot));
		inagg_fail_refused(isk, ECONNRESET, h, r);
		break;
	default:	/* a doubt, perhaps */
		inagg_timer_arm(isk, inagg_membership_due(&isk->member));
	}
}

/* An answer to what we have said of our membership, or news of it. */
static void on_membership(struct inagg_sock *isk, const struct inagg_hdr *h, const void *body, struct inagg_burst *burst)
{
	bool refused = inagg_hdr_type(h) == INAGG_REFUSED;

	if (isk->sk.sk_state == TCP_SYN_SENT && refused)
		on_join_refused(isk, h, body, burst);
	else if (isk->sk.sk_state == TCP_SYN_SENT)
		on_accepted(isk, h, body, burst->now);
	else if (isk->sk.sk_state == TCP_ESTABLISHED && refused)
		on_member_refused(isk, h, body, burst->now);
	else if (isk->sk.sk_state == TCP_ESTABLISHED)
		on_confirmed(isk, h, body);
}

static void handle(struct inagg_sock *isk, const struct inagg_hdr *h, const void *body, u32 bytes,
		   struct inagg_burst *burst)
{
	int reason = -inagg_answer_admits(&isk->job, h);
	u8 type = inagg_hdr_type(h);

	if (reason) {
		inagg_count_drop(isk, reason);
	} else if (type == INAGG_RESULT || type == INAGG_WAIT) {
		if (isk->sk.sk_state == TCP_ESTABLISHED)
			inagg_receive_block(isk, h, body, bytes, burst);
	} else if ((type != INAGG_CONFIG && type != INAGG_REFUSED) || !is_about_us(isk, h, body, bytes)) {
		inagg_count_drop(isk, INAGG_R_TYPE);
	} else {
		on_membership(isk, h, body, burst);
	}
}

/* Only the switch may speak; another link may have a host of the same link-local address. */
static bool is_from_switch(const struct inagg_link *link, const struct sk_buff *skb)
{
	const struct udphdr *udp = (const struct udphdr *)skb->data;

	if (udp->source != link->peer_port)
		return false;
	if (is_ipv4(link))
		return skb->protocol == htons(ETH_P_IP) && ip_hdr(skb)->saddr == link->peer.v4.s_addr;
	if (skb->protocol != htons(ETH_P_IPV6) || !ipv6_addr_equal(&ipv6_hdr(skb)->saddr, &link->peer.v6))
		return false;
	return !link->ifindex || !(ipv6_addr_type(&link->peer.v6) & IPV6_ADDR_LINKLOCAL) ||
	       inet6_iif(skb) == link->ifindex || inet6_sdif(skb) == link->ifindex;	/* itself or as part of a VRF */
}

/* A datagram for our port, in softirq: always taken. */
static int receive(struct sock *udp, struct sk_buff *skb)
{
	struct inagg_sock *isk = rcu_dereference_sk_user_data(udp);
	struct inagg_burst burst;
	struct inagg_hdr header;
	const u8 *payload;
	bool waits;

	if (!isk || skb_linearize(skb) || skb->len < sizeof(struct udphdr) + sizeof(header))
		goto out;
	payload = skb->data + sizeof(struct udphdr);
	memcpy(&header, payload, sizeof(header));
	spin_lock(&isk->lock);
	inagg_burst_start(&burst);
	if (is_from_switch(&isk->link, skb))
		handle(isk, &header, payload + sizeof(header), skb->len - sizeof(struct udphdr) - sizeof(header), &burst);
	else
		inagg_count_drop(isk, INAGG_R_ADDRESS);
	inagg_timer_follow(isk);
	waits = inagg_waits(isk);
	spin_unlock(&isk->lock);
	if (waits)
		inagg_transmit_and_pause(isk, &burst, 0);
	else
		inagg_transmit(isk, &burst);
out:
	consume_skb(skb);
	return 0;
}

/* Opening and closing. */

/** inagg_udp_take_over() - what comes to a bound UDP socket is nobody's until inagg_link_listen() */
void inagg_udp_take_over(struct inagg_sock *isk, struct socket *udp)
{
	struct udp_tunnel_sock_cfg tunnel = {
		.encap_type = 1,
		.encap_rcv = receive,
	};

	setup_udp_tunnel_sock(sock_net(&isk->sk), inagg_tunnel(udp), &tunnel);
}

/** inagg_link_listen() - what comes to a UDP socket that was taken over is for @isk */
void inagg_link_listen(struct inagg_sock *isk, struct socket *udp)
{
	rcu_assign_sk_user_data(udp->sk, isk);
}

/** inagg_link_ignore() - nothing that comes is for @isk any more; a grace period of RCU later none is handled */
void inagg_link_ignore(struct inagg_sock *isk)
{
	if (isk->link.udp)
		rcu_assign_sk_user_data(isk->link.udp->sk, NULL);
}

/* Netfilter's owner match and ss(8) find a packet's user by the file of its socket. */
static void set_owner(struct sock *udp, struct socket *owner)
{
	write_lock_bh(&udp->sk_callback_lock);
	sk_set_socket(udp, owner);
	write_unlock_bh(&udp->sk_callback_lock);
}

/* The one interface that is used, or 0. */
static int device_of(const struct inagg_sock *isk)
{
	return isk->link.ifindex ?: READ_ONCE(isk->sk.sk_bound_dev_if);
}

/** inagg_link_bind_device() - follow the interface that the socket is bound to; under lock_sock(), may sleep */
void inagg_link_bind_device(struct inagg_sock *isk)
{
	if (!isk->link.udp)
		return;	/* inagg_link_open() will */
	sock_bindtoindex(isk->link.udp->sk, device_of(isk), true);
	dst_cache_reset(&isk->link.dst);
}

/** inagg_link_orphan() - the user's socket and its file go, or the link, with which the core would clear the user's ->sk */
void inagg_link_orphan(struct inagg_sock *isk)
{
	if (isk->link.udp)
		set_owner(isk->link.udp->sk, NULL);
}

/* What ICMP says of the path, anybody can forge: the interface's MTU counts, and the route does not learn another. */
static int ignore_icmp(struct socket *udp, bool is_v4)
{
	int how = is_v4 ? IP_PMTUDISC_INTERFACE : IPV6_PMTUDISC_INTERFACE;

	return udp->ops->setsockopt(udp, is_v4 ? SOL_IP : SOL_IPV6, is_v4 ? IP_MTU_DISCOVER : IPV6_MTU_DISCOVER,
				    KERNEL_SOCKPTR(&how), sizeof(how));
}

/**
 * inagg_link_open() - bind the UDP port
 * @isk: the socket; link.family and link.local are set, link.port is the port wanted or 0
 *
 * May sleep.  Checks the caller's rights to the port as bind(2) does.  Return: 0 or an error of bind(2).
 */
int inagg_link_open(struct inagg_sock *isk)
{
	struct inagg_link *link = &isk->link;
	struct udp_port_cfg port = {
		.family = link->family,
		.local_udp_port = link->port,
		.ipv6_v6only = 1,
		.bind_ifindex = device_of(isk),
	};
	int error;

	if (!IS_ENABLED(CONFIG_IPV6) && !is_ipv4(link))
		return -EAFNOSUPPORT;
	if (is_ipv4(link))
		port.local_ip = link->local.v4;
#if IS_ENABLED(CONFIG_IPV6)
	else
		port.local_ip6 = link->local.v6;
#endif
	error = udp_sock_create(sock_net(&isk->sk), &port, &link->udp);
	if (error)
		return error;
	error = ignore_icmp(link->udp, is_ipv4(link));
	if (error) {
		inagg_udp_close(link->udp);
		link->udp = NULL;
		return error;
	}
	WRITE_ONCE(link->port, inet_sk(link->udp->sk)->inet_sport);
	inagg_udp_take_over(isk, link->udp);
	set_owner(link->udp->sk, isk->sk.sk_socket);
	return 0;
}

/**
 * inagg_udp_close() - close a UDP socket; may sleep
 *
 * What has just arrived on other CPUs may still be handled.  Nobody waits for that, as the tunnels do: our socket stays
 * for another grace period of RCU.
 */
void inagg_udp_close(struct socket *udp)
{
	rcu_assign_sk_user_data(udp->sk, NULL);
	kernel_sock_shutdown(udp, SHUT_RDWR);
	sock_release(udp);
}

/** inagg_link_close() - nobody sends; may sleep.  What was sent may still be on its way */
void inagg_link_close(struct inagg_sock *isk)
{
	struct inagg_link *link = &isk->link;

	inagg_link_orphan(isk);
	if (link->group)
		inagg_udp_close(link->group);
	if (link->udp)
		inagg_udp_close(link->udp);
	link->group = link->udp = NULL;
}
