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
    virtual void put_settings(const Settings &settings) = 0;
    // Adds the entry, or gives the one with its key this action. A table without keys: its default action.
    virtual void put(const Entry &entry) = 0;
    virtual void remove(const Entry &entry) = 0;
    // The job's entries and its multicast group become what this job needs.
    virtual void put_job(const Job &job) = 0;
    // First the one by which packets find the job.
    virtual void remove_job(uint16_t number) = 0;
    // What leaves by all ports but the one that it came by.
    virtual void put_flood(const std::vector<uint16_t> &ports) = 0;
    // The job, which is in no table now, begins a generation: its packets are to find slots without blocks.
    virtual void clear_slots(const inagg_job &record) = 0;
    // Rows of jobs, and last that of packets of none. What the program does not count is zero.
    virtual std::vector<inagg_stats> stats() = 0;
    virtual void clear_stats(uint32_t row) = 0;
    // Does it look after blocks whose time has come by itself?  Else its agent sends it the packets of a clock.
    virtual bool has_clock() const { return false; }
    // Frees what blocks have left behind that nobody completes. Call it every second or two.
    virtual void tidy() {}
};

} // namespace inaggd::p4
