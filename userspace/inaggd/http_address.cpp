// SPDX-License-Identifier: BSD-2-Clause
#include "http_address.hpp"

#include "common/fd.hpp"
#include "error.hpp"
#include "names.hpp"

#include <netinet/in.h>
#include <sys/socket.h>

#include <charconv>
#include <cstdint>
#include <optional>
#include <string_view>

namespace inaggd {
namespace {

struct HostPort {
    Address address;
    uint16_t port;
};

std::optional<uint16_t> parse_port(std::string_view text) {
    uint16_t port = 0;
    const char *end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, port);
    return error == std::errc() && rest == end && port ? std::optional(port) : std::nullopt;
}

std::optional<HostPort> parse_host_port(const std::string &text) {
    const size_t colon = text.find(':');
    const auto address = Address::parse(colon == std::string::npos ? "127.0.0.1" : text.substr(0, colon));
    const auto port = parse_port(std::string_view(text).substr(colon == std::string::npos ? 0 : colon + 1));
    if (!address || !port)
        return std::nullopt;
    return HostPort{*address, *port};
}

void need_bind(const std::string &option, const std::string &where, const HostPort &own) {
    constexpr int on = 1;
    sockaddr_storage name;
    const socklen_t length = own.address.to_sockaddr(htons(own.port), name);
    const inagg::Fd fd(socket(name.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd || setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) || // connections may linger there
        bind(fd.get(), reinterpret_cast<sockaddr *>(&name), length))
        throw Error("{} {}: {}", option, where, system_text(errno));
}

} // namespace

CLI::Validator http_address() {
    return {[](std::string &text) {
                const auto where = parse_host_port(text);
                if (!where)
                    return text + ": write it as ADDRESS:PORT, with an IPv4 address, or as PORT, which is at 127.0.0.1";
                text = fmt::format("{}:{}", where->address.text(), where->port);
                return std::string();
            },
            "ADDRESS:PORT"};
}

void need_own_address(const std::string &option, const std::string &where) {
    need_bind(option, where, {parse_host_port(where).value().address, 0}); // any port: an agent that runs has its own
}

void need_free_address(const std::string &option, const std::string &where) {
    need_bind(option, where, parse_host_port(where).value());
}

bool overlap(const std::string &one, const std::string &other) {
    const auto a = parse_host_port(one), b = parse_host_port(other);
    const auto is_any = [](const HostPort &at) { return at.address.text() == "0.0.0.0"; };
    return a && b && a->port == b->port && (is_any(*a) || is_any(*b) || a->address.text() == b->address.text());
}

} // namespace inaggd
