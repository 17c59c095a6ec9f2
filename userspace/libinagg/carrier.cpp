// SPDX-License-Identifier: BSD-2-Clause
#include "carrier.hpp"

#include "block_carrier.hpp"
#include "by_size.hpp"
#include "forest.hpp"
#include "options.hpp"
#include "transports.hpp"
#include "wide.hpp"

#include <inagg/core/roll.h>

#include <algorithm>

namespace inagg {

uint32_t block_elements(uint16_t elements, inagg_dtype dtype, inagg_op op, uint32_t floats) {
    return inagg_block_elements(elements, inagg_wire_encoding(dtype, carried(op), floats) >> 4);
}

// A linear check knows sums of integers.
void check_verifiable(const Call &call, const inagg_options &options, uint32_t floats) {
    if (!options.key[0] || call.kind != Call::Kind::reduction || call.is_agreement)
        return;
    if (carried(call.op) != INAGG_SUM)
        throw Error(INAGG_EINVAL, "a {} with a key: only sums can be verified; join without INAGG_KEY, or in another job",
                    call.op == INAGG_MIN ? "minimum" : "maximum");
    if (floats == INAGG_FLOATS_RAW && call.dtype != INAGG_INT32)
        throw Error(INAGG_EINVAL,
                    "a float sum with a key and algorithm '{}': it adds floats, and only sums of integers and "
                    "fixed point can be verified; use another algorithm, or FLOAT64",
                    options.algorithm);
}

inagg_outcome outcome_of(const Operation &operation, uint16_t size) {
    inagg_roll roll;
    inagg_roll_init(&roll, size);
    for (const uint64_t ranks : operation.contributors)
        inagg_roll_call(&roll, ranks);
    inagg_outcome outcome{};
    outcome.struct_size = sizeof(outcome);
    outcome.blocks = operation.blocks;
    outcome.block_elements = operation.block_elements;
    outcome.degraded_blocks = roll.degraded;
    outcome.in_all = roll.in_all;
    outcome.in_any = roll.in_any;
    outcome.fewest = roll.fewest;
    return outcome;
}

namespace {

template <BlockCarrier::MakeTransport make> std::unique_ptr<Carrier> over(const inagg_options &options) {
    return std::make_unique<BlockCarrier>(options, make);
}

struct Choice {
    std::string_view name;
    std::unique_ptr<Carrier> (*make)(const inagg_options &);
    unsigned algorithms; // bitmap of enum inagg_algorithm
    bool many_trees;     // several in one process, and they tell when something has come
    bool verifies;       // results
};

constexpr unsigned switchml = 1 << INAGG_SWITCHML, trio = 1 << INAGG_TRIO, atp = 1 << INAGG_ATP, panama = 1 << INAGG_PANAMA,
                   canary = 1 << INAGG_CANARY;

// The fastest first.
constexpr Choice choices[] = {
#ifdef INAGG_XDP
    {"xdp", over<make_xdp>, switchml, false, false},
    {"afxdp", over<make_afxdp>, switchml | trio | atp | panama | canary, false, true},
#endif
    {"kernel", make_kernel, switchml | trio, true, true},
    {"udp", over<make_udp>, switchml | trio | atp | panama | canary, true, true},
};

// An error that says something about this machine and not about the job or the switch.
bool is_local(const Error &error) { return error.code() == INAGG_EPRIVILEGE || error.code() == INAGG_ESYSTEM; }

// Why it cannot do what the options ask for; empty if it can.
std::string objection(const Choice &choice, const inagg_options &options) {
    if (!(choice.algorithms >> algorithm_number(options.algorithm) & 1))
        return fmt::format("does not do algorithm '{}'", options.algorithm);
    if (options.trees > 1 && !choice.many_trees)
        return "carries one tree only";
    if (options.key[0] && !choice.verifies)
        return "does not verify results with a key";
    return {};
}

Error no_choice(const inagg_options &options, const std::string &why) {
    std::string others;
    for (const Choice &choice : choices)
        if (objection(choice, options).empty())
            others += fmt::format("{}, ", choice.name);
    if (others.empty())
        return {INAGG_EINVAL, "algorithm '{}' is not in this version", options.algorithm};
    return {INAGG_EINVAL, "transport '{}' {}: use {}auto", options.transport, why, others.replace(others.size() - 2, 2, " or ")};
}

void add_note(std::string &note, const Choice &choice, std::string_view why) {
    note += fmt::format("{}{}: {}", note.empty() ? "" : "; ", choice.name, why);
}

std::unique_ptr<Carrier> make_best(const inagg_options &options, std::string &note) {
    for (const Choice &choice : choices) {
        if (const std::string why = objection(choice, options); !why.empty()) {
            add_note(note, choice, why);
            continue;
        }
        try {
            return choice.make(options_of_tree(options, 0));
        } catch (const Error &error) {
            if (!is_local(error) || &choice == std::end(choices) - 1)
                throw;
            add_note(note, choice, error.what());
        }
    }
    throw no_choice(options, "");
}

std::unique_ptr<Carrier> make_named(std::string_view name, const inagg_options &options, uint16_t tree) {
    const auto choice = std::ranges::find(choices, name, &Choice::name);
    if (choice == std::end(choices))
        throw Error(INAGG_EINVAL, "transport '{}' is not in this build of libinagg", name);
    if (const std::string why = objection(*choice, options); !why.empty())
        throw no_choice(options, why);
    return choice->make(options_of_tree(options, tree));
}

// All or none: who cannot join all jobs leaves those that it has joined, and nobody waits for it there.
std::vector<std::unique_ptr<Carrier>> make_trees(const inagg_options &options, std::string &note) {
    const std::string_view asked = options.transport;
    std::vector<std::unique_ptr<Carrier>> trees;
    trees.push_back(asked == "auto" ? make_best(options, note) : make_named(asked, options, 0));
    try {
        while (trees.size() < options.trees)
            trees.push_back(make_named(trees[0]->name(), options, static_cast<uint16_t>(trees.size())));
    } catch (...) {
        leave_all(trees);
        throw;
    }
    return trees;
}

} // namespace

void leave_all(const std::vector<std::unique_ptr<Carrier>> &trees) {
    for (const auto &tree : trees)
        try {
            tree->leave();
        } catch (const Error &) {
            // the other trees are to hear it all the same
        }
}

std::unique_ptr<Carrier> make_carrier(const inagg_options &options, std::string &note) {
    std::unique_ptr<Ring> ring; // it may fail: before others count on this rank
    if (options.aggregate_from && options.size > 1)
        ring = std::make_unique<Ring>(options);
    std::vector<std::unique_ptr<Carrier>> trees = make_trees(options, note);
    std::unique_ptr<Carrier> carrier;
    if (trees.size() == 1)
        carrier = std::move(trees[0]);
    else
        carrier = std::make_unique<Forest>(options, std::move(trees));
    if (ring)
        carrier = std::make_unique<BySize>(options, std::move(ring), std::move(carrier));
    return std::make_unique<Wide>(options, std::move(carrier));
}

} // namespace inagg
