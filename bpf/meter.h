/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Ordinary traffic in the virtual queues: what the kernel itself sends by a port.  Frames that XDP sends do not come by here
 * and are counted where they are sent.
 */
#ifndef INAGG_METER_H
#define INAGG_METER_H

SEC("tc")
int inagg_meter(struct __sk_buff *skb)
{
	__u32 ifindex = skb->ifindex;
	struct inagg_queue *queue = bpf_map_lookup_elem(&queues, &ifindex);

	if (queue)
		inagg_queue_add(queue, skb->len, bpf_ktime_get_ns());
	return -1;	/* TCX_NEXT: nothing is decided here */
}

#endif /* INAGG_METER_H */
