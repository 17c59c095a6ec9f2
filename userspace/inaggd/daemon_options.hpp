// SPDX-License-Identifier: BSD-2-Clause
// inaggd's command line.
#pragma once

#include "common/log.hpp"
#include "links.hpp"
#include "maps.hpp"

#include <CLI/CLI.hpp>

#include <optional>
#include <string>
#include <vector>

namespace inaggd {

struct Options {
    std::vector<std::string> ports, jobs, parents, children, port_rates, key_files;
    std::string mark_after, queue_limit;
    std::string address4, address6, job_rate, job_uplink_rate;
    std::string bpffs = default_bpffs, run_dir = default_run_dir;
    uint32_t slots = INAGG_DEFAULT_SLOTS /* 0: as many as there are */, control_slots = 8;
    std::optional<uint32_t> job_slots; // none: as many as usual, and as links carry
    uint32_t aggregators = INAGG_DEFAULT_AGGREGATORS, buffers = INAGG_DEFAULT_BUFFERS;
    uint32_t descriptors = INAGG_DEFAULT_DESCRIPTORS, shares = 1, canary_timeout_us = 0;
    inagg_up_policy up_policy = INAGG_UP_DEFAULT;
    uint32_t buckets = INAGG_DEFAULT_BUCKETS, sweepers = 100, sweeps_per_expiry = 4;
    uint32_t idle_seconds = 600, join_seconds = 60, port_forming = 4, port_jobs = 8;
    bool no_auto_jobs = false, fresh = false, keep = false, check = false, verbose = false;
    std::string metrics; // where Prometheus finds them; empty: nowhere
    std::string web;     // where people find a page; likewise
    inagg::LogFormat log_format = inagg::LogFormat::text;
    std::optional<std::vector<std::string>> held; // for a reload: addresses that this agent serves HTTP at already
    int ready_fd = -1;
    std::optional<uint16_t> bmv2; // Thrift port of the switch to drive; none: this machine's XDP switch
    std::string tofino;           // likewise, HOST:PORT of its BF Runtime
    std::string cpu_port;         // its way to this agent

    bool is_p4() const { return bmv2 || !tofino.empty(); }
};

void describe(CLI::App &app, Options &o);
// Throws CLI::ValidationError for options that do not go together. Call it once the command line is read.
void check_options(const CLI::App &app, Options &o);

// --address4 or --address6, or else what one of `interfaces` or its bridge has; family 0: none.
Address own_address(const Options &o, uint8_t family, const std::vector<std::string> &interfaces);
uint32_t smallest_mtu(const std::vector<std::string> &ports);

} // namespace inaggd
