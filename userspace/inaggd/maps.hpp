// SPDX-License-Identifier: BSD-2-Clause
// The switch's maps, as the agent and the tools see them. Layouts: bpf/switch_maps.h.
#pragma once

#include "common/fd.hpp"
#include "names.hpp"

#include <inagg/core/queue.h>
#include <switch_maps.h>

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace inaggd {

using inagg::Fd;

inline constexpr const char *default_bpffs = "/sys/fs/bpf/inagg";
inline constexpr const char *default_run_dir = "/run/inagg";
// Of an agent whose switch is in pinned maps, and of one that must be asked for what inaggctl shows.
inline constexpr const char *control_socket_name = "inaggd.sock", *asked_socket_name = "inaggd-asked.sock";

using Members = std::array<inagg_member, INAGG_MAX_RANKS>;
using UpPorts = std::array<inagg_uplink, INAGG_MAX_UPS>;

// A port the switch program is attached to, by its pinned link.
struct AttachedPort {
    std::string name, pin;
    uint32_t ifindex; // 0: the device is gone
};

// A program or map pinned in `dir`. Throws Error when it is not there.
Fd open_pin(const std::string &dir, const char *name);

class SwitchMaps {
public:
    // Opens the maps pinned in `dir`, by inaggd or bpftool. Throws Error when there is no switch.
    static SwitchMaps open(const std::string &dir);

    inagg_switch_settings settings() const;
    void set_settings(const inagg_switch_settings &settings) const;
    uint32_t slot_count() const { return slot_count_; }
    uint32_t floor_count() const { return floor_count_; }
    uint32_t bucket_count() const { return bucket_count_; }

    std::map<uint16_t, inagg_job> jobs() const;
    void put_job(uint16_t number, const inagg_job &job) const;
    // Of a job that goes on: only who is waited for, and its flags, may differ.
    void update_job(uint16_t number, const inagg_job &job) const;
    void delete_job(uint16_t number) const;

    Members members(uint32_t index) const;
    void put_member(uint32_t index, uint32_t rank, const inagg_member &member) const;

    // Of the job's ranks; all zero: none.
    void put_key(uint32_t index, const inagg_mac_key &key) const;
    inagg_mac_key key(uint32_t index) const;
    // In a tree: how the job's parent is reached, and the ranks behind a rank's switch.
    void put_uplink(uint32_t index, const inagg_uplink &uplink) const;
    inagg_uplink uplink(uint32_t index) const;
    void put_subtree(uint32_t index, uint32_t rank, uint64_t ranks) const;

    // The switches above this one, and by which of them packets of a job with canary may go.
    void put_up_port(uint32_t up, const inagg_uplink &uplink) const;
    UpPorts up_ports() const;
    void put_route(uint32_t index, const inagg_route &route) const;
    inagg_route route(uint32_t index) const;
    // What was learnt of how long its sums have to wait.
    inagg_patience patience(uint32_t index) const;
    // And of which ways up to avoid.
    inagg_ways ways(uint32_t index) const;

    // Replaces the job's inner map; no program uses the old one after the call.
    void put_ports(uint32_t index, int devmap) const;
    void delete_ports(uint32_t index) const;
    void put_port_ranks(const inagg_port_key &key, const inagg_port_ranks &ranks) const;
    std::vector<inagg_port_key> port_keys(uint32_t index) const;
    void delete_port_ranks(const inagg_port_key &key) const;

    // Row `index` (a job's, or INAGG_STATS_NO_JOB), summed over CPUs.
    inagg_stats stats(uint32_t index) const;
    // Also who was heard.
    void clear_stats(uint32_t index) const;

    // Of a port whose link's rate is known; and of what comes by it, if it is one to a switch above.
    void put_queue(uint32_t ifindex, const inagg_queue &queue, bool is_up) const;
    void delete_queue(uint32_t ifindex) const;
    void forget_arrivals() const;
    // The same for each job.
    void put_quotas(const inagg_queue &quota) const;
    void put_uplink_quotas(const inagg_queue &quota) const;
    std::optional<inagg_queue> queue(uint32_t ifindex) const;

    // Of a job with panama.
    void put_share(uint32_t index, const inagg_share &share) const;
    uint32_t buffer_count() const { return buffer_count_; }

    // Of a job with trio: before it is put, forget_job() and then its policy.
    void put_policy(uint32_t index, const inagg_job_policy &policy) const;
    inagg_job_policy policy(uint32_t index) const;
    // Who of the job's ranks has been heard and missed, summed over CPUs, and what is thought of it.
    inagg_attendance attendance(uint32_t index) const;
    void put_stragglers(uint32_t index, const inagg_stragglers &stragglers) const;
    inagg_stragglers stragglers(uint32_t index) const;
    // No record of the job's row remains, and its first blocks are the next.
    void forget_job(const inagg_job &job) const;

    // Forgets what slots hold, safely beside traffic.
    void zero_slots(uint32_t first, uint32_t count) const;
    // The same with records, of one row or with INAGG_MAX_JOBS of all, and with floors.
    void zero_records(uint32_t index) const;
    void zero_floors(uint32_t first, uint32_t count) const;
    // Of one row, or with INAGG_MAX_JOBS of all: what they hold is sent again.
    void zero_aggregators(uint32_t index) const;
    void zero_descriptors(uint32_t index) const;
    // Where the job has its blocks, if it has no records.
    void zero_blocks(const inagg_job &job) const;
    // Those that hold blocks which nobody waits for any more.
    void free_stale_descriptors() const;
    uint32_t descriptor_count() const { return descriptor_count_; }
    uint32_t aggregator_count() const { return aggregator_count_; }
    inagg_occupancy occupancy() const;
    inagg_sweep_settings sweep_settings() const;
    // What all sweepers have done together; `runs`, `ns` and `longest_ns` of so many timers, those that run.
    inagg_sweeper sweeps(uint32_t timers) const;
    inagg_sweep_process sweep_process() const;
    int events() const { return events_.get(); }

private:
    void clear(const inagg_clear_args &args, const char *what) const;

    Fd settings_, jobs_, members_, slots_, ports_, port_ranks_, stats_, events_, clear_;
    Fd attendance_, stragglers_, policies_, sweepers_, sweep_settings_, sweep_process_, hand_sweeper_, forget_;
    Fd uplinks_, subtrees_, queues_, arrivals_, quotas_, uplink_quotas_, shares_, up_ports_, routes_, patience_, ways_, keys_,
        occupancy_;
    uint32_t slot_count_ = 0, bucket_count_ = 0, floor_count_ = 0, aggregator_count_ = 0, buffer_count_ = 0,
             descriptor_count_ = 0;
};

// A random boot id, never 0 and never `previous`.
uint16_t random_boot(uint16_t previous = 0);

// Forgets what the slots hold, of all jobs or of one, as a restarted switch would have. With a new boot
// id the ranks learn of it at once; otherwise they find out.
void clear_slots(const SwitchMaps &maps, const uint16_t *job, bool keep_boot);

// Path of the pinned link of the port `name`.
std::string port_pin(const std::string &dir, const std::string &name);
// Where the link of what counts its ordinary traffic is, if its rate is known.
std::string meter_pin(const std::string &dir, const std::string &name);
// And that of what sends the results of packets with several blocks, if it carries such.
std::string spread_pin(const std::string &dir, const std::string &name);
std::vector<AttachedPort> attached_ports(const std::string &dir);
// Is the switch pinned in `dir` attached to that interface?
bool serves(const std::string &dir, uint32_t ifindex);

// Its blocks live in keyed records that all jobs share; its slots are positions in a window.
inline bool has_records(const inagg_job &job) { return job.algorithm == INAGG_TRIO; }
// Its sums are made in memory that all jobs share, and it has no slots of its own in an XDP switch.
inline bool has_descriptors(const inagg_job &job) { return job.algorithm == INAGG_CANARY; }
inline bool shares_slots(const inagg_job &job) { return job.algorithm == INAGG_ATP || has_descriptors(job); }
inline uint32_t pool_slots(const inagg_job &job) { return job.slots + job.control_slots; }

} // namespace inaggd
