// SPDX-License-Identifier: BSD-2-Clause
// A BPF ring buffer's reader.
#pragma once

#include <bpf/libbpf.h>

#include <memory>

namespace inaggd {

struct RingDeleter {
    void operator()(ring_buffer *ring) const { ring_buffer__free(ring); }
};
using Ring = std::unique_ptr<ring_buffer, RingDeleter>;

} // namespace inaggd
