// SPDX-License-Identifier: BSD-2-Clause
#include "host.hpp"

#include <ns3/simulator.h>

namespace sim {
namespace {

constexpr uint64_t resend_after_ns = 1'000'000; // of flows: no queue takes as long

} // namespace

// A host takes what comes at once.
void Host::receive(const ns3::Ptr<ns3::Packet> &packet, const Held &) {
    Envelope envelope;
    packet->RemoveHeader(envelope);
    if (envelope.kind == Kind::segment)
        return flows_.receive(envelope, packet);
    Message message;
    packet->RemoveHeader(message);
    const auto worker = workers_.find(message.job());
    require(worker != workers_.end(), "host {} gets a packet of job {}, in which it has no part", number(), message.job());
    worker->second->receive(message);
}

void Host::send_to(uint32_t node, Kind kind, const ns3::Ptr<ns3::Packet> &content) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.to = static_cast<uint16_t>(node);
    send(0, envelope, content, {});
}

void Host::StartApplication() {
    for (auto &[job, worker] : workers_)
        worker->start();
}

void Flows::send(uint32_t to, uint32_t message, uint64_t bytes, uint32_t segment_bytes, uint64_t window_bytes, Done done) {
    Outgoing &flow = outgoing_[key_of(to, message)];
    flow.to = to;
    flow.message = message;
    flow.count = static_cast<uint32_t>((bytes + segment_bytes - 1) / segment_bytes);
    flow.segment_bytes = segment_bytes;
    flow.window = std::max<uint32_t>(1, static_cast<uint32_t>(window_bytes / segment_bytes));
    flow.is_acked.resize(flow.count);
    flow.progress_ns = now_ns();
    flow.done = std::move(done);
    fill(flow);
    ns3::Simulator::Schedule(ns3::NanoSeconds(resend_after_ns), &Flows::check, this, key_of(to, message));
}

void Flows::fill(Outgoing &flow) {
    while (flow.next < flow.count && flow.next - flow.acked < flow.window)
        send_segment(flow, flow.next++);
}

void Flows::send_segment(const Outgoing &flow, uint32_t number) {
    Segment segment;
    segment.message = flow.message;
    segment.number = number;
    segment.count = flow.count;
    auto packet = ns3::Create<ns3::Packet>(flow.segment_bytes);
    packet->AddHeader(segment);
    host_.send_to(flow.to, Kind::segment, packet);
}

void Flows::receive(const Envelope &envelope, const ns3::Ptr<ns3::Packet> &packet) {
    Segment segment;
    packet->RemoveHeader(segment);
    if (segment.is_ack)
        return acknowledged(envelope.from, segment);
    Incoming &flow = incoming_[key_of(envelope.from, segment.message)];
    if (flow.has.empty() && !flow.got)
        flow.has.resize(segment.count);
    Segment ack = segment;
    ack.is_ack = true;
    auto answer = ns3::Create<ns3::Packet>();
    answer->AddHeader(ack);
    host_.send_to(envelope.from, Kind::segment, answer);
    if (flow.has.empty() || flow.has[segment.number])
        return; // again
    flow.has[segment.number] = true;
    if (++flow.got < segment.count)
        return;
    flow.has = {}; // complete
    if (arrived_)
        arrived_(envelope.from, segment.message);
}

void Flows::acknowledged(uint32_t from, const Segment &segment) {
    const auto found = outgoing_.find(key_of(from, segment.message));
    if (found == outgoing_.end() || found->second.is_acked[segment.number])
        return;
    Outgoing &flow = found->second;
    flow.is_acked[segment.number] = true;
    flow.acked++;
    flow.progress_ns = now_ns();
    fill(flow);
    if (flow.acked < flow.count)
        return;
    counters_.messages++;
    const Done done = std::move(flow.done);
    outgoing_.erase(found);
    if (done)
        done();
}

// Nothing has come for long: what is missing is lost.
void Flows::check(uint64_t key) {
    const auto found = outgoing_.find(key);
    if (found == outgoing_.end())
        return;
    Outgoing &flow = found->second;
    if (now_ns() - flow.progress_ns >= resend_after_ns) {
        flow.progress_ns = now_ns();
        for (uint32_t number = 0; number < flow.next; number++)
            if (!flow.is_acked[number]) {
                counters_.segments_resent++;
                send_segment(flow, number);
            }
    }
    ns3::Simulator::Schedule(ns3::NanoSeconds(flow.progress_ns + resend_after_ns - now_ns()), &Flows::check, this, key);
}

} // namespace sim
