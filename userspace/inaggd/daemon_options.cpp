// SPDX-License-Identifier: BSD-2-Clause
#include "daemon_options.hpp"

#include "common/words.hpp"
#include "error.hpp"
#include "http_address.hpp"
#include "power_of_two.hpp"

#include <inagg/core/packet.h>

#include <algorithm>
#include <array>

namespace inaggd {
namespace {

// BMv2 takes more than 100 us for a packet: of more blocks in flight, ranks would send most again while they wait.
constexpr uint32_t bmv2_job_slots = 16;

// Else a template whose variable is not set would start a switch without what it names.
const CLI::Validator not_empty{[](const std::string &text) { return text.empty() ? "must not be empty" : std::string(); }, ""};

} // namespace

void describe(CLI::App &app, Options &o) {
    app.set_config("--config", "", "read options from this file (TOML or INI, the same names)")->check(not_empty);
    app.allow_config_extras(CLI::config_extras_mode::error); // a misspelt key is a mistake
    app.add_option("-p,--port", o.ports,
                   "interface to serve; with --bmv2 INTERFACE=NUMBER, with --tofino NAME=NUMBER; repeat for more")
        ->required()
        ->take_all();
    const auto rates = app.add_option("--port-rate", o.port_rates,
                                      "PORT=RATE, like p0=10gbit: what its link carries; atp, panama and "
                                      "canary then learn when frames would wait, and --job-slots follows; repeat for more")
                           ->take_all();
    app.add_option("--mark-after", o.mark_after,
                   "how long at a port with a rate is too long, like 500us [1ms, or for ten frames if they take longer]")
        ->needs(rates);
    app.add_option(
           "--queue-limit", o.queue_limit,
           "how long frames wait at most at ports with a rate, like 5ms: what would have to wait longer, they drop [8 times "
           "--mark-after]")
        ->needs(rates);
    app.add_option("--job-rate", o.job_rate,
                   "like 1gbit: what the ranks of one job may send to this switch; more is dropped (QUOTA) [no limit]")
        ->check(not_empty);
    app.add_option(
           "--job-uplink-rate", o.job_uplink_rate,
           "likewise: what of one job may go on from here to switches above; atp and panama slow down before frames are dropped "
           "[no limit]")
        ->check(not_empty);
    app.add_option("--address4", o.address4, "IPv4 address of the switch [that of the port or its bridge]");
    app.add_option("--address6", o.address6, "IPv6 address of the switch [that of the port or its bridge]");
    app.add_option("--bpffs", o.bpffs, "directory of the pins")->capture_default_str();
    app.add_option("--run-dir", o.run_dir, "directory of the control socket")->capture_default_str();
    app.add_option("--slots", o.slots, "slots of the switch (6.6 KB each); of a P4 switch as many as its program has")
        ->check(CLI::Range(16u, 1u << 20))
        ->capture_default_str();
    app.add_option("--job-slots", o.job_slots,
                   "data slots of a job that names no number [128, and of switchml, trio and canary no more than the "
                   "slowest --port-rate carries in 20 ms, 16 at least]")
        ->check(power_of_two(INAGG_MAX_SLOTS));
    app.add_option("--control-slots", o.control_slots, "control slots, likewise")
        ->check(power_of_two(INAGG_MAX_SLOTS))
        ->capture_default_str();
    app.add_option("--buckets", o.buckets, "of four trio blocks each (13.5 KB a bucket)")
        ->check(power_of_two(1u << 20))
        ->capture_default_str();
    app.add_option("--aggregators", o.aggregators, "slots that all atp jobs share (3.4 KB each)")
        ->check(power_of_two(1u << 20))
        ->capture_default_str();
    app.add_option("--buffers", o.buffers, "for floats of panama jobs that wait to be added (3.3 KB each)")
        ->check(CLI::Range(1u, 1u << 20))
        ->capture_default_str();
    app.add_option("--descriptors", o.descriptors, "of blocks that all canary jobs share (3.4 KB each)")
        ->check(power_of_two(1u << 20))
        ->capture_default_str();
    app.add_option(
           "--shares", o.shares,
           "parts of the aggregators (atp) and of the descriptors (canary), of which a job has one: who takes all that there is "
           "takes it from nobody, until there are more such jobs than shares")
        ->check(power_of_two(INAGG_MAX_JOBS))
        ->capture_default_str();
    app.add_option("--canary-timeout", o.canary_timeout_us,
                   "microseconds that a sum of a canary job waits here for more; 0: adapts itself")
        ->check(CLI::Range(0u, 1'000'000u))
        ->capture_default_str();
    app.add_option("--up-port", o.up_policy,
                   "canary: by which parent a sum goes that has no rank of its own here to go to: default "
                   "(by its block and attempt, while that "
                   "port's queue is short), ecmp (by a hash of these), flowlet, or least (the shortest queue)")
        ->transform(inagg::one_of<inagg_up_policy>(
            {{"default", INAGG_UP_DEFAULT}, {"ecmp", INAGG_UP_ECMP}, {"flowlet", INAGG_UP_FLOWLET}, {"least", INAGG_UP_LEAST}}))
        ->default_str("default");
    app.add_option("--sweepers", o.sweepers, "timers that look for trio blocks whose ranks do not come")
        ->check(CLI::Range(1u, unsigned{INAGG_MAX_SWEEPERS}))
        ->capture_default_str();
    app.add_option("--sweeps-per-expiry", o.sweeps_per_expiry,
                   "with k, a block is decided without stragglers after 1 to 1 + 1/k expiries")
        ->check(CLI::Range(1u, 64u))
        ->capture_default_str();
    app.add_option("--parent", o.parents,
                   "PORT/ADDRESS of the switch that sums what this one has summed; it decides about all jobs; repeat for more: "
                   "of n, the first has jobs 0, n, 2n, ...")
        ->take_all();
    app.add_option("--child", o.children, "PORT/ADDRESS of a switch that has this one as its parent; repeat for more")
        ->take_all();
    const auto bmv2 = app.add_option("--bmv2", o.bmv2,
                                     "Thrift port of a BMv2 simple_switch with the P4 switch: drive that one, and no XDP "
                                     "switch")
                          ->check(CLI::Range(1, 65535));
    app.add_option("--tofino", o.tofino,
                   "HOST:PORT where bf_switchd serves BF Runtime (it has 50052), with the P4 switch: drive that one, likewise")
        ->check(not_empty)
        ->excludes(bmv2);
    app.add_option(
        "--cpu-port", o.cpu_port,
        "INTERFACE=NUMBER: of a P4 switch, the interface whose other end is its port NUMBER, and that has the switch's "
        "addresses");
    app.add_flag("--no-auto-jobs", o.no_auto_jobs, "only configured jobs can be joined");
    app.add_option("--job", o.jobs,
                   "configure a job: 7:size=4,slots=256,control=8,elements=352,algorithm=trio,expiry=10ms,"
                   "quorum=3,exclude-after=5s,checked,key-file=/etc/inagg/7.key,member=0@p0/10.77.0.10,...")
        ->take_all();
    app.add_option(
           "--key-file", o.key_files,
           "keys that ranks must know to join: lines \"JOB KEY\", \"FIRST-LAST KEY\", or \"KEY\" for all jobs; repeat for more")
        ->take_all();
    app.add_option("--idle-timeout", o.idle_seconds, "seconds after which a silent job's place may be taken")
        ->check(CLI::Range(1u, 86400u * 365))
        ->capture_default_str();
    app.add_option("--join-timeout", o.join_seconds,
                   "seconds until the next rank of a job that is not configured must join, or the job is removed")
        ->check(CLI::Range(1u, 86400u))
        ->capture_default_str();
    app.add_option("--port-forming", o.port_forming,
                   "jobs, not configured, that ranks behind one port may have waiting for more ranks; beyond: FORMING. A --child "
                   "has no limit")
        ->check(CLI::Range(1u, unsigned{INAGG_MAX_JOBS}))
        ->capture_default_str();
    app.add_option("--port-jobs", o.port_jobs,
                   "jobs, not configured, all of whose ranks are behind one port, that there may be; beyond: FULL. Likewise")
        ->check(CLI::Range(1u, unsigned{INAGG_MAX_JOBS}))
        ->capture_default_str();
    app.add_option("--metrics", o.metrics, "serve the counters to Prometheus at this ADDRESS:PORT, or at a PORT of 127.0.0.1")
        ->transform(http_address());
    app.add_option("--web", o.web,
                   "serve a page about the switch, likewise, to everyone who can reach the address; it changes nothing")
        ->transform(http_address());
    app.add_flag("--fresh", o.fresh, "discard what an earlier inaggd left")->configurable(false);
    app.add_flag("--keep", o.keep, "leave the switch running on exit");
    app.add_flag("--check", o.check, "only say whether inaggd could start so; changes nothing")->configurable(false);
    app.add_option("--held", o.held)->configurable(false)->group(""); // between two inaggd only
    app.add_option("--ready-fd", o.ready_fd, "write a newline here once all ports are attached")->configurable(false);
    inagg::add_log_format(app, o.log_format);
    app.add_flag("-v,--verbose", o.verbose, "log every event");
}

void check_options(const CLI::App &app, Options &o) {
    constexpr std::array of_xdp = {"--bpffs",    "--port-rate",         "--mark-after",     "--job-rate",    "--job-uplink-rate",
                                   "--buckets",  "--aggregators",       "--buffers",        "--descriptors", "--up-port",
                                   "--sweepers", "--sweeps-per-expiry", "--canary-timeout", "--fresh"};
    if (!o.is_p4()) {
        if (!o.cpu_port.empty())
            throw CLI::ValidationError("--cpu-port", "is of a P4 switch: name that with --bmv2 or --tofino");
        return;
    }
    const std::string target = o.bmv2 ? "--bmv2" : "--tofino";
    for (const char *name : of_xdp)
        if (app.count(name))
            throw CLI::ValidationError(name, "means nothing to a P4 switch: leave out this option, or " + target);
    if (!o.bmv2 && app.count("--shares"))
        throw CLI::ValidationError("--shares", "means nothing to a Tofino's program that inaggd drives: leave it out");
    if (!o.bmv2 && (o.tofino.find(':') == std::string::npos || o.tofino.back() == ':'))
        throw CLI::ValidationError("--tofino", o.tofino + ": write it as HOST:PORT, like 127.0.0.1:50052");
    if (o.cpu_port.empty())
        throw CLI::ValidationError(target, "the agent hears of joins through a port: name it with --cpu-port INTERFACE=NUMBER");
    if (!app.count("--slots"))
        o.slots = 0; // as many as the program has
    if (o.bmv2 && !o.job_slots)
        o.job_slots = bmv2_job_slots;
}

Address own_address(const Options &o, uint8_t family, const std::vector<std::string> &interfaces) {
    const std::string &text = family == 4 ? o.address4 : o.address6;
    if (!text.empty()) {
        auto address = Address::parse(text);
        if (!address || address->family != family || !address->is_host())
            throw Error("--address{} {}: not an IPv{} address of a host", family, text, family);
        return *address;
    }
    for (const std::string &interface : interfaces)
        if (Address address = address_near(interface, family); address.family)
            return address;
    return {};
}

uint32_t smallest_mtu(const std::vector<std::string> &ports) {
    uint32_t mtu = UINT32_MAX;
    for (const std::string &port : ports)
        mtu = std::min(mtu, mtu_of(port));
    return mtu;
}

} // namespace inaggd
