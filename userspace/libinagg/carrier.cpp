// SPDX-License-Identifier: BSD-2-Clause
#include "carrier.hpp"

#include "block_carrier.hpp"
#include "transports.hpp"

namespace inagg {

namespace {

template <BlockCarrier::MakeTransport make> std::unique_ptr<Carrier> over(const inagg_options &options) {
    return std::make_unique<BlockCarrier>(options, make);
}

struct Choice {
    std::string_view name;
    std::unique_ptr<Carrier> (*make)(const inagg_options &);
};

// The fastest first.
constexpr Choice choices[] = {
#ifdef INAGG_XDP
    {"xdp", over<make_xdp>},
    {"afxdp", over<make_afxdp>},
#endif
    {"kernel", make_kernel},
    {"udp", over<make_udp>},
};

// An error that says something about this machine and not about the job or the switch.
bool is_local(const Error &error) {
    return error.code() == INAGG_EPRIVILEGE || error.code() == INAGG_ESYSTEM;
}

std::unique_ptr<Carrier> make_best(const inagg_options &options, std::string &note) {
    for (const Choice &choice : choices) {
        try {
            return choice.make(options);
        } catch (const Error &error) {
            if (!is_local(error) || &choice == std::end(choices) - 1)
                throw;
            note += fmt::format("{}{}: {}", note.empty() ? "" : "; ", choice.name, error.what());
        }
    }
    return nullptr; // not reached: the last choice returns or throws
}

} // namespace

std::unique_ptr<Carrier> make_carrier(const inagg_options &options, std::string &note) {
    const std::string_view name = options.transport;
    if (name == "auto")
        return make_best(options, note);
    for (const Choice &choice : choices)
        if (choice.name == name)
            return choice.make(options);
    throw Error(INAGG_EINVAL, "transport '{}' is not in this build of libinagg", name);
}

} // namespace inagg
