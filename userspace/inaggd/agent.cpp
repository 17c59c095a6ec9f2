// SPDX-License-Identifier: BSD-2-Clause
#include "agent.hpp"

#include "common/log.hpp"
#include "error.hpp"
#include "messages.hpp"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <inagg/core/checksum.h>
#include <net/if.h>
#include <netinet/in.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace inaggd {
namespace {

using Kind = Outcome::Change::Kind;

void set_option(int fd, int level, int option, int value) {
    if (setsockopt(fd, level, option, &value, sizeof value))
        throw Error("UDP socket option {}: {}", option, system_text(errno));
}

std::string port_name(uint32_t ifindex) {
    char name[IF_NAMESIZE];
    return if_indextoname(ifindex, name) ? name : fmt::format("port {}", ifindex);
}

Stragglers stragglers_of(const inagg_job_policy &row) {
    return {.expiry_us = row.policy.expiry_us, .quorum = row.policy.quorum, .exclude_ms = row.policy.exclude_ms};
}

void copy_own_address(const inagg_switch_settings &settings, inagg_uplink &uplink) {
    if (uplink.family == 4)
        std::memcpy(uplink.own_address, &settings.address4, 4);
    else
        std::memcpy(uplink.own_address, settings.address6, 16);
}

// For jobs that wait for all ranks: a block that nobody has the result of is given up after many sweeps, and its record free.
constexpr uint32_t forgetting_us = 100'000;

// The index of a job's configured port.
uint32_t port_index(const std::string &name) {
    uint32_t ifindex = if_nametoindex(name.c_str());
    if (!ifindex)
        throw Error("job: member's port {}: no such interface (ip link)", name);
    return ifindex;
}

} // namespace

void restore_jobs(JobBook &book, const SwitchMaps &maps) {
    book.forget();
    book.restore_up_ports(maps.up_ports());
    for (const auto &[number, record] : maps.jobs()) {
        if (record.index >= INAGG_MAX_JOBS || record.size > INAGG_MAX_RANKS ||
            uint64_t{record.first_slot} + pool_slots(record) > (has_records(record)    ? maps.floor_count()
                                                                : shares_slots(record) ? UINT32_MAX
                                                                                       : maps.slot_count())) {
            const inagg::LogFields about{{"job", number}};
            spdlog::warn("job {}: its record does not fit this switch; ignored", number);
            continue;
        }
        const Stragglers stragglers = has_records(record) ? stragglers_of(maps.policy(record.index)) : Stragglers{};
        const uint8_t up = has_descriptors(record) ? maps.route(record.index).up : uint8_t{0};
        book.restore(number, record, stragglers, maps.members(record.index), maps.uplink(record.index), Clock::now(), up);
    }
}

void try_jobs(JobBook book, const std::vector<JobSpec> &specs) {
    for (const JobSpec &spec : specs)
        book.add(spec, port_index, Clock::now());
}

Agent::Agent(SwitchMaps maps, int egress, std::function<void(const inagg_job &)> provide, const Policy &policy,
             const inagg_switch_settings &settings, const Sweeping &sweeping, Keys keys)
    : maps_(std::move(maps)), egress_(egress), provide_(std::move(provide)), book_(policy, random_generation),
      gate_(std::move(keys)), sweeping_(sweeping), sweeper_(sweeping.bpffs, sweeping.mac), watch_(maps_) {
    Address four{.family = 4}, six{.family = 6};
    std::memcpy(four.bytes.data(), &settings.address4, 4);
    std::memcpy(six.bytes.data(), settings.address6, 16);
    if (settings.address4)
        socket4_ = reply_socket(four);
    if (six.is_host())
        socket6_ = reply_socket(six);
    restore_jobs(book_, maps_);
    restore_keys();
}

// Jobs that are here stay as they are: their ranks have the keys that they have.
void Agent::restore_keys() {
    for (const auto &[number, job] : book_.jobs())
        gate_.set_key(number, maps_.key(job.record.index));
}

// Of jobs that began without, the keys' file may have one now.
void Agent::take_new_keys() {
    for (const auto &[number, job] : book_.jobs()) {
        const auto listed = gate_.listed(number);
        if (!listed || gate_.key(number))
            continue;
        if (joined_count(job.members)) {
            spdlog::warn("job {}: its ranks have joined without a key, and go on so; it takes its key when they have gone: "
                         "inaggctl job del {}",
                         number, number);
            continue;
        }
        gate_.set_key(number, *listed);
        maps_.put_key(job.record.index, *listed);
    }
}

