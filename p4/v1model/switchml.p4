// SPDX-License-Identifier: BSD-2-Clause
// SwitchML (§3.5, Algorithm 3).
#include <core.p4>
#include <v1model.p4>

#include "../shared/constants.p4"
#include "../shared/headers.p4"

const bit<8> ALGORITHM = INAGG_SWITCHML;

#include "pool.p4"
