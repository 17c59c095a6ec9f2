// SPDX-License-Identifier: BSD-2-Clause
// The agent of a P4 switch: answers JOIN and LEAVE, which the switch sends up, and writes the book's decisions into its
// tables. Ports are the switch's own numbers. All it does goes through a Driver and the CPU port.
#pragma once

#include "event_limit.hpp"
#include "gate.hpp"
#include "job_book.hpp"
#include "metrics.hpp"
#include "p4/driver.hpp"
#include "p4/punt.hpp"
#include "refusals.hpp"
#include "reminders.hpp"

#include <nlohmann/json.hpp>

#include <array>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace inaggd::p4 {

// How the switch is reached, and its ports.
struct Surroundings {
    Settings settings;
    std::map<std::string, uint16_t> ports; // by the names that users know; without the CPU port
};

class P4Agent {
public:
    using Send = std::function<void(std::span<const uint8_t> frame)>;

    // `send`: into the CPU port. Changes nothing yet.
    P4Agent(Driver &driver, const Policy &policy, Surroundings around, Send send, Keys keys = {});

    // Throws Error if a switch with such a policy cannot be given the jobs.
    static void try_jobs(const Policy &policy, const Surroundings &around, const std::vector<JobSpec> &specs);
    // From empty tables: whatever a former agent knew is forgotten.
    void start(const std::vector<JobSpec> &jobs);
    // The jobs end, and their ranks are told; ordinary frames go on.
    void end_jobs();
    // One frame of the CPU port, behind the header that says so.
    void frame(std::span<const uint8_t> frame);
    void add_job(const JobSpec &spec);
    void remove_job(uint16_t number);
    void port_gone(uint16_t port);
    void link(uint16_t port, bool up);
    // Call it once in each tend_interval().
    void tend();
    std::chrono::milliseconds tend_interval() const;
    // Sends the switch its clock: once in each clock_interval(), if there is one.
    void clock();
    std::optional<std::chrono::milliseconds> clock_interval() const;
    // Notes which jobs have been heard since the last call, and removes those whose ranks do not come, and what others have left.
    void poll_activity();

    const JobBook &book() const { return book_; }
    const Refusals &refusals() const { return refusals_; }
    // Counters of all jobs, and of packets that belong to none.
    std::vector<MetricsRow> metrics_rows() const;
    // What inaggctl shows: see Commands.
    nlohmann::ordered_json read(const std::string &what, std::optional<uint16_t> job) const;

private:
    Outcome decide(const inagg_event &event, Time now);
    const inagg_member *seat_of(const inagg_event &event) const;
    inagg_hdr own_header(inagg_type type, uint16_t job, uint16_t rank, uint16_t generation) const;
    void configure(const inagg_event &event);
    void refuse(const inagg_event &event, inagg_reason reason, uint64_t challenge);
    void apply(const Outcome &outcome);
    void apply_remove(const Outcome::Change &change);
    void apply_renew(const Outcome::Change &change);
    void write_job(uint16_t number);
    uint8_t algorithm() const { return *book_.policy().limits.algorithm; }
    inagg_policy policy_of(const JobState &job) const;
    void write_stations();
    void tell(const Displaced &gone);
    void send_on(const Message &message);
    void answer(uint32_t port, const Mac &mac, const Address &to, uint16_t udp_port, const inagg_hdr &header,
                const inagg_join &body);
    std::optional<std::vector<uint8_t>> worded(uint32_t port, const Mac &mac, const Address &to, uint16_t udp_port,
                                               inagg_hdr header, const inagg_join &body) const;
    std::string port_name(uint32_t port) const;
    uint32_t port_number(const std::string &name) const;

    std::vector<inagg_stats> all_stats() const;
    nlohmann::ordered_json read_status() const;
    nlohmann::ordered_json read_job(uint16_t number) const;
    nlohmann::ordered_json read_rows(bool drops, std::optional<uint16_t> job) const;

    Driver &driver_;
    Surroundings around_;
    Send send_;
    JobBook book_;
    Gate gate_;
    EventLimit events_by_port_;
    Reminders reminders_;
    Refusals refusals_;
    std::set<uint16_t> running_;                             // jobs that are in the tables
    std::map<Mac, uint16_t> stations_;                       // likewise
    std::map<Neighbour, Mac> switches_;                      // above and below, as they were last heard
    std::map<uint16_t, uint64_t> last_packets_, last_joins_; // by job
    std::vector<inagg_stats> counted_;                       // here, beside what the switch counts: rows as there
    Time tidied_{};
};

} // namespace inaggd::p4