void Agent::take_over() {
    restore_jobs(book_, maps_);
    restore_keys();
    take_new_keys();
    up_ports_ = maps_.up_ports();
    for (const auto &[number, job] : book_.jobs()) {
        const inagg::LogFields about{{"job", number}};
        provide(number, job.record);
        if (!job.record.group_port) // a group's devmap was filled by hand
            write_route(job);
        spdlog::info("job {}: taken over, {} of {} ranks", number, joined_count(job.members), job.record.size);
    }
    write_shares();
    sweep(planned_sweeps());
}

// Zero UDP checksum as in RFC 6935.
Fd reply_socket(const Address &address, bool only_to_check) {
    bool four = address.family == 4;
    Fd fd(socket(four ? AF_INET : AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd)
        throw Error("UDP socket: {}", system_text(errno));
    set_option(fd.get(), SOL_SOCKET, SO_REUSEPORT, 1); // --check opens another, and no other user can
    if (only_to_check)                                 // what runs may be an older inaggd, whose socket has this option
        set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    set_option(fd.get(), SOL_SOCKET, SO_NO_CHECK, 1);
    set_option(fd.get(), SOL_SOCKET, SO_RCVBUF, 4096); // nothing is ever read
    // The address may be assigned, or pass duplicate address detection, later.
    if (four) {
        set_option(fd.get(), IPPROTO_IP, IP_FREEBIND, 1);
        set_option(fd.get(), IPPROTO_IP, IP_TOS, INAGG_TOS);
    } else {
        set_option(fd.get(), IPPROTO_IPV6, IPV6_FREEBIND, 1);
        set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1);
        set_option(fd.get(), IPPROTO_IPV6, IPV6_TCLASS, INAGG_TOS);
        set_option(fd.get(), IPPROTO_UDP, 101 /* UDP_NO_CHECK6_TX */, 1);
    }
    sockaddr_storage storage;
    const socklen_t length = address.to_sockaddr(htons(INAGG_PORT), storage);
    if (bind(fd.get(), reinterpret_cast<sockaddr *>(&storage), length))
        throw Error("{} UDP port {}: {}; is another program using it? (ss -lunp)", address.text(), INAGG_PORT,
                    system_text(errno));
    return fd;
}

void Agent::event(const void *data, size_t bytes) {
    if (bytes < sizeof(inagg_event))
        return;
    inagg_event event;
    std::memcpy(&event, data, sizeof event);
    Time now = Clock::now();
    if (!events_by_port_.take(event.ifindex, now, event.type == INAGG_LEAVE))
        return; // workers repeat

    const Address from = sender_of(event);
    const std::optional<Outcome> objection = gate_.objection(event, now);
    const Outcome outcome = objection ? *objection : decide(event, now);
    const EventLimit::Turn turn(events_by_port_, book_.payer(event), now);
    const std::string port = port_name(event.ifindex);
    log_event(event, outcome, port);
    refusals_.note(event, outcome, port, now);
    apply(outcome);
    if (outcome.reason && may_refuse(event, outcome.reason, book_, events_by_port_, now))
        send(from, event.join.receive_port,
             refusal(event.job, event.rank, event.generation, outcome.reason, gate_.challenge(event, now)), event.join);
}

Outcome Agent::decide(const inagg_event &event, Time now) {
    switch (event.type) {
    case INAGG_JOIN:
        return book_.join(event, now);
    case INAGG_LEAVE:
        return book_.leave(event, now);
    case INAGG_CONFIG:
        return book_.configured(event, now);
    case INAGG_REFUSED:
        return book_.refused_above(event, now);
    default:
        return {.detail = "unknown type"};
    }
}

