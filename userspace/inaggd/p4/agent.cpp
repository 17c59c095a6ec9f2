// SPDX-License-Identifier: BSD-2-Clause
#include "p4/agent.hpp"

#include "common/log.hpp"
#include "counters.hpp"
#include "error.hpp"
#include "job_json.hpp"
#include "messages.hpp"
#include "sweeper.hpp"

#include <arpa/inet.h>
#include <endian.h>
#include <fmt/ranges.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <ranges>

namespace inaggd::p4 {

namespace {

using json = nlohmann::ordered_json;
using Kind = Outcome::Change::Kind;
using Verdict = Outcome::Verdict;

constexpr std::chrono::milliseconds clock_period{50}, tidy_interval{1000};
constexpr uint32_t canary_timeout_us = 10'000; // of a sum that something is missing in

constexpr Mac everybody = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};

Mac mac_at(const uint8_t (&bytes)[6]) { return std::to_array(bytes); }

// Only ranks that are there: the others have no place yet where results could go.
Seats seats_of(const JobState &job) {
    Seats seats{};
    for (uint32_t rank = 0; rank < job.record.size; rank++)
        if (has_joined(job.members[rank]))
            seats[rank] = {
                .member = job.members[rank], .subtree = subtree_of(job, rank), .is_represented = is_represented(job, rank)};
    return seats;
}

inagg_join config_of(const inagg_job &job, uint64_t nonce) {
    inagg_config config{};
    config.nonce = nonce;
    config.size = htons(job.size);
    config.elements = htons(job.elements);
    config.slots = htonl(job.slots);
    config.control_slots = htonl(job.control_slots);
    config.algorithm = job.algorithm;
    config.flags = job.flags;
    inagg_join body;
    static_assert(sizeof body == sizeof config);
    std::memcpy(&body, &config, sizeof body);
    return body;
}

uint32_t number_of(const Surroundings &around, const std::string &name) {
    const auto port = around.ports.find(name);
    if (port == around.ports.end())
        throw Error("job: member's port {}: not one of {}", name, fmt::join(std::views::keys(around.ports), ", "));
    return port->second;
}

void add_counts(inagg_stats &sum, const inagg_stats &other) {
    sum.joins += other.joins;
    for (int reason = 0; reason < INAGG_R_CAPACITY; reason++)
        sum.drops[reason] += other.drops[reason];
}

} // namespace

P4Agent::P4Agent(Driver &driver, const Policy &policy, Surroundings around, Send send, Keys keys)
    : driver_(driver), around_(std::move(around)), send_(std::move(send)), book_(policy, random_generation),
      gate_(std::move(keys)), counted_(INAGG_STATS_NO_JOB + 1) {}

void P4Agent::try_jobs(const Policy &policy, const Surroundings &around, const std::vector<JobSpec> &specs) {
    JobBook book(policy, [] { return uint16_t{0}; });
    for (const JobSpec &spec : specs)
        book.add(
            spec, [&](const std::string &name) { return number_of(around, name); }, Clock::now());
}

void P4Agent::start(const std::vector<JobSpec> &jobs) {
    driver_.reset();
    stations_.clear();
    std::vector<uint16_t> everywhere = {around_.settings.cpu_port};
    for (const auto &[name, number] : around_.ports)
        everywhere.push_back(number);
    driver_.put_flood(everywhere);
    write_stations();
    driver_.put_settings(around_.settings);
    for (const JobSpec &job : jobs)
        add_job(job);
}

void P4Agent::end_jobs() {
    while (!book_.jobs().empty())
        remove_job(book_.jobs().begin()->first);
}

std::string P4Agent::port_name(uint32_t port) const {
    for (const auto &[name, number] : around_.ports)
        if (number == port)
            return name;
    return fmt::format("port {}", port);
}

uint32_t P4Agent::port_number(const std::string &name) const { return number_of(around_, name); }

