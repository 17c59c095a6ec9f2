// SPDX-License-Identifier: BSD-2-Clause
#include "job_book.hpp"

#include "error.hpp"
#include "slot_pool.hpp"

#include <endian.h>
#include <inagg/core/congestion.h>
#include <inagg/core/packet.h>

#include <algorithm>
#include <array>
#include <bit>
#include <bitset>
#include <cstring>
#include <span>

namespace inaggd {
namespace {

using Kind = Outcome::Change::Kind;
using Verdict = Outcome::Verdict;

constexpr size_t retired_capacity = 4096, waiters_capacity = 256;
constexpr int64_t port_asks = 4 * INAGG_MAX_RANKS, child_asks = 4 * port_asks; // that wait for the parent's answer

// A JOIN in host byte order; the nonce stays as it is on the wire.
struct Request {
    uint16_t size, elements;
    uint8_t algorithm;
    Stragglers stragglers;
};

Request request_of(const inagg_event &event) {
    return {.size = be16toh(event.join.size),
            .elements = be16toh(event.join.elements),
            .algorithm = event.join.algorithm,
            .stragglers = {.expiry_us = be32toh(event.join.expiry_us),
                           .quorum = be16toh(event.join.quorum),
                           .exclude_ms = be32toh(event.join.exclude_ms)}};
}

// One result is for all ranks: a switch writes its headers once. 0: who has joined uses the sender's family.
uint8_t other_family(const JobState &job, const inagg_event &event) {
    for (const inagg_member &member : job.members)
        if (has_joined(member) && member.family != event.family)
            return member.family;
    return 0;
}

// A rank that names no time and no quorum takes the job's.
bool same_algorithm(const JobState &job, const Request &want) {
    bool any = want.stragglers == Stragglers{};
    return want.algorithm == job.record.algorithm && (any || want.stragglers == job.stragglers);
}

std::string other_algorithm(const JobState &job, const Request &want) {
    return fmt::format("job runs {}, not {}", describe(job.record.algorithm, job.stragglers),
                       describe(want.algorithm, want.stragglers));
}

bool same_place(const inagg_member &member, const inagg_event &event) {
    return member.ifindex == event.ifindex && Address::of(member) == sender_of(event);
}

// Why this policy leaves no room for the algorithm; empty: it does.
std::string objection(const Policy &policy, int algorithm) {
    if (!is_available(algorithm))
        return fmt::format("algorithm {} is not available, only switchml, trio, atp, panama and canary are",
                           algorithm_name(algorithm));
    if (policy.limits.algorithm && algorithm != *policy.limits.algorithm)
        return fmt::format("this switch runs {}, not {}", algorithm_name(*policy.limits.algorithm), algorithm_name(algorithm));
    if ((algorithm == INAGG_TRIO || algorithm == INAGG_PANAMA || algorithm == INAGG_CANARY) && policy.server)
        return fmt::format("{} does not work with a server, switchml and atp do", algorithm_name(algorithm));
    if (algorithm == INAGG_ATP && !policy.server && !policy.has_parent())
        return "atp needs a server behind the switch: inagg-ps, and inaggd --parent PORT/ADDRESS";
    if (is_spread(static_cast<uint8_t>(algorithm)) && policy.parents.size() > INAGG_MAX_UPS)
        return fmt::format("{} knows {} parents, and this switch has {}", algorithm_name(algorithm), INAGG_MAX_UPS,
                           policy.parents.size());
    return "";
}

inagg_job new_record(uint8_t algorithm, uint16_t size, uint32_t slots, uint32_t control, uint16_t elements, uint8_t flags) {
    inagg_job record{};
    record.all = inagg_all_ranks(size);
    record.slots = slots;
    record.control_slots = control;
    record.size = size;
    record.elements = elements;
    record.algorithm = algorithm;
    record.flags = flags;
    record.fan_in_log2 = static_cast<uint8_t>(inagg_fan_in_log2(size));
    return record;
}

// Of a job here, as the parent's CONFIG describes it.
inagg_job record_below(const inagg_event &event) {
    inagg_config config;
    static_assert(sizeof config == sizeof event.join);
    std::memcpy(&config, &event.join, sizeof config);
    inagg_job record = new_record(config.algorithm, be16toh(config.size), be32toh(config.slots), be32toh(config.control_slots),
                                  be16toh(config.elements), config.flags);
    record.all = event.ranks;
    return record;
}

// Not all of its ranks have joined this run yet, and nobody configured it.
bool forming(const JobState &job) {
    auto configured = [](const inagg_member &m) { return m.flags & INAGG_MEMBER_STATIC; };
    return !job.record.keep && missing_count(job) && std::none_of(job.members.begin(), job.members.end(), configured);
}

bool from_switch(const inagg_event &event) { return event.join.flags & INAGG_JOIN_TREE; }

// The rank changes roots, and its job goes on. Only switches can say so.
bool is_move(const inagg_event &event) { return from_switch(event) && event.join.flags & INAGG_JOIN_MOVED; }

void forget_run(Members &members) { std::for_each(members.begin(), members.end(), empty_seat); }

// Only from there may these ranks join: who has joined, from the same port.
bool same_reservations(const Members &here, const Members &wanted) {
    return std::ranges::equal(here, wanted, [](const inagg_member &one, const inagg_member &other) {
        const bool reserved = one.flags & INAGG_MEMBER_RESERVED;
        return reserved == !!(other.flags & INAGG_MEMBER_RESERVED) &&
               (!reserved || ((one.ifindex == other.ifindex || !has_joined(one)) && Address::of(one) == Address::of(other)));
    });
}

bool same_switch(const inagg_member &a, const inagg_member &b) {
    return (a.flags & b.flags & INAGG_MEMBER_SWITCH) && a.ifindex == b.ifindex && Address::of(a) == Address::of(b);
}

inagg_member member_of(const inagg_event &event) {
    const Address address = sender_of(event);
    inagg_member member{};
    member.nonce = event.join.nonce;
    member.ifindex = event.ifindex;
    member.receive_port = event.join.receive_port;
    member.family = event.family;
    member.flags = from_switch(event) ? INAGG_MEMBER_SWITCH : 0;
    std::copy_n(event.mac, sizeof member.mac, member.mac);
    std::copy(address.bytes.begin(), address.bytes.end(), member.address);
    return member;
}

// Why a switch with these limits cannot add what a job has; null: it can. One without floats adds for panama what the root has
// made integers.
const char *why_not_added(const Limits &limits, const inagg_job &record) {
    if (((record.flags & INAGG_JOIN_BIG_ENDIAN) != 0) != limits.big_endian)
        return limits.big_endian ? "the job's elements are little-endian, and this switch adds big-endian ones"
                                 : "the job's elements are big-endian, and this switch adds little-endian ones";
    if (inagg_job_adds_floats(&record))
        return limits.adds_floats ? nullptr : "the job has floats, and this switch cannot add them";
    return record.algorithm == INAGG_PANAMA || !(record.flags & INAGG_JOIN_INTEGERS) ? nullptr
                                                                                     : "only panama has floats to leave out";
}

bool same_job(const inagg_job &a, const inagg_job &b) {
    return a.size == b.size && a.slots == b.slots && a.control_slots == b.control_slots && a.elements == b.elements &&
           a.algorithm == b.algorithm && (a.flags & shape_flags) == (b.flags & shape_flags);
}

// What a switch's tables can hold, in packets of at most so many elements.
bool has_good_shape(const inagg_job &record, uint16_t most) {
    return std::has_single_bit(record.slots) && std::has_single_bit(record.control_slots) && record.slots <= INAGG_MAX_SLOTS &&
           record.control_slots <= INAGG_MAX_SLOTS && record.elements && record.elements % INAGG_CHUNK == 0 &&
           record.elements <= most;
}

} // namespace

Outcome ignored(std::string detail) { return {.detail = std::move(detail)}; }

Outcome refused(inagg_reason reason, std::string detail, Outcome so_far) {
    so_far.verdict = Verdict::refused;
    so_far.reason = reason;
    so_far.detail = std::move(detail);
    return so_far;
}

Neighbour neighbour_of(const inagg_event &event) { return {.port = event.ifindex, .address = sender_of(event)}; }

void empty_seat(inagg_member &member) {
    inagg_member blank{};
    if (member.flags & INAGG_MEMBER_RESERVED) {
        blank = member;
        blank.nonce = 0;
        blank.receive_port = 0;
        blank.flags &= static_cast<uint8_t>(~INAGG_MEMBER_LEFT);
    }
    member = blank;
}

int missing_count(const JobState &job) {
    int missing = 0;
    for (uint32_t rank = 0; rank < job.record.size; rank++) {
        const inagg_member &member = job.members[rank];
        missing += (job.record.all & inagg_rank_bit(rank)) && !has_joined(member) && !(member.flags & INAGG_MEMBER_LEFT);
    }
    return missing;
}

std::string describe(int algorithm, Stragglers s) {
    if (algorithm != INAGG_TRIO)
        return algorithm_name(algorithm);
    return fmt::format("{}, expiry {} us, quorum {}{}", algorithm_name(algorithm), s.expiry_us, s.quorum,
                       s.exclude_ms ? fmt::format(", silent ranks excluded after {} ms", s.exclude_ms) : "");
}

std::string describe_packets(const inagg_job &record) {
    return fmt::format("{}{}{}", record.flags & INAGG_JOIN_CHECKED ? ", payloads checked" : "",
                       record.flags & INAGG_JOIN_INTEGERS ? ", floats as fixed point" : "",
                       record.flags & INAGG_JOIN_BIG_ENDIAN ? ", big-endian" : "");
}

// What the agent sends without stragglers, or a sum that has waited for long enough, has less room than a
// port's frames.
uint16_t most_elements(uint32_t mtu, uint8_t family, uint8_t algorithm, Stragglers stragglers) {
    const uint16_t fits = elements_for_mtu(mtu, family);
    return stragglers.expiry_us || algorithm == INAGG_CANARY ? std::min<uint16_t>(fits, INAGG_SWEPT_ELEMENTS) : fits;
}

// Of IP, UDP and inagg, in a packet.
static uint32_t header_bytes(uint8_t family) { return (family == 6 ? 40 : 20) + 8 + sizeof(inagg_hdr); }

uint16_t elements_for_mtu(uint32_t mtu, uint8_t family) {
    uint32_t headers = header_bytes(family);
    uint32_t elements = mtu > headers ? (mtu - headers) / 4 : 0;
    elements -= elements % INAGG_CHUNK;
    return static_cast<uint16_t>(std::min<uint32_t>(elements, INAGG_MAX_ELEMENTS));
}

Address sender_of(const inagg_event &event) {
    Address address{.family = event.family};
    std::copy_n(event.address, event.family == 4 ? 4 : 16, address.bytes.begin());
    return address;
}

Address refuser_of(const inagg_event &event) {
    const auto refusal = std::bit_cast<inagg_refusal>(event.join);
    return inagg_refused_above(&event.hdr, &refusal) ? Address::of_mapped(refusal.above) : sender_of(event);
}

bool is_at(const inagg_member &member, const inagg_event &event) {
    return same_place(member, event) && member.receive_port == event.join.receive_port &&
           std::ranges::equal(member.mac, event.mac);
}

uint32_t joined_count(const Members &members) {
    return static_cast<uint32_t>(std::count_if(members.begin(), members.end(), has_joined));
}

uint64_t subtree_of(const JobState &job, uint32_t rank) {
    uint64_t ranks = 0;
    if (missing_count(job))
        return 0;
    for (uint32_t other = 0; other < job.record.size; other++)
        if (same_switch(job.members[other], job.members[rank]))
            ranks |= inagg_rank_bit(other);
    return ranks;
}

bool is_represented(const JobState &job, uint32_t rank) {
    auto before = std::span(job.members).first(rank);
    return std::any_of(before.begin(), before.end(),
                       [&](const inagg_member &other) { return same_switch(other, job.members[rank]); });
}

uint8_t leaf_of(const JobState &job, uint32_t rank) {
    uint8_t leaf = 0;
    for (uint32_t other = 0; other < rank && !same_switch(job.members[other], job.members[rank]); other++)
        leaf += (job.record.all & inagg_rank_bit(other)) && !is_represented(job, other);
    return leaf;
}

uint8_t children_of(const JobState &job) {
    uint8_t children = 0;
    for (uint32_t rank = 0; rank < job.record.size; rank++)
        children += (job.record.all & inagg_rank_bit(rank)) && !is_represented(job, rank);
    return children;
}

bool needs_buffers(const JobState &job) {
    return inagg_job_adds_floats(&job.record) && inagg_merge_buffers(children_of(job)) > 1;
}

uint16_t window_cap(uint32_t buffers, uint32_t jobs, uint32_t children) {
    const uint32_t of_a_block = inagg_merge_buffers(children) - 1; // the first is the slot's
    if (!of_a_block)
        return 0;
    return static_cast<uint16_t>(std::min<uint32_t>(buffers / (jobs + 1) / of_a_block, UINT16_MAX));
}

uint32_t slots_of_link(uint64_t bits_per_second, uint16_t elements) {
    constexpr uint64_t least = 16, a_second = std::chrono::seconds(1) / std::chrono::milliseconds(20), ethernet = 14;
    const uint64_t packet_bits = 8 * (ethernet + header_bytes(4) + uint64_t{4} * elements);
    const uint64_t packets = bits_per_second / a_second / packet_bits;
    return static_cast<uint32_t>(std::bit_floor(std::clamp<uint64_t>(packets, least, INAGG_MAX_SLOTS)));
}

bool can_be_answered(const inagg_event &event, bool from_here) {
    const Address address = sender_of(event);
    bool unicast = !(event.mac[0] & 1) && std::any_of(event.mac, event.mac + 6, [](auto b) { return b; });
    return (event.family == 4 || event.family == 6) && unicast && (address.is_host() || (from_here && address.is_loopback())) &&
           event.join.receive_port && event.join.nonce && event.ifindex;
}

uint64_t present_ranks(const JobState &job) {
    uint64_t ranks = 0;
    for (uint32_t rank = 0; rank < job.record.size; rank++)
        if (has_joined(job.members[rank]))
            ranks |= job.record.all & inagg_rank_bit(rank);
    return ranks;
}

void JobBook::restore(uint16_t number, const inagg_job &record, Stragglers stragglers, const Members &members,
                      const inagg_uplink &uplink, Time now, uint8_t up) {
    JobState job{.record = record,
                 .stragglers = stragglers,
                 .members = members,
                 .heard = now,
                 .seated = now,
                 .uplink = uplink,
                 .answered = now,
                 .round = uplink.position,
                 .up = up,
                 .changed = now,
                 .runs = is_spread(record.algorithm),
                 .announced = now};
    for (unsigned i = 0; i < INAGG_MAX_UPS; i++)
        job.above[i].knows = up >> i & 1;
    jobs_[number] = std::move(job);
    generations_[number] = record.generation;
    positions_[number] = uplink.position;
}

// That every port carries in a packet, together longer than a block can be.
uint8_t JobBook::blocks_here(uint8_t family, const inagg_job &record) const {
    const uint32_t blocks = inagg_blocks_of_room(record.elements, policy_.mtu - std::min(policy_.mtu, header_bytes(family)));
    return policy_.several && blocks > 1 && inagg_job_takes_several(&record) ? static_cast<uint8_t>(blocks) : 0;
}

uint16_t JobBook::most_elements_here(uint8_t family, uint8_t algorithm, Stragglers stragglers) const {
    return std::min(most_elements(policy_.mtu, family, algorithm, stragglers), policy_.limits.elements);
}

// Of a job that begins here. Where switches in a tree add, and where a switch cannot add halves, those travel as fixed
// point; where it cannot add floats, all of them do.
uint8_t JobBook::flags_of(uint8_t algorithm, bool checked, bool big_endian) const {
    const Limits &limits = policy_.limits;
    const bool tree = policy_.in_tree() || is_spread(algorithm) || !limits.adds_halves || big_endian;
    const bool checks = checked && limits.checks_payloads;
    const bool integers = algorithm == INAGG_PANAMA && !limits.adds_floats;
    return static_cast<uint8_t>((tree ? INAGG_JOIN_TREE : 0) | (checks ? INAGG_JOIN_CHECKED : 0) |
                                (integers ? INAGG_JOIN_INTEGERS : 0) | (big_endian ? INAGG_JOIN_BIG_ENDIAN : 0));
}

// In which byte order are the elements of the JOIN's job added, or would be if it began with this one?  A server does as the
// switches below.
bool JobBook::is_big_endian(const inagg_event &event) const {
    if (const auto job = jobs_.find(event.job); job != jobs_.end())
        return job->second.record.flags & INAGG_JOIN_BIG_ENDIAN;
    return policy_.limits.big_endian || (policy_.server && from_switch(event) && event.join.flags & INAGG_JOIN_BIG_ENDIAN);
}

// Why the job of a JOIN, which says that it has been in one, goes on without it; NONE: it does not. A rank has a boot id from
// CONFIG; if what told it of the end was lost, it asks.
inagg_reason JobBook::ended_for(const inagg_event &event) const {
    if (is_move(event))
        return retired(event.join.nonce) ? INAGG_R_JOB : INAGG_R_NONE;
    const auto job = jobs_.find(event.job);
    if (!event.hdr.boot || event.rank >= INAGG_MAX_RANKS)
        return INAGG_R_NONE;
    if (job == jobs_.end())
        return INAGG_R_JOB;
    const inagg_member &member = job->second.members[event.rank];
    if (member.flags & INAGG_MEMBER_STATIC || member.nonce == event.join.nonce)
        return INAGG_R_NONE;
    if (inagg_job_excludes(&job->second.record, event.rank))
        return event.join.flags & INAGG_JOIN_RENEW ? INAGG_R_EXCLUDED : INAGG_R_NONE;
    if (event.generation != job->second.record.generation)
        return INAGG_R_REPLACED;
    return event.join.flags & INAGG_JOIN_RENEW ? INAGG_R_NONE : INAGG_R_JOB;
}

bool JobBook::is_switch(const Neighbour &other) const {
    return policy_.children.contains(other) || std::ranges::find(policy_.parents, other) != policy_.parents.end();
}

uint32_t JobBook::payer(const inagg_event &event) const {
    if (!is_switch(neighbour_of(event)))
        return event.ifindex;
    const auto job = jobs_.find(event.job);
    if (event.type != INAGG_CONFIG || job == jobs_.end() || event.rank >= INAGG_MAX_RANKS)
        return 0;
    const inagg_member &seated = job->second.members[event.rank];
    return seated.flags & INAGG_MEMBER_SWITCH ? 0 : seated.ifindex;
}

// Why no job, whatever its state, could take this JOIN.
std::optional<Outcome> JobBook::unfit(const inagg_event &event) const {
    Request want = request_of(event);
    if (!can_be_answered(event, policy_.server))
        return ignored("sender, receive port or nonce is not one of a worker");
    if (const inagg_reason why = ended_for(event))
        return refused(why, "the run has ended here");
    if (retired(event.join.nonce))
        return ignored("late copy of a JOIN of a run that has ended");
    if (from_switch(event) && !policy_.children.contains(neighbour_of(event)))
        return refused(INAGG_R_PARENT, fmt::format("a switch, but not one of this one's: start {} with --child {}{}",
                                                   policy_.server ? "inagg-ps" : "inaggd", policy_.server ? "" : "PORT/",
                                                   sender_of(event).text()));
    if (want.size == 0 || want.size > INAGG_MAX_RANKS)
        return refused(INAGG_R_SIZE, fmt::format("size {} is not 1 to {}", want.size, INAGG_MAX_RANKS));
    if (event.rank >= want.size)
        return refused(INAGG_R_RANK, fmt::format("rank {} is outside a job of {}", event.rank, want.size));
    if (want.size > policy_.limits.ranks)
        return refused(INAGG_R_POLICY, fmt::format("this switch has no jobs of more than {} ranks", policy_.limits.ranks));
    if (std::string why = objection(policy_, want.algorithm); !why.empty())
        return refused(INAGG_R_ALGORITHM, std::move(why));
    if (is_big_endian(event) && !(event.join.flags & INAGG_JOIN_BIG_ENDIAN))
        return refused(INAGG_R_POLICY, fmt::format("elements are added in network byte order here, and {} has others",
                                                   from_switch(event) ? "the switch below" : "the rank"));
    if (want.stragglers.quorum > want.size)
        return refused(INAGG_R_SIZE, fmt::format("quorum {} is more than the {} ranks", want.stragglers.quorum, want.size));
    if (want.algorithm != INAGG_TRIO && want.stragglers != Stragglers{})
        return refused(INAGG_R_POLICY, fmt::format("{} waits for all ranks: expiry, quorum and exclusion are trio's",
                                                   algorithm_name(want.algorithm)));
    if (!expiry_can_be_kept(want.stragglers.expiry_us))
        return refused(INAGG_R_POLICY, fmt::format("expiry {} us is not {} us to {} s", want.stragglers.expiry_us,
                                                   least_expiry_us, most_expiry_us / 1'000'000));
    if (want.stragglers.exclude_ms && want.stragglers.exclude_ms < least_exclude_ms)
        return refused(INAGG_R_POLICY,
                       fmt::format("exclusion after {} ms: it takes {} at least", want.stragglers.exclude_ms, least_exclude_ms));
    if (want.stragglers.exclude_ms && !policy_.limits.excludes)
        return refused(INAGG_R_POLICY, "this switch excludes no ranks");
    if (want.stragglers.exclude_ms && policy_.in_tree())
        return refused(INAGG_R_POLICY, fmt::format("exclusion after {} ms: no rank is excluded in a tree of switches",
                                                   want.stragglers.exclude_ms));
    return std::nullopt;
}

Outcome JobBook::join(const inagg_event &event, Time now) {
    if (std::optional<Outcome> no = unfit(event))
        return *no;
    if (is_move(event))
        return adopt(event, now);
    if (policy_.has_parent())
        return ask_parent(event, now);
    auto job = jobs_.find(event.job);
    if (job == jobs_.end())
        return join_new(event, {}, now);
    if (event.rank < job->second.record.size && inagg_job_excludes(&job->second.record, event.rank))
        return join_excluded(job->second, event, now);
    // Nobody can be seated beyond the job; a restart with another size is the holder of the rank's to make.
    if (has_joined(job->second.members[event.rank]))
        return join_held(job->second, event, now);
    return join_empty(job->second, event, now);
}

// The root decides, but about what it cannot see: to it, all ranks behind this switch are at one place. It does not matter
// that the JOIN is passed on again each time that the rank repeats it.
Outcome JobBook::ask_parent(const inagg_event &event, Time now) {
    auto job = jobs_.find(event.job);
    if (job != jobs_.end()) {
        const inagg_member &member = job->second.members[event.rank];
        if (std::optional<Outcome> again = joins_again(job->second, event, now))
            return *again;
        if (has_joined(member) && !same_place(member, event) && !idle(job->second, now))
            return refuse_late(event, INAGG_R_TAKEN, fmt::format("rank is held by {}", Address::of(member).text()), now);
    }
    const bool spread = job != jobs_.end() && is_spread(job->second.record.algorithm);
    if (spread || (job == jobs_.end() && needs_no_root(event.join.algorithm))) {
        const auto linked = spread ? next_home(event.job) : linked_position(event.job, position_of(event.job));
        if (!linked)
            return refuse_late(event, INAGG_R_UNLINKED, "no link to a parent is up", now);
        positions_[event.job] = *linked;
    }
    if (const uint8_t family = parent_of(event.job).address.family; family != event.family)
        return refused(INAGG_R_PARENT, fmt::format("it uses IPv{}, and the parent has an IPv{} address: give ranks and parents "
                                                   "addresses of one family",
                                                   event.family, family));
    if (elements_for_mtu(policy_.mtu, event.family) < INAGG_CHUNK)
        return refused(INAGG_R_MTU, fmt::format("an MTU of {}: less than one chunk a packet", policy_.mtu));
    const std::pair rank{event.job, event.rank};
    const auto asked = asked_.find(rank);
    if (asked != asked_.end() && neighbour_of(asked->second.event) != neighbour_of(event) && now - asked->second.at < patience)
        return refuse_late(event, INAGG_R_TAKEN, fmt::format("{} asks for the same rank", sender_of(asked->second.event).text()),
                           now);
    if (asked == asked_.end() && has_asked_enough(event))
        return refuse_late(event, INAGG_R_FULL, "too many ranks behind this port wait for the parent's answer", now);
    Outcome outcome{.verdict = Verdict::asked};
    if (job == jobs_.end()) {
        if (std::optional<Outcome> no = beyond_port(event, outcome, now))
            return *no;
        wanted_[{event.ifindex, event.job}] = now;
    }
    asked_[rank] = {event, now};
    outcome.messages.push_back(passed_on(event));
    return outcome;
}

bool JobBook::has_asked_enough(const inagg_event &event) const {
    const int64_t most = policy_.children.contains(neighbour_of(event)) ? child_asks : port_asks;
    return std::ranges::count_if(asked_, [&](const auto &asked) { return asked.second.event.ifindex == event.ifindex; }) >= most;
}

// What the slowest link carries that is known from here to the rank, in packets; 0: none is known.
uint32_t JobBook::slots_on_the_way(const inagg_event &event, uint16_t elements) const {
    const bool from_child = policy_.children.contains(neighbour_of(event));
    const uint32_t below = from_child ? std::bit_floor(be32toh(event.join.slots)) : 0;
    const uint32_t here = policy_.slowest_link ? slots_of_link(policy_.slowest_link, elements) : 0;
    return below && here ? std::min(below, here) : std::max(below, here);
}

// Data slots of a job that names no number. Not of configured ones: several roots may have the same, which has to be one job.
uint32_t JobBook::usual_slots(uint8_t algorithm, uint32_t on_the_way) const {
    const bool fits = policy_.fits_links && on_the_way && inagg_reaction_of(algorithm) == INAGG_UNCONTROLLED;
    return fits ? std::min(policy_.job_slots, on_the_way) : policy_.job_slots;
}

// A JOIN or LEAVE for a rank behind this switch, which the answers come back to. What only switches say, ranks do not.
Message JobBook::passed_on(const inagg_event &event) const {
    const Address &parent = parent_of(event.job).address;
    inagg_join join = event.join;
    join.flags = static_cast<uint8_t>((join.flags | INAGG_JOIN_TREE) & ~INAGG_JOIN_MOVED);
    if (!policy_.limits.checks_payloads)
        join.flags &= static_cast<uint8_t>(~INAGG_JOIN_CHECKED);
    if (!policy_.limits.big_endian)
        join.flags &= static_cast<uint8_t>(~INAGG_JOIN_BIG_ENDIAN);
    join.receive_port = htobe16(INAGG_PORT);
    join.elements =
        htobe16(std::min({be16toh(join.elements), elements_for_mtu(policy_.mtu, parent.family), policy_.limits.elements}));
    join.position = htobe16(position_of(event.job));
    join.slots = htobe32(slots_on_the_way(event, be16toh(join.elements)));
    join.control_slots = 0;
    return {.to = parent,
            .type = static_cast<inagg_type>(event.type),
            .job = event.job,
            .rank = event.rank,
            .generation = event.generation,
            .reason = INAGG_R_NONE,
            .join = join};
}

// From the root of the job's tree: others have no say about it.
bool JobBook::from_parent(const inagg_event &event) const {
    return policy_.has_parent() && neighbour_of(event) == parent_of(event.job);
}

// Without a nonce that was asked for, whoever sends this is not the parent.
Outcome JobBook::configured(const inagg_event &event, Time now) {
    auto asked = asked_.find({event.job, event.rank});
    auto job = jobs_.find(event.job);
    const auto up = up_index(event);
    if (job != jobs_.end() && up && is_spread(job->second.record.algorithm) && is_run_of(job->second, event))
        return known_above(*up, event, job->second, now);
    if (!from_parent(event))
        return ignored("not from the job's parent");
    if (job != jobs_.end() && adopts(event, job->second))
        return settle(event, job->second);
    if (asked == asked_.end() || asked->second.event.join.nonce != event.join.nonce)
        return ignored("answers nothing that was asked of the parent");
    const inagg_event join = asked->second.event;
    Outcome outcome;
    if (job != jobs_.end() && job->second.record.generation != event.generation) {
        erase(event.job, outcome, INAGG_R_REPLACED);
        job = jobs_.end();
    }
    JobState *state = job == jobs_.end() ? create_below(event, outcome, now) : &job->second;
    asked_.erase({event.job, event.rank});
    std::erase_if(wanted_, [&](const auto &wish) { return wish.first.second == event.job; });
    if (state) {
        point_uplink(*state, event);
        outcome = seat(*state, join, std::move(outcome), now);
        if (is_spread(state->record.algorithm) && up) {
            learn_up_port(*up, event);
            state->above[*up].knows = true;
            tend_parents(event.job, *state, outcome, now);
        }
        return outcome;
    }
    const char *why_not = why_not_added(policy_.limits, record_below(event));
    outcome.verdict = Verdict::done;
    outcome.detail = why_not ? why_not : "no room here for what the parent has set up";
    outcome.displaced.push_back(
        {event.job, event.rank, event.generation, member_of(join), why_not ? INAGG_R_POLICY : INAGG_R_FULL});
    return outcome;
}

// The job that the parent's CONFIG describes; null if there is no room for it.
JobState *JobBook::create_below(const inagg_event &event, Outcome &outcome, Time now) {
    const inagg_job record = record_below(event);
    const uint64_t all = record.size >= 1 && record.size <= INAGG_MAX_RANKS ? inagg_all_ranks(record.size) : 0;
    const Stragglers stragglers{.expiry_us = event.expiry_us, .quorum = event.quorum, .exclude_ms = 0};
    if (!(event.ranks & inagg_rank_bit(event.rank)) || (event.ranks & ~all) || !is_available(record.algorithm) ||
        !has_good_shape(record, most_elements_here(event.family, record.algorithm, stragglers)) ||
        (record.flags & ~shape_flags) != INAGG_JOIN_TREE || why_not_added(policy_.limits, record) ||
        (record.flags & INAGG_JOIN_CHECKED && !policy_.limits.checks_payloads))
        return nullptr;
    return create(event.job, record, has_records(record) ? stragglers : Stragglers{}, outcome, now, event.generation);
}

// The parent is where its CONFIG came from.
void JobBook::point_uplink(JobState &job, const inagg_event &event) {
    inagg_uplink &up = job.uplink;
    up.ifindex = event.ifindex;
    up.family = event.family;
    up.position = job.round = position_of(event.job);
    std::copy_n(event.mac, sizeof up.mac, up.mac);
    std::copy_n(event.own_mac, sizeof up.own_mac, up.own_mac);
    std::copy_n(event.address, sizeof up.address, up.address);
}

// The parent's answer for a rank that was already here when the job lost another: nothing else has changed.
Outcome JobBook::settle(const inagg_event &event, JobState &job) {
    point_uplink(job, event);
    return {.verdict = Verdict::done, .detail = "has taken the job over", .changes = {{Kind::members, event.job, job.record}}};
}

// Another root may take what this one does not, but for a run that has ended.
Outcome JobBook::refused_by_next(const inagg_event &event, JobState &job, Time now) {
    const auto reason = static_cast<inagg_reason>(event.reason);
    const bool has_ended = reason == INAGG_R_REPLACED || reason == INAGG_R_JOB;
    Outcome outcome{.verdict = Verdict::done, .detail = reason_name(reason)};
    if (has_ended || !go_on_from(event.job, job, position_of(event.job) + 1u,
                                 fmt::format("{} refuses it: {}", sender_of(event).text(), reason_name(reason)), outcome, now))
        erase(event.job, outcome, reason, refuser_of(event));
    return outcome;
}

Outcome JobBook::refused_above(const inagg_event &event, Time now) {
    const auto reason = static_cast<inagg_reason>(event.reason);
    if (reason == INAGG_R_MOVED)
        return told_where(event, now);
    if (const auto job = jobs_.find(event.job); job != jobs_.end() && is_spread(job->second.record.algorithm))
        if (const auto up = up_index(event); up && is_run_of(job->second, event))
            return refused_by_one(*up, event, job->second, now);
    if (!from_parent(event))
        return ignored("not from the parent");
    auto asked = asked_.find({event.job, event.rank});
    if (asked != asked_.end() && asked->second.event.join.nonce == event.join.nonce) {
        Outcome outcome{.verdict = Verdict::done, .detail = "refused by the parent: " + reason_name(reason)};
        outcome.displaced.push_back(
            {event.job, event.rank, event.generation, member_of(asked->second.event), reason, refuser_of(event)});
        asked_.erase(asked);
        return outcome;
    }
    auto job = jobs_.find(event.job);
    const bool lost = reason == INAGG_R_JOB && !event.join.nonce; // to a parent that was restarted we are strangers
    if (job == jobs_.end() || event.generation != job->second.record.generation ||
        (!lost && job->second.members[event.rank & (INAGG_MAX_RANKS - 1)].nonce != event.join.nonce))
        return ignored("ends nothing here");
    if (is_moving(event.job, job->second))
        return refused_by_next(event, job->second, now);
    Outcome outcome{.verdict = Verdict::done, .detail = lost ? "the parent has lost the job" : "the parent has ended the job"};
    erase(event.job, outcome, reason, refuser_of(event));
    return outcome;
}

// A switch brings a job that has lost its root: this is the next, with the same generation and shape. It gets its slots
// as if it had forgotten them. Below another switch none is taken over, but what is known here may be said again (canary).
Outcome JobBook::adopt(const inagg_event &event, Time now) {
    const inagg_join &join = event.join;
    inagg_job record = new_record(join.algorithm, be16toh(join.size), be32toh(join.slots), be32toh(join.control_slots),
                                  be16toh(join.elements), (join.flags & shape_flags) | INAGG_JOIN_TREE);
    const bool spread = is_spread(record.algorithm);
    const auto known = jobs_.find(event.job);
    const bool repeats =
        spread && known != jobs_.end() && is_run_of(known->second, event) && same_job(known->second.record, record);
    if (policy_.server || (policy_.has_parent() && !repeats))
        return refused(INAGG_R_POLICY, "only a root that is a switch takes jobs over");
    if (!needs_no_root(record.algorithm))
        return refused(INAGG_R_ALGORITHM, fmt::format("jobs with {} stay at their root", algorithm_name(record.algorithm)));
    if (record.flags & INAGG_JOIN_CHECKED && !policy_.limits.checks_payloads)
        return refused(INAGG_R_POLICY, "the job has payload checksums, and this switch has none");
    if (const char *why_not = why_not_added(policy_.limits, record))
        return refused(INAGG_R_POLICY, why_not);
    if (!has_good_shape(record, most_elements_here(event.family, record.algorithm, {})))
        return refused(INAGG_R_FULL, fmt::format("{}+{} slots, {} elements per packet: not here", record.slots,
                                                 record.control_slots, record.elements));
    Outcome outcome;
    JobState *job = adopted(event, record, outcome, now);
    if (!job)
        return outcome;
    const inagg_member &member = job->members[event.rank];
    if (has_joined(member) && member.nonce != join.nonce && !(spread && same_place(member, event)))
        return refused(INAGG_R_TAKEN, fmt::format("rank is held by {}", Address::of(member).text()));
    if (has_joined(member) && member.nonce == join.nonce && same_place(member, event)) {
        go_forward(*job, event); // it has been around the list
        return ignored("has joined already");
    }
    if (!spread && cut_off_since(*job))
        return ignored("waits: there is no link to other ranks of the job");
    outcome.detail = fmt::format("taken over, generation {}", event.generation);
    outcome = seat(*job, event, std::move(outcome), now);
    if (!spread) // or tend() does, if ranks are lacking
        tell_where(event.job, *job, job->uplink.position, outcome);
    return outcome;
}

// The job that an adopted one is to be here; null: it is refused.
JobState *JobBook::adopted(const inagg_event &event, const inagg_job &record, Outcome &outcome, Time now) {
    auto found = jobs_.find(event.job);
    if (found != jobs_.end() && !found->second.record.keep && idle(found->second, now) &&
        found->second.record.generation != event.generation) {
        erase(event.job, outcome, INAGG_R_REPLACED);
        found = jobs_.end();
    }
    if (found == jobs_.end()) {
        JobState *job = create(event.job, record, {}, outcome, now, event.generation);
        if (!job)
            outcome = refused(INAGG_R_FULL, "no room for a job of the switches below", std::move(outcome));
        else
            job->runs = is_spread(record.algorithm);
        return job;
    }
    JobState &job = found->second;
    const bool is_free = !joined_count(job.members); // configured, and nobody has come
    if (is_spread(record.algorithm) && !is_free)
        return replace(event, job, record, outcome, now);
    if (!same_job(job.record, record) || (!is_free && job.record.generation != event.generation)) {
        outcome = refused(INAGG_R_REPLACED, "another run of this number's job is here");
        return nullptr;
    }
    if (job.record.generation != event.generation) {
        job.record.generation = generations_[event.job] = event.generation;
        outcome.changes.push_back({Kind::renew, event.job, job.record});
    }
    job.runs = is_spread(record.algorithm);
    return &job;
}

// A job whose switches say in which generation it runs. One that has not begun here takes that: its ranks
// have asked here, too. One that runs here goes if the rank's own switch says that it runs another.
bool JobBook::gives_way(const JobState &job, const inagg_event &event) const {
    return !job.runs || same_place(job.members[event.rank], event);
}

JobState *JobBook::replace(const inagg_event &event, JobState &job, const inagg_job &record, Outcome &outcome, Time now) {
    const bool same = same_job(job.record, record);
    if (same && job.record.generation == event.generation) {
        job.runs = true;
        return &job;
    }
    if (!gives_way(job, event) || (job.record.keep && !same)) {
        outcome = refused(INAGG_R_TAKEN, "another run of this number's job is here");
        return nullptr;
    }
    if (!same) {
        drop(event.job, job, outcome);
        return adopted(event, record, outcome, now);
    }
    if (job.runs)
        forget_run(job.members);
    job.runs = true;
    job.uplink.position = job.gone_to = 0;
    job.record.generation = generations_[event.job] = event.generation;
    outcome.changes.push_back({Kind::renew, event.job, job.record});
    return &job;
}

// No such job yet.
Outcome JobBook::join_new(const inagg_event &event, Outcome so_far, Time now) {
    Request want = request_of(event);
    if (!policy_.auto_jobs)
        return refused(INAGG_R_POLICY, "no such job, and --no-auto-jobs is set", std::move(so_far));
    uint16_t fits = most_elements_here(event.family, want.algorithm, want.stragglers);
    uint16_t elements = std::min<uint16_t>(want.elements - want.elements % INAGG_CHUNK, fits);
    if (elements == 0)
        return refused(INAGG_R_MTU, fmt::format("{} elements per packet: less than one chunk", want.elements), std::move(so_far));
    if (std::optional<Outcome> no = beyond_port(event, so_far, now))
        return *no;
    inagg_job record =
        new_record(want.algorithm, want.size, usual_slots(want.algorithm, slots_on_the_way(event, elements)), policy_.job_control,
                   elements, flags_of(want.algorithm, event.join.flags & INAGG_JOIN_CHECKED, is_big_endian(event)));
    record.blocks = blocks_here(event.family, record);
    JobState *job = create(event.job, record, want.stragglers, so_far, now);
    if (!job)
        return refused(INAGG_R_FULL, what_is_full(record), std::move(so_far));
    return seat(*job, event, std::move(so_far), now);
}

// Why create() had no room.
std::string JobBook::what_is_full(const inagg_job &record) const {
    if (free_index(record) && free_slots(record))
        return fmt::format(
            "too few of {} buffers would be left for a block of each job's floats; remove jobs or start inaggd with more "
            "--buffers",
            policy_.buffers);
    return fmt::format("{} of {} job numbers in use, {} slots wanted in a row of {}; remove jobs or start {}", jobs_.size(),
                       INAGG_MAX_JOBS, pool_slots(record), pool_of(record),
                       policy_.server ? "inagg-ps with more --memory" : "inaggd with more --slots");
}

// The rank's seat is free.
Outcome JobBook::join_empty(JobState &job, const inagg_event &event, Time now) {
    Request want = request_of(event);
    const inagg_member &member = job.members[event.rank];
    if (member.flags & INAGG_MEMBER_RESERVED) {
        if (member.ifindex != event.ifindex)
            return refused(INAGG_R_PORT, "rank is configured for another port");
        if (!same_place(member, event))
            return refused(INAGG_R_ADDRESS, "rank is configured for " + Address::of(member).text());
    }
    if (!job.record.keep && idle(job, now) && joined_count(job.members)) {
        Outcome outcome;
        erase(event.job, outcome, INAGG_R_REPLACED);
        return join_new(event, std::move(outcome), now);
    }
    if (want.size != job.record.size)
        return refuse_late(event, INAGG_R_SIZE, fmt::format("job has {} ranks, not {}", job.record.size, want.size), now);
    if (!same_algorithm(job, want))
        return refuse_late(event, INAGG_R_ALGORITHM, other_algorithm(job, want), now);
    if (const uint8_t family = other_family(job, event); family && !policy_.server)
        return refuse_late(event, INAGG_R_ADDRESS,
                           fmt::format("it uses IPv{}, and others of the job IPv{}: give all ranks addresses of one family",
                                       event.family, family),
                           now);
    if (want.elements < job.record.elements)
        return refuse_late(
            event, INAGG_R_MTU,
            fmt::format("job has {} elements per packet, this rank's MTU allows {}", job.record.elements, want.elements), now);
    if (member.flags & INAGG_MEMBER_LEFT) {
        // The next run's rank, while others still finish this one.
        if (!waited(event, now, patience))
            return ignored("waits for the ranks of the last run to leave");
        return restart_for(job, event, {}, now);
    }
    for (const inagg_member &other : job.members)
        if (has_joined(other) && !from_switch(event) && Address::of(other) == sender_of(event) &&
            other.receive_port == event.join.receive_port)
            return refuse_late(event, INAGG_R_TAKEN, "another rank of the job has this receive port", now);
    return seat(job, event, {}, now);
}

// A member's own JOIN, perhaps from where it is now; nothing: it is another's. What a member is refused ends it.
std::optional<Outcome> JobBook::joins_again(JobState &job, const inagg_event &event, Time now) {
    const inagg_member &member = job.members[event.rank];
    if (!has_joined(member) || member.nonce != event.join.nonce || Address::of(member) != sender_of(event))
        return std::nullopt;
    if (is_at(member, event))
        return ignored("has joined already");
    if (!(member.flags & INAGG_MEMBER_RESERVED) || member.ifindex == event.ifindex)
        return seat(job, event, {.detail = "moved"}, now);
    constexpr const char *why = "rank is configured for another port";
    return event.hdr.boot ? ignored(why) : refused(INAGG_R_PORT, why);
}

// Somebody is this rank already.
Outcome JobBook::join_held(JobState &job, const inagg_event &event, Time now) {
    inagg_member &member = job.members[event.rank];
    if (std::optional<Outcome> again = joins_again(job, event, now))
        return *again;
    if (same_place(member, event) && member.nonce != event.join.nonce) {
        if (event.join.flags & INAGG_JOIN_RENEW && event.generation == job.record.generation)
            return come(job, event, INAGG_R_NONE, now);
        // One rank's restart need not end the others' calls, nor need it wait if all of them have restarted.
        const auto patience_with_ranks = std::chrono::milliseconds(job.stragglers.exclude_ms);
        if (job.stragglers.exclude_ms && !waited(event, now, patience_with_ranks + patience))
            return come(job, event, INAGG_R_NONE, now);
        return restart_for(job, event, {}, now);
    }
    if (!job.record.keep && idle(job, now)) {
        Outcome outcome;
        erase(event.job, outcome, INAGG_R_REPLACED);
        return join_new(event, std::move(outcome), now);
    }
    const bool may_begin_anew = begins_anew(job, event), is_silent = now - job.heard >= patience;
    if ((idle(job, now) && !(member.flags & INAGG_MEMBER_RESERVED)) || (may_begin_anew && is_silent))
        return restart_for(job, event, {}, now);
    if (may_begin_anew && !waited(event, now, 2 * patience)) // what is heard may be told up to a second later
        return ignored("waits: the job may still run");
    return refuse_late(event, INAGG_R_TAKEN, fmt::format("rank is held by {}", Address::of(member).text()), now);
}

// Does a host that has a rank of a complete job ask for another host's? If the job says nothing any more, all its ranks have been
// started anew, with other numbers. As a host may restart its job by asking for its own rank, this gives it nothing that it has
// not. A switch has many hosts behind it, so from there it says nothing; and a job that excludes ranks knows who is silent.
bool JobBook::begins_anew(const JobState &job, const inagg_event &event) {
    const auto is_its_own = [&](const inagg_member &member) { return has_joined(member) && same_place(member, event); };
    return !from_switch(event) && !job.stragglers.exclude_ms && !(job.members[event.rank].flags & INAGG_MEMBER_RESERVED) &&
           joined_count(job.members) == job.record.size && std::ranges::any_of(job.members, is_its_own);
}

// Whoever was excluded is so for this generation.
Outcome JobBook::join_excluded(JobState &job, const inagg_event &event, Time now) {
    const Request want = request_of(event);
    const inagg_member &member = job.members[event.rank];
    if (has_joined(member) && member.nonce == event.join.nonce)
        return refused(INAGG_R_EXCLUDED, "it is its former self");
    if (want.size != job.record.size)
        return refused(INAGG_R_SIZE, fmt::format("job has {} ranks, not {}", job.record.size, want.size));
    if (!same_algorithm(job, want))
        return refused(INAGG_R_ALGORITHM, other_algorithm(job, want));
    if (want.elements < job.record.elements)
        return refused(INAGG_R_MTU, fmt::format("job has {} elements per packet, not {}", job.record.elements, want.elements));
    if (member.flags & INAGG_MEMBER_RESERVED && !same_place(member, event))
        return refused(member.ifindex != event.ifindex ? INAGG_R_PORT : INAGG_R_ADDRESS,
                       "rank is configured for another port or address");
    if (has_joined(member) && !same_place(member, event))
        return refused(INAGG_R_TAKEN, fmt::format("rank is held by {}, which may come back", Address::of(member).text()));
    return come(job, event, INAGG_R_EXCLUDED, now);
}

// The rank wants to be in the next generation, which begins when all that this one waits for do.
Outcome JobBook::come(JobState &job, const inagg_event &event, inagg_reason until_then, Time now) {
    const bool is_new = job.coming.insert_or_assign(event.rank, JobState::Coming{event, now}).second;
    if (all_come(job))
        return go_on(event.job, job, now);
    Outcome outcome{.verdict = Verdict::put_off, .reason = until_then};
    outcome.detail = is_new ? "waits for the next generation" : "";
    announce_returning(event.job, job, outcome);
    return outcome;
}

// Ranks that go on together, or that have all been started again; not some of each, since they do not make the same
// calls.
bool JobBook::all_come(const JobState &job) const {
    bool any_renews = false, any_restarts = false;
    const uint64_t ranks = present_ranks(job);
    for (uint16_t rank = 0; rank < job.record.size; rank++) {
        if (!(ranks & inagg_rank_bit(rank)))
            continue;
        const auto found = job.coming.find(rank);
        if (found == job.coming.end())
            return false;
        (found->second.event.join.flags & INAGG_JOIN_RENEW ? any_renews : any_restarts) = true;
    }
    return any_renews != any_restarts;
}

// The next generation, with all who want to be in it.
Outcome JobBook::go_on(uint16_t number, JobState &job, Time now) {
    Outcome outcome{.verdict = Verdict::done};
    const auto coming = std::exchange(job.coming, {});
    const Members before = job.members;
    const bool restarts = std::none_of(coming.begin(), coming.end(),
                                       [](const auto &who) { return who.second.event.join.flags & INAGG_JOIN_RENEW; });
    uint64_t in = restarts ? inagg_all_ranks(job.record.size) : present_ranks(job); // as all_come(): not who has left
    for (const auto &[rank, who] : coming)
        in |= inagg_rank_bit(rank);
    forget_run(job.members);
    for (uint16_t rank = 0; rank < job.record.size; rank++)
        if (!(in & inagg_rank_bit(rank)))
            job.members[rank] = before[rank]; // so that it is told, should it wake up
        else if (has_joined(before[rank]))
            retire(before[rank].nonce);
    outcome.detail = fmt::format("the job goes on in its next generation, {} of {} ranks excluded",
                                 job.record.size - inagg_count_ranks(in), job.record.size);
    job.record.all = in;
    job.record.flags &= static_cast<uint8_t>(~INAGG_JOIN_RETURNING);
    job.record.generation = next_generation(number);
    for (const auto &[rank, who] : coming)
        seat_member(job, who.event, now);
    outcome.changes.push_back({Kind::renew, number, job.record});
    return outcome;
}

// CONFIG says whether somebody waits to be taken back.
void JobBook::announce_returning(uint16_t number, JobState &job, Outcome &outcome) {
    const bool returning = std::any_of(job.coming.begin(), job.coming.end(),
                                       [&](const auto &who) { return inagg_job_excludes(&job.record, who.first); });
    const auto flags = static_cast<uint8_t>((job.record.flags & ~INAGG_JOIN_RETURNING) | (returning ? INAGG_JOIN_RETURNING : 0));
    if (flags == job.record.flags)
        return;
    job.record.flags = flags;
    outcome.changes.push_back({Kind::state, number, job.record});
}

Outcome JobBook::exclude(uint16_t number, uint64_t ranks, Time now) {
    JobState &job = jobs_.at(number);
    Outcome outcome{.verdict = Verdict::done};
    if (!(present_ranks(job) & ~ranks))
        return ignored("nobody would remain");
    for (uint16_t rank = 0; rank < job.record.size; rank++)
        if (const inagg_member &member = job.members[rank]; ranks & job.record.all & inagg_rank_bit(rank) && has_joined(member))
            outcome.displaced.push_back({number, rank, job.record.generation, member, INAGG_R_EXCLUDED});
    job.record.all &= ~ranks;
    std::erase_if(job.coming, [&](const auto &who) { // it has gone on with the others: its calls are lost with it
        return ranks & inagg_rank_bit(who.first) && who.second.event.join.flags & INAGG_JOIN_RENEW;
    });
    outcome.changes.push_back({Kind::state, number, job.record});
    if (all_come(job)) {
        Outcome next = go_on(number, job, now);
        outcome.changes.insert(outcome.changes.end(), next.changes.begin(), next.changes.end());
    } else {
        announce_returning(number, job, outcome);
    }
    return outcome;
}

Outcome JobBook::forget_returning(Time now) {
    Outcome outcome{.verdict = Verdict::done};
    for (auto &[number, job] : jobs_) {
        std::erase_if(job.coming, [&](const auto &who) { return now - who.second.heard > patience; });
        announce_returning(number, job, outcome);
    }
    return outcome;
}

// A new run of the same job begins with this rank.
Outcome JobBook::restart_for(JobState &job, const inagg_event &event, Outcome so_far, Time now) {
    Request want = request_of(event);
    bool fits = want.size == job.record.size && want.elements >= job.record.elements && same_algorithm(job, want);
    if (!fits && !job.record.keep) {
        erase(event.job, so_far, INAGG_R_REPLACED);
        return join_new(event, std::move(so_far), now);
    }
    if (want.size != job.record.size)
        return refused(INAGG_R_SIZE, fmt::format("job is configured for {} ranks, not {}", job.record.size, want.size));
    if (!same_algorithm(job, want))
        return refused(INAGG_R_ALGORITHM, other_algorithm(job, want));
    if (!fits)
        return refused(INAGG_R_MTU,
                       fmt::format("job is configured for {} elements per packet, not {}", job.record.elements, want.elements));
    renew(event.job, job, so_far);
    so_far.detail = "a new run restarts the job";
    return seat(job, event, std::move(so_far), now);
}

// At a root: it is what the job's ranks know at this position.
void JobBook::go_forward(JobState &job, const inagg_event &event) const {
    if (!policy_.has_parent() && from_switch(event))
        job.uplink.position = std::max(job.uplink.position, be16toh(event.join.position));
}

void JobBook::seat_member(JobState &job, const inagg_event &event, Time now) {
    inagg_member &member = job.members[event.rank];
    uint8_t reserved = member.flags & INAGG_MEMBER_RESERVED;
    member = member_of(event);
    member.flags |= reserved;
    go_forward(job, event);
    job.heard = job.seated = job.announced = now;
    job.runs |= is_spread(job.record.algorithm) && !missing_count(job);
    waiters_[event.ifindex].erase(waiter_of(event));
}

Outcome JobBook::seat(JobState &job, const inagg_event &event, Outcome so_far, Time now) {
    seat_member(job, event, now);
    so_far.verdict = Verdict::done;
    so_far.changes.push_back({Kind::members, event.job, job.record});
    return so_far;
}

// Refuses what a restart of the job may still cure only after a while.
Outcome JobBook::refuse_late(const inagg_event &event, inagg_reason reason, std::string detail, Time now) {
    if (!waited(event, now, patience))
        return ignored("waits: " + detail);
    return refused(reason, std::move(detail));
}

Outcome JobBook::leave(const inagg_event &event, Time now) {
    auto found = jobs_.find(event.job);
    if (found == jobs_.end() || event.rank >= INAGG_MAX_RANKS)
        return ignored("no such job or rank");
    JobState &job = found->second;
    const inagg_member &member = job.members[event.rank];
    if (member.flags & INAGG_MEMBER_STATIC)
        return ignored("the member is configured in the maps");
    const bool from_child = !policy_.has_parent() && is_move(event) && policy_.children.contains(neighbour_of(event));
    if (from_child && event.generation == job.record.generation)
        job.gone_to = std::max(job.gone_to, be16toh(event.join.position));
    const bool moves = from_child && member.flags & INAGG_MEMBER_SWITCH;
    if (event.generation != job.record.generation && !moves)
        return ignored("leaves another generation");
    if (!has_joined(member) || member.nonce != event.join.nonce || !same_place(member, event))
        return ignored("not from the rank's own port, address and nonce");
    Outcome outcome{.verdict = Verdict::done};
    job.heard = now;
    if (policy_.has_parent()) {
        outcome.verdict = Verdict::asked;
        if (!is_spread(job.record.algorithm)) // all parents are told as the rank goes
            outcome.messages.push_back(passed_on(event));
    }
    if (moves) {
        job.seated = now; // the others have time to follow it
        desert(event.job, job, event.rank, outcome);
    } else {
        vacate(event.job, job, event.rank, outcome);
    }
    return outcome;
}

// The rank goes on at another root, and might come back.
void JobBook::desert(uint16_t number, JobState &job, uint32_t rank, Outcome &outcome) {
    empty_seat(job.members[rank]);
    close_if_empty(number, job, outcome);
}

// The rank's seat becomes free; with the last one the run ends.
void JobBook::vacate(uint16_t number, JobState &job, uint32_t rank, Outcome &outcome) {
    inagg_member &member = job.members[rank];
    take_leave(number, job, static_cast<uint16_t>(rank), outcome);
    retire(member.nonce);
    empty_seat(member);
    member.flags |= INAGG_MEMBER_LEFT;
    job.coming.erase(static_cast<uint16_t>(rank));
    close_if_empty(number, job, outcome);
}

void JobBook::close_if_empty(uint16_t number, JobState &job, Outcome &outcome) {
    if (present_ranks(job))
        outcome.changes.push_back({Kind::members, number, job.record});
    else if (job.record.keep)
        renew(number, job, outcome);
    else
        erase(number, outcome);
}

Outcome JobBook::add(const JobSpec &spec, const std::function<uint32_t(const std::string &)> &port_index, Time now) {
    const uint16_t most = most_elements_here(4, spec.algorithm, spec.stragglers);
    const auto found = jobs_.find(spec.number);
    // What the specification leaves open stays as it is: the MTU, or a default, may be another now.
    inagg_job otherwise{};
    otherwise.slots = policy_.job_slots;
    otherwise.control_slots = policy_.job_control;
    otherwise.elements = most_elements_here(6, spec.algorithm, spec.stragglers);
    if (found != jobs_.end() && found->second.record.keep)
        otherwise = found->second.record;
    const uint16_t elements = spec.elements ? spec.elements : otherwise.elements;
    inagg_job record = new_record(spec.algorithm, spec.size, spec.slots ? spec.slots : otherwise.slots,
                                  spec.control ? spec.control : otherwise.control_slots, elements,
                                  flags_of(spec.algorithm, spec.checked, policy_.limits.big_endian));
    if (policy_.has_parent())
        throw Error("job {}: jobs of this switch are its parent's; configure it at the root", spec.number);
    if (spec.stragglers.exclude_ms && !policy_.limits.excludes)
        throw Error("job {}: this switch excludes no ranks; leave out 'exclude-after'", spec.number);
    if (policy_.in_tree() && spec.stragglers.exclude_ms)
        throw Error("job {}: no rank is excluded in a tree of switches", spec.number);
    if (const std::string why = objection(policy_, spec.algorithm); !why.empty())
        throw Error("job {}: {}", spec.number, why);
    if (spec.size > policy_.limits.ranks)
        throw Error("job {}: size={}: this switch has no jobs of more than {} ranks", spec.number, spec.size,
                    policy_.limits.ranks);
    if (spec.checked && !policy_.limits.checks_payloads)
        throw Error("job {}: this switch has no payload checksums; leave out 'checked'", spec.number);
    record.keep = 1;
    Members members{};
    for (const MemberSpec &member : spec.members) {
        inagg_member &row = members[member.rank];
        row.ifindex = port_index(member.port);
        row.family = member.address.family;
        row.flags = INAGG_MEMBER_RESERVED;
        std::copy(member.address.bytes.begin(), member.address.bytes.end(), row.address);
    }
    if (found != jobs_.end() && found->second.record.keep && same_job(found->second.record, record) &&
        found->second.stragglers == spec.stragglers && same_reservations(found->second.members, members))
        return reserve_again(spec.number, found->second, members);
    if (found != jobs_.end())
        throw Error("job {} exists with another configuration; remove it first: inaggctl job del {}", spec.number, spec.number);
    if (elements > policy_.limits.elements)
        throw Error("job {}: elements={} are more than this switch takes; the most is {}", spec.number, elements, most);
    if (elements == 0 || elements > most)
        throw Error("job {}: elements={} do not fit the ports' MTU of {}{}; the most is {}", spec.number, elements, policy_.mtu,
                    spec.stragglers.expiry_us ? ", or what an expiry leaves room for" : "", most);
    const uint8_t wanted = spec.elements ? 1 : INAGG_MAX_BLOCKS; // who says how long packets are knows why
    record.blocks = std::min(spec.blocks ? spec.blocks : wanted, blocks_here(6, record));

    Outcome outcome{.verdict = Verdict::done};
    JobState *job = create(spec.number, record, spec.stragglers, outcome, now);
    if (!job)
        throw Error("job {}: no room: {}", spec.number, what_is_full(record));
    job->members = members;
    return outcome;
}

// A port that has been made anew has another number.
Outcome JobBook::reserve_again(uint16_t number, JobState &job, const Members &members) {
    Outcome outcome = ignored("runs already as configured");
    for (uint32_t rank = 0; rank < INAGG_MAX_RANKS; rank++)
        if (inagg_member &row = job.members[rank]; row.flags & INAGG_MEMBER_RESERVED && row.ifindex != members[rank].ifindex) {
            row.ifindex = members[rank].ifindex;
            outcome = {.verdict = Verdict::done, .changes = {{Kind::members, number, job.record}}};
        }
    return outcome;
}

Outcome JobBook::remove(uint16_t number) {
    if (!jobs_.contains(number))
        throw Error("job {}: no such job on this switch (inaggctl job list)", number);
    Outcome outcome{.verdict = Verdict::done};
    erase(number, outcome);
    return outcome;
}

// Does the rank go with the port? Where its switch has other links it may go on.
bool JobBook::goes_with(const JobState &job, const inagg_member &member, uint32_t ifindex) const {
    const bool may_move = needs_no_root(job.record.algorithm);
    if (member.ifindex == ifindex)
        return !may_move || policy_.has_parent() || !(member.flags & INAGG_MEMBER_SWITCH);
    return job.uplink.ifindex == ifindex && !may_move;
}

Outcome JobBook::port_gone(uint32_t ifindex) {
    Outcome outcome{.verdict = Verdict::done};
    waiters_.erase(ifindex);
    std::vector<std::pair<uint16_t, uint32_t>> gone;
    for (const auto &[number, job] : jobs_)
        for (uint32_t rank = 0; rank < INAGG_MAX_RANKS; rank++)
            if (has_joined(job.members[rank]) && goes_with(job, job.members[rank], ifindex))
                gone.emplace_back(number, rank);
    for (auto [number, rank] : gone)
        if (auto job = jobs_.find(number); job != jobs_.end() && has_joined(job->second.members[rank]))
            vacate(number, job->second, rank, outcome);
    return outcome;
}

Outcome JobBook::port_made_anew(uint32_t before, uint32_t ifindex) {
    Outcome outcome{.verdict = Verdict::done};
    for (auto &[number, job] : jobs_)
        for (inagg_member &member : job.members)
            if (member.flags & INAGG_MEMBER_RESERVED && member.ifindex == before) {
                member.ifindex = ifindex;
                outcome.changes.push_back({Kind::members, number, job.record});
            }
    return outcome;
}

Outcome JobBook::expire(Time now) {
    Outcome outcome{.verdict = Verdict::done};
    std::erase_if(asked_, [&](const auto &asked) { return now - asked.second.at > 10 * patience; });
    std::erase_if(wanted_, [&](const auto &wish) { return now - wish.second > policy_.join; }); // the parent's, presumably
    std::erase_if(positions_, [&](const auto &place) { return !jobs_.contains(place.first) && !is_asked_for(place.first); });
    std::vector<uint16_t> late, abandoned;
    for (const auto &[number, job] : jobs_)
        if (job.runs && !policy_.has_parent()) {
            if (is_abandoned(job, now))
                abandoned.push_back(number);
        } else if (forming(job) && now - job.seated > policy_.join) {
            late.push_back(number);
        }
    for (uint16_t number : late) {
        outcome.notes.push_back(fmt::format("job {}: no further rank of its {} has joined for {} s (--join-timeout)", number,
                                            jobs_.at(number).record.size, policy_.join.count()));
        erase(number, outcome);
    }
    for (uint16_t number : abandoned)
        drop(number, jobs_.at(number), outcome);
    return outcome;
}

// Why the port's ranks get no further job, if so. What comes from a switch below is of many, and that switch has its own limits.
std::optional<Outcome> JobBook::beyond_port(const inagg_event &event, Outcome &so_far, Time now) {
    const auto is_alone = [&](const JobState &job) { return is_alone_behind(event, job); };
    const char *whose = policy_.server ? "of this host" : "behind this port", *options = policy_.server ? "--host" : "--port";
    if (policy_.children.contains(neighbour_of(event)))
        return std::nullopt;
    if (forming_behind(event) >= policy_.port_forming)
        return refused(
            INAGG_R_FORMING,
            fmt::format("{} jobs with ranks {} wait for more ranks ({}-forming)", policy_.port_forming, whose, options),
            std::move(so_far));
    while (std::ranges::count_if(jobs_, is_alone, &std::pair<const uint16_t, JobState>::second) >= policy_.port_jobs)
        if (!erase_idle(is_alone, so_far, now))
            return refused(INAGG_R_FULL,
                           fmt::format("all ranks of {} jobs are {} ({}-jobs); remove some", policy_.port_jobs, whose, options),
                           std::move(so_far));
    return std::nullopt;
}

// At a server, which has one way to all, a host's address stands for a port.
bool JobBook::is_behind(const inagg_member &member, const inagg_event &event) const {
    return policy_.server ? same_place(member, event) : member.ifindex == event.ifindex;
}

// Other jobs. With a parent they come into being when all ranks are there: until then they are what the port has asked for,
// whatever the parent has said of that, since it may have said something else before.
size_t JobBook::forming_behind(const inagg_event &event) const {
    const auto behind = [&](const inagg_member &member) { return has_joined(member) && is_behind(member, event); };
    std::set<uint16_t> waiting;
    for (const auto &[number, job] : jobs_)
        if (forming(job) && std::any_of(job.members.begin(), job.members.end(), behind))
            waiting.insert(number);
    for (const auto &[wish, at] : wanted_)
        if (wish.first == event.ifindex && !jobs_.contains(wish.second))
            waiting.insert(wish.second);
    waiting.erase(event.job);
    return waiting.size();
}

// Of a job that has ranks behind other switches, this one does not know behind how many ports they are.
bool JobBook::is_alone_behind(const inagg_event &event, const JobState &job) const {
    const auto is_elsewhere = [&](const inagg_member &member) { return has_joined(member) && !is_behind(member, event); };
    const bool is_here = !policy_.has_parent() || job.record.all == inagg_all_ranks(job.record.size);
    return is_here && !job.record.keep && std::ranges::none_of(job.members, is_elsewhere);
}

void JobBook::heard(uint16_t number, Time now) {
    if (auto job = jobs_.find(number); job != jobs_.end())
        job->second.heard = now;
}

// The parents of a spread job are told anyway, and those of one that moves do not know it yet.
Outcome JobBook::announced(uint16_t number, Time now) {
    Outcome outcome{.verdict = Verdict::asked};
    const auto found = jobs_.find(number);
    if (found == jobs_.end())
        return outcome;
    JobState &job = found->second;
    job.announced = job.heard = now;
    if (policy_.has_parent() && !is_spread(job.record.algorithm) && !is_moving(number, job))
        for (uint16_t rank = 0; rank < job.record.size && outcome.messages.empty(); rank++)
            if (has_joined(job.members[rank]))
                outcome.messages.push_back(repeated_join(number, job, rank));
    return outcome;
}

JobState *JobBook::create(uint16_t number, inagg_job record, Stragglers stragglers, Outcome &outcome, Time now,
                          std::optional<uint16_t> generation) {
    if (!make_room(record, outcome, now))
        return nullptr;
    record.index = *free_index(record);
    record.first_slot = *free_slots(record);
    record.generation = generations_[number] = generation ? *generation : next_generation(number);
    if (stragglers != Stragglers{} && !policy_.in_tree() && policy_.limits.excludes)
        record.flags |= INAGG_JOIN_WATCHED | (stragglers.exclude_ms ? INAGG_JOIN_RENEW : 0);
    outcome.changes.push_back({Kind::renew, number, record});
    return &(jobs_[number] = {.record = record, .stragglers = stragglers, .members = {}, .heard = now, .seated = now});
}

bool JobBook::make_room(const inagg_job &record, Outcome &outcome, Time now) {
    while (!free_index(record) || !free_slots(record) || !has_buffers(record))
        if (!erase_idle([](const JobState &) { return true; }, outcome, now))
            return false;
    return true;
}

// Of those that may go, the job that nobody has used for the longest time, if that is long. False: there is none.
bool JobBook::erase_idle(const std::function<bool(const JobState &)> &may_go, Outcome &outcome, Time now) {
    auto oldest = jobs_.end();
    for (auto job = jobs_.begin(); job != jobs_.end(); ++job)
        if (!job->second.record.keep && idle(job->second, now) && may_go(job->second) &&
            (oldest == jobs_.end() || job->second.heard < oldest->second.heard))
            oldest = job;
    if (oldest == jobs_.end())
        return false;
    erase(oldest->first, outcome);
    return true;
}

void JobBook::erase(uint16_t number, Outcome &outcome, inagg_reason reason, const Address &above) {
    auto job = jobs_.find(number);
    const inagg_job &record = job->second.record;
    for (uint16_t rank = 0; rank < INAGG_MAX_RANKS; rank++)
        if (const inagg_member &member = job->second.members[rank]; has_joined(member)) {
            take_leave(number, job->second, rank, outcome);
            retire(member.nonce);
            outcome.displaced.push_back({number, rank, record.generation, member, reason, above});
        }
    outcome.changes.push_back({Kind::remove, number, record});
    jobs_.erase(job);
}

void JobBook::renew(uint16_t number, JobState &job, Outcome &outcome, inagg_reason reason) {
    for (uint16_t rank = 0; rank < INAGG_MAX_RANKS; rank++)
        if (const inagg_member &member = job.members[rank]; has_joined(member)) {
            retire(member.nonce);
            outcome.displaced.push_back({number, rank, job.record.generation, member, reason});
        }
    forget_run(job.members);
    job.coming.clear();
    job.uplink.position = job.gone_to = 0; // switches say where they have looked
    job.runs = false;
    job.record.all = inagg_all_ranks(job.record.size);
    job.record.flags &= static_cast<uint8_t>(~INAGG_JOIN_RETURNING);
    job.record.generation = next_generation(number);
    outcome.changes.push_back({Kind::renew, number, job.record});
}

// For a job that gets a share of what some jobs divide, one that fewest of them have: it goes by the row.
std::optional<uint32_t> JobBook::free_index(const inagg_job &record) const {
    std::bitset<INAGG_MAX_JOBS> taken;
    std::array<uint32_t, INAGG_MAX_JOBS> sharers{}; // by share
    for (const auto &[number, job] : jobs_) {
        taken.set(job.record.index);
        sharers[job.record.index % policy_.shares] += shares_slots(job.record);
    }
    std::optional<uint32_t> best;
    for (uint32_t index = 0; index < INAGG_MAX_JOBS; index++)
        if (!taken[index] &&
            (!best || (shares_slots(record) && sharers[index % policy_.shares] < sharers[*best % policy_.shares])))
            best = index;
    return best;
}

// With a server behind this switch, the job's slots are there.
bool JobBook::needs_no_slots(const inagg_job &record) const {
    return shares_slots(record) && !has_descriptors(record) && policy_.has_parent();
}

// Slots with memory of their own, slots that are only numbers, and with canary the places of each share of the descriptors.
bool JobBook::in_one_pool(const inagg_job &a, const inagg_job &b) const {
    if (has_descriptors(a) && has_descriptors(b))
        return a.index % policy_.shares == b.index % policy_.shares;
    return has_descriptors(a) == has_descriptors(b) && has_records(a) == has_records(b);
}

uint32_t JobBook::slots_used() const {
    uint32_t used = 0;
    for (const auto &[number, job] : jobs_)
        used += has_records(job.record) || has_descriptors(job.record) || needs_no_slots(job.record) ? 0 : pool_slots(job.record);
    return used;
}

// Apart from those of other jobs in the pool. Behind the last descriptor places begin again at the first.
std::optional<uint32_t> JobBook::free_slots(const inagg_job &record) const {
    std::vector<SlotRange> taken;
    if (needs_no_slots(record))
        return 0;
    uint32_t listed = pool_slots(record);
    for (const auto &[number, job] : jobs_)
        listed += pool_slots(job.record);
    if (policy_.limits.lists_slots && listed > policy_.slots)
        return {};
    for (const auto &[number, job] : jobs_)
        if (in_one_pool(job.record, record) && !needs_no_slots(job.record))
            taken.push_back({job.record.first_slot, pool_slots(job.record)});
    return first_fit(std::move(taken), pool_slots(record), has_descriptors(record) ? UINT32_MAX : pool_of(record));
}

// One block at least, for each job that needs buffers; how many children the new one has here is not known yet.
bool JobBook::has_buffers(const inagg_job &record) const {
    if (!inagg_job_adds_floats(&record) || inagg_merge_buffers(inagg_count_ranks(record.all)) == 1)
        return true;
    uint32_t jobs = 1, widest = inagg_count_ranks(record.all);
    for (const auto &[number, job] : jobs_)
        if (needs_buffers(job)) {
            jobs++;
            widest = std::max<uint32_t>(widest, children_of(job));
        }
    return window_cap(policy_.buffers, jobs, widest);
}

uint32_t JobBook::pool_of(const inagg_job &record) const { return has_records(record) ? policy_.floors : policy_.slots; }

uint16_t JobBook::next_generation(uint16_t number) {
    auto [last, is_new] = generations_.try_emplace(number, 0);
    last->second = is_new ? random_() : static_cast<uint16_t>(last->second + 1);
    return last->second;
}

bool JobBook::waited(const inagg_event &event, Time now, std::chrono::milliseconds long_enough) {
    auto &waiters = waiters_[event.ifindex];
    if (waiters.size() >= waiters_capacity)
        std::erase_if(waiters, [&](const auto &waiter) { return now - waiter.second > 10 * patience; });
    if (waiters.size() >= waiters_capacity && !waiters.contains(waiter_of(event)))
        forget_waiter(waiters);
    auto [since, is_new] = waiters.try_emplace(waiter_of(event), now);
    return now - since->second >= long_enough;
}

// A flood of joins for one job does not end the patience with those for others, and of its own the oldest stay.
void JobBook::forget_waiter(Waiters &waiters) {
    const auto job_of = [](const Waiters::value_type &waiter) { return std::get<0>(waiter.first); };
    std::map<uint16_t, size_t> count;
    for (const auto &waiter : waiters)
        count[job_of(waiter)]++;
    const auto most = std::ranges::max_element(count, {}, [](const auto &entry) { return entry.second; });
    const auto rank = [&](const auto &waiter) { return std::pair(job_of(waiter) == most->first, waiter.second); };
    waiters.erase(std::ranges::max_element(waiters, {}, rank));
}

void JobBook::retire(uint64_t nonce) {
    retired_.push_back(nonce);
    if (retired_.size() > retired_capacity)
        retired_.pop_front();
}

bool JobBook::retired(uint64_t nonce) const { return std::find(retired_.begin(), retired_.end(), nonce) != retired_.end(); }

} // namespace inaggd
