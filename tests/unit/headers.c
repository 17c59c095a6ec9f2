/* SPDX-License-Identifier: BSD-2-Clause */
/* The shared headers are C first: this file compiles them as C11 and runs one block through them. */
#include <inagg/core/aggregator.h>
#include <inagg/core/checksum.h>
#include <inagg/core/congestion.h>
#include <inagg/core/fixed.h>
#include <inagg/core/guess.h>
#include <inagg/core/half.h>
#include <inagg/core/history.h>
#include <inagg/core/job.h>
#include <inagg/core/leader.h>
#include <inagg/core/mac.h>
#include <inagg/core/membership.h>
#include <inagg/core/packet.h>
#include <inagg/core/combiner.h>
#include <inagg/core/presence.h>
#include <inagg/core/queue.h>
#include <inagg/core/raw.h>
#include <inagg/core/roll.h>
#include <inagg/core/slot.h>
#include <inagg/core/tensor.h>
#include <inagg/core/types.h>
#include <inagg/core/worker.h>
#include <inagg/inagg.h>
#include <inagg/reason.h>
#include <inagg/uapi.h>
#include <inagg/wire.h>

int headers_in_c(void);

/* Number of steps in which C code saw what it expected; 4 when all is well. */
int headers_in_c(void)
{
	struct inagg_hdr h = {.version_type = INAGG_WIRE_VERSION << 4 | INAGG_CONTRIBUTION};
	struct inagg_slot slot = {0};
	struct inagg_block block;
	struct inagg_worker worker;
	struct inagg_wslot wslot;
	int right = 0;

	inagg_worker_init(&worker, 4, 0);
	inagg_wslot_init(&wslot, 0);
	worker.limit = 1;
	right += inagg_worker_open(&worker, &wslot, 1) == INAGG_W_SEND;
	inagg_hdr_seal(&h);
	right += inagg_hdr_intact(&h);
	block = inagg_block_of(&h);
	right += inagg_slot_contribute(&slot, inagg_all_ranks(1), &block) == (INAGG_COUNT | INAGG_COMPLETES);
	right += inagg_worker_result(&worker, &wslot, 0, 0, 2) == INAGG_W_ACCEPT;
	return right;
}
