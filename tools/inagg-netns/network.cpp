// SPDX-License-Identifier: BSD-2-Clause
#include "network.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <fstream>

namespace netns {
namespace {

void ip_batch(const Namespace &space, const std::string &commands) {
    run_checked(space, {"ip", "-batch", "-"}, commands);
}

// XDP may send to a veth only if its other end has GRO or an XDP program.
void enable_gro(const Namespace &space, const std::string &device) {
    run_checked(space, {"ethtool", "-K", device, "gro", "on"});
}

void let_tcp_use_ecn(const Namespace &space) {
    const Inside inside(space);
    std::ofstream("/proc/sys/net/ipv4/tcp_ecn") << 1;
}

// Numbers that addresses end in: the root is 1, further servers follow, hosts count from 10, other switches from 128.
constexpr unsigned root_number = 1, first_host = 10, first_switch = 128;

std::string neighbour(const Node &node, const std::string &device) {
    return fmt::format("neigh replace {} lladdr {} dev {} nud permanent\nneigh replace {} lladdr {} dev {} nud permanent\n",
                       node.address4(), node.mac(), device, node.address6(), node.mac(), device);
}

void give_addresses(const Node &node) {
    ip_batch(node.space, fmt::format("link set lo up\nlink set {0} address {1}\naddr add {2}/24 dev {0}\n"
                                     "addr add {3}/64 dev {0} nodad\n",
                                     node.device, node.mac(), node.address4(), node.address6()));
}

// p0, p1, ... beside the uplink.
std::string next_port(const Switch &at) { return fmt::format("p{}", at.ports.size() - (at.parent ? 1 : 0)); }

unsigned levels_of(const std::string &topology) {
    return topology == "three-level" ? 3 : topology == "two-level" ? 2 : 1;
}

// So many groups at each of `levels` levels make about equal ones of `hosts`.
unsigned fan_out(unsigned hosts, unsigned levels) {
    return static_cast<unsigned>(std::lround(std::ceil(std::pow(hosts, 1.0 / levels) - 1e-9)));
}

} // namespace

std::string Node::address4() const { return fmt::format("10.77.0.{}", number); }
std::string Node::address6() const { return fmt::format("fd77::{}", number); }
std::string Node::mac() const { return fmt::format("02:00:0a:4d:00:{:02x}", number); }

Network::Network(const Options &options) : options_(options) {
    if (options.impairments.any()) {
        links_.emplace(options.impairments);
    }
    if (options.with_switch()) {
        pass_.emplace();
    }
    const unsigned root = add_switch(std::nullopt, "switch");
    if (options.topology == "bridge") {
        between_.push_back(Namespace::create());
        build_bridge(between_[0], "rack0");
        connect(switches_[root].space, "p0", between_[0], "uplink");
        ip_batch(switches_[root].space, "link set p0 master br0\n");
        ip_batch(between_[0], "link set uplink master rack0\n");
        accept_xdp_tx(between_[0], "uplink");
        switches_[root].ports.push_back("p0");
        for (unsigned host = 0; host < options.hosts(); ++host) {
            leaf_of_.push_back(root);
            build_host_behind(between_[0], "rack0", fmt::format("w{}", host));
        }
    } else if (options.topology == "rack") {
        build_tree(add_switch(root, "leaf0"), 1, options.hosts());
    } else if (options.topology == "three-racks") {
        build_racks(add_switch(root, "spine0"), options.hosts());
    } else {
        build_tree(root, levels_of(options.topology), options.hosts());
    }
    if (options.with_server()) {
        servers_at_ = switches_[root].children.size() == 1 ? switches_[root].children[0] : root;
        for (unsigned tree = 1; tree < options.trees; ++tree) {
            add_server(tree);
        }
    }
    if (links_) {
        introduce_neighbours();
    }
}

std::vector<std::string> Network::parents(const Switch &node) const {
    if (!node.parent) {
        return {};
    }
    std::vector<std::string> found = {"uplink/" + address(switches_[*node.parent])};
    for (const Switch &server : switches_) {
        if (is_further_server(server) && *node.parent == 0) {
            found.push_back((&node == &switches_[servers_at_] ? server.name : "uplink") + "/" + address(server));
        }
    }
    // A job's number modulo theirs says which is its: that of the first tree is the root's.
    std::rotate(found.begin(), found.end() - options_.job % found.size(), found.end());
    return found;
}

std::string Network::switch_addresses(unsigned host) const {
    std::string addresses = address(switches_[leaf_of_[host]]);
    for (const Switch &server : switches_) {
        if (is_further_server(server) && leaf_of_[host] == 0) {
            addresses += "," + address(server);
        }
    }
    return addresses;
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
            build_tree(add_switch(at, fmt::format("{}{}", kind, alike)), levels - 1, size);
            done += size;
        }
    }
}

// Two racks behind that of the root (ATP, Figure 9).
void Network::build_racks(unsigned at, unsigned hosts) {
    const unsigned third = hosts / 3;
    for (const char *leaf : {"leaf0", "leaf1"}) {
        build_tree(add_switch(at, leaf), 1, third);
    }
    build_tree(at, 1, hosts - 2 * third);
}