void P4Agent::frame(std::span<const uint8_t> frame) {
    const Punted punted = read_punted(frame);
    const inagg_event &event = punted.event;
    const Time now = Clock::now();
    if (punted.wrong) {
        counted_[INAGG_STATS_NO_JOB].drops[punted.wrong]++;
        return;
    }
    const auto ports = std::views::values(around_.ports);
    if (std::ranges::find(ports, event.ifindex) == ports.end()) { // frames are the switch's business there
        counted_[INAGG_STATS_NO_JOB].drops[INAGG_R_PORT]++;
        return;
    }
    if (!events_by_port_.take(event.ifindex, now, event.type == INAGG_LEAVE)) { // workers repeat
        counted_[INAGG_STATS_NO_JOB].drops[INAGG_R_RATE]++;
        return;
    }
    if (book_.is_switch(neighbour_of(event)))
        switches_[neighbour_of(event)] = mac_at(event.mac);
    if (event.type == INAGG_JOIN && seat_of(event)) {
        const EventLimit::Turn turn(events_by_port_, book_.payer(event), now);
        configure(event);
        return;
    }
    const std::optional<Outcome> objection = gate_.objection(event, now);
    const Outcome outcome = objection ? *objection : decide(event, now);
    const EventLimit::Turn turn(events_by_port_, book_.payer(event), now);
    const std::string port = port_name(event.ifindex);
    log_event(event, outcome, port);
    refusals_.note(event, outcome, port, now);
    apply(outcome);
    if (outcome.reason && (event.type == INAGG_JOIN || event.type == INAGG_LEAVE)) {
        if (may_refuse(event, outcome.reason, book_, events_by_port_, now))
            refuse(event, outcome.reason, gate_.challenge(event, now));
    } else if (event.type == INAGG_JOIN && seat_of(event)) {
        configure(event);
    }
}

Outcome P4Agent::decide(const inagg_event &event, Time now) {
    switch (event.type) {
    case INAGG_JOIN:
        return book_.join(event, now);
    case INAGG_LEAVE:
        return book_.leave(event, now);
    case INAGG_CONFIG:
        return book_.configured(event, now);
    default:
        return book_.refused_above(event, now);
    }
}

// A rank that has joined in this run, from where it is now.
const inagg_member *P4Agent::seat_of(const inagg_event &event) const {
    const auto job = book_.jobs().find(event.job);
    if (job == book_.jobs().end() || event.rank >= job->second.record.size)
        return nullptr;
    const inagg_member &member = job->second.members[event.rank];
    return member.nonce == event.join.nonce && is_at(member, event) ? &member : nullptr;
}

// To who is below: a JOIN that goes on to a parent names no incarnation of a switch.
inagg_hdr P4Agent::own_header(inagg_type type, uint16_t job, uint16_t rank, uint16_t generation) const {
    inagg_hdr header = header_of(type, job, rank, generation);
    header.boot = htons(around_.settings.boot);
    return header;
}

// To a switch, its ranks are those behind it, and it asks again until all of them have joined.
void P4Agent::configure(const inagg_event &event) {
    const JobState &job = book_.jobs().at(event.job);
    const inagg_job &record = job.record;
    const bool to_switch = job.members[event.rank].flags & INAGG_MEMBER_SWITCH;
    const uint64_t ranks = to_switch ? subtree_of(job, event.rank) : inagg_all_ranks(record.size);
    inagg_stats &counts = counted_[record.index];
    if (be16toh(event.join.size) != record.size || be16toh(event.join.elements) < record.elements) {
        counts.drops[be16toh(event.join.size) != record.size ? INAGG_R_SIZE : INAGG_R_MTU]++;
        return;
    }
    if (!ranks)
        return;
    inagg_hdr header = own_header(INAGG_CONFIG, event.job, event.rank, record.generation);
    header.fan_in = htons(record.size);
    header.contributors = htobe64(ranks);
    counts.joins++;
    answer(event.ifindex, mac_at(event.mac), sender_of(event), event.join.receive_port, header,
           config_of(record, event.join.nonce));
}

