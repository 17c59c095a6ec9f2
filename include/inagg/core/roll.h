/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/* Of whom the result of a tensor is made, block by block; only with trio are some missing. */
#ifndef INAGG_CORE_ROLL_H
#define INAGG_CORE_ROLL_H

#include <inagg/core/types.h>

struct inagg_roll {
	__u64	all;		/* the job's ranks: bitmaps */
	__u64	in_all;		/* those in every block */
	__u64	in_any;		/* those in at least one */
	__u32	degraded;	/* blocks without some rank */
	__u16	fewest;		/* ranks in the block that has the fewest */
	__u16	called;		/* is there a block at all? */
};

/** Of no block yet; a tensor without any has all ranks. */
INAGG_INLINE void inagg_roll_init(struct inagg_roll *r, __u32 size)
{
	r->all = r->in_all = r->in_any = inagg_all_ranks(size);
	r->degraded = 0;
	r->fewest = (__u16)size;
	r->called = 0;
}

/** One more block, with these ranks. */
INAGG_INLINE void inagg_roll_call(struct inagg_roll *r, __u64 contributors)
{
	__u16 count = (__u16)inagg_count_ranks(contributors);

	r->in_any = contributors | (r->called ? r->in_any : 0);
	r->in_all &= contributors;
	r->degraded += contributors != r->all;
	if (count < r->fewest)
		r->fewest = count;
	r->called = 1;
}

#endif /* INAGG_CORE_ROLL_H */
