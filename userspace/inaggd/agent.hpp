// SPDX-License-Identifier: BSD-2-Clause
// Carries the book's decisions into the switch's maps and tells the ranks that are refused.
#pragma once

#include "event_limit.hpp"
#include "gate.hpp"
#include "job_book.hpp"
#include "loader.hpp"
#include "maps.hpp"
#include "metrics.hpp"
#include "refusals.hpp"
#include "reminders.hpp"
#include "sweeper.hpp"
#include "watch.hpp"

#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace inaggd {

// The maps are the truth: what the book says becomes what they do.
void restore_jobs(JobBook &book, const SwitchMaps &maps);
// Throws Error if a switch with this book cannot be given the jobs.
void try_jobs(JobBook book, const std::vector<JobSpec> &specs);

// How stragglers are looked for, in jobs that do not wait for them.
struct Sweeping {
    std::string bpffs;          // of the sweeps' programs
    std::array<uint8_t, 6> mac; // source of results without stragglers
    uint32_t sweepers = 100;    // timers, at most
    uint32_t per_expiry = 4;    // sweeps in the shortest expiry
};

// A socket from which refusals leave: they come from the address and port that the workers asked. Throws Error.
Fd reply_socket(const Address &address, bool only_to_check = false);

class Agent {
public:
    // Knows the jobs, and changes nothing yet. `egress` is the program of devmap entries; `provide` sees to the programs of
    // such a job and throws Error.
    Agent(SwitchMaps maps, int egress, std::function<void(const inagg_job &)> provide, const Policy &policy,
          const inagg_switch_settings &settings, const Sweeping &sweeping, Keys keys);

    // Reads all jobs again and makes them this agent's.
    void take_over();
    // One record of the `events` ring buffer; whatever it holds.
    void event(const void *data, size_t bytes);
    void add_job(const JobSpec &spec);
    void remove_job(uint16_t number);
    void port_gone(uint32_t ifindex);
    void port_made_anew(uint32_t before, uint32_t ifindex);
    // The port has a link now, or none.
    void link(uint32_t ifindex, bool up);
    // Moves jobs whose links have failed. Call it once in each tend_interval().
    void tend();
    std::chrono::milliseconds tend_interval() const;
    // All other ports have gone while no agent looked.
    void keep_ports(const std::set<uint32_t> &present);
    // Notes which jobs have been heard since the last call, and removes those whose ranks do not come.
    void poll_activity();
    // Looks for ranks that are gone, lets their jobs go on without them, and frees descriptors of blocks that are. Call it once
    // in each watch_interval().
    void watch();
    std::chrono::milliseconds watch_interval() const;

    const SwitchMaps &maps() const { return maps_; }
    // Counters of all jobs, and of packets that belong to none.
    std::vector<MetricsRow> metrics_rows() const;
    JobBook &book() { return book_; }
    const Refusals &refusals() const { return refusals_; }

private:
    Outcome decide(const inagg_event &event, Time now);
    void apply(const Outcome &outcome);
    void apply_or_take_over(const Outcome &outcome);
    SweepPlan planned_sweeps() const;
    void sweep(const SweepPlan &plan);
    void apply_remove(const Outcome::Change &change);
    void provide(uint16_t number, const inagg_job &record);
    void forget_blocks(const inagg_job &record);
    void apply_renew(const Outcome::Change &change);
    void warn_of_few_buckets() const;
    void apply_state(const Outcome::Change &change);
    void write_members(const JobState &job);
    void write_shares();
    void write_ports(const JobState &job);
    void write_up_ports();
    void write_route(const JobState &job);
    Fd make_devmap() const;
    void restore_keys();
    void take_new_keys();
    void write_key(uint16_t number, uint32_t index);
    struct Words { // as they are sent
        inagg_hdr header;
        inagg_join join;
    };
    inagg_hdr refusal(uint16_t job, uint16_t rank, uint16_t generation, inagg_reason reason, uint64_t challenge = 0) const;
    void tell(const Displaced &gone);
    void send(const Address &to, uint16_t port, const inagg_hdr &header, const inagg_join &join);
    Words worded(const Address &to, const inagg_hdr &header, const inagg_join &join) const;
    void say_to(const Address &to, uint16_t port, const Words &words);

    SwitchMaps maps_;
    int egress_;
    std::function<void(const inagg_job &)> provide_;
    JobBook book_;
    Gate gate_;
    Sweeping sweeping_;
    Sweeper sweeper_;
    Watch watch_;
    Fd socket4_, socket6_;
    std::map<uint32_t, Fd> devmaps_; // by job index
    EventLimit events_by_port_;
    Reminders reminders_;
    Refusals refusals_;
    std::map<uint16_t, uint64_t> last_packets_, last_joins_; // by job
    UpPorts up_ports_{};                                     // as in the map
};

} // namespace inaggd