void P4Agent::refuse(const inagg_event &event, inagg_reason reason, uint64_t challenge) {
    inagg_hdr header = own_header(INAGG_REFUSED, event.job, event.rank, event.generation);
    header.slot = htonl(reason);
    inagg_hdr_set_challenge(&header, challenge);
    answer(event.ifindex, mac_at(event.mac), sender_of(event), event.join.receive_port, header, event.join);
}

void P4Agent::tell(const Displaced &gone) {
    inagg_hdr header = own_header(INAGG_REFUSED, gone.job, gone.rank, gone.generation);
    header.slot = htonl(gone.reason);
    const inagg_join body = farewell(gone, header);
    const auto frame =
        worded(gone.member.ifindex, mac_at(gone.member.mac), Address::of(gone.member), gone.member.receive_port, header, body);
    if (!frame)
        return;
    send_(*frame);
    if (gone.reason != INAGG_R_FORMING) // after which the rank may be let in
        reminders_.add([this, frame = *frame] { send_(frame); }, Clock::now());
}

// A switch, or server, that has not been heard yet is found by its address.
void P4Agent::send_on(const Message &message) {
    const inagg_hdr header = header_of(message, around_.settings.boot);
    std::set<Neighbour> others = book_.policy().children;
    others.insert(book_.policy().parents.begin(), book_.policy().parents.end());
    for (const Neighbour &other : others) {
        if (other.address != message.to)
            continue;
        const auto mac = switches_.find(other);
        answer(other.port, mac == switches_.end() ? everybody : mac->second, message.to, htons(INAGG_PORT), header, message.join);
    }
}

void P4Agent::answer(uint32_t port, const Mac &mac, const Address &to, uint16_t udp_port, const inagg_hdr &header,
                     const inagg_join &body) {
    if (const auto frame = worded(port, mac, to, udp_port, header, body))
        send_(*frame);
}

std::optional<std::vector<uint8_t>> P4Agent::worded(uint32_t port, const Mac &mac, const Address &to, uint16_t udp_port,
                                                    inagg_hdr header, const inagg_join &body) const {
    const Address &own = to.family == 4 ? around_.settings.address4 : around_.settings.address6;
    if (!own.family || !udp_port || !to.is_host())
        return std::nullopt;
    gate_.prove(header, body, to);
    return write_punted(static_cast<uint16_t>(port), {around_.settings.mac, own}, {mac, to}, udp_port, header, body);
}

void P4Agent::apply(const Outcome &outcome) {
    for (const Outcome::Change &change : outcome.changes)
        if (change.kind == Kind::remove)
            apply_remove(change);
        else if (!book_.jobs().contains(change.job))
            continue; // a later change of this outcome removes it
        else if (change.kind == Kind::renew)
            apply_renew(change);
        else
            write_job(change.job);
    if (!outcome.changes.empty())
        write_stations();
    for (const Displaced &gone : outcome.displaced)
        tell(gone);
    for (const Message &message : outcome.messages)
        send_on(message);
    for (const std::string &note : outcome.notes)
        spdlog::warn("{}", note);
    gate_.forget_gone(outcome, book_);
}

void P4Agent::apply_remove(const Outcome::Change &change) {
    driver_.remove_job(change.job);
    running_.erase(change.job);
    last_packets_.erase(change.job);
    last_joins_.erase(change.job);
    const inagg::LogFields about{{"job", change.job}};
    spdlog::info("job {}: removed", change.job);
}

