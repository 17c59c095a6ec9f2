/* SPDX-License-Identifier: GPL-2.0-only */
/* Differences between the kernels that this module builds for, each with the version that changed it. */
#ifndef _INAGG_COMPAT_H
#define _INAGG_COMPAT_H

#include <linux/hrtimer.h>
#include <linux/net.h>
#include <linux/sysctl.h>
#include <linux/version.h>
#include <net/udp_tunnel.h>

/* 6.13: hrtimer_setup() takes the function, hrtimer_init() went in 6.15 */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void inagg_hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
				       clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#else
#define inagg_hrtimer_setup hrtimer_setup
#endif

/* 6.5: sendfile() and splice() became sendmsg() with a flag, which we refuse as any other that we do not know */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
static inline ssize_t inagg_sendpage(struct socket *sock, struct page *page, int offset, size_t size, int flags)
{
	return -EINVAL;
}
#define INAGG_REFUSE_SPLICE	.sendpage = inagg_sendpage,
#else
#define INAGG_REFUSE_SPLICE
#endif

/* 6.6: the size of a sysctl table is told; 6.11: and its empty last entry is refused */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 6, 0)
#define inagg_register_sysctl(net, path, table, entries) register_net_sysctl(net, path, table)
#else
#define inagg_register_sysctl register_net_sysctl_sz
#endif

/* 6.16: IP control block flags became an argument of both */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 16, 0)
#define INAGG_IPCB_FLAGS
#else
#define INAGG_IPCB_FLAGS , 0
#endif

/* 6.19: addresses of unknown length have a type of their own */
#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 19, 0)
#define sockaddr_unsized sockaddr
#endif

/* 7.1.5: UDP tunnels are told the sock, no longer the socket; older kernels took it over, so the type is asked */
#define inagg_tunnel(udp)									\
	_Generic(&setup_udp_tunnel_sock,							\
		 void (*)(struct net *, struct socket *, struct udp_tunnel_sock_cfg *): (udp),	\
		 default: (udp)->sk)

#endif /* _INAGG_COMPAT_H */
