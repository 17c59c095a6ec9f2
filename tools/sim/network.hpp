// SPDX-License-Identifier: BSD-2-Clause
// Hosts, leaves and spines: ns-3's nodes, point-to-point devices and drop-tail queues, and which way packets go.
//
// A rack is one leaf without spines. Nodes are numbered: hosts, leaf by leaf, then leaves, then spines.
#pragma once

#include "frame.hpp"

#include <ns3/application.h>
#include <ns3/node.h>
#include <ns3/point-to-point-net-device.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

namespace sim {

struct Shape {
    uint32_t leaves = 1, spines = 0, hosts = 4; // hosts of each leaf
    uint64_t host_rate = 100'000'000'000, link_rate = 100'000'000'000; // bit/s; between switches
    uint64_t delay_ns = 300;                    // of a link, with what a switch takes
    uint32_t queue_bytes = 4 << 20;             // of a port: what is more is dropped
    uint32_t long_queue_bytes = 32 << 10;       // packets avoid a port whose queue is longer, where there are others
};

class Network;

// What runs on a node: our switch, or our worker and whatever else a host does.
class Station : public ns3::Application {
public:
    Station(Network &network, uint32_t number) : network_(network), number_(number) {}
    uint32_t number() const { return number_; }

    virtual void receive(const ns3::Ptr<ns3::Packet> &packet) = 0;

protected:
    // Through a port, to `to`, or to whoever is there.
    void send(uint32_t port, Envelope envelope, const ns3::Ptr<ns3::Packet> &content);

    Network &network_;

private:
    const uint32_t number_;
};

struct Port {
    Station *owner = nullptr;
    uint32_t peer = 0; // node
    uint64_t rate = 0;
    ns3::Ptr<ns3::PointToPointNetDevice> device;
    uint64_t sent_before = 0; // bytes, when measuring began

    uint32_t queued() const;
    uint64_t sent() const; // bytes that have left the queue
    uint64_t dropped() const;
    bool receive(ns3::Ptr<ns3::NetDevice>, ns3::Ptr<const ns3::Packet> packet, uint16_t, const ns3::Address &);
};

class Network {
public:
    explicit Network(const Shape &shape);
    ~Network();
    Network(const Network &) = delete;

    const Shape shape;

    uint32_t hosts() const { return shape.leaves * shape.hosts; }
    uint32_t size() const { return hosts() + shape.leaves + shape.spines; }
    uint32_t leaf(uint32_t index) const { return hosts() + index; }
    uint32_t spine(uint32_t index) const { return hosts() + shape.leaves + index; }
    bool is_host(uint32_t node) const { return node < hosts(); }
    bool is_leaf(uint32_t node) const { return node >= hosts() && node < spine(0); }
    uint32_t leaf_index(uint32_t host) const { return host / shape.hosts; }

    template <typename T, typename... Args> ns3::Ptr<T> install(uint32_t node, Args &&...args) {
        ns3::Ptr<T> station = ns3::CreateObject<T>(*this, node, std::forward<Args>(args)...);
        attach(node, station);
        return station;
    }

    std::vector<Port> &ports(uint32_t node) { return ports_[node]; }
    // The port of `node` that leads to `to`. Where several do, the one that `preferred` says unless its queue is long.
    uint32_t port_to(uint32_t node, uint32_t to, uint32_t preferred);
    // A leaf's port to a spine: the preferred one, or if its queue is long the one with the shortest (Canary §5.2).
    uint32_t up_port(uint32_t leaf, uint32_t preferred);
    uint32_t up_port_of(uint32_t spine_index) const { return shape.hosts + spine_index; }

    // Utilisation from here on.
    void start_measuring();
    // Of each link between switches and to hosts, each direction for itself: 0 to 1.
    std::vector<double> utilisations() const;
    uint64_t drops() const;

private:
    void connect(uint32_t a, uint32_t b, uint64_t rate);
    void attach(uint32_t node, ns3::Ptr<Station> station);

    std::vector<ns3::Ptr<ns3::Node>> nodes_;
    std::vector<std::vector<Port>> ports_;
    double measured_from_ = 0;
};

} // namespace sim
