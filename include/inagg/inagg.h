/* SPDX-License-Identifier: BSD-2-Clause */
/**
 * libinagg: allreduce through an inagg switch.  C API; <inagg/inagg.hpp> is its C++ face.
 *
 * All ranks of a job make the same calls in the same order with the same counts and types.  Every
 * function returns 0 or a negative enum inagg_error unless it says otherwise; inagg_message() then
 * tells what went wrong, which value was bad and what to do.
 *
 * Threads: one communicator may be used by several threads, calls are serialised; different
 * communicators are independent.
 */
#ifndef INAGG_H
#define INAGG_H

#include <inagg/uapi.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** A rank's membership of a job. */
typedef struct inagg_comm inagg_comm;
/** A collective operation under way. */
typedef struct inagg_request inagg_request;

/* Types of elements and operators: the ones of AF_INAGG. */
typedef enum inagg_dtype inagg_dtype;
typedef enum inagg_op inagg_op;

typedef enum inagg_error {
	INAGG_OK = 0,
	INAGG_EINVAL = -1,    /* an argument or environment variable is wrong */
	INAGG_ENOSWITCH = -2, /* no switch answers at that address */
	INAGG_EREFUSED = -3,  /* the switch refuses the join: the message has its reason */
	INAGG_EDEADLINE = -4, /* a block did not complete in time: job, block and missing ranks in the message */
	INAGG_ERANGE = -5,    /* a value does not fit the scale fixed by hand (not with atp), or FLOAT64 its limbs; all ranks get this error */
	INAGG_ESYSTEM = -6,   /* a system call failed */
	INAGG_EPRIVILEGE = -7,/* the transport needs privileges that the process lacks */
	INAGG_ECLOSED = -8,   /* the job was ended or restarted, a rank has left it, or an earlier error broke this communicator */
	INAGG_EVERIFY = -9,   /* a result is not the sum of what the ranks have sent: inagg_options.key */
} inagg_error;

/* What a rank does when queues on the way are long: it has fewer blocks in flight.  In fairness to the flows that it shares links with. */
enum inagg_congestion_control {
	INAGG_CONGESTION_NONE = 0,  /* nothing: a full window always */
	INAGG_CONGESTION_OWN = 1,   /* as the algorithm's paper says: atp AIMD, panama DCTCP; with the others nothing */
	INAGG_CONGESTION_AIMD = 2,  /* half as many: as TCP's Cubic and Reno, about */
	INAGG_CONGESTION_DCTCP = 3, /* fewer by half the share of blocks that are marked: as DCTCP (RFC 8257) */
};

/** How to join.  Fill it with inagg_options_init() or inagg_options_from_env(), then change fields. */
typedef struct inagg_options {
	size_t struct_size;     /* sizeof(inagg_options): later versions append fields */
	char switch_address[256];/* IPv4 or IPv6 address of the switch, in text; of several trees: one, or each one's, with commas */
	uint16_t job;           /* its number; with several trees the first of so many */
	uint16_t rank;
	uint16_t size;          /* 1 .. 64 */
	char algorithm[16];     /* "switchml", "trio", which does not wait for stragglers, "atp", "panama", which adds floats, "canary" */
	char transport[16];     /* "udp", "kernel", "afxdp", "xdp", "auto" */
	uint32_t timeout_ms;    /* deadline of each operation without progress, and of the join; default 30000 */
	int32_t scale;          /* k: float32 sums travel as round(x * 2^k); INAGG_SCALE_AUTO agrees on k, or, panama, none */
	int checked;            /* 1: payload checksums, for links that do not check frames */
	uint32_t expiry_us;     /* trio: microseconds that a block waits for its next rank; 0: for all ranks */
	uint16_t quorum;        /* trio: ranks that decide a block at once, 1 .. size; 0: all */
	uint32_t history_mib;   /* trio: MiB of results kept for and from stragglers; default 64 */
	uint32_t exclude_ms;    /* trio: milliseconds of a rank's silence, from 1000, after which the others go on without; 0: never */
	int congestion_control; /* atp, panama: enum inagg_congestion_control, alike on all ranks; default INAGG_CONGESTION_OWN */
	uint16_t trees;         /* 1 .. 64: jobs, each with a switch or server of its own, that share each tensor; default 1 */
	uint32_t poll_us;       /* microseconds since the last result, and four times as many in all, that a call polls before it sleeps; default 500 */
	uint64_t aggregate_from;/* smaller tensors, in bytes, go by a ring of the ranks' hosts; alike on all ranks; 0, the default: none */
	char key[33];           /* 32 hexadecimal digits that all ranks know, and nobody else: results are verified; "": they are not */
	char join_key[33];      /* 32 others, which the ranks and the job's switches know: who does not cannot join, nor end the job; "": any can */
	uint32_t join_timeout_ms;/* deadline of the join; 0, the default: timeout_ms */
} inagg_options;

