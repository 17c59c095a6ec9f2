/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* The switch's programs that others tail-call: which there are, for whoever loads them. */
#ifndef INAGG_SWITCH_PROGRAMS_H
#define INAGG_SWITCH_PROGRAMS_H

#include "switch_maps.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

struct inagg_program {
	__u32		call;	/* enum inagg_call: index in `algorithms` */
	const char	*name;
	int		by_job;	/* long to verify, and needed only by jobs of which inagg_call_of() says so, or inagg_also_calls() */
};

static const struct inagg_program inagg_programs[] = {
	{ INAGG_CALL_TRIO, "inagg_trio", 1 },
	{ INAGG_CALL_ATP, "inagg_atp", 1 },
	{ INAGG_CALL_PANAMA, "inagg_panama", 1 },
	{ INAGG_CALL_TICK, "inagg_tick", 1 },
	{ INAGG_CALL_TREE, "inagg_tree", 1 },
	{ INAGG_CALL_PARENT, "inagg_parent", 0 },
	{ INAGG_CALL_COMBINE, "inagg_combine", 1 },
	{ INAGG_CALL_COMBINED, "inagg_combined", 1 },
	{ INAGG_CALL_CANARY, "inagg_canary", 1 },
	{ INAGG_CALL_CANARY_DOWN, "inagg_canary_down", 1 },
	{ INAGG_CALL_EXPIRE, "inagg_expire", 1 },
	{ INAGG_CALL_SEVERAL, "inagg_several", 0 },
};
#define INAGG_PROGRAMS	(sizeof(inagg_programs) / sizeof(inagg_programs[0]))

/** Put the programs that @object has loaded into its `algorithms`.  0, or a negative errno. */
static inline int inagg_link_programs(const struct bpf_object *object)
{
	int table = bpf_object__find_map_fd_by_name(object, "algorithms"), error = table < 0 ? table : 0;

	for (__u32 i = 0; i < INAGG_PROGRAMS && !error; i++) {
		const struct bpf_program *p = bpf_object__find_program_by_name(object, inagg_programs[i].name);
		int fd = p ? bpf_program__fd(p) : -1;

		if (fd >= 0)
			error = bpf_map_update_elem(table, &inagg_programs[i].call, &fd, BPF_ANY);
	}
	return error;
}

#endif /* INAGG_SWITCH_PROGRAMS_H */
