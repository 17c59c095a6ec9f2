// SPDX-License-Identifier: BSD-2-Clause
// PANAMA (§4.2, Figure 5) with integers: sums as in a pool, and what its congestion control needs of a switch: the OR
// of marks, the smallest cap, and marks of its own where packets queue.  CONFIG tells the ranks that floats are not
// added here.
#include <core.p4>
#include <v1model.p4>

#include "../shared/constants.p4"
#include "../shared/headers.p4"

const bit<8> ALGORITHM = INAGG_PANAMA;

#define MARKS_QUEUES
#include "pool.p4"
