// SPDX-License-Identifier: BSD-2-Clause
// What runs on a host: ranks of jobs, and flows, of which the ring and the background are made.
#pragma once

#include "calls.hpp"
#include "dctcp.hpp"

#include <inagg/core/congestion.h>
#include <inagg/core/worker.h>

#include <ns3/event-id.h>

#include <map>
#include <random>
#include <unordered_map>

namespace sim {

class Host;

// A rank of a job (core/worker.h): window, timers and what it answers. What its algorithm adds is below.
class Worker {
public:
    // `name`: its number at its switch; with canary, atp and trio its rank.
    Worker(Host &host, Job &job, uint32_t rank, uint32_t name, Counters &counters);
    virtual ~Worker() = default;

    void on_done(std::function<void()> done) { done_ = std::move(done); }
    // The next allreduce.
    void call();
    virtual void receive(const Message &message) = 0;

protected:
    virtual void act(inagg_wslot &slot, int action);
    virtual int expire(inagg_wslot &slot) = 0;
    // Fills in a RESTORE.
    virtual void load_held(Message &) {}

    void send(uint32_t block, inagg_type type, bool everyone, bool repeated);
    void transmit(const Message &message);
    // The block's result is here and taken: checks it, and sends what is next.
    void accepted(inagg_wslot &slot, uint32_t block, const Message &message);
    void hurry(const inagg_wslot &slot);
    void arm(const inagg_wslot &slot);
    // Is it the sum of those that it names?
    void check(const Message &result) const;
    // A block has been summed.
    void count();
    Message blank(uint32_t block, inagg_type type) const;
    virtual void open(inagg_wslot &slot) { act(slot, inagg_worker_open(&worker_, &slot, now_ns())); }
    // What an algorithm adds to elements that are sent.
    virtual void stamp(Message &) {}
    inagg_wslot &slot_of(uint32_t block) { return slots_[inagg_slot_index(&worker_, block)]; }

    Job &job_;
    const uint32_t rank_, name_;
    Counters &counters_;
    inagg_worker worker_{};
    std::vector<inagg_wslot> slots_;

private:
    void wake();
    void open_in_order();
    void put(Message message);
    bool controlled() const { return congestion_.reaction != INAGG_UNCONTROLLED; }

    Host &host_;
    inagg_congestion congestion_{};
    std::function<void()> done_;
    uint32_t missing_ = 0; // blocks
    uint32_t since_scan_ = 0;
    uint64_t timer_at_ = never;
    ns3::EventId timer_;
    std::mt19937 noise_;

protected:
    virtual bool overtaken(inagg_wslot &slot) { return inagg_worker_overtaken(&worker_, &slot, now_ns()); }
};

// Also of panama and atp, whose ranks do the same.
std::unique_ptr<Worker> make_switchml_worker(Host &host, Job &job, uint32_t rank, uint32_t name, Counters &counters);
std::unique_ptr<Worker> make_trio_worker(Host &host, Job &job, uint32_t rank, Counters &counters);
std::unique_ptr<Worker> make_canary_worker(Host &host, Job &job, uint32_t rank, Counters &counters);

// What sums a job's blocks without being a rank: atp's.
class Server {
public:
    virtual ~Server() = default;
    virtual void receive(const Message &message) = 0;
};

std::unique_ptr<Server> make_atp_server(Host &host, const Job &job, Counters &counters);

// How messages travel.
struct Transport {
    uint32_t segment_bytes = 0; // payload of a segment
    uint64_t window_bytes = 0;  // in flight, at most
    bool reacts = false;        // to marks and losses, as DCTCP
    bool keeps = false;         // what it has learnt about a peer's path, for the next message: a connection stays
};

// Messages between hosts: a window of segments, each acknowledged by itself, and sent again when nothing comes for long.
class Flows {
public:
    using Done = std::function<void()>;
    using Arrived = std::function<void(uint32_t from, uint32_t message)>;

    Flows(Host &host, Counters &counters) : host_(host), counters_(counters) {}
    // `message` is unique for this pair of hosts.
    void send(uint32_t to, uint32_t message, uint64_t bytes, const Transport &transport, Done done);
    void on_message(Arrived arrived) { arrived_.push_back(std::move(arrived)); }
    void receive(const Envelope &envelope, const ns3::Ptr<ns3::Packet> &packet);

private:
    struct Connection {
        Dctcp dctcp;
        bool reacts;
        uint32_t most;
        uint16_t path;
        uint32_t flying = 0;
        uint64_t srtt_ns = 0;
        std::deque<uint64_t> messages; // keys; they take turns
        uint32_t room() const { return std::max(reacts ? dctcp.window() : most, flying) - flying; }
    };
    struct Sent {
        uint32_t number;
        uint64_t at_ns;
    };
    struct Outgoing {
        uint32_t to = 0, message = 0, count = 0, segment_bytes = 0;
        uint64_t bytes = 0;
        uint32_t next = 0, acked = 0;
        std::vector<bool> is_acked;
        std::deque<Sent> order; // of transmission
        uint64_t progress_ns = 0;
        std::shared_ptr<Connection> connection;
        Done done;
    };
    struct Incoming {
        uint32_t got = 0;
        std::vector<bool> has;
    };

    std::shared_ptr<Connection> connection_to(uint32_t to, uint32_t message, const Transport &transport);
    void fill(Connection &connection);
    void send_segment(Outgoing &flow, uint32_t number);
    void resend(Outgoing &flow, uint32_t number);
    void acknowledged(uint32_t from, const Segment &segment);
    void finish(uint64_t key);
    uint64_t sent_at(Outgoing &flow, uint32_t number) const;
    void find_lost(Outgoing &flow, uint64_t sent_ns);
    void check(uint64_t key);
    static uint64_t key_of(uint32_t peer, uint32_t message) { return static_cast<uint64_t>(peer) << 32 | message; }

    Host &host_;
    Counters &counters_;
    std::vector<Arrived> arrived_;
    std::unordered_map<uint64_t, Outgoing> outgoing_;
    std::unordered_map<uint64_t, Incoming> incoming_;
    std::unordered_map<uint32_t, std::shared_ptr<Connection>> kept_; // by peer
};

class Host : public Station {
public:
    Host(Network &network, uint32_t number, Counters &counters) : Station(network, number), flows_(*this, counters) {}

    void receive(const ns3::Ptr<ns3::Packet> &packet, const Held &) override;
    // A part of the caller's calls.
    void add_worker(uint16_t job, std::unique_ptr<Worker> worker, Caller &caller);
    void add_server(uint16_t job, std::unique_ptr<Server> server) { servers_[job] = std::move(server); }
    Caller &add_caller(Calls &calls, uint32_t rank);
    Flows &flows() { return flows_; }
    void send_to(uint32_t node, Kind kind, const ns3::Ptr<ns3::Packet> &content, uint16_t path = anyone, bool urgent = false);
    uint32_t leaf() const { return network_.leaf(network_.leaf_index(number())); }

protected:
    // ns-3 starts its applications: this one's ranks make their calls.
    void StartApplication() override;

private:
    std::map<uint16_t, std::unique_ptr<Worker>> workers_;
    std::map<uint16_t, std::unique_ptr<Server>> servers_;
    std::vector<std::unique_ptr<Caller>> callers_;
    Flows flows_;
};

} // namespace sim
