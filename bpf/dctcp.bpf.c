// SPDX-License-Identifier: GPL-2.0-only
/*
 * DCTCP (RFC 8257) as a congestion control of the kernel's TCP, by struct_ops: for the flows of inagg-netns on kernels that have
 * none. PANAMA's windows are made to share links with such flows.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>
#include <inagg/core/congestion.h>

#pragma clang diagnostic ignored "-Wunused-parameter" /* BPF_PROG's ctx */

char LICENSE[] SEC("license") = "GPL";

/* Of the kernel, whose names these are: what is used here. */
enum { TCP_CA_Recovery = 3, TCP_CA_Loss = 4 };
enum tcp_ca_event { CA_EVENT_ECN_NO_CE = 4, CA_EVENT_ECN_IS_CE = 5 };
enum { TCP_ECN_DEMAND_CWR = 4 };
enum { TCP_CONG_NEEDS_ECN = 2 };
enum { ICSK_ACK_TIMER = 2, ICSK_ACK_NOW = 16 };

struct sock {
} __attribute__((preserve_access_index));

struct inet_connection_sock {
	struct {
		__u8	pending;
	} icsk_ack;
	__u64	icsk_ca_priv[13];
} __attribute__((preserve_access_index));

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32	rcv_nxt;
	__u32	snd_nxt;
	__u32	snd_una;
	__u8	ecn_flags;
	__u32	delivered;
	__u32	delivered_ce;
	__u32	snd_cwnd;
	__u32	snd_ssthresh;
} __attribute__((preserve_access_index));

struct tcp_congestion_ops {
	__u32	(*ssthresh)(struct sock *sk);
	__u32	(*undo_cwnd)(struct sock *sk);
	void	(*cong_control)(struct sock *sk);
	void	(*set_state)(struct sock *sk, __u8 state);
	void	(*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void	(*init)(struct sock *sk);
	__u32	flags;
	char	name[16];
};

/* What a connection remembers, in icsk_ca_priv.  As a receiver, the last two. */
struct dctcp {
	__u32	window;		/* segments in flight */
	__u32	threshold;	/* a smaller window grows fast */
	__u32	unmarked;	/* segments since it last changed */
	__u32	alpha;		/* share of segments that are marked, of INAGG_DCTCP_ONE */
	__u32	delivered;	/* segments until now */
	__u32	delivered_ce;
	__u32	observed_until;	/* alpha learns next when this is acknowledged */
	__u32	segments;	/* until then */
	__u32	marked;		/* of them */
	__u32	cut_until;	/* what is in flight since the last cut tells nothing new */
	__u32	acknowledged;	/* rcv_nxt when the last segment came */
	__u32	was_marked;	/* that segment */
};

static __always_inline struct tcp_sock *tcp_of(struct sock *sk)
{
	return (struct tcp_sock *)sk;
}

static __always_inline struct dctcp *state_of(struct sock *sk)
{
	return (struct dctcp *)tcp_of(sk)->inet_conn.icsk_ca_priv;
}

static __always_inline __u32 at_least(__u32 least, __u32 x)
{
	return x > least ? x : least;
}

static __always_inline int is_acknowledged(const struct tcp_sock *tp, __u32 sequence)
{
	return (__s32)(tp->snd_una - sequence) >= 0;
}

SEC("struct_ops/init")
void BPF_PROG(init, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct dctcp *d = state_of(sk);

	d->window = tp->snd_cwnd;
	d->threshold = ~0U;
	d->unmarked = 0;
	d->alpha = INAGG_DCTCP_ONE;
	d->delivered = tp->delivered;
	d->delivered_ce = tp->delivered_ce;
	d->observed_until = tp->snd_nxt;
	d->segments = 0;
	d->marked = 0;
	d->cut_until = tp->snd_una;
	d->acknowledged = tp->rcv_nxt;
	d->was_marked = 0;
}

static __always_inline void shrink(const struct tcp_sock *tp, struct dctcp *d, __u32 segments)
{
	d->window = at_least(INAGG_LEAST_WINDOW, d->window - segments);
	d->threshold = d->window;
	d->unmarked = 0;
	d->cut_until = tp->snd_nxt;
}

/* As a flow that always has more to send. */
static __always_inline void grow(struct dctcp *d, __u32 segments)
{
	if (d->window < d->threshold) {
		d->window += segments;
		return;
	}
	d->unmarked += segments;
	if (d->unmarked < d->window)
		return;
	d->unmarked = 0;
	d->window++;
}

/* RFC 8257, 3.3: once a window. */
static __always_inline void observe(const struct tcp_sock *tp, struct dctcp *d, __u32 segments, __u32 marked)
{
	d->segments += segments;
	d->marked += marked;
	if (!is_acknowledged(tp, d->observed_until))
		return;
	d->alpha = inagg_dctcp_average(d->alpha, d->marked, at_least(1, d->segments));
	d->observed_until = tp->snd_nxt;
	d->segments = 0;
	d->marked = 0;
}

/*
 * With each acknowledgement.  The window is kept here rather than by what ssthresh() and undo_cwnd() return to the kernel: on Linux
 * 6.18 such a call was seen to be left out now and then, and what it returned was a part of an address.
 */
SEC("struct_ops/cong_control")
void BPF_PROG(cong_control, struct sock *sk)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct dctcp *d = state_of(sk);
	__u32 segments = tp->delivered - d->delivered, marked = tp->delivered_ce - d->delivered_ce;

