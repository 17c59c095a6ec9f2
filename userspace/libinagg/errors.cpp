// SPDX-License-Identifier: BSD-2-Clause
#include "errors.hpp"

#include "options.hpp"
#include "reasons.hpp"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <inagg/core/packet.h>

#include <cstring>
#include <new>
#include <vector>

namespace inagg {

namespace {

std::string who_refuses(const std::string &address, const Refusal &refusal) {
    return refusal.above.empty()
               ? fmt::format("the switch at {}", address)
               : fmt::format("the server or switch at {}, which the switch at {} is behind,", refusal.above, address);
}

} // namespace

Error no_switch(const inagg_options &options) {
    return {INAGG_ENOSWITCH,
            "no switch answers for job {} at {} port {} within {} ms: check INAGG_SWITCH, that inaggd runs there, that this "
            "port of the switch is given to it and, if it has a parent, that all ranks have been started",
            options.job,
            options.switch_address,
            INAGG_PORT,
            join_timeout_ms(options)};
}

Error no_route(const inagg_options &options, int error) {
    return {INAGG_ENOSWITCH, "no route to the switch at {}: {}", options.switch_address, std::strerror(error)};
}

Refusal refusal_of(const inagg_hdr &header, const inagg_refusal &refusal) {
    return {static_cast<int>(inagg_swap32(header.slot)),
            inagg_refused_above(&header, &refusal) ? address_text(refusal.above) : ""};
}

std::string address_text(const uint8_t (&mapped)[16]) {
    in6_addr address;
    std::memcpy(&address, mapped, sizeof(address));
    char text[INET6_ADDRSTRLEN];
    return IN6_IS_ADDR_V4MAPPED(&address) ? inet_ntop(AF_INET, &mapped[12], text, sizeof(text))
                                          : inet_ntop(AF_INET6, &address, text, sizeof(text));
}

// What this rank has asked for that the switch may be unable to do.
static const char *hint_of(const inagg_options &options, int reason) {
    if (reason == INAGG_R_ALGORITHM && options.algorithm == std::string_view("atp"))
        return "; atp needs inagg-ps, as the switch or behind it";
    if (reason == INAGG_R_POLICY && options.exclude_ms)
        return "; INAGG_EXCLUDE_AFTER wants trio at one switch, not a tree, and 1s at least";
    if (reason == INAGG_R_POLICY && options.expiry_us)
        return "; INAGG_EXPIRY and INAGG_QUORUM want trio, and an expiry that the switch's timers can keep";
    return "";
}

Error join_refused(const inagg_options &options, const Refusal &refusal) {
    return {INAGG_EREFUSED,
            "{} refuses rank {} of job {} (size {}): {}{}",
            who_refuses(options.switch_address, refusal),
            options.rank,
            options.job,
            options.size,
            reason_text(refusal.reason),
            hint_of(options, refusal.reason)};
}

Error no_proof(const inagg_options &options, int reason) {
    return {INAGG_EREFUSED,
            "what answers rank {} of job {} at {} within {} ms does not prove that it knows INAGG_JOIN_KEY{}{}: give the switch "
            "the same key (inaggd --key-file), or somebody else answers",
            options.rank,
            options.job,
            options.switch_address,
            join_timeout_ms(options),
            reason ? ", it refuses: " : "",
            reason ? reason_text(reason) : ""};
}

Error job_ended(uint16_t job, const std::string &address, const Refusal &refusal) {
    return {INAGG_ECLOSED,
            "{} ended job {}: {}{}",
            who_refuses(address, refusal),
            job,
            reason_text(refusal.reason),
            refusal.reason == INAGG_R_JOB
                ? ": it has restarted, or the job was removed there, as its log says: start all ranks of the job again"
                : ""};
}

Error switch_restarted(const std::string &address, uint16_t job) {
    return {INAGG_ECLOSED, "the switch at {} has restarted and lost job {}: start all its ranks again", address, job};
}

Error not_taken_back(const inagg_options &options) {
    return {INAGG_EREFUSED,
            "rank {} of job {} was excluded as a permanent straggler, and the others have not taken it back within "
            "{} ms: that is at their next inagg_renew()",
            options.rank, options.job, join_timeout_ms(options)};
}

Error excluded(uint16_t rank, uint16_t job) {
    return {INAGG_ECLOSED,
            "rank {} was excluded from job {} as a permanent straggler, the others go on without it: join again, they "
            "take it back at their next inagg_renew()",
            rank, job};
}

Error broadcast_without_root(const Call &call, uint16_t job) {
    return {INAGG_ECLOSED, "job {}: rank {} was excluded as a permanent straggler and cannot broadcast: do it from another rank",
            job, call.root_rank};
}

Error results_to_group(uint16_t job) {
    return {INAGG_ESYSTEM, "job {} sends results to a group address: use transport udp", job};
}

Error current_error() {
    try {
        throw;
    } catch (const Error &error) {
        return error;
    } catch (const std::bad_alloc &) {
        return {INAGG_ESYSTEM, std::string("out of memory")};
    } catch (const std::exception &error) {
        return {INAGG_ESYSTEM, std::string(error.what())};
    }
}

Error deadline_passed(const inagg_options &options, const std::string &why) {
    return {INAGG_EDEADLINE, "job {}: no progress for {} ms: {}", options.job, options.timeout_ms, why};
}

std::string waits_for(const std::string &what, uint64_t missing) {
    std::vector<int> ranks;
    for (int rank = 0; rank < INAGG_MAX_RANKS; rank++)
        if (missing & inagg_rank_bit(rank))
            ranks.push_back(rank);
    return fmt::format("{} waits for rank{} {}", what, ranks.size() == 1 ? "" : "s", fmt::join(ranks, ", "));
}

std::string describe(const Stalled &stalled, const inagg_options &options) {
    const std::string block = fmt::format("{} block {}", stalled.stream == Stream::data ? "data" : "control", stalled.block);
    if (stalled.given_up)
        return fmt::format("{} was decided without this rank, and more than {} others since, which is all that a "
                           "rank keeps: raise INAGG_HISTORY, or INAGG_EXPIRY",
                           block, stalled.given_up);
    if (!stalled.heard && stalled.leader >= 0)
        return fmt::format("{} is unanswered, rank {}, which leads it, has been silent", block, stalled.leader);
    if (!stalled.heard)
        return fmt::format("{} is unanswered, the switch at {}{} has been silent", block, options.switch_address,
                           stalled.tree ? ", or one above it," : "");
    const uint64_t missing = inagg_all_ranks(options.size) & ~stalled.contributors;
    if (missing & inagg_rank_bit(options.rank) && stalled.leader < 0)
        return waits_for(block, missing) + ", one of which is this one: what it sends is lost, or its calls differ from others' "
                                           "in count, type, operator or INAGG_SCALE, or another has left the job";
    if (!missing)
        return fmt::format("{} has all ranks' contributions, but its result does not arrive", block);
    return waits_for(block, missing);
}

Error no_sum(uint16_t job, const std::string &address, Stream stream, uint32_t block, bool alike) {
    return {INAGG_EVERIFY,
            "job {}: what comes from the switch at {} as {} block {} is not the sum of what the ranks have sent: {}; or "
            "INAGG_KEY is not the same on all ranks, or a sum of int32 overflows",
            job,
            address,
            stream == Stream::data ? "data" : "control",
            block,
            alike ? "the same each time, so that switch, one above it, or what a rank has sent to it, was changed"
                  : "another one each time, so packets are changed on the way from it"};
}

Error others_have_left(uint16_t job) {
    return {INAGG_ECLOSED, "job {}: a rank has left the job, though this one's calls go on: all ranks make the same calls", job};
}

Error calls_differ(uint16_t job, const std::string &where) {
    return {INAGG_EINVAL, "job {}{}: the ranks' calls differ in count, type or root", job, where};
}

Error out_of_scale(const Call &call, const inagg_options &options) {
    return {INAGG_ERANGE,
            "a float32 sum of {} elements has a value that does not fit scale {} on some rank: "
            "choose a smaller INAGG_SCALE or 'auto'",
            call.count, options.scale};
}

} // namespace inagg
