// SPDX-License-Identifier: BSD-2-Clause
#include "vectors.hpp"

#include "support/xdp_plane.hpp"

#include <fmt/format.h>

#include <unistd.h>

int main(int argc, char **argv) {
    if (geteuid() != 0) {
        fmt::print("SKIP: BPF_PROG_TEST_RUN needs root\n");
        return 77;
    }
    try {
        support::XdpPlane plane(conformance::switch_slots);
        return conformance::run_vectors(argc, argv, plane);
    } catch (const std::exception &error) {
        fmt::print(stderr, "{}\n", error.what());
        return 1;
    }
}
