// SPDX-License-Identifier: BSD-2-Clause
// Options: defaults, environment, validation.
#pragma once

#include <inagg/inagg.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace inagg {

inagg_options default_options();

inline uint32_t join_timeout_ms(const inagg_options &options) {
    return options.join_timeout_ms ? options.join_timeout_ms : options.timeout_ms;
}

// default_options() changed by the environment; throws INAGG_EINVAL naming the variable and the fix.
inagg_options options_from_env();
// The same, but rank and size are these.
inagg_options options_for_rank(uint16_t rank, uint16_t size);

// A job's trees are options.trees jobs: these are the options of the `index`th.
inagg_options options_of_tree(const inagg_options &options, uint16_t index);

// Throws INAGG_EINVAL for values that no job can have.
void validate(const inagg_options &options);

// Number of the algorithm called `name`; throws INAGG_EINVAL if there is none.
uint8_t algorithm_number(std::string_view name);
std::string_view algorithm_name(uint8_t number);

} // namespace inagg
