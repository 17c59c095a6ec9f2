// SPDX-License-Identifier: BSD-2-Clause
// Hosts of a Network: the ranks', and those that send beside them.
#include "network.hpp"

#include <fmt/core.h>

#include <fstream>

namespace netns {
namespace {

// Of addresses; network.cpp has the others.
constexpr unsigned first_host = 10, first_guest = 200;

void let_tcp_use_ecn(const Namespace &space) {
    const Inside inside(space);
    std::ofstream("/proc/sys/net/ipv4/tcp_ecn") << 1;
}

} // namespace

void Network::build_host(unsigned leaf) {
    const std::string port = switches_[leaf].next_port();
    leaf_of_.push_back(leaf);
    build_host_behind(switches_[leaf].space, port);
    add_port(switches_[leaf], port);
}

// The other end of `port`, which its caller connects.
void Network::build_host_behind(const Namespace &fabric, const std::string &port) {
    const auto index = static_cast<unsigned>(hosts_.size());
    hosts_.push_back({.space = Namespace::create(), .number = first_host + index, .device = "eth0"});
    const Node &host = hosts_.back();
    const Impairments &impairments = options_.impairments;
    link(fabric, port, host.space, host.device, fmt::format("host{}", index),
         {.lossy = impairments.only_host.value_or(index) == index, .rate = impairments.rate});
    prepare_host(host);
}

// Its own link has no limit, so that the flow meets that of the uplink.
void Network::build_guest(unsigned leaf, unsigned spine) {
    const auto index = static_cast<unsigned>(guests_.size());
    guests_.push_back({{.space = Namespace::create(), .number = first_guest + index, .device = "eth0"}, leaf, spine});
    const Guest &guest = guests_.back();
    const std::string port = fmt::format("guest{}", index);
    connect(switches_[leaf].space, port, guest.space, guest.device);
    enable_gro(switches_[leaf].space, port);
    join_bridge(switches_[leaf].space, port, "br0");
    prepare_host(guest);
}

void Network::prepare_host(const Node &host) {
    enable_gro(host.space, host.device);
    give_addresses(host);
    set_offloads(host.space);
    if (options_.impairments.ecn.count() > 0) {
        let_tcp_use_ecn(host.space);
    }
}

void Network::give_addresses(const Node &node) {
    ip_batch(node.space, fmt::format("link set lo up\nlink set {0} address {1}\naddr add {2}/24 dev {0}\n"
                                     "addr add {3}/64 dev {0} nodad\n",
                                     node.device, node.mac(), node.address4(), node.address6()));
}

void Network::set_offloads(const Namespace &space) {
    if (options_.with_switch()) {
        // XDP cannot parse a frame of many datagrams; TCP may stay large, it passes the switch unread.
        run_checked(space, {"ethtool", "-K", "eth0", "tx-udp-segmentation", "off"});
    }
    if (options_.with_bmv2()) {
        run_checked(space, {"ethtool", "-K", "eth0", "tx", "off"}); // nobody would fill in the checksums
    }
    if (options_.impairments.needs_relay()) {
        send_single_frames(space, "eth0"); // so that each one can be overtaken
    }
}

// As a wire would carry them, also those of TCP that GRO put together.
void Network::send_single_frames(const Namespace &space, const std::string &device) {
    run_checked(space, {"ethtool", "-K", device, "tso", "off", "gso", "off"});
}

} // namespace netns
