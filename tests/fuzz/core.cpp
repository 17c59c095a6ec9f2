// SPDX-License-Identifier: BSD-2-Clause
#include "fuzz.hpp"

#include "support/reference_switch.hpp"

int main(int argc, char **argv) {
    support::ReferenceSwitch core(fuzz::switch_slots);
    return fuzz::run(argc, argv, {&core});
}
