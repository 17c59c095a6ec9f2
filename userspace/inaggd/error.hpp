// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include <unistd.h>

namespace inaggd {

// What the user reads: names the value that is wrong and what to do about it.
class Error : public std::runtime_error {
public:
    template <typename... Args>
    explicit Error(fmt::format_string<Args...> format, Args &&...args)
        : std::runtime_error(fmt::format(format, std::forward<Args>(args)...)) {}
};

// Text of an error number, and what helps if privileges are missing; accepts libbpf's negative ones.
inline std::string system_text(int error) {
    const int number = error < 0 ? -error : error;
    const bool forbidden = (number == EPERM || number == EACCES) && geteuid() != 0;
    return fmt::format("{}{}", std::strerror(number), forbidden ? " (run as root)" : "");
}

} // namespace inaggd
