// SPDX-License-Identifier: BSD-2-Clause
// Discrete-event simulation of one switch and its workers, both made of include/inagg/core, over a
// network that drops, doubles, delays and reorders, while switches restart and workers sleep or die.
//
// Checked at every step of switchml: what a slot holds is exactly the sum of the ranks that it names, each
// once; what a rank accepts is the sum of all ranks, the same bits everywhere; nobody lags more than one
// phase; a rank is only asked for its latest result; nothing honest is refused. At the end: everyone
// has everything, or, where a rank was killed, an error that names exactly that rank.
//
// With `tree`, the same of a tree of switches, each of which may forget by itself; an error may name ranks that are
// behind the same switch as the one that was killed. With trio nobody is excluded then.
//
// Of atp the root of the tree is a server, which never forgets, and the others have aggregators, fewer than are needed.
// Some ranks' elements do not fit their scale: then the block is the sum of all ranks' floats.
//
// Of panama, always a tree of one switch or more: what climbs may be lost between two steps, buffers run out, and the slot may
// begin another block meanwhile. Each switch's sum has the bits that the order of its children gives, and no buffer is lost.
//
// Of canary: leaves and spines with a few descriptors each, spines that die and links that fail. A descriptor's open sum,
// every partial sum and what a leader holds are the sums of the ranks that they name, each once, and no packet on its
// way to the leader has what the leader adds. A rank may be named that waits for one which the killed rank never
// answered; who follows the names from error to error ends at the killed rank.
//
// Of trio: a record is the sum of the ranks that it names; the first result of a block that any rank accepts
// is the only one that any ever accepts; ranks are missing only where the job's policy permits, and only as
// soon and as late as its expiry says; no other job's record is touched; open records are counted right. Of a
// rank that is excluded, at any moment, a result may differ from the others' only in blocks that these
// decided anew after the switch had forgotten them. It may come back as a new one, and is in the next generation, which begins
// when all that remain have finished the same tensors; its blocks have the numbers of those before. At the end: everyone who
// remains has everything, unless it needs a rank that was killed and not excluded, or, with a short history, it fell behind by
// more than all ranks keep.
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
    // of trees
    one_partial,  // a switch sends no partial sum twice
    keep_restore, // a switch passes no RESTORE on to its parent
    // of trio's
    answer_stale, // it answers with a result of any epoch
    keep_overlap, // it keeps a sum that the root will never add
    hold_back,    // it lets a sum wait for a rank that never comes
    hide_whole,   // its sums do not say that they are of a block for all ranks
    // of atp
    merge_overlaps, // an aggregator adds what it has already
    keep_repeats,   // it takes repeats for first packets, and waits on
    count_fixed,    // the server takes what comes as fixed point for floats
    // of panama
    as_they_come,  // floats are added in the order in which they come
    mix_turns,     // what climbs does not notice that its block has begun anew
    keep_lost,     // what climbs goes on though some of its block is lost
    wait_for_lost, // a parent's WAIT is passed down as if nothing were lost here
    keep_buffers,  // what waits for its sibling in vain keeps its buffer until the slot's next block
    keep_places,   // a block whose sum is finished keeps its place until the slot's next block
    first_come,    // no block gives way to an earlier one
    never_idle,    // nor one that nobody waits for
    // of canary
    fold_bypass,   // a switch sums what is to pass it
    silent_leader, // a leader answers no question
    // of trio
    all_fresh,        // the switch takes every block for one that was never sent before
    ignore_epoch,     // contributions of any epoch count
    believe_anything, // workers accept results of epochs that they gave up
    restore_as_all,   // a RESTORE names all ranks
    evict_open,       // an open record makes room
    expire_whole,     // sweeps give up on recovering and whole records
    hide_degraded,    // a result without some ranks does not say so
    touch_by_any,     // what is no new rank keeps a record from expiring
    no_way_kept,      // new blocks may fill a bucket, and keep it from earlier ones
    forget_floor,     // a new block does not raise its floor
    take_excluded,    // an excluded rank's packets count
    await_excluded,   // blocks wait for excluded ranks
    find_floor,       // a lost floor is found though a rank is excluded
    any_generation,   // the switch takes packets of any generation
    keep_records,     // what is known of blocks outlives its generation
    believe_old,      // workers accept results of any generation
};

struct Options {
    uint64_t seed = 1;
    inagg_algorithm algorithm = INAGG_SWITCHML;
    std::optional<uint32_t> ranks;
    bool tree = false; // of switches
    Mutation mutation = Mutation::none;
    bool verbose = false;
};

struct Violation : std::runtime_error {
    using runtime_error::runtime_error;
};

struct Outcome {
    uint64_t events, packets, dropped, blocks, restores;
    uint64_t degraded, recoveries, refused, late, outrun, excluded, returned; // trio
    uint64_t fallen, full; // panama: climbers that were lost, packets without a buffer
    // canary
    uint64_t reissues, collisions, stragglers, bypasses, timers, asked, detours, deaths;
};

// Runs the seed's scenario to its end. Throws Violation when an invariant breaks.
Outcome simulate(const Options &options);

} // namespace simulation
