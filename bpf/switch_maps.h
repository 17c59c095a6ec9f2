/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-2-Clause) */
/*
 * Keys and values of the switch's maps: the interface between switch.bpf.c and whoever fills its maps
 * (inaggd, bpftool, tests).  Map names are those of the sections in switch.bpf.c.
 */
#ifndef INAGG_SWITCH_MAPS_H
#define INAGG_SWITCH_MAPS_H

#include <linux/bpf.h>

#include <inagg/core/aggregator.h>
#include <inagg/core/descriptor.h>
#include <inagg/core/job.h>
#include <inagg/core/mac.h>
#include <inagg/core/merge.h>
#include <inagg/core/presence.h>
#include <inagg/core/queue.h>
#include <inagg/core/record.h>
#include <inagg/core/ways.h>

#define INAGG_MAX_JOBS		64	/* rows of members, ports and stats */
#define INAGG_STATS_NO_JOB	INAGG_MAX_JOBS	/* stats row of packets that belong to no job */
#define INAGG_DEFAULT_SLOTS	4096	/* slot pairs of a switch; inaggd may choose another number */
#define INAGG_DEFAULT_BUCKETS	1024	/* of block records, for jobs with INAGG_TRIO; likewise */
#define INAGG_DEFAULT_AGGREGATORS	4096	/* slots shared by the jobs with INAGG_ATP; likewise */
#define INAGG_DEFAULT_DESCRIPTORS	4096	/* of blocks, shared by the jobs with INAGG_CANARY; likewise */
#define INAGG_DEFAULT_BUFFERS	4096	/* of floats that wait, for jobs that add them; likewise */
#define INAGG_LOOPBACK		1	/* interface that live frames seem to come from; no port of a switch */
#define INAGG_DEFAULT_FLOORS	65536	/* slots of jobs whose blocks have records: 12 bytes each */

/* `settings`[0]: this switch. */
struct inagg_switch_settings {
	__u8	address6[16];	/* all zero: no IPv6 */
	__u32	address4;	/* network byte order; 0: no IPv4 */
	__u16	boot;		/* incarnation, not 0 */
	__u16	flags;		/* enum inagg_switch_flag */
};

#define INAGG_ASKS_PER_SECOND	4000	/* JOINs of a port, and as many of all else, that agents look at */
#define INAGG_ASKS_AT_ONCE	512	/* that the switch gives its agent while that reads none; twice as many may lie there */
#define INAGG_EVENTS_BYTES	(4 << 20)	/* of 11 ports that ask all that they may */
#define INAGG_MAX_ASKERS	8192	/* ports, twice, that are known at a time: an LRU map on 64 CPUs has a use for so many */

/* `asks`: key port << 1 | is it JOINs?  What they fill of `events`. */
struct inagg_asking {
	struct inagg_queue rate;	/* an event is 2^INAGG_QUEUE_SHIFT bytes */
	__u64	since;		/* position in `events` where the count began */
	__u32	count;		/* events since then, until the agent has come there */
	__u32	reserved;
};

enum inagg_switch_flag {
	INAGG_SWITCH_HAS_PARENT	= 1 << 0,	/* takes RESULT, WAIT, CONFIG and REFUSED; without, nobody may send them here */
};

/*
 * `jobs`: index job number, value struct inagg_job; size 0: no such job.  An array of all 65,536 numbers
 * (4 MiB) because its lookup is inlined, where a hash costs 20 ns a packet.
 */
#define INAGG_JOB_NUMBERS	65536

/*
 * `algorithms`: what the root program calls: algorithms other than SwitchML on a switch that stands alone, what live frames
 * become, and trees of switches.  Verifying the programs of all algorithms takes seconds, so whoever loads the switch
 * puts here what its jobs need (switch_programs.h).
 */
