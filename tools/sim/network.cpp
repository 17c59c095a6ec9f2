// SPDX-License-Identifier: BSD-2-Clause
#include "network.hpp"

#include <ns3/simulator.h>

namespace sim {

Room::~Room() { sender_.give_back(bytes_); }

void Station::send(uint32_t port, Envelope envelope, const ns3::Ptr<ns3::Packet> &content, const Held &room, bool urgent) {
    envelope.from = static_cast<uint16_t>(number_);
    content->AddHeader(envelope);
    network_.port(number_, port).send(content, room, urgent);
}

Port::Port(const Shape &shape, uint64_t bits_per_second, uint32_t peer_node, uint32_t limit)
    : rate(bits_per_second), peer(peer_node), delay_ns_(shape.delay_ns), lossless_(shape.buffer_bytes), limit_(limit),
      mark_above_(shape.mark_bytes ? shape.mark_bytes : ~0u), credits_(shape.buffer_bytes) {}

void Port::send(const ns3::Ptr<ns3::Packet> &packet, const Held &room, bool urgent) {
    const uint32_t size = packet->GetSize();
    if (!lossless_ && queued_ + size > limit_) {
        dropped_++;
        return;
    }
    queue_.insert(urgent ? queue_.begin() + urgent_ : queue_.end(), {queued_ > mark_above_ ? mark(packet) : packet, room});
    urgent_ += urgent;
    queued_ += size;
    pump();
}

// Others may have the same packet.
ns3::Ptr<ns3::Packet> Port::mark(const ns3::Ptr<ns3::Packet> &packet) {
    Envelope envelope;
    ns3::Ptr<ns3::Packet> copy = packet->Copy();
    copy->RemoveHeader(envelope);
    envelope.congested = true;
    copy->AddHeader(envelope);
    marked_++;
    return copy;
}

void Port::give_back(uint32_t bytes) {
    credits_ += bytes;
    pump();
}

void Port::pump() {
    if (busy_ || closed_ || queue_.empty())
        return;
    const uint32_t size = queue_.front().packet->GetSize();
    if (lossless_ && credits_ < size)
        return;
    Item item = std::move(queue_.front());
    queue_.pop_front();
    urgent_ -= urgent_ > 0;
    queued_ -= size;
    sent_ += size;
    credits_ -= lossless_ ? size : 0;
    busy_ = true;
    const auto took = ns3::PicoSeconds(static_cast<uint64_t>(size) * 8'000'000'000'000 / rate);
    ns3::Simulator::Schedule(took, &Port::finish, this);
    ns3::Simulator::Schedule(took + ns3::NanoSeconds(delay_ns_), &Port::deliver, this, item.packet);
}

void Port::finish() {
    busy_ = false;
    pump();
}

void Port::lose(double chance, uint64_t seed) {
    is_lost_ = std::bernoulli_distribution(chance);
    random_.seed(seed);
}

void Port::deliver(ns3::Ptr<ns3::Packet> packet) {
    if (is_lost_(random_)) {
        lost_++;
        return;
    }
    receiver->receive(packet, lossless_ ? std::make_shared<Room>(*this, packet->GetSize()) : Held{});
}

Network::Network(const Shape &wanted) : shape(wanted), ports_(size()) {
    ns3::Time::SetResolution(ns3::Time::PS); // a packet of 66 bytes takes 660 ps at 800 Gbit/s
    for (uint32_t node = 0; node < size(); node++)
        nodes_.push_back(ns3::CreateObject<ns3::Node>());
    for (uint32_t host = 0; host < hosts(); host++)
        connect(host, leaf(leaf_index(host)), shape.host_rate);
    for (uint32_t l = 0; l < shape.leaves; l++)
        for (uint32_t s = 0; s < shape.spines; s++)
            connect(leaf(l), spine(s), shape.link_rate);
}

// What waits in one port's queue has room behind another port.
Network::~Network() {
    for (const auto &all : ports_)
        for (const auto &port : all)
            port->close();
    for (const auto &all : ports_)
        for (const auto &port : all)
            port->clear();
    ns3::Simulator::Destroy();
}

// A host does not drop what it sends itself: its sockets wait.
void Network::connect(uint32_t a, uint32_t b, uint64_t rate) {
    ports_[a].push_back(std::make_unique<Port>(shape, rate, b, is_host(a) ? ~0u : shape.queue_bytes));
    ports_[b].push_back(std::make_unique<Port>(shape, rate, a, shape.queue_bytes));
}

void Network::attach(uint32_t node, const ns3::Ptr<Station> &station) {
    nodes_[node]->AddApplication(station);
    for (const auto &port : ports_[node])
        for (const auto &back : ports_[port->peer])
            if (back->peer == node)
                back->receiver = ns3::PeekPointer(station);
}

bool Network::is_long(uint32_t node, uint32_t number) { return port(node, number).queued() > shape.long_queue_bytes; }

uint32_t Network::up_port(uint32_t leaf_node, uint32_t preferred) {
    const uint32_t first = preferred % shape.spines;
    const auto queued = [&](uint32_t index) { return port(leaf_node, up_port_of(index)).queued(); };
    if (!is_long(leaf_node, up_port_of(first)))
        return up_port_of(first);
    uint32_t best = first;
    for (uint32_t i = 1; i < shape.spines; i++) {
        const uint32_t other = (first + i) % shape.spines;
        if (queued(other) < queued(best))
            best = other;
    }
    return up_port_of(best);
}

uint32_t Network::port_to(uint32_t node, uint32_t to, uint32_t preferred) {
    if (is_host(node))
        return 0;
    if (!is_leaf(node)) // of a spine
        return is_host(to) ? leaf_index(to) : to - leaf(0);
    if (is_host(to) && leaf(leaf_index(to)) == node)
        return to % shape.hosts;
    return is_host(to) || is_leaf(to) ? up_port(node, preferred) : up_port_of(to - spine(0));
}

void Network::lose(uint32_t host, double chance, uint64_t seed) {
    port(host, 0).lose(chance, 2 * seed);
    port(leaf(leaf_index(host)), port_to(leaf(leaf_index(host)), host, 0)).lose(chance, 2 * seed + 1);
}

void Network::start_measuring() {
    measured_from_ = ns3::Simulator::Now().GetSeconds();
    sent_before_.clear();
    for (const auto &all : ports_)
        for (const auto &port : all)
            sent_before_.push_back(port->sent());
}

std::vector<double> Network::utilisations() const {
    const double seconds = ns3::Simulator::Now().GetSeconds() - measured_from_;
    std::vector<double> links;
    for (const auto &all : ports_)
        for (const auto &port : all) {
            const auto bits = static_cast<double>(port->sent() - sent_before_[links.size()]) * 8;
            links.push_back(bits / (seconds * static_cast<double>(port->rate)));
        }
    return links;
}

uint64_t Network::of_all(uint64_t (Port::*count)() const) const {
    uint64_t packets = 0;
    for (const auto &all : ports_)
        for (const auto &port : all)
            packets += (*port.*count)();
    return packets;
}

uint64_t Network::drops() const { return of_all(&Port::dropped); }
uint64_t Network::marks() const { return of_all(&Port::marked); }
uint64_t Network::lost() const { return of_all(&Port::lost); }

} // namespace sim
