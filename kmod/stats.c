// SPDX-License-Identifier: GPL-2.0-only
/*
 * /proc/net/inagg: the family's number, what was refused and why, and a line for each socket.
 */
#include <linux/proc_fs.h>
#include <linux/seq_file.h>
#include <net/net_namespace.h>

#include "af_inagg.h"
#include "trace.h"

static const char *const reason_texts[INAGG_R_CAPACITY] = {
#define INAGG_REASON_TEXT(number, name, text) [number] = text,
	INAGG_REASONS(INAGG_REASON_TEXT)
#undef INAGG_REASON_TEXT
};

static const char *const reason_names[INAGG_R_CAPACITY] = {
#define INAGG_REASON_NAME(number, name, text) [number] = #name,
	INAGG_REASONS(INAGG_REASON_NAME)
#undef INAGG_REASON_NAME
};

/** inagg_count_drop() - a packet was refused for @reason, which inagg/reason.h names; @isk is locked */
void inagg_count_drop(struct inagg_sock *isk, int reason)
{
	reason &= INAGG_R_CAPACITY - 1;
	trace_inagg_refuse(isk, reason);
	isk->info.rejected++;
	isk->drops[reason]++;
	atomic64_inc(&inagg_pernet(sock_net(&isk->sk))->drops[reason]);
}

static const char *state_of(const struct inagg_sock *isk)
{
	switch (isk->sk.sk_state) {
	case TCP_SYN_SENT:
		return "joining";
	case TCP_ESTABLISHED:
		return isk->lingering ? "leaving" : "joined";
	default:
		return "closed";
	}
}

/* What this rank of its job has refused. */
static void show_drops(struct seq_file *seq, const struct inagg_sock *isk)
{
	int i;

	for (i = 0; i < INAGG_R_CAPACITY; i++)
		if (isk->drops[i])
			seq_printf(seq, " dropped_%s %llu", reason_names[i] ?: "UNKNOWN", isk->drops[i]);
}

/* Without lock_sock(), which a call may hold for long: all that is shown is written under `lock`. */
static void show_socket(struct seq_file *seq, struct inagg_sock *isk)
{
	struct sock *sk = &isk->sk;

	spin_lock_bh(&isk->lock);
	seq_printf(seq, "socket %llu uid %u state %s job %u rank %u size %u", (u64)sock_i_ino(sk),
		   from_kuid_munged(seq_user_ns(seq), READ_ONCE(sk->sk_uid)), state_of(isk), isk->job.job,
		   isk->job.rank, isk->job.size);
	seq_printf(seq, " local [%pI6c]:%u switch [%pI6c]:%u", isk->local.sinagg_addr, ntohs(READ_ONCE(isk->link.port)),
		   isk->peer.sinagg_addr, ntohs(isk->peer.sinagg_port));
	seq_printf(seq, " tensors %u memory %llu", isk->tensor_count, (u64)atomic64_read(&isk->charged));
	seq_printf(seq, " blocks %llu contributions %llu retransmissions %llu requests %llu", isk->info.blocks,
		   isk->info.contributions, isk->info.retransmissions, isk->info.requests);
	seq_printf(seq, " degraded %llu skipped %llu abstained %llu refused %llu", isk->info.degraded, isk->info.skipped,
		   isk->info.abstained, isk->info.refused);
	seq_printf(seq, " restores %llu duplicates %llu rejected %llu reboots %llu srtt_ns %llu", isk->info.restores,
		   isk->info.duplicates, isk->info.rejected, isk->info.reboots,
		   isk->streams[INAGG_DATA].worker.srtt_ns);
	show_drops(seq, isk);
	seq_puts(seq, "\n");
	spin_unlock_bh(&isk->lock);
}

static int show(struct seq_file *seq, void *unused)
{
	struct inagg_net *in = inagg_pernet(seq_file_single_net(seq));
	struct inagg_sock *isk;
	u64 drops;
	int i;

	seq_printf(seq, "inagg %s family %d memory %ld limit %lu\n", INAGG_VERSION, inagg_family,
		   atomic_long_read(&inagg_memory), inagg_memory_limit);
	for (i = 0; i < INAGG_R_CAPACITY; i++) {
		drops = atomic64_read(&in->drops[i]);
		if (drops)
			seq_printf(seq, "dropped %llu: %s\n", drops, reason_texts[i] ?: "unknown reason");
	}
	mutex_lock(&in->lock);
	list_for_each_entry(isk, &in->sockets, node)
		show_socket(seq, isk);
	mutex_unlock(&in->lock);
	return 0;
}

int inagg_proc_init(struct net *net)
{
	return proc_create_net_single("inagg", 0444, net->proc_net, show, NULL) ? 0 : -ENOMEM;
}

void inagg_proc_exit(struct net *net)
{
	remove_proc_entry("inagg", net->proc_net);
}
