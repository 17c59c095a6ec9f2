// SPDX-License-Identifier: BSD-2-Clause
// What BPF cannot do itself of trio's sweeps (bpf/sweep.h): it starts the timers, and makes frames for what they find.
#pragma once

#include "common/fd.hpp"
#include "job_spec.hpp"

#include <switch_maps.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

namespace inaggd {

using inagg::Fd;

// How the buckets are swept: by so many timers, each of which sees its part once a period.
struct SweepPlan {
    uint32_t sweepers = 0; // 0: not at all
    std::chrono::nanoseconds period{};

    bool operator==(const SweepPlan &) const = default;
};

// Sweeps for jobs with these expiries (microseconds; 0: none): `per_expiry` in the shortest one, by at most `sweepers`
// timers. More of them spread the work better, but each run costs something, so a short period gets fewer; and so many
// `buckets` are not swept more often than takes a quarter of a processor, so the shortest expiries last up to two periods.
SweepPlan plan_sweeps(std::span<const uint32_t> expiries, uint32_t sweepers, uint32_t per_expiry, uint32_t buckets);
// A job's expiry in such sweeps: at least one, 0 for none.
uint16_t expiry_in_sweeps(uint32_t expiry_us, const SweepPlan &plan);
// The row of `policies` of a job whose blocks are decided so.
inagg_job_policy policy_row(uint16_t number, const inagg_job &job, const Stragglers &stragglers, const SweepPlan &plan);

class Sweeper {
public:
    // Uses the programs and maps pinned in `bpffs`. Results of given-up blocks leave with the source address `mac`.
    Sweeper(const std::string &bpffs, const std::array<uint8_t, 6> &mac);
    ~Sweeper();
    Sweeper(const Sweeper &) = delete;
    Sweeper &operator=(const Sweeper &) = delete;

    // Starts the timers anew, also those of an earlier process, or stops them. They go on without this process. Timers of
    // descriptors (canary) need no sweeps, but the address, which they have from here.
    void sweep(const SweepPlan &plan);
    enum class Look : uint8_t { for_the_full, to_age };
    // One sweep at once, beside those of the timers: for records that are full since ranks were excluded, or one that ages
    // them all.
    void sweep_once(Look look) const;
    const SweepPlan &plan() const { return plan_; }

private:
    inagg_sweep_settings settings_of(const SweepPlan &plan) const;
    bool start(const inagg_sweep_settings &settings) const;
    void run();
    void age_by_hand() const;
    void send(uint32_t blocks) const;

    Fd sweep_, once_, switch_, due_, cost_, wake_;
    std::array<uint8_t, 6> mac_;
    SweepPlan plan_;
    std::atomic<int> by_hand_ms_ = 0; // instead of by timers
    std::atomic<bool> stopping_ = false;
    std::thread thread_;
};

} // namespace inaggd
