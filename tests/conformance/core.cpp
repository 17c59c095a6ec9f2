// SPDX-License-Identifier: BSD-2-Clause
#include "vectors.hpp"

#include "support/reference_switch.hpp"

int main(int argc, char **argv) {
    return conformance::run_vectors(
        argc, argv, [] { return std::make_unique<support::ReferenceSwitch>(conformance::switch_slots); });
}
