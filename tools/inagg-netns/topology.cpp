// SPDX-License-Identifier: BSD-2-Clause
// What Network builds, by topology.
#include "network.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace netns {
namespace {

unsigned levels_of(const std::string &topology) { return topology == "three-level" ? 3 : topology == "two-level" ? 2 : 1; }

// So many groups at each of `levels` levels make about equal ones of `hosts`.
unsigned fan_out(unsigned hosts, unsigned levels) {
    return static_cast<unsigned>(std::lround(std::ceil(std::pow(hosts, 1.0 / levels) - 1e-9)));
}

// A leaf's port to that spine.
std::string uplink_to(unsigned spine) { return fmt::format("uplink{}", spine); }

} // namespace

void Network::build_topology() {
    if (options_.leaf_spine()) {
        build_leaf_spine();
        return;
    }
    const bool bmv2 = options_.with_bmv2();
    const unsigned root = bmv2 && !options_.with_server() ? add_bmv2_root() : add_root("switch");
    if (options_.topology == "bridge") {
        build_plain_bridge();
    } else if (options_.topology == "rack") {
        build_tree((bmv2 ? add_bmv2_below(root, "leaf0") : add_switch_below(root, "leaf0")), 1, options_.hosts());
    } else if (options_.topology == "three-racks") {
        build_racks(add_switch_below(root, "spine0"), options_.hosts());
    } else {
        build_tree(root, levels_of(options_.topology), options_.hosts());
    }
    if (options_.with_server()) {
        add_servers();
    }
}

void Network::build_plain_bridge() {
    between_.push_back(Namespace::create());
    build_bridge(between_[0], "rack0");
    connect(switches_[0].space, "p0", between_[0], "uplink");
    add_port(switches_[0], "p0");
    join_bridge(between_[0], "uplink", "rack0");
    accept_xdp_tx(between_[0], "uplink");
    for (unsigned host = 0; host < options_.hosts(); ++host) {
        leaf_of_.push_back(0);
        const std::string port = fmt::format("w{}", host);
        build_host_behind(between_[0], port);
        if (links_) {
            enable_gro(between_[0], port);
        } else {
            accept_xdp_tx(between_[0], port);
        }
        join_bridge(between_[0], port, "rack0");
    }
}

// The hosts behind a switch, through as many further levels of switches.
void Network::build_tree(unsigned at, unsigned levels, unsigned hosts) {
    if (levels == 1) {
        for (unsigned host = 0; host < hosts; ++host) {
            build_host(at);
        }
        return;
    }
    const unsigned groups = fan_out(hosts, levels);
    for (unsigned group = 0, done = 0; group < groups; ++group) {
        const unsigned size = (hosts - done) / (groups - group);
        if (size > 0) {
            const char *kind = levels == 2 ? "leaf" : "spine";
            const auto alike = std::count_if(switches_.begin(), switches_.end(),
                                             [&](const Switch &other) { return other.name.starts_with(kind); });
            build_tree(add_switch_below(at, fmt::format("{}{}", kind, alike)), levels - 1, size);
            done += size;
        }
    }
}

// Two racks behind that of the root (ATP, Figure 9).
void Network::build_racks(unsigned at, unsigned hosts) {
    const unsigned third = hosts / 3;
    for (const char *leaf : {"leaf0", "leaf1"}) {
        build_tree(add_switch_below(at, leaf), 1, third);
    }
    build_tree(at, 1, hosts - 2 * third);
}

void Network::build_leaf_spine() {
    for (unsigned spine = 0; spine < options_.spines; ++spine) {
        add_root(fmt::format("spine{}", spine));
    }
    for (unsigned leaf = 0; leaf < options_.leaves; ++leaf) {
        const unsigned at = add_switch(fmt::format("leaf{}", leaf));
        for (unsigned spine = 0; spine < options_.spines; ++spine) {
            connect_up(at, spine, uplink_to(spine));
            teach_nothing(switches_[at].space, uplink_to(spine), spine > 0);
            teach_nothing(switches_[spine].space, switches_[at].uplinks[spine].port_there, false);
        }
        build_tree(at, 1, options_.hosts() / options_.leaves);
    }
    add_guests();
    for (unsigned place = 0; place < switches_.size(); ++place) {
        bridge_batch(switches_[place].space, ways_from(place));
    }
}

// What the bridge of a leaf or spine is told of all others, as it learns nothing from the links between these: what a leaf
// broadcasts may come by another one. From a leaf, frames for a host go by the spine that its number says, as equal-cost paths by
// the receiver would have it.
std::string Network::ways_from(unsigned place) const {
    const bool is_spine = place < options_.spines;
    std::string ways;
    const auto add = [&](const Node &to, const std::string &port) {
        ways += fmt::format("fdb replace {} dev {} master static\n", to.mac(), port);
    };
    const auto add_behind = [&](unsigned leaf, const Node &to, unsigned spine) {
        if (leaf != place) {
            add(to, is_spine ? switches_[leaf].uplinks[place].port_there : uplink_to(spine));
        }
    };
    for (unsigned spine = 0; !is_spine && spine < options_.spines; ++spine) {
        add(switches_[spine], uplink_to(spine));
    }
    for (unsigned leaf = options_.spines; leaf < switches_.size(); ++leaf) {
        add_behind(leaf, switches_[leaf], 0);
    }
    for (unsigned host = 0; host < hosts_.size(); ++host) {
        add_behind(leaf_of_[host], hosts_[host], host % options_.spines);
    }
    for (const Guest &guest : guests_) {
        add_behind(guest.leaf, guest, guest.spine);
    }
    return ways;
}

// One for each further tree, at the root's only child, or else at the root: ranks and switches reach it as
// they reach the root.
void Network::add_servers() {
    std::vector<unsigned> children;
    for (unsigned node = 0; node < switches_.size(); ++node) {
        if (!switches_[node].is_root() && switches_[node].uplinks[0].parent == 0) {
            children.push_back(node);
        }
    }
    const unsigned at = children.size() == 1 ? children[0] : 0;
    for (unsigned tree = 1; tree < options_.trees; ++tree) {
        const unsigned server = add_server(tree, at);
        for (const unsigned child : children) {
            switches_[child].uplinks.push_back({child == at ? switches_[server].name : "uplink", server, "eth0"});
        }
    }
}

// The ends of the background flows, at the first two leaves: two for each spine that a flow loads.
void Network::add_guests() {
    for (const Background &flow : options_.background) {
        for (const unsigned spine : flow.spines) {
            for (const unsigned leaf : {options_.spines, options_.spines + 1}) {
                build_guest(leaf, spine);
            }
        }
    }
}

std::vector<FlowPath> Network::flow_paths() const {
    std::vector<FlowPath> paths;
    for (const Background &flow : options_.background) {
        if (!options_.leaf_spine()) {
            paths.push_back(
                {flow, fmt::format("{} from host0 to host{}", flow.kind, hosts_.size() - 1), hosts_.front(), hosts_.back()});
        }
        for (const unsigned spine : flow.spines) {
            const size_t guest = 2 * paths.size();
            paths.push_back({flow, fmt::format("{} over spine{}", flow.kind, spine), guests_[guest], guests_[guest + 1]});
        }
    }
    return paths;
}

} // namespace netns
