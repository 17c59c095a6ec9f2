// SPDX-License-Identifier: BSD-2-Clause
// Becoming and ceasing to be a member of a job, over any PacketIo.
#pragma once

#include "error.hpp"
#include "packet_io.hpp"
#include "transport.hpp"

#include <inagg/core/membership.h>

#include <optional>
#include <string>

namespace inagg {

struct Membership : inagg_membership {
    JobConfig config;
    std::string switch_address;
    inagg_mac_key key; // of joins; all zero: none
};

// Repeat JOIN until the switch accepts it; throws INAGG_ENOSWITCH after join_timeout_ms(options) or
// INAGG_EREFUSED, which a refusal that may pass is only then. Joins the group of a static job on `io`.
Membership join(PacketIo &io, const inagg_options &options);

// Ask again, without waiting: the switch hears that this rank is there, and its CONFIG says who else is.
void repeat_join(PacketIo &io, const Membership &membership);

// Ask, without waiting, to be in the job's next generation, as next_nonce.
void join_next(PacketIo &io, const Membership &membership);
uint64_t random_nonce();

// Both, when they are due.
void say_present(PacketIo &io, Membership &membership, uint64_t now);

// Tell the switch that this rank leaves; sent once, nobody answers.
void leave(PacketIo &io, const Membership &membership);

// What calls end with, if a REFUSED that is believed ends the membership.
std::optional<Error> ended_by(Membership &membership, const inagg_hdr &header, const inagg_refusal &refusal);

// In a handler of what failed after the join. If the transport is `auto` this returns, and the rank goes on as this member in
// another way, since to join once more would look like a restart to the switch. Else the rank leaves, for the others would wait
// for it, and the error is the caller's.
void need_auto(PacketIo &io, const Membership &membership, const inagg_options &options);

// May this CONFIG or REFUSED be believed: is it intact and, of a job with a key, proven?
bool is_believed(const Membership &membership, const inagg_hdr &header, std::span<const std::byte> body);

// Does the payload match its checksum, if it has one? Answers about the membership always do.
bool is_body_intact(const inagg_hdr &header, std::span<const std::byte> body);

// A header with what all packets of this member share, in network byte order; not sealed yet.
inagg_hdr header_for(const JobConfig &config, inagg_type type);

// The header is final: write its checksums. `payload` is the payload's part (inagg_payload_checksum()), looked
// at only if the job has payload checksums.
void seal(inagg_hdr &header, const JobConfig &config, uint32_t payload);

// The same, with `payload_bytes` of payload that are in their place in `frame`, the one that `io` reserved
// last. Queues it.
void commit(PacketIo &io, const JobConfig &config, inagg_hdr &header, std::byte *frame, std::size_t payload_bytes);

} // namespace inagg
