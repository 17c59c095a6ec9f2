// SPDX-License-Identifier: BSD-2-Clause
// Which mutant is at work, from the environment.
#include <cstdlib>

extern int inagg_mutant;

namespace {

int asked_for() {
    const char *number = std::getenv("INAGG_MUTANT");
    return number ? std::atoi(number) : 0;
}

} // namespace

int inagg_mutant = asked_for();
