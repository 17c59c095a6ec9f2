// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <inagg/core/slot.h>

// A block of 32 elements, in a job's generation 1.
inline inagg_block block_of(__u32 number, __u8 dtype) {
    inagg_block b{};
    b.block = number;
    b.generation = 1;
    b.elements = 32;
    b.dtype_op = static_cast<__u8>(dtype << 4);
    return b;
}
