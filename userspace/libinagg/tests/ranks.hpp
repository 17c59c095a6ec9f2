// SPDX-License-Identifier: BSD-2-Clause
// Runs the ranks of a job as threads against a SoftwareSwitch, over udp: the transport that needs no privileges.
#pragma once

#include "communicator.hpp"
#include "options.hpp"
#include "software_switch.hpp"

#include <cstring>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace inagg {

inline inagg_options options_for(const std::string &address, uint16_t rank, uint16_t size, uint16_t job = 7) {
    inagg_options options = default_options();
    address.copy(options.switch_address, sizeof(options.switch_address) - 1);
    std::strcpy(options.transport, "udp");
    options.job = job;
    options.rank = rank;
    options.size = size;
    return options;
}

inline inagg_options options_for(const SoftwareSwitch &software_switch, uint16_t rank, uint16_t size, uint16_t job = 7) {
    return options_for(software_switch.address(), rank, size, job);
}

// What ranks leave with: a control block, of the first tree.
inline constexpr uint64_t leaving = 1;

template <typename T>
std::vector<T> reduced(Communicator &comm, std::vector<T> data, inagg_dtype dtype, inagg_op op = INAGG_SUM) {
    comm.wait(*comm.allreduce(data.data(), data.data(), data.size(), dtype, op));
    return data;
}

// Calls body(communicator) once for each rank, in threads; throws the first exception of any.
inline void run_ranks(const std::string &address, uint16_t size, const std::function<void(Communicator &)> &body,
                      const std::function<void(inagg_options &)> &change = {}) {
    std::vector<std::exception_ptr> errors(size);
    std::vector<std::thread> threads;
    for (uint16_t rank = 0; rank < size; rank++)
        threads.emplace_back([&, rank] {
            try {
                inagg_options options = options_for(address, rank, size);
                if (change)
                    change(options);
                Communicator communicator(options);
                body(communicator);
                communicator.leave();
            } catch (...) {
                errors[rank] = std::current_exception();
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    for (const std::exception_ptr &error : errors)
        if (error)
            std::rethrow_exception(error);
}

inline void run_ranks(const SoftwareSwitch &software_switch, uint16_t size, const std::function<void(Communicator &)> &body,
                      const std::function<void(inagg_options &)> &change = {}) {
    run_ranks(software_switch.address(), size, body, change);
}

} // namespace inagg
