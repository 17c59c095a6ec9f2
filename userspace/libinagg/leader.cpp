// SPDX-License-Identifier: BSD-2-Clause
#include "leader.hpp"

#include "common/lanes.hpp"
#include "join.hpp"

#include <inagg/core/checksum.h>

#include <cstring>

namespace inagg {

static inagg_job record_of(const JobConfig &config) {
    inagg_job job{};
    job.all = inagg_all_ranks(config.size);
    job.slots = config.slots;
    job.control_slots = config.control_slots;
    job.generation = config.generation;
    job.size = config.size;
    job.elements = config.elements;
    job.algorithm = config.algorithm;
    job.flags = config.tree ? INAGG_JOIN_TREE : 0;
    return job;
}

Leader::Leader(const JobConfig &config, PacketIo &io)
    : config_(config), io_(io), record_(record_of(config)),
      leads_(2 * ((config.slots + config.control_slots + config.size - 1) / config.size)),
      lanes_(std::make_unique_for_overwrite<uint32_t[]>(leads_.size() * config.elements)) {}

// Receiving. Returns of these: INAGG_COMPLETES, 0 or a negative reason.

int Leader::receive(const inagg_hdr &header, std::span<const std::byte> body) {
    const inagg_block block = inagg_block_of(&header);
    if (const int verdict = admit(header, block, body))
        return verdict;
    return inagg_hdr_type(&header) == INAGG_REQUEST ? request(header, block) : contribute(header, body);
}

int Leader::admit(const inagg_hdr &header, const inagg_block &block, std::span<const std::byte> body) const {
    const uint32_t position = inagg_swap32(header.slot);
    const auto bytes = static_cast<uint32_t>(body.size());
    if (const int verdict = inagg_job_admits(&record_, &block, position, bytes))
        return verdict;
    const bool version = inagg_swap16(header.level_flags) & INAGG_F_VERSION;
    const uint32_t expected = inagg_position_of(&record_, inagg_stream_of(&record_, position), block.block);
    if (!leads(position) || position != expected || version != version_of(position, block.block))
        return -INAGG_R_SLOT;
    if (!names_ranks(header, block))
        return -INAGG_R_RANK;
    if (config_.checked && !inagg_packet_intact(&header, inagg_payload_checksum(body.data(), bytes)))
        return -INAGG_R_PAYLOAD_CHECKSUM;
    return 0;
}

// Others than this one, and the sender among them.
bool Leader::names_ranks(const inagg_hdr &header, const inagg_block &block) const {
    const uint64_t others = record_.all & ~inagg_rank_bit(config_.rank), sender = inagg_rank_bit(block.rank);
    if (inagg_hdr_type(&header) != INAGG_PARTIAL)
        return block.contributors == sender && sender & others;
    return block.contributors & sender && !(block.contributors & ~others) &&
           inagg_swap16(header.count) == inagg_count_ranks(block.contributors);
}

int Leader::contribute(const inagg_hdr &header, std::span<const std::byte> elements) {
    const inagg_block block = inagg_block_of(&header);
    const std::size_t index = index_of(inagg_swap32(header.slot), block.block);
    const bool bypass = inagg_swap16(header.level_flags) & INAGG_F_BYPASS;
    const int verdict = inagg_lead_contribute(&leads_[index], record_.all, block.contributors, &block, bypass);
    if (verdict < 0)
        return verdict;
    parts_++;
    const int action = verdict & ~INAGG_COMPLETES;
    if (action == INAGG_STORE)
        std::memcpy(lanes_of(index), elements.data(), elements.size());
    else if (action == INAGG_ADD)
        (config_.big_endian ? fold_turned_lanes : fold_lanes)(
            lanes_of(index), reinterpret_cast<const uint32_t *>(elements.data()), block.elements, block.dtype_op & 0xf);
    if (!(verdict & INAGG_COMPLETES))
        return 0;
    if (config_.size > 1)
        send_result(index, header, true);
    return INAGG_COMPLETES;
}

int Leader::request(const inagg_hdr &header, const inagg_block &block) {
    const std::size_t index = index_of(inagg_swap32(header.slot), block.block);
    inagg_lead &lead = leads_[index];
    const int verdict = inagg_lead_request(&lead, &block);
    if (verdict < 0)
        return verdict;
    if (verdict == INAGG_REPLY) {
        replies_++;
        send_result(index, header, false);
    } else if (verdict == INAGG_TELL) {
        send_state(lead, header, INAGG_WAIT, 0);
    } else {
        reissues_++;
        send_failed(lead, header, verdict == INAGG_FAIL_ALL);
    }
    return 0;
}

// Copies.

bool Leader::version_of(uint32_t position, uint32_t block) const {
    return block & (inagg_stream_of(&record_, position) ? record_.control_slots : record_.slots);
}

std::size_t Leader::index_of(uint32_t position, uint32_t block) const {
    return std::size_t{position / config_.size} * 2 + version_of(position, block);
}

uint64_t Leader::seen(uint32_t position, uint32_t number) const {
    inagg_block block{};
    block.block = number;
    block.generation = config_.generation;
    return inagg_lead_seen(&leads_[index_of(position, number)], &block);
}

Leader::Result Leader::result(uint32_t position, uint32_t block) const {
    const std::size_t index = index_of(position, block);
    return {meta_of(leads_[index]), reinterpret_cast<const std::byte *>(lanes_of(index))};
}

BlockMeta Leader::meta_of(const inagg_lead &lead) const {
    BlockMeta meta{};
    meta.dtype_op = lead.slot.dtype_op;
    meta.scale = lead.slot.scale;
    meta.next_scale = lead.slot.next_scale;
    meta.saturated = (lead.slot.flags & INAGG_SLOT_SATURATED) != 0;
    meta.elements = lead.slot.elements;
    meta.epoch = lead.attempt;
    meta.contributors = record_.all;
    return meta;
}

// Sending.

// To the rank in `asked`, or by the switches to all, and to those that they may not know.
void Leader::send_result(std::size_t index, const inagg_hdr &asked, bool everyone) {
    const inagg_lead &lead = leads_[index];
    const unsigned resend = !everyone || lead.attempt ? INAGG_F_RESEND : 0;
    const BlockMeta meta = meta_of(lead);
    const std::size_t bytes = inagg_block_bytes(&meta);
    std::byte *frame = io_.reserve();
    if (bytes)
        std::memcpy(frame + sizeof(inagg_hdr), lanes_of(index), bytes);
    inagg_hdr h = answer(asked, INAGG_RESULT, resend | (everyone ? INAGG_F_MULTICAST : 0));
    inagg_hdr_set_meta(&h, &meta);
    h.count = h.fan_in;
    h.contributors = inagg_swap64(everyone ? lead.restore & ~inagg_rank_bit(config_.rank) : record_.all);
    commit(io_, config_, h, frame, bytes);
}

// WAIT or BLOCK_FAILED.
void Leader::send_state(const inagg_lead &lead, const inagg_hdr &asked, inagg_type type, unsigned flags) {
    inagg_hdr h = answer(asked, type, flags);
    h.switch_id = inagg_swap16(lead.attempt);
    h.count = 0;
    h.contributors = inagg_swap64(lead.slot.seen);
    commit(io_, config_, h, io_.reserve(), 0);
}

void Leader::send_failed(const inagg_lead &lead, const inagg_hdr &asked, bool everyone) {
    const unsigned bypass = inagg_lead_bypasses(&lead) ? INAGG_F_BYPASS : 0;
    send_state(lead, asked, INAGG_BLOCK_FAILED, bypass | (everyone ? INAGG_F_MULTICAST : 0));
}

// About the block of `asked`. What is for many is this rank's, what is for one has its number.
inagg_hdr Leader::answer(const inagg_hdr &asked, inagg_type type, unsigned flags) const {
    inagg_hdr h = header_for(config_, type);
    h.level_flags = inagg_swap16(static_cast<uint16_t>((inagg_swap16(asked.level_flags) & INAGG_F_VERSION) | flags));
    h.block = asked.block;
    h.slot = asked.slot;
    if (!(flags & INAGG_F_MULTICAST)) {
        h.source = asked.source;
        h.window_cap = asked.window_cap;
    }
    return h;
}

} // namespace inagg
