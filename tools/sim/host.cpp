// SPDX-License-Identifier: BSD-2-Clause
#include "host.hpp"

#include <ns3/simulator.h>

namespace sim {
namespace {

constexpr uint64_t resend_after_ns = 5'000'000; // of flows: no queue takes as long

// Of several ways: a flow keeps to one (ECMP).
uint16_t path_of(uint32_t from, uint32_t to, uint32_t message, bool by_flow) {
    if (!by_flow)
        return anyone;
    uint32_t h = (from * 0x9e3779b9u) ^ (to * 0x85ebca6bu) ^ (message * 0xc2b2ae35u);
    h ^= h >> 16;
    h *= 0x45d9f3bu;
    return static_cast<uint16_t>((h >> 16) % anyone);
}

} // namespace

// A host takes what comes at once.
void Host::receive(const ns3::Ptr<ns3::Packet> &packet, const Held &) {
    Envelope envelope;
    packet->RemoveHeader(envelope);
    if (envelope.kind == Kind::segment)
        return flows_.receive(envelope, packet);
    Message message;
    packet->RemoveHeader(message);
    if (envelope.congested)
        message.set_flag(INAGG_F_CONGESTION, true);
    if (const auto server = servers_.find(message.job()); server != servers_.end())
        return server->second->receive(message);
    const auto worker = workers_.find(message.job());
    require(worker != workers_.end(), "host {} gets a packet of job {}, in which it has no part", number(), message.job());
    worker->second->receive(message);
}

Caller &Host::add_caller(Calls &calls, uint32_t rank) { return *callers_.emplace_back(std::make_unique<Caller>(calls, rank)); }

void Host::add_worker(uint16_t job, std::unique_ptr<Worker> worker, Caller &caller) {
    caller.add([at = worker.get()] { at->call(); });
    worker->on_done([&caller] { caller.part_done(); });
    workers_[job] = std::move(worker);
}

void Host::send_to(uint32_t node, Kind kind, const ns3::Ptr<ns3::Packet> &content, uint16_t path, bool urgent) {
    Envelope envelope;
    envelope.kind = kind;
    envelope.path = path;
    envelope.to = static_cast<uint16_t>(node);
    send(0, envelope, content, {}, urgent);
}

void Host::StartApplication() {
    for (const auto &caller : callers_)
        caller->start();
}

std::shared_ptr<Flows::Connection> Flows::connection_to(uint32_t to, uint32_t message, const Transport &transport) {
    const auto most = std::max<uint32_t>(1, static_cast<uint32_t>(transport.window_bytes / transport.segment_bytes));
    const uint16_t path = path_of(host_.number(), to, transport.keeps ? 0 : message, transport.reacts);
    const auto make = [&] {
        return std::make_shared<Connection>(Connection{Dctcp(most), transport.reacts, most, path, 0, 0, {}});
    };
    if (!transport.reacts || !transport.keeps)
        return make();
    std::shared_ptr<Connection> &kept = kept_[to];
    if (!kept)
        kept = make();
    return kept;
}

void Flows::send(uint32_t to, uint32_t message, uint64_t bytes, const Transport &transport, Done done) {
    const uint64_t key = key_of(to, message);
    Outgoing &flow = outgoing_[key];
    flow.to = to;
    flow.message = message;
    flow.count = static_cast<uint32_t>((bytes + transport.segment_bytes - 1) / transport.segment_bytes);
    flow.segment_bytes = transport.segment_bytes;
    flow.bytes = bytes;
    flow.is_acked.resize(flow.count);
    flow.progress_ns = now_ns();
    flow.connection = connection_to(to, message, transport);
    flow.done = std::move(done);
    flow.connection->messages.push_back(key);
    fill(*flow.connection);
    ns3::Simulator::Schedule(ns3::NanoSeconds(resend_after_ns), &Flows::check, this, key);
}

// The earliest message first.
void Flows::fill(Connection &connection) {
    for (uint64_t key : connection.messages) {
        Outgoing &flow = outgoing_.at(key);
        for (; flow.next < flow.count && connection.room(); connection.flying++)
            send_segment(flow, flow.next++);
    }
}

void Flows::send_segment(Outgoing &flow, uint32_t number) {
    Segment segment;
    segment.message = flow.message;
    segment.number = number;
    segment.count = flow.count;
    const uint64_t before = static_cast<uint64_t>(number) * flow.segment_bytes;
    auto packet = ns3::Create<ns3::Packet>(static_cast<uint32_t>(std::min<uint64_t>(flow.segment_bytes, flow.bytes - before)));
    packet->AddHeader(segment);
    if (flow.connection->reacts)
        flow.order.push_back({number, now_ns()});
    host_.send_to(flow.to, Kind::segment, packet, flow.connection->path);
}

void Flows::resend(Outgoing &flow, uint32_t number) {
    counters_.segments_resent++;
    send_segment(flow, number);
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
    ack.echo = envelope.congested;
    auto answer = ns3::Create<ns3::Packet>();
    answer->AddHeader(ack);
    host_.send_to(envelope.from, Kind::segment, answer, envelope.path);
    if (flow.has.empty() || flow.has[segment.number])
        return; // again
    flow.has[segment.number] = true;
    counters_.flow_bytes += packet->GetSize();
    if (++flow.got < segment.count)
        return;
    flow.has = {}; // complete
    for (const Arrived &arrived : arrived_)
        arrived(envelope.from, segment.message);
}

void Flows::acknowledged(uint32_t from, const Segment &segment) {
    const uint64_t key = key_of(from, segment.message);
    const auto found = outgoing_.find(key);
    if (found == outgoing_.end() || found->second.is_acked[segment.number])
        return;
    Outgoing &flow = found->second;
    const std::shared_ptr<Connection> connection = flow.connection;
    flow.is_acked[segment.number] = true;
    flow.acked++;
    flow.progress_ns = now_ns();
    connection->flying--;
    if (connection->reacts) {
        connection->dctcp.acknowledged(segment.echo);
        find_lost(flow, sent_at(flow, segment.number));
    }
    if (flow.acked == flow.count)
        finish(key);
    fill(*connection);
}

void Flows::finish(uint64_t key) {
    const auto found = outgoing_.find(key);
    const Done done = std::move(found->second.done);
    std::erase(found->second.connection->messages, key);
    outgoing_.erase(found);
    counters_.messages++;
    if (done)
        done();
}

// When the segment was sent first of those times that are remembered; what is acknowledged at the front is forgotten. 0: unknown.
uint64_t Flows::sent_at(Outgoing &flow, uint32_t number) const {
    uint64_t at = 0;
    for (const Sent &sent : flow.order)
        if (sent.number == number) {
            at = sent.at_ns;
            break;
        }
    while (!flow.order.empty() && flow.is_acked[flow.order.front().number])
        flow.order.pop_front();
    if (at) {
        const uint64_t rtt = now_ns() - at, srtt = flow.connection->srtt_ns;
        flow.connection->srtt_ns = srtt ? srtt - srtt / 8 + rtt / 8 : rtt;
    }
    return at;
}

// What was sent a round trip before something that has arrived since is lost (RACK, RFC 8985); packets may overtake one another.
void Flows::find_lost(Outgoing &flow, uint64_t sent_ns) {
    while (!flow.order.empty() && flow.order.front().at_ns + flow.connection->srtt_ns < sent_ns) {
        const Sent oldest = flow.order.front();
        flow.order.pop_front();
        if (flow.is_acked[oldest.number])
            continue;
        flow.connection->dctcp.lost();
        resend(flow, oldest.number);
    }
}

// Nothing has come for long: what is missing is lost.
void Flows::check(uint64_t key) {
    const auto found = outgoing_.find(key);
    if (found == outgoing_.end())
        return;
    Outgoing &flow = found->second;
    const bool reacts = flow.connection->reacts;
    if (now_ns() - flow.progress_ns >= resend_after_ns) {
        flow.progress_ns = now_ns();
        if (reacts)
            flow.connection->dctcp.timed_out();
        flow.order.clear();
        for (uint32_t number = 0; number < flow.next; number++)
            if (!flow.is_acked[number])
                resend(flow, number);
    }
    ns3::Simulator::Schedule(ns3::NanoSeconds(flow.progress_ns + resend_after_ns - now_ns()), &Flows::check, this, key);
}

} // namespace sim
