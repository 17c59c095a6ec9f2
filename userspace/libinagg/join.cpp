// SPDX-License-Identifier: BSD-2-Clause
#include "join.hpp"

#include "engine.hpp"
#include "errors.hpp"
#include "linear_check.hpp"
#include "options.hpp"

#include <inagg/core/checksum.h>
#include <inagg/core/types.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <random>
#include <string_view>

namespace inagg {

using namespace std::chrono_literals;

namespace {

// Waits for the CONFIG or REFUSED that answers one nonce.
class JoinReceiver : public PacketReceiver {
public:
    explicit JoinReceiver(const Membership &asked) : asked_(asked) {}

    void packet(std::span<const std::byte> payload, bool) noexcept override {
        inagg_hdr header;
        if (payload.size() < sizeof(header))
            return;
        std::memcpy(&header, payload.data(), sizeof(header));
        const auto body = payload.subspan(sizeof(header));
        if (inagg_answer_admits(&asked_.config, &header) || body.size() != sizeof(inagg_config) || !is_body_intact(header, body))
            return;
        if (!is_believed(asked_, header, body))
            unproven = inagg_hdr_type(&header) == INAGG_REFUSED ? static_cast<int>(inagg_swap32(header.slot)) : 0;
        else if (inagg_hdr_type(&header) == INAGG_CONFIG)
            on_config(header, body);
        else if (inagg_hdr_type(&header) == INAGG_REFUSED)
            on_refused(header, body);
    }

    inagg_hdr config_header;
    std::optional<inagg_config> config;
    std::optional<Refusal> refused;
    std::optional<uint64_t> challenge;
    std::optional<int> unproven; // the reason of a REFUSED, or 0, of somebody who may not be the switch

private:
    void on_config(const inagg_hdr &h, std::span<const std::byte> body) {
        inagg_config answer;
        std::memcpy(&answer, body.data(), sizeof(answer));
        if (inagg_swap64(answer.nonce) != asked_.nonce)
            return;
        config = answer;
        config_header = h;
    }

    void on_refused(const inagg_hdr &h, std::span<const std::byte> body) {
        inagg_refusal refusal;
        std::memcpy(&refusal, body.data(), sizeof(refusal));
        if (inagg_swap64(refusal.nonce) != asked_.nonce)
            return;
        if (inagg_swap32(h.slot) == INAGG_R_CHALLENGE)
            challenge = inagg_hdr_challenge(&h);
        else
            refused = refusal_of(h, refusal);
    }

