// SPDX-License-Identifier: GPL-2.0-only
/* Four floats at a time: every x86-64. */
#define VECTOR_BYTES	16
#define TO_INTEGERS	__builtin_ia32_cvtps2dq
#define VECTORS		inagg_sse2_vectors
#include "vector_x86.h"
