// SPDX-License-Identifier: BSD-2-Clause
// The ring allreduce, and what hosts without a job send to one another.
#pragma once

#include "host.hpp"

namespace sim {

// Bandwidth-optimal (Patarasuk and Yuan 2009): 2(n - 1) steps, in each a part of the tensor to the next host.
class Ring {
public:
    Ring(const std::vector<Host *> &hosts, uint32_t number, uint64_t bytes, uint32_t segment_bytes, uint64_t window_bytes);
    void start();
    void arrived(uint32_t from, uint32_t message);

    uint64_t started_ns = never, finished_ns = 0;
    uint32_t size() const { return static_cast<uint32_t>(hosts_.size()); }
    bool done() const { return hosts_done_ == size(); }
    uint64_t steps_done() const { return steps_done_; }
    uint64_t steps() const { return static_cast<uint64_t>(size()) * steps_; }

private:
    void send(uint32_t index, uint32_t step);

    const std::vector<Host *> hosts_;
    const uint32_t number_, segment_bytes_, steps_;
    const uint64_t part_bytes_, window_bytes_;
    std::map<uint32_t, uint32_t> index_of_; // by node
    uint64_t steps_done_ = 0;
    uint32_t hosts_done_ = 0;
    std::vector<uint32_t> received_;        // steps of each host; they may overtake one another
};

// Random peers (Canary §5.2): a host sends a message to one, and the next message to another.
class Background {
public:
    // `permutation`: each host also hears from one other only, as long as all are equally fast.
    Background(const std::vector<Host *> &hosts, bool permutation, uint64_t message_bytes, uint32_t segment_bytes,
               uint64_t window_bytes, std::function<uint32_t(uint32_t)> below);
    void start();

private:
    void send(uint32_t index, uint32_t number);
    uint32_t peer_of(uint32_t index, uint32_t number);

    const std::vector<Host *> hosts_;
    const bool permutation_;
    const uint64_t message_bytes_, window_bytes_;
    const uint32_t segment_bytes_;
    const std::function<uint32_t(uint32_t)> below_;
    std::vector<std::vector<uint32_t>> orders_; // a permutation for each message's number
};

} // namespace sim
