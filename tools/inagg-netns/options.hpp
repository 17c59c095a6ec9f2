// SPDX-License-Identifier: BSD-2-Clause
#pragma once

#include "common/units.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace netns {

using inagg::Nanoseconds;

// What happens to frames between a host and its port, in both directions.
struct Impairments {
    uint64_t rate = 0;                  // bits per second, 0: unlimited
    std::optional<uint64_t> spine_rate; // that of links between switches, if it is another
    double loss = 0;
    double duplicate = 0;
    double reorder = 0;
    double corrupt = 0;
    unsigned corrupt_offset = 0; // first byte of a frame that may be damaged
    unsigned corrupt_bits = 4;   // at most so many flipped bits
    Nanoseconds delay{0};
    Nanoseconds ecn{0};                // frames that wait longer at a limited link are marked; 0: none
    std::optional<unsigned> only_host; // whose frames alone are dropped, doubled and damaged
    uint64_t seed = 1;

    uint64_t between_switches() const { return spine_rate.value_or(rate); }
    bool marks(uint64_t link_rate) const { return link_rate > 0 && ecn.count() > 0; }
    bool limits_rate() const { return rate > 0 || spine_rate; }
    bool any() const { return limits_rate() || loss > 0 || duplicate > 0 || corrupt > 0 || needs_relay(); }
    bool needs_relay() const { return reorder > 0 || delay.count() > 0; }
};

// What other hosts, or two of the ranks', send meanwhile.
struct Background {
    std::string kind;             // tcp (Cubic), dctcp or udp
    std::vector<unsigned> spines; // one flow over each; empty: from the first host to the last
    uint64_t rate;                // bits per second, 0: as much as TCP gets

    bool is_udp() const { return kind == "udp"; }
};

// What starts the ranks, if it is not inagg-netns.
enum class Launcher { none, torchrun, mpirun };

// One run, as asked for on the command line.
struct Options {
    std::string topology = "star";
    unsigned leaves = 2, spines = 2; // of topology leaf-spine
    unsigned workers = 0;
    unsigned ranks_per_host = 1;
    unsigned mtu = 1500;
    unsigned queues = 0; // of each end of a link; 0: what is good for `transport`
    bool ipv6 = false;
    Impairments impairments;
    std::string algorithm = "switchml";
    std::string transport = "auto";
    std::string expiry, quorum; // as libinagg reads them; empty: not set
    unsigned job = 1;
    unsigned trees = 1;
    std::string switch_kind = "inaggd";
    bool checked = false;
    Nanoseconds timeout{0}; // 0: none
    Nanoseconds grace = std::chrono::seconds(10);
    std::vector<std::string> inaggd_arguments, root_arguments; // of every agent; of the root's
    std::vector<std::string> also_in_switch;
    std::vector<std::pair<unsigned, Nanoseconds>> kill;                           // rank, when
    std::vector<std::pair<std::string, Nanoseconds>> kill_inaggd, restart_inaggd; // name of the switch, when
    std::vector<std::pair<std::string, Nanoseconds>> cut, mend;                   // name of the link, when
    std::vector<std::pair<unsigned, Nanoseconds>> kill_spine, start_spine;        // which one, when
    std::vector<Background> background;
    bool prefix = true;
    bool quiet_ranks = false;
    std::string json_summary;
    std::optional<Launcher> asked_launcher; // else by the command's name
    Launcher launcher = Launcher::none;
    std::vector<std::string> command;
    std::string enter; // not a run: go to this host and execute `command` there

    bool with_switch() const { return switch_kind != "none"; }
    bool with_bmv2() const { return switch_kind == "bmv2"; }
    // In the place of the root.
    bool with_server() const { return switch_kind == "inagg-ps" || (with_bmv2() && algorithm == "atp"); }
    bool leaf_spine() const { return topology == "leaf-spine"; }
    bool needs_link_space() const {
        return impairments.any() || !cut.empty() || !mend.empty() || !kill_spine.empty() || !start_spine.empty();
    }
    unsigned hosts() const { return (workers + ranks_per_host - 1) / ranks_per_host; }
    unsigned host_of(unsigned rank) const { return rank / ranks_per_host; }
};

// Reads the command line. On --help, --version or an error prints it and exits (2 on errors).
Options parse_options(int argc, char **argv);

} // namespace netns
