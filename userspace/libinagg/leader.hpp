// SPDX-License-Identifier: BSD-2-Clause
// A rank's part as leader of blocks (canary): core/leader.h over the copies of the positions that it leads.
// It adds what comes in, announces results, keeps them, and answers who asks.
#pragma once

#include "packet_io.hpp"
#include "transport.hpp"

#include <inagg/core/job.h>
#include <inagg/core/leader.h>

#include <memory>
#include <span>
#include <vector>

namespace inagg {

class Leader {
public:
    struct Result {
        BlockMeta meta;
        const std::byte *payload;
    };

    // `config` and `io` are the engine's; of `config` only the boot id may change.
    Leader(const JobConfig &config, PacketIo &io);

    // Are the blocks of this position of the pool this rank's?
    bool leads(uint32_t position) const { return inagg_leader_of(config_.size, position) == config_.rank; }
    // A CONTRIBUTION, PARTIAL or REQUEST came. INAGG_COMPLETES, 0 or a negative reason.
    int receive(const inagg_hdr &header, std::span<const std::byte> body);
    // Elements are added to the block that the header names; this rank's own come so. Returns the same.
    int contribute(const inagg_hdr &header, std::span<const std::byte> elements);
    // Of a block that is complete, until that after next of its position has begun.
    Result result(uint32_t position, uint32_t block) const;
    // The ranks that are in.
    uint64_t seen(uint32_t position, uint32_t block) const;

    uint64_t parts() const { return parts_; }       // packets added
    uint64_t reissues() const { return reissues_; } // BLOCK_FAILED sent
    uint64_t replies() const { return replies_; }   // results sent to ranks that asked

private:
    int admit(const inagg_hdr &header, const inagg_block &block, std::span<const std::byte> body) const;
    bool names_ranks(const inagg_hdr &header, const inagg_block &block) const;
    int request(const inagg_hdr &header, const inagg_block &block);
    bool version_of(uint32_t position, uint32_t block) const;
    std::size_t index_of(uint32_t position, uint32_t block) const;
    uint32_t *lanes_of(std::size_t index) const { return lanes_.get() + index * config_.elements; }
    BlockMeta meta_of(const inagg_lead &lead) const;
    void send_result(std::size_t index, const inagg_hdr &asked, bool everyone);
    void send_failed(const inagg_lead &lead, const inagg_hdr &asked, bool everyone);
    void send_state(const inagg_lead &lead, const inagg_hdr &asked, inagg_type type, unsigned flags);
    inagg_hdr answer(const inagg_hdr &asked, inagg_type type, unsigned flags) const;

    const JobConfig &config_;
    PacketIo &io_;
    const inagg_job record_;        // as a switch would have it
    std::vector<inagg_lead> leads_; // two copies of each position
    std::unique_ptr<uint32_t[]> lanes_;
    uint64_t parts_ = 0, reissues_ = 0, replies_ = 0;
};

} // namespace inagg
