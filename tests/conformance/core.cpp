// SPDX-License-Identifier: BSD-2-Clause
#include "vectors.hpp"

#include "support/reference_switch.hpp"

int main(int argc, char **argv) {
    support::ReferenceSwitch plane(conformance::switch_slots);
    return conformance::run_vectors(argc, argv, plane);
}