enum inagg_call {
	INAGG_CALL_TRIO		= INAGG_TRIO,
	INAGG_CALL_ATP		= INAGG_ATP,
	INAGG_CALL_PANAMA	= INAGG_PANAMA,	/* floats; what else these jobs have is the tree's */
	INAGG_CALL_CANARY	= INAGG_CANARY,	/* on the way to the leader */
	INAGG_CALL_TICK		= INAGG_ALGORITHMS,
	INAGG_CALL_TREE,
	INAGG_CALL_PARENT,
	INAGG_CALL_COMBINE,
	INAGG_CALL_COMBINED,
	INAGG_CALL_CANARY_DOWN,	/* what the leader says */
	INAGG_CALL_EXPIRE,	/* what TICK finds of jobs with INAGG_CANARY */
	INAGG_CALL_SEVERAL,	/* frames of several buffers */
	INAGG_CALLS
};

/** What handles the packets of @job's ranks: an enum inagg_call, or INAGG_SWITCHML: the root program itself. */
static inline __u32 inagg_call_of(const struct inagg_job *job)
{
	if (job->algorithm == INAGG_PANAMA)
		return INAGG_CALL_TREE;
	if (job->algorithm == INAGG_CANARY)
		return INAGG_CALL_CANARY;
	if (job->algorithm >= INAGG_ALGORITHMS)
		return INAGG_CALLS;	/* nothing does */
	if (!(job->flags & INAGG_JOIN_TREE) || job->algorithm == INAGG_ATP)
		return job->algorithm;
	return job->algorithm == INAGG_TRIO ? INAGG_CALL_COMBINE : INAGG_CALL_TREE;
}

/** Does what handles them need @call, too? */
static inline int inagg_also_calls(const struct inagg_job *job, __u32 call)
{
	switch (call) {
	case INAGG_CALL_CANARY_DOWN:
	case INAGG_CALL_EXPIRE:
		return job->algorithm == INAGG_CANARY;
	case INAGG_CALL_TICK:
		return job->algorithm == INAGG_CANARY || job->algorithm == INAGG_TRIO;
	case INAGG_CALL_COMBINED:
		return inagg_call_of(job) == INAGG_CALL_COMBINE;
	case INAGG_CALL_PANAMA:
		return job->algorithm == INAGG_PANAMA;
	}
	return 0;
}

/* `members`: index job.index * INAGG_MAX_RANKS + rank, value struct inagg_member. */

/* `keys`: index job.index, value struct inagg_mac_key; of jobs with a key. */

/*
 * `subtrees`: index as in `members`, value __u64: the ranks behind this rank's switch, for all of which it
 * may speak; 0: it is no switch's.
 */

/*
 * `uplinks`: index job.index; where the parent of this switch is, for the job; ifindex 0: this is the root.  Programs
 * do not look at the position: it is where the agent keeps that of the parent, or of the root itself.
 */
struct inagg_uplink {
	__u32	ifindex;
	__u8	family;		/* 4 or 6 */
	__u8	reserved;
	__u16	position;	/* as in struct inagg_join */
	__u8	mac[6];
	__u8	own_mac[6];
	__u8	address[16];	/* IPv4 in the first 4 bytes */
	__u8	own_address[16];
};

/*
 * `up_ports`: index 0 .. INAGG_MAX_UPS-1: the switches above this one, in the order of their configuration, which is the
 * same on all switches below them; ifindex 0: none, or not known yet.
 */

/* `routes`: index job.index; of jobs with INAGG_CANARY. */
struct inagg_route {
	__u8	up;		/* bitmap of `up_ports` whose links are up and whose switches know the job */
	__u8	policy;		/* enum inagg_up_policy */
	__u8	ups;		/* how many there are when all is well */
	__u8	reserved;
	__u32	timeout_us;	/* how long a sum waits here for more; 0: adapts itself */
};

/* How long, where @learnt is what `patience` has of the job. */
INAGG_INLINE __u64 inagg_route_wait_ns(const struct inagg_route *route, const struct inagg_patience *learnt)
{
	return route->timeout_us ? (__u64)route->timeout_us * 1000 : inagg_patience_ns(learnt);
}

