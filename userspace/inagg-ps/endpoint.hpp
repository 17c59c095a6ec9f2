// SPDX-License-Identifier: BSD-2-Clause
// Who packets come from and go to.
#pragma once

#include "names.hpp"

#include <inagg/wire.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace ps {

struct Endpoint {
    inaggd::Address address{};
    __be16 port = 0; // UDP; 0: nobody

    bool operator==(const Endpoint &) const = default;
};

// Takes what the server sends.
class Outbox {
public:
    virtual ~Outbox() = default;
    // The packet, once to each endpoint. Nothing of it is needed after the call; a copy may get lost, as in a network.
    virtual void send(const inagg_hdr &header, std::span<const std::byte> payload, std::span<const Endpoint> to) = 0;
};

} // namespace ps
