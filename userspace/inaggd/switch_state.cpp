// SPDX-License-Identifier: BSD-2-Clause
#include "switch_state.hpp"

#include "blocks.hpp"
#include "clock.hpp"
#include "control.hpp"
#include "counters.hpp"
#include "error.hpp"
#include "job_json.hpp"
#include "maps.hpp"

#include <arpa/inet.h>
#include <fmt/core.h>
#include <net/if.h>

#include <array>
#include <string_view>

namespace inaggd {
namespace {

using json = nlohmann::ordered_json;

std::string port_name(uint32_t ifindex) {
    char name[IF_NAMESIZE];
    return if_indextoname(ifindex, name) ? name : fmt::format("#{}", ifindex);
}

// Of a job that does not wait for stragglers; all zero of any other.
inagg_policy policy_of(const SwitchMaps &maps, const inagg_job &job) {
    return has_records(job) ? maps.policy(job.index).policy : inagg_policy{};
}

Address address_of(const inagg_uplink &uplink) {
    Address address{.family = static_cast<uint8_t>(uplink.ifindex ? uplink.family : 0)};
    std::memcpy(address.bytes.data(), uplink.address, sizeof uplink.address);
    return address;
}

// The switch that sums what this one has summed; "none" at the root and where there is no tree.
std::string parent_of(const SwitchMaps &maps, const inagg_job &job) { return address_of(maps.uplink(job.index)).text(); }

// The port that leads there.
std::string uplink_port(const SwitchMaps &maps, const inagg_job &job) {
    const uint32_t ifindex = maps.uplink(job.index).ifindex;
    return ifindex ? port_name(ifindex) : "";
}

// What the switch would heed now.
inagg_ways known_ways(const SwitchMaps &maps, const inagg_job &job) {
    inagg_ways ways = maps.ways(job.index);
    inagg_ways_refresh(&ways, job.generation, now_ns());
    return ways;
}

// By which switches above the packets of a canary job go, by which of those that are there they may, and how long sums wait.
json route_json(const SwitchMaps &maps, const inagg_job &job) {
    if (!has_descriptors(job))
        return nullptr;
    constexpr std::array policies = {"default", "ecmp", "flowlet", "least"};
    const inagg_route route = maps.route(job.index);
    const inagg_patience learnt = maps.patience(job.index);
    const inagg_ways ways = known_ways(maps, job);
    json ports = json::array();
    const UpPorts up_ports = maps.up_ports();
    for (uint32_t up = 0; up < INAGG_MAX_UPS; up++)
        if (up_ports[up].ifindex)
            ports.push_back({{"number", up},
                             {"port", port_name(up_ports[up].ifindex)},
                             {"address", address_of(up_ports[up]).text()},
                             {"up", (route.up >> up & 1) != 0},
                             {"avoided_to", ranks_of(ways.bad[up])}});
    return {{"up", route.up},
            {"policy", policies[route.policy % policies.size()]},
            {"timeout_us", route.timeout_us},
            {"wait_us", static_cast<double>(inagg_route_wait_ns(&route, &learnt)) / 1000},
            {"ports", ports}};
}

// Of each rank of a trio job: how many packets were heard of it, how many blocks were decided without it, and what
// follows. Ranks that are there in time are left out.
json stragglers_json(const SwitchMaps &maps, const inagg_job &job) {
    json ranks = json::array();
    if (!has_records(job))
        return ranks;
    const inagg_attendance counts = maps.attendance(job.index);
    const inagg_stragglers judged = maps.stragglers(job.index);
    for (uint32_t rank = 0; rank < job.size && rank < INAGG_MAX_RANKS; rank++) {
        const uint64_t bit = inagg_rank_bit(rank);
        const char *state = inagg_job_excluded(&job) & bit ? "excluded"
                            : judged.permanent & bit       ? "permanent"
                            : judged.temporary & bit       ? "temporary"
                                                           : "present";
        if (counts.missed[rank] || std::string_view(state) != "present")
            ranks.push_back({{"rank", rank}, {"state", state}, {"heard", counts.heard[rank]}, {"missed", counts.missed[rank]}});
    }
    return ranks;
}

json summary(const SwitchMaps &maps, uint16_t number, const inagg_job &job) {
    json result = job_json(number, job, maps.members(job.index), policy_of(maps, job));
    result["stragglers"] = stragglers_json(maps, job);
    result["parent"] = parent_of(maps, job);
    result["parent_port"] = uplink_port(maps, job);
    result["route"] = route_json(maps, job);
    return result;
}

double ratio(uint64_t part, uint64_t whole) { return whole ? static_cast<double>(part) / static_cast<double>(whole) : 0; }

// What looks for trio's stragglers, and the part of a CPU that it takes: that of the timers, each run of which ages a part of
// the records, and that of the thread that sends what they find, or that looks itself where there are none.
json sweeps_json(const SwitchMaps &maps) {
    const inagg_sweep_settings settings = maps.sweep_settings();
    const inagg_sweeper done = maps.sweeps(settings.sweepers);
    const inagg_sweep_process process = maps.sweep_process();
    const bool is_idle = now_ns() - process.until_ns > 1'000'000'000;
    const double by_timers = ratio(settings.sweepers, settings.period_ns) * ratio(done.ns, done.runs);
    return {{"timers", settings.sweepers},
            {"period_us", settings.period_ns / 1000},
            {"cpu", by_timers},
            {"cpu_sending", is_idle ? 0 : ratio(process.cpu_ns, process.until_ns - process.since_ns)},
            {"longest_us", static_cast<double>(done.longest_ns) / 1000},
            {"records", done.records},
            {"expired", done.expired},
            {"busy", done.busy}};
}

// Of canary's blocks.
json descriptors_json(const SwitchMaps &maps) {
    const inagg_occupancy occupancy = maps.occupancy();
    return {{"count", maps.descriptor_count()}, {"held", occupancy.held}, {"most", occupancy.most}};
}

json port_json(const SwitchMaps &maps, const AttachedPort &port) {
    const auto queue = maps.queue(port.ifindex);
    return {{"port", port.name},
            {"ifindex", port.ifindex},
            {"present", port.ifindex != 0},
            {"marked", queue ? json(queue->marked) : json(nullptr)}};
}

// Calls `each(name, row)` for the rows of `stats` that are asked for.
template <typename Each> void for_rows(const SwitchMaps &maps, std::optional<uint16_t> wanted, Each each) {
    bool found = false;
    for (const auto &[number, job] : maps.jobs())
        if (!wanted || *wanted == number) {
            each(json(number), maps.stats(job.index));
            found = true;
        }
    if (wanted && !found)
        throw Error("job {}: no such job on this switch (inaggctl job list)", *wanted);
    if (!wanted)
        each(json(nullptr), maps.stats(INAGG_STATS_NO_JOB));
}

// What an agent says of a switch that has no pinned maps; nothing: read those.
std::optional<json> told(const Where &where, const char *what, std::optional<uint16_t> job = {}) {
    if (!is_asked(where.run_dir))
        return std::nullopt;
    nlohmann::json request = {{"command", "read"}, {"what", what}, {"job", nullptr}};
    if (job)
        request["job"] = *job;
    return json::parse(ask_daemon(where.run_dir, request).at("value").get<std::string>());
}

} // namespace

json read_status(const Where &where) {
    if (auto state = told(where, "status"))
        return *state;
    SwitchMaps maps = SwitchMaps::open(where.bpffs);
    inagg_switch_settings settings = maps.settings();
    Address four{.family = static_cast<uint8_t>(settings.address4 ? 4 : 0)}, six{.family = 6};
    std::memcpy(four.bytes.data(), &settings.address4, 4);
    std::memcpy(six.bytes.data(), settings.address6, 16);
    if (!six.is_host())
        six.family = 0;

    json ports = json::array();
    for (const AttachedPort &port : attached_ports(where.bpffs))
        ports.push_back(port_json(maps, port));
    auto jobs = maps.jobs();
    uint32_t used = 0;
    for (const auto &[number, job] : jobs)
        used += has_records(job) || has_descriptors(job) ? 0 : pool_slots(job);
    return {{"agent", daemon_answers(where.run_dir) ? "running" : "not running"},
            {"bpffs", where.bpffs},
            {"address4", four.text()},
            {"address6", six.text()},
            {"udp_port", INAGG_PORT},
            {"boot", settings.boot},
            {"ports", ports},
            {"jobs", jobs.size()},
            {"slots", maps.slot_count()},
            {"slots_used", used},
            {"descriptors", descriptors_json(maps)},
            {"sweeps", sweeps_json(maps)}};
}

json read_jobs(const Where &where) {
    if (auto state = told(where, "jobs"))
        return *state;
    SwitchMaps maps = SwitchMaps::open(where.bpffs);
    json list = json::array();
    for (const auto &[number, job] : maps.jobs())
        list.push_back(summary(maps, number, job));
    return list;
}

json read_job(const Where &where, uint16_t number) {
    if (auto state = told(where, "job", number))
        return *state;
    SwitchMaps maps = SwitchMaps::open(where.bpffs);
    auto jobs = maps.jobs();
    auto job = jobs.find(number);
    if (job == jobs.end())
        throw Error("job {}: no such job on this switch (inaggctl job list)", number);
    json result = summary(maps, number, job->second);
    Members members = maps.members(job->second.index);
    result["members"] = json::array();
    for (uint16_t rank = 0; rank < job->second.size && rank < INAGG_MAX_RANKS; rank++)
        result["members"].push_back(member_json(rank, members[rank], job->second.all & inagg_rank_bit(rank),
                                                members[rank].ifindex ? port_name(members[rank].ifindex) : ""));
    return result;
}

json read_stats(const Where &where, std::optional<uint16_t> wanted) {
    if (auto state = told(where, "stats", wanted))
        return *state;
    SwitchMaps maps = SwitchMaps::open(where.bpffs);
    json list = json::array();
    for_rows(maps, wanted, [&](const json &job, const inagg_stats &stats) { list.push_back(counters_json(job, stats)); });
    return list;
}

json read_drops(const Where &where, std::optional<uint16_t> wanted) {
    if (auto state = told(where, "drops", wanted))
        return *state;
    SwitchMaps maps = SwitchMaps::open(where.bpffs);
    json list = json::array();
    for_rows(maps, wanted, [&](const json &job, const inagg_stats &stats) { add_drops(list, job, stats); });
    return list;
}

} // namespace inaggd