/** Counters of one communicator since it joined. */
typedef struct inagg_stats_t {
	uint64_t blocks;          /* results received */
	uint64_t contributions;   /* first transmissions */
	uint64_t retransmissions; /* contributions sent again */
	uint64_t requests;        /* header-only requests after time-outs */
	uint64_t restores;        /* results given back to a switch that lost them; canary: to ranks, by this one as leader */
	uint64_t duplicates;      /* results that were already here */
	uint64_t rejected;        /* packets with a wrong length, checksum, job or generation */
	uint64_t reboots;         /* changes of the switch's boot id */
	uint64_t srtt_ns;         /* smoothed round trip of a block */
	uint64_t degraded;        /* trio: results without some rank */
	uint64_t skipped;         /* trio: blocks that were decided before this rank came to them */
	uint64_t abstained;       /* trio: blocks that this rank could not add to: their scale was agreed without it */
	uint64_t refused;         /* trio: contributions for which the switch had no room; this rank sends fewer since */
	uint64_t cuts;            /* atp, panama: times that long queues, or a loss, made this rank's window smaller */
	uint64_t parts;           /* canary: sums, of one rank or more, that this rank added up as leader; its own count, too */
	uint64_t reissues;        /* canary: times that this rank, as leader, had elements sent again because they were lost */
	uint64_t mismatches;      /* results that were no sums of what the ranks had sent, and asked for again: inagg_options.key */
} inagg_stats_t;

/**
 * Of whom a result is made.  A tensor travels in blocks, and with trio each is decided for itself; with
 * other algorithms all ranks are in all of them.  Bitmaps: bit r is rank r.
 */
typedef struct inagg_outcome {
	size_t struct_size;       /* sizeof(inagg_outcome): later versions append fields */
	uint64_t blocks;          /* that the elements travelled in; 0 for barriers */
	uint64_t degraded_blocks; /* of them, those without some rank */
	uint64_t in_all;          /* bitmap of the ranks that are in every block */
	uint64_t in_any;          /* bitmap of the ranks that are in at least one */
	uint32_t block_elements;  /* elements in a block; the last one may have fewer */
	uint16_t fewest;          /* ranks in the block that has the fewest */
} inagg_outcome;

/** Defaults: algorithm switchml, transport auto, one tree, 30 s, automatic scale, no payload checksum, no rank left out. */
void inagg_options_init(inagg_options *options);

/**
 * inagg_options_init(), then INAGG_SWITCH, INAGG_JOB, INAGG_RANK, INAGG_SIZE, INAGG_ALGORITHM,
 * INAGG_TRANSPORT, INAGG_TIMEOUT_MS, INAGG_JOIN_TIMEOUT_MS, INAGG_SCALE, INAGG_CHECKED, INAGG_EXPIRY ("500us", "10ms", "1s"; a
 * plain number is milliseconds), INAGG_QUORUM (ranks, or a fraction of the size like 0.88, rounded up),
 * INAGG_EXCLUDE_AFTER (a time like INAGG_EXPIRY), INAGG_HISTORY (MiB), INAGG_CONGESTION_CONTROL (0, 1, "aimd", "dctcp"), INAGG_TREES,
 * INAGG_AGGREGATE_FROM (bytes, "64K", "40M"), INAGG_POLL (a time like INAGG_EXPIRY), INAGG_KEY and INAGG_JOIN_KEY, or INAGG_KEY_FILE and
 * INAGG_JOIN_KEY_FILE, files with them.
 * Rank and size come from torchrun, Open MPI or Slurm when those two are absent.
 * INAGG_EINVAL names the variable that is missing or wrong.  INAGG_SWITCH may be missing until inagg_join().
 */