// A packet of the new generation must find empty slots, and none of the old one may find the job.
void P4Agent::apply_renew(const Outcome::Change &change) {
    const inagg_job &record = book_.jobs().at(change.job).record;
    const bool is_new = running_.insert(change.job).second;
    driver_.remove_job(change.job);
    if (is_new) {
        driver_.clear_stats(record.index);
        counted_[record.index] = {};
    }
    driver_.clear_slots(record);
    write_job(change.job);
    const inagg::LogFields about{{"job", change.job}};
    spdlog::info("job {}: generation {}, {} ranks, {}, {}+{} slots from {}, {} elements per packet{}", change.job,
                 record.generation, record.size, algorithm_name(record.algorithm), record.slots, record.control_slots,
                 record.first_slot, record.elements, describe_packets(record));
}

void P4Agent::write_job(uint16_t number) {
    const JobState &job = book_.jobs().at(number);
    driver_.put_job({.number = number,
                     .record = job.record,
                     .seats = seats_of(job),
                     .above = {.ups = {job.uplink}, .live = 0, .timeout_us = canary_timeout_us},
                     .policy = policy_of(job)});
}

// As policy_of() of an XDP switch's agent, in this clock's sweeps.
inagg_policy P4Agent::policy_of(const JobState &job) const {
    inagg_policy policy{};
    policy.expiry_us = job.stragglers.expiry_us;
    policy.quorum = job.stragglers.quorum;
    policy.most_open = 2 * pool_slots(job.record);
    policy.expiry_sweeps = expiry_in_sweeps(policy.expiry_us, {.sweepers = 1, .period = clock_period});
    return policy;
}

// Without jobs there is nothing to look at.
std::optional<std::chrono::milliseconds> P4Agent::clock_interval() const {
    if (book_.jobs().empty() || driver_.has_clock() || (algorithm() != INAGG_TRIO && algorithm() != INAGG_CANARY))
        return {};
    return clock_period;
}

void P4Agent::clock() {
    const uint32_t places = around_.settings.shared_slots * (algorithm() == INAGG_TRIO ? INAGG_WAYS : 1);
    for (uint32_t place = 0; place < places; place++)
        send_(clock_frame(static_cast<uint16_t>(place)));
}

// The switch itself and the ranks; frames for others go to all ports. No rank gets what is for the switch.
void P4Agent::write_stations() {
    std::map<Mac, uint16_t> wanted;
    for (const auto &[number, job] : book_.jobs())
        for (const inagg_member &member : job.members)
            if (has_joined(member))
                wanted[mac_at(member.mac)] = static_cast<uint16_t>(member.ifindex);
    wanted[around_.settings.mac] = around_.settings.cpu_port;
    for (const auto &[mac, port] : stations_)
        if (!wanted.contains(mac))
            driver_.remove(station_entry(mac, port));
    for (const auto &[mac, port] : wanted)
        if (const auto now = stations_.find(mac); now == stations_.end() || now->second != port)
            driver_.put(station_entry(mac, port));
    stations_ = std::move(wanted);
}

void P4Agent::add_job(const JobSpec &spec) {
    const auto key = key_of(spec);
    if (book_.jobs().contains(spec.number) && key)
        gate_.need_key(spec.number, *key);
    const Outcome outcome = book_.add(
        spec, [this](const std::string &name) { return port_number(name); }, Clock::now());
    if (key)
        gate_.set_key(spec.number, *key);
    apply(outcome);
}

void P4Agent::remove_job(uint16_t number) { apply(book_.remove(number)); }

void P4Agent::port_gone(uint16_t port) {
    events_by_port_.forget(port);
    apply(book_.port_gone(port));
    link(port, false);
}

void P4Agent::link(uint16_t port, bool up) { apply(book_.link(port, up, Clock::now())); }

void P4Agent::tend() {
    reminders_.say_due(Clock::now());
    apply(book_.tend(Clock::now()));
}

std::chrono::milliseconds P4Agent::tend_interval() const {
    const Time now = Clock::now();
    return reminders_.wait(now, book_.tend_interval(now));
}

