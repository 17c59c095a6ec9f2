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

// What the namespace of a switch in BMv2 has beside its ports: the agent's interface, with the switch's addresses, and its other
// end.
inline constexpr const char *cpu_device = "cpu", *cpu_peer = "cpu-port";

// A place with addresses: they end in its number.
struct Node {
    Namespace space;
    unsigned number;
    std::string device; // that has the addresses

    std::string address4() const;
    std::string address6() const;
    std::string mac() const;
};

// A switch's way to one that sums what it has summed.
struct Uplink {
    std::string port;
    unsigned parent;        // index of the other switch
    std::string port_there; // that leads here
};

struct Switch : Node {
    std::string name;               // switch (the root), leaf0, leaf1, ...; spine0, ... above them; server1, ...
    std::vector<std::string> ports; // p0, p1, ...; those of its uplinks; server1, ...
    std::vector<Uplink> uplinks;    // in the order of trees; none: a root

    bool is_root() const { return uplinks.empty(); }
    // Of p0, p1, ..., the first that is not there.
    std::string next_port() const;
};

// An end of a background flow that loads `spine`.
struct Guest : Node {
    unsigned leaf, spine;
};

// Where a background flow runs.
struct FlowPath {
    const Background &flow;
    std::string name;
    const Node &from, &to;
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
//   leaf-spine   host 0: eth0 -- p0 \               / uplink0 -- p0 \                                      .
//                host 1: eth0 -- p1 -- br0 (leaf0) --                 br0 (spine0)                         .
//                host 2: eth0 -- p0 -- br0 (leaf1) -- uplink0 -- p1 /                                      .
//                each leaf: br0 -- uplink1 -- its port of br0 (spine1); and so on
//
// In leaf-spine each spine is a root, spine0 in the place of switch. What hosts send each other goes by the spine that the
// receiver's number says; broadcasts by spine0 alone, so that there are no loops.
//
// A root in BMv2 has cpu in the place of br0, whose other end is a port of it, too.
//
// With several trees and a server as root there are further servers: at the root's only child if it has one,
// else at the root's bridge; in leaf-spine the spines are those servers.
//
// With impairments, or if links are cut, each link passes through the LinkSpace.
class Network {
public:
    explicit Network(const Options &options);

    // The root comes first; it is the first tree's.
    const std::vector<Switch> &switches() const { return switches_; }
    // The one of that name; the root if there is no name.
    const Switch &find_switch(const std::string &name) const;
    // PORT/ADDRESS of those that sum what this one has summed, as --parent wants them; none: a root.
    std::vector<std::string> parents(const Switch &node) const;
    // Those whose sums this one sums, as --child wants them: PORT/ADDRESS, or ADDRESS for a server.
    std::vector<std::string> children(const Switch &node) const;
    // The P4 switch, in the place of the root.
    bool is_bmv2(const Switch &node) const { return node.device == cpu_device; }
    bool is_server(const Switch &node) const { return options_.with_server() && node.is_root(); }
    // On its ports, inaggd's programs.
    bool runs_xdp(const Switch &node) const { return options_.with_switch() && !is_bmv2(node) && !is_server(node); }
    // Addresses for INAGG_SWITCH, with commas: of the host's switch, or of all servers if there is none.
    std::string switch_addresses(unsigned host) const;
    const Namespace &host_space(unsigned host) const { return hosts_[host].space; }
    // Address in the family that the ranks use.
    std::string address(const Node &node) const { return options_.ipv6 ? node.address6() : node.address4(); }
    std::string host_address(unsigned host) const { return address(hosts_[host]); }
    // Of the background flows.
    std::vector<FlowPath> flow_paths() const;
    // nullptr: links are perfect.
    LinkSpace *links() { return links_ ? &*links_ : nullptr; }

private:
    // topology.cpp
    void build_topology();
    void build_plain_bridge();
    void build_tree(unsigned at, unsigned levels, unsigned hosts);
    void build_racks(unsigned at, unsigned hosts);
    void build_leaf_spine();
    std::string ways_from(unsigned place) const;
    void add_servers();
    void add_guests();

    // network.cpp
    unsigned add_root(const std::string &name);
    unsigned add_switch(const std::string &name);
    unsigned add_bmv2(Node node, const std::string &name);
    unsigned add_bmv2_root();
    unsigned add_bmv2_below(unsigned parent, const std::string &name);
    void leave_to_bmv2(const Namespace &space, const std::string &port);
    void add_port(Switch &node, const std::string &port);
    unsigned add_bridge(Node node, const std::string &name);
    unsigned add_switch_below(unsigned parent, const std::string &name);
    void connect_up(unsigned below, unsigned above, const std::string &port);
    unsigned add_server(unsigned tree, unsigned at);
    void build_bridge(const Namespace &space, const std::string &name);
    static void teach_nothing(const Namespace &space, const std::string &port, bool quiet);
    static void join_bridge(const Namespace &space, const std::string &port, const std::string &bridge);
    void link(const Namespace &here, const std::string &device, const Namespace &there, const std::string &peer,
              const std::string &name, LinkQuality quality);
    LinkQuality between_switches() const;
    void introduce_neighbours();
    void check_names() const;
    static void enable_gro(const Namespace &space, const std::string &device);
    void accept_xdp_tx(const Namespace &space, const std::string &device);
    void connect(const Namespace &here, const std::string &device, const Namespace &there, const std::string &peer);

    // hosts.cpp
    void build_host(unsigned leaf);
    void build_host_behind(const Namespace &fabric, const std::string &port);
    void build_guest(unsigned leaf, unsigned spine);
    void prepare_host(const Node &host);
    static void give_addresses(const Node &node);
    void set_offloads(const Namespace &space);
    static void send_single_frames(const Namespace &space, const std::string &device);

    const Options &options_;
    std::vector<Switch> switches_;
    std::vector<Node> hosts_;
    std::vector<Guest> guests_;      // ends of background flows: two for each
    std::vector<unsigned> leaf_of_;  // by host: index of its switch
    std::vector<Namespace> between_; // the rack of topology bridge
    std::optional<LinkSpace> links_;
    std::optional<PassProgram> pass_; // with a switch only
};

} // namespace netns
