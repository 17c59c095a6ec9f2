// SPDX-License-Identifier: GPL-2.0-only
/*
 * Passes everything.  A veth takes frames that its peer sends with XDP_TX only if it has an XDP program
 * itself; inagg-netns puts this one where nothing else is attached.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

char LICENSE[] SEC("license") = "GPL";

SEC("xdp.frags")
int inagg_pass(struct xdp_md *ctx)
{
	(void)ctx;
	return XDP_PASS;
}
