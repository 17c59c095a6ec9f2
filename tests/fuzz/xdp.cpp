// SPDX-License-Identifier: BSD-2-Clause
#include "fuzz.hpp"

#include "support/reference_switch.hpp"
#include "support/xdp_plane.hpp"

#include <fmt/format.h>

#include <unistd.h>

int main(int argc, char **argv) {
    if (geteuid() != 0) {
        fmt::print("SKIP: BPF_PROG_TEST_RUN needs root\n");
        return 77;
    }
    try {
        support::ReferenceSwitch core(fuzz::switch_slots);
        support::XdpPlane xdp(fuzz::switch_slots);
        return fuzz::run(argc, argv, {&core, &xdp});
    } catch (const std::exception &error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
