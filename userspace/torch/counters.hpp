// SPDX-License-Identifier: BSD-2-Clause
// What went through the switch and what did not, and why: nothing falls back silently.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace inagg {

struct Traffic {
    uint64_t calls = 0;
    uint64_t bytes = 0; // of this rank's tensors
};

class Counters {
public:
    using Table = std::map<std::string, Traffic>;

    void carried(const std::string &what, uint64_t bytes) { add(carried_, what, bytes); }
    void delegated(const std::string &what, uint64_t bytes) { add(delegated_, what, bytes); }

    // By operation.
    Table carried() const { return copy(carried_); }
    // By operation, with the reason if others of its kind are carried.
    Table delegated() const { return copy(delegated_); }

private:
    void add(Table &table, const std::string &what, uint64_t bytes) {
        const std::lock_guard lock(mutex_);
        Traffic &traffic = table[what];
        traffic.calls++;
        traffic.bytes += bytes;
    }

    Table copy(const Table &table) const {
        const std::lock_guard lock(mutex_);
        return table;
    }

    mutable std::mutex mutex_;
    Table carried_, delegated_;
};

} // namespace inagg
