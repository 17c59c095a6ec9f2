// SPDX-License-Identifier: BSD-2-Clause
// The ring allreduce, and what hosts without a job send to one another.
#pragma once

#include "host.hpp"

namespace sim {

// Bandwidth-optimal (Patarasuk and Yuan 2009): 2(n - 1) steps, in each a part of the tensor to the next host.
class Ring {
public:
    // Its hosts' part in `calls` is one of their callers'.
    Ring(const std::vector<Host *> &hosts, uint32_t number, uint64_t bytes, const Transport &transport, Calls &calls);

    uint64_t steps_done() const { return steps_done_; }
    uint64_t steps() const { return static_cast<uint64_t>(hosts_.size()) * steps_; } // of an allreduce

private:
    // A host of it: which allreduce it is in, and how much of that it has.
    struct Member {
        Caller *caller = nullptr;
        uint32_t round = 0, received = 0, early = 0; // early: parts of the next allreduce, which it has not called yet
        bool calls = false;
    };

    void call(uint32_t index);
    void take(uint32_t index);
    void send(uint32_t index, uint32_t step);
    void arrived(uint32_t from, uint32_t message);

    const std::vector<Host *> hosts_;
    const uint32_t number_, steps_;
    const uint64_t part_bytes_;
    const Transport transport_;
    std::map<uint32_t, uint32_t> index_of_; // by node
    uint64_t steps_done_ = 0;
    std::vector<Member> members_;
};

// Random peers (Canary §5.2): a host sends a message to one, and the next message to another.
class Background {
public:
    // `permutation`: each host also hears from one other only, as long as all are equally fast.
    Background(const std::vector<Host *> &hosts, bool permutation, uint64_t message_bytes, const Transport &transport,
               std::function<uint32_t(uint32_t)> below);
    void start();

private:
    void send(uint32_t index, uint32_t number);
    uint32_t peer_of(uint32_t index, uint32_t number);

    const std::vector<Host *> hosts_;
    const bool permutation_;
    const uint64_t message_bytes_;
    const Transport transport_;
    const std::function<uint32_t(uint32_t)> below_;
    std::vector<std::vector<uint32_t>> orders_; // a permutation for each message's number
};

// One host sends to another for as long as the run lasts.
class Stream {
public:
    Stream(Host &from, uint32_t to, uint64_t message_bytes, const Transport &transport)
        : from_(from), to_(to), message_bytes_(message_bytes), transport_(transport) {}
    void start() { send(0), send(1); }

private:
    void send(uint32_t number);

    Host &from_;
    const uint32_t to_; // node
    const uint64_t message_bytes_;
    const Transport transport_;
};

} // namespace sim
