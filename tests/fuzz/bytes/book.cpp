// SPDX-License-Identifier: BSD-2-Clause
// The agent's decisions about joins, whoever sends them: JOIN, LEAVE, a parent's CONFIG and REFUSED, links and time. What
// holds of the jobs after each is what the switch relies on.
#include "bytes.hpp"

#include "job_book.hpp"
#include "messages.hpp"

#include <inagg/core/packet.h>

#include <spdlog/spdlog.h>

#include <endian.h>

#include <set>

namespace {

using namespace inaggd;
using fuzz::Bytes;
using fuzz::need;

constexpr uint32_t slots = 512, first_port = 100;

Address host(uint8_t last) {
    Address address = *Address::parse("10.77.0.0");
    address.bytes[3] = last;
    return address;
}

Policy policy_of(Bytes &bytes) {
    Policy policy{.slots = slots, .floors = slots, .job_slots = 64};
    const uint8_t choice = bytes.take<uint8_t>();
    if (choice & 1)
        policy.children = {{first_port, host(10)}, {first_port + 1, host(11)}};
    if (choice & 2)
        policy.parents = {{first_port + 7, host(1)}};
    if ((choice & 6) == 6)
        policy.parents.push_back({first_port + 6, host(2)});
    policy.auto_jobs = !(choice & 8);
    if (choice & 16)
        policy.mtu = 1280;
    return policy;
}

// Few jobs, ranks, ports and hosts, so that they meet; bodies as they come, but for some fields that make sense.
inagg_event event_of(Bytes &bytes, uint8_t type, const JobBook &book) {
    inagg_event event{};
    const uint8_t who = bytes.take<uint8_t>(), how = bytes.take<uint8_t>();
    event.type = type;
    event.family = 4;
    event.job = 7 + (who & 3);
    event.rank = who >> 2 & 7;
    event.ifindex = first_port + (how & 7);
    const Address from = host(how & 8 ? 1 + (how & 1) : 10 + (how & 7));
    std::copy_n(from.bytes.begin(), 4, event.address);
    event.mac[0] = 2;
    event.mac[5] = from.bytes[3];
    event.join = bytes.take<inagg_join>();
    const auto job = book.jobs().find(event.job);
    if (how & 16)
        event.join.size = htobe16(job == book.jobs().end() ? 2 + (how >> 5) : job->second.record.size);
    if (how & 32) {
        event.join.elements = htobe16(352);
        event.join.algorithm %= 5;
        event.join.flags &= INAGG_JOIN_TREE;
    }
    event.generation = job != book.jobs().end() && how & 64 ? job->second.record.generation : bytes.take<uint8_t>();
    if (how & 128) // says that it had joined
        event.hdr.boot = htobe16(9);
    if (type == INAGG_REFUSED)
        event.reason = bytes.below(INAGG_R_COUNT);
    event.ranks = bytes.take<uint16_t>();
    return event;
}

void check_job(const JobState &job, const Policy &policy) {
    const inagg_job &record = job.record;
    need(record.size >= 1 && record.size <= INAGG_MAX_RANKS, "a job has ranks, and not too many");
    need(record.index < INAGG_MAX_JOBS, "a job has a row of its own");
    need(record.elements && record.elements % INAGG_CHUNK == 0 && record.elements <= INAGG_MAX_ELEMENTS,
         "packets are whole chunks");
    need(record.slots && !(record.slots & (record.slots - 1)) && record.control_slots &&
             !(record.control_slots & (record.control_slots - 1)),
         "pools are powers of two");
    need(record.slots <= INAGG_MAX_SLOTS && record.control_slots <= INAGG_MAX_SLOTS, "positions have numbers");
    if (!has_descriptors(record) && !(shares_slots(record) && policy.has_parent())) // else its sums are in memory of all jobs
        need(record.first_slot + record.slots + record.control_slots <= policy.slots, "pools lie in the switch's memory");
    need(!(record.all & ~inagg_all_ranks(record.size)), "blocks wait for ranks that there are");
    need(joined_count(job.members) <= record.size, "no more have joined than there are");
    for (uint32_t rank = record.size; rank < INAGG_MAX_RANKS; rank++)
        need(!has_joined(job.members[rank]), "ranks that are not there have not joined");
    for (uint32_t rank = 0; rank < record.size; rank++)
        need(!(subtree_of(job, rank) & ~inagg_all_ranks(record.size)), "a switch speaks for ranks of the job");
}

void check(const JobBook &book) {
    std::set<uint32_t> rows;
    std::map<uint32_t, uint32_t> pools; // first slot and the one behind the last
    for (const auto &[number, job] : book.jobs()) {
        check_job(job, book.policy());
        need(rows.insert(job.record.index).second, "no two jobs share a row");
        const bool has_slots = job.record.algorithm == INAGG_SWITCHML || job.record.algorithm == INAGG_PANAMA;
        if (has_slots && !book.policy().in_tree())
            need(pools.emplace(job.record.first_slot, job.record.first_slot + job.record.slots + job.record.control_slots).second,
                 "no two pools begin at one slot");
    }
    uint32_t free = 0;
    for (const auto &[first, end] : pools) {
        need(first >= free, "pools do not overlap");
        free = end;
    }
}

// What the agent does with an outcome, as far as it makes packets of it.
void check(const Outcome &outcome) {
    need(outcome.verdict != Outcome::Verdict::refused || outcome.reason != INAGG_R_NONE, "who is refused is told why");
    for (const Message &message : outcome.messages)
        need(message.to.family != 0, "a message goes to somebody");
    for (const Displaced &displaced : outcome.displaced)
        need(has_joined(displaced.member), "only who has joined can be put out");
}

uint64_t nonce_at(const JobBook &book, const inagg_event &event) {
    const auto job = book.jobs().find(event.job);
    return job == book.jobs().end() ? 0 : job->second.members[event.rank].nonce;
}

Outcome join(JobBook &book, const inagg_event &event, Time now) {
    const uint64_t before = nonce_at(book, event);
    Outcome outcome = book.join(event, now);
    const bool is_seated = nonce_at(book, event) == event.join.nonce && before != event.join.nonce;
    const bool is_new = event.join.flags & (INAGG_JOIN_RENEW | INAGG_JOIN_MOVED);
    need(!event.hdr.boot || is_new || !is_seated, "a run that has ended does not come back");
    return outcome;
}

Outcome step(JobBook &book, Bytes &bytes, Time now) {
    switch (bytes.below(10)) {
    case 0:
        return book.leave(event_of(bytes, INAGG_LEAVE, book), now);
    case 1:
        return book.configured(event_of(bytes, INAGG_CONFIG, book), now);
    case 2:
        return book.refused_above(event_of(bytes, INAGG_REFUSED, book), now);
    case 3:
        return book.tend(now);
    case 4:
        return book.expire(now);
    case 5: {
        const uint32_t port = first_port + bytes.below(8);
        return bytes.below(4) ? book.link(port, bytes.below(2), now) : book.port_gone(port);
    }
    case 6:
        return bytes.below(8) || book.jobs().empty() ? book.forget_returning(now) : book.remove(book.jobs().begin()->first);
    default:
        return join(book, event_of(bytes, INAGG_JOIN, book), now);
    }
}

} // namespace

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    spdlog::set_level(spdlog::level::off);
    Bytes bytes(data, size);
    JobBook book(policy_of(bytes), [] { return uint16_t{65533}; });
    Time now = Time{} + std::chrono::hours(1);
    while (!bytes.empty()) {
        now += std::chrono::milliseconds(bytes.take<uint8_t>() * 10);
        check(step(book, bytes, now));
        check(book);
    }
    return 0;
}
