// SPDX-License-Identifier: BSD-2-Clause
#include "errors.hpp"

#include <fmt/core.h>

#include <map>
#include <mutex>

namespace inagg::mpi {

int error_code(const std::string &text) {
    static std::mutex mutex;
    static std::map<std::string, int> codes; // MPI forgets none: the same failure again takes no new one
    static int error_class = MPI_SUCCESS;
    const std::lock_guard lock(mutex);
    if (error_class == MPI_SUCCESS)
        PMPI_Add_error_class(&error_class);
    const auto [found, is_new] = codes.try_emplace(text.substr(0, MPI_MAX_ERROR_STRING - 1), error_class);
    if (is_new) {
        PMPI_Add_error_code(error_class, &found->second);
        PMPI_Add_error_string(found->second, found->first.c_str());
    }
    return found->second;
}

int raise(MPI_Comm comm, int code) {
    PMPI_Comm_call_errhandler(comm, code);
    return code;
}

std::string describe(MPI_Comm comm) {
    char name[MPI_MAX_OBJECT_NAME];
    int length = 0, size = 0;
    PMPI_Comm_get_name(comm, name, &length);
    if (length)
        return {name, static_cast<std::size_t>(length)};
    PMPI_Comm_size(comm, &size);
    return fmt::format("a communicator of {}", size);
}

} // namespace inagg::mpi
