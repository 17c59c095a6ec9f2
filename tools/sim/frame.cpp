// SPDX-License-Identifier: BSD-2-Clause
#include "frame.hpp"

#include <algorithm>

namespace sim {

ns3::TypeId Envelope::GetTypeId() {
    static const ns3::TypeId id = ns3::TypeId("sim::Envelope").SetParent<ns3::Header>().AddConstructor<Envelope>();
    return id;
}

void Envelope::Serialize(ns3::Buffer::Iterator at) const {
    at.WriteU8(static_cast<uint8_t>(kind));
    at.WriteU16(to);
    at.WriteU16(from);
    at.WriteU16(asker);
    at.WriteU16(path);
    at.WriteU8(congested);
    at.WriteU8(0, envelope_bytes - 10);
}

uint32_t Envelope::Deserialize(ns3::Buffer::Iterator at) {
    kind = static_cast<Kind>(at.ReadU8());
    to = at.ReadU16();
    from = at.ReadU16();
    asker = at.ReadU16();
    path = at.ReadU16();
    congested = at.ReadU8();
    return envelope_bytes;
}

ns3::TypeId Message::GetTypeId() {
    static const ns3::TypeId id = ns3::TypeId("sim::Message").SetParent<ns3::Header>().AddConstructor<Message>();
    return id;
}

void Message::Serialize(ns3::Buffer::Iterator at) const {
    at.Write(reinterpret_cast<const uint8_t *>(&header), sizeof header);
    at.Write(reinterpret_cast<const uint8_t *>(elements.data()), sizeof elements);
}

uint32_t Message::Deserialize(ns3::Buffer::Iterator at) {
    at.Read(reinterpret_cast<uint8_t *>(&header), sizeof header);
    at.Read(reinterpret_cast<uint8_t *>(elements.data()), sizeof elements);
    return GetSerializedSize();
}

void Message::set_flag(inagg_flag flag, bool on) {
    const uint16_t others = inagg_swap16(header.level_flags) & static_cast<uint16_t>(~flag);
    header.level_flags = inagg_swap16(static_cast<uint16_t>(on ? others | flag : others));
}

void Message::set_block(const inagg_block &b) {
    header.block = inagg_swap32(b.block);
    header.generation = inagg_swap16(b.generation);
    header.dtype_op = b.dtype_op;
    header.scale = b.scale;
    header.next_scale = b.next_scale;
    set_length(b.elements);
}

// What has no elements is shorter on a wire than here by those that are carried, 8 bytes.
ns3::Ptr<ns3::Packet> Message::packet() const {
    const uint32_t length = inagg_swap16(header.elements);
    auto packet = ns3::Create<ns3::Packet>(4 * (std::max(length, carried_elements) - carried_elements));
    packet->AddHeader(*this);
    return packet;
}

ns3::TypeId Segment::GetTypeId() {
    static const ns3::TypeId id = ns3::TypeId("sim::Segment").SetParent<ns3::Header>().AddConstructor<Segment>();
    return id;
}

void Segment::Serialize(ns3::Buffer::Iterator at) const {
    at.WriteU32(message);
    at.WriteU32(number);
    at.WriteU32(count);
    at.WriteU8(is_ack);
    at.WriteU8(echo);
    at.WriteU8(0, GetSerializedSize() - 14);
}

uint32_t Segment::Deserialize(ns3::Buffer::Iterator at) {
    message = at.ReadU32();
    number = at.ReadU32();
    count = at.ReadU32();
    is_ack = at.ReadU8();
    echo = at.ReadU8();
    return GetSerializedSize();
}

} // namespace sim
