// SPDX-License-Identifier: BSD-2-Clause
// The switch's side of an algorithm: verdicts of include/inagg/core, memory that may vanish, and checks.
#pragma once

#include "tree.hpp"

#include <memory>

namespace simulation {

class Switch {
public:
    explicit Switch(World &shared) : world(shared), sc(shared.sc), job(shared.job) {}
    virtual ~Switch() = default;

    // `target` is where the packet was sent to: the_switch, or another one in a tree.
    virtual void receive(int target, const Packet &packet) = 0;
    virtual void restart() = 0;
    virtual void clear_all() = 0;
    virtual void clear_one() = 0;
    // What the algorithm knows beside its slots or records, if anything.
    virtual void clear_floor() {}
    // Parts of the fabric that canary has (struct Fault).
    virtual void fail_spine(uint32_t, Time) {}
    virtual void fail_link(uint32_t, Time) {}
    virtual void handle(const Event &) {}
    virtual void check_end() {}

protected:
    // Moves the elements as the verdict on a contribution says.
    static void fold(int verdict, Payload &sum, const Packet &packet);
    Packet result(const inagg_slot &slot, const Payload &sum, const Packet &cause) const;
    Packet wait(uint64_t seen, const Packet &cause) const;
    // A result for one rank. One that asks may be told that nobody is in, as the result comes in the room of its elements.
    Packet reply(const inagg_slot &slot, const Payload &sum, const Packet &cause) const;

    World &world;
    const Scenario &sc;
    const inagg_job &job;
    uint16_t boot = 1;
};

// A switch that stands alone, or the root of a tree.
class OneSwitch : public Switch {
public:
    explicit OneSwitch(World &shared, const Tree *below = nullptr) : Switch(shared), tree(below) {}
    void receive(int, const Packet &packet) override;
    void restart() override;

protected:
    virtual void contribute(Packet packet) = 0;
    virtual void restore(const Packet &packet) = 0;
    virtual void request(const Packet &packet) = 0;
    void send_to(uint32_t rank, const Packet &packet);
    void multicast(Packet packet);

private:
    const Tree *const tree;
};

std::unique_ptr<Switch> make_switchml_switch(World &world);
std::unique_ptr<Switch> make_tree_switch(World &world);
std::unique_ptr<Switch> make_trio_switch(World &world, const Tree *below = nullptr);
std::unique_ptr<Switch> make_trio_tree(World &world);
std::unique_ptr<Switch> make_atp_tree(World &world);
std::unique_ptr<Switch> make_panama_tree(World &world);
std::unique_ptr<Switch> make_canary_fabric(World &world);

} // namespace simulation
