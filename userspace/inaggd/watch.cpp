// SPDX-License-Identifier: BSD-2-Clause
#include "watch.hpp"

#include "clock.hpp"
#include "common/log.hpp"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace inaggd {
namespace {

using namespace std::chrono_literals;

constexpr auto shortest = 250ms, longest = 2000ms;

// Ranks that are not watched may be silent while they compute: that says nothing.
uint32_t patience_ms(const inagg_job &job, uint32_t exclude_ms) {
    if (!(job.flags & INAGG_JOIN_WATCHED))
        return 0;
    return exclude_ms ? exclude_ms : INAGG_PATIENCE_MS;
}

// Of those that are looked at: who has been excluded is no longer judged.
void log_change(uint16_t number, uint64_t ranks, uint64_t before, uint64_t after, const char *what) {
    for (uint32_t rank = 0; rank < INAGG_MAX_RANKS; rank++)
        if ((before ^ after) & ranks & inagg_rank_bit(rank)) {
            const inagg::LogFields about{{"job", number}, {"rank", rank}};
            spdlog::info("job {}: rank {} is {}a {} straggler", number, rank, after & inagg_rank_bit(rank) ? "" : "no longer ",
                         what);
        }
}

} // namespace

std::chrono::milliseconds watch_period(uint32_t exclude_ms) {
    return exclude_ms ? std::clamp<std::chrono::milliseconds>(std::chrono::milliseconds(exclude_ms / 4), shortest, longest)
                      : longest;
}

uint64_t Watch::look(uint16_t number, const inagg_job &job, uint64_t ranks, uint32_t exclude_ms) {
    auto [seen, is_new] = jobs_.try_emplace(number, Seen{job.generation, {}});
    if (seen->second.generation != job.generation)
        seen->second = {job.generation, {}};
    inagg_presence &presence = seen->second.presence;
    const inagg_stragglers before{presence.temporary, presence.permanent};
    const inagg_attendance counts = maps_.attendance(job.index);
    inagg_presence_look(&presence, ranks, &counts, now_ns(), uint64_t{patience_ms(job, exclude_ms)} * 1'000'000);
    log_change(number, ranks, before.temporary, presence.temporary, "temporary");
    log_change(number, ranks, before.permanent, presence.permanent, "permanent");
    maps_.put_stragglers(job.index, {presence.temporary, presence.permanent | inagg_job_excluded(&job)});
    return exclude_ms ? presence.permanent : 0;
}

} // namespace inaggd
