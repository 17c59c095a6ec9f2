// SPDX-License-Identifier: BSD-2-Clause
#include "ring.hpp"

#include <ns3/simulator.h>

#include <algorithm>
#include <utility>

namespace sim {
namespace {

// A ring's messages: its number, the allreduce, and the step.
constexpr uint32_t step_bits = 12, round_bits = 12, ring_shift = step_bits + round_bits;
constexpr uint32_t background_bit = 1u << 31;

} // namespace

Ring::Ring(const std::vector<Host *> &hosts, uint32_t number, uint64_t bytes, const Transport &transport, Calls &calls)
    : hosts_(hosts), number_(number), steps_(2 * static_cast<uint32_t>(hosts.size() - 1)),
      part_bytes_((bytes + hosts.size() - 1) / hosts.size()), transport_(transport), members_(hosts.size()) {
    require(steps_ < 1u << step_bits, "a ring of {} hosts has too many steps", hosts.size());
    for (uint32_t i = 0; i < hosts.size(); i++) {
        index_of_[hosts[i]->number()] = i;
        members_[i].caller = &hosts[i]->add_caller(calls, i);
        members_[i].caller->add([this, i] { call(i); });
        hosts[i]->flows().on_message([this](uint32_t from, uint32_t message) { arrived(from, message); });
    }
}

// What came before the call is taken now.
void Ring::call(uint32_t index) {
    Member &member = members_[index];
    member.calls = true;
    member.received = 0;
    send(index, 0);
    for (uint32_t early = std::exchange(member.early, 0); early; early--)
        take(index);
}

void Ring::send(uint32_t index, uint32_t step) {
    const uint32_t next = hosts_[(index + 1) % hosts_.size()]->number();
    const uint32_t round = members_[index].round & ((1u << round_bits) - 1);
    hosts_[index]->flows().send(next, number_ << ring_shift | round << step_bits | step, part_bytes_, transport_, {});
}

// A part of the allreduce that comes next waits until this host calls for it.
void Ring::arrived(uint32_t from, uint32_t message) {
    if (message & background_bit || message >> ring_shift != number_)
        return;
    const uint32_t index = (index_of_.at(from) + 1) % static_cast<uint32_t>(hosts_.size());
    const uint32_t round = message >> step_bits & ((1u << round_bits) - 1);
    Member &member = members_[index];
    if (!member.calls || round != (member.round & ((1u << round_bits) - 1)))
        member.early++;
    else
        take(index);
}

// A host may send a part on once it has it. Parts may overtake one another, but all have one length.
void Ring::take(uint32_t index) {
    Member &member = members_[index];
    steps_done_++;
    const uint32_t step = member.received++;
    if (step + 1 < steps_)
        return send(index, step + 1);
    member.round++;
    member.calls = false;
    member.caller->part_done();
}

Background::Background(const std::vector<Host *> &hosts, bool permutation, uint64_t message_bytes, const Transport &transport,
                       std::function<uint32_t(uint32_t)> below)
    : hosts_(hosts), permutation_(permutation), message_bytes_(message_bytes), transport_(transport), below_(std::move(below)) {}

void Background::start() {
    for (uint32_t i = 0; hosts_.size() > 1 && i < hosts_.size(); i++)
        send(i, 0);
}

void Background::send(uint32_t index, uint32_t number) {
    hosts_[index]->flows().send(hosts_[peer_of(index, number)]->number(), background_bit | number, message_bytes_, transport_,
                                [this, index, number] { send(index, number + 1); });
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

// The next message is there before this one has been acknowledged.
void Stream::send(uint32_t number) {
    from_.flows().send(to_, background_bit | number, message_bytes_, transport_, [this, number] { send(number + 2); });
}

} // namespace sim
