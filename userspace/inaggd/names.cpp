// SPDX-License-Identifier: BSD-2-Clause
#include "names.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

namespace inaggd {
namespace {

constexpr ReasonName reason_table[] = {
#define ROW(number, name, text) {number, #name, text},
    INAGG_REASONS(ROW)
#undef ROW
};

constexpr std::string_view algorithm_table[INAGG_ALGORITHMS] = {"switchml", "trio", "atp", "panama", "canary"};

// RFC 4291, 2.5.5.2.
constexpr std::array<uint8_t, 12> ipv4_mapped = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

const ReasonName *find_reason(int number) {
    auto row =
        std::find_if(std::begin(reason_table), std::end(reason_table), [&](const ReasonName &r) { return r.number == number; });
    return row == std::end(reason_table) ? nullptr : row;
}

} // namespace

std::span<const ReasonName> reasons() { return reason_table; }

std::string reason_name(int number) {
    const ReasonName *row = find_reason(number);
    return row ? std::string(row->name) : fmt::format("{}", number);
}

std::string_view reason_text(int number) {
    const ReasonName *row = find_reason(number);
    return row ? row->text : "unknown to this version";
}

std::string algorithm_name(int algorithm) {
    if (algorithm >= 0 && algorithm < INAGG_ALGORITHMS)
        return std::string(algorithm_table[algorithm]);
    return fmt::format("{}", algorithm);
}

bool is_available(int algorithm) { return algorithm >= INAGG_SWITCHML && algorithm < INAGG_ALGORITHMS; }

std::optional<uint8_t> algorithm_number(std::string_view name) {
    auto row = std::find(std::begin(algorithm_table), std::end(algorithm_table), name);
    if (row == std::end(algorithm_table))
        return std::nullopt;
    return static_cast<uint8_t>(row - std::begin(algorithm_table));
}

std::optional<Address> Address::parse(const std::string &text) {
    Address address;
    if (inet_pton(AF_INET, text.c_str(), address.bytes.data()) == 1)
        address.family = 4;
    else if (inet_pton(AF_INET6, text.c_str(), address.bytes.data()) == 1)
        address.family = 6;
    else
        return std::nullopt;
    return address;
}

Address Address::of(const inagg_member &member) {
    Address address{.family = member.family};
    std::memcpy(address.bytes.data(), member.address, sizeof member.address);
    return address;
}

Address Address::of_mapped(const uint8_t (&mapped)[16]) {
    const bool is_ipv4 = std::equal(ipv4_mapped.begin(), ipv4_mapped.end(), mapped);
    Address address{.family = static_cast<uint8_t>(is_ipv4 ? 4 : 6)};
    std::copy(mapped + (is_ipv4 ? ipv4_mapped.size() : 0), std::end(mapped), address.bytes.begin());
    return address;
}

std::array<uint8_t, 16> Address::mapped() const {
    if (family != 4)
        return bytes;
    std::array<uint8_t, 16> mapped{};
    std::copy_n(bytes.begin(), 4, std::copy(ipv4_mapped.begin(), ipv4_mapped.end(), mapped.begin()));
    return mapped;
}

std::string Address::text() const {
    char buffer[INET6_ADDRSTRLEN] = "none";
    if (family)
        inet_ntop(family == 4 ? AF_INET : AF_INET6, bytes.data(), buffer, sizeof buffer);
    return buffer;
}

bool Address::is_host() const {
    if (family == 4)
        return bytes[0] != 0 && bytes[0] != 127 && bytes[0] < 224;
    if (family != 6 || bytes[0] == 0xff)
        return false;
    return std::any_of(bytes.begin(), bytes.end() - 1, [](uint8_t byte) { return byte != 0; });
}

bool Address::is_loopback() const {
    if (family == 4)
        return bytes[0] == 127;
    return family == 6 && bytes.back() == 1 &&
           std::all_of(bytes.begin(), bytes.end() - 1, [](uint8_t byte) { return byte == 0; });
}

socklen_t Address::to_sockaddr(uint16_t port, sockaddr_storage &storage) const {
    storage = {};
    if (family == 4) {
        auto &in = reinterpret_cast<sockaddr_in &>(storage);
        in.sin_family = AF_INET;
        in.sin_port = port;
        std::memcpy(&in.sin_addr, bytes.data(), sizeof in.sin_addr);
        return sizeof in;
    }
    auto &in6 = reinterpret_cast<sockaddr_in6 &>(storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_port = port;
    std::memcpy(&in6.sin6_addr, bytes.data(), sizeof in6.sin6_addr);
    return sizeof in6;
}

std::string mac_text(const uint8_t (&mac)[6]) { return fmt::format("{:02x}", fmt::join(mac, ":")); }

} // namespace inaggd
