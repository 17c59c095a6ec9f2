// SPDX-License-Identifier: GPL-2.0-only
/* /proc/sys/net/inagg: what unprivileged users may take. */
#include <linux/slab.h>

#include "af_inagg.h"

static int least_buffer = 64 << 10, most_buffer = 1 << 30, one = 1;

static struct ctl_table template[] = {
	{ .procname = "buffer_default", .maxlen = sizeof(int), .mode = 0644, .proc_handler = proc_dointvec_minmax,
	  .extra1 = &least_buffer, .extra2 = &most_buffer },
	{ .procname = "buffer_max", .maxlen = sizeof(int), .mode = 0644, .proc_handler = proc_dointvec_minmax,
	  .extra1 = &least_buffer, .extra2 = &most_buffer },
	{ .procname = "deadline_default_ms", .maxlen = sizeof(int), .mode = 0644,
	  .proc_handler = proc_dointvec_minmax, .extra1 = &one },
	{ .procname = "memory_limit", .maxlen = sizeof(long), .mode = 0644, .proc_handler = proc_doulongvec_minmax },
	{ }
};

/* The limit of the whole machine is its owner's to set. */
#define SHARED_ENTRY	3

int inagg_sysctl_init(struct net *net)
{
	struct inagg_net *in = inagg_pernet(net);
	struct ctl_table *table = kmemdup(template, sizeof(template), GFP_KERNEL);

	if (!table)
		return -ENOMEM;
	in->buffer_default = INAGG_BUFFER_DEFAULT;
	in->buffer_max = INAGG_BUFFER_MAX;
	in->deadline_default = INAGG_DEADLINE_DEFAULT;
	table[0].data = &in->buffer_default;
	table[1].data = &in->buffer_max;
	table[2].data = &in->deadline_default;
	table[SHARED_ENTRY].data = &inagg_memory_limit;
	if (!net_eq(net, &init_net))
		table[SHARED_ENTRY].mode = 0444;
	in->table = table;
	in->sysctls = inagg_register_sysctl(net, "net/inagg", table, ARRAY_SIZE(template) - 1);
	if (in->sysctls)
		return 0;
	kfree(table);
	return -ENOMEM;
}

void inagg_sysctl_exit(struct net *net)
{
	struct inagg_net *in = inagg_pernet(net);

	unregister_net_sysctl_table(in->sysctls);
	kfree(in->table);
}