/* By which of them a block goes on: Canary §5.2. */
enum inagg_up_policy {
	INAGG_UP_DEFAULT = 0,	/* that of the block's position; the least loaded if its queue is long */
	INAGG_UP_ECMP,		/* a hash of the position, whatever the queues */
	INAGG_UP_FLOWLET,	/* the last one, or after a pause the least loaded */
	INAGG_UP_LEAST,		/* the least loaded */
};

/* `flowlets`: index a hash of job and slot (uplink.h). */
#define INAGG_FLOWLETS		1024
#define INAGG_FLOWLET_GAP_NS	500000	/* a longer pause and another path cannot reorder (CONGA §3.4) */
struct inagg_flowlet {
	__u64	sent_ns;
	__u32	up;		/* index in `up_ports` */
	__u32	reserved;
};

/*
 * `quotas`, `uplink_quotas`: key job.index, value struct inagg_queue: what the job's packets to this switch, and those of it to
 * switches above, have used of its rate.
 */

/* `queues`: key __u32, the interface of a port, value struct inagg_queue (core/queue.h): what waits to leave by it. */
#define INAGG_MAX_QUEUES	256

/* `slots`: index (job.first_slot + slot) * 2 + pool version. */
struct inagg_slot_memory {
	__u32	busy;			/* a CPU is in this slot: see lock_slot() */
	__u32	ready;			/* lanes hold the result, as on the wire */
	struct inagg_slot state;
	struct inagg_merge merge;	/* of floats: core/merge.h; its buffer 0 are the lanes */
	__u32	turn;			/* counts the blocks that `merge` was begun for */
	__u32	lost;			/* a climber could not go on: what it carried is gone */
	__u32	holder;			/* job.index + 1, while its block is one of those in `adding`; 0: it is not */
	__u32	promised;		/* of `buffer_pool`: to that block */
	__u64	touched_ns;		/* when that block was last heard of, on the coarse clock */
	/* Until the block completes: 32-bit accumulators, two in a word.  Then: the result's payload. */
	__u64	lanes[INAGG_MAX_ELEMENTS / 2];
	__u32	buffers[INAGG_MAX_RANKS / 2];	/* of `merge`: numbers in `float_buffers` from 1; 0: none */
};

/* `float_buffers`: what waits to be added to floats that are yet to come; index from 0. */
struct inagg_float_buffer {
	__u64	lanes[INAGG_MAX_ELEMENTS / 2];
};

/* `buffer_pool`[0]: which of `float_buffers` are free.  They have numbers from 1; `free_buffers`, by index, is the number of the
 * next that is free; 0: none. */
struct inagg_buffer_pool {
	__u64	free;		/* the first of them, and how often that changed in the upper half */
	__u32	used;		/* those above have never been */
	__u32	promised;	/* to blocks that have begun: all that they may need at once, or they would wait for each other's */
	__u32	hand;		/* index in `slots`, where to look next for a block that nobody waits for any more */
	__u32	reserved;
};

/* `adding`: index job.index; of jobs that add floats.  Never written by the agent: each slot that has a holder counts once. */
struct inagg_adding {
	__u32	blocks;		/* whose floats are being added */
	__u32	newest;		/* index in `slots` of the one that began last, if it is still counted */
};

/* `shares`: index job.index; of jobs that add floats. */
struct inagg_share {
	__u16	cap;		/* blocks that this switch has memory for, its window cap; 0: as many as it has slots */
	__u8	children;	/* ranks and switches whose sums are added here */
	__u8	reserved;
};

/* `buckets`: index inagg_bucket_of(). */
struct inagg_bucket_memory {
	__u32	busy;			/* a CPU is in one of these records, or in its lanes */
	__u32	reserved;
	struct inagg_record records[INAGG_WAYS];
};

/* `record_lanes`: index bucket * INAGG_WAYS + way. */
struct inagg_record_memory {
	__u32	ready;			/* as in struct inagg_slot_memory */
	__u32	reserved;
	__u64	lanes[INAGG_MAX_ELEMENTS / 2];
};

