// SPDX-License-Identifier: BSD-2-Clause
// The one exception of libinagg: an error number of the C API and a message for a person.
#pragma once

#include <inagg/inagg.h>

#include <fmt/format.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

namespace inagg {

class Error : public std::runtime_error {
public:
    Error(inagg_error code, const std::string &message) : std::runtime_error(message), code_(code) {}

    template <typename... Args>
    Error(inagg_error code, fmt::format_string<Args...> format, Args &&...args)
        : Error(code, fmt::format(format, std::forward<Args>(args)...)) {}

    inagg_error code() const noexcept { return code_; }

private:
    inagg_error code_;
};

// A failed system call: "WHAT: reason of errno".
inline Error system_error(const std::string &what, int error = errno) {
    return Error(INAGG_ESYSTEM, fmt::format("{}: {}", what, std::strerror(error)));
}

} // namespace inagg
