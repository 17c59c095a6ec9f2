// SPDX-License-Identifier: BSD-2-Clause
// What can happen to a member of a job on any transport, in the same words.
#pragma once

#include "carrier.hpp"
#include "error.hpp"
#include "transport.hpp"

#include <cstdint>
#include <string>

namespace inagg {

Error no_switch(const inagg_options &options);
Error no_route(const inagg_options &options, int error);
// What a switch's REFUSED says.
struct Refusal {
    int reason = INAGG_R_NONE; // enum inagg_reason
    std::string above{};       // address of who refuses, if that is a server or switch above it; else empty
};
Refusal refusal_of(const inagg_hdr &header, const inagg_refusal &refusal);
// An IPv6 address, or an IPv4 address mapped into one, as people write it.
std::string address_text(const uint8_t (&mapped)[16]);
Error join_refused(const inagg_options &options, const Refusal &refusal);
// Who answers does not know the job's key; `reason`: it refuses, or 0.
Error no_proof(const inagg_options &options, int reason);
// `address` is the switch's.
Error job_ended(uint16_t job, const std::string &address, const Refusal &refusal);
Error switch_restarted(const std::string &address, uint16_t job);
// Of a rank that was excluded before, and that the others have not taken back.
Error not_taken_back(const inagg_options &options);
// This rank is out, the others go on.
Error excluded(uint16_t rank, uint16_t job);
Error results_to_group(uint16_t job);
// In a handler: what was thrown; of the standard library's it is INAGG_ESYSTEM.
Error current_error();

// `why` is what the oldest operation waits for.
Error deadline_passed(const inagg_options &options, const std::string &why);
// "WHAT waits for ranks 1, 3": those in the bitmap.
std::string waits_for(const std::string &what, uint64_t missing);
// "data block 7 waits for ranks 1, 3", or that the switch has been silent.
std::string describe(const Stalled &stalled, const inagg_options &options);

// `where` follows the job's number.
// Answers for a block are no sum of what its ranks have sent; `alike`: all the same one.
Error no_sum(uint16_t job, const std::string &address, Stream stream, uint32_t block, bool alike);
// The result of a control block says so.
Error others_have_left(uint16_t job);
Error calls_differ(uint16_t job, const std::string &where = "");
Error out_of_scale(const Call &call, const inagg_options &options);
// Its root was excluded before all of it was here.
Error broadcast_without_root(const Call &call, uint16_t job);

} // namespace inagg
