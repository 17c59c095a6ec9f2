// SPDX-License-Identifier: BSD-2-Clause
#include "network.hpp"

#include "bmv2.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <fstream>
#include <stdexcept>
#include <thread>

namespace netns {
namespace {

// Numbers that addresses end in: roots and servers have 1 to 8, hosts.cpp those from 10 and 200, other
// switches count from 128.
constexpr unsigned first_root = 1, first_switch = 128;

std::string neighbour(const Node &node, const std::string &device) {
    return fmt::format("neigh replace {} lladdr {} dev {} nud permanent\nneigh replace {} lladdr {} dev {} nud permanent\n",
                       node.address4(), node.mac(), device, node.address6(), node.mac(), device);
}

} // namespace

std::string Node::address4() const { return fmt::format("10.77.0.{}", number); }
std::string Node::address6() const { return fmt::format("fd77::{}", number); }
std::string Switch::next_port() const { return fmt::format("p{}", ports.size() - uplinks.size()); }

std::string Node::mac() const { return fmt::format("02:00:0a:4d:00:{:02x}", number); }

Network::Network(const Options &options) : options_(options) {
    if (options.needs_link_space()) {
        links_.emplace(options.impairments);
    }
    if (options.with_switch()) {
        pass_.emplace();
    }
    build_topology();
    if (links_ || options_.leaf_spine()) {
        introduce_neighbours();
    }
    check_names();
}

const Switch &Network::find_switch(const std::string &name) const {
    const auto found =
        std::find_if(switches_.begin(), switches_.end(), [&](const Switch &node) { return name.empty() || node.name == name; });
    if (found == switches_.end()) {
        std::vector<std::string> names;
        for (const Switch &node : switches_) {
            names.push_back(node.name);
        }
        throw std::invalid_argument(fmt::format("there is no switch {}: there are {}", name, fmt::join(names, ", ")));
    }
    return *found;
}

// Those that options give, before anything starts.
void Network::check_names() const {
    for (const auto &named : {options_.kill_inaggd, options_.restart_inaggd}) {
        for (const auto &[name, when] : named) {
            find_switch(name);
        }
    }
    for (const auto &named : {options_.cut, options_.mend}) {
        for (const auto &[name, when] : named) {
            links_->find(name);
        }
    }
}

std::vector<std::string> Network::parents(const Switch &node) const {
    std::vector<std::string> found;
    for (const Uplink &uplink : node.uplinks) {
        found.push_back(uplink.port + "/" + address(switches_[uplink.parent]));
    }
    if (!found.empty()) {
        // A job's number modulo theirs says which is its: that of the first tree is the root's.
        std::rotate(found.begin(), found.end() - options_.job % found.size(), found.end());
    }
    return found;
}

std::vector<std::string> Network::children(const Switch &node) const {
    std::vector<std::string> found;
    for (const Switch &below : switches_) {
        for (const Uplink &uplink : below.uplinks) {
            if (&switches_[uplink.parent] == &node) {
                found.push_back(is_server(node) ? address(below) : uplink.port_there + "/" + address(below));
            }
        }
    }
    return found;
}

std::string Network::switch_addresses(unsigned host) const {
    const Switch &leaf = switches_[leaf_of_[host]];
    std::string addresses = address(leaf);
    for (const Switch &other : switches_) {
        if (leaf.is_root() && other.is_root() && &other != &leaf) {
            addresses += "," + address(other);
        }
    }
    return addresses;
}

unsigned Network::add_root(const std::string &name) {
    const auto index = static_cast<unsigned>(switches_.size());
    return add_bridge(
        {.space = index == 0 ? Namespace::current() : Namespace::create(), .number = first_root + index, .device = "br0"}, name);
}

// Its address is where its agent is.
unsigned Network::add_bmv2(Node node, const std::string &name) {
    switches_.push_back({std::move(node), name, {}, {}});
    const Switch &added = switches_.back();
    connect(added.space, cpu_device, added.space, cpu_peer);
    enable_gro(added.space, cpu_device);
    run_checked(added.space, {"ethtool", "-K", cpu_device, "tx", "off"});
    leave_to_bmv2(added.space, cpu_peer);
    give_addresses(added);
    return static_cast<unsigned>(switches_.size()) - 1;
}

unsigned Network::add_bmv2_root() {
    return add_bmv2({.space = Namespace::current(), .number = first_root, .device = cpu_device}, "switch");
}

unsigned Network::add_bmv2_below(unsigned parent, const std::string &name) {
    const auto number = static_cast<unsigned>(first_switch + switches_.size());
    const unsigned index = add_bmv2({.space = Namespace::create(), .number = number, .device = cpu_device}, name);
    connect_up(index, parent, "uplink");
    return index;
}

// The kernel sees these frames, too, and would answer for the address of the switch. And simple_switch takes frames as they
// are on a wire.
void Network::leave_to_bmv2(const Namespace &space, const std::string &port) {
    const Inside inside(space);
    std::ofstream("/proc/sys/net/ipv4/conf/" + port + "/arp_ignore") << 8; // answers for no address
    std::ofstream("/proc/sys/net/ipv4/conf/" + port + "/rp_filter") << 1;  // takes nothing that would be answered elsewhere
    std::ofstream("/proc/sys/net/ipv6/conf/" + port + "/disable_ipv6") << 1;
    run_checked(space, {"ethtool", "-K", port, "gro", "off"});
    accept_xdp_tx(space, port);
}

unsigned Network::add_switch(const std::string &name) {
    const auto index = static_cast<unsigned>(switches_.size());
    return add_bridge({.space = Namespace::create(), .number = first_switch + index, .device = "br0"}, name);
}

unsigned Network::add_bridge(Node node, const std::string &name) {
    switches_.push_back({std::move(node), name, {}, {}});
    build_bridge(switches_.back().space, "br0");
    give_addresses(switches_.back());
    return static_cast<unsigned>(switches_.size()) - 1;
}

unsigned Network::add_switch_below(unsigned parent, const std::string &name) {
    const unsigned index = add_switch(name);
    connect_up(index, parent, "uplink");
    return index;
}

void Network::connect_up(unsigned below, unsigned above, const std::string &port) {
    Switch &lower = switches_[below], &upper = switches_[above];
    const std::string port_there = upper.next_port();
    link(upper.space, port_there, lower.space, port, lower.name + "/" + port, between_switches());
    add_port(upper, port_there);
    add_port(lower, port);
    lower.uplinks.push_back({port, above, port_there});
}

// Frames that are not for the switch go on by its bridge, or as BMv2 says.
void Network::add_port(Switch &node, const std::string &port) {
    node.ports.push_back(port);
    if (is_bmv2(node)) {
        leave_to_bmv2(node.space, port);
        return;
    }
    join_bridge(node.space, port, "br0");
    if (!runs_xdp(node)) {
        enable_gro(node.space, port);
    }
}

// At the bridge of switch `at`.
unsigned Network::add_server(unsigned tree, unsigned at) {
    const auto index = static_cast<unsigned>(switches_.size());
    const std::string name = fmt::format("server{}", tree);
    switches_.push_back({{.space = Namespace::create(), .number = first_root + tree, .device = "eth0"}, name, {}, {}});
    const Switch &added = switches_.back();
    link(switches_[at].space, name, added.space, added.device, name, between_switches());
    add_port(switches_[at], name);
    enable_gro(added.space, added.device);
    give_addresses(added);
    set_offloads(added.space);
    return index;
}

void Network::build_bridge(const Namespace &space, const std::string &name) {
    ip_batch(space, fmt::format("link set lo up\n"
                                "link add {0} mtu {1} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
                                "link set {0} up\n",
                                name, options_.mtu));
}

// A port by whose frames the bridge does not learn who is where; `quiet`: nothing goes there but what is known to be there.
// So of several ways there is no loop: only one carries broadcasts.
void Network::teach_nothing(const Namespace &space, const std::string &port, bool quiet) {
    const char *flood = quiet ? "off" : "on";
    bridge_batch(space,
                 fmt::format("link set dev {} learning off flood {} mcast_flood {} bcast_flood {}\n", port, flood, flood, flood));
}

void Network::join_bridge(const Namespace &space, const std::string &port, const std::string &bridge) {
    ip_batch(space, fmt::format("link set {} master {}\n", port, bridge));
}

// A veth delivers to the queue of the sender's CPU. With one, packets are all received where others already are; with more, a
// socket of AF_XDP, which has one, would miss those of the rest.
static unsigned queues(const Options &options) {
    if (options.queues)
        return options.queues;
    return options.transport == "xdp" ? std::clamp(std::thread::hardware_concurrency(), 1U, 64U) : 1;
}

// A veth pair from `device` here to `peer` there.
void Network::connect(const Namespace &here, const std::string &device, const Namespace &there, const std::string &peer) {
    const std::string end = fmt::format("mtu {0} numrxqueues {1} numtxqueues {1}", options_.mtu, queues(options_));
    ip_batch(here, fmt::format("link add {0} {1} type veth peer name {2} {1} netns {3}\nlink set {0} up\n", device, end, peer,
                               there.path()));
    ip_batch(there, fmt::format("link set {} up\n", peer));
}

// A link that may be bad, from `device` here to `peer` there; `name` is its own for --cut.
void Network::link(const Namespace &here, const std::string &device, const Namespace &there, const std::string &peer,
                   const std::string &name, LinkQuality quality) {
    if (!links_) {
        connect(here, device, there, peer);
        return;
    }
    const LinkEnds ends = links_->next_ends();
    connect(here, device, links_->space(), ends.near);
    connect(links_->space(), ends.far, there, peer);
    links_->join(name, quality);
    accept_xdp_tx(links_->space(), ends.far);
    accept_xdp_tx(links_->space(), ends.near);
    if (options_.impairments.marks(quality.rate)) { // each frame waits, and is marked, by itself
        send_single_frames(here, device);
        send_single_frames(there, peer);
        for (const std::string &end : {ends.far, ends.near}) { // XDP has switched this on
            run_checked(links_->space(), {"ethtool", "-K", end, "gro", "off"});
        }
    }
}

LinkQuality Network::between_switches() const {
    const Impairments &impairments = options_.impairments;
    return {.lossy = !impairments.only_host, .rate = impairments.between_switches()};
}

// On bad links everybody knows everybody's hardware address from the start: a lost ARP request costs a second
// and would hide what the loss does to the traffic itself. With several spines, too, most of which no broadcast of a leaf
// reaches.
void Network::introduce_neighbours() {
    std::vector<const Node *> nodes;
    for (const Switch &node : switches_) {
        nodes.push_back(&node);
    }
    for (const Node &node : hosts_) {
        nodes.push_back(&node);
    }
    for (const Node *node : nodes) {
        std::string others;
        for (const Node *other : nodes) {
            others += other != node ? neighbour(*other, node->device) : "";
        }
        ip_batch(node->space, others);
    }
}

// XDP redirects to a veth only if its other end has GRO or an XDP program. A switch's port must not have both: a veth with GRO
// goes on polling while its program is taken away, and that reads ctx->ingress_ifindex, which is gone already (a kernel bug; 6.12
// stops there).
void Network::enable_gro(const Namespace &space, const std::string &device) {
    run_checked(space, {"ethtool", "-K", device, "gro", "on"});
}

// XDP_TX wants a program there.
void Network::accept_xdp_tx(const Namespace &space, const std::string &device) {
    if (!pass_) {
        enable_gro(space, device);
        return;
    }
    const Inside inside(space);
    pass_->attach(device);
}

} // namespace netns
