// SPDX-License-Identifier: BSD-2-Clause
// A tree of switches (core/tree.h), each with slots of its own that may vanish by themselves.
#pragma once

#include "switch.hpp"

#include <inagg/core/tree.h>

namespace simulation {

// One copy of a slot.
struct TreeCopy {
    inagg_slot state;
    Payload sum;
};

struct TreeNode {
    inagg_tree place;
    uint16_t boot = 1;
    std::vector<TreeCopy> memory;
};

class TreeSwitch : public Switch {
public:
    explicit TreeSwitch(World &shared);

    void receive(int target, const Packet &packet) override;
    void restart() override;
    void clear_all() override;
    void clear_one() override;

protected:
    const Tree tree;
    std::vector<TreeNode> nodes; // the root comes first

    static uint32_t key_of(const Packet &packet) { return packet.slot * 2 + packet.version; }
    TreeCopy &copy_of(uint32_t n, const Packet &packet) { return nodes[n].memory[key_of(packet)]; }

    virtual void contribute(uint32_t n, const Packet &packet);
    // A RESTORE from below, or a RESULT from above.
    virtual void take(uint32_t n, const Packet &packet);
    virtual void request(uint32_t n, const Packet &packet);
    virtual void pass_wait(uint32_t n, const Packet &packet);
    // What a copy holds vanishes.
    virtual void forget(uint32_t n, uint32_t key) { nodes[n].memory[key] = {}; }

    // With an admission's or a contribution's verdict: this is in already.
    void repeat(uint32_t n, const Packet &packet, int verdict);
    // There is no room for the packet's block.
    void refuse(uint32_t n, const Packet &packet, uint16_t cap);
    // The copy's sum is that of all ranks here: it goes up, or to all of them.
    void finish(uint32_t n, const TreeCopy &copy, const Packet &packet);
    // What a copy holds is the sum of the ranks it names, each once: those here, or, with the result, everyone.
    void check_copy(uint32_t n, const TreeCopy &copy);

private:
    TreeNode &any_node() { return nodes[tree.any()]; }
    void forget_all(uint32_t n);
    Packet from(uint32_t n, Packet packet) const;
    void send_partial(uint32_t n, const TreeCopy &copy, const Packet &cause);
    Packet told(uint32_t n, const TreeCopy &copy, const Packet &packet, bool everyone) const;
};

} // namespace simulation
