// SPDX-License-Identifier: BSD-2-Clause
#include "pass.hpp"

#include "process.hpp"

#include <linux/if_link.h>
#include <net/if.h>

#include "pass.skel.h"

namespace netns {

PassProgram::PassProgram() : program_(pass_bpf__open_and_load(), pass_bpf__destroy) {
    if (!program_) {
        fail("cannot load an XDP program");
    }
}

void PassProgram::attach(const std::string &device) const {
    const int program = bpf_program__fd(program_->progs.inagg_pass);
    if (bpf_xdp_attach(static_cast<int>(if_nametoindex(device.c_str())), program, XDP_FLAGS_DRV_MODE, nullptr) != 0) {
        fail("cannot attach an XDP program to " + device);
    }
}

} // namespace netns