void Agent::apply(const Outcome &outcome) {
    for (const Outcome::Change &change : outcome.changes) {
        if (change.kind == Kind::remove) {
            apply_remove(change);
            continue;
        }
        if (!book_.jobs().contains(change.job))
            continue; // a later change of this outcome removes it
        if (change.kind == Kind::renew) {
            apply_renew(change);
            continue;
        }
        if (change.kind == Kind::state) {
            apply_state(change);
            continue;
        }
        const JobState &job = book_.jobs().at(change.job);
        // The ports first: whoever gets its CONFIG is reachable.
        write_route(job);
        if (change.kind == Kind::members)
            write_members(job);
    }
    if (const SweepPlan plan = planned_sweeps(); plan != sweeper_.plan())
        sweep(plan);
    for (const Displaced &gone : outcome.displaced)
        tell(gone);
    for (const Message &message : outcome.messages)
        send(message.to, htons(INAGG_PORT), header_of(message, maps_.settings().boot), message.join);
    for (const std::string &note : outcome.notes)
        spdlog::warn("{}", note);
    gate_.forget_gone(outcome, book_);
}

// No packet may find the job before anything of it goes.
void Agent::apply_remove(const Outcome::Change &change) {
    const inagg::LogFields about{{"job", change.job}};
    uint32_t index = change.record.index;
    maps_.delete_job(change.job);
    maps_.delete_ports(index);
    maps_.put_key(index, {});
    devmaps_.erase(index);
    last_packets_.erase(change.job);
    watch_.forget(change.job);
    last_joins_.erase(change.job);
    for (const inagg_port_key &key : maps_.port_keys(index))
        maps_.delete_port_ranks(key);
    for (uint32_t rank = 0; rank < INAGG_MAX_RANKS; rank++)
        maps_.put_member(index, rank, {});
    if (has_descriptors(change.record))
        maps_.put_route(index, {});
    forget_blocks(change.record);
    if (has_records(change.record))
        maps_.put_policy(index, {});
    write_shares();
    spdlog::info("job {}: removed", change.job);
}

// Nothing of the job is left in the switch's memory, or in the way of other jobs' blocks.
void Agent::forget_blocks(const inagg_job &record) {
    if (has_records(record))
        maps_.forget_job(record);
    else
        maps_.zero_blocks(record);
}

// Without its programs the switch drops the job's packets, and counts them.
void Agent::provide(uint16_t number, const inagg_job &record) {
    const inagg::LogFields about{{"job", number}};
    try {
        provide_(record);
    } catch (const Error &error) {
        spdlog::error("job {}: {}", number, error.what());
    }
}

// A packet of the new generation must find empty slots, and none of the old one may find a member.
void Agent::apply_renew(const Outcome::Change &change) {
    const inagg::LogFields about{{"job", change.job}};
    const JobState &job = book_.jobs().at(change.job);
    provide(change.job, job.record);
    bool is_new = !devmaps_.contains(job.record.index);
    for (uint32_t rank = 0; rank < INAGG_MAX_RANKS; rank++)
        maps_.put_member(job.record.index, rank, {});
    if (is_new)
        maps_.clear_stats(job.record.index);
    else
        maps_.delete_job(change.job);
    maps_.put_stragglers(job.record.index, {});
    write_route(job);
    forget_blocks(job.record);
    if (has_records(job.record))
        maps_.put_policy(job.record.index, policy_row(change.job, job.record, job.stragglers, sweeper_.plan()));
    write_members(job);
    write_key(change.job, job.record.index);
    maps_.put_job(change.job, job.record);
    spdlog::info("job {}: generation {}, {} ranks, {}, {}+{} slots from {}, {} elements per packet{}", change.job,
                 job.record.generation, job.record.size, describe(job.record.algorithm, job.stragglers), job.record.slots,
                 job.record.control_slots, job.record.first_slot, job.record.elements, describe_packets(job.record));
    if (has_records(job.record))
        warn_of_few_buckets();
}

// New blocks leave a way in each bucket to those that must be recovered.
void Agent::warn_of_few_buckets() const {
    uint32_t slots = 0;
    for (const auto &[number, job] : book_.jobs())
        slots += has_records(job.record) ? pool_slots(job.record) : 0;
    if (const uint32_t room = (INAGG_WAYS - 1) * maps_.bucket_count(); slots > room)
        spdlog::warn(
            "trio jobs have {} slots, and {} buckets room for {} blocks: ranks are told to slow down; --buckets {} would do",
            slots, maps_.bucket_count(), room, std::bit_ceil((slots + INAGG_WAYS - 2) / (INAGG_WAYS - 1)));
}