    const Membership asked_;
};

void send_join(PacketIo &io, const Membership &membership, inagg_type type, uint64_t nonce, uint8_t flags = 0) {
    const JobConfig &job = membership.config;
    inagg_hdr header = header_for(job, type);
    struct inagg_join body;
    inagg_join_fill(&body, &job, nonce, io.receive_port());
    body.flags |= flags;
    if (inagg_mac_key_is_set(&membership.key)) {
        inagg_hdr_set_challenge(&header, membership.challenge);
        inagg_hdr_prove(&header, &body, &membership.key);
    }
    // Always with its checksum: a damaged JOIN would name another port or size.
    inagg_hdr_seal_checked(&header, inagg_body_checksum(&body));
    std::byte *frame = io.reserve();
    std::memcpy(frame, &header, sizeof(header));
    std::memcpy(frame + sizeof(header), &body, sizeof(body));
    io.commit(sizeof(header) + sizeof(body));
    io.flush();
}

// Make `job` what the switch's answer says, or throw if no sane switch would say that.
void accept(const inagg_hdr &header, const inagg_config &answer, JobConfig &job) {
    const JobConfig asked = job;
    switch (-inagg_config_accept(&job, &header, &answer)) {
    case 0:
        return;
    case INAGG_R_SIZE:
    case INAGG_R_ALGORITHM:
        throw Error(INAGG_EREFUSED, "job {} on this switch has {} ranks and algorithm {}, not {} and {}", job.job,
                    inagg_swap16(answer.size), algorithm_name(answer.algorithm), asked.size, algorithm_name(asked.algorithm));
    case INAGG_R_POLICY:
        throw Error(INAGG_EREFUSED,
                    "job {}: this switch adds elements in network byte order, which ranks of {} cannot: use another", job.job,
                    algorithm_name(asked.algorithm));
    case INAGG_R_MTU:
        throw Error(INAGG_EREFUSED,
                    "job {} uses packets of {} elements, the MTU of this rank's path allows {}: "
                    "give all ranks the same MTU",
                    job.job, job.elements, asked.elements);
    default:
        throw Error(INAGG_EREFUSED, "the switch offers {} data and {} control slots; both must be powers of two up to {}",
                    job.slots, job.control_slots, INAGG_MAX_SLOTS);
    }
}

Error still_refused(const inagg_options &options, const Refusal &refusal) {
    return refusal.reason == INAGG_R_EXCLUDED ? not_taken_back(options) : join_refused(options, refusal);
}

Error not_joined(const inagg_options &options, const JoinReceiver &heard) {
    if (heard.refused)
        return still_refused(options, *heard.refused);
    return heard.unproven ? no_proof(options, *heard.unproven) : no_switch(options);
}

// Who hears no results is not in the job.
void join_group(PacketIo &io, const Membership &membership, const inagg_config &config) {
    try {
        io.join_group(config.group, inagg_swap16(config.group_port));
    } catch (const Error &) {
        leave(io, membership);
        throw;
    }
}

inagg_mac_key join_key_of(const inagg_options &options) {
    return options.join_key[0] ? inagg_mac_key_of(LinearCheck::parse_key(options.join_key).data()) : inagg_mac_key{};
}

} // namespace

void say_present(PacketIo &io, Membership &membership, uint64_t now) {
    if (now < inagg_membership_due(&membership))
        return;
    const int what = inagg_membership_say(&membership, now);
    if (what & INAGG_SAY_PRESENT)
        repeat_join(io, membership);
    if (what & INAGG_SAY_NEXT)
        join_next(io, membership);
}

std::optional<Error> ended_by(Membership &membership, const inagg_hdr &header, const inagg_refusal &refusal) {
    const JobConfig &job = membership.config;
    if (inagg_membership_refused(&membership, &job, &header, &refusal) != INAGG_ENDED)
        return std::nullopt;
    const Refusal said = refusal_of(header, refusal);
    if (said.reason == INAGG_R_EXCLUDED)
        return excluded(job.rank, job.job);
    const bool is_unknown = said.reason == INAGG_R_JOB || said.reason == INAGG_R_REPLACED; // the latter where jobs are configured
    if (is_unknown && said.above.empty() && inagg_swap16(header.boot) != job.boot)
        return switch_restarted(membership.switch_address, job.job);
    return job_ended(job.job, membership.switch_address, said);
}

void need_auto(PacketIo &io, const Membership &membership, const inagg_options &options) {
    if (std::string_view(options.transport) == "auto")
        return;
    leave(io, membership);
    throw;
}

bool is_believed(const Membership &membership, const inagg_hdr &header, std::span<const std::byte> body) {
    return is_body_intact(header, body) &&
           (!inagg_mac_key_is_set(&membership.key) || inagg_hdr_is_proven(&header, body.data(), &membership.key));
}

bool is_body_intact(const inagg_hdr &header, std::span<const std::byte> body) {
    if (!(inagg_swap16(header.level_flags) & INAGG_F_CHECKED))
        return true;
    return body.size() % 8 == 0 &&
           inagg_packet_intact(&header, inagg_payload_checksum(body.data(), static_cast<uint32_t>(body.size())));
}

void seal(inagg_hdr &header, const JobConfig &config, uint32_t payload) {
    if (config.checked)
        inagg_hdr_seal_checked(&header, payload);
    else
        inagg_hdr_seal(&header);
}

void commit(PacketIo &io, const JobConfig &config, inagg_hdr &header, std::byte *frame, std::size_t payload_bytes) {
    const auto bytes = static_cast<uint32_t>(payload_bytes);
    seal(header, config, config.checked ? inagg_payload_checksum(frame + sizeof(header), bytes) : 0);
    std::memcpy(frame, &header, sizeof(header));
    io.commit(sizeof(header) + payload_bytes);
}

inagg_hdr header_for(const JobConfig &config, inagg_type type) {
    inagg_hdr header;
    inagg_hdr_start(&header, &config, type);
    return header;
}

Membership join(PacketIo &io, const inagg_options &options) {
    JobConfig job{};
    job.job = options.job;
    job.rank = options.rank;
    job.size = options.size;
    job.algorithm = algorithm_number(options.algorithm);
    job.checked = options.checked != 0;
    job.expiry_us = options.expiry_us;
    job.quorum = options.quorum;
    job.exclude_ms = options.exclude_ms;
    job.elements = inagg_elements_for(static_cast<uint32_t>(io.path_payload()));
    if (job.elements == 0)
        throw Error(INAGG_EINVAL,
                    "the path to {} carries only {} bytes of UDP payload, at least {} are needed: "
                    "raise the MTU",
                    options.switch_address, io.path_payload(), sizeof(inagg_hdr) + INAGG_CHUNK * 4);

    Membership asked{{}, job, options.switch_address, join_key_of(options)};
    asked.nonce = random_nonce();
    JoinReceiver receiver(asked);
    const uint64_t deadline = monotonic_ns() + uint64_t{join_timeout_ms(options)} * 1'000'000;
    for (std::chrono::nanoseconds pause = 5ms;; pause = std::min<std::chrono::nanoseconds>(pause * 2, 200ms)) {
        asked.challenge = receiver.challenge.value_or(0);
        send_join(io, asked, INAGG_JOIN, asked.nonce);
        const uint64_t repeat = monotonic_ns() + static_cast<uint64_t>(pause.count());
        for (uint64_t now = monotonic_ns(); now < repeat; now = monotonic_ns()) {
            io.receive(receiver, std::chrono::nanoseconds(repeat - now));
            if (receiver.refused && !inagg_refusal_may_pass(static_cast<__u32>(receiver.refused->reason)))
                throw join_refused(options, *receiver.refused);
            if (receiver.challenge && *receiver.challenge != asked.challenge)
                break; // to be answered at once
            if (!receiver.config)
                continue;
            accept(receiver.config_header, *receiver.config, asked.config);
            inagg_membership_begin(&asked, asked.config.size, &receiver.config_header, &*receiver.config, monotonic_ns());
            if (receiver.config->group_port)
                join_group(io, asked, *receiver.config);
            return asked;
        }
        if (monotonic_ns() >= deadline)
            throw not_joined(options, receiver);
    }
}

uint64_t random_nonce() {
    std::random_device device;
    const uint64_t nonce = (uint64_t{device()} << 32) | device();
    return nonce ? nonce : 1; // 0 means "any" in a switch's tables
}

void repeat_join(PacketIo &io, const Membership &membership) { send_join(io, membership, INAGG_JOIN, membership.nonce); }

void join_next(PacketIo &io, const Membership &membership) {
    send_join(io, membership, INAGG_JOIN, membership.next_nonce, INAGG_JOIN_RENEW);
}

void leave(PacketIo &io, const Membership &membership) { send_join(io, membership, INAGG_LEAVE, membership.nonce); }

} // namespace inagg
