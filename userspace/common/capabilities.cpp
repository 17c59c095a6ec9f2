// SPDX-License-Identifier: BSD-2-Clause
#include "capabilities.hpp"

#include <cap-ng.h>
#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <vector>

namespace inagg {
namespace {

void forbid_new_ones() {
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        throw std::system_error(errno, std::generic_category(), "PR_SET_NO_NEW_PRIVS");
}

} // namespace

void keep_capabilities(std::initializer_list<int> kept) {
    capng_get_caps_process();
    if (capng_have_capabilities(CAPNG_SELECT_CAPS) == CAPNG_NONE) // a unit may forbid what would give up nothing
        return forbid_new_ones();
    std::vector<int> held;
    for (const int capability : kept)
        if (capng_have_capability(CAPNG_PERMITTED, capability))
            held.push_back(capability);
    const bool may_bound = capng_have_capability(CAPNG_EFFECTIVE, CAP_SETPCAP);
    capng_clear(CAPNG_SELECT_BOTH);
    for (const int capability : held)
        // inheritable, or a user other than root loses them in a reload, which executes the program anew
        capng_update(CAPNG_ADD,
                     static_cast<capng_type_t>(CAPNG_EFFECTIVE | CAPNG_PERMITTED | CAPNG_INHERITABLE | CAPNG_BOUNDING_SET),
                     static_cast<unsigned>(capability));
    if (may_bound && capng_apply(CAPNG_SELECT_BOUNDS))
        throw std::system_error(errno, std::generic_category(), "capabilities: the bounding set");
    if (capng_apply(CAPNG_SELECT_CAPS))
        throw std::system_error(errno, std::generic_category(), "capabilities");
    forbid_new_ones();
}

bool has_capabilities(std::initializer_list<int> wanted) {
    capng_get_caps_process();
    return std::ranges::all_of(
        wanted, [](int capability) { return capng_have_capability(CAPNG_EFFECTIVE, static_cast<unsigned>(capability)); });
}

} // namespace inagg