// From now on it is the job's, whatever the keys' file says at the next start.
void Agent::write_key(uint16_t number, uint32_t index) {
    const inagg_mac_key key = gate_.key(number).value_or(inagg_mac_key{});
    gate_.set_key(number, key);
    maps_.put_key(index, key);
}

// From the moment that the row is written nothing waits for who is excluded; what is open already is decided at once.
void Agent::apply_state(const Outcome::Change &change) {
    const JobState &job = book_.jobs().at(change.job);
    maps_.update_job(change.job, job.record);
    if (!job.record.group_port)
        write_ports(job);
    if (inagg_job_excluded(&job.record))
        sweeper_.sweep_once(Sweeper::Look::for_the_full);
}

void Agent::write_members(const JobState &job) {
    write_shares(); // before anybody can be told that the job is complete
    inagg_uplink uplink = job.uplink;
    if (uplink.ifindex)
        copy_own_address(maps_.settings(), uplink);
    maps_.put_uplink(job.record.index, uplink);
    for (uint32_t rank = 0; rank < job.record.size; rank++) {
        inagg_member member = job.members[rank];
        member.leaf = leaf_of(job, rank);
        maps_.put_subtree(job.record.index, rank, subtree_of(job, rank));
        maps_.put_member(job.record.index, rank, member);
    }
}

// Each job that needs buffers has less when there is another.
void Agent::write_shares() {
    uint32_t needing = 0;
    for (const auto &[number, job] : book_.jobs())
        needing += needs_buffers(job);
    for (const auto &[number, job] : book_.jobs())
        if (inagg_job_adds_floats(&job.record)) {
            const uint8_t children = children_of(job);
            const uint16_t cap = window_cap(maps_.buffer_count(), needing, children);
            maps_.put_share(job.record.index, {.cap = cap, .children = children, .reserved = 0});
        }
}

Fd Agent::make_devmap() const {
    Fd fd(
        bpf_map_create(BPF_MAP_TYPE_DEVMAP, "job_ports", sizeof(uint32_t), sizeof(bpf_devmap_val), INAGG_PORT_ENTRIES, nullptr));
    if (!fd)
        throw Error("devmap: {}", system_text(errno));
    return fd;
}

// Before any route that names them.
void Agent::write_up_ports() {
    for (uint32_t up = 0; up < INAGG_MAX_UPS; up++) {
        inagg_uplink port = book_.up_ports()[up];
        if (port.ifindex)
            copy_own_address(maps_.settings(), port);
        if (std::memcmp(&port, &up_ports_[up], sizeof port) == 0)
            continue; // packets read it
        maps_.put_up_port(up, port);
        up_ports_[up] = port;
    }
}

// Where packets of the job may go: the route names no up port that the devmap lacks.
void Agent::write_route(const JobState &job) {
    const uint32_t index = job.record.index;
    if (!has_descriptors(job.record)) {
        write_ports(job);
        return;
    }
    inagg_route route{.up = job.up,
                      .policy = static_cast<uint8_t>(book_.policy().up_policy),
                      .ups = static_cast<uint8_t>(book_.policy().parents.size()),
                      .reserved = 0,
                      .timeout_us = book_.policy().timeout_us};
    write_up_ports();
    route.up &= maps_.route(index).up;
    maps_.put_route(index, route);
    write_ports(job);
    route.up = job.up;
    maps_.put_route(index, route);
}

