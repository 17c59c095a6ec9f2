// SPDX-License-Identifier: BSD-2-Clause
// The run's network: a switch, hosts, and what lies between them.
#pragma once

#include "link.hpp"
#include "options.hpp"
#include "pass.hpp"
#include "process.hpp"

#include <optional>
#include <string>
#include <vector>

namespace netns {

// A place with addresses: they end in its number.
struct Node {
    Namespace space;
    unsigned number;
    std::string device; // that has the addresses

    std::string address4() const;
    std::string address6() const;
    std::string mac() const;
};

struct Switch : Node {
    std::string name;               // switch (the root), leaf0, leaf1, ...; spine0, ... between them; server1, ...
    std::vector<std::string> ports; // p0, p1, ...; uplink, towards its parent; server1, ...
    std::optional<unsigned> parent; // index of another switch
    std::string port_of_parent;     // that leads here
    std::vector<unsigned> children;
};

// Builds the network in the current network namespace, which becomes the (root) switch's:
//
//   star    host 0: eth0 -- p0 \                    bridge   host 0: eth0 -- w0 \                          .
//           host 1: eth0 -- p1 -- br0 (switch)               host 1: eth0 -- w1 -- rack0 -- p0 -- br0
//
//   two-level    host 0: eth0 -- p0 \                                                                     .
//                host 1: eth0 -- p1 -- br0 (leaf0) -- uplink -- p0 \                                      .
//                host 2: eth0 -- p0 -- br0 (leaf1) -- uplink -- p1 -- br0 (switch)
//   three-level  likewise, with spines between leaves and root; each switch has about as many below it
//   rack         host 0: eth0 -- p0 -- br0 (leaf0) -- uplink -- p0 -- br0 (switch)
//   three-racks  ATP's Figure 9: leaf0, leaf1 and hosts -- br0 (spine0) -- uplink -- p0 -- br0 (switch)
//
// With several trees and a server as root there are further servers: at the root's only child if it has one, else at the
// root's bridge.
//
// With impairments each link passes through the LinkSpace.
class Network {
public:
    explicit Network(const Options &options);

    // The root comes first, further servers last.
    const std::vector<Switch> &switches() const { return switches_; }
    bool is_further_server(const Switch &node) const { return !node.parent && &node != &switches_[0]; }
    // PORT/ADDRESS of those that sum what this one has summed, as --parent wants them; none: a root.
    std::vector<std::string> parents(const Switch &node) const;
    // Addresses for INAGG_SWITCH, with commas: of the host's switch, or of all servers if there is none.
    std::string switch_addresses(unsigned host) const;
    const Namespace &host_space(unsigned host) const { return hosts_[host].space; }
    // Address in the family that the ranks use.
    std::string address(const Node &node) const { return options_.ipv6 ? node.address6() : node.address4(); }
    std::string host_address(unsigned host) const { return address(hosts_[host]); }
    // nullptr: links are perfect.
    LinkSpace *links() { return links_ ? &*links_ : nullptr; }

private:
    void build_bridge(const Namespace &space, const std::string &name);
    unsigned add_switch(std::optional<unsigned> parent, const std::string &name);
    void build_tree(unsigned at, unsigned levels, unsigned hosts);
    void build_racks(unsigned at, unsigned hosts);
    void add_server(unsigned tree);
    void build_host(unsigned leaf);
    void build_host_behind(const Namespace &fabric, const std::string &bridge, const std::string &port);
    void link(const Namespace &here, const std::string &device, const Namespace &there, const std::string &peer,
              const std::string &name, bool lossy);
    void introduce_neighbours();
    void accept_xdp_tx(const Namespace &space, const std::string &device);
    void set_offloads(const Namespace &space);
    void connect(const Namespace &here, const std::string &device, const Namespace &there,
                 const std::string &peer);

    const Options &options_;
    std::vector<Switch> switches_;
    std::vector<Node> hosts_;
    std::vector<unsigned> leaf_of_; // by host: index of its switch
    unsigned servers_at_ = 0;       // index of the switch that has the further servers
    std::vector<Namespace> between_; // the rack of topology bridge
    std::optional<LinkSpace> links_;
    std::optional<PassProgram> pass_; // with a switch only
};

} // namespace netns
