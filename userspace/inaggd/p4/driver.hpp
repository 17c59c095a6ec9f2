// SPDX-License-Identifier: BSD-2-Clause
// A P4 target, as its agent sees it.
#pragma once

#include "p4/entries.hpp"

#include <cstdint>
#include <vector>

namespace inaggd::p4 {

// Who cannot do what is asked throws Error: the switch is gone, or has another program.
class Driver {
public:
    virtual ~Driver() = default;
    // Nothing is in tables, multicast groups and registers.
    virtual void reset() = 0;
    // Adds the entry, or gives the one with its key this action. A table without keys: its default action.
    virtual void put(const Entry &entry) = 0;
    virtual void remove(const Entry &entry) = 0;
    // The job's entries and its multicast group become these.
    virtual void put_job(uint16_t number, const JobEntries &wanted) = 0;
    // First the one by which packets find the job.
    virtual void remove_job(uint16_t number) = 0;
    // What leaves by all ports but the one that it came by.
    virtual void put_flood(const std::vector<uint16_t> &ports) = 0;
    // The job, which is in no table now, begins a generation: its packets are to find slots without blocks.
    virtual void clear_slots(const inagg_job &record) = 0;
    // Rows of jobs, and last that of packets of none. What the program does not count is zero.
    virtual std::vector<inagg_stats> stats() = 0;
    virtual void clear_stats(uint32_t row) = 0;
};

} // namespace inaggd::p4
