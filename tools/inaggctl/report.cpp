// SPDX-License-Identifier: BSD-2-Clause
#include "report.hpp"

#include <fmt/core.h>
#include <fmt/format.h>

#include <string>
#include <vector>

namespace inaggctl {
namespace {

std::string row_name(const json &job) { return job.is_null() ? "no job" : fmt::format("job {}", job.get<int>()); }

std::string text(const json &value) { return value.is_string() ? value.get<std::string>() : value.dump(); }

std::string state_of_up_port(const json &up) {
    if (!up["up"].get<bool>())
        return ": down, or the switch there does not know all ranks";
    const auto avoided = up["avoided_to"].get<std::vector<unsigned>>();
    return avoided.empty() ? "" : fmt::format(": full further on, to rank {}", fmt::join(avoided, ", "));
}

} // namespace

void print_json(const json &value) { fmt::print("{}\n", value.dump(2, ' ', false, json::error_handler_t::replace)); }

void print_status(const json &status) {
    fmt::print("agent      {}\n", text(status["agent"]));
    fmt::print("addresses  {} {} UDP port {}\n", text(status["address4"]), text(status["address6"]), text(status["udp_port"]));
    fmt::print("boot id    {:#06x}\n", status["boot"].get<unsigned>());
    for (const json &port : status["ports"])
        fmt::print("port       {}{}{}\n", text(port["port"]), port["present"].get<bool>() ? "" : " (gone)",
                   port["marked"].is_null() ? "" : fmt::format(", {} frames met a long queue", text(port["marked"])));
    fmt::print("jobs       {}\n", text(status["jobs"]));
    fmt::print("slots      {} of {} in use\n", text(status["slots_used"]), text(status["slots"]));
    if (status.contains("descriptors") && status["descriptors"]["most"] != 0) // a P4 switch does not count them
        fmt::print("descriptors {} of {} held, {} at most\n", text(status["descriptors"]["held"]),
                   text(status["descriptors"]["count"]), text(status["descriptors"]["most"]));
    const json &sweeps = status["sweeps"];
    if (sweeps.value("period_us", 0U) != 0) // a P4 switch has its own
        fmt::print(
            "sweeps     every {} us by {}, {:.1f} % of a CPU, {:.1f} us at most; sending {:.1f} %\n", text(sweeps["period_us"]),
            sweeps["timers"] == 0 ? "the agent, as there is no memory for timers" : text(sweeps["timers"]) + " timers",
            100 * sweeps["cpu"].get<double>(), sweeps["longest_us"].get<double>(), 100 * sweeps["cpu_sending"].get<double>());
}

void print_jobs(const json &jobs) {
    fmt::print("{:>6} {:>5} {:>7} {:>11} {:<10} {:>12} {:>9}\n", "JOB", "RANKS", "JOINED", "GENERATION", "ALGORITHM", "SLOTS",
               "ELEMENTS");
    for (const json &job : jobs)
        fmt::print("{:>6} {:>5} {:>7} {:>11} {:<10} {:>12} {:>9}\n", text(job["job"]), text(job["size"]), text(job["joined"]),
                   text(job["generation"]), text(job["algorithm"]), text(job["slots"]) + "+" + text(job["control_slots"]),
                   text(job["elements"]) + (job["blocks"] > 1 ? "x" + text(job["blocks"]) : ""));
    for (const json &job : jobs)
        for (const json &rank : job["stragglers"])
            fmt::print("job {}: rank {} is {}: missed {} blocks, {} packets heard\n", text(job["job"]), text(rank["rank"]),
                       text(rank["state"]), text(rank["missed"]), text(rank["heard"]));
}

void print_job(const json &job) {
    print_jobs(json::array({job}));
    const json ups = job["route"].is_null() ? json::array() : job["route"]["ports"];
    for (const json &up : ups)
        fmt::print("{}up port {} to {}, through {}{}\n", up == ups.front() ? "\n" : "", text(up["number"]), text(up["address"]),
                   text(up["port"]), state_of_up_port(up));
    if (!job["route"].is_null())
        fmt::print("{}sums wait here for {:.3g} us{}\n", ups.empty() ? "\n" : "", job["route"]["wait_us"].get<double>(),
                   job["route"]["timeout_us"] == 0 ? ", as learnt" : "");
    if (job["route"].is_null() && job["parent"] != "none")
        fmt::print("\nsummed further at {}, through {}\n", text(job["parent"]), text(job["parent_port"]));
    fmt::print("\n{:>6} {:<10} {:<8} {:<17} {:>12} {}\n", "RANK", "STATE", "PORT", "MAC", "RECEIVE PORT", "ADDRESS");
    for (const json &member : job["members"])
        fmt::print("{:>6} {:<10} {:<8} {:<17} {:>12} {}{}\n", text(member["rank"]), text(member["state"]), text(member["port"]),
                   text(member["mac"]), text(member["receive_port"]), text(member["address"]),
                   member["switch"].get<bool>() ? " (a switch)" : "");
}

void print_stats(const json &stats) {
    for (const json &row : stats) {
        fmt::print("{}\n", row_name(row["job"]));
        for (const auto &[name, value] : row.items())
            if (name != "job")
                fmt::print("  {:<12} {:>16}\n", name, text(value));
    }
}

void print_drops(const json &drops) {
    if (drops.empty())
        fmt::print("no packets dropped\n");
    for (const json &row : drops)
        fmt::print("{:<10} {:>12}  {:<16} {}\n", row_name(row["job"]), text(row["packets"]), text(row["reason"]),
                   text(row["text"]));
}

} // namespace inaggctl
