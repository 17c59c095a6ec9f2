/* SPDX-License-Identifier: GPL-2.0-only */
/* Tracepoints: a rank joined, a block went out again, a packet was refused, a socket failed. */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM inagg

#if !defined(_INAGG_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _INAGG_TRACE_H

#include <linux/tracepoint.h>

#include "af_inagg.h"

TRACE_EVENT(inagg_join,
	TP_PROTO(const struct inagg_job_config *job, int reason),
	TP_ARGS(job, reason),
	TP_STRUCT__entry(__field(u16, job) __field(u16, rank) __field(u16, size) __field(u16, generation)
			 __field(int, reason)),
	TP_fast_assign(__entry->job = job->job; __entry->rank = job->rank; __entry->size = job->size;
		       __entry->generation = job->generation; __entry->reason = reason;),
	TP_printk("job=%u rank=%u size=%u generation=%u reason=%d", __entry->job, __entry->rank, __entry->size,
		  __entry->generation, __entry->reason)
);

TRACE_EVENT(inagg_resend,
	TP_PROTO(const struct inagg_sock *isk, int stream, u32 block),
	TP_ARGS(isk, stream, block),
	TP_STRUCT__entry(__field(u16, job) __field(u16, rank) __field(int, stream) __field(u32, block)),
	TP_fast_assign(__entry->job = isk->job.job; __entry->rank = isk->job.rank; __entry->stream = stream;
		       __entry->block = block;),
	TP_printk("job=%u rank=%u %s block=%u", __entry->job, __entry->rank,
		  __entry->stream == INAGG_DATA ? "data" : "control", __entry->block)
);

TRACE_EVENT(inagg_refuse,
	TP_PROTO(const struct inagg_sock *isk, int reason),
	TP_ARGS(isk, reason),
	TP_STRUCT__entry(__field(u16, job) __field(u16, rank) __field(int, reason)),
	TP_fast_assign(__entry->job = isk->job.job; __entry->rank = isk->job.rank; __entry->reason = reason;),
	TP_printk("job=%u rank=%u reason=%d", __entry->job, __entry->rank, __entry->reason)
);

TRACE_EVENT(inagg_fail,
	TP_PROTO(const struct inagg_sock *isk, const struct inagg_fault *fault),
	TP_ARGS(isk, fault),
	TP_STRUCT__entry(__field(u16, job) __field(u16, rank) __field(u32, error) __field(u32, reason)
			 __field(u32, block) __field(u64, missing)),
	TP_fast_assign(__entry->job = isk->job.job; __entry->rank = isk->job.rank; __entry->error = fault->error;
		       __entry->reason = fault->reason; __entry->block = fault->block;
		       __entry->missing = fault->missing;),
	TP_printk("job=%u rank=%u errno=%u reason=%u block=%u missing=%#llx", __entry->job, __entry->rank,
		  __entry->error, __entry->reason, __entry->block, __entry->missing)
);

#endif /* _INAGG_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
