// SPDX-License-Identifier: BSD-2-Clause
#include "network.hpp"

#include <ns3/drop-tail-queue.h>
#include <ns3/point-to-point-channel.h>
#include <ns3/simulator.h>

namespace sim {
namespace {

constexpr uint16_t ipv4 = 0x0800;
constexpr uint16_t mtu = 9000;

ns3::Ptr<ns3::PointToPointNetDevice> make_device(const ns3::Ptr<ns3::Node> &node, uint64_t rate, uint32_t queue_bytes) {
    auto queue = ns3::CreateObject<ns3::DropTailQueue<ns3::Packet>>();
    queue->SetMaxSize(ns3::QueueSize(ns3::QueueSizeUnit::BYTES, queue_bytes));
    auto device = ns3::CreateObject<ns3::PointToPointNetDevice>();
    device->SetAddress(ns3::Mac48Address::Allocate());
    device->SetDataRate(ns3::DataRate(rate));
    device->SetQueue(queue);
    node->AddDevice(device);
    device->SetMtu(mtu);
    return device;
}

} // namespace

void Station::send(uint32_t port, Envelope envelope, const ns3::Ptr<ns3::Packet> &content) {
    envelope.from = static_cast<uint16_t>(number_);
    content->AddHeader(envelope);
    const auto &device = network_.ports(number_)[port].device;
    device->Send(content, device->GetBroadcast(), ipv4);
}

uint32_t Port::queued() const { return device->GetQueue()->GetNBytes(); }

uint64_t Port::sent() const { return device->GetQueue()->GetTotalReceivedBytes() - queued(); }

uint64_t Port::dropped() const { return device->GetQueue()->GetTotalDroppedPackets(); }

bool Port::receive(ns3::Ptr<ns3::NetDevice>, ns3::Ptr<const ns3::Packet> packet, uint16_t, const ns3::Address &) {
    owner->receive(packet->Copy());
    return true;
}

Network::Network(const Shape &wanted) : shape(wanted), ports_(size()) {
    for (uint32_t node = 0; node < size(); node++)
        nodes_.push_back(ns3::CreateObject<ns3::Node>());
    for (uint32_t host = 0; host < hosts(); host++)
        connect(host, leaf(leaf_index(host)), shape.host_rate);
    for (uint32_t l = 0; l < shape.leaves; l++)
        for (uint32_t s = 0; s < shape.spines; s++)
            connect(leaf(l), spine(s), shape.link_rate);
    for (uint32_t node = 0; node < size(); node++) // their addresses are final now
        for (Port &port : ports_[node])
            port.device->SetReceiveCallback(ns3::MakeCallback(&Port::receive, &port));
}

Network::~Network() { ns3::Simulator::Destroy(); }

void Network::connect(uint32_t a, uint32_t b, uint64_t rate) {
    auto channel = ns3::CreateObject<ns3::PointToPointChannel>();
    channel->SetAttribute("Delay", ns3::TimeValue(ns3::NanoSeconds(shape.delay_ns)));
    // A host does not drop what it sends itself: its sockets wait.
    for (const auto &[node, peer] : {std::pair(a, b), std::pair(b, a)}) {
        Port port;
        port.peer = peer;
        port.rate = rate;
        port.device = make_device(nodes_[node], rate, is_host(node) ? 1u << 30 : shape.queue_bytes);
        port.device->Attach(channel);
        ports_[node].push_back(port);
    }
}

void Network::attach(uint32_t node, ns3::Ptr<Station> station) {
    nodes_[node]->AddApplication(station);
    for (Port &port : ports_[node])
        port.owner = ns3::PeekPointer(station);
}

uint32_t Network::up_port(uint32_t leaf_node, uint32_t preferred) {
    const std::vector<Port> &all = ports_[leaf_node];
    const uint32_t first = preferred % shape.spines;
    if (all[up_port_of(first)].queued() <= shape.long_queue_bytes)
        return up_port_of(first);
    uint32_t best = first;
    for (uint32_t i = 1; i < shape.spines; i++) {
        const uint32_t other = (first + i) % shape.spines;
        if (all[up_port_of(other)].queued() < all[up_port_of(best)].queued())
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

void Network::start_measuring() {
    measured_from_ = ns3::Simulator::Now().GetSeconds();
    for (std::vector<Port> &all : ports_)
        for (Port &port : all)
            port.sent_before = port.sent();
}

std::vector<double> Network::utilisations() const {
    const double seconds = ns3::Simulator::Now().GetSeconds() - measured_from_;
    std::vector<double> links;
    for (const std::vector<Port> &all : ports_)
        for (const Port &port : all)
            links.push_back(static_cast<double>(port.sent() - port.sent_before) * 8 / (seconds * static_cast<double>(port.rate)));
    return links;
}

uint64_t Network::drops() const {
    uint64_t packets = 0;
    for (const std::vector<Port> &all : ports_)
        for (const Port &port : all)
            packets += port.dropped();
    return packets;
}

} // namespace sim
