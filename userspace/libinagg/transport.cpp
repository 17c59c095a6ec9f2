// SPDX-License-Identifier: BSD-2-Clause
#include "transport.hpp"

#include "error.hpp"
#include "transports.hpp"

#include <string_view>

namespace inagg {

namespace {

struct Choice {
    std::string_view name;
    std::unique_ptr<Transport> (*make)(const inagg_options &, BlockClient &);
};

// The fastest first.
constexpr Choice choices[] = {
#ifdef INAGG_XDP
    {"xdp", make_xdp},
    {"afxdp", make_afxdp},
#endif
    {"udp", make_udp},
};

// An error that says something about this machine and not about the job or the switch.
bool is_local(const Error &error) {
    return error.code() == INAGG_EPRIVILEGE || error.code() == INAGG_ESYSTEM;
}

std::unique_ptr<Transport> make_best(const inagg_options &options, BlockClient &client, std::string &note) {
    for (const Choice &choice : choices) {
        try {
            return choice.make(options, client);
        } catch (const Error &error) {
            if (!is_local(error) || &choice == std::end(choices) - 1)
                throw;
            note += fmt::format("{}{}: {}", note.empty() ? "" : "; ", choice.name, error.what());
        }
    }
    return nullptr; // not reached: the last choice returns or throws
}

} // namespace

std::unique_ptr<Transport> make_transport(const inagg_options &options, BlockClient &client,
                                          std::string &note) {
    const std::string_view name = options.transport;
    if (name == "auto")
        return make_best(options, client, note);
    for (const Choice &choice : choices)
        if (choice.name == name)
            return choice.make(options, client);
    throw Error(INAGG_EINVAL, "transport '{}' is not in this build of libinagg", name);
}

} // namespace inagg
