// SPDX-License-Identifier: BSD-2-Clause
// The switch of canary: adds what meets in it, records who that was, and goes by the leaders otherwise.
#include "software_switch.hpp"

#include <inagg/core/leader.h>

#include <bit>
#include <cstring>

namespace inagg {

static bool same(const Endpoint &a, const Endpoint &b) {
    return a.length == b.length && std::memcmp(&a.address, &b.address, a.length) == 0;
}

int SoftwareSwitch::handle_canary(Job &job, const inagg_block &block, const Packet &packet) {
    const uint8_t type = inagg_hdr_type(&packet.header);
    const bool up = type == INAGG_CONTRIBUTION || type == INAGG_REQUEST;
    if (!up && type != INAGG_RESULT && type != INAGG_WAIT && type != INAGG_BLOCK_FAILED)
        return -INAGG_R_TYPE;
    const uint32_t leader = inagg_leader_of(job.record.size, inagg_swap32(packet.header.slot));
    if (!same(packet.from, job.members[up ? block.rank : leader].endpoint))
        return -INAGG_R_ADDRESS;
    if (type == INAGG_CONTRIBUTION)
        return gather(job, block, packet);
    if (type == INAGG_REQUEST)
        pass_on(job, packet, 0);
    else
        scatter(job, block, packet);
    return 0;
}

// Up.

int SoftwareSwitch::gather(Job &job, const inagg_block &block, const Packet &packet) {
    if (inagg_swap16(packet.header.level_flags) & INAGG_F_BYPASS) {
        pass_on(job, packet, 0);
        return 0;
    }
    if (chance(options_.collision)) {
        counters_.collisions++;
        pass_on(job, packet, INAGG_F_BYPASS | INAGG_F_COLLISION);
        return 0;
    }
    Descriptor &descriptor = job.descriptors[{inagg_swap32(packet.header.slot), block.block, block.epoch}];
    descriptor.children |= inagg_rank_bit(block.rank);
    if (!merge(job, descriptor, block, packet))
        pass_on(job, packet, 0);
    const uint32_t leader = inagg_leader_of(job.record.size, inagg_swap32(packet.header.slot));
    if ((descriptor.gone | descriptor.sum.state.seen | inagg_rank_bit(leader)) == job.record.all)
        send_sum(job, descriptor);
    return 0;
}

// False if the packet has to go on by itself.
bool SoftwareSwitch::merge(Job &job, Descriptor &descriptor, const inagg_block &block, const Packet &packet) {
    if (descriptor.gone & inagg_rank_bit(block.rank))
        return false;
    Slot &sum = descriptor.sum;
    if (!sum.state.seen)
        descriptor.opened_ns = now_ns();
    const int verdict = inagg_slot_admit_ranks(&sum.state, inagg_rank_bit(block.rank), &block);
    if (verdict < INAGG_STORE || verdict > INAGG_COUNT)
        return false;
    if (verdict != INAGG_COUNT)
        fold(job, sum, block, verdict == INAGG_STORE, packet.body);
    counters_.additions++;
    descriptor.header = packet.header;
    return true;
}

void SoftwareSwitch::send_sum(Job &job, Descriptor &descriptor) {
    Slot &sum = descriptor.sum;
    if (!sum.state.seen)
        return;
    counters_.partials += inagg_count_ranks(sum.state.seen) > 1;
    complete(job, sum);
    inagg_hdr header = descriptor.header;
    header.version_type = INAGG_WIRE_VERSION << 4 | INAGG_PARTIAL;
    if (sum.state.flags & INAGG_SLOT_SATURATED)
        header.level_flags |= inagg_swap16(INAGG_F_SATURATED);
    header.source = inagg_swap16(static_cast<uint16_t>(std::countr_zero(sum.state.seen)));
    header.count = inagg_swap16(static_cast<uint16_t>(inagg_count_ranks(sum.state.seen)));
    header.contributors = inagg_swap64(sum.state.seen);
    header.dtype_op = sum.state.dtype_op;
    header.scale = sum.state.scale;
    header.next_scale = sum.state.next_scale;
    header.elements = inagg_swap16(sum.state.elements);
    const Packet packet{header, sum.result, {}};
    pass_on(job, packet, 0);
    descriptor.gone |= sum.state.seen;
    sum.state = {};
}

void SoftwareSwitch::send_due_sums(Job &job, uint64_t now) {
    for (auto &[key, descriptor] : job.descriptors)
        if (now - descriptor.opened_ns >= uint64_t{options_.sum_wait_us} * 1000)
            send_sum(job, descriptor);
}

void SoftwareSwitch::pass_on(const Job &job, const Packet &packet, uint16_t more_flags) {
    inagg_hdr header = packet.header;
    header.level_flags |= inagg_swap16(more_flags);
    header.boot = inagg_swap16(boot_);
    const uint32_t leader = inagg_leader_of(job.record.size, inagg_swap32(header.slot));
    send_to(job, header, packet.body, static_cast<int>(leader));
}

// Down.

void SoftwareSwitch::scatter(Job &job, const inagg_block &block, const Packet &packet) {
    const uint32_t position = inagg_swap32(packet.header.slot);
    inagg_hdr header = packet.header;
    header.boot = inagg_swap16(boot_);
    if (!(inagg_swap16(header.level_flags) & INAGG_F_MULTICAST))
        return send_to(job, header, packet.body, block.rank);
    uint64_t ranks = ~block.contributors; // that are not in
    if (inagg_hdr_type(&header) == INAGG_RESULT) {
        ranks = block.contributors;
        const auto found = job.descriptors.find({position, block.block, block.epoch});
        if (found != job.descriptors.end())
            ranks |= found->second.children;
        header.contributors = inagg_swap64(job.record.all);
        job.descriptors.erase(job.descriptors.lower_bound({position, block.block, 0}),
                              job.descriptors.upper_bound({position, block.block, UINT32_MAX}));
        counters_.completions++;
    }
    ranks &= job.record.all & ~inagg_rank_bit(inagg_leader_of(job.record.size, position));
    for (int rank = 0; rank < job.record.size; rank++)
        if (ranks & inagg_rank_bit(static_cast<uint32_t>(rank)))
            send_to(job, header, packet.body, rank);
}

} // namespace inagg
