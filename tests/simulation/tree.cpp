// SPDX-License-Identifier: BSD-2-Clause
#include "tree.hpp"

namespace simulation {

Tree::Tree(World &shared) : world(shared), behind(shared.sc.parents.size()) {
    for (uint32_t r = 0; r < world.sc.ranks; r++)
        for (uint32_t n = world.sc.leaf_of[r];; n = parent(n)) {
            behind[n] |= inagg_rank_bit(r);
            if (n == 0)
                break;
        }
    for (uint32_t n = 1; n < size(); n++)
        if (here(n) == world.job.all)
            top = n; // parents have lower numbers
}

void Tree::send_down(uint32_t n, uint32_t rank, const Packet &packet) const {
    uint32_t below = world.sc.leaf_of[rank];
    if (below == n)
        return world.transmit(static_cast<int>(rank), packet);
    while (parent(below) != n)
        below = parent(below);
    world.transmit(switch_target(below), packet);
}

void Tree::send_down_to_all(uint32_t n, const Packet &packet) const {
    for (uint32_t r = 0; r < world.sc.ranks; r++)
        if (world.sc.leaf_of[r] == n)
            world.transmit(static_cast<int>(r), packet);
    for (uint32_t below = 1; below < size(); below++)
        if (parent(below) == n && here(below))
            world.transmit(switch_target(below), packet);
}

} // namespace simulation
