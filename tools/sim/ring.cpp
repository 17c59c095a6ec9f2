// SPDX-License-Identifier: BSD-2-Clause
#include "ring.hpp"

#include <ns3/simulator.h>

#include <algorithm>

namespace sim {
namespace {

constexpr uint32_t ring_shift = 16; // a ring's messages: its number, and the step
constexpr uint32_t background_bit = 1u << 31;

} // namespace

Ring::Ring(const std::vector<Host *> &hosts, uint32_t number, uint64_t bytes, uint32_t segment_bytes, uint64_t window_bytes)
    : hosts_(hosts), number_(number), segment_bytes_(segment_bytes), steps_(2 * static_cast<uint32_t>(hosts.size() - 1)),
      part_bytes_((bytes + hosts.size() - 1) / hosts.size()), window_bytes_(window_bytes), received_(hosts.size()) {
    require(steps_ < 1u << ring_shift, "a ring of {} hosts has too many steps", hosts.size());
    for (uint32_t i = 0; i < hosts.size(); i++)
        index_of_[hosts[i]->number()] = i;
}

void Ring::start() {
    started_ns = now_ns();
    for (uint32_t i = 0; i < hosts_.size(); i++)
        send(i, 0);
}

void Ring::send(uint32_t index, uint32_t step) {
    const uint32_t next = hosts_[(index + 1) % hosts_.size()]->number();
    hosts_[index]->flows().send(next, number_ << ring_shift | step, part_bytes_, segment_bytes_, window_bytes_, {});
}

// A host may send a part on once it has it: steps arrive in order, since each follows from the one before.
void Ring::arrived(uint32_t from, uint32_t message) {
    if (message & background_bit || message >> ring_shift != number_)
        return;
    const uint32_t index = (index_of_.at(from) + 1) % static_cast<uint32_t>(hosts_.size());
    const uint32_t step = message & ((1u << ring_shift) - 1);
    steps_done_++;
    if (step + 1 < steps_)
        send(index, step + 1);
    if (++received_[index] < steps_)
        return;
    hosts_done_++;
    finished_ns = now_ns();
}

Background::Background(const std::vector<Host *> &hosts, bool permutation, uint64_t message_bytes, uint32_t segment_bytes,
                       uint64_t window_bytes, std::function<uint32_t(uint32_t)> below)
    : hosts_(hosts), permutation_(permutation), message_bytes_(message_bytes), window_bytes_(window_bytes),
      segment_bytes_(segment_bytes), below_(std::move(below)) {}

void Background::start() {
    for (uint32_t i = 0; hosts_.size() > 1 && i < hosts_.size(); i++)
        send(i, 0);
}

void Background::send(uint32_t index, uint32_t number) {
    hosts_[index]->flows().send(hosts_[peer_of(index, number)]->number(), background_bit | number, message_bytes_,
                                segment_bytes_, window_bytes_, [this, index, number] { send(index, number + 1); });
}

// In a permutation a host sends to the one that follows in a random order of all.
uint32_t Background::peer_of(uint32_t index, uint32_t number) {
    const auto count = static_cast<uint32_t>(hosts_.size());
    if (!permutation_)
        return (index + 1 + below_(count - 1)) % count;
    while (orders_.size() <= number) {
        std::vector<uint32_t> order(count), next(count);
        for (uint32_t i = 0; i < count; i++)
            order[i] = i;
        for (uint32_t i = count - 1; i > 0; i--)
            std::swap(order[i], order[below_(i + 1)]);
        for (uint32_t i = 0; i < count; i++)
            next[order[i]] = order[(i + 1) % count];
        orders_.push_back(std::move(next));
    }
    return orders_[number][index];
}

} // namespace sim
