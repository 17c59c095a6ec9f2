// SPDX-License-Identifier: BSD-2-Clause
#include "secrets.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace inagg {

std::string objection_to_secrets(int fd) {
    constexpr off_t most_bytes = 1 << 20;
    struct stat about {};
    if (fstat(fd, &about))
        return std::strerror(errno);
    if (!S_ISREG(about.st_mode) || about.st_size > most_bytes)
        return "not a file of keys";
    if (about.st_uid != 0 && about.st_uid != geteuid())
        return fmt::format("it belongs to user {}, who could change it: chown root", about.st_uid);
    if (about.st_mode & (S_IRWXG | S_IRWXO))
        return fmt::format("others than its owner may use it (mode {:04o}): chmod 600", about.st_mode & 07777);
    return "";
}

} // namespace inagg
