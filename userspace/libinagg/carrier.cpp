// SPDX-License-Identifier: BSD-2-Clause
#include "carrier.hpp"

#include "block_carrier.hpp"
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
    bool trio; // keeps results that come before they are asked for
};

// The fastest first.
constexpr Choice choices[] = {
#ifdef INAGG_XDP
    {"xdp", over<make_xdp>, false},
    {"afxdp", over<make_afxdp>, true},
#endif
    {"kernel", make_kernel, false},
    {"udp", over<make_udp>, true},
};

// An error that says something about this machine and not about the job or the switch.
bool is_local(const Error &error) {
    return error.code() == INAGG_EPRIVILEGE || error.code() == INAGG_ESYSTEM;
}

bool does(const Choice &choice, std::string_view algorithm) { return choice.trio || algorithm != "trio"; }

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
    return nullptr; // not reached: the last choice returns or throws
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
        throw Error(INAGG_EINVAL, "transport '{}' does not do algorithm '{}': use udp, afxdp or auto", name,
                    options.algorithm);
    return choice->make(options);
}

} // namespace inagg
