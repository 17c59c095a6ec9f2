// SPDX-License-Identifier: BSD-2-Clause
#include "switch.hpp"

namespace sim {

inagg_block Role::admit(const Message &message) const {
    const inagg_block b = message.block();
    const int refused = inagg_job_admits(&job_.core, &b, message.slot(), b.elements * inagg_element_bytes(b.dtype_op >> 4));
    require(!refused, "job {}: an honest packet is refused for reason {}", job_.number, -refused);
    return b;
}

uint64_t Site::ranks() const {
    uint64_t all = 0;
    for (const Child &child : children)
        all |= child.ranks;
    return all;
}

void Switch::receive(const ns3::Ptr<ns3::Packet> &packet, const Held &room) {
    Envelope envelope;
    packet->PeekHeader(envelope);
    if (envelope.to != number())
        return network_
            .port(number(), network_.port_to(number(), envelope.to, envelope.path == anyone ? envelope.to : envelope.path))
            .send(packet, room);
    packet->RemoveHeader(envelope);
    Message message;
    packet->RemoveHeader(message);
    if (envelope.congested) // as routers' marks are noted by every plane
        message.set_flag(INAGG_F_CONGESTION, true);
    const auto role = roles_.find(message.job());
    require(role != roles_.end(), "switch {} is asked about job {}, which it does not have", number(), message.job());
    room_ = room;
    role->second->receive(envelope, message);
    room_.reset();
}

void Switch::send_to(uint32_t node, const Message &message, uint16_t asker) {
    Envelope envelope;
    envelope.to = static_cast<uint16_t>(node);
    envelope.asker = asker;
    send(network_.port_to(number(), node, node), envelope, message.packet(), room_);
}

void Switch::send_through(uint32_t port, uint32_t node, const Message &message) {
    Envelope envelope;
    envelope.to = static_cast<uint16_t>(node);
    send(port, envelope, message.packet(), room_);
}

} // namespace sim
