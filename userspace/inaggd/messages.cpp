// SPDX-License-Identifier: BSD-2-Clause
#include "messages.hpp"

#include "common/log.hpp"
#include "error.hpp"
#include "refusal_log.hpp"

#include <arpa/inet.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>

#include <bit>

namespace inaggd {
namespace {

const char *type_name(uint8_t type) {
    switch (type) {
    case INAGG_JOIN:
        return "JOIN";
    case INAGG_LEAVE:
        return "LEAVE";
    case INAGG_CONFIG:
        return "parent's CONFIG";
    case INAGG_REFUSED:
        return "parent's REFUSED";
    default:
        return "packet";
    }
}

} // namespace

inagg_hdr header_of(inagg_type type, uint16_t job, uint16_t rank, uint16_t generation) {
    inagg_hdr header{};
    header.version_type = static_cast<uint8_t>(INAGG_WIRE_VERSION << 4 | type);
    header.job = htons(job);
    header.source = htons(rank);
    header.generation = htons(generation);
    return header;
}

inagg_hdr header_of(const Message &message, uint16_t boot) {
    inagg_hdr header = header_of(message.type, message.job, message.rank, message.generation);
    header.slot = htonl(message.reason);
    header.boot = message.again ? htons(boot) : 0; // who asks for the first time knows none
    return header;
}

inagg_join farewell(const Displaced &gone, inagg_hdr &header) {
    inagg_join join{};
    join.nonce = gone.member.nonce;
    join.receive_port = gone.member.receive_port;
    auto refusal = std::bit_cast<inagg_refusal>(join);
    if (gone.above.family)
        inagg_refuse_for(&header, &refusal, gone.above.mapped().data());
    return std::bit_cast<inagg_join>(refusal);
}

void log_event(const inagg_event &event, const Outcome &outcome, const std::string &port) {
    const bool unchanged = outcome.verdict == Outcome::Verdict::ignored || outcome.verdict == Outcome::Verdict::asked ||
                           (outcome.verdict == Outcome::Verdict::put_off && outcome.detail.empty());
    static RefusalLog refusals;
    const auto level = unchanged ? spdlog::level::debug : outcome.reason ? refusals.next() : spdlog::level::info;
    const inagg::LogFields about{{"job", event.job}, {"rank", event.rank}, {"port", port}, {"address", sender_of(event).text()}};
    spdlog::log(level, "job {}: {} of rank {} from {}/{}{}{}{}", event.job, type_name(event.type), event.rank, port,
                sender_of(event).text(),
                outcome.verdict == Outcome::Verdict::ignored   ? ", ignored"
                : outcome.verdict == Outcome::Verdict::asked   ? ", passed on to the parent"
                : outcome.verdict == Outcome::Verdict::refused ? ", refused " + reason_name(outcome.reason)
                : outcome.reason                               ? ", put off, " + reason_name(outcome.reason)
                                                               : "",
                outcome.detail.empty() ? "" : ": ", outcome.detail);
}

uint16_t random_generation() {
    uint16_t value = 0;
    if (getrandom(&value, sizeof value, 0) != sizeof value)
        throw Error("getrandom: {}", system_text(errno));
    return value;
}

} // namespace inaggd
