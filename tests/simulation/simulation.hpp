// SPDX-License-Identifier: BSD-2-Clause
// Discrete-event simulation of one switch and its workers, both made of include/inagg/core, over a
// network that drops, doubles, delays and reorders, while switches restart and workers sleep or die.
//
// Checked at every step: what a slot holds is exactly the sum of the ranks that it names, each once;
// what a rank accepts is the sum of all ranks, the same bits everywhere; nobody lags more than one
// phase; a rank is only asked for its latest result; nothing honest is refused. At the end: everyone
// has everything, or, where a rank was killed, an error that names exactly that rank.
#pragma once

#include "scenario.hpp"

#include <stdexcept>

namespace simulation {

// A rule that is broken on purpose, to see that the checks notice.
enum class Mutation {
    none,
    ignore_seen,       // the switch folds duplicates in
    one_copy,          // no shadow copy: the pool version is ignored
    ignore_block,      // the switch folds whatever comes into what is there, as if numbers did not matter
    complete_early,    // a block completes without its highest rank
    no_restore,        // holders keep what they hold to themselves
    no_resend,         // time-outs pass unused
    accept_any_result, // workers take any result of the right slot
    no_put_off,        // a WAIT does not put requests off
    forget_result,     // a worker keeps no result for restoring once its next block is sent
};

struct Options {
    uint64_t seed = 1;
    std::optional<uint32_t> ranks;
    Mutation mutation = Mutation::none;
    bool verbose = false;
};

struct Violation : std::runtime_error {
    using runtime_error::runtime_error;
};

struct Outcome {
    uint64_t events, packets, dropped, blocks, restores;
};

// Runs the seed's scenario to its end. Throws Violation when an invariant breaks.
Outcome simulate(const Options &options);

} // namespace simulation
