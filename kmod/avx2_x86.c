// SPDX-License-Identifier: GPL-2.0-only
/* Eight floats at a time. */
#define VECTOR_BYTES	32
#define TO_INTEGERS	__builtin_ia32_cvtps2dq256
#define VECTORS		inagg_avx2_vectors
#include "vector_x86.h"