unsigned Network::add_switch(std::optional<unsigned> parent, const std::string &name) {
    const auto index = static_cast<unsigned>(switches_.size());
    switches_.push_back({{.space = parent ? Namespace::create() : Namespace::current(),
                          .number = parent ? first_switch + index : root_number,
                          .device = "br0"},
                         name,
                         {},
                         parent,
                         {},
                         {}});
    Switch &added = switches_.back();
    build_bridge(added.space, "br0");
    give_addresses(added);
    if (parent) {
        Switch &above = switches_[*parent];
        const std::string port = next_port(above);
        link(above.space, port, added.space, "uplink", name, !options_.impairments.only_host);
        ip_batch(above.space, fmt::format("link set {} master br0\n", port));
        ip_batch(added.space, "link set uplink master br0\n");
        above.ports.push_back(port);
        above.children.push_back(index);
        added.port_of_parent = port;
        added.ports.push_back("uplink");
    }
    return index;
}

// Ranks and switches reach it as they reach the root, over a link of its own.
void Network::add_server(unsigned tree) {
    const std::string name = fmt::format("server{}", tree);
    switches_.push_back({{.space = Namespace::create(), .number = root_number + tree, .device = "eth0"},
                         name,
                         {},
                         {},
                         name,
                         switches_[0].children});
    const Switch &added = switches_.back();
    Switch &at = switches_[servers_at_];
    link(at.space, name, added.space, added.device, name, !options_.impairments.only_host);
    ip_batch(at.space, fmt::format("link set {} master br0\n", name));
    give_addresses(added);
    set_offloads(added.space);
    at.ports.push_back(name);
}

void Network::build_bridge(const Namespace &space, const std::string &name) {
    ip_batch(space,
             fmt::format("link set lo up\n"
                         "link add {0} mtu {1} type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
                         "link set {0} up\n",
                         name, options_.mtu));
}

// A veth pair from `device` here to `peer` there.
void Network::connect(const Namespace &here, const std::string &device, const Namespace &there,
                      const std::string &peer) {
    ip_batch(here,
             fmt::format("link add {0} mtu {1} type veth peer name {2} mtu {1} netns {3}\nlink set {0} up\n",
                         device, options_.mtu, peer, there.path()));
    ip_batch(there, fmt::format("link set {} up\n", peer));
    enable_gro(here, device);
    enable_gro(there, peer);
}

// A link that may be bad, from `device` here to `peer` there; `name` tells it from others.
void Network::link(const Namespace &here, const std::string &device, const Namespace &there, const std::string &peer,
                   const std::string &name, bool lossy) {
    if (!links_) {
        connect(here, device, there, peer);
        return;
    }
    const std::string far_end = name + "-far", near_end = name + "-near";
    connect(here, device, links_->space(), near_end);
    connect(links_->space(), far_end, there, peer);
    links_->join(far_end, near_end, lossy);
    accept_xdp_tx(links_->space(), far_end);
    accept_xdp_tx(links_->space(), near_end);
}

void Network::build_host(unsigned leaf) {
    Switch &at = switches_[leaf];
    const std::string port = next_port(at);
    at.ports.push_back(port);
    leaf_of_.push_back(leaf);
    build_host_behind(at.space, "br0", port);
}

void Network::build_host_behind(const Namespace &fabric, const std::string &bridge, const std::string &port) {
    const auto index = static_cast<unsigned>(hosts_.size());
    hosts_.push_back({.space = Namespace::create(), .number = first_host + index, .device = "eth0"});
    const Node &host = hosts_.back();
    link(fabric, port, host.space, host.device, fmt::format("host{}", index),
         options_.impairments.only_host.value_or(index) == index);
    if (!links_ && bridge != "br0") {
        accept_xdp_tx(fabric, port);
    }
    ip_batch(fabric, fmt::format("link set {} master {}\n", port, bridge));
    give_addresses(host);
    set_offloads(host.space);
    if (options_.impairments.ecn.count() > 0) {
        let_tcp_use_ecn(host.space);
    }
}

// On bad links everybody knows everybody's hardware address from the start: a lost ARP request costs a second
// and would hide what the loss does to the traffic itself.
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

// The switch's own ports have its program.
void Network::accept_xdp_tx(const Namespace &space, const std::string &device) {
    if (pass_) {
        const Inside inside(space);
        pass_->attach(device);
    }
}

void Network::set_offloads(const Namespace &space) {
    if (options_.with_switch()) {
        // XDP cannot parse a frame of many datagrams; TCP may stay large, it passes the switch unread.
        run_checked(space, {"ethtool", "-K", "eth0", "tx-udp-segmentation", "off"});
    }
    if (options_.impairments.needs_relay()) {
        // Frames as a wire would carry them, so that each one can be overtaken.
        run_checked(space, {"ethtool", "-K", "eth0", "tso", "off", "gso", "off"});
    }
}

} // namespace netns