void Agent::write_ports(const JobState &job) {
    uint32_t index = job.record.index;
    auto [devmap, is_new] = devmaps_.try_emplace(index);
    if (is_new)
        devmap->second = make_devmap();
    std::map<uint32_t, inagg_port_ranks> behind;
    for (uint32_t rank = 0; rank < INAGG_MAX_RANKS; rank++) {
        const inagg_member &member = job.members[rank];
        if (!has_joined(member) || is_represented(job, rank) || inagg_job_excludes(&job.record, rank)) {
            bpf_map_delete_elem(devmap->second.get(), &rank); // absent is as good
            continue;
        }
        bpf_devmap_val entry{.ifindex = member.ifindex, .bpf_prog = {.fd = egress_}};
        if (bpf_map_update_elem(devmap->second.get(), &rank, &entry, BPF_ANY)) {
            const inagg::LogFields about{{"rank", rank}, {"port", port_name(member.ifindex)}};
            spdlog::warn("rank {}: {}: {}", rank, port_name(member.ifindex), system_text(errno));
            continue;
        }
        inagg_port_ranks &ranks = behind[member.ifindex];
        ranks.rank[ranks.count++] = static_cast<uint8_t>(rank);
    }
    for (uint32_t up = 0; up < INAGG_MAX_UPS; up++) {
        const uint32_t ifindex = book_.up_ports()[up].ifindex, number = INAGG_MAX_RANKS + up;
        if (!(job.up >> up & 1)) {
            bpf_map_delete_elem(devmap->second.get(), &number);
            continue;
        }
        bpf_devmap_val entry{.ifindex = ifindex, .bpf_prog = {.fd = egress_}};
        if (bpf_map_update_elem(devmap->second.get(), &number, &entry, BPF_ANY)) {
            spdlog::warn("up port {}: {}: {}", up, port_name(ifindex), system_text(errno));
            continue;
        }
        if (inagg_port_ranks &ranks = behind[ifindex]; ranks.count < INAGG_MAX_RANKS)
            ranks.rank[ranks.count++] = static_cast<uint8_t>(number);
    }
    for (const auto &[ifindex, ranks] : behind)
        maps_.put_port_ranks({.job = index, .ifindex = ifindex}, ranks);
    for (const inagg_port_key &key : maps_.port_keys(index))
        if (!behind.contains(key.ifindex))
            maps_.delete_port_ranks(key);
    if (is_new)
        maps_.put_ports(index, devmap->second.get());
}

inagg_hdr Agent::refusal(uint16_t job, uint16_t rank, uint16_t generation, inagg_reason reason, uint64_t challenge) const {
    inagg_hdr header = header_of(INAGG_REFUSED, job, rank, generation);
    header.slot = htonl(reason);
    header.boot = htons(maps_.settings().boot);
    inagg_hdr_set_challenge(&header, challenge);
    return header;
}

// Who is out of its job, which may be gone, and its key with it, when this is repeated.
void Agent::tell(const Displaced &gone) {
    const Address to = Address::of(gone.member);
    inagg_hdr header = refusal(gone.job, gone.rank, gone.generation, gone.reason);
    const inagg_join body = farewell(gone, header);
    const Words words = worded(to, header, body);
    const auto say = [=, this, port = gone.member.receive_port] { say_to(to, port, words); };
    say();
    if (gone.reason != INAGG_R_FORMING) // after which the rank may be let in
        reminders_.add(say, Clock::now());
}

void Agent::send(const Address &to, uint16_t port, const inagg_hdr &header, const inagg_join &join) {
    say_to(to, port, worded(to, header, join));
}

Agent::Words Agent::worded(const Address &to, const inagg_hdr &header, const inagg_join &join) const {
    Words words{.header = header, .join = join};
    gate_.prove(words.header, words.join, to);
    inagg_hdr_seal_checked(&words.header, inagg_body_checksum(&words.join));
    return words;
}

void Agent::say_to(const Address &to, uint16_t port, const Words &words) {
    const Fd &socket = to.family == 4 ? socket4_ : socket6_;
    if (!socket || !port || !to.is_host())
        return;
    sockaddr_storage storage;
    const socklen_t length = to.to_sockaddr(port, storage);
    if (sendto(socket.get(), &words, sizeof words, 0, reinterpret_cast<sockaddr *>(&storage), length) < 0)
        spdlog::debug("to {}: {}", to.text(), system_text(errno));
}

// As often as the jobs that there are now need it. But ages of blocks are counted in sweeps: these must not become rarer while
// blocks may wait, or somebody's short-lived job would let others' blocks expire too soon.
SweepPlan Agent::planned_sweeps() const {
    std::vector<uint32_t> expiries;
    for (const auto &[number, job] : book_.jobs())
        expiries.push_back(has_records(job.record) && !job.stragglers.expiry_us ? forgetting_us : job.stragglers.expiry_us);
    const SweepPlan plan = plan_sweeps(expiries, sweeping_.sweepers, sweeping_.per_expiry, maps_.bucket_count());
    const SweepPlan &now = sweeper_.plan();
    return plan.sweepers && now.sweepers && plan.period > now.period ? now : plan;
}

void Agent::sweep(const SweepPlan &plan) {
    for (const auto &[number, job] : book_.jobs()) // before the sweeps become more frequent
        if (has_records(job.record))
            maps_.put_policy(job.record.index, policy_row(number, job.record, job.stragglers, plan));
    sweeper_.sweep(plan);
}