int inagg_options_from_env(inagg_options *options);

/** The same for rank @rank of @size, whatever the environment says of these two. */
int inagg_options_for_rank(inagg_options *options, uint16_t rank, uint16_t size);

/**
 * Verified sums: with inagg_options.key a result is taken only if it is the sum of what the ranks have sent, whatever
 * switches and hosts on the way do, but for a chance of 2^-31 at each try of who does not know the key: core/linear_check.h.
 * One that is not is asked for again, up to 8 times, and 64 in all; then the job ends with INAGG_EVERIFY.  Barriers and broadcasts are
 * verified, too (barriers not with trio).  Sums of INT32 and their elements must not overflow.  Minima and maxima, and with
 * panama sums of floats but FLOAT64, give INAGG_EINVAL.  Who knows the key may lie about its own elements.  All transports but
 * xdp.
 */

/**
 * With inagg_options.join_key this rank proves that it knows it, and believes nothing of who does not: who takes its place, or
 * tells it that the job has ended.  The job's switches need it, too (inaggd --key-file), so let it not be that of verified sums.
 */

/** Join the job: returns when the switch has accepted this rank.  *comm is the caller's to leave. */
int inagg_join(const inagg_options *options, inagg_comm **comm);

/**
 * Leave the job and free @comm, also after errors.  Waits for operations under way, and then, since others may need results that
 * only ranks keep, until all ranks leave or nobody has needed this one for 2 s (canary, whose ranks lead blocks: 5 s), at
 * most the timeout each; inagg_wait() still tells what became of them, and frees their requests.  NULL is allowed.
 * In a child of fork() it does nothing: the parent is in the job, and other calls give INAGG_ECLOSED there.
 */
int inagg_leave(inagg_comm *comm);

uint16_t inagg_rank(const inagg_comm *comm);
uint16_t inagg_size(const inagg_comm *comm);
/** Name of the transport in use. */
const char *inagg_transport(const inagg_comm *comm);
/** Why `auto` did not choose a faster transport; "" if it did.  Valid until inagg_leave(). */
const char *inagg_transport_note(const inagg_comm *comm);
void inagg_get_stats(inagg_comm *comm, inagg_stats_t *stats);

/**
 * Sum (minimum, maximum) @count elements over all ranks into @recv on every rank; @send == @recv is
 * allowed, other overlap is not.  Same bits on all ranks and in every run on the same input.
 *   INT32: exact, wraps.  FLOAT32 sum: fixed point, absolute error at most size * 2^(E-30+log2 size) with
 *   2^E above the largest magnitude of any rank; infinities and NaN come out where they go in.
 *   FLOAT16, BFLOAT16 sum: in fixed point in the switch.  With panama switches add FLOAT32 as IEEE 754 does, in a fixed
 *   order; FLOAT16 and BFLOAT16 go as FLOAT32 and are rounded once.  Minimum and maximum are exact for all types.
 *   INAGG_AVG, of floats: the sum, divided by the number of ranks that are in each block, and rounded once
 *   more; a 16-bit sum that overflows averages to infinity.  INT32 and INT64 give INAGG_EINVAL.
 *   INT64: exact, wraps.  FLOAT64 sum: exact, then rounded once to nearest even (zeros lose their sign), if all finite
 *   elements of all ranks are multiples of some power of two and smaller than 2^99 of it; else all ranks get INAGG_ERANGE
 *   from this call, and can go on.  Minimum and maximum of both are exact.  They travel as INT32, in two steps: first what
 *   decides how, and in the second one to five for an element.  An outcome's blocks are those of the second.  Sums of so
 *   few elements that any fits one packet (four of FLOAT64, by MTU 1500) take one step, and no INAGG_ERANGE.
 * With trio, ranks that are late may be missing: inagg_last_outcome().  INT64 and FLOAT64 need all: INAGG_EINVAL.
 */
int inagg_allreduce(inagg_comm *comm, const void *send, void *recv, size_t count, inagg_dtype dtype,
		    inagg_op op);
/** The same without waiting: buffers belong to the operation until inagg_wait() or inagg_test(). */
int inagg_iallreduce(inagg_comm *comm, const void *send, void *recv, size_t count, inagg_dtype dtype,
		     inagg_op op, inagg_request **request);
