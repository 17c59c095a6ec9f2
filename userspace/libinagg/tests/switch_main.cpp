// SPDX-License-Identifier: BSD-2-Clause
// A SoftwareSwitch as a program: prints its address and runs until its standard input ends.
#include "software_switch.hpp"

#include <cstdio>

int main() {
    const inagg::SoftwareSwitch software_switch;
    std::puts(software_switch.address().c_str());
    std::fflush(stdout);
    while (std::getchar() != EOF)
        ;
}
