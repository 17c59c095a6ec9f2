// SPDX-License-Identifier: BSD-2-Clause
#include "refusals.hpp"

#include "messages.hpp"

#include <fmt/core.h>

#include <arpa/inet.h>

namespace inaggd {

void Refusals::note(const inagg_event &event, const Outcome &outcome, const std::string &port, Time now) {
    const bool is_question = ntohs(event.join.size) > INAGG_MAX_RANKS; // of inaggctl doctor, which wants to be refused
    if (event.type != INAGG_JOIN || outcome.verdict != Outcome::Verdict::refused || is_question)
        return;
    Row &row = rows_[outcome.reason];
    row.joins++;
    row.at = now;
    row.last =
        fmt::format("job {}, rank {} from {}/{}: {}", event.job, event.rank, port, sender_of(event).text(), outcome.detail);
}

nlohmann::ordered_json Refusals::rows(Time now) const {
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (const auto &[reason, row] : rows_)
        list.push_back({{"reason", reason_name(reason)},
                        {"joins", row.joins},
                        {"ms_ago", std::chrono::duration_cast<std::chrono::milliseconds>(now - row.at).count()},
                        {"last", row.last}});
    return list;
}

bool may_refuse(const inagg_event &event, inagg_reason reason, const JobBook &book, EventLimit &limit, Time now) {
    return can_be_answered(event, false) &&
           (book.is_switch(neighbour_of(event)) || limit.take_refusal(event.ifindex, now, reason == INAGG_R_CHALLENGE));
}

} // namespace inaggd
