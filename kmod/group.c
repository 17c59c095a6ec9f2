// SPDX-License-Identifier: GPL-2.0-only
/*
 * A switch without an agent sends a job's results to a group address, one copy for all ranks behind a port.  Joining
 * it takes a second UDP socket and process context, so a work does it between CONFIG and the end of connect().
 *
 * It is nothing that the user could not do with a UDP socket: the address must be a group's, and the port one that
 * needs no privileges, whatever a switch says.
 */
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/udp_tunnel.h>

#include "af_inagg.h"

/* As a socket address; returns its length, or 0 if it is no group's. */
static int group_address(const struct inagg_sock *isk, int interface, struct sockaddr_storage *address)
{
	const struct inagg_group *group = &isk->group;
	struct sockaddr_in6 *in6 = (struct sockaddr_in6 *)address;
	struct sockaddr_in *in = (struct sockaddr_in *)address;

	memset(address, 0, sizeof(*address));
	if (isk->link.family == AF_INET) {
		in->sin_family = AF_INET;
		in->sin_port = group->port;
		memcpy(&in->sin_addr, group->address, sizeof(in->sin_addr));
		return ipv4_is_multicast(in->sin_addr.s_addr) ? sizeof(*in) : 0;
	}
	in6->sin6_family = AF_INET6;
	in6->sin6_port = group->port;
	in6->sin6_scope_id = interface;
	memcpy(&in6->sin6_addr, group->address, sizeof(in6->sin6_addr));
	return ipv6_addr_is_multicast(&in6->sin6_addr) ? sizeof(*in6) : 0;
}

static int bind_and_join(struct inagg_sock *isk, struct socket *udp)
{
	int level = isk->link.family == AF_INET ? SOL_IP : SOL_IPV6, interface = inagg_path_interface(isk), length, error;
	struct group_req request = { .gr_interface = interface };

	if (interface < 0)
		return interface;
	length = group_address(isk, interface, (struct sockaddr_storage *)&request.gr_group);
	if (!length)
		return -EADDRNOTAVAIL;
	if (inet_port_requires_bind_service(sock_net(&isk->sk), ntohs(isk->group.port)))
		return -EACCES;
	sock_set_reuseaddr(udp->sk);	/* all ranks of a host have it */
	if (isk->link.family == AF_INET6)
		udp_set_no_check6_rx(udp->sk, true);
	error = kernel_bind(udp, (struct sockaddr_unsized *)&request.gr_group, length);
	if (error)
		return error;
	return udp->ops->setsockopt(udp, level, MCAST_JOIN_GROUP, KERNEL_SOCKPTR(&request), sizeof(request));
}

/* A listener at the job's group. */
static int open_group(struct inagg_sock *isk, struct socket **udp)
{
	int error = sock_create_kern(sock_net(&isk->sk), isk->link.family, SOCK_DGRAM, IPPROTO_UDP, udp);

	if (error)
		return error;
	error = bind_and_join(isk, *udp);
	if (error) {
		sock_release(*udp);
		return error;
	}
	inagg_udp_take_over(isk, *udp);
	inagg_link_listen(isk, *udp);
	return 0;
}

/** inagg_group_work() - join the group, and with it the job */
void inagg_group_work(struct work_struct *work)
{
	struct inagg_sock *isk = container_of(work, struct inagg_sock, group.work);
	struct socket *udp = NULL, *unused = NULL;
	int error = open_group(isk, &udp);

	spin_lock_bh(&isk->lock);
	if (isk->sk.sk_state != TCP_SYN_SENT) {
		unused = error ? NULL : udp;	/* the deadline has passed meanwhile */
	} else if (error) {
		inagg_fail(isk, -error, 0);
	} else {
		isk->link.group = udp;
		inagg_established(isk, &isk->group.job);
	}
	spin_unlock_bh(&isk->lock);
	if (unused)
		inagg_udp_close(unused);
	sock_put(&isk->sk);
}

/** inagg_group_join() - a CONFIG names a group: join it before the job; @isk is locked */
void inagg_group_join(struct inagg_sock *isk, const struct inagg_job_config *job, const struct inagg_config *config)
{
	struct inagg_group *group = &isk->group;

	if (group->port)
		return;	/* under way: the JOIN was repeated */
	group->job = *job;
	group->port = config->group_port;
	memcpy(group->address, config->group, sizeof(group->address));
	sock_hold(&isk->sk);
	if (!queue_work(inagg_workqueue, &group->work))
		__sock_put(&isk->sk);
}

/** inagg_group_cancel() - forget a group that is being joined; may sleep, nobody joins meanwhile */
void inagg_group_cancel(struct inagg_sock *isk)
{
	if (cancel_work_sync(&isk->group.work))
		__sock_put(&isk->sk);
	isk->group.port = 0;
}