void P4Agent::poll_activity() {
    if (const Time now = Clock::now(); now >= tidied_ + tidy_interval) {
        driver_.tidy();
        tidied_ = now;
    }
    const std::vector<inagg_stats> stats = all_stats();
    for (const auto &[number, job] : book_.jobs()) {
        const inagg_stats &seen = stats[job.record.index];
        if (std::exchange(last_packets_[number], seen.packets) != seen.packets)
            book_.heard(number, Clock::now());
        if (std::exchange(last_joins_[number], seen.joins) != seen.joins)
            apply(book_.announced(number, Clock::now()));
    }
    apply(book_.expire(Clock::now()));
}

std::vector<inagg_stats> P4Agent::all_stats() const {
    std::vector<inagg_stats> rows = driver_.stats();
    for (size_t row = 0; row < rows.size(); row++)
        add_counts(rows[row], counted_[row]);
    return rows;
}

std::vector<MetricsRow> P4Agent::metrics_rows() const {
    const std::vector<inagg_stats> stats = all_stats();
    std::vector<MetricsRow> rows;
    for (const auto &[number, job] : book_.jobs())
        rows.push_back({.job = fmt::format("{}", number), .stats = stats[job.record.index]});
    rows.push_back({.job = "none", .stats = stats[INAGG_STATS_NO_JOB]});
    return rows;
}

json P4Agent::read(const std::string &what, std::optional<uint16_t> job) const {
    if (what == "status")
        return read_status();
    if (what == "job" && job)
        return read_job(*job);
    if (what == "stats" || what == "drops")
        return read_rows(what == "drops", job);
    if (what != "jobs")
        throw Error("nothing is known of '{}'", what);
    json list = json::array();
    for (const auto &[number, state] : book_.jobs())
        list.push_back(job_json(number, state.record, state.members, {}));
    return list;
}

json P4Agent::read_status() const {
    json ports = json::array();
    for (const auto &[name, number] : around_.ports)
        ports.push_back({{"port", name}, {"ifindex", number}, {"present", true}, {"marked", nullptr}});
    uint32_t used = 0;
    for (const auto &[number, job] : book_.jobs())
        used += pool_slots(job.record);
    return {{"agent", "running"},
            {"address4", around_.settings.address4.text()},
            {"address6", around_.settings.address6.text()},
            {"udp_port", INAGG_PORT},
            {"boot", around_.settings.boot},
            {"ports", ports},
            {"jobs", book_.jobs().size()},
            {"slots", book_.policy().slots},
            {"slots_used", used},
            {"sweeps", {{"timers", 0}}}};
}

json P4Agent::read_job(uint16_t number) const {
    const auto job = book_.jobs().find(number);
    if (job == book_.jobs().end())
        throw Error("job {}: no such job on this switch (inaggctl job list)", number);
    const JobState &state = job->second;
    json result = job_json(number, state.record, state.members, policy_of(state));
    result["members"] = json::array();
    for (uint16_t rank = 0; rank < state.record.size; rank++) {
        const inagg_member &member = state.members[rank];
        result["members"].push_back(
            member_json(rank, member, state.record.all & inagg_rank_bit(rank), member.ifindex ? port_name(member.ifindex) : ""));
    }
    return result;
}

// Counters or drops, of one job or of all and of the packets that belong to none.
json P4Agent::read_rows(bool drops, std::optional<uint16_t> wanted) const {
    if (wanted && !book_.jobs().contains(*wanted))
        throw Error("job {}: no such job on this switch (inaggctl job list)", *wanted);
    const std::vector<inagg_stats> stats = all_stats();
    json list = json::array();
    const auto add = [&](const json &job, const inagg_stats &row) {
        if (drops)
            add_drops(list, job, row);
        else
            list.push_back(counters_json(job, row));
    };
    for (const auto &[number, job] : book_.jobs())
        if (!wanted || *wanted == number)
            add(number, stats[job.record.index]);
    if (!wanted)
        add(nullptr, stats[INAGG_STATS_NO_JOB]);
    return list;
}

} // namespace inaggd::p4
