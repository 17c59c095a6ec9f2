// SPDX-License-Identifier: BSD-2-Clause
#include "carrier.hpp"

#include "block_carrier.hpp"
#include "options.hpp"
#include "transports.hpp"

#include <inagg/core/tensor.h>

#include <algorithm>

namespace inagg {

uint32_t block_elements(uint16_t elements, inagg_dtype dtype, inagg_op op, bool tree) {
    return inagg_block_elements(elements, inagg_wire_encoding(dtype, carried(op), tree) >> 4);
}

inagg_outcome outcome_of(const Operation &operation, uint16_t size) {
    const uint64_t all = inagg_all_ranks(size);
    inagg_outcome outcome{};
    outcome.struct_size = sizeof(outcome);
    outcome.blocks = operation.blocks;
    outcome.block_elements = operation.block_elements;
    outcome.in_all = outcome.in_any = all;
    outcome.fewest = size;
    if (!operation.contributors.empty())
        outcome.in_any = 0;
    for (const uint64_t ranks : operation.contributors) {
        outcome.degraded_blocks += ranks != all;
        outcome.in_all &= ranks;
        outcome.in_any |= ranks;
        outcome.fewest = std::min(outcome.fewest, static_cast<uint16_t>(inagg_count_ranks(ranks)));
    }
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
};

constexpr unsigned switchml = 1 << INAGG_SWITCHML, trio = 1 << INAGG_TRIO, atp = 1 << INAGG_ATP;

// The fastest first.
constexpr Choice choices[] = {
#ifdef INAGG_XDP
    {"xdp", over<make_xdp>, switchml},
    {"afxdp", over<make_afxdp>, switchml | trio},
#endif
    {"kernel", make_kernel, switchml},
    {"udp", over<make_udp>, switchml | trio | atp},
};

// An error that says something about this machine and not about the job or the switch.
bool is_local(const Error &error) {
    return error.code() == INAGG_EPRIVILEGE || error.code() == INAGG_ESYSTEM;
}

bool does(const Choice &choice, std::string_view algorithm) {
    return choice.algorithms >> algorithm_number(algorithm) & 1;
}

// Names those that have it.
Error no_algorithm(std::string_view transport, std::string_view algorithm) {
    std::string others;
    for (const Choice &choice : choices)
        if (does(choice, algorithm))
            others += fmt::format("{}, ", choice.name);
    if (others.empty())
        return {INAGG_EINVAL, "algorithm '{}' is not in this version", algorithm};
    return {INAGG_EINVAL, "transport '{}' does not do algorithm '{}': use {} or auto", transport, algorithm,
            others.substr(0, others.size() - 2)};
}

void add_note(std::string &note, const Choice &choice, std::string_view why) {
    note += fmt::format("{}{}: {}", note.empty() ? "" : "; ", choice.name, why);
}

std::unique_ptr<Carrier> make_best(const inagg_options &options, std::string &note) {
    for (const Choice &choice : choices) {
        if (!does(choice, options.algorithm)) {
            add_note(note, choice, fmt::format("does not do algorithm {}", options.algorithm));
            continue;
        }
        try {
            return choice.make(options);
        } catch (const Error &error) {
            if (!is_local(error) || &choice == std::end(choices) - 1)
                throw;
            add_note(note, choice, error.what());
        }
    }
    throw no_algorithm("auto", options.algorithm);
}

} // namespace

std::unique_ptr<Carrier> make_carrier(const inagg_options &options, std::string &note) {
    const std::string_view name = options.transport;
    if (name == "auto")
        return make_best(options, note);
    const auto choice = std::ranges::find(choices, name, &Choice::name);
    if (choice == std::end(choices))
        throw Error(INAGG_EINVAL, "transport '{}' is not in this build of libinagg", name);
    if (!does(*choice, options.algorithm))
        throw no_algorithm(name, options.algorithm);
    return choice->make(options);
}

} // namespace inagg
