// SPDX-License-Identifier: BSD-2-Clause
// SwitchML (§3.5, Algorithm 3) in one switch, for Tofino.
#include "pool.p4"
