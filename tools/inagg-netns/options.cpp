// SPDX-License-Identifier: BSD-2-Clause
#include "options.hpp"

#include "background.hpp"
#include "common/words.hpp"

#include <fmt/core.h>

#include <cstdlib>
#include <functional>
#include <iostream>
#include <map>

namespace netns {

using inagg::parse_duration;
using inagg::parse_fraction;
using inagg::parse_rate;

namespace {

constexpr int usage_error = 2;

const std::map<std::string, Launcher> launchers = {
    {"none", Launcher::none}, {"torchrun", Launcher::torchrun}, {"mpirun", Launcher::mpirun}, {"mpiexec", Launcher::mpirun}};

// An option whose text one of the parsers of units.hpp turns into a value.
template <class Value, class Parser>
void add_unit(CLI::App &app, const std::string &name, Value &value, Parser parser, const std::string &help) {
    app.add_option_function<std::string>(
           name,
           [&value, parser, name](const std::string &text) {
               try {
                   value = parser(text);
               } catch (const std::invalid_argument &error) {
                   throw CLI::ValidationError(name, error.what());
               }
           },
           help)
        ->expected(1);
}

// "[SWITCH@]TIME"; no name: the root
std::pair<std::string, Nanoseconds> parse_agent_time(const std::string &text) {
    const size_t at = text.find('@');
    if (at == std::string::npos) {
        return {"", parse_duration(text)};
    }
    return {text.substr(0, at), parse_duration(text.substr(at + 1))};
}

// "LINK@TIME"
std::pair<std::string, Nanoseconds> parse_link_time(const std::string &text) {
    const size_t at = text.find('@');
    if (at == std::string::npos || at == 0) {
        throw std::invalid_argument(fmt::format("'{}' is not LINK@TIME: write it like leaf0/uplink1@500ms or host2@500ms", text));
    }
    return {text.substr(0, at), parse_duration(text.substr(at + 1))};
}

// "WHAT@TIME", where WHAT has a number
std::pair<unsigned, Nanoseconds> parse_number_time(const std::string &text, const char *what) {
    const size_t at = text.find('@');
    const std::string number = text.substr(0, at);
    if (at == std::string::npos || number.empty() || number.size() > 2 ||
        number.find_first_not_of("0123456789") != std::string::npos) {
        throw std::invalid_argument(fmt::format("'{}' is not {}@TIME: write it like 2@500ms", text, what));
    }
    return {static_cast<unsigned>(std::stoul(number)), parse_duration(text.substr(at + 1))};
}

std::pair<unsigned, Nanoseconds> parse_kill(const std::string &text) { return parse_number_time(text, "RANK"); }

std::pair<unsigned, Nanoseconds> parse_spine(const std::string &text) { return parse_number_time(text, "SPINE"); }

void add_impairments(CLI::App &run, Impairments &impairments) {
    const std::string group = "Impairments, each way between a host and its port, and between switches";
    run.option_defaults()->group(group);
    add_unit(run, "--rate", impairments.rate, parse_rate, "Limit of the link, like 1gbit");
    add_unit(run, "--spine-rate", impairments.spine_rate, parse_rate,
             "The same for links between switches, if they have another");
    add_unit(run, "--ecn", impairments.ecn, parse_duration,
             "Of limited links: mark ECN-capable frames that wait longer than this, like 1ms; TCP then uses ECN");
    run.add_option("--only-host", impairments.only_host,
                   "The only host (from 0) whose frames --loss, --dup and --corrupt concern");
    add_unit(run, "--loss", impairments.loss, parse_fraction, "Fraction of frames that are dropped");
    add_unit(run, "--dup", impairments.duplicate, parse_fraction, "Fraction of frames that are doubled");
    add_unit(run, "--reorder", impairments.reorder, parse_fraction, "Fraction of frames that are overtaken");
    add_unit(run, "--corrupt", impairments.corrupt, parse_fraction, "Fraction of frames with flipped bits; implies --checked");
    run.add_option("--corrupt-offset", impairments.corrupt_offset, "First byte of a frame that may be damaged")
        ->check(CLI::Range(0, 1000))
        ->capture_default_str();
    run.add_option("--corrupt-bits", impairments.corrupt_bits, "Most bits that are flipped in a frame")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    add_unit(run, "--delay", impairments.delay, parse_duration, "Time a frame is held, like 200us");
    run.add_option("--seed", impairments.seed, "Start of the random choices")->capture_default_str();
    run.option_defaults()->group("Options");
}

// The same, for an option that may be repeated.
template <class Value, class Parser>
void add_units(CLI::App &app, const std::string &name, std::vector<Value> &values, Parser parser, const std::string &help) {
    app.add_option_function<std::vector<std::string>>(
           name,
           [&values, parser, name](const std::vector<std::string> &texts) {
               for (const std::string &text : texts) {
                   try {
                       values.push_back(parser(text));
                   } catch (const std::invalid_argument &error) {
                       throw CLI::ValidationError(name, error.what());
                   }
               }
           },
           help)
        ->allow_extra_args(false);
}

void add_failures(CLI::App &run, Options &options) {
    run.option_defaults()->group("Failures on purpose, times from the start of the commands");
    add_units(run, "--kill", options.kill, parse_kill, "RANK@TIME: kill -9 that rank then");
    add_units(run, "--kill-inaggd", options.kill_inaggd, parse_agent_time,
              "[SWITCH@]TIME: kill -9 the agent of that switch (the only one, or the root's), or the server, then");
    add_units(run, "--restart-inaggd", options.restart_inaggd, parse_agent_time, "[SWITCH@]TIME: start it again then");
    add_units(run, "--cut", options.cut, parse_link_time,
              "LINK@TIME: take the carrier from both ends of a link then; host0, ... is that of a host, "
              "leaf0/uplink, "
              "... (of leaf-spine: leaf0/uplink0, ...) that of a switch to the one above, server1, ... that "
              "of a server");
    add_units(run, "--mend", options.mend, parse_link_time, "LINK@TIME: give it back then");
    add_units(run, "--kill-spine", options.kill_spine, parse_spine,
              "SPINE@TIME: power off that spine of leaf-spine then: its links, its agent, and all that it knows");
    add_units(run, "--start-spine", options.start_spine, parse_spine, "SPINE@TIME: power it on again then");
    run.option_defaults()->group("Options");
}

void add_run(CLI::App &run, Options &options) {
    run.add_option("--topology", options.topology,
                   "star: each host has a port of the switch; bridge: all are behind a plain bridge on one port; "
                   "two-level, three-level: a tree of switches (switch, spine0.., leaf0..), the hosts at its "
                   "leaves; rack: all at leaf0; three-racks: a third each at leaf0, leaf1 and, between them and "
                   "the root, spine0; leaf-spine: each leaf has a link to each spine, and each spine is the root "
                   "of a tree of its own")
        ->check(CLI::IsMember({"star", "bridge", "two-level", "three-level", "rack", "three-racks", "leaf-spine"}))
        ->capture_default_str();
    run.add_option("--leaves", options.leaves, "Leaves of leaf-spine, which share the hosts evenly")
        ->check(CLI::Range(2, 8))
        ->capture_default_str();
    run.add_option("--spines", options.spines, "Spines of leaf-spine: tree i of --trees has spine i")
        ->check(CLI::Range(1, 8))
        ->capture_default_str();
    run.add_option("--workers,-n", options.workers, "Number of ranks")->required()->check(CLI::Range(1, 64));
    run.add_option("--ranks-per-host", options.ranks_per_host, "Ranks that share a host, its address and port")
        ->check(CLI::Range(1, 64))
        ->capture_default_str();
    run.add_option("--mtu", options.mtu, "MTU of all links")->check(CLI::Range(1280, 9000))->capture_default_str();
    run.add_option(
           "--queues", options.queues,
           "Receive queues of each end of a link; XDP runs on as many CPUs at once. By default one, and with --transport xdp "
           "as many as there are CPUs")
        ->check(CLI::Range(1, 64));
    run.add_flag("--ipv6", options.ipv6, "Give the ranks IPv6 addresses of switch and master");
    add_impairments(run, options.impairments);
    run.add_option("--algorithm", options.algorithm, "INAGG_ALGORITHM of the ranks")
        ->check(CLI::IsMember({"switchml", "trio", "atp", "panama", "canary"}))
        ->capture_default_str();
    run.add_option("--transport", options.transport, "INAGG_TRANSPORT of the ranks")
        ->check(CLI::IsMember({"udp", "kernel", "afxdp", "xdp", "auto"}))
        ->capture_default_str();
    run.add_option("--expiry", options.expiry,
                   "INAGG_EXPIRY of the ranks (trio): a block waits so long for its next rank, like 10ms");
    run.add_option("--quorum", options.quorum, "INAGG_QUORUM of the ranks (trio): so many decide a block, 3 or 0.88 of them");
    run.add_option("--job", options.job, "INAGG_JOB of the ranks")->check(CLI::Range(0, 65535))->capture_default_str();
    run.add_option(
           "--trees", options.trees,
           "INAGG_TREES of the ranks: so many jobs share each tensor; with --switch inagg-ps each has a server of its own")
        ->check(CLI::Range(1, 8))
        ->capture_default_str();
    run.add_option("--switch", options.switch_kind,
                   "inagg-ps: a server in user space in the place of the switch, or of a tree's root; bmv2: the P4 "
                   "switch in BMv2's simple_switch, likewise; none: a plain bridge, for peers that do not use the switch")
        ->check(CLI::IsMember({"inaggd", "inagg-ps", "bmv2", "none"}))
        ->capture_default_str();
    run.add_flag("--checked", options.checked, "Ask for payload checksums");
    run.add_option("--inaggd-arg", options.inaggd_arguments, "Argument passed on to inaggd, on every switch")
        ->allow_extra_args(false);
    run.add_option(
           "--root-arg", options.root_arguments,
           "The same, on the root of a tree only, which decides about jobs; or passed on to inagg-ps; {} in it stands for "
           "the root's name")
        ->allow_extra_args(false);
    run.add_option("--also-in-switch", options.also_in_switch,
                   "Shell command that runs beside the ranks in the switch's namespace")
        ->allow_extra_args(false);
    add_units(run, "--background", options.background, parse_background,
              "tcp|dctcp|udp[:SPINE,...][@RATE]: a flow beside the ranks, of Cubic, of DCTCP or of datagrams (at the links' "
              "rate if none is given), over each of these spines, else all; without leaf-spine from the first host to the last");
    add_failures(run, options);
    add_unit(run, "--timeout", options.timeout, parse_duration, "End the run after this time, with status 124");
    add_unit(run, "--grace", options.grace, parse_duration, "How long the others may go on after a rank has failed (10 s)");
    run.add_flag("!--no-prefix", options.prefix, "Output lines as they are, without [rank]");
    run.add_flag("--quiet-ranks", options.quiet_ranks, "Of standard output show only rank 0's");
    run.add_option("--json-summary", options.json_summary,
                   "File for the counters of the impairments and the bytes of the background flows, {} without any");
    run.add_option(
           "--launcher", options.asked_launcher,
           "Who starts the ranks: none, COMMAND is run once for each; torchrun, COMMAND is run on each host and starts its "
           "ranks; mpirun, COMMAND is run on the first host and starts all. By COMMAND's name if not given")
        ->transform(inagg::one_of(launchers));
    run.add_option("command", options.command, "Command and arguments, after --")->required();
}

void add_enter(CLI::App &enter, Options &options) {
    enter.add_option("host", options.enter, "host0, host1, ...")->required();
    enter.prefix_command(); // what follows are words of a shell command, whatever they look like
}

// Those that start ranks know no rank that could be killed here.
void choose_launcher(Options &options) {
    const auto known = launchers.find(options.command[0].substr(options.command[0].rfind('/') + 1));
    options.launcher = options.asked_launcher.value_or(known == launchers.end() ? Launcher::none : known->second);
    if (options.launcher == Launcher::none) {
        return;
    }
    if (!options.kill.empty()) {
        throw CLI::ValidationError("--kill", fmt::format("'{}' starts the ranks: only it knows them", options.command[0]));
    }
    if (options.launcher == Launcher::torchrun && options.workers % options.ranks_per_host != 0) {
        throw CLI::ValidationError("--ranks-per-host", fmt::format("torchrun starts as many on each host, and {} workers are no "
                                                                   "multiple of {}",
                                                                   options.workers, options.ranks_per_host));
    }
}

void check_impairments(const Options &options) {
    const Impairments &links = options.impairments;
    if (links.ecn.count() > 0 && !links.limits_rate()) {
        throw CLI::ValidationError("--ecn", "only a limited link has a queue: give --rate, too");
    }
    if (links.ecn > std::chrono::seconds(1)) {
        throw CLI::ValidationError("--ecn", "no link queues for more than a second");
    }
    if (links.only_host && *links.only_host >= options.hosts()) {
        throw CLI::ValidationError(
            "--only-host", fmt::format("there is no host {}: give one from 0 to {}", *links.only_host, options.hosts() - 1));
    }
}

void check_topology(const CLI::App &run, const Options &options) {
    if (options.leaf_spine() && options.hosts() % options.leaves != 0) {
        throw CLI::ValidationError("--leaves",
                                   fmt::format("{} hosts cannot be shared evenly by {} leaves: give as many --workers "
                                               "that each leaf has as many hosts",
                                               options.hosts(), options.leaves));
    }
    for (const char *name : {"--leaves", "--spines"}) {
        if (!options.leaf_spine() && run.count(name) > 0) {
            throw CLI::ValidationError(
                name, fmt::format("topology {} has none to count: give --topology leaf-spine", options.topology));
        }
    }
    if (!options.inaggd_arguments.empty() && (!options.with_switch() || (options.with_server() && options.topology == "star"))) {
        throw CLI::ValidationError("--inaggd-arg", "there is no inaggd that would take it: --root-arg is for inagg-ps");
    }
    if (options.impairments.spine_rate && (options.topology == "star" || options.topology == "bridge")) {
        throw CLI::ValidationError("--spine-rate", fmt::format("topology {} has one switch: give --rate", options.topology));
    }
}

// What the P4 switch in BMv2 cannot do, or not yet.
void check_bmv2(const Options &options) {
    if (!options.with_bmv2()) {
        return;
    }
    if (options.topology == "bridge" || options.leaf_spine()) {
        throw CLI::ValidationError("--switch bmv2", fmt::format("it is a star, or the root of a tree; topology {} is neither: "
                                                                "leave out --topology, or give two-level",
                                                                options.topology));
    }
    if (options.algorithm == "atp" && options.topology != "rack") {
        throw CLI::ValidationError("--switch bmv2",
                                   fmt::format("with atp it is between the ranks and a server, and topology {} is "
                                               "another: give --topology rack",
                                               options.topology));
    }
    if (options.topology == "rack" && options.algorithm != "atp") {
        throw CLI::ValidationError("--switch bmv2",
                                   fmt::format("topology rack is for atp, not for {}: leave out --topology", options.algorithm));
    }
    if (options.topology != "star" && (options.algorithm == "trio" || options.algorithm == "canary")) {
        throw CLI::ValidationError("--switch bmv2",
                                   fmt::format("in a tree it runs switchml and panama, not {}", options.algorithm));
    }
    if (options.checked || options.impairments.corrupt > 0) {
        throw CLI::ValidationError("--switch bmv2", "it has no payload checksums, which --checked and --corrupt need");
    }
}

void check_background(Options &options) {
    try {
        prepare_background(options);
    } catch (const std::invalid_argument &error) {
        throw CLI::ValidationError("--background", error.what());
    }
}

void check_spines(const Options &options) {
    for (const auto &named : {options.kill_spine, options.start_spine}) {
        for (const auto &[spine, when] : named) {
            if (!options.leaf_spine() || options.switch_kind != "inaggd" || spine >= options.spines) {
                throw CLI::ValidationError("--kill-spine, --start-spine", fmt::format("there is no switch spine{}", spine));
            }
        }
    }
}

void check_ranks(const Options &options) {
    for (const auto &[rank, when] : options.kill) {
        if (rank >= options.workers) {
            throw CLI::ValidationError("--kill",
                                       fmt::format("there is no rank {}: give one from 0 to {}", rank, options.workers - 1));
        }
    }
}

} // namespace

Options parse_options(int argc, char **argv) {
    Options options;
    CLI::App app("Runs one command per worker around an inagg switch, in network namespaces of its own.");
    app.require_subcommand(1);
    CLI::App *run = app.add_subcommand("run", "Build the network, run COMMAND once per worker, remove all");
    run->footer("Example: inagg-netns run --workers 4 --loss 0.01 -- inagg-perf allreduce -b 4K -e 64M --check\n"
                "Status: the first failing rank's (128 + signal if killed), 124 after --timeout, 125 if the\n"
                "network or the switch failed, 2 for a wrong command line.\n"
                "Each rank sees INAGG_SWITCH, INAGG_JOB, INAGG_RANK, INAGG_SIZE, INAGG_ALGORITHM,\n"
                "INAGG_TRANSPORT, INAGG_EXPIRY and INAGG_QUORUM if given, WORKER_ADDRESS, and RANK, WORLD_SIZE, MASTER_ADDR, ... "
                "as from torchrun.\n"
                "`-- torchrun ...` and `-- mpirun ...` start the ranks themselves, and need no options for it.");
    add_run(*run, options);
    CLI::App *enter = app.add_subcommand("enter", "For mpirun in a run: execute a shell command on a host, as ssh does");
    add_enter(*enter, options);
    try {
        app.parse(argc, argv);
        if (enter->parsed()) {
            options.command = enter->remaining();
            return options;
        }
        choose_launcher(options);
        check_ranks(options);
        check_impairments(options);
        check_topology(*run, options);
        check_spines(options);
        check_bmv2(options);
        check_background(options);
    } catch (const CLI::ParseError &error) {
        std::exit(app.exit(error, std::cout, std::cerr) == 0 ? 0 : usage_error);
    }
    options.checked |= options.impairments.corrupt > 0;
    return options;
}

} // namespace netns
