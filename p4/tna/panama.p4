// SPDX-License-Identifier: BSD-2-Clause
// PANAMA (§4.2, Figure 5) with integers in one switch, for Tofino: sums as in a pool, and what its congestion control needs of a
// switch: the OR of marks, and marks of its own where packets queue.  CONFIG tells the ranks that floats are not added here.
#define MARKS_QUEUES
#include "pool.p4"
