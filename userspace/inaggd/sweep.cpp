// SPDX-License-Identifier: BSD-2-Clause
// inagg-sweep: what a switch that bpftool has loaded lacks for trio. It looks for blocks whose ranks do not come and sends
// their results; inaggd does so by itself.
#include "common/log.hpp"
#include "error.hpp"
#include "links.hpp"
#include "maps.hpp"
#include "sweeper.hpp"
#include "watch.hpp"

#include <CLI/CLI.hpp>
#include <bpf/bpf.h>
#include <spdlog/spdlog.h>

#include <csignal>

namespace {

using namespace inaggd;

struct Options {
    std::string bpffs = default_bpffs, port, expiry;
    uint32_t sweepers = 100, per_expiry = 4;
    inagg::LogFormat log_format = inagg::LogFormat::text;
};

// bpftool puts no program into `algorithms`; inaggd's loader does.
void link_programs(const std::string &bpffs) {
    const Fd algorithms = open_pin(bpffs, "algorithms");
    for (const auto &[call, name] : {std::pair{INAGG_CALL_TRIO, "inagg_trio"}, std::pair{INAGG_CALL_TICK, "inagg_tick"}}) {
        const uint32_t key = call;
        uint32_t id;
        if (bpf_map_lookup_elem(algorithms.get(), &key, &id) == 0)
            continue;
        const Fd program = open_pin(bpffs, name);
        const int fd = program.get();
        if (bpf_map_update_elem(algorithms.get(), &key, &fd, BPF_ANY))
            throw Error("{}/algorithms: {}: {}", bpffs, name, system_text(errno));
    }
}

// What inaggd does when a job begins: its generation has a policy, and nothing of those before.
void begin_new_generations(const SwitchMaps &maps, const Stragglers &stragglers, const SweepPlan &plan) {
    for (const auto &[number, job] : maps.jobs()) {
        if (!has_records(job) || maps.policy(job.index).generation == job.generation)
            continue;
        maps.put_policy(job.index, {});
        maps.forget_job(job);
        maps.put_policy(job.index, policy_row(number, job, stragglers, plan));
        spdlog::info("job {}: generation {}", number, job.generation);
    }
}

// Rows of `policies` of jobs that do not always wait for all ranks, by job row.
std::map<uint32_t, inagg_job_policy> jobs_to_sweep(const SwitchMaps &maps) {
    std::map<uint32_t, inagg_job_policy> rows;
    for (const auto &[number, job] : maps.jobs())
        if (has_records(job))
            if (const inagg_job_policy row = maps.policy(job.index); row.policy.expiry_us || row.policy.exclude_ms)
                rows[job.index] = row;
    return rows;
}

void warn_of_unwatched(const SwitchMaps &maps) {
    for (const auto &[number, job] : maps.jobs())
        if (has_records(job) && maps.policy(job.index).policy.exclude_ms && !(job.flags & INAGG_JOIN_WATCHED))
            spdlog::warn(
                "job {}: its ranks do not say that they are there, so none is excluded: set the flags {:#x} in its row of `jobs`",
                number, INAGG_JOIN_WATCHED | INAGG_JOIN_RENEW);
}

// Jobs go on without ranks that are gone.
void exclude_the_gone(const SwitchMaps &maps, Watch &watch, const Sweeper &sweeper) {
    for (auto [number, job] : maps.jobs()) {
        if (!has_records(job))
            continue;
        uint64_t ranks = 0;
        const Members members = maps.members(job.index);
        for (uint32_t rank = 0; rank < job.size; rank++)
            if (members[rank].ifindex && members[rank].nonce)
                ranks |= job.all & inagg_rank_bit(rank);
        const uint64_t gone = watch.look(number, job, ranks, maps.policy(job.index).policy.exclude_ms);
        if (!gone || !(ranks & ~gone))
            continue;
        job.all &= ~gone;
        maps.update_job(number, job);
        sweeper.sweep_once(Sweeper::Look::for_the_full);
    }
}

void serve(const Options &o, const sigset_t &ends) {
    const SwitchMaps maps = SwitchMaps::open(o.bpffs);
    Stragglers stragglers;
    if (!o.expiry.empty())
        stragglers.expiry_us = parse_expiry(o.expiry);
    auto jobs = jobs_to_sweep(maps);
    if (jobs.empty() && o.expiry.empty())
        throw Error("{}: no trio job has an expiry_us or exclude_ms in `policies`: nothing to sweep for; say --expiry", o.bpffs);
    warn_of_unwatched(maps);
    link_programs(o.bpffs);
    std::vector<uint32_t> expiries = {stragglers.expiry_us};
    for (const auto &[index, row] : jobs)
        expiries.push_back(row.policy.expiry_us);
    Sweeper sweeper(o.bpffs, mac_of(o.port));
    const SweepPlan plan = plan_sweeps(expiries, o.sweepers, o.per_expiry, maps.bucket_count());
    for (auto &[index, row] : jobs) {
        row.policy.expiry_sweeps = expiry_in_sweeps(row.policy.expiry_us, plan);
        maps.put_policy(index, row);
    }
    sweeper.sweep(plan);
    uint32_t patience = 0;
    for (const auto &[index, row] : jobs)
        patience = row.policy.exclude_ms && (!patience || row.policy.exclude_ms < patience) ? row.policy.exclude_ms : patience;
    const auto period = watch_period(patience);
    const timespec wait{.tv_sec = period.count() / 1000, .tv_nsec = period.count() % 1000 * 1000000};
    Watch watch(maps);
    do {
        exclude_the_gone(maps, watch, sweeper);
        if (!o.expiry.empty())
            begin_new_generations(maps, stragglers, plan);
    } while (sigtimedwait(&ends, nullptr, &wait) < 0);
    sweeper.sweep({});
}

} // namespace

int main(int argc, char **argv) {
    Options o;
    CLI::App app("Sweeps for stragglers of trio jobs on a switch without inaggd, until SIGINT or SIGTERM");
    app.add_option("-p,--port", o.port, "interface whose MAC address results come from")->required();
    app.add_option("--expiry", o.expiry, "of trio jobs that have no row of their generation in `policies`: 10ms");
    app.add_option("--bpffs", o.bpffs, "directory of the pins")->capture_default_str();
    app.add_option("--sweepers", o.sweepers, "timers, at most")
        ->check(CLI::Range(1u, unsigned{INAGG_MAX_SWEEPERS}))
        ->capture_default_str();
    app.add_option("--sweeps-per-expiry", o.per_expiry, "with k, a block is decided after 1 to 1 + 1/k expiries")
        ->check(CLI::Range(1u, 64u))
        ->capture_default_str();
    inagg::add_log_format(app, o.log_format);
    CLI11_PARSE(app, argc, argv);
    inagg::start_log("inagg-sweep", o.log_format, spdlog::level::info);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    sigprocmask(SIG_BLOCK, &ends, nullptr); // before there are other threads
    try {
        serve(o, ends);
        return 0;
    } catch (const std::exception &error) {
        spdlog::error("{}", error.what());
        return 1;
    }
}
