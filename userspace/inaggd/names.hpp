// SPDX-License-Identifier: BSD-2-Clause
// Names of the numbers on the wire and in the maps, and addresses as text.
#pragma once

#include <inagg/core/job.h>
#include <inagg/reason.h>
#include <inagg/wire.h>

#include <array>
#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <sys/socket.h>

namespace inaggd {

struct ReasonName {
    int number;
    std::string_view name, text;
};

// All reasons in order of their numbers.
std::span<const ReasonName> reasons();
// The reason's name; a later version's number as digits.
std::string reason_name(int number);
std::string_view reason_text(int number);

std::string algorithm_name(int algorithm);
// Does this switch have it?
bool is_available(int algorithm);
std::optional<uint8_t> algorithm_number(std::string_view name);

// An IPv4 (first 4 bytes) or IPv6 address.
struct Address {
    uint8_t family = 0; // 4, 6 or 0: none
    std::array<uint8_t, 16> bytes{};

    static std::optional<Address> parse(const std::string &text);
    static Address of(const inagg_member &member);
    // An IPv6 address, or an IPv4 address mapped into one: ::ffff:a.b.c.d.
    static Address of_mapped(const uint8_t (&mapped)[16]);
    std::array<uint8_t, 16> mapped() const;
    std::string text() const;
    // Not the unspecified, loopback, multicast or broadcast address.
    bool is_host() const;
    bool is_loopback() const;
    // For the socket calls; returns its length. `port` is in network order.
    socklen_t to_sockaddr(uint16_t port, sockaddr_storage &storage) const;
    auto operator<=>(const Address &) const = default;
};

std::string mac_text(const uint8_t (&mac)[6]);

} // namespace inaggd
