// SPDX-License-Identifier: BSD-2-Clause
// Hosts, leaves and spines, links with queues, and which way packets go.
//
// A rack is one leaf without spines. Nodes are numbered: hosts, leaf by leaf, then leaves, then spines.
//
// Queues drop what is too much, as Ethernet's do, or nothing is lost (`buffer_bytes`): then a link's sender has credits for its
// receiver's buffer, and gets them back when what came has left the switch. So congestion spreads to where packets can choose
// another way, and to the senders. ns-3's devices do not have this, so the links here are our own.
#pragma once

#include "frame.hpp"

#include <ns3/application.h>
#include <ns3/node.h>

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace sim {

struct Shape {
    uint32_t leaves = 1, spines = 0, hosts = 4;                        // hosts of each leaf
    uint64_t host_rate = 100'000'000'000, link_rate = 100'000'000'000; // bit/s; between switches
    uint64_t delay_ns = 300;                                           // of a link, with what a switch takes
    uint32_t queue_bytes = 4 << 20;                                    // of a switch's port: what is more is dropped
    uint32_t mark_bytes = 0;              // what finds a longer queue is marked (ECN), also by hosts' own; 0: nothing is
    uint32_t long_queue_bytes = 32 << 10; // packets avoid a port whose queue is longer, where there are others
    uint32_t buffer_bytes = 0;            // where a link ends, for what the switch has not sent on yet; 0: packets may be lost
};

class Network;
class Port;

// Room in the buffer at the end of a link: free again when all that came of the packet has gone on.
class Room {
public:
    Room(Port &sender, uint32_t bytes) : sender_(sender), bytes_(bytes) {}
    ~Room();
    Room(const Room &) = delete;

private:
    Port &sender_;
    const uint32_t bytes_;
};
using Held = std::shared_ptr<Room>;

// What runs on a node: our switch, or our worker and whatever else a host does.
class Station : public ns3::Application {
public:
    Station(Network &network, uint32_t number) : network_(network), number_(number) {}
    uint32_t number() const { return number_; }

    virtual void receive(const ns3::Ptr<ns3::Packet> &packet, const Held &room) = 0;

protected:
    // Through a port, to `envelope.to`.
    void send(uint32_t port, Envelope envelope, const ns3::Ptr<ns3::Packet> &content, const Held &room, bool urgent = false);

    Network &network_;

private:
    const uint32_t number_;
};

// One direction of a link, where it begins.
class Port {
public:
    Port(const Shape &shape, uint64_t rate, uint32_t peer, uint32_t limit);

    const uint64_t rate;
    const uint32_t peer; // node
    Station *receiver = nullptr;

    // `room`: what is free once the packet has left. Urgent packets overtake others, not one another.
    void send(const ns3::Ptr<ns3::Packet> &packet, const Held &room, bool urgent = false);
    void give_back(uint32_t bytes);
    // From now on each packet is lost on the way by that chance.
    void lose(double chance, uint64_t seed);
    // The run is over: whatever becomes free starts nothing any more.
    void close() { closed_ = true; }
    void clear() { queue_.clear(); }

    uint32_t queued() const { return queued_; }
    uint64_t sent() const { return sent_; } // bytes
    uint64_t dropped() const { return dropped_; }
    uint64_t lost() const { return lost_; }
    uint64_t marked() const { return marked_; }

private:
    struct Item {
        ns3::Ptr<ns3::Packet> packet;
        Held room;
    };

    ns3::Ptr<ns3::Packet> mark(const ns3::Ptr<ns3::Packet> &packet);
    void pump();
    void finish();
    void deliver(ns3::Ptr<ns3::Packet> packet);

    const uint64_t delay_ns_;
    const bool lossless_;
    const uint32_t limit_, mark_above_;
    uint32_t credits_, queued_ = 0;
    uint32_t urgent_ = 0; // packets, at the head of the queue
    bool busy_ = false, closed_ = false;
    std::deque<Item> queue_;
    uint64_t sent_ = 0, dropped_ = 0, marked_ = 0, lost_ = 0;
    std::bernoulli_distribution is_lost_{0};
    std::mt19937_64 random_;
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

    Port &port(uint32_t node, uint32_t number) { return *ports_[node][number]; }
    // Is a port's queue one that packets avoid, where there are others?
    bool is_long(uint32_t node, uint32_t number);
    // The port of `node` that leads to `to`. Where several do, the one that `preferred` says unless its queue is long.
    uint32_t port_to(uint32_t node, uint32_t to, uint32_t preferred);
    // A leaf's port to a spine: the preferred one, or if its queue is long the one with the shortest (Canary §5.2).
    uint32_t up_port(uint32_t leaf, uint32_t preferred);
    uint32_t up_port_of(uint32_t spine_index) const { return shape.hosts + spine_index; }

    // Each packet from and to the host is lost by that chance.
    void lose(uint32_t host, double chance, uint64_t seed);

    // Utilisation from here on.
    void start_measuring();
    // Of each link between switches and to hosts, each direction for itself: 0 to 1.
    std::vector<double> utilisations() const;
    uint64_t drops() const;
    uint64_t marks() const;
    uint64_t lost() const;

private:
    uint64_t of_all(uint64_t (Port::*count)() const) const;
    void connect(uint32_t a, uint32_t b, uint64_t rate);
    void attach(uint32_t node, const ns3::Ptr<Station> &station);

    std::vector<ns3::Ptr<ns3::Node>> nodes_;
    std::vector<std::vector<std::unique_ptr<Port>>> ports_;
    std::vector<uint64_t> sent_before_; // by each port, when measuring began
    double measured_from_ = 0;
};

} // namespace sim
