// SPDX-License-Identifier: BSD-2-Clause
// Joins that an agent has refused since it started, by reason: a rank that is refused says so to its user only.
#pragma once

#include "event_limit.hpp"
#include "job_book.hpp"

#include <nlohmann/json.hpp>

#include <map>
#include <string>

namespace inaggd {

class Refusals {
public:
    // What came of an event; counts if it is a rank's JOIN that was refused.
    void note(const inagg_event &event, const Outcome &outcome, const std::string &port, Time now);
    // One row a reason: {reason, joins, ms_ago, last}, the latter two of its last one.
    nlohmann::ordered_json rows(Time now) const;

private:
    struct Row {
        uint64_t joins = 0;
        Time at{};
        std::string last{};
    };
    std::map<inagg_reason, Row> rows_;
};

// May an agent say no to it? Not to who cannot be a worker or a switch; and to addresses that may be forged not often.
bool may_refuse(const inagg_event &event, inagg_reason reason, const JobBook &book, EventLimit &limit, Time now);

} // namespace inaggd