/* `floors`: index job.first_slot + slot. */
struct inagg_floor_memory {
	__u32	busy;
	struct inagg_floor floor;
};

/* `aggregators`: index of the packet, modulo their number. */
struct inagg_aggregator_memory {
	__u32	busy;
	__u32	ready;			/* unused: a sum leaves when it is complete */
	struct inagg_aggregator state;
	__u64	lanes[INAGG_MAX_ELEMENTS / 2];
};

/* `descriptors`: index inagg_descriptor_index(). */
struct inagg_descriptor_memory {
	__u32	busy;
	__u32	ready;			/* unused: a sum leaves when it is complete */
	__u32	job;			/* number */
	__u32	reserved;
	struct inagg_descriptor state;
	__u64	lanes[INAGG_MAX_ELEMENTS / 2];
};

#define INAGG_ALARM_SUMS	1024	/* a power of two */

/* A sum that waits for more. */
struct inagg_waiting {
	__u64	due_ns;
	__u64	opened_ns;	/* the descriptor's, when it began to: else it has another block now */
	__u32	descriptor;
	__u32	reserved;
};

/*
 * `alarms`: index job.index; of jobs with INAGG_CANARY, their sums that wait, in the order in which they began to.  And INAGG_MAX_JOBS
 * further, of those that were to be sent on, until they are looked at again.
 */
struct inagg_alarm {
	struct bpf_timer timer;	/* runs while any wait: for the first */
	__u32	busy;
	__u32	first;		/* modulo INAGG_ALARM_SUMS */
	__u32	end;		/* behind the last */
	__u32	reserved;
	struct inagg_waiting sums[INAGG_ALARM_SUMS];
};

/* `occupancy`[0]: how many of `descriptors`, of all jobs, hold a block. */
struct inagg_occupancy {
	__u32	held;		/* now */
	__u32	most;		/* ever */
};

/* `patience`: index job.index; of jobs with INAGG_CANARY; struct inagg_patience, learnt here.  Calls that race lose samples. */

/* `policies`: index job.index; of jobs with INAGG_TRIO. */
struct inagg_job_policy {
	struct inagg_policy policy;
	__u16	job;			/* its number */
	__u16	generation;		/* records of another one are nobody's */
};

/* `attendance`: index job.index, per CPU; of jobs with INAGG_TRIO: struct inagg_attendance. */

/* `stragglers`: index job.index; what whoever looks at `attendance` thinks of it: bitmaps of ranks. */
struct inagg_stragglers {
	__u64	temporary;
	__u64	permanent;
};

/* `open_records`: index job.index; how many the job has, changed atomically.  Apart from its policy, which the
 * agent may write anew at any time. */

#define INAGG_MAX_SWEEPERS	128
#define INAGG_EXPIRED_QUEUE	4096
#define INAGG_SWEPT_ELEMENTS	800	/* per packet of a job with an expiry: a live frame holds no more */

/*
 * `sweep_settings`[0], and the frame that the program `inagg_sweep` is run on.  A job's expiry_sweeps counts
 * periods.
 */
struct inagg_sweep_settings {
	__u32	sweepers;	/* timers, each for a part of the buckets; 0: none */
	__u8	mac[6];		/* where results of ticks come from */
	__u16	reserved;
	__u64	period_ns;	/* each bucket is visited so often */
};

/* `sweepers`: index 0 .. sweepers-1; `hand_sweeper`[0]: for sweeps that no timer makes. */
struct inagg_sweeper {
	struct bpf_timer timer;
	__u64	due_ns;		/* next visit */
	__u64	runs;		/* since it was started */
	__u64	records;	/* visited */
	__u64	expired;	/* found, some more than once */
	__u64	busy;		/* buckets passed over, because a CPU was in them */
	__u64	ns;		/* spent in these runs */
	__u64	longest_ns;	/* of them */
};

/* `sweep_process`[0]: the thread that sends what sweeps find, and sweeps by hand, when it last had something to do. */
struct inagg_sweep_process {
	__u64	since_ns;	/* CLOCK_MONOTONIC */
	__u64	until_ns;
	__u64	cpu_ns;		/* that it used between the two */
};