	d->delivered = tp->delivered;
	d->delivered_ce = tp->delivered_ce;
	observe(tp, d, segments, marked);
	if (is_acknowledged(tp, d->cut_until)) {
		if (marked)
			shrink(tp, d, d->window * d->alpha / (2 * INAGG_DCTCP_ONE));
		else
			grow(d, segments);
	}
	tp->snd_cwnd = d->window;
	tp->snd_ssthresh = d->threshold;
}

/* RFC 8257, 3.5: to a loss as TCP does. */
SEC("struct_ops/set_state")
void BPF_PROG(set_state, struct sock *sk, __u8 state)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct dctcp *d = state_of(sk);

	if (state == TCP_CA_Recovery && is_acknowledged(tp, d->cut_until))
		shrink(tp, d, d->window / 2);
	if (state == TCP_CA_Loss)
		shrink(tp, d, d->window);
}

SEC("struct_ops/ssthresh")
__u32 BPF_PROG(ssthresh, struct sock *sk)
{
	return state_of(sk)->threshold;
}

SEC("struct_ops/undo_cwnd")
__u32 BPF_PROG(undo_cwnd, struct sock *sk)
{
	return state_of(sk)->window;
}

static __always_inline void echo(struct tcp_sock *tp, __u32 marked)
{
	if (marked)
		tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
	else
		tp->ecn_flags &= ~TCP_ECN_DEMAND_CWR;
}

/*
 * RFC 8257, 3.2, as a receiver: acknowledgements say of what they acknowledge whether it was marked. So where marks begin or end,
 * what came before and waits for its acknowledgement gets one of its own, and what comes is acknowledged at once.
 */
SEC("struct_ops/cwnd_event")
void BPF_PROG(cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct tcp_sock *tp = tcp_of(sk);
	struct dctcp *d = state_of(sk);
	__u32 marked = event == CA_EVENT_ECN_IS_CE;

	if (event != CA_EVENT_ECN_IS_CE && event != CA_EVENT_ECN_NO_CE)
		return;
	if (d->was_marked != marked) {
		if (tp->inet_conn.icsk_ack.pending & ICSK_ACK_TIMER) {
			echo(tp, d->was_marked);
			bpf_tcp_send_ack(tp, d->acknowledged);
		}
		tp->inet_conn.icsk_ack.pending |= ICSK_ACK_NOW;
	}
	d->acknowledged = tp->rcv_nxt;
	d->was_marked = marked;
	echo(tp, marked);
}

SEC(".struct_ops")
struct tcp_congestion_ops dctcp = {
	.ssthresh	= (void *)ssthresh,
	.undo_cwnd	= (void *)undo_cwnd,
	.cong_control	= (void *)cong_control,
	.set_state	= (void *)set_state,
	.cwnd_event	= (void *)cwnd_event,
	.init		= (void *)init,
	.flags		= TCP_CONG_NEEDS_ECN,
	.name		= "inagg_dctcp",
};
