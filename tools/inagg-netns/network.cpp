// SPDX-License-Identifier: BSD-2-Clause
#include "network.hpp"

#include <fmt/core.h>

namespace netns {
namespace {

void ip_batch(const Namespace &space, const std::string &commands) {
    run_checked(space, {"ip", "-batch", "-"}, commands);
}

// XDP may send to a veth only if its other end has GRO or an XDP program.
void enable_gro(const Namespace &space, const std::string &device) {
    run_checked(space, {"ethtool", "-K", device, "gro", "on"});
}

// Addresses by number: hosts count from 10, the switch is 1.
unsigned host_number(unsigned host) { return 10 + host; }

std::string mac(unsigned number) { return fmt::format("02:00:0a:4d:00:{:02x}", number); }

std::string neighbour(unsigned number, const std::string &device) {
    return fmt::format("neigh replace 10.77.0.{0} lladdr {1} nud permanent dev {2}\n"
                       "neigh replace fd77::{0} lladdr {1} nud permanent dev {2}\n",
                       number, mac(number), device);
}

} // namespace

Network::Network(const Options &options) : options_(options), switch_(Namespace::current()) {
    if (options.impairments.any()) {
        links_.emplace(options.impairments);
    }
    if (options.with_inaggd()) {
        pass_.emplace();
    }
    build_bridge(switch_, "br0");
    ip_batch(switch_,
             fmt::format("link set br0 address {}\naddr add {}/24 dev br0\naddr add {}/64 dev br0 nodad\n",
                         mac(1), switch_address4, switch_address6));
    const bool rack = options.topology == "bridge";
    if (rack) {
        between_.push_back(Namespace::create());
        build_bridge(between_[0], "rack0");
        connect(switch_, "p0", between_[0], "uplink");
        ip_batch(switch_, "link set p0 master br0\n");
        ip_batch(between_[0], "link set uplink master rack0\n");
        accept_xdp_tx(between_[0], "uplink");
        ports_.push_back("p0");
    }
    for (unsigned host = 0; host < options.hosts(); ++host) {
        if (rack) {
            build_host(host, between_[0], "rack0", fmt::format("w{}", host));
        } else {
            ports_.push_back(fmt::format("p{}", host));
            build_host(host, switch_, "br0", ports_.back());
        }
    }
    if (links_) {
        introduce_neighbours();
    }
}

std::string Network::host_address(unsigned host) const {
    return fmt::format("{}{}", options_.ipv6 ? "fd77::" : "10.77.0.", host_number(host));
}

std::string Network::switch_address() const { return options_.ipv6 ? switch_address6 : switch_address4; }

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

void Network::build_host(unsigned host, const Namespace &fabric, const std::string &bridge,
                         const std::string &port) {
    hosts_.push_back(Namespace::create());
    const Namespace &space = hosts_.back();
    if (links_) {
        const std::string host_end = fmt::format("host{}", host), switch_end = fmt::format("port{}", host);
        connect(fabric, port, links_->space(), switch_end);
        connect(links_->space(), host_end, space, "eth0");
        links_->join(host_end, switch_end);
        accept_xdp_tx(links_->space(), host_end);
        accept_xdp_tx(links_->space(), switch_end);
    } else {
        connect(fabric, port, space, "eth0");
        if (&fabric != &switch_) {
            accept_xdp_tx(fabric, port);
        }
    }
    ip_batch(fabric, fmt::format("link set {} master {}\n", port, bridge));
    ip_batch(space, fmt::format("link set lo up\nlink set eth0 address {1}\n"
                                "addr add 10.77.0.{0}/24 dev eth0\naddr add fd77::{0}/64 dev eth0 nodad\n",
                                host_number(host), mac(host_number(host))));
    set_offloads(space);
}

// On bad links everybody knows everybody's hardware address from the start: a lost ARP request costs a second
// and would hide what the loss does to the traffic itself.
void Network::introduce_neighbours() {
    std::string everybody;
    for (unsigned host = 0; host < hosts_.size(); ++host) {
        everybody += neighbour(host_number(host), "br0");
    }
    ip_batch(switch_, everybody);
    for (unsigned host = 0; host < hosts_.size(); ++host) {
        std::string others = neighbour(1, "eth0");
        for (unsigned other = 0; other < hosts_.size(); ++other) {
            others += other != host ? neighbour(host_number(other), "eth0") : "";
        }
        ip_batch(hosts_[host], others);
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
    if (options_.with_inaggd()) {
        // XDP cannot parse a frame of many datagrams; TCP may stay large, it passes the switch unread.
        run_checked(space, {"ethtool", "-K", "eth0", "tx-udp-segmentation", "off"});
    }
    if (options_.impairments.needs_relay()) {
        // Frames as a wire would carry them, so that each one can be overtaken.
        run_checked(space, {"ethtool", "-K", "eth0", "tso", "off", "gso", "off"});
    }
}

} // namespace netns