/* `expired`: a queue of blocks for `inagg_tick` to decide. */
struct inagg_expired {
	__u32	block;
	__u16	generation;
	__u16	job;		/* number */
	__u8	stream;
	__u8	reserved;
	__u16	attempt;	/* canary */
};

/* `due`: ring buffer; so many blocks have just been queued. */
struct inagg_due {
	__u32	expired;
	__u32	reserved;
};

/* Context of the syscall program `inagg_clear`: entries to forget. */
struct inagg_clear_args {
	__u32	first;
	__u32	count;
	__u32	cleared;	/* out: less than count if one stayed busy; repeat */
	__u32	what;		/* enum inagg_clear_what */
	__u32	job;		/* INAGG_CLEAR_BUCKETS, _DESCRIPTORS: only those of this row; INAGG_MAX_JOBS: all */
};
enum inagg_clear_what {
	INAGG_CLEAR_SLOTS	= 0,	/* entries of `slots` */
	INAGG_CLEAR_BUCKETS,		/* records in entries of `buckets` */
	INAGG_CLEAR_FLOORS,		/* entries of `floors` */
	INAGG_CLEAR_AGGREGATORS,	/* entries of `aggregators` */
	INAGG_CLEAR_DESCRIPTORS,	/* entries of `descriptors`, likewise of one row or all */
	INAGG_CLEAR_STALE,	/* those of `descriptors` that no result will come by for: abandoned, or of a job or generation that has ended */
};

/*
 * Context of the syscall program `inagg_forget_job`, before a job with INAGG_TRIO begins: no record of this row
 * remains, and the first blocks of this generation are the next.  Nothing opens until its policy is written.
 */
struct inagg_forget_args {
	struct inagg_job job;	/* as it will be */
	__u32	busy;		/* out: entries that stayed busy; repeat */
	__u32	reserved;
};

/*
 * `ports`: index job.index, an inner devmap with one entry per rank, and behind them one per up port of a job with
 * INAGG_CANARY (broadcast goes to all of them).
 */
#define INAGG_PORT_ENTRIES	(INAGG_MAX_RANKS + INAGG_MAX_UPS)

/*
 * `port_ranks`: which ranks a port leads to, for the egress program: one copy of a result leaves per
 * rank, and the n-th copy through a port belongs to the n-th rank behind it.  Up port i has the number
 * INAGG_MAX_RANKS + i.
 */
struct inagg_port_key {
	__u32	job;		/* job.index */
	__u32	ifindex;
};
struct inagg_port_ranks {
	__u32	count;
	__u8	rank[INAGG_MAX_RANKS];	/* INAGG_MAX_RANKS + i: the switch above at up port i */
};

/* `events`: ring buffer; one for each JOIN or LEAVE that the agent must decide, and for each answer of a parent. */
struct inagg_event {
	__u32	ifindex;	/* port it came through */
	__u16	source_port;	/* UDP, network byte order */
	__u8	family;		/* 4 or 6 */
	__u8	type;		/* INAGG_JOIN or INAGG_LEAVE; of a parent: INAGG_CONFIG or INAGG_REFUSED */
	__u16	job;
	__u16	rank;
	__u16	generation;	/* of the incarnation that is left, or described */
	__u8	mac[6];
	__u8	address[16];	/* IPv4 in the first 4 bytes */
	struct inagg_join join;	/* as on the wire; CONFIG: struct inagg_config instead */
	__u32	reason;		/* REFUSED: enum inagg_reason */
	__u8	own_mac[6];	/* by which the sender knows this switch */
	__u16	quorum;		/* CONFIG of trio: when this switch is to send its sums, as in struct inagg_policy */
	__u32	expiry_us;
	__u64	ranks;		/* CONFIG: those behind this switch */
	struct inagg_hdr hdr;	/* all of it, as on the wire: what the proof is of */
};

#endif /* INAGG_SWITCH_MAPS_H */