void Agent::add_job(const JobSpec &spec) {
    const auto key = key_of(spec);
    const bool is_here = book_.jobs().contains(spec.number);
    if (is_here && key)
        gate_.need_key(spec.number, *key);
    const Outcome outcome = book_.add(spec, port_index, Clock::now());
    if (key)
        gate_.set_key(spec.number, *key);
    apply_or_take_over(outcome);
}

void Agent::remove_job(uint16_t number) { apply_or_take_over(book_.remove(number)); }

// Throws what apply() does; then the book knows again what the maps have, and no more.
void Agent::apply_or_take_over(const Outcome &outcome) {
    try {
        apply(outcome);
    } catch (...) {
        take_over();
        gate_.forget_gone(outcome, book_);
        throw;
    }
}

void Agent::port_gone(uint32_t ifindex) {
    events_by_port_.forget(ifindex);
    apply(book_.port_gone(ifindex));
    link(ifindex, false);
}

void Agent::port_made_anew(uint32_t before, uint32_t ifindex) { apply(book_.port_made_anew(before, ifindex)); }

void Agent::link(uint32_t ifindex, bool up) { apply(book_.link(ifindex, up, Clock::now())); }

void Agent::tend() {
    reminders_.say_due(Clock::now());
    apply(book_.tend(Clock::now()));
}

std::chrono::milliseconds Agent::tend_interval() const {
    const Time now = Clock::now();
    return reminders_.wait(now, book_.tend_interval(now));
}

void Agent::keep_ports(const std::set<uint32_t> &present) {
    std::set<uint32_t> gone;
    for (const auto &[number, job] : book_.jobs())
        for (const inagg_member &member : job.members)
            if (has_joined(member) && !(member.flags & INAGG_MEMBER_STATIC) && !present.contains(member.ifindex))
                gone.insert(member.ifindex);
    for (uint32_t ifindex : gone) {
        spdlog::warn("{}: no longer a port; its ranks are forgotten", port_name(ifindex));
        port_gone(ifindex);
    }
}

void Agent::poll_activity() {
    for (const auto &[number, job] : book_.jobs()) {
        const inagg_stats stats = maps_.stats(job.record.index);
        if (std::exchange(last_packets_[number], stats.packets) != stats.packets)
            book_.heard(number, Clock::now());
        if (std::exchange(last_joins_[number], stats.joins) != stats.joins)
            apply(book_.announced(number, Clock::now()));
    }
    apply(book_.expire(Clock::now()));
}

std::chrono::milliseconds Agent::watch_interval() const {
    auto interval = watch_period(0);
    for (const auto &[number, job] : book_.jobs())
        interval = std::min(interval, watch_period(job.stragglers.exclude_ms));
    return interval;
}

void Agent::watch() {
    std::vector<std::pair<uint16_t, uint64_t>> gone;
    for (const auto &[number, job] : book_.jobs())
        if (has_records(job.record))
            if (uint64_t ranks = watch_.look(number, job.record, present_ranks(job), job.stragglers.exclude_ms))
                gone.emplace_back(number, ranks);
    for (const auto &[number, ranks] : gone) {
        const Outcome outcome = book_.exclude(number, ranks, Clock::now());
        for (const Displaced &rank : outcome.displaced) {
            const inagg::LogFields about{{"job", number}, {"rank", rank.rank}};
            spdlog::warn("job {}: rank {} is excluded, the others go on without it", number, rank.rank);
        }
        apply(outcome);
    }
    apply(book_.forget_returning(Clock::now()));
    if (maps_.occupancy().held) // who waited for a result that has been lost may be dead
        maps_.free_stale_descriptors();
}

std::vector<MetricsRow> Agent::metrics_rows() const {
    std::vector<MetricsRow> rows;
    for (const auto &[number, job] : book_.jobs()) {
        MetricsRow &row = rows.emplace_back(MetricsRow{.job = fmt::format("{}", number), .stats = maps_.stats(job.record.index)});
        if (has_records(job.record))
            row.attendance = maps_.attendance(job.record.index);
    }
    rows.push_back({.job = "none", .stats = maps_.stats(INAGG_STATS_NO_JOB)});
    return rows;
}

} // namespace inaggd
