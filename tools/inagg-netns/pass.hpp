// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <memory>
#include <string>

struct pass_bpf;

namespace netns {

// An XDP program that passes everything, for veths whose peer sends with XDP_TX.
class PassProgram {
public:
    PassProgram();
    // To a device of the current network namespace.
    void attach(const std::string &device) const;

private:
    std::unique_ptr<pass_bpf, void (*)(pass_bpf *)> program_;
};

} // namespace netns