/** Copy @count elements of rank @root to all ranks, bit for bit.  Waits for all ranks, with trio too; INAGG_ECLOSED, @data being as
 *  it was where it has not come yet, if @root has been excluded. */
int inagg_broadcast(inagg_comm *comm, void *data, size_t count, inagg_dtype dtype, uint16_t root);
/** As inagg_allreduce(), but only @root's @recv is written; others may pass NULL. */
int inagg_reduce(inagg_comm *comm, const void *send, void *recv, size_t count, inagg_dtype dtype,
		 inagg_op op, uint16_t root);
/** Returns when all ranks have called it, with trio too. */
int inagg_barrier(inagg_comm *comm);

/** The same without waiting, as inagg_iallreduce().  Calls of all kinds count in the order in which they are begun. */
int inagg_ibroadcast(inagg_comm *comm, void *data, size_t count, inagg_dtype dtype, uint16_t root,
		     inagg_request **request);
int inagg_ireduce(inagg_comm *comm, const void *send, void *recv, size_t count, inagg_dtype dtype, inagg_op op,
		  uint16_t root, inagg_request **request);
int inagg_ibarrier(inagg_comm *comm, inagg_request **request);

/** Wait for and free @request; returns its outcome. */
int inagg_wait(inagg_request *request);
/** 1: finished (call inagg_wait() for outcome and memory), 0: not yet. */
int inagg_test(inagg_request *request);

/**
 * Of whom the result is made that this thread's last successful call brought: inagg_allreduce(),
 * inagg_reduce(), inagg_broadcast(), inagg_barrier() or inagg_wait(), of any communicator.  Set
 * @outcome->struct_size before.  INAGG_EINVAL if that is wrong, or if no call has succeeded.
 */
int inagg_last_outcome(inagg_outcome *outcome);
/**
 * Bitmap of the ranks in one block of that result: elements @block * block_elements and following.  0 if it
 * has no such block.
 */
uint64_t inagg_last_contributors(uint64_t block);

/**
 * How far the others have gone on without this rank (trio): *@blocks, data blocks behind those of the calls
 * made so far, have results that are here already.  Calls as long as these return at once, whatever @send
 * holds: a straggler may skip computing it.  With other algorithms 0.  What is here is at most
 * inagg_options.history_mib MiB of results; float sums also need an agreed scale, which goes before them, and
 * while that of a call made before is not known, *@blocks is 0.
 */
int inagg_blocks_ahead(inagg_comm *comm, uint64_t *blocks);
/** *@blocks: data blocks of an allreduce of finite elements.  INAGG_EINVAL as of inagg_allreduce(). */
int inagg_blocks_of_call(inagg_comm *comm, size_t count, inagg_dtype dtype, inagg_op op, uint64_t *blocks);

/**
 * *@ranks: bitmap of the ranks that the job goes on without, as the switch last said (trio, with
 * inagg_options.exclude_ms).  An excluded rank's own calls fail with INAGG_ECLOSED.
 */
int inagg_excluded(inagg_comm *comm, uint64_t *ranks);
/**
 * Bitmaps of ranks that the switch takes for stragglers, as it last said, some seconds ago at most (trio with an expiry, a quorum
 * or exclusion, at an XDP switch without others above or below; else 0).  *@temporary: blocks were decided without them since it
 * looked before.  *@permanent: nothing was heard of them, while others were, for inagg_options.exclude_ms, or 5 s where nobody
 * is excluded; and those that are.
 */
int inagg_stragglers(inagg_comm *comm, uint64_t *temporary, uint64_t *permanent);
/**
 * Take back ranks that were excluded and have joined again: all others call this at the same place in their calls, now
 * and then.  A barrier, after all operations under way.  If a rank waits to come back, the job goes on in a new
 * generation with it, and *@renewed is 1 on all ranks, else 0.  The call that follows is the first one of the rank
 * that is back, so let it be one that tells it what it needs to know, as inagg_broadcast().  For that
 * rank inagg_join() returns when it is in.
 */
int inagg_renew(inagg_comm *comm, int *renewed);

/** Last error message of the calling thread; never NULL. */
const char *inagg_message(void);
/** Short text of an error number. */
const char *inagg_strerror(int error);
/** "0.1.0": major, minor, patch. */
const char *inagg_version(void);

#ifdef __cplusplus
}
#endif

#endif /* INAGG_H */
